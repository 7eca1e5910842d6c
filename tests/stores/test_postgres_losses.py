"""What is derived and gets lost, by whoever's hand: noticed, made anew, and never a silent short answer."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg
from tests.stores.test_postgres_memory import NAMES, random_items

from twofold import AgentMemory
from twofold.errors import StoreError
from twofold.stores import open_store

pytestmark = pytest.mark.skipif(
    pg.why_not() is not None or not pg.has("vector"), reason="needs a server with the extension vector"
)
NOW = "2031-01-01T00:00:00Z"
GRAPH = pg.why_not() is None and pg.has("age")
QUESTIONS = ["Ann restarted the billing service", "数据库 升级了 Bob", "what did Atlas do", "Ann", "cluster"]


@pytest.fixture
def admin() -> Iterator[Any]:
    pg.shared().extend("vector", "age")
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        yield db


def opened(folder: Path, graph: str, **options: str) -> AgentMemory:
    address = pg.address(folder, mode="pushdown", graph=graph, **options)
    return AgentMemory(address, embedder="hashing:64", auto_supersede=False)


def fill(mem: AgentMemory, count: int = 150) -> None:
    source = random.Random(4)
    items = random_items(source, count)
    for item in items:
        item |= {
            "key": None,
            "namespace": "default",
            "entities": source.sample(NAMES, source.randrange(1, 3)),
        }
    made = mem.add_many(items, batch=50)
    for _ in range(20):
        a, b = source.sample(made, 2)
        mem.link(a.id, b.id, "caused")
    for one in source.sample(made, 4):
        mem.erase(one.id, reason="asked")


def answers(mem: AgentMemory) -> list[Any]:
    asked = {"now": NOW, "promote": False, "include_faded": True, "namespaces": "*"}
    found = [mem.recall(text, k=20, **asked) for text in QUESTIONS]
    return [
        [sorted(one.trace.layers["graph"]), [(hit.memory.id, hit.score, hit.sources) for hit in one]]
        for one in found
    ]


def states(mem: AgentMemory) -> dict[str, str]:
    return {one["name"]: one["state"] for one in mem.doctor()["checks"]}


# What is lost. A process that is running goes on by itself, unless a table is not there at all, or lost rows one by
# one, which it takes the doctor, or opening the store again, to notice.
EMPTIED = {
    "edge": "TRUNCATE {schema}.edge",
    "posting": "TRUNCATE {schema}.posting",
    "embedding": "TRUNCATE {schema}.embedding",
    "all of them": "TRUNCATE {schema}.edge, {schema}.posting, {schema}.embedding",
}
DELETED = {
    "edges": "DELETE FROM {schema}.edge",
    "an edge": "DELETE FROM {schema}.edge WHERE ctid = (SELECT min(ctid) FROM {schema}.edge)",
    "a word": "DELETE FROM {schema}.posting WHERE ctid = (SELECT min(ctid) FROM {schema}.posting)",
    "a row's words": "UPDATE {schema}.posting SET data = substr(data, 9) WHERE ctid = (SELECT min(ctid) "
    "FROM {schema}.posting)",
    "what was claimed": "DELETE FROM {schema}.derived",
}  # fmt: skip
DROPPED = {
    "edge": "DROP TABLE {schema}.edge",
    "posting": "DROP TABLE {schema}.posting",
    "embedding": "DROP TABLE {schema}.embedding",
    "derived": "DROP TABLE {schema}.derived",
    "all of them": "DROP TABLE {schema}.edge, {schema}.derived, {schema}.posting, {schema}.embedding",
}
OF_GRAPH = {
    "the edges of a label": "TRUNCATE {graph}.\"ABOUT\"",
    "an edge of the graph": "DELETE FROM {graph}.\"ABOUT\" WHERE ctid = (SELECT min(ctid) FROM {graph}.\"ABOUT\")",
    "the graph": "SELECT drop_graph('{plain}', true)",
    "the vertices": "DROP TABLE {schema}.vertex",
}  # fmt: skip


def lose(admin: Any, mem: AgentMemory, sql: str) -> None:
    store: Any = mem._vault.store
    plain = f"{store._schema}_graph"
    admin.execute("SET search_path = ag_catalog, public" if "drop_graph" in sql else "RESET search_path")
    admin.execute(sql.format(schema=f'"{store._schema}"', graph=f'"{plain}"', plain=plain))


def every(*groups: dict[str, str]) -> dict[str, str]:
    return {f"{sql.split()[0].lower()} {name}": sql for group in groups for name, sql in group.items()}


@pytest.mark.parametrize("loss", every(EMPTIED))
def test_a_running_process_notices_an_emptied_table(tmp_path: Path, admin: Any, loss: str) -> None:
    with opened(tmp_path, "sql") as mem:
        fill(mem)
        before = answers(mem)
        lose(admin, mem, every(EMPTIED)[loss])
        mem._vault._indexes.clear()  # no posting lists from before
        assert answers(mem) == before
        assert states(mem)["derived tables"] == "ok"
        assert mem.health()["healthy"], mem.health()


@pytest.mark.parametrize("loss", every(EMPTIED, DELETED, DROPPED))
@pytest.mark.parametrize("written", [False, True])
def test_opening_again_makes_what_was_lost_anew(tmp_path: Path, admin: Any, loss: str, written: bool) -> None:
    """Also after somebody who does not search wrote on top of it."""
    with opened(tmp_path, "sql") as mem:
        fill(mem)
        before = answers(mem)
        lose(admin, mem, every(EMPTIED, DELETED, DROPPED)[loss])
    if written:
        with AgentMemory(pg.address(tmp_path), embedder="hashing:64") as plain:
            plain.add("nothing that was asked about", visibility="private", namespace="elsewhere")
            assert plain.recall("nothing", k=1, promote=False)
    with opened(tmp_path, "sql") as mem, AgentMemory(pg.address(tmp_path), embedder="hashing:64") as local:
        found = answers(mem)
        assert found == answers(local)
        assert written or found == before
        assert mem.health()["healthy"], mem.health()
        state = states(mem)
        assert state["derived tables"] == "ok"
        assert state["row-level security"] == "ok"
        assert {state["indexes"], state["constraints"]} == {"ok"}


@pytest.mark.skipif(not GRAPH, reason="needs a server with the extension age")
@pytest.mark.parametrize("loss", every(OF_GRAPH, {"edge": EMPTIED["edge"]}))
def test_a_graph_that_was_lost_is_made_anew(tmp_path: Path, admin: Any, loss: str) -> None:
    sql = every(OF_GRAPH, {"edge": EMPTIED["edge"]})[loss]
    with opened(tmp_path, "age") as mem:
        fill(mem)
        before = answers(mem)
        lose(admin, mem, sql)
        if sql.startswith("TRUNCATE"):
            mem._vault._indexes.clear()
            assert answers(mem) == before, "a running process goes on"
    with AgentMemory(pg.address(tmp_path), embedder="hashing:64") as plain:  # writes go on without the graph
        plain.add("nothing that was asked about", visibility="private", namespace="elsewhere")
    with opened(tmp_path, "age") as mem, opened(tmp_path, "sql") as by_sql:
        assert answers(mem) == answers(by_sql)
        assert mem.health()["healthy"], mem.health()
        assert states(mem)["derived tables"] == "ok"


@pytest.mark.parametrize("loss", ["edges", "an edge", "a word", "a row's words"])
def test_the_doctor_notices_and_the_next_search_mends(tmp_path: Path, admin: Any, loss: str) -> None:
    with opened(tmp_path, "sql") as mem:
        fill(mem)
        before = answers(mem)
        lose(admin, mem, DELETED[loss])
        body = mem.doctor()
        found = {one["name"]: one for one in body["checks"]}["derived tables"]
        assert not body["healthy"]
        assert found["state"] == "fail"
        assert " entries of " in found["detail"]
        mem._vault._indexes.clear()
        assert answers(mem) == before
        assert states(mem)["derived tables"] == "ok"


def test_a_table_that_is_missing_is_an_error_until_the_store_is_opened_again(
    tmp_path: Path, admin: Any
) -> None:
    with opened(tmp_path, "sql") as mem:
        fill(mem, 50)
        before = answers(mem)
        lose(admin, mem, DROPPED["posting"])
        mem._vault._indexes.clear()
        with pytest.raises(StoreError, match="open the store again"):
            answers(mem)
        assert states(mem)["derived tables"] == "fail"
    with opened(tmp_path, "sql") as mem:
        assert answers(mem) == before


def test_entries_are_counted_by_every_kind_of_write(tmp_path: Path, admin: Any) -> None:
    """The claims are what counting gives after adds, corrections, links, erasures of rows and of links."""
    with opened(tmp_path, "sql") as mem:

        def check() -> None:
            found = {one["name"]: one for one in mem.doctor()["checks"]}["derived tables"]
            assert found["state"] == "ok", found

        first = mem.add("the gate is open", entities=["gate", "Ann"])
        mem.recall("gate", promote=False)
        check()
        second = mem.add("Ann closed the gate", entities=["gate", "Ann"])
        mem.link(first.id, second.id, "explains")
        check()
        mem.update(first.id, content="the gate was open", entities=["gate", "Bob"])
        check()
        mem.erase(second.id, reason="asked")
        check()
        mem.add_many([{"content": f"note {i} of Ann", "entities": ["Ann", f"e{i}"]} for i in range(40)])
        check()
        mem.erase(first.id, reason="asked")
        check()
        assert mem.health()["healthy"]


def test_a_replica_with_short_tables_is_not_asked(tmp_path: Path) -> None:
    primary = pg.Server({"wal_level": "replica"}).create()
    standby = None
    try:
        primary.extend("vector")
        with psycopg.connect(primary.dsn("postgres"), autocommit=True) as db:
            url = f"{primary.dsn()}?schema=short&mode=pushdown"
            with AgentMemory(url, embedder="hashing:64", auto_supersede=False) as mem:
                fill(mem, 60)
                before = answers(mem)
            standby = primary.standby("short")
            with AgentMemory(url, embedder="hashing:64", replica=standby.dsn(), max_lag=-1) as mem:
                assert answers(mem) == before
                assert mem.stats()["replica"]["served"]["replica"] > 0
                db.execute("TRUNCATE short.posting, short.edge")
                mem._vault._indexes.clear()
                for _ in range(5):
                    assert answers(mem) == before
                assert mem.health()["healthy"], mem.health()
    finally:
        if standby is not None:
            standby.remove()
        primary.remove()


def test_a_store_of_the_second_format_is_counted_by_the_next_write(tmp_path: Path, admin: Any) -> None:
    with opened(tmp_path, "sql") as mem:
        fill(mem, 50)
        before = answers(mem)
        schema = f'"{mem._vault.store._schema}"'  # type: ignore[attr-defined]
    admin.execute(f"ALTER TABLE {schema}.derived DROP COLUMN made, DROP COLUMN entries")
    admin.execute(f"UPDATE {schema}.format SET version = 2")
    store = open_store(pg.address(tmp_path))
    assert admin.execute(f"SELECT version FROM {schema}.format").fetchall() == [(3,)]
    store.close()
    with opened(tmp_path, "sql") as mem:
        assert answers(mem) == before
        assert mem.health()["healthy"], mem.health()
