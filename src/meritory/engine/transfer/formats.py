"""Which format something is in, told by what is there, and which files belong to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError
from meritory.engine.transfer.entries import (
    FILE_LIMIT_COUNT,
    FORMS,
    Form,
    FoundFiles,
    ImportEntry,
    open_regular,
    read_text,
)
from meritory.engine.transfer.readers import basic_memory, claude_mem, markdown, mem0
from meritory.engine.transfer.readers.markdown import without_front
from meritory.store.sqlite.foreign import MAGIC, open_foreign

READERS: dict[str, Callable[[FoundFiles], Iterator[ImportEntry]]] = {
    "mem0": mem0.read,
    "claude-mem": claude_mem.read,
    "basic-memory": basic_memory.read,
    "markdown": markdown.read,
}
_HEAD_BYTES = 1_000_000
_CLAUDE_MEM_FILE = "claude-mem.db"
_POINTS_FILE = "storage.sqlite"
_MARKDOWN = (".md", ".mdc", ".markdown")
# Where agents' clients look for instructions below a project's folder.
_PLACES = ("", ".claude", ".github", ".github/instructions", ".cursor/rules", ".clinerules")
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv"})


def recognise(path: Path, wanted: str = "auto") -> FoundFiles:
    """What is to be read at a path; InputError says what was there instead."""
    if wanted not in ("auto", *FORMS):
        raise InputError(f"there is no format {wanted[:40]!r}", hint=f"known: {', '.join(FORMS)}")
    if path.is_dir():
        return _folder(path, wanted)
    form, why = _file(path)
    if wanted not in ("auto", form):
        form, why = _demanded(path, wanted, form, why)
    return FoundFiles(form, path, (path,), why)


def _demanded(path: Path, wanted: str, form: Form, why: str) -> tuple[Form, str]:
    """A format that was asked for although the file looks otherwise, where that can be."""
    texts = ("jsonl", "mem0", "basic-memory", "markdown")
    is_database = form in ("mem0", "claude-mem") and _is_database(path)
    if is_database or wanted not in texts or form == "meritory":
        raise InputError(f"{path.name} is not {wanted}: {why}", hint=f"try --from {form}")
    return wanted, "as --from says"  # type: ignore[return-value]


def _file(path: Path) -> tuple[Form, str]:
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(MAGIC):
        return _database(path)
    if b"\0" in head:
        raise InputError(f"{path.name} is neither text nor a database", hint="check the path")
    if path.suffix.lower() in _MARKDOWN or markdown.is_instruction(path):
        if basic_memory.is_note(
            head.decode("utf-8-sig", "replace")
        ) and not markdown.is_instruction(path):
            return "basic-memory", "a note with a permalink or observations"
        return "markdown", "a Markdown file"
    return _json(path, head)


def _is_database(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def _database(path: Path) -> tuple[Form, str]:
    with open_foreign(path) as tables:
        if {"title", "project"} <= set(tables.columns("observations")):
            return "claude-mem", "a database with observations"
        if {"memory_id", "new_memory"} <= set(tables.columns("history")):
            return "mem0", "mem0's history database"
        if {"id", "point"} <= set(tables.columns("points")):
            return "mem0", "a local Qdrant collection"
        if tables.columns("memory_history"):
            raise InputError(
                f"{path.name} is a store of Meritory",
                hint="`meritory --store FILE export` writes what can be imported",
            )
        names = ", ".join(tables.names()[:8]) or "none"
    raise InputError(f"{path.name} is a database of no known kind", hint=f"its tables: {names}")


def _json(path: Path, head: bytes) -> tuple[Form, str]:
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    line = text.partition("\n")[0]
    first = _value(line)
    if isinstance(first, dict) and "meritory_export" in first:
        return "meritory", "an export of Meritory"
    if _is_memory(first) or _holds_memories(first):
        return "mem0", "memories as mem0's get_all returns them"
    if first is None and text[:1] in ("{", "[") and path.suffix.lower() == ".json":
        whole = _value(read_text(path, mem0.JSON_LIMIT_BYTES))
        if _holds_memories(whole) or _is_memory(whole):
            return "mem0", "memories as mem0's get_all returns them"
        raise InputError(
            f"{path.name} is one JSON value, but not a list of memories",
            hint="expected what mem0's get_all returns, or one JSON object per line",
        )
    return "jsonl", "lines of JSON"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_memory(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("memory"), str)


def _holds_memories(value: Any) -> bool:
    if isinstance(value, dict):
        value = next((value[name] for name in ("results", "memories") if name in value), None)
    return isinstance(value, list) and (not value or any(map(_is_memory, value)))


def _folder(path: Path, wanted: str) -> FoundFiles:
    files, links = _walk(path)
    remarks = (f"{links} links are not followed",) if links else ()
    found = next((one for one in _choices(path, files) if wanted in ("auto", one.form)), None)
    if found is None and wanted == "markdown":
        every = tuple(file for file in files if file.suffix.lower() in _MARKDOWN)
        found = (
            FoundFiles("markdown", path, every, "all Markdown files of a folder") if every else None
        )
    if found is None:
        what = "nothing that can be imported" if wanted == "auto" else f"nothing of {wanted}"
        raise InputError(
            f"in {path} there is {what}",
            hint="name a file, or take all its Markdown files with --from markdown",
        )
    return replace(found, remarks=remarks)


def _choices(path: Path, files: list[Path]) -> Iterator[FoundFiles]:
    named = [file for file in files if file.name == _CLAUDE_MEM_FILE]
    if named:
        yield FoundFiles("claude-mem", path, (named[0],), f"it holds {_CLAUDE_MEM_FILE}")
    points = [file for file in files if file.name == _POINTS_FILE and _is_database(file)]
    if points:
        yield FoundFiles("mem0", path, tuple(points), "it holds collections of a local Qdrant")
    texts = [file for file in files if file.suffix.lower() == ".md"]
    known = [file for file in files if _is_known(path, file)]
    if any(_is_linked_note(file) for file in texts):
        plain = tuple(file for file in texts if not markdown.is_instruction(file))
        yield FoundFiles("basic-memory", path, plain, "it holds notes with permalinks")
    if known:
        yield FoundFiles("markdown", path, tuple(known), "it holds instruction or memory files")
    if any(_has_observations(file) for file in texts):
        yield FoundFiles("basic-memory", path, tuple(texts), "it holds notes with observations")


def _is_known(folder: Path, file: Path) -> bool:
    place = file.parent.relative_to(folder).as_posix()
    is_ours = markdown.is_instruction(file) or file.name.lower() in markdown.MEMORY_NAMES
    return is_ours and ("" if place == "." else place) in _PLACES


def _is_linked_note(file: Path) -> bool:
    try:
        front, _ = without_front(read_text(file))
    except InputError:
        return False
    return "permalink" in basic_memory.front_matter(front)


def _has_observations(file: Path) -> bool:
    try:
        return basic_memory.is_note(read_text(file))
    except InputError:
        return False


def _walk(folder: Path) -> tuple[list[Path], int]:
    """The plain files below a folder in a fixed order, and how many links were passed by."""
    found: list[Path] = []
    links = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        here = Path(place)
        links += sum((here / name).is_symlink() for name in (*folders, *names))
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and name != ".git"
        )
        files = (here / name for name in sorted(names))
        found += [file for file in files if not file.is_symlink() and file.is_file()]
        if len(found) > FILE_LIMIT_COUNT:
            raise InputError(
                f"{folder} holds more than {FILE_LIMIT_COUNT:,} files",
                hint="name the folder that holds the notes",
            )
    return found, links
