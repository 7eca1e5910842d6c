"""From text to lexical terms, fuzzy tag matches and encoder windows: pure functions of their arguments.

Terms are stored with each memory and never recomputed, so any change of the rules below, of `_words` or of
the libraries they rest on shows in `RULES`.
"""

from __future__ import annotations

import re
import string
import threading
import unicodedata
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import Stemmer

from twofold._words import (
    HAN,
    HANGUL,
    INVISIBLE,
    IRREGULAR,
    KANA,
    MARKS,
    REQUEST_WORDS,
    STOP_HAN,
    STOP_WORDS,
    UNSPACED,
)
from twofold.errors import InvalidInput

__all__ = [
    "MAX_TERM",
    "RULES",
    "TAG_WEIGHT",
    "TagMatcher",
    "fuzzy_tag_match",
    "lexemes",
    "normalize",
    "terms",
    "validate_text",
    "windows",
]

_VERSION: Final = 1
RULES: Final = f"text/{_VERSION} unicode/{unicodedata.unidata_version} snowball/{Stemmer.version()}"
MAX_TERM: Final = 96  # characters of a term; a longer one (a URL, a key, base64) is cut to its first ones
TAG_WEIGHT: Final = 2.0  # what one occurrence in a tag counts, in occurrences in the content


def normalize(text: str) -> str:
    """Return `text` in NFKC with case folded; idempotent, any length."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def validate_text(text: object, field: str = "content") -> str:
    """Return `text` when it can be stored and searched.

    Raises:
        InvalidInput: not a str, nothing but white space and invisible characters, a NUL or a lone surrogate.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{field} must be str, not {type(text).__name__}")
    if _BLANK.match(text):
        raise InvalidInput(f"{field} is empty or blank: {text[:40]!r}")
    if (nul := text.find("\0")) >= 0:
        raise InvalidInput(f"{field} has a NUL character at position {nul}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = text[error.start]
        raise InvalidInput(
            f"{field} has a lone surrogate {bad!a} at position {error.start}; decode the source as UTF-8"
        ) from None
    return text


def terms(text: str, *, query: bool = False) -> list[str]:
    """Return the lexical terms of `text` in order of appearance, duplicates kept.

    Words are folded (case, accents) and stemmed; stop words go. Identifiers, paths, hosts, versions, dates
    and the like give themselves and their parts. CJK gives single characters and overlapping pairs. A query
    also loses words such as "please". A text of stop words alone gives all its words.
    """
    prepared = _prepare(text)
    found = _scan(prepared, keep_stops=False)
    if query and not _REQUESTS.isdisjoint(found):
        found = [term for term in found if term not in _REQUESTS] or found
    return found or _scan(prepared, keep_stops=True)


def lexemes(text: str, tags: Iterable[str] = (), *, tag_weight: float = TAG_WEIGHT) -> dict[str, float]:
    """Return term -> weighted count over the content and the tags, in order of first appearance."""
    counts: dict[str, float] = {}
    for term in terms(text):
        counts[term] = counts.get(term, 0.0) + 1.0
    for tag in tags:
        for term in terms(tag):
            counts[term] = counts.get(term, 0.0) + tag_weight
    return counts


_BLANK: Final = re.compile(rf"[\s{INVISIBLE}]*+\Z")

_LETTER: Final = rf"[^\W_{HAN}{KANA}{HANGUL}{UNSPACED}]"
_WORD: Final = rf"{_LETTER}++(?:[{MARKS}]++{_LETTER}*+)*+"
# What may join two words into one chunk. Possessive throughout: scanning any text is linear in its length.
_JOINT: Final = r"(?:[-.@'&]|_++|://|:\\|::?|//?|/\.|\\\\?|(?<=\d),(?=\d\d\d(?!\d)))"
_CHUNK: Final = (
    rf"(?:(?<![\w/.])(?:~?/\.?|\.))?{_WORD}(?:{_JOINT}{_WORD})*+"
    rf"(?:(?<=(?<![A-Za-z0-9_])[CFcf])(?:\+\+|\#(?!\w)))?+"
)
_DESIGNATOR: Final = rf"[A-Za-z0-9]{{1,3}}(?![{MARKS}+#]|{_JOINT}?{_LETTER})"  # the A of 服务器A
_TOKEN: Final = re.compile(
    rf"(?<=[^\W_])\ A(?!{_JOINT}?{_LETTER})|{_CHUNK}|[{HAN}{KANA}]++(?:{_DESIGNATOR})?+"
    rf"|[{HANGUL}]++|[{UNSPACED}][{UNSPACED}{MARKS}]*+"
)


def _scan(text: str, *, keep_stops: bool) -> list[str]:
    found: list[str] = []
    for token in _TOKEN.findall(text):
        if len(token) <= MAX_TERM:
            found += _token_terms(token, keep_stops)
        else:
            found += _token_terms.__wrapped__(token, keep_stops)
    return found


@lru_cache(maxsize=1 << 16)
def _token_terms(token: str, keep_stops: bool) -> tuple[str, ...]:
    """Terms of one token by its script. A token is a chunk of words or a run of one script without spaces."""
    if token.isascii():
        # "server A": a name, not an article
        return ("a",) if token == " A" else _chunk_terms(token, keep_stops)
    if _IS_CJK(token):
        return _cjk_terms(token, keep_stops)
    if _IS_HANGUL(token):
        return (token[:MAX_TERM], *(_pairs(token) if len(token) > 2 else ()))
    if _IS_UNSPACED(token):
        return tuple(_pairs(token)) or (token,)
    return _chunk_terms(token, keep_stops)


_IS_HAN: Final = re.compile(f"[{HAN}]").match
_IS_CJK: Final = re.compile(f"[{HAN}{KANA}]").match
_IS_HANGUL: Final = re.compile(f"[{HANGUL}]").match
_IS_UNSPACED: Final = re.compile(f"[{UNSPACED}]").match


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]


