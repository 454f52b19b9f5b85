"""Write memories: screen and embed the drafts, then decide and store them in one transaction.

Every memory is written and updated here. The decisions run on the store's writer thread. Each
change keeps the previous version in the history of the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import numpy as np

from meritory.domain.errors import Conflict, InputError, MeritoryError, NotFound, PersonOnly
from meritory.domain.memory import (
    UNTRUSTED_ORIGINS,
    Action,
    Draft,
    Listing,
    MemoryRecord,
    Outcome,
    Scope,
    WriteResult,
)
from meritory.engine.memories import chains, validate
from meritory.engine.memories.gate import (
    Gate,
    GateVerdict,
    gate_in_use,
    judge,
    may_renew,
    may_supersede,
    merged,
    near_or_related,
    refreshed,
    since,
)
from meritory.engine.services import Services
from meritory.ports.embedder import Vectors
from meritory.store.contract.memories import Attribute, Indexed, MemoryChange, Near, NeighbourProbe
from meritory.store.contract.store import Transaction
from meritory.text.entities import entity_key, mentions, parse_about
from meritory.text.normalize import checked_content, content_hash
from meritory.text.terms import index_words

BATCH_LIMIT = 512
NEIGHBOUR_LIMIT = 8
# More drafts at once are an import.
FEW_DRAFTS = 16
# Fields that a memory takes over from its draft unchanged, and those that an update may change.
SHARED_FIELDS = tuple(
    draft_field.name
    for draft_field in fields(Draft)
    if draft_field.name in {field.name for field in fields(MemoryRecord)} - {"created_at"}
)
# Fields by which the links of a memory are found, besides its text.
_RELINKING = frozenset({"valid_from", "agent", "project"})
UPDATABLE = tuple(name for name in SHARED_FIELDS if name not in ("user", "provenance", "origin"))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft, with the memory that is stored if the gate finds no neighbour."""

    draft: Draft
    memory: Indexed

    @property
    def record(self) -> MemoryRecord:
        """The memory without its index entries."""
        return self.memory.record

    @property
    def is_kept(self) -> bool:
        """Whether it is stored as it is, whatever is near."""
        draft = self.draft
        return draft.on_similar == "keep" or draft.supersedes is not None or bool(draft.about)

    @property
    def digest(self) -> str:
        """The hash of its text."""
        return self.memory.content_hash


