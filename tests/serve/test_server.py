"""The server as a stranger meets it: malformed requests, limits, failures, metrics, logs, an orderly stop."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from twofold import AgentMemory, errors
from twofold.serve.limits import Limits, Rates

from .conftest import Running

Ask = Callable[..., tuple[int, dict[str, str], Any]]


def ask(
    url: str, method: str, path: str, body: bytes | None = None, key: str | None = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """One raw request: status, headers (lower case), JSON values or text."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    sent = {n.replace("_", "-"): v for n, v in headers.items()}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    if body is not None:
        sent.setdefault("content-type", "application/json")
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read()
        kind = answer.headers.get("content-type", "")
        return (
            answer.status,
            {k.lower(): v for k, v in answer.headers.items()},
            json.loads(text) if kind.endswith(("/json", "+json")) and text else text.decode(),
        )
    finally:
        connection.close()


BAD = {
    "not JSON": (b"{", 400),
    "not UTF-8": (b'{"content": "\xff"}', 400),
    "NaN": (b'{"content": "x", "confidence": NaN}', 400),
    "too deep": (b"[" * 100_000, 400),
    "an array": (b"[1]", 422),
    "a number for a text": (b'{"content": 123}', 422),
    "a text for a list": (b'{"content": "x", "tags": "a,b"}', 422),
    "a text for a number": (b'{"content": "x", "confidence": "1"}', 422),
    "no content": (b"{}", 422),
    "an unknown field": (b'{"content": "x", "colour": "red"}', 422),
    "a lone surrogate": (b'{"content": "\\ud800"}', 422),
    "NUL": (b'{"content": "a\\u0000b"}', 422),
    "a naive instant": (b'{"content": "x", "event_date": "2026-01-01T00:00:00"}', 422),
    "a huge whole number": (b'{"content": "x", "confidence": 1' + b"0" * 5000 + b"}", 400),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_requests(running: Running, name: str) -> None:
    body, expected = BAD[name]
    status, headers, problem = ask(running.url, "POST", "/v1/memories", body, running.key())
    assert (status, headers["content-type"]) == (expected, "application/problem+json")
    assert problem["error"] == "InvalidInput"
    assert problem["type"] == "urn:twofold:error:InvalidInput"
    assert problem["status"] == expected
    assert problem["detail"]
    assert running.server.owner("default").stats()["memories"] == 0


def test_addresses_methods_and_types(running: Running) -> None:
    key = running.key()
    assert ask(running.url, "GET", "/nothing", key=key)[0] == 404
    status, headers, problem = ask(running.url, "DELETE", "/v1/memories/x", key=key)
    assert (status, problem["error"]) == (405, "InvalidInput")
    assert set(headers["allow"].split(", ")) >= {"GET", "PATCH"}
    assert ask(running.url, "POST", "/v1/memories", b"a=1", key, content_type="text/plain")[0] == 415
    assert ask(running.url, "GET", "/v1/audit?after=x", key=key)[0] == 422
    assert ask(running.url, "GET", "/v1/audit?after=1&after=2", key=key)[0] == 422
    assert ask(running.url, "GET", "/v1/audit?colour=1", key=key)[0] == 422
    assert ask(running.url, "POST", "/v1/recall?k=3", b'{"query": "x"}', key)[0] == 422
    assert ask(running.url, "POST", "/v1/flush", key=key)[0] == 200
    assert ask(running.url, "PATCH", "/v1/memories/a", b'{"memory_id": "b"}', key)[0] == 422
    status, headers, problem = ask(running.url, "GET", "/v1/memories/a%20b", key=key)
    assert (status, problem["error"]) == (404, "NotFound")
    assert headers["cache-control"] == "no-store"
    assert ask(running.url, "GET", "/v1/stats", key=key, twofold_as='{"a": 1}')[0] == 422
    assert ask(running.url, "GET", "/v1/stats", key=key, twofold_as='[{"role": "planner"}]')[0] == 422
    assert ask(running.url, "GET", "/v1/stats", key=key, twofold_as="[" * 9)[0] == 400


def test_large_bodies_are_refused(serve: Callable[..., Running]) -> None:
    running = serve(limits=Limits(body=1000, upload=2000, maintain_every=0))
    key = running.key()
    body = json.dumps({"content": "x" * 2000}).encode()
    assert ask(running.url, "POST", "/v1/memories", body, key)[0] == 413
    client = running.client(running.key("b"))
    with pytest.raises(errors.InvalidInput, match="larger than"):
        client.add("x" * 2000)
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port)) as raw:
        # Chunked: the size is not said beforehand.
        raw.sendall(
            b"POST /v1/memories HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            + f"authorization: Bearer {key}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            + b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n"
        )  # fmt: skip
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert (
        ask(running.url, "POST", "/v1/memories/batch", b'{"items": [' + b'"a",' * 200 + b'"a"]}', key)[0]
        == 200
    )


def test_batches_have_a_limit(running: Running) -> None:
    body = json.dumps({"items": [f"note {i}" for i in range(1001)]}).encode()
    assert ask(running.url, "POST", "/v1/memories/batch", body, running.key())[0] == 422


