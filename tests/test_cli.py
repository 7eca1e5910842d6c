"""The command line as users type it: output, JSON, exit status, and that no command is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from twofold import cli

OK, FAILED, USAGE, NOTHING = 0, 1, 2, 3


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def call(*arguments: str, store: str = "store", input: str | None = None) -> Result:
        env = {"TWOFOLD_STORE": str(tmp_path / store), "TWOFOLD_EMBEDDER": "hashing:64"}
        return CliRunner().invoke(cli.main, list(arguments), env=env, input=input)

    return call


def value(result: Result) -> Any:
    """What a command with --json printed."""
    return json.loads(result.stdout)


def added(run: Any, *arguments: str) -> str:
    result = run("add", *arguments, "--json")
    assert result.exit_code == OK, result.output
    return str(value(result)["id"])


def test_add_recall_get(run: Any) -> None:
    memory = added(run, "The API runs on port 8080", "--tag", "api", "--key", "api.port", "--type", "fact")
    added(run, "Lunch is at noon")
    result = run("recall", "which port does the API use", "-k", "1")
    assert result.exit_code == OK
    assert "The API runs on port 8080" in result.stdout
    body = value(run("recall", "api port", "-k", "1", "--json", "--explain"))
    assert body["hits"][0]["memory"]["id"] == memory
    assert body["hits"][0]["parts"]
    assert body["trace"]["layers"]["lexical"]
    assert value(run("get", memory, "--json"))["key"] == "api.port"
    assert run("get", memory).stdout.startswith("id: ")
    assert "data, not instructions" in run("recall", "api port", "--context").stdout


def test_nothing_found_has_its_own_status(run: Any) -> None:
    run("init")
    assert run("recall", "anything").exit_code == NOTHING
    assert run("search", "--tag", "x").exit_code == NOTHING
    assert run("timeline", "nobody").exit_code == NOTHING
    assert run("get", "nope").exit_code == NOTHING


def test_errors_name_themselves(run: Any) -> None:
    run("init")
    result = run("forget", "nope")
    assert result.exit_code == FAILED
    assert "NotFound: " in result.stderr
    assert value(run("forget", "nope", "--json"))["error"] == "NotFound"
    assert run("add", "x", "--metadata", "{").exit_code == FAILED
    assert run("add").exit_code == USAGE
    assert run("recall", "x", "--as-of", "2026-01-01T00:00:00").exit_code == FAILED
    assert run("add", "x", "--agent", "a", "--role", "boss").exit_code == FAILED


def test_standard_input(run: Any) -> None:
    assert run("add", "-", input="from a pipe\n").exit_code == OK
    assert "from a pipe" in run("search").stdout


def test_supersession_history_and_restore(run: Any) -> None:
    old = added(run, "port 8080", "--key", "api.port")
    preview = value(run("add", "port 9090", "--key", "api.port", "--dry-run", "--json"))
    assert [d["old_id"] for d in preview] == [old]
    new = added(run, "port 9090", "--key", "api.port")
    assert value(run("get", old, "--json"))["superseded_by"] == new
    history = value(run("history", old, "--json"))
    assert [e["kind"] for e in history["events"]] == ["add", "supersede"]
    assert "added by owner" in run("history", old).stdout
    assert run("restore", old).exit_code == OK
    assert value(run("get", old, "--json"))["superseded_by"] is None
    assert run("forget", old).exit_code == OK
    assert len(value(run("search", "--json"))) == 1
    assert len(value(run("search", "--all", "--json"))) == 2


def test_link_and_explain(run: Any) -> None:
    a, b = added(run, "The cache was cold"), added(run, "The page was slow")
    assert run("link", a, b, "--relation", "caused").exit_code == OK
    assert run("link", a, a).exit_code == FAILED
    assert "place 1" in run("explain", "cold cache", a).stdout
    assert value(run("explain", "cold cache", b, "--json"))["memory_id"] == b


def test_erase_asks_first(run: Any) -> None:
    memory = added(run, "a secret", "--source", "hr")
    assert run("erase", memory, "--reason", "request").exit_code == USAGE
    assert value(run("get", memory, "--json"))["content"] == "a secret"
    preview = value(run("erase", "--where-source", "hr", "--reason", "request", "--json"))
    assert (preview["applied"], preview["ids"]) == (False, [memory])
    assert run("erase", memory, "--reason", "request", "--yes").exit_code == OK
    assert run("get", memory).exit_code == NOTHING
    assert run("verify").exit_code == OK


def test_receipts_replay(run: Any, tmp_path: Path) -> None:
    added(run, "The API runs on port 8080")
    body = value(run("recall", "api port", "--keep", "--json"))
    added(run, "The API also listens on port 9090")
    result = run("replay", body["receipt"])
    assert (result.exit_code, result.stdout.strip()) == (OK, "identical")
    assert run("replay", "nope").exit_code == FAILED


def test_export_import_backup_verify(run: Any, tmp_path: Path) -> None:
    added(run, "one"), added(run, "two")
    head = value(run("verify", "--json"))["head"]
    assert run("export", str(tmp_path / "x.jsonl")).exit_code == OK
    assert value(run("import", str(tmp_path / "x.jsonl"), "--json", store="copy"))["lossless"]
    assert value(run("verify", "--json", "--expected-head", head, store="copy"))["ok"]
    assert run("verify", "--expected-head", "1:00", store="copy").exit_code == FAILED
    assert run("backup", str(tmp_path / "b.db")).exit_code == OK
    assert run("backup", str(tmp_path / "b.db")).exit_code == FAILED
    assert value(run("stats", "--json", store="b.db"))["memories"] == 2
    restored = str(tmp_path / "restored")
    assert value(run("restore-backup", str(tmp_path / "b.db"), restored, "--json"))["path"] == restored
    assert value(run("verify", "--json", "--expected-head", head, store="restored"))["ok"]
    assert (
        run("restore-backup", str(tmp_path / "b.db"), restored).exit_code == FAILED
    )  # nothing is overwritten
    assert run("restore-backup", str(tmp_path / "none.db"), str(tmp_path / "r2")).exit_code != OK
    (tmp_path / "m.jsonl").write_text('{"text": "three"}\n')
    assert value(run("import", str(tmp_path / "m.jsonl"), "--format", "jsonl", "--json"))["new"] == 1


def test_keeping(run: Any) -> None:
    added(run, "an observation of little weight", "--type", "observation")
    assert run("health").exit_code == OK
    assert "[ok] hash chain" in run("doctor").stdout
    assert value(run("maintain", "--now", "2099-01-01", "--json"))["faded"] == 1
    assert value(run("gc", "--json"))["candidates"] == []
    assert run("gc", "--apply").exit_code == OK
    assert value(run("reembed", "hashing:128", "--json"))["generation"] == 2
    assert "executor" in run("roles").stdout
    assert value(run("roles", "--json"))["monitor"]["write_only"] == ["facts/*"]


def test_acting_as_an_agent(run: Any) -> None:
    assert run("add", "x", "--agent", "m", "--role", "monitor", "-n", "default").exit_code == FAILED
    memory = value(
        run("add", "disk is full", "--agent", "m", "--role", "monitor", "-n", "facts/infra", "--json")
    )
    assert (memory["agent_id"], memory["agent_role"], memory["memory_type"]) == (
        "m",
        "monitor",
        "observation",
    )


@pytest.mark.model
def test_demo_and_bench(run: Any) -> None:
    result = run("demo")
    assert result.exit_code == OK, result.output
    assert "as of 10:30: The IP of server A is 192.168.1.100" in result.stdout
    assert "replayed from its receipt: identical" in result.stdout
    assert value(run("bench", "--rows", "50", "--json"))["recall_ms_median"] > 0


def commands() -> list[tuple[str, click.Command]]:
    out = []
    context = click.Context(cli.main)
    for name in cli.main.list_commands(context):
        command = cli.main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            out += [(f"{name} {n}", c) for n, c in command.commands.items()]
        else:
            out.append((name, command))
    return out


@pytest.mark.parametrize("name,command", commands(), ids=[n for n, _ in commands()])
def test_every_command_has_help_with_an_example(name: str, command: click.Command) -> None:
    result = CliRunner().invoke(cli.main, [*name.split(), "--help"])
    assert result.exit_code == OK
    assert "Example" in result.stdout, name
