"""PostgreSQL alone: row-level security, lost servers and connections, forks, formats, scrubbing."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold.errors import InvalidInput, StoreBusy, StoreCorrupt, StoreError, StoreTooNew
from twofold.model import Batch, Kind
from twofold.stores import open_store, postgres_schema
from twofold.stores.postgres import PostgresStore, split_url
from twofold.testing import (
    TENANT,
    add,
    assert_sound,
    history,
    in_thread,
    sample_batch,
    sample_erasure,
    sample_event,
    snapshot,
)

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    opened = open_store(pg.address(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def admin() -> Iterator[Any]:
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        yield db


def terminate(admin: Any) -> int:
    """End every session of the tests' role; how many there were."""
    return len(
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (pg.ROLE,)
        ).fetchall()
    )


# Row-level security


def test_every_table_is_under_the_policy_and_every_index_leads_with_the_tenant(
    store: PostgresStore, admin: Any
) -> None:
    tables = admin.execute(
        """SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,
             (SELECT count(*) FROM pg_policies p WHERE p.schemaname = n.nspname AND p.tablename = c.relname)
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = %s AND c.relkind IN ('r', 'p') ORDER BY 1""",
        (store._schema,),
    ).fetchall()
    assert {name for name, *_ in tables} == {*postgres_schema.TENANT_TABLES, "format"}
    for name, enabled, forced, policies in tables:
        if name != "format":
            assert (enabled, forced, policies) == (True, True, 1), name
    for name, method, first in admin.execute(
        """SELECT i.indexrelid::regclass::text, am.amname, a.attname FROM pg_index i
           JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
           JOIN pg_namespace n ON n.oid = c.relnamespace
           LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
           WHERE n.nspname = %s""",
        (store._schema,),
    ):
        # The exclusion constraint's own key is a hash that the tenant is part of.
        assert first == "tenant" or (method == "gist" and "one_value_at_a_time" in name), name


def test_without_a_tenant_nothing_is_seen_and_with_one_only_its_own(store: PostgresStore) -> None:
    for tenant in ("a", "b", ""):
        history(store, tenant)
        add(store, "with an edge", tenant=tenant, entities=("planner",))
    rows = {tenant: store.head(tenant).rows for tenant in ("a", "b", "")}
    with psycopg.connect(pg.shared().dsn(), autocommit=True) as db:
        tables = [f'"{store._schema}".{name}' for name in postgres_schema.TENANT_TABLES]
        for _ in range(2):  # the second time after a transaction that had set a tenant
            for table in tables:
                assert db.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)], table
            for tenant, count in rows.items():
                with db.transaction():
                    db.execute(postgres_schema.AS_TENANT, (tenant,))
                    for table in tables:
                        seen = db.execute(f"SELECT DISTINCT tenant FROM {table}").fetchall()
                        assert seen == [(tenant,)], table
                    assert db.execute(f"SELECT count(*) FROM {tables[2]}").fetchall() == [(count,)]
        for table in tables:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                smuggle(db, table)
            with db.transaction():
                db.execute(postgres_schema.AS_TENANT, ("a",))
                assert db.execute(f"DELETE FROM {table} WHERE tenant = 'b'").rowcount == 0


def smuggle(db: Any, table: str) -> None:
    """As tenant a, insert a copy of one of its rows for tenant c."""
    with db.transaction():
        db.execute(postgres_schema.AS_TENANT, ("a",))
        db.execute(f"CREATE TEMP TABLE copied ON COMMIT DROP AS SELECT * FROM {table} LIMIT 1")
        db.execute("UPDATE copied SET tenant = 'c'")
        columns = [
            name
            for (name,) in db.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'copied'::regclass AND attnum > 0 "
                "AND attname <> 'during'"
            )
        ]
        names = ", ".join(f'"{name}"' for name in columns)
        db.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM copied")


def test_a_role_that_bypasses_the_policy_is_refused(tmp_path: Path) -> None:
    url = pg.address(tmp_path).replace(pg.ROLE, "postgres")
    with pytest.raises(StoreError, match="superuser"):
        open_store(url)
    store = open_store(f"{url}&allow_bypass=1")
    history(store)
    assert_sound(store, "faults")
    store.close()


