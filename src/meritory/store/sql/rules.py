"""Actions, rules and the constraints of sessions."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from meritory.domain.errors import Corrupt, NotFound
from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEvent,
    SessionConstraint,
    State,
)
from meritory.domain.world import moment_text
from meritory.store.sql.mapper import (
    ColumnCodec,
    RecordTable,
    SqlConnection,
    SqlReader,
    as_json,
    chosen_filters,
)

# Of all users together, about 0.4 kB each: 20 MB at most.
ACTION_LIMIT = 50_000
ACTIONS = RecordTable(
    "actions",
    RecordedAction,
    owner=("user",),
    numbered="number",
    renamed={"number": "action"},
    codecs={"heads": ColumnCodec("\n".join, lambda text: tuple(str(text).split("\n")))},
)
ACTION_REPORTS = RecordTable("action_feedback", ActionReport, owner=("user",))
_RULES = RecordTable("rules", Rule, owner=("user",))
_CONSTRAINTS = RecordTable("session_constraints", SessionConstraint, owner=("user",))


def _decode_rule(row: Sequence[Any]) -> Rule:
    try:
        rule = _RULES.decode(row)
        _ = rule.trigger
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt("a stored rule cannot be read") from error
    return rule


def _decode_before(text: str) -> Rule:
    defaults = {field.name: field.default for field in fields(Rule)}
    values = defaults | json.loads(text)
    return _decode_rule([values[name] for name in _RULES.columns])


_EVENTS = RecordTable(
    "rule_events",
    RuleEvent,
    owner=("user",),
    numbered="number",
    renamed={"number": "event"},
    codecs={
        "before": ColumnCodec(lambda rule: json.dumps(_RULES.values(rule)), _decode_before),
    },
)
_FILTERS = {
    "session_key": "session_key = :session_key",
    "tool": "tool = :tool",
    "head": "instr('\n' || heads || '\n', '\n' || :head || '\n') > 0",
    "rule_id": "rule_id = :rule_id",
    "since": "at > :since",
    "until": "at < :until",
}


class SqlRuleReads(SqlReader):
    """Actions, rules and constraints, for a store and for a transaction."""

    def actions(self, user: str, query: ActionQuery) -> list[RecordedAction]:
        """Return recorded actions, latest first."""
        conditions, values = chosen_filters(query, _FILTERS)
        return self._records(
            ACTIONS,
            user,
            f"{' AND '.join(['user = :user', *conditions])}"
            " AND action > :after ORDER BY action DESC LIMIT :limit",
            {**values, "user": user, "after": query.after, "limit": query.limit},
        )

    def rules(self, user: str, states: Collection[State]) -> list[Rule]:
        """Return the rules in these states, latest first."""
        rows = self._all(
            user,
            f"{_RULES.select} WHERE user = :user"  # noqa: S608 - our names
            " AND state IN (SELECT value FROM json_each(:states)) ORDER BY updated_at DESC, id",
            {"user": user, "states": as_json(states)},
        )
        return [_decode_rule(row) for row in rows]

    def rule(self, user: str, prefix: str) -> Rule:
        """Return the rule whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """
        unknown = NotFound(f"no rule {prefix[:40]!r}", hint="`meritory rules` lists them")
        return _decode_rule(
            self._by_prefix(f"{_RULES.select} WHERE user = :user", user, prefix, unknown)
        )

    def rule_events(self, user: str, rule_id: str, limit: int) -> list[RuleEvent]:
        """Return the events of a rule, latest first."""
        where = "user = ? AND rule_id = ? ORDER BY event DESC LIMIT ?"
        return self._records(_EVENTS, user, where, (user, rule_id, limit))

    def session_constraints(self, user: str, session_key: str) -> list[SessionConstraint]:
        """Return the constraints of a session that are not lifted."""
        where = "user = ? AND session_key = ? AND lifted_at IS NULL ORDER BY kind, argument"
        return self._records(_CONSTRAINTS, user, where, (user, session_key))


class SqlRuleWrites(SqlRuleReads):
    """Changes of actions, rules and constraints."""

    connection: SqlConnection

    def add_action(self, user: str, action: RecordedAction) -> int:
        """Store an action and return its number."""
        # Read to the end: otherwise the statement would still be running at the commit.
        ((number,),) = self.connection.execute(
            f"{ACTIONS.insert} RETURNING action", ACTIONS.values(action, user=user)
        ).fetchall()
        # By number alone: a condition on the user would scan all of the user's actions.
        self.connection.execute("DELETE FROM actions WHERE action <= ?", (number - ACTION_LIMIT,))
        return int(number)

    def add_action_reports(self, user: str, reports: Sequence[ActionReport]) -> None:
        """Record which actions a report is about; a second record of one changes nothing."""
        for report in reports:
            added = self.connection.execute(
                f"{ACTION_REPORTS.insert} ON CONFLICT DO NOTHING",
                ACTION_REPORTS.values(report, user=user),
            )
            if added.rowcount and report.is_primary:
                column = "blame_count" if report.polarity < 0 else "praise_count"
                self.connection.execute(
                    f"UPDATE actions SET {column} = {column} + 1 WHERE user = ? AND action = ?",  # noqa: S608
                    (user, report.action),
                )

    def put_rule(self, user: str, rule: Rule, event: RuleEvent | None = None) -> None:
        """Store a rule in place of the one with its id, and an event."""
        self.connection.execute(_RULES.upsert("user", "id"), _RULES.values(rule, user=user))
        if event is not None:
            self.add_rule_event(user, event)

    def add_rule_event(self, user: str, event: RuleEvent) -> None:
        """Store an event of a rule."""
        self.connection.execute(_EVENTS.insert, _EVENTS.values(event, user=user))

    def mark_rule_event_undone(self, user: str, number: int) -> None:
        """Mark an event as undone."""
        self.connection.execute(
            "UPDATE rule_events SET is_undone = 1 WHERE user = ? AND event = ?", (user, number)
        )

    def put_session_constraint(self, user: str, constraint: SessionConstraint) -> bool:
        """Store a constraint, or restore a lifted one; return False if it was in force."""
        key = ("user", "session_key", "kind", "argument")
        put = self.connection.execute(
            f"{_CONSTRAINTS.upsert(*key)} WHERE session_constraints.lifted_at IS NOT NULL",
            {**_CONSTRAINTS.values(constraint, user=user), "lifted_at": None},
        )
        return put.rowcount == 1

    def lift_session_constraints(
        self, user: str, session_key: str, kinds: Collection[str], at: datetime
    ) -> int:
        """Lift the constraints of these kinds and return their number."""
        lifted = self.connection.execute(
            """UPDATE session_constraints SET lifted_at = ? WHERE user = ? AND session_key = ?
                AND lifted_at IS NULL AND kind IN (SELECT value FROM json_each(?))""",
            (moment_text(at), user, session_key, as_json(kinds)),
        )
        return lifted.rowcount
