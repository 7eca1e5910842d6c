"""Contexts: roles, visibility, quotas and budgets, the same over a store and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from twofold.compat.agent_memory import AgentMemory
from twofold.compat.agent_memory.client import MemoryClient
from twofold.compat.agent_memory.context import (
    ROLE_PERMISSIONS,
    AgentContext,
    AgentRole,
    Visibility,
    WriteQuotaExceeded,
)
from twofold.errors import BudgetError, InvalidInput, PermissionDenied, StoreError

Make = Callable[..., AgentContext]


@pytest.fixture(params=["store", "http"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes root contexts, over a store in this process or over a client of a server."""
    if request.param == "store":
        memory: Any = request.getfixturevalue("mem")
    else:
        pytest.importorskip("uvicorn", reason="needs the extra [serve]")
        running = request.getfixturevalue("serve")(dev="default")
        memory = MemoryClient(running.url)
    yield lambda agent_id="root", **fields: AgentContext(agent_id, memory=memory, **fields)
    memory.close()


def root(make: Make, **fields: Any) -> AgentContext:
    fields.setdefault("namespace", "team")
    return make("root", role=AgentRole.ORCHESTRATOR, **fields)


def test_a_context_works_over_store_and_http(make: Make) -> None:
    ctx = root(make)
    made = ctx.add_memory("Port of order-service is 8080", ["port"], "technical", "order-service")
    assert made.metadata == {
        "_agent_id": "root",
        "_session_id": ctx.session_id,
        "_namespace": "team",
        "_visibility": "public",
        "_role": "orchestrator",
        "_parent_agent_id": None,
    }
    assert made.namespace == "team"
    assert [r.memory.id for r in ctx.recall("order-service port")] == [made.id]
    assert ctx.recall_as_context("order-service port").startswith("Relevant memories:\n- [")
    assert [m.id for m in ctx.search(category="technical")] == [made.id]
    assert [m.id for m in ctx.timeline("order-service")] == [made.id]
    assert ctx.get(made.id) is not None
    assert ctx.health()["healthy"]
    assert ctx.forget(made.id) is True
    assert ctx.forget("nothing") is False
    assert ctx.recall("order-service port") == []


@pytest.mark.parametrize("role", list(AgentRole), ids=lambda r: r.value)
def test_the_matrix_of_roles(make: Make, role: AgentRole) -> None:
    ctx = root(make)
    made = ctx.add_memory("Shared plan")
    other = root(make, namespace="other")
    other.add_memory("Plan of the others")
    agent = ctx.as_agent("a", role)
    allowed = ROLE_PERMISSIONS[role]
    assert agent.recall("shared plan")[0].memory.id == made.id
    if "write" in allowed:
        assert agent.add_memory("Its own").namespace == "team"
    else:
        with pytest.raises(PermissionError, match=f"role={role.value}.*lacks permission 'write'"):
            agent.add_memory("Its own")
    if role in (AgentRole.ORCHESTRATOR, AgentRole.REVIEWER):
        # A chosen role above lets through what it could do itself.
        assert [m.content for m in agent.search(namespace="other")] == ["Plan of the others"]
    else:
        with pytest.raises(PermissionDenied):
            agent.search(namespace="other")
    if "forget" in allowed:
        assert agent.forget(made.id) is True
    else:
        with pytest.raises(PermissionError, match="lacks permission 'forget'"):
            agent.forget(made.id)


def test_the_data_layer_holds_roles_too(mem: AgentMemory) -> None:
    ctx = AgentContext("root", memory=mem, namespace="team")
    reviewer = ctx.as_agent("r", AgentRole.REVIEWER)._handle()
    planner = ctx.as_agent("p", AgentRole.PLANNER)._handle()
    made = ctx.add_memory("A plan")
    for refused in (
        lambda: reviewer.add("x"),
        lambda: reviewer.update(made.id, content="x"),
        lambda: planner.forget(made.id),
        lambda: planner.forget_before("2999-01-01"),
        lambda: planner.compact(),
        lambda: planner.add("x", namespace="other"),
    ):
        with pytest.raises(PermissionDenied):
            refused()


def test_a_context_cannot_give_what_it_has_not(make: Make) -> None:
    planner = root(make).as_agent("p", AgentRole.PLANNER)
    child = planner.as_agent("c", AgentRole.ORCHESTRATOR)
    made = child.add_memory("May write")
    with pytest.raises(PermissionError):
        child.forget(made.id)
    with pytest.raises(PermissionError):
        planner.as_agent("r", AgentRole.REVIEWER).as_agent("x", AgentRole.EXECUTOR).add_memory("No")


