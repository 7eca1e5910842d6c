"""One tenant's view in RAM: columns by ordinal over the compiled lexicon, graph and vectors.

Fed by sequence number with what stores report (`apply`), never by reading a store itself. Rows are only
appended; closings change the head's intervals in place, and `View` recomputes them for an earlier prefix.
"""

from __future__ import annotations

import functools
import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.access import Reach
from twofold.clock import OPEN
from twofold.entities import entity_key
from twofold.errors import StoreCorrupt
from twofold.index.closings import Closing, Closings
from twofold.index.columns import Codes, Column, Digests, Groups, Pairs, Ragged, Sparse, Texts
from twofold.index.filters import Filters
from twofold.index.pushed import PushedGraph, PushedLexicon, Serving
from twofold.index.stored import StoredTokens
from twofold.model import TRAIT_ASKS, Changes, Event, Generation, IndexRow, Kind, Vectors
from twofold.text import TagMatcher

if TYPE_CHECKING:
    from twofold.index.ann import VectorGraph
    from twofold.index.fetched import FetchedPart

NO_EVENT = -OPEN
VISIBILITIES = ("public", "team", "private")
ROLES = ("", "user", "assistant", "tool", "system")
_WRITES = {Kind.ADD, Kind.UPDATE, Kind.FORGET, Kind.RESTORE, Kind.LINK, Kind.FLAG}

Mask = npt.NDArray[np.bool_]
Edge = tuple[int, int, float, int]  # node, node, weight, seq


