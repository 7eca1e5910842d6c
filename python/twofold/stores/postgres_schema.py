"""What a PostgreSQL store is made of: tables, constraints, row-level security, and how a schema is brought up.

Every table of tenants' data has the tenant as the first column of every key and index, and a forced row-level
security policy: a session that has not said which tenant it works for sees nothing and can write nothing.
`@` in a statement stands for the store's schema.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from twofold.errors import StoreError, StoreTooNew
from twofold.stores import postgres_graph
from twofold.stores.postgres_wire import unhurried

SETTING: Final = "twofold.tenant"

# The setting reads as '' again after a transaction that set it locally, and '' is a legal tenant: hence the prefix.
MARK: Final = "t:"
AS_TENANT: Final = f"SELECT set_config('{SETTING}', '{MARK}' || %s::text, true)"

_FIRST_TABLES: Final = ("head", "event", "memory", "vector", "generation", "receipt", "interval")
TENANT_TABLES: Final = (*_FIRST_TABLES, "edge", "derived")

# In a sub-select, so that it is evaluated once per statement and not once per row.
TENANT: Final = (
    f"(SELECT CASE WHEN left(current_setting('{SETTING}', true), {len(MARK)}) = '{MARK}' "
    f"THEN substr(current_setting('{SETTING}', true), {len(MARK) + 1}) END)"
)


def secured(table: str) -> tuple[str, ...]:
    """The statements that put a table under the tenant's policy, its owner included."""
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY tenant_only ON {table} USING (tenant = {TENANT}) WITH CHECK (tenant = {TENANT})",
    )


def _create_tables() -> tuple[str, ...]:
    """Format 1. `memory.erased` is the seq at which the row was erased; `interval` is derived, see intervals."""
    return (
        """CREATE TABLE @head (
            tenant text COLLATE "C" NOT NULL, seq bigint NOT NULL, "rows" bigint NOT NULL,
            recorded_at bigint NOT NULL, hash bytea NOT NULL, PRIMARY KEY (tenant)
        ) WITH (fillfactor = 50)""",
        """CREATE TABLE @event (
            tenant text COLLATE "C" NOT NULL, seq bigint NOT NULL, kind text NOT NULL, at bigint NOT NULL,
            agent_id text NOT NULL, agent_role text NOT NULL, namespace text, ordinal bigint,
            payload text NOT NULL, salt bytea NOT NULL, commitment bytea NOT NULL, hash bytea NOT NULL,
            PRIMARY KEY (tenant, seq)
        )""",
        """CREATE INDEX event_closing ON @event (tenant, ordinal, seq)
            WHERE kind IN ('supersede', 'forget', 'archive', 'restore')""",
        """CREATE TABLE @memory (
            tenant text COLLATE "C" NOT NULL, ordinal bigint NOT NULL, seq bigint NOT NULL, id text NOT NULL,
            version bigint NOT NULL, namespace text NOT NULL, memory_type text NOT NULL, key text, frame text,
            confidence double precision NOT NULL, pinned smallint NOT NULL, event_at bigint, speaker text,
            visibility text NOT NULL, content_hash text NOT NULL, recorded_at bigint NOT NULL,
            agent_id text NOT NULL, agent_role text NOT NULL, session_id text, valid_from bigint NOT NULL,
            tokens bigint NOT NULL, traits bigint NOT NULL, generation bigint, erased bigint,
            source_id text, tags text NOT NULL, entities text NOT NULL, derived_from text NOT NULL,
            metadata text NOT NULL, lexemes text NOT NULL, content text NOT NULL,
            PRIMARY KEY (tenant, ordinal), UNIQUE (tenant, seq)
        )""",
        "CREATE INDEX memory_erased ON @memory (tenant, erased) WHERE erased IS NOT NULL",
        """CREATE TABLE @vector (
            tenant text COLLATE "C" NOT NULL, generation bigint NOT NULL, ordinal bigint NOT NULL,
            part bigint NOT NULL, start bigint NOT NULL, stop bigint NOT NULL, data bytea NOT NULL,
            codes bytea NOT NULL, PRIMARY KEY (tenant, generation, ordinal, part)
        )""",
        # Floats and codes do not compress; trying costs time at every write.
        "ALTER TABLE @vector ALTER data SET STORAGE EXTERNAL, ALTER codes SET STORAGE EXTERNAL",
        """CREATE TABLE @generation (
            tenant text COLLATE "C" NOT NULL, number bigint NOT NULL, fingerprint text NOT NULL,
            dimension bigint NOT NULL, seq bigint, PRIMARY KEY (tenant, number)
        )""",
        """CREATE TABLE @receipt (
            tenant text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
            body text NOT NULL, PRIMARY KEY (tenant, id)
        )""",
        # GiST has no = for plain numbers without the extension btree_gist, which is not everywhere; a range of
        # one number overlaps another exactly when the numbers are equal. slot_a and slot_b are 124 bits of a
        # hash of tenant, namespace and key.
        """CREATE TABLE @interval (
            tenant text COLLATE "C" NOT NULL, ordinal bigint NOT NULL, seq bigint NOT NULL,
            namespace text NOT NULL, memory_type text NOT NULL,
            slot_a bigint, slot_b bigint, content_hash text NOT NULL,
            valid_from bigint NOT NULL, valid_to bigint NOT NULL, closed bigint,
            exclusive boolean NOT NULL, why text,
            during int8range NOT NULL GENERATED ALWAYS AS (
                CASE WHEN valid_to > valid_from THEN int8range(valid_from, valid_to) ELSE 'empty'::int8range END
            ) STORED,
            PRIMARY KEY (tenant, ordinal),
            CONSTRAINT one_value_at_a_time EXCLUDE USING gist (
                int8range(slot_a, slot_a, '[]') WITH &&, int8range(slot_b, slot_b, '[]') WITH &&,
                during WITH &&
            ) WHERE (exclusive AND closed IS NULL)
        )""",
        "CREATE INDEX interval_slot ON @interval (tenant, slot_a, slot_b) WHERE slot_a IS NOT NULL",
        *(statement for table in _FIRST_TABLES for statement in secured(f"@{table}")),
        # One round trip for the question that every recall begins with: set the tenant, read its head.
        f"""CREATE FUNCTION @head_of(of_tenant text)
            RETURNS TABLE (seq bigint, "rows" bigint, recorded_at bigint, hash bytea)
            LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM set_config('{SETTING}', '{MARK}' || of_tenant, true);
                RETURN QUERY SELECT h.seq, h."rows", h.recorded_at, h.hash
                    FROM @head AS h WHERE h.tenant = of_tenant;
            END $$""",
    )


