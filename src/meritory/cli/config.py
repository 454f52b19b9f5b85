"""Commands about choices of the user: config, completion, telemetry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from meritory.cli.command import (
    command,
    current_home,
    current_settings,
    group,
    opened,
    opened_services,
)
from meritory.cli.output import Answer, Field, Fields, RecordView, note
from meritory.domain.errors import InputError
from meritory.settings.home import CONFIG_NAME

if TYPE_CHECKING:
    from meritory.api.memory import Memory

SHELLS = ("bash", "zsh", "fish")


@group("config", "meritory config show", invoke_without_command=False)
def config() -> None:
    """Show the settings and where they come from."""


@command("show", "meritory config show --json", parent=config)
def config_show() -> Answer:
    """Show every setting with its value and source; secrets are masked."""
    from meritory.settings import SETTINGS

    settings = current_settings()
    texts, file = settings.shown(), settings.home / CONFIG_NAME
    view = RecordView(
        Field("id", "setting", "name", style="cyan"),
        Field("", "value", lambda setting: texts[setting.name] or '""', wraps=True),
        Field(
            "value",
            read=lambda setting: (
                texts[setting.name] if setting.secret else settings.value(setting.name)
            ),
        ),
        Field("source", "from", lambda setting: settings.origins[setting.name], style="dim"),
        "variable",
    )
    results = [view.json(setting) for setting in SETTINGS]
    plain = {"home": str(settings.home), "config_file": str(file), "results": results}
    return Answer(plain, view.table(SETTINGS), "", f"config file: {file}")


@command("path", "meritory config path", parent=config)
def config_path() -> Answer:
    """Print the path of the config file, whether or not it exists."""
    file = current_home() / CONFIG_NAME
    return Answer({"path": str(file), "exists": file.is_file()}, str(file))


@command(
    "completion",
    'eval "$(meritory completion bash)"                                      # in ~/.bashrc',
    'eval "$(meritory completion zsh)"                                       # in ~/.zshrc',
    "meritory completion fish > ~/.config/fish/completions/meritory.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> Answer:
    """Print the completion script of a shell.

    Put the line for your shell below into its start-up file; new windows then complete commands,
    options and their choices.
    """
    from meritory.cli.app import APP

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    made = found(APP, {}, "meritory", "_MERITORY_COMPLETE")
    # Not `source()`: for bash it would start a bash to ask for its version.
    script = made.source_template % made.source_vars()
    return Answer({"shell": shell, "script": script}, script)


# -- telemetry --------------------------------------------------------------------------------

_STATES = {None: "not answered: nothing is kept", True: "on", False: "off: nothing is kept"}
_PROMISE = "numbers only (features, labels, ranks, counts), in this file; nothing is sent anywhere"


@group("telemetry", "meritory telemetry off --erase")
def telemetry() -> Answer:
    """Show or change whether session numbers are kept.

    Off until you turn it on. It keeps numbers, never text, prompts, replies, paths, names or ids,
    in a local file; this version sends nothing anywhere.
    """
    with opened(quiet=True) as memory:
        return _status(memory)


def _status(memory: Memory) -> Answer:
    from meritory.engine.observe.telemetry import kept

    consent = memory.services.store.consent(memory.scope.user)
    stored = kept(memory.services.telemetry_file)
    opt_in = consent.opt_in if consent else None
    plain = {
        "training_data_opt_in": opt_in,
        **RecordView("install_date last_prompted_at").json(consent),
        "file": str(stored.file),
        **RecordView("line_count size_bytes").json(stored),
    }
    pairs = [
        ("telemetry", _STATES[opt_in]),
        ("installed", plain["install_date"] or "not started yet"),
        ("last asked", plain["last_prompted_at"] or "never"),
        ("file", f"{stored.file} ({stored.line_count} sessions, {stored.size_bytes} bytes)"),
        ("content", _PROMISE),
    ]
    return Answer(plain, Fields(pairs))


@command("show", "meritory telemetry show", parent=telemetry)
def show() -> Answer:
    """Show whether numbers are kept, how many, and an example line."""
    from meritory.engine.observe.telemetry import EXAMPLE, kept_lines

    with opened(quiet=True) as memory:
        answer = _status(memory)
        first = next(kept_lines(memory.services.telemetry_file), None)
    line = first or EXAMPLE
    head = "the first line:" if first else "an example line:"
    return Answer({**answer.plain, "example": line}, *answer.blocks, "", head, line)


@command("on", "meritory telemetry on", parent=telemetry)
def on() -> Answer:
    """Keep numbers about judged sessions in a local file from now on."""
    from meritory.engine.observe.telemetry import answer

    with opened_services() as (services, user):
        answer(services, user, True)
    return Answer({"training_data_opt_in": True}, f"telemetry is on; {_PROMISE}")


@command("off", "meritory telemetry off --erase", parent=telemetry)
@click.option("--erase", "wants_erasure", is_flag=True, help="Also delete what was kept so far.")
def off(wants_erasure: bool) -> Answer:
    """Keep nothing from now on, and never ask again."""
    from meritory.engine.observe.telemetry import answer, erase, kept

    with opened_services() as (services, user):
        answer(services, user, False)
        file = services.telemetry_file
        count = kept(file).line_count
        if wants_erasure:
            erase(file)
        elif count:
            note(
                f"{count} lines are still in {file}; `meritory telemetry off --erase` deletes them"
            )
    erased = count if wants_erasure else 0
    lines = ["telemetry is off; nothing is kept"] + ([f"{erased} lines deleted"] if erased else [])
    return Answer({"training_data_opt_in": False, "erased": erased}, *lines)


def ask_for_consent() -> None:
    """Ask whether numbers may be kept, if the user has not answered yet."""
    from meritory.engine.observe.telemetry import answer

    with opened_services() as (services, user):
        consent = services.store.consent(user)
        if consent is None or consent.opt_in is None:
            question = f"Keep telemetry: {_PROMISE.replace('this file', 'a local file')}?"
            answer(services, user, click.confirm(question, err=True), is_asked=True)
            note("`meritory telemetry` shows it and changes the answer")


@command("export", "meritory telemetry export numbers.jsonl", parent=telemetry)
@click.argument("file")
def export(file: str) -> Answer:
    """Copy everything that was kept into FILE, which must not exist yet."""
    from meritory.engine.observe.telemetry import kept_lines

    target = Path(file)
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"cannot create {target}: {why}", hint="name a file that does not exist yet"
        ) from error
    with opened(quiet=True) as memory, open(descriptor, "w", encoding="utf-8") as out:
        count = sum(
            out.write(f"{line}\n") > 0 for line in kept_lines(memory.services.telemetry_file)
        )
    return Answer(
        {"file": str(target.absolute()), "line_count": count}, f"copied {count} lines to {target}"
    )
