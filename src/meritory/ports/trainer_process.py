"""Training in a separate process: the order, the report, and the process that runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from threading import Lock
from typing import Any, Protocol, TypeVar

import msgspec

from meritory.domain.codec import prepared
from meritory.domain.errors import BadReply, Conflict, PortError, PortTimeout
from meritory.domain.place import Place
from meritory.domain.policy import RRF_K
from meritory.ports.scorer import ModelFolders

# Its own limit is half a minute, plus start, reading and gates.
TRAINER_LIMIT_S = 120.0
_ERROR_CHARS = 500
# More threads for numpy would compete with the agent.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_END_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOrder:
    """An order to train a model."""

    user: str
    # The kind of scorer, and the number its model gets.
    scorer: str
    version: int
    # The active model, and the best stored one.
    incumbent: int
    best: int
    reason: str
    at: datetime
    embedder: str | None = None
    # What the fusion adds to every rank.
    rrf_k: int = RRF_K
    # It starts over after a reset.
    after_reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """The result of a training."""

    version: int
    scorer: str
    is_accepted: bool
    sample_count: int = 0
    skipped_count: int = 0
    duration_ms: float = 0.0
    loss: float | None = None
    canary_ndcg: float | None = None
    canary_ndcg_delta: float | None = None
    canary_score_variance: float | None = None
    canary_topk_churn: float | None = None
    # Compared with the best stored model on the same canaries; None without one.
    canary_best_delta: float | None = None
    gates: tuple[dict[str, Any], ...] = ()
    error: str | None = None


CANARY_NAMES = tuple(name for name in TrainReport.__slots__ if name.startswith("canary_"))
M = TypeVar("M", TrainOrder, TrainReport)


def encode(message: TrainOrder | TrainReport) -> str:
    """Return an order or a report as text."""
    return json.dumps(asdict(message), default=datetime.isoformat)


def decode(text: str, kind: type[M]) -> M:
    """Return the order or report of a text; BadReply if it is invalid."""
    try:
        # By way of json, because a loss may be NaN.
        return msgspec.convert(json.loads(text), prepared(kind))
    except (ValueError, msgspec.ValidationError) as error:
        raise BadReply(f"the {kind.__name__} of a training cannot be read: {error}") from error


def environment_of(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: this one's and the extra variables."""
    return {**os.environ, **extra, **_ONE_THREAD}


class Trainer(Protocol):
    """Trains models."""

    def train(self, order: TrainOrder) -> TrainReport:
        """Carry out an order; PortError if training failed."""

    def close(self) -> None:
        """End a running training; safe to call twice."""


class SpawnedTrainer:
    """Trains in a new process, one at a time, so that requests do not wait for it."""

    def __init__(self, store: Place, shelves: ModelFolders) -> None:
        paths = (store.argument, shelves.folder, shelves.base)
        self._environment = store.environment
        # -P: never import from the working folder of an agent.
        self._command = [sys.executable, "-P", "-m", "meritory.sidecar", "train"]
        self._command += map(str, paths)
        self._lock = Lock()
        self._running: subprocess.Popen[str] | None = None

    @property
    def is_training(self) -> bool:
        """Whether a training is running."""
        return self._running is not None

    def train(self, order: TrainOrder) -> TrainReport:
        """Run the training, and wait for its report."""
        with self._lock:
            if self._running is not None:
                raise Conflict("a training is already running", hint="wait for it to end")
            try:
                process = self._running = subprocess.Popen(  # noqa: S603 - our own module
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    env=environment_of(self._environment),
                )
            except OSError as error:
                raise PortError(f"no process for training: {error}") from error
        try:
            output, errors = process.communicate(encode(order), timeout=TRAINER_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise PortTimeout("training took too long and was stopped") from error
        finally:
            _end(process)
            self._running = None
        if process.returncode:
            last = errors.strip()[-_ERROR_CHARS:]
            raise PortError(f"training ended with {process.returncode}: {last}")
        return decode(output, TrainReport)

    def close(self) -> None:
        """End a running training."""
        with self._lock:
            if self._running is not None:
                _end(self._running)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and wait for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
