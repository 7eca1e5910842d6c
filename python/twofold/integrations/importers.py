"""Importers: what other tools wrote, as memories. Each reads a file or folder into the fields of `add`.

Idempotent: what was imported before is an exact duplicate and merges. Resumable for the same reason: after an
interruption the same command stores only what is missing. Long documents are cut into overlapping,
sentence-aware chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twofold import text, timewords
from twofold.clock import from_us
from twofold.errors import InvalidInput, NotFound, TwofoldError
from twofold.files import read_json, read_json_lines, read_text
from twofold.memory import AgentMemory
from twofold.stores.schema import UNREADABLE

CHUNK_TOKENS: Final = 512
CHUNK_OVERLAP: Final = 64
_WORD: Final = re.compile(r"[^\W_]+|[^\w\s]", re.UNICODE)

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do. skipped: entries without text."""

    memories: int
    new: int
    skipped: int
    applied: bool


def import_file(
    mem: AgentMemory,
    path: Path,
    format_: str,
    *,
    dry_run: bool = False,
    progress: bool | Callable[[int], None] = False,
    batch: int = 200,
) -> Imported:
    """Read `path` as `format_` (see FORMATS) into the handle's namespace.

    Raises InvalidInput for an unknown format or malformed content (naming file and line), NotFound, and what
    `add_many` raises. A malformed file stores nothing.
    """
    reader = FORMATS.get(format_)
    if reader is None:
        raise InvalidInput(
            f"unknown import format {format_!r}; formats are twofold, {', '.join(sorted(FORMATS))}"
        )
    if not path.exists():
        raise NotFound(f"no file or folder {path}")
    try:
        found, skipped = _read(reader, path)
    except TwofoldError:
        raise
    except UNREADABLE as error:
        # A reader takes its format's word for the shape of values; what is another shape is another format.
        raise InvalidInput(f"{path} is not of the format {format_}: {error!r}") from None
    if dry_run:
        return Imported(len(found), 0, skipped, False)
    before = mem.stats()["memories"]
    mem.add_many(found, progress=progress, batch=batch)
    return Imported(len(found), mem.stats()["memories"] - before, skipped, True)


def _read(reader: Callable[[Path], Iterator[Item]], path: Path) -> tuple[list[Item], int]:
    """The items of a file, cut into chunks, and how many had no text."""
    found: list[Item] = []
    skipped = 0
    for item in reader(path):
        content = item.get("content") or ""
        if not isinstance(content, str):
            raise TypeError(f"the text of a memory is {content!r}")
        if content.strip():
            found += chunked(item)
        else:
            skipped += 1
    return found, skipped


def chunked(item: Item) -> list[Item]:
    """The item, or its content in chunks of about 512 tokens that overlap and end at sentences."""
    content = item["content"]
    if len(content) <= CHUNK_TOKENS:
        return [item]
    spans = [m.span() for m in _WORD.finditer(content)]
    windows = text.windows(content, spans, CHUNK_TOKENS, CHUNK_OVERLAP)
    if len(windows) == 1:
        return [item]
    metadata = item.get("metadata") or {}
    return [
        {
            **item,
            "content": content[start:stop].strip(),
            "metadata": {**metadata, "chunk": n, "chunks": len(windows)},
        }
        for n, (start, stop) in enumerate(windows, 1)
        if content[start:stop].strip()
    ]


# -- reading ------------------------------------------------------------------------------------------


def _files(path: Path, pattern: str) -> list[Path]:
    return sorted(path.rglob(pattern)) if path.is_dir() else [path]


def _when(value: Any) -> Any:
    """A date from seconds or milliseconds since 1970, ISO 8601, or a loose date string; None when unreadable."""
    if isinstance(value, bool) or value in (None, ""):
        return None
    if isinstance(value, int | float):
        seconds = value / 1000 if value > 1e11 else value
        return from_us(int(seconds * 1_000_000))
    return timewords.parse_loose_datetime(str(value))


