"""Whole operations as a user sees them: `python -m benchmarks.whole`.

add, add_many, recall (supplied vectors, cached query vector, the local encoder), open and first recall, the
command line from cold, memory and disk per memory, and how all of it grows. One core, one thread; least and
median of clean samples. `--sizes` chooses the stores, `--large` adds a million memories, `--plot FILE.png` draws
the cost curve, `--stores DIR` keeps the stores for the next run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from .common import (
    PUBLISHED_ROWS,
    ROOT,
    Coded,
    Corpus,
    LocalQueries,
    Samples,
    exponent,
    folder_bytes,
    growth,
    machine,
    pin,
    say,
    show,
    single_thread_environment,
    table,
    version,
)

DIMENSION = 384
SIZES = (1000, 10_000, PUBLISHED_ROWS, 100_000)
LARGE = 1_000_000
OPENINGS = 20
UNBACKED_AFTER = 5.0
"""Seconds after which a virtual machine that reports its free memory has given it back."""
RULES = 2
"""Raise it when a kept store would be filled otherwise today."""
# Least processor time of operations that run on one thread: what grows, and as little as can be of who else was on
# the machine, who takes from the caches too.
CURVE = (
    "recall_cpu_ms",
    "cached_cpu_ms",
    "add_cpu_ms",
    "open_cpu_ms",
    "ingest_cpu_ms",
    "rss_bytes",
    "disk_bytes",
)


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def stored(folder: Path, rows: int) -> dict[str, Any]:
    """Fill a store, unless it is there from an earlier run; how long a row took."""
    from twofold import AgentMemory

    done = folder / "built.json"
    if done.exists() and (known := json.loads(done.read_text())).get("rules") == RULES:
        return dict(known)
    shutil.rmtree(folder / "store", ignore_errors=True)
    say(f"  storing {rows:,} memories")
    corpus, batch, took = Corpus(), 1000, Samples()
    embedder = Coded(DIMENSION)
    with AgentMemory(folder / "store", embedder=embedder) as mem:
        for low in range(0, rows, batch):
            items = embedder.prepare(corpus.turns(min(batch, rows - low), start=low))
            took.time(lambda items=items: mem.add_many(items, batch=batch))
            embedder.forget()
    per_row = sum(took.all) / rows
    built = {
        "rules": RULES,
        "ingest_ms": per_row,
        "ingest_cpu_ms": sum(took.cpu) / rows,
        "ingest_first_batch_ms": took.all[0] / min(batch, rows),
        "ingest_last_batch_ms": took.all[-1] / min(batch, rows),
        "ingest_best_batch_ms": took.best / min(batch, rows),
    }
    done.write_text(json.dumps(built))
    return built


def child(code: str, *arguments: str) -> dict[str, Any]:
    """What `code` prints as JSON, in a fresh process on one thread."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=single_thread_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


OPENING = """
import json, sys, time
from benchmarks.common import Coded, Corpus, huge_bytes, interruptions, resident
from twofold import AgentMemory
Corpus  # whatever is imported once is imported before the clock starts
import twofold.stores.sqlite, twofold.recall
embedder = Coded(int(sys.argv[2]))
question = Corpus().questions(1)[0]
embedder.learn([question, question + " again"])
if sys.argv[3] != "0":
    huge_bytes(int(sys.argv[3]))  # and free it again: it goes to whoever asks next
before, switches = resident(), interruptions()
start, spent = time.perf_counter(), time.process_time()
mem = AgentMemory(sys.argv[1], embedder=embedder)
opened = time.perf_counter()
assert len(mem.recall(question)) == 10
done, spent = time.perf_counter(), time.process_time() - spent
mem.recall(question + " again")
print(json.dumps({
    "open_ms": 1e3 * (opened - start),
    "first_recall_ms": 1e3 * (done - opened),
    "rss_bytes": resident() - before,
    "cpu_ms": 1e3 * spent,
    "clean": interruptions() == switches,
}))
mem.close()
"""


