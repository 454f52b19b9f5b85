"""The program as a process: what it loads, pipes, signals, streams and terminals."""

from __future__ import annotations

import errno
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_types import Process, Stored

HEAVY = {"numpy", "sqlite3", "rich", "meritory.api.memory", "meritory.store", "asyncio", "difflib"}


def loaded_by(*arguments: str) -> set[str]:
    """Every module that a command line has loaded when it ends."""
    code = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: sys.stderr.write(json.dumps(sorted(sys.modules))))\n"
        f"sys.argv = ['meritory', *{list(arguments)!r}]\n"
        "from meritory.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return set(json.loads(done.stderr[done.stderr.index("[") :]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        [],
        ["recall", "--help"],
        ["remember", "--help"],
        ["import", "--help"],
    ],
)
def test_help_loads_nothing_heavy(home: Path, arguments: list[str]) -> None:
    loaded = loaded_by(*arguments)
    assert "click" in loaded
    assert not loaded & HEAVY


def test_what_is_piped_is_drawn_without_rich(home: Path) -> None:
    loaded = loaded_by("list")
    assert "meritory.api.memory" in loaded
    assert "rich" not in loaded


def test_python_m_meritory_is_the_program(process: Process) -> None:
    assert process("remember", "The staging database is called heron").returncode == 0
    found = process("recall", "staging", "--json")
    assert found.returncode == 0
    assert json.loads(found.stdout)["results"][0]["content"].endswith("heron")
    failed = process("show", "7zzz")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert process("--nonsense").returncode == 2


def test_stdin_must_be_utf8(process: Process) -> None:
    assert process("remember", "-", stdin="größer".encode()).returncode == 0
    done = process("remember", "-", stdin=b"\xff\xfe")
    assert done.returncode == 2
    assert b"stdin is not UTF-8" in done.stderr


