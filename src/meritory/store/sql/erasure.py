"""The erasure of a session, and of words in the records of all sessions.

Both go by the description of the tables: a table with a column `session` or `session_key` belongs
to sessions, and a new one is covered without a change here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from meritory.domain.session import Turn
from meritory.store.sql.mapper import SqlConnection, decode_transcript, encode_transcript
from meritory.store.sql.tables import TABLES, TENANT, SqlTable
from meritory.text.judge.digest import decode_digest
from meritory.text.redaction import Redaction

# A memory outlives the session that it was extracted from.
_OUTLIVING = ("memories",)
# Names and numbers, which are compared and never shown as text.
_NAMES = frozenset(
    f"""{TENANT} agent project harness cwd state kind category name source origin provenance channel
    embedder scorer judge tool tool_name domain signal status decision witness code handle rule_id
    memory_id request_id session_key key actor at started_at ended_at completed_at offered_at
    rated_at chosen_at retired_at lifted_at predictor_top_ids baseline_top_ids replay_ndcg
    replay_log_rank relevance_scores used label_parts origins offer surface memory_ids shown labels
    predictor_ranks""".split()
)
_OF_USER = "session IN (SELECT session FROM sessions WHERE user = :user)"
_THIS = "(SELECT session FROM sessions WHERE user = :user AND key = :key)"
# Reports and actions of the session that link each other.
_LINKS = """DELETE FROM action_feedback WHERE user = :user AND (
    feedback_id IN (SELECT id FROM feedback_events WHERE user = :user AND session_key = :key)
    OR action IN (SELECT action FROM actions WHERE user = :user AND session_key = :key))"""


def tables_of_sessions() -> Iterator[tuple[SqlTable, str]]:
    """Yield every table that belongs to sessions with the column that says to which."""
    for table in TABLES:
        if table.numbers.get("session") == "sessions":
            yield table, "session"
        elif table.name not in _OUTLIVING and any(
            column.name == "session_key" for column in table.columns
        ):
            yield table, "session_key"


def erase_session(
    connection: SqlConnection, user: str, key: str, job_kinds: Sequence[str]
) -> dict[str, int]:
    """Erase a session with all its rows; return their number by table."""
    names = {"user": user, "key": key, "kinds": json.dumps(list(job_kinds))}
    counts = {"action_feedback": connection.execute(_LINKS, names).rowcount}
    # Backwards: a table comes after those that it refers to.
    for table, column in reversed(list(tables_of_sessions())):
        where = "user = :user AND session_key = :key"
        if column == "session":
            where = f"session = {_THIS}"
        statement = f"DELETE FROM {table.name} WHERE {where}"  # noqa: S608 - our names
        counts[table.name] = connection.execute(statement, names).rowcount
    jobs = """DELETE FROM jobs WHERE user = :user AND key = :key
        AND kind IN (SELECT value FROM json_each(:kinds))"""
    counts["jobs"] = connection.execute(jobs, names).rowcount
    return {table: count for table, count in counts.items() if count}


def redact(connection: SqlConnection, user: str, redaction: Redaction) -> None:
    """Replace erased words in every text that was recorded of a session."""
    for table, column in tables_of_sessions():
        texts = [
            one.name
            for one in table.columns
            if one.type == "TEXT" and one.name not in _NAMES and one.name not in table.key
        ]
        texts += [name for name in ("transcript", "digest") if table.name == "sessions"]
        if not texts:
            continue
        where = _OF_USER if column == "session" and table.name != "sessions" else "user = :user"
        columns = ", ".join((*table.key, *texts))
        select = f"SELECT {columns} FROM {table.name} WHERE {where}"  # noqa: S608 - our names
        sets = ", ".join(f"{name} = ?" for name in texts)
        keys = " AND ".join(f"{name} = ?" for name in table.key)
        update = f"UPDATE {table.name} SET {sets} WHERE {keys}"  # noqa: S608 - our names
        for row in connection.execute(select, {"user": user}).fetchall():
            key, before = row[: len(table.key)], list(row[len(table.key) :])
            after = [
                _redacted(name, value, redaction) for name, value in zip(texts, before, strict=True)
            ]
            if after != before:
                connection.execute(update, (*after, *key))


def _redacted(name: str, value: Any, redaction: Redaction) -> Any:
    if not value:
        return value
    if name == "transcript":
        turns = decode_transcript(value)
        after = [Turn(turn.role, redaction.apply(turn.text)) for turn in turns]
        return value if after == list(turns) else encode_transcript(after)
    if name == "digest":
        # Its words are keys of evidence: it is erased as a whole.
        try:
            words = repr(decode_digest(bytes(value)))
        except (zlib.error, ValueError, KeyError, TypeError):
            return value
        return None if redaction.is_in(words) else value
    if value[0] in "[{":
        try:
            return redaction.apply_json(value)
        except ValueError:
            pass
    return redaction.apply(value)
