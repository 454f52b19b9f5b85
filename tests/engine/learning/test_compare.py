"""The end of learning: what is compared, what is left out and why, and what it moves, once."""

from __future__ import annotations

import json
import math
import os
import signal
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from predictor_kit import (
    USER,
    VALID,
    Preferring,
    Told,
    comparison,
    drain,
    earned,
    events,
    finish,
    held,
    set_standing,
    set_state,
    state,
    train_jobs,
)
from session_kit import NOTES, Desk, filler, talk

from meritory.domain.errors import PortTimeout
from meritory.domain.job import Lease
from meritory.domain.predictor import ComparisonQuery
from meritory.engine.jobs.runner import Handler, JobEvent, JobRunner
from meritory.engine.learning.compare import FIRST_TRAINING_SESSIONS, SLOW_TRAINING_SESSIONS
from meritory.engine.pipeline import LEARN, job_handler
from meritory.engine.predictor.state import (
    SHADOW_SESSIONS,
    TRAIN_JOB,
    TRIAL_SESSIONS,
    PredictorState,
    decoded,
)
from meritory.engine.predictor.train_job import order
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.model.canary import is_canary
from meritory.ports.scorer import ScoreRequest
from meritory.rank import influence
from meritory.rank.composite import NO_TRUST, Trust
from meritory.rank.features import FEATURE_VERSION
from meritory.rank.influence import MIN_RECORD, HistoryProof, InfluenceState
from meritory.store.contract.store import Transaction
from places import Places

CONTEXT = "which item weighs most, in stone?"


class Silent:
    """A scorer that is never there in time."""

    name = "features"

    def score(self, request: ScoreRequest) -> Any:
        raise PortTimeout("too slow")

    def close(self) -> None:
        """There is nothing to end."""


@pytest.fixture
def items(desks: Callable[..., Desk]) -> Desk:
    """A store of alike items, and a scorer that puts the last one first, then the second."""
    desk = desks(embedder_kind="none")
    desk.note(*filler(30))
    desk.clock.go(days=3)
    order = desk.memory.session("before", context=CONTEXT).ranking
    desk.equip(scorer=Preferring(order[-1], order[1]))
    return desk


