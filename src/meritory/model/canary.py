"""Canaries: sessions kept out of training, and the exam on them that a new model must pass.

A canary session is a training example; the baseline ranks it by the recorded composite.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from meritory.domain.errors import MeritoryError
from meritory.model.base import Floats, Model, RankingQuery, Rows, TrainingExample
from meritory.model.checkpoint import read, restored
from meritory.rank.features import FEATURES, START_LAYOUT
from meritory.rank.metrics import bootstrap_interval, ndcg_at

# One session in this many is kept out of training, to examine models on.
CANARY_EVERY: Final = 10
CANARY_LIMIT: Final = 25
LEAST_SESSIONS: Final = 3
PLACES: Final = 10
TOP_PLACES: Final = 5
LEAST_OVERLAP: Final = 0.6
# Scores are of the size of 1: a spread below a millionth is the noise of sums.
LEAST_VARIANCE: Final = 1e-12
LARGEST_DROP: Final = 0.15
BASELINE_TOLERANCE: Final = 0.02
BEST_TOLERANCE: Final = 0.03
# How sure the bootstrap must be that a model is worse than the tolerance allows.
REFUSAL_CONFIDENCE: Final = 0.8
_JUDGED_WEIGHT: Final = 1.0
# Sums of the same numbers in another order differ by less.
_ROUNDING: Final = 1e-9
_FRESH_LOAD_NOTES: Final = {
    None: "loading it in a fresh process was not asked for",
    True: "it loads and scores in a fresh process",
    False: "it does not load or score in a fresh process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The models and facts that a challenger is compared with."""

    # The losses of its training, in order.
    losses: Sequence[float]
    # Whether a fresh process could load its file and score with it; None without a file.
    loads_afresh: bool | None
    # The model that serves now; None before the first one.
    incumbent: Model | None = None
    # The best of the stored models, including the incumbent.
    best_kept: Model | None = None
    # Whether it was trained to differ from the incumbent.
    after_reset: bool = False
    # The column of the baseline's score.
    baseline: int = START_LAYOUT.baseline
    # Other sessions, each with the scores of a model that was trained without it.
    crossed: Sequence[tuple[TrainingExample, Floats]] = ()


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One check of a challenger: a measured value, its limit and a sentence."""

    name: str
    passed: bool
    # None if there is no number.
    value: float | None
    limit: float | None
    note: str


@dataclass(frozen=True, slots=True)
class GateReport:
    """All checks, and the figures of the training log; a figure is None if it was not measured."""

    checks: tuple[GateCheck, ...]
    # The mean NDCG@10, and its difference to the incumbent, or else to the baseline.
    canary_ndcg: float | None = None
    canary_ndcg_delta: float | None = None
    # The mean variance of the scores within a session.
    canary_score_variance: float | None = None
    # The share of the incumbent's first five that are not among the challenger's.
    canary_topk_churn: float | None = None
    # The difference in NDCG to the best stored model.
    canary_best_delta: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the challenger may serve."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The notes of the checks that failed."""
        return tuple(check.note for check in self.checks if not check.passed)


def is_canary(user: str, key: str) -> bool:
    """Return whether a session is kept out of training, if training can use it at all."""
    return zlib.crc32(f"canary {user} {key}".encode()) % CANARY_EVERY == 0


