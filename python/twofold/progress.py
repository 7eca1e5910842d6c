"""A progress bar on stderr for long work, or the caller's own function. Silent when not asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable

WIDTH = 30


class Progress:
    """`to(n)` reports n of total done."""

    def __init__(self, what: str, total: int | None, report: bool | Callable[[int], None]) -> None:
        self._what = what
        self._total = total
        self._report = report
        self._shown = False

    def to(self, done: int) -> None:
        if callable(self._report):
            self._report(done)
        elif self._report and sys.stderr is not None:
            if self._total:
                filled = WIDTH * min(done, self._total) // self._total
                bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{self._total}"
            else:
                bar = str(done)
            sys.stderr.write(f"\r{self._what} {bar}")
            sys.stderr.flush()
            self._shown = True

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()
