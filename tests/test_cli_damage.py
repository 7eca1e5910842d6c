"""Every command on a damaged store: it says so, as JSON if asked, and exits with another status than 0."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from twofold import AgentMemory, cli

from .test_documented import LEAVES

EMBEDDER = "hashing:64"

WITHOUT_JSON = {
    ("demo",): "a story to read; every part of it has a command of its own",
    **{
        ("hook", event): "its output is the host's protocol, JSON as it is"
        for event in (
            "session-start", "user-prompt-submit", "post-tool-use", "pre-compact", "stop", "session-end",
        )
    },
}  # fmt: skip

# What does not read a store's database, so that damage there cannot be seen by it.
NOT_ABOUT_A_STORE = {
    ("roles",): "prints a table of the program",
    ("bench",): "makes a store of its own",
    ("model", "install"): "models, not stores",
    ("model", "list"): "models, not stores",
    ("model", "verify"): "models, not stores",
    ("keys", "add"): "the keys file: test_a_damaged_keys_file",
    ("keys", "list"): "the keys file: test_a_damaged_keys_file",
    ("keys", "revoke"): "the keys file: test_a_damaged_keys_file",
    ("install",): "writes the configuration of other tools; its --check is test_the_check_of_an_installation",
    ("uninstall",): "removes entries from the configuration of other tools",
    ("demo",): "makes a store of its own",
    **{
        path: "never fails, by contract: tests/integrations/test_hooks.py"
        for path in LEAVES
        if path[0] == "hook"
    },
}

# Pages that a command does not read may be damaged without its notice: those that read all must notice.
READ_EVERYTHING = {
    ("verify",), ("health",), ("doctor",), ("export",), ("backup",), ("restore-backup",), ("migrate",),
}  # fmt: skip


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_speaks_json(path: tuple[str, ...]) -> None:
    options = {name for parameter in LEAVES[path].params for name in parameter.opts}
    assert ("--json" in options) != (path in WITHOUT_JSON)


def test_no_exception_is_left_over() -> None:
    assert set(LEAVES) >= {*WITHOUT_JSON, *NOT_ABOUT_A_STORE, *READ_EVERYTHING}


# -- damage ---------------------------------------------------------------------------------------------


def header(file: Path) -> None:
    file.write_bytes(b"\xff" * 100 + file.read_bytes()[100:])


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def newer(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 999")


def inverted(data: bytes, page: int, size: int) -> bytes:
    """With all bits of a page the other way; the first page is 0."""
    at, end = page * size, (page + 1) * size
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at:end]) + data[end:]


def flipped(file: Path) -> None:
    """A page in the middle: the root of the rows' table, which holds rows or the way to them."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'memory'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    file.write_bytes(inverted(file.read_bytes(), page - 1, size))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "header": header,
    "truncated": truncated,
    "flipped": flipped,
    "folder": folder,
    "newer": newer,
}


@dataclass(frozen=True)
class Good:
    """A sound store, with what commands need as arguments."""

    folder: Path
    ids: list[str]
    receipt: str

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.folder, to)
        return to / "twofold.db"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    folder = tmp_path_factory.mktemp("good") / "store"
    with AgentMemory(folder, embedder=EMBEDDER) as mem:
        made = mem.add_many(
            {"content": f"The owner of service {n} is Maria number {n}", "key": f"s{n}.owner"}
            for n in range(40)
        )
        receipt = mem.recall("owner of service 7", keep=True).receipt.id
        mem.forget(made[5].id)
        mem.export_json(folder / "export.jsonl")
    assert not (folder / "twofold.db.cache").exists()  # what opens fast from there would not read the file
    return Good(folder, [m.id for m in made], receipt)


def arguments(path: tuple[str, ...], good: Good, store: Path) -> list[str]:
    one, two = good.ids[0], good.ids[20]
    own: dict[str, list[str]] = {
        "add": ["something new"],
        "forget": [one],
        "restore": [good.ids[5]],
        "erase": [one, "--reason", "asked for", "--yes"],
        "link": [one, two],
        "recall": ["owner of service 7"],
        "explain": ["owner of service 7", two],
        "get": [two],
        "timeline": ["Maria"],
        "history": [two],
        "replay": [good.receipt],
        "reembed": ["hashing:128"],
        "export": [str(store.parent / "out.jsonl")],
        "import": [str(good.folder / "export.jsonl")],
        "backup": [str(store.parent / "out.db")],
        "serve": ["--dev", "--port", "0"],
        "api": ["--dev", "--port", "0"],
        "mcp": ["--profile", "reference", "--export", str(store.parent / "memory.jsonl")],
        "migrate": [str(store.parent), str(store.parent / "copy")],
        "restore-backup": [str(store), str(store.parent / "copy")],
    }
    named = [] if path[0] in ("migrate", "restore-backup") else ["--store", str(store.parent)]
    return [*path, *own.get(" ".join(path), []), *named, "--json"]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Result]:
    monkeypatch.setenv("TWOFOLD_EMBEDDER", EMBEDDER)
    return lambda given: CliRunner().invoke(cli.main, given)


