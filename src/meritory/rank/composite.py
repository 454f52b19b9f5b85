"""Scores of memories: effective, relevance, recency, frequency and the composite of five parts.

Every function takes arrays (or numbers) and returns float64 arrays that are finite and lie in
0..1. An input that is not finite becomes the neutral value named beside the constants, or sinks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.memory import DEFAULT_CONFIDENCE, DEFAULT_IMPORTANCE, DEFAULT_USEFULNESS
from meritory.domain.policy import SourceWeights

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

# The five weights change only by a new decision record with a re-run of the eval (decision 0003).
WEIGHT_RELEVANCE = 0.40
WEIGHT_RECENCY = 0.25
WEIGHT_USEFULNESS = 0.20
WEIGHT_CONFIDENCE = 0.10
WEIGHT_FREQUENCY = 0.05

# ln 2 / 14 = 0.0495: half of the recency is gone after two weeks.
RECENCY_DECAY_PER_DAY = 0.05
# A memory that was injected 50 times is as established as it can get.
FREQUENCY_CAP = 50
EFFECTIVE_DECAY = 0.95
NEUTRAL_RECENCY = 0.5
SCORE_DECIMALS = 6

# Strongest first; a demotion moves a memory one step to the right.
PROVENANCE_LADDER = ("user_stated", "episode_summary", "assistant_derived")
_STEPS = {name: step for step, name in enumerate(PROVENANCE_LADDER)}
_LAST_STEP = len(PROVENANCE_LADDER) - 1
_SECONDS_PER_DAY = 86_400.0
# An importance of nothing at all still has an age.
_FAINT = 1e-9

_WEIGHTS = (
    WEIGHT_RELEVANCE,
    WEIGHT_RECENCY,
    WEIGHT_USEFULNESS,
    WEIGHT_CONFIDENCE,
    WEIGHT_FREQUENCY,
)
if not math.isclose(math.fsum(_WEIGHTS), 1.0, rel_tol=0.0, abs_tol=1e-9):
    # Raised and not asserted: `python -O` must not switch it off.
    raise ImportError(f"the five composite weights sum to {math.fsum(_WEIGHTS)}, not to 1")


@dataclass(frozen=True, slots=True)
class Composition:
    """The composite and its five parts, one array each, in the order of the memories."""

    composite: FloatArray
    relevance: FloatArray
    recency: FloatArray
    usefulness: FloatArray
    confidence: FloatArray
    frequency: FloatArray

    def row(self, index: int) -> dict[str, float]:
        """The numbers of one memory by name, rounded for people to read."""
        return {
            item.name: round(float(getattr(self, item.name)[index]), SCORE_DECIMALS)
            for item in fields(self)
        }


def age_days(now: datetime, moments: Sequence[datetime | None]) -> FloatArray:
    """Days from each moment to now, negative in the future and NaN where the moment is unknown."""
    present = _utc(now)
    return np.array(
        [
            np.nan
            if moment is None
            else (present - _utc(moment)).total_seconds() / _SECONDS_PER_DAY
            for moment in moments
        ],
        dtype=np.float64,
    )


def provenance_codes(provenances: Sequence[str]) -> IndexArray:
    """The step of each provenance on the ladder; an unknown one stands on the lowest."""
    return np.array([_STEPS.get(name, _LAST_STEP) for name in provenances], dtype=np.intp)


def effective(importance: ArrayLike, age_days: ArrayLike, pinned: ArrayLike) -> FloatArray:
    """Importance faded by age, 1 when pinned; an unknown age counts as half faded."""
    known, age = _known_age(age_days)
    faded = np.where(known, EFFECTIVE_DECAY**age, NEUTRAL_RECENCY)
    return _array(
        np.where(np.asarray(pinned, dtype=bool), 1.0, _unit(importance, DEFAULT_IMPORTANCE) * faded)
    )


def standing(importance: float | None, created_day: float | None) -> float:
    """A number that orders unpinned memories as `effective` does, at any moment.

    importance * decay ** (now - day) is ordered as log importance - day * log decay: no clock.
    """
    worth = DEFAULT_IMPORTANCE if importance is None else max(float(importance), _FAINT)
    return math.log(worth) - (created_day or 0.0) * math.log(EFFECTIVE_DECAY)


def standings(importance: ArrayLike, created_day: ArrayLike) -> FloatArray:
    """`standing` of many, all of which are known."""
    worth = np.maximum(np.asarray(importance, np.float64), _FAINT)
    return _array(np.log(worth) - np.asarray(created_day, np.float64) * math.log(EFFECTIVE_DECAY))


def source_weight(
    codes: ArrayLike, confidence: ArrayLike, demotion: ArrayLike, weights: SourceWeights
) -> FloatArray:
    """The factor in 0..1 by which provenance, demotions and doubt lower a cosine."""
    ladder = [getattr(weights, name) for name in PROVENANCE_LADDER]
    # The minimum over all steps passed: a demotion never raises a memory, whatever the weights.
    reached = np.array(
        [
            [min(ladder[step : step + levels + 1]) for levels in range(len(ladder))]
            for step in range(len(ladder))
        ]
    )
    provenance = reached[_step(codes, _LAST_STEP), _step(demotion, 0)]
    doubt = 1.0 - _unit(confidence, DEFAULT_CONFIDENCE)
    return _array(provenance * (1.0 - weights.confidence_slope * doubt))


def relevance(cosine: ArrayLike, weight: ArrayLike) -> FloatArray:
    """The cosine, never below 0, times the source weight; what is not finite sinks to 0."""
    return _array(_unit(cosine, 0.0) * _unit(weight, 0.0))


def recency(age_days: ArrayLike) -> FloatArray:
    """How fresh a memory is: halves in 14 days, 1 for a future date, 0.5 for an unknown one."""
    known, age = _known_age(age_days)
    return _array(np.where(known, np.exp(-RECENCY_DECAY_PER_DAY * age), NEUTRAL_RECENCY))


def frequency(access_count: ArrayLike) -> FloatArray:
    """How often a memory was injected, as a share of the cap."""
    return _unit(_array(access_count) / FREQUENCY_CAP, 0.0)


def composite(
    relevance: ArrayLike,
    recency: ArrayLike,
    usefulness: ArrayLike,
    confidence: ArrayLike,
    frequency: ArrayLike,
) -> FloatArray:
    """The weighted sum of the five parts."""
    return explain(relevance, recency, usefulness, confidence, frequency).composite


def explain(
    relevance: ArrayLike,
    recency: ArrayLike,
    usefulness: ArrayLike,
    confidence: ArrayLike,
    frequency: ArrayLike,
) -> Composition:
    """The composite together with the five parts that really went into it."""
    parts = np.broadcast_arrays(
        _unit(relevance, 0.0),
        _unit(recency, NEUTRAL_RECENCY),
        _unit(usefulness, DEFAULT_USEFULNESS),
        _unit(confidence, DEFAULT_CONFIDENCE),
        _unit(frequency, 0.0),
    )
    # Term by term, in this order: equal inputs give equal bits on every machine.
    total = (
        WEIGHT_RELEVANCE * parts[0]
        + WEIGHT_RECENCY * parts[1]
        + WEIGHT_USEFULNESS * parts[2]
        + WEIGHT_CONFIDENCE * parts[3]
        + WEIGHT_FREQUENCY * parts[4]
    )
    return Composition(np.minimum(total, 1.0), *parts)


def descending(scores: ArrayLike, ids: Sequence[str]) -> IndexArray:
    """The positions from best to worst: what is not finite comes last, equal scores go by id."""
    values = _array(scores)
    if values.shape != (len(ids),):
        raise ValueError(f"{values.size} scores for {len(ids)} ids")
    keys = np.where(np.isfinite(values), -values, np.inf)
    return np.lexsort((np.asarray(ids, dtype=np.str_), keys))


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _array(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def _unit(values: ArrayLike, neutral: float) -> FloatArray:
    array = _array(values)
    return np.clip(np.where(np.isfinite(array), array, neutral), 0.0, 1.0)


def _step(values: ArrayLike, neutral: int) -> IndexArray:
    array = _array(values)
    return np.clip(np.where(np.isfinite(array), array, neutral), 0, _LAST_STEP).astype(np.intp)


def _known_age(age_days: ArrayLike) -> tuple[NDArray[np.bool_], FloatArray]:
    age = _array(age_days)
    known = np.isfinite(age)
    return known, np.where(known, np.maximum(age, 0.0), 0.0)
