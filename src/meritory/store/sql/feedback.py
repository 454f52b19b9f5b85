"""Feedback in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from meritory.domain.codec import moment_text
from meritory.domain.errors import Corrupt, InputError, NotFound
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
from meritory.domain.world import ID_LENGTH
from meritory.rank.risk import RiskTally
from meritory.store.sql.memory_reads import SqlReads, as_json
from meritory.store.sql.rows import SqlConnection, SqlReader, moment

# As with sessions: what was said longer ago than this has faded anyway.
TESTIMONY_PER_MEMORY = 100
PREFIX_LENGTH_MIN = 4
# A limit that limits nothing.
EVERYTHING = 2**62
_PLAIN = (
    *("user", "id", "project", "agent", "session_key", "origin", "signal", "polarity"),
    *("status", "reason", "domain", "quality", "memory_id", "occurrence"),
)
_DETAILS = ("last_action", "rubric", "diagnosis", "memory_ids")
_COLUMNS = (*_PLAIN, "at", "completed_at", "tool", "tags", "texts", "details")
_INSERT = (
    f"INSERT INTO feedback_events ({', '.join(_COLUMNS)})"  # noqa: S608 - names of ours
    f" VALUES ({', '.join(':' + name for name in _COLUMNS)})"
)
_REPLACE = (
    f"UPDATE feedback_events SET {', '.join(f'{name} = :{name}' for name in _COLUMNS)}"  # noqa: S608
    " WHERE user = :user AND id = :id"
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM feedback_events WHERE user = :user"  # noqa: S608
_SAID = """SELECT at, witness, value, session_key FROM feedback_evidence
    WHERE user = ? AND memory_id = ? ORDER BY feedback_id DESC LIMIT ?"""
_SIDES = "count(*) FILTER (WHERE polarity > 0), count(*) FILTER (WHERE polarity < 0)"
_SINCE = "polarity <> 0 AND (:since IS NULL OR at >= :since)"


class SqlFeedback:
    """What a transaction can do with feedback."""

    connection: SqlConnection

    def add_feedback(self, event: FeedbackEvent) -> None:
        self.connection.execute(_INSERT, _values(event))

    def replace_feedback(self, event: FeedbackEvent) -> None:
        self.connection.execute(_REPLACE, _values(event))

    def put_wording(self, scope: Scope, fingerprint: str, memory_id: str) -> None:
        self.connection.execute(
            """INSERT INTO feedback_wordings VALUES (?, ?, ?, ?, ?)
                ON CONFLICT (user, agent, project, fingerprint)
                DO UPDATE SET memory_id = excluded.memory_id""",
            (*_place(scope), fingerprint, memory_id),
        )

    def count_report(self, user: str, memory_id: str, polarity: int, at: datetime) -> int:
        now = moment_text(at)
        (count,) = self.connection.execute(
            """INSERT INTO feedback_lessons VALUES (?, ?, ?, 1, ?, ?)
                ON CONFLICT (user, memory_id) DO UPDATE SET
                    report_count = feedback_lessons.report_count + 1,
                    last_at = excluded.last_at
                RETURNING report_count""",
            (user, memory_id, polarity, now, now),
        ).fetchone()
        return int(count)

    def add_testimony(
        self, user: str, feedback_id: str, said: Mapping[str, Testimony]
    ) -> dict[str, list[Testimony]]:
        self.connection.executemany(
            """INSERT INTO feedback_evidence VALUES (?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (user, memory_id, feedback_id) DO UPDATE SET at = excluded.at,
                    witness = excluded.witness, value = excluded.value,
                    session_key = excluded.session_key""",
            [
                (
                    user,
                    memory_id,
                    feedback_id,
                    moment_text(one.at),
                    one.witness,
                    one.value,
                    one.session_key,
                )
                for memory_id, one in said.items()
            ],
        )
        return {memory_id: _testimony(self.connection, user, memory_id) for memory_id in said}

    def put_beliefs(self, user: str, beliefs: Mapping[str, Belief]) -> None:
        self.connection.executemany(
            """INSERT INTO memory_beliefs VALUES (?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (user, memory_id) DO UPDATE SET support = excluded.support,
                    doubt = excluded.doubt, undecided = excluded.undecided,
                    as_of_day = excluded.as_of_day, is_contested = excluded.is_contested""",
            [
                (
                    user,
                    memory_id,
                    one.support,
                    one.doubt,
                    one.undecided,
                    one.as_of_day,
                    int(one.is_contested),
                )
                for memory_id, one in beliefs.items()
            ],
        )


class SqlFeedbackReads:
    """What can be asked about feedback."""

    _engine: SqlReader
    damaged: set[int]

    def feedback_event(self, user: str, prefix: str) -> FeedbackEvent:
        wanted = prefix.strip().lower()
        nothing = NotFound(
            f"no feedback {prefix[:40]!r}", hint="`meritory feedback list` shows the ids"
        )
        if not (PREFIX_LENGTH_MIN <= len(wanted) <= ID_LENGTH and wanted.isascii()):
            raise nothing
        names = {"user": user, "low": wanted, "high": wanted + "~"}
        found = self._events(f"{_SELECT} AND id >= :low AND id < :high LIMIT 2", names)
        if len(found) > 1:
            raise InputError(
                f"{prefix!r} is the start of several ids", hint="give more of its characters"
            )
        if not found:
            raise nothing
        return found[0]

    def lesson_for(self, scope: Scope, fingerprint: str) -> str | None:
        found = self._rows(
            """SELECT memory_id FROM feedback_wordings
                WHERE user = ? AND agent = ? AND project = ? AND fingerprint = ?""",
            (*_place(scope), fingerprint),
        )
        return found[0][0] if found else None

    def feedback_events(self, user: str, query: FeedbackQuery) -> list[FeedbackEvent]:
        names: dict[str, Any] = {"user": user, "limit": query.limit}
        wanted = [_SELECT]
        for name in ("polarity", "status", "domain", "project", "session_key", "memory_id"):
            value = getattr(query, name)
            if value is not None:
                names[name] = value
                wanted.append(f"AND {name} = :{name}")
        if query.before is not None:
            names["before"] = query.before
            wanted.append("AND id < :before")
        return self._events(f"{' '.join(wanted)} ORDER BY id DESC LIMIT :limit", names)

    def feedback_counts(self, user: str) -> list[FeedbackCount]:
        rows = self._rows(
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
        ((positive, negative),) = self._rows(
            f"""SELECT {_SIDES} FROM (SELECT polarity FROM feedback_events
                WHERE user = :user AND {_SINCE} ORDER BY at DESC LIMIT :limit) AS latest""",  # noqa: S608
            {
                "user": user,
                "since": None if since is None else moment_text(since),
                "limit": EVERYTHING if limit is None else limit,
            },
        )
        return positive or 0, negative or 0

    def feedback_tallies(self, user: str, since: datetime | None) -> list[RiskTally]:
        names = {"user": user, "since": None if since is None else moment_text(since)}
        of_tags = ", json_each(feedback_events.tags)"
        rows = self._rows(
            " UNION ALL ".join(
                f"SELECT '{facet}', {name}, {_SIDES} FROM feedback_events{more}"  # noqa: S608
                f" WHERE user = :user AND {_SINCE} AND {name} IS NOT NULL GROUP BY {name}"
                for facet, name, more in (
                    ("tag", "value", of_tags),
                    ("tool", "tool", ""),
                    ("domain", "domain", ""),
                )
            ),
            names,
        )
        return [RiskTally(*row) for row in rows]

    def testimony(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Testimony]]:
        with self._engine.read() as connection:
            found = {one: _testimony(connection, user, one) for one in memory_ids}
        return {memory_id: said for memory_id, said in found.items() if said}

    def lessons(self, user: str, memory_ids: Sequence[str]) -> dict[str, Lesson]:
        rows = self._rows(
            """SELECT memory_id, polarity, report_count, first_at, last_at FROM feedback_lessons
                WHERE user = ? AND memory_id IN (SELECT value FROM json_each(?))""",
            (user, as_json(memory_ids)),
        )
        return {
            memory_id: Lesson(memory_id, polarity, count, moment(first), moment(last))
            for memory_id, polarity, count, first, last in rows
        }

    def contested(self, user: str, limit: int) -> list[Contested]:
        with self._engine.read() as connection:
            beliefs = {
                memory_id: Belief(*masses)
                for memory_id, *masses in connection.execute(
                    """SELECT memory_id, support, doubt, undecided, as_of_day FROM memory_beliefs
                        WHERE user = ? AND is_contested = 1 ORDER BY memory_id DESC LIMIT ?""",
                    (user, limit),
                )
            }
            found = SqlReads(connection, self.damaged).sound_records(
                """m.user = :user AND m.id IN (SELECT value FROM json_each(:ids))
                    AND m.deleted_at IS NULL AND m.superseded_by IS NULL""",
                {"user": user, "ids": as_json(list(beliefs))},
            )
        records = {record.id: record for record in found.values() if record is not None}
        return [Contested(records[one], beliefs[one]) for one in beliefs if one in records]

    def _events(self, statement: str, names: Mapping[str, Any]) -> list[FeedbackEvent]:
        return [
            _event(dict(zip(_COLUMNS, row, strict=True))) for row in self._rows(statement, names)
        ]

    def _rows(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        with self._engine.read() as connection:
            return connection.execute(statement, values).fetchall()


def _place(scope: Scope) -> tuple[str, str, str]:
    return scope.user, scope.agent or "", scope.project or ""


def _testimony(connection: SqlConnection, user: str, memory_id: str) -> list[Testimony]:
    rows = connection.execute(_SAID, (user, memory_id, TESTIMONY_PER_MEMORY))
    return [Testimony(moment(at), witness, value, key) for at, witness, value, key in rows]


def _values(event: FeedbackEvent) -> dict[str, Any]:
    details = {name: getattr(event, name) for name in _DETAILS}
    details["issues"] = [asdict(issue) for issue in event.issues]
    completed = event.completed_at
    return {
        **{name: getattr(event, name) for name in _PLAIN},
        "at": moment_text(event.at),
        "completed_at": None if completed is None else moment_text(completed),
        "tool": (event.last_action or {}).get("tool"),
        "tags": json.dumps(event.tags, ensure_ascii=False),
        "texts": json.dumps(event.texts, ensure_ascii=False),
        "details": json.dumps(details, ensure_ascii=False),
    }


def _event(row: dict[str, Any]) -> FeedbackEvent:
    try:
        texts, details = json.loads(row["texts"]), json.loads(row["details"])
        tags = tuple(json.loads(row["tags"]))
    except ValueError as error:
        raise Corrupt(f"feedback {row['id']!r} cannot be read") from error
    completed = row["completed_at"]
    event = FeedbackEvent(at=moment(row["at"]), **{name: row[name] for name in _PLAIN})
    return replace(
        event,
        tags=tags,
        completed_at=None if completed is None else moment(completed),
        last_action=details["last_action"],
        rubric=details["rubric"],
        diagnosis=details["diagnosis"],
        memory_ids=tuple(details["memory_ids"]),
        issues=tuple(Issue(**issue) for issue in details["issues"]),
        **{name: texts[name] for name in TEXTS if name in texts},
    )
