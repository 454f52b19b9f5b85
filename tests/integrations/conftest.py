"""A memory of its own for every test of an adapter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meritory import Memory

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the settings nor the daemon of whoever runs the tests, and no telemetry of others."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "meritory.db") as opened:
        yield opened


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of ours that a test imports again are not kept."""
    for name in [name for name in sys.modules if name.startswith("meritory.integrations.")]:
        monkeypatch.delitem(sys.modules, name)
