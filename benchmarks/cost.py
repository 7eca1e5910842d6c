"""Latency, money and incidents of 45,000 queries a day: `python -m benchmarks.cost`.

The hosted figures are cited as the article publishes them; nothing of theirs is measured here. Ours are measured:
whole recalls through the local encoder on a store of the published size, in a process without a network. Money is
the processor time at the price of a rented core, which `--core-month` sets; a machine that is there anyway costs
nothing more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .common import (
    PUBLISHED_ROWS,
    ROOT,
    Coded,
    Corpus,
    LocalQueries,
    Samples,
    build_store,
    folder_bytes,
    machine,
    pin,
    resident,
    say,
    show,
    single_thread_environment,
    table,
)

QUERIES_A_DAY = 45_000
DAYS_A_MONTH = 30
HOSTED = {"queries": 135.0, "pod": 70.0}
"""US dollars a month for a hosted vector database, as published."""
HOSTED_HALF_YEAR = 1230.0
HOSTED_MS = {"median": 94.0, "p99": 118.0}
"""The published design's own latency budget, at 14,726 memories."""
FEW = 10
"""With fewer undisturbed samples than that all of them count (`common.Samples.clean`)."""
CORE_MONTH = 25.0
"""US dollars a month for one rented virtual core: an assumption, on the dear side of common offers in 2025."""


def measured(store: Path, queries: int) -> dict[str, Any]:
    """Recalls one after another, each a new text; every exception is an incident."""
    from twofold import AgentMemory
    from twofold.embed import open_embedder
    from twofold.errors import TwofoldError

    encoder = open_embedder("minilm", threads=1)
    samples, incidents, empty = Samples(), [], 0
    with AgentMemory(store, embedder=LocalQueries(encoder)) as mem:
        warm, *questions = Corpus().questions(queries + 1, seed=21)
        mem.recall(warm)
        for question in questions:
            try:
                found = samples.time(mem.recall, question)
            except TwofoldError as error:
                incidents.append(f"{type(error).__name__}: {error}")
            else:
                empty += len(found) < 10
        held = resident()
    return {
        **samples.summary(),
        "queries": queries,
        "incidents": incidents,
        "short_answers": empty,
        "cpu_s_per_query": sum(samples.cpu) / len(samples.cpu) / 1e3,
        "rss_bytes": held,
        "disk_bytes": folder_bytes(store),
    }


def interfaces() -> list[str]:
    """Network interfaces of this process other than loopback."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return [name for line in lines if (name := line.partition(":")[0].strip()) != "lo"]


def child(store: Path, queries: int) -> dict[str, Any]:
    command = [
        sys.executable,
        "tools/offline.py",
        sys.executable,
        "-m",
        "benchmarks.cost",
        "--child",
        str(store),
    ]
    done = subprocess.run(
        [*command, "--queries", str(queries)],
        cwd=ROOT,
        env=single_thread_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(found: dict[str, Any], core_month: float) -> tuple[str, dict[str, Any]]:
    cpu_day = found["cpu_s_per_query"] * QUERIES_A_DAY
    share = cpu_day / 86_400
    money = share * core_month
    hosted = sum(HOSTED.values())
    offline = (
        "no network interface but loopback" if not found["interfaces"] else "the network was there, unused"
    )
    failed = len(found["incidents"])
    clean = f"{found['clean']:,} undisturbed" if found["clean"] >= FEW else "all, nearly none undisturbed"
    rows = [
        [
            f"latency, median of {clean}",
            f"{HOSTED_MS['median']:.0f} ms (published budget)",
            show(found["median_ms"]),
        ],
        [f"latency, p99 of {clean}", f"{HOSTED_MS['p99']:.0f} ms (published budget)", show(found["p99_ms"])],
        [
            "processor time a query, least / median / mean",
            "not published",
            f"{show(found['cpu_min_ms'])} / {show(found['cpu_median_ms'])} / {show(1e3 * found['cpu_s_per_query'])}",
        ],
        ["one core busy, of a day", "not published", f"{100 * share:.2f} % ({cpu_day / 60:.1f} minutes)"],
        [
            "money a month",
            f"${hosted:.0f} (queries ${HOSTED['queries']:.0f} + pod ${HOSTED['pod']:.0f})",
            f"${money:.2f} at ${core_month:.0f} a core and month; $0 more on a machine that is there",
        ],
        ["money in six months", f"${HOSTED_HALF_YEAR:,.0f}", f"${6 * money:.2f}"],
        ["needs a network, a key, a server", "yes", f"no: {offline}"],
        [
            "incidents",
            "not measured here",
            f"{failed} in {found['queries']:,} recalls, {found['short_answers']} short answers",
        ],
        ["RAM of the whole process", "not published", f"{found['rss_bytes'] / 2**20:.0f} MiB"],
        ["disk", "not published", f"{found['disk_bytes'] / 2**20:.0f} MiB"],
    ]
    text = table(
        [
            f"{QUERIES_A_DAY:,} queries a day, {found['rows']:,} memories",
            "hosted, as published",
            "Twofold, measured",
        ],
        rows,
    )
    figures = {"cpu_s_a_day": cpu_day, "usd_a_month": money, "hosted_usd_a_month": hosted, **found}
    return text, figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=1000, help="recalls to measure")
    parser.add_argument("--core-month", type=float, default=CORE_MONTH, help="US dollars a core and month")
    parser.add_argument("--rows", type=int, default=PUBLISHED_ROWS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        pin()
        print(json.dumps({**measured(options.child, options.queries), "interfaces": interfaces()}))
        return
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.cost", *sys.argv[1:]],
            single_thread_environment(),
        )
    with tempfile.TemporaryDirectory() as folder:
        say(f"storing {options.rows:,} memories")
        build_store(Path(folder) / "store", options.rows, Coded(384))
        say(f"{options.queries:,} recalls without a network")
        found = {"rows": options.rows, **child(Path(folder) / "store", options.queries)}
    text, figures = report(found, options.core_month)
    about = machine()
    print("\n".join(["```", *(f"{k}: {v}" for k, v in about.items()), "```", "", text]))
    for incident in found["incidents"][:10]:
        print(f"incident: {incident}")
    if options.json:
        options.json.write_text(json.dumps({"machine": about, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
