"""The one way a memory is written: screen, embed, then decide and store in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from tenure.errors import InputError, TenureError
from tenure.flow.drafts import screened
from tenure.flow.graph import attributes_of, dependencies_of
from tenure.flow.merge import GateVerdict, judge, may_supersede, merged, stated_at
from tenure.flow.services import Services
from tenure.ports.embedder import Vectors
from tenure.store.base import Change, Indexed, Near, Probe, Transaction
from tenure.text.normal import content_hash
from tenure.text.terms import index_words
from tenure.types import (
    UNTRUSTED_ORIGINS,
    Action,
    Draft,
    MemoryRecord,
    Outcome,
    Scope,
    WriteResult,
)

BATCH_LIMIT = 512
NEIGHBOUR_LIMIT = 5


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft with all that can be worked out before the transaction."""

    draft: Draft
    record: MemoryRecord
    digest: str
    vectors: dict[str, Vectors] = field(default_factory=dict)

    def indexed(self, record: MemoryRecord) -> Indexed:
        """This draft's memory, or one it was merged into, ready to be stored."""
        draft = self.draft
        vectors = self.vectors if record.content == self.record.content else {}
        return replace(
            indexed(record, vectors),
            attributes=attributes_of(record, draft.about),
            depends_on=dependencies_of(draft.about, draft.depends_on),
        )


def indexed(record: MemoryRecord, vectors: dict[str, Vectors] | None = None) -> Indexed:
    """A memory with everything that is derived from its text."""
    return Indexed(
        record,
        index_words(" ".join((record.content, *record.tags))),
        content_hash(record.content),
        vectors or {},
        attributes_of(record),
    )


def write(services: Services, drafts: Sequence[Draft | TenureError]) -> list[WriteResult]:
    """Writes a list of drafts, batch by batch; each batch is one transaction and one fsync."""
    results: list[WriteResult] = []
    for start in range(0, len(drafts), BATCH_LIMIT):
        results += write_batch(services, drafts[start : start + BATCH_LIMIT])
    return results


def write_batch(
    services: Services,
    drafts: Sequence[Draft | TenureError],
    also: Callable[[Transaction], None] = lambda transaction: None,
) -> list[WriteResult]:
    """Writes one batch in one transaction, together with whatever else belongs to it."""
    now = services.world.now()
    serving = services.embedding.serving_name()
    prepared = _prepare(services, drafts, serving, now)
    good = [item for item in prepared if isinstance(item, Prepared)]
    gate = serving if services.policy.gate_enabled else None
    threshold = services.policy.gate_threshold
    floor = services.embedding.gate_threshold if threshold is None else threshold

    def work(transaction: Transaction) -> list[WriteResult]:
        also(transaction)
        batch = Batch(services, transaction, now, gate, floor)
        batch.look_up(good)
        results = [
            batch.decide(item)
            if isinstance(item, Prepared)
            else WriteResult("refused", None, item.message, error=item)
            for item in prepared
        ]
        batch.count(results, drafts)
        return results

    return services.store.write(work)


def _prepare(
    services: Services, drafts: Sequence[Draft | TenureError], serving: str | None, now: datetime
) -> list[Prepared | TenureError]:
    """Screens all drafts, then embeds those that passed in one go."""
    passed = [_screen(services, draft) for draft in drafts]
    texts = [draft.content for draft in passed if isinstance(draft, Draft)]
    made = iter(services.embedding.documents(texts))
    prepared: list[Prepared | TenureError] = []
    for draft in passed:
        if isinstance(draft, TenureError):
            prepared.append(draft)
            continue
        vectors = next(made)
        vector = vectors.get(serving or "")
        record = _record(draft, services.world.new_id(), now)
        if vector is not None and np.any(vector):
            record = replace(record, embedder=serving, dimension=len(vector))
        prepared.append(Prepared(draft, record, content_hash(draft.content), vectors))
    return prepared


