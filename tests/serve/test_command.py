"""`twofold keys` and `twofold serve` as processes and as commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from twofold import AgentMemory
from twofold.cli import main
from twofold.serve import command
from twofold.serve.client import TwofoldClient
from twofold.serve.keys import Keys

from .conftest import Running


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def test_keys(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    made = run(
        "keys", "add", "exec-1", "--store", store, "--role", "executor", "--in", "build/*", "--quota", "9"
    )
    assert made.exit_code == 0
    key = made.stdout.splitlines()[0]
    assert Keys(tmp_path / "store" / "keys.json").find(key)
    listed = run("keys", "list", "--store", store)
    assert "exec-1" in listed.stdout
    assert "build/*" in listed.stdout
    assert "quota 9" in listed.stdout
    assert key not in listed.stdout
    body = json.loads(run("keys", "list", "--store", store, "--json").stdout)
    assert body[0]["write_quota"] == 9
    made = json.loads(run("keys", "add", "me", "--store", store, "--json").stdout)
    assert made["role"] is None
    assert made["key"].startswith("tf_")
    assert "revoked" in run("keys", "revoke", "exec-1", "--store", store).stdout
    assert "revoked 20" in run("keys", "list", "--store", store).stdout
    assert json.loads(run("keys", "revoke", "me", "--store", store, "--json").stdout)[0]["name"] == "me"
    failed = run("keys", "revoke", "me", "--store", store)
    assert failed.exit_code == 1
    assert "NotFound" in failed.stderr
    assert json.loads(run("keys", "revoke", "me", "--store", store, "--json").stdout)["error"] == "NotFound"
    assert "twofold keys add" in run("keys", "list", "--store", str(tmp_path / "other")).stdout


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_no_key_no_exposure(tmp_path: Path, host: str) -> None:
    store = str(tmp_path / "store")
    refused = run("serve", "--host", host, "--store", store)
    assert refused.exit_code == 1
    assert f"twofold keys add NAME --store {store}" in refused.stderr
    refused = run("serve", "--host", host, "--store", store, "--dev")
    assert refused.exit_code == 1
    assert "loopback only" in refused.stderr
    assert not (tmp_path / "store").exists()


def test_exposure_with_a_key_is_allowed(tmp_path: Path, clock: Any) -> None:
    keys = Keys(tmp_path / "keys.json")
    with pytest.raises(command.InvalidInput, match="--dev"):
        command.check_exposure("127.0.0.1", keys, dev=False, store="s")
    command.check_exposure("127.0.0.1", keys, dev=True, store="s")
    keys.add("me", clock=clock)
    command.check_exposure("0.0.0.0", keys, dev=False, store="s")
    keys.revoke("me", clock=clock)
    with pytest.raises(command.InvalidInput, match="refusing"):
        command.check_exposure("0.0.0.0", keys, dev=False, store="s")


def test_loopback_names() -> None:
    assert all(map(command.is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(command.is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        store = str(tmp_path / "store")
        failed = run("serve", "--port", port, "--store", store, "--dev", "--embedder", "hashing")
    assert failed.exit_code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in failed.stderr


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder", encoding="utf-8")
    failed = run("serve", "--store", str(tmp_path / "store"), "--keys", str(tmp_path / "k"), "--dev")
    assert failed.exit_code == 1


def test_a_whole_life(tmp_path: Path) -> None:
    """Start as a process, use it, revoke a key while it runs, stop by SIGTERM: status 0, nothing lost."""
    store = tmp_path / "store"
    key = json.loads(run("keys", "add", "me", "--store", str(store), "--json").stdout)["key"]
    other = json.loads(run("keys", "add", "other", "--store", str(store), "--tenant", "t2", "--json").stdout)[
        "key"
    ]
    process = subprocess.Popen(
        [
            sys.executable, "-c", "from twofold.cli import main; main()",
            "api", "--store", str(store), "--port", "0", "--embedder", "hashing", "--json",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["keys"] == 2
        with TwofoldClient(said["url"], key=key) as client, TwofoldClient(said["url"], key=other) as stranger:
            one = client.add("kept through a stop")
            client.recall("kept")
            assert stranger.search() == []
            stranger.add("of another tenant")
            assert [m.id for m in client.search()] == [one.id]
            run("keys", "revoke", "other", "--store", str(store))
            with pytest.raises(PermissionError):
                stranger.stats()
        os.kill(process.pid, signal.SIGTERM)
        _, logged = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    lines = [json.loads(x) for x in logged.splitlines() if x.startswith("{")]
    assert {"route": "add", "status": 200}.items() <= lines[0].items()
    assert "kept through" not in logged
    with AgentMemory(store, embedder="hashing") as mem:
        found = mem.get(one.id)
        assert found is not None
        assert found.access_count == 1
        assert mem.verify().ok


def test_the_command_line_works_on_a_server(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_KEY", running.key())
    monkeypatch.setenv("TWOFOLD_STORE", running.url)
    assert "added" in run("add", "The API runs on port 8080", "--tag", "api").stdout
    assert "port 8080" in run("recall", "Which port?", "-k", "1", "--explain").stdout
    body = json.loads(run("recall", "Which port?", "--json").stdout)
    assert body["hits"][0]["memory"]["tags"] == ["api"]
    assert run("get", "missing").exit_code == 3
    assert run("verify", "--embedder", "none").exit_code == 0
    failed = run("stats", "--tenant", "other")
    assert failed.exit_code == 1
    assert "PermissionDenied" in failed.stderr
