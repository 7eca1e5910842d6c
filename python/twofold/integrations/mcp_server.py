"""A `Face` served by the official `mcp` SDK, versions 1.x and 2.x, over stdio and streamable HTTP.

The two differ in how handlers are registered and in the spelling of fields; results are made from the protocol's
own JSON, which both read, so that every handler is written once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from mcp import types as _types
from mcp.server import lowlevel
from mcp.shared import exceptions
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from twofold.errors import InvalidInput, NotFound, TwofoldError
from twofold.integrations.mcp_face import Answer, Face, Seat

__all__ = ["PATH", "SDK_MAJOR", "http_app", "make_server", "run_stdio"]

# What the two versions have under one name differs in type; neither is checked against the other.
types: Any = _types
Server: Any = lowlevel.Server
_exceptions: Any = exceptions

SDK_MAJOR: Final = 1 if hasattr(Server, "list_tools") else 2
PATH: Final = "/mcp"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# The 2025 protocols' code for a missing resource; since 2026-07-28 it is invalid params.
RESOURCE_MISSING: Final = -32002 if SDK_MAJOR == 1 else INVALID_PARAMS

SeatOf = Callable[[Request | None], Seat]
"""The seat of whoever sent a request; None is stdio, where there is one caller."""

log = logging.getLogger("twofold.mcp")


def protocol_error(code: int, message: str, data: Any = None) -> Exception:
    """The SDK's exception that becomes a JSON-RPC error."""
    if SDK_MAJOR == 1:
        return cast("Exception", _exceptions.McpError(types.ErrorData(code=code, message=message, data=data)))
    return cast("Exception", _exceptions.MCPError(code=code, message=message, data=data))


class _Handlers:
    """The methods of the protocol over a face: parameters in, results in the protocol's JSON out."""

    def __init__(self, face: Face, seat_of: SeatOf) -> None:
        self.face = face
        self.seat_of = seat_of

    async def list_tools(self, _: Any, __: Request | None) -> dict[str, Any]:
        return {"tools": [tool.declared() for tool in self.face.tools]}

    async def call_tool(self, params: Any, request: Request | None) -> dict[str, Any]:
        answer: Answer = await self._run(
            lambda seat: self.face.call(seat, params.name, params.arguments or {}), request
        )
        out: dict[str, Any] = {"content": list(answer.content), "isError": answer.error}
        if answer.structured is not None:
            out["structuredContent"] = answer.structured
        return out

    async def list_resources(self, _: Any, request: Request | None) -> dict[str, Any]:
        found = await self._run(self.face.resources, request)
        return {"resources": [r.declared() for r in found]}

    async def list_templates(self, _: Any, __: Request | None) -> dict[str, Any]:
        return {"resourceTemplates": [t.declared() for t in self.face.templates]}

    async def read_resource(self, params: Any, request: Request | None) -> dict[str, Any]:
        uri = str(params.uri)
        contents = await self._run(
            lambda seat: self.face.read(seat, uri), request, missing=RESOURCE_MISSING, data={"uri": uri}
        )
        return {"contents": contents}

    async def list_prompts(self, _: Any, __: Request | None) -> dict[str, Any]:
        return {"prompts": [p.declared() for p in self.face.prompts]}

    async def get_prompt(self, params: Any, request: Request | None) -> dict[str, Any]:
        prompt, messages = await self._run(
            lambda seat: self.face.prompt(seat, params.name, params.arguments or {}), request
        )
        return {"description": prompt.description, "messages": messages}

    async def complete(self, params: Any, request: Request | None) -> dict[str, Any]:
        reference = params.ref.model_dump(mode="json", by_alias=True)
        argument = {"name": params.argument.name, "value": params.argument.value}
        values = await self._run(lambda seat: self.face.complete(seat, reference, argument), request)
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}

    async def _run(
        self,
        work: Callable[[Seat], Any],
        request: Request | None,
        *,
        missing: int = INVALID_PARAMS,
        data: Any = None,
    ) -> Any:
        """Work in a thread, so that requests do not wait for each other; errors become protocol errors."""
        seat = self.seat_of(request)
        try:
            return await anyio.to_thread.run_sync(work, seat)
        except NotFound as error:
            raise protocol_error(missing, f"NotFound: {error}", data) from None
        except InvalidInput as error:
            raise protocol_error(INVALID_PARAMS, f"{type(error).__name__}: {error}", data) from None
        except TwofoldError as error:
            raise protocol_error(INTERNAL_ERROR, f"{type(error).__name__}: {error}", data) from None


