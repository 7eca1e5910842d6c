"""Relations mirrored as a graph of Apache AGE: the same walks, the same tenants, kept in step."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg
from tests.stores.test_postgres_searching import LONG, TENANT, tell

from twofold import AgentMemory, errors
from twofold.entities import entity_key
from twofold.stores import open_store, postgres_age, postgres_schema

pytestmark = pytest.mark.skipif(
    pg.why_not() is not None or not pg.has("age"), reason="needs a server with the extension age"
)


@pytest.fixture(autouse=True, scope="module")
def extensions() -> None:
    pg.shared().extend("vector", "age")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A store whose graph was made halfway through its history, asked by Cypher and by SQL."""
    folder = tmp_path_factory.mktemp("age")
    tell(pg.address(folder), 90)
    open_store(pg.address(folder, graph="age")).close()
    tell(pg.address(folder), 90)  # by a writer that was not told of the graph
    by_sql = open_store(pg.address(folder, mode="pushdown"))
    by_cypher = open_store(pg.address(folder, mode="pushdown", graph="age"))
    yield by_sql, by_cypher
    by_sql.close()
    by_cypher.close()


def test_cypher_walks_where_sql_walks(told: Any) -> None:
    by_sql, by_cypher = told
    rows, seq = by_sql.head(TENANT).rows, by_sql.head(TENANT).seq
    source = np.random.default_rng(3)
    met = 0
    for seeds in (["ann"], ["bob", "数据库"], [entity_key(LONG)], ["nobody"], ["billing service"]):
        for share, until, limit in ((1.0, seq, 800), (0.5, seq, 800), (1.0, seq // 2, 800), (0.8, seq, 12)):
            mask = source.random(rows) < share
            for hops in (1, 2, 3):
                one, other = (
                    store.walk(TENANT, seeds, hops, mask, until, limit) for store in (by_sql, by_cypher)
                )
                assert set(one) == set(other), (seeds, share, until, limit, hops)
                assert len(one) == len(set(one))
                assert len(other) == len(set(other))
                met += len(one)
    assert met > 500


def test_the_graph_is_kept_by_every_write_and_compared(told: Any) -> None:
    _, by_cypher = told
    assert by_cypher.check(TENANT) == []
    graph = postgres_age.graph_of(by_cypher._schema)
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        db.execute(
            f'DELETE FROM "{graph}"."ABOUT" WHERE ctid IN (SELECT ctid FROM "{graph}"."ABOUT" LIMIT 2)'
        )
        assert any("lacks 2 edges" in problem for problem in by_cypher.check(TENANT))
        db.execute(f"DELETE FROM \"{by_cypher._schema}\".derived WHERE name = 'age'")
    other = open_store(by_cypher.url)
    other.walk(TENANT, ["ann"], 1, np.ones(1, np.bool_), 1, 1)
    assert other.check(TENANT) == []
    other.close()


def test_what_is_erased_leaves_the_graph(tmp_path: Path) -> None:
    with AgentMemory(pg.address(tmp_path, graph="age"), embedder=None) as mem:
        made = mem.add("Zacharias met Ann", entities=["Zacharias", "Ann"])
        mem.add("Ann came back", entities=["Ann"])
        store: Any = mem._vault.store
        graph = postgres_age.graph_of(store._schema)
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            names = f'SELECT properties::text FROM "{graph}"."Entity"'
            db.execute("SET search_path = ag_catalog")
            assert "zacharias" in str(db.execute(names).fetchall())
            mem.erase(made.id, reason="asked")
            left = str(db.execute(names).fetchall())
            assert "zacharias" not in left
            assert "ann" in left
        assert mem.health()["healthy"], mem.health()


@pytest.mark.parametrize("parameters, said", [
    ({}, "in RAM"),
    ({"mode": "pushdown"}, "by SQL"),
    ({"mode": "pushdown", "graph": "age"}, "by Apache AGE"),
])  # fmt: skip
def test_health_says_which_graph_runs(tmp_path: Path, parameters: dict[str, str], said: str) -> None:
    with AgentMemory(pg.address(tmp_path, **parameters), embedder=None) as mem:
        mem.add("Ann moved the billing service", entities=["Ann"])
        told = {check["name"]: check["detail"] for check in mem.health()["checks"]}
        assert told["graph"].startswith(said)


def test_without_the_extension_it_says_what_is_missing(tmp_path: Path) -> None:
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE ageless OWNER {pg.ROLE}")
        try:
            with pytest.raises(errors.StoreError, match="CREATE EXTENSION age"):
                open_store(pg.address(tmp_path, graph="age").replace("/twofold?", "/ageless?"))
        finally:
            db.execute("DROP DATABASE ageless WITH (FORCE)")
    with pytest.raises(errors.InvalidInput):
        open_store(f"{pg.shared().dsn()}?graph=age&schema={'x' * 60}")


# One role, every way of asking


def test_a_role_sees_its_tenant_by_every_way_of_asking(tmp_path: Path) -> None:
    """SQL, vectors, words, Cypher with labels and without: nothing without a tenant, only its own with one."""
    address = pg.address(tmp_path, mode="pushdown", graph="age")
    for tenant in ("a", "b"):
        with AgentMemory(address, tenant=tenant, embedder="hashing:64") as mem:
            one = mem.add(f"the secret of {tenant}", entities=[f"name of {tenant}", "shared"])
            other = mem.add(f"another of {tenant}", entities=["shared"])
            mem.link(one.id, other.id, "beside")
            mem.recall("secret")
    store = open_store(address)
    schema, graph = store._schema, postgres_age.graph_of(store._schema)
    store.close()
    asked = [
        f'SELECT tenant FROM "{schema}"."{table}"'
        for table in (*postgres_schema.TENANT_TABLES, "embedding", "posting", "vertex")
        if table not in ("receipt", "interval")
    ]
    near = "[" + ",".join(["1"] * 64) + "]"
    asked += [
        f"SELECT tenant FROM \"{schema}\".embedding ORDER BY v <=> '{near}' LIMIT 10",
        f"SELECT tenant FROM \"{schema}\".posting WHERE term = 'secret'",
        f"SELECT tenant FROM \"{schema}\".edge WHERE entity = 'shared'",
    ]
    asked += [
        f"SELECT v::text FROM cypher('{graph}', $$ {match} RETURN {what}.tenant $$) AS (v agtype)"
        for match, what in (
            ("MATCH (n)", "n"),
            ("MATCH (n:Memory)", "n"),
            ("MATCH (n:Entity)", "n"),
            ("MATCH (n:Entity {name: 'shared'})", "n"),
            ("MATCH ()-[r]->()", "r"),
            ("MATCH ()-[r:ABOUT]->()", "r"),
            ("MATCH ()-[r:LINKED]->()", "r"),
            ("MATCH (a)-[r]-(n)", "n"),
            ("MATCH (a:Entity)<-[r:ABOUT]-(n:Memory)", "a"),
        )
    ]
    with psycopg.connect(pg.shared().dsn(), autocommit=True) as db:
        db.execute("SELECT ag_catalog._graphid(1, 1)")
        db.execute("SET search_path = ag_catalog, public")
        for _ in range(2):  # the second time after a transaction that had set a tenant
            for sql in asked:
                assert db.execute(sql).fetchall() == [], sql
            for tenant in ("a", "b"):
                with db.transaction():
                    db.execute(postgres_schema.AS_TENANT, (tenant,))
                    for sql in asked:
                        seen = {str(value).strip('"') for (value,) in db.execute(sql).fetchall()}
                        assert seen == {tenant}, (sql, seen)
        with db.transaction():
            db.execute(postgres_schema.AS_TENANT, ("a",))
            for write in (
                "CREATE (n:Entity {tenant: 'b', name: 'smuggled'})",
                "MATCH (n:Entity {name: 'shared'}) SET n.tenant = 'b'",
            ):
                with pytest.raises(psycopg.errors.Error), db.transaction():
                    db.execute(f"SELECT * FROM cypher('{graph}', $$ {write} $$) AS (v agtype)")
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as admin:
            admin.execute("SET search_path = ag_catalog")
            owners = admin.execute(
                f'SELECT properties::text FROM "{graph}"."Entity" WHERE properties::text LIKE \'%shared%\''
            ).fetchall()
        assert len(owners) == 2
        assert {"a", "b"} == {text.partition('"tenant": "')[2][0] for (text,) in owners}
