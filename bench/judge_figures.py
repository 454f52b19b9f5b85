"""Figures of a judge: precision, recall and calibration over all candidates of many sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A score of at least this means "helped", as for labels.
HELPED = 0.4
# A session teaches something from this confidence on.
MIN_CONFIDENCE = 0.4
# The recalls at which precision is printed.
RECALLS = (0.1, 0.2, 0.3, 0.4, 0.474)
BIN_COUNT = 10
# A bin counts for calibration from so many scores on.
MIN_BIN_COUNT = 50
# Labels are rounded to four decimals.
_ROUNDING = 1e-9

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge says about one session, and the truth."""

    stream: str
    helped: Flags
    # The chance that each candidate helped.
    chances: Floats
    # The labels that the judge gives, -1..1; NaN for a candidate without one.
    labels: Floats
    confidence: float


@dataclass(frozen=True, slots=True)
class Bin:
    """The scores of one tenth."""

    mean: float
    # The share that truly helped.
    share: float
    count: int

    @property
    def gap(self) -> float:
        """How far the mean score is from the share that helped."""
        return abs(self.mean - self.share)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one kind of score. NaN where nothing can be computed."""

    # Scores given, and how many of them mean "helped".
    count: int
    helped_count: int
    precision: float
    recall: float
    precision_at: Mapping[float, float]
    bins: tuple[Bin, ...]

    @property
    def largest_gap(self) -> float:
        """The largest gap among the bins with enough scores; NaN without such a bin."""
        return max((one.gap for one in self.bins if one.count >= MIN_BIN_COUNT), default=np.nan)

    def plain(self) -> dict[str, object]:
        """Return the figures as values for JSON."""
        return {
            "scores": self.count,
            "helped": self.helped_count,
            "precision": rounded(self.precision),
            "recall": rounded(self.recall),
            "precision_at_recall": {
                f"{recall:.6g}": rounded(value) for recall, value in self.precision_at.items()
            },
            "reliability": [
                [rounded(one.mean), rounded(one.share), one.count] for one in self.bins
            ],
            "largest_gap": rounded(self.largest_gap),
        }

    @classmethod
    def from_plain(cls, known: Mapping[str, Any]) -> Figures:
        """Return the figures that `plain` wrote."""
        at = known["precision_at_recall"]
        return cls(
            count=known["scores"],
            helped_count=known["helped"],
            precision=_number(known["precision"]),
            recall=_number(known["recall"]),
            precision_at={float(recall): _number(value) for recall, value in at.items()},
            bins=tuple(Bin(*one) for one in known["reliability"]),
        )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def rounded(value: float) -> float | None:
    """Return a number with four decimals; None for NaN, which JSON does not have."""
    return round(float(value), 4) if np.isfinite(value) else None


def figures(scores: Floats, helped: Flags, recalls: Sequence[float] = RECALLS) -> Figures:
    """Return the figures of some scores; a score of NaN is none, and finds nothing."""
    is_given = np.isfinite(scores)
    is_found = is_given & (np.where(is_given, scores, 0.0) >= HELPED - _ROUNDING)
    right = int((is_found & helped).sum())
    return Figures(
        count=int(is_given.sum()),
        helped_count=int(is_found.sum()),
        precision=right / is_found.sum() if is_found.any() else np.nan,
        recall=right / helped.sum() if helped.any() else np.nan,
        precision_at={recall: precision_at(scores, helped, recall) for recall in recalls},
        bins=reliability(scores[is_given], helped[is_given]),
    )


def precision_at(scores: Floats, helped: Flags, recall: float) -> float:
    """Return the precision at the highest threshold that reaches a recall; NaN if none does.

    Equal scores are found together: their order says nothing.
    """
    is_given = np.isfinite(scores)
    order = np.argsort(-scores[is_given], kind="stable")
    ranked, truth = scores[is_given][order], helped[is_given][order]
    found = np.cumsum(truth)
    is_last = np.append(np.diff(ranked) != 0.0, True) if len(ranked) else np.zeros(0, np.bool_)
    enough = np.flatnonzero(is_last & (found >= recall * helped.sum() - _ROUNDING))
    if not enough.size or not helped.any():
        return float("nan")
    return float(found[enough[0]] / (enough[0] + 1))


def reliability(scores: Floats, helped: Flags) -> tuple[Bin, ...]:
    """Return the tenths of the scale that hold a score; a negative score counts as 0."""
    chances = np.clip(scores, 0.0, 1.0)
    tenths = np.minimum((chances * BIN_COUNT).astype(int), BIN_COUNT - 1)
    rows = [tenths == number for number in range(BIN_COUNT)]
    return tuple(
        Bin(float(chances[row].mean()), float(helped[row].mean()), int(row.sum()))
        for row in rows
        if row.any()
    )


@dataclass(frozen=True, slots=True)
class SetFigures:
    """The figures of a judge on one part of a set."""

    sessions: int
    candidates: int
    used: int
    chances: Figures
    labels: Figures
    # The share of sessions that teach something.
    teaching: float

    def plain(self) -> dict[str, object]:
        """Return the figures as values for JSON."""
        return {
            "sessions": self.sessions,
            "candidates": self.candidates,
            "used": self.used,
            "chances": self.chances.plain(),
            "labels": self.labels.plain(),
            "teaching": rounded(self.teaching),
        }

    @classmethod
    def from_plain(cls, known: Mapping[str, Any]) -> SetFigures:
        """Return the figures that `plain` wrote."""
        return cls(
            sessions=known["sessions"],
            candidates=known["candidates"],
            used=known["used"],
            chances=Figures.from_plain(known["chances"]),
            labels=Figures.from_plain(known["labels"]),
            teaching=_number(known["teaching"]),
        )


def set_figures(
    judged: Sequence[Judged],
    recalls: Sequence[float] = RECALLS,
    min_confidence: float = MIN_CONFIDENCE,
) -> SetFigures:
    """Return the figures of many sessions, all candidates taken together."""
    helped = np.concatenate([one.helped for one in judged])
    confidence = np.array([one.confidence for one in judged])
    return SetFigures(
        sessions=len(judged),
        candidates=len(helped),
        used=int(helped.sum()),
        chances=figures(np.concatenate([one.chances for one in judged]), helped, recalls),
        labels=figures(np.concatenate([one.labels for one in judged]), helped, recalls),
        teaching=float((confidence >= min_confidence).mean()),
    )
