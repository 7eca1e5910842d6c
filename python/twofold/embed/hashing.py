"""Feature hashing of words and character n-grams: an embedder without a model.

For tests, and for stores that want typo-tolerant matching with nothing to install. It knows
spelling, not meaning.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint, rough_spans, unit_rows
from twofold.errors import InvalidInput

__all__ = ["Hashing", "open_hashing"]

_DEFAULT_DIMENSION = 512
_WINDOW = 8192
_WORD_WEIGHT = 1.0
_GRAM_WEIGHT = 0.4  # n-grams are many a word: at 1.0 spelling drowns the words
_SYMBOL_WEIGHT = 0.2

# Scripts written without spaces: each character and each pair is a feature, as in lexical search.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0003ffff"
_PIECES = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+|[^\w\s]")


def _features(text: str) -> Iterator[tuple[str, float]]:
    for match in _PIECES.finditer(unicodedata.normalize("NFKC", text).casefold()):
        piece = match[0]
        if re.match(rf"[{_UNSPACED}]", piece):
            for character in piece:
                yield "c" + character, _WORD_WEIGHT
            for start in range(len(piece) - 1):
                yield "c" + piece[start : start + 2], _WORD_WEIGHT
        elif piece.isalnum() or "_" in piece:
            yield "w" + piece, _WORD_WEIGHT
            framed = f"<{piece}>"
            for size in (3, 4, 5):
                for start in range(len(framed) - size + 1):
                    yield "g" + framed[start : start + size], _GRAM_WEIGHT
        else:
            yield "s" + piece, _SYMBOL_WEIGHT


@lru_cache(maxsize=1 << 16)
def _slot(feature: str, dimension: int) -> tuple[int, float]:
    number = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "little")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0


class Hashing:
    """Signed feature hashing into `dimension` slots; the same bytes on every machine.

    Args:
        dimension: 64 to 4,096.
        name: shown in messages.

    """

    cosine_spread = 0.065  # measured on LoCoMo (docs/recall.md)

    def __init__(self, dimension: int = _DEFAULT_DIMENSION, *, name: str = "hashing") -> None:
        if not 64 <= dimension <= 4096:
            raise InvalidInput(f"hashing dimension is {dimension}, it must be 64 to 4096")
        self.name = name
        self.dimension = dimension
        self.max_tokens = _WINDOW
        self.fingerprint = fingerprint("hashing", "1", dimension=dimension, window=_WINDOW, pooling="sum")

    def _row(self, text: str, index: int) -> Vectors:
        row = np.zeros((1, self.dimension))
        for (feature, weight), count in Counter(_features(text)).items():
            slot, sign = _slot(feature, self.dimension)
            # A word said nine times counts three times.
            row[0, slot] += sign * weight * count**0.5
        unit: Vectors = unit_rows(row, 1, self.dimension, self.name, first=index)[0]
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
        """See `Embedder.count_tokens`; an estimate, there is no vocabulary."""
        return len(rough_spans(text))

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`."""
        return rough_spans(text)


def open_hashing(argument: str | None, *, home: Path | None = None) -> Hashing:
    """Open "hashing" or "hashing:<dimension>"."""
    del home
    if argument is None:
        return Hashing()
    if not argument.isascii() or not argument.isdigit():
        raise InvalidInput(f"hashing:{argument}: the dimension must be a number of 64 to 4096")
    return Hashing(int(argument), name=f"hashing:{argument}")
