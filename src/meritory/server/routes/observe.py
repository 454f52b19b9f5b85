"""How the daemon is doing: diagnostics by domain, and the pipeline with its timings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from meritory.api.memory import Memory
from meritory.domain.codec import moment_text
from meritory.domain.errors import NotFound
from meritory.engine.observe import diagnostics
from meritory.engine.observe.diagnostics import DOMAINS, Domain
from meritory.engine.observe.observer import Latency
from meritory.engine.pipeline import FLOWS
from meritory.engine.predictor.state import known_state, liveness
from meritory.engine.quality.maintenance import JobLook, status
from meritory.server.schemas.sessions import UserQuery
from meritory.server.table import Call, Route


class HealthDomainOut(msgspec.Struct):
    """One part of the engine."""

    domain: str
    score: float
    status: str
    warnings: list[str]
    details: dict[str, Any]

    @classmethod
    def of(cls, found: Domain) -> HealthDomainOut:
        """A domain for the wire."""
        return cls(found.name, found.score, found.status, list(found.warnings), found.details)


class DiagnosisOut(msgspec.Struct):
    """All parts; the whole is as well as its worst part."""

    score: float
    status: str
    domains: list[HealthDomainOut]


class StageOut(msgspec.Struct):
    """A stage of the pipeline with how long it took lately."""

    flow: str
    stage: str
    about: str
    budget_ms: float
    count: int
    p50_ms: float | None
    p95_ms: float | None


class WorkerOut(msgspec.Struct):
    """What runs beside the requests."""

    running: bool
    details: dict[str, Any]


class Pipeline(msgspec.Struct):
    """The workers, the queue and every stage."""

    workers: dict[str, WorkerOut]
    queue: dict[str, int]
    stages: list[StageOut]


def everything(call: Call) -> DiagnosisOut:
    """Every domain, and the whole."""
    found = diagnostics.examine(_engine(call))
    score = diagnostics.overall(found)
    return DiagnosisOut(
        score, diagnostics.status_of(score), [HealthDomainOut.of(domain) for domain in found]
    )


def one(call: Call) -> HealthDomainOut:
    """One domain."""
    look = DOMAINS.get(call.path["domain"])
    if look is None:
        known = ", ".join(DOMAINS)
        raise NotFound(f"no domain {call.path['domain'][:40]!r}", hint=f"there are {known}")
    return HealthDomainOut.of(look(_engine(call)))


def pipeline(call: Call) -> Pipeline:
    """What runs, what waits, and how long each stage takes."""
    memory = call.view(call.query.user)
    took = {found.operation: found for found in call.engine.observer.latencies()}
    stages = []
    for flow, steps in FLOWS.items():
        for stage in steps:
            found = took.get(f"{flow}.{stage.name}")
            stages.append(
                StageOut(
                    flow,
                    stage.name,
                    stage.about,
                    stage.budget_ms,
                    found.count if found else 0,
                    found.p50_ms if found else None,
                    found.p95_ms if found else None,
                )
            )
    workers = {
        **_jobbers(memory),
        "predictor": _predictor(call, memory, took),
    }
    counts = {str(state): many for state, many in memory.services.store.job_counts().items()}
    return Pipeline(workers, counts, stages)


def _jobbers(memory: Memory) -> dict[str, WorkerOut]:
    """Who extracts, judges, erases and sweeps: one thread, which takes all their jobs."""
    worker, services = memory.works.worker, memory.services
    is_running = worker is not None and worker.is_alive
    shared = {
        "jobs_done": worker.jobs_done if worker else 0,
        "last_error": worker.last_error if worker else None,
    }
    upkeep = status(services, memory.scope.user)
    extractor = services.extractor
    return {
        "extraction": WorkerOut(
            is_running, {**shared, "extractor": extractor.name if extractor else "none"}
        ),
        "judge": WorkerOut(
            is_running, {**shared, "judge": services.judge.name if services.judge else "none"}
        ),
        "retention": WorkerOut(
            is_running, {**shared, **_job(upkeep.retention), "erased": dict(upkeep.erased)}
        ),
        "maintenance": WorkerOut(
            is_running and services.policy.janitor.enabled,
            {
                **shared,
                **_job(upkeep.janitor),
                "demoted": upkeep.demoted,
                "forgotten": upkeep.forgotten,
            },
        ),
    }


def _job(look: JobLook) -> dict[str, Any]:
    """The job of this week or day."""
    finished = None if look.finished_at is None else moment_text(look.finished_at)
    return {"key": look.key, "state": look.state, "finished_at": finished, "error": look.error}


def _predictor(call: Call, memory: Memory, took: Mapping[str, Latency]) -> WorkerOut:
    """Who scores candidates and trains models."""
    life = liveness(memory.services)
    scored, trained = took["predictor_score"], took["predictor_train"]
    return WorkerOut(
        life.is_alive,
        {
            "pid": life.pid,
            "model_ready": life.is_ready,
            "model_version": known_state(memory.services, memory.scope.user).version,
            "scores_processed": scored.count,
            "trainings_completed": trained.count,
            "last_score_latency_ms": scored.last_ms,
            "uptime_s": life.uptime_s if life.pid else round(call.engine.uptime_s(), 3),
        },
    )


def _engine(call: Call) -> diagnostics.EngineFacts:
    memory = call.view(call.query.user)
    return diagnostics.EngineFacts(memory.services, memory.works, memory.scope.user)


ROUTES = (
    Route(
        method="GET",
        path="/api/diagnostics",
        handler=everything,
        access="read",
        reach="daemon",
        summary="Show how every part is doing.",
        query=UserQuery,
        reply=DiagnosisOut,
    ),
    Route(
        method="GET",
        path="/api/diagnostics/{domain}",
        handler=one,
        access="read",
        reach="daemon",
        summary="Show how one part is doing.",
        query=UserQuery,
        reply=HealthDomainOut,
    ),
    Route(
        method="GET",
        path="/api/pipeline/status",
        handler=pipeline,
        access="read",
        reach="daemon",
        summary="Show the workers, the queue and how long every stage takes.",
        query=UserQuery,
        reply=Pipeline,
    ),
)
