"""Several processes on one store, and processes killed in the middle of a write."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory

WORKER = Path(__file__).with_name("process_worker.py")


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "locked" not in err.lower()
    return out


def assert_sound(mem: AgentMemory) -> None:
    health = mem.health()
    assert health["healthy"], health
    report = mem.verify()
    assert report.ok, report.problems


def four_writers_two_readers(folder: Path, count: int, seconds: float) -> None:
    with AgentMemory(folder, embedder="hashing:64"):
        pass
    writers = [start("write", folder, f"w{i}", count) for i in range(4)]
    readers = [start("read", folder, seconds) for _ in range(2)]
    acknowledged = [line.split()[1] for w in writers for line in finish(w).splitlines()]
    for reader in readers:
        recalls = finish(reader).split()
        assert int(recalls[0]) > 0
    assert len(set(acknowledged)) == 4 * count
    with AgentMemory(folder, embedder="hashing:64") as mem:
        assert mem.stats()["memories"] == 4 * count
        assert {m.id for m in mem.search(limit=None)} == set(acknowledged)
        for i in range(4):
            assert len(mem.search(tags=[f"w{i}"], limit=None)) == count
        assert_sound(mem)


def test_four_writers_and_two_readers(tmp_path: Path) -> None:
    four_writers_two_readers(tmp_path / "store", 60, 4.0)


@pytest.mark.long
def test_four_writers_of_a_thousand(tmp_path: Path) -> None:
    four_writers_two_readers(tmp_path / "store", 1000, 30.0)


def killed_run(folder: Path, seed: int, *, inside: bool) -> bool:
    """Let a writer work, kill it, reopen, and check everything it acknowledged. True if the kill fell inside
    a transaction (its last line was "begin")."""
    source = random.Random(seed)
    writer = start("mixed", folder, "k", seed)
    lines: list[str] = []
    wanted = source.randrange(4, 40)
    ready = threading.Event()

    def follow() -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            lines.append(line.strip())
            if len(lines) >= wanted and (not inside or lines[-1] == "begin"):
                if inside:
                    writer.send_signal(signal.SIGKILL)
                ready.set()

    reader = threading.Thread(target=follow)
    reader.start()
    assert ready.wait(120), writer.stderr.read() if writer.stderr else ""
    if not inside:
        time.sleep(source.random() * 0.01)
        writer.send_signal(signal.SIGKILL)
    writer.wait(60)
    reader.join(60)
    if writer.stderr is not None:
        assert "Traceback" not in writer.stderr.read()
        writer.stderr.close()
    if writer.stdout is not None:
        writer.stdout.close()
    check_acknowledged(folder, lines)
    return lines[-1] == "begin"


def check_acknowledged(folder: Path, lines: list[str]) -> None:
    state: dict[str, Any] = {}
    for line in lines:
        kind, *ids = line.split()
        if kind == "add":
            state |= dict.fromkeys(ids, "current")
        elif kind == "supersede":
            state |= {ids[0]: ids[1], ids[1]: "current"}
        elif kind == "erase":
            state[ids[0]] = "erased"
    with AgentMemory(folder, embedder="hashing:64") as mem:
        assert_sound(mem)
        doubtful = len(lines) and lines[-1] == "begin"
        changed = 0
        for memory_id, expected in state.items():
            memory = mem.get(memory_id)
            if expected == "erased":
                assert memory is None
                continue
            if memory is None or (expected == "current" and memory.superseded_by is not None):
                changed += 1  # what the killed call did, if its commit got through before the kill
                continue
            if expected != "current":
                assert memory.superseded_by == expected
            # Row, lexemes and vector are there: the memory is its own best answer by words and by meaning.
            if memory.valid_to is None:
                found = mem.recall(memory.content, k=3, promote=False)
                hit = next(h for h in found if h.memory.id == memory_id)
                assert {"lexical", "vector"} <= set(hit.sources)
                for entity in memory.entities:
                    assert memory_id in {m.id for m in mem.timeline(entity)}
        assert changed <= 1, (changed, doubtful)


def test_kill_leaves_what_was_acknowledged(tmp_path: Path) -> None:
    inside = [killed_run(tmp_path / "store", seed, inside=seed % 2 == 0) for seed in range(4)]
    assert any(inside)


@pytest.mark.long
def test_fifty_kills(tmp_path: Path) -> None:
    inside = [killed_run(tmp_path / f"store{seed % 5}", seed, inside=seed % 3 == 0) for seed in range(50)]
    assert sum(inside) >= 10, f"only {sum(inside)} of 50 kills fell inside a transaction"


def test_open_handle_sees_other_processes_at_its_next_call(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, embedder="hashing:64") as mem:
        assert len(mem.recall("wrote memory")) == 0
        finish(start("write", tmp_path, "other", 3))
        assert len(mem.recall("other wrote memory number")) == 3
        assert mem.stats()["memories"] == 3


def test_threads_share_a_handle(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with AgentMemory(tmp_path, embedder="hashing:64") as mem:

        def work(name: int) -> None:
            try:
                for i in range(25):
                    made = mem.add(f"thread t{name}x{i} was here", tags=[f"t{name}"])
                    assert mem.recall(f"was t{name}x{i} here", k=1)[0].memory.id == made.id
            except BaseException as error:  # noqa: BLE001 - reported by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert mem.stats()["memories"] == 100
        assert_sound(mem)
