"""Stores by address: a path is SQLite, ":memory:" is RAM, a scheme names an adapter loaded when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from twofold.errors import InvalidInput, StoreError
from twofold.model import Finding
from twofold.stores.base import Replica, Store, Transaction

__all__ = [
    "Replica",
    "Store",
    "Transaction",
    "examine_unopened",
    "missing_file",
    "open_replica",
    "open_store",
]

ENTRY_POINTS: Final = "twofold.stores"  # third parties: name = scheme, value = "module:Class"

# scheme -> (dotted name, extra that brings its packages)
_ADAPTERS: Final = {
    "sqlite": ("twofold.stores.sqlite:SQLiteStore", None),
    "memory": ("twofold.stores.memory:MemoryStore", None),
    "postgresql": ("twofold.stores.postgres:PostgresStore", "postgres"),
    "postgres": ("twofold.stores.postgres:PostgresStore", "postgres"),
}


def open_store(url: str | Path, **options: Any) -> Store:
    """Open the store at an address.

    A path (or sqlite:///path) opens SQLiteStore, ":memory:" or "memory://" MemoryStore, "postgresql://..."
    the PostgreSQL adapter, any other scheme what an entry point of the group "twofold.stores" registers for
    it. Options go to the store's constructor, after the address. StoreError when there is no such adapter.
    """
    scheme, place = _read(url)
    return _make(scheme, () if scheme == "memory" else (place,), options)


def missing_file(url: str | Path) -> Path | None:
    """The file that an address of a store on this machine means, if it is not there yet; else None."""
    scheme, place = _read(url)
    if scheme != "sqlite":
        return None
    from twofold.stores.sqlite import database_file

    path = database_file(place)
    return None if path.exists() else path


def open_replica(store: Store, url: str, max_lag: int, timeout: float) -> Replica:
    """Reads of a store through a replica of it at an address (PostgreSQL only; see postgres_replica).

    max_lag: events the replica may be behind; -1 for any number. StoreError for a store that has no replicas.
    """
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        raise InvalidInput(f"a replica is named by its address, postgresql://..., not {url!r}")
    opener: Any = importlib.import_module("twofold.stores.postgres_replica")
    replica: Replica = opener.open_replica(store, url, max_lag, timeout)
    return replica


def examine_unopened(url: str | Path, now: Callable[[], int]) -> list[Finding]:
    """What can be told about a store that cannot be opened; nothing where its adapter cannot look from outside.

    now: this side's clock, in microseconds.
    """
    scheme, _ = _read(url)
    look: Any = getattr(_load(scheme), "examine_unopened", None)
    found: list[Finding] = look(url, now) if look is not None else []
    return found


def _read(url: str | Path) -> tuple[str, str | Path]:
    """The scheme of an address, and what its adapter is given: of sqlite the path, of others the address."""
    if isinstance(url, str) and (url == ":memory:" or url.startswith("memory:")):
        return "memory", url
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not separator:
        return "sqlite", url
    if scheme == "sqlite":
        if not rest.startswith("/"):
            raise InvalidInput(f"{url!r} names no file; write sqlite:///relative or sqlite:////absolute/path")
        return "sqlite", unquote(rest[1:])
    return scheme, url


def _make(scheme: str, address: tuple[Any, ...], options: dict[str, Any]) -> Store:
    adapter = _load(scheme)
    try:
        store: Store = adapter(*address, **options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise InvalidInput(f"the {scheme} store does not take these options: {error}") from error
    return store


def _load(scheme: str) -> Any:
    if scheme in _ADAPTERS:
        dotted, extra = _ADAPTERS[scheme]
        module, _, name = dotted.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise StoreError(
                f"{scheme}:// stores need {error.name}, which is not installed; "
                f"pip install 'twofold[{extra}]'"
            ) from error
    found = list(metadata.entry_points(group=ENTRY_POINTS, name=scheme))
    if not found:
        known = sorted(_ADAPTERS.keys() | {one.name for one in metadata.entry_points(group=ENTRY_POINTS)})
        raise StoreError(f"no store is registered for {scheme}://; known are a path and {', '.join(known)}")
    if len({one.value for one in found}) > 1:
        raise StoreError(
            f"several packages register {scheme}://: {', '.join(sorted(one.value for one in found))}"
        )
    return found[0].load()
