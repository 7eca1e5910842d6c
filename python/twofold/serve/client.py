"""`TwofoldClient`: a memory on a server, with the methods of `AgentMemory`; made from the same table as the server.

Standard library only. One client may be used from several threads; each request has a connection of its own
from a small pool. Calls that change nothing are retried when the server is busy or the connection breaks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import http.client
import inspect
import itertools
import json
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from twofold.aio import AsyncAgentMemory
from twofold.clock import Clock, SystemClock, iso, to_us
from twofold.config import server_key
from twofold.errors import InvalidInput, NotFound, PermissionDenied, StoreBusy, StoreError
from twofold.files import reading, replacing
from twofold.index.filters import Filters
from twofold.memory import AgentMemory
from twofold.model import Role
from twofold.query import whole
from twofold.receipt import Receipt
from twofold.retrieve.profile import PROFILES, Profile
from twofold.serve import problems
from twofold.serve.table import AS_HEADER, MAX_BATCH, PREFIX, RENAMED, TABLE, Route
from twofold.transfer import chunks

TRIES: Final = 4
IDLE_LIMIT: Final = 32
CHUNK: Final = 1 << 16


class _Broken(Exception):
    """The connection ended. `sent`: the server may have got the request."""

    def __init__(self, sent: bool, why: Exception) -> None:
        super().__init__(str(why) or type(why).__name__)
        self.sent = sent


class Wire:
    """Connections to one server, reused."""

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise InvalidInput(f"{url!r} has no valid port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InvalidInput(f"{url!r} is not the address of a server; write http://host:port")
        self.url = url.rstrip("/")
        self._host, self._port = parts.hostname, port
        self._base = parts.path.rstrip("/")
        self._timeout = timeout
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def send(
        self, method: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send one request; the caller reads the answer and gives the connection back."""
        connection = self._take()
        sent = False
        try:
            if connection.sock is None:
                connection.connect()
                # Small requests must not wait for the acknowledgement of the one before.
                _socket(connection).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = True
            # A server that refuses a long body answers before it has read all of it, and stops reading.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, self._base + target, body, dict(headers))
            return connection, connection.getresponse()
        except TimeoutError as error:
            connection.close()
            raise StoreBusy(f"{self.url} did not answer within {self._timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Broken(sent, error) from error
        except BaseException:
            connection.close()
            raise

    def _take(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._closed:
                raise StoreError(f"the client of {self.url} is closed")
            while self._idle:
                connection = self._idle.pop()
                # Readable while idle: the server has closed it.
                if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                    return connection
                connection.close()
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def give(self, connection: http.client.HTTPConnection) -> None:
        """Return a connection whose answer was read to the end."""
        with self._lock:
            if not self._closed and connection.sock is not None and len(self._idle) < IDLE_LIMIT:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = list(self._idle), deque()
        for connection in idle:
            connection.close()


def _socket(connection: http.client.HTTPConnection) -> socket.socket:
    found: socket.socket = connection.sock
    return found


class _Answer:
    """A successful answer's body, read in pieces."""

    def __init__(self, wire: Wire, response: http.client.HTTPResponse) -> None:
        self._wire = wire
        self._response = response

    def read(self, size: int | None = None) -> bytes:
        """The next bytes, b"" at the end; all of them without a size."""
        try:
            return self._response.read(size)
        except TimeoutError as error:
            raise StoreBusy(f"{self._wire.url} stopped in the middle of an answer") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(True, error) from error


if TYPE_CHECKING:
    _Base = AgentMemory
else:
    _Base = object


class TwofoldClient(_Base):
    """A handle on a server's memory: what `AgentMemory("http://...", key="tf_...")` gives.

    The methods are those of `AgentMemory`, with the same arguments, results and exceptions. The key decides
    tenant, role and namespaces; `as_agent` and `read_only` narrow further. `backup`, `reembed` and
    `doctor` are the server's own (`twofold backup`, ... there).
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        namespace: str | None = None,
        tries: int = TRIES,
    ) -> None:
        """url: "http://host:port" or https. key: made by `twofold keys add`; $TWOFOLD_KEY when left out.

        timeout: seconds per answer. namespace: where `add` writes and reads look when not told; left out,
        the key's. tries: how often a call that changes nothing is sent at most. Nothing is sent before the
        first call.
        """
        if not timeout > 0:
            raise InvalidInput(f"timeout must be a positive number of seconds, not {timeout!r}")
        self._wire = Wire(url, timeout)
        self._key = server_key() if key is None else key
        self._tries = whole(tries, "tries", 1, 100)
        self._default = namespace
        self._steps: tuple[dict[str, Any], ...] = ()
        self._who: dict[str, Any] | None = None

    # -- the handle ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The server's address."""
        return self._wire.url

    def _whoami(self) -> dict[str, Any]:
        if self._who is None:
            self._who = self._json("GET", f"{PREFIX}/whoami", None, retry=True)
        return self._who

    @property
    def tenant(self) -> str:
        """The one tenant this handle sees."""
        return str(self._whoami()["tenant"])

    @property
    def namespace(self) -> str | None:
        """Where `add` writes when it is not told; None when it must be told."""
        found: str | None = self._default or self._whoami()["namespace"]
        return found

    @property
    def agent_id(self) -> str:
        """Who this handle writes as."""
        return str(self._whoami()["agent_id"])

    @property
    def role(self) -> Role | None:
        """The role of the handle; None for the owner's."""
        name = self._whoami()["role"]
        return None if name is None else Role(name)

    @property
    def clock(self) -> Clock:
        """This machine's clock, for a scratchpad here; memories are dated by the server's."""
        return SystemClock()

    def as_agent(self, agent_id: str, **options: Any) -> Self:
        """A handle for an agent, as `AgentMemory.as_agent`; the server checks it at each request."""
        bound = inspect.signature(AgentMemory.as_agent).bind(self, agent_id, **options)
        step = {n: plain(v) for n, v in bound.arguments.items() if n != "self" and v is not None}
        if step.pop("tenant", None) not in (None, self._who and self._who["tenant"]):
            raise InvalidInput("the key decides the tenant; use a key of the other one")
        step.setdefault("role", Role.EXECUTOR.value)
        made = self._narrowed(step)
        if options.get("namespace") is not None or options.get("namespaces") is not None:
            made._default = None
        return made

    def read_only(self) -> Self:
        """The same handle without the right to write; recalls through it never promote."""
        return self._narrowed({"read_only": True})

    def _narrowed(self, step: dict[str, Any]) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _steps=(*self._steps, step), _who=None)
        return made

    def close(self) -> None:
        """Close the connections. Handles made from this one close with it."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Current memories of the handle's own namespaces, oldest first."""
        return iter(self.current_facts())

    def __repr__(self) -> str:
        return f"TwofoldClient({self.url!r}{''.join(f', as {s}' for s in self._steps)})"

    def backup(self, path: str | Path) -> Path:
        """Not over HTTP: a backup is a file on the server's machine. `export_json` brings everything here."""
        raise InvalidInput(
            f"cannot back up to {path} over HTTP; run `twofold backup` on the server, or export_json"
        )

    def reembed(self, *_: Any, **__: Any) -> Any:
        """Not over HTTP: stop the server and run `twofold reembed` there."""
        raise InvalidInput(
            "reembed is not available over HTTP; stop the server and run `twofold reembed` there"
        )

    def doctor(self) -> Any:
        """Not over HTTP: run `twofold doctor` on the server. `health` is for every key that may ask."""
        raise InvalidInput(
            "doctor is not available over HTTP; run `twofold doctor` on the server, or ask for health"
        )

    # -- what differs from one call to one request -------------------------------------------------------

    def add_many(
        self, items: Any, *, progress: bool | Callable[[int], None] = False, batch: int = 256
    ) -> list[Any]:
        """Store many memories, one transaction a batch, and return them in order; see `AgentMemory.add_many`."""
        batch = whole(batch, "batch", 1, 100_000)
        out: list[Any] = []
        for chunk, done in chunks(items, min(batch, MAX_BATCH), progress):
            if not all(isinstance(i, str | Mapping) for i in chunk):
                raise InvalidInput("add_many takes mappings with a content, or texts")
            made: list[Any] = [dict(i) if isinstance(i, Mapping) else i for i in chunk]
            if self._default is not None:
                made = [{"content": i} if isinstance(i, str) else i for i in made]
                made = [{"namespace": self._default, **i} for i in made]
            out += self._request("add_many", {"items": made})
            done(len(out))
        return out

    def recall_as_context(self, query_text: str, budget: int = 2000, **options: Any) -> str:
        """`recall(...).context()`: labelled text to paste as data; "" when nothing was found."""
        text: str = self._request(
            "recall_as_context", {"query_text": query_text, "budget": budget, **options}
        )
        return text

    def export_json(self, path: str | Path, *, vectors: bool = True) -> int:
        """Write what this handle may see as JSON lines; the owner's export is lossless. Returns the lines."""
        target = Path(path)
        query = urlencode({"vectors": str(bool(vectors)).lower()})
        try:
            lines = 0
            with replacing(target) as file, self._answer("GET", f"{PREFIX}/export?{query}") as answer:
                while data := answer.read(CHUNK):
                    lines += data.count(b"\n")
                    file.write(data)
        except _Broken as broken:
            raise self._broken(broken, True) from broken
        return lines

    def import_json(
        self, path: str | Path, *, dry_run: bool = False, progress: bool | Callable[[int], None] = False
    ) -> Any:
        """Send an export to the server; see `AgentMemory.import_json`. `progress` is told once, at the end."""
        route = _ROUTES["import_json"]
        query = urlencode({"dry_run": str(bool(dry_run)).lower()})
        with reading(path):
            file = Path(path).open("rb")  # noqa: SIM115 -- closed below; what the server says is not of the file
        with file:
            headers = {
                "content-type": "application/x-ndjson",
                "content-length": str(os.fstat(file.fileno()).st_size),
            }
            try:
                with self._answer("POST", f"{PREFIX}/import?{query}", file, headers) as answer:
                    report = route.decode(json.loads(answer.read()))
            except _Broken as broken:
                raise self._broken(broken, False) from broken
        if callable(progress):
            progress(report.memories)
        return report

    # -- requests ----------------------------------------------------------------------------------------

    def _request(self, name: str, given: Mapping[str, Any]) -> Any:
        """Call a route with arguments by the method's own names."""
        route = _ROUTES[name]
        asked = {RENAMED.get(n, n): plain(v) for n, v in given.items()}
        if self._default is not None:
            if name == "add":
                asked.setdefault("namespace", self._default)
            elif "namespaces" in route.fields:
                asked["namespaces"] = asked.get("namespaces") or self._default
        if route.extra:
            asked["with"] = ["trace", "receipt"]
        address = PREFIX + route.address.format(
            **{n: quote(str(asked.pop(n)), safe="") for n in route.in_path}
        )
        body = None
        if route.in_query:
            query = {
                n: str(v).lower() if isinstance(v, bool) else v for n, v in asked.items() if v is not None
            }
            address += f"?{urlencode(query)}" if query else ""
        else:
            try:
                body = json.dumps(asked, allow_nan=False).encode()
            except ValueError:
                raise InvalidInput(f"{name} was given NaN or an infinite number") from None
        try:
            return route.decode(self._json(route.method, address, body, retry=route.reads))
        except NotFound:
            if route.absent:
                return None
            raise

    def _json(self, method: str, address: str, body: bytes | None, *, retry: bool) -> Any:
        for left in range((self._tries if retry else 1) - 1, -1, -1):
            try:
                with self._answer(method, address, body) as answer:
                    return json.loads(answer.read())
            except StoreBusy as busy:
                if not left or not isinstance(busy, _Later):
                    raise
                time.sleep(busy.after)
            except _Broken as broken:
                if not left:
                    raise self._broken(broken, retry) from broken
        raise AssertionError("unreachable")

    def _broken(self, broken: _Broken, reads: bool) -> StoreError:
        if not broken.sent:
            return StoreError(f"no server answers at {self.url}: {broken}")
        doubt = "" if reads else "; the request may, or may not, have been carried out"
        return StoreError(f"the connection to {self.url} broke: {broken}{doubt}")

    @contextlib.contextmanager
    def _answer(
        self, method: str, address: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[_Answer]:
        """A successful answer; every other one raises the exception it stands for."""
        sent = {
            "accept": "application/json",
            **({} if body is None else {"content-type": "application/json"}),
        }
        sent |= headers or {}
        if self._key is not None:
            sent["authorization"] = f"Bearer {self._key}"
        if self._steps:
            sent[AS_HEADER] = json.dumps(self._steps)
        connection, response = self._wire.send(method, address, body, sent)
        answer, complete = _Answer(self._wire, response), False
        try:
            if response.status != 200:
                text = answer.read()
                complete = True
                raise _exception(response, text)
            yield answer
            complete = response.isclosed()
        finally:
            if complete and not response.will_close:
                self._wire.give(connection)
            else:
                connection.close()


def connect(url: str, **options: Any) -> TwofoldClient:
    """What `AgentMemory(url, ...)` gives. InvalidInput for settings that are the server's own."""
    known = {"key", "timeout", "namespace", "tries"}
    tenant = options.pop("tenant", None)
    if options.get("namespace") == "default":  # a local handle's default; here the key has one
        del options["namespace"]
    own = sorted(n for n, v in options.items() if n not in known and v is not None)
    if own:
        raise InvalidInput(f"{own[0]} is the server's own setting; a client takes {', '.join(sorted(known))}")
    client = TwofoldClient(url, **{n: v for n, v in options.items() if n in known and v is not None})
    if tenant not in (None, "default") and client.tenant != tenant:
        client.close()
        raise PermissionDenied(f"the key is for tenant {client.tenant!r}, not {tenant!r}")
    return client


class _Later(StoreBusy):
    """Busy, with the seconds after which the server says to come again."""

    after: float = 1.0


def _exception(answer: http.client.HTTPResponse, text: bytes) -> Exception:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    error = problems.exception(answer.status, body)
    after = answer.headers.get("retry-after", "")
    if type(error) is StoreBusy and after.isdigit():
        later = _Later(str(error))
        later.after = min(float(after), 30.0)
        return later
    return error


def plain(value: Any) -> Any:
    """An argument as JSON values."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dt.datetime):
        return iso(to_us(value))
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Receipt | Filters):
        return plain(value.to_json())
    if isinstance(value, Profile):
        same = next((name for name, known in PROFILES.items() if known == value), None)
        return same or {n: v for n, v in value.to_json().items() if n != "name"}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    name = getattr(value, "name", None)  # a token counter
    if isinstance(name, str):
        return name
    raise InvalidInput(f"{value!r} cannot be sent as JSON")


_ROUTES: Final = {route.name: route for route in TABLE}


def _method(route: Route) -> Callable[..., Any]:
    """A method with the signature of AgentMemory's, that sends its arguments."""
    of = getattr(AgentMemory, route.name)
    signature = inspect.signature(of)
    spread = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)

    @functools.wraps(of)
    def method(self: TwofoldClient, *args: Any, **kwargs: Any) -> Any:
        given = dict(itertools.islice(signature.bind(self, *args, **kwargs).arguments.items(), 1, None))
        if spread is not None:
            given |= given.pop(spread, {})
        return self._request(route.name, given)

    return method


for _route in TABLE:
    if _route.name not in vars(TwofoldClient):
        setattr(TwofoldClient, _route.name, _method(_route))


class AsyncTwofoldClient(AsyncAgentMemory):
    """`TwofoldClient` for asyncio: every method awaitable, requests in worker threads."""

    def __init__(self, url: str, *, workers: int = 32, **options: Any) -> None:
        """As `TwofoldClient`. workers: requests under way at once."""
        super().__init__(url, workers=workers, **options)
        self._open = functools.partial(TwofoldClient, url, **options)
