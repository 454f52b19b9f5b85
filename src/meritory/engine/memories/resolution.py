"""What an agent adds to a write: the user's words as a quote, and how stored memories relate to it.

The agent is a language model, so it can tell whether two texts say the same. Its word counts as far
as its authority: it never changes a pin, a constraint or a stronger memory, and a merge drops no
value. A pair that it may not settle stays open for review.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from meritory.domain.errors import Conflict, MeritoryError, NotFound
from meritory.domain.memory import (
    Action,
    Draft,
    MemoryRecord,
    Outcome,
    Resolution,
    ResolutionResult,
    ResolvesAs,
    Source,
    WriteResult,
)
from meritory.domain.quality import LinkDecision, LinkKind, MemoryLink
from meritory.engine.memories.gate import gate_in_use, may_renew, may_supersede
from meritory.engine.memories.pairs import (
    agent_may_supersede,
    decided_by,
    is_reserved,
    links_between,
    loses_nothing,
    unasked_link,
)
from meritory.engine.memories.write import (
    BATCH_LIMIT,
    Prepared,
    PreparedBatch,
    decide_batch,
    indexed,
    is_act_of_person,
    prepare_batch,
    write,
)
from meritory.engine.services import Services
from meritory.engine.sessions.context import find_known_session
from meritory.store.contract.memories import MemoryChange, Near, NeighbourProbe
from meritory.store.contract.store import Transaction
from meritory.text.extract.attribution import is_typed

# An agent can tell paraphrases that the gate cannot, so it is shown memories from further away.
SIMILAR_FLOOR = 0.6
SIMILAR_LIMIT = 3
# More are read: some are settled already.
_SIMILAR_READ = 8
_SAID: dict[ResolvesAs, str] = {
    "same": "says the same as",
    "update": "replaces",
    "different": "is another claim than",
}


def remember(
    services: Services, user: str, drafts: Sequence[Draft | MeritoryError]
) -> list[WriteResult]:
    """Write drafts of one user, with their quotes verified and their resolutions applied."""
    quoted = [_is_quoted(services, user, draft) for draft in drafts]
    drafts = [
        _stated(draft) if is_quoted and isinstance(draft, Draft) else draft
        for draft, is_quoted in zip(drafts, quoted, strict=True)
    ]
    if any(isinstance(draft, Draft) and draft.resolves for draft in drafts):
        results = []
        for start in range(0, len(drafts), BATCH_LIMIT):
            prepared = prepare_batch(services, drafts[start:][:BATCH_LIMIT])
            results += _write_resolved(services, user, prepared)
    else:
        results = write(services, user, drafts)
    return [
        result if is_quoted is None else replace(result, is_quoted=is_quoted)
        for result, is_quoted in zip(results, quoted, strict=True)
    ]


# -- quotes -----------------------------------------------------------------------------------


def _is_quoted(services: Services, user: str, draft: Draft | MeritoryError) -> bool | None:
    """Return whether the user typed the quote of a draft in its session; None without a quote.

    Where the session is unknown, or no prompt hook reported what the user typed, it is unverified.
    """
    if not isinstance(draft, Draft) or draft.quote is None:
        return None
    key = draft.source.session_key if draft.source else None
    if key is None or draft.origin != "agent":
        return False
    try:
        session = find_known_session(services.store, draft.scope, key)
    except Conflict:
        return False
    if session is None or draft.project not in (None, session.project):
        return False
    typed = services.store.typed(user, key)
    return typed is not None and is_typed(typed, draft.quote, draft.content)


def _stated(draft: Draft) -> Draft:
    """Return the draft of an agent as a statement of the user; it remains the agent's text."""
    quote_hash = hashlib.sha256((draft.quote or "").encode()).hexdigest()
    source = replace(draft.source or Source(), quote_hash=quote_hash)
    return replace(draft, provenance="user_stated", source=source)


# -- resolutions ------------------------------------------------------------------------------


