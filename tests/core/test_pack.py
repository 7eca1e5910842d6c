"""MMR, packing and near duplicates against their twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import pack as reference

from twofold import _core


@st.composite
def unit_rows(draw, most=12):
    """Unit rows with exact and near duplicates, and zero rows as of memories without a vector."""
    count, dim = draw(st.integers(0, most)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.standard_normal((count, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for i in range(count):
        kind = draw(st.sampled_from(["own", "own", "copy", "near", "zero"]))
        if kind == "copy":
            rows[i] = rows[rng.integers(count)]
        elif kind == "near":
            rows[i] = rows[rng.integers(count)] + 0.05 * rng.standard_normal(dim)
            rows[i] /= np.linalg.norm(rows[i])
        elif kind == "zero":
            rows[i] = 0
    return rows.astype(np.float32)


@given(rows=unit_rows(), data=st.data())
def test_mmr_equals_the_reference(rows, data):
    relevance = data.draw(st.lists(st.floats(-1, 2) | st.just(0.5), min_size=len(rows), max_size=len(rows)))
    lam = data.draw(st.floats(0, 1) | st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    k = data.draw(st.integers(0, 15))
    got = _core.mmr(np.array(relevance, np.float64), rows, lam, k)
    assert got.dtype == np.int64
    assert got.tolist() == reference.mmr(relevance, rows, lam, k)


@given(rows=unit_rows(), threshold=st.floats(-1, 1) | st.sampled_from([0.0, 0.99]))
def test_near_duplicates_equal_the_reference(rows, threshold):
    assert _core.near_duplicates(rows, threshold).tolist() == reference.near_duplicates(rows, threshold)


costs = st.lists(st.integers(0, 40), max_size=20)
small = st.integers(0, 5)


@given(tokens=costs, budget=st.integers(0, 200), overhead=small)
def test_pack_equals_the_reference_and_keeps_the_budget(tokens, budget, overhead):
    got = _core.pack(np.array(tokens, np.int64), budget, overhead=overhead).tolist()
    assert got == reference.pack(range(len(tokens)), tokens, budget, overhead)
    assert sum(tokens[i] + overhead for i in got) <= budget


@given(
    items=st.lists(st.tuples(st.integers(0, 40), st.floats(0, 3) | st.just(1.0)), max_size=20),
    budget=st.integers(0, 200),
    overhead=small,
)
def test_pack_value_equals_the_reference(items, budget, overhead):
    tokens, values = [t for t, _ in items], [v for _, v in items]
    got = _core.pack_value(
        np.array(tokens, np.int64), np.array(values, np.float64), budget, overhead=overhead
    )
    assert got.tolist() == reference.pack_value(tokens, values, budget, overhead)


def test_equal_value_per_token_goes_to_the_earlier_item():
    tokens, values = np.full(20, 5), np.full(20, 2.0)
    assert _core.pack_value(tokens, values, 15).tolist() == [0, 1, 2]


def test_the_budget_is_not_fooled_by_overflow():
    huge = np.array([2**63 - 1, 2**62, 2**62, 2**62], np.int64)
    assert _core.pack(huge, 2**63 - 1).tolist() == [0]
    assert _core.pack(huge[1:], 2**63 - 1).tolist() == [0]
    with pytest.raises(ValueError, match="too large"):
        _core.pack(huge, 10, overhead=1)


ROWS = np.eye(2, dtype=np.float32)
TOKENS = np.array([1, 2])
VALUES = np.array([1.0, 2.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.mmr(VALUES, ROWS, 1.1, 1),
        lambda: _core.mmr(VALUES, ROWS, float("nan"), 1),
        lambda: _core.mmr(VALUES[:1], ROWS, 0.5, 1),
        lambda: _core.mmr(np.array([1.0, np.nan]), ROWS, 0.5, 1),
        lambda: _core.mmr(VALUES, ROWS * np.float32(np.inf), 0.5, 1),
        lambda: _core.mmr(VALUES, ROWS[0], 0.5, 1),
        lambda: _core.near_duplicates(ROWS, float("nan")),
        lambda: _core.pack(TOKENS, -1),
        lambda: _core.pack(TOKENS, 1, overhead=-1),
        lambda: _core.pack(-TOKENS, 1),
        lambda: _core.pack_value(TOKENS, VALUES[:1], 1),
        lambda: _core.pack_value(TOKENS, -VALUES, 1),
        lambda: _core.pack_value(TOKENS, VALUES * np.inf, 1),
    ],
)
def test_wrong_values_are_refused(call):
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(ValueError, match=r"\w"),
    ):
        call()


def test_wrong_types_are_refused():
    with pytest.raises(TypeError):
        _core.mmr(VALUES, ROWS.astype(np.float64), 0.5, 1)
    with pytest.raises(TypeError):
        _core.mmr(VALUES, np.asfortranarray(np.ones((2, 3), np.float32)), 0.5, 1)
    with pytest.raises(TypeError):
        _core.pack(TOKENS.astype(np.int32), 1)
