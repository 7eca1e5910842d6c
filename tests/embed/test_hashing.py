"""The embedder without a model."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.embed import open_embedder
from twofold.embed.hashing import Hashing
from twofold.errors import InvalidInput

VISIBLE = st.text(min_size=1, max_size=60).filter(lambda t: t.strip() and t.isprintable())


@given(st.lists(VISIBLE, min_size=1, max_size=6))
def test_rows_are_unit_rows_and_do_not_depend_on_the_batch(texts: list[str]) -> None:
    embedder = Hashing(128)
    rows = embedder.embed_documents(texts)
    assert rows.shape == (len(texts), 128)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    for row, text in zip(rows, texts, strict=True):
        assert row.tobytes() == embedder.embed_query(text).tobytes()


def test_bytes_are_the_same_in_another_process_with_another_hash_seed() -> None:
    text = "The planner chose Rust 1.80 for 10.0.0.1; 规划器选择了Rust 😀"
    code = (
        "from twofold.embed.hashing import Hashing\n"
        f"print(Hashing(256).embed_query({text!r}).tobytes().hex())"
    )
    seen = {Hashing(256).embed_query(text).tobytes().hex()}
    for seed in ("0", "7"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout.strip())
    assert len(seen) == 1


@pytest.mark.parametrize(
    "query, near, far",
    [
        ("planner rust", "The planner chose Rust", "Lunch is at noon"),
        ("plannner chosse", "The planner chose Rust", "Lunch is at noon"),
        ("关键路径", "规划器决定在关键路径上使用Rust", "午饭在十二点"),
        ("サーバ", "サーバーの住所", "昼ご飯は正午です"),
        ("RUST", "rust", "dust"),
    ],
)
def test_shared_spelling_is_nearer(query: str, near: str, far: str) -> None:
    embedder = Hashing(512)
    vector = embedder.embed_query(query)
    rows = embedder.embed_documents([near, far])
    assert vector @ rows[0] > vector @ rows[1] + 0.1


def test_nothing_visible_but_symbols_still_has_a_vector() -> None:
    rows = Hashing(64).embed_documents(["...", "😀", "\u200b"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("dimension", [64, 512, 4096])
def test_dimension_is_what_was_asked_for(dimension: int) -> None:
    embedder = open_embedder(f"hashing:{dimension}")
    assert embedder is not None
    assert embedder.dimension == dimension == embedder.embed_query("x").shape[0]


@pytest.mark.parametrize("argument", ["63", "4097", "x", "-64", "6_4", "²", "64.0"])
def test_a_bad_dimension_is_refused(argument: str) -> None:
    with pytest.raises(InvalidInput):
        open_embedder(f"hashing:{argument}")


def test_each_dimension_has_its_own_fingerprint() -> None:
    assert Hashing(64).fingerprint != Hashing(65).fingerprint
    assert Hashing(64).fingerprint == Hashing(64, name="other").fingerprint
