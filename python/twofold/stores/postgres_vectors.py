"""Vectors as PostgreSQL's extension `vector` searches them, beside the stored ones: derived, and droppable.

The searched copy exists once some process has asked for `mode=pushdown`; then every writer keeps it up, in the
transaction that writes the vectors, and deleting a vector deletes its copy. What comes from here are candidates:
the core scores and orders them by the stored float32 values, because the order of an approximate index differs
from build to build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from psycopg import Error, pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

from twofold.errors import InvalidInput, StoreError
from twofold.index.pushed import Near
from twofold.stores.postgres_schema import make_table, secured

THERE: Final = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'embedding'"
PUT: Final = """INSERT INTO @embedding (tenant, generation, ordinal, part, v) VALUES (%s, %s, %s, %s, %b::vector)
    ON CONFLICT (tenant, generation, ordinal, part) DO UPDATE SET v = excluded.v"""
MISSING: Final = """SELECT s.generation, s.ordinal, s.part, s.data FROM @vector AS s
    WHERE s.tenant = %s AND NOT EXISTS (SELECT 1 FROM @embedding AS e WHERE e.tenant = s.tenant
        AND e.generation = s.generation AND e.ordinal = s.ordinal AND e.part = s.part)
    ORDER BY s.generation, s.ordinal, s.part LIMIT %s"""

# The planner's guesses whether to read the whole table, and whether to sort all of a tenant's rows, depend on
# statistics that may be stale; a query that names its rows or asks for few of many never should.
_NO_SCAN: Final = "SELECT set_config('enable_seqscan', 'off', true)"
# In strict order a row that is found late is dropped, so that asking for more finds no more of the nearest: of 30,000
# clustered vectors 97.2 % of the nearest 232, and 99.7 % by going on in relaxed order and sorting what came.
_KNOBS: Final = """SELECT set_config('hnsw.ef_search', '1000', true), set_config('hnsw.iterative_scan',
    'relaxed_order', true), set_config('hnsw.max_scan_tuples', '200000', true),
    set_config('hnsw.scan_mem_multiplier', '20', true), set_config('enable_sort', 'off', true)"""
WIDE: Final = 6_000  # rows that an approximate index is asked for at least
_AMONG: Final = """SELECT ordinal FROM @embedding WHERE tenant = %s AND generation = %s AND ordinal = ANY(%b)
    ORDER BY v <=> %b::vector LIMIT %s"""
# Not the expression that indexes are over, so this one reads all of the tenant's.
_ALL: Final = """SELECT ordinal FROM @embedding WHERE tenant = %s AND generation = %s
    ORDER BY v <=> %b::vector LIMIT %s"""
_NEAREST: Final = """WITH found AS MATERIALIZED (
        SELECT ordinal, (v::vector({dimension})) <=> %b::vector({dimension}) AS far FROM @embedding
        WHERE tenant = %s AND generation = %s AND vector_dims(v) = {dimension} ORDER BY far LIMIT %s
    ) SELECT ordinal FROM found ORDER BY far LIMIT %s"""

# The vectors of some rows, without those that the client has: what is sent costs more than what is found.
_HAS: Final = "CASE WHEN {x} < %(have_rows)s THEN get_bit(%(have)b::bytea, {x}) = 1 ELSE false END"
_SENT: Final = f"""SELECT v.ordinal, v.part, v.start, v.stop, CASE WHEN {_HAS.format(x="v.ordinal")} THEN NULL
    ELSE v.data END, CASE WHEN {_HAS.format(x="v.ordinal")} THEN NULL ELSE v.codes END,
    (SELECT count(*) FROM near)
    FROM @vector AS v WHERE v.tenant = %(tenant)s AND v.generation = %(generation)s
    AND v.ordinal = ANY(ARRAY(SELECT n.ordinal FROM near AS n))"""
_THESE: Final = """SELECT ordinal, part, start, stop, data, codes, 0 FROM @vector
    WHERE tenant = %(tenant)s AND generation = %(generation)s AND ordinal = ANY(%(ordinals)b)"""
_OWN: Final = "FROM @embedding AS e WHERE e.tenant = %(tenant)s AND e.generation = %(generation)s"
# What was recorded later than the mask was made is outside of it.
_PASSES: Final = "CASE WHEN {x} < %(rows)s THEN get_bit(%(mask)b::bytea, {x}) = 1 ELSE false END"
# Of equal ones the first rows, as in the core: the same text said more often than the margin is wide.
_NEAR_AMONG: Final = f"""WITH near AS MATERIALIZED (SELECT e.ordinal {_OWN} AND e.ordinal = ANY(%(ordinals)b)
    ORDER BY e.v <=> %(query)b::vector, e.ordinal LIMIT %(count)s) {_SENT}"""
_NEAR_PASSING: Final = f"""WITH near AS MATERIALIZED (SELECT e.ordinal {_OWN}
    AND {_PASSES.format(x="e.ordinal")} ORDER BY e.v <=> %(query)b::vector, e.ordinal LIMIT %(count)s) {_SENT}"""
_NEAR_PROPOSED: Final = f"""WITH found AS MATERIALIZED (
        SELECT e.ordinal, {{v}} <=> %(query)b::vector({{dimension}}) AS far {_OWN} AND {{there}}
        ORDER BY far LIMIT %(wide)s
    ), near AS MATERIALIZED (SELECT f.ordinal FROM found AS f WHERE {_PASSES.format(x="f.ordinal")}
        ORDER BY f.far LIMIT %(count)s) {_SENT}"""

# vectorscale cannot look up an expression again in the table ("attnum > 0"): it gets a column of its own.
_NEAREST_COLUMN: Final = """WITH found AS MATERIALIZED (
        SELECT ordinal, v_{dimension} <=> %b::vector({dimension}) AS far FROM @embedding
        WHERE tenant = %s AND generation = %s AND v_{dimension} IS NOT NULL ORDER BY far LIMIT %s
    ) SELECT ordinal FROM found ORDER BY far LIMIT %s"""
COLUMNS: Final = """SELECT substr(a.attname, 3)::int FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass(%s) AND a.attname ~ '^v_[0-9]+$' AND NOT a.attisdropped"""


class Packed(bytes):
    """A vector as the extension reads it: dimension, two bytes of nothing, big-endian float32."""


class Numbers(bytes):
    """An array of int8 in the server's binary format: a list of thousands costs more than the search."""


