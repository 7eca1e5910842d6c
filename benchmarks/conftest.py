"""Fixtures of the benchmarks, and the rule that every one of them is a gate or informational."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .common import ROWS, Coded, Samples, Supplied, build_store, machine

MARKERS = ("gate", "informational")
WRONGLY_MARKED = pytest.StashKey[list[str]]()
NOTES = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # First, before `-m` leaves items out.
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    config.stash[WRONGLY_MARKED] = [
        item.nodeid for item in ours if sum(item.get_closest_marker(m) is not None for m in MARKERS) != 1
    ]


@pytest.fixture
def wrongly_marked(pytestconfig: pytest.Config) -> list[str]:
    return pytestconfig.stash[WRONGLY_MARKED]


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Any:
    """Print a line at the end of the run, also when everything passes."""
    return pytestconfig.stash.setdefault(NOTES, []).append


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    notes = config.stash.get(NOTES, [])
    if notes:
        terminalreporter.section("measured")
        for line in notes:
            terminalreporter.line(line)


def pytest_report_header() -> str:
    about = machine()
    return f"kernel: {about['kernel']}, rows: {ROWS}, cpu: {about['cpu']}, load: {about['load']}"


@pytest.fixture
def samples() -> Iterator[Samples]:
    """Samples taken without the garbage collector."""
    gc.collect()
    gc.disable()
    yield Samples()
    gc.enable()


@pytest.fixture(scope="session")
def encoder() -> Any:
    """The installed MiniLM. A gate that cannot run is no gate: without it this fails in CI, elsewhere it skips."""
    from twofold.embed import open_embedder
    from twofold.errors import EmbedderUnavailable

    try:
        return open_embedder("minilm")
    except EmbedderUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """dimension -> folder of a closed store with ROWS memories, each built once a session.

    384: with token codes, as the local encoder makes them; other dimensions: vectors given, as by another embedder.
    """
    built: dict[int, Path] = {}

    def store(dimension: int) -> Path:
        if dimension not in built:
            folder = tmp_path_factory.mktemp(f"store{dimension}")
            build_store(folder, ROWS, Coded(384) if dimension == 384 else Supplied(dimension))
            built[dimension] = folder
        return built[dimension]

    return store


@pytest.fixture(scope="session")
def supplied_store(stores: Any) -> Iterator[Any]:
    """The open store of ROWS x 1536 with supplied vectors."""
    from twofold import AgentMemory

    with AgentMemory(stores(1536), embedder=Supplied(1536)) as mem:
        yield mem
