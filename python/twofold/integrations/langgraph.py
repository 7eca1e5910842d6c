"""LangGraph's long-term memory (`BaseStore`) on a Twofold store: items are versioned memories, puts supersede.

    from twofold.integrations.langgraph import TwofoldStore

    with TwofoldStore.from_conn_string("./store") as store:
        store.put(("users", "123"), "prefs", {"theme": "dark"})
        graph = builder.compile(store=store)

A namespace ("users", "123") is the Twofold namespace "langgraph/users/123", so roles and grants are given by those
names. What an item said before a put or a delete stays in `history`. Needs the extra [langgraph].
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import json
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from langgraph.store.base import (
    BaseStore,
    Embeddings,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from twofold.clock import SystemClock, from_us, to_us
from twofold.errors import InvalidInput, NotFound
from twofold.integrations.langchain_embedder import LangChainEmbedder
from twofold.integrations.langgraph_values import at_key, fits, json_of, matches
from twofold.memory import AgentMemory
from twofold.model import Memory
from twofold.retrieve.profile import PROFILES, RANGES, Profile

__all__ = ["AsyncTwofoldStore", "LangChainEmbedder", "TwofoldStore"]

ROOT: Final = "langgraph"
ITEM: Final = "langgraph item"  # tag of an item's own memory, whose content is the value as JSON
TEXT: Final = "langgraph text"  # tag of what a query searches: an item, or the texts of its indexed fields
TTL: Final = "langgraph ttl"  # tag of items that expire
WHOLE: Final = "$"
MINUTE: Final = 60_000_000
SWEEP_MINUTES: Final = 5.0
FIRST_DEPTH: Final = 64
MOST: Final = int(RANGES["depth"][1])
ATTEMPTS: Final = 5
# The cosine and nothing else, as LangGraph's own stores score.
COSINE: Final = replace(PROFILES["vector"], name="langgraph")
# A recall that finds items by their tag and never asks the embedder.
BY_TAG: Final = replace(PROFILES["bm25"], name="langgraph ttl", tag_weight=1.0)

logger = logging.getLogger(__name__)

Namespace = tuple[str, ...]


class _Found(NamedTuple):
    """An item's memory with what its metadata says."""

    memory: Memory
    namespace: Namespace
    key: str
    texts: Mapping[str, int]  # indexed path -> how many texts it gave
    created: int
    ttl: float | None

    def item(self) -> Item:
        return Item(
            value=json.loads(self.memory.content),
            key=self.key,
            namespace=self.namespace,
            created_at=from_us(self.created),
            updated_at=self.memory.recorded_at,
        )

    def hit(self, score: float | None) -> SearchItem:
        return SearchItem(
            self.namespace,
            self.key,
            json.loads(self.memory.content),
            from_us(self.created),
            self.memory.recorded_at,
            score,
        )


