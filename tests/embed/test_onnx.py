"""The installed models. Marked `model`: skipped where the weights are not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.reference.minilm import MiniLM as Reference
from tests.reference.minilm import read_safetensors

from twofold.embed import Embedder, TokenEmbedder
from twofold.embed.install import model_folder
from twofold.errors import InvalidInput

pytestmark = pytest.mark.model

TEXTS = [
    "The planner chose Rust for the critical path.",
    "x",
    "  Which technology did we choose?\n",
    "规划器决定在关键路径上使用Rust",
    "naïve café ﬁne Ⅷ 10.0.0.1 user@example.org 😀 \u200b end",
    "a long sentence that goes on " * 30,
    "The IP of server A is 192.168.1.100.",
    "The IP of server B is 192.168.1.100.",
]
SPECS = ["minilm", "minilm-int8", "e5", "static:wordllama"]
ENCODERS = SPECS[:3]


@pytest.fixture(params=SPECS)
def embedder(request: pytest.FixtureRequest, open_model: Callable[..., Any]) -> Any:
    return open_model(request.param)


@pytest.fixture(params=ENCODERS)
def encoder(request: pytest.FixtureRequest, open_model: Callable[..., Any]) -> Any:
    return open_model(request.param)


def test_minilm_equals_the_slow_twin(model: Any) -> None:
    twin = Reference(read_safetensors(model_folder() / "model.safetensors"), 6, 12, 1e-12)
    for text in [*TEXTS[:5], "a sentence of some length " * 12]:
        ids = model._ids(text.strip())
        np.testing.assert_allclose(model.embed_query(text), twin.vector(ids), atol=1e-5)
        hidden = twin.hidden(ids)
        hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
        np.testing.assert_allclose(model.embed_tokens(text), hidden, atol=1e-5)


def test_minilm_tokens_are_those_of_the_published_vocabulary(model: Any) -> None:
    assert model._ids("The planner chose Rust.") == [101, 1996, 24555, 4900, 18399, 1012, 102]
    assert (model.dimension, model.max_tokens) == (384, 254)


def test_int8_stays_close_to_the_full_model(model: Any, open_model: Callable[..., Any]) -> None:
    rounded = open_model("minilm-int8")
    cosines = (model.embed_documents(TEXTS) * rounded.embed_documents(TEXTS)).sum(1)
    assert cosines.min() > 0.998
    assert rounded.fingerprint != model.fingerprint


def test_contract(embedder: Any) -> None:
    assert isinstance(embedder, Embedder)
    rows = embedder.embed_documents(TEXTS)
    assert rows.shape == (len(TEXTS), embedder.dimension)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-6)
    query = embedder.embed_query(TEXTS[0])
    assert query.shape == (embedder.dimension,)
    assert query.dtype == np.float32
    assert embedder.embed_documents([]).shape == (0, embedder.dimension)


def test_a_text_has_the_same_bits_alone_in_any_order_and_stripped(embedder: Any) -> None:
    rows = embedder.embed_documents(TEXTS)
    for order in (TEXTS[::-1], TEXTS[1::2] + TEXTS[::2], TEXTS * 2):
        again = embedder.embed_documents(order)
        for text, row in zip(order, again, strict=True):
            assert row.tobytes() == rows[TEXTS.index(text)].tobytes()
    for text, row in zip(TEXTS, rows, strict=True):
        assert embedder.embed_documents([f" {text}\n"])[0].tobytes() == row.tobytes()


def _batches_are_bit_identical(encoder: Any, lengths: Iterable[int]) -> None:
    rng = np.random.default_rng(8)
    for length in lengths:
        ids = rng.integers(1000, 20000, (max(2, 256 // length), length)).tolist()
        together = encoder._hidden(ids)
        for row in (0, len(ids) // 2, len(ids) - 1):
            alone = encoder._hidden(ids[row : row + 1])[0]
            assert alone.tobytes() == together[row].tobytes(), f"{length} tokens, row {row}"


def test_batches_of_equal_length_are_bit_identical(encoder: Any) -> None:
    _batches_are_bit_identical(encoder, (3, 4, 7, 8, 13, 16, 21, 32, 47, 64, 85, 128))


@pytest.mark.long
def test_batches_of_every_length_are_bit_identical(encoder: Any) -> None:
    _batches_are_bit_identical(encoder, range(1, 129))


def test_threads_do_not_change_a_bit(encoder: Any, open_model: Callable[..., Any]) -> None:
    texts = [f"{text} {i}" for i in range(3) for text in TEXTS[:5]]
    rows = encoder.embed_documents(texts)
    assert open_model(encoder.name, threads=4).embed_documents(texts).tobytes() == rows.tobytes()
    with ThreadPoolExecutor(4) as pool:
        queries = list(pool.map(encoder.embed_query, texts))
    alone = [encoder.embed_query(text) for text in texts]
    assert [q.tobytes() for q in queries] == [q.tobytes() for q in alone]


def test_another_process_gives_the_same_bytes(model: Any) -> None:
    code = (
        "from twofold.embed import open_embedder\n"
        f"print(open_embedder('auto').embed_documents({TEXTS!r}).tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == model.embed_documents(TEXTS).tobytes().hex()


def test_token_vectors_come_from_the_same_pass(encoder: Any) -> None:
    assert isinstance(encoder, TokenEmbedder)
    rows, tokens = encoder.embed_documents_with_tokens(TEXTS)
    assert rows.tobytes() == encoder.embed_documents(TEXTS).tobytes()
    for text, matrix in zip(TEXTS, tokens, strict=True):
        assert matrix.dtype == np.float32
        assert matrix.shape[1] == encoder.dimension
        np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, atol=1e-5)
        assert matrix.tobytes() == encoder.embed_tokens(text).tobytes()


def test_tokens_within_the_limit_are_seen_and_those_beyond_are_not(encoder: Any) -> None:
    assert encoder.count_tokens("apple " * 4 + "apple") == 5
    full = "apple " * (encoder.max_tokens - 1) + "apple"
    assert encoder.count_tokens(full) == encoder.max_tokens
    last = full.removesuffix("apple") + "water"
    assert encoder.count_tokens(last) == encoder.max_tokens
    assert encoder.embed_query(full).tobytes() != encoder.embed_query(last).tobytes()
    beyond = [f"{full} apple apple apple apple apple {tail}" for tail in ("water", "world")]
    assert encoder.embed_query(beyond[0]).tobytes() == encoder.embed_query(beyond[1]).tobytes()


def test_spans_are_the_tokens_of_the_text(embedder: Any) -> None:
    for text in [*TEXTS, "tab\there  two   spaces", "ｆｕｌｌ　ｗｉｄｔｈ ①② ㍘"]:
        spans = embedder.token_spans(text)
        assert len(spans) == embedder.count_tokens(text)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert spans == sorted(spans)
    text = "planner chose Rust"
    words = {text[a:b].strip() for a, b in embedder.token_spans(text)}
    assert "".join(text[a:b] for a, b in embedder.token_spans(text)).replace(" ", "") == "plannerchoseRust"
    assert "chose" in words


@pytest.mark.parametrize("bad", ["", "  \n", "a\ud800", 3, None])
def test_bad_text_is_refused(embedder: Any, bad: Any) -> None:
    with pytest.raises(InvalidInput, match="text 0"):
        embedder.embed_query(bad)
    with pytest.raises(InvalidInput, match="text 1"):
        embedder.embed_documents(["fine", bad])


def test_threads_must_be_positive(open_model: Callable[..., Any]) -> None:
    open_model("minilm")
    with pytest.raises(InvalidInput, match="threads"):
        open_model("minilm", threads=0)


def test_a_paraphrase_is_nearer_than_another_subject(embedder: Any) -> None:
    query = embedder.embed_query("Which programming language did the team choose?")
    near, far = embedder.embed_documents(["They picked Rust to write the software", "Lunch is at noon"])
    assert query @ near > query @ far + 0.02


ENGLISH = [
    "The planner chose Rust for the critical path",
    "The cafeteria serves lunch at noon",
    "The IP address of server A is 192.168.1.100",
    "The cat likes to sleep by the window",
]
CHINESE = [
    "规划器决定在关键路径上使用Rust",
    "食堂中午供应午饭",
    "服务器A的地址是192.168.1.100",
    "猫喜欢在窗边睡觉",
]


def test_e5_finds_across_languages(open_model: Callable[..., Any]) -> None:
    e5 = open_model("e5")
    for memories, queries in (
        (ENGLISH, ["我们为关键路径选择了什么技术", "几点吃午饭", "服务器A的IP是多少", "猫在哪里睡觉"]),
        (
            CHINESE,
            [
                "What was chosen for the critical path?",
                "When is lunch?",
                "IP of server A",
                "Where is the cat?",
            ],
        ),
        (ENGLISH, ["¿Qué lenguaje se eligió para la ruta crítica?", "¿A qué hora se almuerza?"]),
    ):
        rows = e5.embed_documents(memories)
        for best, query in enumerate(queries):
            assert int(np.argmax(rows @ e5.embed_query(query))) == best, query
