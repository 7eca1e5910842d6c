"""`AgentContext`: one agent's way to the memory, with its role, its namespace, its quota and its budget."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from twofold.compat.agent_memory.client import MemoryClient
from twofold.compat.agent_memory.core import AgentMemory
from twofold.compat.agent_memory.models import Memory, RetrievalResult, now_text
from twofold.compat.agent_memory.retrieval.orchestrator import context_of
from twofold.compat.agent_memory.retrieval.scorer import pack
from twofold.compat.agent_memory.roles import (
    FORGET,
    READ,
    ROLE_PERMISSIONS,
    WRITE,
    AgentRole,
    Chair,
    Visibility,
    WriteQuotaExceeded,
)
from twofold.compat.agent_memory.utils.tokens import estimate_tokens
from twofold.errors import BudgetError, InvalidInput, PermissionDenied, QuotaExceeded

__all__ = ["ROLE_PERMISSIONS", "AgentContext", "AgentRole", "Visibility", "WriteQuotaExceeded"]

DEFAULT_TOKENS: Final = 20_000


@dataclass
class AgentContext:
    """What an agent is handed: memory within one namespace, under a role, plus what its session shares.

    A context made from another (`as_agent`) may do what both allow, has its own quota, and spends from the
    budgets of all above it. The scratchpad is shared by a whole session; what is written, recalled, discovered
    and flagged below is counted above. role: EXECUTOR when left out, which then binds this context alone.
    memory_url: the server's address, in place of memory.
    """

    agent_id: str
    session_id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    namespace: str = "default"
    role: AgentRole = None  # type: ignore[assignment]
    memory: Any = None
    memory_url: str | None = None
    token_budget: int = DEFAULT_TOKENS
    token_budget_used: int = 0
    max_writes_per_agent: int = 100
    current_agent: str = ""
    agent_trail: list[str] = field(default_factory=list)
    parent_agent_id: str | None = None
    memories_written: list[str] = field(default_factory=list)
    memories_recalled: list[str] = field(default_factory=list)
    entities_discovered: list[str] = field(default_factory=list)
    _recall_cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    scratchpad: dict[str, Any] = field(default_factory=dict)
    visibility: Visibility = Visibility.PUBLIC
    compliance_tags: list[str] = field(default_factory=list)
    requires_human_review: bool = False
    read_only: bool = False
    created_at: str = field(default_factory=now_text)

    def __post_init__(self) -> None:
        chosen = self.role is not None
        self.role = _role(self.role if chosen else AgentRole.EXECUTOR)
        self.visibility = Visibility(self.visibility)
        self._parent: AgentContext | None = None
        self._above: tuple[Chair, ...] = ()
        # Of a role nobody chose, what is handed on is the write bar only.
        self._passed_on = (
            Chair(self.namespace, self.role, self.read_only) if chosen else Chair(None, None, self.read_only)
        )
        self._seat: Any = None
        self._owned = False

    def as_agent(
        self,
        agent_id: str,
        role: AgentRole | str = AgentRole.EXECUTOR,
        read_only: bool = False,
        token_budget: int | None = None,
    ) -> AgentContext:
        """A context for a sub-agent, which may do what `role` and this context both allow.

        token_budget: its own limit, within what is left here; left out, what is left here.
        """
        self._get_memory()
        child = AgentContext(
            agent_id=agent_id,
            session_id=self.session_id,
            namespace=self.namespace,
            role=_role(role),
            memory=self.memory,
            memory_url=self.memory_url,
            token_budget=self.token_budget if token_budget is None else token_budget,
            token_budget_used=self.token_budget_used if token_budget is None else 0,
            max_writes_per_agent=self.max_writes_per_agent,
            current_agent=agent_id,
            agent_trail=[*self.agent_trail, agent_id],
            parent_agent_id=self.agent_id,
            scratchpad=self.scratchpad,
            visibility=self.visibility,
            compliance_tags=list(self.compliance_tags),
            requires_human_review=self.requires_human_review,
            read_only=read_only or self.read_only,
        )
        child._parent = self
        child._above = (*self._above, self._passed_on)
        return child

    @classmethod
    def from_env(cls, agent_id: str, **overrides: Any) -> AgentContext:
        """A context from MEMWRIGHT_PATH or MEMWRIGHT_URL, _NAMESPACE, _TOKEN_BUDGET and _SESSION_ID.

        overrides: fields, which win over the environment.
        """
        env = os.environ
        found: dict[str, Any] = {
            "namespace": env.get("MEMWRIGHT_NAMESPACE"),
            "session_id": env.get("MEMWRIGHT_SESSION_ID"),
            "memory_url": env.get("MEMWRIGHT_URL"),
        }
        budget = env.get("MEMWRIGHT_TOKEN_BUDGET")
        if budget is not None:
            if not budget.isdecimal():
                raise InvalidInput(f"MEMWRIGHT_TOKEN_BUDGET must be a whole number, not {budget!r}")
            found["token_budget"] = int(budget)
        fields = {k: v for k, v in found.items() if v is not None}
        context = cls(
            **{
                "agent_id": agent_id,
                "current_agent": agent_id,
                "agent_trail": [agent_id],
                **fields,
                **overrides,
            }
        )
        path = env.get("MEMWRIGHT_PATH")
        if context.memory is None and context.memory_url is None and path:
            context.memory = AgentMemory(path)
            context._owned = True
        return context

    # -- the way to the memory ---------------------------------------------------------------------

    def _get_memory(self) -> Any:
        """What this context was given, or a client for its address."""
        if self.memory is None:
            if not self.memory_url:
                raise RuntimeError(
                    "this context has no memory: give memory= or memory_url=, or set MEMWRIGHT_PATH or "
                    "MEMWRIGHT_URL and use from_env()"
                )
            self.memory = MemoryClient(self.memory_url, agent_id=self.agent_id)
            self._owned = True
        return self.memory

    def _handle(self) -> Any:
        """The memory as this agent may use it: for a store, a handle that the data layer holds to it."""
        if self._seat is None:
            chairs = (*self._above, Chair(self.namespace, self.role, self.read_only))
            memory = self._get_memory()
            if isinstance(memory, AgentMemory):
                self._seat = memory.seat(self.agent_id, chairs, self.max_writes_per_agent)
            else:
                self._seat = Distant(memory, self.agent_id, chairs, self.max_writes_per_agent, self._tally())
        return self._seat

    def _tally(self) -> dict[str, int]:
        """Writes by agent of this session, where no log of the store's can be asked."""
        root = self
        while root._parent is not None:
            root = root._parent
        tally: dict[str, int] = root.__dict__.setdefault("_writes", {})
        return tally

    def _require(self, permission: str) -> None:
        chairs = (*self._above, Chair(self.namespace, self.role, self.read_only))
        if not all(permission in c.permissions for c in chairs):
            bar = ", read-only" if self.read_only else ""
            raise PermissionDenied(
                f"Agent {self.agent_id!r} (role={self.role.value}{bar}) lacks permission {permission!r}"
            )

    def _line(self) -> list[AgentContext]:
        """This context and those above it."""
        line = [self]
        while line[-1]._parent is not None:
            line.append(line[-1]._parent)
        return line

    def _note(self, name: str, values: list[str]) -> None:
        for context in self._line():
            held = getattr(context, name)
            held.extend(v for v in dict.fromkeys(values) if v not in held)

    @property
    def _left(self) -> int:
        return min(c.token_budget - c.token_budget_used for c in self._line())

    def _allowed(self, budget: int | None) -> int:
        if budget is not None and budget < 1:
            raise BudgetError(f"a budget of {budget} tokens holds nothing; give 1 or more, or leave it out")
        left = self._left
        if left < 1:
            raise BudgetError(
                f"agent {self.agent_id!r} has used up its token budget of {self.token_budget}; "
                "raise token_budget to recall more"
            )
        return left if budget is None else min(budget, left)

    def _spend(self, tokens: int) -> None:
        for context in self._line():
            context.token_budget_used += tokens

    # -- memory ------------------------------------------------------------------------------------

    def add_memory(
        self,
        content: str,
        tags: list[str] | None = None,
        category: str = "general",
        entity: str | None = None,
        event_date: str | None = None,
        confidence: float = 1.0,
        visibility: Visibility | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Store a memory in this context's namespace, with who wrote it, in which session, for whom.

        Raises PermissionDenied (a PermissionError), WriteQuotaExceeded (a RuntimeError), InvalidInput.
        """
        self._require(WRITE)
        width = Visibility(visibility or self.visibility)
        told = {
            **(metadata or {}),
            "_agent_id": self.agent_id,
            "_session_id": self.session_id,
            "_namespace": self.namespace,
            "_visibility": width.value,
            "_role": self.role.value,
            "_parent_agent_id": self.parent_agent_id,
        }
        handle = self._handle()
        options: dict[str, Any] = {}
        if isinstance(handle, AgentMemory):
            narrow = width in (Visibility.PRIVATE, Visibility.SYSTEM)
            options["visibility"] = "private" if narrow else width.value
        with _Quota(self):
            memory: Memory = handle.add(
                content, tags, category, entity, self.namespace, event_date, confidence, told, **options
            )
        self._note("memories_written", [memory.id])
        if entity:
            self._note("entities_discovered", [entity])
        return memory

    def recall(
        self, query: str, budget: int | None = None, use_cache: bool = True, **options: Any
    ) -> list[RetrievalResult]:
        """The memories that answer a query best, within `budget` and what is left of the token budget.

        What is returned is spent, from the cache too: it fills the same prompt. The cache is this context's own
        and holds until the store changes. options: those of `AgentMemory.recall` (namespace, as_of, k, ...).
        """
        self._require(READ)
        allowed = self._allowed(budget)
        handle = self._handle()
        cached = use_cache and not options and isinstance(handle, AgentMemory)
        key = (query, budget)
        found = None
        if cached:
            position, held = self._recall_cache.get(key, (None, []))
            if position == handle.position:
                found = pack(held, allowed)
        if found is None:
            options.setdefault("namespace", self.namespace)
            found = handle.recall(query, allowed, **options)
            if cached:
                self._recall_cache[key] = (handle.position, list(found))
        self._spend(sum(estimate_tokens(r.memory.content) for r in found))
        self._note("memories_recalled", [r.memory.id for r in found])
        return found

    def recall_as_context(self, query: str, budget: int | None = None) -> str:
        """`recall` as lines to paste, labels within the budget, and spent; "" when nothing is found."""
        self._require(READ)
        allowed = self._allowed(budget)
        said: str = self._handle().recall_as_context(query, allowed, self.namespace)
        self._spend(estimate_tokens(said))
        return said

    def search(self, **kwargs: Any) -> list[Memory]:
        """Memories by filter. namespace: another than this context's only where the role reads across."""
        self._require(READ)
        if kwargs.get("namespace") is None:
            kwargs["namespace"] = self.namespace
        found: list[Memory] = self._handle().search(**kwargs)
        return found

    def timeline(self, entity: str) -> list[Memory]:
        """Everything about an entity in this namespace, in order."""
        self._require(READ)
        found: list[Memory] = self._handle().timeline(entity, self.namespace)
        return found

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id, if this agent may see it."""
        self._require(READ)
        found: Memory | None = self._handle().get(memory_id)
        return found

    def forget(self, memory_id: str) -> bool:
        """Archive a memory of this namespace; False when there is none. Needs the permission "forget"."""
        self._require(FORGET)
        with _Quota(self):
            return bool(self._handle().forget(memory_id))

    # -- what the session shares -------------------------------------------------------------------

    def set_scratchpad(self, key: str, value: Any) -> None:
        """Leave a value for the other agents of the session."""
        self.scratchpad[key] = value

    def get_scratchpad(self, key: str, default: Any = None) -> Any:
        """A value some agent of the session left."""
        return self.scratchpad.get(key, default)

    def flag_for_review(self, reason: str) -> None:
        """Ask for a human's review, of this context and those above it."""
        for context in self._line():
            context.requires_human_review = True
        self.add_compliance_tag(f"review:{reason}")

    def add_compliance_tag(self, tag: str) -> None:
        """Mark this context and those above it."""
        self._note("compliance_tags", [tag])

    def health(self) -> dict[str, Any]:
        """{healthy, checks} of the memory."""
        found: dict[str, Any] = self._get_memory().health()
        return found

    def session_summary(self) -> dict[str, Any]:
        """What this context, and those made from it, did."""
        return {
            "session_id": self.session_id,
            "agent_id": self.agent_id,
            "namespace": self.namespace,
            "agent_trail": list(self.agent_trail),
            "memories_written": len(self.memories_written),
            "memories_recalled": len(self.memories_recalled),
            "entities_discovered": list(self.entities_discovered),
            "token_budget_total": self.token_budget,
            "token_budget_used": self.token_budget_used,
            "token_budget_remaining": self.token_budget - self.token_budget_used,
            "requires_human_review": self.requires_human_review,
            "compliance_tags": list(self.compliance_tags),
            "scratchpad_keys": list(self.scratchpad),
        }

    def close(self) -> None:
        """Close the memory if this context opened it."""
        if self._owned and self.memory is not None:
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _role(role: AgentRole | str) -> AgentRole:
    try:
        return AgentRole(role)
    except ValueError:
        names = ", ".join(r.value for r in AgentRole)
        raise InvalidInput(f"unknown role {role!r}; roles are {names}") from None


class _Quota:
    """Turns the store's QuotaExceeded into the error Memwright raises."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, QuotaExceeded) and not isinstance(error, WriteQuotaExceeded):
            context = self._context
            raise WriteQuotaExceeded(
                f"Agent {context.agent_id!r} exceeded write quota ({context.max_writes_per_agent})"
            ) from error


class Distant:
    """A client, held to an agent's chairs on this side. What keys may do is the server's to enforce."""

    def __init__(
        self, client: Any, agent_id: str, chairs: tuple[Chair, ...], quota: int, tally: dict[str, int]
    ) -> None:
        self._client = client
        self._agent_id = agent_id
        self._chairs = chairs
        self._quota = quota
        self._writes = tally

    def _reads(self, namespace: str) -> str:
        if not all(c.reads(namespace) for c in self._chairs):
            raise PermissionDenied(f"Agent {self._agent_id!r} may not read namespace {namespace!r}")
        return namespace

    def _count(self) -> None:
        used = self._writes.get(self._agent_id, 0)
        if used >= self._quota:
            raise QuotaExceeded(f"agent {self._agent_id!r} has used its quota of {self._quota} writes")
        self._writes[self._agent_id] = used + 1

    def _visible(self, memory: Memory) -> bool:
        width = memory.metadata.get("_visibility", "public")
        if not all(c.reads(memory.namespace) for c in self._chairs):
            return False
        if width in ("private", "system"):
            return bool(memory.metadata.get("_agent_id") == self._agent_id)
        return width != "team" or all(c.covers(memory.namespace) for c in self._chairs)

    def add(self, content: str, *args: Any) -> Memory:
        """As the client's, counted. The author told is this agent, not the client's."""
        *rest, told = args
        self._count()
        client_id, self._client.agent_id = self._client.agent_id, self._agent_id
        try:
            stored: Memory = self._client.add(content, *rest, told)
        finally:
            self._client.agent_id = client_id
        return stored

    def recall(self, query: str, budget: int, namespace: str) -> list[RetrievalResult]:
        """As the client's, what this agent may not see left out."""
        found = self._client.recall(query, budget=budget, namespace=self._reads(namespace))
        return [r for r in found if self._visible(r.memory)]

    def recall_as_context(self, query: str, budget: int, namespace: str) -> str:
        """Lines of `recall`."""
        return context_of(self.recall(query, budget, namespace), budget)

    def search(self, namespace: str, **filters: Any) -> list[Memory]:
        """As the client's, what this agent may not see left out."""
        found = self._client.search(namespace=self._reads(namespace), **filters)
        return [m for m in found if self._visible(m)]

    def timeline(self, entity: str, namespace: str) -> list[Memory]:
        """As the client's, what this agent may not see left out."""
        found = self._client.timeline(entity, namespace=self._reads(namespace))
        return [m for m in found if self._visible(m)]

    def get(self, memory_id: str) -> Memory | None:
        """As the client's, if this agent may see it."""
        found: Memory | None = self._client.get(memory_id)
        return found if found is not None and self._visible(found) else None

    def forget(self, memory_id: str) -> bool:
        """As the client's, within the namespace; counted."""
        found = self.get(memory_id)
        if found is None or not all(c.covers(found.namespace) for c in self._chairs):
            return False
        self._count()
        return bool(self._client.forget(memory_id))
