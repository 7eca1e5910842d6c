"""`twofold doctor` on a real server: every check is shown to fail for what it is there for."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold import AgentMemory, ManualClock, Role
from twofold.cli import main
from twofold.errors import InvalidInput, StoreError
from twofold.stores import open_store, postgres_doctor
from twofold.stores.postgres import split_url

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))

# What the tests' server is started with, for speed; the doctor must object to it, and to the tests' role owning all.
USUAL = {"durability": "fail", "role": "warn"}


@pytest.fixture
def admin() -> Iterator[Any]:
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        yield db


@pytest.fixture
def mem(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(pg.address(tmp_path), embedder="hashing:64") as opened:
        opened.add("the planner chose Rust", entities=["planner"])
        yield opened


def checks(mem: AgentMemory) -> dict[str, dict[str, Any]]:
    body = mem.doctor()
    assert body["healthy"] == all(one["state"] != "fail" for one in body["checks"])
    for one in body["checks"]:
        assert one["ok"] == (one["state"] != "fail")
        assert bool(one["remedy"]) == (one["state"] != "ok"), one
    return {one["name"]: one for one in body["checks"]}


def unusual(mem: AgentMemory) -> dict[str, tuple[str, str]]:
    """What is not as on a sound store of the tests' server: state and detail."""
    return {
        name: (one["state"], f"{one['detail']} | {one['remedy']}")
        for name, one in checks(mem).items()
        if one["state"] != USUAL.get(name, "ok")
    }


def schema_of(mem: AgentMemory) -> str:
    store: Any = mem._vault.store
    return f'"{store._schema}"'


@contextlib.contextmanager
def role(admin: Any, mem: AgentMemory, name: str, attributes: str = "") -> Iterator[None]:
    """A role that may use the store's tables, and owns none."""
    schema = schema_of(mem)
    admin.execute(f"DROP ROLE IF EXISTS {name}")
    admin.execute(f"CREATE ROLE {name} LOGIN {attributes}")
    admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}")
    try:
        yield
    finally:
        admin.execute(f"DROP OWNED BY {name}")
        until = time.monotonic() + 10
        while admin.execute("SELECT 1 FROM pg_stat_activity WHERE usename = %s", (name,)).fetchall():
            assert time.monotonic() < until
        admin.execute(f"DROP ROLE {name}")


def test_a_sound_store(mem: AgentMemory) -> None:
    assert unusual(mem) == {}
    found = checks(mem)
    assert {
        "store", "index", "hash chain", "pool", "server", "extension vector", "extension age",
        "extension vectorscale", "format", "role", "row-level security", "clock", "connections", "replication",
        "indexes", "constraints", "timeouts", "durability", "encryption",
    } <= set(found)  # fmt: skip
    assert "PostgreSQL" in found["server"]["detail"]
    assert "fsync off" in found["durability"]["detail"]
    assert "owns" in found["role"]["detail"]


# Who may see what


BROKEN = {
    "memory": (
        "ALTER TABLE {} NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE {} FORCE ROW LEVEL SECURITY",
        "not forced",
    ),
    "receipt": (
        "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE {} ENABLE ROW LEVEL SECURITY",
        "off on",
    ),
    "vector": ("CREATE POLICY everybody ON {} USING (true)", "DROP POLICY everybody ON {}", "another policy"),
}


@pytest.mark.parametrize("table", BROKEN)
def test_a_table_that_is_not_under_the_policy(mem: AgentMemory, admin: Any, table: str) -> None:
    breaking, mending, said = BROKEN[table]
    place = f"{schema_of(mem)}.{table}"
    admin.execute(breaking.format(place))
    state, detail = unusual(mem)["row-level security"]
    assert state == "fail"
    assert said in detail
    assert f".{table}" in detail
    admin.execute(mending.format(place))
    assert unusual(mem) == {}


def test_rows_that_are_shown_without_a_tenant_are_noticed_by_looking(mem: AgentMemory, admin: Any) -> None:
    """All tables with the same wrong policy: no comparison between them would find it."""
    schema = schema_of(mem)
    tables = [name for (name,) in admin.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'format'", (schema.strip('"'),)
    )]  # fmt: skip
    for table in tables:
        admin.execute(f"ALTER POLICY tenant_only ON {schema}.{table} USING (tenant = coalesce(nullif("
                      "current_setting('twofold.tenant', true), ''), tenant)) WITH CHECK (tenant = coalesce(nullif("
                      "current_setting('twofold.tenant', true), ''), tenant))")  # fmt: skip
    state, detail = unusual(mem)["row-level security"]
    assert state == "fail"
    assert "rows without a tenant" in detail
    assert ".head" in detail


