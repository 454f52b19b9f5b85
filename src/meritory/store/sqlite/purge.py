"""The erasure of a memory: its row, history, words, entities and all other traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meritory.store.sql.candidates import unpack_memory
from meritory.store.sql.erasure import redact
from meritory.store.sql.mapper import SqlConnection
from meritory.text.normalize import canonical
from meritory.text.redaction import PURGED_TEXT, Redaction, names_in, words_in

_TEXT = "SELECT content FROM memories WHERE user = :user AND id = :id"
_STATES = """SELECT before FROM memory_history
    WHERE user = :user AND memory_id = :id AND before IS NOT NULL"""
# After a merge was split again, the survivor's history still has the state with the other's words.
# A redacted state counts as undone: no undo may restore it.
_WORN = """SELECT entry, before FROM memory_history
    WHERE user = :user AND memory_id <> :id AND before IS NOT NULL
        AND memory_id IN
            (SELECT memory_id FROM memory_history WHERE user = :user AND other_id = :id)
        AND memory_id NOT IN (SELECT id FROM memories WHERE user = :user
            AND content IN (SELECT value FROM json_each(:texts)))"""
_REDACT = """UPDATE memory_history SET before = :before, undone = 1
    WHERE user = :user AND entry = :entry"""
_OTHERS = "SELECT content FROM memories WHERE user = :user AND id <> :id"
_REFUSED = "SELECT id, content, quote FROM refusals WHERE user = :user"
# A shorter text occurs in many others by accident.
_TELLING_CHARS = 12
# Labels, ratings and uses of a memory go with it.
_SESSION_TABLES = ("session_memories", "rating_events", "uses", "predictor_calibration")
# Its lesson, and the reports behind it.
_FEEDBACK_TABLES = (
    *("feedback_events", "feedback_wordings", "feedback_lessons", "feedback_evidence"),
    "memory_beliefs",
)
# A digest has words of every candidate, so it is unknown which are only this memory's.
_FORGET_DIGESTS = """UPDATE sessions SET digest = NULL
    WHERE user = :user AND digest IS NOT NULL AND EXISTS (SELECT 1 FROM session_memories c
        WHERE c.session = sessions.session AND c.memory_id = :id)"""
_FORGET_RELEVANCE = """UPDATE predictor_comparisons
    SET relevance_scores = json_remove(relevance_scores, '$."' || :id || '"') WHERE user = :user"""
# Its numbers stay without an id: features compare the candidates of a search with each other.
_FORGET_SEARCHES = """UPDATE searches SET memory_ids = replace(memory_ids, :id, '')
    WHERE session IN (SELECT session FROM sessions WHERE user = :user)
        AND memory_ids LIKE '%' || :id || '%'"""
_FORGET_USED = """UPDATE sessions SET used = json_remove(used, '$."' || :id || '"')
    WHERE user = :user AND used IS NOT NULL"""
_FORGET_OFFERS = """UPDATE injections SET offer = json_remove(offer, '$."' || :id || '"')
    WHERE is_delivered = 0 AND session IN (SELECT session FROM sessions WHERE user = :user)"""
_OF_USER = "session IN (SELECT session FROM sessions WHERE user = :user)"
_ORPHAN_ASPECTS = """DELETE FROM aspects WHERE entity IN
        (SELECT entity FROM entities WHERE user = :user)
    AND NOT EXISTS (SELECT 1 FROM attributes a WHERE a.aspect = aspects.aspect)"""
_ORPHAN_ENTITIES = """DELETE FROM entities WHERE user = :user
    AND NOT EXISTS (SELECT 1 FROM aspects p WHERE p.entity = entities.entity)
    AND NOT EXISTS (SELECT 1 FROM dependencies d WHERE d.on_entity = entities.entity)"""

_ITS_RULES = "(SELECT id FROM rules WHERE user = :user AND memory_id = :id)"
_ITS_REPORTS = "(SELECT id FROM feedback_events WHERE user = :user AND memory_id = :id)"
# In this order: rules and reports are found through the rows that go last.
_ERASURES = (
    "UPDATE memory_history SET other = NULL, why = '' WHERE user = :user AND other_id = :id",
    "DELETE FROM memory_history WHERE user = :user AND memory_id = :id",
    _FORGET_DIGESTS,
    *(
        f"DELETE FROM {table} WHERE memory_id = :id AND {_OF_USER}"  # noqa: S608 - constants
        for table in _SESSION_TABLES
    ),
    "DELETE FROM events WHERE user = :user AND memory_id = :id",
    # An error message may quote the memory that the job worked on.
    "UPDATE jobs SET error = NULL WHERE user = :user",
    _FORGET_USED,
    _FORGET_OFFERS,
    _FORGET_RELEVANCE,
    _FORGET_SEARCHES,
    f"DELETE FROM rule_events WHERE user = :user AND rule_id IN {_ITS_RULES}",  # noqa: S608
    "DELETE FROM rules WHERE user = :user AND memory_id = :id",
    f"UPDATE rule_events SET reason = '' WHERE user = :user AND feedback_id IN {_ITS_REPORTS}",  # noqa: S608
    f"DELETE FROM action_feedback WHERE user = :user AND feedback_id IN {_ITS_REPORTS}",  # noqa: S608
    f"""UPDATE session_constraints SET said = ''
        WHERE user = :user AND feedback_id IN {_ITS_REPORTS}""",  # noqa: S608
    *(
        f"DELETE FROM {table} WHERE user = :user AND memory_id = :id"  # noqa: S608
        for table in _FEEDBACK_TABLES
    ),
    """DELETE FROM refusals WHERE user = :user AND (memory_id = :id OR content =
        (SELECT content FROM memories WHERE user = :user AND id = :id))""",
    "DELETE FROM memory_links WHERE user = :user AND :id IN (older_id, newer_id)",
    """DELETE FROM merge_audits WHERE user = :user AND entry NOT IN
        (SELECT entry FROM memory_history WHERE user = :user)""",
    "DELETE FROM memories WHERE user = :user AND id = :id",
    _ORPHAN_ASPECTS,
)


def erase(connection: SqlConnection, user: str, memory_id: str) -> None:
    """Erase one memory and all records of it."""
    names = {"user": user, "id": memory_id}
    # All texts that the memory ever had.
    texts = {text for (text,) in connection.execute(_TEXT, names)}
    states = [_state(before) for (before,) in connection.execute(_STATES, names)]
    texts |= {state["content"] for state in states if isinstance(state.get("content"), str)}
    # In the history of memories that this one was merged with.
    for entry, before in connection.execute(
        _WORN, {**names, "texts": json.dumps(sorted(texts))}
    ).fetchall():
        state = _state(before)
        if state.get("content") in texts:
            state |= {"content": PURGED_TEXT, "tags": [], "metadata": {}}
            redacted = json.dumps(state, ensure_ascii=False)
            connection.execute(_REDACT, {**names, "entry": entry, "before": redacted})
    unpack_memory(connection, user, memory_id)
    _forget_refusals(connection, names, texts)
    _redact_sessions(connection, names, texts)
    for statement in _ERASURES:
        connection.execute(statement, names)
    # An entity that only this memory named would still show its name, and so would one that only a
    # dependency of the first needs: repeat until no entity is left without memories.
    while connection.execute(_ORPHAN_ENTITIES, names).rowcount:
        pass


def _redact_sessions(connection: SqlConnection, names: Mapping[str, str], texts: set[str]) -> None:
    """Erase the texts from the records of sessions, and names that no other memory has."""
    known: set[str] = set()
    for (content,) in connection.execute(_OTHERS, names):
        known |= words_in(content)
    erased = names_in("\n".join(texts)) - known
    redact(connection, names["user"], Redaction(texts, erased))


def _forget_refusals(connection: SqlConnection, names: Mapping[str, str], texts: set[str]) -> None:
    """Erase the refusals that repeat one of the texts, in any spelling."""
    spelled = [_spelled(text) for text in texts]
    gone = [
        {**names, "refusal": refusal_id}
        for refusal_id, *quotes in connection.execute(_REFUSED, names)
        if any(
            text == erased or (len(erased) >= _TELLING_CHARS and erased in text)
            for text in map(_spelled, quotes)
            for erased in spelled
        )
    ]
    connection.executemany("DELETE FROM refusals WHERE user = :user AND id = :refusal", gone)


def _spelled(text: str) -> str:
    return canonical(text).casefold().rstrip(" .!?")


def _state(text: str) -> dict[str, Any]:
    """Return a former state of a memory; empty if it cannot be read."""
    try:
        state = json.loads(text)
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def note(connection: SqlConnection, change: int) -> None:
    """Record a purge by the number of its change, for in-memory indexes and for `due`."""
    # FTS5 keeps deleted words in old segments until they are merged away.
    connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('optimize')")
    # In-memory indexes read the first. The second goes when the files have no traces left.
    connection.executemany(
        """INSERT INTO meta VALUES (?, CAST(? AS TEXT))
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        [("purge", change), ("purge_due", change)],
    )


def due(connection: SqlConnection) -> str | None:
    """Return the number of the last purge with traces left in the files; None without one."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'purge_due'").fetchone()
    return None if found is None else str(found[0])


def settle(connection: SqlConnection, number: str) -> None:
    """Record that the traces are gone, unless another purge came in between."""
    connection.execute("DELETE FROM meta WHERE key = 'purge_due' AND value = ?", (number,))


def is_log_in_use(connection: SqlConnection) -> bool:
    """Empty the log; return whether another connection is in the way."""
    (is_blocked, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(is_blocked)
