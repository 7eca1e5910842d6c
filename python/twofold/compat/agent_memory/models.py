"""Memory and RetrievalResult in Memwright's fields. Times are ISO 8601 strings in UTC with microseconds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from twofold.clock import SystemClock, from_us


def now_text() -> str:
    """The wall clock's instant as Memwright writes it."""
    return SystemClock().now().isoformat(timespec="microseconds")


def instant_text(us: int) -> str:
    """An instant (microseconds) as Memwright writes it: microseconds and "+00:00"."""
    return from_us(us).isoformat(timespec="microseconds")


@dataclass
class Memory:
    """One memory. status: active, superseded or archived; valid_until is None while it holds."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    content: str = ""
    tags: list[str] = field(default_factory=list)
    category: str = "general"
    entity: str | None = None
    namespace: str = "default"
    created_at: str = field(default_factory=now_text)
    event_date: str | None = None
    valid_from: str = field(default_factory=now_text)
    valid_until: str | None = None
    superseded_by: str | None = None
    embedding: list[float] | None = None
    confidence: float = 1.0
    status: str = "active"
    access_count: int = 0
    last_accessed: str | None = None
    content_hash: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def tags_json(self) -> str:
        """The tags as a JSON array."""
        return json.dumps(self.tags)

    def metadata_json(self) -> str:
        """The metadata as a JSON object."""
        return json.dumps(self.metadata)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Memory:
        """A memory from a table row or a dict; absent and null fields take their defaults."""
        given = {f.name: row[f.name] for f in fields(cls) if row.get(f.name) is not None}
        for name in ("tags", "metadata"):
            if isinstance(given.get(name), str):
                given[name] = json.loads(given[name])
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """All fields but the embedding."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "embedding"}


@dataclass
class RetrievalResult:
    """A memory found: match_source is "tag", "graph" or "vector"."""

    memory: Memory
    score: float
    match_source: str

    @property
    def content(self) -> str:
        """The memory's content."""
        return self.memory.content
