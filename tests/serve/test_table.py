"""The table against AgentMemory, the clients, the OpenAPI document and docs/http.md: none may drift."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, AsyncAgentMemory
from twofold.index.filters import Filters
from twofold.query import prepare
from twofold.remember import FIELDS
from twofold.serve import openapi
from twofold.serve.client import AsyncTwofoldClient, TwofoldClient
from twofold.serve.table import EXCLUDED, FILTERS_AND_ALIASES, RENAMED, ROUTES, TABLE, UPDATABLE, Route

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {n for n in dir(AgentMemory) if not n.startswith("_")}
# Arguments that a table entry lacks on purpose: progress is shown where the caller is, a path is where it is.
LOCAL = {"add_many": {"progress", "batch"}, "export_json": {"path"}, "import_json": {"path", "progress"}}


def test_every_public_name_is_in_the_table_or_excluded_with_a_reason() -> None:
    handle = AgentMemory(":memory:", embedder=None)
    names = PUBLIC | {n for n in vars(handle) if not n.startswith("_")}
    handle.close()
    assert names == set(ROUTES) | set(EXCLUDED)
    assert not set(ROUTES) & set(EXCLUDED)
    assert all(EXCLUDED.values())


def spread(name: str) -> set[str]:
    """What a method's **keywords are."""
    if name == "add":
        return set(FIELDS) - {"content"}
    if name == "update":
        return set(UPDATABLE)
    if name == "explain":
        options = inspect.signature(prepare).parameters
        return {name for name, one in options.items() if one.kind is one.KEYWORD_ONLY}
    if name == "recall_as_context":
        return set(inspect.signature(AgentMemory.recall).parameters) - {"self", "query_text", "budget"}
    if name in ("search", "current_facts"):
        return set(FILTERS_AND_ALIASES)
    return set()


@pytest.mark.parametrize("route", TABLE, ids=lambda r: r.name)
def test_arguments_are_those_of_the_method(route: Route) -> None:
    parameters = inspect.signature(getattr(AgentMemory, route.name)).parameters
    named = {
        n: p for n, p in parameters.items() if n != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    wire = {RENAMED.get(n, n) for n in (set(named) - LOCAL.get(route.name, set())) | spread(route.name)}
    assert set(route.fields) == wire
    needed = {RENAMED.get(n, n) for n, p in named.items() if p.default is p.empty}
    assert set(route.required) == needed - LOCAL.get(route.name, set())
    assert set(route.in_path) <= set(route.required)


def test_filter_names_are_those_that_filters_understand() -> None:
    example: dict[str, Any] = {"metadata": {"a": 1}, "pinned": True, "min_confidence": 0.5, "confidence": 0.5}
    for name in FILTERS_AND_ALIASES:
        value = example.get(name, 1 if name.endswith(("_after", "_before")) else ["x"])
        assert Filters.of({name: value}) != Filters()


def test_the_clients_have_every_method_with_the_same_signature() -> None:
    for name in PUBLIC:
        assert hasattr(TwofoldClient, name) or name in ("embedder", "config"), name
        assert hasattr(AsyncAgentMemory, name), name
        assert hasattr(AsyncTwofoldClient, name), name
    for name in ROUTES:
        ours = [p for p in inspect.signature(getattr(TwofoldClient, name)).parameters if p != "self"]
        theirs = [p for p in inspect.signature(getattr(AgentMemory, name)).parameters if p != "self"]
        assert ours == theirs, name


def test_addresses_are_unique_and_methods_tell_reads_from_writes() -> None:
    assert len({(r.method, r.path) for r in TABLE}) == len(TABLE) == len(ROUTES)
    assert {r.method for r in TABLE} <= {"GET", "POST", "PATCH"}
    assert all(r.reads for r in TABLE if r.method == "GET")
    assert not any(r.reads for r in TABLE if r.method == "PATCH")


def test_the_document_has_every_route_and_every_reference_resolves() -> None:
    document = openapi.document()
    operations = {op["operationId"] for path in document["paths"].values() for op in path.values()}
    assert operations == set(ROUTES) | {"whoami", "alive", "metrics"}
    text = str(document)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in document["components"]["schemas"], name


def test_the_page_lists_every_route() -> None:
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \| `(\w+) (/\S+)` \|", page, re.MULTILINE))
    assert listed == {(r.name, r.method, r.path) for r in TABLE}
    for name in EXCLUDED:
        assert f"`{name}`" in page, name
