"""`twofold serve` and `twofold keys`: options, files and messages around the server; no rules."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from twofold.clock import SystemClock
from twofold.console import reported
from twofold.errors import InvalidInput
from twofold.serve.keys import Keys, default_path
from twofold.serve.limits import Limits

if TYPE_CHECKING:
    from twofold.memory import AgentMemory

MISSING: Final = "`twofold serve` needs packages that are not installed; pip install 'twofold[serve]'"


def located(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which store and which keys file."""

    @click.option(
        "--store", envvar="TWOFOLD_STORE", default="./store", show_default=True, help="Path or URL."
    )
    @click.option(
        "--keys",
        "keys_file",
        envvar="TWOFOLD_KEYS",
        type=click.Path(path_type=Path),
        default=None,
        help="File of the keys; left out, keys.json in the store's folder.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
    @functools.wraps(command)
    def wrapper(store: str, keys_file: Path | None, as_json: bool, **options: Any) -> None:
        with reported(as_json):
            command(store, Keys(keys_file or default_path(store)), as_json, **options)

    return wrapper


# -- keys -------------------------------------------------------------------------------------------------


@click.group()
def keys() -> None:
    """Keys for `twofold serve`: who may use the server, as whom, and where."""


@keys.command("add")
@click.argument("name")
@click.option("--tenant", default="default", show_default=True)
@click.option("--role", default="owner", show_default=True, help="owner, or a role; see `twofold roles`.")
@click.option("--in", "namespaces", multiple=True, help="Namespace or prefix 'build/*' the key is for.")
@click.option("--namespace", "-n", default=None, help="Where it writes when a request does not say.")
@click.option("--quota", "write_quota", type=int, default=None, help="Writes it may make in all.")
@click.option("--rate", type=float, default=None, help="Requests per second.")
@click.option("--read-only", is_flag=True)
@located
def keys_add(store: str, keys_: Keys, as_json: bool, name: str, **options: Any) -> None:
    """Make a key and print it, this once; only its hash is kept. NAME is the agent it acts as.

    Example: twofold keys add exec-1 --role executor --in "build/*" --quota 1000
    """
    options["namespaces"] = list(options["namespaces"]) or None
    key, entry = keys_.add(name, clock=SystemClock(), **options)
    if as_json:
        click.echo(json.dumps({"key": key, **entry.shown()}, ensure_ascii=False, indent=2))
        return
    click.echo(key)
    click.echo(
        f"{entry.id}: {entry.role or 'owner'} of tenant {entry.tenant}, in {keys_.path} (store {store})",
        err=True,
    )


@keys.command("list")
@located
def keys_list(store: str, keys_: Keys, as_json: bool) -> None:
    """The keys there are, without their secrets; revoked ones too.

    Example: twofold keys list --json
    """
    found = [k.shown() for k in keys_.all()]
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    for k in found:
        where = ", ".join(k["namespaces"] or ["all its role reaches"])
        state = f"revoked {k['revoked_at']}" if k["revoked_at"] else "active"
        quota = "" if k["write_quota"] is None else f", quota {k['write_quota']}"
        click.echo(f"{k['id']}  {k['name']}  {k['tenant']}  {k['role'] or 'owner'}  {where}{quota}  {state}")
    if not found:
        click.echo(f"no keys for {store}; make one: twofold keys add NAME")


@keys.command("revoke")
@click.argument("name_or_id")
@located
def keys_revoke(store: str, keys_: Keys, as_json: bool, name_or_id: str) -> None:  # noqa: ARG001 -- of `located`
    """Make a key useless from now on; a running server notices at once.

    Example: twofold keys revoke exec-1
    """
    revoked = keys_.revoke(name_or_id, clock=SystemClock())
    if as_json:
        click.echo(json.dumps([k.shown() for k in revoked], ensure_ascii=False, indent=2))
        return
    for key in revoked:
        click.echo(f"revoked {key.id} ({key.name})")


# -- serve ------------------------------------------------------------------------------------------------


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8420, show_default=True, help="0: any free one."
)
@click.option(
    "--tenant", default="default", show_default=True, help="Tenant of requests without a key (--dev)."
)
@click.option("--embedder", default=None, help='As the setting "embedder": auto, none, hashing, ...')
@click.option("--dev", is_flag=True, help="Answer requests without a key as the owner; on loopback only.")
@click.option(
    "--compat", type=click.Choice(["memwright"]), default=None, help="Serve the peer's REST routes too."
)
@click.option(
    "--rate",
    type=float,
    default=Limits().rate,
    show_default=True,
    help="Requests a second per key; 0: no limit.",
)
@click.option(
    "--max-body", type=int, default=Limits().body, show_default=True, help="Bytes of a JSON request."
)
@click.option(
    "--timeout", type=float, default=Limits().timeout, show_default=True, help="Seconds per request."
)
@click.option(
    "--threads",
    type=int,
    default=Limits().readers,
    show_default=True,
    help="For reads; writes have their own.",
)
@click.option(
    "--drain",
    type=float,
    default=Limits().drain,
    show_default=True,
    help="Seconds a stop waits for requests.",
)
@click.option(
    "--maintain-every",
    type=float,
    default=24.0,
    show_default=True,
    help="Hours between maintenance runs; 0: never.",
)
@click.option("--no-access-log", is_flag=True, help="Do not write a line per request to stderr.")
@located
def serve(store: str, keys_: Keys, as_json: bool, host: str, port: int, **options: Any) -> None:
    """Serve the store as JSON over HTTP; /openapi.json describes it, docs/http.md explains it.

    Example: twofold keys add me && twofold serve --host 0.0.0.0 --port 8420
    """
    check_exposure(host, keys_, dev=options["dev"], store=store)
    try:
        import uvicorn

        from twofold.serve.app import ACCESS, LOG, Server, listen
        from twofold.serve.patience import patient
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise InvalidInput(MISSING) from None
    from twofold.memory import AgentMemory

    limits = Limits.of_rate(
        options["rate"],
        body=options["max_body"],
        timeout=options["timeout"],
        readers=options["threads"],
        drain=options["drain"],
        maintain_every=3600.0 * options["maintain_every"],
    )
    more: dict[str, Any] = {}
    if options["embedder"] is not None:
        more["embedder"] = None if options["embedder"].lower() == "none" else options["embedder"]
    first: list[AgentMemory] = []

    def open_tenant(tenant: str) -> AgentMemory:
        if not first:
            first.append(AgentMemory(store, tenant=tenant, **more))
            return first[0]
        # One model in memory serves all tenants.
        return AgentMemory(store, tenant=tenant, embedder=first[0].embedder, config=first[0].config)

    _log_to_stderr(LOG, "%(levelname)s %(message)s", logging.INFO)
    _log_to_stderr(ACCESS, "%(message)s", logging.CRITICAL if options["no_access_log"] else logging.INFO)
    server = Server(
        open_tenant,
        keys_,
        limits,
        dev=options["tenant"] if options["dev"] else None,
        compat=options["compat"],
    )
    tenants = sorted({k.tenant for k in keys_.active()}) or [options["tenant"]]
    # What cannot be opened is said now, not at the first request.
    with contextlib.closing(server), contextlib.closing(listen(host, port)) as sock:
        server.owner(tenants[0]).stats()
        config = uvicorn.Config(
            server.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(limits.drain) or 1,
            timeout_keep_alive=75,
            lifespan="on",
            http=patient(limits.timeout),
            ws="none",
        )
        runner = uvicorn.Server(config)
        # uvicorn raises a signal again after its orderly stop, which would turn the stop into a death; and one
        # that comes before it listens to signals must count too.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(runner, "should_exit", True))
        where = f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
        count = len(keys_.active())
        if as_json:
            click.echo(json.dumps({"url": where, "store": store, "keys": count}))
        else:
            click.echo(f"serving {store} at {where} (keys: {count}{', --dev' if options['dev'] else ''})")
        sys.stdout.flush()
        runner.run(sockets=[sock])


def check_exposure(host: str, keys_: Keys, *, dev: bool, store: str) -> None:
    """Refuse to open what nobody meant to open."""
    local = is_loopback(host)
    if dev and not local:
        raise InvalidInput(f"--dev answers without keys, so it binds to loopback only, not to {host}")
    if dev or keys_.active():
        return
    make = f"twofold keys add NAME --store {store}"
    if not local:
        raise InvalidInput(f"refusing to bind to {host} without any key; make one first: {make}")
    raise InvalidInput(
        f"no key in {keys_.path} yet, so nobody could use the server; make one: {make}  (or pass --dev)"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _log_to_stderr(logger: logging.Logger, form: str, level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(form))
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
