"""Rules that come of reports: proposed, strengthened, widened, and where they stand.

A report that speaks of a recent action, not only stands near it, is a case of a mistake. The rule
it makes or strengthens has an explicit trigger; each step up needs a replay without an alarm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from meritory.domain.errors import MeritoryError
from meritory.domain.feedback import EventFacts
from meritory.domain.job import Job
from meritory.domain.memory import UNTRUSTED_ORIGINS, Draft, Scope
from meritory.domain.rule import (
    ActionQuery,
    RecordedAction,
    Rule,
    RuleEvent,
    RuleEventKind,
    SessionConstraint,
    State,
)
from meritory.domain.session import Event
from meritory.engine.jobs.runner import Effect, Handler, no_effect
from meritory.engine.memories.write import write
from meritory.engine.rules import constraints
from meritory.engine.rules.actions import Attribution, attributed
from meritory.engine.rules.replay import WINDOW, RuleTrial, replay, tried
from meritory.engine.services import Services
from meritory.rank import ladder
from meritory.rank.ladder import ACTIVE, LIFE, RuleStatus
from meritory.store.contract.rules import RuleReads
from meritory.store.contract.store import Transaction
from meritory.text.commands import triggers
from meritory.text.commands.actions import recorded_tool_action, stems
from meritory.text.commands.prohibitions import forbids

RULE_JOB: Final = "remember-rule"
LEARNER: Final = "reports"
RULE_TAG: Final = "prevention-rule"
RULES_LIMIT_COUNT: Final = 200
TEXT_LIMIT_CHARS: Final = 300
_FORMER: Final[tuple[State, ...]] = ("expired", "retired")
# Of a rule: far more than happens to one while an action can still be reported on.
_EVENTS_LIMIT_COUNT: Final = 200


@dataclass(frozen=True, slots=True)
class Learned:
    """What came of a report: what it is about, the rule, and what the session must keep to."""

    attribution: Attribution = field(default_factory=Attribution)
    rule: Rule | None = None
    constraints: tuple[SessionConstraint, ...] = ()


def learn_from(services: Services, scope: Scope, facts: EventFacts) -> Learned:
    """Learns from a report that is stored already; whatever fails here does not fail the report."""
    if facts.origin in UNTRUSTED_ORIGINS:
        # What was read somewhere must not keep an agent from its work.
        return Learned()
    try:
        stated = constraints.learn(services, scope, facts)
        found = attributed(services.store, scope, facts)
        if not found.matches:
            return Learned(found, constraints=stated)
        learner = _Learner(services, scope, facts)
        rule = services.store.write(lambda transaction: learner.learn(transaction, found))
        return Learned(found, rule, stated)
    except MeritoryError as error:
        services.observer.failed("rules", error)
        return Learned()


# -- where a rule stands --------------------------------------------------------------------


def standing_of(rule: Rule, now: datetime, unheeded_count: int = 0) -> RuleStatus:
    """All that decides where a rule stands."""
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


def unheeded_count(reads: RuleReads, user: str, rule: Rule, now: datetime) -> int:
    """Warnings since the last report after which nobody complained, old enough to be sure."""
    if rule.state not in ("warns", "blocks"):
        return 0
    since = rule.reported_at or rule.created_at
    query = ActionQuery(rule_id=rule.id, since=since, until=now - WINDOW, limit=10)
    found = reads.actions(user, query)
    return sum(one.decision == "warn" and one.blame_count == 0 for one in found)


def settled(transaction: Transaction, user: str, rule: Rule, now: datetime) -> Rule:
    """A rule that has come down by itself since it was last looked at, if it has."""
    standing = standing_of(rule, now, unheeded_count(transaction, user, rule, now))
    state, reason = ladder.settled(standing, now)
    if state == rule.state:
        return rule
    kind: RuleEventKind = "expired" if state == "expired" else "stepped_down"
    return put(transaction, user, rule, RuleChange(kind, reason, now, state=state))


def stepped(
    transaction: Transaction, user: str, rule: Rule, case_count: int, now: datetime
) -> Rule:
    """A rule after new cases: one step up when it weighs enough and no replay says otherwise."""
    state, reason = ladder.stepped(standing_of(rule, now), case_count)
    if state == rule.state:
        return rule
    # What was done since the last replay counts too.
    trial = RuleTrial(user, rule.trigger, rule.project, now)
    rule = tried(rule, replay(transaction, trial, rule.replayed_through), anew=False)
    if rule.alarm_count:
        return put(transaction, user, rule, RuleChange("held", "it fits harmless actions", now))
    return put(transaction, user, rule, RuleChange("stepped_up", reason, now, state=state))


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What happens to a rule, why, and by whom."""

    kind: RuleEventKind
    reason: str
    at: datetime
    state: State | None = None
    actor: str = LEARNER
    facts: EventFacts | None = None
    # The number of the action that it is about.
    action: int | None = None
    # The rule as it was, where that is not what is handed over.
    before: Rule | None = None


