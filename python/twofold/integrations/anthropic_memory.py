"""Anthropic's memory tool (`memory_20250818`) on a Twofold store: files are memories, edits are versions.

    from anthropic import Anthropic
    from twofold import AgentMemory
    from twofold.integrations.anthropic_memory import TwofoldMemoryTool

    tool = TwofoldMemoryTool(AgentMemory("./store"), namespace="claude")
    Anthropic().beta.messages.tool_runner(model=..., messages=[...], tools=[tool])

Answers are, character for character, those of the SDK's own filesystem tool; what a file said before an edit, a
rename or a deletion stays in `history`. Needs the extra [anthropic].
"""

from __future__ import annotations

import posixpath
import threading
from typing import Any, Final

from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError

from twofold.errors import TwofoldError
from twofold.memory import AgentMemory
from twofold.model import Memory

ROOT: Final = "/memories"
FILE: Final = "file"
FOLDER: Final = "folder"
MAX_LINES: Final = 999_999
WIDTH: Final = 6
FOLDER_SIZE: Final = "4K"  # what an ordinary file system says of a folder
_UNITS: Final = "BKMG"


class TwofoldMemoryTool(BetaAbstractMemoryTool):
    """The six commands over memories of type "file" and "folder" in one namespace. Safe to use from threads."""

    def __init__(self, mem: AgentMemory, *, namespace: str = "claude", **options: Any) -> None:
        """mem: any handle that may write in `namespace`. options: those of the SDK's base class."""
        super().__init__(**options)
        self._mem = mem
        self._namespace = namespace
        self._lock = threading.RLock()

    # -- the commands --------------------------------------------------------------------------------

    def view(self, command: Any) -> str:
        """A folder's listing, two levels deep, or a file's lines with their numbers."""
        with self._lock:
            path = _place(command.path)
            tree = self._tree()
            if path in tree and tree[path].memory_type == FILE:
                return _numbered(_text(tree[path]), command.path, command.view_range)
            if path and path not in tree:
                raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
            lines = [f"{FOLDER_SIZE}\t{command.path}"]
            lines += [f"{size}\t{command.path}/{name}" for size, name in _listing(tree, path)]
            head = f"Here're the files and directories up to 2 levels deep in {command.path}, excluding hidden items:"
            return "\n".join([head, *lines])

    def create(self, command: Any) -> str:
        """A new file; its folders are made as needed."""
        with self._lock:
            path = _place(command.path)
            tree = self._tree()
            self._make_folders(tree, path)
            if not path or path in tree:
                raise ToolError(f"File {command.path} already exists")
            self._store(path, FILE, command.file_text)
            return f"File created successfully at: {command.path}"

    def str_replace(self, command: Any) -> str:
        """Replace the one occurrence of a text."""
        with self._lock:
            memory = self._file(command.path)
            content, old = _text(memory), command.old_str
            count = content.count(old)
            if count == 0:
                raise ToolError(
                    f"No replacement was performed, old_str `{old}` did not appear verbatim in {command.path}."
                )
            if count > 1:
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
                    f"{', '.join(str(n) for n in _lines_with(content, old))}. Please ensure it is unique"
                )
            line = content[: content.find(old)].count("\n")
            edited = content.replace(old, command.new_str)
            self._rewrite(memory, edited)
            lines = edited.split("\n")
            first, last = max(0, line - 2), min(len(lines), line + 3)
            shown = "\n".join(f"{n + 1:>{WIDTH}}\t{lines[n]}" for n in range(first, last))
            return (
                "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
                + shown
            )

    def insert(self, command: Any) -> str:
        """Insert lines after a line number (0: at the start)."""
        with self._lock:
            memory = self._file(command.path)
            lines = _text(memory).split("\n")
            if lines[-1] == "":
                lines.pop()
            at = command.insert_line
            if not 0 <= at <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {at}. It should be within the range [0, {len(lines)}]."
                )
            lines.insert(at, command.insert_text.rstrip("\n"))
            edited = "\n".join(lines)
            self._rewrite(memory, edited if edited.endswith("\n") else f"{edited}\n")
            return f"The file {command.path} has been edited."

    def delete(self, command: Any) -> str:
        """Forget a file, or a folder with all that is in it."""
        with self._lock:
            path = _place(command.path)
            if not path:
                raise ToolError("Cannot delete the /memories directory itself")
            tree = self._tree()
            if path not in tree:
                raise ToolError(f"The path {command.path} does not exist")
            for memory in _under(tree, path).values():
                self._guarded(self._mem.forget, memory.id)
            return f"Successfully deleted {command.path}"

    def rename(self, command: Any) -> str:
        """Move a file, or a folder with all that is in it; ids and history stay."""
        with self._lock:
            old, new = _place(command.old_path), _place(command.new_path)
            if not old:
                raise ToolError("Cannot rename the /memories directory itself")
            tree = self._tree()
            if not new or new in tree:
                raise ToolError(f"The destination {command.new_path} already exists")
            parent = tree.get(posixpath.dirname(new))
            blocked = parent is not None and parent.memory_type == FILE
            if not blocked:
                self._make_folders(tree, new)
                tree = self._tree()
            if old not in tree:
                raise ToolError(f"The path {command.old_path} does not exist")
            if blocked:
                raise ToolError(f"{posixpath.dirname(command.new_path)} is a file, not a directory")
            if new.startswith(f"{old}/"):
                raise ToolError(f"Cannot move {command.old_path} into itself")
            for path, memory in _under(tree, old).items():
                moved = new + path[len(old) :]
                self._guarded(
                    self._mem.update, memory.id, source_id=moved, metadata={**memory.metadata, "path": moved}
                )
            return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> str:
        """Forget every file and folder."""
        with self._lock:
            for memory in self._tree().values():
                self._guarded(self._mem.forget, memory.id)
            return "All memory cleared"

    # -- over the store --------------------------------------------------------------------------------

    def _tree(self) -> dict[str, Memory]:
        """Current files and folders by path."""
        found = self._mem.search(namespaces=[self._namespace], memory_types=[FILE, FOLDER], limit=None)
        return {str(m.metadata["path"]): m for m in found if "path" in m.metadata}

    def _file(self, shown: str) -> Memory:
        path = _place(shown)
        tree = self._tree()
        if path and path not in tree:
            raise ToolError(f"The path {shown} does not exist. Please provide a valid path.")
        if not path or tree[path].memory_type != FILE:
            raise ToolError(f"The path {shown} is not a file.")
        return tree[path]

    def _make_folders(self, tree: dict[str, Memory], path: str) -> None:
        """Every folder above a path. ToolError where a file is in the way."""
        for folder in _ancestors(path):
            if folder not in tree:
                self._store(folder, FOLDER, "")
            elif tree[folder].memory_type == FILE:
                raise ToolError(f"{ROOT}/{folder} is a file, not a directory")

    def _store(self, path: str, kind: str, text: str) -> None:
        content, metadata = _stored(path, text)
        self._guarded(
            self._mem.add,
            content,
            memory_type=kind,
            namespace=self._namespace,
            source_id=path,
            metadata=metadata,
            # Two files may say the same, also after one of them moved: a key of its own keeps each from being
            # merged as a duplicate.
            key=f"{kind} {self._mem._vault.entropy(8).hex()}",
        )

    def _rewrite(self, memory: Memory, text: str) -> None:
        content, metadata = _stored(str(memory.metadata["path"]), text)
        self._guarded(self._mem.update, memory.id, content=content, metadata=metadata)

    def _guarded(self, action: Any, *arguments: Any, **fields: Any) -> Any:
        try:
            return action(*arguments, **fields)
        except TwofoldError as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error


