"""SQLite against the in-memory store: any history gives the same answers, after reopening too."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twofold.errors import TwofoldError
from twofold.model import Batch, Generation, Kind, Vectors
from twofold.stores import Store
from twofold.stores.memory import MemoryStore
from twofold.stores.schema import current_generation
from twofold.stores.sqlite import SQLiteStore
from twofold.testing import DIMENSION, assert_sound, plain, sample_batch, sample_event, snapshot

NAMES = ("a", "\U0001f9e0")
TENANTS = st.sampled_from(NAMES)
VALID = st.sampled_from([True, True, True, False])  # otherwise what is asked may not exist
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.sqlite: Store = SQLiteStore(self.folder)
        self.memory: Store = MemoryStore()

    def teardown(self) -> None:
        for tenant in NAMES:
            assert_sound(self.sqlite, tenant)
            assert_sound(self.memory, tenant)
        self.sqlite.close()
        shutil.rmtree(self.folder)

    def both(self, work: Any) -> Any:
        """Do the same on both stores; they must give the same result or the same kind of error."""
        results = []
        for store in (self.sqlite, self.memory):
            try:
                results.append(work(store))
            except TwofoldError as error:
                results.append(type(error))
        assert results[0] == results[1]
        return results[0]

    def existing(self, tenant: str, ordinals: list[int]) -> list[int]:
        """These ordinals, folded onto rows that are there."""
        rows = self.memory.head(tenant).rows
        return [ordinal % rows for ordinal in ordinals] if rows else []

    @rule(
        tenant=TENANTS,
        contents=st.lists(TEXT, min_size=1, max_size=4),
        tags=st.lists(TEXT, max_size=2).map(tuple),
        key=st.none() | TEXT,
        parts=st.integers(1, 2),
        generation=st.sampled_from(["current"] * 6 + [None, 2]),
        fail=st.sampled_from([False, False, False, True]),
    )
    def add(
        self, tenant: str, contents: list[str], parts: int, fail: bool, generation: Any, **row: Any
    ) -> None:
        if generation == "current":
            known = {one.number: one for one in self.memory.generations(tenant)}
            generation = current_generation(known) or (None if self.memory.head(tenant).seq else 1)

        def work(store: Store) -> Any:
            with store.transaction(tenant) as tx:
                tx.apply(sample_batch(tx.head, contents, parts=parts, generation=generation, **row))
                seen = tx.changes(0)
                if fail:
                    raise TwofoldError
            return seen

        self.both(work)

    @rule(tenant=TENANTS, ordinals=st.lists(st.integers(0, 12), max_size=3), whole=st.booleans(), valid=VALID)
    def erase(self, tenant: str, ordinals: list[int], whole: bool, valid: bool) -> None:
        ordinals = self.existing(tenant, ordinals) if valid else ordinals

        def work(store: Store) -> Any:
            with store.transaction(tenant) as tx:
                event = sample_event(tx.head, Kind.ERASE)
                batch = Batch(events=[event], erase_rows=ordinals)
                if ordinals and whole:
                    batch.erase_events = [row.seq for row in store.rows(tenant, ordinals)]
                return tx.apply(batch)

        self.both(work)

    @rule(
        tenant=TENANTS, kind=st.sampled_from([Kind.ACCESS, Kind.FEEDBACK, Kind.LINK]), count=st.integers(1, 3)
    )
    def log(self, tenant: str, kind: Kind, count: int) -> None:
        def work(store: Store) -> Any:
            with store.transaction(tenant) as tx:
                for _ in range(count):
                    tx.apply(Batch(events=[sample_event(tx.head, kind, payload={"n": count})]))
                return tx.head

        self.both(work)

    @rule(tenant=TENANTS, name=st.sampled_from("xyz"), redact=st.booleans())
    def receipt(self, tenant: str, name: str, redact: bool) -> None:
        def work(store: Store) -> Any:
            with store.transaction(tenant) as tx:
                event = sample_event(tx.head, Kind.ERASE if redact else Kind.RECEIPT)
                batch = Batch(events=[event])
                if redact:
                    batch.erase_receipts = [(name, "{}")]
                else:
                    batch.receipts = [(name, event.seq, '{"n":1}')]
                return tx.apply(batch)

        self.both(work)

    @rule(
        tenant=TENANTS,
        number=st.integers(1, 3),
        current=st.booleans(),
        drop=st.sampled_from([None, None, 1, 2]),
        dimension=st.sampled_from([DIMENSION] * 9 + [DIMENSION + 1]),
        valid=VALID,
    )
    def generation(
        self, tenant: str, number: int, current: bool, drop: int | None, dimension: int, valid: bool
    ) -> None:
        if valid:
            numbers = [one.number for one in self.memory.generations(tenant)]
            number = max(numbers, default=0) + (not current or not numbers)
            drop = numbers[0] if drop and len(numbers) > 1 else None

        def work(store: Store) -> Any:
            with store.transaction(tenant) as tx:
                event = sample_event(tx.head, Kind.GENERATION)
                one = Generation(number, "sample", dimension, event.seq if current else None)
                drops = [] if drop is None else [drop]
                return tx.apply(Batch(events=[event], generations=[one], drop_generations=drops))

        self.both(work)

    @rule(
        tenant=TENANTS,
        number=st.integers(1, 3),
        ordinals=st.lists(st.integers(0, 12), max_size=4),
        parts=st.integers(1, 2),
        valid=VALID,
    )
    def write_vectors(self, tenant: str, number: int, ordinals: list[int], parts: int, valid: bool) -> None:
        dimension = DIMENSION
        if valid:
            ordinals = self.existing(tenant, ordinals)
            if all(one.seq is not None for one in self.memory.generations(tenant)):
                self.generation(tenant, number, False, None, DIMENSION, True)
            pending = next(one for one in self.memory.generations(tenant) if one.seq is None)
            number, dimension = pending.number, pending.dimension
        keys = [(ordinal, part) for ordinal in set(ordinals) for part in range(parts)]
        n = len(keys)
        rows, windows = (np.array([key[at] for key in keys], dtype=np.int64) for at in (0, 1))
        data = np.arange(n * dimension, dtype=np.float32).reshape(n, dimension)
        vectors = Vectors(number, rows, windows, windows, windows + 1, data)
        self.both(lambda store: store.write_vectors(tenant, dataclasses.replace(vectors)))

    @rule(
        tenant=TENANTS,
        ordinals=st.lists(st.integers(-1, 12), max_size=5),
        first=st.integers(0, 8),
        stop=st.none() | st.integers(0, 12),
        after=st.integers(0, 30),
        limit=st.none() | st.integers(0, 5),
    )
    def look(
        self,
        tenant: str,
        ordinals: list[int],
        first: int,
        stop: int | None,
        after: int,
        limit: int | None,
    ) -> None:
        self.both(lambda store: store.rows(tenant, ordinals))
        self.both(lambda store: store.changes(tenant, after))
        self.both(lambda store: store.events(tenant, after, limit))
        for number in (1, 2):
            self.both(lambda store, number=number: plain(store.vectors(tenant, number, first, stop)))
            self.both(lambda store, number=number: plain(store.vectors_of(tenant, number, ordinals)))

    @rule(scrub=st.booleans())
    def reopen(self, scrub: bool) -> None:
        if scrub:
            self.sqlite.scrub()
        self.sqlite.close()
        self.sqlite = SQLiteStore(self.folder)

    @invariant()
    def same(self) -> None:
        for tenant in NAMES:
            self.both(lambda store, tenant=tenant: snapshot(store, tenant))


TestStores = Stores.TestCase
# Every step compares everything, so the long profile's thousand histories would take most of its time here.
_profile = hypothesis.settings.default
TestStores.settings = hypothesis.settings(
    max_examples=min(_profile.max_examples, 150), stateful_step_count=min(_profile.stateful_step_count, 60)
)
