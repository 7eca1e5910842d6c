"""Entities found by rules, by names that are given, and in queries by names that are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.entities import Entity, NameSet, entities, entity_key, entity_units, query_entities

FOUND = {
    # names
    "Caroline went to Oslo with Melanie's kids": "Caroline|Oslo|Melanie",
    "The planner chose Rust for the critical path": "Rust",
    "I met Ludwig van Beethoven at the University of California": "Ludwig van Beethoven|University of California",
    "by J. R. R. Tolkien": "J. R. R. Tolkien",
    "Thanks Melanie, I love New York!": "Melanie|New York",
    "New York is big. Emily said so": "New York|Emily",
    "the LGBTQ group met NASA": "LGBTQ|NASA",
    "Łódź, Čapek, Ørsted and Москва": "Łódź|Čapek|Ørsted|Москва",
    "AT&T and O'Brien and Jean-Luc": "AT&T|O'Brien|Jean-Luc",
    "Dr. Smith told Anna": "Smith|Anna",
    "when Anna I mean Bob": "Anna|Bob",
    "使用Rust和PostgreSQL": "Rust|PostgreSQL",
    # not names
    "Running is fun. Yesterday was great! Absolutely.": "",
    "What did they say? How are you?": "",
    "On Monday in March I rested": "",
    "Define Your Project Scope": "",
    "WHY ARE YOU SHOUTING AT BOB SMITH": "",
    "The Very First Step Of Your Long Journey To Mastery": "",
    "OK, TV at 5 PM": "",
    "": "",
    # numbered things
    "the IP of server A": "server A",
    "Server #3 and node 12 failed": "Server 3|node 12",
    "I met a server. A new one": "",
    "服务器A的地址，方案 B，数据库12": "服务器A|方案B|数据库12",
    # addresses, paths, files
    "it is 192.168.1.100.": "192.168.1.100",
    "是192.168.1.150，端口": "192.168.1.150",
    "10.0.0.1:8080 fe80::1 2001:db8:0:0:1:0:0:1": "10.0.0.1|fe80::1|2001:db8:0:0:1:0:0:1",
    "at 10:30:00 or 1.2.3.4.5": "",
    "mail bob.smith@mail.example.com now": "bob.smith@mail.example.com",
    "see https://example.com/a?b=1, ok": "https://example.com/a?b=1",
    "on db01.prod.internal and example.com.": "db01.prod.internal|example.com",
    "edit /etc/nginx/nginx.conf, ~/.ssh/config": "/etc/nginx/nginx.conf|~/.ssh/config",
    "src/app/main.py and config.yaml": "src/app/main.py|config.yaml",
    r"in C:\Users\bob\x.txt": r"C:\Users\bob\x.txt",
    "and/or, 24/7, km/h": "",
    # code, versions, tickets, marks
    "order_service calls getUserName()": "order_service|getUserName",
    "std::vector and json.loads()": "std::vector|json.loads",
    "the `foo-bar` flag": "foo-bar",
    "auth-service is well-known": "auth-service",
    "v2.0.6 or 1.2.3-rc1": "v2.0.6|1.2.3-rc1",
    "ABC-123, CVE-2024-1234, issue #42": "ABC-123|CVE-2024-1234|issue 42",
    "#redis by @alice_b": "#redis|@alice_b",
    "# heading and #1": "",
    # titles
    'we read “The Great Gatsby” and "Dune Messiah"': "The Great Gatsby|Dune Messiah",
    "我读了《三体》和「雪国」": "三体|雪国",
}


@pytest.mark.parametrize("source, expected", FOUND.items())
def test_entities_of(source, expected):
    assert "|".join(entity.name for entity in entities(source)) == expected


@pytest.mark.parametrize(
    "source, kind",
    [
        ("met Anna", "name"),
        ("server A", "name"),
        ("服务器A", "name"),
        ("《三体》", "title"),
        ("a_b", "code"),
        ("`x y`", None),
        ("`xy`", "code"),
        ("a.py", "file"),
        ("/a/b", "path"),
        ("a.com", "host"),
        ("http://a.com", "url"),
        ("10.0.0.1", "ip"),
        ("fe80::1", "ip"),
        ("a@b.io", "email"),
        ("v2.0", "version"),
        ("AB-1", "ticket"),
        ("#tag", "hashtag"),
        ("@bob", "mention"),
    ],
)
def test_kinds(source, kind):
    assert [entity.kind for entity in entities(source)] == ([kind] if kind else [])


def test_the_speaker_comes_first_and_each_entity_once():
    assert entities("Bob saw ann. ANN saw Bob", speaker="Ann", known=["ann"]) == [
        Entity("Ann", "speaker"),
        Entity("Bob", "name"),
    ]


def test_given_names_are_found_where_they_stand():
    assert entities("张三和李四在北京，见了bob smith", known=["李四", "张三", "王五", "Bob  Smith"]) == [
        Entity("张三", "known"),
        Entity("李四", "known"),
        Entity("Bob  Smith", "known"),
    ]


def test_the_order_of_given_names_is_of_no_matter():
    names = ["北京", "北京大学", "张三"]
    text = "张三在北京大学，不在北京"
    assert entities(text, known=names) == entities(text, known=names[::-1])
    assert [e.name for e in entities(text, known=names)] == ["张三", "北京大学", "北京"]


@pytest.mark.parametrize(
    "name, key",
    [
        ("  John   Smith ", "john smith"),
        ("ＡＢＣ", "abc"),
        ("Straße", "strasse"),
        ("\tA\nb", "a b"),
        (" ", ""),
    ],
)
def test_keys(name, key):
    assert entity_key(name) == key
    assert entity_key(key) == key


@pytest.mark.parametrize(
    "name, units", [("John Smith", 2), ("服务器A", 4), ("order_service", 2), ("c++", 1), ("", 0), ("!", 0)]
)
def test_units(name, units):
    assert entity_units(name) == units


KNOWN = NameSet(
    [
        "Caroline",
        "服务器A",
        "john smith",
        "John",
        "critical path",
        "Will",
        "New York",
        "order_service",
        "C++",
        "张三",
    ]
)


@pytest.mark.parametrize(
    "query, expected",
    [
        ("what did caroline say?", "caroline"),
        ("CAROLINE'S car", "caroline"),
        ("about john  smith and john", "john smith|john"),
        ("the critical path", "critical path"),
        ("服务器A的地址是什么", "服务器a"),
        ("昨天张三说了什么", "张三"),
        ("will it rain", ""),
        ("ask Will about it", "will"),
        ("in new york with c++", "new york|c++"),
        ("order_service", "order_service"),
        ("who is Dave at 10.0.0.1", "dave|10.0.0.1"),
        ("carolines", ""),
        ("", ""),
    ],
)
def test_a_query_names_known_things(query, expected):
    assert "|".join(query_entities(query, KNOWN)) == expected


def test_a_name_set_grows():
    names = NameSet()
    assert (len(names), names.max_words) == (0, 0)
    names.add("New York City")
    names.add("new york  city")
    assert (len(names), names.max_words, "new york city" in names) == (1, 3, True)
    assert query_entities("i love new york city", names) == ["new york city"]


@given(st.text(), st.lists(st.text(max_size=6), max_size=4))
def test_any_text_gives_unique_keys_the_same_each_time(source, known):
    found = entities(source, known=known)
    assert found == entities(source, known=known)
    keys = [entity_key(entity.name) for entity in found]
    assert len(set(keys)) == len(keys)
    assert all(keys)


PARTS = [
    "Anna",
    "server A",
    "服务器A",
    "/a/b",
    "a.py",
    "https://a.io",
    "a_b",
    "《x》",
    '"',
    "“",
    "`",
    "#",
    "@",
    ".",
    "I",
    " ",
    "的",
]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
def test_any_mixture_of_marks_is_read(source):
    for entity in entities(source):
        assert entity.name.strip() == entity.name != ""
    assert query_entities(source, KNOWN) == query_entities(source, KNOWN)


@pytest.mark.parametrize(
    "unit",
    'a a- a/ a. Ab_ :: a:: 1. /a @a `a "A 《a aB a_ A-1 a@a. f: x-1- ~/ a=:// A\' Aa_of_ 服务器_ A_ "__'.split(),
)
def test_time_is_linear_in_the_length(unit):
    unit = unit.replace("_", " ") if unit != "a_" else unit
    source = unit * (100_000 // len(unit))
    assert len(entities(source)) <= len(source)  # quadratic rules would take minutes here


@pytest.mark.parametrize(
    "source, expected",
    [
        ("Caroline", "Caroline"),
        ("Rust?", "Rust"),
        ("Caroline went home", "Caroline"),
        ("Caroline likes it", "Caroline"),
        ("Caroline, look!", "Caroline"),
        ("Nate and Joanna play", "Nate|Joanna"),
        ("Rust很快", "Rust"),
        ("Structure your notes", ""),  # a lone first word with nothing that says it is a name
        ("I like Flask. Flask apps start fast", "Flask"),  # named for certain elsewhere
        ("## Additional Tips\n- **Peer Review**: ask Greg\n", "Greg"),  # labels of a list
        ("You're right, they've met Amy", "Amy"),
    ],
)
def test_a_capital_at_a_sentence_start_needs_more_to_be_a_name(source, expected):
    assert "|".join(entity.name for entity in entities(source)) == expected