def assert_refused(result: Result) -> None:
    """No traceback, no status 0, and what went wrong, with what to do, as JSON on standard output."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    body = json.loads(result.stdout)
    if "checks" in body:  # health and doctor
        assert not body["healthy"]
        assert [check for check in body["checks"] if not check["ok"]]
    elif "problems" in body:  # verify
        assert not body["ok"]
        assert body["problems"]
    else:
        assert body["error"] in ("StoreCorrupt", "StoreTooNew", "StoreError", "NotFound"), body
        assert any(word in body["message"] for word in REMEDIES), body


REMEDIES = (
    "move it away", "restore a backup", "use an older one", "name a file in it", "upgrade it", "give this user",
    "twofold doctor", "twofold verify", "there is no backup at",
)  # fmt: skip
ON_A_STORE = [path for path in LEAVES if path not in NOT_ABOUT_A_STORE]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("path", ON_A_STORE, ids=" ".join)
def test_a_damaged_store(
    path: tuple[str, ...], damage: str, good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    if damage == "flipped" and path[0] in ("serve", "api"):
        pytest.skip("would serve: nothing reads that page before the first request")
    file = good.copy(tmp_path / "store")
    DAMAGE[damage](file)
    before = file.read_bytes() if file.is_file() else b""
    assert_refused(call(arguments(path, good, file)))
    if damage in ("header", "truncated", "newer"):
        assert file.read_bytes() == before  # nor is it made worse
    assert not (file.parent / "out.db").exists()
    assert not (file.parent / "out.jsonl").exists()
    assert not list(file.parent.glob(".out*"))


@pytest.mark.parametrize("path", sorted(READ_EVERYTHING), ids=" ".join)
def test_what_reads_all_notices_any_page(
    path: tuple[str, ...], good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    sound = good.copy(tmp_path / "sound").read_bytes()
    size = int.from_bytes(sound[16:18], "big")
    for page in range(1, len(sound) // size, 3):
        file = good.copy(tmp_path / f"page-{page}")
        file.write_bytes(inverted(sound, page, size))
        assert_refused(call(arguments(path, good, file)))


@pytest.mark.parametrize("path", [p for p in ON_A_STORE if p[0] not in ("restore-backup",)], ids=" ".join)
def test_a_store_that_may_not_be_read(
    path: tuple[str, ...], good: Good, call: Callable[[list[str]], Result]
) -> None:
    with of_nobody() as place:
        file = good.copy(place / "store")
        file.chmod(0)
        with as_nobody(place):
            result = call(arguments(path, good, file))
    assert_refused(result)


@contextlib.contextmanager
def of_nobody() -> Iterator[Path]:
    """A folder outside pytest's own, which other users may not even enter."""
    place = Path(tempfile.mkdtemp(prefix="twofold-nobody-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


@contextlib.contextmanager
def as_nobody(place: Path) -> Iterator[None]:
    """Root may read everything: be somebody else for a while, whom the folder belongs to."""
    if os.geteuid() != 0:
        yield
        return
    for path in (place, *place.rglob("*")):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["list", "add", "revoke"])
@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}', '{"version": 99, "keys": []}', "\0\0"])
def test_a_damaged_keys_file(command: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content, encoding="utf-8")
    name = [] if command == "list" else ["me"]
    result = CliRunner().invoke(cli.main, ["keys", command, *name, "--keys", str(file), "--json"])
    assert result.exit_code == 1
    body = json.loads(result.stdout)
    assert body["error"] == "StoreCorrupt"
    assert str(file) in body["message"]
    assert file.read_text(encoding="utf-8") == content


def test_the_check_of_an_installation(good: Good, tmp_path: Path) -> None:
    store = good.copy(tmp_path / "store")
    header(store)
    asked = ["claude-code", "--home", str(tmp_path / "home"), "--store", str(store.parent), "--json"]
    env = {"TWOFOLD_EMBEDDER": EMBEDDER}
    assert CliRunner().invoke(cli.main, ["install", *asked, "--no-hooks"], env=env).exit_code == 1
    found = CliRunner().invoke(cli.main, ["install", *asked, "--no-hooks", "--check"], env=env)
    assert found.exit_code == 1
    assert not json.loads(found.stdout)["healthy"]


