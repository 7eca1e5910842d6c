"""Plain data that crosses the layers: memories, stored rows, events, heads. No behaviour beyond conversion."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from twofold.errors import StoreCorrupt


class Role(StrEnum):
    """What an agent is for; `access.py` says what each may do."""

    ORCHESTRATOR = "orchestrator"
    PLANNER = "planner"
    EXECUTOR = "executor"
    RESEARCHER = "researcher"
    REVIEWER = "reviewer"
    MONITOR = "monitor"


class Visibility(StrEnum):
    """Who may see a row inside the namespaces it is readable in."""

    PUBLIC = "public"
    TEAM = "team"
    PRIVATE = "private"


class Kind(StrEnum):
    """What an event of the log did. Every event has its own sequence number."""

    ADD = "add"  # a row
    UPDATE = "update"  # a row that ends `closes` (an ordinal) in transaction time
    SUPERSEDE = "supersede"  # ends `ordinal` in valid time
    FORGET = "forget"  # ends `ordinal` in transaction time
    ARCHIVE = "archive"  # as forget, by garbage collection
    RESTORE = "restore"  # voids the closing event `voids`
    LINK = "link"  # an edge between two memories
    ACCESS = "access"  # memories returned by recalls
    FEEDBACK = "feedback"
    SUGGEST = "suggest"  # a supersession the automatic rule was not sure of
    FLAG = "flag"  # a review request
    GENERATION = "generation"  # an embedding generation becomes the current one
    MAINTAIN = "maintain"
    RECEIPT = "receipt"  # a kept receipt
    REFUSE = "refuse"  # a refused action, for the audit
    ERASE = "erase"  # content removed; a tombstone stays


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of one memory, with the intervals it held in at the state it was read from.

    Times are zoned datetimes in UTC; `valid_to` and `closed_at` are None while open.
    """

    id: str
    ordinal: int
    version: int
    tenant: str
    namespace: str
    content: str
    memory_type: str
    tags: tuple[str, ...]
    entities: tuple[str, ...]
    key: str | None
    confidence: float
    pinned: bool
    metadata: Mapping[str, Any]
    event_date: dt.datetime | None
    speaker: str | None
    visibility: str
    source_id: str | None
    content_hash: str
    ingest_timestamp: dt.datetime
    agent_id: str
    agent_role: str
    session_id: str | None
    derived_from: tuple[str, ...]
    valid_from: dt.datetime
    valid_to: dt.datetime | None
    recorded_at: dt.datetime
    closed_at: dt.datetime | None
    superseded_by: str | None
    access_count: int
    last_accessed_at: dt.datetime | None
    embedding: int | None

    @property
    def valid_until(self) -> dt.datetime | None:
        """Alias of `valid_to`."""
        return self.valid_to


TRAIT_ASKS = 1  # ends with a question mark: the next turn is likely its answer


class Row(NamedTuple):
    """One version as it is stored: immutable, closings are events. Instants are microseconds (UTC).

    `lexemes` is canonical JSON {term: weighted count}; `metadata` canonical JSON; `frame` is the canonical JSON
    [entity, attribute, value] of a statement that the supersession rule understood; `traits` a bit set of what
    the content is like (TRAIT_*). An erased row keeps its ordinal, seq, id, version, namespace and times, and
    nothing of its content.
    """

    ordinal: int
    seq: int
    id: str
    version: int
    namespace: str
    content: str
    memory_type: str
    tags: tuple[str, ...]
    entities: tuple[str, ...]
    key: str | None
    frame: str | None
    confidence: float
    pinned: bool
    metadata: str
    event_at: int | None
    speaker: str | None
    visibility: str
    source_id: str | None
    content_hash: str
    recorded_at: int
    agent_id: str
    agent_role: str
    session_id: str | None
    derived_from: tuple[str, ...]
    valid_from: int
    tokens: int
    traits: int
    lexemes: str
    generation: int | None
    erased: bool = False


class IndexRow(NamedTuple):
    """The part of a Row that views in RAM are built from (no content)."""

    ordinal: int
    seq: int
    id: str
    version: int
    namespace: str
    memory_type: str
    tags: tuple[str, ...]
    entities: tuple[str, ...]
    key: str | None
    frame: str | None
    confidence: float
    pinned: bool
    metadata: str
    event_at: int | None
    speaker: str | None
    visibility: str
    content_hash: str
    recorded_at: int
    agent_id: str
    session_id: str | None
    valid_from: int
    tokens: int
    traits: int
    lexemes: str
    erased: bool


class Event(NamedTuple):
    """One entry of a tenant's log; `seq` is dense from 1. `hash` chains it to the entry before.

    `payload` is canonical JSON of what the event did (for add and update: of what is not in the row itself,
    e.g. {"closes": 12}). `commitment` = sha256(salt | what was written); see audit.py. After an erasure the
    payload is "" and the salt b"", while commitment and hash stay, so the chain still verifies.
    """

    seq: int
    kind: str
    at: int
    agent_id: str
    agent_role: str
    namespace: str | None
    ordinal: int | None
    payload: str
    salt: bytes
    commitment: bytes
    hash: bytes


