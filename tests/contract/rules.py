"""Actions, rules and constraints: kept as they were, found by what they are, each user's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from contract.builders import NOW
from contract.shelf import Shelf
from meritory.domain.errors import InputError, NotFound
from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEvent,
    SessionConstraint,
)
from meritory.store.contract.store import Store
from places import action_reports

MINUTE = timedelta(minutes=1)
ACTION = RecordedAction(
    session_key="s",
    at=NOW,
    project="shop",
    harness="codex",
    tool="shell",
    tool_name="Bash",
    argument="cd x && git push",
    heads=("cd", "git"),
    risk=4,
    decision="allow",
)
RULE = Rule(
    id="01rule0000000000000000000a",
    project="shop",
    tool="shell",
    pattern="git push --force",
    text="it overwrote commits",
    state="proposed",
    risk=8,
    is_forbidden=True,
    weight=1.5,
    weighed_at=NOW,
    report_count=2,
    created_at=NOW,
    updated_at=NOW,
    expires_at=NOW + timedelta(days=28),
    reported_at=NOW,
    memory_id="m",
)


def add(store: Store, user: str = "default", **changes: object) -> int:
    return store.write(user, lambda t: t.add_action(user, replace(ACTION, **changes)))  # type: ignore[arg-type]


class Rules:
    def test_an_action_is_kept_as_it_was(self, shelf: Shelf) -> None:
        number = add(shelf.store)
        for store in shelf.before_and_after_reopening():
            assert store.actions("default", ActionQuery()) == [replace(ACTION, number=number)]
            assert store.actions("somebody", ActionQuery()) == []

    def test_actions_are_found_by_what_they_are(self, store: Store) -> None:
        first = add(store)
        second = add(store, session_key="t", at=NOW + MINUTE, tool="edit", heads=("digit",))
        third = add(store, at=NOW + 2 * MINUTE, rule_id="r", decision="warn")
        queries = {
            ActionQuery(): [third, second, first],
            ActionQuery(limit=1): [third],
            ActionQuery(session_key="s"): [third, first],
            ActionQuery(tool="shell"): [third, first],
            ActionQuery(head="git"): [third, first],
            ActionQuery(head="digit"): [second],
            ActionQuery(rule_id="r"): [third],
            ActionQuery(since=NOW): [third, second],
            ActionQuery(until=NOW + MINUTE): [first],
            ActionQuery(after=first): [third, second],
        }
        for query, expected in queries.items():
            assert [one.number for one in store.actions("default", query)] == expected, query

    def test_a_report_counts_once_and_for_its_main_action(self, store: Store) -> None:
        first, second = add(store), add(store)
        reports = [
            ActionReport("f", second, -1, 0.8, True, NOW),
            ActionReport("f", first, -1, 0.4, False, NOW),
        ]
        for _ in range(2):
            store.write("default", lambda t: t.add_action_reports("default", reports))
        praise = ActionReport("g", first, 1, 0.5, True, NOW)
        store.write("default", lambda t: t.add_action_reports("default", [praise]))
        assert action_reports(store, "default", "f") == reports
        assert action_reports(store, "somebody", "f") == []
        counts = [
            (one.number, one.blame_count, one.praise_count)
            for one in store.actions("default", ActionQuery())
        ]
        assert counts == [(second, 1, 0), (first, 0, 1)]

    def test_a_rule_is_kept_with_its_history(self, shelf: Shelf) -> None:
        later = replace(RULE, state="warns", updated_at=NOW + MINUTE)
        event = RuleEvent(rule_id=RULE.id, at=NOW, kind="proposed", reason="", actor="me")
        more = replace(event, kind="stepped_up", before=RULE, session_key="s", feedback_id="f")
        shelf.store.write("default", lambda t: t.put_rule("default", RULE, event))
        shelf.store.write("default", lambda t: t.put_rule("default", later, more))
        for store in shelf.before_and_after_reopening():
            assert store.rule("default", RULE.id[:8]) == later
            assert store.rules("default", ("warns",)) == [later]
            assert store.rules("default", ("proposed",)) == []
            events = store.rule_events("default", RULE.id, 10)
            assert [one.kind for one in events] == ["stepped_up", "proposed"]
            assert (events[0].before, events[1].before) == (RULE, None)
            assert store.rule_events("somebody", RULE.id, 10) == []
        number = events[0].number
        store.write("default", lambda t: t.mark_rule_event_undone("default", number))
        assert [e.is_undone for e in store.rule_events("default", RULE.id, 10)] == [True, False]

    def test_a_rule_is_named_by_the_start_of_its_id(self, store: Store) -> None:
        other = replace(RULE, id=RULE.id[:-1] + "b")
        for rule in (RULE, other):
            store.write("default", lambda t, rule=rule: t.put_rule("default", rule))
        assert store.rule("default", other.id) == other
        with pytest.raises(InputError):
            store.rule("default", RULE.id[:-1])
        for name in ("", "01", "02rule", "nö"):
            with pytest.raises(NotFound):
                store.rule("default", name)
        with pytest.raises(NotFound):
            store.rule("somebody", RULE.id)

    def test_constraints_hold_until_they_are_lifted_and_may_hold_again(self, store: Store) -> None:
        one = SessionConstraint("s", "no_push", "", "do not push", "f", NOW)
        assert store.write("default", lambda t: t.put_session_constraint("default", one))
        assert not store.write("default", lambda t: t.put_session_constraint("default", one))
        assert store.session_constraints("default", "s") == [one]
        assert store.session_constraints("default", "t") == []
        assert store.session_constraints("somebody", "s") == []
        lift = ("no_push", "no_commit")
        assert (
            store.write("default", lambda t: t.lift_session_constraints("default", "s", lift, NOW))
            == 1
        )
        assert store.session_constraints("default", "s") == []
        assert store.write("default", lambda t: t.put_session_constraint("default", one))
        assert store.session_constraints("default", "s") == [one]
