"""Labels: how useful a memory was in a session, made from all evidence by one function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError
from meritory.domain.memory import Provenance

Floats = NDArray[np.float64]
Fate = Literal["deleted_soon", "deleted", "superseded"]
Rule = Literal[
    "known",
    "deleted_soon",
    "deleted",
    "superseded",
    "rated",
    "judged",
    "continuity",
    "no_evidence",
    "missing",
    "hits",
    "unjudged",
]

# A user deleted it within a day of its injection, or at another time; it was shown though outdated.
FATE_LABELS: dict[Fate, float] = {"deleted_soon": -0.5, "deleted": -0.3, "superseded": -0.3}
ONE_HIT = 0.3
MANY_HITS = 0.6
MANY_HITS_COUNT = 2
# The agent overlooked a memory that two prompts of the user match.
UNNOTICED = 0.3
# How often a rating is right; joins it with a judge's probability.
RATING_RELIABILITY = 0.85
# A stored text can ask for a good rating: more than this needs a second witness.
UNCONFIRMED_CAP = 0.3
MISSED = 0.7
HIT_BONUS = 0.1
NO_HIT_MALUS = 0.1
# Continuity below this counts half for each memory.
LOW_SCORING = 0.5
LOW_SCORING_FACTOR = 0.5
# Below this, a memory without a hit gets the malus.
POOR_SCORING = 0.3

USEFUL_LABEL = 0.4
MIN_CONFIDENCE = 0.4
# The least difference of the largest and smallest score with which a judge separates memories.
MIN_SCORE_SPREAD = 0.1

SOFT_NEGATIVE_COSINE = 0.6
SOFT_NEGATIVE_NEAR = 0.25
SOFT_NEGATIVE_FAR = 0.0
SOFT_NEGATIVE_WEIGHT = 0.25
SOFT_NEGATIVES_PER_LABEL = 3
# A memory with label -1 counts this many times more in its list than one that was not used.
HARM_WEIGHT = 4.0
# 0.6 - 0.5 is less than 0.1 in binary: differences below this are rounding.
_ROUNDING = 1e-9
# No trace at all still leaves this chance that a memory helped.
_LEAST_CHANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence about one memory in one session; None is unknown."""

    was_injected: bool
    provenance: Provenance = "user_stated"
    # It is among the candidates only because a prompt matched it.
    is_fts_only: bool = False
    # The mean of the agent's ratings, -1..1.
    agent_score: float | None = None
    hit_count: int = 0
    # The judge's score of this memory, -1..1.
    judge_score: float | None = None
    # The judge's score of the session, 0..1.
    continuity: float | None = None
    # The judge names it as something the user had to explain again.
    is_missing: bool = False
    fate: Fate | None = None
    # A program knows how much it helped.
    known: float | None = None


@dataclass(frozen=True, slots=True)
class LabelWeights:
    """How much rating, hits and continuity count in a rated label; only their relation matters."""

    agent_feedback: bool = True
    feedback: float = 0.7
    fts: float = 0.2
    continuity: float = 0.1

    def __post_init__(self) -> None:
        for item in fields(self)[1:]:
            value = getattr(self, item.name)
            if not 0.0 <= value < math.inf:
                raise InputError(
                    f"the label weight {item.name} is {value!r}",
                    hint="choose a number of at least 0, such as 0.7, 0.2 and 0.1",
                )
        if self.total <= 0.0:
            raise InputError(
                "all label weights are 0", hint="set at least one of them above 0, such as 0.7"
            )

    @property
    def total(self) -> float:
        """The sum of the three weights."""
        return math.fsum((self.feedback, self.fts, self.continuity))


@dataclass(frozen=True, slots=True)
class Label:
    """The label, the rule that made it, and the value of each witness on the label's scale."""

    value: float | None
    rule: Rule
    agent: float | None = None
    text: float | None = None
    continuity: float | None = None
    judge: float | None = None
    # It counts for history and for the recall of the pool, never for training or comparison.
    is_history_only: bool = False


def label(evidence: Evidence, weights: LabelWeights) -> Label:
    """Make the label of one memory in one session: the first rule that applies decides alone.

    1. `known`: a program said how much it helped; exactly that.
    2. `deleted_soon`, `deleted`, `superseded`: its fate, whatever else was said, because a person
       outranks agent and judge. Superseded counts only when it was shown.
    3. `rated`: it was shown and the agent rated it: rating, hits and continuity by weight. A rating
       of 0 up to 0.3 counts 0.3 with two hits, so that a better rating never means a worse label.
       One above 0.3 needs a second witness unless the user stated the memory: a hit, or a judge
       who gives it 0.3 as well.
    4. shown and not rated: `judged`, else `continuity` (halved in a low-scoring session), each
       moved by hits; else `no_evidence` and no label.
    5. not shown (a rating of what was not shown is ignored): the highest of `missing`, `hits` and
       `judged`; else `unjudged` and no label.

    Missing is never 0, and a number that is not finite is missing; others are clipped.
    """
    seen = replace(
        evidence,
        agent_score=_bounded(evidence.agent_score, -1.0),
        judge_score=_bounded(evidence.judge_score, -1.0),
        continuity=_bounded(evidence.continuity, 0.0),
        known=_bounded(evidence.known, -1.0),
    )
    fate = seen.fate
    # A memory that was not shown was not deleted because it was shown.
    if fate == "deleted_soon" and not seen.was_injected:
        fate = "deleted"
    if seen.known is not None:
        made = Label(seen.known, "known")
    elif fate is not None and (fate != "superseded" or seen.was_injected):
        made = Label(FATE_LABELS[fate], fate)
    elif not seen.was_injected:
        made = _not_shown(seen)
    elif seen.agent_score is not None and weights.agent_feedback:
        made = _rated(seen, seen.agent_score, weights)
    else:
        made = _shown(seen)
    return replace(made, is_history_only=seen.is_fts_only)


