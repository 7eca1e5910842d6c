"""ERASURE: the right to be forgotten. Content goes from rows, vectors, receipts and files; a tombstone stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from twofold import audit, text
from twofold.access import Principal
from twofold.errors import InvalidInput, NotFound
from twofold.ledger import Ledger
from twofold.model import Event, Kind, Row
from twofold.receipt import text_hash
from twofold.remember import demand, find
from twofold.stores.schema import reads_stored
from twofold.vault import Vault, Writer

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased, or would be: memory ids, how many versions, and which kept receipts were redacted."""

    ids: tuple[str, ...]
    versions: int
    receipts: tuple[str, ...]
    applied: bool
    seq: int | None = None


def erase(vault: Vault, principal: Principal, memory_id: str, reason: str) -> Erasure:
    """Erase every version of a memory and what was derived from it."""
    demand(principal, "erase", repr(memory_id))
    if not reason or not reason.strip():
        raise InvalidInput("erase needs a reason, which the log keeps; do not put the erased content in it")
    vault.flush(principal.tenant)
    with vault.write(principal) as writer:
        known = find(principal, Ledger(writer.index), memory_id)
        chosen = [r for r in all_rows(vault, principal.tenant, writer.next_ordinal) if not r.erased]
        wanted = with_derived(chosen, {known.id})
        if not any(r.id == known.id for r in chosen):
            raise NotFound(f"{memory_id!r} is erased already")
        result = apply(writer, wanted, reason)
    vault.queries(principal.tenant).clear()
    vault.drop_cache(principal.tenant)
    vault.store.scrub()
    return result


def erase_where(
    vault: Vault,
    principal: Principal,
    *,
    namespace: str | None,
    agent_id: str | None,
    source_id: str | None,
    session_id: str | None,
    everything: bool,
    reason: str,
    dry_run: bool,
) -> Erasure:
    """Erase all memories with a version that matches every condition given, and what was derived from them."""
    demand(principal, "erase", "memories")
    conditions = {
        name: value
        for name, value in (
            ("namespace", namespace),
            ("agent_id", agent_id),
            ("source_id", source_id),
            ("session_id", session_id),
        )
        if value is not None
    }
    if not conditions and not everything:
        raise InvalidInput("erase_where needs a condition; everything=True erases the whole tenant")
    if conditions and everything:
        raise InvalidInput("everything=True takes no conditions")
    if not dry_run and not reason.strip():
        raise InvalidInput("erase_where needs a reason, which the log keeps")

    def select(rows: list[Row]) -> list[Row]:
        ids = {r.id for r in rows if all(getattr(r, n) == v for n, v in conditions.items())}
        return with_derived(rows, ids)

    if dry_run:
        index = vault.index(principal.tenant)
        rows = [r for r in all_rows(vault, principal.tenant, index.rows) if not r.erased]
        chosen = select(rows)
        redacted = tuple(i for i, _ in receipts_naming(vault, principal.tenant, chosen))
        return Erasure(tuple(dict.fromkeys(r.id for r in chosen)), len(chosen), redacted, False)
    vault.flush(principal.tenant)
    with vault.write(principal) as writer:
        rows = [r for r in all_rows(vault, principal.tenant, writer.next_ordinal) if not r.erased]
        chosen = select(rows)
        if not chosen:
            return Erasure((), 0, (), False)
        result = apply(writer, chosen, reason)
    vault.queries(principal.tenant).clear()
    vault.drop_cache(principal.tenant)
    vault.store.scrub()
    return result


def all_rows(vault: Vault, tenant: str, stop: int) -> Iterator[Row]:
    """Every row of a tenant below an ordinal."""
    for first in range(0, stop, CHUNK):
        yield from vault.store.rows(tenant, range(first, min(first + CHUNK, stop)))


def with_derived(rows: list[Row], ids: set[str]) -> list[Row]:
    """The rows of these ids and of everything derived from them, at any distance."""
    wanted = set(ids)
    while True:
        more = {r.id for r in rows if r.id not in wanted and wanted.intersection(r.derived_from)}
        if not more:
            return [r for r in rows if r.id in wanted]
        wanted |= more


def receipts_naming(vault: Vault, tenant: str, rows: list[Row]) -> list[tuple[str, str]]:
    """Kept receipts that answered with one of these rows or whose question shares text with one: (id, redacted)."""
    ids = {r.id for r in rows}
    contents = [r.content.strip() for r in rows]
    gone = {r.ordinal for r in rows}
    words = {w for r in rows for w in words_of(r)}
    # Words that others use too say nothing about what is erased; those that only it had do.
    for other in all_rows(vault, tenant, vault.store.head(tenant).rows) if words else ():
        if other.ordinal not in gone and not other.erased:
            words -= words_of(other)
    out = []
    for receipt_id, seq in vault.store.receipts(tenant):
        body = json.loads(vault.store.receipt(tenant, receipt_id) or "{}")
        if body.get("erased"):
            continue
        question = body.get("query", "")
        shares = any(question in c or c in question for c in contents)
        asked = " ".join([question, audit.canonical(body.get("filters", {}))])
        shares = shares or not words.isdisjoint({*body.get("terms", ()), *text.terms(asked)})
        if shares or ids.intersection(a[0] for a in body.get("answer", ())):
            kept = {k: body[k] for k in ("id", "seq", "tenant", "agent_id", "namespaces", "now", "algorithm")}
            out.append((receipt_id, audit.canonical({**kept, "seq": seq, "erased": True})))
    return out


def quotes(event: Event, ordinals: set[int], ids: set[str], receipts: set[str]) -> bool:
    """Whether an event holds or commits to content of these rows: what added them, flags, relations, receipts."""
    if event.kind in (Kind.ADD, Kind.UPDATE, Kind.FLAG):
        return event.ordinal in ordinals
    if event.kind == Kind.LINK:
        payload = json.loads(event.payload)
        return not ids.isdisjoint((payload["a"], payload["b"]))
    return event.kind == Kind.RECEIPT and json.loads(event.payload)["id"] in receipts


@reads_stored
def words_of(row: Row) -> set[str]:
    """The lexemes of a row, and the words of what else could name it in a question or a filter."""
    named = (*row.entities, row.key, row.speaker, row.session_id, row.source_id)
    return {*json.loads(row.lexemes), *text.terms(" ".join(n for n in named if n))}


def apply(writer: Writer, rows: list[Row], reason: str) -> Erasure:
    """Write the tombstones and blank everything that held or committed to the content."""
    vault, tenant = writer.vault, writer.principal.tenant
    ordinals = sorted(r.ordinal for r in rows)
    gone = set(ordinals)
    redacted = receipts_naming(vault, tenant, rows)
    named = {i for i, _ in redacted}
    ids = {r.id for r in rows}
    blank = [e.seq for e in vault.store.events(tenant) if e.payload and quotes(e, gone, ids, named)]
    event = writer.event(
        Kind.ERASE,
        payload={
            "tombstones": [audit.tombstone(r) for r in rows],
            "events": blank,
            "receipts": {i: text_hash(body) for i, body in sorted(redacted)},
            "namespaces": sorted({r.namespace for r in rows}),
            "reason": reason.strip(),
        },
    )
    writer.batch.erase_rows += ordinals
    writer.batch.erase_events += blank
    writer.batch.erase_receipts += redacted
    return Erasure(tuple(dict.fromkeys(r.id for r in rows)), len(rows), tuple(sorted(named)), True, event.seq)
