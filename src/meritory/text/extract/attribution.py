"""Whose word a quote is: found out by where it stands in the transcript, by nobody's claim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meritory.domain.memory import Origin, Provenance
from meritory.domain.session import Turn
from meritory.text.claims.compare import says_change
from meritory.text.claims.values import protected_values
from meritory.text.claims.words import NEGATIONS, words
from meritory.text.extract.spoken import own_words
from meritory.text.terms import query_terms

# What a claim must share with the turn it is quoted from to be that speaker's own.
GROUNDED_SHARE: Final = 0.5
_STEM_CHARS: Final = 5
_WEB: Final = re.compile(
    r"\b\w*(?:web|fetch|brows|http|url|search|crawl|curl|wget)\w*", re.IGNORECASE
)
_WORDS: Final = re.compile(r"[\w']+")
_GIVEN: Final = frozenset({"tool", "result", "system"})


@dataclass(frozen=True, slots=True)
class QuoteAttribution:
    """Who said a thing, the turn it stands in, and its words as they stand there."""

    provenance: Provenance
    origin: Origin
    turn: int
    quote: str


def standing_of(turns: Sequence[Turn], quote: str, content: str) -> QuoteAttribution | None:
    """Return whose word a quote is, None when nobody said it; spaces do not count.

    The least trusted of those who said it decides: what an agent or a tool said as well may be an
    echo of theirs. What the user pasted is not the user's word, and may be anybody's. A claim that
    the user's own words in the quoted turn do not bear out is the model's own.
    """
    pattern = _pattern(quote)
    if pattern is None:
        return None
    places = [
        (place, turn.role, match.group())
        for place, turn in enumerate(turns)
        if (match := pattern.search(turn.text))
    ]
    if not places:
        return None
    given = next((place for place in places if place[1] in _GIVEN), None)
    if given is not None:
        return QuoteAttribution("assistant_derived", _source(turns, given[0]), given[0], given[2])
    said = next((place for place in places if place[1] != "user"), None)
    if said is not None:
        return QuoteAttribution("assistant_derived", "agent", said[0], said[2])
    place, _, words = places[-1]
    own = own_words(turns[place].text)
    if not pattern.search(own):
        return QuoteAttribution("assistant_derived", "tool", place, words)
    if not _bears_out(own, content) or _denies(words) != _denies(content):
        return QuoteAttribution("assistant_derived", "agent", place, words)
    return QuoteAttribution("user_stated", "user", place, words)


def _pattern(quote: str) -> re.Pattern[str] | None:
    words = [re.escape(word) for word in quote.split()]
    return re.compile(r"\s+".join(words)) if words else None


def _source(turns: Sequence[Turn], place: int) -> Origin:
    """Whether the text came from the web or from another tool, by the call before it."""
    called = next((turn.text for turn in reversed(turns[: place + 1]) if turn.role == "tool"), "")
    return "web" if _WEB.search(called.split("{")[0][:80]) else "tool"


def _denies(text: str) -> bool:
    """Whether a text says no: a claim must not turn around what was said."""
    found = _WORDS.findall(text.lower().replace("’", "'"))
    return any(word in NEGATIONS or word.endswith("n't") for word in found)


def _bears_out(said: str, content: str) -> bool:
    """Whether a claim keeps to what was said: half of its words, and every value in it."""
    stems = {term[:_STEM_CHARS] for term in query_terms(said, limit=2_000)}
    claimed = query_terms(content)
    if not claimed:
        return False
    held = sum(term[:_STEM_CHARS] in stems for term in claimed)
    if held < GROUNDED_SHARE * len(claimed):
        return False
    mine, theirs = protected_values(content), protected_values(said)
    return set(mine.numbers) <= set(theirs.numbers) and set(mine.identifiers) <= set(
        theirs.identifiers
    )


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
