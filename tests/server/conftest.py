"""Daemons for tests: real processes, and servers on a thread of the test."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from web_types import WAIT_S, Processes, Serve, Served, read_served, wait_for

from meritory.server import serve as serving
from meritory.server.app import TABLE
from meritory.server.connection import Listeners
from meritory.server.table import Route
from meritory.settings import load_settings


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One real daemon for all tests of a file, without a rate limit."""
    started = Processes()
    try:
        home = tmp_path_factory.mktemp("daemon") / "home"
        yield started.start(home, MERITORY_DAEMON_RATE_LIMIT_PER_S="0")
        assert started.end() == [0]
    finally:
        started.end(signal.SIGKILL)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serves on a thread of the test, with routes and settings of the test's own."""
    running: list[tuple[Served, threading.Thread]] = []

    def start(routes: Sequence[Route] = (), **chosen: object) -> Served:
        home = tmp_path / "home"
        values = {f"daemon.{name}": value for name, value in {"port": 0, **chosen}.items()}
        # The test waits for the model's scores, however busy the machine is.
        values["predictor.score_timeout_ms"] = 60_000
        ready: list[tuple[Listeners, Callable[[], None]]] = []
        finished: list[bool] = []
        serve = partial(
            serving.serve,
            load_settings(home, {}).vary(values),
            ready=lambda doors, stop: ready.append((doors, stop)),
            table=(*routes, *TABLE),
        )
        thread = threading.Thread(target=lambda: finished.append(serve()))
        thread.start()
        wait_for(lambda: bool(ready) or not thread.is_alive(), "no server came up")
        made = read_served(home)
        made.stop, made.finished = ready[0][1], finished
        running.append((made, thread))
        return made

    yield start
    for made, thread in running:
        made.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
