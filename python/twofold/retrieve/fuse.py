"""Layer 4: one score from all layers. Relevance first; context, roles and strength as additive terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold.index.tenant import ROLES, View
from twofold.model import TRAIT_ASKS
from twofold.retrieve.candidates import Candidates, Mask, Ordinals, Scores, ordered
from twofold.retrieve.profile import Profile


@dataclass(frozen=True, slots=True)
class Fused:
    """Candidates best first, and for each the addends its score is the sum of (float64, aligned)."""

    candidates: Candidates
    parts: dict[str, Scores]


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of all layers with their neighbour turns, ascending; `chosen` are the candidates' places.

    previous and next hold places in `ordinals`, -1 at the end of a session or where the reader may not look.
    """

    ordinals: Ordinals
    chosen: npt.NDArray[np.int64]
    previous: npt.NDArray[np.int64]
    next: npt.NDArray[np.int64]


def pool(view: View, mask: Mask, layers: Sequence[Candidates], profile: Profile) -> Pool:
    """Collect what is to be scored: the union of the layers, and up to two turns on each side of it."""
    index = view.index
    union = np.unique(np.concatenate([c.ordinals for c in layers])) if layers else np.zeros(0, np.int64)
    ordinals = union
    before, after = index.previous.view(view.rows), index.next.view(view.rows)
    reach = 2 if profile.second_previous_weight or profile.second_next_weight else 1
    if not (profile.previous_weight or profile.next_weight or profile.role_next_weight):
        reach = 0
    for _ in range(reach):
        around = np.concatenate([before[ordinals], after[ordinals]])
        around = around[(around >= 0) & (around < view.rows)]
        ordinals = np.union1d(ordinals, around[mask[around]])
    if len(ordinals) == 0:
        return Pool(ordinals, ordinals, ordinals, ordinals)
    return Pool(
        ordinals,
        np.searchsorted(ordinals, union),
        _places(ordinals, before[ordinals]),
        _places(ordinals, after[ordinals]),
    )


def _places(ordinals: Ordinals, wanted: Ordinals) -> npt.NDArray[np.int64]:
    """Positions of `wanted` rows inside the ascending `ordinals`, -1 where absent."""
    at = np.minimum(np.searchsorted(ordinals, wanted), len(ordinals) - 1)
    return np.where(ordinals[at] == wanted, at, -1).astype(np.int64)


def relevance(
    pooled: Pool,
    layers: dict[str, Candidates],
    lexical: Scores,
    cosine: Scores,
    cover: float,
    profile: Profile,
) -> dict[str, Scores]:
    """The addends of relevance for every row of the pool."""
    chosen = pooled.chosen
    parts: dict[str, Scores] = {}
    best: float
    shown: Scores
    if profile.fusion == "rrf":
        for name, weight in (("lexical", profile.lexical_weight), ("vector", profile.vector_weight)):
            if weight and name in layers:
                rank = np.arange(1, len(layers[name].ordinals) + 1)
                # Scaled so that a first rank counts as much as a best score does in score fusion.
                ranks: Scores = np.float64(weight * (profile.rrf_k + 1.0)) / (profile.rrf_k + rank)
                ranked = Candidates(layers[name].ordinals, ranks)
                parts[name] = _spread(pooled.ordinals, ranked)
        return parts
    if profile.lexical_weight:
        best = lexical[chosen].max(initial=0.0)
        parts["lexical"] = profile.lexical_weight * _scaled(lexical, best)
    if profile.vector_weight:
        if profile.fusion == "max":
            best = cosine[chosen].max(initial=0.0)
            shown = _scaled(cosine, best)
        else:
            # The mean only sets the zero that a missing neighbour or session counts.
            # fsum is exact: numpy's own sum adds in an order that depends on the processor.
            mean = math.fsum(cosine[chosen].tolist()) / max(len(chosen), 1)
            shown = cover * (cosine - mean)
        parts["vector"] = profile.vector_weight * shown
    return parts


def _scaled(values: Scores, best: float) -> Scores:
    return np.maximum(values, 0.0) / best if best > 0 else np.zeros(len(values))