def _write_resolved(services: Services, user: str, prepared: PreparedBatch) -> list[WriteResult]:
    """Store one batch and apply its resolutions in the same transaction."""

    items = [item for item in prepared.items if isinstance(item, Prepared)]
    ids = [one.memory_id for item in items for one in item.draft.resolves]
    name = prepared.gate.embedder if prepared.gate else None
    vectors = services.store.vectors(user, name, ids) if name else {}

    def cosines_of(item: Prepared) -> dict[str, float]:
        own = item.memory.vectors.get(name or "")
        return {} if own is None else {one: float(own @ other) for one, other in vectors.items()}

    def work(transaction: Transaction) -> list[WriteResult]:
        results = decide_batch(services, transaction, prepared)
        for at, (item, result) in enumerate(zip(prepared.items, results, strict=True)):
            if isinstance(item, Prepared) and item.draft.resolves and result.memory is not None:
                resolver = _Resolver(services, transaction, item, result, cosines_of(item))
                results[at] = resolver.apply(result.memory, prepared.now)
        return results

    return services.store.write(user, work)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A stored memory, the one that the draft became, and why they are compared."""

    old: MemoryRecord
    new: MemoryRecord
    relation: ResolvesAs

    @property
    def why(self) -> str:
        """Return the reason that the history and the link keep."""
        return f"the writer says that {self.new.id} {_SAID[self.relation]} {self.old.id}"


class _Resolver:
    """Applies the resolutions of one draft after it was stored."""

    def __init__(
        self,
        services: Services,
        transaction: Transaction,
        item: Prepared,
        result: WriteResult,
        cosines: Mapping[str, float],
    ) -> None:
        self._services = services
        self._transaction = transaction
        # The writer has the authority of the draft. The memory that holds the text may be a
        # stronger one that existed before.
        self._writer = item.record
        self._by_person = is_act_of_person(services, item.record.origin)
        self._resolutions = item.draft.resolves
        self._cosines = cosines
        self._result = result

    def apply(self, memory: MemoryRecord, now: datetime) -> WriteResult:
        """Apply the resolutions in order and return what became of the draft."""
        self._memory, self._now = memory, now
        resolved = tuple(map(self._resolve, self._resolutions))
        return replace(self._result, memory=self._memory, resolved=resolved)

    def _resolve(self, resolution: Resolution) -> ResolutionResult:
        memory, name = self._memory, resolution.memory_id
        try:
            old = self._transaction.get(memory.user, name)
        except NotFound:
            return ResolutionResult(name, "unchanged", "there is no such memory")
        if old.id == memory.id:
            return ResolutionResult(name, "unchanged", "the text was stored in this memory")
        if old.superseded_by == memory.id:
            return ResolutionResult(name, "superseded", "the text itself says that it replaces it")
        if not old.is_live:
            return ResolutionResult(name, "unchanged", "it is forgotten or superseded already")
        pair = _Pair(old, memory, resolution.relation)
        if any(link.decision for link in self._links(pair)) and not self._by_person:
            return ResolutionResult(name, "unchanged", "it was decided about this pair before")
        if resolution.relation == "same":
            return self._merge(pair)
        return self._replace(pair) if resolution.relation == "update" else self._separate(pair)

    def _merge(self, pair: _Pair) -> ResolutionResult:
        """Retire the weaker or the less specific of two texts that say the same."""
        old, new = pair.old, pair.new
        oldest_first = sorted((old, new), key=_age)
        kept = next((one for one in oldest_first if self._may_merge(one, old, new)), None)
        if kept is None or old.scope != new.scope:
            return self._leave_open(pair, "it is stronger, or a value would be lost")
        dropped = new if kept is old else old
        self._retire(dropped, kept, pair, "same")
        self._memory = kept
        self._note("merged", dropped, pair)
        return ResolutionResult(old.id, "merged", f"`meritory undo {dropped.id}` takes it back")

    def _may_merge(self, kept: MemoryRecord, old: MemoryRecord, new: MemoryRecord) -> bool:
        dropped = new if kept is old else old
        by_person = self._by_person
        is_free = by_person or not (is_reserved(old) or is_reserved(new))
        # Neither the writer nor the surviving text may be the weaker one.
        is_free &= by_person or may_renew(dropped, self._writer, by_person=False)
        return is_free and loses_nothing(kept, dropped, by_person=by_person)

    def _replace(self, pair: _Pair) -> ResolutionResult:
        """Supersede the old memory by the new one."""
        old, new = pair.old, pair.new
        is_free = not is_reserved(old) and agent_may_supersede(old, new)
        is_free = is_free and may_supersede(old, self._writer)
        if not (self._by_person or is_free):
            return self._leave_open(pair, "it is stronger or newer, or of another project")
        self._retire(old, new, pair, "newer")
        self._note("superseded", old, pair)
        return ResolutionResult(old.id, "superseded", f"`meritory undo {old.id}` takes it back")

    def _separate(self, pair: _Pair) -> ResolutionResult:
        """Record that two memories are two claims, so that the pair is not asked about again."""
        if not self._by_person and (is_reserved(pair.old) or is_reserved(pair.new)):
            return self._leave_open(pair, "it is pinned, a constraint or a proposal")
        self._decide(self._linked(pair), "separate")
        change = self._change("separate", pair.new, pair.old, pair.why)
        self._transaction.update(indexed(pair.new, {}), change)
        return ResolutionResult(
            pair.old.id, "separate", f"`meritory undo {pair.new.id}` takes it back"
        )

    def _leave_open(self, pair: _Pair, reason: str) -> ResolutionResult:
        # Not as `newer`: a chain would hide the stronger memory behind the agent's.
        self._linked(pair)
        return ResolutionResult(pair.old.id, "open", f"{reason}; `meritory review` lists it")

    def _retire(
        self, dropped: MemoryRecord, kept: MemoryRecord, pair: _Pair, decision: LinkDecision
    ) -> None:
        retired = replace(dropped, superseded_by=kept.id, updated_at=self._now)
        change = self._change("supersede", dropped, kept, pair.why)
        self._transaction.update(indexed(retired, {}), change)
        if decision == "same":
            # Noted, so that the retired text does not count as an earlier value.
            self._linked(pair)
        for link in self._links(pair):
            self._decide(link, decision)

    def _note(self, outcome: Outcome, retired: MemoryRecord, pair: _Pair) -> None:
        self._result = replace(self._result, outcome=outcome, other_id=retired.id, reason=pair.why)

    def _decide(self, link: MemoryLink, decision: LinkDecision) -> None:
        by = decided_by(is_person=self._by_person)
        user = self._memory.user
        self._transaction.decide_link(user, link.older_id, link.newer_id, decision, by, self._now)

    def _links(self, pair: _Pair) -> list[MemoryLink]:
        return links_between(self._transaction, pair.new, pair.old)

    def _linked(self, pair: _Pair) -> MemoryLink:
        """Return the link of a pair; create one if it has none."""
        for link in self._links(pair):
            return link
        cosine = self._cosines.get(pair.old.id, 0.0)
        link = unasked_link(pair.old, pair.new, pair.why, self._now, cosine)
        self._transaction.put_links(pair.new.user, [link])
        return link

    def _change(
        self, action: Action, before: MemoryRecord, other: MemoryRecord, why: str
    ) -> MemoryChange:
        """Return a change of the operation that stored the text, so that one undo reverts both."""
        services = self._services
        first = self._transaction.history(self._writer.user, self._writer.id)[:1]
        operation = first[0].operation if first else services.world.new_id()
        return MemoryChange(
            operation, self._now, services.actor, action, why, before, other_id=other.id
        )


def _age(record: MemoryRecord) -> tuple[datetime, str]:
    return record.created_at, record.id


# -- similar memories -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Similar:
    """A stored memory that is near to a new one, about which nothing is decided."""

    memory: MemoryRecord
    cosine: float
    # Of their link: `newer` for another value of one claim, else `alike`.
    link: LinkKind

    @property
    def id(self) -> str:
        """Return the id of the memory."""
        return self.memory.id


def similar_to(
    services: Services, record: MemoryRecord, without: Collection[str] = ()
) -> list[Similar]:
    """Return the live memories of the same scope that are most similar to a memory."""
    serving, store = services.embedding.serving_name(), services.store
    gate = gate_in_use(services.policy, serving)
    if serving is None or gate is None or not record.is_live:
        return []
    vector = store.vectors(record.user, serving, [record.id]).get(record.id)
    if vector is None or not np.any(vector):
        return []
    floor = min(gate.floor, SIMILAR_FLOOR)
    probe = NeighbourProbe(record.scope, serving, vector[None, :], _SIMILAR_READ, floor)
    links = {
        name: link
        for link in store.links_of(record.user, [record.id])
        for name in (link.older_id, link.newer_id)
    }

    def is_open(near: Near) -> bool:
        link = links.get(near.memory.id)
        is_named = near.memory.id in (record.id, *without)
        return not is_named and (link is None or link.decision is None)

    found = [near for near in store.nearest(probe)[0] if is_open(near)][:SIMILAR_LIMIT]
    kinds = {name: link.kind for name, link in links.items()}
    return [Similar(one.memory, one.cosine, kinds.get(one.memory.id, "alike")) for one in found]
