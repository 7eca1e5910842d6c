"""What may be wrong with the server of a PostgreSQL store: each thing tried, with what to do about it.

It looks through a connection of its own, outside of the store's pool, so that it can say that the pool is used up.
Every check is a transaction; one that the role has no right to make is a warning, not silence.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import psycopg

from twofold.clock import SECOND, monotonic
from twofold.errors import StoreError
from twofold.model import Finding
from twofold.stores import postgres_age as age
from twofold.stores import postgres_graph as graph
from twofold.stores import postgres_text as text
from twofold.stores.postgres import PLACES, Connection, PostgresStore
from twofold.stores.postgres_derived import TABLES, counts, entries_of, kept_up, reach_of
from twofold.stores.postgres_schema import (
    AS_TENANT,
    MIGRATIONS,
    SETTING,
    TENANT_TABLES,
)

if TYPE_CHECKING:
    from twofold.stores.postgres_replica import ReplicaReads

Now = Callable[[], int]

SKEW: Final = (1.0, 30.0)  # seconds between the clocks that warn, and that fail
BEHIND: Final = (64 * 2**20, 30.0)  # bytes of log, and seconds, that a standby may be behind
CROWDED: Final = 0.8  # share of the server's connections in use that warns
OLDEST: Final = 130000
_PINGS: Final = 5
_SECONDS: Final = "15000"  # milliseconds, for one statement of a check
LIMIT = 20.0  # seconds after which a server that says nothing is one that does not answer
_NOBODY: Final = "\x01 a tenant that nobody is"

# What each is needed for, and how it is made.
EXTENSIONS: Final = {
    "vector": "mode=pushdown",
    "age": "graph=age",
    "vectorscale": "a DiskANN index",
    "alloydb_scann": "a ScaNN index",
}
_PRELOADED: Final = "have a superuser run CREATE EXTENSION {name} in this database"


def examine(store: PostgresStore, tenant: str, now: Now, replica: ReplicaReads | None) -> list[Finding]:
    """Everything that can be told about a store that is open. Never raises for what it finds."""
    found = [_pool(store)]
    found += _through(store, now, tenant)
    if replica is not None:
        found.append(_guarded("replica", lambda: _replica(store, tenant, replica)))
    return found


def examine_unopened(url: str, now: Now) -> list[Finding]:
    """What can be told about the server of a store that cannot be opened."""
    store = _Unopened(url, timeout=5.0)
    try:
        return _through(store, now)
    finally:
        store.close()


class _Unopened(PostgresStore):
    """A store whose server is only looked at."""

    def _open(self) -> None:
        """Neither refuse the role nor change the schema."""


class _Looking:
    """A connection, and what several checks need to know."""

    def __init__(self, db: Connection, store: PostgresStore) -> None:
        self.db = db
        self.store = store
        self.schema = store._schema
        self.graph = "" if len(self.schema) > 57 else age.graph_of(self.schema)

    def ask(self, sql: str, *args: Any) -> list[Any]:
        return self.db.execute(self.store._q(sql), args or None).fetchall()

    @functools.cached_property
    def tables(self) -> list[Any]:
        """(schema, table, ...) of what holds tenants' data, ours and AGE's."""
        return [
            one for one in self.ask(_TABLES, [self.schema, self.graph]) if one[:2] != (self.schema, "format")
        ]

    @functools.cached_property
    def bypasses(self) -> bool:
        """Whether policies do not hold for this role, so that no check can be made through them."""
        return bool(
            self.ask("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")[0][0]
        )


def _through(store: PostgresStore, now: Now, tenant: str | None = None) -> list[Finding]:
    try:
        db = store._connect()
    except (psycopg.Error, UnicodeEncodeError) as error:
        said = store.plain_text(error)
        # libpq gives no code for what happens before a session begins.
        crowded = "too many" in said or "connection slots" in said
        remedy = (
            "close some connections, or raise max_connections or the CONNECTION LIMIT of the role"
            if crowded
            else "is the server running, and reachable from here, and are role, password and database right?"
        )
        return [Finding("connection", "fail", said, remedy)]
    db.limit = LIMIT
    try:
        looking = _Looking(db, store)
        checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
            ("server", lambda: _server(looking)),
            ("extensions", lambda: _extensions(looking)),
            ("format", lambda: _format(looking)),
            ("role", lambda: _role(looking)),
            ("row-level security", lambda: _security(looking)),
            ("clock", lambda: _clock(looking, now)),
            ("connections", lambda: _connections(looking)),
            ("standbys", lambda: _standbys(looking)),
            ("indexes", lambda: _indexes(looking)),
            ("constraints", lambda: _constraints(looking)),
            ("derived tables", lambda: [] if tenant is None else _derived(looking, tenant)),
            ("timeouts", lambda: _timeouts(looking)),
            ("durability", lambda: _durability(looking)),
            ("encryption", lambda: _encryption(looking)),
        ]
        out: list[Finding] = []
        for name, check in checks:
            try:
                with _reading(db):
                    out += check()
            except psycopg.Error as error:
                out.append(_untried(name, store.plain_text(error)))
        return out
    finally:
        db.close()


@contextlib.contextmanager
def _reading(db: Connection) -> Iterator[None]:
    """A transaction that cannot change anything or take long."""
    with db.transaction():
        db.execute("SET TRANSACTION READ ONLY")
        db.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', '2000', true)",
            (_SECONDS,),
        )
        yield


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except StoreError as error:
        return Finding(
            name, "fail", str(error), "see the message; recalls are served by the primary meanwhile"
        )


def _untried(name: str, why: str) -> Finding:
    return Finding(
        name, "warn", f"could not be looked at: {why}", "run doctor as a role with the right to look"
    )


def _named(names: Iterable[str], most: int = 6) -> str:
    listed = list(names)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + rest


# The server


def _server(at: _Looking) -> list[Finding]:
    ((number, version, encoding, collation),) = at.ask(
        """SELECT current_setting('server_version_num')::int, current_setting('server_version'),
           current_setting('server_encoding'), (SELECT datcollate FROM pg_database
           WHERE datname = current_database())"""
    )
    detail = f"PostgreSQL {version}, {encoding}, collation {collation}"
    if number < OLDEST:
        return [
            Finding(
                "server", "fail", detail, f"Twofold needs PostgreSQL {OLDEST // 10000} or newer: upgrade it"
            )
        ]
    if encoding != "UTF8":
        return [
            Finding("server", "fail", detail, "make a database with ENCODING 'UTF8', and migrate into it")
        ]
    return [Finding("server", "ok", detail)]


def _extensions(at: _Looking) -> list[Finding]:
    there = {
        name: (best, installed)
        for name, best, installed in at.ask(
            "SELECT name, default_version, installed_version FROM pg_available_extensions WHERE name = ANY(%s)",
            list(EXTENSIONS),
        )
    }
    used = set()
    tables = {name for _, name, *_ in at.tables}
    if at.store.pushdown or "embedding" in tables:
        used.add("vector")
    if at.store._mirror is not None or "vertex" in tables:
        used.add("age")
    methods = {
        name
        for (name,) in at.ask(
            """SELECT DISTINCT a.amname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam
           JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'i'""",
            at.schema,
        )
    }
    if "diskann" in methods:
        used.add("vectorscale")
    if "scann" in methods:
        used.add("alloydb_scann")
    return [
        _extension(at, name, need, *there.get(name, (None, None)), name in used)
        for name, need in EXTENSIONS.items()
    ]


def _extension(
    at: _Looking, name: str, need: str, best: str | None, installed: str | None, used: bool
) -> Finding:
    title = f"extension {name}"
    if installed is None:
        where = f"{best} is on the server, not made" if best else "not on this server"
        if not used:
            return Finding(title, "ok", f"{where}; {need} would need it")
        remedy = _PRELOADED.format(name=name) if best else f"install it on the server, or give up {need}"
        return Finding(title, "fail", f"{where}, and {need} is in use", remedy)
    detail = f"{installed}, {'used' if used else 'not used'} ({need})"
    if used and name == "vector":
        try:
            with at.db.transaction():
                at.ask("SELECT NULL::vector(3)")
        except psycopg.Error as error:
            return Finding(
                title,
                "fail",
                f"{detail}: {at.store.plain_text(error)}",
                "put the extension's schema into the search_path: ALTER ROLE ... SET search_path",
            )
        if _numbers(installed) < (0, 8):
            return Finding(
                title,
                "fail",
                f"{detail}: cannot go on with a filtered search where a list is short",
                "upgrade it to 0.8 or newer, then ALTER EXTENSION vector UPDATE",
            )
    if best is not None and best != installed:
        return Finding(title, "warn", f"{detail}; {best} is on the server", f"ALTER EXTENSION {name} UPDATE")
    return Finding(title, "ok", detail)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _format(at: _Looking) -> list[Finding]:
    if ("format",) not in at.ask("SELECT tablename::text FROM pg_tables WHERE schemaname = %s", at.schema):
        return [
            Finding("format", "warn", f"there is no store in the schema {at.schema}", "open the store once")
        ]
    version = at.ask("SELECT version FROM @format")[0][0]
    newest = len(MIGRATIONS)
    if version > newest:
        return [
            Finding(
                "format", "fail", f"format {version}; this Twofold knows {newest}", "pip install -U twofold"
            )
        ]
    if version < newest:
        return [
            Finding(
                "format", "warn", f"format {version} of {newest}", "open the store with the tables' owner"
            )
        ]
    return [Finding("format", "ok", f"format {version}, schema {at.schema}")]


# Who may see what

_TABLES: Final = """SELECT n.nspname::text, c.relname::text, c.relrowsecurity, c.relforcerowsecurity,
        pg_has_role(current_user, c.relowner, 'MEMBER'),
        (SELECT coalesce(json_agg(json_build_array(p.permissive, p.cmd, p.qual, p.with_check)), '[]')
         FROM pg_policies AS p WHERE p.schemaname = n.nspname AND p.tablename = c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') ORDER BY 1, 2"""


def _role(at: _Looking) -> list[Finding]:
    roles = at.ask(
        """SELECT rolname::text, rolsuper, rolbypassrls, rolname = current_user FROM pg_roles
           WHERE pg_has_role(session_user, oid, 'MEMBER') OR rolname = current_user ORDER BY 1"""
    )
    me = next(name for name, _, _, mine in roles if mine)
    make = "connect as a role made by CREATE ROLE twofold LOGIN NOSUPERUSER NOBYPASSRLS"
    for name, superuser, bypasses, mine in roles:
        if mine and (superuser or bypasses):
            what = "is a superuser" if superuser else "has BYPASSRLS"
            detail = f"{name} {what}: policies do not hold for it, so tenants are not kept apart"
            return [Finding("role", "fail", detail, make)]
    strong = [name for name, superuser, bypasses, _ in roles if superuser or bypasses]
    if strong:
        detail = f"{me} may become {_named(strong)}, for which policies do not hold"
        return [Finding("role", "fail", detail, f"REVOKE that from {me}, or {make}")]
    owned = sorted({f"{one[0]}.{one[1]}" for one in at.tables if one[4]})
    if owned:
        return [
            Finding(
                "role",
                "warn",
                f"{me} owns {len(owned)} tables, and so could switch their policies off",
                "let another role own them, and give this one USAGE on the schema and SELECT, INSERT, UPDATE, DELETE "
                "(and MAINTAIN, for erasures) on its tables",
            )
        ]
    return [Finding("role", "ok", f"{me} is under the policies and does not own the tables")]


def _security(at: _Looking) -> list[Finding]:
    name = "row-level security"
    tables = at.tables
    missing = sorted(set(TENANT_TABLES) - {table for schema, table, *_ in tables if schema == at.schema})
    if not tables:
        return [
            Finding(name, "warn", f"there are no tables in the schema {at.schema}", "open the store once")
        ]
    usual = {
        schema: Counter(rule[2] for one in tables if one[0] == schema for rule in one[5]).most_common(1)
        for schema in {one[0] for one in tables}
    }
    off = [f"{s}.{t}" for s, t, enabled, *_ in tables if not enabled]
    lax = [f"{s}.{t}" for s, t, enabled, forced, *_ in tables if enabled and not forced]
    odd = [
        f"{schema}.{table}"
        for schema, table, _, _, _, rules in tables
        if len(rules) != 1
        or rules[0][:2] != ["PERMISSIVE", "ALL"]
        or rules[0][2] != rules[0][3]
        or SETTING not in rules[0][2]
        or rules[0][2] != usual[schema][0][0]
    ]
    seen = [] if at.bypasses else [f"{s}.{t}" for s, t, *_ in tables if _shows(at, s, t)]
    faults = [
        (
            f"switched off on {_named(off)}",
            off,
            "ALTER TABLE ... ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        ),
        (f"not forced on the owner of {_named(lax)}", lax, "ALTER TABLE ... FORCE ROW LEVEL SECURITY"),
        (
            f"another policy than tenant_only on {_named(odd)}",
            odd,
            "DROP POLICY, and make it as on the other tables",
        ),
        (
            f"rows without a tenant, or of another, are shown by {_named(seen)}",
            seen,
            "stop the clients, and mend it",
        ),
        (
            f"no table {_named(missing)} in {at.schema}",
            missing,
            "open the store again; restore a backup otherwise",
        ),
    ]
    faults = [one for one in faults if one[1]]
    if faults:
        return [
            Finding(name, "fail", "; ".join(one[0] for one in faults), "; ".join(one[2] for one in faults))
        ]
    what = f"{len(tables)} tables, on and forced, one policy each"
    if at.bypasses:
        return [Finding(name, "warn", f"{what}; but they do not hold for this role", "see the check `role`")]
    return [Finding(name, "ok", f"{what}; nothing is shown without a tenant or to a strange one")]


def _shows(at: _Looking, schema: str, table: str) -> bool:
    """Whether a table shows a row to nobody, or to a tenant that there is not."""
    at.db.execute("SELECT set_config('enable_seqscan', 'off', true)")
    sql = f'SELECT EXISTS (SELECT 1 FROM "{schema}"."{table}")'
    for tenant in (None, _NOBODY):
        if tenant is None:
            at.db.execute(f"SELECT set_config('{SETTING}', '', true)")
        else:
            at.db.execute(AS_TENANT, (tenant,))
        if at.db.execute(sql).fetchall()[0][0]:
            return True
    return False


# Time and connections


def _clock(at: _Looking, now: Now) -> list[Finding]:
    best: tuple[float, float] | None = None
    for _ in range(_PINGS):
        began, here = monotonic(), now()
        server = at.ask("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0]
        there_and_back = monotonic() - began
        skew = (server - here) / SECOND - there_and_back / 2
        if best is None or there_and_back < best[1]:
            best = (skew, there_and_back)
    assert best is not None
    skew, trip = best
    side = "ahead of" if skew > 0 else "behind"
    detail = (
        f"the server's clock is {abs(skew):.3f} s {side} this one, give or take {trip / 2:.3f} s (round trip "
        f"{trip * 1000:.2f} ms)"
    )
    beyond = abs(skew) - trip / 2
    remedy = "synchronise the clocks (NTP); times in the log are those of the machine that writes"
    if beyond > SKEW[1]:
        return [Finding("clock", "fail", detail, remedy)]
    return [Finding("clock", "warn", detail, remedy) if beyond > SKEW[0] else Finding("clock", "ok", detail)]


def _pool(store: PostgresStore) -> Finding:
    states = {purpose: places.state() for purpose, places in store._places.items()}
    detail = ", ".join(
        f"{one.used} of {one.limit} {PLACES[purpose]} in use, {one.waiting} waiting"
        for purpose, one in states.items()
    )
    detail = f"{detail}; {len(store._idle)} idle connections"
    short = [purpose for purpose, one in states.items() if one.used >= one.limit]
    remedy = f"allow more in the address ({', '.join(f'{PLACES[one]}=...' for one in short)}), or use fewer threads"
    if any(states[purpose].waiting for purpose in short):
        return Finding("pool", "fail", detail, remedy)
    return Finding("pool", "warn", detail, remedy) if short else Finding("pool", "ok", detail)


def _connections(at: _Looking) -> list[Finding]:
    ((used, most, kept, own, own_limit, here, here_limit),) = at.ask(
        """SELECT (SELECT sum(numbackends) FROM pg_stat_database)::int, current_setting('max_connections')::int,
           current_setting('superuser_reserved_connections')::int
             + coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::int,
           (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user)::int,
           (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
           (SELECT numbackends FROM pg_stat_database WHERE datname = current_database()),
           (SELECT datconnlimit FROM pg_database WHERE datname = current_database())"""
    )
    free = most - kept - used
    detail = f"{used} of {most} in use ({kept} are reserved)"
    if own_limit >= 0:
        free, detail = min(free, own_limit - own), f"{detail}, {own} of {own_limit} of this role"
    if here_limit >= 0:
        free, detail = min(free, here_limit - here), f"{detail}, {here} of {here_limit} of this database"
    wanted = sum(places.state().limit for places in at.store._places.values())
    detail = f"{detail}; this process may want {wanted}"
    remedy = (
        "raise max_connections or the role's CONNECTION LIMIT, lower readers= and writers=, or use pgbouncer"
    )
    if free < 1:
        return [Finding("connections", "fail", f"{detail}; none is free", remedy)]
    if free < wanted or used > CROWDED * most:
        return [Finding("connections", "warn", f"{detail}; {free} are free", remedy)]
    return [Finding("connections", "ok", detail)]


# Replication

_STANDBYS: Final = """SELECT application_name, state, sync_state,
        pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint, extract(epoch FROM replay_lag)::float8
    FROM pg_stat_replication WHERE application_name NOT LIKE '%pg_basebackup%' OR application_name IS NULL
    ORDER BY application_name"""
_REPLAYED: Final = """SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn()::text,
        CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
             ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 END,
        CASE WHEN pg_is_in_recovery() THEN pg_get_wal_replay_pause_state() END"""


def _standbys(at: _Looking) -> list[Finding]:
    name = "replication"
    if at.ask("SELECT pg_is_in_recovery()")[0][0]:
        return [
            Finding(
                name,
                "fail",
                "this server is a standby: it takes no writes",
                "name the primary, or all servers and target_session_attrs=read-write",
            )
        ]
    attached = at.ask(_STANDBYS)
    ((synchronous,),) = at.ask("SELECT current_setting('synchronous_standby_names')")
    if synchronous and not any(sync in ("sync", "quorum") for _, _, sync, *_ in attached if sync):
        hidden = attached and all(state is None for _, state, *_ in attached)
        if not hidden:
            return [
                Finding(
                    name,
                    "fail",
                    f"commits wait for a standby ({synchronous}), and none is attached",
                    "start the standby, or take it out of synchronous_standby_names",
                )
            ]
    if not attached:
        return [Finding(name, "ok", "a primary without standbys")]
    if all(state is None for _, state, *_ in attached):
        return [
            Finding(
                name,
                "warn",
                f"a primary with {len(attached)} standbys, whose lag this role may not see",
                "GRANT pg_read_all_stats TO this role",
            )
        ]
    told = [
        f"{who} {state} ({sync}), {behind or 0:,} bytes and {lag or 0.0:.1f} s behind"
        for who, state, sync, behind, lag in attached
    ]
    late = [
        who
        for who, state, _, behind, lag in attached
        if state != "streaming" or (behind or 0) > BEHIND[0] or (lag or 0.0) > BEHIND[1]
    ]
    detail = f"a primary; {'; '.join(told)}"
    if late:
        return [Finding(name, "warn", detail, f"look at the log of {_named(late)}, its network and its disk")]
    return [Finding(name, "ok", detail)]


def _replica(store: PostgresStore, tenant: str, replica: ReplicaReads) -> Finding:
    """How far the server that recalls are read from is behind."""
    head = replica._replica_head(tenant)
    events = max(0, store.head(tenant).seq - head.seq)

    def look(db: Connection) -> Any:
        return db.execute(_REPLAYED).fetchone()

    standing, place, seconds, paused = replica.standby._retried("look at the replica", look)
    if not standing:
        return Finding(
            "replica",
            "warn",
            f"{replica.standby.url} is no standby: it takes writes of its own",
            "name a standby as the replica",
        )

    def measure(db: Connection) -> Any:
        return db.execute(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s::pg_lsn)::bigint", (place,)
        ).fetchone()

    behind = max(0, store._retried("measure the replica's lag", measure)[0])
    allowed = "any" if replica.max_lag < 0 else str(replica.max_lag)
    detail = (
        f"{replica.standby.url}: {events} events behind ({allowed} allowed), {behind:,} bytes of log, "
        f"{seconds or 0.0:.1f} s"
    )
    if paused != "not paused":
        return Finding(
            "replica", "warn", f"{detail}; replay is {paused}", "SELECT pg_wal_replay_resume() on it"
        )
    if (replica.max_lag >= 0 and events > replica.max_lag) or behind > BEHIND[0]:
        return Finding(
            "replica",
            "warn",
            f"{detail}; recalls are served by the primary",
            "look at the replica's log, network and disk, or allow a larger max_lag",
        )
    return Finding("replica", "ok", detail)


# What the tables rest on

_INDEXES: Final = """SELECT c.relname::text, i.indisvalid AND i.indisready AND i.indislive, t.relname::text,
        EXISTS (SELECT 1 FROM pg_stat_progress_create_index AS p WHERE p.index_relid = i.indexrelid)
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS t ON t.oid = i.indrelid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    WHERE n.nspname = ANY(%s) OR i.indrelid IN (SELECT x.reltoastrelid FROM pg_class AS x
        JOIN pg_namespace AS y ON y.oid = x.relnamespace WHERE y.nspname = ANY(%s))
    ORDER BY 1"""
_CONSTRAINTS: Final = """SELECT t.relname::text, c.conname::text, c.contype::text, c.convalidated,
        coalesce((to_jsonb(c) ->> 'conenforced')::boolean, true)
    FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = c.conrelid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace WHERE n.nspname = %s ORDER BY 1, 2"""
_TRIGGERS: Final = """SELECT t.relname::text, count(*) FROM pg_trigger AS g JOIN pg_class AS t ON t.oid = g.tgrelid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    WHERE n.nspname = %s AND g.tgisinternal AND g.tgenabled NOT IN ('O', 'A') GROUP BY 1 ORDER BY 1"""


def statements_of_indexes() -> dict[str, str]:
    """The indexes that the formats make, by name, with the statement of each."""
    found = {}
    for migrate in MIGRATIONS:
        for statement in migrate():
            named = re.match(r"CREATE INDEX (\w+) ON", statement)
            if named:
                found[named[1]] = " ".join(statement.split())
    return found


def _indexes(at: _Looking) -> list[Finding]:
    schemas = [at.schema, at.graph]
    found = at.ask(_INDEXES, schemas, schemas)
    out: list[Finding] = []
    for name, valid, table, building in found:
        leftover = re.search(r"_cc(new|old)\d*$", name)
        title = f"index {name}"
        if valid and not leftover:
            continue
        if building:
            out.append(
                Finding(title, "warn", f"on {table}: is being built", "wait until it is, and look again")
            )
        elif leftover:
            out.append(
                Finding(
                    title,
                    "fail",
                    f"on {table}: left over from an index build that did not end",
                    f'DROP INDEX CONCURRENTLY "{at.schema}"."{name}"',
                )
            )
        else:
            out.append(
                Finding(
                    title,
                    "fail",
                    f"on {table}: invalid, its build failed; it is kept up, and not used",
                    f'REINDEX INDEX CONCURRENTLY "{at.schema}"."{name}", or DROP INDEX',
                )
            )
    names = {name for name, *_ in found}
    for name, statement in statements_of_indexes().items():
        if at.tables and name not in names:
            out.append(Finding(f"index {name}", "fail", "is not there", at.store._q(statement)))
    return out or [Finding("indexes", "ok", f"{len(found)}, all valid")]


def _constraints(at: _Looking) -> list[Finding]:
    found = at.ask(_CONSTRAINTS, at.schema)
    out = []
    for table, name, _, validated, enforced in found:
        if not enforced:
            out.append(
                Finding(
                    f"constraint {name}",
                    "fail",
                    f"on {table}: is not enforced",
                    f'ALTER TABLE "{at.schema}"."{table}" ALTER CONSTRAINT "{name}" ENFORCED',
                )
            )
        elif not validated:
            out.append(
                Finding(
                    f"constraint {name}",
                    "fail",
                    f"on {table}: older rows were not held against it",
                    f'ALTER TABLE "{at.schema}"."{table}" VALIDATE CONSTRAINT "{name}"',
                )
            )
    for table, count in at.ask(_TRIGGERS, at.schema):
        out.append(
            Finding(
                f"constraints of {table}",
                "fail",
                f"{count} of their triggers are disabled",
                f'ALTER TABLE "{at.schema}"."{table}" ENABLE TRIGGER ALL, as a superuser',
            )
        )
    kinds = {(table, kind) for table, _, kind, *_ in found}
    tables = {table for schema, table, *_ in at.tables if schema == at.schema}
    wanted = [(table, "p", "primary key") for table in sorted(tables & set(TENANT_TABLES))]
    wanted += [
        (t, kind, what)
        for t, kind, what in (
            ("interval", "x", "exclusion constraint one_value_at_a_time"),
            ("edge", "c", "check"),
            ("embedding", "f", "foreign key"),
        )
        if t in tables
    ]
    for table, kind, what in wanted:
        if (table, kind) not in kinds:
            out.append(
                Finding(
                    f"constraints of {table}",
                    "fail",
                    f"its {what} is not there",
                    "migrate into a new store (twofold migrate), or restore a backup",
                )
            )
    return out or [Finding("constraints", "ok", f"{len(found)}, all valid and enforced")]


def _derived(at: _Looking, tenant: str) -> list[Finding]:
    """Whether the tables that are searched hold what they are said to hold; counted, not compared."""
    name, store = "derived tables", at.store
    tables = at.ask(TABLES, at.schema)
    made = kept_up(tables)
    wanted = [graph.NAME] + [text.NAME] * store.pushdown + [age.NAME] * (store._mirror is not None)
    lost = [one for one in wanted if one not in made]
    if lost:
        return [
            Finding(
                name, "fail", f"there is no {_named(lost)} any more", "open the store again: it makes it anew"
            )
        ]
    at.db.execute(AS_TENANT, (tenant,))
    head = at.ask("SELECT seq FROM @head WHERE tenant = %s", tenant)
    claims = at.ask(graph.DERIVED, tenant)
    reach, seq = reach_of(tables, claims), head[0][0] if head else 0
    entries = entries_of(claims)
    behind = [one for one in made if reach.get(one, 0) != seq]
    short, told = [], []
    for one, (sql, args) in counts((n for n in made if n not in behind), at.graph, tenant).items():
        count, said = at.ask(sql, *args)[0][0], entries.get(one) or 0
        told.append(f"{one} {count:,}")
        if count != said:
            short.append(f"{one} has {count:,} entries of {said:,}")
    if short:
        store._filled.pop(tenant, None)  # so that this process counts, and mends, before it searches again
        return [
            Finding(
                name,
                "fail",
                "; ".join(short),
                "open the store again in every process with mode=pushdown: it makes them anew",
            )
        ]
    detail = f"entries of this tenant: {', '.join(told) or 'none'}"
    if behind:
        return [
            Finding(
                name,
                "warn",
                f"{detail}; {_named(behind)} not up to seq {seq}",
                "the next write makes it anew",
            )
        ]
    return [Finding(name, "ok", detail)]


# Settings


def _settings(at: _Looking, *names: str) -> dict[str, str]:
    return dict(
        at.ask("SELECT name, current_setting(name, true) FROM unnest(%s::text[]) AS name", list(names))
    )


def _timeouts(at: _Looking) -> list[Finding]:
    has = _settings(at, "idle_session_timeout", "transaction_timeout")
    seconds = int(at.store._statement_ms) // 1000
    limit = f"{seconds} s" if seconds else "no limit"
    detail = (
        f"statement_timeout and idle_in_transaction_session_timeout {limit}, "
        f"lock_timeout {at.store._timeout:g} s, by transaction; the server's own: "
        f"idle_session_timeout {has['idle_session_timeout'] or 'unknown'}, transaction_timeout "
        f"{has['transaction_timeout'] or 'unknown'}"
    )
    if not seconds:
        return [Finding("timeouts", "warn", detail, "give the address a statement_timeout=... in seconds")]
    return [Finding("timeouts", "ok", detail)]


def _durability(at: _Looking) -> list[Finding]:
    has = _settings(
        at,
        "fsync",
        "full_page_writes",
        "synchronous_commit",
        "synchronous_standby_names",
        "default_transaction_read_only",
        "session_replication_role",
    )
    detail = ", ".join(f"{name} {has[name]}" for name in ("fsync", "full_page_writes", "synchronous_commit"))
    faults: list[tuple[str, str, str]] = []
    for name, why in (
        ("fsync", "a crash of the machine may destroy the database"),
        ("full_page_writes", "a crash of the machine may tear pages"),
    ):
        if has[name] != "on":
            faults.append(("fail", f"{name} is off: {why}", f"set {name} = on"))
    if has["default_transaction_read_only"] == "on":
        faults.append(("fail", "default_transaction_read_only is on", "ALTER ROLE or DATABASE ... RESET it"))
    if has["session_replication_role"] != "origin":
        faults.append(("fail", "session_replication_role is not origin: constraints do not hold", "RESET it"))
    if has["synchronous_commit"] == "off":
        faults.append(
            (
                "warn",
                "synchronous_commit is off: a crash loses commits that were acknowledged",
                "set synchronous_commit = on for this role",
            )
        )
    elif has["synchronous_commit"] == "local" and has["synchronous_standby_names"]:
        faults.append(
            (
                "warn",
                "synchronous_commit is local: a failover may lose commits that were acknowledged",
                "set synchronous_commit = on for this role",
            )
        )
    if not faults:
        return [Finding("durability", "ok", detail)]
    state = "fail" if any(one[0] == "fail" for one in faults) else "warn"
    return [
        Finding(
            "durability",
            state,
            f"{detail}: {'; '.join(one[1] for one in faults)}",
            "; ".join(one[2] for one in faults),
        )
    ]


def _encryption(at: _Looking) -> list[Finding]:
    pgconn, info = at.db.pgconn, at.db.info
    mode = info.get_parameters().get("sslmode", "prefer")
    if not pgconn.ssl_in_use:
        if info.host.startswith("/"):
            return [Finding("encryption", "ok", "none: a socket of this machine")]
        if _here(info.hostaddr):
            return [Finding("encryption", "ok", "none: the connection does not leave this machine")]
        return [
            Finding(
                "encryption",
                "fail",
                "none: what is remembered crosses the network as plain text",
                "switch TLS on at the server, and give the address sslmode=verify-full",
            )
        ]
    rows = at.ask("SELECT version, cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl")
    detail = f"{' '.join(map(str, rows[0])) if rows else 'TLS'}, sslmode={mode}"
    if mode != "verify-full":
        return [
            Finding(
                "encryption",
                "warn",
                f"{detail}: who the server is was not checked",
                "give the address sslmode=verify-full and sslrootcert=...",
            )
        ]
    return [Finding("encryption", "ok", detail)]


def _here(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


__all__ = ["EXTENSIONS", "examine", "examine_unopened"]
