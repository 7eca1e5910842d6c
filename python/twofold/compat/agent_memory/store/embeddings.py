"""Twofold's embedders behind Memwright's provider interface. There is no guessing by what keys are about."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

from twofold.embed import open_embedder
from twofold.embed.base import Embedder
from twofold.errors import InvalidInput


class EmbeddingProvider(Protocol):
    """Turns texts into vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def provider_name(self) -> str:
        """What makes them."""

    def embed(self, text: str) -> list[float]:
        """One vector."""

    def embed_batch(self, texts: list[str]) -> list[list[float]]:
        """One vector a text."""


class LocalEmbeddingProvider:
    """The installed all-MiniLM-L6-v2, or any embedder that `twofold.embed.open_embedder` opens."""

    def __init__(self, model_name: str = "all-MiniLM-L6-v2", *, embedder: Embedder | None = None) -> None:
        known = {"all-MiniLM-L6-v2": "minilm"}
        opened = embedder or open_embedder(known.get(model_name, model_name))
        if opened is None:
            raise InvalidInput("a provider needs an embedder")
        self._embedder = opened

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._embedder.dimension

    @property
    def provider_name(self) -> str:
        """The embedder's fingerprint: equal names give interchangeable vectors."""
        return self._embedder.fingerprint

    def embed(self, text: str) -> list[float]:
        """One vector."""
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text."""
        found: list[list[float]] = self._embedder.embed_documents(list(texts)).tolist()
        return found


class ChromaEmbeddingAdapter:
    """A provider as Chroma calls it."""

    def __init__(self, provider: EmbeddingProvider) -> None:
        self._provider = provider

    def __call__(self, input: list[str]) -> list[list[float]]:
        """One vector a text."""
        return self._provider.embed_batch(input)

    def embed_query(self, input: list[str]) -> list[list[float]]:
        """One vector a question."""
        return self(input)

    @staticmethod
    def name() -> str:
        """The name a collection keeps."""
        return "memwright:shared"

    def get_config(self) -> dict[str, Any]:
        """What a collection keeps of it."""
        return {"provider": self._provider.provider_name, "dimension": self._provider.dimension}


@functools.lru_cache(maxsize=8)
def get_embedding_provider(preferred: str | None = None) -> LocalEmbeddingProvider:
    """The provider by name ("local", or what `open_embedder` takes). Raises EmbedderUnavailable, InvalidInput."""
    name = "auto" if preferred in (None, "local") else preferred
    return LocalEmbeddingProvider(str(name))


def clear_embedding_cache() -> None:
    """Let go of the providers opened."""
    get_embedding_provider.cache_clear()
