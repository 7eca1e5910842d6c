"""Why a memory is where it is in an answer, and where a memory comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twofold import audit
from twofold.access import Principal
from twofold.clock import iso
from twofold.errors import NotFound
from twofold.lookup import EVERYTHING, memories, reader, versions_visible
from twofold.model import Event, Kind, Memory
from twofold.query import Query
from twofold.recall import Recall, recall, standing
from twofold.stores.schema import reads_stored
from twofold.vault import Vault


@dataclass(frozen=True, slots=True)
class Explanation:
    """place: rank from 1 in the answer, None when not in it. reason: one sentence. layers: rank per layer."""

    memory_id: str
    place: int | None
    reason: str
    score: float | None
    layers: dict[str, int]
    parts: dict[str, float]
    recall: Recall


def explain(vault: Vault, principal: Principal, query: Query, memory_id: str) -> Explanation:
    """Evaluate a recall and tell what became of one memory in it. Nothing is promoted."""
    index = vault.index(principal.tenant)
    if not versions_visible(index, reader(principal, EVERYTHING), memory_id, index.rows):
        raise NotFound(f"no memory {memory_id!r} in this handle's scope")
    found = recall(vault, principal, index, query)
    layers = {
        name: next(i for i, (m, _) in enumerate(ranked, 1) if m == memory_id)
        for name, ranked in found.trace.layers.items()
        if any(m == memory_id for m, _ in ranked)
    }
    for place, hit in enumerate(found, 1):
        if hit.memory.id == memory_id:
            best = max(hit.parts, key=lambda n: (hit.parts[n], n), default="nothing")
            reason = f"place {place} with a score of {hit.score:.4f}, most of it from {best}"
            return Explanation(memory_id, place, reason, hit.score, layers, hit.parts, found)
    barred = standing(vault, principal, index.view(found.trace.seq), query, memory_id)
    if barred is not None:
        reason = barred
    else:
        twins = dict(found.trace.dropped)
        if memory_id in twins:
            reason = f"left out: it says the same as {twins[memory_id]}"
        elif not layers:
            reason = f"no layer proposed it among its first {query.profile.depth}"
        else:
            reason = f"proposed, but {len(found)} others scored higher or fitted the budget"
    return Explanation(memory_id, None, reason, None, layers, {}, found)


@dataclass(frozen=True, slots=True)
class Why:
    """A memory's versions and every event of the log about it, oldest first."""

    versions: list[Memory]
    events: list[dict[str, Any]]

    def __str__(self) -> str:
        first = self.versions[0]
        lines = [f"{first.id} {first.memory_type} in {first.namespace}"]
        for e in self.events:
            lines.append(f"  {e['at']}  {e['what']} by {e['agent_id']} ({e['agent_role']})")
        return "\n".join(lines)


def why(vault: Vault, principal: Principal, memory_id: str) -> Why:
    """Who told the system, when, from what, and what happened since. NotFound outside the handle's scope."""
    index = vault.index(principal.tenant)
    with index.lock:
        ordinals = versions_visible(index, reader(principal, EVERYTHING), memory_id, index.rows)
        if not ordinals:
            raise NotFound(f"no memory {memory_id!r} in this handle's scope")
        versions = memories(vault, principal.tenant, index.view(), ordinals, vault.now())
        reach, rows = reader(principal, EVERYTHING), index.rows

        def seen(other: str | None) -> bool:
            return other is None or bool(versions_visible(index, reach, other, rows))

        events = [e for e in vault.store.events(principal.tenant) if e.seq <= index.seq]
        told = [t for e in events if (t := told_of(e, memory_id, set(ordinals), seen)) is not None]
    return Why(versions, [event_json(e) for e in told])


@reads_stored
def told_of(
    event: Event, memory_id: str, ordinals: set[int], seen: Callable[[str | None], bool]
) -> Event | None:
    """An event about a memory as a reader may be told it; other memories in it only where `seen` allows."""
    payload = json.loads(event.payload) if event.payload else {}
    if event.kind == Kind.LINK:
        ends = {payload.get("a"), payload.get("b")}
        return event if memory_id in ends and all(seen(one) for one in ends) else None
    if event.ordinal not in ordinals:
        return None
    if not seen(payload.get("by")):
        return event._replace(payload=audit.canonical({**payload, "by": None}))
    return event


_WHAT = {
    Kind.ADD: "added",
    Kind.UPDATE: "corrected",
    Kind.FORGET: "forgotten",
    Kind.ARCHIVE: "archived",
    Kind.RESTORE: "restored",
    Kind.ERASE: "erased",
    Kind.FLAG: "flagged for review",
    Kind.SUGGEST: "supersession suggested",
    Kind.LINK: "linked",
}


@reads_stored
def event_json(event: Event) -> dict[str, Any]:
    """A log entry as JSON values."""
    payload = json.loads(event.payload) if event.payload else {}
    what = _WHAT.get(Kind(event.kind), event.kind)
    if event.kind == Kind.SUPERSEDE:
        by = f" by {payload['by']}" if payload.get("by") else ""
        what = f"superseded{by} at {iso(payload['at'])}, rule {payload['rule']}" if payload else "superseded"
    elif event.kind == Kind.FLAG and payload.get("reason"):
        what = f"{what}: {payload['reason']}"
    return {
        "seq": event.seq,
        "kind": event.kind,
        "what": what,
        "at": iso(event.at),
        "agent_id": event.agent_id,
        "agent_role": event.agent_role,
        "namespace": event.namespace,
        "ordinal": event.ordinal,
        "payload": payload,
        "hash": event.hash.hex(),
    }
