"""The one question before anything is kept: would it help a conversation that lacks this turn?

Asked in four parts, each answered from the text alone: does it say enough, does it say what it is
about, does it hold beyond the task at hand, and does it say more than what holds anyway. The words
below are closed classes of the language (pronouns, words of time, words of praise), not a list of
phrases that grows with every bad example: what no part objects to is kept.
"""

from __future__ import annotations

import re
from typing import Final

from meritory.text.cues import says_change
from meritory.text.stopwords import words

MIN_WORDS: Final = 3
_WORD: Final = re.compile(r"[^\W_][\w'’./@+-]*")
_POINTING: Final = words(
    "it it's its this that that's these those they they're them he she him his her one ones there"
    " same such above below"
)
# Words that a sentence can have many of without saying what it is about.
_EMPTY: Final = words(
    "a an the here and or but so to of in on at by for with from as than then not no never always"
    " please again ever only just also too very really more most much be is are was were am been"
    " being do does did doing done don't doesn't didn't have has had i i'm i've i'd i'll me my we"
    " we're we've our us you your you're will would can could should must may might shall let's"
    " want need prefer decided decide use using used make making get go put keep try stop like"
    " what when where which who how why if all any every each some now off up out remember"
    " way thing things stuff something anything everything future going forward time times plan"
    " option approach idea decision choice"
)
# A subject that only the turn before could explain.
_POINTER: Final = re.compile(
    r"(?:it|it's|that's|they|they're|he|she|there|there's"
    r"|(?:this|that|these|those) (?:is|was|are|were))\b",
    re.IGNORECASE,
)
# How a claim is told apart that needs its topic beside it.
ABOUT: Final = " (about: "
_PRAISE: Final = words(
    "right correct correctly good better best well properly proper careful carefully accurate"
    " helpful nice great perfect quality high clean mistake mistakes wrong bad error errors work"
    " works working job answer answers result results clear clearly"
)
_SPAN: Final = (
    "(?:week|month|night|year|weekend|monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
)
_PASSING: Final = re.compile(
    r"\b(?:for now|right now|at the moment|this (?:time|once|morning|week|afternoon|evening)|today"
    r"|tonight|tomorrow|just once|(?:for|in|on|to|with|of) (?:this|that|the current|your)"
    r" (?:\w+ )?(?:pr|pull request|branch|task|session|commit|change|changes|issue|file|function"
    r"|chat|conversation|message|reply|answer|response|step|test|example|one|plan|draft|version"
    r"|trip|case|ticket|job|run|fix|patch|diff)|yet"
    r"|until (?!i (?:ask|say|tell|approve|confirm))(?:i|we|it|the|this|that|you)\b[^.]*"
    rf"|next {_SPAN})\b",
    re.IGNORECASE,
)
# What happened then is over, unless it is told as a change that has held since.
_PAST: Final = re.compile(
    rf"\b(?:yesterday|last {_SPAN}|(?:an? )?(?:few|couple of) (?:days|weeks|minutes|hours) ago)\b",
    re.IGNORECASE,
)
_PROGRESS: Final = re.compile(
    r"^(?:ok(?:ay)?[, ]+)?(?:i|we)(?:'ve| have)?(?: just| already| now)? (?:merged|pushed|committed"
    r"|deployed|ran|run|finished|fixed|tested|installed|restarted|reverted|rebased|updated|added"
    r"|removed|started|stopped|opened|closed|tried|checked|reviewed|approved|undid)\b",
    re.IGNORECASE,
)
_SELF: Final = re.compile(
    r"^(?:the |an? )?(?P<one>.{3,60}?) (?:is|are|means) (?:the |an? )?(?P=one)\W*$"
)


def objection(content: str) -> str | None:
    """Return why a claim would not help later, None when nothing speaks against it."""
    said = [word.lower().replace("’", "'") for word in _WORD.findall(content)]
    if len(said) < MIN_WORDS:
        return "it says too little"
    passing = _PASSING.search(content) or (not says_change(content) and _PAST.search(content))
    if passing:
        return f"it is about the task at hand ({passing.group().lower()[:40]!r})"
    if _PROGRESS.match(content):
        return "it tells how far the work has come"
    if _POINTER.match(content) and ABOUT not in content:
        return "it does not say what it is about"
    telling = [word for word in said if word not in _EMPTY and word not in _POINTING]
    points = said[0] in _POINTING or any(word in _POINTING for word in said[-2:])
    if not telling or (points and len(telling) < 2):
        return "it does not say what it is about"
    if all(word in _PRAISE for word in telling) or _SELF.match(content.lower()):
        return "it says what holds anyway"
    return None
