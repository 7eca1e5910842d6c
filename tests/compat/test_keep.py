"""What Memwright's users rely on: the cases of section 12 A of its compatibility notes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.clock import ManualClock
from twofold.compat.agent_memory import AgentMemory, Memory, RetrievalResult
from twofold.compat.agent_memory.utils.config import MemoryConfig
from twofold.compat.agent_memory.utils.tokens import estimate_tokens
from twofold.errors import InvalidInput

Open = Callable[..., AgentMemory]


def test_open_makes_the_folder_its_settings_and_the_database(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "a" / "b", embedder="hashing") as mem:
        assert mem.path == tmp_path / "a" / "b"
        assert json.loads((mem.path / "config.json").read_text())["default_token_budget"] == 16000
        assert (mem.path / "twofold.db").is_file()


def test_closing_and_opening_again_loses_nothing(open_mem: Open) -> None:
    with open_mem() as mem:
        memory = mem.add("User prefers Rust")
    with open_mem() as mem:
        assert mem.get(memory.id) == memory


def test_custom_settings_come_back_with_unknown_backends(open_mem: Open) -> None:
    config = {
        "default_token_budget": 500,
        "mmr_lambda": 0.5,
        "mine": {"url": "x", "deep": {"a": 1}},
        "odd": 3,
    }
    open_mem(config).close()
    again = open_mem().config
    assert (again.default_token_budget, again.mmr_lambda) == (500, 0.5)
    assert again.backend_configs == {"mine": {"url": "x", "deep": {"a": 1}}}
    assert MemoryConfig.from_dict(again.to_dict()) == again


def test_add_then_get_gives_every_field(mem: AgentMemory) -> None:
    made = mem.add(
        "Moved to Oslo", ["travel", "home"], "location", "Alice", "team:a", "2024-01-15", 0.8, {"page": 3}
    )
    found = mem.get(made.id)
    assert found == made
    assert found is not None
    assert (found.content, found.tags, found.category, found.entity) == (
        "Moved to Oslo",
        ["travel", "home"],
        "location",
        "Alice",
    )
    assert (found.namespace, found.event_date, found.confidence, found.metadata) == (
        "team:a",
        "2024-01-15",
        0.8,
        {"page": 3},
    )
    assert (found.status, found.valid_until, found.superseded_by, found.access_count) == (
        "active",
        None,
        None,
        0,
    )
    assert found.created_at.endswith("+00:00")
    assert len(found.created_at) == len("2026-01-01T00:00:00.000000+00:00")


def test_get_of_nothing_is_none(mem: AgentMemory) -> None:
    assert mem.get("nothing") is None


def test_a_memory_without_an_entity_has_none(mem: AgentMemory) -> None:
    made = mem.add("Alice Jansen met Bob Diaz in Oslo")
    assert made.entity is None
    assert mem.timeline("Alice Jansen") == []


def test_forget_archives(mem: AgentMemory) -> None:
    made = mem.add("Old news")
    assert mem.forget(made.id) is True
    found = mem.get(made.id)
    assert found is not None
    assert found.status == "archived"
    assert mem.search("old news") == []
    assert mem.recall("old news") == []
    assert mem.forget("nothing") is False


def test_forget_before_counts(open_mem: Open) -> None:
    clock = ManualClock("2026-01-01T00:00:00Z")
    mem = open_mem(clock=clock)
    old = [mem.add(f"Old {i}").id for i in range(3)]
    clock.advance(days=10)
    new = mem.add("New")
    assert mem.forget_before("2026-01-05") == 3
    assert [m.id for m in mem.search(status="archived")] == old[::-1]
    assert [m.id for m in mem.search()] == [new.id]


def test_compact_removes_what_is_archived_and_counts(mem: AgentMemory) -> None:
    gone = [mem.add(f"Gone {i}").id for i in range(3)]
    kept = mem.add("Kept")
    for memory_id in gone:
        mem.forget(memory_id)
    assert mem.compact() == 3
    assert mem.compact() == 0
    assert [m.id for m in mem._all()] == [kept.id]
    assert mem.get(gone[0]) is None


@pytest.mark.parametrize("again", ["User likes tea", "  User likes tea\n"])
def test_the_same_content_is_the_same_memory(mem: AgentMemory, again: str) -> None:
    first = mem.add("User likes tea")
    assert mem.add(again).id == first.id
    assert mem.add(again, namespace="other").id != first.id
    assert first.content_hash == hashlib.sha256(b"User likes tea").hexdigest()
    assert AgentMemory._content_hash(again) == first.content_hash


def test_a_new_fact_supersedes_the_old_one_of_its_entity_and_category(mem: AgentMemory) -> None:
    old = mem.add("Works at Google", entity="user", category="career")
    new = mem.add("Works at Meta", entity="user", category="career")
    found = mem.get(old.id)
    assert found is not None
    assert (found.status, found.superseded_by) == ("superseded", new.id)
    assert found.valid_until is not None
    assert new.status == "active"


@pytest.mark.parametrize(
    "other",
    [
        {"entity": "bob", "category": "career"},
        {"entity": "user", "category": "personal"},
        {"category": "career"},
        {"entity": "user", "category": "career", "namespace": "other"},
    ],
)
def test_nothing_else_is_superseded(mem: AgentMemory, other: dict[str, str]) -> None:
    old = mem.add("Works at Google", entity="user", category="career")
    mem.add("Works at Meta", **other)
    assert mem.get(old.id) == old


def test_timeline_is_in_order_and_has_what_was_superseded(mem: AgentMemory) -> None:
    for year, place in ((2022, "Oslo"), (2020, "Rome"), (2024, "Lima")):
        mem.add(f"Lives in {place}", entity="user", category="location", event_date=f"{year}-05-01")
    found = mem.timeline("user")
    assert [m.content for m in found] == ["Lives in Rome", "Lives in Oslo", "Lives in Lima"]
    assert [m.status for m in found] == ["superseded", "superseded", "active"]


def test_current_facts_are_active_and_filtered(mem: AgentMemory) -> None:
    mem.add("Lives in Rome", entity="user", category="location")
    mem.add("Lives in Oslo", entity="user", category="location")
    mem.add("Works at Meta", entity="user", category="career")
    assert [m.content for m in mem.current_facts()] == ["Works at Meta", "Lives in Oslo"]
    assert [m.content for m in mem.current_facts(category="location")] == ["Lives in Oslo"]
    assert [m.content for m in mem.current_facts(entity="nobody")] == []


def test_search_by_category_entity_query_and_nothing(mem: AgentMemory) -> None:
    mem.add("Alice plays chess", category="personal", entity="Alice")
    mem.add("Bob plays football", category="personal", entity="Bob")
    mem.add("Deploy on Friday", category="project")
    assert [m.content for m in mem.search(category="project")] == ["Deploy on Friday"]
    assert [m.content for m in mem.search(entity="Alice")] == ["Alice plays chess"]
    assert mem.search("deploy friday")[0].content == "Deploy on Friday"
    assert [m.content for m in mem.search()] == [
        "Deploy on Friday",
        "Bob plays football",
        "Alice plays chess",
    ]
    assert len(mem.search(limit=2)) == 2
    assert mem.search(limit=0) == []


def test_search_after_and_before(open_mem: Open) -> None:
    clock = ManualClock("2026-01-01T00:00:00Z")
    mem = open_mem(clock=clock)
    for day in range(4):
        mem.add(f"Day {day}")
        clock.advance(days=1)
    found = mem.search(after="2026-01-02", before="2026-01-03T00:00:00+00:00")
    assert [m.content for m in found] == ["Day 2", "Day 1"]


def test_stats(mem: AgentMemory) -> None:
    mem.add("A", category="x")
    mem.forget(mem.add("B", category="x").id)
    mem.add("C", entity="e", category="y")
    mem.add("D", entity="e", category="y")
    found = mem.stats()
    assert found["total_memories"] == 4
    assert found["by_status"] == {"active": 2, "superseded": 1, "archived": 1}
    assert found["by_category"] == {"x": 2, "y": 2}
    assert found["db_size_bytes"] > 0


def test_export_and_import(open_mem: Open, tmp_path: Path) -> None:
    mem = open_mem(name="one")
    mem.add("A", ["t"], metadata={"k": 1})
    mem.add("B")
    mem.export_json(tmp_path / "out.json")
    assert [r["content"] for r in json.loads((tmp_path / "out.json").read_text())] == ["A", "B"]
    other = open_mem(name="two")
    assert other.import_json(tmp_path / "out.json") == 2
    assert other.import_json(tmp_path / "out.json") == 0
    assert other._all() == mem._all()


def test_execute_reads_the_table(mem: AgentMemory) -> None:
    mem.add("A", ["x", "y"], category="c")
    mem.add("B")
    assert mem.execute("SELECT content FROM memories WHERE category = ?", ["c"]) == [{"content": "A"}]
    assert mem.execute("SELECT COUNT(*) AS n FROM memories") == [{"n": 2}]
    with pytest.raises(InvalidInput, match="changes nothing"):
        mem.execute("DELETE FROM memories")
    assert mem.stats()["total_memories"] == 2


@pytest.mark.model
def test_recall_finds_a_meaning_without_its_words(tmp_store: Path) -> None:
    with AgentMemory(tmp_store) as mem:
        mem.add("User enjoys hiking in the mountains on weekends")
        mem.add("The build server runs Debian")
        mem.add("Invoices are due on the first of the month")
        for ranking in ("twofold", "compat"):
            found = mem.recall("What are her hobbies outdoors?", ranking=ranking)
            assert found[0].content == "User enjoys hiking in the mountains on weekends"


@pytest.mark.parametrize("ranking", ["twofold", "compat"])
def test_recall_respects_the_budget(open_mem: Open, ranking: str) -> None:
    mem = open_mem({"ranking": ranking})
    for i in range(20):
        mem.add(f"Order service note number {i} about port and host")
    for budget in (15, 40, 100):
        found = mem.recall("order service port", budget)
        assert found
        assert sum(estimate_tokens(r.content) for r in found) <= budget


@pytest.mark.parametrize("ranking", ["twofold", "compat"])
def test_an_empty_store_recalls_nothing(open_mem: Open, ranking: str) -> None:
    mem = open_mem({"ranking": ranking})
    assert mem.recall("anything at all") == []
    assert mem.recall_as_context("anything at all") == ""


@pytest.mark.parametrize("ranking", ["twofold", "compat"])
def test_context_has_a_header_and_a_line_a_memory(open_mem: Open, ranking: str) -> None:
    mem = open_mem({"ranking": ranking})
    mem.add("Database password rotates monthly", ["database"])
    result = mem.recall("database", promote=False)[0]
    assert isinstance(result, RetrievalResult)
    assert result.match_source in ("tag", "graph", "vector")
    lines = mem.recall_as_context("database").split("\n")
    assert lines == [
        "Relevant memories:",
        f"- [{result.match_source}:{result.score:.2f}] Database password rotates monthly",
    ]


def test_recall_counts_uses_and_context_does_not(mem: AgentMemory) -> None:
    made = mem.add("Coffee at nine")
    for expected in (1, 2, 3):
        mem.recall("coffee")
        found = mem.get(made.id)
        assert found is not None
        assert found.access_count == expected
        assert found.last_accessed is not None
    mem.recall_as_context("coffee")
    mem.recall("coffee", promote=False)
    assert mem.get(made.id).access_count == 3  # type: ignore[union-attr]


def test_uses_survive_a_reopening(open_mem: Open) -> None:
    with open_mem() as mem:
        made = mem.add("Coffee at nine")
        mem.recall("coffee")
    assert open_mem().get(made.id).access_count == 1  # type: ignore[union-attr]


def test_update_changes_what_is_named(mem: AgentMemory) -> None:
    made = mem.add("Lives in Rome", ["home"], "location", "user", metadata={"k": 1})
    found = mem.update(made.id, content="Lives in Roma", tags=["casa"])
    assert found is not None
    assert (found.id, found.content, found.tags) == (made.id, "Lives in Roma", ["casa"])
    assert (found.category, found.entity, found.metadata) == ("location", "user", {"k": 1})
    assert found.created_at == made.created_at
    assert found.content_hash == AgentMemory._content_hash("Lives in Roma")
    assert mem.update(made.id, entity="Alice").entity == "Alice"  # type: ignore[union-attr]
    assert [m.id for m in mem.timeline("Alice")] == [made.id]
    assert mem.timeline("user") == []
    assert mem.update("nothing", content="x") is None


def test_extract_stores_what_rules_find(mem: AgentMemory) -> None:
    messages = [
        {"role": "user", "content": "I work at Acme as an engineer. I prefer tea over coffee."},
        {"role": "system", "content": "I live in the cloud."},
    ]
    found = mem.extract(messages, namespace="n")
    assert [m.content for m in found] == ["prefer tea over coffee", "work at Acme as an engineer"]
    assert [m.category for m in found] == ["preference", "career"]
    assert found[1].entity == "Acme"
    assert {m.namespace for m in found} == {"n"}
    with pytest.raises(InvalidInput, match="rules"):
        mem.extract(messages, use_llm=True)


def test_health_names_its_checks(mem: AgentMemory) -> None:
    mem.add("A")
    found = mem.health()
    assert found["healthy"] is True
    assert {c["name"] for c in found["checks"]} >= {"store", "index", "embedder"}
    assert {c["status"] for c in found["checks"]} == {"ok"}


def test_memory_round_trips_as_row_and_dict() -> None:
    memory = Memory(content="x", tags=["a"], metadata={"k": [1]})
    row = {**memory.to_dict(), "tags": memory.tags_json(), "metadata": memory.metadata_json()}
    assert Memory.from_row(row) == memory
    assert "embedding" not in memory.to_dict()
    assert len(memory.id) == 12


def test_the_underscored_parts_users_touch_are_there(mem: AgentMemory) -> None:
    made = mem.add("User uses Python", ["Python"], entity="user", category="technical")
    assert mem._store.get(made.id) == made
    assert mem._store.list_memories(status="active", limit=5) == [made]
    assert mem._store.tag_search(["python"]) == [made]
    assert mem._vector_store.search("python", limit=3)[0]["memory_id"] == made.id
    assert mem._vector_store.count() == 1
    assert mem._graph.get_related("user") == ["python"]
    assert mem._temporal.current_facts(entity="user") == [made]
    assert made.id in [r.memory.id for r in mem._retrieval.recall("python")]
    assert mem.batch_embed() == 1
    assert sum(mem.pagerank().values()) == pytest.approx(1.0)