def _create_edges() -> tuple[str, ...]:
    """Format 2. Edges are derived; a tenant's are made from its log by whoever writes to it next."""
    return (
        *postgres_graph.TABLES,
        *(statement for table in ("edge", "derived") for statement in secured(f"@{table}")),
        # A table of few tenants is one page, which the planner would read as a whole for every question.
        "ALTER FUNCTION @head_of(text) SET enable_seqscan = off",
    )


def _claim_what_is_derived() -> tuple[str, ...]:
    """Format 3. What was derived before is made anew by whoever writes next: nobody has counted it."""
    return (postgres_graph.CLAIMED,)


# Of a schema in the newest format, the tables that can be made anew, and from what.
_REMADE: Final = {
    "edge": (*postgres_graph.EDGE, *secured("@edge")),
    "derived": (postgres_graph.TABLES[-1], *secured("@derived"), postgres_graph.CLAIMED),
}

# A schema's format is the number of these that ran on it. Append only; released ones never change.
MIGRATIONS: Final[tuple[Callable[[], tuple[str, ...]], ...]] = (
    _create_tables,
    _create_edges,
    _claim_what_is_derived,
)


def prepare(db: Any, schema: str, qualified: Callable[[str], str], wait: str = "0") -> None:
    """Bring an empty or older schema to this version's format, one process at a time; make lost derived tables anew.

    StoreTooNew for a newer one. A role without the right to create works on a schema that is up to date.
    """
    if _format(db, schema, qualified) == len(MIGRATIONS) and not _lost(db, schema):
        return
    with changing(db, schema, wait):
        done = _format(db, schema, qualified)  # again: another process may have been first
        if done == len(MIGRATIONS):
            for table in _lost(db, schema):
                for statement in _REMADE[table]:
                    db.execute(qualified(statement))
        if done == 0 and not _exists(db, schema):
            db.execute(f'CREATE SCHEMA "{schema}"')
        for migrate in MIGRATIONS[done:]:
            for statement in migrate():
                db.execute(qualified(statement))
        if done == 0:
            db.execute(qualified("CREATE TABLE @format (version bigint NOT NULL)"))
            db.execute(qualified("INSERT INTO @format (version) VALUES (0)"))
        db.execute(qualified("UPDATE @format SET version = %s"), (len(MIGRATIONS),))


@contextlib.contextmanager
def changing(db: Any, schema: str, wait: str) -> Iterator[None]:
    """A transaction that changes what a schema is made of, one process at a time; undone by any exception.

    wait: milliseconds for locks, as the setting lock_timeout takes them.
    """
    db.execute("BEGIN")
    try:
        with unhurried(db):
            db.execute("SELECT set_config('lock_timeout', %s, true)", (wait,))
            db.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('twofold schema ' || %s, 0))", (schema,)
            )
            yield
            db.execute("COMMIT")
    except BaseException:
        if not db.closed:
            db.execute("ROLLBACK")
        raise


def make_table(
    db: Any, schema: str, qualified: Callable[[str], str], wait: str, there: str, statements: Iterable[str]
) -> None:
    """Run the statements if `there`, asked with the schema's name, finds nothing; one process at a time."""
    if db.execute(there, (schema,)).fetchall():
        return
    with changing(db, schema, wait):
        if not db.execute(there, (schema,)).fetchall():
            for statement in statements:
                db.execute(qualified(statement))


def _lost(db: Any, schema: str) -> list[str]:
    """The derived tables that are not there, though the format has them."""
    asked = "SELECT tablename::text FROM pg_tables WHERE schemaname = %s AND tablename = ANY(%s)"
    there = {name for (name,) in db.execute(asked, (schema, list(_REMADE)))}
    return [name for name in _REMADE if name not in there]


def _format(db: Any, schema: str, qualified: Callable[[str], str]) -> int:
    """The format version of a schema, 0 when it is not there or empty."""
    # Asked of the catalogue's rows: to_regclass may answer from a cache older than the lock.
    tables = {
        name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
    }
    if "format" not in tables:
        if tables:
            raise StoreError(
                f"the schema {schema!r} holds tables of something else; name another one (?schema=...)"
            )
        return 0
    version: int = db.execute(qualified("SELECT version FROM @format")).fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            f"the schema {schema!r} has format {version}; this Twofold reads up to {len(MIGRATIONS)}: "
            "upgrade it (pip install -U twofold)"
        )
    return version


def _exists(db: Any, schema: str) -> bool:
    found: int = db.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()[0]
    return found > 0
