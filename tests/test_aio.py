"""`AsyncAgentMemory`: the same results as the ordinary handle, without holding up the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from twofold import AgentMemory, AsyncAgentMemory, Role, errors


def test_every_method_is_awaitable_and_every_property_is_there() -> None:
    for name, member in vars(AgentMemory).items():
        if name.startswith("_"):
            continue
        ours = getattr(AsyncAgentMemory, name)
        if isinstance(member, property):
            assert isinstance(ours, property), name
        else:
            assert inspect.iscoroutinefunction(ours), name
            assert ours.__doc__, name


def test_results_are_those_of_the_handle(clock: Any, ids: Any, entropy: Any) -> None:
    options = {"embedder": "hashing", "clock": clock, "ids": ids, "entropy": entropy}

    async def main() -> None:
        async with AsyncAgentMemory(":memory:", **options) as mem:
            one = await mem.add("The planner chose Rust", tags=["decision"])
            made = await mem.add_many([f"note {i}" for i in range(5)], batch=2)
            assert len(made) == 5
            found = await mem.recall("What did the planner choose?", k=1)
            assert found.hits == mem.handle.recall("What did the planner choose?", k=1).hits
            assert await mem.get(one.id) == mem.handle.get(one.id)
            assert (mem.tenant, mem.namespace, mem.agent_id, mem.role) == (
                "default",
                "default",
                "owner",
                None,
            )
            assert mem.clock is clock
            agent = await mem.as_agent("exec-1", role=Role.EXECUTOR, namespaces=["build/a"])
            assert isinstance(agent, AsyncAgentMemory)
            assert agent.role is Role.EXECUTOR
            with pytest.raises(errors.PermissionDenied):
                await agent.forget(one.id)
            await agent.close()  # a narrowed handle leaves the store open
            assert len([m async for m in mem]) == 6
            assert repr(mem).startswith("AsyncAgentMemory(")
            with pytest.raises(TypeError):
                await mem.get()

    asyncio.run(main())


def test_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight calls that wait for each other can only end when all eight run at once, beside the loop."""
    barrier = threading.Barrier(8)
    monkeypatch.setattr(AgentMemory, "stats", lambda _: {"n": barrier.wait(20)})

    async def main() -> list[int]:
        async with AsyncAgentMemory(":memory:", embedder=None) as mem:
            return [s["n"] for s in await asyncio.gather(*(mem.stats() for _ in range(8)))]

    assert sorted(asyncio.run(main())) == list(range(8))


def test_opening() -> None:
    async def main() -> None:
        mem = AsyncAgentMemory(":memory:", embedder=None)
        assert repr(mem) == "AsyncAgentMemory(not open)"
        with pytest.raises(errors.InvalidInput, match="not open"):
            _ = mem.tenant
        first = await asyncio.gather(*(mem.add(f"n{i}") for i in range(10)))  # one store, opened once
        assert len({m.ordinal for m in first}) == 10
        await mem.close()
        with AgentMemory(":memory:", embedder=None) as handle:
            again = AsyncAgentMemory.of(handle)
            await again.add("x")
            assert again.handle is handle
            await again.close()
        with pytest.raises(errors.InvalidInput, match="workers"):
            AsyncAgentMemory(":memory:", workers=0)

    asyncio.run(main())


def test_an_error_while_opening_reaches_the_caller() -> None:
    async def main() -> None:
        with pytest.raises(errors.InvalidInput):
            async with AsyncAgentMemory(":memory:", nonsense=1):
                pass

    asyncio.run(main())
