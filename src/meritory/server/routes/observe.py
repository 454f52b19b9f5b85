"""Observation: health, diagnostics, the pipeline, metrics, the log, telemetry and OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from meritory import __version__
from meritory.api.memory import Memory
from meritory.domain.errors import NotFound
from meritory.domain.world import moment_text, parse_moment
from meritory.engine.observe import diagnostics, telemetry
from meritory.engine.observe.diagnostics import DOMAINS, Domain
from meritory.engine.observe.observer import Latency, Observer, StageFailure, adopt_durations
from meritory.engine.pipeline import FLOWS
from meritory.engine.predictor.state import known_state, scorer_facts
from meritory.engine.quality.maintenance import status
from meritory.server.logs import Level, LogLine, latest_lines
from meritory.server.table import (
    PAGE_LIMIT,
    Call,
    Limit,
    Moment,
    QueryParams,
    ReplyShape,
    Results,
    Route,
    Scoped,
    TextReply,
    UserQuery,
)
from meritory.settings.home import LOG_NAME

Sample = tuple[dict[str, str], float]

# -- requests ---------------------------------------------------------------------------------

# A stage such as `job_extract`, or a group such as `job`.
StageQuery = QueryParams.plus(stage=(str | None, None), limit=(Limit, PAGE_LIMIT))
# By default the last 24 hours.
ActivityQuery = UserQuery.plus(since=(Moment | None, None))
LogsQuery = QueryParams.plus(
    level=(Level, "debug"),
    category=(str | None, None),
    since=(Moment | None, None),
    limit=(Limit, PAGE_LIMIT),
)


class OptIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The user's answer."""

    enabled: bool
    user: str | None = None


# -- replies ----------------------------------------------------------------------------------


class Health(msgspec.Struct):
    """The daemon is alive, and its version."""

    status: str
    version: str


class HealthDomainOut(ReplyShape):
    """The health of one part of the engine; its name is published as `domain`."""

    name: str = msgspec.field(name="domain")
    score: float
    status: str
    warnings: tuple[str, ...]
    details: dict[str, Any]


class DiagnosisOut(msgspec.Struct):
    """The health of all parts; the score of the whole is that of its worst part."""

    score: float
    status: str
    domains: list[HealthDomainOut]


class StageOut(msgspec.Struct):
    """A stage of the pipeline with its latest durations."""

    flow: str
    stage: str
    about: str
    # Where the stage is written, as module:line.
    location: str
    budget_ms: float
    count: int
    p50_ms: float | None
    p95_ms: float | None


class WorkerOut(msgspec.Struct):
    """A background worker."""

    running: bool
    details: dict[str, Any]


class Pipeline(msgspec.Struct):
    """The workers, the queue and every stage."""

    workers: dict[str, WorkerOut]
    queue: dict[str, int]
    stages: list[StageOut]


class Stats(msgspec.Struct):
    """Counts of memories, of every write outcome and of every fallback."""

    user: str
    figures: dict[str, int]


class LatencyOut(ReplyShape, record=Latency, names="id=operation *", without="operation total_ms"):
    """The latest durations of an operation, whose name is the `id`."""


class ActivityOut(msgspec.Struct):
    """Counts since a moment; the outcomes are those of sessions that started since then."""

    since: str
    memories: int
    sessions: int
    injected: int
    reports: int
    win: int
    loss: int
    tie: int
    excluded: int


class TelemetryOut(msgspec.Struct, kw_only=True):
    """The user's choice and the size of the local data; nothing leaves this machine.

    Only the daemon's owner sees the size, which is that of all users together.
    """

    training_data_opt_in: bool | None
    install_date: datetime | None
    last_prompted_at: datetime | None
    line_count: int | None
    size_bytes: int | None


# -- health and the pipeline ------------------------------------------------------------------


def health(call: Call) -> Health:
    """Report that the daemon is alive."""
    return Health("ok", __version__)


def described(call: Call) -> dict[str, Any]:
    """Describe every route as OpenAPI."""
    from meritory.server.app import TABLE
    from meritory.server.openapi import document

    return document(TABLE)


def diagnose(call: Call) -> DiagnosisOut:
    """Show the health of every part."""
    domains = diagnostics.examine(_facts(call))
    score = diagnostics.overall(domains)
    return DiagnosisOut(
        score, diagnostics.status_of(score), [HealthDomainOut.of(domain) for domain in domains]
    )


