"""Re-embedding while others read and write, gone on with after a kill, and equal to one that nobody disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reembed_worker import Slow

from twofold import AgentMemory, errors, maintain
from twofold.serve.migrate import copy_tenant
from twofold.stores import open_store

WORKER = Path(__file__).with_name("reembed_worker.py")
THINGS = (
    "order service",
    "billing service",
    "heron",
    "river gate",
    "night train",
    "data centre",
    "map",
    "oven",
)
QUESTIONS = [f"what of the {thing} in note {n}" for n, thing in enumerate(THINGS * 3)]
NOW = "2031-01-01T00:00:00Z"


def note(i: int) -> dict[str, Any]:
    return {
        "content": f"note {i}: the {THINGS[i % 8]} met the {THINGS[(i // 8) % 8]} {i % 13} times",
        "session_id": f"s{i // 10}",
        "entities": [THINGS[i % 8]],
    }


def fill(address: Any, count: int) -> None:
    with AgentMemory(address, embedder="hashing:64") as mem:
        mem.add_many([note(i) for i in range(count)], batch=100)
        mem.erase(mem.search(limit=1)[0].id, reason="asked for")


def worker(address: Any, what: str, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), str(address), what, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def answers(mem: AgentMemory) -> list[Any]:
    return [[(hit.memory.id, hit.score, hit.sources) for hit in ask(mem, text)] for text in QUESTIONS]


def ask(mem: AgentMemory, text: str) -> Any:
    return mem.recall(text, k=10, now=NOW, include_faded=True, promote=False)


def assert_as_undisturbed(address: Any, elsewhere: Path, fingerprint: str) -> None:
    """A copy of the whole log on SQLite, re-embedded in peace, answers the same to the last bit."""
    source, copy = open_store(address), open_store(elsewhere)
    copy_tenant(source, copy, "default")
    source.close()
    copy.close()
    with (
        AgentMemory(address, embedder="hashing:96") as mem,
        AgentMemory(elsewhere, embedder="hashing:96") as other,
    ):
        assert mem.stats()["embedder"] == fingerprint
        found = answers(mem)
        assert all(len(one) == 10 for one in found)
        other.reembed("hashing:96")
        assert answers(other) == found
        assert mem.verify().ok
        assert mem.health()["healthy"], mem.health()


def use_in_threads(mem: AgentMemory, until: threading.Event) -> Callable[[], None]:
    """Threads that add and recall; what is returned ends them, and raises what they met."""
    problems: list[BaseException] = []
    done = {"added": 0, "recalled": 0}

    def write() -> None:
        while not until.is_set():
            mem.add(f"a thread's note {done['added']} about the heron", session_id="ours")
            done["added"] += 1

    def read() -> None:
        while not until.is_set():
            assert len(mem.recall("the heron of the night train", k=5, promote=False)) == 5
            done["recalled"] += 1

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- re-raised below, in the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (write, read)]
    for thread in threads:
        thread.start()

    def end() -> None:
        until.set()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        assert done["added"] > 3
        assert done["recalled"] > 3

    return end


def while_others_use_it(address: Any, elsewhere: Path, count: int = 300) -> None:
    """Threads of the same handle never notice; a process with the old embedder is told at its next call."""
    fill(address, count)
    process = worker(address, "use", 0)
    with AgentMemory(address, embedder="hashing:64") as mem:
        end = use_in_threads(mem, threading.Event())
        embedder = Slow(96, 0.004)
        found = mem.reembed(embedder)
        time.sleep(0.3)
        end()
        assert found.generation == 2
        assert found.memories > count
        assert mem.recall("heron", promote=False).receipt.embedder == embedder.fingerprint
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.endswith("mismatch\n")
    theirs = [line.split()[1] for line in said.splitlines() if line.startswith("add ")]
    assert len(theirs) > 3
    with AgentMemory(address, embedder="hashing:96") as mem:
        assert all(mem.get(one) is not None for one in theirs)
    assert_as_undisturbed(address, elsewhere, embedder.fingerprint)


def after_a_kill(address: Any, elsewhere: Path, count: int = 300) -> None:
    """The next run does what was left and no more; nobody who reads meanwhile notices either."""
    fill(address, count)
    process = worker(address, "reembed", 0.004)
    with AgentMemory(address, embedder="hashing:64") as mem:
        before = answers(mem)
        store = mem._vault.store
        until = time.monotonic() + 60
        while not (there := pending(store)):
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        there = pending(store)
        assert 0 < there < count - 1, "the test would prove nothing"
        assert answers(mem) == before
        mem.add("added between the runs: the heron")
        memory = mem.search(limit=1, namespaces="*")[0]
        mem.erase(memory.id, reason="asked for, and embedded already")
    with AgentMemory(address, embedder="hashing:64") as mem:
        embedder = Slow(96)
        left = mem.stats()["versions"] - 2 - pending(mem._vault.store)
        found = mem.reembed(embedder)
        assert (found.generation, embedder.texts) == (2, left)
        assert found.vectors == mem.stats()["versions"] - 2
        assert [g.number for g in mem._vault.store.generations("default")] == [1, 2]
    assert_as_undisturbed(address, elsewhere, embedder.fingerprint)


def pending(store: Any) -> int:
    """Vectors of generation 2 that are stored."""
    known = [g.number for g in store.generations("default")]
    return len(store.vectors("default", 2)) if 2 in known else 0


def two_at_a_time(address: Any, elsewhere: Path) -> None:
    """The same work once, whoever is first; neither fails."""
    fill(address, 120)
    process = worker(address, "reembed", 0.004)
    with AgentMemory(address, embedder="hashing:64") as mem:
        until = time.monotonic() + 60
        while len(mem._vault.store.generations("default")) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        embedder = Slow(96, 0.003)
        assert mem.reembed(embedder).generation == 2
    said, _ = process.communicate(timeout=60)
    assert said == "done\n"
    with AgentMemory(address, embedder="hashing:96") as mem:
        assert [g.number for g in mem._vault.store.generations("default")] == [1, 2]
    assert_as_undisturbed(address, elsewhere, embedder.fingerprint)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "REEMBED_BATCH", 32)


@pytest.mark.parametrize("course", [while_others_use_it, after_a_kill, two_at_a_time])
def test_on_sqlite(tmp_path: Path, course: Callable[[Any, Path], None]) -> None:
    course(tmp_path / "store", tmp_path / "copy")


def test_another_embedder_begins_anew(tmp_path: Path) -> None:
    """An unfinished generation of another embedder is left where it is, and `gc` drops it."""
    fill(tmp_path, 40)

    class Failing(Slow):
        def embed_documents(self, texts: Any) -> Any:
            if self.texts >= 32:
                raise errors.EmbeddingError("the endpoint is down")
            return super().embed_documents(texts)

    with AgentMemory(tmp_path, embedder="hashing:64") as mem:
        with pytest.raises(errors.EmbeddingError):
            mem.reembed(Failing(96))
        assert pending(mem._vault.store) > 0
        assert mem.reembed("hashing:128").generation == 3
        assert mem.gc(dry_run=False, generations=True).generations_dropped == (1, 2)
        assert mem.verify().ok


def test_a_vector_given_for_the_old_embedder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of an item and its commit the store was re-embedded with vectors of the same length."""
    fill(tmp_path, 10)

    other = Slow(64)
    other.fingerprint = "another of sixty-four"
    with AgentMemory(tmp_path, embedder="hashing:64") as mem:
        write = mem._vault.write

        def overtaken(principal: Any) -> Any:
            monkeypatch.setattr(mem._vault, "write", write)
            mem.reembed(other)
            return write(principal)

        monkeypatch.setattr(mem._vault, "write", overtaken)
        mem.add("embedded with the old one, then with the new one")
        assert other.texts == 10  # the nine that were there, and that one
        monkeypatch.setattr(mem._vault, "write", lambda p: overtaken_again(mem, monkeypatch, write, p))
        with pytest.raises(errors.EmbedderMismatch, match="vector given"):
            mem.add("with a vector", vector=[1.0] * 64)


def overtaken_again(mem: AgentMemory, monkeypatch: pytest.MonkeyPatch, write: Any, principal: Any) -> Any:
    monkeypatch.setattr(mem._vault, "write", write)
    mem.reembed("hashing:64")
    return write(principal)
