"""The arithmetic of fusion against its twin, bit for bit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import blend as reference
from tests.reference.turns import collect

from twofold import _core

scores = st.floats(-2, 2) | st.sampled_from([0.0, -0.0, 0.5])
numbers = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 0.1, 1e-300, -1e-17])


@given(st.lists(numbers | st.floats(-1e300, 1e300).filter(math.isfinite), max_size=40))
def test_exact_sum_is_fsum(values):
    try:
        expected = math.fsum(values)
    except OverflowError:
        return
    assert _core.exact_sum(np.array(values, np.float64)).hex() == (expected + 0.0).hex()


@given(
    st.lists(
        st.sampled_from([1.0, 2.0**-53, -(2.0**-53), 2.0**-106, -(2.0**-106), 3.0, 2.0**53]), max_size=12
    )
)
def test_exact_sum_of_ties_is_fsum(values):
    assert _core.exact_sum(np.array(values, np.float64)) == math.fsum(values)


@st.composite
def pools(draw):
    places = draw(st.integers(0, 12))
    floats = st.lists(numbers, min_size=places, max_size=places)
    chosen = sorted(draw(st.sets(st.integers(0, places - 1)))) if places else []
    late = None
    if draw(st.booleans()):
        known = sorted(draw(st.sets(st.integers(0, len(chosen) - 1)))) if chosen else []
        similarity = draw(st.lists(st.floats(-1, 1), min_size=len(known), max_size=len(known)))
        late = (draw(st.lists(st.booleans(), min_size=places, max_size=places)), known, similarity)
    weight = st.sampled_from([0.0, 0.5, 1.25])
    names = ("lexical_weight", "cosine_weight", "late_cosine_weight", "late_weight", "scale")
    return chosen, draw(floats), draw(floats), late, {name: draw(weight) for name in names}


@given(pools())
def test_relevance_equals_the_reference(pool):
    chosen, lexical, cosine, late, weights = pool
    types = (np.bool_, np.int64, np.float64)
    given_late = () if late is None else [np.array(v, t) for v, t in zip(late, types, strict=True)]
    got = _core.relevance(
        np.array(chosen, np.int64), np.array(lexical), np.array(cosine), *given_late, **weights
    )
    expected = reference.relevance(chosen, lexical, cosine, late, weights)
    assert [[v.hex() for v in part.tolist()] for part in got] == [
        [float(v).hex() for v in part] for part in expected
    ]


@st.composite
def fusions(draw):
    """A pool over a few sessions, and every kind of addend or none of it."""
    count = draw(st.integers(1, 24))
    codes = draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count))
    previous, following, last = [-1] * count, [-1] * count, {}
    for row, code in enumerate(codes):
        if code >= 0 and code in last:
            previous[row], following[last[code]] = last[code], row
        last[code] = row
    asked = [sorted(draw(st.sets(st.integers(0, count - 1)))) for _ in range(draw(st.integers(0, 3)))]
    pool = collect(asked, previous, following, [True] * count, draw(st.integers(0, 2)))
    places, chosen = len(pool[0]), len(pool[1])

    def values(size):
        return st.lists(scores, min_size=size, max_size=size)

    weight = st.sampled_from([0.0, 0.05, 1.0, -0.5])
    layers = [(own, draw(values(len(own))), draw(weight)) for own in asked]
    turns = None
    if draw(st.booleans()):
        flags = st.lists(st.booleans(), min_size=count, max_size=count)
        tokens = draw(st.lists(st.integers(0, 200), min_size=count, max_size=count))
        turns = (tokens, draw(flags), draw(flags), draw(st.tuples(*[weight] * 6)), 52.0)
    sessions = None
    if draw(st.booleans()):
        logs = [math.log(1 + n) for n in range(chosen + draw(st.integers(0, 2)))]
        sessions = (codes, draw(weight), draw(st.integers(1, 4)), draw(weight), logs)
    relevance = draw(st.lists(values(places), max_size=3))
    return pool, relevance, layers, draw(st.lists(values(chosen), max_size=3)), turns, sessions


def fused(pool, relevance, layers, given_addends, turns, sessions):
    def floats(values):
        return np.array(values, np.float64)

    options = {}
    if turns is not None:
        tokens, asks, has_role, weights, gate = turns
        options["turns"] = (
            np.array(tokens, np.int32),
            np.array(asks, np.bool_),
            np.array(has_role, np.bool_),
        )
        options["turn_weights"] = (*weights, gate)
    if sessions is not None:
        names = ("sessions", "session_weight", "session_top", "session_repeats", "logs")
        options |= dict(zip(names, sessions, strict=True))
        options |= {"sessions": np.array(sessions[0], np.int64), "logs": floats(sessions[4])}
    return _core.fuse(
        *(np.array(column, np.int64) for column in pool),
        [floats(addend) for addend in relevance],
        layers=[(np.array(rows, np.int64), floats(own), weight) for rows, own, weight in layers],
        given=[floats(addend) for addend in given_addends],
        **options,
    )


@given(fusions())
def test_fuse_equals_the_reference(fusion):
    rows, sums, addends = fused(*fusion)
    expected_rows, expected_sums, expected_addends = reference.fuse(*fusion)
    assert rows.tolist() == expected_rows
    assert [v.hex() for v in sums.tolist()] == [float(v).hex() for v in expected_sums]
    if len(rows):
        assert [[v.hex() for v in addend] for addend in addends.tolist()] == [
            [float(v).hex() for v in addend] for addend in expected_addends
        ]


@given(st.data())
def test_above_mean_equals_the_reference(data):
    group_scores = data.draw(st.lists(st.floats(0, 20), max_size=6))
    groups = data.draw(st.lists(st.integers(-1, len(group_scores) - 1), max_size=12))
    rows = data.draw(st.lists(st.integers(0, len(groups) - 1), max_size=12)) if groups else []
    got = _core.above_mean(
        np.array(group_scores, np.float64), np.array(groups, np.int64), np.array(rows, np.int64)
    )
    expected = reference.above_mean(group_scores, groups, rows)
    assert [v.hex() for v in got.tolist()] == [float(v).hex() for v in expected]


def test_what_does_not_fit_is_refused():
    one, place = np.ones(1), np.zeros(1, np.int64)
    weights = {"lexical_weight": 1.0, "cosine_weight": 1.0}
    with pytest.raises(IndexError):
        _core.relevance(np.array([1], np.int64), one, one, **weights)
    with pytest.raises(ValueError, match="length"):
        _core.relevance(place, one, np.ones(2), **weights)
    with pytest.raises(ValueError, match="together"):
        _core.relevance(place, one, one, np.ones(1, np.bool_), **weights)
    with pytest.raises(ValueError, match="coded"):
        _core.relevance(place, one, one, np.ones(2, np.bool_), place, one, **weights)
    with pytest.raises(IndexError):
        _core.relevance(place, one, one, np.ones(1, np.bool_), np.array([1], np.int64), one, **weights)
    pool = [place, place, place - 1, place - 1]
    with pytest.raises(ValueError, match="relevance"):
        _core.fuse(*pool, [np.ones(2)], layers=[], given=[])
    with pytest.raises(TypeError):
        _core.fuse(*pool, [np.ones(1, np.float32)], layers=[], given=[])
    with pytest.raises(ValueError, match="candidate"):
        _core.fuse(*pool, [], layers=[], given=[np.ones(2)])
    with pytest.raises(IndexError, match="row 1"):
        _core.fuse(*pool, [], layers=[(place + 1, one, 1.0)], given=[])
    with pytest.raises(ValueError, match="score per row"):
        _core.fuse(*pool, [], layers=[(place, np.ones(2), 1.0)], given=[])
    with pytest.raises(IndexError):
        _core.fuse(place, place + 1, place, place, [], layers=[], given=[])
    sessions = {"sessions": place, "session_repeats": 1.0}
    with pytest.raises(ValueError, match="logs"):
        _core.fuse(*pool, [], layers=[], given=[], **sessions)
    with pytest.raises(IndexError, match="codes"):
        _core.fuse(*pool, [], layers=[], given=[], **(sessions | {"sessions": place[:0], "logs": one}))
    with pytest.raises(IndexError):
        _core.above_mean(one, place, place + 1)
    with pytest.raises(IndexError, match="group 1"):
        _core.above_mean(one, place + 1, place)
