"""The commands that Meritory writes into other programs' files, and how it recognises them.

A command is recognised only in exactly the shape that is written here or that the docs show. A
command that a user wraps in another one stays.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

NAME: Final = "meritory"
HOOK_FILE: Final = ("meritory", "hook", "main.py")
_ISOLATED: Final = ["-I", "-S"]
_MODULE: Final = ["-P", "-m", "meritory"]
_OPTIONS: Final = {"--harness", "--home", "--user", "--project"}
_HIDING: Final = "--hide-ratings"


@dataclass(frozen=True, slots=True)
class Commands:
    """The command lines for one harness; they depend only on where Meritory is installed."""

    harness: str
    python: str
    package: Path
    # Only if it is not the default folder.
    home: Path | None = None

    @property
    def hook(self) -> list[str]:
        """Return the command of the hook."""
        file = str(self.package / "hook" / "main.py")
        return [self.python, *_ISOLATED, file, "--harness", self.harness, *self._home()]

    @property
    def hook_line(self) -> str:
        """Return the command of the hook for a shell."""
        return shlex.join(self.hook)

    @property
    def hiding_line(self) -> str:
        """Return the command of the hook that hides the line with ratings."""
        return shlex.join([*self.hook, _HIDING])

    @property
    def mcp(self) -> list[str]:
        """Return the command of the MCP server."""
        return [self.python, *_MODULE, "mcp", "--harness", self.harness, *self._home()]

    @property
    def daemon(self) -> list[str]:
        """Return the command that starts the daemon."""
        return [self.python, *_MODULE, *self._home(), "up", "--detached"]

    def plugin(self, *parts: str) -> Path:
        """Return the path of a plugin's file."""
        return self.package.joinpath("data", "plugins", *parts)

    def _home(self) -> list[str]:
        return [] if self.home is None else ["--home", str(self.home)]


def our_argv(value: Any, harness: str) -> list[str] | None:
    """Return the command of an entry if Meritory wrote it for this harness."""
    argv = _argv(value)
    return argv if argv is not None and _is_own(argv, harness) else None


def missing_python(argv: Sequence[str]) -> str | None:
    """Return the file that a command needs and that no longer exists."""
    needed = [argv[0], *(word for word in argv[1:4] if word.endswith(os.path.join(*HOOK_FILE)))]
    gone = (word for word in needed if os.path.isabs(word) and not os.path.exists(word))
    return next(gone, None)


def _argv(value: Any) -> list[str] | None:
    """Return the command of a hook, an MCP server or a plugin's settings."""
    if not isinstance(value, dict):
        return None
    config = value.get("config")
    if isinstance(config, dict):
        return _words(config.get("daemon"))
    for name in ("command", "bash"):
        given = value.get(name)
        if isinstance(given, list):
            return _words(given)
        if isinstance(given, str) and "args" in value:
            return _words([given, *value["args"]]) if isinstance(value["args"], list) else None
        if isinstance(given, str):
            with contextlib.suppress(ValueError):
                return shlex.split(given) or None
    return None


def _words(value: Any) -> list[str] | None:
    is_argv = isinstance(value, list) and value and all(isinstance(word, str) for word in value)
    return list(value) if is_argv else None


def _is_own(argv: list[str], harness: str) -> bool:
    """Return whether Meritory wrote a command for a harness."""
    rest = argv[1:]
    if rest[:2] == _ISOLATED and rest[2:] and PurePath(rest[2]).parts[-3:] == HOOK_FILE:
        is_hook, rest = True, [word for word in rest[3:] if word != _HIDING]
    elif rest[:3] == _MODULE and rest[3:4] == ["mcp"]:
        is_hook, rest = False, rest[4:]
    elif rest[:3] == _MODULE and rest[-2:] == ["up", "--detached"]:
        return True
    elif PurePath(argv[0]).name == NAME and rest[:1] in (["hook"], ["mcp"]):
        is_hook, rest = rest[0] == "hook", rest[1:]
    else:
        return False
    given = dict(zip(rest[::2], rest[1::2], strict=False))
    if len(rest) % 2 or not set(given) <= _OPTIONS:
        return False
    # Only an MCP server may be written by hand without its harness.
    return given.get("--harness", None if is_hook else harness) == harness
