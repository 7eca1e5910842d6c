"""KEEPING: what has faded, garbage collection, re-embedding, kept receipts, feedback, logged refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold import audit, text
from twofold.access import Principal
from twofold.clock import DAY, iso
from twofold.config import Config
from twofold.embed import Embedder
from twofold.errors import InvalidInput, StoreError
from twofold.index.tenant import Mask, TenantIndex, View
from twofold.model import Generation, Kind, Row, Vectors
from twofold.progress import Progress
from twofold.recall import recall_at
from twofold.receipt import Receipt, algorithm, stored
from twofold.remember import WINDOW_OVERLAP, demand, embed_texts, lead_in_of
from twofold.replay import body_of
from twofold.retrieve import fit as fitting
from twofold.retrieve.profile import Profile
from twofold.retrieve.strength import faded_rows, strength_of
from twofold.vault import Vault

REEMBED_BATCH = 256


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """State of strength at `at`: live rows, faded ones, and what this run did."""

    at: str
    live: int
    faded: int
    by_type: dict[str, dict[str, float]]  # type -> {"live", "faded", "mean_strength"}
    over_limit: int
    archived: tuple[str, ...]
    recorded: bool  # False for a dry run, or when this UTC day has a report already


@dataclass(frozen=True, slots=True)
class GcReport:
    """Memories that have faded: archived when `applied`."""

    candidates: tuple[tuple[str, float], ...]  # id, strength; weakest first
    applied: bool
    generations_dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReembedReport:
    """The generation that is current now."""

    generation: int
    fingerprint: str
    memories: int
    vectors: int


def log_refusal(vault: Vault, principal: Principal, action: str, detail: str) -> None:
    """Put a refused action into the audit log."""
    with vault.write(principal) as writer:
        writer.event(Kind.REFUSE, payload={"action": action, "detail": detail})


def live_rows(index: TenantIndex, view: View) -> Mask:
    """Rows that are known now and not erased; bool (rows,)."""
    out: Mask = ~view.closed & ~index.erased.view(view.rows)
    return out


def maintain(vault: Vault, principal: Principal, config: Config, at: int, *, dry_run: bool) -> MaintainReport:
    """Report strengths at `at`, once per UTC day into the log; archive beyond the limit if the policy says so.

    Strength is computed from the log at every read, so missed days lose nothing: one run catches up. With setting
    `ann` the graph of approximate search is made here, when there is none or the one there is outgrown: minutes.
    """
    demand(principal, "maintain", "the store")
    vault.flush(principal.tenant)
    index = vault.index(principal.tenant)
    with index.lock:
        view = index.view()
        live = np.flatnonzero(live_rows(index, view))
        strength = strength_of(vault.policy, index, view, live, at)
        mask = np.zeros(view.rows, np.bool_)
        mask[live] = True
        faded = set(faded_rows(vault.policy, index, view, mask, at).tolist())
        types = index.type.view(view.rows)[live]
        names = [index.ids.names[index.lineage[o]] for o in live.tolist()]
    by_type: dict[str, dict[str, float]] = {}
    for code in np.unique(types).tolist():
        chosen = types == code
        rows = live[chosen].tolist()
        by_type[index.types.names[code]] = {
            "live": len(rows),
            "faded": sum(o in faded for o in rows),
            "mean_strength": round(float(strength[chosen].mean()), 6),
        }
    excess = max(0, len(live) - config.l2_max_memories)
    weakest: list[int] = []
    if excess and config.max_memories_policy == "archive":
        pinned = index.pinned.view(view.rows)[live]
        order = np.lexsort((live, strength))
        weakest = [i for i in order.tolist() if not pinned[i]][:excess]
    last = last_report(vault, principal.tenant)
    fresh = not dry_run and (last is None or last // DAY < at // DAY or bool(weakest))
    if fresh:
        with vault.write(principal) as writer:
            for i in weakest:
                ordinal = int(live[i])
                if writer.index.live(ordinal):
                    writer.event(
                        Kind.ARCHIVE,
                        namespace=index.namespaces.names[index.namespace[ordinal]],
                        ordinal=ordinal,
                        payload={"rule": "max_memories"},
                    )
            writer.event(
                Kind.MAINTAIN,
                payload={
                    "what": "report",
                    "at": at,
                    "live": len(live),
                    "faded": len(faded),
                    "by_type": by_type,
                },
            )
    if not dry_run:
        vault.keep_graph(principal.tenant)
    return MaintainReport(
        iso(at),
        len(live),
        len(faded),
        by_type,
        excess,
        tuple(names[i] for i in weakest) if fresh or dry_run else (),
        fresh,
    )


def last_report(vault: Vault, tenant: str) -> int | None:
    """When the last maintenance report was for, in microseconds."""
    last = None
    for event in vault.store.events(tenant):
        if event.kind == Kind.MAINTAIN and event.payload:
            data = json.loads(event.payload)
            if data.get("what") == "report":
                last = int(data["at"])
    return last


def gc(vault: Vault, principal: Principal, *, dry_run: bool, generations: bool) -> GcReport:
    """Archive faded memories (their transaction time ends; `restore` brings one back). Preview by default."""
    demand(principal, "gc", "the store")
    vault.flush(principal.tenant)
    index = vault.index(principal.tenant)

    def candidates() -> list[tuple[int, str, float]]:
        view = index.view()
        rows = faded_rows(vault.policy, index, view, live_rows(index, view), vault.now())
        strength = strength_of(vault.policy, index, view, rows, vault.now())
        order = np.lexsort((rows, strength))
        return [
            (int(rows[i]), index.ids.names[index.lineage[rows[i]]], float(strength[i]))
            for i in order.tolist()
        ]

    if dry_run:
        with index.lock:
            return GcReport(tuple((i, s) for _, i, s in candidates()), False)
    with vault.write(principal) as writer:
        index = writer.index
        chosen = candidates()
        for ordinal, _, strength in chosen:
            writer.event(
                Kind.ARCHIVE,
                namespace=index.namespaces.names[index.namespace[ordinal]],
                ordinal=ordinal,
                payload={"rule": "gc", "strength": strength},
            )
        current = index.current_generation()
        old = [g.number for g in index.generations if generations and current and g.number != current.number]
        if old:
            # What the rows' events committed to must stay checkable when the vectors are gone.
            digests = {
                str(n): generation_digests(vault, principal.tenant, n, writer.next_ordinal) for n in old
            }
            writer.event(
                Kind.MAINTAIN, payload={"what": "generations dropped", "numbers": old, "vectors": digests}
            )
            writer.batch.drop_generations += old
    return GcReport(tuple((i, s) for _, i, s in chosen), True, tuple(old))


def reembed(
    vault: Vault, principal: Principal, embedder: Embedder, *, progress: bool | Callable[[int], None]
) -> ReembedReport:
    """Write a new generation of vectors beside the current one, then make it current in one commit.

    Reads and writes go on meanwhile; what is added during the run is embedded by the last step. A run that ended
    too early is gone on with by the next one with the same embedder; of two at a time one makes the vectors current.
    """
    demand(principal, "reembed", "the store")
    tenant, store = principal.tenant, vault.store
    number, resumed = _pending(vault, principal, embedder)
    vault.use_embedder(tenant, embedder)
    done, vectors = 0, 0
    bar = Progress("re-embedding", vault.index(tenant).rows, progress)
    left, before = store.head(tenant).rows, None
    # Each round does what came during the one before. Where that is not much less, the last step does it: whoever
    # adds faster than this embeds would keep it from ever ending.
    while (
        left and (before is None or left <= before // 2) and not _in_force(store.generations(tenant), number)
    ):
        for first in range(done, done + left, REEMBED_BATCH):
            stop = min(first + REEMBED_BATCH, done + left)
            block, there = _missing(vault, tenant, embedder, number, first, stop, resumed)
            vectors += len(block) + there
            try:
                if len(block):
                    store.write_vectors(tenant, block)
            except StoreError:
                if not _in_force(store.generations(tenant), number):
                    raise
                break  # another run had done all of it, and was first to say so
            bar.to(stop)
        done += left
        left, before = store.head(tenant).rows - done, left
    with vault.write(principal) as writer:
        rows = writer.next_ordinal
        if not _in_force(writer.index.generations, number):
            block, there = _missing(vault, tenant, embedder, number, done, rows, resumed)
            vectors += len(block) + there
            if len(block):
                writer.batch.vectors.append(block)
            event = writer.event(
                Kind.GENERATION,
                payload={
                    "number": number,
                    "fingerprint": embedder.fingerprint,
                    "dimension": embedder.dimension,
                    "vectors": generation_digests(vault, tenant, number, rows, block),
                },
            )
            writer.batch.generations.append(
                Generation(number, embedder.fingerprint, embedder.dimension, event.seq)
            )
    bar.close()
    return ReembedReport(number, embedder.fingerprint, rows, vectors)


def _pending(vault: Vault, principal: Principal, embedder: Embedder) -> tuple[int, bool]:
    """The number of the generation to write, and whether some of it may be there: from a run that was not ended."""
    with vault.write(principal) as writer:
        known = {g.number: g for g in writer.index.generations}
        last = known.get(max(known, default=0))
        wanted = (embedder.fingerprint, embedder.dimension, None)
        if last is not None and (last.fingerprint, last.dimension, last.seq) == wanted:
            return last.number, True
        number = 1 + max(known, default=0)
        writer.event(Kind.MAINTAIN, payload={"what": "reembed", "number": number, "to": embedder.fingerprint})
        writer.batch.generations.append(Generation(number, embedder.fingerprint, embedder.dimension, None))
    return number, False


def _missing(
    vault: Vault, tenant: str, embedder: Embedder, number: int, first: int, stop: int, resumed: bool
) -> tuple[Vectors, int]:
    """The vectors of a generation for rows from `first` on that an earlier run has not stored, and how many it has.

    All of a row's vectors are stored in one transaction.
    """
    there = 0
    rows = vault.store.rows(tenant, range(first, stop))
    if resumed and rows:
        stored = vault.store.vectors(tenant, number, first, stop)
        there, known = len(stored), set(stored.ordinals.tolist())
        rows = [row for row in rows if row.ordinal not in known]
    return embed_rows(embedder, number, rows), there


def _in_force(generations: Sequence[Generation], number: int) -> bool:
    return any(g.number == number and g.seq is not None for g in generations)


def embed_rows(embedder: Embedder, number: int, rows: Sequence[Row]) -> Vectors:
    """Windows and vectors of stored rows; erased rows and those never embedded have none."""
    texts: list[str] = []
    owners: list[tuple[int, int, int, int]] = []
    for row in rows:
        if row.erased:
            continue
        lead = lead_in_of(row.event_at, row.speaker)
        room = max(16, embedder.max_tokens - (embedder.count_tokens(lead) if lead else 0))
        spans = text.windows(row.content, embedder.token_spans(row.content), room, WINDOW_OVERLAP)
        for part, (start, stop) in enumerate(spans):
            texts.append(lead + row.content[start:stop])
            owners.append((row.ordinal, part, start, stop))
    if not texts:
        return Vectors.of(number, owners, np.zeros((0, embedder.dimension), np.float32))
    windows = Counter(ordinal for ordinal, *_ in owners)
    data, codes = embed_texts(embedder, texts, [windows[ordinal] == 1 for ordinal, *_ in owners])
    return Vectors.of(number, owners, data, codes)


def generation_digests(
    vault: Vault, tenant: str, number: int, rows: int, last: Vectors | None = None
) -> dict[str, str]:
    """Per ordinal the digest of its vectors in a generation.

    Salted by the row's own salt, which an erasure destroys: afterwards the digest says nothing.
    """
    salts = {e.ordinal: e.salt for e in vault.store.events(tenant) if e.kind in (Kind.ADD, Kind.UPDATE)}
    out: dict[str, str] = {}
    stored = vault.store.vectors(tenant, number, 0, rows)
    for block in (stored,) if last is None else (stored, last):
        edges = np.flatnonzero(np.diff(block.ordinals, prepend=-1, append=-1))
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            ordinal = int(block.ordinals[a])
            salt = salts.get(ordinal) or b""
            if salt:
                out[str(ordinal)] = audit.vector_digest(salt, block.between(a, b))
    return out


def keep_receipt(vault: Vault, principal: Principal, receipt: Receipt) -> str:
    """Store a receipt so that `replay(id)` finds it."""
    body = receipt.to_json()
    with vault.write(principal) as writer:
        if vault.store.receipt(principal.tenant, body["id"]) is not None:
            return str(body["id"])  # the same question on the same state had the same answer
        event = writer.event(Kind.RECEIPT, payload={"id": body["id"], "seq": receipt.seq})
        writer.batch.receipts.append((body["id"], event.seq, audit.canonical(body)))
    return str(body["id"])


def feedback(
    vault: Vault,
    principal: Principal,
    receipt: Receipt | Mapping[str, Any] | str,
    useful: Sequence[str],
    useless: Sequence[str],
) -> None:
    """Log a judgement of a recall's answer; ids must be among it."""
    demand(principal, "feedback", "a recall")
    body = body_of(vault, principal, receipt)
    answered = {a[0] for a in body.get("answer", ())}
    strangers = [i for i in (*useful, *useless) if i not in answered]
    if strangers:
        raise InvalidInput(f"{strangers[0]!r} is not among the receipt's answer")
    both = set(useful) & set(useless)
    if both:
        raise InvalidInput(f"{min(both)!r} is called both useful and useless")
    with vault.write(principal) as writer:
        writer.event(
            Kind.FEEDBACK,
            payload={"receipt": body["id"], "useful": list(useful), "useless": list(useless)},
        )


