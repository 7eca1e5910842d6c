"""Suites and clients that are not ours: the official conformance runner, the TypeScript SDK, the reference server.

They come from npm (Node 22 too), into a folder that MCP_NPM_DIR may name to keep it between runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from tests.integrations import test_mcp
from tests.integrations.mcp_runs import command, drive, environment, http_server, over_stdio
from tests.integrations.reference_plan import plan
from tests.integrations.test_mcp_reference import LENGTH, RECORDED, SEED, answers

pytestmark = pytest.mark.long
HERE = Path(__file__).resolve().parent
PACKAGES = [
    "node@22.23.3",
    "@modelcontextprotocol/conformance@0.1.16",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-memory@2026.8.31",
]


@pytest.fixture(scope="session")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose node_modules has PACKAGES."""
    kept = os.environ.get("MCP_NPM_DIR")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("npm")
    modules = folder / "node_modules" / "@modelcontextprotocol"
    if not (modules / "conformance").is_dir() or not (modules / "server-memory").is_dir():
        if shutil.which("npm") is None:
            pytest.skip("npm is not on this machine")
        (folder / "package.json").write_text('{"private": true}')
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", *PACKAGES],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm install failed: {done.stderr[-500:]}")
    return folder


def node(npm: Path) -> str:
    return str(npm / "node_modules" / ".bin" / "node")


def test_official_conformance_runner(npm: Path, tmp_path: Path) -> None:
    runner = npm / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    arguments = ["--store", str(tmp_path / "s"), "--embedder", "none", "--dev"]
    with http_server([*arguments, "--fixture", f"{HERE / 'mcp_fixture.py'}:fixture"]) as url:
        for suite in ("active", "pending"):
            done = subprocess.run(
                [node(npm), str(runner), "server", "--url", url, "--suite", suite]
                + (["--expected-failures", str(HERE / "mcp_conformance.yml")] if suite == "active" else []),
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            print(done.stdout[-3000:])  # noqa: T201 - the table belongs in the log
            if suite == "active":
                assert done.returncode == 0, done.stdout[-4000:] + done.stderr
                assert done.stdout.count("✓") >= 20
            else:
                assert "✓ json-schema-2020-12" in done.stdout


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_typescript_client(npm: Path, tmp_path: Path, transport: str) -> None:
    script = npm / "mcp_client.mjs"  # modules are found from where the script lies
    shutil.copy(HERE / "mcp_client.mjs", script)
    arguments = ["--store", str(tmp_path / "s"), "--embedder", "hashing"]

    def run(server: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            [node(npm), str(script)],
            input=json.dumps({"server": server, "steps": test_mcp.STEPS}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        out: dict[str, Any] = json.loads(done.stdout)
        return out

    if transport == "http":
        with http_server([*arguments, "--dev"]) as url:
            test_mcp.check(run({"url": url}))
    else:
        program, *rest = command("mcp", *arguments)
        test_mcp.check(run({"command": program, "args": rest, "env": environment(2)}))


def official(npm: Path, file: Path, steps: list[list[Any]]) -> dict[str, Any]:
    """What the official server gives."""
    server = npm / "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
    env = {**environment(2), "MEMORY_FILE_PATH": str(file)}
    # It has no resource templates and no prompts, which the lists of the driver need: SDK 2 takes that as none.
    return drive({"command": node(npm), "args": [str(server)], "env": env, "bare": True}, steps)


@pytest.mark.parametrize("seed", [SEED, 1, 2, 3])
def test_reference_profile_against_the_official_server(npm: Path, tmp_path: Path, seed: int) -> None:
    steps, file = plan(seed, LENGTH), tmp_path / "memory.jsonl"
    theirs = official(npm, file, steps)
    ours = over_stdio(["--store", str(tmp_path / "s"), "--embedder", "none", "--profile", "reference"], steps)
    recorded = {
        "tools": theirs["tools"],
        "answers": answers(theirs["results"]),
        "file": file.read_text("utf-8"),
    }
    if seed == SEED and os.environ.get("MCP_RECORD") == "1":
        RECORDED.write_text(json.dumps(recorded, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for step, got, expected in zip(steps, answers(ours["results"]), recorded["answers"], strict=True):
        assert got == expected, step
    if seed == SEED:
        assert recorded == json.loads(RECORDED.read_text("utf-8")), "the recording is of another version"


def test_the_official_server_reads_what_we_export(npm: Path, tmp_path: Path) -> None:
    """Ours to theirs and back, byte for byte."""
    from twofold import AgentMemory
    from twofold.integrations import reference_graph

    file = tmp_path / "memory.jsonl"
    official(npm, file, plan(11, 80))
    before = file.read_bytes()
    with AgentMemory(":memory:", embedder=None) as mem:
        reference_graph.import_file(mem, file)
        file.unlink()
        reference_graph.export_file(mem, file)
    assert file.read_bytes() == before
    new = {"name": "fresh", "entityType": "t", "observations": []}
    official(npm, file, [["call", "create_entities", {"entities": [new]}]])
    assert file.read_bytes() != before
    assert json.loads(file.read_text("utf-8").splitlines()[-1])["type"] in ("entity", "relation")
