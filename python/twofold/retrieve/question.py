"""What a question says about who said the answer and when it was."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from twofold import text
from twofold.clock import from_us, to_us
from twofold.index.tenant import NO_EVENT, View
from twofold.retrieve import lexical
from twofold.retrieve.candidates import Mask, Ordinals
from twofold.retrieve.profile import Profile
from twofold.timewords import BEGINNING, END, time_expressions

RULES: Final = "question/2"  # raise it when a rule below changes what a question means

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


def times_meant(
    view: View, mask: Mask, scope: Mask, question: str, now: int, profile: Profile
) -> list[tuple[int, int]]:
    """The times a question names, by the calendar or by an event; [start, end) in microseconds.

    An event ("before the move") is dated by the best memory in `mask` that has all of its words and an event date.
    """
    times = times_named(question, now)
    if times:
        return times
    event = event_named(question)
    if event is None:
        return []
    at = _when(view, mask, scope, event.words, profile)
    if at is None:
        return []
    return [(to_us(BEGINNING), at) if event.before else (at, to_us(END))]


def times_named(question: str, now: int) -> list[tuple[int, int]]:
    """The times a question names by the calendar, relative to `now`: [start, end) in microseconds."""
    return [(to_us(span.start), to_us(span.end)) for span in time_expressions(question, from_us(now))]


class Event(NamedTuple):
    """What a question dates itself by, and whether it asks for the time before it."""

    words: str
    before: bool


_BEFORE: Final = frozenset("before until till prior 之前 以前".split())
_EVENT: Final = re.compile(
    r"\b((?i:before|until|till|prior\ to|after|since))\s+(?:the|my|our|your|his|her|its|their|[A-Z][\w-]*['’]s)\s+"
    r"([\w'’-]+(?:\s+(?!did\b|do\b|does\b|was\b|were\b|is\b|are\b|had\b|has\b|have\b|what\b|who\b|when\b|where\b"
    r"|which\b|how\b|why\b)[\w'’-]+){0,3})",
)
_HAN_EVENT: Final = re.compile(r"[我你您他她它们在到从了的]*([\u4e00-\u9fff]{2,6}?)(之前|以前|之后|以后)")


def event_named(question: str) -> Event | None:
    """The event after "before the", "since my", or before 之前 and 之后; None when there is none."""
    match = _EVENT.search(question)
    if match:
        return Event(match[2], match[1].split()[0].lower() in _BEFORE)
    match = _HAN_EVENT.search(question)
    return None if match is None else Event(match[1], match[2] in _BEFORE)


def _when(view: View, mask: Mask, scope: Mask, words: str, profile: Profile) -> int | None:
    """The event date of the best row that has every one of the words."""
    terms = text.terms(words)
    found = lexical.search(view, mask, scope, lexical.term_ids(view, terms), profile).ordinals
    for term in terms:
        if len(found):
            ids = lexical.term_ids(view, [term])
            found = found[lexical.scores(view, scope, ids, found, profile) > 0.0]
    dated = view.index.event_at.view(view.rows)[found]
    dated = dated[dated != NO_EVENT]
    return int(dated[0]) if len(terms) and len(dated) else None


def in_times(view: View, rows: Ordinals, times: list[tuple[int, int]]) -> Mask:
    """Which rows happened in one of the times; a row without an event date did not. bool (len(rows),)."""
    at = view.index.event_at.view(view.rows)[rows]
    inside = np.zeros(len(rows), np.bool_)
    for start, end in times:
        inside |= (at >= start) & (at < end)
    inside &= at != NO_EVENT
    return inside
