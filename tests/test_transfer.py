"""Exports are lossless: the same log, hashes and answers in another store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.determinism_run import QUESTIONS, answer, items

from twofold import AgentMemory, errors


def filled(place: Path | str, clock: Any, embedder: str = "hashing:64") -> AgentMemory:
    mem = AgentMemory(place, embedder=embedder, clock=clock)
    made = mem.add_many(items()[:80])
    mem.forget(made[3].id)
    mem.restore(made[3].id)
    mem.supersede(made[4].id, made[5].id)
    mem.update(made[6].id, tags=["corrected"])
    mem.erase(made[7].id, reason="test")
    mem.recall(QUESTIONS[0], keep=True)
    mem.flush()
    return mem


def answers(mem: AgentMemory) -> list[Any]:
    return [answer(mem.recall(q, promote=False)) for q in QUESTIONS]


@pytest.mark.parametrize("vectors", [True, False])
def test_whole_log_travels(tmp_path: Path, clock: Any, vectors: bool) -> None:
    with filled(tmp_path / "a", clock) as mem:
        expected, head = answers(mem), mem.verify().head
        assert mem.export_json(tmp_path / "x.jsonl", vectors=vectors) > 80
        receipts = mem.receipts()
    with AgentMemory(tmp_path / "b", embedder="hashing:64", clock=clock) as copy:
        report = copy.import_json(tmp_path / "x.jsonl")
        assert report.lossless
        assert answers(copy) == expected
        verified = copy.verify()
        assert verified.ok, verified.problems
        assert verified.head == head
        assert copy.receipts() == receipts
        assert copy.replay(receipts[0][0]).identical
        assert copy.health()["healthy"]


def test_without_vectors_another_embedder_is_refused(tmp_path: Path, clock: Any) -> None:
    with filled(":memory:", clock) as mem:
        mem.export_json(tmp_path / "x.jsonl", vectors=False)
    with AgentMemory(":memory:", embedder="hashing:128", clock=clock) as copy:
        with pytest.raises(errors.InvalidInput, match="export with vectors"):
            copy.import_json(tmp_path / "x.jsonl")
        assert copy.stats()["memories"] == 0


def test_dry_run_writes_nothing(tmp_path: Path, clock: Any) -> None:
    with filled(":memory:", clock) as mem:
        mem.export_json(tmp_path / "x.jsonl")
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as copy:
        assert copy.import_json(tmp_path / "x.jsonl", dry_run=True).memories == 81
        assert copy.stats()["memories"] == 0


@pytest.mark.parametrize("damage", ["cut", "changed", "not json", "another format", "newer"])
def test_damaged_exports_are_refused_whole(tmp_path: Path, clock: Any, damage: str) -> None:
    file = tmp_path / "x.jsonl"
    with filled(":memory:", clock) as mem:
        mem.export_json(file)
    lines = file.read_text("utf-8").splitlines()
    if damage == "cut":
        lines = lines[: len(lines) // 3]
    elif damage == "changed":
        at = next(i for i, line in enumerate(lines) if line.startswith('{"event"'))
        lines[at + 5] = lines[at + 5].replace('"owner"', '"0wner"', 1)
    elif damage == "not json":
        lines[9] = lines[9][:-3]
    elif damage == "another format":
        lines[0] = '{"format": "other"}'
    else:
        lines[0] = lines[0].replace('"version":1', '"version":2')
    file.write_text("\n".join(lines) + "\n", "utf-8")
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as copy:
        with pytest.raises(errors.InvalidInput):
            copy.import_json(file)
        assert copy.stats()["memories"] == 0


def test_into_a_store_with_memories_duplicates_merge(tmp_path: Path, clock: Any) -> None:
    with filled(":memory:", clock) as mem:
        mem.export_json(tmp_path / "x.jsonl")
        before = mem.stats()["current"]
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as other:
        other.add("Something else entirely")
        other.import_json(tmp_path / "x.jsonl")
        first = other.stats()["memories"]
        assert first > before
        other.import_json(tmp_path / "x.jsonl")
        assert other.stats()["memories"] == first
