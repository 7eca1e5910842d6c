"""Late interaction: every word of the question finds the token of a memory that is most like it.

Codes of one bit a dimension, of memories stored in one window; words weigh by their rarity in scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.tenant import VectorPart, View
from twofold.retrieve.candidates import Mask, Ordinals, Scores
from twofold.retrieve.profile import Profile


@dataclass(frozen=True, slots=True)
class Tokens:
    """The content tokens of a question: codes uint64 (q, words a code), and for each the terms of its word."""

    codes: npt.NDArray[np.uint64]
    terms: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Late:
    """coded: which places of the pool have token codes. known: which candidates; similarity: of those, -1..1."""

    coded: Mask
    known: npt.NDArray[np.int64]
    similarity: Scores


def weights(view: View, scope: Mask, terms: Sequence[tuple[str, ...]]) -> Scores:
    """The rarity of each token's word among the rows in scope: of its rarest term; 0 for none; float64 (q,)."""
    distinct = list(dict.fromkeys(term for own in terms for term in own))
    if not distinct:
        return np.zeros(len(terms))
    facts = view.facts(scope)
    ids = np.array(view.index.terms.get_all(distinct), np.int64)
    seen = ids >= 0
    counts = np.zeros(len(distinct), np.int64)
    if seen.any():
        counts[seen] = view.index.lexicon.document_frequency(
            ids[seen].astype(np.uint32), stats_mask=None if facts.full else scope, prefix=view.rows
        )
    documents, _ = facts.statistics
    rare = dict(zip(distinct, _core.rarity(counts, float(documents)).tolist(), strict=True))
    return np.array([max([rare[term] for term in own]) if own else 0.0 for own in terms])


def scores(
    view: View,
    scope: Mask,
    part: VectorPart | None,
    asked: Tokens | None,
    ordinals: Ordinals,
    chosen: npt.NDArray[np.int64],
    profile: Profile,
) -> Late | None:
    """Similarities of the candidates `chosen` of a pool; None where the term does not apply at all.

    The weighted mean over the question's tokens of the best 1 - 2 * hamming / dimension.
    """
    if profile.late_weight <= 0 or profile.fusion != "score" or profile.vector_weight <= 0:
        return None
    if part is None or asked is None or not len(chosen) or asked.codes.shape[1] != part.code_words:
        return None
    numbers, single = part.single(ordinals)
    coded, known, own = _core.coded_places(
        numbers, single, chosen, part.code_starts.view(), part.code_stops.view()
    )
    if not len(known):
        return None
    weight = weights(view, scope, asked.terms)
    used = weight > 0.0
    if not used.any():
        return None
    codes, first, last = part.token_rows(own)
    similarity = _core.bits_maxsim(np.ascontiguousarray(asked.codes[used]), weight[used], codes, first, last)
    return Late(coded, known, similarity)