class VectorPart:
    """The vectors of one embedding generation, with the row and the span each belongs to."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.index = _core.VectorIndex(generation.dimension)
        self.ordinals = Column(np.int64)
        self.starts = Column(np.int64)
        self.stops = Column(np.int64)
        # Token codes of late interaction: one code is `code_words` words; a vector without has start == stop.
        self.code_words = generation.dimension // 64 if generation.dimension % 64 == 0 else 0
        # Where they lie: the first ones in a file, if so, the others (or all) in RAM. Replaced as a whole.
        self._tokens: tuple[StoredTokens | None, Column] = (None, Column(np.uint64))
        self.code_starts = Column(np.int64)
        self.code_stops = Column(np.int64)
        self.one_per_row = True  # row number == vector number, so masks need no gather
        self.ann: VectorGraph | None = None  # proposes candidates, where approximate search is asked for
        self.ann_sought = False  # whether its file was looked for

    def add(self, vectors: Vectors) -> None:
        if len(vectors) == 0:
            return
        before = len(self.ordinals)
        self.index.add(np.ascontiguousarray(vectors.data, np.float32))
        self.ordinals.extend(vectors.ordinals)
        self.starts.extend(vectors.starts)
        self.stops.extend(vectors.stops)
        self._add_codes(vectors.codes)
        if self.one_per_row:
            expected = np.arange(before, before + len(vectors), dtype=np.int64)
            self.one_per_row = bool(np.array_equal(vectors.ordinals, expected))

    def _add_codes(self, codes: Sequence[bytes]) -> None:
        width = 8 * self.code_words
        if not width or not any(codes):
            codes = [b""] * len(codes)
        lengths = np.array([len(c) for c in codes], np.int64)
        if width and (lengths % width).any():
            raise StoreCorrupt(f"token codes are not whole codes of {width} bytes; run `twofold doctor`")
        stored, here = self._tokens
        before = (0 if stored is None else stored.count) + len(here) // max(self.code_words, 1)
        ends = before + np.cumsum(lengths // width if width else lengths)
        self.code_starts.extend(ends - (lengths // width if width else lengths))
        self.code_stops.extend(ends)
        here.extend(np.frombuffer(b"".join(codes), np.uint64))

    @property
    def codes(self) -> npt.NDArray[np.uint64]:
        """All token codes, uint64 (T, code_words); vector v owns [code_starts[v], code_stops[v])."""
        words = max(self.code_words, 1)
        if self._tokens[0] is None:
            return self._tokens[1].view().reshape(-1, words)
        return self.token_rows(np.arange(len(self.ordinals), dtype=np.int64))[0]

    def token_rows(
        self, vectors: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Token codes that include those of these vectors, and where those of each begin and end in them."""
        starts, stops = self.code_starts.view()[vectors], self.code_stops.view()[vectors]
        stored, here = self._tokens
        words = max(self.code_words, 1)
        if stored is None:
            return here.view().reshape(-1, words), starts, stops
        in_ram = here.view()
        parts = []
        try:
            for vector, start, stop in zip(vectors.tolist(), starts.tolist(), stops.tolist(), strict=True):
                if start >= stored.count:
                    first = start - stored.count
                    parts.append(in_ram[first * words : (stop - stored.count) * words].tobytes())
                elif stop > start:
                    parts.append(stored.of(vector, start, stop))
        except _core.Damaged:
            whole = Column(np.uint64)
            whole.extend(np.concatenate((stored.repair(), in_ram)))
            self._tokens = (None, whole)
            return self.token_rows(vectors)
        ends = np.cumsum(stops - starts)
        return np.frombuffer(b"".join(parts), np.uint64).reshape(-1, words), ends - (stops - starts), ends

    def erase(self, ordinals: Sequence[int]) -> None:
        rows = np.flatnonzero(np.isin(self.ordinals.view(), np.asarray(ordinals, np.int64)))
        if len(rows):
            self.index.erase(rows.astype(np.int64))
            stored, here = self._tokens
            base = 0 if stored is None else stored.count
            codes = here.view().reshape(-1, max(self.code_words, 1))
            for row in rows.tolist():
                start = self.code_starts[row] - base
                if start >= 0:
                    codes[start : self.code_stops[row] - base] = 0
                self.code_stops[row] = self.code_starts[row]

    def prefix(self, rows: int) -> int:
        """How many vectors belong to ordinals below `rows`."""
        return int(np.searchsorted(self.ordinals.view(), rows, "left"))

    def single(self, ordinals: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Mask]:
        """The first vector of each ordinal, and whether it is its only one; 0 and False where it has none."""
        if self.one_per_row:
            has = ordinals < len(self.ordinals)
            return (ordinals if has.all() else np.where(has, ordinals, 0)), has
        first, last = self.rows_of(ordinals)
        one = last - first == 1
        return np.where(one, first, 0), one

    def rows_of(self, ordinals: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First and one-past-last vector number of each ordinal."""
        all_ = self.ordinals.view()
        return np.searchsorted(all_, ordinals, "left"), np.searchsorted(all_, ordinals, "right")


class TenantIndex:
    """Columns and compiled indexes of one tenant, at the head its store reported last."""

    def __init__(self, tenant: str, serving: Serving | None = None) -> None:
        """serving: a store that searches words and relations itself; the view then goes without theirs."""
        self.tenant = tenant
        self.serving = serving
        self.lock = threading.RLock()
        self.seq = 0
        self.head_hash = b""  # of the event at seq; b"" where it is not known (a view read from its file)
        self.recorded_at = 0
        self.rows = 0
        self.namespaces, self.types, self.keys, self.frames = Codes(), Codes(), Codes(), Codes()
        self.speakers, self.agents, self.session_names, self.sessions = Codes(), Codes(), Codes(), Codes()
        self.ids, self.tags, self.entities, self.terms = Codes(), Codes(), Codes(), Codes()
        self.row_seq = Column(np.int64)
        self.namespace = Column(np.int32)
        self.type = Column(np.int32)
        self.lineage = Column(np.int32)  # code of the id: versions of one memory share it
        self.key = Column(np.int32)
        self.frame = Column(np.int32)  # code of [entity, attribute]
        self.speaker = Column(np.int32)
        self.agent = Column(np.int32)
        self.session_name = Column(np.int32)
        self.session = Column(np.int64)  # code of (namespace, session); -1 without one
        self.role = Column(np.int8)
        self.has_role = Column(np.bool_)
        self.visibility = Column(np.int8)
        self.confidence = Column(np.float64)
        self.pinned = Column(np.bool_)
        self.erased = Column(np.bool_)
        self.event_at = Column(np.int64)  # NO_EVENT when unknown
        self.recorded = Column(np.int64)
        self.valid_from = Column(np.int64)
        self.valid_to = Column(np.int64)  # head
        self.closed = Column(np.bool_)  # head
        self.tokens = Column(np.int32)
        self.asks = Column(np.bool_)  # ends with a question mark
        self.previous = Column(np.int64)  # neighbouring row of the same session, -1 at an end
        self.next = Column(np.int64)
        self.versions = Groups()  # lineage -> ordinals
        self.metadata = Texts()
        self.content_hash = Texts()
        self.by_hash = Digests(self.namespace, self.content_hash)
        self.by_key, self.by_frame = Pairs(), Pairs()  # of a namespace and a key or frame
        self.frame_value = Sparse()
        self.row_tags, self.row_entities = Ragged(), Ragged()
        self.tag_groups, self.entity_groups = Groups(), Groups()  # code -> ordinals
        self.session_last = Column(np.int64)  # by code of a session: its last row
        self.tag_matcher = TagMatcher()
        self.closings = Closings()  # voided ones too
        self.voids: dict[int, int] = {}  # seq of a closing -> seq of the restore
        self.links: list[tuple[int, int, int, str, float]] = []  # seq, lineage, lineage, relation, weight
        self.access_lineage = Column(np.int32)
        self.access_time = Column(np.int64)
        self.access_seq = Column(np.int64)
        self.access_recorded = Column(np.int64)
        self.last_access_time = -OPEN
        self.access_count = Column(np.int64)  # head, by lineage
        self.access_last = Column(np.int64)
        self.event_time = Column(np.int64)  # recorded_at of seq n at n - 1; never decreases
        self.writes_by_agent: dict[str, int] = {}
        self.erasures: list[tuple[int, int]] = []  # (seq of the erase event, namespace code)
        self.feedback: list[tuple[int, str]] = []
        self.flags: list[tuple[int, int, str]] = []
        # nodes of the graph: 2 * lineage for a memory, 2 * code + 1 for an entity
        if serving is None:
            self.lexicon, self.graph = _core.Lexicon(), _core.Graph()
        else:
            self.lexicon = cast(_core.Lexicon, PushedLexicon(self, serving))
            self.graph = cast(_core.Graph, PushedGraph(self, serving))
        self.fetched: FetchedPart | None = None  # of a store that searches: what was fetched and is kept
        self.edge_seq = Column(np.int64)
        self.edge_src = Column(np.uint32)
        self.edge_dst = Column(np.uint32)
        self.edge_weight = Column(np.float32)
        self.generations: list[Generation] = []
        self.vectors: dict[int, VectorPart] = {}
        self._masks: OrderedDict[Any, Mask] = OrderedDict()
        self._views: OrderedDict[int, View] = OrderedDict()

    # -- feeding -----------------------------------------------------------------------------------

    def apply(self, changes: Changes) -> None:
        """Take in what the log gained. Vectors follow separately through `add_vectors`."""
        with self.lock:
            self._check_continues(changes)
            self.generations = list(changes.generations)
            edges = self._append_rows(changes.rows)
            for event in changes.events:
                self._apply_event(event, edges)
            # In the order of the log, however much of it came at once: a prefix of the edges is one of the log.
            self._add_edges(sorted(edges, key=lambda edge: edge[3]))
            if changes.erased:
                self._erase(changes.erased)
            self.seq = changes.head.seq
            self.head_hash = changes.head.hash
            self.recorded_at = changes.head.recorded_at
            self._views.clear()
            if len(self._masks) > 64:
                self._masks.clear()

    def _check_continues(self, changes: Changes) -> None:
        if changes.events and changes.events[0].seq != self.seq + 1:
            raise StoreCorrupt(
                f"the log of tenant {self.tenant!r} jumps from {self.seq} to {changes.events[0].seq}; "
                "run `twofold doctor`"
            )
        if changes.rows and changes.rows[0].ordinal != self.rows:
            raise StoreCorrupt(
                f"the rows of tenant {self.tenant!r} jump from {self.rows} to {changes.rows[0].ordinal}; "
                "run `twofold doctor`"
            )

    def _append_rows(self, rows: Sequence[IndexRow]) -> list[Edge]:
        edges: list[Edge] = []
        if not rows:
            return edges
        term_ids: array[int] = array("I")
        counts: array[float] = array("f")
        offsets: array[int] = array("q", [0])
        add_term = self.terms.add
        for row in rows:
            if row.lexemes:
                for term, count in json.loads(row.lexemes).items():
                    term_ids.append(add_term(term))
                    counts.append(count)
            offsets.append(len(term_ids))
        self.lexicon.add(
            np.frombuffer(term_ids, np.uint32) if term_ids else np.zeros(0, np.uint32),
            np.frombuffer(counts, np.float32) if counts else np.zeros(0, np.float32),
            np.frombuffer(offsets, np.int64),
        )
        for row in rows:
            self._append_row(row, edges)
        return edges

    def _append_row(self, row: IndexRow, edges: list[Edge]) -> None:
        ordinal = row.ordinal
        namespace = self.namespaces.add(row.namespace)
        lineage = self.ids.add(row.id)
        if lineage == len(self.access_count):
            self.access_count.append(0)
            self.access_last.append(-OPEN)
        self.row_seq.append(row.seq)
        self.namespace.append(namespace)
        self.type.append(self.types.add(row.memory_type))
        self.lineage.append(lineage)
        key = -1 if row.key is None else self.keys.add(row.key)
        self.key.append(key)
        if key >= 0:
            self.by_key.put(namespace, key, ordinal)
        frame = -1
        if row.frame:
            entity, attribute, value = json.loads(row.frame)
            frame = self.frames.add(f"{entity}\x1f{attribute}")
            self.frame_value[ordinal] = value
            self.by_frame.put(namespace, frame, ordinal)
        self.frame.append(frame)
        self.speaker.append(-1 if row.speaker is None else self.speakers.add(row.speaker))
        self.agent.append(self.agents.add(row.agent_id))
        self.confidence.append(row.confidence)
        self.pinned.append(row.pinned)
        self.erased.append(row.erased)
        self.visibility.append(VISIBILITIES.index(row.visibility))
        role = ""
        if '"role"' in row.metadata:
            role = json.loads(row.metadata).get("role", "")
        self.role.append(ROLES.index(role) if role in ROLES else 0)
        self.has_role.append(self.role[ordinal] > 0)
        self.event_at.append(NO_EVENT if row.event_at is None else row.event_at)
        self.recorded.append(row.recorded_at)
        self.valid_from.append(row.valid_from)
        self.valid_to.append(OPEN)
        self.closed.append(False)
        self.tokens.append(row.tokens)
        self.asks.append(bool(row.traits & TRAIT_ASKS))
        self.metadata.append(row.metadata)
        self.content_hash.append(row.content_hash)
        if not row.erased:
            self.by_hash.put(namespace, row.content_hash, ordinal)
        self._place_in_session(row, ordinal, namespace, self.versions.get(lineage))
        self.versions.add(lineage, ordinal)
        tags = tuple(self._add_tag(t, ordinal) for t in row.tags)
        entities = tuple(self._add_entity(e, ordinal) for e in row.entities)
        self.row_tags.append(tags)
        self.row_entities.append(entities)
        for entity in dict.fromkeys(entities):
            edges.append((2 * lineage, 2 * entity + 1, 1.0, row.seq))
        self.rows = ordinal + 1

    def _place_in_session(self, row: IndexRow, ordinal: int, namespace: int, versions: Sequence[int]) -> None:
        if row.session_id is None:
            self.session_name.append(-1)
            self.session.append(-1)
            self.previous.append(-1)
            self.next.append(-1)
            return
        self.session_name.append(self.session_names.add(row.session_id))
        session = self.sessions.add(f"{namespace}\x1f{row.session_id}")
        self.session.append(session)
        if session == len(self.session_last):
            self.session_last.append(-1)
        if versions and self.session[versions[-1]] == session:
            # A corrected turn stands where the turn it corrects stood.
            old = versions[-1]
            self.previous.append(self.previous[old])
            self.next.append(self.next[old])
            if self.session_last[session] == old:
                self.session_last[session] = ordinal
            return
        last = int(self.session_last[session])
        self.previous.append(last)
        self.next.append(-1)
        if last >= 0:
            self.next[last] = ordinal
        self.session_last[session] = ordinal

    def _add_tag(self, tag: str, ordinal: int) -> int:
        code = self.tags.get(tag)
        if code < 0:
            code = self.tags.add(tag)
            self.tag_matcher.add(tag)
        self.tag_groups.add(code, ordinal)
        return code

    def _add_entity(self, name: str, ordinal: int) -> int:
        code = self.entities.add(entity_key(name))
        if self.entity_groups.last(code) != ordinal:
            self.entity_groups.add(code, ordinal)
        return code

    def _add_edges(self, edges: Sequence[Edge]) -> None:
        if not edges:
            return
        src, dst, weight, seq = zip(*edges, strict=True)
        self.graph.add_edges(np.array(src, np.uint32), np.array(dst, np.uint32), np.array(weight, np.float32))
        self.edge_seq.extend(seq)
        if self.serving is None:
            self.edge_src.extend(src)
            self.edge_dst.extend(dst)
            self.edge_weight.extend(weight)

    def _apply_event(self, event: Event, edges: list[Edge]) -> None:
        kind = event.kind
        self.event_time.append(event.at)
        if kind in _WRITES:
            self.writes_by_agent[event.agent_id] = self.writes_by_agent.get(event.agent_id, 0) + 1
        if kind == Kind.ADD or not event.payload:
            return
        data = json.loads(event.payload)
        if kind == Kind.UPDATE:
            self._close(Closing(event.seq, data["closes"], "known", event.at, None, kind, "update"))
        elif kind == Kind.SUPERSEDE:
            assert event.ordinal is not None
            self._close(
                Closing(event.seq, event.ordinal, "valid", data["at"], data["by"], kind, data["rule"])
            )
            if data.get("alone"):
                self.writes_by_agent[event.agent_id] = self.writes_by_agent.get(event.agent_id, 0) + 1
        elif kind in (Kind.FORGET, Kind.ARCHIVE):
            assert event.ordinal is not None
            self._close(
                Closing(event.seq, event.ordinal, "known", event.at, None, kind, data.get("rule", ""))
            )
        elif kind == Kind.RESTORE:
            for seq in data["voids"]:
                self.voids[seq] = event.seq
            assert event.ordinal is not None
            self._settle(event.ordinal)
        elif kind == Kind.LINK:
            a, b = self.ids.get(data["a"]), self.ids.get(data["b"])
            weight = float(data["weight"])
            self.links.append((event.seq, a, b, data["relation"], weight))
            edges.append((2 * a, 2 * b, weight, event.seq))
        elif kind == Kind.ACCESS:
            self._apply_access(event, data)
        elif kind == Kind.FEEDBACK:
            self.feedback.append((event.seq, event.payload))
        elif kind == Kind.FLAG:
            self.flags.append((event.seq, -1 if event.ordinal is None else event.ordinal, data["reason"]))
        elif kind == Kind.ERASE:
            for name in data.get("namespaces", ()):
                self.erasures.append((event.seq, self.namespaces.add(name)))

    def _apply_access(self, event: Event, data: Mapping[str, Any]) -> None:
        times = np.array(data["t"], np.int64)
        lineages = self.lineage.view()[np.array(data["o"], np.int64)]
        np.add.at(self.access_count.view(), lineages, 1)
        np.maximum.at(self.access_last.view(), lineages, times)
        self.access_lineage.extend(lineages)
        self.access_time.extend(times)
        self.access_seq.extend(np.full(len(times), event.seq))
        self.access_recorded.extend(np.full(len(times), event.at))
        if len(times):
            self.last_access_time = max(self.last_access_time, int(times.max()))

    def _close(self, closing: Closing) -> None:
        self.closings.add(closing)
        self._settle(closing.ordinal)

    def _settle(self, ordinal: int) -> None:
        """The head's interval of a row: the earliest end that no restore has voided."""
        valid_to, closed = OPEN, False
        for c in self.closings.get(ordinal, ()):
            if c.seq in self.voids:
                continue
            if c.axis == "valid":
                valid_to = min(valid_to, c.at)
            else:
                closed = True
        self.valid_to[ordinal] = valid_to
        self.closed[ordinal] = closed

    def _erase(self, ordinals: Sequence[int]) -> None:
        gone = np.asarray([o for o in ordinals if o < self.rows], np.int64)
        self.lexicon.erase(gone)
        for part in self.vectors.values():
            part.erase(ordinals)
        for ordinal in gone.tolist():
            self.erased[ordinal] = True
            self.content_hash[ordinal] = ""
            self.metadata[ordinal] = "{}"
            self.frame_value.remove(ordinal)
        # Names that only erased rows used must not be recoverable from the gazetteer or the tag matcher,
        # and edges of erased rows must not rank anything: rebuilding is rare and leaves nothing behind.
        self._masks.clear()
        self.needs_rebuild = True

    needs_rebuild = False

    def add_vectors(self, vectors: Vectors) -> None:
        """Vectors of one generation, continuing what was added before."""
        with self.lock:
            self.part(vectors.generation).add(vectors)

    def part(self, number: int) -> VectorPart:
        """The vectors of a generation (empty until fed)."""
        part = self.vectors.get(number)
        if part is None:
            generation = next(g for g in self.generations if g.number == number)
            part = self.vectors[number] = VectorPart(generation)
        return part

    # -- looking up --------------------------------------------------------------------------------

    def tag_rows(self, tag: str) -> npt.NDArray[np.int64]:
        """Ordinals of rows with exactly this tag, ascending."""
        return self.tag_groups.array(self.tags.get(tag))

    def entity_rows(self, name: str) -> npt.NDArray[np.int64]:
        """Ordinals of rows about this entity, ascending."""
        return self.entity_rows_of(self.entities.get(entity_key(name)))

    def entity_rows_of(self, code: int) -> npt.NDArray[np.int64]:
        return self.entity_groups.array(code)

    def metadata_of(self, ordinal: int) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.metadata[ordinal])
        return loaded

    def current_generation(self, seq: int | None = None) -> Generation | None:
        """The embedding generation in force at a sequence number (default: the head)."""
        seq = self.seq if seq is None else seq
        best: Generation | None = None
        for g in self.generations:
            if g.seq is not None and g.seq <= seq and (best is None or g.seq > best.seq):  # type: ignore[operator]
                best = g
        return best

    def live(self, ordinal: int) -> bool:
        """Whether a row is part of what is known now (neither erased nor closed in transaction time)."""
        return not self.erased[ordinal] and not self.closed[ordinal]

    def newest(self, memory_id: str) -> int | None:
        """Ordinal of the newest version of a memory."""
        lineage = self.ids.get(memory_id)
        return None if lineage < 0 else self.versions[lineage][-1]

    def scope_mask(self, reach: Reach, rows: int) -> Mask:
        """Rows below `rows` that the reach may see, erased ones left out; bool (rows,). Cached."""
        cache_key = ("scope", reach, rows, len(self.erasures))
        mask = self._masks.get(cache_key)
        if mask is None:
            readable = np.array([reach.namespace(n) for n in self.namespaces.names] or [False], np.bool_)
            types = np.array([reach.type(t) for t in self.types.names] or [False], np.bool_)
            mask = readable[self.namespace.view(rows)] & types[self.type.view(rows)]
            visibility = self.visibility.view(rows)
            if visibility.any():
                mine = self.agent.view(rows) == self.agents.get(reach.principal.agent_id)
                team = np.array([reach.team(n) for n in self.namespaces.names], np.bool_)
                mask &= (visibility != 1) | mine | team[self.namespace.view(rows)]
                if not reach.sees_private:
                    mask &= (visibility != 2) | mine
            mask &= ~self.erased.view(rows)
            mask.setflags(write=False)
            self._masks[cache_key] = mask
            if len(self._masks) > 64:
                self._masks.popitem(last=False)
        return mask

    def filter_mask(self, filters: Filters, rows: int) -> Mask | None:
        return filters.mask(self, rows)

    def view(self, seq: int | None = None) -> View:
        """What the log says up to a sequence number (default: the head)."""
        with self.lock:
            seq = self.seq if seq is None else seq
            view = self._views.get(seq)
            if view is None:
                view = self._views[seq] = View(self, seq)
                if len(self._views) > 8:
                    self._views.popitem(last=False)
            return view

    def seq_known_at(self, at: int) -> int:
        """The last seq recorded at or before an instant; 0 when nothing was."""
        with self.lock:
            return int(np.searchsorted(self.event_time.view(), at, "right"))


