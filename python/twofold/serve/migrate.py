"""`twofold migrate SOURCE DEST`: copy tenants from one store to another, log, hashes and all, and go on after a stop.

What is copied is the log itself, so the destination's hash chain, receipts and answers are the source's. A
destination that holds a beginning of the same log is continued; anything else in it is refused.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
import numpy as np

from twofold import audit
from twofold.access import check_name
from twofold.console import reported
from twofold.errors import InvalidInput, NotFound, StoreCorrupt
from twofold.model import Batch, Event, Generation, Head, Kind, Vectors
from twofold.progress import Progress
from twofold.stores import Store, missing_file, open_store, schema

CHUNK: Final = 500

# Events that complete what the event before them began: a batch must not end before them, because a new fact
# without the end of the one it replaces is a contradiction.
_COMPLETING: Final = frozenset((Kind.SUPERSEDE.value, Kind.SUGGEST.value))


@dataclass(frozen=True, slots=True)
class Migration:
    """What was copied of one tenant, and the head that both stores have now ("<seq>:<hash>")."""

    tenant: str
    events: int
    rows: int
    vectors: int
    resumed_at: int
    head: str


def copy_tenant(
    source: Store, dest: Store, tenant: str, progress: bool | Callable[[int], None] = False
) -> Migration:
    """Copy what `dest` does not have yet of a tenant's log. NotFound, InvalidInput, or any StoreError.

    The source may be written to meanwhile; what is recorded before the last look is copied. The destination
    must not be: its own writes would part the two logs.
    """
    if source.head(tenant).seq == 0:
        raise NotFound(f"{source.url} has no tenant {tenant!r}")
    start = dest.head(tenant)
    _refuse_another_log(source, start, tenant, dest)
    vectors = _begin_generations(source, dest, tenant)
    bar = Progress(f"copying {tenant}", source.head(tenant).seq - start.seq, progress)
    events = rows = 0
    while chunk := _chunk(source, tenant, dest.head(tenant).seq):
        with dest.transaction(tenant) as tx:
            batch = _batch(source, tenant, tx.head, chunk)
            tx.apply(batch)
        events += len(batch.events)
        rows += len(batch.rows)
        vectors += sum(map(len, batch.vectors))
        bar.to(events)
    bar.close()
    vectors += _end_generations(source, dest, tenant)
    head = dest.head(tenant)
    return Migration(tenant, events, rows, vectors, start.seq, f"{head.seq}:{head.hash.hex()}")


def compare(source: Store, dest: Store, tenant: str) -> list[str]:
    """Every difference between two stores of the same log, as sentences; the destination's chain is walked."""
    found = list(dest.check(tenant))
    head = dest.head(tenant)
    if source.head(tenant).seq < head.seq:
        found.append(f"the source has {source.head(tenant).seq} events, the destination {head.seq}")
    previous = b""
    for mine, theirs in itertools.zip_longest(
        _events(source, tenant, head.seq), _events(dest, tenant, head.seq)
    ):
        if mine != theirs:
            found.append(f"event {(mine or theirs).seq} differs")
        if theirs is not None:
            broken = audit.broken_link(previous, theirs.seq, theirs)
            if broken:
                found.append(broken)
            previous = theirs.hash
    for first in range(0, head.rows, CHUNK):
        span = range(first, min(first + CHUNK, head.rows))
        for mine, theirs in zip(source.rows(tenant, span), dest.rows(tenant, span), strict=True):
            if mine != theirs:
                found.append(f"row {mine.ordinal} differs")
    if source.generations(tenant) != dest.generations(tenant):
        found.append("the embedding generations differ")
    for generation in dest.generations(tenant):
        for first in range(0, head.rows, CHUNK):
            place = (tenant, generation.number, first, min(first + CHUNK, head.rows))
            if not _equal(source.vectors(*place), dest.vectors(*place)):
                found.append(f"vectors of generation {generation.number} from row {first} on differ")
    kept = [one for one in source.receipts(tenant) if one[1] <= head.seq]
    if kept != dest.receipts(tenant):
        found.append("the kept receipts differ")
    found += [
        f"receipt {name} differs"
        for name, _ in kept
        if source.receipt(tenant, name) != dest.receipt(tenant, name)
    ]
    return found


def _refuse_another_log(source: Store, start: Head, tenant: str, dest: Store) -> None:
    if start.seq == 0:
        return
    found = source.events(tenant, start.seq - 1, 1)
    if not found or found[0].hash != start.hash:
        raise InvalidInput(
            f"tenant {tenant!r} of {dest.url} has a log of its own up to seq {start.seq}, which is not the "
            f"beginning of the one in {source.url}; migrate into an empty tenant"
        )


def _chunk(source: Store, tenant: str, after: int) -> list[Event]:
    """The next events, up to a place where every fact has the ends of those it replaced.

    An erasure is the last of its batch: rows keep the number of the event that erased them.
    """
    events = source.events(tenant, after, CHUNK)
    erasure = next((at for at, event in enumerate(events) if event.kind == Kind.ERASE), None)
    if erasure is not None:
        return events[: erasure + 1]
    while events:
        more = source.events(tenant, events[-1].seq, 1)
        if not more or more[0].kind not in _COMPLETING:
            break
        events += more
    return events


