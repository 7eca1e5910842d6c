"""Receipts taken during a long history replay to the same bytes at its end, in any process, on any kernel."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold import AgentMemory, Role, _core, errors
from twofold.clock import ManualClock, from_us, to_us
from twofold.embed import open_embedder
from twofold.embed.codes import TokenCodes, sign_bits
from twofold.index.tenant import TenantIndex, View
from twofold.replay import Replay
from twofold.retrieve import graph, question
from twofold.vault import IdSource

START = "2026-01-05T08:00:00Z"
SPACES = ["default", "facts/infra", "build/a", "build/b", "notes", "private"]
# Longer names hold shorter ones, and the longer ones come later: a prefix must not know them yet.
NAMES = ["Atlas", "Helios", "Juno", "Atlas Ledger", "Helios Prime", "Juno Station Nine", "Atlas Ledger East"]
SPEAKERS = ["Ann", "Ben Okri", "Chidi", "Dora Lee"]
TAGS = ["database", "billing", "datastore", "deploy", "deployment", "rust", "rusty"]
NOUNS = ["the cluster", "the invoice run", "the load test", "the migration", "the backup", "the schema"]
VERBS = ["moved to", "depends on", "was checked by", "is owned by", "waits for", "replaces"]
TYPES = ["fact", "fact", "observation", "interaction", "decision", "event"]


class Windowed:
    """The hashing embedder with a short window, so that long memories own several vectors, and token codes."""

    max_tokens = 24
    token_codes = True

    def __init__(self, dimension: int) -> None:
        self._inner: Any = open_embedder(f"hashing:{dimension}")
        self.name = f"windowed:{dimension}"
        self.fingerprint = f"windowed@1;dim={dimension}"
        self.dimension = dimension

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _codes(self, text: str) -> TokenCodes:
        spans = self._inner.token_spans(text)
        return TokenCodes(sign_bits(self._inner.embed_documents([text[a:b] for a, b in spans])), spans)

    def embed_documents_with_codes(self, texts: list[str]) -> tuple[Any, list[TokenCodes]]:
        return self._inner.embed_documents(texts), [self._codes(text) for text in texts]

    def embed_query_with_codes(self, text: str) -> tuple[Any, TokenCodes]:
        return self._inner.embed_query(text), self._codes(text)


def opened(path: Path | str, clock: Any, embedder: Any = None) -> AgentMemory:
    salts = iter(range(1, 10**9))
    ids = iter(range(10**9))
    return AgentMemory(
        path,
        embedder=embedder,
        clock=clock,
        ids=IdSource(lambda size: next(ids).to_bytes(size, "big")),
        entropy=lambda size: next(salts).to_bytes(size, "big"),
    )


# -- a history ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Taken:
    """A receipt as it was given, and what the recall said."""

    receipt: dict[str, Any]
    contents: list[str]
    context: str


class History:
    """Random operations on one tenant, with receipts taken among them."""

    def __init__(self, mem: AgentMemory, clock: ManualClock, seed: int) -> None:
        self.mem, self.clock, self.random = mem, clock, random.Random(seed)
        self.ids: list[str] = []
        self.ended: list[str] = []
        self.taken: list[Taken] = []
        self.did: dict[str, int] = {}
        self.erased_in: list[str] = []
        self.handles = [
            mem,
            mem.as_agent("exec-1", role=Role.EXECUTOR, namespaces=["build/*"]),
            mem.as_agent("plan-1", role=Role.PLANNER),
            mem.as_agent("review-1", role=Role.REVIEWER),
        ]

    def run(self, steps: int, receipts: int) -> None:
        """Each kind of step in its share, in random order, receipts spread over the first nine tenths."""
        unit = steps / 2000
        plan = (
            ["add"] * round(900 * unit)
            + ["supersede"] * max(4, round(110 * unit))
            + ["key"] * round(90 * unit)
            + ["restore"] * max(4, round(25 * unit))
            + ["forget"] * round(60 * unit)
            + ["update"] * round(100 * unit)
            + ["link"] * max(10, round(30 * unit))
            + ["use"] * round(400 * unit)
            + ["later"] * round(250 * unit)
            + ["maintain"] * max(2, round(10 * unit))
        )
        self.random.shuffle(plan)
        plan[len(plan) // 2 : len(plan) // 2] = ["reembed"]
        plan[2 * len(plan) // 3 : 2 * len(plan) // 3] = ["gc"]
        due = {round((i + 0.5) * 0.9 * len(plan) / receipts) for i in range(receipts)}
        for number, step in enumerate(plan):
            getattr(self, step)(number / len(plan))
            self.did[step] = self.did.get(step, 0) + 1
            if number in due:
                self.ask(number / len(plan))

    def pick(self, values: list[Any]) -> Any:
        return self.random.choice(values)

    def sentence(self, progress: float) -> str:
        names = NAMES[: max(2, round(progress * len(NAMES)))]
        text = f"{self.pick(names)}: {self.pick(NOUNS)} {self.pick(VERBS)} {self.pick(names)}"
        while self.random.random() < 0.15:
            text += f". Then {self.pick(NOUNS)} {self.pick(VERBS)} {self.pick(NOUNS)} of {self.pick(names)}"
        return text + self.pick(["", "", "?", f" {self.random.randrange(30)}"])

    def fields(self, progress: float) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "namespace": self.pick(SPACES),
            "memory_type": self.pick(TYPES),
            "confidence": self.pick([1.0, 1.0, 0.6]),
            "pinned": self.random.random() < 0.05,
        }
        if self.random.random() < 0.5:
            fields |= {
                "session_id": f"s{round(progress * 12)}",
                "speaker": self.pick(SPEAKERS[: max(1, round(progress * len(SPEAKERS)))]),
            }
        if self.random.random() < 0.4:
            fields["tags"] = [self.pick(TAGS[: max(2, round(progress * len(TAGS)))])]
        if self.random.random() < 0.2:
            fields["metadata"] = {"role": self.pick(["user", "assistant"])}
        if self.random.random() < 0.2:
            fields["event_date"] = from_us(
                to_us(self.clock.now()) - self.random.randrange(40) * 86_400_000_000
            )
        if self.random.random() < 0.1:
            fields["visibility"] = "private"
        return fields

    def add(self, progress: float) -> None:
        self.ids.append(self.mem.add(self.sentence(progress), **self.fields(progress)).id)

    def key(self, progress: float) -> None:
        """A keyed fact: from the second one on, each ends its predecessor."""
        made = self.mem.add(
            self.sentence(progress), namespace="facts/infra", key=f"{self.pick(NAMES[:3])}.owner"
        )
        self.ids.append(made.id)

    def supersede(self, progress: float) -> None:
        old = self.mem.get(self.pick(self.ids))
        if old is None or old.valid_to is not None:
            return self.add(progress)
        new = self.mem.add(self.sentence(progress), namespace=old.namespace, supersedes=[old.id])
        self.ids.append(new.id)
        self.ended.append(old.id)
        return None

    def restore(self, progress: float) -> None:
        while self.ended:
            memory_id = self.ended.pop(self.random.randrange(len(self.ended)))
            try:
                self.mem.restore(memory_id)
            except errors.InvalidInput:  # brought back already
                continue
            return
        self.add(progress)

    def forget(self, progress: float) -> None:
        memory_id = self.pick(self.ids)
        if self.mem.get(memory_id) is None:
            return self.add(progress)
        self.mem.forget(memory_id)
        self.ended.append(memory_id)
        return None

    def update(self, progress: float) -> None:
        memory_id = self.pick(self.ids)
        if self.mem.get(memory_id) is None:
            return self.add(progress)
        changes: dict[str, Any] = {"content": self.sentence(progress), "entities": [self.pick(NAMES)]}
        self.mem.update(memory_id, **(changes if self.random.random() < 0.7 else {"tags": [self.pick(TAGS)]}))
        return None

    def link(self, progress: float) -> None:
        a, b = self.random.sample(self.ids, 2)
        if self.mem.get(a) is not None and self.mem.get(b) is not None:
            self.mem.link(a, b, self.pick(["causes", "explains"]))

    def use(self, progress: float) -> None:
        """An ordinary recall: it promotes, which later recalls see."""
        self.mem.recall(self.sentence(progress), k=5, namespaces=self.pick(["*", "default", "build/*"]))

    def later(self, progress: float) -> None:
        self.clock.advance(hours=self.pick([1, 5, 20, 60]))

    def maintain(self, progress: float) -> None:
        self.mem.maintain()

    def gc(self, progress: float) -> None:
        self.clock.advance(days=30)
        assert self.mem.gc(dry_run=False).candidates, "the history never lets anything fade"

    def reembed(self, progress: float) -> None:
        self.mem.reembed(Windowed(128))

    def ask(self, progress: float) -> None:
        handle = self.pick(self.handles)
        options: dict[str, Any] = {"k": self.pick([3, 10, 40])}
        if handle is self.mem:
            options["namespaces"] = self.pick(["*", "default", ["facts/*", "build/*"], "notes"])
        else:
            options["namespaces"] = "*"
        if self.random.random() < 0.3:
            options["budget"] = self.pick([40, 200, 600])
        if self.random.random() < 0.3:
            options["filters"] = self.pick(
                [
                    {"tags": [self.pick(TAGS[:2])]},
                    {"memory_types": ["fact", "decision"]},
                    {"min_confidence": 0.8},
                    {"speakers": SPEAKERS[:2]},
                ]
            )
        past = to_us(self.clock.now()) - self.random.randrange(1, 400) * 3_600_000_000
        if self.random.random() < 0.2:
            options["as_of"] = from_us(past)
        if self.random.random() < 0.2:
            options["known_at"] = from_us(past)
        if self.random.random() < 0.2:
            options["now"] = from_us(to_us(self.clock.now()) + 40 * 86_400_000_000)
        if self.random.random() < 0.4:
            options["profile"] = self.pick(
                [
                    "rrf",
                    "base",
                    "bm25",
                    {"mmr_lambda": 0.7},
                    {"graph_weight": 1.0, "tag_weight": 0.5, "strength_weight": 0.5},
                    {"depth": 7},
                ]
            )
        # Names that may not be known yet, and speakers who may not have spoken yet, are asked for too.
        question = (
            f"{self.pick(SPEAKERS)}, what did {self.pick(SPEAKERS)} say about {self.pick(NAMES)} "
            f"and {self.pick(NOUNS)}, {self.pick(TAGS)}?"
        )
        found = handle.recall(question, promote=self.random.random() < 0.5, **options)
        body = found.receipt.to_json()
        self.taken.append(Taken(json.loads(json.dumps(body)), [h.content for h in found], found.context()))


@dataclasses.dataclass
class Told:
    """A finished history."""

    path: Path
    clock: ManualClock
    mem: AgentMemory
    late: AgentMemory  # another handle on the same store, which followed in large steps
    history: History


def tell(path: Path, steps: int, receipts: int, seed: int = 7) -> Told:
    clock = ManualClock(START)
    mem, late = opened(path, clock, Windowed(64)), opened(path, clock)
    history = History(mem, clock, seed)
    history.run(steps, receipts)
    return Told(path, clock, mem, late, history)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """The commit lane's history: a fifth of the full one."""
    told = tell(tmp_path_factory.mktemp("replay") / "store", 400, 40)
    yield told
    told.mem.close()
    told.late.close()


