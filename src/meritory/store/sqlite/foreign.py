"""Read-only access to SQLite databases of other programs."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError

MAGIC = b"SQLite format 3\0"
VALUE_LIMIT_BYTES = 64_000_000
_COPY_TRIES = 3


class ForeignTables:
    """The tables of an open database of another program."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table; none if there is no such table."""
        found = self._connection.execute(
            """SELECT c.name FROM sqlite_master m, pragma_table_info(m.name) c
                WHERE m.type = 'table' AND m.name = ? ORDER BY c.cid""",
            (table,),
        )
        return tuple(name for (name,) in found)

    def names(self) -> tuple[str, ...]:
        """Return the names of the tables."""
        found = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
        return tuple(str(name) for (name,) in found)

    def rows(self, table: str, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield all rows in the order of insertion; a missing column is None in each."""
        present = [name for name in wanted if name in self.columns(table)]
        if not present:
            return
        picked = ", ".join(f'"{name}"' for name in present)
        empty = dict.fromkeys(wanted)
        # Both names are ours: they were looked up above.
        statement = f'SELECT {picked} FROM "{table}" ORDER BY rowid'  # noqa: S608
        for row in self._connection.execute(statement):
            yield empty | dict(zip(present, row, strict=True))


@contextmanager
def open_foreign(path: Path) -> Iterator[ForeignTables]:
    """Open a database read-only; one with changes in its log is read from a copy."""
    log = path.with_name(f"{path.name}-wal")
    try:
        if log.is_file() and log.stat().st_size:
            with (
                tempfile.TemporaryDirectory(prefix="meritory-import-") as folder,
                _connected(_copied(path, log, Path(folder)), "mode=rw") as tables,
            ):
                yield tables
        else:
            with _connected(path, "mode=ro&immutable=1") as tables:
                yield tables
    except (sqlite3.Error, OSError) as error:
        raise InputError(
            f"{path} cannot be read as a database: {str(error)[:200]}",
            hint="check that it is the right file and not damaged",
        ) from error


@contextmanager
def _connected(path: Path, how: str) -> Iterator[ForeignTables]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT_BYTES)
        # Code in its schema is not run.
        connection.execute("PRAGMA trusted_schema = OFF")
        yield ForeignTables(connection)


def _copied(path: Path, log: Path, folder: Path) -> Path:
    """Return a consistent copy: no process wrote while it was made."""
    target = folder / "copy.db"
    for _ in range(_COPY_TRIES):
        before = _state(path, log)
        shutil.copyfile(path, target)
        shutil.copyfile(log, folder / "copy.db-wal")
        if _state(path, log) == before:
            return target
    raise InputError(f"{path} is being written to", hint="stop the program that uses it first")


def _state(*files: Path) -> list[tuple[int, int]]:
    return [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