class NumbersDumper(Dumper):
    """The bytes as they are."""

    format = pq.Format.BINARY
    oid = 1016  # int8[]

    def dump(self, obj: Numbers) -> Buffer:
        return bytes(obj)


def numbers(values: Sequence[int] | npt.NDArray[np.int64]) -> Numbers:
    """Whole numbers for `= ANY(%b)`."""
    array = np.asarray(values, np.int64)
    items = np.empty(len(array), np.dtype([("size", ">i4"), ("value", ">i8")]))
    items["size"], items["value"] = 8, array
    head = np.array([1, 0, 20, len(array), 1], ">i4") if len(array) else np.array([0, 0, 20], ">i4")
    return Numbers(head.tobytes() + items.tobytes())


class PackedDumper(Dumper):
    """The bytes as they are; which type they are follows from the statement's cast."""

    format = pq.Format.BINARY
    oid = 0

    def dump(self, obj: Packed) -> Buffer:
        return bytes(obj)


def packed(values: npt.NDArray[np.float32]) -> Packed:
    """A float32 (dim,) array for a statement."""
    return Packed(len(values).to_bytes(2, "big") + b"\0\0" + values.astype(">f4").tobytes())


def asking(
    tenant: str,
    generation: int,
    query: npt.NDArray[np.float32],
    count: int,
    ordinals: Sequence[int] | npt.NDArray[np.int64] | None,
    *,
    exact: bool = False,
    column: bool = False,
) -> list[tuple[str, tuple[Any, ...]]]:
    """The statements of one search; the last one's records are (ordinal,). column: this dimension has its own."""
    near = packed(query)
    if ordinals is not None:
        return [(_NO_SCAN, ()), (_AMONG, (tenant, generation, numbers(ordinals), near, count))]
    if exact:
        return [(_NO_SCAN, ()), (_ALL, (tenant, generation, near, count))]
    sql = (_NEAREST_COLUMN if column else _NEAREST).format(dimension=len(query))
    wide = max(5 * count, WIDE)
    return [(_NO_SCAN, ()), (_KNOBS, ()), (sql, (near, tenant, generation, wide, count))]


