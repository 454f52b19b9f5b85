"""Finds keys, tokens and passwords in a text, so that none is stored by accident.

There are two families: tokens with a known shape (a vendor's prefix), and values next to a word
such as "password = ...", which must also look like a secret.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from meritory.text.words import words

_START = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"


@dataclass(frozen=True, slots=True)
class SecretMatch:
    """The position of a secret in a text, and its kind."""

    kind: str
    start: int
    end: int


def _shape(body: str) -> re.Pattern[str]:
    return re.compile(_START + body + _END)


_SHAPES: Final = (
    ("aws_access_key", _shape(r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}")),
    ("google_api_key", _shape(r"AIza[0-9A-Za-z_-]{35}")),
    ("google_oauth", _shape(r"(?:ya29\.[0-9A-Za-z_-]{20,500}|GOCSPX-[0-9A-Za-z_-]{20,60})")),
    ("azure_client_secret", _shape(r"[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}")),
    (
        "azure_key",
        re.compile(r"(?:AccountKey|SharedAccessKey|sig)=(?P<value>[A-Za-z0-9+/%]{40,200}={0,2})"),
    ),
    (
        "github_token",
        _shape(r"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})"),
    ),
    ("gitlab_token", _shape(r"gl(?:pat|dt|rt|cbt|ptt|oas|agent)-[A-Za-z0-9_.-]{20,100}")),
    ("slack_token", _shape(r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,250}")),
    (
        "slack_webhook",
        re.compile(r"hooks\.slack\.com/services/T[A-Za-z0-9]{5,20}/B[A-Za-z0-9]{5,20}/\w{16,40}"),
    ),
    (
        "discord_webhook",
        re.compile(r"discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w-]{50,90}"),
    ),
    (
        "stripe_key",
        _shape(r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}|whsec_[A-Za-z0-9+/]{24,90})"),
    ),
    ("anthropic_key", _shape(r"sk-ant-[A-Za-z0-9]{2,20}-[A-Za-z0-9_-]{20,250}")),
    ("openrouter_key", _shape(r"sk-or-v1-[0-9a-f]{40,80}")),
    (
        "openai_key",
        _shape(r"sk-(?:proj-|svcacct-|admin-|None-)?(?=[\w-]{0,120}[A-Za-z0-9]{16})[\w-]{20,250}"),
    ),
    ("npm_token", _shape(r"npm_[A-Za-z0-9]{36}")),
    ("pypi_token", _shape(r"pypi-AgE[A-Za-z0-9_-]{40,300}")),
    ("huggingface_token", _shape(r"(?:hf|api_org)_[A-Za-z0-9]{30,60}")),
    ("sendgrid_key", _shape(r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}")),
    ("telegram_token", _shape(r"\d{8,10}:AA[A-Za-z0-9_-]{33}")),
    ("digitalocean_token", _shape(r"do[opr]_v1_[0-9a-f]{64}")),
    ("vault_token", _shape(r"hv[sbr]\.[A-Za-z0-9_-]{24,200}")),
    ("shopify_token", _shape(r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}")),
    ("databricks_token", _shape(r"dapi[0-9a-f]{32}")),
    ("linear_key", _shape(r"lin_(?:api|oauth)_[A-Za-z0-9]{32,80}")),
    ("notion_token", _shape(r"(?:ntn|secret)_[A-Za-z0-9]{40,60}")),
    ("groq_key", _shape(r"gsk_[A-Za-z0-9]{40,60}")),
    ("xai_key", _shape(r"xai-[A-Za-z0-9]{60,100}")),
    ("supabase_key", _shape(r"sb(?:p|_secret)_[A-Za-z0-9_]{30,60}")),
    (
        "meritory_token",
        _shape(r"meritory_[a-z2-7]{2,1700}_[a-z2-7]{8}_(?P<value>[0-9a-f]{64})"),
    ),
    ("age_key", _shape(r"AGE-SECRET-KEY-1[0-9A-Z]{58}")),
    (
        "jwt",
        _shape(r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{10,1000}"),
    ),
)
# Every secret of a shape has one of these marks. Most texts have none of them, and searching for a
# mark is many times faster than matching its shape.
_MARKS: Final[dict[str, tuple[str, ...]]] = {
    "aws_access_key": ("AKIA", "ASIA", "ABIA", "ACCA"),
    "google_api_key": ("AIza",),
    "google_oauth": ("ya29.", "GOCSPX-"),
    "azure_client_secret": ("8Q~",),
    "azure_key": ("AccountKey=", "SharedAccessKey=", "sig="),
    "github_token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab_token": ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "gloas-", "glagent-"),
    "slack_token": ("xox", "xapp-"),
    "slack_webhook": ("hooks.slack.com",),
    "discord_webhook": ("/api/webhooks/",),
    "stripe_key": ("k_live_", "k_test_", "whsec_"),
    "anthropic_key": ("sk-ant-",),
    "openrouter_key": ("sk-or-v1-",),
    "openai_key": ("sk-",),
    "npm_token": ("npm_",),
    "pypi_token": ("pypi-AgE",),
    "huggingface_token": ("hf_", "api_org_"),
    "sendgrid_key": ("SG.",),
    "telegram_token": (":AA",),
    "digitalocean_token": ("_v1_",),
    "vault_token": ("hvs.", "hvb.", "hvr."),
    "shopify_token": ("shp",),
    "databricks_token": ("dapi",),
    "linear_key": ("lin_",),
    "notion_token": ("ntn_", "secret_"),
    "groq_key": ("gsk_",),
    "xai_key": ("xai-",),
    "supabase_key": ("sbp_", "sb_secret_"),
    "meritory_token": ("meritory_",),
    "age_key": ("AGE-SECRET-KEY-1",),
    "jwt": ("eyJ",),
}
# The same for values next to a word, in lower case.
_HEADER_MARKS: Final = ("bearer", "basic")
_NAME_MARKS: Final = ("pass", "pwd", "secret", "token", "credential", "key")
_NEARBY_MARKS: Final = (
    *("api", "access", "secret", "private", "client", "auth", "bearer", "token", "password"),
    "credential",
)
_UNBROKEN = re.compile(r"[\w~.+/%=:-]{15}")
_KEY_BLOCK = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")
_HEADER = re.compile(
    r"\b(?:bearer|basic)[ \t]{1,8}(?P<value>[A-Za-z0-9._~+/-]{16,2000}={0,2})", re.IGNORECASE
)
_URL_PASSWORD = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{0,30}://(?P<user>[^\s:/@\"'`<>]{0,100}):"
    r"(?P<value>[^\s/@\"'`<>]{3,200})@(?=[\w\[])"
)
_NAMES = (
    r"pass(?:word|wd|phrase|code)|[a-z]{1,12}_pass|pwd|secret|token|credentials?|auth[_-]?key"
    r"|(?:api|access|account|auth|client|encryption|master|private|secret|service|signing)"
    r"[ _-]?(?:key|secret|token)"
)
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,20}}[_.-]){{0,5}}(?:{_NAMES})s?(?:[_-](?:id|key|value))?)"
    r"[\"'`*]{0,3}[ \t]{0,8}(?P<link>:=|=>|==?|:|\bis[ \t]|\bwas[ \t]|\bto[ \t])[ \t]{0,8}"
    r"(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;]{6,300})",
    re.IGNORECASE,
)
_NEARBY = re.compile(
    r"(?<![A-Za-z])(?:api|access|secret|private|client|auth|bearer|token|password|credentials?)"
    r"(?:[ _-]?(?:key|token|secret))?s?(?![A-Za-z])",
    re.IGNORECASE,
)
_NEARBY_CHARS = 48
_DENSE = re.compile(r"(?<![A-Za-z0-9+/_=.-])[A-Za-z0-9+/_-]{24,200}={0,2}(?![A-Za-z0-9+/_=-])")
_PLACEHOLDER = re.compile(
    r"^[$%<{\[*(#]|^\W*$|[<>{}]|\.\.\.|\u2026|^(.)\1*$|x{4}|\*{3}|0{8}|12345|abcdef|example|sample"
    r"|passw[o0]rd|placeholder|dummy|redacted|changeme|change[_-]?me|your|insert|replace|todo|\benv\b|environ"
    r"|^(?:my|the|some|test|fake|null|none|true|false|undefined|string|value)(?:[_-]|$)",
    re.IGNORECASE,
)
# The shape is enough evidence; only an obvious dummy is excluded.
_DUMMY = re.compile(
    r"(.)\1{7}|x{6}|example|placeholder|your[_-]|0123456789|abcdefghij", re.IGNORECASE
)
_NOT_A_PASSWORD = re.compile(
    r"\d+[a-z]{0,5}$|https?:|(?:sha|md|aes|utf|base|bcrypt|argon|pbkdf|oauth|v|version|step)[-_]?\d",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-fA-F]+")
_DOTTED_NAME = re.compile(r"[A-Za-z_][A-Za-z_]*(?:[.:/_-]+[A-Za-z_]+)*[.:]?")
_COMMON_PASSWORDS: Final = words("password postgres pass pwd user admin root guest secret test")


def find_secrets(text: str) -> tuple[SecretMatch, ...]:
    """Return the secrets in the text, in order and without overlaps."""
    # Case-insensitive patterns also match letters such as the long s.
    folded = text.casefold()
    found = [*_blocks(text), *_shaped(text), *_in_urls(text)]
    if _has_any(folded, _HEADER_MARKS):
        found += _in_headers(text)
    if _has_any(folded, _NAME_MARKS):
        found += _named(text)
    if _has_any(folded, _NEARBY_MARKS):
        found += _dense(text)
    found.sort(key=lambda match: (match.start, -match.end))
    kept: list[SecretMatch] = []
    for match in found:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return tuple(kept)


def redact(text: str) -> str:
    """Return the text with every secret replaced by its kind."""
    pieces: list[str] = []
    end = 0
    for match in find_secrets(text):
        pieces += (text[end : match.start], f"[redacted:{match.kind}]")
        end = match.end
    pieces.append(text[end:])
    return "".join(pieces)


def _blocks(text: str) -> Iterator[SecretMatch]:
    position = 0
    while begin := _KEY_BLOCK.search(text, position):
        closing = _KEY_BLOCK_END.search(text, begin.end())
        # A block cut off by a length limit is still a key.
        position = closing.end() if closing else len(text)
        yield SecretMatch("private_key", begin.start(), position)


def _shaped(text: str) -> Iterator[SecretMatch]:
    # Every shape is one unbroken run of characters; most texts have none that is long enough.
    if not _UNBROKEN.search(text):
        return
    for kind, pattern in _SHAPES:
        if not _has_any(text, _MARKS[kind]):
            continue
        group = "value" if "value" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            value = match.group(group)
            if _looks_random(value) and not _DUMMY.search(value):
                yield SecretMatch(kind, match.start(group), match.end(group))


def _has_any(text: str, marks: tuple[str, ...]) -> bool:
    return any(mark in text for mark in marks)


def _in_headers(text: str) -> Iterator[SecretMatch]:
    for match in _HEADER.finditer(text):
        value = match.group("value")
        if _looks_random(value) and not _PLACEHOLDER.search(value):
            yield SecretMatch("auth_header", match.start("value"), match.end("value"))


def _in_urls(text: str) -> Iterator[SecretMatch]:
    if "://" not in text:
        return
    for match in _URL_PASSWORD.finditer(text):
        value = match.group("value")
        default = value.lower() in _COMMON_PASSWORDS or value == match.group("user")
        if not default and not _PLACEHOLDER.search(value):
            yield SecretMatch("url_password", match.start("value"), match.end("value"))


def _named(text: str) -> Iterator[SecretMatch]:
    for match in _ASSIGNED.finditer(text):
        value = match.group("value").rstrip(".!?:)]}*")
        said = match.group("link").strip().lower() in {"is", "was", "to"}
        if _is_secret_value(value, match.group("name").lower(), said=said):
            start = match.start("value")
            yield SecretMatch(_kind_of(match.group("name")), start, start + len(value))


def _dense(text: str) -> Iterator[SecretMatch]:
    keywords = [match.end() for match in _NEARBY.finditer(text)]
    if not keywords:
        return
    latest = 0
    for match in _DENSE.finditer(text):
        while latest + 1 < len(keywords) and keywords[latest + 1] <= match.start():
            latest += 1
        near = 0 <= match.start() - keywords[latest] <= _NEARBY_CHARS
        if near and _is_dense(match.group()):
            yield SecretMatch("high_entropy_token", match.start(), match.end())


def _is_secret_value(value: str, name: str, *, said: bool) -> bool:
    if len(value) < 6 or _PLACEHOLDER.search(value) or "(" in value or "[" in value:
        return False
    if _DOTTED_NAME.fullmatch(value) or not re.search(r"\d", value):
        return _odd_password(value, name)
    if _UUID.fullmatch(value):
        return "key" in name or "secret" in name or "pass" in name
    mixed = _class_count(value) >= 2
    if "pass" in name or "pwd" in name:
        return mixed and not _NOT_A_PASSWORD.match(value)
    if said and not _class_count(value) >= 3:
        return len(value) >= 20 and mixed and _entropy_bits(value) >= 3.0
    return len(value) >= 12 and mixed and _entropy_bits(value) >= 3.0 and "/" not in value[:1]


def _odd_password(value: str, name: str) -> bool:
    # Without a digit, only a password with a symbol inside is recognisable.
    if "pass" not in name and "pwd" not in name:
        return False
    return len(value) >= 8 and bool(re.search(r"[A-Za-z][!@#$%^&*+=?]+[A-Za-z]", value))


def _is_dense(value: str) -> bool:
    if _HEX.fullmatch(value) or _UUID.fullmatch(value) or _PLACEHOLDER.search(value):
        return False
    if not (re.search(r"\d", value) and re.search(r"[a-z]", value) and re.search(r"[A-Z]", value)):
        return False
    # A path or a slug is made of words; a key is not.
    longest_word = max((len(run) for run in re.findall(r"[a-z]{3,}", value)), default=0)
    return longest_word <= 6 and _entropy_bits(value) >= 4.0


def _looks_random(value: str) -> bool:
    if not re.search(r"\d", value) or "EXAMPLE" in value:
        return False
    longest_word = max((len(run) for run in re.findall(r"[a-z]{4,}", value)), default=0)
    return longest_word <= 12 and _entropy_bits(value) >= 2.5


def _class_count(value: str) -> int:
    classes = (r"[a-z]", r"[A-Z]", r"\d", r"[^A-Za-z0-9]")
    return sum(1 for pattern in classes if re.search(pattern, value))


def _entropy_bits(value: str) -> float:
    total = len(value)
    shares = [count / total for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def _kind_of(name: str) -> str:
    lowered = name.lower()
    if "pass" in lowered or "pwd" in lowered:
        return "password"
    if "token" in lowered:
        return "token"
    return "api_key" if "key" in lowered else "secret"
