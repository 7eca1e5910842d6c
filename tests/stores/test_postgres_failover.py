"""The primary is killed under many writers and a standby takes over: nothing acknowledged is lost."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

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

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))

WORKER = Path(__file__).with_name("pg_worker.py")

OVERLAPS = """SELECT count(*) FROM {schema}.interval AS a JOIN {schema}.interval AS b
    ON a.tenant = b.tenant AND a.slot_a = b.slot_a AND a.slot_b = b.slot_b AND a.ordinal < b.ordinal
    WHERE a.closed IS NULL AND b.closed IS NULL AND a.during && b.during"""


def failover(writers: int, seconds: float) -> None:
    primary = pg.Server({"synchronous_commit": "on", "wal_level": "replica"}).create()
    standby = primary.standby("second")
    try:
        with psycopg.connect(primary.dsn("postgres"), autocommit=True) as db:
            # Not a server setting, so that the standby does not wait for a standby once it is promoted.
            db.execute("ALTER SYSTEM SET synchronous_standby_names = 'second'")
            db.execute("SELECT pg_reload_conf()")
        address = f"postgresql://{pg.ROLE}@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/twofold"
        with AgentMemory(address, embedder="hashing:64") as mem:
            for i in range(20):
                mem.add(f"before note {i} of the order service")
            receipts = [mem.recall(f"before note {i}", k=5, keep=True).receipt.id for i in range(5)]
        lines: dict[str, list[tuple[float, str]]] = {}
        workers = [start(address, f"w{n}", seconds, lines) for n in range(writers)]
        until = time.monotonic() + 120
        while any(len(said) < 3 for said in lines.values()):  # all of them are at work
            assert time.monotonic() < until, lines
            time.sleep(0.05)
        time.sleep(seconds / 3)
        killed = time.monotonic()
        primary.kill()
        time.sleep(0.3)
        standby.promote()
        promoted = time.monotonic()
        for process, reader in workers:
            assert process.wait(seconds + 120) == 0, process.stderr.read() if process.stderr else ""
            reader.join()
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()
        check(standby, address, lines, receipts, killed, promoted)
    finally:
        standby.remove()
        primary.remove()


def start(address: str, name: str, seconds: float, lines: dict[str, list[tuple[float, str]]]) -> Any:
    process = subprocess.Popen(
        [sys.executable, str(WORKER), address, name, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    mine = lines.setdefault(name, [])

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            mine.append((time.monotonic(), line.strip()))

    reader = threading.Thread(target=follow)
    reader.start()
    return process, reader


def check(
    server: pg.Server,
    address: str,
    lines: dict[str, list[tuple[float, str]]],
    receipts: list[str],
    killed: float,
    promoted: float,
) -> None:
    acknowledged: set[str] = set()
    ended: dict[str, str] = {}
    before = after = 0
    for name, said in lines.items():
        assert said[-1][1].startswith("done"), (name, said[-1])
        for at, line in said:
            kind, *words = line.split()
            if kind not in ("add", "end"):
                continue
            acknowledged.add(words[-1])
            if kind == "end":
                ended[words[0]] = words[1]
            before += at < killed
            after += at > promoted
    refused = [line for said in lines.values() for _, line in said if line.startswith("refused")]
    sys.stdout.write(f"{before} writes acknowledged before the kill, {after} after the promotion, "
                     f"{len(refused)} refused: {refused[:3]}\n")  # fmt: skip
    assert before > len(lines)
    assert after > len(lines)
    with AgentMemory(address, embedder="hashing:64") as mem:
        health = mem.health()
        assert health["healthy"], health
        assert mem.verify().problems == ()
        stored = {m.id: m for m in mem.search(limit=None, include_superseded=True)}
        assert not acknowledged - stored.keys(), "acknowledged and lost"
        for old, new in ended.items():
            assert stored[old].superseded_by == new
        for receipt in receipts:
            assert mem.replay(receipt).identical
        mem.add("and it goes on")
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as db:
        assert db.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        assert db.execute(OVERLAPS.format(schema="twofold")).fetchone() == (0,)


def test_a_standby_takes_over() -> None:
    failover(4, 10.0)


@pytest.mark.long
def test_a_standby_takes_over_under_sixteen_writers() -> None:
    failover(16, 60.0)
