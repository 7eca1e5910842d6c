"""Documents that drift unless something reads them: links, the command-line page, the README's count."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run_tool(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_lead_somewhere() -> None:
    run_tool("tools/check_links.py")


def test_command_line_page_is_current() -> None:
    run_tool("tools/cli_docs.py", "--check")


def test_readme_claims_no_test_that_is_not_there(request: pytest.FixtureRequest) -> None:
    claimed = re.search(r"<!-- tests -->([\d,]+)<!-- /tests -->", (ROOT / "README.md").read_text("utf-8"))
    assert claimed, "README.md states no number of tests; `make docs` writes it"
    chosen = request.config.option
    if (
        hasattr(request.config, "workerinput")
        or request.config.args_source.name != "TESTPATHS"
        or chosen.keyword
        or chosen.markexpr
        or chosen.deselect
    ):
        pytest.skip("only a run of the whole suite knows how many there are")
    assert int(claimed.group(1).replace(",", "")) <= request.session.testscollected


def test_make_help_names_every_public_target() -> None:
    """Each target of the issue's list is there, with its line of help."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))
    assert listed >= {
        "help", "demo", "test", "check", "cpp", "asan", "tsan", "asan-py", "bench", "bench-gate", "quality",
        "fmt", "wheel", "docs", "long", "build", "clean",
    }  # fmt: skip
