"""Latencies, failures and counters of the running engine, its events and their timeline."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

from meritory.domain.errors import Busy, InputError, MeritoryError, NotFound, StorageError
from meritory.domain.session import Event
from meritory.domain.world import World

if TYPE_CHECKING:
    from meritory.engine.services import Services

# Operations that are always reported, even before the first one.
OPERATIONS = (
    "remember",
    "recall",
    "session_start",
    "user_prompt_submit",
    "predictor_score",
    "predictor_train",
    "jobs",
)
# The stages that can fail, by group; a group without parts is itself a stage.
STAGES: Mapping[str, tuple[str, ...]] = {
    "access": (),
    "compaction": (),
    "consent": (),
    "delivery_record": (),
    "feedback": ("advice", "belief", "promotion", "reading", "rules"),
    "guard": (),
    "http": (),
    "job": (
        "extract",
        "finish-session",
        "janitor",
        "pairs",
        "remember-rule",
        "retention",
        "train-predictor",
    ),
    "mcp": (),
    "predictor": ("crash", "parse_error", "record", "search", "timeout", "train_failure"),
    "project_folder": (),
    "prompt_record": (),
    "retrieval_counts": (),
    "rules": (),
    "session_record": (),
    "spool": (),
    "telemetry": (),
}
# Operations that other programs, such as the CLI, run on the store without the daemon.
SHARED_OPERATIONS = ("remember", "recall")
# Classes of durations, each 19% longer than the one before.
_CLASSES_PER_DOUBLING = 4
Listener = Callable[[str, str, Mapping[str, object]], None]
LATENCY_RING_COUNT = 1_000
ERROR_RING_COUNT = 500
RECENT_COUNT = 60
_MESSAGE_LIMIT_CHARS = 500
# Failures of these stages are also published as events, such as predictor.timeout.
_PREDICTOR = "predictor_"


@dataclass(frozen=True, slots=True)
class Latency:
    """How long the last thousand runs of an operation took."""

    operation: str
    count: int
    total_ms: float
    last_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    # The latest durations, oldest first, for a sparkline.
    recent_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StageFailure:
    """An error and the stage in which it happened."""

    stage: str
    code: str
    message: str
    at: str
    request_id: str | None = None


class _Ring:
    """The last durations of one operation, and the number of all."""

    __slots__ = ("count", "recent", "total_ms")

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=LATENCY_RING_COUNT)
        self.count = 0
        self.total_ms = 0.0


class Observer:
    """The last durations and errors, and counters; safe to share between threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._rings = {name: _Ring() for name in OPERATIONS}
        self._failures: deque[StageFailure] = deque(maxlen=ERROR_RING_COUNT)
        self._counters: Counter[str] = Counter()
        self._failure_counts: Counter[tuple[str, str]] = Counter()
        self._listeners: list[Listener] = []
        self._adopted: Mapping[tuple[str, int], int] | None = None

    def took(self, operation: str, duration_ms: float) -> None:
        """Record the duration of an operation."""
        with self._lock:
            ring = self._rings.get(operation)
            if ring is None:
                ring = self._rings[operation] = _Ring()
            ring.recent.append(duration_ms)
            ring.count += 1
            ring.total_ms += duration_ms

    @contextlib.contextmanager
    def timed(self, operation: str) -> Iterator[None]:
        """Record the duration of the block, even if it fails."""
        start = self._world.monotonic_ms()
        try:
            yield
        finally:
            self.took(operation, self._world.monotonic_ms() - start)

    def duration_counts(self) -> Counter[tuple[str, int]]:
        """Return how often shared operations took how long, by class of duration."""
        with self._lock:
            return Counter(
                (name, round(_CLASSES_PER_DOUBLING * math.log2(1.0 + duration_ms)))
                for name in SHARED_OPERATIONS
                for duration_ms in self._rings[name].recent
            )

    def adopt(self, counts: Mapping[tuple[str, int], int]) -> None:
        """Record the durations of other processes since the last call; the first records none."""
        with self._lock:
            before, self._adopted = self._adopted, counts
        if before is None:
            return
        for (operation, number), count in counts.items():
            for _ in range(min(LATENCY_RING_COUNT, count - before.get((operation, number), 0))):
                self.took(operation, 2.0 ** (number / _CLASSES_PER_DOUBLING) - 1.0)

    def stages(self, operation: str, took_ms: Mapping[str, float]) -> None:
        """Record the duration of each part of an operation as `operation.part`."""
        for part, duration_ms in took_ms.items():
            self.took(f"{operation}.{part}", duration_ms)

    def failed(self, stage: str, error: Exception, request_id: str | None = None) -> None:
        """Record an error and its stage; of a foreign error only the type."""
        code, message = "bug", type(error).__name__
        if isinstance(error, MeritoryError):
            code, message = error.code, error.message[:_MESSAGE_LIMIT_CHARS]
        at = self._world.now().isoformat(timespec="milliseconds")
        with self._lock:
            self._failures.append(StageFailure(stage, code, message, at, request_id))
            self._failure_counts[stage, code] += 1
        if stage.startswith(_PREDICTOR):
            event = stage.replace("_", ".", 1)
            self.publish(("predictor", event, {"code": code, "error": message}))

    def listen(self, listener: Listener) -> None:
        """Add a function that receives published events, such as the daemon's log."""
        self._listeners.append(listener)

    def publish(self, *events: tuple[str, str, Mapping[str, object]]) -> None:
        """Pass events to the listeners, each with its category, name and details."""
        for listener in self._listeners:
            for event in events:
                listener(*event)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counters[name] += amount

    def latencies(self) -> list[Latency]:
        """Return the latencies of every operation."""
        with self._lock:
            rings = [(name, r.count, r.total_ms, list(r.recent)) for name, r in self._rings.items()]
        return [_latency(*ring) for ring in rings]

    def failures(self, stage: str | None = None) -> list[StageFailure]:
        """Return the last errors, newest first: of a stage, of a group of stages, or all.

        Raise InputError for an unknown stage.
        """
        with self._lock:
            failures = list(self._failures)
        failures.reverse()
        if stage is None:
            return failures
        selected = [f for f in failures if stage in (f.stage, group_of(f.stage))]
        if not selected and stage not in known_stages():
            raise InputError(
                f"unknown stage: {stage[:40]!r}", hint=f"stages: {', '.join(known_stages())}"
            )
        return selected

    def counters(self) -> dict[str, int]:
        """Return every counter."""
        with self._lock:
            return dict(self._counters)

    def failure_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of failures by stage and error code."""
        with self._lock:
            return dict(self._failure_counts)


def keep_durations(services: Services, user: str) -> None:
    """Store the durations of this process, so that the daemon's figures count them."""
    counts = services.observer.duration_counts()
    if counts:
        # A command that is done must not fail because of a figure.
        with contextlib.suppress(StorageError, Busy):
            services.store.write(
                user, lambda transaction: transaction.count_durations(user, counts)
            )