def unlike(mem: AgentMemory, taken: list[Taken]) -> list[str]:
    """What differs, one line for each receipt that does not replay identically."""
    out = []
    for number, one in enumerate(taken):
        again = mem.replay(one.receipt)
        assert isinstance(again, Replay)
        same = again.recall is not None and [h.content for h in again.recall] == one.contents
        same = same and again.recall is not None and again.recall.context() == one.context
        if not again.identical or not same:
            out.append(f"receipt {number} at seq {one.receipt['seq']}: {again.differences}")
    return out


# -- the promise ----------------------------------------------------------------------------------------


def test_the_history_is_what_the_promise_is_about(told: Told) -> None:
    did, log = told.history.did, told.mem.audit()
    kinds = [e["kind"] for e in log]
    assert kinds.count("supersede") >= 20
    assert kinds.count("restore") >= 4
    assert kinds.count("link") >= 5
    assert kinds.count("archive") >= 1
    assert kinds.count("access") >= 20
    assert kinds.count("maintain") >= 3
    assert did["reembed"] == did["gc"] == 1
    answers = [one.contents for one in told.history.taken]
    assert sum(map(bool, answers)) >= 0.8 * len(answers)
    assert len({tuple(a) for a in answers}) >= 0.7 * len(answers)
    sources = {one.receipt["generation"] for one in told.history.taken}
    assert {1, 2} <= sources, "receipts of both embedding generations"


