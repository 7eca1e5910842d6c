"""The compiled core: whole-array functions. Wrong dtypes or strides are a TypeError, wrong values a ValueError."""

from typing import final

import numpy as np
from numpy.typing import NDArray

__version__: str

def kernel() -> str:
    """Return the instruction set of this process: generic, avx2, avx512 or neon."""

def kernels() -> list[str]:
    """Return the instruction sets this machine can run, best first."""

@final
class VectorIndex:
    """Exact cosine search over unit float32 rows; a row's ordinal is its position."""

    def __init__(self, dim: int, *, kernel: str = "") -> None: ...
    def add(self, rows: NDArray[np.float32]) -> NDArray[np.int64]: ...
    def search(
        self, query: NDArray[np.float32], k: int, *, mask: NDArray[np.bool_] | None = None, prefix: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
    def search_many(
        self, queries: NDArray[np.float32], k: int, *, mask: NDArray[np.bool_] | None = None, prefix: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
    def scores(self, query: NDArray[np.float32], ordinals: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def rows(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def erase(self, ordinals: NDArray[np.int64]) -> None: ...
    def __len__(self) -> int: ...
    @property
    def alive(self) -> NDArray[np.bool_]: ...
    @property
    def dim(self) -> int: ...
    @property
    def kernel(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

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
    """Return float64 (n,): per document the sum over query tokens of the largest dot product with its tokens."""
