"""What is known while a commit is being put together: the index's rows plus those this commit adds."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.clock import OPEN
from twofold.index.closings import Closing
from twofold.index.tenant import NO_EVENT, VISIBILITIES, TenantIndex
from twofold.model import Row


@dataclass(slots=True)
class Known:
    """The facts about one stored row that the write path decides by. Instants in microseconds."""

    ordinal: int
    id: str
    version: int
    namespace: str
    memory_type: str
    visibility: str
    agent_id: str
    key: str | None
    speaker: str | None
    session_id: str | None
    event_at: int | None
    confidence: float
    pinned: bool
    recorded_at: int
    valid_from: int
    valid_to: int
    closed: bool
    erased: bool
    content_hash: str
    frame: str | None
    value: str | None


class Ledger:
    """Looks rows up by id, hash, key and statement frame; sees closings made earlier in the same commit."""

    def __init__(self, index: TenantIndex) -> None:
        self._index = index
        self._seen: dict[int, Known] = {}
        self.rows: dict[int, Row] = {}
        self._by_id: dict[str, list[int]] = {}
        self._by_hash: dict[tuple[str, str], list[int]] = {}
        self._by_key: dict[tuple[str, str], list[int]] = {}
        self._by_frame: dict[tuple[str, str], list[int]] = {}

    def known(self, ordinal: int) -> Known:
        """The row of an ordinal; the same object for the whole commit, so closings stick to it."""
        known = self._seen.get(ordinal)
        if known is None:
            known = self._seen[ordinal] = self._from_index(ordinal)
        return known

    def _from_index(self, o: int) -> Known:
        ix = self._index
        key, speaker, session = int(ix.key[o]), int(ix.speaker[o]), int(ix.session_name[o])
        frame, event_at = int(ix.frame[o]), int(ix.event_at[o])
        lineage = int(ix.lineage[o])
        return Known(
            ordinal=o,
            id=ix.ids.names[lineage],
            version=ix.versions[lineage].index(o) + 1,
            namespace=ix.namespaces.names[ix.namespace[o]],
            memory_type=ix.types.names[ix.type[o]],
            visibility=VISIBILITIES[ix.visibility[o]],
            agent_id=ix.agents.names[ix.agent[o]],
            key=None if key < 0 else ix.keys.names[key],
            speaker=None if speaker < 0 else ix.speakers.names[speaker],
            session_id=None if session < 0 else ix.session_names.names[session],
            event_at=None if event_at == NO_EVENT else event_at,
            confidence=float(ix.confidence[o]),
            pinned=bool(ix.pinned[o]),
            recorded_at=int(ix.recorded[o]),
            valid_from=int(ix.valid_from[o]),
            valid_to=int(ix.valid_to[o]),
            closed=bool(ix.closed[o] or ix.erased[o]),
            erased=bool(ix.erased[o]),
            content_hash=ix.content_hash[o],
            frame=None if frame < 0 else ix.frames.names[frame],
            value=ix.frame_value.get(o),
        )

    def add(self, row: Row, frame: str | None, value: str | None) -> Known:
        """Note a row of this commit."""
        known = self._seen[row.ordinal] = Known(
            row.ordinal,
            row.id,
            row.version,
            row.namespace,
            row.memory_type,
            row.visibility,
            row.agent_id,
            row.key,
            row.speaker,
            row.session_id,
            row.event_at,
            row.confidence,
            row.pinned,
            row.recorded_at,
            row.valid_from,
            OPEN,
            False,
            False,
            row.content_hash,
            frame,
            value,
        )
        self.rows[row.ordinal] = row
        self._by_id.setdefault(row.id, []).append(row.ordinal)
        self._by_hash.setdefault((row.namespace, row.content_hash), []).append(row.ordinal)
        if row.key is not None:
            self._by_key.setdefault((row.namespace, row.key), []).append(row.ordinal)
        if frame is not None:
            self._by_frame.setdefault((row.namespace, frame), []).append(row.ordinal)
        return known

    def versions(self, memory_id: str) -> list[Known]:
        """All versions of a memory, oldest first."""
        lineage = self._index.ids.get(memory_id)
        old = self._index.versions[lineage] if lineage >= 0 else []
        return [self.known(o) for o in (*old, *self._by_id.get(memory_id, ()))]

    def newest(self, memory_id: str) -> Known | None:
        versions = self.versions(memory_id)
        return versions[-1] if versions else None

    def same_hash(self, namespace: str, content_hash: str) -> list[Known]:
        ns = self._index.namespaces.get(namespace)
        old = self._index.by_hash.get((ns, content_hash), ())
        return [self.known(o) for o in (*old, *self._by_hash.get((namespace, content_hash), ()))]

    def same_key(self, namespace: str, key: str) -> list[Known]:
        ix = self._index
        old = ix.by_key.get((ix.namespaces.get(namespace), ix.keys.get(key)), ())
        return [self.known(o) for o in (*old, *self._by_key.get((namespace, key), ()))]

    def same_frame(self, namespace: str, frame: str) -> list[Known]:
        ix = self._index
        old = ix.by_frame.get((ix.namespaces.get(namespace), ix.frames.get(frame)), ())
        return [self.known(o) for o in (*old, *self._by_frame.get((namespace, frame), ()))]

    def closings(self, ordinal: int) -> list[Closing]:
        """Committed closing events of a row that no restore has voided."""
        ix = self._index
        return [c for c in ix.closings.get(ordinal, ()) if c.seq not in ix.voids]
