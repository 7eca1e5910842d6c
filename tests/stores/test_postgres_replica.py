"""Recalls read from a real streaming standby: never too old, never older than the handle's own writes."""
# ruff: noqa: E402 -- what imports psycopg comes after the skip for those who do not have it

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

psycopg: Any = pytest.importorskip("psycopg")

from tests.stores import pg

from twofold import AgentMemory
from twofold.errors import InvalidInput, NotFound, StoreError
from twofold.stores import open_store, postgres_replica

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))


@pytest.fixture(scope="module")
def pair() -> Iterator[pg.Pair]:
    servers = pg.Pair()
    yield servers
    servers.remove()


@pytest.fixture
def address(pair: pg.Pair, request: pytest.FixtureRequest) -> Iterator[str]:
    """A schema of its own, with ten memories that the standby has too."""
    name = f"s_{abs(hash(request.node.name)):x}"
    url = f"{pair.primary.dsn()}?schema={name}"
    with AgentMemory(url, embedder="hashing:64") as mem:
        mem.add_many([f"note {i} of the order service" for i in range(10)])
    pair.caught_up()
    yield url
    pair.resume()


def reader(pair: pg.Pair, address: str, max_lag: int, **settings: Any) -> AgentMemory:
    return AgentMemory(
        address, embedder="hashing:64", replica=pair.standby.dsn(), max_lag=max_lag, **settings
    )


def state(mem: AgentMemory) -> dict[str, Any]:
    assert mem._vault.replica is not None
    return mem._vault.replica.state()


def texts(mem: AgentMemory, question: str) -> set[str]:
    return {hit.content for hit in mem.recall(question, k=50, promote=False)}


def test_a_standby_that_has_everything_gives_the_same_answer(pair: pg.Pair, address: str) -> None:
    with AgentMemory(address, embedder="hashing:64") as plain, reader(pair, address, 0) as mem:
        now = plain.clock.now()
        wanted = plain.recall("note 7 of the order service", k=5, now=now, promote=False)
        found = mem.recall("note 7 of the order service", k=5, now=now, promote=False)
        assert [(h.memory.id, h.score) for h in found] == [(h.memory.id, h.score) for h in wanted]
        assert found.receipt.seq == wanted.receipt.seq
        assert found.receipt.context_hash == wanted.receipt.context_hash
        assert state(mem)["served"] == {"replica": 1, "primary": 0}
        assert state(mem)["why"] == ""
        assert mem.stats()["replica"]["served"]["replica"] >= 1


def test_what_may_be_read_is_bounded_by_sequence_number(pair: pg.Pair, address: str) -> None:
    with (
        AgentMemory(address, embedder="hashing:64") as writer,
        reader(pair, address, 8) as loose,
        reader(pair, address, 0) as strict,
    ):
        before = loose.recall("note", promote=False).trace.seq
        pair.pause()
        writer.add("a late note about a heron")
        assert texts(strict, "heron") >= {"a late note about a heron"}
        assert "a late note about a heron" not in texts(loose, "heron")
        assert loose.recall("heron", promote=False).trace.seq == before
        assert state(strict)["served"]["primary"] == 1
        writer.add_many([f"filler {i}" for i in range(8)])  # now nine events behind
        found = loose.recall("heron", promote=False)
        assert found.trace.seq == writer._vault.store.head("default").seq
        assert "a late note about a heron" in {hit.content for hit in found}
        pair.resume()
        pair.caught_up()
        writer.add("one more")
        pair.caught_up()
        served = state(strict)["served"]["replica"]
        assert "one more" in texts(strict, "one more")
        assert state(strict)["served"]["replica"] == served + 1


@pytest.mark.parametrize("max_lag", [1000, postgres_replica.ANY_LAG])
def test_a_handle_reads_its_own_writes(pair: pg.Pair, address: str, max_lag: int) -> None:
    with reader(pair, address, max_lag) as mem:
        texts(mem, "note")
        pair.pause()
        made = mem.add("the crane nests by the river", key="crane.place")
        assert "the crane nests by the river" in texts(mem, "crane")
        mem.add("the crane nests on the roof", key="crane.place")
        assert "the crane nests by the river" not in texts(mem, "crane")
        assert "the crane nests on the roof" in texts(mem, "crane")
        agent = mem.as_agent("a", role="orchestrator")
        assert "the crane nests on the roof" in texts(agent, "crane")
        mem.erase(made.id, reason="asked")
        with pytest.raises(NotFound):
            mem.history(made.id)
        assert all("river" not in text for text in texts(mem, "crane"))


