"""The arithmetic of fusion against its twin, bit for bit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import blend as reference

from twofold import _core

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


@given(
    st.integers(0, 8).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.lists(numbers, min_size=n, max_size=n)))
    )
)
def test_blend_equals_the_reference(given_addends):
    count, addends = given_addends
    order, sums = _core.blend([np.array(a, np.float64) for a in addends], count)
    assert (order.tolist(), sums.tolist()) == reference.blend(addends, count)


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
    with pytest.raises(ValueError, match="addend"):
        _core.blend([np.ones(2)], 1)
    with pytest.raises(TypeError):
        _core.blend([np.ones(1, np.float32)], 1)
