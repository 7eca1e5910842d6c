"""The view as a file beside the store: read when it fits, rebuilt and reported when it does not, never trusted."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.determinism_run import QUESTIONS, Coded, answer, items

from twofold import AgentMemory
from twofold.index import cache
from twofold.index.closings import Closings
from twofold.index.columns import Codes, Column, Groups, Ragged, Sparse, Texts


def opened(place: Path, clock: Any) -> AgentMemory:
    return AgentMemory(place, embedder=Coded(), clock=clock)


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of some history whose view was written at closing."""
    monkeypatch.setattr("twofold.vault.CACHE_ROWS", 10)
    clock.set("2026-07-01T00:00:00Z")
    with opened(tmp_path, clock) as mem:
        made = mem.add_many(items())
        mem.link(made[3].id, made[7].id, "caused")
        mem.forget(made[10].id)
        mem.restore(made[10].id)
        mem.forget(made[11].id)
        mem.update(made[12].id, tags=["corrected"])
        mem.supersede(made[13].id, made[14].id)
        mem.add("The IP of server A is 10.0.0.1", key="a.ip")
        mem.add("The IP of server A is 10.0.0.2", key="a.ip")
        mem.recall(QUESTIONS[0])
        mem.flush()
    assert len(list((tmp_path / "twofold.db.cache").glob("*.index"))) == 1
    return tmp_path


def answers(mem: AgentMemory) -> list[Any]:
    return [answer(mem.recall(q, promote=False)) for q in QUESTIONS]


NOTICED = ("rebuilt:", "vectors read from the store")


def state(mem: AgentMemory) -> str:
    return next(c["detail"] for c in mem.health()["checks"] if c["name"] == "index file")


def the_file(place: Path) -> Path:
    (file,) = (place / "twofold.db.cache").glob("*.index")
    return file


def plain(value: Any) -> Any:
    if isinstance(value, Column):
        return value.view().tolist()
    if isinstance(value, Codes):
        return list(value.names)
    if isinstance(value, Groups):
        keys = {*value._keys.tolist(), *value._added}
        return {key: list(Groups.get(value, key)) for key in sorted(keys)}
    if isinstance(value, Sparse):
        return value.items()
    if isinstance(value, Texts | Ragged | Closings):
        return list(value)
    return value


def test_read_view_equals_a_rebuilt_one(place: Path, clock: Any) -> None:
    with opened(place, clock) as mem:
        read = mem._vault.index("default")
        assert state(mem).startswith("read at seq")
        assert mem.health()["healthy"]
        expected = answers(mem)
    shutil.rmtree(place / "twofold.db.cache")
    with opened(place, clock) as mem:
        rebuilt = mem._vault.index("default")
        assert answers(mem) == expected
    left_out = {"lock", "lexicon", "graph", "tag_matcher", "vectors", "_masks", "_views", "_rank"}
    for name, value in vars(rebuilt).items():
        if name not in left_out:
            assert plain(getattr(read, name)) == plain(value), name
    for number, part in rebuilt.vectors.items():
        rows = np.arange(len(part.index), dtype=np.int64)
        assert np.array_equal(part.index.rows(rows), read.vectors[number].index.rows(rows))
        assert len(part.codes) > 1000
        assert part.codes.tobytes() == read.vectors[number].codes.tobytes()


