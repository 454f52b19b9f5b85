"""Learn rules from reports: find the action that a report is about, and propose or change a rule.

Only a report that describes a recent action, and not merely follows it, is evidence of a mistake.
Every rule has an explicit trigger; each step up needs a replay without an alarm (`status.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from meritory.domain.errors import MeritoryError
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.job import Job
from meritory.domain.memory import UNTRUSTED_ORIGINS, Draft
from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEventKind,
    SessionConstraint,
    State,
)
from meritory.engine.jobs.runner import Effect, Handler, no_effect
from meritory.engine.memories.write import write
from meritory.engine.rules import constraints
from meritory.engine.rules.status import RuleChange, put, replay, step_down, step_up, with_replay
from meritory.engine.services import Services
from meritory.rank import ladder
from meritory.rank.feedback import WINDOW_S, Match, Seen, attribute
from meritory.rank.ladder import ACTIVE, LIFE
from meritory.store.contract.store import Store, Transaction
from meritory.text.commands import triggers
from meritory.text.commands.actions import read_action, recorded_tool_action, stems
from meritory.text.commands.prohibitions import forbids

RULE_TAG: Final = "prevention-rule"
RULES_LIMIT_COUNT: Final = 200
TEXT_LIMIT_CHARS: Final = 300
RECENT_LIMIT_COUNT: Final = 80
_FORMER: Final[tuple[State, ...]] = ("expired", "retired")
# Far more events than a rule gets while an action can still be reported.
_EVENTS_LIMIT_COUNT: Final = 200
_QUOTED_CHARS_MIN: Final = 6
_FILE_CHARS_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class Attribution:
    """The recent actions that a report is about, the likeliest first."""

    matches: tuple[Match, ...] = ()
    primary: RecordedAction | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of learning from a report: its actions, the rule and the session constraints."""

    attribution: Attribution = field(default_factory=Attribution)
    rule: Rule | None = None
    constraints: tuple[SessionConstraint, ...] = ()


def learn_from(services: Services, report: FeedbackEvent) -> Learned:
    """Learn constraints and rules from a stored report."""
    if report.origin in UNTRUSTED_ORIGINS:
        # Text from an untrusted source must not block an agent.
        return Learned()
    try:
        stated = constraints.learn(services, report)
        attribution = find_actions(services.store, report)
        if not attribution.matches:
            return Learned(attribution, constraints=stated)
        learner = _Learner(services, report)
        rule = services.store.write(
            report.user, lambda transaction: learner.learn(transaction, attribution)
        )
        return Learned(attribution, rule, stated)
    except MeritoryError as error:
        services.observer.failed("rules", error)
        return Learned()


def find_actions(store: Store, report: FeedbackEvent) -> Attribution:
    """Return the recent actions that a report is about.

    Tags do not count: the label of a report says nothing about what was done.
    """
    query = ActionQuery(
        session_key=report.session_key,
        since=report.at - timedelta(seconds=WINDOW_S),
        # A report that is completed later is still about the actions before it.
        until=report.at + timedelta.resolution,
        limit=RECENT_LIMIT_COUNT,
    )
    is_anywhere = report.session_key is not None or report.project is None
    actions = {
        action.number: action
        for action in store.actions(report.user, query)
        if action.decision != "deny" and (is_anywhere or report.project == action.project)
    }
    text = "\n".join(report.texts.values())
    seen = [
        Seen(
            action.number,
            (report.at - action.at).total_seconds(),
            action.risk,
            recorded_tool_action(action).words,
            _is_quoted(action, text) or _is_last(action, report.last_action),
        )
        for action in actions.values()
    ]
    matches = tuple(attribute(stems(text), report.polarity, seen))
    return Attribution(matches, actions[matches[0].action] if matches else None)


def _is_quoted(action: RecordedAction, text: str) -> bool:
    """Return whether a text contains the command, path or file name; one word is not enough."""
    argument = action.argument.strip()
    files = action.heads if action.tool in ("edit", "read") else ()
    if any("." in file and len(file) >= _FILE_CHARS_MIN and file in text for file in files):
        return True
    is_specific = len(argument) >= _QUOTED_CHARS_MIN and any(mark in argument for mark in " /.")
    return is_specific and argument in text


