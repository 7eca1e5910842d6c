"""The tenant's relations as a plain table of edges, and walks of a fixed number of steps over it.

An edge says that a memory is about an entity, or that two memories are linked. A memory is numbered by the ordinal
of its first version, so its versions are one node, as in the view in RAM. Edges are derived from rows and events,
and written in the transaction that writes these; an erasure removes those that only erased rows said.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from twofold.entities import entity_key
from twofold.index.pushed import stored_name
from twofold.model import Batch, Event, Kind, Row

NAME: Final = "edge"  # in the table `derived`, which says up to which seq a tenant's derived tables go

EDGE: Final = (
    """CREATE TABLE @edge (
        tenant text COLLATE "C" NOT NULL, seq bigint NOT NULL, place bigint NOT NULL, memory bigint NOT NULL,
        entity text COLLATE "C", other bigint, relation text, weight double precision NOT NULL,
        PRIMARY KEY (tenant, seq, place), CHECK ((entity IS NULL) <> (other IS NULL))
    )""",
    "CREATE INDEX edge_entity ON @edge (tenant, entity, memory) WHERE entity IS NOT NULL",
    "CREATE INDEX edge_memory ON @edge (tenant, memory)",
    "CREATE INDEX edge_other ON @edge (tenant, other) WHERE other IS NOT NULL",
)
TABLES: Final = (
    *EDGE,
    "CREATE INDEX memory_version ON @memory (tenant, id, ordinal)",
    """CREATE TABLE @derived (
        tenant text COLLATE "C" NOT NULL, name text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (tenant, name)
    ) WITH (fillfactor = 50)""",
)
# Since format 3: of which very table it speaks, and how many entries that has, so that a loss is noticed.
CLAIMED: Final = "ALTER TABLE @derived ADD COLUMN made bigint, ADD COLUMN entries bigint"

DERIVED: Final = "SELECT name, seq, made, entries FROM @derived WHERE tenant = %s"
PUT_DERIVED: Final = """INSERT INTO @derived (tenant, name, seq, made, entries) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (tenant, name) DO UPDATE SET seq = excluded.seq, made = excluded.made, entries = excluded.entries"""
ADVANCE: Final = """INSERT INTO @derived AS d (tenant, name, seq, made, entries) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (tenant, name) DO UPDATE SET seq = excluded.seq, made = excluded.made,
    entries = d.entries + excluded.entries"""
COUNT: Final = "SELECT count(*) FROM @edge WHERE tenant = %s"
PUT: Final = """INSERT INTO @edge (tenant, seq, place, memory, entity, other, relation, weight)
    SELECT %s, * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::text[],
        %s::double precision[])"""
ORIGINS: Final = "SELECT id, min(ordinal) FROM @memory WHERE tenant = %s AND id = ANY(%s) GROUP BY id"
DROP_ALL: Final = "DELETE FROM @edge WHERE tenant = %s"
_COUNTED: Final = """WITH gone AS (DELETE FROM @edge WHERE {} RETURNING tenant) UPDATE @derived
    SET entries = entries - (SELECT count(*) FROM gone) WHERE tenant = %s AND name = 'edge'"""
DROP_OF_ROWS: Final = _COUNTED.format(
    "tenant = %s AND seq IN (SELECT seq FROM @memory WHERE tenant = %s AND ordinal = ANY(%s))"
)
DROP_OF_EVENTS: Final = _COUNTED.format("tenant = %s AND other IS NOT NULL AND seq = ANY(%s)")
SAID_BY_ROWS: Final = """SELECT m.seq, m.origin, m.entities FROM (
        SELECT seq, erased, entities, min(ordinal) OVER (PARTITION BY id) AS origin FROM @memory WHERE tenant = %s
    ) AS m WHERE m.erased IS NULL AND m.entities <> '' ORDER BY m.seq"""
SAID_BY_EVENTS: Final = (
    f"SELECT seq, payload FROM @event WHERE tenant = %s AND kind = '{Kind.LINK.value}' ORDER BY seq"
)
STORED: Final = """SELECT seq, place, memory, entity, other, relation, weight FROM @edge WHERE tenant = %s
    ORDER BY seq, place"""


class Edge(NamedTuple):
    """memory: ordinal of a memory's first version; it is about `entity`, or linked to the memory `other`."""

    seq: int
    place: int
    memory: int
    entity: str | None
    other: int | None
    relation: str | None
    weight: float


class Link(NamedTuple):
    """A link as the log has it: between ids."""

    seq: int
    a: str
    b: str
    relation: str
    weight: float


def of_row(seq: int, origin: int, entities: Iterable[str]) -> list[Edge]:
    """The edges that one version says."""
    keys = dict.fromkeys(entity_key(name) for name in entities)
    return [Edge(seq, i, origin, stored_name(key), None, None, 1.0) for i, key in enumerate(keys)]


def link_of(event: Event) -> Link | None:
    """The link that an event says, if it says one."""
    return link_said(event.seq, event.payload) if event.kind == Kind.LINK else None


def link_said(seq: int, payload: str) -> Link | None:
    said = json.loads(payload) if payload else None
    if not isinstance(said, dict) or not {"a", "b", "relation", "weight"} <= said.keys():
        return None
    return Link(seq, said["a"], said["b"], said["relation"], float(said["weight"]))


def unknown_ids(batch: Batch) -> list[str]:
    """Ids whose first version has to be looked up before the edges of a batch are known."""
    begun = {row.id for row in batch.rows if row.version == 1}
    wanted = [row.id for row in batch.rows if row.version != 1 and _says(row)]
    wanted += [name for link in map(link_of, batch.events) if link for name in (link.a, link.b)]
    return sorted({name for name in wanted if name not in begun})