def opening(folder: Path, rows: int) -> dict[str, Any]:
    """Open and first recall in fresh processes, which have imported everything; memory held per memory.

    The first process may have to make the view's file, the others read it: the least of all is what counts. A
    virtual machine gives free memory back to its host, which takes ten times as long to find it again as it takes to
    use: a large store would meet that, a small one not. So half as much again as an open store holds is used and
    freed beforehand; `open_unbacked_cpu_ms` is without, the most of two.
    """
    place = str(folder / "store")
    size = int(1.5 * child(OPENING, place, str(DIMENSION), "0")["rss_bytes"])
    time.sleep(UNBACKED_AFTER)
    unbacked = [child(OPENING, place, str(DIMENSION), "0") for _ in range(2)]
    runs = [child(OPENING, place, str(DIMENSION), str(size)) for _ in range(OPENINGS)]
    best = min(runs, key=lambda r: r["open_ms"] + r["first_recall_ms"])
    return {
        "open_unbacked_cpu_ms": max(r["cpu_ms"] for r in unbacked),
        "open_ms": best["open_ms"] + best["first_recall_ms"],
        "open_alone_ms": best["open_ms"],
        "open_cpu_ms": min(r["cpu_ms"] for r in runs),
        "rss_bytes": min(r["rss_bytes"] for r in runs) / rows,
    }


def steady(folder: Path, rows: int, encoder: Any) -> dict[str, Any]:
    """Recall and add in an open store."""
    from twofold import AgentMemory

    corpus = Corpus()
    found: dict[str, Any] = {}

    def record(name: str, samples: Samples) -> None:
        found[name] = samples.summary()
        found[f"{name}_cpu_ms"] = found[name]["cpu_min_ms"]

    embedder = Coded(DIMENSION)
    with AgentMemory(folder / "store", embedder=embedder) as mem, no_collector():
        questions = corpus.questions(400, seed=11)
        embedder.learn(questions)
        fresh = iter(questions)
        for _ in range(5):
            mem.recall(next(fresh))
        record("recall", Samples().until(60, 200, lambda: mem.recall(next(fresh))))
        again = corpus.questions(1, seed=12)[0]
        mem.recall(again)
        record("cached", Samples().until(60, 200, lambda: mem.recall(again)))
        record("budgeted", Samples().until(30, 90, lambda: mem.recall(next(fresh), k=50, budget=1000)))
        filters = {"tags": ["team3"]}
        record("filtered", Samples().until(30, 90, lambda: mem.recall(again, filters=filters)))
        # Rows that no run has stored before, so that a kept store gets no duplicates.
        at = 10_000_000 + mem.stats()["seq"]
        new = iter(embedder.prepare(corpus.turns(320, start=at)))
        for _ in range(5):
            mem.add(**next(new))
        record("add", Samples().until(100, 300, lambda: mem.add(**next(new))))
    if encoder is not None and rows == PUBLISHED_ROWS:
        asked = LocalQueries(encoder)
        with AgentMemory(folder / "store", embedder=asked) as mem, no_collector():
            # In turns, each text once: a recall's embedding and one by itself meet the same machine.
            fresh, alone = iter(corpus.questions(300, seed=13)), iter(corpus.questions(300, seed=14))
            whole, embedding = Samples(), Samples()
            for turn in range(243):
                if turn == 3:
                    whole, embedding = Samples(), Samples()
                embedding.time(lambda: encoder.embed_query_with_codes(next(alone)))
                whole.time(lambda: mem.recall(next(fresh)))
            record("minilm", whole)
            record("minilm_alone", embedding)
            found["minilm_over_ms"] = {
                "least": whole.best - embedding.best,
                "median": whole.median - embedding.median,
                "processor_least": found["minilm_cpu_ms"] - found["minilm_alone_cpu_ms"],
                "processor": found["minilm"]["cpu_median_ms"] - found["minilm_alone"]["cpu_median_ms"],
            }
    return found


def encoder_or_none() -> Any:
    from twofold.embed import open_embedder
    from twofold.errors import EmbedderUnavailable

    try:
        return open_embedder("minilm", threads=1)
    except EmbedderUnavailable as why:
        say(f"  without the local encoder: {why}")
        return None