def fetching(tenant: str, near: Near, *, column: bool = False) -> list[tuple[str, Any]]:
    """The statements that find and fetch vectors in one; the last one's records are those of `Near` and a count."""
    own = {"tenant": tenant, "generation": near.generation}
    if near.query is None:
        return [(_THESE, {**own, "ordinals": numbers([] if near.ordinals is None else near.ordinals)})]
    have = np.zeros(0, np.bool_) if near.have is None else near.have
    own |= {"query": packed(near.query), "count": near.windows, "have": bits(have), "have_rows": len(have)}
    if near.ordinals is not None:
        return [(_NEAR_AMONG, {**own, "ordinals": numbers(near.ordinals)})]
    assert near.mask is not None
    own |= {"mask": bits(near.mask), "rows": len(near.mask)}
    if not near.wide:
        return [(_NEAR_PASSING, own)]
    size = len(near.query)
    vector, there = (
        (f"e.v_{size}", f"e.v_{size} IS NOT NULL")
        if column
        else (f"(e.v::vector({size}))", f"vector_dims(e.v) = {size}")
    )
    sql = _NEAR_PROPOSED.format(v=vector, there=there, dimension=size)
    return [(_KNOBS, ()), (sql, {**own, "wide": max(near.wide, WIDE)})]


def bits(mask: npt.NDArray[np.bool_]) -> bytes:
    """A mask as `get_bit` reads it."""
    return np.packbits(mask, bitorder="little").tobytes()


def index_ddl(dimension: int, kind: str) -> list[str]:
    """The statements that build an approximate index over the vectors of one dimension.

    "hnsw" (pgvector), "diskann" (vectorscale), "scann" (AlloyDB; generated, never run by us).
    """
    if not 1 <= dimension <= 2000:
        raise InvalidInput(f"approximate indexes hold 1 to 2000 dimensions, not {dimension}")
    cast = f"(v::vector({dimension}))"
    methods = {
        "hnsw": f"hnsw ({cast} vector_cosine_ops) WITH (m = 24, ef_construction = 200)",
        "diskann": f"diskann (v_{dimension} vector_cosine_ops)",
        "scann": f"scann ({cast} cosine) WITH (num_leaves = 1000)",
    }
    if kind not in methods:
        raise InvalidInput(f"an index is hnsw, diskann or scann, not {kind!r}")
    create = f"CREATE INDEX IF NOT EXISTS embedding_{kind}_{dimension} ON @embedding USING {methods[kind]}"
    if kind != "diskann":
        return [f"{create} WHERE vector_dims(v) = {dimension}"]
    column = (
        f"ALTER TABLE @embedding ADD COLUMN IF NOT EXISTS v_{dimension} vector({dimension}) GENERATED ALWAYS AS "
        f"(CASE WHEN vector_dims(v) = {dimension} THEN v::vector({dimension}) END) STORED"
    )
    return [column, create]


TABLE: Final = (
    """CREATE TABLE @embedding (
        tenant text COLLATE "C" NOT NULL, generation bigint NOT NULL, ordinal bigint NOT NULL,
        part bigint NOT NULL, v vector NOT NULL,
        PRIMARY KEY (tenant, generation, ordinal, part),
        FOREIGN KEY (tenant, generation, ordinal, part) REFERENCES @vector ON DELETE CASCADE
    )""",
    *secured("@embedding"),
)


def prepare(db: Any, schema: str, qualified: Callable[[str], str], wait: str = "0") -> None:
    """Make the searched table, one process at a time. StoreError without the extension."""
    if db.execute(THERE, (schema,)).fetchall():
        return
    if not db.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchall():
        try:
            db.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except Error as error:
            raise StoreError(
                f"mode=pushdown needs the extension vector, and this role cannot make it ({error}); have a "
                "superuser run CREATE EXTENSION vector in this database, or leave mode out"
            ) from error
    make_table(db, schema, qualified, wait, THERE, TABLE)
