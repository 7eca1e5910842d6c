"""The eight REST routes of Memwright 2.0.6, with its envelope {"ok": true, "data": ...}, on a Twofold store.

Names are mapped, nothing else: category is memory_type, entity the first of entities. Keys, limits and roles are
those of the server. Unlike the peer's, bad input is answered with 4xx and no namespace means the key's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twofold.clock import iso, to_us
from twofold.errors import InvalidInput, NotFound
from twofold.model import Memory
from twofold.serve import problems, schema
from twofold.serve.table import FLAG, ID, INSTANT, NAME, NAMES, OBJECT, QUERY, SHARE, TEXT

if TYPE_CHECKING:
    from twofold.memory import AgentMemory
    from twofold.recall import Hit
    from twofold.serve.app import Server

DEFAULT_BUDGET: Final = 16_000
MOST: Final = 50  # hits of one recall; the budget usually ends it before
STATUSES: Final = ("active", "superseded", "archived")
SOURCES: Final = {"lexical": "tag", "tags": "tag", "graph": "graph", "vector": "vector"}

Handler = Callable[["AgentMemory", dict[str, Any]], Any]

_OPTIONAL: Final = {
    "category": schema.nullable({**TEXT, "maxLength": 100}),
    "entity": schema.nullable(TEXT),
    "namespace": schema.nullable(NAME),
}
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "add": {
        **_OPTIONAL,
        "content": {"type": "string"},
        "tags": schema.nullable(NAMES),
        "event_date": schema.nullable(INSTANT),
        "confidence": schema.nullable(SHARE),
        "metadata": schema.nullable(OBJECT),
    },
    "recall": {
        "query": {**QUERY, "minLength": 0},
        "budget": schema.nullable({"type": "integer", "minimum": 0, "maximum": 2**31}),
        "namespace": _OPTIONAL["namespace"],
    },
    "search": {
        **_OPTIONAL,
        "query": schema.nullable({**QUERY, "minLength": 0}),
        "status": schema.nullable({"type": "string", "enum": list(STATUSES)}),
        "after": schema.nullable(INSTANT),
        "before": schema.nullable(INSTANT),
        "limit": schema.nullable({"type": "integer", "minimum": 0, "maximum": 10_000}),
    },
    "timeline": {"entity": {"type": "string"}, "namespace": _OPTIONAL["namespace"]},
    "forget": {"memory_id": {**ID, "minLength": 0}},
    "health": {"deep": FLAG},
}


def memory_dict(memory: Memory) -> dict[str, Any]:
    """A memory in the peer's fields."""

    def when(value: Any) -> str | None:
        return None if value is None else iso(to_us(value))

    return {
        "id": memory.id,
        "content": memory.content,
        "tags": list(memory.tags),
        "category": memory.memory_type,
        "entity": memory.entities[0] if memory.entities else None,
        "namespace": memory.namespace,
        "created_at": when(memory.recorded_at),
        "event_date": when(memory.event_date),
        "valid_from": when(memory.valid_from),
        "valid_until": when(memory.valid_to),
        "superseded_by": memory.superseded_by,
        "confidence": memory.confidence,
        "status": status_of(memory),
        "access_count": memory.access_count,
        "last_accessed": when(memory.last_accessed_at),
        "content_hash": memory.content_hash,
        "metadata": dict(memory.metadata),
    }


def status_of(memory: Memory) -> str:
    """active, superseded or archived."""
    return "archived" if memory.closed_at else "superseded" if memory.superseded_by else "active"


