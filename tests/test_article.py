"""The published story, as users would type it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, Role

FACTS = "facts/infra"
PAIRS = [
    ("服务器A的IP是192.168.1.100", "服务器A的IP是192.168.1.150", "服务器A的IP"),
    (
        "The IP of server A is 192.168.1.100",
        "The IP of server A is 192.168.1.150",
        "What is the IP of server A?",
    ),
]


@pytest.fixture
def mem(clock: Any) -> Iterator[AgentMemory]:
    clock.set("2026-03-12T09:00:00Z")
    with AgentMemory(":memory:", embedder="hashing", clock=clock) as mem:
        yield mem


def told(mem: AgentMemory, clock: Any, first: str, second: str, **fields: Any) -> None:
    """The executor at 9:00, the monitor at 11:00; then it is noon."""
    executor = mem.as_agent("exec-1", role=Role.EXECUTOR, namespaces=["build/*"])
    monitor = mem.as_agent("mon-1", role=Role.MONITOR)
    executor.add(first, namespace=FACTS, **fields)
    clock.set("2026-03-12T11:00:00Z")
    monitor.add(second, namespace=FACTS, **fields)
    clock.set("2026-03-12T12:00:00Z")


def answers(mem: AgentMemory, question: str, **times: str) -> list[str]:
    return [h.content for h in mem.recall(question, namespaces="facts/*", **times)]


@pytest.mark.parametrize("first,second,question", PAIRS)
def test_address_changes_and_the_past_stays(
    mem: AgentMemory, clock: Any, first: str, second: str, question: str
) -> None:
    told(mem, clock, first, second)
    assert answers(mem, question) == [second]
    assert answers(mem, question, as_of="2026-03-12T10:30:00Z") == [first]
    assert answers(mem, question, as_of="2026-03-12T09:00:00Z") == [first]
    assert answers(mem, question, as_of="2026-03-12T10:59:59.999999Z") == [first]
    assert answers(mem, question, as_of="2026-03-12T11:00:00Z") == [second]
    assert answers(mem, question, as_of="2026-03-12T08:59:59Z") == []
    for as_of in ("2026-03-12T09:00:00Z", "2026-03-12T11:30:00Z", "2027-01-01T00:00:00Z"):
        assert answers(mem, question, known_at="2026-03-12T10:59:59Z", as_of=as_of) == [first]
    assert answers(mem, question, known_at="2026-03-12T10:59:59Z", as_of="2026-03-12T08:00:00Z") == []
    assert answers(mem, question, known_at="2026-03-12T08:59:59Z") == []


@pytest.mark.parametrize("first,second,question", PAIRS)
def test_first_interval_closes_by_itself(
    mem: AgentMemory, clock: Any, first: str, second: str, question: str
) -> None:
    told(mem, clock, first, second)
    old, new = mem.search(namespaces="facts/*", include_superseded=True)[::-1]
    assert (old.content, new.content) == (first, second)
    assert old.valid_to == new.valid_from
    assert old.valid_until == old.valid_to
    assert old.superseded_by == new.id
    assert (new.valid_to, old.closed_at) == (None, None)
    assert (old.agent_id, old.agent_role, new.agent_id, new.agent_role) == (
        "exec-1",
        "executor",
        "mon-1",
        "monitor",
    )


def test_same_story_by_key(mem: AgentMemory, clock: Any) -> None:
    told(mem, clock, "A is reachable under .100", "A answers under .150 today", key="server-a.address")
    assert answers(mem, "where is A reachable") == ["A answers under .150 today"]
    assert answers(mem, "where is A reachable", as_of="2026-03-12T10:30:00Z") == ["A is reachable under .100"]


@pytest.mark.parametrize("first,second,question", PAIRS)
def test_older_fact_arriving_late_becomes_a_closed_interval(
    mem: AgentMemory, clock: Any, first: str, second: str, question: str
) -> None:
    clock.set("2026-03-12T12:00:00Z")
    mem.add(second, namespace=FACTS, event_date="2026-03-12T11:00:00Z")
    clock.set("2026-03-12T13:00:00Z")
    late = mem.add(first, namespace=FACTS, event_date="2026-03-12T09:00:00Z")
    assert late.valid_to is not None
    assert late.valid_to.isoformat() == "2026-03-12T11:00:00+00:00"
    assert answers(mem, question) == [second]
    assert answers(mem, question, as_of="2026-03-12T10:30:00Z") == [first]
    # At 12:30 nobody had told the system about .100 yet.
    assert answers(mem, question, known_at="2026-03-12T12:30:00Z", as_of="2026-03-12T10:30:00Z") == []


def test_returning_to_an_earlier_value_is_a_third_fact(mem: AgentMemory, clock: Any) -> None:
    first, second, question = PAIRS[1]
    ids = []
    for hour, content in ((9, first), (11, second), (13, first)):
        clock.set(f"2026-03-12T{hour:02d}:00:00Z")
        ids.append(mem.add(content, namespace=FACTS).id)
    assert len(set(ids)) == 3
    for at, expected in (("10:00", first), ("12:00", second), ("14:00", first)):
        assert answers(mem, question, as_of=f"2026-03-12T{at}:00Z") == [expected]


@pytest.mark.model
def test_articles_own_lines(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "store") as mem:
        mem.add("规划器决定在关键路径上使用Rust", tags=["decision", "rust", "performance"])
        mem.add("The planner chose Rust for the critical path", tags=["decision", "rust", "performance"])
        mem.add("Lunch is at noon in the canteen", tags=["office"])
        mem.add("午餐在中午供应", tags=["office"])
        found = mem.recall("我们为关键路径选择了什么技术", k=5)
        assert found[0].content == "规划器决定在关键路径上使用Rust"
        # The English encoder is blind to the question: the words found it.
        assert found[0].sources["lexical"] == 1
        found = mem.recall("Which technology did we choose for the critical path?", k=5)
        assert found[0].content == "The planner chose Rust for the critical path"
