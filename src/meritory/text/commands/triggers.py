"""Triggers of rules: a tool and a pattern of its argument.

For a shell the pattern is a program with words that must all occur, e.g. `git push --force main`;
for files a path with `*`; for other tools values that must all occur. The trigger limits its rule:
one that is neither risky nor explicitly forbidden stays a proposal, and one with a single word
besides its program never blocks unless that alone is risky.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from functools import cache
from itertools import chain, product
from typing import Final, Literal

from meritory.domain.errors import InputError
from meritory.domain.rule import _FILE_TOOLS, Trigger
from meritory.text.commands.actions import (
    RISKY,
    ToolAction,
    command_risk,
    risky_words,
    sql_words,
    stems,
)
from meritory.text.commands.parse import SUBCOMMANDS, ShellCommand, read_commands
from meritory.text.language import read_language

Reach = Literal["proposed", "warns", "blocks"]

WORDS_LIMIT_COUNT: Final = 12
PATTERN_LIMIT_CHARS: Final = 400
# A pattern must have this many letters and digits besides its stars.
_PLAIN_CHARS_MIN: Final = 3
_EXAMPLE: Final = "write it as TOOL: PATTERN, e.g. 'shell: git push --force' or 'edit: */.env'"


@cache
def ordinary_actions() -> tuple[ToolAction, ...]:
    """Return everyday actions of any agent, which no rule may block."""
    ordinary = read_language("shell")["ordinary"]
    commands = product(["shell"], ordinary["commands"].splitlines())
    files = product(["edit", "read"], ordinary["paths"].splitlines())
    return tuple(ToolAction(tool, tool, argument) for tool, argument in chain(commands, files))


def parse_trigger(text: str) -> Trigger:
    """Return the trigger that a user wrote; InputError says what is wrong with it."""
    tool, colon, pattern = text.partition(":")
    tool, pattern = tool.strip().lower(), pattern.strip()
    if not colon or not tool or not tool.isprintable() or len(text) > PATTERN_LIMIT_CHARS:
        raise InputError(f"{text[:60]!r} is not a trigger", hint=_EXAMPLE)
    try:
        words = tuple(shlex.split(pattern))
    except ValueError as error:
        raise InputError(f"the pattern cannot be read: {error}", hint=_EXAMPLE) from error
    commands = read_commands(pattern) if tool == "shell" and words else ()
    if len(commands) == 1:
        # Options take the spelling by which actions are compared.
        (command,) = commands
        short = {word for word in command.options if word[1:2] != "-" and len(word) > 2}
        split = {word for word in short if {f"-{letter}" for letter in word[1:]} <= command.options}
        named = [word for word in words[1:] if word in command.named]
        words = (command.program, *named, *sorted(command.options - split))
    return checked_trigger(tool, words)


def checked_trigger(tool: str, words: tuple[str, ...]) -> Trigger:
    """Return a trigger, after checking that it is specific enough."""
    trigger = Trigger(tool, words)
    if trigger.argument_count < 1 or len(words) > WORDS_LIMIT_COUNT:
        raise InputError(
            f"a trigger needs 1 to {WORDS_LIMIT_COUNT} words besides its tool or program",
            hint="a name alone would match everything that is done with it",
        )
    if len(trigger.pattern) > PATTERN_LIMIT_CHARS:
        raise InputError(f"a pattern has at most {PATTERN_LIMIT_CHARS} characters")
    is_empty = any(not word.replace("*", "") for word in words[:1])
    plain = sum(character.isalnum() for character in trigger.pattern)
    if is_empty or (plain < _PLAIN_CHARS_MIN and tool != "shell"):
        raise InputError("a pattern of stars would match everything", hint=_EXAMPLE)
    return trigger


def fits(trigger: Trigger, action: ToolAction) -> bool:
    """Return whether a trigger describes an action."""
    if trigger.tool != action.tool:
        return False
    if trigger.tool == "shell":
        # Most lines lack the words, and searching is faster than parsing. Options have several
        # spellings, so only plain words are searched for.
        plain = (word for word in trigger.words if not word.startswith("-") and "*" not in word)
        return all(_bare(word) in action.argument for word in plain) and any(
            _fits_command(trigger.words, command)
            for command in action.by_program.get(trigger.words[0], ())
        )
    if trigger.tool in _FILE_TOOLS:
        return any(glob(trigger.words[0], value) for value in action.values)
    return all(any(glob(word, value) for value in action.values) for word in trigger.words)


def _fits_command(words: tuple[str, ...], command: ShellCommand) -> bool:
    if words[0] != command.program:
        return False
    options = [word for word in words[1:] if word.startswith("-")]
    named = [word for word in words[1:] if not word.startswith("-")]
    if not command.options.issuperset(options):
        return False
    rest = list(command.named)
    if command.program in SUBCOMMANDS and named and rest and not glob(named[0], rest[0]):
        # `git stash push` is not a push.
        return False
    for word in named:
        while rest and not glob(word, rest[0]):
            del rest[0]
        if not rest:
            return False
        del rest[0]
    return True


def glob(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern in which `*` matches anything, in linear time."""
    first, *middle = pattern.split("*")
    if not middle:
        return _bare(pattern) == _bare(text)
    last = middle.pop()
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        start = text.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return len(text) - position >= len(last) and text.endswith(last)


