"""The parts of a harness's module: the entries it wants in files, their commands, its hook."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Final, Literal, Protocol, cast

from meritory.connect.files import read_file, text_of
from meritory.connect.json_edit import plain, read
from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.harness import HARNESS_NAMES

NAME: Final = "meritory"
HOOK_FILE: Final = ("meritory", "hook", "__main__.py")
TIMEOUT_S: Final = 5
# Tools that only read, and the one that rates: agents may call them without asking.
HARMLESS_TOOLS: Final = (
    *("memory_search", "memory_get", "memory_explain", "describe_entity", "memory_feedback"),
    "prevention_rules",
)
_ISOLATED: Final = ["-I", "-S"]
_MODULE: Final = ["-P", "-m", "meritory"]
_OPTIONS: Final = {"--harness", "--home", "--user", "--project"}
_HIDING: Final = "--hide-ratings"
_ASKING: Final = "--ask-to-keep"
# Options of the hook without a value.
_SWITCHES: Final = (_HIDING, _ASKING)
# Clients take exit code 2 for "block", and Python ends with 2 when the hook's file is gone.
_FAIL_OPEN: Final = ["2>/dev/null", "||", "true"]
# Events with which the question whether anything is worth keeping may come.
ASKING_EVENTS: Final = ("SessionStart", "Stop")

# An entry of a transcript, or what it says with a role.
Message = dict[str, Any]
Status = Literal["ok", "warn", "fail"]
Syntax = Literal["json", "json5", "toml", "text"]
# Clients that read plain JSON.
STRICT: Final = frozenset({"comment", "comma"})


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
        file = str(self.package.joinpath(*HOOK_FILE[1:]))
        return [self.python, *_ISOLATED, file, "--harness", self.harness, *self._home()]

    @property
    def hook_line(self) -> str:
        """Return the command of the hook for a shell; it ends well even without Meritory."""
        return self._line()

    @property
    def hiding_line(self) -> str:
        """Return the command of the hook that hides the line with ratings."""
        return self._line(_HIDING)

    @property
    def asking_line(self) -> str:
        """Return the command of the hook that may ask what is worth keeping."""
        return self._line(_ASKING)

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

    def _line(self, *switches: str) -> str:
        return " ".join([shlex.join([*self.hook, *switches]), *_FAIL_OPEN])

    def _home(self) -> list[str]:
        return [] if self.home is None else ["--home", str(self.home)]


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list: a hook, recognised by its command."""

    path: tuple[str, ...]
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Word:
    """A text in a list, recognised by itself or by its ending."""

    path: tuple[str, ...]
    value: str
    ending: str | None = None
    # Added only to a list that exists: without one, everything is allowed.
    if_present: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object, recognised by its command; another's of the same name stays."""

    path: tuple[str, ...]
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """A plain value that the file needs; an existing one stays."""

    path: tuple[str, ...]
    value: str | int | bool
    # The file needs it in any case, such as a version: it stays with other people's entries.
    is_frame: bool = False


Wish = Item | Word | Member | Mark


