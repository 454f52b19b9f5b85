"""The hook as a process: what a client sees of it, and what becomes of a daemon that is down."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hook_kit import (
    HERON,
    SCRIPT,
    WAIT_S,
    Imposter,
    Running,
    clean_environment,
    faults,
    run,
    wait_for,
)

from meritory.api import client
from meritory.api.memory import Memory
from meritory.hook import main
from meritory.settings import load_settings

START = {"session_id": "s", "hook_event_name": "SessionStart", "source": "startup"}
PROMPT = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "staging database?"}
CLAUDE = ["--harness", "claude-code"]


def sent(payload: Any) -> bytes:
    return json.dumps(payload).encode()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A home whose daemon, if there is one in the end, is ended."""
    yield tmp_path
    client.stop(tmp_path / "meritory")


def test_the_answer_is_printed_and_nothing_else(running: Running, patient: Path) -> None:
    event = {**START, "cwd": str(running.home / "shop")}
    ran = run(CLAUDE, sent(event), running.environ, patient)
    assert faults(ran) == []
    assert HERON in ran.out.decode()
    code = (
        "from meritory import cli; from meritory.hook import main; main.BUDGET_S = 60.0; cli.main()"
    )
    command = [sys.executable, "-c", code, "hook", *CLAUDE]
    event["session_id"] = "t"
    done = subprocess.run(command, input=sent(event), capture_output=True, env=running.environ)
    assert (done.returncode, done.stderr) == (0, b"")
    assert HERON in done.stdout.decode()


def test_it_loads_nothing_that_it_does_not_need(running: Running) -> None:
    code = (
        "import sys, os; left = os._exit\n"
        "def tell(code): print(*sorted(sys.modules), file=sys.stderr, flush=True); left(code)\n"
        f"os._exit = tell; sys.argv = ['x', *{CLAUDE!r}]\n"
        f"__file__ = {str(SCRIPT)!r}; exec(compile(open(__file__).read(), 'x', 'exec'))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        input=sent({**START, "session_id": "light"}),
        capture_output=True,
        env=running.environ,
        check=True,
    )
    loaded = set(done.stderr.decode().split())
    heavy = {"json", "re", "enum", "socket", "signal", "typing", "dataclasses", "http", "meritory"}
    assert "_json" in loaded
    assert not loaded & heavy


def test_a_sessions_beginning_starts_the_daemon_and_is_answered(place: Path, patient: Path) -> None:
    home = place / "meritory"
    with Memory(settings=load_settings(home, {}), background=False) as memory:
        memory.remember(HERON)
    ran = run(CLAUDE, sent(START), clean_environment(place))
    assert faults(ran) == []
    wait_for(lambda: client.find(home) is not None, "no daemon came up")
    # On a busy machine it may be too late for an answer; the first prompt brings it then.
    out = ran.out or run(CLAUDE, sent(PROMPT), clean_environment(place), patient).out
    assert HERON in out.decode()


def test_an_empty_folder_that_is_open_is_closed_and_used(place: Path) -> None:
    home = place / "meritory"
    home.mkdir()
    home.chmod(0o755)
    assert faults(run(CLAUDE, sent(START), clean_environment(place))) == []
    wait_for(lambda: client.find(home) is not None, "no daemon came up")
    assert home.stat().st_mode & 0o777 == 0o700


