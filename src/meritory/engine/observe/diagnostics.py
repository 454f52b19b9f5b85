"""The health of the running engine by domain: a score, a status and the numbers behind them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from meritory.domain.errors import (
    Corrupt,
    DiskFull,
    MeritoryError,
    PortError,
    ReadOnlyStore,
    SchemaTooNew,
    StorageError,
    StoreReplaced,
)
from meritory.domain.world import moment_text
from meritory.engine.jobs.runner import Background
from meritory.engine.observe.health import WAL_WARN_BYTES, disk_room
from meritory.engine.predictor.status import predictor_status
from meritory.engine.quality.figures import figures
from meritory.engine.services import Services

HEALTHY_SCORE = 0.8
DEGRADED_SCORE = 0.5
# Jobs are short: one that has been due this long is stuck.
STUCK_AFTER = timedelta(minutes=10)
# Share of excluded sessions above which the judge is of little use.
EXCLUDED_SHARE_WARN = 0.5
# Lower bound of the share of wrong merges that causes a warning.
WRONG_MERGES_WARN = 0.05
_FEW = 10
_STORAGE_CODES = frozenset(
    kind.code
    for kind in (StorageError, DiskFull, ReadOnlyStore, StoreReplaced, Corrupt, SchemaTooNew)
)
_DEAD, _STUCK, _HALF, _COLD, _FAIR, _WELL = 0.0, 0.3, 0.5, 0.6, 0.7, 1.0
# Success rate below which a predictor is not fair, and the costs of latency and drift.
_FAIR_SUCCESS, _SLOW_COSTS, _DRIFT_COSTS = 0.4, 0.2, 0.1

_PREDICTOR_DETAILS = (
    *("phase", "scorer", "model_version", "training_sessions", "min_training_sessions"),
    *("waiting_for", "success_rate", "alpha", "last_trained_at", "last_train_loss"),
    *("failures", "fallbacks", "drift_resets", "scorer_drift_signal", "project_success_rates"),
)


@dataclass(frozen=True, slots=True)
class Domain:
    """One part of the engine: 1 is perfect, below 0.5 is broken."""

    name: str
    score: float
    details: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    # A status of its own, such as cold_start.
    state: str | None = None
    # The user has switched it off.
    is_choice: bool = False

    @property
    def status(self) -> str:
        """The score as a word."""
        return self.state or status_of(self.score)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The services to examine, their threads, and the user whose figures are shown."""

    services: Services
    works: Background
    user: str


def status_of(score: float) -> str:
    """Return a score as a word."""
    if score >= HEALTHY_SCORE:
        return "healthy"
    return "degraded" if score >= DEGRADED_SCORE else "unhealthy"


def overall(domains: list[Domain]) -> float:
    """Return the worst score, without cold starts and domains that the user switched off."""
    counted = (d.score for d in domains if d.state != "cold_start" and not d.is_choice)
    return min(counted, default=1.0)


def examine(engine: EngineFacts) -> list[Domain]:
    """Return the health of every domain."""
    return [look(engine) for look in DOMAINS.values()]


def _storage(engine: EngineFacts) -> Domain:
    services, store = engine.services, engine.services.store
    file = store.place.file
    since = (services.world.now() - STUCK_AFTER).isoformat(timespec="milliseconds")
    recent = (failure for failure in services.observer.failures() if failure.at >= since)
    failing = next((f.message for f in recent if f.code in _STORAGE_CODES), None)
    if file is not None and not file.exists():
        return Domain("storage", _STUCK, {}, (f"{file.name} is gone",))
    try:
        size_bytes = store.size_bytes()
    except MeritoryError as error:
        return Domain("storage", _STUCK, {"failing": failing}, (error.message,))
    room, disk = {}, "enough"
    if file is not None:
        # A database server has its own checks.
        log_bytes = 0
        with contextlib.suppress(OSError):
            log_bytes = os.path.getsize(f"{file}-wal")
        total_bytes, _, free_bytes = shutil.disk_usage(file.parent)
        room = {"log_bytes": log_bytes, "free_bytes": free_bytes}
        disk = disk_room(total_bytes, free_bytes)
    unreadable = store.damaged_count()
    details = {"size_bytes": size_bytes, **room, "unreadable": unreadable, "failing": failing}
    if unreadable:
        return Domain(
            "storage", _STUCK, details, ("rows are damaged: run `meritory doctor --deep`",)
        )
    if disk == "full":
        return Domain("storage", _STUCK, details, ("the disk is full: free some space",))
    if failing:
        return Domain("storage", _STUCK, details, (f"writing fails: {failing}",))
    if disk == "nearly full":
        return Domain("storage", _HALF, details, ("the disk is nearly full: free some space",))
    if room and room["log_bytes"] > WAL_WARN_BYTES:
        return Domain("storage", _HALF, details, ("the write-ahead log grows",))
    return Domain("storage", _WELL, details)


