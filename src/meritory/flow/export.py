"""Export of everything a user has, as lines of JSON that an import restores exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meritory.codec import moment_text, record_to_dict
from meritory.errors import InputError
from meritory.flow.importing.keepsakes import keepsakes
from meritory.flow.services import Services
from meritory.store.carrying import CarriedAudit
from meritory.types import HistoryEntry

FORMAT_VERSION = 2
# Formats that an import reads.
READABLE_VERSIONS = (1, 2)
_PROGRESS_STEP = 512
_MEMORY_START = '{"memory":'

Progress = Callable[[int, int], None]


def export_lines(services: Services, user: str) -> Iterator[str]:
    """Every memory of a user with its history and links, a header first, as lines of JSON."""
    store = services.store
    yield json_line({"meritory_export": FORMAT_VERSION, "at": moment_text(services.world.now())})
    stated = store.stated_attributes(user)
    audits = {audit.entry: audit for audit in store.carried(user, CarriedAudit)}
    for record in store.walk(user):
        line: dict[str, Any] = {
            "memory": record_to_dict(record),
            "about": [asdict(attribute) for attribute in stated.get(record.id, ())],
            "history": [_entry_plain(one, audits) for one in store.history(user, record.id)],
        }
        if found := store.retrievals(user, [record.id]).get(record.id):
            line["retrieved"] = {"count": found.count, "last_at": moment_text(found.last_at)}
        yield json_line(line)
    for pair in store.dependencies(user):
        yield json_line({"dependency": [asdict(attribute) for attribute in pair]})
    for kept in keepsakes(services, user):
        yield json_line(kept)
    yield json_line({"counters": store.counters(user)})


def write_export(services: Services, user: str, target: Path, progress: Progress) -> int:
    """Writes an export file, whole or not at all; returns how many memories are in it."""
    if target.exists():
        raise InputError(f"{target} exists already", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}", hint="create it first")
    figures = services.store.totals(user)
    total = figures["live"] + figures["deleted"] + figures["superseded"]
    temporary = target.with_name(f"{target.name}.part-{os.getpid()}")
    memory_count = 0
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            for count, line in enumerate(export_lines(services, user)):
                file.write(line + "\n")
                memory_count += line.startswith(_MEMORY_START)
                if count % _PROGRESS_STEP == 0:
                    progress(min(count, total), total)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    progress(total, total)
    return memory_count


def unreadable_count(services: Services) -> int:
    """How many memories were met so far that are damaged, and so are in no export."""
    return len(getattr(services.store, "damaged", ()))


def _entry_plain(entry: HistoryEntry, audits: Mapping[int, CarriedAudit]) -> dict[str, Any]:
    """A history entry; `after` is left out, it is the next one's `before`."""
    audit = audits.get(entry.entry)
    said = None if audit is None else {"at": moment_text(audit.at), "verdict": audit.verdict}
    return {
        **({} if said is None else {"audit": said}),
        "entry": entry.entry,
        "operation": entry.operation,
        "at": moment_text(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "why": entry.why,
        "before": None if entry.before is None else record_to_dict(entry.before),
        "other": None if entry.other is None else record_to_dict(entry.other),
        "other_id": entry.other_id,
        "undone": entry.undone,
    }


def json_line(value: Any) -> str:
    """One value as one line, without needless spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
