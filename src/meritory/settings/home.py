"""The data folder: its path, its file names, and its permissions."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from meritory.domain.errors import ReadOnlyStore, SettingsError, translate_system

HOME_VARIABLE = "MERITORY_HOME"
# The url and token of a daemon on another machine, for agents and programs here.
URL_VARIABLE, TOKEN_VARIABLE = "MERITORY_URL", "MERITORY_TOKEN"
HOME_NAME = ".meritory"
CONFIG_NAME = "config.toml"
STORE_NAME = "meritory.db"
# Files of the daemon in the data folder, which its clients read.
DAEMON_NAME = "daemon.json"
LOCK_NAME = "daemon.lock"
# Events that hooks kept while no daemon took them.
SPOOL_NAME = "spool"
SOCKET_NAME = "meritory.sock"
TOKEN_NAME = "token"  # noqa: S105 - the name of a file
LOG_NAME = "daemon.log"
# Space that a daemon needs to start when the disk is full.
RESERVE_NAME = "daemon.reserve"
# Hashes of the dashboard's logins.
LOGINS_NAME = "logins.json"
# Figures for the developers, kept once the user agreed.
TELEMETRY_NAME = "telemetry.jsonl"
# Copies of the models in a team's database.
COPIED_MODELS_NAME = "database-models"
HOME_MODE = 0o700
_OTHERS = 0o077
_CHOOSE = f"set {HOME_VARIABLE} to a folder of its own"


def home_folder(environ: Mapping[str, str]) -> Path:
    """Return the data folder: $MERITORY_HOME, or .meritory in the user's home."""
    given = environ.get(HOME_VARIABLE, "")
    if "\0" in given:
        raise SettingsError(f"{HOME_VARIABLE} holds a NUL character", hint=_CHOOSE)
    try:
        own = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
        if not given:
            return (own / HOME_NAME).absolute()
        if given == "~" or given.startswith("~/"):
            return (own / given[2:]).absolute()
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise SettingsError("the user's home folder is not known", hint=_CHOOSE) from error


def prepare_home(path: Path) -> str | None:
    """Create the data folder if needed, and make it writable and private.

    Return a notice for the user when other users could read it before. A folder that other
    programs use, such as /tmp or the user's home, is never changed.
    """
    try:
        created = not path.is_dir()
        if created and path.exists():
            raise SettingsError(
                f"{path} is a file, not a folder", hint=f"move it away, or {_CHOOSE}"
            )
        if created and path.is_symlink():
            raise SettingsError(
                f"{path} is a link that leads nowhere", hint=f"mend it, or {_CHOOSE}"
            )
        if created:
            path.mkdir(mode=HOME_MODE, parents=True, exist_ok=True)
            # The process's umask may have removed some of the owner's permissions.
            path.chmod(HOME_MODE)
        if not os.access(path, os.W_OK | os.X_OK):
            raise ReadOnlyStore(
                f"the data folder {path} cannot be written", hint=f"make it writable, or {_CHOOSE}"
            )
        mode = stat.S_IMODE(path.stat().st_mode)
        if created or not mode & _OTHERS:
            return None
        names = set(os.listdir(path))
        is_own = not names or names & {CONFIG_NAME, STORE_NAME}
        if mode & stat.S_ISVTX or not is_own:
            raise SettingsError(
                f"{path} is open to other users (mode {mode:03o}) and holds files of others",
                hint=f"{_CHOOSE}, or close it with chmod 700",
            )
        path.chmod(HOME_MODE)
    except OSError as error:
        raise SettingsError(
            f"the data folder {path} cannot be prepared: {error.strerror}", hint=_CHOOSE
        ) from error
    return (
        f"{path} was open to other users (mode {mode:03o}); "
        f"it is private now (mode {HOME_MODE:03o})"
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise translate_system(error, path) from error
