"""Other programs' files: atomic reads and writes, and the record of the edits.

The record has the copy from before and the content that was written.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from meritory.domain.codec import prepared
from meritory.domain.errors import Conflict, InputError, ReadOnlyStore
from meritory.domain.harness import BY_NAME

SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
FOLDER_NAME: Final = "connections"
BACKUPS_KEPT_COUNT: Final = 5

Keys = tuple[str, ...]


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, None without one; raise an error for anything else."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{path} is not a plain file", hint="move it away, and try again")
        if info.st_size > SIZE_LIMIT_BYTES:
            raise InputError(
                f"{path} has {info.st_size:,} bytes, too many for a settings file",
                hint="move it away, and try again",
            )
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            hint="check its permissions and its link target, and try again",
        ) from error


def text_of(path: Path, content: bytes | None) -> str:
    """Return the content as text; raise an error if it is not UTF-8."""
    try:
        return (content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {error.start + 1} is invalid",
            hint="save it as UTF-8, and try again; nothing was changed",
        ) from error


def check_writable(path: Path) -> None:
    """Raise an error if a file cannot be written."""
    target = Path(os.path.realpath(path))
    folder = next(parent for parent in target.parents if parent.exists())
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="move it away, and try again")
    protected = target if target.exists() and not os.access(target, os.W_OK) else None
    if protected is None and not os.access(folder, os.W_OK | os.X_OK):
        protected = folder
    if protected is not None:
        raise ReadOnlyStore(
            f"{protected} cannot be written",
            hint="make it writable, or add the lines that --dry-run shows by hand",
        )


def make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents; return the new ones, outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return missing[::-1]


def replace_file(path: Path, before: bytes | None, after: bytes | None) -> None:
    """Replace or delete a file, if its content is still `before`.

    The target of a link is replaced, the link stays. Permissions and owner stay.
    """
    target = Path(os.path.realpath(path))
    if after is None:
        _expect(path, before)
        target.unlink()
        return
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=".meritory", dir=target.parent
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after)
            file.flush()
            # A new file gets the permissions and the owner of the one it replaces.
            old = target.stat() if target.exists() else None
            os.fchmod(file.fileno(), 0o600 if old is None else stat.S_IMODE(old.st_mode))
            if old and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            os.fsync(file.fileno())
        _expect(path, before)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _expect(path: Path, before: bytes | None) -> None:
    if read_file(path) != before:
        raise Conflict(
            f"{path} was changed by another program",
            hint="run the command again; nothing was changed in this file",
        )


# -- the record -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """Additions to a file other than commands, which are recognised by themselves."""

    # New objects and lists.
    created: tuple[Keys, ...] = ()
    # New plain texts and values.
    added: tuple[Keys, ...] = ()
    # The text that was added to a TOML file.
    chunk: str = ""


NOTHING_MADE = Made()


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

    def has(self, harness: str) -> bool:
        """Return whether a known harness is connected: its hooks and its tools."""
        return harness in BY_NAME and any(self._folder.glob(f"{harness}.*.json"))

    def record(self, harness: str, path: Path) -> Record | None:
        """Return the record of a file, None without one."""
        return _read(self._file(harness, path))

    def before(self, record: Record) -> bytes | None:
        """Return the content from before, None without a file."""
        copy = self.copy_path(record)
        return None if copy is None else copy.read_bytes()

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
        content = msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=1)
        _write(self._file(record.harness, record.path), content)

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
        record = msgspec.json.decode(path.read_bytes(), type=prepared(Record), dec_hook=_to_path)
        # A copy is in the folder of the records and nowhere else.
        return replace(record, backup=record.backup and _to_path(Path, record.backup).name)
    except (OSError, ValueError):
        return None


def _to_path(kind: type, text: Any) -> Path:
    if not isinstance(text, str) or "\0" in text:
        raise ValueError("a path is text without a NUL character")
    return Path(text)
