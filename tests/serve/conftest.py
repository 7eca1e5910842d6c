"""A real server on loopback, in a thread of the test's process, and clients of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra [serve]")

from twofold import AgentMemory  # noqa: E402
from twofold.clock import ManualClock  # noqa: E402
from twofold.serve.app import Server, listen  # noqa: E402
from twofold.serve.client import TwofoldClient  # noqa: E402
from twofold.serve.keys import Keys  # noqa: E402
from twofold.serve.limits import Limits  # noqa: E402


class Quiet(uvicorn.Server):  # type: ignore[misc, name-defined]
    """uvicorn outside the main thread, where no signal handler can be set."""

    def install_signal_handlers(self) -> None: ...


@dataclass
class Running:
    """A server that answers: its address, its object, its keys, and the clients made of it."""

    url: str
    server: Server
    keys: Keys
    clock: ManualClock
    stop: Callable[[], None]
    clients: list[TwofoldClient]

    def key(self, name: str = "me", **options: Any) -> str:
        return self.keys.add(name, clock=self.clock, **options)[0]

    def client(self, key: str | None = None, **options: Any) -> TwofoldClient:
        made = TwofoldClient(self.url, key=self.key() if key is None else key, **options)
        self.clients.append(made)
        return made


@pytest.fixture
def serve(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Running]]:
    """Start servers: serve(limits=..., dev=..., compat=..., now=...)."""
    stops: list[Callable[[], None]] = []

    def start(store: str | Path | None = None, limits: Limits | None = None, **options: Any) -> Running:
        keys = Keys(tmp_path / "keys.json")
        where = tmp_path / "store" if store is None else store
        server = Server(
            lambda tenant: AgentMemory(where, tenant=tenant, embedder="hashing", clock=clock),
            keys,
            limits or Limits(maintain_every=0),
            **options,
        )
        sock = listen("127.0.0.1", 0)
        config = uvicorn.Config(server.app, log_level="critical", access_log=False, lifespan="on")
        runner = Quiet(config)
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [sock]})
        thread.start()
        clients: list[TwofoldClient] = []

        def stop() -> None:
            for client in clients:
                client.close()
            runner.should_exit = True
            thread.join(30)
            sock.close()
            assert not thread.is_alive()

        stops.append(stop)
        port = sock.getsockname()[1]
        return Running(f"http://127.0.0.1:{port}", server, keys, clock, stop, clients)

    yield start
    for stop in stops:
        stop()


@pytest.fixture
def running(serve: Callable[..., Running]) -> Running:
    return serve()


@pytest.fixture
def client(running: Running) -> TwofoldClient:
    return running.client()
