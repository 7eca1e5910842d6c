"""Retrieval noise: how much of what recall returns is no longer so, with and without decay and supersession.

    python benchmarks/decay_noise.py --data ../shared/data/locomo_dev.jsonl --json noise.json

Six months of a made-up operations team: services whose attributes change, and a stream of observations that go out
of date after two weeks. Every day brings writes and a few recalls, which promote what they return. At the end of
each month every service is asked for its attributes and for what happened to it lately. An item among the first ten
is noise when, in the made-up world, it is not true any more: a value that has been replaced, an observation past its
time, or a repetition of either.

Beside it, the price: the LoCoMo half, its turns recorded at their dates, asked after the last one. any@10 is the
share of questions with at least one evidence turn among the first ten; what fading loses of it is lost for good.

Deterministic: the same bytes on every machine that has the same embedder.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twofold import AgentMemory, DecayPolicy, ManualClock
from twofold.clock import DAY, from_us, to_us
from twofold.embed import open_embedder
from twofold.timewords import parse_loose_datetime

START = "2026-01-01T08:00:00Z"
DAYS = 182
MONTH = 30
STALE_AFTER = 14  # days after which an observation says nothing about the present
SERVICES = (
    "billing search checkout ledger gateway catalog mailer reports sessions uploads quota notes".split()
)
ATTRIBUTES: dict[str, Any] = {
    "version": lambda r: f"{r.randrange(1, 9)}.{r.randrange(20)}.{r.randrange(10)}",
    "owner": lambda r: r.choice("Ann Ben Chidi Dora Emil Farah Goran Hana".split()),
    "port": lambda r: str(r.randrange(2000, 9900)),
    "status": lambda r: r.choice(["healthy", "degraded", "paused", "down"]),
}
HAPPENINGS = (
    "The deploy of {s} took {n} minutes",
    "{s} answered slowly for {n} minutes after the rollout",
    "The queue of {s} grew to {n} messages",
    "A retry of {s} failed {n} times during the night",
)
LASTING = (
    "{s} was rewritten in Rust because the old code lost messages",
    "The team decided that {s} must not write to the ledger directly",
)


class Remembered:
    """An embedder that makes each text's vector once: the variants share all their texts. No token codes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._known: dict[str, Any] = {}
        for name in ("name", "fingerprint", "dimension", "max_tokens"):
            setattr(self, name, getattr(inner, name))

    def _vector(self, text: str, make: Any) -> Any:
        if text not in self._known:
            self._known[text] = make(text)
        return self._known[text]

    def embed_documents(self, texts: Sequence[str]) -> Any:
        rows = [self._vector("d" + t, lambda t: self._inner.embed_documents([t[1:]])[0]) for t in texts]
        return np.stack(rows)

    def embed_query(self, text: str) -> Any:
        return self._vector("q" + text, lambda t: self._inner.embed_query(t[1:]))

    def count_tokens(self, text: str) -> int:
        return int(self._inner.count_tokens(text))

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return list(self._inner.token_spans(text))


@dataclass
class Line:
    """Something written on a day; `ends` is the day from which it is not true any more."""

    day: int
    content: str
    memory_type: str
    ends: int = 10**6


@dataclass
class World:
    """What happens, day by day, and what is asked."""

    lines: list[Line] = field(default_factory=list)
    # day -> question and current answer (None: no single one)
    questions: dict[int, list[tuple[str, str | None]]] = field(default_factory=dict)
    uses: dict[int, list[str]] = field(default_factory=dict)


