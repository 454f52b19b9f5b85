"""Gemini CLI: everything in settings.json; its timeouts are in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meritory.connect.desired import (
    Document,
    Finding,
    HarnessSetup,
    HookShape,
    InstallTarget,
    Wish,
    Word,
)
from meritory.connect.hook_groups import TIMEOUT_S, at, forbidding, grouped, server, settings_at
from meritory.connect.transcripts import Message, tool_calls, tool_result

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
HOOK = HookShape(_EVENTS, guard="gemini", reply="prompt_response", home="GEMINI_CLI_HOME")
TRANSCRIPTS, MOVED_TRANSCRIPTS = (".gemini/tmp",), (".gemini/tmp",)
GUARDED = {"BeforeTool": "run_shell_command|replace|write_file|web_fetch"}
_SWITCHES = ((("hooksConfig", "enabled"), False), (("admin", "hooks", "enabled"), False))


def root(place: InstallTarget) -> Path:
    """Return Gemini CLI's folder."""
    return place.folder("GEMINI_CLI_HOME") / ".gemini"


def setup(place: InstallTarget) -> HarnessSetup:
    """Return the hooks and the MCP server."""
    handler = {
        "type": "command",
        "name": "meritory",
        "command": place.commands.hook_line,
        "timeout": TIMEOUT_S * 1000,
    }
    wishes: tuple[Wish, ...] = (
        *grouped(EVENTS, handler, GUARDED),
        server(place.commands.mcp, "mcpServers", "meritory"),
        # Needed only where servers must be listed.
        Word(("mcp", "allowed"), "meritory", if_present=True),
    )
    return HarnessSetup((Document(root(place) / "settings.json", wishes=wishes),))


def checks(place: InstallTarget) -> list[Finding]:
    """Return warnings about settings that disable all hooks, or this one."""
    own = root(place) / "settings.json"
    named = place.env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
    system = Path(named) if named else place.system_root / "etc" / "gemini-cli" / "settings.json"
    findings = forbidding(NAME, (own, system), _SWITCHES)
    for file in (own, system):
        disabled = at(settings_at(file), "hooksConfig", "disabled")
        if isinstance(disabled, list) and "meritory" in disabled:
            detail = f"the hook `meritory` is disabled in {file}"
            hint = "type /hooks enable meritory in Gemini CLI"
            findings.append(Finding(NAME, "warn", detail, hint))
    return findings


def read_entry(entry: Message) -> Iterator[Message] | None:
    """Read what the model said and did."""
    return _messages(entry) if entry.get("type") == "gemini" else None


def _messages(entry: Message) -> Iterator[Message]:
    yield {"role": "assistant", "content": entry.get("content")}
    calls = entry.get("toolCalls")
    yield from tool_calls(calls)
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and call.get("resultDisplay"):
            yield tool_result(call["resultDisplay"], call.get("id"), call.get("name"))
