"""What a stranger may hand over: an embedder that lies, values at the edge, values of other kinds."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold import AgentMemory, errors
from twofold.embed.base import checked_rows
from twofold.embed.hashing import Hashing

HUGE = 10**400


class Lying(Hashing):
    """Gives for documents, or for questions, something else than unit vectors."""

    def __init__(self, documents: Any = None, query: Any = None) -> None:
        super().__init__(64)
        self.given = documents
        self.answered = query

    def embed_documents(self, texts: Any) -> Any:
        return super().embed_documents(texts) if self.given is None else self.given(len(texts))

    def embed_query(self, text: str) -> Any:
        return super().embed_query(text) if self.answered is None else self.answered(1)


BAD: dict[str, Callable[[int], Any]] = {
    "NaN": lambda n: np.full((n, 64), np.nan, np.float32),
    "infinite": lambda n: np.full((n, 64), np.inf, np.float32),
    "zero": lambda n: np.zeros((n, 64), np.float32),
    "short": lambda n: np.ones((n, 3), np.float32),
    "none at all": lambda _: [None],
    "words": lambda n: [["a"] * 64] * n,
    "too few": lambda _: np.ones((0, 64), np.float32),
    "too large for a float": lambda n: [[HUGE] * 64] * n,
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_vectors_are_refused_and_nothing_is_written(bad: str, tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "s", embedder=Lying(documents=BAD[bad])) as mem:
        with pytest.raises(errors.EmbeddingError, match="hashing"):
            mem.add("the heron nests")
        with pytest.raises(errors.EmbeddingError):
            mem.add_many(["one", "two"])
        assert mem.stats()["memories"] == 0
    with AgentMemory(tmp_path / "s", embedder=Lying()) as mem:  # the store is as good as before
        mem.add("the heron nests")
        with pytest.raises(errors.EmbeddingError):
            mem.reembed(Lying2(documents=BAD[bad]))
        assert mem.recall("heron")[0].content == "the heron nests"
        assert mem.verify().ok


class Lying2(Lying):
    """The same as another model."""

    def __init__(self, documents: Any = None, query: Any = None) -> None:
        super().__init__(documents, query)
        self.fingerprint += ";of=another"


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_vector_of_a_question_is_refused(bad: str) -> None:
    given = BAD[bad]
    with AgentMemory(":memory:", embedder=Lying(query=lambda n: np.array(given(n), object).ravel())) as mem:
        mem.add("the heron nests")
        with pytest.raises(errors.EmbeddingError):
            mem.recall("heron")


def test_rows_that_only_lack_the_length_get_it(tmp_path: Path) -> None:
    """A model of float64, of lists or without normalisation is no liar."""
    for given in (
        lambda n: np.ones((n, 64)),
        lambda n: [[1.0] * 64] * n,
        lambda n: np.ones((64, n), np.float32).T,
    ):
        with AgentMemory(":memory:", embedder=Lying(documents=given, query=lambda _: [2.0] * 64)) as mem:
            mem.add("the heron nests")
            found = mem.recall("zzz", profile="vector")
            assert found.trace.layers["vector"][0][1] == pytest.approx(1.0, abs=1e-6)
            assert mem.verify().ok


def test_unit_rows_are_left_as_they_are() -> None:
    rows = np.random.default_rng(1).standard_normal((50, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert checked_rows(rows, 50, 64, "x") is rows


def test_deep_metadata_is_refused_before_it_is_stored() -> None:
    def nested(levels: int, kind: type) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = {"a": value} if kind is dict else [value]
        return value

    with AgentMemory(":memory:", embedder=None) as mem:
        for levels in (100, 101, 500, 990, 100_000):
            for metadata in (nested(levels, dict), {"a": nested(levels - 1, list)}):
                if levels <= 100:
                    mem.add("as deep as allowed", metadata=metadata, tags=[str(type(metadata))])
                    continue
                with pytest.raises(errors.InvalidInput, match="deep"):
                    mem.add("too deep", metadata=metadata)
        circle: dict[str, Any] = {}
        circle["a"] = circle
        with pytest.raises(errors.InvalidInput):
            mem.add("a circle", metadata=circle)
        assert mem.stats()["memories"] == 1


EAST, WEST = dt.timezone(dt.timedelta(hours=14)), dt.timezone(dt.timedelta(hours=-14))


@pytest.mark.parametrize(
    "given",
    [
        {"event_date": dt.datetime(9999, 12, 31, 23, 59, tzinfo=WEST)},
        {"event_date": dt.datetime(1, 1, 1, tzinfo=EAST)},
        {"event_date": "9999-12-31T23:59:59-14:00"},
        {"event_date": "0001-01-01T00:00:00+14:00"},
        {"valid_from": "0001-01-01T00:00:00+14:00"},
        {"vector": HUGE},
        {"vector": [HUGE] * 64},
        {"confidence": HUGE},
    ],
    ids=str,
)
def test_values_beyond_the_edge(given: dict[str, Any]) -> None:
    with AgentMemory(":memory:", embedder="hashing:64") as mem:
        with pytest.raises(errors.InvalidInput):
            mem.add("x", **given)
        assert mem.stats()["memories"] == 0


def test_values_at_the_edge() -> None:
    with AgentMemory(":memory:", embedder="hashing:64") as mem:
        last = dt.datetime.max.replace(tzinfo=dt.UTC)
        assert mem.add("x", event_date=last).event_date == last
        first = dt.datetime.min.replace(tzinfo=dt.UTC)
        assert mem.add("y", event_date=first).event_date == first
        assert len(mem.search(include_closed=True, as_of=last)) == 2


@pytest.mark.parametrize("value", [None, True, 7, 1.5, b"x", ["a"], {"a": 1}, {"a"}, object()], ids=repr)
def test_names_of_other_kinds(value: Any) -> None:
    with AgentMemory(":memory:", embedder=None) as mem:
        mem.add("x")
        for ask in (
            lambda: mem.get(value),
            lambda: mem.history(value),
            lambda: mem.timeline(value),
            lambda: mem.timeline("x", namespaces=7),
            lambda: mem.recall("x", filters=7),
            lambda: mem.recall("x", profile={1: 2.0}),
            lambda: mem.link("a", "b", weight=HUGE),
        ):
            with pytest.raises((errors.InvalidInput, errors.NotFound)):
                ask()


@pytest.mark.parametrize(
    "weight", [HUGE, -HUGE, math.inf, -math.inf, math.nan, 0.0, 1000.5, True, "1"], ids=type
)
def test_weights_of_links_that_are_out_of_range(weight: Any) -> None:
    with AgentMemory(":memory:", embedder=None) as mem:
        one, other = (mem.add(text).id for text in ("the first of two", "another one"))
        with pytest.raises(errors.InvalidInput, match="weight must be"):
            mem.link(one, other, weight=weight)


@pytest.mark.parametrize("value", [None, True, 7, b"x", ["a"], {}, object(), "", "a\0b", "\ud800"], ids=repr)
def test_paths_that_are_none(value: Any) -> None:
    with AgentMemory(":memory:", embedder=None) as mem:
        for ask in (
            lambda: AgentMemory(value, embedder=None),
            lambda: mem.export_json(value),
            lambda: mem.import_json(value),
            lambda: mem.backup(value),
        ):
            with pytest.raises((errors.InvalidInput, errors.StoreError)):
                ask()


def test_paths_that_no_file_system_takes(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with AgentMemory(tmp_path / "s", embedder=None) as mem:
        mem.add("x")
        for path in (
            tmp_path / ("a" * 300),
            tmp_path / "loop",
            tmp_path / "loop" / "x",
            tmp_path / "s" / "twofold.db" / "x",
        ):
            if path.name != "loop":
                with pytest.raises(errors.StoreError):
                    AgentMemory(path, embedder=None)
            with pytest.raises((errors.StoreError, errors.InvalidInput, errors.NotFound)):
                mem.import_json(path)
            with pytest.raises((errors.StoreError, errors.InvalidInput)):
                mem.backup(path)


@pytest.mark.parametrize("value", [True, 7, 1.5, b"x", ["a"], {}, object()], ids=repr)
@pytest.mark.parametrize(
    "setting", ["entities", "replica", "l2_similarity_threshold", "decay", "embedder", "ann"]
)
def test_settings_of_other_kinds(setting: str, value: Any) -> None:
    with pytest.raises(errors.InvalidInput):
        AgentMemory(":memory:", **{"embedder": None, setting: value})
