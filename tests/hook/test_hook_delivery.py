"""Delivery through the real hook: what was printed counts, and no end of a session is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hook_kit import HERON, SCRIPT, Running, clean_environment, faults, run, wait_for

from meritory.api import client
from meritory.hook import main

CLAUDE = ["--harness", "claude-code"]
WISH = "From now on always run make lint before you commit anything."


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    yield tmp_path
    client.stop(tmp_path / "meritory")


def event(home: Path, name: str, key: str, **more: Any) -> bytes:
    fields = {"session_id": key, "hook_event_name": name, "cwd": str(home / "shop")}
    return json.dumps({**fields, **more}).encode()


def transcript(home: Path, key: str) -> str:
    folder = home / ".claude" / "projects" / "shop"
    folder.mkdir(parents=True, exist_ok=True)
    said = [("user", WISH), ("assistant", "I will run make lint every time. " * 10)]
    lines = [
        {"type": role, "message": {"role": role, "content": text}, "sessionId": key}
        for role, text in said
    ]
    path = folder / f"{key}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def shown(running: Running, key: str) -> list[str]:
    rows = running.ask("GET", f"/api/sessions/{key}/memories")["results"]
    return [row["handle"] for row in rows if row["was_injected"]]


def is_known(running: Running, key: str) -> bool:
    return any(one["id"] == key for one in running.ask("GET", "/api/sessions")["results"])


def test_what_a_hanging_daemon_answers_too_late_is_offered_again(
    running: Running, patient: Path
) -> None:
    home, key = running.home, "slow-1"
    os.kill(running.process.pid, signal.SIGSTOP)
    try:
        ran = run(CLAUDE, event(home, "SessionStart", key, source="startup"), running.environ)
    finally:
        os.kill(running.process.pid, signal.SIGCONT)
    assert (faults(ran), ran.out) == ([], b"")
    # Nobody waits for it any more, so it changes nothing.
    assert not is_known(running, key)
    asked = event(home, "UserPromptSubmit", key, prompt="which staging database do we use?")
    ran = run(CLAUDE, asked, running.environ, patient)
    assert HERON in ran.out.decode()
    wait_for(lambda: shown(running, key) == ["m1"], "the receipt was lost")


def test_what_nobody_could_read_was_not_shown(running: Running) -> None:
    home = running.home
    for key, closed in (("full", "1>/dev/full"), ("closed", "1>&-")):
        line = f'exec "$0" -I -S "$@" {closed}'
        command = ["/bin/sh", "-c", line, sys.executable, str(SCRIPT), *CLAUDE]
        started = event(home, "SessionStart", key, source="startup")
        subprocess.run(command, input=started, env=running.environ, check=True)
        wait_for(lambda k=key: is_known(running, k), "it was not recorded")
        assert shown(running, key) == []


def test_nothing_printed_needs_no_receipt(running: Running) -> None:
    """A prompt that calls for nothing is one request and no more."""
    started = event(running.home, "SessionStart", "quiet", source="startup")
    asked = event(running.home, "PreCompact", "quiet", trigger="auto")
    printed, report = main.answer(CLAUDE, started, running.environ)
    assert printed and report is not main._nothing
    report(True)
    assert main.answer(CLAUDE, asked, running.environ) == main.NOTHING


def test_the_end_of_an_unknown_session_is_learned_from(running: Running) -> None:
    path = transcript(running.home, "oneshot-1")
    ended = event(running.home, "SessionEnd", "oneshot-1", reason="other", transcript_path=path)
    environ = {**running.environ, "HOME": str(running.home)}
    assert faults(run(CLAUDE, ended, environ)) == []
    wait_for(lambda: is_known(running, "oneshot-1"), "the session was lost")
    wait_for(lambda: running.session("oneshot-1")["state"] == "finished", "it was not judged")
    assert running.session("oneshot-1")["project"] == "shop"


def test_a_whole_session_without_a_daemon_is_learned_from_later(place: Path) -> None:
    home = place / "meritory"
    home.mkdir(mode=0o700)
    environ = clean_environment(place, MERITORY_HOOK="nostart")
    path = transcript(place, "down-1")
    for sent in (
        event(place, "SessionStart", "down-1", source="startup"),
        event(place, "UserPromptSubmit", "down-1", prompt=WISH),
        event(place, "Stop", "down-1", last_assistant_message="I will."),
        event(place, "SessionEnd", "down-1", reason="other", transcript_path=path),
    ):
        ran = run(CLAUDE, sent, environ)
        assert (faults(ran), ran.out) == ([], b"")
    (kept,) = (home / "spool").iterdir()
    assert "make lint" not in kept.read_text()
    # As one that is started by hand: with the user's own home.
    running = Running(place)
    try:
        wait_for(lambda: is_known(running, "down-1"), "the session was lost")
        wait_for(lambda: running.session("down-1")["state"] == "finished", "it was not judged")
        wait_for(lambda: not list((home / "spool").iterdir()), "its file stayed")
    finally:
        running.close()


def test_an_end_that_a_hanging_daemon_gets_twice_counts_once(place: Path, patient: Path) -> None:
    running = Running(place)
    try:
        run(
            CLAUDE, event(place, "SessionStart", "hung", source="startup"), running.environ, patient
        )
        path = transcript(place, "hung")
        os.kill(running.process.pid, signal.SIGSTOP)
        ended = event(place, "SessionEnd", "hung", reason="other", transcript_path=path)
        began = time.monotonic()
        assert faults(run(CLAUDE, ended, running.environ)) == []
        assert time.monotonic() - began < 10
        assert len(list((place / "meritory" / "spool").iterdir())) == 1
        os.kill(running.process.pid, signal.SIGCONT)
        wait_for(lambda: running.session("hung")["state"] == "finished", "it was lost")
        wait_for(lambda: not list((place / "meritory" / "spool").iterdir()), "its file stayed")
        events = running.ask("GET", "/api/timeline/hung")["results"]
        assert [one["event"] for one in events].count("session.end") == 1
    finally:
        running.close()


def test_a_hook_of_a_daemon_elsewhere_reports_what_it_printed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (running.home / "meritory" / "token").read_text().strip()
    monkeypatch.setenv("MERITORY_TOKEN", token)
    payload = event(running.home, "SessionStart", "far", source="startup")
    environ = {**running.environ, "MERITORY_URL": running.daemon.url, "MERITORY_TOKEN": token}
    printed, report = main.answer(CLAUDE, payload, environ)
    assert HERON in printed.decode()
    assert shown(running, "far") == []
    report(True)
    assert "m1" in shown(running, "far")
    # As a process, which does not wait for the answer.
    ran = run(CLAUDE, payload.replace(b'"far"', b'"farther"'), environ)
    assert faults(ran) == []
    wait_for(lambda: "m1" in shown(running, "farther") or not ran.out, "the receipt was lost")
