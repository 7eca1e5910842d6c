"""Each term of recall does what its name says, through the public API, without a model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold import AgentMemory, Profile, _core
from twofold.embed.codes import CodeEmbedder, TokenCodes, code_embedder, sign_bits
from twofold.embed.hashing import Hashing
from twofold.retrieve.question import event_named
from twofold.retrieve.vector import logarithms

RUNNER = Path(__file__).resolve().parent.parent / "benchmarks" / "quality" / "run.py"


class Words(Hashing):
    """Hashed words whose tokens have codes: one random direction a word, synonyms share theirs."""

    token_codes = True
    same: ClassVar = {"car": "automobile", "doctor": "physician"}

    def __init__(self, *, window: int = 8192) -> None:
        super().__init__(128)
        self.max_tokens = window
        self.asked = 0

    def _tokens(self, text: str) -> TokenCodes:
        spans = [span for span in self.token_spans(text) if text[slice(*span)].strip()]
        rows = [self._direction(text[a:b].lower()) for a, b in spans]
        return TokenCodes(sign_bits(np.array(rows).reshape(-1, 128)), spans)

    def _direction(self, word: str) -> np.ndarray:
        seed = hashlib.blake2b(self.same.get(word, word).encode(), digest_size=8).digest()
        return np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(128)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        out, at = [], 0
        for word in text.split():
            at = text.index(word, at)
            end = at + len(word.rstrip("?.,"))
            out += [(at, end)] if end > at else []
            if end < at + len(word):
                out.append((end, at + len(word)))
            at += len(word)
        return out

    def count_tokens(self, text: str) -> int:
        return len(self.token_spans(text))

    def embed_documents_with_codes(self, texts: Sequence[str]) -> tuple[Any, list[TokenCodes]]:
        return self.embed_documents(texts), [self._tokens(text) for text in texts]

    def embed_query_with_codes(self, text: str) -> tuple[Any, TokenCodes]:
        self.asked += 1
        return self.embed_query(text), self._tokens(text)


@pytest.fixture
def mem(clock: Any, ids: Any, entropy: Any) -> Iterator[AgentMemory]:
    with AgentMemory(":memory:", embedder=Words(), clock=clock, ids=ids, entropy=entropy) as mem:
        yield mem


def part(mem: AgentMemory, question: str, name: str, **options: Any) -> dict[str, float]:
    """Content -> what one addend gave it."""
    found = mem.recall(question, k=50, promote=False, **options)
    return {h.content: h.parts[name] for h in found if name in h.parts}


TALK = ["The automobile broke down near Lyon", "Cats sleep all day", "The bakery opens at seven"]


def test_late_interaction_finds_the_word_of_like_meaning(mem: AgentMemory) -> None:
    mem.add_many([{"content": text} for text in TALK])
    question = "What happened to the car?"
    late = part(mem, question, "late")
    assert max(late, key=lambda text: late[text]) == TALK[0]
    # The candidates' mean stands at zero.
    assert sum(late.values()) == pytest.approx(0.0, abs=1e-12)
    assert mem.recall(question, promote=False)[0].content == TALK[0]
    assert part(mem, question, "late", profile={"late_weight": 0.0}) == {}
    assert part(mem, question, "late", profile="rrf") == {}


def test_rare_words_of_the_question_weigh_more(mem: AgentMemory) -> None:
    mem.add_many([{"content": f"visit number{i}"} for i in range(20)])
    mem.add("zebra")
    late = part(mem, "visit zebra", "late")
    assert max(late, key=lambda text: late[text]) == "zebra"


def test_replay_of_late_interaction_needs_no_model(mem: AgentMemory) -> None:
    embedder = mem.embedder
    assert isinstance(embedder, Words)
    mem.add_many([{"content": text} for text in TALK])
    found = mem.recall("What happened to the car?", promote=False)
    stored = json.loads(json.dumps(found.receipt.to_json()))
    mem.add("Another automobile arrived, so the word is less rare now")
    asked = embedder.asked
    for receipt in (found.receipt, stored):
        again = mem.replay(receipt)
        assert again.identical, again.differences
    assert embedder.asked == asked
    stored["tokens"]["codes"] = b64encode(bytes(len(b64decode(stored["tokens"]["codes"])))).decode()
    assert not mem.replay(stored).identical


def test_a_later_row_does_not_change_what_was_known_before(mem: AgentMemory, clock: Any) -> None:
    mem.add_many([{"content": text} for text in TALK])
    then = clock.now()

    def answer() -> list[Any]:
        found = mem.recall("What happened to the car?", known_at=then, now=then, promote=False)
        return [(h.memory.id, h.parts) for h in found]

    before = answer()
    clock.advance(seconds=60)
    mem.add_many([{"content": f"The car number {i} was sold"} for i in range(5)])
    assert answer() == before


def test_only_memories_of_one_window_have_codes(clock: Any) -> None:
    long = " ".join(f"word{i}" for i in range(60))
    with AgentMemory(":memory:", embedder=Words(window=24), clock=clock) as mem:
        mem.add_many([{"content": long}, {"content": "word3 alone"}])
        late = part(mem, "word3", "late")
        assert late[long] == 0.0
        assert "word3 alone" in late
        vector = part(mem, "word3", "vector", profile={"vector_weight": 1.0, "late_vector_weight": 0.0})
        assert vector[long] != 0.0
        assert vector["word3 alone"] == 0.0


def test_codes_are_stored_erased_and_made_anew(tmp_store: Path, clock: Any) -> None:
    question = "What happened to the car?"
    with AgentMemory(tmp_store, embedder=Words(), clock=clock) as mem:
        memories = mem.add_many([{"content": text} for text in TALK])
        first = part(mem, question, "late")
        assert len(first) == 3
    with AgentMemory(tmp_store, embedder=Words(), clock=clock) as mem:
        assert part(mem, question, "late") == first
        mem.reembed(Words())
        assert part(mem, question, "late") == first
        mem.erase(memories[1].id, reason="asked for")
        assert set(part(mem, question, "late")) == {TALK[0], TALK[2]}
        index = mem._vault.index("default")
        vectors = index.vectors[index.current_generation().number]
        assert len(vectors.codes) == sum(vectors.code_stops.view() - vectors.code_starts.view())


def test_a_part_blanks_the_codes_of_what_is_erased() -> None:
    from twofold.index.tenant import VectorPart
    from twofold.model import Generation, Vectors

    part = VectorPart(Generation(1, "f", 64, 1))
    data = np.eye(2, 64, dtype=np.float32)
    codes = [b"\xff" * 16, b"\xaa" * 8]
    part.add(Vectors.of(1, [(0, 0, 0, 1), (1, 0, 0, 1)], data, codes))
    assert part.codes.tobytes() == b"".join(codes)
    part.erase([0])
    assert part.codes.tobytes() == bytes(16) + codes[1]
    assert (part.code_stops.view() - part.code_starts.view()).tolist() == [0, 1]


def test_an_embedder_whose_codes_do_not_help_gives_none(clock: Any) -> None:
    class Plain(Words):
        token_codes = False

    assert isinstance(Plain(), CodeEmbedder)
    assert code_embedder(Plain()) is None
    assert code_embedder(Hashing(128)) is None
    with AgentMemory(":memory:", embedder=Plain(), clock=clock) as mem:
        mem.add_many([{"content": text} for text in TALK])
        assert part(mem, "What happened to the car?", "late") == {}


def test_what_the_assistant_said_counts_less_unless_asked_for(mem: AgentMemory) -> None:
    said = "Berlin is a good place for the summer"
    for role in ("user", "assistant"):
        mem.add(f"{said}, {role}", session_id=role, metadata={"role": role})
    mem.add(f"{said}, fact")
    parts = part(mem, "Which place is good for the summer?", "role")
    assert parts == {f"{said}, user": 0.0, f"{said}, assistant": -0.4, f"{said}, fact": 0.0}
    for question in (
        "Which place did you recommend for the summer?",
        "What was your suggestion for the summer?",
        "你之前推荐的是哪里 summer",
    ):
        assert part(mem, question, "role") == {}
    assert mem.recall("Which place did you say is good?", profile={"role_weight": 0.0}, promote=False)


@pytest.mark.parametrize(
    "question, asks",
    [
        ("What did you suggest for dinner?", True),
        ("Have you ever mentioned Rust?", True),
        ("You recommended a hotel; which one?", True),
        ("what was your advice on taxes", True),
        ("你上次建议我怎么做", True),
        ("你推荐的书是哪本", True),
        ("What do you know about my dog?", False),
        ("Who gave Ann the answer?", False),
        ("Where is your office?", False),
        ("我推荐的书是哪本", False),
    ],
)
def test_whether_a_question_asks_for_the_assistant(question: str, asks: bool) -> None:
    from twofold.retrieve.question import asks_assistant

    assert asks_assistant(question) is asks


def test_the_speaker_named_first_counts_and_no_other(mem: AgentMemory) -> None:
    for name in ("Ann", "Bob"):
        mem.add(f"I like jazz, {name}", speaker=name)
    assert part(mem, "What music does Ann like, and does Bob?", "speaker") == {
        "I like jazz, Ann": 0.3,
        "I like jazz, Bob": 0.0,
    }
    assert part(mem, "Who likes jazz?", "speaker") == {}
    assert part(mem, "Who likes Annual jazz?", "speaker") == {}


def test_an_answer_takes_from_its_question_and_a_session_from_its_best(mem: AgentMemory) -> None:
    asked = mem.add("Where did the zebra go?", session_id="s")
    mem.add("To the river.", session_id="s")
    mem.add("To the river, elsewhere.", session_id="t")
    neighbours = part(mem, "zebra", "neighbours")
    assert neighbours["To the river."] > neighbours["To the river, elsewhere."]
    without = part(mem, "zebra", "neighbours", profile={"answer_weight": 0.0})
    base = {h.memory.id: h for h in mem.recall("zebra", promote=False)}[asked.id].parts
    score = base["lexical"] + base["vector"] + base["late"]
    assert neighbours["To the river."] - without["To the river."] == pytest.approx(0.25 * score)
    sessions = part(mem, "zebra", "session")
    assert sessions["Where did the zebra go?"] == sessions["To the river."]
    assert sessions["To the river."] > sessions["To the river, elsewhere."]


def test_a_session_that_holds_all_words_of_the_question_lifts_its_turns(mem: AgentMemory) -> None:
    for session, turns in {
        "trip": ["We went to Lisbon.", "The violin broke on the way."],
        "one": ["Lisbon is sunny.", "Lisbon has trams."],
        "none": ["The fridge hums.", "The kettle whistles."],
    }.items():
        mem.add_many([{"content": turn, "session_id": session} for turn in turns])
    mem.add("A violin has four strings, in Lisbon too")  # of no session
    question = "What broke in Lisbon, the violin?"
    words = part(mem, question, "session_lexical")
    assert words["We went to Lisbon."] == words["The violin broke on the way."]
    assert words["We went to Lisbon."] > 0.0 > words["Lisbon is sunny."] > words["The fridge hums."]
    assert words["A violin has four strings, in Lisbon too"] == 0.0
    # By the best session's, less the candidates' mean.
    assert words["We went to Lisbon."] - words["The fridge hums."] == pytest.approx(0.2)
    assert part(mem, question, "session_lexical", profile={"session_lexical_weight": 0.0}) == {}
    assert part(mem, "zzz", "session_lexical") == dict.fromkeys(part(mem, "zzz", "vector"), 0.0)


def test_words_of_a_session_are_those_the_reader_may_see(mem: AgentMemory) -> None:
    mem.add("We went to Lisbon.", session_id="a", namespace="mine")
    hidden = mem.add("The violin broke on the way.", session_id="a", namespace="mine")
    mem.add("A violin has strings.", session_id="b", namespace="mine")
    mem.add("The violin and the Lisbon tram.", session_id="a", namespace="theirs")
    question = "Lisbon violin"
    before = part(mem, question, "session_lexical", namespaces=["mine"])
    assert before["We went to Lisbon."] > before["A violin has strings."]
    mem.forget(hidden.id)
    after = part(mem, question, "session_lexical", namespaces=["mine"])
    assert after["We went to Lisbon."] == pytest.approx(after["A violin has strings."])


def test_one_session_does_not_fill_the_list(mem: AgentMemory) -> None:
    mem.add_many([{"content": f"zebra number {i}", "session_id": "s"} for i in range(3)])
    mem.add("zebra and more", session_id="t")
    mem.add_many([{"content": f"zebra alone {i}"} for i in range(2)])
    found = mem.recall("zebra", promote=False)
    repeats = {h.content: h.parts["repeats"] for h in found}
    own = [repeats[h.content] for h in found if h.content.startswith("zebra number")]
    assert own == pytest.approx([0.0, -0.02 * math.log(2), -0.02 * math.log(3)])
    assert [repeats[f"zebra alone {i}"] for i in range(2)] == [0.0, 0.0]
    assert repeats["zebra and more"] == 0.0
    assert part(mem, "zebra", "repeats", profile={"session_repeat_weight": 0.0}) == {}
    strict = mem.recall("zebra", promote=False, profile={"session_repeat_weight": 9.0})
    assert [h.content.startswith("zebra number") for h in strict][-2:] == [True, True]
    # Within the session the order stays.
    assert [h.content for h in strict if "number" in h.content] == [
        h.content for h in found if "number" in h.content
    ]


@given(st.lists(st.tuples(st.integers(-1, 3), st.sampled_from([0.0, 0.5, 1.0])), max_size=12))
def test_better_rows_of_the_same_session_are_counted(rows: list[tuple[int, float]]) -> None:
    want = [
        sum(
            other == session and (theirs > score or (theirs == score and j < i))
            for j, (other, theirs) in enumerate(rows)
        )
        if session >= 0
        else 0
        for i, (session, score) in enumerate(rows)
    ]
    sessions = np.array([s for s, _ in rows], np.int64)
    scores = np.array([v for _, v in rows], np.float64)
    places, counts = np.arange(len(rows)), np.arange(float(len(rows)))
    none = np.full(len(rows), -1)
    found, _, addends = _core.fuse(
        places,
        places,
        none,
        none,
        [scores],
        layers=[],
        given=[],
        sessions=sessions,
        session_repeats=1.0,
        logs=counts,
    )
    assert [-addends[1][found.tolist().index(i)] for i in range(len(rows))] == want


def test_a_time_in_the_question_is_a_preference_never_a_filter(mem: AgentMemory) -> None:
    for day in ("2025-12-24", "2025-06-01"):
        mem.add(f"Dinner with Ann on some day {day[5:7]}", event_date=day)
    mem.add("Dinner with Ann some time")
    question = "Who was at dinner last week?"
    named = part(mem, question, "time", profile={"time_weight": 0.1})
    assert sorted(named.values()) == [0.0, 0.0, 0.1]
    assert named["Dinner with Ann on some day 12"] == 0.1
    assert part(mem, question, "time") == {}
    assert len(mem.recall(question, promote=False)) == 3


@pytest.mark.parametrize(
    "question,expected",
    [
        ("Where did Ann live before the move?", ("move", True)),
        ("What did we use prior to the big database migration", ("big database migration", True)),
        ("Since my surgery what changed", ("surgery", False)),
        ("after the release did it break", ("release", False)),
        ("What happened before Ann's wedding in Lyon?", ("wedding in Lyon", True)),
        ("他在搬家之前住哪里", ("搬家", True)),
        ("数据库迁移以后出了什么问题", ("数据库迁移", False)),
        ("before she left", None),
        ("以前住哪里", None),
        ("the after party", None),
    ],
)
def test_an_event_a_question_dates_itself_by(question: str, expected: tuple[str, bool] | None) -> None:
    assert event_named(question) == expected


def test_before_an_event_that_a_memory_tells_of(mem: AgentMemory) -> None:
    mem.add("Ann rents a flat in Lyon", event_date="2024-02-01")
    mem.add("The move of Ann was hard work", event_date="2024-06-10")
    mem.add("Ann rents a house in Nantes", event_date="2024-09-01")
    mem.add("A flat without a date")
    weighted = {"time_weight": 5.0}
    before = "Where did Ann rent before the move?"
    assert part(mem, before, "time", profile=weighted) == {
        "Ann rents a flat in Lyon": 5.0,
        "The move of Ann was hard work": 0.0,
        "Ann rents a house in Nantes": 0.0,
        "A flat without a date": 0.0,
    }
    assert mem.recall(before, promote=False, profile=weighted)[0].content.endswith("Lyon")
    after = "Where did Ann rent after the move?"
    assert mem.recall(after, promote=False, profile=weighted)[0].content.endswith("work")
    assert part(mem, after, "time", profile=weighted)["Ann rents a house in Nantes"] == 5.0
    # No memory has the event, so nothing is preferred.
    assert part(mem, "Where did Ann rent before the flood?", "time", profile=weighted) == {}
    assert mem.recall(before, promote=False, profile=weighted).receipt.id
    assert mem.replay(mem.recall(before, promote=False, profile=weighted).receipt).identical


def test_a_question_the_encoder_cannot_read_is_left_to_the_words(clock: Any) -> None:
    class Latin(Words):
        latin_only = True

    with AgentMemory(":memory:", embedder=Latin(), clock=clock) as mem:
        mem.add_many([{"content": "数据库迁移到了新集群"}, {"content": "The database moved"}])
        assert set(part(mem, "数据库在哪里", "vector").values()) == {0.0}
        assert set(part(mem, "数据库在哪里", "late").values()) <= {0.0}
        assert mem.recall("数据库在哪里", promote=False)[0].content == "数据库迁移到了新集群"
        assert set(part(mem, "database where", "vector").values()) != {0.0}


def test_the_cosine_counts_by_the_spread_of_its_encoder(clock: Any) -> None:
    class Wide(Words):
        cosine_spread = 0.10

    class Narrow(Words):
        cosine_spread = 0.05

    found = []
    for kind in (Wide, Narrow):
        with AgentMemory(":memory:", embedder=kind(), clock=clock) as mem:
            mem.add_many([{"content": text} for text in TALK])
            found.append(part(mem, "bakery", "vector", profile={"late_weight": 0.0}))
    assert found[1] == {text: pytest.approx(2.0 * value) for text, value in found[0].items()}


def test_every_weight_can_be_switched_off(mem: AgentMemory) -> None:
    mem.add("The zebra went to the river", session_id="s", speaker="Ann", tags=["zebra"])
    weights = {n: 0.0 for n in Profile.__dataclass_fields__ if n.endswith("_weight")}
    (hit,) = mem.recall("zebra", profile={**weights, "lexical_weight": 1.0}, promote=False)
    assert set(hit.parts) == {"lexical"}


# -- the runner that measures all this -------------------------------------------------------------------


@pytest.fixture(scope="module")
def runner() -> Any:
    spec = importlib.util.spec_from_file_location("quality_run", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quality_run"] = module
    spec.loader.exec_module(module)
    return module


def test_no_figure_without_n_metric_and_controls(runner: Any) -> None:
    row = {"n": 3, "any@10": [50.0, 0.0, 100.0]}
    good = {name: dict(row) for name in (*runner.CONTROLS, "default")}
    runner.check({"set": good})
    for broken in (
        {k: v for k, v in good.items() if k != "bm25"},
        {**good, "default": {**row, "n": 0}},
        {**good, "default": {"any@10": [50.0, 0.0, 100.0]}},
        {**good, "default": {"n": 3}},
        {**good, "default": {"n": 3, "any@10": [50.0]}},
    ):
        with pytest.raises(ValueError, match="no figures without"):
            runner.check({"set": broken})


def test_statistics_of_the_runner(runner: Any) -> None:
    assert runner.mcnemar(0, 0) == 1.0
    assert runner.mcnemar(5, 0) == pytest.approx(2 / 32)
    assert runner.mcnemar(3, 1) == pytest.approx(2 * (1 + 4) / 16)
    assert runner.mcnemar(9, 9) == 1.0
    assert runner.interval(np.array([1.0] * 10)) == [100.0, 100.0, 100.0]
    mean, low, high = runner.interval(np.array([0.0, 1.0] * 50))
    assert mean == 50.0
    assert 35.0 < low < 50.0 < high < 65.0
    assert runner.interval(np.array([0.0, 1.0] * 50)) == [mean, low, high]


def test_one_command_measures_a_set(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [
        {"id": f"t{i}", "speaker": "Ann", "session": i // 4, "time": "", "text": f"{word} went to the river"}
        for i, word in enumerate("zebra lion tiger bear wolf fox owl hare".split())
    ]
    questions = [
        {"question": f"Where did the {word} go?", "evidence": [f"t{i}"], "category": category}
        for i, word, category in ((0, "zebra", "single"), (3, "bear", "single"), (5, "fox", "adversarial"))
    ]
    data = tmp_path / "tiny.jsonl"
    data.write_text(json.dumps({"id": "c", "turns": turns, "questions": questions}) + "\n", encoding="utf-8")
    out = tmp_path / "out.json"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{runner.START}\nold\n{runner.STOP}\nafter\n", encoding="utf-8")
    command = f"run.py --data {data} --embedder hashing --budget 1000 --ablate --json {out} --page {page}"
    monkeypatch.setattr(sys, "argv", command.split())
    assert runner.main() == 0
    result = json.loads(out.read_text("utf-8"))["tiny"]
    assert result["methods"]["default"]["n"] == 2
    assert result["methods"]["default (adversarial)"]["n"] == 1
    assert result["methods"]["default"]["any@5"] == [100.0, 100.0, 100.0]
    assert result["categories"]["single"]["n"] == 2
    assert set(result["terms"]) == {*runner.TERMS, *runner.OPTIONS}
    assert result["terms"]["speaker named"]["any@10"] == [0.0, 0.0, 0.0]
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*runner.CONTROLS, "default", "late interaction"))
    written = page.read_text("utf-8")
    assert written.startswith("before\n")
    assert written.endswith(f"{runner.STOP}\nafter\n")
    assert "old" not in written.splitlines()
    assert all(f"| {name} " in written for name in (*runner.CONTROLS, "default", "late interaction"))
    assert "n = 2" in written
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="no place for tables"):
        runner.write_page({"tiny": result}, page)


# -- feedback --------------------------------------------------------------------------------------------


def judged_answers(mem: AgentMemory, count: int, useful: Any) -> None:
    for i in range(count):
        mem.add_many(
            [
                {"content": f"topic{i} said by the assistant", "metadata": {"role": "assistant"}},
                {"content": f"topic{i} said by the user", "metadata": {"role": "user"}},
            ]
        )
    for i in range(count):
        found = mem.recall(f"topic{i} said", k=2, promote=False, keep=True)
        chosen = [h.memory.id for h in found if useful(i, h)]
        mem.feedback(found.receipt, useful=chosen)


def test_feedback_fits_a_profile_that_holds_on_unseen_answers(mem: AgentMemory) -> None:
    judged_answers(mem, 24, lambda _, hit: hit.memory.metadata.get("role") == "assistant")
    fit = mem.fit_profile()
    assert fit.changed
    assert fit.judged == 24
    assert fit.better >= 8
    assert fit.worse == 0
    assert fit.after > fit.before
    assert fit.profile.name == "default+feedback"
    assert fit.profile.role_weight < Profile().role_weight
    assert mem.fit_profile() == fit
    again = mem.recall("topic3 said", k=2, promote=False, profile=fit.profile)
    assert again[0].memory.metadata["role"] == "assistant"
    # Recalls that do not ask for it are as before.
    assert mem.recall("topic3 said", k=2, promote=False)[0].memory.metadata["role"] == "user"


def test_feedback_without_a_pattern_or_too_little_of_it_changes_nothing(mem: AgentMemory) -> None:
    judged_answers(mem, 8, lambda _, hit: hit.memory.metadata.get("role") == "assistant")
    few = mem.fit_profile()
    assert not few.changed
    assert few.profile == Profile()
    assert "20 are needed" in few.reason


def test_feedback_at_odds_with_itself_is_not_fitted(mem: AgentMemory) -> None:
    role = ["user", "assistant"]
    judged_answers(mem, 24, lambda i, hit: hit.memory.metadata.get("role") == role[i // 2 % 2])
    fit = mem.fit_profile()
    assert not fit.changed
    assert "does not hold" in fit.reason


def test_logarithms_are_correctly_rounded() -> None:
    assert len(logarithms(256)) == 256
    assert len(logarithms(257)) >= 257
    assert logarithms(3000).tolist()[:3000] == [float(Decimal(n).ln()) for n in range(1, 3001)]
