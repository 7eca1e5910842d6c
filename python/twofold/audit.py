"""The hash chain: what an entry of the log commits to, and how a chain is walked. Pure functions.

hash(n) = sha256(hash(n-1) | header(n) | commitment(n)); commitment(n) = sha256(salt | what was written).
The header (seq, kind, time, agent, role, namespace, ordinal) stays after an erasure; content is only ever
behind the salted commitment, so destroying the salt makes it unguessable while the chain still verifies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from twofold.model import Event, Row, Vectors

SALT_BYTES: Final = 16
GENESIS: Final = b"twofold log 1"

# Tombstones keep these; everything else of a row goes with its content.
TOMBSTONE: Final = (
    "ordinal",
    "seq",
    "id",
    "version",
    "namespace",
    "memory_type",
    "visibility",
    "agent_id",
    "agent_role",
    "recorded_at",
    "valid_from",
)


def canonical(value: Any) -> str:
    """JSON with sorted keys, no spaces and no ASCII escapes: one text for one value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def row_text(row: Row) -> str:
    """The canonical text of a row, every column included."""
    return canonical(list(row))


def tombstone(row: Row) -> list[Any]:
    """What an erase event records of the row it erases."""
    return [getattr(row, name) for name in TOMBSTONE]


def vector_digest(salt: bytes, vectors: Vectors) -> str:
    """Salted digest of a memory's vectors, their spans and token codes, hex; "" for none.

    The salt is that of the event which added the memory.
    """
    if not len(vectors):
        return ""
    digest = hashlib.sha256(salt)
    for spans in (vectors.parts, vectors.starts, vectors.stops):
        digest.update(np.ascontiguousarray(spans, "<i8").tobytes())
    digest.update(np.ascontiguousarray(vectors.data, "<f4").tobytes())
    for part, one in enumerate(vectors.codes):
        if one:
            digest.update(part.to_bytes(8, "big") + len(one).to_bytes(8, "big") + one)
    return digest.hexdigest()


def commitment(salt: bytes, payload: str, row: Row | None = None, vectors: str = "") -> bytes:
    """sha256 over the salt, the event's payload, the row it added, and the digest of the row's vectors."""
    body = canonical([payload, None if row is None else row_text(row), vectors])
    return hashlib.sha256(salt + body.encode("utf-8", "surrogatepass")).digest()


def chain(
    previous: bytes,
    seq: int,
    kind: str,
    at: int,
    agent_id: str,
    agent_role: str,
    namespace: str | None,
    ordinal: int | None,
    committed: bytes,
) -> bytes:
    """The hash of an entry, given the hash of the one before it (b"" for the first)."""
    header = canonical([seq, kind, at, agent_id, agent_role, namespace, ordinal])
    return hashlib.sha256((previous or GENESIS) + header.encode() + committed).digest()


def make_event(
    previous: bytes,
    seq: int,
    kind: str,
    at: int,
    agent_id: str,
    agent_role: str,
    salt: bytes,
    *,
    namespace: str | None = None,
    ordinal: int | None = None,
    payload: Any = None,
    row: Row | None = None,
    vectors: str = "",
) -> Event:
    """An event with its commitment and hash filled in. `payload` is any JSON value; None is stored as {}."""
    text = canonical({} if payload is None else payload)
    committed = commitment(salt, text, row, vectors)
    digest = chain(previous, seq, kind, at, agent_id, agent_role, namespace, ordinal, committed)
    return Event(seq, kind, at, agent_id, agent_role, namespace, ordinal, text, salt, committed, digest)


def broken_link(previous: bytes, expected_seq: int, event: Event) -> str | None:
    """Why this entry does not follow the one before it, or None when it does."""
    if event.seq != expected_seq:
        return f"event {expected_seq} is missing or out of order: found {event.seq} in its place"
    digest = chain(
        previous,
        event.seq,
        event.kind,
        event.at,
        event.agent_id,
        event.agent_role,
        event.namespace,
        event.ordinal,
        event.commitment,
    )
    if digest != event.hash:
        return f"event {event.seq} ({event.kind}) does not match its hash"
    return None


def broken_commitment(event: Event, row: Row | None, vectors: Callable[[bytes], str]) -> str | None:
    """Why what is stored differs from what this entry committed to, or None. Not for erased entries."""
    digest = vectors(event.salt) if row is not None else ""
    if commitment(event.salt, event.payload, row, digest) == event.commitment:
        return None
    if row is not None:
        return f"memory {row.id} version {row.version} (ordinal {row.ordinal}, event {event.seq}) was changed"
    return f"event {event.seq} ({event.kind}) was changed"
