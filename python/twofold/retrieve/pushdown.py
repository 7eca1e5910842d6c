"""Layer 3 for a store that searches vectors itself: its candidates, with their stored vectors, as a small part.

The part holds every vector of the rows in it, so the layers above score, order and show them exactly as they do
with all vectors in RAM. What may differ from a full scan is only which rows an approximate index proposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from twofold.index.tenant import VectorPart
from twofold.model import Generation, Vectors
from twofold.retrieve.candidates import Mask, Ordinals

# Up to so many eligible rows are named to the server, which then scans exactly them; above, all are looked at.
NAMED: Final = 20_000
# Up to so many rows by a scan: of 100,000 clustered vectors of 384 dimensions it took 100 ms, and HNSW asked for
# enough to find 98.8 % of the nearest 232 took 370 ms.
SCANNED: Final = 200_000
MARGIN: Final = 32  # more than asked: the server's cosine differs from the core's in the last bits
TRIES: Final = 4


class Searching(Protocol):
    """What a store offers that searches vectors itself."""

    def nearest(
        self,
        tenant: str,
        generation: int,
        query: npt.NDArray[np.float32],
        count: int,
        ordinals: Ordinals | None = None,
        *,
        exact: bool = False,
    ) -> list[int]:
        """Ordinals of the nearest windows, nearest first, a row perhaps more than once."""
        ...

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        """As Store.vectors_of."""
        ...


def candidates(
    store: Searching,
    tenant: str,
    generation: Generation,
    mask: Mask,
    query: npt.NDArray[np.float32],
    depth: int,
    *,
    exact: bool = False,
) -> VectorPart:
    """The vectors of at least the `depth` nearest rows in `mask`, if there are that many.

    exact: scan the rows of `mask` however many there are.
    """
    found = _found(store, tenant, generation.number, mask, query, depth + MARGIN, exact)
    return part_of(store, tenant, generation, found)


class FetchedPart(VectorPart):
    """A part of a few rows, with what was fetched for it."""

    def __init__(self, generation: Generation, fetched: Vectors) -> None:
        super().__init__(generation)
        self.fetched = fetched
        self.add(fetched)
        self.one_per_row = False  # ordinals are not places in it, even where the first ones happen to be


def part_of(
    store: Searching,
    tenant: str,
    generation: Generation,
    ordinals: Ordinals,
    have: VectorPart | None = None,
) -> VectorPart:
    """A part of these rows, and of those of a part that is there already."""
    old = have.fetched if isinstance(have, FetchedPart) else None
    missing = ordinals if old is None else np.setdiff1d(ordinals, old.ordinals)
    if have is not None and not len(missing):
        return have
    new = store.vectors_of(tenant, generation.number, missing.tolist())
    return FetchedPart(generation, new if old is None else _merged(old, new))


def _merged(a: Vectors, b: Vectors) -> Vectors:
    """Both, by ordinal and part; no row is in both."""
    order = np.argsort(np.concatenate([a.ordinals, b.ordinals]), kind="stable")

    def both(name: str) -> npt.NDArray[np.int64]:
        joined: npt.NDArray[np.int64] = np.concatenate([getattr(a, name), getattr(b, name)])[order]
        return joined

    codes = (*a.codes, *b.codes)
    return Vectors(
        a.generation,
        both("ordinals"),
        both("parts"),
        both("starts"),
        both("stops"),
        np.concatenate([a.data, b.data])[order],
        tuple(codes[at] for at in order.tolist()),
    )


def _found(
    store: Searching,
    tenant: str,
    number: int,
    mask: Mask,
    query: npt.NDArray[np.float32],
    depth: int,
    exact: bool,
) -> Ordinals:
    eligible = np.flatnonzero(mask)
    if len(eligible) <= depth:
        return eligible
    everywhere = 2 * len(eligible) > len(mask)  # then looking at all is less work than naming the rows
    if len(eligible) > NAMED or everywhere:
        count = depth * 5 * len(mask) // (4 * len(eligible))
        for _ in range(TRIES):
            scanned = exact or len(mask) <= SCANNED
            rows = _distinct(store.nearest(tenant, number, query, count, exact=scanned))
            rows = rows[rows < len(mask)]  # others were recorded after what is being asked about
            rows = rows[mask[rows]]
            if len(rows) >= depth:
                return np.sort(rows[:depth])
            count *= 4
    count = depth
    while True:
        listed = store.nearest(tenant, number, query, count, eligible)
        rows = _distinct(listed)
        if len(rows) >= depth or len(listed) < count:  # windows of one row crowd others out of a short list
            return np.sort(rows[:depth])
        count *= 2


def _distinct(listed: Sequence[int]) -> Ordinals:
    """Each ordinal once, nearest first."""
    ordinals = np.array(listed, np.int64)
    _, first = np.unique(ordinals, return_index=True)
    return ordinals[np.sort(first)]
