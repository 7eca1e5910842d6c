"""The twin of cpp/src/bits.cpp: late interaction over codes of one bit a dimension."""

from __future__ import annotations

from tests.reference.arithmetic import log


def maxsim(query, weights, codes, starts, stops):
    """query, codes: lists of codes, each a list of 64-bit words."""
    total = 0.0
    for weight in weights:
        total += weight
    out = []
    for start, stop in zip(starts, stops, strict=True):
        if not total > 0.0 or start == stop:
            out.append(0.0)
            continue
        bits = 64 * len(codes[start])
        found = 0.0
        for code, weight in zip(query, weights, strict=True):
            nearest = min(
                sum((a ^ b).bit_count() for a, b in zip(code, other, strict=True))
                for other in codes[start:stop]
            )
            found += weight * float(bits - 2 * nearest)
        out.append(found / (float(bits) * total))
    return out


def rarity(document_frequency, documents):
    return [
        log(1.0 + (documents - df + 0.5) / (df + 0.5))
        for df in (min(float(counted), documents) for counted in document_frequency)
    ]
