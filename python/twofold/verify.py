"""VERIFY: walk the hash chain, re-hash what is stored, and tell whether each part works."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from twofold import audit
from twofold.access import Principal
from twofold.clock import SystemClock, to_us
from twofold.config import Config
from twofold.errors import EmbedderUnavailable, NotFound, StoreError, TwofoldError
from twofold.explain import event_json
from twofold.index import ann, kernel, kernels
from twofold.index.columns import ranges
from twofold.index.tenant import TenantIndex, VectorPart
from twofold.lookup import EVERYTHING, reader
from twofold.model import Event, Finding, Kind, Row, Vectors
from twofold.receipt import text_hash
from twofold.remember import demand
from twofold.stores import examine_unopened, schema
from twofold.vault import Vault

if TYPE_CHECKING:
    from twofold.stores.base import Store


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
    problems: list[str] = []
    head = store.head(tenant)
    events = read_events(store, tenant, problems)
    erased, dropped = erased_by(events), dropped_by(events)
    added = [e.ordinal for e in events if e.kind in _ADDS and e.ordinal is not None]
    salts = {e.ordinal: e.salt for e in events if e.kind in _ADDS}
    rows = read_rows(store, tenant, added, problems)
    vectors = Digests(store, tenant, salts, dropped, rows)
    previous, expected = b"", 1
    heads: dict[int, str] = {}
    for event in events:
        broken = audit.broken_link(previous, expected, event)
        if broken:
            problems.append(broken)
        previous, expected = event.hash, event.seq + 1
        heads[event.seq] = event.hash.hex()
        row = None
        if event.kind in _ADDS:
            row = rows.get(-1 if event.ordinal is None else event.ordinal)
            if row is None:
                problems.append(f"the row of event {event.seq} (ordinal {event.ordinal}) is missing")
                continue
        if event.seq in erased.events:
            if event.payload or event.salt:
                problems.append(f"event {event.seq} was erased, but its payload is still there")
            if row is not None and audit.tombstone(row) != erased.rows.get(row.ordinal):
                problems.append(f"the tombstone of {row.id} (ordinal {row.ordinal}) was changed")
            if row is not None and row != schema.blank(row):
                problems.append(f"{row.id} (ordinal {row.ordinal}) was erased and has content again")
            continue
        broken = audit.broken_commitment(event, row, functools.partial(vectors.of, row))
        if broken:
            problems.append(broken)
    problems += vectors.problems
    problems += broken_generations(store, tenant, events, erased, vectors)
    problems += broken_receipts(store, tenant, events, erased)
    if (head.seq, head.hash) != (expected - 1, previous):
        problems.append(f"the head says seq {head.seq}, the log ends at {expected - 1}")
    if expected_head is not None:
        seq, _, digest_hex = expected_head.partition(":")
        if not seq.isdigit() or heads.get(int(seq)) != digest_hex:
            problems.append(
                f"the log does not contain the expected head {expected_head}: its tail was cut or redone"
            )
    try:
        problems += store.check(tenant)
    except StoreError as error:
        problems.append(f"the store cannot be checked: {error}")
    return VerifyReport(
        not problems,
        len(events),
        len(rows),
        len(erased.rows),
        f"{head.seq}:{head.hash.hex()}",
        tuple(dict.fromkeys(problems)),
    )


_ADDS: Final = (Kind.ADD, Kind.UPDATE)
_CHUNK: Final = 500  # rows read at a time


def read_events(store: Store, tenant: str, problems: list[str]) -> list[Event]:
    """The log. What cannot be read is reported and left out, one entry at a time."""
    try:
        return store.events(tenant)
    except StoreError:
        events: list[Event] = []
    after = 0
    while True:
        try:
            found = store.events(tenant, after, 1)
        except StoreError as error:
            after += 1
            problems.append(f"event {after} cannot be read: {error}")
            continue
        if not found:
            return events
        events += found
        after = found[0].seq


def read_rows(store: Store, tenant: str, ordinals: list[int], problems: list[str]) -> dict[int, Row]:
    """Rows by ordinal. What cannot be read is reported, what is not there is left out."""
    rows: dict[int, Row] = {}
    for first in range(0, len(ordinals), _CHUNK):
        chunk = ordinals[first : first + _CHUNK]
        try:
            rows.update({r.ordinal: r for r in store.rows(tenant, chunk)})
        except (StoreError, NotFound):
            for ordinal in chunk:
                try:
                    rows[ordinal] = store.rows(tenant, [ordinal])[0]
                except NotFound:
                    continue
                except StoreError as error:
                    problems.append(f"row {ordinal} cannot be read: {error}")
    return rows


def payload_of(event: Event) -> dict[str, Any]:
    """What an event says, {} when that cannot be read: the commitment tells that it was changed."""
    try:
        data = json.loads(event.payload) if event.payload else {}
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


@dataclass(slots=True)
class Erased:
    """What the log's erasures removed: tombstones by ordinal, blanked events, redacted receipts by id."""

    rows: dict[int, list[Any]] = field(default_factory=dict)
    events: set[int] = field(default_factory=set)
    receipts: dict[str, str] = field(default_factory=dict)


