"""The quality figures: each counts what it says, of one user, and weights hide nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from session_kit import HERON, NOTES, SHIP, TABS, Desk

from meritory.domain.policy import SourceWeights
from meritory.domain.session import Candidate, Injection, Labelled, SessionRecord
from meritory.engine.observe.diagnostics import DOMAINS, EngineFacts
from meritory.engine.quality import figures as quality_figures
from meritory.engine.quality.figures import QualityFigures, Share, figures
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.labels import is_useful
from meritory.store.contract.store import Transaction

HERON_AGAIN = "I think the staging database is called heron"


def of(desk: Desk, user: str = "default") -> QualityFigures:
    return figures(desk.memory.services, user)


def served(memory_id: str, cosine: float, text: float = 0.0, *origins: str) -> Candidate:
    numbers = [0.0] * len(FEATURES)
    numbers[FEATURES.index("cosine")], numbers[FEATURES.index("text")] = cosine, text
    return Candidate(
        memory_id=memory_id,
        source="effective",
        origins=origins,
        final_score=0.5,
        rank=1,
        features=tuple(numbers),
        feature_version=FEATURE_VERSION,
    )


def held(desk: Desk, candidates: list[Candidate], labels: dict[str, float | None]) -> None:
    """A session that was shown these, with what they were worth in it."""
    key = f"s{len(desk.store.sessions('default', 999))}"
    session = SessionRecord(user="default", key=key, started_at=desk.clock.now, state="finished")
    shown = tuple((f"m{place}", one.memory_id) for place, one in enumerate(candidates, 1))
    injection = Injection(
        number=1,
        kind="start",
        turn=0,
        code=key,
        at=desk.clock.now,
        token_count=9,
        memories=shown,
    )

    def work(transaction: Transaction) -> None:
        transaction.open_session(session)
        transaction.put_candidates("default", key, candidates)
        transaction.put_injection("default", key, injection)
        made = [Labelled(memory_id, label, {}) for memory_id, label in labels.items()]
        helped = {one: value or 0.0 for one, value in labels.items() if is_useful(value, 1.0)}
        transaction.put_labels("default", key, made, helped)

    desk.store.write("default", work)


def test_an_empty_store_has_no_rates(desk: Desk) -> None:
    found = of(desk)
    assert found.gate_trigger == Share(0, 0, None, 0.0, 1.0)
    assert (found.false_merges.rate, found.redundant.per_week) == (None, None)
    assert (found.below_floor.per_turn, found.retrievals, found.refusals) == (None, 0, 0)
    assert [one.mean_label for one in found.by_provenance] == [None] * 3


def test_the_gate_triggers_when_something_is_near(desk: Desk) -> None:
    for text in (HERON, HERON_AGAIN, TABS, "The staging database is now called osprey", TABS):
        desk.memory.remember(text)
    found = of(desk)
    # The last one is the same text again, which is found before the gate.
    assert (found.gate_trigger.count, found.gate_trigger.total) == (2, 4)
    assert found.outcomes == {"stored": 2, "merged": 1, "superseded": 1, "duplicate": 1}
    assert of(desk, "eve").gate_trigger.total == 0


def test_wrong_merges_are_of_what_was_audited(desk: Desk) -> None:
    for text in (HERON, HERON_AGAIN):
        desk.memory.remember(text)
    entry = desk.store.merges_of("default", 1)[0].entry
    quality_figures.mark(desk.memory.services, "default", entry, "wrong")
    assert of(desk).false_merges.rate == 1.0
    assert of(desk, "eve").false_merges.total == 0


def test_redundant_additions_are_those_the_gate_would_merge(desk: Desk) -> None:
    desk.note(HERON)
    desk.clock.go(days=30)
    assert of(desk).redundant.additions == 0
    desk.note(HERON_AGAIN, TABS, SHIP)
    found = of(desk).redundant
    assert (found.additions, found.sample.count, found.sample.total) == (3, 1, 3)
    assert found.per_week == 1.0
    desk.clock.go(days=8)
    assert of(desk).redundant.per_week is None


def test_a_large_week_is_sampled(desk: Desk) -> None:
    desk.note(*(f"The {n}th kiln stands in the yard of house {n * 7}" for n in range(50)))
    found = figures(desk.memory.services, "default", 10).redundant
    assert (found.additions, found.sample.total) == (50, 10)


def test_what_was_shown_without_reason_is_counted_by_turn(desk: Desk) -> None:
    ids = desk.note(*NOTES)
    candidates = [
        served(ids[0], 0.05),
        served(ids[1], 0.05, 1.0),
        served(ids[2], 0.4),
        served(ids[3], 0.0, 0.0, "required"),
        served(ids[4], float("nan")),
    ]
    held(desk, candidates, {})
    held(desk, [served(ids[2], 0.4)], {})
    found = of(desk).below_floor
    assert (found.memories, found.shown, found.turns, found.per_turn) == (2, 5, 2, 1.0)


def test_worth_is_raw_whatever_the_weights(desk: Desk) -> None:
    (told,) = desk.note(HERON)
    (guess, other) = desk.note(TABS, SHIP, provenance="assistant_derived", origin="agent")
    held(
        desk,
        [served(told, 0.5), served(guess, 0.5), served(other, 0.5)],
        {told: 0.8, guess: -0.5, other: None},
    )
    held(desk, [served(told, 0.5), served(guess, 0.5)], {told: 0.0, guess: 0.1})
    before = {one.name: one for one in of(desk).by_provenance}
    assert (before["user_stated"].helped.count, before["user_stated"].helped.total) == (1, 2)
    assert before["user_stated"].mean_label == 0.4
    assert before["assistant_derived"].helped.total == 2
    assert before["assistant_derived"].mean_label == -0.2
    weights = SourceWeights(0.1, 0.1, 0.1, 1.0)
    desk.equip(policy=replace(desk.memory.services.policy, ranking=weights))
    assert {one.name: one for one in of(desk).by_provenance} == before


def test_what_helped_is_counted_as_in_the_list_of_sessions(desk: Desk) -> None:
    ids = desk.note(HERON, TABS, SHIP)
    session = desk.memory.session("run", context=f"{HERON} {TABS} {SHIP}")
    assert {one.id for one in session.memories} == set(ids)
    session.end(used=dict(zip(ids, (-0.63, 0.87, 0.06), strict=True)))
    desk.memory.drain()
    score = desk.store.session_score("default", "run")
    assert score is not None
    (worth,) = (one for one in of(desk).by_provenance if one.name == "user_stated")
    assert (worth.helped.count, worth.helped.total) == (score.memories_used, 3) == (1, 3)


def test_worth_is_told_by_extractor(desk: Desk) -> None:
    (made,) = desk.note(HERON)
    record = desk.memory.get(made)
    from meritory.domain.memory import Source
    from meritory.engine.memories.write import indexed

    named = replace(record, sources=(Source(extractor="rules/1"),))
    desk.store.write("default", lambda t: t.update(indexed(named, {}), None))
    held(desk, [served(made, 0.5)], {made: 1.0})
    (one,) = of(desk).by_extractor
    assert (one.name, one.helped.count, one.mean_label) == ("rules/1", 1, 1.0)


def test_searches_are_counted(desk: Desk) -> None:
    desk.note(HERON)
    desk.memory.recall(HERON)
    assert desk.memory.services.counter is not None
    desk.memory.services.counter.flush()
    assert of(desk).retrievals == 1


@pytest.mark.parametrize(("wrong", "status"), [(0, "healthy"), (1, "healthy"), (12, "degraded")])
def test_the_quality_domain_is_ill_when_merges_are_surely_wrong(
    desk: Desk, wrong: int, status: str
) -> None:
    verdicts: list[Any] = ["wrong"] * wrong + ["right"] * (12 - wrong)
    for entry, verdict in enumerate(verdicts, 1):
        desk.store.write(
            "default",
            lambda t, e=entry, v=verdict: t.put_merge_audit("default", e, v, desk.clock.now),
        )
    engine = EngineFacts(desk.memory.services, desk.memory.works, "default")
    found = DOMAINS["quality"](engine)
    assert found.status == status
    assert found.details["audited"] == 12
    assert "helped" in found.details


def test_nobody_is_told_to_add_ratings_that_are_there(desk: Desk) -> None:
    desk.note(HERON, TABS)
    for number in range(10):
        session = desk.memory.session(f"run {number}", context=HERON)
        session.rate({"m1": 0.5})
        session.end()
    desk.memory.drain()
    assert desk.store.judged_counts("default") == (0, 10)
    engine = EngineFacts(desk.memory.services, desk.memory.works, "default")
    (told,) = DOMAINS["judge"](engine).warnings
    assert "although some are rated" in told
    assert "ratings or" not in told
