"""Reads by id and by filter: get, search, history, timeline, current facts. No ranking, no embedding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.access import Principal, Reach
from twofold.clock import OPEN, from_us
from twofold.errors import InvalidInput, NotFound, PermissionDenied
from twofold.index.filters import Filters
from twofold.index.tenant import TenantIndex, View
from twofold.model import Memory, Row
from twofold.stores.schema import reads_stored
from twofold.text import validate_text
from twofold.vault import Vault

Counts = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # per lineage: accesses, last access
EVERYTHING = ("*",)
_NO_METADATA: Mapping[str, Any] = MappingProxyType({})


@reads_stored
def memory_of(tenant: str, view: View, row: Row, counts: Counts) -> Memory:
    """A stored row with the intervals it has in a view."""
    ordinal = row.ordinal
    valid_to = int(view.valid_to[ordinal])
    superseded_by, closed_at = None, None
    if valid_to != OPEN or view.closed[ordinal]:
        ends = view.closings_of(ordinal)
        first = min((c for c in ends if c.axis == "valid"), key=lambda c: (c.at, -c.seq), default=None)
        superseded_by = None if first is None else first.by
        closed_at = min((c.at for c in ends if c.axis == "known"), default=None)
    lineage = int(view.index.lineage[ordinal])
    last = int(counts[1][lineage])
    metadata = _NO_METADATA
    if row.metadata not in ("", "{}"):
        metadata = MappingProxyType(json.loads(row.metadata))
    recorded = from_us(row.recorded_at)
    return Memory(
        id=row.id,
        ordinal=ordinal,
        version=row.version,
        tenant=tenant,
        namespace=row.namespace,
        content=row.content,
        memory_type=row.memory_type,
        tags=row.tags,
        entities=row.entities,
        key=row.key,
        confidence=row.confidence,
        pinned=row.pinned,
        metadata=metadata,
        event_date=None if row.event_at is None else from_us(row.event_at),
        speaker=row.speaker,
        visibility=row.visibility,
        source_id=row.source_id,
        content_hash=row.content_hash,
        ingest_timestamp=recorded,
        agent_id=row.agent_id,
        agent_role=row.agent_role,
        session_id=row.session_id,
        derived_from=row.derived_from,
        valid_from=recorded if row.valid_from == row.recorded_at else from_us(row.valid_from),
        valid_to=None if valid_to == OPEN else from_us(valid_to),
        recorded_at=recorded,
        closed_at=None if closed_at is None else from_us(closed_at),
        superseded_by=superseded_by,
        access_count=int(counts[0][lineage]),
        last_accessed_at=None if last == -OPEN else from_us(last),
        embedding=row.generation,
    )


def memories(vault: Vault, tenant: str, view: View, ordinals: list[int], now: int) -> list[Memory]:
    """Memories of these ordinals, in order."""
    if not ordinals:
        return []
    counts = view.used(now)
    return [memory_of(tenant, view, row, counts) for row in vault.reading.rows(tenant, ordinals)]


@dataclass(frozen=True, slots=True)
class When:
    """The two times a read is asked for, in microseconds; None means now."""

    now: int
    as_of: int | None = None
    known_at: int | None = None


def view_at(index: TenantIndex, when: When) -> View:
    return index.view(None if when.known_at is None else index.seq_known_at(when.known_at))


def reader(principal: Principal, patterns: tuple[str, ...]) -> Reach:
    """The reach of a read. PermissionDenied for a namespace named outright that may not be read."""
    if not principal.may("read"):
        raise PermissionDenied(f"agent {principal.agent_id!r} (role {principal.role_name}) may not read")
    for pattern in patterns:
        if "*" not in pattern and not principal.reads(pattern):
            raise PermissionDenied(
                f"agent {principal.agent_id!r} (role {principal.role_name}) may not read namespace {pattern!r}"
            )
    return principal.reach(patterns)


def visible(index: TenantIndex, reach: Reach, ordinal: int) -> bool:
    """Whether a row exists for this reader."""
    if index.erased[ordinal]:
        return False
    return reach.sees(
        index.namespaces.names[index.namespace[ordinal]],
        index.types.names[index.type[ordinal]],
        ("public", "team", "private")[index.visibility[ordinal]],
        index.agents.names[index.agent[ordinal]],
    )


def versions_visible(index: TenantIndex, reach: Reach, memory_id: str, rows: int) -> list[int]:
    """Ordinals of the versions of a memory that this reader may see, oldest first."""
    if not isinstance(memory_id, str):
        raise InvalidInput(f"a memory is named by its id, a string, not by {type(memory_id).__name__}")
    lineage = index.ids.get(memory_id)
    if lineage < 0:
        return []
    return [o for o in index.versions[lineage] if o < rows and visible(index, reach, o)]


def get(vault: Vault, principal: Principal, memory_id: str, when: When) -> Memory | None:
    """The version known at `known_at`; with `as_of`, only if it was valid then. None when there is none."""
    index = vault.index(principal.tenant)
    with index.lock:
        view = view_at(index, when)
        reach = reader(principal, EVERYTHING)
        for ordinal in reversed(versions_visible(index, reach, memory_id, view.rows)):
            if view.closed[ordinal]:
                continue
            if when.as_of is not None and not (
                index.valid_from[ordinal] <= when.as_of < view.valid_to[ordinal]
            ):
                continue
            return memories(vault, principal.tenant, view, [ordinal], when.now)[0]
    return None


def history(vault: Vault, principal: Principal, memory_id: str, when: When) -> list[Memory]:
    """Every version of a memory known at `known_at`, oldest first, closed ones included. NotFound for none."""
    index = vault.index(principal.tenant)
    with index.lock:
        view = view_at(index, when)
        ordinals = versions_visible(index, reader(principal, EVERYTHING), memory_id, view.rows)
        if not ordinals:
            raise NotFound(f"no memory {memory_id!r} in this handle's scope")
        return memories(vault, principal.tenant, view, ordinals, when.now)


def rows_where(
    index: TenantIndex,
    view: View,
    reach: Reach,
    filters: Filters,
    when: When,
    *,
    include_closed: bool = False,
    include_superseded: bool = False,
) -> npt.NDArray[np.int64]:
    """Ordinals that pass, ascending. Without the flags: known in the view and valid at `as_of` (or now)."""
    mask = index.scope_mask(reach, view.rows).copy()
    if not include_closed:
        mask &= ~view.closed
    if not include_superseded:
        as_of = max(when.now, view.recorded_at) if when.as_of is None else when.as_of
        mask &= (index.valid_from.view(view.rows) <= as_of) & (view.valid_to > as_of)
    wanted = index.filter_mask(filters, view.rows)
    if wanted is not None:
        mask &= wanted
    return np.flatnonzero(mask)


def search(
    vault: Vault,
    principal: Principal,
    patterns: tuple[str, ...],
    filters: Filters,
    when: When,
    *,
    limit: int | None = None,
    include_closed: bool = False,
    include_superseded: bool = False,
    newest_first: bool = True,
) -> list[Memory]:
    """Memories by filter alone, newest first (by ordinal)."""
    index = vault.index(principal.tenant)
    with index.lock:
        view = view_at(index, when)
        reach = reader(principal, patterns)
        found = rows_where(
            index,
            view,
            reach,
            filters,
            when,
            include_closed=include_closed,
            include_superseded=include_superseded,
        )
        ordinals = found[::-1] if newest_first else found
        return memories(vault, principal.tenant, view, ordinals[:limit].tolist(), when.now)


def timeline(
    vault: Vault, principal: Principal, patterns: tuple[str, ...], entity: str, when: When
) -> list[Memory]:
    """Everything known about an entity, superseded facts included, by valid_from then ordinal.

    With `as_of`, only what began at or before it.
    """
    index = vault.index(principal.tenant)
    with index.lock:
        view = view_at(index, when)
        reach = reader(principal, patterns)
        rows = index.entity_rows(validate_text(entity, "entity"))
        rows = rows[rows < view.rows]
        rows = rows[index.scope_mask(reach, view.rows)[rows] & ~view.closed[rows]]
        starts = index.valid_from.view(view.rows)[rows]
        if when.as_of is not None:
            rows, starts = rows[starts <= when.as_of], starts[starts <= when.as_of]
        order = np.lexsort((rows, starts))
        return memories(vault, principal.tenant, view, rows[order].tolist(), when.now)
