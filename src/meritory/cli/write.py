"""Commands that write a memory: remember, edit, confirm, forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import BACKUPS_NAME, demand_yes, given, handles, note, opened, read_text
from meritory.cli.options import command
from meritory.cli.output import Answer, Lines
from meritory.cli.records import change_lines, changed_fields, memory_fields
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import InputError
from meritory.domain.memory import KINDS

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import MemoryRecord, WriteResult


WHY_LIMIT_CHARS = 500
CLEARABLE = ("agent", "project", "tags", "valid-from", "valid-until")
_SHARE = click.FloatRange(0.0, 1.0)
_OUTCOMES = {
    "stored": "stored {id}",
    "duplicate": "known already as {id}; refreshed",
    "merged": "merged into {id}; `meritory split {id}` takes it apart",
    "superseded": "stored {id}, which replaces {other}",
    "kept_both": "stored {id} beside {other}, which is alike but not the same",
}


@command("remember", 'meritory remember "We deploy on Tuesdays" --kind decision --project heron')
@click.argument("text")
@click.option("--kind", type=click.Choice(KINDS), help="What sort of claim it is.  [default: fact]")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A tag; may be repeated.")
@click.option("--project", metavar="NAME", help="The project it belongs to; none otherwise.")
@click.option("--agent", metavar="NAME", help="The agent it belongs to; all otherwise.")
@click.option("--importance", type=_SHARE, help="How much it matters, 0 to 1.  [default: 0.5]")
@click.option("--confidence", type=_SHARE, help="How sure it is, 0 to 1.  [default: 0.8]")
@click.option("--pin", is_flag=True, help="Always show it to the agent.")
@click.option(
    "--about", multiple=True, metavar="THING[/ASPECT]", help="What it is about; may be repeated."
)
@click.option(
    "--depends-on", multiple=True, metavar="THING", help="What the --about needs; may be repeated."
)
@click.option("--valid-from", metavar="TIME", help="From when on it holds (ISO 8601, UTC).")
@click.option("--valid-until", metavar="TIME", help="Until when it holds.")
@click.option("--supersedes", metavar="ID", help="The memory that it replaces.")
@click.option("--keep", is_flag=True, help="Store it as it is, even beside a similar one.")
def remember(text: str, project: str | None, agent: str | None, **options: Any) -> Answer:
    """Store a text as a memory.

    TEXT is the claim itself, or - to read it from stdin. A text that is known already refreshes
    the memory it is known by; one that only says the same in other words is merged with it.
    """
    content = read_text(text)
    keep, pin = options.pop("keep"), options.pop("pin")
    fields = given(**options, pinned=pin, on_similar="keep" if keep else None)
    with opened(project, agent) as memory:
        result = memory.remember_many([{"content": content, **_as_lists(fields)}])[0]
        if result.memory is None:
            raise result.error or InputError(result.reason)
        ids = handles(memory, filter(None, (result.memory.id, result.other_id)))
    return Answer(_result_plain(result), [Lines([_result_line(result, ids)])])


def _as_lists(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}


def _result_plain(result: WriteResult) -> dict[str, Any]:
    record: MemoryRecord = result.memory  # type: ignore[assignment]
    return {
        "id": record.id,
        "outcome": result.outcome,
        "reason": result.reason,
        "other_id": result.other_id,
        "cosine": result.cosine,
        "memory": record_to_dict(record),
    }


def _result_line(result: WriteResult, ids: dict[str, str]) -> str:
    record: MemoryRecord = result.memory  # type: ignore[assignment]
    other = ids.get(result.other_id or "", "an older one")
    return _OUTCOMES[result.outcome].format(id=ids[record.id], other=other)


@command("edit", 'meritory edit 01kx3f9qz2 --content "We deploy on Mondays" --pin')
@click.argument("memory_id", metavar="ID")
@click.option("--content", metavar="TEXT", help="The new text, or - to read it from stdin.")
@click.option("--kind", type=click.Choice(KINDS), help="What sort of claim it is.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Replaces all tags; repeatable.")
@click.option("--project", metavar="NAME", help="The project it belongs to.")
@click.option("--agent", metavar="NAME", help="The agent it belongs to.")
@click.option("--importance", type=_SHARE, help="How much it matters, 0 to 1.")
@click.option("--confidence", type=_SHARE, help="How sure it is, 0 to 1.")
@click.option("--pin/--unpin", default=None, help="Always show it to the agent, or no longer.")
@click.option("--valid-from", metavar="TIME", help="From when on it holds (ISO 8601, UTC).")
@click.option("--valid-until", metavar="TIME", help="Until when it holds.")
@click.option(
    "--clear", multiple=True, type=click.Choice(CLEARABLE), help="Empty a field; may be repeated."
)
def edit(
    memory_id: str, content: str | None, pin: bool | None, clear: tuple[str, ...], **options: Any
) -> Answer:
    """Change fields of a memory.

    What it was stays in its history, and `meritory undo ID` brings it back.
    """
    fields = _as_lists(given(**options))
    if content is not None:
        fields["content"] = read_text(content)
    if pin is not None:
        fields["pinned"] = pin
    for word in clear:
        name = word.replace("-", "_")
        if name in fields:
            raise InputError(f"{word} cannot be set and cleared at once", hint="choose one")
        fields[name] = [] if name == "tags" else None
    if not fields:
        raise InputError(
            "nothing to change was given", hint="`meritory edit --help` lists the fields"
        )
    with opened() as memory:
        before = memory.get(memory_id)
        after = memory.update(before.id, **fields)
        changes = changed_fields(before, after)
        ids = handles(memory, [after.id])
    line = f"changed {ids[after.id]}" if changes else f"{ids[after.id]} is so already"
    plain = {"id": after.id, "changes": changes, "memory": record_to_dict(after)}
    return Answer(plain, [Lines([line, *change_lines(changes)])])


@command("confirm", "meritory confirm 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def confirm(memory_id: str) -> Answer:
    """Vouch for a memory that was only proposed.

    It becomes trusted, and a pin or constraint that was proposed for it takes effect.
    """
    with opened() as memory:
        after = memory.confirm(memory_id)
    return Answer({"id": after.id, "memory": record_to_dict(after)}, [memory_fields(after)])


@command("forget", 'meritory forget 01kx3f9qz2 --why "no longer true"')
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--purge", is_flag=True, help="Erase for good, history and all; cannot be undone.")
@click.option("--why", default="", metavar="TEXT", help="The reason, kept in the history.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before a purge.")
def forget(memory_ids: tuple[str, ...], purge: bool, why: str, yes: bool) -> Answer:
    """Hide memories, or erase them for good.

    A memory that was hidden is in no search any more; `meritory undo ID` brings it back. Either
    all named memories exist or nothing is done.
    """
    from meritory.text.normalize import check_text

    if why:
        check_text(why, what="the reason", max_chars=WHY_LIMIT_CHARS)
    with opened() as memory:
        records = {record.id: record for record in map(memory.get, memory_ids)}
        ids = handles(memory, records)
        if purge:
            listed = "\n".join(f"  {ids[i]}  {_start(r.content)}" for i, r in records.items())
            demand_yes(f"{listed}\nErase for good? This cannot be undone.", yes=yes)
        for memory_id in records:
            memory.forget(memory_id, purge=purge, why=why)
        if purge:
            _note_copies(memory)
    word = "erased" if purge else "forgot"
    hint = "" if purge else "; `meritory undo ID` brings it back"
    plain = {"results": [{"id": memory_id, "purged": purge} for memory_id in records]}
    return Answer(plain, [Lines([f"{word} {ids[i]}{hint}" for i in records])])


def _note_copies(memory: Memory) -> None:
    """Names the copies that a purge cannot reach."""
    path = memory.services.store.place.file
    if path is None:
        note("backups of the database that were made before are not touched and may still hold it")
        return
    aside = sorted(path.parent.glob(f"{path.name}.before-restore-*"))
    backups = sorted((memory.settings.home / BACKUPS_NAME).glob("*.db"))
    if aside or backups:
        named = ", ".join(str(file) for file in (*aside, *backups)[:3])
        note(f"copies made before are not touched and may still hold it: {named}")


def _start(text: str) -> str:
    from meritory.cli.render import flat

    return flat(text)[:80]
