"""A caller's LangChain embeddings, or a plain function, as an embedder of Twofold. Needs the extra [langgraph]."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.store.base import Embeddings, ensure_embeddings
from langgraph.store.base.embed import EmbeddingsLambda

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint, rough_spans, unit_rows
from twofold.errors import EmbeddingError, InvalidInput

WINDOW: Final = 8191  # tokens of a caller's embedder, unless index["max_tokens"] says otherwise


class LangChainEmbedder:
    """LangChain's `Embeddings`, or a function from texts to vectors, as an embedder of Twofold.

    embed: what LangGraph's `index["embed"]` takes: an object, a function, an async function, or "provider:model".
    dims: length of the vectors, 1 to 4,096. name: identity of the model, part of the fingerprint; left out, the
    class or function with its `model` or `model_name`. Vectors of another name are refused as another embedder's,
    so name the model where the class does not say which it is.
    max_tokens: longer texts are cut into windows, and the best one counts.
    """

    def __init__(
        self, embed: Any, dims: Any, *, name: str | None = None, max_tokens: int | None = None
    ) -> None:
        if isinstance(dims, bool) or not isinstance(dims, int) or not 1 <= dims <= 4096:
            raise InvalidInput(f"index dims must be a whole number in 1..4096, not {dims!r}")
        self.embeddings: Embeddings = ensure_embeddings(embed)
        self.name = f"langchain:{name or _identity(embed)}"
        self.dimension = dims
        self.max_tokens = max_tokens or WINDOW
        self.fingerprint = fingerprint(
            self.name, "caller", dimension=dims, window=self.max_tokens, pooling="caller"
        )
        # An async function alone is run on a loop of its own: its client stays bound to one loop.
        self._loop: _Loop | None = None
        if isinstance(self.embeddings, EmbeddingsLambda) and getattr(self.embeddings, "func", None) is None:
            self._loop = _Loop()

    @classmethod
    def of(cls, index: Mapping[str, Any]) -> LangChainEmbedder:
        """The embedder of an index configuration with `dims` and `embed`; `name` and `max_tokens` are our own."""
        if "dims" not in index:
            raise InvalidInput("index has an embed but no dims; give the length of its vectors")
        return cls(index["embed"], index["dims"], name=index.get("name"), max_tokens=index.get("max_tokens"))

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed_documents`."""
        cleaned = check_texts(texts)
        if not cleaned:
            return unit_rows([], 0, self.dimension, self.name)
        if self._loop is None:
            rows = self.embeddings.embed_documents(cleaned)
        else:
            rows = self._loop.run(self.embeddings.aembed_documents(cleaned))
        if len(rows) != len(cleaned):
            raise EmbeddingError(f"{self.name} gave {len(rows)} vectors for {len(cleaned)} texts")
        return unit_rows(rows, len(cleaned), self.dimension, self.name)

    def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        cleaned = check_text(text)
        if self._loop is None:
            row = self.embeddings.embed_query(cleaned)
        else:
            row = self._loop.run(self.embeddings.aembed_query(cleaned))
        first: Vectors = unit_rows([row], 1, self.dimension, self.name)[0]
        return first

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; an estimate from above."""
        return len(rough_spans(text))

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`; spans of an estimate from above."""
        return rough_spans(text)


class _Loop:
    """One event loop in one thread, for as long as its embedder lives."""

    def __init__(self) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="twofold-embed")
        self._runner: asyncio.Runner | None = None

    def run(self, work: Any) -> Any:
        return self._thread.submit(self._run, work).result()

    def _run(self, work: Any) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    def __del__(self) -> None:
        if self._runner is not None:
            self._thread.submit(self._runner.close)
        self._thread.shutdown(wait=False)


def _identity(embed: Any) -> str:
    if isinstance(embed, str):
        return embed
    kind = embed if hasattr(embed, "__qualname__") else type(embed)
    named = [getattr(embed, attribute, None) for attribute in ("model", "model_name")]
    model = next((f":{name}" for name in named if isinstance(name, str)), "")
    return f"{kind.__module__}.{kind.__qualname__}{model}"
