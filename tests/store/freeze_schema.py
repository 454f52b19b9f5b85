"""Write tests/fixtures/schemas/ENGINE-NNNN.sql for the newest schema of each engine.

Run it as `python tests/store/freeze_schema.py` when a schema changes. Once a version is released,
its files must not change any more.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from contract.builders import (  # noqa: E402
    EMBEDDER,
    about,
    indexed,
    insert,
    record,
    unit,
    update,
)
from meritory.store.postgres.schema import MIGRATIONS as POSTGRES_MIGRATIONS  # noqa: E402
from meritory.store.sql.tables import Migration  # noqa: E402
from meritory.store.sqlite.schema import MIGRATIONS  # noqa: E402
from meritory.store.sqlite.store import SqliteStore  # noqa: E402

# Parents before children, for foreign keys; the full-text index fills itself by triggers.
TABLES = (
    "scopes",
    "embedders",
    "memories",
    "memory_stats",
    "memory_vectors",
    "memory_history",
    "counters",
    "entities",
    "aspects",
    "attributes",
    "dependencies",
    "imports",
)


def dump(connection: sqlite3.Connection) -> Iterator[str]:
    """Return the statements of every migration, then the rows of a small store."""
    for migration in MIGRATIONS:
        yield from migration.statements
    for table in TABLES:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        quoted = ", ".join(f"quote({column})" for column in columns)
        for row in connection.execute(f"SELECT {quoted} FROM {table}"):
            yield f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(row)})"
    for key, value in connection.execute("SELECT key, value FROM meta"):
        yield f"DELETE FROM meta WHERE key = '{key}'"
        yield f"INSERT INTO meta VALUES ('{key}', '{value}')"
    yield f"PRAGMA user_version = {MIGRATIONS[-1].version}"


def main() -> None:
    """Write the files of the newest versions."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "meritory.db"
        store = SqliteStore(path)
        store.register_embedder(EMBEDDER)
        item = indexed(
            record(1), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}, attributes=(about("harbour"),)
        )
        insert(store, item)
        update(store, record(1), record(1, "the harbour opens at nine"))
        store.write("default", lambda t: t.count("default", "write.stored"))
        store.close()
        connection = sqlite3.connect(path)
        write("sqlite", MIGRATIONS, dump(connection))
        connection.close()
    statements = (text for migration in POSTGRES_MIGRATIONS for text in migration.statements)
    write("postgres", POSTGRES_MIGRATIONS, statements)


def write(engine: str, migrations: tuple[Migration, ...], statements: Iterable[str]) -> None:
    """Write one file."""
    target = TESTS / "fixtures" / "schemas" / f"{engine}-{migrations[-1].version:04d}.sql"
    target.write_text(";\n".join(statements) + ";\n", "utf-8")


if __name__ == "__main__":
    main()
