"""The scratchpad against its twin, and what a CPython type can get wrong: references, GC, re-entry, forks."""

import gc
import os
import sys
import threading
import weakref

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.reference import scratchpad as reference

from twofold import _core

keys = st.sampled_from(["a", "b", "c", "ключ", "键", "😀", "", "long " * 9, "a\0b", "é"]) | st.text(
    max_size=2
)


class Time:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class SameAsTwin(RuleBasedStateMachine):
    """Any order of calls and steps of the clock gives what the twin gives."""

    @initialize(max_size=st.integers(1, 5), ttl=st.none() | st.sampled_from([1.0, 2.5, 10.0]))
    def start(self, max_size, ttl):
        self.time = Time()
        self.pad = _core.Scratchpad(max_size, ttl, self.time)
        self.twin = reference.Scratchpad(max_size, float("inf") if ttl is None else ttl)

    @rule(step=st.sampled_from([0.0, 0.5, 1.0, 2.5, 20.0]))
    def wait(self, step):
        self.time.now += step

    @rule(key=keys, value=st.integers())
    def set(self, key, value):
        assert self.pad.set(key, value) is None
        self.twin.set(key, value, self.time.now)

    @rule(key=keys)
    def get(self, key):
        assert self.pad.get(key, "none") == self.twin.get(key, "none", self.time.now)

    @rule(key=keys)
    def delete(self, key):
        assert self.pad.delete(key) is self.twin.delete(key, self.time.now)

    @rule(key=keys)
    def contains(self, key):
        assert (key in self.pad) is any(key == k for k, _ in self.twin.items(self.time.now))

    @rule()
    def clear(self):
        self.pad.clear()
        self.twin.entries = []

    @rule()
    def look(self):
        expected = self.twin.items(self.time.now)
        assert self.pad.items() == expected
        assert self.pad.keys() == list(self.pad) == [k for k, _ in expected]
        assert self.pad.values() == [v for _, v in expected]

    @invariant()
    def length(self):
        # Only sometimes: len() drops what is expired, and get and set must cope without it.
        if hasattr(self, "pad") and self.time.now % 2 == 0:
            assert len(self.pad) == len(self.twin.items(self.time.now))


TestSameAsTwin = SameAsTwin.TestCase


def test_defaults_and_properties():
    pad = _core.Scratchpad()
    assert (pad.max_size, pad.ttl, len(pad)) == (50, 300.0, 0)
    assert _core.Scratchpad(ttl=None).ttl is None
    pad.set(key="k", value=None)
    assert pad.get(key="k", default=1) is None
    assert pad.get("missing") is None
    assert pad.get("missing", default=7) == 7


def test_the_own_clock_expires_entries():
    pad = _core.Scratchpad(ttl=0.02)
    pad.set("a", 1)
    assert pad.get("a") == 1
    threading.Event().wait(0.03)
    assert pad.get("a") is None
    assert len(pad) == 0


def test_a_read_extends_and_a_look_does_not():
    time = Time()
    pad = _core.Scratchpad(ttl=10.0, clock=time)
    pad.set("read", 1)
    pad.set("seen", 2)
    time.now += 9
    assert pad.get("read") == 1
    assert "seen" in pad
    assert pad.items() == [("seen", 2), ("read", 1)]
    time.now += 1
    assert "seen" not in pad
    assert pad.items() == [("read", 1)]


def test_updating_a_full_pad_evicts_nothing():
    pad = _core.Scratchpad(2)
    pad.set("a", 1)
    pad.set("b", 2)
    pad.set("a", 3)
    assert pad.items() == [("b", 2), ("a", 3)]


def test_a_clock_that_steps_back_revives_nothing():
    time = Time()
    pad = _core.Scratchpad(ttl=10.0, clock=time)
    pad.set("a", 1)
    time.now += 11
    assert "a" not in pad
    time.now -= 11
    assert "a" not in pad
    pad.set("b", 2)
    time.now += 20
    assert pad.items() == [("b", 2)]


def test_many_keys_keep_their_values():
    pad = _core.Scratchpad(1000, None)
    for i in range(5000):
        pad.set(f"key {i}", i)
        if i % 3 == 0:
            pad.delete(f"key {i // 2}")
    expected = {}
    for i in range(5000):
        expected.pop(f"key {i}", None)
        expected[f"key {i}"] = i
        if len(expected) > 1000:
            del expected[next(iter(expected))]
        if i % 3 == 0:
            expected.pop(f"key {i // 2}", None)
    assert pad.items() == list(expected.items())
    assert all(pad.get(k) == v for k, v in expected.items())


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda p: p.get(1), TypeError),
        (lambda p: p.set(b"a", 1), TypeError),
        (lambda p: p.delete(None), TypeError),
        (lambda p: 1 in p, TypeError),
        (lambda p: p.get(), TypeError),
        (lambda p: p.get("a", 1, 2), TypeError),
        (lambda p: p.get("a", key="a"), TypeError),
        (lambda p: p.get("a", other=1), TypeError),
        (lambda p: p.set("a"), TypeError),
        (lambda p: p.set(value=1), TypeError),
        (lambda p: p.items(1), TypeError),
        (lambda _: _core.Scratchpad(0), ValueError),
        (lambda _: _core.Scratchpad(-3), ValueError),
        (lambda _: _core.Scratchpad(2**40), ValueError),
        (lambda _: _core.Scratchpad(ttl=0.0), ValueError),
        (lambda _: _core.Scratchpad(ttl=float("nan")), ValueError),
        (lambda _: _core.Scratchpad(ttl="1"), TypeError),
        (lambda _: _core.Scratchpad(clock=3), TypeError),
        (lambda _: _core.Scratchpad.__new__(_core.Scratchpad).get("a"), RuntimeError),
        (lambda _: _core.Scratchpad(clock=lambda: "x").get("a"), TypeError),
        (lambda _: _core.Scratchpad(clock=lambda: float("nan")).get("a"), ValueError),
        (lambda _: len(_core.Scratchpad(clock=lambda: 1 / 0)), ZeroDivisionError),
    ],
)
def test_wrong_use_is_refused(call, error):
    with pytest.raises(error):
        call(_core.Scratchpad())


