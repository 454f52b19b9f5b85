"""The job that trains the predictor: an order out of the state, and its outcome back into it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from meritory.domain.errors import MeritoryError
from meritory.domain.job import Job
from meritory.domain.predictor import TrainingRun
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect, no_effect, queue_job
from meritory.engine.observe.observer import make_events, publish
from meritory.engine.predictor.state import (
    SHADOW_SESSIONS,
    TRAIN_JOB,
    TRAIN_KEY,
    PredictorState,
    decoded,
    known_state,
)
from meritory.engine.services import Services
from meritory.ports.scorer import BASE_VERSION
from meritory.ports.trainer_process import TrainOrder, TrainReport
from meritory.rank import influence
from meritory.store.contract.store import Transaction

# The fields of a report that a training run keeps.
REPORTED = tuple(name for name in TrainReport.__slots__ if name in TrainingRun.__slots__)


def order(transaction: Transaction, user: str, reason: str, now: datetime) -> None:
    """Order a training, unless one is ordered already."""
    state = decoded(transaction.predictor_state(user))
    if state.order_reason is None:
        transaction.set_predictor_state(user, replace(state, order_reason=reason).encoded())
    queue_job(transaction, user, TRAIN_JOB, TRAIN_KEY, now)


def train(services: Services, job: Job) -> Effect:
    """Train a challenger in its own process, and let it serve if every gate passes."""
    state = known_state(services, job.user)
    if services.trainer is None or state.order_reason is None:
        return no_effect
    serving = services.store.serving_embedder()
    wanted = TrainOrder(
        user=job.user,
        scorer=services.policy.predictor.scorer,
        version=state.latest + 1,
        incumbent=state.version,
        best=state.best,
        reason=state.order_reason,
        at=services.world.now(),
        embedder=None if serving is None else serving.name,
        rrf_k=services.policy.predictor.rrf_k,
        # A model need not resemble the base that all users share.
        after_reset=state.order_reason == "drift" or state.version == BASE_VERSION,
    )
    try:
        with services.observer.timed("predictor_train"):
            report = services.trainer.train(wanted)
    except MeritoryError as error:
        services.observer.failed("predictor_train_failure", error)
        report = TrainReport(
            version=wanted.version,
            scorer=wanted.scorer,
            is_accepted=False,
            error=str(error),
        )
    record = services.store.record(job.user, wanted.scorer, influence.RECORD_SESSIONS)

    def effect(transaction: Transaction) -> After:
        before = decoded(transaction.predictor_state(job.user))
        after = after_training(before, wanted, report)
        if report.is_accepted:
            weighings = influence.weigh(record, after.history)
            policy = services.policy.predictor
            standing = influence.weighed(
                after.standing, weighings, policy.influence, policy.min_training_sessions
            )
            after = replace(after, standing=standing)
        transaction.set_predictor_state(job.user, after.encoded())
        run = TrainingRun(
            at=wanted.at,
            reason=wanted.reason,
            model_version=wanted.version,
            train_validation_failures=after.failures,
            drift_resets=after.standing.drift_resets,
            **{name: getattr(report, name) for name in REPORTED},
        )
        transaction.add_training_run(job.user, run)
        events = _events(wanted, report, before, after)
        transaction.log_events(job.user, events)
        return partial(publish, services, events)

    return effect


def after_training(
    state: PredictorState, wanted: TrainOrder, report: TrainReport
) -> PredictorState:
    """The state after a training; a refused model leaves what serves as it is."""
    state = replace(
        state,
        fresh_sessions=0,
        order_reason=None,
        latest=max(state.latest, wanted.version),
        last_trained_at=wanted.at,
        last_loss=report.loss,
    )
    if not report.is_accepted:
        return replace(state, failures=state.failures + 1)
    # Held against the best itself, on the same sessions: many small steps down would pass one by
    # one against the model before.
    is_better = report.canary_best_delta is None or report.canary_best_delta >= 0.0
    return replace(
        state,
        version=wanted.version,
        scorer=wanted.scorer,
        previous=state.version,
        previous_scorer=state.scorer,
        best=wanted.version if is_better else state.best,
        best_ndcg=report.canary_ndcg if is_better else state.best_ndcg,
        shadow_left=SHADOW_SESSIONS if wanted.scorer != state.scorer else state.shadow_left,
        trial_sessions=0,
        trial_wins=0.0,
        lost=None,
    )


def _events(
    wanted: TrainOrder, report: TrainReport, before: PredictorState, after: PredictorState
) -> list[Event]:
    details: dict[str, dict[str, object]] = {
        "predictor.train": {
            "model_version": report.version,
            "accepted": report.is_accepted,
            "refused_by": [str(gate["name"]) for gate in report.gates if not gate["passed"]],
            "reason": wanted.reason,
            "samples": report.sample_count,
            "loss": report.loss,
            "alpha": after.alpha,
            "duration_ms": round(report.duration_ms, 1),
        }
    }
    if report.is_accepted:
        details["predictor.swap"] = {
            "from": before.version,
            "to": after.version,
            "scorer": after.scorer,
            "shadow_left": after.shadow_left,
        }
    if before.standing.is_cold and not after.standing.is_cold:
        details["predictor.cold_start_exit"] = {
            "judged": after.standing.judged,
            "success_rate": round(after.standing.success_rate, 6),
            "alpha": after.alpha,
        }
    return make_events(details, wanted.at)
