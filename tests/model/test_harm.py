"""Negative labels teach: a fit pushes harmful memories below memories that were not used."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from meritory.domain.predictor import TaughtSession
from meritory.engine.predictor.train import lesson_of
from meritory.model.base import RankingQuery
from meritory.model.ranker import Ranker, baseline_weights, fitted
from meritory.rank.features import FEATURES
from meritory.rank.labels import HARM_WEIGHT

COMPOSITE, HELPFUL_TRAIT, HARMFUL_TRAIT = map(
    FEATURES.index, ("composite", "association", "provenance")
)
CANDIDATES = 12
HELPED, HARMED = 0, 1
UNUSED = slice(2, CANDIDATES)


def taught(seed: int, label: float) -> TaughtSession:
    """Return a session: one memory helped, one got this label, ten were not used.

    The second memory has a trait of its own, and a composite a little above the unused ones'.
    """
    rng = np.random.default_rng(seed)
    table = 0.3 * rng.standard_normal((CANDIDATES, len(FEATURES)))
    table[:, [HELPFUL_TRAIT, HARMFUL_TRAIT]] = 0.0
    table[HELPED, [COMPOSITE, HELPFUL_TRAIT]] += 1.0
    table[HARMED, [COMPOSITE, HARMFUL_TRAIT]] += [0.15, 1.0]
    labels = np.zeros(CANDIDATES)
    labels[HELPED], labels[HARMED] = 1.0, label
    return TaughtSession(
        key=f"session {seed}",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        project=None,
        context="",
        embedder=None,
        context_vector=None,
        memory_ids=tuple(f"m{place}" for place in range(CANDIDATES)),
        features=table,
        labels=labels,
        rules=("judged",) * CANDIDATES,
        was_injected=np.ones(CANDIDATES, np.bool_),
        baseline_ranks=np.arange(1, CANDIDATES + 1),
        predictor_ranks=np.zeros(CANDIDATES, np.int64),
        is_canary=False,
    )


def learned(label: float, count: int = 40) -> Ranker:
    """Return the model that was fitted on sessions in which the second memory got this label."""
    sessions = (taught(seed, label) for seed in range(count))
    lessons = [lesson_of(session, RankingQuery(features=session.features)) for session in sessions]
    return fitted(lessons, baseline_weights())[0]


def lead_of_unused(model: Ranker) -> float:
    """Return how far the unused memories of new sessions are above the second one, on average."""
    tables = (taught(seed, 0.0).features for seed in range(1_000, 1_060))
    scores = np.array([model.score(RankingQuery(features=table)) for table in tables])
    return float((scores[:, UNUSED].mean(axis=1) - scores[:, HARMED]).mean())


def test_a_harmful_memory_falls_below_an_unused_one() -> None:
    untrained, unused, harmful = Ranker.untrained(), learned(0.0), learned(-1.0)
    # By the baseline, and by a fit that took it for unused, it would stay above.
    assert lead_of_unused(untrained) < 0.0
    assert lead_of_unused(unused) < 0.0
    assert lead_of_unused(harmful) > 0.0


def test_more_harm_pushes_further_down() -> None:
    leads = [lead_of_unused(learned(label)) for label in (0.5, 0.0, -0.3, -0.6, -1.0)]
    assert leads == sorted(leads)
    assert len({round(lead, 3) for lead in leads}) == len(leads)


def test_harm_is_learned_from_a_few_sessions_already() -> None:
    assert lead_of_unused(learned(-1.0, 5)) > lead_of_unused(learned(0.0, 5)) + 0.1


@pytest.mark.parametrize(
    ("label", "weight"),
    [(1.0, 1.0), (0.0, 1.0), (-0.5, 1.0 + 0.5 * HARM_WEIGHT), (-1.0, 1.0 + HARM_WEIGHT)],
)
def test_a_harmful_memory_counts_several_times_in_its_list(label: float, weight: float) -> None:
    session = taught(0, label)
    lesson = lesson_of(session, RankingQuery(features=session.features))
    assert lesson.weights[HARMED] == pytest.approx(weight)
    assert lesson.weights[UNUSED].tolist() == [1.0] * (CANDIDATES - 2)
    assert lesson.labels.tolist() == session.labels.tolist()


def test_a_memory_without_a_label_does_no_harm() -> None:
    session = taught(0, np.nan)
    lesson = lesson_of(session, RankingQuery(features=session.features))
    assert lesson.weights[HARMED] == 0.0
    assert np.isfinite(lesson.labels).all()
