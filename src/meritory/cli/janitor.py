"""Commands about upkeep: what the weekly sweep and retention did, would do, and its undo."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, handles, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import clock_text
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text

if TYPE_CHECKING:
    from meritory.engine.quality.janitor import SweepPlan
    from meritory.engine.quality.maintenance import JobLook

LIST_LIMIT, LIST_LIMIT_MAX = 100, 5_000
_COLUMNS = (
    Column("id", "cyan"),
    Column("would"),
    Column("provenance"),
    Column("project", "magenta"),
    Column("why", wraps=True),
    Column("content", wraps=True),
)


@click.group(
    "janitor",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory janitor --dry-run\n",
)
@click.option("--dry-run", is_flag=True, help="List what a sweep would do now, and why.")
@click.pass_context
def janitor(ctx: click.Context, dry_run: bool) -> None:
    """Show the upkeep: what is demoted for never having been of use, and what is erased as old.

    The daemon sweeps once a week and erases once a day. A memory is demoted when sessions that may
    see it went on for months and none was shown it; a break counts for nothing.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_dry_run(LIST_LIMIT) if dry_run else _status(), current_flags(), taken_notes())


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
janitor.params += global_options(hidden=True)


def _dry_run(limit: int) -> Answer:
    from meritory.engine.quality import janitor as sweeping
    from meritory.engine.quality import retention

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        found = sweeping.plan(services, user)
        erased = retention.due(services, user)
        ids = handles(memory, (one.memory.id for one in found.due[:limit]))
    if not found.due:
        note(f"none of {found.looked_at} memories is due to be demoted")
    if found.is_cut or len(found.due) > limit:
        more = " and more" if found.is_cut else ""
        note(f"{len(found.due)}{more} are due, of which {min(limit, len(found.due))} are shown")
    rows = [
        (
            ids[one.memory.id],
            one.fate,
            one.memory.provenance,
            one.memory.project or "",
            one.reason,
            one.memory.content,
        )
        for one in found.due[:limit]
    ]
    blocks: list[Block] = [Table(_COLUMNS, rows), Lines([""])] if rows else []
    blocks.append(Fields([("would be erased as old", _erased_text(erased))]))
    return Answer({"results": _due_plain(found, limit), **_cut(found), "erase": erased}, blocks)


def _due_plain(found: SweepPlan, limit: int) -> list[dict[str, Any]]:
    return [
        {
            "id": one.memory.id,
            "fate": one.fate,
            "provenance": one.memory.provenance,
            "project": one.memory.project,
            "content": one.memory.content,
            "demotion": one.memory.demotion,
            "idle_since": moment_text(one.idle_since),
            "active_months": one.active_months,
            "reason": one.reason,
        }
        for one in found.due[:limit]
    ]


def _cut(found: SweepPlan) -> dict[str, Any]:
    return {"due": len(found.due), "looked_at": found.looked_at, "is_cut": found.is_cut}


def _erased_text(erased: Any) -> str:
    return ", ".join(f"{many} {what}" for what, many in erased.items()) or "nothing: all is kept"


def _status() -> Answer:
    from meritory.engine.quality import maintenance

    with opened(quiet=True) as memory:
        found = maintenance.status(memory.services, memory.scope.user)
        policy = memory.services.policy.janitor
    if not policy.enabled:
        note("the janitor is switched off: janitor.enabled")
    pairs = [
        ("sweep of this week", _job_text(found.janitor)),
        ("erasing of today", _job_text(found.retention)),
        ("demoted so far", str(found.demoted)),
        ("forgotten so far", str(found.forgotten)),
        ("erased so far", _erased_text(found.erased) if found.erased else "nothing"),
        (
            "demoted after",
            f"{policy.user_stated_months} active months (user_stated), "
            f"{policy.episode_summary_months} (episode_summary), "
            f"{policy.assistant_derived_months} (assistant_derived)",
        ),
        ("then forgotten", "yes" if policy.cull else "no"),
    ]
    note("`meritory janitor --dry-run` lists what the next sweep would do")
    plain = {
        "enabled": policy.enabled,
        "cull": policy.cull,
        "janitor": _job_plain(found.janitor),
        "retention": _job_plain(found.retention),
        "demoted": found.demoted,
        "forgotten": found.forgotten,
        "erased": dict(found.erased),
    }
    return Answer(plain, [Fields(pairs)])


def _job_text(look: JobLook) -> str:
    when = f", {clock_text(look.finished_at)}" if look.finished_at else ""
    error = f": {look.error}" if look.error else ""
    return f"{look.key}: {look.state}{when}{error}"


def _job_plain(look: JobLook) -> dict[str, Any]:
    return {
        "key": look.key,
        "state": look.state,
        "finished_at": _moment(look.finished_at),
        "error": look.error,
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else moment_text(at)


@command("run", "meritory janitor run --dry-run")
@click.option("--dry-run", is_flag=True, help="Only list what would be done, and why.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_LIMIT_MAX),
    default=LIST_LIMIT,
    show_default=True,
    help="How many to list at most.",
)
def run(dry_run: bool, limit: int) -> Answer:
    """Sweep now, and erase what is too old.

    `meritory janitor undo` takes a sweep back; what was erased as old is gone for good.
    """
    if dry_run:
        return _dry_run(limit)
    from meritory.engine.quality import janitor as sweeping
    from meritory.engine.quality import retention

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        done = sweeping.run_now(services, memory.works.runner, user)
        erased = retention.erase(services, user)
    if done.demoted or done.forgotten:
        note("`meritory janitor undo` takes all of it back, `meritory undo ID` one of them")
    pairs = [
        ("demoted", str(done.demoted)),
        ("forgotten", str(done.forgotten)),
        ("erased as old", _erased_text(erased)),
    ]
    plain = {"demoted": done.demoted, "forgotten": done.forgotten, "erased": erased}
    return Answer(plain, [Fields(pairs)])


@command("undo", "meritory janitor undo")
def undo() -> Answer:
    """Take the latest sweep back, all of it.

    Again goes further back. What was changed since stays, and nothing of it is due again before
    its whole time has passed anew.
    """
    from meritory.engine.quality import janitor as sweeping

    with opened(quiet=True) as memory:
        week, count = sweeping.undo_sweep(memory.services, memory.scope.user)
    lines = [f"{count} memories are as they were before the sweep of {week}"]
    return Answer({"week": week, "restored": count}, [Lines(lines)])


@command("status", "meritory janitor status")
def status() -> Answer:
    """Show what the sweep of this week and the erasing of today did."""
    return _status()


for _command in (run, undo, status):
    janitor.add_command(_command)
