"""Many clients at once from a second process, and a server that is killed: nothing acknowledged is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "http_load.py"


def load(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", *arguments], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["errors"] == []
    assert found["lost"] == 0
    assert found["chain_ok"]
    assert done.returncode == 0
    return found


def test_many_clients() -> None:
    found = load("--rows", "500", "--seconds", "5")
    assert found["exit_status"] == 0
    assert found["clients"] == 64
    assert found["adds"] == found["acknowledged"] >= 64
    assert found["recalls"] > 64


def test_a_killed_server_loses_nothing_acknowledged() -> None:
    found = load("--rows", "200", "--seconds", "3", "--clients", "32", "--kill")
    assert found["exit_status"] == -9
    assert found["acknowledged"] > 0


@pytest.mark.long
def test_many_clients_for_a_minute() -> None:
    found = load("--seconds", "60")
    assert found["rows"] == 14_726
    print(found)  # noqa: T201 -- the measurement


@pytest.mark.long
@pytest.mark.parametrize("turn", range(5))
def test_killed_at_other_moments(turn: int) -> None:
    load("--rows", "500", "--seconds", str(2 + turn), "--kill")