def test_a_failing_clock_changes_nothing():
    time = Time()
    pad = _core.Scratchpad(clock=time)
    pad.set("a", 1)
    time.now = "late"
    with pytest.raises(TypeError):
        pad.set("a", 2)
    time.now = 1000.0
    assert pad.items() == [("a", 1)]


def test_a_str_subclass_is_the_text_it_holds():
    class Odd(str):
        __slots__ = ()
        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("a key's own code must not run inside the pad")

    pad = _core.Scratchpad()
    pad.set(Odd("a"), 1)
    assert pad.get("a") == 1
    assert type(pad.keys()[0]) is str


def test_references_are_counted():
    value, fallback = object(), object()
    key = "".join(["k", "ey"])
    before = [sys.getrefcount(x) for x in (value, fallback, key)]
    pad = _core.Scratchpad(2)
    for _ in range(50):
        pad.set(key, value)
        pad.get(key, fallback)
        pad.get("missing", fallback)
        pad.set("b", value)
        pad.set("c", value)
        pad.items(), pad.keys(), pad.values(), list(pad), key in pad
        pad.delete("b")
    pad.clear()
    pad.set(key, value)
    pad.__init__(3)
    pad.set(key, value)
    del pad
    assert [sys.getrefcount(x) for x in (value, fallback, key)] == before


def test_cycles_are_collected():
    class Holder:
        pass

    pad = _core.Scratchpad(clock=(holder := Holder()).__class__)  # a class is callable: part of the cycle
    holder.pad = pad
    pad.__init__()
    pad.set("self", holder)
    gone = weakref.ref(holder)
    del pad, holder
    gc.collect()
    assert gone() is None


def test_a_subclass_works():
    class Own(_core.Scratchpad):
        def __init__(self, label):
            super().__init__(3, None)
            self.label = label

    own = Own("x")
    own.set("a", own)
    gone = weakref.ref(own)
    assert own.get("a").label == "x"
    del own
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("act", ["evict", "replace", "expire", "delete", "clear", "init", "purge"])
def test_a_finalizer_may_use_the_pad(act):
    time = Time()
    pad = _core.Scratchpad(1, 10.0, time)
    seen = []

    class Last:
        def __del__(self):
            pad.set("from finalizer", 1)
            seen.append((pad.get("from finalizer"), len(pad)))

    pad.set("a", Last())
    if act == "evict":
        pad.set("b", 1)
    elif act == "replace":
        pad.set("a", 1)
    elif act in ("expire", "purge"):
        time.now += 11
        assert (pad.get("a") if act == "expire" else len(pad)) in (None, 1)
    elif act == "delete":
        pad.delete("a")
    elif act == "clear":
        pad.clear()
    else:
        pad.__init__(1, 10.0, time)
    assert seen == [(1, 1)]
    assert pad.items() == [("from finalizer", 1)]


def test_a_clock_may_use_the_pad():
    calls = []

    def clock():
        if not calls:
            calls.append(1)
            pad.set("inner", 1)
            pad.clear()
            pad.__init__(2, 5.0, clock)
        return 1.0

    pad = _core.Scratchpad(1, 5.0, clock)
    pad.set("outer", 2)
    assert pad.items() == [("outer", 2)]


def test_collection_during_a_listing_is_safe():
    pad = _core.Scratchpad(200, None)

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            pad.clear()

    old = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for i in range(300):
            pad.set(str(i), [i])
            Cycle()
            for key, value in pad.items():
                assert value == [int(key)]
    finally:
        gc.set_threshold(*old)


def test_threads_keep_it_consistent():
    pad = _core.Scratchpad(8, 0.001)
    wrong = []

    def work(seed):
        for i in range(3000):
            key = f"k{(i * seed) % 13}"
            pad.set(key, (key, i))
            for other in ("k1", key, "k12"):
                got = pad.get(other)
                if got is not None and got[0] != other:
                    wrong.append(got)
            if i % 50 == 0 and len(pad.items()) > 8:
                wrong.append("too many")
            if i % 7 == 0:
                pad.delete(key)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_keeps_its_own_copy():
    pad = _core.Scratchpad(3, 60.0)
    pad.set("a", 1)
    child = os.fork()
    if child == 0:
        pad.set("b", 2)
        os._exit(0 if pad.items() == [("a", 1), ("b", 2)] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pad.items() == [("a", 1)]
