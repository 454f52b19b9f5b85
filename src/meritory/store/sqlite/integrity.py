"""Damage in a SQLite file: find it by checksums, and repair what follows from other data."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from meritory.store.contract.store import DamagedRow
from meritory.store.search.index import are_unit
from meritory.store.sql.mapper import vector_bytes, vector_dimension, vector_parts
from meritory.store.sql.memories import DAMAGE_LIMIT, check_memories
from meritory.store.sql.tables import BY_NAME, SqlTable
from meritory.store.sqlite.schema import (
    FULL_TEXT_TABLE,
    MIGRATIONS,
    STORED_TABLES,
    add_functions,
    checksum_values,
    row_checksum,
)

_SHADOW_TABLES = tuple(f"memories_fts_{part}" for part in ("data", "idx", "docsize", "config"))
# Rows that the text of their memory gives again; those that refer to others come first.
_DERIVED = ("memory_vectors", "attributes", "aspects", "entities")
# Of a longer value only single bits are tried, and of the longest nothing.
_TRIED_BYTES, _TRIED_BITS = 4_096, 32_768
# Each row takes up to some seconds; so many were not damaged byte by byte.
_TRIED_ROWS = 100
_BITS = tuple(1 << bit for bit in range(8))
_INTEGER_BYTES = (1, 2, 3, 4, 6, 8)
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)


def check(connection: sqlite3.Connection, *, deep: bool) -> list[str]:
    """Return the problems of the database; `deep` also reads every row and its checksum."""
    # Only the slow check compares indexes with their tables; a wrong one can hide every memory.
    pragma = "integrity_check" if deep else "quick_check"
    checks: list[Callable[[sqlite3.Connection], Iterable[str]]] = [
        lambda connection: (
            text
            for (text,) in connection.execute(f"PRAGMA {pragma}({DAMAGE_LIMIT})")
            if text != "ok"
        )
    ]
    if deep:
        checks += [_schema, _rows, check_memories, _vectors, _links, _numbers, _full_text]
    damage: list[str] = []
    for find in checks:
        try:
            damage += itertools.islice(find(connection), 2 * DAMAGE_LIMIT)
        except _UNREADABLE as error:
            damage.append(f"the database cannot be read: {error}")
    return list(dict.fromkeys(damage))


def has_our_schema(connection: sqlite3.Connection) -> bool:
    """Return whether the database has exactly the objects that our migrations make."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        add_functions(fresh)
        for migration in MIGRATIONS[:version]:
            for statement in migration.statements:
                fresh.execute(statement)
        return _objects(connection) == _objects(fresh)


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return the objects of the schema without those of SQLite and FTS5."""
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return {
        (kind, name, sql)
        for kind, name, sql in found
        if not name.startswith("sqlite_") and not (kind == "table" and name in _SHADOW_TABLES)
    }


def _schema(connection: sqlite3.Connection) -> Iterator[str]:
    if not has_our_schema(connection):
        yield "the schema is not the one Meritory made"


def _rows(connection: sqlite3.Connection) -> Iterator[str]:
    for table in STORED_TABLES:
        try:
            found = _damaged_of(connection, table)
        except _UNREADABLE as error:
            yield f"{table.name} cannot be read: {error}"
            continue
        if found:
            named = "; ".join(row.key_text for row in found[:DAMAGE_LIMIT])
            more = f"; and {len(found) - DAMAGE_LIMIT} more" if len(found) > DAMAGE_LIMIT else ""
            subject = "row" if len(found) == 1 else "rows"
            yield f"{table.name}: {len(found)} {subject} with a wrong checksum: {named}{more}"


def _vectors(connection: sqlite3.Connection) -> Iterator[str]:
    return (f"the vector of row {row} is damaged" for row in _bad_vectors(connection))


def _bad_vectors(connection: sqlite3.Connection) -> Iterator[int]:
    """Yield the rows whose vector has a wrong length, whatever their checksum says."""
    found = connection.execute(
        """SELECT v.row, v.vector, length(v.vector) IS e.dimension + ? FROM memory_vectors v
            JOIN embedders e ON e.embedder = v.embedder WHERE length(v.vector) > 0""",
        (vector_bytes(0),),
    )
    for row, blob, has_its_length in found:
        is_whole = has_its_length and isinstance(blob, bytes)
        if not is_whole:
            yield row
            continue
        scales, steps = vector_parts(blob, vector_dimension(blob))
        if not are_unit(steps, scales).all():
            yield row


def _links(connection: sqlite3.Connection) -> Iterator[str]:
    for table, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield f"a row of {table} points at nothing"


def _numbers(connection: sqlite3.Connection) -> Iterator[str]:
    """Find tables that would give the number of one of their rows again."""
    for name, last in connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
        number = BY_NAME[name].number if name in BY_NAME else None
        if number is None:
            yield f"sqlite_sequence counts the rows of an unknown table {str(name)[:40]!r}"
            continue
        (used,) = connection.execute(f"SELECT max({number}) FROM {name}").fetchone()  # noqa: S608
        if not isinstance(last, int) or last < (used or 0):
            yield f"sqlite_sequence has {last!r} as the last number of {name}, which has {used}"


def _full_text(connection: sqlite3.Connection) -> Iterator[str]:
    """Let FTS5 compare a copy of the index with the texts: its check needs a write lock."""
    with _empty_index() as copy:
        config = "SELECT k, v FROM memories_fts_config"
        if connection.execute(config).fetchall() != copy.execute(config).fetchall():
            yield "the settings of the full-text index are damaged"
        for table in ("memories_live", *_SHADOW_TABLES):
            _copy_rows(connection, copy, table)
        try:
            copy.execute(
                "INSERT INTO memories_fts (memories_fts, rank) VALUES ('integrity-check', 1)"
            )
        except sqlite3.DatabaseError:
            yield "the full-text index does not match the memories"


@contextlib.contextmanager
def _empty_index() -> Iterator[sqlite3.Connection]:
    """Return a database with an empty full-text index and a table for its texts."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        fresh.execute("CREATE TABLE memories_live (row INTEGER PRIMARY KEY, content, words)")
        fresh.execute(FULL_TEXT_TABLE)
        yield fresh


