"""What a newly trained model must pass on sessions it has never learned from before it may serve.

A canary session is a lesson; the baseline's order of it is the recorded composite's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from meritory.domain.errors import MeritoryError
from meritory.model.base import Floats, Model, RankingQuery, Rows, TrainingExample
from meritory.model.checkpoint import read, restored
from meritory.rank.features import FEATURES
from meritory.rank.metrics import bootstrap_interval, ndcg_at

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
_COMPOSITE: Final = FEATURES.index("composite")
# Sums of the same numbers in another order differ by less.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a challenger is measured against."""

    # Of its training, in order.
    losses: Sequence[float]
    # Whether its file could be loaded and used in a fresh process; None where there is no file.
    loads_afresh: bool | None
    # The model that serves now; None before the first one.
    incumbent: Model | None = None
    # The best of the models on the shelf, the incumbent among them.
    best_kept: Model | None = None
    # Whether it was trained to break with what the incumbent had learned.
    after_reset: bool = False
    # Other sessions, each with the scores of a model that learned the same way but never saw it.
    crossed: Sequence[tuple[TrainingExample, Floats]] = ()


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One thing that was asked of a challenger."""

    name: str
    passed: bool
    # What was measured, and the limit it was held against; None where there is no number.
    value: float | None
    limit: float | None
    # In words: what was found.
    note: str


@dataclass(frozen=True, slots=True)
class GateReport:
    """All that was asked, and what the training log keeps; a figure is None if never measured."""

    checks: tuple[GateCheck, ...]
    # The mean NDCG@10, and by how much it is above the incumbent's, or else the baseline's.
    canary_ndcg: float | None = None
    canary_ndcg_delta: float | None = None
    # Of the scores within a session, on average.
    canary_score_variance: float | None = None
    # The share of the incumbent's first five that are not among the challenger's.
    canary_topk_churn: float | None = None
    # By how much it is above the best model kept.
    canary_best_delta: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the challenger may serve."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it may not, a sentence for each check that failed."""
        return tuple(check.note for check in self.checks if not check.passed)


def examine(
    challenger: Model, canary: Sequence[TrainingExample], terms: Terms, rng: np.random.Generator
) -> GateReport:
    """Examine a challenger on sessions it never learned from.

    The canaries are scored by the challenger itself, all others by models that learned the same
    way from the other sessions. On both together its mean NDCG@10 must not be below the
    baseline's by more than the tolerance. Canaries alone are few, and a short stream would lose
    half of its models to their noise.

    Against the best model kept only the canaries count, for that model has seen the others. It is
    refused when the difference lies below minus the tolerance in 80 % of the resamples.
    """
    lessons = [lesson for lesson in canary if _tells_orders_apart(lesson)]
    others = [pair for pair in terms.crossed if _tells_orders_apart(pair[0])]
    sane = [
        _enough(len(lessons) + len(others)),
        _finite_losses(terms.losses),
        _finite_weights(challenger),
        _fresh_load(terms.loads_afresh),
    ]
    # Scorers may hide weights that are not finite behind the baseline's order.
    if not (lessons or others) or not sane[2].passed:
        return GateReport(tuple(sane))
    run = _run(challenger, lessons)
    sane.append(_finite_scores(run.scores))
    if not sane[-1].passed:
        return GateReport(tuple(sane))
    compared = _compared(run, lessons, replace(terms, crossed=others), rng)
    return replace(compared, checks=(*sane, *compared.checks))


def canary_ndcg(model: Model, canary: Sequence[TrainingExample]) -> float | None:
    """The mean NDCG@10 of a model over the sessions that tell orders apart; None without any."""
    lessons = [lesson for lesson in canary if _tells_orders_apart(lesson)]
    return float(np.mean(_run(model, lessons).ndcgs)) if lessons else None


@dataclass(frozen=True, slots=True)
class _Run:
    """What a ranking did in each session."""

    # The kind of scorer.
    kind: str
    scores: list[Floats]
    ndcgs: Floats


def _run(model: Model, lessons: Sequence[TrainingExample]) -> _Run:
    # What overflows is found by its result.
    with np.errstate(all="ignore"):
        scores = [np.asarray(model.score(lesson.query)) for lesson in lessons]
    return _Run(model.kind, scores, _ndcgs(scores, lessons))