def _is_last(action: RecordedAction, last: Mapping[str, str] | None) -> bool:
    """Return whether a report names this action as the last: the same tool on the same file."""
    if not last or not last.get("tool") or not last.get("file"):
        return False
    values = recorded_tool_action(action).values or (action.argument,)
    tool = read_action(last["tool"], {}).tool
    return tool == action.tool and any(value.endswith(last["file"]) for value in values)


class _Learner:
    """The effect of one report on the rules."""

    def __init__(self, services: Services, report: FeedbackEvent) -> None:
        self._services = services
        self._user = report.user
        self._report = report
        self._text = "\n".join(report.texts.values())

    def learn(self, transaction: Transaction, attribution: Attribution) -> Rule | None:
        """Link the report to its actions, and propose, strengthen or weaken a rule."""
        report, matches, action = self._report, attribution.matches, attribution.primary
        transaction.add_action_reports(
            self._user,
            [
                ActionReport(
                    report.id, match.action, report.polarity, match.score, index == 0, report.at
                )
                for index, match in enumerate(matches)
            ],
        )
        if action is None or not matches[0].is_evidence:
            return None
        if report.polarity > 0:
            return self._weaken(transaction, action)
        active = transaction.rules(self._user, ACTIVE)
        rule = _fitting(active, action)
        if rule is None:
            # A rule that a person retired, or that expired, is found again.
            rule = _fitting(transaction.rules(self._user, _FORMER), action)
        if rule is None:
            rule = self._widen(transaction, active, action)
        if rule is None:
            return self._propose(transaction, active, action)
        # Several complaints about the same action count once.
        if self._is_counted(transaction, rule, action, ("proposed", "reported")):
            return rule
        return self._strengthen(transaction, rule, action)

    def _is_counted(
        self,
        transaction: Transaction,
        rule: Rule,
        action: RecordedAction,
        kinds: Collection[str],
    ) -> bool:
        """Return whether an earlier report counted this action for or against a rule."""
        events = transaction.rule_events(self._user, rule.id, _EVENTS_LIMIT_COUNT)
        return any(event.action == action.number and event.kind in kinds for event in events)

    def _widen(
        self, transaction: Transaction, active: Sequence[Rule], action: RecordedAction
    ) -> Rule | None:
        """Drop arguments from the trigger of a rule for the same mistake, if that is safe."""
        tool_action, now = recorded_tool_action(action), self._report.at
        if triggers.derive(tool_action, stems(self._text)) is None:
            return None
        for rule in _same_tool(active, action):
            wider = triggers.widened(rule.trigger, tool_action)
            if wider is None or triggers.trigger_risk(wider) < rule.risk:
                continue
            result = replay(transaction, self._user, wider, rule.project, now)
            if result.is_clear:
                wide = with_replay(replace(rule, pattern=wider.pattern), result)
                reason = f"the same mistake without {rule.pattern}"
                change = RuleChange("widened", reason, now, report=self._report, before=rule)
                return put(transaction, self._user, wide, change)
        return None

    def _propose(
        self, transaction: Transaction, active: Sequence[Rule], action: RecordedAction
    ) -> Rule | None:
        """Propose a rule for a mistake that has none."""
        report, tool_action = self._report, recorded_tool_action(action)
        trigger = triggers.derive(tool_action, stems(self._text))
        if trigger is None:
            return None
        if len(active) >= RULES_LIMIT_COUNT:
            # The oldest proposal makes room.
            oldest = min(active, key=lambda rule: (rule.state != "proposed", rule.updated_at))
            change = RuleChange("expired", "too many rules", report.at, state="expired")
            put(transaction, self._user, oldest, change)
        rule = Rule(
            id=self._services.world.new_id(),
            project=action.project,
            tool=trigger.tool,
            pattern=trigger.pattern,
            text=self._quote(action),
            state="proposed",
            risk=triggers.trigger_risk(trigger),
            is_forbidden=forbids(self._text, tool_action.words),
            weight=1.0,
            weighed_at=report.at,
            report_count=1,
            created_at=report.at,
            updated_at=report.at,
            expires_at=report.at + LIFE,
            memory_id=report.memory_id,
            reported_at=report.at,
        )
        change = RuleChange("proposed", "", report.at, report=report, action=action.number)
        return put(transaction, self._user, self._replayed(transaction, rule), change)

    def _strengthen(self, transaction: Transaction, rule: Rule, action: RecordedAction) -> Rule:
        """Count one more case of a mistake that has a rule."""
        report = self._report
        if rule.state == "retired":
            # A person decided against this rule.
            return rule
        is_forbidden = forbids(self._text, recorded_tool_action(action).words)
        stronger = replace(
            rule,
            state="proposed" if rule.state == "expired" else rule.state,
            is_forbidden=rule.is_forbidden or is_forbidden,
            weight=ladder.faded(rule.weight, rule.weighed_at, report.at) + 1.0,
            weighed_at=max(report.at, rule.weighed_at),
            report_count=rule.report_count + 1,
            reported_at=report.at,
            expires_at=max(rule.expires_at, report.at + LIFE),
            memory_id=rule.memory_id or report.memory_id,
        )
        stronger = self._replayed(transaction, stronger)
        stronger = put(transaction, self._user, stronger, self._case("reported", rule, action))
        return step_up(transaction, self._user, stronger, 0, report.at)

    def _weaken(self, transaction: Transaction, action: RecordedAction) -> Rule | None:
        """Lower the weight of a rule whose action was praised."""
        rule, at = _fitting(transaction.rules(self._user, ACTIVE), action), self._report.at
        if rule is None or self._is_counted(transaction, rule, action, ("praised",)):
            return None
        weight = max(0.0, ladder.faded(rule.weight, rule.weighed_at, at) - 1.0)
        weaker = replace(rule, weight=weight, weighed_at=max(at, rule.weighed_at))
        weaker = put(transaction, self._user, weaker, self._case("praised", rule, action))
        return step_down(transaction, self._user, weaker, at)

    def _replayed(self, transaction: Transaction, rule: Rule) -> Rule:
        now = self._report.at
        return with_replay(rule, replay(transaction, self._user, rule.trigger, rule.project, now))

    def _case(self, kind: RuleEventKind, rule: Rule, action: RecordedAction) -> RuleChange:
        quote, report = self._quote(action), self._report
        return RuleChange(kind, quote, report.at, report=report, action=action.number, before=rule)

    def _quote(self, action: RecordedAction) -> str:
        """Return the text of the report that shares the most words with the action."""
        words = recorded_tool_action(action).words
        texts = self._report.texts.values()
        best = max(texts, key=lambda text: len(stems(text) & words), default="")
        return " ".join(best.split())[:TEXT_LIMIT_CHARS]


