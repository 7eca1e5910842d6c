"""The graph against its twin: breadth-first order, forward push and PageRank bits, prefixes and growth."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import graph as reference

from twofold import _core

weights = st.sampled_from([1.0, 0.5, 2.0, 1 / 3, 0.1]).map(lambda x: float(np.float32(x)))


def edge_lists(most=9):
    node = st.integers(0, most)
    return st.lists(st.tuples(node, node, weights), max_size=25)


def uint32(values):
    return np.array(values, np.uint32)


def arrays(edges):
    return (
        uint32([e[0] for e in edges]),
        uint32([e[1] for e in edges]),
        np.array([e[2] for e in edges], np.float32),
    )


def built(edges, cuts=()):
    graph = _core.Graph()
    bounds = [0, *sorted(cuts), len(edges)]
    for first, last in pairwise(bounds):
        graph.add_edges(*arrays(edges[first:last]))
    return graph


@st.composite
def scopes(draw, edges):
    mask = draw(st.none() | st.lists(st.booleans() | st.just(True), max_size=14))
    prefix = draw(st.none() | st.integers(0, len(edges) + 2))
    seen = edges if prefix is None else edges[:prefix]
    return seen, mask, {"prefix": prefix, "mask": None if mask is None else np.array(mask, bool)}


seeds = st.lists(st.integers(0, 12), max_size=4)


@given(
    edges=edge_lists(),
    seeds=seeds,
    hops=st.integers(0, 5),
    limit=st.none() | st.integers(0, 8),
    data=st.data(),
)
def test_expand_equals_the_reference(edges, seeds, hops, limit, data):
    seen, mask, options = data.draw(scopes(edges))
    graph = built(edges, data.draw(st.lists(st.integers(0, len(edges)), max_size=3)))
    nodes, at = graph.expand(uint32(seeds), hops, limit=limit, **options)
    assert nodes.dtype == np.uint32
    assert at.dtype == np.int32
    expected = reference.expand(seen, seeds, hops, mask=mask, limit=limit)
    assert list(zip(nodes.tolist(), at.tolist(), strict=True)) == expected


@given(
    edges=edge_lists(),
    seeds=st.lists(st.tuples(st.integers(0, 12), st.floats(0, 3) | st.just(1.0)), max_size=4),
    alpha=st.sampled_from([0.15, 0.5, 1.0]),
    epsilon=st.sampled_from([1e-2, 1e-4, 1.0]),
    data=st.data(),
)
def test_personalized_equals_the_reference(edges, seeds, alpha, epsilon, data):
    seen, mask, options = data.draw(scopes(edges))
    graph = built(edges)
    starts, start_weights = [s for s, _ in seeds], [w for _, w in seeds]
    arguments = (uint32(starts), np.array(start_weights, np.float64))
    nodes, scores = graph.personalized(*arguments, alpha=alpha, epsilon=epsilon, **options)
    assert nodes.dtype == np.uint32
    assert scores.dtype == np.float64
    expected = reference.personalized(seen, starts, start_weights, alpha=alpha, epsilon=epsilon, mask=mask)
    assert list(zip(nodes.tolist(), scores.tolist(), strict=True)) == expected
    assert scores.sum() <= 1 + 1e-12
    # The working arrays are used again: a second call must find them clean, and the limit is a cut.
    again = graph.personalized(*arguments, alpha=alpha, epsilon=epsilon, limit=3, **options)
    assert again[0].tolist() == nodes[:3].tolist()
    assert again[1].tobytes() == scores[:3].tobytes()


@given(edges=edge_lists(), directed=st.booleans(), damping=st.sampled_from([0.85, 0.0, 0.5]), data=st.data())
def test_pagerank_equals_the_reference(edges, directed, damping, data):
    n = data.draw(st.integers(10, 14))
    options = {
        "damping": damping,
        "tolerance": data.draw(st.sampled_from([1e-8, 1e-2, 0.0])),
        "max_iterations": data.draw(st.sampled_from([0, 1, 30])),
        "directed": directed,
    }
    got = _core.pagerank(n, *arrays(edges), **options)
    assert got.tolist() == reference.pagerank(n, edges, **options)
    assert got.sum() == pytest.approx(1)


def random_edges(nodes, count, seed=5):
    rng = np.random.default_rng(seed)
    return (
        (nodes * rng.random(count) ** 2).astype(np.uint32),
        rng.integers(0, nodes, count).astype(np.uint32),
        (rng.random(count) + 0.1).astype(np.float32),
    )


def test_the_way_of_adding_does_not_show():
    """A base with chains of later edges, and one rebuilt at once, answer the same bytes at every prefix."""
    src, dst, weight = random_edges(700, 6000)
    whole = _core.Graph()
    whole.add_edges(src, dst, weight)
    pieces = _core.Graph()
    bounds = [0, 1, 5, 900, 1100, 1101, 2500, 2501, 4000, 5990, 6000]
    for first, last in pairwise(bounds):
        pieces.add_edges(src[first:last], dst[first:last], weight[first:last])
    assert (whole.node_count, whole.edge_count) == (pieces.node_count, pieces.edge_count) == (700, 6000)
    seeds, one = uint32([3, 650]), np.array([1.0, 2.0])
    mask = np.random.default_rng(1).random(700) < 0.8
    for prefix in (None, 0, 1, 899, 1105, 2501, 3999, 5999):
        early = _core.Graph()
        early.add_edges(src[:prefix], dst[:prefix], weight[:prefix])
        for options in ({}, {"mask": mask}):
            asked = [
                [
                    *graph.expand(seeds, 2, prefix=prefix, **options),
                    *graph.personalized(seeds, one, epsilon=1e-4, prefix=prefix, **options),
                ]
                for graph in (whole, pieces, early)
            ]
            first, *others = [[a.tobytes() for a in answer] for answer in asked]
            assert all(other == first for other in others)


def test_personalized_approaches_the_exact_walk():
    src, dst, weight = random_edges(60, 300)
    graph = _core.Graph()
    graph.add_edges(src, dst, weight)
    nodes, scores = graph.personalized(uint32([7]), np.array([1.0]), epsilon=1e-9)
    matrix = np.zeros((60, 60))
    for s, d, w in zip(src, dst, weight, strict=True):
        matrix[s, d] += w
        if s != d:
            matrix[d, s] += w
    walk = matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-300)
    exact = 0.15 * np.linalg.inv(np.eye(60) - 0.85 * walk.T)[:, 7]
    got = np.zeros(60)
    got[nodes] = scores
    assert np.abs(got - exact).sum() < 1e-5
    assert (np.diff(scores) <= 0).all()


def test_pagerank_solves_its_equation():
    src, dst, weight = random_edges(80, 200)
    rank = _core.pagerank(80, src, dst, weight, tolerance=1e-13, max_iterations=500, directed=True)
    matrix = np.zeros((80, 80))
    np.add.at(matrix, (src, dst), weight.astype(np.float64))
    out = matrix.sum(1)
    walk = np.where(out[:, None] > 0, matrix / np.maximum(out[:, None], 1e-300), 1 / 80)
    assert np.abs(0.15 / 80 + 0.85 * walk.T @ rank - rank).sum() < 1e-12


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda g: g.add_edges(uint32([1]), uint32([1, 2]), np.ones(1, np.float32)), ValueError),
        (lambda g: g.add_edges(uint32([1]), uint32([2]), np.zeros(1, np.float32)), ValueError),
        (lambda g: g.add_edges(uint32([1]), uint32([2]), np.array([np.nan], np.float32)), ValueError),
        (lambda g: g.add_edges(uint32([1]), uint32([2**28]), np.ones(1, np.float32)), ValueError),
        (lambda g: g.add_edges(uint32([1]), uint32([2]), np.ones(1)), TypeError),
        (lambda g: g.add_edges(np.array([1]), uint32([2]), np.ones(1, np.float32)), TypeError),
        (lambda g: g.expand(uint32([1]), -1), TypeError),
        (lambda g: g.expand(uint32([2**28]), 1), ValueError),
        (lambda g: g.expand(uint32([1]), 1, mask=np.ones(3)), TypeError),
        (lambda g: g.personalized(uint32([1]), np.ones(2)), ValueError),
        (lambda g: g.personalized(uint32([1]), -np.ones(1)), ValueError),
        (lambda g: g.personalized(uint32([1]), np.ones(1), alpha=0.0), ValueError),
        (lambda g: g.personalized(uint32([1]), np.ones(1), epsilon=0.0), ValueError),
        (lambda g: _core.pagerank(2, uint32([0]), uint32([2]), np.ones(1, np.float32)), IndexError),
        (
            lambda g: _core.pagerank(2, uint32([0]), uint32([1]), np.ones(1, np.float32), damping=1.0),
            ValueError,
        ),
        (
            lambda g: _core.pagerank(2, uint32([0]), uint32([1]), np.ones(1, np.float32), tolerance=-1.0),
            ValueError,
        ),
    ],
)
def test_wrong_input_is_refused_and_changes_nothing(call, error):
    graph = built([(0, 1, 1.0)])
    with pytest.raises(error):
        call(graph)
    assert (graph.node_count, graph.edge_count) == (2, 1)


def test_an_empty_graph_answers():
    graph = _core.Graph()
    assert graph.expand(uint32([4, 4]), 3)[0].tolist() == [4]
    assert [a.tolist() for a in graph.personalized(uint32([4]), np.ones(1))] == [[4], [1.0]]
    assert graph.personalized(uint32([]), np.ones(0))[0].tolist() == []
    assert _core.pagerank(0, uint32([]), uint32([]), np.ones(0, np.float32)).tolist() == []
    assert _core.pagerank(2, uint32([]), uint32([]), np.ones(0, np.float32)).tolist() == [0.5, 0.5]


def test_queries_run_while_another_thread_adds():
    src, dst, weight = random_edges(300, 5000)
    graph = _core.Graph()
    graph.add_edges(src[:500], dst[:500], weight[:500])
    seeds, one = uint32([3]), np.ones(1)

    def ask():
        answer = [
            *graph.expand(seeds, 2, prefix=500),
            *graph.personalized(seeds, one, epsilon=1e-3, prefix=500),
        ]
        return [a.tobytes() for a in answer]

    wanted = ask()
    done = threading.Event()
    wrong = []

    def reader():
        while not done.is_set():
            if ask() != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for at in range(500, 5000, 10):
        graph.add_edges(src[at : at + 10], dst[at : at + 10], weight[at : at + 10])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


@given(st.data())
def test_related_equals_the_obvious(data):
    """Rows about entities by their weights in turn; memories further away by their hop, where not about any."""
    lineages = data.draw(st.integers(1, 8))
    newest = [row if data.draw(st.booleans()) else -1 for row in range(10, 10 + lineages)]
    rows = st.sets(st.integers(8, 12 + lineages)).map(sorted)
    about = data.draw(st.lists(st.tuples(rows, weights), max_size=3))
    reached = data.draw(st.lists(st.tuples(st.integers(0, 2 * lineages - 1), st.integers(0, 3)), max_size=12))
    reached = list(dict(reached).items())
    depth = data.draw(st.integers(0, 12))
    got = _core.related(
        [np.array(own, np.int64) for own, _ in about],
        [weight for _, weight in about],
        uint32([node for node, _ in reached]),
        np.array([hops for _, hops in reached], np.int32),
        np.array(newest, np.int64),
        step=0.1,
        depth=depth,
    )
    total = {}
    for own, weight in about:
        for row in own:
            total[row] = total.get(row, 0.0) + weight
    for node, hops in reached:
        if node % 2 == 0 and hops > 1 and newest[node // 2] >= 0:
            total.setdefault(newest[node // 2], 0.1 / hops)
    best = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:depth]
    assert got[0].tolist() == [row for row, _ in best]
    assert got[1].tolist() == [score / best[0][1] for _, score in best]


def test_related_refuses_what_does_not_fit():
    row, node, hop = np.zeros(1, np.int64), uint32([4]), np.array([2], np.int32)
    with pytest.raises(IndexError, match="node 4"):
        _core.related([], [], node, hop, row, step=0.1, depth=1)
    with pytest.raises(ValueError, match="weight"):
        _core.related([row], [], node[:0], hop[:0], row, step=0.1, depth=1)
    with pytest.raises(ValueError, match="hops"):
        _core.related([], [], node, hop[:0], row, step=0.1, depth=1)
