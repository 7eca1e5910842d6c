"""Exports, receipts and other tools' files with anything in the place of anything: refused, and nothing is stored."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, errors
from twofold.integrations.importers import FORMATS, import_file
from twofold.model import Event, Row, misfit

JUNK: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, float("nan"), "", "x", "\ud800", "\0", [], {}, [[]], {"a": 1},
    "2026-01-01T00:00:00Z", "ff", 10**400,
]  # fmt: skip
ROUNDS = 60


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*at, key))


def mutated(source: random.Random, value: Any) -> Any:
    """The value with one part, anywhere in it or in JSON texts in it, dropped or replaced by something else."""
    value = copy.deepcopy(value)
    at = source.choice(list(places(value)))
    if not at:
        return source.choice(JUNK)
    inner = value
    for key in at[:-1]:
        inner = inner[key]
    old = inner[at[-1]]
    if source.random() < 0.25:
        del inner[at[-1]]
    elif isinstance(old, str) and old[:1] in ("{", "[") and source.random() < 0.5:
        inner[at[-1]] = json.dumps(mutated(source, json.loads(old)))
    else:
        inner[at[-1]] = source.choice(JUNK)
    return value


def with_one_changed(source: random.Random, lines: list[Any]) -> list[Any]:
    at = source.randrange(len(lines))
    return [*lines[:at], mutated(source, lines[at]), *lines[at + 1 :]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Any]:
    """The lines of a real export, and a receipt of its store."""
    path = tmp_path_factory.mktemp("export") / "x.jsonl"
    with AgentMemory(":memory:", embedder="hashing:64") as mem:
        old = mem.add("The port is 8080", key="api.port", tags=["x"], event_date="2026-01-01T00:00:00Z")
        new = mem.add("The port is 9090", key="api.port", metadata={"k": [1]})
        mem.forget(old.id)
        mem.update(new.id, tags=["y"])
        mem.add("stored without a vector", vector=False)
        receipt = mem.recall("port", keep=True, filters={"tags": ["y"]}).receipt.to_json()
        mem.flush()
        mem.export_json(path)
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()], receipt


def import_lines(mem: AgentMemory, path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    mem.import_json(path)


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_export_is_imported_sound_or_not_at_all(
    exported: tuple[list[Any], Any], seed: int, tmp_path: Path
) -> None:
    lines, _ = exported
    source = random.Random(seed)
    refused = 0
    for _ in range(ROUNDS):
        made = with_one_changed(source, lines)
        with AgentMemory(":memory:", embedder="hashing:64") as mem:
            try:
                import_lines(mem, tmp_path / "x.jsonl", made)
            except errors.TwofoldError:
                refused += 1
                assert mem.stats()["memories"] == 0
                mem.add("and the store goes on")
            assert mem.verify().ok
            mem.recall("port")
    assert refused > ROUNDS // 2


@pytest.mark.parametrize("seed", range(2))
def test_a_changed_export_merges_or_is_refused(
    exported: tuple[list[Any], Any], seed: int, tmp_path: Path
) -> None:
    lines, _ = exported
    source = random.Random(seed)
    for _ in range(ROUNDS):
        made = with_one_changed(source, lines)
        with AgentMemory(":memory:", embedder="hashing:64") as mem:
            mem.add("something of our own")
            try:
                import_lines(mem, tmp_path / "x.jsonl", made)
            except errors.TwofoldError:
                assert mem.stats()["memories"] == 1
            assert mem.verify().ok


def test_the_export_itself_is_imported(exported: tuple[list[Any], Any], tmp_path: Path) -> None:
    with AgentMemory(":memory:", embedder="hashing:64") as mem:
        import_lines(mem, tmp_path / "x.jsonl", exported[0])
        assert mem.verify().ok
        assert mem.replay(exported[1]).identical


def test_content_that_is_not_what_the_log_says_is_refused(
    exported: tuple[list[Any], Any], tmp_path: Path
) -> None:
    lines = copy.deepcopy(exported[0])
    row = next(line for line in lines if "row" in line)
    row["row"] = ["The port is 6666" if value == "The port is 8080" else value for value in row["row"]]
    with AgentMemory(":memory:", embedder="hashing:64") as mem:
        with pytest.raises(errors.InvalidInput, match="damaged"):
            import_lines(mem, tmp_path / "x.jsonl", lines)
        assert mem.stats()["memories"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_receipt_is_answered_or_refused(
    exported: tuple[list[Any], Any], seed: int, tmp_path: Path
) -> None:
    lines, receipt = exported
    source = random.Random(seed)
    with AgentMemory(":memory:", embedder="hashing:64") as mem:
        import_lines(mem, tmp_path / "x.jsonl", lines)
        for _ in range(ROUNDS):
            try:
                mem.replay(mutated(source, receipt))
            except errors.TwofoldError:
                continue


SAMPLES: dict[str, list[Any]] = {
    "messages": [[{"role": "user", "content": "hi"}, {"role": "tool", "content": [{"type": "text", "text": "x"}]}]],
    "chatgpt": [[{
        "id": "c", "current_node": "b",
        "mapping": {
            "a": {"parent": None, "message": {
                "id": "1", "author": {"role": "user"}, "content": {"parts": ["hello"]}, "create_time": 1700000000.5,
            }},
            "b": {"parent": "a", "message": {
                "id": "2", "author": {"role": "assistant"}, "content": {"parts": ["yes"]}, "create_time": 1700000001,
            }},
        },
    }]],
    "mem0": [{"results": [{
        "id": "1", "memory": "likes tea", "categories": ["a"], "created_at": "2024-01-01T00:00:00Z",
        "metadata": {"x": 1}, "user_id": "u", "run_id": "r",
    }]}],
    "jsonl": [{
        "content": "hello", "tags": ["a"], "metadata": {"a": 1}, "event_date": "2024-01-01", "confidence": 0.5,
        "namespace": "n", "valid_from": "2024-01-01T00:00:00Z",
    }],
    "claude-code": [{
        "type": "user", "sessionId": "s", "uuid": "u", "timestamp": "2024-01-01T00:00:00Z",
        "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    }],
    "reference": [
        {"type": "entity", "name": "A", "entityType": "p", "observations": ["x"]},
        {"type": "relation", "from": "A", "to": "B", "relationType": "r"},
    ],
}  # fmt: skip


def test_every_format_of_values_has_a_sample() -> None:
    assert set(FORMATS) - set(SAMPLES) == {
        "markdown",
        "memwright",
    }  # text, and a database with tests of its own


@pytest.mark.parametrize("name", SAMPLES)
def test_other_tools_files(name: str, tmp_path: Path) -> None:
    source = random.Random(1)
    file = tmp_path / "file"
    file.write_text("\n".join(map(json.dumps, SAMPLES[name])), encoding="utf-8")
    with AgentMemory(":memory:", embedder=None) as mem:
        assert import_file(mem, file, name).new >= 1
        for _ in range(4 * ROUNDS):
            file.write_text("\n".join(json.dumps(mutated(source, one)) for one in SAMPLES[name]), "utf-8")
            try:
                import_file(mem, file, name)
            except errors.TwofoldError:
                continue
        assert mem.verify().ok


def test_misfits_are_named() -> None:
    assert misfit(Event, {"seq": 1, "kind": "add", "namespace": None, "salt": b""}) is None
    assert misfit(Event, {"seq": True}) == "seq must be int, not True"
    assert misfit(Event, {"seq": 2**63}) is not None
    assert misfit(Event, {"kind": None}) is not None
    assert misfit(Row, {"confidence": float("nan")}) is not None
    assert misfit(Row, {"tags": ("a", 1)}) is not None
    assert misfit(Row, {"tags": ("a",), "confidence": 1, "key": None, "erased": False}) is None
