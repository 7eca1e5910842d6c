from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold import frames
from twofold.frames import ATTRIBUTES, Frame, Verdict, contradicts, extend_attributes, frame

BENCH = Path(__file__).parents[1] / "benchmarks" / "supersession"


def verdict(first: str, second: str) -> Verdict:
    older, newer = frame(first), frame(second)
    assert older is not None, first
    assert newer is not None, second
    return contradicts(older, newer)


@pytest.mark.parametrize(
    "text,expected",
    [
        ("the IP of server A is 192.168.1.100", ("server a", "ip", "192.168.1.100")),
        ("Server A's IP address is now 192.168.1.150.", ("server a", "ip", "192.168.1.150")),
        ("server A has IP 10.0.0.1", ("server a", "ip", "10.0.0.1")),
        ("The address of server A is 10.0.0.1", ("server a", "ip", "10.0.0.1")),
        ("IP of server A = 10.0.0.1", ("server a", "ip", "10.0.0.1")),
        ("Redis cache port is 6379", ("redis cache", "port", "6379")),
        ("The SSH port of server A is 22", ("server a", "ssh port", "22")),
        ("The billing API has been upgraded to version v2.4.0.", ("billing api", "version", "2.4.0")),
        ("The CEO of Nordwind is Helga Brandt", ("nordwind", "ceo", "helga brandt")),
        ("The release date of Falcon is May 5", ("falcon", "release date", "--05-05")),
        ("The Aurora lamp costs $1,200", ("aurora lamp", "price", "1200 $")),
        ("The rent of flat 9 is €900 per month", ("flat 9", "rent", "900 €/month")),
        ("Update: the status of job 7 is failed", ("job 7", "status", "failed")),
        ("The port of X1 was changed from 80 to 8080", ("x1", "port", "8080")),
        ("The IP of server A is now 10.0.0.9 instead of 10.0.0.1", ("server a", "ip", "10.0.0.9")),
        ("服务器A的IP是192.168.1.100", ("服务器a", "ip", "192.168.1.100")),
        ("服务器A的IP地址改为192.168.1.150。", ("服务器a", "ip", "192.168.1.150")),
        ("服务器A的IP变更为10.0.0.2", ("服务器a", "ip", "10.0.0.2")),
        ("服务器 A 的 IP 地址现在是 10.1.1.1", ("服务器a", "ip", "10.1.1.1")),
        ("已将网关的端口从8080改为8081", ("网关", "port", "8081")),
        ("华为的首席执行官是任正非", ("华为", "ceo", "任正非")),
        ("iPhone 15售价6999元", ("iphone 15", "price", "6999 元")),
        ("晨星项目现在由周敏负责", ("晨星项目", "lead", "周敏")),
        ("周会的时间改为周二下午2点", ("周会", "meeting time", "tuesdayt14:00")),
    ],
)
def test_a_plain_statement_has_a_frame(text: str, expected: tuple[str, str, str]) -> None:
    assert frame(text) == Frame(*expected)


NO_FRAME = """
The IP of server A is not 10.0.0.1
The IP of server A isn't 10.0.0.1
Is the IP of server A 10.0.0.1?
The IP of server A is 10.0.0.1?
The IP of server A might be 10.0.0.1
Maybe the IP of server A is 10.0.0.1
If the IP of server A is 10.0.0.1, restart it
The IP of server A was 10.0.0.1
The IP of server A used to be 10.0.0.1
The IP of server A will be 10.0.0.1
The former IP of server A is 10.0.0.1
Another IP of server A is 10.0.0.1
An IP of server A is 10.0.0.1
One IP of server A is 10.0.0.1
The IP of server A is 10.0.0.1 and 10.0.0.2
The IP of server A is 10.0.0.1, 10.0.0.2
The supported version of plugin Z is 3.10
The price of lot 5 is higher than $100
The price of lot 5 is $100-$200
The price of lot 5 is about $100
The price of lot 5 is under $100
The deadline for Apollo is tomorrow
Karl said the IP of server A is 10.0.0.1
Karl: "the IP of server A is 10.0.0.1"
The IP of server A is 10.0.0.1. The port is 80.
The IP of server A is 10.0.0.1; its port is 80
My phone number is 555-123-4567
Our office's address is 12 Main Street
Its port is 8080
The deadline is March 5
Change the IP of server A to 10.0.0.2
Server A's IP is in the wiki
Final deadline: October 1, 2024
The price for members is $5
服务器A的IP不是10.0.0.1
服务器A的IP是10.0.0.1吗？
服务器A的IP可能是10.0.0.1
如果服务器A的IP是10.0.0.1
服务器A以前的IP是10.0.0.1
服务器A的另一个IP是10.0.0.1
服务器A的IP之一是10.0.0.1
服务器A的备用IP是10.0.0.1
服务器A开放端口是22
服务器A的IP将改为10.0.0.1
听说服务器A的IP是10.0.0.1
我的电话是13800138000
服务器A的IP是10.0.0.1，端口是80
商品B的价格低于100元
请把服务器A的IP改为10.0.0.2
"""


