"""Every method over HTTP gives what it gives on the spot: same objects, same exceptions."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, Filters, Profile, Role, Session, errors
from twofold.serve.client import TwofoldClient
from twofold.serve.table import _CONSTANTS as CONSTANTS
from twofold.serve.table import ROUTES

from .conftest import Running

TEXTS = [
    "The planner chose Rust for the critical path",
    "服务器A的IP是192.168.1.100",
    "The IP of server A is 192.168.1.100",
    "Ann said the release slips to Friday",
]


@pytest.fixture
def here(running: Running) -> AgentMemory:
    """The server's own handle on the same store."""
    return running.server.owner("default")


@pytest.fixture
def filled(client: TwofoldClient, running: Running) -> list[Any]:
    made = client.add_many([{"content": t, "tags": ["t"], "metadata": {"n": i}} for i, t in enumerate(TEXTS)])
    running.clock.advance(hours=1)
    return made


def test_adding(client: TwofoldClient, here: AgentMemory) -> None:
    when = dt.datetime(2025, 3, 12, 10, 30, tzinfo=dt.UTC)
    one = client.add(
        "Ann likes tea", tags=("a", "b"), entities={"Ann"}, confidence=0.5, pinned=True, event_date=when,
        speaker="Ann", visibility="team", source_id="s", session_id="x", metadata={"深": [1, None, {"k": 2.5}]},
    )  # fmt: skip
    assert one == here.get(one.id)
    assert one.event_date == when
    assert one.metadata["深"] == [1, None, {"k": 2.5}]
    first = client.add("The port of api is 80", key="api.port")
    planned = client.add("The port of api is 81", key="api.port", dry_run=True)
    assert planned == here.add("The port of api is 81", key="api.port", dry_run=True)
    assert planned[0].old_id == first.id
    assert len(here.search()) == 2
    changed = client.update(one.id, content="Ann likes coffee", speaker=None)
    assert changed == here.get(one.id)
    assert changed.version == 2
    assert changed.speaker is None
    assert client.history(one.id) == here.history(one.id)


def test_many_come_in_order_and_in_batches(client: TwofoldClient, here: AgentMemory) -> None:
    seen: list[int] = []
    made = client.add_many((f"note {i}" for i in range(25)), batch=10, progress=seen.append)
    assert [m.content for m in made] == [f"note {i}" for i in range(25)]
    assert seen == [10, 20, 25]
    assert client.add_many([]) == []
    with pytest.raises(errors.InvalidInput, match="content"):
        client.add_many([{"content": "fine"}, {"content": ""}])
    with pytest.raises(errors.InvalidInput):
        client.add_many([3])
    assert len(here.search(limit=None)) == 25


def test_recall_is_the_same_object(
    client: TwofoldClient, here: AgentMemory, filled: list[Any], running: Running
) -> None:
    options: dict[str, Any] = {
        "k": 3, "budget": 60, "filters": Filters(tags=("t",)), "namespaces": ["default"], "promote": False,
        "as_of": dt.datetime(2026, 1, 1, 2, tzinfo=dt.UTC), "include_faded": True,
    }  # fmt: skip
    far, near = client.recall("IP of server A", **options), here.recall("IP of server A", **options)
    assert type(far) is type(near)
    assert far.hits == near.hits
    assert [h.score.hex() for h in far] == [h.score.hex() for h in near]
    assert far.trace == near.trace
    assert far.tokens == near.tokens
    assert far.faded == near.faded
    assert far.context() == near.context()
    assert far.receipt.id == near.receipt.id
    assert far.receipt.to_json() == near.receipt.to_json()
    assert client.recall_as_context("server A", budget=100) == here.recall_as_context("server A", budget=100)
    assert client.recall("server A", profile=Profile()).hits
    assert client.recall("server A", profile={"tag_weight": 0.2, "mmr_lambda": 0.9}).hits


