"""Notices of commits, by LISTEN and NOTIFY.

A notice is a hint and carries no data: the channel is one per schema, the payload a keyed hash of the tenant, since
every role of the database may listen. It is sent after the commit, in a transaction of its own, for two reasons:
NOTIFY takes a lock of the whole server until its transaction ends, and with a hint inside, every commit would queue
there; and a hint that fails must not undo what was written. So a notice may be lost, and nothing relies on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
from typing import Any, Final, NoReturn

import psycopg

from twofold.errors import StoreError

# Not waited for by a synchronous standby: what it speaks of is there already.
SEND: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


def channel(schema: str) -> str:
    """The channel of a schema's commits."""
    return f"twofold_{hashlib.blake2b(schema.encode(), digest_size=8).hexdigest()}"


def payload(schema: str, tenant: str) -> str:
    """What stands for a tenant in a notice."""
    key = hashlib.blake2b(schema.encode(), digest_size=16).digest()
    return hashlib.blake2b(tenant.encode(), key=key, digest_size=8).hexdigest()


class Feed:
    """A connection that listens. Used by one thread; `wake` by any."""

    def __init__(self, dsn: str, shown: str, schema: str) -> None:
        self._shown = shown
        self._pid = os.getpid()
        self._woken, self._waker = os.pipe()
        try:
            self._db: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
            self._db.execute(f"LISTEN {channel(schema)}")
        except psycopg.Error as error:
            self._close_pipe()
            self._fail(error)

    def wait(self, seconds: float) -> bool:
        """Return at the first notice, at `wake`, or after some seconds; whether there was a notice.

        StoreError when the connection is lost.
        """
        try:
            ready, _, _ = select.select([self._db.fileno(), self._woken], [], [], seconds)
            if self._woken in ready:
                os.read(self._woken, 64)
            if len(ready) == 0 or ready == [self._woken]:
                return False
            # Some milliseconds more: a burst of commits is one notice.
            return bool(list(self._db.notifies(timeout=0.01)))
        except psycopg.Error as error:
            self._fail(error)

    def wake(self) -> None:
        """Make `wait` return now."""
        with contextlib.suppress(OSError):  # closed already
            os.write(self._waker, b".")

    def close(self) -> None:
        """Release the connection, unless it is the parent's."""
        self._close_pipe()
        if self._pid == os.getpid():
            self._db.close()

    def _close_pipe(self) -> None:
        for end in (self._woken, self._waker):
            with contextlib.suppress(OSError):
                os.close(end)

    def _fail(self, error: psycopg.Error) -> NoReturn:
        raise StoreError(f"cannot listen to {self._shown}: {str(error).strip()}") from error


__all__ = ["SEND", "Feed", "channel", "payload"]
