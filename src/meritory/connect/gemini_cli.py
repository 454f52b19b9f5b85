"""Gemini CLI: everything in settings.json; its timeouts are in milliseconds."""

from __future__ import annotations

from pathlib import Path

from meritory.connect import desired
from meritory.connect.desired import Message
from meritory.connect.transcripts import tool_calls, tool_result

NAME = "gemini-cli"
TITLE = "Gemini CLI"
PROGRAMS = ("gemini",)
_EVENTS = {
    "SessionStart": "session-start",
    "BeforeAgent": "user-prompt-submit",
    "AfterAgent": "stop",
    "SessionEnd": "session-end",
    "BeforeTool": "pre-tool",
}
# PreCompress is left out: it comes with every request to the model.
EVENTS = tuple(_EVENTS)
HOOK = desired.HookShape(_EVENTS, guard="gemini", reply="prompt_response", home="GEMINI_CLI_HOME")
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".gemini/tmp",), (".gemini/tmp",)
GUARDED = {"BeforeTool": "run_shell_command|replace|write_file|web_fetch"}
_SWITCHES = ((("hooksConfig", "enabled"), False), (("admin", "hooks", "enabled"), False))


def root(place: desired.InstallTarget) -> Path:
    """Return Gemini CLI's folder."""
    return place.folder("GEMINI_CLI_HOME") / ".gemini"


def setup(place: desired.InstallTarget) -> desired.HarnessSetup:
    """Return the hooks and the MCP server."""
    handler = {
        "type": "command",
        "name": "meritory",
        "command": place.commands.hook_line,
        "timeout": desired.TIMEOUT_S * 1000,
    }
    wishes: tuple[desired.Wish, ...] = (
        *desired.grouped(EVENTS, handler, GUARDED),
        desired.server(place.commands.mcp, "mcpServers", "meritory"),
        # Needed only where servers must be listed.
        desired.Word(("mcp", "allowed"), "meritory", if_present=True),
    )
    # It reads comments.
    refused = frozenset({"comma"})
    settings = desired.Document(root(place) / "settings.json", wishes=wishes, refused=refused)
    return desired.HarnessSetup((settings,))


def checks(place: desired.InstallTarget) -> list[desired.Finding]:
    """Return warnings about settings that disable all hooks, or this one."""
    own = root(place) / "settings.json"
    named = place.env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
    system = Path(named) if named else place.system_root / "etc" / "gemini-cli" / "settings.json"
    findings = desired.forbidding(NAME, (own, system), _SWITCHES)
    for file in (own, system):
        disabled = desired.at(desired.settings_at(file), "hooksConfig", "disabled")
        if isinstance(disabled, list) and "meritory" in disabled:
            detail = f"the hook `meritory` is disabled in {file}"
            hint = "type /hooks enable meritory in Gemini CLI"
            findings.append(desired.Finding(NAME, "warn", detail, hint))
    return findings


def read_entry(entry: Message) -> list[Message] | None:
    """Read what the model said and did."""
    if entry.get("type") != "gemini":
        return None
    calls = entry.get("toolCalls")
    results = [
        tool_result(call["resultDisplay"], call.get("id"), call.get("name"))
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, dict) and call.get("resultDisplay")
    ]
    said = {"role": "assistant", "content": entry.get("content")}
    return [said, *tool_calls(calls), *results]
