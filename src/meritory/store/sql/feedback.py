"""Feedback: reports, lessons, testimony and beliefs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from meritory.domain.errors import Corrupt, NotFound
from meritory.domain.feedback import (
    TEXTS,
    Belief,
    Contested,
    FeedbackCount,
    FeedbackEvent,
    FeedbackQuery,
    Issue,
    Lesson,
    Testimony,
)
from meritory.domain.memory import Scope
from meritory.rank.feedback import RiskTally
from meritory.store.sql.mapper import (
    FLAG,
    RecordTable,
    SqlConnection,
    SqlReader,
    as_json,
    moment,
    stored,
)
from meritory.store.sql.memories import MemoryRows
from meritory.store.sql.visibility import LIVE

# Older testimony has faded.
TESTIMONY_PER_MEMORY = 100
# SQLite and PostgreSQL take this limit for none.
EVERYTHING = 2**62
# These fields are stored together as one JSON object, and so are the texts.
_DETAILS = ("last_action", "rubric", "diagnosis", "memory_ids", "issues")
_EVENTS = RecordTable(
    "feedback_events",
    FeedbackEvent,
    owner=("tool", "texts", "details"),
    omit=(*TEXTS, *_DETAILS),
)
_SELECT = (
    f"SELECT {', '.join((*_EVENTS.columns, 'texts', 'details'))} FROM feedback_events"  # noqa: S608
    " WHERE user = :user"
)
_LESSONS = RecordTable("feedback_lessons", Lesson, owner=("user",))
_TESTIMONY = RecordTable("feedback_evidence", Testimony, owner=("user", "memory_id", "feedback_id"))
_BELIEFS = RecordTable(
    "memory_beliefs",
    Belief,
    owner=("user", "memory_id"),
    codecs={"is_contested": FLAG},
)
_SIDES = "count(*) FILTER (WHERE polarity > 0), count(*) FILTER (WHERE polarity < 0)"
_SINCE = "polarity <> 0 AND (:since IS NULL OR at >= :since)"


def _values(event: FeedbackEvent) -> dict[str, Any]:
    details = {name: getattr(event, name) for name in _DETAILS}
    details["issues"] = [asdict(issue) for issue in event.issues]
    return _EVENTS.values(
        event,
        tool=(event.last_action or {}).get("tool"),
        texts=json.dumps(event.texts, ensure_ascii=False),
        details=json.dumps(details, ensure_ascii=False),
    )


def _decode_event(row: Sequence[Any]) -> FeedbackEvent:
    try:
        texts, details = json.loads(row[-2]), json.loads(row[-1])
        fields = _EVENTS.fields(row[:-2])
    except ValueError as error:
        raise Corrupt(f"feedback {row[0]!r} cannot be read") from error
    details["memory_ids"] = tuple(details["memory_ids"])
    details["issues"] = tuple(Issue(**issue) for issue in details["issues"])
    return FeedbackEvent(
        **fields,
        **{name: details[name] for name in _DETAILS},
        **{name: texts[name] for name in TEXTS if name in texts},
    )


def _testimony(connection: SqlConnection, user: str, memory_id: str) -> list[Testimony]:
    rows = connection.execute(
        f"{_TESTIMONY.select} WHERE user = ? AND memory_id = ? ORDER BY feedback_id DESC LIMIT ?",
        (user, memory_id, TESTIMONY_PER_MEMORY),
    )
    return [_TESTIMONY.decode(row) for row in rows]


class SqlFeedbackWrites(SqlReader):
    """Changes of reports, lessons and beliefs."""

    connection: SqlConnection

    def add_feedback(self, event: FeedbackEvent) -> None:
        """Store a new report."""
        self.connection.execute(_EVENTS.insert, _values(event))

    def replace_feedback(self, event: FeedbackEvent) -> None:
        """Replace the report with this id."""
        self.connection.execute(_EVENTS.update("user", "id"), _values(event))

    def put_wording(self, scope: Scope, fingerprint: str, memory_id: str) -> None:
        """Map a wording to a memory."""
        self.connection.execute(
            """INSERT INTO feedback_wordings VALUES (?, ?, ?, ?, ?)
                ON CONFLICT (user, agent, project, fingerprint)
                DO UPDATE SET memory_id = excluded.memory_id""",
            (scope.user, scope.agent or "", scope.project or "", fingerprint, memory_id),
        )

    def count_report(self, user: str, memory_id: str, polarity: int, at: datetime) -> int:
        """Count one more report of a lesson and return the number of its reports."""
        (count,) = self.connection.execute(
            f"""{_LESSONS.insert} ON CONFLICT (user, memory_id) DO UPDATE SET
                report_count = feedback_lessons.report_count + 1, last_at = excluded.last_at
                RETURNING report_count""",
            _LESSONS.values(Lesson(memory_id, polarity, 1, at, at), user=user),
        ).fetchone()
        return int(count)

    def add_testimony(
        self, user: str, feedback_id: str, said: Mapping[str, Testimony]
    ) -> dict[str, list[Testimony]]:
        """Store the testimony of a report and return the latest testimony on each memory."""
        self.connection.executemany(
            _TESTIMONY.upsert("user", "memory_id", "feedback_id"),
            [
                _TESTIMONY.values(item, user=user, memory_id=memory_id, feedback_id=feedback_id)
                for memory_id, item in said.items()
            ],
        )
        return {memory_id: _testimony(self.connection, user, memory_id) for memory_id in said}

    def put_beliefs(self, user: str, beliefs: Mapping[str, Belief]) -> None:
        """Store the beliefs in memories in place of the former ones."""
        self.connection.executemany(
            _BELIEFS.upsert("user", "memory_id"),
            [
                _BELIEFS.values(belief, user=user, memory_id=memory_id)
                for memory_id, belief in beliefs.items()
            ],
        )


class SqlFeedbackReads(SqlReader):
    """Reports, lessons and beliefs."""

    def feedback_event(self, user: str, prefix: str) -> FeedbackEvent:
        """Return the report whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """
        unknown = NotFound(
            f"no feedback {prefix[:40]!r}", hint="`meritory feedback list` shows the ids"
        )
        return _decode_event(self._by_prefix(_SELECT, user, prefix, unknown))

    def lesson_for(self, scope: Scope, fingerprint: str) -> str | None:
        """Return the memory of a wording in exactly this scope."""
        row = self._one(
            scope.user,
            """SELECT memory_id FROM feedback_wordings
                WHERE user = ? AND agent = ? AND project = ? AND fingerprint = ?""",
            (scope.user, scope.agent or "", scope.project or "", fingerprint),
        )
        return row[0] if row else None

    def feedback_events(self, user: str, query: FeedbackQuery) -> list[FeedbackEvent]:
        """Return a page of reports, latest first."""
        given = {name: value for name, value in asdict(query).items() if value is not None}
        conditions = [
            " AND id < :before" if name == "before" else f" AND {name} = :{name}"
            for name in given
            if name != "limit"
        ]
        statement = f"{_SELECT}{''.join(conditions)} ORDER BY id DESC LIMIT :limit"
        rows = self._all(user, statement, {"user": user, **given})
        return [_decode_event(row) for row in rows]

    def feedback_counts(self, user: str) -> list[FeedbackCount]:
        """Return the number of reports by domain, polarity and status."""
        rows = self._all(
            user,
            """SELECT domain, polarity, status, count(*), max(at) FROM feedback_events
                WHERE user = ? GROUP BY domain, polarity, status""",
            (user,),
        )
        return [
            FeedbackCount(domain, polarity, status, count, moment(last))
            for domain, polarity, status, count, last in rows
        ]

    def approvals(
        self, user: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[int, int]:
        """Return how many reports are positive and negative, among the latest `limit`."""
        ((positive, negative),) = self._all(
            user,
            f"""SELECT {_SIDES} FROM (SELECT polarity FROM feedback_events
                WHERE user = :user AND {_SINCE} ORDER BY at DESC LIMIT :limit) AS latest""",  # noqa: S608
            {"user": user, "since": stored(since), "limit": EVERYTHING if limit is None else limit},
        )
        return positive or 0, negative or 0

    def feedback_tallies(self, user: str, since: datetime | None) -> list[RiskTally]:
        """Return positive and negative reports by tag, tool and domain."""
        rows = self._all(
            user,
            " UNION ALL ".join(
                f"SELECT '{facet}', {name}, {_SIDES} FROM feedback_events{more}"  # noqa: S608
                f" WHERE user = :user AND {_SINCE} AND {name} IS NOT NULL GROUP BY {name}"
                for facet, name, more in (
                    ("tag", "value", ", json_each(feedback_events.tags)"),
                    ("tool", "tool", ""),
                    ("domain", "domain", ""),
                )
            ),
            {"user": user, "since": stored(since)},
        )
        return [RiskTally(*row) for row in rows]

    def testimony(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Testimony]]:
        """Return the latest testimony of reports on memories, by memory id."""
        with self._reading(user) as connection:
            said = {memory_id: _testimony(connection, user, memory_id) for memory_id in memory_ids}
        return {memory_id: items for memory_id, items in said.items() if items}

    def lessons(self, user: str, memory_ids: Sequence[str]) -> dict[str, Lesson]:
        """Return the lessons among these memories, by memory id."""
        where = "user = ? AND memory_id IN (SELECT value FROM json_each(?))"
        lessons = self._records(_LESSONS, user, where, (user, as_json(memory_ids)))
        return {lesson.memory_id: lesson for lesson in lessons}

    def contested(self, user: str, limit: int) -> list[Contested]:
        """Return live memories with a contested claim, newest first."""
        with self._reading(user) as connection:
            beliefs = {
                memory_id: _BELIEFS.decode(masses)
                for memory_id, *masses in connection.execute(
                    f"""SELECT memory_id, {", ".join(_BELIEFS.columns)} FROM memory_beliefs
                        WHERE user = ? AND is_contested = 1 ORDER BY memory_id DESC LIMIT ?""",  # noqa: S608
                    (user, limit),
                )
            }
            found = MemoryRows(connection, self.damaged).sound_records(
                f"m.user = :user AND m.id IN (SELECT value FROM json_each(:ids)) AND {LIVE}",  # noqa: S608
                {"user": user, "ids": as_json(beliefs)},
            )
        records = {record.id: record for record in found.values()}
        return [
            Contested(records[memory_id], belief)
            for memory_id, belief in beliefs.items()
            if memory_id in records
        ]
