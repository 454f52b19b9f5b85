"""The features of each candidate for a learned ranking, for serving and training alike.

A version fixes names, order and meaning; it is stored with every row.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.rank.composite import HistoryParts, Trust
from meritory.rank.hybrid import finite, relative
from meritory.rank.usage_history import Usage

Floats = NDArray[np.float64]

FEATURE_VERSION = 3
FEATURES: tuple[str, ...] = (
    *("log_age_days", "importance", "log_access_count", "hour_sin", "hour_cos", "weekday_sin"),
    *("weekday_cos", "month_sin", "month_cos", "log_gap_hours", "is_embedded", "is_superseded"),
    *("is_constraint", "entity_slot", "aspect_slot", "cosine", "centred_cosine", "text", "hybrid"),
    *("effective", "composite", "relevance", "recency", "usefulness", "stored_usefulness"),
    *("confidence", "frequency", "provenance", "is_pinned", "is_same_project"),
    *("log_days_since_useful", "log_useful_count", "log_days_since_useful_here"),
    *("log_useful_count_here", "frecency", "used_in_previous", "share_of_recent", "never_used"),
    *("association", "context_cosine", "co_use", "word_association", "word_overlap", "title"),
    *("recency_trust", "usefulness_trust"),
)
# Training on exposure counts would relearn the old ranking.
EXPOSURE = frozenset({"log_access_count", "frequency"})
# The value of log(1 + days) for "never", some eight years.
NEVER_LOG_DAYS = 8.0
# No feature is larger, so that its product with a learned weight stays finite.
LARGEST = 1e6
_FLAGS = ("is_superseded", "is_constraint", "is_pinned", "is_same_project")
_SLOTS = 32
_HOURS_PER_DAY = 24.0
_DAYS_PER_WEEK = 7.0
_MONTHS_PER_YEAR = 12.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table of features."""

    names: tuple[str, ...]
    # The column of the baseline's own score.
    baseline: int
    # Columns that no model sees.
    hidden: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return len(self.names)


START_LAYOUT = Layout(
    FEATURES, FEATURES.index("composite"), tuple(sorted(map(FEATURES.index, EXPOSURE)))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInputs:
    """The facts of the candidates: arrays with one entry each, or one number for all."""

    # On the user's own clock, if it is known.
    at: datetime
    # Since the session before; None when there was none.
    gap_hours: float | None
    # The composite as served, and its parts before history was shrunk.
    composite: ArrayLike
    parts: HistoryParts
    # How far history counted in that composite.
    trust: Trust
    usage: Usage
    age_days: ArrayLike
    importance: ArrayLike
    access_count: ArrayLike
    # Plain, and centred by the mean of the store; not finite without a vector.
    cosine: ArrayLike
    centred_cosine: ArrayLike
    # The full-text score, 0 for no hit.
    text: ArrayLike
    # Both legs joined, before the source's weight.
    hybrid: ArrayLike
    # How well the context matches the title, 0 for no common word.
    title: ArrayLike
    effective: ArrayLike
    stored_usefulness: ArrayLike
    # The step on the provenance ladder, 0 for the strongest.
    provenance: ArrayLike
    is_pinned: ArrayLike
    is_same_project: ArrayLike
    is_constraint: ArrayLike
    is_superseded: ArrayLike = 0.0
    # Small numbers of the entity and the aspect it is about, 0 for none.
    entity_slot: ArrayLike = 0.0
    aspect_slot: ArrayLike = 0.0


def features(inputs: FeatureInputs) -> Floats:
    """Return one row per candidate, one column per name in `FEATURES`; all finite."""
    at, usage, parts = inputs.at, inputs.usage, inputs.parts
    hour = at.hour + at.minute / 60.0
    turns = {
        "hour": hour / _HOURS_PER_DAY,
        "weekday": (at.weekday() + hour / _HOURS_PER_DAY) / _DAYS_PER_WEEK,
        "month": (at.month - 1) / _MONTHS_PER_YEAR,
    }
    counts: dict[str, ArrayLike] = {
        "log_gap_hours": inputs.gap_hours or 0.0,
        "log_age_days": inputs.age_days,
        "log_access_count": inputs.access_count,
        "log_days_since_useful": usage.days_since,
        "log_useful_count": usage.count,
        "log_days_since_useful_here": usage.days_since_here,
        "log_useful_count_here": usage.count_here,
    }
    # log(1 + value), 0 for a negative or unknown value.
    logs = {name: np.log1p(np.maximum(finite(values), 0.0)) for name, values in counts.items()}
    columns: dict[str, ArrayLike] = {
        **{f"{name}_sin": math.sin(2.0 * math.pi * turn) for name, turn in turns.items()},
        **{f"{name}_cos": math.cos(2.0 * math.pi * turn) for name, turn in turns.items()},
        **logs,
        **{name: finite(getattr(inputs, name)) != 0.0 for name in _FLAGS},
        "importance": inputs.importance,
        "entity_slot": inputs.entity_slot,
        "aspect_slot": inputs.aspect_slot,
        "stored_usefulness": inputs.stored_usefulness,
        "provenance": inputs.provenance,
        "cosine": finite(inputs.cosine),
        "centred_cosine": finite(inputs.centred_cosine),
        "is_embedded": np.isfinite(np.asarray(inputs.cosine, dtype=np.float64)),
        "text": relative(inputs.text),
        "hybrid": relative(inputs.hybrid),
        "title": relative(inputs.title),
        "effective": inputs.effective,
        "composite": inputs.composite,
        # The parts before shrinking: trust changes over time, the parts do not.
        **{item.name: getattr(parts, item.name) for item in fields(parts)},
        "recency_trust": inputs.trust.recency,
        "usefulness_trust": inputs.trust.usefulness,
        "log_days_since_useful": np.where(
            usage.count > 0.0, logs["log_days_since_useful"], NEVER_LOG_DAYS
        ),
        "log_days_since_useful_here": np.where(
            usage.count_here > 0.0, logs["log_days_since_useful_here"], NEVER_LOG_DAYS
        ),
        "frecency": usage.frecency,
        "used_in_previous": usage.in_previous,
        "share_of_recent": usage.share_of_recent,
        "never_used": usage.count == 0.0,
        "association": relative(usage.association),
        "context_cosine": usage.context_cosine,
        "co_use": usage.co_use,
        "word_association": relative(usage.word_association),
        "word_overlap": usage.word_overlap,
    }
    table = np.empty((len(parts.relevance), len(FEATURES)))
    for index, name in enumerate(FEATURES):
        table[:, index] = columns[name]
    np.nan_to_num(table, copy=False, nan=0.0, posinf=LARGEST, neginf=-LARGEST)
    return np.clip(table, -LARGEST, LARGEST)


def project_slot(project: str | None) -> int:
    """Return a small number for a project, the same on every machine; 0 for none."""
    return 0 if project is None else 1 + zlib.crc32(project.encode()) % (_SLOTS - 1)