def world(seed: int) -> World:
    r = random.Random(seed)
    out = World()
    current: dict[tuple[str, str], Line] = {}
    for service in SERVICES:
        for text in LASTING:
            out.lines.append(Line(0, text.format(s=service), "decision"))
    for day in range(DAYS):
        for service in SERVICES:
            for attribute, value in ATTRIBUTES.items():
                # A value holds about 25 days; the first of all come on the first day.
                if day == 0 or r.random() < 1 / 25:
                    line = Line(day, f"The {attribute} of {service} is {value(r)}", "fact")
                    old = current.get((service, attribute))
                    if old is not None and old.content == line.content:
                        continue
                    if old is not None:
                        old.ends = day
                    current[service, attribute] = line
                    out.lines.append(line)
        for _ in range(8):
            text = r.choice(HAPPENINGS).format(s=r.choice(SERVICES), n=r.randrange(3, 90))
            out.lines.append(Line(day, text, "observation", day + STALE_AFTER))
        out.uses[day] = [
            f"What is the {r.choice(list(ATTRIBUTES))} of {r.choice(SERVICES)}?" for _ in range(3)
        ] + [f"What happened to {r.choice(SERVICES)} lately?"]
        if day % MONTH == MONTH - 1:
            out.questions[day] = [
                (f"What is the {attribute} of {service} now?", current[service, attribute].content)
                for service in SERVICES
                for attribute in ATTRIBUTES
            ]
            out.questions[day] += [(f"What happened to {service} lately?", None) for service in SERVICES]
    return out


@dataclass
class Month:
    noise: int = 0  # items that are not true any more
    shown: int = 0
    found: int = 0  # questions whose current answer is among the ten
    answerable: int = 0
    asked: int = 0


VARIANTS: dict[str, tuple[bool, DecayPolicy]] = {
    "neither": (False, DecayPolicy.off()),
    "decay, published": (False, DecayPolicy.published()),
    "decay, default": (False, DecayPolicy()),
    "supersession": (True, DecayPolicy.off()),
    "both, published": (True, DecayPolicy.published()),
    "both, default": (True, DecayPolicy()),
}


def live(told: World, supersede: bool, policy: DecayPolicy, embedder: Any) -> list[Month]:
    """One variant's six months."""
    clock = ManualClock(START)
    months: list[Month] = []
    ends: dict[str, int] = {}
    by_day: dict[int, list[Line]] = {}
    for line in told.lines:
        by_day.setdefault(line.day, []).append(line)
        # A text that comes again is true from then on: the later line counts.
        ends[line.content] = line.ends if line.content not in ends else max(ends[line.content], line.ends)
    with AgentMemory(
        ":memory:", embedder=embedder, clock=clock, decay=policy, auto_supersede=supersede
    ) as mem:
        for day in range(DAYS):
            clock.set(from_us(to_us(START) + day * DAY))
            mem.add_many([{"content": x.content, "memory_type": x.memory_type} for x in by_day.get(day, [])])
            for question in told.uses[day]:
                mem.recall(question, k=3)
            mem.flush()
            if day not in told.questions:
                continue
            month = Month()
            for question, answer in told.questions[day]:
                contents = [h.content for h in mem.recall(question, k=10, promote=False)]
                month.noise += sum(ends[c] <= day for c in contents)
                month.shown += len(contents)
                month.answerable += answer is not None
                month.found += answer in contents
                month.asked += 1
            months.append(month)
    return months


def noise_table(embedder: Any, seed: int) -> dict[str, Any]:
    told = world(seed)
    out: dict[str, Any] = {}
    for name, (supersede, policy) in VARIANTS.items():
        months = live(told, supersede, policy, embedder)
        whole = Month(
            *(sum(getattr(m, f) for m in months) for f in ("noise", "shown", "found", "answerable", "asked"))
        )
        out[name] = {
            "by_month": [round(100 * m.noise / max(m.shown, 1), 1) for m in months],
            "noise": round(100 * whole.noise / max(whole.shown, 1), 1),
            "noise_per_question": round(whole.noise / whole.asked, 2),
            "shown_per_question": round(whole.shown / whole.asked, 2),
            "current_found": round(100 * whole.found / whole.answerable, 1),
            "questions": whole.asked,
        }
        print(f"  {name}: done", file=sys.stderr)
    base = out["neither"]["noise_per_question"]
    for row in out.values():
        row["change"] = round(100 * (row["noise_per_question"] / base - 1), 1)
    return {"lines": len(told.lines), "variants": out}


# -- the price -----------------------------------------------------------------------------------------------


