"""Weights in 8 or 4 bits: rounding a float32 BERT's matrices, and reading a 4-bit multilingual one.

Everything here runs once, when a model is installed, and gives the same bytes on every machine.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.embed.bert_graph import TensorPlace, read_safetensors_header
from twofold.errors import EmbeddingError

__all__ = [
    "E5File",
    "TensorFile",
    "e5_encoder",
    "e5_tokenizer",
    "four_bit_rows",
    "quantise_rows",
    "quantised_matrices",
    "read_e5",
    "unpack_rows",
]

_ALIGNMENT = 64  # bytes; what onnxruntime asks of data it maps


class TensorFile:
    """Collects arrays into the bytes of one file and remembers where each lies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[str, TensorPlace] = {}
        self._data = bytearray()

    def add(self, name: str, array: NDArray[np.float32] | NDArray[np.uint8]) -> None:
        """Append an array of float32 or uint8."""
        dtype = {"f4": "F32", "u1": "U8"}[array.dtype.str[1:]]
        self._data.extend(bytes(-len(self._data) % _ALIGNMENT))
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        self.places[name] = TensorPlace(self.name, dtype, array.shape, len(self._data), len(data))
        self._data.extend(data)

    def bytes(self) -> bytes:
        """Return the file's content."""
        return bytes(self._data)


