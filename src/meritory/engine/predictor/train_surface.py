"""Training of the small models of recall and prompts, within the job that ends a session.

Such a model is 22 weights, and its fit takes some tens of milliseconds: it needs no process and no
file. It passes the gates that every model passes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial

import numpy as np

from meritory.domain.errors import MeritoryError
from meritory.domain.job import Job
from meritory.domain.predictor import SURFACES, Surface, TaughtSession, TrainingRun
from meritory.engine.jobs.runner import After, Effect, no_effect
from meritory.engine.observe.observer import make_events, publish
from meritory.engine.predictor.state import PredictorState, decoded, known_state
from meritory.engine.predictor.surfaces import base_weights, bases, weights_of
from meritory.engine.predictor.train import lesson_of
from meritory.engine.predictor.train_job import REPORTED, after_training
from meritory.engine.services import Services
from meritory.model.base import RankingQuery, TrainingExample
from meritory.model.canary import CANARY_LIMIT, Terms, examine, is_canary
from meritory.model.fit import crossed
from meritory.model.ranker import KIND, Ranker, fitted, loss_of
from meritory.ports.trainer_process import CANARY_NAMES, TrainOrder, TrainReport
from meritory.rank.search_features import (
    SEARCH_FEATURE_VERSION,
    SEARCH_FEATURES,
    SEARCH_LAYOUT,
)
from meritory.store.contract.store import Transaction

# The latest searches that a model is fitted to, and those that it is examined on by models that
# never saw them.
SEARCHES_TRAINED = 500
SEARCHES_EXAMINED = 100
FIRST_TRAINING_SEARCHES = 3
# With fewer held-out searches a model is examined by those alone that it is fitted to, crosswise:
# a single search would accept or refuse every model.
LEAST_HELD_OUT = 10
# Earlier models that a rollback can choose.
MODELS_KEPT = 3
_COSINE = SEARCH_FEATURES.index("plain_cosine")


def train_surfaces(services: Services, job: Job) -> Effect:
    """Fit a challenger for each surface with new labelled searches; it serves if it passes."""
    state, user = known_state(services, job.user), job.user
    runs: list[tuple[Surface, TrainOrder, TrainReport, Ranker]] = []
    for surface in SURFACES:
        if _is_due(services, state.surface(surface)):
            order = _order(state.surface(surface), user, services.world.now())
            runs.append((surface, order, *trained(services, surface, order)))
    if not runs:
        return no_effect

    def effect(transaction: Transaction) -> After:
        whole, events = decoded(transaction.predictor_state(user)), []
        for surface, order, report, model in runs:
            before = whole.surface(surface)
            after = after_training(before, order, report)
            if report.is_accepted:
                after = _kept(after, order.version, model)
            whole = whole.with_surface(surface, after)
            run = TrainingRun(
                at=order.at,
                reason=order.reason,
                model_version=order.version,
                train_validation_failures=after.failures,
                drift_resets=after.standing.drift_resets,
                surface=surface,
                **{name: getattr(report, name) for name in REPORTED},
            )
            transaction.add_training_run(user, run)
            events += make_events({"predictor.train": _details(surface, report, after)}, order.at)
        transaction.set_predictor_state(user, whole.encoded())
        transaction.log_events(user, events)
        return partial(publish, services, events)

    return effect


def _is_due(services: Services, state: PredictorState) -> bool:
    policy = services.policy.predictor
    needed = policy.train_interval_sessions if state.latest else FIRST_TRAINING_SEARCHES
    return services.scorer is not None and state.is_enabled and state.fresh_sessions >= needed


def _order(state: PredictorState, user: str, at: datetime) -> TrainOrder:
    return TrainOrder(
        user=user,
        scorer=KIND,
        version=state.latest + 1,
        incumbent=state.version,
        best=state.best,
        reason=state.order_reason or "interval",
        at=at,
        # The first fits are to a few searches. Later ones must be better, not alike.
        after_reset=True,
    )


def trained(services: Services, surface: Surface, order: TrainOrder) -> tuple[TrainReport, Ranker]:
    """Return a challenger for a surface, and how it did in the exam."""
    began_ms = services.world.monotonic_ms()
    state = known_state(services, order.user).surface(surface)
    taught = services.store.taught_searches(
        order.user, surface, SEARCH_FEATURE_VERSION, SEARCHES_TRAINED
    )
    held_out = [one for one in taught if is_canary(order.user, one.key)][-CANARY_LIMIT:]
    learned = [one for one in taught if one not in held_out]
    model, loss = _fitted(_lessons(learned))
    latest = learned[-SEARCHES_EXAMINED:]
    lessons = _lessons(latest)
    scores = crossed([one.key for one in latest], lessons, lambda some: _fitted(some)[0])
    terms = Terms(
        losses=(loss,),
        loads_afresh=None,
        incumbent=_known(state, order.incumbent),
        best_kept=_known(state, order.best),
        after_reset=order.after_reset,
        baseline=SEARCH_LAYOUT.baseline,
        crossed=list(zip(lessons, scores, strict=True)),
    )
    rng = np.random.default_rng([order.version, zlib.crc32(f"{order.user} {surface}".encode())])
    enough = held_out if len(held_out) >= LEAST_HELD_OUT else []
    exam = examine(model, _lessons(enough), terms, rng)
    report = TrainReport(
        version=order.version,
        scorer=KIND,
        is_accepted=exam.passed,
        sample_count=len(learned),
        skipped_count=len(held_out),
        loss=float(loss),
        **{name: getattr(exam, name) for name in CANARY_NAMES},
        gates=tuple(asdict(check) for check in exam.checks),
        duration_ms=services.world.monotonic_ms() - began_ms,
    )
    return report, model


def _lessons(searches: Sequence[TaughtSession]) -> list[TrainingExample]:
    return [lesson_of(one, RankingQuery(features=one.features), _COSINE) for one in searches]


def _fitted(lessons: Sequence[TrainingExample]) -> tuple[Ranker, float]:
    """Return the model that fits best, from the base that explains this user best."""
    prior = min(bases().values(), key=lambda base: loss_of(lessons, base, SEARCH_LAYOUT))
    return fitted(lessons, prior, layout=SEARCH_LAYOUT)


def _known(state: PredictorState, version: int) -> Ranker | None:
    """Return an earlier model; None if it is not usable any more."""
    try:
        return Ranker(
            {"weights": weights_of(state, version), "prior": base_weights()}, SEARCH_LAYOUT
        )
    except MeritoryError:
        return None


def _kept(state: PredictorState, version: int, model: Ranker) -> PredictorState:
    """Return the state with a new model, without the oldest ones."""
    models = {**state.models, str(version): tuple(model.weights.tolist())}
    latest = sorted(map(int, models), reverse=True)[: 1 + MODELS_KEPT]
    wanted = {*latest, state.version, state.best, state.previous}
    return replace(state, models={v: w for v, w in models.items() if int(v) in wanted})


def _details(surface: Surface, report: TrainReport, after: PredictorState) -> dict[str, object]:
    return {
        "surface": surface,
        "model_version": report.version,
        "accepted": report.is_accepted,
        "refused_by": [str(gate["name"]) for gate in report.gates if not gate["passed"]],
        "samples": report.sample_count,
        "loss": report.loss,
        "alpha": after.alpha,
        "duration_ms": round(report.duration_ms, 1),
    }