@pytest.fixture
def valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels of every session agree with relevance; what helps here is planted elsewhere."""
    monkeypatch.setattr("meritory.rank.influence.prove_history", lambda sessions: VALID)


def best_of_baseline(desk: Desk, key: str) -> str:
    """Return the memory that the baseline ranked first in a session."""
    (found,) = [one for one, row in desk.rows(key).items() if row.candidate.baseline_rank == 1]
    return found


def first(desk: Desk) -> str:
    """The one that the scorer likes, which the baseline puts last."""
    scorer = desk.memory.services.scorer
    assert isinstance(scorer, Preferring)
    return scorer.wanted[0]


# -- one comparison ---------------------------------------------------------------------------


def test_the_table_of_stages_says_what_runs() -> None:
    assert [one.name for one in LEARN] == ["judge", "label", "compare", "searches", "fit"]


def test_a_session_is_compared_as_it_was_served(items: Desk) -> None:
    desk, liked = items, first(items)
    found = held(desk, "run", [liked], CONTEXT)
    rows = desk.rows("run")
    outcome = influence.compare(
        [one.candidate.baseline_rank or 0 for one in rows.values()],
        [one.candidate.predictor_rank or 0 for one in rows.values()],
        [one.label or 0.0 for one in rows.values()],
    )
    assert outcome is not None
    assert (found.predictor_ndcg, found.baseline_ndcg) == (1.0, outcome.baseline_ndcg)
    assert found.baseline_ndcg == 0.0
    assert (found.predictor_won, found.margin, found.reason) == (1.0, 1.0, None)
    assert found.ema_updated
    assert found.replay_ndcg == pytest.approx(outcome.ndcg)
    assert found.replay_log_rank == pytest.approx(outcome.log_rank)
    assert found.replay_log_rank[-1] == pytest.approx(math.log(len(rows)))
    assert (found.scorer, found.model_version, found.project) == ("features", 0, "shop")
    assert found.scorer_confidence == 1.0
    assert found.success_rate == pytest.approx(0.55) == state(desk).standing.success_rate
    assert found.alpha == 1.0
    assert found.at == desk.clock.now
    assert found.predictor_top_ids[0] == liked
    by_baseline = sorted(rows, key=lambda one: rows[one].candidate.baseline_rank or 0)
    assert found.baseline_top_ids == tuple(by_baseline[:10])
    assert found.relevance_scores[liked] == 1.0
    assert set(found.relevance_scores) == set(rows)
    assert found.fts_overlap_score == 0.0
    told = events(desk, "predictor.compare", "run")
    ndcg = {"predictor_ndcg": 1.0, "baseline_ndcg": 0.0}
    assert told == [{**ndcg, "winner": "predictor", "margin": 1.0, "model_version": 0}]
    expected = {"success_rate_before": 0.5, "success_rate": 0.55, "alpha": 1.0}
    assert events(desk, "predictor.ema_update", "run") == [expected]
    assert not events(desk, "predictor.ema_skip", "run")


def test_wins_ties_and_losses_move_the_rate(items: Desk) -> None:
    desk, liked = items, first(items)
    best = desk.memory.session("look", context=CONTEXT).ranking[0]
    assert held(desk, "lost", [best]).predictor_won == 0.0
    # The order among the others is the baseline's, two places down: beyond the tenth it is a tie.
    far = desk.memory.session("again", context="stone").ranking[20]
    assert held(desk, "tied", [far]).predictor_won == 0.5
    assert held(desk, "won", [liked]).predictor_won == 1.0
    standing = state(desk).standing
    assert (standing.judged, standing.non_ties, standing.wins) == (3, 2, 1)
    logged = [events(desk, "predictor.compare", key)[-1] for key in ("lost", "tied", "won")]
    assert [one["winner"] for one in logged] == ["baseline", "tie", "predictor"]
    assert logged[1]["margin"] == pytest.approx(0.0, abs=1e-6)
    assert standing.success_rate == pytest.approx((0.5 * 0.9 * 0.9 + 0.05) * 0.9 + 0.1)


def unjudged(desk: Desk) -> None:
    desk.memory.session("run", context=CONTEXT).end()


def unclear(desk: Desk) -> None:
    nothing = talk("And what of the weather in the hills today?", "It rains there, and no more.")
    desk.memory.session("run", context=CONTEXT).end(nothing)


def silent(desk: Desk) -> None:
    desk.equip(scorer=Silent())
    session = desk.memory.session("run", context=CONTEXT)
    finish(desk, "run", {session.ranking[0]: 1.0})


def barren(desk: Desk) -> None:
    session = desk.memory.session("run", context=CONTEXT)
    finish(desk, "run", {session.ranking[0]: -1.0})


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        (unjudged, "not judged"),
        (unclear, None),
        (silent, "the predictor was silent"),
        (barren, "nothing helped"),
    ],
)
def test_what_is_left_out_is_recorded_with_the_reason(
    items: Desk, live: Callable[[Desk], None], reason: str | None
) -> None:
    desk = items
    live(desk)
    drain(desk)
    found = comparison(desk, "run")
    score = desk.score("run")
    wanted = reason or (score.excluded if score else None)
    assert wanted
    assert found.reason == wanted
    assert (found.predictor_won, found.ema_updated) == (None, False)
    assert (found.success_rate, found.alpha) == (0.5, 1.0)
    assert state(desk).standing == InfluenceState()
    assert desk.store.record(USER, "features", 9).ndcg.size == 0
    assert events(desk, "predictor.ema_skip", "run") == [{"reason": wanted}]
    assert [one["winner"] for one in events(desk, "predictor.compare", "run")] == [None]
    assert not events(desk, "predictor.ema_update", "run")
    assert desk.store.canary_count(USER) == 0


def test_a_session_without_candidates_has_nothing_to_compare(desk: Desk) -> None:
    desk.memory.session("run", context=CONTEXT)
    finish(desk, "run", {})
    assert drain(desk) == 1
    assert desk.store.comparison(USER, "run") is None
    assert desk.record("run").state == "finished"


def test_what_came_in_by_a_prompt_is_no_part_of_it(desks: Callable[..., Desk]) -> None:
    """It has no place in either ranking: a label of its own must not move what is compared."""
    desk = desks(embedder_kind="none")
    (late,) = desk.note("The quayside crane moans in gale force winds", importance=0.1)
    desk.clock.go(days=300)
    desk.note(*filler(30))
    desk.tune(candidate_pool_size=10)
    session = desk.memory.session("run", context="stone of the harbour attic orchard")
    assert late not in session.ranking
    served = session.prompt("why does the quayside crane moan in the gale?")
    assert late in [one.id for one in served.memories]
    finish(desk, "run", {late: 1.0})
    drain(desk)
    assert desk.rows("run")[late].label == 1.0
    assert comparison(desk, "run").reason is not None
    assert late not in comparison(desk, "run").relevance_scores
    assert desk.store.taught_sessions(USER, FEATURE_VERSION, 9) == []


# -- once only --------------------------------------------------------------------------------


def rated(desk: Desk) -> tuple[str, str]:
    """A session that the agent rated and nobody else spoke about; what helped and what did not."""
    session = desk.memory.session("run", context=CONTEXT)
    session.rate({"m1": 1.0, "m2": 0.0})
    session.end()
    return session.memories[0].id, session.memories[1].id


def test_a_session_that_is_labelled_anew_does_not_count_again(items: Desk) -> None:
    desk = items
    helped, shown = rated(desk)
    drain(desk)
    before, standing = comparison(desk, "run"), state(desk)
    assert before.relevance_scores[helped] == 1.0
    assert standing.standing.judged == 1
    for hours in (1, 2):
        desk.clock.go(hours=hours)
        desk.memory.forget(shown)
        assert drain(desk) == 1
        again = comparison(desk, "run")
        assert again.relevance_scores[shown] == -0.5
        desk.memory.undo(shown)
        assert drain(desk) == 1
    after = comparison(desk, "run")
    assert replace(after, number=None) == replace(before, number=None)
    assert state(desk) == standing
    assert len(events(desk, "predictor.ema_update", "run")) == 1
    assert events(desk, "predictor.ema_skip", "run") == [{"reason": "counted before"}] * 4


def test_one_that_is_left_out_and_comes_back_counts_once(items: Desk) -> None:
    desk = items
    shown, _ = rated(desk)
    drain(desk)
    won = comparison(desk, "run").predictor_won
    assert won is not None
    standing = state(desk)
    assert standing.standing.judged == 1
    # Deleted, it did not help after all; then it did.
    desk.memory.forget(shown)
    drain(desk)
    gone = comparison(desk, "run")
    assert (gone.predictor_won, gone.ema_updated) == (None, True)
    assert gone.reason
    assert desk.store.record(USER, "features", 9).ndcg.size == 0
    desk.memory.undo(shown)
    drain(desk)
    assert comparison(desk, "run").predictor_won == won
    assert state(desk) == standing
    assert len(desk.store.record(USER, "features", 9).ndcg) == 1


def test_one_that_counts_late_counts_once(items: Desk) -> None:
    desk = items
    shown, _ = rated(desk)
    desk.memory.forget(shown)
    drain(desk)
    assert comparison(desk, "run").reason
    assert state(desk).standing.judged == 0
    desk.memory.undo(shown)
    drain(desk)
    assert comparison(desk, "run").reason is None
    assert state(desk).standing.judged == 1


def dying(handler: Handler, name: str, *, is_committed: bool) -> Handler:
    """The same stages, of which one is killed right before its effect is committed."""

    def kill(transaction: Transaction) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(work: Any) -> Any:
        def run(job: Any) -> Any:
            effect = work(job)

            def both(transaction: Transaction) -> None:
                effect(transaction)
                kill(transaction)

            return both

        return run

    if is_committed:
        return handler
    return [(stage, wrapped(work) if stage == name else work) for stage, work in handler]


@pytest.mark.parametrize("is_committed", [False, True])
def test_kill_9_around_the_effect_is_harmless(
    desks: Callable[..., Desk], places: Places, is_committed: bool
) -> None:
    desk = desks(embedder_kind="none")
    desk.note(*filler(10))
    session = desk.memory.session("run", context=CONTEXT)
    finish(desk, "run", {session.ranking[-1]: 1.0})
    desk.memory.close()
    child = os.fork()
    if child == 0:
        try:
            memory = places.memory(project="shop", clock=desk.clock, background=False)
            services = memory.services
            handler = dying(job_handler(services, LEARN), "compare", is_committed=is_committed)

            def observe(event: JobEvent) -> None:
                if event.outcome == "stage" and event.job.stage == "compare":
                    os.kill(os.getpid(), signal.SIGKILL)

            JobRunner(services.store, services.world, {LEARN_JOB: handler}, observe).drain()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    again = desks(embedder_kind="none")
    assert (again.store.comparison(USER, "run") is not None) == is_committed
    assert state(again).standing.judged == int(is_committed)
    # Nobody waits longer than the lease of who died.
    again.clock.go(minutes=10)
    assert drain(again) == 1
    assert comparison(again, "run").ema_updated
    assert state(again).standing.judged == 1
    assert len(events(again, "predictor.compare", "run")) == 1
    assert again.store.check(deep=True) == []


# -- canaries ---------------------------------------------------------------------------------


def canary_keys(count: int) -> tuple[list[str], list[str]]:
    """Keys of sessions that are kept out of training, and of others."""
    every = [f"s{n}" for n in range(400)]
    chosen = [key for key in every if zlib.crc32(f"canary {USER} {key}".encode()) % 10 == 0]
    assert 25 < len(chosen) < 60
    return chosen[:count], [key for key in every if key not in chosen][:count]


def test_one_session_in_ten_is_kept_out_of_training(items: Desk) -> None:
    desk, liked = items, first(items)
    chosen, others = canary_keys(3)
    for key in (*chosen, *others):
        held(desk, key, [liked])
    taught = {
        one.key: one.is_canary for one in desk.store.taught_sessions(USER, FEATURE_VERSION, 99)
    }
    assert taught == {**dict.fromkeys(chosen, True), **dict.fromkeys(others, False)}
    # One that no longer counts is no canary.
    desk.memory.forget(liked, purge=True)
    desk.store.write(USER, lambda t: t.requeue_job(USER, LEARN_JOB, chosen[0], desk.clock.now))
    drain(desk)
    assert comparison(desk, chosen[0]).reason
    assert desk.store.canary_count(USER) == 2


# -- trial and shadow -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "previous", "version"),
    [(2.5, 1, 1), (3.0, 1, 2), (0.0, None, 2)],
)
def test_a_new_model_that_loses_gives_its_place_back(
    items: Desk, wins: float, previous: int | None, version: int
) -> None:
    desk = items
    set_state(
        desk,
        version=2,
        previous=previous,
        previous_scorer="attention",
        trial_sessions=TRIAL_SESSIONS - 1,
        trial_wins=wins,
    )
    best = desk.memory.session("look", context="stone").ranking[0]
    assert held(desk, "run", [best]).predictor_won == 0.0
    now = state(desk)
    assert now.version == version
    assert now.trial_sessions == TRIAL_SESSIONS
    if version == 1:
        assert (now.scorer, now.previous) == ("attention", None)
        assert events(desk, "predictor.gave_way", "run") == [{"to": 1}]
        # It is not on trial again.
        desk.equip(trainer=None)
        for n in range(TRIAL_SESSIONS + 1):
            held(desk, f"after {n}", [best])
        assert state(desk).version == 1
    else:
        assert not events(desk, "predictor.gave_way", "run")


def test_only_its_own_sessions_try_a_model(items: Desk) -> None:
    desk = items
    session = desk.memory.session("run", context="stone")
    # Another model was put in its place while the session lasted.
    set_state(desk, version=2, previous=0, trial_sessions=9, trial_wins=0.0)
    finish(desk, "run", {session.ranking[0]: 1.0})
    drain(desk)
    assert comparison(desk, "run").model_version == 0
    assert (state(desk).version, state(desk).trial_sessions) == (2, 9)
    assert state(desk).standing.judged == 1


@pytest.mark.usefixtures("valid")
def test_another_kind_of_scorer_is_watched_before_it_is_heard(items: Desk) -> None:
    desk = items
    desk.equip(trainer=None)
    order = desk.memory.session("look", context="stone").ranking[::-1]
    set_standing(desk, judged=20, non_ties=20, wins=20)
    # Never the same one, so that the margins vary.
    for n in range(MIN_RECORD):
        desk.equip(scorer=Preferring(order[2 * n]))
        held(desk, f"before {n}", [order[2 * n]])
    assert state(desk).alpha < 1.0
    set_state(desk, shadow_left=SHADOW_SESSIONS)
    served = []
    for n in range(SHADOW_SESSIONS + 1):
        desk.equip(scorer=Preferring(order[2 * n + 1]))
        held(desk, f"s{n}", [order[2 * n + 1]])
        served.append(desk.record(f"s{n}").alpha)
        if n < SHADOW_SESSIONS - 1:
            assert comparison(desk, f"s{n}").alpha == 1.0
    assert served[:SHADOW_SESSIONS] == [1.0] * SHADOW_SESSIONS
    assert served[SHADOW_SESSIONS] < 1.0
    assert state(desk).shadow_left == 0
    # Its sessions were recorded and compared all the same.
    assert len(desk.store.record(USER, "features", 99).ndcg) == MIN_RECORD + SHADOW_SESSIONS + 1


def some_keys(count: int, *, canary: bool, prefix: str = "s") -> list[str]:
    """Keys of sessions that models are, or are not, examined on."""
    every = (f"{prefix}{n}" for n in range(1000))
    return [key for key in every if is_canary(USER, key) == canary][:count]


# -- orders -----------------------------------------------------------------------------------


def test_the_first_training_is_ordered_after_three_sessions_and_only_once(items: Desk) -> None:
    """None of these sessions is a canary: they examine a model by cross-fitting."""
    desk, liked = items, first(items)
    # Nobody runs trainings here: their jobs wait.
    desk.equip(trainer=Told())
    handlers = {LEARN_JOB: job_handler(desk.memory.services, LEARN)}
    runner = JobRunner(desk.store, desk.memory.services.world, handlers)
    reasons, queued = [], []
    for key in some_keys(6, canary=False):
        desk.memory.session(key, context="stone")
        finish(desk, key, {liked: 1.0})
        runner.drain()
        reasons.append(state(desk).order_reason)
        queued.append([(one.state, one.created_at) for one in train_jobs(desk)])
        desk.clock.go(hours=1)
    assert reasons == [None] * (FIRST_TRAINING_SESSIONS - 1) + ["interval"] * 4
    assert state(desk).fresh_sessions == 6
    assert queued[1] == []
    # One job, the same one, that waits.
    assert len(queued[2]) == 1
    assert queued[2] == queued[3] == queued[5]
    assert queued[2][0][0] == "queued"
    assert desk.store.canary_count(USER) == 0


@pytest.mark.parametrize(("interval", "wanted"), [(1, [3, 4, 5, 6, 7, 8]), (4, [3, 7])])
def test_later_trainings_follow_the_interval(items: Desk, interval: int, wanted: list[int]) -> None:
    desk, liked = items, first(items)
    trainer = Told()
    desk.equip(trainer=trainer)
    if interval != 1:
        desk.tune(train_interval_sessions=interval)
    ordered_after = []
    for n in range(1, 9):
        before = len(trainer.orders)
        held(desk, f"s{n}", [liked])
        ordered_after += [n] * (len(trainer.orders) - before)
    assert ordered_after == wanted
    assert [one.version for one in trainer.orders] == list(range(1, len(wanted) + 1))


def test_a_scorer_that_takes_long_to_fit_is_trained_less_often(items: Desk) -> None:
    desk, liked = items, first(items)
    trainer = Told()
    desk.equip(trainer=trainer)
    desk.tune(scorer="attention")
    set_state(desk, fresh_sessions=SLOW_TRAINING_SESSIONS - 2, latest=1)
    held(desk, "soon", [liked])
    assert trainer.orders == []
    held(desk, "due", [liked])
    assert len(trainer.orders) == 1


@pytest.mark.parametrize("off", ["trainer", "state"])
def test_nothing_is_ordered_where_nobody_trains(items: Desk, off: str) -> None:
    desk, liked = items, first(items)
    set_state(desk, fresh_sessions=50)
    set_standing(desk, judged=50)
    desk.equip(trainer=None if off == "trainer" else Told())
    desk.memory.session("run", context="stone")
    if off == "state":
        set_state(desk, is_enabled=False)
    finish(desk, "run", {liked: 1.0})
    drain(desk)
    assert state(desk).order_reason is None
    assert train_jobs(desk) == []


def test_sessions_in_which_the_predictor_was_silent_bring_the_next_training_nearer(
    items: Desk,
) -> None:
    """A model that cannot be loaded must not keep its successor from being trained."""
    desk, liked = items, first(items)
    trainer = Told()
    desk.equip(trainer=trainer, scorer=Silent())
    desk.tune(train_interval_sessions=10)
    set_state(desk, fresh_sessions=8, latest=1)
    set_standing(desk, judged=50)
    held(desk, "silent", [liked])
    assert state(desk).fresh_sessions == 9
    assert not trainer.orders
    held(desk, "barren", {liked: -1.0})
    assert state(desk).fresh_sessions == 9
    held(desk, "again", [liked])
    assert [one.reason for one in trainer.orders] == ["interval"]


def test_a_drift_takes_all_influence_and_orders_a_training(items: Desk) -> None:
    desk = items
    trainer = Told(is_accepted=False)
    desk.equip(trainer=trainer)
    best = desk.memory.session("look", context="stone").ranking[0]
    low = earned(success_rate=0.2, low_streak=9)
    set_state(desk, standing=low, order_reason="interval")
    desk.memory.session("run", context="stone")
    finish(desk, "run", {best: 1.0})
    handlers = {LEARN_JOB: job_handler(desk.memory.services, LEARN)}
    JobRunner(desk.store, desk.memory.services.world, handlers).drain()
    now = state(desk)
    assert (now.alpha, now.standing.success_rate, now.standing.drift_resets) == (1.0, 0.5, 1)
    # It comes before what was ordered already.
    assert now.order_reason == "drift"
    assert [one.state for one in train_jobs(desk)] == ["queued"]
    assert comparison(desk, "run").alpha == 1.0
    assert events(desk, "predictor.drift_reset", "run") == [
        {"drift_resets": 1, "streak": 10, "replay_size": 1}
    ]
    line = desk.memory.session("next", context="stone").status_line
    assert line == "[meritory: retraining | drift | baseline]"
    drain(desk)
    (ordered,) = trainer.orders
    assert (ordered.reason, ordered.after_reset) == ("drift", True)
    assert state(desk).order_reason is None


@pytest.mark.parametrize(("low_streak", "job_state"), [(0, "running"), (9, "queued")])
def test_a_training_under_way_is_disturbed_by_a_drift_alone(
    items: Desk, low_streak: int, job_state: str
) -> None:
    """What it learns from is the same but for one session; what it is for is not."""
    desk = items
    desk.equip(trainer=Told())
    set_state(desk, standing=earned(success_rate=0.2, low_streak=low_streak), fresh_sessions=20)
    now = desk.clock.now
    desk.store.write("default", lambda t: order(t, USER, "interval", now))
    lease = Lease("another process", now, timedelta(minutes=5))
    assert desk.store.write(None, lambda t: t.take_job(lease, [TRAIN_JOB]))
    desk.memory.session("run", context="stone")
    finish(desk, "run", {best_of_baseline(desk, "run"): 1.0})
    handlers = {LEARN_JOB: job_handler(desk.memory.services, LEARN)}
    JobRunner(desk.store, desk.memory.services.world, handlers).drain()
    assert comparison(desk, "run").predictor_won == 0.0
    assert [one.state for one in train_jobs(desk)] == [job_state]


@pytest.mark.usefixtures("valid")
def test_leaving_cold_start_is_told(items: Desk) -> None:
    desk = items
    desk.equip(trainer=None)
    keys = [f"s{n}" for n in range(12)]
    # What helped before rises in the baseline: each time another one.
    order = desk.memory.session("look", context="stone").ranking[::-2]
    left = []
    for key, wanted in zip(keys, order, strict=False):
        desk.equip(scorer=Preferring(wanted))
        if held(desk, key, [wanted]).alpha < 1.0:
            left.append(key)
    assert left == keys[9:]
    (told,) = events(desk, "predictor.cold_start_exit", "s9")
    assert told["judged"] == 10
    assert told["alpha"] == desk.record("s10").alpha < 1.0


def test_without_valid_labels_cold_start_does_not_end(items: Desk) -> None:
    """What helps stands last by relevance: labels like these may be drawn by lot."""
    desk = items
    desk.equip(trainer=None)
    order = desk.memory.session("look", context="stone").ranking[::-2]
    for n, wanted in enumerate(order[:12]):
        desk.equip(scorer=Preferring(wanted))
        assert held(desk, f"s{n}", [wanted]).predictor_won == 1.0
    kept = state(desk)
    assert not influence.missing(kept.standing)
    assert kept.history.session_count == 12
    assert not kept.history.is_valid
    assert (kept.alpha, kept.standing.is_cold, kept.history.trust) == (1.0, True, NO_TRUST)


# -- whose it is ------------------------------------------------------------------------------


def test_every_user_has_a_predictor_of_their_own(items: Desk) -> None:
    desk, liked = items, first(items)
    ann = Desk(desk.memory.view(user="ann", project="shop"), desk.clock)
    hers, other = ann.note("The lathe of the barn weighs 9 stone", "The loom of the attic hums")
    held(desk, "run", [liked])
    before = state(desk)
    found = held(ann, "run", [hers])
    assert found.relevance_scores == {hers: 1.0, other: 0.0}
    # The scorer knows neither of hers, and the orders are the same.
    assert found.predictor_won == 0.5
    assert state(ann, "ann").standing.judged == 1
    assert state(desk) == before
    assert [one.session_key for one in desk.store.comparisons("ann", ComparisonQuery())] == ["run"]
    assert liked in comparison(desk, "run").relevance_scores
    assert set(desk.store.taught_sessions("ann", FEATURE_VERSION, 9)[0].memory_ids) == {hers, other}


def test_a_purge_is_no_second_count_and_leaves_no_trace(items: Desk) -> None:
    desk, liked = items, first(items)
    held(desk, "run", [liked])
    before = state(desk)
    desk.memory.forget(liked, purge=True)
    drain(desk)
    assert liked not in comparison(desk, "run").relevance_scores
    assert state(desk) == before
    desk.store.write(USER, lambda t: t.requeue_job(USER, LEARN_JOB, "run", desk.clock.now))
    drain(desk)
    assert comparison(desk, "run").ema_updated
    # Nothing else in it helped: compared again, it proves nothing.
    assert before.history.session_count == 1
    assert state(desk) == replace(before, history=HistoryProof())


# -- the state --------------------------------------------------------------------------------


def test_the_state_is_kept_whole(items: Desk) -> None:
    full = PredictorState(
        standing=earned(low_streak=3, drift_resets=2, calm_until=110, success_rate=0.625),
        version=5,
        scorer="attention",
        previous=4,
        previous_scorer="features",
        latest=6,
        best=3,
        best_ndcg=0.5,
        is_enabled=False,
        fresh_sessions=7,
        order_reason="asked",
        last_trained_at=items.clock.now,
        last_loss=1.5,
        failures=2,
        shadow_left=1,
        trial_sessions=4,
        trial_wins=2.5,
        history=HistoryProof(Trust(0.5, 1.0), 12, 2.5, True, 0.25, 0.125),
        uncalibrated=12,
        fallbacks=3,
        lost="model 5: gone",
        surfaces={"recall": PredictorState(version=2, models={"2": (0.5, -1.0)})},
        models={"1": (0.25,)},
    )
    bare = PredictorState()
    assert [name for name in full.__slots__ if getattr(full, name) == getattr(bare, name)] == [
        # The base is of this kind, so there is no other value that differs.
        "previous_scorer"
    ]
    assert decoded(full.encoded()) == full
    assert decoded(None) == bare
    assert decoded(bare.encoded()) == bare


def test_a_state_of_another_version_of_the_program_can_be_read() -> None:
    kept: Mapping[str, Any] = {"standing": {"judged": 3}, "replay": [], "unheard_of": 1}
    assert decoded(json.dumps(kept)).standing == InfluenceState(judged=3)


def test_without_a_scorer_nobody_is_heard_whatever_was_earned(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_enabled="false")
    desk.note(*NOTES)
    desk.grant(0.2)
    session = desk.memory.session("run", context="stripe")
    assert desk.record("run").alpha == 1.0
    assert session.status_line == "[meritory: disabled | switched off | baseline]"
