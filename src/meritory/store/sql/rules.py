"""Actions, rules and constraints in SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from meritory.domain.codec import moment_text
from meritory.domain.errors import Corrupt, InputError, NotFound
from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEvent,
    SessionConstraint,
    State,
)
from meritory.store.sql.memory_reads import as_json
from meritory.store.sql.rows import SqlConnection, SqlReader, moment

# Of all users together, about 0.4 kB each: 20 MB at most.
ACTION_LIMIT = 50_000
PREFIX_CHARS_MIN = 4
_ACTION_COLUMNS = (
    *("session_key", "at", "project", "harness", "tool", "tool_name", "argument", "heads", "risk"),
    *("decision", "rule_id", "blame_count", "praise_count"),
)
_RULE_COLUMNS = tuple(field.name for field in fields(Rule))
_RULE_MOMENTS = ("weighed_at", "created_at", "updated_at", "expires_at", "reported_at")
_RULE_FLAGS = ("is_forbidden", "is_approved")
_EVENT_COLUMNS = (
    *("rule_id", "at", "kind", "reason", "actor", "session_key", "action", "feedback_id"),
    *("before", "is_undone"),
)
_ADD_ACTION = (  # names of ours alone, here and below
    f"INSERT INTO actions (user, {', '.join(_ACTION_COLUMNS)})"  # noqa: S608
    f" VALUES (:user, {', '.join(':' + name for name in _ACTION_COLUMNS)}) RETURNING action"
)
ADD_NUMBERED_ACTION = (
    f"INSERT INTO actions (action, user, {', '.join(_ACTION_COLUMNS)})"  # noqa: S608
    f" VALUES (:number, :user, {', '.join(':' + name for name in _ACTION_COLUMNS)})"
)
_PUT_RULE = (
    f"INSERT INTO rules (user, {', '.join(_RULE_COLUMNS)})"  # noqa: S608
    f" VALUES (:user, {', '.join(':' + name for name in _RULE_COLUMNS)})"
    " ON CONFLICT (user, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _RULE_COLUMNS)
)
_SELECT_ACTIONS = f"SELECT action, {', '.join(_ACTION_COLUMNS)} FROM actions WHERE user = :user"  # noqa: S608
_SELECT_RULES = f"SELECT {', '.join(_RULE_COLUMNS)} FROM rules WHERE user = :user"  # noqa: S608
_QUERY = {
    "session_key": "session_key = :session_key",
    "tool": "tool = :tool",
    "head": "instr('\n' || heads || '\n', '\n' || :head || '\n') > 0",
    "rule_id": "rule_id = :rule_id",
    "since": "at > :since",
    "until": "at < :until",
}


class SqlRuleRows:
    """Actions, rules and constraints out of one connection."""

    connection: SqlConnection

    def actions(self, user: str, query: ActionQuery) -> list[RecordedAction]:
        given = {name: getattr(query, name) for name in _QUERY}
        values: dict[str, Any] = {
            name: moment_text(value) if isinstance(value, datetime) else value
            for name, value in given.items()
        }
        conditions = [_QUERY[name] for name, value in given.items() if value is not None]
        found = self.connection.execute(
            f"{_SELECT_ACTIONS} AND {' AND '.join([*conditions, 'action > :after'])}"
            " ORDER BY action DESC LIMIT :limit",
            {**values, "user": user, "after": query.after, "limit": query.limit},
        )
        return [_action(row) for row in found]

    def action_reports(self, user: str, feedback_id: str) -> list[ActionReport]:
        found = self.connection.execute(
            """SELECT feedback_id, action, polarity, score, is_primary, at FROM action_feedback
                WHERE user = ? AND feedback_id = ? ORDER BY is_primary DESC, score DESC""",
            (user, feedback_id),
        )
        return [
            ActionReport(name, action, polarity, score, bool(is_primary), moment(at))
            for name, action, polarity, score, is_primary, at in found
        ]

    def rules(self, user: str, states: Collection[State]) -> list[Rule]:
        found = self.connection.execute(
            f"{_SELECT_RULES} AND state IN (SELECT value FROM json_each(:states))"  # noqa: S608
            " ORDER BY updated_at DESC, id",
            {"user": user, "states": as_json(states)},
        )
        return [_rule(row) for row in found]

    def rule(self, user: str, prefix: str) -> Rule:
        wanted = prefix.strip().lower()
        found = []
        if len(wanted) >= PREFIX_CHARS_MIN and wanted.isascii():
            found = self.connection.execute(
                f"{_SELECT_RULES} AND id >= :low AND id < :high ORDER BY id LIMIT 2",
                {"user": user, "low": wanted, "high": wanted + "~"},
            ).fetchall()
        if not found:
            raise NotFound(f"no rule {prefix[:40]!r}", hint="`meritory rules` lists them")
        if len(found) > 1:
            raise InputError(
                f"{prefix[:40]!r} is the start of several ids", hint="give more of its characters"
            )
        return _rule(found[0])

    def rule_events(self, user: str, rule_id: str, limit: int) -> list[RuleEvent]:
        found = self.connection.execute(
            f"SELECT event, {', '.join(_EVENT_COLUMNS)} FROM rule_events"  # noqa: S608
            " WHERE user = ? AND rule_id = ? ORDER BY event DESC LIMIT ?",
            (user, rule_id, limit),
        )
        return [_event(row) for row in found]

    def session_constraints(self, user: str, session_key: str) -> list[SessionConstraint]:
        found = self.connection.execute(
            """SELECT session_key, kind, argument, said, feedback_id, at FROM session_constraints
                WHERE user = ? AND session_key = ? AND lifted_at IS NULL ORDER BY kind, argument""",
            (user, session_key),
        )
        return [
            SessionConstraint(key, kind, argument, said, feedback_id, moment(at))
            for key, kind, argument, said, feedback_id, at in found
        ]


class SqlRules(SqlRuleRows):
    """What a transaction can do with actions, rules and constraints."""

    def add_action(self, user: str, action: RecordedAction) -> int:
        values = action_values(user, action)
        # All of it is read: otherwise the statement would still be under way at the commit.
        ((number,),) = self.connection.execute(_ADD_ACTION, values).fetchall()
        # By number alone: looked for by user it would read all of them every time.
        self.connection.execute("DELETE FROM actions WHERE action <= ?", (number - ACTION_LIMIT,))
        return int(number)

    def add_action_reports(self, user: str, reports: Sequence[ActionReport]) -> None:
        for one in reports:
            made = self.connection.execute(
                "INSERT INTO action_feedback VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    user,
                    one.feedback_id,
                    one.action,
                    one.polarity,
                    one.score,
                    one.is_primary,
                    moment_text(one.at),
                ),
            )
            if made.rowcount and one.is_primary:
                column = "blame_count" if one.polarity < 0 else "praise_count"
                self.connection.execute(
                    f"UPDATE actions SET {column} = {column} + 1 WHERE user = ? AND action = ?",  # noqa: S608
                    (user, one.action),
                )

    def put_rule(self, user: str, rule: Rule, event: RuleEvent | None = None) -> None:
        self.connection.execute(_PUT_RULE, {"user": user, **_rule_values(rule)})
        if event is not None:
            self.add_rule_event(user, event)

    def add_rule_event(self, user: str, event: RuleEvent) -> None:
        values = {name: getattr(event, name) for name in _EVENT_COLUMNS}
        before = None if event.before is None else json.dumps(_rule_values(event.before))
        values |= {"user": user, "at": moment_text(event.at), "before": before}
        self.connection.execute(
            f"INSERT INTO rule_events (user, {', '.join(_EVENT_COLUMNS)})"  # noqa: S608
            f" VALUES (:user, {', '.join(':' + name for name in _EVENT_COLUMNS)})",
            values,
        )

    def mark_rule_event_undone(self, user: str, number: int) -> None:
        self.connection.execute(
            "UPDATE rule_events SET is_undone = 1 WHERE user = ? AND event = ?", (user, number)
        )

    def put_session_constraint(self, user: str, constraint: SessionConstraint) -> bool:
        made = self.connection.execute(
            """INSERT INTO session_constraints VALUES (?, ?, ?, ?, ?, ?, ?, NULL)
                ON CONFLICT (user, session_key, kind, argument) DO UPDATE SET
                    said = excluded.said, feedback_id = excluded.feedback_id, at = excluded.at,
                    lifted_at = NULL
                WHERE session_constraints.lifted_at IS NOT NULL""",
            (
                user,
                constraint.session_key,
                constraint.kind,
                constraint.argument,
                constraint.said,
                constraint.feedback_id,
                moment_text(constraint.at),
            ),
        )
        return made.rowcount == 1

    def lift_session_constraints(
        self, user: str, session_key: str, kinds: Collection[str], at: datetime
    ) -> int:
        lifted = self.connection.execute(
            """UPDATE session_constraints SET lifted_at = ? WHERE user = ? AND session_key = ?
                AND lifted_at IS NULL AND kind IN (SELECT value FROM json_each(?))""",
            (moment_text(at), user, session_key, as_json(kinds)),
        )
        return lifted.rowcount


class SqlRuleReads:
    """What can be asked of a store about actions, rules and constraints."""

    _engine: SqlReader

    def actions(self, user: str, query: ActionQuery) -> list[RecordedAction]:
        with self._engine.read() as connection:
            return _rows(connection).actions(user, query)

    def action_reports(self, user: str, feedback_id: str) -> list[ActionReport]:
        with self._engine.read() as connection:
            return _rows(connection).action_reports(user, feedback_id)

    def rules(self, user: str, states: Collection[State]) -> list[Rule]:
        with self._engine.read() as connection:
            return _rows(connection).rules(user, states)

    def rule(self, user: str, prefix: str) -> Rule:
        with self._engine.read() as connection:
            return _rows(connection).rule(user, prefix)

    def rule_events(self, user: str, rule_id: str, limit: int) -> list[RuleEvent]:
        with self._engine.read() as connection:
            return _rows(connection).rule_events(user, rule_id, limit)

    def session_constraints(self, user: str, session_key: str) -> list[SessionConstraint]:
        with self._engine.read() as connection:
            return _rows(connection).session_constraints(user, session_key)


def _rows(connection: SqlConnection) -> SqlRuleRows:
    rows = SqlRuleRows()
    rows.connection = connection
    return rows


def action_values(user: str, action: RecordedAction, number: int | None = None) -> dict[str, Any]:
    """An action as its table has it."""
    values = {name: getattr(action, name) for name in _ACTION_COLUMNS}
    values |= {"user": user, "at": moment_text(action.at), "heads": "\n".join(action.heads)}
    return {**values, "number": number}


def _action(row: Sequence[Any]) -> RecordedAction:
    values = dict(zip(_ACTION_COLUMNS, row[1:], strict=True))
    heads = tuple(str(values["heads"]).split("\n"))
    return RecordedAction(number=row[0], **{**values, "at": moment(values["at"]), "heads": heads})


def _rule_values(rule: Rule) -> dict[str, Any]:
    values = {name: getattr(rule, name) for name in _RULE_COLUMNS}
    for name in _RULE_MOMENTS:
        values[name] = None if values[name] is None else moment_text(values[name])
    return {**values, **{name: int(values[name]) for name in _RULE_FLAGS}}


def _rule(row: Sequence[Any]) -> Rule:
    return _rule_of(dict(zip(_RULE_COLUMNS, row, strict=True)))


def _rule_of(values: dict[str, Any]) -> Rule:
    try:
        moments = {name: values[name] and moment(values[name]) for name in _RULE_MOMENTS}
        flags = {name: bool(values[name]) for name in _RULE_FLAGS}
        rule = Rule(**{**values, **moments, **flags})
        _ = rule.trigger
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt("a stored rule cannot be read") from error
    return rule


def _event(row: Sequence[Any]) -> RuleEvent:
    values = dict(zip(_EVENT_COLUMNS, row[1:], strict=True))
    before = values["before"]
    values |= {
        "at": moment(values["at"]),
        "before": None if before is None else _rule_of(json.loads(before)),
        "is_undone": bool(values["is_undone"]),
    }
    return RuleEvent(number=row[0], **values)
