"""What the hook brings about, in every harness, with a real daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hook_kit import HERON, Running, code_in, wait_for

from meritory.hook import main

STARTS: dict[str, dict[str, Any]] = {
    "claude-code": {"hook_event_name": "SessionStart", "source": "startup"},
    "codex": {"hook_event_name": "SessionStart", "source": "startup"},
    "gemini-cli": {"hook_event_name": "SessionStart", "source": "startup"},
    "copilot-cli": {"source": "new", "initialPrompt": "staging"},
    "cursor": {"hook_event_name": "sessionStart"},
    "vscode": {"hookEventName": "SessionStart"},
}
PROMPTS: dict[str, dict[str, Any]] = {
    "claude-code": {"hook_event_name": "UserPromptSubmit"},
    "codex": {"hook_event_name": "UserPromptSubmit"},
    "gemini-cli": {"hook_event_name": "BeforeAgent"},
    "copilot-cli": {},
    "cursor": {"hook_event_name": "beforeSubmitPrompt"},
    "vscode": {"hookEventName": "UserPromptSubmit"},
}
KEYS = {"copilot-cli": "sessionId", "vscode": "sessionId", "cursor": "conversation_id"}


def event(running: Running, harness: str, key: str, **more: Any) -> dict[str, Any]:
    """An event of a session in the shop's repository."""
    place = str(running.home / "shop" / "src")
    where = {"workspace_roots": [place]} if harness == "cursor" else {"cwd": place}
    return {KEYS.get(harness, "session_id"): key, **where, **more}


def begin(running: Running, harness: str, key: str, **more: Any) -> str:
    return running.text(harness, event(running, harness, key, **STARTS[harness], **more))


def ask(running: Running, harness: str, key: str, prompt: str, **more: Any) -> str:
    told = event(running, harness, key, prompt=prompt, **{**PROMPTS[harness], **more})
    return running.text(harness, told)


@pytest.mark.parametrize("harness", main.HARNESSES)
def test_a_session_is_shown_what_its_project_knows(running: Running, harness: str) -> None:
    key = f"begins-{harness}"
    assert HERON in begin(running, harness, key)
    session = running.session(key)
    assert (session["project"], session["harness"], session["state"]) == ("shop", harness, "open")
    # The first prompt is not what the beginning was ranked by.
    assert "staging" not in session["context"]


@pytest.mark.parametrize("harness", sorted(set(main.HARNESSES) - {"vscode"}))
def test_a_prompt_of_an_unknown_session_begins_it_and_the_next_repeats_nothing(
    running: Running, harness: str
) -> None:
    key = f"asks-{harness}"
    assert HERON in ask(running, harness, key, "which staging database do we use?")
    again = ask(running, harness, key, "the staging database, once more: which one?")
    assert HERON not in again
    assert "m1=N" in again
    assert running.session(key)["prompts"] == 2


def test_what_nobody_would_see_is_not_counted_as_shown(running: Running) -> None:
    assert ask(running, "vscode", "blind", "which staging database?") == ""
    with pytest.raises(Exception, match="no session"):
        running.session("blind")
    begin(running, "vscode", "seeing")
    more = {"content": "The production database is called osprey", "project": "shop"}
    running.ask("POST", "/api/memories", more)
    assert ask(running, "vscode", "seeing", "which production database is it?") == ""
    session = running.session("seeing")
    assert (session["prompts"], session["shown"]) == (1, 1)


# -- ratings ------------------------------------------------------------------------------------


REPLIES: dict[str, dict[str, Any]] = {
    "claude-code": {"hook_event_name": "Stop", "stop_hook_active": False},
    "codex": {"hook_event_name": "Stop", "stop_hook_active": True},
    "gemini-cli": {"hook_event_name": "AfterAgent"},
    "cursor": {"hook_event_name": "afterAgentResponse"},
}


@pytest.mark.parametrize("harness", REPLIES)
def test_the_reply_is_read_where_it_is_handed_over(running: Running, harness: str) -> None:
    key = f"rates-{harness}"
    shown = begin(running, harness, key)
    line = f"mf {code_in(shown)} m1=0.8"
    reply = f"It is heron.\n{{{line}}}" if harness == "gemini-cli" else f"heron <!--{line}-->"
    field = main.HARNESSES[harness].reply
    told = event(running, harness, key, **REPLIES[harness], **{field: reply})
    assert running.out(harness, told) == b""
    assert running.ratings(key) == {"m1": 0.8}
    assert "<" not in shown or harness != "gemini-cli"