def diagnose_part(call: Call) -> HealthDomainOut:
    """Show the health of one part."""
    name = call.path["domain"]
    if name not in DOMAINS:
        raise NotFound(f"no domain {name[:40]!r}", hint=f"there are {', '.join(DOMAINS)}")
    domain: Domain = DOMAINS[name](_facts(call))
    return HealthDomainOut.of(domain)


def _facts(call: Call) -> diagnostics.EngineFacts:
    memory = call.user_memory()
    return diagnostics.EngineFacts(memory.services, memory.works, memory.scope.user)


def pipeline(call: Call) -> Pipeline:
    """Show the workers, the queue and the duration of every stage."""
    memory = call.user_memory()
    latencies = {each.operation: each for each in call.server.observer.latencies()}
    stages = []
    for flow, steps in FLOWS.items():
        for stage in steps:
            seen = latencies.get(f"{flow}.{stage.name}")
            figures = (seen.count, seen.p50_ms, seen.p95_ms) if seen else (0, None, None)
            described = (stage.name, stage.about, stage.location, stage.budget_ms)
            stages.append(StageOut(flow, *described, *figures))
    workers = {**_job_workers(memory), "predictor": _predictor_worker(call, memory, latencies)}
    counts = {str(state): count for state, count in memory.services.store.job_counts().items()}
    return Pipeline(workers, counts, stages)


def _job_workers(memory: Memory) -> dict[str, WorkerOut]:
    """Return the workers that extract, judge, erase and sweep: one thread runs all their jobs."""
    worker, services = memory.works.worker, memory.services
    is_running = worker is not None and worker.is_alive
    shared = {
        "jobs_done": worker.jobs_done if worker else 0,
        "last_error": worker.last_error if worker else None,
    }
    upkeep = status(services, memory.scope.user)
    swept = {"demoted": upkeep.demoted, "forgotten": upkeep.forgotten}
    details: dict[str, dict[str, Any]] = {
        "extraction": {"extractor": services.extractor.name if services.extractor else "none"},
        "judge": {"judge": services.judge.name if services.judge else "none"},
        "retention": {**asdict(upkeep.retention), "erased": dict(upkeep.erased)},
        "pairs": {**asdict(upkeep.pairs), "found": upkeep.links_found},
        "maintenance": {**asdict(upkeep.janitor), **swept},
    }
    workers = {name: WorkerOut(is_running, {**shared, **own}) for name, own in details.items()}
    workers["maintenance"].running &= services.policy.janitor.enabled
    return workers


def _predictor_worker(call: Call, memory: Memory, latencies: Mapping[str, Latency]) -> WorkerOut:
    """Return the process that scores candidates and trains models."""
    life = scorer_facts(memory.services.scorer)
    scored, trained = latencies["predictor_score"], latencies["predictor_train"]
    return WorkerOut(
        life.is_alive,
        {
            "pid": life.pid,
            "model_ready": life.is_ready,
            "model_version": known_state(memory.services, memory.scope.user).version,
            "scores_processed": scored.count,
            "trainings_completed": trained.count,
            "last_score_latency_ms": scored.last_ms,
            "uptime_s": life.uptime_s if life.pid else round(call.server.uptime_s(), 3),
        },
    )


# -- metrics ----------------------------------------------------------------------------------


def stats(call: Call) -> Stats:
    """Count memories, writes and fallbacks."""
    memory = call.user_memory()
    return Stats(memory.scope.user, memory.stats())


def latency(call: Call) -> Results[LatencyOut]:
    """Show the duration of every operation."""
    _count_others(call)
    return Results([LatencyOut.of(each) for each in call.server.observer.latencies()])


def _count_others(call: Call) -> None:
    """Let the figures include the commands that open the store themselves."""
    adopt_durations(call.server.engine.services, call.server.settings.user)


def errors(call: Call) -> Results[StageFailure]:
    """Show the last errors: of a stage, of a group such as `predictor`, or all."""
    failures = call.server.observer.failures(call.query.stage)
    return Results(list(failures[: call.query.limit]))


def activity(call: Call) -> ActivityOut:
    """Count memories, sessions and reports since a moment."""
    services, user = call.whole_user()
    since = services.world.now() - timedelta(days=1)
    if call.query.since is not None:
        since = parse_moment(call.query.since, "since")
    counts = services.store.activity(user, since)
    return ActivityOut(since=moment_text(since), **counts)


