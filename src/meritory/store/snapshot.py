"""A copy of a store's file that is taken without writing to it, whoever else uses it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from meritory.errors import InputError, NotFound
from meritory.store.backup import hold
from meritory.store.engine import BUSY_TIMEOUT_MS, demand_ours, translated


def snapshot(source: Path, target: Path) -> None:
    """Copies a database as it is at this moment into a file of its own.

    The source is opened for reading only, and no migration or tidying touches it, as opening it as
    a store would. It may be in use meanwhile.
    """
    source = Path(os.path.realpath(source))
    if not source.is_file():
        raise NotFound(f"there is no store {source}", hint="`meritory remember` makes one")
    if os.path.lexists(target):
        raise InputError(f"{target} exists already", hint="choose another name")
    with translated(source), contextlib.closing(hold(source)):
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with (
            contextlib.closing(_reader(source)) as reader,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            demand_ours(reader, source)
            reader.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")


def _reader(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA query_only = ON")
    return connection
