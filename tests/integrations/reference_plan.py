"""A random but fixed sequence of calls of the reference memory server's tools, with awkward names and texts."""

from __future__ import annotations

import random
from typing import Any

NAMES = ["Ann", "ann", "Bob Müller", "server-01", "上海办公室", 'quo"te\\', "a b", "🦊", "İstanbul", "Straße"]
KINDS = ["person", "Place", "服务器", ""]
TEXTS = [
    "likes green tea", "Likes GREEN tea", "lives in Oslo since 2021", "The IP of server-01 is 10.0.0.1",
    "The IP of server-01 is 10.0.0.2", "tab\tand\nnewline", "控制面板在三楼", "ends with space ", " starts with one",
    "emoji 🦊 and \u2028 separator", "quote \" back\\slash \x07 bell", "⟦brackets⟧", "a" * 300,
]  # fmt: skip
VERBS = ["knows", "works_at", "位于", "is part of"]
QUERIES = ["", "TEA", "oslo", "10.0.0", "三楼", "person", "nothing like this", "\\", "ß", "İ"]


def plan(seed: int, length: int) -> list[list[Any]]:
    """Steps for mcp_drive."""
    draw = random.Random(seed)

    def some(of: list[str], least: int, most: int) -> list[str]:
        return [draw.choice(of) for _ in range(draw.randint(least, most))]

    def entity() -> dict[str, Any]:
        return {
            "name": draw.choice(NAMES),
            "entityType": draw.choice(KINDS),
            "observations": some(TEXTS, 0, 3),
        }

    def relation() -> dict[str, Any]:
        return {
            "from": draw.choice(NAMES),
            "to": draw.choice(NAMES),
            "relationType": draw.choice(VERBS),
        }

    def several(make: Any) -> list[Any]:
        return [make() for _ in range(draw.randint(0, 3))]

    def step() -> list[Any]:
        name = draw.choice(
            ["create_entities"] * 4
            + ["create_relations"] * 4
            + ["add_observations"] * 6
            + ["delete_entities", "delete_observations", "delete_observations", "delete_relations"]
            + ["read_graph", "search_nodes", "search_nodes", "open_nodes"]
        )
        arguments: dict[str, Any] = {
            "create_entities": lambda: {"entities": several(entity)},
            "create_relations": lambda: {"relations": several(relation)},
            "add_observations": lambda: {
                "observations": several(
                    lambda: {"entityName": draw.choice(NAMES), "contents": some(TEXTS, 0, 3)}
                )
            },
            "delete_entities": lambda: {"entityNames": some(NAMES, 0, 2)},
            "delete_observations": lambda: {
                "deletions": several(
                    lambda: {"entityName": draw.choice(NAMES), "observations": some(TEXTS, 0, 3)}
                )
            },
            "delete_relations": lambda: {"relations": several(relation)},
            "read_graph": dict,
            "search_nodes": lambda: {"query": draw.choice(QUERIES)},
            "open_nodes": lambda: {"names": some(NAMES, 0, 3)},
        }[name]()
        return ["call", name, arguments]

    return [*(step() for _ in range(length)), ["call", "read_graph", {}]]