def _spread(ordinals: Ordinals, candidates: Candidates) -> Scores:
    out = np.zeros(len(ordinals))
    out[np.searchsorted(ordinals, candidates.ordinals)] = candidates.scores
    return out


def neighbours(view: View, pooled: Pool, base: Scores, profile: Profile) -> Scores:
    """What the turns around a candidate add to it; in logs with roles only the next turn does."""
    index, chosen = view.index, pooled.chosen
    rows = pooled.ordinals[chosen]

    def score(places: npt.NDArray[np.int64]) -> Scores:
        return np.where(places >= 0, base[places], 0.0)

    def step(links: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(places >= 0, links[places], -1)

    previous, following = pooled.previous[chosen], pooled.next[chosen]
    gate = np.minimum(1.0, profile.gate_tokens / np.maximum(index.tokens.view(view.rows)[rows], 1))
    asked = np.where(previous >= 0, index.traits.view(view.rows)[pooled.ordinals[previous]] & TRAIT_ASKS, 0)
    turn = (
        profile.previous_weight * score(previous)
        + profile.next_weight * score(following)
        + profile.second_previous_weight * score(step(pooled.previous, previous))
        + profile.second_next_weight * score(step(pooled.next, following))
        + profile.answer_weight * asked * score(previous)
    )
    has_role = index.role.view(view.rows)[rows] > 0
    out: Scores = gate * np.where(has_role, profile.role_next_weight * score(following), turn)
    return out


def session(view: View, pooled: Pool, base: Scores, profile: Profile) -> Scores:
    """The mean of the best candidates of each candidate's session, as if a session had at least `session_top`."""
    out = np.zeros(len(pooled.chosen))
    codes = view.index.session.view(view.rows)[pooled.ordinals[pooled.chosen]]
    values = np.maximum(base[pooled.chosen], 0.0)
    order = np.lexsort((-values, codes))
    edges = np.flatnonzero(np.diff(codes[order], prepend=-2, append=-2))
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if codes[order[a]] < 0:
            continue
        total = 0.0
        for value in values[order[a : min(b, a + profile.session_top)]].tolist():
            total += value
        out[order[a:b]] = profile.session_weight * (total / profile.session_top)
    return out


def fuse(
    view: View,
    pooled: Pool,
    layers: dict[str, Candidates],
    lexical: Scores,
    cosine: Scores,
    strength: Scores,
    speaker: int,
    cover: float,
    profile: Profile,
) -> Fused:
    """Score the candidates of the pool.

    lexical and cosine: exact scores of every row of the pool. strength: of the candidates. speaker: code of the
    speaker that the query names, -1 for none. cover: share of the query that the encoder can read.
    """
    index, chosen = view.index, pooled.chosen
    rows = pooled.ordinals[chosen]
    everywhere = relevance(pooled, layers, lexical, cosine, cover, profile)
    base = np.zeros(len(pooled.ordinals))
    for addend in everywhere.values():
        base = base + addend
    parts = {name: addend[chosen] for name, addend in everywhere.items()}
    if len(rows):
        for name, weight in (("tags", profile.tag_weight), ("graph", profile.graph_weight)):
            if weight and name in layers:
                parts[name] = weight * _spread(rows, layers[name])
        if profile.previous_weight or profile.next_weight or profile.role_next_weight:
            parts["neighbours"] = neighbours(view, pooled, base, profile)
        if profile.session_weight:
            parts["session"] = session(view, pooled, base, profile)
        if profile.speaker_weight and speaker >= 0:
            parts["speaker"] = profile.speaker_weight * (index.speaker.view(view.rows)[rows] == speaker)
        if profile.role_weight:
            user = index.role.view(view.rows)[rows] == ROLES.index("user")
            if user.any():
                parts["role"] = profile.role_weight * user
        if profile.confidence_weight:
            parts["confidence"] = profile.confidence_weight * (index.confidence.view(view.rows)[rows] - 1.0)
        if profile.strength_weight:
            parts["strength"] = profile.strength_weight * strength
    total = np.zeros(len(rows))
    for addend in parts.values():
        total = total + addend
    best = ordered(rows, total)
    order = np.searchsorted(rows, best.ordinals)
    return Fused(best, {name: addend[order] for name, addend in parts.items()})