class View:
    """A prefix of the log: the rows recorded up to `seq`, with their intervals as they stood then."""

    def __init__(self, index: TenantIndex, seq: int) -> None:
        self.index = index
        self.seq = seq
        head = seq >= index.seq
        self.rows = index.rows if head else int(np.searchsorted(index.row_seq.view(), seq, "right"))
        self.edges = (
            len(index.edge_seq) if head else int(np.searchsorted(index.edge_seq.view(), seq, "right"))
        )
        if head:
            # Copies: a later closing must not change what this view says.
            self.valid_to = index.valid_to.view(self.rows).copy()
            self.closed = index.closed.view(self.rows).copy()
        else:
            self.valid_to = np.full(self.rows, OPEN, np.int64)
            self.closed = np.zeros(self.rows, np.bool_)
            for c in index.closings:
                if c.seq > seq:
                    break
                if self.voided(c):
                    continue
                if c.axis == "valid":
                    self.valid_to[c.ordinal] = min(self.valid_to[c.ordinal], c.at)
                else:
                    self.closed[c.ordinal] = True
        self.recorded_at = int(index.event_time[seq - 1]) if seq else 0
        self.generation = index.current_generation(seq)
        self._facts: list[MaskFacts] = []
        self._recent: tuple[int, int, int, int, npt.NDArray[np.int64]] | None = None
        # [low, high) of the instant asked about, scope, mask: `eligible_rows` keeps here what it found last.
        self.eligible: list[tuple[int, int, Mask, Mask]] = []
        self.unfaded: tuple[Mask, npt.NDArray[np.int64], Mask] | None = None
        self.rates: tuple[Any, npt.NDArray[np.float64]] | None = None  # of the decay policy used last

    def facts(self, mask: Mask) -> MaskFacts:
        """What is derived from a mask over this view's rows; kept for the last few that cannot be written to."""
        for known in self._facts:
            if known.mask is mask:
                return known
        made = MaskFacts(self, mask)
        if not mask.flags.writeable:
            self._facts = [made, *self._facts[:3]]
        return made

    def voided(self, closing: Closing) -> bool:
        void = self.index.voids.get(closing.seq)
        return void is not None and void <= self.seq

    def closings_of(self, ordinal: int) -> list[Closing]:
        """The closing events of a row that stand in this view, in order."""
        return [c for c in self.index.closings.get(ordinal, ()) if c.seq <= self.seq and not self.voided(c)]

    def accesses(
        self, now: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per lineage: accesses, last access (-OPEN: never), accesses in the 24 h before `now`."""
        return *self.used(now), self._recent_accesses(now, len(self.index.ids))

    def used(self, now: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per lineage: accesses, last access (-OPEN: never)."""
        index = self.index
        lineages = len(index.ids)
        if self.seq == index.seq and index.last_access_time <= now:
            return index.access_count.view(lineages), index.access_last.view(lineages)
        n = int(np.searchsorted(index.access_seq.view(), self.seq, "right"))
        who, when = index.access_lineage.view(n), index.access_time.view(n)
        keep = when <= now
        who, when = who[keep], when[keep]
        count = np.bincount(who, minlength=lineages).astype(np.int64)
        last = np.full(lineages, -OPEN, np.int64)
        np.maximum.at(last, who, when)
        return count, last

    def _recent_accesses(self, now: int, lineages: int) -> npt.NDArray[np.int64]:
        index = self.index
        head = self.seq == index.seq
        n = len(index.access_seq) if head else int(index.access_seq.view().searchsorted(self.seq, "right"))
        day_ago = now - 86_400_000_000
        # An access is recorded at or after it happened, so earlier recorded ones cannot be recent.
        first = int(index.access_recorded.view(n).searchsorted(day_ago, "right"))
        kept = self._recent
        if (
            kept is not None
            and kept[0] == first
            and len(kept[4]) == lineages
            and kept[1] == n
            and kept[2] > day_ago
            and kept[3] <= now
        ):
            return kept[4]
        who, when = index.access_lineage.view(n)[first:], index.access_time.view(n)[first:]
        recent = np.bincount(who[(when > day_ago) & (when <= now)], minlength=lineages).astype(np.int64)
        earliest, latest = (int(when.min()), int(when.max())) if len(when) else (OPEN, -OPEN)
        # As long as all of them are within the day, a later `now` counts the same ones.
        self._recent = (first, n, earliest, latest, recent) if earliest > day_ago and latest <= now else None
        return recent


class MaskFacts:
    """What layers derive from a mask over the rows of a view, each made when first asked for."""

    def __init__(self, view: View, mask: Mask) -> None:
        self._view = view
        self.mask = mask
        self._allowed: tuple[VectorPart, int, Mask] | None = None

    @functools.cached_property
    def full(self) -> bool:
        """Whether every row of the view passes."""
        return bool(self.mask[: self._view.rows].all())

    @functools.cached_property
    def statistics(self) -> tuple[int, float]:
        """Number of documents that pass, and their mean length."""
        return self._view.index.lexicon.statistics(stats_mask=self.mask, prefix=self._view.rows)

    @functools.cached_property
    def session_lengths(self) -> npt.NDArray[np.float64]:
        """Terms of the rows that pass, by session code; float64 (sessions,)."""
        index, rows = self._view.index, self._view.rows
        return index.lexicon.group_lengths(
            index.session.view(rows),
            len(index.sessions),
            stats_mask=None if self.full else self.mask,
            prefix=rows,
        )

    @functools.cached_property
    def nodes(self) -> Mask:
        """The mask over graph nodes: memories that have a row which passes, and all entities."""
        index, rows = self._view.index, self._view.rows
        out = np.zeros(2 * max(len(index.ids), len(index.entities)) + 2, np.bool_)
        out[0::2][index.lineage.view(rows)[self.mask[:rows]]] = True
        out[1::2] = True
        return out

    @functools.cached_property
    def newest(self) -> npt.NDArray[np.int64]:
        """For each lineage the newest ordinal that passes, or -1; int64 (lineages,)."""
        index, rows = self._view.index, self._view.rows
        visible = np.flatnonzero(self.mask[:rows])
        out = np.full(len(index.ids), -1, np.int64)
        out[index.lineage.view(rows)[visible]] = visible
        return out

    def vectors(self, part: VectorPart, prefix: int) -> Mask:
        """The mask over the vectors of a part, those of its first `prefix` whose row passes."""
        owners = part.ordinals.view(len(part.index))
        kept = self._allowed
        if kept is not None and kept[0] is part and kept[1] == prefix and len(kept[2]) == len(owners):
            return kept[2]
        allowed = np.zeros(len(owners), np.bool_)
        allowed[:prefix] = self.mask[owners[:prefix]]
        allowed.setflags(write=False)
        self._allowed = (part, prefix, allowed)
        return allowed
