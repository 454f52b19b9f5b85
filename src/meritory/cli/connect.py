"""Commands that put Meritory into the agents people already use, and take it out again."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, current_home, demand_yes, environment
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Lines
from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.harness import HARNESS_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meritory.connect.plan import ConnectPlan

    Prepare = Callable[[str, Path, Mapping[str, str]], ConnectPlan]


# As in meritory.connect, which is only loaded when it is needed; a test compares them.


@command(
    "connect",
    """
    meritory connect claude-code
    meritory connect --all --dry-run
    """,
)
@click.argument("harness", type=click.Choice(HARNESS_NAMES), required=False)
@click.option("--all", "everything", is_flag=True, help="Every harness found on this machine.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--plugin", is_flag=True, help="Say how to install it as a plugin (claude-code).")
@click.option(
    "--hide-ratings", is_flag=True, help="Take the line with ratings off the screen (claude-code)."
)
def connect(harness: str | None, everything: bool, dry_run: bool, yes: bool, **own: bool) -> Answer:
    """Put Meritory into an agent's own settings: hooks, and a server of tools.

    Shows every change before it is made and keeps a copy of each file. What others put there
    stays as it is, and `meritory disconnect` gives the files back as they were.
    """
    from meritory.connect.plan import is_found, prepare_connect

    _refuse_elsewhere(harness, own)
    if own["plugin"]:
        return _plugin()
    home, env = current_home(), environment()
    names = _named(harness, everything, lambda name: is_found(name, home, env))
    prepare = partial(prepare_connect, hides_ratings=own["hide_ratings"])
    plans, refused = _prepared(names, _writable(prepare, dry_run), home, env)
    return _carry_out(plans, refused, dry_run=dry_run, yes=yes)


@command(
    "disconnect",
    """
    meritory disconnect claude-code
    meritory disconnect --all --yes
    """,
)
@click.argument("harness", type=click.Choice(HARNESS_NAMES), required=False)
@click.option("--all", "everything", is_flag=True, help="Every harness that is connected.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def disconnect(harness: str | None, everything: bool, dry_run: bool, yes: bool) -> Answer:
    """Take Meritory out of an agent's settings again.

    A file that was not changed since is given back to the byte; of one that was, only what is
    Meritory's is taken out. Memories are kept.
    """
    from meritory.connect.plan import is_connected, prepare_disconnect

    home, env = current_home(), environment()
    names = _named(harness, everything, lambda name: is_connected(name, home, env))
    plans, refused = _prepared(names, _writable(prepare_disconnect, dry_run), home, env)
    return _carry_out(plans, refused, dry_run=dry_run, yes=yes)


def _refuse_elsewhere(harness: str | None, own: Mapping[str, bool]) -> None:
    """Refuses options of Claude Code's for others."""
    for name, is_given in own.items():
        if is_given and harness != "claude-code":
            option = "--" + name.replace("_", "-")
            raise InputError(
                f"{option} is for claude-code", hint=f"`meritory connect claude-code {option}`"
            )


def _writable(prepare: Prepare, dry_run: bool) -> Prepare:
    """The same, but what could not be written is refused, unless it is only to be shown."""

    def checked(name: str, home: Path, env: Mapping[str, str]) -> ConnectPlan:
        plan = prepare(name, home, env)
        if not dry_run:
            plan.check_writable()
        return plan

    return checked


def _named(
    harness: str | None, everything: bool, is_meant: Callable[[str], bool]
) -> tuple[str, ...]:
    if everything == (harness is not None):
        raise InputError(
            "name one harness, or say --all", hint=f"one of {', '.join(HARNESS_NAMES)}"
        )
    if harness is not None:
        return (harness,)
    return tuple(name for name in HARNESS_NAMES if is_meant(name))


