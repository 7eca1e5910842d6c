"""config.json beside the store: Memwright's settings and the few that are Twofold's own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from twofold.errors import InvalidInput

FILE_NAME: Final = "config.json"
_BACKENDS: Final = ("sqlite", "chroma", "networkx")
RANKINGS: Final = ("twofold", "compat")
SUPERSESSIONS: Final = ("entity", "statement", "off")


@dataclass
class MemoryConfig:
    """Settings of one store.

    ranking: "twofold" (the library's recall) or "compat" (Memwright's formula, made deterministic).
    supersession: "entity" (a new memory ends the older ones of the same entity, category and namespace),
    "statement" (only what contradicts it ends; complementary facts stay) or "off".
    rank_by_use: whether how often a memory was recalled may change its rank, as in Memwright.
    embedder: what `twofold.embed.open_embedder` takes; None for the setting TWOFOLD_EMBEDDER or "auto".
    """

    default_token_budget: int = 16000
    min_results: int = 3
    backends: list[str] = field(default_factory=lambda: list(_BACKENDS))
    backend_configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    enable_mmr: bool = True
    mmr_lambda: float = 0.7
    fusion_mode: str = "rrf"
    confidence_gate: float = 0.0
    confidence_decay_rate: float = 0.001
    confidence_boost_rate: float = 0.03
    ranking: str = "twofold"
    supersession: str = "entity"
    rank_by_use: bool = False
    embedder: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryConfig:
        """Settings from a dict. An unknown key is kept as a backend's settings if its value is a dict."""
        names = {f.name for f in fields(cls)}
        known = {k: v for k, v in data.items() if k in names and k != "backend_configs"}
        others = {k: v for k, v in data.items() if k not in names and isinstance(v, dict)}
        config = cls(**known, backend_configs={**others, **data.get("backend_configs", {})})
        for name, value, allowed in (
            ("ranking", config.ranking, RANKINGS),
            ("supersession", config.supersession, SUPERSESSIONS),
            ("fusion_mode", config.fusion_mode, ("rrf", "graph_blend")),
        ):
            if value not in allowed:
                raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        return config

    def to_dict(self) -> dict[str, Any]:
        """As config.json holds it: Twofold's own settings only where they differ from their defaults."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "backend_configs":
                continue
            if f.name in _OURS and f.default is not MISSING and value == f.default:
                continue
            out[f.name] = value
        return {**out, **self.backend_configs}


_OURS: Final = ("ranking", "supersession", "rank_by_use", "embedder")


def load_config(path: Path) -> MemoryConfig:
    """The settings in a store's folder, or the defaults. A file that is no JSON object is set aside."""
    file = Path(path) / FILE_NAME
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return MemoryConfig()
    except (ValueError, UnicodeDecodeError):
        data = None
    if not isinstance(data, dict):
        file.replace(file.with_name(f"{FILE_NAME}.corrupt"))
        return MemoryConfig()
    return MemoryConfig.from_dict(data)


def save_config(path: Path, config: MemoryConfig) -> None:
    """Write config.json, in one step and only if it changes. Backend settings may hold secrets: mode 600."""
    text = json.dumps(config.to_dict(), indent=2)
    file = Path(path) / FILE_NAME
    if file.exists() and file.read_text(encoding="utf-8", errors="replace") == text:
        return
    replace_text(file, text)
    file.chmod(0o600)


def replace_text(file: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