def _cjk_terms(run: str, keep_stops: bool) -> tuple[str, ...]:
    """Single Han characters, overlapping pairs of Han and kana; with a designator (服务器A) 器a and a."""
    found = []
    stops: frozenset[str] = frozenset() if keep_stops else STOP_HAN
    plain = run.rstrip(_DESIGNATORS)
    for i, char in enumerate(plain):
        stopped = char in stops
        if not stopped and _IS_HAN(char):
            found.append(char)
        pair = plain[i : i + 2]
        if len(pair) == 2 and not (stopped and pair[1] in stops):
            found.append(pair)
    if designator := run[len(plain) :]:
        if plain[-1] not in STOP_HAN:
            found.append(plain[-1] + designator.lower())
        found += _chunk_terms(designator, keep_stops)
    elif not found and keep_stops:
        found = [run]
    return tuple(found)


_DESIGNATORS: Final = string.ascii_letters + string.digits
_UPPER_NAMES: Final = frozenset(("IT", "US", "WHO"))  # stop words that are names when written in capitals
_SCHEMES: Final = frozenset(("http", "https", "www", "~"))
_CONTRACTION: Final = re.compile(r"'(?:s|m|d|re|ve|ll)\Z")
_CAMEL: Final = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+")
_RUNS: Final = re.compile(r"\d+|[^\W\d_]+")
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)\Z")
_HEX: Final = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\Z")
_DATE: Final = re.compile(
    r"(\d{4})[-/.](0?[1-9]|1[0-2])[-/.](0?[1-9]|[12]\d|3[01])(?:t(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?z?)?\Z",
    re.ASCII,
)
_TIME: Final = re.compile(r"(\d\d?:\d\d)(?::\d\d(?:\.\d+)?)?(?:[ap]m|z)?\Z", re.ASCII)
_VERSION_NUMBER: Final = re.compile(r"(v?)(\d++(?:\.\d++)++)(?:[-.]?([a-z]+[a-z\d.]*))?\Z", re.ASCII)
_MONTHS: Final = (
    "januari februari march april may june juli august septemb octob novemb decemb".split()
)  # stems
_DIGIT_DOT: Final = re.compile(r"\d\.\d")
# From the loosest to the tightest.
_JOINTS: Final = tuple(map(re.compile, (r"://", r"[/\\]+\.?", "@", ":+", r"\.", r"[-_'&]+")))
_JOINTS_NUMBER: Final = (*_JOINTS[:4], _JOINTS[5], _JOINTS[4])


