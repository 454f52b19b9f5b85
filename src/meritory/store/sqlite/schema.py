"""The schema of a SQLite store: the shared tables, and a full-text index that triggers fill.

Every table has a generated column `checksum` over all its columns, so each write of a row, by any
statement, stores the checksum of its new values. Reads do not need the function that computes it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

from meritory.store.sql.tables import BY_NAME, TABLES, Migration, SqlTable

# The tables of a SQLite store.
STORED_TABLES = tuple(table for table in TABLES if table.engine != "postgres")

# A table with large values is smaller and faster with row ids.
_WITH_ROW_IDS = frozenset({"memory_vectors"})

FULL_TEXT_TABLE = """CREATE VIRTUAL TABLE memories_fts USING fts5 (
        content, words, content = 'memories_live', content_rowid = 'row',
        tokenize = 'porter unicode61 remove_diacritics 2'
    )"""
_FULL_TEXT = (
    # The contents of the index: FTS5 compares with them, and rebuilds from them.
    """CREATE VIEW memories_live AS SELECT row, content, words FROM memories
        WHERE deleted_at IS NULL AND superseded_by IS NULL""",
    FULL_TEXT_TABLE,
    "CREATE VIRTUAL TABLE memories_vocabulary USING fts5vocab ('memories_fts', 'row')",
    # Only live memories are in the full-text index: a search cannot find a forgotten one.
    """CREATE TRIGGER memories_indexed AFTER INSERT ON memories
        WHEN new.deleted_at IS NULL AND new.superseded_by IS NULL BEGIN
        INSERT INTO memories_fts (rowid, content, words)
            VALUES (new.row, new.content, new.words);
    END""",
    """CREATE TRIGGER memories_unindexed AFTER DELETE ON memories
        WHEN old.deleted_at IS NULL AND old.superseded_by IS NULL BEGIN
        INSERT INTO memories_fts (memories_fts, rowid, content, words)
            VALUES ('delete', old.row, old.content, old.words);
    END""",
    """CREATE TRIGGER memories_reindexed
        AFTER UPDATE OF content, words, deleted_at, superseded_by ON memories BEGIN
        INSERT INTO memories_fts (memories_fts, rowid, content, words)
            SELECT 'delete', old.row, old.content, old.words
            WHERE old.deleted_at IS NULL AND old.superseded_by IS NULL;
        INSERT INTO memories_fts (rowid, content, words)
            SELECT new.row, new.content, new.words
            WHERE new.deleted_at IS NULL AND new.superseded_by IS NULL;
    END""",
)
_FIRST_ROWS = """INSERT INTO meta VALUES
    ('change', '0'), ('learned', '0'), ('secret', lower(hex(randomblob(32))))"""


def add_functions(connection: sqlite3.Connection) -> None:
    """Register the function of the schema, without which rows can be read but not written."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)


def row_checksum(*values: Any) -> bytes:
    """Return the checksum of the values of a row, as `checksum_values` selects them."""
    # Bytes, numbers and None have the same `repr` in every version of Python.
    return hashlib.blake2b(repr(values).encode("ascii"), digest_size=8).digest()


def checksum_values(table: SqlTable) -> str:
    """Return the SQL of the values that a checksum covers: all columns, in their order."""
    # Damaged text may not be text. SQLite does not store a negative zero.
    forms = {"TEXT": "CAST({} AS BLOB)", "REAL": "{} + 0.0"}
    return ", ".join(forms.get(column.type, "{}").format(column.name) for column in table.columns)


def _create(table: SqlTable) -> list[str]:
    """Return the statements that create a table and its indexes."""
    lines = []
    has_row_id = table.name in _WITH_ROW_IDS
    for column in table.columns:
        line = f"{column.name} {'BLOB' if column.type == 'VECTOR' else column.type}"
        if table.key == (column.name,):
            line += " PRIMARY KEY"
            # An integer key is the row id.
            has_row_id |= column.type == "INTEGER"
            if table.numbering in ("serial", "counted"):
                line += " AUTOINCREMENT"
        elif not column.is_nullable:
            line += " NOT NULL"
        if column.default is not None:
            line += f" DEFAULT {column.default}"
        if column.references:
            line += f" REFERENCES {column.references} ({BY_NAME[column.references].key[0]})"
            line += " ON DELETE CASCADE" if column.cascades else ""
        lines.append(line)
    lines.append(f"checksum BLOB NOT NULL AS (row_checksum({checksum_values(table)})) STORED")
    if len(table.key) > 1:
        lines.append(f"PRIMARY KEY ({', '.join(table.key)})")
    if table.unique:
        lines.append(f"UNIQUE ({', '.join(table.unique)})")
    body = ",\n    ".join(lines)
    options = "STRICT" if has_row_id else "STRICT, WITHOUT ROWID"
    return [
        f"CREATE TABLE {table.name} (\n    {body}\n) {options}",
        *(
            f"CREATE {'UNIQUE ' if index.is_unique else ''}INDEX {index.name}"
            f" ON {table.name} ({index.columns}){f' WHERE {index.where}' if index.where else ''}"
            for index in table.indexes
        ),
    ]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "first",
        (
            *(statement for table in STORED_TABLES for statement in _create(table)),
            *_FULL_TEXT,
            _FIRST_ROWS,
        ),
    ),
)
