"""Reads the ratings trailers of an agent's reply, and strips trailers from text.

A trailer is `<!--mf CODE m1=0.8 m3=-0.2-->`, or `{mf CODE m1=0.8}` where angle brackets do not get
through. It counts only with a code, and only in these forms: stored text is shown with `<` as
`&lt;`, so a reply that quotes it never has one. `<memory-feedback>` tags and entities are only
stripped. The caller checks that the code is live, that the names were shown, and that the assistant
wrote the text.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from meritory.text.render import INNER_LINE, MARKER, OWN_REMARK

TRAILER_LIMIT_CHARS: Final = 2_048
RATINGS_LIMIT_COUNT: Final = 256
NAME_LIMIT_CHARS: Final = 64
# A trailer ends a reply; only this much of the end is searched, for this many trailers.
TAIL_LIMIT_CHARS: Final = 65_536
TRAILERS_LIMIT_COUNT: Final = 16

# Some harnesses escape angle brackets as entities, and agents copy those.
_LESS, _MORE = "(?:<|&lt;)", "(?:>|&gt;)"
_OPENING = re.compile(
    rf"(?P<comment>{_LESS}!--[ \t]{{0,4}}mf(?=[\s:{{-]))"
    rf"|(?P<tag>{_LESS}memory[-_]feedback[ \t]{{0,4}}{_MORE})"
    # Braces are common: only with a code are they a trailer.
    r"|(?P<brace>\{mf(?=[ \t][0-9a-z]{10}[ \t]))",
    re.IGNORECASE,
)
# A trailer does not contain a tag, a second comment or a new paragraph.
_COMMENT_REST = re.compile(
    rf"(?P<body>(?:[^<\n]|\n(?!\s{{0,8}}\n)){{0,{TRAILER_LIMIT_CHARS}}}?)--{_MORE}"
)
_BRACE_REST = re.compile(rf"(?P<body>[^{{}}\n]{{0,{TRAILER_LIMIT_CHARS}}})\}}")
_TAG_END = re.compile(rf"{_LESS}/memory[-_]feedback[ \t]{{0,4}}{_MORE}", re.IGNORECASE)
_CUT_OPENING = re.compile(
    rf"{_LESS}(?:!(?:-(?:-[ \t]{{0,4}}(?:m|mf)?)?)?|/?memory[-_a-z]{{0,10}})\s{{0,8}}\Z",
    re.IGNORECASE,
)
_FENCE_BEFORE = re.compile(r"(?:```[a-z]{0,12}|`{1,2})[ \t]{0,8}\n?[ \t]{0,8}\Z")
_FENCE_AFTER = re.compile(r"[ \t]{0,8}\n?[ \t]{0,8}`{1,3}")
_FENCE_CHARS: Final = 36
_PAIR = re.compile(r"(?P<name>[^\s=:]{1,200})[ \t]{0,4}[=:][ \t]{0,4}(?P<value>[^\s=:]{1,200})")
_CODE = re.compile(r"[\s:]{0,8}(?P<code>[0-9a-z]{6,32})(?=\s|$)(?!\s{0,4}[=:])", re.IGNORECASE)
# A trailer without its end: other text follows it, or the reply was cut off.
_HALF_PAIR = r"(?:[ \t,]{1,4}[^\s=,]{1,64}=[^\s=,]{0,24})"
_HALF = re.compile(rf"[ \t:]{{0,4}}[0-9a-z]{{6,32}}{_HALF_PAIR}{{1,64}}", re.IGNORECASE)
_CUT = re.compile(
    rf"[ \t:]{{0,4}}[0-9a-z]{{0,32}}{_HALF_PAIR}{{0,64}}[ \t,]{{0,4}}[^\s=,]{{0,64}}\s{{0,8}}\Z",
    re.IGNORECASE,
)
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_LIMIT_CHARS}}}")
_HANDLE = re.compile(r"[mM][0-9]{1,6}")
_NUMBER = re.compile(r"[+-]?(?:\d{1,9}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_LOOSE = str.maketrans({**dict.fromkeys("{}\"',;`", " "), "\u2212": "-"})


@dataclass(frozen=True, slots=True)
class Ratings:
    """Names with their scores, -1..1, and the rejected ones, each with its reason."""

    scores: tuple[tuple[str, float], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Trailer:
    """The ratings of one reply, with the code of an injection."""

    code: str
    ratings: Ratings


def read_trailers(text: str) -> tuple[Trailer, ...]:
    """Return the complete trailers of a reply, the last one first."""
    tail = text[-TAIL_LIMIT_CHARS:]
    openings = [pair for pair in _openings(tail) if not pair[0]["tag"]]
    latest = reversed(openings[-TRAILERS_LIMIT_COUNT:])
    return tuple(filter(None, (_read_pairs(tail, *pair) for pair in latest)))


def parse_ratings(mapping: object) -> Ratings:
    """Return the ratings of a JSON object from names to scores; invalid pairs are rejected."""
    if not isinstance(mapping, dict):
        return Ratings(refused=(("", "not an object from names to scores"),))
    return _rated(mapping.items())


def strip_trailers(text: str) -> str:
    """Return the text without any trailer, complete or cut off."""
    whole = _without(text, _trailer_spans(text))
    end = len(whole)
    # The rest of a mark, when a reply is cut off in the middle of it.
    while cut := _CUT_OPENING.search(whole, max(0, end - _FENCE_CHARS), end):
        end = len(whole[max(0, cut.start() - _FENCE_CHARS) : cut.start()].rstrip())
        end += max(0, cut.start() - _FENCE_CHARS)
    return whole[:end]


def strip_injected(text: str) -> str:
    """Return the text without injected blocks and remarks."""
    fenced = _without(text, _fenced_spans(text))
    return _without(fenced, ((found.start(), found.end()) for found in OWN_REMARK.finditer(fenced)))


def strip_own(text: str) -> str:
    """Return the text without blocks and trailers, for storing, judging and learning."""
    return strip_trailers(strip_injected(text))


def _openings(text: str) -> list[tuple[re.Match[str], int]]:
    """Return where trailers may begin, each with its limit: the next one, or the size limit."""
    found = list(_OPENING.finditer(text))
    following = (*(opening.start() for opening in found[1:]), len(text))
    return [
        (opening, min(end, opening.end() + TRAILER_LIMIT_CHARS))
        for opening, end in zip(found, following, strict=False)
    ]


def _read_pairs(text: str, opening: re.Match[str], limit: int) -> Trailer | None:
    pattern = _COMMENT_REST if opening["comment"] else _BRACE_REST
    rest = pattern.match(text, opening.end(), limit)
    named = None if rest is None else _CODE.match(rest["body"].translate(_LOOSE))
    if rest is None or named is None or opening[0].startswith("&") or rest[0].endswith(";"):
        return None
    body = named.string[named.end() :]
    pairs: list[tuple[object, object]] = []
    for match in _PAIR.finditer(body):
        value = match["value"]
        is_number = _NUMBER.fullmatch(value) or _NOT_FINITE.fullmatch(value)
        pairs.append((match["name"], float(value) if is_number else value))
    ratings = _rated(pairs)
    leftovers = _PAIR.sub(" ", body).split()
    malformed = ((word[:NAME_LIMIT_CHARS], "malformed") for word in leftovers)
    ratings = Ratings(ratings.scores, (*ratings.refused, *malformed))
    return Trailer(named["code"].lower(), ratings)


def _object_end(body: str) -> int | None:
    """Return the end of the JSON object that a tag opens with; None without one."""
    brace = body.find("{")
    # Only a code fence, with its language, may precede the object.
    if brace < 0 or body[:brace].strip("` \t\r\n").lower() not in ("", "json"):
        return None
    try:
        return json.JSONDecoder().raw_decode(body, brace)[1]
    except (ValueError, RecursionError):
        return None


def _rated(pairs: Iterable[tuple[object, object]]) -> Ratings:
    scores: dict[str, float] = {}
    refused: list[tuple[str, str]] = []
    for index, (name, value) in enumerate(pairs):
        if index >= RATINGS_LIMIT_COUNT:
            refused.append(("", f"more than {RATINGS_LIMIT_COUNT} ratings"))
            break
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            refused.append((str(name)[:NAME_LIMIT_CHARS], "malformed name"))
            continue
        key = name.lower() if _HANDLE.fullmatch(name) else name
        if isinstance(value, bool) or not isinstance(value, int | float):
            refused.append((key, "not a number"))
        elif isinstance(value, float) and not math.isfinite(value):
            refused.append((key, "not finite"))
        elif not -1 <= value <= 1:
            refused.append((key, "out of -1..1"))
        else:
            if key in scores:
                refused.append((key, "given again"))
            # Adding zero turns -0.0 into 0.0.
            scores[key] = float(value) + 0.0
    return Ratings(tuple(scores.items()), tuple(refused))


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    end = 0
    for start, stop in spans:
        pieces.append(text[end:start])
        end = stop
    if not pieces:
        return text
    pieces.append(text[end:])
    # A line break between the pieces, so that the text around a mark cannot form another one.
    whole = "\n".join(piece.strip("\r\n") for piece in pieces if piece.strip())
    return whole.rstrip()


def _trailer_spans(text: str) -> Iterator[tuple[int, int]]:
    end = 0
    for opening, limit in _openings(text):
        if opening.start() < end:
            continue
        stop = _trailer_end(text, opening, limit)
        before = _FENCE_BEFORE.search(
            text, max(end, opening.start() - _FENCE_CHARS), opening.start()
        )
        after = _FENCE_AFTER.match(text, stop, stop + _FENCE_CHARS)
        start = opening.start()
        if before and (after or stop == len(text)):
            start, stop = before.start(), after.end() if after else stop
        yield start, stop
        end = stop


def _trailer_end(text: str, opening: re.Match[str], limit: int) -> int:
    """Return the end of a trailer: its closing mark, or the end of what can be part of it."""
    start = opening.end()
    is_last = limit == len(text)
    if not opening["tag"]:
        pattern = _COMMENT_REST if opening["comment"] else _BRACE_REST
        found = pattern.match(text, start, limit)
        if found is None and is_last:
            found = _CUT.match(text, start)
        found = found or _HALF.match(text, start, limit)
        return found.end() if found else start
    closing = _TAG_END.search(text, start, limit)
    if closing:
        return closing.end()
    end = _object_end(text[start:limit])
    if end is not None:
        return start + end
    body = text[start:limit].lstrip("` \t\r\n").removeprefix("json").lstrip()
    return limit if is_last and body[:1] in ("", "{") else start


def _fenced_spans(text: str) -> Iterator[tuple[int, int]]:
    marks = list(MARKER.finditer(text))
    closings: dict[str, list[int]] = {}
    for mark in marks:
        if mark["close"]:
            closings.setdefault(mark["nonce"], []).append(mark.end())
    end = 0
    for mark in marks:
        if mark.start() < end:
            continue
        if mark["close"]:
            # The start of the block was cut off; its remaining lines come before the mark.
            start, end = _lines_before(text, end, mark.start()), mark.end()
            yield start, end
            continue
        ends = closings.get(mark["nonce"], [])
        index = bisect_left(ends, mark.end())
        end = ends[index] if index < len(ends) else _lines_after(text, mark.end())
        yield mark.start(), end


def _lines_before(text: str, floor: int, start: int) -> int:
    while start > floor:
        line = text.rfind("\n", floor, start - 1) + 1 or floor
        if not INNER_LINE.match(text[line:start].rstrip("\n")):
            break
        start = line
    return start


def _lines_after(text: str, start: int) -> int:
    end = text.find("\n", start)
    while end >= 0:
        following = text.find("\n", end + 1)
        line = text[end + 1 :] if following < 0 else text[end + 1 : following]
        if not INNER_LINE.match(line):
            return end
        end = following
    return len(text)
