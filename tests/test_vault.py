"""Blocks of vectors are written together: the same vectors in fewer statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from twofold import AgentMemory
from twofold.model import Vectors
from twofold.vault import joined


def some(generation: int, *ordinals: int, width: int = 4) -> Vectors:
    data = np.arange(len(ordinals) * width, dtype=np.float32).reshape(-1, width) + generation
    places = [(o, i, 10 * i, 10 * i + 5) for i, o in enumerate(ordinals)]
    return Vectors.of(generation, places, data, [bytes([o]) for o in ordinals])


def rows(blocks: list[Vectors]) -> list[Any]:
    return [
        (b.generation, int(o), int(p), int(s), int(e), d.tolist(), c)
        for b in blocks
        for o, p, s, e, d, c in zip(b.ordinals, b.parts, b.starts, b.stops, b.data, b.codes, strict=True)
    ]


def test_runs_of_one_generation_become_one_block() -> None:
    blocks = [some(1, 0), some(1, 1, 1), some(1, 2), some(2, 3), some(2, 3), some(2, 2), some(1, 5, 6)]
    found = joined(blocks)
    assert [b.ordinals.tolist() for b in found] == [[0, 1, 1, 2], [3], [3], [2], [5, 6]]
    assert rows(found) == rows(blocks)
    assert joined([]) == []
    empty = Vectors.of(1, [], np.zeros((0, 4), np.float32))
    assert rows(joined([some(1, 1), empty, some(1, 2)])) == rows([some(1, 1), some(1, 2)])
    assert len(joined([some(1, 1), some(1, 2, width=8)])) == 2


def test_a_batch_is_one_block_in_the_view(tmp_path: Path, clock: Any) -> None:
    with AgentMemory(tmp_path, embedder="hashing:64", clock=clock) as mem:
        mem.add_many([{"content": f"Note {i}. The tide came in."} for i in range(9)])
        index = mem._vault.index("default")
        part = index.vectors[index.current_generation().number]
        stored = mem._vault.store.vectors("default", part.generation.number)
        assert len(part.index) == len(stored) == 9
        assert np.array_equal(part.index.rows(np.arange(len(stored), dtype=np.int64)), stored.data)
        assert part.ordinals.view().tolist() == stored.ordinals.tolist()
        assert part.starts.view().tolist() == stored.starts.tolist()
        assert mem.health()["healthy"]
