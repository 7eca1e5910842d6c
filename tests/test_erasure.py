"""After `erase` the content is nowhere: no file, no index, no cache, no receipt, no relation, no log entry."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, Role, Session, errors
from twofold.clock import ManualClock

SECRET = 'Zoë Quillfeather\'s safe opens with kestrel-4711 "left" 三七二一'
WORDS = ["quillfeather", "kestrel-4711", "kestrel", "三七二一"]
FIELDS: dict[str, Any] = {
    "tags": ["quillfeather-safe"],
    "entities": ["Zoë Quillfeather"],
    "key": "quillfeather.safe",
    "metadata": {"combination": "kestrel-4711"},
    "speaker": "Quillfeather",
    "source_id": "quillfeather-file",
    "session_id": "quillfeather-session",
}


@pytest.fixture(autouse=True)
def _views_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the view beside the store however small it is: it holds words, names and vectors too."""
    monkeypatch.setattr("twofold.vault.CACHE_ROWS", 1)


@pytest.fixture
def mem(tmp_path: Path, clock: ManualClock) -> Iterator[AgentMemory]:
    clock.set("2026-03-01T00:00:00Z")
    with opened(tmp_path, clock) as mem:
        yield mem


def opened(folder: Path, clock: Any, **options: Any) -> AgentMemory:
    return AgentMemory(folder / "store", embedder="hashing:64", clock=clock, **options)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of the store's folder, the write-ahead log and derived files among them."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def needles(vectors: list[bytes]) -> list[bytes]:
    """The plaintext, its JSON forms, its words and its vectors, in pieces shorter than a page."""
    texts = [SECRET, json.dumps(SECRET)[1:-1], json.dumps(SECRET, ensure_ascii=False)[1:-1], *WORDS]
    texts += ["Quillfeather", json.dumps("三七二一")[1:-1], "Zoë", "Zoe Quill"]
    out = [t.encode() for t in texts] + [SECRET.encode("utf-16-le")]
    return out + [v[:64] for v in vectors] + [v[-64:] for v in vectors]


def found(folder: Path, what: list[bytes]) -> list[str]:
    return [f"{name}: {n!r}" for name, data in files(folder).items() for n in what if n in data]


def bystanders(mem: AgentMemory) -> list[str]:
    return [mem.add(f"The gate of the mill number {n} is open", tags=["mill"]).id for n in range(30)]


def vectors_of(mem: AgentMemory, ids: list[str]) -> list[bytes]:
    store = mem._vault.store
    ordinals = [m.ordinal for i in ids for m in mem.history(i)]
    return [
        row.tobytes()
        for g in store.generations(mem.tenant)
        for row in store.vectors_of(mem.tenant, g.number, ordinals).data
    ]


def told(mem: AgentMemory) -> list[str]:
    """Whatever a handle can be asked about what is gone."""
    out: list[Any] = [
        mem.recall(
            "Quillfeather safe kestrel-4711", k=100, namespaces="*", include_faded=True, promote=False
        ),
        mem.search(namespaces="*", include_closed=True, include_superseded=True, limit=None),
        mem.timeline("Zoë Quillfeather", namespaces="*"),
        mem.current_facts(namespaces="*"),
        mem.audit(),
        mem.receipts(),
        mem.stats(),
        mem.health(),
        mem.verify(),
    ]
    found = out[0]
    out += [found.trace, [h.memory for h in found]]
    out += [mem._vault.store.receipt(mem.tenant, i) for i, _ in mem.receipts()]
    return [str(o) for o in out]


def test_nothing_is_left_in_any_file(mem: AgentMemory, tmp_path: Path, clock: ManualClock) -> None:
    others = bystanders(mem)
    secret = mem.add(SECRET, **FIELDS)
    mem.update(secret.id, tags=["quillfeather-box"])
    mem.reembed("hashing:96")
    mem.update(secret.id, content=SECRET + " again", entities=["Zoë Quillfeather"])
    mem.link(others[0], secret.id, "is the mill of Quillfeather")
    mem.flag(secret.id, "should kestrel-4711 be here?")
    mem.recall("the mill", keep=True)
    mem.recall("kestrel-4711", keep=True)
    mem.recall("who saw a kestrel near the mill?", namespaces="elsewhere", keep=True)
    mem.recall("mill", namespaces="elsewhere", filters={"tags": ["quillfeather-box"]}, keep=True)
    mem.recall("gate", filters={"entities": ["Zoë Quillfeather"]}, keep=True)
    vectors = vectors_of(mem, [secret.id])
    assert len(vectors) >= 4
    what = needles(vectors)
    mem._vault.store.scrub()
    with AgentMemory(tmp_path / "store", embedder=None, clock=clock) as other:
        other.search()
    assert any(name.endswith(".index") for name in files(tmp_path))
    hit = {n for n in what if any(n in data for data in files(tmp_path).values())}
    assert len(hit) >= 8, "the scan must be able to find what it looks for"
    mem.erase(secret.id, reason="the person asked for it")
    assert found(tmp_path, what) == []
    assert mem._vault.store.residue(what) == []
    clock.advance(days=1)
    mem.add("life goes on")
    mem.close()
    assert found(tmp_path, what) == []