def test_rates_are_a_token_bucket() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert [rates.take("a", 2.0, 3.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rates.take("a", 2.0, 3.0) == 0.5
    assert rates.take("b", 2.0, 3.0) == 0.0
    now[0] += 0.5
    assert rates.take("a", 2.0, 3.0) == 0.0
    assert rates.take("a", 2.0, 3.0) == 0.5
    now[0] += 1000.0
    assert [rates.take("a", 2.0, 3.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert all(rates.take("c", 0.0, 1.0) == 0.0 for _ in range(1000))


def test_too_many_requests(serve: Callable[..., Running]) -> None:
    now = [100.0]
    running = serve(limits=Limits(rate=1.0, burst=2, maintain_every=0), now=lambda: now[0])
    key, quick = running.key(), running.key("quick", rate=5.0)
    assert [ask(running.url, "GET", "/v1/stats", key=key)[0] for _ in range(3)] == [200, 200, 429]
    status, headers, problem = ask(running.url, "GET", "/v1/stats", key=key)
    assert (status, headers["retry-after"], problem["error"]) == (429, "1", "StoreBusy")
    assert [ask(running.url, "GET", "/v1/stats", key=quick)[0] for _ in range(11)] == [200] * 10 + [429]
    now[0] += 1.0
    assert ask(running.url, "GET", "/v1/stats", key=key)[0] == 200
    assert "twofold_rate_limited_total 3" in running.server.metrics.text()


def test_a_slow_request_is_given_up(serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    running = serve(limits=Limits(timeout=0.2, maintain_every=0))
    key = running.key()
    go = threading.Event()
    monkeypatch.setattr(AgentMemory, "stats", lambda _: {"went": go.wait(20)})
    status, headers, problem = ask(running.url, "GET", "/v1/stats", key=key)
    go.set()
    assert (status, problem["error"]) == (504, "StoreBusy")
    assert "0.2 s" in problem["detail"]
    assert headers["retry-after"] == "1"
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port)) as raw:
        # The body never comes.
        raw.sendall(
            f"POST /v1/flush HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 5\r\n\r\n".encode()
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 408")


def test_reads_go_on_while_writers_wait(running: Running) -> None:
    """More writers than threads for them, all waiting for the store's lock: recalls are answered meanwhile."""
    key = running.key()
    owner = running.server.owner("default")
    owner.add("something to find")
    answers: list[int] = []

    def write(i: int) -> None:
        answers.append(
            ask(running.url, "POST", "/v1/memories", json.dumps({"content": f"w{i}"}).encode(), key)[0]
        )

    threads = [threading.Thread(target=write, args=(i,)) for i in range(20)]
    with owner._vault.store.transaction("default"):
        for thread in threads:
            thread.start()
        for _ in range(5):
            status, _, body = ask(
                running.url, "POST", "/v1/recall", b'{"query": "something", "promote": false}', key
            )
            assert (status, len(body["hits"])) == (200, 1)
        assert answers == []
    for thread in threads:
        thread.join()
    assert answers == [200] * 20
    assert owner.stats()["memories"] == 21


@pytest.mark.parametrize(
    "raised,status,name,told",
    [
        (RuntimeError("the secret of /etc/x"), 500, "TwofoldError", False),
        (errors.StoreError("disk of /var/lib failed"), 500, "StoreError", False),
        (errors.StoreCorrupt("/var/lib/x is damaged"), 500, "StoreCorrupt", False),
        (errors.StoreBusy("/var/lib/x is locked"), 503, "StoreBusy", False),
        (errors.EmbedderUnavailable("/home/u has no model"), 503, "EmbedderUnavailable", False),
        (errors.EmbedderMismatch("made by another"), 409, "EmbedderMismatch", True),
        (errors.ReplayUnsupported("other rules"), 409, "ReplayUnsupported", True),
        (errors.BudgetError("too small"), 422, "BudgetError", True),
        (errors.QuotaExceeded("used up"), 429, "QuotaExceeded", True),
        (errors.PermissionDenied("not yours"), 403, "PermissionDenied", True),
    ],
)
def test_failures_tell_their_name_and_no_internals(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    raised: Exception,
    status: int,
    name: str,
    told: bool,
) -> None:
    key = running.key()
    client = running.client(key, tries=1)

    def fail(_: AgentMemory) -> None:
        raise raised

    monkeypatch.setattr(AgentMemory, "stats", fail)
    with caplog.at_level(logging.ERROR, "twofold.serve"):
        code, headers, problem = ask(running.url, "GET", "/v1/stats", key=key)
    assert (code, problem["error"]) == (status, name)
    assert (str(raised) in problem["detail"]) is told
    assert "/" not in problem["detail"].replace("`", "")
    assert ("reference" in problem) is (status >= 500)
    if status >= 500:
        assert problem["reference"] in caplog.text
        assert str(raised) in caplog.text
    assert ("retry-after" in headers) is (status == 503)
    with pytest.raises(getattr(errors, name)):
        client.stats()


def test_alive_metrics_and_document(running: Running) -> None:
    assert ask(running.url, "GET", "/health")[2] == {"status": "ok"}
    assert ask(running.url, "GET", "/metrics")[0] == 401
    assert ask(running.url, "GET", "/openapi.json")[2]["openapi"] == "3.1.0"
    key = running.key()
    for _ in range(3):
        ask(running.url, "GET", "/v1/stats", key=key)
    status, headers, text = ask(running.url, "GET", "/metrics", key=key)
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'twofold_requests_total{route="stats",status="200"} 3' in text
    assert 'twofold_request_seconds_bucket{route="stats",le="+Inf"} 3' in text
    assert 'twofold_request_seconds_count{route="stats"} 3' in text
    assert "twofold_requests_under_way 1" in text
    assert "twofold_unauthorized_total 1" in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|\w+(\{[^}]*\})? [0-9.]+", line), line
    counts = [int(n) for n in re.findall(r'seconds_bucket\{route="stats",le="[^"]+"\} (\d+)', text)]
    assert counts == sorted(counts)
    executor = running.key("e", role="executor", namespaces=["a"])
    assert ask(running.url, "GET", "/metrics", key=executor)[0] == 403


def test_the_access_log_has_no_content(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    key = running.key()
    with caplog.at_level(logging.INFO, "twofold.access"):
        ask(running.url, "POST", "/v1/recall", b'{"query": "a private question"}', key)
        ask(running.url, "GET", "/nothing")
        running.stop()  # a line is written after its answer is sent
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "twofold.access"]
    assert [(x["method"], x["route"], x["status"]) for x in lines] == [
        ("POST", "recall", 200),
        ("GET", "none", 404),
    ]
    assert lines[0]["key"] == running.keys.all()[0].id
    assert lines[0]["ms"] > 0
    assert "private" not in caplog.text
    assert key not in caplog.text


def test_without_keys_only_this_machine(serve: Callable[..., Running]) -> None:
    running = serve(dev="default")
    port = urlsplit(running.url).port
    assert ask(running.url, "GET", "/v1/whoami")[2]["role"] is None
    assert ask(running.url, "GET", "/v1/stats", host=f"localhost:{port}")[0] == 200
    assert ask(running.url, "GET", "/v1/stats", host=f"[::1]:{port}")[0] == 200
    assert ask(running.url, "GET", "/v1/stats", host=f"evil.example:{port}")[0] == 403
    assert ask(running.url, "GET", "/v1/stats", host="evil.example")[0] == 403
    assert ask(running.url, "GET", "/v1/stats", origin="http://evil.example")[0] == 403
    assert ask(running.url, "GET", "/v1/stats", origin=f"http://localhost:{port}")[0] == 200
    assert ask(running.url, "GET", "/v1/stats", key="tf_" + "0" * 64)[0] == 401


def test_a_stop_commits_what_waits(running: Running) -> None:
    client = running.client()
    one = client.add("used memory")
    client.recall("used memory")
    owner = running.server.owner("default")
    path = owner._vault.store.url
    assert not [e for e in client.audit() if e["kind"] == "access"]
    running.stop()
    with AgentMemory(path, embedder="hashing", clock=running.clock) as again:
        assert [e["kind"] for e in again.audit()][-1] == "access"
        found = again.get(one.id)
        assert found is not None
        assert found.access_count == 1
    with pytest.raises(errors.StoreError):
        client.stats()


def test_a_stop_waits_for_requests_under_way(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    client = running.client()
    client.stats()
    began, go = threading.Event(), threading.Event()
    add = AgentMemory.add

    def slow(self: AgentMemory, *args: Any, **kwargs: Any) -> Any:
        began.set()
        assert go.wait(20)
        return add(self, *args, **kwargs)

    monkeypatch.setattr(AgentMemory, "add", slow)
    got: list[Any] = []
    writer = threading.Thread(target=lambda: got.append(client.add("under way")))
    writer.start()
    assert began.wait(20)
    stopper = threading.Thread(target=running.stop)
    running.clients.clear()
    stopper.start()
    time.sleep(0.2)
    go.set()
    writer.join()
    stopper.join()
    client.close()
    assert [m.content for m in got] == ["under way"]


def test_maintenance_runs_by_itself(serve: Callable[..., Running]) -> None:
    running = serve(limits=Limits(maintain_every=0.05))
    client = running.client()
    client.add("to be maintained")

    def reports() -> int:
        return sum(e["kind"] == "maintain" for e in client.audit())

    deadline = time.monotonic() + 20
    while not reports() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reports() == 1
    runs = running.server.metrics._counters
    seen = runs["maintenance_runs"]
    while runs["maintenance_runs"] < seen + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reports() == 1  # one a day, however often it runs
    running.clock.advance(days=1)
    while reports() < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reports() == 2


def test_limits_are_checked() -> None:
    with pytest.raises(errors.InvalidInput, match="timeout"):
        Limits(timeout=0)
    with pytest.raises(errors.InvalidInput, match="rate"):
        Limits(rate=-1)
