"""Commands that agents' clients run: hook, mcp. People only read their help."""

from __future__ import annotations

import click

from meritory.cli.context import current_flags
from meritory.cli.options import command
from meritory.domain.harness import HOOK_HARNESS_NAMES


@command("hook", "meritory hook --harness claude-code < event.json")
@click.option(
    "--harness", required=True, metavar="NAME", help=f"One of {', '.join(HOOK_HARNESS_NAMES)}."
)
@click.option("--event", metavar="NAME", help="The event, for clients that do not say it.")
@click.option("--hide-ratings", is_flag=True, help="Take the rating line off the screen.")
def hook(harness: str, event: str | None, hide_ratings: bool) -> None:
    """Answer one event of an agent's client.

    Reads the client's JSON from stdin and prints what the client is to show the agent, or nothing.
    Always ends with 0 and never writes to stderr, whatever happens. MERITORY_HOOK=off switches it
    off.
    """
    from meritory.hook import main as hooking

    given = ["--harness", harness, "--event", event or "", *_home()]
    hooking.run([*given, "--hide-ratings"] if hide_ratings else given)


@command("mcp", "meritory mcp")
@click.option("--project", metavar="NAME", help="The project, instead of the working directory's.")
@click.option("--agent", metavar="NAME", help="Only what this agent may see.")
@click.option("--harness", metavar="NAME", help="The client that runs it.")
def mcp(project: str | None, agent: str | None, harness: str | None) -> int:
    """Serve the memory tools to an agent over stdio (Model Context Protocol)."""
    from meritory.mcp import stdio

    named = {"--project": project, "--agent": agent, "--harness": harness}
    named["--user"] = current_flags().user
    given = [word for name, value in named.items() if value for word in (name, value)]
    return stdio.main([*given, *_home()])


for option in (*hook.params, *mcp.params):
    # Neither of them prints tables.
    if isinstance(option, click.Option) and option.name == "as_json":
        option.hidden = True


def _home() -> list[str]:
    home = current_flags().home
    return ["--home", str(home)] if home else []
