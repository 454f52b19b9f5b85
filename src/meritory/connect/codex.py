"""Codex: hooks in hooks.json, the MCP server as a table in config.toml.

Codex runs a hook only after the user has approved it.
"""

from __future__ import annotations

from pathlib import Path

from meritory.connect import desired
from meritory.connect.desired import Message
from meritory.connect.transcripts import MESSAGE_KEYS, is_inserted

NAME = "codex"
TITLE = "Codex"
PROGRAMS = ("codex",)
EVENTS = tuple(desired.COMMON_EVENTS)
HOOK = desired.HookShape(desired.COMMON_EVENTS, home="CODEX_HOME")
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".codex/sessions",), ("sessions",)
TRUST_HINT = "start `codex`, type /hooks and approve Meritory's hooks; until then they do not run"
# Codex reports an error for a longer timeout of this event.
_END, _END_TIMEOUT_S = "SessionEnd", 3
_TOOL_ITEMS = {
    "custom_tool_call": "function_call",
    "custom_tool_call_output": "function_call_output",
}
_SWITCHES = ((("features", "hooks"), False), (("allow_managed_hooks_only",), True))


def root(place: desired.InstallTarget) -> Path:
    """Return Codex's folder."""
    return place.folder("CODEX_HOME", ".codex")


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return the hooks and the MCP server."""
    folder = root(place)
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": desired.TIMEOUT_S}
    ending = {**handler, "timeout": _END_TIMEOUT_S}
    hooks = tuple(
        hook
        for event in EVENTS
        for hook in desired.grouped((event,), ending if event == _END else handler)
    )
    if desired.is_asking(place, desired.settings_at(folder / "hooks.json"), NAME):
        hooks = desired.asking(hooks, place.commands)
    command, *args = place.commands.mcp
    table = {"command": command, "args": args, "startup_timeout_sec": 20}
    documents = (
        desired.Document(folder / "hooks.json", wishes=hooks, refused=desired.STRICT),
        desired.Document(
            folder / "config.toml",
            "toml",
            wishes=(desired.Member(("mcp_servers", "meritory"), table),),
        ),
    )
    return desired.HarnessSetup(documents, (f"one step is left: {TRUST_HINT}",))


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return warnings about disabled hooks and about hooks without approval."""
    config = root(place) / "config.toml"
    managed = place.system_root / "etc" / "codex"
    files = (config, managed / "requirements.toml", managed / "managed_config.toml")
    findings = desired.forbidding(NAME, files, _SWITCHES)
    states = desired.at(desired.settings_at(config), "hooks", "state")
    # Only Codex knows whether an approval still fits its hook.
    approved = {
        key.rpartition("hooks.json:")[2]
        for key, state in (states.items() if isinstance(states, dict) else ())
        if isinstance(state, dict) and state.get("trusted_hash")
    }
    present = desired.at(desired.settings_at(root(place) / "hooks.json"), "hooks")
    pending = []
    for event, outer, inner in desired.our_hooks(present, NAME):
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
        if f"{name}:{outer}:{inner}" not in approved:
            pending.append(event)
    if pending:
        detail = f"not approved yet in Codex: {', '.join(pending)}"
        findings.append(desired.Finding(NAME, "warn", detail, TRUST_HINT))
    return findings


def read_entry(entry: Message) -> list[Message] | None:
    """Read an item of the conversation; hooks and the client itself speak as a developer."""
    payload = entry.get("payload")
    if not isinstance(payload, dict):
        return None
    is_item = entry.get("type") in (None, "response_item")
    if not is_item or payload.get("role") in ("developer", "system") or is_inserted(payload):
        return []
    kind = str(payload.get("type"))
    if kind == "local_shell_call":
        call = {"type": "function_call", "name": "local_shell", "arguments": payload.get("action")}
        return [{**payload, **call}]
    if kind in _TOOL_ITEMS:
        return [{**payload, "type": _TOOL_ITEMS[kind], "arguments": payload.get("input")}]
    return [payload] if any(key in payload for key in MESSAGE_KEYS) else []