def command_line(rows: int, encoder: Any) -> dict[str, Any]:
    """`twofold` from a cold shell: CPU seconds and wall seconds, least of five."""
    tool = Path(sys.executable).with_name("twofold")
    if not tool.exists():
        say(f"  no {tool}: the command line is left out")
        return {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "store"
        if encoder is not None:
            from twofold import AgentMemory

            # Rows with made-up vectors under the real encoder's name: what the command opens is a normal store.
            with AgentMemory(store, embedder=encoder) as mem:
                mem.add_many(Corpus().memories(rows, encoder.dimension), batch=1000)
        runs: list[tuple[str, list[str]]] = [
            ("import twofold", [sys.executable, "-c", "import twofold"]),
            ("twofold --version", [str(tool), "--version"]),
        ]
        if encoder is not None:
            runs.append(
                (
                    f"twofold recall, {rows:,} memories, model included",
                    [str(tool), "recall", "which host runs glas lal", "--store", str(store)],
                )
            )
        for name, command in runs:
            cpu, wall = [], []
            for _ in range(5):
                before, start = os.times(), perf_counter()
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                after = os.times()
                if done.returncode != 0:
                    raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
                wall.append(perf_counter() - start)
                cpu.append(
                    after.children_user
                    + after.children_system
                    - before.children_user
                    - before.children_system
                )
            found[name] = {"cpu_s": min(cpu), "wall_s": min(wall)}
    return found


def curve(results: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Exponents over all sizes, and between each two: what costs how much more when the store grows."""
    sizes = sorted(results)
    out: dict[str, Any] = {}
    for name in CURVE:
        if any(name not in results[s] for s in sizes):
            continue
        costs = [results[s][name] * (s if name.endswith("bytes") else 1) for s in sizes]
        out[name] = {
            "exponent": exponent(sizes, costs),
            "last": growth(sizes, costs)[-1],
            "between": dict(zip(map(str, sizes[1:]), growth(sizes, costs), strict=True)),
        }
    return out


def plot(results: dict[int, dict[str, Any]], fitted: dict[str, Any], target: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    sizes = sorted(results)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    labels = {
        "open_cpu_ms": "open + first recall",
        "recall_cpu_ms": "recall, query vector given",
        "add_cpu_ms": "add, vector given",
        "ingest_cpu_ms": "add_many, per row",
    }
    for name, label in labels.items():
        left.plot(
            sizes,
            [results[s][name] for s in sizes],
            marker="o",
            label=f"{label}: n^{fitted[name]['last']:.2f} at the end",
        )
    for name, label in {"rss_bytes": "RAM", "disk_bytes": "disk"}.items():
        right.plot(sizes, [results[s][name] / 1024 for s in sizes], marker="o", label=f"{label} per memory")
    left.set(xscale="log", yscale="log", xlabel="memories", ylabel="ms of processor time, least")
    right.set(xscale="log", xlabel="memories", ylabel="KiB", ylim=(0, None))
    for axes in (left, right):
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(f"{DIMENSION} dimensions, {machine()['kernel']}, one thread")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def markdown(results: dict[int, dict[str, Any]], commands: dict[str, Any]) -> str:
    sizes = sorted(results)
    wanted: list[tuple[str, Callable[[dict[str, Any]], str]]] = []
    for name, label in {
        "recall": "recall, query vector given",
        "cached": "recall, query vector cached",
        "filtered": "recall, filtered to 1 in 7",
        "budgeted": "recall of 50 in 1,000 tokens",
        "minilm": "recall with MiniLM",
        "minilm_alone": "MiniLM alone",
        "add": "add, vector given",
    }.items():

        def cell(found: dict[str, Any], name: str = name) -> str:
            s = found.get(name)
            if not s:
                return ""
            wall = " / ".join(show(s[name]) for name in ("min_ms", "median_ms", "p99_ms"))
            return f"{wall} ({show(s['cpu_min_ms'])} / {show(s['cpu_median_ms'])})"

        wanted.append((label, cell))
    wanted += [
        (
            "recall with MiniLM, beyond MiniLM alone",
            lambda r: (
                "{} / {} ({})".format(*map(show, r["minilm_over_ms"].values()))
                if "minilm_over_ms" in r
                else ""
            ),
        ),
        (
            "add_many, per row (processor time)",
            lambda r: f"{show(r['ingest_ms'])} ({show(r['ingest_cpu_ms'])})",
        ),
        ("add_many, per row, last batch", lambda r: show(r["ingest_last_batch_ms"])),
        (
            "open + first recall (processor time)",
            lambda r: f"{show(r['open_ms'])} ({show(r['open_cpu_ms'])})",
        ),
        ("the same in memory the host has to find", lambda r: f"({show(r['open_unbacked_cpu_ms'])})"),
        ("RAM per memory", lambda r: f"{r['rss_bytes'] / 1024:.2f} KiB"),
        ("disk per memory", lambda r: f"{r['disk_bytes'] / 1024:.2f} KiB"),
    ]
    rows = [[label, *(cell(results[s]) for s in sizes)] for label, cell in wanted]
    rows = [row for row in rows if any(row[1:])]
    text = "Least / median / p99 of clean samples (least / median of processor time)\n\n"
    text += table(["", *(f"{s:,} memories" for s in sizes)], rows) + "\n"
    if len(sizes) > 1:
        fitted = curve(results)
        text += "\n" + table(
            ["cost", "exponent over all sizes", "between the last two"],
            [[n, f"{f['exponent']:.2f}", f"{f['last']:.2f}"] for n, f in fitted.items()],
        )
        text += "\n"
    if commands:
        lines = [[n, f"{c['cpu_s']:.2f} s", f"{c['wall_s']:.2f} s"] for n, c in commands.items()]
        text += "\n" + table(["from a cold shell", "CPU", "wall"], lines) + "\n"
    return text


def measure(
    sizes: list[int], stores: Path, *, commands: bool = True, opening_only: bool = False
) -> dict[str, Any]:
    encoder = None if opening_only else encoder_or_none()
    results: dict[int, dict[str, Any]] = {}
    for rows in sizes:
        say(f"{rows:,} memories")
        folder = stores / str(rows)
        folder.mkdir(parents=True, exist_ok=True)
        built = stored(folder, rows)
        results[rows] = {**built, **opening(folder, rows)}
        if not opening_only:
            results[rows] |= steady(folder, rows, encoder)
        results[rows]["disk_bytes"] = folder_bytes(folder / "store") / rows
        say(f"  {json.dumps(results[rows])}")
    return {
        "machine": machine(),
        "sizes": results,
        "curve": curve(results) if len(sizes) > 1 else {},
        "commands": command_line(PUBLISHED_ROWS, encoder) if commands else {},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--large", action="store_true", help=f"a store of {LARGE:,} too")
    parser.add_argument("--stores", type=Path, help="keep the stores here; left out, they are removed")
    parser.add_argument("--no-commands", action="store_true", help="leave the command line out")
    parser.add_argument("--opening", action="store_true", help="open + first recall only")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.plot and options.opening:
        parser.error("--plot shows everything: without --opening")
    if options.plot and version("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'twofold[bench]'")
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.whole", *sys.argv[1:]],
            single_thread_environment(),
        )
    pin()
    sizes = sorted({*options.sizes, *([LARGE] if options.large else [])})
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(
            sizes,
            options.stores or Path(scratch),
            commands=not (options.no_commands or options.opening),
            opening_only=options.opening,
        )
    about = found["machine"]
    text = "\n".join(
        [
            "```",
            *(f"{k}: {v}" for k, v in about.items()),
            "```",
            "",
            markdown(found["sizes"], found["commands"]),
        ]
    )
    print(text)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(text)
    if options.plot:
        plot(found["sizes"], found["curve"], options.plot)


if __name__ == "__main__":
    main()
