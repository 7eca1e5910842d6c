"""Running the driver of mcp_drive.py against a real `twofold mcp`, over stdio or HTTP, under either SDK."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
TIMEOUT = 120


def first_sdk() -> Path | None:
    """Where SDK 1.x is installed beside 2.x: `pip install --target .venv/mcp1 mcp==1.30.0`."""
    for place in (os.environ.get("MCP_SDK1_DIR"), Path(sys.prefix) / "mcp1"):
        if place and (Path(place) / "mcp").is_dir():
            return Path(place)
    return None


def environment(sdk: int) -> dict[str, str]:
    """The environment in which `import mcp` gives that major version."""
    out = {k: v for k, v in os.environ.items() if not k.startswith("TWOFOLD_")}
    out["PYTHONPATH"] = ""
    if sdk == 1:
        place = first_sdk()
        if place is None:
            pytest.skip(f"SDK 1.x is not here: pip install --target {sys.prefix}/mcp1 mcp==1.30.0")
        out["PYTHONPATH"] = str(place)
    return out


def command(*arguments: str) -> list[str]:
    return [PYTHON, "-c", "from twofold.cli import main; main()", *arguments]


def drive(server: dict[str, Any], steps: list[list[Any]], sdk: int = 2) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, str(HERE / "mcp_drive.py")],
        input=json.dumps({"server": server, "steps": steps}),
        env=environment(sdk),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    out: dict[str, Any] = json.loads(done.stdout)
    assert out["sdk"] == sdk
    return out


def over_stdio(arguments: list[str], steps: list[list[Any]], sdk: int = 2) -> dict[str, Any]:
    program, *rest = command("mcp", *arguments)
    return drive({"command": program, "args": rest, "env": environment(sdk)}, steps, sdk)


@contextlib.contextmanager
def http_server(arguments: list[str], sdk: int = 2) -> Iterator[str]:
    """A running `twofold mcp --transport http`; gives its URL."""
    process = subprocess.Popen(
        command("mcp", "--transport", "http", "--port", "0", *arguments),
        env=environment(sdk),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            found = re.search(r"http://\S+", line)
            if found:
                yield found.group()
                break
        else:
            raise AssertionError(f"the server did not start: {said}")
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stderr.close()