def _screen(services: Services, draft: Draft | TenureError) -> Draft | TenureError:
    if isinstance(draft, TenureError):
        return draft
    try:
        return replace(draft, content=screened(draft.content, services.policy.secrets))
    except InputError as error:
        return error


def _record(draft: Draft, memory_id: str, now: datetime) -> MemoryRecord:
    return MemoryRecord(
        id=memory_id,
        content=draft.content,
        kind=draft.kind,
        user=draft.user,
        agent=draft.agent,
        project=draft.project,
        provenance=draft.provenance,
        origin=draft.origin,
        trust="untrusted" if draft.origin in UNTRUSTED_ORIGINS else "trusted",
        confidence=draft.confidence,
        importance=draft.importance,
        pinned=draft.pinned,
        tags=draft.tags,
        sources=(draft.source,) if draft.source else (),
        valid_from=draft.valid_from,
        valid_until=draft.valid_until,
        created_at=draft.created_at or now,
        updated_at=now,
    )


class Batch:
    """One transaction's view: what is stored already, and what this batch has added so far."""

    def __init__(
        self,
        services: Services,
        transaction: Transaction,
        now: datetime,
        gate: str | None,
        floor: float,
    ) -> None:
        self._services = services
        self._transaction = transaction
        self._now = now
        self._gate = gate
        self._floor = floor
        self._by_hash: dict[tuple[Scope, str], MemoryRecord] = {}
        self._near: dict[str, list[Near]] = {}
        # Memories of this transaction as they are by now, for all that was read before.
        self._current: dict[str, MemoryRecord] = {}
        self._added: dict[Scope, list[tuple[str, Vectors]]] = {}

    def look_up(self, items: Sequence[Prepared]) -> None:
        """Asks once per scope for exact duplicates and near neighbours of all drafts."""
        scopes: dict[Scope, list[Prepared]] = {}
        for item in items:
            scopes.setdefault(item.record.scope, []).append(item)
        for scope, group in scopes.items():
            known = self._transaction.live_by_hash(scope, [item.digest for item in group])
            self._by_hash |= {(scope, digest): record for digest, record in known.items()}
            probing = [item for item in group if self._gate in item.vectors]
            if self._gate is None or not probing:
                continue
            matrix = np.stack([item.vectors[self._gate] for item in probing])
            found = self._transaction.nearest(
                Probe(scope, self._gate, matrix, NEIGHBOUR_LIMIT, self._floor)
            )
            self._near |= {item.record.id: near for item, near in zip(probing, found, strict=True)}

    def decide(self, item: Prepared) -> WriteResult:
        """Stores one draft in the way its neighbours demand."""
        if item.draft.supersedes is not None:
            try:
                old = self._transaction.get(item.record.user, item.draft.supersedes)
                return self._supersede(item, self._now_of(old), "named by the writer", None)
            except TenureError as error:
                return WriteResult("refused", None, error.message, error=error)
        existing = self._by_hash.get((item.record.scope, item.digest))
        if existing is not None and self._now_of(existing).is_live:
            return self._refresh(item, self._now_of(existing))
        verdict = self._judge(item)
        near = verdict.near
        if near is None or verdict.decision == "stored":
            return self._insert(item, "stored", "")
        if verdict.decision == "merged":
            return self._merge(item, near, verdict)
        if verdict.decision == "superseded":
            return self._supersede(item, near.memory, verdict.reason, near.cosine)
        result = self._insert(item, "kept_both", verdict.reason)
        return replace(result, other_id=near.memory.id, cosine=near.cosine)

    def _judge(self, item: Prepared) -> GateVerdict:
        if item.draft.on_similar == "keep" or self._gate not in item.vectors:
            return GateVerdict("stored")
        near = [Near(self._now_of(n.memory), n.cosine) for n in self._near.get(item.record.id, [])]
        near += self._near_in_batch(item)
        near.sort(key=lambda n: (-n.cosine, n.memory.id))
        return judge(item.record, [n for n in near if n.memory.is_live][:NEIGHBOUR_LIMIT])

    def _near_in_batch(self, item: Prepared) -> list[Near]:
        added = self._added.get(item.record.scope, [])
        vector = item.vectors.get(self._gate or "")
        if not added or vector is None or not np.any(vector):
            return []
        cosines = np.stack([other for _, other in added]) @ vector
        return [
            Near(self._current[added[at][0]], float(cosines[at]))
            for at in np.flatnonzero(cosines >= self._floor).tolist()
        ]

    def _now_of(self, record: MemoryRecord) -> MemoryRecord:
        return self._current.get(record.id, record)

    def _insert(self, item: Prepared, outcome: Outcome, why: str) -> WriteResult:
        self._transaction.insert(item.indexed(item.record), self._change("create", why))
        self._note(item, item.record)
        return WriteResult(outcome, item.record, why)

    def _refresh(self, item: Prepared, old: MemoryRecord) -> WriteResult:
        record = merged(old, item.record, "old", self._now)
        change = replace(self._change("refresh", "the same text again"), before=old)
        self._transaction.update(item.indexed(record), change)
        self._note(item, record)
        return WriteResult("duplicate", record, "the same text is stored already")

    def _merge(self, item: Prepared, near: Near, verdict: GateVerdict) -> WriteResult:
        old = near.memory
        record = merged(old, item.record, verdict.survivor, self._now)
        change = replace(
            self._change("merge", f"{verdict.reason} (cosine {near.cosine:.3f})"),
            before=old,
            other=item.record,
            other_id=item.record.id,
        )
        self._transaction.update(item.indexed(record), change)
        self._note(item, record)
        return WriteResult("merged", record, verdict.reason, item.record.id, near.cosine)

    def _supersede(
        self, item: Prepared, old: MemoryRecord, why: str, cosine: float | None
    ) -> WriteResult:
        if not old.is_live or not may_supersede(old, item.record):
            if item.draft.supersedes is not None:
                raise InputError(
                    f"{old.id} cannot be superseded by this memory",
                    hint="it is gone already, newer, or was pinned or stated by a person",
                )
            return self._insert(item, "kept_both", why)
        change = self._change("create", f"supersedes {old.id}: {why}")
        self._transaction.insert(item.indexed(item.record), change)
        self._note(item, item.record)
        retired = replace(old, superseded_by=item.record.id, updated_at=self._now)
        self._transaction.update(
            indexed(retired),
            replace(change, action="supersede", why=why, before=old, other_id=item.record.id),
        )
        self._current[old.id] = retired
        return WriteResult("superseded", item.record, why, old.id, cosine)

    def _note(self, item: Prepared, record: MemoryRecord) -> None:
        """Lets later drafts of the batch see what this one became."""
        self._current[record.id] = record
        self._by_hash[(record.scope, content_hash(record.content))] = record
        self._by_hash[(record.scope, item.digest)] = record
        if self._gate in item.vectors:
            vector = item.vectors[self._gate]
            self._added.setdefault(record.scope, []).append((record.id, vector))

    def _change(self, action: Action, why: str) -> Change:
        services = self._services
        return Change(services.world.new_id(), self._now, services.actor, action, why)

    def count(self, results: Sequence[WriteResult], drafts: Sequence[Draft | TenureError]) -> None:
        """Adds the outcomes to the counters."""
        outcomes = Counter(
            (draft.user if isinstance(draft, Draft) else None, result.outcome)
            for draft, result in zip(drafts, results, strict=True)
        )
        first = next((d.user for d in drafts if isinstance(d, Draft)), self._services.default_user)
        for (user, outcome), amount in outcomes.items():
            self._transaction.count(user or first, f"write.{outcome}", amount)


__all__ = ["Batch", "Prepared", "indexed", "stated_at", "write"]
