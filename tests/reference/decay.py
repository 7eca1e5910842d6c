"""The slow, obvious twin of decay."""

from tests.reference.arithmetic import exp


def strength(
    age_days: float,
    idle_days: float,
    accesses: int,
    recent: int,
    *,
    age_rate: float = 0.02,
    idle_rate: float = 0.05,
    access_boost: float = 0.1,
    access_cap: float = 0.4,
    recent_boost: float = 0.15,
) -> float:
    """Return the strength of one memory in [0, 1]."""
    age, idle = max(age_days, 0.0), max(idle_days, 0.0)
    used = 1.0 + min(access_boost * accesses, access_cap)
    return min(1.0, exp(-(age_rate * age)) * used * exp(-(idle_rate * idle)) + recent_boost * recent)
