"""What somebody new gets wrong, and what they are told then."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from cli_types import Run

from meritory.cli.errors import describe


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("eval", "error: name a command: compare, extraction,"),
        ("config", "error: name a command: path, show"),
        ("list --limit x", "'x' is not a whole number"),
        ("remember x --importance much", "'much' is not a number"),
        ("predictor rollback x", "Invalid value for 'VERSION': 'x' is not a whole number"),
        ("connect emacs", "Invalid value for the argument: 'emacs' is not one of 'claude-code'"),
        ("completion tcsh", "Invalid value for the argument: 'tcsh' is not one of 'bash'"),
    ],
)
def test_wrong_use_is_told_in_plain_words(run: Run, given: str, told: str) -> None:
    done = run(*given.split())
    assert (done.code, told in done.err) == (2, True), done.err
    assert f"`meritory {' '.join(given.split()[:1])}" in done.err


def test_a_backup_that_is_not_there_is_not_asked_about(run: Run, tmp_path: Path) -> None:
    run("remember", "We deploy on Mondays")
    done = run("restore", str(tmp_path / "none.db"))
    assert done.code == 2
    assert done.err.startswith("error: there is no backup")


def test_a_question_without_an_answer_has_its_own_line(run: Run, tmp_path: Path) -> None:
    run("remember", "We deploy on Mondays")
    run("backup", str(tmp_path / "copy.db"))
    done = run("restore", str(tmp_path / "copy.db"))
    assert done.code == 2
    assert "\nerror: this command asks for confirmation" in done.err


def test_a_file_that_exists_is_told_without_numbers(run: Run, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    for given in (("telemetry", "export"), ("export", "--format", "markdown")):
        done = run(*given, str(tmp_path / "there"))
        assert done.code == 2
        assert "File exists\n" in done.err
        assert "Errno" not in done.err


def test_what_nobody_knows_is_named_as_it_was_typed(run: Run) -> None:
    run("remember", "We deploy on Mondays")
    done = run("describe", "/proc/cpuinfo")
    assert (done.code, "no memory is about '/proc/cpuinfo'" in done.err) == (1, True)


def test_being_shown_is_not_called_use(run: Run) -> None:
    memory_id = run("remember", "We deploy on Mondays", "--json").object["id"]
    shown = run("show", memory_id).out
    assert "shown       0 times, usefulness 0.5" in shown
    assert "used" not in shown


def test_one_note_is_one_file(run: Run, tmp_path: Path) -> None:
    run("remember", "We deploy on Mondays")
    assert "to 1 file in" in run("export", "--format", "markdown", str(tmp_path / "notes")).out


def test_a_full_disk_is_not_a_question_of_rights() -> None:
    assert describe(OSError(errno.ENOSPC, "No space left")).hint == "free some space and try again"
    assert describe(OSError(errno.EACCES, "Denied")).hint == "check the path and its permissions"


def test_who_uses_another_daemon_is_told_that_commands_do_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_URL", "http://127.0.0.1:1")
    assert "MERITORY_URL is for agents and programs" in run("list").err
    (found,) = (
        check for check in run("doctor", "--json").object["results"] if check["id"] == "elsewhere"
    )
    assert found["status"] == "fail"
    assert "the daemon at 127.0.0.1:1 cannot be reached" in found["detail"]
    assert "host and port" in found["hint"]


def test_a_backup_that_cannot_be_made_is_named_and_not_the_store(run: Run, tmp_path: Path) -> None:
    run("remember", "We deploy on Mondays")
    done = run("backup", str(tmp_path / ("x" * 300)))
    assert done.code == 1
    assert "xxx" in done.err
    assert "meritory.db" not in done.err
