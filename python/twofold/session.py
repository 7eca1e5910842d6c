"""The agent loop's side of memory: L1 each turn, and a snapshot of it in L2 every few turns.

Persisting happens on one thread of the session's own, so that the loop never waits for it.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from twofold.clock import Clock
from twofold.errors import InvalidInput, NotFound, StoreError
from twofold.model import Memory
from twofold.scratchpad import Decision, Scratchpad, Snapshot

__all__ = ["Session"]


class Vault(Protocol):
    """The part of AgentMemory that a session uses."""

    @property
    def clock(self) -> Clock: ...

    def add(self, content: str, **fields: Any) -> Memory: ...

    def search(self, **filters: Any) -> list[Memory]: ...


class _Waiting(NamedTuple):
    """One snapshot on its way into L2; already plain JSON data, so later turns cannot change it."""

    turn: int
    snapshot: Snapshot
    sources: tuple[str, ...]


class Session:
    """One conversation of one agent: writes the context each turn and persists it every few turns.

    >>> from twofold import AgentMemory
    >>> mem = AgentMemory(":memory:", embedder=None)
    >>> with Session(mem, session_id="s1") as session:
    ...     for turn in range(6):
    ...         _ = session.after_response(objective="ship the release", turn=turn)
    >>> Session.resume(mem, "s1").snapshot()["objective"]
    'ship the release'
    >>> mem.close()
    """

    def __init__(
        self,
        mem: Vault,
        session_id: str,
        snapshot_every: int = 5,
        *,
        pad: Scratchpad | None = None,
        namespace: str | None = None,
    ) -> None:
        """Begin a session on a handle.

        snapshot_every: turns between snapshots, at least 1. pad: the scratchpad to use; a new one on the
        handle's clock when left out. namespace: where snapshots go; the handle's own when left out.
        Raises InvalidInput.
        """
        _check_id(session_id)
        _check_whole(snapshot_every, "snapshot_every", 1)
        self.session_id = session_id
        self.snapshot_every = snapshot_every
        self.pad = pad if pad is not None else Scratchpad(clock=mem.clock)
        self._turn = 0
        self._taken: set[int] = set()
        self._sources: dict[str, None] = {}
        self._writer = _Writer(mem, session_id, namespace)
        # A finalizer also runs at exit, before that of `mem`, which is older.
        self._finalizer = weakref.finalize(self, self._writer.close)

    @classmethod
    def resume(
        cls,
        mem: Vault,
        session_id: str,
        snapshot_every: int = 5,
        *,
        pad: Scratchpad | None = None,
        namespace: str | None = None,
    ) -> Self:
        """Continue a session from its newest snapshot: objective, constraints, decisions and turn number.

        Raises NotFound when the handle can see no snapshot of that session.
        """
        where: dict[str, Any] = {} if namespace is None else {"namespaces": [namespace]}
        found = mem.search(memory_types=["snapshot"], session_id=session_id, **where)
        if not found:
            raise NotFound(
                f"no snapshot of session {session_id!r} in this handle's scope; begin it with Session(...)"
            )
        newest = max(found, key=lambda memory: memory.ordinal)
        try:
            kept, turn = newest.metadata["snapshot"], newest.metadata["turn"]
            objective, constraints, decisions = kept["objective"], kept["constraints"], kept["decisions"]
        except (KeyError, TypeError):
            raise InvalidInput(
                f"memory {newest.id} is of type snapshot, but was not written by a Session; forget or retype it"
            ) from None
        session = cls(mem, session_id, snapshot_every, pad=pad, namespace=namespace)
        session.pad.set_current_context(objective=objective, constraints=list(constraints), turn=turn)
        for decision in reversed(decisions):
            session.pad.push_decision(decision)
        session._turn = turn
        session._taken.add(turn)
        session._writer.last_id = newest.id
        return session

    @property
    def turn(self) -> int:
        """The number of the last turn; 0 before the first."""
        return self._turn

    @property
    def errors(self) -> tuple[Exception, ...]:
        """What went wrong while persisting and was not raised yet; `flush` and `close` raise it."""
        return tuple(error for _, error in self._writer.failed.copy())

    def after_response(
        self,
        *,
        objective: Any = None,
        user_message: Any = None,
        tool_call: Any = None,
        tool_output: Any = None,
        turn: int | None = None,
        constraints: Sequence[Any] | None = None,
        sources: Iterable[str] = (),
        **context: Any,
    ) -> bool:
        """Write the context of a turn, and queue a snapshot when the turn is due for one.

        What is None keeps its value of earlier turns. turn: counts on by itself when left out; turn 0 and a turn
        that was queued before give no snapshot. sources: ids of memories this turn drew on; they become
        the snapshot's `derived_from`. context: any other keys. Returns whether a snapshot was queued, and never
        waits for the vault: what goes wrong there is raised by `flush` and `close`.
        Raises InvalidInput for a bad turn, values that are not JSON in what is persisted, a closed session.
        """
        if turn is not None:
            _check_whole(turn, "turn", 0)
        given = {
            "objective": objective,
            "user_message": user_message,
            "tool_call": tool_call,
            "tool_output": tool_output,
            "constraints": constraints,
            **context,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        with self._writer.lock:
            self._writer.check_open()
            number = self._turn + 1 if turn is None else turn
            self.pad.set_current_context(fields, turn=number)
            self._turn = number
            self._sources.update(dict.fromkeys(sources))
            if number == 0 or number % self.snapshot_every or number in self._taken:
                return False
            waiting = _Waiting(number, self._plain(self.pad.snapshot()), tuple(self._sources))
            self._taken.add(number)
            self._sources.clear()
            self._writer.put(waiting)
        return True

    def _plain(self, snapshot: Snapshot) -> Snapshot:
        try:
            plain: Snapshot = json.loads(json.dumps(snapshot, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"session {self.session_id!r}: objective, constraints and decisions must be JSON values: {error}"
            ) from error
        return plain

    def push_decision(
        self, reasoning: Any = None, action: Any = None, outcome: Any = None, *, timestamp: Any = None
    ) -> Decision:
        """As `Scratchpad.push_decision`."""
        return self.pad.push_decision(reasoning, action, outcome, timestamp=timestamp)

    def snapshot(self) -> Snapshot:
        """As `Scratchpad.snapshot`; nothing is persisted."""
        return self.pad.snapshot()

    def flush(self) -> None:
        """Wait until everything queued is in L2.

        Raises the first error met since the last flush, with the others in its notes. A snapshot that a
        StoreError kept out (a busy store) is tried again by the next flush or close; another error ends it.
        """
        self._writer.flush()

    def close(self) -> None:
        """Persist what is queued and end the session; raises as `flush`. A second close does nothing."""
        self._finalizer.detach()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.session_id!r}, turn={self._turn}, snapshot_every={self.snapshot_every})"


class _Writer:
    """The queue and the thread of one session. Knows nothing of the Session, so that it can outlive it."""

    def __init__(self, mem: Vault, session_id: str, namespace: str | None) -> None:
        self.mem = mem
        self.session_id = session_id
        self.namespace = namespace
        self.last_id: str | None = None
        self.closed = False
        self._reset()
        _writers.add(self)

    def _reset(self) -> None:
        self.lock = threading.RLock()
        self.queue: SimpleQueue[_Waiting | threading.Event | None] = SimpleQueue()
        self.worker: threading.Thread | None = None
        self.failed: list[tuple[_Waiting, Exception]] = []

    def check_open(self) -> None:
        if self.closed:
            raise InvalidInput(f"session {self.session_id!r} is closed; go on with Session.resume")

    def put(self, waiting: _Waiting) -> None:
        with self.lock:
            if self.worker is None:
                # A daemon, because one that waits for work must not keep the process alive; the session's
                # finalizer empties the queue at exit.
                self.worker = threading.Thread(
                    target=self._run, args=(self.queue,), name=f"twofold-{self.session_id}", daemon=True
                )
                self.worker.start()
            self.queue.put(waiting)

    def _run(self, queue: SimpleQueue[_Waiting | threading.Event | None]) -> None:
        while (item := queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._persist(item)
            except Exception as error:  # noqa: BLE001 - kept, and raised by flush or close
                self.failed.append((item, error))

    def _persist(self, waiting: _Waiting) -> None:
        fields: dict[str, Any] = {
            "content": _render(self.session_id, waiting),
            "memory_type": "snapshot",
            "session_id": self.session_id,
            "metadata": {"turn": waiting.turn, "snapshot": waiting.snapshot},
            "tags": ["snapshot"],
        }
        if self.namespace is not None:
            fields["namespace"] = self.namespace
        # Each snapshot repeats what the one before held, so erasing that one must reach it.
        before = () if self.last_id is None else (self.last_id,)
        self.last_id = self.mem.add(**fields, derived_from=[*before, *waiting.sources]).id

    def flush(self) -> None:
        with self.lock:
            if threading.current_thread() is self.worker:
                return  # a finalizer that the collector runs here: the loop empties the queue itself
            again, self.failed[:] = (
                [item for item, error in self.failed if isinstance(error, StoreError)],
                [(item, error) for item, error in self.failed if not isinstance(error, StoreError)],
            )
            for item in again:
                self.put(item)
            worker, marker = self.worker, threading.Event()
            if worker is not None:
                self.queue.put(marker)
        if worker is not None:
            while not marker.wait(0.5):
                if not worker.is_alive():
                    raise StoreError(f"the thread that persists session {self.session_id!r} has ended")
        self._raise()

    def _raise(self) -> None:
        with self.lock:
            met = self.failed.copy()
            self.failed[:] = [(item, error) for item, error in met if isinstance(error, StoreError)]
        if not met:
            return
        (_, first), *others = met
        for item, error in others:
            first.add_note(f"also turn {item.turn}: {type(error).__name__}: {error}")
        raise first

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
        try:
            self.flush()
        finally:
            worker = self.worker
            self.queue.put(None)
            if worker is not None and worker is not threading.current_thread():
                worker.join()

    def after_fork(self) -> None:
        # The parent still has its thread and persists what it queued; here the lock may be held by a thread
        # that does not exist.
        self._reset()


def _check_id(value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"session_id must be a non-empty string, not {value!r}")


def _check_whole(value: object, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} must be a whole number from {least}, not {value!r}")


def _render(session_id: str, waiting: _Waiting) -> str:
    snapshot = waiting.snapshot
    lines = [f"Session {session_id}, turn {waiting.turn}, {snapshot['snapshot_at']}"]
    if snapshot["objective"] is not None:
        lines.append(f"Objective: {_text(snapshot['objective'])}")
    lines += [f"Constraint: {_text(constraint)}" for constraint in snapshot["constraints"]]
    for decision in snapshot["decisions"]:
        parts = (
            f"{name} {_text(decision[name])}"
            for name in ("action", "reasoning", "outcome")
            if decision[name] is not None
        )
        lines.append(f"Decision at {_text(decision['timestamp'])}: {'; '.join(parts)}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


_writers: weakref.WeakSet[_Writer] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_writers):
        writer.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