def _says(row: Row) -> bool:
    return bool(row.entities) and not row.erased


def of_batch(batch: Batch, origins: dict[str, int]) -> list[Edge]:
    """The edges that a batch says. origins: the first ordinal of each of `unknown_ids`."""
    first = {row.id: row.ordinal for row in batch.rows if row.version == 1} | origins
    edges: list[Edge] = []
    for row in batch.rows:
        if _says(row):
            edges += of_row(row.seq, first.get(row.id, row.ordinal), row.entities)
    return edges + of_links(filter(None, map(link_of, batch.events)), first)


def of_links(links: Iterable[Link], origins: dict[str, int]) -> list[Edge]:
    """Links as edges; those between memories that are not there are left out."""
    return [
        Edge(link.seq, 0, origins[link.a], None, origins[link.b], link.relation, link.weight)
        for link in links
        if link.a in origins and link.b in origins
    ]


def putting(tenant: str, edges: Sequence[Edge]) -> tuple[Any, ...]:
    """The arguments of PUT."""
    return (tenant, *(list(column) for column in zip(*edges, strict=True)))


def everything(ask: Callable[..., list[Any]]) -> list[Edge]:
    """All edges of a tenant, derived anew. ask: statement (its first %s is the tenant) and arguments -> records."""
    edges: list[Edge] = []
    for seq, origin, entities in ask(SAID_BY_ROWS):
        edges += of_row(seq, origin, json.loads(entities))
    links = [link for seq, payload in ask(SAID_BY_EVENTS) if (link := link_said(seq, payload))]
    ids = sorted({name for link in links for name in (link.a, link.b)})
    origins = dict(ask(ORIGINS, ids)) if ids else {}
    return sorted(edges + of_links(links, origins))


# Walking. One statement: as many levels as there are steps, each level's nodes new, and none of them read once
# there are as many nodes as were asked for.

Step = tuple[int, int | None, str | None]  # steps from the seeds, memory or entity

ON_INDEXES: Final = """SELECT set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true)"""
_READ: Final = "FROM @edge AS e WHERE e.tenant = %(tenant)s AND e.seq <= %(seq)s AND"
# What was recorded later than the mask was made is outside of it.
_PASSES: Final = "CASE WHEN x.n < %(rows)s THEN get_bit(%(mask)b::bytea, x.n) = 1 ELSE false END"


@functools.cache
def walking(hops: int) -> str:
    """The statement of a walk of `hops` steps; its records are Steps, in no order, the seeds left out.

    Memories of a level are its `limit` first ones: no more of them can be wanted.
    """
    levels, told = [], []
    memories: list[str] = []
    entities: list[str] = []
    for hop in range(1, hops + 1):
        room = " + ".join(
            ["%(seeds_count)s", *(f"(SELECT count(*) FROM {level})" for level in [*memories, *entities])]
        )
        room = f"{room} < %(limit)s"
        before = f"m{hop - 1}"
        near = []
        if hop == 1:
            near.append(f"SELECT e.memory AS n {_READ} e.entity = ANY(%(seeds)s)")
        elif f"e{hop - 1}" in entities:
            near.append(
                f"SELECT l.n FROM e{hop - 1} AS p, LATERAL (SELECT e.memory AS n {_READ} e.entity = p.n) AS l"
            )
        if before in memories:
            near += [
                f"SELECT l.n FROM {before} AS p, LATERAL (SELECT e.other AS n {_READ} e.memory = p.n "
                "AND e.other IS NOT NULL) AS l",
                f"SELECT l.n FROM {before} AS p, LATERAL (SELECT e.memory AS n {_READ} e.other = p.n) AS l",
            ]
        new = "".join(f" AND x.n NOT IN (SELECT n FROM {level})" for level in memories)
        levels.append(
            f"m{hop} AS MATERIALIZED (SELECT DISTINCT x.n FROM ({' UNION ALL '.join(near)}) AS x "
            f"WHERE {room} AND {_PASSES}{new} ORDER BY x.n LIMIT %(limit)s)"
        )
        if before in memories:
            new = "".join(f" AND l.n NOT IN (SELECT n FROM {level})" for level in entities)
            levels.append(
                f"e{hop} AS MATERIALIZED (SELECT DISTINCT l.n FROM {before} AS p, LATERAL (SELECT e.entity AS n "
                f"{_READ} e.memory = p.n AND e.entity IS NOT NULL) AS l WHERE {room} "
                f"AND l.n <> ALL(%(seeds)s){new})"
            )
            entities.append(f"e{hop}")
            told.append(f"SELECT {hop}, NULL::bigint, n FROM e{hop}")
        memories.append(f"m{hop}")
        told.append(f"SELECT {hop}, n, NULL::text FROM m{hop}")
    return f"WITH {', '.join(levels)} {' UNION ALL '.join(told)}"


def walk_arguments(
    tenant: str, seeds: Sequence[str], mask: npt.NDArray[np.bool_], seq: int, limit: int
) -> dict[str, Any]:
    """The arguments of `walking`. mask: bool, by ordinal of a memory's first version, which may be walked over."""
    names = sorted({stored_name(key) for key in seeds})
    return {
        "tenant": tenant,
        "seeds": names,
        "seeds_count": len(names),
        "mask": np.packbits(mask, bitorder="little").tobytes(),
        "rows": len(mask),
        "seq": seq,
        "limit": limit,
    }
