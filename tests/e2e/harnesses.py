"""The real clients: what a user's own configuration looks like, and how one turn is run."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

from sandbox import HERE, Ran, Sandbox

ROOT = HERE.parents[1]


def clients() -> ModuleType:
    """tools/clients.py, which knows the versions and installs them."""
    known = sys.modules.get("meritory_clients")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location("meritory_clients", ROOT / "tools" / "clients.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of a client: what is typed, and whether it goes on with the latest session."""

    prompt: str
    is_next: bool = False


@dataclass(frozen=True, slots=True)
class Harness:
    """A client: `files` are the user's own, `command` runs a turn, `limit_s` is its patience."""

    name: str
    command: Callable[[Sandbox, Turn], list[str]]
    files: Callable[[Sandbox], Mapping[str, str]]
    env: Callable[[Sandbox], Mapping[str, str]]
    needs: tuple[str, ...] = ()
    # What one turn may take at most; most of it is the client's own start.
    limit_s: float = 60.0
    # Files that the client itself rewrites while it runs.
    rewritten: tuple[str, ...] = ()
    # Where its hooks find the reply: handed to them, or in the transcript.
    channel: str = "trailer"
    # Whether it lets a plugin take the ratings out of what the user sees.
    strips: bool = False
    # The tool through which others are called, where a client offers most of them in that way.
    through: str = ""

    @property
    def version(self) -> str:
        """The pinned version."""
        return str(clients().named(self.name).version)

    def prepare(self, sandbox: Sandbox) -> None:
        """Writes the user's own configuration, as it was before Meritory came."""
        for name, content in self.files(sandbox).items():
            path = sandbox.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")

    def call(self, tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """The call of a tool, for the model's script."""
        if self.through:
            return {
                "name": self.through,
                "arguments": {"id": f"meritory__{tool}", "args": arguments},
            }
        return {"name": tool, "arguments": arguments}

    def turn(self, sandbox: Sandbox, turn: Turn) -> Ran:
        """Runs one turn."""
        return sandbox.run(self.command(sandbox, turn), self.limit_s, self.env(sandbox))


def _program(name: str) -> str:
    return str(clients().install(clients().named(name)).program)


def _pretty(value: object, indent: int = 3) -> str:
    # An indentation that no program of ours would choose: it must survive as well.
    return json.dumps(value, indent=indent) + "\n\n"


# -- Claude Code ----------------------------------------------------------------------------


def _claude_command(sandbox: Sandbox, turn: Turn) -> list[str]:
    again = ["--continue"] if turn.is_next else []
    return [_program("claude-code"), "-p", turn.prompt, *again]


def _claude_files(sandbox: Sandbox) -> dict[str, str]:
    hook = {"hooks": [{"type": "command", "command": "true"}]}
    mine = {"model": "opus", "hooks": {"UserPromptSubmit": [hook]}, "cleanupPeriodDays": 400}
    return {".claude/settings.json": _pretty(mine), ".claude/CLAUDE.md": "# mine\r\nno newline"}


def claude_env(sandbox: Sandbox) -> dict[str, str]:
    """What sends Claude Code to the scripted model, and nowhere else."""
    return {
        "ANTHROPIC_BASE_URL": sandbox.model.url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


# -- Codex ----------------------------------------------------------------------------------


def _codex_command(sandbox: Sandbox, turn: Turn) -> list[str]:
    # Nobody is there to approve a hook in the client's own dialogue.
    flags = ["--skip-git-repo-check", "--dangerously-bypass-hook-trust", "--json"]
    again = ["resume", "--last"] if turn.is_next else []
    return [_program("codex"), "exec", *again, *flags, turn.prompt]


def _codex_files(sandbox: Sandbox) -> dict[str, str]:
    config = f"""# my own settings
model = "scripted-model"   # and this remark
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{sandbox.model.url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[mcp_servers.mine]
command = "false"
enabled = false
"""
    return {".codex/config.toml": config}


def _codex_env(sandbox: Sandbox) -> dict[str, str]:
    return {"SCRIPTED_KEY": "dummy", "CODEX_HOME": str(sandbox.home / ".codex")}


# -- OpenCode -------------------------------------------------------------------------------


def _opencode_command(sandbox: Sandbox, turn: Turn) -> list[str]:
    again = ["--continue"] if turn.is_next else []
    return [_program("opencode"), "run", *again, "-m", "scripted/scripted-model", turn.prompt]


def _opencode_files(sandbox: Sandbox) -> dict[str, str]:
    config = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "scripted",
                "options": {"baseURL": f"{sandbox.model.url}/v1", "apiKey": "dummy"},
                "models": {"scripted-model": {"name": "scripted"}},
            }
        },
    }
    # As it is once OpenCode has installed what it wants: without a registry it would try at every
    # start, and wait a minute for the lock of one that ended while trying.
    installed = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    return {
        ".config/opencode/opencode.json": _pretty(config),
        ".config/opencode/package-lock.json": _pretty(installed),
        ".config/opencode/node_modules/.package-lock.json": "{}",
    }


