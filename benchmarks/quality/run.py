"""Evidence recall of the shipped public API over labelled conversations, beside its control rows.

    python benchmarks/quality/run.py --data ../shared/data/locomo_dev.jsonl --budget 500 1000 2000

Each conversation is its own search space. any@k: at least one evidence turn among the first k; frac@k: share of
the evidence among them; share@B: the same inside a token budget. Intervals: 95 % bootstrap over questions with a
fixed seed. Adversarial questions are reported apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from twofold.timewords import parse_loose_datetime

from twofold import AgentMemory, ManualClock

METHODS = ("bm25", "vector", "rrf60", "base", "default")
DEEP = 100
ASIDE = "adversarial"


@dataclass
class Outcome:
    """What one method did with one question."""

    category: str
    ranks: list[int]  # 1-based places of the evidence found in the first DEEP
    evidence: int
    sessions: list[int]  # 1-based places of evidence sessions, by first turn of each session
    session_count: int
    shares: dict[int, float] = field(default_factory=dict)


def load(path: Path) -> list[dict[str, Any]]:
    """Conversations of a JSONL file as ../shared/data/README.md describes them."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def item(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn as the fields of `add`."""
    speaker = turn["speaker"] or None
    role = speaker if speaker in ("user", "assistant", "tool") else None
    return {
        "content": turn["text"],
        "memory_type": "interaction",
        "source_id": str(turn["id"]),
        "session_id": None if turn["session"] in (None, "") else str(turn["session"]),
        "speaker": None if role else speaker,
        "event_date": parse_loose_datetime(turn["time"]) if turn["time"] else None,
        "metadata": {"role": role} if role else {},
    }


def ingest(mem: AgentMemory, conversations: list[dict[str, Any]]) -> int:
    """Store every turn, one namespace a conversation. Turns that cannot be stored (blank) are counted out."""
    stored = 0
    for i, conversation in enumerate(conversations, 1):
        turns = [t for t in conversation["turns"] if t["text"].strip()]
        items = [{**item(t), "namespace": conversation["id"]} for t in turns]
        stored += len(mem.add_many(items))
        print(f"\ringested {i}/{len(conversations)} conversations, {stored} turns", end="", file=sys.stderr)
    print(file=sys.stderr)
    return stored


def ask(
    mem: AgentMemory, conversations: list[dict[str, Any]], profile: Any, budgets: Iterable[int]
) -> list[Outcome]:
    """Every question put to one profile."""
    out = []
    for conversation in conversations:
        session_of = {str(t["id"]): str(t["session"]) for t in conversation["turns"]}
        for question in conversation["questions"]:
            wanted = {str(e) for e in question["evidence"]}
            if not wanted:
                continue
            options = {"namespaces": [conversation["id"]], "profile": profile, "promote": False}
            found = mem.recall(question["question"], k=DEEP, **options)
            ids = [h.memory.source_id for h in found]
            sessions = list(dict.fromkeys(session_of[i] for i in ids if i))
            wanted_sessions = {session_of[w] for w in wanted if w in session_of}
            outcome = Outcome(
                question.get("category") or "",
                [r for r, i in enumerate(ids, 1) if i in wanted],
                len(wanted),
                [r for r, s in enumerate(sessions, 1) if s in wanted_sessions],
                len(wanted_sessions),
            )
            for budget in budgets:
                packed = mem.recall(question["question"], k=10 * DEEP, budget=budget, **options)
                hit = {h.memory.source_id for h in packed if not h.truncated}
                outcome.shares[budget] = len(hit & wanted) / len(wanted)
            out.append(outcome)
    return out


def measures(ks: Iterable[int], budgets: Iterable[int]) -> dict[str, Any]:
    """Name -> function of an outcome."""
    out: dict[str, Any] = {}
    for k in ks:
        out[f"any@{k}"] = lambda o, k=k: float(any(r <= k for r in o.ranks))
        out[f"frac@{k}"] = lambda o, k=k: sum(r <= k for r in o.ranks) / o.evidence
    out["MRR"] = lambda o: 1.0 / o.ranks[0] if o.ranks else 0.0
    out["session any@5"] = lambda o: float(any(r <= 5 for r in o.sessions))
    for budget in budgets:
        out[f"share@{budget}"] = lambda o, b=budget: o.shares[b]
    return out


def interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """95 % bootstrap interval of the mean, fixed seed, percent."""
    rng = np.random.default_rng(7)
    means = values[rng.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return round(100 * float(low), 1), round(100 * float(high), 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, action="append")
    parser.add_argument("--k", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--budget", type=int, nargs="*", default=[])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    for path in args.data:
        conversations = load(path)
        with AgentMemory(
            ":memory:",
            embedder=args.embedder,
            clock=ManualClock("2026-01-01T00:00:00Z"),
            auto_supersede=False,
        ) as mem:
            started = time.perf_counter()
            stored = ingest(mem, conversations)
            print(
                f"\n{path.name}: {len(conversations)} conversations, {stored} turns, {mem.embedder.fingerprint}"
            )
            print(f"ingested in {time.perf_counter() - started:.0f} s")
            functions = measures(args.k, args.budget)
            table: dict[str, Any] = {}
            for method in args.methods:
                outcomes = ask(mem, conversations, method, args.budget)
                for group in ("headline", ASIDE):
                    chosen = [o for o in outcomes if (o.category == ASIDE) == (group == ASIDE)]
                    if not chosen:
                        continue
                    row: dict[str, Any] = {"n": len(chosen)}
                    for name, function in functions.items():
                        values = np.array([function(o) for o in chosen])
                        row[name] = [round(100 * float(values.mean()), 1), *interval(values)]
                    table[f"{method} ({group})"] = row
            results[path.name] = table
            show(table)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


def show(table: dict[str, Any]) -> None:
    """Print one set's table."""
    names = [n for n in next(iter(table.values())) if n != "n"]
    print("method".ljust(24) + "n".rjust(6) + "".join(n.rjust(14) for n in names))
    for method, row in table.items():
        print(
            method.ljust(24) + str(row["n"]).rjust(6) + "".join(f"{row[n][0]:.1f}".rjust(14) for n in names)
        )


if __name__ == "__main__":
    sys.exit(main())
