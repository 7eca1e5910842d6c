from __future__ import annotations

import gc
import json
import os
import sys
import threading
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold import ManualClock, Scratchpad, _core
from twofold.errors import InvalidInput
from twofold.scratchpad import CONTEXT_KEYS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock("2026-03-12T09:00:00Z")


@pytest.fixture
def pad(clock: ManualClock) -> Scratchpad:
    return Scratchpad(clock=clock)


def test_get_and_set_are_the_cores_own_methods() -> None:
    assert Scratchpad.get is _core.Scratchpad.get
    assert Scratchpad.set is _core.Scratchpad.set
    assert "get" not in vars(Scratchpad)
    assert "set" not in vars(Scratchpad)


def test_updating_a_key_evicts_no_other_and_does_not_double_it() -> None:
    pad = Scratchpad(max_size=2)
    pad.set("a", 1)
    pad.set("b", 2)
    pad.set("a", 3)
    assert pad.items() == [("b", 2), ("a", 3)]
    pad.set("c", 4)
    assert pad.items() == [("a", 3), ("c", 4)]


def test_time_to_live_counts_from_the_last_write_or_read(pad: Scratchpad, clock: ManualClock) -> None:
    pad.set("read", 1)
    pad.set("idle", 2)
    clock.advance(seconds=299)
    assert pad.get("read") == 1
    clock.advance(seconds=1)
    assert pad.get("idle") is None
    assert pad.get("idle", "gone") == "gone"
    assert list(pad) == ["read"]
    assert len(pad) == 1
    clock.advance(seconds=299)
    assert len(pad) == 0


def test_the_context_outlives_the_time_to_live_and_eviction(clock: ManualClock) -> None:
    pad = Scratchpad(max_size=3, ttl=300, clock=clock)
    pad.set_current_context(objective="ship", user_message="go", turn=1, constraints=["no downtime"])
    for i in range(10):
        pad.set(f"k{i}", i)
    clock.advance(minutes=6)
    assert pad.get("current_objective") == "ship"
    assert pad.get("k9") is None
    assert pad.current_context == {
        "current_objective": "ship",
        "last_user_message": "go",
        "conversation_turn": 1,
        "active_constraints": ["no downtime"],
    }
    assert len(pad) == 4


@pytest.mark.parametrize("key", CONTEXT_KEYS)
def test_a_context_key_is_one_however_it_is_written(key: str, clock: ManualClock) -> None:
    pad = Scratchpad(max_size=1, clock=clock)
    pad.set(key, "v")
    pad.set("other", 1)
    clock.advance(hours=1)
    assert pad.get(key) == "v"
    assert key in pad
    assert pad.current_context == {key: "v"}
    assert pad.items() == [(key, "v")]
    assert pad.delete(key)
    assert not pad.delete(key)
    assert key not in pad
    assert pad.get(key, 7) == 7


def test_any_other_key_can_join_the_context(pad: Scratchpad, clock: ManualClock) -> None:
    pad.set("plan", "entry")
    pad.set_current_context("plan", "context")
    pad.set_current_context({"budget": 5, "objective": "x"}, mood="calm")
    clock.advance(hours=1)
    assert dict(pad.items()) == {"plan": "context", "budget": 5, "current_objective": "x", "mood": "calm"}
    pad.set("plan", "written later")
    assert pad.current_context["plan"] == "written later"
    clock.advance(hours=1)
    assert pad.get("plan") == "written later"


def test_decision_points_are_the_last_five_newest_first(pad: Scratchpad, clock: ManualClock) -> None:
    for i in range(7):
        pad.push_decision(f"why {i}", action=f"do {i}", outcome=None)
        clock.advance(minutes=10)
    kept = pad.decisions
    assert [d["reasoning"] for d in kept] == [f"why {i}" for i in (6, 5, 4, 3, 2)]
    assert kept[0] == {
        "timestamp": "2026-03-12T10:00:00Z",
        "reasoning": "why 6",
        "action": "do 6",
        "outcome": None,
    }


def test_a_decision_may_come_as_a_mapping_and_keeps_its_timestamp(pad: Scratchpad) -> None:
    pad.push_decision_point({"timestamp": "t0", "reasoning": "r", "action": "a", "outcome": "o"})
    assert pad.decisions == [{"timestamp": "t0", "reasoning": "r", "action": "a", "outcome": "o"}]
    with pytest.raises(InvalidInput, match="mood"):
        pad.push_decision({"reasoning": "r", "mood": "calm"})
    assert len(pad.decisions) == 1


def test_a_snapshot_has_exactly_four_fields_and_shares_nothing(pad: Scratchpad, clock: ManualClock) -> None:
    assert pad.snapshot() == {
        "objective": None, "decisions": [], "constraints": [], "snapshot_at": "2026-03-12T09:00:00Z"
    }  # fmt: skip
    constraints = ["a"]
    pad.set_current_context(objective="ship", constraints=constraints)
    pad.push_decision("r", "a", "o")
    clock.advance(minutes=6)
    taken = pad.snapshot_for_vault()
    assert set(taken) == {"objective", "decisions", "constraints", "snapshot_at"}
    assert taken["objective"] == "ship"
    assert taken["snapshot_at"] == "2026-03-12T09:06:00Z"
    taken["constraints"].append("b")
    taken["decisions"][0]["action"] = "changed"
    taken["decisions"].clear()
    assert pad.snapshot()["constraints"] == ["a"]
    assert pad.snapshot()["decisions"][0]["action"] == "a"
    json.dumps(pad.snapshot())