def _chunk_terms(chunk: str, keep_stops: bool) -> tuple[str, ...]:
    """Terms of a word, or of several joined without space: the whole first, then its parts."""
    folded = _fold(chunk)
    if "'" in chunk and (ending := _CONTRACTION.search(folded)):
        cut = len(ending[0])
        chunk, folded = chunk[:-cut], folded[:-cut]
    if folded in STOP_WORDS and not keep_stops:
        return (folded,) if chunk in _UPPER_NAMES else ()
    if folded.isalpha():
        return _word_terms(chunk, folded)
    if "," in chunk:
        chunk, folded = chunk.replace(",", ""), folded.replace(",", "")
    found: dict[str, None] = {}
    _explode(chunk, folded, found)
    return tuple(found)


def _word_terms(word: str, folded: str) -> tuple[str, ...]:
    """The stem of a word of letters alone; of camelCase the whole and the stems of its parts."""
    if word[1:].islower() or len(word) < 4 or word.isupper() or not word.isascii():
        return (_stem(folded),)
    parts = _CAMEL.findall(word)
    if len(parts) < 2:
        return (_stem(folded),)
    return (folded[:MAX_TERM], *(_stem(part.lower()) for part in parts if len(part) > 1))


def _explode(piece: str, folded: str, found: dict[str, None]) -> None:
    """Add the terms of a piece with joints or digits. Its parts lack the joint it was split at, so this ends.

    Parts that are stop words stay: in `get_user` they are part of a name. Single letters go.
    """
    if folded.isalpha():
        if len(folded) > 1:
            found.update(dict.fromkeys(_word_terms(piece, folded)))
        return
    found[folded[:MAX_TERM]] = None
    if folded.isalnum():
        if not _HEX.match(folded):
            _add_runs(piece, folded, found)
    elif match := _DATE.match(folded):
        _add_date(match, found)
    elif match := _TIME.match(folded):
        found[match[1]] = None
    elif match := _VERSION_NUMBER.match(folded):
        _add_version(match, found)
    else:
        for part in _split(piece):
            if part not in _SCHEMES:
                _explode(part, _fold(part), found)


def _split(piece: str) -> list[str]:
    # "node-18.2": beside a number with dots the hyphen is the looser joint
    joints = _JOINTS_NUMBER if _DIGIT_DOT.search(piece) else _JOINTS
    for joint in joints:
        parts = joint.split(piece)
        if len(parts) > 1:
            return [part for part in parts if part]
    return []


def _add_runs(piece: str, folded: str, found: dict[str, None]) -> None:
    """`sha256` -> sha, 256; `5th` -> 5. More than three runs look like a code, whose parts say nothing."""
    if ordinal := _ORDINAL.match(folded):
        found[ordinal[1]] = None
        return
    runs = _RUNS.findall(piece)
    if 1 < len(runs) <= 3:
        for run in runs:
            if run.isdigit():
                found[run[:MAX_TERM]] = None
            elif len(run) > 1:
                found.update(dict.fromkeys(_word_terms(run, _fold(run))))


def _add_date(match: re.Match[str], found: dict[str, None]) -> None:
    """`2026-03-12T10:30:00Z` -> 2026-03-12, 2026-03, 2026, the month by name, 12, 10:30."""
    year, month, day, minute = match[1], int(match[2]), int(match[3]), match[4]
    for term in (f"{year}-{month:02}-{day:02}", f"{year}-{month:02}", year, _MONTHS[month - 1], str(day)):
        found[term] = None
    if minute:
        found[minute] = None


