"""A database of its own for every team, and no process left when its tests are over."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from team_kit import Team

from postgres_kit import Server


@pytest.fixture(scope="module")
def team(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """People who share one database."""
    address = postgres.fresh()
    made = Team(tmp_path_factory.mktemp("team"), address)
    try:
        yield made
        assert set(made.end()) <= {0}
    finally:
        made.end(signal.SIGKILL)
        postgres.give_back(address)
