"""SQLite: one file in WAL mode, one writer connection, a few pooled readers. The default store.

Writers in other processes are waited for by polling; readers never block writers, because every read is one
short transaction. SQL for SQLite lives here and nowhere else.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NoReturn

import numpy as np

from twofold.clock import monotonic
from twofold.errors import InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError, StoreTooNew
from twofold.files import path_of, reason
from twofold.model import Batch, Changes, Event, Generation, Head, Row, Vectors, float_rows
from twofold.stores import schema
from twofold.stores.fifo import FifoLock

FILE_NAME: Final = "twofold.db"
APPLICATION_ID: Final = 0x54774664  # "TwFd", in the file header: tells our files from other SQLite files
NETWORK_FS_VARIABLE: Final = "TWOFOLD_ALLOW_NETWORK_FS"

# POSIX locks and shared memory, which WAL needs, are not reliable between the clients of these.
_NETWORK_FS: Final = frozenset(
    "9p afs beegfs ceph cifs coda davfs fuse.cephfs fuse.davfs fuse.davfs2 fuse.gcsfuse fuse.glusterfs "
    "fuse.gvfsd-fuse fuse.rclone fuse.s3fs fuse.smbnetfs fuse.sshfs glusterfs gpfs lustre ncpfs nfs nfs4 "
    "orangefs smb2 smb3 smbfs".split()
)
_SUFFIXES: Final = frozenset((".db", ".sqlite", ".sqlite3"))
_ARITIES: Final = (1, 4, 12, 24, 64, 256)  # few statement shapes, so that prepared statements are reused
_IDLE_READERS: Final = 8
_VECTOR_CHUNK: Final = 512  # vectors joined at a time: the copies stay in cache


def _create_tables(db: sqlite3.Connection) -> None:
    """Format 1.

    `memory` and `vector` are rowid tables because their rows are too large to sit in the nodes of a key tree;
    the others are key trees. The long columns of `memory` come last, so that reading the others never follows
    overflow pages. `memory.erased` is the seq at which the row was erased.
    """
    for statement in (
        """CREATE TABLE head (
            tenant TEXT NOT NULL, seq INTEGER NOT NULL, "rows" INTEGER NOT NULL, recorded_at INTEGER NOT NULL,
            hash BLOB NOT NULL, PRIMARY KEY (tenant)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE event (
            tenant TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL,
            agent_id TEXT NOT NULL, agent_role TEXT NOT NULL, namespace TEXT, ordinal INTEGER,
            payload TEXT NOT NULL, salt BLOB NOT NULL, commitment BLOB NOT NULL, hash BLOB NOT NULL,
            PRIMARY KEY (tenant, seq)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE memory (
            tenant TEXT NOT NULL, ordinal INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL,
            version INTEGER NOT NULL, namespace TEXT NOT NULL, memory_type TEXT NOT NULL, key TEXT,
            frame TEXT, confidence REAL NOT NULL, pinned INTEGER NOT NULL, event_at INTEGER, speaker TEXT,
            visibility TEXT NOT NULL, content_hash TEXT NOT NULL, recorded_at INTEGER NOT NULL,
            agent_id TEXT NOT NULL, agent_role TEXT NOT NULL, session_id TEXT, valid_from INTEGER NOT NULL,
            tokens INTEGER NOT NULL, traits INTEGER NOT NULL, generation INTEGER, erased INTEGER,
            source_id TEXT, tags TEXT NOT NULL, entities TEXT NOT NULL,
            derived_from TEXT NOT NULL, metadata TEXT NOT NULL, lexemes TEXT NOT NULL,
            content TEXT NOT NULL, PRIMARY KEY (tenant, ordinal)
        ) STRICT""",
        "CREATE INDEX memory_erased ON memory (tenant, erased) WHERE erased IS NOT NULL",
        """CREATE TABLE vector (
            tenant TEXT NOT NULL, generation INTEGER NOT NULL, ordinal INTEGER NOT NULL,
            part INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, data BLOB NOT NULL,
            codes BLOB NOT NULL, PRIMARY KEY (tenant, generation, ordinal, part)
        ) STRICT""",
        """CREATE TABLE generation (
            tenant TEXT NOT NULL, number INTEGER NOT NULL, fingerprint TEXT NOT NULL,
            dimension INTEGER NOT NULL, seq INTEGER, PRIMARY KEY (tenant, number)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE receipt (
            tenant TEXT NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        ) STRICT""",
    ):
        db.execute(statement)


# The format version of a file is the number of these that ran on it. Append only; released ones never change.
MIGRATIONS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (_create_tables,)


def _columns(names: Sequence[str]) -> str:
    """A select list; `erased` is kept as a seq and read as a truth value."""
    return ", ".join("erased IS NOT NULL" if name == "erased" else name for name in names)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


_HEAD = 'SELECT seq, "rows", recorded_at, hash FROM head WHERE tenant = ?'
_PUT_HEAD = """INSERT INTO head (tenant, seq, "rows", recorded_at, hash) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant) DO UPDATE SET seq = excluded.seq, "rows" = excluded."rows",
    recorded_at = excluded.recorded_at, hash = excluded.hash"""
_EVENTS = (
    f"SELECT {_columns(schema.EVENT_COLUMNS)} FROM event WHERE tenant = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_PUT_EVENT = (
    f"INSERT INTO event (tenant, {', '.join(schema.EVENT_COLUMNS)}) "
    f"VALUES ({_marks(1 + len(schema.EVENT_COLUMNS))})"
)
_INDEX_ROWS = (
    f"SELECT {_columns(schema.INDEX_COLUMNS)} FROM memory WHERE tenant = ? AND ordinal >= ? ORDER BY ordinal"
)
_ROWS = {
    n: f"SELECT {_columns(schema.ROW_COLUMNS)} FROM memory WHERE tenant = ? AND ordinal IN ({_marks(n)})"
    for n in _ARITIES
}
_PUT_ROW = (
    f"INSERT INTO memory (tenant, {', '.join(schema.ROW_COLUMNS)}) "
    f"VALUES ({_marks(1 + len(schema.ROW_COLUMNS))})"
)
_ERASED_SINCE = "SELECT ordinal FROM memory WHERE tenant = ? AND erased > ? ORDER BY ordinal"
_ERASED = {
    n: f"SELECT ordinal FROM memory WHERE tenant = ? AND ordinal IN ({_marks(n)}) AND erased IS NOT NULL"
    for n in _ARITIES
}
_BLANK = schema.blank_values()
_ERASE_ROW = (
    f"UPDATE memory SET {', '.join(f'{name} = ?' for name in _BLANK)}, erased = coalesce(erased, ?) "
    "WHERE tenant = ? AND ordinal = ?"
)
_ERASE_VECTORS = "DELETE FROM vector WHERE tenant = ? AND generation = ? AND ordinal = ?"
_ERASE_EVENT = "UPDATE event SET payload = '', salt = x'' WHERE tenant = ? AND seq = ?"
_ERASE_RECEIPT = "UPDATE receipt SET body = ? WHERE tenant = ? AND id = ?"
_VECTOR_COLUMNS = "ordinal, part, start, stop, data, codes"
_VECTORS = (
    f"SELECT {_VECTOR_COLUMNS} FROM vector WHERE tenant = ? AND generation = ? "
    "AND ordinal >= ? AND ordinal < ? ORDER BY ordinal, part"
)
_COUNT_VECTORS = (
    "SELECT count(*) FROM vector WHERE tenant = ? AND generation = ? AND ordinal >= ? AND ordinal < ?"
)
_VECTORS_OF = {
    n: f"SELECT {_VECTOR_COLUMNS} FROM vector WHERE tenant = ? AND generation = ? "
    f"AND ordinal IN ({_marks(n)}) ORDER BY ordinal, part"
    for n in _ARITIES
}
_PUT_VECTOR = (
    "INSERT OR REPLACE INTO vector (tenant, generation, ordinal, part, start, stop, data, codes) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_DROP_VECTORS = "DELETE FROM vector WHERE tenant = ? AND generation = ?"
_GENERATIONS = "SELECT number, fingerprint, dimension, seq FROM generation WHERE tenant = ? ORDER BY number"
_PUT_GENERATION = """INSERT INTO generation (tenant, number, fingerprint, dimension, seq)
    VALUES (?, ?, ?, ?, ?) ON CONFLICT (tenant, number) DO UPDATE SET seq = excluded.seq"""
_DROP_GENERATION = "DELETE FROM generation WHERE tenant = ? AND number = ?"
_RECEIPT = "SELECT body FROM receipt WHERE tenant = ? AND id = ?"
_RECEIPTS = "SELECT id, seq FROM receipt WHERE tenant = ? ORDER BY seq, id"
_PUT_RECEIPT = "INSERT INTO receipt (tenant, id, seq, body) VALUES (?, ?, ?, ?)"


class SQLiteStore:
    """A store in one SQLite file.

    `path` is a folder (the file is `<folder>/twofold.db`) or a file ending in .db, .sqlite or .sqlite3.
    `timeout`: seconds to wait for other writers before StoreBusy. `synchronous`: "NORMAL" survives the death
    of the process, "FULL" also a power cut. `wal_limit`: bytes of write-ahead log above which a commit
    shortens it. `allow_network_fs`: open on a network file system all the same (default:
    TWOFOLD_ALLOW_NETWORK_FS=1).
    Raises StoreError, StoreBusy, StoreCorrupt or StoreTooNew.
    """

    persistent = True

    def __init__(
        self,
        path: str | Path,
        *,
        timeout: float = 30.0,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        wal_limit: int = 64 << 20,
        allow_network_fs: bool | None = None,
    ) -> None:
        if synchronous not in ("NORMAL", "FULL"):
            raise InvalidInput(f"synchronous must be NORMAL or FULL, not {synchronous!r}")
        if not timeout >= 0:
            raise InvalidInput(f"timeout must be 0 or more seconds, not {timeout!r}")
        self.path = database_file(path)
        self.url = str(self.path)
        self.cache_dir: Path | None = self.path.with_name(f"{self.path.name}.cache")
        self._timeout = timeout
        self._synchronous = synchronous
        self._wal_limit = wal_limit
        self._wal = f"{self.path}-wal"
        self._writing = FifoLock()
        self._writer: sqlite3.Connection | None = None
        self._idle: deque[sqlite3.Connection] = deque()
        self._lent = 0
        self._gate = threading.Condition()
        self._closed = False
        self._pid = os.getpid()
        if allow_network_fs is None:
            allow_network_fs = os.environ.get(NETWORK_FS_VARIABLE) == "1"
        prepare_folder(self.path, allow_network_fs=allow_network_fs)
        self._writer = self._open_writer()
        _LIVE.add(self)

    # Reading

    def head(self, tenant: str) -> Head:
        db = self._take()
        try:
            found = db.execute(_HEAD, (tenant,)).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            self._fail(error, "read the head")
        finally:
            self._give(db)
        return Head._make(found[0]) if found else Head()

    def changes(self, tenant: str, after: int) -> Changes:
        with self._snapshot("read changes") as db:
            return _changes(db, tenant, after)

    def rows(self, tenant: str, ordinals: Sequence[int]) -> list[Row]:
        found: dict[int, Row] = {}
        with self._snapshot("read rows", single=len(ordinals) <= _ARITIES[-1]) as db:
            for record in _in_chunks(db, _ROWS, (tenant,), ordinals):
                row = schema.row_of(record)
                found[row.ordinal] = row
        try:
            return [found[ordinal] for ordinal in ordinals]
        except KeyError as missing:
            raise NotFound(f"there is no row {missing.args[0]} in tenant {tenant!r}") from None

    def vectors(self, tenant: str, generation: int, first: int = 0, stop: int | None = None) -> Vectors:
        with self._snapshot("read vectors") as db:
            key = (tenant, int(generation), int(first), 2**63 - 1 if stop is None else int(stop))
            n = db.execute(_COUNT_VECTORS, key).fetchall()[0][0]
            return _vectors(generation, _dimension(db, tenant, generation), n, db.execute(_VECTORS, key))

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        wanted = sorted({int(ordinal) for ordinal in ordinals})
        with self._snapshot("read vectors") as db:
            records = _in_chunks(db, _VECTORS_OF, (tenant, int(generation)), wanted)
            return _vectors(generation, _dimension(db, tenant, generation), len(records), iter(records))

    def generations(self, tenant: str) -> list[Generation]:
        with self._snapshot("read generations", single=True) as db:
            return list(_generations(db, tenant).values())

    def events(self, tenant: str, after: int = 0, limit: int | None = None) -> list[Event]:
        with self._snapshot("read events", single=True) as db:
            return _events(db, tenant, after, limit)

    def receipt(self, tenant: str, receipt_id: str) -> str | None:
        with self._snapshot("read a receipt", single=True) as db:
            found = db.execute(_RECEIPT, (tenant, receipt_id)).fetchall()
        return found[0][0] if found else None

    def receipts(self, tenant: str) -> list[tuple[str, int]]:
        with self._snapshot("read receipts", single=True) as db:
            return db.execute(_RECEIPTS, (tenant,)).fetchall()

    # Writing

    def transaction(self, tenant: str) -> _Writing:
        return _Writing(self, tenant)

    def write_vectors(self, tenant: str, vectors: Vectors) -> None:
        with self.transaction(tenant) as open_:
            open_.add_vectors(vectors)

    # Keeping

    def scrub(self) -> None:
        """Rewrite the file without its free pages and empty the write-ahead log.

        StoreBusy when a reader elsewhere holds on to an older state for longer than the timeout: the erased
        bytes may then still be in the log, and `scrub` must be called again.
        """
        with self._exclusive() as db:
            try:
                self._truncate_wal(db)
                self._retry(lambda: db.execute("VACUUM"), "rewrite the file")
                self._truncate_wal(db)
            except sqlite3.Error as error:
                self._fail(error, "scrub the file")

    def check(self, tenant: str) -> list[str]:
        try:
            with self._snapshot("check the file") as db:
                return _check(db, tenant)
        except StoreCorrupt as error:
            return [str(error)]

    def size(self, tenant: str) -> int:  # noqa: ARG002 -- one file holds all tenants
        self._refuse_unusable()
        total = 0
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(f"{self.path}{suffix}").st_size  # noqa: PTH116
        return total

    def backup(self, destination: Path) -> None:
        """Copy the state of this moment into a new file (or a new folder's twofold.db).

        Others go on writing. StoreError when the destination exists, StoreCorrupt when the copy is not sound.
        """
        target = database_file(destination)
        prepare_folder(target, allow_network_fs=True)
        with self._snapshot("back up", single=True) as db:
            _copy(db, target)

    def residue(self, needles: Sequence[bytes]) -> list[str]:
        """The store's files in which any of these byte strings is found, for proving an erasure.

        Files derived from it, in `cache_dir`, are looked into as well. Text longer than a page (8 KB) lies in
        pieces: look for short parts of it.
        """
        self._refuse_unusable()
        found = []
        try:
            if _holds(_descriptor(self.path), needles):
                found.append(str(self.path))
            derived = sorted(self.cache_dir.rglob("*")) if self.cache_dir is not None else []
            for path in (Path(self._wal), *derived):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
                    if _holds(file.fileno(), needles):
                        found.append(str(path))
        except OSError as error:
            self._fail(error, "look for residue")
        return found

    def close(self) -> None:
        """Release the connections. A transaction that another thread has open is waited for."""
        if self._closed:
            return
        if self._pid != os.getpid():  # nothing of another process is ours to close
            self._closed = True
            return
        if self._writing.mine():
            raise StoreError("the store cannot be closed inside its own transaction; leave the block first")
        if not self._writing.acquire(self._timeout):
            raise StoreBusy(f"{self.url} is in a transaction of another thread; close it after that ends")
        try:
            self._closed = True
            self._close_connections()
        finally:
            self._writing.release()
        _LIVE.discard(self)

    # Connections

    def _connect(self, timeout: float) -> sqlite3.Connection:
        # check_same_thread is off because connections are lent to one thread at a time.
        return sqlite3.connect(
            self.path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=64
        )

    def _open_writer(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = None
        try:
            db = self._connect(0)  # `_retry` waits
            self._retry(lambda: _prepare(db, self.path), "open the file")
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
            db.execute("PRAGMA secure_delete = ON")
            db.execute(f"PRAGMA journal_size_limit = {self._wal_limit}")
        except (sqlite3.Error, OSError) as error:
            if db is not None:
                db.close()
            self._fail(error, "open the file")
        except BaseException:
            if db is not None:
                db.close()
            raise
        return db

    def _open_reader(self) -> sqlite3.Connection:
        if not self.path.exists():  # connect() would make a new, empty file
            raise StoreError(f"{self.url} is gone; it was moved or deleted while open")
        try:
            db = self._connect(self._timeout)
            db.execute("PRAGMA query_only = ON")
            db.execute("PRAGMA cache_size = -8192")
        except sqlite3.Error as error:
            self._fail(error, "open the file")
        return db

    def _take(self) -> sqlite3.Connection:
        """Borrow a reader."""
        if self._closed or self._pid != os.getpid():
            self._refuse_unusable()
        with self._gate:
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open_reader()
        except BaseException:
            with self._gate:
                self._lent -= 1
                self._gate.notify_all()
            raise

    def _give(self, db: sqlite3.Connection) -> None:
        """Return a reader."""
        with self._gate:
            self._lent -= 1
            if self._closed or len(self._idle) >= _IDLE_READERS or db.in_transaction:
                db.close()
            else:
                self._idle.append(db)
            if not self._lent:
                self._gate.notify_all()

    @contextlib.contextmanager
    def _snapshot(self, doing: str, *, single: bool = False) -> Iterator[sqlite3.Connection]:
        """A reader inside one read transaction. `single`: the caller's one statement is its own snapshot."""
        db = self._take()
        try:
            if not single:
                db.execute("BEGIN")
            yield db
        except (sqlite3.Error, UnicodeEncodeError, OverflowError, OSError) as error:
            self._fail(error, doing)
        finally:
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # `_give` closes what would not end its transaction
                    db.execute("COMMIT")
            self._give(db)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[sqlite3.Connection]:
        """The writer connection, outside a transaction."""
        self._lock()
        try:
            if self._writer is None:
                self._writer = self._open_writer()
            yield self._writer
        finally:
            self._writing.release()

    def _lock(self) -> None:
        """Take this handle's write lock among its threads."""
        if self._closed or self._pid != os.getpid():
            self._refuse_unusable()
        if self._writing.mine():
            raise StoreError("this thread is inside a transaction of this store already; they do not nest")
        if not self._writing.acquire(self._timeout):
            raise StoreBusy(self._busy_message())
        if self._closed:
            self._writing.release()
            self._refuse_unusable()

    def _begin(self) -> sqlite3.Connection:
        """The writer connection with the file's write lock taken."""
        self._lock()
        try:
            db = self._writer
            if db is None:
                db = self._writer = self._open_writer()
            if db.in_transaction:  # a signal came between taking the lock and handing it over
                db.execute("ROLLBACK")
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # busy, or something else that will say so again
                self._retry(lambda: db.execute("BEGIN IMMEDIATE"), "begin to write")
            return db
        except sqlite3.Error as error:
            self._writing.release()
            self._fail(error, "begin to write")
        except BaseException:
            self._writing.release()
            raise

    def _retry(self, action: Callable[[], object], doing: str) -> None:
        """Repeat an action that finds the file locked.

        SQLite's own handler backs off to 100 ms and so lets newcomers overtake; here whoever has waited
        longer polls more often.
        """
        start, pause = monotonic(), 0.0002
        while True:
            try:
                action()
                return
            except sqlite3.OperationalError as error:
                if _primary(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                waited = monotonic() - start
                if waited >= self._timeout:
                    self._fail(error, doing)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.004) if waited < 0.5 else 0.001

    def _truncate_wal(self, db: sqlite3.Connection) -> None:
        """Move the log into the file and cut it to zero bytes."""
        start = monotonic()
        while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
            if monotonic() - start >= self._timeout:
                raise StoreBusy(
                    f"{self.url}: another connection has been reading an older state for "
                    f"{self._timeout:g} s, so the write-ahead log cannot be emptied; end it and scrub again"
                )
            time.sleep(0.002)

    def _after_commit(self, db: sqlite3.Connection) -> None:
        """Shorten a log that SQLite's own checkpoints could not, because readers overlapped all the time."""
        try:
            if os.stat(self._wal).st_size <= self._wal_limit:  # noqa: PTH116 -- no Path object per commit
                return
        except FileNotFoundError:
            return
        try:
            db.execute("PRAGMA busy_timeout = 200")  # waits briefly for readers to move on
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            db.execute("PRAGMA busy_timeout = 0")
        except sqlite3.OperationalError:
            # The commit stands. What a checkpoint cannot do now is tried again after the next one, and a
            # failing disk fails that commit itself.
            return
        except sqlite3.Error as error:
            self._fail(error, "shorten the log")

    def _close_connections(self) -> None:
        with self._gate:
            while self._idle:
                self._idle.pop().close()
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    # Failing

    def _refuse_unusable(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url} was closed; open it again")
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.url} was in use in another thread or transaction when this process was forked, and "
                "SQLite connections do not survive that; open the store in the child instead, or use spawn"
            )

    def _busy_message(self) -> str:
        return (
            f"{self.url} is locked by another writer for more than {self._timeout:g} s; "
            "try again, or open the store with a longer timeout"
        )

    def _fail(self, error: Exception, doing: str) -> NoReturn:
        """Raise the error of our tree that an exception of SQLite or the system means."""
        if isinstance(error, UnicodeEncodeError | OverflowError):
            raise InvalidInput(f"cannot {doing}: {error}") from error
        if isinstance(error, OSError):
            raise StoreError(f"cannot {doing} ({self.url}): {error}") from error
        if self._closed:
            raise StoreError(f"{self.url} was closed; open it again") from error
        code = _primary(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(self._busy_message()) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise StoreCorrupt(
                f"{self.url} is not a SQLite database; move it away or give another path"
            ) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise StoreCorrupt(
                f"{self.url} is damaged ({error}); restore a backup (`twofold restore-backup`)"
            ) from error
        remedy = _REMEDIES.get(code, "see the message above")
        raise StoreError(f"cannot {doing} ({self.url}): {error}; {remedy}") from error


_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: give this user write permission",
    sqlite3.SQLITE_PERM: "give this user read and write permission",
    sqlite3.SQLITE_CANTOPEN: "give this user read and write permission on the file and its folder",
    sqlite3.SQLITE_IOERR: "the disk failed: check it, then run twofold doctor",
    sqlite3.SQLITE_CONSTRAINT: "what is stored contradicts the batch: run twofold doctor",
}


class _Writing:
    """A transaction on one tenant: the context manager of `SQLiteStore.transaction` and what it yields."""

    def __init__(self, store: SQLiteStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._db: sqlite3.Connection | None = None
        self._failed = False
        self._wrote = False
        self.head = Head()

    def __enter__(self) -> _Writing:
        self._db = db = self._store._begin()
        try:
            found = db.execute(_HEAD, (self._tenant,)).fetchall()
        except BaseException as error:
            self._end(db, commit=False)
            if isinstance(error, sqlite3.Error | UnicodeEncodeError):
                self._store._fail(error, "read the head")
            raise
        if found:
            self.head = Head._make(found[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        db = self._open()
        self._end(db, commit=kind is None and not self._failed)
        if kind is None and self._failed:
            raise StoreError("a batch of this transaction was refused, so nothing of it was committed")

    def changes(self, after: int) -> Changes:
        db = self._open()
        try:
            return _changes(db, self._tenant, after)
        except sqlite3.Error as error:
            self._failed = True
            self._store._fail(error, "read changes")

    def apply(self, batch: Batch) -> Head:
        db = self._open()
        try:
            self.head = _apply(db, self._tenant, self.head, batch)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            self._failed = True
            self._store._fail(error, "write a batch")
        except BaseException:
            self._failed = True
            raise
        self._wrote = True
        return self.head

    def add_vectors(self, vectors: Vectors) -> None:
        """Vectors of a generation that is not current yet; those of erased rows are left out."""
        db = self._open()
        try:
            generations = _generations(db, self._tenant)
            schema.check_pending(vectors, generations, self.head.rows)
            _put_vectors(db, self._tenant, vectors, _erased(db, self._tenant, vectors))
        except (sqlite3.Error, OverflowError) as error:
            self._failed = True
            self._store._fail(error, "write vectors")
        self._wrote = True

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError("the transaction is over; begin another one")
        return self._db

    def _end(self, db: sqlite3.Connection, *, commit: bool) -> None:
        store, self._db = self._store, None
        try:
            if commit:
                try:
                    db.execute("COMMIT")
                except sqlite3.Error as error:
                    self._roll_back(db)
                    store._fail(error, "commit")
                if self._wrote:
                    store._after_commit(db)
            else:
                self._roll_back(db)
        finally:
            store._writing.release()

    def _roll_back(self, db: sqlite3.Connection) -> None:
        if not db.in_transaction:  # SQLite rolled back by itself
            return
        try:
            db.execute("ROLLBACK")
        except (
            sqlite3.Error
        ):  # closing discards the transaction as well; the next writer opens a new connection
            self._store._writer = None
            db.close()


def _changes(db: sqlite3.Connection, tenant: str, after: int) -> Changes:
    found = db.execute(_HEAD, (tenant,)).fetchall()
    head = Head._make(found[0]) if found else Head()
    if head.seq <= after:
        return Changes(head, [], [], list(_generations(db, tenant).values()), [])
    events = _events(db, tenant, after, None)
    # Rows come in the order of the events that added them, so the first one names where they start.
    first = next((event.ordinal for event in events if schema.adds_row(event)), None)
    rows = [] if first is None else schema.index_rows_of(db.execute(_INDEX_ROWS, (tenant, first)))
    erased = [ordinal for (ordinal,) in db.execute(_ERASED_SINCE, (tenant, after))]
    return Changes(head, events, rows, list(_generations(db, tenant).values()), erased)


def _events(db: sqlite3.Connection, tenant: str, after: int, limit: int | None) -> list[Event]:
    new = tuple.__new__
    return [
        new(Event, record) for record in db.execute(_EVENTS, (tenant, after, -1 if limit is None else limit))
    ]


def _generations(db: sqlite3.Connection, tenant: str) -> dict[int, Generation]:
    return {record[0]: Generation(*record) for record in db.execute(_GENERATIONS, (tenant,))}


def _dimension(db: sqlite3.Connection, tenant: str, generation: int) -> int:
    found = _generations(db, tenant).get(generation)
    if found is None:
        raise NotFound(f"tenant {tenant!r} has no embedding generation {generation}")
    return found.dimension


def _vectors(generation: int, dimension: int, n: int, records: Any) -> Vectors:
    data = np.empty((n, dimension), dtype=np.float32)
    spans = np.empty((4, n), dtype=np.int64)
    codes: list[bytes] = []
    at = 0
    while at < n:
        chunk = list(itertools.islice(records, _VECTOR_CHUNK))
        ordinals, parts, starts, stops, blobs, coded = zip(*chunk, strict=True)
        codes += coded
        end = at + len(chunk)
        data[at:end] = float_rows(generation, dimension, ordinals, blobs)
        spans[:, at:end] = (ordinals, parts, starts, stops)
        at = end
    return Vectors(generation, spans[0], spans[1], spans[2], spans[3], data, tuple(codes))


def _in_chunks(
    db: sqlite3.Connection, statements: dict[int, str], key: tuple[Any, ...], ordinals: Sequence[int]
) -> list[Any]:
    """Records of many ordinals, by statements of a few fixed sizes, filled up with the last ordinal."""
    records: list[Any] = []
    for at in range(0, len(ordinals), _ARITIES[-1]):
        wanted = [int(ordinal) for ordinal in ordinals[at : at + _ARITIES[-1]]]
        size = next(n for n in _ARITIES if n >= len(wanted))
        wanted += wanted[-1:] * (size - len(wanted))
        records += db.execute(statements[size], (*key, *wanted)).fetchall()
    return records


def _apply(db: sqlite3.Connection, tenant: str, head: Head, batch: Batch) -> Head:
    after = schema.check_batch(head, batch)
    generations: dict[int, Generation] = {}
    if batch.vectors or batch.generations or batch.drop_generations or batch.erase_rows or batch.rows:
        known = _generations(db, tenant)
        generations = schema.check_generations(known, batch, after)
        schema.check_coverage(batch, generations)
        for vectors in batch.vectors:
            schema.check_vectors(vectors, generations, after.rows)
    schema.check_erasures(batch, after)

    db.executemany(_PUT_EVENT, ((tenant, *event) for event in batch.events))
    db.executemany(_PUT_ROW, (_row_record(tenant, row) for row in batch.rows))
    for one in batch.generations:
        db.execute(_PUT_GENERATION, (tenant, one.number, one.fingerprint, one.dimension, one.seq))
    for vectors in batch.vectors:
        old = vectors.ordinals[vectors.ordinals < head.rows]
        if len(old) and (gone := _erased_among(db, tenant, old.tolist())):
            raise StoreError(f"row {min(gone)} is erased and must not get a vector again")
        _put_vectors(db, tenant, vectors, frozenset())
    for receipt_id, seq, body in batch.receipts:
        db.execute(_PUT_RECEIPT, (tenant, receipt_id, seq, body))
    for number in batch.drop_generations:
        db.execute(_DROP_VECTORS, (tenant, number))
        db.execute(_DROP_GENERATION, (tenant, number))
    if batch.erase_rows or batch.erase_events or batch.erase_receipts:
        _erase(db, tenant, batch, after, generations)
    if after != head:
        db.execute(_PUT_HEAD, (tenant, *after))
    return after


def _row_record(tenant: str, row: Row) -> list[Any]:
    values = schema.row_values(row)
    values[-1] = row.seq if row.erased else None
    values.insert(0, tenant)
    return values


def _put_vectors(db: sqlite3.Connection, tenant: str, vectors: Vectors, skip: frozenset[int]) -> None:
    number, width = vectors.generation, vectors.data.shape[1] * 4
    view = memoryview(vectors.data.astype("<f4", copy=False).tobytes())
    spans = zip(
        vectors.ordinals.tolist(),
        vectors.parts.tolist(),
        vectors.starts.tolist(),
        vectors.stops.tolist(),
        vectors.codes,
        strict=True,
    )
    db.executemany(
        _PUT_VECTOR,
        (
            (tenant, number, ordinal, part, start, stop, view[at : at + width], codes)
            for at, (ordinal, part, start, stop, codes) in zip(range(0, len(view), width), spans, strict=True)
            if ordinal not in skip
        ),
    )


def _erased(db: sqlite3.Connection, tenant: str, vectors: Vectors) -> frozenset[int]:
    return _erased_among(db, tenant, sorted(set(vectors.ordinals.tolist())))


def _erased_among(db: sqlite3.Connection, tenant: str, ordinals: list[int]) -> frozenset[int]:
    return frozenset(ordinal for (ordinal,) in _in_chunks(db, _ERASED, (tenant,), ordinals))


def _erase(
    db: sqlite3.Connection, tenant: str, batch: Batch, after: Head, generations: dict[int, Generation]
) -> None:
    blank = tuple(_BLANK.values())
    db.executemany(_ERASE_ROW, ((*blank, after.seq, tenant, ordinal) for ordinal in batch.erase_rows))
    for number in generations:
        db.executemany(_ERASE_VECTORS, ((tenant, number, ordinal) for ordinal in batch.erase_rows))
    db.executemany(_ERASE_EVENT, ((tenant, seq) for seq in batch.erase_events))
    for receipt_id, body in batch.erase_receipts:
        if db.execute(_ERASE_RECEIPT, (body, tenant, receipt_id)).rowcount != 1:
            raise StoreError(f"there is no receipt {receipt_id!r} to erase in tenant {tenant!r}")


def _check(db: sqlite3.Connection, tenant: str) -> list[str]:
    """Contradictions inside the file, then between this tenant's tables."""
    problems = [f"sqlite: {text}" for (text,) in db.execute("PRAGMA integrity_check(20)") if text != "ok"]
    if problems:
        return problems  # counts over damaged tables would only confuse

    def one(sql: str, *args: object) -> Any:
        return db.execute(sql, (tenant, *args)).fetchall()[0]

    found = db.execute(_HEAD, (tenant,)).fetchall()
    head = Head._make(found[0]) if found else Head()
    count, low, high = one("SELECT count(*), min(seq), max(seq) FROM event WHERE tenant = ?")
    if (count, 1 if low is None else low, high or 0) != (head.seq, 1, head.seq):
        problems.append(f"the log holds {count} events from {low} to {high}; the head says 1 to {head.seq}")
    if count:
        at, digest = one("SELECT at, hash FROM event WHERE tenant = ? ORDER BY seq DESC LIMIT 1")
        if (at, digest) != (head.recorded_at, head.hash):
            problems.append(f"the head's time and hash are not those of the last event ({high})")
    (backwards,) = one(
        """SELECT count(*) FROM (SELECT at, lag(at) OVER (ORDER BY seq) AS before FROM event WHERE tenant = ?)
           WHERE at < before"""
    )
    if backwards:
        problems.append(f"{backwards} events are recorded before their predecessor")
    count, low, high = one("SELECT count(*), min(ordinal), max(ordinal) FROM memory WHERE tenant = ?")
    if (count, low or 0, -1 if high is None else high) != (head.rows, 0, head.rows - 1):
        problems.append(f"there are {count} rows from {low} to {high}; the head says 0 to {head.rows - 1}")
    for ordinal, seq in db.execute(
        """SELECT m.ordinal, m.seq FROM memory AS m
           LEFT JOIN event AS e ON e.tenant = m.tenant AND e.seq = m.seq
           WHERE m.tenant = ? AND (e.ordinal IS NOT m.ordinal OR e.kind NOT IN ('add', 'update')
           OR e.at IS NOT m.recorded_at) LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"row {ordinal} does not agree with event {seq}, which should have added it")
    for seq, ordinal in db.execute(
        """SELECT e.seq, e.ordinal FROM event AS e
           LEFT JOIN memory AS m ON m.tenant = e.tenant AND m.ordinal = e.ordinal
           WHERE e.tenant = ? AND e.kind IN ('add', 'update') AND m.seq IS NOT e.seq LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"event {seq} added row {ordinal}, which is missing or belongs to another event")
    for memory_id, version, copies in db.execute(
        """SELECT id, version, count(*) FROM memory WHERE tenant = ? GROUP BY id, version
           HAVING count(*) > 1 LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"memory {memory_id} has {copies} rows of version {version}")
    for number, ordinal, fault in db.execute(
        """SELECT v.generation, v.ordinal, CASE WHEN m.ordinal IS NULL THEN 'no row' WHEN m.erased IS NOT NULL
             THEN 'an erased row' WHEN g.number IS NULL THEN 'no generation' ELSE 'the wrong size' END
           FROM vector AS v LEFT JOIN memory AS m ON m.tenant = v.tenant AND m.ordinal = v.ordinal
           LEFT JOIN generation AS g ON g.tenant = v.tenant AND g.number = v.generation
           WHERE v.tenant = ? AND (m.ordinal IS NULL OR m.erased IS NOT NULL OR g.number IS NULL
             OR length(v.data) <> 4 * g.dimension) LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"the vector of row {ordinal} in generation {number} belongs to {fault}")
    for ordinal, number in db.execute(
        """SELECT m.ordinal, m.generation FROM memory AS m JOIN generation AS g ON g.tenant = m.tenant
           AND g.number = m.generation WHERE m.tenant = ? AND m.erased IS NULL AND NOT EXISTS (
             SELECT 1 FROM vector AS v WHERE v.tenant = m.tenant AND v.generation = m.generation
             AND v.ordinal = m.ordinal) LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"row {ordinal} has no vector of its generation {number}")
    for (ordinal,) in db.execute(
        """SELECT ordinal FROM memory WHERE tenant = ? AND erased IS NOT NULL AND (content <> '' OR tags <> ''
           OR entities <> '' OR key IS NOT NULL OR lexemes <> '{}' OR metadata <> '{}' OR content_hash <> '')
           LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"row {ordinal} is erased and still has content")
    if problems:
        return problems  # what follows reads the payloads
    for ordinal, seq in db.execute(
        """SELECT m.ordinal, m.erased FROM memory AS m WHERE m.tenant = ? AND m.erased IS NOT NULL
           AND m.erased <> m.seq AND NOT EXISTS (
             SELECT 1 FROM event AS e WHERE e.tenant = m.tenant AND e.seq = m.erased AND e.kind = 'erase'
             AND (json_type(e.payload, '$.tombstones') IS NULL OR EXISTS (
               SELECT 1 FROM json_each(e.payload, '$.tombstones') AS t
               WHERE json_extract(t.value, '$[0]') = m.ordinal))) LIMIT 20""",
        (tenant,),
    ):
        problems.append(f"row {ordinal} is said to be erased by event {seq}, which did not erase it")
    return problems


def database_file(path: str | Path) -> Path:
    """The absolute path of the database file that a user's path means."""
    text = str(path_of(path)) if path else ""
    if not text:
        raise InvalidInput(f"{path!r} is not a path; give a folder or a .db file")
    if text == ":memory:":
        raise InvalidInput("':memory:' is the in-memory store; open it with twofold.stores.open_store")
    found = Path(text).expanduser()
    try:
        if found.suffix not in _SUFFIXES and not found.is_file():
            found = found / FILE_NAME
    except OSError as error:
        raise StoreError(f"cannot open {text}: {reason(error)}") from None
    return Path(os.path.abspath(found))  # noqa: PTH100 -- resolve() would follow links of a path not made yet


def prepare_folder(file: Path, *, allow_network_fs: bool) -> None:
    """Make the file's folder, and refuse one on a network file system."""
    try:
        folder = file.is_dir()
    except OSError as error:
        raise StoreError(f"cannot open {file}: {reason(error)}") from None
    if folder:
        raise StoreError(f"{file} is a folder; name a file in it, or the folder without {file.suffix}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the folder {file.parent}: {error.strerror}; give a path this user may write to"
        ) from error
    if allow_network_fs:
        return
    with contextlib.suppress(FileNotFoundError):  # no /proc: not Linux, where we cannot tell
        kind = filesystem_of(
            file.parent.resolve(), Path("/proc/self/mountinfo").read_text("utf-8", "replace")
        )
        if kind in _NETWORK_FS:
            raise StoreError(
                f"{file.parent} is on a network file system ({kind}), where SQLite's locks are not reliable "
                f"and processes would corrupt the store; use a local folder or a server store "
                f"(postgresql://...), or set {NETWORK_FS_VARIABLE}=1 if only one machine ever opens it"
            )


def filesystem_of(folder: Path, mountinfo: str) -> str | None:
    """The type of the file system a folder lies on, from the text of /proc/self/mountinfo."""
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) < 5 or not right:
            continue
        mount = fields[4].encode("ascii", "surrogateescape").decode("unicode_escape")  # a space is \040
        # Later lines cover earlier ones on the same mount point.
        if folder.is_relative_to(mount) and (best is None or len(mount) >= best[0]):
            best = (len(mount), kinds[0])
    return best[1] if best else None


def restore_backup(source: str | Path, destination: str | Path) -> None:
    """Make a new store from a backup, after checking the backup. StoreError when the destination exists."""
    origin, target = database_file(source), database_file(destination)
    if not origin.is_file():
        raise NotFound(f"there is no backup at {origin}")
    prepare_folder(target, allow_network_fs=os.environ.get(NETWORK_FS_VARIABLE) == "1")
    # Without a log nobody has the backup open, and `immutable` leaves no files beside it.
    mode = "mode=ro" if Path(f"{origin}-wal").exists() else "immutable=1"
    try:
        db = sqlite3.connect(f"{origin.as_uri()}?{mode}", uri=True, isolation_level=None)
        try:
            if _version(db, origin) == 0:
                raise StoreCorrupt(f"the backup {origin} is empty; use an older one")
            problems = [text for (text,) in db.execute("PRAGMA integrity_check(5)") if text != "ok"]
            if problems:
                raise StoreCorrupt(f"the backup {origin} is damaged ({problems[0]}); use an older one")
            _copy(db, target)
        finally:
            db.close()
    except (sqlite3.Error, OSError) as error:
        if _primary(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise StoreCorrupt(f"the backup {origin} is damaged ({error}); use an older one") from error
        raise StoreError(f"cannot restore {origin} to {target}: {error}") from error


def _copy(db: sqlite3.Connection, target: Path) -> None:
    """Copy a database into a file that does not exist yet; it appears complete or not at all."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        if Path(f"{target}{suffix}").exists():
            raise StoreError(f"{target}{suffix} exists; give a path that does not")
    # In a folder of our own: nobody can have laid a link under the copy's name.
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:200]}."))
    partial = work / "copy"
    try:
        copy = sqlite3.connect(partial, isolation_level=None)
        try:
            db.backup(copy)
            # Pages are copied as they are, damaged ones too, and whoever keeps a damaged copy finds out too late.
            found = copy.execute("PRAGMA quick_check(1)").fetchall()[0][0]
        finally:
            copy.close()
        if found != "ok":
            raise StoreCorrupt(
                f"what was copied is damaged ({found}); run twofold doctor, restore an older backup"
            )
        try:
            os.link(partial, target)  # unlike rename, never replaces a file made in the meantime
        except FileExistsError:
            raise StoreError(f"{target} exists; give a path that does not") from None
        except OSError:  # a file system without hard links
            partial.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


_DESCRIPTORS: Final[dict[tuple[int, int], int]] = {}


def _descriptor(path: Path) -> int:
    """A descriptor for reading a database that this process has open.

    It is never closed, because closing any descriptor of a file drops all POSIX locks the process has on it,
    SQLite's among them. (SQLite locks the database and its -shm file, not the log.)
    """
    status = path.stat()
    key = (status.st_dev, status.st_ino)
    if key not in _DESCRIPTORS:
        _DESCRIPTORS[key] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return _DESCRIPTORS[key]


def _holds(descriptor: int, needles: Sequence[bytes]) -> bool:
    overlap = max((len(needle) for needle in needles), default=1) - 1
    at, tail = 0, b""
    while chunk := os.pread(descriptor, 1 << 20, at):
        window = tail + chunk
        if any(needle in window for needle in needles):
            return True
        tail = window[len(window) - overlap :]
        at += len(chunk)
    return False


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check whose file this is, and bring an empty or older one to this version's format."""
    if sqlite3.sqlite_version_info < (3, 37):
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; Twofold needs 3.37 or newer")
    version = _version(db, path)
    if version == 0:
        db.execute("PRAGMA page_size = 8192")  # five 384-dimensional vectors a page, and one of 1,536
    if db.execute("PRAGMA journal_mode = WAL").fetchall()[0][0] != "wal":
        raise StoreError(f"{path} cannot use a write-ahead log here; use a local folder")
    if version == len(MIGRATIONS):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for migrate in MIGRATIONS[_version(db, path) :]:  # again: another process may have been first
            migrate(db)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The file's format version, 0 when it is empty."""
    # One statement, so one state: between two of them another process may make the file's tables.
    owner, version, tables = db.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchall()[0]
    if owner != APPLICATION_ID:
        if owner or version or tables:
            raise StoreCorrupt(f"{path} is a SQLite database of another program; give another path")
        return 0
    version = int(version)
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            f"{path} has format {version}; this Twofold reads up to {len(MIGRATIONS)}: "
            "upgrade it (pip install -U twofold)"
        )
    return version


def _primary(error: Exception) -> int:
    """The primary result code of a SQLite error, 0 for those of the sqlite3 module itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


# Forks. SQLite keeps its file locks in process-wide tables that a child would inherit without holding the
# locks, so that even a connection of the child's own would run unprotected. Every connection is therefore
# closed before a fork and opened again after it, on both sides. What cannot be closed (this thread is inside
# a transaction, or other threads do not finish in time) makes the store unusable in the child.

_LIVE: Final[weakref.WeakSet[SQLiteStore]] = weakref.WeakSet()
_HELD: Final[list[SQLiteStore]] = []
_FORK_PATIENCE: Final = 5.0  # seconds


def _before_fork() -> None:
    for store in list(_LIVE):
        if store._closed or store._pid != os.getpid() or store._writing.mine():
            continue
        if not store._writing.acquire(_FORK_PATIENCE):
            continue
        store._gate.acquire()
        if store._gate.wait_for(lambda store=store: not store._lent, _FORK_PATIENCE):  # type: ignore[misc]
            store._close_connections()
            _HELD.append(store)
        else:
            store._gate.release()
            store._writing.release()


def _after_fork_in_parent() -> None:
    while _HELD:
        store = _HELD.pop()
        store._gate.release()
        store._writing.release()


def _after_fork_in_child() -> None:
    clean = set(map(id, _HELD))
    _HELD.clear()
    for store in list(_LIVE):
        if id(store) in clean:
            store._pid = os.getpid()
        else:
            for inherited in (store._writer, *store._idle):
                # Closing it, at the latest when the interpreter ends, would touch the parent's files.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
            store._writer = None
            store._idle = deque()
        store._lent = 0
        store._writing = FifoLock()
        store._gate = threading.Condition()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
