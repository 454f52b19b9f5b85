"""The nightly search for pairs of memories that no link joins, though they look like one claim.

The gate links a memory when it is written. It misses pairs that were imported or written without
it, or while the embedder was off, and those beyond the neighbours that it compares. Each night
looks at a part of the memories and continues there the next night, round by round.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np

from meritory.domain.job import Job
from meritory.domain.memory import MemoryRecord
from meritory.domain.quality import MemoryLink
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect
from meritory.engine.memories.chains import ALIKE_LIMIT, links_of_changed
from meritory.engine.memories.gate import Gate, gate_in_use, judge, since
from meritory.engine.observe.observer import publish
from meritory.engine.quality.review import prune
from meritory.engine.services import Services
from meritory.store.contract.memories import Near, NeighbourProbe
from meritory.store.contract.store import Transaction

PAIRS_JOB = "pairs"
# The most memories that one night looks at, and the most links that it makes.
EXAMINED_LIMIT = 2_000
FOUND_LIMIT = 50
# Nothing is searched for while so many pairs wait for an answer.
OPEN_LIMIT = 400
# Small, so that other work of the process does not wait long.
BATCH_SIZE = 50
# More than the gate compares, because a crowd of near texts hides the pair.
NEIGHBOUR_LIMIT = 24
# Of two values as old as each other, the order in time says nothing about which one holds.
APART = timedelta(days=1)
# The row of the last memory that was looked at; 0 at the start of a round.
_POSITION = "pairs.position"


@dataclass(frozen=True, slots=True)
class PairSearch:
    """The result of one night."""

    examined: int
    found: int


def search(services: Services, user: str) -> PairSearch:
    """Link missed pairs, from the memory on where the last search ended."""
    store = services.store
    gate = gate_in_use(services.policy, services.embedding.serving_name())
    room = OPEN_LIMIT - len(store.open_links(user, OPEN_LIMIT))
    if gate is None or room <= 0:
        return PairSearch(0, 0)
    wanted, examined, found = min(FOUND_LIMIT, room), 0, 0
    position = store.counters(user).get(_POSITION, 0)
    stated = store.stated_attributes(user).keys()
    while examined < EXAMINED_LIMIT and found < wanted:
        batch = store.live_rows(user, position, min(BATCH_SIZE, EXAMINED_LIMIT - examined))
        links: list[MemoryLink] = []
        # A round is complete behind the last memory.
        after = 0
        for row, missed in _missed(services, gate, batch, stated):
            after, examined = row, examined + 1
            links += missed[: wanted - found - len(links)]
            if found + len(links) == wanted:
                break
        store.write(user, partial(_put, user, links, after - position))
        position, found = after, found + len(links)
        if not batch:
            break
    return PairSearch(examined, found)


def _put(user: str, links: Collection[MemoryLink], step: int, transaction: Transaction) -> None:
    """Store links together with the place to continue from."""
    transaction.put_links(user, list(links))
    if links:
        transaction.count(user, "links.found", len(links))
    transaction.count(user, _POSITION, step)


def _missed(
    services: Services, gate: Gate, batch: Mapping[int, MemoryRecord], stated: Collection[str]
) -> Iterator[tuple[int, list[MemoryLink]]]:
    """Yield by row the links that the memories of a batch lack."""
    now = services.world.now()
    ids = [record.id for record in batch.values()]
    if not ids:
        return
    user = next(iter(batch.values())).user
    near = _neighbours(services, gate, batch.values())
    linked: defaultdict[str, set[str]] = defaultdict(set)
    alike: Counter[str] = Counter()
    for link in services.store.links_of(user, ids):
        linked[link.older_id].add(link.newer_id)
        linked[link.newer_id].add(link.older_id)
        alike[link.newer_id] += link.kind == "alike"
    for row, record in batch.items():
        # The gate takes a text with a stated subject for a claim of its own.
        is_asked = record.id not in stated and _is_valid(record, now)
        earlier = [
            one
            for one in (near.get(record.id, ()) if is_asked else ())
            if one.memory.id not in linked[record.id]
            and _order(one.memory) < _order(record)
            and _is_valid(one.memory, now)
        ]
        links = _links(record, earlier, gate, now) if earlier else []
        found = [link for link in links if not _was_parted(services, user, link)]
        chains = [link for link in found if link.kind == "newer"]
        others = [link for link in found if link.kind == "alike"]
        yield row, chains + others[: max(0, ALIKE_LIMIT - alike[record.id])]


def _was_parted(services: Services, user: str, link: MemoryLink) -> bool:
    """Return whether a merge or a succession of the two was taken back."""
    ends = {link.older_id, link.newer_id}
    return any(
        entry.undone and {entry.memory_id, entry.other_id} == ends
        for end in ends
        for entry in services.store.history(user, end)
    )


def _neighbours(
    services: Services, gate: Gate, records: Iterable[MemoryRecord]
) -> dict[str, list[Near]]:
    """Return by memory its nearest live memories of the same scope."""
    records = list(records)
    found: dict[str, list[Near]] = {}
    vectors = services.store.vectors(records[0].user, gate.embedder, [one.id for one in records])
    for scope in dict.fromkeys(record.scope for record in records):
        group = [one for one in records if one.scope == scope and np.any(vectors.get(one.id, 0.0))]
        for floor in {gate.floor_for(one) for one in group}:
            asked = [one for one in group if gate.floor_for(one) == floor]
            matrix = np.stack([vectors[one.id] for one in asked])
            # One more than wanted: every memory is nearest to itself.
            probe = NeighbourProbe(scope, gate.embedder, matrix, NEIGHBOUR_LIMIT + 1, floor)
            found |= zip([one.id for one in asked], services.store.nearest(probe), strict=True)
    return found


def _links(
    record: MemoryRecord, earlier: list[Near], gate: Gate, now: datetime
) -> list[MemoryLink]:
    """Return the links of a memory to earlier ones, as the gate makes them for a new text."""
    same: list[Near] = []
    verdict = judge(record, earlier, gate.floor, by_person=False)
    while verdict.decision == "merged":
        # A search merges nothing: it asks.
        same += verdict.near
        earlier = [one for one in earlier if one not in verdict.near]
        verdict = judge(record, earlier, gate.floor, by_person=False)
    # What is unsure is linked when it is written: a search asks only what is worth an answer.
    verdict = replace(verdict, unsure=())
    links = links_of_changed(record, earlier, verdict, gate.floor, now)
    links = [_without_order(link, record, earlier) for link in links]
    return links + [
        MemoryLink(
            older_id=one.memory.id,
            newer_id=record.id,
            kind="alike",
            cosine=one.cosine,
            reason="the texts say the same",
            at=now,
        )
        for one in same
    ]


def _without_order(link: MemoryLink, record: MemoryRecord, earlier: list[Near]) -> MemoryLink:
    """Return a link that hides no value if the two are of the same day, as after an import."""
    other = next(one.memory for one in earlier if one.memory.id in (link.older_id, link.newer_id))
    is_ordered = abs(since(record) - since(other)) >= APART
    if is_ordered or link.kind == "alike":
        return link
    return replace(link, kind="alike", reason="perhaps two values of one claim, of the same day")


def _order(record: MemoryRecord) -> tuple[datetime, str]:
    return since(record), record.id


def _is_valid(record: MemoryRecord, now: datetime) -> bool:
    return record.valid_until is None or record.valid_until > now


def run_search(services: Services, job: Job) -> Effect:
    """Search, drop links of no use, and return the effect of the daily job: its event."""
    result = search(services, job.user)
    dropped = prune(services, job.user)
    details: dict[str, object] = {
        "examined": result.examined,
        "found": result.found,
        "dropped": dropped,
    }
    event = Event(
        at=services.world.now(), category="memory", name="memory.pairs_searched", details=details
    )

    def effect(transaction: Transaction) -> After | None:
        if not (result.found or dropped):
            return None
        transaction.log_events(job.user, [event])
        return partial(publish, services, [event])

    return effect
