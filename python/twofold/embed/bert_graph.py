"""Writes the ONNX graph of a BERT encoder whose weights stay in files beside it.

The graph is a few kilobytes: each weight is an ONNX "external data" reference (file, offset, length),
so a float32 model runs from its verified `model.safetensors` as it lies: nothing is converted, copied
or rounded. Texts of one run have equal lengths: without padding there is no mask, and no text's
numbers depend on its neighbours.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from twofold.errors import EmbeddingError

__all__ = ["BertShape", "TensorPlace", "bert_graph", "read_safetensors_header"]

# Numbers of onnx.proto3's fields and enums (the wire format is stable by the standard's promise).
_FLOAT, _UINT8, _INT64 = 1, 2, 7
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT, _ATTRIBUTE_INTS = 1, 2, 7
_IR_VERSION = 9
_OPSET = 20
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where one tensor lies: `offset` and `length` in bytes from the start of `file`.

    `dtype` is "F32" or "U8" (codes of a quantised matrix), or another of safetensors' names.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class BertShape:
    """The numbers of a BERT encoder that its tensors alone do not tell.

    `bits` and `block` (weights that share a scale) count only where matrices are quantised.
    """

    layers: int
    heads: int
    hidden: int
    epsilon: float
    bits: int = 8
    block: int = 32


def read_safetensors_header(path: Path) -> dict[str, TensorPlace]:
    """Return the place of every tensor in a safetensors file.

    Raises:
        EmbeddingError: the file is not a well-formed safetensors file.

    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise EmbeddingError(f"{path} is not a safetensors file: {size} bytes")
        (length,) = struct.unpack("<Q", head)
        if length > size - 8:
            raise EmbeddingError(f"{path} is cut off: its header wants {length} bytes")
        header = json.loads(file.read(length))
    places = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= size - 8 - length:
            raise EmbeddingError(f"{path}: tensor {name!r} lies outside the file")
        places[name] = TensorPlace(
            path.name, entry["dtype"], tuple(entry["shape"]), 8 + length + start, end - start
        )
    return places


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative int64 is sent as its two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _attribute(name: str, value: float | int | list[int]) -> bytes:
    if isinstance(value, float):
        body = _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, _ATTRIBUTE_FLOAT)
    elif isinstance(value, int):
        body = _number(3, value) + _number(20, _ATTRIBUTE_INT)
    else:
        body = b"".join(_number(8, v) for v in value) + _number(20, _ATTRIBUTE_INTS)
    return _block(1, name) + body


def _value_info(name: str, element: int, dims: list[int | str]) -> bytes:
    shape = b"".join(_block(1, _block(2, d) if isinstance(d, str) else _number(1, d)) for d in dims)
    tensor = _number(1, element) + _block(2, shape)
    return _block(1, name) + _block(2, _block(1, tensor))


class _Graph:
    """Collects nodes and initialisers in order; equal calls give equal bytes."""

    def __init__(self, tensors: dict[str, TensorPlace]) -> None:
        self._tensors = tensors
        self._nodes: list[bytes] = []
        self._initialisers: dict[str, bytes] = {}

    def weight(self, name: str, shape: tuple[int, ...], dtype: str = "F32") -> str:
        place = self._tensors.get(name)
        if place is None or place.dtype != dtype or place.shape != shape:
            raise EmbeddingError(f"weight {name!r} should be {dtype} {shape}, there is {place}")
        external = (
            ("location", place.file),
            ("offset", str(place.offset)),
            ("length", str(place.length)),
        )
        self._initialisers[name] = (
            b"".join(_number(1, d) for d in shape)
            + _number(2, _FLOAT if dtype == "F32" else _UINT8)
            + _block(8, name)
            + b"".join(_block(13, _block(1, k) + _block(2, v)) for k, v in external)
            + _number(14, 1)
        )
        return name

    def integers(self, name: str, values: list[int]) -> str:
        self._initialisers[name] = (
            _number(1, len(values))
            + _number(2, _INT64)
            + _block(8, name)
            + _block(9, struct.pack(f"<{len(values)}q", *values))
        )
        return name

    def node(
        self,
        op: str,
        inputs: list[str],
        output: str,
        domain: str = "",
        **attributes: float | int | list[int],
    ) -> str:
        body = b"".join(_block(1, i) for i in inputs) + _block(2, output) + _block(3, output)
        body += _block(4, op)
        body += b"".join(_block(5, _attribute(k, v)) for k, v in attributes.items())
        self._nodes.append(body + (_block(7, domain) if domain else b""))
        return output

    def model(self, inputs: list[bytes], outputs: list[bytes]) -> bytes:
        graph = (
            b"".join(_block(1, n) for n in self._nodes)
            + _block(2, "bert")
            + b"".join(_block(5, i) for i in self._initialisers.values())
            + b"".join(_block(11, i) for i in inputs)
            + b"".join(_block(12, o) for o in outputs)
        )
        opsets = (("", _OPSET), (_MICROSOFT, 1))
        return (
            _number(1, _IR_VERSION)
            + _block(2, "twofold")
            + _block(7, graph)
            + b"".join(_block(8, _block(1, d) + _number(2, v)) for d, v in opsets)
        )


