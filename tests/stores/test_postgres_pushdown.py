"""mode=pushdown: vectors stay in the server, which proposes; the core scores, and the answers are the same."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg
from tests.stores.test_postgres_memory import random_items, random_query, told

from twofold import AgentMemory, ManualClock, errors
from twofold.index.fetched import FetchedPart, part_for
from twofold.model import Generation
from twofold.retrieve import pushdown, vector
from twofold.retrieve.profile import DEFAULT
from twofold.stores import open_store, postgres_schema, postgres_vectors
from twofold.stores.postgres import PostgresStore
from twofold.testing import TENANT, add, assert_sound, sample_batch, sample_erasure, sample_vectors

pytestmark = pytest.mark.skipif(
    pg.why_not() is not None or not pg.has("vector"), reason="needs a server with the extension vector"
)


@pytest.fixture(autouse=True, scope="module")
def extensions() -> None:
    pg.shared().extend("vector", "vectorscale")


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Any]:
    """A store that was opened without knowing of pushdown."""
    store = open_store(pg.address(tmp_path))
    yield store
    store.close()


@pytest.fixture
def pushed(plain: Any, tmp_path: Path) -> Iterator[Any]:
    """The same store with pushdown."""
    store = open_store(pg.address(tmp_path, mode="pushdown"))
    yield store
    store.close()


def test_the_answers_are_those_of_sqlite(tmp_path: Path) -> None:
    """Below the size at which an approximate index is asked, byte for byte."""
    source = random.Random(3)
    items = random_items(source, 300)
    asked = [random_query(source) for _ in range(60)]
    one = told(tmp_path / "store", items, asked, tmp_path / "a.jsonl")
    other = told(pg.address(tmp_path, mode="pushdown"), items, asked, tmp_path / "b.jsonl")
    for question, mine, theirs in zip([*asked, "receipt", "replay", "verify"], one, other, strict=True):
        assert mine == theirs, question
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_no_vectors_are_kept_in_ram(tmp_path: Path) -> None:
    with AgentMemory(pg.address(tmp_path, mode="pushdown", keep="0"), embedder="hashing:64") as mem:
        for i in range(20):
            mem.add(f"note {i}")
        assert len(mem.recall("note 7", k=3)) == 3
        index = mem._vault.index("default")
        assert index.vectors == {}
        assert index.fetched is None
        assert mem.health()["healthy"], mem.health()


def test_a_recall_asks_the_server_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the head; for what the layers search, all at once; for the rows. Once more for vectors of neighbours."""
    asked: list[str] = []
    plain = PostgresStore._retried

    def counted(self: Any, doing: str, work: Any) -> Any:
        asked.append(doing)
        return plain(self, doing, work)

    monkeypatch.setattr(PostgresStore, "_retried", counted)
    with AgentMemory(pg.address(tmp_path, mode="pushdown"), embedder="hashing:64") as mem:
        mem.add_many(
            [{"content": f"note {i} of Ann", "entities": ["Ann"], "session_id": "s"} for i in range(900)]
        )
        mem.recall("what does Ann note?", promote=False)
        asked.clear()
        mem.recall("Ann and note 17", promote=False, k=5)
        assert asked.count("search") == len(asked) - 2 <= 2, asked
        asked.clear()
        mem.recall("Ann and note 17", promote=False, k=5, filters={"session_id": "s"})
        assert "search" in asked
        again = len(asked)
        mem.recall("Ann and note 17", promote=False, k=5, filters={"session_id": "s"})
        assert len(asked) - again <= again, "what was kept is not fetched again"


def test_kept_vectors_are_bounded_and_go_with_an_erasure(tmp_path: Path) -> None:
    with AgentMemory(pg.address(tmp_path, mode="pushdown"), embedder="hashing:64") as mem:
        made = mem.add_many([f"note {i}" for i in range(300)])
        mem.recall("note 7", k=3)
        index = mem._vault.index("default")
        part = index.fetched
        assert part is not None
        assert part.have()[7]
        assert part.size > 232 * 64 * 5
        generation = part.generation
        assert part_for(index, generation) is part
        assert index.serving is not None
        index.serving.kept_bytes = 10
        assert part_for(index, generation) is not part, "it has grown too large"
        index.serving.kept_bytes = 2**20
        mem.recall("note 7", k=3)
        kept = index.fetched
        assert part_for(index, generation) is kept
        assert part_for(index, replace(generation, number=2)) is not kept
        mem.recall("note 7", k=3)
        mem.erase(made[7].id, reason="asked")
        mem.recall("note 8", k=3)
        fetched = mem._vault.index("default").fetched
        assert fetched is not None
        assert not fetched.have()[7:8].any()


