"""Drop-ins for other libraries. Each module is imported by its own name; this one only lends them out."""

from __future__ import annotations

import importlib
import sys
from typing import Final

_ALIAS: Final = "agent_memory"
_HOME: Final = "twofold.compat.agent_memory"
_MODULES: Final = (
    "client context core models extraction extraction.extractor extraction.rule_based graph graph.extractor "
    "graph.networkx_graph retrieval retrieval.orchestrator retrieval.scorer retrieval.tag_matcher store "
    "store.base store.connection store.embeddings store.registry temporal temporal.manager utils utils.config "
    "utils.tokens"
).split()


def install_alias() -> None:
    """Let `import agent_memory`, and its modules, find the drop-in for Memwright.

    Nothing is installed: it holds for this process. Raises ImportError if another agent_memory is imported
    already.
    """
    there = sys.modules.get(_ALIAS)
    if there is not None and there.__name__ != _HOME:
        raise ImportError(
            f"{_ALIAS} is imported from {there.__file__} already; call install_alias() before that"
        )
    sys.modules[_ALIAS] = importlib.import_module(_HOME)
    for name in _MODULES:
        sys.modules[f"{_ALIAS}.{name}"] = importlib.import_module(f"{_HOME}.{name}")


def remove_alias() -> None:
    """Undo `install_alias`."""
    for name in [n for n in sys.modules if n == _ALIAS or n.startswith(f"{_ALIAS}.")]:
        if sys.modules[name].__name__.startswith(_HOME):
            del sys.modules[name]
