"""Growable columns, tables of names and lists of rows: the storage of the views in RAM.

Each has two parts: what was read from the view's file, as arrays in the form in which they lie there, and what came
since, as Python objects. Nothing of the first part is decoded before it is asked for, so that opening is a read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold import _core

Strings = _core.Strings
_DECODED = (
    4096  # tables of up to this many names become plain lists at once: that is quicker than asking often
)
_NONE: tuple[int, ...] = ()


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

    def restore(self, values: npt.NDArray[Any], size: int | None = None) -> None:
        """Take over a writable array of this dtype; it is not copied. Beyond `size` of it is room to grow."""
        if values.dtype != self._data.dtype:
            raise ValueError(f"expected {self._data.dtype}, got {values.dtype}")
        self._data, self._size = values, len(values) if size is None else size

    def extend(self, values: Any) -> None:
        added = np.asarray(values, self._data.dtype)
        size = self._size + len(added)
        if size > len(self._data):
            self._grow(size)
        self._data[self._size : size] = added
        self._size = size

    def append(self, value: Any) -> None:
        if self._size == len(self._data):
            self._grow(self._size + 1)
        self._data[self._size] = value
        self._size += 1

    def _grow(self, least: int) -> None:
        # Not zeros: those come in small pages, and each costs as much as copying it does.
        grown = np.empty(max(least, 2 * len(self._data), 256), self._data.dtype)
        grown[: self._size] = self._data[: self._size]
        self._data = grown

    def view(self, stop: int | None = None) -> npt.NDArray[Any]:
        return self._data[: self._size if stop is None else min(stop, self._size)]

    def __getitem__(self, i: int) -> Any:
        return self._data[i]

    def __setitem__(self, i: int, value: Any) -> None:
        self._data[i] = value


def encoded(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Texts as one UTF-8 blob, uint8, and where each begins, int64 (n + 1,)."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return np.frombuffer(b"".join(parts), np.uint8), offsets


def ranges(
    first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The numbers of each [first, last), one range after the other, and where each one's begin in them; int64."""
    counts = last - first
    starts = np.cumsum(counts) - counts
    return np.repeat(first - starts, counts) + np.arange(int(counts.sum())), starts


class Texts:
    """A growing list of strings; single ones can be replaced."""

    __slots__ = ("_added", "_changed", "_count", "_stored")

    def __init__(self) -> None:
        self._stored: Strings | None = None
        self._count = 0
        self._added: list[str] = []
        self._changed: dict[int, str] = {}

    def restore(self, stored: Strings) -> None:
        self._stored, self._count = stored, len(stored)

    def append(self, text: str) -> None:
        self._added.append(text)

    def __len__(self) -> int:
        return self._count + len(self._added)

    def __getitem__(self, i: int) -> str:
        if i < 0:
            i += len(self)
        if i >= self._count:
            return self._added[i - self._count]
        changed = self._changed.get(i) if self._changed else None
        assert self._stored is not None
        return self._stored[i] if changed is None else changed

    def __setitem__(self, i: int, text: str) -> None:
        if i < self._count:
            self._changed[int(i)] = text
        else:
            self._added[i - self._count] = text

    def tolist(self) -> list[str]:
        texts = [] if self._stored is None else self._stored.tolist()
        for i, text in self._changed.items():
            texts[i] = text
        return texts + self._added

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Texts | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.tolist())