def test_receipts_replay_over_the_wire(client: TwofoldClient, filled: list[Any]) -> None:
    kept = client.recall("planner", keep=True)
    assert client.receipts() == [(kept.receipt.id, client.receipts()[0][1])]
    client.add("something after it")
    for receipt in (kept.receipt, kept.receipt.id, kept.receipt.to_json()):
        again = client.replay(receipt)
        assert again.identical
        assert again.recall is not None
        assert again.recall.hits[0].content == TEXTS[0]
    client.feedback(kept.receipt.id, [kept[0].memory.id])
    assert client.audit()[-1]["kind"] == "feedback"
    with pytest.raises(errors.InvalidInput, match="not that of its content"):
        client.replay({**kept.receipt.to_json(), "k": 99})
    with pytest.raises(errors.NotFound):
        client.replay("0" * 32)


def test_reading(client: TwofoldClient, here: AgentMemory, filled: list[Any]) -> None:
    first = filled[0]
    assert client.get(first.id) == here.get(first.id)
    assert client.get("nothing") is None
    assert client.get(first.id, as_of="2020-01-01") is None
    assert client.search(tag="t", limit=None) == here.search(tag="t", limit=None)
    assert client.search(metadata={"n": 2}) == here.search(metadata={"n": 2})
    assert client.search(limit=2) == here.search(limit=2)
    assert client.current_facts(recorded_after=0) == here.current_facts()
    assert list(client) == list(here)
    assert client.timeline("server A") == here.timeline("server A") != []
    assert client.why(first.id) == here.why(first.id)
    told = client.explain("planner", first.id)
    local = here.explain("planner", first.id)
    assert (told.place, told.reason, told.parts) == (local.place, local.reason, local.parts)
    assert told.recall.hits == local.recall.hits


def test_changing(client: TwofoldClient, here: AgentMemory, filled: list[Any]) -> None:
    a, b, c, d = (m.id for m in filled)
    assert client.forget(a).closed_at is not None
    assert client.restore(a).closed_at is None
    planned = client.supersede(c, d, dry_run=True)
    assert planned == here.supersede(c, d, dry_run=True)
    assert client.supersede(c, d).old_id == c
    assert client.link(a, b, "caused", weight=0.5) is None
    assert client.flag(a, "check this") is None
    assert client.erase_where(source_id="none").ids == ()
    gone = client.erase(d, reason="request 17")
    assert gone.ids == (d,)
    assert gone.applied
    assert here.get(d) is None


def test_keeping(client: TwofoldClient, here: AgentMemory, filled: list[Any]) -> None:
    assert client.stats()["memories"] == here.stats()["memories"] == 4
    assert client.health() == here.health()
    report = client.verify()
    assert report == here.verify()
    assert client.verify(expected_head=report.head).ok
    assert not client.verify(expected_head="1:00").ok
    assert client.maintain(dry_run=True) == here.maintain(dry_run=True)
    assert client.maintain().recorded
    assert client.gc() == here.gc()
    assert client.flush() is None
    assert [e["seq"] for e in client.audit(after=1, limit=2)] == [2, 3]


def test_fitting(client: TwofoldClient, here: AgentMemory, filled: list[Any]) -> None:
    kept = client.recall("planner", keep=True)
    client.feedback(kept.receipt, [kept[0].memory.id])
    assert client.fit_profile() == here.fit_profile()
    assert client.fit_profile("rrf").profile.name == "rrf"


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_profile_at_its_limits_is_no_failure(client: TwofoldClient, filled: list[Any], name: str) -> None:
    schema = CONSTANTS[name]
    kinds = schema.get("anyOf", [schema])[0]
    for value in kinds.get("enum", [kinds.get("minimum"), kinds.get("maximum")]):
        for fusion in ("score", "rrf"):
            assert (
                client.recall("server A", profile={"fusion": fusion, name: value}, budget=100).tokens <= 100
            )


