"""Commands about structure and figures: entities, describe, stats."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import handles, note, opened
from meritory.cli.gate import quality_pairs
from meritory.cli.options import command, scope_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import memory_table
from meritory.cli.search import elsewhere
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import NotFound
from meritory.domain.memory import OUTCOMES

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import Entity, EntityView


ENTITIES_LIMIT, ENTITIES_LIMIT_MAX = 50, 10_000
QUALITY_SAMPLE = 100
_STATES = ("live", "deleted", "superseded", "history", "entities")
_GROUPS = ("kind", "provenance", "trust", "write", "sessions", "feedback")
# How the kinds of entities are written in a text.
_WRITTEN = {"identifier": "`{}`", "name": "@{}", "tag": "#{}", "issue": "{}", "topic": "{}"}


@command("entities", "meritory entities --limit 20")
@click.option(
    "--limit",
    type=click.IntRange(1, ENTITIES_LIMIT_MAX),
    default=ENTITIES_LIMIT,
    show_default=True,
    help="How many at most.",
)
def entities(limit: int) -> Answer:
    """List what memories are about, most often first."""
    with opened() as memory:
        found = memory.entities(limit)
    if not found:
        note("no memory names anything yet: paths, `names`, #tags, @people and --about count")
    columns = (Column("kind"), Column("entity", "cyan", wraps=True), Column("memories"))
    rows = [(entity.kind, entity.name, str(entity.memory_count)) for entity in found]
    plain = {"results": [_entity_plain(entity) for entity in found]}
    return Answer(plain, [Table(columns, rows)] if rows else [])


def _entity_plain(entity: Entity) -> dict[str, Any]:
    return {
        "id": f"{entity.kind}:{entity.name}",
        "kind": entity.kind,
        "name": entity.name,
        "memory_count": entity.memory_count,
    }


@command("describe", "meritory describe src/api.py")
@click.argument("entity")
@scope_options
def describe(entity: str, project: str | None, agent: str | None) -> Answer:
    """Show all that is known about an entity.

    ENTITY is a path, a name or a topic, or KIND:NAME as `meritory entities --json` prints it.
    """
    with opened(project, agent) as memory:
        view = _view(memory, entity)
        ids = list(dict.fromkeys(i for found in view.aspects.values() for i in found))
        records = {memory_id: memory.get(memory_id) for memory_id in ids}
        shown_ids, now = handles(memory, ids), memory.services.world.now()
    blocks: list[Block] = [Lines([f"{view.entity.kind} {view.entity.name}"])]
    if view.depends_on:
        needed = ", ".join(f"{other.kind} {other.name}" for other in view.depends_on)
        blocks.append(Lines([f"depends on: {needed}"]))
    for aspect, members in view.aspects.items():
        table = memory_table([records[i] for i in members], shown_ids, now)
        blocks += [Lines(["", f"{aspect}:"]), table]
    plain = {
        "entity": _entity_plain(view.entity),
        "aspects": {name: list(members) for name, members in view.aspects.items()},
        "constraints": list(view.constraints),
        "depends_on": [_entity_plain(other) for other in view.depends_on],
        "results": [record_to_dict(record) for record in records.values()],
    }
    return Answer(plain, blocks)


def _view(memory: Memory, text: str) -> EntityView:
    """The entity as it was typed, else written the way a text would name it."""
    for writing in _writings(text):
        with contextlib.suppress(NotFound):
            return memory.describe(writing)
    hints = ["`meritory entities` lists what there is", *elsewhere(memory)]
    raise NotFound(f"nothing is known about {text[:80]!r}", hint="; ".join(hints))


def _writings(text: str) -> Iterator[str]:
    kind, colon, name = text.partition(":")
    if colon and kind in _WRITTEN:
        yield _WRITTEN[kind].format(name)
    elif colon and kind == "path":
        yield name
    yield text
    if text.strip() and not text.startswith(("`", "@", "#")):
        yield from (_WRITTEN[other].format(text) for other in ("identifier", "name", "tag"))


@command("stats", "meritory stats --json")
def stats() -> Answer:
    """Count memories, writes, sessions and fallbacks.

    Writes are counted by what became of them: stored, duplicate, merged, superseded, kept both,
    floored or refused. The figures of quality are of what was shown and judged lately, with no
    weight applied, and of a sample where they say so.
    """
    from meritory.engine.quality import figures as quality_figures

    with opened() as memory:
        figures = memory.stats()
        user = memory.scope.user
        found = quality_figures.figures(memory.services, user, QUALITY_SAMPLE)
    plain: dict[str, Any] = {"user": user, **{name: figures.pop(name, 0) for name in _STATES}}
    for group in _GROUPS:
        lead = group + "."
        known = dict.fromkeys(OUTCOMES, 0) if group == "write" else {}
        own = {name: figures.pop(name) for name in list(figures) if name.startswith(lead)}
        if group == "feedback":
            known = {"ratings": figures.pop("ratings", 0)}
        plain[group] = known | {name[len(lead) :]: amount for name, amount in own.items()}
    # What is left counts special events: splits, undone changes, purges and every fallback.
    plain["other"] = figures
    plain["quality"] = asdict(found)
    blocks: list[Block] = [Fields(_stats_pairs(plain)), Lines(["", "Quality"])]
    return Answer(plain, [*blocks, Fields(quality_pairs(found))])


def _stats_pairs(plain: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [
        ("user", plain["user"]),
        (
            "memories",
            f"{plain['live']} live, {plain['deleted']} forgotten, {plain['superseded']} superseded",
        ),
        ("changes", f"{plain['history']} in the history"),
        ("entities", str(plain["entities"])),
    ]
    for group, label in (
        ("kind", "kinds"),
        ("provenance", "provenance"),
        ("trust", "trust"),
        ("write", "writes"),
        ("sessions", "sessions"),
        ("feedback", "ratings"),
        ("other", "other events"),
    ):
        told = ", ".join(f"{many} {name.replace('_', ' ')}" for name, many in plain[group].items())
        pairs.append((label, told or "none"))
    return pairs
