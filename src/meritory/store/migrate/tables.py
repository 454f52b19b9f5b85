"""Every table that is moved: what its rows are told apart by, and which numbers stand in them.

A number that one table gives and others refer to has the name of the table that gives it. SQLite
gives each number once in a file, PostgreSQL once for each user: on the way into a file a user's
numbers may have to be raised, all references with them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from meritory.store.sql import rows as codec
from meritory.store.sqlite.schema import MIGRATIONS

Row = tuple[Any, ...]
# Enough that round trips no longer count, and few enough to be held in memory.
PAGE_ROWS = 4_000


class MigratedColumn(NamedTuple):
    """A column and its kind: INTEGER, REAL, TEXT or BLOB."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class MigratedTable:
    """A table whose rows belong to users."""

    name: str
    # What tells a user's rows apart, in the order in which they are copied; nothing for one row.
    key: tuple[str, ...]
    # In a file: the table whose user is meant, and the column that leads there.
    owner: tuple[str, str] | None = None
    # Columns with numbers, and the table that gave them.
    numbers: Mapping[str, str] = field(default_factory=dict)
    page_rows: int = PAGE_ROWS

    @property
    def columns(self) -> tuple[MigratedColumn, ...]:
        """Its columns, as a file has them."""
        return shapes()[self.name]

    @property
    def gives(self) -> str | None:
        """The column whose numbers it gives itself."""
        return next((name for name, giver in self.numbers.items() if giver == self.name), None)


@dataclass(frozen=True, slots=True)
class TablePart:
    """What is copied in one go: a table, of vectors those of one embedder."""

    table: MigratedTable
    # Its name, and its number in the target.
    embedder: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """How it is called where it is noted how far a move came."""
        return self.table.name if self.embedder is None else f"{self.table.name} {self.embedder[0]}"


def _own(name: str, column: str, page_rows: int = PAGE_ROWS, **numbers: str) -> MigratedTable:
    """A table that numbers its rows itself."""
    return MigratedTable(name, (column,), None, {column: name, **numbers}, page_rows)


_BY_ROW = ("memories", "row")
_BY_SESSION = ("sessions", "session")
_BY_ENTITY = ("entities", "entity")
_ROW = {"row": "memories"}
_SESSION = {"session": "sessions"}
VECTORS = MigratedTable("memory_vectors", ("row",), _BY_ROW, _ROW)
MODELS = MigratedTable("models", ("version",), page_rows=1)
JOBS = _own("jobs", "job")

# In this order: what is referred to comes first. Vectors come before counters, by which a daemon
# finds memories that lack theirs.
TABLES: tuple[MigratedTable, ...] = (
    _own("scopes", "scope"),
    _own("memories", "row", scope="scopes"),
    VECTORS,
    MigratedTable("memory_stats", ("row",), _BY_ROW, {**_ROW, "scope": "scopes"}),
    _own("memory_history", "entry"),
    MigratedTable("counters", ("name",)),
    _own("entities", "entity"),
    MigratedTable("aspects", ("aspect",), _BY_ENTITY, {"aspect": "aspects", "entity": "entities"}),
    MigratedTable("attributes", ("aspect", "row"), _BY_ROW, {"aspect": "aspects", **_ROW}),
    MigratedTable(
        "dependencies",
        ("entity", "on_entity"),
        _BY_ENTITY,
        {"entity": "entities", "on_entity": "entities"},
    ),
    MigratedTable("imports", ("digest",)),
    # With whole transcripts.
    _own("sessions", "session", page_rows=100),
    MigratedTable("session_memories", ("session", "memory_id"), _BY_SESSION, _SESSION),
    MigratedTable("injections", ("session", "number"), _BY_SESSION, _SESSION),
    MigratedTable("rating_events", ("event",), _BY_SESSION, {"event": "rating_events", **_SESSION}),
    MigratedTable("session_scores", ("session",), _BY_SESSION, _SESSION),
    MigratedTable("uses", ("session", "memory_id"), _BY_SESSION, _SESSION),
    _own("events", "event"),
    _own("spending", "spend"),
    MigratedTable("predictor_state", ()),
    _own("predictor_comparisons", "comparison", session="sessions"),
    _own("predictor_training_log", "run"),
    MigratedTable("predictor_canary", ("session",), None, _SESSION),
    MigratedTable("predictor_calibration", ("session", "memory_id"), None, _SESSION),
    _own("feedback_events", "event"),
    MigratedTable("feedback_wordings", ("agent", "project", "fingerprint")),
    MigratedTable("feedback_lessons", ("memory_id",)),
    MigratedTable("feedback_evidence", ("memory_id", "feedback_id")),
    MigratedTable("memory_beliefs", ("memory_id",)),
    _own("actions", "action"),
    MigratedTable("action_feedback", ("feedback_id", "action"), None, {"action": "actions"}),
    MigratedTable("rules", ("id",), None, {"replayed_through": "actions"}),
    _own("rule_events", "event", action="actions"),
    MigratedTable("session_constraints", ("session_key", "kind", "argument")),
    MigratedTable("refusals", ("id",)),
    MigratedTable("retrievals", ("row",), _BY_ROW, _ROW),
    MigratedTable("merge_audits", ("entry",), None, {"entry": "memory_history"}),
    MigratedTable("consents", ()),
    MigratedTable("access_tokens", ("id",)),
    MODELS,
    # Last, and with the mark that all is done: a daemon takes up whatever job it sees.
    JOBS,
)
BY_NAME = {table.name: table for table in TABLES}
# What the engines make of the rest, or keep for themselves.
DERIVED = frozenset({"memories_fts", "memories_vocabulary", "memory_terms", "tenants"})
# What is no user's: joined with what the other side has.
COMMON = frozenset({"meta", "embedders", "schema_version"})
# What merely opening a store can leave behind: it gives way to what is moved.
BOOKKEEPING = frozenset({"scopes", "counters", "events", "consents", "predictor_state", "jobs"})
# By the table that gives numbers the column they stand in.
GIVEN: dict[str, str] = {table.name: table.gives for table in TABLES if table.gives is not None}


