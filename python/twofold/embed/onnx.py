"""all-MiniLM-L6-v2 through onnxruntime and tokenizers: the default embedder, no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint
from twofold.embed.install import MINILM, model_folder
from twofold.errors import EmbeddingError, InvalidInput

__all__ = ["MiniLM", "open_minilm"]

_SPECIAL = 2  # [CLS] and [SEP]
_OUTPUTS = ["hidden"]
# A run of this many tokens reads the weights often enough from cache; more is slower again
# (12 tokens a text: 2.9 ms one by one, 1.5 ms so; 64 tokens: 8.9 and 7.9).
_TOKENS_PER_RUN = 256


class MiniLM:
    """The installed MiniLM. Thread-safe.

    A run holds texts of equal length only, on one thread: the encoder's arithmetic is per token row
    and per text, so a text's bits are those of the text alone (tests/embed/test_onnx.py holds every
    length to it).

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

    def _hidden(self, ids: NDArray[np.int64]) -> Vectors:
        """Last hidden states of b equally long texts, ids (b, t) -> float32 (b, t, dimension)."""
        flat: Vectors = self._session.run(_OUTPUTS, {"ids": ids})[0]
        return flat.reshape(*ids.shape, self.dimension)

    def _pool(self, hidden: Vectors, index: int) -> Vectors:
        """Unit mean of one text's states (t, dimension).

        Rows are added one after another, so the sum is the same for any batch; its direction is
        that of the mean.
        """
        total = np.add.reduce(hidden, axis=0, dtype=np.float64)
        square = float(np.add.reduce(total * total))
        if not 0.0 < square < math.inf:
            raise EmbeddingError(f"{self.name} gave a zero or infinite vector for text {index}")
        unit: Vectors = (total / math.sqrt(square)).astype(np.float32)
        return unit

    def _each(self, texts: Sequence[str], use: Callable[[int, Vectors], None]) -> None:
        """Call `use(index, hidden)` with every text's states, texts of equal length together."""
        groups: dict[int, list[tuple[int, list[int]]]] = {}
        for index, text in enumerate(check_texts(texts)):
            ids = self._cut.encode(text).ids
            groups.setdefault(len(ids), []).append((index, ids))
        batches = []
        for length, members in groups.items():
            step = max(1, _TOKENS_PER_RUN // length)
            batches += [members[i : i + step] for i in range(0, len(members), step)]

        def run(batch: list[tuple[int, list[int]]]) -> None:
            hidden = self._hidden(np.array([ids for _, ids in batch], np.int64))
            for (index, _), states in zip(batch, hidden, strict=True):
                use(index, states)

        if self.threads == 1 or len(batches) < 2:
            for batch in batches:
                run(batch)
            return
        with ThreadPoolExecutor(min(self.threads, len(batches))) as pool:
            # list() so that the first exception is raised here.
            list(pool.map(run, batches))

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed_documents`; tokens beyond the window are not seen."""
        rows = np.empty((len(texts), self.dimension), np.float32)

        def use(index: int, hidden: Vectors) -> None:
            rows[index] = self._pool(hidden, index)

        self._each(texts, use)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        ids = np.array([self._cut.encode(check_text(text)).ids], np.int64)
        return self._pool(self._hidden(ids)[0], 0)

    def embed_tokens(self, text: str) -> Vectors:
        """See `TokenEmbedder.embed_tokens`: rows of the last hidden state, [CLS] and [SEP] too."""
        return self.embed_documents_with_tokens([text])[1][0]

    def embed_documents_with_tokens(self, texts: Sequence[str]) -> tuple[Vectors, list[Vectors]]:
        """See `TokenEmbedder.embed_documents_with_tokens`."""
        rows = np.empty((len(texts), self.dimension), np.float32)
        tokens: list[Vectors] = [rows] * len(texts)

        def use(index: int, hidden: Vectors) -> None:
            rows[index] = self._pool(hidden, index)
            wide = hidden.astype(np.float64)
            lengths = np.sqrt(np.add.reduce(wide * wide, axis=1))
            tokens[index] = (wide / lengths[:, None]).astype(np.float32)

        self._each(texts, use)
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
