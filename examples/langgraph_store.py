"""A LangGraph graph whose nodes keep what they learn in a Twofold store (`pip install langgraph`).

Run it: `python examples/langgraph_store.py`. No model is called.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from twofold.integrations.langgraph import TwofoldStore


class State(TypedDict):
    """What one run of the graph carries."""

    user: str
    said: str
    known: list[str]


def remember(state: State, *, store: BaseStore) -> dict[str, object]:
    """Keep what the user said under the user's namespace."""
    store.put(("users", state["user"]), state["said"][:40], {"text": state["said"]})
    return {}


def recall(state: State, *, store: BaseStore) -> dict[str, object]:
    """What is known about the user, best first."""
    found = store.search(("users", state["user"]), query=state["said"], limit=3)
    return {"known": [item.value["text"] for item in found]}


def main(folder: Path) -> list[str]:
    """Run the graph three times over one store; the last answer."""
    builder = StateGraph(State)
    builder.add_node("recall", recall)
    builder.add_node("remember", remember)
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "remember")
    builder.add_edge("remember", END)
    with TwofoldStore.from_conn_string(str(folder), embedder="hashing") as store:
        graph = builder.compile(store=store)
        for said in ("I live in Lyon", "My cat is called Miso", "What is my cat called?"):
            known: list[str] = graph.invoke({"user": "ann", "said": said, "known": []})["known"]
        assert store.get(("users", "ann"), "I live in Lyon") is not None
    return known


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write("\n".join(main(Path(place) / "store")) + "\n")