def indexed(
    record: MemoryRecord, vectors: Mapping[str, Vectors], draft: Draft | None = None
) -> Indexed:
    """Return a memory with its index entries: words, hash, vectors, entities and dependencies."""
    about, depends_on = (draft.about, draft.depends_on) if draft else ((), ())
    attributes: dict[tuple[str, str], Attribute] = {}

    def add(kind: str, name: str, aspect: str | None = None, *, stated: bool = False) -> None:
        attribute = Attribute(entity_key(kind, name), kind, name, aspect or record.kind, stated)
        attributes.setdefault((attribute.key, attribute.aspect), attribute)

    subjects = [parse_about(text) for text in about]
    for subject in subjects:
        add(subject.entity.kind, subject.entity.name, subject.aspect, stated=True)
    for mention in mentions(record.content):
        add(mention.kind, mention.name)
    for tag in record.tags:
        add("tag", tag)
    if record.project is not None:
        add("project", record.project)

    def entity(kind: str, name: str) -> Attribute:
        return Attribute(entity_key(kind, name), kind, name, "")

    dependents = [entity(subject.entity.kind, subject.entity.name) for subject in subjects]
    needed = [entity(e.kind, e.name) for e in (parse_about(text).entity for text in depends_on)]
    return Indexed(
        record,
        index_words(" ".join((record.content, *record.tags))),
        content_hash(record.content),
        vectors,
        tuple(attributes.values()),
        tuple((one, other) for one in dependents for other in needed if one != other),
    )


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Drafts that are screened, embedded and ready to be stored."""

    items: list[Prepared | MeritoryError]
    gate: Gate | None
    now: datetime
    # Why drafts may name a memory that they supersede, for the history.
    naming_reason: str = "named by the writer"


def write(
    services: Services, user: str, drafts: Sequence[Draft | MeritoryError]
) -> list[WriteResult]:
    """Write drafts of one user in batches; each batch is one transaction and one fsync."""
    results: list[WriteResult] = []
    for start in range(0, len(drafts), BATCH_LIMIT):
        prepared = prepare_batch(services, drafts[start:][:BATCH_LIMIT])
        results += store_batch(services, user, prepared)
    return results


def prepare_batch(services: Services, drafts: Sequence[Draft | MeritoryError]) -> PreparedBatch:
    """Screen and embed drafts, ahead of the transaction that stores them."""
    now = services.world.now()
    serving = services.embedding.serving_name()
    clean: list[Draft | MeritoryError] = []
    for draft in drafts:
        if isinstance(draft, Draft):
            try:
                draft = validate.screened_draft(draft, services.policy.secrets.policy)
                if not is_act_of_person(services, draft.origin):
                    draft = validate.only_proposed(draft)
            except InputError as error:
                draft = error
        clean.append(draft)
    texts = [draft.content for draft in clean if isinstance(draft, Draft)]
    embedded = iter(services.embedding.documents(texts))
    items: list[Prepared | MeritoryError] = []
    for draft in clean:
        if isinstance(draft, MeritoryError):
            items.append(draft)
            continue
        vectors = next(embedded)
        vector = vectors.get(serving or "")
        has_vector = vector is not None and bool(np.any(vector))
        record = MemoryRecord(
            id=services.world.new_id(),
            created_at=draft.created_at or now,
            updated_at=now,
            trust="untrusted" if draft.origin in UNTRUSTED_ORIGINS else "trusted",
            sources=(draft.source,) if draft.source else (),
            embedder=serving if has_vector else None,
            dimension=len(vector) if vector is not None and has_vector else None,
            **{name: getattr(draft, name) for name in SHARED_FIELDS},
        )
        items.append(Prepared(draft, indexed(record, vectors, draft)))
    return PreparedBatch(items, gate_in_use(services.policy, serving), now)


def is_act_of_person(services: Services, origin: str) -> bool:
    """Return whether a person sets or lifts what is asked here: a pin or a constraint.

    The surface decides who acts, and the caller may say that the text is not a person's.
    """
    return services.is_person and origin == "user"


def require_person(by_person: bool, what: str, commands: str) -> None:
    """Refuse an act that only a person may do, by the command line or an admin token."""
    if not by_person:
        raise PersonOnly(f"only a person may {what}", hint=f"ask the user to run {commands}")


def require_may_change(record: MemoryRecord, *, by_person: bool) -> None:
    """Refuse a change of a pin or a constraint by anyone but a person."""
    if record.is_binding:
        name = record.id
        commands = f"`meritory edit {name}` or `meritory forget {name}`"
        require_person(by_person, f"change {name}, which is pinned or a constraint", commands)


def store_batch(
    services: Services,
    user: str,
    prepared: PreparedBatch,
    also: Callable[[Transaction], None] = lambda transaction: None,
) -> list[WriteResult]:
    """Decide and store one batch in one transaction, together with `also`."""

    def work(transaction: Transaction) -> list[WriteResult]:
        also(transaction)
        return decide_batch(services, transaction, prepared)

    return services.store.write(user, work)


def decide_batch(
    services: Services, transaction: Transaction, prepared: PreparedBatch
) -> list[WriteResult]:
    """Decide and store one batch inside a transaction."""
    batch = WriteBatch(services, transaction, prepared)
    batch.find_existing([item for item in prepared.items if isinstance(item, Prepared)])
    results = [
        batch.decide(item)
        if isinstance(item, Prepared)
        else WriteResult("refused", None, item.message, error=item)
        for item in prepared.items
    ]
    for outcome, amount in Counter(result.outcome for result in results).items():
        transaction.count(services.user, f"write.{outcome}", amount)
    return results


class WriteBatch:
    """The memories that a batch must be compared with: stored ones and its own."""

    def __init__(
        self, services: Services, transaction: Transaction, prepared: PreparedBatch
    ) -> None:
        self._services = services
        self._transaction = transaction
        self._now = prepared.now
        self._gate = prepared.gate
        self._naming_reason = prepared.naming_reason
        self._by_hash: dict[tuple[Scope, str], MemoryRecord] = {}
        self._near: dict[str, list[Near]] = {}
        # For each draft the near drafts before it in this batch: (id, cosine).
        self._near_in_batch: dict[str, list[tuple[str, float]]] = {}
        # The memory that each draft became, and the current version of each changed memory.
        self._became: dict[str, str] = {}
        self._current: dict[str, MemoryRecord] = {}

    def find_existing(self, items: Sequence[Prepared]) -> None:
        """Find the exact duplicates and the neighbours of all drafts, with one query per scope."""
        scopes: dict[Scope, list[Prepared]] = {}
        for item in items:
            scopes.setdefault(item.record.scope, []).append(item)
        for scope, group in scopes.items():
            existing = self._transaction.live_by_hash(scope, [item.digest for item in group])
            self._by_hash |= {(scope, digest): record for digest, record in existing.items()}
            if self._gate is not None:
                self._find_neighbours(self._gate, scope, group)

    def _find_neighbours(self, gate: Gate, scope: Scope, group: Sequence[Prepared]) -> None:
        items = [item for item in group if gate.embedder in item.memory.vectors]
        # What is stored whatever is near needs no search, which grows with the store.
        judged = [item for item in items if not item.is_kept]
        is_bulk = len(judged) > FEW_DRAFTS
        floor_of = {item.record.id: gate.floor_for(item.record, is_bulk=is_bulk) for item in judged}
        for floor in sorted(set(floor_of.values())):
            asked = [item for item in judged if floor_of[item.record.id] == floor]
            matrix = np.stack([item.memory.vectors[gate.embedder] for item in asked])
            is_wanted = near_or_related([item.record.content for item in asked], gate.floor)
            probe = NeighbourProbe(scope, gate.embedder, matrix, NEIGHBOUR_LIMIT, floor, is_wanted)
            ids = [item.record.id for item in asked]
            self._near |= zip(ids, self._transaction.nearest(probe), strict=True)
        if len(items) < 2 or not judged:
            return
        floors = np.array([floor_of.get(item.record.id, np.inf) for item in items], np.float32)
        # Drafts of this batch are neighbours of each other, too.
        matrix = np.stack([item.memory.vectors[gate.embedder] for item in items])
        cosines = np.tril(matrix @ matrix.T, -1)
        for later, earlier in np.argwhere(cosines >= floors[:, None]).tolist():
            if earlier < later:
                near = self._near_in_batch.setdefault(items[later].record.id, [])
                near.append((items[earlier].record.id, float(cosines[later, earlier])))

    def decide(self, item: Prepared) -> WriteResult:
        """Store one draft: insert, refresh, merge or supersede."""
        if item.draft.supersedes is not None:
            return self._supersede_named(item, item.draft.supersedes)
        if item.draft.on_similar == "keep":
            return self._insert(item, "stored", "")
        existing = self._by_hash.get((item.record.scope, item.digest))
        if existing is not None and self._current_version(existing).is_live:
            return self._refresh(item, self._current_version(existing))
        gate = self._gate
        # A draft with a stated subject is never the same claim as its neighbours.
        if item.draft.about or gate is None or gate.embedder not in item.memory.vectors:
            return self._insert(item, "stored", "")
        near = self._neighbours(item)
        verdict = judge(item.record, near, gate.floor, by_person=self._by_person(item))
        if verdict.decision == "merged":
            return self._merge(item, verdict.near[0], verdict)
        result = self._store_judged(item, verdict)
        links = chains.links_of_new(item.record, near, verdict, gate.floor, self._now)
        if links:
            self._transaction.put_links(item.record.user, links)
        return result

    def _store_judged(self, item: Prepared, verdict: GateVerdict) -> WriteResult:
        if verdict.decision == "stored":
            return self._insert(item, "stored", "")
        nearest = verdict.near[0]
        if verdict.decision == "superseded":
            olds = [near.memory for near in verdict.near]
            return replace(self._supersede(item, olds, verdict.reason), cosine=nearest.cosine)
        # The reason may quote the neighbour; its id lets a purge of the neighbour erase the quote.
        result = self._insert(item, "kept_both", verdict.reason, nearest.memory.id)
        return replace(result, cosine=nearest.cosine)

    def _neighbours(self, item: Prepared) -> list[Near]:
        """Return the live neighbours of a draft, nearest first."""
        neighbours = self._near.get(item.record.id, [])
        stored = {n.memory.id: n.memory for n in neighbours}
        cosines = {n.memory.id: n.cosine for n in neighbours}
        for draft_id, cosine in self._near_in_batch.get(item.record.id, []):
            memory_id = self._became.get(draft_id)
            if memory_id is not None:
                cosines[memory_id] = max(cosine, cosines.get(memory_id, cosine))
        near = [Near(self._current.get(i) or stored[i], cosine) for i, cosine in cosines.items()]
        near.sort(key=lambda n: (-n.cosine, n.memory.id))
        return [n for n in near if n.memory.is_live][:NEIGHBOUR_LIMIT]

    def _by_person(self, item: Prepared) -> bool:
        # A lesson that a report taught is no explicit act on another memory.
        is_lesson = item.record.kind == "lesson"
        return is_act_of_person(self._services, item.record.origin) and not is_lesson

    def _current_version(self, record: MemoryRecord) -> MemoryRecord:
        return self._current.get(record.id, record)

    def _insert(
        self, item: Prepared, outcome: Outcome, why: str, other_id: str | None = None
    ) -> WriteResult:
        change = replace(self._change("create", why), other_id=other_id)
        self._transaction.insert(item.memory, change)
        self._remember(item, item.record)
        return WriteResult(outcome, item.record, why, other_id)

    def _refresh(self, item: Prepared, old: MemoryRecord) -> WriteResult:
        by_person = self._by_person(item)
        record = refreshed(old, item.record, self._now, by_person=by_person)
        is_repeat = replace(record, updated_at=old.updated_at) == old
        change = replace(self._change("refresh", "the same text again"), before=old)
        links = item.draft if may_renew(old, item.record, by_person=by_person) else None
        # A repeat adds no entry to the history.
        self._update(item, record, None if is_repeat and not item.draft.about else change, links)
        return WriteResult("duplicate", record, "the same text is stored already")

    def _merge(self, item: Prepared, near: Near, verdict: GateVerdict) -> WriteResult:
        old = near.memory
        for entry in self._transaction.history(old.user, old.id):
            other = entry.other if entry.action == "merge" and not entry.undone else None
            if other is not None and content_hash(other.content) == item.digest:
                # This wording was merged into that memory already.
                return self._refresh(item, old)
        record = merged(old, item.record, verdict.survivor, self._now)
        change = replace(
            self._change("merge", f"{verdict.reason} (cosine {near.cosine:.3f})"),
            before=old,
            other=item.record,
            other_id=item.record.id,
        )
        self._update(item, record, change, item.draft)
        return WriteResult("merged", record, verdict.reason, item.record.id, near.cosine)

    def _update(
        self, item: Prepared, record: MemoryRecord, change: MemoryChange | None, links: Draft | None
    ) -> None:
        """Store the memory that a draft changed, with the draft's vectors if it took its text."""
        vectors = item.memory.vectors if record.content == item.record.content else {}
        self._transaction.update(indexed(record, vectors, links), change)
        self._remember(item, record)

    def _supersede_named(self, item: Prepared, memory_id: str) -> WriteResult:
        try:
            old = self._current_version(self._transaction.get(item.record.user, memory_id))
        except NotFound as error:
            return WriteResult("refused", None, error.message, error=error)
        # A person may replace any memory by name, regardless of dates.
        by_person = self._by_person(item)
        may_replace = not old.is_binding and may_supersede(old, item.record)
        if old.is_live and (by_person or may_replace):
            return self._supersede(item, [old], self._naming_reason)
        is_gone = "it is forgotten or superseded already"
        is_stronger = "it is newer, more trusted, or a person pinned or stated it"
        refusal = InputError(
            f"{old.id} cannot be superseded: {is_stronger if old.is_live else is_gone}",
            hint="store the memory without `supersedes`",
        )
        return WriteResult("refused", None, refusal.message, error=refusal)

    def _supersede(self, item: Prepared, olds: list[MemoryRecord], why: str) -> WriteResult:
        # The reason quotes the old text, so only the history of the old memories keeps it.
        change = self._change("create", "supersedes " + ", ".join(old.id for old in olds))
        self._transaction.insert(item.memory, change)
        self._remember(item, item.record)
        for old in olds:
            retired = replace(old, superseded_by=item.record.id, updated_at=self._now)
            self._transaction.update(
                indexed(retired, {}),
                replace(change, action="supersede", why=why, before=old, other_id=item.record.id),
            )
            self._current[old.id] = retired
        return WriteResult("superseded", item.record, why, olds[0].id)

    def _remember(self, item: Prepared, record: MemoryRecord) -> None:
        """Let later drafts of the batch see the memory that this one became."""
        self._current[record.id] = record
        self._became[item.record.id] = record.id
        self._by_hash[(record.scope, item.digest)] = record

    def _change(self, action: Action, why: str) -> MemoryChange:
        services = self._services
        return MemoryChange(services.world.new_id(), self._now, services.actor, action, why)


