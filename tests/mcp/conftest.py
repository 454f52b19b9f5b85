"""One daemon for all tests of this folder, and servers that talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp_kit import PROJECT, Piped, environment, prepared

from meritory.api import client
from meritory.api.client import Daemon

Pipe = Callable[..., Piped]


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = prepared(tmp_path_factory.mktemp("mcp") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", environment())
        started = client.ensure(home, 30_000)
    yield started
    assert client.stop(home)


@pytest.fixture
def pipe(daemon: Daemon) -> Iterator[Pipe]:
    """Starts servers beside the running daemon."""
    made: list[Piped] = []

    def start(*options: str, home: Path = daemon.home, **environ: str) -> Piped:
        made.append(Piped(home, *(options or ("--project", PROJECT)), **environ))
        return made[-1]

    yield start
    for one in made:
        one.__exit__()


@pytest.fixture(scope="module")
def shared(daemon: Daemon) -> Iterator[Piped]:
    """One server for tests that leave it as it was."""
    with Piped(daemon.home, "--project", PROJECT) as made:
        made.shake_hands()
        yield made
        code, _, err = made.end()
        assert (code, err) == (0, b"")
