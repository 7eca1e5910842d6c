"""What an MCP server shows, as plain data: tools, resources, prompts. Knows neither the SDK nor its versions."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from twofold.errors import InvalidInput, NotFound
from twofold.scratchpad import Scratchpad

if TYPE_CHECKING:
    from twofold.memory import AgentMemory
    from twofold.recall import Recall
    from twofold.receipt import Receipt

RECEIPTS_KEPT: Final = 256


class Seat:
    """One caller: its handle, its scratchpad, and the receipts of its last recalls (for `feedback`)."""

    def __init__(self, mem: AgentMemory) -> None:
        self.mem = mem
        self.pad = Scratchpad(clock=mem.clock)
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, found: Recall) -> str:
        """Remember a recall's receipt and give its id."""
        receipt = found.receipt
        with self._lock:
            self._receipts[receipt.id] = receipt
            while len(self._receipts) > RECEIPTS_KEPT:
                self._receipts.popitem(last=False)
        return receipt.id

    def receipt(self, receipt_id: str) -> Receipt | str:
        """The receipt of a recent recall; another id as it is, for the store's kept receipts."""
        with self._lock:
            return self._receipts.get(receipt_id, receipt_id)


class Arguments(BaseModel):
    """Base of a tool's arguments: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool gives back: content blocks in the protocol's JSON, and the same as structured data."""

    content: Sequence[dict[str, Any]]
    structured: dict[str, Any] | None = None
    error: bool = False


def text(value: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": value}


def pretty(value: Any) -> str:
    """JSON with two spaces of indentation, as `JSON.stringify(value, null, 2)` writes it."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def answered(result: BaseModel, shown: str | None = None) -> Answer:
    """The answer for a result: structured, and as JSON text (or `shown`) for clients that read text only."""
    body = result.model_dump(mode="json")
    return Answer([text(pretty(body) if shown is None else shown)], body)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `run` is called in a worker thread with the seat and validated arguments."""

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[Seat, Any], Answer]
    returns: type[BaseModel] | None = None
    reads: bool = True  # changes nothing
    destroys: bool = False  # may take something away
    repeats: bool = True  # a second call with the same arguments changes nothing more
    schema: dict[str, Any] | None = None  # instead of the one made from `arguments`

    def declared(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        out: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema or schema_of(self.arguments, "validation"),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.reads,
                "destructiveHint": self.destroys,
                "idempotentHint": self.repeats,
                "openWorldHint": False,
            },
        }
        if self.returns is not None:
            out["outputSchema"] = schema_of(self.returns, "serialization")
        return out


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource with a fixed address, or (with `template`) a family of them."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str = "application/json"
    template: bool = False

    def declared(self) -> dict[str, Any]:
        """The resource as the lists show it."""
        return {
            "uriTemplate" if self.template else "uri": self.uri,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
        }


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt; arguments are (name, description, required)."""

    name: str
    title: str
    description: str
    arguments: Sequence[tuple[str, str, bool]]
    render: Callable[[Seat, dict[str, str]], list[dict[str, Any]]]

    def declared(self) -> dict[str, Any]:
        """The prompt as `prompts/list` shows it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": [{"name": n, "description": d, "required": r} for n, d, r in self.arguments],
        }


def _no_resources(_: Seat) -> list[Resource]:
    return []


def _no_contents(_: Seat, uri: str) -> list[dict[str, Any]]:
    raise NotFound(f"there is no resource {uri}")


def _no_values(_: Seat, __: dict[str, Any], ___: dict[str, str]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Face:
    """Everything a profile shows. `read` gives a resource's contents in the protocol's JSON."""

    name: str
    instructions: str
    tools: Sequence[Tool]
    templates: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    resources: Callable[[Seat], list[Resource]] = _no_resources
    read: Callable[[Seat, str], list[dict[str, Any]]] = _no_contents
    complete: Callable[[Seat, dict[str, Any], dict[str, str]], list[str]] = _no_values
    failed: Callable[[Exception], Answer] | None = None  # how a tool's error looks; `failure` when None
    version: str = ""
    by_name: dict[str, Tool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name.update((tool.name, tool) for tool in self.tools)

    def call(self, seat: Seat, name: str, arguments: dict[str, Any]) -> Answer:
        """Run a tool. What goes wrong inside Twofold is an answer with the error's name, for the model to read.

        Raises NotFound for an unknown tool.
        """
        tool = self.by_name.get(name)
        if tool is None:
            raise NotFound(f"unknown tool {name!r}; tools are {', '.join(self.by_name)}")
        try:
            given = tool.arguments.model_validate(arguments)
        except ValidationError as error:
            return self._failure(InvalidInput(complaint(error)))
        try:
            return tool.run(seat, given)
        # Every failure of a tool belongs to its caller; the connection goes on.
        except Exception as error:  # noqa: BLE001
            return self._failure(error)

    def _failure(self, error: Exception) -> Answer:
        return failure(error) if self.failed is None else self.failed(error)

    def prompt(self, seat: Seat, name: str, arguments: dict[str, str]) -> tuple[Prompt, list[dict[str, Any]]]:
        """A prompt and its messages. Raises NotFound, InvalidInput."""
        for prompt in self.prompts:
            if prompt.name == name:
                missing = [n for n, _, required in prompt.arguments if required and not arguments.get(n)]
                if missing:
                    raise InvalidInput(f"prompt {name!r} needs the argument {missing[0]!r}")
                return prompt, prompt.render(seat, arguments)
        raise NotFound(f"unknown prompt {name!r}; prompts are {', '.join(p.name for p in self.prompts)}")


def failure(error: Exception) -> Answer:
    """A failed call: "NameOfTheError: message"."""
    return Answer([text(f"{type(error).__name__}: {error}")], None, error=True)


def complaint(error: ValidationError) -> str:
    """What is wrong with the arguments, without repeating their values."""
    parts = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(p) for p in each["loc"]) or "arguments"
        parts.append(f"{where}: {each['msg'][0].lower()}{each['msg'][1:]}")
    return "; ".join(parts)


def schema_of(model: type[BaseModel], mode: Any) -> dict[str, Any]:
    """A model's JSON schema, as short as it can be said: models read it with every request."""
    made: dict[str, Any] = _plain(model.model_json_schema(mode=mode), of_names=False)
    made.pop("description", None)
    return made


def _plain(value: Any, *, of_names: bool) -> Any:
    """Without the titles that only repeat field names; what may be left out is not also said to be nullable."""
    if isinstance(value, list):
        return [_plain(v, of_names=False) for v in value]
    if not isinstance(value, dict):
        return value
    if not of_names and "default" in value and value["default"] is None:
        value = {k: v for k, v in value.items() if k != "default"}
        kinds = [k for k in value.get("anyOf", ()) if k != {"type": "null"}]
        if len(kinds) == 1:
            value = {**kinds[0], **{k: v for k, v in value.items() if k != "anyOf"}}
    return {
        k: _plain(v, of_names=not of_names and k in ("properties", "$defs"))
        for k, v in value.items()
        # Under "properties" the keys are names of fields, one of which may be "title".
        if of_names or k != "title" or not isinstance(v, str)
    }
