"""The profile `memwright`: the eight tools of Memwright 2.0.6 with its shapes, on a Twofold store.

Names are mapped as for its REST routes (serve/memwright.py): category is memory_type, entity the first entity.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from twofold.core import __version__
from twofold.errors import NotFound
from twofold.integrations.mcp_face import Answer, Arguments, Face, Prompt, Resource, Seat, Tool, pretty, text
from twofold.serve import memwright as rest

MEMORY: Final = "memwright://memory/"
ENTITY: Final = "memwright://entity/"
NEWEST: Final = 50

MemoryId = Annotated[str, Field(description="The memory's id.")]
Namespace = Annotated[str | None, Field(description="Default: the handle's own.")]


class AddArgs(Arguments):
    """Arguments of `memory_add`."""

    content: Annotated[str, Field(description="What to remember.")]
    tags: list[str] | None = None
    # Not the peer's list of six: its own documentation names eleven.
    category: Annotated[
        str | None,
        Field(description="career, project, preference, personal, technical, general, event, ..."),
    ] = None
    entity: str | None = None
    namespace: Namespace = None
    event_date: Annotated[str | None, Field(description="ISO 8601 with a zone, or a date.")] = None
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0


class IdArgs(Arguments):
    """Arguments of the tools that take an id."""

    memory_id: MemoryId


class RecallArgs(Arguments):
    """Arguments of `memory_recall`."""

    query: Annotated[str, Field(description="The question.")]
    budget: Annotated[int, Field(ge=1, description="Tokens at most.")] = 2000
    namespace: Namespace = None


class SearchArgs(Arguments):
    """Arguments of `memory_search`."""

    query: str | None = None
    category: str | None = None
    entity: str | None = None
    namespace: Namespace = None
    status: Annotated[str | None, Field(json_schema_extra={"enum": [*rest.STATUSES, None]})] = None
    after: Annotated[str | None, Field(description="ISO 8601 with a zone, or a date.")] = None
    before: Annotated[str | None, Field(description="ISO 8601 with a zone, or a date.")] = None
    limit: Annotated[int, Field(ge=0, le=10_000)] = 10


class TimelineArgs(Arguments):
    """Arguments of `memory_timeline`."""

    entity: str
    namespace: Namespace = None


class Nothing(Arguments):
    """No arguments."""


def _body(args: BaseModel) -> dict[str, Any]:
    return args.model_dump(exclude_none=True)


def _shown(value: Any) -> Answer:
    return Answer([text(pretty(value))])


def _pick(found: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: found[name] for name in names.split()}


def _add(seat: Seat, args: AddArgs) -> Answer:
    made = rest.add(seat.mem, _body(args))
    return _shown({"id": made["id"], "content": made["content"], "status": "stored"})


def _get(seat: Seat, args: IdArgs) -> Answer:
    found = rest.get(seat.mem, _body(args))
    return _shown(_pick(found, "id content category entity tags status event_date created_at"))


def _recall(seat: Seat, args: RecallArgs) -> Answer:
    hits = rest.recall(seat.mem, _body(args))
    memories = [
        {
            "id": h["id"],
            "content": h["content"],
            "score": round(h["score"], 3),
            "source": h["source"],
            **_pick(h["memory"], "category entity tags"),
        }
        for h in hits
    ]
    return _shown({"count": len(memories), "memories": memories})


def _search(seat: Seat, args: SearchArgs) -> Answer:
    found = rest.search(seat.mem, _body(args))
    memories = [_pick(m, "id content category entity tags status") for m in found]
    return _shown({"count": len(memories), "memories": memories})


def _forget(seat: Seat, args: IdArgs) -> Answer:
    done = rest.forget(seat.mem, _body(args))["forgotten"]
    return _shown({"success": done, "memory_id": args.memory_id})


def _timeline(seat: Seat, args: TimelineArgs) -> Answer:
    found = rest.timeline(seat.mem, _body(args))
    timeline = [
        {
            "id": m["id"],
            "content": m["content"],
            "date": m["event_date"] or m["created_at"],
            "status": m["status"],
        }
        for m in found
    ]
    return _shown({"entity": args.entity, "count": len(timeline), "timeline": timeline})


def _told(function: Callable[[Any, dict[str, Any]], Any]) -> Callable[[Seat, Any], Answer]:
    return lambda seat, _: _shown(function(seat.mem, {}))


def _failed(error: Exception) -> Answer:
    message = "not found" if isinstance(error, NotFound) else f"{type(error).__name__}: {error}"
    return Answer([text(pretty({"error": message}))], None, error=True)


TOOLS: Final = (
    Tool("memory_add", "Add memory", "Store a memory.", AddArgs, _add, reads=False),
    Tool("memory_get", "Get memory", "Show one memory by its id.", IdArgs, _get),
    Tool("memory_recall", "Recall memories", "Memories that answer a query, within a token budget.",
         RecallArgs, _recall),
    Tool("memory_search", "Search memories", "Memories by category, entity, status and time.",
         SearchArgs, _search),
    Tool("memory_forget", "Forget memory", "Archive a memory.", IdArgs, _forget, reads=False, destroys=True),
    Tool("memory_timeline", "Timeline", "What is known about an entity, in order.", TimelineArgs, _timeline),
    Tool("memory_stats", "Statistics", "Counts and sizes.", Nothing, _told(rest.stats)),
    Tool("memory_health", "Health", "Whether each part works.", Nothing, _told(rest.health)),
)  # fmt: skip

TEMPLATES: Final = (
    Resource(f"{ENTITY}{{key}}", "entity", "Entity", "An entity and what it is related to.", template=True),
    Resource(f"{MEMORY}{{id}}", "memory", "Memory", "One memory.", template=True),
)


def _resources(seat: Seat) -> list[Resource]:
    newest = seat.mem.search(limit=NEWEST)
    names = dict.fromkeys(e for m in newest for e in m.entities)
    out = [Resource(f"{ENTITY}{urllib.parse.quote(n, safe='')}", n, n, "An entity") for n in names]
    return out + [Resource(f"{MEMORY}{m.id}", m.id, m.content[:80], m.memory_type) for m in newest]


def _read(seat: Seat, uri: str) -> list[dict[str, Any]]:
    key = urllib.parse.unquote(uri.removeprefix(ENTITY).removeprefix(MEMORY))
    if uri.startswith(MEMORY):
        body = rest.get(seat.mem, {"memory_id": key})
    elif uri.startswith(ENTITY):
        memories = seat.mem.timeline(key)
        if not memories:
            raise NotFound(f"nothing is known about {key!r}")
        related = dict.fromkeys(e for m in memories for e in m.entities if e.lower() != key.lower())
        name = next((e for m in memories for e in m.entities if e.lower() == key.lower()), key)
        body = {
            "name": name,
            "type": "general",
            "key": key.lower(),
            "attributes": {},
            "related": list(related),
        }
    else:
        raise NotFound(f"there is no resource {uri}")
    return [{"uri": uri, "mimeType": "application/json", "text": pretty(body)}]


def face(*, read_only: bool = False) -> Face:
    """The profile; read-only leaves out the tools that write."""
    from twofold.integrations.mcp_profiles import PROMPTS

    prompts: list[Prompt] = list(PROMPTS)
    return Face(
        "agent-memory",
        "Memory for agents.",
        [t for t in TOOLS if t.reads or not read_only],
        TEMPLATES,
        prompts,
        _resources,
        _read,
        failed=_failed,
        version=__version__,
    )