def prometheus(call: Call) -> TextReply:
    """Show all metrics for Prometheus."""
    memory = call.memory()
    _count_others(call)
    totals = memory.services.store.totals(memory.scope.user)
    text = metrics_page(call.server.observer, call.server.uptime_s(), totals.get("live", 0))
    return TextReply(text, "text/plain; version=0.0.4; charset=utf-8")


def metrics_page(observer: Observer, uptime_s: float, live_count: int) -> str:
    """Return all metrics in the text format of Prometheus."""
    events = [({"name": name}, count) for name, count in sorted(observer.counters().items())]
    failures = [
        ({"stage": stage, "code": code}, count)
        for (stage, code), count in sorted(observer.failure_counts().items())
    ]
    lines = [
        *_metric("meritory_uptime_seconds", "gauge", "Since the daemon started.", [({}, uptime_s)]),
        *_metric("meritory_memories", "gauge", "Live memories.", [({}, live_count)]),
        *_metric("meritory_events_total", "counter", "Events by name.", events),
        *_metric("meritory_errors_total", "counter", "Errors by stage and code.", failures),
        "# HELP meritory_operation_seconds Durations of operations.",
        "# TYPE meritory_operation_seconds summary",
    ]
    for each in observer.latencies():
        own = {"operation": each.operation}
        for share, value in (("0.5", each.p50_ms), ("0.95", each.p95_ms), ("0.99", each.p99_ms)):
            if value is not None:
                labels = {**own, "quantile": share}
                lines.append(_line("meritory_operation_seconds", labels, value / 1000))
        lines.append(_line("meritory_operation_seconds_sum", own, each.total_ms / 1000))
        lines.append(_line("meritory_operation_seconds_count", own, each.count))
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> list[str]:
    head = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    return [*head, *(_line(name, labels, value) for labels, value in samples)]


def _line(name: str, labels: dict[str, str], value: float) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    inner = ",".join(f'{key}="{text.translate(escapes)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value:.9g}" if inner else f"{name} {value:.9g}"


# -- the log and telemetry --------------------------------------------------------------------


def log_lines(call: Call) -> Results[LogLine]:
    """Show the latest lines of the daemon's log."""
    return Results(call.query.to(partial(latest_lines, call.server.settings.home / LOG_NAME)))


def show_telemetry(call: Call) -> TelemetryOut:
    """Show whether local telemetry is on, and its size."""
    return _telemetry(call, call.user_memory())


def opt_in(call: Call) -> TelemetryOut:
    """Turn local telemetry on or off."""
    body: OptIn = call.body
    memory = call.user_memory()
    telemetry.answer(memory.services, memory.scope.user, body.enabled)
    return _telemetry(call, memory)


def _telemetry(call: Call, memory: Memory) -> TelemetryOut:
    choice = memory.services.store.consent(memory.scope.user)
    is_owner = call.grant.user is None
    size = telemetry.kept(memory.services.telemetry_file) if is_owner else None
    return TelemetryOut(
        training_data_opt_in=choice.opt_in if choice else None,
        install_date=choice.install_date if choice else None,
        last_prompted_at=choice.last_prompted_at if choice else None,
        line_count=size.line_count if size else None,
        size_bytes=size.size_bytes if size else None,
    )


ROUTES = (
    Route("GET", "/health", health, "health", "scope"),
    Route("GET", "/openapi.json", described, "read", "scope"),
    Route("GET", "/api/diagnostics", diagnose, "read", "daemon", query=UserQuery),
    Route("GET", "/api/diagnostics/{domain}", diagnose_part, "read", "daemon", query=UserQuery),
    Route("GET", "/api/pipeline/status", pipeline, "read", "daemon", query=UserQuery),
    Route("GET", "/api/stats", stats, "read", "user", query=Scoped),
    Route("GET", "/api/analytics/latency", latency, "read", "daemon"),
    Route("GET", "/api/analytics/errors", errors, "read", "daemon", query=StageQuery),
    Route("GET", "/api/analytics/activity", activity, "read", "user", query=ActivityQuery),
    Route("GET", "/metrics", prometheus, "read", "daemon"),
    Route("GET", "/api/logs", log_lines, "read", "daemon", query=LogsQuery),
    Route("GET", "/api/telemetry", show_telemetry, "read", "user", query=Scoped),
    Route("POST", "/api/telemetry/opt-in", opt_in, "write", "user", body=OptIn),
)
