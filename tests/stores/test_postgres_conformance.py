"""The shipped suite, on a real PostgreSQL."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold.stores import Store
from twofold.stores.postgres import PostgresStore
from twofold.testing import StoreConformance

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))


class TestPostgres(StoreConformance):
    copies = False

    def address(self, location: Path) -> str:
        return pg.address(location)

    def damage(self, store: Store, tenant: str) -> None:
        assert isinstance(store, PostgresStore)
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            db.execute(f'DELETE FROM "{store._schema}".memory WHERE tenant = %s AND ordinal = 1', (tenant,))
