"""`meritory proposals`: list, confirm and reject proposed pins and constraints."""

from __future__ import annotations

from collections.abc import Sequence

import click

from meritory.cli.command import command, group, handles, limit_option, opened, scope_options
from meritory.cli.memories import memory_table
from meritory.cli.output import Answer, note
from meritory.domain.codec import record_to_dict


@group("proposals", "meritory proposals confirm 01kx3f9qz2", default="list")
def proposals() -> None:
    """Review proposed pins and constraints.

    Only a person sets a pin or a constraint. What an agent, a session's transcript or a file asks
    for is stored as an ordinary memory and listed here.
    """


@command("list", "meritory proposals list --project heron", parent=proposals)
@limit_option()
@scope_options
def list_proposals(limit: int, project: str | None, agent: str | None) -> Answer:
    """List memories with a proposed pin or constraint, latest first."""
    with opened(project, agent) as memory:
        everywhere = project is None and agent is None
        records = memory.proposals(limit, everywhere=everywhere)
        ids = handles(memory, (record.id for record in records))
    if not records:
        note("there are no proposals")
    plain = {"results": [record_to_dict(record) for record in records]}
    return Answer(plain, *([memory_table(records, ids)] if records else []))


@command("confirm", "meritory proposals confirm 01kx3f9qz2", parent=proposals)
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
def confirm_proposals(memory_ids: tuple[str, ...]) -> Answer:
    """Accept proposals: each memory becomes a pin or a constraint."""
    return _decide(memory_ids, "confirm")


@command("reject", "meritory proposals reject 01kx3f9qz2", parent=proposals)
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
def reject_proposals(memory_ids: tuple[str, ...]) -> Answer:
    """Reject proposals: the memories stay as they are, and their texts propose no more."""
    return _decide(memory_ids, "reject")


def _decide(memory_ids: Sequence[str], verb: str) -> Answer:
    """Confirm or reject proposals; if an id is unknown, nothing is done."""
    with opened() as memory:
        ids = dict.fromkeys(memory.get(memory_id).id for memory_id in memory_ids)
        records = [getattr(memory, verb)(memory_id) for memory_id in ids]
        names = handles(memory, ids)
    note(f"`meritory undo {names[records[0].id]}` takes it back")
    plain = {"results": [record_to_dict(record) for record in records]}
    return Answer(plain, memory_table(records, names))