def _flat(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts of which the textual ones count."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = content.get("parts") or [content]
    parts = []
    for part in content or []:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append(part["text"])
    return "\n".join(parts)


_ROLES: Final = {"human": "user", "model": "assistant"}


def _turn(role: Any, content: str, session: str | None, when: Any = None, source: str | None = None) -> Item:
    role = _ROLES.get(str(role), str(role))
    item: Item = {
        "content": content,
        "memory_type": "interaction",
        "session_id": session,
        "source_id": source,
    }
    if when is not None:
        item["event_date"] = when
    if role in ("user", "assistant", "tool", "system"):
        item["metadata"] = {"role": role}
    else:
        item["speaker"] = role
    return item


# -- formats ------------------------------------------------------------------------------------------


def read_jsonl(path: Path) -> Iterator[Item]:
    """One object of `add` fields a line; "text" and "memory" stand for "content"."""
    known = {
        "content",
        "tags",
        "memory_type",
        "namespace",
        "entities",
        "key",
        "confidence",
        "pinned",
        "metadata",
    }
    known |= {"event_date", "speaker", "visibility", "source_id", "session_id", "valid_from", "valid_to"}
    for _, value in read_json_lines(path):
        content = value.get("content") or value.get("text") or value.get("memory") or ""
        yield {"content": content, **{k: v for k, v in value.items() if k in known and k != "content"}}


def read_markdown(path: Path) -> Iterator[Item]:
    """A Markdown file or a folder of them: one memory a section, its headings as tags and context."""
    root = path if path.is_dir() else path.parent
    for file in _files(path, "*.md"):
        source = file.relative_to(root).as_posix()
        headings: list[str] = []
        body: list[str] = []

        def section(source: str, headings: list[str], body: list[str]) -> Item:
            content = "\n".join(body).strip()
            lead = " > ".join(headings)
            return {
                "content": f"{lead}\n{content}" if lead and content else content,
                "memory_type": "knowledge",
                "source_id": source,
                "metadata": {"headings": list(headings)},
            }

        fenced = False
        for line in read_text(file).splitlines():
            fenced ^= line.lstrip().startswith("```")
            found = None if fenced else re.match(r"(#{1,6})\s+(.*?)\s*#*$", line)
            if not found:
                body.append(line)
                continue
            yield section(source, headings, body)
            body = []
            headings = [*headings[: len(found[1]) - 1], found[2]]
        yield section(source, headings, body)


def read_messages(path: Path) -> Iterator[Item]:
    """OpenAI or Anthropic message lists: [{"role", "content"}], or an object with "messages"."""
    value = read_json(path)
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list):
        raise InvalidInput(f"{path} has no list of messages")
    for n, message in enumerate(messages, 1):
        if not isinstance(message, dict) or "role" not in message:
            raise InvalidInput(f"{path} message {n} has no role")
        yield _turn(message["role"], _flat(message.get("content")), path.stem, source=f"{path.name}#{n}")


def read_claude_code(path: Path) -> Iterator[Item]:
    """Claude Code session logs (*.jsonl): the user's and the assistant's turns; tool traffic is left out."""
    for file in _files(path, "*.jsonl"):
        for number, value in read_json_lines(file):
            message = value.get("message")
            if value.get("type") not in ("user", "assistant") or not isinstance(message, dict):
                continue
            session = str(value.get("sessionId") or file.stem)
            source = str(value.get("uuid") or f"{file.name}#{number}")
            content = _flat(message.get("content"))
            yield _turn(message.get("role"), content, session, _when(value.get("timestamp")), source)


