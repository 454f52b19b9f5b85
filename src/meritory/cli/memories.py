"""Commands about memories: write, find, change and undo, and the entities they name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    BACKUPS_NAME,
    ENTRY_NUMBER,
    command,
    environment,
    given_options,
    handles,
    limit_option,
    many_option,
    opened,
    read_text,
    require_yes,
    scope_options,
)
from meritory.cli.output import (
    Answer,
    Block,
    Field,
    Fields,
    RecordView,
    Table,
    age,
    clock_text,
    flat,
    note,
    text,
    text_or_empty,
    to_json,
)
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import KINDS, MemoryRecord, metadata_text
from meritory.settings.home import URL_VARIABLE
from meritory.text.normalize import check_text

if TYPE_CHECKING:
    from meritory.api.memory import Memory

_OTHERS_READ = 1_000
_OTHERS_NAMED = 3
SHARE = click.FloatRange(0.0, 1.0)
_ENTITIES = RecordView(
    Field("id", read=lambda entity: f"{entity.kind}:{entity.name}"),
    Field("kind", "kind"),
    Field("name", "entity", style="cyan", wraps=True),
    Field("memory_count", "memories"),
)
# How a text writes each kind of entity.
_WRITTEN = {"identifier": "`{}`", "name": "@{}", "tag": "#{}"} | dict.fromkeys(
    ("issue", "topic", "path"), "{}"
)


# -- memories as tables ---------------------------------------------------------------------


def _marks(record: MemoryRecord) -> str:
    """Return the states of a memory that a reader must know."""
    states = (
        ("pinned", record.pinned),
        *((tag, True) for tag in record.tags if tag in ("proposed:pin", "proposed:constraint")),
        ("untrusted", record.trust == "untrusted"),
        ("demoted", record.demotion > 0),
        ("superseded", record.superseded_by is not None),
        ("forgotten", record.deleted_at is not None),
    )
    return ", ".join(name for name, holds in states if holds)


def memory_table(
    records: Sequence[MemoryRecord],
    ids: Mapping[str, str],
    *,
    scores: Sequence[float] = (),
    notes: Iterable[str] = (),
) -> Table:
    """Return a table of memories without empty columns; a note follows the content."""
    contents = [record.content for record in records]
    columns: dict[Field, list[str]] = {
        Field("", "id", style="cyan"): [ids[record.id] for record in records],
        Field("", "score"): [f"{score:.3f}" for score in scores],
        Field("", "age", style="dim"): [age(record.created_at) for record in records],
        Field("", "kind"): [str(record.kind) for record in records],
        Field("", "project", style="magenta"): [record.project or "" for record in records],
        Field("", "state", style="yellow"): [_marks(record) for record in records],
        Field("", "content", wraps=True): [
            content + note for content, note in zip_longest(contents, notes, fillvalue="")
        ],
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
        ("metadata", metadata_text(record.metadata) if record.metadata else ""),
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


def elsewhere(memory: Memory) -> Iterator[str]:
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
@limit_option()
@click.option("--after", metavar="ID", help="Continue after this memory, the last of a page.")
@click.option("--all-projects", is_flag=True, help="Memories of all projects and agents.")
@click.option("--gone", is_flag=True, help="Also forgotten and superseded memories.")
@scope_options
def list_memories(
    limit: int, after: str | None, project: str | None, agent: str | None, **wanted: Any
) -> Answer:
    """List memories, newest first."""
    from meritory.engine.memories.validate import checked_tags

    everywhere, gone, tag = (wanted.pop(name) for name in ("all_projects", "gone", "tag"))
    if tag is not None:
        wanted["tag"] = next(iter(checked_tags([tag])), None)
    with opened(project, agent) as memory:
        last = memory.get(after).id if after is not None else None
        records = memory.page(limit, after=last, everywhere=everywhere, include_gone=gone, **wanted)
        ids = handles(memory, (record.id for record in records))
        if not records:
            note("nothing found", *(() if everywhere else elsewhere(memory)))
    following = records[-1].id if len(records) == limit else None
    if following:
        note(f"there may be more: add --after {ids[following]}")
    plain = {"results": [record_to_dict(record) for record in records], "next": following}
    return Answer(plain, *([memory_table(records, ids)] if records else []))


@command("show", "meritory show 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def show(memory_id: str) -> Answer:
    """Show one memory with all its fields.

    ID may be the first characters of an id, as long as they are unique.
    """
    with opened() as memory:
        record = memory.get(memory_id)
        store, now = memory.services.store, memory.services.world.now()
        searches = store.retrievals(record.user, [record.id]).get(record.id)
        steps = store.earlier_values(record.user, [record.id])
        later = store.later_values(record.scope, [record.id], now)
    chain = {
        "earlier": [older_id for older_id, _ in steps],
        "later": [one.newer_id for one in later if one.older_id == record.id],
    }
    more = [(f"{name} values", ", ".join(ids)) for name, ids in chain.items()]
    if searches is not None:
        more.append(("found", f"by {searches.count} searches, last {clock_text(searches.last_at)}"))
    plain = {
        "id": record.id,
        "memory": record_to_dict(record),
        "retrieval_count": searches.count if searches else 0,
        "last_retrieved": to_json(searches.last_at) if searches else None,
        "chain": chain,
    }
    return Answer(plain, memory_fields(record, *more))


# -- entities -------------------------------------------------------------------------------


@command("entities", "meritory entities --limit 20")
@limit_option()
def entities(limit: int) -> Answer:
    """List the entities that memories name, most frequent first."""
    with opened() as memory:
        records = memory.entities(limit)
    empty = "no memory names an entity yet: paths, `names`, #tags, @people and --about count"
    return _ENTITIES.answer(records, empty)


@command("describe", "meritory describe src/api.py")
@click.argument("entity")
@scope_options
def describe(entity: str, project: str | None, agent: str | None) -> Answer:
    """Show all memories about an entity.

    ENTITY is a path, a name or a topic, or KIND:NAME as `meritory entities --json` prints it.
    """
    with opened(project, agent) as memory:
        # As it was typed, or written the way a text would name it.
        kind, colon, name = entity.partition(":")
        spellings = [entity]
        if colon and kind in _WRITTEN:
            spellings = [_WRITTEN[kind].format(name), entity]
        if entity.strip() and not entity.startswith(("`", "@", "#")):
            spellings += [_WRITTEN[one].format(entity) for one in ("identifier", "name", "tag")]
        for spelling in spellings:
            with contextlib.suppress(NotFound):
                view = memory.describe(spelling)
                break
        else:
            hints = ["`meritory entities` lists all entities", *elsewhere(memory)]
            raise NotFound(f"no memory is about {entity[:80]!r}", hint="; ".join(hints))
        names = dict.fromkeys(i for members in view.aspects.values() for i in members)
        records = {memory_id: memory.get(memory_id) for memory_id in names}
        ids = handles(memory, names)
    blocks: list[Block] = [f"{view.entity.kind} {view.entity.name}"]
    if view.depends_on:
        needed = ", ".join(f"{other.kind} {other.name}" for other in view.depends_on)
        blocks.append(f"depends on: {needed}")
    for aspect, members in view.aspects.items():
        table = memory_table([records[i] for i in members], ids)
        blocks += ["", f"{aspect}:", table]
    plain: dict[str, Any] = {
        "entity": _ENTITIES.json(view.entity),
        "aspects": to_json(view.aspects),
        "constraints": list(view.constraints),
        "depends_on": [_ENTITIES.json(other) for other in view.depends_on],
        "results": [record_to_dict(record) for record in records.values()],
    }
    return Answer(plain, *blocks)


# -- writing ----------------------------------------------------------------------------------

WHY_LIMIT_CHARS = 500
CLEARABLE = ("agent", "project", "tags", "metadata", "valid-from", "valid-until")
_OUTCOMES = {
    "stored": "stored {id}",
    "duplicate": "already stored as {id}; refreshed",
    "merged": "merged into {id}; `meritory split {id}` undoes it",
    "superseded": "stored {id}, which replaces {other}",
    "kept_both": "stored {id} in addition to the similar {other}",
}


def read_metadata(pairs: Iterable[str]) -> dict[str, Any]:
    """Return metadata from NAME=VALUE; a value is JSON if it can be read so, else text."""
    metadata: dict[str, Any] = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark:
            raise InputError(f"metadata needs NAME=VALUE, not {pair[:40]!r}")
        try:
            metadata[name] = json.loads(value)
        except ValueError:
            metadata[name] = value
    return metadata


@command("remember", 'meritory remember "We deploy on Tuesdays" --kind decision --project heron')
@click.argument("text")
@click.option("--kind", type=click.Choice(KINDS), help="The kind of claim.  [default: fact]")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A tag; may be repeated.")
@many_option("--metadata", "metadata", "NAME=VALUE", "A field for filters; may be repeated.")
@click.option("--project", metavar="NAME", help="The project it belongs to. Default: none.")
@click.option("--agent", metavar="NAME", help="The agent it belongs to. Default: all.")
@click.option("--importance", type=SHARE, help="How important it is, 0 to 1.  [default: 0.5]")
@click.option("--confidence", type=SHARE, help="How certain it is, 0 to 1.  [default: 0.8]")
@click.option("--pin", is_flag=True, help="Always show it to the agent.")
@click.option(
    "--about", multiple=True, metavar="THING[/ASPECT]", help="Its subject; may be repeated."
)
@click.option(
    "--depends-on", multiple=True, metavar="THING", help="What --about needs; may be repeated."
)
@click.option("--valid-from", metavar="TIME", help="Start of its validity (ISO 8601, UTC).")
@click.option("--valid-until", metavar="TIME", help="End of its validity.")
@click.option("--supersedes", metavar="ID", help="The memory that it replaces.")
@click.option("--keep", is_flag=True, help="Store it unchanged, even if a similar one exists.")
def remember(text: str, project: str | None, agent: str | None, **options: Any) -> Answer:
    """Store a text as a memory.

    TEXT is the claim itself, or - to read it from stdin. An identical text refreshes the existing
    memory; one that says the same in other words is merged with it.
    """
    content = read_text(text)
    keep, pin = options.pop("keep"), options.pop("pin")
    fields = given_options(**options, pinned=pin, on_similar="keep" if keep else None)
    if "metadata" in fields:
        fields["metadata"] = read_metadata(fields["metadata"])
    with opened(project, agent) as memory:
        result = memory.remember_many([{"content": content, **fields}])[0]
        record = result.memory
        if record is None:
            raise result.error or InputError(result.reason)
        ids = handles(memory, filter(None, (record.id, result.other_id)))
    other = ids.get(result.other_id or "", "an older one")
    return Answer(
        {
            "id": record.id,
            "outcome": result.outcome,
            "reason": result.reason,
            "other_id": result.other_id,
            "cosine": result.cosine,
            "memory": record_to_dict(record),
        },
        _OUTCOMES[result.outcome].format(id=ids[record.id], other=other),
    )


@command("edit", 'meritory edit 01kx3f9qz2 --content "We deploy on Mondays" --pin')
@click.argument("memory_id", metavar="ID")
@click.option("--content", metavar="TEXT", help="The new text, or - to read it from stdin.")
@click.option("--kind", type=click.Choice(KINDS), help="The kind of claim.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Replaces all tags; repeatable.")
@many_option("--metadata", "metadata", "NAME=VALUE", "Replaces all metadata; repeatable.")
@click.option("--project", metavar="NAME", help="The project it belongs to.")
@click.option("--agent", metavar="NAME", help="The agent it belongs to.")
@click.option("--importance", type=SHARE, help="How important it is, 0 to 1.")
@click.option("--confidence", type=SHARE, help="How certain it is, 0 to 1.")
@click.option("--pin/--unpin", default=None, help="Always show it to the agent, or no longer.")
@click.option("--valid-from", metavar="TIME", help="Start of its validity (ISO 8601, UTC).")
@click.option("--valid-until", metavar="TIME", help="End of its validity.")
@click.option(
    "--clear", multiple=True, type=click.Choice(CLEARABLE), help="Empty a field; may be repeated."
)
def edit(
    memory_id: str, content: str | None, pin: bool | None, clear: tuple[str, ...], **options: Any
) -> Answer:
    """Change fields of a memory.

    The old version stays in its history, and `meritory undo ID` restores it.
    """
    fields = given_options(**options)
    if "metadata" in fields:
        fields["metadata"] = read_metadata(fields["metadata"])
    if content is not None:
        fields["content"] = read_text(content)
    if pin is not None:
        fields["pinned"] = pin
    for word in clear:
        name = word.replace("-", "_")
        if name in fields:
            raise InputError(f"{word} is both set and cleared", hint="choose one")
        fields[name] = [] if name == "tags" else None
    if not fields:
        raise InputError("no change was given", hint="`meritory edit --help` lists the fields")
    with opened() as memory:
        before = memory.get(memory_id)
        after = memory.update(before.id, **fields)
        changes = changed_fields(before, after)
        name = handles(memory, [after.id])[after.id]
    line = f"changed {name}" if changes else f"{name} already has these values"
    plain = {"id": after.id, "changes": changes, "memory": record_to_dict(after)}
    return Answer(plain, line, *change_lines(changes))


@command("confirm", "meritory confirm 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def confirm(memory_id: str) -> Answer:
    """Confirm a memory that was only proposed.

    It becomes trusted, and a pin or constraint that was proposed for it takes effect.
    """
    with opened() as memory:
        after = memory.confirm(memory_id)
    return Answer({"id": after.id, "memory": record_to_dict(after)}, memory_fields(after))


@command("forget", 'meritory forget 01kx3f9qz2 --why "no longer true"')
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--purge", is_flag=True, help="Erase permanently, with history; cannot be undone.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in the history.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before a purge.")
def forget(memory_ids: tuple[str, ...], purge: bool, why: str, yes: bool) -> Answer:
    """Hide memories, or erase them permanently.

    Searches no longer find a hidden memory; `meritory undo ID` restores it. If one of the ids is
    unknown, nothing is done.
    """
    if why:
        check_text(why, what="the reason", max_chars=WHY_LIMIT_CHARS)
    with opened() as memory:
        records = {record.id: record for record in map(memory.get, memory_ids)}
        ids = handles(memory, records)
        if purge:
            listed = "\n".join(f"  {ids[i]}  {flat(r.content)[:80]}" for i, r in records.items())
            require_yes(f"{listed}\nErase permanently? This cannot be undone.", yes=yes)
        for memory_id in records:
            memory.forget(memory_id, purge=purge, why=why)
        file = memory.services.store.place.file
        if purge and file is None:
            note("earlier backups of the database are not changed and may still contain it")
        elif purge and file is not None:
            copies = sorted(file.parent.glob(f"{file.name}.before-restore-*"))
            copies += sorted((memory.settings.home / BACKUPS_NAME).glob("*.db"))
            if copies:
                named = ", ".join(map(str, copies[:3]))
                note(f"earlier copies are not changed and may still contain it: {named}")
    verb = "erased" if purge else "forgot"
    hint = "" if purge else "; `meritory undo ID` restores it"
    plain = {"results": [{"id": memory_id, "purged": purge} for memory_id in records]}
    return Answer(plain, *(f"{verb} {ids[i]}{hint}" for i in records))


# -- changes ----------------------------------------------------------------------------------

# Fields that change by themselves, not because someone changed the memory.
_AUTOMATIC = frozenset(
    {"updated_at", "embedder", "dimension", "access_count", "last_accessed", "usefulness"}
)


def changed_fields(
    before: MemoryRecord | None, after: MemoryRecord | None
) -> dict[str, dict[str, Any]]:
    """Return the fields in which two versions of a memory differ, as JSON values."""
    if before is None or after is None:
        return {}
    old, new = record_to_dict(before), record_to_dict(after)
    return {
        name: {"before": old[name], "after": new[name]}
        for name in old
        if name not in _AUTOMATIC and old[name] != new[name]
    }


def change_lines(changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return differences as lines with - and +."""
    lines = []
    for name, change in changes.items():
        for mark, key in (("-", "before"), ("+", "after")):
            value = "(none)" if change[key] in (None, []) else flat(text(change[key]))
            lines.append(f"  {mark} {name}: {value}")
    return lines


