"""The compiled pieces as a drop-in module of their own: exact vector search, BM25, graph walks, fusion, packing.

Whole numpy arrays in, whole numpy arrays out; the GIL is released inside; equal scores come by ordinal. The same
bits on every instruction set (`kernel()` tells which is active, TWOFOLD_KERNEL forces one).
"""

from __future__ import annotations

from twofold._core import (
    Graph,
    Lexicon,
    Scratchpad,
    VectorIndex,
    __version__,
    convex,
    decay,
    kernel,
    kernels,
    maxsim,
    mmr,
    near_duplicates,
    pack,
    pack_value,
    pagerank,
    quantize_rows,
    rrf,
    smooth,
    top,
)

__all__ = [
    "Graph",
    "Lexicon",
    "Scratchpad",
    "VectorIndex",
    "__version__",
    "convex",
    "decay",
    "kernel",
    "kernels",
    "maxsim",
    "mmr",
    "near_duplicates",
    "pack",
    "pack_value",
    "pagerank",
    "quantize_rows",
    "rrf",
    "smooth",
    "top",
]
