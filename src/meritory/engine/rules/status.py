"""The status of a rule: its steps up and down, and the replay that each step up needs.

A replay tries a rule's trigger on actions that caused no complaint. A rule whose trigger fits one
of them would raise false alarms, so it must not step up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from meritory.domain.feedback import FeedbackEvent
from meritory.domain.rule import ActionQuery, Rule, RuleEvent, RuleEventKind, State, Trigger
from meritory.domain.session import Event
from meritory.rank import ladder
from meritory.rank.feedback import WINDOW_S
from meritory.rank.ladder import RuleStatus
from meritory.store.contract.rules import RuleReads
from meritory.store.contract.store import Transaction
from meritory.text.commands import triggers
from meritory.text.commands.actions import recorded_tool_action

RULE_JOB: Final = "remember-rule"
LEARNER: Final = "reports"
# Older actions say little about which ones are harmless now.
REPLAY_DAYS: Final = 30
REPLAY_LIMIT: Final = 1_000
_EXAMPLE_LIMIT_COUNT: Final = 5
_WINDOW: Final = timedelta(seconds=WINDOW_S)


@dataclass(frozen=True, slots=True)
class Replay:
    """How many harmless actions a trigger was tried on, and how many of them it fits."""

    tried_count: int
    alarm_count: int
    through: int
    examples: tuple[str, ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether there was no false alarm."""
        return self.alarm_count == 0


def replay(
    reads: RuleReads,
    user: str,
    trigger: Trigger,
    project: str | None,
    now: datetime,
    after: int | None = None,
) -> Replay:
    """Try a trigger on recorded harmless actions and on the list of ordinary ones.

    An action is harmless if it caused no complaint while it was recent; a denied action was never
    done. `after` is the last action of the replay before, to continue from there. Only actions
    with the trigger's own program or file can fit, so no others are read.
    """
    query = ActionQuery(
        tool=trigger.tool,
        head=trigger.head,
        since=now - timedelta(days=REPLAY_DAYS),
        until=now - _WINDOW,
        after=after or 0,
        limit=REPLAY_LIMIT,
    )
    actions = reads.actions(user, query)
    alarms = [
        action.argument
        for action in actions
        if action.blame_count == 0
        and action.decision != "deny"
        and project in (None, action.project)
        and triggers.fits(trigger, recorded_tool_action(action))
    ]
    ordinary = triggers.ordinary_actions() if after is None else ()
    alarms += [action.argument for action in ordinary if triggers.fits(trigger, action)]
    through = max([after or 0, *(action.number for action in actions)])
    examples = tuple(dict.fromkeys(alarms))[:_EXAMPLE_LIMIT_COUNT]
    return Replay(len(actions) + len(ordinary), len(alarms), through, examples)


def with_replay(rule: Rule, result: Replay, *, adds: bool = False) -> Rule:
    """Return a rule with the result of a replay, in place of the earlier ones or added to them."""
    return replace(
        rule,
        replay_count=result.tried_count + (rule.replay_count if adds else 0),
        alarm_count=result.alarm_count + (rule.alarm_count if adds else 0),
        replayed_through=result.through,
    )


def status_of(rule: Rule, now: datetime, unheeded_count: int = 0) -> RuleStatus:
    """Return everything that decides about the state of a rule."""
    reach: State = triggers.reach(rule.trigger, rule.risk, is_forbidden=rule.is_forbidden)
    return RuleStatus(
        state=rule.state,
        weight=ladder.faded(rule.weight, rule.weighed_at, now),
        reach=reach,
        is_clear=rule.replay_count > 0 and rule.alarm_count == 0,
        is_approved=rule.is_approved,
        is_held=rule.held_count >= rule.report_count,
        expires_at=rule.expires_at,
        unheeded_count=unheeded_count,
    )


def step_down(transaction: Transaction, user: str, rule: Rule, now: datetime) -> Rule:
    """Let a rule step down or expire if its time, weight or unheeded warnings ask for it."""
    unheeded_count = 0
    if rule.state in ("warns", "blocks"):
        # Warnings since the last report that were ignored and caused no complaint.
        since = rule.reported_at or rule.created_at
        query = ActionQuery(rule_id=rule.id, since=since, until=now - _WINDOW, limit=10)
        actions = transaction.actions(user, query)
        unheeded_count = sum(a.decision == "warn" and a.blame_count == 0 for a in actions)
    state, reason = ladder.settled(status_of(rule, now, unheeded_count), now)
    if state == rule.state:
        return rule
    kind: RuleEventKind = "expired" if state == "expired" else "stepped_down"
    return put(transaction, user, rule, RuleChange(kind, reason, now, state=state))


def step_up(
    transaction: Transaction, user: str, rule: Rule, case_count: int, now: datetime
) -> Rule:
    """Let a rule step up once if it has enough weight and a replay raises no alarm."""
    state, reason = ladder.stepped(status_of(rule, now), case_count)
    if state == rule.state:
        return rule
    # Only the actions since the last replay are new.
    result = replay(transaction, user, rule.trigger, rule.project, now, rule.replayed_through)
    rule = with_replay(rule, result, adds=True)
    if rule.alarm_count:
        return put(transaction, user, rule, RuleChange("held", "it fits harmless actions", now))
    return put(transaction, user, rule, RuleChange("stepped_up", reason, now, state=state))


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A change of a rule, its reason and its author."""

    kind: RuleEventKind
    reason: str
    at: datetime
    state: State | None = None
    actor: str = LEARNER
    report: FeedbackEvent | None = None
    # The number of the action that it is about.
    action: int | None = None
    # The rule before the change, if it is not the rule that is passed to `put`.
    before: Rule | None = None


def put(transaction: Transaction, user: str, rule: Rule, change: RuleChange) -> Rule:
    """Store a changed rule with its event; queue a memory for one that warns or blocks."""
    changed = replace(rule, state=change.state or rule.state, updated_at=change.at)
    report = change.report
    event = RuleEvent(
        rule_id=rule.id,
        at=change.at,
        kind=change.kind,
        reason=change.reason,
        actor=change.actor,
        session_key=report.session_key if report else None,
        action=change.action,
        feedback_id=report.id if report else None,
        before=change.before or rule,
    )
    transaction.put_rule(user, changed, event)
    transaction.count(user, f"rules.{change.kind}")
    # The timeline names a report by its id: a purge could not find its words here.
    why = {"reason": change.reason} if report is None else {"report": report.id}
    logged = Event(
        at=change.at,
        category="rules",
        name=f"rules.{change.kind}",
        session_key=event.session_key,
        details={"rule": rule.id, "state": changed.state, **why},
    )
    transaction.log_events(user, [logged])
    if changed.state in ("warns", "blocks") and changed.memory_id is None:
        transaction.put_job(user, RULE_JOB, rule.id, change.at)
    return changed
