"""What LangGraph's store promises beyond the vendor's tests: history, governance, what is embedded, exact names."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langgraph.store.base", reason="needs the extra [langgraph]")

from twofold import AgentMemory
from twofold.errors import InvalidInput, PermissionDenied
from twofold.integrations.langgraph import LangChainEmbedder, TwofoldStore

ITEM = {"text": "likes tea"}


@pytest.fixture
def mem(clock: Any) -> Any:
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as mem:
        yield mem


def test_puts_supersede_and_history_keeps_every_value(mem: AgentMemory) -> None:
    store = TwofoldStore(mem)
    for number in (1, 2, 1):
        store.put(("users", "1"), "k", {"n": number})
    assert store.get(("users", "1"), "k").value == {"n": 1}
    store.delete(("users", "1"), "k")
    assert store.get(("users", "1"), "k") is None
    assert [item.value["n"] for item in store.history(("users", "1"), "k")] == [1, 2, 1]
    assert mem.recall("n", namespaces="*").hits == []
    assert mem.verify().ok


@pytest.mark.parametrize("label", ["a/b", "a%2Fb", "a*", " a", "a\n", "文", "A"])
def test_labels_are_kept_apart(mem: AgentMemory, label: str) -> None:
    store = TwofoldStore(mem)
    others = [("a", "b"), ("a",), ("a", "bc")]
    for namespace in [(label,), *others]:
        store.put(namespace, " k", {"of": list(namespace)})
    for namespace in [(label,), *others]:
        assert store.get(namespace, " k").value == {"of": list(namespace)}
        assert store.get(namespace, "k") is None
    assert {item.namespace for item in store.search((label,))} == {(label,)}
    assert set(store.list_namespaces()) == {(label,), *others}


def test_tenants_and_roles_hold(clock: Any) -> None:
    with AgentMemory(":memory:", embedder=None, clock=clock, admin=True) as mem:
        TwofoldStore(mem).put(("users", "1"), "k", ITEM)
        other = mem.as_agent("o", role="orchestrator", tenant="other")
        assert TwofoldStore(other).search(()) == []
        reach = ["langgraph/users/1"]
        agent = TwofoldStore(mem.as_agent("e", role="executor", namespaces=reach))
        agent.put(("users", "1"), "k", {"text": "likes coffee"})
        assert agent.get(("users", "1"), "k").value == {"text": "likes coffee"}
        with pytest.raises(PermissionDenied):
            agent.put(("users", "2"), "k", ITEM)
        with pytest.raises(PermissionDenied):
            agent.get(("users", "2"), "k")
        with pytest.raises(PermissionDenied):
            agent.delete(("users", "1"), "k")


def test_the_embedder_is_asked_for_indexed_texts_only(clock: Any) -> None:
    seen: list[str] = []

    async def embed(texts: list[str]) -> list[list[float]]:
        seen.extend(texts)
        return [[1.0, float(len(t))] for t in texts]

    index = {"dims": 2, "embed": embed, "fields": ["text"]}
    with TwofoldStore.from_conn_string(":memory:", index=index, clock=clock) as store:
        store.put(("a",), "shown", {"text": "tea", "secret": "s3"})
        store.put(("a",), "hidden", {"text": "coffee"}, index=False)
        assert seen == ["tea"]
        found = store.search(("a",), query="tea")
        assert [(item.key, item.score is None) for item in found] == [("shown", False), ("hidden", True)]
    with AgentMemory(":memory:", embedder="hashing:64") as mem, pytest.raises(InvalidInput, match="embed"):
        TwofoldStore(mem, index=index)
    assert "embed" in LangChainEmbedder.of(index).fingerprint


def test_reads_refresh_and_sweeps_retract(mem: AgentMemory, clock: Any) -> None:
    store = TwofoldStore(mem, ttl={"default_ttl": 10, "refresh_on_read": True, "omit_expired": True})
    store.put(("a",), "read", {"": ""})
    store.put(("a",), "left", {"": ""})
    clock.advance(minutes=6)
    assert store.get(("a",), "read") is not None
    clock.advance(minutes=6)
    assert [item.key for item in store.search(("a",), refresh_ttl=False)] == ["read"]
    assert store.sweep_ttl() == 1
    clock.advance(minutes=6)
    assert store.sweep_ttl() == 1
    assert store.list_namespaces() == []
