"""What Meritory writes into the files of others, and how it knows it again.

A command counts as ours only in exactly the shape that is written here (or that the docs tell to
write by hand); whoever wraps it in something of their own keeps it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, Literal

Use = Literal["hook", "mcp", "up"]

NAME: Final = "meritory"
HOOK_FILE: Final = ("meritory", "hook", "main.py")
_ISOLATED: Final = ["-I", "-S"]
_MODULE: Final = ["-P", "-m", "meritory"]
_OPTIONS: Final = {"--harness", "--home", "--user", "--project"}
_HIDING: Final = "--hide-ratings"


@dataclass(frozen=True, slots=True)
class Commands:
    """The command lines of one harness; they stay the same while Meritory stays where it is."""

    harness: str
    python: str
    package: Path
    # Only where it is not the folder that is taken anyway.
    home: Path | None = None

    @property
    def hook(self) -> list[str]:
        """What the harness runs at its events."""
        file = str(self.package / "hook" / "main.py")
        return [self.python, *_ISOLATED, file, "--harness", self.harness, *self._home()]

    @property
    def hook_line(self) -> str:
        """The same for a shell."""
        return shlex.join(self.hook)

    @property
    def hiding_line(self) -> str:
        """The same where it is to take the rating line off the screen."""
        return shlex.join([*self.hook, _HIDING])

    @property
    def mcp(self) -> list[str]:
        """The server of tools."""
        return [self.python, *_MODULE, "mcp", "--harness", self.harness, *self._home()]

    @property
    def daemon(self) -> list[str]:
        """What starts the daemon."""
        return [self.python, *_MODULE, *self._home(), "up", "--detached"]

    def plugin(self, *parts: str) -> Path:
        """A file of the plugins that are shipped."""
        return self.package.joinpath("data", "plugins", *parts)

    def _home(self) -> list[str]:
        return [] if self.home is None else ["--home", str(self.home)]


def our_argv(value: Any, harness: str) -> list[str] | None:
    """The command of a hook, a server or a plugin's settings, when it is ours for this harness."""
    argv = _argv(value)
    use = None if argv is None else _use(argv, harness)
    return argv if use else None


def missing_python(argv: Sequence[str]) -> str | None:
    """The program that a command of ours needs and that is not there any more."""
    needed = [argv[0], *(word for word in argv[1:4] if word.endswith(os.path.join(*HOOK_FILE)))]
    gone = (word for word in needed if os.path.isabs(word) and not os.path.exists(word))
    return next(gone, None)


def _argv(value: Any) -> list[str] | None:
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
            return _split(given)
    return None


def _words(value: Any) -> list[str] | None:
    is_argv = isinstance(value, list) and value and all(isinstance(word, str) for word in value)
    return list(value) if is_argv else None


def _split(line: str) -> list[str] | None:
    try:
        return shlex.split(line) or None
    except ValueError:
        return None


def _use(argv: list[str], harness: str) -> Use | None:
    rest = argv[1:]
    use: Use
    if rest[:2] == _ISOLATED and rest[2:] and PurePath(rest[2]).parts[-3:] == HOOK_FILE:
        use, rest = "hook", [word for word in rest[3:] if word != _HIDING]
    elif rest[:3] == _MODULE and rest[3:4] == ["mcp"]:
        use, rest = "mcp", rest[4:]
    elif rest[:3] == _MODULE and rest[-2:] == ["up", "--detached"]:
        return "up"
    elif PurePath(argv[0]).name == NAME and rest[:1] in (["hook"], ["mcp"]):
        use, rest = ("hook" if rest[0] == "hook" else "mcp"), rest[1:]
    else:
        return None
    given = dict(zip(rest[::2], rest[1::2], strict=False))
    if len(rest) % 2 or not set(given) <= _OPTIONS:
        return None
    # A server may be written by hand without its harness; a hook cannot.
    return use if given.get("--harness", harness if use == "mcp" else None) == harness else None
