"""The hook that Claude Code starts: hands its payload to the warm background process and prints the answer.

Runs as a file (`python -I -S hook_client.py session-start --store PATH`), knows nothing of the package around it
and imports almost nothing, so that it starts in milliseconds under any Python from 3.8. Whatever goes wrong, it
prints `{}` and exits 0, and says so in the log: a memory must never break its host.
"""

# pathlib, contextlib and f-strings would cost more than all of this, and old Pythons run it too:
# ruff: noqa: PTH102, PTH103, PTH105, PTH110, PTH111, PTH112, PTH116, PTH118, PTH120
# ruff: noqa: UP031, SIM105, TID251, RUF005

import os
import sys
import time
import zlib

try:
    import _socket as socket  # `socket` itself costs more than all the rest
except ImportError:
    import socket  # type: ignore[no-redef]

PROTOCOL = 1
PATIENCE = 4.0  # seconds in all, a cold start included; the host waits longer than that for a hook
LARGEST = 16 << 20  # bytes of a payload
LOG_SIZE = 1 << 20

# Rules of the package do not reach here: nothing may be imported for the clock.
_now = time.monotonic
_wall = time.time


def home():
    # type: () -> str
    return os.environ.get("HOME") or os.path.expanduser("~")


def log_path():
    # type: () -> str
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(home(), ".local", "state")
    return os.path.join(state, "twofold", "hooks.log")


def log(text):
    # type: (str) -> None
    """One line in the log; without a place to write it, none."""
    line = "%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_wall())), text)
    path = log_path()
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        if os.path.exists(path) and os.stat(path).st_size > LOG_SIZE:
            os.replace(path, path + ".1")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line.encode("utf-8", "replace"))
        finally:
            os.close(handle)
    except OSError:
        return


def runtime_dir():
    # type: () -> str
    """A folder of this user's alone for the sockets. OSError when somebody else made it."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base):
        path = os.path.join(base, "twofold")
    else:
        path = "/tmp/twofold-%d" % os.getuid()
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
        raise OSError("%s is not a folder of this user's alone" % path)
    return path


def socket_path(store):
    # type: (str) -> str
    """Where the process of a store listens: short, because such addresses end at 108 bytes."""
    name = os.fsencode(store)
    mark = "%08x%08x" % (zlib.crc32(name), zlib.crc32(name[::-1], 1))
    return os.path.join(runtime_dir(), mark + ".sock")


def store_path(store):
    # type: (str) -> str
    """The store as everybody names it: absolute, unless it is an address."""
    if "://" in store or store.startswith(":memory:"):
        return store
    return os.path.realpath(os.path.expanduser(store))


def start(store, command):
    # type: (str, list[str]) -> None
    """Start the background process, free of this one: own session, no open files, output to the log."""
    argv = command or starter()
    if os.fork():
        return
    try:
        os.setsid()
        os.umask(0o077)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(3, 256)
        os.chdir("/")
        os.execvp(argv[0], argv + ["--store", store])
    finally:
        os._exit(127)


def starter():
    # type: () -> list[str]
    """How to start the background process: this Python when the package lies around this file, else `twofold`."""
    here = os.path.dirname(os.path.realpath(__file__))
    if os.path.exists(os.path.join(here, "daemon.py")):
        return [sys.executable, "-m", "twofold.integrations.daemon"]
    return ["twofold", "hook", "daemon"]


def ask(address, message, deadline):
    # type: (str, bytes, float) -> bytes
    """Send a message and read the answer. OSError when nobody listens or the time is over."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(max(0.01, deadline - _now()))
        link.connect(address)
        view = memoryview(message)
        while view:
            view = view[link.send(view) :]
        answer = b""
        while True:
            left = deadline - _now()
            if left <= 0:
                raise OSError("no answer in time")
            link.settimeout(left)
            piece = link.recv(65536)
            if not piece:
                return answer
            answer += piece
    finally:
        link.close()


def framed(event, store, payload):
    # type: (str, str, bytes) -> bytes
    project = os.fsencode(os.environ.get("CLAUDE_PROJECT_DIR", ""))
    name = os.fsencode(store)
    head = "TF%d %s %d %d %d\n" % (PROTOCOL, event, len(name), len(project), len(payload))
    return head.encode() + name + project + payload


def run(event, store, payload, command, patience=PATIENCE):
    # type: (str, str, bytes, list[str], float) -> bytes
    """The answer to a hook, from the background process, which is started when it is not there."""
    deadline = _now() + patience
    store = store_path(store)
    address = socket_path(store)
    message = framed(event, store, payload)
    started = False
    while True:
        try:
            answer = ask(address, message, deadline)
            if answer:
                return answer
            raise OSError("the background process hung up")
        except (FileNotFoundError, ConnectionRefusedError):
            if not started:
                start(store, command)
                started = True
            if _now() > deadline:
                raise
            time.sleep(0.02)


def options(argv):
    # type: (list[str]) -> tuple[str, str, list[str]]
    event, store, command = (
        "",
        os.environ.get("TWOFOLD_STORE") or os.path.join(home(), ".twofold", "store"),
        [],
    )
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--store" and rest:
            store = rest.pop(0)
        elif word == "--python" and rest:
            command = [rest.pop(0), "-m", "twofold.integrations.daemon"]
        elif not event:
            event = word
    return event, store, command


def main(argv):
    # type: (list[str]) -> int
    answer = b"{}"
    event = "?"
    try:
        event, store, command = options(argv)
        payload = b""
        while len(payload) <= LARGEST:
            piece = os.read(0, 1 << 20)
            if not piece:
                break
            payload += piece
        else:
            raise OSError("the payload is larger than %d bytes" % LARGEST)
        told = run(event, store, payload, command)
        if not (told.startswith(b"{") and told.endswith(b"}")):
            raise OSError("the answer is not JSON")
        answer = told
    # Whatever it was, the host goes on.
    except BaseException as error:  # noqa: BLE001
        log("%s: %s: %s" % (event, type(error).__name__, str(error)[:300]))
    os.write(1, answer + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
