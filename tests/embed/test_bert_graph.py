"""The graph writer and the encoder around it, against the slow twin, on tiny random models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.embed import tiny
from tests.reference.minilm import MiniLM as Reference

from twofold.embed.bert_graph import BertShape, bert_graph, read_safetensors_header
from twofold.embed.quantise import (
    e5_encoder,
    e5_tokenizer,
    four_bit_rows,
    quantise_rows,
    quantised_matrices,
    read_e5,
    unpack_rows,
)
from twofold.errors import EmbeddingError

SHAPE = BertShape(tiny.LAYERS, tiny.HEADS, tiny.HIDDEN, 1e-12)


def reference(tensors: dict[str, Any]) -> Reference:
    wide = {name: array.astype(np.float64) for name, array in tensors.items()}
    return Reference(wide, tiny.LAYERS, tiny.HEADS, 1e-12)


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.fixture
def float_model(tmp_path: Path) -> tuple[onnxruntime.InferenceSession, Reference]:
    tensors = tiny.write(tmp_path)
    places = read_safetensors_header(tmp_path / "model.safetensors")
    (tmp_path / "model.onnx").write_bytes(bert_graph(places, SHAPE))
    return session(tmp_path / "model.onnx"), reference(tensors)


def test_graph_equals_the_slow_twin(float_model: tuple[onnxruntime.InferenceSession, Reference]) -> None:
    run, twin = float_model
    rng = np.random.default_rng(1)
    for length in (1, 2, 3, 7, 33, tiny.WINDOW):
        ids = rng.integers(0, tiny.WORDS, length)
        hidden = run.run(["hidden"], {"ids": ids[None]})[0]
        assert hidden.dtype == np.float32
        np.testing.assert_allclose(hidden, twin.hidden(ids.tolist()), atol=1e-5)


def test_a_text_has_the_same_bits_in_every_batch(
    float_model: tuple[onnxruntime.InferenceSession, Reference],
) -> None:
    run, _ = float_model
    rng = np.random.default_rng(2)
    for length in range(3, tiny.WINDOW + 1):
        ids = rng.integers(0, tiny.WORDS, (9, length))
        together = run.run(["hidden"], {"ids": ids})[0].reshape(9, length, -1)
        for row in range(9):
            alone = run.run(["hidden"], {"ids": ids[row : row + 1]})[0]
            assert alone.tobytes() == together[row].tobytes(), f"length {length}, row {row}"


def test_graph_bytes_are_the_same_every_time_and_depend_on_the_shape(tmp_path: Path) -> None:
    tiny.write(tmp_path)
    places = read_safetensors_header(tmp_path / "model.safetensors")
    assert bert_graph(places, SHAPE) == bert_graph(dict(places), SHAPE)
    other = BertShape(tiny.LAYERS, tiny.HEADS, tiny.HIDDEN, 1e-5)
    assert bert_graph(places, SHAPE) != bert_graph(places, other)


@pytest.mark.parametrize(
    "name", ["encoder.layer.1.output.dense.weight", "embeddings.token_type_embeddings.weight"]
)
def test_a_missing_or_misshapen_weight_is_named(tmp_path: Path, name: str) -> None:
    tiny.write(tmp_path)
    places = read_safetensors_header(tmp_path / "model.safetensors")
    without = {key: place for key, place in places.items() if key != name}
    with pytest.raises(EmbeddingError, match=name.removesuffix(".weight")):
        bert_graph(without, SHAPE)
    wrong = places | {name: places["embeddings.LayerNorm.bias"]}
    with pytest.raises(EmbeddingError, match=name.removesuffix(".weight")):
        bert_graph(wrong, SHAPE)


@pytest.mark.parametrize("keep", [0, 4, 12, 4000])
def test_a_safetensors_file_that_is_cut_off_is_refused(tmp_path: Path, keep: int) -> None:
    tiny.write(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EmbeddingError):
        read_safetensors_header(path)


def test_a_safetensors_file_with_a_tensor_outside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    with pytest.raises(EmbeddingError, match="outside"):
        read_safetensors_header(path)


def test_rounding_to_eight_bits_is_within_half_a_step() -> None:
    rng = np.random.default_rng(3)
    matrix = (rng.standard_normal((16, 96)) * 10.0 ** rng.integers(-6, 3, (16, 1))).astype(np.float32)
    matrix[5] = 0
    codes, scales = quantise_rows(matrix, 32)
    assert codes.shape == (16, 3, 32)
    assert scales.shape == (48,)
    back = (codes.astype(np.float64) - 128) * scales.reshape(16, 3, 1)
    step = scales.reshape(16, 3, 1).astype(np.float64)
    assert (np.abs(back - matrix.reshape(16, 3, 32)) <= step * 0.5001).all()
    assert (back[5] == 0).all()


def test_eight_bit_graph_is_close_and_free_of_its_batch(tmp_path: Path) -> None:
    tensors = tiny.write(tmp_path)
    codes, places = quantised_matrices(tmp_path / "model.safetensors", "int8.bin", 32)
    (tmp_path / "int8.bin").write_bytes(codes.bytes())
    (tmp_path / "int8.onnx").write_bytes(bert_graph(places, SHAPE))
    run, twin = session(tmp_path / "int8.onnx"), reference(tensors)
    rng = np.random.default_rng(4)
    for length in (3, 5, 16, 17, 40):
        ids = rng.integers(0, tiny.WORDS, (6, length))
        together = run.run(["hidden"], {"ids": ids})[0].reshape(6, length, -1)
        for row in range(6):
            alone = run.run(["hidden"], {"ids": ids[row : row + 1]})[0]
            assert alone.tobytes() == together[row].tobytes()
            vector, exact = alone.sum(0), twin.vector(ids[row].tolist())
            assert vector @ exact / np.linalg.norm(vector) > 0.999
    again, _ = quantised_matrices(tmp_path / "model.safetensors", "int8.bin", 32)
    assert again.bytes() == codes.bytes()


def test_packed_four_bit_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    data, meant = tiny.e5_file(tiny.weights(5))
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    model = read_e5(path)
    assert (model.layers, model.heads, model.hidden, model.wide) == (2, 4, 64, 128)
    assert (model.vocabulary, model.window, model.special) == (tiny.WORDS, tiny.WINDOW, (0, 2, 1, 3))
    assert [piece for piece, _ in model.pieces] == tiny.PIECES
    assert model.normal == {9: " ", ord("ａ"): "a", 0x200B: "", ord("㍘"): "ac"}
    rows = four_bit_rows(path, model.tensors["emb.word"][1], tiny.WORDS, tiny.HIDDEN)
    words = meant["embeddings.word_embeddings.weight"]
    assert unpack_rows(rows).tobytes() == words.tobytes()
    assert unpack_rows(rows[np.array([[3, 1], [4, 4]])]).tobytes() == words[[[3, 1], [4, 4]]].tobytes()


def test_four_bit_encoder_equals_the_slow_twin_up_to_rounded_activations(tmp_path: Path) -> None:
    data, meant = tiny.e5_file(tiny.weights(6))
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    model = read_e5(path)
    encoder = e5_encoder(path, model, "encoder.bin")
    (tmp_path / "encoder.bin").write_bytes(encoder.bytes())
    shape = BertShape(tiny.LAYERS, tiny.HEADS, tiny.HIDDEN, model.epsilon, bits=4)
    (tmp_path / "model.onnx").write_bytes(bert_graph(encoder.places, shape, words=False))
    run, twin = session(tmp_path / "model.onnx"), reference(meant)
    words = meant["embeddings.word_embeddings.weight"]
    rng = np.random.default_rng(7)
    for length in (2, 9, 40):
        ids = rng.integers(0, tiny.WORDS, length)
        hidden = run.run(["hidden"], {"words": words[ids][None]})[0].astype(np.float64)
        exact = twin.hidden(ids.tolist())
        cosines = (hidden * exact).sum(1) / np.linalg.norm(hidden, axis=1) / np.linalg.norm(exact, axis=1)
        assert cosines.min() > 0.998


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.05, 0.5, 0.99])
def test_packed_model_that_is_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    data, _ = tiny.e5_file(tiny.weights())
    path = tmp_path / "model.bin"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(EmbeddingError):
        read_e5(path)


def test_unigram_tokenizer_splits_as_its_scores_say(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    path = tmp_path / "model.bin"
    path.write_bytes(tiny.e5_file(tiny.weights())[0])
    tokenizer = Tokenizer.from_str(e5_tokenizer(read_e5(path)))
    coded = tokenizer.encode("ac b世 x")
    assert coded.tokens == ["<s>", "▁a", "c", "▁b", "世", "▁", "x", "</s>"]
    assert coded.ids == [0, 4, 6, 5, 8, 7, 3, 2]
