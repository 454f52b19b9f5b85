"""Meritory as a plugin of Claude Code, installed by the commands of `meritory connect`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from harnesses import claude_env, clients
from sandbox import Ran, Sandbox
from selection import install, selected
from story import ANSWER, FIND, OWN, PROMPT, SHARED, TRAILER, Heard, ratings, stock

NAME = "claude-code"
LIMIT_S = 60
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not selected(NAME), reason=f"{NAME} was not asked for"),
]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A user's machine with memories, and with `claude` on the path."""
    install((NAME,))
    made = Sandbox(tmp_path_factory.mktemp("plugin"))
    programs = made.home / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(clients().find(clients().named(NAME)).program)
    made.env["PATH"] = f"{programs}:{made.env['PATH']}"
    try:
        stock(made)
        yield made
    finally:
        made.close()


def claude(sandbox: Sandbox, *words: str) -> Ran:
    """One command of Claude Code."""
    return sandbox.run(["claude", *words], LIMIT_S, claude_env(sandbox))


def test_plugin_does_what_connecting_does(sandbox: Sandbox) -> None:
    """It is valid, installs without a network, shows memories and takes ratings both ways."""
    told = sandbox.meritory("connect", NAME, "--plugin", "--json").json()
    assert claude(sandbox, "plugin", "validate", told["folder"]).ok()
    for command in told["commands"]:
        sandbox.run(shlex.split(command), LIMIT_S, claude_env(sandbox)).ok()
    arguments = {"injection": "{code}", "ratings": {"{handle}": -0.5}}
    tool = {"name": "memory_feedback", "arguments": arguments}
    sandbox.model.script(text=f"{ANSWER}\n{TRAILER}", find=FIND, tool=tool)
    allowed = "mcp__plugin_meritory_meritory__memory_feedback"
    ran = claude(sandbox, "-p", PROMPT, "--allowedTools", allowed)
    assert ANSWER in ran.ok().out
    shown = Heard(ran, sandbox.model.requests()).shown
    assert SHARED in shown
    assert OWN in shown
    found = [(one.content, one.channel, one.score) for one in ratings(sandbox)]
    assert found == [(SHARED, "tool", -0.5), (SHARED, "trailer", 0.75)]
