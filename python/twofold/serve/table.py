"""The one table of the HTTP interface: a method of `AgentMemory`, its address, its arguments and its result.

The server, the OpenAPI document, both clients and docs/http.md are made from it, so they cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twofold.index.filters import Filters
from twofold.maintain import GcReport, MaintainReport
from twofold.model import Memory, Role, Visibility
from twofold.remember import FIELDS
from twofold.retrieve.fit import Fit
from twofold.retrieve.profile import COUNTS, DEFAULT_RANGE, FUSIONS, RANGES, Profile
from twofold.serve import wire
from twofold.serve.schema import Schema, nullable, object_of
from twofold.transfer import ImportReport
from twofold.verify import VerifyReport

PREFIX: Final = "/v1"
MAX_BATCH: Final = 1_000  # items of one request; the client cuts longer ones

# -- arguments ------------------------------------------------------------------------------------------

TEXT: Final[Schema] = {"type": "string", "minLength": 1}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
NAMES: Final[Schema] = {"type": "array", "items": {"type": "string"}}
INSTANT: Final[Schema] = {
    "type": "string",
    "minLength": 10,
    "description": "ISO 8601 with a zone, or a UTC day: 2026-03-12T10:30:00Z, 2026-03-12",
}
INSTANT_OR_US: Final[Schema] = {
    "anyOf": [INSTANT, {"type": "integer"}],
    "description": "ISO 8601 with a zone, a UTC day, or microseconds since 1970-01-01 UTC",
}
FLAG: Final[Schema] = {"type": "boolean"}
SHARE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}
VECTOR: Final[Schema] = {"type": "array", "items": {"type": "number"}, "maxItems": 16_384}
OBJECT: Final[Schema] = {"type": "object", "additionalProperties": True}
PLACES: Final[Schema] = {
    "anyOf": [NAME, {"type": "array", "items": NAME, "minItems": 1}],
    "description": 'a namespace, a prefix "build/*", or a list of them; ["*"] for all that may be read',
}
QUERY: Final[Schema] = {**TEXT, "maxLength": 20_000}
RECEIPT: Final[Schema] = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 64},
        {"type": "object", "additionalProperties": True, "required": ["id", "tenant", "agent_id"]},
    ],
    "description": "the id of a kept receipt, or a whole one",
}

MEMORY_FIELDS: Final[dict[str, Schema]] = {
    "content": {**TEXT, "maxLength": 2_000_000},
    "tags": nullable(NAMES),
    "memory_type": nullable({**TEXT, "maxLength": 100}),
    "namespace": nullable(NAME),
    "entities": nullable(NAMES),
    "key": nullable({"type": "string", "description": '"subject.attribute": one current value'}),
    "confidence": nullable(SHARE),
    "pinned": nullable(FLAG),
    "metadata": nullable(OBJECT),
    "event_date": nullable(INSTANT),
    "speaker": nullable({"type": "string"}),
    "visibility": nullable({"type": "string", "enum": [v.value for v in Visibility]}),
    "source_id": nullable({"type": "string"}),
    "session_id": nullable({"type": "string"}),
    "derived_from": nullable(NAMES),
    "valid_from": nullable(INSTANT),
    "valid_to": nullable(INSTANT),
    "supersedes": nullable({"anyOf": [{"type": "string"}, NAMES]}),
    "vector": nullable(VECTOR),
}
assert set(MEMORY_FIELDS) == set(FIELDS)
ITEM: Final[Schema] = object_of(MEMORY_FIELDS, ("content",))
UPDATABLE: Final = {
    n: s for n, s in MEMORY_FIELDS.items() if n not in ("namespace", "supersedes", "vector", "valid_to")
}

_ANY_OF_THESE: Final[Schema] = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
FILTERS: Final[dict[str, Schema]] = {
    "memory_types": nullable(_ANY_OF_THESE),
    "tags": nullable(_ANY_OF_THESE),
    "entities": nullable(_ANY_OF_THESE),
    "speakers": nullable(_ANY_OF_THESE),
    "sessions": nullable(_ANY_OF_THESE),
    "agents": nullable(_ANY_OF_THESE),
    "keys": nullable(_ANY_OF_THESE),
    "metadata": nullable(OBJECT),
    "min_confidence": nullable(SHARE),
    "pinned": nullable(FLAG),
    "event_after": nullable(INSTANT_OR_US),
    "event_before": nullable(INSTANT_OR_US),
    "recorded_after": nullable(INSTANT_OR_US),
    "recorded_before": nullable(INSTANT_OR_US),
}
assert set(FILTERS) == set(Filters.__dataclass_fields__)
# What `Filters.of` also understands; the client's keyword arguments may use these names.
_ALIASES: Final = {
    "memory_type": "memory_types",
    "type": "memory_types",
    "tag": "tags",
    "entity": "entities",
    "speaker": "speakers",
    "session_id": "sessions",
    "session": "sessions",
    "agent_id": "agents",
    "key": "keys",
    "confidence": "min_confidence",
}
FILTERS_AND_ALIASES: Final = FILTERS | {alias: FILTERS[name] for alias, name in _ALIASES.items()}


def _constant(name: str) -> Schema:
    """The range of a profile's constant, as `Profile` checks it."""
    low, high = RANGES.get(name, DEFAULT_RANGE)
    return {"type": "integer" if name in COUNTS else "number", "minimum": low, "maximum": high}


