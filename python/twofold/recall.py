"""READ PATH: authorise, lexical, graph, vector, fuse, pack, receipt, in this order.

`recall` is a pure function of the state at a sequence number, the query with its vector, the parameters and
`now`. Nothing here writes; promotion is the caller's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from twofold import decay, render
from twofold.access import Principal
from twofold.clock import OPEN
from twofold.entities import query_entities
from twofold.errors import BudgetError
from twofold.index.fetched import FetchedPart, part_for
from twofold.index.filters import NONE as NO_FILTERS
from twofold.index.pushed import Beside, Serving
from twofold.index.tenant import TenantIndex, VectorPart, View
from twofold.lookup import memory_of, reader
from twofold.model import Memory, Row
from twofold.query import Query
from twofold.receipt import Receipt, score_bits
from twofold.retrieve import candidates, fuse, graph, late, lexical, pack, pushdown, question, vector
from twofold.retrieve.candidates import Candidates, Mask
from twofold.retrieve.profile import Profile
from twofold.retrieve.strength import faded_rows, strength_of
from twofold.tokens import truncate
from twofold.vault import Vault

LAYERS: Final = ("lexical", "tags", "graph", "vector")


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory found: its score, which layers proposed it (with rank from 1), and what its score is made of."""

    memory: Memory
    score: float
    sources: dict[str, int]
    parts: dict[str, float] = field(default_factory=dict)
    span: tuple[int, int] | None = (
        None  # characters of the content that matched, when it was stored in windows
    )
    tokens: int = 0
    truncated: bool = False

    @property
    def content(self) -> str:
        """The memory's content, or as much of it as the budget allowed."""
        return self.memory.content


@dataclass(frozen=True, slots=True)
class Trace:
    """What each layer gave, and what was left out and why."""

    seq: int
    rows: int
    in_scope: int
    eligible: int
    faded: int
    layers: dict[str, list[tuple[str, float]]]  # layer -> (memory id, score), best first
    ran: tuple[str, ...]
    skipped: dict[str, str]  # layer -> why it did not run
    entities: tuple[str, ...]
    dropped: list[tuple[str, str]]  # (duplicate's id, id of the better one)
    over_budget: int
    truncated: str | None
    approximate: tuple[str, ...] = ()  # layers whose candidates a graph proposed


