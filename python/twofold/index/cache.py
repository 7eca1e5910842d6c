"""A tenant's view as a file, so that opening is a read and not a rebuild. Derived, checked, never trusted.

Layout: magic, length of the header, header (canonical JSON), blocks. The header names every block with its
dtype, shape, offset and CRC-32, and the log position it was taken at (seq and hash of that event). A file that is
damaged, of another format or of another log is refused with `Stale`; the caller rebuilds from the rows.
Vectors are not in it: they are read from the store, which has them as they are searched.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import zlib
from array import array
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from twofold import _core
from twofold.index.columns import Codes, Column
from twofold.index.tenant import Closing, TenantIndex

MAGIC: Final = b"TWOFOLD INDEX 1\n"
_NAMES: Final = (
    "namespaces types keys frames speakers agents session_names sessions ids tags entities terms"
).split()
_VALUES: Final = ("metadata", "content_hash", "links", "erasures", "feedback", "flags")


class Stale(Exception):
    """The file does not describe this log; the message says why. Internal: it means rebuild."""


def save(index: TenantIndex, path: Path, head_hash: bytes, rules: str) -> None:
    """Write the view as of its head; a new file takes the old one's place in one rename."""
    with index.lock:
        header, blocks = _pack(index)
    header |= {"seq": index.seq, "hash": head_hash.hex(), "rules": rules, "tenant": index.tenant}
    body = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".index-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(
                MAGIC + len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little") + body
            )
            for block in blocks:
                file.write(block)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def position(path: Path) -> tuple[int, bytes]:
    """(seq, hash) a file was taken at. Stale when it cannot be read; FileNotFoundError when there is none."""
    with path.open("rb") as file:
        header = _header(file.read(len(MAGIC) + 12), file)
    return int(header["seq"]), bytes.fromhex(header["hash"])


def load(path: Path, tenant: str, rules: str) -> TenantIndex:
    """The view of a file. Stale when anything in it does not fit."""
    with path.open("rb") as file:
        header = _header(file.read(len(MAGIC) + 12), file)
        body = file.read()
    if header.get("rules") != rules or header.get("tenant") != tenant:
        raise Stale("it was made by other rules or for another tenant")
    index = TenantIndex(tenant)
    try:
        _unpack(index, header, memoryview(body))
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise Stale(f"its content does not fit together: {error!r}") from None
    return index


def _header(start: bytes, file: Any) -> dict[str, Any]:
    if start[: len(MAGIC)] != MAGIC or len(start) != len(MAGIC) + 12:
        raise Stale("it is not an index file of this format")
    size = int.from_bytes(start[len(MAGIC) : len(MAGIC) + 8], "little")
    if size > 1 << 40:
        raise Stale("its header is damaged")
    body = file.read(size)
    if zlib.crc32(body) != int.from_bytes(start[len(MAGIC) + 8 :], "little"):
        raise Stale("its header is damaged")
    header: dict[str, Any] = json.loads(body)
    return header


def _columns(index: TenantIndex) -> dict[str, Column]:
    return {name: value for name, value in vars(index).items() if isinstance(value, Column)}


