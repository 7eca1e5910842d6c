"""`AgentMemory`: the front door. Opens the store and the embedder, owns the clock, delegates; no algorithms."""

from __future__ import annotations

import functools
import importlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, overload

import numpy.typing as npt

from twofold import erase as erasing
from twofold import explain as explaining
from twofold import lookup, query, recall, remember, replay, transfer, verify
from twofold import maintain as keeping
from twofold.access import ROLE_TABLE, Grant, Principal, check_name, role_of
from twofold.clock import Clock, SystemClock, monotonic, to_us
from twofold.config import Config
from twofold.decay import DecayPolicy
from twofold.embed import Embedder, open_embedder
from twofold.errors import InvalidInput, PermissionDenied, StoreError
from twofold.files import path_of
from twofold.follow import Follower
from twofold.index import ann
from twofold.index.filters import Filters
from twofold.lookup import When
from twofold.model import Memory, Role
from twofold.named_entities import entity_finder
from twofold.query import Instant
from twofold.recall import Recall
from twofold.receipt import Receipt
from twofold.retrieve.fit import Fit
from twofold.retrieve.profile import Profile, profile_of
from twofold.stores import open_replica, open_store
from twofold.tokens import TokenCounter, counter
from twofold.vault import Vault

if TYPE_CHECKING:
    from twofold.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")

BATCH = 256
POLICIES: dict[str, Callable[[], DecayPolicy]] = {
    "default": DecayPolicy,
    "published": DecayPolicy.published,
    "off": DecayPolicy.off,
}


