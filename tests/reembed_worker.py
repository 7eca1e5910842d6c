"""A process that re-embeds slowly (reembed), or adds and recalls until it is told that the embedder is another (use).

reembed_worker.py ADDRESS reembed|use SECONDS
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from twofold import AgentMemory, errors
from twofold.embed.hashing import Hashing


class Slow(Hashing):
    """Takes its time for every text, and counts them."""

    def __init__(self, dimension: int, seconds: float = 0.0) -> None:
        super().__init__(dimension)
        self.seconds = seconds
        self.texts = 0

    def embed_documents(self, texts: Any) -> Any:
        self.texts += len(texts)
        time.sleep(self.seconds * len(texts))
        return super().embed_documents(texts)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(address: str, what: str, seconds: float) -> None:
    with AgentMemory(address, embedder="hashing:64", entities="rules") as mem:
        say("open")
        if what == "reembed":
            mem.reembed(Slow(96, seconds))
            say("done")
            return
        for i in range(10**6):
            try:
                made = mem.add(f"another process's note {i} about the heron", session_id="theirs")
                say(f"add {made.id}")
                found = mem.recall(f"note {i} heron", k=5, promote=False)
                assert len(found) == 5, len(found)
            except errors.EmbedderMismatch:
                say("mismatch")
                return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
