"""Whole recalls on PostgreSQL beside SQLite and beside bare statements of pgvector, in one run on one machine:

    python -m benchmarks.postgres_latency --memories 14726 100000

Contestants take turns question by question, so that what else the machine does falls on all of them. Percentiles
10, 50 and 99 of what is left after a warm-up are shown, and how much of SQLite's top ten each one gives. The
server is that of the tests (tests/stores/pg.py), with shared buffers that hold the vectors, on the same cores; every
recall is by this process, over TCP. "keep=0" keeps no fetched vectors in this process.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common import Corpus, Supplied, machine

DIMENSION = 384


def items(count: int) -> list[dict[str, Any]]:
    """Turns with given vectors; one in a hundred has a tag to filter by."""
    told = list(Corpus().memories(count, DIMENSION))
    for item in told[::100]:
        item["tags"] = [*item["tags"], "hundredth"]
    return told


def filled(address: Any, told: list[dict[str, Any]]) -> float:
    """Seconds to add everything."""
    from twofold import AgentMemory

    start = perf_counter()
    with AgentMemory(address, embedder=Supplied(DIMENSION)) as mem:
        mem.add_many(told, batch=2_000)
    return perf_counter() - start


def bare(db: Any, schema: str, scan: bool) -> Callable[[str], list[str]]:
    """pgvector alone: the ten nearest rows by one statement, nothing else done."""
    from twofold.stores import postgres_schema, postgres_vectors

    embedder = Supplied(DIMENSION)
    cast = f"(e.v::vector({DIMENSION}))"
    sql = f"""SELECT m.content FROM (SELECT e.ordinal FROM "{schema}".embedding AS e
            WHERE vector_dims(e.v) = {DIMENSION}
            ORDER BY {cast} <=> %b::vector({DIMENSION}) LIMIT 10) AS n
        JOIN "{schema}".memory AS m ON m.tenant = 'default' AND m.ordinal = n.ordinal"""

    def ask(text: str) -> list[str]:
        vector = embedder.embed_query(text)
        with db.transaction():
            db.execute(postgres_schema.AS_TENANT, ("default",))
            db.execute("SELECT set_config('enable_indexscan', %s, true)", ("off" if scan else "on",))
            return [row for (row,) in db.execute(sql, (postgres_vectors.packed(vector),)).fetchall()]

    return ask


def measure(server: Any, memories: int, count: int, age: bool) -> None:
    import psycopg
    from tests.stores import pg

    from twofold import AgentMemory
    from twofold.retrieve import pushdown
    from twofold.stores import open_store, postgres_vectors

    with psycopg.connect(server.dsn("postgres"), autocommit=True) as admin:
        for extension in ("vector", "age", "vectorscale"):
            admin.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}")
        admin.execute(f"GRANT USAGE ON SCHEMA ag_catalog TO {pg.ROLE}")
    told = items(memories)
    folder = tempfile.mkdtemp()
    address = pg.address(Path(f"/latency/{memories}"), server=server)
    # Three handles of this process share what is kept: as much for each as a process of its own would keep.
    pushed = f"{address}&mode=pushdown&keep=192"
    took = {"SQLite": filled(folder, told), "PostgreSQL": filled(address, told)}
    start = perf_counter()
    with AgentMemory(pushed, embedder=Supplied(DIMENSION)) as mem:
        mem.recall("Ann", promote=False)
    took["what pushdown searches"] = perf_counter() - start
    store: Any = open_store(f"{pushed}&graph=age" if age else pushed)
    start = perf_counter()
    store.create_vector_index(DIMENSION, "hnsw")
    took["HNSW"] = perf_counter() - start
    schema = store._schema
    store.close()
    print(f"\n{memories:,} memories of {DIMENSION} dimensions, {count} questions")
    print("made in: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()))

    with ExitStack() as stack:

        def recalls(where: Any, named: int = pushdown.NAMED, **asked: Any) -> Callable[[str], list[str]]:
            mem = stack.enter_context(AgentMemory(where, embedder=Supplied(DIMENSION)))

            def ask(text: str) -> list[str]:
                pushdown.NAMED = pushdown.SCANNED = named
                return [hit.memory.content for hit in mem.recall(text, promote=False, k=10, **asked)]

            return ask

        db = stack.enter_context(psycopg.connect(server.dsn(), autocommit=True))
        db.adapters.register_dumper(postgres_vectors.Packed, postgres_vectors.PackedDumper)
        few = {"filters": {"tags": ["hundredth"]}}
        contestants = {
            "SQLite": recalls(folder),
            "PostgreSQL local": recalls(address),
            "PostgreSQL pushdown, exact": recalls(pushed, 10**9),
            "PostgreSQL pushdown, exact, keep=0": recalls(pushed.replace("keep=192", "keep=0"), 10**9),
            "PostgreSQL pushdown, HNSW": recalls(pushed, 0),
            "SQLite, 1 % eligible": recalls(folder, **few),
            "PostgreSQL pushdown, 1 % eligible": recalls(pushed, **few),
            "pgvector alone, scan, 10 rows": bare(db, schema, True),
            "pgvector alone, HNSW, 10 rows": bare(db, schema, False),
        }
        if age:
            contestants["PostgreSQL pushdown, exact, graph in AGE"] = recalls(f"{pushed}&graph=age", 10**9)
        asked = Corpus().questions(count + 10)
        for text in asked[:10]:
            for ask in contestants.values():
                ask(text)
        times: dict[str, list[float]] = {name: [] for name in contestants}
        alike: dict[str, list[float]] = {name: [] for name in contestants}
        for text in asked[10:]:
            answers = {}
            for name, ask in contestants.items():
                start = perf_counter()
                answers[name] = ask(text)
                times[name].append(1000 * (perf_counter() - start))
            for name, answer in answers.items():
                right = answers["SQLite, 1 % eligible" if "1 %" in name else "SQLite"]
                alike[name].append(len(set(answer) & set(right)) / len(right))
    for name, samples in times.items():
        low, middle, high = np.percentile(samples, [10, 50, 99])
        same = f"{np.mean(alike[name]):.3f}" if "alone" not in name else "-"
        print(
            f"  {name:42} p10 {low:7.2f} ms   median {middle:7.2f} ms   p99 {high:7.2f} ms   SQLite's ten {same}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, nargs="+", default=[14_726])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--age", action="store_true", help="also with the graph walked by Apache AGE")
    arguments = parser.parse_args()
    from tests.stores import pg

    if pg.why_not() is not None or not pg.extended():
        sys.exit("needs the server of tests/engines.txt")
    os.environ["PGOPTIONS"] = "-c maintenance_work_mem=1GB"  # an index is built in memory, or slowly
    print(machine())
    server = pg.Server({"shared_buffers": "1GB"}).create()
    try:
        for memories in arguments.memories:
            measure(server, memories, arguments.questions, arguments.age)
    finally:
        server.remove()


if __name__ == "__main__":
    main()