def test_a_role_that_may_only_use_the_tables(store: PostgresStore, admin: Any, tmp_path: Path) -> None:
    history(store)
    admin.execute("DROP ROLE IF EXISTS runner")
    admin.execute("CREATE ROLE runner LOGIN")
    admin.execute(f'GRANT USAGE ON SCHEMA "{store._schema}" TO runner')
    admin.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{store._schema}" TO runner')
    other = open_store(pg.address(tmp_path).replace(pg.ROLE, "runner"))
    try:
        history(other)
        assert snapshot(other, "faults") == snapshot(store, "faults")
        with pytest.raises(StoreError, match="owner"):
            other.scrub()
        with pytest.raises(StoreError, match="rights"):
            open_store(pg.address(tmp_path / "new").replace(pg.ROLE, "runner"))
    finally:
        other.close()
        admin.execute("DROP OWNED BY runner")
        admin.execute("DROP ROLE runner")


# Addresses


def test_an_address_is_taken_apart() -> None:
    own, dsn, shown = split_url(
        "postgresql://me:s%40cret@one:5432,two:5433/db?schema=x&sslmode=require&password=p&readers=3"
    )
    assert own == {"schema": "x", "readers": "3"}
    assert "target_session_attrs=read-write" in dsn
    assert "sslmode=require" in dsn
    assert "s%40cret" in dsn
    assert "schema" not in dsn
    assert "cret" not in shown
    assert "password" not in shown
    assert shown.startswith("postgresql://me@one:5432,two:5433/db?schema=x")
    assert "target_session_attrs" not in split_url("postgresql://one/db")[1]
    assert "target_session_attrs=any" in split_url("postgresql://a,b/db?target_session_attrs=any")[1]


@pytest.mark.parametrize(
    "query", ["schema=Large", "schema=a%22b", "readers=0", "writers=x", "scrub=never", "prepare=maybe"]
)
def test_a_bad_parameter_is_refused(query: str) -> None:
    with pytest.raises(InvalidInput):
        open_store(f"postgresql://localhost:1/db?{query}")


def test_a_server_that_is_not_there_is_reported_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(StoreError, match="is the server running"):
        open_store(f"postgresql://nobody@127.0.0.1:{pg.free_port()}/db")
    assert time.monotonic() - began < 10


# Formats


def test_a_newer_format_is_refused(store: PostgresStore, admin: Any, tmp_path: Path) -> None:
    admin.execute(f'UPDATE "{store._schema}".format SET version = 99')
    with pytest.raises(StoreTooNew, match="99"):
        open_store(pg.address(tmp_path))


def test_a_schema_of_something_else_is_left_alone(admin: Any, tmp_path: Path) -> None:
    schema = pg.address(tmp_path).rpartition("=")[2]
    admin.execute(f'CREATE SCHEMA "{schema}" CREATE TABLE theirs (n int)')
    admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {pg.ROLE}')
    with pytest.raises(StoreError, match="something else"):
        open_store(pg.address(tmp_path))


def test_many_open_a_new_schema_at_a_time(tmp_path: Path) -> None:
    opened: list[Any] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            opened.append(open_store(pg.address(tmp_path)))
        except BaseException as error:  # noqa: BLE001 -- re-raised below, in the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    for store in opened:
        add(store, "row")
    assert opened[0].head(TENANT).rows == 8
    assert_sound(opened[0], TENANT)
    for store in opened:
        store.close()


# Lost connections


def test_reads_and_writes_go_on_after_the_server_ended_their_sessions(
    store: PostgresStore, admin: Any
) -> None:
    add(store, "one")
    assert terminate(admin)
    assert store.head(TENANT).rows == 1
    assert terminate(admin)
    add(store, "two")
    assert terminate(admin)
    assert len(store.vectors(TENANT, 1)) == 2
    assert_sound(store, TENANT)


@pytest.mark.parametrize("moment", ["begun", "applied", "twice"])
def test_a_transaction_survives_the_loss_of_its_session(
    store: PostgresStore, admin: Any, moment: str
) -> None:
    add(store, "zero")
    with store.transaction(TENANT) as tx:
        if moment == "begun":
            terminate(admin)
        tx.apply(sample_batch(tx.head, ["one", "two"]))
        if moment != "begun":
            terminate(admin)
        assert tx.changes(0).head.rows == 3
        tx.apply(sample_batch(tx.head, ["three"]))
        if moment == "twice":
            terminate(admin)
    assert [row.content for row in store.rows(TENANT, range(4))] == ["zero", "one", "two", "three"]
    assert_sound(store, TENANT)


def test_a_lost_transaction_does_not_overwrite_who_came_first(
    store: PostgresStore, admin: Any, tmp_path: Path
) -> None:
    add(store, "zero")
    other = open_store(pg.address(tmp_path))

    def overtaken() -> None:
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["mine"]))
            terminate(admin)
            in_thread(lambda: add(other, "theirs"))

    with pytest.raises(StoreBusy, match="nothing of this transaction was committed"):
        overtaken()
    assert [row.content for row in store.rows(TENANT, range(2))] == ["zero", "theirs"]
    assert_sound(store, TENANT)
    add(store, "next")
    other.close()


