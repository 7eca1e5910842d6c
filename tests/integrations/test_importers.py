"""What other tools wrote becomes memories: once, whole, with its dates, roles and sources."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, errors
from twofold.integrations.importers import FORMATS, import_file


@pytest.fixture
def mem(clock: Any) -> Iterator[AgentMemory]:
    clock.set("2026-06-01T00:00:00Z")  # after every date in the files below
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as mem:
        yield mem


MESSAGES = [
    {"role": "user", "content": "Book the blue room for Tuesday"},
    {"role": "assistant", "content": [{"type": "text", "text": "The blue room is booked"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "x", "input": {}}]},
]
CLAUDE_CODE = [
    {"type": "summary", "summary": "ignored"},
    {
        "type": "user",
        "sessionId": "s1",
        "uuid": "u1",
        "timestamp": "2026-02-01T10:00:00Z",
        "message": {"role": "user", "content": "Rename the module to vault"},
    },
    {
        "type": "assistant",
        "sessionId": "s1",
        "uuid": "u2",
        "timestamp": "2026-02-01T10:00:05Z",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Renamed it to vault"}]},
    },
]
CHATGPT = [
    {
        "id": "c1",
        "title": "Tea",
        "current_node": "n3",
        "mapping": {
            "n0": {"message": None, "parent": None},
            "n1": {
                "parent": "n0",
                "message": {
                    "id": "m1",
                    "author": {"role": "user"},
                    "create_time": 1767225600.0,
                    "content": {"content_type": "text", "parts": ["Which tea has little caffeine?"]},
                },
            },
            "n2": {
                "parent": "n1",
                "message": {
                    "id": "m2",
                    "author": {"role": "assistant"},
                    "content": {"parts": ["an abandoned branch"]},
                },
            },
            "n3": {
                "parent": "n1",
                "message": {
                    "id": "m3",
                    "author": {"role": "assistant"},
                    "create_time": 1767225660.0,
                    "content": {"parts": ["Rooibos has none at all"]},
                },
            },
        },
    }
]
MEM0 = {
    "results": [
        {"id": "1", "memory": "Prefers window seats", "user_id": "ann", "created_at": "2026-01-05T08:00:00Z"},
        {"id": "2", "memory": "", "user_id": "ann"},
    ]
}
REFERENCE = [
    {
        "type": "entity",
        "name": "Ann",
        "entityType": "person",
        "observations": ["speaks Welsh", "Ann runs daily"],
    },
    {"type": "relation", "from": "Ann", "to": "Acme", "relationType": "works_at"},
]
MARKDOWN = (
    "intro line\n\n# Deploy\n\nUse the blue cluster.\n\n## Rollback\n\n```\n# not a heading\n```\nRun undo.\n"
)


def lines(values: list[Any]) -> str:
    return "".join(json.dumps(v) + "\n" for v in values)


CASES: dict[str, tuple[str, str, list[str]]] = {
    "jsonl": (
        "x.jsonl",
        lines([{"content": "one", "tags": ["a"]}, {"text": "two"}, {"content": " "}]),
        ["one", "two"],
    ),
    "markdown": (
        "notes/a.md",
        MARKDOWN,
        [
            "intro line",
            "Deploy\nUse the blue cluster.",
            "Deploy > Rollback\n```\n# not a heading\n```\nRun undo.",
        ],
    ),
    "messages": (
        "chat.json",
        json.dumps(MESSAGES),
        ["Book the blue room for Tuesday", "The blue room is booked"],
    ),
    "claude-code": ("s1.jsonl", lines(CLAUDE_CODE), ["Rename the module to vault", "Renamed it to vault"]),
    "chatgpt": (
        "conversations.json",
        json.dumps(CHATGPT),
        ["Which tea has little caffeine?", "Rooibos has none at all"],
    ),
    "mem0": ("mem0.json", json.dumps(MEM0), ["Prefers window seats"]),
    "reference": (
        "memory.jsonl",
        lines(REFERENCE),
        ["Ann: speaks Welsh", "Ann runs daily", "Ann works at Acme"],
    ),
}


def test_every_format_has_a_case() -> None:
    assert set(CASES) | {"memwright"} == set(FORMATS)  # a folder: below


@pytest.mark.parametrize("format_", CASES)
def test_import_is_whole_and_happens_once(mem: AgentMemory, tmp_path: Path, format_: str) -> None:
    name, content, expected = CASES[format_]
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content, "utf-8")
    path = file.parent if format_ == "markdown" else file
    preview = import_file(mem, path, format_, dry_run=True)
    assert (preview.memories, preview.new, preview.applied) == (len(expected), 0, False)
    assert mem.stats()["memories"] == 0
    done = import_file(mem, path, format_)
    assert (done.memories, done.new) == (len(expected), len(expected))
    assert [m.content for m in mem.current_facts()] == expected
    assert import_file(mem, path, format_).new == 0


def test_roles_dates_and_sessions_are_kept(mem: AgentMemory, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(lines(CLAUDE_CODE), "utf-8")
    import_file(mem, tmp_path / "s.jsonl", "claude-code")
    first, second = mem.current_facts()
    assert (first.metadata["role"], second.metadata["role"]) == ("user", "assistant")
    assert (first.session_id, first.source_id) == ("s1", "u1")
    assert first.event_date is not None
    assert first.event_date.isoformat() == "2026-02-01T10:00:00+00:00"
    (tmp_path / "conversations.json").write_text(json.dumps(CHATGPT), "utf-8")
    import_file(mem, tmp_path, "chatgpt")
    (tea,) = mem.search(sessions=["c1"], limit=1)
    assert tea.event_date is not None
    assert tea.event_date.isoformat() == "2026-01-01T00:01:00+00:00"


def test_long_documents_are_cut_at_sentences(mem: AgentMemory, tmp_path: Path) -> None:
    sentences = [f"Sentence number {i} says something about topic {i % 7}." for i in range(300)]
    (tmp_path / "long.md").write_text("# Long\n\n" + " ".join(sentences), "utf-8")
    done = import_file(mem, tmp_path / "long.md", "markdown")
    assert done.memories > 3
    chunks = mem.current_facts()
    assert [m.metadata["chunk"] for m in chunks] == list(range(1, done.memories + 1))
    for sentence in sentences:
        assert any(sentence in m.content for m in chunks), sentence


BAD = [
    ("jsonl", '{"content": "fine"}\n{broken\n', "line 2 is not JSON"),
    ("jsonl", "[1]\n", "line 1 is not an object"),
    ("messages", "{}", "no list of messages"),
    ("messages", '[{"content": "x"}]', "message 1 has no role"),
    ("chatgpt", "{}", "not a list of conversations"),
    ("mem0", '{"results": 5}', "no list of memories"),
    ("reference", '{"type": "other"}\n', "neither an entity nor a relation"),
]


@pytest.mark.parametrize("format_,content,message", BAD)
def test_malformed_files_store_nothing(
    mem: AgentMemory, tmp_path: Path, format_: str, content: str, message: str
) -> None:
    file = tmp_path / "x"
    file.write_text(content, "utf-8")
    with pytest.raises(errors.InvalidInput, match=message):
        import_file(mem, file, format_)
    assert mem.stats()["memories"] == 0


def test_unknown_format_and_missing_file(mem: AgentMemory, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="formats are twofold, chatgpt"):
        import_file(mem, tmp_path, "pdf")
    with pytest.raises(errors.NotFound, match="no file or folder"):
        import_file(mem, tmp_path / "nothing", "jsonl")


def test_what_is_current_in_a_memwright_store(mem: AgentMemory, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db, db:
        db.execute(
            "CREATE TABLE memories (id TEXT PRIMARY KEY, content TEXT, tags TEXT, category TEXT, entity TEXT, "
            "created_at TEXT, event_date TEXT, valid_from TEXT, valid_until TEXT, superseded_by TEXT, "
            "confidence REAL, status TEXT, metadata TEXT)"
        )
        when = "2026-01-02T03:04:05.000000+00:00"
        for row in (
            (
                "a",
                "Ann works at Acme",
                '["work"]',
                "career",
                "Ann",
                when,
                None,
                when,
                None,
                None,
                0.9,
                "active",
                "{}",
            ),
            (
                "b",
                "Ann works at Old",
                "[]",
                "career",
                "Ann",
                when,
                None,
                when,
                when,
                "a",
                1.0,
                "superseded",
                "{}",
            ),
            (
                "c",
                "Archived note",
                "[]",
                "general",
                None,
                when,
                None,
                when,
                None,
                None,
                1.0,
                "archived",
                "{}",
            ),
        ):
            db.execute(f"INSERT INTO memories VALUES ({','.join('?' * 13)})", row)
    report = import_file(mem, tmp_path, "memwright")
    assert (report.memories, report.new) == (1, 1)
    (found,) = mem.search()
    assert (found.content, found.source_id, found.confidence) == ("Ann works at Acme", "memwright:a", 0.9)
    assert set(found.tags) == {"work", "career"}
    assert "Ann" in found.entities
    assert found.event_date is not None
    assert found.event_date.year == 2026
    assert import_file(mem, tmp_path, "memwright").new == 0
    with pytest.raises(errors.NotFound, match=r"has no memory\.db"):
        import_file(mem, tmp_path.parent, "memwright")
