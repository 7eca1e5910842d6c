"""Which JSON goes into which file of Claude Code, Cursor and VS Code. Plans first, writes after; nothing else.

A plan is the list of files with their text before and after. Entries of ours are recognised when they are there
already, so that installing twice changes nothing, and uninstalling takes away no more than was put there.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twofold.errors import InvalidInput
from twofold.integrations import hook_client

TOOLS: Final = ("claude-code", "cursor", "vscode")
SCOPES: Final = ("user", "project")
NAME: Final = "twofold"
# event -> (matcher or None, seconds until the host gives up)
HOOKS: Final[dict[str, tuple[str | None, int]]] = {
    "SessionStart": ("startup|resume|clear|compact", 10),
    "UserPromptSubmit": (None, 5),
    "PostToolUse": ("Write|Edit|MultiEdit|NotebookEdit|Bash", 5),
    "PreCompact": (None, 10),
    "Stop": (None, 10),
    "SessionEnd": (None, 10),
}

Json = dict[str, Any]


def event_of(hook: str) -> str:
    """`SessionStart` as the command line writes it: session-start."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in hook).lstrip("-")


@dataclass(frozen=True, slots=True)
class Target:
    """Where and what to install. home and project are arguments, so that tests have their own."""

    tool: str
    scope: str
    home: Path
    project: Path
    store: str
    python: str = sys.executable
    hooks: bool = True
    mcp: bool = True
    platform: str = sys.platform

    @property
    def client(self) -> Path:
        """The hooks' client, a file that runs by itself."""
        return Path(hook_client.__file__).resolve()

    def server(self) -> Json:
        """The MCP server's entry."""
        arguments = ["mcp", "--store", self.store, "--project"]
        script = Path(self.python).parent / "twofold"
        if script.exists():
            return {"type": "stdio", "command": str(script), "args": arguments}
        start = ["-c", "from twofold.cli import main; main()"]
        return {"type": "stdio", "command": self.python, "args": [*start, *arguments]}

    def hook_command(self, event: str) -> str:
        """The command line of a hook."""
        words = [self.python, "-I", "-S", str(self.client), event, "--store", self.store]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Change:
    """One file: its text now (None: absent) and as it should be (None: to be removed)."""

    path: Path
    before: str | None
    after: str | None

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            str(self.path) if self.before is not None else "/dev/null",
            str(self.path) if self.after is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def files_of(target: Target) -> dict[str, Path]:
    """The files of a tool in a scope: "mcp", and "hooks" where the tool has hooks of this kind."""
    if target.tool not in TOOLS:
        raise InvalidInput(f"unknown tool {target.tool!r}; tools are {', '.join(TOOLS)}")
    if target.scope not in SCOPES:
        raise InvalidInput(f"unknown scope {target.scope!r}; scopes are {', '.join(SCOPES)}")
    user = target.scope == "user"
    if target.tool == "claude-code":
        return {
            "mcp": target.home / ".claude.json" if user else target.project / ".mcp.json",
            "hooks": (target.home if user else target.project) / ".claude" / "settings.json",
        }
    if target.tool == "cursor":
        return {"mcp": (target.home if user else target.project) / ".cursor" / "mcp.json"}
    if not user:
        return {"mcp": target.project / ".vscode" / "mcp.json"}
    if target.platform == "darwin":
        return {"mcp": target.home / "Library" / "Application Support" / "Code" / "User" / "mcp.json"}
    if target.platform == "win32":
        return {"mcp": target.home / "AppData" / "Roaming" / "Code" / "User" / "mcp.json"}
    return {"mcp": target.home / ".config" / "Code" / "User" / "mcp.json"}


def plan(target: Target) -> list[Change]:
    """What installing would do."""
    files = files_of(target)
    out = []
    if target.mcp:
        out.append(_edited(files["mcp"], lambda body: _with_server(body, target)))
    if target.hooks and "hooks" in files:
        out.append(_edited(files["hooks"], lambda body: _with_hooks(body, target)))
    return out


def removal(target: Target) -> list[Change]:
    """What uninstalling would do: the reverse of `plan`, other entries untouched."""
    files = files_of(target)
    out = [_edited(files["mcp"], lambda body: _without_server(body, target))]
    if "hooks" in files:
        out.append(_edited(files["hooks"], _without_hooks))
    return out


