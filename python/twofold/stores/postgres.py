"""PostgreSQL: one schema of one database, for many processes on many machines.

Every statement runs in a transaction that has told the server its tenant, and row-level security, forced on the
owner too, holds whatever a statement forgets. A tenant's writers queue on an advisory lock that ends with their
transaction, so its log is dense; readers see one snapshot and wait for nobody. The bytes of rows, vectors and
hashes are those of every other store.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import parse_qsl, quote, unquote, unquote_plus, urlencode, urlsplit, urlunsplit

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import pq
from psycopg.types.numeric import Int8BinaryDumper

from twofold.clock import monotonic
from twofold.errors import InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError
from twofold.index.pushed import Found, Near, Steps, stored_name
from twofold.model import Batch, Changes, Event, Finding, Generation, Head, Row, Vectors, float_rows
from twofold.stores import postgres_age as age
from twofold.stores import postgres_feed as feed
from twofold.stores import postgres_graph as walked
from twofold.stores import postgres_intervals as intervals
from twofold.stores import postgres_text as worded
from twofold.stores import postgres_vectors as pushed
from twofold.stores import schema
from twofold.stores.fifo import FifoLock
from twofold.stores.places import Places
from twofold.stores.postgres_derived import TABLES, Derived, identity, kept_up
from twofold.stores.postgres_feed import Feed
from twofold.stores.postgres_schema import AS_TENANT, prepare
from twofold.stores.postgres_wire import Heard, Silent, unhurried

T = TypeVar("T")
Connection = psycopg.Connection[Any]
Arguments = Sequence[Any] | Mapping[str, Any]  # of a statement: by place, or by name

DEFAULT_SCHEMA: Final = "twofold"
_VECTOR_CHUNK: Final = 4_096  # ordinals whose vectors are in memory twice while they are read
PLACES: Final = {"read": "readers", "write": "writers"}  # connections, as the address names their number
GRACE = 5.0  # seconds after which a statement that has timed out must have been answered
_ATTEMPTS: Final = 5  # of a transaction that the server gave up: deadlock, serialisation
_OURS: Final = (
    "schema", "readers", "writers", "prepare", "scrub", "mode", "graph", "allow_bypass", "notify",
    "statement_timeout", "keep",
)  # fmt: skip

_SECRET: Final = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")

# A server that is cut off is noticed within half a minute, not after the two hours of the system's default.
_ALIVE: Final = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# Tables from which an erasure removes something; the others hold no content.
_ERASABLE: Final = ("event", "memory", "vector", "receipt", "interval", "edge")


class _Whole(Int8BinaryDumper):
    """Every int as int8, so that one statement is prepared once and not per size of its numbers."""


def _columns(names: Sequence[str]) -> str:
    """A select list; `erased` is kept as a seq and read as a truth value."""
    return ", ".join("(erased IS NOT NULL)::int" if name == "erased" else f'"{name}"' for name in names)


def _marks(count: int) -> str:
    return ", ".join(["%s"] * count)


_READ = "BEGIN READ ONLY"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('twofold tenant ' || %s::text || ' ' || %s::text, 0))"
_TRY_LOCK = _LOCK.replace("pg_advisory", "pg_try_advisory")
_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
# For the transaction only, as everything that is set, so that nothing stays on a connection that others use next.
_AS_TENANT = (
    f"{AS_TENANT}, set_config('statement_timeout', %s, true), "
    "set_config('idle_in_transaction_session_timeout', %s, true)"
)
# Some rows are asked for: whatever the statistics say, or fail to say, no table is to be read as a whole.
_AS_READER = f"{_AS_TENANT}, set_config('enable_seqscan', 'off', true)"
_NO_STATEMENT_TIMEOUT = "SELECT set_config('statement_timeout', '0', true)"

_HEAD_OF = "SELECT * FROM @head_of(%s)"
_HEAD = 'SELECT seq, "rows", recorded_at, hash FROM @head WHERE tenant = %s'
_PUT_HEAD = """INSERT INTO @head (tenant, seq, "rows", recorded_at, hash) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (tenant) DO UPDATE SET seq = excluded.seq, "rows" = excluded."rows",
    recorded_at = excluded.recorded_at, hash = excluded.hash"""
_HASH_AT = "SELECT hash FROM @event WHERE tenant = %s AND seq = %s"
_EVENTS = f"SELECT {_columns(schema.EVENT_COLUMNS)} FROM @event WHERE tenant = %s AND seq > %s ORDER BY seq LIMIT %s"
_PUT_EVENT = (
    f"INSERT INTO @event (tenant, {', '.join(schema.EVENT_COLUMNS)}) "
    f"VALUES ({_marks(1 + len(schema.EVENT_COLUMNS))})"
)
_INDEX_ROWS = (
    f"SELECT {_columns(schema.INDEX_COLUMNS)} FROM @memory WHERE tenant = %s AND seq > %s ORDER BY seq"
)
_ROWS = f"SELECT {_columns(schema.ROW_COLUMNS)} FROM @memory WHERE tenant = %s AND ordinal = ANY(%s)"
_PUT_ROW = (
    f"INSERT INTO @memory (tenant, {', '.join(schema.ROW_COLUMNS)}) "
    f"VALUES ({_marks(1 + len(schema.ROW_COLUMNS))})"
)
_ERASED_SINCE = "SELECT ordinal FROM @memory WHERE tenant = %s AND erased > %s ORDER BY ordinal"
_ERASED = "SELECT ordinal FROM @memory WHERE tenant = %s AND ordinal = ANY(%s) AND erased IS NOT NULL"
_BLANK = schema.blank_values()
_ERASE_ROWS = (
    f"UPDATE @memory SET {', '.join(f'{name} = %s' for name in _BLANK)}, erased = coalesce(erased, %s) "
    "WHERE tenant = %s AND ordinal = ANY(%s)"
)
_ERASE_VECTORS = "DELETE FROM @vector WHERE tenant = %s AND generation = ANY(%s) AND ordinal = ANY(%s)"
_ERASE_EVENTS = "UPDATE @event SET payload = '', salt = ''::bytea WHERE tenant = %s AND seq = ANY(%s)"
_ERASE_RECEIPT = "UPDATE @receipt SET body = %s WHERE tenant = %s AND id = %s"
_VECTOR_COLUMNS = "ordinal, part, start, stop, data, codes"
_VECTORS = (
    f"SELECT {_VECTOR_COLUMNS} FROM @vector WHERE tenant = %s AND generation = %s "
    "AND ordinal >= %s AND ordinal < %s ORDER BY ordinal, part"
)
_LAST_VECTOR = "SELECT coalesce(max(ordinal), -1) FROM @vector WHERE tenant = %s AND generation = %s"
_VECTORS_OF = (
    f"SELECT {_VECTOR_COLUMNS} FROM @vector WHERE tenant = %s AND generation = %s "
    "AND ordinal = ANY(%b) ORDER BY ordinal, part"
)
_PUT_VECTOR = """INSERT INTO @vector (tenant, generation, ordinal, part, start, stop, data, codes)
    VALUES (%s, %s, %s, %s, %s, %s, %b, %b) ON CONFLICT (tenant, generation, ordinal, part)
    DO UPDATE SET start = excluded.start, stop = excluded.stop, data = excluded.data, codes = excluded.codes"""
_DROP_VECTORS = "DELETE FROM @vector WHERE tenant = %s AND generation = %s"
_GENERATIONS = "SELECT number, fingerprint, dimension, seq FROM @generation WHERE tenant = %s ORDER BY number"
_PUT_GENERATION = """INSERT INTO @generation (tenant, number, fingerprint, dimension, seq)
    VALUES (%s, %s, %s, %s, %s) ON CONFLICT (tenant, number) DO UPDATE SET seq = excluded.seq"""
_DROP_GENERATION = "DELETE FROM @generation WHERE tenant = %s AND number = %s"
_RECEIPT = "SELECT body FROM @receipt WHERE tenant = %s AND id = %s"
_RECEIPTS = "SELECT id, seq FROM @receipt WHERE tenant = %s ORDER BY seq, id"
_PUT_RECEIPT = "INSERT INTO @receipt (tenant, id, seq, body) VALUES (%s, %s, %s, %s)"


class PostgresStore:
    """A store in one schema of a PostgreSQL database.

    `url`: what libpq takes, several hosts included, and of our own: `schema` (default "twofold"), `readers` and
    `writers` (connections per process, 8 and 4), `prepare=0` (behind a pgbouncer that does not track prepared
    statements), `scrub=full` (rewrite the tables after an erasure), `mode=pushdown` (vectors stay in the server
    and are searched there, see postgres_vectors), `allow_bypass=1` (let a superuser or a role with BYPASSRLS
    connect, for which row-level security does not hold), `notify=1` (tell those who `listen` of each commit),
    `keep` (MB of fetched vectors that the process keeps under mode=pushdown; 64, 0 for none),
    `statement_timeout` (whole seconds one statement may take, and a transaction may do nothing; 300, 0 for ever;
    a server that says nothing for five seconds more than that is given up).
    `timeout`: seconds to wait for another writer, a connection, or a server that is being replaced.
    Raises StoreError, StoreBusy, StoreCorrupt or StoreTooNew.
    """

    persistent = True
    cache_dir = None

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        if not timeout >= 0:
            raise InvalidInput(f"timeout must be 0 or more seconds, not {timeout!r}")
        own, self._dsn, self.url = split_url(url)
        self._secrets = secrets_of(url)
        self._timeout = timeout
        self._schema = own.get("schema", DEFAULT_SCHEMA)
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self._schema):
            raise InvalidInput(f"schema must be lower-case letters, digits and _, not {self._schema!r}")
        self._full_scrub = _choice(own, "scrub", ("vacuum", "full")) == "full"
        self._prepare = 5 if _choice(own, "prepare", ("1", "0")) == "1" else None
        self.pushdown = _choice(own, "mode", ("local", "pushdown")) == "pushdown"
        mirrored = _choice(own, "graph", ("sql", "age")) == "age"
        self._mirror = age.graph_of(self._schema) if mirrored else None
        self._allow_bypass = _choice(own, "allow_bypass", ("0", "1")) == "1"
        self._notify = _choice(own, "notify", ("0", "1")) == "1"
        seconds = own.get("statement_timeout", "300")
        if not re.fullmatch("[0-9]{1,6}", seconds):
            raise InvalidInput(f"statement_timeout must be whole seconds, not {seconds!r}")
        self._statement_ms = str(1000 * int(seconds))
        # The server's own timeout comes first, if the server lives.
        self._silence = int(seconds) + GRACE if int(seconds) else None
        self.kept_bytes = 2**20 * _number(own, "keep", 64, 0, 1_000_000)
        self._limits = {"read": _number(own, "readers", 8), "write": _number(own, "writers", 4)}
        self._qualified: dict[str, str] = {}
        self._closed = False
        self._forget_connections()
        self._open()
        _LIVE.add(self)

    def _forget_connections(self) -> None:
        """Begin without connections and locks: at the start, and in a forked child, where they are the parent's."""
        self._pid = os.getpid()
        self._idle: deque[Connection] = deque()
        self._places = {name: Places(limit) for name, limit in self._limits.items()}
        self._locks: dict[str, FifoLock] = {}
        self._mutex = threading.Lock()
        self._mine = threading.local()
        self._filled: dict[str, tuple[Any, ...]] = {}  # by tenant, the searched tables as they were counted
        self._columns: set[int] = set()

    # Reading

    def head(self, tenant: str) -> Head:
        self._refuse_unusable()

        def ask(db: Connection) -> list[Any]:
            return db.execute(self._q(_HEAD_OF), (tenant,), binary=True).fetchall()

        found = self._retried("read the head", ask)
        return Head._make(found[0]) if found else Head()

    def changes(self, tenant: str, after: int) -> Changes:
        found = self._ask("read changes", tenant, *_asking_changes(tenant, after), snapshot=True)
        return _changes(*found)

    def rows(self, tenant: str, ordinals: Sequence[int]) -> list[Row]:
        wanted = [int(ordinal) for ordinal in ordinals]
        (records,) = self._ask("read rows", tenant, (_ROWS, (tenant, sorted(set(wanted)))))
        found = {record[0]: record for record in records}
        try:
            return [schema.row_of(found[ordinal]) for ordinal in wanted]
        except KeyError as missing:
            raise NotFound(f"there is no row {missing.args[0]} in tenant {tenant!r}") from None

    def vectors(self, tenant: str, generation: int, first: int = 0, stop: int | None = None) -> Vectors:
        number, low = int(generation), max(0, int(first))

        def read(db: Connection) -> Vectors:
            dimension = _dimension(self._now(db, _GENERATIONS, (tenant,)), tenant, number)
            last = self._now(db, _LAST_VECTOR, (tenant, number))[0][0] + 1
            high = last if stop is None else min(last, int(stop))
            records: list[Any] = []
            blocks = []
            for at in range(low, high, _VECTOR_CHUNK):
                key = (tenant, number, at, min(at + _VECTOR_CHUNK, high))
                records = self._now(db, _VECTORS, key)
                blocks.append(_vectors(number, dimension, records))
            return _joined(number, dimension, blocks)

        return self._in_snapshot("read vectors", tenant, read)

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        number, wanted = int(generation), sorted({int(ordinal) for ordinal in ordinals})
        known, records = self._ask(
            "read vectors",
            tenant,
            (_GENERATIONS, (tenant,)),
            (_VECTORS_OF, (tenant, number, pushed.numbers(wanted))),
            snapshot=True,
        )
        return _vectors(number, _dimension(known, tenant, number), records)

    def generations(self, tenant: str) -> list[Generation]:
        (found,) = self._ask("read generations", tenant, (_GENERATIONS, (tenant,)))
        return [Generation(*record) for record in found]

    def events(self, tenant: str, after: int = 0, limit: int | None = None) -> list[Event]:
        (found,) = self._ask("read events", tenant, (_EVENTS, (tenant, after, limit)))
        return [Event._make(record) for record in found]

    def receipt(self, tenant: str, receipt_id: str) -> str | None:
        (found,) = self._ask("read a receipt", tenant, (_RECEIPT, (tenant, receipt_id)))
        return found[0][0] if found else None

    def receipts(self, tenant: str) -> list[tuple[str, int]]:
        (found,) = self._ask("read receipts", tenant, (_RECEIPTS, (tenant,)))
        return [(record[0], record[1]) for record in found]

    # Writing

    def transaction(self, tenant: str) -> _Writing:
        return _Writing(self, tenant)

    def write_vectors(self, tenant: str, vectors: Vectors) -> None:
        with self.transaction(tenant) as open_:
            open_.add_vectors(vectors)

    # Following

    def listen(self) -> Feed:
        """Hear of the commits of writers that have notify=1. Takes a connection of its own. StoreError."""
        self._refuse_unusable()
        return Feed(self._dsn, self.url, self._schema)

    # Searching in the server

    def nearest(
        self,
        tenant: str,
        generation: int,
        query: npt.NDArray[np.float32],
        count: int,
        ordinals: Sequence[int] | npt.NDArray[np.int64] | None = None,
        *,
        exact: bool = False,
    ) -> list[int]:
        """Ordinals of the `count` windows nearest to a query (float32, unit length), nearest first.

        ordinals: only of these rows, by an exact scan. Otherwise of all of the tenant's, by an approximate
        index if there is one and exact is not asked for. A row with several windows may come more than once.
        """
        self._fill(tenant)
        column = len(query) in self._columns
        statements = pushed.asking(
            tenant, int(generation), query, count, ordinals, exact=exact, column=column
        )
        *_, found = self._searched(tenant, *statements)
        return [record[0] for record in found]

    def postings(self, tenant: str, terms: Sequence[str]) -> list[worded.Postings]:
        """The posting list of each term: ordinals, ascending (int64), and weighted counts (float32)."""
        return self.search(tenant, None, terms, None).postings

    def walk(
        self, tenant: str, seeds: Sequence[str], hops: int, mask: npt.NDArray[np.bool_], seq: int, limit: int
    ) -> list[walked.Step]:
        """What is within `hops` steps of the entities named: see `twofold.index.pushed.Serving`."""
        return self.search(tenant, None, (), Steps(seeds, hops, mask, seq, limit)).reached

    def search(self, tenant: str, near: Near | None, terms: Sequence[str], steps: Steps | None) -> Found:
        """Vectors, posting lists and a walk in one round trip; AGE walks in one of its own."""
        self._fill(tenant)
        # Vectors last: their search changes settings. The answer to each part is that to its last statement.
        words: list[tuple[str, Arguments]] = []
        if terms:
            words.append((worded.FIND, (tenant, sorted({stored_name(term) for term in terms}))))
        walk: list[tuple[str, Arguments]] = []
        if steps is not None and self._mirror is None:
            arguments = walked.walk_arguments(tenant, steps.seeds, steps.mask, steps.seq, steps.limit)
            walk += [(walked.ON_INDEXES, ()), (walked.walking(steps.hops), arguments)]
        vectors: list[tuple[str, Arguments]] = []
        if near is not None:
            column = near.query is not None and len(near.query) in self._columns
            vectors += pushed.fetching(tenant, near, column=column)
        statements = [*words, *walk, *vectors]
        reached: list[walked.Step] | None = None
        while True:
            if steps is not None and self._mirror is not None:
                reached = self._walked(tenant, self._mirror, steps)
            filled = self._filled.get(tenant)
            answers = self._searched(tenant, *statements) if statements or reached is not None else []
            if reached is None or self._filled.get(tenant) == filled:
                break  # else the graph that was walked had lost something, which has been mended
        records = answers[-1] if vectors else []
        if walk:
            reached = answers[len(words) + 1]
        return Found(
            [record[:6] for record in records],
            records[0][6] if records else 0,
            worded.lists(terms, answers[0]) if words else [],
            reached or [],
        )

    def _searched(self, tenant: str, *statements: tuple[str, Arguments]) -> list[list[Any]]:
        """As `_ask`, of tables that are those which were counted; others are counted and mended, and asked again.

        Told last, in the same round trip: what was emptied later was not yet when it was asked.
        """
        for _ in range(_ATTEMPTS):
            self._fill(tenant)
            wanted = self._filled.get(tenant)
            told = identity(self._schema, self._mirror)
            *answers, ((*places,),) = self._ask("search", tenant, *statements, (told, ()))
            if tuple(places) == wanted:
                return answers
            self._filled.pop(tenant, None)
        raise StoreBusy(f"the searched tables of {self.url} are changed again and again; try again")

    def _walked(self, tenant: str, graph: str, steps: Steps) -> list[walked.Step]:
        """A walk by Cypher."""

        def step(db: Connection) -> list[walked.Step]:
            db.execute(age.ON)
            return age.walk(lambda sql, args: db.execute(sql, args).fetchall(), graph, tenant, *steps)

        return self._in_snapshot("walk relations", tenant, step)

    @property
    def graph(self) -> str:
        """Where relations are walked."""
        mirrored = "" if self._mirror is None else f", mirrored by Apache AGE as the graph {self._mirror}"
        if not self.pushdown:
            return f"in RAM; stored in the table edge{mirrored}"
        if self._mirror is not None:
            return f"by Apache AGE, in the graph {self._mirror}"
        return "by SQL, in the table edge"

    def create_vector_index(self, dimension: int, kind: str = "hnsw") -> None:
        """Build an approximate index over the vectors of a dimension: "hnsw", "diskann" or "scann"."""
        statements = [self._q(sql) for sql in (*pushed.index_ddl(dimension, kind), "ANALYZE @embedding")]

        def work(db: Connection) -> None:
            with unhurried(db):
                for statement in statements:
                    db.execute(statement)

        self._retried("build an index", work)
        self._filled.clear()

    def _fill(self, tenant: str) -> None:
        """Once per process, and whenever the tables are others: make what the searched ones lack.

        Under the tenant's lock, so that nothing is missed.
        """
        if tenant in self._filled:
            return

        def make() -> tuple[Any, ...]:
            with self.transaction(tenant) as open_:
                return open_.fill_searched()

        self._note_filled(tenant, self._repeated("make what is searched", make))

    def _note_filled(self, tenant: str, places: tuple[Any, ...]) -> None:
        """A tenant's searched tables are whole, and these; what they are searched by is looked up."""
        table = f'"{self._schema}".embedding'
        found = self._retried("look for columns", lambda db: db.execute(pushed.COLUMNS, (table,)).fetchall())
        self._columns = {dimension for (dimension,) in found}
        self._filled[tenant] = places

    # Keeping

    def scrub(self) -> None:
        """Remove dead row versions from the tables' pages (with `scrub=full`: rewrite the tables).

        StoreBusy when an older snapshot still needs some of them. What PostgreSQL cannot promise, however: a page
        keeps the bytes of a removed version until they are written over, unless the table is rewritten; and
        write-ahead log, its archive, replicas' logs and backups hold them until those are recycled. See
        docs/stores.md.
        """
        self._refuse_unusable()
        command = "VACUUM (FULL)" if self._full_scrub else "VACUUM (VERBOSE, INDEX_CLEANUP ON)"
        start = monotonic()
        while True:
            said: list[tuple[str, str]] = []

            def hear(notice: Any, said: list[tuple[str, str]] = said) -> None:
                said.append((notice.severity_nonlocalized or "", notice.message_primary or ""))

            def work(db: Connection, hear: Any = hear) -> None:
                db.add_notice_handler(hear)
                try:
                    searched = db.execute(TABLES, (self._schema,)).fetchall()
                    there = {name for name, _ in searched}
                    tables = [f"@{table}" for table in (*_ERASABLE, *sorted(there - {"edge", "graph"}))]
                    if age.NAME in kept_up(searched):
                        tables += age.tables(age.graph_of(self._schema))
                    with unhurried(db):
                        for table in tables:
                            db.execute(self._q(f"{command} {table}"))
                finally:
                    db.remove_notice_handler(hear)

            self._retried("scrub the tables", work)
            refused = [text for severity, text in said if severity == "WARNING"]
            if refused:
                raise StoreError(
                    f"cannot scrub {self.url}: {refused[0]}; connect as the tables' owner, or give this role "
                    "MAINTAIN on them"
                )
            if not any(_held_back(text) for _, text in said):
                return
            if monotonic() - start >= self._timeout:
                raise StoreBusy(
                    f"{self.url}: a transaction elsewhere has kept an older state for {self._timeout:g} s, so "
                    "erased rows could not be removed from the tables; end it and scrub again"
                )
            time.sleep(0.02)

    def residue(self, needles: Sequence[bytes]) -> list[str]:  # noqa: ARG002
        """Always empty: the files are the server's, and a client cannot read them. See `scrub`."""
        self._refuse_unusable()
        return []

    def check(self, tenant: str) -> list[str]:
        from twofold.stores.postgres_check import problems

        def look(db: Connection) -> list[str]:
            tables = db.execute(TABLES, (self._schema,)).fetchall()
            mirror = f"{self._schema}_graph"
            return problems(lambda sql, *args: self._now(db, sql, (tenant, *args)), tables, mirror)

        return self._in_snapshot("check the tables", tenant, look)

    def examine(self, tenant: str, now: Callable[[], int], replica: Any = None) -> list[Finding]:
        """The server, the role, the tables and the connections, each tried for real: see postgres_doctor.

        now: this side's clock, in microseconds; replica: what recalls are read from, if it is not this store.
        """
        from twofold.stores.postgres_doctor import examine

        self._refuse_unusable()
        return examine(self, tenant, now, replica)

    @classmethod
    def examine_unopened(cls, url: str, now: Callable[[], int]) -> list[Finding]:
        """As `examine`, of a store that cannot be opened."""
        from twofold.stores.postgres_doctor import examine_unopened

        return examine_unopened(url, now)

    def size(self, tenant: str) -> int:  # noqa: ARG002 -- tenants share the tables
        sql = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
            JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"""
        ((total,),) = self._retried(
            "measure the tables", lambda db: db.execute(sql, (self._schema,)).fetchall()
        )
        return int(total)

    def backup(self, destination: Path) -> None:
        """Refused: the server's own tools do it, for all tenants at one moment."""
        self._refuse_unusable()
        raise StoreError(
            f"a PostgreSQL store is backed up by pg_dump --schema={self._schema} or the server's own snapshots, "
            f"not into {destination}; `twofold migrate` copies one tenant into a file"
        )

    def close(self) -> None:
        """Release the connections; those in use by other threads as soon as they are done."""
        if self._closed:
            return
        if self._pid == os.getpid() and getattr(self._mine, "inside", False):
            raise StoreError("the store cannot be closed inside its own transaction; leave the block first")
        self._closed = True
        if self._pid == os.getpid():
            self._drop_idle()
        _LIVE.discard(self)

    # Statements

    def _q(self, sql: str) -> str:
        """A statement with the store's schema in place of each @."""
        text = self._qualified.get(sql)
        if text is None:
            text = self._qualified[sql] = sql.replace("@", f'"{self._schema}".')
        return text

    def _as_tenant(self, tenant: str) -> tuple[str, str, str]:
        return tenant, self._statement_ms, self._statement_ms

    def _now(self, db: Connection, sql: str, args: Sequence[Any]) -> list[Any]:
        return db.execute(self._q(sql), args, binary=True).fetchall()

    def _ask(
        self,
        doing: str,
        tenant: str,
        *statements: tuple[str, Arguments],
        snapshot: bool = False,
    ) -> list[list[Any]]:
        """The records of each statement, for one tenant, in one round trip."""
        self._refuse_unusable()

        def work(db: Connection) -> list[list[Any]]:
            with db.pipeline():
                db.execute(_SNAPSHOT if snapshot else _READ)
                db.execute(_AS_READER, self._as_tenant(tenant))
                cursors = [db.execute(self._q(sql), args, binary=True) for sql, args in statements]
                db.execute("COMMIT")
                return [cursor.fetchall() for cursor in cursors]

        return self._retried(doing, work)

    def _in_snapshot(self, doing: str, tenant: str, read: Callable[[Connection], T]) -> T:
        """What `read` makes of one snapshot of a tenant."""
        self._refuse_unusable()

        def work(db: Connection) -> T:
            db.execute(_SNAPSHOT)
            db.execute(_AS_TENANT, self._as_tenant(tenant))
            result = read(db)
            db.execute("COMMIT")
            return result

        return self._retried(doing, work)

    def _retried(self, doing: str, work: Callable[[Connection], T]) -> T:
        """Do something that may be done again, on a connection."""

        def lent() -> T:
            with self._lent("read") as db:
                return work(db)

        return self._repeated(doing, lent)

    def _repeated(self, doing: str, work: Callable[[], T]) -> T:
        """Do something that may be done again; again when the server went away or gave it up."""
        start, attempt = monotonic(), 0
        while True:
            try:
                return work()
            except (psycopg.Error, UnicodeEncodeError, struct.error) as error:
                attempt += 1
                if not self._worth_retrying(error, attempt, start):
                    self._fail(error, doing)
            self._pause(attempt)

    def _worth_retrying(self, error: Exception, attempt: int, start: float) -> bool:
        if self._closed or monotonic() - start >= self._timeout:
            return False
        return gone(error) or (given_up(error) and attempt < _ATTEMPTS)

    def _pause(self, attempt: int) -> None:
        time.sleep(min(0.01 * 2**attempt, 0.25))

    # Connections. A pool of our own: it has no threads of its own, so that a process may fork, and writers
    # cannot take the connections that their own reads need.

    @contextlib.contextmanager
    def _lent(self, purpose: str) -> Iterator[Connection]:
        db = self._take(purpose)
        try:
            yield db
        finally:
            self._give(db, purpose)

    def _take(self, purpose: str) -> Connection:
        self._refuse_unusable()
        if not self._places[purpose].take(self._timeout):
            raise StoreBusy(
                f"all {self._limits[purpose]} connections of this process to {self.url} that {purpose} have been "
                f"in use for {self._timeout:g} s; allow more (?{PLACES[purpose]}=...)"
            )
        try:
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            return self._connect()
        except BaseException:
            self._places[purpose].give()
            raise

    def _give(self, db: Connection, purpose: str) -> None:
        try:
            if self._closed or db.closed or db.info.transaction_status != pq.TransactionStatus.IDLE:
                db.close()
                if db.broken or self._closed:
                    self._drop_idle()  # those of before a failover are dead too
            else:
                self._idle.append(db)
        finally:
            self._places[purpose].give()

    def _drop_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _connect(self) -> Heard:
        db = Heard.connect(self._dsn, autocommit=True, prepare_threshold=self._prepare)
        db.limit = self._silence
        db.adapters.register_dumper(int, _Whole)
        db.adapters.register_dumper(pushed.Numbers, pushed.NumbersDumper)
        db.adapters.register_dumper(pushed.Packed, pushed.PackedDumper)
        return db

    def _open(self) -> None:
        """Look at the server and the role once, and bring the schema to this version's format."""
        start, attempt = monotonic(), 0
        while True:
            try:
                self._open_once()
                return
            except (psycopg.Error, UnicodeEncodeError) as error:
                attempt += 1
                # Of several servers one may be about to take over; a single one that is not there is an error.
                if "," not in self.url or not self._worth_retrying(error, attempt, start):
                    self._fail(error, "open the store")
            self._pause(attempt)

    def _open_once(self) -> None:
        db = self._connect()
        try:
            self._refuse_unsafe(db)
            wait = self._milliseconds()  # for writers that are under way
            prepare(db, self._schema, self._q, wait)
            if self.pushdown:
                pushed.prepare(db, self._schema, self._q, wait)
                worded.prepare(db, self._schema, self._q, wait)
            if self._mirror is not None:
                age.prepare(db, self._schema, self._q, wait)
        finally:
            db.close()

    def _milliseconds(self) -> str:
        """The timeout as the server takes it, where 0 would mean to wait for ever."""
        return str(max(1, int(self._timeout * 1000)))

    def _refuse_unsafe(self, db: Connection) -> None:
        found = db.execute(
            "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), "
            "rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        assert found is not None
        version, encoding, role, bypasses = found
        if version < 130000:
            raise StoreError(f"{self.url} is PostgreSQL {version // 10000}; Twofold needs 13 or newer")
        if encoding != "UTF8":
            raise StoreError(f"the database is encoded in {encoding}; make one with ENCODING 'UTF8'")
        if bypasses and not self._allow_bypass:
            raise StoreError(
                f"the role {role!r} is a superuser or has BYPASSRLS, so the server would not keep tenants apart; "
                "connect as another one (CREATE ROLE twofold LOGIN PASSWORD '...'; GRANT CREATE ON DATABASE ... "
                "TO twofold), or add ?allow_bypass=1 if a single tenant is all there will be"
            )

    # Failing

    def _refuse_unusable(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url} was closed; open it again")
        if self._pid != os.getpid():
            self._forget_connections()

    @property
    def _pooled(self) -> bool:
        """Whether the server's connections are shared by transactions (prepare=0: a pgbouncer is in between)."""
        return self._prepare is None

    def _locked_out(self) -> StoreBusy:
        return StoreBusy(
            f"another writer of {self.url} has held a lock for more than {self._timeout:g} s; try again, or "
            "open the store with a longer timeout"
        )

    def plain_text(self, error: Exception) -> str:
        """The first line of an exception, without what is secret in the address: libpq quotes what it cannot read."""
        said = str(error).strip()
        text = said.splitlines()[0] if said else type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _fail(self, error: Exception, doing: str) -> NoReturn:
        """Raise the error of our tree that an exception of psycopg means."""
        if self._closed:
            raise StoreError(f"{self.url} was closed; open it again") from error
        if isinstance(error, UnicodeEncodeError | struct.error | psycopg.DataError):
            raise InvalidInput(f"cannot {doing}: {error}") from error
        code = getattr(error, "sqlstate", None) or ""
        text = self.plain_text(error)
        if code == "55P03":
            raise self._locked_out() from error
        if given_up(error) or code in ("57014", "53300"):
            raise StoreBusy(f"cannot {doing} ({self.url}): {text}; try again") from error
        if code in ("XX001", "XX002"):
            raise StoreCorrupt(f"{self.url} is damaged ({text}); restore a backup") from error
        if isinstance(error, Silent):
            raise StoreError(
                f"cannot {doing} ({self.url}): {text}; it is stopped or cannot be reached, or a lock is held there "
                "(pg_locks); `statement_timeout` in the address says how long to wait"
            ) from error
        remedy = _REMEDIES.get(code) or _REMEDIES.get(code[:2]) or "see the message above"
        if gone(error):
            remedy = "is the server running, and reachable from here?"
        raise StoreError(f"cannot {doing} ({self.url}): {text}; {remedy}") from error


_REMEDIES: Final = {
    "23P01": "another value of this key holds at the same time already: run twofold doctor",
    "23": "what is stored contradicts the batch: run twofold doctor",
    "25006": "this server only reads: name the primary, or all servers and target_session_attrs=read-write",
    "28": "check the role and its password",
    "3D000": "create the database first",
    "42501": "give this role the rights (docs/stores.md lists them)",
    "42P01": "open the store again, which makes derived tables anew; for others restore a backup",
    "53100": "the server's disk is full: free some space",
}


def gone(error: Exception) -> bool:
    """Whether an error means that the server, or this connection's part of it, is not there (any more)."""
    code = getattr(error, "sqlstate", None) or ""
    if code in ("57P01", "57P02", "57P03", "57P05", "25006", "25P03") or code[:2] == "08":
        return True
    return not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def given_up(error: Exception) -> bool:
    """Whether the server undid a transaction that may simply be done again."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01")


def _held_back(text: str) -> bool:
    """Whether VACUUM VERBOSE says that some removed versions are still needed by a snapshot."""
    found = re.search(r"(\d+) are dead but not yet removable", text)
    return found is not None and found.group(1) != "0"


class _Writing:
    """A transaction on one tenant: the context manager of `PostgresStore.transaction` and what it yields.

    Its batches say which head they continue, so a transaction that the server lost (a failover, a deadlock) is
    done again on another connection, if the tenant still has that head.
    """

    def __init__(self, store: PostgresStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._db: Connection | None = None
        self._lock: FifoLock | None = None
        self._pid = os.getpid()
        self._failed = False
        self._base = Head()
        self._done: list[Batch | Vectors] = []
        self._generations: dict[int, Generation] = {}
        self._derived: Derived | None = None
        self._filling = False
        self.head = Head()

    def __enter__(self) -> _Writing:
        store = self._store
        store._refuse_unusable()
        if getattr(store._mine, "inside", False):
            raise StoreError("this thread is inside a transaction of this store already; they do not nest")
        with store._mutex:
            lock = store._locks.setdefault(self._tenant, FifoLock())
        if not lock.acquire(store._timeout):
            raise StoreBusy(
                f"the tenant is locked by another thread of this process for more than {store._timeout:g} s; "
                "try again, or open the store with a longer timeout"
            )
        self._lock, self._pid = lock, os.getpid()
        store._mine.inside = True
        try:
            self._begin("begin to write", monotonic())
        except BaseException:
            self._release()
            raise
        self._base = self.head
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            db = self._open()
            if kind is not None or self._failed:
                # Closing a connection undoes its transaction as well.
                with contextlib.suppress(psycopg.Error):
                    db.execute("ROLLBACK")
            else:
                self._commit()
        finally:
            self._release()
        if kind is None and self._failed:
            raise StoreError("a batch of this transaction was refused, so nothing of it was committed")

    def changes(self, after: int) -> Changes:
        db = self._open()
        statements = _asking_changes(self._tenant, after)

        def work(db: Connection) -> list[list[Any]]:
            with db.pipeline():
                cursors = [db.execute(self._store._q(sql), args, binary=True) for sql, args in statements]
                return [cursor.fetchall() for cursor in cursors]

        try:
            return _changes(*work(db))
        except psycopg.Error as error:
            return _changes(*self._again(error, "read changes", work))

    def apply(self, batch: Batch) -> Head:
        self._open()
        self._write(batch)
        return self.head

    def add_vectors(self, vectors: Vectors) -> None:
        """Vectors of a generation that is not current yet; those of erased rows are left out."""
        self._open()
        self._write(vectors)

    def fill_searched(self) -> tuple[Any, ...]:
        """Make what the searched tables lack. Which tables those are: they stay so until this transaction ends."""
        self._filling = True
        try:
            self._kept().bring_up(self._run, self.head)
            self._kept().mend(self._run, self.head)
            while True:
                records = self._store._now(self._open(), pushed.MISSING, (self._tenant, _VECTOR_CHUNK))
                if not records:
                    told = identity(self._store._schema, self._store._mirror)
                    return tuple(self._store._now(self._open(), told, ())[0])
                with self._open().pipeline(), self._open().cursor() as cursor:
                    cursor.executemany(
                        self._store._q(pushed.PUT),
                        [
                            (self._tenant, *place, pushed.packed(np.frombuffer(data, "<f4")))
                            for *place, data in records
                        ],
                    )
        except psycopg.Error:
            self._failed = True
            raise  # to `_fill`, which does all of it again

    def _run(self, sql: str, args: Sequence[Any]) -> Any:
        return self._open().execute(self._store._q(sql), args, binary=True)

    def _write(self, what: Batch | Vectors) -> None:
        try:
            try:
                self._put(self._open(), what)
            except (psycopg.Error, UnicodeEncodeError, struct.error) as error:
                self._again(error, "write a batch", lambda db: self._put(db, what))
        except BaseException:
            self._failed = True
            raise
        self._done.append(what)

    def _put(self, db: Connection, what: Batch | Vectors) -> None:
        if isinstance(what, Vectors):
            schema.check_pending(what, self._generations, self.head.rows)
            asked = sorted(set(what.ordinals.tolist()))
            erased = {ordinal for (ordinal,) in self._store._now(db, _ERASED, (self._tenant, asked))}
            with db.pipeline():
                _put_vectors(self._store, db, self._tenant, what, erased, self._kept().vectors)
        else:
            self.head, self._generations = _apply(
                self._store, db, self._tenant, self.head, self._generations, what, self._kept()
            )

    # The server's side of the transaction

    def _begin(self, doing: str, start: float) -> None:
        """A connection with the tenant's lock, and the head under it."""
        store, attempt = self._store, 0
        while True:
            try:
                self._db = store._take("write")
                # Behind a pool of few server connections, writers that wait on the lock would hold them all, and the
                # one that has the lock could not read: there each asks again and holds nothing meanwhile.
                if store._pooled and not self._lock_is_free(self._db):
                    self._give_back()
                    if monotonic() - start > store._timeout:
                        raise store._locked_out()
                    time.sleep(0.01)
                    continue
                self._lock_tenant(self._db, begun=store._pooled)
                return
            except (psycopg.Error, UnicodeEncodeError) as error:
                self._give_back()
                attempt += 1
                if not store._worth_retrying(error, attempt, start):
                    store._fail(error, doing)
            store._pause(attempt)

    def _lock_is_free(self, db: Connection) -> bool:
        """Begin, and take the tenant's lock if nobody has it; else end at once."""
        db.execute("BEGIN")
        found = db.execute(_TRY_LOCK, (self._store._schema, self._tenant)).fetchone()
        if found and found[0]:
            return True
        db.execute("ROLLBACK")
        return False

    def _lock_tenant(self, db: Connection, *, begun: bool) -> None:
        store, tenant = self._store, self._tenant
        with db.pipeline():
            if not begun:
                db.execute("BEGIN")
            db.execute(_AS_TENANT, store._as_tenant(tenant))
            db.execute(_LOCK_TIMEOUT, (store._milliseconds(),))
            db.execute(_LOCK, (store._schema, tenant))
            # Each statement has a snapshot of its own here, so these see what the lock's last holder committed.
            head = db.execute(store._q(_HEAD), (tenant,), binary=True)
            generations = db.execute(store._q(_GENERATIONS), (tenant,), binary=True)
            # Any process may have begun to search in the server: from then on every writer keeps that up too.
            tables = db.execute(TABLES, (store._schema,), binary=True)
            reach = db.execute(store._q(walked.DERIVED), (tenant,), binary=True)
            found = head.fetchall()
            self._derived = Derived(tenant, store._schema, tables.fetchall(), reach.fetchall())
            self._generations = {record[0]: Generation(*record) for record in generations.fetchall()}
        self.head = Head._make(found[0]) if found else Head()

    def _kept(self) -> Derived:
        assert self._derived is not None  # since the tenant was locked
        return self._derived

    def _again(self, error: Exception, doing: str, work: Callable[[Connection], T]) -> T:
        """Do this transaction's part again on a new connection, then `work`. Re-raises what is not worth it."""
        start, attempt = monotonic(), 0
        while True:
            attempt += 1
            if not self._store._worth_retrying(error, attempt, start):
                self._failed = True
                self._store._fail(error, doing)
            try:
                self._redo(doing, start)
                return work(self._open())
            except psycopg.Error as another:
                error = another

    def _redo(self, doing: str, start: float) -> None:
        self._give_back()
        self._begin(doing, start)
        if self.head != self._base:
            self._failed = True
            raise StoreBusy(
                f"the connection to {self._store.url} was lost, and another writer came first; nothing of this "
                "transaction was committed: do it again"
            )
        for what in self._done:
            self._put(self._open(), what)

    def _commit(self) -> None:
        store, start, attempt, wanted = self._store, monotonic(), 0, self.head
        while True:
            try:
                if attempt and self._found_out(wanted, start):
                    return
                with self._open().pipeline():
                    # A commit that waits for a synchronous standby and is timed out would count as done.
                    self._open().execute(_NO_STATEMENT_TIMEOUT)
                    self._open().execute("COMMIT")
                self._tell()
                return
            except psycopg.Error as error:
                if self._filling:
                    raise  # what it did is not in `_done`
                attempt += 1
                if attempt == 1:
                    start = (
                        monotonic()
                    )  # however long the commit took, finding out has the whole of the timeout
                if not store._worth_retrying(error, attempt, start):
                    if gone(error):
                        raise self._unsure(wanted) from error
                    store._fail(error, "commit")

    def _found_out(self, wanted: Head, start: float) -> bool:
        """Whether a commit whose answer was lost was done; else all of it has been applied again."""
        # The lock is had only when the lost session's transaction is over, and the log then tells how it
        # ended: a hash that was made here is in it, or it is not.
        self._give_back()
        try:
            self._begin("commit", start)
        except StoreError as error:
            raise self._unsure(wanted) from error
        if self._has(wanted):
            self.head = wanted
            with contextlib.suppress(psycopg.Error):
                self._open().execute("ROLLBACK")
            return True
        if self.head != self._base:
            raise StoreBusy(
                f"the connection to {self._store.url} was lost before the commit, and another writer came first; "
                "nothing of this transaction was committed: do it again"
            )
        for what in self._done:
            self._put(self._open(), what)
        return False

    def _unsure(self, wanted: Head) -> StoreError:
        """Not a StoreBusy, after which one does the same again."""
        store = self._store
        return StoreError(
            f"the connection to {store.url} was lost while committing up to seq {wanted.seq}, and the "
            f"server has not been back for {store._timeout:g} s; whether it committed can be told from the log "
            "when it is"
        )

    def _tell(self) -> None:
        """Let those who listen know. What happens to the notice changes nothing about the commit."""
        store = self._store
        if store._notify and self.head != self._base:
            place = (feed.channel(store._schema), feed.payload(store._schema, self._tenant))
            with contextlib.suppress(psycopg.Error):
                self._open().execute(feed.SEND, place)

    def _has(self, wanted: Head) -> bool:
        """Whether the log holds this transaction's last event. False for one that wrote no events."""
        if wanted == self._base:
            return False
        found = self._store._now(self._open(), _HASH_AT, (self._tenant, wanted.seq))
        return bool(found) and found[0][0] == wanted.hash

    def _open(self) -> Connection:
        if self._db is None or self._lock is None:
            raise StoreError("the transaction is over; begin another one")
        if self._pid != os.getpid():
            raise StoreError("the transaction belongs to the process that this one was forked from")
        return self._db

    def _give_back(self) -> None:
        db, self._db = self._db, None
        if db is not None and self._pid == os.getpid():
            if db.info.transaction_status != pq.TransactionStatus.IDLE:
                db.close()
            self._store._give(db, "write")

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if self._pid != os.getpid():
            return
        try:
            self._give_back()
        finally:
            self._store._mine.inside = False
            if lock is not None:
                lock.release()


def _asking_changes(tenant: str, after: int) -> list[tuple[str, tuple[Any, ...]]]:
    return [
        (_HEAD, (tenant,)),
        (_EVENTS, (tenant, after, None)),
        (_INDEX_ROWS, (tenant, after)),
        (_GENERATIONS, (tenant,)),
        (_ERASED_SINCE, (tenant, after)),
    ]


def _changes(
    head: list[Any], events: list[Any], rows: list[Any], generations: list[Any], erased: list[Any]
) -> Changes:
    return Changes(
        Head._make(head[0]) if head else Head(),
        [Event._make(record) for record in events],
        schema.index_rows_of(rows),
        [Generation(*record) for record in generations],
        [ordinal for (ordinal,) in erased],
    )


def _dimension(known: list[Any], tenant: str, generation: int) -> int:
    for number, _, dimension, _ in known:
        if number == generation:
            return int(dimension)
    raise NotFound(f"tenant {tenant!r} has no embedding generation {generation}")


def _vectors(generation: int, dimension: int, records: list[Any]) -> Vectors:
    if not records:
        return _joined(generation, dimension, [])
    ordinals, parts, starts, stops, blobs, codes = zip(*records, strict=True)
    data = float_rows(generation, dimension, ordinals, blobs).copy()
    places = np.array([ordinals, parts, starts, stops], np.int64)
    return Vectors(generation, places[0], places[1], places[2], places[3], data, tuple(codes))


def _joined(generation: int, dimension: int, blocks: list[Vectors]) -> Vectors:
    if len(blocks) == 1:
        return blocks[0]

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(one, name) for one in blocks)])

    data = np.concatenate([np.zeros((0, dimension), np.float32), *(one.data for one in blocks)])
    codes = tuple(code for one in blocks for code in one.codes)
    places = [column(name) for name in ("ordinals", "parts", "starts", "stops")]
    return Vectors(generation, places[0], places[1], places[2], places[3], data, codes)


