"""The edge of the program: exit codes, JSON errors, hostile arguments, and no traceback ever."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from cli_types import Process, Run, Stored

from meritory.cli import errors
from meritory.cli.app import APP, entries

COMMANDS = [entry.name for entry in entries()]
# Enough arguments to get past the parser, with X where the hostile word goes.
SHAPES = [
    "remember X",
    "remember x --kind X",
    "remember x --tag X",
    "remember x --project X",
    "remember x --agent X",
    "remember x --importance X",
    "remember x --confidence X",
    "remember x --about X",
    "remember x --about a --depends-on X",
    "remember x --valid-from X",
    "remember x --valid-until X",
    "remember x --supersedes X",
    "recall X",
    "recall x --limit X",
    "recall x --project X",
    "recall x --agent X",
    "list --kind X",
    "list --tag X",
    "list --limit X",
    "list --after X",
    "list --project X",
    "show X",
    "edit X --pin",
    "edit MINE --content X",
    "edit MINE --tag X",
    "edit MINE --project X",
    "edit MINE --valid-from X",
    "edit MINE --importance X",
    "confirm X",
    "forget X",
    "forget MINE --why X",
    "forget X --purge --yes",
    "history X",
    "undo X",
    "split X",
    "split MINE --entry X",
    "merges --limit X",
    "entities --limit X",
    "describe X",
    "describe x --project X",
    "export X",
    "import X",
    "import MINE.jsonl --project X",
    "backup X",
    "restore X --yes",
    "config X",
    "config show --home X",
    "completion X",
    "stats X",
    "stats --user X",
    "list --store X",
    "doctor X",
    "doctor --home X",
    "doctor --store X",
    "reembed X",
    "X",
    "--X",
]
HOSTILE = {
    "empty": "",
    "blank": "   ",
    "dots": "../../../../etc/passwd",
    "folder": ".",
    "device": "/dev/zero",
    "full": "/dev/full",
    "escape": "\x1b]0;pwned\x07\x1b[2J",
    "bidi": "abc\u202efdp.exe\u2066",
    "line breaks": "a\nb\r\nc",
    "surrogate": "caf\udce9",
    "huge number": "9" * 5000,
    "minus": "-1",
    "zero": "0",
    "not a number": "nan",
    "infinite": "1e400",
    "long": "7" * 1_000_000,
    "quote": "'; DROP TABLE memories; --",
    "operators": 'NEAR("a" OR *) AND -x:^',
    "markup": "[bold red]x[/] :skull: {0} %s",
    "tilde": "~nobody-of-that-name/x",
    "dash": "-",
    "dashes": "--",
}
STEERING = ("\x1b", "\x07", "\u202e", "\u2066", "\r")


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_that_is_typed_gives_a_traceback(
    run: Run, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever stands anywhere, the end is 0, 1 or 2, never a bug, and the store stays sound."""
    monkeypatch.chdir(tmp_path)
    mine = stored("mine and mine alone")
    for shape in SHAPES:
        (tmp_path / f"{mine}.jsonl").write_text('"a line"\n')
        words = shape.replace("MINE", mine).split()
        arguments = [HOSTILE[name].join(word.split("X")) if "X" in word else word for word in words]
        done = run(*arguments, stdin="from stdin")
        assert done.code in (0, 1, 2), shape
        assert "bug in Meritory" not in done.err, shape
        assert not any(char in done.out + done.err for char in STEERING), shape
        if done.code:
            assert len(done.err) < 2_000, shape
            assert done.out + done.err, shape
    assert run("doctor", "--deep").code == 0
    assert run("show", mine).code == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_words_with_json_give_one_object(run: Run, name: str) -> None:
    word = HOSTILE[name]
    for arguments in (["show", word], ["recall", word], ["list", "--tag", word], [word]):
        done = run("--json", *arguments)
        assert isinstance(done.object, dict)
        assert done.out.isascii()
        assert ("error" in done.object) == bool(done.code)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(run: Run, command: str) -> None:
    for word in ("-h", "--help"):
        done = run(command, word)
        assert (done.code, done.err) == (0, "")
    assert "Example:" in done.out
    assert f"meritory {command}" in done.out
    assert all(len(line) <= 100 for line in done.out.splitlines())


