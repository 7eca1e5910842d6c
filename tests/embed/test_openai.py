"""The endpoint client against a real HTTP server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from twofold.embed import Embedder, open_embedder
from twofold.embed.hashing import Hashing
from twofold.embed.openai import OpenAIEmbedder
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput

DIMENSION = 64
HASHING = Hashing(DIMENSION)
Answer = Callable[[dict[str, Any]], tuple[int, dict[str, str], bytes]]


def vectors(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """What a good endpoint answers, out of order as the protocol allows; twice as long as a unit."""
    rows = HASHING.embed_documents(body["input"]) * 2
    data = [{"index": i, "embedding": row.tolist(), "object": "embedding"} for i, row in enumerate(rows)]
    return 200, {}, json.dumps({"object": "list", "data": data[::-1]}).encode()


class Endpoint:
    """A server whose answers are queued; with an empty queue it answers well."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answers: list[Answer] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append((self.path, dict(self.headers), body))
                answer = endpoint.answers.pop(0) if endpoint.answers else vectors
                status, headers, data = answer(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A client that gave up leaves a broken pipe behind; that is no news.
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def fail(self, status: int, text: str = "", **headers: str) -> None:
        self.answers.append(lambda _body: (status, headers, text.encode()))

    def give(self, data: object) -> None:
        self.answers.append(lambda _body: (200, {}, json.dumps(data).encode()))

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(endpoint: Endpoint, waits: list[float]) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        "local-model",
        base_url=endpoint.url,
        api_key="secret",
        dimension=DIMENSION,
        batch_size=3,
        timeout=5,
        wait=waits.append,
    )


def test_vectors_come_back_in_order_as_unit_rows(client: OpenAIEmbedder, endpoint: Endpoint) -> None:
    assert isinstance(client, Embedder)
    texts = [f"text number {i}" for i in range(8)]
    rows = client.embed_documents(texts)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    np.testing.assert_allclose(rows, HASHING.embed_documents(texts), atol=1e-6)
    np.testing.assert_allclose(client.embed_query("a query"), HASHING.embed_query("a query"), atol=1e-6)
    assert [len(body["input"]) for _, _, body in endpoint.requests] == [3, 3, 2, 1]
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {"model": "local-model", "input": texts[:3], "encoding_format": "float"}
    assert client.embed_documents([]).shape == (0, DIMENSION)


def test_prefixes_go_before_each_text(endpoint: Endpoint) -> None:
    client = OpenAIEmbedder(
        "m", base_url=endpoint.url, dimension=DIMENSION, query_prefix="q: ", document_prefix="d: "
    )
    client.embed_documents([" a ", "b"])
    client.embed_query("c")
    assert [body["input"] for _, _, body in endpoint.requests] == [["d: a", "d: b"], ["q: c"]]
    plain = OpenAIEmbedder("m", base_url=endpoint.url, dimension=DIMENSION)
    assert plain.fingerprint != client.fingerprint
    assert "Authorization" not in endpoint.requests[0][1]


def test_an_unknown_dimension_is_asked_for_once(endpoint: Endpoint) -> None:
    client = OpenAIEmbedder("m", base_url=endpoint.url)
    assert client.dimension == DIMENSION
    assert len(endpoint.requests) == 1


def test_a_shortened_known_model_asks_for_its_dimension(endpoint: Endpoint) -> None:
    client = OpenAIEmbedder("text-embedding-3-small", base_url=endpoint.url, dimension=DIMENSION)
    client.embed_query("x")
    assert endpoint.requests[0][2]["dimensions"] == DIMENSION
    full = OpenAIEmbedder("text-embedding-3-small", base_url=endpoint.url)
    assert (full.dimension, full.max_tokens) == (1536, 8191)
    assert full.fingerprint != client.fingerprint
    assert len(endpoint.requests) == 1


def test_environment_names_endpoint_and_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url + "/")
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    client = open_embedder("openai:some/model", dimension=DIMENSION)
    assert client is not None
    assert client.name == "openai:some/model"
    client.embed_query("x")
    path, headers, body = endpoint.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/embeddings", "Bearer from-environment")
    assert body["model"] == "some/model"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_trouble_is_retried_with_growing_waits(
    client: OpenAIEmbedder, endpoint: Endpoint, waits: list[float], status: int
) -> None:
    for _ in range(3):
        endpoint.fail(status)
    client.embed_query("x")
    assert waits == [0.5, 1.0, 2.0]
    assert len(endpoint.requests) == 4


def test_retry_after_is_obeyed_up_to_a_bound(
    client: OpenAIEmbedder, endpoint: Endpoint, waits: list[float]
) -> None:
    for asked in ("7", "86400", "tomorrow"):
        endpoint.fail(429, **{"Retry-After": asked})
    client.embed_query("x")
    assert waits == [7.0, 20.0, 2.0]


