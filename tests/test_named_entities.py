"""Names that a trained spaCy pipeline finds join those of the rules, at write time only."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, Config, errors
from twofold.entities import entities
from twofold.named_entities import entity_finder

TEXT = "we met at the old lighthouse with kwame nkansah, and paid 40 euros"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real pipeline on disk, with patterns in place of weights: none can be downloaded here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spacy = pytest.importorskip("spacy", reason="pip install 'twofold[spacy]'")
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns(
        [
            {"label": "PERSON", "pattern": [{"LOWER": "kwame"}, {"LOWER": "nkansah"}]},
            {"label": "FAC", "pattern": [{"LOWER": "old"}, {"LOWER": "lighthouse"}]},
            {"label": "MONEY", "pattern": [{"IS_DIGIT": True}, {"LOWER": "euros"}]},
        ]
    )
    folder = tmp_path_factory.mktemp("spacy") / "pipeline"
    nlp.to_disk(folder)
    return folder


def test_names_of_the_pipeline_join_those_of_the_rules(pipeline: Path, clock: Any) -> None:
    assert entities(TEXT) == []  # no capital letter, nothing marked: the rules see no name
    with AgentMemory(":memory:", embedder=None, clock=clock, entities=f"spacy:{pipeline}") as mem:
        made = mem.add(f"{TEXT}. Order ORD-1234 was late.", entities=["tide table"])
        assert made.entities[:1] == ("tide table",)
        assert {"kwame nkansah", "old lighthouse", "ORD-1234"} <= set(made.entities)
        assert not any("euros" in name for name in made.entities)
        mem.add("the boat was painted green")
        # The store knows the name now: a question without the pipeline finds it.
        found = mem.recall("What about Kwame Nkansah?")
        assert found[0].memory.id == made.id
        assert "graph" in found[0].sources
        assert mem.search(entities=["old lighthouse"])[0].id == made.id


def test_recall_and_replay_run_without_the_pipeline(pipeline: Path, tmp_path: Path, clock: Any) -> None:
    with AgentMemory(tmp_path / "s", embedder=None, clock=clock, entities=f"spacy:{pipeline}") as mem:
        mem.add(TEXT)
        first = mem.recall("kwame nkansah", promote=False)
        receipt = first.receipt.to_json()
    with AgentMemory(tmp_path / "s", embedder=None, clock=clock) as mem:
        again = mem.recall("kwame nkansah", promote=False)
        assert [(h.memory.id, h.score, h.parts) for h in again] == [
            (h.memory.id, h.score, h.parts) for h in first
        ]
        assert mem.replay(receipt).identical


def test_the_same_text_gives_the_same_names(pipeline: Path) -> None:
    finder = entity_finder(f"spacy:{pipeline}")
    assert finder is not None
    assert finder(TEXT) == finder(TEXT) == ["old lighthouse", "kwame nkansah"]


@pytest.mark.parametrize("setting", ["spacy", "spacy:", "flair:x", ""])
def test_other_settings_are_refused(setting: str) -> None:
    with pytest.raises(errors.InvalidInput, match=r'must be "rules" or "spacy:PIPELINE"'):
        entity_finder(setting)


def test_a_missing_pipeline_names_the_remedy(pipeline: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match=r"install one \(python -m spacy download xx_nowhere\)"):
        AgentMemory(tmp_path / "s", embedder=None, entities="spacy:xx_nowhere")
    assert not (tmp_path / "s").exists()


def test_missing_spacy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    with pytest.raises(errors.InvalidInput, match=r"pip install 'twofold\[spacy\]'"):
        entity_finder("spacy:en_core_web_sm")


def test_rules_are_the_default() -> None:
    assert Config.load(environ={}).entities == "rules"
    assert entity_finder("rules") is None