def test_what_the_server_gives_up_is_done_again(store: PostgresStore, admin: Any) -> None:
    """A trigger raises the errors of a deadlock and of a serialisation failure, as often as it is told to."""
    add(store, "zero")
    schema = f'"{store._schema}"'
    admin.execute(f"CREATE SEQUENCE {schema}.tries")
    admin.execute(
        f"""CREATE FUNCTION {schema}.give_up() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
            DECLARE n bigint := nextval('{schema}.tries');
            BEGIN
              IF n % 3 = 1 THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF;
              IF n % 3 = 2 THEN RAISE EXCEPTION 'serialisation' USING ERRCODE = '40001'; END IF;
              RETURN NEW;
            END $$"""
    )
    admin.execute(
        f"CREATE TRIGGER give_up AFTER INSERT ON {schema}.event FOR EACH STATEMENT "
        f"EXECUTE FUNCTION {schema}.give_up()"
    )
    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["one"]))
    assert admin.execute(f"SELECT last_value FROM {schema}.tries").fetchone() == (3,)
    assert_sound(store, TENANT)
    admin.execute(f"ALTER SEQUENCE {schema}.tries INCREMENT BY 3 RESTART WITH 1")

    def hopeless() -> None:
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["two"]))

    with pytest.raises(StoreBusy, match="deadlock"):
        hopeless()
    assert store.head(TENANT).rows == 2


