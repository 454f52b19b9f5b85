"""Where the user asked for it, an agent is asked once what of a session is worth keeping."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import WAIT_S
from test_mcp_invite import Person

from meritory.api.client import Daemon
from meritory.domain.errors import NotFound
from meritory.engine.sessions.keeping import ASK_AFTER_PROMPTS
from meritory.text.render import KEEP_QUESTION, OWN_REMARK
from meritory.text.tokens import token_estimate

TOKENS_MAX = 90


class Asked(Person):
    """A user of Claude Code who connected it with `--ask-to-keep`, or without."""

    def event(self, name: str, key: str, **more: Any) -> Any:
        """What the hook of an event prints."""
        settings = json.loads((self.home / ".claude" / "settings.json").read_text())
        command = settings["hooks"][name][0]["hooks"][0]["command"]
        sent = {"hook_event_name": name, "session_id": key, "cwd": str(self.home), **more}
        done = subprocess.run(
            ["sh", "-c", command],
            input=json.dumps(sent).encode(),
            env=self._environ,
            capture_output=True,
            timeout=WAIT_S,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout) if done.stdout else None

    def prompts(self, key: str, count: int) -> None:
        """A session with some prompts."""
        self.event("SessionStart", key, source="startup")
        for number in range(count):
            self.event("UserPromptSubmit", key, prompt=f"Please do step {number} of {key}")

    def reply(self, key: str, text: str, **more: Any) -> Any:
        """What the agent gets to hear after a reply."""
        return self.event("Stop", key, last_assistant_message=text, **more)


@pytest.fixture
def person(daemon: Daemon, tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path / "user", daemon)
    made.run("connect", "claude-code", "--ask-to-keep", "--yes")
    yield made
    made.run("disconnect", "claude-code", "--yes")


def test_a_long_session_is_asked_once_and_never_goes_in_circles(person: Asked) -> None:
    key = "keep-1"
    person.prompts(key, ASK_AFTER_PROMPTS - 1)
    assert person.reply(key, "Done with four.") is None
    person.event("UserPromptSubmit", key, prompt="And the last step")
    assert person.reply(key, "Done.") == {"decision": "block", "reason": KEEP_QUESTION}
    # The reply to the question, and every later one.
    assert person.reply(key, "Nothing to keep.", stop_hook_active=True) is None
    person.event("UserPromptSubmit", key, prompt="One thing more")
    assert person.reply(key, "Done as well.") is None


def test_an_agent_that_goes_on_because_of_another_hook_is_not_asked(person: Asked) -> None:
    key = "keep-2"
    person.prompts(key, ASK_AFTER_PROMPTS)
    assert person.reply(key, "Held by a hook.", stop_hook_active=True) is None
    assert person.reply(key, "A subagent.", agent_id="a1") is None
    assert person.reply(key, "Done.")["reason"] == KEEP_QUESTION


def test_after_a_compaction_it_comes_with_the_notes_and_then_no_more(person: Asked) -> None:
    key = "keep-3"
    person.prompts(key, ASK_AFTER_PROMPTS)
    person.event("PreCompact", key, trigger="auto")
    shown = person.event("SessionStart", key, source="compact")
    context = shown["hookSpecificOutput"]["additionalContext"]
    assert context.endswith(KEEP_QUESTION)
    assert person.reply(key, "Done.") is None
    # A resumed or a new session is not asked.
    for source in ("resume", "startup"):
        shown = person.event("SessionStart", f"keep-3-{source}", source=source)
        assert KEEP_QUESTION not in json.dumps(shown)


def test_without_the_choice_nothing_is_asked(daemon: Daemon, tmp_path: Path) -> None:
    plain = Asked(tmp_path / "user", daemon)
    plain.run("connect", "claude-code", "--yes")
    try:
        plain.prompts("keep-4", ASK_AFTER_PROMPTS + 1)
        assert plain.reply("keep-4", "Done.") is None
        shown = plain.event("SessionStart", "keep-4", source="compact")
        assert KEEP_QUESTION not in json.dumps(shown)
    finally:
        plain.run("disconnect", "claude-code", "--yes")


@pytest.mark.parametrize("harness", ["gemini-cli", "cursor", "", "codex"])
def test_a_client_without_tools_or_without_such_a_hook_is_not_asked(
    daemon: Daemon, harness: str
) -> None:
    body = {"session_key": f"keep-{harness}", "harness": harness, "asks_to_keep": True}
    daemon.request("POST", "/api/hooks/session-start", body)
    for number in range(ASK_AFTER_PROMPTS):
        sent = {"session_key": body["session_key"], "harness": harness, "prompt": f"Do {number}"}
        daemon.request("POST", "/api/hooks/user-prompt-submit", sent)
    assert daemon.request("POST", "/api/hooks/stop", body)["inject"] == ""


def test_an_unknown_session_is_not_asked(daemon: Daemon) -> None:
    body = {"session_key": "keep-none", "harness": "claude-code", "asks_to_keep": True}
    with pytest.raises(NotFound):
        daemon.request("POST", "/api/hooks/stop", body)


def test_the_question_is_one_short_remark() -> None:
    assert token_estimate(KEEP_QUESTION) <= TOKENS_MAX
    assert OWN_REMARK.fullmatch(KEEP_QUESTION)
