"""BM25 against its twin, bit for bit; prefixes, masks, erasing, the cache's parts, and threads."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import lexicon as reference

from twofold import _core

term_ids = st.integers(0, 8) | st.sampled_from([2**32 - 1, 2**31])
# Thirds and tenths are not sums of powers of two: the order of adding them up would show.
counts = st.sampled_from([1.0, 2.0, 0.5, 1 / 3, 0.1, 1e-6, 1e6]).map(lambda x: float(np.float32(x)))
documents = st.lists(st.dictionaries(term_ids, counts, max_size=6), max_size=14)


def uint32(values):
    return np.array(values, np.uint32)


def float32(values):
    return np.array(values, np.float32)


def int64(values):
    return np.array(values, np.int64)


def add(lexicon, batch):
    offsets = np.cumsum([0] + [len(d) for d in batch])
    return lexicon.add(
        uint32([t for d in batch for t in d]), float32([c for d in batch for c in d.values()]), int64(offsets)
    )


def both(batches):
    core, twin = _core.Lexicon(), reference.Lexicon()
    for batch in batches:
        before = len(twin.documents)
        assert add(core, batch).tolist() == list(range(before, before + len(batch)))
        for document in batch:
            twin.add(document)
    return core, twin


@st.composite
def queries(draw, count):
    """Keyword arguments for the core, and the same for the twin."""
    mask = (
        st.none()
        | st.lists(st.booleans(), min_size=count, max_size=count)
        | st.lists(st.booleans(), max_size=count)
    )
    terms = draw(st.lists(term_ids | st.just(77), max_size=6))
    options = {
        "weights": draw(
            st.none()
            | st.lists(st.sampled_from([0.0, 1.0, 0.25, 3.0]), min_size=len(terms), max_size=len(terms))
        ),
        "mask": draw(mask),
        "stats_mask": draw(mask),
        "prefix": draw(st.none() | st.integers(0, count + 2)),
        "k1": draw(st.sampled_from([1.2, 0.0, 0.9, 2.5])),
        "b": draw(st.sampled_from([0.75, 0.0, 1.0, 0.4])),
        "doc_count": draw(st.none() | st.sampled_from([0.0, 1.0, 50.0, 1e6])),
        "mean_length": draw(st.none() | st.sampled_from([0.0, 1.5, 12.0])),
        "longest": draw(st.none() | st.sampled_from([1.0, 1.3, 4.0])),
    }
    arrays = dict(options)
    for name, dtype in (("weights", np.float32), ("mask", bool), ("stats_mask", bool)):
        if arrays[name] is not None:
            arrays[name] = np.array(arrays[name], dtype)
    return terms, options, arrays


@given(st.data())
def test_groups_equal_the_reference(data):
    core, twin = both(data.draw(st.lists(documents, max_size=3)))
    total = len(twin.documents)
    erased = data.draw(st.lists(st.integers(0, max(total - 1, 0)), max_size=3)) if total else []
    core.erase(int64(erased))
    twin.erase(erased)
    groups = data.draw(st.lists(st.integers(-1, 4), min_size=total, max_size=total))
    groups = groups[: data.draw(st.integers(0, total))]
    mask = data.draw(st.none() | st.lists(st.booleans(), min_size=total, max_size=total))
    of = {
        "stats_mask": None if mask is None else np.array(mask, np.bool_),
        "prefix": data.draw(st.none() | st.integers(0, total)),
    }
    terms = data.draw(st.lists(term_ids | st.just(77), max_size=5))
    model = {
        "k1": data.draw(st.sampled_from([0.0, 1.2])),
        "b": data.draw(st.sampled_from([0.0, 0.75, 1.0])),
        "longest": data.draw(st.none() | st.sampled_from([1.0, 1.5])),
    }
    lengths = core.group_lengths(int64(groups), 5, **of)
    twice = {**of, "stats_mask": mask}
    assert lengths.tolist() == twin.group_lengths(groups, 5, **twice)
    got = core.group_scores(uint32(terms), int64(groups), lengths, **of, **model)
    assert got.tolist() == twin.group_scores(terms, groups, lengths.tolist(), **twice, **model)


def test_a_group_holding_both_words_beats_two_mentions_of_one():
    core, _ = both([[{1: 1.0, 9: 1.0}, {2: 1.0, 8: 1.0}, {1: 1.0, 7: 1.0}, {1: 1.0, 6: 1.0}, {5: 2.0}]])
    groups = int64([0, 0, 1, 1, 2])
    lengths = core.group_lengths(groups, 3)
    assert lengths.tolist() == [4.0, 4.0, 2.0]
    scores = core.group_scores(uint32([1, 2]), groups, lengths)
    assert scores[0] > scores[1] > scores[2] == 0.0


def test_a_group_out_of_range_is_refused():
    core, _ = both([[{1: 1.0}]])
    with pytest.raises(IndexError, match="document 0 is in group 3 of 2"):
        core.group_lengths(int64([3]), 2)
    with pytest.raises(IndexError, match="document 0 is in group 3 of 1"):
        core.group_scores(uint32([1]), int64([3]), np.array([1.0]))
    with pytest.raises(ValueError, match="k1 must be"):
        core.group_scores(uint32([1]), int64([0]), np.array([1.0]), k1=-1.0)


@given(batches=st.lists(documents, max_size=3), data=st.data())
def test_equals_the_reference(batches, data):
    core, twin = both(batches)
    count = len(twin.documents)
    gone = data.draw(st.lists(st.integers(0, count - 1), max_size=4)) if count else []
    core.erase(int64(gone))
    twin.erase(gone)
    if data.draw(st.booleans()):
        core = _core.Lexicon.from_parts(**core.parts())
    terms, options, arrays = data.draw(queries(count))
    k = data.draw(st.integers(0, 20))

    ordinals, scores = core.search(uint32(terms), k, **arrays)
    assert ordinals.dtype == np.int64
    assert scores.dtype == np.float64
    expected = twin.search(terms, k, **options)
    assert list(zip(ordinals.tolist(), scores.tolist(), strict=True)) == expected

    asked = data.draw(st.lists(st.integers(0, count - 1), max_size=20)) if count else []
    got = core.scores(uint32(terms), int64(asked), **arrays)
    assert got.tolist() == [twin.score(d, terms, **options) for d in asked]

    scope = {"stats_mask": options["stats_mask"], "prefix": options["prefix"]}
    of_core = {"stats_mask": arrays["stats_mask"], "prefix": arrays["prefix"]}
    assert core.document_frequency(uint32(terms), **of_core).tolist() == [
        twin.document_frequency(t, **scope) for t in terms
    ]
    assert core.statistics(**of_core) == twin.statistics(**scope)
    assert len(core) == count


@given(batches=st.lists(documents, min_size=1, max_size=4), data=st.data())
def test_a_prefix_is_the_earlier_state(batches, data):
    kept = data.draw(st.integers(0, len(batches)))
    early, _ = both(batches[:kept])
    late, _ = both(batches)
    terms = uint32(data.draw(st.lists(term_ids, max_size=5)))
    for a, b in zip(early.search(terms, 9), late.search(terms, 9, prefix=len(early)), strict=True):
        assert a.tobytes() == b.tobytes()


@given(batches=st.lists(documents, max_size=3))
def test_batches_and_single_adds_give_the_same_parts(batches):
    together, _ = both(batches)
    singly, _ = both([[d] for batch in batches for d in batch])
    a, b = together.parts(), singly.parts()
    assert list(a) == ["terms", "offsets", "ordinals", "counts", "alive"]
    assert all(a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes() for name in a)


def test_an_erased_document_leaves_no_trace_in_the_statistics():
    core, _ = both([[{1: 1.0, 2: 5.0}, {1: 2.0}, {3: 1.0}]])
    core.erase(int64([0, 0]))
    assert core.document_frequency(uint32([1, 2])).tolist() == [1, 0]
    assert core.statistics() == (2, 1.5)
    assert core.term_count == 2
    assert core.parts()["alive"].tolist() == [False, True, True]
    assert core.search(uint32([2]), 5)[0].tolist() == []


def test_search_over_many_documents_equals_the_exact_scores():
    rng = np.random.default_rng(3)
    lengths = (rng.random((3000, 12)) + 0.5).astype(np.float32).tolist()
    batch = [dict(zip((rng.zipf(1.3, 12) % 500).tolist(), row, strict=True)) for row in lengths]
    core, _ = both([batch])
    mask = rng.random(3000) < 0.4
    terms = uint32([1, 2, 3, 5, 8, 200])
    everything = core.scores(terms, np.arange(3000), mask=mask, stats_mask=mask)
    order = sorted((d for d in range(3000) if everything[d] > 0), key=lambda d: (-everything[d], d))
    for k in (1, 7, 200, 5000):
        ordinals, scores = core.search(terms, k, mask=mask, stats_mask=mask)
        assert ordinals.tolist() == order[:k]
        assert scores.tobytes() == everything[order[:k]].tobytes()


ONE = (uint32([1]), float32([1.0]), int64([0, 1]))


@pytest.mark.parametrize(
    "arguments",
    [
        (uint32([1, 1]), float32([1, 1]), int64([0, 2])),
        (uint32([1]), float32([1, 1]), int64([0, 1])),
        (uint32([1]), float32([0.0]), int64([0, 1])),
        (uint32([1]), float32([-1.0]), int64([0, 1])),
        (uint32([1]), float32([np.nan]), int64([0, 1])),
        (uint32([1]), float32([2e6]), int64([0, 1])),
        (uint32([1]), float32([1.0]), int64([])),
        (uint32([1]), float32([1.0]), int64([0])),
        (uint32([1]), float32([1.0]), int64([1, 1])),
        (uint32([1, 2]), float32([1, 1]), int64([0, 3, 1, 2])),
        (uint32([1, 2]), float32([1, 1]), int64([0, -1, 2])),
        (uint32([[1]]), float32([1.0]), int64([0, 1])),
    ],
)
def test_a_refused_add_changes_nothing(arguments):
    core = _core.Lexicon()
    core.add(*ONE)
    before = {name: array.tobytes() for name, array in core.parts().items()}
    with pytest.raises(ValueError, match=r"\w"):
        core.add(*arguments)
    assert {name: array.tobytes() for name, array in core.parts().items()} == before


@pytest.mark.parametrize(
    "options",
    [
        {"weights": float32([1, 2])},
        {"weights": float32([])},
        {"weights": float32([-1])},
        {"weights": float32([np.inf])},
        {"k1": -1.0},
        {"k1": float("nan")},
        {"b": 1.5},
        {"doc_count": -1.0},
        {"mean_length": float("inf")},
        {"longest": 0.5},
        {"longest": float("nan")},
        {"mask": np.ones((1, 1), bool)},
    ],
)
def test_wrong_query_values_are_refused(options):
    core = _core.Lexicon()
    core.add(*ONE)
    with pytest.raises(ValueError, match=r"\w"):
        core.search(uint32([1]), 3, **options)
    with pytest.raises(ValueError, match=r"\w"):
        core.scores(uint32([1]), int64([0]), **options)


def test_wrong_types_and_ordinals_are_refused():
    core = _core.Lexicon()
    core.add(*ONE)
    with pytest.raises(TypeError):
        core.search(int64([1]), 3)
    with pytest.raises(TypeError):
        core.search(uint32([1]), 3, mask=np.ones(1, np.uint8))
    with pytest.raises(TypeError):
        core.search(uint32([1]), -1)
    for wrong in (-1, 1):
        with pytest.raises(IndexError, match="no document"):
            core.scores(uint32([1]), int64([wrong]))
        with pytest.raises(IndexError, match="no document"):
            core.erase(int64([wrong]))


@pytest.mark.parametrize(
    "change",
    [
        {"terms": uint32([5, 1])},
        {"terms": uint32([1, 5, 6])},
        {"offsets": int64([0, 3, 2])},
        {"offsets": int64([0, 9, 3])},
        {"offsets": int64([])},
        {"ordinals": int64([1, 0, 0])},
        {"ordinals": int64([0, 0, 1])},
        {"ordinals": int64([0, 7, 1])},
        {"ordinals": int64([0, -1, 1])},
        {"counts": float32([1, 1, 0])},
        {"counts": float32([1, 1])},
        {"alive": np.array([True, False])},
    ],
)
def test_contradicting_parts_are_refused(change):
    core, _ = both([[{1: 1.0}, {1: 1.0, 5: 2.0}]])
    parts = core.parts()
    assert parts["ordinals"].tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match=r"\w"):
        _core.Lexicon.from_parts(**(parts | change))


def test_searches_run_while_another_thread_adds():
    core = _core.Lexicon()
    core.add(*ONE)
    terms = uint32([1, 2])
    wanted = [a.tobytes() for a in core.search(terms, 5, prefix=1)]
    done = threading.Event()
    wrong = []

    def search():
        while not done.is_set():
            if [a.tobytes() for a in core.search(terms, 5, prefix=1)] != wanted:
                wrong.append(1)
            ordinals, scores = core.search(terms, 10**6)
            if len(set(ordinals.tolist())) != len(ordinals) or (np.diff(scores) > 0).any():
                wrong.append(2)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        add(core, [{1: 1.0, 2: 1.0}, {2: 3.0}])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(core) == 601
