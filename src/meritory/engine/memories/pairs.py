"""Decide about two stored memories: merge them, let the newer one hold, or keep both.

Every decision is an entry in the history, so that one undo takes it back. If a link joins the two,
the decision is also noted there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from meritory.domain.errors import Conflict, InputError, NotFound, PersonOnly
from meritory.domain.memory import (
    MERGED_BY,
    Action,
    HistoryEntry,
    MemoryRecord,
)
from meritory.domain.quality import KeptText, LinkDecision, MemoryLink
from meritory.engine.memories.gate import may_renew, may_supersede, merged
from meritory.engine.memories.validate import PROPOSALS
from meritory.engine.memories.write import indexed, require_person
from meritory.engine.services import Services
from meritory.store.contract.memories import MemoryChange
from meritory.store.contract.store import Transaction
from meritory.text.claims.read import protected_values
from meritory.text.terms import index_words

Work = Callable[[Transaction, MemoryRecord, MemoryRecord, datetime], list[MemoryRecord]]


def merge(
    services: Services, first: MemoryRecord, second: MemoryRecord, keep: KeptText | None = None
) -> list[MemoryRecord]:
    """Merge two memories and return the one that stays, then the one that it supersedes.

    The text that says more stays, unless `keep` names one. Its memory takes over the details.
    """

    def work(
        transaction: Transaction, one: MemoryRecord, other: MemoryRecord, now: datetime
    ) -> list[MemoryRecord]:
        kept, gone = _kept_and_gone(services, one, other, keep)
        change = _change(services, "merge", MERGED_BY + decider(services), kept, gone, now)
        record = _merged(kept, gone, now)
        transaction.update(indexed(record, {}), replace(change, other=gone))
        transaction.copy_stated(record.user, gone.id, record.id)
        retired = replace(gone, superseded_by=kept.id, updated_at=now)
        change = replace(change, action="supersede", before=gone, other_id=kept.id)
        transaction.update(indexed(retired, {}), change)
        return [record, retired]

    return _decide(services, first, second, "same", work, is_asked=False)


def supersede(services: Services, older: MemoryRecord, newer: MemoryRecord) -> list[MemoryRecord]:
    """Let the newer memory of an open link supersede the older one; return the older one first."""

    def work(
        transaction: Transaction, old: MemoryRecord, new: MemoryRecord, now: datetime
    ) -> list[MemoryRecord]:
        if not (services.is_person or agent_may_supersede(old, new)):
            what = f"let {new.id} supersede {old.id}, which is newer, stronger or elsewhere"
            require_person(services.is_person, what, f"`meritory review newer {old.id} {new.id}`")
        retired = replace(old, superseded_by=new.id, updated_at=now)
        why = f"the newer one holds, decided by {decider(services)}"
        transaction.update(indexed(retired, {}), _change(services, "supersede", why, old, new, now))
        return [retired, new]

    return _decide(services, older, newer, "newer", work)


def separate(services: Services, older: MemoryRecord, newer: MemoryRecord) -> list[MemoryRecord]:
    """Keep both memories of an open link: they are two claims. Return the newer one first."""

    def work(
        transaction: Transaction, old: MemoryRecord, new: MemoryRecord, now: datetime
    ) -> list[MemoryRecord]:
        why = f"both were kept by {decider(services)}"
        transaction.update(indexed(new, {}), _change(services, "separate", why, new, old, now))
        return [new, old]

    return _decide(services, older, newer, "separate", work)


def note_confirmed(services: Services, record: MemoryRecord) -> MemoryRecord:
    """Record in the history that a person confirmed a memory, without changing it."""
    now = services.world.now()

    def work(transaction: Transaction) -> MemoryRecord:
        current = transaction.get(record.user, record.id)
        why = f"confirmed by {decider(services)}"
        change = _change(services, "confirm", why, current, None, now)
        transaction.update(indexed(current, {}), change)
        return current

    return services.store.write(record.user, work)


def decider(services: Services) -> str:
    """Return who decides, as the reason of a change says it."""
    return "a person" if services.is_person else "an agent"


def decided_by(*, is_person: bool) -> str:
    """Return who decides, as a link records it."""
    return "person" if is_person else "agent"


def agent_may_supersede(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Return whether an agent may let one memory supersede another."""
    return old.scope == new.scope and may_supersede(old, new)


def loses_nothing(kept: MemoryRecord, gone: MemoryRecord, *, by_person: bool) -> bool:
    """Return whether a merge by an agent's word keeps every value, and no weaker source."""
    return (
        kept.trust == gone.trust
        and kept.valid_until == gone.valid_until
        and may_renew(gone, kept, by_person=by_person)
        and _has_values_of(kept.content, gone.content)
    )


def _has_values_of(kept: str, dropped: str) -> bool:
    """Return whether a text has every value of another, and says as often "not"."""
    mine, other = protected_values(kept), protected_values(dropped)
    groups = ("numbers", "identifiers", "paths", "quotes", "names")
    has_all = all(set(getattr(other, name)) <= set(getattr(mine, name)) for name in groups)
    return has_all and mine.negation_count == other.negation_count


def has_proposal(record: MemoryRecord) -> bool:
    """Return whether a pin or constraint is proposed for a memory."""
    return not PROPOSALS.keys().isdisjoint(record.tags)


def is_reserved(record: MemoryRecord) -> bool:
    """Return whether only a person decides about a memory: a pin, a constraint or a proposal."""
    return record.is_binding or has_proposal(record)


def links_between(
    transaction: Transaction, one: MemoryRecord, other: MemoryRecord
) -> list[MemoryLink]:
    """Return the links of two memories with each other."""
    links = transaction.links_of(one.user, [one.id])
    return [link for link in links if other.id in (link.older_id, link.newer_id)]


