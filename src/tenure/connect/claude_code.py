"""Claude Code: hooks and permissions in settings.json, the server of tools in .claude.json."""

from __future__ import annotations

from pathlib import Path

from tenure.connect.groups import (
    HARMLESS_TOOLS,
    TIMEOUT_S,
    at,
    forbidding,
    grouped,
    server,
    settings_at,
)
from tenure.connect.wishes import Document, Finding, Place, Setup, Word

NAME = "claude-code"
TITLE = "Claude Code"
PROGRAMS = ("claude",)
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
PLUGIN_ID = "tenure@tenure"
_SWITCHES = ((("disableAllHooks",), True), (("allowManagedHooksOnly",), True))
_MANAGED = (
    ("etc", "claude-code"),
    ("Library", "Application Support", "ClaudeCode"),
)


def root(place: Place) -> Path:
    """The folder of Claude Code's own settings."""
    return place.folder("CLAUDE_CONFIG_DIR", ".claude")


def setup(place: Place) -> Setup:
    """Hooks, permissions for harmless tools, and the server."""
    folder = root(place)
    is_moved = bool(place.env.get("CLAUDE_CONFIG_DIR"))
    state = (folder if is_moved else place.user_home) / ".claude.json"
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": TIMEOUT_S}
    allowed = tuple(
        Word(("permissions", "allow"), f"mcp__tenure__{tool}") for tool in HARMLESS_TOOLS
    )
    documents = (
        Document(folder / "settings.json", wishes=(*grouped(EVENTS, handler), *allowed)),
        Document(state, wishes=(server(place.commands.mcp, "mcpServers", "tenure", type="stdio"),)),
    )
    notes = ("sessions that are open now go on without; new ones have it",)
    return Setup(documents, notes, _plugin(place))


def _plugin(place: Place) -> tuple[Finding, ...]:
    enabled = at(settings_at(root(place) / "settings.json"), "enabledPlugins", PLUGIN_ID)
    if enabled is not True:
        return ()
    told = "the Tenure plugin is enabled in Claude Code and does the same"
    hint = f"leave it so, or `claude plugin uninstall {PLUGIN_ID}` first"
    return (Finding(NAME, "fail", told, hint),)


def checks(place: Place) -> list[Finding]:
    """Settings, the user's or an administrator's, that forbid hooks."""
    files = [root(place) / "settings.json"]
    for parts in _MANAGED:
        folder = place.system_root.joinpath(*parts)
        files.append(folder / "managed-settings.json")
        files += sorted(folder.glob("managed-settings.d/*.json"))
    return forbidding(NAME, files, _SWITCHES)
