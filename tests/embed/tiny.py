"""Tiny random encoders in the formats of the real ones, so that the graph is tested without a download."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LAYERS, HEADS, HIDDEN, WIDE, WORDS, WINDOW = 2, 4, 64, 128, 50, 40


def weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random weights by BERT's usual names."""
    rng = np.random.default_rng(seed)
    made: dict[str, NDArray[np.float32]] = {}

    def add(name: str, *shape: int) -> None:
        scale = 1.0 if "embeddings" in name else 1 / np.sqrt(shape[-1])
        made[name] = (rng.standard_normal(shape) * scale).astype(np.float32)

    def norm(name: str) -> None:
        made[f"{name}.weight"] = (1 + rng.standard_normal(HIDDEN) / 10).astype(np.float32)
        made[f"{name}.bias"] = (rng.standard_normal(HIDDEN) / 10).astype(np.float32)

    add("embeddings.word_embeddings.weight", WORDS, HIDDEN)
    add("embeddings.position_embeddings.weight", WINDOW, HIDDEN)
    add("embeddings.token_type_embeddings.weight", 2, HIDDEN)
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            add(f"{name}attention.{part}.weight", HIDDEN, HIDDEN)
            add(f"{name}attention.{part}.bias", HIDDEN)
        add(f"{name}intermediate.dense.weight", WIDE, HIDDEN)
        add(f"{name}intermediate.dense.bias", WIDE)
        add(f"{name}output.dense.weight", HIDDEN, WIDE)
        add(f"{name}output.dense.bias", HIDDEN)
        norm(f"{name}attention.output.LayerNorm")
        norm(f"{name}output.LayerNorm")
    return made


def safetensors(tensors: dict[str, NDArray[np.float32]]) -> bytes:
    """The bytes of a safetensors file."""
    header, data = {}, bytearray()
    for name, array in tensors.items():
        start = len(data)
        data += array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, len(data)]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


_SHORT = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
    "embeddings.word_embeddings": "emb.word",
    "embeddings.position_embeddings": "emb.pos",
    "embeddings.token_type_embeddings": "emb.type",
    "embeddings.LayerNorm": "emb.ln",
}
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "▁b", "c", "▁", "世", "▁query", "▁passage", ":", "a"]


def four_bits(matrix: NDArray[np.float32]) -> tuple[bytes, NDArray[np.float32]]:
    """One matrix in blocks of a float16 scale and 32 codes of 4 bits; and what it then stands for."""
    rows, columns = matrix.shape
    out, meant = bytearray(), np.empty_like(matrix)
    for row in range(rows):
        for start in range(0, columns, 32):
            block = matrix[row, start : start + 32]
            scale = np.float16(np.abs(block).max() / 7)
            codes = np.clip(np.rint(block / np.float32(scale)) + 8, 0, 15).astype(int)
            out += struct.pack("<e", scale)
            out += bytes(codes[j] | codes[j + 16] << 4 for j in range(16))
            meant[row, start : start + 32] = (codes - 8).astype(np.float32) * np.float32(scale)
    return bytes(out), meant


def e5_file(tensors: dict[str, NDArray[np.float32]]) -> tuple[bytes, dict[str, NDArray[np.float32]]]:
    """A packed 4-bit model of these weights, and the weights it really holds."""
    meant: dict[str, NDArray[np.float32]] = {}
    entries: list[tuple[str, int, int, bytes]] = []
    for name, array in tensors.items():
        stem, _, kind = name.rpartition(".")
        if stem.startswith("encoder"):
            layer = stem.split(".")[2]
            short = f"l{layer}.{_SHORT[stem.split('.', 3)[3]]}.{kind[0]}"
        else:
            short = _SHORT[stem] + (f".{kind[0]}" if "LayerNorm" in stem else "")
        packed = array.ndim == 2 and ("encoder" in stem or "word" in stem)
        data, meant[name] = four_bits(array) if packed else (array.astype("<f4").tobytes(), array)
        entries.append((short, int(packed), array.size, data))
    blob = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, blob)]).astype("<u4").tobytes()
    scores = struct.pack(f"<{len(blob)}f", *([0.0] * 4 + [-float(i) for i in range(4, len(blob))]))
    normal = b"".join(
        struct.pack(f"<IB{len(to)}I", ord(ch), len(to), *map(ord, to))
        for ch, to in (("\t", " "), ("ａ", "a"), ("\u200b", ""), ("㍘", "ac"))
    )
    head = b"E5S1" + struct.pack("<I", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, HEADS, WIDE, WORDS, WINDOW, 2)
    head += struct.pack("<f", 1e-12) + struct.pack("<i", 32)
    head += struct.pack("<5iQ", len(blob), 0, 2, 1, 3, sum(map(len, blob))) + ends + scores
    head += b"".join(blob) + struct.pack("<iI", 4, len(normal)) + normal
    table = struct.pack("<i", len(entries))
    at = len(head) + 4 + sum(2 + len(short) + 21 for short, *_ in entries)
    body = bytearray()
    for short, kind_, size, data in entries:
        body += bytes(-(at + len(body)) % 64)
        table += struct.pack("<H", len(short)) + short.encode()
        table += struct.pack("<BIQQ", kind_, size, at + len(body), len(data))
        body += data
    return head + table + bytes(body), meant


def write(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Write `model.safetensors` and return its tensors."""
    made = weights()
    (folder / "model.safetensors").write_bytes(safetensors(made))
    return made
