"""The two time axes: what was true when, and what was known when, at the exact instants."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from twofold import AgentMemory, errors

TICK = dt.timedelta(microseconds=1)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.fixture
def mem(clock: Any) -> Iterator[AgentMemory]:
    clock.set("2026-03-12T09:00:00Z")
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as mem:
        yield mem


def contents(found: Any) -> list[str]:
    return sorted(m.content for m in found)


def ways(mem: AgentMemory, **times: Any) -> list[list[str]]:
    """The same question by every read that takes times; they must agree."""
    out = [
        contents(mem.search(**times)),
        contents(mem.current_facts(**times)),
        sorted(h.content for h in mem.recall("gate", k=50, promote=False, **times)),
    ]
    assert all(way == out[0] for way in out), out
    return out


def test_intervals_are_half_open_at_the_exact_instant(mem: AgentMemory, clock: Any) -> None:
    begin, end = at("2026-03-12T10:00:00Z"), at("2026-03-12T11:00:00Z")
    mem.add("the gate is open", valid_from=begin, valid_to=end)
    clock.set("2026-03-12T12:00:00Z")
    for instant, shown in (
        (begin - TICK, False),
        (begin, True),
        (begin + TICK, True),
        (end - TICK, True),
        (end, False),
        (end + TICK, False),
    ):
        assert ways(mem, as_of=instant)[0] == (["the gate is open"] if shown else []), instant


def test_known_at_is_inclusive_of_its_instant(mem: AgentMemory, clock: Any) -> None:
    told = clock.now()
    made = mem.add("the gate is open", valid_from="2026-01-01")
    clock.advance(hours=1)
    retracted = clock.now()
    mem.forget(made.id)
    clock.advance(hours=1)
    for instant, shown in ((told - TICK, False), (told, True), (retracted - TICK, True), (retracted, False)):
        times = {"known_at": instant, "as_of": "2026-02-01"}
        assert ways(mem, **times)[0] == (["the gate is open"] if shown else []), instant
        assert (mem.get(made.id, **times) is not None) == shown


def test_dates_mean_utc_days_and_zones_are_instants(mem: AgentMemory) -> None:
    mem.add("the gate is new", valid_from="2026-03-10")
    assert ways(mem, as_of="2026-03-10")[0] == ["the gate is new"]
    assert ways(mem, as_of="2026-03-10T01:59:59.999999+02:00")[0] == []
    assert ways(mem, as_of="2026-03-10T02:00:00+02:00")[0] == ["the gate is new"]
    assert ways(mem, as_of=dt.date(2026, 3, 9))[0] == []
    assert ways(mem, as_of="2026-03-09T16:00:00-08:00")[0] == ["the gate is new"]


@pytest.mark.parametrize("name", ["as_of", "known_at"])
@pytest.mark.parametrize("bad", ["2026-03-12T10:00:00", dt.datetime(2026, 3, 12), "yesterday", 5])
def test_naive_and_unreadable_times_are_refused(mem: AgentMemory, name: str, bad: Any) -> None:
    made = mem.add("the gate is open", entities=["Gate"])
    times = {name: bad}
    for ask in (
        lambda: mem.recall("gate", **times),
        lambda: mem.search(**times),
        lambda: mem.current_facts(**times),
        lambda: mem.get(made.id, **times),
        lambda: mem.timeline("Gate", **times),
    ):
        with pytest.raises(errors.InvalidInput):
            ask()


def test_an_event_date_is_when_it_became_true(mem: AgentMemory) -> None:
    made = mem.add("the gate was painted", event_date="2025-06-01T12:00:00Z")
    assert made.valid_from == at("2025-06-01T12:00:00Z")
    assert made.recorded_at == made.ingest_timestamp == at("2026-03-12T09:00:00Z")
    assert ways(mem, as_of="2025-07-01")[0] == ["the gate was painted"]
    assert ways(mem, as_of="2025-05-01")[0] == []
    both = mem.add("the gate was sold", event_date="2025-06-01", valid_from="2025-08-01")
    assert both.valid_from == at("2025-08-01T00:00:00Z")


def test_late_arrivals_fill_the_past_and_close_nothing_newer(mem: AgentMemory, clock: Any) -> None:
    """Told in the wrong order, the history comes out in the right one."""
    days = {"2026-03-05": "red", "2026-03-01": "green", "2026-03-09": "blue", "2026-03-07": "grey"}
    for day, colour in days.items():
        mem.add(f"the gate is {colour}", key="gate.colour", event_date=day)
        clock.advance(minutes=1)
    expected = {
        "2026-02-28": None, "2026-03-01": "green", "2026-03-04": "green", "2026-03-05": "red", "2026-03-06": "red",
        "2026-03-07": "grey", "2026-03-08": "grey", "2026-03-09": "blue", "2026-03-12": "blue",
    }  # fmt: skip
    for day, colour in expected.items():
        assert ways(mem, as_of=day)[0] == ([] if colour is None else [f"the gate is {colour}"]), day
    assert ways(mem)[0] == ["the gate is blue"]
    line = mem.search(include_superseded=True)
    intervals = sorted((m.valid_from, m.valid_to) for m in line)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(intervals))
    # Before the late ones came, the system thought otherwise, and still says so.
    assert ways(mem, as_of="2026-03-08", known_at="2026-03-12T09:02:59Z")[0] == ["the gate is red"]
    assert ways(mem, as_of="2026-03-04", known_at="2026-03-12T09:00:30Z")[0] == []


def test_complementary_facts_survive(mem: AgentMemory) -> None:
    told = [
        "The port of order-service is 8080",
        "The owner of order-service is Ann",
        "order-service is written in Rust",
        "order-service depends on the ledger",
        "The port of billing-service is 9090",
    ]
    for one in told:
        mem.add(one, entities=["order-service"])
    assert contents(mem.current_facts()) == sorted(told)
    mem.add("The port of order-service is 8081")
    assert "The port of order-service is 8080" not in contents(mem.current_facts())
    assert len(mem.current_facts()) == len(told)


def test_restore_brings_back_a_superseded_fact(mem: AgentMemory, clock: Any) -> None:
    old = mem.add("the gate is open", key="gate.state")
    clock.advance(hours=1)
    new = mem.add("the gate is shut", key="gate.state")
    clock.advance(hours=1)
    closed = mem.get(old.id)
    assert closed is not None
    assert (closed.valid_to, closed.superseded_by) == (new.valid_from, new.id)
    restored = mem.restore(old.id)
    assert (restored.valid_to, restored.superseded_by) == (None, None)
    assert contents(mem.current_facts()) == ["the gate is open", "the gate is shut"]
    # That it was superseded for an hour stays true of what was known then.
    assert ways(mem, known_at="2026-03-12T10:30:00Z")[0] == ["the gate is shut"]
    with pytest.raises(errors.InvalidInput):
        mem.restore(old.id)


def test_restore_undoes_the_retraction_before_the_supersession(mem: AgentMemory, clock: Any) -> None:
    old = mem.add("the gate is open", key="gate.state")
    clock.advance(hours=1)
    mem.add("the gate is shut", key="gate.state")
    mem.forget(old.id)
    assert mem.restore(old.id).valid_to is not None, "the retraction is undone, the supersession stands"
    assert mem.restore(old.id).valid_to is None


def test_update_keeps_the_id_and_the_old_version(mem: AgentMemory, clock: Any) -> None:
    made = mem.add("the gate is opne", tags=["gate"], confidence=0.5, event_date="2026-03-01")
    clock.advance(hours=1)
    corrected = mem.update(made.id, content="the gate is open")
    assert (corrected.id, corrected.version, corrected.tags) == (made.id, 2, ("gate",))
    assert (corrected.valid_from, corrected.confidence) == (made.valid_from, 0.5)
    clock.advance(hours=1)
    first, second = mem.history(made.id)
    assert first.closed_at == second.recorded_at
    assert (first.content, second.content) == ("the gate is opne", "the gate is open")
    assert [m.version for m in mem.history(made.id, known_at="2026-03-12T09:30:00Z")] == [1]
    known = mem.get(made.id, known_at="2026-03-12T09:59:59Z")
    assert known is not None
    assert known.content == "the gate is opne"
    assert known.closed_at is None, "at that time nobody had corrected it"
    now = mem.get(made.id)
    assert now is not None
    assert now.content == "the gate is open"
    assert mem.search(known_at="2026-03-12T08:00:00Z") == []


def test_update_moves_the_beginning_only_when_its_date_was_wrong(mem: AgentMemory) -> None:
    dated = mem.add("the gate was built", event_date="2020-01-01")
    assert mem.update(dated.id, event_date="2019-01-01").valid_from == at("2019-01-01T00:00:00Z")
    given = mem.add("the gate was sold", event_date="2020-01-01", valid_from="2021-01-01")
    assert mem.update(given.id, event_date="2019-01-01").valid_from == at("2021-01-01T00:00:00Z")
    with pytest.raises(errors.InvalidInput):
        mem.update(dated.id, event_date="not a date")


def test_an_update_cannot_begin_after_the_end(mem: AgentMemory) -> None:
    made = mem.add("the gate is open", valid_from="2026-01-01", valid_to="2026-02-01")
    with pytest.raises(errors.InvalidInput, match="valid_from"):
        mem.update(made.id, valid_from="2026-02-01")
    assert mem.update(made.id, valid_from="2026-01-15").valid_to == at("2026-02-01T00:00:00Z")


def test_timeline_at_any_pair_of_times(mem: AgentMemory, clock: Any) -> None:
    mem.add("Juno moved to Graz", entities=["Juno"], event_date="2026-02-01", key="juno.home")
    clock.advance(hours=1)
    late = mem.add("Juno lived in Linz", entities=["Juno"], event_date="2025-01-01", key="juno.home")
    clock.advance(hours=1)
    mem.forget(late.id)
    line = lambda **times: [m.content for m in mem.timeline("Juno", **times)]  # noqa: E731
    assert line() == ["Juno moved to Graz"]
    assert line(known_at="2026-03-12T10:30:00Z") == ["Juno lived in Linz", "Juno moved to Graz"]
    assert line(known_at="2026-03-12T10:30:00Z", as_of="2025-06-01") == ["Juno lived in Linz"]
    assert line(known_at="2026-03-12T09:30:00Z") == ["Juno moved to Graz"]
    assert line(known_at="2026-03-12T08:00:00Z") == []


def test_the_graph_is_walked_in_the_past_too(mem: AgentMemory, clock: Any) -> None:
    """A relation counts from when it was told; a memory that was not valid then is no bridge."""
    a = mem.add("first stop", entities=["Juno"])
    b = mem.add("unrelated words entirely", source_id="b")
    clock.advance(hours=1)
    mem.link(a.id, b.id, "leads to")
    clock.advance(hours=1)
    graph = {"graph_weight": 1.0, "lexical_weight": 0.0, "vector_weight": 0.0}
    assert [h.memory.id for h in mem.recall("Juno", profile=graph)] == [a.id, b.id]
    before = mem.recall("Juno", profile=graph, known_at="2026-03-12T09:30:00Z")
    assert [h.memory.id for h in before] == [a.id]


def test_the_clock_going_back_keeps_the_log_in_order(mem: AgentMemory, clock: Any) -> None:
    first = mem.add("the gate is open")
    clock.set("2026-03-12T08:00:00Z")
    second = mem.add("the gate squeaks")
    assert second.recorded_at == first.recorded_at
    assert ways(mem)[0] == ["the gate is open", "the gate squeaks"]
    assert mem.verify().problems == ()


def test_a_preview_decides_like_the_write_and_writes_nothing(mem: AgentMemory, clock: Any) -> None:
    old = mem.add("The port of Juno is 8080")
    clock.advance(hours=1)
    seq = mem.stats()["seq"]
    (decision,) = mem.add("The port of Juno is 9090", dry_run=True)
    assert (decision.old_id, decision.rule, decision.applied) == (old.id, "frame", True)
    assert mem.stats()["seq"] == seq
    made = mem.add("The port of Juno is 9090")
    closed = mem.get(old.id)
    assert closed is not None
    assert closed.superseded_by == made.id
    told = [e for e in mem.why(old.id).events if e["kind"] == "supersede"]
    assert told[0]["payload"]["rule"] == "frame"
    assert told[0]["payload"]["at"] == decision.at


def test_supersession_stays_in_its_namespace(mem: AgentMemory) -> None:
    here = mem.add("The port of Juno is 8080", namespace="one", key="juno.port")
    mem.add("The port of Juno is 9090", namespace="two", key="juno.port")
    assert mem.get(here.id).valid_to is None  # type: ignore[union-attr]
    with pytest.raises(errors.InvalidInput, match="one namespace"):
        mem.add("The port of Juno is 7070", namespace="two", supersedes=[here.id])
    other = mem.search(namespaces="two")[0]
    with pytest.raises(errors.InvalidInput, match="one namespace"):
        mem.supersede(here.id, other.id)


@pytest.mark.parametrize(
    "reason,fields", [("it is pinned", {"pinned": True}), ("it has a higher confidence", {})]
)
def test_the_automatic_rule_suggests_where_it_may_not_act(
    mem: AgentMemory, reason: str, fields: dict[str, Any]
) -> None:
    old = mem.add("The port of Juno is 8080", **fields)
    mem.add("The port of Juno is 9090", confidence=1.0 if fields else 0.5)
    assert mem.get(old.id).valid_to is None  # type: ignore[union-attr]
    suggested = [e for e in mem.why(old.id).events if e["kind"] == "suggest"]
    assert suggested[0]["payload"]["reason"] == reason