def _same_tool(rules: Iterable[Rule], action: RecordedAction) -> list[Rule]:
    """Return the rules for an action's tool and project, the most specific first."""
    same = [
        rule
        for rule in rules
        if rule.tool == action.tool and rule.project in (None, action.project)
    ]
    return sorted(same, key=lambda rule: -len(rule.trigger.words))


def _fitting(rules: Iterable[Rule], action: RecordedAction) -> Rule | None:
    """Return the most specific rule whose trigger fits an action."""
    tool_action = recorded_tool_action(action)
    fitting = (r for r in _same_tool(rules, action) if triggers.fits(r.trigger, tool_action))
    return next(fitting, None)


def handler(services: Services) -> Handler:
    """Return the job that stores a rule that warns or blocks as a memory."""
    return (("remember", lambda job: _remember(services, job)),)


def _remember(services: Services, job: Job) -> Effect:
    rule = services.store.rule(job.user, job.key)
    if rule.memory_id is not None:
        return no_effect
    draft = Draft(
        content=f"Before {rule.tool} `{rule.pattern}`, mind what was reported: {rule.text}",
        kind="lesson",
        user=job.user,
        project=rule.project,
        provenance="assistant_derived",
        origin="agent",
        tags=(RULE_TAG,),
    )
    memory = write(replace(services, user=job.user), job.user, [draft])[0].memory
    if memory is None:
        return no_effect
    memory_id = memory.id

    def effect(transaction: Transaction) -> None:
        current = transaction.rule(job.user, rule.id)
        transaction.put_rule(job.user, replace(current, memory_id=memory_id))

    return effect
