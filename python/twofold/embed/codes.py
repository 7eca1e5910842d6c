"""Token codes for late interaction: which tokens of a text keep one, and how it is packed.

A code is one bit a dimension, set where the component of the token's vector is not negative.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from twofold._words import STOP_WORDS
from twofold.embed.base import Embedder, Vectors

__all__ = [
    "RULES",
    "CodeEmbedder",
    "QueryCodes",
    "TokenCodes",
    "code_embedder",
    "content_tokens",
    "document_codes",
    "query_codes",
    "sign_bits",
]

RULES: Final = "codes/1"  # raise it when a rule below changes which tokens are kept or what a word is

_WORD_AROUND: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# What word pieces leave of "don't" and "it's".
_FRAGMENTS: Final = frozenset(
    "s t d ll m re ve don doesn didn isn aren wasn weren couldn shouldn hasn".split()  # codespell:ignore
)


class TokenCodes(NamedTuple):
    """One text's tokens in order, specials left out: bits uint8 (t, dimension / 8) and character offsets."""

    bits: npt.NDArray[np.uint8]
    spans: list[tuple[int, int]]


class QueryCodes(NamedTuple):
    """The content tokens of a question: codes uint64 (q, dimension / 64), and the word each lies in."""

    codes: npt.NDArray[np.uint64]
    words: tuple[str, ...]


@runtime_checkable
class CodeEmbedder(Embedder, Protocol):
    """An embedder that gives token codes from the pass that makes the vector. Its dimension is 64 * n.

    token_codes: whether late interaction over these codes was found to help; without it none are made.
    """

    token_codes: bool

    def embed_documents_with_codes(self, texts: Sequence[str]) -> tuple[Vectors, list[TokenCodes]]:
        """Return `embed_documents(texts)` and each text's codes."""

    def embed_query_with_codes(self, text: str) -> tuple[Vectors, TokenCodes]:
        """Return `embed_query(text)` and the text's codes."""


def code_embedder(embedder: Embedder) -> CodeEmbedder | None:
    """The embedder if it gives token codes that are worth keeping."""
    # By the attributes themselves: `isinstance` with a protocol costs as much as a search.
    methods = ("embed_documents_with_codes", "embed_query_with_codes")
    if getattr(embedder, "token_codes", False) and all(callable(getattr(embedder, m, None)) for m in methods):
        return cast(CodeEmbedder, embedder) if embedder.dimension % 64 == 0 else None
    return None


def sign_bits(hidden: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Pack the signs of float (t, dimension) into uint8 (t, dimension / 8)."""
    return np.packbits(hidden >= 0, axis=1)


def content_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Positions of the tokens that say something: no stop words, none without a letter or digit."""
    kept = []
    for i, (start, stop) in enumerate(spans):
        piece = text[start:stop]
        if not piece.isalnum() and not any(map(str.isalnum, piece)):
            continue
        continues = i > 0 and spans[i - 1][1] == start and text[start - 1].isalnum()
        folded = piece.casefold()
        if continues or (folded not in STOP_WORDS and folded not in _FRAGMENTS):
            kept.append(i)
    return kept


def document_codes(text: str, found: TokenCodes) -> bytes:
    """The codes of a text's content tokens, one after another."""
    return found.bits[content_tokens(text, found.spans)].tobytes()


def query_codes(text: str, found: TokenCodes) -> QueryCodes:
    """The codes of a question's content tokens with the word around each, by which it is weighted."""
    kept = content_tokens(text, found.spans)
    words = [match.span() for match in _WORD_AROUND.finditer(text)]
    begins = [a for a, _ in words]
    around = []
    for i in kept:
        start, stop = found.spans[i]
        a, b = words[bisect_right(begins, start) - 1] if words and begins[0] <= start else (0, 0)
        around.append(text[a:b] if start < b else text[start:stop])
    bits = np.ascontiguousarray(found.bits[kept])
    return QueryCodes(bits.view(np.uint64).reshape(len(kept), found.bits.shape[1] // 8), tuple(around))