@pytest.mark.parametrize(
    "text", ["", "   ", "The IP of X1 is 10.0.0.1" + " " * 300, *NO_FRAME.strip().splitlines()]
)
def test_anything_else_has_none(text: str) -> None:
    assert frame(text) is None


SAME, UNSURE, CONTRADICTS, UNRELATED = Verdict.SAME, Verdict.UNSURE, Verdict.CONTRADICTS, Verdict.UNRELATED


@pytest.mark.parametrize(
    "first,second,expected",
    [
        ("Server A's IP is 10.0.0.1", "The IP of server A is 10.0.0.2", CONTRADICTS),
        ("Server A's IP is 10.0.0.1", "The IP of server B is 10.0.0.2", UNRELATED),
        ("Server A's public IP is 5.0.0.1", "Server A's private IP is 10.0.0.2", UNRELATED),
        ("Server A's IP is 10.0.0.1", "Server A's IP is fe80::1", UNSURE),
        ("Server A's IP is 10.0.0.1", "Server A's IP is 8.8.8.8", UNSURE),
        ("The server's IP is 10.0.0.1", "The server's IP is 10.0.0.2", UNSURE),
        ("N5's memory is 1 GB", "N5's memory is 1024 MB", SAME),
        ("N5's memory is 1 GB", "N5's memory is 1000 MB", SAME),
        ("N5's memory is 1 GB", "N5's memory is 2048 MB", CONTRADICTS),
        ("X1's port is 8080", "X1's port is port 8080", SAME),
        ("Ana's phone is +1 (555) 010-4477", "Ana's phone is 555-010-4477", SAME),
        ("X1's version is v1.2", "X1's version is 1.2.0", SAME),
        ("X1's version is 3.11", "X1's version is 3.11.4", UNSURE),
        ("X1's version is PostgreSQL 14", "X1's version is MySQL 8", UNSURE),
        ("X1's deadline is March 5, 2026", "X1's deadline is 2026-03-05", SAME),
        ("X1's deadline is March 5", "X1's deadline is 5th of March 2026", SAME),
        ("X1's deadline is March 5", "X1's deadline is Friday", UNSURE),
        ("X1's deadline is 03/04/2026", "X1's deadline is 04/03/2026", UNSURE),
        ("X1's deadline is March 5", "X1's deadline is March 5 at 5 pm", UNSURE),
        ("X1's deadline is Friday", "X1's deadline is Monday", CONTRADICTS),
        ("X1's deadline is Q3 2026", "X1's deadline is Q4 2026", CONTRADICTS),
        ("X1's meeting time is 3 pm", "X1's meeting time is 15:00", SAME),
        ("X1's meeting time is 9:30", "X1's meeting time is 9:30 pm", UNSURE),
        ("X1's price is $20", "X1's price is €18", UNSURE),
        ("X1's price is $20 per month", "X1's price is $200 per year", UNSURE),
        ("X1's price is $1,200", "X1's price is 1.2k USD", SAME),
        ("X1's owner is Bob", "X1's owner is Robert", UNSURE),
        ("X1's owner is Bob Stone", "X1's owner is Bob", UNSURE),
        ("X1's owner is Ana", "X1's owner is Anna", UNSURE),
        ("X1's owner is Alice", "X1's owner is the platform team", UNSURE),
        ("X1's owner is Alice", "X1's owner is Daniel", CONTRADICTS),
        ("X1's status is open", "X1's status is in progress", UNSURE),
        ("X1's status is done", "X1's status is completed", UNSURE),
        ("X1's status is open", "X1's status is closed", CONTRADICTS),
        ("Farah lives in Canada", "Farah lives in Toronto", UNSURE),
        ("Farah lives in Bombay", "Farah lives in Mumbai", SAME),
        ("Farah lives in Toronto", "Farah now lives in Montreal", CONTRADICTS),
        ("X1's address is 14 Harbour Street", "X1's address is 14 Harbour St.", UNSURE),
        ("X1's website is kite.example", "X1's website is kite.example/en", UNSURE),
        ("海鸥项目的预算是50万元", "海鸥项目的预算为500,000元", SAME),
        ("李雷住在北京", "李雷现在住在成都", CONTRADICTS),
        ("晨星项目的负责人是张工", "晨星项目的负责人是张伟", UNSURE),
        ("服务器A的IP是10.0.0.1", "服务器A的IP改为10.0.0.2", CONTRADICTS),
    ],
)
def test_values_are_compared_by_what_they_mean(first: str, second: str, expected: Verdict) -> None:
    assert verdict(first, second) is expected


