"""What an embedder is, the checks every one passes, and the registry that opens one by name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput

__all__ = [
    "Embedder",
    "TokenEmbedder",
    "Vectors",
    "check_text",
    "check_texts",
    "fingerprint",
    "open_embedder",
    "rough_spans",
    "unit_rows",
]

Vectors = NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Turns text into unit vectors. A text's vector never depends on the texts beside it.

    Attributes:
        name: what `open_embedder` was asked for, for messages.
        fingerprint: model, weights, dimension, window, pooling, norm and prefixes in one line. Two
            embedders with one fingerprint give interchangeable vectors, whatever library runs them.
        dimension: length of every vector, 1 to 4,096.
        max_tokens: a text of at most so many tokens (`count_tokens`) is embedded whole; what lies
            beyond is not seen by the model, so callers split longer texts with `token_spans`.
        cosine_spread: optional; standard deviation of the cosines of a question with texts that have
            nothing to do with it, by which fusion weighs the cosine. Left out: 0.10, MiniLM's.
        latin_only: optional; True where other scripts than Latin are noise to the model.

    """

    name: str
    fingerprint: str
    dimension: int
    max_tokens: int

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, dimension), C-contiguous unit rows in the order of `texts`.

        Raises:
            InvalidInput: a text is empty, blank or not valid Unicode.
            EmbeddingError: the model gave NaN, infinities, a zero row or another width.

        """

    def embed_query(self, text: str) -> Vectors:
        """Return float32 (dimension,), a unit vector. Raises as `embed_documents`."""

    def count_tokens(self, text: str) -> int:
        """Return the number of the model's tokens in `text`, its special tokens left out."""

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return (start, end) character offsets of those tokens, in order of start."""


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An embedder that also gives a vector per token, for late interaction."""

    def embed_tokens(self, text: str) -> Vectors:
        """Return float32 (t, dimension): unit rows, one per token, special tokens included."""

    def embed_documents_with_tokens(self, texts: Sequence[str]) -> tuple[Vectors, list[Vectors]]:
        """Return `embed_documents(texts)` and each text's `embed_tokens`, from one pass each."""


def fingerprint(
    model: str,
    revision: str,
    *,
    dimension: int,
    window: int,
    pooling: str = "mean",
    query_prefix: str = "",
    document_prefix: str = "",
) -> str:
    """Return the one line that decides whether two embedders' vectors may be compared."""
    return (
        f"{model}@{revision};dim={dimension};window={window};pool={pooling};norm=l2;"
        f"query={query_prefix!r};document={document_prefix!r}"
    )