def _bare(path: str) -> str:
    """Return a path in its shortest form: without `./` and without a trailing slash."""
    return path.removeprefix("./").rstrip("/") or path


def derive(action: ToolAction, said: Collection[str]) -> Trigger | None:
    """Return the trigger for an action that a user complained about, by what makes it wrong.

    `said` are the stems of the complaint. Words that are neither risky nor mentioned are left out,
    so that the trigger finds the same mistake elsewhere. None when nothing specific remains.
    """
    if action.tool == "shell":
        words = _command_words(action, said)
    elif action.tool in _FILE_TOOLS:
        words = _path_words(action, said)
    else:
        words = tuple(value for value in action.values if stems(value) & set(said))
        words = tuple(word for word in words if len(word) <= PATTERN_LIMIT_CHARS // 4)
    try:
        return checked_trigger(action.tool, words[:WORDS_LIMIT_COUNT]) if words else None
    except InputError:
        return None


def _command_words(action: ToolAction, said: Collection[str]) -> tuple[str, ...]:
    """Return the words of the riskiest command, reduced to the risky and mentioned ones."""

    def weight(command: ShellCommand) -> tuple[int, int]:
        text = " ".join((command.program, *command.named, *command.options))
        return command_risk(command), len(stems(text) & set(said))

    if not action.commands:
        return ()
    command = max(action.commands, key=weight)
    risky = risky_words(command)

    def counts(word: str) -> bool:
        is_short = len(word) <= PATTERN_LIMIT_CHARS // 4 and " " not in word
        return word in risky or (is_short and bool(stems(word) & set(said)))

    deed = command.named[:1] if command.has_subcommand else ()
    if deed and not (command_risk(command) >= RISKY or stems(deed[0]) & set(said)):
        return ()
    rest = [word for word in command.named[len(deed) :] if counts(word)]
    options = [word for word in command.options if counts(word)]
    return (command.program, *deed, *rest, *sql_words(command), *sorted(options))


def _path_words(action: ToolAction, said: Collection[str]) -> tuple[str, ...]:
    """Return the file itself if the complaint mentions it, else the folder that it mentions."""
    for path in action.values:
        *folders, file = path.strip("/").split("/")
        if stems(file) & set(said) or (file.startswith(".") and action.risk >= RISKY):
            return (f"*/{file}" if folders else file,)
        for folder in reversed(folders):
            if len(folder) > 2 and stems(folder) & set(said):
                return (f"*/{folder}/*",)
    return ()


def widened(trigger: Trigger, action: ToolAction) -> Trigger | None:
    """Return the trigger without the positional words that another case of the mistake lacks."""
    if trigger.tool != "shell" or trigger.tool != action.tool:
        return None
    for command in action.commands:
        named = set(command.named)
        words = tuple(word for word in trigger.words if word.startswith("-") or word in named)
        words = (trigger.words[0], *(word for word in words if word != trigger.words[0]))
        has_options = any(word.startswith("-") for word in words)
        if has_options and len(words) < len(trigger.words) and _fits_command(words, command):
            return Trigger(trigger.tool, words)
    return None


def reach(trigger: Trigger, risk: int, *, is_forbidden: bool) -> Reach:
    """Return how far a rule with this trigger may go, independent of the reports."""
    is_risky = risk >= RISKY
    if not (is_risky or is_forbidden):
        # A complaint about how something was done is a lesson, not a prohibition.
        return "proposed"
    if trigger.tool == "shell" and trigger.argument_count < 2 and not is_risky:
        return "warns"
    return "blocks"


def trigger_risk(trigger: Trigger) -> int:
    """Return how risky the actions are that a trigger describes."""
    if trigger.tool == "shell":
        commands = read_commands(trigger.pattern)
        return max((command_risk(command) for command in commands), default=1)
    return ToolAction(trigger.tool, trigger.tool, trigger.words[0].removeprefix("*")).risk
