"""LangGraph's own store tests, from its source archives, unedited: langgraph_plugin.py substitutes the classes.

`python tools/vendor_suites.py` fetches them (`make test` does); without them these tests are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tools.vendor_suites import SUITES, folder_of

for package in ("langgraph.store.base", "pytest_asyncio", "pytest_mock", "aiosqlite", "sqlite_vec"):
    pytest.importorskip(package, reason="the vendor's tests need it: tests/engines.txt")

HERE = Path(__file__).parent
FOLDERS = {name: folder_of(name, version) for name, version, _ in SUITES}
SQLITE, BASE = "langgraph-checkpoint-sqlite", "langgraph-checkpoint"
SETTINGS = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers = flaky: the vendor's
"""

# Not run, with the reason; docs/langgraph.md has the same list, and a test holds them together.
LEFT_OUT = {
    (SQLITE, "tests/test_store.py"): {
        "test_vector_store_initialization": "ends by asking a raw SQLite connection for the names of its tables",
        "test_nonnull_migrations": "reads the SQL of SqliteStore's migrations",
        "test_escape_glob_literal": "calls a private function of the vendor's SQL",
        "test_namespace_match_pattern": "calls a private function of the vendor's SQL",
        "test_list_namespaces_prefix_uses_indexable_condition": "reads the SQL the vendor generates",
    },
    (BASE, "tests/test_store.py"): {
        "test_async_batch_store_handles_cancellation": "never touches a store: the base package's queue",
        "test_dedupe_ops_maps_repeated_reads_and_puts_to_one_op": "never touches a store",
        "test_get_text_at_path": "never touches a store",
        "test_get_text_at_path_with_non_dict_mapping": "never touches a store",
        "test_validate_op_namespace_allows_empty_prefix_and_wildcards": "never touches a store",
        "test_validate_op_namespace_rejects_invalid_labels": "never touches a store",
    },
}
# How many of each file pass: fewer would mean that some were no longer collected.
PASSED = {
    (SQLITE, "tests/test_store.py"): 98,
    (SQLITE, "tests/test_async_store.py"): 39,
    (BASE, "tests/test_store.py"): 87,
}
SLOW = {(SQLITE, "tests/test_ttl.py"): 11}  # they wait for items to expire


def run(suite: str, file: str, folder: Path, expected: int) -> None:
    """Run one file of a suite in a process of its own, and count."""
    if not FOLDERS[suite].is_dir() or not FOLDERS[SQLITE].is_dir():
        pytest.skip("not here: run `python tools/vendor_suites.py`")
    settings = folder / "pytest.ini"
    settings.write_text(SETTINGS, encoding="utf-8")
    # The plugin replaces names in the vendor's packages, which are imported from the archive itself.
    path = os.pathsep.join([str(FOLDERS[SQLITE]), str(HERE)])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        str(settings),
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:valkey",
    ]
    done = subprocess.run(
        [*command, "-p", "langgraph_plugin", file],
        cwd=FOLDERS[suite],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TWOFOLD_LEFT_OUT": " ".join(LEFT_OUT.get((suite, file), ())),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-4000:]
    counted = re.search(r"^(\d+) passed(?:, \d+ deselected)? in", told, re.MULTILINE)
    assert counted, told[-1000:]
    assert int(counted.group(1)) == expected, told[-1000:]


@pytest.mark.parametrize("suite,file", PASSED, ids=str)
def test_vendor_tests_pass(suite: str, file: str, tmp_path: Path) -> None:
    run(suite, file, tmp_path, PASSED[suite, file])


@pytest.mark.long
@pytest.mark.parametrize("suite,file", SLOW, ids=str)
def test_slow_vendor_tests_pass(suite: str, file: str, tmp_path: Path) -> None:
    run(suite, file, tmp_path, SLOW[suite, file])


def test_the_page_lists_what_is_left_out() -> None:
    page = (HERE.parent.parent / "docs" / "langgraph.md").read_text(encoding="utf-8")
    for left_out in LEFT_OUT.values():
        for name in left_out:
            assert f"`{name}`" in page
    for count in (PASSED | SLOW).values():
        assert str(count) in page


def test_the_vendors_own_example_runs_but_for_its_import(tmp_path: Path) -> None:
    """`SqliteStore`'s documentation, the example with `from_conn_string`, as it stands in the archive."""
    source = FOLDERS[SQLITE] / "langgraph" / "store" / "sqlite" / "base.py"
    if not source.is_file():
        pytest.skip("not here: run `python tools/vendor_suites.py`")
    blocks = re.findall(
        r"^ +```python\n(.*?)^ +```", source.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    line = "from langgraph.store.sqlite import SqliteStore"
    example = textwrap.dedent(next(b for b in blocks if "from_conn_string" in b and "index=" not in b))
    assert example.count(line) == 1
    ours = example.replace(line, "from twofold.integrations.langgraph import TwofoldStore as SqliteStore")
    code = f"{ours}\nassert item.value == {{'theme': 'dark'}}\n"
    command = [sys.executable, "-W", "error", "-c", code]
    subprocess.run(
        command, check=True, cwd=tmp_path, timeout=60, env={**os.environ, "TWOFOLD_EMBEDDER": "hashing"}
    )


def test_our_example_runs_in_a_real_graph(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.graph", reason="pip install langgraph")
    example = HERE.parent.parent / "examples" / "langgraph_store.py"
    done = subprocess.run(
        [sys.executable, str(example)], check=True, cwd=tmp_path, timeout=120, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == "My cat is called Miso"
