"""The store without a disk: the same protocol over dictionaries, one for each tenant. Gone when closed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from twofold.errors import InvalidInput, NotFound, StoreBusy, StoreError
from twofold.model import Batch, Changes, Event, Generation, Head, Row, Vectors
from twofold.stores import schema
from twofold.stores.fifo import FifoLock

_Spans = dict[tuple[int, int], tuple[int, int, "np.ndarray[tuple[int], np.dtype[np.float32]]", bytes]]


@dataclass(slots=True)
class _Tenant:
    """What one tenant stores. Lists and dictionaries are replaced together, never changed once published."""

    head: Head = field(default_factory=Head)
    events: list[Event] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    erased: dict[int, int] = field(default_factory=dict)  # ordinal -> seq of its erasure
    vectors: dict[int, _Spans] = field(
        default_factory=dict
    )  # generation -> (ordinal, part) -> span and vector
    generations: dict[int, Generation] = field(default_factory=dict)
    receipts: dict[str, tuple[int, str]] = field(default_factory=dict)


class MemoryStore:
    """A store in this process's memory, for tests and throw-away memories.

    `timeout`: seconds to wait for another thread's transaction on the same tenant before StoreBusy.
    """

    url = "memory://"
    persistent = False
    cache_dir = None

    def __init__(self, *, timeout: float = 30.0) -> None:
        if not timeout >= 0:
            raise InvalidInput(f"timeout must be 0 or more seconds, not {timeout!r}")
        self._timeout = timeout
        self._tenants: dict[str, _Tenant] = {}
        self._locks: dict[str, FifoLock] = {}
        self._mutex = threading.Lock()
        self._closed = False

    def transaction(self, tenant: str) -> _Writing:
        return _Writing(self, tenant)

    def head(self, tenant: str) -> Head:
        return self._state(tenant).head

    def changes(self, tenant: str, after: int) -> Changes:
        return _changes(self._state(tenant), after)

    def rows(self, tenant: str, ordinals: Sequence[int]) -> list[Row]:
        rows = self._state(tenant).rows
        for ordinal in ordinals:
            if not 0 <= ordinal < len(rows):
                raise NotFound(f"there is no row {ordinal} in tenant {tenant!r}")
        return [rows[ordinal] for ordinal in ordinals]

    def vectors(self, tenant: str, generation: int, first: int = 0, stop: int | None = None) -> Vectors:
        state = self._state(tenant)
        spans = _spans(state, tenant, generation)
        wanted = (key for key in spans if first <= key[0] and (stop is None or key[0] < stop))
        return _vectors(state.generations[generation], spans, wanted)

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        state, asked = self._state(tenant), set(ordinals)
        spans = _spans(state, tenant, generation)
        return _vectors(state.generations[generation], spans, (key for key in spans if key[0] in asked))

    def generations(self, tenant: str) -> list[Generation]:
        found = self._state(tenant).generations
        return [found[number] for number in sorted(found)]

    def write_vectors(self, tenant: str, vectors: Vectors) -> None:
        with self.transaction(tenant) as open_:
            open_.add_vectors(vectors)

    def events(self, tenant: str, after: int = 0, limit: int | None = None) -> list[Event]:
        first = max(after, 0)
        return self._state(tenant).events[first : None if limit is None else first + limit]

    def receipt(self, tenant: str, receipt_id: str) -> str | None:
        found = self._state(tenant).receipts.get(receipt_id)
        return None if found is None else found[1]

    def receipts(self, tenant: str) -> list[tuple[str, int]]:
        found = [(name, seq) for name, (seq, _) in self._state(tenant).receipts.items()]
        return sorted(found, key=lambda one: (one[1], one[0]))

    def scrub(self) -> None:
        """Nothing to do: what was erased is no longer referred to, and there are no files."""
        self._refuse_closed()

    def residue(self, needles: Sequence[bytes]) -> list[str]:  # noqa: ARG002
        """Always empty: there are no files."""
        self._refuse_closed()
        return []

    def check(self, tenant: str) -> list[str]:
        state, problems = self._state(tenant), []
        if [event.seq for event in state.events] != list(range(1, state.head.seq + 1)):
            problems.append(f"the log is not 1 to {state.head.seq}")
        if [row.ordinal for row in state.rows] != list(range(state.head.rows)):
            problems.append(f"the rows are not 0 to {state.head.rows - 1}")
        for row in state.rows:
            if state.events[row.seq - 1].ordinal != row.ordinal:
                problems.append(f"row {row.ordinal} does not agree with event {row.seq}")
            spans = state.vectors.get(row.generation) if row.generation is not None else None
            if spans is not None and not row.erased and (row.ordinal, 0) not in spans:
                problems.append(f"row {row.ordinal} has no vector of its generation {row.generation}")
        for number, spans in state.vectors.items():
            gone = {ordinal for ordinal, _ in spans if ordinal in state.erased}
            problems += [f"erased row {one} has a vector in generation {number}" for one in sorted(gone)]
        return problems

    def size(self, tenant: str) -> int:
        """Bytes of content, lexemes, payloads, receipts and vectors."""
        state = self._state(tenant)
        text = sum(len(row.content) + len(row.lexemes) + len(row.metadata) for row in state.rows)
        text += sum(len(event.payload) for event in state.events)
        text += sum(len(body) for _, body in state.receipts.values())
        return text + sum(
            data.nbytes + len(codes) for spans in state.vectors.values() for *_, data, codes in spans.values()
        )

    def backup(self, destination: Path) -> None:
        """Refused: there is no file format for it."""
        self._refuse_closed()
        raise StoreError(
            f"an in-memory store has no backup; export it to {destination} instead (export_json)"
        )

    def close(self) -> None:
        self._closed = True
        self._tenants = {}

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("the in-memory store was closed, and what it held is gone; open a new one")

    def _state(self, tenant: str) -> _Tenant:
        self._refuse_closed()
        return self._tenants.get(tenant) or _Tenant()

    def _lock(self, tenant: str) -> FifoLock:
        self._refuse_closed()
        with self._mutex:
            return self._locks.setdefault(tenant, FifoLock())


class _Writing:
    """A transaction on one tenant, on a copy of its state that is published when the block ends well."""

    def __init__(self, store: MemoryStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._lock: FifoLock | None = None
        self._failed = False
        self._state = _Tenant()
        self._own = False
        self.head = Head()

    def __enter__(self) -> _Writing:
        lock = self._store._lock(self._tenant)
        if lock.mine():
            raise StoreError("this thread is inside a transaction of this store already; they do not nest")
        if not lock.acquire(self._store._timeout):
            raise StoreBusy(
                f"tenant {self._tenant!r} is locked by another thread for more than "
                f"{self._store._timeout:g} s; try again, or open the store with a longer timeout"
            )
        self._lock = lock
        try:
            self._state = self._store._state(self._tenant)
        except BaseException:
            self._end()
            raise
        self.head = self._state.head
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                return
            if self._failed:
                raise StoreError("a batch of this transaction was refused, so nothing of it was committed")
            self._store._refuse_closed()
            if self._own:
                self._store._tenants[self._tenant] = self._state
        finally:
            self._end()

    def changes(self, after: int) -> Changes:
        self._refuse_over()
        return _changes(self._state, after)

    def apply(self, batch: Batch) -> Head:
        self._refuse_over()
        try:
            self.head = _apply(self._mine(), batch)
        except BaseException:
            self._failed = True
            raise
        return self.head

    def add_vectors(self, vectors: Vectors) -> None:
        """Vectors of a generation that is not current yet; those of erased rows are left out."""
        self._refuse_over()
        try:
            state = self._mine()
            schema.check_pending(vectors, state.generations, state.head.rows)
            _put_vectors(state, vectors)
        except BaseException:
            self._failed = True
            raise

    def _mine(self) -> _Tenant:
        """The state to write on: readers keep the published one."""
        if not self._own:
            old = self._state
            self._state = _Tenant(
                old.head,
                list(old.events),
                list(old.rows),
                dict(old.erased),
                {number: dict(spans) for number, spans in old.vectors.items()},
                dict(old.generations),
                dict(old.receipts),
            )
            self._own = True
        return self._state

    def _refuse_over(self) -> None:
        if self._lock is None:
            raise StoreError("the transaction is over; begin another one")

    def _end(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _changes(state: _Tenant, after: int) -> Changes:
    events = state.events[max(after, 0) :]
    first = next((event.ordinal for event in events if schema.adds_row(event)), None)
    rows = [] if first is None else [schema.index_row(row) for row in state.rows[first:]]
    erased = sorted(ordinal for ordinal, seq in state.erased.items() if seq > after)
    generations = [state.generations[number] for number in sorted(state.generations)]
    return Changes(state.head, events, rows, generations, erased)


def _apply(state: _Tenant, batch: Batch) -> Head:
    head = state.head
    after = schema.check_batch(head, batch)
    generations = schema.check_generations(state.generations, batch, after)
    schema.check_coverage(batch, generations)
    for vectors in batch.vectors:
        schema.check_vectors(vectors, generations, after.rows)
        gone = set(vectors.ordinals.tolist()) & state.erased.keys()
        if gone:
            raise StoreError(f"row {min(gone)} is erased and must not get a vector again")
    schema.check_erasures(batch, after)
    for record in (*batch.events, *batch.rows, *batch.receipts):
        _refuse_unstorable(record)
    for receipt_id, _, _ in batch.receipts:
        if receipt_id in state.receipts:
            raise StoreError(f"receipt {receipt_id!r} is kept already")

    state.events += batch.events
    state.rows += batch.rows
    state.erased.update((row.ordinal, row.seq) for row in batch.rows if row.erased)
    state.generations = generations
    for vectors in batch.vectors:
        _put_vectors(state, vectors)
    for receipt_id, seq, body in batch.receipts:
        state.receipts[receipt_id] = (seq, body)
    for number in batch.drop_generations:
        state.vectors.pop(number, None)
    for ordinal in batch.erase_rows:
        state.rows[ordinal] = schema.blank(state.rows[ordinal])
        state.erased.setdefault(ordinal, after.seq)
    gone = set(batch.erase_rows)
    for number, spans in state.vectors.items() if gone else ():
        state.vectors[number] = {key: span for key, span in spans.items() if key[0] not in gone}
    for seq in batch.erase_events:
        state.events[seq - 1] = state.events[seq - 1]._replace(payload="", salt=b"")
    for receipt_id, body in batch.erase_receipts:
        if receipt_id not in state.receipts:
            raise StoreError(f"there is no receipt {receipt_id!r} to erase")
        state.receipts[receipt_id] = (state.receipts[receipt_id][0], body)
    state.head = after
    return after


def _refuse_unstorable(record: Iterable[object]) -> None:
    """Refuse what no database holds, so that a test on this store proves something about others."""
    for value in record:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise InvalidInput(f"cannot write a batch: {error}") from error
        elif isinstance(value, tuple):
            _refuse_unstorable(value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidInput(f"cannot write a batch: {value} does not fit 64 bits")


def _put_vectors(state: _Tenant, vectors: Vectors) -> None:
    spans = state.vectors.setdefault(vectors.generation, {})
    for at, (ordinal, part) in enumerate(zip(vectors.ordinals.tolist(), vectors.parts.tolist(), strict=True)):
        if ordinal not in state.erased:
            place = (int(vectors.starts[at]), int(vectors.stops[at]))
            spans[ordinal, part] = (*place, vectors.data[at].copy(), vectors.codes[at])


def _spans(state: _Tenant, tenant: str, generation: int) -> _Spans:
    if generation not in state.generations:
        raise NotFound(f"tenant {tenant!r} has no embedding generation {generation}")
    return state.vectors.get(generation, {})


def _vectors(generation: Generation, spans: _Spans, wanted: Iterable[tuple[int, int]]) -> Vectors:
    keys = sorted(wanted)
    table = np.array([(*key, *spans[key][:2]) for key in keys], dtype=np.int64).reshape(len(keys), 4)
    data = np.empty((len(keys), generation.dimension), dtype=np.float32)
    for at, key in enumerate(keys):
        data[at] = spans[key][2]
    ordinals, parts, starts, stops = (np.ascontiguousarray(column) for column in table.T)
    codes = tuple(spans[key][3] for key in keys)
    return Vectors(generation.number, ordinals, parts, starts, stops, data, codes)
