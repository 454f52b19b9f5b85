"""GitHub Copilot CLI: a hooks file of its own, and the MCP server in mcp-config.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meritory.connect.desired import (
    CAMEL_EVENTS,
    Document,
    Finding,
    HarnessSetup,
    HookShape,
    InstallTarget,
    Mark,
)
from meritory.connect.hook_groups import TIMEOUT_S, flat, forbidding, server
from meritory.connect.transcripts import Message, tool_calls, tool_result

NAME = "copilot-cli"
TITLE = "GitHub Copilot CLI"
PROGRAMS = ("copilot",)
EVENTS = tuple(CAMEL_EVENTS)
HOOK = HookShape(
    CAMEL_EVENTS,
    shape="flat",
    guard="flat",
    reply="",
    home="COPILOT_HOME",
    settles_s={"stop": 0.6, "session-end": 1.0},
    # It does not name the event; the fields that come with it do.
    guesses={
        "prompt": "userPromptSubmitted",
        "stopReason": "agentStop",
        "source": "sessionStart",
        "reason": "sessionEnd",
        "trigger": "preCompact",
        "toolArgs": "preToolUse",
    },
)
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".copilot/session-state",), ("session-state",)
_SWITCHES = ((("disableAllHooks",), True),)


def root(place: InstallTarget) -> Path:
    """Return Copilot CLI's folder."""
    return place.folder("COPILOT_HOME", ".copilot")


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the hooks and the MCP server."""
    handler = {"type": "command", "bash": place.commands.hook_line, "timeoutSec": TIMEOUT_S}
    wish = server(place.commands.mcp, "mcpServers", "meritory", type="local", tools=["*"])
    documents = (
        Document(
            root(place) / "hooks" / "meritory.json",
            wishes=(Mark(("version",), 1, is_frame=True), *flat(EVENTS, handler)),
        ),
        Document(root(place) / "mcp-config.json", wishes=(wish,)),
    )
    return HarnessSetup(documents, ("VS Code reads these hooks too",))


def checks(place: InstallTarget) -> list[Finding]:
    """Return a warning for each setting that disables hooks."""
    files = [root(place) / name for name in ("config.json", "settings.json")]
    return forbidding(NAME, files, _SWITCHES)


def read_entry(entry: Message) -> Iterator[Message] | None:
    """Read an event with data, as Copilot CLI and VS Code write them."""
    data = entry.get("data")
    return _messages(str(entry.get("type")), data) if isinstance(data, dict) else None


def _messages(kind: str, data: Message) -> Iterator[Message]:
    if data.get("parentToolCallId"):
        return
    if kind == "user.message" and data.get("source") in (None, "", "user"):
        yield {"role": "user", "content": data.get("content")}
    elif kind == "assistant.message":
        yield {"role": "assistant", "content": data.get("content")}
        yield from tool_calls(data.get("toolRequests"))
    elif kind == "tool.execution_complete":
        yield tool_result(data.get("result"), data.get("toolCallId"), data.get("toolName"))


def usual_transcript(client_home: str | None, session_key: str) -> str:
    """Return where a session's transcript is; the client names it only with a reply."""
    return f"{client_home or '~/.copilot'}/session-state/{session_key}/events.jsonl"
