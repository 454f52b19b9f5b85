"""OpenClaw: its plugin is loaded from where Meritory is installed; openclaw.json is JSON5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meritory.connect import desired
from meritory.connect.transcripts import no_own_format

NAME = "openclaw"
TITLE = "OpenClaw"
PROGRAMS = ("openclaw",)
HOOK = None
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".openclaw/agents",), ()
read_entry = no_own_format
_ENDING = "/meritory/data/plugins/openclaw"
_ACCESS = ("plugins", "entries", "meritory", "hooks", "allowConversationAccess")


def root(place: desired.InstallTarget) -> Path:
    """Return OpenClaw's folder."""
    if place.env.get("OPENCLAW_STATE_DIR"):
        return place.folder("OPENCLAW_STATE_DIR")
    return place.folder("OPENCLAW_HOME") / ".openclaw"


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return the plugin, its access to conversations, and the MCP server."""
    config: dict[str, Any] = {"daemon": place.commands.daemon}
    if place.commands.home is not None:
        config["home"] = str(place.commands.home)
    entry = {"enabled": True, "hooks": {"allowConversationAccess": True}, "config": config}
    wishes = (
        desired.Word(
            ("plugins", "load", "paths"), str(place.commands.plugin("openclaw")), ending=_ENDING
        ),
        desired.Member(("plugins", "entries", "meritory"), entry),
        # Needed only where plugins must be listed.
        desired.Word(("plugins", "allow"), "meritory", if_present=True),
        desired.server(place.commands.mcp, "mcp", "servers", "meritory"),
    )
    notes = (
        "allowConversationAccess lets the plugin see prompts and replies, which it needs",
        "OpenClaw's own memory stays as it is",
    )
    return desired.HarnessSetup((desired.Document(_config(place), "json5", wishes=wishes),), notes)


def _config(place: desired.InstallTarget) -> Path:
    if place.env.get("OPENCLAW_CONFIG_PATH"):
        return place.folder("OPENCLAW_CONFIG_PATH")
    return root(place) / "openclaw.json"


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return warnings about settings that keep the plugin from working."""
    values = desired.settings_at(_config(place))
    entry = desired.at(values, "plugins", "entries", "meritory")
    deny = desired.at(values, "plugins", "deny")
    lacks_access = desired.at(values, *_ACCESS) is not True
    adds_nothing = desired.at(entry, "hooks", "allowPromptInjection") is False
    is_off = False in (desired.at(values, "plugins", "enabled"), desired.at(entry, "enabled"))
    is_denied = isinstance(deny, list) and "meritory" in deny
    no_access = "the plugin has no access to conversations, so it cannot show memories"
    no_prompts = "the plugin may not add to prompts, so it cannot show memories"
    warnings = (
        (lacks_access, no_access, f"set {'.'.join(_ACCESS)} to true"),
        (adds_nothing, no_prompts, "remove allowPromptInjection from its entry"),
        (is_off, "the plugin is disabled", "enable it"),
        (is_denied, "plugins.deny names meritory", "remove it there"),
    )
    return [desired.Finding(NAME, "warn", *texts) for applies, *texts in warnings if applies]
