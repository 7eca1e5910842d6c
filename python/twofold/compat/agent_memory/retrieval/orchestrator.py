"""Memwright's cascade - tags, graph, vectors, fusion - as a function of its stores, its settings and `now`.

The same formula as 2.0.6 with its accidents settled: ties keep the order of discovery, a triple has the same id
every time, and nothing that fails is left out silently.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from twofold.clock import SystemClock
from twofold.compat.agent_memory.models import Memory, RetrievalResult
from twofold.compat.agent_memory.retrieval.scorer import (
    by_score,
    confidence_decay_boost,
    deduplicate,
    fit_to_budget,
    mmr_rerank,
    temporal_boost,
)
from twofold.compat.agent_memory.retrieval.tag_matcher import extract_tags
from twofold.compat.agent_memory.utils.tokens import estimate_tokens
from twofold.errors import BudgetError

RRF_K: Final = 60
TAG_SCORE, ENTITY_SCORE, TRIPLE_SCORE = 1.0, 0.5, 0.6
TAGGED, NEAREST, TRIPLES = 20, 20, 20
EXPANDED, EACH = 8, 5
DEPTH: Final = 2
LEAST_TO_BLEND: Final = 3
TRIPLE_CATEGORY: Final = "graph_relation"


def reciprocal_rank_fusion(results: Sequence[RetrievalResult], k: int = RRF_K) -> list[RetrievalResult]:
    """1 / (k + rank) within its source, summed over the sources of a memory; of one source, its own scores."""
    sources: dict[str, list[RetrievalResult]] = {}
    for result in results:
        sources.setdefault(result.match_source, []).append(result)
    if len(sources) < 2:
        return deduplicate(results)
    sums: dict[str, float] = {}
    best: dict[str, RetrievalResult] = {}
    for found in sources.values():
        for rank, result in enumerate(by_score(found), 1):
            key = result.memory.id
            sums[key] = sums.get(key, 0.0) + 1.0 / (k + rank)
            if key not in best or result.score > best[key].score:
                best[key] = result
    return [replace(best[key], score=total) for key, total in sums.items()]


def _spread(values: Sequence[float]) -> list[float]:
    """Values moved and scaled to 0..1; all 0 when they are equal."""
    low, high = min(values), max(values)
    return [(v - low) / ((high - low) or 1.0) for v in values]


def graph_blend(
    results: Sequence[RetrievalResult],
    ranks: dict[str, float],
    vector_weight: float = 0.7,
    graph_weight: float = 0.3,
) -> list[RetrievalResult]:
    """A weighted sum of each result's score and the PageRank of its entity, both scaled to 0..1."""
    results = deduplicate(results)
    if not results or not ranks:
        return reciprocal_rank_fusion(results)
    scores = _spread([r.score for r in results])
    central = _spread([ranks.get((r.memory.entity or "").lower(), 0.0) for r in results])
    return by_score(
        [
            replace(r, score=vector_weight * s + graph_weight * c)
            for r, s, c in zip(results, scores, central, strict=True)
        ]
    )


def triple_memory(text: str, namespace: str, created_at: str) -> Memory:
    """A relation as a memory; its id is a hash of what it says."""
    digest = hashlib.sha256(f"{namespace}\0{text}".encode()).hexdigest()[:12]
    return Memory(
        id=digest,
        content=text,
        category=TRIPLE_CATEGORY,
        namespace=namespace,
        created_at=created_at,
        valid_from=created_at,
    )