def test_lasting_trouble_ends_with_the_last_reason(
    client: OpenAIEmbedder, endpoint: Endpoint, waits: list[float]
) -> None:
    for _ in range(5):
        endpoint.fail(503, "overloaded today")
    with pytest.raises(EmbedderUnavailable, match=r"5 times.*503 overloaded today"):
        client.embed_query("x")
    assert len(waits) == 4
    assert len(endpoint.requests) == 5


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refusal_is_not_retried(client: OpenAIEmbedder, endpoint: Endpoint, status: int) -> None:
    endpoint.fail(status, "no such thing", Location="http://127.0.0.1:9/elsewhere")
    with pytest.raises(EmbedderUnavailable, match=f"{status} no such thing") as raised:
        client.embed_query("x")
    assert len(endpoint.requests) == 1
    assert "secret" not in str(raised.value)


def test_no_server_is_unavailable(waits: list[float]) -> None:
    client = OpenAIEmbedder("m", base_url="http://127.0.0.1:9/v1", dimension=8, retries=1, wait=waits.append)
    with pytest.raises(EmbedderUnavailable, match="failed 2 times"):
        client.embed_query("x")
    assert waits == [0.5]


def test_a_server_that_is_silent_times_out(endpoint: Endpoint) -> None:
    go_on = threading.Event()

    def silent(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        go_on.wait(10)
        return vectors(body)

    endpoint.answers.append(silent)
    client = OpenAIEmbedder("m", base_url=endpoint.url, dimension=DIMENSION, timeout=0.2, retries=0)
    with pytest.raises(EmbedderUnavailable, match=r"(?i)time"):
        client.embed_query("x")
    go_on.set()


def test_an_answer_that_breaks_off_is_retried(
    client: OpenAIEmbedder, endpoint: Endpoint, waits: list[float]
) -> None:
    endpoint.answers.append(lambda _body: (200, {"Transfer-Encoding": "chunked"}, b"5\r\nab"))
    client.embed_query("x")
    assert waits == [0.5]


GOOD = [1.0] * DIMENSION


@pytest.mark.parametrize(
    "data, message",
    [
        ([], "no list"),
        ({"error": "x"}, "no list"),
        ({"data": 3}, "no list"),
        ({"data": [{"index": 0}]}, "no list"),
        ({"data": [{"index": 0, "embedding": GOOD}]}, "1 embeddings for texts 0 to 1"),
        ({"data": [{"index": 0, "embedding": GOOD}] * 2}, "2 embeddings for texts 0 to 1"),
        (
            {"data": [{"index": 0, "embedding": GOOD}, {"index": 1, "embedding": GOOD[1:]}]},
            "63 numbers for text 1, expected 64",
        ),
        (
            {"data": [{"index": 0, "embedding": GOOD}, {"index": 1, "embedding": "AAAA"}]},
            "no vector for text 1",
        ),
        (
            {"data": [{"index": 0, "embedding": GOOD}, {"index": 1, "embedding": [0.0] * DIMENSION}]},
            "a zero vector for text 1",
        ),
        (
            {"data": [{"index": 0, "embedding": GOOD}, {"index": 1, "embedding": [float("nan"), *GOOD[1:]]}]},
            "NaN or infinite values for text 1",
        ),
        (
            {"data": [{"index": 0, "embedding": GOOD}, {"index": 1, "embedding": ["x", *GOOD[1:]]}]},
            "no matrix of numbers",
        ),
    ],
)
def test_a_bad_answer_names_the_text(
    client: OpenAIEmbedder, endpoint: Endpoint, data: object, message: str
) -> None:
    endpoint.give(data)
    with pytest.raises(EmbeddingError, match=message):
        client.embed_documents(["a", "b"])


def test_a_bad_vector_in_a_later_batch_names_its_own_text(client: OpenAIEmbedder, endpoint: Endpoint) -> None:
    endpoint.answers.append(vectors)
    endpoint.give({"data": [{"index": 0, "embedding": GOOD}, {"index": 1, "embedding": [0.0] * DIMENSION}]})
    with pytest.raises(EmbeddingError, match="text 4"):
        client.embed_documents(list("abcde"))


def test_bad_text_is_refused_before_anything_is_sent(client: OpenAIEmbedder, endpoint: Endpoint) -> None:
    with pytest.raises(InvalidInput, match="text 1"):
        client.embed_documents(["a", " "])
    assert endpoint.requests == []


def test_the_official_endpoint_needs_a_key() -> None:
    with pytest.raises(EmbedderUnavailable, match="OPENAI_API_KEY"):
        open_embedder("openai:text-embedding-3-small")


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "file:///etc"},
        {"base_url": "example.org/v1"},
        {"batch_size": 0},
        {"batch_size": 2049},
        {"retries": -1},
        {"timeout": 0.0},
        {"dimension": 0},
        {"dimension": 4097},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        OpenAIEmbedder("m", **{"base_url": "http://127.0.0.1:9", "dimension": 8, **options})
