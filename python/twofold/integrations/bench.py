"""`twofold bench`: add and recall timed on this machine, on made-up text, without a model."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from twofold.clock import monotonic
from twofold.core import kernel
from twofold.memory import AgentMemory

WORDS = 5000
QUERIES = 200


def run(rows: int) -> dict[str, Any]:
    """Store `rows` memories of 20 random words, then recall; medians in milliseconds."""
    source = np.random.default_rng(1)
    words = np.array([f"{'bcdfgklmnprst'[i % 13]}{'aeiou'[i % 5]}{i}" for i in range(WORDS)])

    def sentence(n: int) -> str:
        return " ".join(words[source.integers(0, WORDS, n)])

    with tempfile.TemporaryDirectory() as folder, AgentMemory(Path(folder), embedder="hashing:384") as mem:
        started = monotonic()
        mem.add_many({"content": sentence(20)} for _ in range(rows))
        bulk = 1000 * (monotonic() - started) / max(rows, 1)
        single = statistics.median(_timed(lambda: mem.add(sentence(20))) for _ in range(50))
        questions = [sentence(8) for _ in range(QUERIES)]
        for question in questions:
            mem.recall(question, promote=False)
        times = sorted(_timed(lambda q=q: mem.recall(q, promote=False)) for q in questions)
    return {
        "rows": rows,
        "kernel": kernel(),
        "add_many_ms_per_row": round(bulk, 4),
        "add_ms": round(single, 4),
        "recall_ms_median": round(statistics.median(times), 4),
        "recall_ms_p99": round(times[int(0.99 * len(times))], 4),
    }


def _timed(action: Any) -> float:
    started = monotonic()
    action()
    return 1000 * (monotonic() - started)
