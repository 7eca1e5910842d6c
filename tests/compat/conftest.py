"""Stores of the drop-in, with the embedder that needs no model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from twofold.compat.agent_memory import AgentMemory


@pytest.fixture
def open_mem(tmp_store: Path) -> Iterator[Callable[..., AgentMemory]]:
    """Opens the test's store, or another by name; all are closed at the end."""
    opened = []

    def open_(config: dict[str, Any] | None = None, name: str = "", **options: Any) -> AgentMemory:
        options.setdefault("embedder", "hashing")
        mem = AgentMemory(tmp_store / name if name else tmp_store, config, **options)
        opened.append(mem)
        return mem

    yield open_
    for mem in opened:
        mem.close()


@pytest.fixture
def mem(open_mem: Callable[..., AgentMemory]) -> AgentMemory:
    return open_mem()


class Running(NamedTuple):
    """A server that answers: its address, and a maker of keys."""

    url: str
    key: Callable[[], str]


@pytest.fixture
def serve(tmp_path: Path, clock: Any) -> Iterator[Callable[..., Running]]:
    """Start a server of Memwright's routes on loopback, in a thread: serve(dev=...)."""
    pytest.importorskip("starlette", reason="needs the extra [serve]")
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra [serve]")
    from twofold import AgentMemory as Twofold
    from twofold.serve.app import Server, listen
    from twofold.serve.keys import Keys
    from twofold.serve.limits import Limits

    stops: list[Callable[[], None]] = []

    def start(**options: Any) -> Running:
        keys = Keys(tmp_path / "keys.json")
        server = Server(
            lambda tenant: Twofold(tmp_path / "served", tenant=tenant, embedder="hashing", clock=clock),
            keys,
            Limits(maintain_every=0),
            compat="memwright",
            **options,
        )
        sock = listen("127.0.0.1", 0)
        runner = uvicorn.Server(uvicorn.Config(server.app, log_level="critical", access_log=False))
        runner.install_signal_handlers = lambda: None
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [sock]})
        thread.start()

        def stop() -> None:
            runner.should_exit = True
            thread.join(30)
            sock.close()
            assert not thread.is_alive()

        stops.append(stop)
        return Running(f"http://127.0.0.1:{sock.getsockname()[1]}", lambda: keys.add("me", clock=clock)[0])

    yield start
    for stop in stops:
        stop()