@pytest.mark.skipif(not pg.has("age"), reason="needs a server with the extension age")
def test_the_parents_of_the_graph_are_looked_at(tmp_path: Path, admin: Any) -> None:
    pg.shared().extend("age")
    with AgentMemory(pg.address(tmp_path, graph="age"), embedder="hashing:64") as mem:
        mem.add("a", entities=["b"])
        assert unusual(mem) == {}
        assert "used (graph=age)" in checks(mem)["extension age"]["detail"]
        graph = schema_of(mem).strip('"') + "_graph"
        admin.execute(f'ALTER TABLE "{graph}"._ag_label_vertex DISABLE ROW LEVEL SECURITY')
        state, detail = unusual(mem)["row-level security"]
        assert state == "fail"
        assert f"{graph}._ag_label_vertex" in detail


def test_roles_for_which_no_policy_holds(tmp_path: Path, mem: AgentMemory, admin: Any) -> None:
    url = pg.address(tmp_path).replace(pg.ROLE, "strong")
    with role(admin, mem, "strong", "BYPASSRLS"):
        with AgentMemory(f"{url}&allow_bypass=1", embedder="hashing:64") as other:
            found = unusual(other)
            assert found["role"][0] == "fail"
            assert "BYPASSRLS" in found["role"][1]
            assert found["row-level security"][0] == "warn"
        said = CliRunner().invoke(main, ["doctor", "--store", url, "--embedder", "none", "--json"])
        assert said.exit_code == 1
        told = {one["name"]: one for one in json.loads(said.stdout)["checks"]}
        assert told["open"]["state"] == told["role"]["state"] == "fail"
        assert told["server"]["state"] == "ok"
        admin.execute(f"GRANT strong TO {pg.ROLE}")
        state, detail = unusual(mem)["role"]
        assert state == "fail"
        assert "may become strong" in detail


def test_a_role_that_only_uses_the_tables_is_what_is_wanted(
    tmp_path: Path, mem: AgentMemory, admin: Any
) -> None:
    url = pg.address(tmp_path).replace(pg.ROLE, "user_only")
    with role(admin, mem, "user_only"), AgentMemory(url, embedder="hashing:64") as other:
        assert unusual(other)["role"][0] == "ok"


def test_who_does_not_own_the_tenant_is_not_told_of_the_server(mem: AgentMemory) -> None:
    told = {one["name"] for one in mem.as_agent("m", role=Role.MONITOR).doctor()["checks"]}
    assert "hash chain" in told
    assert not told & {"role", "server", "connections"}


# Time and connections


@pytest.mark.parametrize("seconds, state", [(5, "warn"), (-5, "warn"), (3600, "fail"), (0, "ok")])
def test_clocks_that_differ(tmp_path: Path, seconds: int, state: str) -> None:
    with AgentMemory(pg.address(tmp_path), embedder=None) as mem:
        real = mem.clock.now()
        clock = ManualClock(real.isoformat())
        clock.advance(seconds=seconds)
        started = time.monotonic()

        class Off:
            def now(self) -> Any:
                clock.set(real.isoformat())
                return clock.advance(seconds=seconds + time.monotonic() - started)

        mem._vault.clock = Off()
        found = checks(mem)["clock"]
        assert found["state"] == state
        if seconds:
            assert ("behind" if seconds > 0 else "ahead of") in found["detail"]


def test_a_pool_that_is_used_up(tmp_path: Path) -> None:
    with AgentMemory(pg.address(tmp_path, writers="1", readers="2"), embedder=None) as mem:
        store: Any = mem._vault.store
        waiting = threading.Thread(
            target=lambda: store.transaction("b").__enter__().__exit__(None, None, None)
        )
        with store.transaction("a"):
            assert postgres_doctor._pool(store).state == "warn"
            waiting.start()
            until = time.monotonic() + 10
            while postgres_doctor._pool(store).state != "fail":
                assert time.monotonic() < until
                time.sleep(0.01)
            assert "0 of 2 readers in use, 0 waiting, 1 of 1 writers in use, 1 waiting" in (
                postgres_doctor._pool(store).detail
            )
        waiting.join()
        assert unusual(mem) == {}


def test_a_server_whose_connections_are_used_up(tmp_path: Path, mem: AgentMemory, admin: Any) -> None:
    url = pg.address(tmp_path).replace(pg.ROLE, "few")
    with (
        role(admin, mem, "few", "CONNECTION LIMIT 4"),
        AgentMemory(url, embedder=None) as other,
        contextlib.ExitStack() as held,
    ):
        state, detail = unusual(other)["connections"]
        assert state == "warn"
        assert "of 4 of this role" in detail
        while True:
            try:
                held.enter_context(psycopg.connect(pg.shared().dsn("few")))
            except psycopg.OperationalError:
                break
        state, detail = unusual(other)["connection"]
        assert state == "fail"
        assert "max_connections" in detail