def bert_graph(tensors: dict[str, TensorPlace], shape: BertShape, *, words: bool = True) -> bytes:
    """Return the bytes of an ONNX model that gives the last hidden state of every token.

    Args:
        tensors: every weight by its usual BERT name. A matrix `x.weight` may be replaced by
            `x.weight.codes` (U8: rows, blocks, bytes of a block) and `x.weight.scales` (F32): it is
            then multiplied with activations rounded to int8 block by block within a row, which
            keeps a row's result free of the other rows.
        shape: the rest of what must be known.
        words: the input is `ids` int64 (b, t), else `words` float32 (b, t, hidden), word vectors.

    The output is `hidden` float32 (b * t, hidden). Files named by `tensors` must lie beside the
    written graph.

    Raises:
        EmbeddingError: a weight is missing or has another type or shape.

    """
    g = _Graph(tensors)
    n = shape.hidden

    def norm_weights(name: str) -> list[str]:
        return [g.weight(f"{name}.weight", (n,)), g.weight(f"{name}.bias", (n,))]

    def linear(x: str, name: str, rows: int, columns: int) -> str:
        matrix, bias = f"{name}.weight", g.weight(f"{name}.bias", (rows,))
        if f"{matrix}.codes" not in tensors:
            # torch keeps a linear layer as (out, in): transB reads it as it lies.
            weights = [g.weight(matrix, (rows, columns)), bias]
            return g.node("Gemm", [x, *weights], f"{name}.out", transB=1)
        blocks = columns // shape.block
        codes = g.weight(f"{matrix}.codes", (rows, blocks, shape.block * shape.bits // 8), "U8")
        scales = g.weight(f"{matrix}.scales", (rows * blocks,))
        y = g.node(
            "MatMulNBits",
            [x, codes, scales],
            f"{name}.product",
            _MICROSOFT,
            K=columns,
            N=rows,
            bits=shape.bits,
            block_size=shape.block,
            accuracy_level=4,
        )
        return g.node("Add", [y, bias], f"{name}.out")

    def rows_of(name: str) -> int:
        place = tensors.get(f"{name}.weight") or tensors.get(f"{name}.weight.codes")
        if place is None:
            raise EmbeddingError(f"weight {name!r} is missing")
        return place.shape[0]

    positions = rows_of("embeddings.position_embeddings")
    types = rows_of("embeddings.token_type_embeddings")
    places = g.weight("embeddings.position_embeddings.weight", (positions, n))
    kinds = g.weight("embeddings.token_type_embeddings.weight", (types, n))
    zero, flat = g.integers("zero", [0]), g.integers("flat", [-1, n])
    if words:
        vocabulary = rows_of("embeddings.word_embeddings")
        table = g.weight("embeddings.word_embeddings.weight", (vocabulary, n))
        x = g.node("Gather", [table, "ids"], "words")
        source = _value_info("ids", _INT64, ["b", "t"])
    else:
        x = "words"
        source = _value_info("words", _FLOAT, ["b", "t", n])
    x = g.node("Add", [x, g.node("Gather", [kinds, zero], "kind")], "words_kind")
    length = g.node("Shape", [x], "length", start=1, end=2)
    x = g.node("Add", [x, g.node("Slice", [places, zero, length, zero], "places")], "embedded")
    # Linear layers see one row per token, attention sees (b, t, hidden).
    split = g.node("Shape", [x], "split")
    x = g.node("Reshape", [x, flat], "embedded_flat")
    x = g.node(
        "LayerNormalization",
        [x, *norm_weights("embeddings.LayerNorm")],
        "embedded_norm",
        axis=-1,
        epsilon=shape.epsilon,
    )
    for i in range(shape.layers):
        name = f"encoder.layer.{i}."
        parts = []
        for part in ("query", "key", "value"):
            y = linear(x, f"{name}attention.self.{part}", n, n)
            parts.append(g.node("Reshape", [y, split], f"{name}{part}"))
        y = g.node("MultiHeadAttention", parts, f"{name}mixed", _MICROSOFT, num_heads=shape.heads)
        y = g.node("Reshape", [y, flat], f"{name}mixed_flat")
        y = linear(y, f"{name}attention.output.dense", n, n)
        x = g.node(
            "SkipLayerNormalization",
            [y, x, *norm_weights(f"{name}attention.output.LayerNorm")],
            f"{name}attended",
            _MICROSOFT,
            epsilon=shape.epsilon,
        )
        wide = rows_of(f"{name}intermediate.dense")
        y = g.node("Gelu", [linear(x, f"{name}intermediate.dense", wide, n)], f"{name}gelu")
        y = linear(y, f"{name}output.dense", n, wide)
        x = g.node(
            "SkipLayerNormalization",
            [y, x, *norm_weights(f"{name}output.LayerNorm")],
            "hidden" if i == shape.layers - 1 else f"{name}done",
            _MICROSOFT,
            epsilon=shape.epsilon,
        )
    return g.model([source], [_value_info("hidden", _FLOAT, ["rows", n])])
