"""Layer 3 for a store that searches vectors itself: its candidates, with their stored vectors, as a small part.

The part holds every vector of the rows in it, so the layers above score, order and show them exactly as they do
with all vectors in RAM. What may differ from a full scan is only which rows an approximate index proposes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from twofold.index.fetched import FetchedPart
from twofold.index.pushed import Beside, Found, Near, Serving
from twofold.model import Generation
from twofold.retrieve.candidates import Mask, Ordinals

# Up to so many eligible rows are named to the server, which then scans exactly them; above, all are looked at.
NAMED: Final = 20_000
# Up to so many rows by a scan: of 100,000 clustered vectors of 384 dimensions it took 100 ms, and HNSW asked for
# enough to find 98.8 % of the nearest 232 took 370 ms.
SCANNED: Final = 200_000
MARGIN: Final = 32  # more than asked: the server's cosine differs from the core's in the last bits
TRIES: Final = 4
MOST_OF: Final = 4  # where all but a fourth of what may be returned is here, the rest is fetched too


def candidates(
    store: Serving,
    tenant: str,
    generation: Generation,
    mask: Mask,
    query: npt.NDArray[np.float32],
    depth: int,
    *,
    exact: bool = False,
    part: FetchedPart | None = None,
    beside: Beside | None = None,
) -> FetchedPart:
    """A part whose `nearest` are at least the `depth` nearest rows in `mask`, if there are that many.

    exact: scan the rows of `mask` however many there are. part: where vectors are already, and where those go that
    are fetched. beside: what the first round trip is to bring besides.
    """
    wanted = depth + MARGIN
    eligible = np.flatnonzero(mask)
    part = part or FetchedPart(generation)
    if len(eligible) <= wanted:
        fetch(store, tenant, part, eligible, beside)
        part.nearest = eligible
        return part
    missing = part.missing(eligible)
    if MOST_OF * len(missing) <= len(eligible) and part.fits(missing):
        fetch(store, tenant, part, missing, beside)
        part.nearest = part.search(mask, query, depth, wanted)
        return part
    for near in _plans(generation.number, mask, eligible, query, wanted, exact):
        found = _fetched(store, tenant, near._replace(have=part.have()), beside)
        part.take(found.records)
        part.nearest = np.unique(np.array([record[0] for record in found.records], np.int64))
        if len(part.nearest) >= wanted or (not near.wide and found.listed < near.windows):
            break
    return part


def fetch(
    store: Serving, tenant: str, part: FetchedPart, ordinals: Ordinals, beside: Beside | None = None
) -> None:
    """Bring the vectors of rows into a part. A row may have none."""
    missing = part.missing(ordinals)
    near = Near(part.generation.number, None, len(missing), ordinals=missing) if len(missing) else None
    part.take(_fetched(store, tenant, near, beside).records)


def _plans(
    number: int, mask: Mask, eligible: Ordinals, query: npt.NDArray[np.float32], wanted: int, exact: bool
) -> Iterator[Near]:
    """What to ask for, and what then if it gave too few rows: windows of one row crowd others out of a list."""
    plain = Near(number, query, wanted)
    everywhere = 2 * len(eligible) > len(mask)  # then looking at all is less work than naming the rows
    scanned = exact or len(mask) <= SCANNED
    if (len(eligible) > NAMED or everywhere) and not scanned:
        wide = 5 * (wanted * 5 * len(mask) // (4 * len(eligible)))
        for step in range(TRIES):
            yield plain._replace(windows=wanted * 2**step, mask=mask, wide=wide * 4**step)
    if everywhere or (scanned and len(eligible) > NAMED):
        plain = plain._replace(mask=mask)
    else:
        plain = plain._replace(ordinals=eligible)
    while True:
        yield plain
        plain = plain._replace(windows=2 * plain.windows)


def _fetched(store: Serving, tenant: str, near: Near | None, beside: Beside | None) -> Found:
    terms, steps = ([], None) if beside is None else (beside.terms, beside.steps)
    if near is None and not terms and steps is None:
        return Found([], 0, [], [])
    found = store.search(tenant, near, terms, steps)
    if beside is not None:
        beside.take(found)
    return found