def _ragged(rows: list[tuple[int, ...]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = np.fromiter((v for row in rows for v in row), np.int32, int(lengths.sum()))
    return flat, np.concatenate(([0], np.cumsum(lengths)))


def _pack(index: TenantIndex) -> tuple[dict[str, Any], list[bytes]]:
    arrays: dict[str, npt.NDArray[Any]] = {f"c.{n}": c.view() for n, c in _columns(index).items()}
    for name in ("row_tags", "row_entities"):
        arrays[f"r.{name}"], arrays[f"o.{name}"] = _ragged(getattr(index, name))
    for name, part in index.lexicon.parts().items():
        arrays[f"l.{name}"] = part
    edges = index.edges
    arrays["e.src"] = np.fromiter((e[0] for e in edges), np.uint32, len(edges))
    arrays["e.dst"] = np.fromiter((e[1] for e in edges), np.uint32, len(edges))
    arrays["e.weight"] = np.fromiter((e[2] for e in edges), np.float32, len(edges))
    last = sorted(index._last_of_session.items())
    arrays["s.last"] = np.array(last, np.int64).reshape(-1, 2)
    values = {name: getattr(index, name) for name in _VALUES}
    values |= {
        "names": {name: getattr(index, name).names for name in _NAMES},
        "frame_value": list(index.frame_value.items()),
        "closings": [list(c) for c in index.closing_order],
        "voids": list(index.voids.items()),
        "writes_by_agent": index.writes_by_agent,
        "recorded_at": index.recorded_at,
        "rows": index.rows,
        "last_access_time": index.last_access_time,
    }
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    table: dict[str, Any] = {}
    blocks: list[bytes] = []
    offset = 0
    for name, value in {**arrays, "values": np.frombuffer(text, np.uint8)}.items():
        block = np.ascontiguousarray(value).tobytes()
        table[name] = [value.dtype.str, list(value.shape), offset, len(block), zlib.crc32(block)]
        blocks.append(block)
        offset += len(block)
    return {"blocks": table}, blocks


def _unpack(index: TenantIndex, header: dict[str, Any], body: memoryview) -> None:
    def block(name: str) -> npt.NDArray[Any]:
        dtype, shape, offset, size, crc = header["blocks"][name]
        data = body[offset : offset + size]
        if len(data) != size or zlib.crc32(data) != crc:
            raise ValueError(f"block {name} is damaged")
        return np.frombuffer(data, np.dtype(dtype)).reshape(shape)

    values = json.loads(bytes(block("values")).decode("utf-8", "surrogatepass"))
    for name, column in _columns(index).items():
        column.extend(block(f"c.{name}"))
    for name in _NAMES:
        codes: Codes = getattr(index, name)
        codes.names = values["names"][name]
        codes.code = dict(zip(codes.names, range(len(codes.names)), strict=True))
    index.metadata, index.content_hash = values["metadata"], values["content_hash"]
    index.links = [(s, a, b, r, w) for s, a, b, r, w in values["links"]]
    index.erasures = [(s, n) for s, n in values["erasures"]]
    index.feedback = [(s, p) for s, p in values["feedback"]]
    index.flags = [(s, o, r) for s, o, r in values["flags"]]
    index.frame_value = {int(o): v for o, v in values["frame_value"]}
    index.voids = {int(a): int(b) for a, b in values["voids"]}
    index.writes_by_agent = values["writes_by_agent"]
    index.recorded_at, index.rows = values["recorded_at"], values["rows"]
    index.last_access_time = values["last_access_time"]
    index.seq = header["seq"]
    for fields in values["closings"]:
        closing = Closing(*fields)
        index.closings.setdefault(closing.ordinal, []).append(closing)
        index.closing_order.append(closing)
    index._last_of_session = dict(block("s.last").tolist())
    for name in ("row_tags", "row_entities"):
        flat, offsets = block(f"r.{name}").tolist(), block(f"o.{name}").tolist()
        setattr(index, name, [tuple(flat[a:b]) for a, b in itertools.pairwise(offsets)])
    index._tag_rows = _inverted(index.row_tags)
    index._entity_rows = _inverted(index.row_entities)
    for tag in index.tags.names:
        index.tag_matcher.add(tag)
    _group(index)
    parts = {name[2:]: block(name) for name in header["blocks"] if name.startswith("l.")}
    index.lexicon = _core.Lexicon.from_parts(**parts)
    src, dst, weight = block("e.src"), block("e.dst"), block("e.weight")
    if len(src):
        index.graph.add_edges(src, dst, weight)
    index.edges = list(zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True))
    if len(index.lexicon) != index.rows or len(index.row_tags) != index.rows:
        raise ValueError("its parts are of different lengths")


def _inverted(rows: list[tuple[int, ...]]) -> dict[int, array[int]]:
    out: dict[int, array[int]] = {}
    for ordinal, codes in enumerate(rows):
        for code in dict.fromkeys(codes):
            found = out.get(code)
            if found is None:
                found = out[code] = array("q")
            found.append(ordinal)
    return out


def _group(index: TenantIndex) -> None:
    """The lookup tables of the write path, from the columns."""
    for ordinal, lineage in enumerate(index.lineage.view().tolist()):
        index.versions.setdefault(lineage, []).append(ordinal)
    namespaces = index.namespace.view().tolist()
    erased = index.erased.view().tolist()
    for ordinal, digest in enumerate(index.content_hash):
        if not erased[ordinal]:
            index.by_hash.setdefault((namespaces[ordinal], digest), []).append(ordinal)
    for column, table in ((index.key, index.by_key), (index.frame, index.by_frame)):
        codes = column.view()
        for ordinal in np.flatnonzero(codes >= 0).tolist():
            table.setdefault((namespaces[ordinal], int(codes[ordinal])), []).append(ordinal)
