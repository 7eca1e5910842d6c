"""Layer 3: meaning. Exact cosine over every vector of the rows in scope; a memory counts by its best window."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from twofold.index.columns import ranges
from twofold.index.tenant import VectorPart, View
from twofold.retrieve.candidates import NOTHING, Candidates, Mask, Ordinals, Scores
from twofold.retrieve.profile import SPREAD, Profile


def search(
    view: View, part: VectorPart | None, mask: Mask, query: npt.NDArray[np.float32] | None, profile: Profile
) -> Candidates:
    """The `depth` nearest memories among the rows in `mask` (not windows: a memory is listed once)."""
    if part is None or query is None or len(part.ordinals) == 0 or view.rows == 0:
        return NOTHING
    prefix = part.prefix(view.rows)
    if part.one_per_row and prefix == view.rows and len(part.index) == len(mask):
        ordinals, found = part.index.search(query, profile.depth, mask=mask)
        return Candidates(ordinals, found.astype(np.float64))
    owners = part.ordinals.view(len(part.index))
    allowed = view.facts(mask).vectors(part, prefix)
    want = profile.depth
    while True:
        rows, found = part.index.search(query, want, mask=allowed, prefix=prefix)
        # The list is best first, so the first window of each memory is its best one.
        _, first = np.unique(owners[rows], return_index=True)
        if len(first) >= profile.depth or len(rows) < want:
            first = np.sort(first)[: profile.depth]
            ordinals = owners[rows][first]
            scores = found[first].astype(np.float64)
            # Windows of equal score come by window, memories must come by ordinal: the same order here,
            # because windows are stored in the order of their memories.
            return Candidates(ordinals, scores)
        want *= 2


def propose(
    view: View, part: VectorPart | None, mask: Mask, query: npt.NDArray[np.float32] | None, profile: Profile
) -> Ordinals | None:
    """Rows among which the part's graph expects the nearest ones in `mask`; None where to search exactly.

    That is: without a graph, in an earlier state, where the mask leaves out much, and where the graph finds too few.
    """
    if part is None or part.ann is None or query is None or part.prefix(view.rows) < len(part.index):
        return None
    plain = part.one_per_row and len(part.index) == len(mask)
    allowed = mask if plain else view.facts(mask).vectors(part, len(part.index))
    want = profile.depth
    while (found := part.ann.search(part, query, want, allowed)) is not None:
        ordinals = np.unique(part.ordinals.view()[found])
        if len(ordinals) >= profile.depth:
            return ordinals
        want *= 2  # several windows of one memory
    return None


def rank(
    view: View,
    part: VectorPart | None,
    mask: Mask,
    query: npt.NDArray[np.float32] | None,
    proposed: Ordinals,
    profile: Profile,
) -> Candidates:
    """What `search` gives if the nearest memories in `mask` are all among the proposed ones."""
    if part is None or query is None:
        return NOTHING
    known = np.unique(proposed[proposed < view.rows])
    known = known[mask[known]]
    first, last = part.rows_of(known)
    known, first, last = known[last > first], first[last > first], last[last > first]
    if not len(known):
        return NOTHING
    rows, starts = ranges(first, last)
    best = np.maximum.reduceat(part.index.scores(query, rows), starts)
    order = np.lexsort((known, -best))[: profile.depth]
    return Candidates(known[order], best[order].astype(np.float64))


def above(found: Candidates, least: float) -> Candidates:
    """Only the candidates whose cosine is at least `least`; they are best first, so the rest is a tail."""
    if least <= -1.0:
        return found
    keep = int(np.count_nonzero(found.scores >= least))
    return Candidates(found.ordinals[:keep], found.scores[:keep])


def scores(
    part: VectorPart | None,
    query: npt.NDArray[np.float32] | None,
    ordinals: Ordinals,
    spread: float,
    profile: Profile,
) -> Scores:
    """Exact cosines of given memories (their best window, less the penalty for having many); 0 without vectors.

    spread: of the encoder's unrelated cosines; the penalty is as large a part of it for every encoder.
    """
    out: Scores = np.zeros(len(ordinals), np.float64)
    if part is None or query is None or len(part.ordinals) == 0 or len(ordinals) == 0:
        return out
    if part.one_per_row:
        if int(ordinals.max()) < len(part.index):
            return part.index.scores(query, ordinals).astype(np.float64)
        inside = ordinals < len(part.index)
        out[inside] = part.index.scores(query, np.ascontiguousarray(ordinals[inside]))
        return out
    first, last = part.rows_of(ordinals)
    counts = last - first
    has = counts > 0
    if not has.any():
        return out
    rows, starts = ranges(first[has], last[has])
    found = part.index.scores(query, rows).astype(np.float64)
    best = np.maximum.reduceat(found, starts)
    if profile.window_penalty:
        own = counts[has]
        best -= profile.window_penalty * (spread / SPREAD) * logarithms(int(own.max()))[own - 1]
    out[has] = best
    return out


def logarithms(count: int) -> npt.NDArray[np.float64]:
    """Natural logarithms of 1, 2 and so on, at least `count` of them: float64, correctly rounded.

    The processor's own differ between machines in the last bit.
    """
    return _logarithms(-(-count // 256))


@functools.cache
def _logarithms(blocks: int) -> npt.NDArray[np.float64]:
    # ln(n + 1) - ln n = 2 artanh(1 / (2n + 1)), in units of 2^-128: dividing integers rounds correctly at the end.
    one = 1 << 128
    out, total = [], 0
    for n in range(1, 256 * blocks + 1):
        out.append(total / one)
        odd = 2 * n + 1
        term, square, power, rise = one // odd, odd * odd, 1, 0
        while term:
            rise += term // power
            term //= square
            power += 2
        total += 2 * rise
    values = np.array(out)
    values.setflags(write=False)
    return values


def span(
    part: VectorPart | None, query: npt.NDArray[np.float32] | None, ordinal: int
) -> tuple[int, int] | None:
    """Character offsets of a memory's best window when it has several; None otherwise."""
    if part is None or query is None or part.one_per_row:
        return None
    first, last = part.rows_of(np.array([ordinal], np.int64))
    a, b = int(first[0]), int(last[0])
    if b - a < 2:
        return None
    found = part.index.scores(query, np.arange(a, b, dtype=np.int64))
    best = a + int(np.argmax(found))
    return int(part.starts[best]), int(part.stops[best])
