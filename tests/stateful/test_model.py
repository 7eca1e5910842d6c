"""AgentMemory against a plain model: any history shows the same at any (as_of, known_at).

The model keeps versions and the ends of their intervals in lists, and answers by looking at all of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.reference import decay as reference

from twofold import AgentMemory, DecayPolicy, errors
from twofold.clock import DAY, ManualClock, from_us, to_us
from twofold.vault import IdSource

START = "2026-03-01T00:00:00Z"
SPACES = ("default", "build/a")
WORDS = ("alpha", "beta", "gamma", "delta")
POLICY = DecayPolicy.published()
FOREVER = 2**62


@dataclasses.dataclass
class End:
    """An event that ended an interval; `voided` is when a restore took it back."""

    axis: str
    at: int
    by: str | None
    order: int
    recorded: int
    archive: bool = False
    voided: int | None = None


@dataclasses.dataclass
class Version:
    id: str
    ordinal: int
    namespace: str
    content: str
    key: str | None
    tags: tuple[str, ...]
    pinned: bool
    event_at: int | None
    recorded: int
    valid_from: int
    number: int = 1
    ends: list[End] = dataclasses.field(default_factory=list)
    erased: bool = False

    def standing(self, known: int = FOREVER) -> list[End]:
        return [
            e for e in self.ends if e.recorded <= known and not (e.voided is not None and e.voided <= known)
        ]

    def closed(self, known: int = FOREVER) -> bool:
        return any(e.axis == "known" for e in self.standing(known))

    def valid_to(self, known: int = FOREVER) -> int:
        return min((e.at for e in self.standing(known) if e.axis == "valid"), default=FOREVER)

    def superseded_by(self, known: int = FOREVER) -> str | None:
        ends = [e for e in self.standing(known) if e.axis == "valid"]
        return min(ends, key=lambda e: (e.at, -e.order)).by if ends else None

    def shown(self, known: int, as_of: int) -> bool:
        """Recorded, not erased, not retracted in what was known at `known`, and true at `as_of`."""
        return (
            not self.erased
            and self.recorded <= known
            and not self.closed(known)
            and self.valid_from <= as_of < self.valid_to(known)
        )


class Model:
    """What should be the case."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.last = 0  # when anything was recorded last
        self.order = itertools.count()
        self.waiting: list[tuple[str, int]] = []
        self.accesses: list[tuple[str, int]] = []

    def begin(self, now: int) -> int:
        """A commit: its time, after which what waited is committed too."""
        self.last = max(self.last, now)
        self.accesses += self.waiting
        self.waiting = []
        return self.last

    def live(self) -> list[Version]:
        return [v for v in self.versions if not v.erased]

    def of(self, memory_id: str) -> list[Version]:
        return [v for v in self.live() if v.id == memory_id]

    def ids(self) -> list[str]:
        return list(dict.fromkeys(v.id for v in self.live()))

    def end(self, version: Version, axis: str, at: int, by: str | None) -> None:
        version.ends.append(End(axis, at, by, next(self.order), self.last))

    def duplicate(self, fields: dict[str, Any]) -> Version | None:
        for v in reversed(self.live()):
            same = (v.namespace, v.content, v.key, v.event_at)
            wanted = (fields["namespace"], fields["content"], fields["key"], fields["event_at"])
            if same == wanted and not v.closed() and v.valid_to() == FOREVER:
                return v
        return None

    def append(self, memory_id: str, number: int, valid_from: int, fields: dict[str, Any]) -> Version:
        version = Version(
            memory_id, len(self.versions), recorded=self.last, valid_from=valid_from, number=number, **fields
        )
        self.versions.append(version)
        return version

    def add(self, memory_id: str, now: int, fields: dict[str, Any]) -> Version:
        """The version that holds it afterwards."""
        recorded = self.begin(now)
        twin = self.duplicate(fields)
        if twin is not None:
            tags = tuple(dict.fromkeys((*twin.tags, *fields["tags"])))
            if tags == twin.tags and twin.pinned >= fields["pinned"]:
                return twin
            return self.correct(twin, {"tags": tags, "pinned": twin.pinned or fields["pinned"]})
        start = recorded if fields["event_at"] is None else fields["event_at"]
        new = self.append(memory_id, 1, start, fields)
        if new.key is None:
            return new
        rivals = [
            v
            for v in self.live()
            if v.namespace == new.namespace and v.key == new.key and v.content != new.content
        ]
        rivals = [v for v in rivals if not v.closed()]
        later = [v for v in rivals if v.valid_from > start]
        for v in rivals:
            if v.valid_from <= start < v.valid_to():
                self.end(v, "valid", start, new.id)
        if later:
            following = min(later, key=lambda v: (v.valid_from, v.ordinal))
            self.end(new, "valid", following.valid_from, following.id)
        return new

    def correct(self, old: Version, changes: dict[str, Any]) -> Version:
        fields = {
            n: getattr(old, n) for n in ("namespace", "content", "key", "tags", "pinned", "event_at")
        } | changes
        new = self.append(old.id, old.number + 1, old.valid_from, fields)
        self.end(old, "known", self.last, None)
        for e in old.standing():
            if e.axis == "valid":
                self.end(new, "valid", e.at, e.by)
        return new

    def restore(self, version: Version, now: int) -> bool:
        standing = version.standing()
        chosen = [e for e in standing if e.axis == "known"] or standing
        for e in chosen:
            e.voided = self.last
        if any(e.archive for e in chosen):
            self.accesses.append((version.id, now))
        return bool(chosen)

    def strength(self, version: Version, now: int) -> float:
        used = [t for who, t in self.accesses if who == version.id and t <= now]
        last = max([version.recorded, *used])
        strength = reference.strength(
            (now - version.recorded) / DAY,
            (now - last) / DAY,
            len(used),
            sum(t > now - DAY for t in used),
        )
        return max(strength, 0.1) if len(used) >= 4 else strength

    def faded(self, version: Version, now: int) -> bool:
        return not version.pinned and self.strength(version, now) < 0.1


