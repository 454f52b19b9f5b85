"""Finds keys, tokens and passwords in a text, so that none is stored by accident.

There are four families: tokens with a known shape (a vendor's prefix), values next to a word such
as "password", passwords on command lines, and numbers with check digits (cards, bank accounts).
Shapes and words are data: `data/language/secrets.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from meritory.text.language import pattern, read_language, word_set, written_out
from meritory.text.secret_values import (
    COMMON_PASSWORDS,
    PLACEHOLDER,
    is_adjacent_secret,
    is_card_number,
    is_command_secret,
    is_dense_key,
    is_dummy,
    is_iban,
    is_named_secret,
    looks_random,
)

_FILE: Final = "secrets"
_pattern: Final = partial(pattern, _FILE)
_START = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"
_VALUE = r"[\"'`\u201c\u2018\u300c]{0,2}(?P<value>(?-i:[^\s\"'`,;<\x7f-\uffff]){4,300})"
# A shape is one unbroken run of characters; most texts have none that is long enough.
_RUN: Final = re.compile(r"(?<![^\s\"'`,;()<>|])[^\s\"'`,;()<>|]{15,}")
_INVISIBLE: Final = re.compile("[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufeff]")
# A token that goes on in the next line.
_NEXT_LINE = r"\n[ \t]{0,8}(?=[\w-]{0,120}\d)[\w.-]{4,200}\\?\r?"
_NEXT_LINES: Final = re.compile(rf"{_NEXT_LINE}(?:{_NEXT_LINE}){{0,2}}(?![\w-])")
_LINE_END: Final = re.compile(r"(?<![\w.$/-])[\w.$-]{4,200}\\?\r?$")
# A token begins here.
_TOKEN_START: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9$]")
_DIGIT: Final = re.compile(r"\d")
_OPTION: Final = re.compile(r" -{1,2}[A-Za-z]")
_KEY_BLOCK: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")
_HEADER: Final = re.compile(
    r"\b(?:bearer|basic|ssws)[ \t]{1,8}(?P<value>[A-Za-z0-9._~+/-]{16,2000}={0,2})", re.IGNORECASE
)
_URL_PASSWORD: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<user>[^\s:/@\"'`<>]{0,100}):"
    r"(?P<value>[^\s\"'`<>]{3,200}?)@(?=[\w\[][\w.:\]-]{0,200}(?:[/?#,;)\s\"'`>]|$))"
)
_PORT: Final = re.compile(r"\d{1,5}/")
_URL_TOKEN: Final = re.compile(r"https?://(?P<value>[A-Za-z0-9_-]{20,200})(?::x-oauth-basic)?@\w")
_NEARBY: Final = re.compile(
    r"(?<![A-Za-z])(?:api|access|secret|private|client|auth|bearer|token|password|credentials?)"
    r"(?:[ _-]?(?:key|token|secret))?s?(?![A-Za-z])",
    re.IGNORECASE,
)
_NEARBY_CHARS: Final = 48
_DENSE: Final = re.compile(
    r"(?<![A-Za-z0-9+/_=.-])[A-Za-z0-9+/_-]{24,200}={0,2}(?![A-Za-z0-9+/_=-]|\.[a-z])"
)
# The assertion follows the first character, so that the search for that character is fast.
_CARD: Final = re.compile(
    r"[2-6](?<![\w.-].)(?:(?<=4)\d|(?<=5)[1-5]|(?<=2)[2-7]|(?<=6)[05]|(?<=3)5)\d\d([ -]?)\d{4}"
    r"\1\d{4}\1\d{4}(?![\w-])|3(?<![\w.-].)[47]\d\d([ -]?)\d{6}\2\d{5}(?![\w-])"
)
_IBAN: Final = re.compile(
    r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d\d(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])"
)
# The kind of a value by its name, the first that fits.
_KINDS_BY_NAME: Final = {
    "secret": "secret", "token": "token", "key": "api_key", "cred": "secret", "zugangsd": "secret",
}  # fmt: skip
_NUMBERS: Final = ("pin", "ssn")
_BEFORE_CHARS: Final = 100
_NAME_CHARS: Final = 16
# The shortest token with a mark inside.
_INNER_CHARS: Final = 24
_CHARS_BEFORE_MARK: Final = 200
_CHARS_AFTER_MARK: Final = 500


@dataclass(frozen=True, slots=True)
class SecretMatch:
    """The position of a secret in a text, and its kind."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern with marks of which every match contains one.

    Searching for a mark is many times faster than matching a pattern.
    """

    kind: str
    marks: tuple[str, ...]
    pattern: str
    is_embedded: bool = False

    def compiled(self) -> re.Pattern[str]:
        """Return the pattern, compiled at its first use."""
        return _compiled(self.pattern if self.is_embedded else _START + self.pattern + _END)


_compiled = cache(re.compile)


def find_secrets(text: str) -> tuple[SecretMatch, ...]:
    """Return the secrets in the text, in order and without overlaps."""
    if _INVISIBLE.search(text):
        # Invisible characters do not hide a secret.
        places = [place for place, sign in enumerate(text) if not _INVISIBLE.match(sign)]
        found = find_secrets("".join(text[place] for place in places))
        return tuple(
            SecretMatch(match.kind, places[match.start], places[match.end - 1] + 1)
            for match in found
        )
    # Few secrets have no digit.
    has_digit = _DIGIT.search(text) is not None
    runs = list(_RUN.finditer(text))
    matches = [*_in_blocks_and_urls(text), *(_shaped(text, runs) if runs else ())]
    matches += _beside_words(text, has_digit=has_digit)
    if runs:
        matches += _dense(text)
    if has_digit:
        matches += [*_on_command_lines(text, "statements"), *_numbers(text)]
        if "\n" in text:
            matches += _broken(text)
    if _OPTION.search(text):
        matches += _on_command_lines(text, "commands")
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


@cache
def _rules(table: str) -> tuple[_Rule, ...]:
    """Return the rules of a table of the data file."""
    is_embedded = not table.endswith("shapes") or table == "embedded_shapes"
    return tuple(
        _Rule(kind, tuple(marks.split("|")), written_out(_FILE, body), is_embedded)
        for kind, (marks, body) in read_language(_FILE)[table].items()
    )


@cache
def _marks(table: str) -> tuple[tuple[str, _Rule], ...]:
    return tuple((mark, rule) for rule in _rules(table) for mark in rule.marks)


def _near_marks(table: str, text: str) -> Iterator[tuple[_Rule, re.Match[str]]]:
    """Find the patterns of a table around their marks."""
    for mark, rule in [marked for marked in _marks(table) if marked[0] in text]:
        place = text.find(mark)
        while place >= 0:
            start = max(0, place - _CHARS_BEFORE_MARK)
            end = place + _CHARS_AFTER_MARK
            while (following := text.find(mark, place + 1, end)) >= 0:
                place, end = following, following + _CHARS_AFTER_MARK
            for match in rule.compiled().finditer(text, start, end):
                yield rule, match
            place = text.find(mark, place + 1)


@cache
def _rules_by_start() -> dict[str, tuple[_Rule, ...]]:
    """Return the rules of shapes by the first two characters of a mark."""
    starts = {mark[:2] for rule in _rules("shapes") for mark in rule.marks}
    return {
        start: tuple(
            rule for rule in _rules("shapes") if any(mark[:2] == start for mark in rule.marks)
        )
        for start in starts
    }


def _in_blocks_and_urls(text: str) -> Iterator[SecretMatch]:
    position = 0
    while begin := _KEY_BLOCK.search(text, position):
        closing = _KEY_BLOCK_END.search(text, begin.end())
        # A block cut off by a length limit is still a key.
        position = closing.end() if closing else len(text)
        yield SecretMatch("private_key", begin.start(), position)
    if "://" not in text or "@" not in text:
        return
    for match in _URL_PASSWORD.finditer(text):
        value = match["value"]
        is_default = value.lower() in COMMON_PASSWORDS or value == match["user"]
        # What follows a port, and a page whose address contains "@", is no password.
        is_page = "/" in value and (match["scheme"].startswith("http") or _PORT.match(value))
        if not is_default and not is_page and not PLACEHOLDER.search(value):
            yield SecretMatch("url_password", *match.span("value"))
    for match in _URL_TOKEN.finditer(text):
        if looks_random(match["value"]):
            yield SecretMatch("url_password", *match.span("value"))


def _shaped(text: str, runs: list[re.Match[str]]) -> Iterator[SecretMatch]:
    by_start = _rules_by_start()
    for run in runs:
        for token in _TOKEN_START.finditer(text, *run.span()):
            start = token.start()
            for rule in by_start.get(text[start : start + 2], ()):
                if text.startswith(rule.marks, start):
                    yield from _matches(rule, rule.compiled().match(text, start))
        inner = _marks("inner_shapes") if len(run[0]) >= _INNER_CHARS else ()
        for mark, rule in inner:
            if mark in run[0]:
                for match in rule.compiled().finditer(text, *run.span()):
                    yield from _matches(rule, match)
    for mark, rule in _marks("embedded_shapes"):
        if mark in text:
            for match in rule.compiled().finditer(text):
                yield from _matches(rule, match)


def _matches(rule: _Rule, match: re.Match[str] | None) -> Iterator[SecretMatch]:
    if match:
        group = "value" if "value" in match.re.groupindex else 0
        if not is_dummy(match[group]) if rule.is_embedded else looks_random(match[group]):
            yield SecretMatch(rule.kind, *match.span(group))


def _broken(text: str) -> Iterator[SecretMatch]:
    """Find tokens that line breaks split."""
    for rest in _NEXT_LINES.finditer(text):
        start = max(0, rest.start() - 220)
        first = _LINE_END.search(text[start : rest.start()])
        if not first:
            continue
        whole = re.sub(r"\\?\r?\n[ \t]*", "", first[0] + rest[0])
        # A short mark is no evidence here.
        for rule in _rules_by_start().get(whole[:2], ()):
            match = rule.compiled().match(whole)
            is_marked = any(len(mark) > 3 and whole.startswith(mark) for mark in rule.marks)
            if match and is_marked and looks_random(match[0]):
                yield SecretMatch(rule.kind, start + first.start(), rest.end())


def _on_command_lines(text: str, table: str) -> Iterator[SecretMatch]:
    for _, match in _near_marks(table, text):
        for group in match.re.groupindex:
            if match[group] and is_command_secret(match[group]):
                yield SecretMatch("command_password", *match.span(group))


def _beside_words(text: str, *, has_digit: bool) -> Iterator[SecretMatch]:
    # As long as the text. Lower case does not cover the long s.
    folded = text.lower().replace("\u017f", "s")
    if len(folded) != len(text):
        folded = "".join(sign.lower()[0] for sign in text)
    for name in _names(folded):
        yield from _after(text, name)
        yield from _before(text, name)
    yield from _sayings(text, folded, "word_sayings")
    if has_digit:
        yield from _sayings(text, folded, "digit_sayings")
        if "bearer" in folded or "basic" in folded or "ssws" in folded:
            for match in _HEADER.finditer(text):
                if looks_random(match["value"]) and not PLACEHOLDER.search(match["value"]):
                    yield SecretMatch("auth_header", *match.span("value"))


def _names(folded: str) -> Iterator[re.Match[str]]:
    """Find the names of passwords and keys in a text in lower case."""
    end = 0
    marks = [mark for mark in _name_marks() if mark in folded]
    for mark in re.finditer("|".join(marks), folded) if marks else ():
        # A name is longer than its mark, on both sides.
        start = max(end, mark.start() - _NAME_CHARS)
        for name in _name().finditer(folded, start, mark.end() + _NAME_CHARS):
            yield name
            end = name.end()


@cache
def _name_marks() -> tuple[str, ...]:
    return tuple(sorted(word_set(_FILE, "name_marks"), reverse=True))


@cache
def _name() -> re.Pattern[str]:
    return re.compile(_one_of("password", "key"))


@cache
def _links() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a value after a name, after its purpose, and before a name."""
    start = r"(?:[_-](?:id|key|value|base))?[\"'`*\]]{0,3}"
    link, purpose, reverse = _one_of("link"), _one_of("purpose"), _one_of("reversed_link")
    value = rf"[ \t]{{0,8}}(?:(?<=[:：])\r?\n[ \t]{{0,8}})?{_VALUE}"
    before = rf"(?<!\S){_VALUE}[\"'`\u201d]?\s{{0,2}}{reverse}[ \t]?"
    cjk = r"(?P<value>[!-~]{6,64})[」”]?\s?(?:を|作为|作為)"
    return (
        re.compile(rf"{start}(?:{link}|(?=[ \t])){value}", re.IGNORECASE),
        re.compile(start + purpose + link + value, re.IGNORECASE),
        re.compile(rf"(?:{before}(?:[^\W\d]+[ \t-]){{0,3}}|{cjk.replace('value', 'value2')})$"),
    )


