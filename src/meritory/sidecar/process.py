"""The process itself: its arguments, its pipes, and when it ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from meritory.domain.errors import MeritoryError
from meritory.domain.place import Place
from meritory.domain.world import World
from meritory.ports.scorer import ModelFolders, base_weights
from meritory.ports.sidecar import LineReader
from meritory.ports.trainer_process import TrainOrder, decode, encode
from meritory.sidecar.requests import PROCESS_ENDED, RpcServer
from meritory.sidecar.service import SLOW, Library, Service
from meritory.store import open_reader

# Some hundred candidates with long vectors, written as text, take about five.
LINE_LIMIT_BYTES = 16 << 20
PARENT_CHECK_S = 5.0
_READ_BYTES = 1 << 18
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stdin is closed, the parent process ends, or a signal arrives."""
    options = _options(arguments)
    # Ctrl-C is meant for the one who started this process, and who ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ended)
    answers = _answers_apart()
    place, world = Place.from_process(options.store, os.environ), World()
    library = Library(place, world)
    shelves = ModelFolders(options.models, options.base_weights, library.models)
    service = Service(library, shelves, options.checkpoint, world)
    server = RpcServer(service.methods(), SLOW, lambda line: _write(answers, line))
    try:
        _serve(server)
    except BrokenPipeError:
        return 0
    finally:
        with contextlib.suppress(OSError):
            server.cancel(PROCESS_ENDED)
        service.close()
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m meritory.sidecar", description=__doc__)
    parser.add_argument(
        "store",
        help="file of the store, which is only read; or postgresql: with its address in "
        "MERITORY_DATABASE_URL",
    )
    parser.add_argument("models", type=Path, help="folder of the store's models")
    parser.add_argument(
        "--base-weights", type=Path, default=base_weights(), help="what learning starts from"
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="model to score with; save_checkpoint writes it"
    )
    return parser.parse_args(arguments)


def _ended(*_: object) -> NoReturn:
    raise SystemExit(0)


def _answers_apart() -> int:
    """Where answers go; whatever else is printed goes where errors go."""
    answers = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = sys.stderr
    return answers


def _serve(server: RpcServer) -> None:
    lines = LineReader(LINE_LIMIT_BYTES)
    parent = os.getppid()
    waiting = select.poll()
    waiting.register(_STDIN, select.POLLIN)
    while True:
        if not waiting.poll(PARENT_CHECK_S * 1e3):
            # Another process may hold the other end of stdin, but the parent is gone.
            if os.getppid() != parent:
                return
            continue
        data = os.read(_STDIN, _READ_BYTES)
        # All of them: a request that follows a shutdown is answered, too.
        if not data or not all([server.take(line) for line in lines.feed(data)]):
            return


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def train_main(store: str, models: str, base: str) -> int:
    """Runs one training: an order on stdin, a report on stdout.

    It opens the store for reading only and writes nothing but a checkpoint.
    """
    from meritory.engine.predictor.train import Workshop, train

    order = decode(sys.stdin.read(), TrainOrder)
    try:
        reader = open_reader(Place.from_process(store, os.environ))
        shelves = ModelFolders(Path(models), Path(base), reader.models)
        workshop = Workshop(reader, shelves, World().monotonic_ms)
        report = train(workshop, order)
    except MeritoryError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    reader.close()
    sys.stdout.write(encode(report))
    return 0
