"""Reading and writing files that belong to somebody else: whole, in one step, and never twice."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from meritory.domain.errors import Conflict, InputError, ReadOnlyStore

SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
NEW_FILE_MODE: Final = 0o600


def read_file(path: Path) -> bytes | None:
    """The content of a file, None when there is none; refuses what is no plain file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            hint="check its rights and where it links to, and try again",
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is not a plain file", hint="move it away, and try again")
    if found.st_size > SIZE_LIMIT_BYTES:
        raise InputError(
            f"{path} has {found.st_size:,} bytes, far more than settings have",
            hint="move it away, and try again",
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", hint="check its rights, and try again"
        ) from error


def text_of(path: Path, content: bytes | None) -> str:
    """The content as text; refuses what is not UTF-8."""
    try:
        return (content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {error.start + 1} does not fit",
            hint="save it as UTF-8, and try again; nothing was changed",
        ) from error


def check_writable(path: Path) -> None:
    """Refuses what could not be written, before anything is."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="move it away, and try again")
    protected = target if target.exists() and not os.access(target, os.W_OK) else None
    if protected is None and not os.access(folder, os.W_OK | os.X_OK):
        protected = folder
    if protected is not None:
        raise ReadOnlyStore(
            f"{protected} cannot be written",
            hint="make it writable, or put the lines of --dry-run there in your own way",
        )


def make_folders(folder: Path) -> list[Path]:
    """Makes a folder and those above it; returns the ones that were not there, outermost first."""
    missing: list[Path] = []
    here = folder
    while not here.exists() and here != here.parent:
        missing.insert(0, here)
        here = here.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return missing


def replace_file(path: Path, before: bytes | None, after: bytes | None) -> None:
    """Puts another content in a file's place, or takes it away, if it is still as expected.

    A link stays a link: what it leads to is replaced. Permissions and owner stay.
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
            _dress(file.fileno(), target)
            os.fsync(file.fileno())
        _expect(path, before)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _settle(target.parent)


def _dress(handle: int, target: Path) -> None:
    """Gives a new file the permissions and the owner of the one it replaces."""
    try:
        old = target.stat()
    except FileNotFoundError:
        os.fchmod(handle, NEW_FILE_MODE)
        return
    os.fchmod(handle, stat.S_IMODE(old.st_mode))
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, old.st_uid, old.st_gid)


def _expect(path: Path, before: bytes | None) -> None:
    if read_file(path) != before:
        raise Conflict(
            f"{path} was changed by another program meanwhile",
            hint="run the command again; nothing was changed in this file",
        )


def _settle(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