def test_nothing_is_left_in_ram_or_in_answers(mem: AgentMemory) -> None:
    bystanders(mem)
    secret = mem.add(SECRET, **FIELDS)
    first = mem.recall("kestrel-4711", keep=True)
    mem.feedback(first.receipt, [secret.id])
    mem.recall("Zoë Quillfeather", promote=False)
    assert any("kestrel" in t for t in told(mem)), "the probes must be able to see it"
    queries = mem._vault.queries(mem.tenant)
    mem.erase(secret.id, reason="asked for")
    assert len(queries) == 0
    for text in told(mem):
        for word in ("kestrel", "Quillfeather", "quillfeather", "三七"):
            assert word not in text.replace("Quillfeather safe kestrel-4711", ""), text[:300]
    index = mem._vault.index(mem.tenant)
    names = [
        n
        for codes in (
            index.entities,
            index.tags,
            index.terms,
            index.keys,
            index.speakers,
            index.session_names,
        )
        for n in codes.names
    ]
    assert not [n for n in names if "quill" in n.lower() or "kestrel" in n]
    assert index.tag_matcher.match("quillfeather safe") == []
    assert "kestrel" not in str(index.metadata)
    assert index.frame_value == {} or "kestrel" not in str(index.frame_value)
    for gone in (mem.history, mem.why):
        with pytest.raises(errors.NotFound):
            gone(secret.id)
    assert mem.get(secret.id) is None


def test_a_snapshot_that_quotes_it_goes_too(mem: AgentMemory, tmp_path: Path) -> None:
    secret = mem.add(SECRET)
    snapshot = mem.add(f"So far: {SECRET}", memory_type="snapshot", derived_from=[secret.id])
    summary = mem.add(f"In short: {SECRET[:40]}", memory_type="summary", derived_from=[snapshot.id])
    kept = mem.add("The gate is open", derived_from=[])
    erasure = mem.erase(secret.id, reason="asked for")
    assert set(erasure.ids) == {secret.id, snapshot.id, summary.id}
    assert [m.id for m in mem.search(include_closed=True, include_superseded=True)] == [kept.id]
    assert found(tmp_path, needles([])) == []


def test_a_sessions_snapshot_goes_too(mem: AgentMemory) -> None:
    made = mem.add("My locker is number 4711", session_id="s")
    with Session(mem, session_id="s", snapshot_every=1) as session:
        session.after_response(user_message="My locker is number 4711", sources=[made.id])
    assert any(m.memory_type == "snapshot" for m in mem.search())
    mem.erase(made.id, reason="asked for")
    assert [m for m in mem.search(include_superseded=True) if "4711" in m.content] == []


def test_the_chain_still_verifies_and_earlier_receipts_say_so(mem: AgentMemory) -> None:
    bystanders(mem)
    secret = mem.add(SECRET, namespace="people")
    touched = mem.recall("kestrel safe", namespaces="*", promote=False).receipt
    elsewhere = mem.recall("gate of the mill", namespaces="default", promote=False).receipt
    kept = mem.recall("kestrel safe", namespaces="people", keep=True, promote=False).receipt
    head = mem.verify().head
    erasure = mem.erase(secret.id, reason="asked for")
    assert erasure.receipts == (kept.id,)
    report = mem.verify(expected_head=head)
    assert report.problems == ()
    assert report.erased == 1
    assert mem.replay(touched).altered_by_erasure
    again = mem.replay(elsewhere)
    assert (again.identical, again.altered_by_erasure) == (True, False)
    redacted = mem.replay(kept.id)
    assert (redacted.altered_by_erasure, redacted.recall) == (True, None)
    entry = mem.audit()[-1]
    assert (entry["kind"], entry["payload"]["reason"]) == ("erase", "asked for")


