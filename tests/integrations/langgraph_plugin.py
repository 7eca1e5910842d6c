"""pytest plugin: LangGraph's own store tests, unedited, get Twofold's stores. It substitutes classes.

`pytest -p langgraph_plugin` with this folder on the path. Where the vendor's fixture names a database file, a folder
beside it is the store; tests that bring no embedder get none. Tests named in
$TWOFOLD_LEFT_OUT are not run: `--deselect` takes names by their beginning, and would leave out others too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.store.memory as in_memory
import langgraph.store.sqlite as sqlite
from langgraph.store.sqlite import aio

from twofold import AgentMemory
from twofold.integrations.langgraph import AsyncTwofoldStore, LangChainEmbedder, TwofoldStore


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    left_out = os.environ.get("TWOFOLD_LEFT_OUT", "").split()
    gone = [item for item in items if item.originalname in left_out]
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=gone)


def address(conn_string: str) -> str:
    return conn_string if conn_string == ":memory:" else f"{conn_string}.twofold"


class SqliteStore(TwofoldStore):
    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator[TwofoldStore]:
        where = address(conn_string)
        try:
            with super().from_conn_string(where, embedder=None, **options) as store:
                yield store
        finally:
            shutil.rmtree(where, ignore_errors=True)


class AsyncSqliteStore(AsyncTwofoldStore):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str, **options: Any) -> AsyncIterator[AsyncTwofoldStore]:
        where = address(conn_string)
        try:
            async with super().from_conn_string(where, embedder=None, **options) as store:
                yield store
        finally:
            shutil.rmtree(where, ignore_errors=True)


class InMemoryStore(TwofoldStore):
    def __init__(self, *, index: dict[str, Any] | None = None) -> None:
        embedder = LangChainEmbedder.of(index) if index else None
        super().__init__(AgentMemory(":memory:", embedder=embedder), index=index)


sqlite.SqliteStore = SqliteStore
sqlite.AsyncSqliteStore = aio.AsyncSqliteStore = AsyncSqliteStore
in_memory.InMemoryStore = InMemoryStore
