"""`twofold hook`: the hooks of Claude Code by name, and the background process behind them."""

from __future__ import annotations

import json
import sys

import click

from twofold.integrations import hook_client

EVENTS = ("session-start", "user-prompt-submit", "post-tool-use", "pre-compact", "stop", "session-end")
HELP = {
    "session-start": "Give a new session what is remembered of the project.",
    "user-prompt-submit": "Give memories that help with a prompt.",
    "post-tool-use": "Capture what a tool did, without secrets.",
    "pre-compact": "Summarise the session before its context is compacted.",
    "stop": "Summarise the session after an answer.",
    "session-end": "Summarise the session at its end.",
}
DEFAULT_STORE = "~/.twofold/store"

store_option = click.option(
    "--store", envvar="TWOFOLD_STORE", default=DEFAULT_STORE, show_default=True, help="Path or URL."
)


@click.group()
def hook() -> None:
    """Answer a hook of Claude Code: JSON on standard input, JSON on standard output.

    Never fails: what goes wrong gives `{}` and a line in ~/.local/state/twofold/hooks.log. Answers come from a
    background process that starts on demand and ends when idle ($TWOFOLD_HOOK_IDLE minutes, 15 by default).

    Example: twofold hook session-start < payload.json
    """


def _add(event: str) -> None:
    @hook.command(event, help=f"{HELP[event]}\n\nExample: twofold hook {event} < payload.json")
    @store_option
    def run(store: str) -> None:
        sys.exit(hook_client.main([event, "--store", store, "--python", sys.executable]))


for _event in EVENTS:
    _add(_event)


@hook.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def status(store: str, as_json: bool) -> None:
    """Show the background process of a store; exit status 1 when there is none.

    Example: twofold hook status
    """
    found = request("ping", store)
    if as_json:
        click.echo(json.dumps(found))
    elif found is None:
        click.echo("no background process; the next hook starts it")
    else:
        click.echo(f"pid {found['pid']}, version {found['version']}, {found['problem'] or 'ready'}")
    if found is None:
        sys.exit(1)


@hook.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def stop_process(store: str, as_json: bool) -> None:
    """End the background process of a store.

    Example: twofold hook stop-process
    """
    done = request("shutdown", store) is not None
    if as_json:
        click.echo(json.dumps({"stopped": done}))
    else:
        click.echo("stopped" if done else "no background process")


@hook.command(hidden=True)
@store_option
@click.option("--idle-minutes", default=None)
def daemon(store: str, idle_minutes: str | None) -> None:
    """Be the background process.

    Example: twofold hook daemon
    """
    from twofold.integrations import daemon as background

    more = [] if idle_minutes is None else ["--idle-minutes", idle_minutes]
    sys.exit(background.main(["--store", store, *more]))


def request(event: str, store: str, payload: bytes = b"{}") -> dict[str, object] | None:
    """The answer of a running background process; None when there is none."""
    path = hook_client.store_path(store)
    try:
        deadline = hook_client._now() + hook_client.PATIENCE
        answer = hook_client.ask(
            hook_client.socket_path(path), hook_client.framed(event, path, payload), deadline
        )
    except OSError:
        return None
    found: dict[str, object] = json.loads(answer)
    return found
