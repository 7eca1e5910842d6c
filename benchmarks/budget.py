"""Time whole recalls, query embedding included, in a process of its own: `python -m benchmarks.budget STORE KIND`.

KIND: "local" asks through the local encoder (384 dimensions), "supplied" through vectors that cost nothing (1536).
Prints the samples as JSON. A process of its own, because the kernel is chosen once in a process's life.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .common import Corpus, LocalQueries, Samples, Supplied

QUERIES = 200
"""Clean samples wanted; a query is asked once, so that no cache answers it."""
MOST = 400
ENOUGH = 100
"""With fewer clean samples than that the wall clock says more about the machine than about the recall."""


def embedder_of(kind: str) -> Any:
    if kind == "supplied":
        return Supplied(1536)
    from twofold.embed import open_embedder

    return LocalQueries(open_embedder("minilm"))


def recalls(mem: Any, samples: Samples, seed: int) -> Samples:
    """Ask new questions until QUERIES samples are clean."""
    warm, *questions = Corpus().questions(MOST + 1, seed)
    mem.recall(warm)
    asked = iter(questions)
    return samples.until(QUERIES, MOST, lambda: mem.recall(next(asked)))


def main(folder: str, kind: str) -> None:
    from twofold import AgentMemory
    from twofold.core import kernel

    with AgentMemory(Path(folder), embedder=embedder_of(kind)) as mem:
        samples = recalls(mem, Samples(), seed=3)
    print(
        json.dumps(
            {"kernel": kernel(), "all": samples.all, "undisturbed": samples.undisturbed, "cpu": samples.cpu}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
