"""The role matrix, as DESIGN section 4 writes it: who may do what, where, and what a refusal leaves behind."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, Role, errors

SPACES = ["default", "build/a", "facts/a", "plans", "private", "audit"]
TYPES = ["fact", "decision", "plan", "result", "log", "observation", "knowledge", "review", "correction"]

# Where each role reads, asked from an owner's handle in "default" and granted build/* where the role is granted.
READS: dict[str, set[str]] = {
    "owner": set(SPACES),
    "orchestrator": set(SPACES),
    "planner": {"default", "build/a", "facts/a", "plans"},
    "executor": {"build/a", "facts/a"},
    "researcher": {"default", "build/a", "facts/a", "plans"},
    "reviewer": {"default", "build/a", "facts/a", "plans"},
    "monitor": set(SPACES),
}
# What each role writes: types, and the namespaces where.
WRITES: dict[str, tuple[set[str], set[str]]] = {
    "owner": (set(TYPES), set(SPACES)),
    "orchestrator": (set(TYPES), set(SPACES)),
    "planner": ({"decision", "plan", "fact"}, {"default", "build/a", "facts/a", "plans"}),
    "executor": ({"result", "log", "observation", "fact"}, {"build/a", "facts/a"}),
    "researcher": ({"knowledge", "fact"}, {"default", "build/a", "facts/a", "plans"}),
    "reviewer": ({"review", "correction"}, {"default", "build/a", "facts/a", "plans"}),
    "monitor": ({"observation"}, {"facts/a"}),
}
# What else: action -> who may. Everybody else must be refused.
MAY: dict[str, set[str]] = {
    "recall": set(READS),
    "search": set(READS),
    "get": set(READS),
    "timeline": set(READS),
    "history": set(READS),
    "why": set(READS),
    "explain": set(READS),
    "stats": set(READS),
    "feedback": set(READS),
    "forget": {"owner", "orchestrator"},
    "restore": {"owner", "orchestrator"},
    "as_agent": {"owner", "orchestrator"},
    "maintain": {"owner", "orchestrator"},
    "fit_profile": {"owner", "orchestrator"},
    "export": {"owner", "orchestrator"},
    "link": {"owner", "orchestrator", "planner", "executor", "researcher"},
    "supersede": {"owner", "orchestrator", "planner", "executor", "researcher", "reviewer", "monitor"},
    "flag": {"owner", "orchestrator", "reviewer"},
    "audit": {"owner", "orchestrator", "monitor"},
    "receipts": {"owner", "orchestrator", "monitor"},
    "verify": {"owner", "orchestrator", "monitor"},
    "health": {"owner", "orchestrator", "monitor"},
    "doctor": {"owner", "orchestrator", "monitor"},
    "erase": {"owner"},
    "erase_where": {"owner"},
    "gc": {"owner"},
    "import": {"owner"},
    "reembed": {"owner"},
    "backup": {"owner"},
}


@pytest.fixture
def mem(clock: Any) -> Iterator[AgentMemory]:
    clock.set("2026-03-01T00:00:00Z")
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as mem:
        yield mem


def handle(mem: AgentMemory, who: str, **options: Any) -> AgentMemory:
    if who == "owner":
        return mem
    if who == "executor":
        options.setdefault("namespaces", ["build/*"])
    return mem.as_agent(f"{who}-1", role=who, **options)


def filled(mem: AgentMemory) -> dict[str, str]:
    return {space: mem.add(f"the gate of {space} is open", namespace=space).id for space in SPACES}


def refusals(mem: AgentMemory) -> list[dict[str, Any]]:
    return [e for e in mem.audit() if e["kind"] == "refuse"]


# -- the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", READS)
def test_reads_reach_as_far_as_the_role(mem: AgentMemory, who: str) -> None:
    ids = filled(mem)
    agent = handle(mem, who)
    seen = {space for space, i in ids.items() if agent.get(i) is not None}
    assert seen == READS[who]
    assert {m.namespace for m in agent.search(namespaces="*")} == READS[who]
    assert {h.memory.namespace for h in agent.recall("gate open", k=100, namespaces="*")} == READS[who]
    assert set(agent.stats()["by_namespace"]) == READS[who]
    for space in SPACES:
        if space in READS[who]:
            assert [m.id for m in agent.search(namespaces=space)] == [ids[space]]
            continue
        with pytest.raises(errors.PermissionDenied):
            agent.search(namespaces=space)
        with pytest.raises(errors.PermissionDenied):
            agent.recall("gate", namespaces=["facts/*", space])
        with pytest.raises(errors.NotFound):
            agent.history(ids[space])


@pytest.mark.parametrize("who", WRITES)
def test_writes_by_type_and_namespace(mem: AgentMemory, who: str) -> None:
    agent, (types, spaces) = handle(mem, who), WRITES[who]
    allowed = set()
    for space in SPACES:
        for memory_type in TYPES:
            try:
                agent.add(f"{memory_type} in {space}", namespace=space, memory_type=memory_type)
            except errors.PermissionDenied:
                continue
            allowed.add((memory_type, space))
    expected = {(t, s) for t in types for s in spaces}
    if who == "executor":  # of general use are its facts, not its results and logs
        expected -= {(t, "facts/a") for t in types - {"fact"}}
    assert allowed == expected
    denied = len(SPACES) * len(TYPES) - len(allowed)
    assert len([e for e in refusals(mem) if e["agent_id"] == agent.agent_id]) == denied


def actions(mem: AgentMemory, who: str, tmp_path: Path) -> dict[str, Callable[[AgentMemory], Any]]:
    """Each action on a row that the role can see, where it may write if it may write at all."""
    space = {"executor": "build/a", "monitor": "facts/a", "orchestrator": "private"}.get(who, "default")
    kind = "fact"
    first, second, third = (
        mem.add(f"note {n} of the gate", namespace=space, memory_type=kind, entities=["Juno"]).id
        for n in range(3)
    )
    mem.forget(third)
    exported = tmp_path / "whole.jsonl"
    mem.export_json(exported)
    return {
        "recall": lambda h: h.recall("gate"),
        "search": lambda h: h.search(namespaces=space),
        "get": lambda h: h.get(first),
        "timeline": lambda h: h.timeline("Juno", namespaces=space),
        "history": lambda h: h.history(first),
        "why": lambda h: h.why(first),
        "explain": lambda h: h.explain("gate", first),
        "stats": lambda h: h.stats(),
        "feedback": lambda h: h.feedback(h.recall("gate").receipt),
        "forget": lambda h: h.forget(second),
        "restore": lambda h: h.restore(third),
        "as_agent": lambda h: h.as_agent("other", role=Role.PLANNER),
        "maintain": lambda h: h.maintain(),
        "fit_profile": lambda h: h.fit_profile(),
        "export": lambda h: h.export_json(tmp_path / "mine.jsonl"),
        "link": lambda h: h.link(first, second),
        "supersede": lambda h: h.supersede(first, second, dry_run=True),
        "flag": lambda h: h.flag(first, "is it right?"),
        "audit": lambda h: h.audit(),
        "receipts": lambda h: h.receipts(),
        "verify": lambda h: h.verify(),
        "health": lambda h: h.health(),
        "doctor": lambda h: h.doctor(),
        "erase": lambda h: h.erase(first, reason="asked for"),
        "erase_where": lambda h: h.erase_where(namespace=space, dry_run=False, reason="asked for"),
        "gc": lambda h: h.gc(),
        "import": lambda h: h.import_json(exported, dry_run=True),
        "reembed": lambda h: h.reembed("hashing:96"),
        "backup": lambda h: backup(h, tmp_path / "copy.db"),
    }


def backup(handle: AgentMemory, path: Path) -> None:
    with contextlib.suppress(errors.StoreError):  # who may, is told that a store in memory has none
        handle.backup(path)


@pytest.mark.parametrize("action", MAY)
@pytest.mark.parametrize("who", READS)
def test_actions_by_role(mem: AgentMemory, who: str, action: str, tmp_path: Path) -> None:
    call = actions(mem, who, tmp_path)[action]
    agent = handle(mem, who, **({"namespace": "build/a"} if who == "executor" else {}))
    before = len(refusals(mem))
    if who in MAY[action]:
        call(agent)
        assert len(refusals(mem)) == before
        return
    state = mem.stats()["seq"]
    with pytest.raises(errors.PermissionDenied, match=agent.agent_id):
        call(agent)
    log = refusals(mem)
    assert len(log) == before + 1
    assert (log[-1]["agent_id"], log[-1]["agent_role"]) == (agent.agent_id, who)
    assert mem.stats()["seq"] == state + 1, "a refusal writes its audit entry and nothing else"


def test_the_matrix_names_every_action() -> None:
    from tests.test_isolation import CALLS

    named = {a.replace("export", "export_json").replace("import", "import_json") for a in MAY}
    plain = {"tenant", "namespace", "agent_id", "role", "embedder", "clock", "flush", "read_only", "__iter__"}
    by_type = {"add", "add_many", "update", "recall_as_context", "current_facts", "replay"}
    assert set(CALLS) - plain - by_type <= named


# -- narrowing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", list(Role))
def test_handles_only_narrow(mem: AgentMemory, role: Role) -> None:
    ids = filled(mem)
    boss = mem.as_agent("boss", role=Role.ORCHESTRATOR, namespaces=["build/*"])
    made = boss.as_agent("x", role=role, namespaces=["*"])
    reach = {s for s, i in ids.items() if made.get(i) is not None}
    assert reach <= {"build/a", "facts/a"}
    for space in ("default", "plans", "private"):
        with pytest.raises(errors.PermissionDenied):
            made.add("x", namespace=space, memory_type="fact")
    if role != Role.ORCHESTRATOR:
        with pytest.raises(errors.PermissionDenied):
            made.as_agent("y", role=Role.ORCHESTRATOR)


def test_read_only_is_inherited(mem: AgentMemory) -> None:
    ids = filled(mem)
    for parent in (
        mem.as_agent("boss", role=Role.ORCHESTRATOR, read_only=True),
        mem.as_agent("boss", role=Role.ORCHESTRATOR).read_only(),
        mem.read_only(),
    ):
        assert parent.get(ids["default"]) is not None
        for write in (
            lambda h: h.add("x"),
            lambda h: h.forget(ids["default"]),
            lambda h: h.update(ids["default"], content="y"),
            lambda h: h.link(ids["default"], ids["plans"]),
            lambda h: h.flag(ids["default"], "?"),
            lambda h: h.erase(ids["default"], reason="r"),
            lambda h: h.recall("gate", keep=True),
            lambda h: h.as_agent("child", role=Role.EXECUTOR),
        ):
            with pytest.raises(errors.PermissionDenied):
                write(parent)
        assert len(parent.recall("gate", namespaces="*")) > 0
    mem.flush()
    assert all(m.access_count == 0 for m in mem.search(namespaces="*")), "read-only recalls never promote"


def test_a_child_of_a_read_only_parent_cannot_write(mem: AgentMemory) -> None:
    """Grants are a chain: whatever the child is called, the parent's bar stays."""
    from twofold.access import Grant, Principal

    parent = Grant(Role.ORCHESTRATOR, None, read_only=True)
    child = Principal("default", "c", (parent, Grant(Role.EXECUTOR, ("build/*",))))
    assert child.read_only
    assert not child.writes("build/a", "fact")
    assert not child.may("supersede")


