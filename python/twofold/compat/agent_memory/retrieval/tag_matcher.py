"""From a question to the tags it may mean."""

from __future__ import annotations

import re
from typing import Final

# Words that name nothing: articles and pronouns, auxiliary verbs, prepositions, question words, and the
# verbs that questions to a memory are made of.
STOP_WORDS: Final = frozenset(
    """
    a an the i me my you your he him his she her it its we us our they them their this that these those
    am is are was were be been being do does did have has had can could may might shall should will would
    about after against among around as at before between by during for from in into like of on out over
    through to under up down with without
    and but if or so than then no not too very just only own same such all both each every few more most
    other some
    how what when where which who whom why
    come find get give go know look make say see tell think use user want
    current currently prefer preferred prefers
    """.split()
)
_WORD: Final = re.compile(r"[a-z0-9_]+")
_OTHER_WORD: Final = re.compile(r"[^\W_a-zA-Z0-9]+")


def extract_tags(query: str) -> list[str]:
    """Lower-cased words of two characters or more, stop words left out, each once, in order.

    Words of other scripts than Latin letters without accents are kept whole as well, so that a tag in
    Chinese or with an accent is found.
    """
    query = query.lower()
    words = [w for w in _WORD.findall(query) if len(w) >= 2 and w not in STOP_WORDS]
    if not query.isascii():
        words += [w for w in re.findall(r"\w+", query) if _OTHER_WORD.search(w)]
    return list(dict.fromkeys(words))
