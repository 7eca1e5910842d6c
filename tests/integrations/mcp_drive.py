"""A client of the official SDK, of whichever major version is importable. Reads a plan, prints what it got.

Run as a program: the plan is JSON on standard input, {"server": {...}, "steps": [[method, name, arguments], ...]}.
A string "$2.structuredContent.id" in arguments is a value of the result of step 2.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import mcp
from mcp import types
from mcp.client import streamable_http
from mcp.client.stdio import StdioServerParameters, stdio_client

SECOND = hasattr(mcp, "Client")


def dumped(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def filled(value: Any, results: list[Any]) -> Any:
    if isinstance(value, dict):
        return {k: filled(v, results) for k, v in value.items()}
    if isinstance(value, list):
        return [filled(v, results) for v in value]
    if isinstance(value, str) and value.startswith("$"):
        step, *path = value[1:].split(".")
        found = results[int(step)]
        for part in path:
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found
    if isinstance(value, str) and "{$" in value:
        head, _, rest = value.partition("{$")
        inner, _, tail = rest.partition("}")
        return head + str(filled("$" + inner, results)) + tail
    return value


async def connected(server: dict[str, Any], stack: AsyncExitStack) -> tuple[Any, Any]:
    """A client session, and what the server said about itself."""
    if "url" in server:
        headers = server.get("headers")
        if SECOND:
            import httpx2

            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers))
            transport = streamable_http.streamable_http_client(server["url"], http_client=http)
        else:
            transport = streamable_http.streamablehttp_client(server["url"], headers=headers)
    else:
        parameters = StdioServerParameters(
            command=server["command"], args=server["args"], env=server.get("env")
        )
        transport = parameters if SECOND else stdio_client(parameters)
    if SECOND:
        client = await stack.enter_async_context(mcp.Client(transport, mode=server.get("mode", "auto")))
        about = {
            "protocol": client.protocol_version,
            "info": dumped(client.server_info),
            "instructions": client.instructions,
            "capabilities": dumped(client.server_capabilities),
        }
        return client, about
    read, write, *_ = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(mcp.ClientSession(read, write))
    said = await session.initialize()
    about = {
        "protocol": said.protocolVersion,
        "info": dumped(said.serverInfo),
        "instructions": said.instructions,
        "capabilities": dumped(said.capabilities),
    }
    return session, about


async def step(client: Any, method: str, name: str, arguments: Any) -> Any:
    if method == "call":
        return dumped(await client.call_tool(name, arguments))
    if method == "read":
        return dumped(await client.read_resource(name if SECOND else _url(name)))
    if method == "prompt":
        return dumped(await client.get_prompt(name, arguments))
    if method == "complete":
        reference = types.PromptReference(type="ref/prompt", name=name)
        return dumped(await client.complete(reference, arguments))
    raise ValueError(method)


def _url(text: str) -> Any:
    from pydantic import AnyUrl

    return AnyUrl(text)


async def drive(plan: dict[str, Any]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        client, about = await connected(plan["server"], stack)
        out: dict[str, Any] = {**about, "sdk": 2 if SECOND else 1, "results": []}
        out["tools"] = dumped(await client.list_tools())["tools"]
        if not plan["server"].get("bare"):
            out["resources"] = dumped(await client.list_resources())["resources"]
            out["templates"] = dumped(await client.list_resource_templates())["resourceTemplates"]
            out["prompts"] = dumped(await client.list_prompts())["prompts"]
        for method, name, arguments in plan["steps"]:
            try:
                made = await step(
                    client, method, filled(name, out["results"]), filled(arguments, out["results"])
                )
            # The SDKs' error classes have no common name; the tests look at what is reported.
            except Exception as error:  # noqa: BLE001
                body = getattr(error, "error", None)
                made = {"protocolError": str(error), "code": getattr(body, "code", None)}
            out["results"].append(made)
        return out


if __name__ == "__main__":
    json.dump(asyncio.run(drive(json.load(sys.stdin))), sys.stdout)
