"""What the Claude Code hooks do: context in, captures out, a summary by rules. No processes, no sockets.

Payloads are those of Claude Code (tool_name, tool_input, tool_response) and the older shape (tool.name, tool.input,
tool.output). Every text is redacted before it is looked up or stored.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from twofold import render
from twofold.integrations.projects import project_namespace
from twofold.integrations.redact import MARK, redact

if TYPE_CHECKING:
    from twofold.memory import AgentMemory
    from twofold.model import Memory

EVENTS: Final = (
    "session-start",
    "user-prompt-submit",
    "post-tool-use",
    "pre-compact",
    "stop",
    "session-end",
)
AGENT: Final = "claude-code"
START_BUDGET: Final = 1500  # tokens
PROMPT_BUDGET: Final = 800
PROMPT_HITS: Final = 6
RELEVANT: Final = 0.35  # cosine from which a memory without a common word is still shown
OUTPUT_KEPT: Final = 200  # characters of a command's output
COMMAND_KEPT: Final = 500
TEXT_READ: Final = 100_000  # characters of a payload's text that are looked at
SESSIONS: Final = 64
EVENTS_READ: Final = 2_000

QUIET: Final = frozenset(
    "cat ls head tail echo grep egrep rg find pwd cd which type tree wc stat file less more".split()
)
_SETTING: Final = frozenset("cd pushd popd export source . set unset alias true sleep".split())
_PREFIXES: Final = frozenset("sudo command time exec nohup env".split())
WRITERS: Final = {
    "Write": "Wrote",
    "Edit": "Edited",
    "MultiEdit": "Edited",
    "NotebookEdit": "Edited notebook",
}
# Outputs that are secrets whatever they look like.
_SECRET_OUTPUT: Final = re.compile(
    r"(?:^|[\s;&|(])(?:env|printenv|set|export\s+-p|gh\s+auth\s+token|gcloud\s+auth\s+print|op\s+(?:read|item)|pass\s+show|"
    r"vault\s+(?:read|kv\s+get)|kubectl\s+get\s+secrets?|aws\s+(?:secretsmanager|ssm\s+get-parameter|configure\s+get|"
    r"sts|ecr\s+get-login)|az\s+(?:account\s+get-access-token|keyvault\s+secret)|security\s+find-\S+-password|"
    r"git\s+credential|ssh-keygen|openssl\s+(?:rand|gen\w+)|pwgen|docker\s+inspect|heroku\s+config|gpg\s+--export-secret)"
    r"(?:\s|$)|(?:^|[\s/'\"=])(?:\.env(?:\.\w+)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|id_(?:rsa|ed25519|ecdsa|dsa)|"
    r"credentials(?:\.json)?|secrets?\.(?:ya?ml|json|toml|env)|kubeconfig|[\w.-]+\.(?:pem|key|p12|pfx|kdbx))(?:[\s'\";|&)]|$)"
)


def hook_name(event: str) -> str:
    """`session-start` as Claude Code writes it: SessionStart."""
    return "".join(part.capitalize() for part in event.split("-"))


def answer_with(event: str, context: str) -> dict[str, Any]:
    """A hook's output that adds context; {} when there is none."""
    if not context:
        return {}
    return {"hookSpecificOutput": {"hookEventName": hook_name(event), "additionalContext": context}}


