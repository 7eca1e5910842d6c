"""The slow twin of the ONNX encoder: a BERT forward pass in numpy, one text at a time, float64."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_ERF = np.frompyfunc(math.erf, 1, 1)


def read_safetensors(path: Path) -> dict[str, Array]:
    """Every float32 tensor of the file, as float64."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = (8 + length + o for o in entry["data_offsets"])
            values = np.frombuffer(data[start:end], "<f4").reshape(entry["shape"])
            tensors[name] = values.astype(np.float64)
    return tensors


class MiniLM:
    """hidden(ids) gives (t, 384) last hidden states; vector(ids) their unit mean (384,)."""

    def __init__(self, weights: dict[str, Array], layers: int, heads: int, epsilon: float) -> None:
        self.w, self.layers, self.heads, self.epsilon = weights, layers, heads, epsilon

    def norm(self, x: Array, name: str) -> Array:
        """Layer normalisation over the last axis."""
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        out: Array = centred / scale * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]
        return out

    def linear(self, x: Array, name: str) -> Array:
        """x times the layer's (out, in) matrix, plus its bias."""
        out: Array = x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]
        return out

    def attention(self, x: Array, name: str) -> Array:
        """Softmax attention, one head after another."""
        q, k, v = (self.linear(x, f"{name}.self.{part}") for part in ("query", "key", "value"))
        width = x.shape[1] // self.heads
        mixed = np.empty_like(x)
        for head in range(self.heads):
            s = slice(head * width, (head + 1) * width)
            scores = q[:, s] @ k[:, s].T / math.sqrt(width)
            shares = np.exp(scores - scores.max(1, keepdims=True))
            mixed[:, s] = shares / shares.sum(1, keepdims=True) @ v[:, s]
        return self.norm(self.linear(mixed, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")

    def hidden(self, ids: list[int]) -> Array:
        """Last hidden states of one text."""
        w = self.w
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        for i in range(self.layers):
            name = f"encoder.layer.{i}"
            x = self.attention(x, f"{name}.attention")
            h = self.linear(x, f"{name}.intermediate.dense")
            h = h * 0.5 * (1 + _ERF(h / math.sqrt(2)).astype(np.float64))
            x = self.norm(self.linear(h, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        return x

    def vector(self, ids: list[int]) -> Array:
        """Unit mean of the last hidden states."""
        mean = self.hidden(ids).mean(0)
        unit: Array = mean / np.linalg.norm(mean)
        return unit
