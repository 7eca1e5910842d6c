"""A tenant's view as a file, so that opening is a read and not a rebuild. Derived, checked, never trusted.

Layout: magic; length and checksum of the header; header (JSON, padded with spaces to a multiple of 64 bytes); blocks,
each from a multiple of 64 bytes on, in the form in which they are used; codes of the vectors; float32 rows. The
header gives every block's dtype, shape, offset, size with padding, and checksum, where those begin that a view does
not keep, and the log position the file was taken at (seq and hash of that event). The codes have a checksum per 256
rows and the rows one each, so that a row can be left in the file until it is scored (`stored.py`). A file that is
damaged, of another format or of another log is refused with `Stale`; the caller rebuilds from the rows of the store.
Files are replaced whole, never changed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.columns import Codes, Column, Digests, Groups, Pairs, Strings, Texts, encoded, grouped
from twofold.index.stored import StoredTokens, StoredVectors
from twofold.index.tenant import TenantIndex, VectorPart
from twofold.model import Vectors

MAGIC: Final = b"TWOFOLD INDEX 3\n"
TEMPORARY: Final = ".index-"  # begins the names of files that are being written
_START: Final = len(MAGIC) + 16
_LINE: Final = 64
AT_ONCE = 1 << 28
"""Bytes of float32 rows, and of token codes, up to which all are read when the file is opened: that is cheaper in all
than one by one."""
_UNIT: Final = 256  # vectors whose codes share a checksum
_CHUNK: Final = 4096  # rows copied at a time
_NAMES: Final = (
    "namespaces types keys frames speakers agents session_names sessions ids tags entities terms"
).split()
_TEXTS: Final = ("metadata", "content_hash")
_PASSING: Final = ("l.", "i.")
"""Blocks (by how their names begin) that something else is made of when they are read."""
_OF_VECTORS: Final = ("v.code_sums", "v.row_sums", "v.token_sums", "v.alive")
_APART: Final = (*_OF_VECTORS, "v.codes")
"""Blocks that are read by themselves, with the vectors."""
_PART: Final = ("ordinals", "starts", "stops", "code_starts", "code_stops")
_COLUMNS: Final = ("c.", *(f"v.{name}" for name in _PART))
_ROOM: Final = 32
"""Columns have room for one more in so many rows, or the first row added to a large store would copy them all."""
_VALUES: Final = (
    "erasures",
    "feedback",
    "flags",
    "writes_by_agent",
    "recorded_at",
    "rows",
    "last_access_time",
)

Array = npt.NDArray[Any]
Repair = Callable[[int, int], Vectors]
"""(generation, count) -> the first `count` vectors of a generation, from the store."""


class Stale(Exception):
    """The file does not describe this log; the message says why. Internal: it means rebuild."""


def save(index: TenantIndex, path: Path, head_hash: bytes, rules: str) -> None:
    """Write the view as of its head; a new file takes the old one's place in one rename.

    head_hash: of the event at `index.seq`. The caller holds `index.lock`.
    """
    blocks, values = _pack(index)
    generation = index.current_generation()
    part = None if generation is None else index.vectors.get(generation.number)
    vectors = None
    if part is not None:
        count = len(part.ordinals)
        vectors = {
            "generation": part.generation.number,
            "dimension": part.index.dim,
            "count": count,
            "one_per_row": part.one_per_row,
        }
        for name in _PART:
            blocks[f"v.{name}"] = getattr(part, name).view(count)
        codes, first, last = part.token_rows(np.arange(count, dtype=np.int64))
        blocks["v.code_starts"], blocks["v.code_stops"] = first, last
        blocks["v.codes"] = codes.reshape(-1)
        blocks["v.token_sums"] = _token_sums(codes, first, last)
        blocks["v.alive"] = part.index.alive[:count]
        blocks["v.code_sums"] = np.zeros(-(-count // _UNIT), np.uint64)
        blocks["v.row_sums"] = np.zeros(count, np.uint64)
    header = {
        "seq": index.seq,
        "hash": head_hash.hex(),
        "rules": rules,
        "tenant": index.tenant,
        "values": values,
        "vectors": vectors,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, header, blocks, part)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write(
    file: IO[bytes], header: dict[str, Any], blocks: dict[str, Array], part: VectorPart | None
) -> None:
    # What the view keeps comes first, so that the rest can be let go of when it is read.
    names = sorted(blocks, key=lambda name: (name == "v.codes", name in _APART, name.startswith(_PASSING)))
    raw = {name: np.ascontiguousarray(blocks[name]) for name in names}
    offset = kept = 0
    places = {}
    sizes = {
        name: _padded(block.nbytes + (block.nbytes // _ROOM if name.startswith(_COLUMNS) else 0))
        for name, block in raw.items()
    }
    for name, size in sizes.items():
        kept = kept if name.startswith((*_PASSING, *_APART)) else offset + size
        places[name] = offset
        offset += size

    def head(sums: dict[str, int]) -> bytes:
        table = {
            name: [
                block.dtype.str,
                list(block.shape),
                places[name],
                sizes[name],
                f"{sums[name]:016x}",
            ]
            for name, block in raw.items()
        }
        body = json.dumps(
            {**header, "blocks": table, "kept": kept, "size": offset}, separators=(",", ":")
        ).encode()
        # Padded so that the blocks begin on a line; of the same length whatever the checksums are.
        body += b" " * (-(_START + len(body)) % _LINE)
        return MAGIC + len(body).to_bytes(8, "little") + _core.checksum(body).to_bytes(8, "little") + body

    start = len(head(dict.fromkeys(raw, 0)))
    if part is not None:
        # First, because their checksums are among the blocks.
        file.seek(start + offset)
        for i, codes in enumerate(_codes(part, len(raw["v.row_sums"]))):
            raw["v.code_sums"][i] = _core.checksum(codes)
            file.write(codes.data)
        count = len(raw["v.row_sums"])
        for first in range(0, count, _CHUNK):
            rows = part.index.rows(np.arange(first, min(first + _CHUNK, count), dtype=np.int64))
            raw["v.row_sums"][first : first + len(rows)] = _core.checksum_rows(rows.view(np.uint8))
            file.write(rows.data)
    padded = {name: block.tobytes() + bytes(sizes[name] - block.nbytes) for name, block in raw.items()}
    file.seek(0)
    file.write(head({name: _core.checksum(block) for name, block in padded.items()}))
    for content in padded.values():
        file.write(content)


def _padded(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _codes(part: VectorPart, count: int) -> Iterator[Array]:
    """The code blocks of the first `count` vectors, in units."""
    for first in range(0, count, _UNIT):
        yield part.index.codes(first)[: _code_bytes(part.index.dim, min(_UNIT, count - first))]


def _token_sums(codes: Array, starts: Array, stops: Array) -> npt.NDArray[np.uint64]:
    content, width = codes.tobytes(), codes.shape[1] * 8
    view = memoryview(content)
    sums = [
        _core.checksum(view[a * width : b * width])
        for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    return np.array(sums, np.uint64)


def _code_bytes(dimension: int, rows: int) -> int:
    """Bytes of the codes of so many rows, as the core lays them out: 16 rows a block, four bytes of each a line."""
    return -(-rows // 16) * (-(-dimension // 4) + 2) * _LINE


class Saved:
    """A view's file, open: where in the log it was taken, and the view. Stale when it is not to be used."""

    def __init__(self, path: Path) -> None:
        """FileNotFoundError when there is none."""
        self._file = path.open("rb", buffering=0)
        try:
            self._header, self._body = self._read_header()
            self.seq = int(self._header["seq"])
            self.hash = bytes.fromhex(self._header["hash"])
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Saved:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _read_header(self) -> tuple[dict[str, Any], int]:
        start = self._file.read(_START)
        if start[: len(MAGIC)] != MAGIC or len(start) != _START:
            raise Stale("it is not an index file of this format")
        length = int.from_bytes(start[len(MAGIC) : len(MAGIC) + 8], "little")
        size = os.fstat(self._file.fileno()).st_size
        if length > size:
            raise Stale("its header is damaged")
        body = self._file.read(length)
        if len(body) != length or _core.checksum(body) != int.from_bytes(start[len(MAGIC) + 8 :], "little"):
            raise Stale("its header is damaged")
        header: dict[str, Any] = json.loads(body)
        expected = _START + length + header["size"]
        vectors = header["vectors"]
        if vectors is not None:
            expected += _code_bytes(vectors["dimension"], vectors["count"])
            expected += 4 * vectors["dimension"] * vectors["count"]
        if size != expected:
            raise Stale(f"it has {size} bytes, not {expected}")
        return header, _START + length

    def view(self, tenant: str, rules: str) -> TenantIndex:
        """The view without its vectors."""
        if self._header["rules"] != rules or self._header["tenant"] != tenant:
            raise Stale("it was made by other rules or for another tenant")
        index = TenantIndex(tenant)
        try:
            self._blocks = self._unpack(index)
        except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise Stale(f"its content does not fit together: {error!r}") from None
        index.head_hash = self.hash
        return index

    def load_vectors(self, index: TenantIndex, generation: int, *, resident: bool, repair: Repair) -> bool:
        """Bring the vectors into what `view` gave, if they are of this generation.

        resident: float32 rows stay in RAM once they were read; codes always do, and token codes if they are not
        many. repair: for when a row in the file turns out to be damaged.
        """
        about = self._header["vectors"]
        if about is None or about["generation"] != generation:
            return False
        part = index.part(generation)
        if part.index.dim != about["dimension"]:
            raise Stale("its vectors are of another dimension")
        blocks = self._blocks | {name: self._block(name) for name in _OF_VECTORS}
        try:
            for name in _PART:
                getattr(part, name).restore(blocks[f"v.{name}"], about["count"])
            part.one_per_row = bool(about["one_per_row"])
            part.index = self._vectors(blocks, resident, repair)
            tokens = Column(np.uint64)
            if resident and self._header["blocks"]["v.codes"][3] <= AT_ONCE:
                tokens.restore(self._block("v.codes"))
                part._tokens = (None, tokens)
            else:
                part._tokens = (self._stored_tokens(part, blocks, repair), tokens)
        except (KeyError, ValueError, TypeError) as error:
            raise Stale(f"its content does not fit together: {error!r}") from None
        return True

    def let_go(self, part: VectorPart, repair: Repair) -> None:
        """Let a part whose vectors are all in the file keep their codes in RAM only. Stale if it has others."""
        about = self._header["vectors"]
        if about is None or (about["generation"], about["count"]) != (
            part.generation.number,
            len(part.ordinals),
        ):
            raise Stale("its vectors are others")
        blocks = {name: self._block(name) for name in (*_OF_VECTORS, "v.code_starts", "v.code_stops")}
        try:
            part.index = self._vectors(blocks, resident=False, repair=repair)
            # The same codes at the same places, unless some were erased since.
            if not np.array_equal(part.code_starts.view(), blocks["v.code_starts"][: about["count"]]):
                part.code_starts.restore(blocks["v.code_starts"], about["count"])
                part.code_stops.restore(blocks["v.code_stops"], about["count"])
            part._tokens = (self._stored_tokens(part, blocks, repair), Column(np.uint64))
        except ValueError as error:
            raise Stale(f"it is damaged: {error}") from None

    def _vectors(self, blocks: dict[str, Array], resident: bool, repair: Repair) -> StoredVectors:
        about = self._header["vectors"]
        count, dimension, generation = about["count"], about["dimension"], about["generation"]
        codes_at = self._body + self._header["size"]
        vectors = StoredVectors(dimension, lambda: repair(generation, count).data)
        vectors.restore(
            self._file.fileno(),
            count,
            codes_at=codes_at,
            code_sums=blocks["v.code_sums"],
            rows_at=codes_at + _code_bytes(dimension, count),
            row_sums=blocks["v.row_sums"],
            alive=blocks["v.alive"],
            resident=resident,
            at_once=resident and 4 * dimension * count <= AT_ONCE,
        )
        return vectors

    def _stored_tokens(self, part: VectorPart, blocks: dict[str, Array], repair: Repair) -> StoredTokens:
        about, words = self._header["vectors"], max(part.code_words, 1)
        generation, count = about["generation"], about["count"]
        _, (length,), offset, *_ = self._header["blocks"]["v.codes"]

        def whole() -> npt.NDArray[np.uint64]:
            return np.frombuffer(b"".join(repair(generation, count).codes[:count]), np.uint64)

        at = self._body + offset
        return StoredTokens(self._file.fileno(), at, length // words, words, blocks["v.token_sums"], whole)

    def _block(self, name: str) -> Array:
        """One block, read by itself."""
        entry = self._header["blocks"][name]
        _, _, offset, size, _ = entry
        return _checked(name, entry, self._read(offset, offset + size))

    def _unpack(self, index: TenantIndex) -> dict[str, Array]:
        """All but the vectors into an empty view; gives the blocks it keeps."""
        kept = int(self._header["kept"])
        passing: dict[str, list[Any]] = {}
        keeping: dict[str, list[Any]] = {}
        for name, entry in self._header["blocks"].items():
            if name.startswith(_PASSING):
                passing[name] = entry
            elif name not in _APART:
                keeping[name] = entry
        stop = max(offset + size for _, _, offset, size, _ in passing.values())
        # Into the same memory one after the other: memory that was not used before is dearer than reading into it,
        # above all on a virtual machine whose host has to find it.
        memory = np.empty(max(kept, stop - kept), np.uint8)
        for table, start, end, unpack in (
            (passing, kept, stop, _unpack_passing),
            (keeping, 0, kept, _unpack),
        ):
            body = self._read(start, end, memory[: end - start])
            blocks = {
                name: _checked(name, entry, body[entry[2] - start : entry[2] - start + entry[3]])
                for name, entry in table.items()
            }
            unpack(index, self._header, blocks)
        return blocks

    def _read(
        self, start: int, stop: int, into: npt.NDArray[np.uint8] | None = None
    ) -> npt.NDArray[np.uint8]:
        """Bytes of the blocks, as an array that may be written to."""
        body = np.empty(stop - start, np.uint8) if into is None else into
        view, at = body.data, 0
        self._file.seek(self._body + start)
        while at < len(body):
            got = self._file.readinto(view[at:])
            if not got:
                raise Stale("its end is missing")
            at += got
        return body


def _columns(index: TenantIndex) -> dict[str, Column]:
    return {name: value for name, value in vars(index).items() if isinstance(value, Column)}


def _checked(name: str, entry: list[Any], body: npt.NDArray[np.uint8]) -> Array:
    """The array that a block's bytes are by its entry in the header; a column with its room. Else Stale."""
    dtype, shape, _, _, expected = entry
    if _core.checksum(body) != int(expected, 16):
        raise Stale(f"its block {name} is damaged")
    width = np.dtype(dtype).itemsize
    if name.startswith(_COLUMNS):
        column: Array = body[: len(body) // width * width].view(dtype)
        return column
    items = int(np.prod(shape, dtype=np.int64))
    block: Array = body[: items * width].view(dtype).reshape(shape)
    return block


def _groups(index: TenantIndex) -> dict[str, tuple[Array, Array]]:
    """For each table of rows by a key: keys and rows, row after row."""
    out: dict[str, tuple[Array, Array]] = {}
    lineage = index.lineage.view().astype(np.int64)
    every = np.arange(index.rows, dtype=np.int64)
    out["versions"] = (lineage, every)
    namespace = index.namespace.view().astype(np.int64)
    for name, column in (("by_key", index.key), ("by_frame", index.frame)):
        codes = column.view().astype(np.int64)
        known = np.flatnonzero(codes >= 0)
        out[name] = (Pairs.key(namespace[known], codes[known]), known)
    kept = np.flatnonzero(~index.erased.view()).tolist()
    spaces, hashes = namespace.tolist(), index.content_hash.tolist()
    keys = np.array([Digests.key(spaces[o], hashes[o]) for o in kept], np.int64)
    out["by_hash"] = (keys, np.array(kept, np.int64))
    for name, rows in (("tag_groups", index.row_tags), ("entity_groups", index.row_entities)):
        flat, offsets = rows.arrays()
        out[name] = (flat.astype(np.int64), np.repeat(every, np.diff(offsets)))
    return out


def _pack(index: TenantIndex) -> tuple[dict[str, Array], dict[str, Any]]:
    """The view but for its vectors: blocks by name, and what is small enough for the header."""
    blocks: dict[str, Array] = {f"c.{n}": c.view() for n, c in _columns(index).items()}
    for name in _NAMES:
        blob, offsets = encoded(list(getattr(index, name).names))
        blocks[f"n.{name}"], blocks[f"m.{name}"] = blob, offsets
        blocks[f"s.{name}"] = Strings.slots_of(blob, offsets)
    for name in _TEXTS:
        blocks[f"n.{name}"], blocks[f"m.{name}"] = encoded(getattr(index, name).tolist())
    framed = index.frame_value.items()
    blocks["f.rows"] = np.array([row for row, _ in framed], np.int64)
    blocks["f.blob"], blocks["f.offsets"] = encoded([text for _, text in framed])
    for name in ("row_tags", "row_entities"):
        blocks[f"r.{name}"], blocks[f"o.{name}"] = getattr(index, name).arrays()
    for name, (keys, rows) in _groups(index).items():
        blocks[f"k.{name}"], blocks[f"a.{name}"], blocks[f"g.{name}"] = grouped(keys, rows)
    closings, words = index.closings.arrays()
    blocks |= {f"e.{name}": block for name, block in closings.items()}
    blocks |= {f"l.{name}": part for name, part in index.lexicon.parts().items()}
    links = index.links
    blocks["i.numbers"] = np.array([(s, a, b) for s, a, b, _, _ in links], np.int64).reshape(-1, 3)
    blocks["i.weight"] = np.array([w for *_, w in links], np.float64)
    relations = Codes()
    blocks["i.relation"] = np.array([relations.add(r) for _, _, _, r, _ in links], np.int32)
    blocks["i.voids"] = np.array(list(index.voids.items()), np.int64).reshape(-1, 2)
    values = {name: getattr(index, name) for name in _VALUES}
    return blocks, values | {"closing_words": words, "relations": list(relations.names)}


def _unpack_passing(index: TenantIndex, header: dict[str, Any], blocks: dict[str, Array]) -> None:
    """What is made of blocks that need not stay."""
    relations = header["values"]["relations"]
    index.links = [
        (s, a, b, relations[r], w)
        for (s, a, b), r, w in zip(
            blocks["i.numbers"].tolist(),
            blocks["i.relation"].tolist(),
            blocks["i.weight"].tolist(),
            strict=True,
        )
    ]
    index.voids = {a: b for a, b in blocks["i.voids"].tolist()}
    parts = {name[2:]: block for name, block in blocks.items() if name.startswith("l.")}
    index.lexicon = _core.Lexicon.from_parts(**parts)


def _unpack(index: TenantIndex, header: dict[str, Any], blocks: dict[str, Array]) -> None:
    no_slots = np.zeros(0, np.uint32)
    for name, column in _columns(index).items():
        (size,) = header["blocks"][f"c.{name}"][1]
        column.restore(blocks[f"c.{name}"], size)
    for name in _NAMES:
        codes: Codes = getattr(index, name)
        codes.restore(Strings(blocks[f"n.{name}"], blocks[f"m.{name}"], blocks[f"s.{name}"]))
    for name in _TEXTS:
        texts: Texts = getattr(index, name)
        texts.restore(Strings(blocks[f"n.{name}"], blocks[f"m.{name}"], no_slots))
    index.frame_value.restore(blocks["f.rows"], Strings(blocks["f.blob"], blocks["f.offsets"], no_slots))
    for name in ("row_tags", "row_entities"):
        getattr(index, name).restore(blocks[f"r.{name}"], blocks[f"o.{name}"])
    for name in ("versions", "by_key", "by_frame", "by_hash", "tag_groups", "entity_groups"):
        groups: Groups = getattr(index, name)
        groups.restore(blocks[f"k.{name}"], blocks[f"a.{name}"], blocks[f"g.{name}"])
    values = header["values"]
    names = ("numbers", "blob", "offsets", "keys", "starts", "rows")
    index.closings.restore({name: blocks[f"e.{name}"] for name in names}, values["closing_words"])
    index.erasures = [(s, n) for s, n in values["erasures"]]
    index.feedback = [(s, p) for s, p in values["feedback"]]
    index.flags = [(s, o, r) for s, o, r in values["flags"]]
    index.writes_by_agent = values["writes_by_agent"]
    index.recorded_at, index.rows = values["recorded_at"], values["rows"]
    index.last_access_time = values["last_access_time"]
    index.seq = header["seq"]
    for tag in index.tags.names:
        index.tag_matcher.add(tag)
    if len(index.edge_src):
        index.graph.add_edges(index.edge_src.view(), index.edge_dst.view(), index.edge_weight.view())
    if (
        not len(index.lexicon)
        == len(index.row_tags)
        == len(index.metadata)
        == len(index.lineage)
        == index.rows
    ):
        raise ValueError("its parts are of different lengths")
