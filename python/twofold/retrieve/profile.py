"""The constants of recall, by name. A profile is a value: it is part of a receipt and of the algorithm's identity."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from twofold.errors import InvalidInput

# Standard deviation of the default encoder's cosines between unrelated texts, the unit of the cosine's weights.
SPREAD: Final = 0.10
FUSIONS: Final = ("score", "max", "rrf")
COUNTS: Final = ("depth", "session_top", "hops")  # whole numbers
# Least and greatest value of each constant; weights and the rest have DEFAULT_RANGE.
DEFAULT_RANGE: Final = (0.0, 1e9)
RANGES: Final[dict[str, tuple[float, float]]] = {
    "depth": (1, 10_000),
    "session_top": (1, 10_000),
    "hops": (0, 4),
    "min_cosine": (-1.0, 1.0),
    "mmr_lambda": (0.0, 1.0),
    "b": (0.0, 1.0),
    "k1": (0.0, 1000.0),
    "longest": (1.0, 1e9),
}


def _check(name: str, value: Any) -> None:
    whole = name in COUNTS
    low, high = RANGES.get(name, DEFAULT_RANGE)
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        raise InvalidInput(f"{name} must be a {'whole ' if whole else ''}number, not {value!r}")
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be in {low:g}..{high:g}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Profile:
    """How the layers are read and fused. Weights are additive, on scores normalised to at most 1 per layer.

    depth: candidates each layer proposes. fusion: "score" (exact scores of every candidate: the cosine above the
    candidates' mean, BM25 by the best one's), "max" (both by the best one's), or "rrf" (weight / (rrf_k + rank)).
    """

    name: str = "default"
    fusion: str = "score"
    depth: int = 200
    # Absolute cosines beat cosines scaled by the best one (+1.0 frac@10 on LoCoMo): the scale says how sure it is.
    vector_weight: float = 1.0
    # Least cosine of a vector candidate. Off: 0.72, as published, drops most true hits of MiniLM (QUALITY.md).
    min_cosine: float = -1.0
    lexical_weight: float = 0.5
    # Late interaction, where the embedder gives token codes: it and these two replace the two weights above for
    # memories with codes (of one window). +1.7 any@10, +3.4 MRR on LoCoMo, +2.5 share@1000 on BEAM.
    late_weight: float = 1.25
    late_vector_weight: float = 0.5
    late_lexical_weight: float = 0.35
    tag_weight: float = 0.05
    graph_weight: float = 0.075
    rrf_k: float = 10.0
    k1: float = 1.2
    b: float = 0.75
    # A document counts as at most this many mean lengths: a long text among short ones must not vanish (BM25's
    # length norm alone gives a sentence at the end of 5,000 words a twentieth of its weight).
    longest: float = 4.0
    # The best of n windows is high by chance: take off window_penalty * ln n. Off: beside the other terms 0.03 is
    # around zero on every set (BEAM, where it acts, +0.6 [-1.1, 2.8] any@10).
    window_penalty: float = 0.0
    # Neighbour turns of the same session (+2.0 frac@10 on LoCoMo); a long turn says enough by itself and borrows
    # gate_tokens / tokens of it.
    previous_weight: float = 0.25
    next_weight: float = 0.15
    second_previous_weight: float = 0.10
    second_next_weight: float = 0.10
    answer_weight: float = 0.25
    role_next_weight: float = 0.20
    gate_tokens: float = 52.0
    # Mean of the session's best candidates (+1.4 frac@10 on LoCoMo), and BM25 of the session as one document, by
    # the best candidate's session and less the candidates' mean (+1.0).
    session_weight: float = 0.5
    session_top: int = 2
    session_lexical_weight: float = 0.2
    # Taken off, times ln(1 + how many candidates of its session are better): one session must not fill the list
    # (+1.1 frac@10 on BEAM).
    session_repeat_weight: float = 0.02
    speaker_weight: float = 0.3
    # Taken off what a role other than the user said, unless the question asks for it (+9.2 frac@10 on BEAM).
    role_weight: float = 0.4
    # A row dated inside a time that the question names. It neither helps nor hurts on LoCoMo: off.
    time_weight: float = 0.0
    confidence_weight: float = 0.05
    strength_weight: float = 0.02
    mmr_lambda: float | None = None
    # Vectors of "A is 10" and "A is 20" nearly coincide: only equal texts are duplicates unless asked for.
    duplicate_threshold: float = 2.0
    hops: int = 2

    def __post_init__(self) -> None:
        """InvalidInput names a constant that is no number or lies outside its range."""
        for constant in fields(self):
            value = getattr(self, constant.name)
            if constant.name == "name":
                if not isinstance(value, str):
                    raise InvalidInput(f"a profile's name must be a string, not {value!r}")
            elif constant.name == "fusion":
                if value not in FUSIONS:
                    raise InvalidInput(f"fusion must be one of {', '.join(FUSIONS)}, not {value!r}")
            elif value is not None or constant.name != "mmr_lambda":
                _check(constant.name, value)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Profile:
        return cls(**values)


DEFAULT: Final = Profile()
_BARE: Final = Profile(
    late_weight=0.0,
    tag_weight=0.0,
    graph_weight=0.0,
    window_penalty=0.0,
    previous_weight=0.0,
    next_weight=0.0,
    second_previous_weight=0.0,
    second_next_weight=0.0,
    answer_weight=0.0,
    role_next_weight=0.0,
    session_weight=0.0,
    session_lexical_weight=0.0,
    session_repeat_weight=0.0,
    speaker_weight=0.0,
    role_weight=0.0,
    confidence_weight=0.0,
    strength_weight=0.0,
)

PROFILES: Final[dict[str, Profile]] = {
    "default": DEFAULT,
    "rrf": replace(DEFAULT, name="rrf", fusion="rrf", vector_weight=0.5),
    # Control rows of every quality table.
    "bm25": replace(_BARE, name="bm25", vector_weight=0.0, lexical_weight=1.0),
    "vector": replace(_BARE, name="vector", vector_weight=1.0, lexical_weight=0.0),
    "base": replace(_BARE, name="base", fusion="max", depth=100, vector_weight=0.5),
    "rrf60": replace(_BARE, name="rrf60", fusion="rrf", rrf_k=60.0, depth=100, vector_weight=0.5),
}


def profile_of(value: str | Profile | dict[str, Any] | None) -> Profile:
    """A profile by name, by value, or the default with some constants changed."""
    if value is None:
        return DEFAULT
    if isinstance(value, Profile):
        return value
    if isinstance(value, str):
        try:
            return PROFILES[value]
        except KeyError:
            raise InvalidInput(f"unknown profile {value!r}; profiles are {', '.join(PROFILES)}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"a profile is a name, a Profile or a dict of its constants, not {value!r}")
    known = {f.name for f in fields(Profile)} - {"name"}
    unknown = sorted(map(str, set(value) - known))
    if unknown:
        raise InvalidInput(f"unknown profile constants {', '.join(unknown)}")
    return replace(DEFAULT, name="custom", **value)
