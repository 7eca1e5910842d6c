"""An optional graph over a part's vectors (hnswlib) that proposes candidates; exact search stays the oracle.

A graph is derived: made by `maintain`, kept as a file beside the store, checked before it is used, dropped by an
erasure. Nothing here decides an answer: what a graph proposes is scored exactly, rows it does not hold are searched
exactly, and where it has too little to propose `search` gives None and the caller searches exactly.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import tempfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from twofold.errors import InvalidInput
from twofold.index.cache import Stale

if TYPE_CHECKING:
    from twofold.index.tenant import VectorPart

LINKS: Final = 16
EF_CONSTRUCTION: Final = 200
EF_SEARCH: Final = 800
SEED: Final = 1
FORMAT: Final = 1
TEMPORARY: Final = ".ann-"  # begins the names of files that are being written
# Below this share of a graph's rows that pass, too many of its proposals are thrown away: search exactly.
LEAST_PASSING: Final = 0.9
# A graph is made anew when rows outside of it are more than this share of what it holds.
STALE: Final = 0.2
# What `health` calls a working graph: the mean share of the ten nearest rows that it proposes.
LEAST_RECALL: Final = 0.95
_CHUNK: Final = 10_000

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def library() -> Any:
    """The module hnswlib. InvalidInput with the remedy where it is not installed or cannot be loaded."""
    try:
        return importlib.import_module("hnswlib")
    except ImportError as error:
        raise InvalidInput(
            f"setting ann='hnswlib' needs the package hnswlib ({error}); run pip install 'twofold[ann]' (PyPI has "
            "only its source, so a C++ compiler and Python's headers must be there), or leave the setting at 'off'"
        ) from None


def library_version() -> str:
    """Name and version, as a graph's file names them."""
    return f"hnswlib {importlib.metadata.version('hnswlib')}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a graph was made of: it fits no other log, state of erasure, generation or library."""

    tenant: str
    generation: int
    fingerprint: str
    dimension: int
    seq: int
    head: str  # hash of the event at `seq`, hex
    erasures: int
    library: str
    links: int = LINKS
    ef_construction: int = EF_CONSTRUCTION
    seed: int = SEED
    format: int = FORMAT


class Recall(NamedTuple):
    """How much of the exact answer a graph proposes, over sampled rows: means, and the worst ten."""

    sampled: int
    ten: float
    worst_ten: float
    depth: int
    deep: float


class VectorGraph:
    """Some of a part's vectors in an HNSW graph; labels are vector numbers."""

    def __init__(self, origin: Origin, index: Any, members: Rows) -> None:
        self.origin = origin
        self.members = members  # ascending
        self._index = index
        self._split: tuple[Mask, Mask | None, bool] | None = None
        index.set_ef(EF_SEARCH)

    def __len__(self) -> int:
        return len(self.members)

    def search(
        self, part: VectorPart, query: npt.NDArray[np.float32], want: int, allowed: Mask
    ) -> Rows | None:
        """Vector numbers that most likely include the `want` nearest of those in `allowed`, ascending.

        allowed: bool (len(part.index),). None where an exact search is called for: too few of the graph's rows
        pass, or too few of those it proposes.
        """
        rest, often = self._parts_of(allowed)
        if not often:
            return None
        ask = min(int(np.ceil(want / LEAST_PASSING)) + 8, len(self.members))
        try:
            found: Rows = self._index.knn_query(query, k=ask, num_threads=1)[0][0].astype(np.int64)
        except RuntimeError:  # the graph has no `ask` rows within reach of its entry point
            return None
        found = found[allowed[found]]
        if len(found) < want:
            return None
        if rest is not None:
            found = np.concatenate((found, part.index.search(query, want, mask=rest)[0]))
        found.sort()
        return found

    def _parts_of(self, allowed: Mask) -> tuple[Mask | None, bool]:
        """The allowed rows outside the graph (None for none), and whether enough of its own are allowed."""
        kept = self._split
        if kept is not None and kept[0] is allowed:
            return kept[1], kept[2]
        rest = allowed.copy()
        rest[self.members] = False
        outside = int(np.count_nonzero(rest))
        passing = int(np.count_nonzero(allowed)) - outside
        out = rest if outside else None, passing >= LEAST_PASSING * len(self.members)
        if not allowed.flags.writeable:
            self._split = (allowed, *out)
        return out

    def stale(self, live: Mask) -> bool:
        """Whether too much has gone from it or come since. live: bool (len(part.index),), what is known now."""
        inside = int(np.count_nonzero(live[self.members]))
        outside = int(np.count_nonzero(live)) - inside
        return outside > STALE * len(self.members) or inside < LEAST_PASSING * len(self.members)

    def measure(self, part: VectorPart, samples: int = 50, depth: int = 200) -> Recall:
        """Recall against exact search, asking with `samples` of its own rows, each of which is not counted itself."""
        member = np.zeros(len(part.index), np.bool_)
        member[self.members] = True
        depth = min(depth, len(self.members) - 1)
        places = np.unique(np.linspace(0, len(self.members) - 1, min(samples, len(self.members))).astype(int))
        ten, deep = [], []
        for row in self.members[places].tolist():
            query = part.index.rows(np.array([row], np.int64))[0]
            exact = [r for r in part.index.search(query, depth + 1, mask=member)[0].tolist() if r != row]
            found = set(self._index.knn_query(query, k=depth + 1, num_threads=1)[0][0].tolist()) - {row}
            ten.append(len(found.intersection(exact[:10])) / len(exact[:10]))
            deep.append(len(found.intersection(exact[:depth])) / len(exact[:depth]))
        return Recall(len(ten), float(np.mean(ten)), min(ten), depth, float(np.mean(deep)))


