"""How whatever went wrong becomes a line for people, an object for programs and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from meritory.cli.context import DEBUG_VARIABLE, Interrupted
from meritory.domain.errors import InputError, MeritoryError

MESSAGE_LIMIT_CHARS = 500
FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
_HINTS = {
    "not_found": "`meritory list --all-projects` shows the ids; their first characters (4 or more) "
    "are enough",
    "busy": "try again in a moment",
    "storage": "`meritory doctor` says what is wrong",
    "port": "`meritory doctor` says what is wrong",
}


# What click says in the words of its own classes and of a usage line.
_PLAINER = (
    (re.compile(r"(?<=is not a )valid (?:integer range|integer|int)\b"), "whole number"),
    (re.compile(r"(?<=is not a )valid (?:float range|float)\b"), "number"),
    (re.compile(r"(?<=value for )'[\[{]+[^'|]*\|[^']*'"), "the argument"),
    (re.compile(r"(?<=value for )'\[(\w+)\]'"), r"'\1'"),
)


class ReaderGone(Exception):
    """Whoever read our output has seen enough."""


class CommandFailure(NamedTuple):
    """What is told about an error."""

    code: str
    message: str
    hint: str | None
    exit_code: int


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for, even when the rest could not be understood."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before


def failed(error: Exception, *, as_json: bool) -> int:
    """Tells about an error where it was asked for and returns the exit code."""
    from meritory.cli.render import fail, json_text

    if os.environ.get(DEBUG_VARIABLE) and not isinstance(error, click.ClickException | click.Abort):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    failure = describe(error)
    message = _cut(failure.message)
    try:
        if as_json:
            plain = {"code": failure.code, "message": message, "hint": failure.hint}
            click.echo(json_text({"error": plain}))
        else:
            hint = [("hint", failure.hint)] if failure.hint else []
            fail(sys.stderr, [("error", message), *hint])
        flush()
    except OSError:
        # Nobody can be told: the exit code must do.
        hush()
    return failure.exit_code


def describe(error: Exception) -> CommandFailure:
    """What to say about an error, and the exit code it leads to."""
    if isinstance(error, MeritoryError):
        hint = error.hint or _HINTS.get(error.code)
        return CommandFailure(error.code, error.message, hint, _exit_code(error))
    if isinstance(error, click.Abort):
        return CommandFailure("interrupted", "interrupted", None, INTERRUPTED)
    if isinstance(error, click.UsageError):
        return CommandFailure("usage", _one_line(error), _usage_hint(error), WRONG_USE)
    if isinstance(error, click.ClickException):
        return CommandFailure("failed", _one_line(error), None, FAILED)
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename is not None else ""
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space and try again" if is_full else "check the path and its rights"
        return CommandFailure("system", f"{error.strerror or error}{place}", hint, FAILED)
    if isinstance(error, MemoryError):
        return CommandFailure(
            "no_memory", "this machine has not enough memory for that", None, FAILED
        )
    return CommandFailure(
        "bug",
        f"this is a bug in Meritory: {type(error).__name__}: {error}",
        f"please report it; with {DEBUG_VARIABLE}=1 the same command shows where it happened",
        FAILED,
    )


def _one_line(error: click.ClickException) -> str:
    """The message without click's own line breaks, indents and names of classes."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        group = error.ctx.command if error.ctx else None
        names = sorted(group.commands) if isinstance(group, click.Group) else []
        return f"say what to do: {', '.join(names)}"
    told = " ".join(error.format_message().split())
    for found, plainer in _PLAINER:
        told = found.sub(plainer, told)
    return told


def _exit_code(error: MeritoryError) -> int:
    if isinstance(error, Interrupted):
        return INTERRUPTED
    return WRONG_USE if isinstance(error, InputError) else FAILED


def _usage_hint(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "meritory"
    if isinstance(error, click.NoSuchOption):
        return f"`{command} --help` lists the options; put -- before a text that begins with a dash"
    return f"`{command} --help` shows how"


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT_CHARS else text[:MESSAGE_LIMIT_CHARS] + "..."


def prepare_streams() -> None:
    """Lets any character through whatever the locale; one that does not fit becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush() -> None:
    """Sends out what was printed, so that a full disk or a closed pipe is noticed here."""
    if sys.stdout is not None:
        sys.stdout.flush()


def hush() -> None:
    """Points stdout at nothing: what could not be sent must not fail once more at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
