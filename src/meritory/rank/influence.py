"""How much influence the predictor has earned: comparisons in, alpha out. Pure.

Alpha is the baseline's weight in the fusion; 1 leaves the predictor without influence. Both orders
of every judged session are on record as they were served, so every weight of the fusion can be
replayed on it. Trust is shared out among these weights: the baseline alone has most of it in the
beginning, and each session moves some of it to the weights that would have ranked better, as in
Hedge (Freund and Schapire, 1997). The alpha served is the mean by trust, so one lucky session
changes little. Hedge's bound on the loss does not hold here: only the latest sessions count, and
only after checks. What is lost by an equal or a worse order is measured in the tests.

Labels that mean nothing would move trust all the same. So nothing counts until the labels are
valid: until what helped is more relevant than chance by an order that no label ever touched (see
proof.py). A weight must also be ahead in the mean log rank of what helped, which sees beyond the
tenth place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.policy import RRF_K
from meritory.domain.predictor import TIE
from meritory.rank.fusion import ranks, rrf
from meritory.rank.history_proof import HistoryProof

# -- one session ----------------------------------------------------------------------------


# -- many sessions --------------------------------------------------------------------------


# -- the state ------------------------------------------------------------------------------


Floats = NDArray[np.float64]


Rows = NDArray[np.intp]


Rule = Literal["replay", "seed"]


# The weights that are tried.
ALPHAS = (0.9, 0.75, 0.6, 0.4, 0.2, 0.05)


DEPTH = 10


# A difference this small is a tie.
TIE_MARGIN = 1e-6


START_RATE = 0.5


EMA_WEIGHT = 0.1


# How many of the latest comparisons the record is, and how many it takes.
RECORD_SESSIONS = 60


MIN_RECORD = 5


# How fast trust moves, per NDCG@10 gained in all.
TRUST_RATE = 10.0


# No session counts for more than this.
LARGEST_MARGIN = 0.3


# The baseline's share of trust in the beginning, and the share from which on it is served alone.
BASELINE_TRUST = 0.8


BASELINE_ALONE = 0.5


MIN_JUDGED = 10


MIN_NON_TIES = 5


DRIFT_RATE = 0.3


_FEW = 2


_TINY = 1e-12


_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Margins:
    """By how much the fusion beat the baseline: a row per session, a column per alpha."""

    ndcg: Floats
    log_rank: Floats

    def latest(self, count: int) -> Margins:
        """Of the last sessions."""
        return Margins(self.ndcg[-count:], self.log_rank[-count:])


def no_margins() -> Margins:
    """Nothing was compared yet."""
    nothing = np.empty((0, len(ALPHAS)))
    return Margins(nothing, nothing)


@dataclass(frozen=True, slots=True)
class Weighing:
    """What is known about one alpha."""

    alpha: float
    session_count: int
    # Means over the sessions, and the distance of the first from 0 in standard errors.
    ndcg_margin: float
    ndcg_errors: float
    log_rank_margin: float
    # Its share of all trust; what is left is the baseline's.
    trust: float = 0.0


@dataclass(frozen=True, slots=True)
class InfluenceState:
    """What the predictor has earned so far."""

    success_rate: float = START_RATE
    # What the record earned last.
    earned_alpha: float = 1.0
    # Sessions that count; since the last drift those in which the orders differed, and those won.
    judged: int = 0
    non_ties: int = 0
    wins: int = 0
    # How many sessions were judged when cold start ended; None before that.
    active_since: int | None = None
    low_streak: int = 0
    drift_resets: int = 0
    # No second reset before so many sessions were judged.
    calm_until: int = 0

    @property
    def is_cold(self) -> bool:
        """Whether the predictor has not been heard yet, or lost that again by drift."""
        return self.active_since is None

    @property
    def alpha(self) -> float:
        """The weight that is served: 1 in cold start, then what was earned."""
        if self.active_since is None:
            return 1.0
        return self.earned_alpha


@dataclass(frozen=True, slots=True)
class ComparisonOutcome:
    """How the two orders of one session compare."""

    predictor_ndcg: float
    baseline_ndcg: float
    # By alpha what its fusion would have gained.
    ndcg: tuple[float, ...]
    log_rank: tuple[float, ...]

    @property
    def margin(self) -> float:
        """How much better the predictor's order was."""
        return self.predictor_ndcg - self.baseline_ndcg

    @property
    def won(self) -> float:
        """1 when the predictor won, 0 when it lost, a half for a tie."""
        if abs(self.margin) < TIE_MARGIN:
            return TIE
        return float(self.margin > 0.0)


def compare(
    baseline_ranks: ArrayLike, predictor_ranks: ArrayLike, labels: ArrayLike, k: int = RRF_K
) -> ComparisonOutcome | None:
    """Holds both orders of the labelled candidates against their labels; None without a gain."""
    gains = np.maximum(np.nan_to_num(np.asarray(labels, np.float64), nan=0.0), 0.0)
    if not gains.any():
        return None
    given = np.arange(len(gains))
    # Among these candidates alone; equal ones in the order given.
    baseline = ranks(-np.asarray(baseline_ranks, np.float64), given)
    predictor = ranks(-np.asarray(predictor_ranks, np.float64), given)
    base = _quality(baseline, gains)
    fused = [
        _quality(ranks(rrf(baseline, predictor, alpha, k), baseline), gains) for alpha in ALPHAS
    ]
    return ComparisonOutcome(
        predictor_ndcg=_quality(predictor, gains)[0],
        baseline_ndcg=base[0],
        ndcg=tuple(one[0] - base[0] for one in fused),
        log_rank=tuple(one[1] - base[1] for one in fused),
    )


