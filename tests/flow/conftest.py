"""A desk to hold sessions at: a store, a clock that goes when told to, a look at the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from session_kit import Clock, Desk

from tenure.memory import Memory
from tenure.world import SeededWorld


@pytest.fixture
def desks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    """Opens desks on one store; settings are given by their dotted names."""
    monkeypatch.setenv("TENURE_HOME", str(tmp_path / "home"))
    clock = Clock()
    opened: list[Memory] = []

    def open_desk(name: str = "tenure.db", **settings: object) -> Desk:
        for setting, value in settings.items():
            monkeypatch.setenv(f"TENURE_{setting.upper()}", str(value))
        # Ids break ties, and the order of a session's records: the same ones in every run, others
        # in every desk.
        world = SeededWorld(len(opened), clock)
        memory = Memory(tmp_path / name, project="shop", clock=world, background=False)
        opened.append(memory)
        return Desk(memory, clock)

    yield open_desk
    for memory in opened:
        memory.close()


@pytest.fixture
def desk(desks: Callable[..., Desk]) -> Desk:
    """One desk with the usual settings."""
    return desks()
