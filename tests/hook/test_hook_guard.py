"""The guard through the hook: every client's event, every client's shape, nothing in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hook_kit import SCRIPT, Running, clean_environment, run

from meritory.hook import main

SHELLS = {
    "claude-code": ("PreToolUse", "Bash"),
    "codex": ("PreToolUse", "shell"),
    "gemini-cli": ("BeforeTool", "run_shell_command"),
    "copilot-cli": ("", "bash"),
    "cursor": ("preToolUse", "Shell"),
    "vscode": ("PreToolUse", "run_in_terminal"),
}
LINE = "terraform destroy -auto-approve"


def event(harness: str, key: str, line: str, **more: Any) -> dict[str, Any]:
    """A tool that is about to be called, as the client tells it."""
    native, tool = SHELLS[harness]
    if harness == "copilot-cli":
        args = json.dumps({"command": line})
        return {"sessionId": key, "cwd": "/", "toolName": tool, "toolArgs": args, **more}
    named = {"conversation_id": key, "cursor_version": "3"} if harness == "cursor" else {}
    named |= {"hook_event_name": native, "tool_name": tool, "tool_input": {"command": line}}
    return {"session_id": key, "cwd": "/", **named, **more}


def asked(running: Running, harness: str, sent: dict[str, Any]) -> Any:
    out = running.out(harness, json.dumps(sent).encode())
    return json.loads(out) if out else None


@pytest.fixture(scope="module")
def ruled(running: Running) -> Running:
    """A daemon with a rule that warns and one that blocks."""
    for trigger, steps in (("shell: terraform destroy", 2), ("shell: dropdb shop", 1)):
        body = {"trigger": trigger, "why": "it was gone"}
        rule = running.ask("POST", "/api/rules", body)["id"]
        for _ in range(steps):
            running.ask("POST", f"/api/rules/{rule}/approve", {})
    return running


DENIED = {
    "nested": lambda a: a["hookSpecificOutput"]["permissionDecisionReason"],
    "flat": lambda a: a["permissionDecisionReason"],
    "gemini": lambda a: a["reason"],
    "cursor": lambda a: a["agent_message"],
}


@pytest.mark.parametrize("harness", SHELLS)
def test_every_client_is_told_no_in_its_own_way(ruled: Running, harness: str) -> None:
    answer = asked(ruled, harness, event(harness, f"deny {harness}", LINE))
    shape = main.HARNESSES[harness].guard
    reason = DENIED[shape](answer)
    assert "it was gone" in reason and "meritory rules retire" in reason
    expected = {
        "nested": {
            "hookSpecificOutput": {
                "hookEventName": SHELLS[harness][0],
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
        },
        "flat": {"permissionDecision": "deny", "permissionDecisionReason": reason},
        "gemini": {"decision": "deny", "reason": reason},
        "cursor": {"permission": "deny", "user_message": reason, "agent_message": reason},
    }
    assert answer == expected[shape]


@pytest.mark.parametrize("harness", SHELLS)
def test_a_warning_leaves_the_clients_own_question_alone(ruled: Running, harness: str) -> None:
    answer = asked(ruled, harness, event(harness, f"warn {harness}", "dropdb shop"))
    text = json.dumps(answer)
    assert "the user made a rule about this" in text
    assert "allow" not in text and "deny" not in text and "decision" not in text.lower()


@pytest.mark.parametrize("harness", SHELLS)
def test_what_is_allowed_is_not_spoken_of(ruled: Running, harness: str) -> None:
    assert asked(ruled, harness, event(harness, f"allow {harness}", "git status")) is None


def test_helpers_of_an_agent_are_guarded_too(ruled: Running) -> None:
    sent = event("claude-code", "inner", LINE, agent_id="a1")
    assert asked(ruled, "claude-code", sent)["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    "tool_input",
    [None, 3, [], {}, "ls", {"command": None}, {"command": {"a": 1}}, {"command": ["ls", 1]}],
)
def test_odd_arguments_are_let_through(ruled: Running, tool_input: Any) -> None:
    sent = {**event("claude-code", "odd", "x"), "tool_input": tool_input}
    assert asked(ruled, "claude-code", sent) is None


def test_a_whole_file_does_not_go_over_the_wire(ruled: Running) -> None:
    given = {"file_path": "/p/a.py", "content": "x" * 3_000_000}
    sent = {**event("claude-code", "large", ""), "tool_name": "Write", "tool_input": given}
    assert asked(ruled, "claude-code", sent) is None


def test_half_a_hook_is_no_harm(tmp_path: Path) -> None:
    script = tmp_path / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    for broken in (None, "main.py", "shapes.py"):
        if broken is not None:
            (tmp_path / "main.py").write_bytes(SCRIPT.with_name("main.py").read_bytes())
            (tmp_path / broken).write_text("not python (")
        sent = json.dumps(event("claude-code", "half", LINE)).encode()
        ran = run(["--harness", "claude-code"], sent, clean_environment(tmp_path), script)
        assert (ran.code, ran.out, ran.err) == (0, b"", b"")


def test_without_a_daemon_everything_is_allowed(tmp_path: Path) -> None:
    environ = clean_environment(tmp_path, MERITORY_HOOK="nostart")
    sent = json.dumps(event("claude-code", "down", LINE)).encode()
    ran = run(["--harness", "claude-code"], sent, environ)
    assert (ran.code, ran.out, ran.err) == (0, b"", b"")
