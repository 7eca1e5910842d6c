"""Growable numpy columns and string interning: the storage of the views in RAM."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Column:
    """A one-dimensional numpy array that grows by doubling. `view()` is a slice, never a copy.

    A slice taken earlier stays valid after growth: old values are never moved under a reader.
    """

    __slots__ = ("_data", "_size")

    def __init__(self, dtype: npt.DTypeLike, capacity: int = 256) -> None:
        self._data: npt.NDArray[Any] = np.zeros(capacity, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, values: Any) -> None:
        added = np.asarray(values, self._data.dtype)
        size = self._size + len(added)
        if size > len(self._data):
            grown = np.zeros(max(size, 2 * len(self._data)), self._data.dtype)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._data[self._size : size] = added
        self._size = size

    def append(self, value: Any) -> None:
        if self._size == len(self._data):
            grown = np.zeros(2 * len(self._data), self._data.dtype)
            grown[: self._size] = self._data
            self._data = grown
        self._data[self._size] = value
        self._size += 1

    def view(self, stop: int | None = None) -> npt.NDArray[Any]:
        return self._data[: self._size if stop is None else min(stop, self._size)]

    def __getitem__(self, i: int) -> Any:
        return self._data[i]

    def __setitem__(self, i: int, value: Any) -> None:
        self._data[i] = value


class Codes:
    """Strings to dense ints in order of first appearance."""

    __slots__ = ("code", "names")

    def __init__(self) -> None:
        self.code: dict[str, int] = {}
        self.names: list[str] = []

    def add(self, name: str) -> int:
        code = self.code.get(name)
        if code is None:
            code = self.code[name] = len(self.names)
            self.names.append(name)
        return code

    def get(self, name: str) -> int:
        """The code, or -1 for an unknown name."""
        return self.code.get(name, -1)

    def __len__(self) -> int:
        return len(self.names)