def examine(
    challenger: Model, canary: Sequence[TrainingExample], terms: Terms, rng: np.random.Generator
) -> GateReport:
    """Examine a challenger on sessions that it was not trained on.

    The challenger scores the canaries; models trained in the same way without them score all other
    sessions. On both together its mean NDCG@10 must not be below the baseline's by more than the
    tolerance. Canaries alone are few: with a short history their noise would reject every second
    model.

    Against the best stored model only the canaries count, for that model was trained on the
    others. The challenger fails if the difference is below minus the tolerance in 80 % of the
    resamples.
    """
    lessons = [lesson for lesson in canary if _tells_orders_apart(lesson)]
    others = [pair for pair in terms.crossed if _tells_orders_apart(pair[0])]
    count, losses = len(lessons) + len(others), terms.losses
    needed = "" if count >= LEAST_SESSIONS else f", {LEAST_SESSIONS} are needed"
    bad_losses = len(losses) - int(np.isfinite(losses).sum())
    bad_weights = [n for n, value in challenger.params.items() if not np.isfinite(value).all()]
    checks = [
        GateCheck(
            "canary",
            count >= LEAST_SESSIONS,
            float(count),
            float(LEAST_SESSIONS),
            f"{count} sessions can tell a good order from a bad one{needed}",
        ),
        GateCheck(
            "losses",
            # No loss at all means that nothing was trained.
            len(losses) > 0 and not bad_losses,
            float(bad_losses),
            0.0,
            f"{bad_losses} of {len(losses)} losses in training are not finite",
        ),
        GateCheck(
            "weights",
            not bad_weights,
            float(len(bad_weights)),
            0.0,
            f"weights that are not finite: {', '.join(bad_weights) or 'none'}",
        ),
        GateCheck(
            "fresh_load",
            terms.loads_afresh is not False,
            None,
            None,
            _FRESH_LOAD_NOTES[terms.loads_afresh],
        ),
    ]
    # Scorers may hide weights that are not finite behind the baseline's order.
    if not count or bad_weights:
        return GateReport(tuple(checks))
    run = _run(challenger, lessons)
    bad_scores = sum(not np.isfinite(row).all() for row in run.scores)
    note = f"in {bad_scores} of {len(lessons)} sessions it gives scores that are not finite"
    checks.append(GateCheck("scores", not bad_scores, float(bad_scores), 0.0, note))
    if bad_scores:
        return GateReport(tuple(checks))
    compared = _compare(run, lessons, replace(terms, crossed=others), rng)
    return replace(compared, checks=(*checks, *compared.checks))


def canary_ndcg(model: Model, canary: Sequence[TrainingExample]) -> float | None:
    """Return the mean NDCG@10 of a model over the sessions that tell orders apart."""
    lessons = [lesson for lesson in canary if _tells_orders_apart(lesson)]
    return float(np.mean(_run(model, lessons).ndcgs)) if lessons else None


@dataclass(frozen=True, slots=True)
class _Run:
    """The scores of a model in each session, and their NDCG@10."""

    kind: str
    scores: list[Floats]
    ndcgs: Floats


def _run(model: Model, lessons: Sequence[TrainingExample]) -> _Run:
    # An overflow shows in the result.
    with np.errstate(all="ignore"):
        scores = [np.asarray(model.score(lesson.query)) for lesson in lessons]
    return _Run(model.kind, scores, _ndcgs(scores, lessons))


def _compare(
    ours: _Run, lessons: Sequence[TrainingExample], terms: Terms, rng: np.random.Generator
) -> GateReport:
    """Compare a challenger with the baseline, the incumbent and the best stored model."""
    baseline = _baseline(lessons, terms)
    incumbent = None if terms.incumbent is None else _run(terms.incumbent, lessons)
    no_canary = "there are no canary sessions yet"

    with np.errstate(over="ignore"):
        variance = _mean(np.array([np.var(row) for row in ours.scores]))
    is_sound = variance is None or LEAST_VARIANCE < variance < math.inf
    note = f"its scores within a session have a variance of {variance or 0.0:.3g}"
    variance = variance if variance is not None and math.isfinite(variance) else None
    note = note if lessons else no_canary
    checks = [GateCheck("variance", is_sound, variance, LEAST_VARIANCE, note)]

    overlap = None if incumbent is None else _overlap(ours.scores, incumbent.scores)
    is_kept, note = True, "there are no first places to keep"
    if incumbent is not None and overlap is not None:
        is_meant = terms.after_reset or incumbent.kind != ours.kind
        is_kept = is_meant or overlap >= LEAST_OVERLAP - _ROUNDING
        wanted = "it is meant to differ" if is_meant else f"{LEAST_OVERLAP:.0%} are asked"
        note = f"it keeps {overlap:.0%} of the first {TOP_PLACES} places; {wanted}"
    checks.append(GateCheck("overlap", is_kept, overlap, LEAST_OVERLAP, note))

    delta = _mean(ours.ndcgs - (baseline if incumbent is None else incumbent.ndcgs))
    moves = f"its NDCG@{PLACES} moves by {delta or 0.0:+.3f}; {-LARGEST_DROP} is the most it may"
    is_level = delta is None or delta >= -LARGEST_DROP - _ROUNDING
    note = no_canary if delta is None else moves
    checks.append(GateCheck("drop", is_level, delta, -LARGEST_DROP, note))

    others = [lesson for lesson, _ in terms.crossed]
    crossed = _ndcgs([scores for _, scores in terms.crossed], others) - _baseline(others, terms)
    margins = np.concatenate([ours.ndcgs - baseline, crossed])
    mean = float(margins.mean())
    note = (
        f"its NDCG@{PLACES} is {mean:+.3f} against the baseline on {len(margins)} sessions it"
        f" did not learn from; {-BASELINE_TOLERANCE} is allowed"
    )
    is_level = mean >= -BASELINE_TOLERANCE - _ROUNDING
    checks.append(GateCheck("baseline", is_level, mean, -BASELINE_TOLERANCE, note))

    best = None if terms.best_kept is None else ours.ndcgs - _run(terms.best_kept, lessons).ndcgs
    checks.append(_check_best(best, rng))
    return GateReport(
        tuple(checks),
        canary_ndcg=_mean(ours.ndcgs),
        canary_ndcg_delta=delta,
        canary_score_variance=variance,
        canary_topk_churn=None if overlap is None else 1.0 - overlap,
        canary_best_delta=None if best is None else _mean(best),
    )


