"""Decay against its twin, the published crossings, and the accuracy of the core's own exp and log."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import arithmetic
from tests.reference import decay as reference

from twofold import _core

days = st.floats(-10, 4000) | st.sampled_from([0.0, 1e-300, 1e6])
rates = st.floats(0, 5)


def column(values, dtype):
    return np.array(values, dtype)


@given(
    rows=st.lists(st.tuples(days, days, st.integers(0, 9), st.integers(0, 9)), max_size=12),
    data=st.data(),
)
def test_equals_the_reference(rows, data):
    names = ["age_rate", "idle_rate", "access_boost", "access_cap", "recent_boost"]
    chosen = {
        name: data.draw(rates | st.lists(rates, min_size=len(rows), max_size=len(rows))) for name in names
    }
    ages, idles, accesses, recent = zip(*rows, strict=True) if rows else ([], [], [], [])
    got = _core.decay(
        column(ages, np.float64),
        column(idles, np.float64),
        column(accesses, np.int64),
        column(recent, np.int64),
        **{n: column(v, np.float64) if isinstance(v, list) else v for n, v in chosen.items()},
    )
    expected = [
        reference.strength(*row, **{n: v[i] if isinstance(v, list) else v for n, v in chosen.items()})
        for i, row in enumerate(rows)
    ]
    assert got.dtype == np.float64
    assert got.tolist() == expected


def strength(age, accesses=0, recent=0):
    one = column([age], np.float64)
    return _core.decay(one, one, column([accesses], np.int64), column([recent], np.int64))[0]


def test_published_policy_crosses_a_tenth_on_the_documented_days():
    assert strength(32.0) > 0.1 > strength(33.0)
    assert strength(0.0) == 1.0
    assert strength(1000.0, recent=2) == pytest.approx(0.3)
    assert strength(10.0, accesses=4) == strength(10.0, accesses=400) > strength(10.0, accesses=3)


@given(st.floats(-745, 709.7))
def test_exp_is_within_one_ulp(x):
    exact = math.exp(x)
    assert abs(arithmetic.exp(x) - exact) <= math.ulp(exact)
    if x <= 0:
        one = column([1.0], np.float64)
        none = column([0], np.int64)
        assert _core.decay(one, one, none, none, age_rate=-x, idle_rate=0.0)[0] == arithmetic.exp(x)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_log_is_within_one_ulp(x):
    exact = math.log(x)
    assert abs(arithmetic.log(x) - exact) <= math.ulp(exact)


def test_exp_never_rises_with_age():
    ages = np.sort(np.random.default_rng(1).uniform(0, 500, 20_000))
    ages[1::2] = np.nextafter(ages[::2], 1e9)
    none = np.zeros(len(ages), np.int64)
    got = _core.decay(ages, np.zeros(len(ages)), none, none, age_rate=1.0)
    assert (np.diff(got) <= 0).all()


@pytest.mark.parametrize(
    "change",
    [
        {"age_days": np.array([np.nan])},
        {"idle_days": np.array([np.inf])},
        {"idle_days": np.array([1.0, 2.0])},
        {"accesses": np.array([-1])},
        {"recent": np.array([-1])},
        {"age_rate": -0.1},
        {"idle_rate": float("nan")},
        {"access_cap": np.array([0.1, 0.2])},
    ],
)
def test_wrong_values_are_refused(change):
    right = {
        "age_days": np.array([1.0]),
        "idle_days": np.array([1.0]),
        "accesses": np.array([0]),
        "recent": np.array([0]),
    }
    with pytest.raises(ValueError, match=r"must|has 2 values"):
        _core.decay(**(right | change))


def test_wrong_types_are_refused():
    one, none = np.array([1.0]), np.array([0])
    with pytest.raises(TypeError):
        _core.decay(one.astype(np.float32), one, none, none)
    with pytest.raises(TypeError):
        _core.decay(np.ones(4)[::2], np.ones(2), np.zeros(2, np.int64), np.zeros(2, np.int64))
    with pytest.raises(TypeError):
        _core.decay(one, one, none, none, age_rate=np.array([1], np.float32))
    with pytest.raises(TypeError):
        _core.decay(one, one, none, none, age_rate="0.02")


@given(st.data())
def test_rows_of_columns_equal_gathered_ones(data):
    """`strength_rows` is `decay` over what the columns say of the rows asked for."""
    count, lineages, types = (
        data.draw(st.integers(1, 8)),
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 3)),
    )

    def ints(size, low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=size, max_size=size))

    lineage, kind = (
        column(ints(count, 0, lineages - 1), np.int32),
        column(ints(count, 0, types - 1), np.int32),
    )
    now, day = 10**9, 86_400.0
    recorded, last = (
        column(ints(count, 0, 2 * now), np.int64),
        column(ints(lineages, -(2**62), 2 * now), np.int64),
    )
    used, recent = column(ints(lineages, 0, 50), np.int64), column(ints(lineages, 0, 5), np.int64)
    rates = np.array([data.draw(st.lists(st.floats(0, 1), min_size=5, max_size=5)) for _ in range(types)])
    rows = column(ints(data.draw(st.integers(0, 6)), 0, count - 1), np.int64)
    got = _core.strength_rows(rows, lineage, kind, recorded, used, last, recent, rates, now=now, day=day)
    own, own_rates = lineage[rows], rates[kind[rows]]
    names = ("age_rate", "idle_rate", "access_boost", "access_cap", "recent_boost")
    expected = _core.decay(
        np.maximum(now - recorded[rows], 0) / day,
        np.maximum(now - np.maximum(last[own], recorded[rows]), 0) / day,
        used[own],
        recent[own],
        **{name: np.ascontiguousarray(own_rates[:, i]) for i, name in enumerate(names)},
    )
    assert got.tobytes() == expected.tobytes()


def test_columns_that_do_not_fit_are_refused():
    one, code, rates = np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros((1, 5))
    right = {
        "rows": one, "lineage": code, "type": code, "recorded": one, "count": one, "last": one, "recent": one,
        "rates": rates, "now": 0, "day": 1.0,
    }  # fmt: skip
    assert _core.strength_rows(**right).tolist() == [1.0]
    for name, wrong in (("rows", one + 1), ("lineage", code + 1), ("type", code - 1)):
        with pytest.raises(IndexError):
            _core.strength_rows(**(right | {name: wrong}))
    misfits = ("recorded", one[:0], "row"), ("last", one[:0], "lineage"), ("rates", np.zeros((1, 4)), "shape")
    for name, wrong, said in (*misfits, ("day", 0.0, "day")):
        with pytest.raises(ValueError, match=said):
            _core.strength_rows(**(right | {name: wrong}))
