"""The events that ended rows, in the order of the log and by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from twofold.index.columns import Groups, Strings, encoded, grouped


class Closing(NamedTuple):
    """An event that ended a row's valid time (axis "valid") or transaction time (axis "known")."""

    seq: int
    ordinal: int
    axis: str
    at: int  # valid axis: the end of validity; known axis: when it was recorded
    by: str | None  # id of the superseding memory
    kind: str
    rule: str


class Closings:
    """What was read from a file is decoded row by row, all of it when all is asked for."""

    def __init__(self) -> None:
        self._order: list[Closing] = []
        self._of: dict[int, list[Closing]] = {}
        self._stored: tuple[npt.NDArray[np.int64], Strings, list[list[str]], Groups] | None = None

    def add(self, closing: Closing) -> None:
        self._order.append(closing)
        self._of.setdefault(closing.ordinal, []).append(closing)

    def get(self, ordinal: int, default: Sequence[Closing] = ()) -> Sequence[Closing]:
        """Those of a row, in order, voided ones too."""
        if self._stored is not None:
            earlier = [self._decode(i) for i in self._stored[3].get(int(ordinal))]
            return earlier + self._of.get(ordinal, []) or default
        return self._of.get(ordinal, default)

    def in_order(self) -> list[Closing]:
        """All of them; not to be changed."""
        if self._stored is not None:
            order = [self._decode(i) for i in range(len(self._stored[0]))] + self._order
            of: dict[int, list[Closing]] = {}
            for closing in order:
                of.setdefault(closing.ordinal, []).append(closing)
            self._order, self._of, self._stored = order, of, None
        return self._order

    def __iter__(self) -> Iterator[Closing]:
        return iter(self.in_order())

    def _decode(self, i: int) -> Closing:
        assert self._stored is not None
        numbers, ids, words, _ = self._stored
        seq, ordinal, at, axis, kind, rule = numbers[i].tolist()
        return Closing(seq, ordinal, words[0][axis], at, ids[i] or None, words[1][kind], words[2][rule])

    def arrays(self) -> tuple[dict[str, npt.NDArray[Any]], list[list[str]]]:
        """For a file: arrays by name, and the words that stand in them as numbers."""
        order = self.in_order()
        words = [sorted({getattr(c, name) for c in order}) for name in ("axis", "kind", "rule")]
        number = [{word: i for i, word in enumerate(known)} for known in words]
        numbers = np.array(
            [
                (c.seq, c.ordinal, c.at, number[0][c.axis], number[1][c.kind], number[2][c.rule])
                for c in order
            ],
            np.int64,
        ).reshape(-1, 6)
        blob, offsets = encoded([c.by or "" for c in order])
        keys, starts, rows = grouped(numbers[:, 1], np.arange(len(order), dtype=np.int64))
        named: dict[str, npt.NDArray[Any]] = {"numbers": numbers, "blob": blob, "offsets": offsets}
        return {**named, "keys": keys, "starts": starts, "rows": rows}, words

    def restore(self, arrays: dict[str, npt.NDArray[Any]], words: list[list[str]]) -> None:
        """Take what `arrays` gave."""
        ids = Strings(arrays["blob"], arrays["offsets"], np.zeros(0, np.uint32))
        groups = Groups()
        groups.restore(arrays["keys"], arrays["starts"], arrays["rows"])
        if not len(ids) == len(arrays["numbers"]) == len(arrays["rows"]):
            raise ValueError("closings are of different lengths")
        self._stored = (arrays["numbers"], ids, words, groups) if len(ids) else None
