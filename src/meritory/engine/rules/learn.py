"""Learn from reports: constraints for their session, and rules for the actions they are about.

Only a report that describes a recent action, and not merely follows it, is evidence of a mistake.
Every rule has an explicit trigger; each step up needs a replay without an alarm (`book.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from meritory.domain.errors import MeritoryError
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.job import Job
from meritory.domain.memory import UNTRUSTED_ORIGINS, Draft, Source
from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEventKind,
    SessionConstraint,
    State,
    Trigger,
)
from meritory.domain.session import Event
from meritory.engine.jobs.runner import Effect, no_effect
from meritory.engine.memories.write import write
from meritory.engine.rules import book
from meritory.engine.rules.book import RULE_TAG, RuleChange
from meritory.engine.services import Services
from meritory.engine.sessions.context import storable
from meritory.rank import ladder
from meritory.rank.feedback import WINDOW_S, Seen, attribute
from meritory.rank.ladder import ACTIVE, LIFE
from meritory.store.contract.store import Transaction
from meritory.text.commands import triggers
from meritory.text.commands.actions import read_action, recorded_tool_action, stems
from meritory.text.commands.prohibitions import (
    claim,
    forbids,
    lifted_kinds,
    ordered_constraints,
    stated_constraints,
)
from meritory.text.extract.attribution import sentences
from meritory.text.secrets import redact

RECENT_LIMIT_COUNT: Final = 80
_FORMER: Final[tuple[State, ...]] = ("expired", "retired")
# Far more events than a rule gets while an action can still be reported.
_EVENTS_LIMIT_COUNT: Final = 200
_QUOTED_CHARS_MIN: Final = 6
_FILE_CHARS_MIN: Final = 4


def learn_from(services: Services, report: FeedbackEvent) -> None:
    """Learn constraints and rules from a stored report."""
    if report.origin in UNTRUSTED_ORIGINS:
        # Text from an untrusted source must not block an agent.
        return
    try:
        learn_constraints(services, report)
        learn_rule(services, report)
    except MeritoryError as error:
        services.observer.failed("rules", error)


def learn_constraints(services: Services, report: FeedbackEvent) -> None:
    """Store the constraints that a report states, and lift those that it takes back.

    Each stated constraint is also proposed as a memory; a person can confirm it for all sessions.
    """
    text, key, user = "\n".join(report.texts.values()), report.session_key, report.user
    # Only a person may lift a person's constraint; an agent may add one for itself.
    lifted = lifted_kinds(text) if report.origin == "user" else ()
    stated = stated_constraints(text)
    if key is not None:
        constraints = [
            SessionConstraint(key, one.kind, one.argument, one.said, report.id, report.at)
            for one in stated
        ]
        _change_constraints(services, user, key, lifted, constraints)
    proposals = [
        Draft(
            content=claim(rule.kind, rule.argument),
            kind="constraint",
            user=user,
            agent=report.agent,
            project=report.project,
            provenance="assistant_derived",
            origin="agent",
            source=Source(session_key=key),
        )
        for rule in stated
    ]
    if proposals:
        write(services, user, proposals)


def learn_from_prompt(services: Services, user: str, key: str, prompt: str) -> None:
    """Store the constraints that the user types in a prompt, and lift those that it takes back.

    They hold for the session; extraction decides what is remembered beyond it.
    """
    own = [spoken for spoken in sentences(storable(prompt)) if not spoken.is_question]
    lifted = [kind for spoken in own for kind in lifted_kinds(spoken.bare)]
    now = services.world.now()
    stated = [
        SessionConstraint(key, one.kind, one.argument, redact(one.said), None, now)
        for spoken in own
        for one in ordered_constraints(spoken.text, spoken.bare)
    ]
    try:
        _change_constraints(services, user, key, lifted, stated)
    except MeritoryError as error:
        services.observer.failed("rules", error)


def _change_constraints(
    services: Services,
    user: str,
    key: str,
    lifted: Sequence[str],
    stated: Sequence[SessionConstraint],
) -> None:
    """Lift constraints of a session, then store those that are stated."""
    if not (lifted or stated):
        return

    def work(transaction: Transaction) -> None:
        transaction.lift_session_constraints(user, key, lifted, services.world.now())
        for constraint in stated:
            if transaction.put_session_constraint(user, constraint):
                transaction.count(user, "rules.constrained")
                # The timeline omits the words: a purge could not find them here.
                event = Event(
                    at=constraint.at,
                    category="rules",
                    name="rules.constrained",
                    session_key=key,
                    details={"kind": constraint.kind, "argument": constraint.argument},
                )
                transaction.log_events(user, [event])

    services.store.write(user, work)


def learn_rule(services: Services, report: FeedbackEvent) -> None:
    """Find the recent actions that a report is about, and change the rule for the likeliest."""
    # Tags do not count: the label of a report says nothing about what was done.
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
        for action in services.store.actions(report.user, query)
        if action.decision != "deny" and (is_anywhere or report.project == action.project)
    }
    text = "\n".join(report.texts.values())
    seen = []
    for number, action in actions.items():
        age_s, words = (report.at - action.at).total_seconds(), recorded_tool_action(action).words
        seen.append(Seen(number, age_s, action.risk, words, _is_named(action, report, text)))
    matches = attribute(stems(text), report.polarity, seen)
    if not matches:
        return
    links = [
        ActionReport(report.id, match.action, report.polarity, match.score, index == 0, report.at)
        for index, match in enumerate(matches)
    ]

    def work(transaction: Transaction) -> None:
        transaction.add_action_reports(report.user, links)
        if matches[0].is_evidence:
            learner = _RuleLearner(services, transaction, report, actions[matches[0].action])
            if report.polarity > 0:
                learner.weaken()
            else:
                learner.strengthen()

    services.store.write(report.user, work)


def _is_named(action: RecordedAction, report: FeedbackEvent, text: str) -> bool:
    """Return whether a report quotes the command, path or file name, or names the last action.

    One word is not a quote. The last action has the same tool and the same file.
    """
    argument = action.argument.strip()
    files = action.heads if action.tool in ("edit", "read") else ()
    if any("." in file and len(file) >= _FILE_CHARS_MIN and file in text for file in files):
        return True
    is_specific = len(argument) >= _QUOTED_CHARS_MIN and any(mark in argument for mark in " /.")
    if is_specific and argument in text:
        return True
    last = report.last_action or {}
    if not last.get("tool") or not last.get("file"):
        return False
    values = recorded_tool_action(action).values or (action.argument,)
    tool = read_action(last["tool"], {}).tool
    return tool == action.tool and any(value.endswith(last["file"]) for value in values)


class _RuleLearner:
    """The effect of a report about one action on the rules, inside a transaction."""

    def __init__(
        self,
        services: Services,
        transaction: Transaction,
        report: FeedbackEvent,
        action: RecordedAction,
    ) -> None:
        self._services, self._transaction = services, transaction
        self._report, self._user, self._now = report, report.user, report.at
        self._action, self._tool_action = action, recorded_tool_action(action)
        texts, words = report.texts.values(), self._tool_action.words
        self._text = "\n".join(texts)
        # The text that shares the most words with the action.
        quote = max(texts, key=lambda text: len(stems(text) & words), default="")
        self._quote = " ".join(quote.split())[: book.TEXT_LIMIT_CHARS]

    def weaken(self) -> None:
        """Lower the weight of a rule whose action was praised."""
        rule = self._fitting(self._transaction.rules(self._user, ACTIVE))
        if rule is None or self._is_counted(rule, ("praised",)):
            return
        weight = max(0.0, ladder.faded(rule.weight, rule.weighed_at, self._now) - 1.0)
        lower = replace(rule, weight=weight, weighed_at=max(self._now, rule.weighed_at))
        weaker = self._put_case("praised", rule, lower)
        book.step_down(self._transaction, self._user, weaker, self._now)

    def strengthen(self) -> None:
        """Count one more case of a mistake for its rule; propose a rule if there is none."""
        active = self._transaction.rules(self._user, ACTIVE)
        rule = self._fitting(active)
        if rule is None:
            # A rule that a person retired, or that expired, is found again.
            rule = self._fitting(self._transaction.rules(self._user, _FORMER))
        if rule is None:
            trigger = triggers.derive(self._tool_action, stems(self._text))
            if trigger is None:
                return
            rule = self._widen(active)
            if rule is None:
                self._propose(active, trigger)
                return
        # A person decided against a retired rule. Complaints about the same action count once.
        if rule.state == "retired" or self._is_counted(rule, ("proposed", "reported")):
            return
        report, now = self._report, self._now
        stronger = replace(
            rule,
            state="proposed" if rule.state == "expired" else rule.state,
            is_forbidden=rule.is_forbidden or forbids(self._text, self._tool_action.words),
            weight=ladder.faded(rule.weight, rule.weighed_at, now) + 1.0,
            weighed_at=max(now, rule.weighed_at),
            report_count=rule.report_count + 1,
            reported_at=now,
            expires_at=max(rule.expires_at, now + LIFE),
            memory_id=rule.memory_id or report.memory_id,
        )
        stronger = self._put_case("reported", rule, self._replayed(stronger))
        book.step_up(self._transaction, self._user, stronger, 0, now)

    def _same_tool(self, rules: Iterable[Rule]) -> list[Rule]:
        """Return the rules for the action's tool and project, the most specific first."""
        tool, projects = self._action.tool, (None, self._action.project)
        same = [rule for rule in rules if rule.tool == tool and rule.project in projects]
        return sorted(same, key=lambda rule: -len(rule.trigger.words))

    def _fitting(self, rules: Sequence[Rule]) -> Rule | None:
        """Return the most specific rule whose trigger fits the action."""
        same = self._same_tool(rules)
        return next((r for r in same if triggers.fits(r.trigger, self._tool_action)), None)

    def _is_counted(self, rule: Rule, kinds: Sequence[str]) -> bool:
        """Return whether an earlier report counted this action for or against a rule."""
        events = self._transaction.rule_events(self._user, rule.id, _EVENTS_LIMIT_COUNT)
        return any(event.action == self._action.number and event.kind in kinds for event in events)

    def _put_case(self, kind: RuleEventKind, before: Rule, rule: Rule) -> Rule:
        number, report, quote = self._action.number, self._report, self._quote
        change = RuleChange(kind, quote, self._now, report=report, action=number, before=before)
        return book.put(self._transaction, self._user, rule, change)

    def _replayed(self, rule: Rule) -> Rule:
        of = (self._user, rule.trigger, rule.project, self._now)
        return book.with_replay(rule, book.replay(self._transaction, *of))

    def _widen(self, active: Sequence[Rule]) -> Rule | None:
        """Drop arguments from the trigger of a rule for the same mistake, if that is safe."""
        for rule in self._same_tool(active):
            wider = triggers.widened(rule.trigger, self._tool_action)
            if wider is None or triggers.trigger_risk(wider) < rule.risk:
                continue
            result = book.replay(self._transaction, self._user, wider, rule.project, self._now)
            if not result.alarm_count:
                wide = book.with_replay(replace(rule, pattern=wider.pattern), result)
                reason = f"the same mistake without {rule.pattern}"
                change = RuleChange("widened", reason, self._now, report=self._report, before=rule)
                return book.put(self._transaction, self._user, wide, change)
        return None

    def _propose(self, active: Sequence[Rule], trigger: Trigger) -> None:
        """Propose a rule for a mistake that has none."""
        now = self._now
        if len(active) >= book.RULES_LIMIT_COUNT:
            # The oldest proposal makes room.
            oldest = min(active, key=lambda rule: (rule.state != "proposed", rule.updated_at))
            change = RuleChange("expired", "too many rules", now, state="expired")
            book.put(self._transaction, self._user, oldest, change)
        rule_id = self._services.world.new_id()
        rule = replace(
            book.new_rule(rule_id, trigger, self._action.project, self._quote, now),
            is_forbidden=forbids(self._text, self._tool_action.words),
            weight=1.0,
            report_count=1,
            memory_id=self._report.memory_id,
            reported_at=now,
        )
        change = RuleChange("proposed", "", now, report=self._report, action=self._action.number)
        book.put(self._transaction, self._user, self._replayed(rule), change)


def remember_rule(services: Services, job: Job) -> Effect:
    """Store a rule that warns or blocks as a memory, and return the effect that links both."""
    rule = services.store.rule(job.user, job.key)
    if rule.memory_id is not None or rule.state == "retired":
        return no_effect
    mind = "mind what was reported" if rule.report_count else "mind the user's rule"
    draft = Draft(
        content=f"Before {rule.tool} `{rule.pattern}`, {mind}: {rule.text}",
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
