"""Nothing of a long text is cut off: it is stored in windows, and a hit names the one that matched."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory

TOPICS = ["harbour cranes", "tax filings", "choir practice", "bee keeping", "road repairs", "old maps"]
LAST = "The spare key to the observatory is taped under the third bench by the pond."


def essay(words: int) -> str:
    """Sentences about ordinary things, then the one that matters."""
    sentences = []
    n = 0
    while n < words - len(LAST.split()):
        topic = TOPICS[len(sentences) % len(TOPICS)]
        sentence = f"In week {len(sentences)} the council discussed {topic} and postponed the vote again."
        sentences.append(sentence)
        n += len(sentence.split())
    return " ".join([*sentences, LAST])


@pytest.mark.model
def test_sentence_at_the_end_of_five_thousand_words_is_found(tmp_path: Path) -> None:
    text = essay(5000)
    assert len(text.split()) >= 5000
    with AgentMemory(tmp_path) as mem:
        memory = mem.add(text)
        mem.add_many(
            f"{topic}: note {i} says the {thing} needs attention"
            for i, (topic, thing) in enumerate(itertools.product(TOPICS, ["pond", "fence", "roof", "lamp"]))
        )
        for question in (LAST, "What is taped under the third bench by the pond?"):
            found = mem.recall(question, k=5)
            hit = next(h for h in found if h.memory.id == memory.id)
            start, stop = hit.span  # type: ignore[misc]
            assert LAST in text[start:stop]
            assert stop == len(text)
            assert stop - start < 2000
            shown = mem.recall(question, k=5).context()
            assert LAST in shown
            assert len(shown) < 4000
        assert mem.stats()["vectors"] > 40


def test_windows_cover_every_character(clock: Any) -> None:
    text = essay(3000)
    with AgentMemory(":memory:", embedder="hashing:64", clock=clock) as mem:
        memory = mem.add(text)
        block = mem._vault.store.vectors_of(mem.tenant, 1, [memory.ordinal])
        covered = 0
        for start, stop in zip(block.starts.tolist(), block.stops.tolist(), strict=True):
            assert start <= covered
            covered = max(covered, stop)
        assert covered == len(text)
