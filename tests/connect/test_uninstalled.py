"""Hook commands in a client's settings after Meritory, or its Python, was removed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connect_desk import Desk

from meritory.connect.desired import harness_module
from meritory.domain.harness import HARNESS_NAMES

HOOKED = [name for name in HARNESS_NAMES if harness_module(name).HOOK is not None]
PACKAGE = "/meritory/hook/__main__.py"
# With this code Claude Code, Cursor and others block a prompt or a tool call.
BLOCKS = 2


def command_lines(value: Any) -> Iterator[str]:
    """Yield every hook command in the values of a settings file."""
    if isinstance(value, list):
        for one in value:
            yield from command_lines(one)
    elif isinstance(value, dict):
        line = value.get("command") or value.get("bash")
        if isinstance(line, str) and "--harness" in line:
            yield line
        for one in value.values():
            yield from command_lines(one)


def lines_of(name: str, desk: Desk) -> set[str]:
    """Return the different hook commands that `connect` writes for a client."""
    desk.connect(name)
    values = [
        json.loads(one.path.read_text("utf-8"))
        for one in desk.documents(name)
        if one.path.suffix == ".json" and one.path.exists()
    ]
    return set(command_lines(values))


def run_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a hook command as clients do, with an event on its standard input."""
    event = json.dumps({"session_id": "s", "hook_event_name": "Stop"})
    return subprocess.run(
        ["/bin/sh", "-c", line],
        input=event,
        text=True,
        capture_output=True,
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", HOOKED)
def test_a_hook_command_is_harmless_without_the_package(name: str, desk: Desk) -> None:
    """`pip uninstall` leaves the command in the settings; it must not block the agent."""
    lines = lines_of(name, desk)
    assert lines
    for line in lines:
        gone = line.replace(PACKAGE, "/is-gone" + PACKAGE)
        assert gone != line
        ended = run_shell(gone, desk.user_home)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        # The control: the bare command would block.
        bare = gone.partition(" 2>")[0]
        assert run_shell(bare, desk.user_home).returncode == BLOCKS


@pytest.mark.parametrize("name", HOOKED)
def test_a_hook_command_is_harmless_without_its_python(name: str, desk: Desk) -> None:
    """Deleting the virtual environment leaves an agent that works."""
    for line in lines_of(name, desk):
        _python, _, rest = line.partition(" ")
        ended = run_shell(f"/nowhere/bin/python {rest}", desk.user_home)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_plugin_of_claude_code_is_harmless_without_the_program(desk: Desk) -> None:
    hooks = harness_module("claude-code").__file__
    assert hooks is not None
    package = Path(hooks).parents[1]
    folder = package / "data/plugins/claude-code/plugins/meritory/hooks"
    lines = set(command_lines(json.loads((folder / "hooks.json").read_text("utf-8"))))
    assert lines
    for line in lines:
        ended = run_shell(line, desk.user_home)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
