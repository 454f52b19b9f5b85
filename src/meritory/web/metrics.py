"""The observer's figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from meritory.flow.observe import Observer

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
