"""What the SQLite of this Python can do, and what a database file says of itself."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from meritory.store.engine import connect, schema_version, translated
from meritory.store.schema import MIGRATIONS

# Strict tables, which the schema uses, came with this version.
SQLITE_VERSION_MIN = (3, 37, 0)


@dataclass(frozen=True, slots=True)
class Features:
    """The version of SQLite and whether it has what the store needs."""

    version: str
    is_new_enough: bool
    has_full_text: bool


def sqlite_features() -> Features:
    """Looks at the SQLite that this Python was built with."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE probe USING fts5 (words)")
            has_full_text = True
        except sqlite3.OperationalError:
            has_full_text = False
    return Features(
        sqlite3.sqlite_version, sqlite3.sqlite_version_info >= SQLITE_VERSION_MIN, has_full_text
    )


def schema_of(path: Path) -> tuple[int, int]:
    """The schema of a database file and the newest one we know; nothing is changed."""
    with translated(path), contextlib.closing(connect(path, write=False)) as connection:
        return schema_version(connection), MIGRATIONS[-1].version
