"""OpenClaw: its plugin is loaded from where Meritory is installed; openclaw.json is JSON5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meritory.connect.desired import Document, Finding, HarnessSetup, InstallTarget, Member, Word
from meritory.connect.hook_groups import at, server, settings_at
from meritory.connect.transcripts import no_own_format

NAME = "openclaw"
TITLE = "OpenClaw"
PROGRAMS = ("openclaw",)
HOOK = None
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".openclaw/agents",), ()
read_entry = no_own_format
_ENDING = "/meritory/data/plugins/openclaw"
_ACCESS = ("plugins", "entries", "meritory", "hooks", "allowConversationAccess")


def root(place: InstallTarget) -> Path:
    """Return OpenClaw's folder."""
    if place.env.get("OPENCLAW_STATE_DIR"):
        return place.folder("OPENCLAW_STATE_DIR")
    return place.folder("OPENCLAW_HOME") / ".openclaw"


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the plugin, its access to conversations, and the MCP server."""
    config: dict[str, Any] = {"daemon": place.commands.daemon}
    if place.commands.home is not None:
        config["home"] = str(place.commands.home)
    entry = {"enabled": True, "hooks": {"allowConversationAccess": True}, "config": config}
    wishes = (
        Word(("plugins", "load", "paths"), str(place.commands.plugin("openclaw")), ending=_ENDING),
        Member(("plugins", "entries", "meritory"), entry),
        # Needed only where plugins must be listed.
        Word(("plugins", "allow"), "meritory", if_present=True),
        server(place.commands.mcp, "mcp", "servers", "meritory"),
    )
    notes = (
        "allowConversationAccess lets the plugin see prompts and replies, which it needs",
        "OpenClaw's own memory stays as it is",
    )
    return HarnessSetup((Document(_config(place), "json5", wishes=wishes),), notes)


def _config(place: InstallTarget) -> Path:
    if place.env.get("OPENCLAW_CONFIG_PATH"):
        return place.folder("OPENCLAW_CONFIG_PATH")
    return root(place) / "openclaw.json"


def checks(place: InstallTarget) -> list[Finding]:
    """Return warnings about settings that keep the plugin from working."""
    values = settings_at(_config(place))
    entry = at(values, "plugins", "entries", "meritory")
    findings = []
    if at(values, *_ACCESS) is not True:
        detail = "the plugin has no access to conversations, so it cannot show memories"
        findings.append(Finding(NAME, "warn", detail, f"set {'.'.join(_ACCESS)} to true"))
    if at(entry, "hooks", "allowPromptInjection") is False:
        detail = "the plugin may not add to prompts, so it cannot show memories"
        findings.append(Finding(NAME, "warn", detail, "remove allowPromptInjection from its entry"))
    if at(values, "plugins", "enabled") is False or at(entry, "enabled") is False:
        findings.append(Finding(NAME, "warn", "the plugin is disabled", "enable it"))
    deny = at(values, "plugins", "deny")
    if isinstance(deny, list) and "meritory" in deny:
        findings.append(Finding(NAME, "warn", "plugins.deny names meritory", "remove it there"))
    return findings
