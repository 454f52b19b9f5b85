"""Export: everything of a user as lines of JSON, or live memories as Markdown notes.

An import restores the lines exactly; `rows.py` describes them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import KINDS, MemoryRecord
from meritory.domain.quality import CarriedAudit
from meritory.domain.world import moment_text
from meritory.engine.services import Services
from meritory.engine.transfer.rows import extra_rows, write_memory

FORMAT_VERSION = 2
# Formats that an import reads.
READABLE_VERSIONS = (1, 2)
_PROGRESS_STEP = 512
_MEMORY_START = '{"memory":'

Progress = Callable[[int, int], None]


def export_lines(services: Services, user: str) -> Iterator[str]:
    """Yield a header, then everything of a user, as lines of JSON."""
    store = services.store
    yield json_line({"meritory_export": FORMAT_VERSION, "at": moment_text(services.world.now())})
    stated = store.stated_attributes(user)
    audits = {audit.entry: audit for audit in store.carried(user, CarriedAudit)}
    for record in store.walk(user):
        retrieved = store.retrievals(user, [record.id]).get(record.id)
        history = store.history(user, record.id)
        about = stated.get(record.id, ())
        yield json_line(write_memory(record, about, history, audits, retrieved))
    for pair in store.dependencies(user):
        yield json_line({"dependency": [asdict(attribute) for attribute in pair]})
    for row in extra_rows(services, user):
        yield json_line(row)
    yield json_line({"counters": store.counters(user)})


def write_export(services: Services, user: str, target: Path, progress: Progress) -> int:
    """Write an export file atomically and return the number of its memories."""
    if target.exists():
        raise InputError(f"{target} already exists", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"folder not found: {target.parent}", hint="create it first")
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
    """Return the number of damaged memories, which no export contains."""
    return len(getattr(services.store, "damaged", ()))


def json_line(value: Any) -> str:
    """Return a value as one line of JSON."""
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
    """Write live memories as notes into a new folder; return the numbers of memories and files."""
    try:
        folder.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"cannot create {folder}: {why}", hint="name a folder that does not exist yet"
        ) from error
    projects: dict[str | None, list[MemoryRecord]] = {}
    for record in services.store.walk(user):
        if record.is_live:
            projects.setdefault(record.project, []).append(record)
    taken: set[str] = set()
    for project, records in sorted(projects.items(), key=lambda item: item[0] or ""):
        # The file name of a project is safe and unique.
        stem = _UNSAFE.sub("-", project or EVERYWHERE).strip("-.")[:_NAME_LIMIT_CHARS] or "project"
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        path = folder / f"{name}.md"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(notes(project or "Everywhere", records))
    return sum(map(len, projects.values())), len(projects)


def notes(title: str, records: Iterable[MemoryRecord]) -> str:
    """Return the note of a project: a heading for each kind, the oldest memory first."""
    parts = [f"# {' '.join(title.split())}"]
    by_kind: dict[str, list[MemoryRecord]] = {kind: [] for kind in (*_HEADINGS, *KINDS)}
    for record in records:
        by_kind[record.kind].append(record)
    for kind, group in by_kind.items():
        if group:
            ordered = sorted(group, key=lambda record: (record.created_at, record.id))
            parts.append(f"## {_HEADINGS.get(kind, kind)}")
            parts.append("\n".join(_bullet(record) for record in ordered))
    return "\n\n".join(parts) + "\n"


def _bullet(record: MemoryRecord) -> str:
    text = record.content.strip().replace("\n", "\n  ")
    about = [f"{record.created_at:%Y-%m-%d}", _SOURCES.get(record.provenance, "")]
    about += ["pinned" if record.pinned else "", "unverified" * (record.trust == "untrusted")]
    about += [f"#{tag}" for tag in record.tags]
    return f"- {text} ({', '.join(word for word in about if word)})"
