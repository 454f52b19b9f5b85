"""How the daemon is: asked for a moment only."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from meritory.api.client import Daemon
from meritory.cli import daemon as commands


def test_a_daemon_whose_store_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands.HEALTH_WAIT_MS <= 5_000
    monkeypatch.setattr(commands, "HEALTH_WAIT_MS", 50)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        hanging = Daemon(
            tmp_path, "http://127.0.0.1:1", str(tmp_path / "socket"), 1, "0.1.0", "2026-01-01"
        )
        health, troubles = commands.read_health(hanging)
    assert health == "unhealthy"
    assert troubles == ["the daemon did not answer within 50 ms"]