def test_what_came_after_the_file_is_fed(place: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.vault.CACHE_ROWS", 10**6)
    with opened(place, clock) as mem:
        new = mem.add("A zebra crossed the street", tags=["animals"])
    with opened(place, clock) as mem:
        assert mem.recall("zebra", k=1)[0].memory.id == new.id
        assert state(mem).startswith("read at seq")
        assert mem.health()["healthy"]
        assert mem.add("A zebra crossed the street").id == new.id


def test_first_row_after_opening_copies_no_column(
    place: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.vault.CACHE_ROWS", 10**6)
    with opened(place, clock) as mem:
        index = mem._vault.index("default")
        part = index.vectors[index.current_generation().number]
        columns = {name: column for name, column in vars(index).items() if isinstance(column, Column)}
        columns |= {name: getattr(part, name) for name in ("ordinals", "starts", "code_stops")}
        held = {name: (column._data, len(column)) for name, column in columns.items() if len(column) > 100}
        assert len(held) > 20
        new = mem.add("A zebra crossed the street", tags=["animals"])
        assert index is mem._vault.index("default")
        for name, (data, size) in held.items():
            assert columns[name]._data is data, name
            assert len(columns[name]) >= size
        assert len(index.row_seq) == held["row_seq"][1] + 1
        assert mem.health()["healthy"]
    with opened(place, clock) as mem:
        assert mem.recall("zebra", k=1)[0].memory.id == new.id
        assert mem.health()["healthy"]


@pytest.mark.parametrize("at_once", [0, 1 << 28])
def test_any_damaged_byte_is_noticed(
    place: Path, clock: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "AT_ONCE", at_once)
    with opened(place, clock) as mem:
        expected = answers(mem)
    file = the_file(place)
    good = file.read_bytes()
    for at in [*range(0, 40, 3), *range(40, len(good), max(1, len(good) // 30))]:
        file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with opened(place, clock) as mem:
            assert mem.health()["healthy"]  # which looks at every float row too
            assert state(mem).startswith(NOTICED), at
            if at % 7 == 0:
                assert answers(mem) == expected


def test_every_block_is_checked(place: Path, clock: Any) -> None:
    file = the_file(place)
    good = file.read_bytes()
    with cache.Saved(file) as saved:
        header, body = saved._header, saved._body
    rows_at = len(good) - 4 * header["vectors"]["dimension"] * header["vectors"]["count"]
    chance = random.Random(5)
    spots = {name: (body + at, size) for name, (_, _, at, size, _) in header["blocks"].items() if size}
    spots |= {"codes": (body + header["size"], rows_at - body - header["size"])}
    assert len(spots) > 60
    for name, (at, size) in spots.items():
        place_of_bit = at + chance.randrange(size)
        bit = 1 << chance.randrange(8)
        file.write_bytes(good[:place_of_bit] + bytes([good[place_of_bit] ^ bit]) + good[place_of_bit + 1 :])
        with opened(place, clock) as mem:
            mem.stats()
            assert state(mem).startswith("rebuilt:"), name


def test_damaged_row_is_taken_from_the_store_when_it_is_scored(
    place: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "AT_ONCE", 0)
    with opened(place, clock) as mem:
        expected = answers(mem)
    file = the_file(place)
    good = file.read_bytes()
    with cache.Saved(file) as saved:
        vectors = saved._header["vectors"]
    rows_at = len(good) - 4 * vectors["dimension"] * vectors["count"]
    file.write_bytes(good[:rows_at] + bytes(b ^ 0x40 for b in good[rows_at:]))
    with opened(place, clock) as mem:
        mem.stats()
        assert mem._vault.cache_state["default"].startswith("read at seq")
        assert answers(mem) == expected
        assert state(mem).startswith("vectors read from the store")
        assert not list((place / "twofold.db.cache").glob("*"))
        assert mem.health()["healthy"]


def test_rows_of_a_large_store_wait_in_the_file(
    place: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place, clock) as mem:
        assert mem.recall(QUESTIONS[0])
        index = mem._vault.index("default")
        assert index.vectors[index.current_generation().number].index.rows_in_file == 0
    monkeypatch.setattr(cache, "AT_ONCE", 0)
    with opened(place, clock) as mem:
        index = mem._vault.index("default")
        part = index.vectors[index.current_generation().number]
        assert part.index.rows_in_file == len(part.index) > 0
        stored, since = part._tokens
        assert stored is not None
        assert stored.count > 1000
        assert len(since) == 0
        mem.recall(QUESTIONS[0])
        assert part.index.rows_in_file < len(part.index)


def test_health_compares_token_codes(place: Path, clock: Any) -> None:
    with opened(place, clock) as mem:
        index = mem._vault.index("default")
        part = index.vectors[index.current_generation().number]
        assert mem.health()["healthy"]
        part._tokens[1].view()[-1] ^= np.uint64(1 << 40)
        broken = mem.health()
        assert not broken["healthy"]
        assert any("token codes of generation" in check["detail"] for check in broken["checks"])


@pytest.mark.parametrize("size", [0, 10, 100, 5000])
def test_cut_file_is_noticed(place: Path, clock: Any, size: int) -> None:
    file = the_file(place)
    file.write_bytes(file.read_bytes()[:size])
    with opened(place, clock) as mem:
        mem.stats()
        assert state(mem).startswith("rebuilt:")
        assert mem.health()["healthy"]


def test_file_of_another_log_is_refused(place: Path, clock: Any, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    with opened(other, clock) as mem:
        mem.add_many(items())
    shutil.copy(the_file(other), the_file(place))
    with opened(place, clock) as mem:
        mem.stats()
        assert state(mem) == "rebuilt: it was taken from another log"
        assert mem.health()["healthy"]


def test_erasure_removes_the_file(place: Path, clock: Any) -> None:
    with opened(place, clock) as mem:
        gone = mem.add("xylophone in the attic", tags=["quixotic"])
        mem._vault.save_cache("default")
        assert b"quixotic" in the_file(place).read_bytes()
        mem.erase(gone.id, reason="test")
        assert not list((place / "twofold.db.cache").glob("*.index"))
    for file in place.rglob("*"):
        if file.is_file():
            assert b"quixotic" not in file.read_bytes(), file