class Hooks:
    """The hooks over one store. Answers are dictionaries ready for JSON; errors are the caller's to log."""

    def __init__(self, mem: AgentMemory) -> None:
        self.mem = mem
        self._handles: OrderedDict[str, AgentMemory] = OrderedDict()
        self._asked: OrderedDict[str, str] = OrderedDict()  # session -> its first prompt, redacted
        self._lock = threading.Lock()
        # One summary of a session at a time, or two hooks at once would both find none and write it twice.
        self._summing = threading.Lock()

    def run(self, event: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Answer one hook. Raises InvalidInput and the store's errors; an unknown event is {}."""
        handle = self._handle(payload)
        session = text_of(payload.get("session_id"))[:200] or "unknown"
        if event == "session-start":
            return self._start(handle)
        if event == "user-prompt-submit":
            return self._prompt(handle, session, text_of(payload.get("prompt")))
        if event == "post-tool-use":
            self._capture(handle, session, payload)
        elif event in ("pre-compact", "stop", "session-end") and not payload.get("stop_hook_active"):
            self._summarise(handle, session)
        return {}

    def _handle(self, payload: dict[str, Any]) -> AgentMemory:
        """An executor's handle on the project that the session works in."""
        start = text_of(payload.get("project_dir")) or text_of(payload.get("cwd")) or str(Path.cwd())
        namespace = project_namespace(start)
        with self._lock:
            handle = self._handles.get(namespace)
            if handle is None:
                handle = self.mem.as_agent(AGENT, role="executor", namespaces=[namespace], write_quota=10**12)
                self._handles[namespace] = handle
                while len(self._handles) > SESSIONS:
                    self._handles.popitem(last=False)
        return handle

    def _where(self, handle: AgentMemory) -> list[str]:
        return [str(handle.namespace), "facts/*"]

    # -- context ---------------------------------------------------------------------------------------

    def _start(self, handle: AgentMemory) -> dict[str, Any]:
        """Pinned memories, the last summaries, then decisions, preferences and facts, newest first."""
        where = self._where(handle)
        chosen: dict[str, Memory] = {}
        for wanted in (
            {"pinned": True, "limit": 10},
            {"memory_types": ["summary"], "limit": 3},
            {"memory_types": ["decision", "preference"], "limit": 15},
            {"memory_types": ["fact", "knowledge", "plan", "result", "observation"], "limit": 25},
        ):
            for memory in handle.search(namespaces=where, **wanted):
                chosen.setdefault(memory.id, memory)
        counter = self.mem._vault.counter
        return answer_with(
            "session-start", render.context([(m, None) for m in chosen.values()], START_BUDGET, counter)
        )

    def _prompt(self, handle: AgentMemory, session: str, prompt: str) -> dict[str, Any]:
        """Memories that share words with the prompt or are near it in meaning; what this session did is left out."""
        asked = redact(prompt[:TEXT_READ]).strip()
        if not asked:
            return {}
        with self._lock:
            self._asked.setdefault(session, " ".join(asked.split())[:OUTPUT_KEPT])
            while len(self._asked) > SESSIONS:
                self._asked.popitem(last=False)
        found = handle.recall(asked[:4000], k=3 * PROMPT_HITS, namespaces=self._where(handle))
        near = dict(found.trace.layers.get("vector", ()))
        hits = [
            h
            for h in found
            if h.memory.session_id != session
            and (set(h.sources) - {"vector"} or near.get(h.memory.id, 0.0) >= RELEVANT)
        ]
        context = render.context(
            [(h.memory, h.span) for h in hits[:PROMPT_HITS]], PROMPT_BUDGET, self.mem._vault.counter
        )
        return answer_with("user-prompt-submit", context)

    # -- capture ---------------------------------------------------------------------------------------

    def _capture(self, handle: AgentMemory, session: str, payload: dict[str, Any]) -> None:
        made = captured(payload)
        if made is None:
            return
        content, tags, metadata = made
        if metadata.get("path"):
            metadata["path"] = redact(relative(metadata["path"], text_of(payload.get("cwd"))))
        handle.add(
            content,
            memory_type="event",
            tags=tags,
            session_id=session,
            source_id="claude-code",
            metadata=metadata,
            entities=[metadata["path"]] if metadata.get("path") else None,
        )

    # -- summary ---------------------------------------------------------------------------------------

    def _summarise(self, handle: AgentMemory, session: str) -> None:
        """One summary a session: written when something happened, corrected when more did, else left alone."""
        with self._summing:
            where = [str(handle.namespace)]
            events = handle.search(
                sessions=[session], memory_types=["event"], namespaces=where, limit=EVENTS_READ
            )
            if not events:
                return
            before = handle.search(
                sessions=[session],
                memory_types=["summary"],
                tags=["session-summary"],
                namespaces=where,
                limit=1,
            )
            asked = self._asked.get(session) or (before[0].metadata.get("asked") if before else None)
            content = summary_of(list(reversed(events)), asked)
            if before and before[0].content == content:
                return
            metadata = {"asked": asked, "events": len(events)}
            if before:
                handle.update(before[0].id, content=content, metadata=metadata)
                return
            handle.add(
                content,
                memory_type="summary",
                tags=["session-summary"],
                session_id=session,
                source_id="claude-code",
                metadata=metadata,
            )


# -- rules --------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """A string; "" for anything else. Lone surrogates and NUL, which no store takes, become replacement signs."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def tool_of(payload: dict[str, Any]) -> tuple[str, dict[str, Any], Any]:
    """Name, input and response of the tool, in the current payload or the older one."""
    old = payload.get("tool")
    if isinstance(old, dict):
        name, given = old.get("name"), old.get("input")
        response = old.get("output", old.get("response", payload.get("output")))
    else:
        name = payload.get("tool_name")
        given, response = payload.get("tool_input"), payload.get("tool_response")
    return text_of(name), given if isinstance(given, dict) else {}, response


def captured(payload: dict[str, Any]) -> tuple[str, list[str], dict[str, Any]] | None:
    """(content, tags, metadata) of what a tool did, redacted; None for tools that only look."""
    name, given, response = tool_of(payload)
    if name in WRITERS:
        path = text_of(given.get("file_path") or given.get("path") or given.get("notebook_path"))
        if not path:
            return None
        shown = redact(relative(path, text_of(payload.get("cwd"))))
        return (
            f"{WRITERS[name]} file {shown}{amount(name, given)}",
            ["file-change", name.lower()],
            {"tool": name, "path": path},
        )
    if name != "Bash":
        return None
    command = text_of(given.get("command"))[:TEXT_READ].strip()
    programs = programs_of(command)
    if not programs or only_looks(command, programs):
        return None
    program = next((p for p in programs if p not in _SETTING and p not in QUIET), programs[0])
    content = f"Ran command: {clip(redact(command), COMMAND_KEPT)}"
    said = "" if _SECRET_OUTPUT.search(command) else output_of(response)
    # Redacted as a whole and then cut: half a token would no longer look like one.
    said = clip(" ".join(redact(said[:TEXT_READ]).split()), OUTPUT_KEPT)
    if said:
        content += f"\nOutput: {said}"
    return content, ["command"], {"tool": "Bash", "program": redact(program)[:60]}


def relative(path: str, cwd: str) -> str:
    """A path as seen from the working folder, when it lies inside."""
    pure = PurePath(path)
    return str(pure.relative_to(cwd)) if cwd and pure.is_relative_to(cwd) and str(pure) != cwd else path


def amount(name: str, given: dict[str, Any]) -> str:
    """How much was written or replaced, in lines; contents themselves are never captured."""
    if name == "Write":
        lines = len(text_of(given.get("content")).splitlines())
        return f" ({lines} lines)" if lines else ""
    if name == "Edit":
        old, new = (len(text_of(given.get(k)).splitlines()) for k in ("old_string", "new_string"))
        return f" ({old} lines replaced by {new})" if old or new else ""
    if name == "MultiEdit" and isinstance(given.get("edits"), list):
        return f" ({len(given['edits'])} edits)"
    return ""


def programs_of(command: str) -> list[str]:
    """The programs a command line starts, in order; folders, assignments and `sudo` left aside."""
    found = []
    for part in re.split(r"&&|\|\||[;|\n]", command):
        for word in part.split():
            if word in _PREFIXES or re.match(r"[A-Za-z_]\w*=", word):
                continue
            found.append(word.rpartition("/")[2])
            break
    return found


def only_looks(command: str, programs: list[str]) -> bool:
    """Whether a command line reads and changes nothing: only such programs, and no output into a file."""
    return all(p in QUIET or p in _SETTING for p in programs) and not re.search(
        r"(?<!\d)>(?!&|\s*/dev/null)", command
    )


def output_of(response: Any) -> str:
    """What a command printed."""
    if isinstance(response, dict):
        parts = [text_of(response.get(k)) for k in ("stdout", "stderr", "output", "content")]
        return "\n".join(p for p in parts if p)
    return text_of(response)


def clip(text: str, most: int) -> str:
    """The text, cut to a length; never inside a mark."""
    if len(text) <= most:
        return text
    cut = text[:most]
    start = cut.rfind(MARK[0])
    if start >= 0 and MARK.startswith(cut[start:]) and len(cut) - start < len(MARK):
        cut = cut[:start]
    return f"{cut}…"


def summary_of(events: list[Memory], asked: str | None) -> str:
    """What a session did, in three lines: by rules, the same for the same events."""
    files: Counter[str] = Counter()
    programs: Counter[str] = Counter()
    for event in events:
        if event.metadata.get("path"):
            files[str(event.metadata["path"])] += 1
        elif event.metadata.get("program"):
            programs[str(event.metadata["program"])] += 1
    parts = []
    if files:
        parts.append(f"{sum(files.values())} file changes ({listed(files, 10)})")
    if programs:
        parts.append(f"{sum(programs.values())} commands run ({listed(programs, 8)})")
    lines = [f"Session summary: {', '.join(parts)}"]
    if asked:
        lines.append(f"Asked first: {asked}")
    return "\n".join(lines)


def listed(counts: Counter[str], most: int) -> str:
    """Names with their counts, the most frequent first, then in order of appearance."""
    top = [f"{name} x{n}" if n > 1 else name for name, n in counts.most_common(most)]
    rest = len(counts) - len(top)
    return ", ".join(top) + (f", and {rest} more" if rest else "")
