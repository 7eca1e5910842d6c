"""What fails the build, and what only informs about it.

Gates: the published budgets at their published sizes (3 ms for L1; 94 ms median and 118 ms p99 for a whole recall),
on the best and the generic kernel; instruction counts; ratios of one run that hold on a busy machine. The budgets
are the floor, far above what is measured; ratios and counts are the real bar.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold import AgentMemory, Scratchpad
from twofold.core import Graph, Lexicon, VectorIndex, decay, kernel, mmr, pack

from . import instructions
from .budget import ENOUGH, MOST, QUERIES
from .common import (
    PUBLISHED_ROWS,
    ROOT,
    ROWS,
    SCALE,
    Corpus,
    LocalQueries,
    Samples,
    Supplied,
    show,
    single_thread_environment,
)

L1_MS = 3.0
RECALL_MEDIAN_MS = 94.0
RECALL_P99_MS = 118.0
PASSES = 5

FASTER_THAN_NUMPY = {384: 4.0, 1536: 8.0}
"""By dimension. At 384 numpy's rows come from the cache as well, as long as nobody else is in it."""
TIMES_LIMIT = 1.5
"""A scan takes at most so many times the time to read its codes once."""
FILTERED_SHARES = ("0.01", "0.1", "0.5")
FILTERED = 1.1
"""A scan through a filter that 1, 10 or 50 % of the rows pass takes at most so many times the one of all rows."""
L1_TIMES_LRU_CACHE = 3.0
PEER_ADD_MS = 11.0
"""The fastest add of the published peer. Ours is to be twenty times as fast; a busy machine gets half of that."""
ADD_TIMES_FASTER = 10.0
ADD_GROWTH = 1.5
RECALL_GROWTH = 4.0
"""Fourfold rows: more than fourfold time would be worse than linear."""


@pytest.mark.gate
def test_every_benchmark_is_a_gate_or_informational(wrongly_marked: list[str]) -> None:
    assert wrongly_marked == []


@pytest.mark.gate
def test_sizes_are_the_published_ones() -> None:
    assert ROWS == PUBLISHED_ROWS or SCALE != 1
    assert not (os.environ.get("CI") and SCALE != 1), "CI measures at the published size: unset BENCH_SCALE"


# -- the published budgets -------------------------------------------------------------------------------


@pytest.mark.gate
def test_scratchpad_budget(benchmark: Any, note: Callable[[str], None]) -> None:
    """Each of 10,000 queries over more keys than there is room for: hits, misses and evictions all occur.

    A virtual machine loses its processor now and then without counting it, so a query over budget is asked again
    with all others, in the same order: none may be over budget in every pass.
    """
    keys = [f"scratchpad key {i % 80:05d}" for i in range(10_000)]
    best = np.full(len(keys), np.inf)

    def one_pass() -> None:
        pad, samples = Scratchpad(), Samples()

        def turn(key: str) -> None:
            if pad.get(key) is None:
                pad.set(key, key)

        for i, key in enumerate(keys):
            clean = len(samples.undisturbed)
            samples.time(turn, key)
            if len(samples.undisturbed) > clean:
                best[i] = min(best[i], samples.all[-1])
        assert len(pad) == 50

    benchmark.pedantic(one_pass, rounds=1, iterations=1)
    for _ in range(PASSES - 1):
        if best.max() <= L1_MS:
            break
        one_pass()
    note(
        f"L1: median {show(float(np.median(best)))}, slowest of 10,000 {show(float(best.max()))}, budget {L1_MS} ms"
    )
    assert best.max() <= L1_MS


KINDS = [pytest.param("local", id="384-local-encoder"), pytest.param("supplied", id="1536-supplied-vectors")]
DIMENSION = {"local": 384, "supplied": 1536}


