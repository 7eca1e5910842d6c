"""Settings come from keyword arguments, then variables, then a TOML file; each does what its name says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from twofold import AgentMemory, Config, errors


def test_order_of_sources(tmp_path: Path) -> None:
    file = tmp_path / "twofold.toml"
    file.write_text('busy_timeout = 1.0\nembedder = "hashing"\n[l2]\nmax_memories = 10\n[l1]\nmax_size = 7\n')
    environ = {"TWOFOLD_BUSY_TIMEOUT": "2.5", "TWOFOLD_L1_MAX_SIZE": "8", "TWOFOLD_CONFIG": str(file)}
    config = Config.load(environ=environ, l1_max_size=9)
    assert (config.busy_timeout, config.l1_max_size, config.l2_max_memories) == (2.5, 9, 10)
    assert config.embedder == "hashing"
    assert Config.load(file, environ={}).busy_timeout == 1.0
    assert Config.load(environ={}) == Config()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, "unknown setting 'colour'"),
    ({"l1_max_size": 0}, "l1_max_size must be a whole number"),
    ({"l1_max_size": True}, "l1_max_size must be a whole number"),
    ({"l1_ttl": -1.0}, "l1_ttl must be a positive number"),
    ({"decay": "fast"}, "decay must be one of default, published, off"),
    ({"synchronous": "never"}, "synchronous must be one of"),
    ({"max_memories_policy": "delete"}, "max_memories_policy must be one of"),
    ({"l2_similarity_threshold": 1.5}, "l2_similarity_threshold must be in 0..1"),
]


@pytest.mark.parametrize("given,message", BAD)
def test_bad_settings_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        Config.load(environ={}, **given)


@pytest.mark.parametrize(
    "name,value",
    [("L1_TTL", "soon"), ("QUERY_CACHE", "1.5"), ("AUTO_SUPERSEDE", "maybe"), ("LOG_RECALLS", "2")],
)
def test_bad_variables_are_named(name: str, value: str) -> None:
    with pytest.raises(errors.InvalidInput, match=f"TWOFOLD_{name} must be"):
        Config.load(environ={f"TWOFOLD_{name}": value})


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="cannot read the settings file"):
        Config.load(tmp_path / "none.toml", environ={})
    (tmp_path / "x.toml").write_text("a = [")
    with pytest.raises(errors.InvalidInput, match="is not TOML"):
        Config.load(tmp_path / "x.toml", environ={})


def opened(clock: Any, **settings: Any) -> AgentMemory:
    return AgentMemory(":memory:", clock=clock, **{"embedder": "hashing:64", **settings})


def test_embedder_none_by_variable(monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    monkeypatch.setenv("TWOFOLD_EMBEDDER", "none")
    with AgentMemory(":memory:", clock=clock) as mem:
        assert mem.embedder is None


def test_auto_supersede_off_keeps_both(clock: Any) -> None:
    for setting, current in ((True, 1), (False, 2)):
        with opened(clock, auto_supersede=setting) as mem:
            mem.add("The IP of server A is 10.0.0.1")
            clock.advance(hours=1)
            mem.add("The IP of server A is 10.0.0.2")
            assert mem.stats()["current"] == current


def test_similarity_threshold_drops_far_candidates(clock: Any) -> None:
    with opened(clock) as mem:
        mem.add_many(["the blue boat", "a green tractor", "seven small stones"])
        assert len(mem.recall("the blue boat", profile="vector")) == 3
    with opened(clock, l2_similarity_threshold=0.9) as mem:
        mem.add_many(["the blue boat", "a green tractor", "seven small stones"])
        found = mem.recall("the blue boat", profile="vector")
        assert [h.content for h in found] == ["the blue boat"]
        assert mem.replay(found.receipt).identical


def test_dimensions_are_checked(clock: Any) -> None:
    with pytest.raises(errors.InvalidInput, match="l2_embedding_dimensions is 384"):
        opened(clock, l2_embedding_dimensions=384)


def test_missed_targets_are_counted(clock: Any) -> None:
    with opened(clock, l2_target_ms=1e-6) as mem:
        mem.add("x marks the spot")
        mem.recall("spot")
        stats = mem.stats()
        assert (stats["recalls"], stats["recalls_over_target"]) == (1, 1)


def test_log_recalls_keeps_every_receipt(clock: Any) -> None:
    with opened(clock, log_recalls=True) as mem:
        mem.add("x marks the spot")
        mem.recall("spot")
        mem.recall("mark")
        assert len(mem.receipts()) == 2


def test_max_memories_is_reported_and_archived_by_policy(clock: Any) -> None:
    for policy, archived in (("warn", 0), ("archive", 2)):
        with opened(clock, l2_max_memories=3, max_memories_policy=policy) as mem:
            mem.add_many(f"thing number {i}" for i in range(5))
            assert mem.stats()["over_max_memories"] == 2
            assert len(mem.maintain().archived) == archived
            assert mem.stats()["memories"] == 5 - archived


@pytest.mark.parametrize("name", ["default", "published", "off"])
def test_a_decay_policy_by_name(name: str, clock: Any) -> None:
    with opened(clock, decay=name) as mem:
        mem.add("the cat sat")
        clock.advance(days=400)
        assert bool(mem.recall("cat", promote=False)) == (name == "off")
        assert mem.config.decay == name


def test_an_unknown_decay_policy_is_named(clock: Any) -> None:
    with pytest.raises(errors.InvalidInput, match="decay must be one of"):
        opened(clock, decay="slow")
