"""The warm background process of the hooks: one per store and user, on a unix socket, gone when idle.

Started by hook_client.py (or `twofold hook daemon`). It listens before it opens the store, so that the first
hook waits in the socket's queue and not in a loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import twofold
from twofold.clock import monotonic
from twofold.integrations import hook_client

if TYPE_CHECKING:
    from twofold.integrations.hooks import Hooks

IDLE_MINUTES: Final = 15.0
DRAIN: Final = 5.0  # seconds that answers under way get at the end
LISTEN: Final = 64
READ_TIMEOUT: Final = 10.0
HEADER: Final = 200  # bytes of the first line
NO_MODEL: Final = (
    "twofold: no embedding model is installed, so memories are found by words and relations only. "
    "Remedy: twofold model install"
)

log = hook_client.log


def safe(error: BaseException) -> str:
    """An error for the log; messages may quote values."""
    from twofold.integrations.redact import redact

    return f"{type(error).__name__}: {redact(str(error))[:300]}"


def stamp() -> tuple[int, ...]:
    """Changes when the installed package does: a running process then ends after the answer under way."""
    here = Path(__file__).resolve().parent
    files = (here.parent / "__init__.py", here / "daemon.py", here / "hooks.py", here / "redact.py")
    core = sys.modules["twofold._core"].__file__
    out = []
    for file in (*files, *([Path(core)] if core else [])):
        with contextlib.suppress(OSError):
            out.append(file.stat().st_mtime_ns)
    return tuple(out)


class Daemon:
    """The process of one store."""

    def __init__(self, store: str, idle_minutes: float) -> None:
        self.store = store
        self.idle = idle_minutes * 60
        self.stamp = stamp()
        self.hooks: Hooks | None = None
        self.broken: str | None = None
        self.notice: str | None = None
        self.ready = threading.Event()
        self.active = 0
        self.last = monotonic()
        self.lock = threading.Lock()
        self.stopping = False

    def serve(self) -> int:
        """Listen until idle, replaced or told to stop; at once 0 when another process of this store listens."""
        address = Path(hook_client.socket_path(self.store))
        guard = os.open(f"{address}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(guard)
            return 0
        os.umask(0o077)
        address.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(address))
            address.chmod(0o600)
            listener.listen(LISTEN)
            opener = threading.Thread(target=self._open, daemon=True)
            opener.start()
            self._accept(listener)
            # Off the address before the store closes: whoever comes now starts a new process.
            address.unlink(missing_ok=True)
        opener.join()
        self._drain()
        if self.hooks is not None:
            self.hooks.mem.close()
        os.close(guard)
        return 0

    def _open(self) -> None:
        from twofold.errors import EmbedderUnavailable, TwofoldError
        from twofold.integrations.hooks import Hooks
        from twofold.memory import AgentMemory

        try:
            try:
                mem = AgentMemory(self.store)
            except EmbedderUnavailable:
                log(NO_MODEL)
                self.notice = NO_MODEL
                mem = AgentMemory(self.store, embedder=None)
            # The first recall loads the index and the model; the hooks should find both warm.
            mem.recall("warm", k=1, promote=False)
            self.hooks = Hooks(mem)
        except (TwofoldError, OSError) as error:
            self.broken = safe(error)
            log(f"cannot open {self.store}: {self.broken}")
        finally:
            self.ready.set()

    def _accept(self, listener: socket.socket) -> None:
        while not self.stopping:
            readable, _, _ = select.select([listener], [], [], min(1.0, self.idle))
            if readable:
                link, _ = listener.accept()
                with self.lock:
                    self.active += 1
                threading.Thread(target=self._answer, args=(link,), daemon=True).start()
                if stamp() != self.stamp:
                    log("the package changed; the next hook starts a new process")
                    return
            with self.lock:
                # A store that cannot be opened is tried again by a new process, a minute later.
                limit = min(self.idle, 60.0) if self.broken else self.idle
                if not self.active and monotonic() - self.last > limit:
                    return

    def _drain(self) -> None:
        end = monotonic() + DRAIN
        while monotonic() < end:
            with self.lock:
                if not self.active:
                    return
            select.select([], [], [], 0.02)

    def _answer(self, link: socket.socket) -> None:
        try:
            with link:
                link.settimeout(READ_TIMEOUT)
                if peer_uid(link) not in (os.getuid(), None):
                    log("a connection of another user was refused")
                    return
                self._handle(link)
        except OSError as error:
            log(f"connection: {safe(error)}")
        finally:
            with self.lock:
                self.active -= 1
                self.last = monotonic()

    def _handle(self, link: socket.socket) -> None:
        event, body = "?", b"{}"
        try:
            event, store, project, payload = received(link)
            if store != self.store:
                raise ValueError(f"asked for store {store!r}, but this process has {self.store!r}")
            body = json.dumps(self.reply(event, project, payload), ensure_ascii=False).encode()
        # One payload must not end the process, and its hook must not fail: fail open, with a line in the log.
        except Exception as error:  # noqa: BLE001
            log(f"{event}: {safe(error)}")
        link.sendall(body)

    def reply(self, event: str, project: str, payload: bytes) -> dict[str, Any]:
        """The answer to one hook."""
        if event == "shutdown":
            self.stopping = True
            return {"stopping": True}
        self.ready.wait(60)
        if event == "ping":
            return {
                "version": twofold.__version__,
                "pid": os.getpid(),
                "store": self.store,
                "problem": self.broken or self.notice,
            }
        if self.hooks is None:
            raise RuntimeError(f"the store is not open: {self.broken}")
        told = json.loads(payload)
        if not isinstance(told, dict):
            raise ValueError("the payload is not a JSON object")
        if project:
            told.setdefault("project_dir", project)
        answer = self.hooks.run(event, told)
        if event == "session-start" and self.notice:
            answer["systemMessage"] = self.notice
        return answer


def peer_uid(link: socket.socket) -> int | None:
    """The user at the other end; None where the system does not tell (the socket's mode still guards it)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)


def received(link: socket.socket) -> tuple[str, str, str, bytes]:
    """(event, store, project folder, payload) of one message. ValueError for another protocol."""
    data = b""
    while b"\n" not in data:
        if len(data) > HEADER:
            raise ValueError("not a message of this protocol")
        piece = link.recv(65536)
        if not piece:
            raise ValueError("the message ended early")
        data += piece
    head, _, rest = data.partition(b"\n")
    words = head.decode("ascii", "replace").split()
    if len(words) != 5 or words[0] != f"TF{hook_client.PROTOCOL}":
        raise ValueError("not a message of this protocol; reinstall the hooks: twofold install claude-code")
    sizes = [int(w) for w in words[2:]]
    if any(s < 0 or s > hook_client.LARGEST for s in sizes):
        raise ValueError("the message is too large")
    while len(rest) < sum(sizes):
        piece = link.recv(65536)
        if not piece:
            raise ValueError("the message ended early")
        rest += piece
    store, project = rest[: sizes[0]], rest[sizes[0] : sizes[0] + sizes[1]]
    return words[1], os.fsdecode(store), os.fsdecode(project), rest[sizes[0] + sizes[1] : sum(sizes)]


def main(argv: list[str]) -> int:
    """Entry of `python -m twofold.integrations.daemon --store PATH [--idle-minutes N]`."""
    given = dict(zip(argv[::2], argv[1::2], strict=False))
    store = hook_client.store_path(given.get("--store") or hook_client.options([])[1])
    minutes = float(given.get("--idle-minutes") or os.environ.get("TWOFOLD_HOOK_IDLE") or IDLE_MINUTES)
    try:
        return Daemon(store, minutes).serve()
    # Started in the background: nobody reads its output, so the log has to say why it ended.
    except Exception as error:
        log(f"background process: {safe(error)}")
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
