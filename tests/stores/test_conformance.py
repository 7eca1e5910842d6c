"""The shipped suite, on the stores that ship."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from twofold.stores import Store, open_store
from twofold.testing import StoreConformance


class TestSQLite(StoreConformance):
    def address(self, location: Path) -> str:
        return str(location)

    def damage(self, store: Store, tenant: str) -> None:
        assert isinstance(store.url, str)
        db = sqlite3.connect(store.url)
        db.execute("DELETE FROM memory WHERE tenant = ? AND ordinal = 1", (tenant,))
        db.commit()
        db.close()


class TestMemory(StoreConformance):
    persistent = False
    processes = False
    copies = False
    size_by_tenant = True

    def address(self, location: Path) -> str:
        return ":memory:"

    def damage(self, store: Any, tenant: str) -> None:
        del store._tenants[tenant].rows[1]


def test_two_memory_stores_share_nothing() -> None:
    one, other = open_store(":memory:"), open_store("memory://")
    assert one is not other
