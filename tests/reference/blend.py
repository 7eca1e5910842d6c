"""The twin of cpp/src/blend.cpp."""

from __future__ import annotations

import math

from tests.reference.turns import session_terms, turn_terms


def relevance(chosen, lexical, cosine, late, weights):
    """late: None or (coded, known, similarity). Lists in, three lists out; empty where a weight is 0."""
    of_words, of_meaning, of_late = [], [], []
    if weights["lexical_weight"]:
        best = max([lexical[place] for place in chosen], default=0.0)
        share = [max(value, 0.0) / best if best > 0.0 else 0.0 for value in lexical]
        of_words = [weights["lexical_weight"] * value for value in share]
    if weights["cosine_weight"]:
        zero = math.fsum(cosine[place] for place in chosen) / max(len(chosen), 1)
        for place, value in enumerate(cosine):
            coded = late is not None and late[0][place]
            weight = weights["late_cosine_weight" if coded else "cosine_weight"]
            of_meaning.append(weight * (weights["scale"] * (value - zero)))
        if late is not None:
            _, known, similarity = late
            typical = math.fsum(similarity) / max(len(similarity), 1)
            above = [0.0] * len(cosine)
            for number, value in zip(known, similarity, strict=True):
                above[chosen[number]] = value - typical
            of_late = [weights["late_weight"] * value for value in above]
    return of_words, of_meaning, of_late


def fuse(pool, relevance, layers, given, turns, sessions):
    """(rows, scores, addends), best first. turns: (tokens, asks, has_role, six weights, gate) or None.

    sessions: (codes, weight, top, repeats, logs) or None. An addend whose weight is 0 is left out.
    """
    ordinals, chosen, _, _ = pool
    rows = [ordinals[place] for place in chosen]
    base = [0.0] * len(ordinals)
    for addend in relevance:
        base = [a + b for a, b in zip(base, addend, strict=True)]
    addends = [[addend[place] for place in chosen] for addend in relevance]
    for own, scores, weight in layers:
        known = dict(zip(own, scores, strict=True))
        addends.append([weight * known.get(row, 0.0) for row in rows])
    if turns is not None:
        addends.append(turn_terms(pool, base, *turns))
    if sessions is not None and sessions[1]:
        addends.append(session_terms(pool, base, *sessions[:3]))
    addends += [list(addend) for addend in given]
    sums = [0.0] * len(rows)
    for addend in addends:
        sums = [a + b for a, b in zip(sums, addend, strict=True)]
    if sessions is not None and sessions[3]:
        codes, _, _, repeats, logs = sessions
        off, better = [-repeats * 0.0] * len(rows), {}
        for i in ranked(sums):
            code = codes[rows[i]]
            if code >= 0:
                off[i] = -repeats * logs[better.get(code, 0)]
                better[code] = better.get(code, 0) + 1
        addends.append(off)
        sums = [a + b for a, b in zip(sums, off, strict=True)]
    order = ranked(sums)
    return (
        [rows[i] for i in order],
        [sums[i] for i in order],
        [[addend[i] for i in order] for addend in addends],
    )


def ranked(sums):
    return sorted(range(len(sums)), key=lambda i: (-sums[i], i))


def above_mean(scores, groups, rows):
    found = [scores[groups[row]] for row in rows if groups[row] >= 0]
    best = max(found, default=0.0)
    if not best > 0.0:
        return [0.0] * len(rows)
    mean = math.fsum(found) / len(found)
    return [(scores[groups[row]] - mean) / best if groups[row] >= 0 else 0.0 for row in rows]
