"""The slow, obvious twin of the vector core: numpy scalars, one by one, so nothing is fused or reordered."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LANES = 32


def lane_score(row: NDArray[np.float32], query: NDArray[np.float32]) -> np.float32:
    """Return the float32 score: lane j adds x[j], x[j + 32], ...; then the lanes fold in halves."""
    lanes = [np.float32(0)] * LANES
    for i in range(len(row)):
        lanes[i % LANES] = np.float32(lanes[i % LANES] + np.float32(row[i] * query[i]))
    half = LANES // 2
    while half:
        for j in range(half):
            lanes[j] = np.float32(lanes[j] + lanes[j + half])
        half //= 2
    return lanes[0]


def search(
    rows: NDArray[np.float32],
    query: NDArray[np.float32],
    k: int,
    *,
    mask: Sequence[bool] | NDArray[np.bool_] | None = None,
    prefix: int | None = None,
    erased: Sequence[int] = (),
) -> list[tuple[int, np.float32]]:
    """Return the best k (ordinal, score) by score descending, ordinal ascending."""
    gone = set(erased)
    hits = []
    for ordinal in range(len(rows) if prefix is None else prefix):
        if ordinal not in gone and (mask is None or mask[ordinal]):
            hits.append((ordinal, lane_score(rows[ordinal], query)))
    hits.sort(key=lambda hit: (-hit[1], hit[0]))
    return hits[:k]


def quantize_row(row: NDArray[np.float32]) -> tuple[list[int], np.float32]:
    """Return int8 codes and their scale max|x| / 127; Python's round takes ties to even."""
    largest = max((abs(float(x)) for x in row), default=0.0)
    if largest == 0.0:
        return [0] * len(row), np.float32(0)
    inverse = 127.0 / largest
    return [round(float(x) * inverse) for x in row], np.float32(largest) / np.float32(127)


def maxsim(
    query: NDArray[np.int8],
    query_scales: NDArray[np.float32],
    docs: NDArray[np.int8],
    doc_scales: NDArray[np.float32],
    offsets: Sequence[int] | NDArray[np.int64],
) -> list[float]:
    """Return per document the sum over query tokens of the largest dot product; 0 without tokens."""
    out = []
    for begin, end in pairwise(offsets):
        total = 0.0
        for token, scale in zip(query.tolist(), query_scales.tolist(), strict=True):
            if begin == end:
                continue
            best = max(
                sum(a * b for a, b in zip(token, docs[t].tolist(), strict=True)) * float(doc_scales[t])
                for t in range(begin, end)
            )
            total += best * scale
        out.append(total)
    return out
