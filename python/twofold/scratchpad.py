"""L1: what an agent needs this turn, in RAM. `get` and `set` are the compiled core's own methods.

A scratchpad holds three things: entries (least recently used out first, gone after their time to live),
the current context, and the last decision points. Context and decisions neither expire nor are evicted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from twofold import _core
from twofold.clock import Clock, SystemClock, from_us, iso, to_us
from twofold.errors import InvalidInput

__all__ = ["CONTEXT_KEYS", "DECISION_LIMIT", "Decision", "Scratchpad", "Snapshot"]

CONTEXT_KEYS: Final = (
    "current_objective",
    "last_user_message",
    "last_tool_call",
    "last_tool_output",
    "conversation_turn",
    "active_constraints",
)
"""Keys that always belong to the context, however they are written."""

DECISION_LIMIT: Final = 5
_SHORT: Final = {
    "objective": "current_objective",
    "user_message": "last_user_message",
    "tool_call": "last_tool_call",
    "tool_output": "last_tool_output",
    "turn": "conversation_turn",
    "constraints": "active_constraints",
}


class Decision(TypedDict):
    """One decision point; `timestamp` is ISO 8601 in UTC unless the caller gave another."""

    timestamp: Any
    reasoning: Any
    action: Any
    outcome: Any


class Snapshot(TypedDict):
    """What is kept of a scratchpad: decisions newest first, `snapshot_at` ISO 8601 in UTC."""

    objective: Any
    decisions: list[Decision]
    constraints: list[Any]
    snapshot_at: str


class Scratchpad(_core.Scratchpad):
    """A bounded map of str keys for one agent, with its current context and last decisions.

    Entries: at most `max_size`, the least recently used is evicted first; one is gone `ttl` seconds after its
    last write or read. The context (CONTEXT_KEYS and what `set_current_context` names) and the decision points
    stay until they are deleted or cleared; they count in `len`, iteration and `items`, not towards `max_size`.
    Safe to use from several threads; a forked child gets its own copy.

    >>> pad = Scratchpad(max_size=2)
    >>> for key in ("a", "b", "c"):
    ...     pad.set(key, key.upper())
    >>> pad.get("a"), pad.get("c")
    (None, 'C')
    """

    def __init__(
        self, max_size: int = 50, ttl: float | None = 300.0, clock: Clock | Callable[[], float] | None = None
    ) -> None:
        """Make an empty scratchpad.

        max_size: 1 to 2**30 entries. ttl: seconds above 0; None for ever.
        clock: a Clock, or a function giving seconds since the epoch; the machine's when left out.
        Raises InvalidInput for values out of range.
        """
        if clock is None:
            seconds, self._stamp = None, _stamp_of(SystemClock())
        elif isinstance(clock, Clock):
            seconds, self._stamp = _seconds_of(clock), _stamp_of(clock)
        else:
            seconds, self._stamp = clock, _stamp_of_seconds(clock)
        try:
            super().__init__(max_size, ttl, seconds)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"Scratchpad(max_size={max_size!r}, ttl={ttl!r}): {error}") from error
        # Single dict, set and deque operations are atomic, so there is no lock that a fork could leave held.
        self._context: dict[str, Any] = {}
        self._names = set(CONTEXT_KEYS)
        self._decisions: deque[Decision] = deque(maxlen=DECISION_LIMIT)
        self.bind_context(self._names, self._context)

    def set_current_context(
        self, key: str | Mapping[str, Any] | None = None, value: Any = None, /, **fields: Any
    ) -> None:
        """Write context keys: `(key, value)`, `(mapping)` or keywords; all of one call become visible at once.

        Short names stand for the keys of the loop: objective, user_message, tool_call, tool_output, turn,
        constraints. Any other key joins the context under its own name. Raises InvalidInput for other types.
        """
        if key is None:
            given = fields
        elif isinstance(key, Mapping):
            given = {**key, **fields}
        else:
            given = {key: value, **fields}
        _check_names(given)
        named = {_SHORT.get(name, name): content for name, content in given.items()}
        # From here on `set` writes these names to the context; an older entry would hide its value.
        joining = named.keys() - self._names
        self._names.update(named)
        for name in joining:
            self.delete(name)
        self._context.update(named)

    @property
    def current_context(self) -> dict[str, Any]:
        """A copy of the current context."""
        return self._context.copy()

    def push_decision(
        self, reasoning: Any = None, action: Any = None, outcome: Any = None, *, timestamp: Any = None
    ) -> Decision:
        """Record a decision point as the newest of at most 5; the oldest one goes.

        The four fields may also come as one mapping in the first argument. A missing timestamp is filled in
        from the clock. Raises InvalidInput for fields of other names.
        """
        if isinstance(reasoning, Mapping):
            given = dict(reasoning)
            unknown = given.keys() - Decision.__required_keys__
            if unknown:
                raise InvalidInput(
                    f"a decision has timestamp, reasoning, action and outcome, not {sorted(map(str, unknown))!r}"
                )
            reasoning, action = given.get("reasoning"), given.get("action", action)
            outcome, timestamp = given.get("outcome", outcome), given.get("timestamp", timestamp)
        made = Decision(
            timestamp=self._stamp() if timestamp is None else timestamp,
            reasoning=reasoning,
            action=action,
            outcome=outcome,
        )
        self._decisions.appendleft(made)
        return made

    push_decision_point = push_decision

    @property
    def decisions(self) -> list[Decision]:
        """Copies of the decision points, newest first."""
        return [made.copy() for made in self._decisions.copy()]

    def snapshot(self) -> Snapshot:
        """What must outlive the process: exactly objective, decisions, constraints and snapshot_at."""
        context = self._context.copy()
        constraints = context.get("active_constraints")
        return Snapshot(
            objective=context.get("current_objective"),
            decisions=self.decisions,
            constraints=_as_list(constraints),
            snapshot_at=self._stamp(),
        )

    snapshot_for_vault = snapshot

    def clear(self) -> None:
        """Remove every entry, the context and the decision points."""
        super().clear()
        self._context.clear()
        self._decisions.clear()

    def __repr__(self) -> str:
        return (
            f"Scratchpad(max_size={self.max_size}, ttl={self.ttl}, entries={len(self) - len(self._context)}, "
            f"context={len(self._context)}, decisions={len(self._decisions)})"
        )


def _check_names(given: Mapping[Any, Any]) -> None:
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise InvalidInput(f"context keys are strings, not {wrong!r}")


def _as_list(constraints: Any) -> list[Any]:
    if constraints is None:
        return []
    return list(constraints) if isinstance(constraints, (list, tuple, set, frozenset)) else [constraints]


def _seconds_of(clock: Clock) -> Callable[[], float]:
    return lambda: to_us(clock.now()) / 1_000_000


def _stamp_of(clock: Clock) -> Callable[[], str]:
    return lambda: iso(to_us(clock.now()))


def _stamp_of_seconds(seconds: Callable[[], float]) -> Callable[[], str]:
    return lambda: iso(to_us(from_us(round(seconds() * 1_000_000))))
