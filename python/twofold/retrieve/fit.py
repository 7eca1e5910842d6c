"""Fitting a profile's weights to a store's feedback: deterministic, and refused unless it holds on unseen answers.

Off unless asked for: the fitted profile is a value that a caller may pass to recall.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from twofold.retrieve.profile import Profile

# Addend of a score -> the constants that scale it.
CONSTANTS: Final[dict[str, tuple[str, ...]]] = {
    "lexical": ("lexical_weight", "late_lexical_weight"),
    "vector": ("vector_weight", "late_vector_weight"),
    "late": ("late_weight",),
    "tags": ("tag_weight",),
    "graph": ("graph_weight",),
    "neighbours": (
        "previous_weight",
        "next_weight",
        "second_previous_weight",
        "second_next_weight",
        "answer_weight",
        "role_next_weight",
    ),
    "session": ("session_weight",),
    "session_lexical": ("session_lexical_weight",),
    "repeats": ("session_repeat_weight",),
    "speaker": ("speaker_weight",),
    "role": ("role_weight",),
    "time": ("time_weight",),
    "confidence": ("confidence_weight",),
    "strength": ("strength_weight",),
}
STEPS: Final = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
ROUNDS: Final = 3
LEAST: Final = 20  # judged answers; fewer say nothing about more than a few of a dozen weights


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer: the addends of each hit, best first, and which hits were called useful."""

    parts: Mapping[str, npt.NDArray[np.float64]]
    useful: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fit:
    """What fitting did.

    before and after: mean share of (useful, other) pairs in the right order on the answers held out, 0..1; better
    and worse: how many of them gained and lost. factors: of each addend, 1.0 for those left alone. reason: why
    the profile is unchanged.
    """

    profile: Profile
    judged: int
    factors: dict[str, float]
    before: float
    after: float
    better: int
    worse: int
    changed: bool
    reason: str


def order_share(answer: Judged, factors: Mapping[str, float]) -> float:
    """Share of the pairs of a useful hit and another that the scaled scores put in the right order."""
    score = np.zeros(len(answer.useful))
    for name, part in answer.parts.items():
        score = score + factors.get(name, 1.0) * part
    good, other = np.flatnonzero(answer.useful), np.flatnonzero(~answer.useful)
    a, b = score[good][:, None], score[other][None, :]
    right = (a > b) | ((a == b) & (good[:, None] < other[None, :]))
    return float(np.count_nonzero(right)) / float(right.size)


def mean_share(answers: Sequence[Judged], factors: Mapping[str, float]) -> float:
    return math.fsum(order_share(a, factors) for a in answers) / len(answers)


def fit(answers: Sequence[Judged], profile: Profile) -> Fit:
    """Scale the addends of `profile` so that useful hits come first.

    Every second answer is fitted on, one addend after another over STEPS; the others decide whether the result is
    taken: more of them must gain than lose, beyond chance (two standard deviations of a fair coin).
    """
    usable = [a for a in answers if a.useful.any() and not a.useful.all()]
    same = dict.fromkeys(CONSTANTS, 1.0)
    if len(usable) < LEAST:
        reason = f"{len(usable)} judged answers with useful and other hits; {LEAST} are needed"
        return Fit(profile, len(usable), same, 0.0, 0.0, 0, 0, False, reason)
    learn, held = usable[::2], usable[1::2]
    factors = dict(same)
    best = mean_share(learn, factors)
    for _ in range(ROUNDS):
        before = dict(factors)
        for name in CONSTANTS:
            if not any(name in a.parts for a in learn):
                continue
            for step in sorted(STEPS, key=lambda s: (abs(s - 1.0), s)):
                share = mean_share(learn, {**factors, name: step})
                if share > best:
                    best, factors = share, {**factors, name: step}
        if factors == before:
            break
    gains = [order_share(a, factors) - order_share(a, same) for a in held]
    better, worse = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    was, now = mean_share(held, same), mean_share(held, factors)
    if not (better > worse and (better - worse) ** 2 >= 4 * (better + worse) and now > was):
        reason = f"it does not hold: of the answers held out {better} gained and {worse} lost"
        return Fit(profile, len(usable), same, was, now, better, worse, False, reason)
    changes = {
        constant: getattr(profile, constant) * factors[name]
        for name, constants in CONSTANTS.items()
        for constant in constants
    }
    fitted = replace(profile, name=f"{profile.name}+feedback", **changes)
    return Fit(fitted, len(usable), factors, was, now, better, worse, True, "")
