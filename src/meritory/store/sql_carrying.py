"""Rows that an export carries, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from meritory.codec import moment_text
from meritory.store.carrying import (
    Carried,
    CarriedAudit,
    CarriedBelief,
    CarriedLesson,
    CarriedRefusal,
    CarriedTestimony,
    CarriedWording,
    R,
)
from meritory.store.session_rows import moment
from meritory.store.sql import Connection, Reader

# The table of each kind, and what a row is told by.
_TABLES: dict[type[Carried], tuple[str, str]] = {
    CarriedWording: ("feedback_wordings", "agent, project, fingerprint"),
    CarriedLesson: ("feedback_lessons", "memory_id"),
    CarriedTestimony: ("feedback_evidence", "memory_id, feedback_id"),
    CarriedBelief: ("memory_beliefs", "memory_id"),
    CarriedRefusal: ("refusals", "id"),
    CarriedAudit: ("merge_audits", "entry"),
}
_MOMENTS = frozenset({"at", "first_at", "last_at"})


class SqlCarrying:
    """What a transaction can do with them."""

    connection: Connection

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        for row in rows:
            table, key = _TABLES[type(row)]
            names = [item.name for item in fields(row)]
            self.connection.execute(
                f"INSERT INTO {table} (user, {', '.join(names)})"  # noqa: S608 - names of ours
                f" VALUES (?{', ?' * len(names)}) ON CONFLICT (user, {key}) DO NOTHING",
                (user, *(_plain(getattr(row, name)) for name in names)),
            )


class SqlCarryingReads:
    """What can be asked of a store about them."""

    _engine: Reader

    def carried(self, user: str, kind: type[R]) -> list[R]:
        table, key = _TABLES[kind]
        names = [item.name for item in fields(kind)]
        statement = f"SELECT {', '.join(names)} FROM {table} WHERE user = ? ORDER BY {key}"  # noqa: S608
        with self._engine.read() as connection:
            found = connection.execute(statement, (user,)).fetchall()
        return [kind(**_typed(dict(zip(names, row, strict=True)))) for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    return int(value) if isinstance(value, bool) else value


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    for name in _MOMENTS & values.keys():
        values[name] = moment(values[name])
    if "is_contested" in values:
        values["is_contested"] = bool(values["is_contested"])
    return values