def test_the_table_says_what_the_commands_say_themselves() -> None:
    context = click.Context(APP)
    for entry in entries():
        found = APP.get_command(context, entry.name)
        assert found is not None
        assert found.name == entry.name
        assert (
            (found.help or "")
            .split("\n\n")[0]
            .replace("\n", " ")
            .startswith(entry.summary.rstrip("."))
        ), entry.name


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "config"])
def test_json_is_taken_before_and_after_every_command(run: Run, command: str) -> None:
    for arguments in (["--json", command, "--nonsense"], [command, "--nonsense", "--json"]):
        done = run(*arguments)
        assert (done.code, done.err) == (2, "")
        error = done.object["error"]
        assert set(error) == {"code", "message", "hint"}
        assert error["code"] == "usage"
        assert f"meritory {command} --help" in error["hint"]


def test_an_error_for_people_is_on_stderr_with_a_hint(run: Run) -> None:
    done = run("show", "7zzz")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "error: no memory '7zzz'",
        "hint: `meritory list --all-projects` lists the ids; the first 4 or more characters "
        "are enough",
    ]


def test_an_error_for_programs_is_one_object_on_stdout(run: Run) -> None:
    done = run("show", "7zzz", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.object["error"]["code"] == "not_found"
    assert done.object["error"]["message"] == "no memory '7zzz'"


def test_a_command_that_does_not_exist_is_guessed(run: Run) -> None:
    done = run("remeber", "x")
    assert done.code == 2
    assert "did you mean `meritory remember`?" in done.err
    assert run("qqqq").err.endswith("hint: `meritory --help` lists them\n")
    assert "--limit" in run("list", "--limt", "3").err


def test_the_root_answers_alone(run: Run) -> None:
    assert run().out.startswith("Usage: meritory ")
    assert run("--json").object["error"]["message"] == "no command was given"
    version = run("--version")
    assert version.out.startswith("meritory ")
    assert run("--version", "--json").object == {"version": version.out.split()[1]}
    assert run("-h").out == run("--help").out


def test_a_store_of_its_own_needs_no_data_folder(run: Run, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "apart.db"
    assert run("remember", "kept apart", "--store", str(file)).code == 0
    assert not home.exists()
    assert "kept apart" in run("--store", str(file), "list").out
    assert run("list", "--store", str(tmp_path / "no" / "x.db")).code == 2
    assert run("list", "--store", str(tmp_path)).code == 2


def test_memories_cannot_steer_a_terminal(run: Run) -> None:
    run("remember", "-", stdin="red \x1b[31m alert \x1b[0m \u202egpj.exe\n second line")
    memory_id = run("list", "--json").object["results"][0]["id"]
    for arguments in (["list"], ["show", memory_id], ["recall", "alert"], ["history", memory_id]):
        done = run(*arguments)
        assert "alert" in done.out
        assert not any(char in done.out for char in STEERING)
        assert "\\x1b[31m" in done.out
    asked = run("forget", memory_id, "--purge", stdin="n\n")
    assert not any(char in asked.err for char in STEERING)
    plain = run("show", memory_id, "--json")
    assert plain.out.isascii()
    assert plain.object["memory"]["content"].startswith("red \x1b[31m")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("half\x1b a thought"), 1, "this is a bug in Meritory: ValueError: half"),
        (OSError(28, "No space left on device", "x"), 1, "No space left on device: x"),
        (MemoryError(), 1, "out of memory"),
        (click.Abort(), 130, "interrupted"),
        (click.UsageError("wrong"), 2, "wrong"),
        (click.ClickException("failed"), 1, "failed"),
    ],
)
def test_every_error_has_a_code_and_words(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert errors.print_error(error, as_json=False) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert "\x1b" not in told.err
    assert "Traceback" not in told.err
    assert errors.print_error(error, as_json=True) == code
    assert said in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_traceback_is_shown_on_request_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MERITORY_DEBUG", "1")
    errors.print_error(ValueError("x"), as_json=False)
    assert "ValueError: x" in capsys.readouterr().err.splitlines()[0]


def test_debugging_is_no_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERITORY_DEBUG", "1")
    assert run("list").code == 0


def test_an_unknown_variable_is_an_error_with_a_suggestion(process: Process) -> None:
    done = process("list", MERITORY_USR="ann")
    assert done.returncode == 2
    assert b"did you mean MERITORY_USER?" in done.stderr
