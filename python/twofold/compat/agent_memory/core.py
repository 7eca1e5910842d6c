"""`AgentMemory` in Memwright's shape, on a Twofold store in the same folder. Maps names; the rules lie below."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from twofold import audit, erase, remember
from twofold.access import Principal, check_name, check_pattern
from twofold.clock import Clock, from_us, to_us
from twofold.compat import reader
from twofold.compat.agent_memory.models import Memory, RetrievalResult
from twofold.compat.agent_memory.retrieval.orchestrator import (
    TRIPLE_CATEGORY,
    RetrievalOrchestrator,
    context_of,
)
from twofold.compat.agent_memory.retrieval.scorer import pack
from twofold.compat.agent_memory.roles import Chair, Seated
from twofold.compat.agent_memory.rows import (
    ACTIVE,
    ARCHIVED,
    OURS,
    STATUSES,
    SUPERSEDED,
    Asked,
    Memo,
    Rows,
    known_us,
    lenient_us,
)
from twofold.compat.agent_memory.store.adapters import Documents, Relations, Vectors
from twofold.compat.agent_memory.store.registry import check_served
from twofold.compat.agent_memory.temporal.manager import TemporalManager
from twofold.compat.agent_memory.utils.config import (
    RANKINGS,
    MemoryConfig,
    load_config,
    replace_text,
    save_config,
)
from twofold.decay import DecayPolicy
from twofold.embed.base import Embedder
from twofold.entities import entity_key
from twofold.errors import BudgetError, InvalidInput, NotFound, PermissionDenied, TwofoldError
from twofold.ledger import Known, Ledger
from twofold.lookup import When
from twofold.memory import AgentMemory as Twofold
from twofold.model import Kind, Visibility
from twofold.query import Instant, whole
from twofold.recall import Hit
from twofold.stores.memwright import query as run_sql
from twofold.stores.sqlite import FILE_NAME as STORE_NAME
from twofold.vault import Vault, Writer

MOST: Final = 50  # results of one recall when no k is given; the budget usually ends it before
LOAD_BATCH: Final = 256
DEFAULT: Final = "default"
_SOURCES: Final = {"lexical": "tag", "tags": "tag", "graph": "graph", "vector": "vector"}


class AgentMemory:
    """Memwright's memory, kept in `<path>/twofold.db`.

    A folder that holds a memory.db of Memwright and no twofold.db is opened read-only, as it is: nothing in it
    is changed. `migrate()`, or migrate=True, makes a twofold.db beside it and goes on with that.

    namespace: left out, the handle is on the whole store, as Memwright's is: reads without a namespace see all
    of it. With a namespace the handle sees and changes nothing else, whatever is asked of it.

    >>> mem = AgentMemory(getfixture("tmp_path"), {"embedder": "hashing"})
    >>> _ = mem.add("User prefers Rust", tags=["preference"], entity="user")
    >>> mem.recall("What does the user prefer?")[0].content
    'User prefers Rust'
    >>> mem.close()
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any] | None = None,
        *,
        namespace: str | None = None,
        migrate: bool = False,
        embedder: str | Embedder | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> None:
        """Open or create a store in a folder.

        config: settings (see `MemoryConfig`) to keep in config.json; left out or empty, those kept there.
        embedder: what `twofold.embed.open_embedder` takes; left out, the setting, else TWOFOLD_EMBEDDER, else
        "auto". Raises EmbedderUnavailable without a model (the message names the command), InvalidInput,
        StoreError.
        """
        self.path = Path(path)
        self.config = MemoryConfig.from_dict(config) if config else self._kept_config()
        check_served(self.config.backends)
        self._options: dict[str, Any] = {
            "embedder": embedder if embedder is not None else self.config.embedder or "default",
            "clock": clock,
        }
        old = reader.is_store(self.path) and not (self.path / STORE_NAME).exists()
        if old and migrate:
            reader.migrate(self.path, self.path, **self._options)
            old = False
        self._memo = Memo()
        self.in_place = old
        if old:
            self._mem = self._open(":memory:")
            self._start(self._mem, None, None)
            self._load(reader.read(self.path).rows, keep_all=True)
            self._mem = self._mem.read_only()
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            save_config(self.path, self.config)
            self._mem = self._open(self.path)
            if read_only:
                self._mem = self._mem.read_only()
        self._start(self._mem, None, None if old else self.path)
        if namespace is not None:
            scoped = self.seat("owner", (Chair(check_name(namespace, "namespace"), None, old or read_only),))
            self._start(scoped._mem, namespace, None)

    def _kept_config(self) -> MemoryConfig:
        return load_config(self.path) if self.path.is_dir() else MemoryConfig()

    def _open(self, where: str | Path) -> Twofold:
        # Nothing fades in Memwright: a memory is found until it is forgotten.
        mem = Twofold(where, **self._options, decay=DecayPolicy.off())
        mem._vault.auto_supersede = self.config.supersession == "statement"
        return mem

    def _start(self, mem: Twofold, namespace: str | None, folder: Path | None) -> None:
        self._mem = mem
        self._namespace = namespace
        self._store = Documents(self, self._rows)
        self._vector_store = Vectors(self, self._rows)
        self._graph = Relations(self._rows, folder)
        self._temporal = TemporalManager(self._store)
        self._retrieval = self._cascade(self._rows, self._vault.clock.now)

    def seat(self, agent_id: str, chairs: tuple[Chair, ...], write_quota: int | None = None) -> AgentMemory:
        """A handle for an agent that may do what every chair allows. The data layer holds it to that."""
        mine = self._principal
        if isinstance(mine, Seated):
            chairs = (*mine.chairs, *chairs)
        elif mine.read_only:
            chairs = (*chairs[:-1], Chair(chairs[-1].namespace, chairs[-1].role, True))
        principal = Seated(mine.tenant, check_name(agent_id, "agent_id"), (), write_quota, chairs)
        handle = object.__new__(type(self))
        handle.path, handle.config, handle.in_place = self.path, self.config, self.in_place
        handle._memo, handle._options = self._memo, self._options
        namespace = chairs[-1].namespace or DEFAULT
        handle._start(self._mem._handle(principal, namespace, (namespace,)), namespace, None)
        return handle

    @property
    def _vault(self) -> Vault:
        return self._mem._vault

    @property
    def _principal(self) -> Principal:
        return self._mem._principal

    @property
    def namespace(self) -> str | None:
        """The one namespace of this handle; None for one on the whole store."""
        return self._namespace

    @property
    def position(self) -> int:
        """The sequence number of the store's last change."""
        return self._vault.store.head(self._principal.tenant).seq

    def close(self) -> None:
        """Commit what waits and release the store."""
        self._mem.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- reading in general ------------------------------------------------------------------------

    def _patterns(self, namespace: str | None) -> tuple[str, ...]:
        if namespace is not None:
            return (check_pattern(namespace),)
        return ("*",) if self._namespace is None else (self._namespace,)

    def _rows(
        self,
        namespace: str | None = None,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
    ) -> Rows:
        when = When(self._vault.now(), _us(as_of, "as_of"), _us(known_at, "known_at"))
        return Rows(self._vault, self._principal, Asked(self._patterns(namespace), when), self._memo)

    def _embed(self, text: str) -> npt.NDArray[np.float32]:
        embedder = self._mem.embedder
        if embedder is None:
            raise InvalidInput("this store has no embedder; open it with one to search by meaning")
        self._vault.check_embedder(self._vault.index(self._principal.tenant))
        return self._vault.queries(self._principal.tenant).embed_query(embedder, text)

    def _stored(self, memory_id: str) -> Memory:
        found = self.get(memory_id)
        if found is None:
            raise NotFound(f"no memory {memory_id!r} in this handle's scope")
        return found

    # -- writing -----------------------------------------------------------------------------------

    @staticmethod
    def _content_hash(content: str) -> str:
        return hashlib.sha256(content.strip().encode()).hexdigest()

    def _writable(self) -> None:
        if self.in_place:
            raise PermissionDenied(
                f"{self.path} holds a Memwright store, which is read and never written; call migrate(), or "
                "open it with migrate=True, to go on in a copy of it"
            )

    def add(
        self,
        content: str,
        tags: list[str] | None = None,
        category: str = "general",
        entity: str | None = None,
        namespace: str | None = None,
        event_date: str | None = None,
        confidence: float = 1.0,
        metadata: dict[str, Any] | None = None,
        *,
        visibility: str | None = None,
        session_id: str | None = None,
    ) -> Memory:
        """Store a memory and return it; what is stored already gains what is new, under its id.

        namespace: the handle's own, else "default". event_date: when it happened, ISO 8601; unless it is still
        to come, the memory holds from then on. Raises InvalidInput, PermissionDenied, QuotaExceeded.
        """
        self._writable()
        namespace = check_name(namespace or self._namespace or DEFAULT, "namespace")
        happened = None if event_date is None else lenient_us(event_date, "event_date")
        item: dict[str, Any] = {
            "content": content,
            "tags": _tags(tags),
            "memory_type": check_name(category or "general", "category"),
            "namespace": namespace,
            "entities": [entity] if entity else [],
            "key": self._key(entity, category),
            "confidence": confidence,
            "metadata": self._metadata(metadata, entity=entity or None, event_date=event_date),
            "visibility": visibility,
            "session_id": session_id,
        }
        if happened is not None:
            item["event_date"] = from_us(happened)
            now = self._vault.now()
            if happened > now:
                item["valid_from"] = from_us(now)
        # Two writers may both find no twin; the write path's own dedupe then sees that they are equal.
        twin = self._twin(item, happened)
        if twin is None:
            ordinal = self._mem.add(**item).ordinal
        else:
            ordinal = self._merge(twin, item, category)
        return self._rows(namespace).memories([ordinal])[0]

    def _key(self, entity: str | None, category: str | None) -> str | None:
        """What makes two memories rivals under the rule "entity": the write path ends the one before."""
        if not entity or self.config.supersession != "entity":
            return None
        return audit.canonical([entity, category or "general"])

    @staticmethod
    def _metadata(given: Mapping[str, Any] | None, **ours: Any) -> dict[str, Any]:
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInput(f"metadata must be a dict, not {type(given).__name__}")
        kept = {k: v for k, v in ours.items() if v is not None or k == "entity"}
        return {**{k: v for k, v in (given or {}).items() if k != OURS}, OURS: kept}

    def _twin(self, item: Mapping[str, Any], happened: int | None) -> int | None:
        """The active memory that says the same, with nothing that contradicts what is given with it."""
        content = item["content"]
        if not isinstance(content, str) or not content.strip():
            return None  # the write path refuses it
        digest = remember.hash_of(content)
        entity = item["metadata"][OURS]["entity"]
        rows = self._rows(item["namespace"])
        index = rows.index
        with index.lock:
            active = rows.mask(ACTIVE)
            same = index.by_hash.get((index.namespaces.get(item["namespace"]), digest), ())
            for ordinal in same:
                if ordinal >= len(active) or not active[ordinal]:
                    continue
                theirs = rows.entity_of(ordinal)
                kind = index.types.names[index.type[ordinal]]
                if entity and theirs and entity_key(entity) != entity_key(theirs):
                    continue
                if "general" not in (item["memory_type"], kind) and item["memory_type"] != kind:
                    continue
                if happened is not None and int(index.event_at[ordinal]) != happened:
                    continue
                if (item["visibility"] or "public") != ("public", "team", "private")[
                    index.visibility[ordinal]
                ]:
                    continue
                return int(ordinal)
        return None

    def _merge(self, ordinal: int, item: Mapping[str, Any], category: str) -> int:
        """Bring what the second writing adds to the memory it repeats; the ordinal that holds it then."""
        row = self._vault.store.rows(self._principal.tenant, [ordinal])[0]
        old = json.loads(row.metadata)
        ours = {**old.get(OURS, {}), **{k: v for k, v in item["metadata"][OURS].items() if v is not None}}
        entity = ours.get("entity")
        kind = row.memory_type if category in ("general", None) else item["memory_type"]
        changes: dict[str, Any] = {
            "tags": tuple(dict.fromkeys((*row.tags, *item["tags"]))),
            "metadata": {**old, **item["metadata"], OURS: ours},
            "memory_type": kind,
            "key": self._key(entity, kind) if self.config.supersession == "entity" else row.key,
            "confidence": max(row.confidence, item["confidence"]),
        }
        if entity and entity_key(entity) not in {entity_key(e) for e in row.entities}:
            changes["entities"] = (entity, *row.entities)
        same = {**changes, "metadata": audit.canonical(changes["metadata"])}
        if all(getattr(row, name) == value for name, value in same.items()):
            return ordinal
        return self._mem.update(row.id, **changes).ordinal

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id, whatever its status; None when there is none in this handle's scope."""
        try:
            versions = self._mem.history(memory_id)
        except NotFound:
            return None
        if not self._principal.reads(versions[-1].namespace):
            return None
        rows = self._rows("*" if self._namespace is None else versions[-1].namespace)
        return rows.memories([versions[-1].ordinal])[0]

    def update(
        self,
        memory_id: str,
        content: str | None = None,
        tags: list[str] | None = None,
        category: str | None = None,
        entity: str | None = None,
    ) -> Memory | None:
        """Correct a memory under its id; earlier versions stay in the store's history. None when there is none."""
        self._writable()
        old = self.get(memory_id)
        if old is None:
            return None
        return self._corrected(
            old,
            content=content,
            tags=tags,
            category=category,
            entity=entity if entity is not None else old.entity,
            metadata=old.metadata,
        )

    def _corrected(
        self,
        old: Memory,
        *,
        content: str | None,
        tags: list[str] | None,
        category: str | None,
        entity: str | None,
        metadata: Mapping[str, Any],
        **more: Any,
    ) -> Memory:
        version = self._mem.history(old.id)[-1]
        ours = {**dict(version.metadata.get(OURS, {})), "entity": entity}
        changes: dict[str, Any] = {"metadata": {**metadata, OURS: ours}, **more}
        if content is not None:
            changes["content"] = content
        if tags is not None:
            changes["tags"] = _tags(tags)
        if category is not None:
            changes["memory_type"] = category
        if entity != old.entity:
            others = [e for e in version.entities if entity_key(e) != entity_key(old.entity or "")]
            changes["entities"] = [*([entity] if entity else []), *others]
        elif content is not None and entity:
            changes["entities"] = [entity]
        if self.config.supersession == "entity":
            changes["key"] = self._key(entity, category or old.category)
        ordinal = self._mem.update(old.id, **changes).ordinal
        return self._rows(old.namespace).memories([ordinal])[0]

    def _replace(self, memory: Memory) -> Memory:
        """What a document store's update means: the fields given, a new status included."""
        self._writable()
        old = self._stored(memory.id)
        fields = ("content", "tags", "category", "entity", "metadata", "confidence")
        if any(getattr(memory, f) != getattr(old, f) for f in fields):
            self._corrected(
                old,
                content=None if memory.content == old.content else memory.content,
                tags=memory.tags,
                category=memory.category,
                entity=memory.entity,
                metadata=memory.metadata,
                confidence=memory.confidence,
            )
        if memory.status == ARCHIVED and old.status != ARCHIVED:
            self.forget(memory.id)
        elif memory.status == SUPERSEDED and old.status == ACTIVE and memory.superseded_by:
            until = (
                None if memory.valid_until is None else from_us(lenient_us(memory.valid_until, "valid_until"))
            )
            self._mem.supersede(memory.id, memory.superseded_by, at=until)
        return self._stored(memory.id)

    # -- recall ------------------------------------------------------------------------------------

    def recall(
        self,
        query: str,
        budget: int | None = None,
        namespace: str | None = None,
        *,
        k: int | None = None,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
        promote: bool = True,
        ranking: str | None = None,
    ) -> list[RetrievalResult]:
        """The memories that answer a query best, as many as fit a token budget.

        budget: estimated tokens; the default is the setting. It holds, but for a first memory that alone is
        larger: that one is returned by itself. k: results at most (50; Memwright's formula: 10).
        as_of: what was true then. known_at: what was stored then. promote: count the results as used.
        ranking: "twofold" or "compat", instead of the setting. Raises BudgetError for a budget below 1.
        """
        found = self._found(query, budget, namespace, k, as_of, known_at, ranking)
        if promote and not self._principal.read_only and not self.in_place:
            self._used([r.memory.id for r in found if r.memory.category != TRIPLE_CATEGORY])
        return found

    def recall_as_context(
        self, query: str, budget: int | None = None, namespace: str | None = None, **options: Any
    ) -> str:
        """`recall` as lines to paste, labels within the budget; "" when nothing is found. Counts no use."""
        found = self._found(query, budget, namespace, **{**_UNSET, **options})
        return context_of(found, self._budget(budget))

    def _budget(self, budget: int | None) -> int:
        budget = self.config.default_token_budget if budget is None else budget
        budget = whole(budget, "budget", -(2**40), 2**40)
        if budget < 1:
            raise BudgetError(f"a budget of {budget} tokens holds nothing; give 1 or more, or leave it out")
        return budget

    def _found(
        self,
        query: str,
        budget: int | None,
        namespace: str | None,
        k: int | None,
        as_of: Instant | None,
        known_at: Instant | None,
        ranking: str | None,
    ) -> list[RetrievalResult]:
        tokens = self._budget(budget)
        ranking = self.config.ranking if ranking is None else ranking
        if ranking not in RANKINGS:
            raise InvalidInput(f"ranking must be one of {', '.join(RANKINGS)}, not {ranking!r}")
        if ranking == "compat":
            cascade = self._cascade(
                _once(lambda n: self._rows(n or namespace, as_of, known_at)), self._vault.clock.now
            )
            cascade.max_results = 10 if k is None else k
            return cascade.recall(query, tokens, namespace)
        hits = self._mem.recall(
            query,
            k=MOST if k is None else k,
            as_of=None if as_of is None else from_us(to_us(as_of)),
            known_at=known_at,
            namespaces=self._patterns(namespace),
            include_faded=True,
            promote=False,
        )
        memories = self._rows(namespace, as_of, known_at).memories([h.memory.ordinal for h in hits])
        results = [RetrievalResult(m, h.score, _source(h)) for m, h in zip(memories, hits, strict=True)]
        return pack(results, tokens)

    def _cascade(
        self, rows: Callable[[str | None], Rows], now: Callable[[], dt.datetime]
    ) -> RetrievalOrchestrator:
        """Memwright's formula over these rows, with the settings of config.json."""
        meaning = None if self._mem.embedder is None else Vectors(self, rows)
        made = RetrievalOrchestrator(
            Documents(self, rows),
            self.config.min_results,
            meaning,
            Relations(lambda: rows(None), None),
            now=now,
            use_accesses=self.config.rank_by_use,
        )
        for name in ("enable_mmr", "mmr_lambda", "fusion_mode", "confidence_gate"):
            setattr(made, name, getattr(self.config, name))
        made.confidence_decay_rate = self.config.confidence_decay_rate
        made.confidence_boost_rate = self.config.confidence_boost_rate
        return made

    def _used(self, memory_ids: Sequence[str]) -> None:
        """Count a use of each memory; written with the next write, so that a recall waits for no lock."""
        tenant = self._principal.tenant
        index = self._vault.index(tenant)
        newest = [o for o in map(index.newest, memory_ids) if o is not None]
        if newest:
            self._vault.note_access(tenant, newest, self._vault.now())

    # -- other reads -------------------------------------------------------------------------------

    def search(
        self,
        query: str | None = None,
        category: str | None = None,
        entity: str | None = None,
        namespace: str | None = None,
        status: str | None = ACTIVE,
        after: str | None = None,
        before: str | None = None,
        limit: int = 10,
    ) -> list[Memory]:
        """Memories that pass every filter, newest first; with a query, nearest in meaning first.

        after, before: bounds of created_at, inclusive. limit counts what passed: nothing that passes is hidden
        by what does not.
        """
        limit = whole(limit, "limit", 0, 10**9)
        rows = self._rows(namespace)
        found = rows.ordinals(status, category, entity, after, before)
        if query and limit:
            mask = np.zeros(rows.view.rows, np.bool_)
            mask[found] = True
            found = [o for o, _ in rows.nearest(self._embed(query), limit, mask)]
        return rows.memories(found[:limit])

    def timeline(
        self, entity: str, namespace: str | None = None, *, as_of: Instant | None = None
    ) -> list[Memory]:
        """Everything about an entity in the order it happened, whatever its status. Case does not matter."""
        rows = self._rows(namespace, as_of)
        found = rows.ordinals(None, None, entity)
        return rows.memories(sorted(found, key=lambda o: (rows.dated(o), o)))

    def current_facts(
        self,
        category: str | None = None,
        entity: str | None = None,
        namespace: str | None = None,
        *,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
    ) -> list[Memory]:
        """What holds now, or held at `as_of`, newest first."""
        rows = self._rows(namespace, as_of, known_at)
        return rows.memories(rows.ordinals(ACTIVE, category, entity))

    def extract(
        self,
        messages: list[dict[str, Any]],
        model: str = "rules",
        use_llm: bool = False,
        namespace: str | None = None,
    ) -> list[Memory]:
        """Store what rules find in messages {role, content}. There is no model: use_llm=True is refused."""
        from twofold.compat.agent_memory.extraction.extractor import extract_memories

        found = extract_memories(messages, use_llm, model)
        return [self.add(m.content, m.tags, m.category, m.entity, namespace) for m in found]

    def batch_embed(self, batch_size: int = 100) -> int:  # noqa: ARG002 (the store has its own)
        """Give vectors to memories stored without an embedder. Returns the active memories, which all have one.

        Vectors are made with every write, namespaces and all, so there is usually nothing to do.
        """
        rows = self._rows()
        active = rows.ordinals(ACTIVE)
        embedder = self._mem.embedder
        stored = self._vault.store.rows(self._principal.tenant, active)
        if embedder is not None and any(r.generation is None for r in stored):
            self._writable()
            self._mem.reembed(embedder)
        return len(active)

    def pagerank(self, alpha: float = 0.85) -> dict[str, float]:
        """The PageRank of the entities of this handle's namespaces, by lower-cased name."""
        return self._graph.pagerank(alpha)

    def execute(self, sql: str, params: Any = None) -> list[dict[str, Any]]:
        """Rows of one statement on a copy of Memwright's table `memories`, which is made for this call.

        The copy has what this handle may see. Writing is refused (InvalidInput): nothing would keep it.
        """
        rows = []
        for m in self._all():
            rows.append({**m.to_dict(), "tags": m.tags_json(), "metadata": m.metadata_json()})
        return run_sql(rows, sql, params)

    def _all(self) -> list[Memory]:
        rows = self._rows()
        return rows.memories(rows.ordinals(None)[::-1])

    # -- forgetting --------------------------------------------------------------------------------

    def forget(self, memory_id: str) -> bool:
        """Archive a memory: it is found no more, and what it had superseded holds again. False: no such memory."""
        self._writable()
        found = self.get(memory_id)
        if found is None:
            remember.demand(self._principal, "forget", repr(memory_id))
            return False
        if found.status != ARCHIVED:
            self._archive([memory_id])
        return True

    def forget_before(self, date: str) -> int:
        """Archive the active memories created before an instant; how many."""
        self._writable()
        limit = lenient_us(date, "date")
        rows = self._rows()
        old = [o for o in rows.ordinals(ACTIVE) if rows.created(o) < limit]
        self._archive([rows.index.ids.names[rows.index.lineage[o]] for o in reversed(old)])
        return len(old)

    def _archive(self, memory_ids: Sequence[str]) -> None:
        remember.demand(self._principal, "forget", "a memory")
        if not memory_ids:
            return
        with self._vault.write(self._principal) as writer:
            ledger = Ledger(writer.index)
            gone = {i: remember.find(self._principal, ledger, i) for i in memory_ids}
            for known in gone.values():
                if not self._principal.writes(known.namespace, None):
                    raise PermissionDenied(
                        f"agent {self._principal.agent_id!r} may not forget in namespace {known.namespace!r}"
                    )
            for memory_id, known in gone.items():
                if known.closed:
                    continue
                remember.check_quota(writer)
                writer.event(
                    Kind.FORGET, namespace=known.namespace, ordinal=known.ordinal, payload={"rule": "forget"}
                )
                known.closed = True
                _revive(writer, ledger, memory_id, known)

    def compact(self) -> int:
        """Erase what is archived, content, vectors and all; how many. Cannot be undone."""
        self._writable()
        remember.demand(self._principal, "forget", "what is archived")
        rows = self._rows()
        names = [rows.index.ids.names[rows.index.lineage[o]] for o in rows.ordinals(ARCHIVED)]
        return self._erase(names)

    def _erase(self, memory_ids: Sequence[str]) -> int:
        vault, tenant = self._vault, self._principal.tenant
        self._writable()
        if not memory_ids:
            return 0
        vault.flush(tenant)
        wanted = set(memory_ids)
        with vault.write(self._principal) as writer:
            rows = [
                r
                for r in erase.all_rows(vault, tenant, writer.next_ordinal)
                if r.id in wanted and not r.erased and self._principal.writes(r.namespace, None)
            ]
            if rows:
                erase.apply(writer, rows, "compacted")
        vault.queries(tenant).clear()
        vault.drop_cache(tenant)
        vault.store.scrub()
        return len({r.id for r in rows})

    # -- keeping -----------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """{total_memories, by_status, by_category, db_size_bytes} of what this handle may see."""
        rows = self._rows()
        everything = rows.ordinals(None)
        by_status = {s: n for s in STATUSES if (n := len(rows.ordinals(s)))}
        by_category: dict[str, int] = {}
        for ordinal in reversed(everything):
            name = rows.index.types.names[rows.index.type[ordinal]]
            by_category[name] = by_category.get(name, 0) + 1
        return {
            "total_memories": len(everything),
            "by_status": by_status,
            "by_category": by_category,
            "db_size_bytes": self._vault.store.size(self._principal.tenant),
        }

    def health(self) -> dict[str, Any]:
        """{healthy, checks: [{name, status: ok or error, detail}]}, each part tried for real."""
        found = self._mem.health()
        checks = [
            {"name": c["name"], "status": "ok" if c["ok"] else "error", "detail": c["detail"]}
            for c in found["checks"]
        ]
        damaged = self._graph.damaged
        if damaged is not None:
            checks.append({"name": "graph.json", "status": "error", "detail": damaged})
        if (self.path / "config.json.corrupt").exists() and self._namespace is None:
            detail = "config.json was no JSON; it lies in config.json.corrupt, the defaults are in use"
            checks.append({"name": "config.json", "status": "error", "detail": detail})
        return {"healthy": all(c["status"] == "ok" for c in checks), "checks": checks}

    def export_json(self, filepath: str | Path) -> None:
        """Write all this handle may see, whatever its status, as a JSON list; `import_json` loses nothing of it."""
        text = json.dumps([m.to_dict() for m in self._all()], indent=2, ensure_ascii=False)
        replace_text(Path(filepath), text)

    def import_json(self, filepath: str | Path) -> int:
        """Read an export: ids, namespaces, times, statuses and uses as they were. Returns how many were new.

        A memory whose id is there, or that an active one of its namespace says already, is passed over.
        Raises InvalidInput for a file that is no such list, or has a memory that cannot be stored.
        """
        self._writable()
        try:
            data = json.loads(Path(filepath).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidInput(f"{filepath} is not JSON: {error}") from None
        if not isinstance(data, list) or not all(isinstance(d, dict) for d in data):
            raise InvalidInput(f"{filepath} is no JSON list of memories")
        report = self._load(data)
        if report.refused:
            memory_id, reason = report.refused[0]
            raise InvalidInput(f"{len(report.refused)} memories were not imported; {memory_id}: {reason}")
        return report.stored

    def migrate(self) -> reader.Migration:
        """Copy a Memwright store, opened in place, to twofold.db beside it and go on with that.

        memory.db stays as it is. Raises InvalidInput for a handle that is not on such a store.
        """
        if not self.in_place or self._namespace is not None:
            raise InvalidInput(
                f"{self.path} is not a whole Memwright store opened in place; nothing to migrate"
            )
        self._mem.close()
        report = reader.migrate(self.path, self.path, **self._options)
        save_config(self.path, self.config)
        self.in_place = False
        self._memo = Memo()
        self._start(self._open(self.path), None, self.path)
        return report

    def _load(self, records: Iterable[Mapping[str, Any]], *, keep_all: bool = False) -> reader.Migration:
        """Store memories as they are. keep_all: those too that say what another says."""
        report = reader.Migration()
        batches = iter(records)
        ends: list[dict[str, Any]] = []
        while batch := list(itertools.islice(batches, LOAD_BATCH)):
            ends += self._load_batch(batch, report, keep_all)
        with self._vault.write(self._principal) as writer:
            ledger = Ledger(writer.index)
            for record in ends:
                self._end(writer, ledger.newest(record["id"]), record)
        return report

    def _load_batch(
        self, batch: Sequence[Mapping[str, Any]], report: reader.Migration, keep_all: bool
    ) -> list[dict[str, Any]]:
        vault, principal = self._vault, self._principal
        ready: list[tuple[dict[str, Any], remember.Draft]] = []
        for raw in batch:
            report.read += 1
            record = reader.tidy(raw)
            try:
                draft = remember.validate(vault, principal, DEFAULT, self._item(record))
            except PermissionDenied:
                raise
            except TwofoldError as error:
                report.refused.append((str(raw.get("id")), str(error)))
                continue
            # What the frame says is for new statements: an old store's rows have their ends already.
            draft.frame = None
            ready.append((record, draft))
        remember.embed(vault, principal, [d for _, d in ready])
        ended = []
        with vault.write(principal) as writer:
            remember.embed_anew(writer, [d for _, d in ready])
            ledger = Ledger(writer.index)
            recorded = writer.now()
            for record, draft in ready:
                if ledger.newest(record["id"]) is not None:
                    report.known += 1
                    continue
                twins = [k for k in ledger.same_hash(draft.namespace, draft.content_hash) if not k.closed]
                if not keep_all and record["status"] == ACTIVE and any(t.key == draft.key for t in twins):
                    report.known += 1
                    continue
                remember.check_quota(writer)
                start = lenient_us(record["valid_from"], "valid_from")
                known = remember.insert(writer, ledger, Kind.ADD, draft, record["id"], 1, recorded, start)
                report.stored += 1
                ended.append(record)
                if record["access_count"]:
                    used = known_us(record["last_accessed"]) or recorded
                    writer.event(
                        Kind.ACCESS,
                        payload={
                            "o": [known.ordinal] * record["access_count"],
                            "t": [min(used, recorded)] * record["access_count"],
                        },
                    )
        return ended

    def _item(self, record: Mapping[str, Any]) -> dict[str, Any]:
        entity, confidence = record["entity"], record["confidence"]
        held = min(max(float(confidence), 0.0), 1.0)
        ours = {
            "entity": entity,
            "event_date": record["event_date"],
            "created_at": record["created_at"],
            "confidence": None if held == confidence else confidence,
        }
        happened = known_us(record["event_date"])
        return {
            "content": record["content"],
            "tags": record["tags"],
            "memory_type": record["category"],
            "namespace": record["namespace"],
            "entities": [entity] if entity else [],
            "key": self._key(entity, record["category"]),
            "confidence": held,
            "metadata": self._metadata(record["metadata"], **ours),
            "event_date": None if happened is None else from_us(happened),
            "visibility": _width(record["metadata"].get("_visibility")),
        }

    def _end(self, writer: Writer, known: Known | None, record: Mapping[str, Any]) -> None:
        """End what had ended: validity where it was superseded, and what is known of it where it was archived."""
        if known is None:
            return
        until = known_us(record["valid_until"])
        by = record["superseded_by"]
        if until is None and record["status"] == SUPERSEDED:
            until = writer.now()
        if until is not None:
            end = max(until, known.valid_from)
            remember.end(writer, known, end, by, "memwright", "as it was stored", alone=True)
        if record["status"] == ARCHIVED:
            writer.event(
                Kind.FORGET, namespace=known.namespace, ordinal=known.ordinal, payload={"rule": "memwright"}
            )
            known.closed = True


_UNSET: Final[dict[str, Any]] = {"k": None, "as_of": None, "known_at": None, "ranking": None}


def _once(rows: Callable[[str | None], Rows]) -> Callable[[str | None], Rows]:
    """The same rows every time they are asked for: one recall looks at one moment."""
    made: dict[str | None, Rows] = {}

    def of(namespace: str | None) -> Rows:
        if namespace not in made:
            made[namespace] = rows(namespace)
        return made[namespace]

    return of


def _us(value: Instant | None, name: str) -> int | None:
    if value is None:
        return None
    return lenient_us(value, name) if isinstance(value, str) else to_us(value, name=name)


def _tags(tags: Any) -> list[str]:
    if isinstance(tags, str):
        raise InvalidInput(f"tags must be a list of strings, not the string {tags!r}; write [{tags!r}]")
    return list(tags or ())


def _width(visibility: Any) -> str | None:
    """Twofold's visibility for one of Memwright's; private and system both are the author's alone."""
    if visibility in ("private", "system"):
        return str(Visibility.PRIVATE)
    return visibility if visibility in ("public", "team") else None


def _source(hit: Hit) -> str:
    """The layer that ranked it best, in Memwright's three names."""
    best = min(hit.sources, key=lambda name: (hit.sources[name], name), default="vector")
    return _SOURCES[best]


def _revive(writer: Writer, ledger: Ledger, memory_id: str, gone: Known) -> None:
    """Undo what a forgotten memory had superseded; where it had itself an end, its predecessors end there."""
    ends = [c for c in ledger.closings(gone.ordinal) if c.axis == "valid"]
    for closing in list(writer.index.closings):
        if closing.by != memory_id or closing.axis != "valid" or closing.seq in writer.index.voids:
            continue
        old = ledger.known(closing.ordinal)
        if old.closed or old.erased:
            continue
        writer.event(
            Kind.RESTORE, namespace=old.namespace, ordinal=old.ordinal, payload={"voids": [closing.seq]}
        )
        for end in ends:
            remember.end(writer, old, end.at, end.by, "key", "what came between was forgotten", alone=True)