def test_every_receipt_replays_where_it_was_made(told: Told) -> None:
    assert unlike(told.mem, told.history.taken) == []


def test_every_receipt_replays_in_a_handle_that_followed_from_afar(told: Told) -> None:
    assert unlike(told.late, told.history.taken) == []


@pytest.mark.parametrize("kernel", _core.kernels())
def test_every_receipt_replays_in_another_process_on_every_kernel(
    told: Told, kernel: str, tmp_path: Path
) -> None:
    in_another_process(told, kernel, tmp_path)


def in_another_process(told: Told, kernel: str, folder: Path) -> None:
    receipts = folder / "receipts.json"
    receipts.write_text(json.dumps([dataclasses.astuple(one) for one in told.history.taken]))
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(told.path), str(receipts)],
        env={**os.environ, "TWOFOLD_KERNEL": kernel, "PYTHONHASHSEED": "77", "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"kernel": kernel, "unlike": []}


@pytest.mark.long
def test_two_hundred_receipts_of_two_thousand_operations(tmp_path: Path) -> None:
    told = tell(tmp_path / "store", 2000, 200)
    kinds = [e["kind"] for e in told.mem.audit()]
    assert len(told.history.taken) == 200
    assert kinds.count("supersede") >= 100
    assert kinds.count("restore") >= 20
    assert kinds.count("link") >= 10
    assert unlike(told.mem, told.history.taken) == []
    assert unlike(told.late, told.history.taken) == []
    for kernel in _core.kernels():
        in_another_process(told, kernel, tmp_path)
    assert told.mem.verify().ok
    assert told.mem.health()["healthy"]
    told.mem.close()
    told.late.close()


# -- what the prefix guards against ---------------------------------------------------------------------
# Each mutant lets one thing of the present into the past; the history must be rich enough to notice.


def whole_view(patch: pytest.MonkeyPatch) -> None:
    real = TenantIndex.view
    patch.setattr(TenantIndex, "view", lambda self, seq=None: real(self))


def change_views(change: Callable[[View], None]) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        real = TenantIndex.view

        def view(self: TenantIndex, seq: int | None = None) -> View:
            made = View(self, self.seq if seq is None else seq)
            change(made)
            assert real is not None
            return made

        patch.setattr(TenantIndex, "view", view)

    return apply


def all_edges(view: View) -> None:
    view.edges = len(view.index.edge_seq)


def todays_ends(view: View) -> None:
    view.valid_to = view.index.valid_to.view(view.rows).copy()


def todays_retractions(view: View) -> None:
    view.closed = view.index.closed.view(view.rows).copy()


def later_restores(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "voided", lambda self, closing: closing.seq in self.index.voids)


def later_uses(patch: pytest.MonkeyPatch) -> None:
    real = View.accesses
    patch.setattr(View, "accesses", lambda self, now: real(View(self.index, self.index.seq), now))


def every_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph.Gazetteer, "__contains__", lambda self, key: key in self._known)


