"""Layer 4: one score from all layers. Relevance first; context, roles and strength as small additive terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twofold import _core
from twofold.index.tenant import ROLES, View
from twofold.retrieve.candidates import Candidates, Mask, Ordinals, Scores, ordered
from twofold.retrieve.profile import Profile


@dataclass(frozen=True, slots=True)
class Fused:
    """Candidates best first, and for each the addends its score is the sum of (float64, aligned)."""

    candidates: Candidates
    parts: dict[str, Scores]


def union(lists: Sequence[Candidates]) -> Ordinals:
    """Every ordinal that some layer proposed, ascending."""
    return np.unique(np.concatenate([c.ordinals for c in lists])) if lists else np.zeros(0, np.int64)


def _scaled(values: Scores) -> Scores:
    best = values.max(initial=0.0)
    return np.maximum(values, 0.0) / best if best > 0 else np.zeros(len(values))


def _spread(ordinals: Ordinals, candidates: Candidates) -> Scores:
    out = np.zeros(len(ordinals))
    out[np.searchsorted(ordinals, candidates.ordinals)] = candidates.scores
    return out


def fuse(
    view: View,
    mask: Mask,
    ordinals: Ordinals,
    layers: dict[str, Candidates],
    lexical: Scores,
    cosine: Scores,
    strength: Scores,
    speakers: Sequence[int],
    profile: Profile,
) -> Fused:
    """Fuse the union `ordinals` (ascending) of the layers' candidates.

    lexical and cosine are the exact scores of every row of the union, whichever layer proposed it.
    """
    index = view.index
    parts: dict[str, Scores] = {}
    if profile.fusion == "rrf":
        for name, weight in (("lexical", profile.lexical_weight), ("vector", profile.vector_weight)):
            if weight and name in layers:
                rank = np.arange(1, len(layers[name].ordinals) + 1)
                ranked = Candidates(layers[name].ordinals, weight / (profile.rrf_k + rank))
                # Scaled so that a first rank counts as much as a best score does in score fusion.
                parts[name] = _spread(ordinals, ranked) * (profile.rrf_k + 1.0)
    else:
        if profile.lexical_weight:
            parts["lexical"] = profile.lexical_weight * _scaled(lexical)
        if profile.vector_weight:
            parts["vector"] = profile.vector_weight * _scaled(cosine)
    base = np.zeros(len(ordinals))
    for addend in parts.values():
        base = base + addend
    if profile.tag_weight and "tags" in layers:
        parts["tags"] = profile.tag_weight * _spread(ordinals, layers["tags"])
    if profile.graph_weight and "graph" in layers:
        parts["graph"] = profile.graph_weight * _spread(ordinals, layers["graph"])
    if profile.previous_weight or profile.next_weight or profile.session_weight:
        previous = _inside(ordinals, index.previous.view(view.rows)[ordinals])
        following = index.next.view(view.rows)[ordinals]
        following = _inside(ordinals, np.where(following < view.rows, following, -1))
        parts["context"] = (
            _core.smooth(
                base,
                previous,
                following,
                index.session.view(view.rows)[ordinals],
                previous_weight=profile.previous_weight,
                next_weight=profile.next_weight,
                session_weight=profile.session_weight,
                session_top=profile.session_top,
            )
            - base
        )
    if profile.speaker_weight and speakers:
        said = np.isin(index.speaker.view(view.rows)[ordinals], np.array(speakers, np.int32))
        parts["speaker"] = profile.speaker_weight * said
    if profile.role_weight:
        user = index.role.view(view.rows)[ordinals] == ROLES.index("user")
        if user.any():
            parts["role"] = profile.role_weight * user * base
    if profile.confidence_weight:
        parts["confidence"] = profile.confidence_weight * (index.confidence.view(view.rows)[ordinals] - 1.0)
    if profile.strength_weight:
        parts["strength"] = profile.strength_weight * strength
    total = base
    for name, addend in parts.items():
        if name not in ("lexical", "vector"):
            total = total + addend
    best = ordered(ordinals, total)
    order = np.searchsorted(ordinals, best.ordinals)
    return Fused(best, {name: addend[order] for name, addend in parts.items()})


def _inside(ordinals: Ordinals, wanted: Ordinals) -> Ordinals:
    """Positions of `wanted` rows inside the ascending `ordinals`, -1 where absent."""
    if len(ordinals) == 0:
        return np.zeros(0, np.int64)
    at = np.searchsorted(ordinals, wanted)
    at = np.minimum(at, len(ordinals) - 1)
    return np.where(ordinals[at] == wanted, at, -1).astype(np.int64)
