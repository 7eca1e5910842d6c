"""`vectors_in_ram="codes"`: float32 rows stay in the view's file. The same answers, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.determinism_run import QUESTIONS, Coded, answer, items

from twofold import AgentMemory
from twofold.errors import InvalidInput
from twofold.index import cache
from twofold.index.tenant import VectorPart


def opened(place: Path, clock: Any, vectors_in_ram: str = "codes") -> AgentMemory:
    return AgentMemory(place, embedder=Coded(), clock=clock, vectors_in_ram=vectors_in_ram)


def part_of(mem: AgentMemory) -> VectorPart:
    index = mem._vault.index("default")
    generation = index.current_generation()
    assert generation is not None
    return index.vectors[generation.number]


def answers(mem: AgentMemory) -> list[Any]:
    filters: list[dict[str, Any]] = [{}, {"min_confidence": 0.9}, {"memory_types": ["fact"]}]
    return [answer(mem.recall(q, promote=False, filters=f)) for q in QUESTIONS for f in filters]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the small stores of these tests are over the limits."""
    monkeypatch.setattr("twofold.vault.CACHE_ROWS", 10)
    monkeypatch.setattr("twofold.vault.HELD_ROWS", 16)


def test_same_answers_as_with_rows(tmp_path: Path, clock: Any, few: None) -> None:
    clock.set("2026-07-01T00:00:00Z")
    with opened(tmp_path, clock, "rows") as mem:
        mem.add_many(items())
        expected = answers(mem)
    with opened(tmp_path, clock) as mem:
        assert answers(mem) == expected
        part = part_of(mem)
        assert part.index.rows_in_file == len(part.index) > 100
        new = [mem.add(f"The lighthouse of island {i} was painted", tags=["lighthouse"]) for i in range(30)]
        assert part.index.rows_in_file < len(part.index)  # what came since waits in RAM
        mem.forget(new[3].id)
        mem.restore(new[3].id)
        found = mem.recall("lighthouse of island 7", k=1, promote=False)
        assert [h.memory.id for h in found] == [new[7].id]
        got = answers(mem)
        assert mem.health()["healthy"]
    with opened(tmp_path, clock, "rows") as mem:
        assert answers(mem) == got


def test_rows_are_let_go_while_writing(tmp_path: Path, clock: Any, few: None) -> None:
    with opened(tmp_path, clock) as mem:
        most = 0
        for i in range(120):
            mem.add(f"Entry number {i} of the log book of ship {i % 7}")
            part = part_of(mem)
            most = max(most, len(part.index) - part.index.rows_in_file)
        assert most < 20
        assert len(part.index) == 120
        rows = part.index.rows(np.arange(120, dtype=np.int64))
        stored = mem._vault.store.vectors("default", part.generation.number)
        assert np.array_equal(rows, stored.data)
        assert part.codes.tobytes() == b"".join(stored.codes)
        assert len(part._tokens[1]) * 8 < len(part.codes.tobytes()) / 3
        assert mem.health()["healthy"]


def test_a_file_cut_while_it_is_in_use(tmp_path: Path, clock: Any, few: None) -> None:
    with opened(tmp_path, clock) as mem:
        mem.add_many(items())
        expected = answers(mem)
        (file,) = (tmp_path / "twofold.db.cache").glob("*.index")
        os.truncate(file, file.stat().st_size // 2)
        assert answers(mem) == expected
        assert mem._vault.cache_state["default"].startswith("vectors read from the store")
        assert mem.health()["healthy"]


def test_damaged_token_codes_are_taken_from_the_store(tmp_path: Path, clock: Any, few: None) -> None:
    with opened(tmp_path, clock) as mem:
        mem.add_many(items())
        expected = answers(mem)
    (file,) = (tmp_path / "twofold.db.cache").glob("*.index")
    good = file.read_bytes()
    with cache.Saved(file) as saved:
        _, _, offset, size, _ = saved._header["blocks"]["v.codes"]
        at = saved._body + offset
    assert size > 1000
    file.write_bytes(good[:at] + bytes(b ^ 4 for b in good[at : at + size]) + good[at + size :])
    with opened(tmp_path, clock) as mem:
        assert answers(mem) == expected
        assert mem._vault.cache_state["default"].startswith("vectors read from the store")
        part = part_of(mem)
        assert part._tokens[0] is None
        assert part.codes.tobytes() == b"".join(
            mem._vault.store.vectors("default", part.generation.number).codes
        )


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, clock: Any, few: None) -> None:
    (tmp_path / "twofold.db.cache").write_text("in the way")
    with opened(tmp_path, clock) as mem:
        mem.add_many(items())
        assert mem._vault.cache_state["default"].startswith("not written")
        assert part_of(mem).index.rows_in_file == 0
        assert mem.recall(QUESTIONS[0])


def test_erased_content_is_in_no_file(tmp_path: Path, clock: Any, few: None) -> None:
    with opened(tmp_path, clock) as mem:
        mem.add_many(items())
        gone = mem.add("A xylophone stands in the attic", tags=["quixotic"])
        mem._vault.save_cache("default")
        row = part_of(mem).index.rows(np.array([len(part_of(mem).index) - 1], np.int64)).tobytes()
        (file,) = (tmp_path / "twofold.db.cache").glob("*.index")
        assert b"quixotic" in file.read_bytes()
        assert row in file.read_bytes()
        mem.erase(gone.id, reason="test")
        mem.recall(QUESTIONS[0])
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"quixotic" not in content, path
            assert row not in content, path


def test_another_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="vectors_in_ram"):
        AgentMemory(tmp_path, embedder=None, vectors_in_ram="none")
