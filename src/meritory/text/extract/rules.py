"""Extraction of memories from a transcript by rules, without a model.

A sentence of the user becomes a claim when it matches a cue and is stated, not asked,
supposed or quoted. Claims that would not help later are declined with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from meritory.domain.memory import Kind, Origin, Provenance
from meritory.domain.session import Turn
from meritory.text.claims.compare import says_change
from meritory.text.extract.attribution import Spoken, turn_sentences
from meritory.text.language import pattern, read_language, word_set, written_out
from meritory.text.normalize import canonical
from meritory.text.terms import query_terms

_FILE: Final = "en/extract"
# The confidence in a claim that a model extracted; cues have their own.
CONFIRMED: Final = 0.7
IMPLIED: Final = 0.5
CANDIDATE_LIMIT: Final = 5


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """One claim worth keeping, with its quote and the turn of the quote."""

    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    # The index of the turn in the transcript.
    turn: int
    quote: str
    # The stored memory that it replaces.
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """A candidate that is not stored: not useful later, or rejected by a check."""

    found: FoundClaim
    reason: str
    outcome: Literal["floored", "refused"] = "floored"


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of an extractor for one transcript, best candidates first."""

    candidates: tuple[FoundClaim, ...] = ()
    refused: tuple[Declined, ...] = ()


@dataclass(frozen=True, slots=True)
class Cue:
    """One phrasing, with the kind and confidence of a claim in it."""

    way: Literal["remember", "rule", "correction", "decision", "preference"]
    kind: Kind
    confidence: float
    # The sentence must contain one of these, in lower case.
    needs: Sequence[str]
    pattern: str

    @property
    def corrects(self) -> bool:
        """Whether it corrects an earlier action of the agent."""
        return self.way == "correction"


_pattern: Final = partial(pattern, _FILE)


def _cue(entry: Mapping[str, Any]) -> Cue:
    return Cue(**{**entry, "pattern": written_out(_FILE, entry["pattern"])})


CUES: Final = tuple(map(_cue, read_language(_FILE)["cues"]))
AFTER_DENIAL: Final = _cue(read_language(_FILE)["after_denial"])

NAME: Final = "rules/1"
# Two claims that share this many distinctive words, and this share of all, are one.
SAME_SHARE: Final = 0.72
SAME_WORDS: Final = 4
MIN_WORDS: Final = 3
# The kinds that the first words of a claim can state.
_STATED_KINDS: Final[tuple[Kind, ...]] = ("constraint", "preference", "decision")
_AGENT_ROLES: Final = frozenset({"assistant", "edit", "tool"})

# Loose ends are stripped without a pattern, which could take minutes on a long run of them.
_ENDS: Final = " ,;:.!"
_LOOSE_ENDS: Final = f"{_ENDS}\u2013\u2014-"
_WORD: Final = re.compile(r"[^\W_][\w'’./@+-]*")


def read(turns: Sequence[Turn]) -> Extraction:
    """Return what the user stated outright, at most five claims, and the declined ones."""
    useful: list[FoundClaim] = []
    declined: list[Declined] = []
    has_acted = False
    for index, turn in enumerate(turns):
        has_acted = has_acted or turn.role in _AGENT_ROLES
        if turn.role != "user":
            continue
        spoken = turn_sentences(turn)
        is_denied = False
        for sentence in spoken:
            cues = (*CUES, AFTER_DENIAL) if is_denied else CUES
            usable = [cue for cue in cues if has_acted or not cue.corrects]
            found = _claim(sentence, index, usable)
            if isinstance(found, Declined):
                declined.append(found)
            elif found:
                useful.append(found)
            plain = sentence.bare.replace("\u2019", "'")
            is_denied = _pattern("denial").fullmatch(plain) is not None
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
    passing = _pattern("passing").search(content)
    if not passing and not says_change(content):
        passing = _pattern("past").search(content)
    if passing:
        return f"it is about the current task ({passing.group().lower()[:40]!r})"
    if _pattern("progress").match(content):
        return "it only reports progress"
    if _pattern("pointer").match(content):
        return "it does not say what it is about"
    empty, pointing, praise = (word_set(_FILE, key) for key in ("empty", "pointing", "praise"))
    specific = [word for word in said if word not in empty and word not in pointing]
    points = said[0] in pointing or any(word in pointing for word in said[-2:])
    if not specific or (points and len(specific) < 2):
        return "it does not say what it is about"
    if all(word in praise for word in specific) or _pattern("tautology").match(content.lower()):
        return "it states the obvious"
    return None