def test_statistics_forget_it(mem: AgentMemory, clock: ManualClock) -> None:
    """What was erased no longer weighs on the scores of what is left: as if it had never been told."""
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as never:
        for one in (mem, never):
            bystanders(one)
        ids = [mem.add(f"gate {SECRET} {n}").id for n in range(5)]
        for one in ids:
            mem.erase(one, reason="asked for")
        told = [
            [(h.content, h.score) for h in one.recall("gate of mill number 7", promote=False)]
            for one in (mem, never)
        ]
        assert told[0] == told[1]
        assert mem.stats()["memories"] == never.stats()["memories"]


def test_another_process_drops_it_from_its_view(mem: AgentMemory, tmp_path: Path, clock: ManualClock) -> None:
    secret = mem.add(SECRET, **FIELDS)
    other = opened(tmp_path, clock)
    assert other.recall("kestrel-4711").hits
    mem.erase(secret.id, reason="asked for")
    assert other.recall("kestrel-4711").hits == []
    assert not [n for n in other._vault.index("default").entities.names if "quill" in n]
    other.close()
    assert found(tmp_path, needles([])) == []


def test_bulk_erasure_previews_counts_and_is_one_commit(mem: AgentMemory) -> None:
    agent = mem.as_agent("a", role=Role.ORCHESTRATOR)
    for n in range(3):
        agent.add(f"{SECRET} {n}", source_id="file-1", namespace="people")
        mem.add(f"kept {n}", source_id="file-2", namespace="people")
    mem.add("elsewhere", source_id="file-1", namespace="default")
    seq = mem.stats()["seq"]
    preview = mem.erase_where(namespace="people", source_id="file-1")
    assert (preview.versions, preview.applied, len(preview.ids)) == (3, False, 3)
    assert mem.stats()["seq"] == seq
    done = mem.erase_where(namespace="people", source_id="file-1", dry_run=False, reason="contract ended")
    assert (done.ids, done.applied) == (preview.ids, True)
    assert mem.stats()["seq"] == seq + 1, "one event, so one commit"
    assert sorted(m.content for m in mem.search(namespaces="*")) == [
        "elsewhere",
        "kept 0",
        "kept 1",
        "kept 2",
    ]
    assert mem.erase_where(agent_id="a").versions == 0
    by_session = mem.erase_where(session_id="none of this name")
    assert by_session.versions == 0
    with pytest.raises(errors.InvalidInput):
        mem.erase_where()
    with pytest.raises(errors.InvalidInput):
        mem.erase_where(namespace="people", everything=True)
    with pytest.raises(errors.InvalidInput):
        mem.erase_where(namespace="people", dry_run=False)
    assert mem.erase_where(everything=True, dry_run=False, reason="the end").versions == 4
    assert mem.search(namespaces="*", include_closed=True) == []
    assert mem.verify().problems == ()


def test_erasing_one_tenant_spares_the_other(tmp_path: Path, clock: ManualClock) -> None:
    red, blue = opened(tmp_path, clock, tenant="red"), opened(tmp_path, clock, tenant="blue")
    ids = [one.add(SECRET).id for one in (red, blue)]
    red.erase(ids[0], reason="asked for")
    assert red.search() == []
    assert [m.content for m in blue.search()] == [SECRET]
    assert blue.verify().problems == ()
    red.close()
    blue.close()


def test_an_erasure_that_fails_leaves_everything(mem: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = mem.add(SECRET)

    def broken(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("twofold.stores.sqlite._erase", broken)
    with pytest.raises(errors.StoreError):
        mem.erase(secret.id, reason="asked for")
    monkeypatch.undo()
    assert [m.content for m in mem.search()] == [SECRET]
    assert mem.verify().problems == ()


def test_erased_twice_and_unknown_are_not_found(mem: AgentMemory) -> None:
    secret = mem.add(SECRET)
    mem.erase(secret.id, reason="asked for")
    for one in (secret.id, "01" * 13):
        with pytest.raises(errors.NotFound):
            mem.erase(one, reason="asked for")
    with pytest.raises(errors.InvalidInput):
        mem.erase(secret.id, reason=" ")


def test_a_tombstone_says_that_something_was_there(mem: AgentMemory) -> None:
    secret = mem.add(SECRET)
    mem.erase(secret.id, reason="asked for")
    with contextlib.closing(sqlite3.connect(mem._vault.store.url)) as db:
        ((found_id, content, content_hash, agent),) = db.execute(
            "SELECT id, content, content_hash, agent_id FROM memory"
        ).fetchall()
    assert (found_id, content, content_hash, agent) == (secret.id, "", "", "owner")
