"""What one process commits is in the view of another before that is asked anything: by notices, and by polling."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold import AgentMemory
from twofold.errors import InvalidInput
from twofold.stores import postgres_feed as feed

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))

WRITER = """
import sys
from twofold import AgentMemory
with AgentMemory(sys.argv[1], embedder="hashing:64") as mem:
    mem.add_many([f"foreign note {i} {sys.argv[3]}" for i in range(int(sys.argv[2]))])
"""


def write_elsewhere(address: str, count: int) -> None:
    subprocess.run(
        [sys.executable, "-c", WRITER, address, str(count), os.urandom(4).hex()], check=True, timeout=60
    )


def seq(mem: AgentMemory) -> int:
    """Up to where the view in RAM is, without asking for more."""
    return mem._vault._indexes[mem.tenant].seq


def reaches(mem: AgentMemory, wanted: int, seconds: float) -> float:
    """How long the view took to get there."""
    start = time.monotonic()
    while seq(mem) < wanted:
        assert time.monotonic() - start < seconds, (seq(mem), wanted, state(mem))
        time.sleep(0.01)
    return time.monotonic() - start


def state(mem: AgentMemory) -> dict[str, Any]:
    assert mem._vault.follower is not None
    return mem._vault.follower.state()


def settled(mem: AgentMemory) -> None:
    until = time.monotonic() + 20
    while not state(mem)["rounds"]:
        assert time.monotonic() < until, state(mem)
        time.sleep(0.01)


def test_another_process_is_followed_by_its_notices(tmp_path: Path) -> None:
    address = pg.address(tmp_path, notify="1")
    with AgentMemory(address, embedder="hashing:64", follow="listen", follow_interval=60.0) as mem:
        mem.add("ours")
        settled(mem)
        write_elsewhere(address, 30)
        head = mem._vault.store.head("default").seq
        reaches(mem, head, 5.0)  # long before the interval is over
        assert state(mem)["notices"] >= 1
        assert mem.health()["healthy"], mem.health()
        assert {c["name"] for c in mem.health()["checks"]} >= {"follower"}
        assert len(mem.recall("foreign note", k=50)) == 31
    assert not [t for t in threading.enumerate() if t.name == "twofold-follower"]


@pytest.mark.parametrize("where", ["postgresql", "sqlite"])
def test_another_process_is_followed_by_polling(tmp_path: Path, where: str) -> None:
    address = pg.address(tmp_path) if where == "postgresql" else str(tmp_path / "store")
    with AgentMemory(address, embedder="hashing:64", follow="poll", follow_interval=0.05) as mem:
        settled(mem)
        write_elsewhere(address, 30)
        reaches(mem, mem._vault.store.head("default").seq, 10.0)
        assert state(mem)["notices"] == 0


def test_without_notices_the_interval_holds(tmp_path: Path) -> None:
    """A writer that does not notify: the listener finds out when the interval is over."""
    silent = pg.address(tmp_path)
    with AgentMemory(silent, embedder="hashing:64", follow="listen", follow_interval=0.2) as mem:
        settled(mem)
        write_elsewhere(silent, 5)
        reaches(mem, mem._vault.store.head("default").seq, 10.0)
        assert state(mem)["notices"] == 0


def test_a_lost_connection_is_made_again(tmp_path: Path) -> None:
    address = pg.address(tmp_path, notify="1")
    with AgentMemory(address, embedder="hashing:64", follow="listen", follow_interval=0.5) as mem:
        settled(mem)
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            ended = db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN twofold%'"
            ).fetchall()
        assert ended
        write_elsewhere(address, 5)
        reaches(mem, mem._vault.store.head("default").seq, 10.0)
        mem._vault.follower.interval = 60.0  # type: ignore[union-attr]
        time.sleep(0.6)
        heard = state(mem)["notices"]
        write_elsewhere(address, 5)
        reaches(mem, mem._vault.store.head("default").seq, 10.0)
        assert state(mem)["notices"] > heard
        assert state(mem)["problem"] == ""


def test_a_notice_does_not_name_the_tenant(tmp_path: Path) -> None:
    address = pg.address(tmp_path, notify="1")
    with AgentMemory(address, tenant="acme", embedder="hashing:64") as mem:
        schema = mem._vault.store._schema  # type: ignore[attr-defined]
        with psycopg.connect(pg.shared().dsn(), autocommit=True) as db:
            db.execute(f"LISTEN {feed.channel(schema)}")
            mem.add("secret")
            heard = list(db.notifies(timeout=5, stop_after=1))
    assert [one.payload for one in heard] == [feed.payload(schema, "acme")]
    assert "acme" not in heard[0].payload
    assert feed.payload(schema, "acme") != feed.payload("other", "acme")


def test_a_follower_ends_with_its_vault(tmp_path: Path) -> None:
    mem = AgentMemory(str(tmp_path), embedder=None, follow="poll", follow_interval=30.0)
    settled(mem)
    thread = mem._vault.follower._thread  # type: ignore[union-attr]
    del mem
    gc.collect()
    thread.join(5.0)
    assert not thread.is_alive()


def test_a_forked_child_works_without_its_parents_follower(tmp_path: Path) -> None:
    address = pg.address(tmp_path, notify="1")
    with AgentMemory(address, embedder="hashing:64", follow="listen", follow_interval=30.0) as mem:
        mem.add("before")
        settled(mem)
        child = os.fork()
        if not child:
            code = 1
            try:
                mem.add("by the child")
                mem.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        reaches(mem, mem._vault.store.head("default").seq, 5.0)
        assert state(mem)["problem"] == ""


def test_only_a_server_notifies(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="use follow='poll'"):
        AgentMemory(str(tmp_path), embedder=None, follow="listen")
    with pytest.raises(InvalidInput, match="follow must be one of off, poll, listen"):
        AgentMemory(str(tmp_path), embedder=None, follow="yes")
