"""What the streams must show, and where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.streams_replay import BASELINE, PREDICTOR, QUARTERS, SEED_FUSION, SERVED, Outcome
from tenure.rank.metrics import bootstrap_interval

# NDCG@10 that the baseline must reach over a whole stream, and the share of what was used that
# must be among the candidates.
LINES = {"agent_specstory": 0.446, "agent_calibrate": 0.724, "git_datasette_2h": 0.429}
POOL_LINES = {"agent_specstory": 0.90}
MIX, MIX_TOLERANCE = "hand-made mix", 0.02
PREDICTOR_RATIO = 1.08
PREDICTOR_STREAMS = ("agent_specstory", "git_datasette_2h", "git_simonw3_2h")
SERVED_RATIO, SERVED_SESSIONS = 1.06, 100
SEED_RATIO = 2.4
QUARTER_TOLERANCE, QUARTER_SESSIONS = 0.02, 25
FIRST_INFLUENCE = {"agent_specstory": 60}
SHUFFLED_MEAN, SHUFFLED_WORST = 0.003, 0.01
_SEED = 20261115


@dataclass(frozen=True, slots=True)
class Figures:
    """One stream over all seeds: means of the seeds, the worst where one may not fail."""

    name: str
    session_count: int
    pool_recall: float
    baseline: float
    mix: float
    predictor_ratio: float
    served_ratio: float
    seed_ratio: float
    # The latest over the seeds; None when one was never heard.
    first_influence: int | None
    # By quarter of any seed: the upper bound of served less baseline, one-sided 95 %.
    worst_quarter: float
    quarter_sessions: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Figures:
        """The figures of one stream."""
        first = outcomes[0]

        def mean(values: Sequence[float]) -> float:
            return float(np.mean(values))

        heard = [one.first_influence for one in outcomes]
        return cls(
            name=first.name,
            session_count=len(first.pool_recall),
            pool_recall=float(np.nanmean(first.pool_recall)),
            baseline=mean([one.mean(BASELINE) for one in outcomes]),
            mix=mean([one.mean(MIX) for one in outcomes]),
            predictor_ratio=mean([one.ratio(PREDICTOR) for one in outcomes]),
            served_ratio=mean([one.ratio(SERVED) for one in outcomes]),
            seed_ratio=mean([one.mean(PREDICTOR) / one.mean(SEED_FUSION) for one in outcomes]),
            first_influence=max((one for one in heard if one is not None), default=None)
            if all(one is not None for one in heard)
            else None,
            worst_quarter=min(bound for one in outcomes for bound in quarter_bounds(one)),
            quarter_sessions=len(first.pool_recall) // QUARTERS,
        )

    def line(self) -> str:
        """All of it in one line."""
        return (
            f"{self.name:18s} pool {self.pool_recall:.3f}  baseline {self.baseline:.3f} "
            f"(mix {self.mix:.3f})  second half: predictor x{self.predictor_ratio:.3f}, "
            f"served x{self.served_ratio:.3f}  predictor / seed fusion x{self.seed_ratio:.2f}  "
            f"heard from {self.first_influence}  worst quarter's bound {self.worst_quarter:+.3f}"
        )


def quarter_bounds(outcome: Outcome) -> list[float]:
    """By quarter the most that served less baseline can be, one-sided at 95 %."""
    rng = np.random.default_rng(_SEED)
    margins = np.array(outcome.ndcg[SERVED]) - np.array(outcome.ndcg[BASELINE])
    parts = np.array_split(margins, QUARTERS)
    return [bootstrap_interval(part, rng, level=0.90).high for part in parts]


def missed(figures: Figures) -> list[str]:
    """Say in one line each which bar was missed."""
    name, is_long = figures.name, figures.session_count >= SERVED_SESSIONS
    wanted: list[tuple[str, float, float]] = [
        ("NDCG@10 of the baseline", figures.baseline, LINES.get(name, 0.0)),
        ("baseline beside the hand-made mix", figures.baseline, figures.mix - MIX_TOLERANCE),
        ("pool recall", figures.pool_recall, POOL_LINES.get(name, 0.0)),
    ]
    if name in PREDICTOR_STREAMS:
        wanted.append(("predictor's ratio", figures.predictor_ratio, PREDICTOR_RATIO))
    if name == "agent_specstory":
        wanted.append(("predictor beside the seed's fusion", figures.seed_ratio, SEED_RATIO))
    if is_long:
        wanted.append(("served ratio", figures.served_ratio, SERVED_RATIO))
    if figures.quarter_sessions >= QUARTER_SESSIONS:
        wanted.append(("bound of the worst quarter", figures.worst_quarter, -QUARTER_TOLERANCE))
    misses = [
        f"{name}: {what} {value:.3f} is below {line:.3f}"
        for what, value, line in wanted
        if not value >= line
    ]
    limit, heard = FIRST_INFLUENCE.get(name), figures.first_influence
    if limit is not None and (heard is None or heard > limit):
        misses.append(f"{name}: heard from session {heard}, not within {limit}")
    return misses


def missed_shuffled(name: str, harm: Sequence[float]) -> list[str]:
    """Say where chance credit did harm."""
    figures = (
        ("mean harm", float(np.mean(harm)), SHUFFLED_MEAN),
        ("worst harm", max(harm), SHUFFLED_WORST),
    )
    return [
        f"{name}: {what} {value:.4f} of shuffled labels is above {line}"
        for what, value, line in figures
        if not value <= line
    ]
