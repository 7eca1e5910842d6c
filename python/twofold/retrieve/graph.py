"""Layer 2: relations. Entities named in the query, their memories, and what is two steps away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from twofold.index.tenant import View
from twofold.retrieve.candidates import NOTHING, Candidates, Mask, Ordinals, ordered
from twofold.retrieve.profile import Profile


class Gazetteer:
    """The names a query is looked up in: entities of the rows in `mask`.

    No others: the longest known name wins, so a name the reader may not see, or one recorded later, would hide
    a shorter one inside it.
    """

    def __init__(self, view: View, mask: Mask) -> None:
        self._view, self._mask = view, mask
        self.max_words = 6

    def __contains__(self, key: object) -> bool:
        index = self._view.index
        code = index.entities.get(key)  # type: ignore[arg-type]
        if code < 0:
            return False
        rows = index.entity_rows_of(code)
        return bool(self._mask[rows[rows < self._view.rows]].any())


def seeds(view: View, mask: Mask, keys: Sequence[str]) -> list[tuple[str, int]]:
    """The entities among `keys` that some row in `mask` is about, with the number of such rows."""
    out = []
    for key in dict.fromkeys(keys):
        rows = view.index.entity_rows(key)
        rows = rows[rows < view.rows]
        n = int(np.count_nonzero(mask[rows]))
        if n:
            out.append((key, n))
    return out


def expansion(
    view: View, mask: Mask, found: Sequence[tuple[str, int]], profile: Profile
) -> dict[str, Any] | None:
    """The arguments of the walk that `search` takes; None where it takes none."""
    if not found or profile.graph_weight == 0.0:
        return None
    return {
        "seeds": np.array([2 * view.index.entities.get(key) + 1 for key, _ in found], np.uint32),
        "hops": profile.hops + 1,
        "prefix": view.edges,
        "mask": view.facts(mask).nodes,
        "limit": 4 * profile.depth,
    }


def search(view: View, mask: Mask, found: Sequence[tuple[str, int]], profile: Profile) -> Candidates:
    """Memories within `hops` steps of the entities found, walking only through rows in `mask`.

    A memory about an entity scores 1 / sqrt(rows about it), summed over entities; one a step further away
    scores by its hop alone. Scaled to at most 1.
    """
    index = view.index
    walk = expansion(view, mask, found, profile)
    if walk is None:
        return NOTHING
    facts = view.facts(mask)
    codes = [index.entities.get(key) for key, _ in found]
    nodes, hops = index.graph.expand(**walk)
    rows_of, weights = [], []
    for code, (_, n) in zip(codes, found, strict=True):
        rows = index.entity_rows_of(code)
        rows = rows[rows < view.rows]
        rows_of.append(rows[mask[rows]])
        weights.append(np.full(len(rows_of[-1]), 1.0 / (1.0 + n) ** 0.5))
    if len(found) == 1:  # rows of one entity ascend, each once
        about, total = rows_of[0], weights[0]
    else:
        about, place = np.unique(np.concatenate(rows_of), return_inverse=True)
        total = np.zeros(len(about))
        np.add.at(total, place, np.concatenate(weights))  # one after the other, in the order of `found`
    further = (nodes % 2 == 0) & (hops > 1)
    near = facts.newest[(nodes[further] // 2).astype(np.int64)]
    new = (near >= 0) & ~_among(near, about)
    best = ordered(
        np.concatenate((about, near[new])),
        np.concatenate((total, 0.1 / hops[further][new])),
        profile.depth,
    )
    if not len(best.ordinals):
        return NOTHING
    return Candidates(best.ordinals, best.scores / best.scores[0])


def _among(rows: Ordinals, ascending: Ordinals) -> Mask:
    """Which of `rows` are in `ascending`."""
    if not len(ascending):
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(ascending, rows), len(ascending) - 1)
    found: Mask = ascending[at] == rows
    return found
