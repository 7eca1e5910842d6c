"""The knowledge graph of the official reference memory server, kept as memories; and its memory.jsonl.

An entity, an observation and a relation are one memory each, told apart by metadata["graph"]. Their order is the
order they were added in, which is also the order of the reference server's file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from twofold.errors import InvalidInput, NotFound
from twofold.files import reading, replacing
from twofold.text import validate_text

if TYPE_CHECKING:
    from twofold.memory import AgentMemory
    from twofold.model import Memory

TAG: Final = "knowledge-graph"
BATCH: Final = 5_000
# Reading the graph and changing it is one step; the calls of all connections of a server take turns.
_TURN: Final = threading.Lock()


class Entity(TypedDict):
    """An entity as the reference server writes it."""

    name: str
    entityType: str
    observations: list[str]


Relation = TypedDict("Relation", {"from": str, "to": str, "relationType": str})


class Graph(TypedDict):
    """The whole graph."""

    entities: list[Entity]
    relations: list[Relation]


class _Node(NamedTuple):
    """An entity with the ids of the memories it is made of. `number` tells entities of one name apart."""

    id: str
    name: str
    kind: str
    number: int
    observations: list[tuple[str, str]]  # (memory id, text)


class _Edge(NamedTuple):
    id: str
    relation: Relation


class GraphStore:
    """The graph in a handle's own namespace. One call at a time sees and changes it."""

    def __init__(self, mem: AgentMemory) -> None:
        self.mem = mem

    # -- reading -------------------------------------------------------------------------------------

    def _load(self) -> tuple[list[_Node], list[_Edge]]:
        rows = self.mem.search(tags=[TAG], limit=None, include_superseded=True)
        rows.sort(key=lambda m: m.ordinal)
        nodes: dict[tuple[str, int], _Node] = {}
        edges: list[_Edge] = []
        for row in rows:
            told = row.metadata.get("graph")
            if told == "entity":
                name, number = row.metadata["name"], row.metadata["number"]
                nodes[name, number] = _Node(row.id, name, row.metadata["entityType"], number, [])
            elif told == "relation":
                edges.append(_Edge(row.id, _relation(row.metadata)))
        for row in rows:
            if row.metadata.get("graph") == "observation":
                node = nodes.get((row.metadata["name"], row.metadata["number"]))
                if node is not None:
                    node.observations.append((row.id, _said(row)))
        return list(nodes.values()), edges

    def read(self) -> Graph:
        """Everything."""
        with _TURN:
            nodes, edges = self._load()
        return _graph(nodes, edges)

    def search(self, query: str) -> Graph:
        """Entities that hold the query in name, type or an observation (any case), and the relations at them."""
        wanted = query.lower()
        with _TURN:
            nodes, edges = self._load()
        found = [
            n
            for n in nodes
            if wanted in n.name.lower()
            or wanted in n.kind.lower()
            or any(wanted in said.lower() for _, said in n.observations)
        ]
        return _around(found, edges)

    def open(self, names: Sequence[str]) -> Graph:
        """Entities of these names, and the relations at them."""
        with _TURN:
            nodes, edges = self._load()
        return _around([n for n in nodes if n.name in names], edges)

    # -- writing -------------------------------------------------------------------------------------

    def create_entities(self, entities: Sequence[Entity]) -> list[Entity]:
        """Add the entities whose names are new; gives those."""
        with _TURN:
            nodes, _ = self._load()
            known = {n.name for n in nodes}
            new = [e for e in entities if e["name"] not in known]
            self._add([item for e, number in _numbered(new) for item in _entity_items(e, number)])
        return [_entity(e) for e in new]

    def create_relations(self, relations: Sequence[Relation]) -> list[Relation]:
        """Add the relations that are new; gives those."""
        with _TURN:
            _, edges = self._load()
            known = [e.relation for e in edges]
            new = [_relation(r) for r in relations if _relation(r) not in known]
            self._add(_relation_items(new, Counter(_name(r) for r in known)))
        return new

    def add_observations(self, additions: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, list[str]]]:
        """Add new observations to entities. Raises NotFound for an unknown one before anything is written."""
        with _TURN:
            nodes, _ = self._load()
            items, results = [], []
            said: dict[str, list[str]] = {}
            for name, contents in additions:
                node = next((n for n in nodes if n.name == name), None)
                if node is None:
                    raise NotFound(f"Entity with name {name} not found")
                known = said.setdefault(name, [text for _, text in node.observations])
                new = [c for c in contents if c not in known]
                items += _observation_items(name, node.number, new, Counter(known))
                known += new
                results.append((name, new))
            self._add(items)
        return results

    def delete_entities(self, names: Sequence[str]) -> None:
        """Retract entities, their observations, and the relations at them."""
        with _TURN:
            nodes, edges = self._load()
            self._forget(
                [e.id for e in edges if e.relation["from"] in names or e.relation["to"] in names]
                + [i for n in nodes if n.name in names for i in (*(i for i, _ in n.observations), n.id)]
            )

    def delete_observations(self, deletions: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Retract observations; unknown entities and texts are passed over."""
        with _TURN:
            nodes, _ = self._load()
            gone: dict[str, None] = {}
            for name, texts in deletions:
                node = next((n for n in nodes if n.name == name), None)
                if node is not None:
                    gone.update((i, None) for i, said in node.observations if said in texts)
            self._forget(list(gone))

    def delete_relations(self, relations: Sequence[Relation]) -> None:
        """Retract relations; unknown ones are passed over."""
        wanted = [_relation(r) for r in relations]
        with _TURN:
            _, edges = self._load()
            self._forget([e.id for e in edges if e.relation in wanted])

    def replace_with(self, graph: Graph) -> None:
        """Read a whole graph into an empty namespace, as it is. InvalidInput when there is a graph already."""
        with _TURN:
            nodes, edges = self._load()
            if nodes or edges:
                raise InvalidInput(
                    f"namespace {self.mem.namespace!r} holds a graph of {len(nodes)} entities already; "
                    "import into another namespace or store"
                )
            self._add(
                [item for e, number in _numbered(graph["entities"]) for item in _entity_items(e, number)]
                + _relation_items(graph["relations"], Counter())
            )

    def _add(self, items: list[dict[str, Any]]) -> None:
        if items:
            self.mem.add_many(items, batch=max(1, min(len(items), BATCH)))

    def _forget(self, ids: Sequence[str]) -> None:
        for memory_id in ids:
            self.mem.forget(memory_id)


# -- memories of the parts ----------------------------------------------------------------------------


def _numbered(entities: Sequence[Entity]) -> list[tuple[Entity, int]]:
    seen: Counter[str] = Counter()
    out = []
    for entity in entities:
        out.append((entity, seen[entity["name"]]))
        seen[entity["name"]] += 1
    return out


def _key(*parts: str | int) -> str:
    # One key per part of the graph: no two parts are repetitions of each other, and none supersedes another.
    return f"graph.{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def _entity_items(entity: Entity, number: int) -> list[dict[str, Any]]:
    name, kind = entity["name"], entity["entityType"]
    item = {
        "content": f"{name} is an entity of type {kind}",
        "tags": [TAG],
        "entities": _visible(name),
        "key": _key("entity", name, number),
        "metadata": {"graph": "entity", "name": name, "entityType": kind, "number": number},
    }
    return [item, *_observation_items(name, number, entity["observations"], Counter())]


def _observation_items(
    name: str, number: int, texts: Sequence[str], known: Counter[str]
) -> list[dict[str, Any]]:
    known = Counter(known)
    out = []
    for said in texts:
        metadata: dict[str, Any] = {"graph": "observation", "name": name, "number": number}
        if "⟦" in name + said:
            metadata["text"] = said  # the vault drops quoted recalls from contents
        out.append(
            {
                "content": f"{name}: {said}",
                "tags": [TAG],
                "entities": _visible(name),
                "key": _key("observation", name, number, said, known[said]),
                "metadata": metadata,
            }
        )
        known[said] += 1
    return out


def _relation_items(relations: Sequence[Relation], known: Counter[str]) -> list[dict[str, Any]]:
    known = Counter(known)
    out = []
    for relation in relations:
        name = _name(relation)
        out.append(
            {
                "content": f"{relation['from']} {relation['relationType']} {relation['to']} (relation)",
                "tags": [TAG],
                "entities": _visible(relation["from"], relation["to"]),
                "key": _key("relation", name, known[name]),
                "metadata": {"graph": "relation", **_relation(relation)},
            }
        )
        known[name] += 1
    return out


def _visible(*names: str) -> list[str]:
    """Names that the vault takes as entities: those of white space alone stay in the metadata only."""
    out = []
    for name in names:
        with contextlib.suppress(InvalidInput):
            out.append(validate_text(name))
    return out


def _name(relation: Relation) -> str:
    return json.dumps([relation["from"], relation["to"], relation["relationType"]])


def _said(row: Memory) -> str:
    kept = row.metadata.get("text")
    return row.content[len(row.metadata["name"]) + 2 :] if kept is None else str(kept)


def _relation(told: Any) -> Relation:
    return {"from": told["from"], "to": told["to"], "relationType": told["relationType"]}


def _entity(told: Any) -> Entity:
    return {
        "name": told["name"],
        "entityType": told["entityType"],
        "observations": list(told["observations"]),
    }


def _graph(nodes: Sequence[_Node], edges: Sequence[_Edge]) -> Graph:
    entities: list[Entity] = [
        {"name": n.name, "entityType": n.kind, "observations": [said for _, said in n.observations]}
        for n in nodes
    ]
    return {"entities": entities, "relations": [e.relation for e in edges]}


def _around(nodes: Sequence[_Node], edges: Sequence[_Edge]) -> Graph:
    names = {n.name for n in nodes}
    return _graph(nodes, [e for e in edges if e.relation["from"] in names or e.relation["to"] in names])


# -- memory.jsonl -------------------------------------------------------------------------------------


def to_jsonl(graph: Graph) -> str:
    """The file's text, byte for byte as the reference server writes it (no newline at the end)."""
    lines: list[Any] = [{"type": "entity", **_entity(e)} for e in graph["entities"]]
    lines += [{"type": "relation", **_relation(r)} for r in graph["relations"]]
    return "\n".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines)


