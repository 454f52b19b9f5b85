"""Claude Code: hooks and permissions in settings.json, the MCP server in .claude.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meritory.connect.desired import (
    COMMON_EVENTS,
    Document,
    Finding,
    HarnessSetup,
    HookShape,
    InstallTarget,
    Word,
)
from meritory.connect.hook_groups import (
    HARMLESS_TOOLS,
    TIMEOUT_S,
    at,
    forbidding,
    grouped,
    server,
    settings_at,
)
from meritory.connect.managed import our_argv
from meritory.connect.transcripts import Message

NAME = "claude-code"
TITLE = "Claude Code"
PROGRAMS = ("claude",)
EVENTS = tuple(COMMON_EVENTS)
HOOK = HookShape(
    {**COMMON_EVENTS, "StopFailure": "stop", "MessageDisplay": "display"}, home="CLAUDE_CONFIG_DIR"
)
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".claude/projects",), ("projects",)
DISPLAY = "MessageDisplay"
# Tools that change something or use the network. Reading a file does not wait for the guard.
GUARDED = {"PreToolUse": "Bash|Edit|MultiEdit|Write|NotebookEdit|WebFetch"}
PLUGIN_ID = "meritory@meritory"
_SWITCHES = ((("disableAllHooks",), True), (("allowManagedHooksOnly",), True))
_MANAGED = (
    ("etc", "claude-code"),
    ("Library", "Application Support", "ClaudeCode"),
)


def root(place: InstallTarget) -> Path:
    """Return the folder of Claude Code's settings."""
    return place.folder("CLAUDE_CONFIG_DIR", ".claude")


def setup(place: InstallTarget) -> HarnessSetup:
    """Return hooks, permissions for harmless tools, and the MCP server."""
    folder = root(place)
    is_moved = bool(place.env.get("CLAUDE_CONFIG_DIR"))
    state = (folder if is_moved else place.user_home) / ".claude.json"
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": TIMEOUT_S}
    allowed = tuple(
        Word(("permissions", "allow"), f"mcp__meritory__{tool}") for tool in HARMLESS_TOOLS
    )
    hooks = grouped(EVENTS, handler, GUARDED)
    settings = settings_at(folder / "settings.json")
    if place.hides_ratings or _hides_ratings(settings):
        hooks += grouped((DISPLAY,), {**handler, "command": place.commands.hiding_line})
    documents = (
        Document(folder / "settings.json", wishes=(*hooks, *allowed)),
        Document(
            state, wishes=(server(place.commands.mcp, "mcpServers", "meritory", type="stdio"),)
        ),
    )
    notes = ("open sessions are not connected; new ones are",)
    obstacles: tuple[Finding, ...] = ()
    if at(settings, "enabledPlugins", PLUGIN_ID) is True:
        detail = "the Meritory plugin is enabled in Claude Code and does the same"
        hint = f"keep the plugin, or run `claude plugin uninstall {PLUGIN_ID}` first"
        obstacles = (Finding(NAME, "fail", detail, hint),)
    return HarnessSetup(documents, notes, obstacles)


def _hides_ratings(settings: dict[str, Any]) -> bool:
    """Return whether the user chose to hide ratings at an earlier connect."""
    groups = at(settings, "hooks", DISPLAY)
    lists = [at(group, "hooks") for group in groups] if isinstance(groups, list) else []
    handlers = [handler for hooks in lists if isinstance(hooks, list) for handler in hooks]
    return any(our_argv(handler, NAME) for handler in handlers)


def checks(place: InstallTarget) -> list[Finding]:
    """Return a warning for each setting, of the user or an administrator, that disables hooks."""
    files = [root(place) / "settings.json"]
    for parts in _MANAGED:
        folder = place.system_root.joinpath(*parts)
        files.append(folder / "managed-settings.json")
        files += sorted(folder.glob("managed-settings.d/*.json"))
    return forbidding(NAME, files, _SWITCHES)


def read_entry(entry: Message) -> Iterator[Message] | None:
    """Leave out what is not conversation: a subagent's talk, a summary, bookkeeping.

    The rest has the common shape.
    """
    kind = entry.get("type")
    if any(entry.get(name) for name in ("isSidechain", "isMeta", "isCompactSummary")):
        return iter(())
    # It also keeps its whole requests, each as if the user had said it.
    is_request = isinstance(entry.get("message"), dict) and kind not in (None, "user", "assistant")
    return iter(()) if is_request or kind in ("attachment", "queue-operation") else None
