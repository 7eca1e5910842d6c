"""Which backend fills which role. Memwright's names are all known; the local ones are served by Twofold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twofold.errors import InvalidInput

DOCUMENT, VECTOR, GRAPH = "document", "vector", "graph"
_SERVED: Final = "twofold.compat.agent_memory.store.adapters"
_ALL: Final = frozenset({DOCUMENT, VECTOR, GRAPH})


class BackendConflictError(Exception):
    """Two backends claim one role."""


def _entry(cls: str | None, roles: frozenset[str], style: str) -> dict[str, Any]:
    return {"module": None if cls is None else _SERVED, "class": cls, "roles": roles, "init_style": style}


BACKEND_REGISTRY: Final[dict[str, dict[str, Any]]] = {
    "sqlite": _entry("Documents", frozenset({DOCUMENT}), "path"),
    "chroma": _entry("Vectors", frozenset({VECTOR}), "path"),
    "networkx": _entry("Relations", frozenset({GRAPH}), "path"),
    **{name: _entry(None, _ALL, "config") for name in ("arangodb", "postgres", "gcp", "azure", "aws")},
}
DEFAULT_BACKENDS: Final = ["sqlite", "chroma", "networkx"]


def resolve_backends(backends: Sequence[str] | None = None) -> dict[str, str]:
    """Role -> backend. Raises ValueError for an unknown name, BackendConflictError for a role claimed twice."""
    filled: dict[str, str] = {}
    for name in DEFAULT_BACKENDS if backends is None else backends:
        if name not in BACKEND_REGISTRY:
            raise ValueError(f"unknown backend {name!r}; known are {', '.join(sorted(BACKEND_REGISTRY))}")
        for role in sorted(BACKEND_REGISTRY[name]["roles"]):
            if role in filled:
                raise BackendConflictError(
                    f"role {role!r} is claimed by both {filled[role]!r} and {name!r}; leave one of them out"
                )
            filled[role] = name
    return filled


def check_served(backends: Sequence[str]) -> None:
    """InvalidInput for a backend that needs a server: Twofold has its own way to those."""
    resolve_backends(backends)
    for name in backends:
        if BACKEND_REGISTRY[name]["module"] is None:
            raise InvalidInput(
                f"backend {name!r} is not served by this drop-in; for PostgreSQL use "
                "twofold.AgentMemory('postgresql://...'), else leave `backends` out"
            )


def instantiate_backend(
    backend_name: str,
    store_path: Any,
    backend_config: dict[str, Any] | None = None,  # noqa: ARG001
) -> Any:
    """Open a store's adapter by the name of the backend it stands for; `backend_config` is not needed."""
    from twofold.compat.agent_memory.core import AgentMemory

    check_served([backend_name])
    mem = AgentMemory(store_path)
    return {"sqlite": mem._store, "chroma": mem._vector_store, "networkx": mem._graph}[backend_name]
