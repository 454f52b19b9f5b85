"""History counts in the baseline as soon as the record proves it, and never by chance.

Through the library: a program says what helped. Of the two notes that help with a topic one shares
a rare word with the contexts, the other is known by its history alone. Both were tried with 20
seeds: trust arrived with each of them, and with labels drawn by lot one of 20 got half for a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from session_kit import Desk, kept

from meritory.domain.world import SeededWorld
from meritory.engine.predictor.state import known_state
from meritory.rank.composite import NO_TRUST
from meritory.rank.influence import HistoryProof

TOPICS, NOTES_EACH, MARKS_EACH = 4, 10, 4
SYLLABLES = ("ka", "ro", "mi", "tu", "ze", "lo", "fa", "ni", "gu", "pe", "so", "vi")

pytestmark = pytest.mark.files_only(
    "the proof is computed from records that both stores keep alike"
)


class Ledger:
    """Notes about topics, and sessions about them; the same ones every time."""

    def __init__(self, desk: Desk, seed: int = 5) -> None:
        self.desk = desk
        self.chance = random.Random(seed)
        self.marks = [[self._word() for _ in range(MARKS_EACH)] for _ in range(TOPICS)]
        texts = [self._text(n) for n in range(TOPICS * NOTES_EACH)]
        made = desk.memory.remember_many([{"content": one, "on_similar": "keep"} for one in texts])
        self.ids = [kept(one.memory).id for one in made]
        desk.clock.go(days=3)

    def _word(self) -> str:
        return "".join(self.chance.choice(SYLLABLES) for _ in range(4))

    def _text(self, number: int) -> str:
        topic, place = divmod(number, NOTES_EACH)
        subject = self.marks[topic][0] if place == 0 else self._word()
        return f"Note {number}: {subject} {self._word()} is kept by {self._word()}"

    def context(self, topic: int) -> str:
        first, *others = self.marks[topic]
        named = " ".join((first, *self.chance.sample(others, 2)))
        return f"Please look into the open ticket about {named} and fix it today"

    def helpful(self, topic: int) -> list[str]:
        return self.ids[topic * NOTES_EACH :][:2]

    def by_lot(self, topic: int) -> list[str]:
        return self.chance.sample(self.ids, 2)

    def live(self, count: int, helps: Callable[[int], list[str]]) -> list[HistoryProof]:
        """Hold sessions; return what the record proved after each."""
        found = []
        for n in range(count):
            topic = n % TOPICS
            session = self.desk.memory.session(f"s{n}", context=self.context(topic))
            self.desk.finish(session, used=dict.fromkeys(helps(topic), 1.0))
            self.desk.clock.go(hours=7)
            found.append(known_state(self.desk.memory.services, "default").history)
        return found


@pytest.fixture
def desk(desks: Callable[..., Desk]) -> Desk:
    """Only the first model is trained: this is about the baseline. Ids are the same every time."""
    made = desks(predictor_train_interval_sessions=10_000)
    made.equip(world=SeededWorld(3, made.clock))
    # What is known by its history alone is not among the few that relevance shows.
    made.tune(start_limit=3)
    return made


def test_trust_arrives_within_ten_sessions_of_consistent_truth(desk: Desk) -> None:
    ledger = Ledger(desk)
    proofs = ledger.live(10, ledger.helpful)
    assert proofs[0].trust == NO_TRUST
    last = proofs[-1]
    assert last.is_valid
    assert last.trust.usefulness > 0.0
    assert last.margin > 0.0
    told = desk.memory.predictor_status()["history"]
    assert (told["usefulness"], told["recency"]) == (last.trust.usefulness, last.trust.recency)
    assert told["labels_valid"]

    # What is known by its history alone is now among the first.
    unlike = ledger.helpful(1)[1]
    before = desk.rows("s1")[unlike].candidate.rank
    session = desk.memory.session("next", context=ledger.context(1))
    assert session.ranking.index(unlike) + 1 <= 5 < before
    why = desk.memory.why(unlike, "next")["baseline"]
    assert why["history"] == {
        "recency": last.trust.recency,
        "usefulness": last.trust.usefulness,
    }
    # The parts are told as they were counted.
    assert sum(part["adds"] for part in why["parts"]) == pytest.approx(why["composite"])


def test_trust_never_arrives_with_labels_drawn_by_lot(desk: Desk) -> None:
    ledger = Ledger(desk)
    proofs = ledger.live(30, ledger.by_lot)
    assert {one.trust for one in proofs} == {NO_TRUST}
    assert desk.memory.predictor_status()["alpha"] == 1.0
    session = desk.memory.session("next", context=ledger.context(0))
    why = desk.memory.why(session.ranking[0], "next")["baseline"]
    assert why["history"] == {"recency": 0.0, "usefulness": 0.0}
    parts = {part["name"]: part["value"] for part in why["parts"]}
    # Constants, the same for all: the order is that of relevance alone.
    for one in session.ranking[1:5]:
        others = desk.memory.why(one, "next")["baseline"]["parts"]
        assert {part["name"]: part["value"] for part in others} | {
            "relevance": parts["relevance"]
        } == parts
