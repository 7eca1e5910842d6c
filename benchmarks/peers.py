"""One table against the peers, in one process, on one core and one thread: `python -m benchmarks.peers`.

`--venv DIR` makes an environment for the peers (requirements-peers.txt) beside the one it is called from, so that
nothing of theirs gets into it, and runs there. A peer that cannot be had is listed as missing, with the reason.
Contestants take turns, samples during which the scheduler took the core away do not count, least and median of the
rest are shown. Recall is against float64. `--large` adds 100,000 x 1536 and 1,000,000 x 384 and builds the graph
indexes at 100,000 rows too.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from .common import (
    HERE,
    PUBLISHED_ROWS,
    ROOT,
    Corpus,
    Floats,
    Samples,
    cycle_of,
    machine,
    pin,
    race,
    reader_of,
    say,
    show,
    single_thread_environment,
    table,
    version,
)

K = 10
PACKAGES = (
    "numpy sqlite-vec faiss-cpu usearch hnswlib chromadb networkx scipy bm25s cachetools lru-dict".split()
)
GRAPH_ROWS = 20_000
"""Above so many rows the graph indexes take minutes to build, so only --large builds them."""
GRAPH_VALUES = 40_000_000
"""And above so many rows times dimensions not even --large does."""


HEADING = """\
# Against the peers

