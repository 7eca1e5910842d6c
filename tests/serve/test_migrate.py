"""Stores copied to another kind of store and back: same log, same answers, and no trace of what was erased."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.stores import pg

from twofold import AgentMemory, ManualClock
from twofold.cli import main
from twofold.errors import InvalidInput, NotFound
from twofold.model import Kind
from twofold.serve import migrate as migrating
from twofold.serve.migrate import compare, copy_tenant
from twofold.stores import open_store
from twofold.testing import Fault, FaultyStore, assert_sound
from twofold.vault import IdSource

SECRET = "Zanzibar-secret-of-Ann"


def opened(address: Any, clock: ManualClock | None = None, embedder: str = "hashing:64") -> AgentMemory:
    count = itertools.count(1)

    def entropy(size: int) -> bytes:
        return hashlib.blake2b(f"{clock and clock.now()} {next(count)}".encode(), digest_size=size).digest()

    clock = clock or ManualClock("2026-09-01T00:00:00Z")
    return AgentMemory(address, embedder=embedder, clock=clock, ids=IdSource(entropy), entropy=entropy)


def write(mem: AgentMemory, clock: ManualClock, size: int = 40) -> None:
    """Something of everything: versions, supersessions, restores, links, erasures, receipts."""
    made = [
        mem.add(f"note {i} about the order service", key=f"k{i % 6}", session_id="s", tags=["t"]).id
        for i in range(size)
    ]
    clock.advance(hours=3)
    secret = mem.add(SECRET, key="secret").id
    mem.update(secret, content=f"{SECRET}, corrected")
    mem.recall(SECRET, keep=True)
    mem.recall("order service", keep=True)
    mem.update(made[3], content="note 3, corrected", tags=["u"])
    mem.restore(made[1])
    mem.forget(made[2])
    mem.forget(made[size - 1])
    mem.restore(made[size - 1])
    mem.link(made[4], made[5], "next to")
    mem.flush()
    mem.erase(secret, reason="asked for")


def exported(address: Any, tmp_path: Path) -> bytes:
    with opened(address) as mem:
        mem.export_json(tmp_path / "export.jsonl")
        assert mem.verify().problems == ()
        assert mem.health()["healthy"], mem.health()
        store = mem._vault.store
        for name, _ in store.receipts("default"):
            body = store.receipt("default", name)
            if body and not json.loads(body).get("erased"):
                assert mem.replay(name).identical
    return (tmp_path / "export.jsonl").read_bytes()


@pytest.fixture(params=["sqlite", "postgresql"])
def dest(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where to copy to."""
    if request.param == "sqlite":
        return tmp_path / "dest"
    if pg.why_not():
        pytest.skip(str(pg.why_not()))
    return pg.address(tmp_path / "dest")


def test_there_and_back(tmp_path: Path, dest: Any) -> None:
    clock = ManualClock("2026-07-01T00:00:00Z")
    with opened(tmp_path / "a", clock) as mem:
        write(mem, clock)
        mem.reembed("hashing:128")
        mem.add("after the re-embedding")
    with opened(tmp_path / "a", clock, "hashing:128") as mem:
        mem.gc(dry_run=False)
    before = _exported128(tmp_path / "a", tmp_path)
    run(tmp_path / "a", dest)
    assert _exported128(dest, tmp_path) == before
    run(dest, tmp_path / "back")
    assert _exported128(tmp_path / "back", tmp_path) == before


def _exported128(address: Any, tmp_path: Path) -> bytes:
    with opened(address, embedder="hashing:128") as mem:
        assert mem.verify().problems == ()
        assert mem.health()["healthy"], mem.health()
        mem.export_json(tmp_path / "export.jsonl")
    return (tmp_path / "export.jsonl").read_bytes()


def run(source: Any, dest: Any, *more: str) -> Any:
    result = CliRunner().invoke(main, ["migrate", str(source), str(dest), "--json", *more])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_receipts_replay_in_the_copy(tmp_path: Path, dest: Any) -> None:
    clock = ManualClock("2026-07-01T00:00:00Z")
    with opened(tmp_path / "a", clock) as mem:
        write(mem, clock)
    told = run(tmp_path / "a", dest)
    assert told["resumed_at"] == 0
    assert exported(dest, tmp_path) == exported(tmp_path / "a", tmp_path)
    again = run(tmp_path / "a", dest)
    assert (again["events"], again["rows"], again["head"]) == (0, 0, told["head"])


