"""A first-come-first-served lock: a thread that writes in a loop cannot starve the others."""

from __future__ import annotations

import threading
from collections import deque


class FifoLock:
    """A lock handed over in the order it was asked for. Not re-entrant."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._owner: int | None = None

    def acquire(self, timeout: float) -> bool:
        """Take the lock within `timeout` seconds; False when it was not had."""
        me = threading.get_ident()
        with self._mutex:
            if self._owner is None:
                self._owner = me
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            got = turn.acquire(timeout=timeout)
        except BaseException:  # a signal while waiting: do not leave a turn that nobody will take
            with self._mutex:
                handed = turn not in self._waiting
                if not handed:
                    self._waiting.remove(turn)
            if handed:
                self.release()
            raise
        with self._mutex:
            if not got and turn in self._waiting:
                self._waiting.remove(turn)
                return False
            # Handed over, perhaps in the instant after the time-out: it is ours.
            self._owner = me
            return True

    def release(self) -> None:
        """Hand the lock to the next in line."""
        with self._mutex:
            if self._waiting:
                self._owner = -1  # taken, by a thread that has not woken yet
                self._waiting.popleft().release()
            else:
                self._owner = None

    def mine(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._owner == threading.get_ident()
