"""GitHub Copilot CLI: a hooks file of its own, and the MCP server in mcp-config.json."""

from __future__ import annotations

from pathlib import Path

from meritory.connect import desired
from meritory.connect.desired import Message
from meritory.connect.transcripts import tool_calls, tool_result

NAME = "copilot-cli"
TITLE = "GitHub Copilot CLI"
PROGRAMS = ("copilot",)
EVENTS = tuple(desired.CAMEL_EVENTS)
HOOK = desired.HookShape(
    desired.CAMEL_EVENTS,
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


def root(place: desired.InstallTarget) -> Path:
    """Return Copilot CLI's folder."""
    return place.folder("COPILOT_HOME", ".copilot")


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return the hooks and the MCP server."""
    handler = {"type": "command", "bash": place.commands.hook_line, "timeoutSec": desired.TIMEOUT_S}
    wish = desired.server(place.commands.mcp, "mcpServers", "meritory", type="local", tools=["*"])
    documents = (
        desired.Document(
            root(place) / "hooks" / "meritory.json",
            wishes=(desired.Mark(("version",), 1, is_frame=True), *desired.flat(EVENTS, handler)),
        ),
        desired.Document(root(place) / "mcp-config.json", wishes=(wish,)),
    )
    return desired.HarnessSetup(documents, ("VS Code reads these hooks too",))


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return a warning for each setting that disables hooks."""
    files = [root(place) / name for name in ("config.json", "settings.json")]
    return desired.forbidding(NAME, files, _SWITCHES)


def read_entry(entry: Message) -> list[Message] | None:
    """Read an event with data, as Copilot CLI and VS Code write them."""
    kind, data = entry.get("type"), entry.get("data")
    if not isinstance(data, dict):
        return None
    content = data.get("content")
    if data.get("parentToolCallId"):
        return []
    if kind == "user.message" and data.get("source") in (None, "", "user"):
        return [{"role": "user", "content": content}]
    if kind == "assistant.message":
        said = {"role": "assistant", "content": content}
        return [said, *tool_calls(data.get("toolRequests"))]
    if kind == "tool.execution_complete":
        return [tool_result(data.get("result"), data.get("toolCallId"), data.get("toolName"))]
    return []


def usual_transcript(client_home: str | None, session_key: str) -> str:
    """Return where a session's transcript is; the client names it only with a reply."""
    return f"{client_home or '~/.copilot'}/session-state/{session_key}/events.jsonl"