def lines(*entries: Any) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_the_reply_is_looked_for_where_it_is_not(running: Running) -> None:
    places = {
        "copilot-cli": ".copilot/session-state/catch/events.jsonl",
        "vscode": ".config/Code/User/workspaceStorage/1/GitHub.copilot-chat/transcripts/1.jsonl",
    }
    for harness, place in places.items():
        key = f"catches-{harness}"
        code = code_in(begin(running, harness, key))
        file = running.home / place
        file.parent.mkdir(parents=True)
        said = f"heron\n<!--mf {code} m1=0.4-->"
        file.write_text(
            lines(
                {"type": "user.message", "data": {"content": f"<!--mf {code} m1=-1-->"}},
                {"type": "assistant.message", "data": {"content": said}},
            )
        )
        name = {"vscode": {"hookEventName": "Stop"}}.get(harness, {"stopReason": "end_turn"})
        path = {"vscode": "transcript_path"}.get(harness, "transcriptPath")
        running.out(harness, event(running, harness, key, **name, **{path: str(file)}))
        # One of them writes its file only after it has told of the reply.
        wait_for(lambda: running.ratings(key) == {"m1": 0.4}, harness)  # noqa: B023 - at once


def test_a_reply_that_was_never_told_is_caught_up_with_at_the_next_prompt_and_the_end(
    running: Running,
) -> None:
    code = code_in(begin(running, "claude-code", "late"))
    file = running.home / ".claude/projects/-shop/late.jsonl"
    file.parent.mkdir(parents=True)

    def says(text: str) -> None:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        with file.open("a") as opened:
            opened.write(lines({"type": "assistant", "message": message}))

    says(f"heron <!--mf {code} m1=0.6-->")
    asked = ask(running, "claude-code", "late", "and now?", transcript_path=str(file))
    assert running.ratings("late") == {"m1": 0.6}
    says(f"and so on <!--mf {code_in(asked)} m1=1-->")
    end = {"hook_event_name": "SessionEnd", "reason": "other", "transcript_path": str(file)}
    assert running.out("claude-code", event(running, "claude-code", "late", **end)) == b""
    assert running.ratings("late") == {"m1": pytest.approx(0.8)}
    assert running.session("late")["state"] != "open"


def test_a_client_that_was_moved_is_followed_and_a_wrong_path_costs_only_itself(
    running: Running, tmp_path: Path
) -> None:
    code = code_in(begin(running, "codex", "moved"))
    file = tmp_path / "codex" / "sessions" / "2026" / "r.jsonl"
    file.parent.mkdir(parents=True)
    said = {"type": "message", "role": "assistant", "content": f"x <!--mf {code} m1=0.2-->"}
    file.write_text(lines({"type": "response_item", "payload": said}))
    told = event(
        running,
        "codex",
        "moved",
        hook_event_name="UserPromptSubmit",
        prompt="go on",
        transcript_path=str(file),
    )
    assert running.text("codex", told) != ""
    assert running.ratings("moved") == {}
    told["prompt"] = "go on, please"
    assert running.text("codex", told, CODEX_HOME=str(tmp_path / "codex")) != ""
    assert running.ratings("moved") == {"m1": 0.2}


# -- what is not told ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"agent_id": "a1"},
        {"source": "system"},
        {"source": "schedule_wakeup"},
        {"session_id": ""},
        {"session_id": "\x00\x1f"},
        {"session_id": 5},
        {"hook_event_name": "PreToolUse"},
        {"hook_event_name": "SubagentStop"},
        {"hook_event_name": None},
    ],
)
def test_what_is_not_the_users_or_not_an_event_is_not_told(
    running: Running, more: dict[str, Any]
) -> None:
    told = event(running, "claude-code", "untold", hook_event_name="UserPromptSubmit")
    assert running.out("claude-code", {**told, "prompt": "staging database", **more}) == b""
    with pytest.raises(Exception, match="no session"):
        running.session("untold")


def test_it_can_be_switched_off(running: Running) -> None:
    told = event(running, "claude-code", "off", **STARTS["claude-code"])
    assert running.out("claude-code", told, MERITORY_HOOK="off") == b""
    assert running.out("claude-code", told) != b""


