"""What one tenant does, and what a handle may not see, leaves no trace in what another is told.

The method is non-interference: a history is told twice, once with the other party's steps and once without
them. Every answer, count, score, error and file of the observer must be the same; only ids and hashes, which
are random anyway, may differ. Stolen ids must behave exactly like ids that never existed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold import AgentMemory, Role, errors
from twofold.clock import ManualClock
from twofold.recall import Recall
from twofold.stores import open_store
from twofold.stores.memory import MemoryStore
from twofold.testing import PROBES, TenantDropped, snapshot, tenant_methods

TOPICS = ["billing", "the deploy", "server A", "the ledger", "Atlas", "Atlas Ledger", "Juno"]
WORDS = ["moved", "waits", "failed", "costs 12", "costs 40", "is at 10.0.0.7", "is at 10.0.0.9"]
SPEAKERS = ["Ann", "Ben"]
NOWHERE = "0" * 26
DROPPED = {
    "ordinal",
    "old_ordinal",
    "seq",
    "rows",
    "closes",
    "voids",
    "hash",
    "head",
    "events",
    "url",
    "salt",
}
LATENCIES = {"slowest_recall_ms", "recalls_over_target"}


# -- answers as plain values ----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value without what may differ between two tellings of one history: positions in the log, hashes."""
    if isinstance(value, AgentMemory):
        return [value.tenant, value.agent_id, str(value.role)]
    if isinstance(value, Recall):
        trace = {f.name: getattr(value.trace, f.name) for f in dataclasses.fields(value.trace)}
        return {"hits": plain(value.hits), "trace": plain(trace), "text": value.context()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if k not in DROPPED and k not in LATENCIES}
    if isinstance(value, str | int | bool | bytes) or value is None:
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Sequence | set | frozenset):
        return [plain(v) for v in value]
    return str(value)


_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
_HASH = re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b|\b\d+:[0-9a-f]{64}\b")
_PLACE = re.compile(r"\b(seq|ordinal|event|rows?) \d+\b|\b\d+ rows at\b|/tmp/\S+")


def comparable(transcript: list[tuple[str, Any]], foreign: Sequence[str] = ()) -> list[str]:
    """Each answer as text, ids replaced by the order in which they first appeared.

    Ids of other parties stand for ids that never existed: an answer that names one where the other telling
    names none differs all the same.
    """
    names: dict[str, str] = dict.fromkeys((NOWHERE, *foreign), "nowhere")

    def name(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"id{len(set(names.values()))}")

    return [_ID.sub(name, _PLACE.sub("*", _HASH.sub("#", f"{m}: {v!r}"))) for m, v in transcript]


# -- every public method, and how it is called ------------------------------------------------------------


class Party:
    """Someone with a handle, the ids it was given, and what it may try to steal."""

    def __init__(self, handle: AgentMemory, folder: Path, spaces: Sequence[str], **fields: Any) -> None:
        self.handle = handle
        self.folder = folder
        self.spaces = spaces
        self.fields = fields
        self.ids: list[str] = []
        self.receipts: list[Any] = []
        self.other: Party | None = None
        self.kin: Party | None = None  # whose memories it relates its own to
        self.files = itertools.count()

    def id(self, r: random.Random) -> str:
        """Mostly one of its own; sometimes the other party's last one, or none at all where there is no other."""
        steal = r.random() < 0.3
        pick = r.random()
        if steal:
            return self.other.ids[-1] if self.other is not None and self.other.ids else NOWHERE
        return self.ids[int(pick * len(self.ids))] if self.ids else NOWHERE

    def receipt(self, r: random.Random) -> Any:
        steal, pick = r.random() < 0.3, r.random()
        if steal:
            mine = self.receipts[-1].to_json() if self.receipts else {}
            theirs = self.other.receipts[-1].to_json() if self.other and self.other.receipts else mine
            return {**theirs, "tenant": "somebody else's"} if r.random() < 0.5 else "f" * 32
        return self.receipts[int(pick * len(self.receipts))] if self.receipts else "f" * 32

    def file(self) -> Path:
        return self.folder / f"file{next(self.files)}"


