"""The shipped suite, on a real PostgreSQL."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold.stores import Store
from twofold.stores.postgres import PostgresStore
from twofold.testing import DIMENSION, SearchConformance, StoreConformance

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))


@pytest.fixture(autouse=True, scope="module")
def extensions() -> None:
    pg.shared().extend("vector", "age")


class TestPostgres(StoreConformance):
    copies = False

    def address(self, location: Path) -> str:
        return pg.address(location)

    def damage(self, store: Store, tenant: str) -> None:
        assert isinstance(store, PostgresStore)
        with psycopg.connect(pg.shared().dsn("postgres"), autocommit=True) as db:
            db.execute(f'DELETE FROM "{store._schema}".memory WHERE tenant = %s AND ordinal = 1', (tenant,))


@pytest.mark.skipif(not pg.has("vector"), reason="needs a server with the extension vector")
class TestPushdown(SearchConformance):
    """What the server searches is held against the core; what it stores is the same."""

    searches: ClassVar = frozenset({"nearest", "postings", "walk"})
    parameters: ClassVar[dict[str, str]] = {"mode": "pushdown"}

    def address(self, location: Path) -> str:
        return pg.address(location, **self.parameters)

    def approximate(self, store: Any) -> bool:
        store.create_vector_index(DIMENSION)
        return True


@pytest.mark.skipif(not pg.has("age"), reason="needs a server with the extension age")
class TestPushdownByAge(TestPushdown):
    parameters: ClassVar = {"mode": "pushdown", "graph": "age"}
