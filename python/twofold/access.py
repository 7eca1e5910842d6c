"""Who may do what: roles, namespace patterns, grants. Pure rules; every refusal is raised by the callers.

A handle carries a chain of grants. What it may do is what every grant of the chain allows, so a handle made
from a handle can only do less. The owner's handle has an empty chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twofold.errors import InvalidInput
from twofold.model import Role

MAX_NAME: Final = 200


def check_name(value: object, what: str) -> str:
    """A tenant, namespace or agent name: non-empty, printable, at most 200 characters, no wildcard."""
    if not isinstance(value, str) or not value or value != value.strip():
        raise InvalidInput(f"{what} must be a non-empty string without outer spaces, not {value!r}")
    if len(value) > MAX_NAME:
        raise InvalidInput(f"{what} is {len(value)} characters long; at most {MAX_NAME} are allowed")
    if not value.isprintable() or "*" in value:
        raise InvalidInput(f"{what} {value!r} has control characters or '*'")
    return value


def check_pattern(value: object) -> str:
    """A namespace pattern: an exact name, a prefix 'build/*', or '*' for all."""
    if value == "*":
        return "*"
    if isinstance(value, str) and value.endswith("/*"):
        check_name(value[:-2], "namespace pattern")
        return value
    return check_name(value, "namespace")


def matches(pattern: str, namespace: str) -> bool:
    """Exact name, or 'build/*' for every name that starts with 'build/', or '*'."""
    if pattern == "*" or pattern == namespace:
        return True
    return pattern.endswith("/*") and namespace.startswith(pattern[:-1])


def any_match(patterns: tuple[str, ...], namespace: str) -> bool:
    """Whether one of the patterns covers the namespace."""
    return any(matches(p, namespace) for p in patterns)


SHARED: Final = ("facts/*",)  # readable by every role
_HIDDEN: Final = ("private", "private/*", "audit", "audit/*")


@dataclass(frozen=True, slots=True)
class RoleRule:
    """What one role may do, before a grant narrows it to namespaces.

    write_types: None for any type; write_only: patterns that writes are limited to (None: no limit);
    fact_types may be written in SHARED namespaces in addition to the granted ones.
    """

    actions: frozenset[str]
    hidden: tuple[str, ...] = ()
    sees_private: bool = False
    read_types: frozenset[str] | None = None
    write_types: frozenset[str] | None = None
    write_only: tuple[str, ...] | None = None
    default_type: str = "fact"
    write_quota: int | None = None
    granted_only: bool = False  # reads only granted namespaces and SHARED


_READ: Final = frozenset({"read"})
_FACTS: Final = frozenset({"fact", "preference"})

ROLE_TABLE: Final[dict[Role, RoleRule]] = {
    Role.ORCHESTRATOR: RoleRule(
        actions=frozenset(
            {"read", "write", "supersede", "forget", "restore", "link", "flag", "grant", "feedback", "health"}
            | {"export", "maintain", "verify", "audit"}
        ),
        sees_private=True,
    ),
    Role.PLANNER: RoleRule(
        actions=_READ | {"write", "supersede", "link", "feedback"},
        hidden=_HIDDEN,
        write_types=_FACTS | {"decision", "plan", "summary", "snapshot"},
        default_type="fact",
    ),
    Role.EXECUTOR: RoleRule(
        actions=_READ | {"write", "supersede", "link", "feedback"},
        hidden=_HIDDEN,
        write_types=_FACTS | {"result", "log", "observation", "event", "interaction", "summary", "snapshot"},
        granted_only=True,
        write_quota=10_000,
    ),
    Role.RESEARCHER: RoleRule(
        actions=_READ | {"write", "supersede", "link", "feedback"},
        hidden=_HIDDEN,
        write_types=_FACTS | {"knowledge", "summary", "snapshot"},
    ),
    Role.REVIEWER: RoleRule(
        actions=_READ | {"write", "supersede", "flag", "feedback"},
        hidden=_HIDDEN,
        read_types=frozenset(
            {"fact", "preference", "decision", "plan", "result", "log", "observation", "event", "interaction"}
            | {"review", "correction", "summary"}
        ),
        write_types=frozenset({"review", "correction"}),
        default_type="review",
    ),
    Role.MONITOR: RoleRule(
        actions=_READ | {"write", "supersede", "feedback", "health", "verify", "audit"},
        sees_private=True,
        write_types=frozenset({"observation"}),
        write_only=SHARED,
        default_type="observation",
    ),
}

OWNER_ACTIONS: Final = frozenset({"erase", "gc", "import", "reembed", "backup", "admin"})


@dataclass(frozen=True, slots=True)
class Grant:
    """One step of narrowing: a role, the namespaces it is for (None: as far as the role reaches), a write bar."""

    role: Role | None
    namespaces: tuple[str, ...] | None
    read_only: bool = False

    def may(self, action: str) -> bool:
        if self.read_only and action not in {"read", "health", "verify", "audit", "export"}:
            return False
        if self.role is None:
            return True
        return action in ROLE_TABLE[self.role].actions

    def reads(self, namespace: str) -> bool:
        if self.role is not None:
            rule = ROLE_TABLE[self.role]
            if any_match(rule.hidden, namespace):
                return False
            if self.namespaces is None:
                return not rule.granted_only or any_match(SHARED, namespace)
        if self.namespaces is None:
            return True
        return any_match(self.namespaces, namespace) or any_match(SHARED, namespace)

    def is_team(self, namespace: str) -> bool:
        return self.namespaces is None or any_match(self.namespaces, namespace)

    def writes(self, namespace: str, memory_type: str | None) -> bool:
        if not self.may("write") or not self.reads(namespace):
            return False
        if self.role is None:
            return True
        rule = ROLE_TABLE[self.role]
        if rule.write_only is not None and not any_match(rule.write_only, namespace):
            return False
        if memory_type is None or rule.write_types is None:
            return True
        if memory_type not in rule.write_types:
            return False
        if rule.granted_only and any_match(SHARED, namespace):
            granted = self.namespaces is not None and any_match(self.namespaces, namespace)
            return granted or memory_type in _FACTS
        return True


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking: a tenant, an agent, and the chain of grants that led to this handle."""

    tenant: str
    agent_id: str
    grants: tuple[Grant, ...] = ()
    write_quota: int | None = None

    @property
    def role(self) -> Role | None:
        """The last role in the chain; None for the owner."""
        for grant in reversed(self.grants):
            if grant.role is not None:
                return grant.role
        return None

    @property
    def role_name(self) -> str:
        role = self.role
        return "owner" if role is None else role.value

    @property
    def is_owner(self) -> bool:
        return not self.grants

    @property
    def read_only(self) -> bool:
        return any(g.read_only for g in self.grants)

    @property
    def is_narrowed(self) -> bool:
        """Whether a grant limits this handle to some namespaces."""
        return any(g.namespaces is not None for g in self.grants)

    @property
    def default_type(self) -> str:
        role = self.role
        return "fact" if role is None else ROLE_TABLE[role].default_type

    def may(self, action: str) -> bool:
        """Whether every grant allows the action (OWNER_ACTIONS: only the owner's handle)."""
        if action in OWNER_ACTIONS:
            return self.is_owner
        if action == "keep":
            return not self.read_only
        return all(g.may(action) for g in self.grants)

    def reads(self, namespace: str) -> bool:
        return all(g.reads(namespace) for g in self.grants)

    def writes(self, namespace: str, memory_type: str | None) -> bool:
        return all(g.writes(namespace, memory_type) for g in self.grants)

    def reads_within(self, other: Principal) -> bool:
        """Whether `other` may certainly read all that this handle may: its grants are among this one's."""
        mine = {(g.role, g.namespaces) for g in self.grants}
        return self.tenant == other.tenant and all(
            (g.role, g.namespaces) in mine for g in other.grants if g != Grant(None, None, g.read_only)
        )

    def reach(self, patterns: tuple[str, ...]) -> Reach:
        """What a read of these namespace patterns may see."""
        return Reach(self, patterns)


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows one read may see: namespaces that match `patterns` and every grant, rows visible to the agent."""

    principal: Principal
    patterns: tuple[str, ...]

    def namespace(self, name: str) -> bool:
        return any_match(self.patterns, name) and self.principal.reads(name)

    def team(self, name: str) -> bool:
        """Whether rows of visibility `team` in this namespace are visible."""
        return all(g.is_team(name) for g in self.principal.grants)

    def type(self, memory_type: str) -> bool:
        for grant in self.principal.grants:
            if grant.role is not None:
                types = ROLE_TABLE[grant.role].read_types
                if types is not None and memory_type not in types:
                    return False
        return True

    @property
    def sees_private(self) -> bool:
        """Whether other agents' private rows are visible."""
        return all(g.role is None or ROLE_TABLE[g.role].sees_private for g in self.principal.grants)

    def sees(self, namespace: str, memory_type: str, visibility: str, agent_id: str) -> bool:
        """The same rule for a single row."""
        if not self.namespace(namespace) or not self.type(memory_type):
            return False
        if visibility == "team":
            return self.team(namespace) or agent_id == self.principal.agent_id
        if visibility == "private":
            return self.sees_private or agent_id == self.principal.agent_id
        return True


def role_of(value: Role | str) -> Role:
    """A Role from its name; InvalidInput names the roles there are."""
    try:
        return Role(str(value).lower())
    except ValueError:
        raise InvalidInput(f"unknown role {value!r}; roles are {', '.join(r.value for r in Role)}") from None
