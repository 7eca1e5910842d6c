"""Ten memories, one question: the exact order of the whole pipeline, and of each layer alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from twofold import AgentMemory, Profile

QUESTION = "Which database stores the billing records of Atlas?"
# A question vector and memory vectors chosen by hand: meaning, words, tags and relations all disagree.
AXES = 8


def unit(*values: float) -> list[float]:
    v = np.zeros(AXES)
    v[: len(values)] = values
    return list(v / np.linalg.norm(v))


#        name      text                                                        vector              tags, entities
ROWS: list[tuple[str, str, list[float], list[str], list[str]]] = [
    ("words1", "Billing records are stored in the database of finance", unit(0.1, 1), [], []),
    ("words2", "The database stores invoices", unit(0.2, 1), [], []),
    ("words3", "All records of the meeting are on paper", unit(0.1, 0.9, 0.4), [], []),
    ("mean1", "PostgreSQL keeps our invoices", unit(1, 0.1), [], []),
    ("mean2", "We chose a relational engine for payments", unit(0.9, 0.3), [], []),
    ("mean3", "Invoices go to cold storage after a year", unit(0.8, 0.6), [], []),
    ("tagged", "Decided in March after the load test", unit(0, 0.2, 1), ["billing", "database"], []),
    ("atlas1", "The ledger moved to a new cluster", unit(0, 0.1, 0.5, 1), [], ["Atlas", "Helios"]),
    ("helios", "Cluster upgrades happen on Sundays", unit(0, 0, 0.2, 0, 1), [], ["Helios"]),
    ("noise", "Lunch is at noon", unit(0, 0, 0, 0, 0, 1), [], []),
]
VECTOR = unit(1, 0.15)


class Fixed:
    """An embedder with a fixed dimension whose vectors the test supplies itself."""

    name = "fixed"
    fingerprint = "fixed@1;dim=8"
    dimension = AXES
    max_tokens = 1000

    def embed_documents(self, texts: Any) -> Any:
        raise AssertionError("the test supplies every vector")

    embed_query = embed_documents

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return [(0, len(text))]


@pytest.fixture
def mem(clock: Any, ids: Any, entropy: Any) -> Iterator[AgentMemory]:
    with AgentMemory(":memory:", embedder=Fixed(), clock=clock, ids=ids, entropy=entropy) as mem:
        for name, text, vector, tags, entities in ROWS:
            mem.add(text, vector=vector, tags=tags, entities=entities, source_id=name)
        yield mem


def order(mem: AgentMemory, profile: Profile, **options: Any) -> list[str]:
    found = mem.recall(QUESTION, k=10, vector=VECTOR, profile=profile, promote=False, **options)
    return [str(h.memory.source_id) for h in found]


def only(**weights: float) -> Profile:
    """A profile in which nothing counts but the given weights."""
    zero = dict.fromkeys(
        "vector_weight lexical_weight tag_weight graph_weight previous_weight next_weight second_previous_weight "
        "second_next_weight answer_weight role_next_weight session_weight session_lexical_weight "
        "session_repeat_weight speaker_weight role_weight confidence_weight strength_weight".split(),
        0.0,
    )
    return Profile(name="test", **{**zero, **weights})


LEXICAL = ["words1", "words2", "tagged", "words3"]  # a tag counts as two occurrences of its words
MEANING = ["mean1", "mean2", "mean3", "words2"]
TAGS = ["tagged"]
GRAPH = ["atlas1", "helios"]


def test_each_layer_alone_gives_its_own_order(mem: AgentMemory) -> None:
    orders = [
        order(mem, only(lexical_weight=1.0))[:3],
        order(mem, only(vector_weight=1.0))[:4],
        order(mem, only(tag_weight=1.0)),
        order(mem, only(graph_weight=1.0)),
    ]
    assert orders == [LEXICAL[:3], MEANING, TAGS, GRAPH]
    assert len({tuple(o) for o in orders}) == 4


def test_lexical_layer_returns_only_what_shares_a_word(mem: AgentMemory) -> None:
    assert sorted(order(mem, only(lexical_weight=1.0))) == sorted(LEXICAL)


def test_whole_pipeline_order(mem: AgentMemory) -> None:
    assert order(mem, Profile()) == [
        "mean1",
        "mean2",
        "mean3",
        "words1",
        "words2",
        "words3",
        "tagged",
        "atlas1",
        "helios",
        "noise",
    ]


def test_a_memory_found_by_several_layers_says_so(mem: AgentMemory) -> None:
    found = mem.recall(QUESTION, k=10, vector=VECTOR)
    by_name = {h.memory.source_id: h for h in found}
    assert by_name["words1"].sources["lexical"] == 1
    assert by_name["mean1"].sources == {"vector": 1}
    assert set(by_name["tagged"].sources) == {"lexical", "tags", "vector"}
    assert by_name["atlas1"].sources["graph"] == 1


def test_score_is_the_sum_of_its_parts(mem: AgentMemory) -> None:
    for hit in mem.recall(QUESTION, k=10, vector=VECTOR):
        total = 0.0
        for part in hit.parts.values():
            total += part
        assert total == hit.score


def test_filters_apply_before_top_k(mem: AgentMemory) -> None:
    for i in range(60):
        mem.add(
            f"Billing database records of Atlas, copy {i}",
            vector=VECTOR,
            memory_type="log",
            source_id=f"l{i}",
        )
    found = order(mem, Profile(depth=10), filters={"memory_type": "fact"})
    assert len(found) == 10
    assert not any(name.startswith("l") for name in found)


def test_trace_tells_what_each_layer_gave(mem: AgentMemory) -> None:
    found = mem.recall(QUESTION, k=3, vector=VECTOR)
    trace = found.trace
    assert set(trace.layers) == {"lexical", "tags", "graph", "vector"}
    assert trace.ran == ("lexical", "tags", "graph", "vector")
    assert (trace.rows, trace.in_scope, trace.eligible, trace.faded) == (10, 10, 10, 0)
    assert trace.entities == ("atlas",)
    assert [s for _, s in trace.layers["vector"]] == sorted(
        (s for _, s in trace.layers["vector"]), reverse=True
    )


def test_without_vectors_the_trace_says_why(clock: Any) -> None:
    with AgentMemory(":memory:", embedder=None, clock=clock) as mem:
        mem.add("The database stores invoices")
        found = mem.recall("database")
        assert [h.content for h in found] == ["The database stores invoices"]
        assert found.trace.skipped == {"vector": "no embedder: this handle was opened with embedder=None"}
        assert "vector" not in found.trace.ran
