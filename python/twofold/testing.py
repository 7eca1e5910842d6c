"""What a store must do, as tests that any store can run, and a store that fails on purpose.

    class TestMyStore(StoreConformance):
        def address(self, location):            # what `open_store` takes; `location` is an empty folder
            return f"mydb:///{location}"

`python -m twofold.testing` is the writing or reading process of the suite's process tests.
"""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import inspect
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pytest

from twofold import audit
from twofold.clock import ManualClock, monotonic
from twofold.entities import entity_key
from twofold.errors import InvalidInput, NotFound, StoreBusy, StoreError
from twofold.index.tenant import TenantIndex
from twofold.memory import AgentMemory
from twofold.model import Batch, Event, Generation, Head, Kind, Row, Vectors
from twofold.stores import Store, Transaction, open_store, schema

__all__ = [
    "Fault",
    "FaultyStore",
    "SearchConformance",
    "StoreConformance",
    "TenantDropped",
    "assert_isolated",
    "assert_nearest",
    "assert_postings",
    "assert_sound",
    "assert_walks",
    "fill_to_search",
    "sample_batch",
    "sample_erasure",
    "sample_event",
    "snapshot",
]

DIMENSION: Final = 8
_VECTOR_FIELDS: Final = tuple(one.name for one in dataclasses.fields(Vectors))[1:-1]  # the arrays
EPOCH: Final = 1_767_225_600_000_000  # 2026-01-01 in microseconds: where the samples' time begins
TENANT: Final = "acme"

# Methods that concern the database as a whole; every other one must take the tenant first.
WITHOUT_TENANT: Final = frozenset({"scrub", "residue", "backup", "close"})


# Samples


def sample_event(head: Head, kind: str, *, payload: Any = None, ordinal: int | None = None) -> Event:
    """An event that continues `head`, rightly hashed; its salt is derived from its number."""
    at = max(EPOCH, head.recorded_at) + 1
    seq = head.seq + 1
    return audit.make_event(
        head.hash,
        seq,
        kind,
        at,
        "sample",
        "owner",
        _salt(seq),
        namespace="default",
        ordinal=ordinal,
        payload=payload,
    )


def sample_batch(
    head: Head,
    contents: Sequence[str],
    *,
    generation: int | None = 1,
    parts: int = 1,
    **fields: Any,
) -> Batch:
    """Rows of these contents that continue `head`, with their events and `parts` vectors each.

    `generation`: the embedding generation, registered as current when `head` is a tenant's beginning; None
    for rows without vectors. `fields` replace fields of every row, by a value or a function of its content.
    """
    batch = Batch()
    for content in contents:
        at = max(EPOCH, head.recorded_at) + 1
        seq, ordinal = head.seq + 1, head.rows
        row = Row(
            ordinal=ordinal,
            seq=seq,
            id=f"sample-{ordinal:08d}",
            version=1,
            namespace="default",
            content=content,
            memory_type="fact",
            tags=("sample",),
            entities=(),
            key=None,
            frame=None,
            confidence=1.0,
            pinned=False,
            metadata="{}",
            event_at=None,
            speaker=None,
            visibility="team",
            source_id=None,
            content_hash=f"hash of {content}",
            recorded_at=at,
            agent_id="sample",
            agent_role="owner",
            session_id=None,
            derived_from=(),
            valid_from=at,
            tokens=len(content),
            traits=len(content) % 2,
            lexemes=json.dumps({content: 1}, ensure_ascii=False),
            generation=generation,
        )
        row = row._replace(**{name: one(content) if callable(one) else one for name, one in fields.items()})
        windows = None
        if row.generation is not None:
            windows = _windows(row.generation, ordinal, sample_vectors(content, parts), len(content))
        digest = "" if windows is None else audit.vector_digest(_salt(seq), windows)
        event = audit.make_event(
            head.hash,
            seq,
            Kind.ADD,
            at,
            "sample",
            "owner",
            _salt(seq),
            namespace=row.namespace,
            ordinal=ordinal,
            row=row,
            vectors=digest,
        )
        batch.events.append(event)
        batch.rows.append(row)
        if windows is not None:
            batch.vectors.append(windows)
        head = Head(seq, ordinal + 1, at, event.hash)
    if generation is not None and batch.events and batch.events[0].seq == 1:
        batch.generations.append(Generation(generation, "sample", DIMENSION, 1))
    return batch


def sample_erasure(head: Head, rows: Sequence[Row]) -> Batch:
    """A batch that erases these rows, and what the events that added them say."""
    ordinals = [row.ordinal for row in rows]
    event = sample_event(head, Kind.ERASE, payload={"ordinals": ordinals})
    return Batch(events=[event], erase_rows=ordinals, erase_events=[row.seq for row in rows])


def sample_vectors(content: str, parts: int = 1) -> npt.NDArray[np.float32]:
    """Unit vectors of a text: the same for the same text, float32 (parts, DIMENSION)."""
    data = np.empty((parts, DIMENSION), dtype=np.float32)
    for part in range(parts):
        digest = audit.commitment(b"", f"{part} {content}")
        whole = np.frombuffer(digest, dtype=np.uint8)[:DIMENSION].astype(np.float32) - 127.5
        data[part] = whole / np.linalg.norm(whole)
    return data


def _salt(seq: int) -> bytes:
    return audit.commitment(b"", f"salt {seq}")[: audit.SALT_BYTES]


