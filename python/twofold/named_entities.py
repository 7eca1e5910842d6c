"""Names found by a trained model, beside the rules of `entities`: optional, at write time only.

What is found is stored with the memory, so recall stays free of models. Needs the extra `spacy` and a pipeline.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, Final

from twofold.entities import MAX_NAME
from twofold.errors import InvalidInput

__all__ = ["EntityFinder", "entity_finder"]

# Text to the names it mentions, as they are written.
EntityFinder = Callable[[str], list[str]]

# Things a later question can name; dates, amounts and ordinals are left to the other layers (OntoNotes 5 labels).
LABELS: Final = frozenset(
    "PERSON PER ORG GPE LOC FAC PRODUCT EVENT WORK_OF_ART LAW LANGUAGE NORP MISC".split()
)


def entity_finder(setting: str) -> EntityFinder | None:
    """The finder that the setting `entities` names: None for "rules", a spaCy pipeline for "spacy:NAME".

    NAME is an installed pipeline ("en_core_web_sm") or a folder. InvalidInput when spaCy or the pipeline is missing.
    """
    if setting == "rules":
        return None
    kind, _, name = setting.partition(":")
    if kind != "spacy" or not name:
        raise InvalidInput(f'setting entities must be "rules" or "spacy:PIPELINE", not {setting!r}')
    try:
        spacy = importlib.import_module("spacy")
    except ImportError:
        raise InvalidInput(
            f"entities={setting!r} needs spaCy: pip install 'twofold[spacy]'; or use entities=\"rules\""
        ) from None
    try:
        # Only what finds names runs: a parser or a lemmatiser would cost several times as much.
        pipeline = spacy.load(name, exclude=["parser", "lemmatizer", "attribute_ruler", "tagger", "senter"])
    except OSError as error:
        raise InvalidInput(
            f"spaCy has no pipeline {name!r} ({error}); install one (python -m spacy download {name}) "
            'or use entities="rules"'
        ) from None
    return _Pipeline(pipeline)


class _Pipeline:
    """One pipeline, one text at a time: its vocabulary is shared state, and batches may change a float's last bit."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._lock = threading.Lock()

    def __call__(self, text: str) -> list[str]:
        with self._lock:
            found = self._pipeline(text).ents
            names = [entity.text.strip() for entity in found if entity.label_ in LABELS]
        return [
            name for name in dict.fromkeys(names) if name and len(name) <= MAX_NAME and name.isprintable()
        ]