def _check_best(differences: Floats | None, rng: np.random.Generator) -> GateCheck:
    if differences is None or not len(differences):
        note = "there is nothing to compare yet"
        return GateCheck("best_kept", True, None, -BEST_TOLERANCE, note)
    # The interval cuts both tails alike; only its upper end matters.
    interval = bootstrap_interval(differences, rng, level=2.0 * REFUSAL_CONFIDENCE - 1.0)
    note = (
        f"its NDCG@{PLACES} is {interval.mean:+.3f} against the best kept model, at best "
        f"{interval.high:+.3f} with {REFUSAL_CONFIDENCE:.0%} confidence; {-BEST_TOLERANCE}"
        " is allowed"
    )
    is_level = interval.high >= -BEST_TOLERANCE - _ROUNDING
    return GateCheck("best_kept", is_level, interval.high, -BEST_TOLERANCE, note)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _tells_orders_apart(lesson: TrainingExample) -> bool:
    """Return whether some judged candidates helped more than others."""
    gains = np.maximum(lesson.labels[_judged(lesson)], 0.0)
    return len(gains) > 0 and bool(np.ptp(gains) > 0.0)


def _judged(lesson: TrainingExample) -> Rows:
    """Return the judged candidates; the others are not compared."""
    return np.flatnonzero(lesson.weights >= _JUDGED_WEIGHT)


def _order(scores: Floats) -> Rows:
    """Return the indices of the candidates, best first; equal ones keep their order."""
    return np.argsort(-scores, kind="stable")


def _baseline(lessons: Sequence[TrainingExample], terms: Terms) -> Floats:
    """Return the NDCG@10 of the baseline in each session."""
    return _ndcgs([lesson.query.features[:, terms.baseline] for lesson in lessons], lessons)


def _ndcgs(scores: Sequence[Floats], lessons: Sequence[TrainingExample]) -> Floats:
    """Return the NDCG@10 of the judged candidates of each session."""
    ndcgs = []
    for row, lesson in zip(scores, lessons, strict=True):
        judged = _judged(lesson)
        labels: dict[Hashable, float] = dict(enumerate(lesson.labels[judged].tolist()))
        ndcgs.append(ndcg_at(_order(row[judged]).tolist(), labels, PLACES))
    return np.array(ndcgs, np.float64)


def _overlap(ours: Sequence[Floats], theirs: Sequence[Floats]) -> float | None:
    """Return the share of common first places, in sessions with more candidates than those."""
    shares = [
        len(np.intersect1d(_order(left)[:TOP_PLACES], _order(right)[:TOP_PLACES])) / TOP_PLACES
        for left, right in zip(ours, theirs, strict=True)
        if len(left) > TOP_PLACES
    ]
    return float(np.mean(shares)) if shares else None


# The fresh-load gate runs `python -m meritory.model.canary PATH` with this many candidates.
_CANDIDATES = 8


def main(path: str) -> int:
    """Return 0 when a fresh process can load the model and its scores are finite and differ."""
    try:
        model = restored(read(Path(path)))
    except MeritoryError:
        return 1
    drawn = np.random.default_rng(1).standard_normal((_CANDIDATES, len(FEATURES)))
    scores = model.score(RankingQuery(features=drawn))
    return 0 if np.isfinite(scores).all() and np.ptp(scores) > 0.0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