@pytest.fixture
def attributes() -> Iterator[None]:
    tables = (ATTRIBUTES, frames._ENGLISH, frames._CHINESE, frames._HEADS)
    kept, longest = [table.copy() for table in tables], frames._LONGEST
    yield
    for table, old in zip(tables, kept, strict=True):
        table.clear()
        table.update(old)  # type: ignore[arg-type]
    frames._LONGEST = longest
    frames._zh_patterns = frames._zh_hint = None


@pytest.mark.usefixtures("attributes")
def test_the_list_of_attributes_can_be_extended() -> None:
    assert frame("The mascot of Orion is blue heron") is None
    extend_attributes("mascot", english=["team mascot"], chinese=["吉祥物"])
    assert frame("The team mascot of Orion is blue heron") == Frame("orion", "mascot", "blue heron")
    assert frame("猎户队的吉祥物是苍鹭") == Frame("猎户队", "mascot", "苍鹭")
    assert verdict("Orion's mascot is Blue Heron", "Orion's mascot is otter") is CONTRADICTS
    with pytest.raises(ValueError, match="already means"):
        extend_attributes("totem", english=["mascot"])
    with pytest.raises(ValueError, match="already has kind"):
        extend_attributes("mascot", kind="name")
    with pytest.raises(ValueError, match="unknown"):
        extend_attributes("totem", kind="animal")
    assert "totem" not in ATTRIBUTES


def test_a_frame_stored_under_an_attribute_unknown_here_is_never_closed() -> None:
    assert contradicts(Frame("x", "mascot", "a"), Frame("x", "mascot", "b")) is UNSURE


def test_every_comparer_agrees_with_itself_and_is_symmetric() -> None:
    pairs = [json.loads(line) for line in (BENCH / "development.jsonl").read_text("utf-8").splitlines()]
    groups: dict[str, list[Frame]] = {}
    for pair in pairs:
        for made in (frame(pair["first"]), frame(pair["second"])):
            if made is not None:
                groups.setdefault(made.attribute, []).append(made._replace(entity="x1"))
    assert sum(map(len, groups.values())) > 300
    for group in groups.values():
        for a in group:
            assert contradicts(a, a) is SAME
            for b in group:
                assert contradicts(a, b) is contradicts(b, a), (a, b)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=320) | st.text(alphabet="服务器A的IP是10.: 改为1not's", max_size=60))
def test_any_text_is_read_without_error_and_alike_every_time(text: str) -> None:
    made = frame(text)
    assert frame(text) == made
    if made is not None:
        assert all(part and part == " ".join(part.casefold().split()) for part in made)
        assert contradicts(made, made) is SAME


def test_the_development_set_is_kept_as_measured() -> None:
    run = subprocess.run(
        [sys.executable, BENCH / "run.py", "--frames", "--json", BENCH / "development.jsonl"],
        capture_output=True,
        text=True,
        check=True,
    )
    (result,) = json.loads(run.stdout)["pairs"]
    assert result["contradictions"] >= 75
    assert result["hard_negatives"] >= 150
    assert result["wrong"] == []
    assert result["recall"] >= 0.95
