"""The registry, the checks every embedder passes, lazy imports."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.embed import Embedder, open_embedder
from twofold.embed.base import check_texts, fingerprint, rough_spans, unit_rows
from twofold.embed.hashing import Hashing
from twofold.errors import EmbedderUnavailable, EmbeddingError, InvalidInput


def test_importing_the_package_loads_no_runtime_and_no_tokenizer() -> None:
    code = (
        "import sys, twofold.embed\n"
        "heavy = {'onnxruntime', 'tokenizers', 'torch', 'sentence_transformers', 'wordllama'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_none_and_an_embedder_pass_through() -> None:
    assert open_embedder(None) is None
    own = Hashing(64)
    assert open_embedder(own) is own
    assert isinstance(own, Embedder)


@pytest.mark.parametrize(
    "spec", ["", "nothing", "hashing:", "minilm:x", "minilm-int8:x", "e5:x", "static:glove", "openai", len, 3]
)
def test_unknown_specs_are_refused(spec: Any, tmp_path: Any) -> None:
    with pytest.raises(InvalidInput):
        open_embedder(spec, home=tmp_path)


@pytest.mark.parametrize(
    "spec, command",
    [
        ("auto", "`twofold model install`"),
        ("minilm", "`twofold model install`"),
        ("minilm-int8", "`twofold model install`"),
        ("e5", "`twofold model install e5`"),
        ("static:wordllama", "`twofold model install static:wordllama`"),
    ],
)
def test_a_model_that_is_not_installed_names_the_command(spec: str, command: str, tmp_path: Any) -> None:
    with pytest.raises(EmbedderUnavailable, match=command):
        open_embedder(spec, home=tmp_path)


def test_home_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(EmbedderUnavailable, match="elsewhere"):
        open_embedder("auto")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", [0, 2])
def test_bad_numbers_name_their_text(bad: float, row: int) -> None:
    rows = np.ones((3, 8))
    rows[row, 5] = bad
    with pytest.raises(EmbeddingError, match=f"thing gave NaN or infinite values for text {row + 10}"):
        unit_rows(rows, 3, 8, "thing", first=10)


def test_a_zero_vector_names_its_text() -> None:
    rows = np.ones((3, 8))
    rows[1] = 0
    with pytest.raises(EmbeddingError, match="thing gave a zero vector for text 1"):
        unit_rows(rows, 3, 8, "thing")


@pytest.mark.parametrize("shape", [(3, 7), (2, 8), (8,), (3, 8, 1)])
def test_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(EmbeddingError, match="shape"):
        unit_rows(np.ones(shape), 3, 8, "thing")


def test_rows_that_are_no_matrix_are_refused() -> None:
    with pytest.raises(EmbeddingError):
        unit_rows([[1.0, 2.0], [1.0]], 2, 2, "thing")
    with pytest.raises(EmbeddingError):
        unit_rows([["a", "b"]], 1, 2, "thing")


@given(
    st.lists(
        st.lists(st.floats(-1e15, 1e15, allow_subnormal=False), min_size=6, max_size=6).filter(
            lambda row: max(map(abs, row)) > 1e-15
        ),
        min_size=1,
        max_size=5,
    )
)
def test_rows_become_unit_rows_that_point_the_same_way(rows: list[list[float]]) -> None:
    unit = unit_rows(rows, len(rows), 6, "thing")
    assert unit.dtype == np.float32
    assert unit.flags.c_contiguous
    wide = np.array(rows)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, wide / lengths, atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(unit.astype(np.float64), axis=1), 1, atol=1e-6)


def test_no_rows_is_an_empty_matrix() -> None:
    assert unit_rows([], 0, 8, "thing").shape == (0, 8)


@pytest.mark.parametrize(
    "texts, index", [(["a", ""], 1), ([" \n\t"], 0), (["a", "b", "\ud800x"], 2), ([b"a"], 0), ([None], 0)]
)
def test_bad_texts_are_named(texts: Any, index: int) -> None:
    with pytest.raises(InvalidInput, match=f"text {index} "):
        check_texts(texts)


def test_one_string_is_no_sequence_of_texts() -> None:
    with pytest.raises(InvalidInput, match="sequence"):
        check_texts("abc")


def test_fingerprint_tells_apart_whatever_changes_a_vector() -> None:
    base: dict[str, Any] = {"dimension": 384, "window": 256}
    seen = {
        fingerprint("m", "r", **base),
        fingerprint("n", "r", **base),
        fingerprint("m", "s", **base),
        fingerprint("m", "r", dimension=385, window=256),
        fingerprint("m", "r", dimension=384, window=255),
        fingerprint("m", "r", **base, pooling="cls"),
        fingerprint("m", "r", **base, query_prefix="query: "),
        fingerprint("m", "r", **base, document_prefix="query: "),
        fingerprint("m", "r", **base, document_prefix="';document='"),
    }
    assert len(seen) == 9


@given(st.text(max_size=200))
def test_rough_spans_cover_every_visible_character_once(text: str) -> None:
    spans = rough_spans(text)
    assert all(a < b <= c < d for (a, b), (c, d) in itertools.pairwise(spans))
    covered = "".join(text[a:b] for a, b in spans)
    assert covered == "".join(ch for ch in text if not ch.isspace())
