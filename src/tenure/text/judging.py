"""Rates a finished session's memories from what happened in it, without any model.

A memory's score is the chance that it helped (see evidence.py), below zero when the person
contradicted it after the agent had gone by it, or asked for it to be forgotten. Neither ratings
nor full-text hits enter, and nothing a memory says about itself does.

Confidence is the square root of the largest score, of either sign. On public sets of questions
that is about how often the memory scored best was a right one (bench/judge.py); on sessions full
of code it is too sure. Being on the topic alone gives 0.56 at most, so a session passes the gate
of 0.6 only with a trace of use.

Continuity is the share of what the agent needed that memory gave it: useful memories shown over
these and all that was lacking, each side with half a memory to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tenure.errors import InputError
from tenure.text.conduct import Conduct, Exchange, read_conduct
from tenure.text.evidence import Docket, Numbers, chances, open_docket, use_of
from tenure.text.objections import asks_to_forget, contradicts, explains_again, objection_in
from tenure.text.traces import COMMON_WEIGHT, WORD_WEIGHT, terms_of, wording
from tenure.types import Exhibit, Turn, Verdict

# A score from which a memory counts as useful, the same as for labels.
USEFUL: Final = 0.4
FORGOTTEN: Final = -0.5
# What is left of the score of the memory that an objection without a subject most likely meant.
DOUBTED_SHARE: Final = 0.3
# The agent went by a memory when it used at least this much of it.
MIN_USE: Final = 0.25
# What a person must type of a memory that was not shown to have explained it again.
MIN_RETOLD_WEIGHT: Final = 2.0
MIN_RETOLD_SHARE: Final = 0.3
# Of what is to be forgotten, this share of the words must be the memory's.
MIN_NAMED_SHARE: Final = 0.6
MAX_TOPICS: Final = 10
MAX_TOPIC_WORDS: Final = 3


def judge_session(
    transcript: Sequence[Turn],
    exhibits: Sequence[Exhibit],
    similarity: Sequence[float] | None = None,
) -> Verdict:
    """Return the verdict on a finished session; equal input gives an equal verdict.

    `similarity` is each exhibit's largest cosine with one of the transcript's `passages`.
    """
    if similarity is not None and len(similarity) != len(exhibits):
        raise InputError(f"{len(exhibits)} exhibits need as many cosines, not {len(similarity)}")
    docket = open_docket(exhibits)
    conduct = read_conduct(transcript, [docket.terms[place] for place in _places(docket.shown)])
    if not exhibits or conduct.is_empty:
        return _no_verdict(len(exhibits))
    scores = chances(docket, conduct, similarity)
    _lower_contradicted(scores, docket, conduct)
    _lower_forgotten(scores, docket, transcript)
    retold = _retold(docket, conduct)
    missing = tuple(sorted({place for places in retold.values() for place in places}))
    unmatched_count = sum(not places for places in retold.values())
    return Verdict(
        score=_continuity(scores, docket, missing, unmatched_count),
        confidence=round(math.sqrt(float(np.abs(scores).max())), 4),
        relevance=tuple(round(float(score), 4) for score in scores),
        missing=missing,
        missing_topics=_topics(docket, conduct, retold),
        novel_context_count=len(retold),
        reasoning=_reasoning(scores, docket, missing),
    )


def _lower_contradicted(scores: Numbers, docket: Docket, conduct: Conduct) -> None:
    """Turn the scores of memories that the agent went by and the person then corrected."""
    for before, after in zip(conduct.exchanges, conduct.exchanges[1:], strict=False):
        objection = objection_in(after) if after.is_later else None
        if objection is None:
            continue
        use = np.where(docket.shown, use_of(docket, before.pieces), 0.0)
        if use.max() < MIN_USE:
            continue
        if objection.names_nothing:
            scores[int(use.argmax())] *= DOUBTED_SHARE
            continue
        for place in _places(use >= MIN_USE):
            if contradicts(objection, docket.exhibits[place].text, docket.terms[place]):
                scores[place] = -(0.5 + 0.5 * use[place])


def _lower_forgotten(scores: Numbers, docket: Docket, transcript: Sequence[Turn]) -> None:
    """Lower the scores of memories that the person asked to forget."""
    for turn in transcript:
        if turn.role not in {"user", "tool"} or not asks_to_forget(turn.text):
            continue
        named = {term: w for term, w in terms_of(turn.text).items() if w > COMMON_WEIGHT}
        for place, terms in enumerate(docket.terms):
            held = sum(weight for term, weight in named.items() if term in terms)
            if held >= max(2 * WORD_WEIGHT, MIN_NAMED_SHARE * sum(named.values())):
                scores[place] = min(float(scores[place]), FORGOTTEN)


def _retold(docket: Docket, conduct: Conduct) -> dict[int, tuple[int, ...]]:
    """Return in which exchanges the person explained again, and which exhibits say the same."""
    found: dict[int, tuple[int, ...]] = {}
    for number, exchange in enumerate(conduct.exchanges):
        if not exchange.is_later:
            continue
        places = tuple(place for place in _places(~docket.shown) if _tells(docket, exchange, place))
        if places or explains_again(exchange.prompt):
            found[number] = places
    return found


def _tells(docket: Docket, exchange: Exchange, place: int) -> bool:
    """Say whether a prompt tells, for the first time in the session, what an exhibit says."""
    terms = docket.terms[place]
    told = [term for term in exchange.new if term in terms and term not in docket.shown_holders]
    weight = sum(terms[term] * docket.rarity[term] for term in told)
    return weight >= max(MIN_RETOLD_WEIGHT, MIN_RETOLD_SHARE * sum(terms.values()))


def _continuity(
    scores: Numbers, docket: Docket, missing: Sequence[int], unmatched_count: int
) -> float:
    useful = np.where(scores >= USEFUL, scores, 0.0)
    useful[list(missing)] = 1.0
    harm = float(-scores[scores < 0.0].sum())
    given = float(useful[docket.shown].sum())
    lacking = float(useful[~docket.shown].sum()) + harm + unmatched_count
    return round((given + 0.5) / (given + lacking + 1.0), 4)


def _topics(
    docket: Docket, conduct: Conduct, retold: Mapping[int, Sequence[int]]
) -> tuple[str, ...]:
    """Return the words in which the person explained again, a few for each thing."""
    found: dict[str, None] = {}
    for number, places in retold.items():
        exchange = conduct.exchanges[number]
        new = {term for term in exchange.new if exchange.typed[term] >= WORD_WEIGHT}
        for terms in [set(docket.terms[place]) for place in places] or [new]:
            found[" ".join(wording(exchange.prompt, new & terms, MAX_TOPIC_WORDS))] = None
    return tuple(topic for topic in found if topic)[:MAX_TOPICS]


def _reasoning(scores: Numbers, docket: Docket, missing: Sequence[int]) -> str:
    useful_count = int((docket.shown & (scores >= USEFUL)).sum())
    parts = [f"{useful_count} of {int(docket.shown.sum())} shown memories left traces of use"]
    if harmful_count := int((scores < 0.0).sum()):
        parts.append(f"contradicted or to be forgotten: {harmful_count}")
    if missing:
        parts.append(f"not shown and explained again: {len(missing)}")
    return "; ".join(parts) + "."


def _no_verdict(exhibit_count: int) -> Verdict:
    return Verdict(
        score=None,
        confidence=0.0,
        relevance=(None,) * exhibit_count,
        reasoning="Nothing to judge: no memory was put forward, or the agent did nothing.",
    )


def _places(mask: NDArray[np.bool_]) -> list[int]:
    return [int(place) for place in np.flatnonzero(mask)]
