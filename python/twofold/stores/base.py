"""The store protocol: a few operations, everything else is derived from them above.

A store keeps, per tenant, an append-only log of events with dense sequence numbers, the rows, and the
vectors. The tenant is the first argument of every method: there is no way to ask about all of them.
Indexes in RAM are fed by `changes` and never consulted for durability.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from twofold.model import Batch, Changes, Event, Generation, Head, Row, Vectors


class Transaction(Protocol):
    """An exclusive write on one tenant. Leaving the block without an error commits `apply`'s batch."""

    head: Head

    def changes(self, after: int) -> Changes:
        """As Store.changes, read inside this transaction (up to `head`)."""
        ...

    def apply(self, batch: Batch) -> Head:
        """Write a batch; may be called several times in one transaction. Returns the new head.

        The store checks that events continue the head (seq dense, recorded_at not decreasing) and that
        rows continue the ordinals; otherwise StoreError, and nothing of the transaction is committed.
        """
        ...


class Reading(Protocol):
    """What recalls read: a part of Store, and all that a replica gives."""

    def head(self, tenant: str) -> Head:
        """As Store.head."""
        ...

    def changes(self, tenant: str, after: int) -> Changes:
        """As Store.changes."""
        ...

    def rows(self, tenant: str, ordinals: Sequence[int]) -> list[Row]:
        """As Store.rows."""
        ...

    def vectors(self, tenant: str, generation: int, first: int = 0, stop: int | None = None) -> Vectors:
        """As Store.vectors."""
        ...

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        """As Store.vectors_of."""
        ...


class Replica(Reading, Protocol):
    """Reads from a copy of a store that may be behind it, or from the store itself where that is too far."""

    def seen(self, tenant: str, seq: int) -> None:
        """Whatever is read from now on is at least this new."""
        ...

    def doubt(self, tenant: str, lost: bool) -> None:
        """Compare its log with the store's again; lost: the store's was cut, so what was seen counts no more."""
        ...

    def state(self) -> dict[str, Any]:
        """Where was read from, and why it was not the replica, as JSON values."""
        ...

    def close(self) -> None:
        """Release its connections."""
        ...


class Store(Protocol):
    """One database. Safe to use from several threads; several processes may open the same one."""

    url: str
    persistent: bool
    cache_dir: Path | None  # where derived files may lie, beside the data; None for none

    def transaction(self, tenant: str) -> AbstractContextManager[Transaction]:
        """Take the tenant's write lock (StoreBusy when it is not had in time) and yield a Transaction."""
        ...

    def head(self, tenant: str) -> Head:
        """The tenant's head as committed now; Head() for a tenant that has none."""
        ...

    def changes(self, tenant: str, after: int) -> Changes:
        """Events with seq > after, the rows they added, and the head, from one snapshot."""
        ...

    def rows(self, tenant: str, ordinals: Sequence[int]) -> list[Row]:
        """The rows of these ordinals, in the order asked. NotFound names a missing ordinal."""
        ...

    def vectors(self, tenant: str, generation: int, first: int = 0, stop: int | None = None) -> Vectors:
        """Vectors of a generation with first <= ordinal < stop, ordered by (ordinal, part)."""
        ...

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        """Vectors of these ordinals (any order in, (ordinal, part) order out)."""
        ...

    def generations(self, tenant: str) -> list[Generation]:
        """All embedding generations of the tenant by number."""
        ...

    def write_vectors(self, tenant: str, vectors: Vectors) -> None:
        """Add vectors of a generation that is not current yet (re-embedding). Idempotent per (ordinal, part).

        Vectors of erased rows are left out: whoever embeds may have read them before they were erased.
        """
        ...

    def events(self, tenant: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Log entries with seq > after, in order."""
        ...

    def receipt(self, tenant: str, receipt_id: str) -> str | None:
        """A kept receipt's JSON."""
        ...

    def receipts(self, tenant: str) -> list[tuple[str, int]]:
        """(id, seq) of every kept receipt, by seq."""
        ...

    def scrub(self) -> None:
        """Make erased bytes unrecoverable from the files (checkpoint, rewrite free pages)."""
        ...

    def residue(self, needles: Sequence[bytes]) -> list[str]:
        """The store's own files in which any of these byte strings is found; empty where it has no files."""
        ...

    def check(self, tenant: str) -> list[str]:
        """Problems of the database itself for this tenant, as sentences; empty when sound."""
        ...

    def size(self, tenant: str) -> int:
        """Bytes on disk (of the whole database where it cannot be told per tenant)."""
        ...

    def backup(self, destination: Path) -> None:
        """A consistent copy, taken while others write."""
        ...

    def close(self) -> None:
        """Release connections; later calls raise StoreError."""
        ...
