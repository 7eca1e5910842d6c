"""Memwright's view of a tenant: which rows there are for a handle at a moment, and what they are in its fields."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from twofold.access import Principal
from twofold.clock import OPEN, to_us
from twofold.compat.agent_memory.graph.entities import EntityGraph
from twofold.compat.agent_memory.graph.extractor import extract_entities_and_relations
from twofold.compat.agent_memory.models import Memory, instant_text
from twofold.compat.agent_memory.retrieval.tag_matcher import STOP_WORDS
from twofold.entities import entity_key
from twofold.errors import InvalidInput
from twofold.index.tenant import NO_EVENT
from twofold.lookup import When, memories, reader, view_at
from twofold.model import Memory as Stored
from twofold.retrieve import vector
from twofold.retrieve.profile import profile_of
from twofold.vault import Vault

# What Memwright knows of a memory and a Twofold row has no column for lies under this key of its metadata:
# the one entity it is about, its event date as it was written, and when an imported memory was first stored.
OURS: Final = "_memwright"
ACTIVE, SUPERSEDED, ARCHIVED = STATUSES = ("active", "superseded", "archived")

Ordinals = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def lenient_us(value: Any, name: str) -> int:
    """Microseconds of an instant in ISO 8601; without a zone it is in UTC, as all of Memwright's times are."""
    text = value.strip() if isinstance(value, str) else value
    try:
        return to_us(text, name=name)
    except InvalidInput:
        try:
            return to_us(f"{text}+00:00" if isinstance(text, str) else text, name=name)
        except InvalidInput:
            raise InvalidInput(
                f"{name} {value!r} is not ISO 8601; write 2026-03-12T10:30:00Z or 2026-03-12"
            ) from None


def known_us(value: str | None) -> int | None:
    """As `lenient_us`; None for what names no instant."""
    try:
        return None if not value else lenient_us(value, "event_date")
    except InvalidInput:
        return None


def ours_of(metadata: str) -> dict[str, Any]:
    """Memwright's own fields in a row's metadata (JSON)."""
    found: dict[str, Any] = json.loads(metadata).get(OURS, {}) if f'"{OURS}"' in metadata else {}
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """Where and when a read looks: namespace patterns, and the two times (None: now)."""

    patterns: tuple[str, ...]
    when: When


