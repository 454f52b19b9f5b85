"""Users who have nothing yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from connect_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A user who has nothing yet."""
    home = tmp_path / "user"
    home.mkdir()
    return Desk(home)


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of files are written here; that they reach the disk is not what is tested."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
