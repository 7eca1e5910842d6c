"""What a question says about who said the answer and when it was."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from twofold import text
from twofold.clock import from_us, to_us
from twofold.index.tenant import NO_EVENT, View
from twofold.retrieve.candidates import Mask, Ordinals
from twofold.timewords import time_expressions

RULES: Final = "question/1"  # raise it when a rule below changes what a question means

_SAID: Final = (
    "say said tell told suggest suggested recommend recommended mention mentioned give given gave explain"
)
_VERBS: Final = "|".join(
    [*_SAID.split(), *"explained write written wrote advise advised propose proposed answer answered".split()]
)
_NOUNS: Final = "recommendations?|suggestions?|advice|answers?|explanations?|proposals?"
_ASKS_ASSISTANT: Final = re.compile(
    rf"\b(?:did|have|had|has) you (?:\w+ )?(?:{_VERBS})\b"
    rf"|\byou (?:just |had |have |also )?(?:said|told|suggested|recommended|mentioned|gave|explained|wrote|advised"
    rf"|proposed|answered)\b"
    rf"|\byour (?:\w+ )?(?:{_NOUNS})\b"
    r"|你(?:之前|刚才|上次|刚刚|曾)?(?:给我)?(?:说|建议|推荐|提到|告诉|解释|回答)|你的(?:建议|推荐|回答|答案|解释)"
    r"|妳(?:之前|剛才|上次)?(?:說|建議|推薦|提到|告訴|解釋|回答)|你(?:之前|剛才|上次)?(?:說|建議|推薦|告訴|解釋)",
    re.IGNORECASE,
)


def asks_assistant(question: str) -> bool:
    """Whether the question is about what the assistant said, not about what it was told."""
    return _ASKS_ASSISTANT.search(question) is not None


def speaker_named(view: View, scope: Mask, question: str) -> int:
    """Code of the speaker whose name stands first in the question ("Ann" and "Ann's" both do); -1 for none.

    Only who speaks in a row in scope counts.
    """
    asked = text.normalize(question)
    places = (
        (find_name(asked, text.normalize(name)), code) for code, name in enumerate(view.index.speakers.names)
    )
    speakers = view.index.speaker.view(view.rows)
    for _, code in sorted(place for place in places if place[0] >= 0):
        if np.any(scope & (speakers == code)):
            return code
    return -1


def find_name(asked: str, name: str) -> int:
    """Where a name, or its first word, stands as a whole word; -1 when it does not."""
    for form in dict.fromkeys((name, name.split()[0] if name.split() else name)):
        start = asked.find(form)
        while form and start >= 0:
            before = asked[start - 1 : start]
            after = asked[start + len(form) : start + len(form) + 1]
            if not (before.isalnum() and form[0].isascii()) and not (after.isalnum() and form[-1].isascii()):
                return start
            start = asked.find(form, start + 1)
    return -1


def times_named(question: str, now: int) -> list[tuple[int, int]]:
    """The times a question names, relative to `now`: [start, end) in microseconds."""
    return [(to_us(span.start), to_us(span.end)) for span in time_expressions(question, from_us(now))]


def in_times(view: View, rows: Ordinals, times: list[tuple[int, int]]) -> Mask:
    """Which rows happened in one of the times; a row without an event date did not. bool (len(rows),)."""
    at = view.index.event_at.view(view.rows)[rows]
    inside = np.zeros(len(rows), np.bool_)
    for start, end in times:
        inside |= (at >= start) & (at < end)
    inside &= at != NO_EVENT
    return inside
