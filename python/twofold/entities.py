"""Which things a text names, by fixed rules: no model, no dictionary of the world, no order of a hash.

A store learns the rest from itself: names it has seen are looked up in queries (`query_entities`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from twofold._words import (
    FILE_ENDINGS,
    HAN,
    HANGUL,
    HOST_ENDINGS,
    KANA,
    NAME_LINKS,
    NOT_NAMES,
    NUMBERED_HAN,
    NUMBERED_NOUNS,
    OPENERS,
    STOP_WORDS,
    UNSPACED,
)

__all__ = [
    "RULES",
    "Entity",
    "Gazetteer",
    "NameSet",
    "entities",
    "entity_key",
    "entity_units",
    "query_entities",
]

RULES: Final = "entities/1"  # part of the algorithm fingerprint: raise it with every change of the rules
MAX_NAME: Final = 80  # characters; a longer find is no name


class Entity(NamedTuple):
    """A named thing: as it is written in the text, and what kind of rule found it.

    Kinds: name, speaker, known, title, code, file, path, host, url, ip, email, version, ticket, hashtag,
    mention.
    """

    name: str
    kind: str


def entity_key(name: str) -> str:
    """Return what makes two spellings one entity: NFKC, case folded, white space collapsed."""
    if name.isascii():
        return " ".join(name.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def entity_units(name: str) -> int:
    """Return how many units `name` has: words, or single characters of scripts without spaces."""
    return len(_UNIT.findall(entity_key(name)))


class Gazetteer(Protocol):
    """Names to look for: whether a key is one of them, and the most units any of them has."""

    @property
    def max_words(self) -> int:
        """Return the largest `entity_units` of its keys."""

    def among(self, keys: Sequence[str], /) -> Collection[str]:
        """Return those of `keys` that may be names: cheap, all others are none."""

    def __contains__(self, key: object, /) -> bool: ...


class NameSet:
    """A gazetteer in memory that only grows."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._keys: set[str] = set()
        self.max_words = 0
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Make `name` known; again is no change."""
        key = entity_key(name)
        if key and key not in self._keys:
            self._keys.add(key)
            self.max_words = max(self.max_words, entity_units(key))

    def among(self, keys: Sequence[str]) -> set[str]:
        """Return those of `keys` that are names."""
        return self._keys.intersection(keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)


def entities(text: str, *, known: Collection[str] = (), speaker: str | None = None) -> list[Entity]:
    """Return what `text` names: the speaker, then in order of appearance, each entity once.

    `known` are names given by the caller; they are found wherever they stand, which is the only way to a
    Chinese or Japanese name without a mark around it.
    """
    text = _prepare(text)
    structured = list(_structured(text))
    found = [(start, entity) for (start, _), entity in structured]
    found += _capitalised(text, [span for span, _ in structured])
    if known:
        spelling = {entity_key(name): name for name in known}
        found += [
            (start, Entity(spelling[key], "known")) for start, key in _look_up(text, NameSet(list(spelling)))
        ]
    found.sort(key=lambda item: item[0])
    unique: dict[str, Entity] = {}
    if speaker and (key := entity_key(speaker)):
        unique[key] = Entity(speaker, "speaker")
    for _, entity in found:
        unique.setdefault(entity_key(entity.name), entity)
    return list(unique.values())


def query_entities(query: str, gazetteer: Gazetteer) -> list[str]:
    """Return the keys of what `query` names, in order of appearance: by rule, or because the store knows it.

    Of overlapping known names the longest counts. Case does not matter for known names, but a stop word is
    one only when it is capitalised ("Will", "US").
    """
    text = _prepare(query)
    keys = dict.fromkeys(key for _, key in _look_up(text, gazetteer))
    keys.update(dict.fromkeys(entity_key(entity.name) for entity in entities(text)))
    return list(keys)


def _prepare(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


_UNSPACED_CHAR: Final = f"{HAN}{KANA}{HANGUL}{UNSPACED}"
_LETTER: Final = f"[^\\W\\d_{_UNSPACED_CHAR}]"
_UNIT: Final = re.compile(rf"[{_UNSPACED_CHAR}]|(?:(?![{_UNSPACED_CHAR}])[^\W_])++(?:\+\+|\#)?")


def _look_up(text: str, names: Gazetteer) -> Iterator[tuple[int, str]]:
    """Yield (position, key) of the longest known names from left to right, without overlaps."""
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())
    original = text if len(text) == len(folded) else folded
    spans = [match.span() for match in _UNIT.finditer(folded)]
    runs = [
        [folded[start:end] for _, end in spans[at : at + names.max_words]]
        for at, (start, _) in enumerate(spans)
    ]
    keys = [key for run in runs for key in run]
    if " ".join(folded.split()) != folded.strip():  # else every run is as it would be written
        keys += [" ".join(key.split()) for key in keys]
    known = names.among(keys)
    if not known:
        return
    at = 0
    while at < len(spans):
        start = spans[at][0]
        for last in reversed(range(len(runs[at]))):
            key = runs[at][last]
            if key not in known or key not in names:
                key = " ".join(key.split())
                if key not in known or key not in names:
                    continue
            if key in STOP_WORDS and original[start].islower():
                continue
            yield start, key
            at += last
            break
        at += 1


# A quick look whether any rule below can apply at all; most sentences of a conversation have none of it.
_MARKED: Final = re.compile(
    rf"""[@/\\_#`"“《「『\d]|\.[A-Za-z]|::|[a-z][A-Z]|[a-z]-[a-z]|[{HAN}]\ ?[A-Z]|\ [A-HJ-Z]\b"""
)

