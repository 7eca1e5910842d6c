"""Malformed input raises the named error and changes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from twofold import AgentMemory, Profile, errors

NAIVE = dt.datetime(2026, 1, 1)  # that it has no zone is the point


@pytest.fixture
def mem(clock: Any) -> Iterator[AgentMemory]:
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as mem:
        mem.add("one thing is stored", key="a.b")
        yield mem


ADD: dict[str, dict[str, Any]] = {
    "empty content": {"content": ""},
    "blank content": {"content": " \n\t"},
    "content is None": {"content": None},
    "content is a number": {"content": 5},
    "content is bytes": {"content": b"x"},
    "lone surrogate": {"content": "a \ud800 b"},
    "nul": {"content": "a\0b"},
    "too long": {"content": "x" * 2_000_001},
    "confidence above one": {"content": "x", "confidence": 1.01},
    "negative confidence": {"content": "x", "confidence": -0.1},
    "nan confidence": {"content": "x", "confidence": float("nan")},
    "confidence is text": {"content": "x", "confidence": "high"},
    "confidence is a bool": {"content": "x", "confidence": True},
    "naive event date": {"content": "x", "event_date": NAIVE},
    "unreadable event date": {"content": "x", "event_date": "not a date"},
    "naive valid_from": {"content": "x", "valid_from": NAIVE},
    "valid_to before valid_from": {"content": "x", "valid_from": "2026-02-01", "valid_to": "2026-01-01"},
    "tags is a mapping": {"content": "x", "tags": {"a": 1}},
    "a tag is a number": {"content": "x", "tags": [1]},
    "a tag is blank": {"content": "x", "tags": [" "]},
    "a tag has a surrogate": {"content": "x", "tags": ["\udfff"]},
    "an entity is blank": {"content": "x", "entities": [""]},
    "metadata is a list": {"content": "x", "metadata": [1]},
    "metadata is not JSON": {"content": "x", "metadata": {"a": object()}},
    "metadata has NaN": {"content": "x", "metadata": {"a": float("nan")}},
    "metadata has a number as key": {"content": "x", "metadata": {1: 2}},
    "metadata has a surrogate": {"content": "x", "metadata": {"a": "\ud800"}},
    "metadata has a nul": {"content": "x", "metadata": {"a": "\0"}},
    "namespace has a wildcard": {"content": "x", "namespace": "build/*"},
    "namespace is blank": {"content": "x", "namespace": " "},
    "namespace has a newline": {"content": "x", "namespace": "a\nb"},
    "unknown visibility": {"content": "x", "visibility": "secret"},
    "unknown field": {"content": "x", "colour": "red"},
    "pinned is text": {"content": "x", "pinned": "yes"},
    "key is blank": {"content": "x", "key": " "},
    "vector of a wrong size": {"content": "x", "vector": [1.0, 2.0]},
    "vector with NaN": {"content": "x", "vector": [float("nan")] * 64},
    "vector with infinity": {"content": "x", "vector": [float("inf")] * 64},
    "vector of zeros": {"content": "x", "vector": [0.0] * 64},
    "vector of text": {"content": "x", "vector": ["a"] * 64},
}


@pytest.mark.parametrize("item", ADD.values(), ids=ADD.keys())
def test_add_refuses_and_writes_nothing(mem: AgentMemory, item: dict[str, Any]) -> None:
    before = mem.audit()
    with pytest.raises(errors.InvalidInput):
        mem.add(**item)
    with pytest.raises(errors.InvalidInput):
        mem.add_many([{"content": "a good one"}, item])
    assert mem.audit() == before


CALLS: dict[str, tuple[Callable[[AgentMemory], Any], type[Exception]]] = {
    "empty query": (lambda m: m.recall(""), errors.InvalidInput),
    "query with a nul": (lambda m: m.recall("a\0"), errors.InvalidInput),
    "query is None": (lambda m: m.recall(None), errors.InvalidInput),  # type: ignore[arg-type]
    "query too long": (lambda m: m.recall("x " * 20_000), errors.InvalidInput),
    "k is zero": (lambda m: m.recall("x", k=0), errors.InvalidInput),
    "k is negative": (lambda m: m.recall("x", k=-1), errors.InvalidInput),
    "k is a float": (lambda m: m.recall("x", k=3.0), errors.InvalidInput),  # type: ignore[arg-type]
    "negative budget": (lambda m: m.recall("x", budget=-1), errors.BudgetError),
    "budget is text": (lambda m: m.recall("x", budget="10"), errors.InvalidInput),  # type: ignore[arg-type]
    "naive as_of": (lambda m: m.recall("x", as_of=NAIVE), errors.InvalidInput),
    "unreadable known_at": (lambda m: m.recall("x", known_at="soon"), errors.InvalidInput),
    "naive now": (lambda m: m.recall("x", now=NAIVE), errors.InvalidInput),
    "unknown filter": (lambda m: m.recall("x", filters={"colour": "red"}), errors.InvalidInput),
    "unknown profile": (lambda m: m.recall("x", profile="best"), errors.InvalidInput),
    "k1 beyond its range": (lambda m: m.recall("x", profile={"k1": 1001}), errors.InvalidInput),
    "longest below 1": (lambda m: m.recall("x", profile={"longest": 0.5}), errors.InvalidInput),
    "a weight that is NaN": (
        lambda m: m.recall("x", profile={"tag_weight": float("nan")}),
        errors.InvalidInput,
    ),
    "a weight that is text": (lambda m: m.recall("x", profile={"tag_weight": "1"}), errors.InvalidInput),
    "a depth that is no whole number": (
        lambda m: m.recall("x", profile={"depth": 10.0}),
        errors.InvalidInput,
    ),
    "a depth of zero": (lambda m: m.recall("x", profile={"depth": 0}), errors.InvalidInput),
    "unknown fusion": (lambda m: m.recall("x", profile={"fusion": "sum"}), errors.InvalidInput),
    "a profile with a name": (lambda m: m.recall("x", profile={"name": "mine"}), errors.InvalidInput),
    "a profile that is a number": (lambda m: m.recall("x", profile=3), errors.InvalidInput),  # type: ignore[arg-type]
    "a constant of a profile by value": (
        lambda m: m.recall("x", profile=Profile(b=2.0)),
        errors.InvalidInput,
    ),
    "no namespaces": (lambda m: m.recall("x", namespaces=[]), errors.InvalidInput),
    "bad namespace pattern": (lambda m: m.recall("x", namespaces=["a*b"]), errors.InvalidInput),
    "query vector of a wrong size": (lambda m: m.recall("x", vector=[1.0]), errors.InvalidInput),
    "unknown role": (lambda m: m.as_agent("a", role="boss"), errors.InvalidInput),
    "blank agent": (lambda m: m.as_agent(""), errors.InvalidInput),
    "negative quota": (lambda m: m.as_agent("a", write_quota=-1), errors.InvalidInput),
    "update of an unknown id": (lambda m: m.update("nope", content="x"), errors.NotFound),
    "update of an unknown field": (lambda m: m.update("nope", colour="x"), errors.InvalidInput),
    "forget of an unknown id": (lambda m: m.forget("nope"), errors.NotFound),
    "restore of an unknown id": (lambda m: m.restore("nope"), errors.NotFound),
    "erase of an unknown id": (lambda m: m.erase("nope", reason="x"), errors.NotFound),
    "history of an unknown id": (lambda m: m.history("nope"), errors.NotFound),
    "link of unknown ids": (lambda m: m.link("a", "b"), errors.NotFound),
    "unknown parent": (lambda m: m.add("x", derived_from=["nope"]), errors.NotFound),
    "supersedes an unknown id": (lambda m: m.add("x", supersedes=["nope"]), errors.NotFound),
    "unkept receipt": (lambda m: m.replay("nope"), errors.NotFound),
    "not a receipt": (lambda m: m.replay({"tenant": "default", "agent_id": "owner"}), errors.InvalidInput),
    "negative limit": (lambda m: m.search(limit=-1), errors.InvalidInput),
    "add_many of numbers": (lambda m: m.add_many([1]), errors.InvalidInput),  # type: ignore[list-item]
}


@pytest.mark.parametrize("call,error", CALLS.values(), ids=CALLS.keys())
def test_call_raises_the_named_error_and_writes_nothing(
    mem: AgentMemory, call: Callable[[AgentMemory], Any], error: type[Exception]
) -> None:
    before = mem.audit()
    with pytest.raises(error):
        call(mem)
    assert mem.audit() == before


def test_budget_of_zero_returns_nothing(mem: AgentMemory) -> None:
    assert len(mem.recall("one thing", budget=0)) == 0


def test_restore_of_what_was_not_closed(mem: AgentMemory) -> None:
    (memory,) = mem.search()
    with pytest.raises(errors.InvalidInput, match="nothing to restore"):
        mem.restore(memory.id)


def test_messages_name_the_value_and_the_remedy(mem: AgentMemory) -> None:
    with pytest.raises(errors.InvalidInput, match=r"2026-01-01T00:00:00 has no time zone; add one"):
        mem.recall("x", as_of=NAIVE)
    with pytest.raises(errors.InvalidInput, match="roles are orchestrator, planner"):
        mem.as_agent("a", role="boss")
