"""The sentences of a user's turn that are the user's own: no code, logs, quotes or commands.

People paste. What stands in a code fence, a quotation, a diff, a log, a document with headings or
a tag of their client is not what they say, so it is blanked out, character by character: what is
left keeps its place, and a quote is always a slice of the turn itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

TURN_LIMIT_CHARS: Final = 20_000
SENTENCE_LIMIT_CHARS: Final = 600
# In longer turns people write before and after what they paste, not in the middle of it.
PASTED_CHARS: Final = 3_000

_FENCE: Final = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
# Clients put reminders, commands and their output into the user's turn, as tags.
_TAG: Final = re.compile(r"<([a-z][\w-]{1,40})(?:\s[^<>]{0,200})?>.*?(?:</\1>|\Z)", re.DOTALL)
_COMMAND: Final = re.compile(r"\s*[/!][a-z][\w:.-]*(?:\s|\Z)")
_LINE: Final = re.compile(r"[^\n]+")
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}\s+\S")
_FOREIGN_LINE: Final = re.compile(
    r"\s*(?:"
    r">|\||\$ |>>> |#!|@@|diff --git|index [0-9a-f]{7}|\+\+\+ |--- |[+-](?![\s-])\S"
    r"|[\[(]?\d{2,4}[-/:.]\d{2}[-/:.]\d{2}|\d{1,2}:\d{2}:\d{2}"
    r"|\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|TRACE|FATAL|FAIL|PASS|SKIP)\b[\]:]?(?=\s)"
    r"|at \S+[(:]|File \"|Traceback|[\w.]*(?:Error|Exception)\b:|[✖✗✓✔•─│├└]"
    r"|[\w./\\-]+:\d+(?::\d+)?[:\s]|[\"'][\w -]+[\"']\s*:|[\w.$]+\s*=\s*\S+;?\s*$"
    r"|(?:def|class|import|from|return|const|let|var|function|if|for|while)\b.*[:{;(]\s*$"
    r"|//|/\*|\*/|<!--|</?\w|m\d{1,6}(?: [a-z]{1,12}){0,4}: |(?:System|Human|User|Assistant|AI):"
    r")|.*[{};]\s*$|\s*[\[\]{}()]+,?\s*$"
)
# After such a line comes what somebody or something else said.
_INTRODUCES: Final = re.compile(
    r"\b(?:address|this|these|following|below|output|error|errors|logs?|says?|said|wrote|writes"
    r"|message|reads?|got|get|see|shows?|email|article|review|comment|feedback|report|plan|text"
    r"|transcript|paste[ds]?|README|docs?|CLAUDE\.md|AGENTS\.md)\b[^\n]{0,60}:\s*\Z",
    re.IGNORECASE,
)
_KEEPS: Final = re.compile(r"\b(?:remember|memori[sz]e|keep in mind|note|rules?|prefer\w*)\b", re.I)
_QUOTED: Final = re.compile(
    '`[^`\n]{1,200}`|"[^"\n]{1,400}"|\u201c[^\u201d\n]{1,400}\u201d'
    "|(?<![\\w])'[^'\n]{2,400}'(?!\\w)"
)
_PARAGRAPH: Final = re.compile(r"[^\n]+(?:\n(?![ \t]*\n)[^\n]+)*")
_END: Final = re.compile(
    r"(?<![ei]\.[eg])(?<!\bvs)(?<!\betc)(?<!\bcf)[.!?]+[\"')\]]*(?=\s|\Z)"
    # A line ends a sentence, except where it only wraps.
    r"|\n[ \t]*(?=\n)|\n(?=\s*(?:[-*+\u2022]|\d+[.)])\s)|\n(?![ \t]*[a-z])|(?<=[:;,])\n"
)
_BULLET: Final = re.compile(r"\s*(?:[-*+\u2022]|\d{1,2}[.)]|\[[ x]\])\s+")


@dataclass(frozen=True, slots=True)
class Spoken:
    """One sentence: as it stands in the turn, and with quoted words made unreadable."""

    text: str
    bare: str

    @property
    def is_question(self) -> bool:
        """Whether it ends in a question mark."""
        return self.text.rstrip("\"') ").endswith("?")


def own_words(turn: str) -> str:
    """Return a user's turn with all that is not the user's own blanked out as line breaks."""
    text = turn[:TURN_LIMIT_CHARS]
    return "" if _COMMAND.match(text) else _own(text)


def sentences(turn: str) -> tuple[Spoken, ...]:
    """Return what the user says in a turn, sentence by sentence; nothing of a slash command."""
    text = turn[:TURN_LIMIT_CHARS]
    if _COMMAND.match(text):
        return ()
    own = _own(text)
    bare = _QUOTED.sub(lambda match: "\x01" * len(match.group()), own)
    return tuple(_split(text, own, bare))


def _own(text: str) -> str:
    """The text with all that is not the user's blanked out as line breaks."""
    own = _TAG.sub(_blank, _FENCE.sub(_blank, text))
    foreign: list[tuple[int, int]] = []
    is_pasted = False
    previous, end = "", 0
    for line in _LINE.finditer(own):
        if _HEADING.match(line.group()):
            # A document: whatever follows is part of it.
            foreign.append((line.start(), len(own)))
            break
        is_pasted = _goes_on(is_pasted, own.count("\n", end, line.start()) > 1, previous)
        if is_pasted or _FOREIGN_LINE.match(line.group()):
            foreign.append(line.span())
        previous, end = line.group(), line.end()
    return _without_middle(_blanked(own, foreign))


def _goes_on(is_pasted: bool, after_gap: bool, previous: str) -> bool:
    """Whether a line belongs to something pasted: begun by the line before, or going on."""
    if _INTRODUCES.search(previous) and not _KEEPS.search(previous):
        return True
    return is_pasted and not after_gap


def _without_middle(own: str) -> str:
    if len(own.strip()) <= PASTED_CHARS:
        return own
    paragraphs = list(_PARAGRAPH.finditer(own))
    inner = [(match.start(), match.end()) for match in paragraphs[1:-1]]
    long = [match.span() for match in paragraphs if len(match.group()) > PASTED_CHARS]
    return _blanked(own, [*inner, *long])


def _blanked(text: str, spans: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        pieces += (text[done:start], "\n" * (end - max(start, done)))
        done = max(done, end)
    return "".join((*pieces, text[done:]))


def _blank(match: re.Match[str]) -> str:
    return "\n" * len(match.group())


def _split(text: str, own: str, bare: str) -> Iterator[Spoken]:
    start = 0
    for end in [*(match.end() for match in _END.finditer(bare)), len(own)]:
        begin = start
        start = end
        bullet = _BULLET.match(own, begin, end)
        begin = bullet.end() if bullet else begin
        piece = own[begin:end]
        begin += len(piece) - len(piece.lstrip())
        stop = begin + len(piece.strip())
        if begin < stop and stop - begin <= SENTENCE_LIMIT_CHARS:
            yield Spoken(text[begin:stop], bare[begin:stop])