# -- changes ----------------------------------------------------------------------------------


def update(
    services: Services, record: MemoryRecord, given: Mapping[str, Any], *, origin: str = "user"
) -> MemoryRecord:
    """Change fields of a memory. An update never merges memories, and only a person's binds."""
    by_person = is_act_of_person(services, origin)
    validate.known_fields(given, UPDATABLE)
    values = {
        name: validate.checked_field(name, v) for name, v in given.items() if name != "content"
    }
    names = [values.get("agent"), values.get("project")]
    names += validate.metadata_texts(values.get("metadata", {}))
    for text in (*values.get("tags", ()), *names):
        validate.screened(text or "", "refuse")
    if "content" in given:
        content = checked_content(given["content"])
        values["content"] = validate.screened(content, services.policy.secrets.policy)

    def change(current: MemoryRecord) -> MemoryRecord:
        _require_live(current)
        require_may_change(current, by_person=by_person)
        tags = validate.kept_tags(values.get("tags", current.tags), current.tags)
        changed = replace(current, **{**values, "tags": tags})
        validate.check_validity(changed.valid_from, changed.valid_until)
        if not by_person:
            kind = current.kind if changed.kind == "constraint" else changed.kind
            changed = replace(validate.only_proposed(changed), kind=kind)
        is_quote = current.provenance == "user_stated"
        if is_quote and changed.content != current.content:
            what = f"change the text of {current.id}, which the user stated"
            require_person(by_person, what, f"`meritory edit {current.id}`")
        return validate.settled(changed)

    # Links are found by the text, the date and the scope.
    text = values.get("content", None if _RELINKING.isdisjoint(values) else record.content)
    return apply_change(services, record, change, "update", content=text)