def erased_by(events: Sequence[Event]) -> Erased:
    out = Erased()
    for event in events:
        if event.kind == Kind.ERASE:
            data = payload_of(event)
            # A changed payload may be anything; that it was changed is reported with its event.
            with contextlib.suppress(TypeError, ValueError, LookupError):
                out.events.update(data.get("events", ()))
                out.rows.update({t[0]: t for t in data.get("tombstones", ())})
                out.receipts.update(data.get("receipts", {}))
    return out


def dropped_by(events: Sequence[Event]) -> dict[int, dict[str, str]]:
    """Generations that gc removed, with the digests of the vectors they had."""
    out: dict[int, dict[str, str]] = {}
    for event in events:
        if event.kind == Kind.MAINTAIN:
            data = payload_of(event)
            if data.get("what") == "generations dropped":
                digests = data.get("vectors", {})
                with contextlib.suppress(TypeError, ValueError, AttributeError):
                    out.update({int(n): digests.get(str(n), {}) for n in data.get("numbers", ())})
    return out


class Digests:
    """Salted digests of the stored vectors, read a block at a time."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        salts: Mapping[int | None, bytes],
        dropped: Mapping[int, Mapping[str, str]],
        rows: Mapping[int, Row],
    ) -> None:
        self._store, self._tenant = store, tenant
        self._salts, self._dropped, self._rows = salts, dropped, rows
        self._known: dict[tuple[int, int], dict[int, str]] = {}
        self.problems: list[str] = []

    def of(self, row: Row | None, _salt: bytes) -> str:
        """The digest of a row's vectors in its own generation, under the salt of the event that added it."""
        if row is None or row.generation is None:
            return ""
        if row.generation in self._dropped:
            return str(self._dropped[row.generation].get(str(row.ordinal), ""))
        return self.within(row.generation, row.ordinal)

    def within(self, generation: int, ordinal: int) -> str:
        """The digest of a row's vectors in any generation; "" when there are none."""
        place = (generation, ordinal // _CHUNK)
        block = self._known.get(place)
        if block is None:
            if len(self._known) > 4:
                self._known.clear()
            block = self._known[place] = self._read(generation, place[1] * _CHUNK)
        return block.get(ordinal, "")

    def _read(self, generation: int, first: int) -> dict[int, str]:
        try:
            found = self._store.vectors(self._tenant, generation, first, first + _CHUNK)
            return self._digests(found)
        except NotFound:
            return {}
        except StoreError:
            out: dict[int, str] = {}
        for ordinal in range(first, first + _CHUNK):
            if ordinal not in self._rows:
                continue
            try:
                out |= self._digests(self._store.vectors_of(self._tenant, generation, [ordinal]))
            except StoreError as error:
                self.problems.append(f"the vectors of row {ordinal} cannot be read: {error}")
        return out

    def _digests(self, block: Vectors) -> dict[int, str]:
        edges = np.flatnonzero(np.diff(block.ordinals, prepend=-1, append=-1))
        out = {}
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            ordinal = int(block.ordinals[a])
            salt = self._salts.get(ordinal)
            if salt:
                out[ordinal] = audit.vector_digest(salt, block.between(a, b))
        return out


def broken_generations(
    store: Store, tenant: str, events: Sequence[Event], erased: Erased, vectors: Digests
) -> list[str]:
    """Generations that differ from what the log says of them, and vectors of a re-embedding that were changed."""
    problems: list[str] = []
    dropped = dropped_by(events)
    expected: dict[int, tuple[str, int | None]] = {}
    for event in events:
        data = payload_of(event)
        number = data.get("number")
        if not isinstance(number, int) or number in dropped:
            continue
        if event.kind == Kind.GENERATION:
            expected[number] = (f"{data.get('fingerprint')} {data.get('dimension')}", event.seq)
            digests = data.get("vectors", {})
            for name, digest in digests.items() if isinstance(digests, dict) else ():
                ordinal = int(name) if name.isdigit() else -1
                if ordinal not in erased.rows and vectors.within(number, ordinal) != digest:
                    problems.append(f"the vectors of row {ordinal} in generation {number} were changed")
        elif event.kind == Kind.MAINTAIN and data.get("what") == "reembed":
            expected.setdefault(number, (str(data.get("to")), None))
    try:
        found = {g.number: g for g in store.generations(tenant)}
    except StoreError as error:
        return [*problems, f"the embedding generations cannot be read: {error}"]
    for number in sorted(found.keys() | expected.keys()):
        if number not in found:
            problems.append(f"embedding generation {number} is missing")
            continue
        g, wanted = found[number], expected.get(number)
        said = f"{g.fingerprint} {g.dimension}" if g.seq is not None else g.fingerprint
        if wanted != (said, g.seq):
            problems.append(f"embedding generation {number} ({said}) is not what the log says of it")
    return problems


def broken_receipts(store: Store, tenant: str, events: Sequence[Event], erased: Erased) -> list[str]:
    """Kept receipts that are missing, strange, or not what they were."""
    problems: list[str] = []
    kept = {payload_of(e).get("id"): e.seq for e in events if e.kind == Kind.RECEIPT and e.payload}
    try:
        found = dict(store.receipts(tenant))
    except StoreError as error:
        return [f"the kept receipts cannot be read: {error}"]
    for receipt_id in sorted({*found, *(str(i) for i in kept), *erased.receipts}):
        if receipt_id not in found:
            problems.append(f"receipt {receipt_id} is missing")
            continue
        try:
            text = store.receipt(tenant, receipt_id) or ""
        except StoreError as error:
            problems.append(f"receipt {receipt_id} cannot be read: {error}")
            continue
        if receipt_id in erased.receipts:
            whole = text_hash(text) == erased.receipts[receipt_id] and f'"seq":{found[receipt_id]},' in text
        else:
            whole = kept.get(receipt_id) == found[receipt_id] and receipt_hash(text) == receipt_id
        if not whole:
            problems.append(f"receipt {receipt_id} was changed")
    return problems


def receipt_hash(text: str) -> str | None:
    """The id that a stored receipt's own content gives it; None when it is not one."""
    try:
        body = json.loads(text)
        body.pop("id")
    except (ValueError, AttributeError, KeyError, TypeError):
        return None
    return text_hash(audit.canonical(body))[:32] if audit.canonical(json.loads(text)) == text else None


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
    checks.append({"name": "graph", "ok": True, "detail": getattr(vault.store, "graph", "in RAM")})
    checks.append({"name": "core", "ok": True, "detail": f"kernel {kernel()}, can run {kernels()}"})
    if vault.ann_rows is not None:
        checks.append(graph_check(vault, index))
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
    if vault.follower is not None:
        state = vault.follower.state()
        detail = state["problem"] or f"{state['mode']}, {state['rounds']} rounds, {state['notices']} notices"
        checks.append({"name": "follower", "ok": state["alive"] and not state["problem"], "detail": detail})
    if vault.replica is not None:
        found = vault.replica.state()
        detail = found["why"] if found["away"] else f"{found['url']}, served {found['served']}"
        checks.append({"name": "replica", "ok": not found["away"], "detail": detail})
    return {"healthy": all(c["ok"] for c in checks), "checks": checks}


# What to do where a check of `health` fails; its detail says what is wrong.
_REMEDIES = {
    "store": "run `twofold verify`, then restore a backup if it finds damage",
    "index": "close every process that has the store open, and delete the folder of derived files beside it",
    "approximate search": "set ann='off'",
    "embedder": "open the store with the embedder that made its vectors, or run `twofold reembed`",
    "follower": "open the store again; recalls catch up by themselves meanwhile",
    "replica": "look at the replica; recalls are served by the primary meanwhile",
    "hash chain": "restore a backup; what was changed is named",
    "open": "see the message",
}


def doctor(vault: Vault, principal: Principal) -> dict[str, Any]:
    """`health` and the hash chain, and for the tenant's owner what the store says about its server."""
    demand(principal, "health", "the store")
    found: list[Finding] = []
    try:
        checks = health(vault, principal)["checks"]
        found += [_finding(check["name"], check["ok"], check["detail"]) for check in checks]
        chain = verify(vault, principal)
        detail = "; ".join(chain.problems) or f"{chain.events} events, head {chain.head[:20]}…"
        found.append(_finding("hash chain", chain.ok, detail))
    except StoreError as error:
        found.append(_finding("store", False, str(error)))  # what its server says follows
    examine: Any = getattr(vault.store, "examine", None)
    if examine is not None and principal.is_owner:
        found += examine(principal.tenant, vault.now, vault.replica)
    return _told(found)


def doctor_unopened(address: str, error: TwofoldError) -> dict[str, Any]:
    """What can be told where opening a store failed."""
    name = "embedder" if isinstance(error, EmbedderUnavailable) else "open"
    found = [Finding(name, "fail", str(error), "see the message")]
    found.append(Finding("core", "ok", f"kernel {kernel()}, can run {kernels()}"))
    if isinstance(error, StoreError):
        found += examine_unopened(address, lambda: to_us(SystemClock().now()))
    return _told(found)


def _finding(name: str, ok: bool, detail: str) -> Finding:
    return Finding(name, "ok", detail) if ok else Finding(name, "fail", detail, _REMEDIES[name])


def _told(found: Sequence[Finding]) -> dict[str, Any]:
    checks = [{**one._asdict(), "ok": one.state != "fail"} for one in found]
    return {"healthy": all(check["ok"] for check in checks), "checks": checks}


def graph_check(vault: Vault, index: TenantIndex) -> dict[str, Any]:
    """What approximate search does for this tenant, and how much of the exact answer its graph proposes."""
    generation = index.current_generation()
    part = None if generation is None else index.vectors.get(generation.number)
    if part is None or vault.ann_rows is None or len(part.index) < vault.ann_rows:
        held = 0 if part is None else len(part.index)
        detail = f"search is exact: {held} vectors, below ann_rows ({vault.ann_rows})"
        return {"name": "approximate search", "ok": True, "detail": detail}
    with index.lock:
        vault.seek_graph(index, part)
        graph = part.ann
        if graph is None:
            return {"name": "approximate search", "ok": True, "detail": vault.ann_state[index.tenant]}
        found = graph.measure(part)
    good = found.ten >= ann.LEAST_RECALL
    return {
        "name": "approximate search",
        "ok": good,
        "detail": f"{graph.origin.library} graph over {len(graph)} of {len(part.index)} vectors, "
        f"{vault.ann_state[index.tenant]}; recall at 10 is {found.ten:.4f} (least {found.worst_ten:.1f}), at "
        f"{found.depth} {found.deep:.4f}, over {found.sampled} sampled rows"
        + ("" if good else "; set ann='off', these vectors do not suit it"),
    }


def index_differences(vault: Vault, index: TenantIndex) -> list[str]:
    """Rebuild the view from the rows and compare it with the one in use."""
    fresh = TenantIndex(index.tenant)
    with index.lock:
        vault.index(index.tenant)
        changes = vault.store.changes(index.tenant, 0)
        vault._feed(fresh, changes, vault.store)
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
                if not same_tokens(mine, part):
                    out.append(f"token codes of generation {number} differ from those stored")
    return out


def same_tokens(a: VectorPart, b: VectorPart) -> bool:
    """Whether two parts of as many vectors have the same token codes; some thousand vectors at a time."""
    for first in range(0, len(a.ordinals), 4096):
        vectors = np.arange(first, min(first + 4096, len(a.ordinals)), dtype=np.int64)
        owned = []
        for part in (a, b):
            codes, starts, stops = part.token_rows(vectors)
            owned.append((stops - starts, codes[ranges(starts, stops)[0]]))
        if not all(np.array_equal(mine, theirs) for mine, theirs in zip(*owned, strict=True)):
            return False
    return True


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
            if vault.replica is not None:
                out["replica"] = vault.replica.state()
    return out
