"""Vectors whose float32 rows lie in a file: read when they are scored, checked when they are read."""

from __future__ import annotations

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