def confirm(services: Services, record: MemoryRecord) -> MemoryRecord:
    """Mark a memory as trusted and accept its proposed pin or constraint."""
    require_person(services.is_person, "confirm a memory", f"`meritory confirm {record.id}`")

    def change(current: MemoryRecord) -> MemoryRecord:
        _require_live(current)
        confirmed = replace(
            current,
            trust="trusted",
            pinned=current.pinned or validate.PROPOSED_PIN in current.tags,
            kind="constraint" if validate.PROPOSED_CONSTRAINT in current.tags else current.kind,
        )
        return validate.settled(confirmed)

    return apply_change(services, record, change, "confirm")


def reject(services: Services, record: MemoryRecord) -> MemoryRecord:
    """Keep a memory without its proposed pin or constraint; the same text proposes no more."""
    commands = f"`meritory proposals reject {record.id}`"
    require_person(services.is_person, "reject a proposal", commands)

    def change(current: MemoryRecord) -> MemoryRecord:
        _require_live(current)
        tags = tuple(validate.PROPOSALS.get(tag, tag) for tag in current.tags)
        if tags == current.tags:
            raise Conflict(f"{record.id} has no proposal", hint="`meritory proposals` lists them")
        return replace(current, tags=tags)

    return apply_change(services, record, change, "update", "rejected the proposal")


