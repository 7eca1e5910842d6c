"""Build a store with injected time, ids and salts, ask it things, print the bytes of every answer. Run by tests.

Arguments: folder, "add" or "add_many", number of threads that ask, embedder ("hashing:128" when left out, "codes" for
one whose tokens have codes), "options" to ask with every constant of a profile changed in turn.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from twofold import AgentMemory, ManualClock
from twofold.embed.codes import TokenCodes, sign_bits
from twofold.embed.hashing import Hashing
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

# One other value for each constant of a profile. The names are checked against `Profile` by the test.
OTHER: dict[str, Any] = {
    "fusion": "max",
    "depth": 40,
    "vector_weight": 0.3,
    "min_cosine": 0.2,
    "lexical_weight": 0.1,
    "late_weight": 0.4,
    "late_vector_weight": 1.5,
    "late_lexical_weight": 1.5,
    "tag_weight": 0.6,
    "graph_weight": 0.6,
    "rrf_k": 1.0,  # acts in rank fusion only: ASKS
    "k1": 0.4,
    "b": 0.1,
    "longest": 1.0,
    "window_penalty": 0.3,
    "previous_weight": 0.8,
    "next_weight": 0.8,
    "second_previous_weight": 0.7,
    "second_next_weight": 0.7,
    "answer_weight": 0.9,
    "role_next_weight": 0.9,
    "gate_tokens": 8.0,
    "session_weight": 0.1,
    "session_lexical_weight": 0.9,
    "session_repeat_weight": 0.3,
    "session_top": 5,
    "speaker_weight": 2.0,
    "role_weight": 0.0,
    "time_weight": 1.0,
    "confidence_weight": 1.0,
    "strength_weight": 1.0,
    "mmr_lambda": 0.5,
    "duplicate_threshold": 0.8,
    "hops": 1,
}
NAMED_TIMES = [
    "What did Ann test in March?",
    "What happened yesterday?",
    "Chen 三月份测试了什么",
    "last week in Berlin",
    "Who was asked before the audit?",
]
# Everything else that a caller can ask with.
ASKS: list[dict[str, Any]] = [
    *({"profile": name} for name in ("bm25", "vector", "rrf", "base", "rrf60")),
    {"profile": {"fusion": "rrf", "rrf_k": 1.0}},
    {"budget": 120},
    {"budget": 2000, "k": 200},
    {"known_at": "2026-07-01T00:00:00Z"},
    {"as_of": "2026-02-10", "include_faded": True},
    {"include_faded": True, "now": "2027-07-01T00:00:00Z"},
    {"filters": {"speakers": ["Ann", "Bob"], "min_confidence": 0.8}},
    {"filters": {"event_after": "2026-03-01", "event_before": "2026-05-01"}},
    {"filters": {"sessions": ["s1", "s2"]}, "profile": {"fusion": "rrf", "mmr_lambda": 0.9}},
    {"token_counter": "estimate", "budget": 60},
]


class Coded(Hashing):
    """Hashed words with token codes of the same hashing, and windows short enough for several a text."""

    token_codes = True

    def __init__(self) -> None:
        super().__init__(128)
        self.max_tokens = 24

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return [m.span() for m in re.finditer(r"\w+|[^\w\s]", text)]

    def count_tokens(self, text: str) -> int:
        return len(self.token_spans(text))

    def _codes(self, text: str) -> TokenCodes:
        spans = self.token_spans(text)
        rows = [np.asarray(self.embed_query(text[a:b])) for a, b in spans]
        return TokenCodes(sign_bits(np.array(rows).reshape(-1, 128)), spans)

    def embed_documents_with_codes(self, texts: Sequence[str]) -> tuple[Any, list[TokenCodes]]:
        return self.embed_documents(texts), [self._codes(text) for text in texts]

    def embed_query_with_codes(self, text: str) -> tuple[Any, TokenCodes]:
        return self.embed_query(text), self._codes(text)


def items() -> list[dict[str, Any]]:
    """240 turns in 12 sessions, every third with tags, some Chinese, roles in two sessions."""
    out: list[dict[str, Any]] = []
    combinations = itertools.product(NAMES, THINGS, DID, WHERE)
    for i, (name, thing, did, where) in enumerate(itertools.islice(combinations, 0, 840, 4)):
        text = f"{name} {did} the {thing} {where}. Note {i}{'?' if i % 5 == 0 else '.'}"
        if i % 13 == 0:
            text = f"{text} " + " ".join(f"They {d} it {w}." for d, w in itertools.product(DID, WHERE))
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
        [{k: v.hex() for k, v in h.parts.items()} for h in found],
        {name: [(i, s.hex()) for i, s in ranked] for name, ranked in found.trace.layers.items()},
        found.context(),
        found.receipt.id,
    ]


def main(folder: str, way: str, threads: int, embedder: str = "hashing:128", part: str = "") -> None:
    clock = ManualClock("2026-07-01T00:00:00Z")
    count = itertools.count(1)

    def entropy(size: int) -> bytes:
        return hashlib.blake2b(str(next(count)).encode(), digest_size=size).digest()

    place = Path(folder) / "store"
    maker: Any = Coded() if embedder == "codes" else embedder
    with AgentMemory(place, embedder=maker, clock=clock, ids=IdSource(entropy), entropy=entropy) as mem:
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
        questions = QUESTIONS
        if part == "options":
            # Some memories were used: strengths differ.
            mem.recall("order service Berlin", k=5)
            mem.add("The last note of all.")
            asked = [{"k": 20}, *({"k": 20, "profile": {n: v}} for n, v in OTHER.items()), *ASKS]
            questions = QUESTIONS + NAMED_TIMES
        jobs = list(itertools.product(questions, asked))

        def ask(job: Any) -> list[Any]:
            return answer(mem.recall(job[0], promote=False, **job[1]))

        with ThreadPoolExecutor(threads) as pool:
            answers = list(pool.map(ask, jobs))
    json.dump(answers, sys.stdout, sort_keys=True, ensure_ascii=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
