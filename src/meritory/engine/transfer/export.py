"""Export of everything a user has, as lines of JSON that an import restores exactly."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meritory.domain.codec import moment_text, record_to_dict
from meritory.domain.errors import InputError
from meritory.domain.memory import KINDS, HistoryEntry, MemoryRecord
from meritory.domain.quality import CarriedAudit
from meritory.engine.services import Services
from meritory.engine.transfer.extra_tables import keepsakes

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


EVERYWHERE = "everywhere"
_HEADINGS = {
    "constraint": "Constraints",
    "preference": "Preferences",
    "decision": "Decisions",
    "procedure": "Procedures",
    "lesson": "Lessons",
    "fact": "Facts",
    "episode": "Episodes",
}
_SOURCES = {"assistant_derived": "inferred", "episode_summary": "summary"}
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_LIMIT_CHARS = 80


def write_notes(services: Services, user: str, folder: Path) -> tuple[int, int]:
    """Writes what is live into a new folder; returns how many memories and files there are."""
    try:
        folder.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{folder} cannot be made: {why}", hint="name a folder that does not exist yet"
        ) from error
    projects: dict[str | None, list[MemoryRecord]] = {}
    for record in services.store.walk(user):
        if record.is_live:
            projects.setdefault(record.project, []).append(record)
    taken: set[str] = set()
    for project, records in sorted(projects.items(), key=lambda item: item[0] or ""):
        path = folder / _file_name(project, taken)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(notes(project or "Everywhere", records))
    return sum(map(len, projects.values())), len(projects)


def notes(title: str, records: Iterable[MemoryRecord]) -> str:
    """One project's memories under a heading for each kind, the oldest first."""
    parts = [f"# {' '.join(title.split())}"]
    by_kind: dict[str, list[MemoryRecord]] = {kind: [] for kind in (*_HEADINGS, *KINDS)}
    for record in records:
        by_kind[record.kind].append(record)
    for kind, held in by_kind.items():
        if held:
            ordered = sorted(held, key=lambda one: (one.created_at, one.id))
            parts.append(f"## {_HEADINGS.get(kind, kind)}")
            parts.append("\n".join(_bullet(one) for one in ordered))
    return "\n\n".join(parts) + "\n"


def _bullet(record: MemoryRecord) -> str:
    text = record.content.strip().replace("\n", "\n  ")
    about = [f"{record.created_at:%Y-%m-%d}", _SOURCES.get(record.provenance, "")]
    about += ["pinned" if record.pinned else "", "unverified" * (record.trust == "untrusted")]
    about += [f"#{tag}" for tag in record.tags]
    return f"- {text} ({', '.join(word for word in about if word)})"


def _file_name(project: str | None, taken: set[str]) -> str:
    """A name of its own for each project, whatever characters it has."""
    stem = _UNSAFE.sub("-", project or EVERYWHERE).strip("-.")[:_NAME_LIMIT_CHARS] or "project"
    name, number = stem, 1
    while name.casefold() in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name.casefold())
    return f"{name}.md"
