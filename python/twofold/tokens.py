"""How many tokens a text costs, by an estimate that needs no vocabulary or by a real tokenizer; cutting to fit."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["EstimateCounter", "TiktokenCounter", "TokenCounter", "TokenizersCounter", "counter", "truncate"]


class TokenCounter(Protocol):
    """What measures a budget. `counter(c.name)` gives an equal one, so a receipt stores the name alone."""

    @property
    def name(self) -> str:
        """Return what `counter` makes an equal counter from; it changes when the counts do."""

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`, 0 for the empty text."""


class EstimateCounter:
    """Estimates the tokens that byte-pair encodings of the cl100k and o200k kind would need.

    Measured against the mean of those two (they differ by 45 % on Chinese): prose, chat, code, JSON and
    Chinese within 3 % in sum and 4-9 % a text on average; URLs, hashes and base64 10 %; scripts of which the
    two disagree most (Hindi, Hebrew, Arabic) up to 30 %.

    Appending never lowers the count, and count(a) + count(b) - 1 <= count(a + b) <= count(a) + count(b) + 3.
    """

    name: Final = "estimate/1"

    def count(self, text: str) -> int:
        """Return the estimate; at least 1 for a text that is not empty."""
        if not text:
            return 0
        classes = text.encode("utf-8", "surrogatepass").translate(_CLASS, _CONTINUATION)
        total = 0
        for guard, weights in _ASCII_WEIGHTS if text.isascii() else _WEIGHTS:
            if guard in classes:
                for pattern, weight in weights:
                    total += weight * classes.count(pattern)
        return -(-total // 100) or 1


def _byte_class(byte: int) -> str:
    """One letter for what a first byte of UTF-8 begins."""
    char = chr(byte)
    if byte < 0x80:
        if char.isalpha():
            return "l" if char.islower() else "u"
        return "d" if char.isdigit() else "s" if char in " \t" else "n" if char in "\r\n" else "p"
    # accented Latin; Greek; Cyrillic; Hebrew and Arabic; India and Thailand; Vietnamese and Georgian;
    # punctuation and symbols; kana; Han; Hangul; full width; emoji
    starts = "a\xc3 g\xcd y\xd0 r\xd5 i\xe0 v\xe1 q\xe2 k\xe3 h\xe4 o\xea f\xee e\xf0".split()
    return max((start[::-1] for start in starts if start[1] <= char), default="ha")[1]


_CLASS: Final = "".join(map(_byte_class, range(256))).encode()
_CONTINUATION: Final = bytes(range(0x80, 0xC0))

# Hundredths of a token for each occurrence of a class or of classes in a row ("sl": a word begins after a
# space), grouped by a class that all of a group contain, so that most groups are skipped. Fitted by
# non-negative least squares on relative errors; never negative, so counting is monotone.
_ASCII_WEIGHTS: Final = (
    (b"l", ((b"l", 6), (b"sl", 77), (b"pl", 73))),
    (b"u", ((b"ul", 45), (b"su", 57), (b"lu", 66), (b"uu", 47))),
    (b"d", ((b"d", 43), (b"dl", 72), (b"du", 201), (b"sd", 108), (b"ld", 62), (b"ud", 154))),
    (b"p", ((b"p", 55), (b"ps", 34), (b"sp", 57))),
    (b"n", ((b"nl", 66), (b"ns", 50), (b"n" * 8, 100))),
    (b"s" * 16, ((b"s" * 16, 100),)),
)
_WEIGHTS: Final = (
    *_ASCII_WEIGHTS,
    *(
        (script, ((script, weight),))
        for script, weight in (
            (b"a", 140),
            (b"g", 75),
            (b"y", 40),
            (b"r", 60),
            (b"i", 70),
            (b"v", 50),
            (b"q", 150),
            (b"k", 80),
            (b"h", 105),
            (b"o", 90),
            (b"f", 90),
            (b"e", 200),
        )
    ),
)


class TiktokenCounter:
    """Counts with an encoding of the `tiktoken` package, which fetches its vocabulary at first use.

    Raises:
        InvalidInput: the package or the encoding cannot be had.
    """

    def __init__(self, encoding: str = "cl100k_base") -> None:
        try:
            import tiktoken
        except ImportError as error:
            raise InvalidInput("the tiktoken counter needs its package: pip install tiktoken") from error
        try:
            self._encoding: Any = tiktoken.get_encoding(encoding)
        except (ValueError, OSError) as error:
            raise InvalidInput(f"tiktoken cannot load the encoding {encoding!r}: {error}") from error
        self.name = f"tiktoken:{encoding}"

    def count(self, text: str) -> int:
        """Return the exact number of tokens; special tokens in the text count as plain text."""
        return len(self._encoding.encode_ordinary(text))


class TokenizersCounter:
    """Counts with a `tokenizer.json` of the `tokenizers` package, special tokens left out.

    Raises:
        InvalidInput: the package or the file cannot be had.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise InvalidInput("the tokenizers counter needs its package: pip install tokenizers") from error
        path = Path(path)
        if not path.is_file():
            raise InvalidInput(f"no tokenizer file at {path}; give the path of a tokenizer.json")
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = f"tokenizers:{path}"

    def count(self, text: str) -> int:
        """Return the exact number of tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


_MAKERS: Final[dict[str, Callable[[str], TokenCounter]]] = {
    "tiktoken": lambda encoding: TiktokenCounter(encoding or "cl100k_base"),
    "tokenizers": TokenizersCounter,
}


def counter(spec: str | TokenCounter | None = None) -> TokenCounter:
    """Return the counter of a name: "estimate", "tiktoken[:encoding]" or "tokenizers:path/tokenizer.json".

    None is the estimate; a counter is returned as it is.

    Raises:
        InvalidInput: an unknown name, or what it needs is missing.
    """
    if spec is None or spec in ("estimate", EstimateCounter.name):
        return EstimateCounter()
    if not isinstance(spec, str):
        return spec
    kind, _, argument = spec.partition(":")
    if kind not in _MAKERS:
        raise InvalidInput(
            f"unknown token counter {spec!r}; know {EstimateCounter.name!r}, 'tiktoken:ENCODING', 'tokenizers:PATH'"
        )
    return _MAKERS[kind](argument)


_ELLIPSIS: Final = "…"
_MAX_WORD: Final = 40  # characters; a longer word may be cut inside


def truncate(text: str, budget: int, counter: TokenCounter) -> str:
    """Return `text` when it costs at most `budget` tokens, else its longest beginning that does, with "…".

    Cuts between words (between any two characters of scripts without spaces; inside a word of more than 40)
    and never inside a character with its combining marks. Empty when not even one character fits.

    Raises:
        InvalidInput: a negative budget.
    """
    if budget < 0:
        raise InvalidInput(f"budget must be >= 0 tokens, not {budget}")

    def beginning(cut: int) -> str:
        kept = text[: _edge(text, cut)].rstrip()
        return kept + _ELLIPSIS if kept else ""

    # Doubling first: a long text is not counted whole for a small budget.
    fits, over = 0, max(64, 8 * budget)
    while over < len(text) and counter.count(beginning(over)) <= budget:
        fits, over = over, 2 * over
    if over >= len(text):
        if counter.count(text) <= budget:
            return text
        over = len(text)
    while over - fits > 1:
        middle = (fits + over) // 2
        if counter.count(beginning(middle)) <= budget:
            fits = middle
        else:
            over = middle
    return beginning(fits)


def _edge(text: str, cut: int) -> int:
    """The last place at or before `cut` where the text may end."""
    for at in range(cut, max(cut - _MAX_WORD, 0), -1):
        if at >= len(text) or _is_word_edge(text[at - 1], text[at]):
            cut = at
            break
    while 0 < cut < len(text) and _is_joined(text, cut):
        cut -= 1
    return cut


def _is_word_edge(before: str, after: str) -> bool:
    return before.isspace() or after.isspace() or before >= "\u2e80" or after >= "\u2e80"


def _is_joined(text: str, at: int) -> bool:
    """Whether text[at] belongs to the visible character that text[at - 1] is part of."""
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    if unicodedata.category(after)[0] == "M" or "\u200d" in (before, after):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True  # skin tones, flag tags
    if "\u1160" <= after <= "\u11ff":
        return "\u1100" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"  # Hangul jamo
    if _is_flag_letter(after) and _is_flag_letter(before):
        first = at - 1
        while first and _is_flag_letter(text[first - 1]):
            first -= 1
        return (at - first) % 2 == 1
    return False


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