def proposals(
    services: Services, scope: Scope, limit: int, *, everywhere: bool
) -> list[MemoryRecord]:
    """Return live memories with a proposed pin or constraint, latest first."""
    found = {
        record.id: record
        for tag in validate.PROPOSALS
        for record in services.store.listing(Listing(scope, everywhere, tag=tag, limit=limit))
    }
    return sorted(found.values(), key=lambda record: record.id, reverse=True)[:limit]


def _require_live(record: MemoryRecord) -> None:
    if not record.is_live:
        raise Conflict(f"{record.id} is forgotten or superseded", hint="undo that change first")


def apply_change(
    services: Services,
    record: MemoryRecord,
    change: Callable[[MemoryRecord], MemoryRecord],
    action: Action,
    why: str = "",
    *,
    content: str | None = None,
) -> MemoryRecord:
    """Apply a change to the current version of a memory and record the version before."""
    now = services.world.now()
    vectors = services.embedding.documents([content])[0] if content is not None else {}
    gate = gate_in_use(services.policy, services.embedding.serving_name())

    def work(transaction: Transaction) -> MemoryRecord:
        current = transaction.get(record.user, record.id)
        changed = change(current)
        if changed == current:
            return current
        entry = MemoryChange(services.world.new_id(), now, services.actor, action, why, current)
        # The text may have changed since it was read, when only other fields are changed.
        fitting = vectors if changed.content == content else {}
        transaction.update(indexed(replace(changed, updated_at=now), fitting), entry)
        relink(transaction, gate, current, changed, fitting, now)
        return transaction.get(record.user, record.id)

    return services.store.write(record.user, work)


def relink(
    transaction: Transaction,
    gate: Gate | None,
    before: MemoryRecord,
    record: MemoryRecord,
    vectors: Mapping[str, Vectors],
    now: datetime,
) -> None:
    """Replace the open links of a memory whose text, date or scope has changed."""
    if _linked_by(before) == _linked_by(record):
        return
    transaction.drop_open_links(record.user, record.id)
    if gate is None or gate.embedder not in vectors or not record.is_live:
        return
    matrix, floor = vectors[gate.embedder][None, :], gate.floor_for(record, is_bulk=False)
    probe = NeighbourProbe(record.scope, gate.embedder, matrix, NEIGHBOUR_LIMIT + 1, floor)
    near = [one for one in transaction.nearest(probe)[0] if one.memory.id != record.id]
    verdict = judge(record, near[:NEIGHBOUR_LIMIT], gate.floor, by_person=False)
    links = chains.links_of_changed(record, near[:NEIGHBOUR_LIMIT], verdict, gate.floor, now)
    transaction.put_links(record.user, links)


def _linked_by(record: MemoryRecord) -> tuple[str, datetime, Scope]:
    return record.content, since(record), record.scope
