"""Commands about telemetry: whether numbers are kept for others, which, and how to end it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Fields, Lines
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    from meritory.api.memory import Memory

_STATES = {None: "not answered: nothing is kept", True: "on", False: "off: nothing is kept"}
_PROMISE = "numbers only (features, labels, ranks, counts), in this file; nothing is sent anywhere"


@click.group(
    "telemetry",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory telemetry off --erase\n",
)
@click.pass_context
def telemetry(ctx: click.Context) -> None:
    """Show or change whether numbers about sessions are kept.

    Off until you say yes. What is kept are numbers, never text, prompts, replies, paths, names or
    ids, in a file of yours; nothing is sent anywhere by this version.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_shown(), current_flags(), taken_notes())


telemetry.params += global_options(hidden=True)


def _shown() -> Answer:
    with opened(quiet=True) as memory:
        return _told(memory)


def _told(memory: Memory) -> Answer:
    from meritory.engine.observe.telemetry import kept

    consent = memory.services.store.consent(memory.scope.user)
    held = kept(memory.services.telemetry_file)
    opt_in = consent.opt_in if consent else None
    asked = consent.last_prompted_at if consent else None
    plain: dict[str, Any] = {
        "training_data_opt_in": opt_in,
        "install_date": moment_text(consent.install_date) if consent else None,
        "last_prompted_at": moment_text(asked) if asked else None,
        "file": str(held.file),
        "line_count": held.line_count,
        "size_bytes": held.size_bytes,
    }
    pairs = [
        ("telemetry", _STATES[opt_in]),
        ("installed", plain["install_date"] or "not started yet"),
        ("last asked", plain["last_prompted_at"] or "never"),
        ("file", f"{held.file} ({held.line_count} sessions, {held.size_bytes} bytes)"),
        ("what is kept", _PROMISE),
    ]
    return Answer(plain, [Fields(pairs)])


@command("show", "meritory telemetry show")
def show() -> Answer:
    """Show whether anything is kept, how much, and what a line looks like."""
    from meritory.engine.observe.telemetry import EXAMPLE, kept_lines

    with opened(quiet=True) as memory:
        answer = _told(memory)
        first = next(kept_lines(memory.services.telemetry_file), None)
    line = first or EXAMPLE
    head = "the first line:" if first else "a line would look like this:"
    blocks = [*answer.blocks, Lines(["", head, line])]
    return Answer({**answer.plain, "example": line}, blocks)


@command("on", "meritory telemetry on")
def on() -> Answer:
    """Keep numbers about judged sessions in a local file from now on."""
    return _answered(True)


@command("off", "meritory telemetry off --erase")
@click.option("--erase", "wants_erasure", is_flag=True, help="Also delete what was kept so far.")
def off(wants_erasure: bool) -> Answer:
    """Keep nothing from now on; it is never asked again."""
    from meritory.engine.observe.telemetry import erase, kept

    answer = _answered(False)
    with opened(quiet=True) as memory:
        file = memory.services.telemetry_file
        count = kept(file).line_count
        if wants_erasure:
            erase(file)
        elif count:
            note(
                f"{count} lines are still in {file}; `meritory telemetry off --erase` deletes them"
            )
    erased = count if wants_erasure else 0
    more = [Lines([f"{erased} lines deleted"])] if erased else []
    return Answer({**answer.plain, "erased": erased}, [*answer.blocks, *more])


def _answered(enabled: bool) -> Answer:
    from meritory.engine.observe import consent

    with opened(quiet=True) as memory:
        consent.answer(memory.services, memory.scope.user, enabled)
    line = (
        f"telemetry is {'on' if enabled else 'off'}; {_PROMISE if enabled else 'nothing is kept'}"
    )
    return Answer({"training_data_opt_in": enabled}, [Lines([line])])


@command("export", "meritory telemetry export numbers.jsonl")
@click.argument("file")
def export(file: str) -> Answer:
    """Copy all that was kept into FILE, which must not exist yet."""
    from meritory.engine.observe.telemetry import kept_lines

    target = Path(file)
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{target} cannot be made: {why}", hint="name a file that does not exist yet"
        ) from error
    with opened(quiet=True) as memory, open(descriptor, "w", encoding="utf-8") as held:
        count = sum(
            held.write(f"{line}\n") > 0 for line in kept_lines(memory.services.telemetry_file)
        )
    line = f"copied {count} lines to {target}"
    return Answer({"file": str(target.absolute()), "line_count": count}, [Lines([line])])


for _command in (show, on, off, export):
    telemetry.add_command(_command)
