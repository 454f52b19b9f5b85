"""Claude Code: hooks and permissions in settings.json, the MCP server in .claude.json."""

from __future__ import annotations

from pathlib import Path

from meritory.connect import desired

NAME = "claude-code"
TITLE = "Claude Code"
PROGRAMS = ("claude",)
EVENTS = tuple(desired.COMMON_EVENTS)
HOOK = desired.HookShape(
    {**desired.COMMON_EVENTS, "StopFailure": "stop", "MessageDisplay": "display"},
    home="CLAUDE_CONFIG_DIR",
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


def root(place: desired.InstallTarget) -> Path:
    """Return the folder of Claude Code's settings."""
    return place.folder("CLAUDE_CONFIG_DIR", ".claude")


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return hooks, permissions for harmless tools, and the MCP server."""
    folder = root(place)
    is_moved = bool(place.env.get("CLAUDE_CONFIG_DIR"))
    state = (folder if is_moved else place.user_home) / ".claude.json"
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": desired.TIMEOUT_S}
    allowed = tuple(
        desired.Word(("permissions", "allow"), f"mcp__meritory__{tool}")
        for tool in desired.HARMLESS_TOOLS
    )
    hooks = desired.grouped(EVENTS, handler, GUARDED)
    settings = desired.settings_at(folder / "settings.json")
    if desired.is_asking(place, settings, NAME):
        hooks = desired.asking(hooks, place.commands)
    # The user may have chosen so at an earlier connect.
    present = desired.our_hooks(desired.at(settings, "hooks"), NAME)
    if place.hides_ratings or any(event == DISPLAY for event, _, _ in present):
        hooks += desired.grouped((DISPLAY,), {**handler, "command": place.commands.hiding_line})
    documents = (
        desired.Document(
            folder / "settings.json", wishes=(*hooks, *allowed), refused=desired.STRICT
        ),
        desired.Document(
            state,
            wishes=(desired.server(place.commands.mcp, "mcpServers", "meritory", type="stdio"),),
            refused=desired.STRICT,
        ),
    )
    notes = ("open sessions are not connected; new ones are",)
    obstacles: tuple[desired.Finding, ...] = ()
    if desired.at(settings, "enabledPlugins", PLUGIN_ID) is True:
        detail = "the Meritory plugin is enabled in Claude Code and does the same"
        hint = f"keep the plugin, or run `claude plugin uninstall {PLUGIN_ID}` first"
        obstacles = (desired.Finding(NAME, "fail", detail, hint),)
    return desired.HarnessSetup(documents, notes, obstacles)


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return a warning for each setting, of the user or an administrator, that disables hooks."""
    files = [root(place) / "settings.json"]
    for parts in _MANAGED:
        folder = place.system_root.joinpath(*parts)
        files.append(folder / "managed-settings.json")
        files += sorted(folder.glob("managed-settings.d/*.json"))
    return desired.forbidding(NAME, files, _SWITCHES)


def read_entry(entry: desired.Message) -> list[desired.Message] | None:
    """Leave out what is not conversation: a subagent's talk, a summary, bookkeeping.

    The rest has the common shape.
    """
    kind = entry.get("type")
    if any(entry.get(name) for name in ("isSidechain", "isMeta", "isCompactSummary")):
        return []
    # It also keeps its whole requests, each as if the user had said it.
    is_request = isinstance(entry.get("message"), dict) and kind not in (None, "user", "assistant")
    return [] if is_request or kind in ("attachment", "queue-operation") else None