def test_a_stopped_migration_goes_on(tmp_path: Path, dest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "CHUNK", 7)
    clock = ManualClock("2026-07-01T00:00:00Z")
    with opened(tmp_path / "a", clock) as mem:
        write(mem, clock, 12)
    source = open_store(tmp_path / "a")
    stops = 0
    while True:
        target = open_store(dest)
        faulty: Any = FaultyStore(target, 17)
        try:
            copy_tenant(source, faulty, "default")
            break
        except Fault:
            stops += 1
            target.close()
            target = open_store(dest)
            assert_sound(target, "default")
            target.close()
    assert stops >= 3
    assert compare(source, target, "default") == []
    source.close()
    target.close()
    assert exported(dest, tmp_path) == exported(tmp_path / "a", tmp_path)


def test_what_changes_between_two_runs_is_brought_up_to_date(tmp_path: Path, dest: Any) -> None:
    """Erased, re-embedded and half re-embedded after the first run."""
    clock = ManualClock("2026-07-01T00:00:00Z")
    with opened(tmp_path / "a", clock) as mem:
        write(mem, clock)
        target = mem.add("to be erased soon: Quagga").id
    run(tmp_path / "a", dest)
    with opened(tmp_path / "a", clock) as mem:
        clock.advance(hours=1)
        mem.erase(target, reason="asked for")
        mem.add("new fact", key="k1")
        mem.reembed("hashing:128")
    told = run(tmp_path / "a", dest)
    assert told["resumed_at"] > 0
    copy = open_store(dest)
    contents = [row.content for row in copy.rows("default", range(copy.head("default").rows))]
    assert not any("Quagga" in text or "Zanzibar" in text for text in contents)
    assert not any("Quagga" in event.payload for event in copy.events("default"))
    assert_sound(copy, "default")
    copy.close()


def test_only_the_named_tenants_are_copied(tmp_path: Path, dest: Any) -> None:
    for tenant in ("a", "b"):
        with AgentMemory(tmp_path / "s", tenant=tenant, embedder=None) as mem:
            mem.add(f"of tenant {tenant}")
    run(tmp_path / "s", dest, "--tenant", "a")
    copy = open_store(dest)
    assert copy.head("a").rows == 1
    assert copy.head("b").rows == 0
    copy.close()


def test_another_log_is_refused(tmp_path: Path, dest: Any) -> None:
    for place in (tmp_path / "a", dest):
        with AgentMemory(place, embedder=None) as mem:
            mem.add("one")
    source, target = open_store(tmp_path / "a"), open_store(dest)
    with pytest.raises(InvalidInput, match="log of its own"):
        copy_tenant(source, target, "default")
    with pytest.raises(NotFound, match="no tenant"):
        copy_tenant(source, target, "nobody")
    assert target.head("nobody").seq == 0
    source.close()
    target.close()
    for arguments in ([str(tmp_path / "a"), str(dest)], [str(tmp_path / "a")] * 2):
        result = CliRunner().invoke(main, ["migrate", *arguments])
        assert result.exit_code == 1
        assert "InvalidInput" in result.output
        assert json.loads(CliRunner().invoke(main, ["migrate", *arguments, "--json"]).output)["message"]


def test_a_copy_that_differs_is_told(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "a", embedder="hashing:64") as mem:
        mem.add("one", key="k")
        mem.add("two", key="k")
        mem.recall("one", keep=True)
    source, target = open_store(tmp_path / "a"), open_store(":memory:")
    copy_tenant(source, target, "default")
    assert compare(source, target, "default") == []
    state = target._tenants["default"]  # type: ignore[attr-defined]
    state.rows[1] = state.rows[1]._replace(content="another")
    state.events[2] = state.events[2]._replace(hash=b"x")
    vector = state.vectors[1][0, 0]
    vector[2][:] = 0
    state.receipts = {name: (seq, "{}") for name, (seq, _) in state.receipts.items()}
    told = " ".join(compare(source, target, "default"))
    for what in ("row 1 differs", "event 3", "generation 1", "receipt"):
        assert what in told
    source.close()


def test_a_batch_never_parts_a_fact_from_the_end_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "CHUNK", 1)
    with AgentMemory(tmp_path / "a", embedder=None) as mem:
        for i in range(5):
            mem.add(f"value {i}", key="k")
    source = open_store(tmp_path / "a")
    after, sizes = 0, []
    while chunk := migrating._chunk(source, "default", after):
        assert chunk[0].kind == Kind.ADD
        sizes.append(len(chunk))
        after = chunk[-1].seq
    assert sizes == [1, 2, 2, 2, 2]
    source.close()
