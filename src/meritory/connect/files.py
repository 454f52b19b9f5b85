"""Atomic reads and writes of other programs' files."""

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
    """Return the content of a file, None without one; raise an error for anything else."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            hint="check its permissions and its link target, and try again",
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is not a plain file", hint="move it away, and try again")
    if found.st_size > SIZE_LIMIT_BYTES:
        raise InputError(
            f"{path} has {found.st_size:,} bytes, too many for a settings file",
            hint="move it away, and try again",
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions, and try again"
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
            hint="make it writable, or add the lines that --dry-run shows by hand",
        )


def make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents; return the new ones, outermost first."""
    missing: list[Path] = []
    here = folder
    while not here.exists() and here != here.parent:
        missing.insert(0, here)
        here = here.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return missing


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
            _copy_ownership(file.fileno(), target)
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


def _copy_ownership(handle: int, target: Path) -> None:
    """Give a new file the permissions and the owner of the one it replaces."""
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
            f"{path} was changed by another program",
            hint="run the command again; nothing was changed in this file",
        )
