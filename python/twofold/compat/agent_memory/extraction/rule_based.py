"""Facts in plain text, by what follows certain verbs."""

from __future__ import annotations

import re
from typing import Any, Final

_END: Final = r"(?=[.!?\n]|$)"
_TASTES: Final = tuple(
    re.compile(rf"\b(?:{verbs})s?\s+(?:.+?){_END}", re.IGNORECASE)
    for verbs in ("prefer|like|love|enjoy|favor", "hate|dislike|avoid")
)
_FACTS: Final = tuple(
    re.compile(pattern + _END, re.IGNORECASE)
    for pattern in (
        r"\bwork(?:s|ing)?\s+(?:at|for)\s+(.+?)(?:\s+as\s+.+?)?",
        r"\b(?:lives?|living)\s+(?:in|at)\s+(.+?)",
        r"\b(?:uses?|using)\s+(.+?)(?:\s+for\s+.+?)?",
    )
)
_TAG_WORDS: Final = {
    "career": "work job role position company hired",
    "location": "live city country move relocate",
    "tech": "python javascript react database api code",
    "preference": "prefer like love favorite enjoy",
}
_CATEGORY_WORDS: Final = {
    "career": "work job role company",
    "location": "live city move",
    "preference": "prefer like love hate",
}


def extract_from_text(text: str) -> list[dict[str, Any]]:
    """[{content, tags, category, entity}] of what a text states."""
    found = [
        {"content": m[0].strip(), "tags": ["preference"], "category": "preference", "entity": None}
        for pattern in _TASTES
        for m in pattern.finditer(text)
    ]
    for pattern in _FACTS:
        for m in pattern.finditer(text):
            content = m[0].strip()
            named = _named(content, _TAG_WORDS)
            kinds = _named(content, _CATEGORY_WORDS)
            found.append(
                {
                    "content": content,
                    "tags": named or ["general"],
                    "category": kinds[0] if kinds else "general",
                    "entity": m[1].strip() or None,
                }
            )
    return found


def _named(content: str, words: dict[str, str]) -> list[str]:
    lower = content.lower()
    return [name for name, hints in words.items() if any(hint in lower for hint in hints.split())]
