"""The one way a memory is written: screen, embed, then decide and store in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.memory import (
    UNTRUSTED_ORIGINS,
    Action,
    Draft,
    MemoryRecord,
    Outcome,
    Scope,
    WriteResult,
)
from meritory.engine.memories.embedding import CHANGE_THRESHOLD, gate_threshold
from meritory.engine.memories.entities import attributes_of, dependencies_of
from meritory.engine.memories.gate import (
    GateVerdict,
    judge,
    may_renew,
    may_supersede,
    merged,
    refreshed,
)
from meritory.engine.memories.validate import screened_draft
from meritory.engine.services import Services
from meritory.ports.embedder import Vectors
from meritory.store.contract.store import Indexed, MemoryChange, Near, NeighbourProbe, Transaction
from meritory.text.claims.compare import says_change
from meritory.text.normalize import content_hash
from meritory.text.terms import index_words

BATCH_LIMIT = 512
NEIGHBOUR_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft with all that can be worked out before the transaction."""

    draft: Draft
    memory: Indexed

    @property
    def record(self) -> MemoryRecord:
        """The memory it becomes if nothing near is stored already."""
        return self.memory.record

    @property
    def digest(self) -> str:
        """The hash of its text."""
        return self.memory.content_hash


def _same_text(record: MemoryRecord, item: Prepared) -> bool:
    return record.content == item.record.content