@dataclass(frozen=True, slots=True)
class Document:
    """A file of the user's: its syntax and the desired entries."""

    path: Path
    syntax: Syntax = "json"
    wishes: tuple[Wish, ...] = ()
    # The content of a file that only Meritory writes.
    text: str = ""
    # For which its client loads nothing of the file: "comment", "comma" (before the end of a list).
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """Where a harness is looked for, and the commands to write into its files."""

    env: Mapping[str, str]
    user_home: Path
    commands: Commands
    # Administrators' settings are below this folder.
    system_root: Path = Path("/")
    # Hide the line with ratings on the screen, where the harness can.
    hides_ratings: bool = False
    # Let the hook ask whether anything is worth keeping, where the harness can.
    asks_to_keep: bool = False

    def folder(self, variable: str, *default: str) -> Path:
        """Return the folder that a variable names, or the default in the user's home."""
        given = self.env.get(variable, "")
        if not given:
            return self.user_home.joinpath(*default)
        if given == "~" or given.startswith("~/"):
            return self.user_home / given[2:]
        return Path(given).absolute()


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the doctor."""

    name: str
    status: Status
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class HarnessSetup:
    """How to connect a harness: files, notes for the user, and obstacles."""

    documents: tuple[Document, ...]
    notes: tuple[str, ...] = ()
    obstacles: tuple[Finding, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class HookShape:
    """How a client calls the hook and how it wants to be answered.

    `tools/gen_docs.py` writes these rows into `hook/shapes.py`, which cannot import this package.
    """

    # The client's names of events, with the daemon's.
    events: Mapping[str, str]
    # The shape of a reply with context, and of a verdict on a tool call.
    shape: Literal["nested", "flat", "cursor"] = "nested"
    guard: Literal["nested", "flat", "gemini", "cursor"] = "nested"
    # The field with the agent's reply. Without one, the reply is read from the transcript.
    reply: str = "last_assistant_message"
    # The variable by which people move the client's data.
    home: str = ""
    # Seconds after an event until the transcript is complete, where only that has the reply.
    settles_s: Mapping[str, float] = field(default_factory=dict)
    # The events whose reply reaches the agent.
    shows: tuple[str, ...] = ("session-start", "user-prompt-submit")
    # Fields that name the event, for a client that does not.
    guesses: Mapping[str, str] = field(default_factory=dict)


# The names that Claude Code introduced and most clients took over, with the daemon's.
COMMON_EVENTS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt-submit",
    "Stop": "stop",
    "PreCompact": "pre-compact",
    "SessionEnd": "session-end",
    "PreToolUse": "pre-tool",
}
CAMEL_EVENTS = {
    "sessionStart": "session-start",
    "userPromptSubmitted": "user-prompt-submit",
    "agentStop": "stop",
    "preCompact": "pre-compact",
    "sessionEnd": "session-end",
    "preToolUse": "pre-tool",
}


class HarnessModule(Protocol):
    """The contents of a harness's module."""

    NAME: str
    TITLE: str
    PROGRAMS: tuple[str, ...]
    # How it calls the hook; None for a client that loads a plugin instead.
    HOOK: HookShape | None
    # Where it keeps transcripts: in the user's home, and in a folder that people moved.
    TRANSCRIPTS: tuple[str, ...]
    MOVED_TRANSCRIPTS: tuple[str, ...]
    # Reads an entry of its transcripts; None for an entry that is not its own.
    read_entry: Callable[[Message], list[Message] | None]

    def root(self, place: InstallTarget) -> Path:
        """Return the folder that exists where the harness is installed."""

    def setup(self, place: InstallTarget) -> HarnessSetup:
        """Return the files and the desired entries."""

    def checks(self, place: InstallTarget) -> list[Finding]:
        """Return the doctor's findings about a connected harness."""


@cache
def harness_module(name: str) -> HarnessModule:
    """Return the module of a harness."""
    if name not in HARNESS_NAMES:
        raise InputError(f"unknown harness {name!r}", hint=f"one of {', '.join(HARNESS_NAMES)}")
    return cast(HarnessModule, import_module(f"meritory.connect.{name.replace('-', '_')}"))


def harness_modules() -> list[HarnessModule]:
    """Return the modules of all harnesses."""
    return [harness_module(name) for name in HARNESS_NAMES]


# -- entries --------------------------------------------------------------------------------


def grouped(
    events: Iterable[str], handler: dict[str, Any], matchers: Mapping[str, str] | None = None
) -> tuple[Item, ...]:
    """Return a group with one hook for each event, some of them for certain tools only."""
    named = {event: {"matcher": tools} for event, tools in (matchers or {}).items()}
    return tuple(
        Item(("hooks", event), {**named.get(event, {}), "hooks": [handler]}) for event in events
    )


def flat(events: Iterable[str], handler: dict[str, Any]) -> tuple[Item, ...]:
    """Return one hook for each event, without groups."""
    return tuple(Item(("hooks", event), handler) for event in events)


