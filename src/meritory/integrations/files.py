"""An agent's files as memories: the six commands of a memory tool, on paths under /memories.

A file is stored as one memory, a long one as several. The paths are not on a disk, so none can
lead out of the folder.
"""

from __future__ import annotations

import hashlib
import threading
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meritory.api.memory import Memory
from meritory.domain.errors import Conflict, InputError, MeritoryError, NotFound
from meritory.domain.memory import NAME_LIMIT_CHARS, MemoryRecord, Source
from meritory.integrations.core import all_tagged

ROOT = "/memories"
TAG = "memory-file"
HARNESS = "memory-tool"
PART_LIMIT_CHARS = 8_000
FILE_LIMIT_CHARS = 400_000
# Stored for a file without visible text.
_BLANK_TAG, _BLANK_TEXT = "blank", "(an empty file)"
_LEVELS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file with its memories."""

    path: str
    parts: tuple[MemoryRecord, ...]

    @property
    def text(self) -> str:
        """Return the text of the file."""
        return "".join("" if _BLANK_TAG in one.tags else one.content for one in self.parts)


class MemoryFiles:
    """The files of one scope, and the commands of an agent."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        methods = (self.view, self.create, self.str_replace, self.insert, self.delete, self.rename)
        self._commands: dict[str, Callable[..., str]] = {one.__name__: one for one in methods}

    def run(self, call: Mapping[str, Any]) -> str:
        """Run a model's tool call; return an error as text."""
        try:
            if not isinstance(call, Mapping):
                raise InputError("a command must be an object")
            fields = {name: value for name, value in call.items() if value is not None}
            name = fields.pop("command", None)
            if not isinstance(name, str) or name not in self._commands:
                raise InputError(f"unknown command {str(name)[:40]!r}")
            try:
                return self._commands[name](**fields)
            except TypeError as error:
                raise InputError(f"wrong fields for {name}") from error
        except MeritoryError as error:
            return f"Error: {error}"

    # -- reading --------------------------------------------------------------------------

    def view(self, path: str, view_range: object = None) -> str:
        """Return the lines of a file, or the contents of a folder."""
        place = checked_path(path)
        files = self._files()
        if place in files:
            lines = files[place].text.splitlines()
            pair = [1, -1] if view_range is None else view_range
            if not isinstance(pair, list | tuple) or [*map(type, pair)] != [int, int]:
                raise InputError("view_range is a list of two line numbers")
            first, last = pair[0], len(lines) if pair[1] == -1 else pair[1]
            if not 1 <= first <= max(last, 1):
                raise InputError(f"view_range must lie between 1 and {len(lines)}")
            shown = enumerate(lines[first - 1 : last], start=first)
            return "\n".join([f"{place}, by line:", *(f"{n:6}\t{line}" for n, line in shown)])
        inside = sorted(name for name in files if _is_in(name, place))
        if not inside and place != ROOT:
            raise NotFound(f"the path {place} does not exist")
        # The bytes in each folder and file down to the second level.
        sizes: dict[str, int] = {place: 0}
        for name in inside:
            size = len(files[name].text.encode("utf-8", "replace"))
            labels = name[len(place) + 1 :].split("/")
            sizes[place] += size
            for depth in range(1, min(len(labels), _LEVELS_SHOWN) + 1):
                shown_name = "/".join((place, *labels[:depth]))
                shown_name += "/" if depth < len(labels) else ""
                sizes[shown_name] = sizes.get(shown_name, 0) + size
        head = f"Files and folders in {place}, two levels deep:"
        return "\n".join([head, *(f"{size}\t{name}" for name, size in sizes.items())])

    # -- changing -------------------------------------------------------------------------

    def create(self, path: str, file_text: str) -> str:
        """Create a file."""
        place = checked_path(path, is_file=True)
        with self._lock:
            self._require_free(place)
            self._write(MemoryFile(place, ()), _checked_text("file_text", file_text))
        return f"Created {place}"

    def str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        """Replace a text that occurs exactly once."""
        old, new = _checked_text("old_str", old_str), _checked_text("new_str", new_str)
        with self._lock:
            file = self._file(path)
            count = file.text.count(old) if old else 0
            if count != 1:
                raise Conflict(
                    f"nothing was replaced: old_str occurs {count} times in {file.path}",
                    hint="give a text that occurs exactly once",
                )
            self._write(file, file.text.replace(old, new))
        return f"Edited {file.path}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert a text after a line; 0 is the beginning."""
        text = _checked_text("insert_text", insert_text)
        with self._lock:
            file = self._file(path)
            lines = file.text.splitlines(keepends=True)
            if type(insert_line) is not int or not 0 <= insert_line <= len(lines):
                raise InputError(f"insert_line must be an integer from 0 to {len(lines)}")
            if insert_line and not lines[insert_line - 1].endswith("\n"):
                lines[insert_line - 1] += "\n"
            if text and not text.endswith("\n") and insert_line < len(lines):
                text += "\n"
            self._write(file, "".join([*lines[:insert_line], text, *lines[insert_line:]]))
        return f"Edited {file.path}"

    def delete(self, path: str) -> str:
        """Delete a file, or a folder with its contents."""
        place = checked_path(path)
        if place == ROOT:
            raise InputError(f"{ROOT} itself cannot be deleted")
        with self._lock:
            for file in self._under(place):
                self._forget(file)
        return f"Deleted {place}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Rename a file or a folder."""
        old, new = checked_path(old_path), checked_path(new_path, is_file=True)
        if old == ROOT or new.startswith(f"{old}/"):
            raise InputError(f"{old} cannot be moved there")
        with self._lock:
            moved = self._under(old)
            self._require_free(new)
            for file in moved:
                place = checked_path(new + file.path[len(old) :], is_file=True)
                self._write(MemoryFile(place, ()), file.text)
                self._forget(file)
        return f"Renamed {old} to {new}"

    # -- the memories ---------------------------------------------------------------------

    def _files(self) -> dict[str, MemoryFile]:
        found: dict[str, list[MemoryRecord]] = {}
        for record in all_tagged(self._memory, TAG):
            if record.source is not None and record.source.session_key is not None:
                found.setdefault(record.source.session_key, []).append(record)
        return {path: MemoryFile(path, _in_order(parts)) for path, parts in found.items()}

    def _file(self, path: str) -> MemoryFile:
        place = checked_path(path, is_file=True)
        parts = [
            record
            for record in all_tagged(self._memory, _path_tag(place))
            if record.source is not None and record.source.session_key == place
        ]
        if not parts:
            raise NotFound(f"the file {place} does not exist")
        return MemoryFile(place, _in_order(parts))

    def _under(self, place: str) -> list[MemoryFile]:
        files = self._files()
        found = [file for path, file in files.items() if path == place or _is_in(path, place)]
        if not found:
            raise NotFound(f"the path {place} does not exist")
        return found

    def _require_free(self, place: str) -> None:
        for path in self._files():
            if path == place or _is_in(path, place):
                raise Conflict(f"{place} exists already")
            if _is_in(place, path):
                raise Conflict(f"{path} is a file, not a folder")

    def _write(self, file: MemoryFile, text: str) -> None:
        """Update the memories of a file to its text."""
        pieces = _pieces(text)
        for number, piece in enumerate(pieces):
            tags = [TAG, _path_tag(file.path), *([_BLANK_TAG] if piece == _BLANK_TEXT else [])]
            if number < len(file.parts):
                known = file.parts[number]
                if known.content != piece or set(known.tags) != set(tags):
                    self._memory.update(known.id, content=piece, tags=tags, origin="agent")
                continue
            self._memory.remember(
                piece,
                tags=tags,
                origin="agent",
                source=Source(HARNESS, file.path, str(number)),
                on_similar="keep",
            )
        for left in file.parts[len(pieces) :]:
            self._memory.forget(left.id, why="the file became shorter", origin="agent")

    def _forget(self, file: MemoryFile) -> None:
        for part in file.parts:
            self._memory.forget(part.id, why="the file was deleted or renamed", origin="agent")