def _apply(
    store: PostgresStore,
    db: Connection,
    tenant: str,
    head: Head,
    known: dict[int, Generation],
    batch: Batch,
    kept: Derived,
) -> tuple[Head, dict[int, Generation]]:
    after = schema.check_batch(head, batch)
    generations = schema.check_generations(known, batch, after)
    schema.check_coverage(batch, generations)
    for vectors in batch.vectors:
        schema.check_vectors(vectors, generations, after.rows)
    schema.check_erasures(batch, after)
    older = sorted({o for one in batch.vectors for o in one.ordinals.tolist() if o < head.rows})
    if older and (gone_rows := store._now(db, _ERASED, (tenant, older))):
        raise StoreError(f"row {gone_rows[0][0]} is erased and must not get a vector again")

    q = store._q
    follows = kept.write(lambda sql, args: db.execute(q(sql), args, binary=True), head, batch, after)
    redacted: list[psycopg.Cursor[Any]] = []
    derived = intervals.derive(tenant, batch)
    with db.pipeline():
        for sql, args in follows:
            db.execute(q(sql), args)
        with db.cursor() as cursor:
            if batch.events:
                cursor.executemany(q(_PUT_EVENT), [(tenant, *event) for event in batch.events])
            if batch.rows:
                cursor.executemany(q(_PUT_ROW), [_row_record(tenant, row) for row in batch.rows])
        for one in batch.generations:
            db.execute(q(_PUT_GENERATION), (tenant, one.number, one.fingerprint, one.dimension, one.seq))
        for vectors in batch.vectors:
            _put_vectors(store, db, tenant, vectors, frozenset(), kept.vectors)
        _put_intervals(store, db, tenant, derived)
        for receipt_id, seq, body in batch.receipts:
            db.execute(q(_PUT_RECEIPT), (tenant, receipt_id, seq, body))
        for number in batch.drop_generations:
            db.execute(q(_DROP_VECTORS), (tenant, number))
            db.execute(q(_DROP_GENERATION), (tenant, number))
        if batch.erase_rows:
            db.execute(q(_ERASE_ROWS), (*_BLANK.values(), after.seq, tenant, batch.erase_rows))
            db.execute(q(_ERASE_VECTORS), (tenant, list(generations), batch.erase_rows))
            db.execute(q(intervals.DROP), (tenant, batch.erase_rows))
        if batch.erase_events:
            db.execute(q(_ERASE_EVENTS), (tenant, batch.erase_events))
        for receipt_id, body in batch.erase_receipts:
            redacted.append(db.execute(q(_ERASE_RECEIPT), (body, tenant, receipt_id)))
        if after != head:
            db.execute(q(_PUT_HEAD), (tenant, *after))
    for cursor, (receipt_id, _) in zip(redacted, batch.erase_receipts, strict=True):
        if cursor.rowcount != 1:
            raise StoreError(f"there is no receipt {receipt_id!r} to erase in tenant {tenant!r}")
    for ordinal in derived.reopened:
        found = store._now(db, intervals.CLOSINGS_OF, (tenant, ordinal))
        valid_to, closed, voids = intervals.settle(found)
        place = {"tenant": tenant, "ordinal": ordinal, "valid_to": valid_to, "closed": closed, "voids": voids}
        db.execute(q(intervals.REOPEN), place)
    return after, generations


