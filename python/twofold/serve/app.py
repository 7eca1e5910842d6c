"""The HTTP server: keys, limits and JSON around the methods of `AgentMemory`; no rules of its own.

Each request is authorised, read and checked on the event loop, then done in a thread pool: reads and writes
have pools of their own, so that writers waiting for the store's lock do not hold up recalls.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import secrets
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Path_

from twofold import audit, tokens
from twofold.access import ROLE_TABLE
from twofold.clock import monotonic
from twofold.core import __version__
from twofold.errors import InvalidInput, NotFound, PermissionDenied, StoreError, TwofoldError
from twofold.serve import metrics, openapi, problems, schema
from twofold.serve.keys import PREFIX as KEY_PREFIX
from twofold.serve.keys import Key, Keys
from twofold.serve.limits import Limits, Rates
from twofold.serve.table import AS_HEADER, NARROWING, PREFIX, RENAMED, TABLE, Route

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from twofold.memory import AgentMemory

ACCESS: Final = logging.getLogger("twofold.access")
LOG: Final = logging.getLogger("twofold.serve")
JSON: Final = "application/json"
CHUNK: Final = 1 << 16
LONG: Final = frozenset(
    {"import_json", "export_json", "verify", "maintain", "gc", "erase", "erase_where", "health"}
)
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
MAX_STEPS: Final = 8

Work = Callable[["AgentMemory", bytes], Response]
Told = Callable[[int, dict[str, Any], dict[str, str]], Response]


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who is asking: a key (None: the developer on loopback) and the steps that narrow its handle."""

    key: Key | None
    tenant: str
    steps: tuple[dict[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return "dev" if self.key is None else self.key.id


class Server:
    """One store behind HTTP. `app` is the ASGI application; `close` flushes and releases the store.

    open_tenant: opens the owner's handle on a tenant; called once per tenant. dev: the tenant of requests
    without a key, None to refuse them. now: seconds, for rates and durations.
    """

    def __init__(
        self,
        open_tenant: Callable[[str], AgentMemory],
        keys: Keys,
        limits: Limits | None = None,
        *,
        dev: str | None = None,
        compat: str | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.keys = keys
        self.limits = limits or Limits()
        self.metrics = metrics.Metrics()
        self.dev = dev
        self._open = open_tenant
        self._now = now
        self._rates = Rates(now)
        self._owners: dict[str, AgentMemory] = {}
        self._opening = threading.Lock()
        self._readers = ThreadPoolExecutor(self.limits.readers, "twofold-read")
        self._writers = ThreadPoolExecutor(self.limits.writers, "twofold-write")
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None
        self._document = json.dumps(openapi.document(), ensure_ascii=False).encode()
        routes = self._routes()
        if compat == "memwright":
            from twofold.serve import memwright

            routes = [*memwright.routes(self), *routes]
        elif compat is not None:
            raise InvalidInput(f"unknown compatibility {compat!r}; there is 'memwright'")
        starlette = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._unrouted},
            lifespan=self._lifespan,
        )
        starlette.router.redirect_slashes = False
        self.app: ASGIApp = Watch(self, starlette)

    # -- life ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.limits.maintain_every > 0:
            self._keeper = threading.Thread(target=self._maintain, name="twofold-maintain", daemon=True)
            self._keeper.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Wait for what is under way, commit what waits, release the store. Idempotent."""
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join()
        self._readers.shutdown(cancel_futures=True)
        self._writers.shutdown(cancel_futures=True)
        with self._opening:
            owners, self._owners = self._owners, {}
        for owner in owners.values():
            owner.close()

    def _maintain(self) -> None:
        """`maintain` for every tenant that has a key, soon after the start and then regularly; idempotent per day."""
        every = self.limits.maintain_every
        wait = min(every, 60.0)
        while not self._stop.wait(wait):
            wait = every
            tenants = {k.tenant for k in self.keys.active()} | ({self.dev} if self.dev else set())
            for tenant in sorted(tenants):
                try:
                    report = self.owner(tenant).maintain()
                except TwofoldError as error:
                    LOG.warning("maintain of tenant %r failed: %s: %s", tenant, type(error).__name__, error)
                else:
                    self.metrics.count("maintenance_runs")
                    LOG.info("maintained tenant %r: %d live, %d faded", tenant, report.live, report.faded)

    def owner(self, tenant: str) -> AgentMemory:
        """The owner's handle on a tenant; opened at its first use."""
        found = self._owners.get(tenant)
        if found is None:
            with self._opening:
                found = self._owners.get(tenant)
                if found is None:
                    if self._stop.is_set():
                        raise problems.busy(503, "the server is stopping", 1.0)
                    found = self._owners[tenant] = self._open(tenant)
        return found

    def handle(self, bearer: Bearer) -> AgentMemory:
        """The handle of a bearer: the key's, narrowed step by step."""
        owner = self.owner(bearer.tenant)
        handle = owner if bearer.key is None else bearer.key.handle(owner)
        for step in bearer.steps:
            if "agent_id" in step:
                handle = handle.as_agent(**step)
            elif step == {"read_only": True}:
                handle = handle.read_only()
            else:
                raise InvalidInput(f"a step of {AS_HEADER} needs an agent_id, or is {{'read_only': true}}")
        return handle

    # -- who -------------------------------------------------------------------------------------------

    def bearer(self, request: Request) -> Bearer:
        """Who is asking. Refused with 401 without a key that is in force."""
        kind, _, presented = request.headers.get("authorization", "").partition(" ")
        if not kind and self.dev is not None:
            self._refuse_foreign(request)
            return Bearer(None, self.dev, self._steps(request))
        if kind.lower() == "bearer" and presented.startswith(KEY_PREFIX):
            key = self.keys.find(presented.strip())
            if key is not None:
                request.state.key = key.id
                rate = self.limits.rate if key.rate is None else key.rate
                burst = self.limits.burst if key.rate is None else max(1.0, 2 * key.rate)
                wait = self._rates.take(key.id, rate, burst)
                if wait > 0:
                    self.metrics.count("rate_limited")
                    raise problems.busy(
                        429, f"this key may send {rate:g} requests a second; try again in {wait:.2f} s", wait
                    )
                return Bearer(key, key.tenant, self._steps(request))
        self.metrics.count("unauthorized")
        raise problems.Refused(
            PermissionDenied,
            401,
            "no valid key; send `Authorization: Bearer tf_...` (`twofold keys add` makes one)",
        )

    @staticmethod
    def _refuse_foreign(request: Request) -> None:
        """Without keys, only programs on this machine: not a page of another site open in a browser here."""
        hosts = [request.headers.get("host", "localhost")]
        if "origin" in request.headers:
            hosts.append(request.headers["origin"].partition("://")[2])
        for host in hosts:
            name = host if host.startswith("[") and host.endswith("]") else host.rpartition(":")[0] or host
            if name not in LOCAL_NAMES:
                raise PermissionDenied(
                    f"without keys only requests from this machine are answered, not for {host!r}"
                )

    @staticmethod
    def _steps(request: Request) -> tuple[dict[str, Any], ...]:
        text = request.headers.get(AS_HEADER)
        if text is None:
            return ()
        steps = parse(text.encode("latin-1"))
        if not isinstance(steps, list) or len(steps) > MAX_STEPS:
            raise InvalidInput(f"{AS_HEADER} must be a JSON array of at most {MAX_STEPS} steps")
        for step in steps:
            schema.check(step, NARROWING, AS_HEADER)
        return tuple(steps)

    # -- requests --------------------------------------------------------------------------------------

    def _routes(self) -> list[Path_]:
        by_path: dict[str, dict[str, Route]] = {}
        for route in TABLE:
            by_path.setdefault(route.path, {})[route.method] = route
        out = [
            Path_(path, self._endpoint(methods), methods=list(methods), name=path)
            for path, methods in by_path.items()
        ]
        return [
            *out,
            Path_(f"{PREFIX}/whoami", self._whoami, methods=["GET"]),
            Path_("/health", self._alive, methods=["GET"]),
            Path_("/metrics", self._metrics, methods=["GET"]),
            Path_("/openapi.json", self._openapi, methods=["GET"]),
        ]

    def _endpoint(self, methods: Mapping[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            # Starlette answers HEAD by the GET route.
            route = methods.get(request.method) or methods["GET"]
            request.state.route = route.name
            if route.lines == "in":
                return await self.guarded(request, lambda bearer: self._import(request, route, bearer))
            if route.lines == "out":
                return await self.answer(
                    request,
                    lambda mem, _: self._export(mem, arguments(route, request, b"")),
                    reads=True,
                    long=True,
                )

            def call(mem: AgentMemory, body: bytes) -> Response:
                asked = arguments(route, request, body)
                extra = {n: asked.pop(n) for n in route.extra if n in asked}
                check_counter(mem, asked)
                named = {_PYTHON.get(n, n): v for n, v in asked.items()}
                if route.name == "add_many":
                    named["batch"] = max(1, len(named["items"]))
                result = getattr(mem, route.name)(**named)
                if route.absent and result is None:
                    raise NotFound(f"no memory {asked['memory_id']!r} in this handle's scope")
                return reply(200, route.encode(result, extra))

            return await self.answer(request, call, reads=route.reads, long=route.name in LONG)

        return endpoint

    async def answer(
        self, request: Request, work: Work, *, reads: bool, long: bool = False, told: Told | None = None
    ) -> Response:
        """Read the body and do the work in a thread, with the bearer's handle."""

        async def do(bearer: Bearer) -> Response:
            body = await self._body(request)
            return await self._within(lambda: work(self.handle(bearer), body), reads=reads, long=long)

        return await self.guarded(request, do, told)

    async def guarded(
        self, request: Request, do: Callable[[Bearer], Awaitable[Response]], told: Told | None = None
    ) -> Response:
        """Authorise, and turn every error into a problem document (or what `told` makes of one)."""
        told = told or as_problem
        try:
            bearer = self.bearer(request)
            if self.metrics.under_way > self.limits.concurrent:
                raise problems.busy(503, "too many requests at once; try again", 1.0)
            return await do(bearer)
        except ClientDisconnect:
            return told(*problems.problem(problems.invalid(400, "the request was cut off")))
        except TwofoldError as error:
            reference = None
            if problems.status_of(error) >= 500 and not isinstance(error, problems.Refused):
                reference = self._failure(request, error)
            return told(*problems.problem(error, reference))
        except Exception as error:  # noqa: BLE001 -- nothing of it is told; the log has it under a reference
            return told(*problems.problem(None, self._failure(request, error)))

    def _failure(self, request: Request, error: Exception) -> str:
        reference = secrets.token_hex(6)
        self.metrics.count("failures")
        LOG.error("%s %s failed, reference %s", request.method, request.url.path, reference, exc_info=error)
        return reference

    async def _within(self, work: Callable[[], Response], *, reads: bool, long: bool = False) -> Response:
        """The work's result, or 504 when it takes too long."""
        timeout = self.limits.long_timeout if long else self.limits.timeout
        if self._stop.is_set():
            raise problems.busy(503, "the server is stopping", 1.0)
        pool = self._readers if reads else self._writers
        future = asyncio.get_running_loop().run_in_executor(pool, work)
        done, _ = await asyncio.wait({future}, timeout=timeout)
        if not done:
            future.cancel()
            raise problems.busy(
                504, f"not done within {timeout:g} s; a write may have been, or may yet be, applied", 1.0
            )
        return future.result()

    async def _body(self, request: Request) -> bytes:
        chunks: list[bytes] = []

        async def read() -> None:
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
                _refuse_large(size, self.limits.body)
                chunks.append(chunk)

        _refuse_large(request.headers.get("content-length"), self.limits.body)
        try:
            await asyncio.wait_for(read(), self.limits.timeout)
        except TimeoutError:
            raise problems.invalid(408, f"the body did not arrive within {self.limits.timeout:g} s") from None
        return b"".join(chunks)

    async def _spool(self, request: Request, file: Any) -> None:
        size = 0
        _refuse_large(request.headers.get("content-length"), self.limits.upload)
        async for chunk in request.stream():
            size += len(chunk)
            _refuse_large(size, self.limits.upload)
            file.write(chunk)
        file.flush()

    # -- streams ---------------------------------------------------------------------------------------

    async def _import(self, request: Request, route: Route, bearer: Bearer) -> Response:
        asked = arguments(route, request, b"")

        def read(path: str) -> Response:
            try:
                return reply(200, route.encode(self.handle(bearer).import_json(path, **asked), {}))
            except InvalidInput as error:
                raise InvalidInput(str(error).replace(path, "the body")) from None

        with tempfile.NamedTemporaryFile(prefix="twofold-import-") as file:
            # First of nothing at all: who may not import is refused before gigabytes are taken in.
            with contextlib.suppress(InvalidInput):
                await self._within(lambda: read(file.name), reads=False)
            await self._spool(request, file)
            return await self._within(lambda: read(file.name), reads=False, long=True)

    def _export(self, mem: AgentMemory, asked: Mapping[str, Any]) -> Response:
        """Written to a file that has no name any more, then streamed: an error comes before the first byte."""
        with tempfile.TemporaryDirectory(prefix="twofold-export-") as folder:
            path = Path(folder) / "export.jsonl"
            mem.export_json(path, **asked)
            file = path.open("rb")

        async def chunks() -> AsyncIterator[bytes]:
            loop = asyncio.get_running_loop()
            with file:
                while data := await loop.run_in_executor(self._readers, file.read, CHUNK):
                    yield data

        return StreamingResponse(chunks(), media_type=openapi.LINES, headers=_HEADERS)

    # -- the server's own ------------------------------------------------------------------------------

    async def _whoami(self, request: Request) -> Response:
        request.state.route = "whoami"

        def work(mem: AgentMemory, _: bytes) -> Response:
            return reply(
                200,
                {
                    "tenant": mem.tenant,
                    "agent_id": mem.agent_id,
                    "role": None if mem.role is None else mem.role.value,
                    "namespace": mem.namespace,
                    "version": __version__,
                },
            )

        return await self.answer(request, work, reads=True)

    async def _alive(self, request: Request) -> Response:
        request.state.route = "alive"
        stopping = self._stop.is_set()
        return reply(503 if stopping else 200, {"status": "stopping" if stopping else "ok"})

    async def _metrics(self, request: Request) -> Response:
        request.state.route = "metrics"

        def work(mem: AgentMemory, _: bytes) -> Response:
            if mem.role is not None and "health" not in ROLE_TABLE[mem.role].actions:
                raise PermissionDenied(f"role {mem.role.value} may not see the server's metrics")
            return Response(self.metrics.text(), media_type=metrics.MEDIA_TYPE, headers=_HEADERS)

        return await self.answer(request, work, reads=True)

    async def _openapi(self, request: Request) -> Response:
        request.state.route = "openapi"
        return Response(self._document, media_type=JSON)

    async def _unrouted(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            refused = problems.Refused(NotFound, 404, "no such address; /openapi.json lists them")
        else:
            refused = problems.invalid(error.status_code, error.detail)
        status, body, headers = problems.problem(refused)
        return as_problem(status, body, {**headers, **(error.headers or {})})


class Watch:
    """Around the application: an access log line and metrics for every request, whatever became of it."""

    def __init__(self, server: Server, inner: ASGIApp) -> None:
        self._server = server
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        server = self._server
        state = scope.setdefault("state", {})
        started, status, size = server._now(), 500, 0

        async def watched(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        server.metrics.begin()
        try:
            await self._inner(scope, receive, watched)
        finally:
            seconds = server._now() - started
            route = state.get("route", "none")
            server.metrics.end(route, status, seconds)
            if ACCESS.isEnabledFor(logging.INFO):
                line = {
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": round(1000 * seconds, 2),
                    "bytes": size,
                    "key": state.get("key"),
                    "client": (scope.get("client") or ("?",))[0],
                }
                ACCESS.info("%s", json.dumps(line))


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. StoreError when the address cannot be had.

    Made here because asyncio switches Nagle's algorithm off only for sockets that name their protocol; with it
    on, every answer waits 40 ms for an acknowledgement.
    """
    made: socket.socket | None = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)  # from here on a client's connection waits for the server to start
    except OSError as error:
        if made is not None:
            made.close()
        raise StoreError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return made


# -- pieces -----------------------------------------------------------------------------------------------

_PYTHON: Final = {wire_name: name for name, wire_name in RENAMED.items()}
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def reply(
    status: int, body: Any, headers: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    """A JSON response."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(
        text.encode("utf-8", "backslashreplace"), status, {**_HEADERS, **(headers or {})}, media_type
    )


def as_problem(status: int, body: dict[str, Any], headers: Mapping[str, str]) -> Response:
    """A problem document."""
    return reply(status, body, headers, problems.MEDIA_TYPE)


def parse(raw: bytes) -> Any:
    """JSON values of a body; 400 when it is not JSON."""

    def refuse(name: str) -> Any:
        raise problems.invalid(400, f"the body has {name}, which is not JSON")

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except UnicodeDecodeError:
        raise problems.invalid(400, "the body is not UTF-8") from None
    except RecursionError:
        raise problems.invalid(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise problems.invalid(400, f"the body is not JSON: {error}") from None


def arguments(route: Route, request: Request, raw: bytes) -> dict[str, Any]:
    """The arguments of a call by name, checked against the table."""
    known = dict(route.fields) | dict(route.extra)
    asked: dict[str, Any] = {}
    if route.in_query:
        for name, text in request.query_params.multi_items():
            if name not in known or name in route.in_path:
                raise InvalidInput(f"unknown parameter {name!r}; there are {', '.join(known) or 'none'}")
            if name in asked:
                raise InvalidInput(f"{name} is given twice")
            asked[name] = schema.from_text(text, known[name], name)
    else:
        if request.url.query:
            raise InvalidInput("this address takes no query string; send a JSON body")
        asked = json_body(request, raw)
    for name in route.in_path:
        if name in asked:
            raise InvalidInput(f"{name} is in the path already")
        asked[name] = request.path_params[name]
    schema.check(asked, schema.object_of(known, route.required), "the body")
    return asked


def json_body(request: Request, raw: bytes) -> dict[str, Any]:
    """The body as an object; none at all is an empty one."""
    if not raw:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise problems.invalid(415, f"the body must be {JSON}, not {kind or 'of no type'}")
    body = parse(raw)
    if not isinstance(body, dict):
        raise InvalidInput("the body must be a JSON object")
    return body


def check_counter(mem: AgentMemory, asked: Mapping[str, Any]) -> None:
    """Refuse what only this machine may name: a counter that reads a file, a receipt that nobody here made."""
    known = {tokens.counter(None).name, "estimate", mem.config.token_counter}
    known.add(tokens.counter(mem.config.token_counter).name)
    name = asked.get("token_counter")
    receipt = asked.get("receipt")
    if isinstance(receipt, dict):
        body = {k: v for k, v in receipt.items() if k != "id"}
        digest = hashlib.sha256(audit.canonical(body).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        if receipt["id"] != digest:
            raise InvalidInput(
                "the receipt's id is not that of its content: it was altered, or is no receipt"
            )
        name = receipt.get("counter")
    if name is not None and name not in known:
        raise InvalidInput(f"token_counter must be one of {', '.join(sorted(known))} here, not {name!r}")


def _refuse_large(size: int | str | None, limit: int) -> None:
    if size is None:
        return
    if isinstance(size, str) and not (size.isascii() and size.isdigit()):
        raise problems.invalid(400, "content-length is not a number")
    if int(size) > limit:
        raise problems.invalid(413, f"the body is larger than {limit} bytes")
