"""The query cache: what it keeps, what it drops, and under threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from twofold.embed import QueryCache
from twofold.embed.hashing import Hashing
from twofold.errors import InvalidInput


class Counting(Hashing):
    """A hashing embedder that counts how often it is asked."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension)
        self.asked: list[str] = []

    def embed_query(self, text: str) -> np.ndarray:
        self.asked.append(text)
        return super().embed_query(text)


def test_a_known_text_is_not_embedded_again() -> None:
    embedder, cache = Counting(), QueryCache(4)
    first = cache.embed_query(embedder, "a")
    assert cache.embed_query(embedder, "a") is first
    assert embedder.asked == ["a"]
    assert (cache.hits, cache.misses, len(cache)) == (1, 1, 1)
    assert first.tobytes() == Hashing(64).embed_query("a").tobytes()


def test_the_least_recently_used_goes_first() -> None:
    embedder, cache = Counting(), QueryCache(2)
    for text in ("a", "b", "a", "c", "a", "b"):
        cache.embed_query(embedder, text)
    assert embedder.asked == ["a", "b", "c", "b"]
    assert len(cache) == 2


def test_embedders_with_different_fingerprints_do_not_share() -> None:
    cache = QueryCache()
    assert cache.embed_query(Hashing(64), "a").shape == (64,)
    assert cache.embed_query(Hashing(65), "a").shape == (65,)
    assert cache.embed_query(Hashing(64, name="again"), "a").shape == (64,)
    assert (cache.hits, cache.misses) == (1, 2)


def test_vectors_are_read_only() -> None:
    vector = QueryCache().embed_query(Hashing(64), "a")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1


def test_size_zero_keeps_nothing_and_a_negative_size_is_refused() -> None:
    embedder, cache = Counting(), QueryCache(0)
    for _ in range(3):
        cache.embed_query(embedder, "a")
    assert len(embedder.asked) == 3
    assert len(cache) == 0
    with pytest.raises(InvalidInput):
        QueryCache(-1)


def test_an_error_is_not_kept() -> None:
    cache = QueryCache()
    for _ in range(2):
        with pytest.raises(InvalidInput):
            cache.embed_query(Hashing(64), " ")
    assert len(cache) == 0


def test_clear_forgets() -> None:
    embedder, cache = Counting(), QueryCache()
    cache.embed_query(embedder, "a")
    cache.clear()
    cache.embed_query(embedder, "a")
    assert embedder.asked == ["a", "a"]


def test_many_threads_see_right_vectors_and_a_bounded_cache() -> None:
    embedder, cache = Hashing(64), QueryCache(8)
    texts = [f"text {i % 20}" for i in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(lambda text: cache.embed_query(embedder, text), texts))
    expected = {text: embedder.embed_query(text).tobytes() for text in set(texts)}
    assert all(v.tobytes() == expected[t] for v, t in zip(vectors, texts, strict=True))
    assert len(cache) <= 8
    assert cache.hits + cache.misses == 2000
