"""What one server allows: sizes, rates, times, and how many requests at once. Pure; time is an argument."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from twofold.clock import DAY, SECOND
from twofold.errors import InvalidInput

FORGET_AFTER: Final = 600.0  # seconds without a request after which a bucket is full again anyway


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server. Sizes in bytes, times in seconds.

    body: of a JSON request. upload: of an import. timeout: of one request; long_timeout: of import, export,
    verify, maintain, gc, erase. rate: requests per second of a key that has no rate of its own (0: no limit),
    burst: as many at once. concurrent: requests under way before new ones get 503. readers, writers: threads.
    drain: how long a stop waits for requests under way. maintain_every: between maintenance runs, 0: never.
    """

    body: int = 8 << 20
    upload: int = 4 << 30
    timeout: float = 30.0
    long_timeout: float = 600.0
    rate: float = 200.0
    burst: int = 400
    concurrent: int = 512
    readers: int = 6
    writers: int = 4  # they embed at once, and take turns at the store's lock
    drain: float = 20.0
    maintain_every: float = DAY / SECOND

    @classmethod
    def of_rate(cls, rate: float, **more: Any) -> Limits:
        """Limits with so many requests a second, and twice as many at once."""
        burst = max(1, int(2 * rate)) if math.isfinite(rate) else 1
        return cls(rate=rate, burst=burst, **more)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            low = 0 if f.name in ("rate", "maintain_every") else 1e-3
            if not low <= value < math.inf:
                raise InvalidInput(f"limit {f.name} must be a number of at least {low:g}, not {value!r}")


class Rates:
    """A token bucket per key: `take` gives 0 when the request may go on, else the seconds to wait."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}  # key -> (tokens, at)
        self._lock = threading.Lock()
        self._swept = now()

    def take(self, key: str, rate: float, burst: float) -> float:
        """Take one token of a bucket that gains `rate` a second and holds at most `burst`."""
        if rate <= 0:
            return 0.0
        burst = max(1.0, burst)
        with self._lock:
            now = self._now()
            self._sweep(now)
            tokens, at = self._buckets.get(key, (burst, now))
            tokens = min(burst, tokens + (now - at) * rate)
            if tokens < 1.0:
                self._buckets[key] = (tokens, now)
                return (1.0 - tokens) / rate
            self._buckets[key] = (tokens - 1.0, now)
            return 0.0

    def _sweep(self, now: float) -> None:
        if now - self._swept > FORGET_AFTER:
            self._swept = now
            self._buckets = {k: b for k, b in self._buckets.items() if now - b[1] <= FORGET_AFTER}
