"""The rows of a session as JSON values, for export and import."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from meritory.domain.errors import Corrupt, InputError
from meritory.store.sql import candidates
from meritory.store.sql.mapper import SqlReader
from meritory.store.sql.sessions import SqlSessionWrites
from meritory.store.sql.tables import TABLES, SqlColumn, SqlTable

# By table the rows of a session, each by column.
SessionRows = Mapping[str, list[dict[str, Any]]]
# Every table whose rows belong to one session, that of sessions first.
_TABLES = {table.name: table for table in TABLES if table.numbers.get("session") == "sessions"}
_NOT_EXPORTED = frozenset({"user", "session"})
_NUMBER_MAX = 1 << 62
# Columns that reads decode. Other columns hold text, which may begin like JSON.
_JSON = frozenset(
    (
        *("used", "origins", "label_parts", "offer", "missing_topics", "relevance_scores"),
        *("predictor_top_ids", "baseline_top_ids", "replay_ndcg", "replay_log_rank"),
        *("memory_ids", "shown", "predictor_ranks", "labels"),
    )
)
_TYPES: Mapping[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float)}


def _columns(table: SqlTable) -> list[SqlColumn]:
    """Return the columns of a table without those that the importing store gives."""
    own = {table.number} if table.number else set()
    return [one for one in table.columns if one.name not in _NOT_EXPORTED | own]


def check_rows(rows: object) -> SessionRows:
    """Return the rows of an export with blobs decoded; raise InputError if they do not fit."""
    if not isinstance(rows, dict) or rows.keys() - _TABLES.keys():
        raise InputError("a session has unknown tables", hint=f"expected {', '.join(_TABLES)}")
    if len(rows.get("sessions", ())) != 1:
        raise InputError("a session must have exactly one row of its own")
    checked: dict[str, list[dict[str, Any]]] = {}
    for name, listed in rows.items():
        columns = _columns(_TABLES[name])
        expected = {column.name for column in columns}
        if not isinstance(listed, list) or any(
            not isinstance(row, dict) or row.keys() != expected for row in listed
        ):
            raise InputError(f"a row of {name} has unknown or missing columns")
        checked[name] = [
            {column.name: _check(column, row[column.name]) for column in columns} for row in listed
        ]
    try:
        for row in checked.get("session_packs", ()):
            if row["content"]:
                candidates.decode(row["content"])
    except Corrupt as error:
        raise InputError(str(error)) from error
    return checked


def _check(column: SqlColumn, value: Any) -> Any:
    wrong = InputError(f"{column.name} of a session is not {column.type}")
    if value is None:
        if not column.is_nullable:
            raise wrong
        return None
    if column.type in _TYPES:
        is_number = isinstance(value, _TYPES[column.type]) and not isinstance(value, bool)
        if not is_number or not abs(value) < _NUMBER_MAX:
            raise wrong
        return value
    if not isinstance(value, str) or "\0" in value:
        raise wrong
    if column.type == "TEXT":
        return _check_json(column, value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise wrong from error


def _check_json(column: SqlColumn, text: str) -> str:
    """Return a text; that of a column with JSON must be JSON."""
    if column.name not in _JSON or not text:
        return text
    try:
        json.loads(text)
    except ValueError as error:
        raise InputError(f"{column.name} of a session is not JSON") from error
    return text


class SqlSessionRowReads(SqlReader):
    """Reads of whole sessions."""

    def session_rows(self, user: str, key: str) -> SessionRows:
        """Return all rows of a session, with blobs as base64."""
        rows: dict[str, list[dict[str, Any]]] = {}
        with self._reading(user) as connection:
            for name, table in _TABLES.items():
                columns = _columns(table)
                chosen = ", ".join(column.name for column in columns)
                order = ", ".join(table.key)
                found = connection.execute(
                    f"""SELECT {chosen} FROM {name} WHERE session =
                        (SELECT session FROM sessions WHERE user = ? AND key = ?)
                        ORDER BY {order}""",  # noqa: S608 - our names
                    (user, key),
                ).fetchall()
                rows[name] = [
                    {
                        column.name: base64.b64encode(bytes(value)).decode()
                        if column.type == "BLOB" and value is not None
                        else value
                        for column, value in zip(columns, row, strict=True)
                    }
                    for row in found
                ]
        return rows


class SqlSessionRowWrites(SqlSessionWrites):
    """Imports of whole sessions."""

    def restore_session(self, user: str, rows: SessionRows) -> bool:
        """Insert a session with all its rows; do nothing if its key exists, and return False."""
        (session,) = rows["sessions"]
        found = "SELECT session FROM sessions WHERE user = ? AND key = ?"
        if self.connection.execute(found, (user, session["key"])).fetchone() is not None:
            return False
        if session["learned"] is not None:
            # Caches read sessions from the last number on.
            session = {**session, "learned": self._next_lesson(user)}
        self._insert("sessions", {"user": user, **session})
        (number,) = self.connection.execute(found, (user, session["key"])).fetchone()
        for name, table in _TABLES.items():
            owner = {"session": number}
            if any(column.name == "user" for column in table.columns):
                owner["user"] = user
            if name != "sessions":
                for row in rows.get(name, ()):
                    self._insert(name, {**owner, **row})
        return True

    def _insert(self, table: str, values: Mapping[str, Any]) -> None:
        names = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - our names
        self.connection.execute(statement, tuple(values.values()))
