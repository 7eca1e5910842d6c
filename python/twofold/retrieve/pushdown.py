"""Layer 3 for a store that searches vectors itself: its candidates, with their stored vectors, as a small part.

The part holds every vector of the rows in it, so the layers above score, order and show them exactly as they do
with all vectors in RAM. What may differ from a full scan is only which rows an approximate index proposes.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from twofold.errors import StoreCorrupt
from twofold.index.pushed import Beside, FetchedVectors, Found, Near, Record, Serving, StoredRow
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
_PLACES: Final = struct.Struct("=4q")


def candidates(
    store: Serving,
    tenant: str,
    generation: Generation,
    mask: Mask,
    query: npt.NDArray[np.float32],
    depth: int,
    *,
    exact: bool = False,
    kept: FetchedVectors | None = None,
    beside: Beside | None = None,
) -> FetchedPart:
    """The vectors of at least the `depth` nearest rows in `mask`, if there are that many.

    exact: scan the rows of `mask` however many there are. kept: vectors that need not be fetched, and where those go
    that were. beside: what the first round trip is to bring besides.
    """
    wanted = depth + MARGIN
    eligible = np.flatnonzero(mask)
    kept = (kept or FetchedVectors(0)).of((generation.number, generation.fingerprint))
    if len(eligible) <= wanted:
        return FetchedPart(generation, _rows(store, tenant, generation.number, eligible, kept, beside))
    for near in _plans(generation.number, mask, eligible, query, wanted, exact):
        found = _fetched(store, tenant, near._replace(have=kept.have()), beside)
        rows = _complete(found.records, kept)
        if len(rows) >= wanted or (not near.wide and found.listed < near.windows):
            break
    return FetchedPart(generation, rows)


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


class FetchedPart(VectorPart):
    """A part of a few rows, with what was fetched for it."""

    def __init__(self, generation: Generation, fetched: dict[int, StoredRow]) -> None:
        super().__init__(generation)
        self.fetched = fetched
        self.add(_vectors(generation, fetched))
        self.one_per_row = False  # ordinals are not places in it, even where the first ones happen to be


def part_of(
    store: Serving,
    tenant: str,
    generation: Generation,
    ordinals: Ordinals,
    have: VectorPart | None = None,
    kept: FetchedVectors | None = None,
) -> VectorPart:
    """A part of these rows, and of those of a part that is there already."""
    old = have.fetched if isinstance(have, FetchedPart) else {}
    missing = np.array([o for o in ordinals.tolist() if o not in old], np.int64)
    if have is not None and not len(missing):
        return have
    kept = (kept or FetchedVectors(0)).of((generation.number, generation.fingerprint))
    return FetchedPart(generation, old | _rows(store, tenant, generation.number, missing, kept, None))


def _rows(
    store: Serving,
    tenant: str,
    number: int,
    ordinals: Ordinals,
    kept: FetchedVectors,
    beside: Beside | None,
) -> dict[int, StoredRow]:
    """The vectors of given rows. A row without vectors has no entry."""
    rows = kept.take(ordinals.tolist())
    missing = np.array([o for o in ordinals.tolist() if o not in rows], np.int64)
    near = Near(number, None, len(missing), ordinals=missing) if len(missing) else None
    return rows | _complete(_fetched(store, tenant, near, beside).records, kept)


def _fetched(store: Serving, tenant: str, near: Near | None, beside: Beside | None) -> Found:
    terms, steps = ([], None) if beside is None else (beside.terms, beside.steps)
    if near is None and not terms and steps is None:
        return Found([], 0, [], [])
    found = store.search(tenant, near, terms, steps)
    if beside is not None:
        beside.take(found)
    return found


def _complete(records: Sequence[Record], kept: FetchedVectors) -> dict[int, StoredRow]:
    """Records by row, with what was not sent because it is here; what was sent is kept."""
    parts: dict[int, list[Record]] = {}
    known: set[int] = set()
    for record in records:
        if record[4] is None:
            known.add(record[0])
        else:
            parts.setdefault(record[0], []).append(record)
    sent = {ordinal: _row(own) for ordinal, own in parts.items()}
    rows = sent | kept.take(known)
    kept.put(sent)
    return rows


def _row(parts: list[Record]) -> StoredRow:
    if len(parts) > 1:
        parts = sorted(parts, key=operator.itemgetter(1))
    places = b"".join(_PLACES.pack(*part[:4]) for part in parts)
    return places, b"".join(part[4] for part in parts), tuple(part[5] for part in parts)


def _vectors(generation: Generation, rows: dict[int, StoredRow]) -> Vectors:
    """By ordinal and part."""
    told = [rows[ordinal] for ordinal in sorted(rows)]
    joined = b"".join([places for places, _, _ in told])
    places = np.frombuffer(joined, np.int64).reshape(-1, 4).T
    try:
        data = np.frombuffer(b"".join([data for _, data, _ in told]), "<f4")
        data = data.reshape(places.shape[1], generation.dimension).astype(np.float32, copy=False)
    except ValueError:
        raise StoreCorrupt(
            f"a vector of generation {generation.number} between rows {min(rows)} and {max(rows)} has not "
            f"{generation.dimension} numbers; restore a backup or re-embed"
        ) from None
    codes = tuple([code for _, _, codes in told for code in codes])
    ordinals, parts, starts, stops = np.ascontiguousarray(places)
    return Vectors(generation.number, ordinals, parts, starts, stops, data, codes)