def check_text(text: str, index: int = 0) -> str:
    """Return the stripped text, or raise InvalidInput naming `index`."""
    if not isinstance(text, str):
        raise InvalidInput(f"text {index} is {type(text).__name__}, an embedder takes str")
    stripped = text.strip()
    if not stripped:
        raise InvalidInput(f"text {index} is empty: there is nothing to embed")
    try:
        stripped.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"text {index} is not valid Unicode: lone surrogate at character {error.start}"
        ) from error
    return stripped


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return all texts stripped; a single str in place of a sequence is refused."""
    if isinstance(texts, str):
        raise InvalidInput("embed_documents takes a sequence of texts, not one str")
    return [check_text(text, index) for index, text in enumerate(texts)]


def unit_rows(rows: ArrayLike, count: int, dimension: int, name: str, first: int = 0) -> Vectors:
    """Return `rows` as float32 (count, dimension), C-contiguous, each divided by its length.

    `first` is the index of the first row's text, for the message.

    Raises:
        EmbeddingError: another shape, NaN, an infinity or a zero row; names text and embedder.

    """
    try:
        wide = np.asarray(rows, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise EmbeddingError(f"{name} gave rows that are no matrix of numbers: {error}") from error
    if count == 0:
        return np.empty((0, dimension), np.float32)
    if wide.shape != (count, dimension):
        raise EmbeddingError(
            f"{name} gave an array of shape {wide.shape} for texts {first} to {first + count - 1}, "
            f"expected {(count, dimension)}"
        )
    # A float32 overflow shows as an infinite or zero length as well: one test finds every bad row.
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 1e-30)))
    if bad.size:
        row = int(bad[0])
        what = "a zero vector" if lengths[row] <= 1e-30 else "NaN or infinite values"
        raise EmbeddingError(f"{name} gave {what} for text {first + row}")
    return np.ascontiguousarray(wide / lengths[:, None], dtype=np.float32)


_UNIT = 1e-4  # within this of 1 a row's squared length is left as it is


def checked_rows(rows: ArrayLike, count: int, dimension: int, name: str) -> Vectors:
    """Return `rows` themselves where they are unit float32 rows already, else what `unit_rows` makes of them.

    For what an embedder gives: whose rows those are is not ours to trust.
    """
    if (
        isinstance(rows, np.ndarray)
        and rows.dtype == np.float32
        and rows.shape == (count, dimension)
        and rows.flags.c_contiguous
        and bool((np.abs(np.einsum("ij,ij->i", rows, rows, dtype=np.float64) - 1.0) < _UNIT).all())
    ):
        return rows
    return unit_rows(rows, count, dimension, name)


_ROUGH = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^\W\dA-Za-z]|\d|[^\w\s]|_")


def rough_spans(text: str) -> list[tuple[int, int]]:
    """Return spans that stand in for tokens where the model's tokenizer is not at hand.

    Runs of up to four Latin letters or three digits, and every other visible character alone: at
    least as many as the usual byte-pair vocabularies make, so a window cut by them always fits.
    """
    return [match.span() for match in _ROUGH.finditer(text)]


# kind -> "module:function". The function takes the part after the colon (or None), `home` and the
# options of `open_embedder`. Adapters are named, not imported: their packages are heavy or optional.
_ADAPTERS = {
    "auto": "twofold.embed.onnx:open_minilm",
    "minilm": "twofold.embed.onnx:open_minilm",
    "minilm-int8": "twofold.embed.onnx:open_minilm_int8",
    "e5": "twofold.embed.onnx:open_e5",
    "sentence-transformers": "twofold.embed.sentence:open_sentence_transformer",
    "static": "twofold.embed.static:open_static",
    "hashing": "twofold.embed.hashing:open_hashing",
    "openai": "twofold.embed.openai:open_openai",
}


def open_embedder(
    spec: str | Embedder | None, *, home: str | Path | None = None, **options: object
) -> Embedder | None:
    """Return the embedder that `spec` names.

    Args:
        spec: "auto" or "minilm" (the installed all-MiniLM-L6-v2), "minilm-int8" (the same at
            twice the speed), "e5" (multilingual), "static:wordllama", "hashing" or "hashing:<dim>",
            "sentence-transformers:<name>", "openai:<model>"; an `Embedder`, returned as it is; or
            None for none.
        home: folder of installed models; default `TWOFOLD_HOME` or the user's cache folder.
        options: passed to the adapter, such as `threads` (minilm) or `base_url` (openai).

    Raises:
        EmbedderUnavailable: the model or its package is not installed; names the remedy.
        InvalidInput: `spec` names no embedder.

    """
    if spec is None:
        return None
    if not isinstance(spec, str):
        if isinstance(spec, Embedder):
            return spec
        raise InvalidInput(f"not an embedder: {spec!r}; see twofold.embed.Embedder for the methods")
    kind, colon, argument = spec.partition(":")
    if kind not in _ADAPTERS or (colon and not argument):
        raise InvalidInput(f"unknown embedder {spec!r}; one of {', '.join(sorted(_ADAPTERS))}")
    module, _, function = _ADAPTERS[kind].partition(":")
    try:
        adapter = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise EmbedderUnavailable(f"embedder {spec!r} needs a package: {error}") from error
    opener = cast("Callable[..., Embedder]", adapter)
    return opener(argument or None, home=None if home is None else Path(home), **options)
