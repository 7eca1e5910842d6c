"""A bounded cache of query vectors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from twofold.embed.base import Embedder, Vectors, checked_rows
from twofold.embed.codes import QueryCodes, code_embedder, query_codes
from twofold.errors import InvalidInput

__all__ = ["QueryCache"]


class QueryCache:
    """The last `size` query vectors, least recently used out first. Thread-safe; 0 keeps nothing.

    The key is (fingerprint, text), so one cache may serve several embedders. Vectors are handed out
    read-only: callers share them.
    """

    def __init__(self, size: int = 1024) -> None:
        if size < 0:
            raise InvalidInput(f"cache size is {size}, it must be at least 0")
        self.size = size
        self.hits = 0
        self.misses = 0
        self._known: OrderedDict[tuple[str, str], tuple[Vectors, QueryCodes | None]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def embed_query(self, embedder: Embedder, text: str) -> Vectors:
        """Return `embedder.embed_query(text)`, float32 (dimension,), read-only, from here if known.

        The lock is not held while the model runs: two threads that miss the same text at once both
        compute it, and get equal bytes.
        """
        return self.embed_query_with_codes(embedder, text)[0]

    def embed_query_with_codes(self, embedder: Embedder, text: str) -> tuple[Vectors, QueryCodes | None]:
        """Return the vector as `embed_query`, and from the same pass the codes of the question's words.

        None where the embedder gives no codes.
        """
        key = (embedder.fingerprint, text)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                self.hits += 1
                return known
            self.misses += 1
        coding = code_embedder(embedder)
        codes = None
        if coding is None:
            vector = _checked(embedder, embedder.embed_query(text))
        else:
            made, tokens = coding.embed_query_with_codes(text)
            vector = _checked(embedder, made)
            codes = query_codes(text, tokens)
            codes.codes.flags.writeable = False
        vector.flags.writeable = False
        with self._lock:
            if self.size:
                self._known[key] = vector, codes
                self._known.move_to_end(key)
                while len(self._known) > self.size:
                    self._known.popitem(last=False)
        return vector, codes

    def clear(self) -> None:
        """Forget every vector; the counters stay."""
        with self._lock:
            self._known.clear()


def _checked(embedder: Embedder, vector: Any) -> Vectors:
    """A copy of a question's vector, which is one of finite numbers and length 1."""
    rows = vector[None].copy() if isinstance(vector, np.ndarray) else [vector]
    found: Vectors = checked_rows(rows, 1, embedder.dimension, embedder.name)[0]
    return found
