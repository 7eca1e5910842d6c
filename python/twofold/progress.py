"""A progress bar on a terminal for long work, or the caller's own function. Silent when not asked for."""

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
        """Report how many are done."""
        if callable(self._report):
            self._report(done)
        elif self._report and sys.stderr is not None and sys.stderr.isatty():
            if self._total:
                filled = WIDTH * min(done, self._total) // self._total
                bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{self._total}"
            else:
                bar = str(done)
            sys.stderr.write(f"\r{self._what} {bar}")
            sys.stderr.flush()
            self._shown = True

    def close(self) -> None:
        """End the bar's line."""
        if self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()


class Steps:
    """Several stages in turn, each with its own bar; for functions that report (stage, done, total)."""

    def __init__(self, report: bool) -> None:
        self._report = report
        self._stage = ""
        self._bar: Progress | None = None

    def to(self, stage: str, done: int, total: int) -> None:
        """Report a stage's progress; a new stage starts a new bar."""
        if stage != self._stage or self._bar is None:
            self.close()
            self._stage, self._bar = stage, Progress(stage, total or None, self._report)
        self._bar.to(done)

    def close(self) -> None:
        """End the last bar's line."""
        if self._bar is not None:
            self._bar.close()
