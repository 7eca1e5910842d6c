"""The lexicon and the graph of a view whose store searches: the same answers, no postings or edges in RAM.

What a question needs is fetched from the store, and the compiled core scores and orders it. Beside the names, RAM
keeps a length per row and a sequence number per edge, from which the statistics and the prefixes are exact.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.columns import Column

if TYPE_CHECKING:
    from twofold.index.tenant import TenantIndex

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

_UNIT: Final = 2.0**-16  # the core counts lengths in these
_FILLER: Final = 2**32 - 8  # term ids from here on stand for the words that were not asked for
_KEPT: Final = 4  # questions whose postings are kept: a recall asks for the same ones three times
_LONGEST: Final = (
    400  # bytes of a name in an index entry; a page of PostgreSQL's holds at least three entries
)


def stored_name(name: str) -> str:
    """A term or an entity as it stands in a store's index: itself, or a digest of one that is too long."""
    encoded = name.encode()
    return name if len(encoded) <= _LONGEST else "sha256:" + hashlib.sha256(encoded).hexdigest()


class Near(NamedTuple):
    """Which vectors are wanted: of the rows nearest to `query`, float32 (dimension,), or of these very rows.

    ordinals: only of these rows, by an exact scan; without a query, all of them. Else of the rows that `mask`, bool
    by ordinal, lets through: by an exact scan, or (wide > 0) those among so many that an index proposes.
    windows: how many; a row may have several. have: bool by ordinal, whose vectors need not be sent.
    """

    generation: int
    query: npt.NDArray[np.float32] | None
    windows: int
    ordinals: Ints | None = None
    mask: Mask | None = None
    wide: int = 0
    have: Mask | None = None


# ordinal, part, start, stop, data, codes: a stored vector, little-endian float32; None for what need not be sent.
Record = tuple[int, int, int, int, Any, Any]
# steps from the seeds, and a memory by the ordinal of its first version, or an entity by name
Step = tuple[int, int | None, str | None]
Postings = tuple[Ints, npt.NDArray[np.float32]]


class Steps(NamedTuple):
    """A walk, as the arguments of `Serving.walk`."""

    seeds: Sequence[str]
    hops: int
    mask: Mask
    seq: int
    limit: int


class Found(NamedTuple):
    """What one round trip brought: vectors in no order, and how many windows were found; lists; what was reached."""

    records: list[Record]
    listed: int
    postings: list[Postings]
    reached: list[Step]


class Serving(Protocol):
    """What a store offers that searches vectors, words and relations itself."""

    kept_bytes: int  # of fetched vectors that this process may keep

    def search(self, tenant: str, near: Near | None, terms: Sequence[str], steps: Steps | None) -> Found:
        """Vectors, posting lists and a walk in one round trip."""
        ...

    def postings(self, tenant: str, terms: Sequence[str]) -> list[Postings]:
        """The posting list of each term: ordinals, ascending, and weighted counts."""
        ...

    def walk(
        self, tenant: str, seeds: Sequence[str], hops: int, mask: Mask, seq: int, limit: int
    ) -> list[Step]:
        """What is within `hops` steps of the entities named: (steps, memory, None) or (steps, None, entity).

        A memory is the ordinal of its first version, and may be walked over where `mask`, bool by ordinal, says
        so. Only edges with a seq up to the given one count. The seeds are left out. Of memories at one distance
        only the `limit` first ones need be told, and nothing further away once there are `limit` nodes.
        """
        ...


class _Fetched(NamedTuple):
    """Posting lists as a lexicon over the documents in them: document i is row `ordinals[i]`."""

    ids: frozenset[int]
    ordinals: Ints
    lexicon: _core.Lexicon


