"""Keeping a tenant's derived tables in step with its log: edges always, the rest once a process asks for it.

The table `derived` says up to which seq each goes, of which very table it says so, and how many entries that has.
Whoever writes next, under the tenant's lock, makes anew what does not reach the head (a schema of an older version, a
table that was just made or was dropped), and then every transaction carries its own part. Who begins to search
counts first; and each search tells whether the tables are still those that were counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from twofold.model import Batch, Head
from twofold.stores import postgres_age as age
from twofold.stores import postgres_graph as graph
from twofold.stores import postgres_text as text

Run = Callable[[str, Sequence[Any]], Any]  # statement and arguments -> cursor

# The tables that are kept up, each with its object id: a table that was dropped and made again is another one.
# Asked of the catalogue's rows by its index, at every write.
TABLES: Final = f"""WITH t AS MATERIALIZED (SELECT (SELECT oid FROM pg_namespace WHERE nspname = s) AS own,
        (SELECT oid FROM pg_namespace WHERE nspname = s || '_graph') AS graph FROM (SELECT %s::text AS s) AS x)
    SELECT c.relname::text, c.oid::bigint FROM pg_class AS c WHERE c.relnamespace = (SELECT own FROM t)
        AND c.relkind = 'r' AND c.relname IN ('edge', 'embedding', 'posting', 'vertex')
    UNION ALL SELECT 'graph', c.oid::bigint FROM pg_class AS c WHERE c.relnamespace = (SELECT graph FROM t)
        AND c.relkind = 'r' AND c.relname IN {age.LABELS}"""
_CHUNK: Final = 8 * text.BLOCK  # rows whose postings are made at a time: whole blocks

Tables = Sequence[tuple[str, int]]
Claims = Sequence[tuple[str, int, int | None, int | None]]


def kept_up(tables: Tables) -> dict[str, int]:
    """What every writer keeps up, by its name in `derived`, and the object id of the table that it is in."""
    there = dict(tables)
    out = {graph.NAME: there[graph.NAME]} if graph.NAME in there else {}
    if text.NAME in there:
        out[text.NAME] = there[text.NAME]
    if "vertex" in there and sum(name == "graph" for name, _ in tables) == len(age.LABELS):
        out[age.NAME] = there["vertex"]
    return out


def reach_of(tables: Tables, claims: Claims) -> dict[str, int]:
    """Up to which seq each goes; what is claimed of a table that is not there any more counts for nothing."""
    made = kept_up(tables)
    return {name: seq for name, seq, of, entries in claims if made.get(name) == of and entries is not None}


def entries_of(claims: Claims) -> dict[str, int | None]:
    """How many entries each is said to have; the graph those of the table of edges, which are not counted twice."""
    said = {name: entries for name, _, _, entries in claims}
    return {**said, age.NAME: said.get(graph.NAME)}


def identity(schema: str, mirror: str | None) -> str:
    """A statement that gives a number per searched table, another one once it was emptied, rewritten or replaced."""
    places = [f'"{schema}".{name}' for name in ("edge", "posting", "embedding")]
    places += age.tables(mirror) if mirror is not None else []
    numbers = (f"pg_relation_filenode(to_regclass('{place}'))::bigint" for place in places)
    return f"SELECT {', '.join(numbers)}"


def counts(names: Iterable[str], mirror: str | None, tenant: str) -> dict[str, tuple[str, Sequence[Any]]]:
    """The statement that counts the entries of each."""
    known: dict[str, tuple[str, Sequence[Any]]] = {
        graph.NAME: (graph.COUNT, (tenant,)),
        text.NAME: (text.COUNT, (tenant,)),
    }
    if mirror is not None:
        known[age.NAME] = (age.count(mirror), (tenant, tenant))
    return {name: known[name] for name in names}


class Derived:
    """What is derived for one tenant, inside a transaction that holds its lock."""

    def __init__(self, tenant: str, schema: str, tables: Tables, claims: Claims) -> None:
        self.vectors = any(name == "embedding" for name, _ in tables)
        self._made = kept_up(tables)
        self._mirror = age.graph_of(schema) if age.NAME in self._made else None
        self._names = list(self._made)
        self._reach = reach_of(tables, claims)
        self._tenant = tenant

    def bring_up(self, run: Run, head: Head) -> None:
        """Make anew what does not go up to the head."""
        for name in self._names:
            if self._reach.get(name, 0) == head.seq:
                continue
            if name == graph.NAME:
                self._all_edges(run)
            elif name == text.NAME:
                self._all_postings(run, head.rows)
            elif self._mirror is not None:
                for sql, args in age.anew(self._mirror, self._tenant):
                    run(sql, args)
            ((entries,),) = run(*self._counting()[name]).fetchall()
            run(graph.PUT_DERIVED, (self._tenant, name, head.seq, self._made[name], entries))
            self._reach[name] = head.seq

    def mend(self, run: Run, head: Head) -> None:
        """Count what there is, and make anew what has lost entries, whoever removed them."""
        claimed = entries_of(run(graph.DERIVED, (self._tenant,)).fetchall())
        for name, (sql, args) in self._counting().items():
            ((entries,),) = run(sql, args).fetchall()
            if entries != (claimed.get(name) or 0):
                self._reach[name] = -1
        self.bring_up(run, head)

    def _counting(self) -> dict[str, tuple[str, Sequence[Any]]]:
        return counts(self._names, self._mirror, self._tenant)

    def write(self, run: Run, head: Head, batch: Batch, after: Head) -> list[tuple[str, Sequence[Any]]]:
        """The statements that carry a batch into the derived tables, to be run before its own.

        Looks up what it has to know. Called when the batch is known to be sound.
        """
        self.bring_up(run, head)
        out: list[tuple[str, Sequence[Any]]] = []
        more = dict.fromkeys(self._names, 0)  # entries; those that a statement drops, it counts itself
        words = text.NAME in self._names
        gone = set(batch.erase_rows)
        if gone:
            out.append((graph.DROP_OF_ROWS, (self._tenant, self._tenant, batch.erase_rows, self._tenant)))
            if words:
                without, fewer = self._without(run, batch.erase_rows)
                out += without
                more[text.NAME] -= fewer
        if batch.erase_events:
            out.append((graph.DROP_OF_EVENTS, (self._tenant, batch.erase_events, self._tenant)))
        ids = graph.unknown_ids(batch)
        origins = dict(run(graph.ORIGINS, (self._tenant, ids)).fetchall()) if ids else {}
        erased = {row.seq for row in batch.rows if row.ordinal in gone}
        edges = [edge for edge in graph.of_batch(batch, origins) if edge.seq not in erased]
        if edges:
            out.append((graph.PUT, graph.putting(self._tenant, edges)))
            more[graph.NAME] += len(edges)
        if words:
            made = text.blocks((row.ordinal, row.lexemes) for row in batch.rows if row.ordinal not in gone)
            if made:
                out.append((text.PUT, text.putting(self._tenant, made)))
                more[text.NAME] += sum(map(len, made.values())) // text.POSTING.itemsize
        if self._mirror is not None and (gone or batch.erase_events):
            out += age.anew(self._mirror, self._tenant)
        elif self._mirror is not None and edges:
            out += age.following(self._mirror, self._tenant, head.seq)
        if after.seq != head.seq:
            for name in self._names:
                out.append((graph.ADVANCE, (self._tenant, name, after.seq, self._made[name], more[name])))
                self._reach[name] = after.seq
        return out

    def _all_edges(self, run: Run) -> None:
        run(graph.DROP_ALL, (self._tenant,))
        self._reach.pop(age.NAME, None)
        edges = graph.everything(lambda sql, *args: run(sql, (self._tenant, *args)).fetchall())
        for at in range(0, len(edges), _CHUNK):
            run(graph.PUT, graph.putting(self._tenant, edges[at : at + _CHUNK]))

    def _all_postings(self, run: Run, rows: int) -> None:
        run(text.DROP_ALL, (self._tenant,))
        for first in range(0, rows, _CHUNK):
            made = text.blocks(run(text.LEXEMES, (self._tenant, first, first + _CHUNK)).fetchall())
            if made:
                run(text.PUT, text.putting(self._tenant, made))

    def _without(self, run: Run, ordinals: list[int]) -> tuple[list[tuple[str, Sequence[Any]]], int]:
        """The statements that take rows out of the posting lists, and how many postings those are."""
        named = text.blocks(run(text.LEXEMES_OF, (self._tenant, ordinals)).fetchall())
        if not named:
            return [], 0
        fewer = 0
        terms, numbers = (sorted(set(names)) for names in zip(*named, strict=True))
        out: list[tuple[str, Sequence[Any]]] = []
        for term, block, data in run(text.BLOCKS, (self._tenant, terms, numbers)).fetchall():
            left = text.without(data, ordinals)
            fewer += (len(data) - len(left)) // text.POSTING.itemsize
            if left:
                out.append((text.REPLACE, (left, self._tenant, term, block)))
            else:
                out.append((text.DROP, (self._tenant, term, block)))
        return out, fewer