@pytest.mark.parametrize("keep", ["0", "64"])
def test_the_same_said_often_comes_in_the_order_of_rows(tmp_path: Path, keep: str) -> None:
    """More equal vectors than a search is deep, in more rows than are asked for: the first rows are the nearest."""
    items = [
        {"content": "the tea is warm" if i % 5 else f"a boat {i}", "session_id": f"s{i}", "tags": ["said"]}
        for i in range(900)
    ]
    items += [{"content": f"a kite {i}", "tags": ["few"]} for i in range(40)]
    clock = ManualClock("2027-01-01T00:00:00Z")
    settings: dict[str, Any] = {"embedder": "hashing:64", "clock": clock, "auto_supersede": False}
    with (
        AgentMemory(pg.address(tmp_path), **settings) as local,
        AgentMemory(pg.address(tmp_path, mode="pushdown", keep=keep), **settings) as away,
    ):
        local.add_many(items)
        assert local.stats()["memories"] == len(items), "none was merged"
        for text in (
            "the tea is warm",
            "is it warm?",
            "a boat 10",
            "the kite and the tea",
            "the tea is warm",
        ):
            for filters in (None, {"tags": ["few", "said"]}):
                told = [m.recall(text, k=50, promote=False, filters=filters) for m in (local, away)]
                one, other = ([(h.memory.id, h.score) for h in found] for found in told)
                assert one == other, text


def test_where_most_vectors_are_kept_they_are_searched_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    plain = PostgresStore.search

    def seen(self: Any, tenant: str, near: Any, terms: Any, steps: Any) -> Any:
        asked.append(near)
        return plain(self, tenant, near, terms, steps)

    monkeypatch.setattr(PostgresStore, "search", seen)
    source = random.Random(8)
    with (
        AgentMemory(pg.address(tmp_path), embedder="hashing:64") as local,
        AgentMemory(pg.address(tmp_path, mode="pushdown"), embedder="hashing:64") as away,
    ):
        local.add_many([f"note {source.random()} of {source.choice('abcdefgh')}" for _ in range(1_200)])
        now = local.clock.now()
        for _ in range(40):
            text = f"what is {source.random()} of {source.choice('abcdefgh')}?"
            one, other = (mem.recall(text, k=10, now=now, promote=False) for mem in (local, away))
            assert [(h.memory.id, h.score) for h in one] == [(h.memory.id, h.score) for h in other]
        assert asked[0].query is not None
        assert all(near is None or near.query is None for near in asked[-10:]), "all of them are here by now"
        asked.clear()
        local.add("one more")
        assert away.recall("one more", k=1, promote=False)[0].content == "one more"
        assert asked[0].ordinals.tolist() == [1_200], "only what is new is fetched"


