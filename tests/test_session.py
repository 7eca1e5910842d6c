from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, ManualClock, Memory, Scratchpad, Session
from twofold.errors import InvalidInput, NotFound, PermissionDenied, StoreBusy, StoreError
from twofold.stores import open_store


class GatedStore:
    """A real store whose write transactions wait for a gate, and fail while `busy` is above 0."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.busy = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextlib.contextmanager
    def transaction(self, tenant: str) -> Iterator[Any]:
        assert self.gate.wait(20)
        if self.busy:
            self.busy -= 1
            raise StoreBusy("another writer holds the lock")
        with self._inner.transaction(tenant) as inner:
            yield inner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock("2026-03-12T09:00:00Z")


@pytest.fixture
def store() -> GatedStore:
    return GatedStore(open_store(":memory:"))


@pytest.fixture
def mem(store: GatedStore, clock: ManualClock) -> Iterator[AgentMemory]:
    with AgentMemory(":memory:", embedder=None, clock=clock, store=store) as opened:  # type: ignore[arg-type]
        yield opened


def snapshots(mem: AgentMemory, session_id: str = "s1") -> list[Memory]:
    return mem.search(memory_types=["snapshot"], session_id=session_id)[::-1]


def turns(mem: AgentMemory, session_id: str = "s1") -> list[int]:
    return [memory.metadata["turn"] for memory in snapshots(mem, session_id)]


def test_a_snapshot_is_persisted_every_five_turns_and_turn_0_does_not_count(mem: AgentMemory) -> None:
    with Session(mem, session_id="s1", snapshot_every=5) as session:
        queued = [session.after_response(objective="ship", turn=turn) for turn in range(13)]
    assert [turn for turn, was in enumerate(queued) if was] == [5, 10]
    assert turns(mem) == [5, 10]


def test_a_turn_counts_once_even_when_called_twice(mem: AgentMemory) -> None:
    with Session(mem, "s1") as session:
        assert session.after_response(objective="first", turn=5)
        assert not session.after_response(objective="second", turn=5)
        assert session.snapshot()["objective"] == "second"
    (kept,) = snapshots(mem)
    assert kept.metadata["snapshot"]["objective"] == "first"


def test_turns_count_on_by_themselves(mem: AgentMemory) -> None:
    with Session(mem, "s1", snapshot_every=2) as session:
        for _ in range(5):
            session.after_response(user_message="hi")
        assert session.turn == 5
        assert session.pad.get("conversation_turn") == 5
    assert turns(mem) == [2, 4]


def test_each_turn_writes_the_context_and_none_keeps_what_was(mem: AgentMemory) -> None:
    with Session(mem, "s1") as session:
        session.after_response(
            objective="ship", user_message="go", tool_call={"name": "ls"}, tool_output="a", turn=1,
            constraints=["c"], mood="calm",
        )  # fmt: skip
        session.after_response(user_message="next", turn=2)
        assert session.pad.current_context == {
            "current_objective": "ship",
            "last_user_message": "next",
            "last_tool_call": {"name": "ls"},
            "last_tool_output": "a",
            "active_constraints": ["c"],
            "mood": "calm",
            "conversation_turn": 2,
        }


def test_a_snapshot_carries_its_provenance(mem: AgentMemory) -> None:
    fact = mem.add("The planner chose Rust")
    with Session(mem, "s1") as session:
        session.push_decision("fast and safe", action="use Rust", outcome="agreed")
        session.after_response(objective="choose", turn=3, sources=[fact.id])
        session.after_response(turn=5, constraints=["no GC"])
        session.after_response(turn=10)
    first, second = snapshots(mem)
    assert first.session_id == "s1"
    assert first.memory_type == "snapshot"
    assert first.tags == ("snapshot",)
    assert first.derived_from == (fact.id,)
    assert second.derived_from == (first.id,)
    assert first.metadata["snapshot"] == {
        "objective": "choose",
        "decisions": [
            {
                "timestamp": "2026-03-12T09:00:00Z",
                "reasoning": "fast and safe",
                "action": "use Rust",
                "outcome": "agreed",
            }
        ],
        "constraints": ["no GC"],
        "snapshot_at": "2026-03-12T09:00:00Z",
    }
    assert "Objective: choose" in first.content
    assert "Constraint: no GC" in first.content
    assert "action use Rust; reasoning fast and safe; outcome agreed" in first.content


def test_erasing_a_source_reaches_the_snapshots_that_repeat_it(mem: AgentMemory) -> None:
    fact = mem.add("Ana's phone is 555-010-4477")
    with Session(mem, "s1") as session:
        session.after_response(objective="call Ana on 555-010-4477", turn=5, sources=[fact.id])
        session.after_response(turn=10)
    mem.erase(fact.id, reason="asked to")
    assert snapshots(mem) == []


def test_a_six_minute_gap_loses_neither_objective_nor_decisions(mem: AgentMemory, clock: ManualClock) -> None:
    with Session(mem, "s1") as session:
        session.after_response(objective="ship", turn=4, constraints=["no downtime"])
        session.push_decision("r", "a", "o")
        session.pad.set("scratch", 1)
        clock.advance(minutes=6)
        assert session.pad.get("scratch") is None
        session.after_response(user_message="still there", turn=5)
        clock.advance(hours=6)
        live = session.snapshot()
    (kept,) = snapshots(mem)
    for snapshot in (live, kept.metadata["snapshot"]):
        assert snapshot["objective"] == "ship"
        assert snapshot["constraints"] == ["no downtime"]
        assert [d["action"] for d in snapshot["decisions"]] == ["a"]


def test_the_loop_does_not_wait_for_the_vault(mem: AgentMemory, store: GatedStore) -> None:
    store.gate.clear()
    session = Session(mem, "s1", snapshot_every=1)
    started = time.perf_counter()
    for turn in range(1, 21):
        session.after_response(objective=f"step {turn}", turn=turn)
    assert time.perf_counter() - started < 2.0
    assert store.head("default").rows == 0
    store.gate.set()
    session.flush()
    assert turns(mem) == list(range(1, 21))
    session.close()


def test_what_was_queued_is_not_changed_by_later_turns(mem: AgentMemory, store: GatedStore) -> None:
    store.gate.clear()
    constraints = ["a"]
    session = Session(mem, "s1")
    session.after_response(objective="first", turn=5, constraints=constraints)
    constraints.append("b")
    session.after_response(objective="second", turn=6)
    store.gate.set()
    session.close()
    (kept,) = snapshots(mem)
    assert kept.metadata["snapshot"]["objective"] == "first"
    assert kept.metadata["snapshot"]["constraints"] == ["a"]


def test_close_flushes_what_is_queued(mem: AgentMemory, store: GatedStore) -> None:
    store.gate.clear()
    session = Session(mem, "s1")
    session.after_response(turn=5)
    session.after_response(turn=10)
    threading.Timer(0.2, store.gate.set).start()
    session.close()
    assert turns(mem) == [5, 10]
    session.close()
    with pytest.raises(InvalidInput, match="closed"):
        session.after_response(turn=15)


def test_an_error_is_kept_and_raised_at_flush_and_the_snapshot_is_tried_again(
    mem: AgentMemory, store: GatedStore
) -> None:
    session = Session(mem, "s1")
    store.busy = 3
    session.after_response(objective="ship", turn=5)
    session.after_response(objective="ship", turn=10)
    with pytest.raises(StoreBusy) as caught:
        session.flush()
    # Turn 5 failed twice (when queued, when flushed); turn 10 as well, or made it in between.
    assert len(session.errors) in (1, 2)
    assert len(getattr(caught.value, "__notes__", [])) == len(session.errors) - 1
    store.busy = 0
    session.close()
    assert sorted(turns(mem)) == [5, 10]
    assert session.errors == ()


def test_close_raises_what_no_flush_raised(mem: AgentMemory) -> None:
    session = Session(mem.read_only(), "s1")
    session.after_response(turn=5)
    with pytest.raises(PermissionDenied):
        session.close()
    assert not [t for t in threading.enumerate() if t.name == "twofold-s1"]


def test_an_error_that_will_not_pass_is_raised_once(mem: AgentMemory) -> None:
    with Session(mem.read_only(), "s1") as session:
        session.after_response(turn=5)
        with pytest.raises(PermissionDenied):
            session.flush()
        assert session.errors == ()


def test_a_closed_vault_is_reported(mem: AgentMemory) -> None:
    session = Session(mem, "s1")
    mem.close()
    session.after_response(turn=5)
    with pytest.raises(StoreError):
        session.close()


def test_two_threads_in_the_same_turn_persist_it_once(mem: AgentMemory) -> None:
    session = Session(mem, "s1")
    barrier = threading.Barrier(8)
    answers: list[bool] = []

    def respond() -> None:
        barrier.wait()
        answers.append(session.after_response(objective="x", turn=5))

    threads = [threading.Thread(target=respond) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()
    assert sorted(answers) == [False] * 7 + [True]
    assert turns(mem) == [5]


def test_resume_loads_the_newest_snapshot(mem: AgentMemory, clock: ManualClock) -> None:
    with Session(mem, "s1") as session:
        for turn in range(1, 11):
            session.push_decision(f"r{turn}", f"a{turn}", None)
            session.after_response(objective=f"goal {turn}", turn=turn, constraints=["c", turn])
        expected = session.snapshot()
    with Session(mem, "other") as session:
        session.after_response(objective="another", turn=5)
    clock.advance(days=1)
    with Session.resume(mem, "s1") as resumed:
        back = resumed.snapshot()
        assert back == {**expected, "snapshot_at": "2026-03-13T09:00:00Z"}
        assert resumed.turn == 10
        assert not resumed.after_response(turn=10)
        assert resumed.after_response(turn=15)
    assert turns(mem) == [5, 10, 15]
    assert snapshots(mem)[2].derived_from == (snapshots(mem)[1].id,)


def test_a_session_survives_its_process(tmp_path: Path) -> None:
    with (
        AgentMemory(tmp_path / "store", embedder=None) as mem,
        Session(mem, "s1", snapshot_every=1) as session,
    ):
        session.after_response(objective="ship", turn=1)
    with AgentMemory(tmp_path / "store", embedder=None) as mem:
        assert Session.resume(mem, "s1").snapshot()["objective"] == "ship"


def test_resume_names_a_session_without_snapshots(mem: AgentMemory) -> None:
    with pytest.raises(NotFound, match="'s9'"):
        Session.resume(mem, "s9")
    mem.add("made by hand", memory_type="snapshot", session_id="s9")
    with pytest.raises(InvalidInput, match="not written by a Session"):
        Session.resume(mem, "s9")


def test_snapshots_go_to_the_namespace_asked_for(mem: AgentMemory) -> None:
    with Session(mem, "s1", namespace="loops") as session:
        session.after_response(objective="x", turn=5)
    assert turns(mem) == []
    assert mem.search(namespaces=["loops"], session_id="s1")[0].namespace == "loops"
    assert Session.resume(mem, "s1", namespace="loops").turn == 5


def test_a_given_pad_is_used(mem: AgentMemory) -> None:
    pad = Scratchpad(max_size=2)
    with Session(mem, "s1", pad=pad) as session:
        session.after_response(objective="x", turn=1)
    assert pad.get("current_objective") == "x"


@pytest.mark.parametrize("bad", [{"turn": -1}, {"turn": 1.0}, {"turn": True}, {"turn": "1"}])
def test_bad_turns_are_refused(mem: AgentMemory, bad: dict[str, Any]) -> None:
    with Session(mem, "s1") as session:
        with pytest.raises(InvalidInput, match="turn"):
            session.after_response(objective="x", **bad)
        assert session.pad.current_context == {}


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_what_is_not_json_is_refused_where_it_is_said(mem: AgentMemory, value: object) -> None:
    with Session(mem, "s1") as session:
        with pytest.raises(InvalidInput, match="JSON"):
            session.after_response(objective=value, turn=5)
        assert session.after_response(objective="fine", turn=5)
    assert turns(mem) == [5]


@pytest.mark.parametrize(
    "bad", [{"session_id": " "}, {"session_id": 7}, {"snapshot_every": 0}, {"snapshot_every": True}]
)
def test_bad_sessions_are_refused(mem: AgentMemory, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Session(mem, **{"session_id": "s1", **bad})


def test_a_forgotten_session_still_persists_what_is_queued(mem: AgentMemory, store: GatedStore) -> None:
    store.gate.clear()
    session = Session(mem, "s1")
    session.after_response(objective="x", turn=5)
    threading.Timer(0.2, store.gate.set).start()
    del session
    gc.collect()
    assert turns(mem) == [5]
    assert not [t for t in threading.enumerate() if t.name == "twofold-s1"]


def test_the_queue_is_emptied_at_exit(tmp_path: Path) -> None:
    program = """
