"""How many tokens a text is likely to be."""

from __future__ import annotations

import re
from typing import Final

# A word of prose counts 1.3 tokens, as in Memwright. What has no spaces does not count as one word: every
# six characters of an address or an identifier, and every character of a script without spaces, is a unit.
_UNIT: Final = re.compile(
    r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]"
    r"|[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]+"
)
_LONGEST_WORD: Final = 24
_PIECE: Final = 6


def estimate_tokens(text: str) -> int:
    """The estimated number of tokens; at least 1 for any text that is not blank."""
    units = 0
    for match in _UNIT.finditer(text):
        length = match.end() - match.start()
        units += 1 if length <= _LONGEST_WORD else -(-length // _PIECE)
    return max(int(units * 1.3), 1) if units else 0