def test_another_tenant_needs_admin(mem: AgentMemory, tmp_path: Path, clock: Any) -> None:
    with pytest.raises(errors.PermissionDenied):
        mem.as_agent("a", tenant="other")
    assert refusals(mem)[-1]["payload"]["action"] == "as_agent"
    with AgentMemory(tmp_path / "admin", embedder=None, clock=clock, admin=True) as admin:
        agent = admin.as_agent("a", role=Role.ORCHESTRATOR, tenant="other")
        agent.add("theirs", namespace="default")
        assert admin.search(namespaces="*") == []
        with pytest.raises(errors.PermissionDenied):
            agent.as_agent("b", tenant="default")


def test_closing_an_agents_handle_leaves_the_others_open(mem: AgentMemory) -> None:
    with mem.as_agent("plan-1", role=Role.PLANNER) as agent:
        agent.add("we go by train", memory_type="decision")
        agent.recall("train")
    assert [m.access_count for m in mem.search()] == [1]


def test_a_handle_outlives_the_one_it_was_made_from(tmp_path: Path) -> None:
    agent = AgentMemory(tmp_path / "other", embedder=None).as_agent("plan-1", role=Role.PLANNER)
    gc.collect()
    assert agent.add("we go by train").version == 1
    agent._vault.close()


