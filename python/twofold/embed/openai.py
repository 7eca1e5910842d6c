"""Any endpoint that speaks the OpenAI embeddings protocol, by the standard library's HTTP client."""

from __future__ import annotations

import http.client
import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from email.message import Message
from pathlib import Path
from typing import IO, Any

import numpy as np

from twofold.embed.base import Vectors, check_text, check_texts, fingerprint, rough_spans, unit_rows
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput

__all__ = ["OpenAIEmbedder", "open_openai"]

_OFFICIAL = "https://api.openai.com/v1"
_KNOWN = {  # model -> (dimension, window in tokens)
    "text-embedding-3-small": (1536, 8191),
    "text-embedding-3-large": (3072, 8191),
    "text-embedding-ada-002": (1536, 8191),
}
_LONGEST_WAIT = 20.0  # seconds between two attempts, whatever the server asks for
_LARGEST_ANSWER = 256 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host: it is an error instead."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        del req, fp, code, msg, headers, newurl


class OpenAIEmbedder:
    """Vectors from an endpoint. Its weights are out of reach: the fingerprint can only name the model.

    Args:
        model: name sent to the endpoint.
        base_url: up to and without `/embeddings`; default `OPENAI_BASE_URL`, else api.openai.com.
        api_key: default `OPENAI_API_KEY`; may be absent for endpoints other than api.openai.com.
        dimension: expected length of a vector. Sent as `dimensions` when the model has another
            known length. When neither is known, one short text is embedded to find out.
        window: tokens a text may have.
        batch_size: texts per request, at most 2,048.
        timeout: seconds per attempt.
        retries: attempts after the first, on 429, 5xx and broken connections, with waits of
            0.5, 1, 2, ... seconds or what `Retry-After` asks for, 20 s at most.
        query_prefix, document_prefix: put before each text, for models that want it.
        wait: called with the seconds between attempts; tests put their own here.

    Raises:
        EmbedderUnavailable: no key, or the endpoint cannot be reached or refuses.
        EmbeddingError: the answer is not what was asked for.

    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimension: int | None = None,
        window: int | None = None,
        batch_size: int = 128,
        timeout: float = 60.0,
        retries: int = 4,
        query_prefix: str = "",
        document_prefix: str = "",
        wait: Callable[[float], object] | None = None,
    ) -> None:
        url = (base_url or os.environ.get("OPENAI_BASE_URL") or _OFFICIAL).rstrip("/")
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise InvalidInput(f"base_url {url!r} is not an http or https address")
        if not 1 <= batch_size <= 2048:
            raise InvalidInput(f"batch_size is {batch_size}, it must be 1 to 2048")
        if retries < 0 or timeout <= 0:
            raise InvalidInput(f"retries {retries} and timeout {timeout} must not be negative")
        if dimension is not None and not 1 <= dimension <= 4096:
            raise InvalidInput(f"dimension is {dimension}, it must be 1 to 4096")
        self._url = url + "/embeddings"
        self._key = api_key or os.environ.get("OPENAI_API_KEY")
        if url == _OFFICIAL and not self._key:
            raise EmbedderUnavailable(
                f"openai:{model} needs a key: set OPENAI_API_KEY or pass api_key, or set "
                "OPENAI_BASE_URL to a local endpoint"
            )
        known, known_window = _KNOWN.get(model, (None, 8191))
        self._model = model
        self._batch_size = batch_size
        self._timeout = timeout
        self._retries = retries
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._wait = wait or threading.Event().wait
        self._asked = dimension if dimension not in (None, known) and known is not None else None
        self._opener = urllib.request.build_opener(_NoRedirect())
        self.name = f"openai:{model}"
        self.max_tokens = window or known_window
        self.dimension = dimension or known or len(self._request(["dimension"], 0)[0])
        self.fingerprint = fingerprint(
            model,
            "endpoint",
            dimension=self.dimension,
            window=self.max_tokens,
            pooling="endpoint",
            query_prefix=query_prefix,
            document_prefix=document_prefix,
        )

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        failure = ""
        pause = 0.5
        for attempt in range(self._retries + 1):
            if attempt:
                self._wait(min(pause, _LONGEST_WAIT))
                pause = 0.5 * 2**attempt
            request = urllib.request.Request(self._url, body, headers, method="POST")
            try:
                with self._opener.open(request, timeout=self._timeout) as answer:
                    data: bytes = answer.read(_LARGEST_ANSWER + 1)
                if len(data) > _LARGEST_ANSWER:
                    raise EmbeddingError(f"{self._url} answered more than {_LARGEST_ANSWER} bytes")
                return data
            except urllib.error.HTTPError as error:
                with error:
                    told = error.read(300).decode("utf-8", "replace").strip()
                failure = f"HTTP {error.code} {told}"
                if error.code != 429 and error.code < 500:
                    raise EmbedderUnavailable(f"{self._url} refused: {failure}") from error
                asked = error.headers.get("Retry-After", "")
                if asked.isascii() and asked.isdigit():
                    pause = float(asked)
            except (OSError, http.client.HTTPException) as error:
                failure = f"{type(error).__name__}: {error}"
        raise EmbedderUnavailable(f"{self._url} failed {self._retries + 1} times; the last time: {failure}")

    def _request(self, texts: list[str], first: int) -> list[Any]:
        body: dict[str, object] = {
            "model": self._model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._asked is not None:
            body["dimensions"] = self._asked
        answer = self._post(json.dumps(body).encode())
        last = first + len(texts) - 1
        try:
            data = json.loads(answer)["data"]
            rows = [entry["embedding"] for entry in sorted(data, key=lambda entry: entry["index"])]
            places = sorted(entry["index"] for entry in data)
        except (ValueError, KeyError, TypeError) as error:
            raise EmbeddingError(
                f"{self._url} gave no list of embeddings for texts {first} to {last}: {error!r}"
            ) from error
        if places != list(range(len(texts))):
            raise EmbeddingError(f"{self._url} gave {len(rows)} embeddings for texts {first} to {last}")
        for place, row in enumerate(rows):
            if not isinstance(row, list) or not row:
                raise EmbeddingError(f"{self._url} gave no vector for text {first + place}")
        return rows

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed_documents`; one request per `batch_size` texts."""
        cleaned = check_texts(texts)
        parts = [np.empty((0, self.dimension), np.float32)]
        for first in range(0, len(cleaned), self._batch_size):
            batch = [self._document_prefix + t for t in cleaned[first : first + self._batch_size]]
            parts.append(self._rows(batch, first))
        return np.concatenate(parts)

    def _rows(self, batch: list[str], first: int) -> Vectors:
        rows = self._request(batch, first)
        for place, row in enumerate(rows):
            if len(row) != self.dimension:
                raise EmbeddingError(
                    f"{self.name} gave {len(row)} numbers for text {first + place}, expected {self.dimension}"
                )
        return unit_rows(rows, len(batch), self.dimension, self.name, first)

    def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        row: Vectors = self._rows([self._query_prefix + check_text(text)], 0)[0]
        return row

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; an estimate from above."""
        return len(rough_spans(text))

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """See `Embedder.token_spans`; spans of an estimate from above."""
        return rough_spans(text)


def open_openai(argument: str | None, *, home: Path | None = None, **options: Any) -> OpenAIEmbedder:
    """Open "openai:<model>"; options are those of `OpenAIEmbedder`."""
    del home
    if argument is None:
        raise InvalidInput("openai needs a model: openai:text-embedding-3-small")
    return OpenAIEmbedder(argument, **options)
