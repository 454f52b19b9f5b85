"""The entries that Meritory wants in a harness's files, as data; and the registry of harnesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from meritory.connect.managed import Commands
from meritory.domain.errors import InputError
from meritory.domain.harness import HARNESS_NAMES

if TYPE_CHECKING:
    from meritory.connect.transcripts import Message

Status = Literal["ok", "warn", "fail"]
Syntax = Literal["json", "json5", "toml", "text"]


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


# The names of events in the daemon, in the order of a session.
DAEMON_EVENTS = (
    *("session-start", "user-prompt-submit", "stop", "pre-compact", "session-end"),
    "pre-tool",
)
# The names that Claude Code introduced and most clients took over.
COMMON_EVENTS = dict(
    zip(
        ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd", "PreToolUse"),
        DAEMON_EVENTS,
        strict=True,
    )
)
CAMEL_EVENTS = dict(
    zip(
        (
            *("sessionStart", "userPromptSubmitted", "agentStop", "preCompact", "sessionEnd"),
            "preToolUse",
        ),
        DAEMON_EVENTS,
        strict=True,
    )
)


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
    read_entry: Callable[[Message], Iterator[Message] | None]

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
