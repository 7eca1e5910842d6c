"""A number of places that threads take and give back, which can be asked how many are taken and waited for."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Taken(NamedTuple):
    """limit: places in all; used: taken now; waiting: threads that want one and have none."""

    limit: int
    used: int
    waiting: int


class Places:
    """A semaphore that tells what it is doing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting = 0
        self._changed = threading.Condition()

    def take(self, timeout: float) -> bool:
        """Take a place within `timeout` seconds; False when none was had."""
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(lambda: self._used < self._limit, timeout):
                    return False
                self._used += 1
                return True
            finally:
                self._waiting -= 1

    def give(self) -> None:
        """Give a place back."""
        with self._changed:
            self._used -= 1
            self._changed.notify()

    def state(self) -> Taken:
        with self._changed:
            return Taken(self._limit, self._used, self._waiting)
