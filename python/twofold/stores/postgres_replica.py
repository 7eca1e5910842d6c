"""Reading from standbys: what is recalled may come from a replica, if that is new enough by sequence number.

A standby applies whole transactions in their order, so the tenant's head on it says exactly which prefix of the log
it has. Every statement sent there reads that head too, in the same round trip, so that an answer from too old a
server is thrown away and not used, whichever server the address led to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import numpy as np
import numpy.typing as npt
import psycopg

from twofold.clock import monotonic
from twofold.errors import NotFound, StoreError, StoreTooNew
from twofold.index.pushed import Found, Near, Postings, Step, Steps
from twofold.model import Changes, Head, Row, Vectors
from twofold.stores import postgres_graph as walked
from twofold.stores import postgres_text as worded
from twofold.stores import postgres_vectors as pushed
from twofold.stores.postgres import Arguments, Connection, PostgresStore
from twofold.stores.postgres_derived import TABLES, counts, entries_of, identity, reach_of
from twofold.stores.postgres_schema import MIGRATIONS

T = TypeVar("T")

ANY_LAG: Final = -1
PATIENCE: Final = 2.0  # seconds a replica may take before the primary is asked instead
SILENT: Final = 5.0  # seconds it may say nothing while it is waited for
AWAY: Final = 5.0  # seconds a replica that failed is left alone

_HEAD: Final = 'SELECT seq, "rows", recorded_at, hash FROM @head WHERE tenant = %s'
_NOTHING: Final = object()


class _Behind(Exception):
    """The server that answered has not yet what is needed."""


class _Standby(PostgresStore):
    """A store that is only read, opened when it is first needed, and only believed from `need` on."""

    def __init__(self, url: str, primary: PostgresStore, timeout: float) -> None:
        self.need: dict[str, int] = {}
        self._looked = False
        super().__init__(_completed(url, primary), timeout=timeout)
        self._silence = SILENT

    def _open(self) -> None:
        """Not yet: a replica that is away is no reason not to open the store."""

    def look(self) -> None:
        """Make sure, once, that this is a schema which can be read, by a role that may."""
        if self._looked:
            return
        try:
            db = self._connect()
            try:
                self._refuse_unsafe(db)
                found = db.execute(self._q("SELECT version FROM @format")).fetchall()
            finally:
                db.close()
        except psycopg.Error as error:
            self._fail(error, "read from the replica")
        version = found[0][0] if found else 0
        if version > len(MIGRATIONS):
            raise StoreTooNew(f"the replica {self.url} has format {version}: upgrade Twofold")
        if version < len(MIGRATIONS):
            raise StoreError(f"the replica {self.url} has format {version} still, not {len(MIGRATIONS)}")
        self._looked = True

    def _ask(
        self, doing: str, tenant: str, *statements: tuple[str, Arguments], snapshot: bool = False
    ) -> list[list[Any]]:
        head, *found = super()._ask(doing, tenant, (_HEAD, (tenant,)), *statements, snapshot=snapshot)
        if not self._enough(tenant, head):
            raise _Behind
        return found

    def _in_snapshot(self, doing: str, tenant: str, read: Callable[[Connection], T]) -> T:
        def checked(db: Connection) -> Any:
            return read(db) if self._enough(tenant, self._now(db, _HEAD, (tenant,))) else _NOTHING

        found = super()._in_snapshot(doing, tenant, checked)
        if found is _NOTHING:
            raise _Behind
        return found  # type: ignore[no-any-return]

    def _enough(self, tenant: str, head: list[Any]) -> bool:
        return (head[0][0] if head else 0) >= self.need.get(tenant, 0)

    def _fill(self, tenant: str) -> None:
        """The searchable copy is made on the primary; here it is there whole, or not yet."""
        if tenant in self._filled:
            return
        named = (walked.NAME, worded.NAME)
        counting = counts(named, None, tenant)
        tables, claims, head, missing, edges, words, places = self._ask(
            "look for what is searched",
            tenant,
            (TABLES, (self._schema,)),
            (walked.DERIVED, (tenant,)),
            (_HEAD, (tenant,)),
            (pushed.MISSING, (tenant, 1)),
            *(counting[name] for name in named),
            (identity(self._schema, self._mirror), ()),
            snapshot=True,
        )
        reach, claimed = reach_of(tables, claims), entries_of(claims)
        there = {walked.NAME: edges[0][0], worded.NAME: words[0][0]}
        if missing or (head and any((reach.get(n), claimed.get(n)) != (head[0][0], there[n]) for n in named)):
            raise _Behind
        self._note_filled(tenant, tuple(places[0]))


class ReplicaReads:
    """The part of `Store` that recalls use, from a replica where its head allows, else from the primary.

    max_lag: how many events the replica's head may be behind the primary's, which is asked each time (one round
    trip, as without a replica); ANY_LAG: it is not asked. Never older than what `seen` was told, nor than what
    was answered before. All other attributes are the primary's.
    """

    def __init__(self, primary: PostgresStore, url: str, max_lag: int, timeout: float) -> None:
        self.primary = primary
        self.standby = _Standby(url, primary, min(timeout, PATIENCE))
        self.max_lag = max_lag
        self.served = {"replica": 0, "primary": 0}  # heads, by where what follows will be read
        self.why = ""  # the replica was left alone last
        self._floor: dict[str, int] = {}
        self._same: set[str] = set()  # tenants whose log on the replica was found to be the primary's
        self._until = 0.0
        self._mutex = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.primary, name)

    # What was seen

    def seen(self, tenant: str, seq: int) -> None:
        """Whatever is read from now on is at least this new."""
        with self._mutex:
            self._floor[tenant] = max(seq, self._floor.get(tenant, 0))
            self.standby.need[tenant] = max(seq, self.standby.need.get(tenant, 0))

    def doubt(self, tenant: str, lost: bool) -> None:
        """Compare the logs again. lost: a standby without the log's end was promoted; what was seen is gone."""
        with self._mutex:
            self._same.discard(tenant)
            if lost:
                self._floor.pop(tenant, None)
                self.standby.need.pop(tenant, None)

    # Reading

    def head(self, tenant: str) -> Head:
        """The head up to which to read now: the replica's if that is new enough, else the primary's."""
        floor = self._floor.get(tenant, 0)
        newest = None
        need = floor
        if self.max_lag != ANY_LAG:
            newest = self.primary.head(tenant)
            if newest.seq <= floor:
                return newest
            need = max(floor, newest.seq - self.max_lag)
        found = self._try(lambda: self._replica_head(tenant))
        if found is not None and found.seq >= need:
            self.served["replica"] += 1
            with self._mutex:
                self.standby.need[tenant] = max(need, self.standby.need.get(tenant, 0))
            return found
        self.served["primary"] += 1
        found = self.primary.head(tenant) if newest is None else newest
        self.seen(tenant, found.seq)
        return found

    def changes(self, tenant: str, after: int) -> Changes:
        found = self._either(lambda store: store.changes(tenant, after))
        self.seen(tenant, found.head.seq)
        return found

    def rows(self, tenant: str, ordinals: Sequence[int]) -> list[Row]:
        return self._either(lambda store: store.rows(tenant, ordinals))

    def vectors(self, tenant: str, generation: int, first: int = 0, stop: int | None = None) -> Vectors:
        return self._either(lambda store: store.vectors(tenant, generation, first, stop))

    def vectors_of(self, tenant: str, generation: int, ordinals: Sequence[int]) -> Vectors:
        return self._either(lambda store: store.vectors_of(tenant, generation, ordinals))

    def nearest(
        self,
        tenant: str,
        generation: int,
        query: npt.NDArray[np.float32],
        count: int,
        ordinals: Sequence[int] | npt.NDArray[np.int64] | None = None,
        *,
        exact: bool = False,
    ) -> list[int]:
        """As PostgresStore.nearest."""
        self.primary._fill(tenant)
        return self._either(
            lambda store: store.nearest(tenant, generation, query, count, ordinals, exact=exact)
        )

    def search(self, tenant: str, near: Near | None, terms: Sequence[str], steps: Steps | None) -> Found:
        """As PostgresStore.search."""
        self.primary._fill(tenant)
        return self._either(lambda store: store.search(tenant, near, terms, steps))

    def postings(self, tenant: str, terms: Sequence[str]) -> list[Postings]:
        """As PostgresStore.postings."""
        return self.search(tenant, None, terms, None).postings

    def walk(
        self, tenant: str, seeds: Sequence[str], hops: int, mask: npt.NDArray[np.bool_], seq: int, limit: int
    ) -> list[Step]:
        """As PostgresStore.walk."""
        return self.search(tenant, None, (), Steps(seeds, hops, mask, seq, limit)).reached

    def close(self) -> None:
        """Release the replica's connections; the primary is its owner's to close."""
        self.standby.close()

    def state(self) -> dict[str, Any]:
        """Where recalls were read from, and why the replica was last left alone ("" when it was not)."""
        return {
            "url": self.standby.url,
            "max_lag": self.max_lag,
            "served": dict(self.served),
            "away": self._until > monotonic(),
            "why": self.why,
        }

    def _replica_head(self, tenant: str) -> Head:
        self.standby.look()
        head = self.standby.head(tenant)
        if tenant not in self._same and head.seq:
            found = self.primary.events(tenant, head.seq - 1, 1)
            if not found or found[0].hash != head.hash:
                raise StoreError(f"{self.standby.url} has another log of tenant {tenant!r} than the primary")
            self._same.add(tenant)
        return head

    def _either(self, read: Callable[[PostgresStore], T]) -> T:
        found = self._try(lambda: (read(self.standby),))
        return found[0] if found is not None else read(self.primary)

    def _try(self, read: Callable[[], T]) -> T | None:
        """What the replica says; None when it is away, behind, or lacks what was asked for."""
        if monotonic() < self._until:
            return None
        try:
            return read()
        except (_Behind, NotFound):
            return None
        except StoreError as error:
            self.why = str(error)
            self._until = monotonic() + AWAY
            self.standby._looked = False
            self._same.clear()
            return None


def _completed(url: str, primary: PostgresStore) -> str:
    """The replica's address with what it shares with the primary's, and with what suits a server that only reads."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    wanted = {
        "schema": primary._schema,
        "mode": "pushdown" if primary.pushdown else "local",
        "prepare": "1" if primary._prepare else "0",
        "allow_bypass": "1" if primary._allow_bypass else "0",
        "target_session_attrs": "any",
        "connect_timeout": str(int(PATIENCE)),
        **given,
    }
    return urlunsplit((*parts[:3], urlencode(wanted, quote_via=quote), ""))


def open_replica(primary: Any, url: str, max_lag: int, timeout: float) -> ReplicaReads:
    """Reads of a PostgreSQL store through a replica of its server."""
    if not isinstance(primary, PostgresStore):
        raise StoreError(f"{primary.url} is no PostgreSQL store, so there is no replica of it to read from")
    return ReplicaReads(primary, url, max_lag, timeout)


__all__ = ["ANY_LAG", "ReplicaReads", "open_replica"]
