"""What if: a user's own recorded sessions, ranked again in every way that can be computed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadCheckpoint, Conflict, InputError
from meritory.domain.policy import RRF_K
from meritory.domain.predictor import TaughtSession
from meritory.domain.world import moment_text
from meritory.engine.predictor.state import load_checkpoint
from meritory.engine.predictor.train import TRAIN_SESSIONS, lesson_of
from meritory.engine.services import Services
from meritory.model import ranker
from meritory.model.base import RankingQuery
from meritory.model.checkpoint import restored
from meritory.model.fit import FOLDS, crossed
from meritory.ports.scorer import BASE_VERSION
from meritory.rank import fusion, influence
from meritory.rank.composite import seed_composite
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.metrics import Interval, bootstrap_interval, paired_bootstrap

MIN_SESSIONS = 5
QUARTERS = 4
SEED = 20_261_115
BASELINE = "baseline"
Floats = NDArray[np.float64]
Ranks = NDArray[np.int64]
# A column of the recorded features that orders candidates by itself.
_ALONE = ("relevance", "cosine", "effective", "frecency", "association")


@dataclass(frozen=True, slots=True)
class _Method:
    """A way to rank, with its NDCG@10 by session; NaN where it had nothing to say."""

    name: str
    about: str
    values: Floats


def backtest(services: Services, user: str, limit: int = TRAIN_SESSIONS) -> dict[str, Any]:
    """NDCG@10 of every ranking over a user's judged sessions, with intervals, as JSON values."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= TRAIN_SESSIONS:
        raise InputError(f"limit must be a whole number from 1 to {TRAIN_SESSIONS}, not {limit!r}")
    # One in which only what a prompt brought up helped says nothing about a ranking.
    sessions = [
        one
        for one in services.store.taught_sessions(user, FEATURE_VERSION, limit)
        if (one.labels > 0.0).any()
    ]
    if len(sessions) < MIN_SESSIONS:
        raise Conflict(
            f"{len(sessions)} judged sessions can be replayed, too few to say anything",
            hint=f"it takes {MIN_SESSIONS}; `meritory sessions` shows which were excluded, and why",
        )
    methods = [*_recorded(services, user, sessions), *_columns(services, sessions)]
    methods.append(_learned(services, user, sessions))
    baseline = next(one for one in methods if one.name == BASELINE)
    return {
        "sessions": len(sessions),
        "since": moment_text(sessions[0].started_at),
        "until": moment_text(sessions[-1].started_at),
        "results": [_report(one, baseline) for one in methods],
        "note": "alphas and columns were tried on the same sessions: the best of many is a little"
        " lucky",
    }


# -- ways to rank ---------------------------------------------------------------------------


def _recorded(services: Services, user: str, sessions: Sequence[TaughtSession]) -> list[_Method]:
    """Return the rankings on record for each session, and both fused at every alpha."""
    k = services.policy.predictor.rrf_k
    about = {
        BASELINE: "the composite, as it was served",
        "predictor": "the models, as they scored then",
        "served": "what the agent was given: fused and diversified",
        **{
            f"alpha {alpha:g}": "both rankings fused with this weight" for alpha in influence.ALPHAS
        },
    }
    rows = []
    for one in sessions:
        has_model = bool((one.predictor_ranks > 0).any())
        ranks = np.where(one.predictor_ranks > 0, one.predictor_ranks, len(one.labels) + 1)
        outcome = _outcome(one, ranks if has_model else one.baseline_ranks, k)
        records = services.store.session_memories(user, one.key)
        rank_of = {record.memory_id: record.candidate.rank for record in records}
        served_ranks = np.array([rank_of[memory_id] for memory_id in one.memory_ids], np.int64)
        served = _outcome(one, served_ranks, k).predictor_ndcg
        by_model = (
            outcome.predictor_ndcg,
            *(outcome.baseline_ndcg + gain for gain in outcome.ndcg),
        )
        predicted, *fused = by_model if has_model else (np.nan,) * len(by_model)
        rows.append((outcome.baseline_ndcg, predicted, served, *fused))
    columns = zip(about.items(), np.array(rows).T, strict=True)
    return [_Method(name, text, values) for (name, text), values in columns]