def test_export_and_import_are_lossless(
    serve: Any, running: Running, client: TwofoldClient, filled: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    lines = client.export_json(file)
    assert lines == len(file.read_text("utf-8").splitlines()) > 8
    local = tmp_path / "local.jsonl"
    running.server.owner("default").export_json(local)
    assert file.read_bytes() == local.read_bytes()
    other = running.client(running.key("b", tenant="other"))
    assert not other.import_json(file, dry_run=True).applied
    told: list[int] = []
    report = other.import_json(file, progress=told.append)
    assert report.lossless
    assert told == [4]
    assert other.verify().head == client.verify().head
    with pytest.raises(errors.NotFound, match="no file"):
        other.import_json(tmp_path / "missing")
    file.write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(errors.InvalidInput, match="the body line 1") as caught:
        other.import_json(file)
    assert "/tmp" not in str(caught.value)
    assert not list(tmp_path.glob(".*"))


def test_narrowing(client: TwofoldClient, filled: list[Any]) -> None:
    executor = client.as_agent("exec-1", role=Role.EXECUTOR, namespaces=["build/*"], namespace="build/a")
    assert (executor.agent_id, executor.role, executor.namespace) == ("exec-1", Role.EXECUTOR, "build/a")
    assert executor.add("compiled in 3 s", memory_type="result").namespace == "build/a"
    with pytest.raises(errors.PermissionDenied):
        executor.add("x", namespace="default")
    with pytest.raises(errors.PermissionDenied):
        executor.as_agent("deeper", role="orchestrator").stats()
    reader = client.read_only()
    assert reader.search()
    with pytest.raises(errors.PermissionDenied):
        reader.add("x")
    assert client.tenant == "default"
    with pytest.raises(errors.InvalidInput, match="tenant"):
        client.as_agent("a", tenant="other")


def test_a_quota_is_counted_by_the_server(client: TwofoldClient) -> None:
    narrow = client.as_agent("exec-2", namespaces=["build/a"], write_quota=2)
    narrow.add("one")
    narrow.add("two")
    with pytest.raises(errors.QuotaExceeded):
        narrow.add("three")


def test_agent_memory_takes_an_address(running: Running) -> None:
    key = running.key()
    with AgentMemory(running.url, key=key, namespace="notes") as mem:
        assert isinstance(mem, TwofoldClient)
        assert mem.add("by address").namespace == "notes"
        assert [m.content for m in mem.search()] == ["by address"]
        assert mem.recall("address")[0].content == "by address"
    with pytest.raises(errors.InvalidInput, match="server's own"):
        AgentMemory(running.url, key=key, decay="off")
    with pytest.raises(errors.PermissionDenied, match="tenant"):
        AgentMemory(running.url, key=key, tenant="other")
    with pytest.raises(errors.InvalidInput, match="unknown setting"):
        AgentMemory(":memory:", key=key)


def test_a_key_may_come_from_the_environment(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_KEY", running.key())
    with AgentMemory(running.url) as mem:
        assert mem.stats()["memories"] == 0


def test_a_session_runs_on_a_server(client: TwofoldClient) -> None:
    with Session(client, session_id="s1", snapshot_every=1) as session:
        session.after_response(objective="ship", user_message="go", turn=1)
    assert client.search(memory_types=["snapshot"])[0].session_id == "s1"


def test_every_route_was_called_here() -> None:
    """The list of routes is what this file must exercise."""
    source = Path(__file__).read_text(encoding="utf-8")
    for name in ROUTES:
        assert f"client.{name}(" in source or f"other.{name}(" in source, name


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.add(""),
        lambda m: m.add("x\0y"),
        lambda m: m.add("x", confidence=2),
        lambda m: m.add("x", nonsense=1),
        lambda m: m.add("x", event_date=dt.datetime(2026, 1, 1)),
        lambda m: m.recall("x", k=0),
        lambda m: m.recall("x", k=True),
        lambda m: m.recall("x", filters={"nope": 1}),
        lambda m: m.recall("x", as_of="yesterday"),
        lambda m: m.recall("x", vector=[float("nan")]),
        lambda m: m.search(nope=1),
        lambda m: m.forget("missing"),
        lambda m: m.update("missing", content="x"),
        lambda m: m.as_agent("a", role="king").stats(),
        lambda m: m.recall("x", namespaces=[]),
        lambda m: m.explain("x", "missing"),
        lambda m: m.link("a", "b"),
        lambda m: m.erase("missing", reason="r"),
    ],
)
def test_errors_have_the_same_class(client: TwofoldClient, here: AgentMemory, call: Any) -> None:
    here.add("there is something")
    with pytest.raises(errors.TwofoldError) as local:
        call(here)
    with pytest.raises(errors.TwofoldError) as remote:
        call(client)
    assert type(remote.value) is type(local.value)


def test_a_file_counter_is_not_read(client: TwofoldClient, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="token_counter"):
        client.recall("x", token_counter=f"tokenizers:{tmp_path}/tokenizer.json")
    assert json.dumps(client.stats())