def sentence(r: random.Random) -> str:
    return f"{r.choice(TOPICS)} {r.choice(WORDS)}"


def item(p: Party, r: random.Random) -> dict[str, Any]:
    out: dict[str, Any] = {"content": sentence(r), "namespace": r.choice(list(p.spaces)), **p.fields}
    # That a fact was superseded is for all who could see it to know, whoever may read what took its place.
    if p.fields.get("memory_type") == "knowledge":
        out["content"] = f"{r.choice(TOPICS)} moved to the {r.choice(SPEAKERS)} floor"
    elif r.random() < 0.3:
        out["key"] = r.choice(["a.owner", "b.owner"])
    if r.random() < 0.3:
        out["tags"] = [r.choice(["cost", "address", "costs"])]
    if r.random() < 0.3:
        out["speaker"] = r.choice(SPEAKERS)
    if r.random() < 0.3:
        out["event_date"] = f"2025-12-{r.randrange(10, 31)}"
    if r.random() < 0.1:
        out["derived_from"] = [p.id(r)]
    if r.random() < 0.1:
        out["supersedes"] = [p.id(r)]
    return out


def add(p: Party, r: random.Random) -> Any:
    made = p.handle.add(**item(p, r))
    p.ids.append(made.id)
    return made


def preview(p: Party, r: random.Random) -> Any:
    return p.handle.add(**item(p, r), dry_run=True)


def add_many(p: Party, r: random.Random) -> Any:
    made = p.handle.add_many([item(p, r), item(p, r)])
    p.ids += [m.id for m in made]
    return made


def recall(p: Party, r: random.Random) -> Any:
    options: dict[str, Any] = {"namespaces": "*", "promote": r.random() < 0.5, "keep": r.random() < 0.3}
    if r.random() < 0.3:
        options["profile"] = {"graph_weight": 1.0, "tag_weight": 1.0}
    found = p.handle.recall(f"{r.choice(SPEAKERS)}, {sentence(r)} cost?", **options)
    p.receipts.append(found.receipt)
    return found


def export(p: Party, r: random.Random) -> Any:
    path = p.file()
    lines = p.handle.export_json(path)
    text = path.read_text()
    # What the log's own export says of positions and salts is random or counts this tenant's own events.
    told = re.sub(r'"(seq|ordinal)":\d+', "", text) if '"kind":"memories"' in text else None
    return [lines, text.splitlines()[0] if told is None else told, [i for i in p.ids if i in text]]


def bring_in(p: Party, r: random.Random) -> Any:
    path = p.file()
    p.handle.export_json(path)
    return p.handle.import_json(path, dry_run=r.random() < 0.5)


def agent(p: Party, r: random.Random) -> Any:
    made = p.handle.as_agent(f"a{r.randrange(3)}", role=r.choice(list(Role)), write_quota=3)
    return [made, made.search(namespaces="*")]


def replay(p: Party, r: random.Random) -> Any:
    told = p.handle.replay(p.receipt(r))
    return [told.identical, told.altered_by_erasure, told.recall]