class Recall(Sequence[Hit]):
    """The answer to one recall: hits, best first, with a trace and a receipt."""

    def __init__(self, query: Query, hits: list[Hit], trace: Callable[[], Trace], receipt: Receipt) -> None:
        self.query = query
        self.hits = hits
        self.receipt = receipt
        self._make_trace = trace

    @functools.cached_property
    def trace(self) -> Trace:
        """What each layer gave; put together when first asked for."""
        return self._make_trace()

    @overload
    def __getitem__(self, i: int) -> Hit: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Hit]: ...
    def __getitem__(self, i: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[i]

    def __len__(self) -> int:
        return len(self.hits)

    @property
    def tokens(self) -> int:
        """Tokens of the hits' contents, by the recall's counter."""
        return sum(h.tokens for h in self.hits)

    @property
    def faded(self) -> int:
        """How many memories in scope were left out because they have faded."""
        return self.trace.faded

    def context(self) -> str:
        """The hits as labelled text to paste as data; within the budget, labels included. "" when empty."""
        return render.context([(h.memory, h.span) for h in self.hits], self.query.budget, self.query.counter)

    def __repr__(self) -> str:
        return f"Recall({self.query.text!r}, hits={len(self.hits)}, tokens={self.tokens})"


# ---------------------------------------------------------------------------------------------------


def recall(vault: Vault, principal: Principal, index: TenantIndex, query: Query) -> Recall:
    """Answer a query from the tenant's current state (or from the prefix that `known_at` resolves to)."""
    seq = None if query.known_at is None else index.seq_known_at(query.known_at)
    plain = query.known_at is None and query.as_of is None and query.filters == NO_FILTERS
    return recall_at(vault, principal, index, index.view(seq), query, approximate=plain)


def recall_at(
    vault: Vault,
    principal: Principal,
    index: TenantIndex,
    view: View,
    query: Query,
    policy: decay.DecayPolicy | None = None,
    *,
    approximate: bool = False,
) -> Recall:
    """Answer a query from one prefix of the log, under the vault's decay policy or a given one.

    approximate: a graph may propose the nearest rows, where the vault has one.
    """
    policy = policy or vault.policy
    # authorise: which rows exist for this reader, and which of them are eligible at the asked times
    reach = reader(principal, query.patterns)
    profile = query.profile
    with index.lock:
        scope = index.scope_mask(reach, view.rows)
        eligible, faded = eligible_rows(policy, index, view, scope, query)
        gazetteer = graph.Gazetteer(view, eligible)
        named = graph.seeds(gazetteer, query_entities(query.text, gazetteer))
        words = lexical.term_ids(view, query.terms)
        part = vector_part(vault, view, query, eligible, words, named)
        skipped = {}
        if part is None or query.vector is None:
            skipped["vector"] = why_no_vector(vault, principal.tenant, part)

        # [1] lexical, [2] graph, [3] vector
        found = {
            "lexical": lexical.search(view, eligible, scope, words, profile),
            "tags": lexical.tags(view, eligible, query.text, profile),
        }
        found["graph"] = graph.search(view, eligible, named, profile)
        if approximate and part is not None and vault.ann_rows is not None:
            vault.seek_graph(index, part)
            proposed = vector.propose(view, part, eligible, query.vector, profile)
            query = query if proposed is None else replace(query, proposed=tuple(proposed.tolist()))
        among = None if query.proposed is None else np.array(query.proposed, np.int64)
        if isinstance(part, FetchedPart) and among is None:
            among = part.nearest
        if among is None:
            nearest = vector.search(view, part, eligible, query.vector, profile)
        else:
            nearest = vector.rank(view, part, eligible, query.vector, among, profile)
        found["vector"] = vector.above(nearest, profile.min_cosine)
        layers = {name: c for name, c in found.items() if asked(name, profile)}

        # [4] fusion, over exact scores of every candidate and of the turns around it
        pooled = fuse.pool(view, eligible, list(layers.values()), profile)
        if isinstance(part, FetchedPart):
            store: Serving = vault.reading  # type: ignore[assignment]
            pushdown.fetch(store, index.tenant, part, pooled.ordinals)
        fused = fuse.fuse(
            view,
            pooled,
            layers,
            fuse.Evidence(
                lexical.scores(view, scope, words, pooled.ordinals, profile),
                vector.scores(part, query.vector, pooled.ordinals, query.spread, profile),
                late.scores(view, scope, part, query.tokens, pooled.ordinals, pooled.chosen, profile),
                strength_of(policy, index, view, pooled.ordinals[pooled.chosen], query.now)
                if profile.strength_weight
                else None,
                lexical.sessions(view, eligible, words, pooled.ordinals[pooled.chosen], profile)
                if profile.session_lexical_weight
                else None,
            ),
            fuse.Asked(
                query.cover,
                query.spread,
                question.speaker_named(view, scope, query.text) if profile.speaker_weight else -1,
                bool(profile.role_weight) and question.asks_assistant(query.text),
                question.times_meant(view, eligible, scope, query.text, query.now, profile)
                if profile.time_weight
                else [],
            ),
            profile,
        )

        # [5] diversity and packing
        best, dropped = pack.diversify(
            fused.candidates, part, lambda o: twin_key(index, o), profile, query.k, query.budget is not None
        )
        hits, over, truncated = pack_hits(vault, principal.tenant, view, best, fused, layers, part, query)

    def trace() -> Trace:
        names, lineage = index.ids.names, index.lineage
        return Trace(
            seq=view.seq,
            rows=view.rows,
            in_scope=int(np.count_nonzero(scope)),
            eligible=int(np.count_nonzero(eligible)),
            faded=faded,
            layers={
                name: [
                    (names[lineage[o]], s)
                    for o, s in zip(c.ordinals.tolist(), c.scores.tolist(), strict=True)
                ]
                for name, c in layers.items()
            },
            ran=tuple(n for n in layers if n not in skipped),
            skipped=skipped,
            approximate=() if query.proposed is None else ("vector",),
            entities=tuple(one.key for one in named),
            dropped=[(names[lineage[a]], names[lineage[b]]) for a, b in dropped],
            over_budget=over,
            truncated=truncated,
        )

    return Recall(query, hits, trace, make_receipt(principal, view, query, hits, policy))


def eligible_rows(
    policy: decay.DecayPolicy, index: TenantIndex, view: View, scope: Mask, query: Query
) -> tuple[Mask, int]:
    """Rows in scope that are known in the view, true at `as_of`, pass the filters and have not faded.

    Also the number of rows that only fading left out.
    """
    as_of = max(query.now, view.recorded_at) if query.as_of is None else query.as_of
    plain = query.filters == NO_FILTERS
    known = next((m for low, high, s, m in view.eligible if s is scope and low <= as_of < high), None)
    if plain and known is not None:
        mask = known
    else:
        mask = scope & ~view.closed
        starts, ends = index.valid_from.view(view.rows), view.valid_to
        low, high = stretch(as_of, starts[mask], ends[mask]) if plain else (as_of, as_of)
        mask &= starts <= as_of
        mask &= ends > as_of
        if "snapshot" not in query.filters.memory_types:
            snapshot = index.types.get("snapshot")
            if snapshot >= 0:
                mask &= index.type.view(view.rows) != snapshot
        wanted = index.filter_mask(query.filters, view.rows)
        if wanted is not None:
            mask &= wanted
        mask.setflags(write=False)
        if plain:
            view.eligible = [(low, high, scope, mask), *view.eligible[:3]]
    if query.include_faded:
        return mask, 0
    gone = faded_rows(policy, index, view, mask, query.now)
    if not len(gone):
        return mask, 0
    if view.unfaded is None or view.unfaded[0] is not mask or not np.array_equal(view.unfaded[1], gone):
        left = mask.copy()
        left[gone] = False
        left.setflags(write=False)
        view.unfaded = (mask, gone, left)
    return view.unfaded[2], len(gone)


def stretch(at: int, *changes: npt.NDArray[np.int64]) -> tuple[int, int]:
    """[low, high) around an instant in which none of `changes` lies: what holds at `at` holds in all of it."""
    low, high = -OPEN, OPEN
    for times in changes:
        before = times <= at
        low = max(low, int(times.max(initial=-OPEN, where=before)))
        high = min(high, int(times.min(initial=OPEN, where=~before)))
    return low, high


def asked(layer: str, profile: Profile) -> bool:
    """Whether a profile uses a layer at all."""
    weight = {
        "lexical": profile.lexical_weight,
        "tags": profile.tag_weight,
        "graph": profile.graph_weight,
        "vector": profile.vector_weight,
    }
    return weight[layer] > 0


def vector_part(
    vault: Vault,
    view: View,
    query: Query,
    eligible: Mask,
    words: lexical.TermIds,
    named: Sequence[graph.Named],
) -> VectorPart | None:
    """The vectors of the generation the query was embedded for; of the nearest rows only, if the store searches.

    Then the words' postings, and what is near the entities named, come in the same round trip.
    """
    index = view.index
    if query.generation is None or query.vector is None:
        return None
    if vault.pushdown:
        generation = next(g for g in index.generations if g.number == query.generation)
        store: Serving = vault.reading  # type: ignore[assignment]
        depth = query.profile.depth
        walk = graph.expansion(view, eligible, named, query.profile)
        beside = Beside(index, words, walk)
        part = part_for(index, generation)
        if query.proposed is not None:
            pushdown.fetch(store, index.tenant, part, np.unique(np.array(query.proposed, np.int64)), beside)
            return part
        return pushdown.candidates(
            *(store, index.tenant, generation, eligible, query.vector, depth),
            part=part,
            beside=beside,
        )
    if query.generation not in index.vectors:
        vault.load_generation(index, query.generation)
    return index.vectors[query.generation]


def why_no_vector(vault: Vault, tenant: str, part: VectorPart | None) -> str:
    if vault.embedder_of(tenant) is None:
        return "no embedder: this handle was opened with embedder=None"
    return "no vectors in this store yet" if part is None else "no query vector"


def twin_key(index: TenantIndex, ordinal: int) -> tuple[str, int, int]:
    """Equal for rows that say the same in the same mouth and session."""
    return index.content_hash[ordinal], int(index.speaker[ordinal]), int(index.session[ordinal])


def pack_hits(
    vault: Vault,
    tenant: str,
    view: View,
    best: Candidates,
    fused: fuse.Fused,
    layers: dict[str, Candidates],
    part: VectorPart | None,
    query: Query,
) -> tuple[list[Hit], int, str | None]:
    """Fetch what fits: at most k memories within the budget.

    Also how many the budget left out, and the id of a first memory that had to be truncated.
    """
    index = view.index
    ordinals = best.ordinals.tolist()
    if query.budget is None:
        ordinals = ordinals[: query.k]
    if not ordinals:
        return [], 0, None
    rows: dict[int, Row] = {}
    if query.budget is not None and query.counter.name != vault.counter.name:
        rows = {r.ordinal: r for r in vault.reading.rows(tenant, ordinals)}
        sizes = [query.counter.count(rows[o].content) for o in ordinals]
    else:
        sizes = [int(index.tokens[o]) for o in ordinals]
    chosen = pack.pack(sizes, query.k, query.budget)
    over = 0 if query.budget is None else min(query.k, len(ordinals)) - len(chosen)
    truncated = None
    if not chosen and query.budget:
        chosen, truncated = [0], index.ids.names[index.lineage[ordinals[0]]]
    picked = [ordinals[i] for i in chosen]
    if not rows:
        rows = {r.ordinal: r for r in vault.reading.rows(tenant, picked)}
    places = candidates.places([fused.candidates.ordinals, *(c.ordinals for c in layers.values())], picked)
    there = places[0]
    ranks = (places[1:] + 1).T.tolist()
    scores = fused.candidates.scores[there].tolist()
    names, addends = fused.names, fused.addends[:, there].T.tolist()
    several = part is not None and not part.one_per_row  # only then has a memory windows
    counts = view.used(query.now)
    hits = []
    for at, (i, ordinal) in enumerate(zip(chosen, picked, strict=True)):
        memory = memory_of(tenant, view, rows[ordinal], counts)
        size = sizes[i]
        if truncated is not None:
            assert query.budget is not None
            short = truncate(memory.content, query.budget, query.counter)
            if not short:
                raise BudgetError(
                    f"a budget of {query.budget} tokens cannot hold one word of the best memory; raise it"
                )
            memory, size = replace(memory, content=short), query.counter.count(short)
        hits.append(
            Hit(
                memory=memory,
                score=scores[at],
                sources={name: rank for name, rank in zip(layers, ranks[at], strict=True) if rank > 0},
                parts=dict(zip(names, addends[at], strict=True)),
                span=vector.span(part, query.vector, ordinal) if several else None,
                tokens=size,
                truncated=truncated is not None,
            )
        )
    return hits, max(over, 0), truncated


def make_receipt(
    principal: Principal, view: View, query: Query, hits: list[Hit], policy: decay.DecayPolicy
) -> Receipt:
    """What is needed to evaluate this recall again, and what it answered."""
    # Of the vectors that were searched: the handle's encoder may be another one by now.
    made = {generation.number: generation.fingerprint for generation in view.index.generations}
    return Receipt(
        query=query,
        principal=principal,
        seq=view.seq,
        embedder=None if query.vector is None or query.generation is None else made.get(query.generation),
        policy=policy,
        answer=[(h.memory.id, h.memory.version, h.memory.ordinal, score_bits(h.score)) for h in hits],
        packed=[(h.memory, h.span) for h in hits],
    )


def standing(vault: Vault, principal: Principal, view: View, query: Query, memory_id: str) -> str | None:
    """Why a memory could not be an answer at all; None when it was eligible."""
    index = view.index
    with index.lock:
        lineage = index.ids.get(memory_id)
        ordinals = [o for o in index.versions.get(lineage, ()) if o < view.rows]
        if not ordinals:
            return "it was not recorded yet"
        ordinal = ordinals[-1]
        scope = index.scope_mask(reader(principal, query.patterns), view.rows)
        if not scope[ordinal]:
            return "it is outside the namespaces asked, or not visible to this handle"
        if view.closed[ordinal]:
            return "it is forgotten or archived"
        as_of = max(query.now, view.recorded_at) if query.as_of is None else query.as_of
        if not index.valid_from[ordinal] <= as_of < view.valid_to[ordinal]:
            return "it was not valid at the time asked: not yet begun, or superseded"
        eligible, _ = eligible_rows(vault.policy, index, view, scope, replace(query, include_faded=True))
        if not eligible[ordinal]:
            return "the filters exclude it"
        mask = np.zeros(view.rows, np.bool_)
        mask[ordinal] = True
        if not query.include_faded and len(faded_rows(vault.policy, index, view, mask, query.now)):
            return "it has faded; recall with include_faded=True shows it"
    return None
