"""Reads that a reader connection and a transaction share."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from meritory.domain.codec import parse_moment, record_from_dict
from meritory.domain.errors import Corrupt, InputError, NotFound
from meritory.domain.memory import EveryScope, HistoryEntry, MemoryRecord, Scope
from meritory.store.sql import rows as codec
from meritory.store.sql.rows import SqlConnection

_HISTORY = """SELECT entry, memory_id, operation, at, actor, action, why, before, other, other_id,
    undone FROM memory_history """
# A later entry's `before` is an earlier one's `after`: each state is stored once.
_NEXT_BEFORE = """SELECT before FROM memory_history
    WHERE user = ? AND memory_id = ? AND entry > ? ORDER BY entry LIMIT 1"""


class SqlReads:
    """Records and history out of one connection."""

    def __init__(self, connection: SqlConnection, damaged: set[int] | None = None) -> None:
        self.connection = connection
        self._damaged = set() if damaged is None else damaged

    def records(self, where: str, values: Mapping[str, Any]) -> list[MemoryRecord]:
        """The memories that fit a condition of ours, in its order; Corrupt if one is damaged."""
        found = self.connection.execute(f"{codec.SELECT_RECORD} WHERE {where}", values)
        return [codec.decode(row) for row in found]

    def sound_records(
        self, where: str, values: Mapping[str, Any]
    ) -> dict[int, MemoryRecord | None]:
        """By row number the memories that fit a condition of ours, None for a damaged one.

        One damaged row must not take the others from anybody; `doctor` names it.
        """
        records: dict[int, MemoryRecord | None] = {}
        for row in self._rows(f"{codec.SELECT_RECORD} WHERE {where}", values):
            try:
                records[row[0]] = codec.decode(row)
            except Corrupt:
                self._damaged.add(row[0])
                records[row[0]] = None
        return records

    def _rows(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            own = self.connection
            if "decode to UTF-8" not in str(error) or not isinstance(own, sqlite3.Connection):
                raise
        # A text that is no text any more ends the whole query: read anew, in a way that makes
        # something of every byte. Its hash will not fit.
        plain, own.text_factory = own.text_factory, _any_text
        try:
            return own.execute(statement, values).fetchall()
        finally:
            own.text_factory = plain

    def history(self, user: str, memory_id: str) -> list[HistoryEntry]:
        """All changes of a memory, oldest first."""
        return self._entries(user, "WHERE user = ? AND memory_id = ?", (user, memory_id))

    def operation(self, user: str, operation: str) -> list[HistoryEntry]:
        """All changes that were made in one operation, oldest first."""
        return self._entries(user, "WHERE user = ? AND operation = ?", (user, operation))

    def merges(self, scope: Scope, limit: int) -> list[HistoryEntry]:
        """The latest merges the scope may see that were not split again, newest first."""
        return self._entries(
            scope.user,
            """WHERE user = ? AND action = 'merge' AND undone = 0 AND EXISTS (
                SELECT 1 FROM memories m WHERE m.user = memory_history.user
                    AND m.id = memory_history.memory_id
                    AND m.scope IN (SELECT value FROM json_each(?)))""",
            (scope.user, as_json(self.visible_scopes(scope))),
            order="ORDER BY entry DESC LIMIT ?",
            limit=(limit,),
        )

    def merge_entry(self, user: str, entry: int) -> HistoryEntry:
        """One merge by its history entry; NotFound otherwise."""
        found = self._entries(
            user, "WHERE user = ? AND entry = ? AND action = 'merge'", (user, entry)
        )
        if not found:
            raise NotFound(f"there is no merge {entry}", hint="`meritory merges` lists them")
        return found[0]

    def merges_before(self, user: str, before: int, limit: int) -> list[HistoryEntry]:
        """The latest merges of a user before an entry, newest first."""
        return self._entries(
            user,
            "WHERE user = ? AND action = 'merge' AND entry < ?",
            (user, before),
            order="ORDER BY entry DESC LIMIT ?",
            limit=(limit,),
        )

    def damaged_history(self, user: str | None = None) -> Iterator[str]:
        """What is wrong with the history entries, of one user or of all."""
        every = "SELECT at, before, other FROM memory_history"
        for at, before, other in self.connection.execute(
            every if user is None else f"{every} WHERE user = ?",
            () if user is None else (user,),
        ):
            try:
                _moment(at), _record(before), _record(other)
            except Corrupt as error:
                yield error.message

    def _entries(
        self,
        user: str,
        where: str,
        values: tuple[Any, ...],
        order: str = "ORDER BY entry",
        limit: tuple[int, ...] = (),
    ) -> list[HistoryEntry]:
        found = self.connection.execute(f"{_HISTORY} {where} {order}", (*values, *limit))
        return [self._entry(user, row) for row in found.fetchall()]

    def _entry(self, user: str, row: Sequence[Any]) -> HistoryEntry:
        entry, memory_id, operation, at, actor, action, why, before, other, other_id, undone = row
        return HistoryEntry(
            entry=entry,
            memory_id=memory_id,
            operation=operation,
            at=_moment(at),
            actor=actor,
            action=action,
            why=why,
            before=_record(before),
            after=self._after(user, memory_id, entry),
            other=_record(other),
            other_id=other_id,
            undone=bool(undone),
        )

    def _after(self, user: str, memory_id: str, entry: int) -> MemoryRecord | None:
        found = self.connection.execute(_NEXT_BEFORE, (user, memory_id, entry)).fetchone()
        if found is not None:
            return _record(found[0])
        now = self.records("m.user = :user AND m.id = :id", {"user": user, "id": memory_id})
        return now[0] if now else None

    def visible_scopes(self, scope: Scope) -> list[int]:
        """The scopes a query may see: its own project's and agent's, and those of none.

        One that asks for everything of a user sees all of them.
        """
        found = self.connection.execute(
            """SELECT scope FROM scopes WHERE user = ? AND (? = 1
                OR (agent IS NULL OR agent = ?) AND (project IS NULL OR project = ?))
                ORDER BY scope""",
            (scope.user, int(isinstance(scope, EveryScope)), scope.agent, scope.project),
        )
        return [number for (number,) in found]


def as_json(values: Iterable[Any]) -> str:
    """A list for `json_each`: one bound parameter instead of many."""
    return json.dumps(list(values))


def _any_text(data: bytes) -> str:
    return data.decode(errors="replace")


def _record(text: str | None) -> MemoryRecord | None:
    try:
        return None if text is None else record_from_dict(json.loads(text))
    except (ValueError, TypeError, AttributeError, InputError) as error:
        raise _damaged(error) from error


def _moment(text: str) -> datetime:
    try:
        return parse_moment(text)
    except InputError as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> Corrupt:
    return Corrupt(
        f"a history entry cannot be read: {error}",
        hint="run `meritory doctor --deep`; a backup may still hold the good one",
    )
