"""Decay policies: the constants of memory strength per memory type. The arithmetic is the core's.

strength(t) = min(1, exp(-age_rate * age_days) * (1 + min(access_boost * accesses, access_cap))
              * exp(-idle_rate * idle_days) + recent_boost * accesses in the last 24 h)
With the published constants an untouched memory falls below 0.1 on day 33, one used four times on day 38.
`keep_after` accesses (4 by default) keep a memory at the threshold for good; the published formula alone
does not keep that promise of its article.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from twofold.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class DecayRates:
    """Rates per day, boosts per access; all >= 0."""

    age_rate: float = 0.02
    idle_rate: float = 0.05
    access_boost: float = 0.1
    access_cap: float = 0.4
    recent_boost: float = 0.15

    def __post_init__(self) -> None:
        for name in ("age_rate", "idle_rate", "access_boost", "access_cap", "recent_boost"):
            value = getattr(self, name)
            if not (0.0 <= value < 100.0):
                raise InvalidInput(f"decay {name} must be between 0 and 100, not {value!r}")


PUBLISHED: Final = DecayRates()
# Facts, preferences and decisions are looked up rarely and stay true: a tenth of the published rates puts
# their first crossing of 0.1 near day 329 instead of day 33.
SLOW: Final = DecayRates(age_rate=0.002, idle_rate=0.005)


@dataclass(frozen=True, slots=True)
class DecayPolicy:
    """Rates per memory type, the threshold below which a memory is left out of recall, and the keep rule.

    keep_after: number of accesses that keep a memory above the threshold for good; None turns the rule off.
    """

    by_type: Mapping[str, DecayRates] = field(
        default_factory=lambda: MappingProxyType(
            {t: SLOW for t in ("fact", "preference", "decision", "knowledge", "plan", "summary")}
        )
    )
    default: DecayRates = PUBLISHED
    threshold: float = 0.1
    keep_after: int | None = 4

    def __post_init__(self) -> None:
        if not (0.0 <= self.threshold < 1.0):
            raise InvalidInput(f"decay threshold must be in [0, 1), not {self.threshold!r}")

    @classmethod
    def published(cls) -> DecayPolicy:
        """The article's constants for every type."""
        return cls(by_type=MappingProxyType({}), default=PUBLISHED)

    @classmethod
    def off(cls) -> DecayPolicy:
        """Nothing ever fades."""
        return cls(threshold=0.0)

    def with_threshold(self, threshold: float) -> DecayPolicy:
        """The same policy with another threshold."""
        return replace(self, threshold=threshold)

    def rates(self, memory_type: str) -> DecayRates:
        """The rates of a memory type."""
        return self.by_type.get(memory_type, self.default)
