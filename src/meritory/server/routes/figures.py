"""The observer's figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from meritory.engine.observe.observer import Observer
from meritory.server.schemas import memories
from meritory.server.table import Call, Route, Scoped, TextReply

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[dict[str, str], float]


def page(observer: Observer, uptime_s: float, live_count: int) -> str:
    """Everything there is to scrape."""
    latencies = observer.latencies()
    parts = [
        _metric("meritory_uptime_seconds", "gauge", "Since the daemon started.", [({}, uptime_s)]),
        _metric("meritory_memories", "gauge", "Live memories.", [({}, live_count)]),
        _metric(
            "meritory_events_total",
            "counter",
            "What happened, by name.",
            (({"name": name}, amount) for name, amount in sorted(observer.counters().items())),
        ),
        _metric(
            "meritory_errors_total",
            "counter",
            "What failed, by stage and code.",
            (
                ({"stage": stage, "code": code}, amount)
                for (stage, code), amount in sorted(observer.failure_counts().items())
            ),
        ),
    ]
    lines = [
        "# HELP meritory_operation_seconds How long operations took.",
        "# TYPE meritory_operation_seconds summary",
    ]
    for found in latencies:
        own = {"operation": found.operation}
        for share, value in (("0.5", found.p50_ms), ("0.95", found.p95_ms), ("0.99", found.p99_ms)):
            if value is not None:
                lines.append(
                    _line("meritory_operation_seconds", {**own, "quantile": share}, value / 1000)
                )
        lines.append(_line("meritory_operation_seconds_sum", own, found.total_ms / 1000))
        lines.append(_line("meritory_operation_seconds_count", own, found.count))
    return "".join([*parts, "\n".join(lines), "\n"])


def _metric(name: str, kind: str, told: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
    lines += [_line(name, labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value:.9g}" if inner else f"{name} {value:.9g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def stats(call: Call) -> memories.Stats:
    """Counts of memories, of every write outcome and of every fallback."""
    memory = call.memory()
    return memories.Stats(memory.scope.user, memory.stats())


def latency(call: Call) -> memories.Latencies:
    """How long every operation took, over its last thousand times."""
    return memories.Latencies(
        [
            memories.LatencyOut(
                found.operation,
                found.count,
                found.last_ms,
                found.p50_ms,
                found.p95_ms,
                found.p99_ms,
                list(found.recent_ms),
            )
            for found in call.engine.observer.latencies()
        ]
    )


def errors(call: Call) -> memories.Failures:
    """The last errors, newest first."""
    query: memories.StageQuery = call.query
    kept = call.engine.observer.failures(query.stage)[: query.limit]
    return memories.Failures(
        [memories.FailureOut(f.stage, f.code, f.message, f.at, f.request_id) for f in kept]
    )


def prometheus(call: Call) -> TextReply:
    """All figures in the text format of Prometheus."""
    totals = call.memory().services.store.totals(call.memory().scope.user)
    return TextReply(
        page(call.engine.observer, call.engine.uptime_s(), totals.get("live", 0)),
        MEDIA_TYPE,
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/stats",
        handler=stats,
        access="read",
        reach="user",
        summary="Count memories, writes and fallbacks.",
        query=Scoped,
        reply=memories.Stats,
    ),
    Route(
        method="GET",
        path="/api/analytics/latency",
        handler=latency,
        access="read",
        reach="daemon",
        summary="Show how long every operation took.",
        reply=memories.Latencies,
    ),
    Route(
        method="GET",
        path="/api/analytics/errors",
        handler=errors,
        access="read",
        reach="daemon",
        summary="Show the last errors: of a stage, of a group such as `predictor`, or all.",
        query=memories.StageQuery,
        reply=memories.Failures,
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=prometheus,
        access="read",
        reach="daemon",
        summary="All figures for Prometheus.",
        reply=TextReply,
    ),
)
