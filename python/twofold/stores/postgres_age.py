"""A mirror of the table of edges as a property graph of Apache AGE, for those who want to ask it in Cypher.

Made where `graph=age` says so; then every writer keeps it up, in its transaction. Memories (Memory {tenant, memory})
and names (Entity {tenant, name}) are vertices, ABOUT and LINKED edges {tenant, seq, place}. The policy that keeps
tenants apart is on the label tables and on their parents: `MATCH (n)` without a label reads the parent, which would
show everybody's.

AGE's comparisons are not leakproof, so that under a policy no index finds a vertex by its name or an edge by its
ends: a pattern reads all of the tenant's edges. That is why walks are short and directed, and why SQL is the default.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from psycopg import Error

from twofold.errors import InvalidInput, StoreError
from twofold.index.pushed import stored_name
from twofold.stores.postgres_graph import Step
from twofold.stores.postgres_schema import TENANT, changing, secured

NAME: Final = "age"
LABELS: Final = ("Memory", "Entity", "ABOUT", "LINKED")
# Any function of the extension loads it into the session, and with it what understands `cypher`.
# Where no index helps, whether statistics are stale or not, joins had better be by hash; its sides are the tenant's.
ON: Final = """SELECT ag_catalog._graphid(1, 1), set_config('search_path', 'ag_catalog', true),
    set_config('enable_nestloop', 'off', true), set_config('enable_seqscan', 'off', true)"""

_VERTEX: Final = (
    """CREATE TABLE @vertex (
        tenant text COLLATE "C" NOT NULL, entry bigint NOT NULL GENERATED ALWAYS AS IDENTITY, memory bigint,
        entity text COLLATE "C", PRIMARY KEY (tenant, entry), UNIQUE (tenant, memory), UNIQUE (tenant, entity),
        CHECK ((entity IS NULL) <> (memory IS NULL))
    )""",
    *secured("@vertex"),
)
_OWNER: Final = """ag_catalog.agtype_object_field_text_agtype(properties, '"tenant"'::ag_catalog.agtype)"""
_NUMBER: Final = "ag_catalog.agtype_object_field_text_agtype(properties, '\"{}\"'::ag_catalog.agtype)::bigint"


def graph_of(schema: str) -> str:
    """The name of a schema's graph."""
    if len(schema) > 57:
        raise InvalidInput(f"graph=age needs a schema of at most 57 characters, not {schema!r}")
    return f"{schema}_graph"


def prepare(db: Any, schema: str, qualified: Callable[[str], str], wait: str = "0") -> None:
    """Make the graph, one process at a time. StoreError without the extension."""
    graph = graph_of(schema)
    if _whole(db, schema):
        return
    if not db.execute("SELECT 1 FROM pg_extension WHERE extname = 'age'").fetchall():
        raise StoreError(
            "graph=age needs the extension age: have a superuser run CREATE EXTENSION age; GRANT USAGE ON SCHEMA "
            "ag_catalog TO this role, or leave graph out"
        )
    try:
        with changing(db, schema, wait):
            if _whole(db, schema):
                return
            # What is left of one that somebody dropped in part. A new table is one that nothing was claimed of.
            db.execute(qualified("DROP TABLE IF EXISTS @vertex"))
            for statement in _VERTEX:
                db.execute(qualified(statement))
            db.execute("SET LOCAL search_path = ag_catalog")  # AGE looks for its operators there
            if db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (graph,)).fetchall():
                db.execute("SELECT drop_graph(%s, true)", (graph,))
            db.execute("SELECT create_graph(%s)", (graph,))
            for label in LABELS:
                make = "create_vlabel" if label in ("Memory", "Entity") else "create_elabel"
                db.execute(f"SELECT {make}('{graph}', '{label}')")
            for table in ("_ag_label_vertex", "_ag_label_edge", *LABELS):
                place = f'"{graph}"."{table}"'
                db.execute(f"ALTER TABLE {place} ENABLE ROW LEVEL SECURITY")
                db.execute(f"ALTER TABLE {place} FORCE ROW LEVEL SECURITY")
                own = f"({_OWNER} = {TENANT})"
                db.execute(f"CREATE POLICY tenant_only ON {place} USING {own} WITH CHECK {own}")
                db.execute(f"CREATE INDEX ON {place} (({_OWNER}))")
    except Error as error:
        if error.sqlstate == "42501":
            raise StoreError(
                f"graph=age: this role may not make the graph ({error}); have a superuser run GRANT USAGE ON SCHEMA "
                "ag_catalog TO it, and GRANT CREATE ON DATABASE"
            ) from error
        raise


