"""Keys: hashed at rest, revocable at once, and a table of what each may do."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from twofold import errors
from twofold.clock import ManualClock
from twofold.serve.keys import Keys, default_path

from .conftest import Running
from .test_server import ask


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "deep" / "keys.json")


def test_only_hashes_are_kept(keys: Keys, clock: ManualClock) -> None:
    key, entry = keys.add("me", clock=clock, role="executor", namespaces=["build/*"], write_quota=5)
    assert key.startswith("tf_")
    assert len(key) == 3 + 64
    assert key[3:] not in keys.path.read_text(encoding="utf-8")
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert keys.find(key) == entry == Keys(keys.path).find(key)
    assert "hash" not in entry.shown()
    assert entry.namespaces == ("build/*",)
    for wrong in ("", "tf_", key[:-1], key + "0", key.upper(), entry.hash, f"tf_{entry.hash}"):
        assert keys.find(wrong) is None


def test_two_keys_are_never_equal(keys: Keys, clock: ManualClock) -> None:
    made = {keys.add(f"k{i}", clock=clock)[0] for i in range(50)}
    assert len(made) == 50


def test_revoking(keys: Keys, clock: ManualClock) -> None:
    other = Keys(keys.path)
    key, entry = keys.add("me", clock=clock)
    assert other.find(key) is not None
    clock.advance(days=1)
    assert [k.id for k in keys.revoke("me", clock=clock)] == [entry.id]
    assert other.find(key) is None
    assert keys.all()[0].revoked_at == "2026-01-02T00:00:00Z"
    with pytest.raises(errors.NotFound, match="twofold keys list"):
        keys.revoke("me", clock=clock)
    second, _ = keys.add("me", clock=clock)
    assert keys.find(second)
    keys.revoke(keys.active()[0].id, clock=clock)
    assert not keys.active()


@pytest.mark.parametrize(
    "options",
    [
        {"role": "king"},
        {"role": "executor", "namespaces": ["a*b"]},
        {"namespaces": ["a"]},
        {"write_quota": 3},
        {"role": "executor", "write_quota": -1},
        {"tenant": ""},
        {"rate": 0.0},
        {"rate": float("nan")},
    ],
)
def test_bad_keys_are_refused(keys: Keys, clock: ManualClock, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput):
        keys.add("me", clock=clock, **options)
    assert not keys.all()


def test_a_name_is_used_once(keys: Keys, clock: ManualClock) -> None:
    keys.add("me", clock=clock)
    keys.add("me", clock=clock, tenant="other")
    with pytest.raises(errors.InvalidInput, match="revoke"):
        keys.add("me", clock=clock)


def test_concurrent_changes_lose_nothing(keys: Keys, clock: ManualClock) -> None:
    def add(i: int) -> None:
        Keys(keys.path).add(f"k{i}", clock=clock)

    threads = [threading.Thread(target=add, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {k.name for k in keys.all()} == {f"k{i}" for i in range(12)}


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1, "keys": [{}]}', '{"version": 99, "keys": []}'])
def test_a_damaged_file_is_not_an_empty_one(keys: Keys, clock: ManualClock, text: str) -> None:
    keys.path.parent.mkdir()
    keys.path.write_text(text, encoding="utf-8")
    with pytest.raises(errors.StoreCorrupt):
        keys.all()
    with pytest.raises(errors.StoreCorrupt):
        keys.add("me", clock=clock)
    assert keys.path.read_text(encoding="utf-8") == text


def test_where_keys_are(tmp_path: Path) -> None:
    assert default_path("./store") == Path("store/keys.json")
    assert default_path("a/b.db") == Path("a/b.db.keys.json")
    away = default_path("postgresql://u:secret@h/db")
    assert away.parent.name == "twofold"
    assert "secret" not in away.name


# What each kind of key may do: method, path, body -> status per kind.
KINDS = ("none", "wrong", "revoked", "owner", "reader", "orchestrator", "executor", "monitor", "other")
TABLE: list[tuple[str, str, str, str]] = [
    # statuses in the order of KINDS
    ("GET", "/health", "", "200 200 200 200 200 200 200 200 200"),
    ("GET", "/openapi.json", "", "200 200 200 200 200 200 200 200 200"),
    ("GET", "/metrics", "", "401 401 401 200 200 200 403 200 200"),
    ("GET", "/v1/whoami", "", "401 401 401 200 200 200 200 200 200"),
    ("POST", "/v1/recall", '{"query": "x"}', "401 401 401 200 200 200 200 200 200"),
    ("POST", "/v1/recall", '{"query": "x", "namespaces": "secret"}', "401 401 401 200 200 200 403 200 200"),
    ("POST", "/v1/search", '{"namespaces": "build/a"}', "401 401 401 200 200 200 200 200 200"),
    ("POST", "/v1/memories", '{"content": "x", "namespace": "build/a", "memory_type": "result"}',
     "401 401 401 200 403 200 200 403 200"),
    ("POST", "/v1/memories", '{"content": "y", "namespace": "secret"}', "401 401 401 200 403 200 403 403 200"),
    ("POST", "/v1/memories", '{"content": "z", "namespace": "facts/a", "memory_type": "observation"}',
     "401 401 401 200 403 200 403 200 200"),
    ("GET", "/v1/memories/SECRET", "", "401 401 401 200 200 200 404 200 404"),
    ("GET", "/v1/memories/SECRET/history", "", "401 401 401 200 200 200 404 200 404"),
    ("PATCH", "/v1/memories/SECRET", '{"content": "changed"}', "401 401 401 200 403 200 404 403 404"),
    ("POST", "/v1/memories/SECRET/forget", "", "401 401 401 200 403 200 403 403 404"),
    ("GET", "/v1/health", "", "401 401 401 200 200 200 403 200 200"),
    ("GET", "/v1/verify", "", "401 401 401 200 200 200 403 200 200"),
    ("GET", "/v1/audit", "", "401 401 401 200 200 200 403 200 200"),
    ("GET", "/v1/export", "", "401 401 401 200 200 200 403 403 200"),
    ("POST", "/v1/import", "", "401 401 401 422 403 403 403 403 422"),
    ("POST", "/v1/gc", "", "401 401 401 200 403 403 403 403 200"),
    ("POST", "/v1/erase", '{"everything": true}', "401 401 401 200 403 403 403 403 200"),
    ("POST", "/v1/maintain", '{"dry_run": true}', "401 401 401 200 403 200 403 403 200"),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r[0]} {r[1]} {r[2][:40]}")
def test_what_each_key_may_do(running: Running, row: tuple[str, str, str, str]) -> None:
    method, path, body, expected = row
    owner = running.server.owner("default")
    secret = owner.add("the secret", namespace="secret")
    revoked = running.key("gone")
    running.keys.revoke("gone", clock=running.clock)
    presented = {
        "none": None,
        "wrong": "tf_" + "0" * 64,
        "revoked": revoked,
        "owner": running.key("owner"),
        "reader": running.key("reader", read_only=True),
        "orchestrator": running.key("orc", role="orchestrator"),
        "executor": running.key("exe", role="executor", namespaces=["build/*"]),
        "monitor": running.key("mon", role="monitor"),
        "other": running.key("other", tenant="other"),
    }
    got = {}
    for kind in KINDS:
        # Each kind meets the same state.
        found = owner.get(secret.id)
        if found is None:
            owner.restore(secret.id)
        raw = body.encode() if body else (b"" if path == "/v1/import" else None)
        got[kind], _, answer = ask(
            running.url, method, path.replace("SECRET", secret.id), raw, presented[kind]
        )
        if kind in ("none", "wrong", "revoked", "executor", "other"):
            assert "the secret" not in str(answer)
    assert got == dict(zip(KINDS, map(int, expected.split()), strict=True))


def test_a_key_is_only_taken_from_its_header(running: Running) -> None:
    key = running.key()
    assert ask(running.url, "GET", f"/v1/stats?key={key}")[0] == 401
    assert ask(running.url, "GET", "/v1/stats", authorization=f"Basic {key}")[0] == 401
    assert ask(running.url, "GET", "/v1/stats", authorization=f"bearer {key}")[0] == 200
    status, headers, _ = ask(running.url, "GET", "/v1/stats", authorization=key)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")


def test_a_quota_belongs_to_the_key(running: Running) -> None:
    client = running.client(running.key("e", role="executor", namespaces=["a"], write_quota=2))
    client.add("one")
    client.add("two")
    with pytest.raises(errors.QuotaExceeded):
        client.add("three")
    with pytest.raises(errors.PermissionDenied):
        client.as_agent("e2", role="executor").add("by another name")