# -- quotas -----------------------------------------------------------------------------------------------


def test_a_quota_is_per_agent_and_survives_reopening(tmp_path: Path, clock: Any) -> None:
    def opened() -> AgentMemory:
        return AgentMemory(tmp_path / "store", embedder=None, clock=clock)

    with opened() as mem:
        a = mem.as_agent("a", role=Role.PLANNER, write_quota=3)
        b = mem.as_agent("b", role=Role.PLANNER, write_quota=3)
        made = [a.add(f"fact {n}").id for n in range(2)]
        b.add("another's fact")
        a.add("fact 0")  # a repetition writes nothing
        a.update(made[0], content="fact 0, corrected")
        for write in (
            lambda: a.add("fact 3"),
            lambda: a.update(made[0], content="again"),
            lambda: a.link(made[0], made[1]),
            lambda: a.supersede(made[0], made[1]),
        ):
            with pytest.raises(errors.QuotaExceeded):
                write()
        assert b.add("b still may").agent_id == "b"
        assert len(refusals(mem)) == 4
        assert a.recall("fact").hits, "reads, and the uses they log, are outside the quota"
    with opened() as mem:
        again = mem.as_agent("a", role=Role.EXECUTOR, namespaces=["default"], write_quota=3)
        with pytest.raises(errors.QuotaExceeded):
            again.add("fact 4")
        assert mem.as_agent("a", role=Role.PLANNER, write_quota=4).add("fact 5").agent_id == "a"


