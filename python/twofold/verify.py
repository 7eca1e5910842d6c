"""VERIFY: walk the hash chain, re-hash what is stored, and tell whether each part works."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold import audit
from twofold.access import Principal
from twofold.config import Config
from twofold.erase import all_rows
from twofold.explain import event_json
from twofold.index import kernel, kernels
from twofold.index.tenant import TenantIndex
from twofold.lookup import EVERYTHING, reader
from twofold.model import Kind
from twofold.remember import demand
from twofold.vault import Vault


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """head is "<seq>:<hash>": keep it elsewhere and pass it as expected_head to notice a cut tail."""

    ok: bool
    events: int
    rows: int
    erased: int
    head: str
    problems: tuple[str, ...]


def verify(vault: Vault, principal: Principal, *, expected_head: str | None = None) -> VerifyReport:
    """Every changed, missing or reordered entry of the tenant's log, by name."""
    demand(principal, "verify", "the log")
    tenant, store = principal.tenant, vault.store
    events = store.events(tenant)
    head = store.head(tenant)
    problems: list[str] = []
    erased_rows: dict[int, list[Any]] = {}
    erased_events: set[int] = set()
    for event in events:
        if event.kind == Kind.ERASE and event.payload:
            data = json.loads(event.payload)
            erased_events.update(data["events"])
            erased_rows.update({t[0]: t for t in data["tombstones"]})
    rows = {r.ordinal: r for r in all_rows(vault, tenant, head.rows)}
    previous, expected = b"", 1
    heads: dict[int, str] = {}
    for event in events:
        broken = audit.broken_link(previous, expected, event)
        if broken:
            problems.append(broken)
        previous, expected = event.hash, event.seq + 1
        heads[event.seq] = event.hash.hex()
        row = None
        if event.kind in (Kind.ADD, Kind.UPDATE):
            row = rows.get(-1 if event.ordinal is None else event.ordinal)
            if row is None:
                problems.append(f"the row of event {event.seq} (ordinal {event.ordinal}) is missing")
                continue
        if event.seq in erased_events:
            if event.payload or event.salt:
                problems.append(f"event {event.seq} was erased, but its payload is still there")
            if row is not None and audit.tombstone(row) != erased_rows.get(row.ordinal):
                problems.append(f"the tombstone of {row.id} (ordinal {row.ordinal}) was changed")
            continue

        def digest(salt: bytes, row: Any = row) -> str:
            if row.generation is None:
                return ""
            block = store.vectors_of(tenant, row.generation, [row.ordinal])
            return audit.vector_digest(salt, block.data, block.codes) if len(block) else ""

        dropped = row is not None and row.generation in dropped_generations(events)
        if dropped:
            continue
        broken = audit.broken_commitment(event, row, digest)
        if broken:
            problems.append(broken)
        elif event.kind == Kind.GENERATION:
            problems += broken_generation(vault, tenant, event, events, set(erased_rows))
    if (head.seq, head.hash) != (expected - 1, previous):
        problems.append(f"the head says seq {head.seq}, the log ends at {expected - 1}")
    if expected_head is not None:
        seq, _, digest_hex = expected_head.partition(":")
        if not seq.isdigit() or heads.get(int(seq)) != digest_hex:
            problems.append(
                f"the log does not contain the expected head {expected_head}: its tail was cut or redone"
            )
    problems += store.check(tenant)
    return VerifyReport(
        not problems,
        len(events),
        len(rows),
        len(erased_rows),
        f"{head.seq}:{head.hash.hex()}",
        tuple(problems),
    )


def dropped_generations(events: list[Any]) -> set[int]:
    """Generations that gc removed: their vectors cannot be re-hashed any more."""
    out: set[int] = set()
    for event in events:
        if event.kind == Kind.MAINTAIN and event.payload:
            data = json.loads(event.payload)
            if data.get("what") == "generations dropped":
                out.update(data["numbers"])
    return out


def broken_generation(
    vault: Vault, tenant: str, event: Any, events: list[Any], erased: set[int]
) -> list[str]:
    """Vectors of a re-embedding that differ from what its event committed to."""
    data = json.loads(event.payload)
    if "vectors" not in data or data["number"] in dropped_generations(events):
        return []
    salts = {e.ordinal: e.salt for e in events if e.kind in (Kind.ADD, Kind.UPDATE)}
    out = []
    for name, expected in data["vectors"].items():
        ordinal = int(name)
        if ordinal in erased or not salts.get(ordinal):
            continue
        block = vault.store.vectors_of(tenant, data["number"], [ordinal])
        if not len(block) or audit.vector_digest(salts[ordinal], block.data, block.codes) != expected:
            out.append(f"the vectors of ordinal {ordinal} in generation {data['number']} were changed")
    return out


