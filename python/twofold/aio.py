"""`AsyncAgentMemory`: the methods of a memory as coroutines, run in worker threads. No logic of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from twofold.errors import InvalidInput
from twofold.memory import AgentMemory
from twofold.query import whole

if TYPE_CHECKING:
    from twofold.model import Memory

WORKERS = 8


class AsyncAgentMemory:
    """`AgentMemory` for asyncio: the same arguments, and every method awaitable.

    Each call runs the same method of an ordinary handle in a worker thread, so the loop goes on meanwhile.
    `as_agent` and `read_only` give handles of this class. A call that is cancelled goes on in its thread.
    `async with` opens the store in a thread too; without it the first call opens it.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncAgentMemory(":memory:", embedder="hashing") as mem:
    ...         await mem.add("The planner chose Rust")
    ...         return (await mem.recall("What was chosen?"))[0].content
    >>> asyncio.run(main())
    'The planner chose Rust'
    """

    def __init__(self, path: str | Path = "./store", *, workers: int = WORKERS, **options: Any) -> None:
        """path, options: as for `AgentMemory`; "http://..." with key= for a server. workers: threads."""
        workers = whole(workers, "workers", 1, 10_000)
        self._open: Callable[[], AgentMemory] = functools.partial(AgentMemory, path, **options)
        self._handle: AgentMemory | None = None
        self._opening = asyncio.Lock()
        self._threads = ThreadPoolExecutor(workers, "twofold-aio")
        self._owns = True

    @classmethod
    def of(cls, handle: AgentMemory, *, workers: int = WORKERS) -> Self:
        """A wrapper around a handle that is open already; `close` closes the handle."""
        made = cls(workers=workers)
        made._handle = handle
        return made

    def _beside(self, handle: AgentMemory) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _handle=handle, _owns=False)
        return made

    @property
    def handle(self) -> AgentMemory:
        """The ordinary handle behind this one, open. InvalidInput before the first call or `async with`."""
        if self._handle is None:
            raise InvalidInput(
                "not open yet: use `async with AsyncAgentMemory(...) as mem`, or await a call first"
            )
        return self._handle

    async def _run(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _opened(self) -> AgentMemory:
        if self._handle is None:
            async with self._opening:
                if self._handle is None:
                    self._handle = await self._run(self._open)
        return self._handle

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        handle = await self._opened()
        result = await self._run(lambda: getattr(handle, name)(*args, **kwargs))
        return self._beside(result) if name in ("as_agent", "read_only") else result

    async def close(self) -> None:
        """Commit what waits and release the store and the threads; of a narrowed handle, nothing."""
        if not self._owns:
            return
        handle, self._handle = self._handle, None
        if handle is not None:
            await self._run(handle.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Memory]:
        """Current memories of the handle's own namespaces, oldest first."""
        for memory in await self._call("current_facts"):
            yield memory

    def __repr__(self) -> str:
        return f"Async{self._handle!r}" if self._handle is not None else "AsyncAgentMemory(not open)"

    if TYPE_CHECKING:
        # The methods are made below, from AgentMemory's own.
        def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]: ...


def _method(name: str, of: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(of)
    async def method(self: AsyncAgentMemory, *args: Any, **kwargs: Any) -> Any:
        return await self._call(name, *args, **kwargs)

    return method


def _property(name: str, of: property) -> property:
    return property(lambda self: getattr(self.handle, name), doc=of.__doc__)


for _name, _member in vars(AgentMemory).items():
    if _name.startswith("_") or _name in vars(AsyncAgentMemory):
        continue
    if isinstance(_member, property):
        setattr(AsyncAgentMemory, _name, _property(_name, _member))
    elif callable(_member):
        setattr(AsyncAgentMemory, _name, _method(_name, _member))
