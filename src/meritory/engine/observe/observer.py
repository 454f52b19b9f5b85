"""What the running engine did: how long each operation took, what failed, how often."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.session import Event
from meritory.domain.world import World

if TYPE_CHECKING:
    from meritory.engine.services import Services

# Always reported, whether or not they have happened yet.
OPERATIONS = (
    "remember",
    "recall",
    "session_start",
    "user_prompt_submit",
    "predictor_score",
    "predictor_train",
    "jobs",
)
# By group the stages that can fail; a group without parts is a stage itself.
STAGES: Mapping[str, tuple[str, ...]] = {
    "access": (),
    "consent": (),
    "feedback": ("advice", "belief", "promotion", "reading", "rules"),
    "guard": (),
    "http": (),
    "job": (
        "extract",
        "finish-session",
        "janitor",
        "remember-rule",
        "retention",
        "train-predictor",
    ),
    "mcp": (),
    "predictor": ("crash", "parse_error", "timeout", "train_failure"),
    "prompt_record": (),
    "retrieval_counts": (),
    "rules": (),
    "session_record": (),
    "telemetry": (),
}
Listener = Callable[[str, str, Mapping[str, object]], None]
LATENCY_RING_COUNT = 1_000
ERROR_RING_COUNT = 500
RECENT_COUNT = 60
_MESSAGE_LIMIT_CHARS = 500
# What goes wrong there is told as an event of its own, such as predictor.timeout.
_PREDICTOR = "predictor_"


@dataclass(frozen=True, slots=True)
class Latency:
    """How long an operation took lately, over the last thousand times."""

    operation: str
    count: int
    total_ms: float
    last_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    # The latest, oldest first, as far as a small picture needs them.
    recent_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StageFailure:
    """Something that went wrong."""

    stage: str
    code: str
    message: str
    at: str
    request_id: str | None = None


class _Ring:
    """The last durations of one operation, and how many there were in all."""

    __slots__ = ("count", "recent", "total_ms")

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=LATENCY_RING_COUNT)
        self.count = 0
        self.total_ms = 0.0


class Observer:
    """Rings of durations and errors, and counters; safe to share between threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._rings = {name: _Ring() for name in OPERATIONS}
        self._failures: deque[StageFailure] = deque(maxlen=ERROR_RING_COUNT)
        self._counters: Counter[str] = Counter()
        self._failure_counts: Counter[tuple[str, str]] = Counter()
        self._listener: Listener | None = None

    def took(self, operation: str, duration_ms: float) -> None:
        """Notes how long an operation took."""
        with self._lock:
            ring = self._rings.get(operation)
            if ring is None:
                ring = self._rings[operation] = _Ring()
            ring.recent.append(duration_ms)
            ring.count += 1
            ring.total_ms += duration_ms

    @contextlib.contextmanager
    def timed(self, operation: str) -> Iterator[None]:
        """Notes how long the block takes; one that fails counts too."""
        start = self._world.monotonic_ms()
        try:
            yield
        finally:
            self.took(operation, self._world.monotonic_ms() - start)

    def stages(self, operation: str, took_ms: Mapping[str, float]) -> None:
        """Notes how long each part of an operation took, as `operation.part`."""
        for part, duration_ms in took_ms.items():
            self.took(f"{operation}.{part}", duration_ms)

    def failed(self, stage: str, error: Exception, request_id: str | None = None) -> None:
        """Notes an error and the stage it happened in; foreign errors only by their type."""
        code, message = "bug", type(error).__name__
        if isinstance(error, MeritoryError):
            code, message = error.code, error.message[:_MESSAGE_LIMIT_CHARS]
        at = self._world.now().isoformat(timespec="milliseconds")
        with self._lock:
            self._failures.append(StageFailure(stage, code, message, at, request_id))
            self._failure_counts[stage, code] += 1
        if stage.startswith(_PREDICTOR):
            event = stage.replace("_", ".", 1)
            self.tell("predictor", event, {"code": code, "error": message})

    def listen(self, listener: Listener) -> None:
        """Lets somebody hear what is told from now on, such as the daemon's log."""
        self._listener = listener

    def tell(self, category: str, event: str, details: Mapping[str, object]) -> None:
        """Says what happened to whoever listens."""
        if self._listener is not None:
            self._listener(category, event, details)

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to a counter."""
        with self._lock:
            self._counters[name] += amount

    def latencies(self) -> list[Latency]:
        """The figures of every operation."""
        with self._lock:
            taken = [
                (name, ring.count, ring.total_ms, list(ring.recent))
                for name, ring in self._rings.items()
            ]
        return [_latency(*ring) for ring in taken]

    def failures(self, stage: str | None = None) -> list[StageFailure]:
        """Return the last errors, newest first: of a stage, of a group of stages, or all.

        Raise InputError, with the known stages as a hint, if there is no such stage.
        """
        with self._lock:
            kept = list(self._failures)
        kept.reverse()
        if stage is None:
            return kept
        found = [one for one in kept if stage == one.stage or stage == group_of(one.stage)]
        if not found and stage not in known_stages():
            raise InputError(
                f"unknown stage: {stage[:40]!r}", hint=f"known: {', '.join(known_stages())}"
            )
        return found

    def counters(self) -> dict[str, int]:
        """Every counter."""
        with self._lock:
            return dict(self._counters)

    def failure_counts(self) -> dict[tuple[str, str], int]:
        """How often each stage failed with each code."""
        with self._lock:
            return dict(self._failure_counts)


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
    p50, p95, p99 = (round(_at_share(ordered, share), 3) for share in (0.5, 0.95, 0.99))
    latest = tuple(round(one, 3) for one in recent[-RECENT_COUNT:])
    return Latency(operation, count, round(total_ms, 3), latest[-1], p50, p95, p99, latest)


def _at_share(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def tell(services: Services, events: Sequence[Event]) -> None:
    """Lets whoever listens hear events that have been stored."""
    for event in events:
        named = {"session_key": event.session_key, "request_id": event.request_id}
        services.observer.tell(event.category, event.name, {**named, **event.details})
