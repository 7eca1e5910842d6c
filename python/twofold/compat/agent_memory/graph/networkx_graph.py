"""The entity graph under the name Memwright gives it. It needs no networkx."""

from twofold.compat.agent_memory.graph.entities import EntityGraph as NetworkXGraph

__all__ = ["NetworkXGraph"]
