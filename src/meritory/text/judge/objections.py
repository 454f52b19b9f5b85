"""Finds where a person corrects, takes back or explains again what an agent went by."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from meritory.text.judge.conduct import Exchange
from meritory.text.judge.overlap import COMMON_WEIGHT, VALUE_WEIGHT, WORD_WEIGHT, terms_of
from meritory.text.normalize import unified

# "No problem" and "no, thanks" object to nothing.
_NO = re.compile(r"\s*(?:no+|nope|wrong|incorrect)\b(?:\s*[,.!:;-]+(?!\s*thank)|\s*$)")
_WRONG = re.compile(
    r"\b(?:that|this|it)(?:'s| is| was) (?:wrong|not (?:right|correct|true)|incorrect|a mistake"
    r"|outdated|obsolete)\b"
    r"|\byou(?:'re| are) (?:wrong|mistaken)\b"
    r"|\bany ?more\b|\bno longer\b|\b(?:is|are) (?:outdated|obsolete|deprecated)\b"
    r"|\b(?:don't|do not|never|stop|quit) (?:use|using|run|running)\b"
    r"|\bwe (?:(?:don't|do not|never) (?:use|do|have|run)|(?:stopped|moved|switched|migrated))\b"
    r"|\bnot like (?:this|that)\b|\b(?:undo|revert) (?:this|that|it)\b"
)
_FORGET = re.compile(
    r"\b(?:forget|delete|remove|drop|erase)\b[^.\n]{0,40}\b(?:memory|memories|notes?)\b"
    r"|\bforget that\b|\b(?:memory|meritory)[_ ](?:forget|delete)\b"
)
_AGAIN = re.compile(
    r"\b(?:as|like) i (?:said|told|explained|mentioned)\b"
    r"|\bi(?:'ve| have)? already (?:said|told|explained|mentioned)\b"
    r"|\bi told you\b|\bremember(?:,| that| we)\b|\blike last time\b"
    r"|\bhow (?:many times|often) do i\b"
)
_NEGATED = re.compile(r"\b(?:not|never|no|avoid|without|stop|cannot)\b|n't\b")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n+")

# How far behind its first words a correction is read: the sentence it begins in, and the next.
MAX_OBJECTION_CHARS: Final = 240
_READ_SENTENCES: Final = 2
# The share of a memory that a correction must name to be about it.
_MIN_NAMED_SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Objection:
    """What a person wrote against what the agent had just done."""

    text: str
    terms: Mapping[str, float]
    # Terms that nobody had written before.
    new: tuple[str, ...]

    @property
    def names_nothing(self) -> bool:
        """Say whether it leaves open what it is about."""
        return all(weight < WORD_WEIGHT for weight in self.terms.values())


def objection_in(exchange: Exchange) -> Objection | None:
    """Return the part of a prompt that objects, if any does."""
    prompt = _plain(exchange.prompt)
    start = _NO.match(prompt)
    cue = start or _WRONG.search(prompt)
    if cue is None:
        return None
    ends = [end.start() for end in _SENTENCE_END.finditer(prompt)]
    first = max((end for end in ends if end < cue.start()), default=-1) + 1
    later = [end for end in ends if end >= cue.end()]
    last = later[_READ_SENTENCES - 1] if len(later) >= _READ_SENTENCES else len(prompt)
    text = unified(exchange.prompt)[first : min(last, first + MAX_OBJECTION_CHARS)]
    terms = terms_of(text)
    new = tuple(term for term in exchange.new if terms.get(term, 0.0) > COMMON_WEIGHT)
    return Objection(text, terms, new)


def contradicts(objection: Objection, memory: str, terms: Mapping[str, float]) -> bool:
    """Say whether an objection is aimed at a memory rather than in line with it.

    It must name something of the memory, and what it brings in anew must not be what the memory
    says too: "no, use npm" confirms the memory "never use pnpm, use npm". Where it brings in
    nothing new, two negations agree.
    """
    named = sum(w for term, w in terms.items() if term in objection.terms and w > COMMON_WEIGHT)
    if named < max(WORD_WEIGHT, _MIN_NAMED_SHARE * sum(terms.values())):
        return False
    if objection.new:
        return not _holds(terms, objection)
    return not (_is_negated(memory) and _is_negated(_NO.sub("", _plain(objection.text))))


def asks_to_forget(text: str) -> bool:
    """Say whether a text asks for a memory to be deleted."""
    return _FORGET.search(_plain(text)) is not None


def explains_again(prompt: str) -> bool:
    """Say whether a person points out that this was said before."""
    return _AGAIN.search(_plain(prompt)) is not None


def _holds(terms: Collection[str], objection: Objection) -> bool:
    new = objection.new
    values = [term for term in new if objection.terms[term] >= VALUE_WEIGHT]
    return all(value in terms for value in values) and 2 * sum(t in terms for t in new) > len(new)


def _is_negated(text: str) -> bool:
    return _NEGATED.search(_plain(text)) is not None


def _plain(text: str) -> str:
    return unified(text).lower()
