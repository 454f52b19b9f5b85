"""The write verbs on PostgreSQL, as far as they differ from those on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord
from meritory.domain.rule import RecordedAction
from meritory.domain.session import Event
from meritory.store.contract.memories import (
    Attribute,
    FloatArray,
    Indexed,
    IntArray,
    MemoryChange,
    NeighbourProbe,
)
from meritory.store.contract.store import Store, Transaction
from meritory.store.postgres import terms
from meritory.store.postgres.connection import COUNTED, WritingConnection
from meritory.store.postgres.dialect import (
    PackedArray,
    packed_column,
    packed_dumper,
    packed_numbers,
    packed_vectors,
)
from meritory.store.postgres.schema import TYPES
from meritory.store.postgres.vectors import embedder_of, nearest_rows, vector_text
from meritory.store.search.index import Nearest
from meritory.store.sql.jobs import PARK_UNLOCKED, SKIP_LOCKED
from meritory.store.sql.mapper import as_json
from meritory.store.sql.memories import COUNTERS, MEMORY_COLUMNS, vector_blob
from meritory.store.sql.memory_writes import CHANGES
from meritory.store.sql.rules import ACTION_LIMIT, ACTIONS
from meritory.store.sql.sessions import EVENT_LIMIT, EVENTS
from meritory.store.sql.store import SqlTransaction
from meritory.store.sql.tables import BY_NAME
from meritory.store.sqlite.fulltext import Stemmer

_TEXT = """SELECT row, content, words FROM memories WHERE user = ? AND id = ?
    AND deleted_at IS NULL AND superseded_by IS NULL"""

# A memory, and the note for its history unless it brings its own.
Arrival = tuple[Indexed, MemoryChange | None]
# So many wait at most until they are stored together.
ARRIVALS_LIMIT = 4_000

_NAMES = ("row", *MEMORY_COLUMNS)
_INSERT = (
    f"INSERT INTO memories ({', '.join(_NAMES)})"  # noqa: S608 - constants
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


# Enough that round trips no longer count, and few enough that others need not wait long.
CHUNK_ROWS = 4_000
_MEMORY = ("row", *(name for name in MEMORY_COLUMNS if name != "user"))
_STATS = (*COUNTERS.owner, *COUNTERS.written)
_HISTORY = ("memory_id", *CHANGES.written)
_ENTITY = ("key", "kind", "name")
_ASPECT = ("entity", "name")
_ATTRIBUTE = ("aspect", "row", "is_stated")
_DEPENDENCY = ("entity", "on_entity")


def _insert(table: str, names: Sequence[str]) -> str:
    """Return a statement that takes the values of each column as an array under its name."""
    described = BY_NAME[table]
    arrays = ", ".join(f":{name}::{TYPES[described.column(name).type]}[]" for name in names)
    return (
        f"INSERT INTO {table} (user, {', '.join(names)})"  # noqa: S608 - constants
        f" SELECT :user, t.* FROM unnest({arrays}) t"
    )


_ADD_MEMORIES = _insert("memories", _MEMORY)
_ADD_STATS = _insert("memory_stats", _STATS)
_ADD_HISTORY = _insert("memory_history", _HISTORY)
_ADD_ENTITIES = _insert("entities", _ENTITY) + " RETURNING key, entity"
_ADD_ASPECTS = _insert("aspects", _ASPECT) + " RETURNING entity, name, aspect"
_ADD_ATTRIBUTES = _insert("attributes", _ATTRIBUTE) + " ON CONFLICT DO NOTHING"
_ADD_DEPENDENCIES = _insert("dependencies", _DEPENDENCY) + " ON CONFLICT DO NOTHING"
_ADD_VECTORS = """INSERT INTO memory_vectors (user, embedder, row, vector)
    SELECT :user, :embedder::bigint, t.* FROM unnest(:row::bigint[], :vector::vector[]) t"""
_ADD_NO_VECTORS = """INSERT INTO memory_vectors (user, embedder, row)
    SELECT :user, :embedder::bigint, t.* FROM unnest(:row::bigint[]) t"""
_VECTOR_TYPE = "SELECT CAST('vector'::regtype AS oid)::bigint"
_ENTITIES = """SELECT key, entity FROM entities
    WHERE user = ? AND key IN (SELECT value FROM json_each(?))"""
_ASPECTS = """SELECT entity, name, aspect FROM aspects
    WHERE user = ? AND entity IN (SELECT value FROM json_each(?))"""


def load(store: Store, arrivals: Iterable[Arrival], chunk_rows: int = CHUNK_ROWS) -> int:
    """Stores memories of one tenant chunk by chunk, each a transaction; returns how many."""
    count = 0
    for chunk in _chunks(arrivals, chunk_rows):
        store.write(chunk[0][0].record.user, partial(_taken_in, chunk))
        count += len(chunk)
    return count


def _taken_in(arrivals: Sequence[Arrival], transaction: Transaction) -> None:
    if not isinstance(transaction, BulkTransaction):
        raise InputError("only a PostgreSQL store takes memories in by columns")
    transaction.insert_many(arrivals)


def _chunks(arrivals: Iterable[Arrival], size: int) -> Iterator[list[Arrival]]:
    left = iter(arrivals)
    while chunk := list(islice(left, size)):
        yield chunk


class BulkTransaction(PostgresTransaction):
    """A transaction that also takes in many memories at once."""

    def insert_many(self, arrivals: Sequence[Arrival]) -> None:
        """Stores new memories of one tenant, as `insert` would one after the other."""
        if not arrivals:
            return
        memories = [memory for memory, _ in arrivals]
        user = memories[0].record.user
        if any(memory.record.user != user for memory in memories):
            raise InputError("memories that are taken in together are of one user")
        self._tenants.adapt(PackedArray, packed_dumper())
        count = self._counted
        rows = np.arange(count.row + 1, count.row + 1 + len(memories))
        count.row += len(memories)
        self._put(
            _ADD_MEMORIES, user, _columns("memories", _MEMORY, self._memory_values(rows, memories))
        )
        stats = (
            (row, self._scope(memory.record.scope), *COUNTERS.row(memory.record))
            for row, memory in zip(rows.tolist(), memories, strict=True)
        )
        self._put(_ADD_STATS, user, _columns("memory_stats", _STATS, stats))
        self._vectors(user, rows, memories)
        self._words(user, rows, memories)
        self._links(user, rows.tolist(), memories)
        changes = [
            (memory.record.id, *CHANGES.row(change)) for memory, change in arrivals if change
        ]
        if changes:
            self._put(_ADD_HISTORY, user, _columns("memory_history", _HISTORY, changes))

    def _put(self, statement: str, user: str, values: dict[str, Any]) -> None:
        self.connection.execute(statement, {**values, "user": user})

    def _memory_values(
        self, rows: IntArray, memories: Sequence[Indexed]
    ) -> Iterator[tuple[Any, ...]]:
        for row, memory in zip(rows.tolist(), memories, strict=True):
            values = self._values(memory)
            yield (row, *(values[name] for name in _MEMORY[1:]))

    # -- full text and vectors --------------------------------------------------------------

    def _words(self, user: str, rows: IntArray, memories: Sequence[Indexed]) -> None:
        live = [at for at, memory in enumerate(memories) if is_live(memory.record)]
        texts = [terms.IndexedText(memories[at].record.content, memories[at].words) for at in live]
        count = self._counted
        count.token_count += terms.add_many(
            self.connection, self._stemmer, user, (rows[live], texts)
        )
        count.document_count += len(live)

    def _vectors(self, user: str, rows: IntArray, memories: Sequence[Indexed]) -> None:
        for name in dict.fromkeys(chain.from_iterable(memory.vectors for memory in memories)):
            found = self._embedder(name)
            if found is None:
                # Retired between embedding and writing: its vectors are of no use any more.
                continue
            having = [at for at, memory in enumerate(memories) if name in memory.vectors]
            vectors = [memories[at].vectors[name] for at in having]
            self._add_vectors(user, found, rows[having], vectors)

    def _add_vectors(
        self, user: str, embedder: tuple[int, int], rows: IntArray, vectors: Sequence[FloatArray]
    ) -> None:
        number, dimension = embedder
        there = np.array([bool(vector_blob(vector, dimension)) for vector in vectors])
        known = {"embedder": number}
        if there.any():
            (vector_type,) = self.connection.execute(_VECTOR_TYPE).fetchone()
            matrix = np.stack(vectors).astype(np.float32)[there]
            packed = packed_vectors(matrix, vector_type)
            sent = {**known, "row": packed_numbers(rows[there], "i8"), "vector": packed}
            self._put(_ADD_VECTORS, user, sent)
        if not there.all():
            self._put(_ADD_NO_VECTORS, user, {**known, "row": rows[~there].tolist()})

    # -- entities ---------------------------------------------------------------------------

    def _links(self, user: str, rows: Sequence[int], memories: Sequence[Indexed]) -> None:
        named: dict[str, Attribute] = {}
        for memory in memories:
            for one in chain(memory.attributes, *memory.depends_on):
                # The first to name an entity is the one whose spelling it has.
                named.setdefault(one.key, one)
        if not named:
            return
        entities = self._entities(user, named)
        linked = [
            ((entities[one.key], one.aspect), row, int(one.is_stated))
            for row, memory in zip(rows, memories, strict=True)
            for one in memory.attributes
        ]
        aspects = self._aspects(user, list(dict.fromkeys(aspect for aspect, _, _ in linked)))
        found = [(aspects[aspect], row, is_stated) for aspect, row, is_stated in linked]
        self._put(_ADD_ATTRIBUTES, user, _columns("attributes", _ATTRIBUTE, found))
        needed = [
            (entities[subject.key], entities[other.key])
            for memory in memories
            for subject, other in memory.depends_on
        ]
        self._put(_ADD_DEPENDENCIES, user, _columns("dependencies", _DEPENDENCY, needed))

    def _entities(self, user: str, named: dict[str, Attribute]) -> dict[str, int]:
        """By key the numbers of entities, those of new ones given in their order."""
        known = dict(self.connection.execute(_ENTITIES, (user, as_json(named))).fetchall())
        new = [(one.key, one.kind, one.name) for key, one in named.items() if key not in known]
        values = {**_columns("entities", _ENTITY, new), "user": user}
        return {**known, **dict(self.connection.execute(_ADD_ENTITIES, values).fetchall())}

    def _aspects(self, user: str, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
        """By entity and name the numbers of aspects, as above."""
        of_entities = as_json({entity for entity, _ in wanted})
        known = _by_pair(self.connection.execute(_ASPECTS, (user, of_entities)).fetchall())
        new = [pair for pair in wanted if pair not in known]
        values = {**_columns("aspects", _ASPECT, new), "user": user}
        return {**known, **_by_pair(self.connection.execute(_ADD_ASPECTS, values).fetchall())}


def _columns(table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return the values of each column by its name."""
    described = BY_NAME[table]
    turned = list(zip(*rows, strict=True)) or [()] * len(names)
    return {
        name: packed_column(column) if described.column(name).type == "TEXT" else list(column)
        for name, column in zip(names, turned, strict=True)
    }


def _by_pair(found: Iterable[tuple[int, str, int]]) -> dict[tuple[int, str], int]:
    return {(entity, name): number for entity, name, number in found}