Call = Callable[[Party, random.Random], Any]
CALLS: dict[str, Call] = {
    "tenant": lambda p, r: p.handle.tenant,
    "namespace": lambda p, r: p.handle.namespace,
    "agent_id": lambda p, r: p.handle.agent_id,
    "role": lambda p, r: str(p.handle.role),
    "embedder": lambda p, r: p.handle.embedder.fingerprint if p.handle.embedder else None,
    "clock": lambda p, r: p.handle.clock.now(),
    "as_agent": agent,
    "read_only": lambda p, r: p.handle.read_only().search(namespaces="*"),
    "flush": lambda p, r: p.handle.flush(),
    "add": add,
    "add_many": add_many,
    "update": lambda p, r: p.handle.update(p.id(r), content=sentence(r)),
    "forget": lambda p, r: p.handle.forget(p.id(r)),
    "restore": lambda p, r: p.handle.restore(p.id(r)),
    "supersede": lambda p, r: p.handle.supersede(p.id(r), p.id(r), dry_run=r.random() < 0.3),
    "link": lambda p, r: p.handle.link(p.id(r), (p.kin or p).id(r), "explains"),
    "flag": lambda p, r: p.handle.flag(p.id(r), f"is {r.choice(TOPICS)} right?"),
    "feedback": lambda p, r: p.handle.feedback(p.receipt(r), [p.id(r)]),
    "fit_profile": lambda p, r: p.handle.fit_profile(),
    "erase": lambda p, r: p.handle.erase(p.id(r), reason="asked for") if r.random() < 0.3 else None,
    "erase_where": lambda p, r: p.handle.erase_where(
        agent_id=p.handle.agent_id, dry_run=r.random() < 0.9, reason="asked for"
    ),
    "recall": recall,
    "recall_as_context": lambda p, r: p.handle.recall_as_context(sentence(r), namespaces="*"),
    "get": lambda p, r: p.handle.get(p.id(r)),
    "search": lambda p, r: p.handle.search(
        namespaces="*", include_closed=r.random() < 0.5, include_superseded=r.random() < 0.5
    ),
    "current_facts": lambda p, r: p.handle.current_facts(namespaces="*"),
    "timeline": lambda p, r: p.handle.timeline(r.choice(TOPICS), namespaces="*"),
    "history": lambda p, r: p.handle.history(p.id(r)),
    "why": lambda p, r: p.handle.why(p.id(r)),
    "explain": lambda p, r: p.handle.explain(sentence(r), p.id(r), namespaces="*"),
    "replay": replay,
    "receipts": lambda p, r: len(p.handle.receipts()),
    "maintain": lambda p, r: p.handle.maintain(),
    "gc": lambda p, r: p.handle.gc(dry_run=r.random() < 0.5),
    "reembed": lambda p, r: p.handle.reembed(r.choice(["hashing:64", "hashing:96"])),
    "verify": lambda p, r: p.handle.verify(),
    "audit": lambda p, r: p.handle.audit(),
    "health": lambda p, r: p.handle.health(),
    "stats": lambda p, r: p.handle.stats(),
    "export_json": export,
    "import_json": bring_in,
    "__iter__": lambda p, r: list(p.handle),
}
# These concern the process or the database file as a whole; tests/test_roles.py shows who may not call them.
WHOLE = {"close", "backup", "config", "doctor"}
EXTRA: dict[str, Call] = {"preview": preview}


def public_methods() -> set[str]:
    names = {n for n, _ in inspect.getmembers(AgentMemory) if not n.startswith("_")}
    return names | {"__iter__"}


def test_every_public_method_is_in_the_table() -> None:
    assert public_methods() - WHOLE == set(CALLS)


# -- telling a history ------------------------------------------------------------------------------------

Plan = list[tuple[str, str, int]]  # who, method, seed of its arguments
WRITES = ["add"] * 6 + ["add_many", "update", "link", "recall", "recall"]


def plan_of(seed: int, steps: int, who: Sequence[str], methods: Sequence[str]) -> Plan:
    r = random.Random(seed)
    out = []
    for number in range(steps):
        method = r.choice(WRITES) if number < steps // 2 else r.choice(list(methods))
        out.append((r.choice(list(who)), method, r.randrange(10**9)))
    return out


def tell(parties: Mapping[str, Party], clock: ManualClock, plan: Plan, observer: str) -> list[str]:
    """What the observer is told, step by step; steps of absent parties only take their time."""
    transcript: list[tuple[str, Any]] = []
    for who, method, seed in plan:
        clock.advance(hours=1)
        party = parties.get(who)
        if party is None:
            continue
        try:
            answer = plain((CALLS | EXTRA)[method](party, random.Random(seed)))
        except errors.TwofoldError as error:
            answer = f"{type(error).__name__}: {error}"
        if who == observer:
            transcript.append((method, answer))
        party.handle.flush()  # uses wait for the next commit of anyone in the vault: let it be at once
    other = parties[observer].other
    return comparable(transcript, other.ids if other is not None else ())