def indexed(
    record: MemoryRecord, vectors: Mapping[str, Vectors], draft: Draft | None = None
) -> Indexed:
    """A memory with everything that is derived from its text and said beside it."""
    about, depends_on = (draft.about, draft.depends_on) if draft else ((), ())
    return Indexed(
        record,
        index_words(" ".join((record.content, *record.tags))),
        content_hash(record.content),
        vectors,
        attributes_of(record, about),
        dependencies_of(about, depends_on),
    )


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Drafts that are screened, embedded and ready for their transaction."""

    items: list[Prepared | MeritoryError]
    gate: Gate | None
    now: datetime


def write(services: Services, drafts: Sequence[Draft | MeritoryError]) -> list[WriteResult]:
    """Writes a list of drafts, batch by batch; each batch is one transaction and one fsync."""
    results: list[WriteResult] = []
    for start in range(0, len(drafts), BATCH_LIMIT):
        results += store_batch(services, prepare_batch(services, drafts[start:][:BATCH_LIMIT]))
    return results


def prepare_batch(services: Services, drafts: Sequence[Draft | MeritoryError]) -> PreparedBatch:
    """All that can be done before the transaction: screening, embedding, reading the texts."""
    now = services.world.now()
    serving = services.embedding.serving_name()
    items = _prepare(services, drafts, serving, now)
    return PreparedBatch(items, gate_in_use(services, serving), now)


def store_batch(
    services: Services,
    prepared: PreparedBatch,
    also: Callable[[Transaction], None] = lambda transaction: None,
) -> list[WriteResult]:
    """Decides and stores one batch in one transaction, with whatever else belongs to it."""

    def work(transaction: Transaction) -> list[WriteResult]:
        also(transaction)
        return decide_batch(services, transaction, prepared)

    return services.store.write(work)


def decide_batch(
    services: Services, transaction: Transaction, prepared: PreparedBatch
) -> list[WriteResult]:
    """Decides and stores one batch inside a transaction."""
    batch = WriteBatch(services, transaction, prepared.now, prepared.gate)
    batch.look_up([item for item in prepared.items if isinstance(item, Prepared)])
    results = [
        batch.decide(item)
        if isinstance(item, Prepared)
        else WriteResult("refused", None, item.message, error=item)
        for item in prepared.items
    ]
    for outcome, amount in Counter(result.outcome for result in results).items():
        transaction.count(services.user, f"write.{outcome}", amount)
    return results


@dataclass(frozen=True, slots=True)
class Gate:
    """The similarity gate: whose vectors, from which cosine on, and for stated changes."""

    embedder: str
    floor: float
    change_floor: float

    def floor_for(self, record: MemoryRecord) -> float:
        """From which cosine on a neighbour of this text is looked at."""
        return self.change_floor if says_change(record.content) else self.floor


def gate_in_use(services: Services, serving: str | None) -> Gate | None:
    """The gate as it is set; None where it is off or has no vectors to go by."""
    if serving is None or not services.policy.gate_enabled:
        return None
    chosen = services.policy.gate_threshold
    if chosen is not None:
        return Gate(serving, chosen, chosen)
    floor = gate_threshold(serving)
    return Gate(serving, floor, min(floor, CHANGE_THRESHOLD))


def _prepare(
    services: Services, drafts: Sequence[Draft | MeritoryError], serving: str | None, now: datetime
) -> list[Prepared | MeritoryError]:
    """Screens all drafts, then embeds those that passed in one go."""
    passed = [_screen(services, draft) for draft in drafts]
    texts = [draft.content for draft in passed if isinstance(draft, Draft)]
    made = iter(services.embedding.documents(texts))
    prepared: list[Prepared | MeritoryError] = []
    for draft in passed:
        if isinstance(draft, MeritoryError):
            prepared.append(draft)
            continue
        vectors = next(made)
        vector = vectors.get(serving or "")
        record = _record(draft, services.world.new_id(), now)
        if vector is not None and np.any(vector):
            record = replace(record, embedder=serving, dimension=len(vector))
        prepared.append(Prepared(draft, indexed(record, vectors, draft)))
    return prepared


def _screen(services: Services, draft: Draft | MeritoryError) -> Draft | MeritoryError:
    if isinstance(draft, MeritoryError):
        return draft
    try:
        return screened_draft(draft, services.policy.secrets)
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


class WriteBatch:
    """One transaction's view: what is stored already, and what this batch has added so far."""

    def __init__(
        self,
        services: Services,
        transaction: Transaction,
        now: datetime,
        gate: Gate | None,
    ) -> None:
        self._services = services
        self._transaction = transaction
        self._now = now
        self._gate = gate
        self._by_hash: dict[tuple[Scope, str], MemoryRecord] = {}
        self._near: dict[str, list[Near]] = {}
        # Drafts near to an earlier draft of this batch: (id of the earlier one, cosine).
        self._near_in_batch: dict[str, list[tuple[str, float]]] = {}
        # What each draft became, and memories of this transaction as they are by now.
        self._became: dict[str, str] = {}
        self._current: dict[str, MemoryRecord] = {}

    def look_up(self, items: Sequence[Prepared]) -> None:
        """Asks once per scope for exact duplicates and near neighbours of all drafts."""
        scopes: dict[Scope, list[Prepared]] = {}
        for item in items:
            scopes.setdefault(item.record.scope, []).append(item)
        for scope, group in scopes.items():
            known = self._transaction.live_by_hash(scope, [item.digest for item in group])
            self._by_hash |= {(scope, digest): record for digest, record in known.items()}
            if self._gate is not None:
                self._look_near(self._gate, scope, group)

    def _vector(self, item: Prepared) -> Vectors | None:
        return item.memory.vectors.get(self._gate.embedder) if self._gate else None

    def _look_near(self, gate: Gate, scope: Scope, group: Sequence[Prepared]) -> None:
        items = [item for item in group if self._vector(item) is not None]
        floors = np.array([gate.floor_for(item.record) for item in items], np.float32)
        for floor in np.unique(floors).tolist():
            asked = [item for item, own in zip(items, floors, strict=True) if own == floor]
            matrix = np.stack([item.memory.vectors[gate.embedder] for item in asked])
            found = self._transaction.nearest(
                NeighbourProbe(scope, gate.embedder, matrix, NEIGHBOUR_LIMIT, floor)
            )
            self._near |= {item.record.id: near for item, near in zip(asked, found, strict=True)}
        if len(items) > 1:
            self._look_near_in_batch(
                items, np.stack([item.memory.vectors[gate.embedder] for item in items]), floors
            )

    def _look_near_in_batch(
        self, items: Sequence[Prepared], matrix: Vectors, floors: Vectors
    ) -> None:
        cosines = np.tril(matrix @ matrix.T, -1)
        for later, earlier in np.argwhere(cosines >= floors[:, None]).tolist():
            if earlier < later:
                self._near_in_batch.setdefault(items[later].record.id, []).append(
                    (items[earlier].record.id, float(cosines[later, earlier]))
                )

    def decide(self, item: Prepared) -> WriteResult:
        """Stores one draft in the way its neighbours demand."""
        if item.draft.supersedes is not None:
            return self._supersede_named(item, item.draft.supersedes)
        if item.draft.on_similar == "keep":
            return self._insert(item, "stored", "")
        existing = self._by_hash.get((item.record.scope, item.digest))
        if existing is not None and self._now_of(existing).is_live:
            return self._refresh(item, self._now_of(existing))
        verdict = self._judge(item)
        if verdict.decision == "stored":
            return self._insert(item, "stored", "")
        nearest = verdict.near[0]
        if verdict.decision == "merged":
            return self._merge(item, nearest, verdict)
        if verdict.decision == "superseded":
            olds = [near.memory for near in verdict.near]
            return replace(self._supersede(item, olds, verdict.reason), cosine=nearest.cosine)
        # Why they were kept apart may quote the neighbour, so its id goes along for a purge.
        result = self._insert(item, "kept_both", verdict.reason, nearest.memory.id)
        return replace(result, cosine=nearest.cosine)

    def _judge(self, item: Prepared) -> GateVerdict:
        # What somebody says about another thing is not the same claim, whatever its words.
        if item.draft.about or self._gate is None or self._vector(item) is None:
            return GateVerdict("stored")
        near = {n.memory.id: n.cosine for n in self._near.get(item.record.id, [])}
        known = {n.memory.id: n.memory for n in self._near.get(item.record.id, [])}
        for draft_id, cosine in self._near_in_batch.get(item.record.id, []):
            memory_id = self._became.get(draft_id)
            if memory_id is not None:
                near[memory_id] = max(cosine, near.get(memory_id, cosine))
        found = [Near(self._current.get(i) or known[i], cosine) for i, cosine in near.items()]
        found.sort(key=lambda n: (-n.cosine, n.memory.id))
        live = [near for near in found if near.memory.is_live][:NEIGHBOUR_LIMIT]
        return judge(item.record, live, self._gate.floor)

    def _now_of(self, record: MemoryRecord) -> MemoryRecord:
        return self._current.get(record.id, record)

    def _insert(
        self, item: Prepared, outcome: Outcome, why: str, other_id: str | None = None
    ) -> WriteResult:
        change = replace(self._change("create", why), other_id=other_id)
        self._transaction.insert(item.memory, change)
        self._note(item, item.record)
        return WriteResult(outcome, item.record, why, other_id)

    def _refresh(self, item: Prepared, old: MemoryRecord) -> WriteResult:
        record = refreshed(old, item.record, self._now)
        is_repeat = replace(record, updated_at=old.updated_at) == old
        change = replace(self._change("refresh", "the same text again"), before=old)
        links = item.draft if may_renew(old, item.record) else None
        memory = indexed(record, item.memory.vectors if _same_text(record, item) else {}, links)
        # Saying the same thing a hundred times is not a hundred changes.
        self._transaction.update(memory, None if is_repeat and not item.draft.about else change)
        self._note(item, record)
        return WriteResult("duplicate", record, "the same text is stored already")

    def _merge(self, item: Prepared, near: Near, verdict: GateVerdict) -> WriteResult:
        old = near.memory
        if self._was_merged_before(item, old):
            return self._refresh(item, old)
        record = merged(old, item.record, verdict.survivor, self._now)
        change = replace(
            self._change("merge", f"{verdict.reason} (cosine {near.cosine:.3f})"),
            before=old,
            other=item.record,
            other_id=item.record.id,
        )
        vectors = item.memory.vectors if _same_text(record, item) else {}
        self._transaction.update(indexed(record, vectors, item.draft), change)
        self._note(item, record)
        return WriteResult("merged", record, verdict.reason, item.record.id, near.cosine)

    def _was_merged_before(self, item: Prepared, old: MemoryRecord) -> bool:
        """Whether this very wording is part of that memory already."""
        return any(
            entry.other is not None and content_hash(entry.other.content) == item.digest
            for entry in self._transaction.history(old.user, old.id)
            if entry.action == "merge" and not entry.undone
        )

    def _supersede_named(self, item: Prepared, memory_id: str) -> WriteResult:
        try:
            old = self._now_of(self._transaction.get(item.record.user, memory_id))
        except NotFound as error:
            return WriteResult("refused", None, error.message, error=error)
        # A person who names the memory to replace knows best, whatever the dates say.
        by_person = item.record.origin == "user"
        if old.is_live and (by_person or may_supersede(old, item.record)):
            return self._supersede(item, [old], "named by the writer")
        refusal = InputError(
            f"{old.id} cannot be superseded by this memory",
            hint="it is gone already, newer, or was pinned or stated by a person",
        )
        return WriteResult("refused", None, refusal.message, error=refusal)

    def _supersede(self, item: Prepared, olds: list[MemoryRecord], why: str) -> WriteResult:
        # The reason quotes the old text, so it stands in the old memories' history alone.
        change = self._change("create", "supersedes " + ", ".join(old.id for old in olds))
        self._transaction.insert(item.memory, change)
        self._note(item, item.record)
        for old in olds:
            retired = replace(old, superseded_by=item.record.id, updated_at=self._now)
            self._transaction.update(
                indexed(retired, {}),
                replace(change, action="supersede", why=why, before=old, other_id=item.record.id),
            )
            self._current[old.id] = retired
        return WriteResult("superseded", item.record, why, olds[0].id)

    def _note(self, item: Prepared, record: MemoryRecord) -> None:
        """Lets later drafts of the batch see what this one became."""
        self._current[record.id] = record
        self._became[item.record.id] = record.id
        self._by_hash[(record.scope, item.digest)] = record

    def _change(self, action: Action, why: str) -> MemoryChange:
        services = self._services
        return MemoryChange(services.world.new_id(), self._now, services.actor, action, why)
