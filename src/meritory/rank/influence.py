"""The influence of the predictor: comparisons in, alpha out; and how far history counts.

Alpha is the baseline's weight in the fusion; 1 leaves the predictor without influence. Both orders
of every judged session are on record as they were served, so every weight of the fusion can be
replayed on it. Trust is distributed over these weights: the baseline starts with most of it, and
each session moves some of it to the weights that would have ranked better, as in Hedge (Freund and
Schapire, 1997). The served alpha is the mean by trust, so one lucky session changes little. Hedge's
bound on the loss does not hold here: only the latest sessions count, and only after checks. The
tests measure the loss of an equal or a worse order.

A weight must also be ahead in the mean log rank of helpful memories, which looks beyond rank 10.

Meaningless labels would move trust too. `prove_history` therefore asks two questions first:

1. *Are the labels valid?* What helped must be more relevant to the session than chance, by an
   order that no label ever touched: plain relevance. Labels drawn by lot, and labels that always
   favour the same memories, fail here, and then nothing is learned from them. A check by the
   labels alone could not notice either.
2. *Does history help?* The composite with history must rank what helped better than relevance
   alone, by standard errors over the same sessions.

A bias that follows relevance (the first place is always rated well, everything shown is) passes
the first question and fails the second: no order can beat relevance on labels that copy it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.policy import RRF_K
from meritory.domain.predictor import TIE, TaughtSession
from meritory.rank import composite
from meritory.rank.composite import NO_TRUST, Trust
from meritory.rank.features import FEATURES
from meritory.rank.fusion import ranks, rrf
from meritory.rank.labels import USEFUL_LABEL

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
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
_TINY = 1e-12
_DIGITS = 3

# The latest sessions that count.
PROOF_SESSIONS = 60
MIN_SESSIONS = 4
# Standard errors by which relevance must beat chance before labels count at all.
VALID_ERRORS = 1.5
# Standard errors by which history must beat relevance in log rank: to count half, and to count
# in full; in NDCG half as many are asked for.
PART_ERRORS = 0.7
FULL_ERRORS = 1.5
NDCG_SHARE = 0.5
# Labels of shown memories alone say less, and showing shaped them: twice the proof.
PARTIAL_FACTOR = 2.0
LEVELS = (0.0, 0.5, 1.0)
# As if half a session had a margin of this size: a few equal margins are not certain.
_PRIOR_VARIANCE = 0.25
_RELEVANCE = FEATURES.index("relevance")
_RECENCY = FEATURES.index("recency")
_USEFULNESS = FEATURES.index("usefulness")


@dataclass(frozen=True, slots=True)
class HistoryProof:
    """The evidence about the labels and about history."""

    trust: Trust = NO_TRUST
    session_count: int = 0
    # How many standard errors relevance is above chance on the labels.
    validity: float = 0.0
    # Whether most sessions have labels of shown memories alone.
    is_partial: bool = False
    # The gain in NDCG@10 over relevance alone of what is trusted, and of history in full.
    margin: float = 0.0
    full_margin: float = 0.0

    @property
    def strictness(self) -> float:
        """Return the factor on the standard errors that a proof takes."""
        return PARTIAL_FACTOR if self.is_partial else 1.0

    @property
    def is_valid(self) -> bool:
        """Return whether labels agree with relevance more than chance would."""
        return self.session_count >= MIN_SESSIONS and self.validity >= VALID_ERRORS


@dataclass(frozen=True, slots=True)
class Margins:
    """By how much the fusion beat the baseline: a row per session, a column per alpha."""

    ndcg: Floats
    log_rank: Floats

    def latest(self, count: int) -> Margins:
        """Return the margins of the last sessions."""
        return Margins(self.ndcg[-count:], self.log_rank[-count:])


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
    values = np.nan_to_num(np.asarray(labels, np.float64), nan=0.0)
    if not (values > 0.0).any():
        return None
    given = np.arange(len(values))
    # Among these candidates alone; equal ones in the order given.
    baseline = ranks(-np.asarray(baseline_ranks, np.float64), given)
    predictor = ranks(-np.asarray(predictor_ranks, np.float64), given)
    base = _quality(baseline, values)
    fused = [
        _quality(ranks(rrf(baseline, predictor, alpha, k), baseline), values) for alpha in ALPHAS
    ]
    return ComparisonOutcome(
        predictor_ndcg=_quality(predictor, values)[0],
        baseline_ndcg=base[0],
        ndcg=tuple(ndcg - base[0] for ndcg, _ in fused),
        log_rank=tuple(log_rank - base[1] for _, log_rank in fused),
    )


def _quality(places: Rows, values: Floats) -> tuple[float, float]:
    """Return NDCG@10 of an order, and the negative mean log rank of helpful memories.

    A memory that misled counts against the order as much as a helpful one counts for it.
    """
    seen = np.where(places <= DEPTH, values / np.log2(places + 1.0), 0.0).sum()
    sizes = np.abs(values)
    largest = np.sort(sizes)[::-1][:DEPTH]
    ideal = float((largest / np.log2(np.arange(len(largest)) + 2.0)).sum())
    return float(seen) / ideal, -float(values @ np.log(places) / sizes.sum())


def weigh(record: Margins, labels: HistoryProof) -> tuple[Weighing, ...]:
    """Return the record of every alpha; trust is 0 unless the labels are valid."""
    latest = record.latest(RECORD_SESSIONS)
    count = len(latest.ndcg)
    mean, errors, log_rank, trust = np.zeros((4, len(ALPHAS)))
    if count:
        log_rank = latest.log_rank.mean(axis=0)
    if count > 1:
        mean = latest.ndcg.mean(axis=0)
        error = latest.ndcg.std(axis=0, ddof=1) / np.sqrt(count)
        errors = np.where(error > _TINY, mean / np.maximum(error, _TINY), 0.0)
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


def earned(weighings: Sequence[Weighing]) -> float:
    """Return the mean alpha by trust; 1 while the baseline has half of it or more."""
    trust = sum(weighing.trust for weighing in weighings)
    if 1.0 - trust >= BASELINE_ALONE:
        return 1.0
    predictor = sum(weighing.trust * (1.0 - weighing.alpha) for weighing in weighings)
    return round(1.0 - predictor, _DIGITS)


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
    if state.is_cold and missing(state, min_judged):
        return replace(state, earned_alpha=1.0)
    since = state.active_since
    if since is None and alpha < 1.0:
        since = state.judged
    return replace(state, earned_alpha=alpha, active_since=since)


def missing(state: InfluenceState, min_judged: int = MIN_JUDGED) -> Mapping[str, int]:
    """Return the counts that cold start still needs; empty when only the evidence is missing."""
    found = {
        "judged_sessions": min_judged - state.judged,
        "non_ties": MIN_NON_TIES - state.non_ties,
    }
    return {name: count for name, count in found.items() if count > 0}


def comparable(labels: Floats, shown: Flags) -> Flags:
    """Return the candidates of a session that two orders may be compared by.

    Where only shown memories could be labelled as useful (ratings, words of a reply), labels say
    nothing about the others: comparing both kinds would reward whatever was shown.
    """
    known = np.isfinite(labels)
    with np.errstate(invalid="ignore"):
        reaches_beyond = bool((known & ~shown & (labels >= USEFUL_LABEL)).any())
    return known if reaches_beyond else known & shown


def prove_history(sessions: Sequence[TaughtSession]) -> HistoryProof:
    """Return how far history may count, from the latest sessions, oldest first."""
    validity: list[float] = []
    partial: list[bool] = []
    margins: list[list[tuple[float, float]]] = []
    grid = [Trust(*pair) for pair in product(LEVELS, LEVELS) if any(pair)]

    def quality(table: Floats, gains: Floats, trust: Trust) -> tuple[float, float]:
        # The composite of recorded candidates, without the parts that all share.
        served = (
            composite.WEIGHT_RELEVANCE * table[:, _RELEVANCE]
            + trust.recency * composite.WEIGHT_RECENCY * table[:, _RECENCY]
            + trust.usefulness * composite.WEIGHT_USEFULNESS * table[:, _USEFULNESS]
        )
        return _tied_quality(np.asarray(served), gains)

    for session in sessions[-PROOF_SESSIONS:]:
        chosen = comparable(session.labels, session.was_injected)
        gains = np.maximum(session.labels[chosen], 0.0)
        table = session.features[chosen]
        # A single label, or equal labels, cannot compare two orders.
        if len(gains) < 2 or np.ptp(gains) <= 0.0:
            continue
        partial.append(bool(session.was_injected[chosen].all()))
        relevance = quality(table, gains, NO_TRUST)
        validity.append(relevance[1] + float(np.log(np.arange(1, len(gains) + 1)).mean()))
        tried = [quality(table, gains, trust) for trust in grid]
        margins.append([(ndcg - relevance[0], rank - relevance[1]) for ndcg, rank in tried])
    if not margins:
        return HistoryProof()
    table = np.array(margins)
    proof = HistoryProof(
        session_count=len(validity),
        validity=errors_above_zero(np.array(validity)),
        is_partial=2 * sum(partial) > len(partial),
        full_margin=float(table[:, grid.index(Trust(1.0, 1.0)), 0].mean()),
    )
    if not proof.is_valid:
        return proof
    # The most certain of the proved levels of trust.
    best, margin, highest = NO_TRUST, 0.0, -np.inf
    for index, trust in enumerate(grid):
        ndcg, log_rank = table[:, index, 0], table[:, index, 1]
        is_full = max(trust.recency, trust.usefulness) == max(LEVELS)
        needed = proof.strictness * (FULL_ERRORS if is_full else PART_ERRORS)
        if errors_above_zero(log_rank) < needed or errors_above_zero(ndcg) < NDCG_SHARE * needed:
            continue
        bound = float(ndcg.mean() - ndcg.std() / np.sqrt(len(ndcg)))
        if bound > highest:
            best, margin, highest = trust, float(ndcg.mean()), bound
    return replace(proof, trust=best, margin=margin)


def prove_labels(searches: Sequence[TaughtSession], column: int) -> HistoryProof:
    """Return whether the labels of searches agree with the formula's score, in this column.

    Searches have no history to prove: their formula uses none.
    """
    validity: list[float] = []
    partial: list[bool] = []
    for one in searches[-PROOF_SESSIONS:]:
        chosen = comparable(one.labels, one.was_injected)
        gains = np.maximum(one.labels[chosen], 0.0)
        if len(gains) < 2 or np.ptp(gains) <= 0.0:
            continue
        partial.append(bool(one.was_injected[chosen].all()))
        _, log_rank = _tied_quality(one.features[chosen, column], gains)
        validity.append(log_rank + float(np.log(np.arange(1, len(gains) + 1)).mean()))
    return HistoryProof(
        session_count=len(validity),
        validity=errors_above_zero(np.array(validity)) if validity else 0.0,
        is_partial=2 * sum(partial) > len(partial),
    )


def errors_above_zero(margins: Floats) -> float:
    """Return by how many standard errors the mean lies above 0; few margins count for less."""
    count = len(margins)
    if count < MIN_SESSIONS - 1:
        return 0.0
    variance = (float(margins.var(ddof=1)) * (count - 1) + _PRIOR_VARIANCE) / count
    return float(margins.mean()) / float(np.sqrt(variance / count))


def _tied_quality(order: Floats, gains: Floats) -> tuple[float, float]:
    """Return NDCG@10 and the negative mean log rank of helpful memories.

    Candidates with equal scores share the mean of their ranks.
    """
    places = np.arange(1.0, len(order) + 1.0)
    discount = np.where(places <= DEPTH, 1.0 / np.log2(places + 1.0), 0.0)
    _, group, counts = np.unique(-order, return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    seen = gains @ (np.add.reduceat(discount, starts) / counts)[group]
    log_rank = gains @ (np.add.reduceat(np.log(places), starts) / counts)[group]
    ideal = float(np.sort(gains)[::-1] @ discount)
    return float(seen) / ideal, -float(log_rank) / float(gains.sum())
