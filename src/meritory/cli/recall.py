"""`meritory recall`: search, with filters and the parts of each score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    command,
    given_options,
    handles,
    limit_option,
    many_option,
    opened,
    scope_options,
)
from meritory.cli.memories import SHARE, elsewhere, memory_table, read_metadata
from meritory.cli.output import Answer, Block, Field, RecordView, note, number, to_json
from meritory.domain.codec import record_to_dict
from meritory.domain.memory import KINDS, NOTHING_KNOWN
from meritory.text.time import date_text

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import Recalled

RECALL_LIMIT_MAX = 1_000
_LEGS = ("cosine", "share", "text", "hybrid", "weight", "order")
_FITS = ("asked", "told", "soft", "condition")
_COMPOSITE = ("composite", "relevance", "recency", "usefulness", "confidence", "frequency")


@command("recall", 'meritory recall "when do we deploy?" --project heron')
@click.argument("query")
@limit_option(None, RECALL_LIMIT_MAX, "How many at most. Default: 10.")
@click.option("--explain", is_flag=True, help="Show every number behind each score.")
@click.option("--min-score", type=SHARE, help="The lowest score; 0 shows the best in any case.")
@many_option("--kind", "kind", "KIND", "Only this kind; may be repeated.", type=click.Choice(KINDS))
@many_option("--tag", "tags", "WORD", "Only with this tag; repeated: with all of them.")
@many_option("--of-project", "projects", "NAME", "Only of this project; may be repeated.")
@many_option("--metadata", "metadata", "NAME=VALUE", "Only with this field; may be repeated.")
@click.option("--since", metavar="TIME", help="Only what holds since then or later (ISO 8601).")
@click.option("--until", metavar="TIME", help="Only what holds since before then.")
@scope_options
def recall(
    query: str,
    limit: int | None,
    explain: bool,
    min_score: float | None,
    project: str | None,
    agent: str | None,
    **given: Any,
) -> Answer:
    """Find the memories that answer a query best.

    A score is the probability that a memory answers. Without --min-score nothing is shown if
    nothing is known about the query.
    """
    filters = given_options(**given)
    if "metadata" in filters:
        filters["metadata"] = read_metadata(filters["metadata"])
    with opened(project, agent) as memory:
        hits = memory.recall(query, limit, explain, min_score=min_score, **filters)
        if not hits:
            note(*_nothing_known(memory, query, filters))
        ids = handles(memory, (hit.id for hit in hits))
    blocks: list[Block] = []
    if hits and hits[0].parts is not None and hits[0].parts.read_as:
        note(f"read as: {hits[0].parts.read_as}")
    if hits:
        records, scores = [hit.memory for hit in hits], [hit.score for hit in hits]
        blocks.append(memory_table(records, ids, scores=scores, notes=map(_until, hits)))
    for names in (_LEGS, _FITS, _COMPOSITE) if explain else ():
        numbers = (Field("", name, f"parts.{name}", number(".6f")) for name in names)
        view = RecordView(Field("", "id", lambda hit: ids[hit.id], style="cyan"), *numbers)
        blocks += view.blocks(hits)
    results = []
    for hit in hits:
        parts = {} if hit.parts is None else {"parts": to_json(hit.parts)}
        until = {"until": to_json(hit.until)}
        results.append({**record_to_dict(hit.memory), "score": hit.score, **until, **parts})
    return Answer({"results": results}, *blocks)


def _until(hit: Recalled) -> str:
    return f" (until {date_text(hit.until)})" if hit.until else ""


def _nothing_known(memory: Memory, query: str, filters: Mapping[str, Any]) -> Iterator[str]:
    """Yield that nothing is known, the best score, and where else there are memories."""
    from meritory.engine.memories.recall import best_score

    best = best_score(memory.services, memory.scope, query, filters)
    nearest = "" if best is None else f" (best score {best:.2f}; --min-score 0 shows it)"
    yield NOTHING_KNOWN + nearest
    yield from elsewhere(memory)
