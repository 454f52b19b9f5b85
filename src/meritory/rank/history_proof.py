"""Whether labels are valid, and how far history has proved that it helps. Pure.

Two questions are asked of the sessions on record, in this order:

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.rank import composite
from meritory.rank.composite import NO_TRUST, Trust
from meritory.rank.features import FEATURES

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

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
DEPTH = 10
# A label from which a memory helped.
USEFUL_LABEL = 0.4
# As if half a session had a margin of this size: a few equal margins are not certain.
_PRIOR_VARIANCE = 0.25
_RELEVANCE = FEATURES.index("relevance")
_RECENCY = FEATURES.index("recency")
_USEFULNESS = FEATURES.index("usefulness")


class JudgedRecord(Protocol):
    """A session on record; one entry per candidate, NaN for a candidate without a label."""

    @property
    def features(self) -> Floats:
        """The features as served."""

    @property
    def labels(self) -> Floats:
        """How much each candidate helped."""

    @property
    def was_injected(self) -> Flags:
        """Which candidates were shown."""


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


def comparable(labels: Floats, shown: Flags) -> Flags:
    """Return the candidates of a session that two orders may be compared by.

    Where only shown memories could be labelled as useful (ratings, words of a reply), labels say
    nothing about the others: comparing both kinds would reward whatever was shown.
    """
    known = np.isfinite(labels)
    with np.errstate(invalid="ignore"):
        reaches_beyond = bool((known & ~shown & (labels >= USEFUL_LABEL)).any())
    return known if reaches_beyond else known & shown


def prove_history(sessions: Sequence[JudgedRecord]) -> HistoryProof:
    """Return how far history may count, from the latest sessions, oldest first."""
    validity: list[float] = []
    partial: list[bool] = []
    margins: list[list[tuple[float, float]]] = []
    grid = [Trust(*pair) for pair in product(LEVELS, LEVELS) if any(pair)]
    for session in sessions[-PROOF_SESSIONS:]:
        chosen = comparable(session.labels, session.was_injected)
        gains = np.maximum(session.labels[chosen], 0.0)
        table = session.features[chosen]
        # A single label, or equal labels, cannot compare two orders.
        if len(gains) < 2 or np.ptp(gains) <= 0.0:
            continue
        partial.append(bool(session.was_injected[chosen].all()))
        relevance = _quality(_composite(table, NO_TRUST), gains)
        validity.append(relevance[1] + float(np.log(np.arange(1, len(gains) + 1)).mean()))
        tried = [_quality(_composite(table, trust), gains) for trust in grid]
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
    return _trusted(proof, grid, table) if proof.is_valid else proof


def _trusted(proof: HistoryProof, grid: Sequence[Trust], margins: Floats) -> HistoryProof:
    """Return the proof with the most certain of the proved levels of trust."""
    best = NO_TRUST, 0.0, -np.inf
    for index, trust in enumerate(grid):
        ndcg, log_rank = margins[:, index, 0], margins[:, index, 1]
        is_full = max(trust.recency, trust.usefulness) == max(LEVELS)
        needed = proof.strictness * (FULL_ERRORS if is_full else PART_ERRORS)
        if errors_above_zero(log_rank) < needed or errors_above_zero(ndcg) < NDCG_SHARE * needed:
            continue
        bound = float(ndcg.mean() - ndcg.std() / np.sqrt(len(ndcg)))
        if bound > best[2]:
            best = trust, float(ndcg.mean()), bound
    return replace(proof, trust=best[0], margin=best[1])


def errors_above_zero(margins: Floats) -> float:
    """Return by how many standard errors the mean lies above 0; few margins count for less."""
    count = len(margins)
    if count < MIN_SESSIONS - 1:
        return 0.0
    variance = (float(margins.var(ddof=1)) * (count - 1) + _PRIOR_VARIANCE) / count
    return float(margins.mean()) / float(np.sqrt(variance / count))


def _composite(table: Floats, trust: Trust) -> Floats:
    """Return the composite of recorded candidates, without the parts that all share."""
    return np.asarray(
        composite.WEIGHT_RELEVANCE * table[:, _RELEVANCE]
        + trust.recency * composite.WEIGHT_RECENCY * table[:, _RECENCY]
        + trust.usefulness * composite.WEIGHT_USEFULNESS * table[:, _USEFULNESS]
    )


def _quality(order: Floats, gains: Floats) -> tuple[float, float]:
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
