"""`twofold mcp`: the options, and which handle each caller gets."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from twofold.console import reported
from twofold.errors import InvalidInput
from twofold.integrations.projects import project_namespace

if TYPE_CHECKING:
    from twofold.integrations.mcp_face import Face, Seat
    from twofold.memory import AgentMemory

PROFILES: Final = ("twofold", "reference", "memwright")
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
HEADER_SECONDS: Final = 30.0


@click.command()
@click.option(
    "--transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True,
    help="http is the protocol's streamable HTTP, at /mcp.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 picks one.")
@click.option(
    "--profile", type=click.Choice(PROFILES), default="twofold", show_default=True,
    help="Names and shapes of the tools: our own, the official reference memory server's, or Memwright's.",
)  # fmt: skip
@click.option(
    "--store", envvar="TWOFOLD_STORE", default="./store", show_default=True, help="Path or URL.",
)  # fmt: skip
@click.option("--tenant", envvar="TWOFOLD_TENANT", default="default", show_default=True)
@click.option(
    "--namespace", "-n", "namespaces", multiple=True,
    help="Where to work; with --agent also prefixes 'build/*', several times. The first exact one is written to.",
)  # fmt: skip
@click.option("--project", is_flag=True, help="Work in the namespace of the current project's folder.")
@click.option("--agent", default=None, help="Act as this agent, with --role.")
@click.option(
    "--role", default=None, help="Role to act in (executor with --agent alone); see `twofold roles`."
)
@click.option("--read-only", is_flag=True, help="No tool may change the store.")
@click.option("--embedder", default=None, help='As the setting "embedder": auto, none, hashing, ...')
@click.option(
    "--keys", type=click.Path(path_type=Path), default=None,
    help="File of the API keys of `twofold keys` (http). Default: the store's.",
)  # fmt: skip
@click.option("--dev", is_flag=True, help="http on loopback without keys: anyone on this machine is let in.")
@click.option(
    "--import", "import_", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=None,
    help="Read a memory.jsonl of the reference server into the store, and stop.",
)  # fmt: skip
@click.option(
    "--export", "export_", type=click.Path(path_type=Path, dir_okay=False), default=None,
    help="Write the graph as the reference server's memory.jsonl, and stop.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output of --import and --export.")
@click.option(
    "--fixture", hidden=True, default=None, help="For conformance tests: FILE.py:function of a Face."
)
def mcp(**options: Any) -> None:
    r"""Serve memory to agents over the Model Context Protocol.

    \b
    Example: twofold mcp --store ~/.twofold/store --project
    Example: twofold mcp --transport http --port 8765 --dev
    Example: twofold mcp --profile reference --export memory.jsonl
    """
    with reported(options["as_json"]), contextlib.ExitStack() as stack:
        run(options, stack)


def run(options: dict[str, Any], stack: contextlib.ExitStack) -> None:
    """Do what the options ask for."""
    moving = options["import_"] or options["export_"]
    if moving and options["profile"] != "reference":
        raise click.UsageError("--import and --export belong to --profile reference")
    if options["import_"] and options["export_"]:
        raise click.UsageError("give either --import or --export")
    if not moving and importlib.util.find_spec("mcp") is None:
        raise InvalidInput("the package `mcp` is not installed; run: pip install 'twofold[mcp]'")
    with_http = options["transport"] == "http" and not moving
    if with_http and options["dev"] and options["host"] not in LOOPBACK:
        raise click.UsageError(f"--dev is for loopback; {options['host']} needs keys: twofold keys add NAME")
    owner, handle = stack.enter_context(opened(options))
    if moving:
        move(handle, options)
        return
    face = face_of(options)
    if with_http:
        serve_http(face, owner, handle, options)
        return
    from twofold.integrations.mcp_face import Seat
    from twofold.integrations.mcp_server import run_stdio

    run_stdio(face, Seat(handle))


@contextlib.contextmanager
def opened(options: dict[str, Any]) -> Iterator[tuple[AgentMemory, AgentMemory]]:
    """The owner's handle, and the one that the options narrow it to."""
    from twofold.memory import AgentMemory

    patterns = list(options["namespaces"])
    if options["project"]:
        patterns.insert(0, project_namespace())
    exact = [n for n in patterns if "*" not in n]
    narrowed = options["agent"] is not None or options["role"] is not None
    if not narrowed and (len(patterns) > 1 or len(exact) != len(patterns)):
        raise click.UsageError("several namespaces or a prefix need --agent or --role")
    more: dict[str, Any] = {}
    if options["embedder"] is not None:
        more["embedder"] = None if options["embedder"].lower() == "none" else options["embedder"]
    if "://" not in options["store"]:
        options["store"] = str(Path(options["store"]).expanduser())
    with AgentMemory(
        options["store"], tenant=options["tenant"], namespace=exact[0] if exact else "default", **more
    ) as owner:
        owner.tenant  # noqa: B018 -- of a server: that it answers, and takes the key, is found out before an agent does
        if narrowed:
            handle = owner.as_agent(
                options["agent"] or "mcp",
                role=options["role"] or "executor",
                namespaces=patterns or None,
                read_only=options["read_only"],
            )
        else:
            handle = owner.read_only() if options["read_only"] else owner
        yield owner, handle


