"""JSON Schema in the small: schemas and values from type hints, and a check of requests against a schema.

One description serves the validator, the OpenAPI document and the client. Only the keywords used here are known.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from twofold.clock import iso, to_us
from twofold.errors import InvalidInput

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dt.datetime: {"type": "string", "format": "date-time"},
    Any: {},
}


def object_of(properties: Mapping[str, Schema], required: tuple[str, ...] = (), **more: Any) -> Schema:
    """A closed object."""
    out: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}
    if required:
        out["required"] = list(required)
    return out


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


# -- from type hints ----------------------------------------------------------------------------------


def schema_of(hint: Any, components: dict[str, Schema]) -> Schema:
    """The schema of a type hint; dataclasses become named components."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        name = hint.__name__
        if name not in components:
            components[name] = {}
            hints = typing.get_type_hints(hint)
            properties = {f.name: schema_of(hints[f.name], components) for f in dataclasses.fields(hint)}
            components[name] = object_of(properties, tuple(properties))
        return {"$ref": f"#/components/schemas/{name}"}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [schema_of(a, components) for a in args if a is not type(None)]
        one = inner[0] if len(inner) == 1 else {"anyOf": inner}
        return nullable(one) if type(None) in args else one
    if origin is list or (origin is tuple and args[1:] == (...,)):
        return {"type": "array", "items": schema_of(args[0], components)}
    if origin is tuple:
        # Not prefixItems: half of the tools that read OpenAPI do not know it.
        kinds = [schema_of(a, components) for a in dict.fromkeys(args)]
        items = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        return {"type": "array", "items": items, "minItems": len(args), "maxItems": len(args)}
    if origin is dict or origin is Mapping:
        inner_schema = schema_of(args[1], components)
        return {"type": "object", "additionalProperties": inner_schema or True}
    if origin is typing.Literal:
        return {"enum": list(args)}
    raise TypeError(f"no schema for {hint!r}")


def to_json(value: Any) -> Any:
    """JSON values of a dataclass, instant, tuple, mapping or list."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.datetime):
        return iso(to_us(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    raise TypeError(f"no JSON for {type(value).__name__}")


def from_json(hint: Any, value: Any) -> Any:
    """The value of a type hint that `to_json` made these JSON values of."""
    if value is None or hint is Any:
        return value
    if hint is float:
        return float(value)
    if hint is dt.datetime:
        return dt.datetime.fromisoformat(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        return hint(**{k: from_json(hints[k], v) for k, v in value.items() if k in hints})
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return from_json(next(a for a in args if a is not type(None)), value)
    if origin is list:
        return [from_json(args[0], v) for v in value]
    if origin is tuple:
        inner = [args[0]] * len(value) if args[1:] == (...,) else args
        return tuple(from_json(a, v) for a, v in zip(inner, value, strict=True))
    if origin is Mapping:
        return types.MappingProxyType(value)
    if origin is dict:
        return {k: from_json(args[1], v) for k, v in value.items()}
    return value


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]


# -- checking -------------------------------------------------------------------------------------------

_TYPES: Final[dict[str, Any]] = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "null": lambda v: v is None,
}


def check(value: Any, schema: Schema, where: str) -> None:
    """Raise InvalidInput, naming the place, unless the value fits."""
    if "anyOf" in schema:
        _check_any(value, schema["anyOf"], where)
        return
    if "enum" in schema and (value not in schema["enum"] or isinstance(value, bool)):
        known = ", ".join(map(str, schema["enum"]))
        raise InvalidInput(f"{where} must be one of {known}, not {_short(value)}")
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[k](value) for k in kinds):
        raise InvalidInput(f"{where} must be {' or '.join(kinds)}, not {_short(value)}")
    if isinstance(value, str):
        _check_text(value, schema, where)
    elif isinstance(value, list):
        _check_list(value, schema, where)
    elif isinstance(value, dict):
        _check_object(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            raise InvalidInput(f"{where} must be between {low} and {high}, not {_short(value)}")


def _check_any(value: Any, options: list[Schema], where: str) -> None:
    errors = []
    for option in options:
        try:
            check(value, option, where)
        except InvalidInput as error:
            errors.append(str(error))
        else:
            return
    raise InvalidInput(errors[0] if len(errors) == 1 else f"{where}: {'; or '.join(errors)}")


def _check_text(value: str, schema: Schema, where: str) -> None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        raise InvalidInput(
            f"{where} must have {schema.get('minLength', 0)} to {schema.get('maxLength', 'any')} characters, "
            f"not {len(value)}"
        )
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise InvalidInput(f"{where} must match {schema['pattern']}, not {_short(value)}")


def _check_list(value: list[Any], schema: Schema, where: str) -> None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        raise InvalidInput(
            f"{where} must have {schema.get('minItems', 0)} to {schema.get('maxItems', 'any number of')} items, "
            f"not {len(value)}"
        )
    if "items" in schema:
        for i, item in enumerate(value):
            check(item, schema["items"], f"{where}[{i}]")


def _check_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise InvalidInput(f"{where} needs {name!r}")
    rest = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in known:
            check(item, known[name], name if where == "the body" else f"{where}.{name}")
        elif rest is False:
            raise InvalidInput(f"{where} has an unknown field {name!r}; fields are {', '.join(known)}")
        elif isinstance(rest, dict):
            check(item, rest, f"{where}.{name}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def from_text(value: str, schema: Schema, where: str) -> Any:
    """A query-string value as the JSON value its schema asks for."""
    kinds = schema.get("type", "string")
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if "integer" in kinds:
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            raise InvalidInput(f"{where} must be a whole number, not {_short(value)}")
        return int(value)
    if "boolean" in kinds:
        if value not in ("true", "false"):
            raise InvalidInput(f"{where} must be true or false, not {_short(value)}")
        return value == "true"
    return value
