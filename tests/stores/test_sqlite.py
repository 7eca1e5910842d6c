"""What is particular to SQLite: the file, its format, its locks, erased bytes, forks, and failing disks."""

from __future__ import annotations

import concurrent.futures
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold.errors import InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError, StoreTooNew
from twofold.model import Batch, Head, Kind
from twofold.stores import sqlite
from twofold.stores.sqlite import SQLiteStore, filesystem_of, restore_backup
from twofold.testing import (
    TENANT,
    add,
    assert_sound,
    history,
    in_thread,
    sample_batch,
    sample_erasure,
    sample_event,
    sample_vectors,
    snapshot,
)


@pytest.fixture
def store(tmp_store: Path) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(tmp_store)
    yield opened
    opened.close()


def raw(store: SQLiteStore) -> sqlite3.Connection:
    """Another connection to the same file, as another program would have it."""
    return sqlite3.connect(store.path, isolation_level=None, timeout=5)


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked child; 0 when it came to its end."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:  # noqa: BLE001 -- a child must not go on with the parent's tests
        os.write(2, f"child: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


# The format


def test_the_tenant_leads_every_key_and_index(store: SQLiteStore) -> None:
    db = raw(store)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert set(tables) == {"head", "event", "memory", "vector", "generation", "receipt"}
    for table in tables:
        columns = db.execute(f"PRAGMA table_info({table})").fetchall()
        key = [name for _, name, _, _, _, place in sorted(columns, key=lambda c: c[5]) if place]
        assert key[0] == "tenant", table
        for _, index, *_ in db.execute(f"PRAGMA index_list({table})").fetchall():
            first = db.execute(f"PRAGMA index_info({index})").fetchall()[0]
            assert first[2] == "tenant", (table, index)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone() == (
        0,
    )
    db.close()


def test_every_statement_on_a_table_asks_for_the_tenant() -> None:
    """A statement without the tenant would be one for all of them."""
    statements = [value for value in vars(sqlite).values() if isinstance(value, str)]
    for value in vars(sqlite).values():
        if isinstance(value, dict):
            statements += [one for one in value.values() if isinstance(one, str)]
    verbs = ("SELECT", "UPDATE", "DELETE")
    asking = [one for one in statements if one.startswith(verbs)]
    assert len(asking) > 20
    for one in asking:
        assert "tenant = ?" in one, one
    for one in statements:
        if one.startswith("INSERT"):
            assert "(tenant, " in one, one


def test_the_plan_of_every_reading_statement_uses_the_key(store: SQLiteStore) -> None:
    add(store, *(f"row {n}" for n in range(50)))
    db = raw(store)
    for name, value in vars(sqlite).items():
        for one in value.values() if isinstance(value, dict) else [value]:
            if not isinstance(one, str) or not one.startswith("SELECT"):
                continue
            plan = db.execute(f"EXPLAIN QUERY PLAN {one}", [1] * one.count("?")).fetchall()
            for *_, step in plan:
                assert "SCAN" not in step, (name, step)
    db.close()


def test_a_folder_and_a_file_are_both_addresses(tmp_path: Path) -> None:
    for given, meant in (
        (tmp_path / "a", tmp_path / "a" / "twofold.db"),
        (tmp_path / "b.db", tmp_path / "b.db"),
        (str(tmp_path / "c" / "d.sqlite"), tmp_path / "c" / "d.sqlite"),
        (tmp_path / "e.sqlite3", tmp_path / "e.sqlite3"),
        (tmp_path / "名前 #1?%20", tmp_path / "名前 #1?%20" / "twofold.db"),
        (tmp_path / "v1.2", tmp_path / "v1.2" / "twofold.db"),
    ):
        one = SQLiteStore(given)
        assert one.path == meant
        assert meant.is_file()
        add(one, "row")
        one.close()
        again = SQLiteStore(one.url)
        assert again.head(TENANT).rows == 1
        again.close()
        assert sorted(p.name for p in meant.parent.glob(f"{meant.name}*")) == [meant.name]


@pytest.mark.parametrize("path", ["", "a\0b", ":memory:"])
def test_what_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        SQLiteStore(path)


@pytest.mark.parametrize(
    "options", [{"synchronous": "OFF"}, {"timeout": -1}, {"timeout": float("nan")}], ids=str
)
def test_options_out_of_range_are_refused(tmp_store: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        SQLiteStore(tmp_store, **options)
    assert not tmp_store.exists()


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        SQLiteStore(tmp_path / "x.db")


def test_the_file_is_as_documented(tmp_store: Path) -> None:
    for synchronous, level in (("NORMAL", 1), ("FULL", 2)):
        one = SQLiteStore(tmp_store, synchronous=synchronous)  # type: ignore[arg-type]
        assert one._writer is not None
        assert one._writer.execute("PRAGMA synchronous").fetchone() == (level,)
        assert one._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert one._writer.execute("PRAGMA secure_delete").fetchone() == (1,)
        assert one._writer.execute("PRAGMA application_id").fetchone() == (sqlite.APPLICATION_ID,)
        assert one._writer.execute("PRAGMA user_version").fetchone() == (len(sqlite.MIGRATIONS),)
        one.close()


# Files that are not ours, or not whole


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    text = b"dear diary, " * 1_000
    file.write_bytes(text)
    with pytest.raises(StoreCorrupt, match="not a SQLite database"):
        SQLiteStore(file)
    assert file.read_bytes() == text


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    db = sqlite3.connect(file)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.commit()
    db.close()
    before = file.read_bytes()
    with pytest.raises(StoreCorrupt, match="another program"):
        SQLiteStore(file)
    assert file.read_bytes() == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()
    one = SQLiteStore(file)
    add(one, "row")
    assert_sound(one, TENANT)
    one.close()


def test_a_newer_format_is_refused(store: SQLiteStore) -> None:
    add(store, "row")
    store.close()
    db = raw(store)
    db.execute(f"PRAGMA user_version = {len(sqlite.MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreTooNew, match="upgrade"):
        SQLiteStore(store.path)


def test_a_damaged_page_is_told(store: SQLiteStore) -> None:
    add(store, *(f"row {n} " * 50 for n in range(500)))
    store.close()
    data = bytearray(store.path.read_bytes())
    for at in range(8192 * 3, len(data), 8192):
        data[at : at + 64] = b"\xff" * 64
    store.path.write_bytes(data)
    opened = SQLiteStore(store.path)
    assert opened.check(TENANT) != []
    with pytest.raises(StoreCorrupt, match="restore a backup"):
        snapshot(opened, TENANT)
    with pytest.raises(StoreCorrupt):
        add(opened, "more")
    opened.close()


def test_a_file_that_vanished_is_told(store: SQLiteStore) -> None:
    add(store, "row")
    shutil.rmtree(store.path.parent)
    with pytest.raises(StoreError, match="gone"):
        store.head(TENANT)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into (pytest's own are closed to them)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def refused_without_rights(path: Path, *words: str) -> None:
    """Assert that a user without rights is refused with these words (root may write anywhere)."""

    def work() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with pytest.raises(StoreError) as refusal:
            add(SQLiteStore(path), "row")
        for word in words:
            assert word in str(refusal.value), str(refusal.value)

    assert in_child(work) == 0


@fork
def test_a_folder_without_permission_is_told(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    refused_without_rights(
        open_folder / "store", "cannot make the folder", "give a path this user may write to"
    )
    open_folder.chmod(0o755)
    (open_folder / "store").mkdir(mode=0o555)
    refused_without_rights(open_folder / "store", "cannot open the file", "give this user")
    assert list((open_folder / "store").iterdir()) == []


@fork
def test_a_read_only_file_is_told(open_folder: Path) -> None:
    one = SQLiteStore(open_folder / "x.db")
    add(one, "kept")
    one.close()
    one.path.chmod(0o444)
    open_folder.chmod(0o555)
    refused_without_rights(one.path, "give this user")
    open_folder.chmod(0o755)
    assert one.path.is_file()


# Network file systems

_MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 30 0:27 / /home/local rw - ext4 /dev/sdb rw
32 22 0:28 / /mnt/with\\040space rw - fuse.sshfs host: rw
33 22 0:29 / /mnt/twice rw - cifs //host/share rw
34 22 0:30 / /mnt/twice rw - tmpfs tmpfs rw
35 22 0:31 / /c rw shared:2 master:1 - 9p drvfs rw
"""


@pytest.mark.parametrize(
    "folder,kind",
    [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/ann/store", "nfs4"),
        ("/home/local/store", "ext4"),
        ("/homes/ann", "ext4"),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/mnt/twice/x", "tmpfs"),
        ("/c/Users", "9p"),
    ],
)
def test_the_file_system_of_a_folder_is_found(folder: str, kind: str) -> None:
    assert filesystem_of(Path(folder), _MOUNTS) == kind


def test_what_mountinfo_does_not_say_is_unknown() -> None:
    assert filesystem_of(Path("/x"), "") is None
    assert filesystem_of(Path("/x"), "garbage\n1 2 - \n") is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "glusterfs"])
def test_network_file_systems_are_known(kind: str) -> None:
    assert kind in sqlite._NETWORK_FS


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="only Linux tells the file system")
def test_a_network_file_system_is_refused(tmp_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_store.mkdir()
    here = filesystem_of(tmp_store.resolve(), Path("/proc/self/mountinfo").read_text())
    assert here is not None
    monkeypatch.setattr(sqlite, "_NETWORK_FS", frozenset({here}))
    with pytest.raises(StoreError, match=rf"network file system \({here}\)"):
        SQLiteStore(tmp_store)
    assert list(tmp_store.iterdir()) == []
    SQLiteStore(tmp_store, allow_network_fs=True).close()
    monkeypatch.setenv(sqlite.NETWORK_FS_VARIABLE, "1")
    SQLiteStore(tmp_store).close()
    with pytest.raises(StoreError):
        SQLiteStore(tmp_store, allow_network_fs=False)


# Migrations


def test_an_older_format_is_migrated_once(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    history(store)
    before = snapshot(store, "faults")
    store.close()
    calls = []

    def second(db: sqlite3.Connection) -> None:
        calls.append(db)
        db.execute("CREATE TABLE extra (tenant TEXT NOT NULL, PRIMARY KEY (tenant))")

    monkeypatch.setattr(sqlite, "MIGRATIONS", (*sqlite.MIGRATIONS, second))
    for _ in range(2):
        opened = SQLiteStore(store.path)
        assert snapshot(opened, "faults") == before
        opened.close()
    assert len(calls) == 1
    monkeypatch.undo()
    with pytest.raises(StoreTooNew):
        SQLiteStore(store.path)


def test_a_failing_migration_changes_nothing(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    history(store)
    before = snapshot(store, "faults")
    store.close()

    def broken(db: sqlite3.Connection) -> None:
        db.execute("DROP TABLE memory")
        db.execute("CREATE TABLE head (x)")

    monkeypatch.setattr(sqlite, "MIGRATIONS", (*sqlite.MIGRATIONS, broken))
    with pytest.raises(StoreError, match="open the file"):
        SQLiteStore(store.path)
    monkeypatch.undo()
    opened = SQLiteStore(store.path)
    assert snapshot(opened, "faults") == before
    opened.close()


def test_many_processes_may_create_one_store(tmp_store: Path) -> None:
    code = (
        "import sys; from twofold.stores.sqlite import SQLiteStore; from twofold.testing import add\n"
        "sys.stdin.readline(); store = SQLiteStore(sys.argv[1]); add(store, sys.argv[2]); store.close()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_store), str(n)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    opened = SQLiteStore(tmp_store)
    assert sorted(row.content for row in opened.rows(TENANT, range(4))) == ["0", "1", "2", "3"]
    assert_sound(opened, TENANT)
    opened.close()


# Erased bytes


def files_of(store: SQLiteStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.path.parent.iterdir()}


def _secret(n: int) -> str:
    return f"the secret number {n} is {n * 7919} and nobody may know it"


def _needles(n: int, content: str) -> list[bytes]:
    return [
        content.encode()[:30],
        sample_vectors(content).tobytes(),
        f"hash-{n}".encode(),
        f"tag-{n}".encode(),
        f"speaker-{n}".encode(),
    ]


def _fill_with_secrets(store: SQLiteStore, length: int) -> list[bytes]:
    needles = []
    for n in range(60):
        content = (_secret(n) * (1 + length // 40))[: max(length, 60)]
        with store.transaction(TENANT) as tx:
            tx.apply(
                sample_batch(
                    tx.head,
                    [content],
                    tags=(f"tag-{n}",),
                    content_hash=f"hash-{n}",
                    speaker=f"speaker-{n}",
                    metadata=f'{{"m":"{_secret(n)}"}}',
                )
            )
        if 20 <= n < 40:
            needles += _needles(n, content)
    return needles


def _erase(store: SQLiteStore, ordinals: range) -> None:
    with store.transaction(TENANT) as tx:
        tx.apply(sample_erasure(tx.head, store.rows(TENANT, ordinals)))


@pytest.mark.parametrize("length", [60, 3_000, 20_000])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_erased_bytes_are_in_no_file(store: SQLiteStore, length: int, checkpointed: bool) -> None:
    needles = _fill_with_secrets(store, length)
    if checkpointed:  # the bytes are in the database file, not only in the log
        raw(store).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other = SQLiteStore(store.path)  # another handle, with connections that stay open
    other.changes(TENANT, 0)
    found = [needle for needle in needles if any(needle in data for data in files_of(store).values())]
    assert len(found) == len(needles), "the test would prove nothing"
    assert store.residue(needles[:1]) != []
    _erase(store, range(20, 40))
    store.scrub()
    for name, data in files_of(store).items():
        for needle in needles:
            assert needle not in data, (name, needle)
    assert store.residue(needles) == []
    assert other.residue(needles) == []
    kept = [needle for n in (0, 19, 40, 59) for needle in _needles(n, store.rows(TENANT, [n])[0].content)]
    for needle in kept:
        assert any(needle in data for data in files_of(store).values())
    assert_sound(store, TENANT)
    add(other, "after")
    assert_sound(other, TENANT)
    other.close()


def test_copies_that_a_page_split_left_behind_are_erased(store: SQLiteStore) -> None:
    """SQLite moves cells between pages without wiping where they were; only rewriting the file does."""
    chance = random.Random(1)
    secrets: dict[str, list[tuple[int, bytes]]] = {}
    for n in range(1_500):
        tenant = f"tenant {chance.randrange(10)}"
        name = f"secret-{n:06d}-"
        with store.transaction(tenant) as tx:
            event = sample_event(tx.head, Kind.FLAG, payload=name + "x" * chance.randrange(1_500))
            tx.apply(Batch(events=[event]))
        if n % 2 == 0:
            secrets.setdefault(tenant, []).append((event.seq, name.encode()))
    for tenant, mine in secrets.items():
        with store.transaction(tenant) as tx:
            event = sample_event(tx.head, Kind.ERASE)
            tx.apply(Batch(events=[event], erase_events=[seq for seq, _ in mine]))
    store.scrub()
    needles = [needle for mine in secrets.values() for _, needle in mine]
    assert store.residue(needles) == []
    assert store.residue([b"secret-000001-"]) == [store.url]


def test_residue_looks_into_derived_files(store: SQLiteStore) -> None:
    assert store.residue([b"a secret"]) == []
    assert store.cache_dir is not None
    derived = store.cache_dir / "deeper" / "some.index"
    derived.parent.mkdir(parents=True)
    derived.write_bytes(b"x" * (1 << 20) + b"a secret")  # across the border of two reads
    assert store.residue([b"none", b"a secret"]) == [str(derived)]
    derived.write_bytes(b"x" * ((1 << 20) - 3) + b"a secret" + b"x" * 10)
    assert store.residue([b"a secret"]) == [str(derived)]


def test_residue_does_not_drop_sqlites_locks(store: SQLiteStore) -> None:
    """Closing a descriptor of the file would; then another process could take the write lock as well."""
    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["one"]))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            store.residue([b"x"])
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
        code = (
            "import sys; from twofold.errors import StoreBusy; from twofold.stores.sqlite import SQLiteStore\n"
            "try: SQLiteStore(sys.argv[1], timeout=0.1).transaction('acme').__enter__()\n"
            "except StoreBusy: print('busy')"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, store.url], capture_output=True, text=True, check=False
        )
        assert ran.stdout == "busy\n", ran.stderr
    locks = Path("/proc/locks").read_text()
    assert f":{store.path.stat().st_ino} " in locks, "the shared lock on the database is still held"


def test_scrub_says_when_a_reader_keeps_old_pages(tmp_store: Path) -> None:
    store = SQLiteStore(tmp_store, timeout=0.3)
    needles = _fill_with_secrets(store, 60)
    reader = raw(store)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memory").fetchall()
    _erase(store, range(20, 40))
    with pytest.raises(StoreBusy, match="scrub again"):
        store.scrub()
    assert store.residue(needles) != []
    reader.execute("COMMIT")
    store.scrub()
    assert store.residue(needles) == []
    reader.close()
    store.close()


# Locks and the log


def test_readers_and_writers_do_not_wait_for_each_other(store: SQLiteStore) -> None:
    add(store, "one")
    reader = raw(store)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM memory").fetchone() == (1,)
    add(store, "two")
    assert reader.execute("SELECT count(*) FROM memory").fetchone() == (1,)
    assert store.head(TENANT).rows == 2
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM memory").fetchone() == (2,)
    reader.close()


def test_no_read_leaves_a_transaction_open(store: SQLiteStore) -> None:
    """One that did would pin the log for good."""
    history(store, TENANT)
    for look in (
        lambda: store.head(TENANT),
        lambda: snapshot(store, TENANT),
        lambda: store.vectors_of(TENANT, 2, [1, 2]),
        lambda: store.check(TENANT),
    ):
        look()
        assert [db.in_transaction for db in store._idle] == [False] * len(store._idle)
        db = raw(store)
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        db.close()
        add(store, "more")
    with pytest.raises(NotFound):
        store.vectors(TENANT, 99)
    assert [db.in_transaction for db in store._idle] == [False] * len(store._idle)


def test_another_process_with_the_lock_is_waited_for_and_named(tmp_store: Path) -> None:
    store = SQLiteStore(tmp_store, timeout=0.3)
    other = raw(store)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="locked by another writer"):
        add(store, "one")
    assert store.head(TENANT) == Head()
    timer = threading.Timer(0.1, lambda: other.execute("COMMIT"))
    other.close()
    other = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, other.execute, ("COMMIT",))
    timer.start()
    add(store, "two")
    assert store.head(TENANT).rows == 1
    timer.join()
    other.close()
    store.close()


def test_the_log_stays_short_under_overlapping_readers(tmp_store: Path) -> None:
    """Two readers that always overlap keep SQLite's own checkpoints from ever starting the log anew."""
    limit = 1 << 20
    store = SQLiteStore(tmp_store, wal_limit=limit)
    done = threading.Event()

    def read() -> None:
        db = raw(store)
        while not done.is_set():
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM memory").fetchall()
            time.sleep(0.003)
            db.execute("COMMIT")
        db.close()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for one in readers:
        one.start()
    largest = 0
    for n in range(150):
        add(store, f"{n} " + "x" * 20_000)
        largest = max(largest, Path(store._wal).stat().st_size)
    done.set()
    for one in readers:
        one.join()
    assert largest < 5 * limit, f"the log grew to {largest} bytes"
    assert store.size(TENANT) > 150 * 20_000
    assert_sound(store, TENANT)
    store.close()


def test_a_transaction_that_a_signal_orphaned_is_rolled_back(store: SQLiteStore) -> None:
    db = store._begin()  # and nobody enters the block
    db.execute("DELETE FROM memory")
    store._writing.release()
    add(store, "one")
    assert_sound(store, TENANT)


def test_who_waits_while_the_store_is_closed_is_told(store: SQLiteStore) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["one"]))
            closing = pool.submit(store.close)
            while not store._writing._waiting:
                time.sleep(0.001)
            writing = pool.submit(add, store, "two")
            while len(store._writing._waiting) < 2:
                time.sleep(0.001)
        closing.result()
        with pytest.raises(StoreError, match="was closed"):
            writing.result()
    opened = SQLiteStore(store.path)
    assert opened.head(TENANT).rows == 1
    opened.close()


def test_few_connections_are_kept(store: SQLiteStore) -> None:
    add(store, "one")
    barrier = threading.Barrier(12)

    def read() -> None:
        barrier.wait()
        for _ in range(20):
            store.changes(TENANT, 0)

    threads = [threading.Thread(target=read) for _ in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert store._lent == 0
    assert len(store._idle) <= sqlite._IDLE_READERS


def test_a_store_is_not_closed_under_a_transaction(tmp_store: Path) -> None:
    store = SQLiteStore(tmp_store, timeout=0.2)

    def close_inside() -> None:
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["one"]))
            with pytest.raises(StoreBusy):
                in_thread(store.close)
            store.close()

    with pytest.raises(StoreError, match="inside its own transaction"):
        close_inside()
    add(store, "two")
    assert [row.content for row in store.rows(TENANT, [0])] == ["two"]
    store.close()


# Forks


@fork
def test_parent_and_child_both_go_on(store: SQLiteStore) -> None:
    add(store, "before")

    def work() -> None:
        assert store.head(TENANT).rows >= 1
        for n in range(20):
            add(store, f"child {n}")
        store.close()

    writer = threading.Thread(target=lambda: [add(store, f"parent {n}") for n in range(20)])
    writer.start()  # forks while another thread writes
    assert in_child(work) == 0
    writer.join()
    assert store.head(TENANT).rows == 41
    assert_sound(store, TENANT)


@fork
def test_a_child_holds_locks_of_its_own(store: SQLiteStore) -> None:
    """The trap: a child that inherits SQLite's lock table believes it has locks that only the parent has."""
    add(store, "before")
    read_end, write_end = os.pipe()

    def work() -> None:
        os.read(read_end, 1)  # until the parent has closed its store
        store.head(TENANT)
        ino = store.path.stat().st_ino
        held = [line for line in Path("/proc/locks").read_text().splitlines() if f":{ino} " in line]
        assert any(f" {os.getpid()} " in line for line in held), held

    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    store.close()
    os.write(write_end, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@fork
def test_a_child_forked_inside_a_transaction_is_refused(store: SQLiteStore) -> None:
    add(store, "before")

    def work() -> None:
        for call in (lambda: store.head(TENANT), lambda: add(store, "child"), lambda: store.check(TENANT)):
            with pytest.raises(StoreError, match="forked"):
                call()
        store.close()
        fresh = SQLiteStore(store.path, timeout=0.1)
        assert fresh.head(TENANT).rows == 1

    with store.transaction(TENANT) as tx:
        tx.apply(sample_batch(tx.head, ["parent"]))
        assert in_child(work) == 0
    assert store.head(TENANT).rows == 2
    assert_sound(store, TENANT)


@fork
def test_a_fork_waits_for_a_transaction_of_another_thread(store: SQLiteStore) -> None:
    begun = threading.Event()

    def write() -> None:
        with store.transaction(TENANT) as tx:
            begun.set()
            time.sleep(0.2)
            tx.apply(sample_batch(tx.head, ["slow"]))

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()

    def work() -> None:
        assert store.head(TENANT).rows == 1
        add(store, "child")

    assert in_child(work) == 0
    writer.join()
    assert [row.content for row in store.rows(TENANT, [0, 1])] == ["slow", "child"]


@fork
def test_a_fork_does_not_wait_for_ever(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_FORK_PATIENCE", 0.05)
    add(store, "before")
    begun, done = threading.Event(), threading.Event()

    def write() -> None:
        with store.transaction(TENANT) as tx:
            begun.set()
            done.wait()
            tx.apply(sample_batch(tx.head, ["slow"]))

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()

    def work() -> None:
        with pytest.raises(StoreError, match="forked"):
            store.head(TENANT)
        store.close()

    assert in_child(work) == 0
    done.set()
    writer.join()
    assert store.head(TENANT).rows == 2


# Failing


def test_an_interruption_at_any_step_of_a_batch_is_undone(store: SQLiteStore) -> None:
    """SQLite is interrupted after every so many steps of its machine, further on each time."""
    history(store, TENANT)
    before = snapshot(store, TENANT)
    writer = store._writer
    assert writer is not None
    interrupted = given_up = 0
    for limit in range(1, 400):
        left = [limit]

        def step(left: list[int] = left) -> int:
            left[0] -= 1
            return left[0] < 0

        writer.set_progress_handler(step, 7)
        try:
            with store.transaction(TENANT) as tx:
                tx.apply(sample_batch(tx.head, ["a", "b"], parts=2, generation=2))
                tx.apply(sample_erasure(tx.head, [before["rows"][2]]))
        except StoreError:
            interrupted += 1
            if store._writer is None:  # the rollback was interrupted as well, and the connection given up
                with store._exclusive() as writer:
                    given_up += 1
            writer.set_progress_handler(None, 0)
            assert not writer.in_transaction
            assert store.head(TENANT) == before["head"]
            if limit % 5 == 0:
                assert snapshot(store, TENANT) == before
        else:
            break
    writer.set_progress_handler(None, 0)
    assert interrupted > 20
    assert given_up > 0
    assert store.head(TENANT).rows == before["head"].rows + 2
    assert_sound(store, TENANT)


def test_a_full_disk_is_told_and_survived(store: SQLiteStore) -> None:
    add(store, "one")
    before = snapshot(store, TENANT)
    writer = store._writer
    assert writer is not None
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(StoreError, match="disk is full"):
        add(store, "x" * 1_000_000)
    assert snapshot(store, TENANT) == before
    writer.execute("PRAGMA max_page_count = 1000000")
    add(store, "x" * 1_000_000)
    assert_sound(store, TENANT)


@fork
def test_a_commit_that_cannot_be_written_is_told_and_undone(store: SQLiteStore) -> None:
    """Pages are written when the transaction commits; here the system refuses to let the file grow."""
    add(store, "one")
    before = snapshot(store, TENANT)

    def work() -> None:
        store.head(TENANT)
        add(store, "two")  # the child's log begins anew
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = max(Path(store._wal).stat().st_size, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5_000, hard))
        with pytest.raises(StoreError, match="cannot commit"):
            add(store, "three")
        assert store.head(TENANT).rows == 2
        with pytest.raises(StoreError):
            add(store, "four")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        add(store, "five")
        assert_sound(store, TENANT)

    assert in_child(work) == 0
    assert [row.content for row in store.rows(TENANT, [0, 1, 2])] == ["one", "two", "five"]
    assert store.rows(TENANT, [0]) == before["rows"]
    assert_sound(store, TENANT)


def test_a_tenant_that_cannot_be_stored_is_refused(store: SQLiteStore) -> None:
    for call in (
        lambda: store.head("\ud800"),
        lambda: store.changes("\ud800", 0),
        lambda: store.transaction("\ud800").__enter__(),
    ):
        with pytest.raises(InvalidInput):
            call()
    add(store, "the lock is free")


def test_a_type_that_sqlite_does_not_store_is_refused(store: SQLiteStore) -> None:
    for field, value in (("metadata", {"a": 1}), ("namespace", None), ("tokens", "many")):
        with pytest.raises(StoreError):
            add(store, "one", **{field: value})
    assert store.head(TENANT) == Head()


_TAMPERING = {
    "DELETE FROM event WHERE seq = 2": "log holds",
    "DELETE FROM event WHERE seq = 5": "log holds",
    "UPDATE head SET seq = seq + 1": "log holds",
    'UPDATE head SET "rows" = "rows" + 1': "rows from",
    "UPDATE head SET hash = x'00'": "hash",
    "UPDATE head SET recorded_at = 1": "time",
    "UPDATE event SET at = at + 1000 WHERE seq = 1": "before their predecessor",
    "UPDATE event SET ordinal = 3 WHERE seq = 2": "does not agree",
    "DELETE FROM memory WHERE ordinal = 1": "rows from",
    "UPDATE memory SET seq = 3 WHERE ordinal = 1": "missing or belongs",
    "UPDATE memory SET recorded_at = 7 WHERE ordinal = 1": "does not agree",
    "UPDATE memory SET id = 'sample-00000000' WHERE ordinal = 1": "2 rows of version 1",
    "DELETE FROM vector WHERE ordinal = 1": "no vector",
    "UPDATE vector SET ordinal = 77 WHERE ordinal = 1": "belongs to no row",
    "UPDATE vector SET generation = 5 WHERE ordinal = 1": "belongs to no generation",
    "UPDATE vector SET data = x'00' WHERE ordinal = 1": "the wrong size",
    "UPDATE memory SET erased = 4 WHERE ordinal = 1": "erased",
}


@pytest.mark.parametrize("statement", _TAMPERING)
def test_check_names_what_was_tampered_with(store: SQLiteStore, statement: str) -> None:
    add(store, "zero", "one", "two")
    add(store, "zero", "one", "two", tenant="other")
    with store.transaction(TENANT) as tx:
        tx.apply(Batch(events=[sample_event(tx.head, Kind.ACCESS)]))
        tx.apply(Batch(events=[sample_event(tx.head, Kind.ACCESS)]))
    assert store.check(TENANT) == []
    where = " AND" if "WHERE" in statement else " WHERE"
    db = raw(store)
    assert db.execute(f"{statement}{where} tenant = '{TENANT}'").rowcount == 1
    db.close()
    problems = store.check(TENANT)
    assert any(_TAMPERING[statement] in problem for problem in problems), problems
    assert store.check("other") == []


def test_vectors_of_the_wrong_size_are_told(store: SQLiteStore) -> None:
    add(store, "zero", "one")
    db = raw(store)
    db.execute("UPDATE vector SET data = x'00000000' WHERE ordinal = 1")
    db.close()
    with pytest.raises(StoreCorrupt, match="has not 8 numbers"):
        store.vectors(TENANT, 1)


# Backups


def test_a_backup_is_restored(store: SQLiteStore, tmp_path: Path) -> None:
    history(store)
    store.backup(tmp_path / "copy.db")
    before = snapshot(store, "faults")
    add(store, "later", tenant="faults")
    restore_backup(tmp_path / "copy.db", tmp_path / "new" / "place")
    assert sorted(path.name for path in tmp_path.glob("copy.db*")) == ["copy.db"]
    restored = SQLiteStore(tmp_path / "new" / "place")
    assert snapshot(restored, "faults") == before
    add(restored, "its own", tenant="faults")
    assert_sound(restored, "faults")
    restored.close()
    with pytest.raises(StoreError, match="exists"):
        restore_backup(tmp_path / "copy.db", tmp_path / "new" / "place")
    with pytest.raises(StoreError, match="exists"):
        restore_backup(tmp_path / "copy.db", store.path)


def test_a_damaged_backup_is_not_restored(store: SQLiteStore, tmp_path: Path) -> None:
    add(store, *(f"row {n} " * 50 for n in range(200)))
    store.backup(tmp_path / "copy.db")
    data = bytearray((tmp_path / "copy.db").read_bytes())
    data[8192 * 4 : 8192 * 4 + 100] = b"\xff" * 100
    (tmp_path / "copy.db").write_bytes(data)
    with pytest.raises(StoreCorrupt, match="older one"):
        restore_backup(tmp_path / "copy.db", tmp_path / "new")
    (tmp_path / "text.db").write_text("no database at all " * 100)
    with pytest.raises(StoreCorrupt):
        restore_backup(tmp_path / "text.db", tmp_path / "new")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreCorrupt):
        restore_backup(tmp_path / "empty.db", tmp_path / "new")
    with pytest.raises(NotFound):
        restore_backup(tmp_path / "none.db", tmp_path / "new")
    assert not (tmp_path / "new" / "twofold.db").exists()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_backup_needs_no_hard_links(
    store: SQLiteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("as FAT does")

    add(store, "one")
    monkeypatch.setattr(os, "link", refuse)
    store.backup(tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir() if path != store.path.parent) == ["copy.db"]
    copy = SQLiteStore(tmp_path / "copy.db")
    assert_sound(copy, TENANT)
    assert copy.head(TENANT).rows == 1
    copy.close()


def test_a_backup_that_fails_leaves_nothing(store: SQLiteStore, tmp_path: Path) -> None:
    add(store, "one")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        store.backup(tmp_path / "file" / "below.db")
    (tmp_path / "taken.db-wal").touch()
    with pytest.raises(StoreError, match="exists"):
        store.backup(tmp_path / "taken.db")
    assert sorted(path.name for path in tmp_path.iterdir() if path != store.path.parent) == [
        "file",
        "taken.db-wal",
    ]