def _prepared(
    names: tuple[str, ...],
    prepare: Prepare,
    home: Path,
    env: Mapping[str, str],
) -> tuple[list[ConnectPlan], list[tuple[str, MeritoryError]]]:
    """The plans, and what was refused; one alone that is refused ends the command."""
    plans: list[ConnectPlan] = []
    refused: list[tuple[str, MeritoryError]] = []
    for name in names:
        try:
            plans.append(prepare(name, home, env))
        except MeritoryError as error:
            if len(names) == 1:
                raise
            refused.append((name, error))
    return plans, refused


def _carry_out(
    plans: list[ConnectPlan], refused: list[tuple[str, MeritoryError]], *, dry_run: bool, yes: bool
) -> Answer:
    from meritory.domain.world import World

    real = [plan for plan in plans if plan.is_real]
    diff = [line for plan in real for change in plan.changes for line in change.diff()]
    asks = bool(real) and not dry_run
    if asks and not yes:
        if not current_flags().as_json:
            _show(diff)
        titles = ", ".join(plan.title for plan in real)
        deed = "Disconnect" if real[0].disconnects else "Connect"
        demand_yes(f"{deed} {titles}?", yes=False)
    copies: dict[Path, Path] = {}
    now = World().now()
    for plan in real if asks else ():
        copies |= plan.apply(now)
    results = [_result(plan, copies, dry_run=dry_run) for plan in plans]
    results += [_refusal(name, error) for name, error in refused]
    # What was asked about has been shown already.
    blocks: list[Block] = [] if asks and not yes else [Lines(diff)]
    blocks += [Lines(_told(result)) for result in results]
    if not results:
        blocks.append(Lines(["no harness to do that for; `meritory doctor` says what is here"]))
    return Answer({"dry_run": dry_run, "results": results}, blocks, 1 if refused else 0)


def _show(lines: list[str]) -> None:
    from meritory.cli.render import show_answer

    show_answer(Answer({}, [Lines(lines)]), current_flags(), ())


def _result(plan: ConnectPlan, copies: dict[Path, Path], *, dry_run: bool) -> dict[str, Any]:
    state = "disconnected" if plan.disconnects else "connected"
    files = [
        {
            "file": str(change.path),
            "change": _kind(change.before, change.after),
            "backup": str(copies[change.path]) if change.path in copies else None,
            "diff": "\n".join(change.diff()),
        }
        for change in plan.changes
    ]
    return {
        "id": plan.harness,
        "title": plan.title,
        "state": f"would be {state}" if dry_run and plan.is_real else state,
        "changed": plan.is_real and not dry_run,
        "files": files,
        "remarks": list(plan.notes),
    }


def _kind(before: bytes | None, after: bytes | None) -> str:
    if before == after:
        return "none"
    return "created" if before is None else "removed" if after is None else "changed"


def _refusal(name: str, error: MeritoryError) -> dict[str, Any]:
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    return {"id": name, "title": name, "state": "refused", "changed": False, "error": told}


def _told(result: dict[str, Any]) -> list[str]:
    if "error" in result:
        error = result["error"]
        hint = [f"  {error['hint']}"] if error["hint"] else []
        return [f"{result['id']}: refused: {error['message']}", *hint]
    is_news = any(file["change"] != "none" for file in result["files"])
    lines = [f"{result['title']}: {result['state']}" + ("" if is_news else ", nothing to change")]
    for file in result["files"]:
        if file["change"] != "none":
            copy = f" (copy: {file['backup']})" if file["backup"] else ""
            lines.append(f"  {file['change']} {file['file']}{copy}")
    return lines + [f"  {remark}" for remark in result["remarks"]]


def _plugin() -> Answer:
    """Where the plugin for Claude Code is, and the commands that install it."""
    import shutil

    from meritory.connect.plan import plugin_folder

    folder = plugin_folder("claude-code")
    steps = [
        f"claude plugin marketplace add {folder}",
        "claude plugin install meritory@meritory",
    ]
    lines = ["Instead of `meritory connect claude-code`, not besides it:", *steps]
    if shutil.which("meritory", path=os.environ.get("PATH")) is None:
        lines.append("The plugin runs `meritory`, which must be on your PATH and is not yet.")
    return Answer({"folder": str(folder), "commands": steps}, [Lines(lines)])
