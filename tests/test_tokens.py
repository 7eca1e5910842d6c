"""Counting tokens and cutting texts to a budget."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.errors import InvalidInput
from twofold.tokens import EstimateCounter, TokenizersCounter, counter, truncate

ESTIMATE = EstimateCounter()

# (text, tokens in cl100k_base, tokens in o200k_base), counted once with those vocabularies.
COUNTED = [
    ("The planner chose Rust for the critical path after two weeks: its tail latency stayed flat.", 18, 18),
    ("hey, are we still on for dinner tomorrow? I can't make it before 7, sorry!", 21, 20),
    ("Server A moved from 192.168.1.100 to 192.168.1.150 on 2026-03-12T10:30:00Z.", 37, 37),
    ("我们为关键路径选择了什么技术？规划器决定在关键路径上使用Rust。", 30, 19),
    ("昨天下午三点，张三和李四在北京开会，讨论了下个季度的预算和招聘计划。", 40, 27),
    ("服务器A的IP地址是192.168.1.150，端口为8080。", 20, 20),
    (
        "def mean(values):\n    if not values:\n        return 0\n    return sum(values) / len(values)\n",
        23,
        23,
    ),
    (
        "for (std::size_t i = 0; i < rows.size(); ++i) {\n    total += rows[i].score * weights[i];\n}\n",
        32,
        32,
    ),
    ("SELECT id, name FROM users WHERE created_at > '2024-01-01' ORDER BY id LIMIT 10;", 25, 25),
    ('{"id": "01J9Z", "tags": ["decision", "rust"], "confidence": 0.75, "pinned": false}', 32, 32),
    ("https://docs.example.com/en/latest/guide/getting-started.html?highlight=install#quick", 20, 20),
    ("## Setup\n\n1. Install the package\n2. Run `make demo`\n3. Open the **report**\n", 23, 23),
    ("昨日は友達と一緒に新しいレストランに行きました。", 24, 18),
    ("어제 친구와 함께 새로운 식당에 갔습니다.", 23, 13),
    ("Вчера мы с друзьями ходили в новый ресторан.", 22, 12),
    ("Hier je suis allé avec des amis dans un nouveau restaurant.", 13, 12),
]


@pytest.mark.parametrize("text, cl100k, o200k", COUNTED)
def test_the_estimate_is_near_real_encodings(text, cl100k, o200k):
    low, high = sorted((cl100k, o200k))
    assert 0.8 * low - 1 <= ESTIMATE.count(text) <= 1.2 * high + 1


def test_the_estimate_of_all_samples_is_within_a_tenth():
    total = sum(ESTIMATE.count(text) for text, _, _ in COUNTED)
    real = sum((cl100k + o200k) / 2 for _, cl100k, o200k in COUNTED)
    assert total == pytest.approx(real, rel=0.1)


def test_the_empty_text_costs_nothing_and_any_other_something():
    assert ESTIMATE.count("") == 0
    assert ESTIMATE.count(" ") == ESTIMATE.count("\n") == ESTIMATE.count("a") == ESTIMATE.count("\ud800") == 1


pieces = st.one_of(st.text(max_size=40), st.text("aA1 .\n的é😀", max_size=40))


@given(pieces, pieces)
def test_the_estimate_grows_and_adds_up(a, b):
    first, second, both = (ESTIMATE.count(text) for text in (a, b, a + b))
    assert first <= both
    assert first + second - 1 <= both <= first + second + 3


def test_no_run_of_one_character_is_free():
    for char in "a A1.\n\t的":
        assert ESTIMATE.count(char * 10_000) >= 500


class PerCharacter:
    name = "characters"

    def count(self, text):
        return len(text)


CHARACTERS = PerCharacter()


@pytest.mark.parametrize(
    "text, budget, expected",
    [
        ("short", 5, "short"),
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one two three", 8, "one two…"),
        ("one two three", 7, "one…"),
        ("one two three", 3, "on…"),
        ("one two three", 1, ""),
        ("one two three", 0, ""),
        ("", 0, ""),
        ("我们选择了技术", 4, "我们选…"),
        ("x" * 100, 50, "x" * 49 + "…"),
        ("cafe\u0301s", 5, "caf…"),
        ("👩‍👩‍👧👩‍👩‍👧", 8, "👩‍👩‍👧…"),
        ("👍🏽👍🏽", 3, "👍🏽…"),
        ("🇩🇪🇫🇷🇪🇸", 5, "🇩🇪🇫🇷…"),
        ("🇩🇪🇫🇷🇪🇸", 4, "🇩🇪…"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", 5, "\u1112\u1161\u11ab…"),
        ("aaaa\r\nbbbb", 6, "aaaa…"),
    ],
)
def test_truncated(text, budget, expected):
    assert truncate(text, budget, CHARACTERS) == expected


@given(
    st.text(st.one_of(st.sampled_from("ab 的\u0301\u200d🇩😀\n"), st.characters(codec="utf-8")), max_size=80),
    st.integers(0, 40),
)
def test_truncation_is_within_budget_and_a_beginning(text, budget):
    for measure in (CHARACTERS, ESTIMATE):
        short = truncate(text, budget, measure)
        assert measure.count(short) <= budget
        if short != text:
            assert measure.count(text) > budget
            assert text.startswith(short.removesuffix("…"))
            rest = text[len(short) - 1 :]
            assert not short or not unicodedata.category(rest[0]).startswith("M")


def longest_by_trying(text, budget):
    """Every cut after a word, longest first: what truncation of short spaced words must give."""
    words = text.split(" ")
    for count in range(len(words) - 1, 0, -1):
        candidate = " ".join(words[:count]) + "…"
        if ESTIMATE.count(candidate) <= budget:
            return candidate
    return None


@given(
    st.lists(st.text("abcdefg", min_size=1, max_size=6), min_size=2, max_size=40).map(" ".join),
    st.integers(3, 30),
)
def test_truncation_keeps_as_many_words_as_fit(text, budget):
    if ESTIMATE.count(text) <= budget:
        assert truncate(text, budget, ESTIMATE) == text
    elif expected := longest_by_trying(text, budget):
        assert truncate(text, budget, ESTIMATE) == expected


def test_a_long_text_is_not_counted_whole_for_a_small_budget():
    counted = []

    class Recording(EstimateCounter):
        def count(self, text):
            counted.append(len(text))
            return super().count(text)

    assert ESTIMATE.count(truncate("word " * 200_000, 10, Recording())) <= 10
    assert max(counted) < 1_000


def test_a_negative_budget_is_refused():
    with pytest.raises(InvalidInput, match="-1"):
        truncate("x", -1, ESTIMATE)


def test_counters_by_name():
    for spec in (None, "estimate", "estimate/1", ESTIMATE):
        assert counter(spec).name == "estimate/1"
    assert counter(CHARACTERS) is CHARACTERS


@pytest.mark.parametrize("spec", ["", "gpt", "estimate/2", "tokenizers:", "tokenizers:/no/such/file.json"])
def test_unknown_counters_are_refused(spec):
    with pytest.raises(InvalidInput):
        counter(spec)


def test_a_tokenizer_file_counts_exactly(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)  # of the file: must not bound the count
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    measure = counter(f"tokenizers:{path}")
    assert measure.count("hello big world , hello") == 5
    assert measure.name == f"tokenizers:{path}"
    assert counter(measure.name).count("hello world") == 2
    assert TokenizersCounter(path).count("") == 0
    assert truncate("hello world hello world", 2, measure) == "hello…"


def test_tiktoken_is_optional_and_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(InvalidInput, match="pip install tiktoken"):
        counter("tiktoken:cl100k_base")


def test_tiktoken_counts_with_the_named_encoding(monkeypatch):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    encoding = tiktoken.Encoding(
        "tiny", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 257}
    )
    monkeypatch.setattr(tiktoken, "get_encoding", {"tiny": encoding}.__getitem__)
    assert counter("tiktoken:tiny").count("abab c") == 4
    assert counter("tiktoken:tiny").count("<|end|>") == 7
