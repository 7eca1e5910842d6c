"""Layer 4: one score from all layers. Relevance first; context, roles and strength as additive terms.

Float work is elementwise, exact (fsum) or in the core: numpy's own sums depend on the processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.tenant import ROLES, View
from twofold.retrieve.candidates import Candidates, Mask, Ordinals, Scores
from twofold.retrieve.late import Late
from twofold.retrieve.profile import SPREAD, Profile
from twofold.retrieve.question import in_times
from twofold.retrieve.vector import logarithms

_USER = ROLES.index("user")


@dataclass(frozen=True, slots=True)
class Fused:
    """Candidates best first, and what their scores are the sum of: names, and addends float64 (names, candidates)."""

    candidates: Candidates
    names: list[str]
    addends: npt.NDArray[np.float64]


class Pool(NamedTuple):
    """The candidates of all layers with their neighbour turns, ascending; `chosen` are the candidates' places.

    previous and next hold places in `ordinals`, -1 at the end of a session or where the reader may not look.
    """

    ordinals: Ordinals
    chosen: npt.NDArray[np.int64]
    previous: npt.NDArray[np.int64]
    next: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Exact scores: lexical and cosine of every row of the pool; late, strength and sessions of the candidates."""

    lexical: Scores
    cosine: Scores
    late: Late | None = None
    strength: Scores | None = None
    sessions: Scores | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the question says besides its words.

    cover: share of it that the encoder can read. spread: of the encoder's unrelated cosines. speaker: code of the
    speaker it names, -1 for none. assistant: it asks what the assistant said. times: [start, end) it names, us.
    """

    cover: float = 1.0
    spread: float = SPREAD
    speaker: int = -1
    assistant: bool = False
    times: list[tuple[int, int]] = field(default_factory=list)


def pool(view: View, mask: Mask, layers: Sequence[Candidates], profile: Profile) -> Pool:
    """Collect what is to be scored: the union of the layers, and up to two turns on each side of it."""
    reach = 2 if profile.second_previous_weight or profile.second_next_weight else 1
    if not _context(profile):
        reach = 0
    return Pool(
        *_core.collect(
            [c.ordinals for c in layers],
            view.index.previous.view(view.rows),
            view.index.next.view(view.rows),
            mask,
            reach=reach,
        )
    )


def _context(profile: Profile) -> bool:
    return bool(
        profile.previous_weight
        or profile.next_weight
        or profile.second_previous_weight
        or profile.second_next_weight
        or profile.answer_weight
        or profile.role_next_weight
    )


def _turn_weights(profile: Profile) -> tuple[float, ...]:
    """In the order of the core's TurnWeights; the last is the gate, in tokens."""
    return (
        profile.previous_weight,
        profile.next_weight,
        profile.second_previous_weight,
        profile.second_next_weight,
        profile.answer_weight,
        profile.role_next_weight,
        profile.gate_tokens,
    )


def relevance(
    pooled: Pool, layers: dict[str, Candidates], found: Evidence, asked: Asked, profile: Profile
) -> dict[str, Scores]:
    """The addends of relevance for every row of the pool."""
    chosen = pooled.chosen
    parts: dict[str, Scores] = {}
    if profile.fusion == "rrf":
        for name, weight in (("lexical", profile.lexical_weight), ("vector", profile.vector_weight)):
            if weight and name in layers:
                rank = np.arange(1, len(layers[name].ordinals) + 1)
                # Scaled so that a first rank counts as much as a best score does in score fusion.
                ranks: Scores = np.float64(weight * (profile.rrf_k + 1.0)) / (profile.rrf_k + rank)
                ranked = Candidates(layers[name].ordinals, ranks)
                parts[name] = _spread(pooled.ordinals, ranked)
        return parts
    if profile.fusion == "max":
        if profile.lexical_weight:
            parts["lexical"] = profile.lexical_weight * _scaled(found.lexical, chosen)
        if profile.vector_weight:
            parts["vector"] = profile.vector_weight * _scaled(found.cosine, chosen)
        return parts
    late = found.late
    # The candidates' mean cosine only sets the zero that a missing neighbour or session counts.
    lexical, cosine, similar = _core.relevance(
        chosen,
        found.lexical,
        found.cosine,
        *(() if late is None else (late.coded, late.known, late.similarity)),
        lexical_weight=profile.lexical_weight if late is None else profile.late_lexical_weight,
        cosine_weight=profile.vector_weight,
        late_cosine_weight=profile.late_vector_weight,
        late_weight=profile.late_weight * asked.cover,
        scale=asked.cover * (SPREAD / asked.spread),
    )
    if profile.lexical_weight:
        parts["lexical"] = lexical
    if profile.vector_weight:
        parts["vector"] = cosine
        if late is not None:
            parts["late"] = similar
    return parts


