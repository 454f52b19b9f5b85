"""The predictor: how it stands, how it compares, how it was trained, and what people may do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from meritory.api.memory import Memory
from meritory.domain.codec import parse_moment
from meritory.domain.predictor import ComparisonQuery, Rated
from meritory.engine.predictor import admin
from meritory.engine.predictor import status as predictor_status
from meritory.engine.predictor.state import known_state
from meritory.server.schemas import predictor as wire
from meritory.server.schemas.sessions import UserQuery
from meritory.server.table import Call, Route

_CONTEXT_CHARS = 200


def status(call: Call) -> wire.StatusOut:
    """Everything about a user's predictor."""
    return msgspec.convert(_memory(call).predictor_status(), wire.StatusOut)


def comparisons(call: Call) -> wire.Comparisons:
    """Comparisons, latest first."""
    asked: wire.ComparisonsQuery = call.query
    memory = _memory(call)
    found = memory.services.store.comparisons(
        memory.scope.user,
        ComparisonQuery(
            winner=asked.winner,
            ema_updated=asked.ema_updated,
            min_margin=asked.min_margin,
            since=None if asked.since is None else parse_moment(asked.since, "since"),
            until=None if asked.until is None else parse_moment(asked.until, "until"),
            limit=asked.limit,
            offset=asked.offset,
        ),
    )
    more = asked.offset + asked.limit if len(found) == asked.limit else None
    return wire.Comparisons([wire.ComparisonOut.of(one) for one in found], more)


def comparison(call: Call) -> wire.ComparisonOut:
    """The comparison of one session."""
    memory = _memory(call)
    found = predictor_status.compared(memory.services, memory.scope.user, call.path["session_key"])
    return wire.ComparisonOut.of(found)


def audit(call: Call) -> wire.Audit:
    """A session's ranking with all that is on record about it."""
    memory = _memory(call)
    found = predictor_status.audit(memory.services, memory.scope.user, call.path["session_key"])
    return wire.Audit.of(found)


def training(call: Call) -> wire.Runs:
    """Trainings, latest first."""
    memory = _memory(call)
    found = memory.services.store.training_runs(memory.scope.user, call.query.limit)
    return wire.Runs([wire.RunOut.of(one) for one in found])


def drift(call: Call) -> wire.DriftOut:
    """Whether the predictor or the judge changed over time."""
    memory = _memory(call)
    return msgspec.convert(
        predictor_status.drift(memory.services, memory.scope.user), wire.DriftOut
    )


def train(call: Call) -> wire.OrderedOut:
    """Orders a training; it runs beside the requests."""
    memory = _memory(call)
    ordered = admin.train_now(memory.services, memory.scope.user)
    memory.work_meanwhile()
    return wire.OrderedOut(ordered.job, ordered.reason, ordered.is_new)


def rollback(call: Call) -> wire.RunOut:
    """Lets an earlier model serve again."""
    memory = call.view(call.body.user)
    run = admin.rollback(memory.services, memory.scope.user, call.body.version)
    return wire.RunOut.of(run)


def enable(call: Call) -> wire.SwitchedOut:
    """Lets the predictor be heard again, as far as it has earned it."""
    memory = _memory(call)
    return wire.SwitchedOut(True, admin.enable(memory.services, memory.scope.user))


def disable(call: Call) -> wire.SwitchedOut:
    """Lets the baseline rank alone."""
    memory = _memory(call)
    return wire.SwitchedOut(False, admin.disable(memory.services, memory.scope.user))


def calibrate(call: Call) -> wire.Calibration:
    """Keeps a person's ratings, and offers what is to be rated next."""
    asked: wire.Calibrate = call.body
    memory = call.view(asked.user)
    services, user = memory.services, memory.scope.user
    ratings = {(one.session_key, one.memory_id): one.label for one in asked.ratings}
    if ratings:
        admin.calibrate_rate(services, user, ratings)
    kept = services.store.calibration(user, predictor_status.CALIBRATION_READ) if ratings else []
    told = [one for one in kept if (one.session_key, one.memory_id) in ratings]
    if not ratings or asked.count is not None:
        told += admin.calibrate_offer(services, user, asked.count or admin.OFFER_MIN)
    found = predictor_status.calibration(services, user, known_state(services, user))
    return wire.Calibration(msgspec.convert(found, wire.CalibrationOut), _questions(memory, told))