def test_many_at_once_start_one_daemon_and_a_prompt_does_not_wait(place: Path) -> None:
    environ = clean_environment(place)
    events = [{**PROMPT, "session_id": f"s{number}"} for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        ran = list(pool.map(lambda event: run(CLAUDE, sent(event), environ), events))
    assert [(faults(one), one.out) for one in ran] == [([], b"")] * len(events)
    home = place / "meritory"
    assert started(home) == 1
    wait_for(lambda: client.find(home) is not None, "no daemon came up")
    assert started(home) == 1
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    # One that was started so is found by others, and ends like any other.
    assert client.stop(home) is not None
    assert client.ensure(home, wait_ms=60_000).home == home


def started(home: Path) -> int:
    """How many processes run or try to be the daemon of a folder."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            found += str(home).encode() in words and b"--detached" in words
    return found


def test_a_reply_that_found_no_daemon_is_told_later(place: Path, patient: Path) -> None:
    home, environ = place / "meritory", clean_environment(place)
    client.ensure(home, wait_ms=60_000)
    run(CLAUDE, sent(START), environ, patient)
    assert client.stop(home) is not None
    end = {"session_id": "s", "hook_event_name": "SessionEnd", "reason": "other"}
    ran = run(CLAUDE, sent(end), environ)
    assert (faults(ran), ran.out) == ([], b"")

    def state() -> Any:
        found = client.find(home)
        return found and found.request("GET", "/api/sessions/s")["state"]

    wait_for(lambda: state() not in (None, "open"), "the end was lost")


def test_a_daemon_is_started_once_another_has_ended(place: Path) -> None:
    home = place / "meritory"
    home.mkdir(mode=0o700)
    end = {"session_id": "s", "hook_event_name": "SessionEnd", "reason": "other"}
    with (home / "daemon.lock").open("wb") as lock:
        # As one that ends does: it takes no more connections, and is still there.
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert faults(run(CLAUDE, sent(end), clean_environment(place))) == []
        time.sleep(0.1)
        assert started(home) == 0
    wait_for(lambda: client.find(home) is not None, "no daemon came up")
    assert started(home) == 1


def test_a_daemon_that_cannot_start_is_not_tried_all_the_time(place: Path) -> None:
    home = place / "meritory"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[daemon\n")
    environ, complaint = clean_environment(place), home / "daemon.err"
    assert faults(run(CLAUDE, sent(PROMPT), environ)) == []
    wait_for(lambda: complaint.exists() and complaint.stat().st_size > 0, "it did not fail")
    wait_for(lambda: started(home) == 0, "it did not end")
    before = complaint.stat().st_mtime_ns
    assert faults(run(CLAUDE, sent(PROMPT), environ)) == []
    assert started(home) == 0
    assert complaint.stat().st_mtime_ns == before
    os.utime(complaint, (0, 0))
    assert faults(run(CLAUDE, sent(PROMPT), environ)) == []
    wait_for(lambda: complaint.stat().st_mtime_ns > before, "it was not tried again")
    wait_for(lambda: started(home) == 0, "it did not end")


@pytest.mark.parametrize("name", ["a file", "a place that cannot be", "read only"])
def test_a_data_folder_that_cannot_be_used_is_no_harm(tmp_path: Path, name: str) -> None:
    home = tmp_path / "meritory"
    if name == "a file":
        home.write_text("x")
    elif name == "read only":
        home.symlink_to("/proc/1")
    else:
        home = tmp_path / ("x" * 300)
    environ = clean_environment(tmp_path, MERITORY_HOME=str(home))
    for event in (START, PROMPT, {**PROMPT, "hook_event_name": "Stop"}):
        ran = run(CLAUDE, sent(event), environ)
        assert (faults(ran), ran.out) == ([], b"")


def test_whoever_listens_and_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    imposter = Imposter(tmp_path / "meritory", None)
    try:
        names = ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
        events = [sent({**PROMPT, "hook_event_name": name}) for name in names]
        environ = clean_environment(tmp_path)
        with ThreadPoolExecutor(len(events)) as pool:
            ran = list(pool.map(lambda event: run(CLAUDE, event, environ), events))
    finally:
        imposter.close()
    assert [(faults(one), one.out) for one in ran] == [([], b"")] * len(events)
    # Far from a measurement: it says only that somebody stopped waiting.
    assert all(one.took_s < 10 for one in ran)


def test_a_socket_of_another_user_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "meritory"
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "left.sock"))
        listener.listen()
        listener.setblocking(False)
        told = {"socket": str(tmp_path / "left.sock"), "url": "http://127.0.0.1:1"}
        (home / "daemon.json").write_text(json.dumps(told))
        monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
        environ = clean_environment(tmp_path, MERITORY_HOOK="nostart")
        assert main.main(CLAUDE, sent(PROMPT), environ) == b""
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_whoever_sends_nothing_or_too_much_is_not_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(SCRIPT), *CLAUDE]
    environ = clean_environment(tmp_path, MERITORY_HOOK="nostart")
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    ) as silent:
        assert silent.wait(WAIT_S) == 0
        assert silent.stdout is not None and silent.stderr is not None
        assert (silent.stdout.read(), silent.stderr.read()) == (b"", b"")
    huge = b'{"prompt": "' + b"x" * (20 << 20) + b'"}'
    for raw in (b"", huge, sent(PROMPT) + b"\0", b"\xff\xfe" + sent(PROMPT)):
        ran = run(CLAUDE, raw, environ)
        assert (faults(ran), ran.out) == ([], b"")


def test_whoever_does_not_listen_is_not_told(running: Running) -> None:
    """Stdin, stdout and stderr may be closed, or lead to somebody who has left."""
    event = sent({**START, "session_id": "gone", "cwd": str(running.home / "shop")})
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-", "1>/dev/full"):
        line = f'exec "$0" -I -S "$@" {closed}'
        done = subprocess.run(
            ["/bin/sh", "-c", line, sys.executable, str(SCRIPT), *CLAUDE],
            input=event,
            capture_output=True,
            env=running.environ,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.close()
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SCRIPT), *CLAUDE],
            input=event.replace(b"gone", b"left"),
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=running.environ,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_its_switches_are_no_settings(tmp_path: Path) -> None:
    switches = {"MERITORY_HOOK": "off", "MERITORY_HOOK_HIDE_RATINGS": "on"}
    assert load_settings(tmp_path, switches) == load_settings(tmp_path, {})


@pytest.mark.parametrize("flags", [[], ["--harness"], ["--harness", "emacs"], ["-x", "--", "y"]])
def test_odd_arguments_are_no_harm(tmp_path: Path, flags: list[str]) -> None:
    ran = run(flags, sent(START), clean_environment(tmp_path, MERITORY_HOOK="nostart"))
    assert (faults(ran), ran.out) == ([], b"")


# -- these tests can fail -----------------------------------------------------------------------


FILES = ("__main__.py", "main.py", "shapes.py")
FLAGS = "    flags: dict[str, str] = {}\n"
CRASH = (FLAGS, "    raise KeyError(raw)\n" + FLAGS)
LAST = "nothing.\n        os._exit(0)"
SCRIPT_LAST = "nothing.\n    os._exit(0)"
SHOWN = '"hookEventName": native, "additionalContext": shown}}'
MUTANTS = {
    "crashes": (CRASH, (LAST, "nothing.\n        pass"), (SCRIPT_LAST, "nothing.\n    pass")),
    "crashes with a code": (CRASH, (LAST, LAST.replace("0", "3"))),
    "misses a module": (
        ("import time\n", "import time\nimport nothing_of_this_name\n"),
        (SCRIPT_LAST, "nothing.\n    pass"),
    ),
    "prints half": (("return _encoded(answer) if", "return _encoded(answer)[:-1] if"),),
    "prints another shape": ((SHOWN, SHOWN.replace("additionalContext", "additional")),),
    "complains": (
        (
            "        left, report = NOTHING",
            '        os.write(2, b"x")\n        left, report = NOTHING',
        ),
    ),
    "prints too much": ((SHOWN, SHOWN.replace("shown}}", "shown * 99}}")),),
    "lacks a file": (('_load("shapes")', '_load("shape")'), (SCRIPT_LAST, "nothing.\n    pass")),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_hook_would_be_noticed(
    running: Running, tmp_path: Path, patient: Path, name: str
) -> None:
    sources = {file: patient.with_name(file).read_text("utf-8") for file in FILES}
    for old, new in MUTANTS[name]:
        assert sorted(source.count(old) for source in sources.values()) == [0, 0, 1]
        sources = {file: source.replace(old, new) for file, source in sources.items()}
    for file, source in sources.items():
        (tmp_path / file).write_text(source)
    mutant = tmp_path / FILES[0]
    event = {**START, "cwd": str(running.home / "shop"), "session_id": name}
    assert faults(run(CLAUDE, sent(event), running.environ, mutant)) != []
