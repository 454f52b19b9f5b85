"""The write verbs on PostgreSQL, as far as they differ from those on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from meritory.domain.memory import MemoryRecord
from meritory.domain.rule import RecordedAction
from meritory.domain.session import Event
from meritory.store.contract.memories import FloatArray, Indexed, MemoryChange, NeighbourProbe
from meritory.store.postgres import terms
from meritory.store.postgres.connection import COUNTED, WritingConnection
from meritory.store.postgres.vectors import embedder_of, nearest_rows, vector_text
from meritory.store.search.index import Nearest
from meritory.store.sql.jobs import PARK_UNLOCKED, SKIP_LOCKED
from meritory.store.sql.memories import MEMORY_COLUMNS, vector_blob
from meritory.store.sql.rules import ACTION_LIMIT, ACTIONS
from meritory.store.sql.sessions import EVENT_LIMIT, EVENTS
from meritory.store.sql.store import SqlTransaction
from meritory.store.sqlite.fts_tokenizer import Stemmer

_TEXT = """SELECT row, content, words FROM memories WHERE user = ? AND id = ?
    AND deleted_at IS NULL AND superseded_by IS NULL"""

# A memory, and the note for its history unless it brings its own.
Arrival = tuple[Indexed, MemoryChange | None]
# So many wait at most until they are stored together.
ARRIVALS_LIMIT = 4_000

_NAMES = ("row", *MEMORY_COLUMNS)
_INSERT = (
    f"INSERT INTO memories ({', '.join(_NAMES)})"  # noqa: S608 - names of ours, as below
    f" VALUES ({', '.join(':' + name for name in _NAMES)})"
)
# Each tenant numbers its own events and actions.
_ADD_EVENT = EVENTS.insert.replace("(", "(event, ", 1).replace("VALUES (", "VALUES (:event, ")
_ADD_ACTION = ACTIONS.insert.replace("(", "(action, ", 1).replace("VALUES (", "VALUES (:action, ")


@dataclass(slots=True)
class _Count:
    """What a tenant counts, as this transaction has it by now, in the order of `COUNTED`."""

    change: int
    purge: int
    learned: int
    row: int
    event: int
    action: int
    document_count: int
    token_count: int
    has_changed: bool = field(default=False, kw_only=True)


# By table what has changed with it, as `change_numbers` tells it; memories count by themselves.
TOPICS = {
    "sessions": "session",
    "events": "session",
    "predictor_state": "predictor",
    "predictor_comparisons": "predictor",
    "predictor_training_log": "predictor",
    "rules": "rules",
    "rule_events": "rules",
    "jobs": "job",
    "feedback_events": "feedback",
}


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

    def __init__(self, connection: WritingConnection, tools: Tools) -> None:
        super().__init__(connection, self._nearest_rows, tools.damaged)
        self._tenants = connection
        self._stemmer = tools.stemmer
        self._count: _Count | None = None
        self._arrived: list[Arrival] = []

    # -- new memories -----------------------------------------------------------------------

    def insert(self, memory: Indexed, change: MemoryChange | None) -> None:
        # Many in a row go together, as soon as anything else is asked or done.
        self._arrived.append((memory, change))
        self._tenants.ahead = self._take_in
        if len(self._arrived) >= ARRIVALS_LIMIT:
            self._take_in()

    def _take_in(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._tenants.ahead = None
        if arrived:
            self.insert_many(arrived)

    def insert_many(self, arrivals: Sequence[Arrival]) -> None:
        """Stores new memories of one tenant in their order."""
        for memory, change in arrivals:
            super().insert(memory, change)

    # -- full text and vectors --------------------------------------------------------------

    def _index_words(self, row: int, memory: Indexed) -> None:
        if is_live(memory.record):
            self._add(row, memory)

    def _reindex_words(self, row: int, memory: Indexed) -> None:
        record = memory.record
        text = terms.IndexedText(record.content, memory.words)
        known = self._text(record.user, record.id)
        if known is not None and (known != text or not is_live(record)):
            self._drop(record.user, row, known)
        if is_live(record) and known != text:
            self._add(row, memory)

    def _add(self, row: int, memory: Indexed) -> None:
        text = terms.IndexedText(memory.record.content, memory.words)
        user = memory.record.user
        count = self._counted
        count.token_count += terms.add(self.connection, self._stemmer, user, row, text)
        count.document_count += 1

    def _drop(self, user: str, row: int, text: terms.IndexedText) -> None:
        count = self._counted
        count.token_count -= terms.drop(self.connection, self._stemmer, user, row, text)
        count.document_count -= 1

    def _text(self, user: str, memory_id: str) -> terms.IndexedText | None:
        found = self.connection.execute(_TEXT, (user, memory_id)).fetchone()
        return None if found is None else terms.IndexedText(*found[1:])

    def _vector_value(self, vector: FloatArray, dimension: int) -> Any:
        # Looked at as on SQLite; the zero vector, which means there is none, is NULL here.
        return vector_text(vector) if vector_blob(vector, dimension) else None

    def _nearest_rows(self, probe: NeighbourProbe, scope: int) -> list[Nearest]:
        found = embedder_of(self.connection, probe.scope.user, probe.embedder)
        return nearest_rows(self.connection, found, probe, scope)

    # -- numbers ----------------------------------------------------------------------------

    def _new_row(self, values: dict[str, Any]) -> int:
        count = self._counted
        count.row += 1
        self.connection.execute(_INSERT, {**values, "row": count.row})
        return count.row

    def _next_change(self, user: str) -> int:
        count = self._counted
        if not count.has_changed:
            count.change += 1
            count.has_changed = True
        return count.change

    def _next_lesson(self, user: str) -> int:
        count = self._counted
        count.learned += 1
        return count.learned

    @property
    def _counted(self) -> _Count:
        """The numbers of the tenant; the lock on its row keeps others from changing them."""
        if self._count is None:
            self._count = _Count(*self._tenants.counts)
        return self._count

    def flush(self) -> None:
        """Store the numbers: once, for each update of a row leaves a dead one."""
        self._take_in()
        tenant = self._tenants.tenant
        # The steward's changes belong to no tenant whose row is locked.
        topics = {
            TOPICS[table]
            for user, table in self._tenants.changes()
            if user is not None and table in TOPICS
        }
        if tenant is None or not (topics or self._count):
            return
        changes = [f"{topic} = {topic} + 1" for topic in sorted(topics)]
        if self._count is not None:
            changes += [f"{name} = :{name}" for name in COUNTED]
        self.connection.execute(
            f"UPDATE tenants SET {', '.join(changes)} WHERE user = :user",  # noqa: S608
            {"user": tenant, **(asdict(self._count) if self._count else {})},
        )

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        if not events:
            return
        count = self._counted
        rows = [
            EVENTS.values(event, user=user, event=number)
            for number, event in enumerate(events, count.event + 1)
        ]
        self.connection.executemany(_ADD_EVENT, rows)
        count.event += len(rows)
        self.connection.execute(
            "DELETE FROM events WHERE user = ? AND event <= ?", (user, count.event - EVENT_LIMIT)
        )

    def add_action(self, user: str, action: RecordedAction) -> int:
        count = self._counted
        count.action += 1
        values = ACTIONS.values(action, user=user, action=count.action)
        self.connection.execute(_ADD_ACTION, values)
        self.connection.execute(
            "DELETE FROM actions WHERE user = ? AND action <= ?",
            (user, count.action - ACTION_LIMIT),
        )
        return count.action

    # -- purging ----------------------------------------------------------------------------

    def purge(self, user: str, memory_id: str) -> None:
        found = self.connection.execute(_TEXT, (user, memory_id)).fetchone()
        if found is not None:
            self._drop(user, found[0], terms.IndexedText(*found[1:]))
        super().purge(user, memory_id)

    def _note_purge(self, user: str) -> None:
        self._counted.purge = self._next_change(user)


def is_live(record: MemoryRecord) -> bool:
    """Whether a search may find it."""
    return record.deleted_at is None and record.superseded_by is None
