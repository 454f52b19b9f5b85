"""One real daemon for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hook_kit import HERON, Running

from patient_hook import PATIENCE_S, patient_script, set_budgets


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook waits for its answer in this process, however busy the machine is."""
    set_budgets(monkeypatch, PATIENCE_S)


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of a hook that does so as a process."""
    return patient_script(tmp_path_factory.mktemp("patient"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("anna")
    (home / "shop" / ".git").mkdir(parents=True)
    (home / "shop" / "src").mkdir()
    made = Running(home)
    try:
        made.ask("POST", "/api/memories", {"content": HERON, "project": "shop"})
        yield made
    finally:
        made.close()
