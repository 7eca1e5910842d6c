"""Facts from the messages of a conversation, by rules alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twofold.compat.agent_memory.extraction.rule_based import extract_from_text
from twofold.compat.agent_memory.models import Memory
from twofold.errors import InvalidInput


def extract_memories(
    messages: Iterable[Mapping[str, Any]], use_llm: bool = False, model: str = "rules"
) -> list[Memory]:
    """Memories, not stored yet, from messages {role, content}; system messages are left out.

    Raises InvalidInput with use_llm=True: there is no model in Twofold. Store a model's own output with `add`.
    """
    if use_llm:
        raise InvalidInput(
            f"extraction is by rules; leave use_llm out, or call {model!r} yourself and store what it finds"
        )
    return [
        Memory(**fact)
        for message in messages
        if message.get("role") != "system" and isinstance(message.get("content"), str)
        for fact in extract_from_text(message["content"])
    ]