Written by `{command} --markdown docs/peers.md`: one process, one core, one
thread, contestants in turn; least and median of the samples during which the scheduler left the core alone. "Times
ours" is of the leasts. "Cold" is with the caches full of something else, as after an embedding pass.
[How it is measured](../benchmarks/README.md#how-it-is-measured).
"""


class Missing(Exception):
    """A peer is not here; says why."""


def package(name: str, module: str) -> Any:
    if version(name) is None:
        raise Missing(f"{name} is not installed")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Missing(f"{name} does not load: {error}") from error


@dataclass
class Line:
    """One contestant of a section."""

    name: str
    call: Callable[[], Any] | None = None
    build_s: float | None = None
    recall: float | None = None
    missing: str | None = None
    per: int = 1
    samples: Samples = field(default_factory=Samples)
    cold: Samples = field(default_factory=Samples)


@dataclass
class Section:
    title: str
    lines: list[Line]
    quality: str = ""
    """What the recall column means; "" where there is none."""

    def measure(self, *, clean: int = 30, most: int = 90, seconds: float = 25) -> Section:
        running = [line for line in self.lines if line.call is not None]
        calls = [line.call for line in running if line.call is not None]
        for line, samples in zip(running, race(calls, clean=clean, most=most, seconds=seconds), strict=True):
            line.samples = samples
        return self

    def chill(self, times: int = 12) -> Section:
        """Measure again with the caches full of something else, as after an embedding pass."""
        sweep = reader_of(96 << 20)
        for line in self.lines:
            if line.call is not None:
                for _ in range(times):
                    sweep()
                    line.cold.time(line.call)
        return self

    def rows(self) -> Iterator[list[str]]:
        ours = self.lines[0].samples
        for line in self.lines:
            if line.call is None:
                yield [line.name, "missing", "", "", "", "", "", line.missing or ""]
                continue
            s, per = line.samples, line.per
            yield [
                line.name,
                show(s.best / per),
                show(s.median / per),
                f"{s.best / per / (ours.best / self.lines[0].per):.2f}",
                show(line.cold.median) if line.cold.all else "",
                "" if line.recall is None else f"{line.recall:.3f}",
                "" if line.build_s is None else f"{line.build_s:.2g} s",
                f"{len(s.undisturbed)} of {len(s.all)} samples clean",
            ]

    def markdown(self) -> str:
        header = ["", "least", "median", "times ours", "cold median", self.quality or "-", "build", "note"]
        whole = [header, *self.rows()]
        used = [i for i in range(len(header)) if i == 0 or any(row[i] for row in whole[1:])]
        first, *rest = [[row[i] for i in used] for row in whole]
        return f"### {self.title}\n\n{table(first, rest)}\n"

    def data(self) -> dict[str, Any]:
        ours = self.lines[0]
        return {
            line.name: {"missing": line.missing}
            if line.call is None
            else {
                **{k: v / line.per if k.endswith("_ms") else v for k, v in line.samples.summary().items()},
                "times_ours": line.samples.best / line.per / (ours.samples.best / ours.per),
                "cold_median_ms": line.cold.median / line.per if line.cold.all else None,
                "recall": line.recall,
                "build_s": line.build_s,
            }
            for line in self.lines
        }


# -- exact and approximate search ------------------------------------------------------------------------

Search = Callable[[Floats], npt.ArrayLike]


def ours(data: Floats) -> Search:
    from twofold.core import VectorIndex

    index = VectorIndex(data.shape[1])
    index.add(data)
    return lambda q: index.search(q, K)[0]


def with_numpy(data: Floats) -> Search:
    def search(query: Floats) -> npt.ArrayLike:
        scores = data @ query
        best = np.argpartition(scores, -K)[-K:]
        return best[np.argsort(-scores[best])]

    return search


def extensible() -> Any:
    """A database in memory that loads extensions: Python's own SQLite, or else apsw's."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    if hasattr(db, "enable_load_extension"):
        return db
    try:
        return package("apsw", "apsw").Connection(":memory:")
    except Missing as why:
        raise Missing(f"this Python's sqlite3 loads no extensions, and {why}") from why


def with_sqlite_vec(data: Floats) -> Search:
    sqlite_vec = package("sqlite-vec", "sqlite_vec")
    db = extensible()
    db.enable_load_extension(True)
    sqlite_vec.load(db)
    db.execute("begin")
    db.execute(f"create virtual table v using vec0(e float[{data.shape[1]}])")
    db.executemany(
        "insert into v(rowid, e) values (?, ?)", ((i, row.tobytes()) for i, row in enumerate(data))
    )
    db.execute("commit")
    ask = "select rowid from v where e match ? and k = ? order by distance"
    return lambda q: [row[0] for row in db.execute(ask, (q.tobytes(), K))]


def with_faiss(data: Floats) -> Search:
    faiss = package("faiss-cpu", "faiss")
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(data.shape[1])
    index.add(data)
    return lambda q: index.search(q[None, :], K)[1][0]


def with_faiss_bytes(data: Floats) -> Search:
    faiss = package("faiss-cpu", "faiss")
    faiss.omp_set_num_threads(1)
    index = faiss.IndexScalarQuantizer(
        data.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.train(data)
    index.add(data)
    return lambda q: index.search(q[None, :], K)[1][0]


def with_usearch_exact(data: Floats) -> Search:
    usearch = package("usearch", "usearch.index")
    return lambda q: usearch.search(data, q, K, "ip", exact=True, threads=1).keys


def with_usearch(data: Floats) -> Search:
    usearch = package("usearch", "usearch.index")
    index = usearch.Index(ndim=data.shape[1], metric="ip", dtype="bf16")
    index.add(np.arange(len(data)), data, threads=1)
    return lambda q: index.search(q, K, threads=1).keys


def with_hnswlib(data: Floats) -> Search:
    hnswlib = package("hnswlib", "hnswlib")
    index = hnswlib.Index(space="ip", dim=data.shape[1])
    index.init_index(max_elements=len(data), M=16, ef_construction=200, random_seed=1)
    index.set_num_threads(1)
    index.add_items(data, num_threads=1)
    index.set_ef(100)
    return lambda q: index.knn_query(q, K, num_threads=1)[0][0]


def with_chroma(data: Floats) -> Search:
    chromadb = package("chromadb", "chromadb")
    settings = chromadb.Settings(anonymized_telemetry=False)
    found = chromadb.EphemeralClient(settings).create_collection(
        f"c{data.shape[0]}x{data.shape[1]}", metadata={"hnsw:space": "ip"}, embedding_function=None
    )
    for low in range(0, len(data), 5000):
        rows = data[low : low + 5000]
        found.add(ids=[str(low + i) for i in range(len(rows))], embeddings=rows)
    return lambda q: [int(i) for i in found.query(query_embeddings=[q], n_results=K, include=[])["ids"][0]]


EXACT: list[tuple[str, Callable[[Floats], Search]]] = [
    ("twofold VectorIndex", ours),
    ("numpy product + argpartition", with_numpy),
    ("sqlite-vec", with_sqlite_vec),
    ("faiss Flat", with_faiss),
    ("faiss 8 bit", with_faiss_bytes),
    ("usearch exact", with_usearch_exact),
]
GRAPHS: list[tuple[str, Callable[[Floats], Search]]] = [
    ("usearch HNSW bf16", with_usearch),
    ("hnswlib HNSW ef=100", with_hnswlib),
    ("chromadb", with_chroma),
]


def truth(data: Floats, queries: Floats) -> list[set[int]]:
    """The k best of each query by float64."""
    out: list[set[int]] = [set() for _ in queries]
    wide = queries.astype(np.float64).T
    scores = np.empty((len(data), len(queries)))
    for low in range(0, len(data), 50_000):
        scores[low : low + 50_000] = data[low : low + 50_000].astype(np.float64) @ wide
    for i in range(len(queries)):
        out[i] = set(np.lexsort((np.arange(len(data)), -scores[:, i]))[:K].tolist())
    return out


def search(rows: int, dimension: int, *, large: bool) -> Section:
    graphs = rows <= GRAPH_ROWS or (large and rows * dimension <= GRAPH_VALUES)
    corpus = Corpus()
    data = corpus.vectors(rows, dimension)
    queries = corpus.vectors(48, dimension, start=90_000_000)
    expected = truth(data, queries)
    lines: list[Line] = []
    for name, build in [*EXACT, *GRAPHS]:
        if not graphs and (name, build) in GRAPHS:
            lines.append(
                Line(
                    name,
                    missing="not run: takes minutes to build at this size"
                    if large
                    else "not run at this size without --large",
                )
            )
            continue
        say(f"  {name}")
        start = perf_counter()
        try:
            found = build(data)
        except Missing as why:
            lines.append(Line(name, missing=str(why)))
            continue
        took = perf_counter() - start
        kept = [len(expected[i] & set(map(int, np.asarray(found(q))))) / K for i, q in enumerate(queries)]
        lines.append(Line(name, cycle_of(found, queries), took, float(np.mean(kept))))
    lines.append(
        Line(f"limit: {rows * dimension / 1e6:.1f} MB of codes read once", reader_of(rows * dimension))
    )
    return Section(f"search, {rows:,} x {dimension}, k = {K}", lines, "recall").measure().chill()


# -- graph -----------------------------------------------------------------------------------------------


def graph_edges(nodes: int, edges: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Simple undirected edges with a few well-connected nodes, as entities have."""
    source = np.random.default_rng(8)
    first = (nodes * source.random(2 * edges) ** 1.7).astype(np.uint32)
    second = source.integers(0, nodes, 2 * edges).astype(np.uint32)
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs = np.unique(np.stack([low, high], axis=1)[low != high], axis=0)
    source.shuffle(pairs)
    return np.ascontiguousarray(pairs[:edges, 0]), np.ascontiguousarray(pairs[:edges, 1])


def page_rank() -> list[Section]:
    from twofold.core import Graph, pagerank

    nodes, edges = 15_000, 60_000
    src, dst = graph_edges(nodes, edges)
    one = np.ones(edges, np.float32)
    ranks = pagerank(nodes, src, dst, one)
    best = np.argsort(-ranks)[:50].tolist()
    whole = [Line("twofold pagerank", lambda: pagerank(nodes, src, dst, one), recall=1.0)]
    seeds = np.array([5, 900, 7000], np.uint32)
    graph = Graph()
    graph.add_edges(src, dst, one)
    equal = np.ones(len(seeds))

    def pushed(epsilon: float = 1e-4) -> Any:
        return graph.personalized(seeds, equal, epsilon=epsilon, limit=50)

    personal = [
        Line("twofold personalized", pushed),
        Line("twofold personalized, epsilon 1e-6", lambda: pushed(1e-6)),
    ]
    hops = [Line("twofold expand", lambda: graph.expand(seeds[:1], 2), recall=1.0)]

    def agreement(values: npt.NDArray[np.float64]) -> float:
        return len(set(np.argsort(-values)[:50].tolist()) & set(best)) / 50

    try:
        sparse = package("scipy", "scipy.sparse")
        matrix = sparse.csr_matrix(
            (np.ones(2 * edges), (np.concatenate([dst, src]), np.concatenate([src, dst]))), (nodes, nodes)
        )
        degree = np.asarray(matrix.sum(axis=0)).ravel()
        dangling = degree == 0
        step = matrix @ sparse.diags(1 / np.where(dangling, 1, degree))

        def power(
            start: npt.NDArray[np.float64] | None = None, damping: float = 0.85
        ) -> npt.NDArray[np.float64]:
            base = np.full(nodes, 1 / nodes) if start is None else start
            rank = base
            for _ in range(100):
                fresh = damping * (step @ rank + base * rank[dangling].sum()) + (1 - damping) * base
                done = np.abs(fresh - rank).sum() < 1e-8
                rank = fresh
                if done:
                    break
            return rank

        whole.append(Line("scipy power iteration", power, recall=agreement(power())))
        base = np.zeros(nodes)
        base[seeds] = 1 / len(seeds)
        # Independent of ours: the walk restarts with 0.15, exactly as `alpha` does.
        target = np.argsort(-power(base))[:50].tolist()
        for line in personal:
            line.recall = len(set(line.call()[0].tolist()) & set(target)) / 50 if line.call else None
        personal.append(Line("scipy power iteration", lambda: power(base), recall=1.0))
    except Missing as why:
        whole.append(Line("scipy power iteration", missing=str(why)))
        personal.append(Line("scipy power iteration", missing=str(why)))
    try:
        networkx = package("networkx", "networkx")
        peer = networkx.Graph()
        peer.add_nodes_from(range(nodes))
        peer.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
        tolerance = 1e-8 / nodes  # networkx multiplies it by the number of nodes

        def ranked(**more: Any) -> npt.NDArray[np.float64]:
            found = networkx.pagerank(peer, tol=tolerance, max_iter=300, **more)
            return np.array([found[i] for i in range(nodes)])

        whole.append(
            Line(
                "networkx",
                lambda: networkx.pagerank(peer, tol=tolerance, max_iter=300),
                recall=agreement(ranked()),
            )
        )
        wanted = dict.fromkeys(seeds.tolist(), 1.0)
        personal.append(
            Line(
                "networkx",
                lambda: networkx.pagerank(peer, tol=tolerance, max_iter=300, personalization=wanted),
            )
        )
        reach = networkx.single_source_shortest_path_length
        reached = set(graph.expand(seeds[:1], 2)[0].tolist())
        found = set(reach(peer, int(seeds[0]), cutoff=2))
        hops.append(
            Line(
                "networkx",
                lambda: reach(peer, int(seeds[0]), cutoff=2),
                recall=len(found & reached) / max(len(found), 1),
            )
        )
    except Missing as why:
        for lines in (whole, personal, hops):
            lines.append(Line("networkx", missing=str(why)))
    title = f"{nodes:,} nodes, {edges:,} edges"
    return [
        Section(f"PageRank to 1e-8, {title}", whole, "top 50 agree").measure(clean=12, most=24, seconds=20),
        Section(f"personalised PageRank, 3 seeds, best 50, {title}", personal, "top 50 agree").measure(
            clean=12, most=24
        ),
        Section(f"two hops from one node, {title}", hops, "same nodes").measure(),
    ]


# -- words -----------------------------------------------------------------------------------------------


def lexical() -> Section:
    from twofold.core import Lexicon

    corpus, limit = Corpus(), 200
    documents = [turn["content"].lower().rstrip(".").split() for turn in corpus.turns(PUBLISHED_ROWS)]
    numbers: dict[str, int] = {}
    counts = [collections.Counter(numbers.setdefault(w, len(numbers)) for w in words) for words in documents]
    # Words that occur, neither everywhere nor once, as those of a question.
    spread = collections.Counter(n for c in counts for n in c)
    usual = sorted(w for w, n in numbers.items() if 20 <= spread[n] <= 1500)
    source = np.random.default_rng(3)
    questions = [[usual[i] for i in source.choice(len(usual), 8, replace=False)] for _ in range(32)]

    start = perf_counter()
    lexicon = Lexicon()
    lexicon.add(
        np.array([t for c in counts for t in sorted(c)], np.uint32),
        np.array([c[t] for c in counts for t in sorted(c)], np.float32),
        np.cumsum([0, *map(len, counts)]).astype(np.int64),
    )
    built = perf_counter() - start
    asked = [np.array([numbers[w] for w in words], np.uint32) for words in questions]
    best = [set(lexicon.search(q, K)[0].tolist()) for q in asked]
    lines = [Line("twofold Lexicon", cycle_of(lambda q: lexicon.search(q, limit), asked), built, 1.0)]

    start = perf_counter()
    db = sqlite3.connect(":memory:")
    try:
        db.execute("create virtual table t using fts5(content, tokenize = 'unicode61')")
    except sqlite3.OperationalError as error:
        lines.append(Line("SQLite FTS5", missing=f"this SQLite has no FTS5: {error}"))
    else:
        db.executemany(
            "insert into t(rowid, content) values (?, ?)", ((i, " ".join(d)) for i, d in enumerate(documents))
        )
        built = perf_counter() - start
        ask = "select rowid from t where t match ? order by rank limit ?"

        def fts(words: Sequence[str], k: int = limit) -> list[int]:
            return [r[0] for r in db.execute(ask, (" OR ".join(f'"{w}"' for w in words), k))]

        same = float(np.mean([len(set(fts(q, K)) & b) / K for q, b in zip(questions, best, strict=True)]))
        lines.append(Line("SQLite FTS5", cycle_of(fts, questions), built, same))
    try:
        bm25s = package("bm25s", "bm25s")
        start = perf_counter()
        retriever = bm25s.BM25(k1=1.2, b=0.75)
        retriever.index(documents, show_progress=False)
        built = perf_counter() - start

        def retrieved(words: Sequence[str], k: int = limit) -> Any:
            return retriever.retrieve([list(words)], k=k, show_progress=False, n_threads=1)[0][0]

        same = float(
            np.mean(
                [len(set(map(int, retrieved(q, K))) & b) / K for q, b in zip(questions, best, strict=True)]
            )
        )
        lines.append(Line("bm25s", cycle_of(retrieved, questions), built, same))
    except Missing as why:
        lines.append(Line("bm25s", missing=str(why)))
    title = f"BM25, {PUBLISHED_ROWS:,} texts of 18 words, 8 terms, best {limit}"
    return Section(title, lines, "top 10 agree").measure()


# -- L1 --------------------------------------------------------------------------------------------------


class OrderedLru(collections.OrderedDict[str, Any]):
    """The textbook cache: an OrderedDict that is told of every use."""

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            return default
        self.move_to_end(key)
        return self[key]

    def set(self, key: str, value: Any) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > 50:
            self.popitem(last=False)


def scratchpad() -> list[Section]:
    from twofold import Scratchpad

    keys = [f"scratchpad key {i:05d}" for i in range(50)]
    many = [f"evicting key {i:06d}" for i in range(200)]
    loop = 20

    def reading(get: Callable[[str], Any], put: Callable[[str, Any], Any]) -> Callable[[], Any]:
        for key in keys:
            put(key, 1)

        def run() -> None:
            for _ in range(loop):
                for key in keys:
                    get(key)

        return run

    def writing(put: Callable[[str, Any], Any]) -> Callable[[], Any]:
        def run() -> None:
            for _ in range(loop // 4):
                for key in many:
                    put(key, 1)

        return run

    plain: dict[str, Any] = {}

    @functools.lru_cache(maxsize=50)
    def cached(key: str) -> int:
        return len(key)

    def call_cached(key: str, _: Any) -> int:
        return cached(key)

    per = loop * len(keys)
    pad, full = Scratchpad(), Scratchpad()
    gets = [Line("twofold Scratchpad, TTL checked", reading(pad.get, pad.set), per=per)]
    sets = [Line("twofold Scratchpad, TTL and eviction", writing(full.set), per=per)]
    gets.append(Line("dict, no limit, no TTL", reading(plain.get, plain.__setitem__), per=per))
    gets.append(Line("functools.lru_cache hit, no TTL", reading(cached, call_cached), per=per))
    textbook, another = OrderedLru(), OrderedLru()
    gets.append(Line("OrderedDict, no TTL", reading(textbook.get, textbook.set), per=per))
    sets.append(Line("OrderedDict, no TTL", writing(another.set), per=per))
    try:
        cachetools = package("cachetools", "cachetools")
        for name, make in (
            ("cachetools.TTLCache", lambda: cachetools.TTLCache(50, 300)),
            ("cachetools.LRUCache, no TTL", lambda: cachetools.LRUCache(50)),
        ):
            for_get, for_set = make(), make()
            gets.append(Line(name, reading(for_get.get, for_get.__setitem__), per=per))
            sets.append(Line(name, writing(for_set.__setitem__), per=per))
    except Missing as why:
        gets.append(Line("cachetools", missing=str(why)))
        sets.append(Line("cachetools", missing=str(why)))
    try:
        lru = package("lru-dict", "lru")
        for_get, for_set = lru.LRU(50), lru.LRU(50)
        gets.append(Line("lru-dict, no TTL", reading(for_get.get, for_get.__setitem__), per=per))
        sets.append(Line("lru-dict, no TTL", writing(for_set.__setitem__), per=per))
    except Missing as why:
        gets.append(Line("lru-dict", missing=str(why)))
        sets.append(Line("lru-dict", missing=str(why)))
    return [
        Section("L1 get, 50 keys of 20 characters, all there", gets).measure(clean=40, most=160, seconds=10),
        Section("L1 set that evicts, room for 50 of 200 keys", sets).measure(clean=40, most=160, seconds=10),
    ]


# -- running ---------------------------------------------------------------------------------------------


def sections(only: str, large: bool) -> Iterator[Section]:
    if only in ("", "search"):
        sizes = [(PUBLISHED_ROWS, 1536), (PUBLISHED_ROWS, 384), (100_000, 384)]
        sizes += [(100_000, 1536), (1_000_000, 384)] if large else []
        for rows, dimension in sizes:
            say(f"search {rows} x {dimension}")
            yield search(rows, dimension, large=large)
    if only in ("", "graph"):
        say("graph")
        yield from page_rank()
    if only in ("", "lexical"):
        say("lexical")
        yield lexical()
    if only in ("", "scratchpad"):
        say("scratchpad")
        yield from scratchpad()


def enter(folder: Path, arguments: list[str]) -> None:
    """Go on in the peers' environment, made and filled first if it is not there. Does not return."""
    python = folder / "bin" / "python"
    if not python.exists():
        say(f"making {folder}")
        venv.create(folder, with_pip=True)
    # The packages of the calling environment, Twofold among them, come after the peers' own.
    places = [p for p in sys.path if p.endswith("site-packages")]
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    (site / "twofold_benchmarks.pth").write_text(
        "".join(f"import site; site.addsitedir({p!r})\n" for p in places)
    )
    for line in (HERE / "requirements-peers.txt").read_text().splitlines():
        wanted = line.partition("#")[0].strip()
        name = wanted.partition(">")[0].strip()
        here = [str(python), "-c", f"import importlib.metadata as m; m.version({name!r})"]
        if not wanted or subprocess.run(here, capture_output=True, check=False).returncode == 0:
            continue
        say(f"installing {wanted}")
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", wanted]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            say(f"  cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    os.chdir(ROOT)
    os.execve(
        python,
        [str(python), "-m", "benchmarks.peers", *arguments],
        single_thread_environment(TWOFOLD_PEERS="1"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, help="environment of the peers; made when it is not there")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", choices=("search", "graph", "lexical", "scratchpad"), default="")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    options = parser.parse_args()
    if "TWOFOLD_PEERS" not in os.environ:
        arguments = [*(["--large"] if options.large else [])]
        for name in ("only", "json", "markdown"):
            if getattr(options, name):
                value = getattr(options, name)
                arguments += [f"--{name}", str(value.resolve() if isinstance(value, Path) else value)]
        if options.venv:
            enter(options.venv.resolve(), arguments)
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.peers", *arguments],
            single_thread_environment(TWOFOLD_PEERS="1"),
        )
    core = pin()
    about = {
        **machine(),
        "pinned to core": core,
        "threads": 1,
        "sqlite": sqlite3.sqlite_version,
        "peers": {name: version(name) or "missing" for name in PACKAGES},
    }
    lines = [
        f"{k}: {', '.join(f'{n} {v}' for n, v in x.items()) if isinstance(x, dict) else x}"
        for k, x in about.items()
    ]
    text = "\n".join(["```", *lines, "```", ""])
    print(text)
    data: dict[str, Any] = {"machine": about, "sections": {}}
    for section in sections(options.only, options.large):
        print(section.markdown(), flush=True)
        text += "\n" + section.markdown()
        data["sections"][section.title] = section.data()
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if options.markdown:
        command = f"python -m benchmarks.peers --venv build/peers{' --large' if options.large else ''}"
        options.markdown.write_text(f"{HEADING.format(command=command)}\n{text}")


if __name__ == "__main__":
    # Peers leave files where they run; none of that belongs into the tree.
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("TMPDIR", scratch)
        main()