# Indexes and constraints


def test_an_index_whose_build_failed(mem: AgentMemory, admin: Any) -> None:
    schema = schema_of(mem)
    mem.add("the same words twice")
    mem.add("another", session_id="s")
    with psycopg.connect(pg.shared().dsn("postgres", "twofold"), autocommit=True) as db:
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute(f"CREATE UNIQUE INDEX CONCURRENTLY one_type ON {schema}.memory (tenant, memory_type)")
        state, detail = unusual(mem)["index one_type"]
        assert state == "fail"
        assert "REINDEX INDEX CONCURRENTLY" in detail
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute(f"REINDEX INDEX CONCURRENTLY {schema}.one_type")
        left = {name: said for name, said in unusual(mem).items() if "_ccnew" in name}
        assert next(iter(left.values()))[0] == "fail"
        assert "DROP INDEX CONCURRENTLY" in next(iter(left.values()))[1]
        db.execute(f"DROP INDEX {schema}.one_type, {schema}.one_type_ccnew")
        db.execute(f"DROP INDEX {schema}.edge_entity")
    state, detail = unusual(mem)["index edge_entity"]
    assert state == "fail"
    remedy = checks(mem)["index edge_entity"]["remedy"]
    assert remedy.startswith("CREATE INDEX edge_entity ON")
    with psycopg.connect(pg.shared().dsn("postgres", "twofold"), autocommit=True) as db:
        db.execute(remedy)
    assert unusual(mem) == {}


def test_constraints_that_do_not_hold(mem: AgentMemory) -> None:
    schema = schema_of(mem)
    with psycopg.connect(pg.shared().dsn("postgres", "twofold"), autocommit=True) as db:
        db.execute(f"ALTER TABLE {schema}.memory ADD CONSTRAINT later CHECK (confidence >= 0) NOT VALID")
        assert "VALIDATE CONSTRAINT" in unusual(mem)["constraint later"][1]
        db.execute(f"ALTER TABLE {schema}.memory VALIDATE CONSTRAINT later")
        assert unusual(mem) == {}
        db.execute(f"ALTER TABLE {schema}.interval DROP CONSTRAINT one_value_at_a_time")
    state, detail = unusual(mem)["constraints of interval"]
    assert state == "fail"
    assert "one_value_at_a_time" in detail


@pytest.mark.skipif(not pg.has("vector"), reason="needs a server with the extension vector")
def test_disabled_triggers_and_the_extension_in_use(tmp_path: Path) -> None:
    pg.shared().extend("vector")
    with (
        psycopg.connect(pg.shared().dsn("postgres", "twofold"), autocommit=True) as db,
        AgentMemory(pg.address(tmp_path, mode="pushdown"), embedder="hashing:64") as mem,
    ):
        mem.add("one")
        assert unusual(mem) == {}
        assert "used (mode=pushdown)" in checks(mem)["extension vector"]["detail"]
        db.execute(f"ALTER TABLE {schema_of(mem)}.vector DISABLE TRIGGER ALL")
        assert unusual(mem)["constraints of vector"][0] == "fail"


# Settings


def test_settings_that_lose_commits_or_wait_for_ever(tmp_path: Path, admin: Any) -> None:
    address = pg.address(tmp_path)
    with AgentMemory(f"{address}&statement_timeout=0", embedder=None) as mem:
        assert unusual(mem)["timeouts"][0] == "warn"
        admin.execute(f"ALTER ROLE {pg.ROLE} SET synchronous_commit = off")
        admin.execute(f"ALTER ROLE {pg.ROLE} SET default_transaction_read_only = on")
        try:
            detail = checks(mem)["durability"]["detail"]
        finally:
            admin.execute(f"ALTER ROLE {pg.ROLE} RESET ALL")
    assert "synchronous_commit is off" in detail
    assert "default_transaction_read_only" in detail