def _add_version(match: re.Match[str], found: dict[str, None]) -> None:
    """`v2.0.6-rc1` -> v2, 2.0.6, 2.0, rc1; of `192.168.1.100` also its networks 192.168.1 and 192.168."""
    v, number, suffix = match[1], match[2], match[3]
    parts = number.split(".")
    if v:
        found[v + parts[0]] = None
    found[number[:MAX_TERM]] = None
    for length in range(min(len(parts) - 1, 4), 1, -1):
        found[".".join(parts[:length])[:MAX_TERM]] = None
    if suffix:
        found[suffix[:MAX_TERM]] = None


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    word = word[:MAX_TERM]
    if not word.isascii():
        return _bare_arabic(word) if _ARABIC.match(word) else word
    stem: str = _stemmer.english.stemWord(IRREGULAR.get(word, word))
    return stem


def _stems(folded: list[str]) -> list[str]:
    """The stem of each folded word, without keeping any: runs of words seldom come again."""
    if all(map(str.isascii, folded)):
        stems: list[str] = _stemmer.english.stemWords(
            [IRREGULAR.get(w, w) for w in (w[:MAX_TERM] for w in folded)]
        )
        return stems
    return [_stem(_fold(word)) for word in folded]


class _Stemmer(threading.local):
    """One for each thread: a stemmer keeps a buffer of its own, and a lock could be held across a fork."""

    def __init__(self) -> None:
        self.english = Stemmer.Stemmer("english", 0)  # no cache: ours is `_token_terms`


_stemmer = _Stemmer()
_ARABIC: Final = re.compile("[\u0620-\u064a\u0671-\u06d3]")


def _bare_arabic(word: str) -> str:
    """Drop the article, alone or after "and", "with", "like", "so", where three letters or more remain."""
    for article in ("وال", "بال", "كال", "فال", "ال"):
        if word.startswith(article) and len(word) - len(article) >= 3:
            return word[len(article) :]
    return word


def _prepare(text: str) -> str:
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_CLEAN)


def _fold(text: str) -> str:
    """Case and accents folded, Arabic letters and points unified: what makes two spellings one term."""
    folded = text.casefold()
    return folded if folded.isascii() else folded.translate(_FOLD)


def _clean_table() -> dict[int, str | None]:
    table: dict[int, str | None] = dict.fromkeys(map(ord, INVISIBLE))
    table.update(dict.fromkeys(map(ord, "\u2018\u2019\u02bc\uff07"), "'"))
    table.update(dict.fromkeys(map(ord, "\u2010\u2011"), "-"))
    for zero in (0x660, 0x6F0, 0x966, 0x9E6, 0xE50):  # Arabic, Persian, Devanagari, Bengali, Thai digits
        table.update({zero + digit: str(digit) for digit in range(10)})
    return table


def _fold_table() -> dict[int, str | None]:
    """Base letters of accented Latin and Greek ones; other scripts' marks are sounds of their own."""
    table: dict[int, str | None] = {}
    for code in (*range(0xC0, 0x250), *range(0x370, 0x400), *range(0x1E00, 0x2000)):
        split = unicodedata.normalize("NFD", chr(code))
        if len(split) > 1 and all(map(unicodedata.combining, split[1:])):
            table[code] = split[0]
    table.update(
        zip(map(ord, "\u00f8\u0142\u0111\u00f0\u0131\u0451\u03c2"), "oldid\u0435\u03c3", strict=True)
    )
    table.update({ord("\u00e6"): "ae", ord("\u0153"): "oe", ord("\u00fe"): "th"})
    # combining accents, Hebrew points, Arabic vowel signs
    table.update(dict.fromkeys((*range(0x300, 0x370), *range(0x591, 0x5C8), *range(0x64B, 0x660), 0x670)))
    table.update(zip(map(ord, "أإآٱىةکی"), "ااااي\u0647كي", strict=True))
    return table


_CLEAN: Final = _clean_table()
_FOLD: Final = _fold_table()
_REQUESTS: Final = frozenset(map(_stem, sorted(REQUEST_WORDS)))


