"""What an extractor found in a transcript, and what it decided against."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from meritory.domain.memory import Kind
from meritory.domain.session import Turn
from meritory.text.extract.attribution import ABOUT, objection
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
from meritory.text.extract.spoken import Spoken, sentences
from meritory.text.normalize import canonical
from meritory.text.terms import query_terms

NAME: Final = "rules/1"
TOPIC_LIMIT_CHARS: Final = 100
# Two claims of one session that share so much are one; the words are those that tell something.
SAME_SHARE: Final = 0.72
SAME_WORDS: Final = 4
_AGENT_ROLES: Final = frozenset({"assistant", "edit", "tool"})

# A request for the task at hand that follows a statement in the same sentence.
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
# Case counts: a name is a third person as well.
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
# Loose ends are cut off without patterns: a long run of them would take one minutes.
_ENDS: Final = " ,;:.!"
_LOOSE_ENDS: Final = f"{_ENDS}\u2013\u2014-"
_COURTESY: Final = re.compile(r",? (?:please|thanks|thank you|ok|okay)$", re.IGNORECASE)


def extract(turns: Sequence[Turn]) -> tuple[FoundClaim, ...]:
    """Return what the user said outright, at most five claims, best first."""
    return read(turns).candidates


def read(turns: Sequence[Turn]) -> Extraction:
    """Return what is worth keeping of a transcript, and what is not, with the reason."""
    found: list[FoundClaim] = []
    declined: list[Declined] = []
    for claim in _claims(turns):
        reason = objection(claim.content)
        if reason is None:
            found.append(claim)
        else:
            declined.append(Declined(claim, reason))
    best = _distinct(sorted(found, key=lambda one: (-one.confidence, -one.turn)))
    too_many = (
        Declined(one, "the session had better ones", "refused") for one in best[CANDIDATE_LIMIT:]
    )
    return Extraction(tuple(best[:CANDIDATE_LIMIT]), (*declined, *too_many))


def _claims(turns: Sequence[Turn]) -> Iterator[FoundClaim]:
    has_acted = False
    topic = ""
    for place, turn in enumerate(turns):
        has_acted = has_acted or turn.role in _AGENT_ROLES
        if turn.role != "user":
            continue
        said = sentences(turn.text)
        denied = False
        for one in said:
            ways = (*CUES, AFTER_DENIAL) if denied else CUES
            claim = _claim(
                one, place, topic, [cue for cue in ways if has_acted or not cue.corrects]
            )
            if claim is not None:
                yield claim
            denied = DENIAL.fullmatch(one.bare.replace("\u2019", "'")) is not None
        topic = said[-1].text[:TOPIC_LIMIT_CHARS] if said else ""


def _claim(one: Spoken, place: int, topic: str, ways: Sequence[Cue]) -> FoundClaim | None:
    plain = one.bare.replace("\u2019", "'")
    lowered = plain.lower()
    for cue in ways:
        needed = any(word in lowered for word in cue.needs)
        match = cue.pattern.search(plain) if needed else None
        if match is None:
            continue
        before = plain[: match.start("claim")]
        if _SUPPOSED.search(before) or _OTHERS.search(before):
            return None
        start, end = match.span("claim")
        text = _statement(one, cue, (start, end))
        if text is None:
            return None
        content = _sentence(text)
        if cue.corrects and _POINTS_BACK.match(content) and topic:
            # In the user's own words too: what they had asked when the agent got it wrong.
            content = f"{content}{ABOUT}{topic})"
        kind = cue.kind
        if cue.way in ("remember", "correction"):
            # "Remember to ..." asks for something to be done, whatever it is.
            kind = "constraint" if before.lower().endswith(" to ") else _kind(content, cue.kind)
        return FoundClaim(content, kind, "user_stated", "user", cue.confidence, place, one.text)
    return None


def _statement(one: Spoken, cue: Cue, span: tuple[int, int]) -> str | None:
    """What is stated, without a question or request around it; None when all of it is asked."""
    start, end = span
    stated = one.text[start:end]
    if one.is_question:
        cut = _TRAILING_QUESTION.sub("", stated)
        if cut != stated:
            stated = cut
        elif _GIVEN.search(one.bare[:start]):
            # "What else is there, since we decided ...?" takes for granted what it goes on with.
            stated = re.split(r"[,?]", stated)[0]
        elif not _POLITE.match(one.bare):
            return None
    if cue.way in ("preference", "decision"):
        stated = _TRAILING_REQUEST.sub("", stated)
    return stated if stated.strip() else None


def _sentence(text: str) -> str:
    """The words as one sentence of its own: one line, a capital letter, no loose end."""
    flat = " ".join(text.split()).rstrip("?")
    flat = _COURTESY.sub("", flat.rstrip(_ENDS)).rstrip(_LOOSE_ENDS)
    if flat.count(")") > flat.count("("):
        flat = flat.rstrip(")")
    return flat[:1].upper() + flat[1:]


def _kind(content: str, otherwise: Kind) -> Kind:
    found = next((kind for pattern, kind in _KINDS if pattern.match(content)), otherwise)
    return cast("Kind", found)


def _distinct(found: Sequence[FoundClaim]) -> list[FoundClaim]:
    """The claims without those that say less of the same; the first of two alike stays."""
    kept: list[tuple[FoundClaim, frozenset[str]]] = []
    for one in found:
        terms = frozenset(query_terms(one.content)) | {canonical(one.content)}
        if not any(_is_same(terms, other) for _, other in kept):
            kept.append((one, terms))
    return [one for one, _ in kept]


def _is_same(one: frozenset[str], other: frozenset[str]) -> bool:
    shared = len(one & other)
    if len(one) == 2 or len(other) == 2:
        return one == other
    return shared >= SAME_WORDS and shared >= SAME_SHARE * len(one | other)