def test_what_is_off_the_machine_must_be_encrypted(mem: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no second machine here: loopback is taken for another network."""
    assert "does not leave this machine" in checks(mem)["encryption"]["detail"]
    monkeypatch.setattr(postgres_doctor, "_here", lambda address: False)
    assert unusual(mem)["encryption"][0] == "fail"


# Replication


@pytest.fixture(scope="module")
def pair() -> Iterator[pg.Pair]:
    servers = pg.Pair(fsync="on")
    yield servers
    servers.remove()


def settled(mem: AgentMemory, name: str, wanted: str) -> dict[str, Any]:
    until = time.monotonic() + 20
    while (found := checks(mem)[name])["state"] != wanted:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def test_standbys_and_how_far_they_are_behind(pair: pg.Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{pair.primary.dsn()}?schema=lagging"
    with AgentMemory(url, embedder="hashing:64", replica=pair.standby.dsn(), max_lag=2) as mem:
        mem.add("seen by both")
        assert settled(mem, "durability", "ok")
        assert "may not see" in settled(mem, "replication", "warn")["detail"]
        pair.on(pair.primary, f"GRANT pg_read_all_stats TO {pg.ROLE}")
        assert "reader streaming (async)" in settled(mem, "replication", "ok")["detail"]
        assert ": 0 events behind (2 allowed)" in settled(mem, "replica", "ok")["detail"]

        pair.pause()
        mem.add_many([f"not yet seen {i}" for i in range(20)])
        monkeypatch.setattr(postgres_doctor, "BEHIND", (1_000, 30.0))
        found = settled(mem, "replication", "warn")
        behind = int(found["detail"].partition("(async), ")[2].partition(" bytes")[0].replace(",", ""))
        assert behind > 1_000
        found = settled(mem, "replica", "warn")
        assert "20 events behind (2 allowed)" in found["detail"]
        assert "pg_wal_replay_resume" in found["remedy"]
        pair.resume()
        settled(mem, "replica", "ok")

    pair.on(pair.primary, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    pair.on(pair.primary, "SELECT pg_reload_conf()")
    try:
        store: Any = open_store(url)
        found = {one.name: one for one in store.examine("default", lambda: 0)}
        store.close()
        assert found["replication"].state == "fail"
        assert "nobody" in found["replication"].detail
    finally:
        pair.on(pair.primary, "ALTER SYSTEM RESET synchronous_standby_names")
        pair.on(pair.primary, "SELECT pg_reload_conf()")


def test_a_store_on_a_standby_and_a_replica_that_is_away(pair: pg.Pair) -> None:
    with AgentMemory(f"{pair.primary.dsn()}?schema=away", embedder=None) as mem:
        mem.add("one")
    pair.caught_up()
    store: Any = open_store(f"{pair.standby.dsn()}?schema=away")
    found = {one.name: one for one in store.examine("default", lambda: 0)}
    store.close()
    assert found["replication"].state == "fail"
    assert "standby" in found["replication"].detail
    nowhere = f"postgresql://{pg.ROLE}@127.0.0.1:{pg.free_port()}/twofold"
    with AgentMemory(f"{pair.primary.dsn()}?schema=away", embedder=None, replica=nowhere) as mem:
        assert checks(mem)["replica"]["state"] == "fail"


# What is printed


def test_the_command_prints_each_check_and_its_remedy(tmp_path: Path) -> None:
    url = pg.address(tmp_path)
    said = CliRunner().invoke(main, ["doctor", "--store", url, "--embedder", "none"])
    assert "[ok] row-level security: " in said.stdout
    assert "[warn] role: " in said.stdout
    assert "[FAILED] durability: " in said.stdout
    assert "    remedy: set fsync = on" in said.stdout
    assert said.exit_code == 1


SECRETS = ("S3cr%et#1", "s3cr+et", "p@ss:w0rd")


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_of_the_address_is_shown(tmp_path: Path, secret: str) -> None:
    from urllib.parse import quote

    good = pg.address(tmp_path).replace(f"{pg.ROLE}@", f"{pg.ROLE}:{quote(secret, safe='')}@")
    away = good.replace(f":{pg.shared().port}/", f":{pg.free_port()}/")
    for url in (good, away, f"{good}&sslpassword={quote(secret, safe='')}", f"{good}&nonsense=1"):
        for more in ([], ["--json"]):
            said = CliRunner().invoke(main, ["doctor", "--store", url, "--embedder", "none", *more])
            assert "checks" in said.stdout or "[" in said.stdout
            for text in (secret, quote(secret, safe=""), quote(secret)):
                assert text not in said.output + str(said.exception)


@pytest.mark.parametrize("netloc", ["me:pa%ss@h", "me:pa/ss@h", "me:pa#ss@h", "me:pa?ss=x@h", "me:[pass@h"])
def test_a_password_that_is_not_encoded_is_not_shown_by_the_refusal(netloc: str) -> None:
    url = f"postgresql://{netloc}:1/db"
    with pytest.raises((InvalidInput, StoreError)) as refused:
        open_store(url, timeout=0.1)
    for piece in ("pa%ss", "pa/ss", "pa#ss", "pa?ss", "[pass", "me:pa"):
        assert piece not in str(refused.value)
    with contextlib.suppress(InvalidInput):
        assert "pa" not in split_url(url)[2]
