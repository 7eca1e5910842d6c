"""Any model of the sentence-transformers library (extra `[sentence-transformers]`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint, rough_spans, unit_rows
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput

__all__ = ["SentenceTransformerEmbedder", "open_sentence_transformer"]


def _file_revision(name: str) -> str | None:
    """Hash of the weights and tokenizer files when they can be found without the network.

    The same form as a pinned model's, so that one model run by two libraries has one fingerprint.
    """
    folder = Path(name)
    if not folder.is_dir():
        try:
            from huggingface_hub import try_to_load_from_cache
        except ImportError:
            return None
        repository = name if "/" in name else f"sentence-transformers/{name}"
        found = try_to_load_from_cache(repository, "model.safetensors")
        if not isinstance(found, str):
            return None
        folder = Path(found).parent
    digests = []
    for file in (folder / "model.safetensors", folder / "tokenizer.json"):
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest()[:12])
    return "+".join(digests)


def _tensor_revision(model: Any) -> str:
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).tobytes())
    return "tensors:" + digest.hexdigest()[:12]


class SentenceTransformerEmbedder:
    """A sentence-transformers model, one text per pass: a text's vector never depends on its batch.

    Args:
        name: of the model hub, or a folder.
        device: as torch names it; "cpu" is the one whose results repeat.
        options: passed to `SentenceTransformer` (`trust_remote_code`, `cache_folder`, ...).

    A model's own "query" and "document" (or "passage") prompts are used where it has them.

    Raises:
        EmbedderUnavailable: the library is not installed, or the model is neither here nor reachable.

    """

    def __init__(self, name: str, *, device: str = "cpu", **options: Any) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EmbedderUnavailable(
                f"sentence-transformers:{name} needs a package: pip install 'twofold[sentence-transformers]'"
            ) from error
        try:
            self._model = SentenceTransformer(name, device=device, **options)
        except (OSError, ValueError) as error:
            raise EmbedderUnavailable(f"sentence-transformers:{name} does not load: {error}") from error
        width = self._model.get_sentence_embedding_dimension()
        if not width:
            raise EmbeddingError(f"sentence-transformers:{name} does not tell its dimension")
        prompts: dict[str, str] = getattr(self._model, "prompts", None) or {}
        self._query_prompt = prompts.get("query", "")
        self._document_prompt = prompts.get("document") or prompts.get("passage") or ""
        window = int(self._model.max_seq_length or 512)
        self.name = f"sentence-transformers:{name}"
        self.dimension = int(width)
        tokenizer = self._model.tokenizer
        self._tokenizer = tokenizer if getattr(tokenizer, "is_fast", False) else None
        special = tokenizer.num_special_tokens_to_add() if self._tokenizer is not None else 2
        prompt = max(self.count_tokens(self._query_prompt), self.count_tokens(self._document_prompt))
        self.max_tokens = window - special - prompt
        self.fingerprint = fingerprint(
            name.rstrip("/").rpartition("/")[2],
            _file_revision(name) or _tensor_revision(self._model),
            dimension=self.dimension,
            window=window,
            pooling=self._pooling(),
            query_prefix=self._query_prompt,
            document_prefix=self._document_prompt,
        )

    def _pooling(self) -> str:
        for module in self._model:
            if hasattr(module, "get_pooling_mode_str"):
                return str(module.get_pooling_mode_str())
        return "model"

    def _row(self, text: str, prompt: str, index: int) -> Vectors:
        row = self._model.encode(
            [prompt + text],
            batch_size=1,
            prompt="",
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=False,
        )
        unit: Vectors = unit_rows(row, 1, self.dimension, self.name, first=index)[0]
        return unit

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed_documents`."""
        rows = np.empty((len(texts), self.dimension), np.float32)
        for index, text in enumerate(check_texts(texts)):
            rows[index] = self._row(text, self._document_prompt, index)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        return self._row(check_text(text), self._query_prompt, 0)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`; an estimate for the few tokenizers without offsets."""
        if self._tokenizer is None:
            return rough_spans(text)
        coded = self._tokenizer(
            text,
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=False,
            verbose=False,
        )
        return [(int(start), int(end)) for start, end in coded["offset_mapping"]]

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`."""
        return len(self.token_spans(text))


def open_sentence_transformer(
    argument: str | None, *, home: Path | None = None, **options: Any
) -> SentenceTransformerEmbedder:
    """Open "sentence-transformers:<name>"; options are those of `SentenceTransformerEmbedder`."""
    del home
    if argument is None:
        raise InvalidInput("sentence-transformers needs a model: sentence-transformers:all-mpnet-base-v2")
    return SentenceTransformerEmbedder(argument, **options)