_SEGMENT: Final = "[A-Za-z0-9_.@+-]+"
_FILE: Final = rf"\.(?:{'|'.join(FILE_ENDINGS)})(?![A-Za-z0-9_]|\.[A-Za-z0-9])"
_HEX: Final = "[0-9A-Fa-f]{1,4}"
_NOUN: Final = f"(?:{'|'.join(f'[{noun[0].upper()}{noun[0]}]{noun[1:]}' for noun in NUMBERED_NOUNS)})"
_PART: Final = (
    "(?:server|service|api|db|worker|agent|client|gateway|proxy|cluster|node|prod|dev|staging|svc|job|queue"
    "|cache|app|backend|frontend|sdk|cli|bot)"
)

# (kind, pattern) in order of precedence. Repetition is possessive or bounded, and none of the second group
# begins inside a run of its own characters, so that no input takes more than linear time.
_QUOTED_RULES: Final = (
    ("code", r"`[^`\s]{2,60}`"),
    ("title", r"《[^《》\n]{1,60}》|「[^「」\n]{1,60}」|『[^『』\n]{1,60}』"),
    ("title", r"""["“][A-Z][^"“”\n]{1,58}[^"“”\s.,!?;:]["”]"""),
    ("hashtag", r"(?<![\w&#])\#(?=\d*[^\W\d])\w{2,40}"),
    ("mention", r"(?<![\w@./+-])@[A-Za-z0-9_][A-Za-z0-9_-]{1,38}"),
    ("path", rf"(?<![\w/.])(?:~|\.{{1,2}})?/{_SEGMENT}(?:/{_SEGMENT})++/?"),
    (
        "numbered",  # 服务器A
        rf"(?:{'|'.join(NUMBERED_HAN)})\ ?(?:[A-Z]{{1,3}}\d{{0,3}}|\d{{1,4}})(?![A-Za-z0-9_.%年月日时分个])",
    ),
)
_WORD_RULES: Final = (
    (
        "url",
        r"""(?:https?|s?ftps?|ssh|git|file|wss?|s3|gs|postgres(?:ql)?|mysql|redis|mongodb)://[^\s<>"'`，。；）\])]++""",
    ),
    ("email", r"[A-Za-z0-9_][A-Za-z0-9_.%+-]{0,63}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)++"),
    ("ip", r"(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9_]|\.\d)"),
    ("ip", rf"(?:(?:{_HEX}:){{4,7}}{_HEX}|(?:{_HEX}:){{1,6}}(?::{_HEX}){{1,6}})(?![A-Za-z0-9_:])"),
    ("path", r"""[A-Za-z]:\\[^\s:*?"<>|]++"""),
    ("path", rf"(?:[A-Za-z0-9_.-]++/)++[A-Za-z0-9_-]++{_FILE}"),
    ("file", rf"[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*?{_FILE}"),
    ("version", r"(?:v\d++(?:\.\d++){0,3}+|\d++(?:\.\d++){2,3}+)(?:-[a-z]+[\w.]*)?(?![A-Za-z0-9_]|\.\d)"),
    (
        "host",
        rf"(?:[A-Za-z0-9][A-Za-z0-9-]*+\.)+(?:{'|'.join(HOST_ENDINGS)})(?![A-Za-z0-9_-]|\.[A-Za-z0-9])",
    ),
    ("ticket", r"[A-Z][A-Z0-9]{1,9}(?:-\d{1,6})++(?![A-Za-z0-9_-])"),
    ("ticket", r"(?:[Ii]ssue|[Tt]icket|[Bb]ug|PR|MR|RFC|ADR)\ ?\#?\d{1,6}(?![A-Za-z0-9_])"),
    ("code", r"[A-Za-z_][A-Za-z0-9_]*+(?:::[A-Za-z_][A-Za-z0-9_]*+)++(?:\(\))?"),
    ("code", r"[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+\(\)"),
    ("code", r"[A-Za-z][A-Za-z0-9]*+(?:_+[A-Za-z0-9]+)++(?![A-Za-z0-9_])"),
    ("code", r"[a-z]+[0-9]*(?:[A-Z][a-z0-9]*)++(?![A-Za-z0-9_])"),
    ("code", rf"[a-z][a-z0-9]*+(?:-[a-z0-9]++)*?-(?:\d+|{_PART})(?![A-Za-z0-9_-])"),
    ("numbered", rf"{_NOUN}\ \#?(?:[A-HJ-Z]|\d{{1,4}})(?![A-Za-z0-9_%'’]|[.:,-]\d)"),  # server A
)
_KINDS: Final = tuple(kind for kind, _ in _QUOTED_RULES + _WORD_RULES)


