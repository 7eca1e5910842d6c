"""Layer 1: words and tags. BM25 over the compiled postings, and fuzzy matches of tags named in the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.tenant import View
from twofold.retrieve.candidates import NOTHING, Candidates, Mask, Ordinals, Scores, ordered
from twofold.retrieve.profile import Profile

TermIds = npt.NDArray[np.uint32]


def term_ids(view: View, terms: Sequence[str]) -> TermIds:
    """Ids of the distinct query terms the store has seen, in order of first appearance; uint32 (t,)."""
    return np.array([c for c in view.index.terms.get_all(list(dict.fromkeys(terms))) if c >= 0], np.uint32)


class Scoped(TypedDict):
    """What the core needs to know of the rows that statistics are taken over."""

    stats_mask: Mask | None
    doc_count: float
    mean_length: float


def scoped(view: View, scope: Mask) -> Scoped:
    """The statistics of a scope; without a mask where all rows are in it, so that nothing is counted twice."""
    facts = view.facts(scope)
    documents, mean = facts.statistics
    return {"stats_mask": None if facts.full else scope, "doc_count": float(documents), "mean_length": mean}


def search(view: View, mask: Mask, scope: Mask, ids: TermIds, profile: Profile) -> Candidates:
    """The `depth` best rows by BM25 among those in `mask`; statistics are those of all rows in `scope`."""
    if len(ids) == 0 or view.rows == 0:
        return NOTHING
    ordinals, scores = view.index.lexicon.search(
        ids,
        profile.depth,
        mask=mask,
        prefix=view.rows,
        **scoped(view, scope),
        k1=profile.k1,
        b=profile.b,
        longest=profile.longest,
    )
    return Candidates(ordinals, scores)


def scores(view: View, scope: Mask, ids: TermIds, ordinals: Ordinals, profile: Profile) -> Scores:
    """The exact BM25 scores of given rows: the same values `search` gives; float64 (len(ordinals),)."""
    if len(ids) == 0 or len(ordinals) == 0:
        return np.zeros(len(ordinals), np.float64)
    out: Scores = view.index.lexicon.scores(
        ids,
        ordinals,
        prefix=view.rows,
        k1=profile.k1,
        b=profile.b,
        longest=profile.longest,
        **scoped(view, scope),
    )
    return out


def sessions(view: View, mask: Mask, ids: TermIds, ordinals: Ordinals, profile: Profile) -> Scores:
    """BM25 of each row's session taken as one document, by the best of them and less the rows' mean.

    A session is what `mask` lets through of it. 0 for rows without one; float64 (len(ordinals),).
    """
    groups = view.index.session.view(view.rows)
    facts = view.facts(mask)
    if len(ids) == 0 or not len(facts.session_lengths):
        return np.zeros(len(ordinals), np.float64)
    found = view.index.lexicon.group_scores(
        ids,
        groups,
        facts.session_lengths,
        stats_mask=None if facts.full else mask,
        prefix=view.rows,
        k1=profile.k1,
        b=profile.b,
        longest=profile.longest,
    )
    return _core.above_mean(found, groups, ordinals)


def tags(view: View, mask: Mask, query: str, profile: Profile) -> Candidates:
    """Rows whose tags the query names.

    The sum over a row's tags of the match's score (1 for exact) times the tag's rarity among the rows of `mask`,
    scaled to at most 1.
    """
    index = view.index
    total: dict[int, float] = {}
    for tag, quality in index.tag_matcher.match(query):
        rows = index.tag_rows(tag)
        rows = rows[rows < view.rows]
        rows = rows[mask[rows]]
        if len(rows) == 0:
            continue
        weight = quality / (1.0 + len(rows)) ** 0.5
        for ordinal in rows.tolist():
            total[ordinal] = total.get(ordinal, 0.0) + weight
    if not total:
        return NOTHING
    found = ordered(
        np.array(list(total), np.int64), np.array(list(total.values()), np.float64), profile.depth
    )
    return Candidates(found.ordinals, found.scores / found.scores[0])
