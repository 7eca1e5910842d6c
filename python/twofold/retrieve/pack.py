"""Layer 5: diversity and the token budget. Best evidence first, never over the budget."""

from __future__ import annotations

from collections.abc import Sequence

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
    candidates: Candidates, part: VectorPart | None, hashes: Sequence[str], profile: Profile, k: int
) -> tuple[Candidates, list[tuple[int, int]]]:
    """Drop near-duplicates of better candidates and, if the profile says so, reorder by MMR.

    Looks at the first 4k candidates, which is what can still be returned. Returns the candidates left and the
    pairs (dropped, kept).
    """
    n = min(len(candidates.ordinals), 4 * k)
    head = Candidates(candidates.ordinals[:n], candidates.scores[:n])
    first_with: dict[str, int] = {}
    dropped: list[tuple[int, int]] = []
    keep: list[int] = []
    vectors = best_vectors(part, head.ordinals) if part is not None and n else None
    duplicate_of = (
        _core.near_duplicates(vectors, profile.duplicate_threshold)
        if vectors is not None and profile.duplicate_threshold <= 1.0
        else np.full(n, -1, np.int64)
    )
    for i in range(n):
        ordinal = int(head.ordinals[i])
        twin = first_with.setdefault(hashes[i], ordinal)
        if twin != ordinal:
            dropped.append((ordinal, twin))
        elif duplicate_of[i] >= 0:
            dropped.append((ordinal, int(head.ordinals[duplicate_of[i]])))
        else:
            keep.append(i)
    kept = Candidates(head.ordinals[keep], head.scores[keep])
    if profile.mmr_lambda is not None and vectors is not None and len(keep) > 1:
        order = _core.mmr(
            np.ascontiguousarray(kept.scores),
            np.ascontiguousarray(vectors[keep]),
            profile.mmr_lambda,
            min(k, len(keep)),
        )
        kept = Candidates(kept.ordinals[order], kept.scores[order])
    return kept, dropped


def pack(tokens: Sequence[int], k: int, budget: int | None) -> list[int]:
    """Positions to return, in order: greedy, skipping what does not fit, at most k, never over the budget."""
    if budget is None:
        return list(range(min(k, len(tokens))))
    taken = _core.pack(np.asarray(tokens, np.int64), budget)
    return [int(i) for i in taken[:k]]