def adopt_durations(services: Services, user: str) -> None:
    """Let this process's figures count the durations that other processes stored."""
    with contextlib.suppress(StorageError, Busy):
        services.observer.adopt(services.store.durations(user))


def known_stages() -> list[str]:
    """Return every group and every stage that errors can be selected by."""
    return [
        name
        for group, parts in STAGES.items()
        for name in (group, *(f"{group}_{part}" for part in parts))
    ]


def group_of(stage: str) -> str:
    """Return the group of a stage; a stage outside all groups is a group itself."""
    group = stage.partition("_")[0]
    return group if STAGES.get(group) else stage


def _latency(operation: str, count: int, total_ms: float, recent: list[float]) -> Latency:
    if not recent:
        return Latency(operation, count, total_ms, None, None, None, None)
    ordered = sorted(recent)
    # A percentile is the smallest value that at least this share of all values does not exceed.
    p50, p95, p99 = (
        round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
        for share in (0.5, 0.95, 0.99)
    )
    latest = tuple(round(duration, 3) for duration in recent[-RECENT_COUNT:])
    return Latency(operation, count, round(total_ms, 3), latest[-1], p50, p95, p99, latest)


def make_events(
    details: Mapping[str, Mapping[str, object]],
    at: datetime,
    session_key: str | None = None,
    request_id: str | None = None,
) -> list[Event]:
    """Return an event for each name; its category is the first part of the name."""
    return [
        Event(
            at=at,
            category=name.partition(".")[0],
            name=name,
            session_key=session_key,
            request_id=request_id,
            details=numbers,
        )
        for name, numbers in details.items()
    ]


def publish(services: Services, events: Sequence[Event]) -> None:
    """Publish events that have been stored."""
    named = [
        (
            e.category,
            e.name,
            {"session_key": e.session_key, "request_id": e.request_id, **e.details},
        )
        for e in events
    ]
    services.observer.publish(*named)


def timeline(services: Services, user: str, name: str) -> list[Event]:
    """Return the events of a session key, a memory id or a request id."""
    store = services.store
    with contextlib.suppress(NotFound):
        store.session(user, name)
        shown = [
            Event(
                at=injection.at,
                category="session",
                name=f"session.injected.{injection.kind}",
                session_key=name,
                details={
                    "number": injection.number,
                    "turn": injection.turn,
                    "tokens": injection.token_count,
                },
            )
            for injection in store.injections(user, name)
        ]
        # The sort is stable: events of the same moment keep their order.
        return sorted([*store.events(user, session_key=name), *shown], key=attrgetter("at"))
    with contextlib.suppress(NotFound, InputError):
        memory_id = store.get(user, name).id
        changes = [
            Event(
                at=entry.at,
                category="memory",
                name=f"memory.{entry.action}",
                memory_id=memory_id,
                details={"actor": entry.actor, "why": entry.why, "entry": entry.entry},
            )
            for entry in store.history(user, memory_id)
        ]
        return sorted([*store.events(user, memory_id=memory_id), *changes], key=attrgetter("at"))
    return store.events(user, request_id=name)
