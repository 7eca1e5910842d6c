"""The OpenAPI 3.1 document of the table."""

from __future__ import annotations

from typing import Any, Final

from twofold.core import __version__
from twofold.serve import problems, wire
from twofold.serve.schema import Schema, object_of
from twofold.serve.table import NARROWING, PREFIX, TABLE, WHOAMI, Route

LINES: Final = "application/x-ndjson"

_PROBLEM: Final = {
    "description": "what went wrong, by the name of the exception in `twofold.errors`",
    "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_STATUSES: Final = (400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 503, 504)


def document() -> dict[str, Any]:
    """The whole document, as JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for route in TABLE:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths[f"{PREFIX}/whoami"] = {
        "get": {
            "operationId": "whoami",
            "summary": "Which handle the key gives",
            "parameters": [_NARROW],
            "responses": _responses(_json(WHOAMI)),
        }
    }
    paths["/health"] = {
        "get": {
            "operationId": "alive",
            "summary": "Whether the server answers; needs no key",
            "security": [],
            "responses": {
                "200": _json(object_of({"status": {"const": "ok"}}, ("status",))),
                "503": _json(object_of({"status": {"const": "stopping"}}, ("status",))),
                "405": _PROBLEM,
            },
        }
    }
    paths["/metrics"] = {
        "get": {
            "operationId": "metrics",
            "summary": "Counts and latencies, Prometheus text; needs a key that may see health",
            "responses": _responses(
                {"description": "metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}
            ),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Twofold",
            "version": __version__,
            "description": "Memory for AI agents: the methods of AgentMemory over HTTP. Every operation under /v1 "
            "takes the header Twofold-As that whoami describes.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "made by `twofold keys add`"}
            },
            "schemas": {"Problem": problems.SCHEMA, "Narrowing": NARROWING, **wire.COMPONENTS},
        },
    }


# How a header with JSON in it is described; an array of Narrowing steps.
_NARROW: Final = {
    "name": "Twofold-As",
    "in": "header",
    "required": False,
    "description": "act as a narrower handle: a JSON array of steps, each the arguments of as_agent",
    "content": {
        "application/json": {
            "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Narrowing"}, "maxItems": 8}
        }
    },
}


def _json(schema: Schema) -> dict[str, Any]:
    return {"description": "done", "content": {"application/json": {"schema": schema}}}


def _responses(done: dict[str, Any]) -> dict[str, Any]:
    return {"200": done, **{str(s): _PROBLEM for s in _STATUSES}}


def _operation(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": n, "in": "path", "required": True, "schema": route.fields[n]} for n in route.in_path
    ]
    rest = {n: s for n, s in route.fields.items() if n not in route.in_path} | dict(route.extra)
    done = _json(route.result)
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.in_query:
        for name, schema in rest.items():
            plain = {**schema, "type": _not_null(schema["type"])} if "type" in schema else schema
            parameters.append(
                {"name": name, "in": "query", "required": name in route.required, "schema": plain}
            )
    elif rest:
        needed = tuple(n for n in route.required if n in rest)
        operation["requestBody"] = {
            "required": bool(needed),
            "content": {"application/json": {"schema": object_of(rest, needed)}},
        }
    if route.lines == "in":
        operation["requestBody"] = {
            "required": True,
            "content": {
                LINES: {"schema": {"type": "string", "description": "a Twofold export"}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    if route.lines == "out":
        done = {"description": "JSON lines", "content": {LINES: {"schema": {"type": "string"}}}}
    operation["parameters"] = parameters
    operation["responses"] = _responses(done)
    return operation


def _not_null(kinds: str | list[str]) -> str:
    return kinds if isinstance(kinds, str) else next(k for k in kinds if k != "null")
