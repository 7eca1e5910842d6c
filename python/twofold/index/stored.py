"""Vectors and token codes that lie in a file: read when they are scored, checked when they are read."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold import _core

Rows = npt.NDArray[np.float32]
Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


class StoredVectors(_core.VectorIndex):
    """As `_core.VectorIndex`. Rows of a damaged file are taken from `repair()`, which gives all that were in it."""

    def __init__(self, dimension: int, repair: Callable[[], Rows]) -> None:
        super().__init__(dimension)
        self._repair = repair

    def _whole(self, ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return ask(*args, **kwargs)
        except _core.Damaged:
            self.refill(self._repair())
            return ask(*args, **kwargs)

    def search(self, *args: Any, **kwargs: Any) -> Found:
        found: Found = self._whole(super().search, *args, **kwargs)
        return found

    def search_many(self, *args: Any, **kwargs: Any) -> Found:
        found: Found = self._whole(super().search_many, *args, **kwargs)
        return found

    def scores(self, *args: Any) -> npt.NDArray[np.float32]:
        found: Rows = self._whole(super().scores, *args)
        return found

    def rows(self, *args: Any) -> Rows:
        found: Rows = self._whole(super().rows, *args)
        return found


class StoredTokens:
    """Token codes of the first vectors of a part, in a file. What is damaged, `repair()` has: all of them, uint64."""

    def __init__(
        self,
        file: int,
        at: int,
        count: int,
        words: int,
        sums: npt.NDArray[np.uint64],
        repair: Callable[[], npt.NDArray[np.uint64]],
    ) -> None:
        """`count` codes of `words` words from byte `at` on; sums: per vector. The descriptor is copied."""
        self.count, self.repair = count, repair
        self._file, self._at, self._width, self._sums = os.dup(file), at, 8 * words, sums
        weakref.finalize(self, os.close, self._file)

    def of(self, vector: int, start: int, stop: int) -> bytes:
        """Codes start <= i < stop, which are those of a vector. `_core.Damaged` when they are not."""
        found = os.pread(self._file, (stop - start) * self._width, self._at + start * self._width)
        if len(found) != (stop - start) * self._width or _core.checksum(found) != int(self._sums[vector]):
            raise _core.Damaged(f"the token codes of vector {vector} are damaged")
        return found