def test_every_write_counts_once(mem: AgentMemory) -> None:
    agent = mem.as_agent("a", role=Role.ORCHESTRATOR, write_quota=8)
    one, two = agent.add("one").id, agent.add("two", key="k").id
    agent.add("three", key="k")  # ends the second by itself: one write
    agent.supersede(one, two)
    agent.restore(one)
    agent.link(one, two)
    agent.forget(two)
    agent.flag(one, "?")
    with pytest.raises(errors.QuotaExceeded):
        agent.add("nine")


def test_a_batch_over_the_quota_stores_nothing(mem: AgentMemory) -> None:
    agent = mem.as_agent("a", role=Role.PLANNER, write_quota=2)
    with pytest.raises(errors.QuotaExceeded):
        agent.add_many(["one", "two", "three"])
    assert mem.search() == []
    assert len(agent.add_many(["one", "two"])) == 2


def test_a_child_has_no_larger_quota_than_its_parent(mem: AgentMemory) -> None:
    boss = mem.as_agent("boss", role=Role.ORCHESTRATOR, write_quota=1)
    child = boss.as_agent("child", role=Role.PLANNER, write_quota=100)
    child.add("one")
    with pytest.raises(errors.QuotaExceeded):
        child.add("two")
    none = mem.as_agent("none", role=Role.PLANNER, write_quota=0)
    with pytest.raises(errors.QuotaExceeded):
        none.add("another")