def is_useful(value: float | None, confidence: float | None) -> bool:
    """Return whether a memory with this label helped, in a session judged with this confidence."""
    if value is None or confidence is None:
        return False
    return value >= USEFUL_LABEL - _ROUNDING and confidence >= MIN_CONFIDENCE


def exclusion(confidence: float | None, scores: Sequence[float | None]) -> str | None:
    """Return why a session does not count for training and the success rate, None if it does."""
    if confidence is None or not math.isfinite(confidence):
        return "the session was not judged"
    if confidence < MIN_CONFIDENCE:
        return f"the judge's confidence of {confidence:.2f} is below {MIN_CONFIDENCE}"
    known = [score for score in scores if score is not None and math.isfinite(score)]
    if not known:
        return "the judge scored no memory"
    spread = max(known) - min(known)
    if spread < MIN_SCORE_SPREAD - _ROUNDING:
        return f"the memories' scores vary by {spread:.3f}, less than {MIN_SCORE_SPREAD}"
    return None


def soft_negatives(cosines: Floats) -> Floats:
    """Return the training labels of unjudged memories; ones near the context may be misses."""
    return np.where(cosines > SOFT_NEGATIVE_COSINE, SOFT_NEGATIVE_NEAR, SOFT_NEGATIVE_FAR)


def joined(rating: float, chance: float) -> float:
    """Return the chance that a memory helped, from a rating of 0..1 and the judge's chance.

    A rating of 1 or 0 is right with probability `RATING_RELIABILITY`, one of a half says nothing.
    """
    believed = min(max(chance, _LEAST_CHANCE), 1.0 - _LEAST_CHANCE)
    odds = believed / (1.0 - believed)
    odds *= math.pow(RATING_RELIABILITY / (1.0 - RATING_RELIABILITY), 2.0 * rating - 1.0)
    return odds / (1.0 + odds)


def _rated(seen: Evidence, score: float, weights: LabelWeights) -> Label:
    judge = seen.judge_score
    agent = joined(score, judge) if score >= 0.0 and judge is not None else score
    if 0.0 <= agent < UNNOTICED and seen.hit_count >= MANY_HITS_COUNT:
        agent = UNNOTICED
    elif not (
        seen.provenance == "user_stated"
        or seen.hit_count > 0
        or (judge is not None and judge >= UNCONFIRMED_CAP)
    ):
        agent = min(agent, UNCONFIRMED_CAP)
    text = max(agent, _hit_label(seen.hit_count) or agent)
    trust = 1.0 if seen.continuity is None else 0.5 + 0.5 * seen.continuity
    continuity = agent * trust
    # Written as changes of the rating: without other evidence the label is exactly the rating.
    moved = weights.fts * (text - agent) + weights.continuity * (continuity - agent)
    value = _clipped(agent + moved / weights.total)
    return Label(value, "rated", agent, text, continuity, judge)


def _shown(seen: Evidence) -> Label:
    if seen.judge_score is not None:
        rule: Rule = "judged"
        base = seen.judge_score
    elif seen.continuity is not None:
        rule = "continuity"
        is_low = seen.continuity < LOW_SCORING
        base = seen.continuity * (LOW_SCORING_FACTOR if is_low else 1.0)
    else:
        return Label(None, "no_evidence")
    text = 0.0
    if seen.hit_count > 0:
        text = HIT_BONUS
    elif seen.continuity is not None and seen.continuity < POOR_SCORING:
        text = -NO_HIT_MALUS
    value = _clipped(base + text)
    return Label(value, rule, text=text, continuity=seen.continuity, judge=seen.judge_score)


def _not_shown(seen: Evidence) -> Label:
    text = _hit_label(seen.hit_count)
    # The first of equal values names the rule.
    values: tuple[tuple[Rule, float | None], ...] = (
        ("missing", MISSED if seen.is_missing else None),
        ("hits", text),
        ("judged", seen.judge_score),
    )
    known = [(rule, value) for rule, value in values if value is not None]
    if not known:
        return Label(None, "unjudged")
    rule, value = max(known, key=lambda entry: entry[1])
    return Label(value, rule, text=text, judge=seen.judge_score)


def _hit_label(hit_count: int) -> float | None:
    if hit_count <= 0:
        return None
    return MANY_HITS if hit_count >= MANY_HITS_COUNT else ONE_HIT


def _bounded(value: float | None, low: float) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return max(low, _clipped(value))


def _clipped(value: float) -> float:
    return min(1.0, max(-1.0, float(value)))