def counting() -> dict[str, Any]:
    from twofold.vault import IdSource

    ids, salts = itertools.count(), itertools.count(1)
    return {
        "ids": IdSource(lambda size: next(ids).to_bytes(size, "big")),
        "entropy": lambda size: next(salts).to_bytes(size, "big"),
    }


def owners(
    store: Any, clock: ManualClock, folder: Path, who: Sequence[str], blue: Any = None
) -> dict[str, Party]:
    """One owner's handle a tenant, in vaults of their own on one store."""
    out = {}
    for tenant in who:
        own = blue if tenant == "blue" and blue is not None else store
        mem = AgentMemory(store=own, tenant=tenant, embedder="hashing:64", clock=clock, **counting())
        out[tenant] = Party(mem, folder, ["default", "facts/a"])
    return out


def in_one_vault(store: Any, clock: ManualClock, folder: Path, who: Sequence[str]) -> dict[str, Party]:
    """One orchestrator a tenant, made by an admin: they share the embedder, the caches and the buffers."""
    admin = AgentMemory(store=store, admin=True, embedder="hashing:64", clock=clock, **counting())
    out = {}
    for tenant in who:
        handle = admin.as_agent("boss", role=Role.ORCHESTRATOR, tenant=tenant, namespace="default")
        out[tenant] = Party(handle, folder, ["default", "facts/a"])
    return out


def acquaint(parties: Mapping[str, Party]) -> None:
    for a, b in itertools.permutations(parties.values(), 2):
        a.other = b


def tenants_plan(seed: int, steps: int = 24) -> Plan:
    return plan_of(seed, steps, ["red", "blue"], [*CALLS, *EXTRA])


def every_call(seed: int) -> Plan:
    """Red has some of everything, then blue calls each method a few times, and red writes on in between."""
    r = random.Random(seed)
    red = ["add"] * 6 + [
        "add_many",
        "recall",
        "recall",
        "recall",
        "link",
        "update",
        "reembed",
        "erase",
        "erase",
    ]
    plan = [("red", m, r.randrange(10**9)) for m in red]
    for method in ["add", "add", "recall", *CALLS, *CALLS, *CALLS]:
        plan.append(("blue", method, r.randrange(10**9)))
        if r.random() < 0.2:
            plan.append(("red", "add", r.randrange(10**9)))
    return plan


def tenants_told(
    plan: Plan, arrange: Any, store: Callable[[], Any], **options: Any
) -> tuple[list[str], list[str]]:
    """The same plan told to blue beside red, and to blue alone."""
    out = []
    for who in (["red", "blue"], ["blue"]):
        clock = ManualClock()
        with tempfile.TemporaryDirectory() as folder:
            opened = store()
            extra = {k: v(opened) for k, v in options.items()} if "red" in who else {}
            parties = arrange(opened, clock, Path(folder), who, **extra)
            acquaint(parties)
            out.append(tell(parties, clock, plan, "blue"))
            opened.close()
    return out[0], out[1]


def same(beside: list[str], alone: list[str]) -> None:
    for number, (a, b) in enumerate(zip(beside, alone, strict=True)):
        assert a == b, f"step {number} differs"


SEEDS = st.integers(0, 2**40)


@pytest.mark.parametrize("arrange", [owners, in_one_vault])
@given(seed=SEEDS)
@settings(max_examples=20)
def test_tenants_leave_no_trace(arrange: Any, seed: int) -> None:
    same(*tenants_told(tenants_plan(seed), arrange, MemoryStore))


@pytest.mark.long
@pytest.mark.parametrize("arrange", [owners, in_one_vault])
@given(seed=SEEDS)
@settings(max_examples=2000)
def test_tenants_leave_no_trace_long(arrange: Any, seed: int) -> None:
    same(*tenants_told(tenants_plan(seed), arrange, MemoryStore))


