"""Extraction of memories from a transcript by rules, without a model.

A sentence of the user becomes a claim when it matches a cue (cues.py) and is stated, not asked,
supposed or quoted. Claims that would not help later are declined with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from meritory.domain.memory import Kind
from meritory.domain.session import Turn
from meritory.text.claims.compare import says_change
from meritory.text.extract.attribution import Spoken, sentences
from meritory.text.extract.cues import (
    AFTER_DENIAL,
    CANDIDATE_LIMIT,
    CUES,
    DENIAL,
    Cue,
    Declined,
    Extraction,
    FoundClaim,
)
from meritory.text.normalize import canonical
from meritory.text.terms import query_terms
from meritory.text.words import words

NAME: Final = "rules/1"
TOPIC_LIMIT_CHARS: Final = 100
# Two claims that share this many distinctive words, and this share of all, are one.
SAME_SHARE: Final = 0.72
SAME_WORDS: Final = 4
MIN_WORDS: Final = 3
_AGENT_ROLES: Final = frozenset({"assistant", "edit", "tool"})

# A request about the current task that follows a statement in the same sentence.
_TRAILING_QUESTION: Final = re.compile(
    r"\s*+[,;:(\u2013\u2014-]++\s*(?:so|but|and|or|then|also)?,?\s*"
    r"(?:can|could|would|will|do|does|did|is|are|am|should|what|what's|how|which|where|who|why|when"
    r"|any|if so|right|ok|okay|got it|yeah|please|isn't|don't you)\b[^,;]*(?:[,;][^,;]*)*\?\W*$"
    r"|\s+(?:so|and|but) (?:can|could|would|how|what|which|do|is|are|should)\b[^?]*\?\W*$",
    re.IGNORECASE,
)
_TRAILING_REQUEST: Final = re.compile(
    r"\s*+[,;\u2013\u2014-]++\s*(?:so|but|and|though|which is why)\s+(?:now )?"
    r"(?:i'm|i am|i was|i'd|i wonder|i need|i want|i don't know|i guess|can|could|how|what|do|does"
    r"|is|are|should|would|maybe|please|let me|let's|any)\b.*$"
    r"|\s*[,;]\s*(?:can|could|would) you\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_POLITE: Final = re.compile(
    r"^\W*(?:\w+[,!]?\s+){0,3}?(?:can|could|will|would) you (?:please |also )?"
    r"(?:always|never|not|remember|remind me|memori[sz]e|keep in mind|stop|from now on"
    r"|in future)\b",
    re.IGNORECASE,
)
_GIVEN: Final = re.compile(r"\b(?:since|because|as|considering|given(?: that)?)\s+$", re.IGNORECASE)
_SUPPOSED: Final = re.compile(
    r"(?:\b(?:if|whether|unless|suppose|supposing|imagine|maybe|perhaps|in case|even though|as if"
    r"|what if|wish|pretend|hypothetically|let's say|would|might)\b[^,;:.]*)$",
    re.IGNORECASE,
)

# Case matters: a name is a third person too.
_OTHERS: Final = re.compile(
    r"\b(?:he|she|they|it|you|someone|somebody|people|everyone|boss|manager|mom|mum|dad|mother"
    r"|father|friend|wife|husband|partner|teacher|reviewer|author|docs?|documentation|readme"
    r"|claude\.md|agents\.md|guide|spec|rule|linter|error|message|comment|plan|post|article|log"
    r"|page|prompt|model|tool|assistant|[A-Z]\w+)(?: (?:also|always|once|just))? "
    r"(?:said|says?|told|tells|wrote|writes|states?|mentioned|suggest(?:s|ed)|claim(?:s|ed)?"
    r"|recommend(?:s|ed)|reads|advised|asked|wants|warned|insists?|keeps? saying)\b"
    r"|\baccording to\b|\b(?:said|called|titled|named|quote)\s*[:\x01]",
)
_POINTS_BACK: Final = re.compile(r"(?:it|it's|that|that's|this|there|there's|they|they're)\b", re.I)
_KINDS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"(?:please )?(?:always|never|don't|do not|only|stop|avoid|use|not to)\b", "constraint"),
        (r"you (?:should|must|are to)\b", "constraint"),
        (r"(?:i|we)\b[^,]{0,20} (?:prefer|like|love|hate|dislike)\b", "preference"),
        (r"(?:my|our) (?:favou?rite|preference|preferred)\b", "preference"),
        (r"(?:i|we)(?:'ve| have)? (?:decided|agreed|use|settled|don't use)\b", "decision"),
    )
)

# Loose ends are stripped without a pattern, which could take minutes on a long run of them.
_ENDS: Final = " ,;:.!"
_LOOSE_ENDS: Final = f"{_ENDS}\u2013\u2014-"
_COURTESY: Final = re.compile(r",? (?:please|thanks|thank you|ok|okay)$", re.IGNORECASE)


_WORD: Final = re.compile(r"[^\W_][\w'’./@+-]*")
_POINTING: Final = words(
    "it it's its this that that's these those they they're them he she him his her one ones there"
    " same such above below"
)

# Words that do not say what a sentence is about.
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

# A subject that only the previous turn explains.
_POINTER: Final = re.compile(
    r"(?:it|it's|that's|they|they're|he|she|there|there's"
    r"|(?:this|that|these|those) (?:is|was|are|were))\b",
    re.IGNORECASE,
)

# Introduces the topic of a claim that is unclear without it.
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

# Events in the past are over, unless the sentence states a change that still holds.
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
    r"^(?:the |an? )?(?P<subject>.{3,60}?) (?:is|are|means) (?:the |an? )?(?P=subject)\W*$"
)


def extract(turns: Sequence[Turn]) -> tuple[FoundClaim, ...]:
    """Return what the user stated outright, at most five claims, best first."""
    return read(turns).candidates


def read(turns: Sequence[Turn]) -> Extraction:
    """Return the claims of a transcript that are worth keeping, and the declined ones."""
    useful: list[FoundClaim] = []
    declined: list[Declined] = []
    for claim in _claims(turns):
        reason = reason_to_decline(claim.content)
        if reason is None:
            useful.append(claim)
        else:
            declined.append(Declined(claim, reason))
    best: list[FoundClaim] = []
    best_terms: list[frozenset[str]] = []
    for claim in sorted(useful, key=lambda claim: (-claim.confidence, -claim.turn)):
        terms = frozenset(query_terms(claim.content)) | {canonical(claim.content)}
        if not any(_is_same(terms, other) for other in best_terms):
            best.append(claim)
            best_terms.append(terms)
    too_many = (
        Declined(claim, "the session had better ones", "refused")
        for claim in best[CANDIDATE_LIMIT:]
    )
    return Extraction(tuple(best[:CANDIDATE_LIMIT]), (*declined, *too_many))


def reason_to_decline(content: str) -> str | None:
    """Return why a claim would not help later, None when it may."""
    said = [word.lower().replace("’", "'") for word in _WORD.findall(content)]
    if len(said) < MIN_WORDS:
        return "it says too little"
    passing = _PASSING.search(content) or (not says_change(content) and _PAST.search(content))
    if passing:
        return f"it is about the current task ({passing.group().lower()[:40]!r})"
    if _PROGRESS.match(content):
        return "it only reports progress"
    if _POINTER.match(content) and ABOUT not in content:
        return "it does not say what it is about"
    specific = [word for word in said if word not in _EMPTY and word not in _POINTING]
    points = said[0] in _POINTING or any(word in _POINTING for word in said[-2:])
    if not specific or (points and len(specific) < 2):
        return "it does not say what it is about"
    if all(word in _PRAISE for word in specific) or _SELF.match(content.lower()):
        return "it states the obvious"
    return None


def _claims(turns: Sequence[Turn]) -> Iterator[FoundClaim]:
    has_acted = False
    topic = ""
    for index, turn in enumerate(turns):
        has_acted = has_acted or turn.role in _AGENT_ROLES
        if turn.role != "user":
            continue
        spoken = sentences(turn.text)
        is_denied = False
        for sentence in spoken:
            cues = (*CUES, AFTER_DENIAL) if is_denied else CUES
            usable = [cue for cue in cues if has_acted or not cue.corrects]
            claim = _claim(sentence, index, topic, usable)
            if claim is not None:
                yield claim
            is_denied = DENIAL.fullmatch(sentence.bare.replace("\u2019", "'")) is not None
        topic = spoken[-1].text[:TOPIC_LIMIT_CHARS] if spoken else ""


def _claim(sentence: Spoken, index: int, topic: str, cues: Sequence[Cue]) -> FoundClaim | None:
    """Return the claim of the first cue that a sentence matches, None when it only asks."""
    plain = sentence.bare.replace("\u2019", "'")
    lowered = plain.lower()
    for cue in cues:
        is_likely = any(word in lowered for word in cue.needs)
        match = cue.pattern.search(plain) if is_likely else None
        if match is None:
            continue
        before = plain[: match.start("claim")]
        if _SUPPOSED.search(before) or _OTHERS.search(before):
            return None
        statement = _statement(sentence, cue, match.span("claim"))
        if not statement.strip():
            return None
        # One line, a capital letter, no loose end.
        content = " ".join(statement.split()).rstrip("?")
        content = _COURTESY.sub("", content.rstrip(_ENDS)).rstrip(_LOOSE_ENDS)
        if content.count(")") > content.count("("):
            content = content.rstrip(")")
        content = content[:1].upper() + content[1:]
        if cue.corrects and _POINTS_BACK.match(content) and topic:
            # The topic is in the user's own words too: the request that the agent got wrong.
            content = f"{content}{ABOUT}{topic})"
        kind = cue.kind
        if cue.way in ("remember", "correction"):
            matched = (kind for pattern, kind in _KINDS if pattern.match(content))
            kind = cast("Kind", next(matched, cue.kind))
            # "Remember to ..." always asks for an action.
            kind = "constraint" if before.lower().endswith(" to ") else kind
        return FoundClaim(
            content, kind, "user_stated", "user", cue.confidence, index, sentence.text
        )
    return None


def _statement(sentence: Spoken, cue: Cue, span: tuple[int, int]) -> str:
    """Return the statement without the question or request around it; empty when it only asks."""
    start, end = span
    stated = sentence.text[start:end]
    if sentence.is_question:
        cut = _TRAILING_QUESTION.sub("", stated)
        if cut != stated:
            stated = cut
        elif _GIVEN.search(sentence.bare[:start]):
            # "What else is there, since we decided ...?" states the part after "since".
            stated = re.split(r"[,?]", stated)[0]
        elif not _POLITE.match(sentence.bare):
            return ""
    if cue.way in ("preference", "decision"):
        stated = _TRAILING_REQUEST.sub("", stated)
    return stated


def _is_same(terms: frozenset[str], other: frozenset[str]) -> bool:
    if len(terms) == 2 or len(other) == 2:
        return terms == other
    shared = len(terms & other)
    return shared >= SAME_WORDS and shared >= SAME_SHARE * len(terms | other)