def judge(samples: Samples, label: str, note: Callable[[str], None]) -> None:
    """Clean samples where the machine gives enough of them; else processor time, and the least of all within budget.

    Recalls run on one thread, so their processor time is what they would take on a core of their own.
    """
    enough = len(samples.undisturbed) >= ENOUGH
    judged = samples.undisturbed if enough else samples.cpu
    median, p99 = (float(np.quantile(judged, q)) for q in (0.5, 0.99))
    note(
        f"recall, {label}: median {show(median)} of {RECALL_MEDIAN_MS} ms, p99 {show(p99)} of {RECALL_P99_MS} ms, "
        + ("" if enough else "in processor time: only ")
        + f"{len(samples.undisturbed)} clean of {len(samples.all)}"
    )
    assert len(judged) >= ENOUGH
    assert median <= RECALL_MEDIAN_MS
    assert p99 <= RECALL_P99_MS
    assert min(samples.all) <= RECALL_MEDIAN_MS


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_recall_budget(
    benchmark: Any, samples: Samples, stores: Any, kind: str, note: Callable[[str], None], request: Any
) -> None:
    """Whole recalls, the query's embedding included; every query is new, so no cache answers it."""
    embedder = LocalQueries(request.getfixturevalue("encoder")) if kind == "local" else Supplied(1536)
    with AgentMemory(stores(DIMENSION[kind]), embedder=embedder) as mem:
        warm, *questions = Corpus().questions(MOST + 1)
        assert len(mem.recall(warm)) == 10
        asked = iter(questions)
        benchmark.pedantic(lambda: samples.time(mem.recall, next(asked)), rounds=QUERIES, iterations=1)
        samples.until(QUERIES, MOST, lambda: mem.recall(next(asked)))
        assert mem.stats()["memories"] == ROWS
    judge(samples, f"{ROWS} x {DIMENSION[kind]}, {kernel()}", note)


@pytest.mark.gate
@pytest.mark.skipif(kernel() == "generic", reason="the other test has measured the generic kernel")
@pytest.mark.parametrize("kind", KINDS)
def test_recall_budget_on_the_generic_kernel(
    stores: Any, kind: str, note: Callable[[str], None], request: Any
) -> None:
    if kind == "local":
        request.getfixturevalue("encoder")  # skips or fails as above where it is not installed
    found = child("benchmarks.budget", str(stores(DIMENSION[kind])), kind, TWOFOLD_KERNEL="generic")
    assert found["kernel"] == "generic"
    judge(
        Samples(found["all"], found["undisturbed"], found["cpu"]),
        f"{ROWS} x {DIMENSION[kind]}, generic",
        note,
    )