def _compared(
    ours: _Run, lessons: Sequence[TrainingExample], terms: Terms, rng: np.random.Generator
) -> GateReport:
    composites = [lesson.query.features[:, _COMPOSITE] for lesson in lessons]
    baseline = _ndcgs(composites, lessons)
    ahead = np.concatenate([ours.ndcgs - baseline, _crossed_margins(terms.crossed)])
    incumbent = None if terms.incumbent is None else _run(terms.incumbent, lessons)
    best = None if terms.best_kept is None else _run(terms.best_kept, lessons)
    variance = _varied_scores(ours.scores)
    overlap = _kept_top(ours, incumbent, terms.after_reset)
    drop = _no_drop(ours.ndcgs - (baseline if incumbent is None else incumbent.ndcgs))
    return GateReport(
        (
            variance,
            overlap,
            drop,
            _not_below_baseline(ahead),
            _not_below_best(None if best is None else ours.ndcgs - best.ndcgs, rng),
        ),
        canary_ndcg=_mean(ours.ndcgs),
        canary_ndcg_delta=drop.value,
        canary_score_variance=variance.value,
        canary_topk_churn=None if overlap.value is None else 1.0 - overlap.value,
        canary_best_delta=None if best is None else _mean(ours.ndcgs - best.ndcgs),
    )


def _enough(count: int) -> GateCheck:
    note = f"{count} sessions can tell a good order from a bad one"
    if count < LEAST_SESSIONS:
        note += f", {LEAST_SESSIONS} are needed"
    return GateCheck("canary", count >= LEAST_SESSIONS, float(count), float(LEAST_SESSIONS), note)


def _finite_losses(losses: Sequence[float]) -> GateCheck:
    bad_count = len(losses) - int(np.isfinite(losses).sum())
    note = f"{bad_count} of {len(losses)} losses in training are not finite"
    # No loss at all means that nothing was trained.
    return GateCheck("losses", len(losses) > 0 and not bad_count, float(bad_count), 0.0, note)


def _finite_weights(challenger: Model) -> GateCheck:
    bad = [name for name, value in challenger.params.items() if not np.isfinite(value).all()]
    note = f"weights that are not finite: {', '.join(bad) or 'none'}"
    return GateCheck("weights", not bad, float(len(bad)), 0.0, note)


def _fresh_load(loads_afresh: bool | None) -> GateCheck:
    notes = {
        None: "loading it in a fresh process was not asked for",
        True: "it loads and scores in a fresh process",
        False: "it does not load or score in a fresh process",
    }
    return GateCheck("fresh_load", loads_afresh is not False, None, None, notes[loads_afresh])


def _finite_scores(scores: Sequence[Floats]) -> GateCheck:
    bad_count = sum(not np.isfinite(row).all() for row in scores)
    note = f"in {bad_count} of {len(scores)} sessions it gives scores that are not finite"
    return GateCheck("scores", not bad_count, float(bad_count), 0.0, note)


def _varied_scores(scores: Sequence[Floats]) -> GateCheck:
    if not scores:
        return GateCheck("variance", True, None, LEAST_VARIANCE, "there are no canary sessions yet")
    with np.errstate(over="ignore"):
        variance = float(np.mean([np.var(row) for row in scores]))
    note = f"its scores within a session have a variance of {variance:.3g}"
    is_sound = LEAST_VARIANCE < variance < math.inf
    value = variance if math.isfinite(variance) else None
    return GateCheck("variance", is_sound, value, LEAST_VARIANCE, note)


def _kept_top(ours: _Run, incumbent: _Run | None, after_reset: bool) -> GateCheck:
    overlap = None if incumbent is None else _overlap(ours.scores, incumbent.scores)
    if incumbent is None or overlap is None:
        return GateCheck("overlap", True, None, LEAST_OVERLAP, "there are no first places to keep")
    note = f"it keeps {overlap:.0%} of the first {TOP_PLACES} places"
    if after_reset or incumbent.kind != ours.kind:
        return GateCheck("overlap", True, overlap, LEAST_OVERLAP, f"{note}; it is meant to differ")
    is_kept = overlap >= LEAST_OVERLAP - _ROUNDING
    return GateCheck(
        "overlap", is_kept, overlap, LEAST_OVERLAP, f"{note}; {LEAST_OVERLAP:.0%} are asked"
    )


