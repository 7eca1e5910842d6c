"""TRANSFER: lossless export and import as JSON lines, and the chunks that batches are made of."""

from __future__ import annotations

import itertools
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from twofold import audit, lookup, remember
from twofold.access import Principal
from twofold.clock import OPEN, from_us, iso, to_us
from twofold.errors import InvalidInput, TwofoldError
from twofold.files import read_json_lines, replacing
from twofold.index.filters import Filters
from twofold.index.tenant import TenantIndex
from twofold.maintain import embed_rows
from twofold.model import Batch, Changes, Event, Generation, Head, Memory, Row, Vectors, misfit
from twofold.progress import Progress
from twofold.stores.memory import MemoryStore
from twofold.stores.schema import UNREADABLE, index_row
from twofold.vault import Vault
from twofold.verify import verify

FORMAT: Final = "twofold-export"
VERSION: Final = 1
CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, or would do."""

    memories: int
    events: int
    lossless: bool
    applied: bool


def chunks(
    items: Iterable[Any], size: int, progress: bool | Callable[[int], None]
) -> Iterator[tuple[list[Any], Callable[[int], None]]]:
    """Cut an iterable into lists; each comes with the function to report the number done."""
    total = len(items) if isinstance(items, Sized) else None
    bar = Progress("storing", total, progress)
    it = iter(items)
    while chunk := list(itertools.islice(it, size)):
        yield chunk, bar.to
    bar.close()


def export_json(vault: Vault, principal: Principal, path: Path, *, vectors: bool) -> int:
    """Write an export; for the owner the whole log, for others the memories they may see."""
    remember.demand(principal, "export", "the store")
    vault.flush(principal.tenant)
    lines = _whole(vault, principal, vectors) if principal.is_owner else _visible(vault, principal)
    count = 0
    with replacing(path) as file:
        for line in lines:
            file.write(f"{audit.canonical(line)}\n".encode())
            count += 1
    return count


def _whole(vault: Vault, principal: Principal, vectors: bool) -> Iterator[dict[str, Any]]:
    tenant, store = principal.tenant, vault.store
    head = store.head(tenant)
    generations = store.generations(tenant)
    yield {
        "format": FORMAT,
        "version": VERSION,
        "kind": "log",
        "seq": head.seq,
        "rows": head.rows,
        "vectors": vectors,
        "generations": [list(g) for g in map(_generation, generations)],
    }
    for event in store.events(tenant):
        if event.seq > head.seq:
            break
        yield {
            "event": [
                event.seq,
                event.kind,
                event.at,
                event.agent_id,
                event.agent_role,
                event.namespace,
                event.ordinal,
                event.payload,
                event.salt.hex(),
                event.commitment.hex(),
                event.hash.hex(),
            ]
        }
    for first in range(0, head.rows, CHUNK):
        for row in store.rows(tenant, range(first, min(first + CHUNK, head.rows))):
            yield {"row": list(row)}
    if vectors:
        for generation in generations:
            for first in range(0, head.rows, CHUNK):
                block = store.vectors(tenant, generation.number, first, min(first + CHUNK, head.rows))
                for i in range(len(block)):
                    yield {
                        "vector": [
                            generation.number,
                            int(block.ordinals[i]),
                            int(block.parts[i]),
                            int(block.starts[i]),
                            int(block.stops[i]),
                            b64encode(block.data[i].astype("<f4").tobytes()).decode(),
                            b64encode(block.codes[i]).decode(),
                        ]
                    }
    for receipt_id, seq in store.receipts(tenant):
        if seq <= head.seq:
            yield {"receipt": [receipt_id, seq, store.receipt(tenant, receipt_id)]}


def _generation(g: Generation) -> tuple[int, str, int, int | None]:
    return g.number, g.fingerprint, g.dimension, g.seq


def _visible(vault: Vault, principal: Principal) -> Iterator[dict[str, Any]]:
    yield {"format": FORMAT, "version": VERSION, "kind": "memories"}
    found = lookup.search(
        vault,
        principal,
        lookup.EVERYTHING,
        Filters(),
        lookup.When(vault.now()),
        include_superseded=True,
        newest_first=False,
    )
    for memory in found:
        yield {"memory": memory_json(memory)}


def memory_json(memory: Memory) -> dict[str, Any]:
    """A memory as JSON values; instants as ISO 8601 strings."""
    out: dict[str, Any] = {}
    for name in Memory.__dataclass_fields__:
        value = getattr(memory, name)
        if hasattr(value, "isoformat"):
            value = iso(to_us(value))
        elif isinstance(value, tuple):
            value = list(value)
        elif hasattr(value, "items"):
            value = dict(value)
        out[name] = value
    return out


def import_json(
    vault: Vault,
    principal: Principal,
    namespace: str,
    path: Path,
    dry_run: bool,
    progress: bool | Callable[[int], None],
) -> ImportReport:
    """Read an export into this tenant."""
    remember.demand(principal, "import", "memories")
    lines = (line for _, line in read_json_lines(path))
    header = next(lines, None)
    if header is None or header.get("format") != FORMAT:
        raise InvalidInput(f"{path} is not a Twofold export; its first line must say so")
    if type(header.get("version")) is not int or header.get("kind") not in ("log", "memories"):
        raise InvalidInput(f"{path} has a damaged first line; export again")
    if header["version"] > VERSION:
        raise InvalidInput(
            f"{path} is of export version {header['version']}; this Twofold reads up to {VERSION}"
        )
    empty = vault.store.head(principal.tenant).seq == 0
    if header["kind"] == "log" and empty:
        return _import_log(vault, principal, lines, header, dry_run)
    return _import_memories(vault, principal, namespace, lines, header, dry_run, progress)


def _import_log(
    vault: Vault,
    principal: Principal,
    lines: Iterator[dict[str, Any]],
    header: dict[str, Any],
    dry_run: bool,
) -> ImportReport:
    """Reproduce the log as it was: same sequence numbers, same hashes. All or nothing, in one transaction."""
    with _malformed():
        batch = _batch(lines, header)
        _check_log(batch, header)
    if not header.get("vectors"):
        _embed_again(vault, principal, batch)
    _try(vault, principal, batch)
    report = ImportReport(len(batch.rows), len(batch.events), True, not dry_run)
    if dry_run:
        return report
    with vault.store.transaction(principal.tenant) as tx:
        if tx.head.seq != 0:
            raise InvalidInput("another process wrote to this tenant meanwhile; the import needs it empty")
        tx.apply(batch)
    if vault.embedder_of(principal.tenant) is not None and batch.generations:
        vault.check_embedder(vault.index(principal.tenant))
    return report


@contextmanager
def _malformed() -> Iterator[None]:
    """Around what reads an export's values: whatever they are instead of what they should be, is InvalidInput."""
    try:
        yield
    except TwofoldError:
        raise
    except (*UNREADABLE, RecursionError) as error:
        raise InvalidInput(f"the export is damaged: {error!r}") from None


