"""What valgrind counts: each case run once warm and once counted. Started by `benchmarks.instructions`.

Only the counted call is instrumented; start-up, data and warm-up run at valgrind's idle speed. Everything is
seeded: the same tree counts the same, up to a fraction of a percent from where memory happens to lie.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .common import PUBLISHED_ROWS, Coded, Corpus, native

# A tenth of the published size: a whole recall is then Python's share and the core's, neither hidden.
ROWS = PUBLISHED_ROWS // 10
REPEAT = 10


def core_cases() -> dict[str, Callable[[], Any]]:
    from twofold import Scratchpad, core

    corpus, source = Corpus(), np.random.default_rng(6)
    cases: dict[str, Callable[[], Any]] = {}
    for dimension in (384, 1536):
        index = core.VectorIndex(dimension)
        index.add(corpus.vectors(ROWS, dimension))
        query = corpus.vectors(1, dimension, start=90_000)[0]
        cases[f"scan {dimension}"] = lambda i=index, q=query: i.search(q, 10)

    terms = np.minimum(source.zipf(1.2, (ROWS, 18)), 5000).astype(np.uint32)
    distinct = [np.unique(row) for row in terms]
    lexicon = core.Lexicon()
    offsets = np.concatenate([[0], np.cumsum([len(d) for d in distinct])]).astype(np.int64)
    flat = np.concatenate(distinct)
    lexicon.add(flat, np.ones(len(flat), np.float32), offsets)
    asked = np.array([2, 5, 11, 23, 47, 95, 190, 380], np.uint32)
    cases["bm25"] = lambda: lexicon.search(asked, 200)

    edges = 4 * ROWS
    graph = core.Graph()
    one = np.ones(edges, np.float32)
    graph.add_edges(
        source.integers(0, ROWS, edges).astype(np.uint32),
        source.integers(0, ROWS, edges).astype(np.uint32),
        one,
    )
    seeds = np.array([3, 77, 500], np.uint32)
    cases["expand"] = lambda: graph.expand(seeds, 2)

    age, used = source.random(ROWS) * 100, source.integers(0, 9, ROWS)
    cases["decay"] = lambda: core.decay(age, age / 2, used, used // 4)
    tokens = source.integers(5, 80, 200)
    cases["pack"] = lambda: core.pack(tokens, 2000)

    pad = Scratchpad()
    keys = [f"scratchpad key {i:05d}" for i in range(50)]
    for key in keys:
        pad.set(key, key)
    get, put = pad.get, pad.set
    cases["scratchpad get"] = lambda: [get(key) for key in keys]
    cases["scratchpad set"] = lambda: [put(key, 1) for key in keys]
    return cases


def whole_cases(folder: Path) -> dict[str, Callable[[], Any]]:
    from twofold import AgentMemory
    from twofold.clock import ManualClock

    corpus, number = Corpus(), itertools.count()
    embedder = Coded(384)
    mem = AgentMemory(
        folder,
        embedder=embedder,
        clock=ManualClock("2026-01-01T00:00:00Z"),
        ids=lambda _: f"{next(number):026d}",
        entropy=lambda n: next(number).to_bytes(n, "big"),
    )
    mem.add_many(corpus.turns(ROWS), batch=500)
    asked = corpus.questions(200)
    embedder.learn(asked)
    questions = iter(asked)
    more = iter(embedder.prepare(corpus.turns(200, start=ROWS)))
    return {
        "recall": lambda: [mem.recall(next(questions)) for _ in range(REPEAT)],
        "add": lambda: [mem.add(**next(more)) for _ in range(REPEAT)],
    }


def count(library: ctypes.CDLL, name: str, call: Callable[[], Any]) -> None:
    for _ in range(3):
        call()
    library.begin()
    call()  # valgrind translates the code anew once it counts
    library.zero()
    call()
    library.dump(name.encode())
    library.end()


def main(names: list[str]) -> None:
    from twofold.core import kernel

    library = native()
    assert library is not None, "the caller has compiled it"
    assert library.has_valgrind() == 1, "not under valgrind"
    gc.disable()
    cases = core_cases()
    with tempfile.TemporaryDirectory() as folder:
        cases |= whole_cases(Path(folder))
        for name in names or cases:
            count(library, name, cases[name])
    print(json.dumps({"kernel": kernel()}))


if __name__ == "__main__":
    main(sys.argv[1:])
