"""The rule book: the state of rules, its changes, and the commands that list and change rules.

A rule steps up when it has enough weight and a replay raises no alarm, and it steps down when its
time is over or its warnings are ignored. A replay tries a rule's trigger on actions that caused no
complaint. A rule whose trigger fits one of them would raise false alarms, so it must not step up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from meritory.domain.errors import Conflict
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.memory import Scope
from meritory.domain.rule import ActionQuery, Rule, RuleEvent, RuleEventKind, State, Trigger
from meritory.domain.session import Event
from meritory.engine.jobs.runner import RULE_JOB
from meritory.engine.memories.purge import forget
from meritory.engine.memories.undo import last_change
from meritory.engine.memories.undo import undo as undo_change
from meritory.engine.services import Services
from meritory.rank import ladder
from meritory.rank.feedback import WINDOW_S
from meritory.rank.ladder import ACTIVE, APPROVED_LIFE, LIFE, STATES, RuleStatus
from meritory.store.contract.store import Transaction
from meritory.store.sql.rules import SqlRuleReads
from meritory.text.commands import triggers
from meritory.text.commands.actions import recorded_tool_action
from meritory.text.commands.triggers import parse_trigger, trigger_risk
from meritory.text.normalize import check_text
from meritory.text.secrets import redact

LEARNER: Final = "reports"
RULE_TAG: Final = "prevention-rule"
_LESSON_RETIRED: Final = "its rule was retired"
RULES_LIMIT_COUNT: Final = 200
TEXT_LIMIT_CHARS: Final = 300
HISTORY_LIMIT_COUNT: Final = 50
# Older actions say little about which ones are harmless now.
REPLAY_DAYS: Final = 30
REPLAY_LIMIT: Final = 1_000
_EXAMPLE_LIMIT_COUNT: Final = 5
_WINDOW: Final = timedelta(seconds=WINDOW_S)
# Changes that can be undone: all but the events of the guard.
_CHANGES: Final = (
    *("proposed", "reported", "widened", "stepped_up", "stepped_down", "expired"),
    *("approved", "retired", "praised"),
)


@dataclass(frozen=True, slots=True)
class Replay:
    """How many harmless actions a trigger was tried on, and how many of them it fits."""

    tried_count: int
    alarm_count: int
    through: int
    examples: tuple[str, ...] = ()


def replay(
    reads: SqlRuleReads,
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


def new_rule(rule_id: str, trigger: Trigger, project: str | None, text: str, now: datetime) -> Rule:
    """Return a proposed rule without weight."""
    return Rule(
        id=rule_id,
        project=project,
        tool=trigger.tool,
        pattern=trigger.pattern,
        text=text,
        state="proposed",
        risk=trigger_risk(trigger),
        is_forbidden=False,
        weight=0.0,
        weighed_at=now,
        report_count=0,
        created_at=now,
        updated_at=now,
        expires_at=now + LIFE,
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


# -- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule with its current weight and state."""

    rule: Rule
    weight: float
    reach: State
    events: tuple[RuleEvent, ...] = ()


def listing(services: Services, scope: Scope, *, every: bool = False) -> list[RuleView]:
    """Return the rules of a scope, blocking ones first; with `every` also the former ones."""
    now = services.world.now()
    views = [
        _view(rule, now)
        for rule in services.store.rules(scope.user, STATES if every else ACTIVE)
        if rule.project in (None, scope.project) or scope.project is None
    ]
    views = [view for view in views if every or view.rule.state in ACTIVE]
    order = ("blocks", "warns", "proposed", "expired", "retired")
    return sorted(views, key=lambda view: (order.index(view.rule.state), -view.weight))


def show(services: Services, user: str, name: str) -> RuleView:
    """Return one rule with its events."""
    view = _view(services.store.rule(user, name), services.world.now())
    events = services.store.rule_events(user, view.rule.id, HISTORY_LIMIT_COUNT)
    return replace(view, events=tuple(events))


def _view(rule: Rule, now: datetime) -> RuleView:
    status = status_of(rule, now)
    state, _ = ladder.settled(status, now)
    return RuleView(replace(rule, state=state), status.weight, status.reach)


