"""Evidence recall of the shipped public API over labelled conversations, beside its control rows.

    python benchmarks/quality/run.py --data ../shared/data/locomo_dev.jsonl --ablate --png recall.png

Each conversation is its own search space. any@k: at least one evidence turn among the first k; frac@k: share of
the evidence among them; share@B: the share inside a budget of B tokens of content; session any@5: an evidence
session among the first five sessions. Intervals: 95 % bootstrap over questions with a fixed seed. Adversarial
questions are reported apart. No figure is printed without its n, its metric and the control rows beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from twofold import AgentMemory, ManualClock
from twofold.receipt import algorithm
from twofold.timewords import parse_loose_datetime

CONTROLS: Final = ("bm25", "vector", "rrf60", "base")
DEEP: Final = 100
ASIDE: Final = "adversarial"
CURVE: Final = (125, 250, 500, 1000, 2000, 4000)

# What each term is without: profile constants that differ from the default.
TERMS: Final[dict[str, dict[str, Any]]] = {
    "late interaction": {"late_weight": 0.0},
    "neighbour turns, all": {
        "previous_weight": 0.0,
        "next_weight": 0.0,
        "second_previous_weight": 0.0,
        "second_next_weight": 0.0,
        "answer_weight": 0.0,
        "role_next_weight": 0.0,
    },
    "- the second on each side": {"second_previous_weight": 0.0, "second_next_weight": 0.0},
    "- an answer after its question": {"answer_weight": 0.0},
    "- their length gate": {"gate_tokens": 1e9},
    "session, all": {
        "session_weight": 0.0,
        "session_lexical_weight": 0.0,
        "session_repeat_weight": 0.0,
    },
    "- its best turns": {"session_weight": 0.0},
    "- its words": {"session_lexical_weight": 0.0},
    "- no session fills the list": {"session_repeat_weight": 0.0},
    "speaker named": {"speaker_weight": 0.0},
    "role": {"role_weight": 0.0},
    "BM25": {"lexical_weight": 0.0, "late_lexical_weight": 0.0},
    "meaning (cosine and late)": {"vector_weight": 0.0},
    "tags": {"tag_weight": 0.0},
    "graph": {"graph_weight": 0.0},
    "strength": {"strength_weight": 0.0},
}
# Options that are off: the profile with it on.
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "time named, +0.1": {"time_weight": 0.1},
    "window penalty, 0.03": {"window_penalty": 0.03},
    "MMR, lambda 0.9": {"mmr_lambda": 0.9},
}
SHOWN: Final = ("frac@10", "any@10", "MRR", "share@1000")


@dataclass
class Outcome:
    """What one method did with one question."""

    category: str
    ranks: list[int]  # 1-based places of the evidence found in the first DEEP
    evidence: int
    sessions: list[int]  # 1-based places of evidence sessions, by first turn of each session
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
    mem: AgentMemory,
    conversations: list[dict[str, Any]],
    profile: Any,
    budgets: Iterable[int],
    aside: bool = True,
) -> list[Outcome]:
    """Every question put to one profile; without `aside` the adversarial ones are left out."""
    out = []
    for conversation in conversations:
        session_of = {str(t["id"]): str(t["session"]) for t in conversation["turns"]}
        for question in conversation["questions"]:
            wanted = {str(e) for e in question["evidence"]}
            if not wanted or (question.get("category") == ASIDE and not aside):
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


def interval(values: np.ndarray[Any, Any]) -> list[float]:
    """Mean and 95 % bootstrap interval, fixed seed, percent. Of differences it is the paired interval."""
    rng = np.random.default_rng(7)
    means = values[rng.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return [round(100 * float(v), 1) for v in (values.mean(), low, high)]


def mcnemar(won: int, lost: int) -> float:
    """Exact two-sided p of McNemar's test."""
    n = won + lost
    tail = sum(math.comb(n, i) for i in range(min(won, lost) + 1)) / 2**n
    return min(1.0, 2.0 * tail)


