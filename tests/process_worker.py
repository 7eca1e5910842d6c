"""Child processes of tests/test_processes.py: writers that acknowledge on stdout, readers that recall in a loop.

    process_worker.py write FOLDER NAME COUNT         one line "ok <id>" after each committed memory
    process_worker.py read FOLDER SECONDS             recalls until told to stop; prints how often
    process_worker.py mixed FOLDER NAME SEED          add, add_many, supersede, erase for ever; lines as below

`mixed` prints, each flushed at once: "begin" when a transaction is open and before it commits, then
"add <id>...", "supersede <old> <new>" or "erase <id>" once the call has returned.
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import contextmanager
from typing import Any

from twofold import AgentMemory
from twofold.clock import monotonic
from twofold.errors import StoreBusy


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def write(folder: str, name: str, count: int) -> None:
    with AgentMemory(folder, embedder="hashing:64") as mem:
        for i in range(count):
            memory = mem.add(f"{name} wrote memory number {i}", tags=[name], key=f"{name}.{i}")
            say(f"ok {memory.id}")


def read(folder: str, seconds: float) -> None:
    with AgentMemory(folder, embedder="hashing:64") as mem:
        until = monotonic() + seconds
        count = found = 0
        while monotonic() < until:
            found += len(mem.recall("wrote memory number 3", k=5, promote=count % 10 == 0))
            count += 1
        say(f"{count} recalls {found} hits")


def mixed(folder: str, name: str, seed: int) -> None:
    mem = AgentMemory(folder, embedder="hashing:64")
    store: Any = mem._vault.store
    real = store.transaction

    @contextmanager
    def announced(tenant: str) -> Any:
        with real(tenant) as tx:
            apply = tx.apply

            def announce(batch: Any) -> Any:
                head = apply(batch)
                say("begin")  # written, not yet committed: a kill from here on falls inside the transaction
                return head

            tx.apply = announce
            yield tx

    store.transaction = announced
    source = random.Random(seed)
    mine: list[str] = []
    for i in range(10**9):
        choice = source.random()
        try:
            if choice < 0.5 or len(mine) < 3:
                memory = mem.add(f"{name} {seed} item {i} of many words", tags=[name], entities=[f"E{i % 5}"])
                mine.append(memory.id)
                say(f"add {memory.id}")
            elif choice < 0.7:
                made = mem.add_many({"content": f"{name} {seed} bulk {i} {j}"} for j in range(5))
                mine += [m.id for m in made]
                say("add " + " ".join(m.id for m in made))
            elif choice < 0.9:
                old = mine.pop(0)
                new = mem.add(f"{name} {seed} newer {i}", supersedes=[old])
                mine.append(new.id)
                say(f"supersede {old} {new.id}")
            else:
                gone = mine.pop(0)
                mem.erase(gone, reason="test")
                say(f"erase {gone}")
        except StoreBusy:
            continue


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "write":
        write(rest[0], rest[1], int(rest[2]))
    elif mode == "read":
        read(rest[0], float(rest[1]))
    else:
        mixed(rest[0], rest[1], int(rest[2]))