def _place(shown: str) -> str:
    """The path below /memories, normalised; "" for /memories itself. ToolError when it leaves it."""
    if not shown.startswith(ROOT):
        raise ToolError(f"Path must start with /memories, got: {shown}")
    if "\0" in shown:
        raise ToolError(f"Path {shown!r} has a NUL character")
    inside = posixpath.normpath("/memories/" + shown[len(ROOT) :].lstrip("/"))
    if inside != ROOT and not inside.startswith(f"{ROOT}/"):
        raise ToolError(f"Path {shown} would escape /memories directory")
    return inside[len(ROOT) + 1 :]


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _under(tree: dict[str, Memory], path: str) -> dict[str, Memory]:
    return {p: m for p, m in tree.items() if p == path or p.startswith(f"{path}/")}


def _stored(path: str, text: str) -> tuple[str, dict[str, Any]]:
    """Content and metadata of a file. Blank text cannot be a memory's content: it is kept beside it."""
    if text.strip():
        return text, {"path": path}
    return f"{path} (blank)", {"path": path, "blank": text}


def _text(memory: Memory) -> str:
    blank = memory.metadata.get("blank")
    return memory.content if blank is None else str(blank)


def _lines_with(content: str, old: str) -> list[int]:
    lines, at = [], content.find(old)
    while at != -1:
        lines.append(content[:at].count("\n") + 1)
        at = content.find(old, at + 1)
    return lines


def _listing(tree: dict[str, Memory], folder: str) -> list[tuple[str, str]]:
    """(size, name) of what lies in a folder, two levels deep, hidden names left out, folders before their content."""
    below = f"{folder}/" if folder else ""
    out: list[tuple[str, str]] = []

    def walk(prefix: str, depth: int) -> None:
        here = sorted(p[len(below + prefix) :] for p in tree if p.startswith(below + prefix) and p != folder)
        for name in here:
            if not name or "/" in name or name.startswith("."):
                continue
            memory = tree[below + prefix + name]
            if memory.memory_type == FOLDER:
                out.append((FOLDER_SIZE, f"{prefix}{name}/"))
                if depth < 2:
                    walk(f"{prefix}{name}/", depth + 1)
            else:
                out.append((_size(len(_text(memory).encode())), f"{prefix}{name}"))

    walk("", 1)
    return out


def _size(count: int) -> str:
    """Bytes as 0B, 17B, 1K, 1.5K, ..."""
    unit = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    value = count / 1024**unit
    return f"{int(value)}{_UNITS[unit]}" if value == int(value) else f"{value:.1f}{_UNITS[unit]}"


def _numbered(content: str, shown: str, view_range: list[int] | None) -> str:
    lines = content.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {shown} exceeds maximum line limit of 999,999 lines.")
    first = 0
    if view_range and len(view_range) == 2:
        first = max(1, view_range[0]) - 1
        lines = lines[first : len(lines) if view_range[1] == -1 else view_range[1]]
    numbered = "\n".join(f"{first + n:>{WIDTH}}\t{line}" for n, line in enumerate(lines, 1))
    return f"Here's the content of {shown} with line numbers:\n{numbered}"
