"""A predictor's life on the shipped configuration: from an empty store to being heard, and on.

A small made-up world: every topic has four notes that share its rare word with the contexts, and
of these the two important ones help. Relevance finds the topic, so labels are valid; that
importance matters to this user is learned by the predictor alone. With labels drawn by lot there
is nothing to learn, and nobody may be heard.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from session_kit import Desk, kept

from meritory.domain.predictor import Comparison, ComparisonQuery
from meritory.domain.world import SeededWorld
from meritory.engine.pipeline import RANK, run_stages
from meritory.engine.predictor.state import PredictorState, known_state
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.ranking import Ranking
from meritory.model.checkpoint import Checkpoint, CheckpointFlags, write
from meritory.model.ranker import baseline_weights
from meritory.rank.composite import NO_TRUST
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.influence import MIN_JUDGED

SESSIONS = 20
TOPICS, NOTES_EACH, HELPFUL_EACH = 24, 4, 2
# A model is trained after each session, which takes its time on a busy machine.
pytestmark = pytest.mark.timeout(300)
SYLLABLES = ("ka", "ro", "mi", "tu", "ze", "lo", "fa", "ni", "gu", "pe", "so", "vi")


@dataclass
class Made:
    """The world: what is noted, what contexts say, and what helps in them."""

    chance: random.Random = field(default_factory=lambda: random.Random(5))
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = [self.word() for _ in range(TOPICS)]
        self.notes = [
            {
                "content": f"Note {n}: {self.marks[n // NOTES_EACH]} {self.word()} is kept",
                "importance": 0.9 if n % NOTES_EACH >= NOTES_EACH - HELPFUL_EACH else 0.3,
                "on_similar": "keep",
            }
            for n in range(TOPICS * NOTES_EACH)
        ]

    def word(self) -> str:
        return "".join(self.chance.choice(SYLLABLES) for _ in range(4))

    def context(self, topic: int) -> str:
        return f"Please look into the open ticket about {self.marks[topic]} and fix it today"

    def helpful(self, topic: int) -> list[str]:
        return self.ids[topic * NOTES_EACH :][NOTES_EACH - HELPFUL_EACH : NOTES_EACH]

    def by_lot(self, topic: int) -> list[str]:
        return self.chance.sample(self.ids, HELPFUL_EACH)


def settle(desk: Desk) -> None:
    """The same ids and draws every time, so that a failure can be looked at."""
    desk.equip(world=SeededWorld(3, desk.clock))


def live(
    desk: Desk, made: Made, helps: Callable[[int], list[str]], count: int = SESSIONS
) -> list[tuple[str, float]]:
    """Sessions until there were enough; by session its status line and the alpha it was served."""
    settle(desk)
    results = desk.memory.remember_many(made.notes)
    made.ids = [kept(one.memory).id for one in results]
    desk.clock.go(days=3)
    seen = []
    for n in range(count):
        topic = made.chance.randrange(TOPICS)
        session = desk.memory.session(f"s{n}", context=made.context(topic))
        desk.finish(session, used=dict.fromkeys(helps(topic), 1.0))
        seen.append((session.status_line, desk.record(f"s{n}").alpha))
        desk.clock.go(hours=7)
    return seen


def state(desk: Desk) -> PredictorState:
    return known_state(desk.memory.services, "default")


def ranked(desk: Desk, context: str) -> Ranking:
    """What a session would be served now; nothing is recorded."""
    services = desk.memory.services
    asked = StartRequest("probe", desk.memory.scope, context)
    ranking = Ranking(services, asked)
    run_stages("start", RANK, ranking)
    return ranking


def comparisons(desk: Desk) -> list[Comparison]:
    """All of them, oldest first."""
    return desk.store.comparisons("default", ComparisonQuery(limit=999))[::-1]


def test_from_an_empty_store_to_being_heard_and_through_a_restart(
    desks: Callable[..., Desk],
) -> None:
    desk, made = desks(), Made()
    seen = live(desk, made, made.helpful)

    # What the agent was told.
    told = [line.removeprefix("[meritory: ").split(" | ")[0] for line, _ in seen]
    assert told[:MIN_JUDGED] == ["collecting"] * MIN_JUDGED
    assert set(told[MIN_JUDGED:]) <= {"warming", "active"}
    assert set(told[-5:]) == {"active"}
    assert "baseline only" in seen[0][0]

    # What it was served: nothing in cold start, then what the record proves.
    alphas = [alpha for _, alpha in seen]
    opened = next(n for n, alpha in enumerate(alphas) if alpha < 1.0)
    assert opened >= MIN_JUDGED
    assert [name == "active" for name in told] == [alpha < 1.0 for alpha in alphas]

    # What it rests on: comparisons, trainings on all but the canaries, and a model that passed.
    now = state(desk)
    assert now.alpha < 1.0
    assert now.standing.judged == len(comparisons(desk)) == SESSIONS
    assert now.standing.wins > now.standing.non_ties / 2
    assert now.history.is_valid
    runs = desk.store.training_runs("default", 99)
    assert [one.model_version for one in runs][::-1] == list(range(1, len(runs) + 1))
    # The first after three sessions, then one after each.
    assert len(runs) == SESSIONS - 2
    assert now.version == max(one.model_version for one in runs if one.is_accepted)
    canaries = desk.store.canary_count("default")
    last = runs[0]
    assert 0 < last.skipped_count <= canaries
    assert last.sample_count + last.skipped_count <= SESSIONS
    # And it is of use: after it opened the sessions were ranked better than by the baseline.
    late = comparisons(desk)[opened:]
    assert np.mean([one.margin for one in late if one.margin is not None]) > 0.05

    before = ranked(desk, made.context(3))
    assert before.alpha == now.alpha
    assert before.model_version == now.version
    assert [one.rank for one in before.candidates] != [
        one.baseline_rank for one in before.candidates
    ]
    context = before.context.text
    desk.memory.close()
    again = desks()
    settle(again)
    assert state(again) == now
    after = ranked(again, context)
    assert after.candidates == before.candidates
    assert (after.alpha, after.scorer, after.model_version) == (
        before.alpha,
        before.scorer,
        before.model_version,
    )


def test_with_labels_drawn_by_lot_nobody_is_heard(desks: Callable[..., Desk]) -> None:
    # Each training takes a process of its own; one in a while is enough to be tempted.
    desk, made = desks(predictor_train_interval_sessions=4), Made()
    seen = live(desk, made, made.by_lot)
    assert {alpha for _, alpha in seen} == {1.0}
    assert state(desk).alpha == 1.0
    assert state(desk).history.trust == NO_TRUST
    assert not any("active" in line for line, _ in seen)
    # It was tried: everything was compared, and trained on.
    assert state(desk).standing.judged == SESSIONS
    assert len(desk.store.training_runs("default", 99)) == 1 + (SESSIONS - 3) // 4


def test_a_base_model_that_is_ahead_is_heard_within_fifteen_sessions(
    desks: Callable[..., Desk], tmp_path: Path
) -> None:
    """The base weighs importance, as this user does: its sessions count from the first on."""
    weights = baseline_weights()
    weights[FEATURES.index("importance")] = 1.0
    base = tmp_path / "base.sgpt"
    write(
        base,
        Checkpoint(
            kind="features",
            params={"weights": weights, "prior": np.zeros_like(weights)},
            model_version=0,
            embedder="",
            features=FEATURES,
            feature_version=FEATURE_VERSION,
            flags=CheckpointFlags.PRETRAINED,
            trained_at=datetime(2026, 3, 1, tzinfo=UTC),
            session_count=0,
        ),
    )
    desk, made = desks(predictor_base_weights=base), Made()
    seen = live(desk, made, made.helpful, count=15)
    first = comparisons(desk)[0]
    assert first.model_version == 0
    assert first.predictor_won == 1.0
    assert seen[-1][1] < 1.0
    assert state(desk).alpha < 1.0
    late = [one.margin for one in comparisons(desk) if one.margin is not None]
    assert np.mean(late) > 0.1