class Rows:
    """The rows one principal may see in some namespaces at one moment."""

    def __init__(self, vault: Vault, principal: Principal, asked: Asked, memo: Memo) -> None:
        self.vault = vault
        self.tenant = principal.tenant
        self.index = vault.index(principal.tenant)
        self.when = asked.when
        self._memo = memo
        memo.follow(len(self.index.erasures))
        with self.index.lock:
            self.view = view_at(self.index, asked.when)
            self.reach = reader(principal, asked.patterns)
            self.scope = self.index.scope_mask(self.reach, self.view.rows)
        self.at = max(self.when.now, self.view.recorded_at) if self.when.as_of is None else self.when.as_of

    # -- which rows --------------------------------------------------------------------------------

    def mask(self, status: str | None) -> Mask:
        """Rows of a status: bool (rows,). None for all three; one row a memory, its newest version."""
        rows = self.view.rows
        ended = self.view.valid_to <= self.at
        known: Mask = self.scope & ~self.view.closed
        if self.when.as_of is not None:
            known &= self.index.valid_from.view(rows) <= self.when.as_of
        if status == ACTIVE:
            known &= ~ended
            return known
        if status == SUPERSEDED:
            known &= ended
            return known
        gone: Mask = self.scope & self.view.closed
        for ordinal in np.flatnonzero(gone).tolist():
            versions = self.index.versions[int(self.index.lineage[ordinal])]
            gone[ordinal] = ordinal == max(v for v in versions if v < rows)
        if status != ARCHIVED:
            gone |= known
        return gone

    def ordinals(
        self,
        status: str | None = None,
        category: str | None = None,
        entity: str | None = None,
        after: str | None = None,
        before: str | None = None,
    ) -> list[int]:
        """Rows that pass, newest first. after, before: instants that created_at is compared with, inclusive."""
        if status is not None and status not in STATUSES:
            raise InvalidInput(f"status must be {', '.join(STATUSES)} or None, not {status!r}")
        with self.index.lock:
            mask = self.mask(status)
            if category:
                mask = mask & (self.index.type.view(self.view.rows) == self.index.types.get(category))
            found = np.flatnonzero(mask)
            if entity:
                about = self.index.entity_rows(entity)
                found = found[np.isin(found, about)]
            out = found.tolist()
            if entity:
                key = entity_key(entity)
                out = [o for o in out if entity_key(self.entity_of(o) or "") == key]
            low = None if after is None else lenient_us(after, "after")
            high = None if before is None else lenient_us(before, "before")
            if low is not None or high is not None:
                out = [
                    o
                    for o in out
                    if (low is None or self.created(o) >= low) and (high is None or self.created(o) <= high)
                ]
            return sorted(out, key=lambda o: (-self.created(o), -o))

    def created(self, ordinal: int) -> int:
        """When a memory was first stored, in microseconds."""
        known = self._memo.created.get(ordinal)
        if known is None:
            first = self.index.versions[int(self.index.lineage[ordinal])][0]
            given = known_us(self._ours(ordinal).get("created_at"))
            known = int(self.index.recorded[first]) if given is None else given
            self._memo.created[ordinal] = known
        return known

    def _ours(self, ordinal: int) -> dict[str, Any]:
        return ours_of(self.index.metadata[ordinal])

    def entity_of(self, ordinal: int) -> str | None:
        """The entity a memory is about; of one that Memwright's API did not write, the first it names."""
        metadata = self.index.metadata[ordinal]
        if f'"{OURS}"' in metadata:
            found: str | None = self._ours(ordinal).get("entity")
            return found
        codes = self.index.row_entities[ordinal]
        return self.index.entities.names[codes[0]] if codes else None

    def dated(self, ordinal: int) -> int:
        """What a timeline orders by: when it happened, or else when it was stored."""
        happened = int(self.index.event_at[ordinal])
        return self.created(ordinal) if happened == NO_EVENT else happened

    # -- candidates of a recall --------------------------------------------------------------------

    def tagged(self, tags: Sequence[str], category: str | None = None) -> list[int]:
        """Active rows with one of the tags, newest first: "order-service" by itself or by order and service both."""
        wanted = {t.lower() for t in tags}
        with self.index.lock:
            codes = [c for c, name in enumerate(self.index.tags.names) if self._memo.means(name, wanted)]
            if not codes:
                return []
            mask = self.mask(ACTIVE)
            kind = None if not category else self.index.types.get(category)
            rows = {
                int(o)
                for code in codes
                for o in self.index.tag_rows(self.index.tags.names[code])
                if o < self.view.rows and mask[o]
            }
            kept = [o for o in rows if kind is None or int(self.index.type[o]) == kind]
        return sorted(kept, key=lambda o: (-self.created(o), -o))

    def nearest(
        self, query: npt.NDArray[np.float32], limit: int, mask: Mask | None = None
    ) -> list[tuple[int, float]]:
        """(ordinal, cosine) of the rows nearest to a vector, best first; the mask comes before the limit."""
        with self.index.lock:
            generation = self.vault.check_embedder(self.index)
            part = None if generation is None else self.index.vectors.get(generation.number)
            chosen = self.mask(ACTIVE) if mask is None else mask
            profile = profile_of({"depth": max(limit, 1)})
            found = vector.search(self.view, part, chosen, query, profile)
        pairs = zip(found.ordinals.tolist(), found.scores.tolist(), strict=True)
        return [(int(o), float(s)) for o, s in pairs][:limit]

    def graph(self) -> EntityGraph:
        """What the active memories say about entities, in the order they were stored."""
        with self.index.lock:
            rows = np.flatnonzero(self.mask(ACTIVE)).tolist()
            rows.sort(key=lambda o: (self.created(o), o))
            key = (self.reach, self.view.seq, tuple(rows))
            if self._memo.graph_key == key and self._memo.graph is not None:
                return self._memo.graph
        graph = EntityGraph()
        unread = [o for o in rows if o not in self._memo.said]
        for start in range(0, len(unread), 500):
            chunk = unread[start : start + 500]
            for ordinal, row in zip(chunk, self.vault.store.rows(self.tenant, chunk), strict=True):
                self._memo.said[ordinal] = extract_entities_and_relations(
                    row.content, row.tags, self.entity_of(ordinal), row.memory_type
                )
        for ordinal in rows:
            graph.absorb(*self._memo.said[ordinal])
        self._memo.graph_key, self._memo.graph = key, graph
        return graph

    # -- what they are -----------------------------------------------------------------------------

    def memories(self, ordinals: Sequence[int]) -> list[Memory]:
        """Rows in Memwright's fields, in the order given. Uses not yet committed are counted."""
        with self.index.lock:
            stored = memories(self.vault, self.tenant, self.view, list(ordinals), self.when.now)
            waiting = self._waiting()
            return [self._memory(s, waiting) for s in stored]

    def find(self, memory_id: str) -> Memory | None:
        """A memory by id as it was at this moment; None when it is not among these rows."""
        with self.index.lock:
            lineage = self.index.ids.get(memory_id)
            versions = [] if lineage < 0 else [v for v in self.index.versions[lineage] if v < self.view.rows]
            if not versions or not self.scope[versions[-1]]:
                return None
        return self.memories(versions[-1:])[0]

    def _waiting(self) -> dict[int, tuple[int, int]]:
        """Lineage -> (uses, last one) of the recalls that are not in the log yet."""
        pending = list(self.vault._accesses.get(self.tenant, ()))
        counts = Counter(int(self.index.lineage[o]) for o, _ in pending)
        last: dict[int, int] = {}
        for o, at in pending:
            lineage = int(self.index.lineage[o])
            last[lineage] = max(at, last.get(lineage, at))
        return {lineage: (n, last[lineage]) for lineage, n in counts.items()}

    def _memory(self, stored: Stored, waiting: Mapping[int, tuple[int, int]]) -> Memory:
        ordinal = stored.ordinal
        ours = dict(stored.metadata.get(OURS, {}))
        ended = None if stored.valid_to is None else to_us(stored.valid_to)
        status = ACTIVE
        if stored.closed_at is not None:
            status = ARCHIVED
            ended = to_us(stored.closed_at) if ended is None else ended
        elif ended is not None and ended <= self.at:
            status = SUPERSEDED
        more, last = waiting.get(int(self.index.lineage[ordinal]), (0, -OPEN))
        used = -OPEN if stored.last_accessed_at is None else to_us(stored.last_accessed_at)
        event = None if stored.event_date is None else instant_text(to_us(stored.event_date))
        return Memory(
            id=stored.id,
            content=stored.content,
            tags=list(stored.tags),
            category=stored.memory_type,
            entity=self.entity_of(ordinal),
            namespace=stored.namespace,
            created_at=instant_text(self.created(ordinal)),
            event_date=ours.get("event_date", event),
            valid_from=instant_text(to_us(stored.valid_from)),
            valid_until=None if ended is None else instant_text(ended),
            superseded_by=stored.superseded_by,
            confidence=ours.get("confidence", stored.confidence),
            status=status,
            access_count=stored.access_count + more,
            last_accessed=None if max(used, last) == -OPEN else instant_text(max(used, last)),
            content_hash=stored.content_hash,
            metadata={k: v for k, v in stored.metadata.items() if k != OURS},
        )


class Memo:
    """What was computed from rows, which never change; shared by the handles of one store."""

    def __init__(self) -> None:
        self._erasures = 0
        self._words: dict[str, frozenset[str]] = {}
        self.created: dict[int, int] = {}
        self.said: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
        self.graph_key: Any = None
        self.graph: EntityGraph | None = None

    def follow(self, erasures: int) -> None:
        """Forget everything after an erasure: nothing of what is gone may stay."""
        if erasures != self._erasures:
            self._erasures = erasures
            self._words, self.created, self.said = {}, {}, {}
            self.graph_key = self.graph = None

    def means(self, tag: str, wanted: set[str]) -> bool:
        """Whether a tag is among the wanted words (lower-case), whole or with every word of it."""
        parts = self._words.get(tag)
        if parts is None:
            lower = tag.lower()
            words = re.findall(r"\w+", lower)
            parts = frozenset(w for w in words if len(w) > 1 and w not in STOP_WORDS) or frozenset({lower})
            self._words[tag] = parts
        return tag.lower() in wanted or parts <= wanted
