"""What goes wrong with models is survived, written down and told; nothing of it is silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from predictor_kit import USER, Preferring, earned, held, set_state
from session_kit import Desk

from learning_kit import change, damaged, lived, lost, noted, shelved, state
from meritory.domain.errors import Busy
from meritory.engine.predictor.state import CALIBRATE_EVERY, TRIAL_SESSIONS
from meritory.engine.predictor.status import SLOW_CALLS_MIN
from meritory.store.contract.store import Store


def damage(desk: Desk, version: int) -> None:
    """Turns one bit of a model around."""
    damaged(desk.memory, version, lambda raw: raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:])


def heard(desk: Desk) -> list[tuple[str, str, Any]]:
    """What is told from now on: category, name and details."""
    told: list[tuple[str, str, Any]] = []
    desk.memory.services.observer.listen(lambda *one: told.append(one))
    return told


# -- a model that is lost ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_lost_model_gives_way_to_the_one_before(desk: Desk, how: str) -> None:
    noted(desk.memory)
    shelved(desk.memory, 2)
    shelved(desk.memory, 3)
    change(desk.memory, version=3, latest=3, previous=2, standing={"judged": 99, "active_since": 0})
    desk.memory.session("before", context="fix the alpha service")
    assert desk.record("before").model_version == 3
    assert state(desk.memory).fallbacks == 0
    if how == "damaged":
        damage(desk, 3)
    else:
        lost(desk.memory, 3)
    told = heard(desk)
    desk.memory.session("after", context="fix the alpha service")
    # The session was served by a model, and nothing failed.
    record = desk.record("after")
    assert (record.scorer, record.model_version) == ("features", 2)
    assert desk.failures() == []
    now = state(desk.memory)
    assert (now.version, now.fallbacks) == (2, 1)
    # What the lost one had earned went with it.
    assert now.alpha == 1.0
    (event,) = [one for one in told if one[1] == "predictor.fallback"]
    assert (event[2]["from"], event[2]["to"]) == (3, 2)
    (run,) = desk.store.training_runs(USER, 9)
    assert (run.reason, run.model_version) == ("fallback", 2)
    assert run.error == event[2]["fault"]
    status = desk.memory.predictor_status()
    assert status["fallbacks"] == 1
    assert any("model 3" in one and "model 2 serves" in one for one in status["warnings"])
    # Once, not with every session.
    desk.memory.session("later", context="fix the alpha service")
    assert state(desk.memory).fallbacks == 1


def test_without_any_other_the_base_stands_in(desk: Desk) -> None:
    noted(desk.memory)
    shelved(desk.memory, 1)
    damage(desk, 1)
    change(desk.memory, version=2, latest=2, previous=1)
    desk.memory.session("run", context="fix the alpha service")
    assert desk.record().model_version == 0
    assert state(desk.memory).version == 0


def test_a_model_that_is_newer_than_the_lost_one_is_not_taken(desk: Desk) -> None:
    """Somebody rolled it back, for a reason."""
    noted(desk.memory)
    shelved(desk.memory, 5)
    change(desk.memory, version=4, latest=5)
    desk.memory.session("run", context="fix the alpha service")
    assert desk.record().model_version == 0


def test_whoever_only_looks_changes_nothing(desk: Desk) -> None:
    change(desk.memory, version=4, latest=4)
    before = state(desk.memory)
    desk.memory.predictor_status()
    assert state(desk.memory) == before


class Full:
    """A store that cannot be written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, user: str | None, work: object) -> Any:
        raise Busy("somebody else writes")


def test_what_cannot_be_written_down_is_done_all_the_same(desk: Desk) -> None:
    from meritory.engine.predictor.state import state_of

    change(desk.memory, version=4, latest=4)
    services = replace(desk.memory.services, store=Full(desk.store))  # type: ignore[arg-type]
    assert state_of(services, USER).version == 0
    assert state(desk.memory).version == 4


def test_a_base_that_is_lost_is_told(desk: Desk) -> None:
    noted(desk.memory)
    shelves = desk.memory.services.shelves
    assert shelves is not None
    desk.equip(shelves=replace(shelves, base=shelves.folder / "nothing.sgpt"))
    desk.memory.session("run", context="fix the alpha service")
    assert any("model 0 is not usable" in one for one in desk.memory.predictor_status()["warnings"])


# -- kinds are not mixed ----------------------------------------------------------------------


