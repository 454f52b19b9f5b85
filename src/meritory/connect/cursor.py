"""Cursor: hooks in hooks.json, the MCP server in mcp.json."""

from __future__ import annotations

from pathlib import Path

from meritory.connect import desired
from meritory.connect.transcripts import no_own_format

NAME = "cursor"
TITLE = "Cursor"
PROGRAMS = ("cursor", "cursor-agent")
# It also runs the hooks in Claude Code's settings, under either name.
HOOK = desired.HookShape(
    {
        **desired.COMMON_EVENTS,
        **desired.CAMEL_EVENTS,
        "beforeSubmitPrompt": "user-prompt-submit",
        "afterAgentResponse": "stop",
        "stop": "stop",
    },
    shape="cursor",
    guard="cursor",
    reply="text",
)
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".cursor/projects",), ()
read_entry = no_own_format
EVENTS = (
    "sessionStart",
    "beforeSubmitPrompt",
    "afterAgentResponse",
    "preCompact",
    "sessionEnd",
    "preToolUse",
)


def root(place: desired.InstallTarget) -> Path:
    """Return Cursor's folder."""
    return place.user_home / ".cursor"


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return the hooks and the MCP server."""
    handler = {"command": place.commands.hook_line, "timeout": desired.TIMEOUT_S}
    documents = (
        desired.Document(
            root(place) / "hooks.json",
            wishes=(desired.Mark(("version",), 1, is_frame=True), *desired.flat(EVENTS, handler)),
        ),
        desired.Document(
            root(place) / "mcp.json",
            wishes=(desired.server(place.commands.mcp, "mcpServers", "meritory"),),
        ),
    )
    return desired.HarnessSetup(
        documents, ("restart Cursor, and enable the MCP server `meritory` in its settings",)
    )


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return nothing: Cursor keeps administrators' rules outside of files."""
    return []
