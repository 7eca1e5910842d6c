"""Words searched in the server: the posting lists of our own analyser's terms, beside the rows they come from.

They exist once some process has asked for `mode=pushdown`; then every writer keeps them up in its transaction. A
list is kept in blocks of neighbouring rows under (tenant, term, block), found by equality, because that is what
PostgreSQL looks up in an index under row-level security: the operators of GIN (`&&`, `@@`) are not leakproof, so
with a policy on the table their index is never used. What comes from here are the postings; the core scores them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from twofold.index.pushed import stored_name
from twofold.stores.postgres_schema import make_table, secured

NAME: Final = "posting"
BLOCK: Final = 512  # rows of a block: one that holds all of them still fits into a page

POSTING: Final = np.dtype([("ordinal", "<u4"), ("count", "<f4")])
Postings = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]

TABLE: Final = (
    """CREATE TABLE @posting (
        tenant text COLLATE "C" NOT NULL, term text COLLATE "C" NOT NULL, block bigint NOT NULL,
        data bytea NOT NULL, PRIMARY KEY (tenant, term, block)
    ) WITH (toast_tuple_target = 8160)""",
    "ALTER TABLE @posting ALTER data SET STORAGE EXTERNAL",
    *secured("@posting"),
)
PUT: Final = """INSERT INTO @posting AS p (tenant, term, block, data)
    SELECT %s, * FROM unnest(%s::text[], %s::bigint[], %s::bytea[])
    ON CONFLICT (tenant, term, block) DO UPDATE SET data = p.data || excluded.data"""
REPLACE: Final = "UPDATE @posting SET data = %s WHERE tenant = %s AND term = %s AND block = %s"
DROP: Final = "DELETE FROM @posting WHERE tenant = %s AND term = %s AND block = %s"
COUNT: Final = (
    f"SELECT (coalesce(sum(length(data)), 0) / {POSTING.itemsize})::bigint FROM @posting WHERE tenant = %s"
)
DROP_ALL: Final = "DELETE FROM @posting WHERE tenant = %s"
LEXEMES: Final = """SELECT ordinal, lexemes FROM @memory WHERE tenant = %s AND ordinal >= %s AND ordinal < %s
    ORDER BY ordinal"""
LEXEMES_OF: Final = "SELECT ordinal, lexemes FROM @memory WHERE tenant = %s AND ordinal = ANY(%s)"
BLOCKS: Final = (
    "SELECT term, block, data FROM @posting WHERE tenant = %s AND term = ANY(%s) AND block = ANY(%s)"
)
FIND: Final = """SELECT term, string_agg(data, ''::bytea ORDER BY block) FROM @posting
    WHERE tenant = %s AND term = ANY(%s) GROUP BY term"""
ALL: Final = "SELECT term, block, data FROM @posting WHERE tenant = %s"


def prepare(db: Any, schema: str, qualified: Callable[[str], str], wait: str = "0") -> None:
    """Make the table, one process at a time."""
    there = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'posting'"
    make_table(db, schema, qualified, wait, there, TABLE)


def blocks(rows: Iterable[tuple[int, str]]) -> dict[tuple[str, int], bytes]:
    """The postings of rows (ordinal, lexemes), ascending, by term and block."""
    lists: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for ordinal, lexemes in rows:
        if lexemes:
            for term, count in json.loads(lexemes).items():
                lists.setdefault((stored_name(term), ordinal // BLOCK), []).append((ordinal, count))
    return {place: np.array(items, POSTING).tobytes() for place, items in lists.items()}


def putting(tenant: str, made: dict[tuple[str, int], bytes]) -> tuple[Any, ...]:
    """The arguments of PUT."""
    # In one order, so that two transactions cannot wait for each other, and the index is filled from left to right.
    places = sorted(made)
    terms, numbers = zip(*places, strict=True)
    return (tenant, list(terms), list(numbers), [made[place] for place in places])


def without(data: bytes, ordinals: Sequence[int]) -> bytes:
    """A block without some rows."""
    items = np.frombuffer(data, POSTING)
    return items[~np.isin(items["ordinal"], np.array(ordinals, np.uint32))].tobytes()


def lists(terms: Sequence[str], records: Iterable[tuple[str, bytes]]) -> list[Postings]:
    """The posting list of each term: ordinals, ascending, and weighted counts."""
    found: dict[str, list[bytes]] = {}
    for term, data in records:
        found.setdefault(term, []).append(data)
    out = []
    for term in terms:
        items = np.frombuffer(b"".join(found.get(stored_name(term), ())), POSTING)
        out.append((items["ordinal"].astype(np.int64), items["count"].astype(np.float32)))
    return out
