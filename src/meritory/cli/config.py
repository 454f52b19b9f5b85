"""Commands about the program itself: config, completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from meritory.cli.command import command, group
from meritory.cli.context import current_home, current_settings
from meritory.cli.output import Answer, Column, Lines, Table, line_answer

SHELLS = ("bash", "zsh", "fish")


@group("config", "meritory config show", invoke_without_command=False)
def config() -> None:
    """Show the settings and where they come from."""


@command("show", "meritory config show --json", config)
def config_show() -> Answer:
    """Show every setting with its value and source; secrets are masked."""
    from meritory.settings import SETTINGS
    from meritory.settings.home import CONFIG_NAME
    from meritory.settings.value import MASK

    settings = current_settings()
    texts, file = settings.shown(), settings.home / CONFIG_NAME
    rows, results = [], []
    for setting in SETTINGS:
        value, source = settings.value(setting.name), settings.origins[setting.name]
        rows.append((setting.name, texts[setting.name] or '""', source))
        results.append(
            {
                "id": setting.name,
                "value": (MASK if value else "") if setting.secret else value,
                "source": source,
                "variable": setting.variable,
            }
        )
    columns = (Column("setting", "cyan"), Column("value", wraps=True), Column("from", "dim"))
    plain = {"home": str(settings.home), "config_file": str(file), "results": results}
    return Answer(plain, [Table(columns, rows), Lines(["", f"config file: {file}"])])


@command("path", "meritory config path", config)
def config_path() -> Answer:
    """Print the path of the config file, whether or not it exists."""
    from meritory.settings.home import CONFIG_NAME

    file = current_home() / CONFIG_NAME
    return line_answer(str(file), path=str(file), exists=file.is_file())


@command(
    "completion",
    """
    eval "$(meritory completion bash)"                                      # in ~/.bashrc
    eval "$(meritory completion zsh)"                                       # in ~/.zshrc
    meritory completion fish > ~/.config/fish/completions/meritory.fish
    """,
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
    return line_answer(script, shell=shell, script=script)
