"""The stateful, replay and isolation tests with everything searched in the server, and the graph mirrored in AGE."""

from __future__ import annotations

import functools
import itertools
import os
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest.importorskip("psycopg")

from tests import test_isolation as isolation
from tests import test_replay as replay
from tests.stateful.test_model import POLICY, examples
from tests.stores import pg
from tests.stores.test_postgres_memory import OnPostgres

from twofold import AgentMemory
from twofold.stores import open_store

pytestmark = pytest.mark.skipif(
    pg.why_not() is not None or not pg.has("vector"), reason="needs a server with the extension vector"
)
SERVED = {"mode": "pushdown", "graph": "age" if pg.has("age") else "sql"}


@pytest.fixture(autouse=True, scope="module")
def extensions() -> None:
    make_extensions()


@functools.cache
def make_extensions() -> None:
    pg.shared().extend("vector", "age")


class Naming(AgentMemory):
    """Whatever is added is about its words, so that every step changes the graph."""

    def add(self, content: str, **fields: Any) -> Any:
        return super().add(content, entities=content.split()[:3], **fields)


class OnServed(OnPostgres):
    """Any history; after every step edges, posting lists and the graph are derived anew and compared."""

    def open(self) -> AgentMemory:
        assert self.folder is not None
        make_extensions()
        return Naming(
            pg.address(self.folder, **SERVED),
            embedder="hashing:64",
            clock=self.clock,
            ids=self.ids,
            entropy=lambda size: next(self.salts).to_bytes(size, "big"),
            decay=POLICY,
        )


TestOnServed = pytest.mark.skipif(
    pg.why_not() is not None or not pg.has("vector"), reason="needs a server with the extension vector"
)(examples(OnServed, 8))


def test_receipts_replay_at_their_place_in_a_history(tmp_path: Path) -> None:
    address: Any = pg.address(tmp_path, **SERVED)
    told = replay.tell(address, 100, 10)
    try:
        assert replay.unlike(told.mem, told.history.taken) == []
        assert replay.unlike(told.late, told.history.taken) == []
    finally:
        told.mem.close()
        told.late.close()


@hypothesis.given(seed=isolation.SEEDS)
@hypothesis.settings(max_examples=2)
def test_tenants_leave_no_trace(seed: int) -> None:
    """What one tenant is told does not depend on what another does in the same tables and the same graph."""
    count = itertools.count()

    def opened() -> Any:
        folder = Path(f"/served/{seed}/{next(count)}/{os.urandom(8).hex()}")
        return open_store(pg.address(folder, **SERVED))

    beside, alone = isolation.tenants_told(isolation.tenants_plan(seed), isolation.owners, opened)
    unsized = functools.partial(re.sub, r"'bytes': \d+|t_[0-9a-f]{24}", "")
    isolation.same(list(map(unsized, beside)), list(map(unsized, alone)))
