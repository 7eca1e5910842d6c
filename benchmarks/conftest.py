"""Ingredients of the benchmarks: made-up text, embedders that cost nothing, and a way to time one call."""

from __future__ import annotations

import gc
import hashlib
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

# The published design was measured with this many memories. BENCH_SCALE=0.1 is for trying things out.
ROWS = max(200, int(14_726 * float(os.environ.get("BENCH_SCALE", "1"))))
WORDS = 5_000


def sentences(count: int, length: int, seed: int) -> list[str]:
    """Made-up text whose words are as unevenly common as those of real text."""
    source = np.random.default_rng(seed)
    words = np.array([f"{'bcdfgklmnprst'[i % 13]}{'aeiou'[i % 5]}{i}" for i in range(WORDS)])
    weights = 1 / np.arange(1, WORDS + 1)
    drawn = source.choice(words, (count, length), p=weights / weights.sum())
    return [" ".join(row) for row in drawn]


class Supplied:
    """An embedder that costs next to nothing: a text's vector is random, drawn from the text's hash."""

    def __init__(self, dimension: int) -> None:
        self.name = "supplied"
        self.fingerprint = f"supplied;dim={dimension}"
        self.dimension = dimension
        self.max_tokens = 100_000

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).standard_normal(self.dimension, np.float32)
        return row / np.linalg.norm(row)

    def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.stack([self.embed_query(text) for text in texts])

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        raise AssertionError("the texts here fit the window")


class LocalQueries(Supplied):
    """Made-up vectors for the documents, the real local encoder for every query."""

    def __init__(self, encoder: Any) -> None:
        super().__init__(encoder.dimension)
        self.fingerprint = f"local queries;{encoder.fingerprint}"
        self.embed_query = encoder.embed_query  # type: ignore[method-assign]

    def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        source = np.random.default_rng(len(texts))
        rows = source.standard_normal((len(texts), self.dimension), np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@dataclass
class Samples:
    """Durations in ms of single calls. `clean` leaves out those during which the kernel took the core away."""

    all: list[float] = field(default_factory=list)
    undisturbed: list[float] = field(default_factory=list)

    def time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        start = perf_counter_ns()
        result = call(*arguments)
        took = (perf_counter_ns() - start) / 1e6
        self.all.append(took)
        if resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw == before:
            self.undisturbed.append(took)
        return result

    @property
    def clean(self) -> list[float]:
        """The undisturbed samples where at least half are, or else all: then there is nothing better."""
        return self.undisturbed if 2 * len(self.undisturbed) >= len(self.all) else self.all

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.clean, q))


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


def filled(folder: Path, embedder: Any) -> Any:
    """An open store with ROWS memories of 20 words."""
    from twofold import AgentMemory

    mem = AgentMemory(folder, embedder=embedder)
    mem.add_many({"content": text} for text in sentences(ROWS, 20, seed=1))
    return mem


def pytest_report_header() -> str:
    from twofold.core import kernel

    return f"kernel: {kernel()}, rows: {ROWS}"
