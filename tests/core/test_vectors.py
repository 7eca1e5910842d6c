"""The vector core against its slow twin, and the rules of its arrays."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import vectors as reference

from twofold import _core

LEVELS = _core.kernels()


def unit_rows(rng, count, dim):
    rows = rng.standard_normal((count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def filled(rows, kernel=""):
    index = _core.VectorIndex(rows.shape[1], kernel=kernel)
    index.add(rows)
    return index


def bits(array):
    return np.asarray(array, np.float32).view(np.int32).tolist()


def assert_same(answer, expected):
    ordinals, scores = answer
    assert ordinals.tolist() == [ordinal for ordinal, _ in expected]
    assert bits(scores) == bits([score for _, score in expected])


@st.composite
def cases(draw):
    """Rows with duplicates and neighbours, a query, and what may be returned."""
    dim = draw(st.integers(1, 70))
    count = draw(st.integers(0, 90))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = unit_rows(rng, count + 1, dim)
    for _ in range(draw(st.integers(0, 12))):
        a, b = rng.integers(0, count + 1, 2)
        rows[a] = rows[b]
        if rng.random() < 0.5:
            i = rng.integers(dim)
            rows[a, i] = np.nextafter(rows[a, i], np.float32(2))
    mask = rng.random(count) < draw(st.sampled_from([0.0, 0.05, 0.3, 1.0])) if draw(st.booleans()) else None
    prefix = draw(st.none() | st.integers(0, count))
    erased = rng.integers(0, count, draw(st.integers(0, count))).tolist() if count else []
    query = rows[draw(st.integers(0, count))]
    return rows[:count], query, draw(st.integers(0, 100)), mask, prefix, erased


@given(case=cases())
def test_search_equals_the_reference_on_every_level(case):
    rows, query, k, mask, prefix, erased = case
    expected = reference.search(rows, query, k, mask=mask, prefix=prefix, erased=erased)
    for level in LEVELS:
        index = filled(rows, level)
        index.erase(np.array(erased, np.int64))
        assert_same(index.search(query, k, mask=mask, prefix=prefix), expected)
        ordinals, scores = index.search_many(np.stack([query, query]), k, mask=mask, prefix=prefix)
        assert ordinals.shape == scores.shape == (2, len(expected))
        for i in range(2):
            assert_same((ordinals[i], scores[i]), expected)


@pytest.mark.parametrize("dim", [384, 768, 1024, 1536, 3072])
def test_usual_dimensions_equal_the_reference(dim):
    rng = np.random.default_rng(dim)
    rows = unit_rows(rng, 40, dim)
    query = unit_rows(rng, 1, dim)[0]
    expected = reference.search(rows, query, 10)
    for level in LEVELS:
        index = filled(rows, level)
        assert_same(index.search(query, 10), expected)
        scores = index.scores(query, np.array([ordinal for ordinal, _ in expected]))
        assert bits(scores) == bits([score for _, score in expected])


def hard_rows(rng, dim):
    """Duplicates, near ties, sparse and clustered rows, values too small to square, norms at both limits."""
    centres = unit_rows(rng, 40, dim)
    rows = centres[rng.integers(0, 40, 6000)] + rng.standard_normal((6000, dim)) * 0.02
    rows[:500] = centres[0] + rng.standard_normal((500, dim)) * 1e-6
    rows[500:1000] *= rng.random((500, dim)) < 0.05
    rows[500:1000, 0] += 1e-3
    rows[2000:2500] = np.where(rng.random((500, dim)) < 0.9, rows[2000:2500] * 1e-30, rows[2000:2500])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[3000:3500] *= rng.choice([0.9991, 1.0009], (500, 1))
    rows[1000:2000] = rows[rng.integers(0, 1000, 1000)]
    return rows.astype(np.float32)


@pytest.mark.long
def test_ten_thousand_hard_queries_are_exact_on_every_level():
    rng = np.random.default_rng(11)
    rows = hard_rows(rng, 96)
    queries = np.concatenate([rows, unit_rows(rng, 4000, 96)])
    assert len(queries) == 10_000
    exact = (rows.astype(np.float64) @ queries.astype(np.float64).T).T
    best = -np.sort(-exact, axis=1)[:, :10]
    half = rng.random(len(rows)) < 0.5
    best_half = -np.sort(-exact[:, half], axis=1)[:, :10]
    answers = []
    for level in LEVELS:
        index = filled(rows, level)
        # One query at a time and many in one pass are different code.
        alone = [index.search(query, 10) for query in queries]
        ordinals, scores = np.stack([o for o, _ in alone]), np.stack([s for _, s in alone])
        np.testing.assert_allclose(np.take_along_axis(exact, ordinals, 1), best, rtol=0, atol=1e-6)
        np.testing.assert_allclose(scores, best, rtol=0, atol=1e-6)
        tied = scores[:, 1:] == scores[:, :-1]
        assert tied.sum() > 1000
        assert (np.diff(ordinals, axis=1)[tied] > 0).all()
        assert (np.diff(scores, axis=1) <= 0).all()
        together = index.search_many(queries, 10)
        assert (together[0].tobytes(), together[1].tobytes()) == (ordinals.tobytes(), scores.tobytes())
        found, _ = index.search_many(queries, 10, mask=half)
        np.testing.assert_allclose(np.take_along_axis(exact, found, 1), best_half, rtol=0, atol=1e-6)
        assert half[found].all()
        answers.append((ordinals.tobytes(), scores.tobytes(), found.tobytes()))
    assert len(set(answers)) == 1


def test_order_is_that_of_float64_up_to_rounding():
    rng = np.random.default_rng(5)
    centres = unit_rows(rng, 30, 96)
    noise = rng.standard_normal((4000, 96)) * 0.3
    rows = centres[rng.integers(0, 30, 4000)] + noise / np.sqrt(96)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    queries = np.concatenate([unit_rows(rng, 100, 96), centres, rows[:100]])
    exact = rows.astype(np.float64) @ queries.astype(np.float64).T
    index = filled(rows)
    ordinals, scores = index.search_many(queries, 10)
    for i in range(len(queries)):
        best = np.sort(exact[:, i])[::-1][:10]
        np.testing.assert_allclose(exact[ordinals[i], i], best, rtol=0, atol=1e-6)
        np.testing.assert_allclose(scores[i], best, rtol=0, atol=1e-6)


@given(
    dim=st.integers(1, 70),
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    tokens=st.integers(0, 5),
    seed=st.integers(0, 2**32),
)
def test_maxsim_equals_the_reference_on_every_level(dim, counts, tokens, seed):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    query, query_scales = _core.quantize_rows(rng.standard_normal((tokens, dim)).astype(np.float32))
    docs = rng.integers(-128, 128, (int(offsets[-1]), dim)).astype(np.int8)
    doc_scales = rng.random(len(docs)).astype(np.float32)
    expected = reference.maxsim(query, query_scales, docs, doc_scales, offsets.tolist())
    for level in LEVELS:
        got = _core.maxsim(query, query_scales, docs, doc_scales, offsets, kernel=level)
        assert [x.hex() for x in got.tolist()] == [float(x).hex() for x in expected]


@given(
    dim=st.integers(0, 40), count=st.integers(0, 6), exponent=st.integers(-44, 30), seed=st.integers(0, 2**32)
)
def test_quantize_rows_equals_the_reference(dim, count, exponent, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.standard_normal((count, dim)) * 10.0**exponent).astype(np.float32)
    rows[rng.random((count, dim)) < 0.2] = 0
    codes, scales = _core.quantize_rows(rows)
    assert codes.shape == (count, dim)
    for i in range(count):
        expected, scale = reference.quantize_row(rows[i])
        assert codes[i].tolist() == expected
        assert scales[i] == scale


@given(case=cases())
def test_codes_alone_name_candidates_that_include_the_answer(case):
    rows, query, k, mask, prefix, erased = case
    expected = reference.search(rows, query, k, mask=mask, prefix=prefix, erased=erased)
    for level in LEVELS:
        index = _core.VectorIndex(rows.shape[1], kernel=level, keep_rows=False)
        index.add(rows)
        index.erase(np.array(erased, np.int64))
        ordinals = index.candidates(query, k, mask=mask, prefix=prefix)
        scores = _core.score_rows(query, rows[ordinals], kernel=level)
        best = np.lexsort((ordinals, -scores))[:k]
        assert_same((ordinals[best], scores[best]), expected)
    with pytest.raises(ValueError, match="candidates"):
        index.search(query, 1)


def test_add_returns_ordinals_and_rows_come_back():
    rows = unit_rows(np.random.default_rng(1), 700, 12)
    index = _core.VectorIndex(12)
    assert index.add(rows[:1]).tolist() == [0]
    ordinals = index.add(rows[1:])
    assert ordinals.dtype == np.int64
    assert ordinals.tolist() == list(range(1, 700))
    assert index.add(rows[:0]).tolist() == []
    assert len(index) == 700
    assert index.dim == 12
    assert index.nbytes >= 700 * 12 * 5
    assert np.array_equal(index.rows(np.array([699, 0, 3])), rows[[699, 0, 3]])


def test_erase_leaves_no_trace_of_the_row():
    rows = unit_rows(np.random.default_rng(2), 20, 6)
    index = filled(rows)
    index.erase(np.array([4, 9, 4]))
    assert np.flatnonzero(~index.alive).tolist() == [4, 9]
    assert not index.rows(np.array([4, 9])).any()
    assert index.scores(rows[4], np.array([4])).tolist() == [0.0]
    assert sorted(index.search(rows[4], 50)[0].tolist()) == [i for i in range(20) if i not in (4, 9)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.0, 1.01])
def test_a_bad_row_is_named_and_nothing_is_added(bad):
    rows = unit_rows(np.random.default_rng(3), 30, 5)
    index = filled(rows[:7])
    poisoned = rows.copy()
    poisoned[23] *= np.float32(bad)
    with pytest.raises(ValueError, match="row 23 "):
        index.add(poisoned)
    assert len(index) == 7
    index.add(rows)
    assert_same(index.search(rows[23], 3), reference.search(np.concatenate([rows[:7], rows]), rows[23], 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, 2.0])
def test_a_query_must_be_a_unit_vector(bad):
    rows = unit_rows(np.random.default_rng(3), 4, 5)
    index = filled(rows)
    query = rows[0] * np.float32(bad)
    for call in (
        lambda: index.search(query, 1),
        lambda: index.search_many(query[None], 1),
        lambda: index.scores(query, np.array([0])),
    ):
        with pytest.raises(ValueError, match="query"):
            call()


def test_wrong_dtype_or_stride_is_a_type_error():
    rows = unit_rows(np.random.default_rng(4), 8, 4)
    index = filled(rows)
    wide = np.zeros((8, 8), np.float32)
    for call in (
        lambda: index.add(rows.astype(np.float64)),
        lambda: index.add(wide[:, ::2]),
        lambda: index.add(np.asfortranarray(rows)),
        lambda: index.add(rows.tolist()),
        lambda: index.search(rows[0].astype(np.float64), 1),
        lambda: index.search(wide[0, ::2], 1),
        lambda: index.search(rows[0], 1, mask=np.ones(8, np.uint8)),
        lambda: index.search(rows[0], 1, mask=np.ones(16, bool)[::2]),
        lambda: index.search(rows[0], 1.5),
        lambda: index.scores(rows[0], np.array([0], np.int32)),
        lambda: index.rows([0]),
        lambda: index.erase(np.array([0.0])),
        lambda: _core.quantize_rows(rows.astype(np.float64)),
    ):
        with pytest.raises(TypeError):
            call()
    assert len(index) == 8


def test_values_out_of_range_are_refused():
    rows = unit_rows(np.random.default_rng(5), 8, 4)
    index = filled(rows)
    for call in (
        lambda: _core.VectorIndex(0),
        lambda: _core.VectorIndex(-1),
        lambda: _core.VectorIndex(4097),
        lambda: _core.VectorIndex(4, kernel="mmx"),
        lambda: index.add(rows[0]),
        lambda: index.add(rows[:, :3].copy()),
        lambda: index.search(rows[0, :3], 1),
        lambda: index.search(rows, 1),
        lambda: index.search_many(rows[0], 1),
        lambda: index.search(rows[0], -1),
        lambda: index.search(rows[0], 1, prefix=9),
        lambda: index.search(rows[0], 1, prefix=-1),
        lambda: index.search(rows[0], 1, mask=np.ones(7, bool)),
        lambda: index.search(rows[0], 1, mask=np.ones(9, bool)),
        lambda: index.search(rows[0], 1, mask=np.ones((2, 4), bool)),
        lambda: _core.quantize_rows(np.full((2, 2), np.nan, np.float32)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            call()
    for call in (
        lambda: index.rows(np.array([8])),
        lambda: index.scores(rows[0], np.array([-1])),
        lambda: index.erase(np.array([0, 8])),
    ):
        with pytest.raises(IndexError):
            call()
    assert index.alive.all()


def test_empty_answers_keep_their_shape():
    index = _core.VectorIndex(4)
    query = np.array([1, 0, 0, 0], np.float32)
    ordinals, scores = index.search(query, 5)
    assert (ordinals.shape, scores.shape) == ((0,), (0,))
    index.add(query[None])
    assert index.search(query, 5, mask=np.zeros(1, bool))[0].shape == (0,)
    assert index.search_many(np.zeros((0, 4), np.float32), 5)[0].shape == (0, 0)
    assert index.search_many(query[None], 0)[0].shape == (1, 0)


def test_threads_may_search_while_one_adds():
    rng = np.random.default_rng(6)
    rows = unit_rows(rng, 6000, 32)
    index = filled(rows[:1000])
    query = rows[0]
    before = index.search(query, 10)
    wrong = []

    def read():
        for _ in range(60):
            ordinals, scores = index.search(query, 10, prefix=1000)
            if not (np.array_equal(ordinals, before[0]) and np.array_equal(scores, before[1])):
                wrong.append(ordinals)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(1000, 6000, 250):
        index.add(rows[start : start + 250])
    for reader in readers:
        reader.join()
    assert not wrong
    assert len(index) == 6000
    assert_same(index.search(query, 1), [(0, reference.lane_score(query, query))])


def test_the_process_level_is_the_first_or_the_one_asked_for():

    def run(level):
        return subprocess.run(
            [
                sys.executable,
                "-c",
                "from twofold import _core; print(_core.VectorIndex(3).kernel, _core.kernel())",
            ],
            env={**os.environ, "TWOFOLD_KERNEL": level},
            capture_output=True,
            text=True,
            check=False,
        )

    for level in LEVELS:
        assert run(level).stdout.split() == [level, level]
    assert run("").stdout.split() == [LEVELS[0], LEVELS[0]]
    failed = run("avx9000")
    assert "ValueError" in failed.stderr
    assert "avx9000" in failed.stderr
