"""A directed graph of entities with typed edges: insertion order decides everywhere, never a hash."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.compat.agent_memory.store.base import GraphStore
from twofold.compat.agent_memory.utils.config import replace_text

FILE_NAME = "graph.json"
GENERAL = "general"
_TOLERANCE, _ROUNDS = 1e-6, 100


def relation_name(relation: str) -> str:
    """A relation type in upper case, with "_" for whatever is no letter, digit or "_"."""
    return re.sub(r"[^A-Za-z0-9_]", "_", relation).upper()


class EntityGraph(GraphStore):
    """Nodes by lower-cased name, edges by (source, target, relation). With a folder, kept in graph.json there."""

    ROLES = frozenset({"graph"})

    def __init__(self, store_path: str | Path | None = None) -> None:
        self._path = None if store_path is None else Path(store_path) / FILE_NAME
        self._clear()
        self.damaged: str | None = None
        if self._path is not None and self._path.exists():
            self.load()

    def _clear(self) -> None:
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._out: dict[str, dict[str, None]] = {}
        self._in: dict[str, dict[str, None]] = {}
        self._ranks: dict[float, dict[str, float]] = {}

    # -- growing -----------------------------------------------------------------------------------

    def add_entity(
        self, name: str, entity_type: str = GENERAL, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Add a node or merge into it: new attributes win, the type is only ever sharpened from "general"."""
        self._put(name, entity_type, attributes or {})
        self.save()

    def add_relation(
        self,
        from_entity: str,
        to_entity: str,
        relation_type: str = "related_to",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an edge; nodes that are missing are made."""
        self._join(from_entity, to_entity, relation_type, metadata or {})
        self.save()

    def _put(self, name: str, kind: str, attributes: Mapping[str, Any]) -> None:
        self._ranks.clear()
        key = name.lower()
        node = self._nodes.get(key)
        if node is None:
            self._nodes[key] = {"display_name": name, "entity_type": kind, **attributes}
            self._out[key], self._in[key] = {}, {}
            return
        node.update(attributes)
        node["display_name"] = name
        if node.get("entity_type", GENERAL) == GENERAL:
            node["entity_type"] = kind

    def _join(self, source: str, target: str, relation: str, metadata: Mapping[str, Any]) -> None:
        self._ranks.clear()
        for name in (source, target):
            if name.lower() not in self._nodes:
                self._put(name, GENERAL, {})
        a, b, kind = source.lower(), target.lower(), relation_name(relation)
        self._edges.setdefault((a, b, kind), {}).update(metadata)
        self._out[a][b] = None
        self._in[b][a] = None

    def absorb(self, nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> None:
        """Take in what `extract_entities_and_relations` found, without writing a file."""
        for node in nodes:
            self._put(node["name"], node.get("type", GENERAL), node.get("attributes") or {})
        for edge in edges:
            self._join(edge["from"], edge["to"], edge.get("type", "related_to"), edge.get("metadata") or {})

    # -- reading -----------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        return str(self._nodes[key].get("display_name", key))

    def _reached(self, start: str, depth: int) -> list[str]:
        """Keys within `depth` steps in either direction, nearest first, the start left out."""
        seen = {start: 0}
        waiting = deque([start])
        while waiting:
            key = waiting.popleft()
            if seen[key] < depth:
                for near in (*self._out[key], *self._in[key]):
                    if near not in seen:
                        seen[near] = seen[key] + 1
                        waiting.append(near)
        return list(seen)[1:]

    def get_related(self, entity: str, depth: int = 2) -> list[str]:
        """Display names within `depth` steps in either direction, nearest first."""
        key = entity.lower()
        return [self._name(k) for k in self._reached(key, depth)] if key in self._nodes else []

    def get_subgraph(self, entity: str, depth: int = 2) -> dict[str, Any]:
        """{entity, nodes: [{name, type, key}], edges: [{source, target, type}]} around an entity."""
        key = entity.lower()
        keys = [key, *self._reached(key, depth)] if key in self._nodes else []
        inside = set(keys)
        return {
            "entity": entity,
            "nodes": [
                {"name": self._name(k), "type": self._nodes[k].get("entity_type", GENERAL), "key": k}
                for k in keys
            ],
            "edges": [
                {"source": a, "target": b, "type": kind}
                for a, b, kind in self._edges
                if a in inside and b in inside
            ],
        }

    def get_entities(self, entity_type: str | None = None) -> list[dict[str, Any]]:
        """[{name, type, key, attributes}] of all nodes, or of those of one type."""
        return [
            {
                "name": self._name(key),
                "type": node.get("entity_type", GENERAL),
                "key": key,
                "attributes": {k: v for k, v in node.items() if k not in ("display_name", "entity_type")},
            }
            for key, node in self._nodes.items()
            if not entity_type or node.get("entity_type") == entity_type
        ]

    def get_edges(self, entity: str) -> list[dict[str, Any]]:
        """[{subject, predicate, object, event_date}] of an entity's edges, outgoing ones first."""
        key = entity.lower()
        outgoing = [e for e in self._edges if e[0] == key]
        incoming = [e for e in self._edges if e[1] == key and e[0] != key]
        return [
            {
                "subject": self._name(a),
                "predicate": kind,
                "object": self._name(b),
                "event_date": self._edges[a, b, kind].get("event_date", ""),
            }
            for a, b, kind in (*outgoing, *incoming)
        ]

    def pagerank(self, alpha: float = 0.85) -> dict[str, float]:
        """The PageRank of every node by key; they sum to 1. Kept until the graph changes."""
        ranks = self._ranks.get(alpha)
        if ranks is None:
            ranks = self._ranks[alpha] = self._power(alpha)
        return dict(ranks)

    def _power(self, alpha: float) -> dict[str, float]:
        keys = list(self._nodes)
        if not keys:
            return {}
        place = {key: i for i, key in enumerate(keys)}
        n = len(keys)
        degree = [0] * n
        for a, _, _ in self._edges:
            degree[place[a]] += 1
        links = [(place[a], place[b]) for a, b, _ in self._edges]
        rank = [1.0 / n] * n
        for _ in range(_ROUNDS):
            loose = alpha * sum(rank[i] for i in range(n) if not degree[i]) / n
            fresh = [loose + (1.0 - alpha) / n] * n
            for i, j in links:
                fresh[j] += alpha * rank[i] / degree[i]
            moved = sum(abs(x - y) for x, y in zip(rank, fresh, strict=True))
            rank = fresh
            if moved < n * _TOLERANCE:
                break
        total = sum(rank)
        return {key: rank[i] / total for i, key in enumerate(keys)}

    def graph_stats(self) -> dict[str, Any]:
        """{nodes, edges, types: {type: count}}."""
        types: dict[str, int] = {}
        for node in self._nodes.values():
            kind = node.get("entity_type", GENERAL)
            types[kind] = types.get(kind, 0) + 1
        return {"nodes": len(self._nodes), "edges": len(self._edges), "types": types}

    # -- the file ----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Node-link data."""
        return {
            "directed": True,
            "multigraph": True,
            "graph": {},
            "nodes": [{"id": key, **node} for key, node in self._nodes.items()],
            "edges": [
                {"source": a, "target": b, "key": kind, "relation_type": kind, **data}
                for (a, b, kind), data in self._edges.items()
            ],
        }

    def merge_json(self, data: Mapping[str, Any]) -> None:
        """Take in node-link data; edges stand under "edges" or, as older networkx wrote, under "links"."""
        for raw in data.get("nodes", ()):
            node = dict(raw)
            key = str(node.pop("id"))
            name = str(node.pop("display_name", key))
            self._put(name, node.pop("entity_type", GENERAL), node)
        for raw in data["edges"] if "edges" in data else data.get("links", ()):
            edge = dict(raw)
            source, target = str(edge.pop("source")), str(edge.pop("target"))
            kind = edge.pop("relation_type", None) or edge.get("key") or "RELATED_TO"
            edge.pop("key", None)
            names = [self._name(k) if k in self._nodes else k for k in (source.lower(), target.lower())]
            self._join(names[0], names[1], str(kind), edge)

    def save(self, path: str | Path | None = None) -> None:
        """Write the file, in one step."""
        target = self._path if path is None else Path(path)
        if target is not None:
            replace_text(target, json.dumps(self.to_json(), default=str, indent=2))

    def load(self, path: str | Path | None = None) -> None:
        """Read the file in place of what is here. A damaged one leaves the graph empty and `damaged` says why."""
        target = self._path if path is None else Path(path)
        self._clear()
        self.damaged = None
        if target is None:
            return
        try:
            data = json.loads(target.read_text(encoding="utf-8"))
            self.merge_json(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._clear()
            self.damaged = f"{target} is damaged ({error}); what memories say is rebuilt from them"

    def close(self) -> None:
        """Write the file."""
        self.save()