def child(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """The JSON that a measuring module prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=single_thread_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.gate
def test_the_gates_can_fail() -> None:
    """A slow recall, a slow tail, too few samples and a grown count are all refused."""
    fine = [5.0] * 200
    judge(Samples(fine, fine, fine), "made up", str)
    judge(Samples(fine, [], fine), "made up", str)
    tail = [5.0] * 190 + [200.0] * 10
    for bad in (
        Samples([100.0] * 200, [100.0] * 200, fine),
        Samples(tail, tail, fine),
        Samples([100.0] * 200, [], [100.0] * 200),
        Samples([100.0] * 200, [], fine),
        Samples([5.0] * 20, [5.0] * 20, [5.0] * 20),
    ):
        with pytest.raises(AssertionError):
            judge(bad, "made up", str)
    fine_filters = dict.fromkeys(FILTERED_SHARES, 1.0)
    assert scan_holds(1536, 8.1, 1.4, fine_filters)
    assert not scan_holds(1536, 7.9, 1.4, fine_filters)
    assert not scan_holds(1536, 8.1, 1.6, fine_filters)
    assert not scan_holds(1536, 8.1, 1.4, fine_filters | {"0.5": 1.2})
    known = {"scan 384": 100_000, "recall": 100_000}
    assert instructions.grown({"scan 384": 104_999, "recall": 109_999}, known) == {}
    assert set(instructions.grown({"scan 384": 105_100, "recall": 110_100}, known)) == {"scan 384", "recall"}


# -- ratios of one run -----------------------------------------------------------------------------------


@pytest.mark.gate
@pytest.mark.skipif(kernel() == "generic", reason="the generic kernel is measured against the budgets only")
@pytest.mark.parametrize("dimension", [384, 1536])
def test_exact_scan(dimension: int, note: Callable[[str], None]) -> None:
    """Against numpy, against reading the codes once, and filtered against unfiltered."""
    name = f"scan {dimension}"
    # Who else is on the machine takes more from a scan, whose codes fit into the cache, than from what comes from
    # memory anyway: asked again, each ratio's best counts.
    faster, of_limit, filtered = 0.0, np.inf, dict.fromkeys(FILTERED_SHARES, np.inf)
    for _ in range(PASSES):
        found = child("benchmarks.ratios", name)[name]
        faster, of_limit = max(faster, found["faster_than_numpy"]), min(of_limit, found["of_limit"])
        filtered = {share: min(known, found["filtered"][share]) for share, known in filtered.items()}
        if scan_holds(dimension, faster, of_limit, filtered):
            break
    shares = ", ".join(f"{float(share):.0%}: {ratio:.2f}" for share, ratio in filtered.items())
    note(
        f"scan {PUBLISHED_ROWS} x {dimension}: {show(found['ours']['min_ms'])}, {faster:.1f} x faster than numpy, "
        f"{of_limit:.2f} x the time to read the codes; filtered {shares} x unfiltered"
    )
    assert scan_holds(dimension, faster, of_limit, filtered)


def scan_holds(dimension: int, faster: float, of_limit: float, filtered: dict[str, float]) -> bool:
    return (
        faster >= FASTER_THAN_NUMPY[dimension]
        and of_limit <= TIMES_LIMIT
        and max(filtered.values()) <= FILTERED
    )


@pytest.mark.gate
def test_scratchpad_against_lru_cache(note: Callable[[str], None]) -> None:
    found = child("benchmarks.ratios", "scratchpad")["scratchpad"]
    note(
        f"L1 get {found['get_ns']:.0f} ns = {found['get']:.2f} x an lru_cache hit, set {found['set']:.2f} x, "
        f"set with eviction {found['set_evicting']:.2f} x"
    )
    assert found["get"] <= L1_TIMES_LRU_CACHE
    assert found["set"] <= L1_TIMES_LRU_CACHE


@pytest.mark.gate
def test_add_is_fast_and_does_not_grow(note: Callable[[str], None]) -> None:
    found = child("benchmarks.ratios", "add")["add"]
    note(
        f"add without embedding: {show(found['ms'])} (least), {PEER_ADD_MS / found['ms']:.0f} x the peer's speed, "
        f"{found['growth_over_tenfold']:.2f} x at ten times the rows"
    )
    assert found["ms"] <= PEER_ADD_MS / ADD_TIMES_FASTER
    assert found["growth_over_tenfold"] <= ADD_GROWTH


@pytest.mark.gate
def test_recall_grows_at_most_linearly(note: Callable[[str], None]) -> None:
    found = child("benchmarks.ratios", "recall")["recall"]
    note(
        f"recall with supplied vectors: {found['growth_over_fourfold']:.2f} x the time at four times the rows"
    )
    assert found["growth_over_fourfold"] <= RECALL_GROWTH


# -- instruction counts ----------------------------------------------------------------------------------


@pytest.mark.gate
@pytest.mark.skipif(
    "TWOFOLD_KERNEL" in os.environ, reason="counted once, on the best kernel that valgrind shows"
)
def test_instruction_counts(note: Callable[[str], None]) -> None:
    """No hot path takes more instructions than the committed baseline allows."""
    try:
        counts, level = instructions.counted()
    except instructions.CannotCount as why:
        pytest.skip(f"instruction counts not gated: {why}")
    known = instructions.baseline().get(instructions.key())
    note(f"instructions ({level} under valgrind; {instructions.key()})")
    for line in instructions.report(counts, known or {}).splitlines():
        note(f"  {line}")
    if known is None:
        pytest.skip(
            f"instruction counts not gated: no baseline for {instructions.key()}; "
            "`python -m benchmarks.instructions --write` makes one"
        )
    assert counts.keys() == known.keys(), "cases changed: write a new baseline"
    assert instructions.grown(counts, known) == {}
    for case, n in counts.items():
        if n < known[case] * (1 - instructions.tolerance(case)):
            note(
                f"  {case} is faster than its baseline: `python -m benchmarks.instructions --write` keeps the gain"
            )


# -- information -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stages() -> dict[str, Callable[[], Any]]:
    """One call of each stage at the published size."""
    corpus, source = Corpus(), np.random.default_rng(6)
    calls: dict[str, Callable[[], Any]] = {}
    index = VectorIndex(384)
    index.add(corpus.vectors(ROWS, 384))
    query = corpus.vectors(1, 384, start=900_000)[0]
    calls["scan 384"] = lambda: index.search(query, 10)
    queries = corpus.vectors(4, 384, start=910_000)
    calls["scan 384, four queries"] = lambda: index.search_many(queries, 10)

    rows = [np.unique(np.minimum(source.zipf(1.2, 18), 20_000)).astype(np.uint32) for _ in range(ROWS)]
    lexicon = Lexicon()
    flat = np.concatenate(rows)
    lexicon.add(flat, np.ones(len(flat), np.float32), np.cumsum([0, *map(len, rows)]).astype(np.int64))
    terms = np.array([2, 5, 11, 23, 47, 95, 190, 380], np.uint32)
    calls["bm25 of eight terms"] = lambda: lexicon.search(terms, 200)

    graph, edges = Graph(), 4 * ROWS
    ends = source.integers(0, ROWS, (2, edges)).astype(np.uint32)
    graph.add_edges(ends[0], ends[1], np.ones(edges, np.float32))
    seeds = np.array([3, 77, 150], np.uint32)
    calls["expand two hops"] = lambda: graph.expand(seeds, 2)

    age, used = source.random(ROWS) * 100, source.integers(0, 9, ROWS)
    calls["decay"] = lambda: decay(age, age / 2, used, used // 4)
    relevance, vectors = source.random(200), corpus.vectors(200, 384)
    calls["mmr 200 to 20"] = lambda: mmr(relevance, vectors, 0.7, 20)
    tokens = source.integers(5, 80, 200)
    calls["pack 200"] = lambda: pack(tokens, 2000)
    return calls


STAGES = [
    "scan 384",
    "scan 384, four queries",
    "bm25 of eight terms",
    "expand two hops",
    "decay",
    "mmr 200 to 20",
    "pack 200",
]


@pytest.mark.informational
@pytest.mark.parametrize("stage", STAGES)
def test_stage(benchmark: Any, stages: dict[str, Callable[[], Any]], stage: str) -> None:
    assert stages.keys() == set(STAGES)
    benchmark.pedantic(stages[stage], rounds=50, iterations=5, warmup_rounds=2)


@pytest.mark.informational
def test_whole_recall_without_embedding(benchmark: Any, supplied_store: Any) -> None:
    questions = iter(Corpus().questions(300, seed=7))
    supplied_store.recall(next(questions))
    assert (
        len(benchmark.pedantic(lambda: supplied_store.recall(next(questions)), rounds=100, iterations=1))
        == 10
    )


@pytest.mark.informational
def test_whole_recall_with_cached_query_vector(benchmark: Any, supplied_store: Any) -> None:
    question = Corpus().questions(1, seed=8)[0]
    benchmark.pedantic(lambda: supplied_store.recall(question), rounds=100, iterations=1, warmup_rounds=2)


@pytest.mark.informational
def test_recall_within_a_token_budget(benchmark: Any, supplied_store: Any) -> None:
    questions = iter(Corpus().questions(300, seed=9))
    found = benchmark.pedantic(
        lambda: supplied_store.recall(next(questions), k=50, budget=1000), rounds=50, iterations=1
    )
    assert found.tokens <= 1000


@pytest.mark.informational
def test_add_without_embedding(benchmark: Any, tmp_path: Path) -> None:
    fresh = iter(list(Corpus().memories(200, 384)))
    with AgentMemory(tmp_path, embedder=Supplied(384)) as mem:
        benchmark.pedantic(lambda: mem.add(**next(fresh)), rounds=150, iterations=1, warmup_rounds=5)
        assert mem.stats()["memories"] == 155