def _windows(generation: int, ordinal: int, data: npt.NDArray[np.float32], stop: int) -> Vectors:
    n = len(data)
    return Vectors(
        generation,
        np.full(n, ordinal, dtype=np.int64),
        np.arange(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.full(n, stop, dtype=np.int64),
        data,
        tuple(row.tobytes()[: 4 * (part % 3)] for part, row in enumerate(data, ordinal)),
    )


def _joined(vectors: Sequence[Vectors]) -> Vectors:
    whole = {name: np.concatenate([getattr(one, name) for one in vectors]) for name in _VECTOR_FIELDS}
    return Vectors(vectors[0].generation, **whole, codes=tuple(c for one in vectors for c in one.codes))


# Looking


def snapshot(store: Store, tenant: str) -> dict[str, Any]:
    """Everything a store says about a tenant, as values that compare equal when it says the same."""
    changes = store.changes(tenant, 0)
    return {
        "head": store.head(tenant),
        "changes": changes,
        "events": store.events(tenant),
        "rows": store.rows(tenant, range(changes.head.rows)),
        "generations": changes.generations,
        "vectors": {one.number: plain(store.vectors(tenant, one.number)) for one in changes.generations},
        "receipts": [(name, seq, store.receipt(tenant, name)) for name, seq in store.receipts(tenant)],
    }


def plain(value: Any) -> Any:
    """A value without arrays: vectors as lists of tuples and bytes, so that == is a truth value."""
    if isinstance(value, Vectors):
        spans = (value.ordinals, value.parts, value.starts, value.stops)
        keys = list(zip(*(one.tolist() for one in spans), strict=True))
        return [
            (*key, row.tobytes(), codes)
            for key, row, codes in zip(keys, value.data, value.codes, strict=True)
        ]
    return value


def assert_sound(store: Store, tenant: str) -> None:
    """Assert everything that must hold of a tenant's store after any history and any crash."""
    assert store.check(tenant) == []
    seen = snapshot(store, tenant)
    head, events, rows, changes = seen["head"], seen["events"], seen["rows"], seen["changes"]
    assert changes.head == head
    assert changes.events == events
    assert [event.seq for event in events] == list(range(1, head.seq + 1))
    previous = b""
    for seq, event in enumerate(events, 1):
        assert audit.broken_link(previous, seq, event) is None
        previous = event.hash
    assert all(a.at <= b.at for a, b in itertools.pairwise(events))
    if events:
        assert (head.recorded_at, head.hash) == (events[-1].at, events[-1].hash)
    assert [row.ordinal for row in rows] == list(range(head.rows))
    assert changes.rows == [schema.index_row(row) for row in rows]
    assert changes.erased == [row.ordinal for row in rows if row.erased]
    added = [(event.ordinal, event.seq) for event in events if event.kind in (Kind.ADD, Kind.UPDATE)]
    assert added == [(row.ordinal, row.seq) for row in rows]
    dimensions = {one.number: one.dimension for one in seen["generations"]}
    have: dict[int, set[int]] = {}
    for number, dimension in dimensions.items():
        vectors = store.vectors(tenant, number)
        keys = list(zip(vectors.ordinals.tolist(), vectors.parts.tolist(), strict=True))
        assert keys == sorted(set(keys)), "vectors come in the order of (ordinal, part)"
        assert vectors.data.dtype == np.float32
        assert vectors.data.shape == (len(keys), dimension)
        have[number] = set(vectors.ordinals.tolist())

    for row in rows:
        if row.erased:
            assert row == schema.blank(row), f"row {row.ordinal} is erased and still has content"
            assert all(row.ordinal not in ordinals for ordinals in have.values())
        else:
            if row.generation is None:
                broken = audit.broken_commitment(events[row.seq - 1], row, lambda _: "")
            elif row.generation in have:
                assert row.ordinal in have[row.generation], f"row {row.ordinal} has no vector"
                found = store.vectors_of(tenant, row.generation, [row.ordinal])
                digest = functools.partial(audit.vector_digest, vectors=found)
                broken = audit.broken_commitment(events[row.seq - 1], row, digest)
            else:  # a dropped generation took with it what the entry committed to
                continue
            assert broken is None, broken


# Failing on purpose


class Fault(Exception):
    """The failure that FaultyStore was asked for. Not one of Twofold's own errors."""


class FaultyStore:
    """A store that raises Fault at its `fail_at`-th point and at every one after it, as a dead disk would.

    Points are the calls of the protocol's methods and, in a transaction, its beginning, before and after
    each `apply`, before the commit, and after it (committed, but the caller never hears of it).
    With `fail_at=None` nothing fails; `points` counts and `trail` names what was passed.
    """

    def __init__(self, inner: Store, fail_at: int | None = None) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.points = 0
        self.trail: list[str] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name == "close" or not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.point(name)
            return value(*args, **kwargs)

        return call

    def point(self, name: str) -> None:
        """Count a point, and fail when its turn has come."""
        self.points += 1
        self.trail.append(name)
        if self.fail_at is not None and self.points >= self.fail_at:
            raise Fault(f"failed on purpose at point {self.points} ({name})")

    @contextlib.contextmanager
    def transaction(self, tenant: str) -> Iterator[Any]:
        """As the inner store's, with points in it."""
        self.point("transaction")
        with self.inner.transaction(tenant) as inner:
            self.point("begun")
            yield _FaultyTransaction(self, inner)
            self.point("commit")
        self.point("committed")


class _FaultyTransaction:
    def __init__(self, store: FaultyStore, inner: Transaction) -> None:
        self._store = store
        self._inner = inner

    @property
    def head(self) -> Head:
        return self._inner.head

    def changes(self, after: int) -> Any:
        self._store.point("changes in transaction")
        return self._inner.changes(after)

    def apply(self, batch: Batch) -> Head:
        self._store.point("apply")
        head = self._inner.apply(batch)
        self._store.point("applied")
        return head


class TenantDropped:
    """A store in which one method ignores the tenant it is given: what an isolation test must notice."""

    def __init__(self, inner: Store, method: str, tenant: str) -> None:
        self._inner = inner
        self._method = method
        self._tenant = tenant

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name != self._method:
            return value
        return lambda _, *args, **kwargs: value(self._tenant, *args, **kwargs)


# Isolation

OWNER, STRANGER = "owner", "stranger"
_MARK: Final = "the owner's secret"


def tenant_methods() -> list[str]:
    """The names of all methods of the protocol that take a tenant, found by introspection."""
    found = []
    for name, member in inspect.getmembers(Store, inspect.isfunction):
        if name.startswith("_"):
            continue
        parameters = list(inspect.signature(member).parameters)
        if parameters[1:2] == ["tenant"]:
            found.append(name)
        else:
            assert name in WITHOUT_TENANT, f"Store.{name} does not take the tenant as its first argument"
    return found


def _in_transaction(store: Store, tenant: str) -> Any:
    with store.transaction(tenant) as tx:
        return tx.head, tx.changes(0)


def _write_pending(store: Store, tenant: str) -> Any:
    """Add a vector of the pending generation 2, and report the vectors of that generation."""
    with contextlib.suppress(StoreError):  # a tenant without that generation is refused
        store.write_vectors(tenant, _windows(2, 1, sample_vectors("pending"), 1))
    return _vectors_or_none(store, tenant, 2)


def _vectors_or_none(store: Store, tenant: str, generation: int) -> Any:
    try:
        return plain(store.vectors(tenant, generation))
    except NotFound:
        return None


def _or_none(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except NotFound:
        return None


# What each method shows of a tenant. A method without an entry fails the test: write one.
PROBES: Final[Mapping[str, Callable[[Store, str], Any]]] = {
    "head": lambda store, tenant: store.head(tenant),
    "changes": lambda store, tenant: store.changes(tenant, 0),
    "rows": lambda store, tenant: _or_none(lambda: store.rows(tenant, [0, 1])),
    "vectors": lambda store, tenant: _vectors_or_none(store, tenant, 1),
    "vectors_of": lambda store, tenant: _or_none(lambda: plain(store.vectors_of(tenant, 1, [0]))),
    "generations": lambda store, tenant: store.generations(tenant),
    "events": lambda store, tenant: store.events(tenant),
    "receipt": lambda store, tenant: store.receipt(tenant, "receipt"),
    "receipts": lambda store, tenant: store.receipts(tenant),
    "transaction": _in_transaction,
    "write_vectors": _write_pending,
    "check": lambda store, tenant: store.check(tenant),
    "size": lambda store, tenant: store.size(tenant),
}


def fill_owner(store: Store) -> None:
    """Give the owner rows, vectors, a receipt and a pending generation; the stranger gets nothing."""
    with store.transaction(OWNER) as tx:
        tx.apply(sample_batch(tx.head, [_MARK, "more"]))
        event = sample_event(tx.head, Kind.RECEIPT)
        tx.apply(
            Batch(
                events=[event],
                receipts=[("receipt", event.seq, '{"of":"the owner"}')],
                generations=[Generation(2, "pending", DIMENSION, None)],
            )
        )


def assert_isolated(store: Store, method: str, fresh: Any, pristine: Any) -> None:
    """Assert that `method` shows the stranger what it did before the owner came, and spares the owner's data.

    `fresh`: what the probe gave for the stranger on an empty store. `pristine`: `look` at the owner before.
    """
    assert PROBES[method](store, STRANGER) == fresh, f"{method} shows one tenant's data to another"
    if method == "transaction":
        with store.transaction(STRANGER) as tx:
            tx.apply(Batch(events=[sample_event(tx.head, Kind.MAINTAIN)]))
    assert look(store, method) == pristine, f"{method} changed another tenant's data"


def look(store: Store, method: str) -> Any:
    """The owner's data, as far as it can be read in a store that `damage` left for the probe of `check`."""
    return store.events(OWNER) if method == "check" else snapshot(store, OWNER)


def _of_owner(probe: Callable[[Store, str], Any], store: Store) -> Any:
    return probe(store, OWNER)


# How each method is called on a store that is closed; where a probe would not show the refusal.
CALLS: Final[Mapping[str, Callable[[Store], Any]]] = {
    **{name: functools.partial(_of_owner, probe) for name, probe in PROBES.items()},
    "write_vectors": lambda store: store.write_vectors(OWNER, _windows(2, 1, sample_vectors("late"), 1)),
    "scrub": lambda store: store.scrub(),
    "residue": lambda store: store.residue([b"late"]),
}


def _backup(destination: Path) -> Callable[[Store], Any]:
    return lambda store: store.backup(destination)


# Searching: what a store may offer besides, so that what grows with the text stays in it

WORDS: Final = (*(f"word{n}" for n in range(40)), "数据库", "a word too long for most indexes " * 20)
NAMES: Final = ("Ann", "Bob", "Atlas", "数据库", "billing service", "a name too long for most indexes " * 20)
CLOSE: Final = 1e-5  # by so much a server's cosine may differ from the core's


def fill_to_search(store: Store, tenant: str, rows: int, seed: int) -> None:
    """Rows with one to three windows, weighted words, names, versions and links; some of them erased.

    The same seed gives the same, whatever the tenant, so that an answer from another one is a wrong one.
    """
    source = np.random.default_rng(seed)
    for first in range(0, rows, 30):
        with store.transaction(tenant) as tx:
            before = tx.head.rows
            for n in range(first, min(first + 30, rows)):
                words = source.choice(len(WORDS), size=int(source.integers(0, 8)), replace=False).tolist()
                fields: dict[str, Any] = {
                    "lexemes": json.dumps({WORDS[i]: 1 + i % 5 / 4 for i in words}, ensure_ascii=False),
                    "entities": tuple(
                        NAMES[i] for i in np.flatnonzero(source.random(len(NAMES)) < 0.2).tolist()
                    ),
                    "parts": int(source.integers(1, 4)),
                }
                if n % 11 == 10:  # a correction of an earlier one: one memory, two rows
                    fields |= {"id": f"sample-{before:08d}", "version": 2 + n}
                tx.apply(sample_batch(tx.head, [f"{tenant} {n}"], **fields))
            begun = [row.id for row in tx.changes(0).rows if row.version == 1]
            for _ in range(6):
                a, b = (begun[i] for i in source.integers(0, len(begun), size=2).tolist())
                said = {"a": a, "b": b, "relation": "explains", "weight": 1.0}
                tx.apply(Batch(events=[sample_event(tx.head, Kind.LINK, payload=said)]))
            if before:
                tx.apply(sample_erasure(tx.head, store.rows(tenant, [before - 3, before - 7])))


def assert_nearest(store: Any, tenant: str, *, approximate: bool = False) -> None:
    """`nearest` gives the nearest windows of this tenant's rows, as many as there are; of no others.

    approximate: an index may propose others than the nearest where that is allowed, but never too few.
    """
    vectors = store.vectors(tenant, 1)
    source = np.random.default_rng(len(vectors))
    rows = store.head(tenant).rows
    some = np.flatnonzero(source.random(rows) < 0.3)
    for query in source.normal(size=(6, DIMENSION)).astype(np.float32):
        query /= np.linalg.norm(query)
        cosines = vectors.data @ query
        for count in (1, 7, len(vectors), len(vectors) + 50):
            for ordinals in (None, some, some[:2].tolist(), [], [rows + 5]):
                eligible = (
                    np.ones(len(vectors), np.bool_)
                    if ordinals is None
                    else np.isin(vectors.ordinals, ordinals)
                )
                wanted = np.sort(cosines[eligible])[::-1][:count]
                for exact in (True, False):
                    found = store.nearest(tenant, 1, query, count, ordinals, exact=exact)
                    assert len(found) == len(wanted), f"{len(found)} windows for {len(wanted)}: a short list"
                    assert set(found) <= set(vectors.ordinals[eligible].tolist()), (
                        "rows that were not asked about"
                    )
                    got = _cosines(found, vectors.ordinals, cosines)
                    assert np.all(got[:-1] >= got[1:] - CLOSE), "not nearest first"
                    if exact or ordinals is not None or not approximate:
                        assert np.allclose(got, wanted, atol=CLOSE), "not the nearest"


def _cosines(
    found: Sequence[int], ordinals: npt.NDArray[np.int64], cosines: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """The cosine of each window found: a row's best where it is named first, its second best at the next."""
    best = {o: iter(np.sort(cosines[ordinals == o])[::-1].tolist()) for o in set(found)}
    return np.array([next(best[o], np.nan) for o in found], np.float32)


def assert_postings(store: Any, tenant: str) -> None:
    """`postings` gives a list for each term asked: every living row of this tenant that has it, in order."""
    lists: dict[str, dict[int, float]] = {}
    for row in store.rows(tenant, range(store.head(tenant).rows)):
        for term, weight in json.loads(row.lexemes or "{}").items():
            lists.setdefault(term, {})[row.ordinal] = weight
    asked = [*WORDS, "nowhere", WORDS[3], "nowhere"]
    for terms in (asked, asked[::-1], asked[:1], []):
        found = store.postings(tenant, terms)
        assert len(found) == len(terms), "not one list a term"
        for term, (ordinals, counts) in zip(terms, found, strict=True):
            wanted = sorted(lists.get(term, {}).items())
            assert (ordinals.dtype, counts.dtype) == (np.int64, np.float32)
            assert ordinals.tolist() == [ordinal for ordinal, _ in wanted], f"not the rows with {term[:30]!r}"
            assert counts.tolist() == [weight for _, weight in wanted], f"other counts of {term[:30]!r}"


def assert_walks(store: Any, tenant: str) -> None:
    """`walk` reaches what the core reaches in its graph of this tenant, from every prefix of the log."""
    here, there = TenantIndex(tenant), TenantIndex(tenant, store)
    for index in (here, there):
        index.apply(store.changes(tenant, 0))
    source = np.random.default_rng(here.rows)
    names = [name for name in map(entity_key, NAMES) if here.entities.get(name) >= 0]
    met = 0
    for seq in (here.seq, here.seq // 2):
        one, other = here.view(seq), there.view(seq)
        for share in (1.0, 0.6, 0.1):
            mask = (source.random(one.rows) < share) & ~here.erased.view(one.rows)
            nodes = one.facts(mask).nodes
            for chosen in (names[:1], names[1:3], names):
                seeds = np.array([2 * here.entities.get(name) + 1 for name in chosen], np.uint32)
                for hops, limit in ((1, None), (2, None), (3, None), (2, 1), (3, 25)):
                    wanted = here.graph.expand(seeds, hops, prefix=one.edges, mask=nodes, limit=limit)
                    found = there.graph.expand(seeds, hops, prefix=other.edges, mask=nodes, limit=limit)
                    assert found[0].tolist() == wanted[0].tolist(), "other nodes than the core reaches"
                    assert found[1].tolist() == wanted[1].tolist(), "at another distance"
                    met += len(wanted[0]) - len(seeds)
    assert met > here.rows, "the walks reach so little that they prove nothing"


SEARCHES: Final[Mapping[str, Callable[..., None]]] = {
    "nearest": assert_nearest,
    "postings": assert_postings,
    "walk": assert_walks,
}


# Histories and processes


def add(store: Store, *contents: str, tenant: str = TENANT, **options: Any) -> None:
    """Add sample rows in one transaction."""
    with store.transaction(tenant) as tx:
        tx.apply(sample_batch(tx.head, contents, **options))


def log(store: Store, kind: str) -> None:
    """Add an event without a row."""
    with store.transaction(TENANT) as tx:
        tx.apply(Batch(events=[sample_event(tx.head, kind)]))


def history(store: Store, tenant: str = "faults") -> None:
    """Something of everything: two rows, then three more, of which the first is erased at last.

    May be repeated on what an interrupted one left.
    """
    with store.transaction(tenant) as tx:
        tx.apply(sample_batch(tx.head, ["one", "two"], parts=2))
    with store.transaction(tenant) as tx:
        tx.apply(sample_batch(tx.head, ["three"]))
        number = 1 + max(one.number for one in tx.changes(0).generations)
        event = sample_event(tx.head, Kind.RECEIPT)
        tx.apply(
            Batch(
                events=[event],
                receipts=[(f"receipt {event.seq}", event.seq, "{}")],
                generations=[Generation(number, "next", DIMENSION, None)],
            )
        )
        tx.apply(sample_batch(tx.head, ["four", "five"]))
    first = store.head(tenant).rows - 5
    for ordinal in range(first, first + 5):
        store.write_vectors(tenant, _windows(number, ordinal, sample_vectors("next"), 1))
    with store.transaction(tenant) as tx:
        tx.apply(sample_erasure(tx.head, store.rows(tenant, [first])))
    with store.transaction(tenant) as tx:
        event = sample_event(tx.head, Kind.GENERATION)
        tx.apply(Batch(events=[event], generations=[Generation(number, "next", DIMENSION, event.seq)]))


def in_thread(work: Callable[[], Any]) -> Any:
    """Do something in another thread, and have its result or its exception here."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def spawn(*arguments: str) -> subprocess.Popen[str]:
    """Start `python -m twofold.testing` with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-m", "twofold.testing", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(*processes: subprocess.Popen[str]) -> None:
    """Kill what still runs, and wait until it is gone."""
    for process in processes:
        process.kill()
        process.communicate()


def kill_while_writing(process: subprocess.Popen[str], number: int) -> tuple[set[str], str | None]:
    """Kill a `churn` process, in even rounds right after it announced to be inside a transaction.

    Returns the batches it was acknowledged, and the one it was inside of at the end.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    acknowledged: set[str] = set()
    pending: str | None = None
    killed = False
    for line in process.stdout:  # goes on after the kill, with what was still in the pipe
        word, name = line.split()
        if word == "inside":
            pending = name
        else:
            acknowledged.add(name)
            pending = None
        if killed or len(acknowledged) < 3 + number % 5:
            continue
        if number % 2:
            time.sleep(number * 37 % 50 / 1_000)
        elif pending is None:
            continue
        process.kill()
        killed = True
    process.wait()
    assert killed, f"the writing process ended by itself: {process.stderr.read()}"
    process.stdout.close()
    process.stderr.close()
    return acknowledged, pending


def main(arguments: Sequence[str]) -> None:
    """`write ADDRESS NAME ROWS`, `read ADDRESS STOPFILE` or `churn ADDRESS NAME`: a process of the suite."""
    role, address, *rest = arguments
    store = open_store(address)
    if role == "write":
        for n in range(int(rest[1])):
            add(store, f"{rest[0]}:{n}:0:1")
            _say("committed", str(n))
    elif role == "read":
        reads = 0
        while not Path(rest[0]).exists():
            changes = store.changes(TENANT, max(0, store.head(TENANT).seq - 100))
            assert changes.head.seq == changes.events[-1].seq if changes.events else True
            assert all(
                row.ordinal == store.rows(TENANT, [row.ordinal])[0].ordinal for row in changes.rows[-5:]
            )
            reads += 1
        _say("reads", str(reads))
    elif role == "churn":
        for n in itertools.count():
            size = 1 + n % 7
            name = f"{rest[0]}:{n}:{size}"
            with store.transaction(TENANT) as tx:
                contents = [f"{rest[0]}:{n}:{i}:{size}" for i in range(size)]
                tx.apply(sample_batch(tx.head, contents, id=lambda content: f"id|{content}", parts=2))
                if n % 3 == 2:
                    tx.apply(sample_erasure(tx.head, store.rows(TENANT, [tx.head.rows - size - 1])))
                _say("inside", name)
                time.sleep(0.02 if n % 2 else 0)
            _say("committed", name)
    else:
        raise InvalidInput(f"unknown role {role!r}; see the docstring of twofold.testing.main")
    store.close()


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


# Batches that must be refused, by what is wrong with them. Each is built on the head of a tenant with rows of
# generation 1 and the receipt "kept".


def _broken(change: Callable[[Batch], None], *contents: str) -> Callable[[Head], Batch]:
    def build(head: Head) -> Batch:
        batch = sample_batch(head, contents or ("bad",))
        change(batch)
        return batch

    return build


def _event(position: int = 0, /, **fields: Any) -> Callable[[Batch], None]:
    def change(batch: Batch) -> None:
        batch.events[position] = batch.events[position]._replace(**fields)

    return change


def _row(**fields: Any) -> Callable[[Batch], None]:
    def change(batch: Batch) -> None:
        batch.rows[-1] = batch.rows[-1]._replace(**fields)

    return change


def _vectors(**fields: Any) -> Callable[[Batch], None]:
    def change(batch: Batch) -> None:
        batch.vectors[-1] = dataclasses.replace(batch.vectors[-1], **fields)

    return change


def _set(name: str, value: Any) -> Callable[[Batch], None]:
    return lambda batch: setattr(batch, name, value)


def _no_event(batch: Batch) -> None:
    batch.events.pop()


def _no_row(batch: Batch) -> None:
    batch.rows.pop()
    batch.vectors.pop()


def _shift_ordinal(batch: Batch) -> None:
    ordinal = batch.rows[0].ordinal + 1
    _event(ordinal=ordinal)(batch)
    _row(ordinal=ordinal)(batch)
    _vectors(ordinals=np.array([ordinal], dtype=np.int64))(batch)


def _swap(batch: Batch) -> None:
    batch.rows[0], batch.rows[1] = batch.rows[1], batch.rows[0]


def _late(batch: Batch) -> None:
    _row(recorded_at=batch.rows[-1].recorded_at + 1)(batch)


def _blank_row(batch: Batch) -> None:
    batch.rows[-1] = schema.blank(batch.rows[-1])


def _erasing(**fields: Any) -> Callable[[Head], Batch]:
    return lambda head: Batch(events=[sample_event(head, Kind.ERASE)], **fields)


def _generating(*generations: Generation, **fields: Any) -> Callable[[Head], Batch]:
    return lambda head: Batch(
        events=[sample_event(head, Kind.GENERATION)], generations=list(generations), **fields
    )


def _with(batch: Batch, **fields: Any) -> Batch:
    return dataclasses.replace(batch, **fields)


CONTRADICTIONS: Final[Mapping[str, Callable[[Head], Batch]]] = {
    "seq gap": _broken(lambda batch: _event(seq=batch.events[0].seq + 1)(batch)),
    "seq again": _broken(lambda batch: _event(seq=batch.events[0].seq - 1)(batch)),
    "seq gap inside": _broken(lambda batch: _event(1, seq=batch.events[1].seq + 1)(batch), "a", "b"),
    "time goes back": _broken(_event(0, at=EPOCH - 1)),
    "ordinal gap": _broken(_shift_ordinal),
    "rows swapped": _broken(_swap, "a", "b"),
    "row without event": _broken(_no_event, "a", "b"),
    "event without row": _broken(_no_row, "a", "b"),
    "event of another row": _broken(_event(0, ordinal=0)),
    "event of another kind": _broken(_event(0, kind=Kind.LINK)),
    "row of another event": _broken(_row(seq=1)),
    "row recorded later": _broken(_late),
    "no vector": _broken(_set("vectors", [])),
    "vector of unknown generation": _broken(
        lambda batch: batch.vectors.append(dataclasses.replace(batch.vectors[0], generation=9))
    ),
    "vector of another dimension": _broken(_vectors(data=np.ones((1, DIMENSION + 1), dtype=np.float32))),
    "vector of another type": _broken(_vectors(data=np.ones((1, DIMENSION)))),
    "vector of no row": _broken(
        lambda batch: batch.vectors.append(_windows(1, 10**6, sample_vectors("nowhere"), 1))
    ),
    "vector of an older row": lambda head: Batch(
        events=[sample_event(head, Kind.LINK)], vectors=[_windows(1, 0, sample_vectors("another"), 1)]
    ),
    "row of a pending generation": lambda head: _with(
        sample_batch(head, ["bad"], generation=2), generations=[Generation(2, "next", DIMENSION, None)]
    ),
    "generation out of turn": _generating(
        Generation(3, "next", DIMENSION, None), Generation(0, "next", DIMENSION, None)
    ),
    "generations current out of turn": _generating(
        Generation(2, "next", DIMENSION, 3), Generation(3, "next", DIMENSION, 2)
    ),
    "vectors without spans": _broken(_vectors(starts=np.zeros(0, dtype=np.int64))),
    "erased with content": _broken(_row(erased=True)),
    "erased with a vector": _broken(_blank_row),
    "erasure without event": lambda head: Batch(events=[sample_event(head, Kind.LINK)], erase_rows=[0]),
    "erasure of no row": _erasing(erase_rows=[10**6]),
    "erasure of no event": _erasing(erase_events=[10**6]),
    "erasure of no receipt": _erasing(erase_receipts=[("none", "{}")]),
    "receipt twice": lambda head: Batch(
        events=[sample_event(head, Kind.RECEIPT)], receipts=[("kept", head.seq + 1, "{}")]
    ),
    "generation changes": _generating(Generation(1, "another", DIMENSION, 1)),
    "generation begins again": _generating(Generation(1, "sample", DIMENSION, 2)),
    "generation of the future": _generating(Generation(2, "next", DIMENSION, 10**6)),
    "current generation dropped": _generating(drop_generations=[1]),
    "no generation dropped": _generating(drop_generations=[9]),
}


# The suite


class SearchConformance:
    """Tests of what a store may offer besides: to search in it. A part of StoreConformance.

    `persistent`: closing and opening again gives the same data, and two handles of an address share it.
    `searches`: which of "nearest", "postings" and "walk" the store offers; they are described in
    `twofold.stores.searched.Parts`, and what is offered must give the core's answers. `approximate` builds an index
    that only proposes, if there is one.
    """

    searches: ClassVar[frozenset[str]] = frozenset()
    persistent: ClassVar[bool] = True

    # What a subclass says

    def address(self, location: Path) -> str:
        """The address of a store that may use this folder. The same folder means the same store."""
        raise NotImplementedError("say where the store is: override `address`")

    def open(self, location: Path, **options: Any) -> Store:
        """Open the store of this folder; `timeout` is the one option that is used."""
        return open_store(self.address(location), **options)

    def approximate(self, store: Store) -> bool:  # noqa: ARG002
        """Build an approximate index over the vectors, of DIMENSION numbers; False when there is none."""
        return False

    # Fixtures

    @pytest.fixture
    def location(self, tmp_path: Path) -> Path:
        """Where this test's store is."""
        folder = tmp_path / "store"
        folder.mkdir()
        return folder

    @pytest.fixture
    def store(self, location: Path) -> Iterator[Store]:
        """An empty store."""
        opened = self.open(location)
        yield opened
        opened.close()

    # Searching

    def test_what_it_searches_is_said(self, store: Store) -> None:
        offered = (
            {name for name in SEARCHES if hasattr(store, name)}
            if getattr(store, "pushdown", False)
            else set()
        )
        assert self.searches <= set(SEARCHES)
        assert offered <= self.searches, "name in `searches` what the store searches, so that it is tested"

    @pytest.mark.parametrize("what", sorted(SEARCHES))
    def test_a_search_gives_the_answers_of_the_core(self, location: Path, what: str) -> None:
        """Of either tenant, after every kind of write, by a handle that wrote and one that did not."""
        if what not in self.searches:
            pytest.skip(f"this store offers no {what}")
        with contextlib.closing(self.open(location)) as store, contextlib.ExitStack() as later:
            handles = [store]
            for rows in (60, 40):
                for tenant in (OWNER, STRANGER):
                    fill_to_search(store, tenant, rows, seed=rows)
                fill_to_search(store, OWNER, 31, seed=7)
                if self.persistent and len(handles) == 1:
                    handles.append(later.enter_context(contextlib.closing(self.open(location))))
                for one in handles:
                    for tenant in (OWNER, STRANGER):
                        SEARCHES[what](one, tenant)
            assert_sound(store, OWNER)

    def test_a_tenant_that_has_nothing_is_shown_nothing(self, store: Any) -> None:
        if not self.searches:
            pytest.skip("this store searches nothing")
        fill_to_search(store, OWNER, 40, seed=1)
        if "nearest" in self.searches:
            query = sample_vectors("x")[0]
            for ordinals in (None, [0, 1, 2]):
                assert store.nearest(STRANGER, 1, query, 10, ordinals) == []
        if "postings" in self.searches:
            assert [o.tolist() for o, _ in store.postings(STRANGER, list(WORDS))] == [[]] * len(WORDS)
        if "walk" in self.searches:
            names = [entity_key(name) for name in NAMES]
            assert store.walk(STRANGER, names, 3, np.ones(100, np.bool_), 10**6, 100) == []

    def test_an_approximate_index_gives_no_short_lists(self, location: Path) -> None:
        if "nearest" not in self.searches:
            pytest.skip("this store offers no nearest")
        with contextlib.closing(self.open(location)) as store:
            for tenant in (OWNER, STRANGER):
                fill_to_search(store, tenant, 120, seed=5)
            if not self.approximate(store):
                pytest.skip("this store has no approximate index")
            for rows in (0, 40):
                for tenant in (OWNER, STRANGER):
                    fill_to_search(store, tenant, rows, seed=6)
                    assert_nearest(store, tenant, approximate=True)

    def test_a_whole_recall_is_that_of_a_store_that_searches_nothing(
        self, location: Path, store: Store
    ) -> None:
        """Words, tags, relations and vectors together, filtered and not, now and as of before."""
        if not getattr(store, "pushdown", False):
            pytest.skip("recall does not search in this store")
        clock = ManualClock()
        options: dict[str, Any] = {"embedder": "hashing:64", "clock": clock, "auto_supersede": False}
        with (
            AgentMemory(self.address(location), ids=_counted(), **options) as mem,
            AgentMemory(":memory:", ids=_counted(), **options) as plain,
        ):
            source = np.random.default_rng(3)
            for n in range(120):
                clock.advance(minutes=7)
                words = " ".join(WORDS[i] for i in source.integers(0, 30, size=9).tolist())
                names = [NAMES[i] for i in source.integers(0, 5, size=2).tolist()]
                for one in (mem, plain):
                    one.add(
                        f"{n}: {words}",
                        entities=names,
                        tags=["odd"] if n % 2 else [],
                        session_id=f"s{n // 9}",
                    )
            for n in range(24):
                asked: dict[str, Any] = {
                    "k": 12,
                    "promote": False,
                    "filters": {"tags": ["odd"]} if n % 3 else None,
                }
                if n % 4 == 3:
                    asked["known_at"] = "2026-01-01T07:00:00Z"
                text = " ".join([WORDS[n], NAMES[n % 5], WORDS[(n * 7) % 30]])
                found, wanted = (
                    [(h.memory.id, h.score) for h in one.recall(text, **asked)] for one in (mem, plain)
                )
                assert len(wanted) == 12, "the questions find so little that they prove nothing"
                assert found == wanted


class StoreConformance(SearchConformance):
    """Tests of the store protocol. Subclass it, and say where a store is by `address`.

    `persistent`: closing and opening again gives the same data. `processes`: several processes may open one
    address at a time. `copies`: `backup` makes something that `open_backup` opens. `size_by_tenant`: `size`
    tells tenants apart. `writers`, `rows_each`, `kills`: the measure of the process tests, larger in those
    marked `long`.
    """

    processes: ClassVar[bool] = True
    copies: ClassVar[bool] = True
    size_by_tenant: ClassVar[bool] = False
    writers: ClassVar[int] = 4
    rows_each: ClassVar[int] = 40
    rows_each_long: ClassVar[int] = 1_000
    kills: ClassVar[int] = 6
    kills_long: ClassVar[int] = 50

    # What a subclass says

    def open_backup(self, path: Path) -> Store:
        """Open what `backup(path)` wrote."""
        return open_store(path)

    def damage(self, store: Store, tenant: str) -> None:
        """Remove the tenant's row 1 behind the store's back, leaving the rest."""
        raise NotImplementedError("say how to damage a store: override `damage`")

    # Helping

    def reopened(self, store: Store, location: Path) -> Store:
        """The store closed and opened again, where that keeps what it holds."""
        if not self.persistent:
            return store
        store.close()
        return self.open(location)

    # Transactions

    def test_a_new_tenant_is_empty(self, store: Store) -> None:
        assert store.head(TENANT) == Head()
        changes = store.changes(TENANT, 0)
        assert (changes.head, changes.events, changes.rows, changes.generations, changes.erased) == (
            Head(),
            [],
            [],
            [],
            [],
        )
        assert store.events(TENANT) == []
        assert store.rows(TENANT, []) == []
        assert store.generations(TENANT) == []
        assert store.receipts(TENANT) == []
        assert store.receipt(TENANT, "none") is None
        assert store.check(TENANT) == []
        assert store.size(TENANT) >= 0

    def test_a_batch_is_read_back_as_written(self, store: Store, location: Path) -> None:
        batch = sample_batch(Head(), ["one", "two", "three"], parts=2)
        with store.transaction(TENANT) as tx:
            assert tx.head == Head()
            head = tx.apply(batch)
            assert tx.head == head
        store = self.reopened(store, location)
        assert store.head(TENANT) == head == Head(3, 3, batch.events[-1].at, batch.events[-1].hash)
        assert store.events(TENANT) == batch.events
        assert store.rows(TENANT, [0, 1, 2]) == batch.rows
        assert store.generations(TENANT) == batch.generations
        vectors = [key for one in batch.vectors for key in plain(one)]
        assert plain(store.vectors(TENANT, 1)) == vectors
        assert_sound(store, TENANT)
        store.close()

    def test_a_transaction_may_apply_several_batches(self, store: Store) -> None:
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["one"]))
            seen = tx.changes(0)
            tx.apply(sample_batch(tx.head, ["two", "three"]))
            assert [row.ordinal for row in tx.changes(seen.head.seq).rows] == [1, 2]
        assert [row.content for row in store.rows(TENANT, [0, 1, 2])] == ["one", "two", "three"]
        assert_sound(store, TENANT)

    def test_a_transaction_without_a_batch_changes_nothing(self, store: Store) -> None:
        add(store, "one")
        before = snapshot(store, TENANT)
        with store.transaction(TENANT) as tx:
            assert tx.head == before["head"]
            assert tx.changes(0) == before["changes"]
            assert tx.apply(Batch()) == before["head"]
        assert snapshot(store, TENANT) == before

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StoreError, GeneratorExit])
    def test_an_error_in_the_block_undoes_all_of_it(
        self, store: Store, location: Path, error: type[BaseException]
    ) -> None:
        add(store, "kept")
        before = snapshot(store, TENANT)

        def interrupted() -> None:
            with store.transaction(TENANT) as tx:
                tx.apply(sample_batch(tx.head, ["lost"]))
                tx.apply(sample_erasure(tx.head, store.rows(TENANT, [0])))
                raise error

        with pytest.raises(error):
            interrupted()
        assert snapshot(store, TENANT) == before
        store = self.reopened(store, location)
        assert snapshot(store, TENANT) == before
        add(store, "next")
        assert_sound(store, TENANT)
        store.close()

    def test_what_is_not_committed_is_not_seen(self, store: Store) -> None:
        add(store, "one")
        before = snapshot(store, TENANT)
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["two"]))
            assert in_thread(lambda: snapshot(store, TENANT)) == before
            assert store.head(TENANT) == before["head"]
        assert store.head(TENANT).rows == 2

    def test_a_transaction_cannot_be_used_after_its_block(self, store: Store) -> None:
        with store.transaction(TENANT) as tx:
            batch = sample_batch(tx.head, ["late"])
        with pytest.raises(StoreError):
            tx.apply(batch)
        with pytest.raises(StoreError):
            tx.changes(0)
        assert store.head(TENANT) == Head()

    def test_transactions_of_one_thread_do_not_nest(self, store: Store) -> None:
        def nested() -> None:
            with store.transaction(TENANT), store.transaction(TENANT):
                pass

        with pytest.raises(StoreError):
            nested()
        add(store, "one")
        assert store.head(TENANT).rows == 1

    @pytest.mark.parametrize("fault", CONTRADICTIONS)
    def test_a_batch_that_contradicts_itself_is_refused(self, store: Store, fault: str) -> None:
        add(store, "zero")
        with store.transaction(TENANT) as tx:
            event = sample_event(tx.head, Kind.RECEIPT)
            tx.apply(Batch(events=[event], receipts=[("kept", event.seq, "{}")]))
        before = snapshot(store, TENANT)

        def refused() -> None:
            with store.transaction(TENANT) as tx:
                tx.apply(sample_batch(tx.head, ["in the same transaction"]))
                bad = CONTRADICTIONS[fault](tx.head)
                with pytest.raises((StoreError, InvalidInput)):
                    tx.apply(bad)
                # Going on as if nothing had happened must not commit the half that was accepted.

        with pytest.raises(StoreError):
            refused()
        assert snapshot(store, TENANT) == before
        add(store, "one")
        assert_sound(store, TENANT)

    # Reading

    def test_rows_come_in_the_order_asked(self, store: Store) -> None:
        add(store, *(f"row {n}" for n in range(300)))
        for ordinals in ([7], [5, 3, 9], [2, 2, 1], list(range(299, -1, -1)), range(10, 30)):
            found = store.rows(TENANT, ordinals)
            assert [row.content for row in found] == [f"row {n}" for n in ordinals]

    @pytest.mark.parametrize("ordinal", [2, -1, 10**12])
    def test_a_missing_row_is_named(self, store: Store, ordinal: int) -> None:
        add(store, "zero", "one")
        with pytest.raises(NotFound, match=str(ordinal)):
            store.rows(TENANT, [0, ordinal])

    def test_changes_are_the_log_after_a_number(self, store: Store) -> None:
        add(store, "one", "two")
        log(store, Kind.ACCESS)
        add(store, "three")
        log(store, Kind.FEEDBACK)
        whole = store.changes(TENANT, 0)
        rows = store.rows(TENANT, [0, 1, 2])
        assert whole.rows == [schema.index_row(row) for row in rows]
        for after in range(whole.head.seq + 3):
            part = store.changes(TENANT, after)
            assert part.head == whole.head
            assert part.events == [event for event in whole.events if event.seq > after]
            assert part.rows == [row for row in whole.rows if row.seq > after]
            assert store.events(TENANT, after) == part.events
            assert store.events(TENANT, after, 2) == part.events[:2]
        assert store.events(TENANT, 0, 0) == []

    def test_vectors_come_by_ordinal_and_part(self, store: Store) -> None:
        with store.transaction(TENANT) as tx:
            batch = sample_batch(tx.head, [f"text {n}" for n in range(40)], parts=3)
            ordered = [key for one in batch.vectors for key in plain(one)]
            merged = _joined(batch.vectors)
            order = np.random.default_rng(1).permutation(len(ordered))
            batch.vectors = [
                dataclasses.replace(
                    merged,
                    **{name: getattr(merged, name)[order] for name in _VECTOR_FIELDS},
                    codes=tuple(merged.codes[at] for at in order),
                )
            ]
            tx.apply(batch)
        assert plain(store.vectors(TENANT, 1)) == ordered
        assert plain(store.vectors(TENANT, 1, 10, 20)) == ordered[30:60]
        assert plain(store.vectors(TENANT, 1, 38)) == ordered[114:]
        assert plain(store.vectors(TENANT, 1, 40)) == []
        assert plain(store.vectors(TENANT, 1, 5, 5)) == []
        assert plain(store.vectors_of(TENANT, 1, [31, 2, 2])) == ordered[6:9] + ordered[93:96]
        assert plain(store.vectors_of(TENANT, 1, [])) == []
        found = store.vectors(TENANT, 1)
        assert found.data.flags.c_contiguous
        assert found.data.dtype == np.float32
        assert {one.dtype for one in (found.ordinals, found.parts, found.starts, found.stops)} == {
            np.dtype(np.int64)
        }

    def test_what_a_store_gives_is_not_its_own(self, store: Store) -> None:
        batch = sample_batch(Head(), ["one"])
        given = batch.vectors[0].data
        with store.transaction(TENANT) as tx:
            tx.apply(batch)
        before = snapshot(store, TENANT)
        given[:] = 0
        store.vectors(TENANT, 1).data[:] = 0
        store.events(TENANT).clear()
        store.changes(TENANT, 0).rows.clear()
        store.generations(TENANT).clear()
        batch.rows.clear()
        assert snapshot(store, TENANT) == before

    def test_an_unknown_generation_is_not_found(self, store: Store) -> None:
        add(store, "one")
        with pytest.raises(NotFound):
            store.vectors(TENANT, 7)
        with pytest.raises(NotFound):
            store.vectors_of(TENANT, 7, [0])

    def test_every_field_survives(self, store: Store, location: Path) -> None:
        odd = "a\x1fb\tc\n\"quote\" \\ 'x'; DROP TABLE memory; -- %_ 规划器 été e\u0301 \U0001f9e0 \u202e rtl"
        fields: dict[str, Any] = {
            "source_id": odd,
            "version": 2**62,
            "namespace": "build/雅",
            "memory_type": odd,
            "tags": (odd, "", ",", "[]", "null"),
            "entities": ("192.168.1.100", odd),
            "key": odd,
            "frame": '["a","b","c"]',
            "confidence": 0.1 + 0.2,
            "pinned": True,
            "metadata": json.dumps({odd: [1, None, {"": odd}]}, ensure_ascii=False),
            "event_at": -(2**62),
            "speaker": odd,
            "visibility": "private",
            "content_hash": odd,
            "agent_id": odd,
            "agent_role": odd,
            "session_id": odd,
            "derived_from": (odd, "x"),
            "valid_from": -1,
            "tokens": 0,
            "traits": 3,
            "lexemes": "{}",
        }
        with store.transaction(TENANT) as tx:
            contents = [odd, "", "x" * 1_000_000]
            tx.apply(sample_batch(tx.head, contents, id=lambda content: odd + content[:9], **fields))
            payload = {odd: odd}
            tx.apply(Batch(events=[sample_event(tx.head, Kind.FLAG, payload=payload)]))
        store = self.reopened(store, location)
        row, empty, long = store.rows(TENANT, [0, 1, 2])
        assert {name: getattr(row, name) for name in fields} == fields
        assert (row.content, empty.content, long.content) == (odd, "", "x" * 1_000_000)
        assert (row.id, empty.id) == (odd + odd[:9], odd)
        assert (row.pinned, row.erased, empty.erased) == (True, False, False)
        assert {type(value) for value in (row.pinned, row.erased)} == {bool}
        indexed = store.changes(TENANT, 0).rows[0]
        assert indexed == schema.index_row(row)
        assert {type(value) for value in (indexed.pinned, indexed.erased)} == {bool}
        assert json.loads(store.events(TENANT)[-1].payload) == payload
        for tenant in (odd, "", TENANT.upper(), TENANT + " "):
            assert store.head(tenant) == Head()
            add(store, "other", tenant=tenant)
        assert store.head(TENANT).rows == 3
        assert_sound(store, TENANT)
        store.close()

    @pytest.mark.parametrize(
        "fields", [{"content": "\ud800"}, {"namespace": "\udfff"}, {"valid_from": 2**63}], ids=str
    )
    def test_what_cannot_be_stored_is_refused(self, store: Store, fields: dict[str, Any]) -> None:
        batch = sample_batch(Head(), ["one"])
        batch.rows[0] = batch.rows[0]._replace(**fields)

        def write() -> None:
            with store.transaction(TENANT) as tx:
                tx.apply(batch)

        with pytest.raises(InvalidInput):
            write()
        assert store.head(TENANT) == Head()
        assert store.events(TENANT) == []

    def test_a_large_batch(self, store: Store) -> None:
        contents = [f"memory number {n}" for n in range(3_000)]
        add(store, *contents)
        head = store.head(TENANT)
        assert (head.seq, head.rows) == (3_000, 3_000)
        assert [row.content for row in store.rows(TENANT, range(3_000))] == contents
        assert len(store.vectors(TENANT, 1)) == 3_000
        assert len(store.vectors_of(TENANT, 1, range(0, 3_000, 2))) == 1_500
        assert len(store.changes(TENANT, 1_000).rows) == 2_000
        assert store.check(TENANT) == []

    # Erasure

    def test_an_erased_row_is_a_tombstone(self, store: Store, location: Path) -> None:
        own: dict[str, Any] = {
            "entities": lambda content: (content,),
            "session_id": str,
            "key": str,
            "speaker": str,
        }
        add(store, "kept", "secret one", "secret two", event_at=5, **own)
        before = snapshot(store, TENANT)
        kept, one, two = before["rows"]
        with store.transaction(TENANT) as tx:
            head = tx.apply(sample_erasure(tx.head, [one, two]))
            assert tx.changes(before["head"].seq).erased == [1, 2]
        store.scrub()
        store = self.reopened(store, location)
        tombstone = store.rows(TENANT, [1])[0]
        assert tombstone == schema.blank(one)
        for name in (*audit.TOMBSTONE, "agent_id", "agent_role", "visibility"):
            assert getattr(tombstone, name) == getattr(one, name)
        assert store.rows(TENANT, [0])[0] == kept
        assert plain(store.vectors(TENANT, 1)) == before["vectors"][1][:1]
        assert plain(store.vectors_of(TENANT, 1, [1, 2])) == []
        gone = store.events(TENANT)[1]
        assert (gone.payload, gone.salt) == ("", b"")
        assert gone._replace(payload="{}", salt=before["events"][1].salt) == before["events"][1]
        assert store.changes(TENANT, 0).erased == [1, 2]
        assert store.changes(TENANT, head.seq - 1).erased == [1, 2]
        assert store.changes(TENANT, head.seq).erased == []
        assert store.changes(TENANT, head.seq - 1).rows == []
        seen = repr(store.changes(TENANT, 0)) + repr(store.rows(TENANT, [0, 1, 2]))
        assert "secret" not in seen
        assert_sound(store, TENANT)
        store.close()

    def test_erasing_again_changes_nothing(self, store: Store) -> None:
        add(store, "secret", "kept")
        rows = store.rows(TENANT, [0])
        for _ in range(2):
            with store.transaction(TENANT) as tx:
                tx.apply(sample_erasure(tx.head, rows))
        assert store.changes(TENANT, 3).erased == []
        assert_sound(store, TENANT)

    def test_a_tombstone_can_be_written_as_such(self, store: Store) -> None:
        """A migration copies logs in which rows are erased already."""
        batch = sample_batch(Head(), ["secret", "kept"])
        batch.rows[0] = schema.blank(batch.rows[0])
        batch.events[0] = batch.events[0]._replace(payload="", salt=b"")
        del batch.vectors[0]
        with store.transaction(TENANT) as tx:
            tx.apply(batch)
        assert store.changes(TENANT, 0).erased == [0]
        assert_sound(store, TENANT)

    def test_erased_rows_get_no_vectors_again(self, store: Store) -> None:
        add(store, "secret", "kept")
        with store.transaction(TENANT) as tx:
            event = sample_event(tx.head, Kind.MAINTAIN)
            tx.apply(Batch(events=[event], generations=[Generation(2, "next", DIMENSION, None)]))
            tx.apply(sample_erasure(tx.head, store.rows(TENANT, [0])))
        for ordinal in (0, 1):  # a re-embedding that read the rows before the erasure
            store.write_vectors(TENANT, _windows(2, ordinal, sample_vectors("x"), 1))
        assert store.vectors(TENANT, 2).ordinals.tolist() == [1]

        def again() -> None:
            with store.transaction(TENANT) as tx:
                event = sample_event(tx.head, Kind.MAINTAIN)
                tx.apply(Batch(events=[event], vectors=[_windows(2, 0, sample_vectors("x"), 1)]))

        with pytest.raises(StoreError):
            again()
        assert_sound(store, TENANT)

    # Receipts and generations

    def test_receipts_are_kept_and_redacted(self, store: Store) -> None:
        with store.transaction(TENANT) as tx:
            for name, body in (("b", '{"n":1}'), ("a", '{"秘":"密"}')):
                event = sample_event(tx.head, Kind.RECEIPT)
                tx.apply(Batch(events=[event], receipts=[(name, event.seq, body)]))
        assert store.receipts(TENANT) == [("b", 1), ("a", 2)]
        assert store.receipt(TENANT, "a") == '{"秘":"密"}'
        assert store.receipt(TENANT, "c") is None
        with store.transaction(TENANT) as tx:
            tx.apply(Batch(events=[sample_event(tx.head, Kind.ERASE)], erase_receipts=[("a", "{}")]))
        assert store.receipt(TENANT, "a") == "{}"
        assert store.receipt(TENANT, "b") == '{"n":1}'
        assert store.receipts(TENANT) == [("b", 1), ("a", 2)]

    def test_a_generation_is_written_made_current_and_dropped(self, store: Store) -> None:
        add(store, "one", "two")
        with store.transaction(TENANT) as tx:
            event = sample_event(tx.head, Kind.MAINTAIN)
            tx.apply(Batch(events=[event], generations=[Generation(2, "next", DIMENSION, None)]))
        vectors = _joined(
            [_windows(2, 0, sample_vectors("1", 2), 9), _windows(2, 1, sample_vectors("2", 2), 9)]
        )
        for _ in range(2):  # the second time replaces
            store.write_vectors(TENANT, vectors)
        assert plain(store.vectors(TENANT, 2)) == plain(vectors)
        assert len(store.vectors(TENANT, 1)) == 2
        with pytest.raises(StoreError):
            store.write_vectors(TENANT, _windows(1, 0, sample_vectors("x"), 1))
        with pytest.raises(StoreError):
            store.write_vectors(TENANT, _windows(3, 0, sample_vectors("x"), 1))
        with pytest.raises(StoreError):
            store.write_vectors(TENANT, _windows(2, 2, sample_vectors("x"), 1))
        with store.transaction(TENANT) as tx:
            event = sample_event(tx.head, Kind.GENERATION)
            tx.apply(Batch(events=[event], generations=[Generation(2, "next", DIMENSION, event.seq)]))
        assert store.generations(TENANT) == [
            Generation(1, "sample", DIMENSION, 1),
            Generation(2, "next", DIMENSION, event.seq),
        ]
        with pytest.raises(StoreError):
            store.write_vectors(TENANT, vectors)
        with store.transaction(TENANT) as tx:
            tx.apply(Batch(events=[sample_event(tx.head, Kind.MAINTAIN)], drop_generations=[1]))
        assert [one.number for one in store.generations(TENANT)] == [2]
        with pytest.raises(NotFound):
            store.vectors(TENANT, 1)
        assert plain(store.vectors(TENANT, 2)) == plain(vectors)
        assert_sound(store, TENANT)

    # Isolation

    def test_every_method_of_the_protocol_is_probed(self) -> None:
        assert set(tenant_methods()) == set(PROBES), (
            "write a probe for each method of Store that takes a tenant"
        )

    @pytest.mark.parametrize("method", sorted(PROBES))
    def test_no_method_shows_or_changes_another_tenant(self, location: Path, method: str) -> None:
        if method == "size" and not self.size_by_tenant:
            pytest.skip("the size of this store is that of all tenants together")
        store, fresh = self._two_tenants(location, method)
        shown = PROBES[method](store, OWNER)
        assert shown != fresh, f"{method} shows nothing of the owner's own data, so it would prove nothing"
        assert_isolated(store, method, fresh, look(store, method))
        store.close()

    @pytest.mark.parametrize("method", sorted(PROBES))
    def test_a_method_that_drops_the_tenant_is_noticed(self, location: Path, method: str) -> None:
        if method == "size" and not self.size_by_tenant:
            pytest.skip("the size of this store is that of all tenants together")
        store, fresh = self._two_tenants(location, method)
        mutant: Any = TenantDropped(store, method, OWNER)
        with pytest.raises(AssertionError, match=method):
            assert_isolated(mutant, method, fresh, look(store, method))
        store.close()

    def _two_tenants(self, location: Path, method: str) -> tuple[Store, Any]:
        """A store with an owner's data, and what the method showed the stranger before that was there."""
        store = self.open(location)
        fresh = PROBES[method](store, STRANGER)
        fill_owner(store)
        if method == "check":
            self.damage(store, OWNER)
        return store, fresh

    def test_tenants_number_their_logs_apart(self, store: Store) -> None:
        for n in range(5):
            for tenant in ("a", "b", "a b", "A"):
                add(store, f"{tenant} {n}", tenant=tenant)
        for tenant in ("a", "b", "a b", "A"):
            assert [row.content for row in store.rows(tenant, range(5))] == [
                f"{tenant} {n}" for n in range(5)
            ]
            assert_sound(store, tenant)
        with store.transaction("a") as tx:
            tx.apply(sample_erasure(tx.head, store.rows("a", [0, 1, 2, 3, 4])))
        store.scrub()
        for tenant in ("b", "a b", "A"):
            assert [row.content for row in store.rows(tenant, range(5))] == [
                f"{tenant} {n}" for n in range(5)
            ]
            assert_sound(store, tenant)

    # Concurrency

    def test_threads_write_one_log(self, store: Store) -> None:
        problems: list[BaseException] = []
        done = threading.Event()

        def write(name: int) -> None:
            for n in range(20):
                add(store, *(f"{name}:{n}:{i}" for i in range(3)))

        def read() -> None:
            seen = 0
            while not done.is_set():
                changes = store.changes(TENANT, 0)
                assert changes.head.seq == len(changes.events) >= seen
                assert changes.head.rows == len(changes.rows)
                assert changes.head.rows % 3 == 0, "half a transaction is visible"
                if changes.generations:
                    rows = changes.head.rows
                    assert len(store.vectors(TENANT, 1, 0, rows)) == rows
                seen = changes.head.seq

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 -- re-raised below, in the test's own thread
                problems.append(error)

        writers = [threading.Thread(target=guarded, args=(lambda n=n: write(n),)) for n in range(4)]
        readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
        if problems:
            raise problems[0]
        contents = [row.content for row in store.rows(TENANT, range(240))]
        for name in range(4):
            mine = [content for content in contents if content.startswith(f"{name}:")]
            assert mine == [f"{name}:{n}:{i}" for n in range(20) for i in range(3)]
        assert_sound(store, TENANT)

    def test_a_second_handle_sees_commits_at_its_next_call(self, store: Store, location: Path) -> None:
        if not self.persistent:
            pytest.skip("every handle of this store is a store of its own")
        other = self.open(location)
        for n in range(5):
            add(store if n % 2 else other, f"row {n}")
            assert store.head(TENANT) == other.head(TENANT)
            assert store.head(TENANT).rows == n + 1
            assert snapshot(store, TENANT) == snapshot(other, TENANT)
        other.close()
        add(store, "after")
        assert_sound(store, TENANT)

    def test_a_writer_that_waits_too_long_is_told(self, location: Path) -> None:
        store = self.open(location, timeout=0.2)
        other = self.open(location, timeout=0.2) if self.persistent else store
        began = monotonic()
        with store.transaction(TENANT) as tx:
            tx.apply(sample_batch(tx.head, ["one"]))
            with pytest.raises(StoreBusy):
                in_thread(lambda: add(other, "two"))
            assert in_thread(lambda: other.head(TENANT)) == Head(), "readers do not wait for writers"
        assert 0.2 <= monotonic() - began < 30
        add(other, "two")
        assert store.head(TENANT).rows == 2
        other.close()
        store.close()

    def test_processes_write_one_log(self, location: Path) -> None:
        self._processes(location, self.rows_each)

    @pytest.mark.long
    def test_processes_write_one_log_long(self, location: Path) -> None:
        self._processes(location, self.rows_each_long)

    def _processes(self, location: Path, rows_each: int) -> None:
        if not self.processes:
            pytest.skip("this store belongs to one process")
        address = self.address(location)
        self.open(location).close()
        stop = location.parent / "stop"
        readers = [spawn("read", address, str(stop)) for _ in range(2)]
        writers = [spawn("write", address, str(name), str(rows_each)) for name in range(self.writers)]
        try:
            for process in writers:
                out, err = process.communicate(timeout=600)
                assert process.returncode == 0, err
                assert out.count("committed") == rows_each
            stop.touch()
            for process in readers:
                out, err = process.communicate(timeout=60)
                assert process.returncode == 0, err
                assert int(out.split()[-1]) > 0, "the reader never read"
        finally:
            end(*readers, *writers)
        store = self.open(location)
        total = self.writers * rows_each
        head = store.head(TENANT)
        assert (head.seq, head.rows) == (total, total)
        contents = [row.content for row in store.rows(TENANT, range(total))]
        for name in range(self.writers):
            mine = [content for content in contents if content.startswith(f"{name}:")]
            assert mine == [f"{name}:{n}:0:1" for n in range(rows_each)]
        assert_sound(store, TENANT)
        store.close()

    # Faults

    def test_a_fault_at_any_point_leaves_the_store_sound(self, location: Path) -> None:
        store = self.open(location)
        counting: Any = FaultyStore(store)
        history(counting)
        points = counting.points
        assert {"begun", "apply", "applied", "commit", "committed"} <= set(counting.trail)
        store.close()
        for fail_at in range(1, points + 1):
            place = location.parent / f"fault-{fail_at}"
            place.mkdir()
            store = self.open(place)
            faulty: Any = FaultyStore(store, fail_at)
            with pytest.raises(Fault):
                history(faulty)
            store = self.reopened(store, place)
            assert_sound(store, "faults")
            head = store.head("faults")
            assert head.rows in (0, 2, 5), "a part of a transaction is visible"
            history(store)
            assert_sound(store, "faults")
            store.close()

    def test_a_killed_process_leaves_whole_transactions(self, location: Path) -> None:
        self._kills(location, self.kills)

    @pytest.mark.long
    def test_a_killed_process_leaves_whole_transactions_long(self, location: Path) -> None:
        self._kills(location, self.kills_long)

    def _kills(self, location: Path, rounds: int) -> None:
        """Kill a writing process `rounds` times: every other time inside a transaction that it announced."""
        if not self.processes:
            pytest.skip("this store belongs to one process")
        address = self.address(location)
        self.open(location).close()
        inside = 0
        acknowledged: set[str] = set()
        for number in range(rounds):
            process = spawn("churn", address, str(number))
            acked, pending = kill_while_writing(process, number)
            acknowledged |= acked
            store = self.open(location)
            assert_sound(store, TENANT)
            found: dict[str, list[int]] = {}
            for row in store.rows(TENANT, range(store.head(TENANT).rows)):
                run, batch, index, size = row.id.removeprefix("id|").split(":")
                found.setdefault(f"{run}:{batch}:{size}", []).append(int(index))
            for name, indexes in found.items():
                assert indexes == list(range(int(name.rpartition(":")[2]))), (
                    f"half of batch {name} is visible"
                )
            assert acknowledged <= found.keys(), f"lost: {sorted(acknowledged - found.keys())}"
            inside += pending is not None and pending not in found
            store.close()
        assert inside >= max(1, rounds // 5), f"only {inside} of {rounds} kills fell inside a transaction"

    # Keeping

    def test_a_backup_is_the_state_of_one_moment(self, store: Store, tmp_path: Path) -> None:
        if not self.copies:
            with pytest.raises(StoreError):
                store.backup(tmp_path / "copy")
            return
        add(store, *(f"row {n}" for n in range(200)))
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                add(store, "a", "b", "c")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for n in range(3):
                store.backup(tmp_path / f"copy {n}")
        finally:
            done.set()
            writer.join()
        for n in range(3):
            copy = self.open_backup(tmp_path / f"copy {n}")
            assert_sound(copy, TENANT)
            rows = copy.head(TENANT).rows
            assert rows >= 200
            assert (rows - 200) % 3 == 0
            assert copy.rows(TENANT, range(rows)) == store.rows(TENANT, range(rows))
            add(copy, "the copy goes its own way")
            copy.close()
        before = (tmp_path / "copy 0").stat().st_mtime_ns
        with pytest.raises(StoreError):
            store.backup(tmp_path / "copy 0")
        assert (tmp_path / "copy 0").stat().st_mtime_ns == before
        assert_sound(store, TENANT)

    def test_scrub_changes_nothing_that_is_kept(self, store: Store) -> None:
        add(store, *(f"row {n}" for n in range(50)), parts=2)
        before = snapshot(store, TENANT)
        store.scrub()
        assert snapshot(store, TENANT) == before
        add(store, "next")
        assert_sound(store, TENANT)

    def test_check_finds_a_missing_row(self, store: Store) -> None:
        add(store, "zero", "one", "two")
        assert store.check(TENANT) == []
        self.damage(store, TENANT)
        assert store.check(TENANT) != []

    # Closing

    def test_a_closed_store_refuses_every_call(self, location: Path, tmp_path: Path) -> None:
        store = self.open(location)
        fill_owner(store)
        store.close()
        store.close()
        calls: dict[str, Callable[[Store], Any]] = {**CALLS, "backup": _backup(tmp_path / "copy")}
        assert calls.keys() | {"close"} == set(tenant_methods()) | WITHOUT_TENANT
        for name, call in calls.items():
            with pytest.raises(StoreError):
                pytest.fail(f"{name} works on a closed store: {call(store)!r}")

    def test_a_reopened_store_goes_on(self, store: Store, location: Path) -> None:
        if not self.persistent:
            pytest.skip("this store ends when it is closed")
        history(store)
        before = snapshot(store, "faults")
        for n in range(3):
            store = self.reopened(store, location)
            assert snapshot(store, "faults") == before
            add(store, f"more {n}", tenant="faults")
            before = snapshot(store, "faults")
        assert_sound(store, "faults")
        store.close()


def _counted() -> Callable[[int], str]:
    """Ids that are the same in two stores."""
    numbers = itertools.count()
    return lambda _: f"M{next(numbers):025d}"


if __name__ == "__main__":
    main(sys.argv[1:])
