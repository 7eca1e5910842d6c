"""The README's Python runs: all ```python blocks in order, in one namespace, in an empty folder."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> list[tuple[int, str]]:
    """(line number of the first code line, code) of each block."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in BLOCK.finditer(text)]


def run_blocks(path: Path) -> dict[str, object]:
    """Execute a document's blocks; a failure points at the document's own line."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(path):
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)
    return namespace


def test_blocks_are_found_with_their_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# T\n\n```python\nx = 1\n```\ntext\n```sh\nls\n```\n```python\ny = x + 1\n1 / 0\n```\n")
    assert blocks(page) == [(4, "x = 1\n"), (11, "y = x + 1\n1 / 0\n")]
    with pytest.raises(ZeroDivisionError) as caught:
        run_blocks(page)
    assert caught.traceback[-1].lineno == 11  # counted from 0


@pytest.mark.model
def test_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = ROOT / "README.md"
    assert blocks(readme), "the README shows no Python"
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        # An example may leave a handle to the interpreter's exit, as a reader's session does.
        warnings.simplefilter("ignore", ResourceWarning)
        namespace = run_blocks(readme)
        for value in namespace.values():
            if callable(close := getattr(value, "close", None)) and not isinstance(value, type):
                close()


@pytest.mark.parametrize("name", ["guide.md", "determinism.md"])
def test_pages_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / name
    assert blocks(page), f"{name} shows no Python"
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(page)
    namespace["mem"].close()  # type: ignore[attr-defined]
