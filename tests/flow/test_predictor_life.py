"""A predictor's life on the shipped configuration: from an empty store to being heard, and on.

A small made-up world: forty notes, and contexts that share rare words with the past contexts in
which the same two notes helped, which the composite does not look at. With labels drawn by lot
there is nothing to learn, and nobody may be heard. Both were tried with other seeds: 4 of 4 opened
within 21 sessions, none of 22 with lots did.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from session_kit import Desk, kept

from tenure.flow.context import StartRequest, understand
from tenure.flow.pipeline import Stopwatch
from tenure.flow.predictor import PredictorState, known_state
from tenure.flow.ranking import Ranked, rank
from tenure.rank.influence import RAMP
from tenure.store.predictor import Comparison, ComparisonQuery
from tenure.world import SeededWorld

SESSIONS = 40
TOPICS, NOTES_EACH = 8, 5
SYLLABLES = ("ka", "ro", "mi", "tu", "ze", "lo", "fa", "ni", "gu", "pe", "so", "vi")


@dataclass
class Made:
    """The world: what is noted, what contexts say, and what helps in them."""

    chance: random.Random = field(default_factory=lambda: random.Random(5))
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = [[self.word() for _ in range(4)] for _ in range(TOPICS)]
        self.notes = [
            f"Note {n}: {self.word()} {self.word()} is kept by {self.word()}"
            for n in range(TOPICS * NOTES_EACH)
        ]

    def word(self) -> str:
        return "".join(self.chance.choice(SYLLABLES) for _ in range(4))

    def context(self, topic: int) -> str:
        named = " ".join(self.chance.sample(self.marks[topic], 3))
        return f"Please look into the open ticket about {named} and fix it today"

    def helpful(self, topic: int) -> list[str]:
        return self.ids[topic * NOTES_EACH :][:2]

    def by_lot(self, topic: int) -> list[str]:
        return self.chance.sample(self.ids, 2)


def settle(desk: Desk) -> None:
    """The same ids and draws every time, so that a failure can be looked at."""
    desk.equip(world=SeededWorld(3, desk.clock))


def live(desk: Desk, made: Made, helps: Callable[[int], list[str]]) -> list[tuple[str, float]]:
    """Sessions until there were enough; by session its status line and the alpha it was served."""
    settle(desk)
    results = desk.memory.remember_many(
        [{"content": text, "on_similar": "keep"} for text in made.notes]
    )
    made.ids = [kept(one.memory).id for one in results]
    desk.clock.go(days=3)
    seen = []
    for n in range(SESSIONS):
        topic = made.chance.randrange(TOPICS)
        session = desk.memory.session(f"s{n}", context=made.context(topic))
        desk.finish(session, used=dict.fromkeys(helps(topic), 1.0))
        seen.append((session.status_line, desk.record(f"s{n}").alpha))
        desk.clock.go(hours=7)
    return seen


def state(desk: Desk) -> PredictorState:
    return known_state(desk.memory.services, "default")


def ranked(desk: Desk, context: str) -> Ranked:
    """What a session would be served now; nothing is recorded."""
    services = desk.memory.services
    asked = StartRequest("probe", desk.memory.scope, context)
    return rank(services, "probe", understand(services, asked), Stopwatch(services.world))


def comparisons(desk: Desk) -> list[Comparison]:
    """All of them, oldest first."""
    return desk.store.comparisons("default", ComparisonQuery(limit=999))[::-1]


def test_from_an_empty_store_to_being_heard_and_through_a_restart(
    desks: Callable[..., Desk],
) -> None:
    desk, made = desks(), Made()
    seen = live(desk, made, made.helpful)

    # What the agent was told; a proof may be lost again once or twice before it holds.
    told = [line.removeprefix("[tenure: ").split(" | ")[0] for line, _ in seen]
    assert list(dict.fromkeys(told)) == ["collecting", "warming", "active"]
    assert told[:11] == ["collecting"] * 10 + ["warming"]
    assert set(told[-10:]) == {"active"}
    assert "baseline only" in seen[0][0]
    assert "model v0" in seen[10][0]

    # What it was served: nothing in cold start, then as far as the ramp lets it in.
    alphas = [alpha for _, alpha in seen]
    opened = next(n for n, alpha in enumerate(alphas) if alpha < 1.0)
    assert opened >= 11
    assert min(alphas[: opened + RAMP[0][0]]) >= RAMP[0][1]
    assert min(alphas[: opened + RAMP[1][0]]) >= RAMP[1][1]
    assert [name == "active" for name in told] == [alpha < 1.0 for alpha in alphas]

    # What it rests on: comparisons, trainings on all but the canaries, and a model that passed.
    now = state(desk)
    assert now.alpha < 1.0
    assert now.standing.judged == len(comparisons(desk)) == SESSIONS
    assert now.standing.wins > now.standing.non_ties / 2
    runs = desk.store.training_runs("default", 99)
    assert [one.model_version for one in runs][::-1] == list(range(1, len(runs) + 1))
    assert len(runs) >= 2
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
    desk, made = desks(), Made()
    seen = live(desk, made, made.by_lot)
    assert {alpha for _, alpha in seen} == {1.0}
    assert state(desk).alpha == 1.0
    assert not any("active" in line for line, _ in seen)
    # It was tried: everything was compared, and trained on.
    assert state(desk).standing.judged == SESSIONS
    assert len(desk.store.training_runs("default", 99)) >= 2
