"""The clients' names of events, and the shapes of answers they expect.

Part of the hook, so standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Canonical events, by the daemon's names for them.
START, PROMPT, REPLY = "session-start", "user-prompt-submit", "stop"
COMPACT, END, TOOL = "pre-compact", "session-end", "pre-tool"
DISPLAY = "display"  # Not sent to the daemon.

# Clients cut at 10,000 UTF-16 code units.
CONTEXT_LIMIT_UNITS = 9_500
KEY_LIMIT_CHARS, PATH_LIMIT_CHARS, TEXT_LIMIT_CHARS = 256, 4_096, 100_000
# Limits of a tool's arguments: enough for commands and paths, not for whole files.
VALUE_LIMIT_CHARS, VALUES_LIMIT_COUNT = 8_000, 64

TRAILER = r"(?m)^[ \t]{0,8}<!--[ \t]{0,4}mf[ :][^\n]{0,2000}-->[ \t]{0,8}(?:\n|\Z)"


class Harness:
    """One client; `HookShape` in `connect/desired.py` describes the fields."""

    shape, guard, reply, home = "nested", "nested", "last_assistant_message", ""
    settles_s: Mapping[str, float] = {}
    shows: tuple[str, ...] = (START, PROMPT)

    def __init__(self, events: dict[str, str], **other: Any) -> None:
        self.events = events
        self.__dict__.update(other)


# Made by tools/gen_docs.py from connect/*.py: begin
_COMMON = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt-submit",
    "Stop": "stop",
    "PreCompact": "pre-compact",
    "SessionEnd": "session-end",
    "PreToolUse": "pre-tool",
}
_CAMEL = {
    "sessionStart": "session-start",
    "userPromptSubmitted": "user-prompt-submit",
    "agentStop": "stop",
    "preCompact": "pre-compact",
    "sessionEnd": "session-end",
    "preToolUse": "pre-tool",
}
HARNESSES = {
    "claude-code": Harness(
        {**_COMMON, "StopFailure": "stop", "MessageDisplay": "display"}, home="CLAUDE_CONFIG_DIR"
    ),
    "codex": Harness(_COMMON, home="CODEX_HOME"),
    "gemini-cli": Harness(
        {
            "SessionStart": "session-start",
            "BeforeAgent": "user-prompt-submit",
            "AfterAgent": "stop",
            "SessionEnd": "session-end",
            "BeforeTool": "pre-tool",
        },
        guard="gemini",
        reply="prompt_response",
        home="GEMINI_CLI_HOME",
    ),
    "copilot-cli": Harness(
        _CAMEL,
        shape="flat",
        guard="flat",
        reply="",
        home="COPILOT_HOME",
        settles_s={"stop": 0.6, "session-end": 1.0},
    ),
    "cursor": Harness(
        {
            **_COMMON,
            **_CAMEL,
            "beforeSubmitPrompt": "user-prompt-submit",
            "afterAgentResponse": "stop",
            "stop": "stop",
        },
        shape="cursor",
        guard="cursor",
        reply="text",
    ),
    "vscode": Harness(_COMMON, reply="", shows=("session-start",)),
}
GUESSES = {
    "prompt": "userPromptSubmitted",
    "stopReason": "agentStop",
    "source": "sessionStart",
    "reason": "sessionEnd",
    "trigger": "preCompact",
    "toolArgs": "preToolUse",
}
# Made by tools/gen_docs.py from connect/*.py: end
# Sources of prompts from people or their programs; other prompts are the client's.
_TYPED = ("", "user", "sdk")


def caller(name: str, payload: dict[str, Any]) -> str:
    """Return the calling client: two of them also run hooks written for others."""
    if "cursor_version" in payload:
        return "cursor"
    is_vscode = "hookEventName" in payload and name in ("claude-code", "copilot-cli")
    return "vscode" if is_vscode else name


def text(payload: dict[str, Any], *names: str) -> str:
    """Return the first of these fields that is a text and not empty."""
    found = (payload.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), "")


def body(event: str, row: Harness, payload: dict[str, Any]) -> dict[str, Any] | None:
    """Return the request for the daemon; None for an event to ignore."""
    named = text(payload, "session_id", "sessionId", "conversation_id")[: 2 * KEY_LIMIT_CHARS]
    key = "".join(character for character in named if character.isprintable())
    key = key[:KEY_LIMIT_CHARS].strip()
    if not event or not key:
        return None
    roots = payload.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else ""
    cwd = text(payload, "cwd") or (first if isinstance(first, str) else "")
    request: dict[str, Any] = {"session_key": key, "relayed": True, "cwd": cwd[:PATH_LIMIT_CHARS]}
    if event == TOOL:
        tool = _tool(payload)
        return {**request, **tool} if tool else None
    if text(payload, "agent_id"):
        # A subagent gets no memories, so it has nothing to rate.
        return None
    source = text(payload, "source")[:40]
    if event in (START, PROMPT):
        request["receipts"] = True
    if event == START:
        # Without the first prompt: it comes again as a prompt, and must not select twice.
        return {**request, "source": source}
    if event == PROMPT:
        if source not in _TYPED:
            return None
        request["prompt"] = text(payload, "prompt")[:TEXT_LIMIT_CHARS]
        request["silent"] = PROMPT not in row.shows
    reply = text(payload, row.reply) if event == REPLY else ""
    if reply:
        return {**request, "last_assistant_message": reply[-TEXT_LIMIT_CHARS:]}
    path = text(payload, "transcript_path", "transcriptPath")
    return {**request, "transcript_path": path} if 0 < len(path) <= PATH_LIMIT_CHARS else request


def asking(event: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return the field that lets the daemon ask the agent what is worth keeping.

    An agent that goes on because of a hook is not asked to go on again.
    """
    is_asked = payload.get("stop_hook_active") is not True
    return {"asks_to_keep": is_asked} if event in (START, REPLY) else {}


