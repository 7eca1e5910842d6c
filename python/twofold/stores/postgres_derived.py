"""Keeping a tenant's derived tables in step with its log: edges always, the rest once a process asks for it.

The table `derived` says up to which seq each goes. Whoever writes next, under the tenant's lock, makes anew what
does not reach the head (a schema of an older version, a table that was just made), and then every transaction
carries its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twofold.model import Batch, Head
from twofold.stores import postgres_age as age
from twofold.stores import postgres_graph as graph
from twofold.stores import postgres_text as text

Run = Callable[[str, Sequence[Any]], Any]  # statement and arguments -> cursor

TABLES: Final = """SELECT tablename FROM pg_tables WHERE schemaname = %s
    AND tablename IN ('embedding', 'posting', 'vertex')"""
_CHUNK: Final = 8 * text.BLOCK  # rows whose postings are made at a time: whole blocks


class Derived:
    """What is derived for one tenant, inside a transaction that holds its lock."""

    def __init__(
        self,
        tenant: str,
        schema: str,
        tables: Sequence[tuple[str]],
        reach: Sequence[tuple[str, int]],
    ) -> None:
        there = {name for (name,) in tables}
        self.vectors = "embedding" in there
        self._mirror = age.graph_of(schema) if "vertex" in there else None
        self._names = [graph.NAME]
        if text.NAME in there:
            self._names.append(text.NAME)
        if self._mirror is not None:
            self._names.append(age.NAME)
        self._reach = dict(reach)
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
            self._note(run, name, head.seq)

    def write(self, run: Run, head: Head, batch: Batch, after: Head) -> list[tuple[str, Sequence[Any]]]:
        """The statements that carry a batch into the derived tables, to be run before its own.

        Looks up what it has to know. Called when the batch is known to be sound.
        """
        self.bring_up(run, head)
        out: list[tuple[str, Sequence[Any]]] = []
        words = text.NAME in self._names
        gone = set(batch.erase_rows)
        if gone:
            out.append((graph.DROP_OF_ROWS, (self._tenant, self._tenant, batch.erase_rows)))
            if words:
                out += self._without(run, batch.erase_rows)
        if batch.erase_events:
            out.append((graph.DROP_OF_EVENTS, (self._tenant, batch.erase_events)))
        ids = graph.unknown_ids(batch)
        origins = dict(run(graph.ORIGINS, (self._tenant, ids)).fetchall()) if ids else {}
        erased = {row.seq for row in batch.rows if row.ordinal in gone}
        edges = [edge for edge in graph.of_batch(batch, origins) if edge.seq not in erased]
        if edges:
            out.append((graph.PUT, graph.putting(self._tenant, edges)))
        if words:
            made = text.blocks((row.ordinal, row.lexemes) for row in batch.rows if row.ordinal not in gone)
            if made:
                out.append((text.PUT, text.putting(self._tenant, made)))
        if self._mirror is not None and (gone or batch.erase_events):
            out += age.anew(self._mirror, self._tenant)
        elif self._mirror is not None and edges:
            out += age.following(self._mirror, self._tenant, head.seq)
        if after.seq != head.seq:
            for name in self._names:
                out.append((graph.PUT_DERIVED, (self._tenant, name, after.seq)))
                self._reach[name] = after.seq
        return out

    def _note(self, run: Run, name: str, seq: int) -> None:
        run(graph.PUT_DERIVED, (self._tenant, name, seq))
        self._reach[name] = seq

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

    def _without(self, run: Run, ordinals: list[int]) -> list[tuple[str, Sequence[Any]]]:
        """The statements that take rows out of the posting lists."""
        named = text.blocks(run(text.LEXEMES_OF, (self._tenant, ordinals)).fetchall())
        if not named:
            return []
        terms, numbers = (sorted(set(names)) for names in zip(*named, strict=True))
        out: list[tuple[str, Sequence[Any]]] = []
        for term, block, data in run(text.BLOCKS, (self._tenant, terms, numbers)).fetchall():
            left = text.without(data, ordinals)
            if left:
                out.append((text.REPLACE, (left, self._tenant, term, block)))
            else:
                out.append((text.DROP, (self._tenant, term, block)))
        return out
