"""The job that trains the predictor: an order out of the state, and its outcome back into it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from meritory.domain.errors import MeritoryError
from meritory.domain.job import Job
from meritory.domain.predictor import TrainingRun
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect, no_effect
from meritory.engine.observe.observer import publish
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


def order(transaction: Transaction, user: str, reason: str, now: datetime) -> None:
    """Orders a training, unless one is ordered already."""
    state = decoded(transaction.predictor_state(user))
    if state.order_reason is None:
        transaction.set_predictor_state(user, replace(state, order_reason=reason).encoded())
    queue(transaction, user, now)


def queue(transaction: Transaction, user: str, now: datetime) -> None:
    """Sees to it that the job is there and waits."""
    if not transaction.requeue_job(user, TRAIN_JOB, TRAIN_KEY, now):
        transaction.put_job(user, TRAIN_JOB, TRAIN_KEY, now)


def train(services: Services, job: Job) -> Effect:
    """Train a challenger in its own process, and let it serve if every gate passes."""
    state = known_state(services, job.user)
    if services.trainer is None or state.order_reason is None:
        return no_effect
    wanted = _order(services, job.user, state, state.order_reason)
    try:
        with services.observer.timed("predictor_train"):
            report = services.trainer.train(wanted)
    except MeritoryError as error:
        services.observer.failed("predictor_train_failure", error)
        report = TrainReport(
            version=wanted.version,
            scorer=wanted.scorer,
            is_accepted=False,
            sample_count=0,
            skipped_count=0,
            duration_ms=0.0,
            error=str(error),
        )
    record = services.store.record(job.user, wanted.scorer, influence.RECORD_SESSIONS)

    def effect(transaction: Transaction) -> After:
        before = decoded(transaction.predictor_state(job.user))
        after = _after(services, before, wanted, report)
        if report.is_accepted:
            weighings = influence.weigh(record, after.history)
            policy = services.policy.predictor
            standing = influence.weighed(
                after.standing, weighings, policy.influence, policy.min_training_sessions
            )
            after = replace(after, standing=standing)
        transaction.set_predictor_state(job.user, after.encoded())
        transaction.add_training_run(job.user, _run(wanted, report, after))
        events = _events(wanted, report, before, after)
        transaction.log_events(job.user, events)
        return partial(publish, services, events)

    return effect


def _order(services: Services, user: str, state: PredictorState, reason: str) -> TrainOrder:
    serving = services.store.serving_embedder()
    return TrainOrder(
        user=user,
        scorer=services.policy.predictor.scorer,
        version=state.latest + 1,
        incumbent=state.version,
        best=state.best,
        reason=reason,
        at=services.world.now(),
        embedder=None if serving is None else serving.name,
        rrf_k=services.policy.predictor.rrf_k,
        # A model need not resemble the base that all users share.
        after_reset=reason == "drift" or state.version == BASE_VERSION,
    )


def _after(
    services: Services, state: PredictorState, wanted: TrainOrder, report: TrainReport
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


def _run(wanted: TrainOrder, report: TrainReport, after: PredictorState) -> TrainingRun:
    return TrainingRun(
        at=wanted.at,
        model_version=wanted.version,
        scorer=wanted.scorer,
        reason=wanted.reason,
        loss=report.loss,
        sample_count=report.sample_count,
        skipped_count=report.skipped_count,
        duration_ms=report.duration_ms,
        is_accepted=report.is_accepted,
        canary_ndcg=report.canary_ndcg,
        canary_ndcg_delta=report.canary_ndcg_delta,
        canary_score_variance=report.canary_score_variance,
        canary_topk_churn=report.canary_topk_churn,
        gates=report.gates,
        train_validation_failures=after.failures,
        drift_resets=after.standing.drift_resets,
        error=report.error,
    )


def _events(
    wanted: TrainOrder, report: TrainReport, before: PredictorState, after: PredictorState
) -> list[Event]:
    refused = [str(one["name"]) for one in report.gates if not one["passed"]]
    trained = Event(
        at=wanted.at,
        category="predictor",
        name="predictor.train",
        details={
            "model_version": report.version,
            "accepted": report.is_accepted,
            "refused_by": refused,
            "reason": wanted.reason,
            "samples": report.sample_count,
            "loss": report.loss,
            "alpha": after.alpha,
            "duration_ms": round(report.duration_ms, 1),
        },
    )
    numbers: dict[str, dict[str, object]] = {}
    if report.is_accepted:
        numbers["predictor.swap"] = {
            "from": before.version,
            "to": after.version,
            "scorer": after.scorer,
            "shadow_left": after.shadow_left,
        }
    if before.standing.is_cold and not after.standing.is_cold:
        numbers["predictor.cold_start_exit"] = {
            "judged": after.standing.judged,
            "success_rate": round(after.standing.success_rate, 6),
            "alpha": after.alpha,
        }
    return [
        trained,
        *(
            Event(at=wanted.at, category="predictor", name=name, details=details)
            for name, details in numbers.items()
        ),
    ]