def _one_of(*names: str) -> str:
    patterns = read_language(_FILE)["patterns"]
    return "(?:" + "|".join(written_out(_FILE, patterns[name]) for name in names) + ")"


def _after(text: str, name: re.Match[str]) -> Iterator[SecretMatch]:
    direct, with_purpose, _ = _links()
    word = name[0]
    for links in (direct, with_purpose):
        match = links.match(text, name.end())
        if not match:
            continue
        value = match["value"].rstrip(".!?:)]}*")
        is_linked = bool(match["sign"] or match["verb"])
        is_strict = links is with_purpose or not is_linked
        if (
            is_adjacent_secret(value, word)
            if is_strict
            else is_named_secret(value, word, is_said=match["verb"] is not None)
        ):
            start = match.start("value")
            yield SecretMatch(_kind(word), start, start + len(value))
            return


def _before(text: str, name: re.Match[str]) -> Iterator[SecretMatch]:
    start = max(0, name.start() - _BEFORE_CHARS)
    match = _links()[2].search(text[start : name.start()])
    if not match or not _pattern("name_end").match(text, name.end()):
        return
    group = "value" if match["value"] else "value2"
    if is_adjacent_secret(match[group], name[0]):
        first, last = match.span(group)
        yield SecretMatch(_kind(name[0]), start + first, start + last)


