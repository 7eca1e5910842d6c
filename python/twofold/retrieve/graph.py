"""Layer 2: relations. Entities named in the query, their memories, and what is two steps away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from twofold import _core
from twofold.entities import entity_key
from twofold.index.tenant import View
from twofold.retrieve.candidates import NOTHING, Candidates, Mask, Ordinals
from twofold.retrieve.profile import Profile


class Gazetteer:
    """The names a query is looked up in: entities of the rows in `mask`.

    No others: the longest known name wins, so a name the reader may not see, or one recorded later, would hide
    a shorter one inside it.
    """

    def __init__(self, view: View, mask: Mask) -> None:
        self._view, self._mask = view, mask
        self._known: dict[object, int] = {}  # codes of keys that were asked for
        self._rows: dict[int, Ordinals] = {}  # by code of the entity
        self.max_words = 6

    def among(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that name an entity of any row, seen or not."""
        codes = self._view.index.entities.get_all(list(keys))
        known = {key: code for key, code in zip(keys, codes, strict=True) if code >= 0}
        self._known.update(known)
        return set(known)

    def __contains__(self, key: object) -> bool:
        """Whether a key out of `among` names an entity of the rows."""
        return key in self._known and len(self.rows(self._known[key])) > 0

    def codes(self, names: Sequence[str]) -> dict[str, int]:
        """The codes of names, -1 for unknown ones."""
        keys = [entity_key(name) for name in names]
        return dict(zip(names, self._view.index.entities.get_all(keys), strict=True))

    def rows(self, code: int) -> Ordinals:
        """The rows about an entity, ascending."""
        found = self._rows.get(code)
        if found is None:
            rows = self._view.index.entity_rows_of(code)
            if len(rows) and rows[-1] >= self._view.rows:
                rows = rows[rows < self._view.rows]
            found = self._rows[code] = rows[self._mask[rows]]
        return found


class Named(NamedTuple):
    """An entity that a query names: its key, its code, and the rows about it that may be seen, ascending."""

    key: str
    code: int
    rows: Ordinals


def seeds(gazetteer: Gazetteer, keys: Sequence[str]) -> list[Named]:
    """The entities among `keys` that some row of the gazetteer is about."""
    codes = gazetteer.codes(list(dict.fromkeys(keys)))
    found = (Named(key, code, gazetteer.rows(code)) for key, code in codes.items() if code >= 0)
    return [named for named in found if len(named.rows)]


def expansion(view: View, mask: Mask, found: Sequence[Named], profile: Profile) -> dict[str, Any] | None:
    """The arguments of the walk that `search` takes; None where it takes none."""
    if not found or profile.graph_weight == 0.0:
        return None
    return {
        "seeds": np.array([2 * named.code + 1 for named in found], np.uint32),
        "hops": profile.hops + 1,
        "prefix": view.edges,
        "mask": view.facts(mask).nodes,
        "limit": 4 * profile.depth,
    }


def search(view: View, mask: Mask, found: Sequence[Named], profile: Profile) -> Candidates:
    """Memories within `hops` steps of the entities found, walking only through rows in `mask`.

    A memory about an entity scores 1 / sqrt(rows about it), summed over entities; one a step further away
    scores by its hop alone. Scaled to at most 1.
    """
    walk = expansion(view, mask, found, profile)
    if walk is None:
        return NOTHING
    nodes, hops = view.index.graph.expand(**walk)
    return Candidates(
        *_core.related(
            [named.rows for named in found],
            [1.0 / (1.0 + len(named.rows)) ** 0.5 for named in found],
            nodes,
            hops,
            view.facts(mask).newest,
            step=0.1,
            depth=profile.depth,
        )
    )
