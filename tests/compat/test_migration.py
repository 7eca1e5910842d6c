"""Stores as Memwright 2.0.x makes them: read in place, migrated, never changed. Section 12 C."""

from __future__ import annotations

import hashlib
import json
import runpy
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import twofold.compat
from twofold.compat import reader
from twofold.compat.agent_memory import AgentMemory
from twofold.errors import InvalidInput, NotFound, PermissionDenied, StoreCorrupt

Open = Callable[..., AgentMemory]
NEW = ("namespace", "access_count", "last_accessed", "content_hash")
TABLE = """CREATE TABLE memories (id TEXT PRIMARY KEY, content TEXT NOT NULL, tags TEXT NOT NULL,
category TEXT NOT NULL DEFAULT 'general', entity TEXT, created_at TEXT NOT NULL, event_date TEXT,
valid_from TEXT NOT NULL, valid_until TEXT, superseded_by TEXT REFERENCES memories(id),
confidence REAL DEFAULT 1.0, status TEXT DEFAULT 'active', metadata TEXT DEFAULT '{}'"""
ADDED = """, namespace TEXT NOT NULL DEFAULT 'default', access_count INTEGER DEFAULT 0, last_accessed TEXT,
content_hash TEXT"""


def day(n: int) -> str:
    return f"2025-03-{n:02d}T10:00:00.000000+00:00"


def rows(old: bool) -> list[dict[str, Any]]:
    def row(memory_id: str, content: str, n: int, **fields: Any) -> dict[str, Any]:
        made = {
            "id": memory_id,
            "content": content,
            "tags": '["career"]',
            "category": "career",
            "entity": "user",
            "created_at": day(n),
            "event_date": None,
            "valid_from": day(n),
            "valid_until": None,
            "superseded_by": None,
            "confidence": 1.0,
            "status": "active",
            "metadata": '{"k": 1}',
            "namespace": "team:a",
            "access_count": 3,
            "last_accessed": day(20),
            "content_hash": hashlib.sha256(content.encode()).hexdigest(),
            **fields,
        }
        return {k: v for k, v in made.items() if not (old and k in NEW)}

    return [
        row("aaaaaaaaaaa2", "Works at Meta since spring", 5),
        row(
            "aaaaaaaaaaa1",
            "Works at Google",
            1,
            status="superseded",
            valid_until=day(5),
            superseded_by="aaaaaaaaaaa2",
        ),
        row("aaaaaaaaaaa3", "Prefers tea", 6, status="archived", category="preference", confidence=5.0),
        row("aaaaaaaaaaa4", "Moved house", 7, event_date="7 May 2023", entity=None, category="general"),
        row("aaaaaaaaaaa5", "Moved house", 8, entity="Bob", category="general", namespace="default"),
    ]


def build(folder: Path, *, old: bool = False, graph: Any = None, wal: bool = False) -> Path:
    folder.mkdir(parents=True)
    db = sqlite3.connect(folder / "memory.db")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(TABLE + ("" if old else ADDED) + ")")
    for r in rows(old):
        db.execute(
            f"INSERT INTO memories ({', '.join(r)}) VALUES ({', '.join('?' * len(r))})", list(r.values())
        )
    db.commit()
    if wal:
        # Copied while the writer is still there: the rows are in the log only.
        for name in ("memory.db", "memory.db-wal"):
            (folder / f"{name}.copy").write_bytes((folder / name).read_bytes())
    db.close()
    if wal:
        for name in ("memory.db", "memory.db-wal"):
            (folder / f"{name}.copy").replace(folder / name)
    (folder / "config.json").write_text('{"default_token_budget": 900, "min_results": 3}')
    (folder / "chroma").mkdir()
    (folder / "chroma" / "chroma.sqlite3").write_bytes(b"not looked at")
    if graph is not None:
        (folder / "graph.json").write_text(graph if isinstance(graph, str) else json.dumps(graph))
    return folder