def _quality(places: Rows, gains: Floats) -> tuple[float, float]:
    """NDCG@10 of an order, and the mean log rank of what helped, the higher the better."""
    seen = np.where(places <= DEPTH, gains / np.log2(places + 1.0), 0.0).sum()
    best = np.sort(gains)[::-1][:DEPTH]
    ideal = float((best / np.log2(np.arange(len(best)) + 2.0)).sum())
    return float(seen) / ideal, -float(gains @ np.log(places) / gains.sum())


def weigh(record: Margins, labels: HistoryProof) -> tuple[Weighing, ...]:
    """Return what the record says about every alpha; none has trust unless labels are valid."""
    told = record.latest(RECORD_SESSIONS)
    count = len(told.ndcg)
    mean, errors = _errors(told.ndcg)
    log_rank = told.log_rank.mean(axis=0) if count else np.zeros(len(ALPHAS))
    is_told = labels.is_valid and count >= MIN_RECORD
    trust = _trust(told, log_rank, labels.strictness) if is_told else np.zeros(len(ALPHAS))
    columns = (column.tolist() for column in (mean, errors, log_rank, trust))
    return tuple(
        Weighing(alpha, count, *numbers) for alpha, *numbers in zip(ALPHAS, *columns, strict=True)
    )


def _trust(told: Margins, log_rank: Floats, strictness: float) -> Floats:
    """Return every alpha's share of trust."""
    gained = np.clip(told.ndcg, -LARGEST_MARGIN, LARGEST_MARGIN).sum(axis=0)
    first = (1.0 - BASELINE_TRUST) / len(ALPHAS)
    weights = np.where(log_rank > 0.0, first * np.exp(TRUST_RATE / strictness * gained), 0.0)
    return np.asarray(weights / (weights.sum() + BASELINE_TRUST))


def _errors(margins: Floats) -> tuple[Floats, Floats]:
    """The mean of each column, and how many standard errors it lies from 0."""
    count = len(margins)
    if count < _FEW:
        return np.zeros(len(ALPHAS)), np.zeros(len(ALPHAS))
    mean = margins.mean(axis=0)
    error = margins.std(axis=0, ddof=1) / np.sqrt(count)
    return mean, np.where(error > _TINY, mean / np.maximum(error, _TINY), 0.0)


def earned(weighings: Sequence[Weighing]) -> float:
    """Return the mean alpha by trust; 1 while the baseline has half of it or more."""
    trust = sum(one.trust for one in weighings)
    if 1.0 - trust >= BASELINE_ALONE:
        return 1.0
    return round(1.0 - sum(one.trust * (1.0 - one.alpha) for one in weighings), _DIGITS)


def judged(
    standing: InfluenceState, won: float | None, drift_window: int
) -> tuple[InfluenceState, bool]:
    """After one more comparison, won being None for one that is left out; says whether it drifted.

    A drift takes all influence away: the rate starts anew, and so does cold start.
    """
    if won is None:
        return standing, False
    rate = (1.0 - EMA_WEIGHT) * standing.success_rate + EMA_WEIGHT * won
    is_tie = won == TIE
    after = replace(
        standing,
        success_rate=rate,
        judged=standing.judged + 1,
        non_ties=standing.non_ties + (not is_tie),
        wins=standing.wins + (won > TIE),
        low_streak=standing.low_streak + 1 if rate < DRIFT_RATE else 0,
    )
    if after.low_streak < drift_window or after.judged < standing.calm_until:
        return after, False
    return (
        replace(
            after,
            success_rate=START_RATE,
            earned_alpha=1.0,
            active_since=None,
            # What it won before says nothing for it now.
            non_ties=0,
            wins=0,
            low_streak=0,
            drift_resets=standing.drift_resets + 1,
            calm_until=after.judged + drift_window,
        ),
        True,
    )


def weighed(
    standing: InfluenceState,
    weighings: Sequence[Weighing],
    rule: Rule,
    min_judged: int = MIN_JUDGED,
) -> InfluenceState:
    """With what the evidence lets the predictor have; cold start ends when something is earned."""
    alpha = 1.0 - standing.success_rate if rule == "seed" else earned(weighings)
    if standing.is_cold and not has_shown_itself(standing, min_judged):
        return replace(standing, earned_alpha=1.0)
    since = standing.active_since
    if since is None and alpha < 1.0:
        since = standing.judged
    return replace(standing, earned_alpha=alpha, active_since=since)


def has_shown_itself(standing: InfluenceState, min_judged: int = MIN_JUDGED) -> bool:
    """Whether there were sessions enough, and enough of them in which the orders differed."""
    return standing.judged >= min_judged and standing.non_ties >= MIN_NON_TIES


def missing(standing: InfluenceState, min_judged: int = MIN_JUDGED) -> Mapping[str, int]:
    """What cold start still waits for, as counts; empty when only the evidence is missing."""
    found = {
        "judged_sessions": min_judged - standing.judged,
        "non_ties": MIN_NON_TIES - standing.non_ties,
    }
    return {name: count for name, count in found.items() if count > 0}
