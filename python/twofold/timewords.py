"""Times named in a question, English and Chinese, by a fixed rule table; and the date strings of data.

What a question means by "last week" is an interval of days in UTC, a preference for the ranking to use, never
a filter. Weeks begin on Monday. A month or a day without a year is its most recent occurrence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple

from twofold.errors import InvalidInput

__all__ = ["BEGINNING", "END", "RULES", "TimeSpan", "parse_loose_datetime", "time_expressions"]

RULES: Final = "timewords/1"  # raise it when a rule below changes what a question means
BEGINNING: Final = datetime.min.replace(tzinfo=UTC)  # where "before ..." begins
END: Final = datetime.max.replace(tzinfo=UTC)  # where "after ..." ends


class TimeSpan(NamedTuple):
    """A half-open interval [start, end) of instants in UTC, and the words that named it.

    Kinds: hour, day, week, weekend, month, quarter, season, year, range, before, after. A "before" starts at
    `BEGINNING`, an "after" ends at `END`.
    """

    start: datetime
    end: datetime
    text: str
    kind: str


class _Interval(NamedTuple):
    start: datetime
    end: datetime
    kind: str


def time_expressions(query: str, now: datetime) -> list[TimeSpan]:
    """Return the times that `query` names relative to `now`, in order of appearance, without overlaps.

    Raises:
        InvalidInput: `now` without a zone.
    """
    if now.tzinfo is None:
        raise InvalidInput(f"now must carry a zone, not {now!r}; use datetime.now(timezone.utc)")
    if not _HINT.search(query):
        return []
    text = query if query.isascii() else unicodedata.normalize("NFKC", query)
    now = now.astimezone(UTC)
    found: list[tuple[int, int, _Interval]] = []
    for at, end, interval in _candidates(text, now):
        if not found or at >= found[-1][1]:
            found.append((at, end, interval))
    spans = [_modified(text, *item) for item in _joined(text, found)]
    return [TimeSpan(i.start, i.end, text[at:end], i.kind) for at, end, i in spans if i.start < i.end]


def _candidates(text: str, now: datetime) -> list[tuple[int, int, _Interval]]:
    """Every rule's finds, earliest first, of those at one place the longest first."""
    found = []
    for pattern, resolve in _ENGLISH if text.isascii() else (*_ENGLISH, *_CHINESE):
        for match in pattern.finditer(text):
            try:
                interval = resolve(match, now)
            except (ValueError, OverflowError):  # 30 February, 9999 years ago: no date, so no time is meant
                continue
            found.append((match.start(), match.end(), interval))
    return sorted(found, key=lambda item: (item[0], -item[1]))


def _joined(text: str, found: list[tuple[int, int, _Interval]]) -> list[tuple[int, int, _Interval]]:
    """Make "from A to B", "between A and B", "A至B" one range."""
    joined: list[tuple[int, int, _Interval]] = []
    for at, end, interval in found:
        if joined:
            first_at, first_end, first = joined[-1]
            between = text[first_end:at]
            opened = _RANGE_OPENER.search(text[max(0, first_at - 12) : first_at])
            if _TO.fullmatch(between) or (opened and _AND.fullmatch(between)):
                first_at -= len(opened[0]) if opened else 0
                joined[-1] = first_at, end, _Interval(first.start, max(first.end, interval.end), "range")
                continue
        joined.append((at, end, interval))
    return joined


_RANGE_OPENER: Final = re.compile(r"(?:\b(?:from|between)\s+|[从自在])\Z", re.IGNORECASE)
_TO: Final = re.compile(r"\s*(?:to|until|till|through|thru|-|–|—|~|到|至)\s*", re.IGNORECASE)
_AND: Final = re.compile(r"\s*(?:and|和|与)\s*", re.IGNORECASE)


def _modified(text: str, at: int, end: int, interval: _Interval) -> tuple[int, int, _Interval]:
    """Apply "before", "after", "since", "until" before a time, and 之前, 以后, 以来 behind it."""
    word = _BEFORE_WORD.search(text[max(0, at - 24) : at]) or _AFTER_WORD.match(text, end)
    if not word:
        return at, end, interval
    start, stop, _ = interval
    match _DIRECTION[word[1].lower().split()[0]]:
        case "before":
            changed = _Interval(BEGINNING, start, "before")
        case "until":
            changed = _Interval(BEGINNING, stop, "before")
        case "after":
            changed = _Interval(stop, END, "after")
        case _:
            changed = _Interval(start, END, "after")
    if word.re is _BEFORE_WORD:
        at -= len(word[0])
    else:
        end += len(word[0])
    return at, end, changed