_CONSTANTS: Final[dict[str, Schema]] = {
    **{f: _constant(f) for f in Profile.__dataclass_fields__ if f not in ("name", "fusion")},
    "fusion": {"type": "string", "enum": list(FUSIONS)},
    "mmr_lambda": nullable(_constant("mmr_lambda")),
}

TIMES: Final[dict[str, Schema]] = {"as_of": nullable(INSTANT), "known_at": nullable(INSTANT)}
ASKED: Final[dict[str, Schema]] = {
    "k": {"type": "integer", "minimum": 1, "maximum": 10_000},
    "budget": nullable({"type": "integer", "minimum": 0, "maximum": 2**31, "description": "tokens"}),
    **TIMES,
    "now": nullable(INSTANT),
    "namespaces": nullable(PLACES),
    "filters": nullable(object_of(FILTERS_AND_ALIASES)),
    "profile": nullable(
        {
            "anyOf": [TEXT, object_of(_CONSTANTS)],
            "description": "a profile's name (default, rrf, base, bm25, vector), or constants to change",
        }
    ),
    "include_faded": nullable(FLAG),
    "token_counter": nullable({**TEXT, "description": '"estimate", or the counter the server is set to'}),
    "vector": nullable(VECTOR),
}
RECALLED: Final = {**ASKED, "promote": FLAG, "keep": FLAG}
WITH: Final[dict[str, Schema]] = {
    "with": {
        "type": "array",
        "items": {"type": "string", "enum": ["trace", "receipt"]},
        "description": "what the answer shall carry besides the hits",
    }
}

