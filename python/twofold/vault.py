"""What the read and the write path share: the store, the embedder, the clock, and one index per tenant.

Keeps each tenant's view in RAM in step with its store by sequence number, and turns a write into one commit.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold import audit, entities, text
from twofold.access import Principal
from twofold.clock import Clock, to_us
from twofold.decay import DecayPolicy
from twofold.embed.cache import QueryCache
from twofold.errors import EmbedderMismatch, InvalidInput, StoreCorrupt, TwofoldError
from twofold.index import __version__, ann, cache
from twofold.index.tenant import TenantIndex, VectorPart
from twofold.model import Batch, Changes, Event, Generation, Head, Kind, Row, Vectors
from twofold.named_entities import EntityFinder
from twofold.stores.schema import UNREADABLE, index_row, unreadable
from twofold.tokens import TokenCounter

if TYPE_CHECKING:
    from twofold.embed.base import Embedder
    from twofold.follow import Follower
    from twofold.stores.base import Reading, Replica, Store, Transaction

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ACCESS_BUFFER = 256
CACHE_ROWS = 250
LOADED_ROWS = 65_536
HELD_ROWS = 8192  # float32 rows in RAM, under a memory ceiling, before they are moved to the view's file
INDEX_RULES = f"{__version__} {text.RULES} {entities.RULES}"


class IdSource:
    """26 characters of Crockford base 32: 48 bits of milliseconds, 80 of entropy. Later ids sort later.

    Within one millisecond the entropy counts up, so that ids keep the order they were made in.
    """

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self, us: int) -> str:
        with self._lock:
            value = max(us // 1000, 0) << 80
            if self._last >> 80 == value >> 80:
                value = self._last + 1
            else:
                value |= int.from_bytes(self._entropy(10), "big")
            self._last = value
        return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


class Latency:
    """Counts recalls and those that missed the configured target. Milliseconds; for `stats()` only."""

    def __init__(self) -> None:
        self.recalls = 0
        self.missed = 0
        self.worst = 0.0

    def note(self, milliseconds: float, target: float) -> None:
        self.recalls += 1
        self.missed += milliseconds > target
        self.worst = max(self.worst, milliseconds)


class Vault:
    """Shared by every handle that was made from one `AgentMemory`; safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        clock: Clock,
        policy: DecayPolicy,
        counter: TokenCounter,
        query_cache: int,
        *,
        ids: Callable[[int], str] | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.store = store
        # Where recalls read: the store, or a replica of it that is new enough (stores/postgres_replica).
        self.reading: Reading = store
        self.replica: Replica | None = None
        self.follower: Follower | None = None
        self.embedder = embedder
        self.clock = clock
        self.policy = policy
        self.counter = counter
        self._cache_size = query_cache
        self.entropy = entropy
        self.ids = ids or IdSource(entropy)
        self.auto_supersede = True
        self.finder: EntityFinder | None = None  # names beside those that the rules find
        # The store searches vectors itself: views in RAM go without them.
        self.pushdown = bool(getattr(store, "pushdown", False))
        self._indexes: dict[str, TenantIndex] = {}
        # Per tenant, so that none can tell from a count or a delay what another asked.
        self._caches: dict[str, QueryCache] = {}
        self._latencies: dict[str, Latency] = {}
        # By fingerprint, of tenants that are, or were, re-embedded through this vault.
        self._embedders: dict[str, dict[str, Embedder]] = {}
        self._lock = threading.RLock()
        self._accesses: dict[str, list[tuple[int, int]]] = {}
        self.vectors_in_ram = "rows"  # or "codes": float32 rows are read from the view's file each time
        self.cache_state: dict[str, str] = {}
        self._most_held: dict[str, int] = {}  # where the file could not be written: when to try again
        self._cached_rows: dict[str, int] = {}
        # Vectors from which a graph proposes the candidates of a search; None: all search is exact.
        self.ann_rows: int | None = None
        self.ann_state: dict[str, str] = {}

    def tenants(self) -> list[str]:
        """Those of whom there is a view."""
        with self._lock:
            return list(self._indexes)

    def now(self) -> int:
        """The clock's time in microseconds."""
        return to_us(self.clock.now())

    # -- of one tenant -----------------------------------------------------------------------------

    def embedder_of(self, tenant: str) -> Embedder | None:
        """What embeds this tenant's texts: the vault's embedder, or a `reembed`'s whose vectors are in force."""
        index = self._indexes.get(tenant)
        return self.embedder if index is None else self.encoder(index)[1]

    def encoder(self, index: TenantIndex) -> tuple[Generation | None, Embedder | None]:
        """The generation in force and what embeds for it, read together: a re-embedding replaces both at once."""
        generation = index.current_generation()
        known = self._embedders.get(index.tenant, {})
        fingerprint = None if generation is None else generation.fingerprint
        return generation, known.get(fingerprint or "", self.embedder)

    def use_embedder(self, tenant: str, embedder: Embedder) -> None:
        """Embed with this one for this tenant, as soon as and as long as vectors that it made are in force."""
        with self._lock:
            self._embedders[tenant] = {**self._embedders.get(tenant, {}), embedder.fingerprint: embedder}

    def queries(self, tenant: str) -> QueryCache:
        """The tenant's query vectors."""
        with self._lock:
            return self._caches.setdefault(tenant, QueryCache(self._cache_size))

    def latency(self, tenant: str) -> Latency:
        """How long the tenant's recalls took."""
        with self._lock:
            return self._latencies.setdefault(tenant, Latency())

    # -- reading -----------------------------------------------------------------------------------

    def index(self, tenant: str) -> TenantIndex:
        """The tenant's view, caught up with what every process has committed."""
        index = self._index(tenant)
        head = self.reading.head(tenant)
        if head.seq != index.seq or other_log(index, head):
            with index.lock:
                reading = self.reading
                behind = index.seq < head.seq
                if behind and self._catch_up(index, head, lambda seq: reading.changes(tenant, seq), reading):
                    return self._rebuilt(index, reading)
            return self._of_this_log(index)
        return index

    def _catch_up(
        self, index: TenantIndex, head: Head, changes_after: Callable[[int], Changes], store: Reading
    ) -> bool:
        """Take in what the log gained up to `head`. False where the view was made from another log.

        The caller holds `index.lock`.
        """
        if index.seq >= head.seq:
            return index.seq == head.seq and not other_log(index, head)
        changes = changes_after(index.seq)
        if broken_off(index, changes):
            return False
        self._seen(index.tenant, changes.head.seq)
        self._feed(index, changes, store)
        return True

    def read_from(self, replica: Replica) -> None:
        """Recalls read there from now on."""
        self.reading = self.replica = replica

    def _of_this_log(self, index: TenantIndex) -> TenantIndex:
        """The view, made anew if the log it was taken from is not the store's any more.

        So it is when a server took over that lacked the end of the log, however few events that was.
        """
        tenant = index.tenant
        with index.lock:
            head = self.store.head(tenant)  # under the lock: without it this process may have committed since
            same = self._catch_up(index, head, lambda seq: self.store.changes(tenant, seq), self.store)
        if self.replica is not None:
            self.replica.doubt(tenant, not same)
        if same:
            return self._rebuilt(index, self.store)
        return self._anew(tenant, self.store.changes(tenant, 0), self.store)

    def _seen(self, tenant: str, seq: int) -> None:
        if self.replica is not None:
            self.replica.seen(tenant, seq)

    def _index(self, tenant: str) -> TenantIndex:
        index = self._indexes.get(tenant)
        if index is None:
            with self._lock:
                index = self._indexes.get(tenant)
                if index is None:
                    index = self._indexes[tenant] = self._from_cache(tenant) or self._empty(tenant)
        return index

    def _empty(self, tenant: str) -> TenantIndex:
        serving: Any = self.reading if self.pushdown else None
        return TenantIndex(tenant, serving)

    # -- the view as a file ------------------------------------------------------------------------

    def cache_file(self, tenant: str) -> Path | None:
        """Where the tenant's view is kept between processes; None for a store without a folder of its own."""
        folder = getattr(self.store, "cache_dir", None)
        name = hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return None if folder is None else Path(folder) / f"{name}.index"

    def _from_cache(self, tenant: str) -> TenantIndex | None:
        """The view of the cache file if it is of this very log, else None; `cache_state` tells which."""
        path = self.cache_file(tenant)
        if path is None:
            return None
        try:
            with cache.Saved(path) as saved:
                found = self.store.events(tenant, saved.seq - 1, 1)
                if not found or found[0].hash != saved.hash:
                    raise cache.Stale("it was taken from another log")
                index = saved.view(tenant, INDEX_RULES)
                index.generations = self.store.generations(tenant)
                self._take_vectors(index, saved)
        except FileNotFoundError:
            self.cache_state[tenant] = "none"
            return None
        except (cache.Stale, OSError) as stale:
            self.cache_state[tenant] = f"rebuilt: {stale}"
            return None
        self.cache_state[tenant] = f"read at seq {index.seq}"
        self._cached_rows[tenant] = index.rows
        return index

    def _take_vectors(self, index: TenantIndex, saved: cache.Saved) -> None:
        """The vectors of the generation in force from a view's file; from the store if the file has others."""
        generation = index.current_generation()
        if generation is None:
            return
        resident = self.vectors_in_ram == "rows"
        repair = self._repair_of(index.tenant)
        if not saved.load_vectors(index, generation.number, resident=resident, repair=repair):
            self.load_generation(index, generation.number)

    def _repair_of(self, tenant: str) -> cache.Repair:
        """What gives the vectors of a file that turns out to be damaged after it was opened."""

        def repair(number: int, count: int) -> Vectors:
            found = self.store.vectors(tenant, number).between(0, count)
            if len(found) != count:
                raise StoreCorrupt(
                    f"the store has {len(found)} vectors of generation {number} where its index file had "
                    f"{count}; run `twofold doctor`"
                )
            self.drop_cache(tenant)
            self.cache_state[tenant] = "vectors read from the store: those in the file are damaged"
            return found

        return repair

    def _let_go(self, index: TenantIndex) -> None:
        """Under a memory ceiling: put the float32 rows that gathered in RAM into the view's file.

        What the file has is read from there. A full rewrite, so only when there are many: an eighth of all.
        """
        path = None if self.vectors_in_ram == "rows" else self.cache_file(index.tenant)
        if path is None or self.pushdown:
            return
        with index.lock:
            generation = index.current_generation()
            part = None if generation is None else index.vectors.get(generation.number)
            if part is None:
                return
            held = len(part.index) - part.index.rows_in_file
            if held < max(self._most_held.get(index.tenant, HELD_ROWS), len(part.index) // 8):
                return
            try:
                if self._write_cache(index, path):
                    with cache.Saved(path) as saved:
                        saved.let_go(part, self._repair_of(index.tenant))
                    self._most_held.pop(index.tenant, None)
                    return
            except (cache.Stale, OSError) as error:
                self.cache_state[index.tenant] = f"not written: {error}"
            self._most_held[index.tenant] = 2 * held  # not again at the very next commit

    def save_cache(self, tenant: str) -> None:
        """Write the tenant's view for the next process. Failing to is reported in `cache_state`, no error."""
        path = self.cache_file(tenant)
        if path is None:
            return
        index = self.index(tenant)
        if self._write_cache(index, path) and len(self.index(tenant).erasures) != len(index.erasures):
            # Another process erased while this file was being written: it must not keep what is gone.
            self.drop_cache(tenant)

    def _write_cache(self, index: TenantIndex, path: Path) -> bool:
        try:
            with index.lock:
                head = self.store.events(index.tenant, index.seq - 1, 1)
                if not head:
                    return False
                cache.save(index, path, head[0].hash, INDEX_RULES)
        except OSError as error:
            self.cache_state[index.tenant] = f"not written: {error}"
            return False
        self._cached_rows[index.tenant] = index.rows
        return True

    def drop_cache(self, tenant: str) -> None:
        """Remove the cache file: after an erasure it would keep what must be gone."""
        path = self.cache_file(tenant)
        if path is not None:
            path.unlink(missing_ok=True)
            for unfinished in path.parent.glob(f"{cache.TEMPORARY}*"):  # of a process that ended too early
                unfinished.unlink(missing_ok=True)
            self._cached_rows.pop(tenant, None)
            ann.drop(path.with_suffix(".ann"))

    # -- approximate search ------------------------------------------------------------------------

    def seek_graph(self, index: TenantIndex, part: VectorPart) -> None:
        """Read the graph over a part's vectors from its file, once; `ann_state` tells what came of it."""
        if self.ann_rows is None or part.ann_sought or len(part.index) < self.ann_rows:
            return
        part.ann_sought = True
        tenant, path = index.tenant, self.cache_file(index.tenant)
        self.ann_state[tenant] = "none yet: search is exact; `twofold maintain` makes it"
        if path is None:
            return
        path = path.with_suffix(".ann")
        try:
            header = ann.header_at(path)
            found = self.store.events(tenant, header["seq"] - 1, 1)
            if not found or found[0].hash.hex() != header["head"]:
                raise cache.Stale("it was made from another log")
            part.ann = ann.load(path, part, graph_origin(index, part))
        except FileNotFoundError:
            return
        except (cache.Stale, OSError) as why:
            self.ann_state[tenant] = f"not used: {why}; search is exact; `twofold maintain` makes it anew"
        else:
            self.ann_state[tenant] = "read from its file"

    def keep_graph(self, tenant: str) -> bool:
        """Make the graph over a tenant's vectors if there is none or the one there is outgrown, and its file.

        Recalls go on meanwhile. False when there was nothing to do; `ann_state` tells what became of a new one.
        """
        index = self.index(tenant)
        with index.lock:
            generation = index.current_generation()
            if self.ann_rows is None or generation is None or self.pushdown:
                return False
            if generation.number not in index.vectors:
                self.load_generation(index, generation.number)
            part = index.vectors[generation.number]
            if len(part.index) < self.ann_rows:
                return False
            self.seek_graph(index, part)
            view = index.view()
            known = ~view.closed & ~index.erased.view(view.rows)
            live = known[part.ordinals.view(len(part.index))]
            if part.ann is not None and not part.ann.stale(live):
                return False
            head = self.store.events(tenant, index.seq - 1, 1)[0].hash.hex()
            origin = replace(graph_origin(index, part), seq=index.seq, head=head)
        graph = ann.build(part, live, origin)
        with index.lock:
            if len(index.erasures) != origin.erasures or index.vectors.get(generation.number) is not part:
                self.ann_state[tenant] = "not kept: the store was erased from or re-embedded meanwhile"
                return True
            part.ann, part.ann_sought = graph, True
        self.ann_state[tenant] = "made by this process"
        path = self.cache_file(tenant)
        if path is not None:
            try:
                ann.save(graph, path.with_suffix(".ann"))
            except OSError as error:
                self.ann_state[tenant] = f"made by this process, its file not written: {error}"
            if len(self.index(tenant).erasures) != origin.erasures:
                # Another process erased while the file was being written: it must not keep what is gone.
                ann.drop(path.with_suffix(".ann"))
        return True

    def _feed(self, index: TenantIndex, changes: Changes, store: Reading) -> None:
        """Apply changes and load the vectors of the rows they brought, for every generation in use."""
        before = index.rows
        known = index.current_generation()
        try:
            index.apply(changes)
        except TwofoldError:
            raise
        except UNREADABLE as error:
            with self._lock:  # it has taken in half of them: made anew at the next call
                self._indexes.pop(index.tenant, None)
            raise unreadable(error) from error
        generation = index.current_generation()
        if generation is None or self.pushdown:
            return
        if known is None or known.number != generation.number:
            self.load_generation(index, generation.number, store)
        else:
            index.add_vectors(store.vectors(index.tenant, generation.number, before, index.rows))
        for number in list(index.vectors):
            if number != generation.number:
                del index.vectors[number]

    def load_generation(self, index: TenantIndex, number: int, store: Reading | None = None) -> None:
        """Bring all vectors of a generation into the view (the current one is kept up by itself)."""
        with index.lock:
            index.vectors.pop(number, None)
            # Some at a time: read whole, they would be in RAM twice.
            for first in range(0, max(index.rows, 1), LOADED_ROWS):
                stop = min(first + LOADED_ROWS, index.rows)
                index.add_vectors((store or self.reading).vectors(index.tenant, number, first, stop))

    def _rebuilt(self, index: TenantIndex, store: Reading) -> TenantIndex:
        """After an erasure the view is made anew from the rows, so that nothing erased stays in RAM."""
        if not index.needs_rebuild:
            self._let_go(index)
            return index
        return self._anew(index.tenant, store.changes(index.tenant, 0), store)

    def _anew(self, tenant: str, changes: Changes, store: Reading) -> TenantIndex:
        fresh = self._empty(tenant)
        self._feed(fresh, changes, store)
        fresh.needs_rebuild = False
        self._let_go(fresh)
        with self._lock:
            self._indexes[tenant] = fresh
        return fresh

    def check_embedder(self, index: TenantIndex) -> Generation | None:
        """The current generation, after making sure that this vault has what embeds for it."""
        return self.checked_encoder(index)[0]

    def checked_encoder(self, index: TenantIndex) -> tuple[Generation | None, Embedder | None]:
        """As `encoder`; EmbedderMismatch where the embedder did not make that generation's vectors."""
        generation, embedder = self.encoder(index)
        if generation is None or embedder is None:
            return generation, embedder
        if generation.fingerprint != embedder.fingerprint:
            raise EmbedderMismatch(
                f"the vectors of this store were made by {generation.fingerprint}, this handle uses "
                f"{embedder.fingerprint}; open it with the first, or run `twofold reembed`"
            )
        return generation, embedder

    # -- access events -----------------------------------------------------------------------------

    def note_access(self, tenant: str, ordinals: Sequence[int], at: int) -> None:
        """Remember what a recall returned; committed at the next write, at `flush`, or when 256 wait."""
        with self._lock:
            waiting = self._accesses.setdefault(tenant, [])
            waiting.extend((int(o), at) for o in ordinals)
            full = len(waiting) >= ACCESS_BUFFER
        if full:
            self.flush(tenant)

    def take_accesses(self, tenant: str) -> list[tuple[int, int]]:
        with self._lock:
            return self._accesses.pop(tenant, [])

    def give_back(self, tenant: str, accesses: list[tuple[int, int]]) -> None:
        if accesses:
            with self._lock:
                self._accesses[tenant] = accesses + self._accesses.get(tenant, [])

    def flush(self, tenant: str) -> None:
        """Commit the access events that are waiting."""
        if self._accesses.get(tenant):
            with self.write(Principal(tenant, "twofold")):
                pass

    def flush_all(self) -> None:
        for tenant in list(self._accesses):
            self.flush(tenant)

    # -- writing -----------------------------------------------------------------------------------

    @contextmanager
    def write(self, principal: Principal) -> Iterator[Writer]:
        """One transaction: what the writer is given in the block is committed together, or not at all."""
        tenant = principal.tenant
        accesses = self.take_accesses(tenant)
        try:
            with self.store.transaction(tenant) as tx:
                index = self._index(tenant)
                with index.lock:
                    self._seen(tenant, tx.head.seq)
                    same = self._catch_up(index, tx.head, tx.changes, self.store)
                if same:
                    index = self._rebuilt(index, self.store)
                else:
                    index = self._anew(tenant, tx.changes(0), self.store)
                writer = Writer(self, principal, tx, index)
                if accesses:
                    writer.event(
                        Kind.ACCESS,
                        payload={"o": [o for o, _ in accesses], "t": [t for _, t in accesses]},
                    )
                yield writer
                writer.batch.vectors = joined(writer.batch.vectors)
                head = tx.apply(writer.batch) if writer.batch.events else tx.head
        except BaseException:
            self.give_back(tenant, accesses)
            raise
        self._after_commit(index, writer, head)

    def _after_commit(self, index: TenantIndex, writer: Writer, head: Head) -> None:
        batch = writer.batch
        if not batch.events:
            return
        with index.lock:
            self._seen(index.tenant, head.seq)
            plain = not (batch.erase_rows or batch.generations or batch.drop_generations)
            if index.seq == batch.events[0].seq - 1 and plain:
                changes = Changes(
                    head, batch.events, [index_row(r) for r in batch.rows], index.generations, []
                )
                index.apply(changes)
                for vectors in () if self.pushdown else batch.vectors:
                    index.add_vectors(vectors)
                self._let_go(index)
                return
        self.index(index.tenant)

    def close(self) -> None:
        """Flush what waits and release the store."""
        if self.follower is not None:
            self.follower.stop()
        self.flush_all()
        for tenant, index in list(self._indexes.items()):
            # Rows the file lacks are fed one by one at every opening, some 50 us each; writing it costs 5 us a row.
            if index.rows - self._cached_rows.get(tenant, 0) >= max(CACHE_ROWS, index.rows // 50):
                self.save_cache(tenant)
        if self.replica is not None:
            self.replica.close()
        self.store.close()
        self._indexes.clear()


def joined(blocks: list[Vectors]) -> list[Vectors]:
    """The same vectors in fewer blocks: those that follow one another in one generation become one."""
    runs: list[list[Vectors]] = []
    for one in filter(len, blocks):
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and last.generation == one.generation
            and last.data.shape[1] == one.data.shape[1]
            and last.ordinals[-1] < one.ordinals[0]
        ):
            runs[-1].append(one)
        else:
            runs.append([one])
    return [run[0] if len(run) == 1 else Vectors.concatenated(run) for run in runs]


class Writer:
    """Collects one commit: assigns sequence numbers, ordinals, times and hashes in the order of calls."""

    def __init__(self, vault: Vault, principal: Principal, tx: Transaction, index: TenantIndex) -> None:
        self.vault = vault
        self.principal = principal
        self.index = index
        self.batch = Batch()
        self._tx = tx
        self._head = tx.head
        self._hash = tx.head.hash
        self._seq = tx.head.seq
        self._rows = tx.head.rows
        self._recorded = max(tx.head.recorded_at, vault.now())
        self.writes = 0

    def now(self) -> int:
        """The transaction's time, the same for all it writes: the clock's, never before an earlier event's."""
        return self._recorded

    @property
    def next_seq(self) -> int:
        return self._seq + 1

    @property
    def next_ordinal(self) -> int:
        return self._rows

    def event(
        self,
        kind: Kind,
        *,
        at: int | None = None,
        namespace: str | None = None,
        ordinal: int | None = None,
        payload: Any = None,
    ) -> Event:
        """Append an event that adds no row."""
        return self._append(
            kind, at, namespace, ordinal, payload, None, "", self.vault.entropy(audit.SALT_BYTES)
        )

    def row(self, kind: Kind, row: Row, vectors: Vectors | None, *, payload: Any = None) -> Event:
        """Append a row (its seq and ordinal must be `next_seq` and `next_ordinal`) with its vectors."""
        if row.seq != self._seq + 1 or row.ordinal != self._rows:
            raise InvalidInput(f"row {row.id} was prepared for another place in the log")
        salt = self.vault.entropy(audit.SALT_BYTES)
        digest = "" if vectors is None else audit.vector_digest(salt, vectors)
        event = self._append(kind, row.recorded_at, row.namespace, row.ordinal, payload, row, digest, salt)
        self.batch.rows.append(row)
        if vectors is not None and len(vectors):
            self.batch.vectors.append(vectors)
        self._rows += 1
        return event

    def _append(
        self,
        kind: Kind,
        at: int | None,
        namespace: str | None,
        ordinal: int | None,
        payload: Any,
        row: Row | None,
        digest: str,
        salt: bytes,
    ) -> Event:
        at = self.now() if at is None else at
        event = audit.make_event(
            self._hash,
            self._seq + 1,
            str(kind),
            at,
            self.principal.agent_id,
            self.principal.role_name,
            salt,
            namespace=namespace,
            ordinal=ordinal,
            payload=payload,
            row=row,
            vectors=digest,
        )
        self.batch.events.append(event)
        self._seq, self._hash = event.seq, event.hash
        return event

    def generation(self) -> Generation:
        """The generation new vectors belong to; made with the first vectors of a tenant."""
        embedder = self.vault.embedder_of(self.index.tenant)
        assert embedder is not None
        for g in self.batch.generations:
            return g
        current = self.vault.check_embedder(self.index)
        if current is not None:
            return current
        number = 1 + max((g.number for g in self.index.generations), default=0)
        event = self.event(
            Kind.GENERATION,
            payload={"number": number, "fingerprint": embedder.fingerprint, "dimension": embedder.dimension},
        )
        generation = Generation(number, embedder.fingerprint, embedder.dimension, event.seq)
        self.batch.generations.append(generation)
        return generation


def other_log(index: TenantIndex, head: Head) -> bool:
    """Whether a head at the view's own place in the log is not the one the view was made from."""
    return index.seq == head.seq and bool(index.head_hash) and index.head_hash != head.hash


def broken_off(index: TenantIndex, changes: Changes) -> bool:
    """Whether what the log gained does not follow what the view was made from."""
    if not changes.events or not index.head_hash:
        return False
    return audit.broken_link(index.head_hash, index.seq + 1, changes.events[0]) is not None


def graph_origin(index: TenantIndex, part: VectorPart) -> ann.Origin:
    """What a graph over a part's vectors must have been made of; position in the log left out."""
    generation = part.generation
    return ann.Origin(
        index.tenant,
        generation.number,
        generation.fingerprint,
        generation.dimension,
        0,
        "",
        len(index.erasures),
        ann.library_version(),
    )


def block(
    generation: int,
    ordinal: int,
    spans: Sequence[tuple[int, int]],
    data: Any,
    codes: Sequence[bytes] = (),
) -> Vectors:
    """The vectors of one memory, one per window."""
    n = len(spans)
    return Vectors(
        generation,
        np.full(n, ordinal, np.int64),
        np.arange(n, dtype=np.int64),
        np.array([s for s, _ in spans], np.int64),
        np.array([e for _, e in spans], np.int64),
        np.ascontiguousarray(data, np.float32),
        tuple(codes),
    )