def _index(engine: EngineFacts) -> Domain:
    services = engine.services
    serving = services.store.serving_embedder()
    if serving is None:
        # Fine if it is off or there are no memories.
        is_well = services.embedding.is_off or not services.store.embedding_state("").memory_count
        warnings = () if is_well else ("no memory has a vector yet",)
        return Domain("index", _WELL if is_well else _HALF, {"embedder": None}, warnings)
    state = services.store.embedding_state(serving.name)
    details = {
        "embedder": serving.name,
        "dimension": serving.dimension,
        "embedded": state.embedded_count,
        "memories": state.memory_count,
        "is_changing": services.embedding.is_changed(),
    }
    if making := services.embedding.in_making():
        name, made = making
        details |= {"making": name, "made": made.embedded_count}
        told = f"{made.embedded_count:,} of {made.memory_count:,} vectors of {name} are made"
        return Domain("index", _COLD, details, (f"{told}; {serving.name} answers until then",))
    if not state.is_complete or details["is_changing"]:
        return Domain("index", _COLD, details, ("vectors are missing and being made",))
    return Domain("index", _WELL, details)


def _queue(engine: EngineFacts) -> Domain:
    store, now = engine.services.store, engine.services.world.now()
    counts, oldest = store.job_counts(), store.oldest_due(now)
    age = None if oldest is None else max(0.0, (now - oldest).total_seconds())
    worker = engine.works.worker
    details: dict[str, Any] = {
        **{str(state): many for state, many in counts.items()},
        "oldest_due_age_s": age,
        "worker_alive": worker is not None and worker.is_alive,
        "last_error": worker.last_error if worker else None,
    }
    if age is not None and age > STUCK_AFTER.total_seconds():
        return Domain("queue", _STUCK, details, ("jobs are due but no worker runs them",))
    is_working = details["worker_alive"] and not details["last_error"]
    if age is not None and not is_working:
        return Domain("queue", _HALF, details, ("jobs are due and the worker cannot do them",))
    if counts.get("parked"):
        told = "jobs are parked: `meritory jobs --state parked` says why"
        return Domain("queue", _COLD, details, (told,))
    return Domain("queue", _WELL, details)


def _embedder(engine: EngineFacts) -> Domain:
    embedding = engine.services.embedding
    failures = dict(embedding.failures)
    details = {"kind": embedding.kind, "failures": failures}
    if embedding.is_off:
        return Domain("embedder", _FAIR, details, ("searches go by words only, by choice",))
    try:
        serving = embedding.serving_name()
    except PortError as error:
        return Domain("embedder", _STUCK, details, (str(error),))
    if serving is None:
        return Domain("embedder", _STUCK, details, ("no embedder can be reached: words only",))
    if failures:
        return Domain("embedder", _FAIR, details, ("the embedder failed since the start",))
    return Domain("embedder", _WELL, details)


def _judge(engine: EngineFacts) -> Domain:
    services = engine.services
    counted, excluded = services.store.judged_counts(engine.user)
    since = services.world.now() - timedelta(days=1)
    spent = services.store.spending(engine.user, since)
    total = counted + excluded
    details = {
        "kind": services.judge.name if services.judge else "none",
        "judged": total,
        "counted": counted,
        "excluded": excluded,
        "calls_last_day": len(spent),
        "cost_last_day": round(sum(call.cost for call in spent), 6),
    }
    if services.judge is None:
        told = "there is no judge: the predictor learns only from ratings and programs"
        return Domain("judge", _HALF, details, (told,))
    if total >= _FEW and excluded / total > EXCLUDED_SHARE_WARN:
        told = "most sessions are too unclear to count; ratings or `judge.kind = llm` would help"
        if services.store.counters(engine.user).get("feedback.taken"):
            told = "most sessions are too unclear to count, although some are rated: ratings count"
            told += " where they differ between notes; `judge.kind = llm` would help"
        return Domain("judge", _COLD, details, (told,))
    return Domain("judge", _WELL, details)


