"""Times in questions and in data. "Now" is Wednesday, 15 May 2024, 10:30 UTC."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.errors import InvalidInput
from twofold.timewords import BEGINNING, END, parse_loose_datetime, time_expressions

NOW = datetime(2024, 5, 15, 10, 30, tzinfo=UTC)


def spans(query, now=NOW):
    """Each span as "start..end kind", dates only where both ends are at midnight."""

    def show(moment):
        if moment in (BEGINNING, END):
            return "*"
        return moment.strftime("%Y-%m-%d" if (moment.hour, moment.minute) == (0, 0) else "%Y-%m-%dT%H:%M")

    return [f"{show(s.start)}..{show(s.end)} {s.kind}" for s in time_expressions(query, now)]


ENGLISH = {
    "what did I do today": "2024-05-15..2024-05-16 day",
    "who called yesterday evening?": "2024-05-14..2024-05-15 day",
    "the day before yesterday": "2024-05-13..2024-05-14 day",
    "and tomorrow": "2024-05-16..2024-05-17 day",
    "meetings the day after tomorrow": "2024-05-17..2024-05-18 day",
    "where was I last night": "2024-05-14..2024-05-15 day",
    "this morning": "2024-05-15..2024-05-16 day",
    "decisions of last week": "2024-05-06..2024-05-13 week",
    "this week": "2024-05-13..2024-05-20 week",
    "next week": "2024-05-20..2024-05-27 week",
    "last weekend": "2024-05-11..2024-05-13 weekend",
    "what happened at the weekend": "2024-05-11..2024-05-13 weekend",
    "last month": "2024-04-01..2024-05-01 month",
    "the previous month": "2024-04-01..2024-05-01 month",
    "next month": "2024-06-01..2024-07-01 month",
    "this year": "2024-01-01..2025-01-01 year",
    "last year": "2023-01-01..2024-01-01 year",
    "last quarter": "2024-01-01..2024-04-01 quarter",
    "3 days ago": "2024-05-12..2024-05-13 day",
    "a day ago": "2024-05-14..2024-05-15 day",
    "two weeks ago": "2024-04-28..2024-05-05 week",
    "a couple of months ago": "2024-03-01..2024-04-01 month",
    "6 months ago": "2023-11-01..2023-12-01 month",
    "five years ago": "2019-01-01..2020-01-01 year",
    "two hours ago": "2024-05-15T08:00..2024-05-15T09:00 hour",
    "in the last 3 days": "2024-05-12..2024-05-16 range",
    "over the past two weeks": "2024-05-01..2024-05-16 range",
    "over the past week": "2024-05-08..2024-05-16 range",
    "the last 2 months": "2024-03-15..2024-05-16 range",
    "What happened in March?": "2024-03-01..2024-04-01 month",
    "what is planned in may": "2024-05-01..2024-06-01 month",
    "the trip in June": "2023-06-01..2023-07-01 month",
    "December was cold": "2023-12-01..2024-01-01 month",
    "in March 2023": "2023-03-01..2023-04-01 month",
    "the March of 2023": "2023-03-01..2023-04-01 month",
    "last March": "2024-03-01..2024-04-01 month",
    "last May": "2023-05-01..2023-06-01 month",
    "next March": "2025-03-01..2025-04-01 month",
    "on 5 May 2023": "2023-05-05..2023-05-06 day",
    "on the 5th of May, 2023": "2023-05-05..2023-05-06 day",
    "May 5th, 2023": "2023-05-05..2023-05-06 day",
    "on May 5": "2024-05-05..2024-05-06 day",
    "on Aug 5": "2023-08-05..2023-08-06 day",
    "on 29 February": "2024-02-29..2024-03-01 day",
    "2023-05-05": "2023-05-05..2023-05-06 day",
    "2023/5/5 please": "2023-05-05..2023-05-06 day",
    "on 5/8/2023": "2023-05-08..2023-05-09 day",
    "on 25/8/2023": "2023-08-25..2023-08-26 day",
    "in 2023-05": "2023-05-01..2023-06-01 month",
    "in 2022": "2022-01-01..2023-01-01 year",
    "2020 to 2022": "2020-01-01..2023-01-01 range",
    "summer of 2022": "2022-06-01..2022-09-01 season",
    "last summer": "2023-06-01..2023-09-01 season",
    "in the winter": "2023-12-01..2024-03-01 season",
    "last Monday": "2024-05-13..2024-05-14 day",
    "last Wednesday": "2024-05-08..2024-05-09 day",
    "this Friday": "2024-05-17..2024-05-18 day",
    "next Wednesday": "2024-05-22..2024-05-23 day",
    "what did Bob say on Tuesday": "2024-05-14..2024-05-15 day",
    "on Fri": "2024-05-10..2024-05-11 day",
    "before May 5": "*..2024-05-05 before",
    "before last week": "*..2024-05-06 before",
    "until March": "*..2024-04-01 before",
    "by 2023-05-05": "*..2023-05-06 before",
    "after 5 May 2023": "2023-05-06..* after",
    "since March": "2024-03-01..* after",
    "since yesterday": "2024-05-14..* after",
    "from March to April": "2024-03-01..2024-05-01 range",
    "between March and April 2023": "2023-03-01..2023-05-01 range",
    "from May 1 to May 5": "2024-05-01..2024-05-06 range",
    "between 2023-01-01 and 2023-02-01": "2023-01-01..2023-02-02 range",
    "from November to February": "2023-11-01..2024-03-01 range",
    "in early March 2024": "2024-03-01..2024-03-11 range",
    "at the end of last month": "2024-04-21..2024-05-01 range",
}

CHINESE = {
    "昨天我做了什么": "2024-05-14..2024-05-15 day",
    "今天的会议": "2024-05-15..2024-05-16 day",
    "前天谁打了电话": "2024-05-13..2024-05-14 day",
    "大前天": "2024-05-12..2024-05-13 day",
    "明天下午": "2024-05-16..2024-05-17 day",
    "昨晚吃了什么": "2024-05-14..2024-05-15 day",
    "上周的决定": "2024-05-06..2024-05-13 week",
    "这周": "2024-05-13..2024-05-20 week",
    "下个星期": "2024-05-20..2024-05-27 week",
    "上周三开会": "2024-05-08..2024-05-09 day",
    "下周日": "2024-05-26..2024-05-27 day",
    "上周末": "2024-05-11..2024-05-13 weekend",
    "周一说了什么": "2024-05-13..2024-05-14 day",
    "上个月": "2024-04-01..2024-05-01 month",
    "上个月五号": "2024-04-05..2024-04-06 day",
    "本月": "2024-05-01..2024-06-01 month",
    "三月份发生了什么": "2024-03-01..2024-04-01 month",
    "十二月": "2023-12-01..2024-01-01 month",
    "去年三月": "2023-03-01..2023-04-01 month",
    "去年": "2023-01-01..2024-01-01 year",
    "前年": "2022-01-01..2023-01-01 year",
    "2022年": "2022-01-01..2023-01-01 year",
    "三天前": "2024-05-12..2024-05-13 day",
    "两个星期前": "2024-04-28..2024-05-05 week",
    "3个月以前": "2024-02-01..2024-03-01 month",
    "半年前": "2023-11-01..2023-12-01 month",
    "5月8日": "2024-05-08..2024-05-09 day",
    "5月20日": "2023-05-20..2023-05-21 day",
    "2023年5月8日": "2023-05-08..2023-05-09 day",
    "２０２３年五月八号": "2023-05-08..2023-05-09 day",
    "去年夏天": "2023-06-01..2023-09-01 season",
    "上季度": "2024-01-01..2024-04-01 quarter",
    "最近三天": "2024-05-12..2024-05-16 range",
    "过去一个月": "2024-04-15..2024-05-16 range",
    "5月8日之前": "*..2024-05-08 before",
    "三月份以后": "2024-04-01..* after",
    "去年以来": "2023-01-01..* after",
    "3月到4月": "2024-03-01..2024-05-01 range",
    "从5月1日至5月3日": "2024-05-01..2024-05-04 range",
}

NOTHING = [
    "",
    "what is the IP of server A",
    "may I march with Mark on the second try",
    "see port 2022 and version 3.11",
    "before the move",
    "I read 192.168.1.100 and v2024.5.1",
    "9999 years ago",
    "一周三次跑步",
    "我们一起去",
    "第三方服务器的端口",
]


@pytest.mark.parametrize("query, expected", [*ENGLISH.items(), *CHINESE.items()])
def test_a_question_names_one_time(query, expected):
    assert spans(query) == [expected]


@pytest.mark.parametrize("query", NOTHING)
def test_what_is_no_time_gives_none(query):
    assert spans(query) == []


def test_of_an_impossible_day_its_month_remains():
    assert spans("on 30 February 2023") == ["2023-02-01..2023-03-01 month"]


def test_several_times_come_in_order_with_their_words():
    found = time_expressions("Was it before March 2023, or on Monday? 还是昨天", NOW)
    assert [(s.text, s.kind) for s in found] == [
        ("before March 2023", "before"),
        ("Monday", "day"),
        ("昨天", "day"),
    ]


def test_a_zone_of_now_is_respected():
    late = datetime(2024, 5, 15, 23, 0, tzinfo=timezone(timedelta(hours=-5)))
    assert spans("today", late) == ["2024-05-16..2024-05-17 day"]


def test_naive_now_is_refused():
    with pytest.raises(InvalidInput, match="zone"):
        time_expressions("yesterday", datetime(2024, 5, 15))


@pytest.mark.parametrize("now", [BEGINNING, END, datetime(1, 3, 1, tzinfo=UTC)])
def test_the_ends_of_the_calendar_give_no_error(now):
    for query in (*ENGLISH, *CHINESE):
        for span in time_expressions(query, now):
            assert span.start < span.end


PIECES = [
    *ENGLISH,
    *CHINESE,
    "before",
    "after",
    "from",
    "to",
    "and",
    "前",
    "到",
    "0",
    "31",
    "-",
    "/",
    "May",
    "年",
]


@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from(PIECES)).map(" ".join),
        st.text("0123456789年月日号前上周一-/: of"),
    )
)
def test_any_text_gives_ordered_intervals(query):
    found = time_expressions(query, NOW)
    assert found == time_expressions(query, NOW)
    for span in found:
        assert span.start < span.end
        assert span.start.tzinfo is UTC
        assert span.text


STAMPS = {
    "1:56 pm on 8 May, 2023": "2023-05-08T13:56:00+00:00",
    "12:09 am on 13 September, 2023": "2023-09-13T00:09:00+00:00",
    "12:30 pm on 1 Jan, 2024": "2024-01-01T12:30:00+00:00",
    "March-15-2024": "2024-03-15T00:00:00+00:00",
    "2024-03-15": "2024-03-15T00:00:00+00:00",
    "2024-03-15T10:30:00Z": "2024-03-15T10:30:00+00:00",
    "2024-03-15T10:30:00+08:00": "2024-03-15T02:30:00+00:00",
    "2024-03-15 10:30:15": "2024-03-15T10:30:15+00:00",
    "2023/05/08 (Mon) 13:56": "2023-05-08T13:56:00+00:00",
    "Mon, 08 May 2023 13:56:00 GMT": "2023-05-08T13:56:00+00:00",
    "Mon, 08 May 2023 13:56:00 +0200": "2023-05-08T11:56:00+00:00",
    "May 8, 2023 1:56 PM": "2023-05-08T13:56:00+00:00",
    "May 8th, 2023 at 7pm": "2023-05-08T19:00:00+00:00",
    "8 May 2023": "2023-05-08T00:00:00+00:00",
    "5/8/2023": "2023-05-08T00:00:00+00:00",
    "13/8/2023": "2023-08-13T00:00:00+00:00",
    "May 2023": "2023-05-01T00:00:00+00:00",
    "2023年5月8日": "2023-05-08T00:00:00+00:00",
    "2023年5月8日 下午1点56分": "2023-05-08T13:56:00+00:00",
    "2023年5月8日上午9:30": "2023-05-08T09:30:00+00:00",
    "２０２３年５月８日": "2023-05-08T00:00:00+00:00",
}


@pytest.mark.parametrize("text, expected", STAMPS.items())
def test_date_strings(text, expected):
    assert parse_loose_datetime(text).isoformat() == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "yesterday",
        "8 May",
        "13:56",
        "2023",
        "31 February 2023",
        "2023-13-01",
        "25:99 on 8 May, 2023",
        "x" * 500,
    ],
)
def test_no_full_date_gives_none(text):
    assert parse_loose_datetime(text) is None


@given(st.one_of(st.text(max_size=90), st.text("0123456789-/: TZ+年月日pmMay,", max_size=40)))
def test_any_stamp_gives_utc_or_none(text):
    moment = parse_loose_datetime(text)
    assert moment is None or moment.tzinfo is UTC


@given(st.datetimes(timezones=st.just(UTC), max_value=datetime(9999, 1, 1)))
def test_iso_strings_are_read_exactly(moment):
    assert parse_loose_datetime(moment.isoformat()) == moment
