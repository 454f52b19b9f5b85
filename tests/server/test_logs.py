"""The log: every line one JSON object, private, bounded, and never what fails a request."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime
from pathlib import Path

import pytest

from meritory.server import logs
from meritory.server.logs import Log


def lines(file: Path) -> list[dict[str, object]]:
    raw = file.read_bytes()
    assert raw.isascii()
    assert not set(raw) & (set(range(32)) - {10} | {127})
    return [json.loads(line) for line in raw.splitlines()]


def test_every_line_is_an_object_with_the_same_names(tmp_path: Path) -> None:
    file, stream = tmp_path / "daemon.log", io.StringIO()
    log = Log(file, "debug", stream)
    log.debug("http", "request", request_id="r1", status=200, duration_ms=0.5)
    log.info("daemon", "evil\n\x1b[31m\x7f\u202e name", note="a\r\nb\x00 ☕")
    log.warning("daemon", "odd", value={1, 2}, path=file)
    try:
        raise ValueError("what a user wrote")
    except ValueError as error:
        log.error("http", "request.bug", error, request_id="r2")
    logging.getLogger("uvicorn.error").warning("from the %s", "server")
    log.close()
    found = lines(file)
    assert [line["level"] for line in found] == ["debug", "info", "warning", "error", "warning"]
    for line in found:
        assert {"at", "level", "category", "event", "request_id"} <= set(line)
        assert datetime.fromisoformat(str(line["at"])).tzinfo is not None
    assert found[0]["request_id"] == "r1"
    assert found[1]["event"] == "evil\n\x1b[31m\x7f\u202e name"
    trace = found[3]["trace"]
    assert isinstance(trace, list)
    assert trace[0] == "ValueError"
    assert trace[1].startswith("test_logs.py:")
    assert b"what a user wrote" not in file.read_bytes()
    assert found[4] | {"category": "server", "event": "from the server"} == found[4]
    assert stream.getvalue() == file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_level_decides_what_is_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "daemon.log", "warning")
    log.debug("a", "b")
    log.info("a", "b")
    log.warning("a", "seen")
    log.close()
    assert [line["event"] for line in lines(tmp_path / "daemon.log")] == ["seen"]


def test_the_file_is_rotated_and_all_parts_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROTATE_AT_BYTES", 2_000)
    log = Log(tmp_path / "daemon.log", "info")
    for number in range(200):
        log.info("a", "event", number=number)
    log.close()
    parts = sorted(tmp_path.iterdir())
    assert [part.name for part in parts] == ["daemon.log", *(f"daemon.log.{n}" for n in (1, 2, 3))]
    assert all(part.stat().st_mode & 0o777 == 0o600 for part in parts)
    assert all(part.stat().st_size <= 2_000 for part in parts)
    assert lines(tmp_path / "daemon.log")[-1]["number"] == 199


def test_a_log_that_cannot_be_written_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(tmp_path / "no" / "such" / "folder.log", "info")
    log.info("a", "b")
    log.close()
    assert capsys.readouterr() == ("", "")
