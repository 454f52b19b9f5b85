"""Commands that write a memory: remember, edit, confirm, forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, note
from meritory.cli.context import (
    BACKUPS_NAME,
    given_options,
    handles,
    opened,
    read_text,
    require_yes,
)
from meritory.cli.history import change_lines, changed_fields
from meritory.cli.output import Answer, Lines, flat, line_answer
from meritory.cli.search import memory_fields
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import InputError
from meritory.domain.memory import KINDS
from meritory.text.normalize import check_text

if TYPE_CHECKING:
    from meritory.api.memory import Memory

WHY_LIMIT_CHARS = 500
CLEARABLE = ("agent", "project", "tags", "valid-from", "valid-until")
_SHARE = click.FloatRange(0.0, 1.0)
_OUTCOMES = {
    "stored": "stored {id}",
    "duplicate": "already stored as {id}; refreshed",
    "merged": "merged into {id}; `meritory split {id}` undoes it",
    "superseded": "stored {id}, which replaces {other}",
    "kept_both": "stored {id} in addition to the similar {other}",
}


@command("remember", 'meritory remember "We deploy on Tuesdays" --kind decision --project heron')
@click.argument("text")
@click.option("--kind", type=click.Choice(KINDS), help="The kind of claim.  [default: fact]")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A tag; may be repeated.")
@click.option("--project", metavar="NAME", help="The project it belongs to. Default: none.")
@click.option("--agent", metavar="NAME", help="The agent it belongs to. Default: all.")
@click.option("--importance", type=_SHARE, help="How important it is, 0 to 1.  [default: 0.5]")
@click.option("--confidence", type=_SHARE, help="How certain it is, 0 to 1.  [default: 0.8]")
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
    with opened(project, agent) as memory:
        result = memory.remember_many([{"content": content, **fields}])[0]
        record = result.memory
        if record is None:
            raise result.error or InputError(result.reason)
        ids = handles(memory, filter(None, (record.id, result.other_id)))
    other = ids.get(result.other_id or "", "an older one")
    return line_answer(
        _OUTCOMES[result.outcome].format(id=ids[record.id], other=other),
        id=record.id,
        outcome=result.outcome,
        reason=result.reason,
        other_id=result.other_id,
        cosine=result.cosine,
        memory=record_to_dict(record),
    )


@command("edit", 'meritory edit 01kx3f9qz2 --content "We deploy on Mondays" --pin')
@click.argument("memory_id", metavar="ID")
@click.option("--content", metavar="TEXT", help="The new text, or - to read it from stdin.")
@click.option("--kind", type=click.Choice(KINDS), help="The kind of claim.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Replaces all tags; repeatable.")
@click.option("--project", metavar="NAME", help="The project it belongs to.")
@click.option("--agent", metavar="NAME", help="The agent it belongs to.")
@click.option("--importance", type=_SHARE, help="How important it is, 0 to 1.")
@click.option("--confidence", type=_SHARE, help="How certain it is, 0 to 1.")
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
    return Answer(plain, [Lines([line, *change_lines(changes)])])


@command("confirm", "meritory confirm 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def confirm(memory_id: str) -> Answer:
    """Confirm a memory that was only proposed.

    It becomes trusted, and a pin or constraint that was proposed for it takes effect.
    """
    with opened() as memory:
        after = memory.confirm(memory_id)
    return Answer({"id": after.id, "memory": record_to_dict(after)}, [memory_fields(after)])


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
        if purge:
            _note_copies(memory)
    verb = "erased" if purge else "forgot"
    hint = "" if purge else "; `meritory undo ID` restores it"
    plain = {"results": [{"id": memory_id, "purged": purge} for memory_id in records]}
    return Answer(plain, [Lines([f"{verb} {ids[i]}{hint}" for i in records])])


def _note_copies(memory: Memory) -> None:
    """Name the copies that a purge does not reach."""
    path = memory.services.store.place.file
    if path is None:
        note("earlier backups of the database are not changed and may still contain it")
        return
    aside = sorted(path.parent.glob(f"{path.name}.before-restore-*"))
    backups = sorted((memory.settings.home / BACKUPS_NAME).glob("*.db"))
    if aside or backups:
        named = ", ".join(str(file) for file in (*aside, *backups)[:3])
        note(f"earlier copies are not changed and may still contain it: {named}")
