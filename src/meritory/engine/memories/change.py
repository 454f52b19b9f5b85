"""Update or confirm a memory. Each change keeps the previous version in its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from meritory.domain.errors import Conflict, InputError
from meritory.domain.memory import Action, MemoryRecord
from meritory.engine.memories.validate import (
    PROPOSED_CONSTRAINT,
    PROPOSED_PIN,
    check_validity,
    checked_field,
    known_fields,
    screened,
)
from meritory.engine.memories.write import indexed
from meritory.engine.services import Services
from meritory.store.contract.memories import MemoryChange
from meritory.store.contract.store import Transaction
from meritory.text.normalize import checked_content

UPDATABLE = (
    "content",
    "kind",
    "agent",
    "project",
    "confidence",
    "importance",
    "pinned",
    "tags",
    "valid_from",
    "valid_until",
)


def update(
    services: Services, record: MemoryRecord, given: Mapping[str, Any], *, by_person: bool
) -> MemoryRecord:
    """Change fields of a memory. An update never merges memories."""
    known_fields(given, UPDATABLE)
    values = {name: checked_field(name, v) for name, v in given.items() if name != "content"}
    for text in (*values.get("tags", ()), values.get("agent"), values.get("project")):
        screened(text or "", "refuse")
    if "content" in given:
        values["content"] = screened(
            checked_content(given["content"]), services.policy.secrets.policy
        )

    def change(current: MemoryRecord) -> MemoryRecord:
        _require_live(current)
        changed = replace(current, **values)
        check_validity(changed.valid_from, changed.valid_until)
        if not by_person and any(m.pinned or m.kind == "constraint" for m in (current, changed)):
            raise InputError(
                "only a person may pin a memory, make it a constraint, or change one",
                hint="propose it, and let a person confirm it with `meritory confirm ID`",
            )
        is_quote = current.provenance == "user_stated"
        if not by_person and is_quote and changed.content != current.content:
            raise InputError(
                "only a person may change a memory that the user stated",
                hint="store a new memory instead",
            )
        return changed

    return apply_change(services, record, change, "update", content=values.get("content"))


def confirm(services: Services, record: MemoryRecord) -> MemoryRecord:
    """Mark a memory as trusted and accept its proposed pin or constraint."""

    def change(current: MemoryRecord) -> MemoryRecord:
        _require_live(current)
        proposals = (PROPOSED_PIN, PROPOSED_CONSTRAINT)
        return replace(
            current,
            trust="trusted",
            pinned=current.pinned or PROPOSED_PIN in current.tags,
            kind="constraint" if PROPOSED_CONSTRAINT in current.tags else current.kind,
            tags=tuple(tag for tag in current.tags if tag not in proposals),
        )

    return apply_change(services, record, change, "confirm")


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

    def work(transaction: Transaction) -> MemoryRecord:
        current = transaction.get(record.user, record.id)
        changed = change(current)
        if changed == current:
            return current
        entry = MemoryChange(services.world.new_id(), now, services.actor, action, why, current)
        transaction.update(indexed(replace(changed, updated_at=now), vectors), entry)
        return transaction.get(record.user, record.id)

    return services.store.write(record.user, work)
