"""Writes the ONNX graph of a BERT encoder whose weights stay in their safetensors file.

The graph is a few kilobytes: each weight is an ONNX "external data" reference (offset, length) into
the verified `model.safetensors`, so nothing is converted, copied or rounded. Texts of one run have
equal lengths: without padding there is no mask, and no text's numbers depend on its neighbours.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from twofold.errors import EmbeddingError

__all__ = ["BertShape", "TensorPlace", "bert_graph", "read_safetensors_header"]

# Numbers of onnx.proto3's fields and enums (the wire format is stable by the standard's promise).
_FLOAT, _INT64 = 1, 7
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT, _ATTRIBUTE_INTS = 1, 2, 7
_IR_VERSION = 9
_OPSET = 20
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where one tensor lies in a safetensors file: `offset` and `length` in bytes from its start."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class BertShape:
    """The numbers of a BERT encoder that its tensors alone do not tell."""

    layers: int
    heads: int
    hidden: int
    epsilon: float


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
        places[name] = TensorPlace(entry["dtype"], tuple(entry["shape"]), 8 + length + start, end - start)
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

    def __init__(self, tensors: dict[str, TensorPlace], location: str) -> None:
        self._tensors = tensors
        self._location = location
        self._nodes: list[bytes] = []
        self._initialisers: dict[str, bytes] = {}

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        place = self._tensors.get(name)
        if place is None or place.dtype != "F32" or place.shape != shape:
            raise EmbeddingError(f"weight {name!r} should be F32 {shape}, the file has {place}")
        external = (
            ("location", self._location),
            ("offset", str(place.offset)),
            ("length", str(place.length)),
        )
        self._initialisers[name] = (
            b"".join(_number(1, d) for d in shape)
            + _number(2, _FLOAT)
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


def bert_graph(tensors: dict[str, TensorPlace], shape: BertShape, location: str) -> bytes:
    """Return the bytes of an ONNX model: `ids` int64 (b, t) to `hidden` float32 (b * t, hidden).

    The output is the last hidden state of every token; pooling is the caller's. `location` is the
    name of the safetensors file, which must lie beside the written graph.

    Raises:
        EmbeddingError: a weight is missing or has another type or shape.

    """
    g = _Graph(tensors, location)
    n, prefix = shape.hidden, "bert." if "bert.embeddings.LayerNorm.weight" in tensors else ""

    def norm_weights(name: str) -> list[str]:
        return [g.weight(f"{name}.weight", (n,)), g.weight(f"{name}.bias", (n,))]

    def linear(x: str, name: str, rows: int, columns: int) -> str:
        # torch keeps a linear layer as (out, in): transB reads it as it lies.
        weights = [g.weight(f"{name}.weight", (rows, columns)), g.weight(f"{name}.bias", (rows,))]
        return g.node("Gemm", [x, *weights], f"{name}.out", transB=1)

    emb = f"{prefix}embeddings."
    vocabulary = tensors[emb + "word_embeddings.weight"].shape[0]
    positions = tensors[emb + "position_embeddings.weight"].shape[0]
    types = tensors[emb + "token_type_embeddings.weight"].shape[0]
    words = g.weight(emb + "word_embeddings.weight", (vocabulary, n))
    places = g.weight(emb + "position_embeddings.weight", (positions, n))
    kinds = g.weight(emb + "token_type_embeddings.weight", (types, n))
    zero, flat = g.integers("zero", [0]), g.integers("flat", [-1, n])

    x = g.node("Gather", [words, "ids"], "words")
    x = g.node("Add", [x, g.node("Gather", [kinds, zero], "kind")], "words_kind")
    length = g.node("Shape", ["ids"], "length", start=1)
    x = g.node("Add", [x, g.node("Slice", [places, zero, length, zero], "places")], "embedded")
    # Linear layers see one row per token, attention sees (b, t, hidden).
    split = g.node("Shape", [x], "split")
    x = g.node("Reshape", [x, flat], "embedded_flat")
    x = g.node(
        "LayerNormalization",
        [x, *norm_weights(emb + "LayerNorm")],
        "embedded_norm",
        axis=-1,
        epsilon=shape.epsilon,
    )
    for i in range(shape.layers):
        name = f"{prefix}encoder.layer.{i}."
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
        wide = tensors[f"{name}intermediate.dense.weight"].shape[0]
        y = g.node("Gelu", [linear(x, f"{name}intermediate.dense", wide, n)], f"{name}gelu")
        y = linear(y, f"{name}output.dense", n, wide)
        x = g.node(
            "SkipLayerNormalization",
            [y, x, *norm_weights(f"{name}output.LayerNorm")],
            "hidden" if i == shape.layers - 1 else f"{name}done",
            _MICROSOFT,
            epsilon=shape.epsilon,
        )
    return g.model([_value_info("ids", _INT64, ["b", "t"])], [_value_info("hidden", _FLOAT, ["rows", n])])
