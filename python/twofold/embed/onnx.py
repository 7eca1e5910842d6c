"""all-MiniLM-L6-v2 through onnxruntime and tokenizers: the default embedder, no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint
from twofold.embed.install import MINILM, model_folder
from twofold.errors import EmbeddingError, InvalidInput

__all__ = ["MiniLM", "open_minilm"]

_SPECIAL = 2  # [CLS] and [SEP]


class MiniLM:
    """The installed MiniLM. Thread-safe; one text per run on one thread, so batches never matter.

    Args:
        folder: an installed model's folder (`twofold.embed.install.model_folder`).
        threads: texts embedded at once by `embed_documents`; the vectors are the same bytes for
            every value.
        name: shown in messages.

    """

    def __init__(self, folder: Path, *, threads: int = 1, name: str = "minilm") -> None:
        if threads < 1:
            raise InvalidInput(f"threads is {threads}, it must be at least 1")
        self.name = name
        self.dimension = MINILM.shape.hidden
        self.max_tokens = MINILM.window - _SPECIAL
        self.threads = threads
        self.fingerprint = fingerprint(
            MINILM.name, MINILM.revision, dimension=self.dimension, window=MINILM.window
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
            )
            # Two tokenizers: truncation is a state of the object, and windows need all tokens.
            self._whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._cut = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # Both libraries raise bare Exception subclasses of their own for a file they cannot read.
        except Exception as error:
            raise EmbeddingError(f"the model in {folder} does not load: {error}") from error
        self._whole.no_padding()
        self._whole.no_truncation()
        self._cut.no_padding()
        self._cut.enable_truncation(MINILM.window)

    def _run(self, text: str, index: int, outputs: list[str]) -> list[Any]:
        ids = np.array(self._cut.encode(text).ids, np.int64)
        result: list[Any] = self._session.run(outputs, {"ids": ids})
        vector = result[0][0]
        # One comparison that NaN, infinite and zero vectors all fail.
        if not abs(float(np.dot(vector, vector)) - 1.0) < 1e-3:
            raise EmbeddingError(f"{self.name} gave a vector that is no unit vector for text {index}")
        return result

    def _each(self, texts: Sequence[str], task: Callable[[int, str], None]) -> None:
        cleaned = check_texts(texts)
        if self.threads == 1 or len(cleaned) < 2:
            for index, text in enumerate(cleaned):
                task(index, text)
            return
        with ThreadPoolExecutor(min(self.threads, len(cleaned))) as pool:
            # list() so that the first exception is raised here.
            list(pool.map(task, range(len(cleaned)), cleaned))

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed_documents`; tokens beyond the window are not seen."""
        rows = np.empty((len(texts), self.dimension), np.float32)

        def task(index: int, text: str) -> None:
            rows[index] = self._run(text, index, ["vector"])[0][0]

        self._each(texts, task)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        row: Vectors = self._run(check_text(text), 0, ["vector"])[0][0]
        return row

    def embed_tokens(self, text: str) -> Vectors:
        """See `TokenEmbedder.embed_tokens`: rows of the last hidden state, [CLS] and [SEP] too."""
        return self.embed_documents_with_tokens([text])[1][0]

    def embed_documents_with_tokens(self, texts: Sequence[str]) -> tuple[Vectors, list[Vectors]]:
        """See `TokenEmbedder.embed_documents_with_tokens`."""
        rows = np.empty((len(texts), self.dimension), np.float32)
        tokens: list[Vectors] = [rows] * len(texts)

        def task(index: int, text: str) -> None:
            vector, hidden = self._run(text, index, ["vector", "hidden"])
            rows[index] = vector[0]
            tokens[index] = hidden / np.sqrt(np.einsum("ij,ij->i", hidden, hidden))[:, None]

        self._each(texts, task)
        return rows, tokens

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`."""
        return len(self._whole.encode(text, add_special_tokens=False).ids)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`."""
        spans: list[tuple[int, int]] = self._whole.encode(text, add_special_tokens=False).offsets
        return spans


def open_minilm(argument: str | None, *, home: Path | None = None, threads: int = 1) -> MiniLM:
    """Open the installed model; raises EmbedderUnavailable naming the command when there is none."""
    if argument is not None:
        raise InvalidInput(f"minilm takes no argument, got {argument!r}")
    return MiniLM(model_folder(home), threads=threads)
