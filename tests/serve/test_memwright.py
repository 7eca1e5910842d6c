"""The peer's eight routes and envelope; what was 500 there is 4xx here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Running
from .test_server import ask

FIELDS = {
    "id", "content", "tags", "category", "entity", "namespace", "created_at", "event_date", "valid_from",
    "valid_until", "superseded_by", "confidence", "status", "access_count", "last_accessed", "content_hash",
    "metadata",
}  # fmt: skip


@pytest.fixture
def peer(serve: Callable[..., Running]) -> Callable[..., tuple[int, Any]]:
    running = serve(dev="default", compat="memwright")

    def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        status, headers, answer = ask(running.url, method, path, raw)
        assert headers["content-type"] == "application/json"
        return status, answer

    return call


def data(found: tuple[int, Any]) -> Any:
    status, body = found
    assert status == 200
    assert set(body) == {"ok", "data"}
    assert body["ok"] is True
    return body["data"]


def test_the_eight_routes(peer: Any) -> None:
    one = data(
        peer("POST", "/add", {
            "content": "Ann moved to Oslo", "tags": ["home"], "category": "note", "entity": "Ann",
            "namespace": "default", "event_date": "2025-12-01", "confidence": 0.9, "metadata": {"a": 1},
        })
    )  # fmt: skip
    assert set(one) == FIELDS
    assert (one["category"], one["entity"], one["tags"], one["status"]) == ("note", "Ann", ["home"], "active")
    assert (one["metadata"], one["confidence"]) == ({"a": 1}, 0.9)
    two = data(peer("POST", "/add", {"content": "Bob likes tea"}))
    found = data(peer("POST", "/recall", {"query": "Where did Ann move?", "budget": 500}))
    assert set(found[0]) == {"content", "score", "source", "id", "memory"}
    assert found[0]["content"] == "Ann moved to Oslo"
    assert found[0]["source"] in {"tag", "graph", "vector"}
    assert found[0]["memory"]["id"] == found[0]["id"] == one["id"]
    assert [m["id"] for m in data(peer("POST", "/search", {"category": "note"}))] == [one["id"]]
    assert [m["id"] for m in data(peer("POST", "/search", {"query": "tea", "limit": 1}))] == [two["id"]]
    assert data(peer("POST", "/search", {"after": "2027-01-01"})) == []
    assert [m["id"] for m in data(peer("POST", "/timeline", {"entity": "Ann"}))] == [one["id"]]
    assert data(peer("GET", f"/memory/{one['id']}"))["id"] == one["id"]
    assert data(peer("POST", "/forget", {"memory_id": one["id"]})) == {"forgotten": True}
    assert data(peer("POST", "/forget", {"memory_id": "missing"})) == {"forgotten": False}
    assert [m["id"] for m in data(peer("POST", "/search", {"status": "archived"}))] == [one["id"]]
    assert data(peer("GET", "/stats"))["total_memories"] == 1
    assert set(data(peer("GET", "/stats"))) == {"total_memories", "by_status", "by_category", "db_size_bytes"}
    health = data(peer("GET", "/health"))
    assert health["healthy"] is True
    assert {c["status"] for c in health["checks"]} == {"ok"}


@pytest.mark.parametrize(
    "method,path,body,status,error",
    [
        ("POST", "/add", {}, 400, "content is required"),
        ("POST", "/recall", {}, 400, "query is required"),
        ("POST", "/timeline", {}, 400, "entity is required"),
        ("POST", "/forget", {}, 400, "memory_id is required"),
        ("GET", "/memory/missing", None, 404, "not found"),
        ("POST", "/add", b"{", 400, "not JSON"),
        ("POST", "/add", b"[1]", 422, "object"),
        ("POST", "/add", {"content": 123}, 400, "content"),
        ("POST", "/add", {"content": "x", "tags": "a,b"}, 400, "tags"),
        ("POST", "/recall", {"query": "x", "budget": "10"}, 400, "budget"),
        ("POST", "/add", {"content": "x", "event_date": "not a date"}, 422, "event_date"),
        ("POST", "/add", {"content": "x", "confidence": 5.0}, 400, "confidence"),
    ],
)
def test_bad_input(peer: Any, method: str, path: str, body: Any, status: int, error: str) -> None:
    got, answer = peer(method, path, body)
    assert got == status
    assert answer["ok"] is False
    assert error in answer["error"]


def test_keys_hold_here_too(serve: Callable[..., Running]) -> None:
    running = serve(compat="memwright")
    status, _, answer = ask(running.url, "GET", "/stats")
    assert (status, answer["ok"]) == (401, False)
    key = running.key("e", role="executor", namespaces=["a"])
    ask(running.url, "POST", "/add", b'{"content": "hidden", "namespace": "b"}', running.key())
    found = ask(running.url, "POST", "/recall", b'{"query": "hidden"}', key)[2]
    assert found == {"ok": True, "data": []}
    assert ask(running.url, "POST", "/recall", b'{"query": "hidden", "namespace": "b"}', key)[0] == 403
    assert ask(running.url, "POST", "/v1/recall", b'{"query": "hidden"}', key)[0] == 200
