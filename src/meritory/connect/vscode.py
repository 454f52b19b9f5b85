"""VS Code: a hooks file that settings.json names, and the MCP server in mcp.json."""

from __future__ import annotations

import sys
from pathlib import Path

from meritory.connect.desired import (
    COMMON_EVENTS,
    Document,
    Finding,
    HarnessSetup,
    HookShape,
    InstallTarget,
    Mark,
)
from meritory.connect.hook_groups import TIMEOUT_S, at, flat, server, settings_at
from meritory.connect.transcripts import no_own_format

NAME = "vscode"
TITLE = "VS Code"
PROGRAMS = ("code",)
# It drops the reply to a prompt, so only the start of a session can show memories.
HOOK = HookShape(COMMON_EVENTS, reply="", shows=("session-start",))
TRANSCRIPTS = (
    ".config/Code/User/workspaceStorage",
    "Library/Application Support/Code/User/workspaceStorage",
)
MOVED_TRANSCRIPTS = ()
read_entry = no_own_format
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "PreToolUse")
HOOKS_FILE = "meritory-hooks.json"
_LOCATIONS = "chat.hookFilesLocations"


def root(place: InstallTarget) -> Path:
    """Return the folder of the user's settings."""
    portable = place.env.get("VSCODE_PORTABLE")
    if portable:
        return Path(portable) / "user-data" / "User"
    if sys.platform == "darwin":
        return place.user_home / "Library" / "Application Support" / "Code" / "User"
    return place.folder("XDG_CONFIG_HOME", ".config") / "Code" / "User"


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the hooks, the setting that names them, and the MCP server."""
    folder = root(place)
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": TIMEOUT_S}
    wish = server(place.commands.mcp, "servers", "meritory", type="stdio")
    documents = [Document(folder / "mcp.json", wishes=(wish,))]
    notes = ["VS Code shows memories at the start of a session only; the tools find the others"]
    if folder.is_relative_to(place.user_home):
        # It accepts only paths in the user's home.
        name = f"~/{(folder / HOOKS_FILE).relative_to(place.user_home).as_posix()}"
        documents += [
            Document(folder / HOOKS_FILE, wishes=flat(EVENTS, handler)),
            Document(folder / "settings.json", wishes=(Mark((_LOCATIONS, name), True),)),
        ]
    else:
        notes.append(f"hooks are left out: VS Code reads none from {folder}, outside your home")
    return HarnessSetup(tuple(documents), tuple(notes))


def checks(place: InstallTarget) -> list[Finding]:
    """Return a warning if hooks are disabled."""
    values = settings_at(root(place) / "settings.json")
    if at(values, "chat.useHooks") is False:
        detail = "chat.useHooks is off in the settings, so hooks do not run"
        return [Finding(NAME, "warn", detail, "enable it there")]
    return []