def put(transaction: Transaction, user: str, rule: Rule, change: RuleChange) -> Rule:
    """Keeps a changed rule, with what happened; one that warns or blocks is remembered too."""
    kept = replace(rule, state=change.state or rule.state, updated_at=change.at)
    facts = change.facts
    event = RuleEvent(
        rule_id=rule.id,
        at=change.at,
        kind=change.kind,
        reason=change.reason,
        actor=change.actor,
        session_key=facts.session_key if facts else None,
        action=change.action,
        feedback_id=facts.event_id if facts else None,
        before=change.before or rule,
    )
    transaction.put_rule(user, kept, event)
    transaction.count(user, f"rules.{change.kind}")
    # A report's own words are told by its id alone: a purge could not find them here.
    why = {"reason": change.reason} if facts is None else {"report": facts.event_id}
    details = {"rule": rule.id, "state": kept.state, **why}
    told = Event(
        at=change.at,
        category="rules",
        name=f"rules.{change.kind}",
        session_key=event.session_key,
        details=details,
    )
    transaction.log_events(user, [told])
    if kept.state in ("warns", "blocks") and kept.memory_id is None:
        transaction.put_job(user, RULE_JOB, rule.id, change.at)
    return kept


# -- learning -------------------------------------------------------------------------------


class _Learner:
    """What one report does to the rules."""

    def __init__(self, services: Services, scope: Scope, facts: EventFacts) -> None:
        self._services = services
        self._user = scope.user
        self._facts = facts
        self._text = "\n".join(facts.texts)

    def learn(self, transaction: Transaction, found: Attribution) -> Rule | None:
        """Links the report to its actions and has the rules follow."""
        transaction.add_action_reports(self._user, found.reports(self._facts))
        action = found.primary
        if action is None or not found.is_evidence:
            return None
        if self._facts.polarity > 0:
            return self._praised(transaction, action)
        active = transaction.rules(self._user, ACTIVE)
        rule = _fitting(active, action)
        if rule is None:
            # What somebody ended, or what ended by itself, is known again.
            rule = _fitting(transaction.rules(self._user, _FORMER), action)
        if rule is None:
            rule = self._widened(transaction, active, action)
        if rule is None:
            return self._proposed(transaction, active, action)
        # Several complaints about one and the same action are one case.
        is_counted = self._is_counted(transaction, rule, action, ("proposed", "reported"))
        return rule if is_counted else self._reported(transaction, rule, action)

    def _is_counted(
        self,
        transaction: Transaction,
        rule: Rule,
        action: RecordedAction,
        kinds: Collection[str],
    ) -> bool:
        """Whether an action was held for or against a rule before, by a report that spoke of it."""
        events = transaction.rule_events(self._user, rule.id, _EVENTS_LIMIT_COUNT)
        return any(one.action == action.number and one.kind in kinds for one in events)

    def _widened(
        self, transaction: Transaction, active: Sequence[Rule], action: RecordedAction
    ) -> Rule | None:
        """A rule for the same mistake on other arguments, if it can do without them."""
        done, now = recorded_tool_action(action), self._facts.at
        if triggers.derive(done, stems(self._text)) is None:
            return None
        for rule in _about(active, action):
            wider = triggers.widened(rule.trigger, done)
            if wider is None or triggers.trigger_risk(wider) < rule.risk:
                continue
            found = replay(transaction, RuleTrial(self._user, wider, rule.project, now))
            if found.is_clear:
                wide = tried(replace(rule, pattern=wider.pattern), found, anew=True)
                reason = f"the same mistake without {rule.pattern}"
                change = RuleChange("widened", reason, now, facts=self._facts, before=rule)
                return put(transaction, self._user, wide, change)
        return None

    def _proposed(
        self, transaction: Transaction, active: Sequence[Rule], action: RecordedAction
    ) -> Rule | None:
        facts, done = self._facts, recorded_tool_action(action)
        trigger = triggers.derive(done, stems(self._text))
        if trigger is None:
            return None
        self._make_room(transaction, active)
        rule = Rule(
            id=self._services.world.new_id(),
            project=action.project,
            tool=trigger.tool,
            pattern=trigger.pattern,
            text=self._told(action),
            state="proposed",
            risk=triggers.trigger_risk(trigger),
            is_forbidden=forbids(self._text, done.words),
            weight=1.0,
            weighed_at=facts.at,
            report_count=1,
            created_at=facts.at,
            updated_at=facts.at,
            expires_at=facts.at + LIFE,
            memory_id=facts.memory_id,
            reported_at=facts.at,
        )
        rule = self._tried(transaction, rule)
        change = RuleChange("proposed", "", facts.at, facts=facts, action=action.number)
        return put(transaction, self._user, rule, change)

    def _reported(self, transaction: Transaction, rule: Rule, action: RecordedAction) -> Rule:
        """One more case of a mistake that has a rule."""
        facts = self._facts
        if rule.state == "retired":
            # Somebody decided that it shall be none.
            return rule
        more = replace(
            rule,
            state="proposed" if rule.state == "expired" else rule.state,
            is_forbidden=rule.is_forbidden
            or forbids(self._text, recorded_tool_action(action).words),
            weight=ladder.faded(rule.weight, rule.weighed_at, facts.at) + 1.0,
            weighed_at=max(facts.at, rule.weighed_at),
            report_count=rule.report_count + 1,
            reported_at=facts.at,
            expires_at=max(rule.expires_at, facts.at + LIFE),
            memory_id=rule.memory_id or facts.memory_id,
        )
        more = self._tried(transaction, more)
        change = self._case("reported", rule, action)
        more = put(transaction, self._user, more, change)
        return stepped(transaction, self._user, more, 0, facts.at)

    def _praised(self, transaction: Transaction, action: RecordedAction) -> Rule | None:
        """Something that a rule is about was right for once: the rule weighs less."""
        rule, facts = _fitting(transaction.rules(self._user, ACTIVE), action), self._facts
        if rule is None or self._is_counted(transaction, rule, action, ("praised",)):
            return None
        weight = max(0.0, ladder.faded(rule.weight, rule.weighed_at, facts.at) - 1.0)
        less = replace(rule, weight=weight, weighed_at=max(facts.at, rule.weighed_at))
        change = self._case("praised", rule, action)
        return settled(
            transaction, self._user, put(transaction, self._user, less, change), facts.at
        )

    def _tried(self, transaction: Transaction, rule: Rule) -> Rule:
        trial = RuleTrial(self._user, rule.trigger, rule.project, self._facts.at)
        return tried(rule, replay(transaction, trial), anew=True)

    def _case(self, kind: RuleEventKind, rule: Rule, action: RecordedAction) -> RuleChange:
        """What a report says for or against a rule, as it was before."""
        told, facts = self._told(action), self._facts
        return RuleChange(kind, told, facts.at, facts=facts, action=action.number, before=rule)

    def _told(self, action: RecordedAction) -> str:
        """The text of the report that says the most about the action."""
        words = recorded_tool_action(action).words
        best = max(self._facts.texts, key=lambda text: len(stems(text) & words), default="")
        return " ".join(best.split())[:TEXT_LIMIT_CHARS]

    def _make_room(self, transaction: Transaction, active: Sequence[Rule]) -> None:
        """A proposal that nobody confirmed gives way before there are too many rules."""
        if len(active) < RULES_LIMIT_COUNT:
            return
        oldest = min(active, key=lambda rule: (rule.state != "proposed", rule.updated_at))
        change = RuleChange("expired", "too many rules", self._facts.at, state="expired")
        put(transaction, self._user, oldest, change)


