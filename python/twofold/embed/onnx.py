"""BERT encoders through onnxruntime and tokenizers, no torch: all-MiniLM-L6-v2 and a multilingual e5."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint
from twofold.embed.codes import TokenCodes, sign_bits
from twofold.embed.install import E5, MINILM, MINILM_SHAPE, MINILM_WINDOW, PinnedModel, model_folder
from twofold.embed.quantise import four_bit_rows, unpack_rows
from twofold.errors import EmbeddingError, InvalidInput

__all__ = ["E5Small", "MiniLM", "OnnxBert", "open_e5", "open_minilm", "open_minilm_int8"]

_SPECIAL = 2  # the tokens that open and close a text
_OUTPUTS = ["hidden"]
# A run of this many tokens reads the weights often enough from cache; more is slower again
# (12 tokens a text: 2.9 ms one by one, 1.5 ms so; 64 tokens: 8.9 and 7.9).
_TOKENS_PER_RUN = 256


class OnnxBert:
    """An installed encoder. Thread-safe.

    A run holds texts of equal length only, on one thread: the encoder's arithmetic is per token row
    and per text, so a text's bits are those of the text alone (tests/embed/test_onnx.py holds every
    length to it).

    Args:
        folder: an installed model's folder (`twofold.embed.install.model_folder`).
        model: which model that is.
        graph: name of the graph's file.
        dimension: length of a vector.
        window: tokens of a run, special tokens included.
        variant: part of the revision in the fingerprint, where weights were rounded.
        query_prefix, document_prefix: what the model was trained to see before a text.
        threads: texts embedded at once by `embed_documents`; the vectors are the same bytes for
            every value.
        name: shown in messages.

    """

    token_codes = False

    def __init__(
        self,
        folder: Path,
        model: PinnedModel,
        *,
        graph: str,
        dimension: int,
        window: int,
        variant: str = "",
        query_prefix: str = "",
        document_prefix: str = "",
        threads: int = 1,
        name: str,
    ) -> None:
        if threads < 1:
            raise InvalidInput(f"threads is {threads}, it must be at least 1")
        self.name = name
        self.dimension = dimension
        self.threads = threads
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                str(folder / graph), options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # Both libraries raise bare Exception subclasses of their own for a file they cannot read.
        except Exception as error:
            raise EmbeddingError(f"the model in {folder} does not load: {error}") from error
        self._input = self._session.get_inputs()[0].name
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._window = window
        prefix = max(self.count_tokens(query_prefix), self.count_tokens(document_prefix))
        self.max_tokens = window - _SPECIAL - prefix
        self.fingerprint = fingerprint(
            model.name,
            model.revision + variant,
            dimension=dimension,
            window=window,
            query_prefix=query_prefix,
            document_prefix=document_prefix,
        )

    def _normal(self, text: str) -> str:
        """Return the text as the tokenizer is to see it."""
        return text

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(self._normal(text)).ids
        # Cut here, not by the tokenizer's truncation: that is a state which spans must not see.
        return ids if len(ids) <= self._window else [*ids[: self._window - 1], ids[-1]]

    def _feed(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return what the graph takes for ids (b, t)."""
        return ids

    def _hidden(self, ids: list[list[int]]) -> Vectors:
        """Last hidden states of b equally long texts, float32 (b, t, dimension)."""
        array = np.array(ids, np.int64)
        flat: Vectors = self._session.run(_OUTPUTS, {self._input: self._feed(array)})[0]
        return flat.reshape(*array.shape, self.dimension)

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
            ids = self._ids(self._document_prefix + text)
            groups.setdefault(len(ids), []).append((index, ids))
        batches = []
        for length, members in groups.items():
            step = max(1, _TOKENS_PER_RUN // length)
            batches += [members[i : i + step] for i in range(0, len(members), step)]

        def run(batch: list[tuple[int, list[int]]]) -> None:
            hidden = self._hidden([ids for _, ids in batch])
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
        ids = self._ids(self._query_prefix + check_text(text))
        return self._pool(self._hidden([ids])[0], 0)

    def embed_tokens(self, text: str) -> Vectors:
        """See `TokenEmbedder.embed_tokens`: rows of the last hidden state, special tokens too."""
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

    def embed_documents_with_codes(self, texts: Sequence[str]) -> tuple[Vectors, list[TokenCodes]]:
        """See `CodeEmbedder.embed_documents_with_codes`; the vectors are those of `embed_documents`."""
        rows = np.empty((len(texts), self.dimension), np.float32)
        bits: list[NDArray[np.uint8]] = [np.zeros((0, self.dimension // 8), np.uint8)] * len(texts)

        def use(index: int, hidden: Vectors) -> None:
            rows[index] = self._pool(hidden, index)
            bits[index] = sign_bits(hidden)

        self._each(texts, use)
        return rows, [self._coded(text, found) for text, found in zip(texts, bits, strict=True)]

    def embed_query_with_codes(self, text: str) -> tuple[Vectors, TokenCodes]:
        """See `CodeEmbedder.embed_query_with_codes`; the vector is that of `embed_query`."""
        hidden = self._hidden([self._ids(self._query_prefix + check_text(text))])[0]
        return self._pool(hidden, 0), self._coded(text, sign_bits(hidden))

    def _coded(self, text: str, bits: NDArray[np.uint8]) -> TokenCodes:
        """Match codes with the places of their tokens; tokens of a prefix and specials go."""
        spans = self.token_spans(text)
        ahead = len(bits) - len(spans) - 1
        if ahead < 1:  # longer than the window: what lies beyond was not seen
            ahead = 1
            spans = spans[: len(bits) - _SPECIAL]
        return TokenCodes(bits[ahead : ahead + len(spans)], spans)

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`."""
        return len(self._tokenizer.encode(self._normal(text), add_special_tokens=False).ids)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`."""
        spans: list[tuple[int, int]]
        spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return spans


class MiniLM(OnnxBert):
    """all-MiniLM-L6-v2, 384 dimensions, English; `int8` rounds its matrices (another fingerprint)."""

    token_codes = True
    latin_only = True  # its tokeniser reads other scripts as single letters it was hardly trained on

    def __init__(
        self, folder: Path, *, int8: bool = False, threads: int = 1, name: str | None = None
    ) -> None:
        super().__init__(
            folder,
            MINILM,
            graph="int8.onnx" if int8 else "model.onnx",
            dimension=MINILM_SHAPE.hidden,
            window=MINILM_WINDOW,
            variant="+int8" if int8 else "",
            threads=threads,
            name=name or ("minilm-int8" if int8 else "minilm"),
        )


_SPACES = re.compile(" {2,}")


class E5Small(OnnxBert):
    """multilingual-e5-small in 4 bits, 384 dimensions, a hundred languages in one space."""

    cosine_spread = 0.025  # measured on LoCoMo (docs/recall.md): its cosines live in 0.7..0.95

    def __init__(self, folder: Path, *, threads: int = 1, name: str = "e5") -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        self._table: dict[int, str] = {int(k): v for k, v in config["normal"].items()}
        self._words = four_bit_rows(
            folder / "e5-small-q4.bin", config["words"], config["vocabulary"], config["hidden"]
        )
        super().__init__(
            folder,
            E5,
            graph="model.onnx",
            dimension=config["hidden"],
            window=config["window"],
            query_prefix="query: ",
            document_prefix="passage: ",
            threads=threads,
            name=name,
        )

    def _normal(self, text: str) -> str:
        return _SPACES.sub(" ", text.translate(self._table))

    def _feed(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        return unpack_rows(self._words[ids])

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`."""
        normal: list[str] = []
        places: list[int] = []  # of each normalised character in `text`
        for place, character in enumerate(text):
            for made in self._table.get(ord(character), character):
                if made == " " and normal and normal[-1] == " ":
                    continue
                normal.append(made)
                places.append(place)
        if not normal:
            return [(0, 0)] * self.count_tokens(text)
        coded = self._tokenizer.encode("".join(normal), add_special_tokens=False)
        return [
            (places[start], places[end - 1] + 1) if end > start else (places[start - 1] + 1,) * 2
            for start, end in coded.offsets
        ]


def _refuse(kind: str, argument: str | None) -> None:
    if argument is not None:
        raise InvalidInput(f"{kind} takes no argument, got {argument!r}")


def open_minilm(argument: str | None, *, home: Path | None = None, threads: int = 1) -> MiniLM:
    """Open the installed model; raises EmbedderUnavailable naming the command when there is none."""
    _refuse("minilm", argument)
    return MiniLM(model_folder(home, MINILM), threads=threads)


def open_minilm_int8(argument: str | None, *, home: Path | None = None, threads: int = 1) -> MiniLM:
    """Open the same model with its matrices in 8 bits."""
    _refuse("minilm-int8", argument)
    return MiniLM(model_folder(home, MINILM), int8=True, threads=threads)


def open_e5(argument: str | None, *, home: Path | None = None, threads: int = 1) -> E5Small:
    """Open the installed multilingual model."""
    _refuse("e5", argument)
    return E5Small(model_folder(home, E5), threads=threads)