def test_what_another_kind_of_scorer_won_proves_nothing(desk: Desk) -> None:
    ids = noted(desk.memory)
    order = desk.memory.session("look", context="fix the service").ranking
    liked = order[-1]
    assert liked in ids
    desk.equip(scorer=Preferring(liked))
    for n in range(12):
        held(desk, f"s{n}", [liked], context="fix the service")
    assert len(desk.store.record(USER, "features", 99).ndcg) == 12
    assert len(desk.store.record(USER, "attention", 99).ndcg) == 0
    # The next kind has a proof by the letter, but no session of its own.
    set_state(desk, scorer="attention", version=7, standing=earned(earned_alpha=1.0))
    assert all(one["session_count"] == 0 for one in desk.memory.predictor_status()["weighings"])
    held(desk, "of the former kind", [liked], context="fix the service")
    assert desk.memory.predictor_status()["alpha"] == 1.0


def test_a_session_names_the_scorer_of_its_model(desk: Desk) -> None:
    """The settings may name a kind of which no model has been trained yet."""
    from meritory.engine.predictor.state import served_kind

    services = desk.memory.services
    assert services.scorer is not None
    services.scorer.name = "attention"  # type: ignore[misc]
    assert served_kind(services.scorer, state(desk.memory)) == "features"
    desk.equip(scorer=Preferring())
    assert served_kind(desk.memory.services.scorer, state(desk.memory)) == "features"
    desk.equip(scorer=None)
    assert served_kind(desk.memory.services.scorer, state(desk.memory)) is None


# -- what is told -----------------------------------------------------------------------------


def test_every_turn_in_its_life_is_told(desk: Desk) -> None:
    ids = noted(desk.memory)
    desk.equip(trainer=None)
    change(desk.memory, version=0, trial_sessions=TRIAL_SESSIONS - 1, trial_wins=5.0)
    told = heard(desk)
    lived(desk.memory, desk.clock, ids, 1)
    names = [name for category, name, _ in told if category == "predictor"]
    assert {"predictor.compare", "predictor.fts_overlap", "predictor.ema_update"} <= set(names)
    (overlap,) = [one for _, name, one in told if name == "predictor.fts_overlap"]
    assert (overlap["hit"], overlap["share"]) == (0, 0.0)
    assert overlap["shown"] > 0
    (trial,) = [one for _, name, one in told if name == "predictor.trial"]
    assert (trial["sessions"], trial["passed"]) == (TRIAL_SESSIONS, True)


def test_scores_that_fail_are_told(desk: Desk) -> None:
    noted(desk.memory)

    class Broken(Preferring):
        def score(self, request: object) -> Any:
            raise Busy("no time")

    desk.equip(scorer=Broken())
    told = heard(desk)
    desk.memory.session("run", context="fix the alpha service")
    (crash,) = [one for _, name, one in told if name == "predictor.crash"]
    assert "no time" in crash["error"]


def test_a_few_calls_are_no_slowness(desk: Desk) -> None:
    observer = desk.memory.services.observer
    for _ in range(SLOW_CALLS_MIN - 1):
        observer.took("predictor_score", 1_000.0)
        assert not desk.memory.predictor_status()["latency"]["is_slow"]
    observer.took("predictor_score", 1_000.0)
    assert desk.memory.predictor_status()["latency"]["is_slow"]


# -- people are to be asked -------------------------------------------------------------------

TALK = [
    {"role": "user", "text": "Fix the alpha service, it does not answer any more. " * 5},
    {"role": "tool", "text": "curl http://localhost:4000/health, team tango was told"},
    {"role": "assistant", "text": "The alpha service listens on port 4000 again. " * 8},
]


def test_a_calibration_falls_due_after_enough_sessions_that_a_judge_spoke_about(desk: Desk) -> None:
    ids = noted(desk.memory)
    desk.clock.go(days=1)
    change(desk.memory, uncalibrated=CALIBRATE_EVERY - 1)
    # Nobody judged this one.
    lived(desk.memory, desk.clock, ids, 1)
    assert not desk.memory.predictor_status()["calibration"]["is_due"]
    told = heard(desk)
    session = desk.memory.session("judged", context="fix the alpha service")
    desk.finish(session, TALK)
    score = desk.score("judged")
    assert score is not None
    assert (score.judge, score.excluded) == ("rules", None)
    status = desk.memory.predictor_status()
    assert status["calibration"]["is_due"]
    assert any("predictor calibrate" in one for one in status["warnings"])
    (due,) = [one for _, name, one in told if name == "predictor.calibration_due"]
    assert due["sessions"] == CALIBRATE_EVERY