def _predictor(engine: EngineFacts) -> Domain:
    """Return the health of the predictor; in a cold start the baseline ranks alone."""
    known = predictor_status(engine.services, engine.user)
    sidecar, latency, warnings = known["sidecar"], known["latency"], tuple(known["warnings"])
    details = {
        **{f"sidecar_{name}": sidecar[name] for name in ("alive", "pid")},
        **{name: sidecar[name] for name in ("crash_count", "crash_disabled")},
        **{f"{name}_score_latency_ms": latency[f"{name}_ms"] for name in ("last", "avg", "p95")},
        **{name: known[name] for name in _PREDICTOR_DETAILS},
    }
    if known["phase"] == "disabled":
        is_choice = not sidecar["crash_disabled"]
        told = (str(known["reason"]), *warnings)
        return Domain("predictor", _DEAD, details, told, "disabled", is_choice)
    if sidecar["dead"]:
        told = ("the process that scores is not there: the baseline ranks alone", *warnings)
        return Domain("predictor", _DEAD, details, told)
    is_cold, success = known["is_cold"], known["success_rate"]
    score = _COLD if is_cold or success <= _FAIR_SUCCESS else HEALTHY_SCORE
    if score == HEALTHY_SCORE:
        score += (success - _FAIR_SUCCESS) * (_WELL - HEALTHY_SCORE) / (1.0 - _FAIR_SUCCESS)
    score -= _SLOW_COSTS if latency["is_slow"] else 0.0
    score -= _DRIFT_COSTS if known["is_drifting"] else 0.0
    return Domain(
        "predictor", round(score, 6), details, warnings, "cold_start" if is_cold else None
    )


def _feedback(engine: EngineFacts) -> Domain:
    counters = engine.services.store.counters(engine.user)
    taken, refused = counters.get("feedback.taken", 0), counters.get("feedback.refused", 0)
    is_on = engine.services.policy.predictor.agent_feedback
    details = {"is_on": is_on, "taken": taken, "refused": refused}
    details |= {name: counters.get(f"feedback.{name}", 0) for name in ("captured", "promoted")}
    if taken + refused >= _FEW and refused > taken:
        told = "most ratings are refused: they name what was not shown, or an old code"
        return Domain("feedback", _COLD, details, (told,))
    return Domain("feedback", _WELL, details)


def _quality(engine: EngineFacts) -> Domain:
    """Return the outcomes of writes, the errors of the gate, and how often memories helped."""
    found = figures(engine.services, engine.user)
    wrong = found.false_merges
    details: dict[str, Any] = {
        **{f"write.{name}": many for name, many in found.outcomes.items()},
        "gate_trigger_rate": found.gate_trigger.rate,
        "false_merge_rate": wrong.rate,
        "audited": wrong.total,
        "redundant_additions_per_week": found.redundant.per_week,
        "below_floor_per_turn": found.below_floor.per_turn,
        "helped": {one.name: one.helped.rate for one in found.by_provenance},
        "refusals": found.refusals,
        "retrievals": found.retrievals,
    }
    # The lower bound: a single split merge is not a problem.
    if wrong.total >= _FEW and wrong.low > WRONG_MERGES_WARN:
        told = "merges are often wrong: split them and raise gate.threshold"
        return Domain("quality", _COLD, details, (told,))
    return Domain("quality", _WELL, details)


def _connectors(engine: EngineFacts) -> Domain:
    seen = engine.services.store.harnesses(engine.user)
    details = {
        name: {"sessions": many, "last_seen": moment_text(last)} for name, many, last in seen
    }
    return Domain("connectors", _WELL, details)


DOMAINS: dict[str, Callable[[EngineFacts], Domain]] = {
    "storage": _storage,
    "index": _index,
    "queue": _queue,
    "embedder": _embedder,
    "judge": _judge,
    "predictor": _predictor,
    "feedback": _feedback,
    "quality": _quality,
    "connectors": _connectors,
}
