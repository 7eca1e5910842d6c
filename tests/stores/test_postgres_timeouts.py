"""Servers that stop answering, locks that somebody holds, sessions that the server ends: no hang, nothing lost."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold import AgentMemory
from twofold.cli import main
from twofold.errors import StoreBusy, StoreError
from twofold.stores import open_store, postgres, postgres_replica
from twofold.testing import TENANT, add, assert_sound, sample_batch, sample_vectors

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))
LIMITS = {"statement_timeout": "1", "connect_timeout": "2"}


@pytest.fixture(scope="module")
def server() -> Iterator[pg.Server]:
    """A server of its own, which may be stopped while others go on using the shared one."""
    own = pg.Server({"wal_level": "replica"}).create()
    own.extend("vector")
    yield own
    own.remove()


@pytest.fixture
def admin() -> Iterator[Any]:
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        yield db


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "GRACE", 0.5)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@contextlib.contextmanager
def paused(server: pg.Server) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


# A server that stops answering


@pytest.mark.parametrize("mode", ["local", "pushdown"])
def test_a_stopped_server_fails_calls_in_time_and_is_found_again(
    server: pg.Server, tmp_path: Path, mode: str
) -> None:
    if mode == "pushdown" and not pg.has("vector"):
        pytest.skip("needs a server with the extension vector")
    url = pg.address(tmp_path, server=server, mode=mode, **LIMITS)
    with AgentMemory(url, embedder="hashing:64", busy_timeout=1.0) as mem:
        mem.add("a heron by the river")
        assert len(mem.recall("heron", promote=False)) == 1
        with paused(server):
            with within(8), pytest.raises(StoreError, match=r"said nothing for 1\.5 s.*statement_timeout"):
                mem.recall("heron", promote=False)
            with within(8), pytest.raises(StoreError, match="is the server running"):
                mem.recall("heron", promote=False)
            with within(8), pytest.raises(StoreError):
                mem.add("not to be had")
        assert [hit.content for hit in mem.recall("heron", promote=False)] == ["a heron by the river"]
        mem.add("another heron")
        assert len(mem.recall("heron", promote=False)) == 2
        assert mem.verify().ok


def test_the_doctor_says_that_a_stopped_server_does_not_answer(server: pg.Server, tmp_path: Path) -> None:
    url = pg.address(tmp_path, server=server, **LIMITS)
    with AgentMemory(url, embedder=None, busy_timeout=1.0) as mem:
        mem.add("one")
        with paused(server), within(20):
            body = mem.doctor()
            said = CliRunner().invoke(main, ["doctor", "--store", url, "--embedder", "none", "--json"])
        told = {one["name"]: one for one in body["checks"]}
        assert told["store"]["state"] == told["connection"]["state"] == "fail"
        assert said.exit_code == 1
        told = {one["name"]: one for one in json.loads(said.stdout)["checks"]}
        assert told["open"]["state"] == told["connection"]["state"] == "fail"
        assert "reachable" in told["connection"]["remedy"]
        assert "connection" not in {one["name"] for one in mem.doctor()["checks"]}


def test_a_server_that_is_slow_but_alive_is_waited_for(server: pg.Server, tmp_path: Path) -> None:
    """What takes longer than the limit, but says so, and what is back before it."""
    store: Any = open_store(pg.address(tmp_path, server=server, **LIMITS), timeout=5)
    add(store, "one")

    def slowly(db: Any) -> list[Any]:
        with db.pipeline():
            cursors = [db.execute("SELECT pg_sleep(0.4), repeat('x', 100000)") for _ in range(6)]
            return [cursor.fetchall() for cursor in cursors]

    with within(10):
        assert len(store._retried("wait", slowly)) == 6
    timer = threading.Timer(0.8, server.resume)
    server.pause()
    timer.start()
    with within(5):
        assert store.head(TENANT).rows == 1
    timer.join()
    store.close()


def test_a_commit_that_is_not_answered_is_said_to_be_open(server: pg.Server, tmp_path: Path) -> None:
    store: Any = open_store(pg.address(tmp_path, server=server, **LIMITS), timeout=1.0)
    add(store, "zero")

    def unanswered() -> None:
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["one"]))
            server.pause()

    try:
        with (
            within(12),
            pytest.raises(StoreError, match="whether it committed can be told from the log") as said,
        ):
            unanswered()
        assert not isinstance(said.value, StoreBusy), "who is told to try again would write it twice"
    finally:
        server.resume()
    with store.transaction(TENANT) as tx:  # the lock is had when the lost session is over
        rows = tx.head.rows
        tx.apply(sample_batch(tx.head, ["two"]))
    contents = [row.content for row in store.rows(TENANT, range(rows + 1))]
    assert contents in (["zero", "one", "two"], ["zero", "two"])
    assert_sound(store, TENANT)
    store.close()


def test_making_an_index_may_take_its_time(server: pg.Server, tmp_path: Path) -> None:
    if not pg.has("vector"):
        pytest.skip("needs a server with the extension vector")
    store: Any = open_store(pg.address(tmp_path, server=server, mode="pushdown", **LIMITS), timeout=20)
    add(store, "one", "two")
    with psycopg.connect(server.dsn()) as db:
        db.execute(f'LOCK TABLE "{store._schema}".embedding IN SHARE ROW EXCLUSIVE MODE')
        timer = threading.Timer(2.5, db.rollback)
        timer.start()
        store.create_vector_index(8)
        timer.join()
    store.close()


def test_a_replica_that_stops_answering_is_left_for_the_primary(
    server: pg.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_replica, "SILENT", 1.0)
    url = pg.address(tmp_path, server=server)
    standby = server.standby("stopping")
    try:
        with AgentMemory(url, embedder="hashing:64", replica=standby.dsn(), max_lag=-1) as mem:
            mem.add("a heron by the river")
            until = time.monotonic() + 20
            while mem.stats()["replica"]["served"]["replica"] == 0:
                assert len(mem.recall("heron", promote=False)) == 1
                assert time.monotonic() < until
            with paused(standby), within(8):
                assert len(mem.recall("heron", promote=False)) == 1
                why = mem.stats()["replica"]["why"]
                assert "said nothing" in why or "timeout expired" in why
    finally:
        standby.remove()


def test_a_cut_line_is_found_by_keepalives(tmp_path: Path) -> None:
    """The options as the system has them for a connection of the store."""
    store: Any = open_store(pg.address(tmp_path))
    with store._lent("read") as db, socket.socket(fileno=os.dup(db.fileno())) as line:
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 5
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
        assert line.getsockopt(socket.IPPROTO_TCP, 18) == 30_000  # TCP_USER_TIMEOUT
    store.close()


# Locks


@pytest.mark.parametrize(
    "lock", ["LOCK TABLE {}.event IN ACCESS EXCLUSIVE MODE", "UPDATE {}.head SET seq = seq"]
)
def test_a_lock_that_somebody_holds_is_waited_for_and_then_reported(
    tmp_path: Path, admin: Any, lock: str
) -> None:
    with AgentMemory(pg.address(tmp_path), embedder="hashing:64", busy_timeout=0.5) as mem:
        first = mem.add("one")
        store: Any = mem._vault.store
        with psycopg.connect(pg.shared().dsn("postgres", "twofold")) as other:
            other.execute(lock.format(f'"{store._schema}"'))
            with within(5), pytest.raises(StoreBusy, match="longer timeout"):
                mem.add("two")
        mem.add("three")
        assert [m.content for m in mem.search()] in (["one", "three"], ["three", "one"])
        assert mem.get(first.id) is not None
        assert mem.verify().ok


def test_a_reader_that_meets_a_lock_is_told_in_time(tmp_path: Path) -> None:
    store: Any = open_store(pg.address(tmp_path, **LIMITS), timeout=0.5)
    add(store, "one")
    for table, said in (("memory", "statement timeout"), ("head", "pg_locks")):
        with psycopg.connect(pg.shared().dsn("postgres", "twofold")) as other:
            other.execute(f'LOCK TABLE "{store._schema}".{table} IN ACCESS EXCLUSIVE MODE')
            with within(5), pytest.raises(StoreError, match=said):
                store.rows(TENANT, [0]) if table == "memory" else store.head(TENANT)
    assert store.head(TENANT).rows == 1
    store.close()


# Sessions that the server ends


def test_idle_connections_that_the_server_ended_are_replaced(tmp_path: Path, admin: Any) -> None:
    admin.execute(f"ALTER ROLE {pg.ROLE} SET idle_session_timeout = '150ms'")
    try:
        with AgentMemory(pg.address(tmp_path), embedder="hashing:64") as mem:
            store: Any = mem._vault.store
            ended = 0
            for i in range(40):
                mem.add(f"note {i}")
                pids = [db.info.backend_pid for db in store._idle]
                assert pids
                time.sleep(0.3)
                left = admin.execute(
                    "SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s)", (pids,)
                ).fetchall()
                ended += len(pids) - len(left)  # the server does not keep to it on every machine
                assert len(mem.recall("note", k=50, promote=False)) == i + 1
                if ended >= 2:
                    break
            assert ended >= 2
            assert mem.verify().ok
    finally:
        admin.execute(f"ALTER ROLE {pg.ROLE} RESET idle_session_timeout")


def test_a_transaction_that_idled_too_long_is_done_again(tmp_path: Path) -> None:
    store: Any = open_store(pg.address(tmp_path, **LIMITS))
    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["one"]))
        time.sleep(1.4)
        tx.apply(sample_batch(tx.head, ["two"]))
    assert [row.content for row in store.rows(TENANT, [0, 1])] == ["one", "two"]
    assert_sound(store, TENANT)
    store.close()


def end_sessions(admin: Any) -> None:
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (pg.ROLE,))


def test_a_session_that_ends_while_a_lost_commit_is_looked_for(
    tmp_path: Path, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = open_store(pg.address(tmp_path))
    looked: list[int] = []
    has = postgres._Writing._has

    def ended(self: Any, wanted: Any) -> bool:
        looked.append(wanted.seq)
        if len(looked) < 3:
            end_sessions(admin)
        return has(self, wanted)

    monkeypatch.setattr(postgres._Writing, "_has", ended)
    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["one"]))
        end_sessions(admin)
    assert looked == [1, 1, 1]
    assert store.head(TENANT).rows == 1
    assert_sound(store, TENANT)
    store.close()


@pytest.mark.skipif(not pg.has("vector"), reason="needs a server with the extension vector")
def test_a_session_that_ends_while_the_searched_tables_are_made(
    tmp_path: Path, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of it, and before its commit: what was not committed is made again, and nothing is reported."""
    pg.shared().extend("vector")
    with contextlib.closing(open_store(pg.address(tmp_path))) as plain:
        add(plain, *(f"text {n}" for n in range(50)))
    asked: list[str] = []
    identity, vectors = postgres.identity, postgres.pushed.packed

    def ended(*args: Any) -> Any:
        asked.append("identity")
        if asked.count("identity") == 1:
            end_sessions(admin)
        return identity(*args)

    def ended_early(values: Any) -> Any:
        asked.append("vector")
        if asked.count("vector") == 20:
            end_sessions(admin)
        return vectors(values)

    monkeypatch.setattr(postgres, "identity", ended)
    monkeypatch.setattr(postgres.pushed, "packed", ended_early)
    store: Any = open_store(pg.address(tmp_path, mode="pushdown"))
    assert sorted(store.nearest(TENANT, 1, sample_vectors("text 7")[0], 60)) == list(range(50))
    assert store.postings(TENANT, ["text 7"])[0][0].tolist() == [7]
    assert asked.count("vector") > 70
    assert_sound(store, TENANT)
    store.close()


