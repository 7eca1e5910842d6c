"""Timelines, current facts and Memwright's rule of contradiction, over any document store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twofold.clock import SystemClock
from twofold.compat.agent_memory.models import Memory
from twofold.compat.agent_memory.rows import known_us

ALL = 100_000


class TemporalManager:
    """Reads a document store by time."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def timeline(self, entity: str, namespace: str | None = None) -> list[Memory]:
        """Everything about an entity in the order it happened: by the instant, not by the string."""
        found = self.store.list_memories(entity=entity, namespace=namespace, limit=ALL)
        return sorted(reversed(found), key=lambda m: known_us(m.event_date) or known_us(m.created_at) or 0)

    def current_facts(
        self, category: str | None = None, entity: str | None = None, namespace: str | None = None
    ) -> list[Memory]:
        """What holds now, newest first."""
        found = self.store.list_memories(
            status="active", category=category, entity=entity, namespace=namespace, limit=ALL
        )
        return [m for m in found if m.valid_until is None]

    def check_contradictions(self, new_memory: Memory) -> list[Memory]:
        """Current facts of the same entity, category and namespace with another content; none without an entity."""
        if not new_memory.entity:
            return []
        rivals = self.current_facts(new_memory.category, new_memory.entity, new_memory.namespace)
        content = new_memory.content.strip()
        return [m for m in rivals if m.id != new_memory.id and m.content.strip() != content]

    def supersede(self, old_memory: Memory, new_memory_id: str) -> Memory:
        """End a memory's validity now in favour of another. The argument is left as it is."""
        ended = replace(
            old_memory,
            status="superseded",
            valid_until=SystemClock().now().isoformat(timespec="microseconds"),
            superseded_by=new_memory_id,
        )
        updated: Memory = self.store.update(ended)
        return updated
