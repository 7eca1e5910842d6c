"""When each row holds, derived from the log in the transaction that writes it, so that the database can object.

A row of `interval` says from when to when a version is true (valid time) and since which seq it is no longer
known (transaction time). An exclusion constraint forbids two rows of one key in one namespace to be true at
the same time. Some overlaps are legitimate, and those rows are exempt, with the reason in `why`:

hidden       not public: other writers may not see it, so they cannot end it
restored     brought back beside the fact that had replaced it
corrected    a correction whose start or key differs from the version it corrects
given        its writer gave an end of its own
suggested    the writer may not end its rival; the log has a suggestion instead
unseen       written in a role that reads only some types
twin         it says the same as its rival, in another session or mouth
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from twofold.clock import OPEN
from twofold.model import Batch, Event, Kind, Row

CLOSINGS: Final = ("supersede", "forget", "archive", "restore")

# A soft reason exempts a row only if it really overlaps; "twin" needs a look at the rival.
PUT: Final = """INSERT INTO @interval (tenant, ordinal, seq, namespace, memory_type, slot_a, slot_b, content_hash,
        valid_from, valid_to, closed, exclusive, why)
    SELECT %(tenant)s, %(ordinal)s, %(seq)s, %(namespace)s, %(memory_type)s, %(slot_a)s, %(slot_b)s,
        %(content_hash)s, %(valid_from)s, %(valid_to)s, %(closed)s,
        %(slot_a)s::bigint IS NOT NULL AND NOT %(hidden)s AND rival.why IS NULL,
        CASE WHEN %(hidden)s THEN 'hidden' ELSE rival.why END
    FROM (SELECT min(coalesce(%(soft)s::text, CASE WHEN i.content_hash = %(content_hash)s THEN 'twin' END)) AS why
        FROM @interval AS i
        WHERE i.tenant = %(tenant)s AND i.slot_a = %(slot_a)s AND i.slot_b = %(slot_b)s
        AND i.exclusive AND i.closed IS NULL AND %(closed)s::bigint IS NULL
        AND i.valid_from < %(valid_to)s AND %(valid_from)s < i.valid_to AND i.valid_from < i.valid_to
    ) AS rival"""
PUT_PLAIN: Final = """INSERT INTO @interval (tenant, ordinal, seq, namespace, memory_type, content_hash,
        valid_from, valid_to, closed, exclusive)
    VALUES (%(tenant)s, %(ordinal)s, %(seq)s, %(namespace)s, %(memory_type)s, %(content_hash)s, %(valid_from)s,
        %(valid_to)s, %(closed)s, false)"""
END_VALID: Final = (
    "UPDATE @interval SET valid_to = least(valid_to, %s) WHERE tenant = %s AND ordinal = %s AND valid_to > %s"
)
END_KNOWN: Final = "UPDATE @interval SET closed = %s WHERE tenant = %s AND ordinal = %s AND closed IS NULL"
CLOSINGS_OF: Final = (
    "SELECT seq, kind, payload FROM @event WHERE tenant = %s AND ordinal = %s "
    f"AND kind IN {CLOSINGS} ORDER BY seq"
)
REOPEN: Final = """UPDATE @interval SET valid_to = %(valid_to)s, exclusive = false, why = 'restored',
        closed = CASE WHEN closed = ANY(%(voids)s) THEN %(closed)s ELSE closed END
    WHERE tenant = %(tenant)s AND ordinal = %(ordinal)s"""
DROP: Final = "DELETE FROM @interval WHERE tenant = %s AND ordinal = ANY(%s)"
READ: Final = """SELECT i.ordinal, i.valid_from, i.valid_to, i.closed FROM @interval AS i
    WHERE i.tenant = %s ORDER BY i.ordinal"""


@dataclass(slots=True)
class Derived:
    """What a batch does to the intervals: rows to put, ends of older rows, and rows to look at again."""

    puts: list[dict[str, Any]] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)  # ordinal, end of valid time
    closes: list[tuple[int, int]] = field(default_factory=list)  # ordinal, seq
    reopened: list[int] = field(default_factory=list)


def slot(tenant: str, namespace: str, key: str) -> tuple[int, int]:
    """Two numbers of 62 bits that stand for a key: small enough that a range of one number has an end."""
    name = json.dumps([tenant, namespace, key], ensure_ascii=False).encode()
    digest = hashlib.sha256(name).digest()
    return int.from_bytes(digest[:8], "big") >> 2, int.from_bytes(digest[8:16], "big") >> 2


def derive(tenant: str, batch: Batch) -> Derived:
    """The changes to the intervals that a batch's rows and events mean."""
    out = Derived()
    fresh = {row.ordinal: _put(tenant, row) for row in batch.rows if not row.erased}
    by_id = {row.id: row.ordinal for row in batch.rows}
    reopened: dict[int, None] = {}
    for event in batch.events:
        data = _payload(event)
        if event.kind == Kind.UPDATE and "closes" in data:
            if event.ordinal in fresh:
                fresh[event.ordinal]["soft"] = "corrected"
            _close(out, fresh, data["closes"], event.seq)
        elif event.ordinal is None:
            continue
        elif event.kind == Kind.SUPERSEDE and "at" in data:
            mine = fresh.get(event.ordinal)
            if mine is None:
                out.ends.append((event.ordinal, data["at"]))
                continue
            mine["valid_to"] = min(mine["valid_to"], data["at"])
            if data.get("rule") == "given":
                mine["soft"] = "given"
        elif event.kind in (Kind.FORGET, Kind.ARCHIVE):
            _close(out, fresh, event.ordinal, event.seq)
        elif event.kind == Kind.RESTORE:
            reopened[event.ordinal] = None
        elif event.kind == Kind.SUGGEST and data.get("by") in by_id:
            fresh_one = fresh.get(by_id[data["by"]])
            if fresh_one is not None:
                fresh_one["soft"] = "suggested"
    for row in batch.rows:
        if row.agent_role == "reviewer" and row.ordinal in fresh:
            one = fresh[row.ordinal]
            one["soft"] = one["soft"] or "unseen"
    out.puts = list(fresh.values())
    out.reopened = list(reopened)
    return out


