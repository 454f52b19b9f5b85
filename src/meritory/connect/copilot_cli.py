"""GitHub Copilot CLI: a hooks file of our own, and the server of tools in mcp-config.json."""

from __future__ import annotations

from pathlib import Path

from meritory.connect.desired import Document, Finding, HarnessSetup, InstallTarget, Mark
from meritory.connect.hook_groups import TIMEOUT_S, flat, forbidding, server

NAME = "copilot-cli"
TITLE = "GitHub Copilot CLI"
PROGRAMS = ("copilot",)
EVENTS = (
    *("sessionStart", "userPromptSubmitted", "agentStop", "preCompact", "sessionEnd"),
    "preToolUse",
)
_SWITCHES = ((("disableAllHooks",), True),)


def root(place: InstallTarget) -> Path:
    """Copilot CLI's own folder."""
    return place.folder("COPILOT_HOME", ".copilot")


def setup(place: InstallTarget) -> HarnessSetup:
    """Hooks and the server."""
    handler = {"type": "command", "bash": place.commands.hook_line, "timeoutSec": TIMEOUT_S}
    wish = server(place.commands.mcp, "mcpServers", "meritory", type="local", tools=["*"])
    documents = (
        Document(
            root(place) / "hooks" / "meritory.json",
            wishes=(Mark(("version",), 1, is_frame=True), *flat(EVENTS, handler)),
        ),
        Document(root(place) / "mcp-config.json", wishes=(wish,)),
    )
    return HarnessSetup(documents, ("VS Code reads these hooks too",))


def checks(place: InstallTarget) -> list[Finding]:
    """Settings that forbid hooks."""
    files = [root(place) / name for name in ("config.json", "settings.json")]
    return forbidding(NAME, files, _SWITCHES)