def _alternatives(rules: tuple[tuple[str, str], ...], first: int) -> str:
    return "|".join(f"(?P<r{i}>{pattern})" for i, (_, pattern) in enumerate(rules, first))


_STRUCTURE: Final = re.compile(
    rf"{_alternatives(_QUOTED_RULES, 0)}"
    rf"|(?<![A-Za-z0-9_./\\-])(?:{_alternatives(_WORD_RULES, len(_QUOTED_RULES))})"
)


_COMMON: Final = OPENERS | STOP_WORDS


def _structured(text: str) -> Iterator[tuple[tuple[int, int], Entity]]:
    if _MARKED.search(text):
        for match in _STRUCTURE.finditer(text):
            kind = _KINDS[int((match.lastgroup or "r0")[1:])]
            name = _trim(match[0], kind)
            if name and len(name) <= MAX_NAME and not (kind == "title" and name.lower() in _COMMON):
                yield match.span(), Entity(name, "name" if kind == "numbered" else kind)


def _trim(name: str, kind: str) -> str:
    """The name without what only marks it, so that two ways of writing it meet in one key."""
    if kind in ("title", "code"):
        return name.strip('`《》「」『』"“” ').removesuffix("()")
    if kind == "url":
        return name.rstrip(".,;:!?")
    if kind == "path":
        return name.rstrip("./\\")
    if kind == "numbered" and not name.isascii():
        return name.replace(" ", "")
    if kind == "numbered" or (kind == "ticket" and not name[0].isdigit()):
        return _NUMBER_MARK.sub(r" \1", name)  # server #3, Issue#12
    return name


_NUMBER_MARK: Final = re.compile(r"(?:\ |\#|(?<=[a-z]))[\s\#]*(\w+)\Z")

_UPPER: Final = "".join(c for c in map(chr, (*range(0x41, 0x588), *range(0x1E00, 0x2000))) if c.isupper())
_CAPITAL: Final = rf"[{_UPPER}](?:{_LETTER}|\d|[-'’&](?={_LETTER}))*+"
_INITIAL: Final = rf"[{_UPPER}]\.(?=\ ?[{_UPPER}])"
_LINK: Final = rf"(?:{'|'.join(sorted(NAME_LINKS))})"
_SEQUENCE: Final = re.compile(
    rf"(?<![^\W{_UNSPACED_CHAR}])(?:{_INITIAL}|{_CAPITAL})"
    rf"(?:(?:\ {_LINK}){{0,2}}\ (?:{_INITIAL}|{_CAPITAL})|(?<=\.)(?:{_INITIAL}|{_CAPITAL}))*+"
)
_UPPER_CASE: Final = re.compile(f"[{_UPPER}]")
_ENDING: Final = re.compile(r"['’](?:s|m|d|re|ve|ll)\Z", re.IGNORECASE)  # Anna's, You're
_FIRST_PERSON: Final = frozenset("i i'm i'd i'll i've i’m i’d i’ll i’ve".split())
# Openers that are as often the first word of a name ("New York", "First Solar").
_NAME_OPENERS: Final = frozenset(
    "best big first free full general great high little local long low new old open second third".split()
)
_MAX_NAME_WORDS: Final = 5


