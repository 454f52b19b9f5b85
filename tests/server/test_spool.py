"""Events that hooks kept while no daemon took them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from web_types import Processes, Serve, Served, wait_for

from meritory.hook import spool as hook_spool
from meritory.hook.shapes import TRAILER
from meritory.server import spool
from meritory.server.routes.hooks import SessionEnd
from meritory.server.table import Call
from meritory.settings.home import SPOOL_NAME

TALK = [{"role": "user", "text": "where? " * 60}, {"role": "assistant", "text": "heron " * 60}]


def encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def keep(home: Path, event: str, key: str, **body: Any) -> None:
    told = {"session_key": key, "relayed": True, "harness": "claude-code", **body}
    hook_spool.put(str(home), event, told, encoded, TRAILER)


def end(home: Path, key: str) -> None:
    keep(home, "session-end", key, transcript=TALK)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    (made / "config.toml").touch()
    return made


def kept(home: Path) -> list[Path]:
    return sorted((home / SPOOL_NAME).glob("*"))


def state(daemon: Served, key: str) -> str:
    return str(daemon.ask("GET", f"/api/sessions/{key}").json.get("state"))


def test_both_sides_mean_the_same_folder_and_size() -> None:
    assert hook_spool.FOLDER == SPOOL_NAME
    assert spool.FILE_LIMIT_BYTES == hook_spool.FILE_LIMIT_BYTES


def test_a_file_is_private_and_holds_no_more_than_ratings(home: Path) -> None:
    reply = "The secret plan.\n<!--mf abcdefghij m1=0.5-->\n"
    keep(home, "stop", "run", last_assistant_message=reply)
    keep(home, "stop", "run", last_assistant_message="Nothing was rated here.")
    end(home, "run")
    rated, ended = kept(home)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (rated, ended)] == [0o600] * 2
    assert stat.S_IMODE((home / SPOOL_NAME).stat().st_mode) == 0o700
    said = json.loads(rated.read_bytes())["body"]["last_assistant_message"]
    assert said.strip() == "<!--mf abcdefghij m1=0.5-->"


def test_files_are_bounded_in_size_and_number(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(home, "session-end", "long", cwd="x" * hook_spool.FILE_LIMIT_BYTES)
    assert kept(home) == []
    monkeypatch.setattr(hook_spool, "FILES_LIMIT_COUNT", 3)
    for number in range(5):
        end(home, f"run-{number}")
    assert len(kept(home)) == 3


def test_a_daemon_takes_every_event_once_and_removes_what_it_cannot_use(
    home: Path, processes: Processes
) -> None:
    for number in range(3):
        end(home, f"run-{number}")
    end(home, "run-0")
    keep(home, "session-end", "wordless")
    for name, content in (
        ("1-bad.json", b"{"),
        ("2-other.json", encoded({"event": "session-start", "body": {}})),
        ("3-shape.json", encoded({"event": "stop", "body": {"session_key": 3}})),
        ("4-long.json", b'"' + b"x" * 100_000 + b'"'),
    ):
        (home / SPOOL_NAME / name).write_bytes(content)
    os.symlink("/etc/passwd", home / SPOOL_NAME / "5-link.json")
    elsewhere = home / SPOOL_NAME / "remote" / "far" / "6.json"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(encoded({"event": "session-end", "body": {"session_key": "far"}}))
    daemon = processes.start(home)
    wait_for(lambda: len(kept(home)) == 2, "not everything was taken")
    # A link is nobody's event, and what another daemon shall get is left alone.
    assert [one.name for one in kept(home)] == ["5-link.json", "remote"]
    assert elsewhere.exists()
    for number in range(3):
        wait_for(lambda n=number: state(daemon, f"run-{n}") == "finished", "it was lost")
    assert daemon.ask("GET", "/api/sessions/wordless").status == 404
    events = daemon.ask("GET", "/api/timeline/run-0").json["results"]
    assert [one["event"] for one in events].count("session.end") == 1


def test_an_end_that_was_kept_does_not_end_a_session_that_went_on(
    home: Path, processes: Processes
) -> None:
    daemon = processes.start(home)
    body = {"session_key": "run", "prompt": "hello"}
    assert daemon.ask("POST", "/api/hooks/user-prompt-submit", body).status == 200
    end(home, "run")
    assert daemon.ask("POST", "/api/hooks/user-prompt-submit", body).status == 200
    processes.end()
    daemon = processes.start(home)
    wait_for(lambda: not kept(home), "it was not taken")
    assert state(daemon, "run") == "open"


def test_an_end_says_for_how_long_it_was_kept(home: Path, processes: Processes) -> None:
    daemon = processes.start(home)
    for prompt in ("hello", "and again"):
        said = {"session_key": "run", "prompt": prompt}
        assert daemon.ask("POST", "/api/hooks/user-prompt-submit", said).status == 200

    def end_of(**fields: Any) -> Any:
        return daemon.ask("POST", "/api/hooks/session-end", {"session_key": "run", **fields})

    assert end_of(kept_ms=60_000).json["queued"] is False
    assert state(daemon, "run") == "open"
    for wrong in (-1, 10**18, "soon"):
        assert end_of(kept_ms=wrong).status == 422
    assert end_of(kept_ms=0).json["queued"] is True
    assert state(daemon, "run") != "open"


def test_an_event_that_a_fault_of_ours_stops_is_not_lost(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(call: Call) -> None:
        raise ZeroDivisionError(call.request_id)

    end(home, "run")
    monkeypatch.setattr(spool, "_HANDLERS", {"session-end": (SessionEnd, fail)})
    served = serve()
    assert served.home == home
    wait_for(lambda: bool(list(kept(home)[0].parent.glob("*.failed"))), "it was not set aside")
    (left,) = kept(home)
    assert json.loads(left.read_bytes())["body"]["session_key"] == "run"
