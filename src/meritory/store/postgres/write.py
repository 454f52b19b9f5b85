"""A write transaction on PostgreSQL, as far as it differs from one on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.rule import RecordedAction
from meritory.domain.session import Event
from meritory.store.contract.memories import Attribute, FloatArray, Indexed, MemoryChange
from meritory.store.postgres.connection import COUNTED, WritingConnection
from meritory.store.postgres.dialect import packed_column
from meritory.store.postgres.schema import TYPES
from meritory.store.postgres.search_index import IndexedText, add_texts, drop_text
from meritory.store.postgres.vectors import nearest_rows, vector_text
from meritory.store.sql.jobs import PARK_UNLOCKED, SKIP_LOCKED
from meritory.store.sql.mapper import Cursor, SqlConnection, as_json, decode_vector
from meritory.store.sql.memories import COUNTERS, MEMORY_COLUMNS, vector_blob
from meritory.store.sql.memory_writes import CHANGES
from meritory.store.sql.rules import ACTION_LIMIT, ACTIONS
from meritory.store.sql.sessions import EVENT_LIMIT, EVENTS
from meritory.store.sql.store import SqlTransaction
from meritory.store.sql.tables import BY_NAME
from meritory.store.sqlite.fulltext import Stemmer

_TEXT = """SELECT row, content, words FROM memories WHERE user = ? AND id = ?
    AND deleted_at IS NULL AND superseded_by IS NULL"""
_ENTITIES = """SELECT key, entity FROM entities
    WHERE user = ? AND key IN (SELECT value FROM json_each(?))"""
_ASPECTS = """SELECT entity, name, aspect FROM aspects
    WHERE user = ? AND entity IN (SELECT value FROM json_each(?))"""
_VECTOR_TYPE = "SELECT CAST('vector'::regtype AS oid)::bigint"
# Each tenant numbers its own events and actions.
_ADD_EVENT = EVENTS.insert.replace("(", "(event, ", 1).replace("VALUES (", "VALUES (:event, ")
_ADD_ACTION = ACTIONS.insert.replace("(", "(action, ", 1).replace("VALUES (", "VALUES (:action, ")
# The number of new memories that wait at most until they are inserted together.
ARRIVALS_LIMIT = 4_000
# By table the topic of `change_numbers` that a change belongs to; memories have their own number.
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


def insert_rows(
    connection: SqlConnection,
    user: str,
    table: str,
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    ending: str = "",
) -> Cursor:
    """Insert rows of a tenant, each column as one array; row-level security does not allow COPY."""
    columns = [BY_NAME[table].column(name) for name in names]
    arrays = ", ".join(f":{column.name}::{TYPES[column.type]}[]" for column in columns)
    packed = {}
    turned = list(zip(*rows, strict=True)) or [()] * len(columns)
    for column, values in zip(columns, turned, strict=True):
        # Only the type of an extension has another number in every database.
        is_vector = column.type == "VECTOR"
        number = connection.execute(_VECTOR_TYPE).fetchone()[0] if is_vector else None
        packed[column.name] = packed_column(column.type, values, number)
    return connection.execute(
        f"INSERT INTO {table} (user, {', '.join(names)})"  # noqa: S608 - our names
        f" SELECT :user, t.* FROM unnest({arrays}) t {ending}",
        {**packed, "user": user},
    )


class PostgresTransaction(SqlTransaction):
    """The verbs of one transaction; reads see what was written before them."""

    _KEEP = SqlTransaction._KEEP + " AND user = :user"
    _PARK = PARK_UNLOCKED
    _LOCKED = SKIP_LOCKED

    def __init__(self, connection: WritingConnection, stemmer: Stemmer, damaged: set[int]) -> None:
        super().__init__(connection, partial(nearest_rows, connection), damaged)
        self._tenants = connection
        self._stemmer = stemmer
        self._counts: dict[str, int] = {}
        self._arrived: list[tuple[Indexed, MemoryChange | None]] = []

    # -- new memories -----------------------------------------------------------------------

    def insert(self, memory: Indexed, change: MemoryChange | None) -> None:
        # Many in a row are inserted together, before the next other statement.
        self._arrived.append((memory, change))
        self._tenants.ahead = self._insert_arrived
        if len(self._arrived) >= ARRIVALS_LIMIT:
            self._insert_arrived()

    def _insert_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._tenants.ahead = None
        if not arrived:
            return
        user = arrived[0][0].record.user
        if any(memory.record.user != user for memory, _ in arrived):
            raise InputError("memories that are inserted together must be of one user")
        first = self._counted["row"] + 1
        memories = {row: memory for row, (memory, _) in enumerate(arrived, first)}
        self._counted["row"] += len(arrived)
        put = partial(insert_rows, self.connection, user)
        names = ["row", *(name for name in MEMORY_COLUMNS if name != "user")]
        stored = [{"row": row, **self._values(memory)} for row, memory in memories.items()]
        put("memories", names, [[values[name] for name in names] for values in stored])
        stats = [
            (row, self._scope(memory.record.scope), *COUNTERS.row(memory.record))
            for row, memory in memories.items()
        ]
        put("memory_stats", (*COUNTERS.owner, *COUNTERS.written), stats)
        vectors = [
            (embedder[0], row, vector_blob(vector, embedder[1]))
            for row, memory in memories.items()
            for name, vector in memory.vectors.items()
            # An embedder may be retired between embedding and writing.
            if (embedder := self._embedder(name)) is not None
        ]
        if vectors:
            put("memory_vectors", ("embedder", "row", "vector"), vectors)
        texts = {
            row: IndexedText(memory.record.content, memory.words)
            for row, memory in memories.items()
            if memory.record.is_live
        }
        self._index_texts(user, texts)
        self._link_all(user, memories)
        changes = [(memory.record.id, *CHANGES.row(change)) for memory, change in arrived if change]
        if changes:
            put("memory_history", ("memory_id", *CHANGES.written), changes)

    def _link_all(self, user: str, memories: dict[int, Indexed]) -> None:
        """Link new memories to entities; new entities and aspects are numbered in their order."""
        put = partial(insert_rows, self.connection, user)
        named: dict[str, Attribute] = {}
        for memory in memories.values():
            for link in chain(memory.attributes, *memory.depends_on):
                # An entity is spelled as in the first memory that names it.
                named.setdefault(link.key, link)
        if not named:
            return
        found = self.connection.execute(_ENTITIES, (user, as_json(named)))
        entities: dict[str, int] = dict(found.fetchall())
        missing = [link for key, link in named.items() if key not in entities]
        new = [(link.key, link.kind, link.name) for link in missing]
        found = put("entities", ("key", "kind", "name"), new, "RETURNING key, entity")
        entities.update(found.fetchall())
        linked = [
            ((entities[link.key], link.aspect), row, int(link.is_stated))
            for row, memory in memories.items()
            for link in memory.attributes
        ]
        wanted = dict.fromkeys(aspect for aspect, _, _ in linked)
        found = self.connection.execute(_ASPECTS, (user, as_json({entity for entity, _ in wanted})))
        aspects = {(entity, name): number for entity, name, number in found.fetchall()}
        unknown = [aspect for aspect in wanted if aspect not in aspects]
        found = put("aspects", ("entity", "name"), unknown, "RETURNING entity, name, aspect")
        aspects.update({(entity, name): number for entity, name, number in found.fetchall()})
        links = [(aspects[aspect], row, is_stated) for aspect, row, is_stated in linked]
        put("attributes", ("aspect", "row", "is_stated"), links, "ON CONFLICT DO NOTHING")
        needed = [
            (entities[subject.key], entities[other.key])
            for memory in memories.values()
            for subject, other in memory.depends_on
        ]
        put("dependencies", ("entity", "on_entity"), needed, "ON CONFLICT DO NOTHING")

    # -- full text and vectors --------------------------------------------------------------

    def _index_texts(self, user: str, texts: dict[int, IndexedText]) -> None:
        token_count = add_texts(self.connection, self._stemmer, user, texts)
        self._counted["token_count"] += token_count
        self._counted["document_count"] += len(texts)

    def _drop_text(self, user: str, memory_id: str, text: IndexedText | None) -> bool:
        """Remove the text of a memory from the index, unless it is this text already."""
        found = self.connection.execute(_TEXT, (user, memory_id)).fetchone()
        known = None if found is None else IndexedText(*found[1:])
        if known is not None and known != text:
            token_count = drop_text(self.connection, self._stemmer, user, found[0], known)
            self._counted["token_count"] -= token_count
            self._counted["document_count"] -= 1
        return known != text

    def _reindex_words(self, row: int, memory: Indexed) -> None:
        record = memory.record
        text = IndexedText(record.content, memory.words) if record.is_live else None
        if self._drop_text(record.user, record.id, text) and text is not None:
            self._index_texts(record.user, {row: text})

    def purge(self, user: str, memory_id: str) -> None:
        self._drop_text(user, memory_id, None)
        super().purge(user, memory_id)

    def _vector_value(self, vector: FloatArray, dimension: int) -> Any:
        # Checked as on SQLite; the zero vector, which means there is none, is NULL here.
        blob = vector_blob(vector, dimension)
        return vector_text(decode_vector(blob)) if blob else None

    # -- numbers ----------------------------------------------------------------------------

    @property
    def _counted(self) -> dict[str, int]:
        """The numbers of the tenant; the lock on its row keeps others from changing them."""
        if not self._counts:
            self._counts = dict(zip(COUNTED, self._tenants.counts, strict=True))
        return self._counts

    def _next_change(self, user: str) -> int:
        if self._change is None:
            self._change = self._next("change")
        return self._change

    def _next_lesson(self, user: str) -> int:
        return self._next("learned")

    def _next(self, name: str) -> int:
        self._counted[name] += 1
        return self._counted[name]

    def _note_purge(self, user: str) -> None:
        self._counted["purge"] = self._next_change(user)

    def flush(self) -> None:
        """Store the numbers: once, for each update of a row leaves a dead one."""
        self._insert_arrived()
        tenant = self._tenants.tenant
        # The steward's changes belong to no tenant whose row is locked.
        changes = self._tenants.changes()
        topics = {TOPICS[table] for user, table in changes if user is not None and table in TOPICS}
        if tenant is None or not (topics or self._counts):
            return
        edits = [f"{topic} = {topic} + 1" for topic in sorted(topics)]
        edits += [f"{name} = :{name}" for name in self._counts]
        self.connection.execute(
            f"UPDATE tenants SET {', '.join(edits)} WHERE user = :user",  # noqa: S608
            {"user": tenant, **self._counts},
        )

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        if events:
            rows = [EVENTS.values(event, user=user, event=self._next("event")) for event in events]
            self.connection.executemany(_ADD_EVENT, rows)
            self.connection.execute(
                "DELETE FROM events WHERE user = ? AND event <= ?",
                (user, self._counted["event"] - EVENT_LIMIT),
            )

    def add_action(self, user: str, action: RecordedAction) -> int:
        number = self._next("action")
        self.connection.execute(_ADD_ACTION, ACTIONS.values(action, user=user, action=number))
        self.connection.execute(
            "DELETE FROM actions WHERE user = ? AND action <= ?", (user, number - ACTION_LIMIT)
        )
        return number
