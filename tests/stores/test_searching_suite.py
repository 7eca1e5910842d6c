"""The suite's tests of what a store searches: passed by a store of a few lines, failed by every broken one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from twofold import stores
from twofold.entities import entity_key
from twofold.index.tenant import TenantIndex
from twofold.retrieve import pushdown
from twofold.stores.memory import MemoryStore
from twofold.stores.searched import SearchedInParts
from twofold.testing import SEARCHES, StoreConformance, fill_to_search


class Searched(SearchedInParts, MemoryStore):
    """The store in memory, with searches of the plainest kind."""

    def __init__(self, url: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.url = url

    def nearest(
        self,
        tenant: str,
        generation: int,
        query: Any,
        count: int,
        ordinals: Any = None,
        *,
        exact: bool = False,
    ) -> list[int]:
        if not any(g.number == generation for g in self.generations(tenant)):
            return []
        found = self.vectors(tenant, generation)
        far = -(found.data @ query)
        order = np.argsort(far, kind="stable").tolist()
        named = found.ordinals.tolist()
        return [named[i] for i in order if ordinals is None or named[i] in ordinals][:count]

    def postings(self, tenant: str, terms: Sequence[str]) -> list[Any]:
        rows = [(row.ordinal, json.loads(row.lexemes or "{}")) for row in self.changes(tenant, 0).rows]
        out = []
        for term in terms:
            items = [(ordinal, words[term]) for ordinal, words in rows if term in words]
            out.append(
                (np.array([o for o, _ in items], np.int64), np.array([c for _, c in items], np.float32))
            )
        return out

    def walk(
        self, tenant: str, seeds: Sequence[str], hops: int, mask: Any, seq: int, limit: int
    ) -> list[Any]:
        index = TenantIndex(tenant)
        index.apply(self.changes(tenant, 0))
        wanted = {entity_key(name) for name in seeds}
        first = {index.lineage[o]: o for o in reversed(range(index.rows))}
        passes = np.zeros(2 * (len(index.ids) + len(index.entities)) + 2, np.bool_)
        passes[1::2] = True
        for lineage, ordinal in first.items():
            passes[2 * lineage] = ordinal < len(mask) and mask[ordinal]
        start = [2 * index.entities.get(name) + 1 for name in wanted if index.entities.get(name) >= 0]
        prefix = int(np.searchsorted(index.edge_seq.view(), seq, side="right"))
        nodes, distances = index.graph.expand(np.array(start, np.uint32), hops, prefix=prefix, mask=passes)
        out: list[Any] = []
        for node, hop in zip(nodes.tolist(), distances.tolist(), strict=True):
            if hop and node % 2:
                out.append((hop, None, index.entities.names[node // 2]))
            elif hop:
                out.append((hop, first[node // 2], None))
        return out


class TestSearched(StoreConformance):
    persistent = False
    processes = False
    copies = False
    size_by_tenant = True
    searches: ClassVar = frozenset({"nearest", "postings", "walk"})

    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(stores._ADAPTERS, "searched", (f"{__name__}:Searched", None))

    def address(self, location: Path) -> str:
        return "searched://"

    def damage(self, store: Any, tenant: str) -> None:
        del store._tenants[tenant].rows[1]


def test_where_an_index_proposes_the_filter_is_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way to ask for vectors, taken with very many rows."""
    monkeypatch.setitem(stores._ADAPTERS, "searched", (f"{__name__}:Searched", None))
    for name in ("NAMED", "SCANNED"):
        monkeypatch.setattr(pushdown, name, 0)
    with contextlib.closing(Searched()) as store:
        TestSearched().test_a_whole_recall_is_that_of_a_store_that_searches_nothing(tmp_path, store)


def broken(
    method: str, change: Callable[[Any], Any] | None = None, tenant: str | None = None
) -> type[Searched]:
    """A store one of whose methods answers otherwise, or for another tenant."""

    class Broken(Searched):
        pass

    def answer(self: Any, of: str, *args: Any, **more: Any) -> Any:
        found = getattr(Searched, method)(self, tenant or of, *args, **more)
        return found if change is None else change(found)

    setattr(Broken, method, answer)
    return Broken


def swapped(found: list[Any]) -> list[Any]:
    return [*found[1:], *found[:1]]


WRONG: dict[str, tuple[str, type[Searched]]] = {
    "nearest of another tenant": ("nearest", broken("nearest", tenant="b")),
    "nearest, one short": ("nearest", broken("nearest", lambda found: found[:-1])),
    "nearest, out of order": ("nearest", broken("nearest", swapped)),
    "nearest, a stranger": ("nearest", broken("nearest", lambda found: [999, *found[1:]] if found else found)),
    "postings of another tenant": ("postings", broken("postings", tenant="b")),
    "postings, one short": ("postings", broken("postings", lambda found: [(o[:-1], c[:-1]) for o, c in found])),
    "postings, backwards": ("postings", broken("postings", lambda found: [(o[::-1], c[::-1]) for o, c in found])),
    "postings, without counts": ("postings", broken("postings", lambda found: [(o, c * 0 + 1) for o, c in found])),
    "postings, float64": ("postings", broken("postings", lambda found: [(o, c.astype(float)) for o, c in found])),
    "postings, terms swapped": ("postings", broken("postings", swapped)),
    "a walk of another tenant": ("walk", broken("walk", tenant="b")),
    "a walk, one short": ("walk", broken("walk", lambda found: found[:-1])),
    "a walk, a step too far": ("walk", broken("walk", lambda found: [(h + 1, m, e) for h, m, e in found])),
    "a walk without names": ("walk", broken("walk", lambda found: [one for one in found if one[2] is None])),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_answer_fails(fault: str) -> None:
    what, kind = WRONG[fault]
    for made, passes in ((Searched, True), (kind, False)):
        store = made()
        for tenant, seed in (("a", 1), ("b", 2)):
            fill_to_search(store, tenant, 90, seed)
        if passes:
            SEARCHES[what](store, "a")
            continue
        with pytest.raises(AssertionError):
            SEARCHES[what](store, "a")
