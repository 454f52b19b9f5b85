"""The guard on harmless calls and planted mistakes of our own; and that the bench can fail."""

from __future__ import annotations

import pytest
from bench.guard_cases import PLANTED, Made, commands

from bench import guard
from meritory.text.commands import triggers
from meritory.text.commands.triggers import ordinary_actions

FOLDERS = ("src", "src/api", "src/web/pages", "tests", "docs", "lib/core", "scripts")
FILES = ("main.py", "index.ts", "app.go", "README.md", "test_login.py", "config.toml", "Button.tsx")
FILES_TOUCHED = [
    Made(tool, {"file_path": f"/home/ann/project/{folder}/{name}"})
    for folder in FOLDERS
    for name in FILES
    for tool in ("Edit", "Read")
]


def test_there_are_ordinary_commands_enough_and_most_are_not_shipped() -> None:
    lines = [made.given["command"] for made in commands()]
    assert len(lines) == len(set(lines)) >= 300
    shipped = {one.argument for one in ordinary_actions()}
    assert sum(line not in shipped for line in lines) >= 300


@pytest.mark.parametrize("is_warm", [True, False], ids=["with a past", "empty store"])
def test_nothing_harmless_is_stopped_and_every_mistake_is(is_warm: bool) -> None:
    calls = [*FILES_TOUCHED, *commands()]
    played = guard.play(calls, is_warm=is_warm)
    assert played.harmless.count == len(calls) * (2 if is_warm else 1)
    assert played.harmless.answers["deny"] == 0, played.harmless.wrong
    assert played.harmless.warning_share <= guard.Plan().false_warning_share
    assert {name: tuple(found) for name, found in played.ladders.items()} == {
        planted.name: guard.EXPECTED for planted in PLANTED
    }


def test_triggers_that_are_too_broad_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that goes by the program alone is in the way at once."""
    monkeypatch.setattr(triggers, "_fits_command", lambda words, one: words[0] == one.program)
    played = guard.play(commands()[:60], is_warm=False)
    assert played.harmless.wrong or played.off_count
