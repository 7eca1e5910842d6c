"""The guard itself: a test that forgets to fake a server must fail, loopback and unix sockets must work."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

OUTSIDE = ("192.0.2.1", 80)  # TEST-NET-1: never routed


@pytest.fixture
def blocked() -> type[Exception]:
    with pytest.raises(RuntimeError) as caught:
        socket.getaddrinfo("example.invalid", 80)
    return caught.type


def _serve_once(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.sendall(b"ok")


def test_connect_outside_is_refused(blocked: type[Exception]) -> None:
    with socket.socket() as s, pytest.raises(blocked, match=r"192\.0\.2\.1"):
        s.connect(OUTSIDE)
    with socket.socket() as s, pytest.raises(blocked, match=r"192\.0\.2\.1"):
        s.connect_ex(OUTSIDE)
    with pytest.raises(blocked):
        socket.create_connection(OUTSIDE, timeout=1)


def test_datagrams_outside_are_refused(blocked: type[Exception]) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as s, pytest.raises(blocked):
        s.sendto(b"x", OUTSIDE)
    with socket.socket(type=socket.SOCK_DGRAM) as s, pytest.raises(blocked):
        s.sendto(b"x", 0, OUTSIDE)


@pytest.mark.parametrize(
    "host", ["example.org", b"example.org", "192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"]
)
def test_looking_up_outside_is_refused(blocked: type[Exception], host: str) -> None:
    with pytest.raises(blocked, match="look up"):
        socket.getaddrinfo(host, 80)


def test_asyncio_is_held_to_it_too(blocked: type[Exception]) -> None:
    async def by_address() -> None:
        await asyncio.open_connection(*OUTSIDE)

    async def by_name() -> None:
        await asyncio.open_connection("example.org", 80)

    for attempt in (by_address, by_name):
        with pytest.raises(blocked):
            asyncio.run(attempt())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.5"])
def test_loopback_works(host: str) -> None:
    with socket.create_server(("127.0.0.1" if host == "localhost" else host, 0)) as server:
        thread = threading.Thread(target=_serve_once, args=(server,))
        thread.start()
        with socket.create_connection((host, server.getsockname()[1]), timeout=5) as client:
            assert client.recv(2) == b"ok"
        thread.join()


def test_unix_sockets_work(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        thread = threading.Thread(target=_serve_once, args=(server,))
        thread.start()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            assert client.recv(2) == b"ok"
        thread.join()