class Codes:
    """Strings to dense ints in order of first appearance."""

    __slots__ = ("_code", "_stored", "names")

    def __init__(self) -> None:
        self._stored: Strings | None = None
        self._code: dict[str, int] = {}  # all, or with `_stored` those asked for
        self.names: list[str] | Texts = []

    def restore(self, stored: Strings) -> None:
        if len(stored) <= _DECODED:
            self.names = names = stored.tolist()
            self._code = dict(zip(names, range(len(names)), strict=True))
        else:
            self._stored, self.names = stored, Texts()
            self.names.restore(stored)

    def add(self, name: str) -> int:
        code = self._code.get(name)
        if code is None:
            code = -1 if self._stored is None else self._stored.find(name)
            if code < 0:
                code = len(self.names)
                self.names.append(name)
            self._code[name] = code
        return code

    def get(self, name: str) -> int:
        """The code, or -1 for an unknown name."""
        code = self._code.get(name)
        if code is None:
            return -1 if self._stored is None else self._stored.find(name)
        return code

    def get_all(self, names: list[str]) -> list[int]:
        """The code of each name, -1 for an unknown one."""
        known = self._code
        if self._stored is None:
            return [known.get(name, -1) for name in names]
        # The table in the file has the code of every name but those that came later.
        codes = self._stored.find_all(names)
        return [known.get(name, -1) if code < 0 else code for name, code in zip(names, codes, strict=True)]

    def __len__(self) -> int:
        return len(self.names)