def test_an_answer_never_goes_back(pair: pg.Pair, address: str) -> None:
    """A row that was read from the primary, because the replica was too old, stays read."""
    with AgentMemory(address, embedder="hashing:64") as writer, reader(pair, address, 3) as mem:
        pair.pause()
        writer.add_many([f"egret {i}" for i in range(5)])
        first = mem.recall("egret", promote=False)
        assert len(texts(mem, "egret")) >= 5
        again = mem.recall("egret", promote=False)
        assert again.trace.seq >= first.trace.seq


def test_without_the_replica_the_primary_answers(pair: pg.Pair, address: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(postgres_replica, "AWAY", 0.5)
    with AgentMemory(address, embedder="hashing:64") as writer, reader(pair, address, 0) as mem:
        texts(mem, "note")
        pair.standby.stop()
        try:
            writer.add("the replica is away")
            assert "the replica is away" in texts(mem, "away")
            found = state(mem)
            assert found["away"]
            assert "reachable" in found["why"]
        finally:
            pair.standby.start()
        time.sleep(0.6)
        writer.add("the replica is back")
        pair.caught_up()
        served = state(mem)["served"]["replica"]
        assert "the replica is back" in texts(mem, "back")
        assert state(mem)["served"]["replica"] == served + 1


def test_a_replica_of_something_else_is_not_believed(pair: pg.Pair, address: str) -> None:
    other = pg.Server().create()
    try:
        schema = address.partition("schema=")[2]
        with AgentMemory(f"{other.dsn()}?schema={schema}", embedder="hashing:64") as mem:
            mem.add_many([f"false note {i}" for i in range(30)])
        with AgentMemory(address, embedder="hashing:64", replica=other.dsn(), max_lag=-1) as mem:
            assert not any("false" in text for text in texts(mem, "note"))
            assert "another log" in state(mem)["why"]
            wrong = [check for check in mem.health()["checks"] if not check["ok"]]
            # Answers are right, but whoever configured it has to hear of it.
            assert [check["name"] for check in wrong] == ["replica"]
            assert "another log" in wrong[0]["detail"]
    finally:
        other.remove()


def test_a_replica_without_the_schema_is_left_alone(pair: pg.Pair, address: str) -> None:
    pair.pause()
    fresh = address + "_new"
    with reader(pair, fresh, 5) as mem:
        mem.add("hello")
        with AgentMemory(fresh, embedder="hashing:64") as other:
            other.add_many([f"hello {i}" for i in range(9)])
        assert len(texts(mem, "hello")) == 10
        assert state(mem)["why"]


@pytest.mark.skipif(not pg.extended(), reason="no pgvector here")
def test_vectors_words_and_relations_searched_on_the_replica(
    pair: pg.Pair, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.primary.extend("vector")
    pushed = f"{address}&mode=pushdown"
    with AgentMemory(pushed, embedder="hashing:64") as plain, reader(pair, pushed, 0) as mem:
        made = plain.add_many([{"content": f"swan {i} on the lake", "entities": ["Ann"]} for i in range(400)])
        plain.link(made[0].id, made[1].id, "swims with")
        now = plain.clock.now()
        wanted = plain.recall("swan 7", k=5, now=now, promote=False)
        pair.caught_up()
        found = mem.recall("swan 7", k=5, now=now, promote=False)
        assert [(h.memory.id, h.score) for h in found] == [(h.memory.id, h.score) for h in wanted]
        assert set(mem._vault.replica.standby._filled) == {"default"}  # type: ignore[union-attr]
        reads = reads_of(mem, monkeypatch)
        asked = "what does Swan 11 say of Ann and the lake?"
        found = [m.recall(asked, k=5, now=now, promote=False) for m in (plain, mem)]
        same = [[(h.memory.id, h.score) for h in one] for one in found]
        assert same[0] == same[1]
        words, walks = (sum(bool(read[1][at]) for read in reads) for at in (2, 3))
        assert words == 1, "the words' postings came from the standby"
        assert walks == 1, "so did what is near the entities named"
        assert {where for where, _ in reads} == {"standby"}
        pair.pause()
        plain.add("swan 999 on the lake", entities=["Ann"])
        reads.clear()
        found = [hit.content for hit in mem.recall("swan 999 of Ann", k=50, promote=False)]
        assert "swan 999 on the lake" in found
        assert {where for where, _ in reads} == {"primary"}, "the standby has not what is asked for"


@pytest.mark.skipif(not pg.extended(), reason="no pgvector here")
def test_a_replica_whose_words_are_not_there_yet_is_not_asked_for_them(pair: pg.Pair, address: str) -> None:
    """The searchable tables are made on the primary without a new event: the head does not tell of them."""
    pair.primary.extend("vector")
    open_store(f"{address}&mode=pushdown").close()  # the tables are there, and empty
    pair.caught_up()
    pair.pause()
    with reader(pair, f"{address}&mode=pushdown", 0) as mem:
        assert [hit.content for hit in mem.recall("note 7", k=1, promote=False)] == [
            "note 7 of the order service"
        ]
        assert mem._vault.replica.standby._filled == {}  # type: ignore[union-attr]
        pair.resume()
        pair.caught_up()
        assert [hit.content for hit in mem.recall("note 8", k=1, promote=False)] == [
            "note 8 of the order service"
        ]
        assert set(mem._vault.replica.standby._filled) == {"default"}  # type: ignore[union-attr]


@pytest.mark.skipif(not pg.extended(), reason="no pgvector here")
def test_a_replica_that_claims_no_words_is_not_asked_for_them(pair: pg.Pair) -> None:
    """No vectors either, whose absence would tell: the table of words is there, and nobody has begun to search."""
    pair.primary.extend("vector")
    url = f"{pair.primary.dsn()}?schema=wordless"
    with AgentMemory(url, embedder=None) as mem:
        mem.add("a heron by the river")
    open_store(f"{url}&mode=pushdown").close()
    pair.caught_up()
    pair.pause()
    try:
        replica = {"replica": pair.standby.dsn(), "max_lag": 0}
        with AgentMemory(f"{url}&mode=pushdown", embedder=None, **replica) as mem:
            assert texts(mem, "heron") == {"a heron by the river"}
            assert mem._vault.replica.standby._filled == {}  # type: ignore[union-attr]
    finally:
        pair.resume()


def reads_of(mem: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What is searched from now on, with its arguments, and on which of the two servers it was found."""
    replica: Any = mem._vault.replica
    reads: list[tuple[str, Any]] = []
    for name in ("primary", "standby"):
        store = getattr(replica, name)

        def search(*args: Any, name: str = name, own: Any = store.search) -> Any:
            found = own(*args)
            reads.append((name, args))
            return found

        monkeypatch.setattr(store, "search", search)
    return reads


def test_a_replica_needs_a_store_that_can_have_one() -> None:
    with pytest.raises(StoreError, match="no PostgreSQL store"):
        AgentMemory(":memory:", embedder=None, replica="postgresql://nobody@127.0.0.1:1/x")
    with pytest.raises(InvalidInput, match="named by its address"):
        AgentMemory(":memory:", embedder=None, replica="./copy")


def test_recalls_go_on_while_there_is_no_primary() -> None:
    servers = pg.Pair()
    try:
        with AgentMemory(servers.primary.dsn(), embedder="hashing:64") as mem:
            mem.add_many([f"note {i}" for i in range(10)])
        servers.caught_up()
        mem = reader(servers, servers.primary.dsn(), -1, busy_timeout=1.0)
        servers.caught_up()
        assert len(texts(mem, "note")) == 10
        servers.primary.kill()
        assert len(texts(mem, "note")) == 10
        with pytest.raises(StoreError):
            mem.add("nobody to take this")
        mem.close()
    finally:
        servers.remove()


def test_a_log_that_lost_its_end_is_read_anew() -> None:
    """An asynchronous standby is promoted without the last writes: what is in RAM follows the log that is left."""
    servers = pg.Pair()
    try:
        both = f"postgresql://{pg.ROLE}@127.0.0.1:{servers.primary.port},127.0.0.1:{servers.standby.port}/twofold"
        with (
            AgentMemory(both, embedder="hashing:64") as mem,
            AgentMemory(both, embedder="hashing:64") as idle,
        ):
            mem.add_many([f"kept note {i}" for i in range(5)])
            servers.caught_up()
            servers.standby.stop()
            del servers.standby.settings["primary_conninfo"]
            servers.standby.start()
            mem.add_many([f"lost note {i}" for i in range(4)])
            assert len(texts(mem, "lost note")) == 9
            assert len(texts(idle, "lost note")) == 9
            servers.primary.kill()
            servers.standby.promote()
            assert texts(mem, "lost note") == {f"kept note {i}" for i in range(5)}
            made = mem.add_many([f"new note {i}" for i in range(8)])  # the log is longer than it was
            assert {m.content for m in made} <= texts(idle, "note")
            assert not any("lost" in text for text in texts(idle, "note"))
            for one in (mem, idle):
                assert one.health()["healthy"], one.health()
                assert one.verify().ok
    finally:
        servers.remove()