class TwofoldStore(BaseStore):
    """LangGraph's store over a handle of Twofold. Safe to use from threads; several processes may share the store.

    Without an `embed` in `index`, a query is answered by Twofold's own recall (words, entities and the handle's
    embedder) and scored by it. With one, by the greatest cosine of an item's indexed texts, as LangGraph's stores
    do. Reads of a batch see the state before its writes; its puts are one commit.
    """

    supports_ttl = True

    def __init__(
        self,
        mem: AgentMemory,
        *,
        root: str = ROOT,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
    ) -> None:
        """Serve the items under `root` that the handle may see.

        mem: any handle; what it may not do is refused as everywhere (PermissionDenied, QuotaExceeded).
        index: LangGraph's IndexConfig {"dims", "embed", "fields"}; with an `embed`, the handle must have been
        opened with `LangChainEmbedder.of(index)`, as `from_conn_string` does. ttl: LangGraph's TTLConfig.
        Raises InvalidInput for a malformed configuration or a handle with another embedder.
        """
        self._mem = mem
        self._root = root
        self._owned = False
        self.ttl_config: Any = None if ttl is None else dict(ttl)
        self.index_config: dict[str, Any] | None = None if index is None else dict(index)
        self.embeddings: Embeddings | None = None
        self._fields: list[str] = [WHOLE]
        if index is not None:
            self._fields = _fields_of(index)
            if index.get("embed") is not None:
                wanted = LangChainEmbedder.of(index)
                if mem.embedder is None or mem.embedder.fingerprint != wanted.fingerprint:
                    raise InvalidInput(
                        "index names an embed, but the handle has another embedder; open it with "
                        "AgentMemory(path, embedder=LangChainEmbedder.of(index)), or use from_conn_string"
                    )
                self.embeddings = getattr(mem.embedder, "embeddings", wanted.embeddings)
        self._sweeper: threading.Thread | None = None
        self._stop = threading.Event()

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        root: str = ROOT,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[TwofoldStore]:
        """Open a store by path or address for the length of a `with`. options: those of `AgentMemory`."""
        store = cls._open(conn_string, root, index, ttl, options)
        try:
            yield store
        finally:
            store.close()

    @classmethod
    def _open(
        cls,
        conn_string: str,
        root: str,
        index: Mapping[str, Any] | None,
        ttl: Mapping[str, Any] | None,
        options: dict[str, Any],
    ) -> TwofoldStore:
        if index is not None and index.get("embed") is not None:
            options = {**options, "embedder": LangChainEmbedder.of(index)}
        mem = AgentMemory(conn_string, **options)
        try:
            store = cls(mem, root=root, index=index, ttl=ttl)
        except BaseException:
            mem.close()
            raise
        store._owned = True
        return store

    def setup(self) -> None:
        """Nothing to do: opening the handle made the store. Here because LangGraph's stores have it."""

    def close(self) -> None:
        """Stop the sweeper; close the handle if `from_conn_string` opened it."""
        self.stop_ttl_sweeper()
        if self._owned:
            self._mem.close()

    # -- operations ----------------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads first, then all puts in one commit, then the deletions. Results in order.

        Raises InvalidNamespaceError before anything is done; the errors of `AgentMemory` as they are.
        """
        todo = list(ops)
        for op in todo:
            validate_op_namespace(op)
        results: list[Result] = [None] * len(todo)
        puts: dict[tuple[Namespace, str], PutOp] = {}
        gets: dict[Namespace, list[tuple[int, GetOp]]] = {}
        for at, op in enumerate(todo):
            if isinstance(op, GetOp):
                gets.setdefault(tuple(op.namespace), []).append((at, op))
            elif isinstance(op, SearchOp):
                results[at] = self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[at] = self._list(op)
            elif isinstance(op, PutOp):
                puts[tuple(op.namespace), str(op.key)] = op
            else:
                raise InvalidInput(f"unknown operation {op!r}")
        for namespace, asked in gets.items():
            found = self._current(namespace, {op.key for _, op in asked})
            touched = []
            for at, op in asked:
                if (one := found.get(op.key)) is not None and not self._omitted(one):
                    results[at] = one.item()
                    touched += [one] if op.refresh_ttl else []
            self._refresh(touched)
        self._put([(*place, op) for place, op in puts.items() if op.value is not None])
        self._delete([place for place, op in puts.items() if op.value is None])
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.batch, list(ops))

    def history(self, namespace: Namespace, key: str) -> list[Item]:
        """Every value an item has had, oldest first, deleted and expired ones included."""
        validate_op_namespace(GetOp(namespace, key))
        found = self._mem.search(
            namespaces=[self._place(namespace)],
            keys=[_stored_key(key)],
            tags=[ITEM],
            limit=None,
            include_closed=True,
            include_superseded=True,
        )
        return [one.item() for one in map(self._found, reversed(found))]

    # -- reading -------------------------------------------------------------------------------------

    def _current(self, namespace: Namespace, keys: Iterable[str]) -> dict[str, _Found]:
        """The current items of these keys."""
        stored = [_stored_key(key) for key in keys]
        found = self._mem.search(namespaces=[self._place(namespace)], keys=stored, tags=[ITEM], limit=None)
        # Newest first: where two writers could not end each other's item, the later one counts.
        return {one.key: one for one in map(self._found, reversed(found))}

    def _all(self, patterns: Sequence[str], limit: int | None = None, tag: str = ITEM) -> list[_Found]:
        """Current items of these namespaces, newest first; each once."""
        found = self._mem.search(namespaces=list(patterns), tags=[tag], limit=limit)
        out: dict[tuple[Namespace, str], _Found] = {}
        for one in map(self._found, found):
            out.setdefault((one.namespace, one.key), one)
        return list(out.values())

    def _search(self, op: SearchOp) -> list[SearchItem]:
        patterns = self._patterns(tuple(op.namespace_prefix))
        want = op.offset + op.limit
        if op.limit < 0 or op.offset < 0:
            raise InvalidInput(f"limit and offset must not be negative, not {op.limit} and {op.offset}")
        scored: list[tuple[_Found, float]] = []
        if op.query and op.query.strip() and want:
            ranked = self._by_cosine if self.embeddings is not None else self._by_recall
            scored = ranked(op.query, patterns, want, lambda one: self._passes(one, op.filter))
        hits: list[tuple[_Found, float | None]] = [*scored]
        if len(hits) < want:
            # As in LangGraph's own stores, a query orders items and hides none: the rest follows, unscored.
            seen = {(one.namespace, one.key) for one, _ in scored}
            plain = not op.filter and not seen and not self._omits
            rest = self._all(patterns, want if plain else None)
            hits += [
                (one, None)
                for one in rest
                if (one.namespace, one.key) not in seen and self._passes(one, op.filter)
            ]
        chosen = hits[op.offset : want]
        if op.refresh_ttl:
            self._refresh([one for one, _ in chosen])
        return [one.hit(score) for one, score in chosen]

    def _passes(self, one: _Found, asked: Mapping[str, Any] | None) -> bool:
        if self._omitted(one):
            return False
        if not asked:
            return True
        value = json.loads(one.memory.content)
        return all(matches(at_key(value, key), wanted) for key, wanted in asked.items())

    def _by_cosine(
        self, query: str, patterns: Sequence[str], want: int, passes: Callable[[_Found], bool]
    ) -> list[tuple[_Found, float]]:
        """The items nearest to the query, by their best text, among the nearest 10,000 texts."""
        owners: dict[str, _Found | None] = {}
        depth = min(MOST, max(FIRST_DEPTH, 2 * want))
        while True:
            found = self._mem.recall(
                query,
                k=1,
                namespaces=list(patterns),
                filters={"tags": [TEXT]},
                profile=replace(COSINE, depth=depth),
                include_faded=True,
                promote=False,
            )
            nearest = found.trace.layers["vector"]
            out: dict[tuple[Namespace, str], tuple[_Found, float]] = {}
            for memory_id, cosine in nearest:
                if memory_id not in owners:
                    owners[memory_id] = self._owner(memory_id)
                one = owners[memory_id]
                if one is not None and (one.namespace, one.key) not in out and passes(one):
                    out[one.namespace, one.key] = (one, cosine)
                    if len(out) == want:
                        return list(out.values())
            if len(nearest) < depth or depth == MOST:
                return list(out.values())
            depth = min(MOST, 4 * depth)

    def _by_recall(
        self, query: str, patterns: Sequence[str], want: int, passes: Callable[[_Found], bool]
    ) -> list[tuple[_Found, float]]:
        """The items that Twofold's recall finds, by their best text."""
        k = min(MOST, max(FIRST_DEPTH, 2 * want))
        owners: dict[str, _Found | None] = {}
        while True:
            found = self._mem.recall(
                query,
                k=k,
                namespaces=list(patterns),
                filters={"tags": [TEXT]},
                profile=_deep(k),
                include_faded=True,
                promote=False,
            )
            # Recall shows one of several equal texts; here each belongs to an item of its own.
            twins: dict[str, list[str]] = {}
            for dropped, kept in found.trace.dropped:
                twins.setdefault(kept, []).append(dropped)
            out: dict[tuple[Namespace, str], tuple[_Found, float]] = {}
            for hit in found:
                for memory_id in [hit.memory.id, *twins.get(hit.memory.id, ())]:
                    if memory_id not in owners:
                        owners[memory_id] = self._owner(memory_id)
                    one = owners[memory_id]
                    if one is not None and (one.namespace, one.key) not in out and passes(one):
                        out[one.namespace, one.key] = (one, hit.score)
            if len(out) >= want or len(found) < k or k == MOST:
                return list(out.values())[:want]
            k = min(MOST, 4 * k)

    def _owner(self, memory_id: str) -> _Found | None:
        """The current item that a text belongs to; None for a text that a concurrent put left behind."""
        text = self._mem.get(memory_id)
        if text is None:
            return None
        if ITEM in text.tags:
            return self._found(text)
        about = text.metadata[ROOT]
        one = self._current(self._unplace(text.namespace), [about["key"]]).get(about["key"])
        return one if one is not None and about["number"] < one.texts.get(about["path"], 0) else None

    def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        prefix: Namespace = ()
        for condition in conditions:
            if condition.match_type == "prefix":
                stop = condition.path.index("*") if "*" in condition.path else len(condition.path)
                prefix = max(prefix, tuple(condition.path[:stop]), key=len)
        spaces = {
            one.namespace
            for one in self._all(self._patterns(prefix))
            if not self._omitted(one) and all(fits(one.namespace, c) for c in conditions)
        }
        shown = sorted({space[: op.max_depth] for space in spaces} if op.max_depth is not None else spaces)
        return shown[op.offset : op.offset + op.limit]

    # -- writing -------------------------------------------------------------------------------------

    def _put(self, puts: Sequence[tuple[Namespace, str, PutOp]]) -> None:
        """All puts in one commit. Read again when another writer was faster."""
        if not puts:
            return
        known: list[str] | None = None
        for attempt in range(ATTEMPTS):
            items, ended = self._drafts(puts)
            if ended == known:
                break  # the refusal was about the values, not about what they replace
            try:
                self._mem.add_many(items, batch=len(items))
                return
            except (InvalidInput, NotFound):
                known = ended
                if attempt == ATTEMPTS - 1:
                    raise
        self._mem.add_many(items, batch=len(items))

    def _drafts(self, puts: Sequence[tuple[Namespace, str, PutOp]]) -> tuple[list[dict[str, Any]], list[str]]:
        """What to add for these puts, and the ids of the memories it takes the place of."""
        keys: dict[Namespace, set[str]] = {}
        for namespace, key, _ in puts:
            keys.setdefault(namespace, set()).add(key)
        current = {namespace: self._current(namespace, names) for namespace, names in keys.items()}
        items: list[dict[str, Any]] = []
        replaced: list[str] = []
        for namespace, key, op in puts:
            assert op.value is not None
            old = current[namespace].get(key)
            value = json_of(op.value)
            texts = self._texts(value, op.index)
            whole = texts.pop(WHOLE, None) is not None
            ends = [] if old is None else [old.memory.id, *self._text_ids(old, keep=texts)]
            replaced += ends
            about: dict[str, Any] = {"key": key, "texts": {path: len(found) for path, found in texts.items()}}
            if old is not None:
                about["created"] = old.created
            if op.ttl is not None:
                about["ttl"] = _minutes(op.ttl)
            tags = [ITEM, *([TEXT] if whole else []), *([TTL] if op.ttl is not None else [])]
            common = {"namespace": self._place(namespace), "pinned": True}
            # Pinned: an item neither fades nor is ended by a statement that contradicts it, only by its key.
            items.append(
                {
                    "content": value,
                    "key": _stored_key(key),
                    "tags": tags,
                    "metadata": {ROOT: about},
                    "supersedes": ends,
                    **({} if whole else {"vector": False}),
                    **common,
                }
            )
            for path, found in texts.items():
                items += [
                    {
                        "content": text,
                        "key": _stored_key(key, path, number),
                        "tags": [TEXT],
                        "metadata": {ROOT: {"key": key, "path": path, "number": number}},
                        **common,
                    }
                    for number, text in enumerate(found)
                ]
        return items, replaced

    def _texts(self, value: str, index: Any) -> dict[str, list[str]]:
        """The texts to index: by path, or WHOLE for the item itself."""
        if index is False:
            return {}
        paths = self._fields if index is None else list(index)
        out: dict[str, list[str]] = {}
        for path in paths:
            if path == WHOLE:
                out[WHOLE] = []
                continue
            texts = [t.replace("\0", " ") for t in get_text_at_path(json.loads(value), path)]
            # One line: what looks like recalled memories must not be taken for them and cut out.
            texts = [json.dumps(t, ensure_ascii=False) if "⟦" in t else t for t in texts if t.strip()]
            if texts:
                out[path] = texts
        return out

    def _text_ids(self, one: _Found, keep: Mapping[str, Sequence[str]] | None = None) -> list[str]:
        """Memories of an item's texts, but for those that texts of `keep` take the place of by their key."""
        keep = keep or {}
        keys = [
            _stored_key(one.key, path, number)
            for path, count in one.texts.items()
            for number in range(len(keep.get(path, ())), count)
        ]
        if not keys:
            return []
        found = self._mem.search(namespaces=[one.memory.namespace], keys=keys, tags=[TEXT], limit=None)
        return [m.id for m in found]

    def _delete(self, places: Sequence[tuple[Namespace, str]]) -> None:
        keys: dict[Namespace, set[str]] = {}
        for namespace, key in places:
            keys.setdefault(namespace, set()).add(key)
        for namespace, names in keys.items():
            for one in self._current(namespace, names).values():
                self._forget(one)

    def _forget(self, one: _Found) -> bool:
        """Retract an item, its texts first: until the item goes, a delete that was cut short can be repeated.

        False when another writer had retracted it already.
        """
        gone = False
        for memory_id in [*self._text_ids(one), one.memory.id]:
            try:
                self._mem.forget(memory_id)
                gone = memory_id == one.memory.id
            except NotFound:
                continue
        return gone

    # -- expiry --------------------------------------------------------------------------------------

    @property
    def _refreshes(self) -> bool:
        return bool(self.ttl_config and self.ttl_config.get("refresh_on_read", False))

    @property
    def _omits(self) -> bool:
        return bool(self.ttl_config and self.ttl_config.get("omit_expired", False))

    def _expired(self, one: _Found) -> bool:
        """Whether its minutes have passed since it was put, or read where reads refresh."""
        if one.ttl is None:
            return False
        since = one.memory.recorded_at
        if self._refreshes and one.memory.last_accessed_at is not None:
            since = max(since, one.memory.last_accessed_at)
        return to_us(since) + round(one.ttl * MINUTE) <= to_us(_now(self._mem))

    def _omitted(self, one: _Found) -> bool:
        return self._omits and self._expired(one)

    def _refresh(self, read: Sequence[_Found]) -> None:
        """Note the use of items that expire, as any use is noted: by a recall that returns them, committed."""
        if not self._refreshes:
            return
        expiring = [one for one in read if one.ttl is not None]
        for one in expiring:
            self._mem.recall(
                TTL,
                k=1,
                namespaces=[one.memory.namespace],
                filters={"keys": [_stored_key(one.key)], "tags": [TTL]},
                profile=BY_TAG,
                include_faded=True,
            )
        if expiring:
            self._mem.flush()

    def sweep_ttl(self) -> int:
        """Retract the items that have expired; how many. Their values stay in `history`."""
        found = self._all(self._patterns(()), tag=TTL)
        return sum(self._forget(one) for one in found if self._expired(one))

    def start_ttl_sweeper(
        self, sweep_interval_minutes: float | None = None
    ) -> concurrent.futures.Future[None]:
        """Sweep in a thread every so many minutes (the configured ones, else 5) until stopped or cancelled.

        Without a TTL configuration nothing is started. A sweep that fails is logged, and the next one comes.
        """
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        if self.ttl_config is None:
            future.set_result(None)
            return future
        future.add_done_callback(lambda f: self._stop.set() if f.cancelled() else None)
        if self._sweeper is not None and self._sweeper.is_alive():
            return future
        self._stop.clear()
        minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or SWEEP_MINUTES
        seconds = 60.0 * _minutes(minutes)

        def sweep() -> None:
            while not self._stop.wait(seconds):
                try:
                    self.sweep_ttl()
                except Exception:  # the thread must outlive a busy database
                    logger.exception("a sweep of expired items failed")
            if not future.cancelled():
                future.set_result(None)

        self._sweeper = threading.Thread(target=sweep, name="twofold-ttl", daemon=True)
        self._sweeper.start()
        return future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper and wait for it, at most `timeout` seconds; whether it has stopped."""
        if self._sweeper is None:
            return True
        self._stop.set()
        self._sweeper.join(timeout)
        if self._sweeper.is_alive():
            return False
        self._sweeper = None
        return True

    # -- names ---------------------------------------------------------------------------------------

    def _place(self, namespace: Namespace) -> str:
        return "/".join([self._root, *map(_escaped, namespace)])

    def _unplace(self, name: str) -> Namespace:
        return tuple(
            unquote(part, errors="surrogatepass") for part in name.split("/")[1 + self._root.count("/") :]
        )

    def _patterns(self, prefix: Namespace) -> list[str]:
        """The namespaces at and below a prefix; nothing lies at the root itself."""
        below = f"{self._place(prefix)}/*"
        return [self._place(prefix), below] if prefix else [below]

    def _found(self, memory: Memory) -> _Found:
        about = memory.metadata[ROOT]
        return _Found(
            memory,
            self._unplace(memory.namespace),
            about["key"],
            about["texts"],
            about.get("created", to_us(memory.recorded_at)),
            about.get("ttl"),
        )


class AsyncTwofoldStore(AsyncBatchedBaseStore):
    """`TwofoldStore` for an event loop: calls of one tick become one batch, run in a thread.

    The synchronous methods may be called from other threads only, as with LangGraph's own asynchronous stores.
    """

    supports_ttl = True

    def __init__(self, store: TwofoldStore) -> None:
        """Serve a store on the running loop."""
        super().__init__()
        self._store = store
        self.ttl_config = store.ttl_config
        self.index_config = store.index_config
        self.embeddings = store.embeddings

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls,
        conn_string: str,
        *,
        root: str = ROOT,
        index: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[AsyncTwofoldStore]:
        """Open a store by path or address for the length of an `async with`. options: those of `AgentMemory`."""
        store = await asyncio.to_thread(TwofoldStore._open, conn_string, root, index, ttl, options)
        try:
            yield cls(store)
        finally:
            await asyncio.to_thread(store.close)

    async def setup(self) -> None:
        """Nothing to do; see `TwofoldStore.setup`."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `TwofoldStore.batch`."""
        return await self._store.abatch(ops)

    async def history(self, namespace: Namespace, key: str) -> list[Item]:
        """See `TwofoldStore.history`."""
        return await asyncio.to_thread(self._store.history, namespace, key)

    async def sweep_ttl(self) -> int:
        """See `TwofoldStore.sweep_ttl`."""
        return await asyncio.to_thread(self._store.sweep_ttl)

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> asyncio.Future[None]:
        """See `TwofoldStore.start_ttl_sweeper`; cancelling the future stops it."""
        return asyncio.wrap_future(self._store.start_ttl_sweeper(sweep_interval_minutes))

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """See `TwofoldStore.stop_ttl_sweeper`."""
        return await asyncio.to_thread(self._store.stop_ttl_sweeper, timeout)


