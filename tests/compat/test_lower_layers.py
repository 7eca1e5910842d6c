"""The modules below AgentMemory that users import: scoring, tags, graph, registry, connection, extraction."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from twofold.compat.agent_memory.graph.extractor import extract_entities_and_relations
from twofold.compat.agent_memory.graph.networkx_graph import NetworkXGraph
from twofold.compat.agent_memory.models import Memory, RetrievalResult
from twofold.compat.agent_memory.retrieval import scorer
from twofold.compat.agent_memory.retrieval.orchestrator import graph_blend, reciprocal_rank_fusion
from twofold.compat.agent_memory.retrieval.tag_matcher import STOP_WORDS, extract_tags
from twofold.compat.agent_memory.store.connection import (
    ENGINE_DEFAULTS,
    CloudConnection,
    TLSConfig,
    build_config,
    merge_config_layers,
    parse_url,
    resolve_env,
    resolve_env_recursive,
)
from twofold.compat.agent_memory.store.embeddings import (
    ChromaEmbeddingAdapter,
    LocalEmbeddingProvider,
    get_embedding_provider,
)
from twofold.compat.agent_memory.store.registry import (
    BackendConflictError,
    instantiate_backend,
    resolve_backends,
)
from twofold.compat.agent_memory.utils.tokens import estimate_tokens
from twofold.errors import InvalidInput

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def result(content: str, score: float = 1.0, source: str = "vector", **fields: Any) -> RetrievalResult:
    fields.setdefault("created_at", NOW.isoformat())
    fields.setdefault("valid_from", NOW.isoformat())
    fields.setdefault("id", content)
    return RetrievalResult(Memory(content=content, **fields), score, source)


def test_tags_keep_order_and_lose_stop_words_and_punctuation() -> None:
    assert extract_tags("What Python, or RUST: does the user prefer? python x order_service!") == [
        "python",
        "rust",
        "order_service",
    ]
    assert extract_tags("") == []
    assert extract_tags("what is the") == []
    assert {"use", "user", "prefers", "currently", "tell", "know", "get", "find"} <= STOP_WORDS
    assert extract_tags("café 数据库")[-2:] == ["café", "数据库"]


def test_deduplicate_keeps_the_best() -> None:
    low, high, other = result("a", 0.2), result("a", 0.9), result("b", 0.5)
    assert scorer.deduplicate([low, other, high]) == [high, other]


def test_fit_to_budget_skips_what_does_not_fit_and_goes_on() -> None:
    long, short = "word " * 40, "two words"
    found = scorer.fit_to_budget([result(short, 0.9), result(long, 0.8), result("more words", 0.7)], 10)
    assert [r.content for r in found] == [short, "more words"]
    assert [r.content for r in scorer.fit_to_budget([result(long), result(short, 0.5)], 10)] == [long]
    assert scorer.fit_to_budget([], 10) == []


def test_confidence_falls_with_hours_and_rises_with_uses() -> None:
    def confidence(**fields: Any) -> float:
        given = result("x", 1.0, **fields)
        found = scorer.confidence_decay_boost([given], now=NOW)
        assert given.score == 1.0
        return found[0].score

    day = (NOW - dt.timedelta(days=1)).isoformat()
    assert confidence(created_at=day) == pytest.approx(1 - 0.024)
    assert confidence(created_at="2020-01-01T00:00:00+00:00") == 0.1
    assert confidence(created_at="2020-01-01T00:00:00+00:00", last_accessed=day) == pytest.approx(0.976)
    assert confidence(confidence=0.5, access_count=2) == pytest.approx(0.56)
    assert confidence(access_count=50) == 1.0
    assert scorer.confidence_decay_boost([result("x", confidence=0.3)], gate=0.5, now=NOW) == []


def test_mmr() -> None:
    same = [result("red green blue", 0.9), result("red green blue too", 0.89), result("one two three", 0.5)]
    assert scorer.mmr_rerank(same, 1.0) == same
    assert [r.content for r in scorer.mmr_rerank(same, 0.5)] == [
        "red green blue",
        "one two three",
        "red green blue too",
    ]
    assert len(scorer.mmr_rerank([result(str(i)) for i in range(30)])) == 10
    assert len(scorer.mmr_rerank([result(str(i)) for i in range(30)], max_results=None)) == 30
    assert scorer.mmr_rerank([]) == []
    assert scorer.mmr_rerank(same[:1]) == same[:1]


def test_jaccard() -> None:
    assert scorer._jaccard_similarity("a b c", "B C d") == 0.5
    assert scorer._jaccard_similarity("", "a") == 0.0


def test_pagerank_boost_adds() -> None:
    found = scorer.pagerank_boost([result("a", entity="Alice"), result("b")], {"alice": 0.5}, 0.3)
    assert [r.score for r in found] == [1.15, 1.0]


def test_temporal_boost_on_and_off() -> None:
    given = [result("new"), result("old", created_at="2020-01-01T00:00:00+00:00")]
    assert [r.score for r in scorer.temporal_boost(given, now=NOW)] == [1.2, 1.0]
    assert [r.score for r in scorer.temporal_boost(given, enabled=False, now=NOW)] == [1.0, 1.0]
    assert [r.score for r in given] == [1.0, 1.0]


def test_entity_boost() -> None:
    given = [result("x", entity="Alice"), result("met ALICE"), result("nobody")]
    assert [r.score for r in scorer.entity_boost(given, ["Alice"])] == [1.3, 1.15, 1.0]
    assert [r.score for r in scorer.entity_boost(given, None)] == [1.0, 1.0, 1.0]


def test_fusion_sums_over_the_sources_of_a_memory() -> None:
    found = reciprocal_rank_fusion([result("a", 1.0, "tag"), result("b", 0.9), result("a", 0.8)])
    assert {r.memory.id: r.score for r in found} == pytest.approx({"a": 1 / 61 + 1 / 62, "b": 1 / 61})
    one_source = [result("a", 0.4), result("b", 0.6)]
    assert reciprocal_rank_fusion(one_source) == one_source[::-1]
    assert reciprocal_rank_fusion([]) == []


def test_graph_blend_scales_both_to_one() -> None:
    given = [result("a", 1.0, entity="A"), result("b", 0.0, entity="B"), result("c", 0.5)]
    found = graph_blend(given, {"a": 0.0, "b": 1.0})
    assert {r.memory.id: r.score for r in found} == pytest.approx({"a": 0.7, "c": 0.35, "b": 0.3})


def test_tokens_of_prose_and_of_what_has_no_spaces() -> None:
    assert estimate_tokens("one two three four five six seven eight nine ten") == 13
    assert estimate_tokens("") == 0
    assert estimate_tokens("数据库密码每月更换一次") >= 11
    assert estimate_tokens("https://example.org/" + "a" * 200) > 30


def test_graph_keys_names_attributes_and_types(tmp_path: Path) -> None:
    graph = NetworkXGraph(tmp_path)
    graph.add_entity("Alice", attributes={"a": 1})
    graph.add_entity("ALICE", "person", {"b": 2})
    graph.add_entity("alice", "tool")
    graph.add_relation("Alice", "New York", "lives in")
    assert graph.get_entities() == [
        {"name": "alice", "type": "person", "key": "alice", "attributes": {"a": 1, "b": 2}},
        {"name": "New York", "type": "general", "key": "new york", "attributes": {}},
    ]
    assert [e["key"] for e in graph.get_entities("person")] == ["alice"]
    assert graph.get_edges("new york") == [
        {"subject": "alice", "predicate": "LIVES_IN", "object": "New York", "event_date": ""}
    ]
    assert graph.get_edges("ALICE") == graph.get_edges("New York")
    assert graph.graph_stats() == {"nodes": 2, "edges": 1, "types": {"person": 1, "general": 1}}


def test_graph_walks_both_ways_to_a_depth() -> None:
    graph = NetworkXGraph()
    for a, b in (("a", "b"), ("c", "b"), ("c", "d"), ("d", "e")):
        graph.add_relation(a, b)
    assert graph.get_related("a", 1) == ["b"]
    assert graph.get_related("a") == ["b", "c"]
    assert graph.get_related("nobody") == []
    found = graph.get_subgraph("a", 1)
    assert found["nodes"] == [
        {"name": "a", "type": "general", "key": "a"},
        {"name": "b", "type": "general", "key": "b"},
    ]
    assert found["edges"] == [{"source": "a", "target": "b", "type": "RELATED_TO"}]
    assert graph.get_subgraph("x") == {"entity": "x", "nodes": [], "edges": []}


def test_graph_lies_in_a_file(tmp_path: Path) -> None:
    NetworkXGraph(tmp_path).add_relation("A", "B", "uses", {"event_date": "2024"})
    again = NetworkXGraph(tmp_path)
    assert again.get_edges("a")[0]["event_date"] == "2024"
    data = json.loads((tmp_path / "graph.json").read_text())
    assert (data["directed"], data["multigraph"]) == (True, True)
    assert data["edges"][0]["key"] == "USES"


def test_pagerank_sums_to_one_and_follows_the_graph() -> None:
    graph = NetworkXGraph()
    assert graph.pagerank() == {}
    graph.add_relation("a", "hub")
    graph.add_relation("b", "hub")
    before = graph.pagerank()
    assert sum(before.values()) == pytest.approx(1.0)
    assert max(before, key=before.__getitem__) == "hub"
    assert graph.pagerank() == before
    graph.add_relation("hub", "new")
    assert set(graph.pagerank()) == {"a", "b", "hub", "new"}


def test_extractor_patterns() -> None:
    nodes, edges = extract_entities_and_relations(
        "Alice works at Acme Corp, since May", ["Python", "rust", "misc"], "Alice", "career"
    )
    assert [(n["name"], n["type"]) for n in nodes] == [
        ("Alice", "organization"),
        ("Python", "tool"),
        ("rust", "tool"),
        ("acme corp", "concept"),
    ]
    assert [(e["from"], e["to"], e["type"]) for e in edges] == [
        ("Alice", "Python", "related_to"),
        ("Alice", "rust", "related_to"),
        ("Alice", "acme corp", "works_at"),
    ]
    for text, relation, target in (
        ("uses Redis.", "uses", "redis"),
        ("prefers tea", "prefers", "tea"),
        ("based in Oslo", "located_in", "oslo"),
        ("built with go", "built_with", "go"),
        ("depends on kafka", "depends_on", "kafka"),
    ):
        _, edges = extract_entities_and_relations(text, [], None, "general")
        assert [(e["from"], e["to"], e["type"]) for e in edges] == [("user", target, relation)]
    assert extract_entities_and_relations("It causes trouble in houses", [], None, "general") == ([], [])


def test_registry_fills_roles_and_refuses_conflicts(tmp_path: Path) -> None:
    assert resolve_backends() == {"document": "sqlite", "vector": "chroma", "graph": "networkx"}
    assert resolve_backends(["postgres"]) == dict.fromkeys(("document", "graph", "vector"), "postgres")
    with pytest.raises(BackendConflictError, match="document"):
        resolve_backends(["sqlite", "postgres"])
    with pytest.raises(ValueError, match="unknown backend"):
        resolve_backends(["nosuch"])
    with pytest.raises(InvalidInput, match="postgresql://"):
        instantiate_backend("postgres", tmp_path)


def test_connection_layers_addresses_and_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DB_PASSWORD", "s3cret")
    assert merge_config_layers({"a": {"b": 1, "c": 2}}, None, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    url = parse_url("arangodb+https://u:p%40w@h.example:8530/db?x=1&y=2&y=3")
    assert url["_engine"] == "arangodb"
    assert (url["url"], url["port"], url["database"]) == ("https://h.example:8530", 8530, "db")
    assert url["auth"] == {"username": "u", "password": "p@w"}
    assert url["options"] == {"x": "1", "y": ["2", "3"]}
    assert url["tls"] == {"verify": True}
    assert resolve_env("${DB_PASSWORD}") == resolve_env("$DB_PASSWORD") == "s3cret"
    assert resolve_env("$UNSET_NAME") == "$UNSET_NAME"
    assert resolve_env_recursive({"a": ["$DB_PASSWORD", 1]}) == {"a": ["s3cret", 1]}
    built = build_config("postgres", {"username": "me", "password": "$DB_PASSWORD"}, {"port": 1})
    assert (built["auth"]["username"], built["port"], built["database"]) == ("me", 1, "memwright")
    assert ENGINE_DEFAULTS["postgres"]["auth"]["username"] == "postgres"
    made = CloudConnection.from_config({"password": "$DB_PASSWORD", "extra": 1}, "arangodb")
    assert (made.auth.username, made.auth.password, made.auth.has_credentials) == ("root", "s3cret", True)
    assert made.extra == {"extra": 1}
    assert CloudConnection.from_config({"mode": "local", "port": 99}).url == "http://localhost:99"
    path = TLSConfig.from_dict({"ca_cert_base64": "YWJj"}).resolve_ca_cert_path(str(tmp_path))
    assert Path(str(path)).read_bytes() == b"abc"


def test_embedding_provider(embedder: Any) -> None:
    provider = LocalEmbeddingProvider(embedder=embedder)
    assert provider.dimension == len(provider.embed("text"))
    adapter = ChromaEmbeddingAdapter(provider)
    assert adapter(["text"]) == adapter.embed_query(["text"]) == [provider.embed("text")]
    assert adapter.name() == "memwright:shared"
    assert get_embedding_provider("hashing") is get_embedding_provider("hashing")