def read_chatgpt(path: Path) -> Iterator[Item]:
    """ChatGPT's export (conversations.json): each conversation's current branch, oldest turn first."""
    conversations = read_json(path / "conversations.json" if path.is_dir() else path)
    if not isinstance(conversations, list):
        raise InvalidInput(f"{path} is not a list of conversations")
    for conversation in conversations:
        mapping = conversation.get("mapping") or {}
        chain: list[dict[str, Any]] = []
        node = conversation.get("current_node")
        seen = set()
        while node in mapping and node not in seen:
            seen.add(node)
            chain.append(mapping[node])
            node = mapping[node].get("parent")
        session = str(
            conversation.get("id") or conversation.get("conversation_id") or conversation.get("title")
        )
        for entry in reversed(chain):
            message = entry.get("message")
            if not message or message.get("author", {}).get("role") not in ("user", "assistant"):
                continue
            content = _flat(message.get("content"))
            when = _when(message.get("create_time"))
            yield _turn(message["author"]["role"], content, session, when, str(message.get("id")))


def read_mem0(path: Path) -> Iterator[Item]:
    """mem0's JSON: a list of memories, or {"results": [...]}, as `get_all` and its export give them."""
    value = read_json(path)
    entries = value.get("results", value.get("memories")) if isinstance(value, dict) else value
    if not isinstance(entries, list):
        raise InvalidInput(f"{path} has no list of memories")
    for n, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise InvalidInput(f"{path} entry {n} is not an object")
        metadata = dict(entry.get("metadata") or {})
        for name in ("user_id", "agent_id", "app_id"):
            if entry.get(name):
                metadata[name] = entry[name]
        item: Item = {
            "content": entry.get("memory") or entry.get("text") or entry.get("content") or "",
            "source_id": None if entry.get("id") is None else f"mem0:{entry['id']}",
            "tags": [str(c) for c in entry.get("categories") or []],
            "session_id": entry.get("run_id"),
            "metadata": metadata,
        }
        when = _when(entry.get("created_at"))
        yield item if when is None else {**item, "event_date": when}


def read_reference(path: Path) -> Iterator[Item]:
    """The reference MCP server's memory.jsonl: an observation each, and a sentence for each relation."""
    for number, value in read_json_lines(path):
        kind = value.get("type")
        if kind == "entity":
            name = str(value["name"])
            for observation in value.get("observations") or []:
                content = (
                    observation if name.casefold() in observation.casefold() else f"{name}: {observation}"
                )
                yield {
                    "content": content,
                    "entities": [name],
                    "tags": [str(value.get("entityType") or "entity")],
                    "source_id": f"memory.jsonl:{name}",
                }
        elif kind == "relation":
            a, relation, b = (str(value[k]) for k in ("from", "relationType", "to"))
            yield {
                "content": f"{a} {relation.replace('_', ' ')} {b}",
                "entities": [a, b],
                "tags": ["relation"],
                "source_id": "memory.jsonl:relation",
            }
        else:
            raise InvalidInput(f"{path} line {number} is neither an entity nor a relation")


def read_memwright(path: Path) -> Iterator[Item]:
    """A Memwright 2.0.x folder: what is current in it. `twofold.compat.reader.migrate` keeps the history too."""
    from twofold.compat.reader import read

    for row in read(path).rows:
        if row["status"] != "active" or row["valid_until"]:
            continue
        item: Item = {
            "content": row["content"],
            "tags": list(dict.fromkeys([*row["tags"], row["category"]])),
            "entities": [row["entity"]] if row["entity"] else [],
            "confidence": min(max(float(row["confidence"]), 0.0), 1.0),
            "source_id": f"memwright:{row['id']}",
            "metadata": {**row["metadata"], "namespace": row["namespace"]},
        }
        when = _when(row["event_date"] or row["created_at"])
        yield item if when is None else {**item, "event_date": when}


FORMATS: Final[dict[str, Callable[[Path], Iterator[Item]]]] = {
    "jsonl": read_jsonl,
    "markdown": read_markdown,
    "messages": read_messages,
    "claude-code": read_claude_code,
    "chatgpt": read_chatgpt,
    "mem0": read_mem0,
    "memwright": read_memwright,
    "reference": read_reference,
}