def _given(body: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Fields that are there and not null, under our names."""
    return {ours: body[theirs] for ours, theirs in names.items() if body.get(theirs) is not None}


def _entities(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"entities": [body["entity"]]} if body.get("entity") else {}


def add(mem: AgentMemory, body: dict[str, Any]) -> Any:
    fields = _given(
        body,
        tags="tags",
        memory_type="category",
        namespace="namespace",
        event_date="event_date",
        confidence="confidence",
        metadata="metadata",
    )
    return memory_dict(mem.add(body["content"], **fields, **_entities(body)))


def recall(mem: AgentMemory, body: dict[str, Any]) -> Any:
    found = mem.recall(
        body["query"],
        k=MOST,
        budget=body.get("budget") or DEFAULT_BUDGET,
        **_given(body, namespaces="namespace"),
    )
    return [_result(hit) for hit in found]


def _result(hit: Hit) -> dict[str, Any]:
    best = min(hit.sources, key=lambda name: (hit.sources[name], name), default="vector")
    return {
        "content": hit.content,
        "score": hit.score,
        "source": SOURCES[best],
        "id": hit.memory.id,
        "memory": memory_dict(hit.memory),
    }


def search(mem: AgentMemory, body: dict[str, Any]) -> Any:
    status = body.get("status") or "active"
    limit = 10 if body.get("limit") is None else body["limit"]
    filters = _given(body, memory_types="category", recorded_after="after", recorded_before="before")
    filters |= _entities(body)
    where = _given(body, namespaces="namespace")
    if body.get("query") and status == "active":
        hits = mem.recall(body["query"], k=max(1, limit), filters=filters, promote=False, **where)
        return [memory_dict(h.memory) for h in hits[:limit]]
    found = mem.search(
        limit=limit if status == "active" else None,
        include_closed=status == "archived",
        include_superseded=status != "active",
        **where,
        **filters,
    )
    return [memory_dict(m) for m in found if status_of(m) == status][:limit]


def timeline(mem: AgentMemory, body: dict[str, Any]) -> Any:
    return [memory_dict(m) for m in mem.timeline(body["entity"], **_given(body, namespaces="namespace"))]


def forget(mem: AgentMemory, body: dict[str, Any]) -> Any:
    try:
        mem.forget(body["memory_id"])
    except NotFound:
        return {"forgotten": False}
    return {"forgotten": True}


def get(mem: AgentMemory, body: dict[str, Any]) -> Any:
    found = mem.get(body["memory_id"])
    if found is None:
        raise NotFound("not found")
    return memory_dict(found)


def health(mem: AgentMemory, _: dict[str, Any]) -> Any:
    found = mem.health()
    checks = [{**c, "status": "ok" if c["ok"] else "error"} for c in found["checks"]]
    return {"healthy": found["healthy"], "checks": checks}


def stats(mem: AgentMemory, _: dict[str, Any]) -> Any:
    found = mem.stats()
    return {
        "total_memories": found["memories"],
        "by_status": {"active": found["current"], "superseded": found["memories"] - found["current"]},
        "by_category": found["by_type"],
        "db_size_bytes": found.get("bytes", 0),
    }


_REQUIRED: Final = {"add": "content", "recall": "query", "timeline": "entity", "forget": "memory_id"}


def routes(server: Server) -> list[Route]:
    """The peer's addresses; they stand before the server's own /health."""
    return [
        _route(server, "/health", "GET", health, reads=True),
        _route(server, "/stats", "GET", stats, reads=True),
        _route(server, "/add", "POST", add, reads=False),
        _route(server, "/recall", "POST", recall, reads=True),
        _route(server, "/search", "POST", search, reads=True),
        _route(server, "/timeline", "POST", timeline, reads=True),
        _route(server, "/forget", "POST", forget, reads=False),
        _route(server, "/memory/{memory_id}", "GET", get, reads=True),
    ]


def _route(server: Server, path: str, method: str, handler: Handler, *, reads: bool) -> Route:
    from twofold.serve.app import json_body, reply

    name = handler.__name__

    def told(status: int, body: dict[str, Any], headers: Mapping[str, str]) -> Response:
        return reply(status, {"ok": False, "error": body["detail"]}, headers)

    def work_on(request: Request) -> Callable[[AgentMemory, bytes], Response]:
        def work(mem: AgentMemory, raw: bytes) -> Response:
            body = {**request.path_params} if method == "GET" else json_body(request, raw)
            needed = _REQUIRED.get(name)
            if needed and not body.get(needed):
                raise problems.invalid(400, f"{needed} is required")
            try:
                schema.check(body, {"properties": _FIELDS.get(name, {})}, "the body")
            except InvalidInput as error:
                raise problems.invalid(400, str(error)) from None
            return reply(200, {"ok": True, "data": handler(mem, body)})

        return work

    async def endpoint(request: Request) -> Response:
        request.state.route = f"memwright:{name}"
        return await server.answer(request, work_on(request), reads=reads, told=told)

    made: Callable[[Request], Awaitable[Response]] = endpoint
    return Route(path, made, methods=[method])
