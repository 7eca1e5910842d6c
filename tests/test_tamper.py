"""Whoever changes the file behind Twofold's back is named by `verify`: the row, the column's kind, the place."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, errors
from twofold.verify import VerifyReport

KEYS = {
    "memory": ("ordinal",),
    "event": ("seq",),
    "vector": ("generation", "ordinal", "part"),
    "head": (),
    "generation": ("number",),
    "receipt": ("id",),
}


def columns() -> list[tuple[str, str]]:
    """Every column of every table, read from a real file, so that a new one cannot be forgotten."""
    from twofold.stores.sqlite import SQLiteStore

    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        from twofold.stores import sqlite as module

        for migrate in module.MIGRATIONS:
            migrate(db)
        tables = [
            n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        found = [(t, c[1]) for t in tables for c in db.execute(f"PRAGMA table_info({t})")]
    assert SQLiteStore.persistent
    return found


def test_every_table_is_known() -> None:
    assert {t for t, _ in columns()} == set(KEYS)


class Victim:
    """A store with some of everything, closed; each test works on a copy of the file."""

    def __init__(self, folder: Path, clock: Any) -> None:
        self.folder = folder
        self.clock = clock
        mem = self.opened()
        long = " ".join(f"the harbour of {n} was dredged in spring;" for n in range(1500))
        first = mem.add(
            "The key of the mill is under the stone",
            key="mill.key",
            tags=["mill", "key"],
            entities=["Mill"],
            metadata={"role": "user"},
            speaker="Ann",
            session_id="s1",
            source_id="file-7",
            event_date="2025-12-24",
            confidence=0.75,
        )
        mem.add("The key of the mill is with the miller", key="mill.key")
        mem.add(long, memory_type="observation", pinned=True)
        erased = mem.add("The code of the safe is 4711", derived_from=[first.id], visibility="private")
        mem.update(first.id, tags=["mill"])
        mem.link(first.id, mem.add("a second thing about the mill").id, "explains")
        mem.recall("mill key", keep=True)
        mem.recall("safe code 4711", keep=True)
        mem.flush()
        mem.flag(first.id, "under which stone?")
        mem.erase(erased.id, reason="asked for")
        mem.reembed("hashing:96")
        mem.gc(dry_run=False, generations=True)
        mem.add("after the re-embedding")
        mem.reembed("hashing:128")
        mem.add("the last word")
        assert mem.verify().problems == ()
        self.head = mem.verify().head
        mem.close()
        self.file = folder / "twofold.db"
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.bytes = self.file.read_bytes()

    def opened(self) -> AgentMemory:
        return AgentMemory(
            self.folder, embedder="hashing:128" if hasattr(self, "file") else "hashing:64", clock=self.clock
        )

    @contextlib.contextmanager
    def edited(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            yield db
            db.commit()

    def restore(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.file}{suffix}").unlink(missing_ok=True)
        self.file.write_bytes(self.bytes)

    def verify(self, **options: Any) -> VerifyReport:
        mem = AgentMemory(self.folder, embedder=None, clock=self.clock)
        try:
            return mem.verify(**options)
        finally:
            mem._vault.store.close()


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    from twofold.clock import ManualClock

    return Victim(tmp_path_factory.mktemp("tamper"), ManualClock("2026-01-01T00:00:00Z"))


@pytest.fixture(autouse=True)
def _fresh(victim: Victim) -> Iterator[None]:
    yield
    victim.restore()


def flipped(value: Any, r: random.Random) -> list[Any]:
    """Values that differ from this one by a flipped bit, at the beginning, the end and somewhere between."""
    if value is None:
        return [1, "x"]
    if isinstance(value, int):
        return [value ^ (1 << bit) for bit in (0, 1, 7)]
    if isinstance(value, float):
        return [value / 2 + 0.01]
    data = value if isinstance(value, bytes) else value.encode()
    if not data:
        return [b"x" if isinstance(value, bytes) else "x"]
    out: list[Any] = []
    for at in {0, len(data) - 1, r.randrange(len(data))}:
        for bit in (1, 32):
            changed = bytearray(data)
            changed[at] ^= bit
            out.append(bytes(changed))
    return out if isinstance(value, bytes) else [*out, bytes([data[0] ^ 0x80]) + data[1:]]


def named(report: VerifyReport, table: str, key: tuple[Any, ...], identity: str | None) -> bool:
    """Whether a problem says where: a row by ordinal or id, an entry by its number, a receipt by its id."""
    text = "\n".join(report.problems)
    places = {
        "memory": [f"ordinal {key[0]}" if key else "", f"row {key[0]}" if key else "", identity or "?"],
        "event": [f"event {key[0]}" if key else "", f"expects {key[0]}" if key else ""],
        "vector": [f"ordinal {key[1]}", f"row {key[1]}"] if len(key) > 1 else [],
        "generation": [f"generation {key[0]}" if key else "", "generations cannot be read"],
        "receipt": [str(key[0]) if key else "", "receipts cannot be read"],
        "head": ["head", "log"],
    }[table]
    return any(p and p in text for p in places)


def change(victim: Victim, table: str, column: str, rowid_key: tuple[Any, ...], value: Any) -> bool:
    """Change one column of one row; False when the database itself refuses (type or uniqueness)."""
    where = " AND ".join(f"{k} = ?" for k in KEYS[table]) or "1"
    with victim.edited() as db:
        kind = {c[1]: c[2] for c in db.execute(f"PRAGMA table_info({table})")}[column]
        mark = "CAST(? AS TEXT)" if kind == "TEXT" else "?"  # bytes that are no UTF-8 stay what they are
        try:
            db.execute(f'UPDATE {table} SET "{column}" = {mark} WHERE {where}', (value, *rowid_key))
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            return False
    return True


@pytest.mark.parametrize("table,column", columns())
def test_a_flipped_bit_is_named(victim: Victim, table: str, column: str) -> None:
    r = random.Random(f"{table}.{column}")
    with victim.edited() as db:
        db.text_factory = bytes
        keys = ", ".join(KEYS[table]) or "1"
        found = db.execute(
            f'SELECT "{column}", {keys}{", id" if table == "memory" else ""} FROM {table}'
        ).fetchall()
        kind = {c[1].decode(): c[2].decode() for c in db.execute(f"PRAGMA table_info({table})")}[column]
    tried = 0
    for record in found if len(found) <= 5 else r.sample(found, 5):
        value, *rest = record
        if kind == "TEXT" and isinstance(value, bytes):
            value = value.decode()
        identity = rest.pop().decode() if table == "memory" else None
        key = tuple(k.decode() if isinstance(k, bytes) else k for k in rest) if KEYS[table] else ()
        candidates = flipped(value, r)
        for new in candidates if len(found) <= 2 else r.sample(candidates, min(2, len(candidates))):
            if not change(victim, table, column, key, new):
                continue
            tried += 1
            report = victim.verify()
            assert not report.ok, f"{table}.{column} of {key}: {value!r} -> {new!r} goes unnoticed"
            assert named(report, table, key, identity), (table, column, key, new, report.problems[:5])
            victim.restore()
    assert tried, f"no change of {table}.{column} was possible"


@pytest.mark.parametrize("table", [t for t in KEYS if t != "head"])
def test_a_deleted_row_is_named(victim: Victim, table: str) -> None:
    with victim.edited() as db:
        keys = db.execute(f"SELECT {', '.join(KEYS[table])} FROM {table}").fetchall()
    for key in keys[:: max(1, len(keys) // 8)]:
        with victim.edited() as db:
            where = " AND ".join(f"{k} = ?" for k in KEYS[table])
            db.execute(f"DELETE FROM {table} WHERE {where}", key)
        report = victim.verify()
        assert not report.ok, f"{table} {key} is gone and nobody notices"
        assert named(report, table, key, None), (key, report.problems[:5])
        victim.restore()


def test_reordered_rows_and_events_are_noticed(victim: Victim) -> None:
    swaps = {
        "UPDATE memory SET content = (SELECT m.content FROM memory AS m WHERE m.ordinal = 1 - memory.ordinal) "
        "WHERE ordinal IN (0, 1)": "ordinal 0",
        "UPDATE event SET seq = -seq WHERE seq IN (2, 3)": "event 2",
        "UPDATE vector SET data = (SELECT data FROM vector AS v WHERE v.ordinal = 1 - vector.ordinal "
        "AND v.generation = vector.generation AND v.part = 0) WHERE ordinal IN (0, 1) AND part = 0": "row 0",
    }
    for number, (sql, place) in enumerate(swaps.items()):
        with victim.edited() as db:
            db.execute(sql)
            if number == 1:
                db.execute("UPDATE event SET seq = 5 + seq WHERE seq < 0")
        report = victim.verify()
        assert place in "\n".join(report.problems), report.problems
        victim.restore()


def test_appended_rows_are_noticed(victim: Victim) -> None:
    copies = {
        "memory": "ordinal = ordinal + 1000, seq = seq + 1000",
        "event": "seq = seq + 1000",
        "vector": "ordinal = ordinal + 1000",
        "generation": "number = number + 1000",
        "receipt": "id = id || 'x'",
    }
    for table, other in copies.items():
        with victim.edited() as db:
            db.execute(f"CREATE TEMP TABLE copy AS SELECT * FROM {table} LIMIT 1")
            db.execute(f"UPDATE copy SET {other}")
            db.execute(f"INSERT INTO {table} SELECT * FROM copy")
        assert not victim.verify().ok, f"a row put into {table} goes unnoticed"
        victim.restore()


def test_a_cut_tail_is_noticed_by_the_head_kept_elsewhere(victim: Victim) -> None:
    """Who cuts the log cleanly leaves a log that verifies: only a head kept elsewhere tells."""
    with victim.edited() as db:
        ((seq, ordinal),) = db.execute("SELECT seq, ordinal FROM event ORDER BY seq DESC LIMIT 1").fetchall()
        db.execute("DELETE FROM event WHERE seq = ?", (seq,))
        db.execute("DELETE FROM memory WHERE ordinal = ?", (ordinal,))
        db.execute("DELETE FROM vector WHERE ordinal = ?", (ordinal,))
        db.execute(
            'UPDATE head SET seq = ?, "rows" = "rows" - 1, hash = (SELECT hash FROM event WHERE seq = ?), '
            "recorded_at = (SELECT at FROM event WHERE seq = ?)",
            (seq - 1, seq - 1, seq - 1),
        )
    assert victim.verify().problems == ()
    report = victim.verify(expected_head=victim.head)
    assert not report.ok
    assert "tail was cut" in report.problems[-1]


def test_an_earlier_head_still_matches(victim: Victim) -> None:
    with victim.edited() as db:
        ((seq, digest),) = db.execute("SELECT seq, hash FROM event WHERE seq = 5").fetchall()
    assert victim.verify(expected_head=f"{seq}:{digest.hex()}").ok
    assert not victim.verify(expected_head=f"{seq}:{'0' * 64}").ok
    assert not victim.verify(expected_head="nonsense").ok


def test_content_put_back_into_a_tombstone_is_noticed(victim: Victim) -> None:
    with victim.edited() as db:
        ((ordinal,),) = db.execute("SELECT ordinal FROM memory WHERE erased IS NOT NULL").fetchall()
    for column, value in (("content", "back"), ("tags", '["x"]'), ("speaker", "Ann"), ("source_id", "f")):
        assert change(victim, "memory", column, (ordinal,), value)
        assert f"ordinal {ordinal}" in "\n".join(victim.verify().problems)
        victim.restore()


def test_a_rewritten_entry_needs_the_whole_tail_rewritten(victim: Victim) -> None:
    """Even with the commitment and hash of one entry redone, the next one does not follow any more."""
    from twofold import audit

    mem = AgentMemory(victim.folder, embedder=None, clock=victim.clock)
    events = mem._vault.store.events("default")
    mem._vault.store.close()
    flag = next(e for e in events if e.kind == "flag")
    before = events[flag.seq - 2]
    forged = audit.make_event(
        before.hash, flag.seq, flag.kind, flag.at, flag.agent_id, flag.agent_role, flag.salt,
        namespace=flag.namespace, ordinal=flag.ordinal, payload={"reason": "all is well"},
    )  # fmt: skip
    with victim.edited() as db:
        db.execute(
            "UPDATE event SET payload = ?, commitment = ?, hash = ? WHERE seq = ?",
            (forged.payload, forged.commitment, forged.hash, forged.seq),
        )
    assert f"event {flag.seq + 1}" in "\n".join(victim.verify().problems)


def test_a_damaged_list_is_a_named_error_not_a_traceback(victim: Victim) -> None:
    change(victim, "memory", "tags", (0,), '["mill"')
    mem = AgentMemory(victim.folder, embedder=None, clock=victim.clock)
    with pytest.raises(errors.StoreCorrupt, match="row 0"):
        mem.recall("mill")
    mem._vault.store.close()


def test_the_log_holds_no_content(victim: Victim) -> None:
    """Only salted commitments: what the log says of a memory does not let anybody guess it."""
    with victim.edited() as db:
        log = db.execute("SELECT kind, payload FROM event").fetchall()
    for kind, payload in log:
        for word in ("mill", "harbour", "miller", "4711"):
            assert word not in payload, kind


JUNK: dict[str, list[Any]] = {"TEXT": ["x{", "[1,2]"], "INTEGER": [2**62], "BLOB": [b"x"], "REAL": [9e99]}


@pytest.mark.parametrize("table,column", [c for c in columns() if c[0] in ("memory", "event")])
def test_values_that_nobody_wrote_are_an_error_of_ours(victim: Victim, table: str, column: str) -> None:
    """Not a traceback from the depths: reading them is StoreCorrupt, or they make no difference."""
    with victim.edited() as db:
        one, seq = db.execute("SELECT id, seq FROM memory WHERE ordinal = 0").fetchone()
    for position in range(2):
        victim.restore()
        with victim.edited() as db, contextlib.suppress(sqlite3.IntegrityError):
            found = "SELECT type FROM pragma_table_info(?) WHERE name = ?"
            (kind,) = db.execute(found, (table, column)).fetchone()
            value = JUNK[kind][min(position, len(JUNK[kind]) - 1)]
            db.execute(f"UPDATE {table} SET {column} = ? WHERE seq = ?", (value, seq))
        with contextlib.suppress(errors.TwofoldError), victim.opened() as mem:
            for ask in (
                lambda: mem.recall("the key of the mill", promote=False),
                lambda: mem.search(include_closed=True, include_superseded=True),
                lambda: mem.why(one),
                lambda: mem.audit(),
                lambda: mem.update(one, tags=["changed"]),
                lambda: mem.erase(one, reason="asked for"),
            ):
                with contextlib.suppress(errors.TwofoldError):
                    ask()
        if len(JUNK[kind]) == 1:
            break


def test_a_corrupt_store_is_corrupt_each_time_it_is_asked(victim: Victim) -> None:
    """Half of a log that could not be taken in must not pass for the whole at the second call."""
    with victim.edited() as db:
        db.execute("UPDATE memory SET lexemes = 'x{' WHERE ordinal = 2")
    with victim.opened() as mem:
        for _ in range(3):
            with pytest.raises(errors.StoreCorrupt, match="verify"):
                mem.recall("the key of the mill")