def _batch(lines: Iterator[dict[str, Any]], header: dict[str, Any]) -> Batch:
    """A log export's lines as one batch."""
    batch = Batch(generations=[Generation(*g) for g in header["generations"]])
    vectors: dict[int, list[list[Any]]] = {}
    for line in lines:
        if "event" in line:
            batch.events.append(_event(line["event"]))
        elif "row" in line:
            batch.rows.append(_row(line["row"]))
        elif "vector" in line:
            vectors.setdefault(line["vector"][0], []).append(line["vector"])
        elif "receipt" in line:
            batch.receipts.append((line["receipt"][0], line["receipt"][1], line["receipt"][2]))
        else:
            raise InvalidInput(f"unknown line in the export: {sorted(line)[:3]}")
    for number, found in vectors.items():
        data = np.stack([np.frombuffer(b64decode(v[5]), "<f4").astype(np.float32) for v in found])
        codes = [b64decode(v[6]) for v in found]
        batch.vectors.append(Vectors.of(number, [v[1:5] for v in found], data, codes))
    return batch


def _check_log(batch: Batch, header: dict[str, Any]) -> None:
    """The chain of hashes, and that nothing was cut off."""
    previous, expected = b"", 1
    for event in batch.events:
        broken = audit.broken_link(previous, expected, event)
        if broken:
            raise InvalidInput(f"the export's log is damaged: {broken}")
        previous, expected = event.hash, event.seq + 1
    if len(batch.rows) != header["rows"] or len(batch.events) != header["seq"]:
        raise InvalidInput(
            f"the export is cut: {len(batch.rows)} of {header['rows']} rows, "
            f"{len(batch.events)} of {header['seq']} events"
        )


