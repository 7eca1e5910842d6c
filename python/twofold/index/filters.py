"""What a caller may filter by, and how a filter becomes a mask over rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twofold.clock import to_us
from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from twofold.index.tenant import TenantIndex

Mask = npt.NDArray[np.bool_]


def _names(value: Any, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Sequence) or not all(isinstance(v, str) and v for v in value):
        raise InvalidInput(f"filter {what} must be a string or a list of strings, not {value!r}")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that rows must meet before anything is ranked. All of them apply together.

    memory_types, speakers, sessions, agents, keys: any of these; tags, entities: all of these;
    metadata: JSON equality per key; *_after inclusive and *_before exclusive, in microseconds.
    """

    memory_types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    metadata: str = "{}"
    min_confidence: float = 0.0
    pinned: bool | None = None
    event_after: int | None = None
    event_before: int | None = None
    recorded_after: int | None = None
    recorded_before: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any] | Filters | None) -> Filters:
        """Filters from a mapping as users write it. InvalidInput names an unknown field."""
        if values is None:
            return NONE
        if isinstance(values, Filters):
            return values
        aliases = {
            "memory_type": "memory_types",
            "type": "memory_types",
            "tag": "tags",
            "entity": "entities",
            "speaker": "speakers",
            "session_id": "sessions",
            "session": "sessions",
            "agent_id": "agents",
            "key": "keys",
            "confidence": "min_confidence",
        }
        known = {f.name for f in fields(cls)}
        out: dict[str, Any] = {}
        for name, value in values.items():
            field = aliases.get(name, name)
            if field not in known:
                raise InvalidInput(f"unknown filter {name!r}; filters are {', '.join(sorted(known))}")
            if value is None:
                continue
            if field == "metadata":
                if not isinstance(value, Mapping):
                    raise InvalidInput(f"filter metadata must be a mapping, not {value!r}")
                try:
                    out[field] = json.dumps(dict(value), sort_keys=True, ensure_ascii=False)
                except (TypeError, ValueError) as error:
                    raise InvalidInput(f"filter metadata is not JSON: {error}") from None
            elif field == "min_confidence":
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                    raise InvalidInput(f"filter min_confidence must be in 0..1, not {value!r}")
                out[field] = float(value)
            elif field == "pinned":
                if not isinstance(value, bool):
                    raise InvalidInput(f"filter pinned must be true or false, not {value!r}")
                out[field] = value
            elif field.endswith(("_after", "_before")):
                out[field] = value if isinstance(value, int) else to_us(value, name=field)
            else:
                out[field] = _names(value, name)
        return cls(**out)

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from the defaults, as JSON values."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                out[f.name] = list(value) if isinstance(value, tuple) else value
        return out

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Filters:
        fixed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fixed)

    def mask(self, index: TenantIndex, rows: int) -> Mask | None:
        """Rows that pass, bool (rows,); None when nothing is asked."""
        if self == NONE:
            return None
        mask = np.ones(rows, np.bool_)
        for names, codes, column in (
            (self.memory_types, index.types, index.type),
            (self.speakers, index.speakers, index.speaker),
            (self.sessions, index.session_names, index.session_name),
            (self.agents, index.agents, index.agent),
            (self.keys, index.keys, index.key),
        ):
            if names:
                wanted = np.array([codes.get(n) for n in names], np.int32)
                mask &= np.isin(column.view(rows), wanted[wanted >= 0])
        for tag in self.tags:
            mask &= _members(index.tag_rows(tag), rows)
        for entity in self.entities:
            mask &= _members(index.entity_rows(entity), rows)
        if self.min_confidence > 0:
            mask &= index.confidence.view(rows) >= self.min_confidence
        if self.pinned is not None:
            mask &= index.pinned.view(rows) == self.pinned
        for low, high, column in (
            (self.event_after, self.event_before, index.event_at),
            (self.recorded_after, self.recorded_before, index.recorded),
        ):
            if low is not None:
                mask &= column.view(rows) >= low
            if high is not None:
                mask &= column.view(rows) < high
        if self.metadata != "{}":
            wanted_items = json.loads(self.metadata)
            for i in np.flatnonzero(mask):
                have = index.metadata_of(int(i))
                if any(k not in have or have[k] != v for k, v in wanted_items.items()):
                    mask[i] = False
        return mask


def _members(ordinals: npt.NDArray[np.int64], rows: int) -> Mask:
    mask = np.zeros(rows, np.bool_)
    mask[ordinals[ordinals < rows]] = True
    return mask


NONE = Filters()
