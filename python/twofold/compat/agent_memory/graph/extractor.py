"""What a memory says about entities: nodes and edges of the graph, by fixed rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

KNOWN_TOOLS: Final = frozenset(
    """
    python javascript typescript rust go java ruby
    react vue angular svelte nextjs nuxt
    django flask fastapi express rails
    postgresql mysql sqlite mongodb redis
    docker kubernetes terraform aws gcp azure
    git github gitlab npm yarn bun pip cargo
    vscode vim neovim emacs jetbrains
    linux macos windows
    pytest jest mocha cypress
    """.split()
)
_TYPE_OF_CATEGORY: Final = {
    "career": "organization",
    "project": "project",
    "preference": "concept",
    "personal": "person",
    "technical": "tool",
    "location": "location",
    "general": "concept",
}
# A verb and its relation; the object is what follows, up to a comma or the line's end. Anchored at a word's
# start, so that "causes" says nothing about "uses".
_STATEMENTS: Final = tuple(
    (re.compile(rf"\b(?:{verb})[ \t]+([^\n,]+)"), relation)
    for verb, relation in (
        (r"uses?|using", "uses"),
        (r"prefers?|preferring", "prefers"),
        (r"work(?:s|ing)?[ \t]+(?:at|for)", "works_at"),
        (r"(?:lives?|living|based)[ \t]+in", "located_in"),
        (r"(?:built|made|written)[ \t]+(?:with|in|using)", "built_with"),
        (r"depends?[ \t]+on|requires?", "depends_on"),
    )
)
_CODE_ENDINGS: Final = ("js", "py", "rs", "go", "rb")


def _type_of(name: str) -> str:
    lower = name.lower()
    return "tool" if lower in KNOWN_TOOLS or lower.endswith(_CODE_ENDINGS) else "concept"


def extract_entities_and_relations(
    content: str, tags: Sequence[str], entity: str | None, category: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(nodes, edges): nodes {name, type, attributes}, edges {from, to, type, metadata}."""
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []

    def node(name: str, kind: str, **attributes: Any) -> None:
        nodes.append({"name": name, "type": kind, "attributes": attributes})

    def edge(source: str, target: str, kind: str, origin: str) -> None:
        edges.append({"from": source, "to": target, "type": kind, "metadata": {"source": origin}})

    if entity:
        node(entity, _TYPE_OF_CATEGORY.get(category, "concept"), category=category)
    for tag in tags:
        if len(tag) > 1 and (tag[0].isupper() or tag in KNOWN_TOOLS):
            node(tag, _type_of(tag))
            if entity and tag.lower() != entity.lower():
                edge(entity, tag, "related_to", "tag")
    lower = content.lower()
    for pattern, relation in _STATEMENTS:
        match = pattern.search(lower)
        target = "" if match is None else match[1].strip().rstrip(".").strip()
        if 1 < len(target) < 50:
            node(target, _type_of(target))
            edge(entity or "user", target, relation, "content_pattern")
    return nodes, edges