_BEFORE_WORD: Final = re.compile(
    r"\b(before|prior\ to|earlier\ than|until|till|up\ to|by|after|later\ than|since)"
    r"\s+(?:the\s+)?(?:in\s+|on\s+)?\Z",
    re.IGNORECASE | re.VERBOSE,
)
_AFTER_WORD: Final = re.compile(
    r"(之前|以前|前(?![端台面往任天年])|之后|以后|后(?![端台面来续天])|以来|起(?![来床])|开始)"
)
_DIRECTION: Final = {
    **dict.fromkeys(("before", "prior", "earlier", "之前", "以前", "前"), "before"),
    **dict.fromkeys(("until", "till", "up", "by"), "until"),
    **dict.fromkeys(("after", "later", "之后", "以后", "后"), "after"),
    **dict.fromkeys(("since", "以来", "起", "开始"), "since"),
}


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _day(moment: datetime, days: int = 0) -> _Interval:
    start = _midnight(moment) + timedelta(days=days)
    return _Interval(start, start + timedelta(days=1), "day")


def _week(moment: datetime, weeks: int = 0) -> _Interval:
    start = _midnight(moment) + timedelta(days=7 * weeks - moment.weekday())
    return _Interval(start, start + timedelta(days=7), "week")


def _weekend(moment: datetime, weeks: int = 0) -> _Interval:
    week = _week(moment, weeks)
    return _Interval(week.start + timedelta(days=5), week.end, "weekend")


def _months(year: int, month: int, count: int, kind: str) -> _Interval:
    """`count` calendar months from a month that may lie outside 1..12, counted on from January of `year`."""
    first, last = (divmod(12 * year + month - 1 + offset, 12) for offset in (0, count))
    return _Interval(
        datetime(first[0], first[1] + 1, 1, tzinfo=UTC), datetime(last[0], last[1] + 1, 1, tzinfo=UTC), kind
    )


def _month(year: int, month: int) -> _Interval:
    return _months(year, month, 1, "month")


def _year(year: int) -> _Interval:
    return _months(year, 1, 12, "year")


