"""What recalls ask of a store that searches, made of the few searches that a database has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from twofold.index.pushed import Found, Mask, Near, Postings, Record, Step, Steps
from twofold.model import Vectors


class Parts(Protocol):
    """A store that searches vectors, words and relations, each by a call of its own."""

    def nearest(
        self,
        tenant: str,
        generation: int,
        query: npt.NDArray[np.float32],
        count: int,
        ordinals: Sequence[int] | npt.NDArray[np.int64] | None = None,
        *,
        exact: bool = False,
    ) -> list[int]:
        """Ordinals of the rows of the `count` windows nearest to a query, nearest first; fewer if there are fewer.

        query: float32 (dimension,), of unit length. ordinals: only of these rows, exactly. Otherwise of all of the
        tenant's, by an approximate index if there is one and exact is not asked for. A row with several windows may
        come more than once.
        """
        ...

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        """As Store.vectors_of."""
        ...

    def postings(self, tenant: str, terms: Sequence[str]) -> list[Postings]:
        """As `twofold.index.pushed.Serving.postings`."""
        ...

    def walk(
        self, tenant: str, seeds: Sequence[str], hops: int, mask: Mask, seq: int, limit: int
    ) -> list[Step]:
        """As `twofold.index.pushed.Serving.walk`."""
        ...


class SearchedInParts:
    """A base for a store with the methods of `Parts`: recalls then search in it.

    kept_bytes: of fetched vectors that a process may keep, so that they need not be fetched again.
    """

    pushdown = True
    kept_bytes = 64 * 2**20

    def search(
        self: Parts, tenant: str, near: Near | None, terms: Sequence[str], steps: Steps | None
    ) -> Found:
        """Vectors, posting lists and a walk, by a call for each."""
        records, listed = ([], 0) if near is None else _near(self, tenant, near)
        return Found(
            records,
            listed,
            self.postings(tenant, terms) if terms else [],
            self.walk(tenant, *steps) if steps is not None else [],
        )


def _near(store: Parts, tenant: str, near: Near) -> tuple[list[Record], int]:
    """Every vector of the rows that are wanted, and how many windows were found."""
    listed = 0
    ordinals = near.ordinals
    if near.query is not None:
        among = ordinals
        if among is None and near.mask is not None and not near.wide:
            among = np.flatnonzero(near.mask)
        found = store.nearest(
            tenant, near.generation, near.query, near.wide or near.windows, among, exact=not near.wide
        )
        if near.mask is not None:  # others were recorded after what is being asked about
            found = [ordinal for ordinal in found if ordinal < len(near.mask) and near.mask[ordinal]]
        found = found[: near.windows]
        ordinals, listed = np.unique(np.array(found, np.int64)), len(found)
    if ordinals is None or not len(ordinals):
        return [], listed
    got = store.vectors_of(tenant, near.generation, [int(ordinal) for ordinal in ordinals])
    places = (got.ordinals.tolist(), got.parts.tolist(), got.starts.tolist(), got.stops.tolist())
    blobs = [row.tobytes() for row in got.data.astype("<f4", copy=False)]
    return list(zip(*places, blobs, got.codes, strict=True)), listed


__all__ = ["Parts", "SearchedInParts"]