def test_clear_removes_everything(pad: Scratchpad) -> None:
    pad.set("a", 1)
    pad.set_current_context(objective="x")
    pad.push_decision("r")
    pad.clear()
    assert len(pad) == 0
    assert pad.snapshot()["objective"] is None
    assert pad.decisions == []


@pytest.mark.parametrize(
    "bad", [{"max_size": 0}, {"ttl": 0}, {"ttl": float("nan")}, {"ttl": "x"}, {"max_size": "x"}]
)
def test_values_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="Scratchpad"):
        Scratchpad(**bad)


def test_context_keys_must_be_strings(pad: Scratchpad) -> None:
    with pytest.raises(InvalidInput, match="1"):
        pad.set_current_context({1: "x"})  # type: ignore[dict-item]
    assert pad.current_context == {}


def test_a_function_giving_seconds_is_a_clock_too() -> None:
    now = 1_773_306_000.0
    pad = Scratchpad(ttl=10, clock=lambda: now)
    pad.set("a", 1)
    assert pad.snapshot()["snapshot_at"] == "2026-03-12T09:00:00Z"
    now += 10
    assert pad.get("a") is None


def test_the_real_clock_is_the_default() -> None:
    pad = Scratchpad()
    pad.set("a", 1)
    assert pad.get("a") == 1
    assert pad.snapshot()["snapshot_at"].endswith("Z")
    assert "entries=1, context=0, decisions=0" in repr(pad)


def test_the_context_is_bound_once() -> None:
    with pytest.raises(RuntimeError, match="once"):
        Scratchpad().bind_context(set(), {})


def test_context_values_take_part_in_garbage_collection() -> None:
    class Box:
        pass

    box = Box()
    seen = weakref.ref(box)
    pad = Scratchpad()
    pad.set("current_objective", box)
    box.pad = pad  # type: ignore[attr-defined]
    del box, pad
    gc.collect()
    assert seen() is None


def test_references_are_neither_lost_nor_kept() -> None:
    value = object()
    before = sys.getrefcount(value)
    pad = Scratchpad()
    for _ in range(50):
        pad.set("current_objective", value)
        assert pad.get("current_objective") is value
        pad.items(), pad.values(), pad.get("absent", value)
    pad.delete("current_objective")
    assert sys.getrefcount(value) == before


def test_many_threads_may_use_one_pad() -> None:
    pad = Scratchpad(max_size=20)
    failures: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for i in range(2_000):
                pad.set(f"{name}-{i % 40}", i)
                pad.get(f"{(name + 1) % 4}-{i % 40}")
                pad.set_current_context(objective=i, turn=i)
                pad.push_decision(i)
                taken = pad.snapshot()
                assert len(taken["decisions"]) <= 5
                assert len(pad) <= 22
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(pad.decisions) == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_its_own_pad() -> None:
    pad = Scratchpad()
    pad.set("a", 1)
    pad.set_current_context(objective="parent")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        pad.set("a", 2)
        pad.set_current_context(objective="child")
        os.write(write, f"{pad.get('a')} {pad.snapshot()['objective']}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "2 child"
    assert pad.get("a") == 1
    assert pad.snapshot()["objective"] == "parent"


KEYS = st.sampled_from(["a", "b", "c", "d", "current_objective", "conversation_turn"])
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["set", "get", "delete", "context", "wait"]), KEYS, st.integers(0, 9)),
    max_size=60,
)


@given(OPERATIONS)
def test_entries_and_context_behave_as_two_plain_dicts(operations: list[tuple[str, str, int]]) -> None:
    now = 0.0
    pad = Scratchpad(max_size=3, ttl=10, clock=lambda: now)
    entries: dict[str, tuple[int, float]] = {}
    context: dict[str, int] = {}
    joined = set(CONTEXT_KEYS)
    for what, key, number in operations:
        entries = {k: (v, t) for k, (v, t) in entries.items() if now < t + 10}
        if what == "wait":
            now += number
        elif what == "context":
            pad.set_current_context(key, number)
            joined.add(key)
            entries.pop(key, None)
            context[key] = number
        elif what == "set" and key in joined:
            pad.set(key, number)
            context[key] = number
        elif what == "set":
            pad.set(key, number)
            entries.pop(key, None)
            if len(entries) == 3:
                del entries[next(iter(entries))]
            entries[key] = number, now
        elif what == "delete":
            assert pad.delete(key) is (key in entries or key in context)
            entries.pop(key, None)
            context.pop(key, None)
        elif key in entries:
            value, _ = entries.pop(key)
            entries[key] = value, now
            assert pad.get(key) == value
        else:
            assert pad.get(key) == context.get(key)
        entries = {k: (v, t) for k, (v, t) in entries.items() if now < t + 10}
        assert pad.items() == [(k, v) for k, (v, _) in entries.items()] + list(context.items())
        assert len(pad) == len(entries) + len(context)
