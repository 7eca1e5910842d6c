"""`twofold install` and `twofold uninstall`: asks, shows the diff, backs up, writes, checks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from twofold.console import reported
from twofold.integrations import installer
from twofold.integrations.installer import Change, Target

DEFAULT_STORE: Final = "~/.twofold/store"
CHECK_SECONDS: Final = 60


def shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of both commands."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Machine-readable output; implies --yes."),
        click.option("--dry-run", is_flag=True, help="Show the diff and write nothing."),
        click.option("--yes", "-y", is_flag=True, help="Ask nothing; take what is given and the defaults."),
        click.option("--project", type=click.Path(path_type=Path, file_okay=False), default=None,
                     help="The project's folder for --scope project. Default: the current one."),
        click.option("--home", type=click.Path(path_type=Path, file_okay=False), default=None, hidden=True),
        click.option("--store", envvar="TWOFOLD_STORE", default=None, help=f"Path or URL. Default: {DEFAULT_STORE}"),
        click.option("--scope", type=click.Choice(installer.SCOPES), default=None,
                     help="For this user (default) or for one project."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("tool", type=click.Choice(installer.TOOLS), required=False)
@shared
@click.option("--no-hooks", is_flag=True, help="Only the MCP server.")
@click.option("--no-mcp", is_flag=True, help="Only the hooks.")
@click.option(
    "--check", is_flag=True, help="Only check what is installed; exit status 1 when it does not work."
)
def install(tool: str | None, no_hooks: bool, no_mcp: bool, check: bool, **options: Any) -> None:
    r"""Give an agent's tool this memory: MCP server and hooks, with a diff first and a backup of each file.

    \b
    Example: twofold install
    Example: twofold install claude-code --yes
    Example: twofold install cursor --scope project --dry-run
    """
    with reported(options["as_json"]):
        _install(tool, no_hooks, no_mcp, check, options)


@click.command()
@click.argument("tool", type=click.Choice(installer.TOOLS))
@shared
def uninstall(tool: str, **options: Any) -> None:
    r"""Take our entries out of an agent's tool again; memories stay.

    \b
    Example: twofold uninstall claude-code --yes
    """
    with reported(options["as_json"]):
        _uninstall(tool, options)


def _target(tool: str, options: dict[str, Any], **more: Any) -> Target:
    store = options["store"] or DEFAULT_STORE
    if "://" not in store:
        store = str(Path(store).expanduser().resolve())
    return Target(
        tool,
        options["scope"] or "user",
        (options["home"] or Path.home()).expanduser(),
        (options["project"] or Path.cwd()).resolve(),
        store,
        **more,
    )


def _install(tool: str | None, no_hooks: bool, no_mcp: bool, check: bool, options: dict[str, Any]) -> None:
    ask = not (options["yes"] or options["as_json"] or options["dry_run"] or check)
    if tool is None:
        if not ask:
            raise click.UsageError("say which tool: " + ", ".join(installer.TOOLS))
        tool = click.prompt("Install memory for", type=click.Choice(installer.TOOLS), default="claude-code")
    if ask:
        options["scope"] = options["scope"] or click.prompt(
            "For this user or this project", type=click.Choice(installer.SCOPES), default="user"
        )
        options["store"] = options["store"] or click.prompt("Where to keep memories", default=DEFAULT_STORE)
        if tool == "claude-code" and not no_hooks and not no_mcp:
            no_hooks = not click.confirm(
                "Hooks too (context at the start, captures without secrets, summaries)?", default=True
            )
    target = _target(tool, options, hooks=not no_hooks, mcp=not no_mcp)
    if check:
        _report_checks(checks(target), options["as_json"])
        return
    done = carry_out(installer.plan(target), options, ask, "installed already; nothing to change")
    if options["dry_run"] or done is None:
        return
    found = checks(target)
    if options["as_json"]:
        click.echo(json.dumps({**done, "checks": found}, ensure_ascii=False))
        if not all(c["ok"] for c in found):
            sys.exit(1)
        return
    _report_checks(found, False)
    click.echo(f"Restart {tool}, and it remembers. To undo: twofold uninstall {tool} --scope {target.scope}")


def _uninstall(tool: str, options: dict[str, Any]) -> None:
    ask = not (options["yes"] or options["as_json"] or options["dry_run"])
    target = _target(tool, options)
    done = carry_out(installer.removal(target), options, ask, "nothing of ours is there")
    if options["dry_run"] or done is None:
        return
    if tool == "claude-code":
        from twofold.integrations.hook_command import request

        request("shutdown", target.store)
    if options["as_json"]:
        click.echo(json.dumps(done, ensure_ascii=False))


def carry_out(
    changes: list[Change], options: dict[str, Any], ask: bool, nothing: str
) -> dict[str, Any] | None:
    """Show the changes and, unless it is a dry run or the answer is no, make them. None when it was no."""
    due = [c for c in changes if c.changes]
    body: dict[str, Any] = {
        "changed": [str(c.path) for c in due],
        "backups": [],
        "dry_run": options["dry_run"],
    }
    if options["as_json"] and options["dry_run"]:
        click.echo(json.dumps({**body, "diff": "".join(c.diff() for c in due)}, ensure_ascii=False))
        return body
    if not options["as_json"]:
        if not due:
            click.echo(nothing)
        for change in due:
            click.echo(change.diff(), nl=False)
    if options["dry_run"]:
        return body
    if due and ask and not click.confirm(f"Write {len(due)} file{'s' * (len(due) > 1)}?", default=True):
        click.echo("nothing was written")
        return None
    for change in due:
        backup = installer.apply(change)
        if backup is not None:
            body["backups"].append(str(backup))
        if not options["as_json"]:
            click.echo(f"wrote {change.path}" + (f" (before: {backup.name})" if backup else ""))
    return body


# -- health -------------------------------------------------------------------------------------------


def checks(target: Target) -> list[dict[str, Any]]:
    """Whether what is installed works: entries in place, the server answers, a hook answers."""
    out = []
    for change in installer.plan(target):
        detail = "in place" if not change.changes else "missing or out of date; run twofold install"
        out.append({"name": str(change.path), "ok": not change.changes, "detail": detail})
    if target.mcp:
        out.append(_try("MCP server", lambda: server_answers(target)))
    if target.hooks and target.tool == "claude-code":
        out.append(_try("hooks", lambda: hook_answers(target)))
    return out


def _try(name: str, probe: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "ok": True, "detail": probe()}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return {"name": name, "ok": False, "detail": f"{type(error).__name__}: {error}"[:400]}


def server_answers(target: Target) -> str:
    """Start the MCP server as the tool would and shake hands with it."""
    entry = target.server()
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                   "clientInfo": {"name": "twofold-install", "version": "1"}},
    }  # fmt: skip
    # The pipe stays open until the answer is there: a server may stop when its input ends.
    with subprocess.Popen(
        [entry["command"], *entry["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=target.project,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(hello).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                process.wait(timeout=CHECK_SECONDS)
                said = process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
                raise ValueError(said.strip()[-300:] or "it ended without an answer")
            info = json.loads(line)["result"]["serverInfo"]
        finally:
            process.terminate()
    return f"{info['name']} {info['version']} answers"


def hook_answers(target: Target) -> str:
    """Run the hook's client as Claude Code would; the background process must be up behind it."""
    words = [target.python, "-I", "-S", str(target.client)]
    payload = json.dumps({"session_id": "twofold-install-check", "cwd": str(target.project)}).encode()
    state: dict[str, Any] = {}
    for event in ("ping", "ping", "session-start"):
        done = subprocess.run(
            [*words, event, "--store", target.store],
            input=payload,
            capture_output=True,
            timeout=CHECK_SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
        if event == "ping" and answer:
            state = answer
    problem = state["problem"]
    if problem and not problem.startswith("twofold: no embedding model"):
        raise ValueError(problem)
    return f"background process {state['pid']} answers" + (f"; {problem}" if problem else "")


def _report_checks(found: list[dict[str, Any]], as_json: bool) -> None:
    healthy = all(c["ok"] for c in found)
    if as_json:
        click.echo(json.dumps({"healthy": healthy, "checks": found}, ensure_ascii=False))
    else:
        for check in found:
            click.echo(f"[{'ok' if check['ok'] else 'FAILED'}] {check['name']}: {check['detail']}")
    if not healthy:
        sys.exit(1)