def _kind(name: str) -> str:
    kinds = (kind for mark, kind in _KINDS_BY_NAME.items() if mark in name)
    return next(kinds, "password")


def _sayings(text: str, folded: str, table: str) -> Iterator[SecretMatch]:
    """Find secrets made of plain words or few digits."""
    for rule, match in _near_marks(table, folded):
        start, end = next(match.span(name) for name in match.re.groupindex if match[name])
        if rule.kind == "plain_word" and _pattern("not_plain").match(folded[start:end]):
            continue
        if rule.kind == "login" and not is_adjacent_secret(text[start:end], "password"):
            continue
        yield SecretMatch(rule.kind if rule.kind in _NUMBERS else "password", start, end)


def _numbers(text: str) -> Iterator[SecretMatch]:
    for match in _CARD.finditer(text):
        if is_card_number(match[0]):
            yield SecretMatch("card_number", *match.span())
    for match in _IBAN.finditer(text):
        if is_iban(match[0]):
            yield SecretMatch("bank_account", *match.span())


def _dense(text: str) -> Iterator[SecretMatch]:
    """Find long runs of mixed characters soon after a word such as "key"."""
    for match in _DENSE.finditer(text):
        before = text[max(0, match.start() - _NEARBY_CHARS - 20) : match.start()]
        keywords = [keyword.end() for keyword in _NEARBY.finditer(before)]
        is_near = bool(keywords) and len(before) - keywords[-1] <= _NEARBY_CHARS
        if is_near and is_dense_key(match.group()):
            yield SecretMatch("high_entropy_token", *match.span())