def _opencode_env(sandbox: Sandbox) -> dict[str, str]:
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


# -- Gemini CLI -----------------------------------------------------------------------------


def _gemini_command(sandbox: Sandbox, turn: Turn) -> list[str]:
    again = ["--resume", "latest"] if turn.is_next else []
    program = [_program("node"), _program("gemini-cli"), *again]
    return [*program, "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p", turn.prompt]


def _gemini_files(sandbox: Sandbox) -> dict[str, str]:
    hook = {"type": "command", "name": "mine", "command": "true", "timeout": 4000}
    config = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "hooks": {"BeforeAgent": [{"hooks": [hook]}]},
    }
    return {".gemini/settings.json": _pretty(config)}


def _gemini_env(sandbox: Sandbox) -> dict[str, str]:
    return {
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": sandbox.model.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


# -- Copilot CLI ----------------------------------------------------------------------------


def _copilot_command(sandbox: Sandbox, turn: Turn) -> list[str]:
    again = ["--continue"] if turn.is_next else []
    return [_program("copilot-cli"), *again, "-p", turn.prompt, "--allow-all-tools"]


def _copilot_files(sandbox: Sandbox) -> dict[str, str]:
    hook = {"type": "command", "bash": "true", "timeoutSec": 5}
    mine = {"version": 1, "hooks": {"userPromptSubmitted": [hook]}}
    return {
        ".copilot/hooks/mine.json": _pretty(mine),
        ".copilot/mcp-config.json": _pretty({"mcpServers": {}}),
    }


def _copilot_env(sandbox: Sandbox) -> dict[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{sandbox.model.url}/v1",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_MODEL": "scripted-model",
        "COPILOT_OFFLINE": "true",
    }


# -- OpenClaw -------------------------------------------------------------------------------


def _openclaw_command(sandbox: Sandbox, turn: Turn) -> list[str]:
    session = sandbox.home / "openclaw-session"
    number = int(session.read_text("ascii")) if session.exists() else 0
    if not turn.is_next:
        number += 1
        session.write_text(str(number), "ascii")
    program = [_program("node"), _program("openclaw"), "agent", "--local", "--agent", "main"]
    return [*program, "--session-id", f"s{number}", "-m", turn.prompt]


def _openclaw_files(sandbox: Sandbox) -> dict[str, str]:
    model = {
        "id": "scripted-model",
        "name": "scripted",
        "contextWindow": 100_000,
        "maxTokens": 4_000,
    }
    provider = {
        "baseUrl": f"{sandbox.model.url}/v1",
        "apiKey": "dummy",
        "api": "openai-completions",
        "models": [model],
    }
    config = {
        "models": {"providers": {"scripted": provider}},
        "agents": {
            "defaults": {
                "model": {"primary": "scripted/scripted-model"},
                "workspace": str(sandbox.project),
            }
        },
    }
    return {".openclaw/openclaw.json": _pretty(config)}


def _nothing(sandbox: Sandbox) -> dict[str, str]:
    return {}


HARNESSES = (
    Harness(
        "claude-code",
        _claude_command,
        _claude_files,
        claude_env,
        ("claude-code",),
        30.0,
        rewritten=(".claude.json",),
    ),
    Harness("codex", _codex_command, _codex_files, _codex_env, ("codex",)),
    Harness(
        "opencode",
        _opencode_command,
        _opencode_files,
        _opencode_env,
        ("opencode",),
        strips=True,
    ),
    Harness("gemini-cli", _gemini_command, _gemini_files, _gemini_env, ("gemini-cli", "node")),
    Harness(
        "copilot-cli",
        _copilot_command,
        _copilot_files,
        _copilot_env,
        ("copilot-cli",),
        channel="transcript",
    ),
    Harness(
        "openclaw",
        _openclaw_command,
        _openclaw_files,
        _nothing,
        ("openclaw", "node"),
        180.0,
        through="tool_call",
    ),
)