def checked_path(path: object, *, is_file: bool = False) -> str:
    """Return a path under /memories; raise an error for a second spelling of one."""
    if not isinstance(path, str) or len(path) > NAME_LIMIT_CHARS:
        raise InputError(f"a path must be text of at most {NAME_LIMIT_CHARS} characters")
    place = path[:-1] if path.endswith("/") and not is_file else path
    labels = place.split("/")
    is_plain = (
        place.isprintable()
        and unicodedata.normalize("NFKC", place) == place
        and not set("\\%") & set(place)
        and all(label == label.strip() and label.strip(".") for label in labels[1:])
    )
    if labels[:2] != ["", ROOT[1:]] or not is_plain:
        raise InputError(
            f"{path[:80]!r} is not a path under {ROOT}",
            hint=f"write {ROOT}/folder/file.md, without .., %, backslashes or double slashes",
        )
    if is_file and len(labels) < 3:
        raise InputError(f"{ROOT} is a folder", hint=f"name a file: {ROOT}/notes.md")
    return place


def _checked_text(name: str, text: object) -> str:
    if not isinstance(text, str) or len(text) > FILE_LIMIT_CHARS:
        raise InputError(f"{name} must be text of at most {FILE_LIMIT_CHARS:,} characters")
    return text


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces that fit into a memory, at line ends where possible."""
    if len(text) > FILE_LIMIT_CHARS:
        raise InputError(f"a file has at most {FILE_LIMIT_CHARS:,} characters")
    if not text.strip():
        return [_BLANK_TEXT]
    pieces = [""]
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), PART_LIMIT_CHARS):
            part = line[start : start + PART_LIMIT_CHARS]
            if len(pieces[-1]) + len(part) > PART_LIMIT_CHARS:
                pieces.append("")
            pieces[-1] += part
    return pieces


def _in_order(parts: list[MemoryRecord]) -> tuple[MemoryRecord, ...]:
    return tuple(sorted(parts, key=lambda one: int(str(one.source and one.source.turn))))


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _path_tag(path: str) -> str:
    return "file:" + hashlib.sha256(path.encode()).hexdigest()[:32]
