"""The same store and question give the same bytes: hash seeds, processes, threads, kernels, ways to add."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

import pytest
from tests.determinism_run import ASKS, OTHER

from twofold import Profile
from twofold.core import kernels

SCRIPT = Path(__file__).with_name("determinism_run.py")


def run(
    folder: Path,
    way: str = "add_many",
    threads: int = 1,
    embedder: str = "hashing:128",
    part: str = "",
    **env: str,
) -> str:
    """The answers' bytes of one process."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), way, str(threads), embedder, part],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = run(tmp_path_factory.mktemp("base") / "x", PYTHONHASHSEED="0")
    answers = json.loads(out)
    # The comparison below would be empty if nothing were found.
    assert all(len(a[0]) for a in answers)
    assert len({a[4] for a in answers}) == len(answers)
    return out


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_hash_seed_and_process(expected: str, tmp_path: Path, seed: str) -> None:
    assert run(tmp_path / "x", PYTHONHASHSEED=seed) == expected


def test_four_threads(expected: str, tmp_path: Path) -> None:
    assert run(tmp_path / "x", threads=4, PYTHONHASHSEED="5") == expected


@pytest.mark.parametrize("level", kernels())
def test_kernel_level(expected: str, tmp_path: Path, level: str) -> None:
    assert run(tmp_path / "x", TWOFOLD_KERNEL=level) == expected


def test_added_one_by_one(expected: str, tmp_path: Path) -> None:
    assert run(tmp_path / "x", way="add") == expected


def test_numpy_without_wide_vectors(expected: str, tmp_path: Path) -> None:
    # numpy picks its own SIMD level; sums that depend on it would show here.
    assert run(tmp_path / "x", NPY_DISABLE_CPU_FEATURES="AVX512F AVX512CD AVX512_SKX AVX2 FMA3") == expected


@pytest.mark.model
def test_with_the_local_model(tmp_path: Path) -> None:
    first = run(tmp_path / "a", embedder="minilm", PYTHONHASHSEED="1", TWOFOLD_KERNEL="generic")
    assert run(tmp_path / "b", way="add", threads=4, embedder="minilm", PYTHONHASHSEED="2") == first


def options(folder: Path, **given: str | int) -> str:
    return run(folder, embedder="codes", part="options", **given)  # type: ignore[arg-type]


def test_every_constant_of_a_profile_is_among_the_options() -> None:
    assert set(OTHER) == {f.name for f in fields(Profile)} - {"name"}


def test_every_option_gives_the_same_bytes_everywhere(tmp_path: Path) -> None:
    first = options(tmp_path / "a", PYTHONHASHSEED="0", TWOFOLD_KERNEL="generic")
    answers = json.loads(first)
    a_question = 1 + len(OTHER) + len(ASKS)
    asked = [answers[i : i + a_question] for i in range(0, len(answers), a_question)]
    # An option that changes no answer would be compared with nothing (rrf_k acts where the fusion is by ranks).
    for place, name in enumerate(OTHER, 1):
        assert name == "rrf_k" or any(q[place][:2] != q[0][:2] for q in asked), name
    digest = sha256(
        first.encode()
    ).hexdigest()  # megabytes: a difference shown line by line would take minutes
    for i, level in enumerate(kernels()):
        env = {"PYTHONHASHSEED": str(i + 1), "TWOFOLD_KERNEL": level}
        again = options(tmp_path / level, threads=1 + 3 * (i % 2), **env)
        assert sha256(again.encode()).hexdigest() == digest, level
    again = options(
        tmp_path / "z", way="add", NPY_DISABLE_CPU_FEATURES="AVX512F AVX512CD AVX512_SKX AVX2 FMA3"
    )
    assert sha256(again.encode()).hexdigest() == digest
