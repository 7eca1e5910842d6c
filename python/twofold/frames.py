"""Statement frames: the text part of the automatic supersession rule.

`frame` reads a statement that gives ONE single-valued attribute of ONE named entity a typed value;
`contradicts` says whether two such statements cannot both hold. Nothing is learned and nothing is
guessed: what does not fit a pattern and a value type has no frame. Which rows may be closed is decided
elsewhere; this file never sees a store.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from twofold import _frame_words as words

__all__ = ["ATTRIBUTES", "Attribute", "Frame", "Verdict", "contradicts", "extend_attributes", "frame"]

MAX_LENGTH: Final = 300
"""Characters; a longer text is not one plain statement."""


class Frame(NamedTuple):
    """One attribute of one entity has one value; all three in canonical form (NFKC, casefolded)."""

    entity: str
    attribute: str
    value: str


class Verdict(StrEnum):
    """What two frames say about each other."""

    CONTRADICTS = "contradicts"  # same entity and attribute, values that exclude each other
    SAME = "same"  # the same value in another notation
    UNSURE = "unsure"  # differs, but both may hold: worth a suggestion, no more
    UNRELATED = "unrelated"  # another entity or attribute


class Attribute(NamedTuple):
    """A single-valued attribute: its value type and the words that name it."""

    kind: str
    english: tuple[str, ...]
    chinese: tuple[str, ...]


def _canonical(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _items(table: str, separator: str) -> list[str]:
    return [item.strip() for item in table.replace("\n", separator).split(separator) if item.strip()]


def _aliases(table: str) -> dict[str, str]:
    return {alias: names.split("|")[0] for names in _items(table, ";") for alias in names.split("|")}


ATTRIBUTES: dict[str, Attribute] = {}
"""Canonical name -> Attribute. Change it only through `extend_attributes`."""

_ENGLISH: dict[str, str] = {}
_CHINESE: dict[str, str] = {}
_HEADS: set[str] = set()
_LONGEST = 1
_zh_patterns: tuple[re.Pattern[str], re.Pattern[str]] | None = None
_zh_hint: re.Pattern[str] | None = None


def extend_attributes(
    name: str, *, english: Iterable[str] = (), chinese: Iterable[str] = (), kind: str = "text"
) -> None:
    """Declare `name` single-valued, or give a known one more synonyms.

    `kind` names the value type (a key of KINDS: ip, port, version, name, status, phone, email, place,
    address, date, time, quantity, level, colour, url, ident, text). Raises ValueError when the kind is
    unknown, differs from the one already declared, or a synonym already means another attribute.
    """
    global _LONGEST, _zh_patterns, _zh_hint
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} of attribute {name!r} is unknown; choose one of {', '.join(KINDS)}")
    name = _canonical(name)
    known = ATTRIBUTES.get(name)
    if known is not None and known.kind != kind:
        raise ValueError(f"attribute {name!r} already has kind {known.kind!r}, not {kind!r}")
    en = tuple(dict.fromkeys(_canonical(w) for w in (*((name,) if name.isascii() else ()), *english)))
    zh = tuple(dict.fromkeys(_canonical(w) for w in chinese))
    for table, synonyms in ((_ENGLISH, en), (_CHINESE, zh)):
        for word in synonyms:
            if not word or table.get(word, name) != name:
                raise ValueError(f"synonym {word!r} of {name!r} already means {table.get(word)!r}")
    for table, synonyms in ((_ENGLISH, en), (_CHINESE, zh)):
        table.update(dict.fromkeys(synonyms, name))
    _HEADS.update(w.split(" ")[-1] for w in en)
    _LONGEST = max(_LONGEST, *(w.count(" ") + 1 for w in en)) if en else _LONGEST
    old_en, old_zh = (known.english, known.chinese) if known else ((), ())
    ATTRIBUTES[name] = Attribute(kind, tuple(dict.fromkeys(old_en + en)), tuple(dict.fromkeys(old_zh + zh)))
    _zh_patterns = _zh_hint = None


# Words that narrow an attribute to another one that is single-valued too. A modifier that is not here
# ("open port", "supported version", "backup IP") may have several values, so it gives no frame.
_MODIFIERS: Final = frozenset(
    "public private internal external primary management admin ssh http https grpc api database home work "
    "office mobile personal billing shipping mailing corporate retail wholesale list unit monthly annual "
    "yearly hourly base starting minimum maximum latest stable installed production staging release launch "
    "submission application registration payment review delivery tax visa passport contract project product "
    "engineering technical team favorite favourite marital order ticket subscription membership legal".split()
)
_ZH_MODIFIERS: Final = dict(pair.split("=") for pair in _items(words.CHINESE_MODIFIERS, ","))

_GENERIC: Final = frozenset(words.GENERIC.split())
_NEVER_EN: Final = re.compile(
    # negation, hedges, obligation, future
    r"\b(?:not|no|never|neither|nor|none|cannot|without|might|maybe|perhaps|possibly|probably"
    r"|likely|unlikely|"
    r"seems?|seemed|appears?|apparently|presumably|supposedly|reportedly|allegedly|roughly|approximately|"
    r"approx|almost|nearly|about|around|should|would|could|can|must|will|shall|ought|going|plans? to|planned|"
    r"planning|wants?|hopes?|expect(?:s|ed)?|estimated?|projected|proposed|suggested|requested"
    r"|tentative(?:ly)?|"
    r"unknown|unclear|uncertain|unsure|tbd|tba|pending confirmation|rumou?red|soon|tomorrow|upcoming|"
    # conditions and exceptions
    r"if|unless|when|whenever|once|until|till|while|provided|assuming|otherwise|except|depending|depends|"
    r"because|although|though|but|however|"
    # the past
    r"were|had|used|formerly|previous(?:ly)?|former|earlier|original(?:ly)?|ago|yesterday|"
    r"once|past|old|"
    # lists, partial and collective statements
    r"and|or|also|too|additional(?:ly)?|another|other|others|second|secondary|third|extra|alternat(?:e|ive)|"
    r"backup|plus|both|each|every|either|one of|among|some|any|all|several|multiple|many|various"
    r"|two|includes?|"
    r"including|respectively|etc|"
    # comparison, report, quotation, first and second person, vague reference
    r"than|versus|vs|compared|same|similar|said|says|say|told|tells|claims?|claimed|reports that"
    r"|reported|according|"
    r"heard|mentioned|thinks?|thought|believes?|believed|guess|suppose|assumes?|asked|asks|wonder(?:s|ing)?|"
    r"knows?|knew|remembers?|hypothetical(?:ly)?|imagine|pretend|for example(?!\.\w)|typical(?:ly)?"
    r"|usual(?:ly)?|sometimes|"
    r"often|normally|generally|default|i|i'm|i've|i'd|me|my|mine|we|we're|our|ours|us|you|your|yours|"
    r"he|she|it|they|him|them|his|her|hers|its|their|this|that|these|those|here|there|who|whose|which|what|"
    r"please|let|let's)\b|n't\b|\bmay (?:be|have|not|well|also|now|change|become)\b|[?~]|\.\.\.|…",
    re.IGNORECASE,
)
_NEVER_ZH: Final = re.compile(
    # Typed values already keep out what else negates ("无", "非"), and those signs are common in names.
    r"[?~…]|不|没|未|并非|而非|勿|可能|也许|或许|大概|大约|约|应该|似乎|好像|估计|(?:根|依)据"
    r"|据(?:说|称|报|悉|传|闻|了解|介绍)|听说|传闻|恐怕|左右|以上|以下|"
    r"至少|最多|超过|将|会(?:是|为|变|改|升|降|调|迁|搬|在)|打算|预计|预期|希望|想|建议|拟"
    r"|计划(?:在|于|改|变|升|把|为|是)|"
    r"如果|假如|假设|倘若|若|要是|一旦|除非|除了|只要|的话|曾|以前|之前|先前|原来|原本|原先|过去"
    r"|当时|那时|去年|昨|"
    r"上周|上个?月|早先|旧|明天|明年|下周|下个?月|即|届时|或|和|与|及|跟|还|另|也|又|再|之一|其中"
    r"|分别|[都均](?:是|为|在|有|住)|各|备用|"
    r"额外|其他|其它|等|包括|比|相比|高于|低于|多于|少于|说|称|表示|报道|认为|觉得|告诉|问|提到"
    r"|以为|相信|例如|比如|"
    r"通常|一般|有时|经常|默认|吗|呢|吧|什么|谁|哪|多少|几|我|你|您|咱|他|她|它|这|那|该|此|其|某"
    r"|有的|一些|请"
)
_SEVERAL: Final = re.compile(
    r"(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bSt)(?<!\bMrs)(?<!\bProf)[.!;。！；][ \"')\]]+\S"
    r"|[。！；!;][^\s.]|[\r\n]|\? "
)
_CJK: Final = re.compile(r"[\u3400-\u9fff]")

_LEAD_EN: Final = re.compile(
    r"^(?:(?:update|correction|note|reminder|fyi|info|news|heads[ -]up|confirmed)\s*[:,-]\s*"
    r"|(?:please )?note that |as of now,? |effective immediately,? |(?:right )?now,? |currently,? "
    r"|at (?:the moment|present),? )+",
    re.IGNORECASE,
)
_LEAD_ZH: Final = re.compile(
    r"^(?:(?:更新|更正|注意|备注|通知|提醒|修正|请注意|最新消息|确认)[:,]\s*|(?:截至)?(?:目前|现在"
    r"|当前|如今)[,:]?\s*"
    r"|(?:自|从)?即日起[,:]?\s*)+"
)
_TAIL_EN: Final = re.compile(
    r"[ ,]+(?:now|currently|at (?:the moment|present)|as of now|from now on|these days|"
    r"effective immediately)$",
    re.IGNORECASE,
)
# "is now X instead of Y" says itself that Y is over; the clause is dropped before the guards look.
_INSTEAD_EN: Final = re.compile(
    r"(?:,? (?:instead of|rather than|replacing|and not|and no longer)|, (?:not|no longer|up from|down from)|"
    r" (?:up|down) from|,? \((?:was|previously|formerly|up from|down from|not|no longer)|"
    r", (?:previously|formerly)) (?P<old>[^,()]{1,60}?)\)?$",
    re.IGNORECASE,
)
_INSTEAD_ZH: Final = re.compile(
    r"(?:,?(?:而不是|不再是|而非|不是)|,?\((?:原为|原来是|之前是|以前是|原先是|曾为|旧值)|,(?:原为"
    r"|之前是|以前是|原来是))"
    r"(?P<old>[^,()]{1,40}?)\)?$"
)

_CHANGED = (
    r"(?:changed|updated|moved|set|reset|raised|lowered|increased|decreased|reduced|cut|dropped"
    r"|rose|risen|fell|"
    r"fallen|migrated|reassigned|transferred|postponed|delayed|extended|pushed back|pushed|brought forward|"
    r"moved up|rescheduled|upgraded|downgraded|bumped|switched|corrected|adjusted|renamed|relocated|went up|"
    r"gone up|went down|gone down|handed over|passed)"
)
_ADVERB = r"(?:now|currently|presently|officially|again|still|already|actually|just|only|at present)"
_LINK_EN: Final = re.compile(
    rf"\s*(?:[:=]|\s(?:{_ADVERB} )?(?:is|are)(?: {_ADVERB})*(?: (?:set (?:to|at)|listed as|recorded as|"
    rf"confirmed as|fixed at|equal to))?(?=\s)(?! (?:being )?{_CHANGED}\b)"
    rf"|\s(?:remains|became|has become)(?=\s)"
    rf"|\s(?:(?:is|was|got|has been|is now|has now been|has just been|was just|has|has now|just) )?"
    rf"(?:officially )?{_CHANGED}(?: from (?P<old>[^,]{{1,60}}?))? to(?=\s))\s*",
    re.IGNORECASE,
)
# Verbs that name the attribute: (pattern, attribute). The value type still has to fit.
_VERBS_EN: Final = tuple(
    (re.compile(rf"^(?P<entity>.{{2,80}}?) (?:{_ADVERB} )?{verb} (?P<value>.{{1,80}})$", re.IGNORECASE), name)
    for verb, name in (
        (
            rf"(?:is|was|has been)(?: {_ADVERB})? (?:upgraded|updated|downgraded|bumped|moved"
            rf"|migrated) to version",
            "version",
        ),
        (rf"(?:is|runs)(?: {_ADVERB})?(?: running)? (?:(?:on|at) )?version", "version"),
        (rf"(?:costs|is(?: {_ADVERB})? priced at|sells for)", "price"),
        (rf"is(?: {_ADVERB})? due (?:on|by)", "deadline"),
        (r"is(?: now)? due", "deadline"),
        (rf"is(?: {_ADVERB})? (?:located|situated|hosted|based|stored) (?:in|at|on)", "location"),
        (r"(?:is(?: now)? living|lives|resides) in", "residence"),
        (rf"is(?: {_ADVERB})? owned by", "owner"),
        (rf"is(?: {_ADVERB})? assigned to", "assignee"),
        (rf"is(?: {_ADVERB})? managed by", "manager"),
        (rf"is(?: {_ADVERB})? led by", "lead"),
        (r"weighs", "weight"),
        (r"expires on", "expiry date"),
        (r"now (?:listens|runs) on port", "port"),
        (r"has (?:the )?ip(?: address)?(?: of)?", "ip"),
        (r"has (?:the )?phone number(?: of)?", "phone"),
        (r"has (?:the )?email(?: address)?(?: of)?", "email"),
        (r"has (?:a |the )?price of", "price"),
        (r"has (?:a |the )?deadline of", "deadline"),
        (r"has (?:a |the )?status(?: of)?", "status"),
        (r"has (?:a |the )?budget of", "budget"),
        (r"has (?:a |the )?capacity of", "capacity"),
    )
)
_VERB_HINTS: Final = frozenset(
    "version costs priced sells due located situated hosted based stored living lives resides owned assigned "
    "managed led weighs expires".split()
)

_ZH_CHANGED = (
    r"(?:改|变|变更|更改|修改|更新|调整|升级|升|降|降级|涨|上涨|上调|下调|提高|提升|降低|推迟|延期"
    r"|延后|推后|延|延长|顺延|提前|迁移|迁|"
    r"搬|搬迁|换|更换|转|转移|移交|切换|设|设置|设定|定|修正|更正|增加|减少|扩容|缩减)(?:为|成|到"
    r"|至|给|在|回)了?"
)
_ZH_ADVERB = r"(?:现在|目前|当前|已经|现已|现|已|如今|正式|刚刚|仍然|仍|依然|暂时|最终)"
_ZH_LINK = (
    rf"(?:\s*{_ZH_ADVERB})*\s*(?:(?:被)?(?:(?:从|由)(?P<old>[^,]{{1,40}}?))?{_ZH_CHANGED}|是|为|变成了?"
    r"|在|位于|设在|[:=])\s*"
)
_VERBS_ZH: Final = tuple(
    (re.compile(rf"^(?P<entity>.{{1,40}}?)(?:\s*{_ZH_ADVERB})*\s*{verb}$"), name)
    for verb, name in (
        (r"(?:位于|坐落于|坐落在|设在|部署在)(?P<value>.{1,40})", "location"),
        (r"(?:迁至|搬到了?|迁到了?|搬至)(?P<value>.{1,40})", "location"),
        (r"(?:住在|居住在|定居在|定居于)(?P<value>.{1,40})", "residence"),
        (r"由(?P<value>.{2,20}?)(?:负责|主管)", "lead"),
        (r"由(?P<value>.{2,20}?)管理", "manager"),
        (r"归(?P<value>.{2,20}?)所有", "owner"),
        (r"(?:卖|要价)(?P<value>.{1,20})", "price"),
        (r"(?:升级|更新|降级|升)(?:到|至|为)了?(?:版本\s*)?(?P<value>v?\d[\w.\-]*?)(?:版本?)?", "version"),
        (r"(?:分配|指派)给了?(?P<value>.{2,20})", "assignee"),
    )
)
# Endings that make an attribute plural or vague when Chinese joins them without 的.
_ZH_BAD_END: Final = tuple(
    (
        "开放 支持 可用 兼容 允许 监听 推荐 历史 原 上一 上个 新增 部分 所有 全部 多个 两个 一个 "
        "第二 次要 暴露 常用 占用 候选 目标 最大 最小 参考 平均 初始 估算 第一 第三 临时 紧急 辅助"
    ).split()
)
_ZH_BAD_START: Final = tuple("在当从对按自于由把被让给以向别非每")
_EN_BAD_START: Final = frozenset(
    "a an in on at for during from by with under after before since until as per of to so then thus hence "
    "yes ok okay sure well hey hi hello thanks great good and remember set change update make use see check "
    "try add move put what how why where set's only just even about got get do does did is are was be "
    "assume suppose say given like one three four five six most many final "
    "total average median mean overall key main".split()
)


# --- value types ------------------------------------------------------------------------------------
# read(text) gives the canonical value of a cased text, or None when it is not exactly one value of the
# type; compare(a, b) judges two canonical values.

_Reader = Callable[[str], str | None]
_Comparer = Callable[[str, str], Verdict]


def _differ(same: bool) -> Verdict:
    return Verdict.SAME if same else Verdict.CONTRADICTS


def _read_ip(text: str) -> str | None:
    host = text.partition("/")[0]
    if not host or host[0] not in "0123456789abcdefABCDEF:" or ("." not in host and ":" not in host):
        return None
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


_PRIVATE: Final = tuple(
    ipaddress.ip_network(net)
    for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


def _inside(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    # Not is_private: that counts the documentation blocks as private too.
    return any(address.version == net.version and address in net for net in _PRIVATE)


def _compare_ip(a: str, b: str) -> Verdict:
    x, y = ipaddress.ip_address(a), ipaddress.ip_address(b)
    if x == y:
        return Verdict.SAME
    # A machine has a v4 and a v6 address, a private and a public one, and a loopback, all at once.
    if (x.version, x.is_loopback, x.is_link_local, _inside(x)) != (
        y.version,
        y.is_loopback,
        y.is_link_local,
        _inside(y),
    ):
        return Verdict.UNSURE
    return Verdict.CONTRADICTS


_PORT = re.compile(r"(?:port\s*|端口\s*)?([1-9]\d{0,4})(?:/(tcp|udp))?(?:\s*(?:号端口|端口))?", re.IGNORECASE)


def _read_port(text: str) -> str | None:
    m = _PORT.fullmatch(text)
    if m is None or int(m[1]) > 65535:
        return None
    return m[1] + (f"/{m[2].lower()}" if m[2] else "")


def _compare_port(a: str, b: str) -> Verdict:
    (n, _, p), (m, _, q) = a.partition("/"), b.partition("/")
    if p and q and p != q:
        return Verdict.UNSURE
    return _differ(n == m)


_VERSION = re.compile(
    r"(?:(?P<product>[A-Z][A-Za-z+#]{1,20}) )?(?:[Vv]ersion\s*"
    r"|版本\s*)?[Vv]?\.?(?P<number>\d+(?:\.\d+){0,4}(?:[-+.]?(?:alpha|beta|rc|dev|post|preview|a|b"
    r"|p)[-.]?\d*)?)"
    r"(?:\s*(?:LTS|lts))?(?:\s*版本?)?"
)


def _read_version(text: str) -> str | None:
    m = _VERSION.fullmatch(text)
    if m is None:
        return None
    product = (m["product"] or "").lower()
    number = m["number"].lower()
    return f"{product} {number}" if product not in ("", "version", "release") else number


def _compare_version(a: str, b: str) -> Verdict:
    (product, _, x), (other, _, y) = (re.sub(r"(?:\.0)+$", "", v).rpartition(" ") for v in (a, b))
    if x == y:
        return Verdict.SAME if product == other or not product or not other else Verdict.UNSURE
    if product != other:
        return Verdict.UNSURE
    # "3.11" and "3.11.4", or "2.0" and "2.0-rc1", may name one release at two depths.
    if x in ("1." + y, "20" + y) or y in ("1." + x, "20" + x):  # Java's 1.8 is 8, 24.1 is 2024.1
        return Verdict.UNSURE
    if (
        f"{x}.".startswith(f"{y}.")
        or f"{y}.".startswith(f"{x}.")
        or x.startswith(y + "-")
        or y.startswith(x + "-")
    ):
        return Verdict.UNSURE
    return Verdict.CONTRADICTS


_NO_NAME: Final = frozenset(
    "ceo cto cfo coo cio pm po qa hr it vp sre ops devops support sales unknown nobody noone vacant open "
    "responsible available absent unassigned anonymous someone "
    "everybody everyone "
    "待定 空缺 暂缺 保密 本人 自己 大家 两人 多人 双方 公司 团队 部门 个人 集体 国家".split()
)
_EN_NAME = re.compile(r"(?:[A-Z][\w'’.-]*)(?: (?:[A-Z][\w'’.-]*|de|van|von|der|da|bin|al)){0,3}")
_TEAM = re.compile(
    r"\b(?:team|group|squad|department|dept|guild|crew|division|inc|ltd|corp|llc|gmbh|company"
    r"|foundation)\b\.?",
    re.IGNORECASE,
)
_ZH_NAME = re.compile(r"[\u4e00-\u9fff]{1,4}(?:·[\u4e00-\u9fff]{1,6})?[\u4e00-\u9fff]{0,2}")
_ZH_TEAM = re.compile(r".*(?:团队|小组|组|部门|部|公司|集团|中心|委员会|科|处)$")
_HONORIFIC = frozenset("dr mr mrs ms prof professor sir madam".split())
_SHORT_NAMES: Final = {
    short: full
    for full, _, shorts in (entry.partition(": ") for entry in _items(words.SHORT_NAMES, ";"))
    for short in shorts.split()
}


def _read_name(text: str) -> str | None:
    if re.fullmatch(r"@[\w.-]{2,40}|[\w.+-]+@[\w-]+\.[\w.]+", text):
        return text.casefold()
    if _CJK.search(text):
        return text if _ZH_NAME.fullmatch(text) and text not in _NO_NAME else None
    text = re.sub(r"^the ", "", text, flags=re.IGNORECASE)
    if not text or _canonical(text) in _NO_NAME:
        return None
    if _TEAM.search(text):
        return _canonical(text).rstrip(".") if re.fullmatch(r"[\w .&-]{3,40}", text) else None
    return _canonical(text) if _EN_NAME.fullmatch(text) else None


def _name_kind(value: str) -> str:
    if "@" in value:
        return "handle"
    if _CJK.search(value):
        return "zh team" if _ZH_TEAM.fullmatch(value) else "zh"
    return "team" if _TEAM.search(value) else "person"


def _compare_name(a: str, b: str) -> Verdict:
    if a == b:
        return Verdict.SAME
    kind = _name_kind(a)
    if kind != _name_kind(b):
        return Verdict.UNSURE
    if kind.startswith("zh"):
        if len(a) == len(b) == 2 and a[0] == b[0] and a[0] in "小老阿":
            return Verdict.CONTRADICTS
        loose = re.compile(r"^[小老阿]|(?:工|总|姐|哥|先生|女士|老师|经理|博士|医生|主任)$")
        related = a in b or b in a or loose.search(a) or loose.search(b)
        return Verdict.UNSURE if related else Verdict.CONTRADICTS
    if kind == "handle":
        return Verdict.CONTRADICTS
    drop = _HONORIFIC | {
        "team",
        "group",
        "the",
        "squad",
        "department",
        "dept",
        "inc",
        "ltd",
        "corp",
        "llc",
        "gmbh",
        "company",
    }
    x, y = (
        {_SHORT_NAMES.get(w, w) for w in re.split(r"[ .&-]+", value) if w and w not in drop}
        for value in (a, b)
    )
    if x == y:
        return Verdict.SAME if kind == "team" else Verdict.UNSURE
    if _acronym(a) == _joined(b) or _acronym(b) == _joined(a):
        return Verdict.UNSURE
    # A shared word may be the same bearer written longer; a lone letter may be its initial.
    initials = any(len(w) == 1 for w in x | y) and {w[0] for w in x} & {w[0] for w in y}
    alike = any(p.startswith(q) or q.startswith(p) or _near(p, q) for p in x for q in y)
    return Verdict.UNSURE if x & y or initials or alike or not x or not y else Verdict.CONTRADICTS


def _acronym(name: str) -> str:
    return "".join(word[0] for word in name.split())


def _joined(name: str) -> str:
    return re.sub(r"\W", "", name)


def _near(a: str, b: str) -> bool:
    """Whether one letter makes the difference (a slip of the pen, or another spelling)."""
    if abs(len(a) - len(b)) > 1 or a[0] != b[0]:
        return False
    i = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
    return a[i + 1 :] == b[i + 1 :] or a[i:] == b[i + 1 :] or a[i + 1 :] == b[i:]


# value -> traits; two values exclude each other only when they share no trait.
_STATUS: Final = {
    word: frozenset(traits.split())
    for traits, _, listed in (line.partition(": ") for line in words.STATUS.strip().split("\n"))
    for word in listed.split(", ")
}
_LEVELS: Final[dict[str, frozenset[str]]] = {
    word: frozenset(traits.split())
    for traits, words in {
        "l0": "critical,blocker,urgent,highest,紧急,最高,p0",
        "l1": "high,高,p1",
        "l2": "medium,normal,moderate,中,中等,普通,p2",
        "l3": "low,低,p3",
        "l4": "lowest,trivial,最低,p4",
    }.items()
    for word in words.split(",")
}
_COLOURS: Final[dict[str, frozenset[str]]] = {
    word: frozenset((en,))
    for en, zh in (
        ("red", "红"),
        ("blue", "蓝"),
        ("green", "绿"),
        ("yellow", "黄"),
        ("black", "黑"),
        ("white", "白"),
        ("grey", "灰"),
        ("orange", "橙"),
        ("purple", "紫"),
        ("pink", "粉"),
        ("brown", "棕"),
    )
    for word in (en, zh + "色", *(("gray",) if en == "grey" else ()))
}


def _reader_of(table: dict[str, frozenset[str]]) -> _Reader:
    def read(text: str) -> str | None:
        value = _canonical(text).strip("'\"")
        return value if value in table else None

    return read


def _comparer_of(table: dict[str, frozenset[str]]) -> _Comparer:
    def compare(a: str, b: str) -> Verdict:
        if a == b:
            return Verdict.SAME
        return Verdict.UNSURE if table[a] & table[b] else Verdict.CONTRADICTS

    return compare


def _read_phone(text: str) -> str | None:
    if not re.fullmatch(r"\+?[\d(][\d\s().-]{3,22}\d", text) or re.fullmatch(r"\d{4}-\d\d?-\d\d?", text):
        return None
    digits = re.sub(r"\D", "", text)
    return ("+" if text.startswith("+") else "") + digits if 5 <= len(digits) <= 15 else None


def _compare_phone(a: str, b: str) -> Verdict:
    x, y = a.lstrip("+").lstrip("0"), b.lstrip("+").lstrip("0")
    if x == y or (min(len(x), len(y)) >= 7 and (x.endswith(y) or y.endswith(x))):
        return Verdict.SAME
    mobile = re.compile(r"(?:86)?1[3-9]\d{9}")
    if bool(mobile.fullmatch(x)) != bool(mobile.fullmatch(y)) and min(len(x), len(y)) >= 9:
        return Verdict.UNSURE  # a Chinese mobile phone beside a landline
    # A short number is an extension or a service line beside the full one.
    return Verdict.CONTRADICTS if min(len(x), len(y)) >= 7 or len(x) == len(y) else Verdict.UNSURE


def _read_email(text: str) -> str | None:
    return text.casefold() if re.fullmatch(r"[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)+", text, re.ASCII) else None


def _compare_plain(a: str, b: str) -> Verdict:
    return _differ(a == b)


_CITIES: Final = _aliases(words.CITIES)
_COUNTRIES: Final = _aliases(words.COUNTRIES)
_REGION = re.compile(r"(?:[a-z]{2,}-)+[a-z]+-?\d[a-z]?")
_SPOT = re.compile(
    r"(?:the )?(room|floor|building|rack|shelf|desk|zone|slot|bay|warehouse|data ?cent(?:er|re)|dc"
    r"|hall|gate|level|"
    r"suite|cabinet|aisle|机房|仓库|机柜|机架|会议室|房间|楼)[ -]?([a-z]?-?\d+[a-z]?|[a-z])"
)
_SPOT_AFTER = re.compile(
    r"(?:the )?(\d+)(?:st|nd|rd|th) (floor|level)|([a-z]?\d+|[a-z])(号机房|号楼|楼|层|室|号仓库"
    r"|号机柜|号?会议室|教室)"
)


def _read_place(text: str) -> str | None:
    value = re.sub(r"^(?:in|at|on|the) ", "", _canonical(text).rstrip("."))
    if not re.fullmatch(r"[\w' .,-]{2,60}", value) or value.count(" ") > 6:
        return None
    return value if not _CJK.search(value) or (len(value) <= 14 and "的" not in value) else None


def _place_kind(value: str) -> tuple[str, str]:
    first = value.partition(",")[0].strip()
    if first in _CITIES:
        return "city", _CITIES[first]
    if value in _COUNTRIES:
        return "country", _COUNTRIES[value]
    if _REGION.fullmatch(value):
        return "region", value
    if m := _SPOT.fullmatch(value):
        return m[1], m[2].lstrip("-")
    if m := _SPOT_AFTER.fullmatch(value):
        return (m[2], m[1]) if m[1] else (m[4], m[3])
    return "", value


def _compare_place(a: str, b: str) -> Verdict:
    (kind, x), (other, y) = _place_kind(a), _place_kind(b)
    if kind == other and x == y:
        return Verdict.SAME if a == b or kind else Verdict.UNSURE
    # Only places of one known kind exclude each other: a district lies in a city, a city in a country.
    if not kind or kind != other or (kind == "region" and (x.startswith(y) or y.startswith(x))):
        return Verdict.UNSURE
    return Verdict.CONTRADICTS


_STREET = re.compile(r"(\d+)[a-z]?\.?,? ([\w' .-]+?)(?:,.*)?")
_ZH_STREET = re.compile(r".*?([\u4e00-\u9fff]{1,6}(?:路|街|大道|巷|道|胡同))(\d+)号.*")


def _read_address(text: str) -> str | None:
    value = _canonical(text).rstrip(".")
    return value if len(value) <= 90 and (_STREET.fullmatch(value) or _ZH_STREET.fullmatch(value)) else None


def _compare_address(a: str, b: str) -> Verdict:
    if a == b:
        return Verdict.SAME
    if (x := _ZH_STREET.fullmatch(a)) and (y := _ZH_STREET.fullmatch(b)):
        same_street = x[1].endswith(y[1]) or y[1].endswith(x[1])
        return Verdict.UNSURE if same_street and x[2] == y[2] else Verdict.CONTRADICTS
    if (x := _STREET.fullmatch(a)) and (y := _STREET.fullmatch(b)):
        shared = {w for w in x[2].split() if len(w) > 2} & set(y[2].split())
        return Verdict.UNSURE if x[1] == y[1] and (shared or x[2][0] == y[2][0]) else Verdict.CONTRADICTS
    return Verdict.UNSURE


_MONTHS: Final = {
    name: i
    for i, names in enumerate(
        "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september "
        "sep sept|october oct|"
        "november nov|december dec".split("|"),
        1,
    )
    for name in names.split()
}
_DAYS: Final = {
    name: full.split()[0]
    for full in (
        "monday mon 周一 星期一 礼拜一",
        "tuesday tue tues 周二 星期二 礼拜二",
        "wednesday wed 周三 星期三 礼拜三",
        "thursday thu thurs 周四 星期四 礼拜四",
        "friday fri 周五 星期五 礼拜五",
        "saturday sat 周六 星期六 礼拜六",
        "sunday sun 周日 星期日 周天 星期天 礼拜天",
    )
    for name in full.split()
}
_MON = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE = re.compile(
    rf"(?P<y>\d{{4}})[-/.](?P<m>\d\d?)[-/.](?P<d>\d\d?)|(?P<yz>\d{{4}})年(?P<mz>\d\d?)月(?P<dz>\d\d?)[日号]?"
    rf"|(?P<mz2>\d\d?)月(?P<dz2>\d\d?)[日号]|(?P<yz3>\d{{4}})年(?P<mz3>\d\d?)月"
    rf"|(?P<yz4>\d{{4}})年(?:第?(?P<qz>[1-4一二三四])季度)?"
    rf"|(?P<me>{_MON})\.? (?P<de>\d\d?)(?:st|nd|rd|th)?(?:,? (?P<ye>\d{{4}}))?"
    rf"|(?P<de2>\d\d?)(?:st|nd|rd|th)? (?:of )?(?P<me2>{_MON})\.?(?:,? (?P<ye2>\d{{4}}))?"
    rf"|(?P<me3>{_MON})\.? (?P<ye3>\d{{4}})|q(?P<q>[1-4]),? (?P<yq>\d{{4}})"
    rf"|(?P<s1>\d\d?)/(?P<s2>\d\d?)/(?P<s3>\d{{4}})"
    rf"|(?P<year>(?:19|20)\d\d)|(?P<wd>{'|'.join(sorted(_DAYS, key=len, reverse=True))})"
)
_ZONE = r"(?: ?(?P<zone>utc|gmt|[ecmp][sd]?t|ces?t|bst|jst|z|北京时间))?"
_CLOCK = re.compile(
    rf"(?P<part>上午|早上|下午|晚上|中午|傍晚)?(?P<h>\d\d?)(?::(?P<min>\d\d)|点(?:(?P<mz>\d\d?)分"
    rf"|(?P<half>半))?整?)? ?"
    rf"(?P<ap>a\.?m\.?|p\.?m\.?)?{_ZONE}"
)


def _read_time(text: str) -> str | None:
    value = re.sub(r"^(?:at|by) ", "", _canonical(text))
    if value in ("noon", "midday", "中午", "midnight"):
        return "12:00" if value != "midnight" else "00:00"
    m = _CLOCK.fullmatch(value)
    if m is None or not (m["min"] or m["ap"] or "点" in value):
        return None
    hour, minute = int(m["h"]), int(m["min"] or m["mz"] or (30 if m["half"] else 0))
    pm = (m["ap"] or "").startswith("p") or m["part"] in ("下午", "晚上", "傍晚")
    if (m["ap"] or m["part"]) and not 1 <= hour <= 12 and not (pm and hour < 24):
        return None
    if pm and hour < 12:
        hour += 12
    elif (m["ap"] or "").startswith("a") and hour == 12:
        hour = 0
    if hour > 23 or minute > 59:
        return None
    half = "" if m["ap"] or m["part"] or hour > 12 or len(m["h"]) == 2 else "?"  # "9:30" may be the evening
    return f"{hour:02}:{minute:02}{half}" + (f" {m['zone']}" if m["zone"] else "")


def _read_when(text: str) -> str | None:
    clock = _read_time(text)
    if clock is not None:
        return clock
    date = _read_date(text)
    return date if date is not None and re.search(r"t\d\d:", date) else None


def _compare_when(a: str, b: str) -> Verdict:
    dated = [re.search(r"t\d\d:", v) is not None for v in (a, b)]
    if dated[0] != dated[1]:
        return Verdict.UNSURE
    return _compare_date(a, b) if dated[0] else _compare_time(a, b)


def _compare_time(a: str, b: str) -> Verdict:
    (x, _, zone), (y, _, other) = a.partition(" "), b.partition(" ")
    if zone != other:
        return Verdict.UNSURE
    if x == y:
        return Verdict.SAME
    p, q = x.rstrip("?"), y.rstrip("?")
    if "?" in x + y and (int(p[:2]) % 12, p[3:]) == (int(q[:2]) % 12, q[3:]):
        return Verdict.UNSURE
    return Verdict.CONTRADICTS


def _day(year: str | None, month: int, day: int) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{year or '-'}-{month:02}-{day:02}"


def _date_part(value: str) -> str | None:
    m = _DATE.fullmatch(value)
    if m is None:
        return None
    g = m.groupdict()
    for y, mo, d in (("y", "m", "d"), ("yz", "mz", "dz"), ("", "mz2", "dz2")):
        if g[mo] and g[d]:
            return _day(g[y] if y else None, int(g[mo]), int(g[d]))
    for y, mo, d in (("ye", "me", "de"), ("ye2", "me2", "de2")):
        if g[mo] and g[d]:
            return _day(g[y], _MONTHS[g[mo]], int(g[d]))
    if g["yz3"]:
        return f"{g['yz3']}-{int(g['mz3']):02}" if 1 <= int(g["mz3"]) <= 12 else None
    if g["ye3"]:
        return f"{g['ye3']}-{_MONTHS[g['me3']]:02}"
    if g["q"]:
        return f"{g['yq']}-q{g['q']}"
    if g["yz4"]:
        quarter = g["qz"] and ("一二三四".find(g["qz"]) + 1 or int(g["qz"]))
        return f"{g['yz4']}-q{quarter}" if quarter else str(g["yz4"])
    if g["s1"]:
        return f"{int(g['s1'])}/{int(g['s2'])}/{g['s3']}"
    return str(g["year"]) if g["year"] else _DAYS[g["wd"]]


def _read_date(text: str) -> str | None:
    value = re.sub(r"^(?:on|by|at) ", "", _canonical(text))
    if (plain := _date_part(value)) is not None:
        return plain
    m = re.fullmatch(r"(\w+)[, ]\s*(.+)", value)
    if m and m[1] in _DAYS and (rest := _read_date(m[2])) is not None and rest[0] in "-12":
        return rest  # "Friday, March 6"
    if m := re.fullmatch(r"(.+?)\((?:周|星期).\)", value):
        return _date_part(m[1])
    for split in re.finditer(
        r"(?<=[\d日号a-z])(?:,? (?:at )?|t)(?=[\d上下晚早中])|(?<=[日号])(?=\d)"
        r"|(?<=[日号一二三四五六天])(?=[上下晚早中])",
        value,
    ):
        date, clock = _date_part(value[: split.start()]), _read_time(value[split.end() :])
        if date is not None and clock is not None:
            return f"{date}t{clock}"
    if m := re.fullmatch(r"(.+?) (?:on )?(\D.*)", value):  # "5 pm on Friday"
        date, clock = _date_part(m[2]), _read_time(m[1])
        if date is not None and clock is not None:
            return f"{date}t{clock}"
    return None


def _compare_date(a: str, b: str) -> Verdict:
    if a == b:
        return Verdict.SAME
    # "t" also ends no weekday and starts no date, so the first "t" before a digit splits off the time.
    (x, _, clock), (y, _, other) = (re.sub(r"t(?=\d\d:)", "\n", v).partition("\n") for v in (a, b))
    if x == y:
        return _compare_time(clock, other) if clock and other else Verdict.UNSURE
    shape = re.compile(r"\d(?!q)|q\d")
    if "/" in x or "/" in y:  # day and month may be swapped
        if "/" not in x or "/" not in y:
            return Verdict.UNSURE
        return Verdict.UNSURE if sorted(x.split("/")) == sorted(y.split("/")) else Verdict.CONTRADICTS
    if x[:2] == "--" or y[:2] == "--":
        if x[-6:] == y[-6:]:
            return (
                Verdict.SAME
                if len(x) in (7, 10) and len(y) in (7, 10) and not clock + other
                else Verdict.UNSURE
            )
        return (
            Verdict.CONTRADICTS
            if len(x) in (7, 10) and len(y) in (7, 10) and x[-6] == y[-6] == "-"
            else Verdict.UNSURE
        )
    return (
        Verdict.CONTRADICTS if shape.sub("0", x) == shape.sub("0", y) or _both_days(x, y) else Verdict.UNSURE
    )


def _both_days(x: str, y: str) -> bool:
    days = _DAYS.values()
    return x in days and y in days


_UNITS: Final = {
    unit: (dimension, float(factor))
    for dimension, _, listed in (line.partition(": ") for line in words.UNITS.strip().split("\n"))
    for unit, _, factor in (entry.rpartition("=") for entry in listed.split(", "))
}
_SCALE: Final = {
    "k": 1e3,
    "thousand": 1e3,
    "千": 1e3,
    "million": 1e6,
    "mn": 1e6,
    "billion": 1e9,
    "bn": 1e9,
    "百": 1e2,
    "万": 1e4,
    "百万": 1e6,
    "亿": 1e8,
    "m": 1e6,
}
_QUANTITY = re.compile(
    r"(?P<pre>us\$|[$€£¥₹]|usd|eur|gbp|cny|rmb|jpy|人民币)? ?(?P<n>\d{1,3}(?:,\d{3})+(?:\.\d+)?"
    r"|\d+(?:\.\d+)?)"
    r" ?(?P<scale>k|thousand|million|billion|mn|bn|m|百万|[千百万亿])?(?![a-z\d.,])"
    r"|(?P<n2>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
)
_PER = re.compile(r"(?: ?(?:/|per|a|an|each|every|每) ?)([a-z]+|[\u4e00-\u9fff]{1,2})")


def _unit(word: str) -> str | None:
    if word in _UNITS:
        return word
    if word.endswith("s") and word[:-1] in _UNITS:
        return word[:-1]
    return None


def _read_quantity(text: str) -> str | None:
    value = _canonical(text).rstrip(".")
    value = re.sub(r"^(?:at|to) ", "", value)
    per = ""
    if (m := re.match(r"每([\u4e00-\u9fff]{1,2}?)(?=[\d¥$])", value)) or (
        m := re.fullmatch(rf".+?{_PER.pattern}", value)
    ):
        per = {
            "月": "month",
            "个月": "month",
            "年": "year",
            "天": "day",
            "日": "day",
            "小时": "hour",
            "周": "week",
        }.get(m[1], m[1])
        value = value[m.end() :] if m.start(1) < 2 else value[: m.start(1)]
        value = re.sub(r" ?(?:/|per|a|an|each|every|每) ?$", "", value)
    m = _QUANTITY.match(value)
    if m is None:
        return None
    number = float((m["n"] or m["n2"]).replace(",", ""))
    unit_text = value[m.end() :].strip().replace("-", " ").strip()
    scale, prefix = m["scale"], m["pre"]
    if scale == "m" and not prefix:  # "5 m" is a length; "$5m" is money
        scale, unit_text = None, "m" if not unit_text else "?"
    unit = _unit(unit_text) if unit_text else ""
    if unit is None or (prefix and unit and _UNITS[_unit(prefix) or prefix][0] != _UNITS[unit][0]):
        return None
    unit = unit or prefix or ""
    number *= _SCALE[scale] if scale else 1
    rounded = "~" if scale in ("k", "m", "million", "billion", "mn", "bn", "thousand") else ""
    return f"{rounded}{number:.12g}" + (f" {unit}" if unit else "") + (f"/{per}" if per else "")


def _compare_quantity(a: str, b: str) -> Verdict:
    if a == b:
        return Verdict.SAME
    (left, _, per), (right, _, other) = a.partition("/"), b.partition("/")
    if per != other:
        return Verdict.UNSURE
    (n, _, u), (m, _, v) = left.partition(" "), right.partition(" ")
    x, y = float(n.lstrip("~")), float(m.lstrip("~"))
    if u == v:
        if x == y:
            return Verdict.SAME
        return Verdict.UNSURE if "~" in n + m and abs(x - y) <= 0.05 * max(x, y) else Verdict.CONTRADICTS
    if not u or not v or _UNITS[u][0] != _UNITS[v][0]:
        return Verdict.UNSURE
    p, q = x * _UNITS[u][1], y * _UNITS[v][1]
    top = max(abs(p), abs(q))
    # 1 GB is 1000 or 1024 MB, depending on who writes; a conversion is often rounded.
    slack = 0.11 if _UNITS[u][0] == "byte" else 0.03
    if abs(p - q) <= 1e-9 * top or (_UNITS[u][0] == "byte" and _binary(x, u) == _binary(y, v)):
        return Verdict.SAME
    return Verdict.UNSURE if abs(p - q) <= slack * top or "~" in n + m else Verdict.CONTRADICTS


def _binary(number: float, unit: str) -> float:
    return number * 1024.0 ** round(_log1000(_UNITS[unit][1]))


def _log1000(factor: float) -> float:
    power = 0.0
    while factor >= 1000:
        factor /= 1000
        power += 1
    return power


def _read_url(text: str) -> str | None:
    value = text.rstrip("/.")
    if not re.fullmatch(
        r"(?:[a-z][a-z0-9+.-]*://)?[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/[\w./%#?=&+-]*)?", value, re.IGNORECASE
    ):
        return None
    return value.casefold()


def _compare_url(a: str, b: str) -> Verdict:
    x, y = (re.sub(r"^(?:\w+://)?(?:www\.)?", "", v) for v in (a, b))
    if x == y:
        return Verdict.SAME
    (host, _, _), (other, _, _) = x.partition("/"), y.partition("/")
    p, q = (
        set(h.partition(":")[0].split(".")[:-1]) - {"co", "com", "org", "net", "ac", "gov"}
        for h in (host, other)
    )
    # Several addresses under one registered name are pages, services or countries of one owner.
    return Verdict.UNSURE if p & q or not p or not q else Verdict.CONTRADICTS


def _read_ident(text: str) -> str | None:
    value = re.sub(r"^(?:room|branch|会议室|host) ", "", _canonical(text))
    return (
        value
        if re.fullmatch(r"[a-z0-9][\w./-]{0,40}|[\u4e00-\u9fff]{1,4}", value) and value not in _NO_NAME
        else None
    )


def _compare_ident(a: str, b: str) -> Verdict:
    if a == b:
        return Verdict.SAME
    related = a in b or b in a or any(c.isdigit() for c in a) != any(c.isdigit() for c in b)
    return Verdict.UNSURE if related or a.isascii() != b.isascii() else Verdict.CONTRADICTS


def _read_text(text: str) -> str | None:
    value = _canonical(text).strip(".'\"")
    return (
        value
        if value and len(value) <= 40 and value.count(" ") <= 4 and not re.search(r"[,;:()/]", value)
        else None
    )


def _compare_text(a: str, b: str) -> Verdict:
    if a == b:
        return Verdict.SAME
    return Verdict.UNSURE if a in b or b in a or set(a.split()) & set(b.split()) else Verdict.CONTRADICTS


KINDS: Final[dict[str, tuple[_Reader, _Comparer]]] = {
    "ip": (_read_ip, _compare_ip),
    "port": (_read_port, _compare_port),
    "version": (_read_version, _compare_version),
    "name": (_read_name, _compare_name),
    "status": (_reader_of(_STATUS), _comparer_of(_STATUS)),
    "level": (_reader_of(_LEVELS), _comparer_of(_LEVELS)),
    "colour": (_reader_of(_COLOURS), _comparer_of(_COLOURS)),
    "phone": (_read_phone, _compare_phone),
    "email": (_read_email, _compare_plain),
    "place": (_read_place, _compare_place),
    "address": (_read_address, _compare_address),
    "date": (_read_date, _compare_date),
    "time": (_read_when, _compare_when),
    "quantity": (_read_quantity, _compare_quantity),
    "url": (_read_url, _compare_url),
    "ident": (_read_ident, _compare_ident),
    "text": (_read_text, _compare_text),
}
"""Value types: name -> (reader of a cased text, comparer of two canonical values)."""

for _line in words.ATTRIBUTES.strip().split("\n"):
    _name, _kind, _en, _zh = (part.strip() for part in _line.split("|"))
    extend_attributes(_name, english=_items(_en, ","), chinese=_items(_zh, ","), kind=_kind)


def frame(text: str) -> Frame | None:
    """The frame of a statement, or None when it is not exactly one plain, current, unhedged assertion.

    Deterministic; looks at nothing but the text (English or Chinese, at most MAX_LENGTH characters).
    """
    if len(text) > MAX_LENGTH or _SEVERAL.search(text):
        return None
    chinese = _CJK.search(text) is not None
    if not chinese and not _hints(text):
        return None
    plain = " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").split()).rstrip(" .。!")
    return _chinese(plain) if chinese else _english(plain)


_WORD = re.compile(r"[a-z-]+")


def _hints(text: str) -> bool:
    words = _WORD.findall(text.lower())
    return not (_HEADS.isdisjoint(words) and _VERB_HINTS.isdisjoint(words))


def _english(text: str) -> Frame | None:
    text = _TAIL_EN.sub("", _LEAD_EN.sub("", text))
    over = _INSTEAD_EN.search(text)
    if over:
        text = text[: over.start()]
    if _NEVER_EN.search(text):
        return None
    for pattern, name in _VERBS_EN:
        if m := pattern.match(text):
            made = _make(m["entity"], name, m["value"], _english_entity, over)
            if made is not None:
                return made
    link = _LINK_EN.search(text)
    if link is None:
        return None
    found = _english_subject(text[: link.start()].strip(), heading=link[0].strip() in (":", "="))
    if found is None:
        return None
    entity, name = found
    made = _make(entity, name, text[link.end() :].strip(), _english_entity, over)
    return made if made is None or link["old"] is None or _replaces(made, link["old"]) else None


def _english_subject(left: str, *, heading: bool) -> tuple[str, str] | None:
    """(entity as written, canonical attribute) of the words before the copula, or before a colon."""
    words = left.split(" ")
    if len(words) > 12:
        return None
    low = [w.casefold() for w in words]
    start = 1 if low[0] == "the" else 0
    while start < len(low) - 1 and low[start] in ("current", "new", "updated", "present"):
        start += 1
    for stop in range(min(len(low), start + _LONGEST + 1), start, -1):
        if stop < len(low) - 1 and low[stop] in ("of", "for"):
            name = _attribute(low[start:stop])
            if (
                name is not None
                and low[stop] == "for"
                and stop == len(low) - 2
                and words[-1].isalpha()
                and words[-1].islower()
            ):
                return None  # "the price for members" leaves open of what
            if name is not None:
                return " ".join(words[stop + 1 :]), name
    for first in range(max(1, len(low) - _LONGEST - 1), len(low)):
        name = _attribute(low[first:])
        if name is None:
            continue
        stop = first
        while stop > 1 and low[stop - 1] in ("current", "new", "updated", "present"):
            stop -= 1
        entity = " ".join(words[:stop])
        if heading and stop == 1 and entity.isalpha():
            return None  # "Final deadline: ..." is a heading inside something larger
        if entity.endswith(("'s", "s'")):
            return entity[: entity.rfind("'")], name
        # Without 's a modifier could end the entity ("the server backup port").
        if low[stop - 1] in _MODIFIERS or _LOOSE.search(low[stop - 1]):
            return None
        return entity, name
    return None


_LOOSE: Final = re.compile(
    r"(?:ed|able|ible|ing)$|^(?:open|free|spare|known|valid|next|last|first|partial|sub|side)$"
)


def _attribute(words: list[str]) -> str | None:
    phrase = " ".join(words)
    name = _ENGLISH.get(phrase)
    if name is None and len(words) > 1 and words[0] in _MODIFIERS:
        rest = _ENGLISH.get(" ".join(words[1:]))
        return f"{words[0].replace('favourite', 'favorite')} {rest}" if rest else None
    return name


def _unquote(text: str) -> str | None:
    """Without the quotes or backticks around the whole; None when quotes stand anywhere else."""
    if len(text) > 2 and (text[0], text[-1]) in (
        ('"', '"'),
        ("`", "`"),
        ("“", "”"),
        ("「", "」"),
        ("'", "'"),
        ("《", "》"),
    ):
        text = text[1:-1].strip()
    return None if re.search(r"[\"`“”「」]", text) else text


# In a name these words start a clause, or make the attribute one that may have several values.
_LOOSE_WITHIN: Final = frozenset(
    "is are was has supported compatible allowed available required open exposed accepted tested supports allows "
    "most only".split()
)


def _unquote_name(text: str) -> str | None:
    """As _unquote, but a name may also be quoted behind its kind: the project "Apollo"."""
    return _unquote(
        re.sub(r'"([^"]{1,30})"$|“([^”]{1,30})”$|「([^」]{1,30})」$|《([^》]{1,30})》$', r"\1\2\3\4", text)
    )


def _english_entity(text: str) -> str | None:
    bare = _unquote_name(text)
    if bare is None or not re.fullmatch(r"[\w #.&/'@+-]{1,60}", bare):
        return None
    words = bare.split(" ")
    # "a server" is any server, but "server A" is one: only a leading article says which.
    if words[0].casefold() in _EN_BAD_START or len(words) > 7:
        return None
    kept = [w for w in (w.casefold() for w in words) if w != "the"]
    if not kept or not _LOOSE_WITHIN.isdisjoint(kept):
        return None
    if len(kept) == 1 and (kept[0] in _MODIFIERS or kept[0] in _ENGLISH or kept[0] in ("current", "new")):
        return None
    return " ".join(kept)


def _chinese_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    global _zh_patterns
    if _zh_patterns is None:
        names = "|".join(
            rf"(?<![a-z0-9]){re.escape(w)}(?![a-z0-9])" if w.isascii() else re.escape(w)
            for w in sorted({*_CHINESE, *_ENGLISH}, key=lambda w: (-len(w), w))
        )
        mods = "|".join(sorted(_ZH_MODIFIERS, key=lambda w: (-len(w), w)))
        left = (
            r"(?P<entity>.{1,40}?)(?P<de>\s*的|\s)?\s*(?:最新的?|当前的?|现在的|目前的|新的?)?"
            rf"(?P<mod>{mods})?(?P<attr>{names})"
        )
        _zh_patterns = (
            re.compile(rf"^(?:已经?[将把])?{left}{_ZH_LINK}(?P<value>.{{1,60}})$", re.IGNORECASE),
            re.compile(rf"^{left}(?:\s*{_ZH_ADVERB})*\s*(?P<value>[\d¥$+].{{0,30}})$", re.IGNORECASE),
        )
    return _zh_patterns


_ZH_VERB_HINTS: Final = tuple(
    "位于 坐落 设在 部署在 迁至 搬到 迁到 搬至 住在 定居 负责 主管 管理 所有 卖 要价 升 更新 降级 "
    "分配给 指派给".split()
)


def _chinese_hints(text: str) -> bool:
    """Whether an attribute or a verb that implies one occurs at all; most texts end here."""
    global _zh_hint
    if _zh_hint is None:
        words = {w for w in _CHINESE if not w.isascii()} | set(_ZH_VERB_HINTS)
        _zh_hint = re.compile("|".join(sorted(words)))
    if _zh_hint.search(text):
        return True
    ascii_words = _WORD.findall(text.lower())
    return not (_HEADS.isdisjoint(ascii_words) and _CHINESE.keys().isdisjoint(ascii_words))


def _chinese(text: str) -> Frame | None:
    if not _chinese_hints(text):
        return None
    text = re.sub(r"(?<=[\u3400-\u9fff]) | (?=[\u3400-\u9fff])", "", _LEAD_ZH.sub("", text))
    over = _INSTEAD_ZH.search(text)
    if over:
        text = text[: over.start()]
    guarded = re.sub(r"^已经?[将把]", "", text)
    if _NEVER_ZH.search(guarded) or re.search(r"[,;、!]", re.sub(r"(?<=\d),(?=\d{3})", "", guarded)):
        return None
    for i, pattern in enumerate(_chinese_patterns()):
        m = pattern.match(text)
        if m is None:
            continue
        word = _canonical(m["attr"])
        name = _CHINESE.get(word) or _ENGLISH[word]
        if m["mod"]:
            name = f"{_ZH_MODIFIERS[m['mod'].casefold()]} {name}"
        made = _make(m["entity"], name, m["value"].strip(), _chinese_entity, over)
        if made is not None and i == 0 and m["old"] is not None and not _replaces(made, m["old"]):
            return None
        if made is not None:
            return made
    for pattern, name in _VERBS_ZH:
        if m := pattern.match(text):
            made = _make(m["entity"], name, m["value"].strip(), _chinese_entity, over)
            if made is not None:
                return made
    return None


def _chinese_entity(text: str) -> str | None:
    bare = _unquote_name(text.strip())
    if bare is None or not re.fullmatch(r"[\w #.&/'@+·-]{1,40}", bare):
        return None
    entity = _canonical(bare)
    if re.search("支持|兼容|允许|可用|开放|监听|要求", entity):
        return None
    if entity.startswith(_ZH_BAD_START) or entity.endswith(_ZH_BAD_END) or entity in _CHINESE:
        return None
    if entity in _ZH_MODIFIERS or re.search(rf"\b(?:is|are|the)\b|(?:已|现|{_ZH_CHANGED})$", entity):
        return None
    return entity


def _base(attribute: str) -> Attribute | None:
    """The declared attribute behind a canonical name that may carry a modifier."""
    known = ATTRIBUTES.get(attribute)
    return known if known is not None else ATTRIBUTES.get(attribute.partition(" ")[2])


def _make(
    entity: str,
    name: str,
    value: str,
    canonical_entity: Callable[[str], str | None],
    over: re.Match[str] | None,
) -> Frame | None:
    who = canonical_entity(entity)
    bare = _unquote(value)
    if who is None or not bare:
        return None
    attribute = _base(name)
    if attribute is None:
        return None
    what = KINDS[attribute.kind][0](bare)
    if what is None and attribute.kind == "address":  # "the address of server A" may be an IP or an e-mail
        for other in ("ip", "email"):
            what = KINDS[other][0](bare)
            if what is not None:
                name = name[: -len("address")] + other
                break
    if what is None:
        return None
    made = Frame(who, name, what)
    return made if over is None or _replaces(made, over["old"]) else None


def _replaces(made: Frame, old: str) -> bool:
    """Whether `old`, said to be over, is a value of the same type other than the new one."""
    attribute = _base(made.attribute)
    bare = _unquote(old.strip())
    if attribute is None or not bare:
        return False
    before = KINDS[attribute.kind][0](bare)
    return before is not None and before != made.value


def contradicts(older: Frame, newer: Frame) -> Verdict:
    """Whether `newer` cannot hold together with `older`.

    CONTRADICTS only for the same entity and attribute with two values of the same type and grain that are
    not equal in another notation; UNSURE wherever both might hold.
    """
    if older.entity != newer.entity or older.attribute != newer.attribute:
        return Verdict.UNRELATED
    attribute = _base(older.attribute)
    if attribute is None:  # declared when the older was stored, not in this process
        return Verdict.SAME if older.value == newer.value else Verdict.UNSURE
    verdict = KINDS[attribute.kind][1](older.value, newer.value)
    if verdict is Verdict.CONTRADICTS and older.entity in _GENERIC:
        return Verdict.UNSURE
    return verdict
