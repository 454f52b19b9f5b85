"""Memories as notes that people read: one Markdown file a project."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from meritory.errors import InputError
from meritory.flow.services import Services
from meritory.types import KINDS, MemoryRecord

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
