"""Backups of a store file, taken while it is in use, and their restore."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import IO

from meritory.domain.errors import Busy, Corrupt, InputError, NotFound, SchemaTooNew
from meritory.store.sqlite import integrity
from meritory.store.sqlite.engine import (
    BUSY_TIMEOUT_MS,
    connect,
    demand_ours,
    schema_version,
    side_files,
    translated,
)
from meritory.store.sqlite.schema import MIGRATIONS, add_functions


def snapshot(source: Path, target: Path) -> None:
    """Copy a database as it is at this moment; it may be in use.

    The source is opened read-only. Opening it as a store would migrate it and finish a purge.
    """
    source = Path(os.path.realpath(source))
    if not source.is_file():
        raise NotFound(f"there is no store {source}", hint="`meritory remember` makes one")
    if os.path.lexists(target):
        raise InputError(f"{target} exists already", hint="choose another name")
    with translated(source), contextlib.closing(hold(source)):
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        reader = sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True, isolation_level=None)
        with (
            contextlib.closing(reader),
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            reader.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            reader.execute("PRAGMA query_only = ON")
            demand_ours(reader, source)
            reader.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")


def hold(path: Path, *, alone: bool = False) -> IO[bytes]:
    """Lock the lock file of a store, shared or alone; Busy if another process is in the way."""
    lock_path = path.with_name(f"{path.name}.lock")
    with translated(path):
        handle = open(os.open(lock_path, os.O_CREAT | os.O_RDWR, 0o600), "rb+")  # noqa: SIM115
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise Busy(
                f"{path} is in use by another process", hint="stop it, then try again"
            ) from None
    return handle


def write_backup(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the whole database online, check the copy and move it into place."""
    if target.exists():
        raise InputError(f"{target} exists already", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}", hint="create it first")
    temporary = target.with_name(f"{target.name}.part-{os.getpid()}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(temporary)) as copy:
            add_functions(copy)
            connection.backup(copy)
            # One plain file: a copy that needs its own log is easy to break.
            copy.execute("PRAGMA journal_mode = DELETE")
            _demand_sound(copy, temporary)
        sync_file(temporary)
        os.replace(temporary, target)
        sync_file(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def restore(path: Path, source: Path, now: datetime) -> Path | None:
    """Replace a store with a backup; return the folder with the former files."""
    if not source.is_file():
        raise InputError(f"there is no backup {source}", hint="give the path of a backup file")
    log, _ = side_files(source)
    if log.exists() and log.stat().st_size:
        raise InputError(
            f"{source} has a log beside it, so it is a store and not a backup",
            hint="make a backup of it with `meritory backup`",
        )
    path = Path(os.path.realpath(path))
    with translated(path), contextlib.closing(hold(path, alone=True)):
        temporary = path.with_name(f"{path.name}.restore-{os.getpid()}")
        try:
            shutil.copyfile(source, temporary)
            temporary.chmod(0o600)
            try:
                with translated(source), contextlib.closing(connect(temporary, write=True)) as copy:
                    _demand_sound(copy, source)
                    copy.execute("PRAGMA journal_mode = WAL")
            except Corrupt as error:
                # Not the usual advice to restore a backup: that is what failed.
                hint = "nothing was changed; choose another backup"
                raise Corrupt(error.message, hint=hint) from error
            sync_file(temporary)
            aside = _set_aside(path, now)
            os.replace(temporary, path)
            sync_file(path.parent)
            return aside
        finally:
            for leftover in (temporary, *side_files(temporary)):
                leftover.unlink(missing_ok=True)


def _set_aside(path: Path, now: datetime) -> Path | None:
    present = [file for file in (path, *side_files(path)) if file.exists()]
    if not present:
        return None
    aside = path.with_name(f"{path.name}.before-restore-{now:%Y%m%dT%H%M%S%f}")
    aside.mkdir(mode=0o700)
    # The database itself stays until the new one replaces it. If the process is killed in between,
    # the next start opens the old one instead of creating an empty one.
    for file in present:
        if file == path:
            os.link(file, aside / file.name)
        else:
            os.replace(file, aside / file.name)
    sync_file(aside)
    return aside


def sync_file(path: Path) -> None:
    """Write a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _demand_sound(connection: sqlite3.Connection, path: Path) -> None:
    if schema_version(connection) > MIGRATIONS[-1].version:
        raise SchemaTooNew(f"{path} was written by a newer Meritory", hint="upgrade Meritory")
    if schema_version(connection) < 1:
        raise Corrupt(f"{path} is not a Meritory store", hint="choose another backup")
    if not integrity.has_our_schema(connection):
        raise Corrupt(f"{path} has tables that Meritory never made", hint="choose another backup")
    damage = integrity.check(connection, deep=True)
    if damage:
        raise Corrupt(
            f"{path} is damaged: {damage[0]}", hint="nothing was changed; try an older backup"
        )