class RetrievalOrchestrator:
    """The cascade over any document store, vector store and graph with the methods of `store.base`.

    now: where the time comes from. use_accesses: whether last use and number of uses move the confidence.
    max_results: how many MMR chooses. `min_results` is accepted and, as ever, has no effect.
    """

    def __init__(
        self,
        store: Any,
        min_results: int = 3,
        vector_store: Any = None,
        graph: Any = None,
        enable_temporal_boost: bool = True,
        *,
        now: Callable[[], dt.datetime] | None = None,
        use_accesses: bool = True,
        max_results: int | None = 10,
    ) -> None:
        self.store = store
        self.min_results = min_results
        self.vector_store = vector_store
        self.graph = graph
        self.enable_temporal_boost = enable_temporal_boost
        self.confidence_gate = 0.0
        self.confidence_decay_rate = 0.001
        self.confidence_boost_rate = 0.03
        self.enable_mmr = True
        self.mmr_lambda = 0.7
        self.fusion_mode = "rrf"
        self.graph_blend_vector_weight = 0.7
        self.graph_blend_graph_weight = 0.3
        self.use_accesses = use_accesses
        self.max_results = max_results
        self._now = now or SystemClock().now

    def recall(
        self, query: str, token_budget: int = 2000, namespace: str | None = None
    ) -> list[RetrievalResult]:
        """The cascade's answer, best first. Raises BudgetError for a budget below 1."""
        if token_budget < 1:
            raise BudgetError(f"a budget of {token_budget} tokens holds nothing; give 1 or more")
        now = self._now()
        results = self._candidates(query, namespace, now)
        if self.fusion_mode == "graph_blend" and self.graph is not None and len(results) >= LEAST_TO_BLEND:
            results = graph_blend(
                results,
                self.graph.pagerank(),
                self.graph_blend_vector_weight,
                self.graph_blend_graph_weight,
            )
        else:
            results = reciprocal_rank_fusion(results)
        results = temporal_boost(results, enabled=self.enable_temporal_boost, now=now)
        if self.enable_mmr:
            results = mmr_rerank(results, self.mmr_lambda, self.max_results)
        return fit_to_budget(self._confident(results, now), token_budget)

    def _confident(self, results: list[RetrievalResult], now: dt.datetime) -> list[RetrievalResult]:
        judged = results
        if not self.use_accesses:
            judged = [
                replace(r, memory=replace(r.memory, access_count=0, last_accessed=None)) for r in results
            ]
        whole = {r.memory.id: r.memory for r in results}
        kept = confidence_decay_boost(
            judged, self.confidence_decay_rate, self.confidence_boost_rate, self.confidence_gate, now=now
        )
        return [replace(r, memory=whole[r.memory.id]) for r in kept]

    def _candidates(self, query: str, namespace: str | None, now: dt.datetime) -> list[RetrievalResult]:
        tags = extract_tags(query)
        results: list[RetrievalResult] = []
        seen: set[str] = set()

        def take(memory: Memory, score: float, source: str) -> None:
            if memory.id not in seen:
                seen.add(memory.id)
                results.append(RetrievalResult(memory, score, source))

        names: list[str] = []
        triples: list[str] = []
        if self.graph is not None:
            for tag in tags:
                names += self.graph.get_related(tag, depth=DEPTH)
                triples += map(_sentence, self.graph.get_edges(tag))
        if tags:
            for memory in self.store.tag_search(tags, namespace=namespace, limit=TAGGED):
                take(memory, TAG_SCORE, "tag")
        for name in names[:EXPANDED]:
            for memory in self.store.list_memories(
                entity=name, status="active", namespace=namespace, limit=EACH
            ):
                take(memory, ENTITY_SCORE, "graph")
        if self.vector_store is not None:
            for found in self.vector_store.search(query, limit=NEAREST, namespace=namespace):
                memory = None if found["memory_id"] in seen else self.store.get(found["memory_id"])
                if memory is not None and memory.status == "active":
                    take(memory, max(0.0, 1.0 - found.get("distance", 1.0)), "vector")
        created = now.isoformat(timespec="microseconds")
        for sentence in list(dict.fromkeys(triples))[:TRIPLES]:
            take(triple_memory(sentence, namespace or "default", created), TRIPLE_SCORE, "graph")
        return results

    def recall_as_context(self, query: str, token_budget: int = 2000, namespace: str | None = None) -> str:
        """`recall` as lines to paste into a prompt; "" when nothing was found."""
        return context_of(self.recall(query, token_budget, namespace=namespace), token_budget)


def _sentence(edge: dict[str, Any]) -> str:
    date = edge.get("event_date") or ""
    said = f"{edge.get('subject', '')} {edge.get('predicate', 'RELATED_TO')} {edge.get('object', '')}"
    return f"{said} ({date})" if date else said


HEADER: Final = "Relevant memories:"


def line_of(result: RetrievalResult) -> str:
    r"""One line. A line break inside a memory is written as "\n", so that no memory can pose as another line."""
    content = "\\n".join(result.memory.content.splitlines())
    return f"- [{result.match_source}:{result.score:.2f}] {content}"


def context_of(results: Sequence[RetrievalResult], token_budget: int) -> str:
    """The header and a line a result, as many as fit the budget with the labels; the first one always."""
    lines = [line_of(r) for r in results]
    while len(lines) > 1 and estimate_tokens("\n".join((HEADER, *lines))) > token_budget:
        lines.pop()
    return "\n".join((HEADER, *lines)) if lines else ""