def _changes(ids: Mapping[str, str]) -> RecordView:
    return RecordView(
        Field("", "id", lambda entry: ids.get(entry.memory_id), style="cyan"),
        Field("id", read="memory_id"),
        Field("entry", "entry"),
        Field("at", "when", style="dim"),
        "actor action why undone other_id",
        Field("changes", read=lambda entry: changed_fields(entry.before, entry.after)),
        "before after other",
        Field("", "was", "before.content", text_or_empty, wraps=True),
        Field("", "merged with", "other.content", text_or_empty, wraps=True),
    )


@command("history", "meritory history 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def history(memory_id: str) -> Answer:
    """Show every change of a memory: who, when, why, before and after."""
    with opened() as memory:
        entries = memory.history(memory_id)
        ids = handles(memory, (entry.other_id for entry in entries if entry.other_id))
    lines = []
    for entry in entries:
        undone = " (undone)" if entry.undone else ""
        why = f": {flat(entry.why)}" if entry.why else ""
        when = clock_text(entry.at)
        lines.append(f"#{entry.entry}  {when}  {entry.action} by {entry.actor}{undone}{why}")
        if entry.before is None and entry.after is not None:
            lines.append(f"  + content: {flat(entry.after.content)}")
        lines += change_lines(changed_fields(entry.before, entry.after))
        if entry.other is not None:
            lines.append(f"  with: {flat(entry.other.content)}")
        if entry.other_id is not None:
            lines.append(f"  other memory: {ids[entry.other_id]}")
    return Answer({"results": [_changes({}).json(entry) for entry in entries]}, *lines)


@command("undo", "meritory undo 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def undo(memory_id: str) -> Answer:
    """Undo the last change of a memory.

    Run it again to undo more. A merge is split; a new memory is forgotten, and the one it
    superseded returns.
    """
    with opened() as memory:
        return _changed(memory, memory.undo(memory_id))


@command("split", "meritory split 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
@click.option(
    "--entry",
    type=ENTRY_NUMBER,
    help="The merge, by its number in the history. Default: the latest.",
)
def split(memory_id: str, entry: int | None) -> Answer:
    """Undo a merge.

    The memory becomes what it was before, and the text that was merged into it becomes a memory of
    its own. Later changes stay.
    """
    with opened() as memory:
        return _changed(memory, memory.split(memory_id, entry))


def _changed(memory: Memory, records: Sequence[MemoryRecord]) -> Answer:
    ids = handles(memory, (record.id for record in records))
    plain = {"results": [record_to_dict(record) for record in records]}
    return Answer(plain, memory_table(records, ids))


@command("merges", "meritory merges --limit 10")
@limit_option()
def merges(limit: int) -> Answer:
    """List the latest merges, newest first; `meritory split` undoes one."""
    with opened() as memory:
        entries = memory.merges(limit)
        ids = handles(memory, (entry.memory_id for entry in entries))
    return _changes(ids).answer(entries, "there are no merges")
