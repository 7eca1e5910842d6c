"""Layer 5: diversity and the token budget. Best evidence first, never over the budget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.tenant import VectorPart
from twofold.retrieve.candidates import Candidates, Ordinals
from twofold.retrieve.profile import Profile


def best_vectors(part: VectorPart, ordinals: Ordinals) -> npt.NDArray[np.float32] | None:
    """The first window's vector of each memory, float32 (n, dim); None when one has none."""
    if part.one_per_row:
        if len(ordinals) and int(ordinals.max()) >= len(part.index):
            return None
        rows: npt.NDArray[np.float32] = part.index.rows(np.ascontiguousarray(ordinals))
        return rows
    first, last = part.rows_of(ordinals)
    if np.any(last <= first):
        return None
    out: npt.NDArray[np.float32] = part.index.rows(np.ascontiguousarray(first.astype(np.int64)))
    return out


def diversify(
    candidates: Candidates,
    part: VectorPart | None,
    twin_key: Callable[[int], Hashable],
    profile: Profile,
    k: int,
    deep: bool,
) -> tuple[Candidates, list[tuple[int, int]]]:
    """Drop duplicates of better candidates and, if the profile says so, reorder by MMR.

    twin_key: equal for rows that say the same. deep: look at all candidates (a budget may skip many of them),
    else only at as many as can still be returned. Returns the candidates left and the pairs (dropped, kept).
    """
    by_vector = part is not None and profile.duplicate_threshold <= 1.0
    n = len(candidates.ordinals) if deep else min(len(candidates.ordinals), 4 * k)
    ordinals = candidates.ordinals[:n].tolist()
    vectors = (
        best_vectors(part, candidates.ordinals[:n])
        if part is not None and n and (by_vector or profile.mmr_lambda is not None)
        else None
    )
    near = (
        _core.near_duplicates(vectors, profile.duplicate_threshold).tolist()
        if vectors is not None and by_vector
        else None
    )
    first_with: dict[Hashable, int] = {}
    dropped: list[tuple[int, int]] = []
    keep: list[int] = []
    for i in range(n):
        ordinal = ordinals[i]
        twin = first_with.setdefault(twin_key(ordinal), ordinal)
        if twin != ordinal:
            dropped.append((ordinal, twin))
        elif near is not None and near[i] >= 0:
            dropped.append((ordinal, ordinals[near[i]]))
        else:
            keep.append(i)
            if len(keep) == k and not deep and profile.mmr_lambda is None:
                break
    kept = Candidates(candidates.ordinals[keep], candidates.scores[keep])
    if profile.mmr_lambda is not None and vectors is not None and len(keep) > 1:
        order = _core.mmr(
            np.ascontiguousarray(kept.scores),
            np.ascontiguousarray(vectors[keep]),
            profile.mmr_lambda,
            len(keep) if deep else min(k, len(keep)),
        )
        kept = Candidates(kept.ordinals[order], kept.scores[order])
    return kept, dropped


def pack(tokens: Sequence[int], k: int, budget: int | None) -> list[int]:
    """Positions to return, in order: greedy, skipping what does not fit, at most k, never over the budget."""
    if budget is None:
        return list(range(min(k, len(tokens))))
    taken = _core.pack(np.asarray(tokens, np.int64), budget)
    return [int(i) for i in taken[:k]]
