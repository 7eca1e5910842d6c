"""What passes between the layers: rows with scores, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twofold import _core

Ordinals = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Candidates(NamedTuple):
    """Rows a layer proposes: ordinals int64 (m,) and scores float64 (m,), by score descending, ordinal ascending."""

    ordinals: Ordinals
    scores: Scores


NOTHING = Candidates(np.zeros(0, np.int64), np.zeros(0, np.float64))


def ordered(ordinals: Ordinals, scores: Scores, k: int | None = None) -> Candidates:
    """Sort by the one rule of the house: score descending, then ordinal ascending."""
    order = np.lexsort((ordinals, -scores))
    if k is not None:
        order = order[:k]
    return Candidates(ordinals[order], scores[order])


def places(lists: Sequence[Ordinals], wanted: Sequence[int]) -> npt.NDArray[np.int64]:
    """Where each of a few wanted ordinals stands in each list, -1 for nowhere; int64 (lists, wanted)."""
    return _core.places(lists, wanted)