def test_a_part_in_no_order_scores_as_one_in_order() -> None:
    source = np.random.default_rng(4)
    data = source.normal(size=(60, 64)).astype("<f4")
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    rows = [(i // 2, i % 2, 0, 1, data[i].tobytes(), b"") for i in range(60) if i // 2 != 11]
    generation = Generation(1, "sample", 64, 1)
    plain, mixed = FetchedPart(generation), FetchedPart(generation)
    plain.take(rows)
    for some in (rows[40:], rows[2:12], rows):
        mixed.take([some[at] for at in source.permutation(len(some))])
    assert len(mixed.ordinals) == len(plain.ordinals) == len(rows)
    asked = np.array([3, 29, 11, 0, 40, 18])
    assert mixed.missing(asked).tolist() == plain.missing(asked).tolist() == [11, 40]
    one, other = (vector.scores(part, data[5], asked, 0.1, DEFAULT).tobytes() for part in (plain, mixed))
    assert one == other
    with pytest.raises(errors.StoreCorrupt, match="rows 50 and 51"):
        plain.take([(50, 0, 0, 1, bytes(256), b""), (51, 0, 0, 1, bytes(252), b"")])
    with pytest.raises(NotImplementedError):
        mixed.prefix(3)


def test_how_much_is_kept_is_checked(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="keep in the store's address"):
        open_store(pg.address(tmp_path, mode="pushdown", keep="-1"))


def test_every_writer_keeps_the_searched_copy(plain: Any, tmp_path: Path) -> None:
    """Vectors from before, from a writer opened before, and from a transaction begun before."""
    add(plain, "before")
    tx = plain.transaction("open")
    tx.__enter__()
    tx.apply(sample_batch(tx.head, ["begun before"]))
    with pytest.raises(errors.StoreBusy):  # the table can only be made between two writes
        open_store(pg.address(tmp_path, mode="pushdown"), timeout=0.2)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_store, pg.address(tmp_path, mode="pushdown"))
        time.sleep(0.3)
        assert not opening.done()
        tx.__exit__(None, None, None)
        other = opening.result()
    assert other.nearest(TENANT, 1, sample_vectors("before")[0], 5) == [0]
    add(plain, "after")
    assert other.nearest(TENANT, 1, sample_vectors("after")[0], 5) == [1, 0]
    assert other.nearest("open", 1, sample_vectors("x")[0], 5) == [0]
    with plain.transaction(TENANT) as tx:
        tx.apply(sample_erasure(tx.head, plain.rows(TENANT, [0])))
    assert other.nearest(TENANT, 1, sample_vectors("before")[0], 5) == [1]
    other.scrub()
    assert_sound(other, TENANT)
    other.close()


def test_a_search_sees_only_its_tenant(pushed: Any, tmp_path: Path) -> None:
    for tenant in ("a", "b"):
        add(pushed, *(f"{tenant} {n}" for n in range(30)), tenant=tenant)
        pushed.create_vector_index(8)
    for kind in ("none", "hnsw"):
        if kind == "hnsw":
            pushed.create_vector_index(8)
        near = sample_vectors("b 7")[0]
        assert sorted(pushed.nearest("a", 1, near, 100)) == list(range(30))
        assert pushed.nearest("b", 1, near, 1) == [7]
    with psycopg.connect(pg.shared().dsn(), autocommit=True) as db:
        table = f'"{pushed._schema}".embedding'
        search = f"SELECT tenant FROM {table} ORDER BY (v::vector(8)) <=> '[1,0,0,0,0,0,0,0]' LIMIT 50"
        assert db.execute(search).fetchall() == []
        with db.transaction():
            db.execute(postgres_schema.AS_TENANT, ("a",))
            db.execute("SET LOCAL enable_seqscan = off")
            assert set(db.execute(search).fetchall()) == {("a",)}
        with db.transaction():
            db.execute(postgres_schema.AS_TENANT, ("a",))
            with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
                db.execute(f"UPDATE {table} SET tenant = 'c'")


@pytest.mark.parametrize("kind", ["hnsw", "diskann"])
def test_an_index_is_built_and_used(pushed: Any, kind: str) -> None:
    """EXPLAIN shows the index, and no sequential scan in either kind of search."""
    if kind == "diskann" and not pg.has("vectorscale"):
        pytest.skip("no vectorscale here")
    add(pushed, *(f"text {n}" for n in range(400)))
    pushed.nearest(TENANT, 1, sample_vectors("x")[0], 1)
    pushed.create_vector_index(8, kind)
    near = sample_vectors("text 5")[0]
    with psycopg.connect(pg.shared().dsn(), autocommit=True) as db:
        db.adapters.register_dumper(postgres_vectors.Packed, postgres_vectors.PackedDumper)
        db.adapters.register_dumper(postgres_vectors.Numbers, postgres_vectors.NumbersDumper)
        db.execute(f'ANALYZE "{pushed._schema}".embedding')
        for ordinals, index in ((None, f"embedding_{kind}_8"), (list(range(50)), "embedding_pkey")):
            with db.transaction():
                db.execute(postgres_schema.AS_TENANT, (TENANT,))
                *before, (search, args) = postgres_vectors.asking(
                    TENANT, 1, near, 10, ordinals, column=kind == "diskann"
                )
                for sql, values in before:
                    db.execute(sql, values)
                lines = db.execute("EXPLAIN " + pushed._q(search), args).fetchall()
                plan = "\n".join(line for (line,) in lines)
            assert "Seq Scan" not in plan, plan
            assert index in plan, plan
    assert pushed.nearest(TENANT, 1, near, 5)[0] == 5


def test_the_ddl_of_each_index() -> None:
    assert "USING scann" in postgres_vectors.index_ddl(384, "scann")[0]
    for dimension, kind in ((0, "hnsw"), (2001, "hnsw"), (8, "ivf")):
        with pytest.raises(errors.InvalidInput):
            postgres_vectors.index_ddl(dimension, kind)


def test_without_the_extension_it_says_what_is_missing(tmp_path: Path) -> None:
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE bare OWNER {pg.ROLE}")
    try:
        url = pg.address(tmp_path, mode="pushdown").replace("/twofold?", "/bare?")
        with psycopg.connect(url.partition("?")[0], autocommit=True) as db:
            trusted = db.execute(
                "SELECT trusted FROM pg_available_extension_versions WHERE name = 'vector'"
            ).fetchone() == (True,)
        if trusted:
            open_store(url).close()
        else:
            with pytest.raises(errors.StoreError, match="CREATE EXTENSION vector"):
                open_store(url)
    finally:
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            db.execute("DROP DATABASE bare WITH (FORCE)")


def clustered(count: int, dimension: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    source = np.random.default_rng(seed)
    centres = source.normal(size=(max(4, count // 60), dimension))
    rows = centres[source.integers(len(centres), size=count)] + 0.6 * source.normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("kind", ["hnsw", "none"])
def test_recall_under_filters(pushed: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 %, 10 %, 50 % and all rows eligible: at least 0.99 of the exact top ten, and never a short list."""
    n, dimension = 4_000, 64
    rows = clustered(n + 60, dimension, 1)
    data, queries = rows[:n], rows[n:]
    with pushed.transaction(TENANT) as tx:
        batch = sample_batch(tx.head, [str(i) for i in range(n)])
        batch.generations = [Generation(1, "sample", dimension, 1)]
        merged = batch.vectors[0].of(1, [(i, 0, 0, 1) for i in range(n)], data)
        batch.vectors = [merged]
        tx.apply(batch)
    if kind == "hnsw":
        pushed.create_vector_index(dimension)
    monkeypatch.setattr(pushdown, "NAMED", 30 if kind == "hnsw" else 10**9)
    monkeypatch.setattr(pushdown, "SCANNED", 0 if kind == "hnsw" else 10**9)
    source = np.random.default_rng(2)
    generation = pushed.generations(TENANT)[0]
    for share in (0.01, 0.1, 0.5, 1.0):
        mask = source.random(n) < share
        found = 0
        for query in queries:
            part = pushdown.candidates(pushed, TENANT, generation, mask, query, 50)
            ordinals = part.nearest
            assert mask[ordinals].all()
            assert len(ordinals) >= min(50, mask.sum()), "a short list"
            exact = np.flatnonzero(mask)[np.argsort(-(data[mask] @ query), kind="stable")[:10]]
            found += len(set(ordinals.tolist()) & set(exact.tolist()))
        assert found >= 0.99 * 10 * len(queries), (kind, share, found)


def test_rows_recorded_later_are_not_proposed(pushed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add(pushed, *(f"text {n}" for n in range(100)), parts=2)
    generation = pushed.generations(TENANT)[0]
    for named in (0, 10**9):
        monkeypatch.setattr(pushdown, "NAMED", named)
        monkeypatch.setattr(pushdown, "SCANNED", named)
        part = pushdown.candidates(pushed, TENANT, generation, np.ones(60, bool), sample_vectors("x")[0], 5)
        assert part.ordinals.view().max() < 60
        assert len(np.unique(part.ordinals.view())) >= 5


# The whole of a recall

SHARES = {"tag01": 100, "tag10": 10, "tag50": 2}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 memories, of which 1 %, 10 % and 50 % bear a tag."""
    folder = tmp_path_factory.mktemp("whole")
    source = random.Random(9)
    items = random_items(source, 3_000)
    for i, item in enumerate(items):
        item |= {"key": None, "namespace": "default", "session_id": f"s{i // 15}"}
        item["tags"] = [tag for tag, every in SHARES.items() if i % every == 0]
        item["entities"] = source.sample(["Ann", "Bob", "Atlas", "billing"], source.randrange(3))
    address = pg.address(folder, mode="pushdown")
    clock = ManualClock("2026-12-31T00:00:00Z")
    with AgentMemory(address, embedder="hashing:64", auto_supersede=False, clock=clock) as mem:
        mem.add_many(items)
        mem.recall("Ann", promote=False)
    store = open_store(address)
    store.create_vector_index(64)
    store.close()
    return folder


def questions(count: int) -> list[str]:
    source = random.Random(10)
    return [random_query(source)[0] + f" {source.randrange(400)}" for _ in range(count)]


@pytest.mark.parametrize("kind", ["hnsw", "exact"])
def test_a_whole_recall_finds_what_an_exact_one_finds(
    filled: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, tags, relations and vectors together, all rows and filtered: 0.99 of the top ten, no short list."""
    for name in ("NAMED", "SCANNED"):
        monkeypatch.setattr(pushdown, name, 0 if kind == "hnsw" else 10**9)
    clock = ManualClock("2027-01-01T00:00:00Z")
    with (
        AgentMemory(pg.address(filled), embedder="hashing:64", clock=clock) as local,
        AgentMemory(pg.address(filled, mode="pushdown"), embedder="hashing:64", clock=clock) as away,
    ):
        for tag in (None, *SHARES):
            filters = None if tag is None else {"tags": [tag]}
            found = wanted = 0
            for text in questions(25):
                one, other = (mem.recall(text, k=10, promote=False, filters=filters) for mem in (local, away))
                assert len(other) == len(one) == 10, "a short list"
                if kind == "exact":
                    assert [(h.memory.id, h.score) for h in one] == [(h.memory.id, h.score) for h in other]
                wanted += 10
                found += len({h.memory.id for h in one} & {h.memory.id for h in other})
            assert found >= 0.99 * wanted, (kind, tag, found, wanted)


@pytest.mark.parametrize("named", [0, 10**9])
def test_no_table_is_read_as_a_whole(filled: Path, named: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own counters: what 20 recalls read is read by indexes, the exact scan of vectors included."""
    monkeypatch.setattr(pushdown, "NAMED", named)
    monkeypatch.setattr(pushdown, "SCANNED", named)
    address = pg.address(filled, mode="pushdown")
    with psycopg.connect(pg.shared().dsn("postgres", "twofold"), autocommit=True) as db:
        db.execute("ANALYZE")
        schema = address.partition("schema=")[2].partition("&")[0]

        def read(texts: list[str]) -> tuple[dict[str, int], int]:
            before = counters(db, schema)
            with AgentMemory(address, embedder="hashing:64") as mem:
                for at, text in enumerate(texts):
                    filters = {"tags": [["tag01", "tag50"][at % 2]]} if at % 3 else None
                    assert len(mem.recall(text, promote=False, k=5, filters=filters)) == 5
            time.sleep(0.2)  # sessions tell what they counted when they end
            after = counters(db, schema)
            return {name: after[name][0] - before[name][0] for name in after}, sum(
                after[name][1] - before[name][1] for name in after
            )

        once, _ = read(questions(1))
        often, by_index = read(questions(21))
        # At most as often: counts of an earlier session may still come in during the first one.
        more = {name: count for name, count in often.items() if count > once.get(name, 0)}
        assert not more, "what opening reads is read once, and recalls read no table as a whole"
        assert by_index > 20


def counters(db: Any, schema: str) -> dict[str, tuple[int, int]]:
    """Sequential and index scans of each table so far."""
    found = db.execute(
        "SELECT relname, seq_scan, idx_scan FROM pg_stat_user_tables WHERE schemaname = %s", (schema,)
    ).fetchall()
    return {name: (whole, indexed or 0) for name, whole, indexed in found}
