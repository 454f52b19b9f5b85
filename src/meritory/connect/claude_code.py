"""Claude Code: hooks and permissions in settings.json, the server of tools in .claude.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
from meritory.connect.transcript_entry import Message

NAME = "claude-code"
TITLE = "Claude Code"
PROGRAMS = ("claude",)
EVENTS = tuple(COMMON_EVENTS)
HOOK = HookShape(
    {**COMMON_EVENTS, "StopFailure": "stop", "MessageDisplay": "display"}, home="CLAUDE_CONFIG_DIR"
)
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".claude/projects",), ("projects",)
DISPLAY = "MessageDisplay"
# What changes something, or leaves the machine; nobody waits for a guard before a file is read.
GUARDED = {"PreToolUse": "Bash|Edit|MultiEdit|Write|NotebookEdit|WebFetch"}
PLUGIN_ID = "meritory@meritory"
_SWITCHES = ((("disableAllHooks",), True), (("allowManagedHooksOnly",), True))
_MANAGED = (
    ("etc", "claude-code"),
    ("Library", "Application Support", "ClaudeCode"),
)


def root(place: InstallTarget) -> Path:
    """The folder of Claude Code's own settings."""
    return place.folder("CLAUDE_CONFIG_DIR", ".claude")


def setup(place: InstallTarget) -> HarnessSetup:
    """Hooks, permissions for harmless tools, and the server."""
    folder = root(place)
    is_moved = bool(place.env.get("CLAUDE_CONFIG_DIR"))
    state = (folder if is_moved else place.user_home) / ".claude.json"
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": TIMEOUT_S}
    allowed = tuple(
        Word(("permissions", "allow"), f"mcp__meritory__{tool}") for tool in HARMLESS_TOOLS
    )
    hooks = grouped(EVENTS, handler, GUARDED)
    if place.hides_ratings or _is_hiding(place):
        hooks += grouped((DISPLAY,), {**handler, "command": place.commands.hiding_line})
    documents = (
        Document(folder / "settings.json", wishes=(*hooks, *allowed)),
        Document(
            state, wishes=(server(place.commands.mcp, "mcpServers", "meritory", type="stdio"),)
        ),
    )
    notes = ("sessions that are open now go on without; new ones have it",)
    return HarnessSetup(documents, notes, _plugin(place))


def _is_hiding(place: InstallTarget) -> bool:
    """Whether the user chose so before: it stays until they disconnect."""
    groups = at(settings_at(root(place) / "settings.json"), "hooks", DISPLAY)
    handlers = [at(group, "hooks") for group in groups] if isinstance(groups, list) else []
    inside = [one for found in handlers if isinstance(found, list) for one in found]
    return any(our_argv(handler, NAME) for handler in inside)


def _plugin(place: InstallTarget) -> tuple[Finding, ...]:
    enabled = at(settings_at(root(place) / "settings.json"), "enabledPlugins", PLUGIN_ID)
    if enabled is not True:
        return ()
    told = "the Meritory plugin is enabled in Claude Code and does the same"
    hint = f"leave it so, or `claude plugin uninstall {PLUGIN_ID}` first"
    return (Finding(NAME, "fail", told, hint),)


def checks(place: InstallTarget) -> list[Finding]:
    """Settings, the user's or an administrator's, that forbid hooks."""
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
