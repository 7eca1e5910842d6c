"""AgentMemory on PostgreSQL is AgentMemory: the other issues' tests with another address, and equal bytes."""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest.importorskip("psycopg")
from tests import test_isolation as isolation
from tests import test_processes as processes
from tests import test_replay as replay
from tests.determinism_run import answer
from tests.stateful.test_model import POLICY, Machine, examples
from tests.stores import pg

from twofold import AgentMemory, ManualClock
from twofold.stores import open_store
from twofold.vault import IdSource

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))


class OnPostgres(Machine):
    """Any history, with the intervals that the database derives compared to the log after every step."""

    count = itertools.count()

    def __init__(self) -> None:
        self.folder = Path(f"/machine/{next(self.count)}")
        super().__init__()

    def open(self) -> AgentMemory:
        assert self.folder is not None
        return AgentMemory(
            pg.address(self.folder),
            embedder="hashing:64",
            clock=self.clock,
            ids=self.ids,
            entropy=lambda size: next(self.salts).to_bytes(size, "big"),
            decay=POLICY,
        )


TestOnPostgres = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))(
    examples(OnPostgres, 8)
)


def test_writers_and_readers_in_processes(tmp_path: Path) -> None:
    address: Any = pg.address(tmp_path)
    processes.four_writers_two_readers(address, 20, 3.0)


def test_kills_leave_what_was_acknowledged(tmp_path: Path) -> None:
    address: Any = pg.address(tmp_path)
    inside = [processes.killed_run(address, seed, inside=seed % 2 == 0) for seed in range(4)]
    assert any(inside)


