"""Stores that released versions wrote are read by this one."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.stores import schema, sqlite
from twofold.stores.sqlite import SQLiteStore
from twofold.testing import add, assert_sound

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FILES = sorted(FIXTURES.glob("store_v*.db"))


def _maker() -> Any:
    spec = importlib.util.spec_from_file_location("make_store", FIXTURES / "make_store.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_file_of_every_format() -> None:
    assert [file.name for file in FILES] == [f"store_v{n}.db" for n in range(1, len(sqlite.MIGRATIONS) + 1)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_store_of_this_format_is_read_and_written(file: Path, tmp_path: Path) -> None:
    described = _maker().described
    shutil.copy(file, tmp_path / "old.db")
    expected = json.loads(file.with_suffix(".json").read_text("utf-8"))
    assert set(expected) == {"default", "规划"}
    for _ in range(2):  # the second time it is of the newest format
        store = SQLiteStore(tmp_path / "old.db")
        for tenant, then in expected.items():
            now = described(store, tenant)
            for part in ("head", "generations", "vectors", "receipts"):
                assert now[part] == then[part]
            for part in ("events", "rows"):
                assert len(now[part]) == len(then[part])
                for one, old in zip(now[part], then[part], strict=True):
                    assert {name: one[name] for name in old} == old  # a later version may know more
            assert_sound(store, tenant)
        assert store._writer is not None
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        store.close()
    store = SQLiteStore(tmp_path / "old.db")
    add(store, "more", tenant="default")
    assert_sound(store, "default")
    store.close()


def test_a_new_store_is_built_as_the_newest_file_was(tmp_path: Path) -> None:
    """Fails when a table changes without a migration."""
    store = SQLiteStore(tmp_path)
    store.close()
    schemas = []
    for file in (store.path, FILES[-1]):
        db = sqlite3.connect(file)
        schemas.append(db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall())
        for pragma in ("application_id", "user_version", "page_size"):
            schemas[-1].append(db.execute(f"PRAGMA {pragma}").fetchone())
        db.close()
    assert schemas[0] == schemas[1], (
        "the format changed: add a migration, or make the fixture again if this format was never released"
    )


@given(
    st.lists(st.text(alphabet='a",\\[] é中\n\u200b', max_size=4), min_size=1, max_size=3),
    st.text('[]",a\\ ', max_size=8),
)
def test_a_list_read_quickly_is_the_list(values: list[str], other: str) -> None:
    for text in (json.dumps(values, ensure_ascii=False, separators=(",", ":")), other, f'["{other}"]'):
        plain = schema._plain_list(text)
        if plain is not None and text:
            assert list(plain) == json.loads(text)
            assert json.dumps(plain, ensure_ascii=False, separators=(",", ":")) == text
    assert schema._plain_list('["a","b c"]') == ("a", "b c")
    assert schema._plain_list('["]') is None