def _try(vault: Vault, principal: Principal, batch: Batch) -> None:
    """Import into a store in RAM first, and verify that: what the real one took, it could never be rid of again."""
    in_ram: Any = MemoryStore()
    trial = Vault(in_ram, None, vault.clock, vault.policy, vault.counter, 0)
    with _malformed():
        with trial.store.transaction(principal.tenant) as tx:
            tx.apply(batch)
        trial.index(principal.tenant)
        found = verify(trial, principal)
    if not found.ok:
        raise InvalidInput(f"the export is damaged: {found.problems[0]}")


def _embed_again(vault: Vault, principal: Principal, batch: Batch) -> None:
    """Make the vectors that an export left out. The log commits to them, so only the embedder that made them can."""
    wanted = {row.generation for row in batch.rows if row.generation is not None}
    embedder = vault.embedder_of(principal.tenant)
    for generation in batch.generations:
        if embedder is None or generation.fingerprint != embedder.fingerprint:
            raise InvalidInput(
                f"the export has no vectors, and they were made by {generation.fingerprint}; open this store with "
                "that embedder, or export with vectors"
            )
        rows = [r for r in batch.rows if not r.erased]
        if generation.number in wanted and len(batch.generations) == 1:
            rows = [r for r in rows if r.generation == generation.number]
        block = embed_rows(embedder, generation.number, rows)
        if len(block):
            batch.vectors.append(block)


def _import_memories(
    vault: Vault,
    principal: Principal,
    namespace: str,
    lines: Iterator[dict[str, Any]],
    header: dict[str, Any],
    dry_run: bool,
    progress: bool | Callable[[int], None],
) -> ImportReport:
    """Add an export's memories to a tenant that has some already. Exact duplicates are merged."""
    with _malformed():
        items = _items(principal.tenant, lines, header)
    if dry_run:
        return ImportReport(len(items), 0, False, False)
    for chunk, done in chunks(items, CHUNK, progress):
        remember.remember(vault, principal, namespace, chunk)
        done(len(chunk))
    return ImportReport(len(items), 0, False, True)


def _items(tenant: str, lines: Iterator[dict[str, Any]], header: dict[str, Any]) -> list[dict[str, Any]]:
    """What `remember` takes, of each memory that an export holds and that still stands."""
    items: list[dict[str, Any]] = []
    log = Changes(Head(), [], [], [], [])
    rows: list[Row] = []
    for line in lines:
        if "memory" in line:
            items.append(_item(line["memory"]))
        elif "event" in line:
            log.events.append(_event(line["event"]))
        elif "row" in line:
            rows.append(_row(line["row"]))
            log.rows.append(index_row(rows[-1]))
    # The rows say what was ever told; what of it still stands, and until when, is in the log.
    known = TenantIndex(tenant)
    known.apply(log)
    embedded = [g[3] for g in header.get("generations", ()) if g[3] is not None]
    for row in rows:
        if known.live(row.ordinal):
            item = _row_item(row, int(known.valid_to[row.ordinal]))
            if row.generation is None and any(seq < row.seq for seq in embedded):
                item["vector"] = False  # it was stored without one, where others had theirs
            items.append(item)
    return items


_COPIED: Final = (
    "content memory_type namespace tags entities key confidence pinned speaker visibility source_id session_id"
).split()


def _event(values: list[Any]) -> Event:
    event = Event._make([*values[:8], *(bytes.fromhex(x) for x in values[8:11])])
    _check(Event, event._asdict())
    return event


def _row(values: list[Any]) -> Row:
    row = Row._make(tuple(v) if isinstance(v, list) else v for v in values)
    _check(Row, row._asdict())
    return row


def _check(kind: type, values: dict[str, Any]) -> None:
    wrong = misfit(kind, values)
    if wrong:
        raise InvalidInput(f"the export is damaged: {wrong}")


def _item(memory: dict[str, Any]) -> dict[str, Any]:
    item = {name: memory[name] for name in _COPIED}
    return item | {
        "metadata": memory["metadata"],
        "event_date": memory["event_date"],
        "valid_from": memory["valid_from"],
        "valid_to": memory["valid_to"],
    }


def _row_item(row: Row, valid_to: int) -> dict[str, Any]:
    item = {name: getattr(row, name) for name in _COPIED}
    return item | {
        "metadata": json.loads(row.metadata),
        "event_date": None if row.event_at is None else from_us(row.event_at),
        "valid_from": from_us(row.valid_from),
        "valid_to": None if valid_to == OPEN else from_us(valid_to),
    }