class Machine(RuleBasedStateMachine):
    """Histories of one tenant, told to both."""

    folder: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        count = itertools.count()
        self.ids = IdSource(lambda size: next(count).to_bytes(size, "big"))
        self.salts = itertools.count(1)
        self.model = Model()
        self.moments = [to_us(START)]
        self.reported: int | None = None
        self.mem = self.open()

    def open(self) -> AgentMemory:
        return AgentMemory(
            ":memory:" if self.folder is None else self.folder,
            embedder="hashing:64",
            clock=self.clock,
            ids=self.ids,
            entropy=lambda size: next(self.salts).to_bytes(size, "big"),
            decay=POLICY,
        )

    def teardown(self) -> None:
        self.whole_past()
        self.mem.close()

    @property
    def now(self) -> int:
        return to_us(self.clock.now())

    def some(self, pick: int) -> str:
        ids = self.model.ids()
        return ids[pick % len(ids)]

    def begin(self) -> None:
        self.moments.append(self.model.begin(self.now))

    # -- what happens -------------------------------------------------------------------------------

    @rule(
        content=st.sampled_from(WORDS),
        namespace=st.sampled_from((SPACES[0], *SPACES)),
        key=st.sampled_from([None, "k.one", "k.one", "k.two"]),
        day=st.none() | st.integers(-3, 3),
        tags=st.sampled_from([(), (), ("t",), ("u",)]),
        pinned=st.sampled_from([False, False, False, True]),
        many=st.booleans(),
    )
    def add(
        self,
        content: str,
        namespace: str,
        key: str | None,
        day: int | None,
        tags: tuple[str, ...],
        pinned: bool,
        many: bool,
    ) -> None:
        content = f"a note about {content}"
        event_at = None if day is None else to_us(START) + day * DAY
        item = {
            "content": content,
            "namespace": namespace,
            "key": key,
            "tags": tags,
            "pinned": pinned,
            "event_date": None if event_at is None else from_us(event_at),
        }
        stored = self.mem.add_many([item])[0] if many else self.mem.add(**item)
        fields = {k: v for k, v in item.items() if k != "event_date"} | {"event_at": event_at}
        expected = self.model.add(stored.id, self.now, fields)
        self.moments.append(self.model.last)
        assert (stored.id, stored.ordinal, stored.version) == (expected.id, expected.ordinal, expected.number)

    @rule(hours=st.sampled_from([0, 1, 5, 24, 100, 700]), back=st.sampled_from([0, 0, 0, 30]))
    def time_passes(self, hours: int, back: int) -> None:
        """Usually forward; a clock set back must not bring the log out of order."""
        self.clock.advance(hours=hours - back)

    @precondition(lambda self: self.model.ids())
    @rule(a=st.integers(0, 50), b=st.integers(0, 50))
    def supersede(self, a: int, b: int) -> None:
        old_id, new_id = self.some(a), self.some(b)
        old, new = self.model.of(old_id)[-1], self.model.of(new_id)[-1]
        if old_id == new_id or old.namespace != new.namespace or old.closed() or new.closed():
            with pytest.raises(errors.InvalidInput):
                self.mem.supersede(old_id, new_id)
            return
        self.mem.supersede(old_id, new_id)
        self.begin()
        self.model.end(old, "valid", max(old.valid_from, new.valid_from), new_id)

    @precondition(lambda self: self.model.ids())
    @rule(pick=st.integers(0, 50))
    def restore(self, pick: int) -> None:
        version = self.model.of(self.some(pick))[-1]
        if not version.standing():
            with pytest.raises(errors.InvalidInput):
                self.mem.restore(version.id)
            return
        self.mem.restore(version.id)
        self.begin()
        assert self.model.restore(version, self.now)

    @precondition(lambda self: self.model.ids())
    @rule(pick=st.integers(0, 50))
    def forget(self, pick: int) -> None:
        version = self.model.of(self.some(pick))[-1]
        if version.closed():
            with pytest.raises(errors.NotFound):
                self.mem.forget(version.id)
            return
        self.mem.forget(version.id)
        self.begin()
        self.model.end(version, "known", self.model.last, None)

    @precondition(lambda self: self.model.ids())
    @rule(pick=st.integers(0, 50), content=st.sampled_from(WORDS), key=st.sampled_from([None, "k.one"]))
    def update(self, pick: int, content: str, key: str | None) -> None:
        version = self.model.of(self.some(pick))[-1]
        changes = {"content": f"a note about {content}", "key": key}
        if version.closed():
            with pytest.raises(errors.InvalidInput):
                self.mem.update(version.id, **changes)
            return
        made = self.mem.update(version.id, **changes)
        self.begin()
        new = self.model.correct(version, changes)
        assert (made.id, made.version, made.ordinal) == (new.id, new.number, new.ordinal)

    @precondition(lambda self: self.model.ids())
    @rule(pick=st.integers(0, 50), sure=st.sampled_from([False, False, True]))
    def erase(self, pick: int, sure: bool) -> None:
        if not sure:
            return
        memory_id = self.some(pick)
        self.mem.erase(memory_id, reason="asked for")
        self.begin()
        for version in self.model.of(memory_id):
            version.erased = True
        for gone in (self.mem.forget, self.mem.restore, self.mem.history):
            with pytest.raises(errors.NotFound):
                gone(memory_id)

    @rule(promote=st.booleans(), flush=st.booleans(), times=st.integers(1, 4))
    def recall_now(self, promote: bool, flush: bool, times: int) -> None:
        for _ in range(times if promote else 1):
            found = self.mem.recall("note", k=1000, namespaces="*", promote=promote)
            as_of = max(self.now, self.model.last)
            wanted = [v for v in self.model.versions if v.shown(FOREVER, as_of)]
            fresh = [v for v in wanted if not self.model.faded(v, self.now)]
            self.agree(found, fresh)
            assert found.faded == len(wanted) - len(fresh)
            if promote:
                self.model.waiting += [(h.memory.id, self.now) for h in found]
                if len(self.model.waiting) >= 256:
                    self.begin()
        if flush and self.model.waiting:
            self.mem.flush()
            self.begin()

    def agree(self, found: Any, wanted: list[Version]) -> None:
        """Recall drops what says the same as a better hit, so contents must agree and ids be among them."""
        assert {h.content for h in found} == {v.content for v in wanted}
        assert {(h.memory.id, h.memory.version) for h in found} <= {(v.id, v.number) for v in wanted}

    def changes(self) -> list[int]:
        """The instants at which something became true or stopped being so."""
        ends = {e.at for v in self.model.versions for e in v.ends}
        return sorted({*self.moments, *(v.valid_from for v in self.model.versions)} | ends)

    @rule(a=st.integers(0, 300), b=st.integers(0, 300), shift=st.sampled_from([-1, 0, 1]))
    def look_back(self, a: int, b: int, shift: int) -> None:
        """Any pair of times: at, just before and just after the instants where something changed."""
        changes = self.changes()
        as_of, known_at = changes[a % len(changes)] + shift, self.moments[b % len(self.moments)] + shift
        wanted = self.as_it_was(as_of, known_at)
        times = {"as_of": from_us(as_of), "known_at": from_us(known_at)}
        self.agree(self.mem.recall("note", k=1000, namespaces="*", promote=False, **times), wanted)
        for memory_id in self.model.ids():
            got = self.mem.get(memory_id, **times)
            known = [v for v in wanted if v.id == memory_id]
            assert (None if got is None else got.version) == (known[-1].number if known else None)

    def as_it_was(self, as_of: int, known_at: int) -> list[Version]:
        wanted = [v for v in self.model.versions if v.shown(known_at, as_of)]
        found = self.mem.search(namespaces="*", limit=None, as_of=from_us(as_of), known_at=from_us(known_at))
        assert [(m.id, m.version) for m in found] == [(v.id, v.number) for v in reversed(wanted)]
        for memory, version in zip(found, reversed(wanted), strict=True):
            self.same_interval(memory, version, known_at)
        return wanted

    def whole_past(self) -> None:
        """Every state that was ever known, each at instants spread over all changes."""
        changes = self.changes()
        for number, known_at in enumerate(sorted(set(self.moments))):
            for as_of in changes[number % 3 :: max(1, len(changes) // 8)]:
                self.as_it_was(as_of, known_at)

    def same_interval(self, memory: Any, version: Version, known: int = FOREVER) -> None:
        valid_to = version.valid_to(known)
        assert memory.valid_from == from_us(version.valid_from)
        assert memory.valid_to == (None if valid_to == FOREVER else from_us(valid_to))
        assert memory.superseded_by == version.superseded_by(known)
        assert (memory.closed_at is not None) == version.closed(known)

    @rule(later=st.integers(0, 40), dry_run=st.booleans())
    def maintain(self, later: int, dry_run: bool) -> None:
        at = self.now + later * DAY
        if self.model.waiting:
            self.begin()  # it commits what waits first
        report = self.mem.maintain(now=from_us(at), dry_run=dry_run)
        live = [v for v in self.model.live() if not v.closed()]
        assert report.live == len(live)
        assert report.faded == sum(self.model.faded(v, at) for v in live)
        due = self.reported is None or self.reported // DAY < at // DAY
        assert report.recorded == (due and not dry_run)
        if report.recorded:
            self.reported = at
            self.begin()

    @rule(dry_run=st.booleans())
    def gc(self, dry_run: bool) -> None:
        if self.model.waiting:
            self.begin()
        weak = [v for v in self.model.live() if not v.closed() and self.model.faded(v, self.now)]
        report = self.mem.gc(dry_run=dry_run)
        assert {i for i, _ in report.candidates} == {v.id for v in weak}
        assert [s for _, s in report.candidates] == sorted(s for _, s in report.candidates)
        if not dry_run and weak:
            self.begin()
            for version in weak:
                self.model.end(version, "known", self.model.last, None)
                version.ends[-1].archive = True

    @rule()
    def reopen(self) -> None:
        if self.folder is None:
            return
        if self.model.waiting:
            self.begin()
        self.mem.close()
        self.mem = self.open()

    # -- what always holds --------------------------------------------------------------------------

    @invariant()
    def the_chain_verifies(self) -> None:
        assert self.mem.verify().problems == ()

    @invariant()
    def indexes_equal_the_rows(self) -> None:
        health = self.mem.health()
        assert health["healthy"], health

    @invariant()
    def counts_agree(self) -> None:
        live = [v for v in self.model.live() if not v.closed()]
        stats = self.mem.stats()
        assert stats["memories"] == len(live)
        assert stats["versions"] == len(self.model.versions)
        assert stats["current"] == len([v for v in live if v.shown(FOREVER, max(self.now, self.model.last))])
        assert sum(stats["by_namespace"].values()) == len(live)

    @invariant()
    def histories_are_whole(self) -> None:
        for memory_id in self.model.ids():
            versions = self.model.of(memory_id)
            told = self.mem.history(memory_id)
            assert [(m.version, m.content, m.tags) for m in told] == [
                (v.number, v.content, v.tags) for v in versions
            ]
            for memory, version in zip(told, versions, strict=True):
                self.same_interval(memory, version)
                assert memory.recorded_at == from_us(version.recorded)
                used = [t for who, t in self.model.accesses if who == memory_id and t <= self.now]
                assert memory.access_count == len(used)
                assert memory.last_accessed_at == (from_us(max(used)) if used else None)

    @invariant()
    def one_value_at_a_time(self) -> None:
        """A key has one current value, unless someone brought an older one back or corrected one into it."""
        if any(e.voided is not None for v in self.model.versions for e in v.ends):
            return
        if any(v.number > 1 for v in self.model.versions):
            return
        values: dict[tuple[str, str], set[str]] = {}
        for memory in self.mem.current_facts(namespaces="*"):
            if memory.key is not None:
                values.setdefault((memory.namespace, memory.key), set()).add(memory.content)
        assert all(len(contents) == 1 for contents in values.values()), values


class OnDisk(Machine):
    """The same in a SQLite file, which is closed and opened again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


def examples(machine: type[Machine], few: int) -> Any:
    """The machine as a test case: `few` examples in the commit lane, the profile's number in the long one."""
    case = machine.TestCase
    case.settings = hypothesis.settings(max_examples=max(few, hypothesis.settings().max_examples // 10))
    return case


TestInMemory = examples(Machine, 80)
TestOnDisk = examples(OnDisk, 15)