def _no_drop(differences: Floats) -> GateCheck:
    if not len(differences):
        return GateCheck("drop", True, None, -LARGEST_DROP, "there are no canary sessions yet")
    delta = float(np.mean(differences))
    note = f"its NDCG@{PLACES} moves by {delta:+.3f}; {-LARGEST_DROP} is the most it may"
    return GateCheck("drop", delta >= -LARGEST_DROP - _ROUNDING, delta, -LARGEST_DROP, note)


def _not_below_baseline(differences: Floats) -> GateCheck:
    mean = float(differences.mean())
    note = (
        f"its NDCG@{PLACES} is {mean:+.3f} against the baseline on {len(differences)} sessions it"
        f" did not learn from; {-BASELINE_TOLERANCE} is allowed"
    )
    is_level = mean >= -BASELINE_TOLERANCE - _ROUNDING
    return GateCheck("baseline", is_level, mean, -BASELINE_TOLERANCE, note)


def _crossed_margins(crossed: Sequence[tuple[TrainingExample, Floats]]) -> Floats:
    """By how much models that never saw each session rank it better than the baseline."""
    lessons = [lesson for lesson, _ in crossed]
    composites = [lesson.query.features[:, _COMPOSITE] for lesson in lessons]
    return _ndcgs([scores for _, scores in crossed], lessons) - _ndcgs(composites, lessons)


def _not_below_best(differences: Floats | None, rng: np.random.Generator) -> GateCheck:
    if differences is None or not len(differences):
        return GateCheck(
            "best_kept", True, None, -BEST_TOLERANCE, "there is nothing to compare yet"
        )
    # The interval cuts both tails alike; only its upper end is asked for.
    found = bootstrap_interval(differences, rng, level=2.0 * REFUSAL_CONFIDENCE - 1.0)
    note = (
        f"its NDCG@{PLACES} is {found.mean:+.3f} against the best kept model, at best"
        f" {found.high:+.3f} with {REFUSAL_CONFIDENCE:.0%} confidence; {-BEST_TOLERANCE} is allowed"
    )
    is_level = found.high >= -BEST_TOLERANCE - _ROUNDING
    return GateCheck("best_kept", is_level, found.high, -BEST_TOLERANCE, note)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _tells_orders_apart(lesson: TrainingExample) -> bool:
    """Whether the judged candidates helped, and not all of them alike."""
    gains = np.maximum(lesson.labels[_judged(lesson)], 0.0)
    return len(gains) > 0 and bool(np.ptp(gains) > 0.0)


def _judged(lesson: TrainingExample) -> Rows:
    """Return the judged candidates; the others are not compared."""
    return np.flatnonzero(lesson.weights >= _JUDGED_WEIGHT)


def _order(scores: Floats) -> Rows:
    """The places of the candidates, the best first, those level as they stand."""
    return np.argsort(-scores, kind="stable")


def _ndcgs(scores: Sequence[Floats], lessons: Sequence[TrainingExample]) -> Floats:
    """The NDCG@10 of the judged candidates of each session."""
    found = []
    for row, lesson in zip(scores, lessons, strict=True):
        judged = _judged(lesson)
        labels: dict[Hashable, float] = dict(enumerate(lesson.labels[judged].tolist()))
        found.append(ndcg_at(_order(row[judged]).tolist(), labels, PLACES))
    return np.array(found, np.float64)


def _overlap(ours: Sequence[Floats], theirs: Sequence[Floats]) -> float | None:
    """The share of the first five places in common, where there are more than five candidates."""
    shares = [
        len(np.intersect1d(_order(left)[:TOP_PLACES], _order(right)[:TOP_PLACES])) / TOP_PLACES
        for left, right in zip(ours, theirs, strict=True)
        if len(left) > TOP_PLACES
    ]
    return float(np.mean(shares)) if shares else None


# The fresh-load gate runs `python -m meritory.model.gates PATH` with this many candidates.
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