def quantise_rows(matrix: NDArray[np.float32], block: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Round a (rows, columns) matrix to 8 bits, `block` neighbours of a row sharing a scale.

    Returns codes uint8 (rows, columns / block, block), 128 standing for zero, and scales float32
    (rows * columns / block,): weight = (code - 128) * scale.
    """
    rows, columns = matrix.shape
    blocks = matrix.reshape(rows, columns // block, block)
    scales = (np.abs(blocks).max(axis=2) / np.float32(127)).astype(np.float32)
    steps = np.where(scales > 0, scales, np.float32(1))[:, :, None]
    codes = (np.rint(blocks / steps) + np.float32(128)).astype(np.uint8)
    return codes, scales.reshape(-1)


def quantised_matrices(weights: Path, file: str, block: int) -> tuple[TensorFile, dict[str, TensorPlace]]:
    """Return the encoder's matrices in 8 bits as the file `file`, and the places of all weights.

    Embeddings, biases and normalisation stay where they are, in the safetensors file `weights`.
    """
    places = read_safetensors_header(weights)
    data = np.memmap(weights, np.uint8, "r")
    out = TensorFile(file)
    for name, place in places.items():
        if name.startswith("encoder.") and len(place.shape) == 2 and place.dtype == "F32":
            raw = data[place.offset : place.offset + place.length]
            codes, scales = quantise_rows(raw.view("<f4").reshape(place.shape), block)
            out.add(f"{name}.codes", codes)
            out.add(f"{name}.scales", scales)
    kept = {name: place for name, place in places.items() if f"{name}.codes" not in out.places}
    return out, kept | out.places


@dataclass(frozen=True, slots=True)
class E5File:
    """What a packed 4-bit multilingual-e5 file holds (magic "E5S1", little-endian).

    Attributes:
        pieces: the unigram vocabulary, (text, log probability) by id.
        special: ids of <s>, </s>, <pad>, <unk>.
        normal: code point -> replacement, what the tokenizer's normalisation does to a character.
        tensors: name -> (kind, offset in the file); kind 0 is float32, 1 is 4-bit blocks.
        layers, heads, hidden, wide, vocabulary, window, types, epsilon: the encoder's shape.

    """

    layers: int
    heads: int
    hidden: int
    wide: int
    vocabulary: int
    window: int
    types: int
    epsilon: float
    pieces: list[tuple[str, float]]
    special: tuple[int, int, int, int]
    normal: dict[int, str]
    tensors: dict[str, tuple[int, int]]


_BLOCK = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])  # 32 weights


def read_e5(path: Path) -> E5File:
    """Read everything but the weights of a packed file.

    Raises:
        EmbeddingError: it is no such file, or it is cut off.

    """
    data = path.read_bytes()
    at = 0

    def take(form: str) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values

    try:
        if data[:4] != b"E5S1":
            raise EmbeddingError(f"{path} is not a packed e5 model")
        at = 8
        hidden, layers, heads, wide, vocabulary, window, types = take("7i")
        (epsilon,) = struct.unpack_from("<f", data, at)
        at += 4
        (_block,) = take("i")
        count, *special = take("5i")
        (length,) = take("Q")
        ends = np.frombuffer(data, "<u4", count + 1, at)
        at += ends.nbytes
        scores = np.frombuffer(data, "<f4", count, at)
        at += scores.nbytes
        blob = data[at : at + length]
        at += length
        pieces = [(blob[ends[i] : ends[i + 1]].decode(), float(scores[i])) for i in range(count)]
        entries, _size = take("iI")
        normal = {}
        for _ in range(entries):
            point, outs = take("IB")
            normal[point] = "".join(map(chr, take(f"{outs}I")))
        (number,) = take("i")
        tensors = {}
        for _ in range(number):
            (name_length,) = take("H")
            name = data[at : at + name_length].decode()
            at += name_length
            kind, _items, offset, size = take("BIQQ")
            if offset + size > len(data):
                raise EmbeddingError(f"{path}: tensor {name!r} lies outside the file")
            tensors[name] = (kind, offset)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise EmbeddingError(f"{path} is cut off or damaged: {error}") from error
    return E5File(
        layers,
        heads,
        hidden,
        wide,
        vocabulary,
        window,
        types,
        epsilon,
        pieces,
        (special[0], special[1], special[2], special[3]),
        normal,
        tensors,
    )


def four_bit_rows(path: Path, offset: int, rows: int, columns: int) -> NDArray[np.void]:
    """Map a 4-bit matrix: (rows, columns / 32) blocks of a float16 scale and 16 bytes of codes."""
    return np.memmap(path, _BLOCK, "r", offset, (rows, columns // 32))


def unpack_rows(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Return the float32 values of 4-bit blocks, (..., blocks) -> (..., 32 * blocks)."""
    codes = blocks["codes"]
    wide = np.concatenate([codes & 15, codes >> 4], axis=-1).astype(np.float32)
    wide -= 8
    wide *= blocks["scale"].astype(np.float32)[..., None]
    return wide.reshape(*blocks.shape[:-1], -1)


_E5_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def e5_encoder(path: Path, model: E5File, file: str) -> TensorFile:
    """Return the encoder's weights laid out for `bert_graph` (bits 4, block 32), as the file `file`.

    The codes are those of `path`, in another order: nothing is rounded again.
    """
    out = TensorFile(file)
    data = np.memmap(path, np.uint8, "r")

    def floats(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        kind, offset = model.tensors[name]
        if kind != 0:
            raise EmbeddingError(f"{path}: tensor {name!r} should be float32")
        size = 4 * int(np.prod(shape))
        return np.frombuffer(data[offset : offset + size].tobytes(), "<f4").reshape(shape)

    n = model.hidden
    out.add("embeddings.position_embeddings.weight", floats("emb.pos", (model.window, n)))
    out.add("embeddings.token_type_embeddings.weight", floats("emb.type", (model.types, n)))
    out.add("embeddings.LayerNorm.weight", floats("emb.ln.w", (n,)))
    out.add("embeddings.LayerNorm.bias", floats("emb.ln.b", (n,)))
    for layer in range(model.layers):
        for short, long in _E5_NAMES.items():
            name = f"encoder.layer.{layer}.{long}"
            rows = model.wide if short == "fi" else n
            columns = model.wide if short == "fo" else n
            out.add(f"{name}.bias", floats(f"l{layer}.{short}.b", (rows,)))
            if long.endswith("LayerNorm"):
                out.add(f"{name}.weight", floats(f"l{layer}.{short}.w", (n,)))
                continue
            blocks = four_bit_rows(path, model.tensors[f"l{layer}.{short}.w"][1], rows, columns)
            # The file pairs weight j with j + 16 in a byte, the graph wants 2j with 2j + 1.
            codes = blocks["codes"]
            flat = np.concatenate([codes & 15, codes >> 4], axis=-1)
            out.add(f"{name}.weight.codes", flat[..., 0::2] | flat[..., 1::2] << 4)
            out.add(f"{name}.weight.scales", blocks["scale"].astype(np.float32).reshape(-1))
    return out


def e5_tokenizer(model: E5File) -> str:
    """Return the `tokenizers` JSON of the model's unigram vocabulary, without its normalisation."""
    start, end, _, unknown = model.special
    tokens = [{"id": i, "content": model.pieces[i][0]} for i in sorted(model.special)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    ends = [model.pieces[start][0], model.pieces[end][0]]
    single = [
        {"SpecialToken": {"id": ends[0], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": ends[1], "type_id": 0}},
    ]
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{**token, **flags, "special": True} for token in tokens],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": "always",
                "split": True,
            },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": single,
                "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {
                    name: {"id": name, "ids": [number], "tokens": [name]}
                    for name, number in zip(ends, (start, end), strict=True)
                },
            },
            "decoder": None,
            "model": {
                "type": "Unigram",
                "unk_id": unknown,
                "vocab": model.pieces,
                "byte_fallback": False,
            },
        },
        ensure_ascii=False,
    )
