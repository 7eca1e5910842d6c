"""Build a store with injected time, ids and salts, ask it things, print the bytes of every answer. Run by tests.

Arguments: folder, "add" or "add_many", number of threads that ask.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from twofold import AgentMemory, ManualClock
from twofold.vault import IdSource

NAMES = ["Ann", "Bob", "Chen", "Dara"]
THINGS = ["order service", "billing database", "Atlas cluster", "deploy script v2.1", "cache at 10.0.0.7"]
DID = ["restarted", "moved", "tested", "documented", "asked about", "broke", "measured"]
WHERE = ["in Berlin", "on Friday", "before the release", "after lunch", "for the audit", "with the new tool"]
CHINESE = ["部署在周五完成", "数据库迁移到了新集群", "缓存命中率下降了", "规划器选择了Rust"]
QUESTIONS = [
    "What did Ann do with the order service?",
    "Who measured the billing database before the release?",
    "What is at 10.0.0.7?",
    "数据库迁移到哪里了",
    "deploy script versions",
    "What happened to the Atlas cluster on Friday?",
]


def items() -> list[dict[str, Any]]:
    """240 turns in 12 sessions, every third with tags, some Chinese, roles in two sessions."""
    out: list[dict[str, Any]] = []
    combinations = itertools.product(NAMES, THINGS, DID, WHERE)
    for i, (name, thing, did, where) in enumerate(itertools.islice(combinations, 0, 840, 4)):
        text = f"{name} {did} the {thing} {where}{'?' if i % 5 == 0 else '.'} Note {i}."
        if i % 11 == 0:
            text = f"{CHINESE[i % 4]} {i}"
        session = i // 18
        out.append(
            {
                "content": text,
                "speaker": NAMES[i % 4] if session % 4 else None,
                "session_id": f"s{session}",
                "tags": [thing, did] if i % 3 == 0 else [],
                "event_date": f"2026-0{1 + i % 6}-{1 + i % 28:02d}",
                "metadata": {"role": "user" if i % 2 else "assistant"} if session % 4 == 0 else {},
                "confidence": 1.0 - (i % 4) / 10,
            }
        )
    return out


def answer(found: Any) -> list[Any]:
    """Everything a caller can see of an answer, scores as exact bits."""
    return [
        [(h.memory.id, h.memory.version, h.score.hex(), h.sources, h.span, h.tokens) for h in found],
        {k: v.hex() for h in found for k, v in h.parts.items()},
        {name: [(i, s.hex()) for i, s in ranked] for name, ranked in found.trace.layers.items()},
        found.context(),
        found.receipt.id,
    ]


def main(folder: str, way: str, threads: int, embedder: str) -> None:
    clock = ManualClock("2026-07-01T00:00:00Z")
    count = itertools.count(1)

    def entropy(size: int) -> bytes:
        return hashlib.blake2b(str(next(count)).encode(), digest_size=size).digest()

    place = Path(folder) / "store"
    with AgentMemory(place, embedder=embedder, clock=clock, ids=IdSource(entropy), entropy=entropy) as mem:
        made = items()
        memories = [mem.add(**i) for i in made] if way == "add" else mem.add_many(made, batch=64)
        mem.link(memories[3].id, memories[77].id, "caused")
        mem.forget(memories[10].id)
        asked = [
            {"k": 10},
            {"k": 50, "budget": 300},
            {"k": 5, "profile": "rrf"},
            {"k": 5, "filters": {"tags": ["order service"]}},
            {"k": 10, "as_of": "2026-03-15", "profile": {"mmr_lambda": 0.7}},
            {"k": 10, "profile": {"duplicate_threshold": 0.9}},
        ]
        jobs = list(itertools.product(QUESTIONS, asked))

        def ask(job: Any) -> list[Any]:
            return answer(mem.recall(job[0], promote=False, **job[1]))

        with ThreadPoolExecutor(threads) as pool:
            answers = list(pool.map(ask, jobs))
    json.dump(answers, sys.stdout, sort_keys=True, ensure_ascii=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "hashing:128")
