"""Vectors that were fetched from a store that searches, in the order in which they came: to score rows by."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from twofold.index.pushed import Mask, Record
from twofold.index.tenant import TenantIndex, VectorPart
from twofold.model import Generation, Vectors, float_rows

Ints = npt.NDArray[np.int64]


class FetchedPart(VectorPart):
    """A part of the rows that were fetched. It can score and show them; which are nearest, the store said.

    nearest: what it said last, ascending ordinals.
    """

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation)
        self.one_per_row = False
        self.nearest: Ints = np.zeros(0, np.int64)
        self.size = 0  # bytes, about
        self.limit = 0  # to which it may grow and still be kept
        self._first: Ints = np.zeros(0, np.int64)  # by ordinal
        self._count: Ints = np.zeros(0, np.int64)

    def take(self, records: Sequence[Record]) -> None:
        """Add the vectors of rows that are not here. StoreCorrupt for vectors of another size."""
        records = sorted((r for r in records if not self._has(r[0])), key=_place)
        if not records:
            return
        ordinals, parts, starts, stops, blobs, codes = zip(*records, strict=True)
        data = float_rows(self.generation.number, self.generation.dimension, ordinals, blobs)
        places = np.array([ordinals, parts, starts, stops], np.int64)
        before = len(self.ordinals)
        self.add(Vectors(self.generation.number, places[0], places[1], places[2], places[3], data, codes))
        self.one_per_row = False  # ordinals are not places here, even where the first ones happen to be
        rows, first, count = np.unique(places[0], return_index=True, return_counts=True)
        if rows[-1] >= len(self._first):
            room = (0, int(rows[-1]) + 1 + len(self._first) // 2 - len(self._first))
            self._first, self._count = np.pad(self._first, room), np.pad(self._count, room)
        self._first[rows], self._count[rows] = before + first, count
        # The core keeps a byte a dimension besides the floats.
        self.size += data.nbytes + data.size + sum(map(len, codes)) + 100 * len(records)

    def _has(self, ordinal: int) -> bool:
        return ordinal < len(self._count) and self._count[ordinal] > 0

    def have(self) -> Mask:
        """Whose vectors are here: bool by ordinal, up to the last of them."""
        return self._count > 0

    def missing(self, ordinals: Ints) -> Ints:
        """Those that are not here."""
        first, last = self.rows_of(ordinals)
        out: Ints = ordinals[first == last]
        return out

    def rows_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """First and one-past-last vector number of each ordinal; equal where there is none."""
        inside = ordinals < len(self._count)
        at = np.where(inside, ordinals, 0)
        if not len(self._count):
            return np.zeros(len(ordinals), np.int64), np.zeros(len(ordinals), np.int64)
        first = np.where(inside, self._first[at], 0)
        return first, first + np.where(inside, self._count[at], 0)

    def fits(self, ordinals: Ints) -> bool:
        """Whether it may grow by these rows, if they are about as large as those that are here."""
        return self.size + len(ordinals) * self.size / max(len(self.ordinals), 1) <= self.limit

    def search(self, mask: Mask, query: npt.NDArray[np.float32], depth: int, wanted: int) -> Ints:
        """Rows among which are the `depth` nearest in `mask` of those that are here, ascending; `wanted` or more."""
        owners = self.ordinals.view()
        allowed = owners < len(mask)
        allowed[allowed] = mask[owners[allowed]]
        windows = wanted
        while True:
            found, scores = self.index.search(query, windows, mask=allowed)
            rows = np.unique(owners[found])
            # Windows of one row crowd others out. And of equal ones the first rows count, but those here are in no
            # order: so there must be some that are worse.
            apart = len(found) < windows or (len(rows) >= wanted and scores[depth - 1] > scores[-1])
            if apart:
                return rows
            windows *= 4

    def prefix(self, rows: int) -> int:
        """Not to be had: vectors are in no order here."""
        raise NotImplementedError(f"vectors below row {rows} are not the first ones of those fetched")


def part_for(index: TenantIndex, generation: Generation) -> FetchedPart:
    """The part that a view keeps between recalls, up to the process's bytes divided by its tenants; else a new one.

    It goes with the view, which an erasure, or another log, makes anew.
    """
    limit = 0 if index.serving is None else index.serving.kept_bytes
    part = index.fetched
    known = part is not None and (part.generation.number, part.generation.fingerprint) == (
        generation.number,
        generation.fingerprint,
    )
    if part is None or not known or part.size > limit // len(_LIVE):
        part = FetchedPart(generation)
        if limit:
            index.fetched = part
            _LIVE.add(part)
    part.limit = limit // max(len(_LIVE), 1)
    return part


_LIVE: Final[weakref.WeakSet[FetchedPart]] = weakref.WeakSet()


def _place(record: Record) -> tuple[int, int]:
    return record[0], record[1]
