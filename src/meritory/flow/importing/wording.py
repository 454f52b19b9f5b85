"""What kind of memory a line of somebody's notes is, told by its words and its heading."""

from __future__ import annotations

import re

from meritory.text.prohibitions import stated_constraints
from meritory.types import Kind

_FORBIDS = re.compile(
    r"\b(?:never|must not|mustn't|do not|don't|forbidden|not allowed|under no circumstances"
    r"|off limits)\b",
    re.IGNORECASE,
)
_PREFERS = re.compile(
    r"\b(?:prefers?|preferred|favou?rs?|rather than|instead of|likes?|always use|avoid|style)\b",
    re.IGNORECASE,
)
_DECIDES = re.compile(r"\b(?:we|i) (?:decided|chose|agreed)\b|\bdecision\b", re.IGNORECASE)
_DOES = re.compile(
    r"^(?:\*\*)?(?:to |run |build |test |deploy |install |start |first |use `"
    r"|before |after |always )"
    r"|^\d+[.)] |(?:^|\n)```|(?:^|\s)\$ ",
    re.IGNORECASE,
)
_HEADINGS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("decision", re.compile(r"\bdecisions?\b|\badrs?\b", re.IGNORECASE)),
    ("preference", re.compile(r"\bpreferences?|\bstyle\b|\bconventions?\b", re.IGNORECASE)),
    ("procedure", re.compile(r"\bcommands?\b|\bworkflows?\b|\bhow to\b|\bsteps\b", re.IGNORECASE)),
)


def kind_of(text: str, heading: str = "") -> Kind:
    """The kind of a note; what forbids something comes first, for it must not be lost."""
    if _FORBIDS.search(text) or stated_constraints(text):
        return "constraint"
    if _DECIDES.search(text):
        return "decision"
    if _PREFERS.search(text):
        return "preference"
    for kind, pattern in _HEADINGS:
        if pattern.search(heading):
            return kind
    return "procedure" if _DOES.search(text) else "fact"