class PushedLexicon:
    """What `_core.Lexicon` answers, from posting lists in the store."""

    def __init__(self, index: TenantIndex, serving: Serving) -> None:
        self._index, self._serving = index, serving
        self._lengths = Column(np.int64)  # units; 0 for an erased row
        self._alive = Column(np.bool_)
        self._fetched: OrderedDict[tuple[int, tuple[int, ...]], _Fetched] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, term_ids: Ids, counts: npt.NDArray[np.float32], offsets: Ints) -> Ints:  # noqa: ARG002
        """Note the lengths of documents; their postings are in the store."""
        units = np.rint(counts.astype(np.float64) / _UNIT).astype(np.int64)
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(units)))[offsets]
        first = len(self)
        self._lengths.extend(np.diff(ends))
        self._alive.extend(np.ones(len(offsets) - 1, np.bool_))
        return np.arange(first, len(self), dtype=np.int64)

    def erase(self, ordinals: Ints) -> None:
        for ordinal in ordinals.tolist():
            self._lengths[ordinal] = 0
            self._alive[ordinal] = False
        self._fetched.clear()

    def statistics(self, *, stats_mask: Mask | None = None, prefix: int | None = None) -> tuple[int, float]:
        """Number of documents that count, and their mean length."""
        end = len(self) if prefix is None else min(prefix, len(self))
        counted = self._alive.view(end)
        if stats_mask is not None:
            end = min(end, len(stats_mask))
            counted = counted[:end] & stats_mask[:end]
        count = int(np.count_nonzero(counted))
        total = int(self._lengths.view(end)[counted].sum())
        return count, float(total) * _UNIT / float(count) if count else 0.0

    def search(
        self, terms: Ids, k: int, *, mask: Mask | None = None, prefix: int | None = None, **model: Any
    ) -> tuple[Ints, npt.NDArray[np.float64]]:
        found = self._of(terms)
        places, scores = found.lexicon.search(
            terms, k, mask=_at(mask, found), prefix=_before(prefix, found), **_counting(model, found)
        )
        return found.ordinals[places], scores

    def scores(
        self, terms: Ids, ordinals: Ints, *, prefix: int | None = None, **model: Any
    ) -> npt.NDArray[np.float64]:
        found = self._of(terms)
        out = np.zeros(len(ordinals), np.float64)
        if not len(found.ordinals):
            return out
        places = np.minimum(np.searchsorted(found.ordinals, ordinals), len(found.ordinals) - 1)
        there = found.ordinals[places] == ordinals
        out[there] = found.lexicon.scores(
            terms, places[there], prefix=_before(prefix, found), **_counting(model, found)
        )
        return out

    def document_frequency(
        self, terms: Ids, *, stats_mask: Mask | None = None, prefix: int | None = None
    ) -> Ints:
        found = self._of(terms)
        return found.lexicon.document_frequency(
            terms, stats_mask=_at(stats_mask, found), prefix=_before(prefix, found)
        )

    def group_lengths(
        self, groups: Ints, count: int, *, stats_mask: Mask | None = None, prefix: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Terms of the documents that count, by group; float64 (count,). Documents of group -1 are in none."""
        end = min(len(self), len(groups)) if prefix is None else min(prefix, len(self), len(groups))
        if stats_mask is not None:
            end = min(end, len(stats_mask))
        own = groups[:end]
        counted = own >= 0 if stats_mask is None else (own >= 0) & stats_mask[:end]
        # Whole numbers far below 2^53: their sums do not depend on the order.
        units = self._lengths.view(end)[counted].astype(np.float64)
        sums = np.bincount(own[counted], weights=units, minlength=count).astype(np.float64)
        return np.multiply(sums, np.float64(_UNIT))

    def group_scores(
        self,
        terms: Ids,
        groups: Ints,
        lengths: npt.NDArray[np.float64],
        *,
        stats_mask: Mask | None = None,
        prefix: int | None = None,
        **model: Any,
    ) -> npt.NDArray[np.float64]:
        """BM25 of each group taken as one document."""
        found = self._of(terms)
        known = found.ordinals[: np.searchsorted(found.ordinals, len(groups))]
        return found.lexicon.group_scores(
            terms,
            groups[known].astype(np.int64),
            lengths,
            stats_mask=_at(stats_mask, found),
            prefix=_before(prefix, found),
            **model,
        )

    def asking(self, terms: Ids) -> list[str]:
        """The terms whose lists a search for these would fetch."""
        ids = tuple(terms.tolist())
        names = self._index.terms.names
        return [] if self._known(ids) is not None else [names[i] for i in ids]

    def take(self, terms: Ids, lists: Sequence[Postings]) -> None:
        """Keep the lists of what `asking` named."""
        self._keep(tuple(terms.tolist()), lists)

    def _of(self, terms: Ids) -> _Fetched:
        ids = tuple(terms.tolist())
        kept = self._known(ids)
        if kept is not None:
            return kept
        return self._keep(ids, self._serving.postings(self._index.tenant, self.asking(terms)))

    def _known(self, ids: tuple[int, ...]) -> _Fetched | None:
        for (then, _), kept in self._fetched.items():
            if then == len(self) and kept.ids.issuperset(ids):
                return kept
        return None

    def _keep(self, ids: tuple[int, ...], lists: Sequence[Postings]) -> _Fetched:
        kept = self._fetched[len(self), ids] = self._compiled(ids, lists)
        if len(self._fetched) > _KEPT:
            self._fetched.popitem(last=False)
        return kept

    def _compiled(self, ids: tuple[int, ...], lists: Sequence[Postings]) -> _Fetched:
        # What others recorded in the meantime is not in this view, and what they erased is not in the lists.
        lists = [(o[: np.searchsorted(o, len(self))], c) for o, c in lists]
        empty = np.zeros(0, np.int64)
        there = np.zeros(len(self), np.bool_)
        for rows, _ in lists:
            there[rows] = True
        ordinals = np.flatnonzero(there)
        rest = self._lengths.view()[ordinals]
        terms: list[int] = []
        places: list[Ints] = []
        counts: list[npt.NDArray[np.float32]] = []
        for term, (rows, values) in sorted(zip(ids, lists, strict=True), key=lambda item: item[0]):
            at = np.searchsorted(ordinals, rows)
            own = values[: len(rows)]
            rest[at] -= np.rint(own.astype(np.float64) / _UNIT).astype(np.int64)
            terms.append(term)
            places.append(at)
            counts.append(own)
        # The documents' other words, in as many terms as float32 needs to count them exactly.
        rest = np.maximum(rest, 0)
        filler = _FILLER
        while rest.any():
            piece = np.where(rest < 2**24, rest, np.minimum(rest & ~np.int64(2**24 - 1), 10**6 << 16))
            at = np.flatnonzero(piece)
            terms.append(filler)
            places.append(at)
            counts.append((piece[at] * _UNIT).astype(np.float32))
            rest = rest - piece
            filler += 1
        offsets = np.cumsum([0, *(len(at) for at in places)])
        lexicon = _core.Lexicon.from_parts(
            terms=np.array(terms, np.uint32),
            offsets=offsets.astype(np.int64),
            ordinals=np.concatenate([empty, *places]),
            counts=np.concatenate([np.zeros(0, np.float32), *counts]),
            alive=np.ones(len(ordinals), np.bool_),
        )
        return _Fetched(frozenset(ids), ordinals, lexicon)


def _at(mask: Mask | None, found: _Fetched) -> Mask | None:
    """A mask over rows as one over the documents fetched; rows beyond its end fail it."""
    if mask is None:
        return None
    inside = found.ordinals[: np.searchsorted(found.ordinals, len(mask))]
    return np.concatenate((mask[inside], np.zeros(len(found.ordinals) - len(inside), np.bool_)))


def _before(prefix: int | None, found: _Fetched) -> int | None:
    return None if prefix is None else int(np.searchsorted(found.ordinals, prefix))


def _counting(model: dict[str, Any], found: _Fetched) -> dict[str, Any]:
    """The model, which must say how many documents there are: those fetched are not all of them."""
    assert model["doc_count"] is not None
    assert model["mean_length"] is not None
    return {**model, "stats_mask": _at(model.get("stats_mask"), found)}


class PushedGraph:
    """What `_core.Graph` answers about reach, by walks in the store."""

    def __init__(self, index: TenantIndex, serving: Serving) -> None:
        self._index, self._serving = index, serving
        self._taken: tuple[Mask | None, Steps, list[Step]] | None = None

    def add_edges(self, src: Ids, dst: Ids, weight: npt.NDArray[np.float32]) -> None:
        """The store has them."""

    def asking(
        self,
        seeds: Ids,
        hops: int,
        *,
        prefix: int | None = None,
        mask: Mask | None = None,
        limit: int | None = None,
    ) -> Steps | None:
        """The walk that `expand` would ask for; None where what is next to the seeds is enough."""
        return self._begun(seeds, hops, prefix, mask, limit)[1]

    def take(self, mask: Mask | None, steps: Steps, reached: list[Step]) -> None:
        """Keep what a walk that `asking` named has reached, for the `expand` that follows."""
        self._taken = (mask, steps, reached)

    def expand(
        self,
        seeds: Ids,
        hops: int,
        *,
        prefix: int | None = None,
        mask: Mask | None = None,
        limit: int | None = None,
    ) -> tuple[Ids, npt.NDArray[np.int32]]:
        """Nodes within `hops` steps of entities, by (hop, node), at most `limit`: as `_core.Graph.expand`."""
        found, steps, most = self._begun(seeds, hops, prefix, mask, limit)
        if steps is not None:
            lineage = self._index.lineage
            for hop, memory, entity in self._reached(mask, steps):
                node = self._entity(entity) if memory is None else 2 * int(lineage[memory])
                if node is not None:
                    found.append((hop, node))
            found = sorted(found)[:most]
        return (
            np.array([node for _, node in found], np.uint32),
            np.array([hop for hop, _ in found], np.int32),
        )

    def _reached(self, mask: Mask | None, steps: Steps) -> list[Step]:
        taken, self._taken = self._taken, None
        if taken is not None and taken[0] is mask and _same(taken[1], steps):
            return taken[2]
        return self._serving.walk(self._index.tenant, *steps)

    def _begun(
        self, seeds: Ids, hops: int, prefix: int | None, mask: Mask | None, limit: int | None
    ) -> tuple[list[tuple[int, int]], Steps | None, int]:
        """What is known without the store, (hop, node); the walk for the rest, if there is any; how many nodes."""
        index = self._index
        near = np.zeros(0, np.bool_)
        edges = index.edge_seq.view(prefix)
        # Edges are in the order of the log, and all of one event are in or out together.
        seq = int(edges[-1]) if len(edges) else 0
        most = len(index.ids) + len(index.entities) + 1 if limit is None else limit
        start = sorted(set(seeds.tolist()))
        found = [(0, node) for node in start]
        lineage = index.lineage.view()
        rows = int(np.searchsorted(index.row_seq.view(), seq, "right"))
        # A step away are the memories of rows about the seeds, which a view knows; perhaps they fill the list. What
        # is further away follows from its columns too, as long as no memory is linked to another.
        linked = bool(index.links) and index.links[0][0] <= seq
        fresh = np.ones(len(index.ids), np.bool_)  # memories that may be walked over and were not
        if mask is not None:
            fresh[: len(mask[0::2])] = mask[0::2][: len(fresh)]
            fresh[len(mask[0::2]) :] = False
        entities = {node // 2 for node in start}
        edge = sorted(entities)
        for hop in range(1, hops + 1):
            if len(found) >= most or (linked and hop > 1):
                break
            if hop % 2:
                near = np.zeros(len(fresh), np.bool_)
                for code in edge:
                    own = index.entity_rows_of(code)
                    near[lineage[own[: np.searchsorted(own, rows)]]] = True
                near &= fresh
                fresh &= ~near
                found += [(hop, 2 * memory) for memory in np.flatnonzero(near).tolist()]
            else:
                about = index.row_entities
                of = {code for row in np.flatnonzero(near[lineage[:rows]]).tolist() for code in about[row]}
                edge = sorted(of - entities)
                entities |= of
                found += [(hop, 2 * code + 1) for code in edge]
        if hops <= 1 or not linked or len(found) >= most:
            return found[:most], None, most
        del found[len(start) :]
        first = np.flatnonzero(np.diff(np.maximum.accumulate(lineage), prepend=-1))
        passes = np.zeros(len(lineage), np.bool_)
        passes[first] = True if mask is None else mask[0::2][: len(first)]
        names = [index.entities.names[node // 2] for node in start]
        return found, Steps(names, hops, passes, seq, most), most

    def _entity(self, name: str | None) -> int | None:
        entities = self._index.entities
        code = -1 if name is None else entities.get(name)
        if code < 0 and name is not None and name.startswith("sha256:"):
            named = (n for n in entities.names if 4 * len(n) > _LONGEST and stored_name(n) == name)
            code = next(map(entities.get, named), -1)
        return None if code < 0 else 2 * code + 1


def _same(one: Steps, other: Steps) -> bool:
    """Whether two walks under the same mask are the same."""
    return (one.seeds, one.hops, one.seq, one.limit) == (other.seeds, other.hops, other.seq, other.limit)


class Beside:
    """What a search will ask for besides vectors, so that one round trip can bring both."""

    def __init__(self, index: TenantIndex, terms: Ids, walk: dict[str, Any] | None) -> None:
        """walk: the arguments of `PushedGraph.expand`, if there will be one."""
        # Not the core's own: the store searches.
        self._lexicon = cast(PushedLexicon, index.lexicon)
        self._graph = cast(PushedGraph, index.graph)
        self._ids = terms
        self._mask = None if walk is None else walk["mask"]
        self.terms = self._lexicon.asking(terms)
        self.steps = None if walk is None else self._graph.asking(**walk)

    def take(self, found: Found) -> None:
        """Keep it for those who ask, and ask for it no more."""
        if self.terms:
            self._lexicon.take(self._ids, found.postings)
        if self.steps is not None:
            self._graph.take(self._mask, self.steps, found.reached)
        self.terms, self.steps = [], None
