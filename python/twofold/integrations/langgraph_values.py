"""Values of LangGraph's items: as JSON, against a filter's conditions; namespaces against paths. Pure functions."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from langgraph.store.base import MatchCondition

from twofold.errors import InvalidInput


def json_of(value: object) -> str:
    """A value as JSON, keys in their order. InvalidInput for what JSON has no form for."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise InvalidInput(f"an item's value must be a mapping with string keys, not {value!r}")
    try:
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"an item's value must be JSON: {error}") from None


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def at_key(value: Mapping[str, Any], key: str) -> Any:
    """The field that a filter names: a key of its own, or a path "user.name"; None when it is not there."""
    if "$" in key:
        raise InvalidInput(
            f"Invalid filter key {key!r}: '$' is for operators, written inside a field's condition"
        )
    if key in value:
        return value[key]
    found: Any = value
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def matches(have: Any, wanted: Any) -> bool:
    """Whether a field meets a condition: operators all together, mappings by the keys named, lists whole."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compare(have, name, operand) for name, operand in wanted.items())
        return isinstance(have, Mapping) and all(matches(have.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(have, list)
            and len(have) == len(wanted)
            and all(matches(h, w) for h, w in zip(have, wanted, strict=True))
        )
    return bool(have == wanted)


def _compare(have: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return matches(have, operand)
    if name == "$ne":
        return not matches(have, operand)
    if name not in ("$gt", "$gte", "$lt", "$lte"):
        raise InvalidInput(f"Unsupported operator {name!r}; operators are $eq, $ne, $gt, $gte, $lt, $lte")
    if not (_is_number(have) and _is_number(operand)) and not (
        isinstance(have, str) and isinstance(operand, str)
    ):
        return False  # another type, or not there: neither more nor less
    if name == "$gt":
        return bool(have > operand)
    if name == "$gte":
        return bool(have >= operand)
    return bool(have < operand) if name == "$lt" else bool(have <= operand)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def fits(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends with a path, in which "*" is any one label."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidInput(f"match type must be prefix or suffix, not {condition.match_type!r}")
    if len(path) > len(namespace):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
