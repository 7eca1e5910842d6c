"""What the official conformance runner expects of a server under test; loaded by `twofold mcp --fixture`."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

from pydantic import BaseModel

from twofold.errors import InvalidInput, NotFound
from twofold.integrations.mcp_face import Answer, Arguments, Face, Prompt, Resource, Seat, Tool, text


class Nothing(Arguments):
    """No arguments."""


class Person(BaseModel):
    """Arguments of the schema tool; its schema is given by hand."""

    name: str = ""
    address: Any = None


def png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def wav() -> str:
    """Four samples of silence."""
    data = b"\0" * 8
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    body = head + b"data" + struct.pack("<I", len(data)) + data
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(body)) + body).decode()


def image() -> dict[str, Any]:
    return {"type": "image", "data": png(), "mimeType": "image/png"}


def embedded(uri: str, mime: str, content: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": content}}


def fails(_: Seat, __: Any) -> Answer:
    raise InvalidInput("this tool fails on purpose")


def tool(name: str, *blocks: dict[str, Any]) -> Tool:
    return Tool(name, name, f"Conformance fixture {name}", Nothing, lambda _, __: Answer(blocks))


TOOLS = [
    tool("test_simple_text", text("plain text")),
    tool("test_image_content", image()),
    tool("test_audio_content", {"type": "audio", "data": wav(), "mimeType": "audio/wav"}),
    tool("test_embedded_resource", embedded("test://embedded-resource", "text/plain", "embedded text")),
    tool(
        "test_multiple_content_types",
        text("several kinds"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    Tool("test_error_handling", "error", "Fails on purpose", Nothing, fails),
    Tool(
        "json_schema_2020_12_tool",
        "schema",
        "A tool whose schema uses keywords of JSON Schema 2020-12",
        Person,
        lambda _, __: Answer([text("ok")]),
        schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        },
    ),
]

CONTENTS: dict[str, dict[str, Any]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "static text"},
    "test://static-binary": {"mimeType": "image/png", "blob": png()},
}


def read(_: Seat, uri: str) -> list[dict[str, Any]]:
    if uri in CONTENTS:
        return [{"uri": uri, **CONTENTS[uri]}]
    if uri.startswith("test://template/") and uri.endswith("/data"):
        given = uri.split("/")[3]
        body = {"id": given, "templateTest": True, "data": f"Data for ID: {given}"}
        return [{"uri": uri, "mimeType": "application/json", "text": json.dumps(body)}]
    raise NotFound(f"there is no resource {uri}")


def says(*contents: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": c} for c in contents]


PROMPTS = [
    Prompt("test_simple_prompt", "simple", "No arguments", (), lambda _, __: says(text("a simple prompt"))),
    Prompt(
        "test_prompt_with_arguments",
        "arguments",
        "Two arguments",
        (("arg1", "first", True), ("arg2", "second", True)),
        lambda _, a: says(text(f"arg1={a['arg1']!r} arg2={a['arg2']!r}")),
    ),
    Prompt(
        "test_prompt_with_embedded_resource",
        "resource",
        "Embeds a resource",
        (("resourceUri", "what to embed", True),),
        lambda _, a: says(embedded(a["resourceUri"], "text/plain", "embedded"), text("process it")),
    ),
    Prompt(
        "test_prompt_with_image", "image", "An image", (), lambda _, __: says(image(), text("look at it"))
    ),
]


def fixture() -> Face:
    return Face(
        "twofold-conformance",
        "Fixtures of the conformance runner.",
        TOOLS,
        [Resource("test://template/{id}/data", "template", "Template", "A template", template=True)],
        PROMPTS,
        lambda _: [
            Resource(uri, uri.rpartition("/")[2], uri, "A fixed resource", CONTENTS[uri]["mimeType"])
            for uri in CONTENTS
        ],
        read,
        version="0",
    )
