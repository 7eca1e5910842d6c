"""Twofold: memory for AI agents. A scratchpad in RAM, a persistent vault, recall without a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twofold import errors
from twofold._core import __version__

if TYPE_CHECKING:
    from twofold.aio import AsyncAgentMemory
    from twofold.clock import ManualClock, SystemClock
    from twofold.config import Config
    from twofold.decay import DecayPolicy
    from twofold.index.filters import Filters
    from twofold.memory import AgentMemory
    from twofold.model import Memory, Role, Visibility
    from twofold.recall import Hit, Recall
    from twofold.retrieve.profile import Profile
    from twofold.scratchpad import Scratchpad
    from twofold.session import Session

_HOME = {
    "AgentMemory": "memory",
    "AsyncAgentMemory": "aio",
    "Config": "config",
    "DecayPolicy": "decay",
    "Filters": "index.filters",
    "Hit": "recall",
    "ManualClock": "clock",
    "Memory": "model",
    "Profile": "retrieve.profile",
    "Recall": "recall",
    "Role": "model",
    "Scratchpad": "scratchpad",
    "Session": "session",
    "SystemClock": "clock",
    "Visibility": "model",
}

__all__ = [
    "AgentMemory",
    "AsyncAgentMemory",
    "Config",
    "DecayPolicy",
    "Filters",
    "Hit",
    "ManualClock",
    "Memory",
    "Profile",
    "Recall",
    "Role",
    "Scratchpad",
    "Session",
    "SystemClock",
    "Visibility",
    "__version__",
    "errors",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use: `import twofold` alone stays fast."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'twofold' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"twofold.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