def settle(events: Sequence[tuple[int, str, str]]) -> tuple[int, int | None, list[int]]:
    """End of valid time, seq of the standing retraction, and the voided seqs, from a row's closing events."""
    said = [(seq, kind, json.loads(payload) if payload else {}) for seq, kind, payload in events]
    voids = {void for _, kind, data in said if kind == Kind.RESTORE for void in data.get("voids", ())}
    valid_to, closed = OPEN, None
    for seq, kind, data in said:
        if seq in voids:
            continue
        if kind == Kind.SUPERSEDE:
            valid_to = min(valid_to, data.get("at", OPEN))
        elif kind in (Kind.FORGET, Kind.ARCHIVE) and closed is None:
            closed = seq
    return valid_to, closed, sorted(voids)


def _put(tenant: str, row: Row) -> dict[str, Any]:
    slot_a, slot_b = (None, None) if row.key is None else slot(tenant, row.namespace, row.key)
    return {
        "tenant": tenant,
        "ordinal": row.ordinal,
        "seq": row.seq,
        "namespace": row.namespace,
        "memory_type": row.memory_type,
        "slot_a": slot_a,
        "slot_b": slot_b,
        "content_hash": row.content_hash,
        "valid_from": row.valid_from,
        "valid_to": OPEN,
        "closed": None,
        "hidden": row.visibility != "public",
        "soft": None,
    }


def _close(out: Derived, fresh: dict[int, dict[str, Any]], ordinal: int, seq: int) -> None:
    mine = fresh.get(ordinal)
    if mine is None:
        out.closes.append((ordinal, seq))
    elif mine["closed"] is None:
        mine["closed"] = seq


def _payload(event: Event) -> dict[str, Any]:
    if not event.payload or event.kind == Kind.ADD:
        return {}
    loaded = json.loads(event.payload)
    return loaded if isinstance(loaded, dict) else {}
