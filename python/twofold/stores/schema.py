"""What stores agree on: how a Row becomes columns, what an erased row keeps, and when a batch may be applied.

No SQL dialect lives here; a store for another database uses these rules unchanged.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from twofold.errors import InvalidInput, StoreCorrupt, StoreError, TwofoldError
from twofold.model import Batch, Event, Generation, Head, IndexRow, Kind, Row, Vectors

P = ParamSpec("P")
R = TypeVar("R")

ROW_COLUMNS: Final = Row._fields
INDEX_COLUMNS: Final = IndexRow._fields
EVENT_COLUMNS: Final = Event._fields

# Lists are stored as JSON arrays, with "" for the empty one, which is by far the most frequent.
_LISTS: Final = ("tags", "entities", "derived_from")
_ROW_LISTS: Final = tuple(ROW_COLUMNS.index(name) for name in _LISTS)
_ROW_PINNED: Final = ROW_COLUMNS.index("pinned")
_INDEX_LISTS: Final = tuple(INDEX_COLUMNS.index(name) for name in _LISTS if name in INDEX_COLUMNS)
_INDEX_PINNED: Final = INDEX_COLUMNS.index("pinned")

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode: Final = json.JSONDecoder().raw_decode
_as_index: Final = attrgetter(*INDEX_COLUMNS)

_ADDS: Final = frozenset((Kind.ADD.value, Kind.UPDATE.value))


def row_values(row: Row) -> list[Any]:
    """A row as plain column values in ROW_COLUMNS order; `erased` becomes 0 or 1."""
    values: list[Any] = list(row)
    for at in _ROW_LISTS:
        values[at] = _encode(values[at]) if values[at] else ""
    values[_ROW_PINNED] = int(values[_ROW_PINNED])
    values[-1] = int(values[-1])
    return values


def row_of(values: Iterable[Any]) -> Row:
    """The row of column values in ROW_COLUMNS order (the inverse of `row_values`)."""
    found = list(values)
    for at in _ROW_LISTS:
        text = found[at]
        if not text:
            found[at] = ()
            continue
        if (plain := _plain_list(text)) is not None:
            found[at] = plain
            continue
        found[at] = _list_of(text, found[0])
        # One text for one list: whatever else decodes to it was not written by us.
        if _encode(found[at]) != text:
            raise StoreCorrupt(
                f"row {found[0]} has {ROW_COLUMNS[at]} that are no list of strings: {text[:80]!r}"
            )
    if found[_ROW_PINNED] not in (0, 1):
        raise StoreCorrupt(f"row {found[0]} is pinned {found[_ROW_PINNED]}, which is neither 0 nor 1")
    found[_ROW_PINNED] = found[_ROW_PINNED] == 1
    found[-1] = found[-1] == 1
    return Row._make(found)


_PLAIN: Final = re.compile(r'\["[^"\\]*+(?:","[^"\\]*+)*+"\]').fullmatch


def _plain_list(text: Any) -> tuple[str, ...] | None:
    """The list of a text that is surely its canonical JSON (nothing escaped or unprintable); None: look closer."""
    if not isinstance(text, str) or not _PLAIN(text) or not text.isprintable():
        return None
    return tuple(text[2:-2].split('","'))


def _list_of(text: str, ordinal: Any) -> tuple[str, ...]:
    try:
        return tuple(_decode(text)[0])
    except (ValueError, TypeError):
        raise StoreCorrupt(
            f"row {ordinal} has a damaged list {text[:80]!r}; run `twofold verify`, or restore a backup"
        ) from None


def index_rows_of(records: Iterable[Sequence[Any]]) -> list[IndexRow]:
    """Index rows of column values in INDEX_COLUMNS order."""
    rows: list[IndexRow] = []
    new = tuple.__new__  # IndexRow._make checks a length that the column list already fixes
    seen: dict[str, tuple[str, ...]] = {"": ()}  # the same tags come again and again
    for record in records:
        values = list(record)
        for at in _INDEX_LISTS:
            text = values[at]
            found = seen.get(text)
            if found is None:
                found = seen[text] = _list_of(text, values[0])
            values[at] = found
        values[_INDEX_PINNED] = values[_INDEX_PINNED] == 1
        values[-1] = values[-1] == 1
        rows.append(new(IndexRow, values))
    return rows


def index_row(row: Row) -> IndexRow:
    """The part of a row that views in RAM are built from."""
    return IndexRow._make(_as_index(row))


# What an erased row holds instead of its content. `generation` goes with the vectors.
BLANK: Final[dict[str, Any]] = {
    "content": "",
    "tags": (),
    "entities": (),
    "key": None,
    "frame": None,
    "confidence": 0.0,
    "pinned": False,
    "metadata": "{}",
    "event_at": None,
    "speaker": None,
    "source_id": None,
    "content_hash": "",
    "session_id": None,
    "derived_from": (),
    "tokens": 0,
    "traits": 0,
    "lexemes": "{}",
    "generation": None,
}


def blank(row: Row) -> Row:
    """The tombstone of a row: ordinal, seq, id, version, namespace, type, who and when; no content."""
    return row._replace(**BLANK, erased=True)


def blank_values() -> dict[str, Any]:
    """BLANK as column values, by column."""
    return {
        name: "" if name in _LISTS else int(value) if name == "pinned" else value
        for name, value in BLANK.items()
    }


def adds_row(event: Event) -> bool:
    """Whether the event came with a row of its own."""
    return event.kind in _ADDS


def check_batch(head: Head, batch: Batch) -> Head:
    """The head after a batch. StoreError when the batch does not continue `head` or contradicts itself."""
    events, first, at = batch.events, head.seq + 1, head.recorded_at
    adds = 0
    for seq, event in enumerate(events, first):
        if event.seq != seq:
            raise StoreError(
                f"event {event.seq} does not continue the log, which expects seq {seq}; "
                "build the batch from the transaction's head"
            )
        if event.at < at:
            raise StoreError(f"event {seq} is recorded at {event.at} us, before its predecessor at {at} us")
        at = event.at
        adds += event.kind in _ADDS
    if adds != len(batch.rows):
        raise StoreError(f"{adds} add and update events came with {len(batch.rows)} rows; each needs its own")
    for ordinal, row in enumerate(batch.rows, head.rows):
        if row.ordinal != ordinal:
            raise StoreError(f"row {row.ordinal} does not continue the rows, which expect ordinal {ordinal}")
        if not 0 <= row.seq - first < len(events):
            raise StoreError(f"row {ordinal} names seq {row.seq}, which is no event of its batch")
        event = events[row.seq - first]
        if event.kind not in _ADDS or event.ordinal != ordinal:
            raise StoreError(
                f"event {row.seq} ({event.kind}, ordinal {event.ordinal}) did not add row {ordinal}"
            )
        if row.recorded_at != event.at:
            raise StoreError(f"row {ordinal} is recorded at {row.recorded_at} us, its event at {event.at} us")
        if row.erased and row != blank(row):
            raise StoreError(f"row {ordinal} is marked erased and still has content")
    if (batch.erase_rows or batch.erase_events or batch.erase_receipts) and not any(
        event.kind == Kind.ERASE for event in events
    ):
        raise StoreError("a batch that erases needs an erase event, so that the log shows it")
    if not events:
        return head
    return Head(head.seq + len(events), head.rows + len(batch.rows), at, events[-1].hash)


def check_generations(known: dict[int, Generation], batch: Batch, head: Head) -> dict[int, Generation]:
    """The tenant's generations after a batch that leads to `head`.

    Numbers only grow, and so do those of the current ones: rows may name a generation that was dropped, whose
    number must not mean another one later.
    """
    after = dict(known)
    for generation in sorted(batch.generations, key=lambda one: one.number):
        old = after.get(generation.number)
        if old is None and any(number > generation.number for number in after):
            raise StoreError(
                f"generation {generation.number} is not new: the last one is {max(after)}, so take {max(after) + 1}"
            )
        if old is not None and (old.fingerprint, old.dimension) != (
            generation.fingerprint,
            generation.dimension,
        ):
            raise StoreError(
                f"generation {generation.number} is {old.fingerprint} ({old.dimension}); "
                f"it cannot become {generation.fingerprint} ({generation.dimension})"
            )
        if old is not None and old.seq is not None and old.seq != generation.seq:
            raise StoreError(f"generation {generation.number} is current since seq {old.seq} already")
        if generation.seq is not None and not 0 < generation.seq <= head.seq:
            raise StoreError(f"generation {generation.number} cannot be current since seq {generation.seq}")
        after[generation.number] = generation
    since = [one.seq for _, one in sorted(after.items()) if one.seq is not None]
    if any(one >= other for one, other in itertools.pairwise(since)):
        raise StoreError(f"generations must become current in the order of their numbers, not at seq {since}")
    current = current_generation(after)
    for number in batch.drop_generations:
        if number not in after:
            raise StoreError(f"there is no generation {number} to drop")
        if number == current:
            raise StoreError(
                f"generation {number} is the current one; make another current before dropping it"
            )
        del after[number]
    return after


def current_generation(generations: dict[int, Generation]) -> int | None:
    """The number of the generation that became current last."""
    since = [(one.seq, number) for number, one in generations.items() if one.seq is not None]
    return max(since)[1] if since else None


def check_vectors(vectors: Vectors, generations: dict[int, Generation], rows: int) -> None:
    """Refuse vectors of an unknown generation, of another shape, or of rows that do not exist."""
    generation = generations.get(vectors.generation)
    if generation is None:
        raise StoreError(f"vectors of generation {vectors.generation}, which the tenant does not have")
    n = len(vectors)
    data = vectors.data
    if data.dtype != np.float32 or data.shape != (n, generation.dimension) or not data.flags.c_contiguous:
        raise InvalidInput(
            f"vectors of generation {generation.number} must be C-contiguous float32 of shape "
            f"({n}, {generation.dimension}), not {data.dtype} {data.shape}"
        )
    if not len(vectors.parts) == len(vectors.starts) == len(vectors.stops) == len(vectors.codes) == n:
        raise InvalidInput(f"{n} vectors need as many parts, starts, stops and codes")
    if n and not 0 <= int(vectors.ordinals.min()) <= int(vectors.ordinals.max()) < rows:
        raise StoreError(f"vectors of rows outside 0..{rows - 1}")


def check_pending(vectors: Vectors, generations: dict[int, Generation], rows: int) -> None:
    """As `check_vectors`, for a generation that is still being written."""
    check_vectors(vectors, generations, rows)
    since = generations[vectors.generation].seq
    if since is not None:
        raise StoreError(
            f"generation {vectors.generation} is in use since seq {since}; its vectors come with their rows"
        )


def check_erasures(batch: Batch, after: Head) -> None:
    """Refuse to erase rows and events that do not exist."""
    for ordinal in batch.erase_rows:
        if not 0 <= ordinal < after.rows:
            raise StoreError(f"there is no row {ordinal} to erase; the rows are 0 to {after.rows - 1}")
    for seq in batch.erase_events:
        if not 0 < seq <= after.seq:
            raise StoreError(f"there is no event {seq} to erase; the log goes to {after.seq}")


def check_coverage(batch: Batch, generations: dict[int, Generation]) -> None:
    """Every new row must bring a vector of the generation it names, and only pending ones reach older rows.

    So the vectors that an entry of the log committed to are never replaced.
    """
    first_row = batch.rows[0].ordinal if batch.rows else 2**63
    first_seq = batch.events[0].seq if batch.events else 2**63
    have: dict[int, set[int]] = {}
    for vectors in batch.vectors:
        ordinals = set(vectors.ordinals.tolist())
        have.setdefault(vectors.generation, set()).update(ordinals)
        since = generations[vectors.generation].seq if vectors.generation in generations else None
        if since is not None and since < first_seq and any(ordinal < first_row for ordinal in ordinals):
            raise StoreError(
                f"row {min(ordinals)} has its vectors of generation {vectors.generation}, in use since seq {since}"
            )
    for row in batch.rows:
        number = row.generation
        if number is None or number not in generations:  # dropped generations live on in migrated rows
            continue
        if generations[number].seq is None:
            raise StoreError(f"row {row.ordinal} names generation {number}, which is not current yet")
        if row.ordinal not in have.get(number, ()):
            raise StoreError(f"row {row.ordinal} names generation {number} and brings no vector of it")
    fresh = {row.ordinal for row in batch.rows if row.erased}
    for number, owners in have.items():
        if fresh & owners:
            raise StoreError(f"erased row {min(fresh & owners)} must not have a vector (generation {number})")


UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What stored values raise that are not what was written: half a JSON text, a number no date has, another type."""


def unreadable(error: Exception) -> StoreCorrupt:
    """The error of a store whose values cannot be what was written."""
    return StoreCorrupt(
        f"what is stored contradicts itself ({type(error).__name__}: {error}); run `twofold verify` to see where, "
        "then restore a backup (`twofold restore-backup`)"
    )


def reads_stored(function: Callable[P, R]) -> Callable[P, R]:
    """For functions whose only input is what the store holds: what they cannot read is StoreCorrupt."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TwofoldError:
            raise
        except UNREADABLE as error:
            raise unreadable(error) from error

    return wrapper