class TagMatcher:
    """Finds the tags that a query names, also misspelt, among thousands.

    A tag or a run of query words is compared without its separators and case. Scores: 1.0 the same,
    0.9 the same English stem, 0.8 one edit away (insertion, deletion, substitution or swap of neighbours,
    both of five letters or more), 0.5-0.8 the query's word begins the tag (three letters or more; the
    more of it, the better). The result does not depend on the order of `add`.
    """

    _MAX_UNITS = 8  # words (or CJK characters) of a query joined to meet a tag
    _MAX_FUZZY = 32  # letters beyond which no misspelling is looked for

    def __init__(self, tags: Iterable[str] = ()) -> None:
        self._tags: dict[str, list[str]] = {}  # key -> tags with that key, sorted
        self._stems: dict[str, list[str]] = {}  # stem -> keys
        self._near: dict[str, list[str]] = {}  # key with one letter deleted -> keys
        self._keys: list[str] = []  # sorted, for prefixes
        self._longest = 0
        # First and last two letters -> bit set of the lengths of the keys that have them.
        self._heads: dict[str, int] = {}
        self._tails: dict[str, int] = {}
        for tag in tags:
            self.add(tag)

    def __len__(self) -> int:
        return sum(map(len, self._tags.values()))

    def add(self, tag: str) -> None:
        """Make `tag` known; again is no change."""
        key = _tag_key(tag)
        if key in self._tags:
            if tag not in self._tags[key]:
                insort(self._tags[key], tag)
            return
        self._tags[key] = [tag]
        self._longest = max(self._longest, len(key))
        insort(self._keys, key)
        self._heads[key[:2]] = self._heads.get(key[:2], 0) | 1 << len(key)
        self._tails[key[-2:]] = self._tails.get(key[-2:], 0) | 1 << len(key)
        self._stems.setdefault(_stem(_fold(key)), []).append(key)
        if 5 <= len(key) <= self._MAX_FUZZY:
            for shorter in _deletions(key):
                self._near.setdefault(shorter, []).append(key)

    def match(self, query: str) -> list[tuple[str, float]]:
        """Return (tag, score) for the tags that `query` names, best first, equal scores by tag."""
        scores: dict[str, float] = {}
        surfaces = _UNIT.findall(_prepare(query))
        keys = [_tag_key(surface) for surface in surfaces]
        few: list[str] = []  # runs of at most three words: those may be misspelt, or begin a tag
        for i, surface in enumerate(surfaces):
            joined = ""
            for length, key in enumerate(keys[i : i + self._MAX_UNITS], start=1):
                joined += key
                if length > 3 and len(joined) > self._longest:
                    break
                if length == 1 and key in STOP_WORDS and surface not in _UPPER_NAMES:
                    continue
                if joined in self._tags:
                    scores[joined] = 1.0
                if length <= 3 and len(joined) >= 3:
                    few.append(joined)
        for word, stem in zip(few, _stems(few), strict=True):
            head, size = self._heads.get(word[:2], 0), len(word)
            # One edit leaves the first two letters as they are or the last two, and the length within one.
            near = size >= 5 and (head | self._tails.get(word[-2:], 0)) >> (size - 1) & 0b111
            if near or head >> size or stem in self._stems:
                self._score(word, stem, scores)
        ranked = sorted((-score, tag) for key, score in scores.items() for tag in self._tags[key])
        return [(tag, -negated) for negated, tag in ranked]

    def _score(self, word: str, stem: str, scores: dict[str, float]) -> None:
        """Raise the scores of the keys that a run of the query's words begins, shares its stem with or misspells."""
        # Whether a tag is named must not depend on the other tags: a replay sees fewer of them.
        begun: list[tuple[str, float]] = []
        if self._heads.get(word[:2], 0) >> len(word):
            first = bisect_left(self._keys, word)
            last = bisect_left(self._keys, word + "\U0010ffff", first)
            begun = [(key, 0.5 + 0.3 * len(word) / len(key)) for key in self._keys[first:last]]
        stems = [(key, 0.9) for key in self._stems.get(stem, ())]
        near = [(key, 0.8) for key in self._one_edit_away(word)]
        for key, score in begun + stems + near:
            if score > scores.get(key, 0.0):
                scores[key] = score

    def _one_edit_away(self, word: str) -> list[str]:
        if not 5 <= len(word) <= self._MAX_FUZZY:
            return []
        near = list(self._near.get(word, ()))
        # Nearly every word stops here: two lookups a letter, and nothing is built.
        for shorter in [d for d in _deletions(word) if d in self._near or d in self._tags]:
            if len(shorter) >= 5 and shorter in self._tags:
                near.append(shorter)
            near += [key for key in self._near.get(shorter, ()) if _is_one_edit(word, key)]
        return near


