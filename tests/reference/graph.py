"""The slow, obvious twin of the graph."""

from collections import deque
from collections.abc import Sequence

from tests.reference.fuse import ranked

Edge = tuple[int, int, float]


def neighbours(edges: Sequence[Edge], node: int) -> list[tuple[int, float]]:
    """Return (neighbour, weight) of each edge at the node in insertion order; a loop counts once."""
    out = []
    for src, dst, weight in edges:
        if src == node:
            out.append((dst, weight))
        elif dst == node:
            out.append((src, weight))
    return out


def passes(mask: Sequence[bool] | None, node: int) -> bool:
    """Return whether a node exists; one beyond the mask does not."""
    return mask is None or (node < len(mask) and bool(mask[node]))


def expand(
    edges: Sequence[Edge],
    seeds: Sequence[int],
    hops: int,
    *,
    mask: Sequence[bool] | None = None,
    limit: int | None = None,
) -> list[tuple[int, int]]:
    """Return (node, hop) by hop, then node."""
    reached = {seed: 0 for seed in seeds if passes(mask, seed)}
    for hop in range(1, hops + 1):
        for node in [n for n, at in reached.items() if at == hop - 1]:
            for other, _ in neighbours(edges, node):
                if other not in reached and passes(mask, other):
                    reached[other] = hop
    return sorted(reached.items(), key=lambda item: (item[1], item[0]))[:limit]


def personalized(
    edges: Sequence[Edge],
    seeds: Sequence[int],
    seed_weights: Sequence[float],
    *,
    alpha: float,
    epsilon: float,
    mask: Sequence[bool] | None = None,
) -> list[tuple[int, float]]:
    """Return (node, score) by forward push with a first-in, first-out queue."""
    residual: dict[int, float] = {}
    score: dict[int, float] = {}
    queue: deque[int] = deque()

    def receive(node: int, amount: float) -> None:
        residual[node] = residual.get(node, 0.0) + amount
        if node not in queue and residual[node] >= epsilon * max(len(neighbours(edges, node)), 1):
            queue.append(node)

    given = [(s, w) for s, w in zip(seeds, seed_weights, strict=True) if passes(mask, s)]
    total = 0.0
    for _, weight in given:
        total += weight
    for seed, weight in given:
        if weight > 0:
            receive(seed, weight / total)
    while queue:
        node = queue.popleft()
        amount, residual[node] = residual[node], 0.0
        open_to = [(n, w) for n, w in neighbours(edges, node) if passes(mask, n)]
        if not open_to:
            score[node] = score.get(node, 0.0) + amount
            continue
        score[node] = score.get(node, 0.0) + alpha * amount
        weights = 0.0
        for _, weight in open_to:
            weights += weight
        share = (1.0 - alpha) * amount / weights
        for other, weight in open_to:
            receive(other, share * weight)
    return ranked({node: value for node, value in score.items() if value > 0})


def pagerank(
    n: int,
    edges: Sequence[Edge],
    *,
    damping: float,
    tolerance: float,
    max_iterations: int,
    directed: bool,
) -> list[float]:
    """Return PageRank by power iteration over lists of arcs."""
    arcs: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    outgoing = [0.0] * n
    for src, dst, weight in edges:
        arcs[dst].append((src, weight))
        outgoing[src] += weight
        if not directed and src != dst:
            arcs[src].append((dst, weight))
            outgoing[dst] += weight
    rank = [1.0 / n] * n
    for _ in range(max_iterations):
        lost = 0.0
        for node in range(n):
            if outgoing[node] == 0:
                lost += rank[node]
        base = (1.0 - damping) / n + damping * (lost / n)
        following = []
        lanes = [0.0] * 4
        for node in range(n):
            total = 0.0
            for source, weight in arcs[node]:
                total += rank[source] / outgoing[source] * weight
            following.append(base + damping * total)
            lanes[node % 4] += abs(following[node] - rank[node])
        rank = following
        if (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]) <= tolerance:
            break
    return rank
