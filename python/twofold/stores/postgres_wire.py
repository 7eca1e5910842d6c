"""A connection that gives up a server that has stopped saying anything.

A server whose processes are stopped, or that waits for a lock, still acknowledges packets: the system's keepalives
find a dead machine and a cut line, but not that. Its own statement_timeout does not run either while it is stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import psycopg

from twofold.clock import monotonic


class Silent(psycopg.OperationalError):
    """The server said nothing for as long as it may."""


class Heard(psycopg.Connection[Any]):
    """`limit`: seconds within which something must come while an answer is waited for; None for any time."""

    limit: float | None = None

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        """As psycopg's; Silent, with the connection unusable afterwards, when nothing came for too long."""
        if self.limit is None:
            return super().wait(gen, *args, **more)
        try:
            return super().wait(_heard(gen, self.limit), *args, **more)
        except Silent:
            self.pgconn.finish()
            raise


def _heard(gen: Generator[Any, Any, Any], limit: float) -> Generator[Any, Any, Any]:
    """What psycopg waits for, and what it is told of it: that nothing came, every tenth of a second."""
    try:
        wanted = next(gen)
        since = monotonic()
        while True:
            ready = yield wanted
            if ready:
                since = monotonic()
            elif monotonic() - since > limit:
                raise Silent(f"the server has said nothing for {limit:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


@contextlib.contextmanager
def unhurried(db: Any) -> Iterator[None]:
    """For statements that may rightly be silent for long: making an index, changing a table."""
    limit, db.limit = db.limit, None
    try:
        yield
    finally:
        db.limit = limit


__all__ = ["Heard", "Silent", "unhurried"]