def test_a_role_nobody_chose_does_not_bind_others(make: Make) -> None:
    ctx = make("root", namespace="team")
    assert ctx.role is AgentRole.EXECUTOR
    made = ctx.add_memory("A note")
    with pytest.raises(PermissionError):
        ctx.forget(made.id)
    assert ctx.as_agent("boss", AgentRole.ORCHESTRATOR).forget(made.id) is True


def test_default_means_the_default_namespace(make: Make) -> None:
    root(make, namespace="a").add_memory("Secret of a")
    ctx = make("root", role=AgentRole.EXECUTOR)
    ctx.add_memory("Note of default")
    assert [r.content for r in ctx.recall("secret note")] == ["Note of default"]
    assert [m.content for m in ctx.search(namespace=None)] == ["Note of default"]
    assert [m.content for m in ctx.search()] == ["Note of default"]


def test_by_id_nothing_of_another_namespace(make: Make) -> None:
    made = root(make, namespace="a").add_memory("Secret of a")
    ctx = make("b", namespace="b", role=AgentRole.EXECUTOR)
    boss = root(make, namespace="b")
    assert ctx.get(made.id) is None
    try:
        assert boss.forget(made.id) is False
    except PermissionDenied:
        assert isinstance(boss.memory, AgentMemory)  # an orchestrator sees it, and is told why it may not
    assert root(make, namespace="a").get(made.id).status == "active"  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [Visibility.PRIVATE, Visibility.SYSTEM])
def test_private_is_the_authors_alone(make: Make, width: Visibility) -> None:
    ctx = root(make)
    alice, bob = ctx.as_agent("alice", AgentRole.PLANNER), ctx.as_agent("bob", AgentRole.ORCHESTRATOR)
    made = alice.add_memory("Alice thinks of leaving", visibility=width, entity="plans")
    assert [r.memory.id for r in alice.recall("leaving")] == [made.id]
    for other in (bob, ctx):
        assert other.recall("leaving") == []
        assert other.search() == []
        assert other.timeline("plans") == []
        assert other.get(made.id) is None
        assert other.forget(made.id) is False


def test_team_is_for_the_namespace(make: Make) -> None:
    ctx = root(make)
    made = ctx.add_memory("Team matter", visibility=Visibility.TEAM)
    ctx.add_memory("Public matter")
    assert made.id in [m.id for m in ctx.as_agent("b", AgentRole.MONITOR).search()]
    stranger = make("stranger", namespace="other", role=AgentRole.REVIEWER)
    assert [m.content for m in stranger.search(namespace="team")] == ["Public matter"]


def test_each_agent_has_its_own_quota(make: Make) -> None:
    ctx = root(make, max_writes_per_agent=2)
    a, b = ctx.as_agent("a"), ctx.as_agent("b")
    for i in range(2):
        a.add_memory(f"a {i}")
    for kind in (RuntimeError, PermissionError):
        with pytest.raises(kind, match=r"Agent 'a' exceeded write quota \(2\)"):
            a.add_memory("one more")
    b.add_memory("b 0")
    assert len(ctx.memories_written) == 3


def test_a_fresh_context_does_not_reset_the_quota(mem: AgentMemory) -> None:
    AgentContext("a", memory=mem, max_writes_per_agent=1).add_memory("one")
    with pytest.raises(WriteQuotaExceeded):
        AgentContext("a", memory=mem, max_writes_per_agent=1).add_memory("two")


def test_read_only_is_inherited(make: Make) -> None:
    ctx = root(make, read_only=True)
    child = ctx.as_agent("c", AgentRole.ORCHESTRATOR, read_only=False).as_agent("d", AgentRole.EXECUTOR)
    assert child.read_only is True
    with pytest.raises(PermissionError, match="read-only"):
        child.add_memory("x")
    assert root(make).as_agent("c", read_only=True).as_agent("d").read_only is True


