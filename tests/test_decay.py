"""Strength over time: when memories fade, what keeps them, what maintenance and garbage collection do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reference import decay as reference

from twofold import AgentMemory, DecayPolicy, errors
from twofold.clock import DAY, ManualClock, from_us, to_us
from twofold.decay import DecayRates

START = "2026-01-01T00:00:00Z"
PLAIN = {"strength_weight": 1.0}  # the whole strength as an addend, so that its value can be read off


@pytest.fixture
def mem(clock: ManualClock) -> Iterator[AgentMemory]:
    clock.set(START)
    with opened(":memory:", clock) as mem:
        yield mem


def opened(path: Path | str, clock: Any, policy: DecayPolicy | None = None, **options: Any) -> AgentMemory:
    return AgentMemory(path, embedder=None, clock=clock, decay=policy or DecayPolicy.published(), **options)


def shown(mem: AgentMemory, question: str = "gate", **options: Any) -> list[str]:
    return [h.content for h in mem.recall(question, promote=False, **options)]


def strength(mem: AgentMemory, memory_id: str, **options: Any) -> float:
    found = mem.recall("gate", k=100, promote=False, include_faded=True, profile=PLAIN, **options)
    return next(h.parts["strength"] for h in found if h.memory.id == memory_id)


def use(mem: AgentMemory, times: int) -> None:
    for _ in range(times):
        mem.recall("gate", include_faded=True)
    mem.flush()


# -- crossings --------------------------------------------------------------------------------------------


def test_an_untouched_memory_fades_on_day_33(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("the gate is open")
    for day in range(40):
        clock.set(from_us(to_us(START) + day * DAY))
        assert bool(shown(mem)) == (day < 33), day
    assert math.exp(-0.07 * 32) > 0.1 > math.exp(-0.07 * 33)


def test_the_published_formula_lets_even_important_memories_go(clock: ManualClock) -> None:
    """Used every day, it is gone a day after the last use from some day on: 132 at the latest."""
    policy = DecayPolicy(by_type={}, keep_after=None)
    clock.set(START)
    with opened(":memory:", clock, policy) as mem:
        made = mem.add("the gate is open")
        gone = None
        for day in range(136):
            use(mem, 1)
            clock.advance(days=1)
            if day >= 3 and strength(mem, made.id) < 0.1 and gone is None:
                gone = day + 1
        assert gone is not None
        assert 128 <= gone <= 132
    assert 1.4 * math.exp(-0.02 * 131) > 0.1 > 1.4 * math.exp(-0.02 * 132)


@pytest.mark.parametrize("uses,kept", [(3, False), (4, True)])
def test_four_uses_keep_a_memory_for_good(
    mem: AgentMemory, clock: ManualClock, uses: int, kept: bool
) -> None:
    mem.add("the gate is open")
    use(mem, uses)
    clock.advance(days=400)
    assert bool(shown(mem)) == kept


def test_strength_is_the_reference_formula(mem: AgentMemory, clock: ManualClock) -> None:
    made = mem.add("the gate is open")
    days = [0.0, 3.0, 3.5, 3.9, 10.0]
    uses: list[float] = []
    for day in days:
        clock.set(from_us(to_us(START) + round(day * DAY)))
        last = max([0.0, *uses])
        recent = sum(u > day - 1 for u in uses)
        expected = reference.strength(day, day - last, len(uses), recent)
        if len(uses) >= 4:
            expected = max(expected, 0.1)
        assert strength(mem, made.id) == pytest.approx(expected, abs=1e-15)
        use(mem, 1)
        uses.append(day)


def test_default_policy_is_slow_for_facts_and_published_for_observations(clock: ManualClock) -> None:
    clock.set(START)
    with AgentMemory(":memory:", embedder=None, clock=clock) as mem:
        for memory_type in ("fact", "preference", "decision", "observation", "interaction"):
            mem.add(f"the gate in a {memory_type}", memory_type=memory_type)
        clock.advance(days=33)
        slow = {f"the gate in a {t}" for t in ("fact", "preference", "decision")}
        assert set(shown(mem)) == slow
        clock.set(from_us(to_us(START) + 328 * DAY))
        assert set(shown(mem)) == slow
        clock.advance(days=1)
        assert shown(mem) == []
    with AgentMemory(":memory:", embedder=None, clock=clock, decay=DecayPolicy.off()) as mem:
        mem.add("the gate", memory_type="observation")
        clock.advance(days=10_000)
        assert shown(mem) == ["the gate"]


def test_age_runs_from_recording_not_from_the_event(mem: AgentMemory) -> None:
    mem.add("the gate was built", event_date="1998-05-01")
    assert shown(mem) == ["the gate was built"]


def test_pinned_memories_never_fade(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("the gate is open", pinned=True)
    mem.add("the gate squeaks")
    clock.advance(days=1000)
    assert shown(mem) == ["the gate is open"]
    assert mem.maintain().faded == 1
    assert len(mem.gc().candidates) == 1


def test_what_fading_hid_is_counted_and_can_be_asked_for(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("the gate is open")
    clock.advance(days=50)
    mem.add("the gate squeaks")
    found = mem.recall("gate", promote=False)
    assert ([h.content for h in found], found.faded, found.trace.faded) == (["the gate squeaks"], 1, 1)
    both = mem.recall("gate", promote=False, include_faded=True)
    assert (len(both), both.faded) == (2, 0)
    assert len(mem.search()) == 2, "fading concerns recall only"
    past = from_us(to_us(START) + DAY)
    assert shown(mem, as_of=past) == ["the gate is open"]
    assert shown(mem, known_at=past, as_of=past) == ["the gate is open"]
    assert shown(mem, known_at=past, as_of=past, include_faded=False) == []
    reason = mem.explain("gate", mem.search()[-1].id).reason
    assert "faded" in reason


def test_recall_can_be_asked_at_any_now(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("the gate is open")
    assert shown(mem, now=from_us(to_us(START) + 32 * DAY)) == ["the gate is open"]
    assert shown(mem, now=from_us(to_us(START) + 33 * DAY)) == []
    clock.advance(days=60)
    assert shown(mem, now=from_us(to_us(START) + 5 * DAY)) == ["the gate is open"]


def test_a_corrected_memory_is_young_again(mem: AgentMemory, clock: ManualClock) -> None:
    made = mem.add("the gate is opne")
    clock.advance(days=40)
    mem.update(made.id, content="the gate is open")
    assert shown(mem) == ["the gate is open"]


# -- promotion --------------------------------------------------------------------------------------------


def test_a_recall_promotes_what_it_returned_and_nothing_else(mem: AgentMemory) -> None:
    first, second = mem.add("the gate is open"), mem.add("the mill is shut")
    mem.recall("gate")
    mem.flush()
    counts = {m.id: (m.access_count, m.last_accessed_at) for m in mem.search()}
    assert counts == {first.id: (1, mem.clock.now()), second.id: (0, None)}


def test_the_next_recall_sees_uses_once_they_are_committed(mem: AgentMemory, clock: ManualClock) -> None:
    """Exactly: buffered uses are not part of the state, committed ones are, and a receipt says which."""
    made = mem.add("the gate is open")
    clock.advance(days=10)
    one = mem.recall("gate", profile=PLAIN)
    two = mem.recall("gate", profile=PLAIN)
    assert [h.score for h in one] == [h.score for h in two]
    assert one.receipt.seq == two.receipt.seq
    mem.flush()
    three = mem.recall("gate", profile=PLAIN, promote=False)
    assert three.receipt.seq == two.receipt.seq + 1
    before = reference.strength(10, 10, 0, 0)
    after = reference.strength(10, 0, 2, 2)
    assert one[0].parts["strength"] == pytest.approx(before, abs=1e-15)
    assert three[0].parts["strength"] == pytest.approx(after, abs=1e-15)
    assert mem.replay(one.receipt).identical
    assert mem.replay(two.receipt).identical
    assert made.id in one.receipt.ids


@pytest.mark.parametrize("commit", ["add", "flush", "close", "many"])
def test_uses_are_committed_at_the_next_write_flush_close_or_when_many_wait(
    tmp_path: Path, clock: ManualClock, commit: str
) -> None:
    mem = opened(tmp_path / "store", clock)
    mem.add("the gate is open")
    seq = mem.stats()["seq"]
    for _ in range(255):
        mem.recall("gate")
    assert mem.stats()["seq"] == seq, "no timer, no write by reading"
    if commit == "many":
        mem.recall("gate")
        assert mem.stats()["seq"] == seq + 1
    elif commit == "add":
        mem.add("the mill is shut")
    elif commit == "flush":
        mem.flush()
    mem.close()
    with opened(tmp_path / "store", clock) as again:
        assert max(m.access_count for m in again.search()) == (256 if commit == "many" else 255)


def test_uses_survive_a_write_that_fails(mem: AgentMemory) -> None:
    made = mem.add("the gate is open")
    mem.recall("gate")
    with pytest.raises(errors.NotFound):
        mem.add("x", derived_from=["01" * 13])
    mem.flush()
    assert mem.get(made.id).access_count == 1  # type: ignore[union-attr]


def test_replay_explain_and_read_only_handles_never_promote(mem: AgentMemory) -> None:
    made = mem.add("the gate is open")
    receipt = mem.recall("gate", promote=False).receipt
    mem.replay(receipt)
    mem.explain("gate", made.id)
    mem.read_only().recall("gate")
    mem.recall_as_context("gate", promote=False)
    mem.search()
    mem.get(made.id)
    mem.timeline("gate")
    mem.flush()
    assert mem.get(made.id).access_count == 0  # type: ignore[union-attr]


def test_a_recall_about_the_future_is_a_use_of_today(mem: AgentMemory, clock: ManualClock) -> None:
    made = mem.add("the gate is open")
    mem.recall("gate", now="2030-01-01", include_faded=True)
    mem.flush()
    assert mem.get(made.id).last_accessed_at == clock.now()  # type: ignore[union-attr]


def test_order_does_not_drift_by_recalling(mem: AgentMemory) -> None:
    """The same question, asked again and again, has the same answer: being found does not push a memory up."""
    for n in range(10):
        mem.add(f"the gate number {n} is open")
    first = [h.memory.id for h in mem.recall("the gate number 3", k=5)]
    for _ in range(30):
        mem.flush()
        assert [h.memory.id for h in mem.recall("the gate number 3", k=5)] == first


# -- maintenance and garbage collection -------------------------------------------------------------------


def test_maintenance_is_idempotent_within_a_day_and_catches_up(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("the gate is open")
    first = mem.maintain()
    assert (first.recorded, first.live, first.faded) == (True, 1, 0)
    seq = mem.stats()["seq"]
    clock.advance(hours=23)
    assert not mem.maintain().recorded
    assert mem.stats()["seq"] == seq
    clock.advance(days=47)  # nobody ran it for weeks
    late = mem.maintain()
    assert (late.recorded, late.faded) == (True, 1)
    assert late.by_type["fact"]["mean_strength"] == pytest.approx(
        reference.strength(48 - 1 / 24, 48 - 1 / 24, 0, 0), abs=1e-6
    )
    assert not mem.maintain().recorded
    assert len([e for e in mem.audit() if e["kind"] == "maintain"]) == 2


def test_strength_does_not_depend_on_maintenance_having_run(clock: ManualClock) -> None:
    answers = []
    for diligent in (True, False):
        clock.set(START)
        with opened(":memory:", clock) as mem:
            made = mem.add("the gate is open")
            for _ in range(20):
                clock.advance(days=1)
                if diligent:
                    mem.maintain()
            answers.append((strength(mem, made.id), shown(mem)))
    assert answers[0] == answers[1]


def test_maintenance_previews(mem: AgentMemory) -> None:
    mem.add("the gate is open")
    seq = mem.stats()["seq"]
    report = mem.maintain(dry_run=True)
    assert (report.recorded, report.live) == (False, 1)
    assert mem.stats()["seq"] == seq
    with pytest.raises(errors.InvalidInput):
        mem.maintain(now="2026-01-01T00:00:00")  # no zone


def test_garbage_collection_previews_archives_and_can_be_undone(mem: AgentMemory, clock: ManualClock) -> None:
    weak, strong = mem.add("the gate is open"), mem.add("the gate squeaks")
    use(mem, 4)
    clock.advance(days=10)
    weaker = mem.add("the gate was green")
    clock.advance(days=39)
    assert mem.get(strong.id) is not None
    preview = mem.gc()
    assert [i for i, _ in preview.candidates] == [weaker.id]
    assert not preview.applied
    assert mem.get(weaker.id) is not None, "a preview archives nothing"
    done = mem.gc(dry_run=False)
    assert (done.candidates, done.applied) == (preview.candidates, True)
    assert mem.get(weaker.id) is None
    assert [m.id for m in mem.history(weaker.id)] == [weaker.id], "archived, not deleted"
    assert mem.gc(dry_run=False).candidates == ()
    told = [e for e in mem.why(weaker.id).events if e["kind"] == "archive"]
    assert told[0]["payload"]["rule"] == "gc"
    mem.restore(weaker.id)
    assert mem.get(weaker.id) is not None
    assert "the gate was green" in shown(mem), "who brings a memory back wants to find it"
    assert mem.gc().candidates == ()
    assert mem.verify().problems == ()
    assert mem.get(weak.id) is not None


def test_the_weakest_are_archived_beyond_the_limit_if_the_policy_says_so(clock: ManualClock) -> None:
    clock.set(START)
    limits = {"l2_max_memories": 3, "max_memories_policy": "archive"}
    with opened(":memory:", clock, **limits) as mem:
        ids = []
        for n in range(5):
            ids.append(mem.add(f"the gate {n}", pinned=n == 0).id)
            clock.advance(days=1)
        assert mem.stats()["over_max_memories"] == 2
        preview = mem.maintain(dry_run=True)
        assert preview.archived == (ids[1], ids[2])
        assert mem.stats()["memories"] == 5
        assert mem.maintain().archived == preview.archived
        assert {m.id for m in mem.search()} == {ids[0], ids[3], ids[4]}
        mem.restore(ids[1])
        assert mem.get(ids[1]) is not None
    with opened(":memory:", clock, l2_max_memories=1) as mem:
        mem.add("one")
        mem.add("two")
        assert (mem.maintain().over_limit, mem.stats()["memories"]) == (1, 2)


def test_policies_are_checked() -> None:
    for bad in ({"age_rate": -1.0}, {"access_cap": math.nan}):
        with pytest.raises(errors.InvalidInput):
            DecayRates(**bad)
    with pytest.raises(errors.InvalidInput):
        DecayPolicy(threshold=1.0)
