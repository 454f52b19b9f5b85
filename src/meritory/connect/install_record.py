"""The record of edited files: the copy from before, and the content that was written."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from meritory.connect.json_edit import NOTHING_MADE, Made

FOLDER_NAME: Final = "connections"
BACKUPS_KEPT_COUNT: Final = 5


@dataclass(frozen=True, slots=True)
class Record:
    """One file that was changed for a harness."""

    harness: str
    path: Path
    # The copy from before, None without a file.
    backup: str | None
    after_sha256: str
    made: Made = NOTHING_MADE
    # Folders that were created for the file, outermost first.
    folders: tuple[Path, ...] = ()


def digest(content: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


class InstallRecord:
    """The records in the data folder; each is written before its file."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER_NAME

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock against other processes."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def records(self, harness: str) -> list[Record]:
        """Return the readable records of a harness."""
        files = sorted(self._folder.glob(f"{harness}.*.json"))
        return [record for file in files if (record := _read(file)) is not None]

    def record(self, harness: str, path: Path) -> Record | None:
        """Return the record of a file, None without one."""
        return _read(self._file(harness, path))

    def before(self, record: Record) -> bytes | None:
        """Return the content from before, None without a file."""
        return None if record.backup is None else (self._folder / record.backup).read_bytes()

    def keep(self, record: Record, before: bytes | None, now: datetime) -> Record:
        """Copy the former content and write the record; return it with the copy's name."""
        backup = None
        if before is not None:
            backup = f"{self._stem(record.harness, record.path)}.{now:%Y%m%dT%H%M%S%f}Z.bak"
            _write(self._folder / backup, before)
        record = replace(record, backup=backup)
        self._put(record)
        copies = sorted(self._folder.glob(f"{self._stem(record.harness, record.path)}.*.bak"))
        for copy in copies[:-BACKUPS_KEPT_COUNT]:
            if copy.name != backup:
                copy.unlink(missing_ok=True)
        return record

    def _put(self, record: Record) -> None:
        plain = {
            "harness": record.harness,
            "path": str(record.path),
            "backup": record.backup,
            "after_sha256": record.after_sha256,
            "created": record.made.created,
            "added": record.made.added,
            "chunk": record.made.chunk,
            "folders": [str(folder) for folder in record.folders],
        }
        _write(self._file(record.harness, record.path), json.dumps(plain, indent=1).encode())

    def take_back(self, record: Record, earlier: Record | None) -> None:
        """Delete a record and its copy, and restore the earlier record."""
        copy = self.copy_path(record)
        if copy is not None and (earlier is None or earlier.backup != record.backup):
            copy.unlink(missing_ok=True)
        if earlier is None:
            self.drop(record)
        else:
            self._put(earlier)

    def drop(self, record: Record) -> None:
        """Delete a record; the copies stay."""
        self._file(record.harness, record.path).unlink(missing_ok=True)

    def copy_path(self, record: Record) -> Path | None:
        """Return the path of the copy from before."""
        return None if record.backup is None else self._folder / record.backup

    def _stem(self, harness: str, path: Path) -> str:
        return f"{harness}.{path.name.lstrip('.')}.{digest(os.fsencode(path))[:12]}"

    def _file(self, harness: str, path: Path) -> Path:
        return self._folder / f"{self._stem(harness, path)}.json"


def _write(path: Path, content: bytes) -> None:
    part = path.with_suffix(path.suffix + ".part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _read(path: Path) -> Record | None:
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        made = Made(
            tuple(tuple(map(str, names)) for names in values["created"]),
            tuple(tuple(map(str, names)) for names in values["added"]),
            str(values["chunk"]),
        )
        return Record(
            str(values["harness"]),
            _path(values["path"]),
            None if values["backup"] is None else _path(values["backup"]).name,
            str(values["after_sha256"]),
            made,
            tuple(map(_path, values["folders"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError("a path cannot contain a NUL character")
    return Path(text)