def lost_evidence(path: Path, embedder: Any) -> dict[str, Any]:
    """any@10 on conversations whose turns were recorded at their dates, asked a day after the last."""
    with path.open(encoding="utf-8") as file:
        conversations = [json.loads(line) for line in file]
    policies = {"no decay": DecayPolicy.off(), "default": DecayPolicy(), "published": DecayPolicy.published()}
    hits = {f"{name}, {kind}": 0 for kind in ("interaction", "fact") for name in policies}
    faded = dict.fromkeys(hits, 0)
    asked = rows = 0
    span = 0.0
    for number, conversation in enumerate(conversations, 1):
        questions = [q for q in conversation["questions"] if q.get("evidence") and not adversarial(q)]
        asked += len(questions)
        for kind in ("interaction", "fact"):
            clock = ManualClock("2020-01-01T00:00:00Z")
            with AgentMemory(":memory:", embedder=embedder, clock=clock, auto_supersede=False) as mem:
                last = first = None
                for turn in conversation["turns"]:
                    if not turn["text"].strip():
                        continue
                    when = parse_loose_datetime(turn["time"]) if turn["time"] else last
                    last = when if last is None or (when is not None and when > last) else last
                    first = first or last
                    clock.set(last)
                    mem.add(
                        turn["text"],
                        memory_type=kind,
                        speaker=turn["speaker"] or None,
                        session_id=str(turn["session"]),
                        event_date=when,
                        source_id=str(turn["id"]),
                    )
                rows += kind == "fact" and mem.stats()["memories"]
                clock.advance(days=1)
                span = max(span, (last - first).days)
                for name, policy in policies.items():
                    handle = AgentMemory(store=mem._vault.store, embedder=embedder, clock=clock, decay=policy)
                    for question in questions:
                        found = handle.recall(question["question"], k=10, promote=False)
                        sources = {h.memory.source_id for h in found}
                        hits[f"{name}, {kind}"] += any(str(e) in sources for e in question["evidence"])
                    faded[f"{name}, {kind}"] += handle.maintain(dry_run=True).faded
                    handle._finalizer.detach()  # the store is the first handle's
        print(f"  conversation {number}/{len(conversations)}: done", file=sys.stderr)
    return {
        "questions": asked,
        "turns": rows,
        "longest_span_days": span,
        "any@10": {name: round(100 * n / asked, 1) for name, n in hits.items()},
        "faded_share": {name: round(100 * n / rows, 1) for name, n in faded.items()},
    }


def adversarial(question: dict[str, Any]) -> bool:
    return str(question.get("category", "")).startswith(("adversarial", "5"))


def show(report: dict[str, Any]) -> None:
    noise = report["noise"]
    print(f"Retrieval noise: {noise['lines']} lines over {DAYS} days, {report['embedder']}")
    print("Share of the first ten that is not true any more, %, at the end of each month\n")
    months = len(next(iter(noise["variants"].values()))["by_month"])
    head = " ".join(f"{f'm{n + 1}':>6}" for n in range(months))
    print(f"{'':18}{head}{'all':>7}{'a question':>12}{'change':>9}{'current found':>15}")
    for name, row in noise["variants"].items():
        cells = " ".join(f"{x:6.1f}" for x in row["by_month"])
        print(
            f"{name:18}{cells}{row['noise']:7.1f}{row['noise_per_question']:12.2f}{row['change']:8.1f}%"
            f"{row['current_found']:14.1f}%"
        )
    if "evidence" in report:
        e = report["evidence"]
        print(
            f"\nEvidence any@10 on {report['data']}: {e['questions']} questions, {e['turns']} turns recorded at their"
            f" dates (up to {e['longest_span_days']} days), asked a day after the last\n"
        )
        for name, value in e["any@10"].items():
            print(f"{name:26}{value:6.1f}   {e['faded_share'][name]:5.1f} % of the turns have faded")


def main() -> None:
    parser = argparse.ArgumentParser(description="Retrieval noise with and without decay, and its price.")
    parser.add_argument(
        "--data", type=Path, help="LoCoMo questions as JSONL; without it only the noise is measured"
    )
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    embedder = Remembered(open_embedder(options.embedder))
    report: dict[str, Any] = {
        "embedder": embedder.fingerprint,  # type: ignore[attr-defined]
        "seed": options.seed,
        "noise": noise_table(embedder, options.seed),
    }
    if options.data:
        report |= {"data": options.data.name, "evidence": lost_evidence(options.data, embedder)}
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
