"""What every test shares: no network but loopback, property-test profiles, and the usual ingredients."""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest.register_assert_rewrite("twofold.testing")  # before any test imports it

ROOT = Path(__file__).resolve().parent.parent

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=40, stateful_step_count=25, database=None
)
hypothesis.settings.register_profile(
    "long", deadline=None, max_examples=1_000, stateful_step_count=100, print_blob=True
)


class NetworkBlocked(RuntimeError):
    """A test tried to leave this machine. Not an OSError, so code that retries cannot swallow it."""


def _is_local(host: object) -> bool:
    if host is None or host in ("", b"", "localhost", b"localhost"):
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _guard_address(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Wrap a socket method whose argument at `position` (negative: from the end) is the peer's address."""

    def guarded(self: socket.socket, *args: Any) -> Any:
        address = args[position]
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            raise NetworkBlocked(f"tests may only reach loopback, not {address!r}")
        return function(self, *args)

    return guarded


def _guard_name(function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(host: object, *args: Any, **kwargs: Any) -> Any:
        if not _is_local(host):
            raise NetworkBlocked(f"tests may not look up {host!r}; only loopback is allowed")
        return function(host, *args, **kwargs)

    return guarded


_patch = pytest.MonkeyPatch()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run tests marked long, with the long profile")


def pytest_configure(config: pytest.Config) -> None:
    long = config.getoption("--long") or os.environ.get("TWOFOLD_LONG") == "1"
    config.stash[_LONG] = long
    hypothesis.settings.load_profile("long" if long else "ci")
    # Installed for the whole session, so that imports during collection are held to it too. asyncio ends in
    # these same methods.
    for name, position in (("connect", 0), ("connect_ex", 0), ("sendto", -1)):
        _patch.setattr(socket.socket, name, _guard_address(getattr(socket.socket, name), position))
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
        _patch.setattr(socket, name, _guard_name(getattr(socket, name)))
    # Child processes are not patched; libraries that would call home are told not to.
    _patch.setenv("HF_HUB_OFFLINE", "1")
    _patch.setenv("TRANSFORMERS_OFFLINE", "1")
    _patch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    for name in [n for n in os.environ if n.startswith("TWOFOLD_") and n not in _KEPT]:
        _patch.delenv(name)


def pytest_unconfigure() -> None:
    _patch.undo()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[_LONG]:
        return
    skip = pytest.mark.skip(reason="long: run `make long`, or pass --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


_LONG = pytest.StashKey[bool]()

# A developer's own settings must not change what the tests see; these choose what is tested.
_KEPT = {"TWOFOLD_DATA", "TWOFOLD_KERNEL", "TWOFOLD_LONG", "TWOFOLD_HOME", "TWOFOLD_WHEEL"}


@pytest.fixture
def tmp_store(tmp_path: Path) -> Path:
    """Where a test may make a store; nothing is there yet."""
    return tmp_path / "store"


@pytest.fixture
def clock() -> Any:
    """A ManualClock that stands at 2026-01-01T00:00:00Z until a test moves it."""
    from twofold.clock import ManualClock

    return ManualClock()


@pytest.fixture
def ids() -> Callable[[int], str]:
    """A source of ids that counts: equal runs give equal ids, and they sort by time as real ones do."""
    from twofold.vault import IdSource

    count = itertools.count()
    return IdSource(lambda size: next(count).to_bytes(size, "big"))


@pytest.fixture
def entropy() -> Callable[[int], bytes]:
    """A source of salts that counts."""
    count = itertools.count(1)
    return lambda size: next(count).to_bytes(size, "big")


@pytest.fixture(scope="session")
def embedder() -> Any:
    """An embedder without a model: hashed words, the same vectors everywhere."""
    from twofold.embed import open_embedder

    return open_embedder("hashing")


@pytest.fixture(scope="session")
def model() -> Any:
    """The installed MiniLM; mark tests that use it `model`."""
    from twofold.embed import open_embedder
    from twofold.errors import EmbedderUnavailable

    try:
        return open_embedder("minilm")
    except EmbedderUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _model_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("model"):
        request.getfixturevalue("model")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The measuring data (never committed), from TWOFOLD_DATA or ../shared/data beside the checkout."""
    path = ROOT / os.environ.get("TWOFOLD_DATA", "../shared/data")
    if not path.is_dir():
        pytest.skip(f"no measuring data at {path.resolve()}; set TWOFOLD_DATA")
    return path.resolve()
