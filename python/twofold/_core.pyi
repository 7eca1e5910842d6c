"""The compiled core: whole-array functions. Wrong dtypes raise TypeError, wrong values ValueError."""

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

__version__: str

def kernel() -> str:
    """Return the instruction set of this process: generic, avx2, avx512 or neon."""

def kernels() -> list[str]:
    """Return the instruction sets this machine can run, best first."""

def checksum(data: bytes | memoryview | NDArray[Any]) -> int:
    """Return the 64-bit checksum of a C-contiguous buffer, the same on every machine."""

def checksum_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the checksum of each row of (n, width)."""

class Damaged(ValueError):
    """A file does not hold what was written into it."""

@final
class Strings:
    """Immutable strings over arrays as a file holds them; nothing is decoded before it is asked for."""

    def __init__(
        self, blob: NDArray[np.uint8], offsets: NDArray[np.int64], slots: NDArray[np.uint32]
    ) -> None: ...
    @staticmethod
    def slots_of(blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint32]: ...
    def find(self, text: str) -> int: ...
    def find_all(self, texts: list[str]) -> list[int]: ...
    def tolist(self) -> list[str]: ...
    def __getitem__(self, i: int) -> str: ...
    def __len__(self) -> int: ...

class VectorIndex:
    """Exact cosine search over unit float32 rows; a row's ordinal is its position."""

    def __init__(self, dim: int, *, kernel: str = "", keep_rows: bool = True) -> None: ...
    def add(self, rows: NDArray[np.float32]) -> NDArray[np.int64]: ...
    def search(
        self,
        query: NDArray[np.float32],
        k: int,
        *,
        mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
    def search_many(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
    def candidates(
        self,
        query: NDArray[np.float32],
        k: int,
        *,
        mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
    ) -> NDArray[np.int64]: ...
    def scores(self, query: NDArray[np.float32], ordinals: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def rows(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def erase(self, ordinals: NDArray[np.int64]) -> None: ...
    def restore(
        self,
        file: int,
        rows: int,
        *,
        codes_at: int,
        code_sums: NDArray[np.uint64],
        rows_at: int,
        row_sums: NDArray[np.uint64],
        alive: NDArray[np.bool_],
        resident: bool = True,
        at_once: bool = False,
    ) -> None: ...
    def refill(self, rows: NDArray[np.float32]) -> None: ...
    def codes(self, first: int) -> NDArray[np.uint8]: ...
    def __len__(self) -> int: ...
    @property
    def rows_in_file(self) -> int: ...
    @property
    def alive(self) -> NDArray[np.bool_]: ...
    @property
    def dim(self) -> int: ...
    @property
    def kernel(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

def score_rows(
    query: NDArray[np.float32], rows: NDArray[np.float32], *, kernel: str = ""
) -> NDArray[np.float32]:
    """Return the scores (n,) a search gives rows (n, dim) for a unit query (dim,), bit for bit."""

def quantize_rows(rows: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 codes (n, dim) and float32 scales (n,) of float32 rows (n, dim)."""

def maxsim(
    query: NDArray[np.int8],
    query_scales: NDArray[np.float32],
    docs: NDArray[np.int8],
    doc_scales: NDArray[np.float32],
    offsets: NDArray[np.int64],
    *,
    kernel: str = "",
) -> NDArray[np.float64]:
    """Return per document the sum over query tokens of the largest dot product, float64 (n,)."""

class Scratchpad:
    """Bounded map of str keys: least recently used out first, gone ttl seconds after their last use."""

    def __init__(
        self, max_size: int = 50, ttl: float | None = 300.0, clock: Callable[[], float] | None = None
    ) -> None: ...
    @overload
    def get(self, key: str) -> Any | None: ...
    @overload
    def get(self, key: str, default: Any) -> Any: ...
    def set(self, key: str, value: object) -> None: ...
    def delete(self, key: str, /) -> bool: ...
    def items(self) -> list[tuple[str, Any]]: ...
    def keys(self) -> list[str]: ...
    def values(self) -> list[Any]: ...
    def clear(self) -> None: ...
    def bind_context(self, names: builtins.set[str], values: dict[str, Any], /) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    @property
    def max_size(self) -> int: ...
    @property
    def ttl(self) -> float | None: ...

@final
class Lexicon:
    """BM25 over postings of uint32 term ids; append-only, readable as of any prefix of documents."""

    def __init__(self) -> None: ...
    def add(
        self, term_ids: NDArray[np.uint32], counts: NDArray[np.float32], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]: ...
    def search(
        self,
        terms: NDArray[np.uint32],
        k: int,
        *,
        weights: NDArray[np.float32] | None = None,
        mask: NDArray[np.bool_] | None = None,
        stats_mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        doc_count: float | None = None,
        mean_length: float | None = None,
        longest: float | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
    def scores(
        self,
        terms: NDArray[np.uint32],
        ordinals: NDArray[np.int64],
        *,
        weights: NDArray[np.float32] | None = None,
        mask: NDArray[np.bool_] | None = None,
        stats_mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        doc_count: float | None = None,
        mean_length: float | None = None,
        longest: float | None = None,
    ) -> NDArray[np.float64]: ...
    def group_lengths(
        self,
        groups: NDArray[np.int64],
        count: int,
        *,
        stats_mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
    ) -> NDArray[np.float64]: ...
    def group_scores(
        self,
        terms: NDArray[np.uint32],
        groups: NDArray[np.int64],
        lengths: NDArray[np.float64],
        *,
        stats_mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        longest: float | None = None,
    ) -> NDArray[np.float64]: ...
    def document_frequency(
        self,
        terms: NDArray[np.uint32],
        *,
        stats_mask: NDArray[np.bool_] | None = None,
        prefix: int | None = None,
    ) -> NDArray[np.int64]: ...
    def statistics(
        self, *, stats_mask: NDArray[np.bool_] | None = None, prefix: int | None = None
    ) -> tuple[int, float]: ...
    def erase(self, ordinals: NDArray[np.int64]) -> None: ...
    def parts(self) -> dict[str, NDArray[Any]]: ...
    @staticmethod
    def from_parts(
        terms: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        ordinals: NDArray[np.int64],
        counts: NDArray[np.float32],
        alive: NDArray[np.bool_],
    ) -> Lexicon: ...
    def __len__(self) -> int: ...
    @property
    def term_count(self) -> int: ...

@final
class Graph:
    """Undirected weighted graph over dense uint32 nodes; edges are append-only."""

    def __init__(self) -> None: ...
    def add_edges(
        self, src: NDArray[np.uint32], dst: NDArray[np.uint32], weight: NDArray[np.float32]
    ) -> None: ...
    def expand(
        self,
        seeds: NDArray[np.uint32],
        hops: int,
        *,
        prefix: int | None = None,
        mask: NDArray[np.bool_] | None = None,
        limit: int | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32]]: ...
    def personalized(
        self,
        seeds: NDArray[np.uint32],
        seed_weights: NDArray[np.float64],
        *,
        alpha: float = 0.15,
        epsilon: float = 1e-4,
        prefix: int | None = None,
        mask: NDArray[np.bool_] | None = None,
        limit: int | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.float64]]: ...
    @property
    def node_count(self) -> int: ...
    @property
    def edge_count(self) -> int: ...

def pagerank(
    n: int,
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    weight: NDArray[np.float32],
    *,
    damping: float = 0.85,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    directed: bool = False,
) -> NDArray[np.float64]:
    """Return PageRank float64 (n,), summing to 1; ranks of nodes without outgoing edges go to all nodes."""

def rrf(
    lists: Sequence[NDArray[np.int64]], k: float = 60.0, weights: Sequence[float] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the reciprocal rank fusion of ordinal arrays, each best first, as (ordinals, scores)."""

def convex(
    lists: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]], weights: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the weighted sum of max-normalised scores over the union of the lists as (ordinals, scores)."""

def smooth(
    scores: NDArray[np.float64],
    previous: NDArray[np.int64],
    next: NDArray[np.int64],
    session: NDArray[np.int64],
    *,
    previous_weight: float,
    next_weight: float,
    session_weight: float,
    session_top: int = 3,
) -> NDArray[np.float64]:
    """Return scores plus weighted scores of neighbouring candidates and the mean of their session's best."""

def top(
    ordinals: NDArray[np.int64], scores: NDArray[np.float64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the best k by (score descending, ordinal ascending)."""

def decay(
    age_days: NDArray[np.float64],
    idle_days: NDArray[np.float64],
    accesses: NDArray[np.int64],
    recent: NDArray[np.int64],
    *,
    age_rate: float | NDArray[np.float64] = 0.02,
    idle_rate: float | NDArray[np.float64] = 0.05,
    access_boost: float | NDArray[np.float64] = 0.1,
    access_cap: float | NDArray[np.float64] = 0.4,
    recent_boost: float | NDArray[np.float64] = 0.15,
) -> NDArray[np.float64]:
    """Return the strength in [0, 1] of each row; rates are numbers or arrays with one value per row."""

def strength_rows(
    rows: NDArray[np.int64],
    lineage: NDArray[np.int32],
    type: NDArray[np.int32],
    recorded: NDArray[np.int64],
    count: NDArray[np.int64],
    last: NDArray[np.int64],
    recent: NDArray[np.int64],
    rates: NDArray[np.float64],
    *,
    now: int,
    day: float,
) -> NDArray[np.float64]:
    """Return what `decay` gives for single rows of columns.

    lineage, type, recorded: by row. count, last, recent: by lineage. rates (types, 5). now, day: in units of
    recorded. Raises ValueError for lengths that do not fit, IndexError for rows and codes outside.
    """

def related(
    about: Sequence[NDArray[np.int64]],
    weights: Sequence[float],
    nodes: NDArray[np.uint32],
    hops: NDArray[np.int32],
    newest: NDArray[np.int64],
    *,
    step: float,
    depth: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the `depth` best rows: those about entities by summed weights, those h > 1 hops away by step / h."""

def places(lists: Sequence[NDArray[np.int64]], wanted: Sequence[int]) -> NDArray[np.int64]:
    """Return where each wanted ordinal stands in each list, -1 for nowhere; (lists, wanted)."""

def mmr(
    relevance: NDArray[np.float64], vectors: NDArray[np.float32], lam: float, k: int
) -> NDArray[np.int64]:
    """Return positions by maximal marginal relevance in the order chosen; vectors are unit rows."""

def pack(tokens: NDArray[np.int64], budget: int, *, overhead: int = 0) -> NDArray[np.int64]:
    """Return the positions of the items that fit the budget, tried in order."""

def pack_value(
    tokens: NDArray[np.int64], values: NDArray[np.float64], budget: int, *, overhead: int = 0
) -> NDArray[np.int64]:
    """Return the positions of the items that fit, ascending; tried by value per token descending."""

def near_duplicates(vectors: NDArray[np.float32], threshold: float) -> NDArray[np.int64]:
    """Return for each unit row the first earlier kept row with cosine >= threshold, or -1."""

def collect(
    lists: Sequence[NDArray[np.int64]],
    previous: NDArray[np.int64],
    next: NDArray[np.int64],
    mask: NDArray[np.bool_],
    *,
    reach: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the union of row lists with the turns around them: ordinals, and chosen, previous, next places."""

def relevance(
    chosen: NDArray[np.int64],
    lexical: NDArray[np.float64],
    cosine: NDArray[np.float64],
    coded: NDArray[np.bool_] | None = None,
    known: NDArray[np.int64] | None = None,
    similarity: NDArray[np.float64] | None = None,
    *,
    lexical_weight: float,
    cosine_weight: float,
    late_cosine_weight: float = 0.0,
    late_weight: float = 0.0,
    scale: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the addends of relevance per place of a pool: lexical, cosine, late; empty ones do not apply.

    lexical, cosine, coded (p,): per place. chosen (c,): the candidates' places. known (k,): candidate numbers
    with a similarity. Raises ValueError for lengths that do not fit, IndexError for places outside.
    """

def fuse(
    ordinals: NDArray[np.int64],
    chosen: NDArray[np.int64],
    previous: NDArray[np.int64],
    next: NDArray[np.int64],
    relevance: Sequence[NDArray[np.float64]],
    *,
    layers: Sequence[tuple[NDArray[np.int64], NDArray[np.float64], float]],
    given: Sequence[NDArray[np.float64]],
    turns: tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]] | None = None,
    turn_weights: Sequence[float] = ...,
    sessions: NDArray[np.int64] | None = None,
    session_weight: float = 0.0,
    session_top: int = 1,
    session_repeats: float = 0.0,
    logs: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the candidates of a pool, best first: rows (c,), scores (c,), addends (n, c) that scores are sums of.

    relevance: values per place. layers: (rows, scores, weight). turns: tokens, asks, has_role by row, with six
    weights and the gate. sessions: codes by row. given: values per candidate. Addends come in the order
    relevance, layers, turns, session, given, repeats. Raises ValueError for lengths that do not fit, IndexError
    for rows and places outside.
    """

def above_mean(
    scores: NDArray[np.float64], groups: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return for each row (its group's score - the rows' mean) / the best; 0 for rows of no group."""

def exact_sum(values: NDArray[np.float64]) -> float:
    """Return the sum rounded once, as `math.fsum` does."""

def turn_terms(
    ordinals: NDArray[np.int64],
    chosen: NDArray[np.int64],
    previous: NDArray[np.int64],
    next: NDArray[np.int64],
    base: NDArray[np.float64],
    tokens: NDArray[np.int32],
    asks: NDArray[np.bool_],
    has_role: NDArray[np.bool_],
    *,
    previous_weight: float,
    next_weight: float,
    second_previous_weight: float,
    second_next_weight: float,
    answer_weight: float,
    role_next_weight: float,
    gate: float,
) -> NDArray[np.float64]:
    """Return what the turns around each chosen row of a pool add to its score."""

def session_terms(
    ordinals: NDArray[np.int64],
    chosen: NDArray[np.int64],
    previous: NDArray[np.int64],
    next: NDArray[np.int64],
    base: NDArray[np.float64],
    sessions: NDArray[np.int64],
    *,
    weight: float,
    top: int,
) -> NDArray[np.float64]:
    """Return weight * mean of the best `top` scores among the chosen rows of each row's session."""

def bits_maxsim(
    query: NDArray[np.uint64],
    weights: NDArray[np.float64],
    codes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    *,
    kernel: str = ...,
) -> NDArray[np.float64]:
    """Return for each row the weighted mean over query codes of the best similarity among the row's codes."""

def coded_places(
    vectors: NDArray[np.int64],
    single: NDArray[np.bool_],
    chosen: NDArray[np.int64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Return which places (p,) have one vector and codes, the numbers of the chosen that do, and their vectors.

    vectors, single (p,): the vector of each place and whether it is its only one. starts, stops: by vector.
    """

def rarity(document_frequency: NDArray[np.int64], documents: float) -> NDArray[np.float64]:
    """Return BM25's inverse document frequency of each count."""