# -- visibility -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "visibility,seen",
    [
        ("public", {"author", "teammate", "planner", "reader of facts", "boss", "owner"}),
        ("team", {"author", "teammate", "planner", "boss", "owner"}),
        ("private", {"author", "boss", "owner"}),
    ],
)
def test_visibility(mem: AgentMemory, visibility: str, seen: set[str]) -> None:
    """In facts/infra, which an executor of build/* may read without belonging to it."""
    handles = {
        "author": mem.as_agent("author", role=Role.EXECUTOR, namespaces=["facts/*"]),
        "teammate": mem.as_agent("teammate", role=Role.EXECUTOR, namespaces=["facts/*"]),
        "planner": mem.as_agent("plan-1", role=Role.PLANNER),
        "reader of facts": mem.as_agent("reader", role=Role.EXECUTOR, namespaces=["build/*"]),
        "boss": mem.as_agent("boss", role=Role.ORCHESTRATOR),
        "owner": mem,
    }
    made = handles["author"].add(
        "the door code is 7781", namespace="facts/infra", visibility=visibility, entities=["Juno"]
    )
    for name, one in handles.items():
        expected = [made.id] if name in seen else []
        ways = (
            [m.id for m in one.search(namespaces="facts/*")],
            [h.memory.id for h in one.recall("door code", namespaces="facts/*")],
            [m.id for m in one.timeline("Juno", namespaces="facts/*")],
            [m.id for m in one.current_facts(namespaces="facts/*")],
            [m.id for m in [one.get(made.id)] if m is not None],
        )
        assert all(way == expected for way in ways), (name, ways)


def test_a_private_memory_neither_merges_with_nor_ends_what_others_see(mem: AgentMemory) -> None:
    a = mem.as_agent("a", role=Role.PLANNER)
    b = mem.as_agent("b", role=Role.PLANNER)
    secret = a.add("The port of Juno is 8080", visibility="private")
    public = b.add("The port of Juno is 8080")
    assert public.id != secret.id, "a repetition must not reveal a row the writer cannot see"
    a.add("The port of Juno is 9090", visibility="private", supersedes=[secret.id])
    assert [m.id for m in b.current_facts()] == [public.id]
    with pytest.raises(errors.InvalidInput, match="more readers"):
        a.add("The port of Juno is 9191", visibility="private", supersedes=[public.id])
    suggested = [e for e in mem.audit() if e["kind"] == "suggest"]
    assert suggested[-1]["payload"]["reason"] == "it is visible to more readers than the newer one"


def test_a_correction_does_not_hide_anothers_memory(mem: AgentMemory) -> None:
    a, b = (mem.as_agent(n, role=Role.PLANNER) for n in "ab")
    made = a.add("we meet on Friday")
    with pytest.raises(errors.PermissionDenied, match="hide"):
        b.update(made.id, visibility="private")
    assert b.update(made.id, content="we meet on Monday").agent_id == "b"
    own = b.add("my own note")
    assert b.update(own.id, visibility="private").visibility == "private"
    assert a.get(own.id) is None


def test_why_tells_of_no_relation_to_what_may_not_be_seen(mem: AgentMemory) -> None:
    seen, hidden, other = (
        mem.add("seen", namespace="facts/a").id,
        mem.add("hidden", namespace="private").id,
        mem.add("other", namespace="facts/a").id,
    )
    mem.link(seen, hidden, "is the code name of")
    mem.link(other, seen, "explains")
    planner = mem.as_agent("p", role=Role.PLANNER)
    told = planner.why(seen)
    assert [e["payload"]["relation"] for e in told.events if e["kind"] == "link"] == ["explains"]
    assert hidden not in str(told.events)
    assert len([e for e in mem.why(seen).events if e["kind"] == "link"]) == 2


def test_a_narrowed_monitor_audits_its_namespaces_only(mem: AgentMemory) -> None:
    filled(mem)
    narrow = mem.as_agent("m", role=Role.MONITOR, namespaces=["facts/*"])
    assert {e["namespace"] for e in narrow.audit()} == {"facts/a"}
    assert len(mem.as_agent("m2", role=Role.MONITOR).audit()) > len(narrow.audit())


def test_feedback_on_anothers_recall_is_refused(mem: AgentMemory) -> None:
    made = mem.add("the gate is open")
    kept = mem.recall("gate", keep=True).receipt
    planner = mem.as_agent("p", role=Role.PLANNER)
    for receipt in (kept, kept.id):
        with pytest.raises(errors.PermissionDenied):
            planner.feedback(receipt, [made.id])
