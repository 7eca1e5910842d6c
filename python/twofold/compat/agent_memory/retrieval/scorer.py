"""Memwright's scoring rules as pure functions: `now` is an argument, inputs are never changed, ties keep order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from twofold.clock import SystemClock
from twofold.compat.agent_memory.models import RetrievalResult
from twofold.compat.agent_memory.utils.tokens import estimate_tokens

_FLOOR, _CEILING = 0.1, 1.0
_RECENCY = 0.2
_ENTITY_NAMED, _ENTITY_MENTIONED = 0.30, 0.15


def _instant(text: str | None) -> dt.datetime | None:
    """The instant a string names, in UTC where it has no zone; None if it names none."""
    try:
        value = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)


def by_score(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """Best first; equal scores keep their order."""
    return sorted(results, key=lambda r: -r.score)


def deduplicate(results: Sequence[RetrievalResult]) -> list[RetrievalResult]:
    """One result a memory, the best scored, best first."""
    best: dict[str, RetrievalResult] = {}
    for result in results:
        held = best.get(result.memory.id)
        if held is None or result.score > held.score:
            best[result.memory.id] = result
    return by_score(list(best.values()))


def confidence_decay_boost(
    results: Sequence[RetrievalResult],
    decay_rate: float = 0.001,
    boost_rate: float = 0.03,
    gate: float = 0.0,
    *,
    now: dt.datetime | None = None,
) -> list[RetrievalResult]:
    """Scores times a confidence that falls with every hour of idleness and rises with every use.

    The confidence stays within 0.1 and 1.0; results below `gate` are dropped.
    """
    now = now or SystemClock().now()
    out = []
    for result in results:
        memory = result.memory
        since = _instant(memory.last_accessed) or _instant(memory.created_at) or now
        idle = max((now - since).total_seconds() / 3600.0, 0.0)
        confidence = memory.confidence - decay_rate * idle + boost_rate * (memory.access_count or 0)
        confidence = min(max(confidence, _FLOOR), _CEILING)
        if confidence >= gate:
            out.append(replace(result, score=result.score * confidence))
    return out


def temporal_boost(
    results: Sequence[RetrievalResult],
    decay_days: int = 90,
    enabled: bool = True,
    *,
    now: dt.datetime | None = None,
) -> list[RetrievalResult]:
    """Up to 0.2 more for what is new, falling to nothing over `decay_days` whole days."""
    if not enabled:
        return list(results)
    now = now or SystemClock().now()
    out = []
    for result in results:
        created = _instant(result.memory.created_at)
        fresh = 0.0 if created is None else max(0.0, 1.0 - (now - created).days / decay_days)
        out.append(replace(result, score=result.score + fresh * _RECENCY))
    return out


def entity_boost(
    results: Sequence[RetrievalResult], query_entities: Collection[str] | None = None
) -> list[RetrievalResult]:
    """0.30 more for a memory about a named entity, 0.15 for one that mentions it (three letters or more)."""
    names = list(dict.fromkeys(name.lower() for name in query_entities or ()))
    out = []
    for result in results:
        about = (result.memory.entity or "").lower()
        content = result.memory.content.lower()
        more = 0.0
        if about and about in names:
            more = _ENTITY_NAMED
        elif any(len(name) >= 3 and name in content for name in names):
            more = _ENTITY_MENTIONED
        out.append(replace(result, score=result.score + more))
    return out


def pagerank_boost(
    results: Sequence[RetrievalResult], pagerank_scores: Mapping[str, float], weight: float = 0.3
) -> list[RetrievalResult]:
    """`weight` times the PageRank of its entity more for every memory that has one."""
    return [
        replace(r, score=r.score + weight * pagerank_scores.get((r.memory.entity or "").lower(), 0.0))
        if r.memory.entity
        else replace(r)
        for r in results
    ]


def _jaccard_similarity(text_a: str, text_b: str) -> float:
    """The share of words two texts have in common; 0 when either has none."""
    return _overlap(frozenset(text_a.lower().split()), frozenset(text_b.lower().split()))


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a and b else 0.0


def mmr_rerank(
    results: Sequence[RetrievalResult], lambda_param: float = 0.7, max_results: int | None = 10
) -> list[RetrievalResult]:
    """Choose greedily what is relevant and unlike what is chosen already; None for as many as there are."""
    waiting = by_score(results)
    words = {id(r): frozenset(r.memory.content.lower().split()) for r in waiting}
    likeness = dict.fromkeys(words, 0.0)
    chosen: list[RetrievalResult] = []
    while waiting and (max_results is None or len(chosen) < max_results):
        best = max(
            range(len(waiting)),
            key=lambda i: (
                lambda_param * waiting[i].score - (1.0 - lambda_param) * likeness[id(waiting[i])],
                -i,
            ),
        )
        picked = waiting.pop(best)
        chosen.append(picked)
        for other in waiting:
            shared = _overlap(words[id(picked)], words[id(other)])
            likeness[id(other)] = max(likeness[id(other)], shared)
    return chosen


def fit_to_budget(results: Sequence[RetrievalResult], token_budget: int) -> list[RetrievalResult]:
    """Best first, each one that still fits; the best alone when not even it fits."""
    return pack(by_score(results), token_budget)


def pack(results: Sequence[RetrievalResult], token_budget: int) -> list[RetrievalResult]:
    """As `fit_to_budget`, in the order given."""
    chosen: list[RetrievalResult] = []
    used = 0
    for result in results:
        tokens = estimate_tokens(result.memory.content)
        if used + tokens <= token_budget:
            chosen.append(result)
            used += tokens
        elif not chosen:
            return [result]
    return chosen