def _scaled(values: Scores, chosen: npt.NDArray[np.int64]) -> Scores:
    """Values by the best candidate's."""
    best = values[chosen].max(initial=0.0)
    return np.maximum(values, 0.0) / best if best > 0 else np.zeros(len(values))


def _spread(ordinals: Ordinals, candidates: Candidates) -> Scores:
    out = np.zeros(len(ordinals))
    out[np.searchsorted(ordinals, candidates.ordinals)] = candidates.scores
    return out


def fuse(
    view: View,
    pooled: Pool,
    layers: dict[str, Candidates],
    found: Evidence,
    asked: Asked,
    profile: Profile,
) -> Fused:
    """Score the candidates of the pool."""
    index, rows = view.index, view.rows
    everywhere = relevance(pooled, layers, found, asked, profile)
    own = {"tags": profile.tag_weight, "graph": profile.graph_weight}
    own = {name: weight for name, weight in own.items() if weight and name in layers}
    given = of_rows(view, pooled.ordinals[pooled.chosen], found, asked, profile)
    context, sessions = _context(profile), bool(profile.session_weight or profile.session_repeat_weight)
    ordinals, scores, addends = _core.fuse(
        *pooled,
        list(everywhere.values()),
        layers=[(*layers[name], weight) for name, weight in own.items()],
        turns=(index.tokens.view(rows), index.asks.view(rows), index.has_role.view(rows))
        if context
        else None,
        turn_weights=_turn_weights(profile),
        sessions=index.session.view(rows) if sessions else None,
        session_weight=profile.session_weight,
        session_top=profile.session_top,
        session_repeats=profile.session_repeat_weight,
        logs=logarithms(len(pooled.chosen) + 1) if profile.session_repeat_weight else None,
        given=list(given.values()),
    )
    names = [
        *everywhere,
        *own,
        *(["neighbours"] if context else []),
        *(["session"] if profile.session_weight else []),
        *given,
        *(["repeats"] if profile.session_repeat_weight else []),
    ]
    return Fused(Candidates(ordinals, scores), names, addends)


def of_rows(view: View, rows: Ordinals, found: Evidence, asked: Asked, profile: Profile) -> dict[str, Scores]:
    """The addends that depend on a candidate alone: its session's words, who said it, when, and how strong it is."""
    index = view.index
    parts: dict[str, Scores] = {}
    if profile.session_lexical_weight and found.sessions is not None:
        parts["session_lexical"] = profile.session_lexical_weight * found.sessions
    if profile.speaker_weight and asked.speaker >= 0:
        parts["speaker"] = profile.speaker_weight * (index.speaker.view(view.rows)[rows] == asked.speaker)
    if profile.role_weight and not asked.assistant:
        role = index.role.view(view.rows)[rows]
        other = (role > 0) & (role != _USER)
        if other.any():
            parts["role"] = np.where(other, -profile.role_weight, 0.0)
    if profile.time_weight and asked.times:
        parts["time"] = np.where(in_times(view, rows, asked.times), profile.time_weight, 0.0)
    if profile.confidence_weight:
        parts["confidence"] = profile.confidence_weight * (index.confidence.view(view.rows)[rows] - 1.0)
    if profile.strength_weight and found.strength is not None:
        parts["strength"] = profile.strength_weight * found.strength
    return parts
