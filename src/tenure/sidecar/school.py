"""Training beside scoring: a child process learns, and is ended with whoever ordered it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Lock

from tenure.errors import Conflict, PortError, PortTimeout
from tenure.ports.scorer import Shelves
from tenure.ports.trainer import TRAINER_LIMIT_S, TrainOrder, TrainReport, order_text, read_report

_ERROR_CHARS = 500
_END_LIMIT_S = 2.0


class School:
    """One training at a time in a process of its own."""

    def __init__(self, store: Path, shelves: Shelves) -> None:
        paths = store, shelves.folder, shelves.base
        self._command = [sys.executable, "-P", "-m", "tenure.trainer", *map(str, paths)]
        self._lock = Lock()
        self._running: subprocess.Popen[str] | None = None

    @property
    def is_training(self) -> bool:
        """Whether a training runs."""
        return self._running is not None

    def train(self, order: TrainOrder) -> TrainReport:
        """Waits until the training is done."""
        process = self._begun()
        try:
            told, errors = process.communicate(order_text(order), timeout=TRAINER_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise PortTimeout("training took too long and was ended") from error
        finally:
            _end(process)
            self._running = None
        if process.returncode:
            told = errors.strip()[-_ERROR_CHARS:]
            raise PortError(f"training ended with {process.returncode}: {told}")
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
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
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
