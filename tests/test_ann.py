"""Approximate search: a graph proposes, exact scores decide, receipts replay, and what does not fit is not used."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold import AgentMemory
from twofold.clock import ManualClock
from twofold.errors import InvalidInput
from twofold.index import ann
from twofold.retrieve import vector

here = importlib.util.find_spec("hnswlib") is not None
with_library = pytest.mark.skipif(not here, reason="hnswlib is not installed (pip install 'twofold[ann]')")

ROWS = 700
SEEN = "2026-03-01T10:00:00Z"
WORDS = "atlas boiler cedar delta ember fjord grain helix inlet jetty kiln lathe mortar nickel ochre piston".split()
QUESTIONS = [
    "boiler and cedar near the jetty",
    "which lathe has nickel",
    "ochre piston grain 13",
    "helix 401",
]

Open = Callable[..., AgentMemory]


def texts(count: int, start: int = 0) -> list[dict[str, Any]]:
    source = random.Random(start)
    return [
        {"content": f"{' '.join(source.choices(WORDS, k=6))} number {start + i}", "tags": [f"t{i % 5}"]}
        for i in range(count)
    ]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    handles: list[AgentMemory] = []

    def open_(**settings: Any) -> AgentMemory:
        chosen = {"ann": "hnswlib", "ann_rows": 500, **settings}
        mem = AgentMemory(tmp_path / "store", embedder="hashing:64", clock=ManualClock(SEEN), **chosen)
        handles.append(mem)
        return mem

    yield open_
    for mem in handles:
        mem.close()


@pytest.fixture
def mem(opened: Open) -> AgentMemory:
    """A store with a graph over all of its rows."""
    found = opened()
    found.add_many(texts(ROWS))
    found.maintain()
    assert graph_of(found) is not None
    return found


def part_of(mem: AgentMemory) -> Any:
    return next(iter(mem._vault.index("default").vectors.values()))


def graph_of(mem: AgentMemory) -> Any:
    return part_of(mem).ann


def answer(found: Any) -> list[Any]:
    return [(h.memory.id, h.score.hex(), h.sources) for h in found]


def state(mem: AgentMemory) -> dict[str, Any]:
    return next(c for c in mem.health()["checks"] if c["name"] == "approximate search")


@with_library
def test_answers_are_those_of_exact_search_and_say_how_they_were_found(
    mem: AgentMemory, opened: Open
) -> None:
    exact = opened(ann="off")
    for question in QUESTIONS:
        found = mem.recall(question, promote=False)
        assert found.trace.approximate == ("vector",)
        assert len(found.receipt.to_json()["proposed"]) >= 200
        plain = exact.recall(question, promote=False)
        assert plain.trace.approximate == ()
        assert "proposed" not in plain.receipt.to_json()
        assert answer(found) == answer(plain)


@with_library
@pytest.mark.parametrize("keep", [1.0, 0.4], ids=["good graph", "graph that misses much"])
def test_receipts_replay_without_the_graph(
    mem: AgentMemory, opened: Open, keep: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = vector.propose

    def forgetful(*arguments: Any) -> Any:
        rows = real(*arguments)
        assert rows is not None
        return rows[: int(keep * len(rows))]

    monkeypatch.setattr(vector, "propose", forgetful)
    receipts, answers = [], []
    for question in QUESTIONS:
        found = mem.recall(question, promote=False, keep=True)
        receipts.append(found.receipt.id)
        answers.append(answer(found))
    mem.add_many(texts(60, start=5000))
    mem.forget(mem.recall(QUESTIONS[0])[0].memory.id)
    mem.close()
    monkeypatch.undo()
    exact = opened(ann="off")
    differing = 0
    for question, receipt, then in zip(QUESTIONS, receipts, answers, strict=True):
        again = exact.replay(receipt)
        assert again.identical, again.differences
        assert answer(again.recall) == then
        assert again.recall.trace.approximate == ("vector",)
        differing += answer(exact.recall(question, promote=False)) != then
    # With a graph that misses much the answers are others than the exact ones: what replays is what was said.
    assert keep == 1.0 or differing
    assert exact.verify().ok


@with_library
def test_exact_receipts_replay_exactly_where_there_is_a_graph(mem: AgentMemory, opened: Open) -> None:
    receipt = opened(ann="off").recall(QUESTIONS[0], promote=False).receipt.to_json()
    replayed = mem.replay(receipt)
    assert replayed.identical
    assert replayed.recall is not None
    assert replayed.recall.trace.approximate == ()


@with_library
def test_narrowed_searches_are_exact(mem: AgentMemory) -> None:
    memory = mem.recall(QUESTIONS[0])[0].memory
    for options in (
        {"filters": {"tags": ["t1"]}},
        {"as_of": "2026-03-02T00:00:00Z"},
        {"known_at": "2026-03-02T00:00:00Z"},
        {"namespaces": "elsewhere"},
    ):
        assert mem.recall(QUESTIONS[0], promote=False, **options).trace.approximate == ()
    for m in list(mem.search(limit=ROWS // 8)):
        mem.forget(m.id)
    assert mem.recall(QUESTIONS[0], promote=False).trace.approximate == (), "more than a tenth has gone"
    assert mem.recall(memory.content, promote=False)


@with_library
def test_a_graph_that_proposes_too_little_is_not_used(mem: AgentMemory) -> None:
    graph, part = graph_of(mem), part_of(mem)
    everything = np.ones(len(part.index), np.bool_)
    query = part.index.rows(np.array([3], np.int64))[0]
    assert len(graph.search(part, query, 200, everything)) >= 200
    assert graph.search(part, query, ROWS + 1, everything) is None
    nearest = graph.search(part, query, 10, everything)
    without = everything.copy()
    without[nearest] = False
    without[graph._index.knn_query(query, k=18, num_threads=1)[0][0].astype(int)] = False
    assert graph.search(part, query, 10, without) is None, "all it proposes is excluded"


@with_library
def test_rows_outside_the_graph_are_found_at_once(mem: AgentMemory) -> None:
    made = graph_of(mem)
    new = mem.add("quartz umbrella on the jetty")
    found = mem.recall("quartz umbrella on the jetty")
    assert found[0].memory.id == new.id
    assert "vector" in found[0].sources
    assert found.trace.approximate == ("vector",)
    mem.maintain("2026-03-05T00:00:00Z")
    assert graph_of(mem) is made, "one new row does not outgrow it"


@with_library
def test_outgrown_graphs_are_made_anew(mem: AgentMemory) -> None:
    made = graph_of(mem)
    mem.add_many(texts(ROWS // 4, start=9000))
    mem.maintain(dry_run=True)
    assert graph_of(mem) is made
    mem.maintain()
    assert graph_of(mem) is not made
    assert len(graph_of(mem)) == ROWS + ROWS // 4
    made = graph_of(mem)
    for m in list(mem.search(limit=ROWS // 6)):
        mem.forget(m.id)
    mem.maintain()
    assert len(graph_of(mem)) == ROWS + ROWS // 4 - ROWS // 6
    assert mem.recall(QUESTIONS[1], promote=False).trace.approximate == ("vector",)


@with_library
def test_memories_with_several_windows(opened: Open) -> None:
    mem, exact = opened(), opened(ann="off")
    mem._vault.embedder.max_tokens = exact._vault.embedder.max_tokens = 16
    mem.add_many(texts(400))
    mem.add_many(
        {"content": ". ".join(t["content"] for t in texts(6, start=6000 + i))} for i in range(0, 600, 6)
    )
    mem.maintain()
    assert len(part_of(mem).index) > 900
    for question in QUESTIONS:
        found = mem.recall(question, promote=False)
        assert found.trace.approximate == ("vector",)
        assert answer(found) == answer(exact.recall(question, promote=False))
        assert exact.replay(found.receipt.to_json()).identical


@with_library
def test_the_build_is_deterministic(mem: AgentMemory, tmp_path: Path) -> None:
    part, graph = part_of(mem), graph_of(mem)
    again = ann.build(part, np.ones(len(part.index), np.bool_), graph.origin)
    for name, one in (("a", graph), ("b", again)):
        ann.save(one, tmp_path / f"{name}.ann")
    assert (tmp_path / "a.ann").read_bytes() == (tmp_path / "b.ann").read_bytes()


@with_library
def test_the_file_is_read_by_the_next_process(mem: AgentMemory, opened: Open) -> None:
    wanted = [answer(mem.recall(q, promote=False)) for q in QUESTIONS]
    mem.close()
    again = opened()
    assert [answer(again.recall(q, promote=False)) for q in QUESTIONS] == wanted
    assert again.recall(QUESTIONS[0], promote=False).trace.approximate == ("vector",)
    found = state(again)
    assert found["ok"]
    assert f"graph over {ROWS} of {ROWS} vectors, read from its file; recall at 10 is" in found["detail"]


def other_byte(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def other_header(**fields: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        header = json.loads(ann.header_of(path).read_text())
        ann.header_of(path).write_text(json.dumps(header | fields))

    return change


def no_header(path: Path) -> None:
    ann.header_of(path).write_text("{")


@with_library
@pytest.mark.parametrize(
    "damage, reason",
    [
        (other_byte, "damaged"),
        (shorter, "damaged"),
        (no_header, "cannot be read"),
        (other_header(head="00" * 32), "another log"),
        (other_header(erasures=1), "erasures"),
        (other_header(fingerprint="another"), "fingerprint"),
        (other_header(library="hnswlib 0.0"), "library"),
        (other_header(rows=3), "other rows"),
        (ann.drop, "none yet"),
    ],
)
def test_a_file_that_does_not_fit_is_reported_and_made_anew(
    mem: AgentMemory, opened: Open, damage: Callable[[Path], None], reason: str
) -> None:
    path = mem._vault.cache_file("default").with_suffix(".ann")
    mem.close()
    damage(path)
    again = opened()
    assert again.recall(QUESTIONS[0], promote=False).trace.approximate == ()
    found = state(again)
    assert found["ok"]
    assert reason in found["detail"]
    assert "search is exact" in found["detail"]
    again.maintain()
    assert again.recall(QUESTIONS[0], promote=False).trace.approximate == ("vector",)
    again.close()
    assert opened().recall(QUESTIONS[0], promote=False).trace.approximate == ("vector",)


@with_library
def test_an_erasure_drops_the_graph(mem: AgentMemory) -> None:
    folder = mem._vault.cache_file("default").parent
    assert len(list(folder.glob("*.ann*"))) == 2
    found = mem.recall(QUESTIONS[0], promote=False, keep=True)
    unfinished = folder / f"{ann.TEMPORARY}left-by-a-crash"
    unfinished.write_bytes(b"vectors")
    mem.erase(mem.recall(QUESTIONS[1])[0].memory.id, reason="asked to")
    assert list(folder.glob("*.ann*")) == []
    assert not unfinished.exists()
    assert mem.recall(QUESTIONS[0], promote=False).trace.approximate == ()
    assert mem.replay(found.receipt.to_json()).altered_by_erasure
    mem.maintain()
    assert len(graph_of(mem)) == ROWS - 1


@with_library
def test_health_fails_a_graph_that_misses_much(mem: AgentMemory) -> None:
    assert state(mem)["ok"]
    part, graph = part_of(mem), graph_of(mem)
    index = ann.library().Index(space="ip", dim=64)
    index.init_index(max_elements=ROWS, random_seed=1)
    shuffled = np.random.default_rng(1).permutation(ROWS).astype(np.int64)
    index.add_items(part.index.rows(shuffled), graph.members, num_threads=1)
    part.ann = ann.VectorGraph(graph.origin, index, graph.members)
    found = state(mem)
    assert not found["ok"]
    assert "set ann='off'" in found["detail"]
    assert not mem.health()["healthy"]


@with_library
def test_a_receipt_cannot_name_rows_its_asker_may_not_see(mem: AgentMemory) -> None:
    secret = mem.add("boiler and cedar near the jetty, secretly", namespace="vault")
    body = mem.recall(QUESTIONS[0], promote=False).receipt.to_json()
    ordinal = mem._vault.index("default").rows - 1
    replayed = mem.replay({**body, "proposed": [*body["proposed"], ordinal, 10**9]})
    assert replayed.recall is not None
    assert secret.id not in [h.memory.id for h in replayed.recall]
    for bad in ([-1], ["0"], [True], 7):
        with pytest.raises(InvalidInput, match="not a receipt"):
            mem.replay({**body, "proposed": bad})


@with_library
def test_small_tenants_and_other_stores_search_exactly(opened: Open, tmp_path: Path) -> None:
    mem = opened(ann_rows=5000)
    mem.add_many(texts(100))
    mem.maintain()
    assert mem.recall(QUESTIONS[0]).trace.approximate == ()
    assert "below ann_rows (5000)" in state(mem)["detail"]
    with AgentMemory("memory://", embedder="hashing:64", ann="hnswlib", ann_rows=50) as kept:
        kept.add_many(texts(300))
        kept.maintain()
        assert kept.recall(QUESTIONS[0]).trace.approximate == ("vector",)


def test_without_the_library_opening_says_what_to_do(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    with pytest.raises(InvalidInput, match=r"pip install 'twofold\[ann\]'.*compiler"):
        opened()
    opened(ann="off").add("a memory")


def test_the_setting_is_checked(opened: Open) -> None:
    with pytest.raises(InvalidInput, match="ann must be one of off, hnswlib"):
        opened(ann="faiss")
    with pytest.raises(InvalidInput, match="ann_rows must be a whole number of at least 1"):
        opened(ann_rows=0)


def test_origins_tell_every_difference() -> None:
    fields = {f.name for f in dataclasses.fields(ann.Origin)}
    assert {"tenant", "generation", "fingerprint", "erasures", "library", "links", "seed", "head"} <= fields
