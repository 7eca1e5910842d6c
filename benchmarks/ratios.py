"""Ratios measured in one run, which hold on a busy machine too: `python -m benchmarks.ratios`.

Prints JSON. One core, one thread, numpy with its own choice of kernel (see `single_thread_environment`).
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .common import (
    PUBLISHED_ROWS,
    Coded,
    Corpus,
    Floats,
    Samples,
    cycle_of,
    paired,
    pin,
    race,
    reader_of,
    single_thread_environment,
)

K = 10
LOOP = 2000


def numpy_search(rows: Floats, k: int) -> Callable[[Floats], Any]:
    """The usual way: one matrix product, the k largest, sorted."""

    def search(query: Floats) -> Any:
        scores = rows @ query
        best = np.argpartition(scores, -k)[-k:]
        return best[np.argsort(-scores[best])]

    return search


def scan(dimension: int, rows: int) -> dict[str, Any]:
    """Exact search against numpy, the bytes of the codes read once, and itself with filters."""
    from twofold.core import VectorIndex

    corpus = Corpus()
    data = corpus.vectors(rows, dimension)
    queries = corpus.vectors(32, dimension, start=10_000_019)
    index = VectorIndex(dimension)
    index.add(data)
    peer = numpy_search(data, K)
    for query in queries[:4]:  # before anything is timed
        assert set(index.search(query, K)[0]) == set(peer(query)), "the two searches must agree"
    source = np.random.default_rng(5)
    masks = {share: source.random(rows) < share for share in (0.01, 0.1, 0.5)}
    calls = [
        cycle_of(lambda q: index.search(q, K), queries),
        cycle_of(peer, queries),
        reader_of(rows * dimension),
    ]
    ours, theirs, limit = race(calls, clean=40, most=160)
    # By themselves: what numpy leaves in the caches would be more than what a filter costs.
    plain, *filtered = race(
        [
            calls[0],
            *(cycle_of(lambda q, m=mask: index.search(q, K, mask=m), queries) for mask in masks.values()),
        ],
        clean=120,
        most=400,
    )
    return {
        "ours": ours.summary(),
        "numpy": theirs.summary(),
        "limit": limit.summary(),
        "faster_than_numpy": theirs.best / ours.best,
        "of_limit": ours.best / limit.best,
        "filtered": {str(s): paired(f, plain) for s, f in zip(masks, filtered, strict=True)},
    }


def scratchpad() -> dict[str, Any]:
    """L1 against the fastest cache Python has: a hit of functools.lru_cache, which is C and has no clock."""
    from twofold import Scratchpad

    @functools.lru_cache(maxsize=128)
    def cached(key: str) -> int:
        return len(key)

    pad = Scratchpad()
    keys = [f"scratchpad key {i:05d}" for i in range(50)]
    many = [f"evicting key {i:06d}" for i in range(200)]
    for key in keys:
        pad.set(key, 1)
        cached(key)
    turns = range(LOOP // len(keys))

    def hits() -> None:
        for _ in turns:
            for key in keys:
                cached(key)

    def gets() -> None:
        get = pad.get
        for _ in turns:
            for key in keys:
                get(key)

    def sets() -> None:
        put = pad.set
        for _ in turns:
            for key in keys:
                put(key, 1)

    full = Scratchpad()

    def evictions() -> None:
        put = full.set
        for _ in range(LOOP // len(many)):
            for key in many:
                put(key, 1)

    base, got, written, evicted = race([hits, gets, sets, evictions], clean=60, most=300)
    return {
        "lru_cache_hit_ns": base.best / LOOP * 1e6,
        "get_ns": got.best / LOOP * 1e6,
        "set_ns": written.best / LOOP * 1e6,
        "get": got.best / base.best,
        "set": written.best / base.best,
        "set_evicting": evicted.best / base.best,
    }


def add() -> dict[str, Any]:
    """One `add`, its embedding done beforehand, in a small store and in one ten times as large."""
    from twofold import AgentMemory

    corpus = Corpus()
    best: dict[int, Samples] = {}
    small, large = 1000, 10_000
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        try:
            for rows in (small, large):
                stores[rows] = AgentMemory(Path(folder) / str(rows), embedder=Coded(384))
                stores[rows].add_many(corpus.turns(rows), batch=1000)
            fresh = {
                rows: iter(mem.embedder.prepare(corpus.turns(500, start=50_000 + rows)))
                for rows, mem in stores.items()
            }
            calls = [lambda mem=mem, new=fresh[rows]: mem.add(**next(new)) for rows, mem in stores.items()]
            best = dict(zip(stores, race(calls, clean=150, most=300), strict=True))
        finally:
            for mem in stores.values():
                mem.close()
    return {
        "rows": {str(rows): samples.summary() for rows, samples in best.items()},
        "ms": best[large].best,
        "growth_over_tenfold": best[large].best / best[small].best,
    }


def recall() -> dict[str, Any]:
    """A whole recall with given query vectors, in a small store and in one four times as large."""
    from twofold import AgentMemory

    corpus = Corpus()
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        try:
            for rows in (1500, 6000):
                stores[rows] = AgentMemory(Path(folder) / str(rows), embedder=Coded(384))
                stores[rows].add_many(corpus.turns(rows), batch=1000)
            calls = []
            for rows, mem in stores.items():
                questions = corpus.questions(300, rows)
                mem.embedder.learn(questions)
                calls.append(cycle_of(mem.recall, questions))
            few, more = race(calls, clean=60, most=240)
        finally:
            for mem in stores.values():
                mem.close()
    return {"1500": few.summary(), "6000": more.summary(), "growth_over_fourfold": more.best / few.best}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "scan 1536": lambda: scan(1536, PUBLISHED_ROWS),
    "scan 384": lambda: scan(384, PUBLISHED_ROWS),
    "scratchpad": scratchpad,
    "add": add,
    "recall": recall,
}
# Minutes each and gigabytes of RAM, so only when they are asked for by name.
LARGE: dict[str, Callable[[], dict[str, Any]]] = {
    "scan 100000 384": lambda: scan(384, 100_000),
    "scan 100000 1536": lambda: scan(1536, 100_000),
    "scan 1000000 384": lambda: scan(384, 1_000_000),
}


def main(names: list[str]) -> None:
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or "OPENBLAS_CORETYPE" in os.environ:
        os.execve(
            sys.executable, [sys.executable, "-m", "benchmarks.ratios", *names], single_thread_environment()
        )
    pin()
    print(json.dumps({name: (PARTS | LARGE)[name]() for name in names or PARTS}))


if __name__ == "__main__":
    main(sys.argv[1:])
