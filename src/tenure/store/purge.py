"""Erasing a memory from an SQLite store: its row, its history, its words and its entities."""

from __future__ import annotations

import json
import sqlite3

from tenure.store.schema_feedback import FEEDBACK_ERASURES
from tenure.store.schema_rules import RULES_ERASURES

# What stands in the history of others in place of a text that was erased.
PURGED_TEXT = "[purged]"

_TEXTS = """SELECT content FROM memories WHERE user = :user AND id = :id
    UNION SELECT json_extract(before, '$.content') FROM memory_history
        WHERE user = :user AND memory_id = :id AND before IS NOT NULL"""
# After a merge was split again, the survivor's history still holds the state in which it wore
# the other's words. What is redacted counts as undone: nothing may ever bring it back.
_REDACT = """UPDATE memory_history
    SET before = json_set(before, '$.content', :purged, '$.tags', json('[]')), undone = 1
    WHERE user = :user AND memory_id <> :id AND json_extract(before, '$.content') IN
            (SELECT value FROM json_each(:texts))
        AND memory_id IN
            (SELECT memory_id FROM memory_history WHERE user = :user AND other_id = :id)
        AND memory_id NOT IN (SELECT id FROM memories WHERE user = :user
            AND content IN (SELECT value FROM json_each(:texts)))"""
# Labels, ratings and uses of a memory go with it.
_SESSION_TABLES = ("session_memories", "rating_events", "uses", "predictor_calibration")
_FORGET_RELEVANCE = """UPDATE predictor_comparisons
    SET relevance_scores = json_remove(relevance_scores, '$."' || :id || '"') WHERE user = :user"""
_FORGET_USED = """UPDATE sessions SET used = json_remove(used, '$."' || :id || '"')
    WHERE user = :user AND used IS NOT NULL"""
_OF_USER = "session IN (SELECT session FROM sessions WHERE user = :user)"
_ORPHAN_ASPECTS = """DELETE FROM aspects WHERE entity IN
        (SELECT entity FROM entities WHERE user = :user)
    AND NOT EXISTS (SELECT 1 FROM attributes a WHERE a.aspect = aspects.aspect)"""
_ORPHAN_ENTITIES = """DELETE FROM entities WHERE user = :user
    AND NOT EXISTS (SELECT 1 FROM aspects p WHERE p.entity = entities.entity)
    AND NOT EXISTS (SELECT 1 FROM dependencies d WHERE d.on_entity = entities.entity)"""


def erase(connection: sqlite3.Connection, user: str, memory_id: str, change: int) -> None:
    """Erases one memory; `change` tells indexes in memory that something is gone."""
    names = {"user": user, "id": memory_id}
    texts = json.dumps([text for (text,) in connection.execute(_TEXTS, names)])
    connection.execute(_REDACT, {**names, "texts": texts, "purged": PURGED_TEXT})
    for statement in (
        "UPDATE memory_history SET other = NULL, why = '' WHERE user = :user AND other_id = :id",
        "DELETE FROM memory_history WHERE user = :user AND memory_id = :id",
        *(
            f"DELETE FROM {table} WHERE memory_id = :id AND {_OF_USER}"  # noqa: S608 - ours
            for table in _SESSION_TABLES
        ),
        "DELETE FROM events WHERE user = :user AND memory_id = :id",
        # What went wrong may quote what was worked on.
        "UPDATE jobs SET error = NULL WHERE user = :user",
        _FORGET_USED,
        _FORGET_RELEVANCE,
        *RULES_ERASURES,
        *FEEDBACK_ERASURES,
        "DELETE FROM memories WHERE user = :user AND id = :id",
        _ORPHAN_ASPECTS,
    ):
        connection.execute(statement, names)
    # An entity that only this memory named would still tell its name, and so would one that is
    # held only by a dependency of the first: hence again until nothing more goes.
    while connection.execute(_ORPHAN_ENTITIES, names).rowcount:
        pass
    # FTS5 keeps deleted words in old segments until they are merged away.
    connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('optimize')")
    # The first tells indexes in memory; the second goes when the traces are gone from the files.
    connection.executemany(
        """INSERT INTO meta VALUES (?, CAST(? AS TEXT))
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        [("purge", change), ("purge_due", change)],
    )


def due(connection: sqlite3.Connection) -> str | None:
    """The number of the last purge whose traces were not erased from the files yet."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'purge_due'").fetchone()
    return None if found is None else str(found[0])


def settle(connection: sqlite3.Connection, number: str) -> None:
    """Notes that the traces are gone, unless another purge came in between."""
    connection.execute("DELETE FROM meta WHERE key = 'purge_due' AND value = ?", (number,))