class Wire:
    """A proxy between a client and the server that can cut the line right after a COMMIT went through."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.armed = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.mine: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Any, *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args))
        self._threads[-1].start()

    def close(self) -> None:
        for one in (self._listener, *self._ends):
            _shut(one)
        for thread in self._threads:
            thread.join()
        for one in (self._listener, *self._ends):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            self._ends += [client, server]
            self._start(self._pump, client, server, True)
            self._start(self._pump, server, client, False)

    def _pump(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if to_server and self.armed and b"COMMIT" in data:
                    armed, self.armed = self.armed, ""
                    if armed == "after":
                        target.sendall(data)
                        time.sleep(0.3)  # the server commits, and its answer finds nobody
                    break
                target.sendall(data)
        # Shutting down ends the other direction's recv too.
        _shut(source)
        _shut(target)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_found_out_about(tmp_path: Path, moment: str) -> None:
    """Lost before it reached the server the transaction is done again, lost after it is not done twice."""
    wire = Wire(pg.shared().port)
    store = open_store(pg.address(tmp_path).replace(f":{pg.shared().port}/", f":{wire.mine}/"))
    add(store, "zero")
    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["one", "two"]))
        wire.armed = moment
    assert wire.armed == ""
    assert [row.content for row in store.rows(TENANT, range(store.head(TENANT).rows))] == [
        "zero",
        "one",
        "two",
    ]
    assert_sound(store, TENANT)
    store.close()
    wire.close()


def test_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    server = pg.Server().create()
    try:
        store = open_store(server.dsn())
        add(store, "one")
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["two"]))
            server.kill()
            back = threading.Thread(target=lambda: (time.sleep(0.5), server.start()))
            back.start()
        back.join()
        assert [row.content for row in store.rows(TENANT, range(2))] == ["one", "two"]
        assert_sound(store, TENANT)
        store.close()
    finally:
        server.remove()


# Processes and threads


def test_a_fork_leaves_parent_and_child_working(store: PostgresStore) -> None:
    add(store, "before")
    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["in the parent"]))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(StoreError, match="forked"):
                    tx.apply(Batch())
                assert store.head(TENANT).rows == 1
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            add(store, "in the child")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    add(store, "after")
    contents = [row.content for row in store.rows(TENANT, range(4))]
    assert contents == ["before", "in the parent", "in the child", "after"]
    assert_sound(store, TENANT)


def test_writers_of_different_tenants_do_not_wait_for_each_other(store: PostgresStore) -> None:
    with store.transaction("a") as tx:
        tx.apply(sample_batch(tx.head, ["one"]))
        in_thread(lambda: add(store, "other", tenant="b"))
        assert in_thread(lambda: store.head("b").rows) == 1


def test_more_threads_than_connections_wait_their_turn(tmp_path: Path) -> None:
    store = open_store(pg.address(tmp_path, readers="1", writers="1"))
    threads = [threading.Thread(target=lambda n=n: add(store, "x", tenant=f"t{n % 3}")) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.head(f"t{n}").rows for n in range(3)] == [4, 4, 4]
    store.close()


def test_connections_in_use_are_said_to_be(tmp_path: Path) -> None:
    store = open_store(pg.address(tmp_path, writers="1"), timeout=0.1)
    with store.transaction("a"), pytest.raises(StoreBusy, match="writers="):
        in_thread(lambda: add(store, "x", tenant="b"))
    store.close()


# Keeping


def test_an_older_snapshot_keeps_scrub_waiting(tmp_path: Path) -> None:
    store = open_store(pg.address(tmp_path), timeout=0.3)
    add(store, "secret")
    with psycopg.connect(pg.shared().dsn()) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT 1")
        with store.transaction(TENANT) as tx:
            tx.apply(sample_erasure(tx.head, store.rows(TENANT, [0])))
        with pytest.raises(StoreBusy, match="scrub again"):
            store.scrub()
    store.scrub()
    store.close()


def test_a_full_scrub_leaves_nothing_in_the_table_files(tmp_path: Path, admin: Any) -> None:
    store: Any = open_store(pg.address(tmp_path, scrub="full"))
    mark = "Xyzzy-7-marker-of-the-secret"
    add(store, mark, "kept")
    admin.execute("CHECKPOINT")

    def files() -> list[Path]:
        names = admin.execute(
            "SELECT pg_relation_filepath(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND pg_relation_filepath(c.oid) IS NOT NULL",
            (store._schema,),
        ).fetchall()
        return [pg.shared().data / name for (name,) in names]

    assert any(mark.encode() in file.read_bytes() for file in files()), "the test would prove nothing"
    with store.transaction(TENANT) as tx:
        tx.apply(sample_erasure(tx.head, store.rows(TENANT, [0])))
    store.scrub()
    admin.execute("CHECKPOINT")
    assert not [file for file in files() if mark.encode() in file.read_bytes()]
    assert_sound(store, TENANT)
    store.close()


def test_what_the_server_calls_damage_is_damage(store: PostgresStore, admin: Any) -> None:
    add(store, "one")
    admin.execute(
        f"""CREATE OR REPLACE FUNCTION "{store._schema}".head_of(of_tenant text)
            RETURNS TABLE (seq bigint, "rows" bigint, recorded_at bigint, hash bytea) LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END $$"""
    )
    with pytest.raises(StoreCorrupt, match="invalid page"):
        store.head(TENANT)


def test_check_finds_a_wrong_interval(store: PostgresStore, admin: Any) -> None:
    add(store, "zero", "one", key=str)
    assert store.check(TENANT) == []
    admin.execute(f'UPDATE "{store._schema}".interval SET valid_to = 5 WHERE ordinal = 1')
    assert "interval of row 1" in " ".join(store.check(TENANT))


def test_check_finds_a_row_erased_by_another_event(store: PostgresStore, admin: Any) -> None:
    add(store, "zero", "one")
    with store.transaction(TENANT) as tx:
        tx.apply(sample_erasure(tx.head, store.rows(TENANT, [1])))
    assert store.check(TENANT) == []
    admin.execute(f'UPDATE "{store._schema}".memory SET erased = 1 WHERE ordinal = 1')
    assert "row 1 is said to be erased by event 1" in " ".join(store.check(TENANT))


def test_a_second_value_of_a_key_at_the_same_time_is_refused(store: PostgresStore) -> None:
    """What a writer above the store must not do; the database objects even if it does."""
    add(store, "zero", key="k", visibility="public")
    for fields, refused in (
        ({"key": "k", "visibility": "public"}, True),
        ({"key": "other", "visibility": "public"}, False),
        ({"key": "k", "visibility": "private"}, False),
        ({"key": "k", "visibility": "public", "namespace": "elsewhere"}, False),
    ):
        before = store.head(TENANT)
        if refused:
            with pytest.raises(StoreError, match="same time"):
                add(store, f"{fields}", **fields)
            assert store.head(TENANT) == before
        else:
            add(store, f"{fields}", **fields)
    with store.transaction(
        TENANT
    ) as tx:  # the rule is about one moment: the first ends where the next begins
        end = sample_event(tx.head, Kind.SUPERSEDE, payload={"at": 2**60}, ordinal=0)
        tx.apply(Batch(events=[end]))
        tx.apply(sample_batch(tx.head, ["later"], key="k", visibility="public", valid_from=2**60))
    assert_sound(store, TENANT)


def test_an_event_of_another_kind_does_not_disturb_the_intervals(store: PostgresStore) -> None:
    add(store, "zero", key="k", visibility="public")
    with store.transaction(TENANT) as tx:
        for kind in Kind:
            if kind not in (Kind.ADD, Kind.UPDATE):
                tx.apply(Batch(events=[sample_event(tx.head, kind, ordinal=0)]))
    assert store.head(TENANT).seq == 1 + len(Kind) - 2