def _whole(db: Any, schema: str) -> bool:
    """Whether the table of vertices and every label are there."""
    asked = """SELECT count(*) FROM pg_tables WHERE (schemaname = %s AND tablename = 'vertex')
        OR (schemaname = %s AND tablename = ANY(%s))"""
    found = db.execute(asked, (schema, graph_of(schema), list(LABELS))).fetchall()
    return bool(found[0][0] == 1 + len(LABELS))


# Keeping it up


def _vertex(graph: str, label: str, entry: str) -> str:
    return f"ag_catalog._graphid(ag_catalog._label_id('{graph}', '{label}'), {entry})"


@functools.cache
def _puts(graph: str) -> tuple[str, ...]:
    """The statements that bring in a tenant's edges after a seq; each takes the tenant and the seq."""
    edges = "FROM @edge AS e WHERE e.tenant = %s AND e.seq > %s"
    memory, entity, other = (
        _vertex(graph, label, f"{alias}.entry")
        for label, alias in (("Memory", "m"), ("Entity", "n"), ("Memory", "n"))
    )
    said = "ag_catalog.agtype_build_map('tenant', e.tenant, 'seq', e.seq, 'place', e.place"
    joined = (
        "FROM @edge AS e JOIN @vertex AS m ON m.tenant = e.tenant AND m.memory = e.memory JOIN @vertex AS n"
    )
    chosen = "WHERE e.tenant = %s AND e.seq > %s"
    return (
        f"""WITH made AS (INSERT INTO @vertex AS v (tenant, entity) SELECT DISTINCT e.tenant, e.entity {edges}
                AND e.entity IS NOT NULL ON CONFLICT DO NOTHING RETURNING v.tenant, v.entry, v.entity)
            INSERT INTO "{graph}"."Entity" (id, properties) SELECT {_vertex(graph, "Entity", "entry")},
                ag_catalog.agtype_build_map('tenant', tenant, 'name', entity) FROM made""",
        f"""WITH told AS (SELECT e.tenant, e.memory, e.other {edges}),
            made AS (INSERT INTO @vertex AS v (tenant, memory)
                SELECT tenant, memory FROM told UNION SELECT tenant, other FROM told WHERE other IS NOT NULL
                ON CONFLICT DO NOTHING RETURNING v.tenant, v.entry, v.memory)
            INSERT INTO "{graph}"."Memory" (id, properties) SELECT {_vertex(graph, "Memory", "entry")},
                ag_catalog.agtype_build_map('tenant', tenant, 'memory', memory) FROM made""",
        f"""INSERT INTO "{graph}"."ABOUT" (start_id, end_id, properties) SELECT {memory}, {entity}, {said})
            {joined} ON n.tenant = e.tenant AND n.entity = e.entity {chosen}""",
        f"""INSERT INTO "{graph}"."LINKED" (start_id, end_id, properties)
            SELECT {memory}, {other}, {said}, 'relation', e.relation, 'weight', e.weight)
            {joined} ON n.tenant = e.tenant AND n.memory = e.other {chosen}""",
    )


def following(graph: str, tenant: str, after: int) -> list[tuple[str, Sequence[Any]]]:
    """The statements that bring in the edges after a seq."""
    return [(sql, (tenant, after)) for sql in _puts(graph)]


def anew(graph: str, tenant: str) -> list[tuple[str, Sequence[Any]]]:
    """The statements that make a tenant's part again: after an erasure no name of erased rows alone may stay."""
    out: list[tuple[str, Sequence[Any]]] = [
        (f'DELETE FROM "{graph}"."{label}" WHERE {_OWNER} = %s', (tenant,)) for label in reversed(LABELS)
    ]
    out.append(("DELETE FROM @vertex WHERE tenant = %s", (tenant,)))
    return out + following(graph, tenant, -1)


def tables(graph: str) -> list[str]:
    """The tables of the graph that hold rows."""
    return [f'"{graph}"."{label}"' for label in LABELS]


def count(graph: str) -> str:
    """A statement that counts a tenant's edges in the graph; it takes the tenant twice."""
    parts = (
        f'(SELECT count(*) FROM "{graph}"."{label}" WHERE {_OWNER} = %s)' for label in ("ABOUT", "LINKED")
    )
    return f"SELECT {' + '.join(parts)}"