def test_the_rating_line_is_hidden_only_on_demand(running: Running) -> None:
    told = {"session_id": "s", "hook_event_name": "MessageDisplay", "final": True}
    told["delta"] = "It is heron.\n<!--mf 0123456789 m1=0.8-->\n"
    assert running.out("claude-code", told) == b""
    for found in (
        running.told("claude-code", told, "--hide-ratings"),
        running.told("claude-code", told, MERITORY_HOOK_HIDE_RATINGS="on"),
    ):
        assert found["hookSpecificOutput"]["displayContent"] == "It is heron.\n"
    told["delta"] = "The form is `<!--mf CODE m1=N-->`, as it says.\n"
    assert running.out("claude-code", told, "--hide-ratings") == b""


# -- how sessions go on -------------------------------------------------------------------------


def test_the_same_event_from_two_files_is_answered_once(running: Running) -> None:
    first = begin(running, "claude-code", "twice")
    assert HERON in first
    assert begin(running, "claude-code", "twice") == ""
    # Another client's name for the same conversation, which runs both files.
    both = event(running, "cursor", "twice", prompt="staging?", cursor_version="3")
    told = running.told("claude-code", {**both, **PROMPTS["claude-code"]})
    assert set(told) == {"continue", "additional_context"}
    assert running.out("cursor", {**both, **PROMPTS["cursor"]}) == b""
    assert running.session("twice")["prompts"] == 1


def test_what_was_forgotten_is_shown_again(running: Running) -> None:
    assert HERON in begin(running, "claude-code", "forgets")
    ask(running, "claude-code", "forgets", "thanks, go on")
    told = event(running, "claude-code", "forgets", hook_event_name="SessionStart")
    # It still has before its eyes what it was told: the client sends it along again.
    assert running.out("claude-code", {**told, "source": "resume"}) == b""
    assert HERON in running.text("claude-code", {**told, "source": "compact"})
    begin(running, "claude-code", "forgets too")
    told = event(running, "claude-code", "forgets too", hook_event_name="PreCompact")
    running.out("claude-code", {**told, "trigger": "auto"})
    told = {**told, "hook_event_name": "SessionStart"}
    assert HERON in running.text("claude-code", {**told, "source": "resume"})
    other = {"session_id": "forgets-not", "hook_event_name": "PreCompact", "trigger": "auto"}
    assert running.out("claude-code", other) == b""


def test_compaction_resets_what_prompts_have_shown(running: Running) -> None:
    key = "compacts"
    assert HERON in begin(running, "codex", key)
    ask(running, "codex", key, "hello there")
    owl = {"content": "The billing service is called tawny owl", "project": "shop"}
    running.ask("POST", "/api/memories", owl)
    question = "what is the billing service called?"
    assert "tawny owl" in ask(running, "codex", key, question)
    assert "tawny owl" not in ask(running, "codex", key, question + " again")
    told = event(running, "codex", key, hook_event_name="SessionStart", source="compact")
    running.out("codex", told)
    assert "tawny owl" in ask(running, "codex", key, question + " once more")


def test_an_ended_session_goes_on_with_a_prompt(running: Running) -> None:
    assert HERON in begin(running, "cursor", "back")
    end = event(running, "cursor", "back", hook_event_name="sessionEnd", reason="completed")
    assert running.out("cursor", end) == b""
    assert running.session("back")["state"] != "open"
    assert HERON in ask(running, "cursor", "back", "one more thing")
    assert running.session("back")["state"] == "open"


def test_gemini_hands_back_what_it_was_shown_and_it_is_no_prompt(running: Running) -> None:
    shown = begin(running, "gemini-cli", "echo")
    prompt = f"<hook_context>{shown} zebra crossing</hook_context>\n\nwhich database?"
    ask(running, "gemini-cli", "echo", prompt)
    assert running.session("echo")["context"] == "which database?"


def test_a_port_is_enough_where_there_is_no_socket(running: Running, tmp_path: Path) -> None:
    home = running.home / "meritory"
    told = json.loads((home / "daemon.json").read_text())
    (tmp_path / "daemon.json").write_text(json.dumps({**told, "socket": None}))
    start = event(running, "claude-code", "port", **STARTS["claude-code"])
    flags = ("--home", str(tmp_path))
    assert running.out("claude-code", start, *flags) == b""
    (tmp_path / "token").write_text((home / "token").read_text())
    printed = running.told("claude-code", start, *flags)
    assert HERON in printed["hookSpecificOutput"]["additionalContext"]
