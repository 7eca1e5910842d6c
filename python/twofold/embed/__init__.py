"""Embedders: text to unit vectors, each with a fingerprint. Models and their runtimes load lazily."""

from twofold.embed.base import Embedder, TokenEmbedder, open_embedder
from twofold.embed.cache import QueryCache

__all__ = ["Embedder", "QueryCache", "TokenEmbedder", "open_embedder"]