def differences(graph: str) -> str:
    """A statement that counts the edges that only the table, and only the graph has. It takes the tenant twice."""
    memory, entity, other = (
        _vertex(graph, label, f"{alias}.entry")
        for label, alias in (("Memory", "m"), ("Entity", "n"), ("Memory", "n"))
    )
    joined = (
        "FROM @edge AS e JOIN @vertex AS m ON m.tenant = e.tenant AND m.memory = e.memory JOIN @vertex AS n"
    )
    seq, place = _NUMBER.format("seq"), _NUMBER.format("place")
    mirrored = " UNION ALL ".join(
        f"SELECT {seq}, {place}, format('%%s', start_id), format('%%s', end_id) FROM \"{graph}\".\"{label}\" "
        f"WHERE {_OWNER} = t.tenant"
        for label in ("ABOUT", "LINKED")
    )
    stored = (
        f"SELECT e.seq, e.place, format('%%s', {memory}), format('%%s', {entity}) {joined} "
        f"ON n.tenant = e.tenant AND n.entity = e.entity WHERE e.tenant = t.tenant UNION ALL "
        f"SELECT e.seq, e.place, format('%%s', {memory}), format('%%s', {other}) {joined} "
        f"ON n.tenant = e.tenant AND n.memory = e.other WHERE e.tenant = t.tenant"
    )
    return (
        f"SELECT (SELECT count(*) FROM (({stored}) EXCEPT ALL ({mirrored})) AS a) + "
        "(SELECT count(*) FROM @edge AS e WHERE e.tenant = t.tenant AND NOT EXISTS (SELECT 1 FROM @vertex AS v "
        "WHERE v.tenant = e.tenant AND v.memory = e.memory)), "
        f"(SELECT count(*) FROM (({mirrored}) EXCEPT ALL ({stored})) AS b) FROM (SELECT %s::text AS tenant) AS t"
    )


# Walking: level by level, each a few patterns of one directed step

_FROM_NAMES: Final = "(m:Memory)-[r:ABOUT]->(e:Entity) WHERE e.name = x {} RETURN DISTINCT m.memory"
_TO_NAMES: Final = "(m:Memory)-[r:ABOUT]->(e:Entity) WHERE m.memory = x {} RETURN DISTINCT e.name"
_ALONG: Final = "(m:Memory)-[r:LINKED]->(n:Memory) WHERE m.memory = x {} RETURN DISTINCT n.memory"
_BACK: Final = "(n:Memory)-[r:LINKED]->(m:Memory) WHERE m.memory = x {} RETURN DISTINCT n.memory"


def cypher(graph: str, pattern: str) -> str:
    """A step from each of $from; its records are (value as JSON,)."""
    asked = pattern.format("AND r.tenant = $tenant AND r.seq <= $seq")
    return (
        f"SELECT format('%%s', v) FROM ag_catalog.cypher('{graph}', $$ UNWIND $from AS x MATCH {asked} $$, %s) "
        "AS (v ag_catalog.agtype)"
    )


def walk(
    ask: Callable[[str, Sequence[Any]], list[Any]],
    graph: str,
    tenant: str,
    seeds: Sequence[str],
    hops: int,
    mask: npt.NDArray[np.bool_],
    seq: int,
    limit: int,
) -> list[Step]:
    """As `Serving.walk`. ask: statement and arguments -> records, all in one snapshot."""

    def step(pattern: str, nodes: Iterable[Any]) -> list[Any]:
        told = json.dumps({"from": list(nodes), "tenant": tenant, "seq": seq}, ensure_ascii=False)
        return [json.loads(value, strict=False) for (value,) in ask(cypher(graph, pattern), (told,))]

    entities = {stored_name(key) for key in seeds}
    near_entities, near_memories = sorted(entities), list[int]()
    memories: set[int] = set()
    out: list[Step] = []
    for hop in range(1, hops + 1):
        if len(entities) + len(memories) >= limit:
            break
        found = set(step(_FROM_NAMES, near_entities)) if near_entities else set()
        named: list[str] = []
        if near_memories:
            found.update(step(_ALONG, near_memories), step(_BACK, near_memories))
            named = sorted(set(step(_TO_NAMES, near_memories)) - entities)
        new = sorted(m for m in found - memories if m < len(mask) and mask[m])[:limit]
        out += [(hop, memory, None) for memory in new] + [(hop, None, name) for name in named]
        memories.update(new)
        entities.update(named)
        near_entities, near_memories = named, new
    return out
