"""A Twofold store behind Memwright's three store interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.compat.agent_memory.graph.entities import EntityGraph
from twofold.compat.agent_memory.models import Memory
from twofold.compat.agent_memory.rows import ACTIVE, Rows
from twofold.compat.agent_memory.store.base import DocumentStore, GraphStore, VectorStore

if TYPE_CHECKING:
    from twofold.compat.agent_memory.core import AgentMemory

Reading = Callable[[str | None], Rows]  # of a namespace, or of the handle's own


class Documents(DocumentStore):
    """The memories of a handle, read at the handle's moment."""

    ROLES = frozenset({"document"})

    def __init__(self, mem: AgentMemory, rows: Reading) -> None:
        self._mem = mem
        self._rows = rows

    def insert(self, memory: Memory) -> Memory:
        """Store a memory as it is, with its id, times and status."""
        self._mem._load([memory.to_dict()], keep_all=True)
        return memory

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id, whatever its status."""
        return self._rows(None).find(memory_id)

    def update(self, memory: Memory) -> Memory:
        """Bring content, tags, category, entity, confidence and metadata to what is given."""
        return self._mem._replace(memory)

    def delete(self, memory_id: str) -> bool:
        """Erase a memory for good."""
        return self._mem._erase([memory_id]) == 1

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
        rows = self._rows(namespace)
        return rows.memories(rows.ordinals(status, category, entity, after, before)[:limit])

    def tag_search(
        self,
        tags: Sequence[str],
        category: str | None = None,
        namespace: str | None = None,
        limit: int = 20,
    ) -> list[Memory]:
        """Active memories with one of the tags, newest first."""
        rows = self._rows(namespace)
        return rows.memories(rows.tagged(tags, category)[:limit])

    def get_by_hash(self, content_hash: str, namespace: str | None = None) -> Memory | None:
        """The active memory of a content hash."""
        rows = self._rows(namespace)
        found = [o for o in rows.ordinals(ACTIVE) if rows.index.content_hash[o] == content_hash]
        return rows.memories(found[-1:])[0] if found else None

    def increment_access(self, memory_ids: Sequence[str]) -> None:
        """Count a use of each."""
        self._mem._used(memory_ids)

    def execute(self, query: str, params: Sequence[Any] | None = None) -> list[dict[str, Any]]:
        """Rows of a statement on a read-only copy of the table."""
        return self._mem.execute(query, params)

    def archive_before(self, date: str) -> int:
        """Archive what was created before; how many."""
        return self._mem.forget_before(date)

    def compact(self) -> int:
        """Remove what is archived; how many."""
        return self._mem.compact()

    def stats(self) -> dict[str, Any]:
        """Counts and size."""
        return self._mem.stats()

    def close(self) -> None:
        """Nothing to do: the handle owns the store."""


class Vectors(VectorStore):
    """The vectors of a handle's memories. Twofold makes them in the transaction that stores the memory."""

    ROLES = frozenset({"vector"})

    def __init__(self, mem: AgentMemory, rows: Reading) -> None:
        self._mem = mem
        self._rows = rows

    @property
    def provider(self) -> str:
        """The fingerprint of what makes the vectors."""
        embedder = self._mem._mem.embedder
        return "none" if embedder is None else embedder.fingerprint

    def add(self, memory_id: str, content: str, namespace: str = "default") -> None:  # noqa: ARG002
        """Nothing to do for a stored memory: it has its vector. NotFound for one that is not stored."""
        self._mem._stored(memory_id)

    def search(self, query_text: str, limit: int = 20, namespace: str | None = None) -> list[dict[str, Any]]:
        """[{memory_id, content, distance}] of active memories, nearest first; distance is 1 - cosine."""
        rows = self._rows(namespace)
        found = rows.nearest(self._mem._embed(query_text), limit)
        memories = rows.memories([o for o, _ in found])
        return [
            {"memory_id": m.id, "content": m.content, "distance": 1.0 - score}
            for m, (_, score) in zip(memories, found, strict=True)
        ]

    def delete(self, memory_id: str) -> bool:
        """Whether there is such a memory; its vector goes when the memory is compacted."""
        return self._mem.get(memory_id) is not None

    def count(self) -> int:
        """Active memories."""
        return len(self._rows(None).ordinals(ACTIVE))

    def close(self) -> None:
        """Nothing to do: the handle owns the store."""


class Relations(GraphStore):
    """What a handle's memories say about entities, and, for a whole store, what was added by hand.

    Relations from memories are never stored: they follow the memories, in the namespaces of the handle.
    Those added by hand belong to no namespace; they lie in graph.json and only a whole store's handle has them.
    """

    ROLES = frozenset({"graph"})

    def __init__(self, rows: Callable[[], Rows], folder: Path | None) -> None:
        self._rows = rows
        self._own = None if folder is None else EntityGraph(folder)

    @property
    def damaged(self) -> str | None:
        """What is wrong with graph.json, if anything is."""
        return None if self._own is None else self._own.damaged

    def _graph(self) -> EntityGraph:
        said = self._rows().graph()
        if self._own is None or not self._own._nodes:
            return said
        both = EntityGraph()
        both.merge_json(self._own.to_json())
        both.merge_json(said.to_json())
        return both

    def _hand(self) -> EntityGraph:
        if self._own is None:
            raise PermissionError("relations are added by hand through a handle on the whole store")
        return self._own

    def add_entity(
        self, name: str, entity_type: str = "general", attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Add a node by hand."""
        self._hand().add_entity(name, entity_type, attributes)

    def add_relation(
        self,
        from_entity: str,
        to_entity: str,
        relation_type: str = "related_to",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an edge by hand."""
        self._hand().add_relation(from_entity, to_entity, relation_type, metadata)

    def get_related(self, entity: str, depth: int = 2) -> list[str]:
        """Display names within `depth` steps in either direction, nearest first."""
        return self._graph().get_related(entity, depth)

    def get_subgraph(self, entity: str, depth: int = 2) -> dict[str, Any]:
        """{entity, nodes, edges} around an entity."""
        return self._graph().get_subgraph(entity, depth)

    def get_entities(self, entity_type: str | None = None) -> list[dict[str, Any]]:
        """[{name, type, key, attributes}]."""
        return self._graph().get_entities(entity_type)

    def get_edges(self, entity: str) -> list[dict[str, Any]]:
        """[{subject, predicate, object, event_date}]."""
        return self._graph().get_edges(entity)

    def pagerank(self, alpha: float = 0.85) -> dict[str, float]:
        """The PageRank of every node by lower-cased name."""
        return self._graph().pagerank(alpha)

    def graph_stats(self) -> dict[str, Any]:
        """{nodes, edges, types}."""
        return self._graph().graph_stats()

    def save(self) -> None:
        """Write what was added by hand."""
        if self._own is not None:
            self._own.save()

    def close(self) -> None:
        """Nothing to do: additions are written at once."""
