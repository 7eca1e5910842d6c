"""A store of Memwright 2.0.x: read as it lies, or copied to a Twofold store. The old files are never changed.

memory.db is enough: vectors and relations are made anew from it. Columns that 2.0.0 and 2.0.1 lack take their
defaults, graph.json may have "edges" or "links", and a damaged one is reported and done without.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.clock import SystemClock
from twofold.compat.agent_memory.graph.entities import FILE_NAME as GRAPH_NAME
from twofold.compat.agent_memory.graph.entities import EntityGraph
from twofold.errors import InvalidInput, NotFound
from twofold.stores import memwright
from twofold.stores.sqlite import FILE_NAME


@dataclass(slots=True)
class Migration:
    """How many memories were read, stored, and known already; those refused, with the reason."""

    read: int = 0
    stored: int = 0
    known: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    graph: str = ""


@dataclass(frozen=True, slots=True)
class OldStore:
    """What lies in a folder of Memwright's: its rows (see `tidy`), its settings, its graph."""

    rows: list[dict[str, Any]]
    config: dict[str, Any]
    graph: EntityGraph


def is_store(folder: str | Path) -> bool:
    """Whether a folder holds a memory.db."""
    return memwright.is_store(Path(folder))


def read(folder: str | Path) -> OldStore:
    """Read a store, changing nothing in its folder. Raises NotFound, StoreCorrupt."""
    folder = Path(folder)
    if not is_store(folder):
        raise NotFound(f"{folder} has no {memwright.DB_NAME}; give the folder of a Memwright store")
    graph = EntityGraph()
    if (folder / GRAPH_NAME).exists():
        graph.load(folder / GRAPH_NAME)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    rows = [tidy(row) for row in memwright.read_rows(folder)]
    return OldStore(rows, config if isinstance(config, dict) else {}, graph)


def tidy(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A row with every column, in the types that Memory has; what is absent or malformed takes its default."""
    row = dict(raw)
    created = row.get("created_at") or SystemClock().now().isoformat(timespec="microseconds")
    content = row.get("content") or ""
    confidence = row.get("confidence")
    status = row.get("status")
    return {
        "id": str(row.get("id") or hashlib.sha256(f"{created}\0{content}".encode()).hexdigest()[:12]),
        "content": content,
        "tags": _strings(row.get("tags")),
        "category": row.get("category") or "general",
        "entity": row.get("entity") or None,
        "namespace": row.get("namespace") or "default",
        "created_at": created,
        "event_date": row.get("event_date"),
        "valid_from": row.get("valid_from") or created,
        "valid_until": row.get("valid_until"),
        "superseded_by": row.get("superseded_by"),
        "confidence": 1.0 if not isinstance(confidence, int | float) else confidence,
        "status": status if status in ("superseded", "archived") else "active",
        "metadata": _mapping(row.get("metadata")),
        "access_count": max(int(row.get("access_count") or 0), 0),
        "last_accessed": row.get("last_accessed"),
    }


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _strings(value: Any) -> list[str]:
    value = _decoded(value)
    if isinstance(value, str):
        value = value.split(",")
    return [s for s in map(str, value or ()) if s.strip()]


def _mapping(value: Any) -> dict[str, Any]:
    value = _decoded(value)
    return dict(value) if isinstance(value, Mapping) else {}


def migrate(source: str | Path, target: str | Path, **options: Any) -> Migration:
    """Copy a Memwright store to a Twofold store in `target`, which may be the same folder.

    options: embedder, clock, as of `AgentMemory`. Ids, times, statuses, uses, namespaces and metadata are kept;
    what cannot be stored (an empty content) is named in the report. Raises InvalidInput if `target` has a
    twofold.db already.
    """
    from twofold.compat.agent_memory.core import AgentMemory

    old = read(source)
    target = Path(target)
    if (target / FILE_NAME).exists():
        raise InvalidInput(f"{target / FILE_NAME} exists already; migrate to another folder")
    target.mkdir(parents=True, exist_ok=True)
    draft = target / f".migrating-{FILE_NAME.removesuffix('.db')}"
    draft.mkdir(exist_ok=True)
    for left in draft.iterdir():
        left.unlink()
    with AgentMemory(draft, old.config, **options) as mem:
        report = mem._load(old.rows, keep_all=True)
    # The database appears in the target complete, or not at all: an interrupted migration starts over.
    (draft / FILE_NAME).replace(target / FILE_NAME)
    for left in draft.iterdir():
        left.unlink()
    draft.rmdir()
    report.graph = old.graph.damaged or f"{old.graph.graph_stats()['nodes']} entities read"
    return report