def _copy_rows(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    rows = source.execute(f"SELECT * FROM {table}")  # noqa: S608 - our names
    marks = ", ".join("?" for _ in rows.description)
    target.execute(f"DELETE FROM {table}")  # noqa: S608
    target.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608


def _rebuild_full_text(connection: sqlite3.Connection) -> None:
    # FTS5 does not even open an index with damage in certain rows.
    with _empty_index() as fresh:
        for table in _SHADOW_TABLES:
            _copy_rows(fresh, connection, table)
    connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")


# -- rows --------------------------------------------------------------------------------------


def damaged_rows(connection: sqlite3.Connection) -> list[DamagedRow]:
    """Return the rows that do not match their checksum, table by table."""
    return [row for table in STORED_TABLES for row in _damaged_of(connection, table)]


def _damaged_of(connection: sqlite3.Connection, table: SqlTable) -> list[DamagedRow]:
    keys = _damaged(connection, table, ", ".join(_key_values(table)))
    return [
        DamagedRow(table.name, dict(zip(table.key, map(_text, key), strict=True))) for key in keys
    ]


def _damaged(connection: sqlite3.Connection, table: SqlTable, wanted: str) -> list[Any]:
    return connection.execute(
        f"SELECT {wanted} FROM {table.name}"  # noqa: S608 - our names
        f" WHERE checksum IS NOT row_checksum({checksum_values(table)})"
    ).fetchall()


def _key_values(table: SqlTable) -> list[str]:
    # Expressions, because a damaged key is not where an index looks for it.
    return [
        f"CAST({name} AS BLOB)" if table.column(name).type == "TEXT" else f"+{name}"
        for name in table.key
    ]


def _text(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _restore_bytes(connection: sqlite3.Connection) -> int:
    """Undo changes of a single byte in rows, which the checksum proves; return their number."""
    count = 0
    for table, row in itertools.islice(_damaged_values(connection), _TRIED_ROWS):
        key, (checksum, *values) = row[: len(table.key)], row[len(table.key) :]
        found = _restored(values, checksum)
        # A row on a damaged page may be impossible to write.
        with contextlib.suppress(sqlite3.DatabaseError):
            count += 0 if found is None else _set(connection, table, key, *found)
    return count


def _damaged_values(connection: sqlite3.Connection) -> Iterator[tuple[SqlTable, Any]]:
    """Yield the damaged rows of all tables: key, checksum and the values that it covers."""
    for table in STORED_TABLES:
        wanted = ", ".join((*_key_values(table), "checksum", checksum_values(table)))
        with contextlib.suppress(sqlite3.DatabaseError):
            yield from ((table, row) for row in _damaged(connection, table, wanted))


def _set(connection: sqlite3.Connection, table: SqlTable, key: Any, at: int, value: Any) -> int:
    """Store one value of a row, and with it the checksum of all; return how many rows changed."""
    column = table.columns[at]
    form = "CAST(? AS TEXT)" if column.type == "TEXT" else "?"
    where = " AND ".join(f"{name} IS ?" for name in _key_values(table))
    return connection.execute(
        f"UPDATE {table.name} SET {column.name} = {form} WHERE {where}",  # noqa: S608 - our names
        (value, *key),
    ).rowcount


def _restored(values: Sequence[Any], checksum: Any) -> tuple[int, Any] | None:
    """Return the place and the former value of the one byte that changed; None if there is none."""
    if not isinstance(checksum, bytes) or len(checksum) != len(row_checksum()):
        return None
    changed = sum(a != b for a, b in zip(checksum, row_checksum(*values), strict=True))
    if changed == 1:
        # The byte was one of the checksum: two checksums are never that close by chance.
        return 0, values[0]
    texts = [repr(value) for value in values]
    for at, value in enumerate(values):
        head = hashlib.blake2b(
            "".join(("(", *(f"{text}, " for text in texts[:at]))).encode("ascii"), digest_size=8
        )
        tail = "".join((*(f", {text}" for text in texts[at + 1 :]), ")"))
        for former in _neighbours(value):
            tried = head.copy()
            tried.update(f"{former!r}{tail}".encode("ascii"))
            if tried.digest() == checksum:
                return at, former
    return None


def _neighbours(value: Any) -> Iterator[Any]:
    """Yield the values that differ from this one in a single stored byte."""
    if isinstance(value, bytes) and len(value) <= _TRIED_BITS:
        changes = range(1, 256) if len(value) <= _TRIED_BYTES else _BITS
        for at, byte in enumerate(value):
            head, tail = value[:at], value[at + 1 :]
            yield from (head + bytes((byte ^ change,)) + tail for change in changes)
    elif isinstance(value, int):
        for size in _INTEGER_BYTES:
            with contextlib.suppress(OverflowError):
                stored = value.to_bytes(size, "big", signed=True)
                yield from (int.from_bytes(one, "big", signed=True) for one in _neighbours(stored))
    elif isinstance(value, float):
        yield from (struct.unpack(">d", one)[0] for one in _neighbours(struct.pack(">d", value)))
        if value.is_integer() and abs(value) < 2**47:
            # SQLite stores it like an integer.
            yield from (float(one) for one in _neighbours(int(value)) if abs(one) < 2**47)


def repair(connection: sqlite3.Connection) -> list[str]:
    """Repair rows and indexes, delete damaged rows that can be made again; return what was done."""
    done = []
    # First, because writes need the indexes.
    for what, rebuild in (
        ("indexes", lambda: connection.execute("REINDEX")),
        ("full-text index", lambda: _rebuild_full_text(connection)),
    ):
        try:
            rebuild()
            done.append(f"{what} rebuilt")
        except sqlite3.DatabaseError as error:
            done.append(f"{what} not rebuilt: {error}")
    if count := _restore_bytes(connection):
        done.append(f"rows restored in which one byte had changed: {count}")
    if count := _drop_derived(connection):
        done.append(f"damaged vectors and entity links deleted, to make them again: {count}")
    return done


def _drop_derived(connection: sqlite3.Connection) -> int:
    """Delete damaged rows that can be made again, and rows that refer to a missing one."""
    of_memory = "DELETE FROM memory_vectors WHERE row = ?"
    deleted: list[tuple[str, Any]] = [(of_memory, (row,)) for row in _bad_vectors(connection)]
    for name in _DERIVED:
        table = BY_NAME[name]
        where = " AND ".join(f"{key} IS ?" for key in _key_values(table))
        for key in _damaged(connection, table, ", ".join(_key_values(table))):
            deleted.append((f"DELETE FROM {name} WHERE {where}", key))  # noqa: S608 - our names
    for table in map(BY_NAME.__getitem__, _DERIVED[::-1]):
        deleted += [
            (
                f"DELETE FROM {table.name} WHERE {column.name} NOT IN"  # noqa: S608 - our names
                f" (SELECT {BY_NAME[column.references].key[0]} FROM {column.references})",
                (),
            )
            for column in table.columns
            if column.references
        ]
    count = 0
    for statement, values in deleted:
        with contextlib.suppress(sqlite3.DatabaseError):
            count += connection.execute(statement, values).rowcount
    return count