# -- the table ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """One method over HTTP.

    Arguments named in the path come from there; those of a GET from the query string; the rest from a JSON
    body. `reads`: it changes nothing that a second call would change again, so a client may retry it.
    `encode` makes JSON values of the method's result (given the arguments too), `decode` the result again.
    `extra`: arguments of the wire alone, for `encode`. `lines`: the body (import) or the answer (export) is a
    stream of JSON lines. `absent`: NotFound means that the method returns None.
    """

    name: str
    method: str
    address: str
    summary: str
    fields: Mapping[str, Schema]
    result: Schema
    encode: Callable[[Any, Mapping[str, Any]], Any]
    decode: Callable[[Any], Any]
    required: tuple[str, ...] = ()
    reads: bool = False
    extra: Mapping[str, Schema] = field(default_factory=dict)
    lines: str | None = None  # "in", "out"
    absent: bool = False

    @property
    def path(self) -> str:
        """The whole path, with its parameters in braces."""
        return PREFIX + self.address

    @property
    def in_path(self) -> tuple[str, ...]:
        """Names of the arguments in the path."""
        return tuple(part[1:-1] for part in self.address.split("/") if part.startswith("{"))

    @property
    def in_query(self) -> bool:
        """Whether the arguments come in the query string."""
        return self.method == "GET" or self.lines is not None


# Wire names that differ from the method's own.
RENAMED: Final = {"query_text": "query"}


def _report(cls: type) -> tuple[Schema, Callable[[Any, Any], Any], Callable[[Any], Any]]:
    return wire.named(cls), lambda value, _: wire.to_json(value), lambda body: wire.from_json(cls, body)


def _memory() -> tuple[Schema, Callable[[Any, Any], Any], Callable[[Any], Any]]:
    return _report(Memory)


_MEMORIES: Final = (wire.MEMORIES, wire.memories_out, wire.memories_in)
_OBJECT: Final = (OBJECT, lambda value, _: wire.to_json(value), lambda body: body)
_NOTHING: Final = (object_of({"ok": {"const": True}}, ("ok",)), lambda _, __: {"ok": True}, lambda _: None)
_RECALL: Final = (wire.RECALL, wire.recall_out, wire.recall_in)

TABLE: Final[tuple[Route, ...]] = (
    Route(
        "add", "POST", "/memories", "Store one memory",
        {**MEMORY_FIELDS, "dry_run": FLAG}, *wire.ADDED, required=("content",),
    ),
    Route(
        "add_many", "POST", "/memories/batch", "Store many memories in one transaction",
        {"items": {"type": "array", "maxItems": MAX_BATCH, "items": {"anyOf": [ITEM, MEMORY_FIELDS["content"]]}}},
        *_MEMORIES, required=("items",),
    ),
    Route(
        "get", "GET", "/memories/{memory_id}", "One memory by id",
        {"memory_id": ID, **TIMES}, *_memory(), required=("memory_id",), reads=True, absent=True,
    ),
    Route(
        "update", "PATCH", "/memories/{memory_id}", "Correct a memory: a new version under the same id",
        {"memory_id": ID, **UPDATABLE}, *_memory(), required=("memory_id",),
    ),
    Route(
        "history", "GET", "/memories/{memory_id}/history", "Every version of a memory, oldest first",
        {"memory_id": ID, "known_at": nullable(INSTANT)}, *_MEMORIES, required=("memory_id",), reads=True,
    ),
    Route(
        "why", "GET", "/memories/{memory_id}/why", "Where a memory comes from and what happened to it",
        {"memory_id": ID}, *wire.WHY, required=("memory_id",), reads=True,
    ),
    Route(
        "forget", "POST", "/memories/{memory_id}/forget", "Retract a memory",
        {"memory_id": ID}, *_memory(), required=("memory_id",),
    ),
    Route(
        "restore", "POST", "/memories/{memory_id}/restore", "Undo a retraction, or else a supersession",
        {"memory_id": ID}, *_memory(), required=("memory_id",),
    ),
    Route(
        "flag", "POST", "/memories/{memory_id}/flag", "Ask for a review of a memory",
        {"memory_id": ID, "reason": TEXT}, *_NOTHING, required=("memory_id", "reason"),
    ),
    Route(
        "erase", "POST", "/memories/{memory_id}/erase", "Remove a memory's content for good (owner)",
        {"memory_id": ID, "reason": TEXT}, *wire.ERASURE, required=("memory_id", "reason"),
    ),
    Route(
        "erase_where", "POST", "/erase", "Erase all that matches; counts only, unless dry_run is false (owner)",
        {
            "namespace": nullable(NAME), "agent_id": nullable(NAME), "source_id": nullable(TEXT),
            "session_id": nullable(TEXT), "everything": FLAG, "reason": {"type": "string"}, "dry_run": FLAG,
        },
        *wire.ERASURE,
    ),
    Route(
        "supersede", "POST", "/supersede", "End the validity of one memory in favour of another",
        {"old_id": ID, "new_id": ID, "at": nullable(INSTANT), "dry_run": FLAG},
        *wire.DECISION, required=("old_id", "new_id"),
    ),
    Route(
        "link", "POST", "/links", "Relate two memories",
        {
            "a": ID, "b": ID, "relation": {**TEXT, "maxLength": 100},
            "weight": {"type": "number", "minimum": -1e308, "maximum": 1e308},
        },
        *_NOTHING, required=("a", "b"),
    ),
    Route(
        "recall", "POST", "/recall", "The memories that answer a query best, within a token budget",
        {"query": QUERY, **RECALLED}, *_RECALL, required=("query",), reads=True, extra=WITH,
    ),
    Route(
        "recall_as_context", "POST", "/context", "The same as labelled text to paste as data",
        {"query": QUERY, **RECALLED}, *wire.CONTEXT, required=("query",), reads=True,
    ),
    Route(
        "explain", "POST", "/explain", "Why a memory is, or is not, among the answers",
        {"query": QUERY, "memory_id": ID, **ASKED},
        *wire.EXPLANATION, required=("query", "memory_id"), reads=True, extra=WITH,
    ),
    Route(
        "replay", "POST", "/replay", "Evaluate a receipt again on the state it was made on",
        {"receipt": RECEIPT}, *wire.REPLAY, required=("receipt",), reads=True, extra=WITH,
    ),
    Route(
        "feedback", "POST", "/feedback", "Log which of a recall's memories were useful",
        {"receipt": RECEIPT, "useful": NAMES, "useless": NAMES}, *_NOTHING, required=("receipt",),
    ),
    Route(
        "fit_profile", "POST", "/fit", "Fit a profile's weights to the feedback on kept receipts; nothing is written",
        {"profile": ASKED["profile"]}, *_report(Fit), reads=True,
    ),
    Route("receipts", "GET", "/receipts", "Ids and seqs of the kept receipts", {}, *wire.RECEIPTS, reads=True),
    Route(
        "search", "POST", "/search", "Memories by filter alone, newest first",
        {
            "namespaces": nullable(PLACES), "limit": nullable({"type": "integer", "minimum": 0, "maximum": 10**9}),
            **TIMES, "include_closed": FLAG, "include_superseded": FLAG, **FILTERS_AND_ALIASES,
        },
        *_MEMORIES, reads=True,
    ),
    Route(
        "current_facts", "POST", "/facts", "What is known and true now, or at as_of, oldest first",
        {"namespaces": nullable(PLACES), **TIMES, **FILTERS_AND_ALIASES}, *_MEMORIES, reads=True,
    ),
    Route(
        "timeline", "POST", "/timeline", "Everything known about an entity, in the order it became true",
        {"entity": TEXT, "namespaces": nullable(PLACES), **TIMES}, *_MEMORIES, required=("entity",), reads=True,
    ),
    Route(
        "maintain", "POST", "/maintain", "Write out what has faded; once per UTC day",
        {"now": nullable(INSTANT), "dry_run": FLAG}, *_report(MaintainReport),
    ),
    Route(
        "gc", "POST", "/gc", "Archive what has faded; a preview, unless dry_run is false (owner)",
        {"dry_run": FLAG, "generations": FLAG}, *_report(GcReport),
    ),
    Route("flush", "POST", "/flush", "Commit the access events that wait", {}, *_NOTHING),
    Route(
        "verify", "GET", "/verify", "Walk the hash chain and re-hash what is stored",
        {"expected_head": nullable({**TEXT, "maxLength": 100})}, *_report(VerifyReport), reads=True,
    ),
    Route(
        "audit", "GET", "/audit", "The log: who did what, when",
        {
            "after": {"type": "integer", "minimum": 0, "maximum": 10**15},
            "limit": nullable({"type": "integer", "minimum": 0, "maximum": 10**9}),
        },
        *wire.EVENTS, reads=True,
    ),
    Route("health", "GET", "/health", "Whether each part works", {}, *wire.HEALTH, reads=True),
    Route("stats", "GET", "/stats", "Counts of what the key may see", {}, *_OBJECT, reads=True),
    Route(
        "export_json", "GET", "/export", "What the key may see, as a stream of JSON lines",
        {"vectors": FLAG}, *_OBJECT, reads=True, lines="out",
    ),
    Route(
        "import_json", "POST", "/import", "Read an export: a stream of JSON lines (owner)",
        {"dry_run": FLAG}, *_report(ImportReport), lines="in",
    ),
)  # fmt: skip

ROUTES: Final = {route.name: route for route in TABLE}

# Public names of AgentMemory that are not in the table, and why. A test holds the two complete.
EXCLUDED: Final = {
    "as_agent": "narrowing travels with each request, in the header Twofold-As; the key bounds it",
    "read_only": "the same",
    "close": "closes the client's connections",
    "backup": "writes a file on the server's machine: run `twofold backup` there, or use /v1/export",
    "reembed": "runs for long and changes the embedder the server was opened with: stop it, run `twofold reembed`",
    "doctor": "looks at the server of the store as a whole, beyond any key: run `twofold doctor` there",
    "tenant": "GET /v1/whoami",
    "namespace": "GET /v1/whoami",
    "agent_id": "GET /v1/whoami",
    "role": "GET /v1/whoami",
    "embedder": "the server's own; its fingerprint is in /v1/health",
    "clock": "the server's own",
    "config": "the server's own",
}

# One step of narrowing in the header Twofold-As: the arguments of `as_agent`, or {"read_only": true} alone.
NARROWING: Final = object_of(
    {
        "agent_id": NAME,
        "role": {"type": "string", "enum": [r.value for r in Role]},
        "namespaces": nullable(PLACES),
        "namespace": nullable(NAME),
        "write_quota": nullable({"type": "integer", "minimum": 0, "maximum": 10**12}),
        "read_only": FLAG,
    }
)
AS_HEADER: Final = "twofold-as"

WHOAMI: Final = object_of(
    {
        "tenant": {"type": "string"},
        "agent_id": {"type": "string"},
        "role": {"type": ["string", "null"]},
        "namespace": {"type": ["string", "null"]},
        "version": {"type": "string"},
    },
    ("tenant", "agent_id", "role", "namespace", "version"),
)

__all__ = [
    "AS_HEADER", "EXCLUDED", "MAX_BATCH", "NARROWING", "PREFIX", "RENAMED", "ROUTES", "TABLE", "WHOAMI", "Route",
]  # fmt: skip