def waiting(call: Call) -> wire.CalibrationQueue:
    """What people were asked to rate, without asking for more."""
    memory = _memory(call)
    services, user = memory.services, memory.scope.user
    kept = services.store.calibration(user, predictor_status.CALIBRATION_READ)
    days: dict[str, list[float]] = {}
    for one in reversed(kept):
        if one.human_label is not None:
            days.setdefault(one.offered_at.date().isoformat(), []).append(
                predictor_status.error_of(one)
            )
    found = predictor_status.calibration(services, user, known_state(services, user))
    return wire.CalibrationQueue(
        msgspec.convert(found, wire.CalibrationOut),
        _questions(memory, [one for one in kept if one.human_label is None]),
        [wire.RatedDay(day, len(all_), sum(all_) / len(all_)) for day, all_ in days.items()],
    )


def _questions(memory: Memory, asked: Sequence[Rated]) -> list[wire.CalibrationQuestionOut]:
    store, user = memory.services.store, memory.scope.user
    texts = store.memories(user, [one.memory_id for one in asked])
    return [
        wire.CalibrationQuestionOut.of(
            one,
            texts[one.memory_id].content,
            store.session(user, one.session_key).context[:_CONTEXT_CHARS],
        )
        for one in asked
        if one.memory_id in texts
    ]


def _memory(call: Call) -> Memory:
    return call.view(call.query.user)


ROUTES = (
    Route(
        method="GET",
        path="/api/predictor/status",
        handler=status,
        access="read",
        reach="user",
        summary="Show how the predictor stands, what it has earned, and why.",
        query=UserQuery,
        reply=wire.StatusOut,
    ),
    Route(
        method="GET",
        path="/api/predictor/comparisons",
        handler=comparisons,
        access="read",
        reach="user",
        summary="List how both rankings compared, session by session.",
        query=wire.ComparisonsQuery,
        reply=wire.Comparisons,
    ),
    Route(
        method="GET",
        path="/api/predictor/comparisons/{session_key:path}",
        handler=comparison,
        access="read",
        reach="user",
        summary="Show how both rankings of a session compared.",
        query=UserQuery,
        reply=wire.ComparisonOut,
    ),
    Route(
        method="GET",
        path="/api/predictor/audit/{session_key:path}",
        handler=audit,
        access="read",
        reach="user",
        summary="Show a session's ranking with all that is on record about it.",
        query=UserQuery,
        reply=wire.Audit,
    ),
    Route(
        method="GET",
        path="/api/predictor/training",
        handler=training,
        access="read",
        reach="user",
        summary="List trainings with their gates, latest first.",
        query=wire.RunsQuery,
        reply=wire.Runs,
    ),
    Route(
        method="GET",
        path="/api/predictor/drift",
        handler=drift,
        access="read",
        reach="user",
        summary="Show whether the predictor or the judge changed over time.",
        query=UserQuery,
        reply=wire.DriftOut,
    ),
    Route(
        method="POST",
        path="/api/predictor/train",
        handler=train,
        access="admin",
        reach="user",
        summary="Order a training.",
        query=UserQuery,
        reply=wire.OrderedOut,
    ),
    Route(
        method="POST",
        path="/api/predictor/rollback",
        handler=rollback,
        access="admin",
        reach="user",
        summary="Let an earlier model serve again.",
        body=wire.Rollback,
        reply=wire.RunOut,
    ),
    Route(
        method="POST",
        path="/api/predictor/enable",
        handler=enable,
        access="admin",
        reach="user",
        summary="Let the predictor be heard again.",
        query=UserQuery,
        reply=wire.SwitchedOut,
    ),
    Route(
        method="POST",
        path="/api/predictor/disable",
        handler=disable,
        access="admin",
        reach="user",
        summary="Let the baseline rank alone.",
        query=UserQuery,
        reply=wire.SwitchedOut,
    ),
    Route(
        method="GET",
        path="/api/predictor/calibration",
        handler=waiting,
        access="read",
        reach="user",
        summary="Show what people were asked to rate, and how they compare with the judge.",
        query=UserQuery,
        reply=wire.CalibrationQueue,
    ),
    Route(
        method="POST",
        path="/api/predictor/calibration",
        handler=calibrate,
        access="admin",
        reach="user",
        summary="Rate memories that the judge rated, and ask for more.",
        body=wire.Calibrate,
        reply=wire.Calibration,
    ),
)
