"""The influence of the predictor: comparisons in, alpha out. Pure.

Alpha is the baseline's weight in the fusion; 1 leaves the predictor without influence. Both orders
of every judged session are on record as they were served, so every weight of the fusion can be
replayed on it. Trust is distributed over these weights: the baseline starts with most of it, and
each session moves some of it to the weights that would have ranked better, as in Hedge (Freund and
Schapire, 1997). The served alpha is the mean by trust, so one lucky session changes little. Hedge's
bound on the loss does not hold here: only the latest sessions count, and only after checks. The
tests measure the loss of an equal or a worse order.

Meaningless labels would move trust too. So nothing counts until the labels are valid: until helpful
memories are more relevant than chance, by an order that does not depend on labels (see
history_proof.py). A weight must also be ahead in the mean log rank of helpful memories, which looks
beyond rank 10.
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
# The number of latest comparisons that count, and the least number.
RECORD_SESSIONS = 60
MIN_RECORD = 5
# How fast trust moves, per NDCG@10 gained in all.
TRUST_RATE = 10.0
# No session counts for more than this.
LARGEST_MARGIN = 0.3
# The baseline's initial share of trust, and the share above which it is served alone.
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
        """Return the margins of the last sessions."""
        return Margins(self.ndcg[-count:], self.log_rank[-count:])


def no_margins() -> Margins:
    """Return margins of no session."""
    nothing = np.empty((0, len(ALPHAS)))
    return Margins(nothing, nothing)


@dataclass(frozen=True, slots=True)
class Weighing:
    """The record of one alpha."""

    alpha: float
    session_count: int
    # Means over the sessions, and the distance of the first from 0 in standard errors.
    ndcg_margin: float
    ndcg_errors: float
    log_rank_margin: float
    # Its share of all trust; the rest is the baseline's.
    trust: float = 0.0


@dataclass(frozen=True, slots=True)
class InfluenceState:
    """The influence of the predictor so far."""

    success_rate: float = START_RATE
    # The alpha of the last record.
    earned_alpha: float = 1.0
    # Judged sessions; since the last drift, those with different orders, and those won.
    judged: int = 0
    non_ties: int = 0
    wins: int = 0
    # The number of judged sessions when cold start ended; None before that.
    active_since: int | None = None
    low_streak: int = 0
    drift_resets: int = 0
    # The number of judged sessions before another reset.
    calm_until: int = 0

    @property
    def is_cold(self) -> bool:
        """Whether the predictor has no influence yet, or lost it by drift."""
        return self.active_since is None


@dataclass(frozen=True, slots=True)
class ComparisonOutcome:
    """How the two orders of one session compare."""

    predictor_ndcg: float
    baseline_ndcg: float
    # The gain of the fusion by alpha.
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
    """Compare both orders of the labelled candidates with their labels; None without a gain."""
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
    """Return NDCG@10 of an order, and the negative mean log rank of helpful memories."""
    seen = np.where(places <= DEPTH, gains / np.log2(places + 1.0), 0.0).sum()
    best = np.sort(gains)[::-1][:DEPTH]
    ideal = float((best / np.log2(np.arange(len(best)) + 2.0)).sum())
    return float(seen) / ideal, -float(gains @ np.log(places) / gains.sum())


def weigh(record: Margins, labels: HistoryProof) -> tuple[Weighing, ...]:
    """Return the record of every alpha; trust is 0 unless the labels are valid."""
    latest = record.latest(RECORD_SESSIONS)
    count = len(latest.ndcg)
    mean, errors = _errors(latest.ndcg)
    log_rank = latest.log_rank.mean(axis=0) if count else np.zeros(len(ALPHAS))
    trust = np.zeros(len(ALPHAS))
    if labels.is_valid and count >= MIN_RECORD:
        gained = np.clip(latest.ndcg, -LARGEST_MARGIN, LARGEST_MARGIN).sum(axis=0)
        first = (1.0 - BASELINE_TRUST) / len(ALPHAS)
        raised = first * np.exp(TRUST_RATE / labels.strictness * gained)
        weights = np.where(log_rank > 0.0, raised, 0.0)
        trust = np.asarray(weights / (weights.sum() + BASELINE_TRUST))
    columns = (column.tolist() for column in (mean, errors, log_rank, trust))
    return tuple(
        Weighing(alpha, count, *numbers) for alpha, *numbers in zip(ALPHAS, *columns, strict=True)
    )


def _errors(margins: Floats) -> tuple[Floats, Floats]:
    """Return the mean of each column, and its distance from 0 in standard errors."""
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
    state: InfluenceState, won: float | None, drift_window: int
) -> tuple[InfluenceState, bool]:
    """Return the state after one more comparison, and whether it drifted.

    `won` is None for a comparison that does not count. A drift removes all influence: the success
    rate and cold start begin again.
    """
    if won is None:
        return state, False
    rate = (1.0 - EMA_WEIGHT) * state.success_rate + EMA_WEIGHT * won
    is_tie = won == TIE
    after = replace(
        state,
        success_rate=rate,
        judged=state.judged + 1,
        non_ties=state.non_ties + (not is_tie),
        wins=state.wins + (won > TIE),
        low_streak=state.low_streak + 1 if rate < DRIFT_RATE else 0,
    )
    if after.low_streak < drift_window or after.judged < state.calm_until:
        return after, False
    return (
        replace(
            after,
            success_rate=START_RATE,
            earned_alpha=1.0,
            active_since=None,
            # Earlier wins no longer count.
            non_ties=0,
            wins=0,
            low_streak=0,
            drift_resets=state.drift_resets + 1,
            calm_until=after.judged + drift_window,
        ),
        True,
    )


def weighed(
    state: InfluenceState,
    weighings: Sequence[Weighing],
    rule: Rule,
    min_judged: int = MIN_JUDGED,
) -> InfluenceState:
    """Return the state with the alpha that the evidence gives; it may end cold start."""
    alpha = 1.0 - state.success_rate if rule == "seed" else earned(weighings)
    if state.is_cold and not has_enough_sessions(state, min_judged):
        return replace(state, earned_alpha=1.0)
    since = state.active_since
    if since is None and alpha < 1.0:
        since = state.judged
    return replace(state, earned_alpha=alpha, active_since=since)


def has_enough_sessions(state: InfluenceState, min_judged: int = MIN_JUDGED) -> bool:
    """Return whether there are enough judged sessions, and enough with different orders."""
    return state.judged >= min_judged and state.non_ties >= MIN_NON_TIES


def missing(state: InfluenceState, min_judged: int = MIN_JUDGED) -> Mapping[str, int]:
    """Return the counts that cold start still needs; empty when only the evidence is missing."""
    found = {
        "judged_sessions": min_judged - state.judged,
        "non_ties": MIN_NON_TIES - state.non_ties,
    }
    return {name: count for name, count in found.items() if count > 0}