def make_server(face: Face, seat_of: SeatOf) -> Any:
    """The SDK's low-level server for a face."""
    handlers = _Handlers(face, seat_of)
    methods: list[tuple[str, str, Callable[[Any, Request | None], Awaitable[dict[str, Any]]], str]] = [
        ("list_tools", "ListToolsRequest", handlers.list_tools, "ListToolsResult"),
        ("call_tool", "CallToolRequest", handlers.call_tool, "CallToolResult"),
        ("list_resources", "ListResourcesRequest", handlers.list_resources, "ListResourcesResult"),
        (
            "list_resource_templates",
            "ListResourceTemplatesRequest",
            handlers.list_templates,
            "ListResourceTemplatesResult",
        ),
        ("read_resource", "ReadResourceRequest", handlers.read_resource, "ReadResourceResult"),
        ("list_prompts", "ListPromptsRequest", handlers.list_prompts, "ListPromptsResult"),
        ("get_prompt", "GetPromptRequest", handlers.get_prompt, "GetPromptResult"),
        ("completion", "CompleteRequest", handlers.complete, "CompleteResult"),
    ]
    if SDK_MAJOR == 1:
        server = Server(face.name, version=face.version or None, instructions=face.instructions)
        for _, request_type, handler, result_type in methods:
            server.request_handlers[getattr(types, request_type)] = _first(
                server, handler, getattr(types, result_type)
            )
        return server
    chosen = {f"on_{name}": _second(handler, getattr(types, result)) for name, _, handler, result in methods}
    return Server(face.name, version=face.version, instructions=face.instructions, **chosen)


def _first(server: Any, handler: Any, result: Any) -> Any:
    """A handler as SDK 1.x keeps it: one request object in, a ServerResult out."""

    async def handle(message: Any) -> Any:
        made = await handler(message.params, server.request_context.request)
        return types.ServerResult(result.model_validate(made))

    return handle


def _second(handler: Any, result: Any) -> Any:
    """A handler as SDK 2.x takes it: context and parameters in, a result out."""

    async def handle(context: Any, params: Any) -> Any:
        return result.model_validate(await handler(params, context.request))

    return handle


# -- transports ---------------------------------------------------------------------------------------


def run_stdio(face: Face, seat: Seat) -> None:
    """Serve one client over standard input and output until it hangs up."""
    from mcp.server.stdio import stdio_server

    server = make_server(face, lambda _: seat)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


class _Guard:
    """Lets a request through once `admit` has found its seat; 401 otherwise."""

    def __init__(self, app: ASGIApp, admit: Callable[[str | None], Seat | None]) -> None:
        self.app = app
        self.admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seat = await anyio.to_thread.run_sync(self.admit, bearer_of(scope))
            if seat is None:
                body = {
                    "error": "PermissionDenied",
                    "message": "a key is needed: Authorization: Bearer tf_...",
                }
                refusal = JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
            scope["twofold.seat"] = seat
        await self.app(scope, receive, send)


def bearer_of(scope: Scope) -> str | None:
    """The bearer token of a request, or None."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return cast("str", token.strip())
    return None


def _seat_of(request: Request | None) -> Seat:
    if request is None:
        raise protocol_error(INTERNAL_ERROR, "the request has no HTTP context")
    return cast("Seat", request.scope["twofold.seat"])


def http_app(
    face: Face,
    admit: Callable[[str | None], Seat | None],
    *,
    host: str = "127.0.0.1",
    stateless: bool = False,
) -> Starlette:
    """The streamable HTTP app, at /mcp.

    admit: the seat for a bearer token (None: no token was sent), or None to refuse the request.
    On loopback, requests that name another host or origin are refused (DNS rebinding).
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings

    here = [f"{h}:*" for h in ("127.0.0.1", "localhost", "[::1]")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=host in LOOPBACK,
        allowed_hosts=here,
        allowed_origins=[f"http://{h}" for h in here],
    )
    manager = StreamableHTTPSessionManager(
        make_server(face, _seat_of), stateless=stateless, security_settings=security
    )

    class Endpoint:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await manager.handle_request(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(
        routes=[Route(PATH, endpoint=Endpoint())],
        middleware=[Middleware(_Guard, admit=admit)],
        lifespan=lifespan,
    )