# -- pure ------------------------------------------------------------------------------------------------


def _now(mem: AgentMemory) -> dt.datetime:
    # A client of a server has no clock of its own.
    return getattr(mem, "clock", SystemClock()).now()


def _deep(k: int) -> Profile:
    default = PROFILES["default"]
    return replace(default, depth=max(default.depth, k))


def _fields_of(index: Mapping[str, Any]) -> list[str]:
    fields = index.get("fields") or index.get("text_fields") or [WHOLE]
    fields = [fields] if isinstance(fields, str) else fields
    if not isinstance(fields, list) or not all(isinstance(f, str) and f for f in fields):
        raise InvalidInput(f"index fields must be a list of paths, not {fields!r}")
    return fields


def _escaped(label: str) -> str:
    """A label as a part of a Twofold namespace: what may not stand there as %XX of its UTF-8 bytes."""
    return "".join(
        c
        if c.isprintable() and c not in " %*/"
        else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))
        for c in label
    )


def _stored_key(key: str, *rest: object) -> str:
    """An item's key, or that of one of its texts, as a key of Twofold: JSON keeps every character apart."""
    return json.dumps(key) if not rest else json.dumps([key, *rest])


def _minutes(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise InvalidInput(f"minutes must be a positive number, not {value!r}")
    return float(value)
