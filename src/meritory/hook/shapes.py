"""What each client calls its events, and the shape in which it wants to be answered.

Part of the hook, so standard library only, and as little of it as can be. It stands in a file of
its own because a module is compiled once and kept, a script at every start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# Canonical events, by the daemon's names for them.
START, PROMPT, REPLY = "session-start", "user-prompt-submit", "stop"
COMPACT, END, TOOL = "pre-compact", "session-end", "pre-tool"
DISPLAY = "display"  # This one is not told to the daemon.

# Clients cut at 10,000, counted as JavaScript counts.
CONTEXT_LIMIT_UNITS = 9_500
KEY_LIMIT_CHARS, PATH_LIMIT_CHARS, TEXT_LIMIT_CHARS = 256, 4_096, 100_000
# Of what a tool is handed: enough for every command and path, not for whole files.
VALUE_LIMIT_CHARS, VALUES_LIMIT_COUNT = 8_000, 64

_TRAILER = r"(?m)^[ \t]{0,8}<!--[ \t]{0,4}mf[ :][^\n]{0,2000}-->[ \t]{0,8}(?:\n|\Z)"


class Harness:
    """One client.

    `events`: its names for them. `reply`: the field with the agent's reply, if there is one; else
    the transcript has it. `shows`: the events whose answer the agent gets to see. `home`: the
    variable by which people move the client's own data elsewhere.
    """

    shape, guard, reply, home = "nested", "nested", "last_assistant_message", ""
    # How long after its event the transcript has everything, where only that has the reply.
    settles_s: Mapping[str, float] = {}
    shows: tuple[str, ...] = (START, PROMPT)

    def __init__(self, events: dict[str, str], **other: Any) -> None:
        self.events = events
        self.__dict__.update(other)


# Made by tools/gen_docs.py from connect/*.py: begin
HARNESSES = {
    "claude-code": Harness(
        {
            "SessionStart": "session-start",
            "UserPromptSubmit": "user-prompt-submit",
            "Stop": "stop",
            "PreCompact": "pre-compact",
            "SessionEnd": "session-end",
            "PreToolUse": "pre-tool",
            "StopFailure": "stop",
            "MessageDisplay": "display",
        },
        home="CLAUDE_CONFIG_DIR",
    ),
    "codex": Harness(
        {
            "SessionStart": "session-start",
            "UserPromptSubmit": "user-prompt-submit",
            "Stop": "stop",
            "PreCompact": "pre-compact",
            "SessionEnd": "session-end",
            "PreToolUse": "pre-tool",
        },
        home="CODEX_HOME",
    ),
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
        {
            "sessionStart": "session-start",
            "userPromptSubmitted": "user-prompt-submit",
            "agentStop": "stop",
            "preCompact": "pre-compact",
            "sessionEnd": "session-end",
            "preToolUse": "pre-tool",
        },
        shape="flat",
        guard="flat",
        reply="",
        home="COPILOT_HOME",
        settles_s={"stop": 0.6, "session-end": 1.0},
    ),
    "cursor": Harness(
        {
            "SessionStart": "session-start",
            "UserPromptSubmit": "user-prompt-submit",
            "Stop": "stop",
            "PreCompact": "pre-compact",
            "SessionEnd": "session-end",
            "PreToolUse": "pre-tool",
            "sessionStart": "session-start",
            "userPromptSubmitted": "user-prompt-submit",
            "agentStop": "stop",
            "preCompact": "pre-compact",
            "sessionEnd": "session-end",
            "preToolUse": "pre-tool",
            "beforeSubmitPrompt": "user-prompt-submit",
            "afterAgentResponse": "stop",
            "stop": "stop",
        },
        shape="cursor",
        guard="cursor",
        reply="text",
    ),
    "vscode": Harness(
        {
            "SessionStart": "session-start",
            "UserPromptSubmit": "user-prompt-submit",
            "Stop": "stop",
            "PreCompact": "pre-compact",
            "SessionEnd": "session-end",
            "PreToolUse": "pre-tool",
        },
        reply="",
        shows=("session-start",),
    ),
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
# Prompts by people, and by programs that speak for them; others are the client's own.
_TYPED = ("", "user", "sdk")


def caller(name: str, payload: dict[str, Any]) -> str:
    """The client that calls: two of them also run hooks that were written for others."""
    if "cursor_version" in payload:
        return "cursor"
    is_vscode = "hookEventName" in payload and name in ("claude-code", "copilot-cli")
    return "vscode" if is_vscode else name


def text(payload: dict[str, Any], *names: str) -> str:
    """The first of these fields that is a text with something in it."""
    found = (payload.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), "")


def body(event: str, row: Harness, payload: dict[str, Any]) -> dict[str, Any] | None:
    """What the daemon is told; None when the event is nothing to tell of."""
    named = text(payload, "session_id", "sessionId", "conversation_id")[: 2 * KEY_LIMIT_CHARS]
    key = "".join(character for character in named if character.isprintable())
    key = key[:KEY_LIMIT_CHARS].strip()
    if not event or not key:
        return None
    told: dict[str, Any] = {"session_key": key, "relayed": True, "cwd": _cwd(payload)}
    if event == TOOL:
        tool = _tool(payload)
        return {**told, **tool} if tool else None
    if text(payload, "agent_id"):
        # A subagent was shown nothing, so it has nothing to rate.
        return None
    source = text(payload, "source")[:40]
    if event == START:
        # The first prompt, if it is there, is not told as context: it comes again as a prompt,
        # and what it matches then must not have been chosen by it.
        return {**told, "source": source}
    if event == PROMPT:
        if source not in _TYPED:
            return None
        told["prompt"] = text(payload, "prompt")[:TEXT_LIMIT_CHARS]
        told["silent"] = PROMPT not in row.shows
    reply = text(payload, row.reply) if event == REPLY else ""
    if reply:
        return {**told, "last_assistant_message": reply[-TEXT_LIMIT_CHARS:]}
    path = text(payload, "transcript_path", "transcriptPath")
    return {**told, "transcript_path": path} if 0 < len(path) <= PATH_LIMIT_CHARS else told


def _cwd(payload: dict[str, Any]) -> str:
    roots = payload.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else ""
    return (text(payload, "cwd") or (first if isinstance(first, str) else ""))[:PATH_LIMIT_CHARS]


def _tool(payload: dict[str, Any]) -> dict[str, Any]:
    """The tool and what it is handed, without what is too long to matter."""
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
    """What the daemon answered, as the client wants it; nothing when there is nothing to say."""
    if event == TOOL:
        reason = text(answer, "reason")
        decision = text(answer, "decision") if _fits(reason) else ""
        # That something is allowed is never said: it would take the client's own question away.
        return GUARDS[row.guard](native, decision, reason) if decision in ("warn", "deny") else {}
    shown = text(answer, "inject")
    if event not in row.shows or not _fits(shown):
        return {}
    if row.shape == "flat":
        return {"additionalContext": shown}
    if row.shape == "cursor":
        going_on = {"continue": True} if event == PROMPT else {}
        return {**going_on, "additional_context": shown}
    return {"hookSpecificOutput": {"hookEventName": native, "additionalContext": shown}}


def _fits(shown: str) -> bool:
    """Whether there is a text, and the client would not cut it: then it is not worth showing."""
    return 0 < len(shown.encode("utf-16-le", "replace")) // 2 <= CONTEXT_LIMIT_UNITS


def _nested_guard(native: str, decision: str, reason: str) -> dict[str, Any]:
    said = {"additionalContext": reason} if decision == "warn" else _denied(reason)
    return {"hookSpecificOutput": {"hookEventName": native, **said}}


def _flat_guard(native: str, decision: str, reason: str) -> dict[str, Any]:
    return {"additionalContext": reason} if decision == "warn" else _denied(reason)


def _denied(reason: str) -> dict[str, Any]:
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}


def _gemini_guard(native: str, decision: str, reason: str) -> dict[str, Any]:
    return (
        {"systemMessage": reason} if decision == "warn" else {"decision": "deny", "reason": reason}
    )


def _cursor_guard(native: str, decision: str, reason: str) -> dict[str, Any]:
    said = {"agent_message": reason}
    return said if decision == "warn" else {"permission": "deny", "user_message": reason, **said}


GUARDS: dict[str, Callable[[str, str, str], dict[str, Any]]] = {
    "nested": _nested_guard,
    "flat": _flat_guard,
    "gemini": _gemini_guard,
    "cursor": _cursor_guard,
}


def displayed(payload: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a reply without the line that rates memories; the reply itself keeps it."""
    import re

    delta = text(payload, "delta")
    bare = re.sub(_TRAILER, "", delta) if len(delta) <= TEXT_LIMIT_CHARS else delta
    shown = {"hookEventName": "MessageDisplay", "displayContent": bare}
    return {"hookSpecificOutput": shown} if bare != delta else {}
