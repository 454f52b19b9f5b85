"""Commands about the program itself: config, completion."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from meritory.cli.context import current_home, current_settings
from meritory.cli.options import HELP_NAMES, command
from meritory.cli.output import Answer, Column, Lines, Table

SHELLS = ("bash", "zsh", "fish")


@click.group(
    "config",
    context_settings={"help_option_names": list(HELP_NAMES)},
    epilog="\b\nExample:\n  meritory config show\n",
)
def config() -> None:
    """Show the settings and where they come from."""


@command("show", "meritory config show --json")
def config_show() -> Answer:
    """Show every setting with its value and where that comes from; secrets are masked."""
    from meritory.settings import SETTINGS
    from meritory.settings.home import CONFIG_NAME
    from meritory.settings.value import MASK

    settings = current_settings()
    texts = settings.shown()
    results: list[dict[str, Any]] = []
    for setting in SETTINGS:
        value = settings.value(setting.name)
        results.append(
            {
                "id": setting.name,
                "value": (MASK if value else "") if setting.secret else value,
                "source": settings.origins[setting.name],
                "variable": setting.variable,
            }
        )
    columns = (Column("setting", "cyan"), Column("value", wraps=True), Column("from", "dim"))
    rows = [(item["id"], texts[item["id"]] or '""', item["source"]) for item in results]
    file = settings.home / CONFIG_NAME
    plain = {"home": str(settings.home), "config_file": str(file), "results": results}
    return Answer(plain, [Table(columns, rows), Lines(["", f"config file: {file}"])])


@command("path", "meritory config path")
def config_path() -> Answer:
    """Print the path of the config file, whether or not it exists."""
    from meritory.settings.home import CONFIG_NAME

    file = current_home() / CONFIG_NAME
    return Answer({"path": str(file), "exists": file.is_file()}, [Lines([str(file)])])


config.add_command(config_show)
config.add_command(config_path)


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

    Put the line of your shell below into its start-up file; new windows complete commands,
    options and their choices from then on.
    """
    from meritory.cli.app import APP

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    made = found(APP, {}, "meritory", "_MERITORY_COMPLETE")
    # Not `source()`: for bash it would start one to ask for its version.
    script = made.source_template % made.source_vars()
    return Answer({"shell": shell, "script": script}, [Lines([script])])
