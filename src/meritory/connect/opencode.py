"""OpenCode: a small plugin file, and the MCP server in opencode.json or opencode.jsonc."""

from __future__ import annotations

import json
from pathlib import Path

from meritory.connect.desired import Document, Finding, HarnessSetup, InstallTarget, Member
from meritory.connect.transcripts import no_own_format

NAME = "opencode"
TITLE = "OpenCode"
PROGRAMS = ("opencode",)
HOOK = None
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".local/share/opencode",), ()
read_entry = no_own_format
_STUB = """// Written by `meritory connect opencode`; `meritory disconnect opencode` takes it away.
const options = {options};

export const Meritory = async (input) => {{
  try {{
    const {{ meritory }} = await import({module});
    return await meritory(input, options);
  }} catch {{
    // Meritory was moved or removed: OpenCode goes on without it.
    return {{}};
  }}
}};
"""


def root(place: InstallTarget) -> Path:
    """Return OpenCode's folder."""
    if place.env.get("OPENCODE_CONFIG_DIR"):
        return place.folder("OPENCODE_CONFIG_DIR")
    return place.folder("XDG_CONFIG_HOME", ".config") / "opencode"


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the plugin and the MCP server."""
    server = {"type": "local", "command": place.commands.mcp, "enabled": True}
    commands = place.commands
    options: dict[str, object] = {"daemon": commands.daemon}
    if commands.home is not None:
        options["home"] = str(commands.home)
    module = commands.plugin("opencode", "meritory.js").as_uri()
    stub = _STUB.format(options=json.dumps(options), module=json.dumps(module))
    config = root(place) / "opencode.jsonc"
    if place.env.get("OPENCODE_CONFIG"):
        config = place.folder("OPENCODE_CONFIG")
    elif not config.exists():
        config = root(place) / "opencode.json"
    documents = (
        Document(root(place) / "plugins" / "meritory.js", "text", text=stub),
        Document(config, wishes=(Member(("mcp", "meritory"), server),)),
    )
    return HarnessSetup(documents)


def checks(place: InstallTarget) -> list[Finding]:
    """Return a failure if the plugin's module is missing."""
    module = place.commands.plugin("opencode", "meritory.js")
    if module.is_file():
        return []
    return [Finding(NAME, "fail", f"{module} is missing", "install Meritory again")]