def _reason_to_decline_correction(content: str, *, is_order: bool) -> str | None:
    """Return why a correction would not help later: it needs a subject of its own."""
    if _pattern("standing").match(content):
        is_clear = any(_pattern(name).search(content) for name in ("says_rule", "anchored"))
        if not is_clear and not _pattern("names_object").match(content):
            return "it does not say what it is about"
    elif is_order:
        return "it is about the current task"
    elif _pattern("lacks_subject").match(content):
        return "it does not say what it is about"
    return reason_to_decline(content)


def _claim(sentence: Spoken, index: int, cues: Sequence[Cue]) -> FoundClaim | Declined | None:
    """Return the claim of the first cue that a sentence matches, None when it only asks."""
    plain = sentence.bare.replace("\u2019", "'")
    lowered = plain.lower()
    for cue in cues:
        is_likely = any(word in lowered for word in cue.needs)
        match = re.search(cue.pattern, plain) if is_likely else None
        if match is None:
            continue
        before = plain[: match.start("claim")]
        if _pattern("supposed").search(before) or _pattern("others").search(before):
            return None
        statement = _statement(sentence, cue, match.span("claim"))
        if not statement.strip():
            return None
        # One line, a capital letter, no loose end.
        content = " ".join(statement.split()).rstrip("?")
        content = _pattern("courtesy").sub("", content.rstrip(_ENDS)).rstrip(_LOOSE_ENDS)
        if content.count(")") > content.count("("):
            content = content.rstrip(") ")
        content = content[:1].upper() + content[1:]
        # "Remember to ..." always asks for an action.
        is_order = before.lower().endswith(" to ")
        kind = _kind(cue, content, is_order=is_order)
        claim = FoundClaim(
            content, kind, "user_stated", "user", cue.confidence, index, sentence.text
        )
        if cue.corrects:
            reason = _reason_to_decline_correction(content, is_order=is_order)
        else:
            reason = reason_to_decline(content)
        return claim if reason is None else Declined(claim, reason)
    return None


def _kind(cue: Cue, content: str, *, is_order: bool) -> Kind:
    """Return the kind of a claim; its first words decide where the cue leaves it open."""
    if cue.way not in ("remember", "correction"):
        return cue.kind
    kinds = (kind for kind in _STATED_KINDS if _pattern(f"says_{kind}").match(content))
    kind = "constraint" if is_order else next(kinds, cue.kind)
    # A correction is about one case, unless it says that it holds always.
    is_one_case = cue.corrects and not _pattern("says_rule").search(content)
    return "preference" if kind == "constraint" and is_one_case else kind


def _statement(sentence: Spoken, cue: Cue, span: tuple[int, int]) -> str:
    """Return the statement without the question or request around it; empty when it only asks."""
    start, end = span
    stated = sentence.text[start:end]
    if sentence.is_question:
        cut = _pattern("trailing_question").sub("", stated)
        if cut != stated:
            stated = cut
        elif _pattern("given").search(sentence.bare[:start]):
            # "What else is there, since we decided ...?" states the part after "since".
            stated = re.split(r"[,?]", stated)[0]
        elif not _pattern("polite").match(sentence.bare):
            return ""
    if cue.way in ("preference", "decision"):
        stated = _pattern("trailing_request").sub("", stated)
    return stated


def _is_same(terms: frozenset[str], other: frozenset[str]) -> bool:
    if len(terms) == 2 or len(other) == 2:
        return terms == other
    shared = len(terms & other)
    return shared >= SAME_WORDS and shared >= SAME_SHARE * len(terms | other)