def _tool(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the tool and its arguments, cut to the limits."""
    name = text(payload, "tool_name", "toolName")[:KEY_LIMIT_CHARS]
    given = payload.get("tool_input", payload.get("toolArgs"))
    if not name or not isinstance(given, dict | str):
        return {}
    if isinstance(given, str):
        return {"tool_name": name, "tool_input": given[:VALUE_LIMIT_CHARS]}
    pairs = list(given.items())[:VALUES_LIMIT_COUNT]
    return {"tool_name": name, "tool_input": {key: _slim(value) for key, value in pairs}}


def _slim(value: Any) -> Any:
    if isinstance(value, list):
        return [_slim(one) for one in value[:VALUES_LIMIT_COUNT] if isinstance(one, str)]
    if value is None or isinstance(value, dict):
        return ""
    return value if isinstance(value, bool) else str(value)[:VALUE_LIMIT_CHARS]


def answered(row: Harness, event: str, native: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the daemon's answer in the client's shape; empty without one."""
    if event == TOOL:
        reason = text(answer, "reason")
        decision = text(answer, "decision") if _fits(reason) else ""
        # "allow" is never sent: it would skip the client's own question.
        if decision not in ("warn", "deny"):
            return {}
        return _verdict(row.guard, native, is_denied=decision == "deny", reason=reason)
    shown = text(answer, "inject")
    if event == REPLY and _fits(shown):
        # The agent goes on once more; both clients that are asked so take this form.
        return {"decision": "block", "reason": shown}
    if event not in row.shows or not _fits(shown):
        return {}
    if row.shape == "flat":
        return {"additionalContext": shown}
    if row.shape == "cursor":
        going_on = {"continue": True} if event == PROMPT else {}
        return {**going_on, "additional_context": shown}
    return {"hookSpecificOutput": {"hookEventName": native, "additionalContext": shown}}


def _fits(shown: str) -> bool:
    """Return whether there is a text that the client would not cut."""
    return 0 < len(shown.encode("utf-16-le", "replace")) // 2 <= CONTEXT_LIMIT_UNITS


def _verdict(guard: str, native: str, *, is_denied: bool, reason: str) -> dict[str, Any]:
    """Return a warning about a tool call or its denial in the client's shape."""
    if guard == "gemini":
        return {"decision": "deny", "reason": reason} if is_denied else {"systemMessage": reason}
    if guard == "cursor":
        said = {"agent_message": reason}
        return {"permission": "deny", "user_message": reason, **said} if is_denied else said
    said = {"additionalContext": reason}
    if is_denied:
        said = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    nested = {"hookSpecificOutput": {"hookEventName": native, **said}}
    return nested if guard == "nested" else said


def displayed(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a reply for the screen without the line of ratings; the reply itself keeps it."""
    import re

    delta = text(payload, "delta")
    bare = re.sub(TRAILER, "", delta) if len(delta) <= TEXT_LIMIT_CHARS else delta
    shown = {"hookEventName": "MessageDisplay", "displayContent": bare}
    return {"hookSpecificOutput": shown} if bare != delta else {}