def _put_intervals(store: PostgresStore, db: Connection, tenant: str, derived: intervals.Derived) -> None:
    """Ends first: a new fact may begin where an older one ends in the same commit."""
    q = store._q
    for ordinal, end in derived.ends:
        db.execute(q(intervals.END_VALID), (end, tenant, ordinal, end))
    for ordinal, seq in derived.closes:
        db.execute(q(intervals.END_KNOWN), (seq, tenant, ordinal))
    plain = [one for one in derived.puts if one["slot_a"] is None]
    with db.cursor() as cursor:
        if plain:
            cursor.executemany(q(intervals.PUT_PLAIN), plain)
        for one in derived.puts:
            if one["slot_a"] is not None:
                cursor.execute(q(intervals.PUT), one)


def _row_record(tenant: str, row: Row) -> list[Any]:
    values = schema.row_values(row)
    values[-1] = row.seq if row.erased else None
    values.insert(0, tenant)
    return values


def _put_vectors(
    store: PostgresStore,
    db: Connection,
    tenant: str,
    vectors: Vectors,
    skip: set[int] | frozenset[int],
    pushed_: bool,
) -> None:
    number, width = vectors.generation, vectors.data.shape[1] * 4
    view = vectors.data.astype("<f4", copy=False).tobytes()
    places = zip(
        vectors.ordinals.tolist(),
        vectors.parts.tolist(),
        vectors.starts.tolist(),
        vectors.stops.tolist(),
        vectors.codes,
        strict=True,
    )
    records = [
        (tenant, number, ordinal, part, start, stop, view[at : at + width], codes)
        for at, (ordinal, part, start, stop, codes) in zip(range(0, len(view), width), places, strict=True)
        if ordinal not in skip
    ]
    if records:
        with db.cursor() as cursor:
            cursor.executemany(store._q(_PUT_VECTOR), records)
            if pushed_:
                searchable = [
                    (tenant, number, ordinal, part, pushed.packed(data))
                    for ordinal, part, data in zip(
                        vectors.ordinals.tolist(), vectors.parts.tolist(), vectors.data, strict=True
                    )
                    if ordinal not in skip
                ]
                cursor.executemany(store._q(pushed.PUT), searchable)


