"""Commands that connect agents: connect, disconnect, uninstall; hook and mcp, which agents run."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, current_home, environment, require_yes, yes_option
from meritory.cli.output import Answer, current_flags, is_terminal, print_blocks
from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.harness import BY_NAME, HARNESS_NAMES, HARNESSES, HOOK_HARNESS_NAMES
from meritory.domain.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from meritory.connect.plan import ConnectPlan


@command("connect", "meritory connect claude-code", "meritory connect --all --dry-run")
@click.argument("harness", type=click.Choice(HARNESS_NAMES), required=False)
@click.option("--all", "everything", is_flag=True, help="Every harness found on this machine.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@yes_option
@click.option("--plugin", is_flag=True, help="Show how to install the plugin (claude-code).")
@click.option("--hide-ratings", is_flag=True, help="Hide the line with ratings (claude-code).")
@click.option(
    "--ask-to-keep",
    is_flag=True,
    help="Ask the agent once in a long session what is worth keeping (claude-code, codex).",
)
def connect(
    harness: str | None,
    everything: bool,
    dry_run: bool,
    yes: bool,
    plugin: bool,
    hide_ratings: bool,
    ask_to_keep: bool,
) -> Answer:
    """Add Meritory to the settings of an agent: hooks and a server of tools.

    Shows every change before making it and keeps a copy of each file. Other entries in these files
    stay, and `meritory disconnect` restores the files.
    """
    from meritory.cli.config import ask_for_consent
    from meritory.connect.plan import is_found, plugin_folder, prepare_connect
    from meritory.settings.home import URL_VARIABLE

    for option, is_given in (("--plugin", plugin), ("--hide-ratings", hide_ratings)):
        if is_given and harness != "claude-code":
            raise InputError(
                f"{option} works with claude-code only",
                hint=f"`meritory connect claude-code {option}`",
            )
    if ask_to_keep and (harness is None or plugin or not BY_NAME[harness].asks_at_reply):
        able = [one.name for one in HARNESSES if one.asks_at_reply]
        raise InputError(
            f"--ask-to-keep works with {' and '.join(able)} only, and not with the plugin",
            hint=f"`meritory connect {able[0]} --ask-to-keep`",
        )
    if plugin:
        folder = plugin_folder("claude-code")
        steps = [
            f"claude plugin marketplace add {folder}",
            "claude plugin install meritory@meritory",
        ]
        lines = ["Use these instead of `meritory connect claude-code`, not in addition:", *steps]
        if shutil.which("meritory", path=os.environ.get("PATH")) is None:
            lines.append("The plugin runs `meritory`, which is not on your PATH yet.")
        return Answer({"folder": str(folder), "commands": steps}, *lines)
    home, env = current_home(), environment()
    names = _chosen(harness, everything, lambda name: is_found(name, home, env))
    answer = _change(
        names,
        lambda name: prepare_connect(
            name, home, env, hides_ratings=hide_ratings, asks_to_keep=ask_to_keep
        ),
        dry_run=dry_run,
        yes=yes,
    )
    # With MERITORY_URL the store is on another machine, and its answer is given there.
    is_quiet = dry_run or yes or current_flags().as_json or bool(env.get(URL_VARIABLE))
    if not is_quiet and is_terminal(sys.stdin):
        # Neither Ctrl-C nor a store that cannot be opened undoes the connection.
        with contextlib.suppress(MeritoryError, click.Abort):
            ask_for_consent()
    return answer


@command("disconnect", "meritory disconnect claude-code", "meritory disconnect --all --yes")
@click.argument("harness", type=click.Choice(HARNESS_NAMES), required=False)
@click.option("--all", "everything", is_flag=True, help="Every harness that is connected.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@yes_option
def disconnect(harness: str | None, everything: bool, dry_run: bool, yes: bool) -> Answer:
    """Remove Meritory from the settings of an agent.

    A file that was not changed since is restored to the byte; from any other only the entries of
    Meritory are removed. Memories are kept.
    """
    from meritory.connect.plan import is_connected, prepare_disconnect

    home, env = current_home(), environment()
    names = _chosen(harness, everything, lambda name: is_connected(name, home, env))
    return _change(
        names, lambda name: prepare_disconnect(name, home, env), dry_run=dry_run, yes=yes
    )


@command("uninstall", "meritory uninstall", "meritory uninstall --dry-run")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@yes_option
def uninstall(dry_run: bool, yes: bool) -> Answer:
    """Disconnect all agents, stop the daemon, and say what stays.

    Deletes no memory. The last lines name the data folder and the commands that remove the rest.
    """
    from meritory.api import client
    from meritory.connect.plan import is_connected, prepare_disconnect

    home, env = current_home(), environment()
    names = [name for name in HARNESS_NAMES if is_connected(name, home, env)]
    answer = _change(
        names, lambda name: prepare_disconnect(name, home, env), dry_run=dry_run, yes=yes
    )
    pid = client.holder_pid(home) if dry_run else client.stop(home)
    verb = "would be stopped" if dry_run else "stopped"
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    disconnected = list(answer.blocks) if names else ["no agent is connected"]
    return Answer(
        {**answer.plain, "stopped": bool(pid) and not dry_run, "home": str(home), "bytes": size},
        *disconnected,
        f"daemon: {f'process {pid} {verb}' if pid else 'none runs'}",
        f"your memories stay in {home} ({size / 1e6:.1f} MB); each command below is yours to run:",
        "  meritory export --all > memories.jsonl   # a copy that any version can import",
        f"  rm -r {shlex.quote(str(home))}",
        "  pip uninstall meritory",
        code=answer.code,
    )


def _chosen(harness: str | None, everything: bool, applies: Callable[[str], bool]) -> list[str]:
    """Return the named harness, or with `--all` every one to which the command applies."""
    if everything == (harness is not None):
        raise InputError(
            "name one harness, or use --all", hint=f"one of {', '.join(HARNESS_NAMES)}"
        )
    return [harness] if harness is not None else [name for name in HARNESS_NAMES if applies(name)]


def _change(
    names: list[str], prepare: Callable[[str], ConnectPlan], *, dry_run: bool, yes: bool
) -> Answer:
    """Prepare, show, confirm and apply the changes of every harness."""
    plans: list[ConnectPlan] = []
    refused: list[dict[str, Any]] = []
    for name in names:
        try:
            plan = prepare(name)
            if not dry_run:
                plan.check_writable()
            plans.append(plan)
        except MeritoryError as error:
            if len(names) == 1:
                raise
            cause = {"code": error.code, "message": error.message, "hint": error.hint}
            refused.append(
                {"id": name, "title": name, "state": "refused", "changed": False, "error": cause}
            )
    real = [plan for plan in plans if plan.is_real]
    diff = [line for plan in real for change in plan.changes for line in change.diff()]
    applies = bool(real) and not dry_run
    if applies and not yes:
        if not current_flags().as_json:
            print_blocks(diff)
        titles = ", ".join(plan.title for plan in real)
        verb = "Disconnect" if real[0].disconnects else "Connect"
        require_yes(f"{verb} {titles}?", yes=False)
    copies: dict[Path, Path] = {}
    now = World().now()
    for plan in real if applies else ():
        copies |= plan.apply(now)
    results = [_result(plan, copies, dry_run=dry_run) for plan in plans] + refused
    # The diff was already printed above the question.
    lines = [] if applies and not yes else diff
    for result in results:
        if reason := result.get("error"):
            lines.append(f"{result['id']}: refused: {reason['message']}")
            lines += [f"  {reason['hint']}"] if reason["hint"] else []
            continue
        changed = [file for file in result["files"] if file["change"] != "none"]
        state = result["state"] if changed else f"{result['state']}, nothing to change"
        lines.append(f"{result['title']}: {state}")
        for file in changed:
            copy = f" (copy: {file['backup']})" if file["backup"] else ""
            lines.append(f"  {file['change']} {file['file']}{copy}")
        lines += [f"  {remark}" for remark in result["remarks"]]
    if not results:
        lines.append("no matching harness; `meritory doctor` lists those on this machine")
    return Answer({"dry_run": dry_run, "results": results}, *lines, code=1 if refused else 0)


def _result(plan: ConnectPlan, copies: dict[Path, Path], *, dry_run: bool) -> dict[str, Any]:
    state = "disconnected" if plan.disconnects else "connected"
    files = []
    for change in plan.changes:
        kind = "created" if change.before is None else "changed"
        kind = "removed" if change.after is None else kind
        files.append(
            {
                "file": str(change.path),
                "change": "none" if change.before == change.after else kind,
                "backup": str(copies[change.path]) if change.path in copies else None,
                "diff": "\n".join(change.diff()),
            }
        )
    return {
        "id": plan.harness,
        "title": plan.title,
        "state": f"would be {state}" if dry_run and plan.is_real else state,
        "changed": plan.is_real and not dry_run,
        "files": files,
        "remarks": list(plan.notes),
    }


# -- commands that agents run ---------------------------------------------------------------


@command("hook", "meritory hook --harness claude-code < event.json")
@click.option(
    "--harness", required=True, metavar="NAME", help=f"One of {', '.join(HOOK_HARNESS_NAMES)}."
)
@click.option("--event", metavar="NAME", help="The event, for clients that do not send its name.")
@click.option("--hide-ratings", is_flag=True, help="Hide the line with ratings.")
@click.option("--ask-to-keep", is_flag=True, help="Let the agent be asked what is worth keeping.")
def hook(harness: str, event: str | None, hide_ratings: bool, ask_to_keep: bool) -> None:
    """Answer one event of an agent's client.

    Reads the client's JSON from stdin and prints what the client should show the agent, or nothing.
    Always exits with 0 and never writes to stderr. MERITORY_HOOK=off turns it off.
    """
    from meritory.hook import main as hook_main

    arguments = ["--harness", harness, "--event", event or "", *_home_option()]
    switches = {"--hide-ratings": hide_ratings, "--ask-to-keep": ask_to_keep}
    hook_main.run([*arguments, *(name for name, is_on in switches.items() if is_on)])


@command("mcp", "meritory mcp")
@click.option("--project", metavar="NAME", help="The project, instead of the working directory's.")
@click.option("--agent", metavar="NAME", help="Only memories that this agent may see.")
@click.option("--harness", metavar="NAME", help="The client that runs it.")
def mcp(project: str | None, agent: str | None, harness: str | None) -> int:
    """Serve the memory tools to an agent over stdio (Model Context Protocol)."""
    from meritory.mcp import stdio

    options = {"--project": project, "--agent": agent, "--harness": harness}
    options["--user"] = current_flags().user
    given = [word for name, value in options.items() if value for word in (name, value)]
    return stdio.main([*given, *_home_option()])


for option in (*hook.params, *mcp.params):
    # Neither of them prints tables.
    if isinstance(option, click.Option) and option.name == "as_json":
        option.hidden = True


def _home_option() -> list[str]:
    home = current_flags().home
    return ["--home", str(home)] if home else []
