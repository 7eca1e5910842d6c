"""Tables of strings and the checksum of the files they lie in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold import _core
from twofold.index.columns import Codes, encoded

NO_SLOTS = np.zeros(0, np.uint32)


def table(texts: list[str]) -> _core.Strings:
    blob, offsets = encoded(texts)
    return _core.Strings(blob, offsets, _core.Strings.slots_of(blob, offsets))


@given(st.lists(st.text(st.characters(codec=None), max_size=20), max_size=60), st.text(max_size=5))
def test_finds_what_is_in_it(texts: list[str], other: str) -> None:
    strings = table(texts)
    assert len(strings) == len(texts)
    assert strings.tolist() == texts == [strings[i] for i in range(len(texts))]
    for text in [*texts, other]:
        assert strings.find(text) == (texts.index(text) if text in texts else -1)


def test_lone_surrogates_and_zero_bytes() -> None:
    texts = ["\ud800", "a\0b", "a", "", "\udfff\ud800", "héé"]
    strings = table(texts)
    assert strings.tolist() == texts
    assert [strings.find(t) for t in texts] == list(range(len(texts)))


def test_without_slots_nothing_is_found() -> None:
    strings = _core.Strings(*encoded(["a", "b"]), NO_SLOTS)
    assert strings.find("a") == -1
    assert strings[-1] == "b"
    for outside in (2, -3):
        with pytest.raises(IndexError):
            strings[outside]


@pytest.mark.parametrize(
    "offsets, slots",
    [
        ([], []),
        ([1, 2], []),
        ([0, 3], []),
        ([0, 2, 1, 2], []),
        ([0, -5, 2], []),
        ([0, 1, 2], [0, 0, 0]),
        ([0, 1, 2], [0, 0]),
    ],
)
def test_parts_that_contradict_each_other(offsets: list[int], slots: list[int]) -> None:
    with pytest.raises(ValueError, match=r"offsets|slots"):
        _core.Strings(np.zeros(2, np.uint8), np.array(offsets, np.int64), np.array(slots, np.uint32))


def test_slots_that_lie_are_harmless() -> None:
    blob, offsets = encoded(["a", "b", "c"])
    strings = _core.Strings(blob, offsets, np.full(8, 2**32 - 1, np.uint32))
    assert strings.find("a") == -1  # every slot is taken by a string that does not exist


def test_checksum_is_part_of_the_format() -> None:
    # Written by this code; a change of the function must change the file's magic.
    known = {
        length: _core.checksum(bytes(i % 251 for i in range(length)))
        for length in (0, 1, 8, 63, 64, 65, 1000)
    }
    assert known == EXPECTED


EXPECTED: dict[int, int] = {
    0: 0x384CE061FA0471F0,
    1: 0xBB6F08C66D9C39C2,
    8: 0x81A368D90FA2A2B4,
    63: 0x621DF3A50034708F,
    64: 0xE6CA4DC79C9B95F4,
    65: 0x3DA0BE86EE8B1C16,
    1000: 0x4C562DEB8DF123C0,
}


@given(st.binary(min_size=1, max_size=400), st.data())
def test_checksum_notices_any_flipped_bit(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, 8 * len(content) - 1))
    other = bytearray(content)
    other[at // 8] ^= 1 << at % 8
    assert _core.checksum(bytes(other)) != _core.checksum(content)
    assert _core.checksum(content + b"\0") != _core.checksum(content)


def test_checksum_of_rows_and_of_buffers() -> None:
    rows = np.arange(5 * 40, dtype=np.uint8).reshape(5, 40)
    assert _core.checksum_rows(rows).tolist() == [_core.checksum(row.tobytes()) for row in rows]
    assert (
        _core.checksum(rows) == _core.checksum(rows.tobytes()) == _core.checksum(memoryview(rows.tobytes()))
    )
    with pytest.raises(ValueError, match="contiguous"):
        _core.checksum(rows[:, ::2])


def test_a_large_table_is_decoded_on_demand() -> None:
    names = [f"name {i}" for i in range(5000)]
    codes, plain = Codes(), Codes()
    codes.restore(table(names))
    for name in names:
        plain.add(name)
    for found in (codes, plain):
        assert found.get("name 4999") == 4999
        assert found.get("new") == -1
        assert found.add("name 7") == 7
        assert found.add("new") == 5000
        assert found.get("new") == 5000
        assert found.get_all(["new", "name 3", "name", "name 4999"]) == [5000, 3, -1, 4999]
        assert len(found) == 5001
        assert found.names[5000] == "new"
        assert found.names[-2] == "name 4999"
    assert list(codes.names) == plain.names
