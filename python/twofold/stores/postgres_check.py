"""Contradictions between one tenant's tables, as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twofold.clock import OPEN
from twofold.model import Head, Kind
from twofold.stores import postgres_age as age
from twofold.stores import postgres_graph as graph
from twofold.stores import postgres_intervals as intervals
from twofold.stores import postgres_text as text
from twofold.stores.postgres_derived import Tables, reach_of

Ask = Callable[..., list[Any]]  # statement (its first %s is the tenant) and arguments -> records

_LIMIT: Final = 20


def problems(ask: Ask, tables: Tables, mirror: str) -> list[str]:
    """Everything that is wrong with a tenant's tables; empty when they agree.

    tables: the derived ones that there are; mirror: the name of AGE's graph of them, if there is one.
    """
    found: list[str] = []
    head = _log(ask, found)
    _rows(ask, head, found)
    _vectors(ask, found)
    _erased(ask, found)
    _intervals(ask, found)
    _derived(ask, head, tables, mirror, found)
    return found


def _log(ask: Ask, found: list[str]) -> Head:
    heads = ask('SELECT seq, "rows", recorded_at, hash FROM @head WHERE tenant = %s')
    head = Head._make(heads[0]) if heads else Head()
    ((count, low, high),) = ask("SELECT count(*), min(seq), max(seq) FROM @event WHERE tenant = %s")
    if (count, 1 if low is None else low, high or 0) != (head.seq, 1, head.seq):
        found.append(f"the log holds {count} events from {low} to {high}; the head says 1 to {head.seq}")
    if count:
        last = ask("SELECT at, hash FROM @event WHERE tenant = %s ORDER BY seq DESC LIMIT 1")[0]
        if tuple(last) != (head.recorded_at, head.hash):
            found.append(f"the head's time and hash are not those of the last event ({high})")
    ((backwards,),) = ask(
        """SELECT count(*) FROM (SELECT at, lag(at) OVER (ORDER BY seq) AS before FROM @event WHERE tenant = %s)
           AS e WHERE at < before"""
    )
    if backwards:
        found.append(f"{backwards} events are recorded before their predecessor")
    return head


def _rows(ask: Ask, head: Head, found: list[str]) -> None:
    ((count, low, high),) = ask("SELECT count(*), min(ordinal), max(ordinal) FROM @memory WHERE tenant = %s")
    if (count, low or 0, -1 if high is None else high) != (head.rows, 0, head.rows - 1):
        found.append(f"there are {count} rows from {low} to {high}; the head says 0 to {head.rows - 1}")
    for ordinal, seq in ask(
        f"""SELECT m.ordinal, m.seq FROM @memory AS m
           LEFT JOIN @event AS e ON e.tenant = m.tenant AND e.seq = m.seq
           WHERE m.tenant = %s AND (e.ordinal IS DISTINCT FROM m.ordinal OR e.kind NOT IN ('add', 'update')
           OR e.at IS DISTINCT FROM m.recorded_at) ORDER BY m.ordinal LIMIT {_LIMIT}"""
    ):
        found.append(f"row {ordinal} does not agree with event {seq}, which should have added it")
    for seq, ordinal in ask(
        f"""SELECT e.seq, e.ordinal FROM @event AS e
           LEFT JOIN @memory AS m ON m.tenant = e.tenant AND m.ordinal = e.ordinal
           WHERE e.tenant = %s AND e.kind IN ('add', 'update') AND m.seq IS DISTINCT FROM e.seq
           ORDER BY e.seq LIMIT {_LIMIT}"""
    ):
        found.append(f"event {seq} added row {ordinal}, which is missing or belongs to another event")
    for memory_id, version, copies in ask(
        f"""SELECT id, version, count(*) FROM @memory WHERE tenant = %s GROUP BY id, version
           HAVING count(*) > 1 LIMIT {_LIMIT}"""
    ):
        found.append(f"memory {memory_id} has {copies} rows of version {version}")


def _vectors(ask: Ask, found: list[str]) -> None:
    for number, ordinal, fault in ask(
        f"""SELECT v.generation, v.ordinal, CASE WHEN m.ordinal IS NULL THEN 'no row'
             WHEN m.erased IS NOT NULL THEN 'an erased row' WHEN g.number IS NULL THEN 'no generation'
             ELSE 'the wrong size' END
           FROM @vector AS v LEFT JOIN @memory AS m ON m.tenant = v.tenant AND m.ordinal = v.ordinal
           LEFT JOIN @generation AS g ON g.tenant = v.tenant AND g.number = v.generation
           WHERE v.tenant = %s AND (m.ordinal IS NULL OR m.erased IS NOT NULL OR g.number IS NULL
             OR length(v.data) <> 4 * g.dimension) LIMIT {_LIMIT}"""
    ):
        found.append(f"the vector of row {ordinal} in generation {number} belongs to {fault}")
    for ordinal, number in ask(
        f"""SELECT m.ordinal, m.generation FROM @memory AS m JOIN @generation AS g ON g.tenant = m.tenant
           AND g.number = m.generation WHERE m.tenant = %s AND m.erased IS NULL AND NOT EXISTS (
             SELECT 1 FROM @vector AS v WHERE v.tenant = m.tenant AND v.generation = m.generation
             AND v.ordinal = m.ordinal) LIMIT {_LIMIT}"""
    ):
        found.append(f"row {ordinal} has no vector of its generation {number}")


def _erased(ask: Ask, found: list[str]) -> None:
    for (ordinal,) in ask(
        f"""SELECT ordinal FROM @memory WHERE tenant = %s AND erased IS NOT NULL AND (content <> '' OR tags <> ''
           OR entities <> '' OR key IS NOT NULL OR lexemes <> '{{}}' OR metadata <> '{{}}'
           OR content_hash <> '') LIMIT {_LIMIT}"""
    ):
        found.append(f"row {ordinal} is erased and still has content")
    for ordinal, seq in ask(
        f"""SELECT m.ordinal, m.erased FROM @memory AS m WHERE m.tenant = %s AND m.erased IS NOT NULL
           AND m.erased <> m.seq AND NOT EXISTS (
             SELECT 1 FROM @event AS e WHERE e.tenant = m.tenant AND e.seq = m.erased AND e.kind = 'erase'
             AND e.payload <> '' AND (e.payload::json -> 'tombstones' IS NULL OR EXISTS (
               SELECT 1 FROM json_array_elements(e.payload::json -> 'tombstones') AS t
               WHERE (t ->> 0)::bigint = m.ordinal))) ORDER BY m.ordinal LIMIT {_LIMIT}"""
    ):
        found.append(f"row {ordinal} is said to be erased by event {seq}, which did not erase it")


def _intervals(ask: Ask, found: list[str]) -> None:
    """Derive all intervals again from the log and compare."""
    expected: dict[int, list[Any]] = {
        ordinal: [valid_from, OPEN, None]
        for ordinal, valid_from in ask(
            "SELECT ordinal, valid_from FROM @memory WHERE tenant = %s AND erased IS NULL"
        )
    }
    closings: dict[int, list[tuple[int, str, str]]] = {}
    for seq, kind, ordinal, payload in ask(
        f"""SELECT seq, kind, ordinal, payload FROM @event WHERE tenant = %s
           AND kind IN {intervals.CLOSINGS} AND ordinal IS NOT NULL ORDER BY seq"""
    ):
        closings.setdefault(ordinal, []).append((seq, kind, payload))
    for ordinal, events in closings.items():
        if ordinal in expected:
            expected[ordinal][1:] = intervals.settle(events)[:2]
    for seq, closes in ask(
        f"""SELECT seq, payload::json ->> 'closes' FROM @event WHERE tenant = %s AND kind = '{Kind.UPDATE.value}'
           AND payload <> '' ORDER BY seq"""
    ):
        if closes is not None and int(closes) in expected:
            one = expected[int(closes)]
            one[2] = seq if one[2] is None else min(seq, one[2])
    stored = {record[0]: list(record[1:]) for record in ask(intervals.READ)}
    wrong = sorted(o for o in expected.keys() | stored.keys() if expected.get(o) != stored.get(o))
    for ordinal in wrong[:_LIMIT]:
        found.append(
            f"the interval of row {ordinal} is {stored.get(ordinal)}, but the log says {expected.get(ordinal)}"
        )


def _derived(ask: Ask, head: Head, tables: Tables, mirror: str, found: list[str]) -> None:
    """Derive edges and posting lists again and compare. What does not reach the head is made anew anyhow."""
    reach = reach_of(tables, ask(graph.DERIVED))
    if reach.get(graph.NAME) == head.seq:
        expected, stored = graph.everything(ask), [graph.Edge._make(one) for one in ask(graph.STORED)]
        for edge in sorted(set(expected) ^ set(stored))[:_LIMIT]:
            state = "missing" if edge in set(expected) else "not in the log"
            found.append(f"the edge of memory {edge.memory} that event {edge.seq} says is {state}")
    if reach.get(age.NAME) == head.seq:
        ((missing, extra),) = ask(age.differences(mirror))
        if missing or extra:
            found.append(
                f"the graph {mirror} lacks {missing} edges of the log, and has {extra} that are not in it"
            )
    if reach.get(text.NAME) == head.seq:
        words = text.blocks(ask(text.LEXEMES, 0, head.rows))
        lists = {(term, block): data for term, block, data in ask(text.ALL)}
        wrong = sorted(place for place in words.keys() | lists.keys() if words.get(place) != lists.get(place))
        for term, block in wrong[:_LIMIT]:
            found.append(
                f"the words of rows {block * text.BLOCK} to {(block + 1) * text.BLOCK - 1} do not agree with the "
                f"posting list of {term!r}"
            )
