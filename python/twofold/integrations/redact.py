"""Secrets out of commands and outputs before anything is stored. Standard library only, linear in the text.

What is cut is a judgement by form: known token formats, values of names and options that say they are secret,
passwords in URLs, private keys, and strings that look random. Hex digests, UUIDs, paths and words stay.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

MARK: Final = "[REDACTED]"
_MOST: Final = 1_000_000  # characters looked at; the rest is dropped, not passed through

_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|PuTTY-User-Key-File-\d:.*?(?:Private-MAC: ?[0-9a-f]{8,}|\Z)"
    r"|AGE-SECRET-KEY-1[0-9A-Z]{20,}",
    re.DOTALL,
)

# Formats that are secrets wherever they stand.
_FORMATS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Z])"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|gl[a-z]{2,4}-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-\d-[\w-]{10,}|xoxe\.[\w.-]{10,}"
    r"|sk-(?=[\w-]*\d)[\w-]{16,}|[sprw]k_(?:live|test)_[0-9A-Za-z]{10,}|whsec_[0-9A-Za-z+/=]{16,}"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|1//0[\w-]{20,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|hf_[A-Za-z0-9]{20,}|tf_[0-9a-f]{64}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|SK[0-9a-f]{32}|key-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}"
    r"|do[opr]_v1_[a-f0-9]{40,}|dapi[0-9a-f]{32}|hv[sbr]\.[\w-]{20,}|s\.[A-Za-z0-9]{24}(?![A-Za-z0-9])"
    r"|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{30,}|secret_[A-Za-z0-9]{40,}"
    r"|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}|nvapi-[\w-]{40,}"
    r"|dckr_pat_[\w-]{20,}|atlasv1\.[\w-]{40,}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}|glsa_[\w]{30,}"
    r"|EAA[A-Za-z0-9]{40,}|sq0[a-z]{3}-[\w-]{20,}|\d{8,10}:AA[\w-]{30,}|PMAK-[0-9a-f-]{40,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*"
    r")"
)
_WEBHOOK: Final = re.compile(
    r"https://(?:hooks\.slack\.com/(?:services|workflows)|(?:\w+\.)?discord(?:app)?\.com/api/webhooks"
    r"|[\w.-]+\.webhook\.office\.com)/[^\s\"'<>]+"
)

_URL_PASSWORD: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{0,20}://)[^\s/@:'\"]{0,200}:[^\s@'\"]{1,200}@(?=[\w\[])"
)
_URL_TOKEN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20}://)([^\s/@:'\"]{12,500})@(?=[\w\[])")

_HEADER: Final = re.compile(
    r"(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-auth-token|x-amz-security-token|x-vault-token|"
    r"private-token|ocp-apim-subscription-key|x-functions-key|(?:set-)?cookie)(['\"]?\s{0,3}[:=]\s{0,3}['\"]?)"
    r"([^\r\n'\"]{3,})"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic|token|apikey|negotiate)(\s{1,3})([A-Za-z0-9._~+/=-]{6,})")

_QUOTED: Final = r"\"(?:[^\"\\\n]|\\.){0,2000}\"|'[^'\n]{0,2000}'"
_ASSIGNED: Final = re.compile(
    rf"(?<![\w.-])([A-Za-z_][\w.-]{{0,80}})(['\"]?\s{{0,3}}(?::=|=>|==?|:)\s{{0,3}})({_QUOTED}|[^\s\"',;)}}\]|&<>]{{1,200}})"
)
_OPTION: Final = re.compile(
    rf"(?<![\w-])(--?[A-Za-z][\w.-]{{0,60}})(=|\s{{1,3}})({_QUOTED}|[^\s\"'|;&<>]{{1,200}})"
)
_NAMED: Final = re.compile(
    rf"(?<![\w./:-])([\w./-]{{0,60}}[_:][\w./-]{{1,60}})(\s{{1,3}})({_QUOTED}|[^\s\"'|;&<>=]{{6,200}})"
)
_REST: Final = re.compile(r"[^\s\"',;)}\]|&<>]*")  # of a value longer than the patterns look
_SAID: Final = re.compile(
    r"(?i)\b(pass(?:word|phrase|wd|code)?|pwd|pin|secret|token|api[ -]?key|credentials?|密码|口令|密钥)"
    r"(\s{1,3}(?:is|was|=|to|ist|为|是)\s{1,3}|\s?[：是为]\s?)"
    rf"({_QUOTED}|[^\s\"',;]{{1,200}})"
)

# Commands that take a password by position or by a short option.
_COMMANDS: Final = [
    re.compile(p)
    for p in (
        r"()(\bsshpass\s+-p\s*)(\"[^\"]*\"|'[^']*'|\S+)",
        r"()(\b(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump)\b[^\n|;&]{0,200}?\s-p)(\"[^\"]*\"|'[^']*'|[^\s-]\S*)",
        r"()(\bredis-cli\b[^\n|;&]{0,200}?\s-a\s+)(\"[^\"]*\"|'[^']*'|\S+)",
        r"()(\b(?:docker|podman|nerdctl|helm|oras|skopeo|crane|az)\b[^\n|;&]{0,200}?\blogin\b[^\n|;&]{0,200}?\s-p\s+)"
        r"(\"[^\"]*\"|'[^']*'|[^\s-]\S*)",
        r"()(\b(?:mongo(?:sh|dump|restore|import|export)?)\b[^\n|;&]{0,200}?\s-p\s+)(\"[^\"]*\"|'[^']*'|[^\s-]\S*)",
        r"()(\bldap(?:search|add|modify|passwd)\b[^\n|;&]{0,200}?\s-w\s+)(\"[^\"]*\"|'[^']*'|[^\s-]\S*)",
        r"()(\b(?:curl|wget|http|xh)\b[^\n|;&]{0,200}?\s(?:-u|--user|--proxy-user|-U)[\s=]*[\"']?[^\s:\"']*:)([^\s\"']+)",
        r"()(\b(?:zip|7z|unzip|rar|unrar)\b[^\n|;&]{0,200}?\s-[pP]\s?)(\"[^\"]*\"|'[^']*'|[^\s-]\S*)",
        r"()(\bhtpasswd\b[^\n|;&]{0,200}?\s-\w*b\w*\s+\S+\s+\S+\s+)(\"[^\"]*\"|'[^']*'|\S+)",
        r"()(\bpass(?:in|out)?\s*[: ]\s*pass:)(\S+)",
        r"()(\bpass:)(\S+)",
        r"()(\b(?:echo|printf)\s+(?:-\w+\s+)*)(\"[^\"\n]*\"|'[^'\n]*'|[^|\n]+?)(?=\s*\|\s*(?:sudo\s+(?:-\w+\s+)*(?:-S|chpasswd)"
        r"|chpasswd|passwd|docker\s+login|podman\s+login|gh\s+auth|kinit|su\b|openssl|cryptsetup|gpg|vault|helm|base64))",
        r"()(\b(?:chpasswd|passwd|gh\s+auth\s+login|sudo\s+-S)\b[^\n|;&]{0,200}?<<<\s*)(\"[^\"]*\"|'[^']*'|\S+)",
        r"(?i)()(\b(?:identified\s+(?:with\s+\w+\s+)?by|with\s+(?:encrypted\s+)?password|set\s+password\s*=?|"
        r"password)\s+)('[^'\n]*'|\"[^\"\n]*\")",
        r"()(\bnet\s+user\s+\S+\s+)(\S+)",
        r"()(\b(?:gh|heroku|fly|flyctl|railway|vercel|wrangler)\b[^\n|;&]{0,200}?\bsecrets?\s+(?:set|put|add)\s+\S+\s+)(\S+)",
        r"()(\bvault\s+login\s+(?:-\S+\s+)*)(\S+)",
        r"()(\bmachine\s+\S+\s+login\s+\S+\s+password\s+)(\S+)",
        r"()(--from-literal[= ][\"']?[^\s=]+=)(\"[^\"]*\"|'[^']*'|[^\s\"']+)",
        r"(?i)()(;\s*(?:AccountKey|SharedAccessKey|SharedAccessSignature|Pwd|Password)\s*=\s*)([^;\s\"']+)",
        r"(?i)()([?&](?:sig|signature|key|code|x-amz-(?:signature|credential|security-token))=)([^&\s\"'<>]+)",
    )
]  # fmt: skip

_SECRET_WORDS: Final = frozenset(
    "secret secrets token password passwords passwd passphrase passcode pwd pass pw apikey apitoken authtoken "
    "credential credentials creds auth bearer cookie jwt dsn psk salt otp totp mfa pin sas".split()
)
# With one of these before it, "key" is a secret one; a primary or a sort key is not.
_KEYS: Final = frozenset(
    "api access private secret signing encryption master auth account service app ssh gpg pgp aws azure gcp openai "
    "anthropic stripe license subscription shared deploy webhook session crypt storage client admin root host".split()
)
# "token" and "auth" also name things that are counted, switched or chosen.
_HARMLESS_BESIDE: Final = frozenset(
    "max min count counter counts limit limits budget size length type types url uri endpoint method name path file "
    "dir id ids expiry expires ttl enabled mode provider policy tokenizer usage used total per cost price field "
    "column header kind issuer audience scope scopes strategy required level rounds rotation manager prompt "
    "completion".split()
)
_VALUE_WORDS: Final = frozenset(
    "true false null none nil undefined yes no on off required optional string str int bool bytes any text "
    "redacted hidden masked changeme example placeholder xxx stdin env file prompt default empty missing invalid "
    "expired wrong correct set unset ok error".split()
)
_SEGMENT: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_REFERENCE: Final = re.compile(
    r"\$\{?[A-Za-z_]\w*(?::?[-?][^}]*)?\}?|\$\(.*|`.*|%\w+%|\{\{.*|<[^>]*>|\*+|\.\.\.|…|process\.env\..*|os\.environ.*"
    r"|@\S+|\S+\(.*|/dev/\w+"
)

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX: Final = re.compile(r"(?:0x)?[0-9a-f]+|(?:0x)?[0-9A-F]+")
_WORDLIKE: Final = re.compile(r"[A-Za-z0-9+/_~-]{20,}={0,2}")
_WORD: Final = re.compile(r"[A-Z][a-z]{3,}|[a-z]{4,}")
_SPOKEN: Final = re.compile(r"(?i)(?=.*[aeiouy])(?!.*[bcdfghjklmnpqrstvwxz]{4}).*")  # could be said aloud
_DIGITS: Final = re.compile(r"\d+")
_DIGEST: Final = re.compile(r"(?:sha(?:1|224|256|384|512)|md5|blake2b)[-:]?")
_PUBLIC_KEY: Final = re.compile(r"(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S+)\s+AAAA[A-Za-z0-9+/=]+")


def redact(text: str) -> str:
    """The text with its secrets replaced by [REDACTED]. Redacting twice changes nothing more."""
    text = text[:_MOST]
    text = _PRIVATE_KEY.sub(MARK, text)
    text = _WEBHOOK.sub(MARK, text)
    text = _FORMATS.sub(MARK, text)
    text = _URL_PASSWORD.sub(rf"\1{MARK}@", text)
    text = _URL_TOKEN.sub(lambda m: f"{m[1]}{MARK}@" if _some_digit(m[2]) else m[0], text)
    text = _HEADER.sub(lambda m: f"{m[1]}{m[2]}{MARK}", text)
    text = _BEARER.sub(lambda m: f"{m[1]}{m[2]}{MARK}" if _some_digit(m[3]) else m[0], text)
    for pattern in _COMMANDS:
        text = pattern.sub(_positional, text)
    text = _cut_values(_OPTION, text, _names_secret)
    text = _cut_values(_ASSIGNED, text, _names_secret)
    text = _cut_values(_NAMED, text, _setting)
    text = _cut_values(_SAID, text, lambda _, value: _unlike_a_word(value))
    return _random_strings(text)


def _positional(match: re.Match[str]) -> str:
    value = match[3].strip("\"'")
    if MARK in value or _is_reference(value):
        return match[0]
    return f"{match[1]}{match[2]}{MARK}"


def _cut_values(pattern: re.Pattern[str], text: str, secret: Callable[[str, str], bool]) -> str:
    """Group 3 replaced where `secret(name, value)`; quotes stay. A value that is none is searched itself."""
    out: list[str] = []
    done = at = 0
    while match := pattern.search(text, at):
        value = match[3]
        quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
        quote = value[0] if quoted else ""
        bare = value[1:-1] if quoted else value
        if bare and bare not in MARK and MARK not in bare and secret(match[1], bare):
            out += (text[done : match.start(3)], quote, MARK, quote)
            done = at = match.end(3) if quoted else _REST.match(text, match.end(3)).end()  # type: ignore[union-attr]
        else:
            at = max(match.start(3), match.start() + 1)
    return "".join((*out, text[done:]))


def _some_digit(value: str) -> bool:
    return any(c.isdigit() for c in value) or len(value) >= 32


def _is_reference(value: str) -> bool:
    return _REFERENCE.fullmatch(value) is not None


def _unlike_a_word(value: str) -> bool:
    """Whether a value cannot be an ordinary word of a sentence."""
    value = value.rstrip(".!?")
    return len(value) >= 4 and not value.isalpha() and not _is_reference(value)


def _names_secret(name: str, value: str) -> bool:
    """Whether a name says that its value is secret, and the value is one rather than a reference or a setting."""
    segments = [s.lower() for s in _SEGMENT.findall(name)]
    if not segments or _is_reference(value) or value.lower() in _VALUE_WORDS:
        return False
    loud = {"password", "passwd", "passphrase", "pwd", "secret", "secrets"} & set(segments)
    if not loud and (set(segments) & _HARMLESS_BESIDE or re.fullmatch(r"\d{1,6}|\d+\.\d+", value)):
        return False
    if loud and set(segments) & {
        "file",
        "path",
        "url",
        "name",
        "field",
        "length",
        "policy",
        "min",
        "max",
        "id",
    }:
        return not (value.isdigit() or "/" in value or value.replace("-", "").replace("_", "").isalpha())
    if any(s in _SECRET_WORDS for s in segments):
        return len(value) >= 3
    joined = "".join(segments)
    if any(
        w in joined
        for w in ("password", "passwd", "apikey", "secretkey", "accesskey", "privatekey", "authtoken")
    ):
        return len(value) >= 3
    if segments[-1] in ("key", "keys"):
        return bool(set(segments[:-1]) & _KEYS) or (len(value) >= 16 and _mixed(value))
    return False


def _setting(name: str, value: str) -> bool:
    """`aws configure set aws_secret_access_key VALUE`: an identifier that says it is secret, then a value."""
    if not any(c in name for c in "_:") or not _names_secret(name.rpartition(":")[2], value):
        return False
    return _unlike_a_word(value)


def _mixed(value: str) -> bool:
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _random_strings(text: str) -> str:
    public = [m.span() for m in _PUBLIC_KEY.finditer(text)]
    kept = public + [m.span() for m in _UUID.finditer(text)]

    def replace(match: re.Match[str]) -> str:
        start, end = match.span()
        if any(a < end and start < b for a, b in kept):
            return match[0]
        before = text[max(0, start - 10) : start]
        return match[0] if _DIGEST.search(before + match[0][:8]) else _cut_random(match[0])

    return _WORDLIKE.sub(replace, text)


def _cut_random(run: str) -> str:
    return MARK if looks_random(run) else run


def looks_random(run: str) -> bool:
    """Whether a run of letters, digits and base64 signs looks drawn at random rather than named by a person."""
    body = run.rstrip("=")
    if len(body) < 20 or _HEX.fullmatch(body) or _UUID.fullmatch(body):
        return False
    kinds = [0 if c.islower() else 1 if c.isupper() else 2 if c.isdigit() else 3 for c in body]
    present = set(kinds) - {3}
    if 2 not in present or len(present) < 2:
        return False
    counts = Counter(body)
    entropy = -sum(n / len(body) * math.log2(n / len(body)) for n in counts.values())
    turns = sum(a != b for a, b in itertools.pairwise(kinds)) / (len(kinds) - 1)
    # In random letters runs of one case are short; in names they are words.
    words = sum(len(w) for w in _WORD.findall(body) if _SPOKEN.fullmatch(w)) / len(body)
    if len(present) == 3:
        scattered = len(_DIGITS.findall(body)) >= max(4, len(body) / 12)
        least = (
            0.45 if len(body) < 28 and set(body) & set("-_/") else 0.3
        )  # names of things are joined by these
        return entropy >= 3.6 and turns >= least and (words < 0.45 or scattered)
    # One case and digits: base32 and the like.
    if set(body) & set("-_/+~") or _looks_like_ulid(body):
        return False
    return len(body) >= 24 and entropy >= 3.7 and words < 0.6 and turns >= 0.3


def _looks_like_ulid(body: str) -> bool:
    return len(body) == 26 and body[0] in "01234567" and body.isupper()