def unasked_link(
    one: MemoryRecord, other: MemoryRecord, why: str, now: datetime, cosine: float = 0.0
) -> MemoryLink:
    """Return a link for two memories that no link joins, to note a decision about them."""
    older, newer = sorted((one, other), key=lambda record: (record.created_at, record.id))
    return MemoryLink(
        older_id=older.id, newer_id=newer.id, kind="alike", cosine=cosine, reason=why, at=now
    )


def require_may_decide(services: Services, *records: MemoryRecord) -> None:
    """Refuse a decision about a pin, a constraint or a proposal by anyone but a person."""
    for record in records:
        if is_reserved(record):
            what = f"decide about {record.id}, which is pinned, a constraint or a proposal"
            require_person(services.is_person, what, "`meritory review`")


def reopen_links(
    services: Services, transaction: Transaction, user: str, entry: HistoryEntry
) -> None:
    """Open the links again that were decided together with a change."""
    now, by = services.world.now(), decided_by(is_person=services.is_person)
    for link in transaction.links_of(user, [entry.memory_id]):
        if link.decision is not None and link.decided_at == entry.at:
            transaction.decide_link(user, link.older_id, link.newer_id, None, by, now)


# -- one decision -----------------------------------------------------------------------------


def _decide(
    services: Services,
    first: MemoryRecord,
    second: MemoryRecord,
    decision: LinkDecision,
    work: Work,
    *,
    is_asked: bool = True,
) -> list[MemoryRecord]:
    """Check two memories and their links, then change them and note the decision."""
    if first.user != second.user:
        raise NotFound(f"no memory {second.id!r}")
    if first.id == second.id:
        raise InputError(f"{first.id} was named twice", hint="name two different memories")
    user, now = first.user, services.world.now()

    def change(transaction: Transaction) -> list[MemoryRecord]:
        one, other = (transaction.get(user, record.id) for record in (first, second))
        links = links_between(transaction, one, other)
        if is_asked or (links and not services.is_person):
            # What a person decided about a pair is not for an agent to decide again.
            _require_open(links, one, other)
        for record in (one, other):
            if not record.is_live:
                raise Conflict(
                    f"{record.id} is forgotten or superseded",
                    hint=f"`meritory undo {record.id}` takes that back",
                )
        require_may_decide(services, one, other)
        if decision == "same" and one.scope != other.scope:
            raise Conflict(
                f"{one.id} and {other.id} belong to different projects or agents",
                hint="move one first: `meritory edit ID --project NAME`, or --clear project",
            )
        changed = work(transaction, one, other, now)
        if not links:
            links = [unasked_link(one, other, "merged without a question", now)]
            transaction.put_links(user, links)
        for link in links:
            ends = link.older_id, link.newer_id
            by = decided_by(is_person=services.is_person)
            transaction.decide_link(user, *ends, decision, by, now)
        return changed

    return services.store.write(user, change)


def _require_open(links: list[MemoryLink], one: MemoryRecord, other: MemoryRecord) -> None:
    if not links:
        raise NotFound(
            f"{one.id} and {other.id} are not in the review list",
            hint="`meritory review --list` shows it; `meritory merge A B` merges any two memories",
        )
    if all(link.decision is not None for link in links):
        raise Conflict(
            f"{one.id} and {other.id} were decided already ({links[0].decision}), by"
            f" the {links[0].decided_by}",
            hint="`meritory history ID` shows the decision, `meritory undo ID` takes it back",
        )


def _change(
    services: Services,
    action: Action,
    why: str,
    before: MemoryRecord,
    other: MemoryRecord | None,
    now: datetime,
) -> MemoryChange:
    operation = services.world.new_id()
    other_id = None if other is None else other.id
    return MemoryChange(operation, now, services.actor, action, why, before, other_id=other_id)


def _kept_and_gone(
    services: Services, first: MemoryRecord, second: MemoryRecord, keep: KeptText | None
) -> tuple[MemoryRecord, MemoryRecord]:
    """Return the memory whose text stays, and the other one; an agent may not merge all pairs."""
    if _keeps_first(first, second, keep):
        order = [(first, second), (second, first)]
    else:
        order = [(second, first), (first, second)]
    if services.is_person:
        return order[0]
    for kept, gone in order[: 1 if keep else 2]:
        if loses_nothing(kept, gone, by_person=False):
            return kept, gone
    kept, gone = order[0]
    raise PersonOnly(
        f"only a person may merge {gone.id} into {kept.id}: a value would be lost, or words of"
        " another source would count as the user's",
        hint=f"ask the user to run `meritory merge {kept.id} {gone.id}`",
    )


def _keeps_first(first: MemoryRecord, second: MemoryRecord, keep: KeptText | None) -> bool:
    """Return whether the first text stays: the one that is not weaker, then the one with more."""
    if keep is not None:
        return keep == "a"

    def order(record: MemoryRecord, other: MemoryRecord) -> tuple[bool, int, datetime, str]:
        words = len(set(index_words(record.content).split()))
        since = record.valid_from or record.created_at
        return may_renew(other, record, by_person=True), words, since, record.id

    return order(first, second) > order(second, first)


def _merged(kept: MemoryRecord, gone: MemoryRecord, now: datetime) -> MemoryRecord:
    """Return the memory that stays, with the details of the other one, as the gate merges them."""
    record = merged(kept, gone, "old", now)
    by_user = "user" in (kept.origin, gone.origin)
    # A person who chooses a text vouches for it.
    is_trusted = "trusted" in (kept.trust, gone.trust)
    return replace(
        record,
        origin="user" if by_user else kept.origin,
        trust="trusted" if is_trusted else kept.trust,
    )
