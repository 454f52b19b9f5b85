"""The guard before tool calls: allow, warn or deny quickly, and allow if the guard itself fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from meritory.domain.memory import Scope
from meritory.domain.rule import (
    Decision,
    RecordedAction,
    Rule,
    RuleEvent,
    RuleEventKind,
    SessionConstraint,
)
from meritory.engine.rules.book import step_down, step_up
from meritory.engine.services import Services
from meritory.engine.sessions.context import storable
from meritory.rank.ladder import ACTIVE
from meritory.store.contract.store import Transaction
from meritory.text.commands.actions import ToolAction, kept_argument, read_action
from meritory.text.commands.prohibitions import is_ruled_out
from meritory.text.commands.triggers import fits
from meritory.text.render import harmless

GUARD: Final = "guard"
_DECISIONS: Final[dict[str, Decision]] = {"warns": "warn", "blocks": "deny"}
_ORDER: Final[tuple[Decision, ...]] = ("allow", "warn", "deny")
_ID_CHARS: Final = 12
_SAID_LIMIT_CHARS: Final = 300
_NAME_LIMIT_CHARS: Final = 200


@dataclass(frozen=True)
class ToolCall:
    """A tool that an agent is about to call."""

    session_key: str
    scope: Scope
    tool_name: str
    tool_input: Any
    harness: str | None = None
    request_id: str | None = None
    # Another hook of the same client reported this call a moment ago.
    is_echo: bool = False

    @cached_property
    def action(self) -> ToolAction:
        """The effect of the call."""
        return read_action(self.tool_name[:_NAME_LIMIT_CHARS], self.tool_input)


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The guard's decision about a call, and the rule or constraint behind it."""

    decision: Decision = "allow"
    reason: str = ""
    rule_id: str | None = None
    constraint: str | None = None
    # The number of the recorded action; None if nothing was recorded.
    action: int | None = None


def check(services: Services, call: ToolCall) -> GuardVerdict:
    """Decide whether a tool may be called, and record the call."""
    try:
        with services.observer.timed(GUARD):
            return _decide(services, call)
    except Exception as error:
        services.observer.failed(GUARD, error, call.request_id)
        return GuardVerdict()


def _decide(services: Services, call: ToolCall) -> GuardVerdict:
    action, user, now = call.action, call.scope.user, services.world.now()
    if not action.argument.strip():
        return GuardVerdict()
    store = services.store
    constraints = store.session_constraints(user, call.session_key)
    broken = (c for c in constraints if is_ruled_out(c.kind, c.argument, action))
    denial = next(map(_denial, broken), None)
    rules = [
        rule
        for rule in ([] if denial else store.rules(user, ACTIVE))
        if rule.tool == action.tool
        and rule.project in (None, call.scope.project)
        and fits(rule.trigger, action)
    ]
    if call.is_echo:
        return denial or _strictest([_verdict(rule) for rule in rules])

    # Outside the transaction: parsing a long command takes time.
    argument = storable(kept_argument(action.argument))
    record = RecordedAction(
        session_key=call.session_key,
        at=now,
        project=call.scope.project,
        harness=call.harness,
        tool=action.tool,
        tool_name=action.name,
        argument=argument,
        # Derived from the redacted argument, so that they contain no secret.
        heads=replace(action, argument=argument).heads,
        risk=action.risk,
        decision="allow",
    )

    def work(transaction: Transaction) -> GuardVerdict:
        verdicts = []
        for rule in rules:
            before = transaction.rule(user, rule.id)
            current = step_down(transaction, user, before, now)
            if current.state == before.state:
                # This call is one more case of the mistake.
                current = step_up(transaction, user, current, 1, now)
            verdicts.append(_verdict(current))
        verdict = denial or _strictest(verdicts)
        number = transaction.add_action(
            user, replace(record, decision=verdict.decision, rule_id=verdict.rule_id)
        )
        if verdict.decision != "allow":
            kind: RuleEventKind = "blocked" if verdict.decision == "deny" else "warned"
            transaction.count(user, f"guard.{kind}")
            if verdict.rule_id is not None:
                event = RuleEvent(
                    rule_id=verdict.rule_id,
                    at=now,
                    kind=kind,
                    reason="",
                    actor=GUARD,
                    session_key=call.session_key,
                    action=number,
                )
                transaction.add_rule_event(user, event)
        return replace(verdict, action=number)

    return store.write(call.scope.user, work)


def _denial(constraint: SessionConstraint) -> GuardVerdict:
    said = harmless(constraint.said)[:_SAID_LIMIT_CHARS]
    reason = (
        f'The user said in this session: "{said}". So this is not done here. If they have changed'
        f" their mind, they can run `meritory rules lift {harmless(constraint.session_key)}`."
    )
    return GuardVerdict("deny", reason, constraint=constraint.kind)


def _strictest(verdicts: list[GuardVerdict]) -> GuardVerdict:
    # A proposed rule that fits is recorded with the action, too.
    return max(
        verdicts,
        key=lambda verdict: (_ORDER.index(verdict.decision), verdict.rule_id is not None),
        default=GuardVerdict(),
    )


def _verdict(rule: Rule) -> GuardVerdict:
    decision = _DECISIONS.get(rule.state, "allow")
    if decision == "allow":
        return GuardVerdict(decision, rule_id=rule.id)
    said = harmless(rule.text)[:_SAID_LIMIT_CHARS].rstrip(".")
    name, trigger = rule.id[:_ID_CHARS], harmless(str(rule.trigger))
    # A rule without a report was made by a person.
    times = "once" if rule.report_count == 1 else f"{rule.report_count} times"
    reported = f"reported {times}; " if rule.report_count else ""
    cause = f'"{said}" ({reported}rule {name}, on `{trigger}`).'
    why = "this went wrong before" if rule.report_count else "the user made a rule about this"
    reason = f"[meritory: {why}: {cause} Make sure that it is wanted.]"
    if decision == "deny":
        source = "of reports" if rule.report_count else "of a rule that the user made"
        reason = (
            f"Meritory blocks this because {source}: {cause} Do not try to get around it. If the"
            f" user wants it all the same, they can run `meritory rules retire {name}`."
        )
    return GuardVerdict(decision, reason, rule.id)
