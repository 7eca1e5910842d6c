"""Late interaction over token codes against its twin, bit for bit, on every kernel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import bits as reference

from twofold import _core

words64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1])


@st.composite
def questions(draw):
    words = draw(st.sampled_from([1, 2, 6, 7]))
    code = st.lists(words64, min_size=words, max_size=words)
    codes = draw(st.lists(code, max_size=12))
    query = draw(st.lists(code, max_size=4))
    weights = draw(st.lists(st.floats(0, 9), min_size=len(query), max_size=len(query)))
    edges = st.integers(0, len(codes))
    spans = draw(st.lists(st.tuples(edges, edges).map(sorted), max_size=6))
    return words, query, weights, codes, [a for a, _ in spans], [b for _, b in spans]


def call(words, query, weights, codes, starts, stops, **options):
    return _core.bits_maxsim(
        np.array(query, np.uint64).reshape(-1, words),
        np.array(weights, np.float64),
        np.array(codes, np.uint64).reshape(-1, words),
        np.array(starts, np.int64),
        np.array(stops, np.int64),
        **options,
    )


@given(questions())
def test_every_kernel_equals_the_reference(asked):
    expected = reference.maxsim(*asked[1:])
    for kernel in ("", *_core.kernels()):
        assert call(*asked, kernel=kernel).tolist() == expected


@given(st.lists(st.integers(0, 50), max_size=9), st.integers(0, 60))
def test_rarity_equals_the_reference(counts, documents):
    got = _core.rarity(np.array(counts, np.int64), float(documents))
    assert got.tolist() == reference.rarity(counts, float(documents))


def test_a_code_among_the_codes_is_wholly_similar():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2**63, (50, 6)).astype(np.uint64)
    got = call(6, codes[[7, 30]], [2.0, 1.0], codes, [0, 7, 30], [50, 8, 31])
    assert got[0] == 1.0
    assert got[1] < 1.0
    assert got[2] < got[1]  # the heavier token is in the other row


@pytest.mark.parametrize(
    "change, error",
    [
        ({"weights": [-1.0]}, ValueError),
        ({"weights": [float("nan")]}, ValueError),
        ({"weights": []}, ValueError),
        ({"stops": []}, ValueError),
        ({"stops": [3]}, IndexError),
        ({"starts": [-1]}, IndexError),
        ({"starts": [2]}, IndexError),
        ({"kernel": "none"}, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(change, error):
    good = {"query": [[1]], "weights": [1.0], "codes": [[1], [2]], "starts": [0], "stops": [1]}
    assert call(1, **good).tolist() == [1.0]
    with pytest.raises(error):
        call(1, **{**good, **change})


def test_other_widths_and_types_are_refused():
    one, codes, at = np.ones(1), np.zeros((2, 2), np.uint64), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="width"):
        _core.bits_maxsim(np.zeros((1, 1), np.uint64), one, codes, at, at)
    with pytest.raises(ValueError, match="dimensions"):
        _core.bits_maxsim(np.zeros(2, np.uint64), one, codes, at, at)
    with pytest.raises(TypeError):
        _core.bits_maxsim(np.zeros((1, 2), np.int64), one, codes, at, at)
    with pytest.raises(ValueError, match="negative"):
        _core.rarity(np.array([-1], np.int64), 3.0)
    with pytest.raises(ValueError, match="documents"):
        _core.rarity(np.array([1], np.int64), -3.0)


@given(st.data())
def test_coded_places_are_those_of_one_vector_with_codes(data):
    vectors = data.draw(st.integers(1, 6))
    starts = data.draw(st.lists(st.integers(0, 9), min_size=vectors, max_size=vectors))
    stops = [start + data.draw(st.integers(0, 2)) for start in starts]
    places = data.draw(st.lists(st.tuples(st.integers(0, vectors - 1), st.booleans()), max_size=8))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(places) - 1)))) if places else []
    flags, known, own = _core.coded_places(
        np.array([v for v, _ in places], np.int64),
        np.array([alone for _, alone in places], np.bool_),
        *(np.array(column, np.int64) for column in (chosen, starts, stops)),
    )
    coded = [alone and stops[v] > starts[v] for v, alone in places]
    assert flags.tolist() == coded
    assert known.tolist() == [n for n, place in enumerate(chosen) if coded[place]]
    assert own.tolist() == [places[place][0] for place in chosen if coded[place]]


def test_coded_places_refuses_what_lies_outside():
    one, alone = np.zeros(1, np.int64), np.ones(1, np.bool_)
    with pytest.raises(IndexError, match="vector 1"):
        _core.coded_places(one + 1, alone, one, one, one)
    with pytest.raises(IndexError, match="place 1"):
        _core.coded_places(one, alone, one + 1, one, one)
    with pytest.raises(ValueError, match="flag"):
        _core.coded_places(one, alone[:0], one, one, one)
    with pytest.raises(ValueError, match="length"):
        _core.coded_places(one, alone, one, one, one[:0])
