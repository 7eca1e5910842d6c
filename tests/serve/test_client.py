"""The client on a bad day: servers that vanish, hang, lie or are busy; and the clients for asyncio."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, AsyncAgentMemory, errors
from twofold.serve.client import AsyncTwofoldClient, TwofoldClient

from .conftest import Running

Script = list[bytes | None]


def answer(status: int, body: Any, *headers: str) -> bytes:
    text = json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        "content-type: application/json",
        f"content-length: {len(text)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + text


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], tuple[str, list[bytes]]]]:
    """A server that gives the answers of a script, one a request; None ends the connection instead."""
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(script: Script) -> tuple[str, list[bytes]]:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)
        seen: list[bytes] = []

        def run() -> None:
            connection: socket.socket | None = None
            for reply in script:
                data = b""
                while b"\r\n\r\n" not in data:
                    if connection is None:
                        try:
                            connection, _ = listener.accept()
                        except OSError:
                            return
                    piece = connection.recv(65536)
                    if not piece:
                        connection.close()
                        connection = None
                    data += piece
                seen.append(data)
                if reply is None:
                    connection.close()  # type: ignore[union-attr]
                    connection = None
                else:
                    connection.sendall(reply)  # type: ignore[union-attr]
            if connection is not None:
                connection.recv(1)
                connection.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        threads.append(thread)
        return f"http://127.0.0.1:{listener.getsockname()[1]}", seen

    yield start
    for listener in opened:
        listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in accept()
        listener.close()
    for thread in threads:
        thread.join(5)


STATS = answer(200, {"memories": 3})
GONE: Any = None


def test_reads_are_tried_again(scripted: Any) -> None:
    busy = answer(503, {"error": "StoreBusy", "detail": "later"}, "retry-after: 0")
    url, seen = scripted([GONE, busy, STATS])
    with TwofoldClient(url, key="tf_x", timeout=10) as client:
        assert client.stats() == {"memories": 3}
    assert len(seen) == 3
    assert all(b"authorization: Bearer tf_x" in s for s in seen)


def test_reads_are_given_up_in_the_end(scripted: Any) -> None:
    url, seen = scripted([GONE] * 4)
    with TwofoldClient(url, timeout=10) as client, pytest.raises(errors.StoreError, match="broke"):
        client.stats()
    assert len(seen) == 4


def test_writes_are_sent_once_and_the_doubt_is_told(scripted: Any) -> None:
    url, seen = scripted([GONE, STATS])
    with TwofoldClient(url, timeout=10) as client, pytest.raises(errors.StoreError, match="may, or may not"):
        client.add("x")
    assert len(seen) == 1
    busy = answer(503, {"error": "StoreBusy", "detail": "later"}, "retry-after: 0")
    url, seen = scripted([busy, STATS])
    with TwofoldClient(url, timeout=10) as client, pytest.raises(errors.StoreBusy, match="later"):
        client.flush()
    assert len(seen) == 1


def test_a_connection_closed_while_idle_is_replaced(scripted: Any) -> None:
    closing = answer(200, {"ok": True}, "connection: close")
    url, seen = scripted([closing, GONE])
    with TwofoldClient(url, timeout=10) as client:
        client.flush()
        with pytest.raises(errors.StoreError):
            client.flush()
    assert len(seen) == 2


def test_connections_are_reused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    client = running.client()
    take = client._wire._take

    def counted() -> Any:
        connection = take()
        made.append(id(connection.sock))
        return connection

    monkeypatch.setattr(client._wire, "_take", counted)
    for _ in range(5):
        client.stats()
    with pytest.raises(errors.NotFound):
        client.forget("missing")
    client.stats()
    assert len(set(made[1:])) == 1


def test_a_server_that_hangs(scripted: Any) -> None:
    url, _ = scripted([b""])
    with TwofoldClient(url, timeout=0.2) as client, pytest.raises(errors.StoreBusy, match=r"0\.2 s"):
        client.stats()


@pytest.mark.parametrize(
    "status,body,kind",
    [
        (404, "nothing", errors.NotFound),
        (403, None, errors.PermissionDenied),
        (401, None, errors.PermissionDenied),
        (418, {"error": "Teapot"}, errors.InvalidInput),
        (500, {"detail": "oh"}, errors.StoreError),
        (502, None, errors.StoreError),
        (409, {"error": "EmbedderMismatch", "detail": "by another"}, errors.EmbedderMismatch),
        (400, {"error": "__class__"}, errors.InvalidInput),
    ],
)
def test_answers_of_other_servers(scripted: Any, status: int, body: Any, kind: type[Exception]) -> None:
    url, _ = scripted([answer(status, body)])
    with TwofoldClient(url, timeout=10, tries=1) as client, pytest.raises(kind):
        client.stats()


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        TwofoldClient(f"http://127.0.0.1:{port}") as client,
        pytest.raises(errors.StoreError, match="no server"),
    ):
        client.add("x")
    with pytest.raises(errors.StoreError, match="closed"):
        client.stats()


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://h:port", "http://h?x=1", "http://u:p@h", "h:80"]
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(errors.InvalidInput):
        TwofoldClient(url)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"tries": 0}, {"tries": True}])
def test_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput):
        TwofoldClient("http://127.0.0.1:1", **options)


def test_what_a_server_does_not_do(tmp_path: Path) -> None:
    with TwofoldClient("http://127.0.0.1:1") as client:
        with pytest.raises(errors.InvalidInput, match="twofold backup"):
            client.backup(tmp_path / "b")
        with pytest.raises(errors.InvalidInput, match="twofold reembed"):
            client.reembed("hashing")
        with pytest.raises(errors.InvalidInput, match="NaN"):
            client.add("x", confidence=float("inf"))
        with pytest.raises(errors.InvalidInput, match="JSON"):
            client.add("x", metadata={"a": object()})
        with pytest.raises(TypeError):
            client.get()  # type: ignore[call-arg]


def test_an_export_cut_short_leaves_no_file(scripted: Any, tmp_path: Path) -> None:
    cut = b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{}\n"
    url, _ = scripted([cut, GONE])
    with TwofoldClient(url, timeout=0.3) as client, pytest.raises(errors.StoreError):
        client.export_json(tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())


def test_many_threads_share_a_client(running: Running) -> None:
    client = running.client()
    made: list[str] = []

    def work(i: int) -> None:
        made.extend(client.add(f"thread {i} note {n}").id for n in range(5))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 40
    assert {m.id for m in client.search(limit=None)} == set(made)


def test_asyncio(running: Running) -> None:
    async def main() -> None:
        async with AsyncTwofoldClient(running.url, key=running.key()) as mem:
            made = await asyncio.gather(*(mem.add(f"note {i}") for i in range(20)))
            assert len({m.id for m in made}) == 20
            found = await mem.recall("note 7", k=3)
            assert found[0].content == "note 7"
            narrow = await mem.as_agent("exec-1", namespaces=["build/a"])
            assert isinstance(narrow, AsyncTwofoldClient)
            assert (await narrow.add("built")).agent_id == "exec-1"
            with pytest.raises(errors.PermissionDenied):
                await narrow.erase(made[0].id, reason="no")
            assert len([m async for m in mem]) == 20
        async with AsyncAgentMemory(running.url, key=running.key("second")) as mem:
            assert isinstance(mem.handle, TwofoldClient)
            assert (await mem.stats())["memories"] == 21

    asyncio.run(main())


def test_it_is_what_agent_memory_gives(running: Running) -> None:
    with AgentMemory(running.url, key=running.key()) as mem:
        assert repr(mem) == f"TwofoldClient({running.url!r})"
