"""The lexical rules: which terms a text gives, tags found in a query, windows, validation."""

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold import text
from twofold.errors import InvalidInput
from twofold.text import TagMatcher, fuzzy_tag_match, lexemes, normalize, terms, validate_text, windows

TERMS = {
    # English: stems, stop words, irregular forms, contractions, possessives
    "The services were running": "servic run",
    "He went, they go, she has gone": "go go go",
    "children and women": "child woman",
    "Caroline's car isn't new, she'll sell it": "carolin car new sell",
    "don\u2019t worry": "worri",
    "O'Brien": "o'brien brien",
    "rust rust Rust": "rust rust rust",
    # names that look like stop words
    "the IP of server A": "ip server a",
    "A server": "server",
    "The US and the WHO praised IT": "us who prais it",
    "it told us who": "tell",
    # accents, width, ligatures, invisible characters
    "Café CAFE cafe\u0301": "cafe cafe cafe",
    "naïve Ünïcode Straße Łódź": "naiv unicod strass lodz",
    "ＡＢＣ １２３ ﬁle": "abc 123 file",
    "exam\u00adple zero\u200bwidth": "exampl zerowidth",
    "Ἀθῆναι Αθήνα": "αθηναι αθηνα",
    # numbers
    "1,000 and 1000 but 10,20": "1000 1000 10 20",
    "1,234,567.89": "1234567.89",
    "٣٤ ३४ ３４": "34 34 34",
    # identifiers
    "order_service": "order_service order servic",
    "getUserName": "getusername get user name",
    "HTTPServer userIDs PostgreSQL": "httpserver http server userids user id postgresql postgr sql",
    "state-of-the-art": "state-of-the-art state of the art",
    "auth-service": "auth-service auth servic",
    "std::vector": "std::vector std vector",
    "sha256 GPT-4": "sha256 sha 256 gpt-4 gpt 4",
    "C++ C# C": "c++ c# c",
    ".NET .env": ".net net .env env",
    "a3f5c9d2e1b0": "a3f5c9d2e1b0",
    "5th": "5th 5",
    # addresses and paths
    "192.168.1.100": "192.168.1.100 192.168.1 192.168",
    "10.0.0.1:8080": "10.0.0.1:8080 10.0.0.1 10.0.0 10.0 8080",
    "/etc/nginx/nginx.conf": "/etc/nginx/nginx.conf etc nginx nginx.conf conf",
    r"C:\Users\me": r"c:\users\me c: user me",
    "a@b.io": "a@b.io b.io io",
    "john.smith@example.com": "john.smith@example.com john.smith john smith example.com exampl com",
    "https://www.example.com/a-b": "https://www.example.com/a-b www.example.com/a-b www.example.com exampl com a-b",
    # versions, dates, times
    "v2.0.6": "v2.0.6 v2 2.0.6 2.0",
    "3.11": "3.11",
    "1.2.3-rc1": "1.2.3-rc1 1.2.3 1.2 rc1",
    "python-3.11": "python-3.11 python 3.11",
    "2026-03-12": "2026-03-12 2026-03 2026 march 12",
    "2026/3/5": "2026/3/5 2026-03-05 2026-03 2026 march 5",
    "2026-03-12T10:30:00Z": "2026-03-12t10:30:00z 2026-03-12 2026-03 2026 march 12 10:30",
    "at 10:30:15": "10:30:15 10:30",
    # Chinese and Japanese
    "数据库": "数 数据 据 据库 库",
    "是的": "是 是的 的",  # stop characters alone stay
    "关键的路径": "关 关键 键 键的 的路 路 路径 径",
    "服务器A": "服 服务 务 务器 器 器a",
    "服务器B": "服 服务 务 务器 器 器b b",
    "用C++写": "用 c++ 写",
    "版本1.5倍": "版 版本 本 1.5 倍",
    "食べる": "食 食べ べる",
    "サーバー": "サー ーバ バー",
    # other scripts
    "서울 안녕하세요": "서울 안녕하세요 안녕 녕하 하세 세요",
    "ดีครับ": "ดี ีค คร รั ับ",
    "الكِتَاب والمدرسة": "كتاب مدرسه",
    "شـــجرة": "شجره",
    "हिन्दी भाषा": "हिन्दी भाषा",
    "Ёлка ёлка елка": "елка елка елка",
    "שָׁלוֹם": "שלום",
    # nothing to say
    "": "",
    "...!?": "",
    "🎉😀": "",
}


