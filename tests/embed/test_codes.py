"""Which tokens keep a code, and that the codes come from the pass that makes the vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twofold.embed import QueryCache
from twofold.embed.codes import (
    TokenCodes,
    code_embedder,
    content_tokens,
    document_codes,
    query_codes,
    sign_bits,
)


def pieces(text: str, *cut: str) -> list[tuple[int, int]]:
    """Spans of word pieces, given in order; those left out stand for none."""
    out, at = [], 0
    for piece in cut:
        at = text.index(piece, at)
        out.append((at, at + len(piece)))
        at += len(piece)
    return out


def kept(text: str, *cut: str) -> list[str]:
    spans = pieces(text, *cut)
    return [text[slice(*spans[i])] for i in content_tokens(text, spans)]


def test_stop_words_and_punctuation_keep_no_code() -> None:
    assert kept("Where did Ann go?", "Where", "did", "Ann", "go", "?") == ["Ann", "go"]
    assert kept("I don't - it's 10.0", "I", "don", "'", "t", "-", "it", "'", "s", "10", ".", "0") == [
        "10",
        "0",
    ]


def test_the_rest_of_a_word_is_no_stop_word() -> None:
    assert kept("inflate s", "in", "fla", "te", "s") == ["fla", "te"]
    assert kept("redis at", "red", "is", "at") == ["red", "is"]


def test_signs_become_bits() -> None:
    rows = np.full((2, 64), -1.0, np.float32)
    rows[0, 0], rows[0, 9], rows[1, 63] = 0.0, 2.0, 1.0
    assert sign_bits(rows).tolist() == [[128, 64, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]]


def test_words_around_the_pieces_of_a_question() -> None:
    text = "Who wrote Ann's book-list?"
    spans = pieces(text, "Who", "wrote", "Ann", "'", "s", "book", "-", "li", "st", "?")
    found = TokenCodes(np.arange(80, dtype=np.uint8).reshape(10, 8), spans)
    asked = query_codes(text, found)
    assert asked.words == ("wrote", "Ann's", "book", "list", "list")
    assert asked.codes.dtype == np.uint64
    assert asked.codes.tobytes() == found.bits[[1, 2, 5, 7, 8]].tobytes()
    assert document_codes(text, found) == asked.codes.tobytes()


def test_a_question_of_stop_words_has_no_codes() -> None:
    text = "what is it?"
    asked = query_codes(text, TokenCodes(np.zeros((4, 16), np.uint8), pieces(text, "what", "is", "it", "?")))
    assert asked.codes.shape == (0, 2)
    assert asked.words == ()


@pytest.mark.model
@pytest.mark.parametrize(
    "text", ["[8 May, 2023] Ann: I like jazz", "  x \n", "naïve café 数据库", "word " * 400]
)
def test_codes_of_the_model_are_the_signs_of_its_token_vectors(model: Any, text: str) -> None:
    rows, coded = model.embed_documents_with_codes([text, "another"])
    assert rows.tobytes() == model.embed_documents([text, "another"]).tobytes()
    tokens = model.embed_tokens(text)[1:-1]
    assert coded[0].bits.tobytes() == np.packbits(tokens >= 0, axis=1).tobytes()
    assert coded[0].spans == model.token_spans(text)[: len(tokens)]
    vector, asked = model.embed_query_with_codes(text)
    assert vector.tobytes() == model.embed_query(text).tobytes()
    assert asked.bits.tobytes() == coded[0].bits.tobytes()


@pytest.mark.model
def test_the_query_cache_keeps_codes(model: Any) -> None:
    cache = QueryCache(2)
    vector, asked = cache.embed_query_with_codes(model, "Which technology did Ann choose?")
    assert asked is not None
    assert asked.words == ("technology", "Ann", "choose")
    assert cache.embed_query(model, "Which technology did Ann choose?") is vector
    assert (cache.hits, cache.misses) == (1, 1)
    with pytest.raises(ValueError, match="read-only"):
        asked.codes[0, 0] = 1
    assert code_embedder(model) is model
