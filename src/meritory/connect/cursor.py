"""Cursor: hooks in hooks.json, the server of tools in mcp.json."""

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
from meritory.connect.transcript_entry import no_own_format

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
    """Cursor's own folder."""
    return place.user_home / ".cursor"


def setup(place: InstallTarget) -> HarnessSetup:
    """Hooks and the server."""
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
        documents, ("restart Cursor, and switch the server `meritory` on in its settings",)
    )


def checks(place: InstallTarget) -> list[Finding]:
    """Nothing more: what an administrator of Cursor forbids is not kept in files."""
    return []