class Ragged:
    """A growing list of tuples of ints."""

    __slots__ = ("_added", "_count", "_flat", "_offsets")

    def __init__(self) -> None:
        self._added: list[tuple[int, ...]] = []
        self._flat = np.zeros(0, np.int32)
        self._offsets = np.zeros(1, np.int64)
        self._count = 0

    def restore(self, flat: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        if offsets[-1] != len(flat):
            raise ValueError("offsets do not fit the values")
        self._flat, self._offsets, self._count = flat, offsets, len(offsets) - 1

    def arrays(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """All values one after the other, int32, and where each tuple begins, int64 (n + 1,)."""
        flat = np.array([v for row in self._added for v in row], np.int32)
        ends = np.cumsum(np.array([len(row) for row in self._added], np.int64)) + len(self._flat)
        return np.concatenate((self._flat, flat)), np.concatenate((self._offsets, ends))

    def append(self, values: tuple[int, ...]) -> None:
        self._added.append(values)

    def __len__(self) -> int:
        return self._count + len(self._added)

    def __getitem__(self, i: int) -> tuple[int, ...]:
        if i >= self._count:
            return self._added[i - self._count]
        return tuple(self._flat[self._offsets[i] : self._offsets[i + 1]].tolist())

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[i] for i in range(len(self)))


class Groups:
    """Rows by a key, each group ascending."""

    __slots__ = ("_added", "_dense", "_keys", "_rows", "_starts")

    def __init__(self) -> None:
        self._added: dict[int, array[int]] = {}  # whole groups: those that grew since the file was read
        self._keys = self._rows = np.zeros(0, np.int64)
        self._starts = np.zeros(1, np.int64)
        self._dense = False

    def restore(
        self, keys: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> None:
        """Take what `grouped` gave."""
        if len(starts) != len(keys) + 1 or starts[-1] != len(rows):
            raise ValueError("groups do not fit their keys")
        self._keys, self._starts, self._rows = keys, starts, rows
        # Keys ascend: these are 0, 1, 2 and so on, as codes are that all have rows.
        self._dense = bool(len(keys)) and int(keys[0]) == 0 and int(keys[-1]) == len(keys) - 1

    def add(self, key: int, row: int) -> None:
        rows = self._added.get(key)
        if rows is None:
            rows = self._added[key] = array("q", self._stored(key).tobytes())
        rows.append(row)

    def get(self, key: int, default: Sequence[int] = _NONE) -> Sequence[int]:
        rows = self._added.get(key)
        if rows is not None:
            return rows
        stored = self._stored(key)
        return stored.tolist() if len(stored) else default

    def __getitem__(self, key: int) -> Sequence[int]:
        rows = self.get(key)
        if not rows:
            raise KeyError(key)
        return rows

    def last(self, key: int) -> int:
        """The last row of a key, -1 where it has none."""
        rows = self._added.get(key)
        if rows is None:
            stored = self._stored(key)
            return int(stored[-1]) if len(stored) else -1
        return rows[-1]

    def array(self, key: int) -> npt.NDArray[np.int64]:
        """The rows of a key, not to be written to; empty for an unknown one."""
        rows = self._added.get(key)
        return self._stored(key) if rows is None else np.array(rows, np.int64)

    def _stored(self, key: int) -> npt.NDArray[np.int64]:
        keys = self._keys
        if not len(keys):
            return keys
        if self._dense:
            at = key
            if not 0 <= at < len(keys):
                return keys[:0]
        else:
            at = int(keys.searchsorted(key))
            if at == len(keys) or keys[at] != key:
                return keys[:0]
        return self._rows[self._starts[at] : self._starts[at + 1]]


def grouped(
    keys: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Keys and the rows they belong to, ascending, as arrays for `Groups`: distinct keys, starts, rows; int64."""
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    if len(keys):
        keep = np.concatenate(([True], (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])))
        keys, rows = keys[keep], rows[keep]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else keys
    return keys[first], np.concatenate((first, [len(keys)])).astype(np.int64), rows.astype(np.int64)


class Pairs(Groups):
    """Rows by a pair of codes; a pair with an unknown code (-1) has none."""

    __slots__ = ()

    @staticmethod
    def key(first: Any, second: Any) -> Any:
        """One int of two codes below 2^31, also of arrays."""
        return (first << 32) | second

    def put(self, first: int, second: int, row: int) -> None:
        self.add(self.key(first, second), row)

    def get(self, pair: tuple[int, int], default: Sequence[int] = _NONE) -> Sequence[int]:  # type: ignore[override]
        first, second = pair
        return default if first < 0 or second < 0 else super().get(self.key(first, second), default)


class Digests(Groups):
    """Rows by (namespace code, content hash), looked up by a checksum of both; erased rows have no hash."""

    __slots__ = ("_hashes", "_namespaces")

    def __init__(self, namespaces: Column, hashes: Texts) -> None:
        super().__init__()
        self._namespaces, self._hashes = namespaces, hashes

    @staticmethod
    def key(namespace: int, digest: str) -> int:
        """int64."""
        found = _core.checksum(f"{namespace} {digest}".encode("utf-8", "surrogatepass"))
        return found - (1 << 64) if found >> 63 else found

    def put(self, namespace: int, digest: str, row: int) -> None:
        self.add(self.key(namespace, digest), row)

    def get(self, pair: tuple[int, str], default: Sequence[int] = _NONE) -> Sequence[int]:  # type: ignore[override]
        namespace, digest = pair
        found = super().get(self.key(namespace, digest))
        return [o for o in found if self._hashes[o] == digest and self._namespaces[o] == namespace] or default


class Sparse:
    """Strings of some rows."""

    __slots__ = ("_changed", "_rows", "_stored")

    def __init__(self) -> None:
        self._rows = np.zeros(0, np.int64)
        self._stored: Strings | None = None
        self._changed: dict[int, str | None] = {}  # None: removed

    def restore(self, rows: npt.NDArray[np.int64], stored: Strings) -> None:
        if len(rows) != len(stored):
            raise ValueError("strings do not fit their rows")
        self._rows, self._stored = rows, stored

    def get(self, row: int) -> str | None:
        if row in self._changed:
            return self._changed[row]
        at = int(np.searchsorted(self._rows, row))
        if self._stored is None or at == len(self._rows) or self._rows[at] != row:
            return None
        return self._stored[at]

    def __setitem__(self, row: int, text: str) -> None:
        self._changed[int(row)] = text

    def remove(self, row: int) -> None:
        """Also where there is none."""
        self._changed[int(row)] = None

    def items(self) -> list[tuple[int, str]]:
        """(row, text) of every row that has one, by row."""
        stored = [] if self._stored is None else self._stored.tolist()
        found = {**dict(zip(self._rows.tolist(), stored, strict=True)), **self._changed}
        return sorted((row, text) for row, text in found.items() if text is not None)

    def __repr__(self) -> str:
        return repr(dict(self.items()))
