"""Which address opens which store."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest

from twofold.errors import InvalidInput, StoreError
from twofold.stores import missing_file, open_store
from twofold.stores.memory import MemoryStore
from twofold.stores.sqlite import SQLiteStore
from twofold.testing import TENANT, add


@pytest.mark.parametrize("url", [":memory:", "memory://", "memory:"])
def test_memory(url: str) -> None:
    store = open_store(url, timeout=1.0)
    assert isinstance(store, MemoryStore)
    assert not store.persistent
    again = open_store(store.url)
    add(store, "row")
    assert again.head(TENANT).rows == 0
    store.close()


def test_paths_are_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, file in (
        (tmp_path / "a", "a/twofold.db"),
        (str(tmp_path / "b.db"), "b.db"),
        ("c", "c/twofold.db"),
        ("./memory", "memory/twofold.db"),
        ("sqlite:///d.db", "d.db"),
        (f"sqlite:///{tmp_path}/e%20f.db", "e f.db"),
    ):
        assert missing_file(url) == tmp_path / file
        store = open_store(url, timeout=1.0)
        assert missing_file(url) is None
        assert isinstance(store, SQLiteStore)
        assert store.persistent
        assert Path(store.url) == tmp_path / file
        add(store, "row")
        store.close()
        again = open_store(store.url)
        assert again.head(TENANT).rows == 1
        again.close()


def test_an_address_without_a_file_is_refused() -> None:
    for ask in (open_store, missing_file):
        with pytest.raises(InvalidInput, match="names no file"):
            ask("sqlite://store.db")


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    for url in (":memory:", str(tmp_path / "a")):
        with pytest.raises(InvalidInput, match="colour"):
            open_store(url, colour="red")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(StoreError, match=r"mongodb://.*memory, postgres, postgresql, sqlite"):
        open_store("mongodb://host/db")


class _Elsewhere(MemoryStore):
    """What a third party would ship."""

    def __init__(self, url: str, *, timeout: float = 1.0) -> None:
        super().__init__(timeout=timeout)
        self.url = url


def _register(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint("elsewhere", value, "twofold.stores") for value in values
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: points.select(**wanted))


def test_a_third_party_registers_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, f"{__name__}:_Elsewhere")
    store: Any = open_store("elsewhere://host/db", timeout=2.0)
    assert isinstance(store, _Elsewhere)
    assert (store.url, store._timeout) == ("elsewhere://host/db", 2.0)


def test_two_packages_for_one_scheme_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, "one:Store", "two:Store")
    with pytest.raises(StoreError, match="one:Store, two:Store"):
        open_store("elsewhere://host/db")


def test_a_missing_adapter_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the driver is not installed: importing the adapter's module fails."""
    monkeypatch.setitem(sys.modules, "twofold.stores.postgres", None)
    for scheme in ("postgresql", "postgres"):
        with pytest.raises(StoreError, match=r"twofold\[postgres\]"):
            open_store(f"{scheme}://localhost/db")