@functools.cache
def shapes() -> Mapping[str, tuple[MigratedColumn, ...]]:
    """The columns of all tables, as our own migrations make them; models are files in a folder."""
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        for migration in MIGRATIONS:
            for statement in migration.statements:
                fresh.execute(statement)
        found = {
            table.name: tuple(
                MigratedColumn(name, kind)
                for _, name, kind, *_ in fresh.execute(f"PRAGMA table_info({table.name})")
            )
            for table in TABLES
        }
    names = (("user", "TEXT"), ("version", "INTEGER"), ("content", "BLOB"), ("digest", "TEXT"))
    return {**found, MODELS.name: tuple(MigratedColumn(*each) for each in names)}


Edit = Callable[[Any], Any]
# A memory's scope by its number: agent and project, over which its hash goes too.
Scopes = Mapping[int, tuple[str | None, str | None]]
# Columns that hold a memory, or a rule, as it once was.
_MEMORIES_WITHIN = {("memory_history", "before"), ("memory_history", "other")}
_RULES_WITHIN = {("rule_events", "before")}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How the rows of one user are told on the other side."""

    old_user: str
    new_user: str
    raised: Mapping[str, int] = field(default_factory=dict)
    scopes: Scopes = field(default_factory=dict)
    # PostgreSQL has no NUL character in its texts.
    takes_nul: bool = True

    def of(self, part: TablePart) -> Callable[[Row], Row]:
        """What makes the rows of one part those of the other side."""
        edits = {
            at: edit
            for at, column in enumerate(part.table.columns)
            if (edit := self._edit(part, column.name)) is not None
        }
        if part.table.name == "memories":
            return partial(self._memory, edits, _places(part))
        if edits or not self.takes_nul:
            return partial(self._edited, edits)
        return _same

    def _edit(self, part: TablePart, column: str) -> Edit | None:
        table = part.table
        raised = self.raised.get(table.numbers.get(column, ""), 0)
        is_renamed = self.old_user != self.new_user
        if part.embedder is not None and column == "embedder":
            number = part.embedder[1]
            return lambda _: number
        if column == "user":
            return (lambda _: self.new_user) if is_renamed else None
        if raised:
            return partial(_raised, raised)
        if is_renamed and (table.name, column) in _MEMORIES_WITHIN:
            return self._memory_within
        if self.raised.get("actions") and (table.name, column) in _RULES_WITHIN:
            return self._rule_within
        return None

    def _edited(self, edits: Mapping[int, Edit], row: Row) -> Row:
        if edits:
            values = list(row)
            for at, edit in edits.items():
                values[at] = edit(values[at])
            row = tuple(values)
        return row if self.takes_nul else without_nul(row)

    def _memory(self, edits: Mapping[int, Edit], places: tuple[int, ...], row: Row) -> Row:
        """A memory, whose hash goes over its user too; one that is damaged stays so."""
        told = self._edited(edits, row)
        *at, scope_at, hash_at = places
        scope = self.scopes.get(row[scope_at], (None, None))
        new_scope = scope if self.takes_nul else without_nul(scope)
        before, after = _durable(row, at, scope), _durable(told, at, new_scope)
        if before == after or codec.row_hash(before) != row[hash_at]:
            return told
        return (*told[:hash_at], codec.row_hash(after), *told[hash_at + 1 :])

    def _memory_within(self, text: Any) -> Any:
        known = _object(text)
        if known.get("user") != self.old_user:
            return text
        return json.dumps({**known, "user": self.new_user}, ensure_ascii=False)

    def _rule_within(self, text: Any) -> Any:
        known = _object(text)
        through = known.get("replayed_through")
        if not isinstance(through, int):
            return text
        return json.dumps({**known, "replayed_through": _raised(self.raised["actions"], through)})


def without_nul(row: Row) -> Row:
    """The row with a sign in the place of every NUL character; nearly all rows are as they were."""
    if not any(type(value) is str and "\0" in value for value in row):
        return row
    return tuple(v.replace("\0", "\ufffd") if isinstance(v, str) else v for v in row)


def _same(row: Row) -> Row:
    return row


def _raised(by: int, number: int | None) -> int | None:
    # None is no number, and neither is nought: it says that there was none yet.
    return number + by if number else number


def _places(part: TablePart) -> tuple[int, ...]:
    """Where a memory has its durable values, but for agent and project, its scope and its hash."""
    names = [column.name for column in part.table.columns]
    durable = [name for name in codec.DURABLE if name not in ("agent", "project")]
    return tuple(names.index(name) for name in (*durable, "scope", "row_hash"))


_AGENT_AT = codec.DURABLE.index("agent")


def _durable(row: Row, at: list[int], scope: tuple[Any, ...]) -> list[Any]:
    """The values over which a memory's hash goes, in their order."""
    values = [row[place] for place in at]
    return [*values[:_AGENT_AT], *scope, *values[_AGENT_AT:]]


def _object(text: Any) -> dict[str, Any]:
    """What a text holds; nothing where that cannot be read any more."""
    try:
        known = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}
