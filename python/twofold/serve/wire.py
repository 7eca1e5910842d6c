"""Results of `AgentMemory` as JSON values and back, with their schemas. The client gets the same objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twofold.erase import Erasure
from twofold.explain import Explanation, Why
from twofold.model import Memory
from twofold.recall import Hit, Recall, Trace
from twofold.receipt import Receipt, StoredReceipt, stored
from twofold.remember import Decision
from twofold.replay import Replay
from twofold.serve.schema import Schema, from_json, nullable, object_of, schema_of, to_json

Codec = tuple[Schema, Callable[[Any, Mapping[str, Any]], Any], Callable[[Any], Any]]

COMPONENTS: Final[dict[str, Schema]] = {}


def named(cls: type) -> Schema:
    """The schema of a dataclass, as a reference to a component."""
    return schema_of(cls, COMPONENTS)


# -- memories -------------------------------------------------------------------------------------------

MEMORIES: Final = object_of({"memories": {"type": "array", "items": named(Memory)}}, ("memories",))


def memories_out(found: list[Memory], _: Mapping[str, Any]) -> Any:
    return {"memories": [to_json(m) for m in found]}


def memories_in(body: Any) -> list[Memory]:
    return [from_json(Memory, m) for m in body["memories"]]


_DECISIONS: Final = object_of({"decisions": {"type": "array", "items": named(Decision)}}, ("decisions",))


def _added_out(value: Any, _: Mapping[str, Any]) -> Any:
    return {"decisions": to_json(value)} if isinstance(value, list) else to_json(value)


def _added_in(body: Any) -> Any:
    if "decisions" in body:
        return [from_json(Decision, d) for d in body["decisions"]]
    return from_json(Memory, body)


ADDED: Final[Codec] = ({"anyOf": [named(Memory), _DECISIONS]}, _added_out, _added_in)


def _plain(cls: type) -> Codec:
    return named(cls), lambda value, _: to_json(value), lambda body: from_json(cls, body)


ERASURE: Final = _plain(Erasure)
DECISION: Final = _plain(Decision)

# -- recalls --------------------------------------------------------------------------------------------

_ANY: Final[Schema] = {"type": "object", "additionalProperties": True}
COMPONENTS["Receipt"] = {**_ANY, "required": ["id", "seq", "tenant", "answer"]}
COMPONENTS["Recall"] = object_of(
    {
        "query": {"type": "string"},
        "hits": {"type": "array", "items": named(Hit)},
        "tokens": {"type": "integer"},
        "faded": {"type": "integer", "description": "memories left out because they have faded"},
        "trace": named(Trace),
        "receipt": {"$ref": "#/components/schemas/Receipt"},
    },
    ("query", "hits", "tokens", "faded"),
)
RECALL: Final[Schema] = {"$ref": "#/components/schemas/Recall"}


def recall_out(found: Recall, asked: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "query": found.query.text,
        "hits": [to_json(h) for h in found.hits],
        "tokens": found.tokens,
        "faded": found.faded,
    }
    wanted = asked.get("with") or ()
    if "trace" in wanted:
        body["trace"] = to_json(found.trace)
    if "receipt" in wanted:
        body["receipt"] = found.receipt.to_json()
    return body


def recall_in(body: Any) -> Recall:
    """The same Recall as on the server; the answer must carry its trace and its receipt."""
    hits = [from_json(Hit, h) for h in body["hits"]]
    kept = stored(body["receipt"])
    return Recall(kept.query, hits, lambda: from_json(Trace, body["trace"]), _receipt(kept, body, hits))


def _receipt(kept: StoredReceipt, body: Any, hits: list[Hit]) -> Receipt:
    return Receipt(
        query=kept.query,
        principal=kept.principal,
        seq=kept.seq,
        embedder=body["receipt"]["embedder"],
        policy=kept.policy,
        answer=kept.answer,
        packed=[(h.memory, h.span) for h in hits],
    )


CONTEXT: Final[Codec] = (
    object_of({"text": {"type": "string"}}, ("text",)),
    lambda value, _: {"text": value},
    lambda body: body["text"],
)

_NUMBERS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "number"}}
_EXPLAINED: Final = object_of(
    {
        "memory_id": {"type": "string"},
        "place": {"type": ["integer", "null"]},
        "reason": {"type": "string"},
        "score": {"type": ["number", "null"]},
        "layers": _NUMBERS,
        "parts": _NUMBERS,
        "recall": RECALL,
    },
    ("memory_id", "place", "reason", "score", "layers", "parts", "recall"),
)


def _explained_out(value: Explanation, asked: Mapping[str, Any]) -> Any:
    plain = {n: to_json(getattr(value, n)) for n in Explanation.__dataclass_fields__ if n != "recall"}
    return {**plain, "recall": recall_out(value.recall, asked)}


EXPLANATION: Final[Codec] = (
    _EXPLAINED,
    _explained_out,
    lambda body: Explanation(**{**body, "recall": recall_in(body["recall"])}),
)

_REPLAYED: Final = object_of(
    {
        "identical": {"type": "boolean"},
        "altered_by_erasure": {"type": "boolean"},
        "differences": {"type": "array", "items": {"type": "string"}},
        "recall": nullable(RECALL),
    },
    ("identical", "altered_by_erasure", "differences", "recall"),
)


def _replayed_out(value: Replay, asked: Mapping[str, Any]) -> Any:
    return {
        "identical": value.identical,
        "altered_by_erasure": value.altered_by_erasure,
        "differences": list(value.differences),
        "recall": None if value.recall is None else recall_out(value.recall, asked),
    }


def _replayed_in(body: Any) -> Replay:
    found = None if body["recall"] is None else recall_in(body["recall"])
    return Replay(body["identical"], body["altered_by_erasure"], found, tuple(body["differences"]))


REPLAY: Final[Codec] = (_REPLAYED, _replayed_out, _replayed_in)

# -- the rest -------------------------------------------------------------------------------------------

WHY: Final[Codec] = _plain(Why)

EVENTS: Final[Codec] = (
    object_of({"events": {"type": "array", "items": _ANY}}, ("events",)),
    lambda value, _: {"events": to_json(value)},
    lambda body: body["events"],
)
RECEIPTS: Final[Codec] = (
    object_of(
        {
            "receipts": {
                "type": "array",
                "items": object_of({"id": {"type": "string"}, "seq": {"type": "integer"}}, ("id", "seq")),
            }
        },
        ("receipts",),
    ),
    lambda value, _: {"receipts": [{"id": i, "seq": seq} for i, seq in value]},
    lambda body: [(r["id"], r["seq"]) for r in body["receipts"]],
)
HEALTH: Final[Codec] = (
    object_of(
        {
            "healthy": {"type": "boolean"},
            "checks": {
                "type": "array",
                "items": object_of(
                    {"name": {"type": "string"}, "ok": {"type": "boolean"}, "detail": {"type": "string"}},
                    ("name", "ok", "detail"),
                ),
            },
        },
        ("healthy", "checks"),
    ),
    lambda value, _: to_json(value),
    lambda body: body,
)

__all__ = [
    "COMPONENTS",
    "from_json",
    "memories_in",
    "memories_out",
    "named",
    "recall_in",
    "recall_out",
    "to_json",
]
