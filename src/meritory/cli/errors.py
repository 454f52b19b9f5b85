"""Turn every error into a line for people, an object for programs and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from meritory.cli.command import DEBUG_VARIABLE, Interrupted
from meritory.cli.output import json_text
from meritory.domain.errors import InputError, MeritoryError
from meritory.text.normalize import shown

MESSAGE_LIMIT_CHARS = 500
FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
_HINTS = {
    "not_found": "`meritory list --all-projects` lists the ids; the first 4 or more characters "
    "are enough",
    "busy": "try again in a moment",
    "storage": "`meritory doctor` shows what is wrong",
    "port": "`meritory doctor` shows what is wrong",
}
# Click's messages name its own classes and quote a usage line; these are plainer.
_PLAINER = (
    (re.compile(r"(?<=is not a )valid (?:integer range|integer|int)\b"), "whole number"),
    (re.compile(r"(?<=is not a )valid (?:float range|float)\b"), "number"),
    (re.compile(r"(?<=value for )'[\[{]+[^'|]*\|[^']*'"), "the argument"),
    (re.compile(r"(?<=value for )'\[(\w+)\]'"), r"'\1'"),
)


class ReaderGone(Exception):
    """The program that read stdout has closed it."""


class CommandFailure(NamedTuple):
    """An error as it is printed, with its exit code."""

    code: str
    message: str
    hint: str | None
    exit_code: int


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` was given, even when the other arguments are invalid."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before


def print_error(error: Exception, *, as_json: bool) -> int:
    """Print an error and return the exit code."""
    if os.environ.get(DEBUG_VARIABLE) and not isinstance(error, click.ClickException | click.Abort):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    code, message, hint, exit_code = describe(error)
    if len(message) > MESSAGE_LIMIT_CHARS:
        message = message[:MESSAGE_LIMIT_CHARS] + "..."
    try:
        if as_json:
            click.echo(json_text({"error": {"code": code, "message": message, "hint": hint}}))
        else:
            colour = False if os.environ.get("NO_COLOR") else None
            for label, text, shade in (("error", message, "red"), ("hint", hint, "cyan")):
                if text:
                    head = click.style(f"{label}:", fg=shade, bold=True)
                    line = f"{head} {shown(text, one_line=True)}"
                    click.echo(line, file=sys.stderr, color=colour)
        flush()
    except OSError:
        # Nothing can be printed; only the exit code is left.
        discard_stdout()
    return exit_code


def describe(error: Exception) -> CommandFailure:
    """Return the message, the hint and the exit code of an error."""
    if isinstance(error, MeritoryError):
        hint = error.hint or _HINTS.get(error.code)
        exit_code = WRONG_USE if isinstance(error, InputError) else FAILED
        if isinstance(error, Interrupted):
            exit_code = INTERRUPTED
        return CommandFailure(error.code, error.message, hint, exit_code)
    if isinstance(error, click.Abort):
        return CommandFailure("interrupted", "interrupted", None, INTERRUPTED)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "meritory"
        hint = f"`{path} --help` shows how"
        if isinstance(error, click.NoSuchOption):
            hint = (
                f"`{path} --help` lists the options; put -- before a text that starts with a dash"
            )
        return CommandFailure("usage", _plain_message(error), hint, WRONG_USE)
    if isinstance(error, click.ClickException):
        return CommandFailure("failed", _plain_message(error), None, FAILED)
    if isinstance(error, OSError):
        file = f": {error.filename}" if error.filename is not None else ""
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space and try again" if is_full else "check the path and its permissions"
        return CommandFailure("system", f"{error.strerror or error}{file}", hint, FAILED)
    if isinstance(error, MemoryError):
        return CommandFailure("no_memory", "this machine is out of memory", None, FAILED)
    return CommandFailure(
        "bug",
        f"this is a bug in Meritory: {type(error).__name__}: {error}",
        f"please report it; run it again with {DEBUG_VARIABLE}=1 to see the traceback",
        FAILED,
    )


def _plain_message(error: click.ClickException) -> str:
    """Return click's message on one line, without names of its classes."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        group = error.ctx.command if error.ctx else None
        names = sorted(group.commands) if isinstance(group, click.Group) else []
        return f"name a command: {', '.join(names)}"
    message = " ".join(error.format_message().split())
    for pattern, plainer in _PLAINER:
        message = pattern.sub(plainer, message)
    return message


def prepare_streams() -> None:
    """Print characters that the locale cannot encode as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush() -> None:
    """Flush stdout, so that a full disk or a closed pipe raises here."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard_stdout() -> None:
    """Point stdout at the null device, so that a failed flush is not repeated at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
