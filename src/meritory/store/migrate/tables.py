"""The tables that a migration copies, and how it rewrites their rows for the other store.

SQLite gives each number once in a file, PostgreSQL once for each user: on the way into a file a
user's numbers may have to be raised, and all references with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from meritory.store.sql.memories import MEMORIES, row_hash
from meritory.store.sql.tables import BY_NAME, TENANT, SqlTable
from meritory.store.sql.tables import TABLES as ALL_TABLES

Row = tuple[Any, ...]
# Enough that round trips no longer count, and few enough to be held in memory.
PAGE_ROWS = 4_000
# Sessions hold whole transcripts, models whole checkpoints.
_PAGE_ROWS = {"sessions": 100, "models": 1}


@dataclass(frozen=True, slots=True)
class TablePart:
    """A table, or the vectors of one embedder."""

    table: SqlTable
    # Its name, and its number in the target.
    embedder: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The name under which the target records progress."""
        return self.table.name if self.embedder is None else f"{self.table.name} {self.embedder[0]}"

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell a user's rows apart; empty where a user has only one."""
        fixed = {TENANT, *(("embedder",) if self.embedder else ())}
        return tuple(name for name in self.table.key if name not in fixed)

    @property
    def page_rows(self) -> int:
        """How many rows are read at a time."""
        return _PAGE_ROWS.get(self.table.name, PAGE_ROWS)


VECTORS, MODELS, JOBS = BY_NAME["memory_vectors"], BY_NAME["models"], BY_NAME["jobs"]
# Engines fill these from other tables, or keep them for themselves.
DERIVED = frozenset({"memories_fts", "memories_vocabulary", "memory_terms", "tenants"})
# All users share these: a migration joins them with those of the target.
COMMON = frozenset({"meta", "embedders", "schema_version"})
TABLES = tuple(table for table in ALL_TABLES if table.name not in DERIVED | COMMON)
# Merely opening a store can leave rows in these: a migration replaces them.
BOOKKEEPING = frozenset({"scopes", "counters", "events", "consents", "predictor_state", "jobs"})
# By the table that gives numbers the column that holds them.
GIVEN: dict[str, str] = {table.name: table.number for table in TABLES if table.number is not None}


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
        if before == after or row_hash(before) != row[hash_at]:
            return told
        return (*told[:hash_at], row_hash(after), *told[hash_at + 1 :])

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
    durable = [name for name in MEMORIES.columns if name not in ("agent", "project")]
    return tuple(names.index(name) for name in (*durable, "scope", "row_hash"))


_AGENT_AT = MEMORIES.columns.index("agent")


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