class Bench:
    """One set in one store: asks each profile once and keeps the outcomes."""

    def __init__(self, mem: AgentMemory, conversations: list[dict[str, Any]]) -> None:
        self.mem = mem
        self.conversations = conversations
        self._known: dict[str, list[Outcome]] = {}

    def outcomes(self, profile: Any, budgets: Iterable[int], aside: bool = True) -> list[Outcome]:
        key = json.dumps([profile, aside], sort_keys=True)
        missing = [b for b in budgets if key not in self._known or b not in self._known[key][0].shares]
        if key not in self._known or missing:
            started = time.perf_counter()
            made = ask(self.mem, self.conversations, profile, missing, aside)
            for old, new in zip(self._known.get(key, made), made, strict=True):
                new.shares.update(old.shares)
            self._known[key] = made
            print(f"asked {key}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        return self._known[key]


def group(outcomes: list[Outcome], aside: bool) -> list[Outcome]:
    """The headline questions, or the adversarial ones."""
    return [o for o in outcomes if (o.category == ASIDE) == aside]


def table(bench: Bench, methods: Iterable[str], ks: Iterable[int], budgets: Iterable[int]) -> dict[str, Any]:
    """Method -> {"n", metric: [mean, low, high]}, percent."""
    functions = measures(ks, budgets)
    out: dict[str, Any] = {}
    for method in methods:
        outcomes = bench.outcomes(method, budgets)
        for aside in (False, True):
            chosen = group(outcomes, aside)
            if chosen:
                name = f"{method} ({ASIDE})" if aside else method
                out[name] = {"n": len(chosen)}
                for metric, function in functions.items():
                    out[name][metric] = interval(np.array([function(o) for o in chosen]))
    return out


def categories(bench: Bench, method: str) -> dict[str, Any]:
    """Category -> {"n", any@10, frac@10} of one method."""
    functions = measures([10], [])
    outcomes = bench.outcomes(method, [])
    return {
        name: {
            "n": sum(o.category == name for o in outcomes),
            **{
                metric: interval(np.array([functions[metric](o) for o in outcomes if o.category == name]))
                for metric in ("any@10", "frac@10")
            },
        }
        for name in sorted({o.category for o in outcomes})
    }


def ablation(bench: Bench) -> dict[str, Any]:
    """Term -> metric -> [gain, low, high], and for any@10 the questions won and lost with McNemar's p.

    The gain is the default's minus that of the default without the term; for an option that is off, that of the
    option minus the default's.
    """
    functions = measures([10], [1000])
    full = group(bench.outcomes("default", [1000]), False)
    out: dict[str, Any] = {}
    for terms, sign in ((TERMS, 1.0), (OPTIONS, -1.0)):
        for name, changed in terms.items():
            other = bench.outcomes(changed, [1000], aside=False)
            row: dict[str, Any] = {"n": len(full), "on by default": sign > 0}
            for metric in SHOWN:
                function = functions[metric]
                gain = np.array([function(a) - function(b) for a, b in zip(full, other, strict=True)])
                row[metric] = interval(sign * gain)
                if metric == "any@10":
                    won, lost = int((sign * gain > 0).sum()), int((sign * gain < 0).sum())
                    row["won"], row["lost"], row["p"] = won, lost, round(mcnemar(won, lost), 4)
            out[name] = row
    return out


def check(tables: dict[str, Any]) -> None:
    """Refuse figures that nothing stands beside: every row needs n and metrics, every table its controls."""
    for name, rows in tables.items():
        missing = [control for control in CONTROLS if control not in rows]
        if missing:
            raise ValueError(f"{name}: no figures without the control rows {', '.join(missing)}")
        for method, row in rows.items():
            if not row.get("n"):
                raise ValueError(f"{name}, {method}: no figures without n")
            if len(row) < 2 or any(len(v) != 3 for k, v in row.items() if k != "n"):
                raise ValueError(f"{name}, {method}: no figures without a named metric and its interval")


def show(rows: dict[str, Any]) -> None:
    """Print one set's table."""
    names = [n for n in next(iter(rows.values())) if n != "n"]
    print("method".ljust(24) + "n".rjust(6) + "".join(n.rjust(14) for n in names))
    for method, row in rows.items():
        print(
            method.ljust(24) + str(row["n"]).rjust(6) + "".join(f"{row[n][0]:.1f}".rjust(14) for n in names)
        )
    row = rows["default"]
    print("95 % intervals of default: " + ", ".join(f"{n} {row[n][1]:.1f}-{row[n][2]:.1f}" for n in names))


def ablation_rows(rows: dict[str, Any]) -> list[str]:
    """What each term adds, as the lines of a Markdown table."""
    lines = ["| term | " + " | ".join(SHOWN) + " | any@10 won/lost, McNemar p |"]
    lines.append("|---" * (len(SHOWN) + 2) + "|")
    for name, row in rows.items():
        cells = [f"{row[m][0]:+.1f} [{row[m][1]:.1f}, {row[m][2]:.1f}]" for m in SHOWN]
        tail = f"{row['won']}/{row['lost']}, {row['p']:.3f}"
        lines.append(f"| {name}{'' if row['on by default'] else ' (off)'} | {' | '.join(cells)} | {tail} |")
    return lines


def page(results: dict[str, Any]) -> str:
    """Every table in Markdown, with n, metrics and intervals."""
    lines: list[str] = []
    for name, result in results.items():
        rows = result["methods"]
        metrics = [m for m in rows["default"] if m != "n"]
        lines += ["", f"### {name}", "", "Percent; of the default with its 95 % interval.", ""]
        lines += ["| method | n | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 2) + "|"]
        for method, row in rows.items():
            cells = [
                f"**{row[m][0]:.1f}** [{row[m][1]:.1f}, {row[m][2]:.1f}]"
                if method == "default"
                else f"{row[m][0]:.1f}"
                for m in metrics
            ]
            lines.append(f"| {method} | {row['n']} | {' | '.join(cells)} |")
        if len(result["categories"]) > 1:
            lines += ["", "| category (default) | n | any@10 | frac@10 |", "|---|---|---|---|"]
            for category, row in result["categories"].items():
                cells = [f"{row[m][0]:.1f} [{row[m][1]:.1f}, {row[m][2]:.1f}]" for m in ("any@10", "frac@10")]
                lines.append(f"| {category or '(none)'} | {row['n']} | {' | '.join(cells)} |")
        if "terms" in result:
            n = next(iter(result["terms"].values()))["n"]
            lines += ["", f"What each term adds, percentage points with 95 % paired intervals, n = {n}:", ""]
            lines += ablation_rows(result["terms"])
    return "\n".join([*lines, ""])


START: Final = "<!-- tables: written by benchmarks/quality/run.py -->"
STOP: Final = "<!-- /tables -->"


def write_page(results: dict[str, Any], path: Path) -> None:
    """Put the tables between the marks of a Markdown page."""
    check({name: result["methods"] for name, result in results.items()})
    text = path.read_text(encoding="utf-8")
    head, start, rest = text.partition(START)
    _, stop, tail = rest.partition(STOP)
    if not start or not stop:
        raise ValueError(f"{path} has no place for tables: {START} ... {STOP}")
    path.write_text(f"{head}{START}\n{page(results)}\n{STOP}{tail}", encoding="utf-8")


def draw(tables: dict[str, Any], path: Path) -> None:
    """Evidence share against the token budget, one panel a set."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    check(tables)
    shown = {
        "bm25": ("BM25", "#9a9a9a", "--"),
        "vector": ("vector", "#c58b3a", "--"),
        "rrf60": ("RRF (k = 60)", "#5b8db8", "-."),
        "default": ("Twofold", "#1b6e4b", "-"),
    }
    figure, axes = plt.subplots(
        1, len(tables), figsize=(4.2 * len(tables), 3.6), squeeze=False, layout="constrained"
    )
    for axis, (name, rows) in zip(axes[0], tables.items(), strict=True):
        budgets = sorted(int(m.split("@")[1]) for m in rows["default"] if m.startswith("share@"))
        for method, (label, colour, style) in shown.items():
            values = np.array([rows[method][f"share@{b}"] for b in budgets])
            axis.plot(budgets, values[:, 0], style, color=colour, label=label, marker="o", markersize=3)
            axis.fill_between(budgets, values[:, 1], values[:, 2], color=colour, alpha=0.12, linewidth=0)
        axis.set_xscale("log", base=2)
        axis.set_xticks(budgets, [f"{b:,}" for b in budgets])
        axis.set_title(f"{name} (n = {rows['default']['n']})", fontsize=10)
        axis.set_xlabel("budget, tokens")
        axis.set_ylim(0, 101)
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("evidence found, % (95 % interval shaded)")
    axes[0][0].legend(loc="lower right", fontsize=8, frameon=False)
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, action="append", help="a set; may be repeated")
    parser.add_argument("--k", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--budget", type=int, nargs="*", default=[250, 500, 1000, 2000, 4000])
    parser.add_argument(
        "--methods", nargs="*", default=[], help="profiles beside the controls and the default"
    )
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--ablate", action="store_true", help="what each term adds")
    parser.add_argument("--json", type=Path, help="write every figure")
    parser.add_argument("--png", type=Path, help="draw evidence share against the budget (needs matplotlib)")
    parser.add_argument("--page", type=Path, help="Markdown page whose tables are written anew")
    parser.add_argument("--keep", type=Path, help="folder for stores that later runs use again")
    return parser.parse_args()


def main() -> int:
    args = options()
    results: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    budgets = sorted({*args.budget, *(CURVE if args.png else ())})
    for path in args.data:
        conversations = load(path)
        place: Any = ":memory:"
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            # Other text rules store other words: a store of theirs must not be measured.
            place = args.keep / f"{path.stem}.{args.embedder.replace(':', '-')}.{algorithm()}.db"
        with AgentMemory(
            place,
            embedder=args.embedder,
            clock=ManualClock("2026-01-01T00:00:00Z"),
            auto_supersede=False,
            query_cache=8192,
        ) as mem:
            started = time.perf_counter()
            stored = mem.stats()["memories"] if args.keep else 0
            stored = stored or ingest(mem, conversations)
            assert mem.embedder is not None
            print(
                f"\n{path.name}: {len(conversations)} conversations, {stored} turns, {mem.embedder.fingerprint}"
            )
            print(f"stored in {time.perf_counter() - started:.0f} s")
            bench = Bench(mem, conversations)
            rows = table(bench, dict.fromkeys([*CONTROLS, "default", *args.methods]), args.k, budgets)
            tables[path.stem] = rows
            check({path.stem: rows})
            show(rows)
            results[path.stem] = {"methods": rows, "categories": categories(bench, "default")}
            if args.ablate:
                results[path.stem]["terms"] = ablation(bench)
                print("\n".join(ablation_rows(results[path.stem]["terms"])))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if args.png:
        draw(tables, args.png)
    if args.page:
        write_page(results, args.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
