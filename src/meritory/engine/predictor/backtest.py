"""What if: a user's own recorded sessions, ranked again in every way that can be computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadCheckpoint, Conflict, InputError
from meritory.domain.policy import RRF_K, SourceWeights
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
        "results": [_told(one, baseline, sessions) for one in methods],
        "note": "alphas and columns were tried on the same sessions: the best of many is a little"
        " lucky",
    }


# -- ways to rank ---------------------------------------------------------------------------


def _recorded(services: Services, user: str, sessions: Sequence[TaughtSession]) -> list[_Method]:
    """What was on record when each session was served, and both rankings fused at every alpha."""
    k = services.policy.predictor.rrf_k
    found: dict[str, list[float]] = {}
    for one in sessions:
        has_model = bool((one.predictor_ranks > 0).any())
        ranks = np.where(one.predictor_ranks > 0, one.predictor_ranks, len(one.labels) + 1)
        outcome = _outcome(one, ranks if has_model else one.baseline_ranks, k)
        spoken = outcome if has_model else None
        found.setdefault(BASELINE, []).append(outcome.baseline_ndcg)
        found.setdefault("predictor", []).append(spoken.predictor_ndcg if spoken else np.nan)
        served = _outcome(one, _served_ranks(services, user, one), k)
        found.setdefault("served", []).append(served.predictor_ndcg)
        for place, alpha in enumerate(influence.ALPHAS):
            gained = outcome.baseline_ndcg + spoken.ndcg[place] if spoken else np.nan
            found.setdefault(f"alpha {alpha:g}", []).append(gained)
    about = {
        BASELINE: "the composite, as it was served",
        "predictor": "the models, as they scored then",
        "served": "what the agent was given: fused and diversified",
    }
    return [
        _Method(name, about.get(name, "both rankings fused with this weight"), np.array(values))
        for name, values in found.items()
    ]


def _outcome(session: TaughtSession, ranks: Ranks, k: int) -> influence.ComparisonOutcome:
    """Any order of a session's labelled candidates beside the baseline's."""
    known = np.isfinite(session.labels)
    outcome = influence.compare(
        session.baseline_ranks[known], ranks[known], session.labels[known], k
    )
    if outcome is None:
        raise InputError(f"nothing helped in session {session.key[:80]!r}")
    return outcome


def _served_ranks(services: Services, user: str, session: TaughtSession) -> Ranks:
    ranks = {
        one.memory_id: one.candidate.rank
        for one in services.store.session_memories(user, session.key)
    }
    return np.array([ranks[one] for one in session.memory_ids], np.int64)


def _columns(services: Services, sessions: Sequence[TaughtSession]) -> list[_Method]:
    """Composites that recorded features allow: the seed's feed, and single columns alone."""
    ways: dict[str, Callable[[TaughtSession], Floats]] = {
        "seed composite": partial(_seed_composite, services.policy.ranking)
    }
    ways |= {f"{name} alone": partial(_column, FEATURES.index(name)) for name in _ALONE}
    about = {"seed composite": "the five weights fed with cosine, age and stored usefulness"}
    return [
        _Method(
            name,
            about.get(name, "one recorded number by itself"),
            np.array([_ndcg(one, score(one)) for one in sessions]),
        )
        for name, score in ways.items()
    ]


def _column(place: int, session: TaughtSession) -> Floats:
    return session.features[:, place]


def _seed_composite(sources: SourceWeights, session: TaughtSession) -> Floats:
    return seed_composite(dict(zip(FEATURES, session.features.T, strict=True)), sources)


def _ndcg(session: TaughtSession, score: Floats) -> float:
    """NDCG@10 of the order that scores make, equal ones by their ids: neither good nor bad."""
    ranks = fusion.ranks(score, np.array(session.memory_ids, np.str_)).astype(np.int64)
    return _outcome(session, ranks, RRF_K).predictor_ndcg


def _learned(services: Services, user: str, sessions: Sequence[TaughtSession]) -> _Method:
    """What the present way of learning makes of each session when it learns from the others."""
    prior = _prior(services, user)
    found = crossed(
        [one.key for one in sessions],
        [lesson_of(one, RankingQuery(features=one.features)) for one in sessions],
        lambda some: ranker.fitted(some, prior)[0],
    )
    values = np.array([_ndcg(*pair) for pair in zip(sessions, found, strict=True)])
    return _Method("learned from the others", f"features, dealt into {FOLDS} parts", values)


def _prior(services: Services, user: str) -> Floats:
    try:
        base = restored(load_checkpoint(services, user, BASE_VERSION))
    except BadCheckpoint:
        return ranker.baseline_weights()
    return base.weights if isinstance(base, ranker.Ranker) else ranker.baseline_weights()


# -- what it says ---------------------------------------------------------------------------


def _told(method: _Method, baseline: _Method, sessions: Sequence[TaughtSession]) -> dict[str, Any]:
    # Every method is resampled alike.
    mean = bootstrap_interval(method.values, np.random.default_rng(SEED))
    gain = paired_bootstrap(method.values, baseline.values, np.random.default_rng(SEED))
    return {
        "id": method.name,
        "about": method.about,
        "sessions": mean.count,
        "ndcg": _plain(mean),
        "gain": None if method is baseline else _plain(gain),
        "verdict": None if method is baseline else _verdict(gain),
        "statement": _statement(method, baseline, gain),
        "quarters": [_mean(part) for part in np.array_split(method.values, QUARTERS)],
    }


def _plain(found: Interval) -> dict[str, float | None]:
    if not found.count:
        return {"mean": None, "low": None, "high": None}
    return {name: round(getattr(found, name), 6) for name in ("mean", "low", "high")}


def _verdict(gain: Interval) -> str:
    if not gain.count:
        return "silent"
    if not gain.excludes_zero:
        return "unclear"
    return "better" if gain.mean > 0.0 else "worse"


def _statement(method: _Method, baseline: _Method, gain: Interval) -> str:
    if method is baseline:
        return "what the others are held against"
    if not gain.count:
        return "it never said anything"
    told = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if np.array_equal(method.values, baseline.values):
        return "exactly as the baseline"
    if not gain.excludes_zero:
        return f"{told}: 0 lies inside, it may be chance"
    return f"{told}: {_verdict(gain)} than the baseline"


def _mean(part: Floats) -> float | None:
    known = part[np.isfinite(part)]
    return round(float(known.mean()), 6) if known.size else None