def _about(rules: Iterable[Rule], action: RecordedAction) -> list[Rule]:
    """The rules for an action's tool and project, those that say the most first."""
    found = [
        rule
        for rule in rules
        if rule.tool == action.tool and rule.project in (None, action.project)
    ]
    return sorted(found, key=lambda rule: -len(rule.trigger.words))


def _fitting(rules: Iterable[Rule], action: RecordedAction) -> Rule | None:
    done = recorded_tool_action(action)
    found = (rule for rule in _about(rules, action) if triggers.fits(rule.trigger, done))
    return next(found, None)


# -- rules as memories ----------------------------------------------------------------------


def handler(services: Services) -> Handler:
    """The job that remembers a rule which warns or blocks."""
    return (("remember", lambda job: _remember(services, job)),)


def _remember(services: Services, job: Job) -> Effect:
    rule = services.store.rule(job.user, job.key)
    if rule.memory_id is not None:
        return no_effect
    draft = Draft(
        content=memory_text(rule),
        kind="lesson",
        user=job.user,
        project=rule.project,
        provenance="assistant_derived",
        origin="agent",
        tags=(RULE_TAG,),
    )
    memory = write(replace(services, user=job.user), [draft])[0].memory
    if memory is None:
        return no_effect
    memory_id = memory.id

    def effect(transaction: Transaction) -> None:
        current = transaction.rule(job.user, rule.id)
        transaction.put_rule(job.user, replace(current, memory_id=memory_id))

    return effect


def memory_text(rule: Rule) -> str:
    """A rule as a claim that an agent can read."""
    return f"Before {rule.tool} `{rule.pattern}`, mind what was reported: {rule.text}"