def test_sessions_ended_all_the_time_lose_and_double_nothing(tmp_path: Path, admin: Any) -> None:
    """Every session of the store is ended again and again while it writes and reads: no error, each write once."""
    stop = threading.Event()
    ended = 0
    mode = {"mode": "pushdown"} if pg.has("vector") else {}
    pg.shared().extend("vector")

    def end() -> None:
        nonlocal ended
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            while not stop.wait(0.05):
                ended += len(db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                                        "application_name = 'ended'").fetchall())  # fmt: skip

    with AgentMemory(pg.address(tmp_path, application_name="ended", **mode), embedder="hashing:64") as mem:
        killer = threading.Thread(target=end)
        killer.start()
        try:
            made: list[str] = []
            while len(made) < 30 or (
                ended < 10 and len(made) < 2000
            ):  # a quick machine writes 30 between two ends
                i = len(made)
                made.append(mem.add(f"note {i} of the order service", entities=["order service"]).id)
                assert len(mem.recall(f"note {i}", k=3, promote=i % 5 == 0)) == min(3, i + 1)
        finally:
            stop.set()
            killer.join()
        assert ended >= 10
        assert sorted(m.id for m in mem.search(limit=len(made) + 1)) == sorted(made)
        assert mem.verify().ok
        assert mem.health()["healthy"], mem.health()
