"""Layer 2: relations. Entities named in the query, their memories, and what is two steps away."""

from __future__ import annotations

from collections.abc import Sequence

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
        code = index.entities.code.get(key)  # type: ignore[call-overload]
        if code is None:
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


def search(view: View, mask: Mask, found: Sequence[tuple[str, int]], profile: Profile) -> Candidates:
    """Memories within `hops` steps of the entities found, walking only through rows in `mask`.

    A memory about an entity scores 1 / sqrt(rows about it), summed over entities; one a step further away
    scores by its hop alone. Scaled to at most 1.
    """
    index = view.index
    if not found or profile.graph_weight == 0.0:
        return NOTHING
    lineages = len(index.ids)
    node_mask = np.zeros(2 * max(lineages, len(index.entities)) + 2, np.bool_)
    visible = np.flatnonzero(mask[: view.rows])
    node_mask[2 * index.lineage.view(view.rows)[visible].astype(np.int64)] = True
    node_mask[1::2] = True
    codes = [index.entities.get(key) for key, _ in found]
    nodes, hops = index.graph.expand(
        np.array([2 * c + 1 for c in codes], np.uint32),
        profile.hops + 1,
        prefix=view.edges,
        mask=node_mask,
        limit=4 * profile.depth,
    )
    newest = newest_ordinals(view, visible)
    total: dict[int, float] = {}
    for key, n in found:
        rows = index.entity_rows(key)
        rows = rows[rows < view.rows]
        for ordinal in rows[mask[rows]].tolist():
            total[ordinal] = total.get(ordinal, 0.0) + 1.0 / (1.0 + n) ** 0.5
    for node, hop in zip(nodes.tolist(), hops.tolist(), strict=True):
        if node % 2 == 0 and hop > 1:
            ordinal = int(newest[node // 2])
            if ordinal >= 0 and ordinal not in total:
                total[ordinal] = 0.1 / hop
    if not total:
        return NOTHING
    best = ordered(np.array(list(total), np.int64), np.array(list(total.values()), np.float64), profile.depth)
    return Candidates(best.ordinals, best.scores / best.scores[0])


def newest_ordinals(view: View, visible: Ordinals) -> Ordinals:
    """For each lineage the newest ordinal among `visible` (ascending), or -1; int64 (lineages,)."""
    out = np.full(len(view.index.ids), -1, np.int64)
    out[view.index.lineage.view(view.rows)[visible]] = visible
    return out
