"""Blocks that clients put into the user's turn: files, tool output, selections, notifications.

The text inside a block is foreign and may contain the block's own closing mark. No mark inside a
block can be told from the client's, so a block extends from its first opening mark to the last
closing mark of its kind; without a closing mark it extends to the end of the turn. The marks are in
`data/language/clients.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from meritory.text.language import read_language, word_set

_FILE: Final = "clients"
_TAG: Final = re.compile(r"<(?P<closes>/?)\s{0,4}(?P<name>[a-z][\w.:-]{0,60})(?=[\s/>])", re.I)
# A tag that ends itself has no content.
_EMPTY_TAG: Final = re.compile(r"<[a-z][^<>]{0,400}/>", re.IGNORECASE)
_FENCE: Final = re.compile(r"`{3,}|~{3,}")
_QUERY, _QUERY_END = "<user_query>", "</user_query>"


def is_inserted(text: str) -> bool:
    """Return whether a client wrote a whole turn in the user's name."""
    return _inserted().match(text) is not None


def user_query(text: str) -> str:
    """Return the prompt of a turn in which Cursor marked it, else the text unchanged.

    A second mark is forged, by a file or by pasted text. Then the text stays as it is, and all of
    it counts as embedded.
    """
    before, opened, rest = text.partition(_QUERY)
    inside, closed, after = rest.rpartition(_QUERY_END)
    is_framed = not without_blocks(before).strip() and not after.strip()
    if opened and closed and is_framed and _QUERY not in inside:
        return inside.strip()
    return text


def without_blocks(text: str) -> str:
    """Return a turn with every embedded block replaced by line breaks; offsets stay the same."""
    return blanked(text, [*_frames(text), *_marked_blocks(text), *_tags(text), *_fences(text)])


def blanked(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with these spans replaced by line breaks."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        pieces += (text[done:start], "\n" * (end - max(start, done)))
        done = max(done, end)
    return "".join((*pieces, text[done:]))


@cache
def _inserted() -> re.Pattern[str]:
    marks = map(re.escape, read_language(_FILE)["inserted"])
    return re.compile(rf"\s*(?:{'|'.join(marks)})", re.IGNORECASE)


@cache
def _marks(table: str, *keys: str) -> tuple[tuple[re.Pattern[str], ...], ...]:
    entries = read_language(_FILE)[table]
    return tuple(tuple(re.compile(entry[key], re.I) for key in keys) for entry in entries)


def _frames(text: str) -> Iterator[tuple[int, int]]:
    for start, request in _marks("frames", "start", "request"):
        if start.match(text.lstrip()):
            yield 0, max((match.end() for match in request.finditer(text)), default=len(text))


def _marked_blocks(text: str) -> Iterator[tuple[int, int]]:
    for begin, end in _marks("blocks", "begin", "end"):
        first = begin.search(text)
        if first is not None:
            ends = [match.end() for match in end.finditer(text, first.end())]
            yield first.start(), max(ends, default=len(text))


def _tags(text: str) -> Iterator[tuple[int, int]]:
    opened: dict[str, list[int]] = {}
    closed: dict[str, list[int]] = {}
    empty = {match.start() for match in _EMPTY_TAG.finditer(text)}
    for match in _TAG.finditer(text):
        if match["closes"]:
            stop = text.find(">", match.end())
            closed.setdefault(match["name"].lower(), []).append(stop + 1 or len(text))
        elif match.start() not in empty:
            opened.setdefault(match["name"].lower(), []).append(match.start())
    known = word_set(_FILE, "tags")
    for name in opened.keys() | closed.keys():
        starts, ends = opened.get(name, []), closed.get(name, [])
        if name in known and ends and (not starts or ends[0] < starts[0]):
            # The start of the turn is cut off, and with it the opening tag.
            starts = [0, *starts]
        if not starts:
            continue
        # With fewer closing tags than opening ones, the last one may be forged.
        is_closed = len(ends) >= len(starts) and ends[-1] > starts[-1]
        if is_closed:
            yield starts[0], ends[-1]
        elif name in known or ends or any(_starts_line(text, start) for start in starts):
            yield starts[0], len(text)


def _starts_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _fences(text: str) -> Iterator[tuple[int, int]]:
    fences = [match.span() for match in _FENCE.finditer(text)]
    if fences:
        # Code may contain fences of its own.
        yield fences[0][0], fences[-1][1] if len(fences) > 1 else len(text)
