"""Requests of somebody who means harm: never a 5xx, never another's data, never a connection held for nothing."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from twofold import audit

from .conftest import Running
from .test_server import ask

HUGE = 10**400
VALUES: dict[str, tuple[str, dict[str, Any]]] = {
    "a vector beyond floats": ("/v1/memories", {"content": "x", "vector": [HUGE] * 64}),
    "a weight beyond floats": ("/v1/links", {"a": "a", "b": "b", "weight": HUGE}),
    "a confidence beyond floats": ("/v1/memories", {"content": "x", "confidence": HUGE}),
    "an instant beyond the years": ("/v1/memories", {"content": "x", "event_date": "9999-12-31T23:59:59-14:00"}),
    "one before them": ("/v1/memories", {"content": "x", "valid_from": "0001-01-01T00:00:00+14:00"}),
    "a budget beyond all": ("/v1/recall", {"query": "x", "budget": 10**30}),
    "deep metadata": ("/v1/memories", {"content": "x", "metadata": json.loads('{"a":' * 200 + "1" + "}" * 200)}),
    "a constant beyond floats": ("/v1/recall", {"query": "x", "profile": {"rrf_k": HUGE}}),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values_that_no_number_or_date_holds(running: Running, name: str) -> None:
    path, body = VALUES[name]
    status, _, problem = ask(running.url, "POST", path, json.dumps(body).encode(), running.key())
    assert status == 422, problem
    assert problem["error"] in ("InvalidInput", "BudgetError")
    assert running.server.owner("default").stats()["memories"] == 0


FORGED: list[tuple[str, Any]] = [
    ("k", 10**9), ("seq", 10**18), ("vector", "AAAA"), ("profile", {}), ("filters", {"metadata": "x"}),
    ("filters", {"metadata": "[]"}), ("filters", {"tags": 5}), ("now", 10**18), ("terms", [1]), ("policy", {}),
    ("answer", [[1]]), ("cover", "x"), ("spread", 0), ("generation", 7),
    ("tokens", {"codes": "", "width": 0, "terms": []}),
    ("tokens", {"codes": "A" * 32, "width": 1, "terms": []}), ("counter", "tokenizers:/etc/passwd"), ("tenant", "t2"),
    ("proposed", [10**9]), ("proposed", [-1]),
]  # fmt: skip


def forged(receipt: dict[str, Any], field: str, value: Any) -> bytes:
    """A request to replay a receipt that says something else; its id can be made to fit by anybody."""
    body = {name: part for name, part in receipt.items() if name != "id"} | {field: value}
    digest = hashlib.sha256(audit.canonical(body).encode()).hexdigest()[:32]
    return json.dumps({"receipt": {**body, "id": digest}}).encode()


@pytest.mark.parametrize("field,value", FORGED, ids=[f"{n}={str(v)[:20]}" for n, v in FORGED])
def test_a_forged_receipt(running: Running, field: str, value: Any) -> None:
    """What it says must still be looked at."""
    client = running.client()
    client.add("the heron nests by the weir")
    receipt = client.recall("heron").receipt.to_json()
    asked = forged(receipt, field, value)
    status, _, problem = ask(running.url, "POST", "/v1/replay", asked, running.key("b"))
    assert status < 500, problem  # some are receipts of another question, which may be asked
    stranger = running.key("c", tenant="t2")
    assert ask(running.url, "POST", "/v1/replay", asked, stranger)[0] in (403, 404, 409, 422)


def test_a_forged_receipt_widens_nothing(running: Running) -> None:
    """An executor writes itself a receipt of the owner over all namespaces."""
    owner = running.client()
    owner.add("the launch code is heron", namespace="private")
    receipt = owner.recall("launch code", namespaces="private").receipt.to_json()
    key = running.key("exec-1", role="executor", namespaces=["build/*"])
    asked = forged(receipt, "agent_id", "exec-1")
    status, _, problem = ask(running.url, "POST", "/v1/replay", asked, key)
    assert status == 403
    assert "launch" not in json.dumps(problem)


def started(store: Path) -> tuple[subprocess.Popen[str], tuple[str, int]]:
    process = subprocess.Popen(
        [
            sys.executable, "-c", "from twofold.cli import main; main()",
            "serve", "--dev", "--store", str(store), "--port", "0", "--embedder", "hashing:64", "--json",
            "--timeout", "1",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    at = urlsplit(json.loads(process.stdout.readline())["url"])
    assert at.hostname is not None
    assert at.port is not None
    return process, (at.hostname, at.port)


def answered(connection: socket.socket) -> bool:
    """Read one answer to its end; whether it was 200."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
    while len(body) < int(length):
        body += connection.recv(1 << 16)
    return head.startswith(b"HTTP/1.1 200")


def test_half_a_request_is_not_waited_for(tmp_path: Path) -> None:
    process, at = started(tmp_path / "store")
    try:
        whole = f"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1:{at[1]}\r\n\r\n".encode()
        silent, half, kept = (socket.create_connection(at, timeout=20) for _ in range(3))
        half.sendall(whole[:30])
        kept.sendall(whole)
        assert answered(kept)
        kept.sendall(whole[:30])  # the second request of a kept connection must not wait for ever either
        begun = time.monotonic()
        for one in (silent, half, kept):
            assert one.recv(100) == b""
            one.close()
        assert time.monotonic() - begun < 10
        with socket.create_connection(at, timeout=20) as steady:
            for _ in range(3):  # who asks whole questions, if slowly, is kept
                steady.sendall(whole)
                assert answered(steady)
                time.sleep(0.6)
        with socket.create_connection(at, timeout=20) as upgrade:
            upgrade.sendall(
                whole[:-2] + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n"
                b"Sec-WebSocket-Version: 13\r\n\r\n"
            )
            assert answered(upgrade)  # there is nothing to upgrade to
    finally:
        process.terminate()
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 0