def _capitalised(text: str, taken: list[tuple[int, int]]) -> Iterator[tuple[int, Entity]]:
    """Yield runs of capitalised words that stand outside of `taken` (in order) and look like a name."""
    head = text[:400]
    shouting = len(head) >= 20 and len(_UPPER_CASE.findall(head)) > len(head) / 2
    whole = text.strip(" ?!.") if len(text) <= MAX_NAME else ""
    found: list[tuple[int, str, bool]] = []
    at = 0
    for match in _SEQUENCE.finditer(text):
        start, end = match.span()
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        if at < len(taken) and taken[at][0] < end:
            continue
        opening = _opens_sentence(text, start)
        for run in _runs(match[0].split(" ")):
            name = _name(run, opening, shouting)
            if name and len(name) <= MAX_NAME:
                lone = opening and name != whole and name == _ENDING.sub("", match[0])
                found.append((start, name, lone and _is_doubtful(text, start, end)))
            opening = False
    certain = {name for _, name, doubtful in found if not doubtful}
    for start, name, doubtful in found:
        if not doubtful or name in certain:
            yield start, Entity(name, "name")


def _is_doubtful(text: str, start: int, end: int) -> bool:
    """Whether a run that opens a sentence may be capitalised for that alone, or because it labels a list item."""
    if _LABEL_END.match(text, end) and _LIST_MARK.search(text[max(0, start - 8) : start]):
        return True
    return " " not in text[start:end] and not _FOLLOWS_NAME.match(text, end)


def _opens_sentence(text: str, at: int) -> bool:
    at -= 1
    while at >= 0 and text[at] in " \"'“‘(*_[":
        at -= 1
    return at < 0 or not (text[at].isalnum() or text[at] in ",)'’%&/，、）")


# What makes a lone capitalised word at the start of a sentence a name: a verb in the third person or the past,
# another name, a comma, or a script without capitals.
_FOLLOWS_NAME: Final = re.compile(
    rf"\ (?:was|has|had|will|would|can|could|should|did|said|told|went|chose|came|got|gave|made|took|met|knew|won"
    rf"|(?!this|its|less|always|perhaps|us)[a-z]{{1,12}}(?<!s)s|[a-z]{{2,12}}ed)\b"
    rf"|\ (?:and|or|&)\ [{_UPPER}]|['’]s\b|,|\ ?[{_UNSPACED_CHAR}]"
)
_LIST_MARK: Final = re.compile(r"(?:[#*•>|-]|\d[.)])\s*[*_]*\Z|\n\s*\Z")
_LABEL_END: Final = re.compile(r"[*_]*(?::|\s*\n|\Z)|[*_]{2}")


def _runs(words: list[str]) -> Iterator[list[str]]:
    """Split at "I", which is capitalised wherever it stands."""
    run: list[str] = []
    for word in words:
        if word.lower() in _FIRST_PERSON:
            if run:
                yield run
            run = []
        else:
            run.append(word)
    if run:
        yield run


def _name(words: list[str], opening: bool, shouting: bool) -> str | None:
    """The name in a run of capitalised words, or None when it is a sentence's start, a heading or a shout."""
    if len(words) > 2 * _MAX_NAME_WORDS:
        return None
    words = [_ENDING.sub("", word) for word in words]
    lower = [word.lower() for word in words]
    while words and (
        lower[0] in STOP_WORDS
        or lower[0] in NOT_NAMES
        or lower[0] in NAME_LINKS
        or (opening and lower[0] in OPENERS and (len(words) == 1 or lower[0] not in _NAME_OPENERS))
    ):
        del words[0], lower[0]
    while words and (lower[-1] in STOP_WORDS or lower[-1] in NOT_NAMES or lower[-1] in NAME_LINKS):
        del words[-1], lower[-1]
    if not words or len(words) > _MAX_NAME_WORDS:
        return None
    if any(w in STOP_WORDS and not word.islower() for w, word in zip(lower, words, strict=True)):
        return None  # "Define Your Project": a heading
    if len(words) == 1:
        word = words[0]
        if (
            len(word) < 2
            or lower[0] in OPENERS
            or (opening and len(word) > 5 and word.endswith(("ing", "ly")))
        ):
            return None
        if word.isupper() and (shouting or len(word) > 10):
            return None
    elif shouting:
        return None
    return " ".join(words)
