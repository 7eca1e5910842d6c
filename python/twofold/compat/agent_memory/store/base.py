"""What Memwright asks of a store: three interfaces. Twofold's adapters and a user's own backends have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from twofold.compat.agent_memory.models import Memory


class DocumentStore(ABC):
    """Keeps memories."""

    @abstractmethod
    def insert(self, memory: Memory) -> Memory:
        """Store a memory as it is."""

    @abstractmethod
    def get(self, memory_id: str) -> Memory | None:
        """A memory by id."""

    @abstractmethod
    def update(self, memory: Memory) -> Memory:
        """Replace a memory's fields."""

    @abstractmethod
    def delete(self, memory_id: str) -> bool:
        """Remove a memory for good; False when there is none."""

    @abstractmethod
    def list_memories(
        self,
        status: str | None = None,
        category: str | None = None,
        entity: str | None = None,
        namespace: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Memory]:
        """Memories that pass, newest first."""

    @abstractmethod
    def tag_search(
        self,
        tags: Sequence[str],
        category: str | None = None,
        namespace: str | None = None,
        limit: int = 20,
    ) -> list[Memory]:
        """Active memories with one of the tags, newest first."""

    @abstractmethod
    def execute(self, query: str, params: Sequence[Any] | None = None) -> list[dict[str, Any]]:
        """Rows of a SQL statement."""

    @abstractmethod
    def archive_before(self, date: str) -> int:
        """Archive what was created before; how many."""

    @abstractmethod
    def compact(self) -> int:
        """Remove what is archived; how many."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counts and size."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""


class VectorStore(ABC):
    """Finds memories by meaning."""

    @abstractmethod
    def add(self, memory_id: str, content: str, namespace: str = "default") -> None:
        """Index a memory."""

    @abstractmethod
    def search(self, query_text: str, limit: int = 20, namespace: str | None = None) -> list[dict[str, Any]]:
        """[{memory_id, content, distance}], nearest first."""

    @abstractmethod
    def delete(self, memory_id: str) -> bool:
        """Take a memory out of the index."""

    @abstractmethod
    def count(self) -> int:
        """How many are indexed."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""


class GraphStore(ABC):
    """Relates entities."""

    @abstractmethod
    def add_entity(
        self, name: str, entity_type: str = "general", attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Add a node, or merge into it."""

    @abstractmethod
    def add_relation(
        self,
        from_entity: str,
        to_entity: str,
        relation_type: str = "related_to",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an edge."""

    @abstractmethod
    def get_related(self, entity: str, depth: int = 2) -> list[str]:
        """Names of what is near."""

    @abstractmethod
    def get_subgraph(self, entity: str, depth: int = 2) -> dict[str, Any]:
        """{entity, nodes, edges} of what is near."""

    @abstractmethod
    def get_entities(self, entity_type: str | None = None) -> list[dict[str, Any]]:
        """All nodes."""

    @abstractmethod
    def get_edges(self, entity: str) -> list[dict[str, Any]]:
        """The edges of a node."""

    @abstractmethod
    def graph_stats(self) -> dict[str, Any]:
        """Counts."""

    @abstractmethod
    def save(self) -> None:
        """Write what is kept in a file."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""