def propose(services: Services, scope: Scope, trigger: str, why: str) -> Rule:
    """Propose a rule; it has no effect until it is approved."""
    check_text(why, what="the reason", max_chars=TEXT_LIMIT_CHARS)
    parsed, now = parse_trigger(trigger), services.world.now()
    rule = new_rule(services.world.new_id(), parsed, scope.project, redact(why), now)
    rule = replace(rule, is_forbidden=True, expires_at=now + APPROVED_LIFE)

    def work(transaction: Transaction) -> Rule:
        active = transaction.rules(scope.user, ACTIVE)
        if len(active) >= RULES_LIMIT_COUNT:
            raise Conflict("too many rules", hint="retire one with `meritory rules retire ID`")
        for other in active:
            if (other.trigger, other.project) == (rule.trigger, rule.project):
                raise Conflict(f"rule {other.id} already has this trigger")
        result = replay(transaction, scope.user, parsed, scope.project, now)
        change = RuleChange("proposed", "", now, actor=services.actor)
        return put(transaction, scope.user, with_replay(rule, result), change)

    return services.store.write(scope.user, work)


def approve(services: Services, user: str, name: str) -> Rule:
    """Let a rule step up, from proposed to warns to blocks, if a replay raises no alarm."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        before = _view(transaction.rule(user, name), now).rule
        above = ladder.above("proposed" if before.state in ("expired", "retired") else before.state)
        if above is None:
            raise Conflict(f"rule {before.id} already blocks")
        result = replay(transaction, user, before.trigger, before.project, now)
        if result.alarm_count:
            raise Conflict(
                f"its trigger fits {result.alarm_count} harmless actions, such as "
                f"`{result.examples[0]}`",
                hint="propose a more specific rule, and retire this one",
            )
        rule = with_replay(replace(before, is_approved=True), result)
        rule = replace(rule, expires_at=max(rule.expires_at, now + APPROVED_LIFE), held_count=-1)
        change = RuleChange("approved", "", now, above, services.actor, before=before)
        return put(transaction, user, rule, change)

    return _with_lesson(services, user, services.store.write(user, work))


def retire(services: Services, user: str, name: str, why: str = "") -> Rule:
    """Retire a rule; only `undo` and `approve` bring it back, later reports do not."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        rule = transaction.rule(user, name)
        if rule.state == "retired":
            raise Conflict(f"rule {rule.id} is already retired")
        reason = redact(why)[:TEXT_LIMIT_CHARS]
        change = RuleChange("retired", reason, now, "retired", services.actor)
        return put(transaction, user, rule, change)

    return _with_lesson(services, user, services.store.write(user, work))


def undo(services: Services, user: str, name: str) -> Rule:
    """Undo the last change of a rule; it does not step up again before the next report."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        rule = transaction.rule(user, name)
        events = transaction.rule_events(user, rule.id, HISTORY_LIMIT_COUNT)
        changes = (event for event in events if event.kind in _CHANGES and not event.is_undone)
        last = next(changes, None)
        if last is None or last.before is None:
            raise Conflict(f"rule {rule.id} has no change to undo")
        transaction.mark_rule_event_undone(user, last.number)
        former = replace(last.before, memory_id=rule.memory_id)
        if last.kind == "proposed":
            former = replace(former, state="retired")
        is_lower = last.kind in ("stepped_up", "approved", "reported")
        held = replace(former, held_count=former.report_count) if is_lower else former
        change = RuleChange("undone", last.kind, now, actor=services.actor)
        return put(transaction, user, held, change)

    return _with_lesson(services, user, services.store.write(user, work))


def _with_lesson(services: Services, user: str, rule: Rule) -> Rule:
    """Forget the lesson that was stored for a retired rule, and restore it with the rule.

    A report's own lesson remains: the mistake was made all the same.
    """
    lesson = services.store.get(user, rule.memory_id) if rule.memory_id else None
    if lesson is None or RULE_TAG not in lesson.tags:
        return rule
    if rule.state == "retired":
        forget(services, lesson, _LESSON_RETIRED)
    elif lesson.deleted_at is not None:
        last = last_change(services.store.history(user, lesson.id))
        if (last.action, last.why) == ("delete", _LESSON_RETIRED):
            undo_change(services, lesson)
    return rule


def try_out(services: Services, scope: Scope, name: str) -> tuple[Rule | None, Replay]:
    """Replay a rule, or a trigger given as text, on harmless actions."""
    now = services.world.now()
    if ":" in name:
        return None, replay(services.store, scope.user, parse_trigger(name), scope.project, now)
    rule = services.store.rule(scope.user, name)
    return rule, replay(services.store, scope.user, rule.trigger, rule.project, now)


def lift(services: Services, user: str, session_key: str, kind: str | None = None) -> int:
    """Lift the constraints of a session: all, or those of one kind."""
    constraints = services.store.session_constraints(user, session_key)
    kinds = {constraint.kind for constraint in constraints if kind in (None, constraint.kind)}
    now = services.world.now()
    return services.store.write(
        user, lambda writing: writing.lift_session_constraints(user, session_key, kinds, now)
    )