# Addresses


def split_url(url: str) -> tuple[dict[str, str], str, str]:
    """Our own parameters of an address, what libpq gets, and what may be shown: the address without a password."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:  # whose message quotes the address
        raise InvalidInput(
            "the address of the store is not a URL of the form postgresql://role@host/database?..."
        ) from None
    hosts = parts.netloc.rpartition("@")[2]
    # A password with such a character would be taken for a host, and shown.
    if parts.fragment or "@" in parts.path or not re.fullmatch(r"(\[[^]]*\]|[^:,]*)(:\d*)?(,.*)?", hosts):
        raise InvalidInput(
            "the address of the store is not postgresql://role:password@host:port/database?...; in a password write "
            "/ as %2F, ? as %3F, # as %23 and @ as %40"
        )
    own = {name: value for name, value in pairs if name in _OURS}
    rest = {name: value for name, value in pairs if name not in _OURS}
    if "," in hosts or "," in rest.get("host", ""):
        # Of several servers the one that writes; a standby would take the connection and refuse every commit.
        rest.setdefault("target_session_attrs", "read-write")
    rest.setdefault("connect_timeout", "10")
    rest.setdefault("application_name", "twofold")
    for name, value in _ALIVE.items():
        rest.setdefault(name, value)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest, quote_via=quote), ""))
    user, _, _ = parts.netloc.rpartition("@")[0].partition(":")
    shown_host = f"{user}@{hosts}" if user else hosts
    query = urlencode({k: v for k, v in pairs if k not in _SECRET}, quote_via=quote)
    return own, dsn, urlunsplit((parts.scheme, shown_host, parts.path, query, ""))


def secrets_of(url: str) -> tuple[str, ...]:
    """What must not be shown of an address, as it stands there and decoded; the longest first."""
    parts = urlsplit(url)
    given = [parts.netloc.rpartition("@")[0].partition(":")[2]]
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if unquote_plus(name) in _SECRET:
            given.append(value)
    found = {text for one in given if one for text in (one, unquote(one), unquote_plus(one))}
    return tuple(sorted(found, key=len, reverse=True))


def _choice(own: dict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = own.get(name, allowed[0])
    if value not in allowed:
        raise InvalidInput(
            f"{name} in the store's address must be one of {', '.join(allowed)}, not {value!r}"
        )
    return value


def _number(own: dict[str, str], name: str, default: int, least: int = 1, most: int = 1000) -> int:
    text = own.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidInput(
            f"{name} in the store's address must be a number from {least} to {most}, not {text!r}"
        )
    return int(text)


# Forks. A child must neither use nor close its parent's connections: it keeps them, unused, until it ends.

_LIVE: Final[weakref.WeakSet[PostgresStore]] = weakref.WeakSet()
_INHERITED: Final[list[Any]] = []


def _after_fork_in_child() -> None:
    for store in list(_LIVE):
        _INHERITED.append(store._idle)
        store._forget_connections()


os.register_at_fork(after_in_child=_after_fork_in_child)

__all__ = ["PostgresStore", "split_url"]
