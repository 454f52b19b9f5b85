"""VS Code: a hooks file that settings.json names, and the MCP server in mcp.json."""

from __future__ import annotations

import sys
from pathlib import Path

from meritory.connect import desired
from meritory.connect.transcripts import no_own_format

NAME = "vscode"
TITLE = "VS Code"
PROGRAMS = ("code",)
# It drops the reply to a prompt, so only the start of a session can show memories.
HOOK = desired.HookShape(desired.COMMON_EVENTS, reply="", shows=("session-start",))
TRANSCRIPTS = (
    ".config/Code/User/workspaceStorage",
    "Library/Application Support/Code/User/workspaceStorage",
)
MOVED_TRANSCRIPTS = ()
read_entry = no_own_format
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "PreToolUse")
HOOKS_FILE = "meritory-hooks.json"
_LOCATIONS = "chat.hookFilesLocations"


def root(place: desired.InstallTarget) -> Path:
    """Return the folder of the user's settings."""
    portable = place.env.get("VSCODE_PORTABLE")
    if portable:
        return Path(portable) / "user-data" / "User"
    if sys.platform == "darwin":
        return place.user_home / "Library" / "Application Support" / "Code" / "User"
    return place.folder("XDG_CONFIG_HOME", ".config") / "Code" / "User"


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return the hooks, the setting that names them, and the MCP server."""
    folder = root(place)
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": desired.TIMEOUT_S}
    wish = desired.server(place.commands.mcp, "servers", "meritory", type="stdio")
    documents = [desired.Document(folder / "mcp.json", wishes=(wish,))]
    notes = ["VS Code shows memories at the start of a session only; the tools find the others"]
    if folder.is_relative_to(place.user_home):
        # It accepts only paths in the user's home.
        name = f"~/{(folder / HOOKS_FILE).relative_to(place.user_home).as_posix()}"
        documents += [
            desired.Document(folder / HOOKS_FILE, wishes=desired.flat(EVENTS, handler)),
            desired.Document(
                folder / "settings.json", wishes=(desired.Mark((_LOCATIONS, name), True),)
            ),
        ]
    else:
        notes.append(f"hooks are left out: VS Code reads none from {folder}, outside your home")
    return desired.HarnessSetup(tuple(documents), tuple(notes))


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return a warning if hooks are disabled."""
    values = desired.settings_at(root(place) / "settings.json")
    if desired.at(values, "chat.useHooks") is False:
        detail = "chat.useHooks is off in the settings, so hooks do not run"
        return [desired.Finding(NAME, "warn", detail, "enable it there")]
    return []