def test_threads_share_a_handle(tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta"]
    with AgentMemory(pg.address(tmp_path), embedder="hashing:64") as mem:

        def work(word: str) -> None:
            for i in range(25):
                made = mem.add(f"{word} item {i} of a thread", tags=[word])
                assert mem.recall(f"{word} item {i}", k=1)[0].memory.id == made.id

        with ThreadPoolExecutor(len(words)) as pool:
            list(pool.map(work, words))
        assert mem.stats()["memories"] == 100
        processes.assert_sound(mem)


def test_receipts_replay_at_their_place_in_a_long_history(tmp_path: Path) -> None:
    address: Any = pg.address(tmp_path)
    told = replay.tell(address, 200, 20)
    try:
        assert replay.unlike(told.mem, told.history.taken) == []
        assert replay.unlike(told.late, told.history.taken) == []
    finally:
        told.mem.close()
        told.late.close()


@hypothesis.given(seed=isolation.SEEDS)
@hypothesis.settings(max_examples=3)
def test_tenants_leave_no_trace(seed: int) -> None:
    """What one tenant is told does not depend on what another does in the same tables."""
    count = itertools.count()
    beside, alone = isolation.tenants_told(
        isolation.tenants_plan(seed),
        isolation.owners,
        lambda: open_store(pg.address(Path(f"/isolation/{seed}/{next(count)}/{os.urandom(8).hex()}"))),
    )
    # The size is that of the whole database, as documented, and each store has a schema of its own.
    unsized = functools.partial(re.sub, r"'bytes': \d+|schema=t_[0-9a-f]+", "")
    isolation.same(list(map(unsized, beside)), list(map(unsized, alone)))


# Equal bytes

NAMES = "Ann Bob Chen Dara Eve Farid Gita Hugo".split()
THINGS = (
    "billing service,order database,Atlas cluster,deploy script v2.1,cache at 10.0.0.7,数据库,规划器".split(
        ","
    )
)
DID = "restarted moved tested documented broke measured renamed 升级了 迁移了".split()
KEYS = [None, None, None, "server.a.ip", "server.b.ip", "owner"]


def random_items(source: random.Random, count: int) -> list[dict[str, Any]]:
    out = []
    for i in range(count):
        who, thing, did = source.choice(NAMES), source.choice(THINGS), source.choice(DID)
        key = source.choice(KEYS)
        out.append(
            {
                "content": f"{who} {did} the {thing} {source.choice(DID)} {source.randrange(400)}.",
                "speaker": who if source.random() < 0.5 else None,
                "session_id": f"s{i // 15}" if source.random() < 0.8 else None,
                "tags": source.sample(THINGS, source.randrange(3)),
                "key": key,
                "namespace": source.choice(["default", "default", "build/a"]),
                "event_date": f"2026-0{source.randrange(1, 7)}-{source.randrange(1, 29):02d}"
                if source.random() < 0.4
                else None,
                "confidence": source.choice([1.0, 0.9, 0.5]),
                "metadata": {"role": source.choice(["user", "assistant"])} if source.random() < 0.3 else {},
                "pinned": source.random() < 0.05,
            }
        )
    return out


def random_query(source: random.Random) -> tuple[str, dict[str, Any]]:
    text = (
        f"{source.choice(['What did', 'Who', 'When was', ''])} {source.choice(NAMES)} {source.choice(DID)} "
    )
    text += source.choice(THINGS)
    asked: dict[str, Any] = {"k": source.choice([3, 10, 30])}
    for name, value, share in (
        ("budget", source.choice([60, 300]), 0.3),
        ("as_of", f"2026-0{source.randrange(1, 8)}-15", 0.3),
        ("namespaces", ["*"], 0.4),
        ("filters", {"tags": [source.choice(THINGS)]}, 0.3),
        ("profile", source.choice(["rrf", {"mmr_lambda": 0.7}]), 0.2),
    ):
        if source.random() < share:
            asked[name] = value
    return text, asked


def told(address: Any, items: list[dict[str, Any]], queries: list[Any], export: Path) -> list[Any]:
    """What a store of these items answers, and says of itself."""
    source, count = random.Random(5), itertools.count(1)
    clock = ManualClock("2026-07-01T00:00:00Z")

    def entropy(size: int) -> bytes:
        return next(count).to_bytes(size, "big")

    with AgentMemory(
        address, embedder="hashing:128", clock=clock, ids=IdSource(entropy), entropy=entropy
    ) as mem:
        made: list[str] = []
        for at in range(0, len(items), 50):
            made += [m.id for m in mem.add_many(items[at : at + 50])]
            clock.advance(hours=7)
        for act in (mem.forget, mem.restore, mem.forget):
            act(made[7])
        mem.erase(source.choice(made[100:]), reason="asked")
        for memory in mem.search(key="server.a.ip", include_superseded=True, limit=3):
            if memory.superseded_by is not None:
                mem.restore(memory.id)
        mem.link(made[3], made[77], "caused")
        answers = [answer(mem.recall(text, **asked)) for text, asked in queries]
        kept = mem.recall(*queries[0][:1], keep=True)
        answers.append(kept.receipt.id)
        replayed = mem.replay(kept.receipt)
        assert replayed.identical
        answers.append(answer(replayed.recall))
        mem.export_json(export)
        answers.append([mem.verify().head, mem.verify().problems, mem.health()["healthy"]])
        return answers


def same(sqlite: Path, address: str, memories: int, queries: int) -> None:
    source = random.Random(11)
    items = random_items(source, memories)
    asked = [random_query(source) for _ in range(queries)]
    one = told(sqlite, items, asked, sqlite.with_suffix(".jsonl"))
    other = told(address, items, asked, sqlite.with_suffix(".pg.jsonl"))
    assert sum(len(answered[0]) for answered in one[:queries]) > queries, "the queries find something"
    for question, mine, theirs in zip([*asked, "receipt", "replay", "verify"], one, other, strict=True):
        assert mine == theirs, question
    assert sqlite.with_suffix(".jsonl").read_bytes() == sqlite.with_suffix(".pg.jsonl").read_bytes()


def test_a_thousand_memories_and_two_hundred_queries_give_the_same_bytes(tmp_path: Path) -> None:
    same(tmp_path / "store", pg.address(tmp_path), 1_000, 200)
