"""Commands that find memories: recall, list, show, entities, describe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, limit_option, note, scope_options
from meritory.cli.context import environment, handles, opened
from meritory.cli.output import (
    Answer,
    Block,
    Column,
    Field,
    Fields,
    Lines,
    RecordView,
    Table,
    age,
    clock_text,
    to_json,
)
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import NotFound
from meritory.domain.memory import KINDS, Entity, MemoryRecord
from meritory.settings.home import URL_VARIABLE

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import EntityView

LIST_LIMIT, LIST_LIMIT_MAX, RECALL_LIMIT_MAX = 50, 10_000, 1_000
ENTITIES_LIMIT, ENTITIES_LIMIT_MAX = 50, 10_000
_OTHERS_READ = 1_000
_OTHERS_NAMED = 3
_LEGS = ("cosine", "text", "hybrid", "weight")
_COMPOSITE = ("composite", "relevance", "recency", "usefulness", "confidence", "frequency")
_ENTITIES: RecordView[Entity] = RecordView(
    Field("id", read=lambda entity: f"{entity.kind}:{entity.name}"),
    Field("kind", "kind"),
    Field("name", "entity", style="cyan", wraps=True),
    Field("memory_count", "memories"),
)
# How a text writes each kind of entity.
_WRITTEN = {"identifier": "`{}`", "name": "@{}", "tag": "#{}", "issue": "{}", "topic": "{}"}


# -- memories as tables ---------------------------------------------------------------------


def _marks(record: MemoryRecord) -> str:
    """Return the states of a memory that a reader must know."""
    states = (
        ("pinned", record.pinned),
        ("untrusted", record.trust == "untrusted"),
        ("demoted", record.demotion > 0),
        ("superseded", record.superseded_by is not None),
        ("forgotten", record.deleted_at is not None),
    )
    return ", ".join(name for name, holds in states if holds)


def memory_table(
    records: Sequence[MemoryRecord], ids: Mapping[str, str], *, scores: Sequence[float] = ()
) -> Table:
    """Return a table of memories without empty columns."""
    columns: dict[Column, list[str]] = {
        Column("id", "cyan"): [ids[record.id] for record in records],
        Column("score"): [f"{score:.3f}" for score in scores],
        Column("age", "dim"): [age(record.created_at) for record in records],
        Column("kind"): [str(record.kind) for record in records],
        Column("project", "magenta"): [record.project or "" for record in records],
        Column("state", "yellow"): [_marks(record) for record in records],
        Column("content", wraps=True): [record.content for record in records],
    }
    filled = {column: cells for column, cells in columns.items() if any(cells)}
    return Table(tuple(filled), list(zip(*filled.values(), strict=True)))


def memory_fields(record: MemoryRecord, *more: tuple[str, str]) -> Fields:
    """Return every field of a memory that is not empty."""
    sources = [" ".join(filter(None, (s.harness, s.session_key, s.turn))) for s in record.sources]
    times = "once" if record.access_count == 1 else f"{record.access_count} times"
    pairs = [
        ("id", record.id),
        ("content", record.content),
        ("kind", record.kind),
        ("user", record.user),
        ("agent", record.agent or ""),
        ("project", record.project or ""),
        ("state", _marks(record)),
        ("tags", ", ".join(record.tags)),
        ("importance", f"{record.importance:g}"),
        ("confidence", f"{record.confidence:g}"),
        ("provenance", f"{record.provenance} (origin {record.origin}, {record.trust})"),
        ("sources", "; ".join(filter(None, sources))),
        ("valid from", clock_text(record.valid_from)),
        ("valid until", clock_text(record.valid_until)),
        ("created", clock_text(record.created_at)),
        ("updated", clock_text(record.updated_at)),
        ("shown", f"{times}, usefulness {record.usefulness:g}"),
        ("superseded by", record.superseded_by or ""),
        ("forgotten", clock_text(record.deleted_at)),
        ("embedder", f"{record.embedder} ({record.dimension})" if record.embedder else "none yet"),
        *more,
    ]
    return Fields([(name, value) for name, value in pairs if value])


# -- memories -------------------------------------------------------------------------------


@command("recall", 'meritory recall "when do we deploy?" --project heron')
@click.argument("query")
@limit_option(None, RECALL_LIMIT_MAX, "How many at most. Default: 10.")
@click.option("--explain", is_flag=True, help="Show every number behind each score.")
@scope_options
def recall(
    query: str, limit: int | None, explain: bool, project: str | None, agent: str | None
) -> Answer:
    """Find the memories that answer a query best."""
    with opened(project, agent) as memory:
        hits = memory.recall(query, limit, explain)
        if not hits:
            note("nothing found")
            _note_elsewhere(memory)
        ids = handles(memory, (hit.id for hit in hits))
    blocks: list[Block] = []
    if hits:
        records, scores = [hit.memory for hit in hits], [hit.score for hit in hits]
        blocks.append(memory_table(records, ids, scores=scores))
    if hits and explain:
        for names in (_LEGS, _COMPOSITE):
            rows = [
                (ids[hit.id], *(f"{getattr(hit.parts, name):.6f}" for name in names))
                for hit in hits
            ]
            blocks.append(Table((Column("id", "cyan"), *map(Column, names)), rows))
    results = []
    for hit in hits:
        parts = {} if hit.parts is None else {"parts": to_json(hit.parts)}
        results.append({**record_to_dict(hit.memory), "score": hit.score, **parts})
    return Answer({"results": results}, blocks)


def _note_elsewhere(memory: Memory) -> None:
    for line in _elsewhere(memory):
        note(line)


def _elsewhere(memory: Memory) -> Iterator[str]:
    """Yield hints about memories outside the scope of the command."""
    others = memory.page(_OTHERS_READ, everywhere=True)
    if not others:
        yield "there are no memories yet: `meritory remember TEXT` stores one"
        if environment().get(URL_VARIABLE, "").strip():
            yield f"{URL_VARIABLE} is for agents and programs; commands use the local store"
    for word in ("project", "agent"):
        names = {getattr(record, word) for record in others} - {None, getattr(memory.scope, word)}
        if names:
            named = sorted(names)[:_OTHERS_NAMED]
            more = ", ..." if len(names) > _OTHERS_NAMED else ""
            yield f"other {word}s have memories: add --{word} NAME ({', '.join(named)}{more})"


@command("list", "meritory list --kind decision --all-projects")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind of claim.")
@click.option("--tag", metavar="WORD", help="Only memories with this tag.")
@limit_option(LIST_LIMIT, LIST_LIMIT_MAX)
@click.option("--after", metavar="ID", help="Continue after this memory, the last of a page.")
@click.option("--all-projects", is_flag=True, help="Memories of all projects and agents.")
@click.option("--gone", is_flag=True, help="Also forgotten and superseded memories.")
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
        ids = handles(memory, (record.id for record in records))
        if not records:
            note("nothing found")
            if not all_projects:
                _note_elsewhere(memory)
    following = records[-1].id if len(records) == limit else None
    if following:
        note(f"there may be more: add --after {ids[following]}")
    plain = {"results": [record_to_dict(record) for record in records], "next": following}
    return Answer(plain, [memory_table(records, ids)] if records else [])


@command("show", "meritory show 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def show(memory_id: str) -> Answer:
    """Show one memory with all its fields.

    ID may be the first characters of an id, as long as they are unique.
    """
    with opened() as memory:
        record = memory.get(memory_id)
        searches = memory.services.store.retrievals(record.user, [record.id]).get(record.id)
    more = []
    if searches is not None:
        more = [("found", f"by {searches.count} searches, last {clock_text(searches.last_at)}")]
    plain = {
        "id": record.id,
        "memory": record_to_dict(record),
        "retrieval_count": searches.count if searches else 0,
        "last_retrieved": to_json(searches.last_at) if searches else None,
    }
    return Answer(plain, [memory_fields(record, *more)])


# -- entities -------------------------------------------------------------------------------


@command("entities", "meritory entities --limit 20")
@limit_option(ENTITIES_LIMIT, ENTITIES_LIMIT_MAX)
def entities(limit: int) -> Answer:
    """List the entities that memories name, most frequent first."""
    with opened() as memory:
        records = memory.entities(limit)
    if not records:
        note("no memory names an entity yet: paths, `names`, #tags, @people and --about count")
    return _ENTITIES.answer(records)


@command("describe", "meritory describe src/api.py")
@click.argument("entity")
@scope_options
def describe(entity: str, project: str | None, agent: str | None) -> Answer:
    """Show all memories about an entity.

    ENTITY is a path, a name or a topic, or KIND:NAME as `meritory entities --json` prints it.
    """
    with opened(project, agent) as memory:
        view = _described(memory, entity)
        names = dict.fromkeys(i for members in view.aspects.values() for i in members)
        records = {memory_id: memory.get(memory_id) for memory_id in names}
        ids = handles(memory, names)
    blocks: list[Block] = [Lines([f"{view.entity.kind} {view.entity.name}"])]
    if view.depends_on:
        needed = ", ".join(f"{other.kind} {other.name}" for other in view.depends_on)
        blocks.append(Lines([f"depends on: {needed}"]))
    for aspect, members in view.aspects.items():
        table = memory_table([records[i] for i in members], ids)
        blocks += [Lines(["", f"{aspect}:"]), table]
    plain: dict[str, Any] = {
        "entity": _ENTITIES.json(view.entity),
        "aspects": to_json(view.aspects),
        "constraints": list(view.constraints),
        "depends_on": [_ENTITIES.json(other) for other in view.depends_on],
        "results": [record_to_dict(record) for record in records.values()],
    }
    return Answer(plain, blocks)


def _described(memory: Memory, text: str) -> EntityView:
    """Find an entity as it was typed, or written the way a text would name it."""
    kind, colon, name = text.partition(":")
    spellings = [text]
    if colon and kind in _WRITTEN:
        spellings = [_WRITTEN[kind].format(name), text]
    elif colon and kind == "path":
        spellings = [name, text]
    if text.strip() and not text.startswith(("`", "@", "#")):
        spellings += [_WRITTEN[other].format(text) for other in ("identifier", "name", "tag")]
    for spelling in spellings:
        with contextlib.suppress(NotFound):
            return memory.describe(spelling)
    hints = ["`meritory entities` lists all entities", *_elsewhere(memory)]
    raise NotFound(f"no memory is about {text[:80]!r}", hint="; ".join(hints))
