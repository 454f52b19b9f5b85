"""Recognise the format of a file or folder, and find the files to import."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from meritory.domain.errors import InputError
from meritory.engine.transfer import markdown
from meritory.engine.transfer.entries import (
    FILE_LIMIT_COUNT,
    FORMS,
    Form,
    FoundFiles,
    ImportEntry,
    is_database,
    open_regular,
    read_text,
)
from meritory.engine.transfer.memory_programs import JSON_LIMIT_BYTES, read_claude_mem, read_mem0
from meritory.store.sqlite.foreign import MAGIC, open_foreign

READERS: dict[str, Callable[[FoundFiles], Iterator[ImportEntry]]] = {
    "mem0": read_mem0,
    "claude-mem": read_claude_mem,
    "basic-memory": partial(markdown.read_files, markdown.read_note),
    "markdown": partial(markdown.read_files, markdown.read_document),
}
_TEXT_FORMS = ("jsonl", "mem0", "basic-memory", "markdown")
_HEAD_BYTES = 1_000_000
_CLAUDE_MEM_FILE = "claude-mem.db"
_POINTS_FILE = "storage.sqlite"
_MARKDOWN = (".md", ".mdc", ".markdown")
# Subfolders of a project in which clients look for instructions.
_PLACES = (".", ".claude", ".github", ".github/instructions", ".cursor/rules", ".clinerules")
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", "venv"})


def recognise(path: Path, wanted: str = "auto") -> FoundFiles:
    """Return the format and files at a path; InputError names the reason if there are none."""
    if wanted not in ("auto", *FORMS):
        raise InputError(f"unknown format: {wanted[:40]!r}", hint=f"formats: {', '.join(FORMS)}")
    if path.is_dir():
        return _folder(path, wanted)
    form, why = _form_of(path)
    if wanted not in ("auto", form):
        # A text file can be read in any text format.
        if is_database(path) or wanted not in _TEXT_FORMS or form == "meritory":
            raise InputError(f"{path.name} is not {wanted}: {why}", hint=f"try --from {form}")
        form, why = cast("Form", wanted), "as given by --from"
    return FoundFiles(form, path, (path,), why)


def _form_of(path: Path) -> tuple[Form, str]:
    """Return the format of a file and the reason."""
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(MAGIC):
        return _database(path)
    if b"\0" in head:
        raise InputError(f"{path.name} is neither text nor a database", hint="check the path")
    text = head.decode("utf-8-sig", "replace")
    if markdown.is_instruction(path):
        return "markdown", "a Markdown file"
    if path.suffix.lower() in _MARKDOWN:
        if markdown.is_note(text):
            return "basic-memory", "a note with a permalink or observations"
        return "markdown", "a Markdown file"
    return _json(path, text)


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
                hint="export it with `meritory --store FILE export`, then import that file",
            )
        names = ", ".join(tables.names()[:8]) or "none"
    raise InputError(f"{path.name} is an unknown kind of database", hint=f"its tables: {names}")


def _json(path: Path, text: str) -> tuple[Form, str]:
    text = text.lstrip("\ufeff \t\r\n")
    first = _value(text.partition("\n")[0])
    if isinstance(first, dict) and "meritory_export" in first:
        return "meritory", "an export of Meritory"
    is_whole = first is None and text[:1] in ("{", "[") and path.suffix.lower() == ".json"
    value = _value(read_text(path, JSON_LIMIT_BYTES)) if is_whole else first
    if _is_memory(value) or _holds_memories(value):
        return "mem0", "memories as mem0's get_all returns them"
    if is_whole:
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
    files, links = _files_below(path)
    remarks = (f"{links} links are not followed",) if links else ()
    choices = (choice for choice in _choices(path, files) if wanted in ("auto", choice.form))
    found = next(choices, None)
    notes = tuple(file for file in files if file.suffix.lower() in _MARKDOWN)
    if found is None and wanted == "markdown" and notes:
        found = FoundFiles("markdown", path, notes, "all Markdown files of a folder")
    if found is None:
        content = "files to import" if wanted == "auto" else f"files of {wanted}"
        raise InputError(
            f"{path} has no {content}",
            hint="name a file, or import all its Markdown files with --from markdown",
        )
    return replace(found, remarks=remarks)


def _choices(path: Path, files: list[Path]) -> Iterator[FoundFiles]:
    if named := [file for file in files if file.name == _CLAUDE_MEM_FILE]:
        yield FoundFiles("claude-mem", path, (named[0],), f"it contains {_CLAUDE_MEM_FILE}")
    if points := [file for file in files if file.name == _POINTS_FILE and is_database(file)]:
        yield FoundFiles("mem0", path, tuple(points), "it contains collections of a local Qdrant")
    texts = [file for file in files if file.suffix.lower() == ".md"]
    known = [
        file
        for file in files
        if (markdown.is_instruction(file) or file.name.lower() in markdown.MEMORY_NAMES)
        and file.parent.relative_to(path).as_posix() in _PLACES
    ]
    if any(_holds(_has_permalink, file) for file in texts):
        plain = tuple(file for file in texts if not markdown.is_instruction(file))
        yield FoundFiles("basic-memory", path, plain, "it contains notes with permalinks")
    if known:
        yield FoundFiles("markdown", path, tuple(known), "it contains instruction or memory files")
    if any(_holds(markdown.is_note, file) for file in texts):
        yield FoundFiles("basic-memory", path, tuple(texts), "it contains notes with observations")


def _holds(check: Callable[[str], bool], file: Path) -> bool:
    """Return whether the text of a file passes a check; False if it cannot be read."""
    try:
        return check(read_text(file))
    except InputError:
        return False


def _has_permalink(text: str) -> bool:
    return "permalink" in markdown.front_matter(markdown.without_front(text)[0])


def _files_below(folder: Path) -> tuple[list[Path], int]:
    """Return the regular files below a folder in a fixed order, and the number of links."""
    regular: list[Path] = []
    links = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        here = Path(place)
        links += sum((here / name).is_symlink() for name in (*folders, *names))
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        files = (here / name for name in sorted(names))
        regular += [file for file in files if not file.is_symlink() and file.is_file()]
        if len(regular) > FILE_LIMIT_COUNT:
            raise InputError(
                f"{folder} has more than {FILE_LIMIT_COUNT:,} files",
                hint="name the folder with the notes",
            )
    return regular, links
