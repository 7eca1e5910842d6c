"""Settings: from keyword arguments, then TWOFOLD_* variables, then a TOML file, then the defaults.

This is the one place of the package, besides the model's home folder, that reads the environment.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from twofold.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of a handle.

    l1_max_size entries and l1_ttl seconds: the scratchpad. l2_embedding_dimensions: checked against the
    embedder when given. l2_max_memories: live memories per tenant before `max_memories_policy` acts
    ("warn": counted in stats; "archive": `maintain` archives the weakest). l2_similarity_threshold: least
    cosine of a vector candidate, None for off. entities: "rules", or "spacy:PIPELINE" for the names that a
    trained pipeline finds in what is added, besides those of the rules. *_target_ms: misses are counted in
    `stats()`. vectors_in_ram: "codes" keeps a byte per dimension of every vector in RAM and reads the
    float32 values and token codes of those to be scored from the view's file; answers are the same. replica:
    address of a server that recalls may read from while it is at most max_lag events behind (-1: however many).
    follow: "poll" or "listen" keeps the view in RAM in step from a thread, at least every follow_interval seconds.
    ann: "hnswlib" lets a graph that `maintain` makes propose the candidates of vector search where a tenant has
    ann_rows vectors or more; what it proposes is scored exactly.
    """

    embedder: str | None = "auto"
    l1_max_size: int = 50
    l1_ttl: float = 300.0
    l2_embedding_dimensions: int | None = None
    l2_max_memories: int = 100_000
    max_memories_policy: str = "warn"
    l2_similarity_threshold: float | None = None
    l1_target_ms: float = 3.0
    l2_target_ms: float = 94.0
    auto_supersede: bool = True
    decay: str = "default"
    entities: str = "rules"
    token_counter: str = "estimate"
    query_cache: int = 1024
    log_recalls: bool = False
    busy_timeout: float = 30.0
    synchronous: str = "normal"
    embed_threads: int = 1
    vectors_in_ram: str = "rows"
    replica: str | None = None
    max_lag: int = 0
    follow: str = "off"
    follow_interval: float = 1.0
    ann: str = "off"
    ann_rows: int = 500_000

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        **given: Any,
    ) -> Config:
        """Merge a TOML file (`path`, or $TWOFOLD_CONFIG), TWOFOLD_* variables and keyword arguments.

        A table [l2] with max_memories is the same as l2_max_memories. InvalidInput names a bad setting.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        path = path or environ.get("TWOFOLD_CONFIG")
        if path:
            try:
                loaded = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            except OSError as error:
                raise InvalidInput(f"cannot read the settings file {path}: {error.strerror}") from None
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise InvalidInput(f"the settings file {path} is not TOML: {error}") from None
            for name, value in loaded.items():
                if isinstance(value, dict):
                    values |= {f"{name}_{k}": v for k, v in value.items()}
                else:
                    values[name] = value
        kinds = {f.name: f for f in fields(cls)}
        for name in kinds:
            text = environ.get(f"TWOFOLD_{name.upper()}")
            if text is not None:
                values[name] = _parse(name, text)
        values |= {k: v for k, v in given.items() if v is not None}
        unknown = sorted(set(values) - set(kinds))
        if unknown:
            raise InvalidInput(f"unknown setting {unknown[0]!r}; settings are {', '.join(kinds)}")
        return replace(cls(), **values)._checked()

    def _checked(self) -> Config:
        for name, low in (
            ("l1_max_size", 1),
            ("l2_max_memories", 1),
            ("query_cache", 0),
            ("embed_threads", 1),
            ("max_lag", -1),
            ("ann_rows", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidInput(f"setting {name} must be a whole number of at least {low}, not {value!r}")
        for name in ("l1_ttl", "l1_target_ms", "l2_target_ms", "busy_timeout", "follow_interval"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InvalidInput(f"setting {name} must be a positive number, not {value!r}")
        choices = {
            "max_memories_policy": ("warn", "archive"),
            "decay": ("default", "published", "off"),
            "synchronous": ("normal", "full"),
            "vectors_in_ram": ("rows", "codes"),
            "follow": ("off", "poll", "listen"),
            "ann": ("off", "hnswlib"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InvalidInput(
                    f"setting {name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
                )
        for name in ("entities", "replica"):
            if not isinstance(getattr(self, name), str | None):
                raise InvalidInput(f"setting {name} must be a string, not {getattr(self, name)!r}")
        threshold = self.l2_similarity_threshold
        if threshold is not None and (type(threshold) not in (int, float) or not 0.0 <= threshold <= 1.0):
            raise InvalidInput(f"setting l2_similarity_threshold must be in 0..1, not {threshold!r}")
        return self


_WHOLE = {
    "l1_max_size",
    "l2_embedding_dimensions",
    "l2_max_memories",
    "query_cache",
    "embed_threads",
    "max_lag",
    "ann_rows",
}
_REAL = {
    "l1_ttl",
    "l2_similarity_threshold",
    "l1_target_ms",
    "l2_target_ms",
    "busy_timeout",
    "follow_interval",
}
_FLAGS = {"auto_supersede", "log_recalls"}


def _parse(name: str, text: str) -> Any:
    variable = f"TWOFOLD_{name.upper()}"
    try:
        if name in _WHOLE:
            return int(text)
        if name in _REAL:
            return float(text)
    except ValueError:
        raise InvalidInput(f"{variable} must be a number, not {text!r}") from None
    if name in _FLAGS:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise InvalidInput(f"{variable} must be true or false, not {text!r}")
    if name == "embedder" and text.lower() == "none":
        return None
    return text


def server_key(environ: Mapping[str, str] | None = None) -> str | None:
    """The key a client presents when none is given: $TWOFOLD_KEY."""
    return (os.environ if environ is None else environ).get("TWOFOLD_KEY") or None