def from_jsonl(text: str) -> Graph:
    """The graph in a file's text. InvalidInput names the line that cannot be read."""
    graph: Graph = {"entities": [], "relations": []}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            if told.get("type") == "entity":
                graph["entities"].append(_checked(_entity(told)))
            elif told.get("type") == "relation":
                graph["relations"].append(_checked(_relation(told)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"line {number} is not of a reference memory.jsonl: {error!r}") from None
    return graph


def _checked(part: Any) -> Any:
    for value in part.values():
        if not all(isinstance(v, str) for v in (value if isinstance(value, list) else [value])):
            raise TypeError(f"{value!r} is not text")
    return part


def import_file(mem: AgentMemory, path: Path) -> tuple[int, int]:
    """Read a memory.jsonl into the handle's namespace, which holds no graph yet: (entities, relations)."""
    with reading(path):
        text = path.read_bytes().decode("utf-8")
    graph = from_jsonl(text)
    GraphStore(mem).replace_with(graph)
    return len(graph["entities"]), len(graph["relations"])


def export_file(mem: AgentMemory, path: Path) -> tuple[int, int]:
    """Write the handle's graph as memory.jsonl, as a whole or not at all: (entities, relations)."""
    graph = GraphStore(mem).read()
    with replacing(path) as file:
        file.write(to_jsonl(graph).encode("utf-8"))
    return len(graph["entities"]), len(graph["relations"])