def audited(method: Callable[P, R]) -> Callable[P, R]:
    """Log a refusal in the audit before it reaches the caller."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except PermissionDenied as refused:
            mem: AgentMemory = args[0]  # type: ignore[assignment]
            keeping.log_refusal(mem._vault, mem._principal, method.__name__, str(refused))
            raise

    return wrapper


class AgentMemory:
    """A persistent memory for agents, opened by path or address.

    `AgentMemory("./store")` is the owner's handle on one tenant: it may do everything there. `as_agent` makes
    handles that may do less. Handles are safe to use from several threads; several processes may open one store.

    >>> mem = AgentMemory(":memory:", embedder="hashing")
    >>> _ = mem.add("The planner chose Rust for the critical path", tags=["decision"])
    >>> mem.recall("What did the planner choose?")[0].content
    'The planner chose Rust for the critical path'
    >>> mem.close()
    """

    def __new__(cls, path: str | Path = "./store", *args: Any, **options: Any) -> Self:
        """A handle; for the address of a server ("http://...", key=...), a client with the same methods."""
        if cls is AgentMemory and isinstance(path, str) and path.startswith(("http://", "https://")):
            # By dotted name: the client lies above this module.
            connect = importlib.import_module("twofold.serve.client").connect
            return connect(path, *args, **options)  # type: ignore[no-any-return]
        return object.__new__(cls)

    def __init__(
        self,
        path: str | Path = "./store",
        *,
        tenant: str = "default",
        namespace: str = "default",
        embedder: str | Embedder | Literal["default"] | None = "default",
        clock: Clock | None = None,
        ids: Callable[[int], str] | None = None,
        entropy: Callable[[int], bytes] | None = None,
        decay: DecayPolicy | str | None = None,
        store: Store | None = None,
        admin: bool = False,
        read_only: bool = False,
        config: Config | str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Open or create a store.

        path: a folder (SQLite inside), ":memory:", or an address: "postgresql://...", "http://..." with key=.
        embedder: None for words and relations only; left out, the setting `embedder` ("auto": the local MiniLM).
        clock, ids, entropy: sources of time, ids and salts, for tests and replays.
        decay: a policy, or the name of one ("default", "published", "off").
        admin: `as_agent` may then name other tenants. settings: fields of `Config`.
        Raises EmbedderUnavailable without an installed model (the message names the command), StoreError.
        """
        if isinstance(decay, str):
            settings["decay"], decay = decay, None
        elif not isinstance(decay, DecayPolicy | None):
            raise InvalidInput(f"decay must be a DecayPolicy or the name of one, not {decay!r}")
        self.config = config if isinstance(config, Config) else Config.load(config, **settings)
        if isinstance(config, Config) and settings:
            raise InvalidInput("give either config= or single settings, not both")
        tenant, namespace = check_name(tenant, "tenant"), check_name(namespace, "namespace")
        chosen = self.config.embedder if embedder == "default" else embedder
        opened = open_embedder(chosen)
        dimensions = self.config.l2_embedding_dimensions
        if dimensions is not None and opened is not None and opened.dimension != dimensions:
            raise InvalidInput(
                f"l2_embedding_dimensions is {dimensions}, but {opened.name} gives {opened.dimension}"
            )
        finder = entity_finder(self.config.entities)
        options: dict[str, Any] = {} if entropy is None else {"entropy": entropy}
        self._vault = Vault(
            store or open_store(path, **_store_options(path, self.config)),
            opened,
            clock or SystemClock(),
            decay or POLICIES[self.config.decay](),
            counter(self.config.token_counter),
            self.config.query_cache,
            ids=ids,
            **options,
        )
        self._vault.auto_supersede = self.config.auto_supersede
        self._vault.vectors_in_ram = self.config.vectors_in_ram
        if self.config.ann != "off":
            ann.library()  # a setting that cannot be kept is refused here, not at some recall
            self._vault.ann_rows = self.config.ann_rows
        self._vault.finder = finder
        replica, lag = self.config.replica, self.config.max_lag
        if replica is not None:
            self._vault.read_from(open_replica(self._vault.store, replica, lag, self.config.busy_timeout))
        if self.config.follow != "off":
            self._vault.follower = Follower(
                self._vault, tenant, self.config.follow, self.config.follow_interval
            )
        grants = (Grant(None, None, True),) if read_only else ()
        self._bind(Principal(tenant, "owner", grants), namespace, (namespace,), admin)
        self._opener: AgentMemory | None = None
        self._finalizer = weakref.finalize(self, _close_quietly, self._vault)

    def _bind(self, principal: Principal, namespace: str | None, own: tuple[str, ...], admin: bool) -> None:
        self._principal = principal
        self._namespace = namespace
        self._own = own
        self._admin = admin

    # -- the handle ----------------------------------------------------------------------------------

    @property
    def tenant(self) -> str:
        """The one tenant this handle sees."""
        return self._principal.tenant

    @property
    def namespace(self) -> str | None:
        """Where `add` writes when it is not told; None when it must be told."""
        return self._namespace

    @property
    def agent_id(self) -> str:
        """Who this handle writes as."""
        return self._principal.agent_id

    @property
    def role(self) -> Role | None:
        """The role of the handle; None for the owner's."""
        return self._principal.role

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of this handle."""
        return self._vault.embedder_of(self.tenant)

    @property
    def clock(self) -> Clock:
        """The one source of time."""
        return self._vault.clock

    def as_agent(
        self,
        agent_id: str,
        *,
        role: Role | str = Role.EXECUTOR,
        tenant: str | None = None,
        namespaces: Sequence[str] | str | None = None,
        namespace: str | None = None,
        write_quota: int | None = None,
        read_only: bool = False,
    ) -> AgentMemory:
        """A handle for an agent, with the same methods, that may do what the role and this handle both allow.

        namespaces: exact names or prefixes "build/*" that the agent works in; left out, the role's reach.
        namespace: where `add` writes by default; left out, this handle's or the first exact name given.
        write_quota: writes this agent may make in all, counted in the log; the role's default when left out.
        Raises PermissionDenied for another tenant unless the store was opened with admin=True.
        """
        agent_id, role = check_name(agent_id, "agent_id"), role_of(role)
        if self._principal.grants and not self._principal.may("grant"):
            self._refuse("as_agent", f"role {self._principal.role_name} may not make handles")
        if tenant is not None and tenant != self.tenant and not (self._admin and self._principal.is_owner):
            self._refuse("as_agent", f"this handle sees tenant {self.tenant!r} only, not {tenant!r}")
        patterns = None if namespaces is None else query.patterns_of(namespaces, ())
        if write_quota is not None:
            write_quota = query.whole(write_quota, "write_quota", 0, 10**12)
        limits = [
            q
            for q in (self._principal.write_quota, write_quota or ROLE_TABLE[role].write_quota)
            if q is not None
        ]
        if write_quota == 0:
            limits.append(0)
        own = patterns or self._own
        if patterns is None and ROLE_TABLE[role].granted_only:
            patterns = self._own
        if namespace is not None:
            namespace = check_name(namespace, "namespace")
        else:
            exact = [n for n in own if "*" not in n]
            keep = self._namespace if patterns is None or self._namespace in own else None
            namespace = keep or (exact[0] if exact else None)
        principal = Principal(
            check_name(tenant, "tenant") if tenant is not None else self.tenant,
            agent_id,
            (*self._principal.grants, Grant(role, patterns, read_only)),
            min(limits) if limits else None,
        )
        return self._handle(principal, namespace, own)

    def read_only(self) -> AgentMemory:
        """The same handle without the right to write; recalls through it never promote."""
        principal = self._principal
        grant = Grant(principal.role, None, True)
        return self._handle(
            Principal(
                principal.tenant, principal.agent_id, (*principal.grants, grant), principal.write_quota
            ),
            self._namespace,
            self._own,
        )

    def _handle(self, principal: Principal, namespace: str | None, own: tuple[str, ...]) -> AgentMemory:
        handle = object.__new__(type(self))
        handle.config, handle._vault = self.config, self._vault
        handle._opener = self._opener or self  # as long as this handle lives, the store stays open
        handle._bind(principal, namespace, own, self._admin and principal.is_owner)
        handle._finalizer = self._finalizer
        return handle

    def _refuse(self, action: str, detail: str) -> None:
        keeping.log_refusal(self._vault, self._principal, action, detail)
        raise PermissionDenied(f"agent {self.agent_id!r} (role {self._principal.role_name}): {detail}")

    def flush(self) -> None:
        """Commit the access events of earlier recalls that are still waiting."""
        self._vault.flush(self.tenant)

    def close(self) -> None:
        """Commit what waits and release the store. Handles made from this one close with it.

        Closing a handle that was made from another only commits: the store is the other's.
        """
        if self._opener is not None:
            self.flush()
            return
        self._finalizer.detach()
        self._vault.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"AgentMemory({self._vault.store.url!r}, tenant={self.tenant!r}, agent={self.agent_id!r}, "
            f"role={self._principal.role_name!r})"
        )

    # -- writing -------------------------------------------------------------------------------------

    @overload
    def add(self, content: str, *, dry_run: Literal[False] = False, **fields: Any) -> Memory: ...
    @overload
    def add(self, content: str, *, dry_run: Literal[True], **fields: Any) -> list[remember.Decision]: ...
    @audited
    def add(self, content: str, *, dry_run: bool = False, **fields: Any) -> Memory | list[remember.Decision]:
        """Store one memory and return it; an exact duplicate returns the memory it repeats.

        fields: tags, memory_type ("fact"), namespace, entities, key ("subject.attribute": one current value),
        confidence 0..1, pinned, metadata (JSON), event_date, speaker, visibility (public, team, private),
        source_id, session_id, derived_from (ids), valid_from, valid_to, supersedes (ids), vector (the caller's
        own; False: none, the text is not embedded until a `reembed`).
        dry_run: return the supersessions it would cause, and write nothing.
        Raises InvalidInput, PermissionDenied, QuotaExceeded, NotFound (ids named), EmbeddingError, StoreError.
        """
        item = {"content": content, **fields}
        if dry_run:
            return remember.preview(self._vault, self._principal, self._target(fields), item)
        return remember.remember(self._vault, self._principal, self._target(fields), [item])[0]

    @audited
    def add_many(
        self,
        items: Iterable[Mapping[str, Any] | str],
        *,
        progress: bool | Callable[[int], None] = False,
        batch: int = BATCH,
    ) -> list[Memory]:
        """Store many memories, one transaction a batch, and return them in order.

        items: mappings with the fields of `add` ("content" among them), or plain texts.
        progress: True for a bar on stderr, or a function that is given the number stored so far.
        A batch with a bad item is not stored at all; earlier batches stay.
        """
        batch = query.whole(batch, "batch", 1, 100_000)
        out: list[Memory] = []
        for chunk, done in transfer.chunks(items, batch, progress):
            made = [{"content": i} if isinstance(i, str) else i for i in chunk]
            if not all(isinstance(i, Mapping) for i in made):
                raise InvalidInput("add_many takes mappings with a content, or texts")
            namespace = self._target({}) if all("namespace" not in i for i in made) else self._namespace or ""
            out += remember.remember(self._vault, self._principal, namespace, made)
            done(len(out))
        return out

    def _target(self, fields: Mapping[str, Any]) -> str:
        if fields.get("namespace") is None and self._namespace is None:
            raise InvalidInput(
                f"this handle works in {', '.join(self._own)}; say where to write with namespace="
            )
        return self._namespace or ""

    @audited
    def update(self, memory_id: str, **changes: Any) -> Memory:
        """Correct a memory: a new version under the same id; the old one stays in `history`."""
        return remember.update(self._vault, self._principal, self._namespace or "", memory_id, changes)

    @audited
    def forget(self, memory_id: str) -> Memory:
        """Retract a memory: it is no longer known from now on. `restore` undoes it."""
        return remember.forget(self._vault, self._principal, memory_id)

    @audited
    def restore(self, memory_id: str) -> Memory:
        """Undo the last retraction of a memory, or else its supersession."""
        return remember.restore(self._vault, self._principal, memory_id)

    @audited
    def supersede(
        self, old_id: str, new_id: str, *, at: Instant | None = None, dry_run: bool = False
    ) -> remember.Decision:
        """End the validity of one memory in favour of another, at `at` or where the newer one begins."""
        when = query.optional_instant(at, "at")
        return remember.supersede(self._vault, self._principal, old_id, new_id, at=when, dry_run=dry_run)

    @audited
    def link(self, a: str, b: str, relation: str = "related", *, weight: float = 1.0) -> None:
        """Relate two memories; recall walks the relation in both directions."""
        remember.link(self._vault, self._principal, a, b, relation, weight)

    @audited
    def flag(self, memory_id: str, reason: str) -> None:
        """Ask for a review of a memory."""
        remember.flag(self._vault, self._principal, memory_id, reason)

    @audited
    def feedback(
        self, receipt: Receipt | str, useful: Sequence[str] = (), *, useless: Sequence[str] = ()
    ) -> None:
        """Log which of a recall's memories were useful, and which were not."""
        keeping.feedback(self._vault, self._principal, receipt, useful, useless)

    @audited
    def fit_profile(self, profile: str | Profile | dict[str, Any] | None = None) -> Fit:
        """Fit a profile's weights to the feedback on kept receipts (`recall(..., keep=True)`); nothing is written.

        Deterministic, and unchanged unless it holds on answers that it was not fitted on. To use the result:
        `recall(..., profile=mem.fit_profile().profile)`.
        """
        return keeping.fit_profile(self._vault, self._principal, profile_of(profile))

    @audited
    def erase(self, memory_id: str, *, reason: str) -> erasing.Erasure:
        """Remove a memory's content for good, everywhere; a tombstone stays. Owner only, cannot be undone."""
        return erasing.erase(self._vault, self._principal, memory_id, reason)

    @audited
    def erase_where(
        self,
        *,
        namespace: str | None = None,
        agent_id: str | None = None,
        source_id: str | None = None,
        session_id: str | None = None,
        everything: bool = False,
        reason: str = "",
        dry_run: bool = True,
    ) -> erasing.Erasure:
        """Erase all memories that match every condition given; counts only, unless dry_run=False."""
        return erasing.erase_where(
            self._vault,
            self._principal,
            namespace=namespace,
            agent_id=agent_id,
            source_id=source_id,
            session_id=session_id,
            everything=everything,
            reason=reason,
            dry_run=dry_run,
        )

    # -- reading -------------------------------------------------------------------------------------

    @audited
    def recall(
        self,
        query_text: str,
        k: int = 10,
        budget: int | None = None,
        *,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
        now: Instant | None = None,
        promote: bool = True,
        namespaces: Sequence[str] | str | None = None,
        filters: Mapping[str, Any] | Filters | None = None,
        profile: str | Profile | dict[str, Any] | None = None,
        include_faded: bool | None = None,
        token_counter: str | TokenCounter | None = None,
        vector: npt.ArrayLike | None = None,
        keep: bool = False,
    ) -> Recall:
        """The k memories that answer a query best, within a token budget.

        as_of: what was true then. known_at: what was known then. now: the time decay is judged at.
        namespaces: the handle's own when left out; ["*"] for all it may read. filters: see `Filters`.
        promote: count the hits as used. keep: store the receipt, so that `replay(id)` finds it.
        vector: the query's vector, instead of the embedder's. Same state, arguments and `now`: same bytes.
        Raises InvalidInput, BudgetError, PermissionDenied, EmbedderMismatch.
        """
        started = monotonic()
        if keep:
            remember.demand(self._principal, "keep", "a receipt")
        index = self._vault.index(self.tenant)
        asked = query.prepare(
            self._vault,
            index,
            self._own,
            query_text,
            k=k,
            budget=budget,
            token_counter=token_counter,
            namespaces=namespaces,
            filters=filters,
            as_of=as_of,
            known_at=known_at,
            now=now,
            include_faded=include_faded,
            profile=self._profile(profile),
            vector=vector,
        )
        found = recall.recall(self._vault, self._principal, index, asked)
        if promote and found.hits and not self._principal.read_only:
            ordinals = [h.memory.ordinal for h in found.hits]
            # A recall may ask about a later `now`, but the use is today's.
            self._vault.note_access(self.tenant, ordinals, min(asked.now, self._vault.now()))
        if keep or self.config.log_recalls:
            keeping.keep_receipt(self._vault, self._principal, found.receipt)
        self._vault.latency(self.tenant).note(1000.0 * (monotonic() - started), self.config.l2_target_ms)
        return found

    def _profile(self, profile: str | Profile | dict[str, Any] | None) -> Profile:
        """The profile asked for, with the configured similarity threshold where it has none of its own."""
        chosen = profile_of(profile)
        threshold = self.config.l2_similarity_threshold
        if threshold is None or chosen.min_cosine > -1.0:
            return chosen
        return replace(chosen, min_cosine=threshold)

    def recall_as_context(self, query_text: str, budget: int = 2000, **options: Any) -> str:
        """`recall(...).context()`: labelled text to paste as data; "" when nothing was found."""
        options.setdefault("k", 100)
        return self.recall(query_text, budget=budget, **options).context()

    @audited
    def get(
        self, memory_id: str, *, as_of: Instant | None = None, known_at: Instant | None = None
    ) -> Memory | None:
        """A memory by id, as known at `known_at`; with `as_of`, only if it was valid then. None when absent."""
        return lookup.get(self._vault, self._principal, memory_id, self._when(as_of, known_at))

    @audited
    def search(
        self,
        *,
        namespaces: Sequence[str] | str | None = None,
        limit: int | None = 100,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
        include_closed: bool = False,
        include_superseded: bool = False,
        **filters: Any,
    ) -> list[Memory]:
        """Memories by filter alone, newest first. filters: see `Filters` (memory_types, tags, entities, ...)."""
        return lookup.search(
            self._vault,
            self._principal,
            query.patterns_of(namespaces, self._own),
            Filters.of(filters),
            self._when(as_of, known_at),
            limit=None if limit is None else query.whole(limit, "limit", 0, 10**9),
            include_closed=include_closed,
            include_superseded=include_superseded,
        )

    @audited
    def current_facts(
        self,
        *,
        namespaces: Sequence[str] | str | None = None,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
        **filters: Any,
    ) -> list[Memory]:
        """What is known and true now (or at `as_of`), oldest first."""
        return lookup.search(
            self._vault,
            self._principal,
            query.patterns_of(namespaces, self._own),
            Filters.of(filters),
            self._when(as_of, known_at),
            newest_first=False,
        )

    @audited
    def timeline(
        self,
        entity: str,
        *,
        namespaces: Sequence[str] | str | None = None,
        as_of: Instant | None = None,
        known_at: Instant | None = None,
    ) -> list[Memory]:
        """Everything known about an entity in the order it became true, superseded facts included."""
        patterns = query.patterns_of(namespaces, self._own)
        return lookup.timeline(self._vault, self._principal, patterns, entity, self._when(as_of, known_at))

    @audited
    def history(self, memory_id: str, *, known_at: Instant | None = None) -> list[Memory]:
        """Every version of a memory, oldest first, forgotten ones included."""
        return lookup.history(self._vault, self._principal, memory_id, self._when(None, known_at))

    @audited
    def why(self, memory_id: str) -> explaining.Why:
        """Who told the system this, when, from what, and what has happened to it since."""
        return explaining.why(self._vault, self._principal, memory_id)

    @audited
    def explain(self, query_text: str, memory_id: str, **options: Any) -> explaining.Explanation:
        """Why a memory is or is not in a recall's answer: layer by layer, addend by addend. Never promotes."""
        index = self._vault.index(self.tenant)
        asked = query.prepare(self._vault, index, self._own, query_text, **options)
        return explaining.explain(self._vault, self._principal, asked, memory_id)

    @audited
    def replay(self, receipt: Receipt | Mapping[str, Any] | str) -> replay.Replay:
        """Evaluate a receipt again on the state it was made on. A string is the id of a kept receipt."""
        return replay.replay(self._vault, self._principal, receipt)

    @audited
    def receipts(self) -> list[tuple[str, int]]:
        """(id, seq) of the kept receipts of this tenant, as far as this handle might have asked for them."""
        return replay.receipts(self._vault, self._principal)

    def _when(self, as_of: Instant | None, known_at: Instant | None) -> When:
        return When(
            self._vault.now(),
            query.optional_instant(as_of, "as_of"),
            query.optional_instant(known_at, "known_at"),
        )

    # -- keeping ---------------------------------------------------------------------------------------

    @audited
    def maintain(self, now: Instant | None = None, *, dry_run: bool = False) -> keeping.MaintainReport:
        """Write out what has faded, and archive beyond max_memories if the policy says so. Idempotent per day.

        With setting `ann` it also makes the graph of approximate search where it is missing or outgrown: minutes.
        """
        at = self._vault.now() if now is None else to_us(now, name="now")
        return keeping.maintain(self._vault, self._principal, self.config, at, dry_run=dry_run)

    @audited
    def gc(self, *, dry_run: bool = True, generations: bool = False) -> keeping.GcReport:
        """Archive what has faded (preview by default); `generations` also drops old embedding generations."""
        return keeping.gc(self._vault, self._principal, dry_run=dry_run, generations=generations)

    @audited
    def reembed(
        self, embedder: str | Embedder, *, progress: bool | Callable[[int], None] = False
    ) -> keeping.ReembedReport:
        """Make the vectors anew with another embedder while others keep reading and writing."""
        opened = open_embedder(embedder) if isinstance(embedder, str) else embedder
        if opened is None:
            raise InvalidInput("reembed needs an embedder")
        return keeping.reembed(self._vault, self._principal, opened, progress=progress)

    @audited
    def verify(self, *, expected_head: str | None = None) -> verify.VerifyReport:
        """Walk the hash chain and re-hash what is stored; names every change, gap and reordering."""
        return verify.verify(self._vault, self._principal, expected_head=expected_head)

    @audited
    def audit(self, *, after: int = 0, limit: int | None = None) -> list[dict[str, Any]]:
        """The log of this tenant: who did what, when."""
        return verify.audit_log(self._vault, self._principal, after, limit)

    @audited
    def health(self) -> dict[str, Any]:
        """Whether each part works: {"healthy": bool, "checks": [{"name", "ok", "detail"}]}."""
        return verify.health(self._vault, self._principal)

    @audited
    def doctor(self) -> dict[str, Any]:
        """`health`, the hash chain, and the store's server where it has one, each with what to do about it.

        {"healthy": bool, "checks": [{"name", "state": "ok" | "warn" | "fail", "ok", "detail", "remedy"}]}; ok is
        False for "fail" only. What concerns the server as a whole is told to the tenant's owner only.
        """
        return verify.doctor(self._vault, self._principal)

    @audited
    def stats(self) -> dict[str, Any]:
        """Counts of what this handle may see, sizes, and how often latency targets were missed."""
        return verify.stats(self._vault, self._principal, self.config)

    @audited
    def export_json(self, path: str | Path, *, vectors: bool = True) -> int:
        """Write what this handle may see as JSON lines; the owner's export is lossless. Returns the lines."""
        return transfer.export_json(self._vault, self._principal, path_of(path), vectors=vectors)

    @audited
    def import_json(
        self, path: str | Path, *, dry_run: bool = False, progress: bool | Callable[[int], None] = False
    ) -> transfer.ImportReport:
        """Read an export: into an empty tenant as it was, log included; else memory by memory. Owner only."""
        return transfer.import_json(
            self._vault, self._principal, self._namespace or "default", path_of(path), dry_run, progress
        )

    @audited
    def backup(self, path: str | Path) -> Path:
        """A consistent copy of the store's database, taken while others write."""
        remember.demand(self._principal, "backup", "the store")
        self._vault.flush_all()
        target = path_of(path)
        if os.path.lexists(target):
            raise StoreError(f"{target} exists already; give a path that does not")
        self._vault.store.backup(target)
        return target

    def __iter__(self) -> Iterator[Memory]:
        """Current memories of the handle's own namespaces, oldest first."""
        return iter(self.current_facts())


def _store_options(path: str | Path, config: Config) -> dict[str, Any]:
    """The settings that the store at this address understands."""
    if isinstance(path, str) and path.startswith((":memory:", "memory:")):
        return {}
    if not isinstance(path, str):
        path = str(path_of(path))
    if "://" not in path or path.startswith("sqlite:"):
        return {"timeout": config.busy_timeout, "synchronous": config.synchronous.upper()}
    return {"timeout": config.busy_timeout}


def _close_quietly(vault: Vault) -> None:
    # A handle dropped without close(): what waits is committed if the store still answers.
    try:
        vault.close()
    except StoreError:
        return