def audit_log(vault: Vault, principal: Principal, after: int, limit: int | None) -> list[dict[str, Any]]:
    """The log as JSON values; for a handle narrowed to namespaces, what happened in them."""
    demand(principal, "audit", "the log")
    if not principal.is_narrowed:
        return [event_json(e) for e in vault.store.events(principal.tenant, after, limit)]
    events = vault.store.events(principal.tenant, after)
    mine = (e for e in events if e.namespace is not None and principal.reads(e.namespace))
    return [event_json(e) for e in itertools.islice(mine, limit)]


def health(vault: Vault, principal: Principal) -> dict[str, Any]:
    """Each part tried for real. Never raises for a part that fails: it is reported."""
    demand(principal, "health", "the store")
    checks: list[dict[str, Any]] = []
    problems = vault.store.check(principal.tenant)
    checks.append({"name": "store", "ok": not problems, "detail": "; ".join(problems) or vault.store.url})
    index = vault.index(principal.tenant)
    differences = index_differences(vault, index)
    checks.append(
        {
            "name": "index",
            "ok": not differences,
            "detail": "; ".join(differences)
            or f"{index.rows} rows at seq {index.seq}, equal to the rows stored",
        }
    )
    checks.append(
        {"name": "index file", "ok": True, "detail": vault.cache_state.get(principal.tenant, "none")}
    )
    checks.append({"name": "core", "ok": True, "detail": f"kernel {kernel()}, can run {kernels()}"})
    generation = index.current_generation()
    embedder = vault.embedder_of(principal.tenant)
    if embedder is None:
        checks.append({"name": "embedder", "ok": True, "detail": "none: words and relations only"})
    else:
        same = generation is None or generation.fingerprint == embedder.fingerprint
        detail = embedder.fingerprint
        if not same and generation is not None:
            detail = f"the store's vectors are by {generation.fingerprint}; run `twofold reembed`"
        checks.append({"name": "embedder", "ok": same, "detail": detail})
    return {"healthy": all(c["ok"] for c in checks), "checks": checks}


def index_differences(vault: Vault, index: TenantIndex) -> list[str]:
    """Rebuild the view from the rows and compare it with the one in use."""
    fresh = TenantIndex(index.tenant)
    with index.lock:
        vault.index(index.tenant)
        changes = vault.store.changes(index.tenant, 0)
        vault._feed(fresh, changes)
        if fresh.seq != index.seq:
            return []  # another process wrote between the two readings; nothing can be said
        out = []
        for name in ("row_seq", "valid_from", "valid_to", "closed", "erased", "tokens", "previous", "next"):
            a, b = getattr(fresh, name).view(), getattr(index, name).view()
            if not np.array_equal(a, b):
                out.append(f"column {name} differs from the rows stored")
        if fresh.content_hash != index.content_hash:
            out.append("content hashes differ from the rows stored")
        for number, part in fresh.vectors.items():
            mine = index.vectors.get(number)
            if mine is None or not np.array_equal(mine.ordinals.view(), part.ordinals.view()):
                out.append(f"vectors of generation {number} differ from those stored")
            elif len(part.ordinals):
                rows = np.arange(len(part.ordinals), dtype=np.int64)
                if not np.array_equal(mine.index.rows(rows), part.index.rows(rows)):
                    out.append(f"vectors of generation {number} differ from those stored")
    return out


def stats(vault: Vault, principal: Principal, config: Config) -> dict[str, Any]:
    """Counts of what the handle may see."""
    index = vault.index(principal.tenant)
    with index.lock:
        view = index.view()
        mask = index.scope_mask(reader(principal, EVERYTHING), view.rows) & ~view.closed
        now = max(vault.now(), view.recorded_at)
        valid = mask & (view.valid_to > now) & (index.valid_from.view(view.rows) <= now)
        rows = np.flatnonzero(mask)
        types = np.bincount(index.type.view(view.rows)[rows], minlength=len(index.types)).tolist()
        spaces = np.bincount(index.namespace.view(view.rows)[rows], minlength=len(index.namespaces)).tolist()
        generation = index.current_generation()
        out: dict[str, Any] = {
            "tenant": principal.tenant,
            "memories": len(rows),
            "current": int(np.count_nonzero(valid)),
            # By name: the order in which names first came up would tell of rows that are not to be seen.
            "by_type": {n: c for n, c in sorted(zip(index.types.names, types, strict=True)) if c},
            "by_namespace": {n: c for n, c in sorted(zip(index.namespaces.names, spaces, strict=True)) if c},
            "max_memories": config.l2_max_memories,
            "over_max_memories": max(0, len(rows) - config.l2_max_memories),
        }
        if principal.is_owner:
            latency, queries = vault.latency(principal.tenant), vault.queries(principal.tenant)
            out |= {
                "recalls": latency.recalls,
                "recalls_over_target": latency.missed,
                "slowest_recall_ms": round(latency.worst, 3),
                "query_cache": {"hits": queries.hits, "misses": queries.misses},
                "seq": view.seq,
                "versions": view.rows,
                "vectors": 0
                if generation is None or generation.number not in index.vectors
                else len(index.vectors[generation.number].ordinals),
                "embedder": None if generation is None else generation.fingerprint,
                "bytes": vault.store.size(principal.tenant),
            }
    return out