@given(seed=SEEDS)
@settings(max_examples=6)
def test_tenants_leave_no_trace_in_one_file(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        count = itertools.count()
        beside, alone = tenants_told(
            tenants_plan(seed), owners, lambda: open_store(f"{folder}/{next(count)}")
        )
    no_size = functools.partial(re.sub, r"'bytes': \d+", "")  # of the whole file, as documented
    same(list(map(no_size, beside)), list(map(no_size, alone)))


class Marked(MemoryStore):
    """A store in which red's database is damaged, so that `check` has something to show."""

    def check(self, tenant: str) -> list[str]:
        return [*super().check(tenant), *(["a row of red is damaged"] if tenant == "red" else [])]


def test_the_plan_of_every_call_leaves_no_trace() -> None:
    same(*tenants_told(every_call(0), owners, Marked))


@pytest.mark.parametrize("method", tenant_methods())
def test_a_store_that_drops_the_tenant_is_noticed(method: str) -> None:
    """One mutant a method: it answers about red whoever asks."""
    called = False

    class Mutant(TenantDropped):
        def __getattr__(self, name: str) -> Any:
            nonlocal called
            called |= name == method
            return super().__getattr__(name)

    for seed in range(5):
        try:
            same(*tenants_told(every_call(seed), owners, Marked, blue=lambda s: Mutant(s, method, "red")))
        except Exception:  # noqa: BLE001 - a wrong answer, or a store that contradicts itself
            return
    if not called:  # only a damaged store makes anybody call it: then its own answer must differ
        store = Marked()
        red = owners(store, ManualClock(), Path(), ["red"])["red"]
        red.handle.add("the ledger moved")
        assert PROBES[method](store, "blue") != PROBES[method](TenantDropped(store, method, "red"), "blue")
        return
    pytest.fail(f"nobody notices that {method} drops the tenant")


# -- first of all: the owner's own data is there -----------------------------------------------------------

SHOWS_CONTENT = [
    "read_only", "as_agent", "add", "add_many", "update", "forget", "recall", "recall_as_context", "get", "search",
    "current_facts", "timeline", "history", "why", "explain", "replay", "export_json", "__iter__",
]  # fmt: skip
COUNTS_OR_WRITES = [m for m in CALLS if m not in SHOWS_CONTENT]
SILENT = {"tenant", "namespace", "agent_id", "role", "embedder", "clock", "flush"}


def prepared(folder: Path, clock: ManualClock) -> Party:
    store = MemoryStore()
    party = owners(store, clock, folder, ["red"])["red"]
    mem = party.handle
    for number in range(4):
        party.ids.append(mem.add(f"Juno moved {number}", entities=["Juno"], memory_type="observation").id)
    mem.update(party.ids[0], content="Juno moved again", entities=["Juno"])
    mem.supersede(party.ids[1], party.ids[2])
    party.receipts.append(mem.recall("Juno moved", keep=True).receipt)
    return party


@pytest.mark.parametrize("method", [m for m in CALLS if m not in SILENT])
def test_each_method_first_shows_or_changes_its_owners_data(
    method: str, tmp_path: Path, clock: ManualClock
) -> None:
    for seed in range(60):
        party = prepared(tmp_path, clock)
        party.handle.flush()
        if method in ("gc", "maintain"):
            clock.advance(days=60)
        before = snapshot(party.handle._vault.store, "red")["head"].seq
        try:
            answer = CALLS[method](party, random.Random(seed))
        except errors.TwofoldError:
            continue
        changed = snapshot(party.handle._vault.store, "red")["head"].seq != before
        text = f"{plain(answer)} {answer}"
        if method in SHOWS_CONTENT:
            if any(t in text for t in (*TOPICS, *party.ids)):
                return
        elif changed or any(i in text for i in party.ids) or re.search(r"[1-9]", text):
            return
    pytest.fail(f"{method} never showed its owner anything")


# -- within a tenant: what a handle may not see ------------------------------------------------------------

OBSERVERS: dict[str, dict[str, Any]] = {
    "executor": {"role": Role.EXECUTOR, "namespaces": ["build/*"]},
    "planner": {"role": Role.PLANNER},
    "researcher": {"role": Role.RESEARCHER},
    "reviewer": {"role": Role.REVIEWER},
    "narrow orchestrator": {"role": Role.ORCHESTRATOR, "namespaces": ["build/*", "facts/*"]},
    "narrow monitor": {"role": Role.MONITOR, "namespaces": ["facts/*"]},
    "read only": {"role": Role.PLANNER, "read_only": True},
}
WRITABLE = {"executor": "build/a", "narrow orchestrator": "build/a", "narrow monitor": "facts/a"}
TYPES = {"executor": "fact", "reviewer": "review", "narrow monitor": "observation"}
# What is hidden from each: another namespace, a private row beside its own, a type it does not read.
HIDDEN: dict[str, list[dict[str, Any]]] = {
    "executor": [{"namespace": "other"}, {"namespace": "build/a", "visibility": "private"}],
    "planner": [{"namespace": "private/x"}, {"namespace": "default", "visibility": "private"}],
    "researcher": [{"namespace": "audit"}, {"namespace": "facts/a", "visibility": "private"}],
    "reviewer": [{"namespace": "default", "memory_type": "knowledge"}, {"namespace": "private"}],
    "narrow orchestrator": [{"namespace": "other"}, {"namespace": "builder"}],
    "narrow monitor": [{"namespace": "other"}, {"namespace": "build/a", "visibility": "team"}],
    "read only": [{"namespace": "private"}, {"namespace": "facts/a", "visibility": "private"}],
}
# The rest is of the store as a whole, and of those who may look at all of it.
WITHIN = (
    "recall recall recall search get history timeline current_facts stats explain export_json why why receipts "
    "feedback link add add add_many update supersede replay recall_as_context __iter__ read_only audit flag "
    "forget restore"
).split()


def agents_told(seed: int, name: str, steps: int = 30) -> tuple[list[str], list[str]]:
    """A plan of the observer and of an owner who writes what it may see, with and without hidden writes."""
    plan = plan_of(seed, steps, [name, name, "owner", "hidden", "hidden"], [*WITHIN, "preview"])
    out = []
    for hidden in (True, False):
        clock = ManualClock()
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(MemoryStore()) as store:
            mem = AgentMemory(store=store, embedder="hashing:64", clock=clock, **counting())
            mem.add("the store is open", namespace="elsewhere")
            space = WRITABLE.get(name, "default")
            parties = {
                "owner": Party(mem, Path(folder), [space, "facts/a"], memory_type="fact"),
                name: Party(
                    mem.as_agent("me", **OBSERVERS[name], namespace=space),
                    Path(folder),
                    [space],
                    memory_type=TYPES.get(name, "fact"),
                ),
            }
            if hidden:
                r = random.Random(seed)
                fields = r.choice(HIDDEN[name])
                hider = mem.as_agent("hider", role=Role.ORCHESTRATOR)
                other = Party(hider, Path(folder), [fields["namespace"]], **_without_namespace(fields))
                parties["hidden"] = other
                parties[name].other, other.kin = other, parties[name]
            # The owner and the hidden party only write; reads of theirs would be uses of what all see.
            writes = [
                (who, method if who == name or method in ("add", "add_many", "link") else "add", s)
                for who, method, s in plan
            ]
            out.append(tell(parties, clock, writes, name))
    return out[0], out[1]


def _without_namespace(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if k != "namespace"}


@pytest.mark.parametrize("name", OBSERVERS)
@given(seed=SEEDS)
@settings(max_examples=12)
def test_what_a_handle_may_not_see_leaves_no_trace(name: str, seed: int) -> None:
    same(*agents_told(seed, name))


@pytest.mark.long
@pytest.mark.parametrize("name", OBSERVERS)
@given(seed=SEEDS)
@settings(max_examples=300)
def test_what_a_handle_may_not_see_leaves_no_trace_long(name: str, seed: int) -> None:
    same(*agents_told(seed, name))
