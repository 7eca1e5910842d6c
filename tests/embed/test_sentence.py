"""The sentence-transformers adapter. The library itself pulls torch, so most runs have none of it:
the adapter's own rules are held with a stand-in that has the library's surface, and the last test
compares with the real thing where it is installed."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest

from twofold.embed import Embedder, open_embedder
from twofold.embed.hashing import Hashing
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput


class Tensor:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def detach(self) -> Tensor:
        return self

    cpu = float = detach

    def numpy(self) -> np.ndarray:
        return self.array


class Pooling:
    def get_pooling_mode_str(self) -> str:
        return "mean"


class FastTokenizer:
    is_fast = True

    def num_special_tokens_to_add(self) -> int:
        return 2

    def __call__(self, text: str, **options: Any) -> dict[str, list[tuple[int, int]]]:
        assert options["return_offsets_mapping"]
        assert not options["truncation"]
        assert not options["add_special_tokens"]
        return {"offset_mapping": Hashing(64).token_spans(text)}


class StandIn:
    max_seq_length = 128
    prompts: dict[str, str] = {}  # noqa: RUF012
    weights = np.ones(4, np.float32)
    rows: np.ndarray | None = None

    def __init__(self, name: str, device: str, **options: Any) -> None:
        if name == "nowhere":
            raise OSError("nowhere is no model")
        self.name, self.device, self.options = name, device, options
        self.tokenizer = FastTokenizer()
        self.calls: list[list[str]] = []

    def __iter__(self) -> Any:
        return iter([object(), Pooling()])

    def get_sentence_embedding_dimension(self) -> int:
        return 64

    def state_dict(self) -> dict[str, Tensor]:
        return {"weight": Tensor(self.weights)}

    def encode(self, texts: list[str], **options: Any) -> np.ndarray:
        assert options["batch_size"] == 1
        self.calls.append(texts)
        return self.rows if self.rows is not None else Hashing(64).embed_documents(texts) * 3


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    module = types.ModuleType("sentence_transformers")
    made = type("SentenceTransformer", (StandIn,), {})
    module.SentenceTransformer = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return made


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EmbedderUnavailable, match=r"twofold\[sentence-transformers\]"):
        open_embedder("sentence-transformers:all-MiniLM-L6-v2")


def test_contract(library: type[StandIn]) -> None:
    embedder: Any = open_embedder("sentence-transformers:org/model")
    assert isinstance(embedder, Embedder)
    texts = ["one", " two ", "three"]
    rows = embedder.embed_documents(texts)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, Hashing(64).embed_documents(texts), atol=1e-6)
    assert embedder.embed_query("one").tobytes() == rows[0].tobytes()
    assert embedder._model.calls == [["one"], ["two"], ["three"], ["one"]]
    assert embedder._model.device == "cpu"
    assert embedder.max_tokens == 126
    assert embedder.fingerprint.startswith("model@tensors:")


def test_the_models_own_prompts_are_used_once(
    library: type[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "prompts", {"query": "query: ", "passage": "passage: "})
    embedder: Any = open_embedder("sentence-transformers:e5")
    embedder.embed_query("a")
    embedder.embed_documents(["b"])
    assert embedder._model.calls == [["query: a"], ["passage: b"]]
    assert embedder.max_tokens < 126
    assert "query='query: '" in embedder.fingerprint


def test_other_weights_have_another_fingerprint(
    library: type[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    first: Any = open_embedder("sentence-transformers:model")
    monkeypatch.setattr(library, "weights", np.zeros(4, np.float32))
    second: Any = open_embedder("sentence-transformers:model")
    assert first.fingerprint != second.fingerprint


def test_bad_vectors_name_their_text(library: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    embedder: Any = open_embedder("sentence-transformers:model")
    monkeypatch.setattr(embedder._model, "rows", np.full((1, 64), np.nan))
    with pytest.raises(EmbeddingError, match="text 0"):
        embedder.embed_documents(["a"])
    monkeypatch.setattr(embedder._model, "rows", np.ones((1, 63)))
    with pytest.raises(EmbeddingError, match="shape"):
        embedder.embed_query("a")


def test_a_model_that_does_not_load_is_unavailable(library: type[StandIn]) -> None:
    with pytest.raises(EmbedderUnavailable, match="nowhere"):
        open_embedder("sentence-transformers:nowhere")
    with pytest.raises(InvalidInput):
        open_embedder("sentence-transformers")


@pytest.mark.model
def test_a_folder_with_the_pinned_weights_has_the_default_models_revision(
    library: type[StandIn], model: Any
) -> None:
    from twofold.embed.install import MINILM, model_folder
    from twofold.embed.sentence import _file_revision

    assert _file_revision(str(model_folder())) == MINILM.revision
    embedder: Any = open_embedder(f"sentence-transformers:{model_folder()}")
    assert MINILM.revision in embedder.fingerprint


@pytest.mark.model
@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)
def test_the_real_library_gives_the_default_models_vectors(model: Any) -> None:
    try:
        real: Any = open_embedder("sentence-transformers:sentence-transformers/all-MiniLM-L6-v2")
    except EmbedderUnavailable as missing:
        pytest.skip(str(missing))
    texts = ["The planner chose Rust.", "规划器决定在关键路径上使用Rust"]
    np.testing.assert_allclose(real.embed_documents(texts), model.embed_documents(texts), atol=1e-5)
    assert real.fingerprint == model.fingerprint