def every_speaker(patch: pytest.MonkeyPatch) -> None:
    real = question.speaker_named

    def named(view: View, scope: Any, asked: str) -> int:
        head = view.index.view()
        return real(head, np.ones(head.rows, np.bool_), asked)

    patch.setattr(question, "speaker_named", named)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the view at the head": whole_view,
    "edges of later links": change_views(all_edges),
    "later ends of validity": change_views(todays_ends),
    "later retractions": change_views(todays_retractions),
    "later restores": later_restores,
    "later uses": later_uses,
    "names recorded later": every_name,
    "speakers who spoke later": every_speaker,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_leak_from_the_present_is_noticed(told: Told, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    assert unlike(told.mem, told.history.taken) != []


# -- while others write ---------------------------------------------------------------------------------


def test_what_threads_recalled_while_others_wrote_replays(tmp_path: Path) -> None:
    """A recall sees one state, whatever is committed while it runs; its receipt says which."""
    clock = ManualClock(START)
    mem = opened(tmp_path / "store", clock, "hashing:64")
    r = random.Random(3)
    made = [
        mem.add(
            f"{NAMES[n % 7]} {VERBS[n % 6]} {NOUNS[n % 6]} {n}",
            entities=[NAMES[n % 7]],
            session_id="s",
            memory_type="observation",
        )
        for n in range(40)
    ]
    clock.advance(days=20)  # old enough for uses to show in their strength
    receipts: list[dict[str, Any]] = []
    failures: list[BaseException] = []
    go = threading.Event()

    def read(number: int) -> None:
        mine = random.Random(number)
        try:
            go.wait()
            for _ in range(40):
                question = f"what about {mine.choice(NAMES)} and {mine.choice(NOUNS)}"
                found = mem.recall(question, k=8, profile={"strength_weight": 0.5, "graph_weight": 0.5})
                receipts.append(found.receipt.to_json())
        except BaseException as error:  # noqa: BLE001 - reported by the test, not by the thread
            failures.append(error)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    go.set()
    for n in range(120):
        kind = n % 4
        if kind == 0:
            made.append(mem.add(f"{r.choice(NAMES)} {r.choice(VERBS)} {r.choice(NOUNS)} {n}", session_id="s"))
        elif kind == 1:
            mem.link(*(m.id for m in r.sample(made, 2)))
        elif kind == 2:
            mem.update(r.choice(made).id, tags=[r.choice(TAGS)])
        else:
            mem.flush()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len({body["seq"] for body in receipts}) > 5, "the writes must have come in between"
    again = [mem.replay(body) for body in receipts]
    assert [a.differences for a in again if not a.identical] == []
    mem.close()


# -- edges of the promise -------------------------------------------------------------------------------


@pytest.fixture
def mem(tmp_path: Path, clock: ManualClock) -> Iterator[AgentMemory]:
    mem = opened(tmp_path / "store", clock, "hashing:64")
    yield mem
    mem.close()


def test_a_receipt_names_the_encoder_of_the_vectors_it_searched(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("The ledger is kept in Vienna")
    embedder = mem.embedder
    assert embedder is not None
    asked = mem.recall("Where is the ledger?")
    assert asked.receipt.embedder == embedder.fingerprint
    given = asked.query.vector
    mem.close()
    blind = AgentMemory(Path(mem._vault.store.url).parent, clock=clock, embedder=None)
    assert blind.recall("Where is the ledger?", vector=given).receipt.embedder == embedder.fingerprint
    assert blind.recall("Where is the ledger?").receipt.embedder is None
    blind.close()


def test_a_kept_receipt_is_found_by_its_id_after_reopening(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("The ledger is kept in Vienna")
    kept = mem.recall("Where is the ledger?", keep=True).receipt.id
    mem.add("The ledger is kept in Graz")
    mem.close()
    again = opened(Path(mem._vault.store.url).parent, clock, "hashing:64")
    assert again.replay(kept).identical
    assert [i for i, _ in again.receipts()] == [kept]
    again.close()


def test_replay_never_promotes(mem: AgentMemory, clock: ManualClock) -> None:
    mem.add("The ledger is kept in Vienna")
    receipt = mem.recall("Where is the ledger?", promote=False).receipt
    before = mem.stats()["seq"]
    for _ in range(5):
        assert mem.replay(receipt).identical
    mem.flush()
    assert mem.stats()["seq"] == before
    assert mem.search()[0].access_count == 0


def test_a_receipt_made_under_other_rules_is_refused(mem: AgentMemory) -> None:
    mem.add("The ledger is kept in Vienna")
    body = mem.recall("ledger").receipt.to_json() | {"algorithm": "of yesterday"}
    with pytest.raises(errors.ReplayUnsupported, match="of yesterday"):
        mem.replay(body)


def test_a_receipt_from_the_future_of_the_store_is_refused(mem: AgentMemory) -> None:
    mem.add("The ledger is kept in Vienna")
    body = mem.recall("ledger").receipt.to_json() | {"seq": 10**6}
    with pytest.raises(errors.NotFound):
        mem.replay(body)


def test_a_receipt_that_lies_is_told_apart(mem: AgentMemory) -> None:
    mem.add("The ledger is kept in Vienna")
    mem.add("The ledger is blue")
    body = mem.recall("ledger").receipt.to_json()
    swapped = {**body, "answer": body["answer"][::-1]}
    assert not mem.replay(swapped).identical
    bits = [[*body["answer"][0][:3], "0" * 16], *body["answer"][1:]]
    assert not mem.replay({**body, "answer": bits}).identical
    assert not mem.replay({**body, "context": "0" * 64}).identical
    assert not mem.replay({**body, "answer": body["answer"][:1]}).identical
    assert mem.replay(body).identical


def test_erasure_elsewhere_changes_nothing_and_erasure_here_is_told(mem: AgentMemory) -> None:
    """Erasing makes the view anew; what it did not touch must still come out the same to the last bit."""
    for number in range(30):
        for space in ("one", "two"):
            mem.add(
                f"{NAMES[number % 7]} {NOUNS[number % 6]} {VERBS[number % 5]} {NAMES[number % 4]} {number} {space}",
                namespace=space,
                tags=[TAGS[number % 7]],
                session_id=f"s{number % 3}",
            )
    here = mem.recall("What about Atlas and the backup?", namespaces="one", k=30).receipt
    there = mem.recall("What about Atlas and the backup?", namespaces="two", k=30).receipt
    everywhere = mem.recall("What about Atlas and the backup?", namespaces="*", k=30).receipt
    first = mem.search(namespaces="two", limit=None)[-1]
    mem.erase(first.id, reason="asked for")
    again = mem.replay(here)
    assert (again.identical, again.altered_by_erasure) == (True, False)
    assert mem.replay(there).altered_by_erasure
    assert mem.replay(everywhere).altered_by_erasure
    assert first.content not in [h.content for h in mem.replay(everywhere).recall or ()]


def test_a_collected_generation_is_named(mem: AgentMemory) -> None:
    mem.add("The ledger is kept in Vienna")
    receipt = mem.recall("ledger").receipt
    mem.reembed("hashing:96")
    assert mem.replay(receipt).identical
    mem.gc(dry_run=False, generations=True)
    with pytest.raises(errors.ReplayUnsupported, match="generation 1"):
        mem.replay(receipt)


# -- whose receipts -------------------------------------------------------------------------------------


def test_a_forged_receipt_shows_nothing_its_bearer_may_not_read(mem: AgentMemory) -> None:
    """A receipt says as whom it was asked; a handle must not become somebody else by writing one."""
    mem.add("The vault code is 9931", namespace="private")
    mem.add("The ledger is kept in Vienna", namespace="facts/a")
    agent = mem.as_agent("exec-1", role=Role.EXECUTOR, namespaces=["build/*"])
    honest = agent.recall("vault code ledger", namespaces="*").receipt.to_json()
    assert agent.replay(honest).identical
    for forged in (
        {**honest, "grants": []},
        {**honest, "grants": [["orchestrator", None, False]]},
        {**honest, "grants": [["executor", ["private"], False]], "namespaces": ["private"]},
        {**honest, "agent_id": "owner", "grants": []},
        {**honest, "tenant": "other"},
    ):
        with pytest.raises(errors.PermissionDenied):
            agent.replay(forged)


def test_an_auditor_replays_kept_receipts_of_others_without_seeing_more(mem: AgentMemory) -> None:
    mem.add("The vault code is 9931", namespace="private")
    agent = mem.as_agent("plan-1", role=Role.PLANNER)
    mem.add("The ledger is kept in Vienna", namespace="facts/a")
    kept = agent.recall("ledger", namespaces="*", keep=True).receipt
    owners = mem.recall("vault code", namespaces="*", keep=True).receipt
    monitor = mem.as_agent("mon-1", role=Role.MONITOR)
    assert monitor.replay(kept.id).identical
    narrow = mem.as_agent("mon-2", role=Role.MONITOR, namespaces=["facts/*"])
    told = narrow.replay(owners.id)
    assert told.identical
    assert told.recall is None
    with pytest.raises(errors.PermissionDenied):
        narrow.replay(owners)
    assert mem.replay(kept).identical
    with pytest.raises(errors.PermissionDenied):
        agent.replay(owners.id)


def main(store: str, receipts: str) -> None:
    """Replay receipts in a process of its own: no embedder, an index read from the store."""
    taken = [Taken(*one) for one in json.loads(Path(receipts).read_text())]
    with opened(store, ManualClock("2030-01-01T00:00:00Z")) as mem:
        sys.stdout.write(json.dumps({"kernel": _core.kernel(), "unlike": unlike(mem, taken)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