def _servers(target: Target) -> str:
    return "servers" if target.tool == "vscode" else "mcpServers"


def _with_server(body: Json, target: Target) -> Json:
    section = _section(body, _servers(target))
    return {**body, _servers(target): {**section, NAME: target.server()}}


def _without_server(body: Json, target: Target) -> Json:
    name = _servers(target)
    section = {k: v for k, v in _section(body, name).items() if k != NAME}
    return _put(body, name, section)


def _with_hooks(body: Json, target: Target) -> Json:
    body = _without_hooks(body)
    hooks = dict(_section(body, "hooks"))
    for hook, (matcher, timeout) in HOOKS.items():
        entry: Json = {} if matcher is None else {"matcher": matcher}
        command = target.hook_command(event_of(hook))
        entry["hooks"] = [{"type": "command", "command": command, "timeout": timeout}]
        hooks[hook] = [*_list(hooks.get(hook), hook), entry]
    return {**body, "hooks": hooks}


def _without_hooks(body: Json) -> Json:
    hooks: Json = {}
    for hook, groups in _section(body, "hooks").items():
        kept = []
        for group in _list(groups, hook):
            inner = group.get("hooks") if isinstance(group, dict) else None
            if not isinstance(inner, list) or not any(map(_is_ours, inner)):
                kept.append(group)
            elif others := [h for h in inner if not _is_ours(h)]:
                kept.append({**group, "hooks": others})
        if kept or not groups:
            hooks[hook] = kept
    return _put(body, "hooks", hooks)


def _is_ours(entry: Any) -> bool:
    command = entry.get("command", "") if isinstance(entry, dict) else ""
    return isinstance(command, str) and (
        ("hook_client.py" in command and "twofold" in command) or " twofold hook " in f" {command} "
    )


def _put(body: Json, name: str, section: Json) -> Json:
    """The section in its place; an empty one goes only if it is there for us alone."""
    if section or (name in body and not body[name]):
        return {**body, name: section}
    return {k: v for k, v in body.items() if k != name}


def _section(body: Json, name: str) -> Json:
    section = body.get(name, {})
    if not isinstance(section, dict):
        raise InvalidInput(f"{name!r} is not an object; repair the file by hand")
    return section


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(f"hooks.{name} is not a list; repair the file by hand")
    return value


def _edited(path: Path, edit: Callable[[Json], Json]) -> Change:
    """A file before and after an edit of its object; indentation and the final newline are kept."""
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}") from None
    body: Any = {}
    if before is not None and before.strip():
        try:
            body = json.loads(before)
        except json.JSONDecodeError as error:
            raise InvalidInput(
                f"{path} line {error.lineno} is not plain JSON ({error.msg}); comments cannot be kept, so "
                "nothing was written: remove them, or add the entry by hand (--dry-run shows it)"
            ) from None
    if not isinstance(body, dict):
        raise InvalidInput(f"{path} does not hold an object; repair it by hand")
    try:
        made = edit(body)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if made == body:
        return Change(path, before, before)
    if not made and before is None:
        return Change(path, None, None)
    after = json.dumps(made, indent=_indent(before), ensure_ascii=False)
    return Change(path, before, after + ("\n" if before is None or before.endswith("\n") else ""))


def _indent(text: str | None) -> int | str:
    for line in (text or "").splitlines():
        lead = line[: len(line) - len(line.lstrip())]
        if lead:
            return "\t" if lead.startswith("\t") else len(lead)
    return 2


def apply(change: Change) -> Path | None:
    """Write a change as a whole or not at all, keeping the old file beside it. Gives the backup's path."""
    if not change.changes or change.after is None:
        return None
    path = change.path.resolve() if change.path.is_symlink() else change.path
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if change.before is not None:
        if path.read_text(encoding="utf-8") != change.before:
            raise InvalidInput(f"{path} changed meanwhile; run the command again")
        backup = _free(path)
        backup.write_text(change.before, encoding="utf-8")
        backup.chmod(path.stat().st_mode & 0o777)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(change.after)
        if change.before is not None:
            Path(temporary).chmod(path.stat().st_mode & 0o777)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return backup


def _free(path: Path) -> Path:
    for number in range(1, 10_000):
        backup = path.with_name(f"{path.name}.twofold-backup-{number}")
        if not backup.exists():
            return backup
    raise InvalidInput(f"too many backups beside {path}; remove the old ones")
