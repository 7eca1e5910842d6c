"""Memwright's one table: read from its files without touching them, and shown to SQL in a database in RAM.

Not a store of Twofold's; `twofold.compat` stands on it.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from twofold.errors import InvalidInput, StoreCorrupt

DB_NAME: Final = "memory.db"
COLUMNS: Final = (
    "id content tags category entity namespace created_at event_date valid_from valid_until superseded_by "
    "confidence status metadata access_count last_accessed content_hash"
).split()
_TABLE: Final = """
CREATE TABLE memories (
  id TEXT PRIMARY KEY, content TEXT NOT NULL, tags TEXT NOT NULL, category TEXT NOT NULL DEFAULT 'general',
  entity TEXT, namespace TEXT NOT NULL DEFAULT 'default', created_at TEXT NOT NULL, event_date TEXT,
  valid_from TEXT NOT NULL, valid_until TEXT, superseded_by TEXT, confidence REAL DEFAULT 1.0,
  status TEXT DEFAULT 'active', metadata TEXT DEFAULT '{}', access_count INTEGER DEFAULT 0,
  last_accessed TEXT, content_hash TEXT
)"""
_SIDE_FILES: Final = ("", "-wal")


def is_store(folder: Path) -> bool:
    """Whether a folder holds a database with Memwright's table."""
    file = folder / DB_NAME
    if not file.is_file():
        return False
    with file.open("rb") as f:
        return f.read(16) == b"SQLite format 3\0"


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Every row of a folder's memory.db, oldest first. Columns that older releases lack are left out.

    A copy is read, so that the folder is left exactly as it is, even where the log of an unfinished writer
    lies beside the database. Raises StoreCorrupt.
    """
    with tempfile.TemporaryDirectory(prefix="twofold-memwright-") as scratch:
        for suffix in _SIDE_FILES:
            source = folder / f"{DB_NAME}{suffix}"
            if source.exists():
                shutil.copyfile(source, Path(scratch) / source.name)
        try:
            with contextlib.closing(sqlite3.connect(Path(scratch) / DB_NAME)) as db:
                problem = db.execute("PRAGMA quick_check").fetchone()[0]
                if problem != "ok":
                    raise StoreCorrupt(f"{folder / DB_NAME}: {problem}")
                there = {row[1] for row in db.execute("PRAGMA table_info(memories)")}
                names = [c for c in COLUMNS if c in there]
                missing = {"id", "content", "created_at"} - there
                if missing:
                    raise StoreCorrupt(
                        f"{folder / DB_NAME} is no Memwright store: no column {missing.pop()!r}"
                    )
                rows = db.execute(f"SELECT {', '.join(names)} FROM memories ORDER BY created_at, rowid")
                return [dict(zip(names, row, strict=True)) for row in rows]
        except sqlite3.DatabaseError as error:
            raise StoreCorrupt(f"{folder / DB_NAME} cannot be read: {error}") from None


def query(
    rows: Iterable[Mapping[str, Any]], sql: str, params: Sequence[Any] | Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Run one statement on a table `memories` of these rows, which it cannot change.

    Raises InvalidInput for a statement that SQLite refuses, writes included.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute(_TABLE)
        marks = ", ".join(f":{c}" for c in COLUMNS)
        with db:
            db.executemany(f"INSERT INTO memories ({', '.join(COLUMNS)}) VALUES ({marks})", rows)
        db.execute("PRAGMA query_only = ON")
        db.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in db.execute(sql, params or ()).fetchall()]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise InvalidInput(f"{error}; execute() reads a copy of the table and changes nothing") from None
