"""The one source of time: clocks, and conversions between datetimes and microseconds.

Inside Twofold an instant is an int: microseconds since 1970-01-01 UTC. OPEN stands for "no end".
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Final, Protocol, runtime_checkable

from twofold.errors import InvalidInput

OPEN: Final = 2**63 - 1
DAY: Final = 86_400_000_000
HOUR: Final = 3_600_000_000
SECOND: Final = 1_000_000

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@runtime_checkable
class Clock(Protocol):
    """What Twofold asks the time of."""

    def now(self) -> dt.datetime:
        """The current instant, with a zone."""
        ...


class SystemClock:
    """The machine's wall clock, in UTC."""

    def now(self) -> dt.datetime:
        """The current instant in UTC."""
        return dt.datetime.now(dt.UTC)


class ManualClock:
    """A clock that moves only when told to, for tests and replays."""

    def __init__(self, start: dt.datetime | str = "2026-01-01T00:00:00Z") -> None:
        self._now = from_us(to_us(start))

    def now(self) -> dt.datetime:
        """The instant last set."""
        return self._now

    def set(self, instant: dt.datetime | str) -> None:
        """Jump to an instant (zoned datetime or ISO 8601 string)."""
        self._now = from_us(to_us(instant))

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> dt.datetime:
        """Move forward and return the new time."""
        self._now += dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._now


def monotonic() -> float:
    """Seconds on a clock that never goes back; for measuring durations only."""
    return time.perf_counter()


def to_us(value: dt.datetime | dt.date | str, *, name: str = "instant") -> int:
    """Microseconds since the epoch of a zoned datetime, an ISO 8601 string with a zone, or a UTC day.

    A date (or "YYYY-MM-DD") means that day's first instant in UTC.
    Raises InvalidInput for naive datetimes and anything unreadable.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            if len(text) == 10:
                value = dt.date.fromisoformat(text)
            else:
                value = dt.datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(
                f"{name} {value!r} is not ISO 8601; write 2026-03-12T10:30:00Z or 2026-03-12"
            ) from None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidInput(f"{name} {value.isoformat()} has no time zone; add one, e.g. +00:00 or Z")
        try:
            delta = value - _EPOCH
        except OverflowError:
            raise InvalidInput(f"{name} {value!r} is out of range") from None
    elif isinstance(value, dt.date):
        delta = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC) - _EPOCH
    else:
        raise InvalidInput(f"{name} must be a zoned datetime, a date or an ISO 8601 string, not {value!r}")
    us = (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds
    if not _FIRST <= us <= _LAST:  # its zone takes it out of the years there are
        raise InvalidInput(f"{name} {value!r} is out of range")
    return us


_FIRST: Final = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
_LAST: Final = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)


def from_us(us: int) -> dt.datetime:
    """The UTC datetime of a number of microseconds since the epoch."""
    return _EPOCH + dt.timedelta(microseconds=us)


def iso(us: int) -> str:
    """ISO 8601 with microseconds dropped when zero, always ending in Z."""
    return from_us(us).isoformat().replace("+00:00", "Z")