def _batch(source: Store, tenant: str, head: Head, events: list[Event]) -> Batch:
    """The events with their rows, vectors, receipts, and what erasures among them removed."""
    batch = Batch(events=events)
    adds = sum(map(schema.adds_row, events))
    stop = head.rows + adds
    batch.rows = source.rows(tenant, range(head.rows, stop))
    last = events[-1].seq
    for generation in source.generations(tenant):
        found = source.vectors(tenant, generation.number, head.rows, stop)
        if len(found):
            batch.vectors.append(found)
        if generation.seq is not None and head.seq < generation.seq <= last:
            batch.generations.append(generation)
    names = {seq: name for name, seq in source.receipts(tenant)}
    for event in events:
        if event.seq in names:
            body = source.receipt(tenant, names[event.seq])
            batch.receipts.append((names[event.seq], event.seq, "" if body is None else body))
        if event.kind == Kind.ERASE and event.payload:
            _erase(source, tenant, batch, stop, json.loads(event.payload))
    return batch


def _erase(source: Store, tenant: str, batch: Batch, stop: int, said: dict[str, Any]) -> None:
    """What was copied before it was erased must go from the copy too."""
    batch.erase_rows += [place[0] for place in said.get("tombstones", ()) if place[0] < stop]
    batch.erase_events += said.get("events", ())
    for name in said.get("receipts", ()):
        body = source.receipt(tenant, name)
        if body is not None:
            batch.erase_receipts.append((name, body))


def _begin_generations(source: Store, dest: Store, tenant: str) -> int:
    """Register what the destination does not have, and bring the vectors of rows that it has already."""
    have = {one.number: one for one in dest.generations(tenant)}
    missing = [one for one in source.generations(tenant) if one.number not in have]
    if missing:
        pending = [Generation(one.number, one.fingerprint, one.dimension, None) for one in missing]
        with dest.transaction(tenant) as tx:
            tx.apply(Batch(generations=pending))
    rows = dest.head(tenant).rows
    copied = 0
    for one in source.generations(tenant):
        if one.number not in have or have[one.number].seq is None:
            copied += _copy_vectors(source, dest, tenant, one.number, rows)
    return copied


def _end_generations(source: Store, dest: Store, tenant: str) -> int:
    """Bring the vectors of a re-embedding that is under way, and drop what the source has dropped."""
    theirs = {one.number: one for one in source.generations(tenant)}
    gone = [one.number for one in dest.generations(tenant) if one.number not in theirs]
    if gone:
        with dest.transaction(tenant) as tx:
            tx.apply(Batch(drop_generations=gone))
    rows = dest.head(tenant).rows
    have = {one.number for one in dest.generations(tenant)}
    pending = [number for number, one in theirs.items() if one.seq is None and number in have]
    return sum(_copy_vectors(source, dest, tenant, number, rows) for number in pending)


def _copy_vectors(source: Store, dest: Store, tenant: str, number: int, rows: int) -> int:
    copied = 0
    for first in range(0, rows, CHUNK):
        found = source.vectors(tenant, number, first, min(first + CHUNK, rows))
        if len(found):
            dest.write_vectors(tenant, found)
            copied += len(found)
    return copied


def _events(store: Store, tenant: str, last: int) -> Iterator[Event]:
    after = 0
    while after < last and (found := store.events(tenant, after, min(CHUNK, last - after))):
        yield from found
        after = found[-1].seq


def _equal(a: Vectors, b: Vectors) -> bool:
    places = all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("ordinals", "parts", "starts", "stops")
    )
    return places and a.data.tobytes() == b.data.tobytes() and a.codes == b.codes


@click.command()
@click.argument("source")
@click.argument("dest")
@click.option("--tenant", "tenants", multiple=True, default=("default",), show_default=True)
@click.option("--compare/--no-compare", "compared", default=True, show_default=True, help="Read both again.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def migrate(source: str, dest: str, tenants: tuple[str, ...], compared: bool, as_json: bool) -> None:
    """Copy tenants from one store (path or URL) to another, lossless; run it again to go on after a stop.

    Everything is copied: every version, event, vector, receipt and tombstone, under the same numbers and
    hashes, so receipts replay and `verify` gives the same head. Stores cannot list their tenants; name each
    with --tenant.

    Example: twofold migrate ./store postgresql://db.internal/twofold
    """
    with reported(as_json):
        done = _migrate(source, dest, tenants, compared, progress=not as_json)
    for one in done:
        if as_json:
            click.echo(json.dumps(asdict(one)))
        else:
            resumed = f", resumed after seq {one.resumed_at}" if one.resumed_at else ""
            click.echo(
                f"{one.tenant}: {one.events} events, {one.rows} rows, {one.vectors} vectors{resumed}; "
                f"head {one.head}"
            )


def _migrate(
    source: str, dest: str, tenants: tuple[str, ...], compared: bool, *, progress: bool
) -> list[Migration]:
    names = [check_name(tenant, "tenant") for tenant in tenants]
    absent = missing_file(source)
    if absent is not None:  # opening it would make an empty store there
        raise NotFound(f"there is no store at {absent}")
    origin = open_store(source)
    try:
        target = open_store(dest)
        try:
            if origin.url == target.url:
                raise InvalidInput(f"{source} and {dest} are the same store")
            done = []
            for tenant in names:
                done.append(copy_tenant(origin, target, tenant, progress))
                problems = compare(origin, target, tenant) if compared else []
                if problems:
                    raise StoreCorrupt(
                        f"the copy of tenant {tenant!r} differs from its source: {'; '.join(problems[:5])}"
                    )
            return done
        finally:
            target.close()
    finally:
        origin.close()
