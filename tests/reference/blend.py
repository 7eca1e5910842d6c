"""The twin of cpp/src/blend.cpp."""

from __future__ import annotations

import math


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


def blend(addends, count):
    sums = [0.0] * count
    for addend in addends:
        sums = [a + b for a, b in zip(sums, addend, strict=True)]
    return sorted(range(count), key=lambda i: (-sums[i], i)), sums
