"""Memwright 2.0.6's names on Twofold: `from twofold.compat.agent_memory import AgentMemory`.

See docs/migration-memwright.md for what is the same and what is better on purpose.
"""

from twofold.compat.agent_memory.core import AgentMemory
from twofold.compat.agent_memory.models import Memory, RetrievalResult
from twofold.core import __version__

__all__ = ["AgentMemory", "Memory", "RetrievalResult", "__version__"]
