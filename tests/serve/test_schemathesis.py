"""A third party's fuzzer over our OpenAPI document: no 5xx, no answer that breaks its schema."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.serve.limits import Limits

from .conftest import Running

pytest.importorskip("schemathesis", reason="pip install schemathesis")

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,ignored_auth,unsupported_method,missing_required_header"
)


def fuzz(running: Running, folder: Path, examples: int, phases: str) -> None:
    owner = running.server.owner("default")
    one = owner.add("The planner chose Rust", tags=["decision"])
    (folder / "schemathesis.toml").write_text(
        f'[parameters]\n"path.memory_id" = ["{one.id}", "nothing"]\n'
        # It cannot make JSON lines, and need not: the same address takes any bytes.
        '[[operations]]\ninclude-name = "POST /v1/import"\n'
        "[operations.parameters]\ndry_run = [true, false]\n",
        encoding="utf-8",
    )
    tool = shutil.which("st", path=str(Path(sys.executable).parent))
    assert tool is not None
    done = subprocess.run(
        [
            tool, "run", f"{running.url}/openapi.json", "-H", f"Authorization: Bearer {running.key()}",
            "--max-examples", str(examples), "--phases", phases, "--checks", CHECKS, "--seed", "1",
            "--generation-database", "none", "--no-color", "--mode", "all",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert "No issues found" in done.stdout or "passed" in done.stdout


@pytest.fixture
def open_to_all(serve: Callable[..., Running]) -> Running:
    return serve(limits=Limits(rate=0, maintain_every=0))


def test_a_few_examples(open_to_all: Running, tmp_path: Path) -> None:
    fuzz(open_to_all, tmp_path, 5, "examples,fuzzing")


@pytest.mark.long
def test_many_examples(open_to_all: Running, tmp_path: Path) -> None:
    fuzz(open_to_all, tmp_path, 100, "examples,coverage,fuzzing")
