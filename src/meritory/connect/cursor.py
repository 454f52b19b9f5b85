"""Cursor: hooks in hooks.json, the MCP server in mcp.json."""

from __future__ import annotations

from pathlib import Path

from meritory.connect.desired import (
    CAMEL_EVENTS,
    COMMON_EVENTS,
    Document,
    Finding,
    HarnessSetup,
    HookShape,
    InstallTarget,
    Mark,
)
from meritory.connect.hook_groups import TIMEOUT_S, flat, server
from meritory.connect.transcripts import no_own_format

NAME = "cursor"
TITLE = "Cursor"
PROGRAMS = ("cursor", "cursor-agent")
# It also runs the hooks in Claude Code's settings, under either name.
HOOK = HookShape(
    {
        **COMMON_EVENTS,
        **CAMEL_EVENTS,
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


def root(place: InstallTarget) -> Path:
    """Return Cursor's folder."""
    return place.user_home / ".cursor"


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the hooks and the MCP server."""
    handler = {"command": place.commands.hook_line, "timeout": TIMEOUT_S}
    documents = (
        Document(
            root(place) / "hooks.json",
            wishes=(Mark(("version",), 1, is_frame=True), *flat(EVENTS, handler)),
        ),
        Document(
            root(place) / "mcp.json",
            wishes=(server(place.commands.mcp, "mcpServers", "meritory"),),
        ),
    )
    return HarnessSetup(
        documents, ("restart Cursor, and enable the MCP server `meritory` in its settings",)
    )


def checks(place: InstallTarget) -> list[Finding]:
    """Return nothing: Cursor keeps administrators' rules outside of files."""
    return []
