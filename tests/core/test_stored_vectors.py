"""A vector index taken from a file gives the bits of one filled in RAM, and notices what is damaged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold import _core

WAYS = ({"at_once": True}, {"resident": True}, {"resident": False})


def unit_rows(count: int, dim: int, seed: int) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def filled(rows: npt.NDArray[np.float32], erased: list[int]) -> _core.VectorIndex:
    index = _core.VectorIndex(rows.shape[1])
    index.add(rows)
    index.erase(np.array(erased, np.int64))
    return index


@contextmanager
def stored(index: _core.VectorIndex, path: Path) -> Iterator[dict[str, Any]]:
    """The index in a file, and what `restore` is to be told of it."""
    count = len(index)
    codes = [index.codes(first) for first in range(0, count, 256)]
    rows = index.rows(np.arange(count, dtype=np.int64))
    before = b"something else"
    path.write_bytes(before + b"".join(c.tobytes() for c in codes) + rows.tobytes())
    with path.open("rb") as file:
        yield {
            "file": file.fileno(),
            "rows": count,
            "codes_at": len(before),
            "code_sums": np.array([_core.checksum(c) for c in codes], np.uint64),
            "rows_at": len(before) + sum(c.nbytes for c in codes),
            "row_sums": _core.checksum_rows(rows.view(np.uint8).reshape(count, 4 * index.dim)),
            "alive": index.alive,
        }


def restored(about: dict[str, Any], dim: int, way: dict[str, bool], kernel: str = "") -> _core.VectorIndex:
    index = _core.VectorIndex(dim, kernel=kernel)
    index.restore(
        about["file"], about["rows"], **{k: v for k, v in about.items() if k not in ("file", "rows")}, **way
    )
    return index


@pytest.mark.parametrize("kernel", _core.kernels())
@pytest.mark.parametrize("dim", [1, 7, 16, 100, 384])
def test_same_bits_as_in_ram(tmp_path: Path, dim: int, kernel: str) -> None:
    count, chance = 1111, np.random.default_rng(dim)
    rows = unit_rows(count, dim, 1)
    erased = [0, 5, 15, 16, 255, 256, 1110]
    plain = filled(rows, erased)
    later = unit_rows(40, dim, 2)
    plain.add(later)
    plain.erase(np.array([3, 1120], np.int64))
    with stored(filled(rows, erased), tmp_path / "v") as about:
        for way in WAYS:
            index = restored(about, dim, way, kernel)
            assert index.rows_in_file == (0 if "at_once" in way else count)
            index.add(later)
            index.erase(np.array([3, 1120], np.int64))
            assert index.alive.tolist() == plain.alive.tolist()
            for part in (1.0, 0.5, 0.02):
                mask = chance.random(len(plain)) < part
                query = unit_rows(1, dim, 7)[0]
                for options in ({}, {"mask": mask}, {"mask": mask, "prefix": 900}):
                    for k in (1, 10, 300):
                        for mine, theirs in zip(
                            index.search(query, k, **options), plain.search(query, k, **options), strict=True
                        ):
                            assert np.array_equal(mine, theirs)
            some = chance.permutation(len(plain))[:200]
            assert np.array_equal(index.scores(query, some), plain.scores(query, some))
            every = np.arange(len(plain), dtype=np.int64)
            assert np.array_equal(index.rows(every), plain.rows(every))
            for first in range(0, len(plain), 256):
                assert np.array_equal(index.codes(first), plain.codes(first))
            if way.get("resident") is False:
                assert index.rows_in_file >= count - 1  # nothing stays but what was erased since


def test_rows_stay_once_read(tmp_path: Path) -> None:
    rows = unit_rows(600, 32, 3)
    with stored(filled(rows, []), tmp_path / "v") as about:
        index = restored(about, 32, {"resident": True})
    (tmp_path / "v").unlink()  # the descriptor is the index's own
    ordinals = np.arange(0, 600, 3, dtype=np.int64)
    index.scores(rows[0], ordinals)
    assert index.rows_in_file == 400
    assert index.nbytes < filled(rows, []).nbytes
    index.rows(np.arange(600, dtype=np.int64))
    assert index.rows_in_file == 400  # copies fill nothing
    index.scores(rows[0], np.arange(600, dtype=np.int64))
    assert index.rows_in_file == 0


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_noticed_and_mended(tmp_path: Path, way: dict[str, bool]) -> None:
    rows = unit_rows(300, 24, 4)
    plain = filled(rows, [7])
    path = tmp_path / "v"
    with stored(plain, path) as about:
        good = path.read_bytes()
        chance = np.random.default_rng(0)
        for at in chance.integers(about["codes_at"], len(good), 60).tolist():
            path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
            if at < about["rows_at"] or "at_once" in way:
                with pytest.raises(_core.Damaged, match="damaged"):
                    restored(about, 24, way)
                continue
            index = restored(about, 24, way)
            bad = (at - about["rows_at"]) // (4 * 24)
            if bad == 7:
                continue  # erased: it is not read
            others = np.setdiff1d(np.arange(300, dtype=np.int64), [bad])
            assert np.array_equal(index.scores(rows[0], others), plain.scores(rows[0], others))
            one = np.array([bad], np.int64)
            for ask, arguments in (
                (index.search, (rows[0], 300)),
                (index.scores, (rows[0], one)),
                (index.rows, (one,)),
            ):
                with pytest.raises(_core.Damaged, match=f"row {bad} is damaged"):
                    ask(*arguments)
            with pytest.raises(ValueError, match="300 rows"):
                index.refill(rows[:299])
            index.refill(rows)
            assert index.rows_in_file == 0
            for mine, theirs in zip(index.search(rows[0], 300), plain.search(rows[0], 300), strict=True):
                assert np.array_equal(mine, theirs)


def test_a_cut_file(tmp_path: Path) -> None:
    rows = unit_rows(300, 24, 5)
    path = tmp_path / "v"
    with stored(filled(rows, []), path) as about:
        index = restored(about, 24, {"resident": True})
        good = path.read_bytes()
        path.write_bytes(good[:-10])
        with pytest.raises(_core.Damaged, match="end is missing"):
            index.scores(rows[0], np.array([299], np.int64))
        path.write_bytes(good[: about["rows_at"] - 1])
        with pytest.raises(_core.Damaged, match="end is missing"):
            restored(about, 24, {"resident": True})


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with stored(filled(unit_rows(300, 24, 6), []), tmp_path / "v") as about:
        for wrong in (
            {"rows": 299},
            {"code_sums": about["code_sums"][:1]},
            {"row_sums": about["row_sums"][:-1]},
            {"alive": about["alive"][:-1]},
            {"rows": -1},
        ):
            with pytest.raises(ValueError, match=r"fit|negative"):
                restored({**about, **wrong}, 24, {})
        with pytest.raises(_core.Damaged):
            restored({**about, "file": 10_000}, 24, {})
        index = restored(about, 24, {})
        with pytest.raises(ValueError, match="empty"):
            index.restore(about["file"], 300, **{k: v for k, v in about.items() if k not in ("file", "rows")})


def test_threads_read_the_same_rows(tmp_path: Path) -> None:
    rows = unit_rows(2000, 48, 8)
    plain = filled(rows, [])
    with stored(plain, tmp_path / "v") as about:
        index = restored(about, 48, {"resident": True})
    wrong: list[int] = []

    def ask(seed: int) -> None:
        for query in unit_rows(60, 48, seed):
            mine, theirs = index.search(query, 40), plain.search(query, 40)
            if not all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True)):
                wrong.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
