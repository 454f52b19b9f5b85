"""Where `meritory connect` gave a client the tools, a session's start asks to use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import WAIT_S, environment

from meritory.api.client import Daemon
from meritory.text.render import INVITATION
from meritory.text.tokens import token_estimate

TOKENS_MAX = 60


class Person:
    """A user of Claude Code, with a home folder of their own."""

    def __init__(self, home: Path, daemon: Daemon) -> None:
        self.home, self._daemon = home, daemon
        self._environ = environment(HOME=str(home), MERITORY_HOME=str(daemon.home))
        (home / ".claude").mkdir(parents=True)

    def run(self, *words: str) -> None:
        """Run a command of Meritory."""
        argv = [sys.executable, "-P", "-m", "meritory", *words]
        done = subprocess.run(argv, env=self._environ, capture_output=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stderr

    def hook(self) -> list[str]:
        """The command that the client runs at the start of a session."""
        settings = json.loads((self.home / ".claude" / "settings.json").read_text())
        return ["/bin/sh", "-c", settings["hooks"]["SessionStart"][0]["hooks"][0]["command"]]

    def start(self, hook: list[str], key: str, **more: Any) -> str:
        """What a new session begins with."""
        event = {"hook_event_name": "SessionStart", "session_id": key, "cwd": str(self.home)}
        raw = json.dumps({**event, "source": "startup", **more}).encode()
        done = subprocess.run(
            hook, input=raw, env=self._environ, capture_output=True, timeout=WAIT_S
        )
        assert (done.returncode, done.stderr) == (0, b"")
        if not done.stdout:
            return ""
        return str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"])


def test_a_connected_client_is_asked_at_the_start_and_only_there(
    daemon: Daemon, tmp_path: Path
) -> None:
    person = Person(tmp_path / "user", daemon)
    person.run("connect", "claude-code", "--yes")
    try:
        hook = person.hook()
        assert person.start(hook, "invite-1").count(INVITATION) == 1
        # After a compaction the agent has forgotten it.
        assert INVITATION in person.start(hook, "invite-1", source="compact")
        asked = {"hook_event_name": "UserPromptSubmit", "prompt": "And?", "source": "user"}
        assert INVITATION not in person.start(hook, "invite-1", **asked)
        body = {"session_key": "invite-2", "harness": "codex"}
        other = daemon.request("POST", "/api/hooks/session-start", body)
        assert INVITATION not in other["inject"]
    finally:
        person.run("disconnect", "claude-code", "--yes")
    assert INVITATION not in person.start(hook, "invite-3")


@pytest.mark.parametrize("name", ["claude-code/../claude-code", "*", "", "claude", "x" * 300])
def test_a_harness_that_is_not_known_has_no_tools(daemon: Daemon, name: str) -> None:
    body = {"session_key": f"unknown-{len(name)}-{name[:3]}", "harness": name}
    reply = daemon.request("POST", "/api/hooks/session-start", body)
    assert INVITATION not in reply["inject"]


def test_the_invitation_is_short() -> None:
    assert len(INVITATION.split("\n")) == 2
    assert token_estimate(INVITATION) <= TOKENS_MAX
    assert "memory_store" in INVITATION and "`quote`" in INVITATION
