"""Training in a process of its own: what is ordered, what comes back, and who carries it out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from threading import Lock
from typing import Any, Protocol

from meritory.domain.errors import BadReply, Conflict, PortError, PortTimeout
from meritory.domain.policy import RRF_K
from meritory.ports.child import environment_of
from meritory.ports.scorer import ModelFolders

# Its own limit is half a minute; starting, reading and the gates come on top.
TRAINER_LIMIT_S = 120.0
_ERROR_CHARS = 500
_END_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOrder:
    """What is to be trained."""

    user: str
    # The kind of scorer, and the number its model gets.
    scorer: str
    version: int
    # The model that serves, and the best one kept.
    incumbent: int
    best: int
    reason: str
    at: datetime
    embedder: str | None = None
    # What the fusion adds to every rank.
    rrf_k: int = RRF_K
    # It was trained to break with what had been learned before.
    after_reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """What came of it."""

    version: int
    scorer: str
    is_accepted: bool
    sample_count: int
    skipped_count: int
    duration_ms: float
    loss: float | None = None
    canary_ndcg: float | None = None
    canary_ndcg_delta: float | None = None
    canary_score_variance: float | None = None
    canary_topk_churn: float | None = None
    # Against the best model kept, on the same canaries; None when there is none.
    canary_best_delta: float | None = None
    gates: tuple[dict[str, Any], ...] = ()
    error: str | None = None


class Where(Protocol):
    """Where a store lies, in the words in which a process of ours is told."""

    @property
    def argument(self) -> str:
        """What stands on its command line."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What its environment holds besides."""


class Trainer(Protocol):
    """Who trains."""

    def train(self, order: TrainOrder) -> TrainReport:
        """Carries out an order; PortError when nothing came of it at all."""

    def close(self) -> None:
        """Ends what runs; nothing is lost but the training. Safe to call twice."""


class SpawnedTrainer:
    """Trains in a new process, one at a time, so that nobody who is served waits for it."""

    def __init__(self, store: Where, shelves: ModelFolders) -> None:
        paths = (store.argument, shelves.folder, shelves.base)
        self._environment = store.environment
        # Nothing is imported from the folder an agent happens to work in.
        self._command = [sys.executable, "-P", "-m", "meritory.sidecar", "train"]
        self._command += map(str, paths)
        self._lock = Lock()
        self._running: subprocess.Popen[str] | None = None

    @property
    def is_training(self) -> bool:
        """Whether a training runs."""
        return self._running is not None

    def train(self, order: TrainOrder) -> TrainReport:
        """Waits until the process is done."""
        process = self._begun()
        try:
            told, errors = process.communicate(order_text(order), timeout=TRAINER_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise PortTimeout("training took too long and was ended") from error
        finally:
            _end(process)
            self._running = None
        if process.returncode:
            last = errors.strip()[-_ERROR_CHARS:]
            raise PortError(f"training ended with {process.returncode}: {last}")
        return read_report(told)

    def _begun(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._running is not None:
                raise Conflict("a training runs already", hint="wait for it")
            try:
                self._running = subprocess.Popen(  # noqa: S603 - our own module
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    env=environment_of(self._environment),
                )
            except OSError as error:
                raise PortError(f"no process for training: {error}") from error
            return self._running

    def close(self) -> None:
        """Ends what runs; nothing is lost but the training."""
        with self._lock:
            if self._running is not None:
                _end(self._running)


def _end(process: subprocess.Popen[str]) -> None:
    """Sees to it that a process is over."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def order_text(order: TrainOrder) -> str:
    """An order for another process."""
    return json.dumps({**asdict(order), "at": order.at.isoformat()})


def read_order(text: str) -> TrainOrder:
    """An order from another process."""
    known: dict[str, Any] = json.loads(text)
    return TrainOrder(**{**known, "at": datetime.fromisoformat(known["at"])})


def report_text(report: TrainReport) -> str:
    """A report for another process."""
    return json.dumps(asdict(report))


def read_report(text: str) -> TrainReport:
    """A report from another process."""
    try:
        known: dict[str, Any] = json.loads(text)
        return TrainReport(**{**known, "gates": tuple(known["gates"])})
    except (ValueError, TypeError, LookupError) as error:
        raise BadReply(f"the report of the training cannot be read: {error}") from error
