"""Commands about extraction: what was not kept of finished sessions, and how to get it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import age
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text

if TYPE_CHECKING:
    from datetime import datetime

    from meritory.domain.quality import Refusal

_LIMIT, _LIMIT_MAX = 50, 10_000
_SHORT_CHARS = 12
_COLUMNS = (
    Column("id", "cyan"),
    Column("age", "dim"),
    Column("kind"),
    Column("text", wraps=True),
    Column("why not", wraps=True),
)


@click.group(
    "extraction",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory extraction restore 3f9a0c\n",
)
@click.pass_context
def extraction(ctx: click.Context) -> None:
    """List what was not kept of finished sessions.

    A session that ends is read for what the user said outright, and by a model where one is set.
    What would not help later, or cannot be proved, is put on this list with the reason.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_listing(_LIMIT, 0), current_flags(), taken_notes())


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
extraction.params += global_options(hidden=True)


def _listing(limit: int, offset: int) -> Answer:
    from meritory.engine.quality import refusals

    with opened(quiet=True) as memory:
        found = refusals.listing(memory.services, memory.scope.user, limit, offset)
        now = memory.services.world.now()
    if not found:
        note("nothing was refused")
    return Answer({"results": [_plain(one) for one in found]}, _table(found, now))


def _table(found: Sequence[Refusal], now: datetime) -> list[Block]:
    rows = [
        (one.id[:_SHORT_CHARS], age(now, one.at), one.kind, one.content, one.reason)
        for one in found
    ]
    return [Table(_COLUMNS, rows)] if rows else []


def _plain(refusal: Refusal) -> dict[str, Any]:
    return {
        "id": refusal.id,
        "at": moment_text(refusal.at),
        "agent": refusal.scope.agent,
        "project": refusal.scope.project,
        "session_key": refusal.session_key,
        "content": refusal.content,
        "kind": refusal.kind,
        "provenance": refusal.provenance,
        "origin": refusal.origin,
        "confidence": refusal.confidence,
        "turn": refusal.turn,
        "quote": refusal.quote,
        "reason": refusal.reason,
        "extractor": refusal.extractor,
        "memory_id": refusal.memory_id,
    }


@command("list", "meritory extraction list --limit 20")
@click.option(
    "--limit",
    type=click.IntRange(1, _LIMIT_MAX),
    default=_LIMIT,
    show_default=True,
    help="How many at most.",
)
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to pass over.")
def list_refusals(limit: int, offset: int) -> Answer:
    """List what was refused and not restored, latest first."""
    return _listing(limit, offset)


@command("show", "meritory extraction show 3f9a0c")
@click.argument("name", metavar="ID")
def show(name: str) -> Answer:
    """Show one refusal with the words it rests on."""
    from meritory.engine.quality import refusals

    with opened(quiet=True) as memory:
        refusal = refusals.show(memory.services, memory.scope.user, name)
    plain = _plain(refusal)
    pairs = [(field.replace("_", " "), str(value)) for field, value in plain.items() if value]
    return Answer(plain, [Fields(pairs)])


@command("restore", "meritory extraction restore 3f9a0c")
@click.argument("name", metavar="ID")
def restore(name: str) -> Answer:
    """Store what was refused after all.

    It keeps the standing it had: what an agent or a tool said is not the user's word by that, and
    `meritory confirm` vouches for it.
    """
    from meritory.engine.quality import refusals

    with opened() as memory:
        record = refusals.restore(memory.services, memory.scope.user, name)
    if record.trust == "untrusted":
        note(f"it is only found by search until `meritory confirm {record.id}`")
    plain = {"memory_id": record.id, "content": record.content, "kind": record.kind}
    return Answer(plain, [Lines([f"stored as {record.id}: {record.content}"])])


@command("run", "meritory extraction run 7f3c2a")
@click.argument("session_key", metavar="SESSION")
def run(session_key: str) -> Answer:
    """Read a finished session again, now and in this process.

    What it brought up before is not stored twice. Ends with 1 when that failed; `meritory jobs`
    says why.
    """
    from meritory.engine.quality import refusals
    from meritory.engine.quality.extraction import EXTRACT_JOB

    with opened() as memory:
        user = memory.scope.user
        refusals.again(memory.services, user, session_key)
        memory.drain()
        job = memory.services.store.job(user, EXTRACT_JOB, session_key)
    plain = {"session_key": session_key, "state": job.state, "error": job.error}
    told = "done" if job.state == "done" else f"{job.state}: {job.error or 'not run yet'}"
    return Answer(plain, [Lines([told])], 0 if job.state == "done" else 1)


for _command in (list_refusals, show, restore, run):
    extraction.add_command(_command)
