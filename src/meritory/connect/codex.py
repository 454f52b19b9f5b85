"""Codex: hooks in hooks.json, the MCP server as a table in config.toml.

Codex runs a hook only after the user has approved it.
"""

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
    Member,
)
from meritory.connect.hook_groups import TIMEOUT_S, at, forbidding, grouped, settings_at
from meritory.connect.managed import our_argv
from meritory.connect.transcripts import MESSAGE_KEYS, Message, is_inserted

NAME = "codex"
TITLE = "Codex"
PROGRAMS = ("codex",)
EVENTS = tuple(COMMON_EVENTS)
HOOK = HookShape(COMMON_EVENTS, home="CODEX_HOME")
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".codex/sessions",), ("sessions",)
STARTUP_TIMEOUT_S = 20
TRUST_HINT = "start `codex`, type /hooks and approve Meritory's hooks; until then they do not run"
_TOOL_ITEMS = {
    "custom_tool_call": "function_call",
    "custom_tool_call_output": "function_call_output",
}
_SWITCHES = ((("features", "hooks"), False), (("allow_managed_hooks_only",), True))


def root(place: InstallTarget) -> Path:
    """Return Codex's folder."""
    return place.folder("CODEX_HOME", ".codex")


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the hooks and the MCP server."""
    folder = root(place)
    handler = {"type": "command", "command": place.commands.hook_line, "timeout": TIMEOUT_S}
    command, *args = place.commands.mcp
    table = {"command": command, "args": args, "startup_timeout_sec": STARTUP_TIMEOUT_S}
    documents = (
        Document(folder / "hooks.json", wishes=grouped(EVENTS, handler)),
        Document(
            folder / "config.toml",
            "toml",
            wishes=(Member(("mcp_servers", "meritory"), table),),
        ),
    )
    return HarnessSetup(documents, (f"one step is left: {TRUST_HINT}",))


def checks(place: InstallTarget) -> list[Finding]:
    """Return warnings about disabled hooks and about hooks without approval."""
    config = root(place) / "config.toml"
    managed = place.system_root / "etc" / "codex"
    files = (config, managed / "requirements.toml", managed / "managed_config.toml")
    findings = forbidding(NAME, files, _SWITCHES)
    states = at(settings_at(config), "hooks", "state")
    # Only Codex knows whether an approval still fits its hook.
    approved = {
        key.rpartition("hooks.json:")[2]
        for key, state in (states.items() if isinstance(states, dict) else ())
        if isinstance(state, dict) and state.get("trusted_hash")
    }
    hooks = _managed_hooks(at(settings_at(root(place) / "hooks.json"), "hooks"))
    pending = [event for event, key in hooks if key not in approved]
    if pending:
        detail = f"not approved yet in Codex: {', '.join(pending)}"
        findings.append(Finding(NAME, "warn", detail, TRUST_HINT))
    return findings


def _managed_hooks(events: Any) -> list[tuple[str, str]]:
    """Return the events with a hook of Meritory's, each with the key of its approval."""
    hooks = []
    for event, groups in events.items() if isinstance(events, dict) else ():
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
        for outer, group in enumerate(groups if isinstance(groups, list) else ()):
            handlers = at(group, "hooks")
            for inner, handler in enumerate(handlers if isinstance(handlers, list) else ()):
                if our_argv(handler, NAME):
                    hooks.append((event, f"{name}:{outer}:{inner}"))
    return hooks


def read_entry(entry: Message) -> Iterator[Message] | None:
    """Read an item of the conversation; hooks and the client itself speak as a developer."""
    payload = entry.get("payload")
    if not isinstance(payload, dict):
        return None
    return _messages(payload) if entry.get("type") in (None, "response_item") else iter(())


def _messages(payload: Message) -> Iterator[Message]:
    if payload.get("role") in ("developer", "system") or is_inserted(payload):
        return
    kind = str(payload.get("type"))
    if kind == "local_shell_call":
        call = {"type": "function_call", "name": "local_shell", "arguments": payload.get("action")}
        yield {**payload, **call}
    elif kind in _TOOL_ITEMS:
        yield {**payload, "type": _TOOL_ITEMS[kind], "arguments": payload.get("input")}
    elif any(key in payload for key in MESSAGE_KEYS):
        yield payload
