"""Fusion and smoothing against their twin, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import fuse as reference

from twofold import _core

ordinals = st.integers(0, 30) | st.integers(2**40, 2**40 + 3)
scores = st.floats(-2, 2) | st.sampled_from([0.0, -0.0, 0.5, 1.0])
weights = st.floats(-1, 3)
lists_of_ordinals = st.lists(st.lists(ordinals, unique=True, max_size=20), max_size=5)


def int64(values):
    return np.array(values, np.int64)


def float64(values):
    return np.array(values, np.float64)


def assert_same(answer, expected):
    assert answer[0].dtype == np.int64
    assert answer[1].dtype == np.float64
    assert list(zip(answer[0].tolist(), answer[1].tolist(), strict=True)) == expected


@given(lists=lists_of_ordinals, k=st.floats(0, 100), data=st.data())
def test_rrf_equals_the_reference(lists, k, data):
    chosen = data.draw(st.none() | st.lists(weights, min_size=len(lists), max_size=len(lists)))
    answer = _core.rrf([int64(x) for x in lists], k=k, weights=chosen)
    assert_same(answer, reference.rrf(lists, k, [1.0] * len(lists) if chosen is None else chosen))


@given(lists=lists_of_ordinals, data=st.data())
def test_convex_equals_the_reference(lists, data):
    pairs = [[(ordinal, data.draw(scores)) for ordinal in ordinals] for ordinals in lists]
    chosen = data.draw(st.lists(weights, min_size=len(lists), max_size=len(lists)))
    answer = _core.convex([(int64([o for o, _ in p]), float64([s for _, s in p])) for p in pairs], chosen)
    assert_same(answer, reference.convex(pairs, chosen))


@given(data=st.data(), count=st.integers(0, 20))
def test_smooth_equals_the_reference(data, count):
    def column(values):
        return data.draw(st.lists(values, min_size=count, max_size=count))

    base = column(scores)
    neighbour = st.integers(-1, count - 1)
    previous, following, session = column(neighbour), column(neighbour), column(st.integers(-1, 4))
    options = {
        "previous_weight": data.draw(weights),
        "next_weight": data.draw(weights),
        "session_weight": data.draw(weights),
        "session_top": data.draw(st.integers(1, 4)),
    }
    got = _core.smooth(float64(base), int64(previous), int64(following), int64(session), **options)
    assert got.tolist() == reference.smooth(base, previous, following, session, **options)


@given(
    pairs=st.lists(st.tuples(ordinals, scores), unique_by=lambda p: p[0], max_size=40), k=st.integers(0, 50)
)
def test_top_equals_the_reference(pairs, k):
    answer = _core.top(int64([o for o, _ in pairs]), float64([s for _, s in pairs]), k)
    assert_same(answer, reference.ranked(dict(pairs))[:k])


def test_smoothing_a_short_session_takes_the_mean_of_what_is_there():
    got = _core.smooth(
        float64([4.0, 2.0, 9.0]), int64([-1, 0, -1]), int64([1, -1, -1]), int64([5, 5, -1]),
        previous_weight=0.5, next_weight=0.25, session_weight=1.0,
    )  # fmt: skip
    assert got.tolist() == [4 + 0.5 + 3, 2 + 2 + 3, 9]


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.rrf([int64([1, 2, 1])]),
        lambda: _core.rrf([int64([1]), int64([1, 1])]),
        lambda: _core.rrf([int64([1])], k=-1.0),
        lambda: _core.rrf([int64([1])], weights=[]),
        lambda: _core.rrf([int64([1])], weights=[float("inf")]),
        lambda: _core.rrf([int64([[1]])]),
        lambda: _core.convex([(int64([1]), float64([1, 2]))], [1.0]),
        lambda: _core.convex([(int64([1]), float64([np.nan]))], [1.0]),
        lambda: _core.convex([(int64([1]), float64([1]))], []),
        lambda: _core.convex([(int64([1]),)], [1.0]),
        lambda: _core.top(int64([1]), float64([np.nan]), 1),
        lambda: _core.top(int64([1]), float64([]), 1),
    ],
)
def test_wrong_values_are_refused(call):
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="int64"):
        _core.rrf([np.array([1], np.int32)])
    with pytest.raises(TypeError, match="int64"):
        _core.rrf([[1, 2]])
    with pytest.raises(TypeError, match="pair"):
        _core.convex([7], [1.0])
    with pytest.raises(TypeError, match="float64"):
        _core.convex([(int64([1]), np.array([1], np.float32))], [1.0])
    with pytest.raises(TypeError):
        _core.top(int64([1, 2, 3, 4])[::2], float64([1, 2]), 1)


def test_a_neighbour_outside_the_candidates_is_refused():
    one, none = float64([1.0]), int64([-1])
    for previous, following in ((1, -1), (-2, -1), (-1, 1)):
        with pytest.raises(IndexError, match="not in"):
            _core.smooth(
                one, int64([previous]), int64([following]), none,
                previous_weight=1, next_weight=1, session_weight=1,
            )  # fmt: skip


@given(lists_of_ordinals, st.lists(ordinals, max_size=6))
def test_places_are_where_ordinals_stand(lists, wanted):
    got = _core.places([int64(own) for own in lists], wanted)
    assert got.shape == (len(lists), len(wanted))
    assert got.tolist() == [[own.index(w) if w in own else -1 for w in wanted] for own in lists]
