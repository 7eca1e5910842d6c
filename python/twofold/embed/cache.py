"""A bounded cache of query vectors."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from twofold.embed.base import Embedder, Vectors
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
        self._vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._vectors)

    def embed_query(self, embedder: Embedder, text: str) -> Vectors:
        """Return `embedder.embed_query(text)`, float32 (dimension,), read-only, from here if known.

        The lock is not held while the model runs: two threads that miss the same text at once both
        compute it, and get equal bytes.
        """
        key = (embedder.fingerprint, text)
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                self._vectors.move_to_end(key)
                self.hits += 1
                return vector
            self.misses += 1
        vector = np.array(embedder.embed_query(text), np.float32)
        vector.flags.writeable = False
        with self._lock:
            if self.size:
                self._vectors[key] = vector
                self._vectors.move_to_end(key)
                while len(self._vectors) > self.size:
                    self._vectors.popitem(last=False)
        return vector

    def clear(self) -> None:
        """Forget every vector; the counters stay."""
        with self._lock:
            self._vectors.clear()