def fuzzy_tag_match(query: str, tags: Iterable[str]) -> dict[str, float]:
    """Return tag -> score for the tags that `query` names; `TagMatcher` is the same for many queries."""
    return dict(TagMatcher(tags).match(query))


_UNIT: Final = re.compile(rf"{_WORD}(?:\+\+|\#(?!\w))?|[{HAN}{KANA}{HANGUL}{UNSPACED}]")
_SEPARATORS: Final = re.compile(r"[\W_]+")


def _tag_key(tag: str) -> str:
    if tag.isascii() and tag.isalnum():
        return tag.lower()
    folded = _fold(_prepare(tag)).strip()
    ending = next((mark for mark in ("++", "#") if folded.endswith(mark)), "")  # C++ and C# are not C
    return _SEPARATORS.sub("", folded) + ending or folded


def _deletions(word: str) -> set[str]:
    return {word[:i] + word[i + 1 :] for i in range(len(word))}


def _is_one_edit(a: str, b: str) -> bool:
    """Whether two words of one length differ in one letter or in two swapped neighbours."""
    if len(a) != len(b):
        return False
    differing = [i for i in range(len(a)) if a[i] != b[i]]
    if len(differing) == 2:
        i, j = differing
        return j == i + 1 and a[i] == b[j] and a[j] == b[i]
    return len(differing) == 1


_SENTENCE_END: Final = re.compile(r"[.!?][)\"'\]]*\s|[。！？!?…][」』”）]*|\n")


def windows(
    text: str, spans: Sequence[tuple[int, int]], max_tokens: int, overlap: int = 32
) -> list[tuple[int, int]]:
    """Cut `text` into overlapping character windows of at most `max_tokens` tokens each.

    `spans` are the encoder's tokens as (start, end) character positions in order, special tokens left out.
    A window ends at the last sentence end in its second half, else at white space, else at its last token;
    the next begins at a sentence or word start within the `overlap` tokens before that. Every character of
    `text` lies in a window, and a text that fits is one window.

    Raises:
        InvalidInput: max_tokens below 1 or a negative overlap.
    """
    if max_tokens < 1 or overlap < 0:
        raise InvalidInput(f"max_tokens must be >= 1 and overlap >= 0, not {max_tokens} and {overlap}")
    if len(spans) <= max_tokens:
        return [(0, len(text))]
    starts = [start for start, _ in spans]
    overlap = min(overlap, max_tokens // 2)
    sentences = {bisect_left(starts, match.end()) for match in _SENTENCE_END.finditer(text)}
    words = {
        i for i, start in enumerate(starts) if start and (text[start - 1].isspace() or text[start].isspace())
    }
    found: list[tuple[int, int]] = []
    first = end = 0
    while True:
        begin = starts[first] if first else 0
        half = max(first + (max_tokens + 1) // 2, end + 1)  # beyond the last window in any case
        end = first + max_tokens
        if end < len(starts):
            end = _last_of(sentences, half, end) or _last_of(words, half, end) or end
        while end < len(starts) and starts[end] <= begin:  # tokens of one character stay together
            end += 1
        if end >= len(starts):
            return [*found, (begin, len(text))]
        found.append((begin, starts[end]))
        earliest = max(end - overlap, first + 1)
        first = _first_of(sentences, earliest, end) or _first_of(words, earliest, end) or earliest


def _last_of(marks: set[int], low: int, high: int) -> int | None:
    return next((i for i in range(high, low - 1, -1) if i in marks), None)


def _first_of(marks: set[int], low: int, high: int) -> int | None:
    return next((i for i in range(low, high + 1) if i in marks), None)
