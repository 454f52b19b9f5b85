"""The write verbs on PostgreSQL, as far as they differ from those on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tenure.store import rows as codec
from tenure.store.base import FloatArray, Indexed, Probe
from tenure.store.index import Nearest
from tenure.store.jobs import Job, Lease
from tenure.store.postgres import terms
from tenure.store.postgres.connection import TenantConnection
from tenure.store.postgres.nearest import nearest_rows
from tenure.store.postgres.vectors import embedder_of, vector_text
from tenure.store.rules import RecordedAction
from tenure.store.sessions import Event
from tenure.store.sql_events import EVENT_LIMIT, event_rows
from tenure.store.sql_jobs import PARK_UNLOCKED, SKIP_LOCKED
from tenure.store.sql_rules import ACTION_LIMIT, ADD_NUMBERED_ACTION, action_values
from tenure.store.sql_write import SqlTransaction
from tenure.store.stems import Stemmer
from tenure.types import MemoryRecord

_TEXT = """SELECT row, content, words FROM memories WHERE user = ? AND id = ?
    AND deleted_at IS NULL AND superseded_by IS NULL"""

_NAMES = ("row", *codec.MEMORY_COLUMNS)
_INSERT = (
    f"INSERT INTO memories ({', '.join(_NAMES)})"  # noqa: S608 - names of ours, as below
    f" VALUES ({', '.join(':' + name for name in _NAMES)})"
)
_ADD_EVENT = """INSERT INTO events (event, user, at, category, name, session_key, memory_id,
    request_id, details) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


@dataclass(slots=True)
class _Count:
    """What a tenant counts, as this transaction has it by now."""

    change: int
    purge: int
    learned: int
    row: int
    event: int
    action: int
    document_count: int
    token_count: int
    has_changed: bool = False


_COUNTED = tuple(field.name for field in fields(_Count))[:-1]
_COUNTS = f"SELECT {', '.join(_COUNTED)} FROM tenants WHERE user = ?"  # noqa: S608
_PUT_COUNTS = (
    f"UPDATE tenants SET {', '.join(f'{name} = :{name}' for name in _COUNTED)}"  # noqa: S608
    " WHERE user = :user"
)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a transaction shares with its store."""

    stemmer: Stemmer
    damaged: set[int]


class PostgresTransaction(SqlTransaction):
    """The verbs of one transaction; reads see what was written before them."""

    _KEEP = SqlTransaction._KEEP + " AND user = :user"
    _PARK = PARK_UNLOCKED
    _LOCKED = SKIP_LOCKED

    def __init__(self, connection: TenantConnection, tools: Tools) -> None:
        super().__init__(connection, self._nearest_rows, tools.damaged)
        self._tenants = connection
        self._stemmer = tools.stemmer
        self._counts: dict[str, _Count] = {}

    # -- full text and vectors --------------------------------------------------------------

    def _index_words(self, row: int, memory: Indexed) -> None:
        if _is_live(memory.record):
            self._add(row, memory)

    def _reindex_words(self, row: int, memory: Indexed) -> None:
        record = memory.record
        text = terms.Text(record.content, memory.words)
        known = self._text(record.user, record.id)
        if known is not None and (known != text or not _is_live(record)):
            self._drop(record.user, row, known)
        if _is_live(record) and known != text:
            self._add(row, memory)

    def _add(self, row: int, memory: Indexed) -> None:
        text = terms.Text(memory.record.content, memory.words)
        user = memory.record.user
        count = self._count_of(user)
        count.token_count += terms.add(self.connection, self._stemmer, user, row, text)
        count.document_count += 1

    def _drop(self, user: str, row: int, text: terms.Text) -> None:
        count = self._count_of(user)
        count.token_count -= terms.drop(self.connection, self._stemmer, user, row, text)
        count.document_count -= 1

    def _text(self, user: str, memory_id: str) -> terms.Text | None:
        found = self.connection.execute(_TEXT, (user, memory_id)).fetchone()
        return None if found is None else terms.Text(*found[1:])

    def _vector_value(self, vector: FloatArray, dimension: int) -> Any:
        # Looked at as on SQLite; the zero vector, which means there is none, is NULL here.
        return vector_text(vector) if codec.vector_blob(vector, dimension) else None

    def _nearest_rows(self, probe: Probe, scope: int) -> list[Nearest]:
        found = embedder_of(self.connection, probe.scope.user, probe.embedder)
        return nearest_rows(self.connection, found, probe, scope)

    # -- numbers ----------------------------------------------------------------------------

    def _new_row(self, values: dict[str, Any]) -> int:
        count = self._count_of(values["user"])
        count.row += 1
        self.connection.execute(_INSERT, {**values, "row": count.row})
        return count.row

    def _next_change(self, user: str) -> int:
        count = self._count_of(user)
        if not count.has_changed:
            count.change += 1
            count.has_changed = True
        return count.change

    def _next_lesson(self, user: str) -> int:
        count = self._count_of(user)
        count.learned += 1
        return count.learned

    def _count_of(self, user: str) -> _Count:
        """What a tenant counts: read once, for nobody else writes for the tenant now."""
        if user not in self._counts:
            self._counts[user] = _Count(*self.connection.execute(_COUNTS, (user,)).fetchone())
        return self._counts[user]

    def flush(self) -> None:
        """Writes down what was counted: once, for each change of a row leaves a dead one behind."""
        for user, count in self._counts.items():
            self.connection.execute(_PUT_COUNTS, {"user": user, **asdict(count)})

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        if not events:
            return
        count = self._count_of(user)
        rows = event_rows(user, events)
        numbered = [(count.event + at, *row) for at, row in enumerate(rows, 1)]
        self.connection.executemany(_ADD_EVENT, numbered)
        count.event += len(numbered)
        self.connection.execute(
            "DELETE FROM events WHERE user = ? AND event <= ?", (user, count.event - EVENT_LIMIT)
        )

    def add_action(self, user: str, action: RecordedAction) -> int:
        count = self._count_of(user)
        count.action += 1
        self.connection.execute(ADD_NUMBERED_ACTION, action_values(user, action, count.action))
        self.connection.execute(
            "DELETE FROM actions WHERE user = ? AND action <= ?",
            (user, count.action - ACTION_LIMIT),
        )
        return count.action

    # -- jobs -------------------------------------------------------------------------------

    def take_job(
        self, lease: Lease, kinds: Collection[str], skip: Collection[int] = ()
    ) -> Job | None:
        with self._tenants.across():
            return super().take_job(lease, kinds, skip)

    # -- purging ----------------------------------------------------------------------------

    def purge(self, user: str, memory_id: str) -> None:
        found = self.connection.execute(_TEXT, (user, memory_id)).fetchone()
        if found is not None:
            self._drop(user, found[0], terms.Text(*found[1:]))
        super().purge(user, memory_id)

    def _note_purge(self, user: str) -> None:
        self._count_of(user).purge = self._next_change(user)


def _is_live(record: MemoryRecord) -> bool:
    return record.deleted_at is None and record.superseded_by is None