@pytest.mark.parametrize("source, expected", TERMS.items())
def test_terms_of(source, expected):
    assert terms(source) == expected.split()


@pytest.mark.parametrize("source", ["to be or not to be", "who is it", "是的", "the"])
def test_stop_words_alone_still_give_terms(source):
    assert terms(source)
    assert terms(source, query=True) == terms(source)


def test_a_query_loses_request_words_only_beside_others():
    assert terms("please tell me about Rust", query=True) == ["rust"]
    assert terms("please tell me about Rust") == ["pleas", "tell", "rust"]
    assert terms("please tell me", query=True) == ["pleas", "tell"]


def test_a_question_meets_its_answer():
    answer = set(terms("规划器决定在关键路径上使用Rust"))
    assert len(answer & set(terms("我们为关键路径选择了什么技术", query=True))) >= 6
    assert set(terms("Which server has the address 192.168.1.100?", query=True)) <= set(
        terms("server A: address 192.168.1.100")
    )


def test_a_long_term_is_cut_and_its_parts_stay():
    blob = "x" * 1000
    assert terms(blob) == ["x" * text.MAX_TERM]
    found = terms("https://example.com/" + "/".join(f"part{i}" for i in range(100)))
    assert max(map(len, found)) == text.MAX_TERM
    assert "part99" in found


def test_lexemes_weigh_tags():
    assert lexemes("Rust is fast, Rust", ["rust", "critical-path"]) == {
        "rust": 4.0,
        "fast": 1.0,
        "critical-path": 2.0,
        "critic": 2.0,
        "path": 2.0,
    }
    assert lexemes("a cat", ["cat"], tag_weight=0.5) == {"cat": 1.5}


@given(st.text())
def test_any_text_gives_the_same_non_empty_bounded_terms(source):
    found = terms(source)
    assert found == terms(source)
    assert all(0 < len(term) <= text.MAX_TERM and not term.isspace() for term in found)
    assert sum(lexemes(source).values()) == len(found)


