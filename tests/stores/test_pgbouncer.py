"""The store behind a real pgbouncer that pools transactions: nothing may live on a connection between two of them.

Debian's pgbouncer 1.18 does not track prepared statements, so the address says prepare=0.
"""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold import AgentMemory
from twofold.errors import StoreBusy
from twofold.stores import Store, open_store
from twofold.stores.postgres import PostgresStore
from twofold.testing import StoreConformance, history

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")

pytestmark = [
    pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not())),
    pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer here (apt-get install pgbouncer)"),
]

SERVERS = 4  # connections to the server; the tests have many more clients


class Bouncer:
    """One pgbouncer in front of the shared server."""

    def __init__(self) -> None:
        self.port = pg.free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="twofold-pgbouncer-"))
        self.folder.chmod(0o755)
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"""[databases]
twofold = host=127.0.0.1 port={pg.shared().port} dbname=twofold
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self.folder / "users"}
admin_users = postgres
pool_mode = transaction
max_client_conn = 500
default_pool_size = {SERVERS}
"""
        )
        (self.folder / "users").write_text(f'"{pg.ROLE}" ""\n"postgres" ""\n')
        command = [str(PGBOUNCER), str(settings)]
        user = pg._user()
        if os.geteuid() == 0 and user is not None:
            command = ["runuser", "-u", user, "--", *command]
        self.log = (self.folder / "log").open("w+")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, cwd="/", start_new_session=True
        )
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < until, self.said()
                assert self.process.poll() is None, self.said()
                time.sleep(0.05)

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()[-3000:]

    def console(self, command: str) -> list[Any]:
        # Its console knows the simple protocol only.
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/pgbouncer",
            autocommit=True,
            cursor_factory=psycopg.ClientCursor,
        ) as db:
            found: list[Any] = db.execute(command).fetchall()
            return found

    def remove(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)  # our own session: runuser and what it started
        self.process.wait(20)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def bouncer() -> Bouncer:
    made = Bouncer()
    owner = os.getpid()
    atexit.register(lambda: made.remove() if os.getpid() == owner else None)
    return made


def address(location: Path, **parameters: str) -> str:
    direct = pg.address(location, prepare="0", **parameters)
    return direct.replace(f":{pg.shared().port}/", f":{bouncer().port}/")


class TestBehindPgbouncer(StoreConformance):
    copies = False

    def address(self, location: Path) -> str:
        return address(location)

    def damage(self, store: Store, tenant: str) -> None:
        assert isinstance(store, PostgresStore)
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            db.execute(f'DELETE FROM "{store._schema}".memory WHERE tenant = %s AND ordinal = 1', (tenant,))


def test_it_really_pools_transactions(tmp_path: Path) -> None:
    store = open_store(address(tmp_path))
    history(store)
    settings = {row[0]: row[1] for row in bouncer().console("SHOW CONFIG")}
    assert settings["pool_mode"] == "transaction"
    with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
        ((count,),) = db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND client_port IS NOT NULL "
            "AND application_name = 'twofold'",
            (pg.ROLE,),
        ).fetchall()
    assert 0 < count <= SERVERS
    store.close()


def test_nothing_stays_on_a_pooled_connection(tmp_path: Path) -> None:
    """After reads, writes, an opening and refusals, every session of the server is as it was made."""
    store = open_store(address(tmp_path), timeout=0.2)
    history(store)
    other = open_store(address(tmp_path), timeout=0.2)
    with store.transaction("a"), pytest.raises(StoreBusy, match="another writer"):
        other.transaction("a").__enter__()
    other.close()
    names = ("twofold.tenant", "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    dsn = f"postgresql://{pg.ROLE}@127.0.0.1:{bouncer().port}/twofold"
    seen = set()
    held = [
        psycopg.connect(dsn, prepare_threshold=None) for _ in range(SERVERS)
    ]  # each has one of the pool's
    for db in held:
        values = [db.execute("SELECT current_setting(%s, true)", (name,)).fetchone()[0] for name in names]
        assert values == [values[0], "0", "0", "0"]
        assert values[0] in (None, "")
        assert db.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
        seen.add(db.execute("SELECT pg_backend_pid()").fetchone()[0])
    assert len(seen) == SERVERS
    for db in held:
        db.close()
    store.close()


WORKER = """
import sys
from twofold import AgentMemory
address, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with AgentMemory(address, embedder="hashing:64") as mem:
    for i in range(count):
        print(mem.add(f"{name} note {i} of the order service", key=f"{name}.{i % 3}").id)
        if i % 4 == 0:
            assert len(mem.recall(f"{name} note {i}", k=3)) > 0
"""


def test_processes_and_threads_add_through_it(tmp_path: Path) -> None:
    """More writers than pooled connections: each waits its turn, and nothing acknowledged is missing."""
    where = address(tmp_path)
    with AgentMemory(where, embedder="hashing:64") as mem:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, where, f"p{n}", "12"], stdout=subprocess.PIPE, text=True
            )
            for n in range(6)
        ]
        made: list[str] = []
        threads = [
            threading.Thread(
                target=lambda n=n: made.extend(mem.add(f"thread {n} note {i}").id for i in range(8))
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for process in processes:
            made += process.communicate(timeout=120)[0].split()
            assert process.returncode == 0
        assert len(set(made)) == 6 * 12 + 4 * 8
        stored = {m.id for m in mem.search(limit=None, include_superseded=True)}
        assert set(made) <= stored
        assert mem.verify().ok
        assert mem.health()["healthy"], mem.health()


def test_a_notice_goes_through_it_and_is_heard_beside_it(tmp_path: Path) -> None:
    """NOTIFY is one statement, so it may be pooled; LISTEN is a session's, so it needs the direct address."""
    direct = pg.address(tmp_path)
    with AgentMemory(direct, embedder="hashing:64", follow="listen", follow_interval=60.0) as mem:
        follower = mem._vault.follower
        assert follower is not None
        until = time.monotonic() + 20
        while not follower.rounds:
            assert time.monotonic() < until
            time.sleep(0.01)
        with AgentMemory(address(tmp_path, notify="1"), embedder="hashing:64") as other:
            other.add("through the pool")
        while not follower.notices:
            assert time.monotonic() < until, follower.state()
            time.sleep(0.01)