def _outcome(session: TaughtSession, ranks: Ranks, k: int) -> influence.ComparisonOutcome:
    """Compare any order of a session's labelled candidates with the baseline's."""
    known = np.isfinite(session.labels)
    outcome = influence.compare(
        session.baseline_ranks[known], ranks[known], session.labels[known], k
    )
    if outcome is None:
        raise InputError(f"nothing helped in session {session.key[:80]!r}")
    return outcome


def _columns(services: Services, sessions: Sequence[TaughtSession]) -> list[_Method]:
    """Return composites of recorded features: the seed's feed, and single columns alone."""
    tables = [dict(zip(FEATURES, one.features.T, strict=True)) for one in sessions]
    seed = [seed_composite(table, services.policy.ranking) for table in tables]
    about = "the five weights fed with cosine, age and stored usefulness"
    return [
        _Method("seed composite", about, _ndcg(sessions, seed)),
        *(
            _Method(
                f"{name} alone",
                "one recorded number by itself",
                _ndcg(sessions, [table[name] for table in tables]),
            )
            for name in _ALONE
        ),
    ]


def _ndcg(sessions: Sequence[TaughtSession], scores: Sequence[Floats]) -> Floats:
    """Return NDCG@10 of the orders that scores make; equal scores are ordered by id."""
    pairs = zip(sessions, scores, strict=True)
    ranked = [(one, fusion.ranks(score, np.array(one.memory_ids, np.str_))) for one, score in pairs]
    return np.array(
        [_outcome(one, ranks.astype(np.int64), RRF_K).predictor_ndcg for one, ranks in ranked]
    )


def _learned(services: Services, user: str, sessions: Sequence[TaughtSession]) -> _Method:
    """Return how the present way of learning ranks each session when it learns from the others."""
    prior = ranker.baseline_weights()
    with contextlib.suppress(BadCheckpoint):
        base = restored(load_checkpoint(services, user, BASE_VERSION))
        prior = base.weights if isinstance(base, ranker.Ranker) else prior
    scores = crossed(
        [one.key for one in sessions],
        [lesson_of(one, RankingQuery(features=one.features)) for one in sessions],
        lambda some: ranker.fitted(some, prior)[0],
    )
    about = f"features, dealt into {FOLDS} parts"
    return _Method("learned from the others", about, _ndcg(sessions, scores))


# -- the report -----------------------------------------------------------------------------


def _report(method: _Method, baseline: _Method) -> dict[str, Any]:
    """Return the mean of a method, its gain over the baseline and a verdict."""
    # Every method is resampled alike.
    mean = bootstrap_interval(method.values, np.random.default_rng(SEED))
    gain = paired_bootstrap(method.values, baseline.values, np.random.default_rng(SEED))
    verdict: str | None = "unclear"
    statement = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if method is baseline:
        verdict, statement = None, "what the others are held against"
    elif not gain.count:
        verdict, statement = "silent", "it never said anything"
    elif gain.excludes_zero:
        verdict = "better" if gain.mean > 0.0 else "worse"
        statement += f": {verdict} than the baseline"
    elif np.array_equal(method.values, baseline.values):
        statement = "exactly as the baseline"
    else:
        statement += ": 0 lies inside, it may be chance"
    parts = [part[np.isfinite(part)] for part in np.array_split(method.values, QUARTERS)]
    return {
        "id": method.name,
        "about": method.about,
        "sessions": mean.count,
        "ndcg": _plain(mean),
        "gain": None if method is baseline else _plain(gain),
        "verdict": verdict,
        "statement": statement,
        "quarters": [round(float(part.mean()), 6) if part.size else None for part in parts],
    }


def _plain(interval: Interval) -> dict[str, float | None]:
    return {
        name: round(getattr(interval, name), 6) if interval.count else None
        for name in ("mean", "low", "high")
    }