def digest(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def check(mem: AgentMemory, old: bool) -> None:
    """The store says what the old rows say."""
    namespace = "default" if old else "team:a"
    found = {m.id: m for m in mem._all()}
    assert len(found) == 5
    for r in rows(old):
        m = found[r["id"]]
        assert (m.content, m.category, m.entity, m.status) == (
            r["content"],
            r["category"],
            r["entity"],
            r["status"],
        )
        assert (m.created_at, m.valid_from, m.event_date, m.superseded_by) == (
            r["created_at"],
            r["valid_from"],
            r["event_date"],
            r["superseded_by"],
        )
        assert (m.tags, m.metadata, m.confidence) == (["career"], {"k": 1}, r["confidence"])
        assert m.namespace == r.get("namespace", "default")
        assert m.access_count == (0 if old else 3)
        assert m.content_hash == hashlib.sha256(r["content"].encode()).hexdigest()
        if r["status"] != "archived":
            assert m.valid_until == r["valid_until"]
    assert mem.recall("meta spring", namespace=namespace)[0].memory.id == "aaaaaaaaaaa2"
    assert mem.recall("works at google", as_of=day(3))[0].memory.id == "aaaaaaaaaaa1"
    assert [m.id for m in mem.timeline("user", namespace)][:2] == ["aaaaaaaaaaa1", "aaaaaaaaaaa2"]


@pytest.mark.parametrize("old", [True, False], ids=["2.0.0", "2.0.6"])
def test_a_store_is_read_where_it_lies_and_not_changed(open_mem: Open, tmp_store: Path, old: bool) -> None:
    build(tmp_store, old=old)
    before = digest(tmp_store)
    with open_mem() as mem:
        assert mem.in_place
        assert mem.config.default_token_budget == 900
        check(mem, old)
        for refused in (lambda: mem.add("x"), lambda: mem.forget("aaaaaaaaaaa2"), mem.compact):
            with pytest.raises(PermissionDenied, match="migrate"):
                refused()
        ctx_like = open_mem(namespace="default")
        assert {m.namespace for m in ctx_like._all()} == {"default"}
    assert digest(tmp_store) == before


@pytest.mark.parametrize("old", [True, False], ids=["2.0.0", "2.0.6"])
def test_a_store_is_migrated_and_the_old_files_stay(open_mem: Open, tmp_store: Path, old: bool) -> None:
    build(tmp_store, old=old)
    before = digest(tmp_store)
    with open_mem(migrate=True) as mem:
        check(mem, old)
        made = mem.add(
            "Works at Acme", entity="user", category="career", namespace=rows(old)[0].get("namespace")
        )
        assert mem.get("aaaaaaaaaaa2").superseded_by == made.id  # type: ignore[union-attr]
        assert mem.health()["healthy"]
        assert mem._mem.verify().ok
    after = digest(tmp_store)
    assert {k: v for k, v in after.items() if k in before and k != "config.json"} == {
        k: v for k, v in before.items() if k != "config.json"
    }
    assert not [p for p in tmp_store.iterdir() if p.name.startswith(".migrating")]
    with open_mem() as mem:
        assert not mem.in_place
        assert mem.get(made.id) is not None


def test_an_open_handle_migrates_on_request(open_mem: Open, tmp_store: Path) -> None:
    build(tmp_store)
    mem = open_mem()
    report = mem.migrate()
    assert (report.read, report.stored, report.refused) == (5, 5, [])
    check(mem, False)
    mem.add("New here")
    with pytest.raises(InvalidInput, match="nothing to migrate"):
        mem.migrate()


def test_a_copy_may_go_elsewhere(tmp_path: Path, open_mem: Open, tmp_store: Path) -> None:
    build(tmp_path / "old")
    before = digest(tmp_path / "old")
    assert reader.migrate(tmp_path / "old", tmp_store, embedder="hashing").stored == 5
    assert digest(tmp_path / "old") == before
    check(open_mem(), False)
    with pytest.raises(InvalidInput, match="exists already"):
        reader.migrate(tmp_path / "old", tmp_store, embedder="hashing")


def test_rows_that_are_only_in_the_log_are_read(tmp_store: Path) -> None:
    build(tmp_store, wal=True)
    before = digest(tmp_store)
    assert len(reader.read(tmp_store).rows) == 5
    assert digest(tmp_store) == before


@pytest.mark.parametrize("style", ["links", "edges"])
def test_a_graph_file_of_either_style_is_read(tmp_store: Path, style: str) -> None:
    node = {"id": "alice", "display_name": "Alice", "entity_type": "person", "team": "x"}
    edge = {"source": "alice", "target": "acme", "key": "WORKS_AT", "relation_type": "WORKS_AT"}
    data = {"directed": True, "multigraph": True, "graph": {}, "nodes": [node, {"id": "acme"}], style: [edge]}
    build(tmp_store, graph=data)
    graph = reader.read(tmp_store).graph
    assert graph.get_edges("Alice")[0]["predicate"] == "WORKS_AT"
    assert graph.get_entities("person")[0]["attributes"] == {"team": "x"}


def test_a_truncated_graph_file_is_done_without(tmp_store: Path, open_mem: Open) -> None:
    build(tmp_store, graph='{"nodes": [{"id": "ali')
    assert "damaged" in str(reader.read(tmp_store).graph.damaged)
    mem = open_mem(migrate=True)
    assert "user" in mem.pagerank()


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"memory\.db"):
        reader.read(tmp_path)
    (tmp_path / "memory.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    with pytest.raises(StoreCorrupt):
        reader.read(tmp_path)


def test_rows_that_cannot_be_stored_are_reported(tmp_store: Path, tmp_path: Path) -> None:
    build(tmp_path / "old")
    db = sqlite3.connect(tmp_path / "old" / "memory.db")
    db.execute("UPDATE memories SET content = '' WHERE id = 'aaaaaaaaaaa5'")
    db.execute("UPDATE memories SET tags = '\"a,b\"' WHERE id = 'aaaaaaaaaaa4'")
    db.commit()
    db.close()
    report = reader.migrate(tmp_path / "old", tmp_store, embedder="hashing")
    assert report.stored == 4
    assert [i for i, _ in report.refused] == ["aaaaaaaaaaa5"]
    with AgentMemory(tmp_store, embedder="hashing") as mem:
        assert mem.get("aaaaaaaaaaa4").tags == ["a", "b"]  # type: ignore[union-attr]


def test_the_alias_makes_the_import_verbatim() -> None:
    assert "agent_memory" not in sys.modules
    twofold.compat.install_alias()
    try:
        namespace: dict[str, Any] = {}
        exec(  # the very lines of a user of Memwright
            "from agent_memory import AgentMemory, Memory, RetrievalResult\n"
            "from agent_memory.context import AgentContext, AgentRole, Visibility\n"
            "from agent_memory.client import MemoryClient\n"
            "from agent_memory.retrieval.scorer import mmr_rerank\n"
            "import agent_memory.store.base\n",
            namespace,
        )
        assert namespace["AgentMemory"] is AgentMemory
        twofold.compat.install_alias()
    finally:
        twofold.compat.remove_alias()
    assert not [n for n in sys.modules if n.split(".")[0] == "agent_memory"]


def test_the_example_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWOFOLD_EMBEDDER", "hashing")
    example = Path(__file__).resolve().parents[2] / "examples" / "memwright_switch.py"
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert "2022: User works at Google\n2025: User works at Meta" in said
    assert "lacks permission 'write'" in said
