"""Measure the automatic supersession rule on labelled pairs, or list what it closes in conversations.

    python benchmarks/supersession/run.py benchmarks/supersession/development.jsonl
    python benchmarks/supersession/run.py --closings ../shared/data/locomo_dev.jsonl

Pairs: one JSON object a line, {"id", "lang", "class", "first", "second", "first_date"?, "second_date"?,
"supersedes": bool}; `supersedes` says whether storing `second` after `first` must end `first`. By default
the pairs go through AgentMemory (two adds, then the first memory is read again); `--frames` applies the
text part alone. Conversations: the format of the evidence sets, one namespace each, turn by turn.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twofold.frames import Frame, Verdict, contradicts, frame


def wilson(hits: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion; (0, 1) for n = 0."""
    if n == 0:
        return 0.0, 1.0
    p = hits / n
    middle = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - spread) / (1 + z * z / n)), min(1.0, (middle + spread) / (1 + z * z / n))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def by_frames(pair: dict[str, Any]) -> bool:
    """Whether the text part would end the first statement."""
    first, second = frame(pair["first"]), frame(pair["second"])
    if first is None or second is None or contradicts(first, second) is not Verdict.CONTRADICTS:
        return False
    first_date, second_date = pair.get("first_date"), pair.get("second_date")
    return not (first_date and second_date and second_date < first_date)


def by_memory(pair: dict[str, Any]) -> bool:
    """Whether two adds through the public API end the first memory."""
    from twofold import AgentMemory
    from twofold.clock import ManualClock

    clock = ManualClock("2026-06-01T00:00:00Z")
    with AgentMemory(":memory:", embedder=None, clock=clock) as mem:
        first = mem.add(pair["first"], event_date=pair.get("first_date"))
        clock.advance(hours=1)
        mem.add(pair["second"], event_date=pair.get("second_date"))
        return mem.history(first.id)[-1].superseded_by is not None


def measure(path: Path, frames_only: bool) -> dict[str, Any]:
    """Precision, recall, Wilson bounds and the confusion by class."""
    decide = by_frames if frames_only else by_memory
    table: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[dict[str, Any]] = []
    missed: list[dict[str, Any]] = []
    for pair in lines(path):
        said, true = decide(pair), bool(pair["supersedes"])
        table[f"{pair['class']} ({pair['lang']})"][
            f"{'t' if said == true else 'f'}{'p' if said else 'n'}"
        ] += 1
        if said and not true:
            wrong.append(pair)
        elif true and not said:
            missed.append(pair)
    total: Counter[str] = sum(table.values(), Counter())
    tp, fp, fn, tn = (total[k] for k in ("tp", "fp", "fn", "tn"))
    return {
        "file": str(path), "through": "frames" if frames_only else "AgentMemory",
        "contradictions": tp + fn, "hard_negatives": fp + tn, "tp": tp, "fp": fp, "fn": fn, "tn": tn,
        "precision": tp / (tp + fp) if tp + fp else None, "precision_95": wilson(tp, tp + fp),
        "recall": tp / (tp + fn) if tp + fn else None, "recall_95": wilson(tp, tp + fn),
        "by_class": {name: dict(row) for name, row in sorted(table.items())},
        "wrong": wrong, "missed": missed,
    }  # fmt: skip


def closings(path: Path) -> dict[str, Any]:
    """Everything the rule would close or suggest when conversations are ingested turn by turn."""
    turns = framed = 0
    closed: list[dict[str, Any]] = []
    suggested: list[dict[str, Any]] = []
    statements: list[dict[str, Any]] = []
    for talk in lines(path):
        latest: dict[tuple[str, str], tuple[Frame, dict[str, Any]]] = {}
        for turn in talk["turns"]:
            turns += 1
            made = frame(turn["text"])
            if made is None:
                continue
            framed += 1
            statements.append(
                {"conversation": talk["id"], "turn": turn["id"], "frame": made, "text": turn["text"]}
            )
            before = latest.get((made.entity, made.attribute))
            latest[made.entity, made.attribute] = (made, turn)
            if before is None:
                continue
            verdict = contradicts(before[0], made)
            entry = {
                "conversation": talk["id"], "attribute": made.attribute, "older": before[1]["text"],
                "older_turn": before[1]["id"], "newer": turn["text"], "newer_turn": turn["id"],
            }  # fmt: skip
            if verdict is Verdict.CONTRADICTS:
                closed.append(entry)
            elif verdict is Verdict.UNSURE:
                suggested.append(entry)
    return {
        "file": str(path), "turns": turns, "frames": framed, "closings": closed, "suggestions": suggested,
        "closings_per_1000_turns": 1000 * len(closed) / turns if turns else 0.0, "statements": statements,
    }  # fmt: skip


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _print_measure(result: dict[str, Any], out: Any) -> None:
    print(f"{result['file']} through {result['through']}", file=out)
    print(f"contradictions {result['contradictions']}, hard negatives {result['hard_negatives']}", file=out)
    for name in ("precision", "recall"):
        low, high = result[f"{name}_95"]
        print(
            f"{name:<10}{_percent(result[name]):>8}   95 % Wilson [{_percent(low)}, {_percent(high)}]",
            file=out,
        )
    print(f"\n{'class':<34}{'tp':>5}{'fp':>5}{'fn':>5}{'tn':>5}", file=out)
    for name, row in result["by_class"].items():
        print(f"{name:<34}" + "".join(f"{row.get(k, 0):>5}" for k in ("tp", "fp", "fn", "tn")), file=out)
    for title, pairs in (("false closings", result["wrong"]), ("missed", result["missed"])):
        print(f"\n{title}: {len(pairs)}", file=out)
        for pair in pairs:
            print(f"  {pair['id']}: {pair['first']}  ||  {pair['second']}", file=out)


def _print_closings(result: dict[str, Any], out: Any) -> None:
    print(
        f"{result['file']}: {result['turns']} turns, {result['frames']} with a frame, "
        f"{len(result['closings'])} closings, {len(result['suggestions'])} suggestions",
        file=out,
    )
    for title in ("closings", "suggestions"):
        for entry in result[title]:
            print(
                f"  {title[:-1]} {entry['conversation']} {entry['older_turn']} -> {entry['newer_turn']}",
                file=out,
            )
            print(f"    - {entry['older']}\n    + {entry['newer']}", file=out)
    for entry in result["statements"]:
        print(
            f"  frame {entry['conversation']} {entry['turn']}: {tuple(entry['frame'])} <- {entry['text']}",
            file=out,
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pairs", nargs="*", type=Path, help="labelled pairs (JSONL)")
    parser.add_argument("--closings", action="append", default=[], type=Path, metavar="FILE.jsonl")
    parser.add_argument("--frames", action="store_true", help="the text part alone, without a store")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--min-precision", type=float, default=0.0, help="exit 1 below this")
    args = parser.parse_args(argv)
    if not args.pairs and not args.closings:
        parser.error("give labelled pairs, or --closings FILE.jsonl")
    measured = [measure(path, args.frames) for path in args.pairs]
    listed = [closings(path) for path in args.closings]
    if args.json:
        json.dump({"pairs": measured, "closings": listed}, sys.stdout, ensure_ascii=False, indent=1)
        sys.stdout.write("\n")
    else:
        for result in measured:
            _print_measure(result, sys.stdout)
        for result in listed:
            _print_closings(result, sys.stdout)
    return int(any((r["precision"] or 0.0) < args.min_precision for r in measured))


if __name__ == "__main__":
    sys.exit(main())
