"""Fixtures that every test may use, and how hard hypothesis looks by default."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from machine import patience
from meritory.api.memory import Memory
from meritory.domain.world import SeededWorld
from meritory.store.sqlite.store import SqliteStore
from places import STORE_PROPERTY

if TYPE_CHECKING:
    from postgres_kit import Server

pytest.register_assert_rewrite("contract", "crash")
settings.register_profile(
    "meritory", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("meritory"), max_examples=20)
settings.load_profile("meritory")
# A shell without job control has what it starts in the background ignore Ctrl-C, and so would all
# processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let every test take longer on a slower machine."""
    limit_s = patience(float(config.getini("timeout")))
    for item in items:
        if item.get_closest_marker("timeout") is None and config.getoption("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit_s))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests of the flows ran on which kind of store, and which only on files."""
    told: Counter[str] = Counter()
    for reports in (terminalreporter.stats.get(name, []) for name in ("passed", "failed")):
        for report in reports:
            # With a fault in its setup there is no call.
            if report.when == "call":
                told.update(kind for name, kind in report.user_properties if name == STORE_PROPERTY)
    if told:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(told.items()))
        terminalreporter.write_line(f"tests/engine by store: {counts}")


@pytest.fixture
def world() -> SeededWorld:
    """A world whose clock goes on by a second at every look, with the same ids every time."""
    # A counter, for no generator can be asked by two threads at once.
    looks, began = itertools.count(), datetime(2026, 1, 1, tzinfo=UTC)
    return SeededWorld(7, lambda: began + timedelta(seconds=next(looks)))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A throw-away PostgreSQL for the whole run; what needs it is skipped where there is none."""
    # Imported here: only some tests need a database server, and its driver.
    from postgres_kit import running_server

    with running_server() as server:
        yield server


@pytest.fixture
def address(postgres: Server) -> Iterator[str]:
    """The address of a database that holds nothing but our schema, and that no setting names."""
    address = postgres.fresh()
    yield address
    postgres.give_back(address)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A new store in a folder of its own."""
    opened = SqliteStore(tmp_path / "meritory.db")
    yield opened
    opened.close()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: SeededWorld) -> Iterator[Memory]:
    """The front door on a new store, apart from the settings of whoever runs the tests."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    clock: Callable[[], datetime] = world.now
    with Memory(tmp_path / "meritory.db", clock=clock, everywhere=True) as opened:
        yield opened
