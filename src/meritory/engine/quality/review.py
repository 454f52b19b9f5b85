"""The review list: questions about memories that only their user can answer, and the answers.

It has pairs that look alike or give one claim two values, proposed pins and constraints, and
memories with evidence for and against them. The most used memories come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from meritory.domain.errors import Conflict, InputError
from meritory.domain.feedback import MISLED_USEFULNESS, Contested, Testimony, Witness
from meritory.domain.memory import EveryScope, MemoryRecord, Scope
from meritory.domain.quality import (
    REVIEW_ACTIONS,
    KeptText,
    LinkKind,
    MemoryLink,
    ReviewAction,
    ReviewItem,
    ReviewKind,
    ReviewPage,
)
from meritory.domain.world import epoch_days
from meritory.engine.feedback.summary import contested
from meritory.engine.learning.label import count_testimony
from meritory.engine.memories import pairs, purge, write
from meritory.engine.memories.validate import PROPOSED_PIN, checked_choice
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction

# Between the ids of a pair, which have letters and digits only.
PAIR_MARK = ":"
PAIR_ACTIONS: tuple[ReviewAction, ...] = ("merge", "newer", "keep")
# The most links that are read for one list, the latest first.
LINK_LIMIT = 1_000
PROPOSAL_LIMIT = 1_000
# Maintenance keeps this many open pairs that look alike.
ALIKE_LIMIT = 200
# The most links of a kind that one run of maintenance looks at.
PRUNE_LIMIT = 2_000
_VALUES: tuple[LinkKind, ...] = ("newer", "unsure")
_PAIR_ANSWERS: dict[LinkKind, tuple[ReviewAction, ...]] = {
    "alike": ("merge", "keep", "newer", "forget"),
    "newer": ("newer", "keep", "merge", "forget"),
    "unsure": ("newer", "keep", "merge", "forget"),
}


def review(services: Services, scope: Scope, limit: int, offset: int = 0) -> ReviewPage:
    """Return a page of the items about memories that a scope may see, the most used ones first."""
    user = scope.user
    store = services.store
    unsure = store.undecided_links(user, "unsure", LINK_LIMIT)
    links = [*store.open_links(user, LINK_LIMIT), *unsure]
    records = services.store.memories(user, _ends(links))
    everywhere = isinstance(scope, EveryScope)
    proposals = write.proposals(services, scope, PROPOSAL_LIMIT, everywhere=everywhere)
    seen = {record.id for record in proposals}
    disputed = [row for row in _undecided(services, user) if row.memory.id not in seen]
    alone = [*proposals, *(row.memory for row in disputed)]
    made = _ItemBuilder(services, user, [*records.values(), *alone])
    items = [_pair_item(link, records, made) for link in links if _has_both(link, records)]
    items += [
        made.item("proposal", _proposed(record), [record], ("confirm", "reject", "forget"))
        for record in proposals
    ]
    items += [
        made.item("contested", _evidence(row), [row.memory], ("confirm", "forget"))
        for row in disputed
    ]
    visible = [item for item in items if all(_can_see(scope, one) for one in item.memories)]
    visible.sort(key=_rank, reverse=True)
    return ReviewPage(tuple(visible[offset : offset + limit]), len(visible))


def decide(
    services: Services, records: Sequence[MemoryRecord], action: str, keep: KeptText | None = None
) -> list[MemoryRecord]:
    """Answer a question about one memory or two, and return the memories that changed.

    An undo of the first one takes the decision back.
    """
    checked_choice("action", action, REVIEW_ACTIONS)
    if keep is not None and action != "merge":
        raise InputError("`keep` is only for `merge`", hint="leave it out")
    wanted = 2 if action in PAIR_ACTIONS else 1
    if len(records) != wanted:
        hint = "name the one that goes" if action == "forget" else "see `meritory review --list`"
        memories = "two memories" if wanted == 2 else "one memory"
        raise InputError(f"`{action}` is about {memories}, not {len(records)}", hint=hint)
    one, other = records[0], records[-1]
    if action == "merge":
        return pairs.merge(services, one, other, keep)
    if action in PAIR_ACTIONS:
        return _settle(services, one, other, action)
    if action == "confirm":
        return [_confirm(services, one)]
    if action == "reject":
        return [write.reject(services, one)]
    pairs.require_may_decide(services, one)
    why = f"forgotten by {pairs.decider(services)} in a review"
    return [purge.forget(services, one, why)]


def _settle(
    services: Services, one: MemoryRecord, other: MemoryRecord, action: str
) -> list[MemoryRecord]:
    """Decide which memories of a pair hold; the link knows which one is the newer."""
    links = services.store.links_of(one.user, [one.id])
    if any((link.older_id, link.newer_id) == (other.id, one.id) for link in links):
        one, other = other, one
    decided = pairs.supersede if action == "newer" else pairs.separate
    return decided(services, one, other)


def _confirm(services: Services, record: MemoryRecord) -> MemoryRecord:
    confirmed = write.confirm(services, record)
    if confirmed.updated_at != record.updated_at:
        return confirmed
    # A contested memory has nothing to change, but a person has answered.
    if any(row.memory.id == record.id for row in _undecided(services, record.user)):
        if record.usefulness < MISLED_USEFULNESS:
            _count_confirmation(services, record)
        return pairs.note_confirmed(services, confirmed)
    raise Conflict(f"{record.id} has nothing to confirm", hint="see `meritory review --list`")


def _count_confirmation(services: Services, record: MemoryRecord) -> None:
    """Count the confirmation as evidence for a memory, so that one that misled is shown again."""
    world, store, user = services.world, services.store, record.user
    witness: Witness = "person" if services.is_person else "agent"
    source_id, added = world.new_id(), {record.id: Testimony(world.now(), witness, 1.0)}
    store.write(user, lambda t: count_testimony(store, t, user, source_id, added))


# -- items ------------------------------------------------------------------------------------


class _ItemBuilder:
    """How often memories were shown and found, to rank the items about them."""

    def __init__(self, services: Services, user: str, records: Sequence[MemoryRecord]) -> None:
        ids = list(dict.fromkeys(record.id for record in records))
        self._found = services.store.retrievals(user, ids)

    def item(
        self,
        kind: ReviewKind,
        why: str,
        records: Sequence[MemoryRecord],
        actions: tuple[ReviewAction, ...],
        link: MemoryLink | None = None,
    ) -> ReviewItem:
        """Return the item about these memories."""
        found = (self._found.get(record.id) for record in records)
        return ReviewItem(
            id=PAIR_MARK.join(record.id for record in records),
            kind=kind,
            why=why,
            at=records[0].updated_at if link is None else link.at,
            shown_count=sum(record.access_count for record in records),
            found_count=sum(one.count for one in found if one is not None),
            actions=actions,
            memories=tuple(records),
        )


def _pair_item(
    link: MemoryLink, records: dict[str, MemoryRecord], made: _ItemBuilder
) -> ReviewItem:
    pair = [records[link.older_id], records[link.newer_id]]
    return made.item(link.kind, link.reason, pair, _PAIR_ANSWERS[link.kind], link)


def _rank(item: ReviewItem) -> tuple[bool, int, datetime, str]:
    """Return the place of an item: sure ones first, then the most used ones, then the latest."""
    return item.kind != "unsure", item.shown_count + item.found_count, item.at, item.id


def _ends(links: Iterable[MemoryLink]) -> list[str]:
    """Return the ids of all memories that links join."""
    return list(dict.fromkeys(end for link in links for end in (link.older_id, link.newer_id)))


def _has_both(link: MemoryLink, records: dict[str, MemoryRecord]) -> bool:
    """Return whether both memories of a link are live; a damaged one is not read."""
    ends = (records.get(link.older_id), records.get(link.newer_id))
    return all(record is not None and record.is_live for record in ends)


def _can_see(scope: Scope, record: MemoryRecord) -> bool:
    return isinstance(scope, EveryScope) or (
        record.agent in (None, scope.agent) and record.project in (None, scope.project)
    )


def _proposed(record: MemoryRecord) -> str:
    what = "to pin it" if PROPOSED_PIN in record.tags else "it as a constraint"
    return f"an agent, a session or a file proposed {what}"


def _evidence(row: Contested) -> str:
    masses = f"{row.belief.support:.1f} for it, {row.belief.doubt:.1f} against it"
    if row.belief.usefulness < MISLED_USEFULNESS:
        return f"it misled sessions, so it is not shown: {masses}"
    return f"reports disagree: {masses}"


def _undecided(services: Services, user: str) -> list[Contested]:
    """Return contested memories that no person has confirmed since the last evidence."""
    latest = {
        row.memory.id: row.belief.as_of_day
        for row in services.store.contested(user, PROPOSAL_LIMIT)
    }

    def is_confirmed(row: Contested) -> bool:
        return any(
            entry.action == "confirm"
            and not entry.undone
            and epoch_days(entry.at) >= latest.get(row.memory.id, 0.0)
            for entry in services.store.history(user, row.memory.id)
        )

    return [row for row in contested(services, user) if not is_confirmed(row)]


# -- maintenance ------------------------------------------------------------------------------


def prune(services: Services, user: str) -> int:
    """Delete open links that are of no use any more, and return their number.

    Those are links of texts that were edited since, pairs that look alike of which one is gone, and
    the least used of too many such pairs. A chain of values keeps its links: a memory between two
    others may be gone.
    """
    store = services.store
    alike = store.undecided_links(user, "alike", PRUNE_LIMIT)
    values = [store.undecided_links(user, kind, PRUNE_LIMIT) for kind in _VALUES]
    links = [*alike, *(link for found in values for link in found)]
    records = store.memories(user, _ends(links))
    stale = [link for link in alike if not _has_both(link, records)]
    gone = {(link.older_id, link.newer_id) for link in stale}
    left = [link for link in links if (link.older_id, link.newer_id) not in gone]
    edited = [link for link in left if _was_edited(services, user, link, records)]
    stale += edited
    made = _ItemBuilder(services, user, list(records.values()))
    kept = [link for link in left if link.kind == "alike" and link not in edited]

    kept.sort(key=lambda link: _rank(_pair_item(link, records, made)), reverse=True)
    stale += kept[ALIKE_LIMIT:]

    def drop(transaction: Transaction) -> None:
        transaction.drop_links(user, stale)
        transaction.count(user, "links.dropped", len(stale))

    if stale:
        store.write(user, drop)
    return len(stale)


def _was_edited(
    services: Services, user: str, link: MemoryLink, records: dict[str, MemoryRecord]
) -> bool:
    """Return whether a text of a link was changed by hand since the link was made."""
    for end in (link.older_id, link.newer_id):
        record = records.get(end)
        if record is None or record.updated_at <= link.at:
            continue
        for entry in services.store.history(user, end):
            is_edit = entry.action == "update" and entry.at > link.at and not entry.undone
            if is_edit and entry.before and entry.before.content != record.content:
                return True
    return False