def server(argv: Sequence[str], *path: str, **more: Any) -> Member:
    """Return the entry of an MCP server."""
    return Member(path, {**more, "command": argv[0], "args": list(argv[1:])})


# -- recognising them -----------------------------------------------------------------------


def our_argv(value: Any, harness: str) -> list[str] | None:
    """Return the command of an entry if Meritory wrote it for this harness.

    The entry is a hook, an MCP server or a plugin's settings. A command is recognised only in
    exactly the shape that is written here or that the docs show; one that a user wraps in another
    command stays.
    """
    argv = None
    if isinstance(value, dict):
        config = value.get("config")
        given = value.get("command") or value.get("bash")
        if isinstance(config, dict):
            given = config.get("daemon")
        elif isinstance(given, str) and "args" in value:
            given = [given, *value["args"]] if isinstance(value["args"], list) else None
        elif isinstance(given, str):
            with contextlib.suppress(ValueError):
                given = shlex.split(given)
                given = given[:-3] if given[-3:] == _FAIL_OPEN else given
        if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
            argv = given
    return argv if argv is not None and _is_own(argv, harness) else None


def _is_own(argv: list[str], harness: str) -> bool:
    """Return whether Meritory wrote a command for a harness."""
    rest = argv[1:]
    if rest[:2] == _ISOLATED and rest[2:] and PurePath(rest[2]).parts[-3:] == HOOK_FILE:
        is_hook, rest = True, [word for word in rest[3:] if word not in _SWITCHES]
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


def missing_python(argv: Sequence[str]) -> str | None:
    """Return the file that a command needs and that no longer exists."""
    needed = [argv[0], *(word for word in argv[1:4] if word.endswith(os.path.join(*HOOK_FILE)))]
    gone = (word for word in needed if os.path.isabs(word) and not os.path.exists(word))
    return next(gone, None)


def our_hooks(events: Any, harness: str) -> Iterator[tuple[str, int, int]]:
    """Yield Meritory's hooks in groups: the event, and the places of the group and of the hook."""
    for event, groups in events.items() if isinstance(events, dict) else ():
        for outer, group in enumerate(groups if isinstance(groups, list) else ()):
            handlers = at(group, "hooks")
            for inner, handler in enumerate(handlers if isinstance(handlers, list) else ()):
                if our_argv(handler, harness):
                    yield event, outer, inner


def is_asking(place: InstallTarget, settings: Any, harness: str) -> bool:
    """Return whether the hook shall ask what is worth keeping, now or by an earlier connect."""
    events = at(settings, "hooks")
    return place.asks_to_keep or any(
        _ASKING in (our_argv(events[event][outer]["hooks"][inner], harness) or ())
        for event, outer, inner in our_hooks(events, harness)
    )


def asking(hooks: Iterable[Item], commands: Commands) -> tuple[Item, ...]:
    """Return hooks in groups, with the command that asks at the events that may ask."""

    def changed(item: Item) -> Item:
        if item.path[-1] not in ASKING_EVENTS:
            return item
        handlers = [{**one, "command": commands.asking_line} for one in item.value["hooks"]]
        return Item(item.path, {**item.value, "hooks": handlers})

    return tuple(map(changed, hooks))


def settings_at(path: Path) -> dict[str, Any]:
    """Return the values of a settings file; none if it is missing or unreadable."""
    try:
        text = text_of(path, read_file(path)).removeprefix("\ufeff")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        values = plain(read(text, "json5", ()))
    except (MeritoryError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def at(values: Any, *path: str) -> Any:
    """Return the value at a path, None without one."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def forbidding(
    name: str, files: Iterable[Path], switches: Sequence[tuple[tuple[str, ...], bool]]
) -> list[Finding]:
    """Return a warning for every switch that disables hooks."""
    hint = "change it there, or ask the administrator of this machine"
    findings = []
    for file in files:
        values = settings_at(file)
        for path, off in switches:
            if at(values, *path) is off:
                switch = f"{'.'.join(path)} = {json.dumps(off)}"
                detail = f"{file} has {switch}, so hooks do not run"
                findings.append(Finding(name, "warn", detail, hint))
    return findings
