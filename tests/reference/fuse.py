"""The slow, obvious twin of fusion and smoothing."""

from collections.abc import Sequence


def ranked(scores: dict[int, float]) -> list[tuple[int, float]]:
    """Return (ordinal, score) by score descending, ordinal ascending."""
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def rrf(lists: Sequence[Sequence[int]], k: float, weights: Sequence[float]) -> list[tuple[int, float]]:
    """Return the sum of weight / (k + rank) of each ordinal."""
    total: dict[int, float] = {}
    for ordinals, weight in zip(lists, weights, strict=True):
        for rank, ordinal in enumerate(ordinals, 1):
            part = weight / (k + rank)
            total[ordinal] = total[ordinal] + part if ordinal in total else part
    return ranked(total)


def convex(lists: Sequence[Sequence[tuple[int, float]]], weights: Sequence[float]) -> list[tuple[int, float]]:
    """Return the weighted sum of each list's scores divided by its best; negative scores count as 0."""
    total: dict[int, float] = {}
    for scored, weight in zip(lists, weights, strict=True):
        best = max((score for _, score in scored), default=0.0)
        for ordinal, score in scored:
            part = weight * (score / best if score > 0 else 0.0)
            total[ordinal] = total[ordinal] + part if ordinal in total else part
    return ranked(total)


def smooth(
    scores: Sequence[float],
    previous: Sequence[int],
    following: Sequence[int],
    session: Sequence[int],
    *,
    previous_weight: float,
    next_weight: float,
    session_weight: float,
    session_top: int,
) -> list[float]:
    """Return each score plus those of its neighbours and the mean of its session's best."""
    out = []
    for i, score in enumerate(scores):
        total = score
        if previous[i] >= 0:
            total += previous_weight * scores[previous[i]]
        if following[i] >= 0:
            total += next_weight * scores[following[i]]
        if session[i] >= 0:
            best = sorted(
                (s for s, code in zip(scores, session, strict=True) if code == session[i]), reverse=True
            )
            top = best[:session_top]
            mean = 0.0
            for value in top:
                mean += value
            total += session_weight * (mean / len(top))
        out.append(total)
    return out
