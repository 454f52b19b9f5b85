"""Training in a process of its own: what is ordered, what comes back, and who carries it out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from tenure.errors import BadReply, PortError, PortTimeout
from tenure.ports.scorer import Shelves
from tenure.rank.fuse import RRF_K
from tenure.rank.influence import Weighing

# Its own limit is half a minute; starting, reading and the gates come on top.
TRAINER_LIMIT_S = 120.0
_ERROR_CHARS = 500


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
    gates: tuple[dict[str, Any], ...] = ()
    # What this way of learning makes of each session when it learns from all others; empty for a
    # scorer that is too slow to be asked so often.
    replay: tuple[Weighing, ...] = ()
    error: str | None = None


class Trainer(Protocol):
    """Who trains."""

    def train(self, order: TrainOrder) -> TrainReport:
        """Carries out an order; PortError when nothing came of it at all."""


class SpawnedTrainer:
    """Trains in a new process, so that nobody who is served waits for it."""

    def __init__(self, store: Path, shelves: Shelves) -> None:
        paths = (store, shelves.folder, shelves.base)
        # Nothing is imported from the folder an agent happens to work in.
        self._command = [sys.executable, "-P", "-m", "tenure.trainer", *map(str, paths)]

    def train(self, order: TrainOrder) -> TrainReport:
        """Waits until the process is done."""
        # One thread for the numbers: two would fight the agent for the machine.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                self._command,
                input=order_text(order),
                capture_output=True,
                encoding="utf-8",
                timeout=TRAINER_LIMIT_S,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PortTimeout("training took too long and was ended") from error
        except OSError as error:
            raise PortError(f"no process for training: {error}") from error
        if done.returncode:
            told = done.stderr.strip()[-_ERROR_CHARS:]
            raise PortError(f"training ended with {done.returncode}: {told}")
        return read_report(done.stdout)


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
        replay = tuple(Weighing(**one) for one in known["replay"])
        return TrainReport(**{**known, "replay": replay, "gates": tuple(known["gates"])})
    except (ValueError, TypeError, LookupError) as error:
        raise BadReply(f"the report of the training cannot be read: {error}") from error
