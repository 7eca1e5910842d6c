"""A writing and reading process of the failover test: says "add <id>" or "end <old> <new>" once a call has returned.

pg_worker.py ADDRESS NAME SECONDS
"""

from __future__ import annotations

import os
import random
import sys

from twofold import AgentMemory
from twofold.clock import monotonic
from twofold.errors import StoreError


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(address: str, name: str, seconds: float) -> None:
    source = random.Random(name)
    current: dict[str, str] = {}
    recalls = refused = 0
    with AgentMemory(address, embedder="hashing:64") as mem:
        until = monotonic() + seconds
        for i in range(10**9):
            if monotonic() > until:
                break
            choice = source.random()
            try:
                if choice < 0.4:
                    say(f"add {mem.add(f'{name} note {i} of the order service', tags=[name]).id}")
                elif choice < 0.7:
                    key = f"{name}.{source.randrange(3)}"
                    made = mem.add(f"the value of {key} is {i}", key=key).id
                    say(f"end {current[key]} {made}" if key in current else f"add {made}")
                    current[key] = made
                else:
                    mem.recall(f"{name} note {source.randrange(i + 1)}", k=3, promote=i % 7 == 0)
                    recalls += 1
            except StoreError as error:
                refused += 1
                say(f"refused {type(error).__name__} {str(error)[:150]!r}")
                current.clear()  # the refused call may have been the one that ended something
    say(f"done {recalls} {refused}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
