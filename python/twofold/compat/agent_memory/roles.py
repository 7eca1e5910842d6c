"""Who may do what in Memwright's roles, as one table, and the principal that holds the data layer to it.

The table is the vendor's later matrix; Twofold's own (access.py) has more actions and other write types.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from twofold.access import Principal, Reach, any_match
from twofold.errors import QuotaExceeded
from twofold.model import Role


class Visibility(str, Enum):  # noqa: UP042 (str() of a member must stay "Visibility.PUBLIC")
    """Who may see a memory: public, its namespace's members (team), its author only (private, system)."""

    PUBLIC = "public"
    TEAM = "team"
    PRIVATE = "private"
    SYSTEM = "system"


class AgentRole(str, Enum):  # noqa: UP042
    """What an agent is for."""

    ORCHESTRATOR = "orchestrator"
    PLANNER = "planner"
    EXECUTOR = "executor"
    RESEARCHER = "researcher"
    REVIEWER = "reviewer"
    MONITOR = "monitor"


READ, WRITE, FORGET = "read", "write", "forget"
ROLE_PERMISSIONS: Final[dict[AgentRole, frozenset[str]]] = {
    AgentRole.ORCHESTRATOR: frozenset({READ, WRITE, FORGET}),
    AgentRole.PLANNER: frozenset({READ, WRITE}),
    AgentRole.EXECUTOR: frozenset({READ, WRITE}),
    AgentRole.RESEARCHER: frozenset({READ, WRITE}),
    AgentRole.REVIEWER: frozenset({READ}),
    AgentRole.MONITOR: frozenset({READ}),
}
READS_ACROSS: Final = frozenset({AgentRole.ORCHESTRATOR, AgentRole.REVIEWER})
_NEEDS: Final = {
    "read": READ,
    "write": WRITE,
    "supersede": WRITE,
    "link": WRITE,
    "feedback": WRITE,
    "forget": FORGET,
    "restore": FORGET,
    "health": READ,
    "export": READ,
}
ALL: Final = frozenset({READ, WRITE, FORGET})


class WriteQuotaExceeded(QuotaExceeded, RuntimeError):
    """The agent has used up its writes. A RuntimeError too, as Memwright raises."""


@dataclass(frozen=True, slots=True)
class Chair:
    """One step of narrowing: a namespace (None: any), a role in it (None: the owner's rights), a write bar."""

    namespace: str | None
    role: AgentRole | None = None
    read_only: bool = False

    @property
    def permissions(self) -> frozenset[str]:
        """What may be done from here."""
        given = ALL if self.role is None else ROLE_PERMISSIONS[self.role]
        return given & {READ} if self.read_only else given

    def reads(self, namespace: str) -> bool:
        """Whether memories of a namespace may be read from here."""
        return self.covers(namespace) or self.role in READS_ACROSS

    def covers(self, namespace: str) -> bool:
        """Whether this is a seat in the namespace."""
        return self.namespace is None or self.namespace == namespace


@dataclass(frozen=True, slots=True)
class Seated(Principal):
    """An agent that may do what every chair on the way to its own allows."""

    chairs: tuple[Chair, ...] = ()

    @property
    def role(self) -> Role | None:
        """The last chair's role; None for the owner's rights."""
        role = self.chairs[-1].role
        return None if role is None else Role(role.value)

    @property
    def is_owner(self) -> bool:
        """Never: this handle is bound to a namespace."""
        return False

    @property
    def read_only(self) -> bool:
        """Whether no chair lets it write."""
        return not self.may("write")

    @property
    def is_narrowed(self) -> bool:
        """Always: to one namespace."""
        return True

    @property
    def default_type(self) -> str:
        """Memwright's default category."""
        return "general"

    @property
    def permissions(self) -> frozenset[str]:
        """What every chair allows."""
        return frozenset.intersection(*(c.permissions for c in self.chairs))

    def may(self, action: str) -> bool:
        """Whether the action's permission is among this seat's; what is not in the table is the owner's."""
        return _NEEDS.get(action) in self.permissions

    def reads(self, namespace: str) -> bool:
        """Whether every chair reads the namespace."""
        return all(c.reads(namespace) for c in self.chairs)

    def writes(self, namespace: str, memory_type: str | None) -> bool:  # noqa: ARG002 (any category)
        """Whether it may write, and the namespace is its own. Any category may be written."""
        return self.may("write") and all(c.covers(namespace) for c in self.chairs)

    def reach(self, patterns: tuple[str, ...]) -> Reach:
        """What a read of these namespaces may see."""
        return SeatedReach(self, patterns)


@dataclass(frozen=True, slots=True)
class SeatedReach(Reach):
    """Rows visible from a seat: other namespaces show what is public, a private row only to its author."""

    principal: Seated

    def namespace(self, name: str) -> bool:
        """Whether rows of the namespace are in the read."""
        return any_match(self.patterns, name) and self.principal.reads(name)

    def team(self, name: str) -> bool:
        """Whether team rows of the namespace are visible."""
        return all(c.covers(name) for c in self.principal.chairs)

    @property
    def sees_private(self) -> bool:
        """Whether other agents' private rows are visible: from the owner's own chair only."""
        return all(c.role is None for c in self.principal.chairs)
