"""The examples of the pages run as they are printed, but for addresses, keys and what a reader would have at hand."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory

from .test_bare_memories import pushdown
from .test_readme import ROOT, blocks, run_blocks

DOCS = ROOT / "docs"
PROGRAM = [sys.executable, "-c", "from twofold.cli import main; main()"]
ENV = {"TWOFOLD_EMBEDDER": "hashing:64", "PYTHONPATH": ""}

# (page, what a block says) -> the test that runs it. Each block must be here or in a page that is run whole.
WHOLE = {"README.md", "guide.md", "determinism.md", "anthropic.md", "http.md"}
ONE_BY_ONE = {
    ("migration-memwright.md", "from twofold.compat.agent_memory"): "test_the_switch_from_memwright",
    ("migration-memwright.md", "twofold.compat.install_alias()"): "test_the_switch_from_memwright",
    ("stores.md", "AgentMemory(\"postgresql://"): "test_postgresql",
    ("stores.md", "store.create_vector_index"): "test_postgresql",
    ("stores.md", "class TestMine(StoreConformance)"): "test_a_store_of_your_own",
}  # fmt: skip


def named(page: str) -> Path:
    return ROOT / page if page == "README.md" else DOCS / page


def test_every_block_of_python_is_run() -> None:
    for path in (ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))):
        if path.name not in WHOLE:
            for line, code in blocks(path):
                runs = [
                    test for (page, told), test in ONE_BY_ONE.items() if page == path.name and told in code
                ]
                assert runs, f"{path.name} line {line} has an example that no test runs"
    for test in ONE_BY_ONE.values():
        assert callable(globals()[test])
    for (page, told), _ in ONE_BY_ONE.items():
        assert told in named(page).read_text("utf-8")


def block(page: str, told: str) -> str:
    (found,) = [code for _, code in blocks(named(page)) if told in code]
    return found


# -- HTTP -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(store: Path) -> Iterator[tuple[str, str]]:
    """A `twofold serve` as the page starts it: its address, and a key of the owner."""
    env = {**os.environ, **ENV}
    made = subprocess.run(
        [*PROGRAM, "keys", "add", "me", "--store", str(store), "--json"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--store", str(store), "--port", "0", "--json"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"], json.loads(made.stdout)["key"]
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(30) == 0


def run_awaiting(code: str, namespace: dict[str, Any]) -> None:
    """Execute a block that awaits outside of a function, as a notebook does."""
    import asyncio

    made = compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    done = eval(made, namespace)
    if inspect.isawaitable(done):

        async def finish() -> None:
            await done

        asyncio.run(finish())


def test_the_http_page(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="needs the extra [serve]")
    page = DOCS / "http.md"
    with server(tmp_path / "memory") as (url, key):
        for _, code in blocks(page):
            run_awaiting(code.replace("http://127.0.0.1:8420", url).replace("tf_...", key), {})
        shown = page.read_text("utf-8")
        asked = re.search(r"^curl (?:.*\\\n)*.*$", shown, re.MULTILINE)
        assert asked
        if shutil.which("curl"):
            done = subprocess.run(
                ["sh", "-c", asked.group().replace("http://127.0.0.1:8420", url)],
                env={**os.environ, "TWOFOLD_KEY": key}, capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert json.loads(done.stdout)["hits"][0]["memory"]["content"] == "The API moved to port 9090"


# -- Anthropic --------------------------------------------------------------------------------------------


class Model(BaseHTTPRequestHandler):
    """Answers as the Messages API does: first it writes a file, then it says so."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "tools" in asked:  # later requests of a thread name it instead
            assert asked["tools"] == [{"type": "memory_20250818", "name": "memory"}]
        results = [c for m in asked["messages"] if isinstance(m["content"], list) for c in m["content"]]
        done = [c for c in results if c["type"] == "tool_result"]
        content: dict[str, Any] = {"type": "text", "text": "I will remember."}
        if not done:
            content = {
                "type": "tool_use", "id": "toolu_1", "name": "memory",
                "input": {
                    "command": "create", "path": "/memories/releases.md",
                    "file_text": "Releases go out on Tuesdays.\n",
                },
            }  # fmt: skip
        body = json.dumps({
            "id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [content],
            "stop_reason": "end_turn" if done else "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_the_anthropic_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("anthropic", reason="needs the extra [anthropic]")
    monkeypatch.chdir(tmp_path)
    with HTTPServer(("127.0.0.1", 0), Model) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{model.server_port}")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "of a test")
        monkeypatch.setenv("TWOFOLD_EMBEDDER", "hashing:64")
        run_blocks(DOCS / "anthropic.md")
        model.shutdown()
    assert capsys.readouterr().out == "I will remember.\nReleases go out on Tuesdays.\n\n[1]\n"


# -- MCP ----------------------------------------------------------------------------------------------------


def drive(server: dict[str, Any], steps: list[list[Any]], **env: str) -> dict[str, Any]:
    from .integrations import mcp_runs

    server = {**server, "env": {**mcp_runs.environment(2), **ENV, **env}}
    return mcp_runs.drive(server, steps)


def test_the_entry_of_a_client(tmp_path: Path) -> None:
    """The JSON that the MCP page shows, started by the SDK's client."""
    pytest.importorskip("mcp", reason="needs the extra [mcp]")
    found = re.search(r"^```json\n(.*?)^```$", (DOCS / "mcp.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    entry = json.loads(found.group(1))["mcpServers"]["twofold"]
    assert (entry["type"], entry["command"]) == ("stdio", "twofold")
    server = {"command": PROGRAM[0], "args": [*PROGRAM[1:], *entry["args"]]}
    steps = [["call", "add", {"content": "the entry works"}], ["call", "recall", {"query": "entry"}]]
    done = drive(server, steps, HOME=str(tmp_path))
    assert "the entry works" in done["results"][1]["content"][0]["text"]
    assert (tmp_path / ".twofold" / "store" / "twofold.db").is_file()


def test_the_reference_profile(tmp_path: Path) -> None:
    """The page's two commands: a memory.jsonl goes in, agents use it, and it comes out byte for byte."""
    pytest.importorskip("mcp", reason="needs the extra [mcp]")
    text = (
        '{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea","时区 UTC+8"]}\n'
        '{"type":"entity","name":"Acme","entityType":"company","observations":[]}\n'
        '{"type":"relation","from":"Ann","to":"Acme","relationType":"works_at"}'
    )
    (tmp_path / "memory.jsonl").write_text(text, encoding="utf-8")
    shown = (DOCS / "mcp.md").read_text("utf-8")
    commands = re.findall(r"^twofold (mcp --profile reference .*)$", shown, re.MULTILINE)
    assert [c.split()[-2] for c in commands] == ["--import", "--export"]
    for command in commands:
        subprocess.run(
            [*PROGRAM, *command.split()],
            cwd=tmp_path, env={**os.environ, **ENV}, check=True, capture_output=True,
        )  # fmt: skip
        if "--import" in command:
            (tmp_path / "memory.jsonl").unlink()
    assert (tmp_path / "memory.jsonl").read_text(encoding="utf-8") == text
    args = [*PROGRAM[1:], "mcp", "--profile", "reference", "--store", str(tmp_path / "store")]
    server = {"command": PROGRAM[0], "args": args, "bare": True}
    steps: list[list[Any]] = [
        [
            "call",
            "add_observations",
            {"observations": [{"entityName": "Ann", "contents": ["owns the importer"]}]},
        ],
        ["call", "search_nodes", {"query": "importer"}],
        ["call", "open_nodes", {"names": ["Ann", "Acme"]}],
    ]
    _, found, opened = drive(server, steps)["results"]
    assert json.loads(found["content"][0]["text"])["entities"][0]["name"] == "Ann"
    assert json.loads(opened["content"][0]["text"])["relations"] == [
        {"from": "Ann", "to": "Acme", "relationType": "works_at"}
    ]


def test_mcp_over_a_served_store(tmp_path: Path) -> None:
    """`twofold mcp --store http://...`: an agent's tools over stdio, the memories on a server, by key."""
    pytest.importorskip("mcp", reason="needs the extra [mcp]")
    pytest.importorskip("starlette", reason="needs the extra [serve]")
    store = tmp_path / "memory"
    with server(store) as (url, key):
        started = {"command": PROGRAM[0], "args": [*PROGRAM[1:], "mcp", "--store", url]}
        steps: list[list[Any]] = [
            ["call", "add", {"content": "The planner chose Rust", "tags": ["decision"]}],
            ["call", "recall", {"query": "what did the planner choose?", "k": 3}],
            ["call", "get", {"memory_id": "$0.structuredContent.id"}],
            ["call", "history", {"memory_id": "$0.structuredContent.id"}],
            ["call", "timeline", {"entity": "planner"}],
            ["call", "search", {"tags": ["decision"]}],
            ["call", "feedback", {"receipt": "$1.structuredContent.receipt", "useful": ["$0.structuredContent.id"]}],
            ["call", "get", {"memory_id": "absent"}],
            ["call", "forget", {"memory_id": "$0.structuredContent.id"}],
            ["read", "twofold://memory/{$0.structuredContent.id}", None],
        ]  # fmt: skip
        r = drive(started, steps, TWOFOLD_KEY=key)["results"]
        assert "The planner chose Rust" in r[1]["content"][0]["text"]
        made = r[0]["structuredContent"]["id"]
        assert r[2]["structuredContent"]["id"] == made
        assert not any(one.get("isError") for one in (*r[:7], r[8])), r
        assert r[7]["isError"]
        assert r[7]["content"][0]["text"].startswith("NotFound: ")

        for wrong in ("tf_" + "0" * 43, "nonsense", ""):
            done = refused(url, tmp_path, TWOFOLD_KEY=wrong)
            assert done.startswith("PermissionDenied: ")
            assert "key" in done
        subprocess.run(
            [*PROGRAM, "keys", "revoke", "me", "--store", str(store)], check=True, capture_output=True
        )
        assert refused(url, tmp_path, TWOFOLD_KEY=key).startswith("PermissionDenied: ")
    done = refused(url, tmp_path, TWOFOLD_KEY=key)
    assert done.startswith(f"StoreError: no server answers at {url}")
    with AgentMemory(store, embedder="hashing:64") as mem:
        assert [m.content for m in mem.search(include_closed=True)] == ["The planner chose Rust"]
        assert mem.verify().ok


def refused(url: str, folder: Path, **env: str) -> str:
    """What `twofold mcp` says when it cannot work with that server, instead of serving tools that all fail."""
    done = subprocess.run(
        [*PROGRAM, "mcp", "--store", url],
        input="", capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **ENV, **env}, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


# -- the other pages --------------------------------------------------------------------------------------


def test_the_langgraph_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langgraph.graph", reason="needs the extra [langgraph]")
    found = re.search(
        r"^```py\n(.*?)^```$", (DOCS / "langgraph.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found
    prelude = """
        from typing import TypedDict
        from langgraph.graph import START, StateGraph

        class State(TypedDict):
            theme: str

        def node(state, *, store):
            return {"theme": store.get(("users", "123"), "prefs").value["theme"]}

        builder = StateGraph(State)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWOFOLD_EMBEDDER", "hashing:64")
    code = found.group(1) + "    answer = graph.invoke({'theme': ''})\n"
    namespace: dict[str, Any] = {}
    exec(compile(textwrap.dedent(prelude) + code, "langgraph.md", "exec"), namespace)
    assert namespace["answer"] == {"theme": "dark"}


def test_the_switch_from_memwright(tmp_path: Path) -> None:
    """In a process of its own: the second way lends a name to all later imports."""
    first = block("migration-memwright.md", "from twofold.compat.agent_memory")
    second = block("migration-memwright.md", "install_alias()")
    for code in (first, second + "\nfrom agent_memory import AgentMemory\n"):
        code += f"\nmem = AgentMemory({str(tmp_path)!r})\nmem.add('Ann likes tea')\n"
        code += "print(mem.recall('tea')[0].memory.content)\nmem.close()\n"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **ENV}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "Ann likes tea\n"


def test_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="needs the extra [postgres]")
    from .stores import pg

    if pg.why_not() is not None:
        pytest.skip(str(pg.why_not()))
    address = pg.address(tmp_path)
    monkeypatch.setenv("TWOFOLD_EMBEDDER", "hashing:64")
    code = block("stores.md", 'AgentMemory("postgresql://')
    code = re.sub(r'"postgresql://[^"]*"', repr(address), code)
    namespace: dict[str, Any] = {"AgentMemory": AgentMemory}
    exec(code, namespace)
    with namespace["mem"] as mem:
        mem.add("The API runs on port 8080")
        assert mem.recall("API port")[0].content == "The API runs on port 8080"
    if pg.has("vector"):
        from twofold.stores import open_store

        store = open_store(pushdown(tmp_path / "pushed"))
        with contextlib.closing(store):
            exec(block("stores.md", "store.create_vector_index"), {"store": store})


def test_a_store_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of the page, as the suite of a registered store: one of its tests, run by pytest."""
    (tmp_path / "mine.py").write_text(
        "from twofold.stores.memory import MemoryStore\n\n\nclass Mine(MemoryStore):\n"
        "    def __init__(self, address, **options):\n        super().__init__(**options)\n"
    )
    suite = "from twofold.stores import _ADAPTERS\nfrom twofold.testing import StoreConformance\n\n"
    suite += "_ADAPTERS['mine'] = ('mine:Mine', None)\n\n\n" + block("stores.md", "class TestMine")
    (tmp_path / "test_mine.py").write_text(suite, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "vectors_come_by", "test_mine.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