def fit_profile(vault: Vault, principal: Principal, profile: Profile) -> fitting.Fit:
    """Fit a profile to the feedback on kept receipts, each asked again on the state it was asked on.

    Receipts that were not kept, were redacted, or came from other rules or another profile are passed over. Nothing
    is written: the caller decides whether to recall with the fitted profile.
    """
    demand(principal, "maintain", "the store")
    index = vault.index(principal.tenant)
    answers = []
    for _, payload in list(index.feedback):
        judgement = json.loads(payload)
        body = vault.store.receipt(principal.tenant, judgement["receipt"])
        kept = {} if body is None else json.loads(body)
        if kept.get("erased") or kept.get("algorithm") != algorithm():
            continue
        asked = stored(kept)
        if asked.query.profile != profile or asked.seq > index.seq:
            continue
        found = recall_at(vault, asked.principal, index, index.view(asked.seq), asked.query, asked.policy)
        useful = set(judgement["useful"])
        names = list(dict.fromkeys(name for hit in found for name in hit.parts))
        answers.append(
            fitting.Judged(
                {name: np.array([hit.parts.get(name, 0.0) for hit in found]) for name in names},
                np.array([hit.memory.id in useful for hit in found], np.bool_),
            )
        )
    return fitting.fit(answers, profile)
