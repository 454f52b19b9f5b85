"""Steering the predictor: on and off, training by hand, earlier models, and people's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from session_kit import HERON, NOTES, Desk, talk

from learning_kit import change, damaged, lived, noted, shelved, state
from meritory.domain.errors import BadCheckpoint, Conflict, InputError, NotFound
from meritory.domain.predictor import Rated, TrainingRun
from meritory.engine.predictor import admin
from meritory.engine.predictor.rollback import rollback
from meritory.engine.predictor.state import TRAIN_JOB, TRAIN_KEY
from meritory.ports.scorer import RandomScorer
from meritory.rank.features import FEATURE_VERSION

Desks = Callable[..., Desk]
CALM = {"predictor_train_interval_sessions": 10_000}
USER = "default"
ABOUT_HERON = talk(
    "Run the migration on staging.",
    "I connect to the staging database heron and run the migration there; heron is up to date.",
)


@pytest.fixture
def desk(desks: Desks) -> Desk:
    return desks(**CALM)


def runs(desk: Desk) -> list[TrainingRun]:
    return desk.store.training_runs(USER, 10)


def judged(desk: Desk, count: int) -> None:
    """Sessions that the judge itself rated."""
    for n in range(count):
        desk.clock.go(hours=1)
        session = desk.memory.session(f"talk-{n}", context="run the migration on staging")
        desk.finish(session, ABOUT_HERON)


# -- on and off -----------------------------------------------------------------------------


def test_what_is_switched_off_stays_silent_until_it_is_switched_on(desks: Desks) -> None:
    desk = desks(**CALM)
    ids = noted(desk.memory)
    services = desk.memory.services
    told: list[str] = []
    services.observer.listen(lambda category, event, details: told.append(event))
    assert admin.switch(services, USER, is_on=False) is True
    assert admin.switch(services, USER, is_on=False) is False
    (key,) = lived(desk.memory, desk.clock, ids, 1)
    assert desk.record(key).scorer is None
    desk.memory.close()
    again = desks(**CALM)
    assert again.memory.predictor_status()["phase"] == "disabled"
    assert admin.switch(again.memory.services, USER, is_on=True) is True
    assert admin.switch(again.memory.services, USER, is_on=True) is False
    (key,) = lived(again.memory, again.clock, ids, 1)
    assert again.record(key).scorer == "features"
    assert told.count("predictor.disabled") == 1


def test_switching_on_forgives_a_process_its_crashes(desk: Desk) -> None:
    forgiven: list[bool] = []

    class Apart(RandomScorer):
        def enable(self) -> None:
            forgiven.append(True)

    desk.equip(scorer=Apart(desk.memory.services.world))
    assert admin.switch(desk.memory.services, USER, is_on=True) is False
    assert forgiven == [True]


# -- training -------------------------------------------------------------------------------


def test_training_by_hand_runs_at_once_and_is_written_down(desk: Desk) -> None:
    lived(desk.memory, desk.clock, noted(desk.memory), 2)
    services = desk.memory.services
    first = admin.train_now(services, USER)
    assert (first.reason, first.is_new) == ("asked", True)
    again = admin.train_now(services, USER)
    assert (again.reason, again.is_new) == ("asked", False)
    admin.run_training(services)
    (run,) = runs(desk)
    assert (run.reason, run.model_version, run.error) == ("asked", 1, None)
    assert run.sample_count + run.skipped_count == 2
    # There are too few sessions to examine a model on.
    assert run.is_accepted is False
    assert state(desk.memory).order_reason is None
    assert state(desk.memory).version == 0
    (warning,) = desk.memory.predictor_status()["warnings"]
    assert "rejected by canary" in warning


def test_an_order_that_drift_gave_keeps_its_reason(desk: Desk) -> None:
    lived(desk.memory, desk.clock, noted(desk.memory), 1)
    change(desk.memory, order_reason="drift")
    ordered = admin.train_now(desk.memory.services, USER)
    assert ordered.reason == "drift"
    assert desk.store.job(USER, TRAIN_JOB, TRAIN_KEY).state == "queued"


def test_switching_off_takes_back_a_training_that_waits(desk: Desk) -> None:
    lived(desk.memory, desk.clock, noted(desk.memory), 1)
    admin.train_now(desk.memory.services, USER)
    admin.switch(desk.memory.services, USER, is_on=False)
    admin.run_training(desk.memory.services)
    assert runs(desk) == []


def test_nothing_is_trained_where_nothing_can_be(desks: Desks) -> None:
    desk = desks(**CALM)
    with pytest.raises(Conflict, match="no session to learn from"):
        admin.train_now(desk.memory.services, USER)
    change(desk.memory, is_enabled=False)
    with pytest.raises(Conflict, match="switched off"):
        admin.train_now(desk.memory.services, USER)
    for settings in ({"predictor_scorer": "random"}, {"predictor_enabled": "false"}):
        other = desks(name=f"{next(iter(settings))}.db", **settings)
        with pytest.raises(Conflict, match="with these settings"):
            admin.train_now(other.memory.services, USER)
    assert runs(desk) == []


# -- earlier models -------------------------------------------------------------------------


def test_an_earlier_model_serves_again_and_it_is_written_down(desk: Desk) -> None:
    ids = noted(desk.memory)
    for version in (1, 2, 3):
        shelved(desk.memory, version, session_count=10 * version)
    change(desk.memory, version=3, previous=2, latest=3, failures=1)
    services = desk.memory.services
    run = rollback(services, USER)
    assert (run.model_version, run.reason, run.is_accepted) == (2, "rollback", True)
    assert (run.sample_count, run.train_validation_failures) == (20, 1)
    assert runs(desk) == [replace(run, gates=[])]
    (key,) = lived(desk.memory, desk.clock, ids, 1)
    assert desk.record(key).model_version == 2
    # Without one on record before it, the nearest that is there.
    assert rollback(services, USER).model_version == 1
    assert rollback(services, USER).model_version == 0
    with pytest.raises(Conflict, match="no model before"):
        rollback(services, USER)
    assert rollback(services, USER, 3).model_version == 3
    # Numbers are never given twice.
    assert state(desk.memory).latest == 3


def test_the_model_before_may_be_gone(desk: Desk) -> None:
    shelved(desk.memory, 1)
    shelved(desk.memory, 5)
    change(desk.memory, version=5, previous=4, latest=5)
    assert rollback(desk.memory.services, USER).model_version == 1


@pytest.mark.parametrize("version", [7, 10**12, -1])
def test_a_model_that_is_not_there_is_answered_with_those_that_are(
    desk: Desk, version: int
) -> None:
    shelved(desk.memory, 2)
    with pytest.raises(NotFound) as told:
        rollback(desk.memory.services, USER, version)
    assert told.value.hint == "available models: 2, 0 (base)"


@pytest.mark.parametrize("version", [True, 1.0, "1", float("nan"), [1]])
def test_a_version_is_a_whole_number(desk: Desk, version: Any) -> None:
    with pytest.raises(InputError):
        rollback(desk.memory.services, USER, version)


def test_what_serves_already_or_is_damaged_is_refused_and_nothing_changes(desk: Desk) -> None:
    shelved(desk.memory, 1)
    with pytest.raises(Conflict, match="already active"):
        rollback(desk.memory.services, USER, 0)
    shelves = desk.memory.services.shelves
    assert shelves is not None
    damaged(desk.memory, 1, lambda raw: raw[:-8])
    with pytest.raises(BadCheckpoint):
        shelves.checkpoint(USER, 1)
    with pytest.raises(Conflict, match="is not usable"):
        rollback(desk.memory.services, USER, 1)
    assert state(desk.memory).version == 0
    assert runs(desk) == []


# -- people's word --------------------------------------------------------------------------


def test_people_are_offered_what_a_judge_was_sure_of(desk: Desk) -> None:
    desk.note(*NOTES)
    lived(desk.memory, desk.clock, noted(desk.memory), 2)
    services = desk.memory.services
    # A program that knows what helped is no judge.
    assert admin.calibrate_offer(services, USER) == []
    judged(desk, 5)
    offered = admin.calibrate_offer(services, USER, 20)
    assert len(offered) == 20
    assert {one.session_key for one in offered} <= {f"talk-{n}" for n in range(5)}
    for one in offered:
        row = desk.rows(one.session_key)[one.memory_id]
        assert one.judge_label == row.relevance_score
    # What is open is asked again before anything new is.
    again = admin.calibrate_offer(services, USER, 20)
    assert {pair(one) for one in again} == {pair(one) for one in offered}
    more = admin.calibrate_offer(services, USER, 25)
    assert len({pair(one) for one in more}) == 25


def pair(one: Rated) -> tuple[str, str]:
    return one.session_key, one.memory_id


def test_a_rating_is_kept_beside_the_judges_and_teaches_nothing(desk: Desk) -> None:
    (heron, *_) = desk.note(*NOTES)
    judged(desk, 4)
    services = desk.memory.services
    taught = desk.store.taught_sessions(USER, FEATURE_VERSION, 100)
    offered = admin.calibrate_offer(services, USER)
    assert desk.memory.predictor_status()["calibration"]["sessions_since"] == 0
    found = admin.calibrate_rate(services, USER, {pair(one): -1.0 for one in offered})
    assert found["rated"] == len(offered)
    expected = sum(abs(-1.0 - one.judge_label) for one in offered) / len(offered)
    assert found["mean_absolute_error"] == pytest.approx(expected, abs=1e-6)
    assert found["is_flagged"] is True
    assert any("differ from the judge" in one for one in desk.memory.predictor_status()["warnings"])
    same = {pair(one): one.judge_label for one in offered}
    assert admin.calibrate_rate(services, USER, same)["mean_absolute_error"] == 0.0
    assert desk.memory.predictor_status()["calibration"]["is_flagged"] is False
    after = desk.store.taught_sessions(USER, FEATURE_VERSION, 100)
    for one, other in zip(after, taught, strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
    assert desk.memory.get(heron).content == HERON


def test_people_are_asked_again_after_fifty_sessions(desk: Desk) -> None:
    change(desk.memory, uncalibrated=49)
    assert desk.memory.predictor_status()["calibration"]["is_due"] is False
    change(desk.memory, uncalibrated=50)
    assert desk.memory.predictor_status()["calibration"]["is_due"] is True


def test_nonsense_is_no_rating_and_keeps_the_others_out(desk: Desk) -> None:
    desk.note(*NOTES)
    judged(desk, 4)
    services = desk.memory.services
    one, other, *_ = admin.calibrate_offer(services, USER)
    for label in (1.01, -1.01, float("nan"), float("inf"), True, None, "0.5", [1], {}):
        with pytest.raises(InputError):
            admin.calibrate_rate(services, USER, {pair(one): 0.5, pair(other): label})
    with pytest.raises(NotFound, match="not in the calibration sample"):
        admin.calibrate_rate(services, USER, {pair(one): 0.5, ("talk-0", "nothing"): 0.5})
    assert desk.memory.predictor_status()["calibration"]["rated"] == 0


@pytest.mark.parametrize("count", [19, 51, 0, -5, True, 20.0, "20"])
def test_twenty_to_fifty_are_offered(desk: Desk, count: Any) -> None:
    with pytest.raises(InputError, match="invalid number"):
        admin.calibrate_offer(desk.memory.services, USER, count)