def _quarter(moment: datetime, quarters: int = 0) -> _Interval:
    return _months(moment.year, 3 * ((moment.month - 1) // 3) + 1 + 3 * quarters, 3, "quarter")


def _season(name: str, moment: datetime, which: int) -> _Interval:
    """The season (of the northern half) that began last, which = -1 the one that ended last, 1 the next."""
    first = _SEASONS[name]
    year = moment.year - (moment.month < first)
    latest = _months(year, first, 3, "season")
    if which < 0 and latest.end > moment:
        year -= 1
    elif which > 0:
        year += 1
    return _months(year, first, 3, "season")


def _latest_month(month: int, now: datetime) -> _Interval:
    return _month(now.year - (month > now.month), month)


def _latest_date(month: int, day: int, now: datetime) -> _Interval:
    for year in range(now.year, now.year - 9, -1):  # 29 February: up to eight years back
        try:
            interval = _day(datetime(year, month, day, tzinfo=UTC))
        except ValueError:
            continue
        if interval.start <= now:
            return interval
    raise ValueError(f"no such day: {month}-{day}")


def _date(year: str | None, month: int, day: str, now: datetime) -> _Interval:
    if year:
        return _day(datetime(int(year), month, int(day), tzinfo=UTC))
    return _latest_date(month, int(day), now)


def _weekday(weekday: int, now: datetime, which: str) -> _Interval:
    """last: the latest before today; next: the first after today; this: of this week; else the latest."""
    back = (now.weekday() - weekday) % 7
    if which == "next":
        return _day(now, 7 - back)
    if which == "this":
        return _day(now, weekday - now.weekday())
    return _day(now, -(back or (7 if which == "last" else 0)))


def _ago(number: int, unit: str, now: datetime) -> _Interval:
    """As coarse as its unit: "two weeks ago" is that day and three days around it."""
    if unit == "hour":
        start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=number)
        return _Interval(start, start + timedelta(hours=1), "hour")
    if unit == "day":
        return _day(now, -number)
    if unit == "week":
        start = _midnight(now) - timedelta(days=7 * number + 3)
        return _Interval(start, start + timedelta(days=7), "week")
    if unit == "month":
        return _month(now.year, now.month - number)
    return _year(now.year - number)


def _past(number: int, unit: str, now: datetime) -> _Interval:
    """The last `number` units up to and with today."""
    end = _day(now).end
    if unit == "hour":
        return _Interval(now - timedelta(hours=number), now, "range")
    if unit in ("day", "week"):
        days = number * (7 if unit == "week" else 1)
        return _Interval(_midnight(now) - timedelta(days=days), end, "range")
    months = number * (12 if unit == "year" else 1)
    return _Interval(_month(now.year, now.month - months).start.replace(day=min(now.day, 28)), end, "range")


def _part(interval: _Interval, part: str) -> _Interval:
    """The first, middle or last third of a longer interval."""
    third = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1}.get(part.lower(), 2)
    days = (interval.end - interval.start).days
    start = interval.start + timedelta(days=days * third // 3)
    return _Interval(start, interval.start + timedelta(days=days * (third + 1) // 3), "range")


_MONTH_NAMES: Final = (
    "january february march april may june july august september october november december".split()
)
_MONTHS: Final = {
    **{name: number for number, name in enumerate(_MONTH_NAMES, 1)},
    **{name[:3]: number for number, name in enumerate(_MONTH_NAMES, 1)},
    "sept": 9,
}
_WEEKDAY_NAMES: Final = (
    "monday mon|tuesday tues tue|wednesday wed|thursday thurs thur thu|friday fri|saturday sat|sunday sun"
)
_WEEKDAYS: Final = {
    name: number for number, names in enumerate(_WEEKDAY_NAMES.split("|")) for name in names.split()
}
_SEASONS: Final = {"spring": 3, "summer": 6, "fall": 9, "autumn": 9, "winter": 12}
_WHICH: Final = {"last": -1, "previous": -1, "past": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_NUMBERS: Final = {
    **dict.fromkeys(("a", "an", "one"), 1),
    "two": 2,
    "couple": 2,
    "three": 3,
    "few": 3,
    **{
        word: number
        for number, word in enumerate("four five six seven eight nine ten eleven twelve".split(), 4)
    },
}
_HAN_DIGITS: Final = {char: number for number, char in enumerate("零一二三四五六七八九")} | {
    "两": 2,
    "几": 3,
    "〇": 0,
}


def _number(text: str) -> int:
    """An English or Chinese number word or digits: "a couple of", 两, 十五, 二十三, "12"."""
    if text.isdecimal():
        return int(text)
    words = [word for word in text.lower().split() if word != "of"]
    if words[-1] in _NUMBERS:
        return _NUMBERS[words[-1]]
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return int("".join(str(_HAN_DIGITS[char]) for char in text))
    return 10 * (_HAN_DIGITS[tens] if tens else 1) + (_HAN_DIGITS[ones] if ones else 0)


_LONG_MONTHS: Final = "|".join(_MONTH_NAMES)
_ANY_MONTHS: Final = rf"(?:{_LONG_MONTHS}|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)\b\.?"
_M: Final = rf"(?P<month>{_ANY_MONTHS})"
_D: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_Y: Final = r"(?P<year>(?:19|20|21)\d\d)"
_W: Final = "|".join(sorted(_WEEKDAYS, key=lambda name: (-len(name), name)))
_N: Final = rf"(?P<number>\d{{1,4}}|(?:a\s+)?(?:couple(?:\s+of)?|few)|{'|'.join(_NUMBERS)})"
_U: Final = r"(?P<unit>hour|day|week|month|year)s?"
_S: Final = "spring|summer|fall|autumn|winter"
_PREPOSITION: Final = "".join(
    rf"|(?<=\b{word}\s)"
    for word in "in of since during around until till before after from between by".split()
)[1:]

_ZN: Final = "[0-9零〇一二两三四五六七八九十]"
_ZY: Final = r"(?:(?P<year>\d{4})年|(?P<which>[去今明前])年)的?"
_ZCOUNT: Final = (
    r"(?P<number>\d{1,4}|[一二两三四五六七八九十几]{1,3})多?(?P<unit>个?(?:小时|周|星期|礼拜)|天|日|个月|年)"
)
_ZWHICH_UNIT: Final = r"(?P<which>上上|上|这|本|下下|下)[个一]?"
_ZWEEK: Final = "(?:周|星期|礼拜)"
_ZUNITS: Final = {
    "小时": "hour",
    "天": "day",
    "日": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "年": "year",
}
_ZYEARS: Final = {"去": -1, "今": 0, "明": 1, "前": -2}
_ZDAYS: Final = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2}
_ZWHICH: Final = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
_ZWEEKDAYS: Final = {**{char: number for number, char in enumerate("一二三四五六日")}, "天": 6}
_ZSEASONS: Final = {"春": "spring", "夏": "summer", "秋": "autumn", "冬": "winter"}


def _chinese_year(match: re.Match[str], now: datetime) -> int | None:
    if match["year"]:
        return int(match["year"])
    return now.year + _ZYEARS[match["which"]] if match["which"] else None


def _chinese_month(match: re.Match[str], now: datetime) -> _Interval:
    month = _valid_month(_number(match["month"]))
    year = _chinese_year(match, now)
    return _latest_month(month, now) if year is None else _month(year, month)


def _chinese_date(match: re.Match[str], now: datetime) -> _Interval:
    month, day = _valid_month(_number(match["month"])), _number(match["day"])
    year = _chinese_year(match, now)
    return _date(None if year is None else str(year), month, str(day), now)


def _valid_month(month: int) -> int:
    if not 1 <= month <= 12:
        raise ValueError(f"no month {month}")
    return month


def _chinese_season(match: re.Match[str], now: datetime) -> _Interval:
    season, year = _ZSEASONS[match["season"]], _chinese_year(match, now)
    return _season(season, now, 0) if year is None else _months(year, _SEASONS[season], 3, "season")


def _chinese_week(match: re.Match[str], now: datetime) -> _Interval:
    weeks, day = _ZWHICH[match["which"]], match["day"]
    if not day:
        return _week(now, weeks)
    if day == "末":
        return _weekend(now, weeks)
    return _day(_week(now, weeks).start, _ZWEEKDAYS[day])


def _chinese_month_day(match: re.Match[str], now: datetime) -> _Interval:
    month = _month(now.year, now.month + _ZWHICH[match["which"]])
    if not match["day"]:
        return month
    return _day(month.start.replace(day=_number(match["day"])))


def _month_number(name: str) -> int:
    return _MONTHS[name.lower().rstrip(".")]


def _which_span(match: re.Match[str], now: datetime) -> _Interval:
    which, unit = _WHICH[match["which"].lower()], match["unit"].lower()
    match unit:
        case "week":
            return _week(now, which)
        case "weekend":
            return _weekend(now, which)
        case "month":
            return _month(now.year, now.month + which)
        case "quarter":
            return _quarter(now, which)
        case "year":
            return _year(now.year + which)
    return _season(unit, now, which)


def _which_month(match: re.Match[str], now: datetime) -> _Interval:
    """Last March: the latest before this month; next March: the first after it; this March: of this year."""
    which, month = _WHICH[match["which"].lower()], _month_number(match["month"])
    if which < 0:
        return _month(now.year - (month >= now.month), month)
    return _month(now.year + (which > 0 and month <= now.month), month)


def _month_of(match: re.Match[str], now: datetime) -> _Interval:
    month, year = _month_number(match["month"]), match["year"]
    return _month(int(year), month) if year else _latest_month(month, now)


def _month_range(match: re.Match[str], now: datetime) -> _Interval:
    last = _month_of(match, now)
    first = _month_number(match["first"])
    year = last.start.year - (first > last.start.month)
    return _Interval(_month(year, first).start, last.end, "range")


def _numeric_date(match: re.Match[str], _: datetime) -> _Interval:
    """Month first, unless only the other order is a date."""
    month, day = int(match["a"]), int(match["b"])
    if month > 12:
        month, day = day, month
    return _day(datetime(int(match["year"]), month, day, tzinfo=UTC))


def _named_day(match: re.Match[str], now: datetime) -> _Interval:
    word = match[0].lower()
    if "before" in word:
        return _day(now, -2)
    if "after" in word and "tomorrow" in word and "afternoon" not in word:
        return _day(now, 2)
    if "yesterday" in word or "last" in word:
        return _day(now, -1)
    return _day(now, 1 if "tomorrow" in word else 0)


def _partial(match: re.Match[str], now: datetime) -> _Interval:
    if match["month"]:
        whole = _month_of(match, now)
    elif match["which"]:
        whole = _which_span(match, now)
    else:
        whole = _year(int(match["only_year"]))
    return _part(whole, match["part"])


def _this_or_last_weekend(_: re.Match[str], now: datetime) -> _Interval:
    return _weekend(now, 0 if now.weekday() >= 5 else -1)


_Resolver = Callable[[re.Match[str], datetime], _Interval]


def _rule(pattern: str, resolve: _Resolver) -> tuple[re.Pattern[str], _Resolver]:
    return re.compile(pattern, re.IGNORECASE), resolve


_ENGLISH: Final = (
    # 2023-05-08, 2023/5/8; 2023-05; 5/8/2023
    _rule(
        r"(?<![A-Za-z0-9_./-])(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})(?!\d|[./-]\d)(?:T[\d:.]+Z?)?",
        lambda m, now: _date(m["year"], int(m["month"]), m["day"], now),
    ),
    _rule(
        r"(?<![A-Za-z0-9_./-])(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])(?![\d-])",
        lambda m, _: _month(int(m["year"]), int(m["month"])),
    ),
    _rule(r"(?<![\d./-])(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<year>\d{4})(?![\d/])", _numeric_date),
    # 5 May 2023, the 5th of May; May 5, 2023, May-5-2023
    _rule(
        rf"(?<![\d.:])\b{_D}(?:\s+of)?[\s-]+{_M}(?:,?[\s-]+{_Y}\b)?",
        lambda m, now: _date(m["year"], _month_number(m["month"]), m["day"], now),
    ),
    _rule(
        rf"\b{_M}[\s-]+(?:the\s+)?{_D}\b(?![:.]\d)(?:(?:,\s*|\s+|-){_Y}\b)?",
        lambda m, now: _date(m["year"], _month_number(m["month"]), m["day"], now),
    ),
    # March 2024; in March; March ("may" and "march" alone are no times); last March; from March to May
    _rule(rf"\b{_M},?\s+(?:of\s+)?{_Y}\b", _month_of),
    _rule(rf"(?:{_PREPOSITION}){_M}(?!\s*\d)", lambda m, now: _latest_month(_month_number(m["month"]), now)),
    _rule(
        rf"\b(?!may|march)(?P<month>{_LONG_MONTHS})\b(?!\s*\d)",
        lambda m, now: _latest_month(_month_number(m["month"]), now),
    ),
    _rule(rf"\b(?P<which>last|previous|this|next|coming)\s+{_M}(?!\s*\d)", _which_month),
    _rule(
        rf"\b(?P<first>{_ANY_MONTHS})\s*(?:to|until|till|through|-|–)\s*{_M}(?:,?\s+{_Y}\b)?(?!\s*\d)",
        _month_range,
    ),
    _rule(rf"(?<=\bbetween\s)(?P<first>{_ANY_MONTHS})\s+and\s+{_M}(?:,?\s+{_Y}\b)?(?!\s*\d)", _month_range),
    _rule(
        r"\b(?:the\s+)?(?P<part>early|mid|late|beginning|start|middle|end)(?:\s+of)?[\s-]+"
        rf"(?:{_M}(?:,?\s+{_Y})?|(?P<which>last|this|next)\s+(?P<unit>month|quarter|year)"
        r"|(?P<only_year>(?:19|20|21)\d\d))\b",
        _partial,
    ),
    # in 2022; 2020 to 2022
    _rule(rf"(?:{_PREPOSITION}|(?<=\byear\s)){_Y}\b(?![-/.:]?\d)", lambda m, _: _year(int(m["year"]))),
    _rule(
        rf"\b(?P<first>(?:19|20|21)\d\d)\s*(?:-|–|to|until|through)\s*{_Y}\b(?![-/.:]?\d)",
        lambda m, _: _Interval(_year(int(m["first"])).start, _year(int(m["year"])).end, "range"),
    ),
    # yesterday evening; last week; the past week; the last 3 days; two weeks ago
    _rule(
        r"\b(?:(?:the\s+)?day\s+(?:before\s+yesterday|after\s+tomorrow)|last\s+night|to(?:day|night)"
        r"|(?:yesterday|tomorrow)(?:\s+(?:morning|afternoon|evening|night))?|this\s+(?:morning|afternoon|evening))\b",
        _named_day,
    ),
    _rule(
        rf"\b(?:the\s+)?(?P<which>last|previous|this|current|next|coming)\s+(?P<unit>weekend|week|month|quarter|year|{_S})\b",
        _which_span,
    ),
    _rule(
        r"(?<=\bthe\s)past\s+(?P<unit>hour|day|week|month|year)\b",
        lambda m, now: _past(1, m["unit"].lower(), now),
    ),
    _rule(
        rf"\b(?:last|past|previous)\s+{_N}\s+{_U}\b",
        lambda m, now: _past(_number(m["number"]), m["unit"].lower(), now),
    ),
    _rule(
        rf"(?<![\w.]){_N}\s+{_U}\s+(?:ago|back|earlier)\b",
        lambda m, now: _ago(_number(m["number"]), m["unit"].lower(), now),
    ),
    _rule(r"(?<=\bthe\s)weekend\b", _this_or_last_weekend),
    # summer 2022; in the summer
    _rule(
        rf"\b(?P<season>{_S})\s+(?:of\s+|in\s+)?{_Y}\b",
        lambda m, _: _months(int(m["year"]), _SEASONS[m["season"].lower()], 3, "season"),
    ),
    _rule(
        rf"(?:(?<=\bin\s)|(?<=\bthe\s)|(?<=\bduring\s)|(?<=\bsince\s)|(?<=\bover\s))(?P<season>{_S})\b",
        lambda m, now: _season(m["season"].lower(), now, 0),
    ),
    # last Monday; on Mon; Monday
    _rule(
        rf"\b(?P<which>last|this|next)\s+(?P<day>{_W})\b",
        lambda m, now: _weekday(_WEEKDAYS[m["day"].lower()], now, m["which"].lower()),
    ),
    _rule(rf"(?<=\bon\s)(?P<day>{_W})\b", lambda m, now: _weekday(_WEEKDAYS[m["day"].lower()], now, "")),
    _rule(
        r"\b(?P<day>(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
        lambda m, now: _weekday(_WEEKDAYS[m["day"].lower()], now, ""),
    ),
)
_CHINESE: Final = (
    # 2023年5月8日, 去年三月五号; 三月份; 去年; 去年夏天
    _rule(rf"(?:{_ZY})?(?<!{_ZN})(?P<month>{_ZN}{{1,2}})月(?P<day>{_ZN}{{1,3}})[日号]", _chinese_date),
    _rule(rf"(?:{_ZY})?(?<!{_ZN})(?P<month>{_ZN}{{1,2}})月份?(?!{_ZN}*[日号])", _chinese_month),
    _rule(r"(?<!\d)(?P<year>(?:19|20|21)\d\d)年(?!前)", lambda m, _: _year(int(m["year"]))),
    _rule(rf"(?<!{_ZN})(?P<which>[去今明前])年", lambda m, now: _year(now.year + _ZYEARS[m["which"]])),
    _rule(rf"(?:{_ZY})?(?P<season>[春夏秋冬])[天季]", _chinese_season),
    # 昨天下午, 昨晚; 上周三, 这个周末; 周三; 上个月五号; 上季度
    _rule(
        rf"(?<!{_ZN})(?P<day>大前|前|昨|今|明|后)[天日](?:[早晚]上|[上下]午|中午)?",
        lambda m, now: _day(now, _ZDAYS[m["day"]]),
    ),
    _rule("(?P<day>[昨今明])[早晚夜晨]上?", lambda m, now: _day(now, _ZDAYS[m["day"]])),
    _rule(rf"{_ZWHICH_UNIT}{_ZWEEK}(?P<day>一(?!起|样|直)|[二三四五六日天末])?", _chinese_week),
    _rule(
        rf"(?<![上这本下个每]|{_ZN}){_ZWEEK}(?P<day>一(?!起|样|直|定|般)|[二三四五六日]|(?<!周)天)",
        lambda m, now: _weekday(_ZWEEKDAYS[m["day"]], now, ""),
    ),
    _rule(r"(?<![上这本下个])周末", _this_or_last_weekend),
    _rule(rf"{_ZWHICH_UNIT}月份?(?:(?P<day>{_ZN}{{1,3}})[日号])?", _chinese_month_day),
    _rule(rf"{_ZWHICH_UNIT}季度", lambda m, now: _quarter(now, _ZWHICH[m["which"]])),
    # 三天前, 两个月以前; 半年前; 最近一周
    _rule(
        rf"(?<!{_ZN}){_ZCOUNT}[之以]?前",
        lambda m, now: _ago(_number(m["number"]), _ZUNITS[m["unit"].removeprefix("个")], now),
    ),
    _rule(r"半年[之以]?前", lambda _, now: _ago(6, "month", now)),
    _rule(r"半个月[之以]?前", lambda _, now: _ago(2, "week", now)),
    _rule(
        rf"(?:最近|过去|近)[的这]?{_ZCOUNT}",
        lambda m, now: _past(_number(m["number"]), _ZUNITS[m["unit"].removeprefix("个")], now),
    ),
)

# What every time contains; most questions have none of it and are done.
_HINT: Final = re.compile(
    rf"\d|[年月日号天周季早晚夜晨]|星期|礼拜|小时|\b(?:{_ANY_MONTHS}|{_W}|{_S}|to(?:day|night|morrow)|yesterday|night"
    r"|morning|afternoon|evening|(?:hour|day|week|weekend|month|quarter|year)s?)\b",
    re.IGNORECASE,
)

_CLOCK: Final = re.compile(
    r"(?<![\d:])(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d+)?)?\s*(?P<half>[ap])?\.?(?:m\b)?"
    r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?",
    re.IGNORECASE,
)
_HOUR: Final = re.compile(r"(?<![\d:])(?P<hour>\d{1,2})\s*(?P<half>[ap])\.?m\b", re.IGNORECASE)
_CHINESE_CLOCK: Final = re.compile(
    r"(?P<half>凌晨|早上|上午|中午|下午|晚上)?(?P<hour>\d{1,2})(?:[:点时](?P<minute>\d\d?|半)?)"
)
_MAX_STAMP: Final = 80  # characters; a longer text is prose, not a date string


def parse_loose_datetime(text: str) -> datetime | None:
    """Read a date string as data files have them ("1:56 pm on 8 May, 2023", "March-15-2024", 2023年5月8日).

    A missing time of day is midnight, a missing zone UTC, a missing day the first; 5/8/2023 is the 8th of May
    read month first. None for what names no full date.
    """
    text = unicodedata.normalize("NFKC", text).strip()
    if not text or len(text) > _MAX_STAMP:
        return None
    try:
        exact = datetime.fromisoformat(text)
    except ValueError:
        exact = None
    try:
        if exact is not None:
            return exact.replace(tzinfo=UTC) if exact.tzinfo is None else exact.astimezone(UTC)
        day = _stamp_day(text)
        return None if day is None else _with_clock(day, text)
    except (ValueError, OverflowError):
        return None


def _stamp_day(text: str) -> datetime | None:
    """Midnight of the date in a date string; only dates with a year count."""
    for pattern, resolve in (*_ENGLISH, *_CHINESE):
        match = pattern.search(text)
        fields = match.groupdict() if match else {}
        if (
            match
            and fields.get("year")
            and (fields.get("month") or fields.get("a"))
            and "first" not in fields
        ):
            return resolve(match, BEGINNING).start
    return None


def _with_clock(day: datetime, text: str) -> datetime:
    match = _CHINESE_CLOCK.search(text) if "点" in text or "午" in text else None
    match = match or _CLOCK.search(text) or _HOUR.search(text)
    if not match:
        return day
    fields = match.groupdict()
    hour, half = int(fields["hour"]), (fields["half"] or "").lower()
    if half in ("p", "下午", "晚上") and hour < 12:
        hour += 12
    elif half in ("a", "凌晨") and hour == 12:
        hour = 0
    minute = 30 if fields.get("minute") == "半" else int(fields.get("minute") or 0)
    moment = day.replace(hour=hour, minute=minute, second=int(fields.get("second") or 0))
    zone = (fields.get("zone") or "").upper()
    if zone[:1] in ("+", "-"):
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        moment = moment.replace(tzinfo=timezone(offset if zone[0] == "+" else -offset))
    return moment.astimezone(UTC)
