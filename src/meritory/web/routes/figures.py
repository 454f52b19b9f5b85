"""Figures: counts, durations and errors, for people, programs and Prometheus."""

from __future__ import annotations

from meritory.web import metrics, replies, wire
from meritory.web.table import Call, Route, Scoped, Text


def stats(call: Call) -> replies.Stats:
    """Counts of memories, of every write outcome and of every fallback."""
    memory = call.memory()
    return replies.Stats(memory.scope.user, memory.stats())


def latency(call: Call) -> replies.Latencies:
    """How long every operation took, over its last thousand times."""
    return replies.Latencies(
        [
            replies.LatencyOut(
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


def errors(call: Call) -> replies.Failures:
    """The last errors, newest first."""
    query: wire.StageQuery = call.query
    kept = call.engine.observer.failures(query.stage)[: query.limit]
    return replies.Failures(
        [replies.FailureOut(f.stage, f.code, f.message, f.at, f.request_id) for f in kept]
    )


def prometheus(call: Call) -> Text:
    """All figures in the text format of Prometheus."""
    totals = call.memory().services.store.totals(call.memory().scope.user)
    return Text(
        metrics.page(call.engine.observer, call.engine.uptime_s(), totals.get("live", 0)),
        metrics.MEDIA_TYPE,
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
        reply=replies.Stats,
    ),
    Route(
        method="GET",
        path="/api/analytics/latency",
        handler=latency,
        access="read",
        reach="daemon",
        summary="Show how long every operation took.",
        reply=replies.Latencies,
    ),
    Route(
        method="GET",
        path="/api/analytics/errors",
        handler=errors,
        access="read",
        reach="daemon",
        summary="Show the last errors: of a stage, of a group such as `predictor`, or all.",
        query=wire.StageQuery,
        reply=replies.Failures,
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=prometheus,
        access="read",
        reach="daemon",
        summary="All figures for Prometheus.",
        reply=Text,
    ),
)
