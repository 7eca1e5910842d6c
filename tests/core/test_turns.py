"""Neighbour turns and sessions against their twin, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import turns as reference

from twofold import _core

WEIGHTS = (
    "previous_weight", "next_weight", "second_previous_weight", "second_next_weight", "answer_weight",
    "role_next_weight",
)  # fmt: skip
weights = st.floats(-1, 3)
scores = st.floats(-2, 2) | st.sampled_from([0.0, -0.0, 0.5])


def int64(values):
    return np.array(values, np.int64)


@st.composite
def conversations(draw):
    """Rows in sessions, some without: the links as an index keeps them, and the session codes."""
    count = draw(st.integers(1, 40))
    session = draw(st.lists(st.integers(-1, 4), min_size=count, max_size=count))
    previous, following, last = [-1] * count, [-1] * count, {}
    for row, code in enumerate(session):
        if code >= 0:
            previous[row] = last.get(code, -1)
            if code in last:
                following[last[code]] = row
            last[code] = row
    return previous, following, session


@st.composite
def pools(draw):
    previous, following, session = draw(conversations())
    count = len(session)
    rows = st.integers(0, count - 1)
    lists = draw(st.lists(st.lists(rows, max_size=count), max_size=4))
    # A prefix of the rows may be visible alone; candidates outside of it are the caller's own business.
    mask = draw(st.lists(st.booleans(), max_size=count))
    reach = draw(st.integers(0, 3))
    return lists, previous, following, session, mask, reach


@given(pools())
def test_collect_equals_the_reference(pooled):
    lists, previous, following, _, mask, reach = pooled
    got = _core.collect(
        [int64(x) for x in lists], int64(previous), int64(following), np.array(mask, np.bool_), reach=reach
    )
    assert all(column.dtype == np.int64 for column in got)
    expected = reference.collect(lists, previous, following, mask, reach)
    assert [column.tolist() for column in got] == list(expected)


@given(pools(), st.data())
def test_terms_equal_the_reference(pooled, data):
    lists, previous, following, session, _, reach = pooled
    count = len(session)
    pool = reference.collect(lists, previous, following, [True] * count, reach)
    arrays = [int64(column) for column in pool]

    def column(values, size):
        return data.draw(st.lists(values, min_size=size, max_size=size))

    base = column(scores, len(pool[0]))
    tokens, asks, roles = (
        column(values, count) for values in (st.integers(0, 200), st.booleans(), st.booleans())
    )
    chosen, gate = column(weights, 6), data.draw(st.floats(0, 100))
    got = _core.turn_terms(
        *arrays,
        np.array(base),
        np.array(tokens, np.int32),
        np.array(asks),
        np.array(roles),
        **dict(zip(WEIGHTS, chosen, strict=True)),
        gate=gate,
    )
    assert got.tolist() == reference.turn_terms(pool, base, tokens, asks, roles, chosen, gate)

    weight, top = data.draw(weights), data.draw(st.integers(1, 4))
    got = _core.session_terms(*arrays, np.array(base), int64(session), weight=weight, top=top)
    assert got.tolist() == reference.session_terms(pool, base, session, weight, top)


def test_no_candidates_give_empty_columns():
    nothing = _core.collect([], int64([-1, 0]), int64([1, -1]), np.array([True, True]), reach=2)
    assert [column.tolist() for column in nothing] == [[], [], [], []]
    base = np.zeros(0)
    assert _core.session_terms(*nothing, base, int64([0, 0]), weight=1.0, top=2).tolist() == []


def test_rows_outside_are_refused():
    two = int64([-1, 0]), int64([1, -1]), np.array([True, True])
    with pytest.raises(IndexError):
        _core.collect([int64([2])], *two, reach=1)
    with pytest.raises(IndexError):
        _core.collect([int64([-1])], *two, reach=1)
    with pytest.raises(TypeError, match="int64"):
        _core.collect([np.array([0], np.int32)], *two, reach=1)


def test_a_pool_that_is_none_is_refused():
    good = [int64([0, 1]), int64([0]), int64([-1, 0]), int64([1, -1])]

    def terms(at, column, sessions=(0, 0), top=1):
        broken = [int64(column) if i == at else c for i, c in enumerate(good)]
        return _core.session_terms(*broken, np.zeros(2), int64(sessions), weight=1.0, top=top)

    assert terms(0, [0, 1]).tolist() == [0.0]
    for at, column in ((0, [1, 1]), (0, [-1, 0]), (2, [-1]), (3, [1])):
        with pytest.raises(ValueError, match="pool"):
            terms(at, column)
    for at, column in ((1, [2]), (1, [-1]), (2, [-2, 0]), (3, [2, -1])):
        with pytest.raises(IndexError):
            terms(at, column)
    with pytest.raises(ValueError, match="top"):
        terms(0, [0, 1], top=0)
    with pytest.raises(IndexError, match="sessions"):
        terms(0, [0, 1], sessions=(0,))
