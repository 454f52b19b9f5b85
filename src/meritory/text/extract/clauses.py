"""The clauses of a sentence that belong to a plain statement, and where it ends.

A statement often stands in the midst of a request: "the build is slow, my laptop has 16 GB, what
can I do?". It ends where the next clause neither continues it nor states something itself.
"""

from __future__ import annotations

import re
from typing import Final

from meritory.text.extract.phrases import cues, phrase

# Scripts that are written without spaces.
UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_BOUNDARY: Final = re.compile(r"[,;:]\s+|\s+[\u2013\u2014-]+\s+|\.{3}|\u2026|[\uff0c\uff1b\uff1a]")
# A further name or number of an enumeration.
_ITEM: Final = re.compile(r"(?:[A-Z\u00c0-\u00de\d`\x01][^\s]*)(?: [^\s]+){0,2}[.!?\s]*")


def statement_end(
    text: str, found: tuple[int, int], language: str, *, is_question: bool
) -> int | None:
    """Return where the statement ends that begins with what was found; None if it is asked."""
    start, known = found
    bounds = [match for match in _BOUNDARY.finditer(text, start) if match.end() >= known]
    starts = [start, *(match.end() for match in bounds)]
    ends = [*(match.start() for match in bounds), len(text)]
    stop = start
    is_cut = False
    for number, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        clause = text[begin:end]
        if number and not _continues(clause, language):
            is_cut = True
            break
        leaves = phrase(language, "leaves").search(clause)
        stop = begin + leaves.start() if leaves else end
        if leaves:
            is_cut = True
            break
    asked = phrase(language, "asks")
    if asked.search(text, start, stop) or phrase(language, "tag").search(text, stop):
        return None
    if is_question and not is_cut:
        return None
    return _without_moment(text, start, stop, language)


def _without_moment(text: str, start: int, stop: int, language: str) -> int:
    """Return the end of a statement without a last part that is about the moment or the task."""
    end = stop
    while any(phrase(language, key).search(text, start, end) for key in ("passing", "state")):
        joins = [match.start() for match in phrase(language, "joins").finditer(text, start, end)]
        if not joins:
            return stop
        end = joins[-1]
    return end


def _continues(clause: str, language: str) -> bool:
    """Return whether a clause belongs to the statement before it."""
    if any(phrase(language, key).search(clause) for key in ("passing", "state")):
        return False
    # "We travel in a van, seven metres long."
    if any(phrase(language, key).match(clause) for key in ("continues", "count")):
        return True
    if _ITEM.fullmatch(clause) and not phrase(language, "orders").match(clause):
        return True
    lowered = clause.lower()
    plain = (cue for cue in cues(language) if cue.is_plain and cue.may_match(lowered))
    return any(cue.pattern.match(clause) for cue in plain)
