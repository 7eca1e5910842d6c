"""Words and relations searched in the server: the same candidates, scores and statistics as the view in RAM has."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg
from tests.stores.test_postgres_memory import NAMES, THINGS, random_items

from twofold import AgentMemory
from twofold.entities import entity_key
from twofold.index.tenant import TenantIndex
from twofold.retrieve import graph, lexical
from twofold.retrieve.profile import DEFAULT
from twofold.stores import open_store, postgres_graph, postgres_text
from twofold.text import terms

pytestmark = pytest.mark.skipif(
    pg.why_not() is not None or not pg.has("vector"), reason="needs a server with the extension vector"
)
TENANT = "default"
LONG = "a name of an entity that is too long for an index entry " * 12


@pytest.fixture(autouse=True, scope="module")
def extensions() -> None:
    pg.shared().extend("vector")


def tell(address: str, memories: int) -> None:
    """A history with corrections, retractions, links, erasures, long names and several entities a memory."""
    source = random.Random(7)
    items = random_items(source, memories)
    for item in items:
        item["entities"] = source.sample([*NAMES, *THINGS, LONG], source.randrange(4))
    with AgentMemory(address, embedder=None, auto_supersede=False) as mem:
        made = [m.id for at in range(0, memories, 60) for m in mem.add_many(items[at : at + 60])]
        for memory_id in source.sample(made, 15):
            mem.update(memory_id, entities=source.sample(NAMES, 2), content=f"corrected {source.random()}")
        for _ in range(25):
            a, b = source.sample(made, 2)
            mem.link(a, b, "caused")
        for memory_id in source.sample(made, 12):
            mem.forget(memory_id)
        for memory_id in source.sample(made, 4):
            mem.erase(memory_id, reason="asked")


def views(address: str, store: Any, seq: int | None = None) -> list[Any]:
    """The view in RAM, and the one whose postings and edges are in the server."""
    out = []
    for serving in (None, store):
        index = TenantIndex(TENANT, serving)
        index.apply(store.changes(TENANT, 0))
        out.append(index.view(seq))
    return out


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("searching")
    tell(pg.address(folder), 240)
    store = open_store(pg.address(folder, mode="pushdown"))
    yield folder, store
    store.close()


@pytest.mark.parametrize("share", [1.0, 0.6, 0.1, 0.01])
@pytest.mark.parametrize("past", [False, True])
def test_both_give_the_same_candidates(told: Any, share: float, past: bool) -> None:
    folder, store = told
    seq = 150 if past else None
    here, there = views(pg.address(folder), store, seq)
    source = np.random.default_rng(5)
    walked = worded = 0
    for depth in (3, 200):
        profile = DEFAULT.__class__(depth=depth)
        for text in [
            "Ann restarted the billing service",
            "数据库 升级了 Bob",
            "Atlas cluster",
            LONG,
            "nothing",
        ]:
            mask = (source.random(here.rows) < share) & ~here.index.erased.view(here.rows)
            scope = ~here.index.erased.view(here.rows)
            asked = [lexical.term_ids(v, terms(text, query=True)) for v in (here, there)]
            one, other = (
                lexical.search(v, mask, scope, ids, profile)
                for v, ids in zip((here, there), asked, strict=True)
            )
            assert one.ordinals.tolist() == other.ordinals.tolist()
            assert one.scores.tobytes() == other.scores.tobytes()
            worded += len(one.ordinals)
            rows = np.arange(here.rows, dtype=np.int64)[::3].copy()
            assert (
                lexical.scores(here, scope, asked[0], rows, profile).tobytes()
                == lexical.scores(there, scope, asked[1], rows, profile).tobytes()
            )
            found = [
                graph.seeds(graph.Gazetteer(v, mask), [entity_key(text), "ann", "bob", entity_key(LONG)])
                for v in (here, there)
            ]
            named = [[(one.key, one.code, one.rows.tolist()) for one in own] for own in found]
            assert named[0] == named[1]
            for hops in (0, 1, 2, 3):
                deep = DEFAULT.__class__(depth=depth, hops=hops)
                one, other = (graph.search(v, mask, found[0], deep) for v in (here, there))
                assert one.ordinals.tolist() == other.ordinals.tolist()
                assert one.scores.tobytes() == other.scores.tobytes()
                walked += len(one.ordinals)
    if share > 0.01:
        assert walked > 50
        assert worded > 20


def test_statistics_and_frequencies_are_exact(told: Any) -> None:
    folder, store = told
    here, there = views(pg.address(folder), store)
    source = np.random.default_rng(6)
    for _ in range(10):
        mask, prefix = source.random(here.rows) < 0.5, int(source.integers(here.rows))
        for arguments in ({"stats_mask": mask, "prefix": prefix}, {"prefix": prefix}, {}):
            a, b = (v.index.lexicon.statistics(**arguments) for v in (here, there))
            assert a == b
        ids = np.array([3, 1, 7], np.uint32)
        groups = here.index.session.view(here.rows)
        for arguments in ({"stats_mask": mask, "prefix": prefix}, {}):
            told_of = []
            for view in (here, there):
                lengths = view.index.lexicon.group_lengths(groups, len(here.index.sessions), **arguments)
                scored = view.index.lexicon.group_scores(ids, groups, lengths, **arguments)
                told_of.append((lengths.tobytes(), scored.tobytes()))
            assert told_of[0] == told_of[1]
        ids = np.array(source.choice(len(here.index.terms), 6, replace=False), np.uint32)
        a, b = (
            v.index.lexicon.document_frequency(ids, stats_mask=mask, prefix=prefix) for v in (here, there)
        )
        assert a.tolist() == b.tolist()


def test_a_walk_stops_where_there_are_enough_nodes(told: Any) -> None:
    folder, store = told
    here, there = views(pg.address(folder), store)
    nodes = here.facts(~here.index.erased.view(here.rows)).nodes
    seeds = np.array([2 * here.index.entities.get(name) + 1 for name in ("ann", "bob")], np.uint32)
    for limit in (1, 2, 3, 10, 40, 100, 10_000):
        one, other = (
            v.index.graph.expand(seeds, 3, prefix=v.edges, mask=nodes, limit=limit) for v in (here, there)
        )
        assert one[0].tolist() == other[0].tolist(), limit
        assert one[1].tolist() == other[1].tolist(), limit


@pytest.mark.parametrize("linked", [False, True])
def test_a_walk_is_asked_for_where_memories_are_linked(tmp_path: Path, linked: bool) -> None:
    """Without links the columns say what is near; either way it is what the core's graph says."""
    source = random.Random(12)
    items = random_items(source, 200)
    for item in items:
        item["entities"] = source.sample([*NAMES, *THINGS, LONG], source.randrange(4))
    address = pg.address(tmp_path)
    with AgentMemory(address, embedder=None, auto_supersede=False) as mem:
        made = [m.id for m in mem.add_many(items)]
        mem.update(made[3], entities=["Ann"], content="corrected")
        mem.forget(made[9])
        mem.erase(made[11], reason="asked")
        if linked:
            mem.link(made[20], made[30], "caused")
    store = open_store(pg.address(tmp_path, mode="pushdown"))
    here, there = views(address, store)
    asked = []
    walk = store.walk
    store.walk = lambda *arguments: asked.append(arguments) or walk(*arguments)  # type: ignore[func-returns-value]
    chance = np.random.default_rng(3)
    reached = 0
    for share in (1.0, 0.5, 0.05):
        mask = (chance.random(here.rows) < share) & ~here.index.erased.view(here.rows)
        nodes = here.facts(mask).nodes
        for names in (["ann"], ["ann", "bob"], [entity_key(LONG)]):
            seeds = np.array([2 * here.index.entities.get(name) + 1 for name in names], np.uint32)
            for hops in (0, 1, 2, 3, 4, 5):
                for limit in (1, 2, 7, 60, 10_000, None):
                    for edges in (here.edges, here.edges // 2):
                        one, other = (
                            v.index.graph.expand(seeds, hops, prefix=edges, mask=nodes, limit=limit)
                            for v in (here, there)
                        )
                        assert one[0].tolist() == other[0].tolist(), (share, names, hops, limit)
                        assert one[1].tolist() == other[1].tolist(), (share, names, hops, limit)
                        reached += len(one[0])
    assert reached > 1_000
    assert bool(asked) == linked
    store.close()


def test_what_is_derived_is_kept_by_every_write(told: Any) -> None:
    """Edges and postings that were kept step by step are those that a new derivation gives."""
    folder, store = told
    assert store.check(TENANT) == []
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        schema = f'"{store._schema}"'
        (entity,) = db.execute(f"SELECT max(entity) FROM {schema}.edge").fetchone()
        db.execute(f"DELETE FROM {schema}.edge WHERE entity = %s", (entity,))
        ((term, block),) = db.execute(
            f"SELECT term, block FROM {schema}.posting ORDER BY length(data) DESC LIMIT 1"
        ).fetchall()
        db.execute(
            f"UPDATE {schema}.posting SET data = substr(data, 9) WHERE term = %s AND block = %s",
            (term, block),
        )
        said = "; ".join(store.check(TENANT))
        assert "edge" in said
        assert "words" in said
        # What does not say that it reaches the head is made anew by the next to write.
        db.execute(f"UPDATE {schema}.derived SET seq = 1")
    other = open_store(pg.address(folder, mode="pushdown"))
    other.postings(TENANT, ["x"])
    assert other.check(TENANT) == []
    other.close()


def test_a_store_of_the_first_format_gets_its_edges(tmp_path: Path) -> None:
    tell(pg.address(tmp_path), 40)
    first = open_store(pg.address(tmp_path))
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        schema = f'"{first._schema}"'
        before = db.execute(f"SELECT * FROM {schema}.edge ORDER BY tenant, seq, place").fetchall()
        assert len(before) > 20
        db.execute(f"DROP TABLE {schema}.edge, {schema}.derived")
        db.execute(f"DROP INDEX {schema}.memory_version")
        db.execute(f"UPDATE {schema}.format SET version = 1")
        first.close()
        with AgentMemory(pg.address(tmp_path), embedder=None, auto_supersede=False) as mem:
            assert mem.health()["healthy"], mem.health()
            mem.add("one more", entities=["Ann"])
            assert mem.health()["healthy"], mem.health()
        after = db.execute(f"SELECT * FROM {schema}.edge ORDER BY tenant, seq, place").fetchall()
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1


def test_blocks_of_postings() -> None:
    made = postgres_text.blocks([(1, '{"a": 2.0}'), (postgres_text.BLOCK, '{"a": 1.0, "b": 0.5}'), (600, "")])
    assert sorted(made) == [("a", 0), ("a", 1), ("b", 1)]
    both = postgres_text.lists(["a", "c"], [("a", made["a", 0]), ("a", made["a", 1])])
    assert [one.tolist() for one in both[0]] == [[1, postgres_text.BLOCK], [2.0, 1.0]]
    assert len(both[1][0]) == 0
    assert postgres_text.without(made["a", 0] + made["a", 1], [1]) == made["a", 1]


def test_links_that_say_nothing_are_no_edges() -> None:
    assert postgres_graph.link_said(1, "") is None
    assert postgres_graph.link_said(1, '{"a": "x"}') is None