def move(mem: AgentMemory, options: dict[str, Any]) -> None:
    """Import or export the reference server's file."""
    from twofold.integrations import reference_graph

    if options["import_"]:
        path, entities, relations = options["import_"], *reference_graph.import_file(mem, options["import_"])
        verb = "read"
    else:
        path, entities, relations = options["export_"], *reference_graph.export_file(mem, options["export_"])
        verb = "wrote"
    if options["as_json"]:
        click.echo(json.dumps({"path": str(path), "entities": entities, "relations": relations}))
    else:
        click.echo(f"{verb} {entities} entities and {relations} relations: {path}")


def face_of(options: dict[str, Any]) -> Face:
    """The profile's face, or a test's own."""
    if options["fixture"]:
        file, _, name = options["fixture"].partition(":")
        spec = importlib.util.spec_from_file_location("twofold_mcp_fixture", file)
        if spec is None or spec.loader is None:
            raise click.UsageError(f"--fixture {file!r} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made: Face = getattr(module, name)()
        return made
    from twofold.integrations import mcp_profiles

    return mcp_profiles.PROFILES[options["profile"]](read_only=options["read_only"])


def serve_http(face: Face, owner: AgentMemory, handle: AgentMemory, options: dict[str, Any]) -> None:
    """Serve over HTTP until stopped."""
    import uvicorn

    from twofold.integrations.mcp_server import PATH, http_app
    from twofold.serve.patience import patient

    admit = gate(owner, handle, options)
    app = http_app(face, admit, host=options["host"])
    config = uvicorn.Config(
        app,
        host=options["host"],
        port=options["port"],
        log_level="warning",
        timeout_graceful_shutdown=5,
        http=patient(HEADER_SECONDS),
        ws="none",
    )
    server = uvicorn.Server(config)
    sockets = [config.bind_socket()]
    sockets[0].listen(128)  # who reads the address below may connect at once
    port = sockets[0].getsockname()[1]
    click.echo(f"serving {options['profile']} at http://{options['host']}:{port}{PATH}", err=True)
    server.run(sockets=sockets)


def gate(
    owner: AgentMemory, handle: AgentMemory, options: dict[str, Any]
) -> Callable[[str | None], Seat | None]:
    """Who is let in over HTTP: with --dev everyone, as the handle; else bearers of keys, as their keys say."""
    from twofold.integrations.mcp_face import Seat
    from twofold.serve.keys import Keys, default_path

    if options["dev"]:
        seat = Seat(handle)
        return lambda _: seat
    keys = Keys(options["keys"] or default_path(options["store"]))
    if not [k for k in keys.active() if k.tenant == owner.tenant]:
        raise InvalidInput(
            f"no active key of tenant {owner.tenant!r} in {keys.path}; make one with: twofold keys add NAME "
            f"--store {options['store']} (or let everyone on this machine in with --dev)"
        )
    if handle is not owner:
        raise click.UsageError(
            "with keys, the keys say role and namespaces: leave out --agent, --role, --read-only"
        )
    seats: dict[str, Seat] = {}

    def admit(token: str | None) -> Seat | None:
        key = keys.find(token) if token else None
        if key is None or key.tenant != owner.tenant:
            return None
        # Two first requests at once may make two seats; the one stored stays.
        return seats.get(key.id) or seats.setdefault(key.id, Seat(key.handle(owner)))

    return admit