def build(part: VectorPart, live: Mask, origin: Origin) -> VectorGraph:
    """A graph over the live vectors, put in one by one in their order with a fixed seed, on one thread."""
    members = np.flatnonzero(live).astype(np.int64)
    index = library().Index(space="ip", dim=origin.dimension)
    index.init_index(
        max_elements=max(len(members), 1), M=LINKS, ef_construction=EF_CONSTRUCTION, random_seed=SEED
    )
    for low in range(0, len(members), _CHUNK):
        rows = members[low : low + _CHUNK]
        index.add_items(part.index.rows(rows), rows, num_threads=1)
    return VectorGraph(origin, index, members)


def header_of(path: Path) -> Path:
    """The file that says what the graph's file is; without it the graph is not read."""
    return path.with_suffix(".ann.json")


def save(graph: VectorGraph, path: Path) -> None:
    """Write the graph, then what it is; each new file takes the old one's place in one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
    os.close(handle)
    temporary = Path(name)
    try:
        graph._index.save_index(name)
        header = {**asdict(graph.origin), "rows": len(graph), "size": temporary.stat().st_size}
        header["crc"] = checksum(temporary)
        body = temporary.with_suffix(".json")
        body.write_text(json.dumps(header))
        # The old header would name the new graph for a moment; no header means there is no graph.
        header_of(path).unlink(missing_ok=True)
        temporary.replace(path)
        body.replace(header_of(path))
    finally:
        temporary.unlink(missing_ok=True)
        temporary.with_suffix(".json").unlink(missing_ok=True)


def load(path: Path, part: VectorPart, expected: Origin) -> VectorGraph:
    """The graph of a file. FileNotFoundError when there is none, Stale when it is damaged or of something else.

    expected: what it must be of; `seq` and `head` are as the file says, for the caller to check against the log.
    """
    header = header_at(path)
    found: dict[str, Any] = {name: header.get(name) for name in asdict(expected)}
    wanted = {**asdict(expected), "seq": found["seq"], "head": found["head"]}
    for name, value in wanted.items():
        if found[name] != value:
            raise Stale(f"its {name} is {found[name]!r}, not {value!r}")
    if path.stat().st_size != header["size"] or checksum(path) != header["crc"]:
        raise Stale("it is damaged")
    index = library().Index(space="ip", dim=expected.dimension)
    try:
        index.load_index(str(path))
    except RuntimeError as error:
        raise Stale(f"hnswlib cannot read it: {error}") from None
    members = np.sort(np.array(index.get_ids_list(), np.int64))
    if len(members) != header["rows"] or (len(members) and members[-1] >= len(part.index)):
        raise Stale("it holds other rows than it says")
    return VectorGraph(Origin(**found), index, members)


def header_at(path: Path) -> dict[str, Any]:
    """What the file beside a graph says of it."""
    try:
        header = json.loads(header_of(path).read_text())
        int(header["seq"]), bytes.fromhex(header["head"])
    except (ValueError, KeyError, TypeError) as error:
        raise Stale(f"what it is cannot be read: {error}") from None
    return dict(header)


def drop(path: Path) -> None:
    """Remove a graph's files, and those that a process which ended too early left unfinished."""
    header_of(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    for unfinished in path.parent.glob(f"{TEMPORARY}*"):
        unfinished.unlink(missing_ok=True)


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc
