"""The profile `reference` against what the official server answered to the same calls, and its memory.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from hypothesis import given
from hypothesis import strategies as st
from tests.integrations.mcp_runs import over_stdio
from tests.integrations.reference_plan import plan

from twofold import AgentMemory
from twofold.errors import InvalidInput
from twofold.integrations.mcp_face import Seat
from twofold.integrations.mcp_reference import TOOLS, face
from twofold.integrations.reference_graph import (
    Graph,
    GraphStore,
    export_file,
    from_jsonl,
    import_file,
    to_jsonl,
)

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "reference_recorded.json"
SEED, LENGTH = 20260317, 160

NINE = [
    "create_entities", "create_relations", "add_observations", "delete_entities", "delete_observations",
    "delete_relations", "read_graph", "search_nodes", "open_nodes",
]  # fmt: skip


def answers(results: list[dict[str, Any]]) -> list[Any]:
    """The part of the results that both servers must agree on."""
    return [
        [bool(r.get("isError")), [c["text"] for c in r["content"]], r.get("structuredContent")]
        for r in results
    ]


def test_every_answer_is_the_official_servers() -> None:
    """The recording was made by test_mcp_long.py from @modelcontextprotocol/server-memory 2026.8.31."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert len(recorded["answers"]) == LENGTH + 1
    shown = face()
    with AgentMemory(":memory:", embedder=None) as mem:
        seat = Seat(mem)
        for (_, name, arguments), expected in zip(plan(SEED, LENGTH), recorded["answers"], strict=True):
            got = shown.call(seat, name, arguments)
            told = [got.error, [c["text"] for c in got.content], got.structured]
            assert told == expected, (name, arguments)
        assert to_jsonl(GraphStore(mem).read()) == recorded["file"]


def test_tools_are_declared_as_the_official_servers() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert [t.name for t in TOOLS] == NINE
    ours = {t.name: t.declared() for t in TOOLS}
    for theirs in recorded["tools"]:
        mine = ours[theirs["name"]]
        assert (mine["title"], mine["description"]) == (theirs["title"], theirs["description"])
        hints = {k: v for k, v in mine["annotations"].items() if k != "title"}
        assert hints == theirs["annotations"]
        for schema in ("inputSchema", "outputSchema"):
            assert shape(mine[schema]) == shape(theirs[schema]), (theirs["name"], schema)


def shape(schema: Any, whole: Any = None) -> Any:
    """Types, names, descriptions and what is required, with references followed."""
    whole = whole or schema
    if "$ref" in schema:
        return shape(
            {**whole["$defs"][schema["$ref"].rpartition("/")[2]], **{"description": None}}, whole
        ) | ({"description": schema["description"]} if schema.get("description") else {})
    out: dict[str, Any] = {"type": schema["type"]}
    if schema["type"] == "object":
        out["properties"] = {k: shape(v, whole) for k, v in schema.get("properties", {}).items()}
        out["required"] = sorted(schema.get("required", []))
    elif schema["type"] == "array":
        out["items"] = shape(schema["items"], whole)
    return out


def test_over_stdio_and_through_the_file(tmp_path: Path) -> None:
    """Served for real; exported, imported elsewhere and exported again: the same bytes."""
    store = ["--embedder", "none", "--profile", "reference"]
    steps = plan(7, 25)
    got = over_stdio(["--store", str(tmp_path / "a"), *store], steps)
    assert [t["name"] for t in got["tools"]] == NINE
    graph = got["results"][-1]["structuredContent"]
    assert graph["entities"]
    from click.testing import CliRunner

    from twofold.integrations.mcp_command import mcp

    def move(*arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(mcp, [*store, "--json", *arguments])
        assert done.exit_code == 0, done.output
        out: dict[str, Any] = json.loads(done.stdout)
        return out

    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    said = move("--store", str(tmp_path / "a"), "--export", str(first))
    assert said["entities"] == len(graph["entities"])
    assert move("--store", str(tmp_path / "b"), "--import", str(first))["relations"] == said["relations"]
    move("--store", str(tmp_path / "b"), "--export", str(second))
    assert first.read_bytes() == second.read_bytes()
    assert from_jsonl(first.read_text("utf-8")) == graph


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
GRAPHS = st.fixed_dictionaries(
    {
        "entities": st.lists(
            st.fixed_dictionaries(
                {"name": NAMES, "entityType": NAMES, "observations": st.lists(NAMES, max_size=4)}
            ),
            max_size=4,
        ),
        "relations": st.lists(
            st.fixed_dictionaries({"from": NAMES, "to": NAMES, "relationType": NAMES}), max_size=4
        ),
    }
)


@given(graph=GRAPHS)
def test_any_graph_comes_back_byte_for_byte(graph: Graph) -> None:
    """Duplicate entities, observations and relations included, which the official server can be made to write."""
    with AgentMemory(":memory:", embedder=None) as mem:
        GraphStore(mem).replace_with(graph)
        assert to_jsonl(GraphStore(mem).read()) == to_jsonl(graph)
        assert from_jsonl(to_jsonl(graph)) == graph


def test_import_needs_an_empty_namespace_and_a_sound_file(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    file.write_text('{"type":"entity","name":"a","entityType":"b","observations":[]}\n\n{"type":"other"}')
    with AgentMemory(":memory:", embedder=None) as mem:
        assert import_file(mem, file) == (1, 0)
        with pytest.raises(InvalidInput, match="holds a graph of 1 entities"):
            import_file(mem, file)
        file.write_text('{"type":"entity","name":"a"}')
        with pytest.raises(InvalidInput, match="line 1 is not of a reference"):
            import_file(mem, file)
        export_file(mem, file)
        assert file.read_text() == '{"type":"entity","name":"a","entityType":"b","observations":[]}'


def test_the_graph_is_ordinary_memory_too() -> None:
    """What was told through the reference tools is found by recall; what was deleted there stays in history."""
    with AgentMemory(":memory:", embedder="hashing") as mem:
        graph = GraphStore(mem)
        graph.create_entities([{"name": "Ann", "entityType": "person", "observations": ["likes green tea"]}])
        (hit, *_) = mem.recall("What does Ann like? green tea")
        assert hit.content == "Ann: likes green tea"
        graph.delete_observations([("Ann", ["likes green tea"])])
        assert graph.read()["entities"][0]["observations"] == []
        assert mem.history(hit.memory.id)[0].closed_at is not None
