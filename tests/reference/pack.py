"""The slow, obvious twin of MMR, packing and near duplicates."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tests.reference.vectors import lane_score


def mmr(relevance: Sequence[float], rows: NDArray[np.float32], lam: float, k: int) -> list[int]:
    """Return positions in the order chosen."""
    chosen: list[int] = []
    while len(chosen) < min(k, len(relevance)):
        values = {}
        for i in range(len(relevance)):
            if i not in chosen:
                nearest = max((float(lane_score(rows[i], rows[j])) for j in chosen), default=0.0)
                values[i] = lam * relevance[i] - (1.0 - lam) * nearest
        chosen.append(min(values, key=lambda i: (-values[i], i)))
    return chosen


def pack(order: Sequence[int], tokens: Sequence[int], budget: int, overhead: int) -> list[int]:
    """Return what fits of `order`, skipping what does not."""
    taken: list[int] = []
    for i in order:
        if sum(tokens[j] + overhead for j in [*taken, i]) <= budget:
            taken.append(i)
    return taken


def pack_value(tokens: Sequence[int], values: Sequence[float], budget: int, overhead: int) -> list[int]:
    """Return what fits, tried by value per token; positions ascending."""

    def rate(i: int) -> float:
        cost = tokens[i] + overhead
        return values[i] / cost if cost else math.inf

    order = sorted(range(len(tokens)), key=lambda i: (-rate(i), i))
    return sorted(pack(order, tokens, budget, overhead))


def near_duplicates(rows: NDArray[np.float32], threshold: float) -> list[int]:
    """Return for each row the first earlier kept row it is close to, or -1."""
    out: list[int] = []
    for i in range(len(rows)):
        close = [j for j in range(i) if out[j] < 0 and float(lane_score(rows[i], rows[j])) >= threshold]
        out.append(close[0] if close else -1)
    return out
