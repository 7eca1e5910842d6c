"""`add(..., vector=False)`: found by words and relations, never embedded until `reembed`; in every kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold import AgentMemory
from twofold.embed.hashing import Hashing
from twofold.errors import InvalidInput

from .stores import pg

BARE = "The heron nests by the weir"


class Counting(Hashing):
    """The hashing embedder, noting every text it is given."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension)
        self.documents: list[str] = []
        self.spans: list[str] = []

    def embed_documents(self, texts: Any) -> npt.NDArray[np.float32]:
        self.documents += list(texts)
        return super().embed_documents(texts)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        self.spans.append(text)
        return super().token_spans(text)


def sqlite(folder: Path) -> str:
    return str(folder / "store")


def memory(folder: Path) -> str:
    return ":memory:"


def postgresql(folder: Path) -> str:
    pytest.importorskip("psycopg", reason="needs the extra [postgres]")
    if pg.why_not() is not None:
        pytest.skip(str(pg.why_not()))
    return pg.address(folder)


def pushdown(folder: Path) -> str:
    postgresql(folder)
    if not pg.has("vector"):
        pytest.skip("the server has no pgvector")
    pg.shared().extend("vector")
    return pg.address(folder, mode="pushdown")


@pytest.fixture(params=[sqlite, memory, postgresql, pushdown], ids=lambda make: make.__name__)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    make: Callable[[Path], str] = request.param
    return make(tmp_path)


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def mem(address: str, embedder: Counting, clock: Any) -> Iterator[AgentMemory]:
    with AgentMemory(address, embedder=embedder, clock=clock) as mem:
        mem.add("The ferry leaves at noon")
        embedder.documents.clear()
        embedder.spans.clear()
        yield mem


def layers(mem: AgentMemory, query: str) -> dict[str, list[str]]:
    """Ids that each layer proposed."""
    found = mem.recall(query, k=10, promote=False)
    return {layer: [memory_id for memory_id, _ in given] for layer, given in found.trace.layers.items()}


def test_the_embedder_is_not_asked(mem: AgentMemory, embedder: Counting) -> None:
    one = mem.add(BARE, vector=False)
    mem.add_many([{"content": f"{BARE} {n}", "vector": False} for n in range(3)])
    assert (embedder.documents, embedder.spans) == ([], [])
    assert one.embedding is None
    mem.add_many([{"content": "bare again", "vector": False}, {"content": "embedded"}])
    assert embedder.documents == ["embedded"]


def test_words_find_it_and_vectors_do_not(mem: AgentMemory) -> None:
    bare = mem.add(BARE, vector=False, entities=["Heron"])
    found = mem.recall("where does the heron nest", k=2)
    assert found[0].memory.id == bare.id
    assert "vector" not in found[0].sources
    assert "lexical" in found[0].sources
    assert bare.id not in layers(mem, "where does the heron nest")["vector"]
    assert bare.id in [m.id for m in mem.timeline("Heron")]
    assert mem.get(bare.id).content == BARE
    assert mem.verify().ok
    assert mem.health()["healthy"]


def test_a_new_version_of_it_stays_bare(mem: AgentMemory, embedder: Counting) -> None:
    bare = mem.add(BARE, vector=False)
    tagged = mem.update(bare.id, tags=["bird"])
    assert (tagged.embedding, embedder.documents) == (None, [])
    mem.add(BARE, vector=False, tags=["weir"])  # the same again: merged
    assert embedder.documents == []
    assert mem.get(bare.id).tags == ("bird", "weir")


def test_reembed_gives_it_a_vector(mem: AgentMemory) -> None:
    bare = mem.add(BARE, vector=False)
    new = Counting(96)
    report = mem.reembed(new)
    assert (report.memories, report.vectors) == (2, 2)
    assert BARE in new.documents
    assert bare.id in layers(mem, "where does the heron nest")["vector"]
    new.documents.clear()
    mem.update(bare.id, tags=["bird"])  # a memory like any other from now on
    assert new.documents == [BARE]
    assert mem.verify().ok


def test_it_is_still_bare_after_opening_again(
    address: str, mem: AgentMemory, embedder: Counting, clock: Any
) -> None:
    if address == ":memory:":
        pytest.skip("is gone when closed")
    bare = mem.add(BARE, vector=False)
    mem.flush()
    with AgentMemory(address, embedder=embedder, clock=clock) as again:
        assert again.recall("heron weir")[0].memory.id == bare.id
        assert bare.id not in layers(again, "heron weir")["vector"]
        assert again.get(bare.id).embedding is None
    assert embedder.documents == []


@pytest.mark.parametrize("vectors", [True, False])
def test_a_lossless_import_keeps_it(mem: AgentMemory, tmp_path: Path, vectors: bool, clock: Any) -> None:
    bare = mem.add(BARE, vector=False)
    mem.export_json(tmp_path / "x.jsonl", vectors=vectors)
    embedder = Counting()
    with AgentMemory(":memory:", embedder=embedder, clock=clock) as copy:
        assert copy.import_json(tmp_path / "x.jsonl").lossless
        assert BARE not in embedder.documents
        assert copy.get(bare.id).embedding is None
        assert bare.id not in layers(copy, "heron weir")["vector"]
        assert copy.recall("heron weir")[0].memory.id == bare.id
        assert copy.verify().head == mem.verify().head


def test_an_import_into_a_store_with_memories_keeps_it(mem: AgentMemory, tmp_path: Path, clock: Any) -> None:
    mem.add(BARE, vector=False)
    mem.export_json(tmp_path / "x.jsonl")
    embedder = Counting()
    with AgentMemory(":memory:", embedder=embedder, clock=clock) as other:
        other.add("something of its own")
        assert not other.import_json(tmp_path / "x.jsonl").lossless
        assert embedder.documents == ["something of its own", "The ferry leaves at noon"]
        assert other.recall("heron weir")[0].content == BARE


def test_what_was_never_embedded_is_embedded_where_there_is_an_embedder(tmp_path: Path, clock: Any) -> None:
    """No vector because nobody asked for none: a store without an embedder, imported into one that has."""
    with AgentMemory(":memory:", embedder=None, clock=clock) as mem:
        mem.add(BARE)
        mem.export_json(tmp_path / "x.jsonl")
    embedder = Counting()
    with AgentMemory(":memory:", embedder=embedder, clock=clock) as other:
        other.add("something of its own")
        other.import_json(tmp_path / "x.jsonl")
        assert BARE in embedder.documents


def test_a_store_without_an_embedder_takes_it_too(clock: Any) -> None:
    with AgentMemory(":memory:", embedder=None, clock=clock) as mem:
        assert mem.add(BARE, vector=False).embedding is None
        for wrong in (True, "no", 0):
            with pytest.raises(InvalidInput):
                mem.add("x", vector=wrong)  # type: ignore[arg-type]