def test_arguments_that_are_not_utf8_are_refused(process: Process) -> None:
    done = process("remember", b"caf\xe9")
    assert done.returncode == 2
    assert b"valid Unicode" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "seen"),
    [("utf-8", "naïve ☕ 日本"), ("ascii", "naïve ☕ 日本"), ("latin-1", "naïve \\u2615 \\u65e5")],
)
def test_any_locale_can_print_any_memory(process: Process, encoding: str, seen: str) -> None:
    """Plain ASCII is taken for a locale that was never set, and gets UTF-8."""
    process("remember", "naïve ☕ 日本")
    done = process("list", PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert seen.encode("latin-1" if encoding == "latin-1" else "utf-8") in done.stdout


def test_a_reader_who_leaves_is_no_error(home: Path, process: Process, tmp_path: Path) -> None:
    lines = "".join(json.dumps(f"claim number {n} " + "x" * 900) + "\n" for n in range(200))
    (tmp_path / "in.jsonl").write_text(lines)
    process("import", "in.jsonl", "--keep")
    for words in (["list", "--limit", "200"], ["export", "-"], ["list", "--json"]):
        child = subprocess.Popen(
            [sys.executable, "-m", "meritory", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        complaint = child.stderr.read()
        child.stderr.close()
        assert child.wait(60) == 141
        assert complaint == b""


def test_a_full_disk_behind_stdout_is_told(process: Process, stored: Stored) -> None:
    stored("one claim")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "meritory", "list"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert b"error: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "words", [["list"], ["--help"], ["export", "-"], ["show", "7zzz", "--json"]]
)
def test_closed_streams_give_no_traceback(home: Path, stored: Stored, words: list[str]) -> None:
    stored("one claim")
    command = " ".join([sys.executable, "-m", "meritory", *words])
    done = subprocess.run(
        ["sh", "-c", f"exec {command} >&- <&-"], stderr=subprocess.PIPE, timeout=60
    )
    assert b"Traceback" not in done.stderr
    assert b"bug in Meritory" not in done.stderr


def in_terminal(words: list[str], *, typed: bytes = b"", **environ: str) -> tuple[int, str]:
    """Runs a command on a terminal of 80 columns; returns its exit code and all it showed."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"} | environ)
        os.execv(sys.executable, [sys.executable, "-m", "meritory", *words])
    shown = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                piece = os.read(master, 65_536)
            except OSError as error:
                assert error.errno == errno.EIO
                break
            shown += piece
            if typed and b"[y/N]" in shown:
                # Nobody answers before the question is read; Python itself would miss a Ctrl-C
                # that comes just before it begins to wait.
                time.sleep(0.5)
                os.write(master, typed)
                typed = b""
            if not piece:
                break
    os.close(master)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n")


def test_a_terminal_shows_a_table_that_fits_with_short_ids_that_work(
    stored: Stored, process: Process
) -> None:
    ids = [stored(f"claim number {n}: " + "long words here " * 30, "--keep") for n in range(3)]
    code, shown = in_terminal(["list"], NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert all(len(line) <= 80 for line in lines)
    short = [line.split()[0] for line in lines[1:] if line.startswith(ids[0][:4])]
    assert len(short) == 3
    for name, full in zip(reversed(short), ids, strict=True):
        assert full.startswith(name)
        assert len(name) < len(full)
        assert json.loads(process("show", name, "--json").stdout)["id"] == full
    assert "…" in shown


def test_every_sort_of_answer_is_drawn_on_a_terminal(stored: Stored, process: Process) -> None:
    first = stored("We always run the tests before a merge", "--about", "api", "--depends-on", "db")
    code, shown = in_terminal(["remember", "We always run the tests before the merge"])
    assert code == 0, shown
    assert f"merged into {first[:12]}; `meritory split {first[:12]}`" in shown
    gone = stored("soon to be gone altogether")
    for words, said in (
        (["merges"], "merged with"),
        (["history", first], "merge by cli"),
        (["describe", "api"], "depends on: topic db"),
        (["entities"], "memories"),
        (["show", first], "static-minilm"),
        (["split", first], "before the merge"),
        (["undo", first], "forgotten"),
        (["forget", gone, "--purge", "--yes"], f"erased {gone[:12]}"),
        (["stats"], "1 merged"),
        (["doctor"], "the database is sound"),
        (["config", "show"], "retention.transcript_days"),
    ):
        code, shown = in_terminal(words, NO_COLOR="1")
        assert code == 0, (words, shown)
        assert said in shown, (words, shown)


def test_colours_are_for_terminals_and_can_be_switched_off(stored: Stored) -> None:
    stored("one claim")
    assert "\x1b[" in in_terminal(["list"])[1]
    for words, environ in (
        (["--no-color", "list"], {}),
        (["list", "--no-color"], {}),
        (["list"], {"NO_COLOR": "1"}),
        (["list"], {"TERM": "dumb"}),
    ):
        code, shown = in_terminal(words, **environ)
        assert code == 0
        assert "\x1b" not in shown


def test_a_narrow_terminal_never_cuts_an_id(stored: Stored) -> None:
    memory_id = stored("one claim in a narrow place")
    _, shown = in_terminal(["list"], COLUMNS="30", NO_COLOR="1")
    assert any(line.split()[0] == memory_id[:12] for line in shown.splitlines()[1:])


def test_a_terminal_is_not_steered_by_memories(stored: Stored, process: Process) -> None:
    process("remember", "-", stdin="alert \x1b[31m [bold]red[/bold] \u202e".encode())
    for words in (["list"], ["export", "-"], ["recall", "alert"], ["list", "--json"]):
        _, shown = in_terminal(words, NO_COLOR="1")
        assert "alert" in shown
        assert "[bold]red[/bold]" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_a_person_is_asked_on_the_terminal(stored: Stored) -> None:
    memory_id = stored("my diary")
    code, shown = in_terminal(["forget", memory_id, "--purge"], typed=b"n\n", NO_COLOR="1")
    assert code == 1
    assert "nothing was done" in shown
    code, shown = in_terminal(["forget", memory_id, "--purge"], typed=b"\x03", NO_COLOR="1")
    assert code == 130
    assert "Traceback" not in shown
    code, shown = in_terminal(["forget", memory_id, "--purge"], typed=b"y\n", NO_COLOR="1")
    assert code == 0


def test_an_interrupted_import_goes_on(home: Path, process: Process, tmp_path: Path) -> None:
    lines = "".join(json.dumps(f"claim number {n} of many") + "\n" for n in range(2_000))
    (tmp_path / "in.jsonl").write_text(lines)
    child = subprocess.Popen(
        [sys.executable, "-m", "meritory", "import", str(tmp_path / "in.jsonl"), "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    store = home / "meritory.db-wal"
    deadline = time.monotonic() + 30
    while not (store.exists() and store.stat().st_size > 200_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, complaint = child.communicate(timeout=60)
    assert child.returncode == 130, (out, complaint)
    assert b"run the same command again to resume" in complaint
    assert b"Traceback" not in complaint
    again = process("import", "in.jsonl", "--keep", "--json")
    report = json.loads(again.stdout)
    assert 0 < report["resumed_at"] < 2_000
    assert report["resumed_at"] + sum(report["outcomes"].values()) == 2_000
    assert json.loads(process("stats", "--json").stdout)["live"] == 2_000