@given(st.text(alphabet="aZ9é的サ한ก.-_/:@,'&\\~#+ \u0301\u200d", max_size=60))
def test_any_mixture_of_joints_gives_bounded_terms(source):
    found = terms(source)
    assert all(0 < len(term) <= text.MAX_TERM for term in found)
    assert len(found) <= 8 * len(source)


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a-",
        ".",
        "a'",
        "1,",
        "1,000",
        "/",
        "的",
        "e\u0301",
        "aB",
        "A1",
        "http://",
        "ก",
        "1.1",
        "v1.1a.",
        "&'",
    ],
)
def test_time_is_linear_in_the_length(unit):
    source = unit * (200_000 // len(unit))
    assert len(terms(source)) <= 2 * len(source)  # quadratic rules would take minutes here


@given(st.text())
def test_normalize_is_idempotent(source):
    assert normalize(normalize(source)) == normalize(source)


def test_normalize_is_idempotent_on_every_character():
    for code in itertools.chain(range(0xD800), range(0xE000, 0x30000)):
        once = normalize(chr(code))
        assert normalize(once) == once, hex(code)


def test_terms_ignore_case_and_composition():
    for source in TERMS:
        assert terms(unicodedata.normalize("NFD", source)) == terms(unicodedata.normalize("NFC", source))


def test_the_order_of_hashes_changes_nothing():
    program = (
        "import json; from twofold.text import lexemes, TagMatcher; from twofold.entities import entities;"
        "t = 'Caroline met Bob at 10.0.0.1 服务器A 数据库 getUserName critical path';"
        "print(json.dumps([lexemes(t, ['b', 'a']), TagMatcher(['critical-path', 'criticalpat', 'bob']).match(t),"
        "entities(t, known=['Bob', 'path', '数据'], speaker='Ann')]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
    assert json.loads(outputs.pop())[0]["carolin"] == 1.0


def test_changed_rules_are_declared():
    """Stored terms depend on the rules: when this digest changes, raise `text._VERSION` and renew it."""
    digest = hashlib.sha256(json.dumps([terms(source) for source in TERMS]).encode()).hexdigest()
    assert (text._VERSION, digest[:16]) == (1, "1c81ef5bd17582a1")
    assert re.fullmatch(r"text/1 unicode/[\d.]+ snowball/[\d.]+", text.RULES)


GOOD = ["a", " x ", "中文", "👩‍👩‍👧", "\u0301", "line\nbreak\ttab"]
BAD = [
    (None, "must be str"),
    (b"bytes", "must be str"),
    (3, "must be str"),
    ("", "empty or blank"),
    (" \n\t\u3000", "empty or blank"),
    ("\u200b\ufeff", "empty or blank"),
    ("a\0b", "NUL character at position 1"),
    ("ab\ud800", "lone surrogate '\\\\ud800' at position 2"),
    ("\udfff", "lone surrogate"),
]


@pytest.mark.parametrize("value", GOOD)
def test_good_text_is_returned(value):
    assert validate_text(value) is value


@pytest.mark.parametrize("value, message", BAD)
def test_bad_text_is_refused_by_name(value, message):
    with pytest.raises(InvalidInput, match=message):
        validate_text(value)
    with pytest.raises(InvalidInput, match=r"^query "):
        validate_text(value, "query")


TAGS = [
    "critical-path",
    "rust",
    "performance",
    "Kubernetes",
    "redis",
    "数据库",
    "decision",
    "user_prefs",
    "C++",
    "C",
    "it",
]


@pytest.mark.parametrize(
    "query, expected",
    [
        ("Rust", {"rust": 1.0}),
        ("the critical path", {"critical-path": 1.0}),
        ("criticalpath", {"critical-path": 1.0}),
        ("critical_path?", {"critical-path": 1.0}),
        ("CRITICAL-PATH", {"critical-path": 1.0}),
        ("userPrefs", {"user_prefs": 1.0}),
        ("decisions", {"decision": 0.9}),
        ("kubernetse", {"Kubernetes": 0.8}),
        ("kubernetess", {"Kubernetes": 0.8}),
        ("kubernates", {"Kubernetes": 0.8}),
        ("kuberntes", {"Kubernetes": 0.8}),
        ("crtical path", {"critical-path": 0.8}),
        ("performed", {"performance": 0.9}),
        ("performa", {"performance": 0.5 + 0.3 * 8 / 11}),
        ("kube", {"Kubernetes": 0.62}),
        ("数据库的决定", {"数据库": 1.0}),
        ("about c++", {"C++": 1.0}),
        ("about c", {"C": 1.0}),
        ("is it done", {}),
        ("IT", {"it": 1.0}),
        ("rusty", {}),  # the tag has fewer than five letters
        ("ruts", {}),
        ("ru", {}),
        ("", {}),
    ],
)
def test_a_query_names_tags(query, expected):
    assert fuzzy_tag_match(query, TAGS) == pytest.approx(expected)


def test_tags_that_differ_in_separators_match_together():
    matcher = TagMatcher(["user prefs", "user_prefs", "user_prefs", "UserPrefs"])
    assert len(matcher) == 3
    assert matcher.match("user-prefs") == [("UserPrefs", 1.0), ("user prefs", 1.0), ("user_prefs", 1.0)]


words = st.text("abcde的", min_size=1, max_size=7)


@given(st.lists(words, max_size=12, unique=True), words, st.randoms())
def test_the_order_of_adding_tags_is_of_no_matter(tags, query, random):
    shuffled = list(tags)
    random.shuffle(shuffled)
    assert TagMatcher(tags).match(query) == TagMatcher(shuffled).match(query)


def one_edit(a, b):
    """Damerau's distance is 1, by trying every edit."""
    edits = {a[:i] + a[i + 1 :] for i in range(len(a))}
    edits |= {a[:i] + c + a[i:] for i in range(len(a) + 1) for c in b}
    edits |= {a[:i] + c + a[i + 1 :] for i in range(len(a)) for c in b}
    edits |= {a[:i] + a[i + 1] + a[i] + a[i + 2 :] for i in range(len(a) - 1)}
    return b in edits - {a}


@given(st.text("abc", min_size=4, max_size=7), st.lists(st.text("abc", min_size=4, max_size=7), unique=True))
def test_misspelt_tags_are_those_one_edit_away(query, tags):
    matched = TagMatcher(tags)._one_edit_away(query)
    expected = {t for t in tags if len(t) >= 5 and len(query) >= 5 and one_edit(query, t)}
    assert set(matched) == expected


@given(st.lists(words, max_size=8, unique=True), words, words)
def test_whether_a_tag_matches_does_not_depend_on_the_others(tags, extra, query):
    alone = dict(TagMatcher(tags).match(query))
    beside = dict(TagMatcher([*tags, extra]).match(query))
    assert {tag: beside.get(tag) for tag in tags} == {tag: alone.get(tag) for tag in tags}


def tokens_of(source):
    return [match.span() for match in re.finditer(r"\w|[^\w\s]", source)]


def test_a_text_that_fits_is_one_window():
    assert windows("one two", [(0, 3), (4, 7)], 2) == [(0, 7)]
    assert windows("", [], 5) == [(0, 0)]


def test_windows_end_at_sentences_and_begin_at_sentences():
    source = "One two three four. Five six seven eight. Nine ten eleven twelve. "
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", source)]
    found = [source[a:b] for a, b in windows(source, spans, 11, 6)]
    assert found == [
        "One two three four. Five six seven eight. ",
        "Five six seven eight. Nine ten eleven twelve. ",
    ]


def test_windows_without_sentences_end_at_words():
    source = "aaa bbb ccc ddd eee fff"
    cut = windows(source, tokens_of(source), 8, 3)
    assert all(b == len(source) or source[b - 1] == " " for _, b in cut)


def test_windows_of_chinese_end_at_full_stops():
    source = "今天天气很好。我们去公园。然后回家吃饭。"
    spans = [(i, i + 1) for i in range(len(source))]
    assert source[slice(*windows(source, spans, 14, 2)[0])] == "今天天气很好。我们去公园。"


@given(st.text("ab. 。\n", max_size=120), st.integers(1, 20), st.integers(0, 30))
def test_windows_cover_every_character_in_order(source, max_tokens, overlap):
    spans = tokens_of(source)
    found = windows(source, spans, max_tokens, overlap)
    assert found == windows(source, spans, max_tokens, overlap)
    assert found[0][0] == 0
    assert found[-1][1] == len(source)
    for (start, end), (next_start, next_end) in itertools.pairwise(found):
        assert start < next_start <= end < next_end
    for start, end in found:
        assert sum(start <= a and b <= end for a, b in spans) <= max_tokens


@given(st.lists(st.integers(1, 3), max_size=30), st.integers(1, 6), st.integers(0, 6))
def test_several_tokens_of_one_character_do_not_stop_the_windows(counts, max_tokens, overlap):
    source = "x" * len(counts)
    spans = [(i, i + 1) for i, count in enumerate(counts) for _ in range(count)]
    found = windows(source, spans, max_tokens, overlap)
    assert {i for a, b in found for i in range(a, b)} == set(range(len(source)))


@pytest.mark.parametrize("max_tokens, overlap", [(0, 1), (-1, 0), (5, -1)])
def test_impossible_windows_are_refused(max_tokens, overlap):
    with pytest.raises(InvalidInput):
        windows("text", [(0, 4)], max_tokens, overlap)


def test_threads_agree():
    sources = [*TERMS, *(f"services number{i} running{i} connections{i}" for i in range(300))]
    text._token_terms.cache_clear()
    text._stem.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        parallel = [list(pool.map(terms, sources)) for _ in range(2)]
    assert parallel == [[terms(source) for source in sources]] * 2