import sys
from twofold import AgentMemory, Session
mem = AgentMemory(sys.argv[1], embedder=None)
session = Session(mem, "s1", snapshot_every=1)
for turn in range(1, 31):
    session.after_response(objective=f"step {turn}", turn=turn)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")], capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    with AgentMemory(tmp_path / "store", embedder=None) as mem:
        assert turns(mem) == list(range(1, 31))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_neither_hangs_nor_doubles_what_is_queued(mem: AgentMemory, store: GatedStore) -> None:
    session = Session(mem, "s1")
    store.gate.clear()
    session.after_response(objective="parent", turn=5)
    held = threading.Event()
    release = threading.Event()

    def hold() -> None:
        with session._writer.lock:
            held.set()
            release.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        session.after_response(objective="child", turn=6)
        session.close()
        os.write(write, session.snapshot()["objective"].encode())
        os._exit(0)
    release.set()
    holder.join()
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "child"
    os.waitpid(child, 0)
    store.gate.set()
    session.close()
    assert turns(mem) == [5]
    assert snapshots(mem)[0].metadata["snapshot"]["objective"] == "parent"


def test_snapshots_stay_out_of_recall_unless_asked_for(mem: AgentMemory) -> None:
    with Session(mem, "s1") as session:
        session.after_response(objective="ship the release", turn=5)
    assert list(mem.recall("ship the release")) == []
    assert len(mem.recall("ship the release", filters={"memory_types": ["snapshot"]})) == 1
