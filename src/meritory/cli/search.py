"""Commands that find memories: recall, list, show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import environment, handles, note, opened
from meritory.cli.options import command, scope_options
from meritory.cli.output import Answer, Block, Column, Fields, Table
from meritory.cli.records import ID_COLUMN, clock_text, memory_fields, memory_table
from meritory.domain.codec import moment_text, record_to_dict
from meritory.domain.memory import KINDS
from meritory.settings.home import URL_VARIABLE

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import Recalled


LIST_LIMIT, LIST_LIMIT_MAX, RECALL_LIMIT_MAX = 50, 10_000, 1_000
_LOOK_AROUND = 1_000
_NAMED_LIMIT = 3
_LEGS = ("cosine", "text", "hybrid", "weight")
_COMPOSITE = ("composite", "relevance", "recency", "usefulness", "confidence", "frequency")


@command("recall", 'meritory recall "when do we deploy?" --project heron')
@click.argument("query")
@click.option(
    "--limit",
    type=click.IntRange(1, RECALL_LIMIT_MAX),
    help="How many at most; 10 by default.",
)
@click.option("--explain", is_flag=True, help="Show every number behind each score.")
@scope_options
def recall(
    query: str, limit: int | None, explain: bool, project: str | None, agent: str | None
) -> Answer:
    """Find the memories that answer a query best."""
    with opened(project, agent) as memory:
        found = memory.recall(query, limit, explain)
        if not found:
            note("nothing found")
            note_elsewhere(memory)
        shown_ids = handles(memory, (hit.id for hit in found))
        now = memory.services.world.now()
    blocks: list[Block] = []
    if found:
        records, scores = [hit.memory for hit in found], [hit.score for hit in found]
        blocks.append(memory_table(records, shown_ids, now, scores=scores))
    if found and explain:
        blocks += [_parts_table(found, shown_ids, names) for names in (_LEGS, _COMPOSITE)]
    return Answer({"results": [_hit_plain(hit) for hit in found]}, blocks)


def _hit_plain(hit: Recalled) -> dict[str, Any]:
    parts = {} if hit.parts is None else {"parts": asdict(hit.parts)}
    return {**record_to_dict(hit.memory), "score": hit.score, **parts}


def _parts_table(found: list[Recalled], ids: dict[str, str], names: tuple[str, ...]) -> Table:
    rows = [(ids[hit.id], *(f"{getattr(hit.parts, name):.6f}" for name in names)) for hit in found]
    return Table((ID_COLUMN, *map(Column, names)), rows)


def note_elsewhere(memory: Memory) -> None:
    """Says where else there would be something to find."""
    for line in elsewhere(memory):
        note(line)


def elsewhere(memory: Memory) -> Iterator[str]:
    """Where else there would be something to find, in words."""
    scope = memory.scope
    around = memory.page(_LOOK_AROUND, everywhere=True)
    if not around:
        yield "there are no memories yet: `meritory remember TEXT` stores one"
        if environment().get(URL_VARIABLE, "").strip():
            yield f"{URL_VARIABLE} is for agents and programs; commands work on the local store"
    for word in ("project", "agent"):
        other = {getattr(r, word) for r in around} - {None, getattr(scope, word)}
        if other:
            named = sorted(other)[:_NAMED_LIMIT]
            more = ", ..." if len(other) > _NAMED_LIMIT else ""
            yield f"other {word}s hold memories: add --{word} NAME ({', '.join(named)}{more})"


@command("list", "meritory list --kind decision --all-projects")
@click.option("--kind", type=click.Choice(KINDS), help="Only this sort of claim.")
@click.option("--tag", metavar="WORD", help="Only memories with this tag.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_LIMIT_MAX),
    default=LIST_LIMIT,
    show_default=True,
    help="How many at most.",
)
@click.option("--after", metavar="ID", help="Go on after this memory, the last of a page.")
@click.option("--all-projects", is_flag=True, help="Memories of all projects and agents.")
@click.option("--gone", is_flag=True, help="Also what was forgotten or superseded.")
@scope_options
def list_memories(
    kind: str | None,
    tag: str | None,
    limit: int,
    after: str | None,
    all_projects: bool,
    gone: bool,
    project: str | None,
    agent: str | None,
) -> Answer:
    """List memories, newest first."""
    from meritory.engine.memories.validate import checked_tags

    wanted_tag = next(iter(checked_tags([tag])), None) if tag is not None else None
    with opened(project, agent) as memory:
        records = memory.page(
            limit,
            kind=kind,
            tag=wanted_tag,
            after=memory.get(after).id if after is not None else None,
            everywhere=all_projects,
            include_gone=gone,
        )
        shown_ids = handles(memory, (record.id for record in records))
        if not records:
            note("nothing found")
            if not all_projects:
                note_elsewhere(memory)
        now = memory.services.world.now()
    following = records[-1].id if len(records) == limit else None
    if following:
        note(f"there may be more: add --after {shown_ids[following]}")
    plain = {"results": [record_to_dict(record) for record in records], "next": following}
    return Answer(plain, [memory_table(records, shown_ids, now)] if records else [])


@command("show", "meritory show 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def show(memory_id: str) -> Answer:
    """Show one memory with all its fields.

    ID may be the first characters of an id, as long as they name one memory only.
    """
    with opened() as memory:
        record = memory.get(memory_id)
        found = memory.services.store.retrievals(record.user, [record.id]).get(record.id)
    plain: dict[str, Any] = {"id": record.id, "memory": record_to_dict(record)}
    plain["retrieval_count"] = found.count if found else 0
    plain["last_retrieved"] = moment_text(found.last_at) if found else None
    fields = memory_fields(record)
    if found is not None:
        told = f"by {found.count} searches, last {clock_text(found.last_at)}"
        fields = Fields([*fields.pairs, ("found", told)])
    return Answer(plain, [fields])