class Head(NamedTuple):
    """The end of a tenant's log: last seq, number of rows, last recorded_at (us), hash of the last event."""

    seq: int = 0
    rows: int = 0
    recorded_at: int = 0
    hash: bytes = b""


_INT64: Final = 1 << 63


def misfit(kind: type, values: Mapping[str, Any]) -> str | None:
    """What is wrong with values that came from outside, by the annotations of the class they are to fill.

    Numbers, texts, truth values and tuples of them are looked at, whole numbers also for their size; fields of
    other kinds, and those without a value, are not.
    """
    for name, annotation in kind.__annotations__.items():
        if name in values:
            told = str(getattr(annotation, "__forward_arg__", annotation))
            if not _fits(values[name], told):
                return f"{name} must be {told}, not {values[name]!r}"
    return None


def _fits(value: Any, told: str) -> bool:
    told = told.removesuffix(" | None") if value is not None else told
    if told == "int":
        return type(value) is int and -_INT64 <= value < _INT64
    if told == "float":
        return type(value) in (int, float) and abs(value) < 1e300  # NaN is not less either
    if told in ("str", "bool", "bytes"):
        return type(value).__name__ == told
    if told.startswith("tuple[") and told.endswith(", ...]"):
        return isinstance(value, tuple) and all(_fits(one, told[6:-6]) for one in value)
    return value is not None or "None" in told or told[:1].isupper()


class Finding(NamedTuple):
    """What one check of a doctor found. state: "ok", "warn" or "fail"; remedy: what to do about it, "" when ok."""

    name: str
    state: str
    detail: str
    remedy: str = ""


def float_rows(
    generation: int, dimension: int, ordinals: Sequence[int], blobs: Sequence[bytes]
) -> npt.NDArray[np.float32]:
    """Vectors as stores keep them, little-endian float32, as rows (n, dimension) that are not to be written to.

    ordinals: of their rows, for the error. StoreCorrupt where one has another size.
    """
    try:
        data = np.frombuffer(b"".join(blobs), "<f4").reshape(len(blobs), dimension)
    except ValueError:
        raise StoreCorrupt(
            f"a vector of generation {generation} between rows {ordinals[0]} and {ordinals[-1]} has not "
            f"{dimension} numbers; restore a backup or re-embed"
        ) from None
    return data.astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of one generation, ordered by (ordinal, part). One memory may own several windows.

    ordinals, parts, starts, stops: int64 (n,); starts/stops are character offsets of the window in the
    content. data: float32 (n, dim), unit rows, C-contiguous. codes: per vector the token codes of late
    interaction, `dim` / 8 bytes a token; b"" where there are none.
    """

    generation: int
    ordinals: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    data: npt.NDArray[np.float32]
    codes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if not self.codes:
            object.__setattr__(self, "codes", (b"",) * len(self.ordinals))

    def __len__(self) -> int:
        return len(self.ordinals)

    def between(self, first: int, stop: int) -> Vectors:
        """The vectors at positions first <= i < stop."""
        at = slice(first, stop)
        return Vectors(
            self.generation,
            self.ordinals[at],
            self.parts[at],
            self.starts[at],
            self.stops[at],
            self.data[at],
            self.codes[at],
        )

    @classmethod
    def concatenated(cls, blocks: Sequence[Vectors]) -> Vectors:
        """One or more blocks of one generation as one, in the order given."""
        return cls(
            blocks[0].generation,
            np.concatenate([one.ordinals for one in blocks]),
            np.concatenate([one.parts for one in blocks]),
            np.concatenate([one.starts for one in blocks]),
            np.concatenate([one.stops for one in blocks]),
            np.concatenate([one.data for one in blocks]),
            tuple(code for one in blocks for code in one.codes),
        )

    @classmethod
    def of(
        cls,
        generation: int,
        places: Sequence[Sequence[int]],
        data: npt.NDArray[np.float32],
        codes: Sequence[bytes] = (),
    ) -> Vectors:
        """Vectors from (ordinal, part, start, stop) of each, the data, float32 (n, dim), and the codes."""
        ordinals, parts, starts, stops = np.array(places, np.int64).reshape(-1, 4).T.copy()
        return cls(generation, ordinals, parts, starts, stops, data, tuple(codes))


@dataclass(frozen=True, slots=True)
class Generation:
    """An embedder that vectors of this tenant were made by, and since which seq it is the current one.

    `seq` is None while its vectors are still being written (re-embedding under way).
    """

    number: int
    fingerprint: str
    dimension: int
    seq: int | None


@dataclass(slots=True)
class Batch:
    """Everything one commit writes. Sequence numbers, ordinals and hashes are already assigned."""

    events: list[Event] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    vectors: list[Vectors] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)  # inserted, or given their seq
    receipts: list[tuple[str, int, str]] = field(default_factory=list)  # id, seq, JSON
    erase_rows: list[int] = field(default_factory=list)  # ordinals
    erase_events: list[int] = field(default_factory=list)  # seqs whose payload and salt go
    erase_receipts: list[tuple[str, str]] = field(default_factory=list)  # id, redacted JSON
    drop_generations: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a tenant's log gained after a sequence number, read in one snapshot."""

    head: Head
    events: list[Event]
    rows: list[IndexRow]
    generations: list[Generation]
    erased: list[int]  # ordinals erased by the events above (their rows may be older)