def test_budgets_are_spent_from_those_above(make: Make) -> None:
    ctx = root(make)
    ctx.add_memory("one two three four five six seven eight nine ten")
    child = ctx.as_agent("c", token_budget=30)
    assert child.recall("one two")
    assert (child.token_budget_used, ctx.token_budget_used) == (13, 13)
    assert child.recall("one two")  # from the cache or not: it fills the prompt again
    assert child.token_budget_used == 26
    child.recall("one two")  # the first one is returned though it is larger than what is left
    # A store's handle returned it whole; a server cut it to the budget, and one token is left that holds no word.
    with pytest.raises((BudgetError, InvalidInput), match=r"used up|budget of 1 tokens"):
        child.recall("one two")
    with pytest.raises(BudgetError):
        ctx.as_agent("z", token_budget=0).recall("one two")
    with pytest.raises(BudgetError):
        ctx.recall("one two", 0)


def test_the_cache_follows_the_store(make: Make) -> None:
    ctx = root(make)
    ctx.add_memory("Port is 8080")
    assert len(ctx.recall("port")) == 1
    ctx.as_agent("other").add_memory("Port is 9090")
    assert len(ctx.recall("port")) == 2


def test_what_children_do_is_counted_above_and_not_beside(make: Make) -> None:
    ctx = root(make)
    a, b = ctx.as_agent("a"), ctx.as_agent("b")
    a.add_memory("Note of a", entity="Acme")
    a.recall("note")
    a.flag_for_review("odd")
    a.set_scratchpad("plan", [1])
    assert (b.memories_written, b.compliance_tags, b.requires_human_review) == ([], [], False)
    assert b.get_scratchpad("plan") == [1]
    assert b.get_scratchpad("none", 7) == 7
    summary = ctx.session_summary()
    assert summary == {
        "session_id": ctx.session_id,
        "agent_id": "root",
        "namespace": "team",
        "agent_trail": [],
        "memories_written": 1,
        "memories_recalled": 1,
        "entities_discovered": ["Acme"],
        "token_budget_total": 20000,
        "token_budget_used": ctx.token_budget_used,
        "token_budget_remaining": 20000 - ctx.token_budget_used,
        "requires_human_review": True,
        "compliance_tags": ["review:odd"],
        "scratchpad_keys": ["plan"],
    }
    assert a.agent_trail == ["a"]
    assert (a.parent_agent_id, a.session_id) == ("root", ctx.session_id)


def test_provenance_wins_over_the_callers_metadata(make: Make) -> None:
    made = root(make).add_memory("x", metadata={"_agent_id": "forged", "k": 1})
    assert made.metadata["_agent_id"] == "root"
    assert made.metadata["k"] == 1


def test_from_env_takes_overrides(tmp_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMWRIGHT_PATH", str(tmp_store))
    monkeypatch.setenv("MEMWRIGHT_NAMESPACE", "env")
    monkeypatch.setenv("MEMWRIGHT_TOKEN_BUDGET", "500")
    with AgentContext.from_env(agent_id="planner", namespace="project:x", token_budget=5000) as ctx:
        assert (ctx.namespace, ctx.token_budget, ctx.agent_trail) == ("project:x", 5000, ["planner"])
        ctx.add_memory("A plan")
        assert ctx.recall("plan")
    with AgentContext.from_env("planner") as ctx:
        assert (ctx.namespace, ctx.token_budget) == ("env", 500)
    monkeypatch.setenv("MEMWRIGHT_TOKEN_BUDGET", "many")
    with pytest.raises(InvalidInput, match="MEMWRIGHT_TOKEN_BUDGET"):
        AgentContext.from_env("planner")


def test_without_a_memory_it_says_what_to_give() -> None:
    with pytest.raises(RuntimeError, match="memory_url"):
        AgentContext("a").recall("x")
    with pytest.raises(InvalidInput, match="unknown role"):
        AgentContext("a", role="king")  # type: ignore[arg-type]


def test_a_client_says_what_the_server_says(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra [serve]")
    running = request.getfixturevalue("serve")()
    with MemoryClient(running.url) as stranger, pytest.raises(PermissionDenied):
        stranger.stats()
    with MemoryClient(running.url, headers={"Authorization": f"Bearer {running.key()}"}) as client:
        made = client.add("A fact", namespace="default")
        assert client.get(made.id).content == "A fact"  # type: ignore[union-attr]
        assert client.get("nothing") is None
        assert client.stats()["total_memories"] == 1
        assert client.recall_as_context("fact").startswith("Relevant memories:")
        with pytest.raises(InvalidInput):
            client.add("")
    with pytest.raises(StoreError, match="does not answer"):
        MemoryClient("http://127.0.0.1:1").stats()
    with pytest.raises(InvalidInput, match="http"):
        MemoryClient("ftp://x")
