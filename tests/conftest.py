"""Fixtures that every test may use, and how hard hypothesis looks by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tenure.memory import Memory
from tenure.store.sqlite import SqliteStore
from tenure.world import SeededWorld

if TYPE_CHECKING:
    from postgres_kit import Server

pytest.register_assert_rewrite("contract", "crash")
settings.register_profile(
    "tenure", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tenure")


@pytest.fixture
def world() -> SeededWorld:
    """A world whose clock goes on by a second at every look, with the same ids every time."""
    moments = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(10**9))
    return SeededWorld(7, lambda: next(moments))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A throw-away PostgreSQL for the whole run; what needs it is skipped where there is none."""
    # Imported here: only some tests need a database server, and its driver.
    from postgres_kit import running_server

    with running_server() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A new store in a folder of its own."""
    opened = SqliteStore(tmp_path / "tenure.db")
    yield opened
    opened.close()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: SeededWorld) -> Iterator[Memory]:
    """The front door on a new store, apart from the settings of whoever runs the tests."""
    monkeypatch.setenv("TENURE_HOME", str(tmp_path / "home"))
    clock: Callable[[], datetime] = world.now
    with Memory(tmp_path / "tenure.db", clock=clock, everywhere=True) as opened:
        yield opened
