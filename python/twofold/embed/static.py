"""Static word vectors: a text is the mean of its tokens' vectors. Fast, small, and knows no context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint, unit_rows
from twofold.embed.bert_graph import read_safetensors_header
from twofold.embed.install import WORDLLAMA, model_folder
from twofold.errors import EmbeddingError, InvalidInput

__all__ = ["WordLlama", "open_static"]

_WINDOW = 8192


class WordLlama:
    """wordllama's bundled 256-dimensional vectors, read as data: its package is not needed.

    Args:
        folder: the installed model's folder.
        name: shown in messages.

    """

    def __init__(self, folder: Path, *, name: str = "static:wordllama") -> None:
        weights, tokenizer = (folder / file for file in WORDLLAMA.files)
        (place,) = read_safetensors_header(weights).values()
        if place.dtype != "F16" or len(place.shape) != 2:
            raise EmbeddingError(f"{weights} holds {place}, expected one F16 matrix")
        self._rows = np.memmap(weights, "<f2", "r", place.offset, place.shape)
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.name = name
        self.dimension = place.shape[1]
        self.max_tokens = _WINDOW
        self.fingerprint = fingerprint(
            WORDLLAMA.name, WORDLLAMA.revision, dimension=self.dimension, window=_WINDOW
        )

    def _row(self, text: str, index: int) -> Vectors:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids[:_WINDOW]
        total = np.add.reduce(self._rows[ids], axis=0, dtype=np.float64)
        unit: Vectors = unit_rows(total[None], 1, self.dimension, self.name, first=index)[0]
        return unit

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed_documents`."""
        rows = np.empty((len(texts), self.dimension), np.float32)
        for index, text in enumerate(check_texts(texts)):
            rows[index] = self._row(text, index)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        return self._row(check_text(text), 0)

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`."""
        spans: list[tuple[int, int]]
        spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return spans


def open_static(argument: str | None, *, home: Path | None = None) -> WordLlama:
    """Open "static:wordllama"."""
    if argument != "wordllama":
        raise InvalidInput(f"static:{argument}: the static model there is, is static:wordllama")
    return WordLlama(model_folder(home, WORDLLAMA))
