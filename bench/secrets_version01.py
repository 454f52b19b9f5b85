"""The secret scanner of version 0.1, unchanged: the baseline of `bench.authority_secrets`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Final

from meritory.text.language import words
from meritory.text.secrets import SecretMatch

_START = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"


# The shapes of tokens, each with marks that every token of it has. Most texts have no mark, and
# searching for one is many times faster than matching a shape.
_SHAPES: Final[dict[str, tuple[str, str]]] = {
    "aws_access_key": ("AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    "google_api_key": ("AIza", r"AIza[0-9A-Za-z_-]{35}"),
    "google_oauth": (
        "ya29. GOCSPX-",
        r"(?:ya29\.[0-9A-Za-z_-]{20,500}|GOCSPX-[0-9A-Za-z_-]{20,60})",
    ),
    "azure_client_secret": ("8Q~", r"[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}"),
    "azure_key": (
        "AccountKey= SharedAccessKey= sig=",
        r"(?:AccountKey|SharedAccessKey|sig)=(?P<value>[A-Za-z0-9+/%]{40,200}={0,2})",
    ),
    "github_token": (
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})",
    ),
    "gitlab_token": (
        "glpat- gldt- glrt- glcbt- glptt- gloas- glagent-",
        r"gl(?:pat|dt|rt|cbt|ptt|oas|agent)-[A-Za-z0-9_.-]{20,100}",
    ),
    "slack_token": ("xox xapp-", r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,250}"),
    "slack_webhook": (
        "hooks.slack.com",
        r"hooks\.slack\.com/services/T[A-Za-z0-9]{5,20}/B[A-Za-z0-9]{5,20}/\w{16,40}",
    ),
    "discord_webhook": (
        "/api/webhooks/",
        r"discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w-]{50,90}",
    ),
    "stripe_key": (
        "k_live_ k_test_ whsec_",
        r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}|whsec_[A-Za-z0-9+/]{24,90})",
    ),
    "anthropic_key": ("sk-ant-", r"sk-ant-[A-Za-z0-9]{2,20}-[A-Za-z0-9_-]{20,250}"),
    "openrouter_key": ("sk-or-v1-", r"sk-or-v1-[0-9a-f]{40,80}"),
    "openai_key": (
        "sk-",
        r"sk-(?:proj-|svcacct-|admin-|None-)?(?=[\w-]{0,120}[A-Za-z0-9]{16})[\w-]{20,250}",
    ),
    "npm_token": ("npm_", r"npm_[A-Za-z0-9]{36}"),
    "pypi_token": ("pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{40,300}"),
    "huggingface_token": ("hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,60}"),
    "sendgrid_key": ("SG.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    "telegram_token": (":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    "digitalocean_token": ("_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    "vault_token": ("hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{24,200}"),
    "shopify_token": ("shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    "databricks_token": ("dapi", r"dapi[0-9a-f]{32}"),
    "linear_key": ("lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,80}"),
    "notion_token": ("ntn_ secret_", r"(?:ntn|secret)_[A-Za-z0-9]{40,60}"),
    "groq_key": ("gsk_", r"gsk_[A-Za-z0-9]{40,60}"),
    "xai_key": ("xai-", r"xai-[A-Za-z0-9]{60,100}"),
    "supabase_key": ("sbp_ sb_secret_", r"sb(?:p|_secret)_[A-Za-z0-9_]{30,60}"),
    "meritory_token": (
        "meritory_",
        r"meritory_[a-z2-7]{2,1700}_[a-z2-7]{8}_(?P<value>[0-9a-f]{64})",
    ),
    "age_key": ("AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    "jwt": ("eyJ", r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{10,1000}"),
}
_MARKS: Final = {kind: tuple(marks.split()) for kind, (marks, _) in _SHAPES.items()}
# Other shapes are never part of a longer run of letters and digits.
_INSIDE: Final = words("azure_key slack_webhook discord_webhook")
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
# The kind of a value by its name, the first that fits.
_KINDS_BY_NAME: Final = {"pass": "password", "pwd": "password", "token": "token", "key": "api_key"}
_COMMON_PASSWORDS: Final = words("password postgres pass pwd user admin root guest secret test")


def find_secrets(text: str) -> tuple[SecretMatch, ...]:
    """Return the secrets in the text, in order and without overlaps."""
    # Case-insensitive patterns also match letters such as the long s.
    folded = text.casefold()
    matches = [*_in_blocks_and_urls(text), *_shaped(text)]
    if any(mark in folded for mark in _HEADER_MARKS):
        for match in _HEADER.finditer(text):
            if _looks_random(match["value"]) and not _PLACEHOLDER.search(match["value"]):
                matches.append(SecretMatch("auth_header", *match.span("value")))
    if any(mark in folded for mark in _NAME_MARKS):
        for match in _ASSIGNED.finditer(text):
            name, value = match["name"].lower(), match["value"].rstrip(".!?:)]}*")
            said = match["link"].strip().lower() in {"is", "was", "to"}
            if _is_secret_value(value, name, said=said):
                kinds = (kind for mark, kind in _KINDS_BY_NAME.items() if mark in name)
                start = match.start("value")
                matches.append(SecretMatch(next(kinds, "secret"), start, start + len(value)))
    if any(mark in folded for mark in _NEARBY_MARKS):
        matches += _dense(text)
    matches.sort(key=lambda match: (match.start, -match.end))
    distinct: list[SecretMatch] = []
    for secret in matches:
        if not distinct or secret.start >= distinct[-1].end:
            distinct.append(secret)
    return tuple(distinct)


def redact(text: str) -> str:
    """Return the text with every secret replaced by its kind."""
    pieces: list[str] = []
    end = 0
    for match in find_secrets(text):
        pieces += (text[end : match.start], f"[redacted:{match.kind}]")
        end = match.end
    pieces.append(text[end:])
    return "".join(pieces)


def _in_blocks_and_urls(text: str) -> Iterator[SecretMatch]:
    position = 0
    while begin := _KEY_BLOCK.search(text, position):
        closing = _KEY_BLOCK_END.search(text, begin.end())
        # A block cut off by a length limit is still a key.
        position = closing.end() if closing else len(text)
        yield SecretMatch("private_key", begin.start(), position)
    for match in _URL_PASSWORD.finditer(text) if "://" in text else ():
        value = match["value"]
        is_default = value.lower() in _COMMON_PASSWORDS or value == match["user"]
        if not is_default and not _PLACEHOLDER.search(value):
            yield SecretMatch("url_password", *match.span("value"))


def _shaped(text: str) -> Iterator[SecretMatch]:
    # Every shape is one unbroken run of characters; most texts have none that is long enough.
    if not _UNBROKEN.search(text):
        return
    for kind, marks in _MARKS.items():
        if not any(mark in text for mark in marks):
            continue
        pattern = _pattern(kind)
        group = "value" if "value" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            value = match[group]
            if _looks_random(value) and not _DUMMY.search(value):
                yield SecretMatch(kind, *match.span(group))


@cache
def _pattern(kind: str) -> re.Pattern[str]:
    """Return the pattern of a shape, compiled at its first use."""
    body = _SHAPES[kind][1]
    return re.compile(body if kind in _INSIDE else _START + body + _END)


def _dense(text: str) -> Iterator[SecretMatch]:
    keywords = [match.end() for match in _NEARBY.finditer(text)]
    if not keywords:
        return
    latest = 0
    for match in _DENSE.finditer(text):
        while latest + 1 < len(keywords) and keywords[latest + 1] <= match.start():
            latest += 1
        value = match.group()
        if not 0 <= match.start() - keywords[latest] <= _NEARBY_CHARS:
            continue
        if _HEX.fullmatch(value) or _UUID.fullmatch(value) or _PLACEHOLDER.search(value):
            continue
        # A path or a slug is made of words; a key is not.
        longest_word = max((len(run) for run in re.findall(r"[a-z]{3,}", value)), default=0)
        is_mixed = all(re.search(kind, value) for kind in (r"\d", r"[a-z]", r"[A-Z]"))
        if is_mixed and longest_word <= 6 and _entropy_bits(value) >= 4.0:
            yield SecretMatch("high_entropy_token", *match.span())


def _is_secret_value(value: str, name: str, *, said: bool) -> bool:
    if len(value) < 6 or _PLACEHOLDER.search(value) or "(" in value or "[" in value:
        return False
    is_password = "pass" in name or "pwd" in name
    if _DOTTED_NAME.fullmatch(value) or not re.search(r"\d", value):
        # Without a digit, only a password with a symbol inside is recognisable.
        has_symbol = re.search(r"[A-Za-z][!@#$%^&*+=?]+[A-Za-z]", value)
        return is_password and len(value) >= 8 and has_symbol is not None
    if _UUID.fullmatch(value):
        return "key" in name or "secret" in name or "pass" in name
    classes = (r"[a-z]", r"[A-Z]", r"\d", r"[^A-Za-z0-9]")
    class_count = sum(1 for pattern in classes if re.search(pattern, value))
    if is_password:
        return class_count >= 2 and not _NOT_A_PASSWORD.match(value)
    if class_count < 2 or _entropy_bits(value) < 3.0:
        return False
    if said and class_count < 3:
        return len(value) >= 20
    return len(value) >= 12 and "/" not in value[:1]


def _looks_random(value: str) -> bool:
    if not re.search(r"\d", value) or "EXAMPLE" in value:
        return False
    longest_word = max((len(run) for run in re.findall(r"[a-z]{4,}", value)), default=0)
    return longest_word <= 12 and _entropy_bits(value) >= 2.5


def _entropy_bits(value: str) -> float:
    total = len(value)
    shares = [count / total for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)