def test_an_mcp_server_on_a_damaged_store(good: Good, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="needs the extra [mcp]")
    store = good.copy(tmp_path / "store")
    header(store)
    done = subprocess.run(
        [sys.executable, "-c", "from twofold.cli import main; main()", "mcp", "--store", str(store.parent)],
        input="", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""  # which is the protocol's
    assert done.stderr.startswith("StoreCorrupt: ")


# -- no store, and files that are none ------------------------------------------------------------------

MAKE_ONE = {("init",), ("add",), ("import",), ("serve",), ("api",), ("mcp",), ("restore-backup",)}


@pytest.mark.parametrize("path", [p for p in ON_A_STORE if p not in MAKE_ONE], ids=" ".join)
def test_no_store_is_made_by_a_typing_error(
    path: tuple[str, ...], good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    result = call(arguments(path, good, tmp_path / "typo" / "twofold.db"))
    assert result.exit_code == 1
    assert "there is no store at" in result.stdout
    assert not list(tmp_path.iterdir())


READ_A_FILE = {
    "replay": ["replay"],
    "import": ["import"],
    **{
        f"import {name}": ["import", "--format", name]
        for name in ("jsonl", "markdown", "messages", "chatgpt", "claude-code", "mem0", "reference")
    },
    "mcp": ["mcp", "--profile", "reference", "--import"],
    "restore-backup": ["restore-backup"],
}
CONTENTS = {
    "nothing": b"",
    "bytes": b"\xff\xfe\x00\x01",
    "half": b'{"format": ',
    "list": b"[]",
    "number": b"7",
    "deep": b"[" * 100_000,
    "digits": b"1" * 10_000,
    "header only": b'{"format": "twofold-export", "version": 1}\n',
    "wrong header": b'{"format": "twofold-export", "version": "x", "kind": 3}\n',
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", READ_A_FILE)
def test_files_that_are_something_else(
    name: str, content: str, good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    store = good.copy(tmp_path / "store").parent
    file = tmp_path / "file"
    file.write_bytes(CONTENTS[content])
    where = [str(tmp_path / "new")] if name == "restore-backup" else ["--store", str(store)]
    result = call([*READ_A_FILE[name], str(file), *where, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    body = json.loads(result.stdout)
    if result.exit_code == 0:  # text is Markdown, and no lines are no memories
        assert body.get("new", 0) == 0 or "markdown" in name
    else:
        assert body["error"] in ("InvalidInput", "StoreCorrupt", "StoreError"), body


@pytest.mark.parametrize("name", READ_A_FILE)
@pytest.mark.parametrize("what", ["absent", "folder"])
def test_files_that_are_not_there(
    name: str, what: str, good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    store = good.copy(tmp_path / "store").parent
    file = tmp_path / "file"
    if what == "folder":
        file.mkdir()
    where = [str(tmp_path / "new")] if name == "restore-backup" else ["--store", str(store)]
    result = call([*READ_A_FILE[name], str(file), *where, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    if what == "folder" and name in ("import markdown", "import claude-code"):
        assert json.loads(result.stdout)["memories"] == 0
    elif name == "mcp":
        assert result.exit_code == click.UsageError.exit_code
    else:
        assert json.loads(result.stdout)["error"] in ("NotFound", "InvalidInput")


WRITE_A_FILE = {
    "export": ["export"],
    "backup": ["backup"],
    "mcp": ["mcp", "--profile", "reference", "--export"],
}


@pytest.mark.parametrize("name", WRITE_A_FILE)
@pytest.mark.parametrize("where", ["/proc/none/file", "/dev/null", "folder"])
def test_files_that_cannot_be_written(
    name: str, where: str, good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    store = good.copy(tmp_path / "store").parent
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "twofold.db").touch()  # what a backup into a folder would be called
    target = where if where.startswith("/") else str(tmp_path / where)
    result = call([*WRITE_A_FILE[name], target, "--store", str(store), "--json"])
    if name == "mcp" and where == "folder":
        assert result.exit_code == click.UsageError.exit_code
        return
    assert result.exit_code == 1, result.output
    assert json.loads(result.stdout)["error"] in ("StoreError", "InvalidInput")
    assert Path("/dev/null").is_char_device()


def test_an_export_follows_a_link(good: Good, call: Callable[[list[str]], Result], tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "far" / "file.jsonl")
    result = call(["export", str(tmp_path / "link.jsonl"), "--store", str(good.folder), "--json"])
    assert result.exit_code == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "far" / "file.jsonl").read_text(encoding="utf-8").startswith('{"format"')


def test_a_backup_writes_through_no_link(
    good: Good, call: Callable[[list[str]], Result], tmp_path: Path
) -> None:
    (tmp_path / "b.db").symlink_to(tmp_path / "victim.db")
    assert call(["backup", str(tmp_path / "b.db"), "--store", str(good.folder)]).exit_code == 1
    assert not (tmp_path / "victim.db").exists()


def test_arguments_of_other_kinds(good: Good, call: Callable[[list[str]], Result]) -> None:
    store = ["--store", str(good.folder), "--json"]
    for given in (
        ["recall", "x", "--budget", "9" * 30],
        ["recall", "x", "-k", "9" * 30],
        ["search", "--limit", "9" * 30],
        ["add", "x", "--metadata", "[" * 100_000],
        ["add", "x", "--metadata", '{"a":' * 5000 + "1" + "}" * 5000],
        ["add", "x", "--metadata", "9" * 10_000],
        ["serve", "--dev", "--port", "0", "--rate", "nan"],
        ["serve", "--dev", "--port", "0", "--rate", "inf"],
        ["serve", "--dev", "--port", "0", "--timeout", "inf"],
    ):
        result = call([*given, *store])
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            given[:3],
            result.exc_info,
        )
        assert result.exit_code == 1
        assert json.loads(result.stdout)["error"] in ("InvalidInput", "BudgetError")
