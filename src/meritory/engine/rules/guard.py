"""The guard before tools: allow, warn or deny, quickly, and allow whenever something is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from meritory.domain.memory import Scope
from meritory.domain.rule import Decision, Rule, RuleEvent, SessionConstraint
from meritory.engine.rules.actions import ToolCall, recorded
from meritory.engine.rules.learn import settled, stepped
from meritory.engine.services import Services
from meritory.rank.ladder import ACTIVE
from meritory.store.contract.store import Transaction
from meritory.text.commands.actions import ToolAction
from meritory.text.commands.prohibitions import is_ruled_out
from meritory.text.commands.triggers import fits
from meritory.text.render import harmless

GUARD: Final = "guard"
_DECISIONS: Final[dict[str, Decision]] = {"warns": "warn", "blocks": "deny"}
_ORDER: Final[tuple[Decision, ...]] = ("allow", "warn", "deny")
_ID_CHARS: Final = 12
_SAID_LIMIT_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """What the guard says to a call, and because of what."""

    decision: Decision = "allow"
    reason: str = ""
    rule_id: str | None = None
    constraint: str | None = None
    # The number of the action that was recorded, None when nothing was.
    action: int | None = None


def check(services: Services, call: ToolCall) -> GuardVerdict:
    """Says whether a tool may be called, and records the call.

    The guard's own doings are kept with the rules. They are no reports.
    """
    try:
        with services.observer.timed(GUARD):
            return _checked(services, call)
    except Exception as error:
        services.observer.failed(GUARD, error, call.request_id)
        return GuardVerdict()


def _checked(services: Services, call: ToolCall) -> GuardVerdict:
    action, user, now = call.action, call.scope.user, services.world.now()
    if not action.argument.strip():
        return GuardVerdict()
    store = services.store
    held = store.session_constraints(user, call.session_key)
    broken = next((one for one in held if is_ruled_out(one.kind, one.argument, action)), None)
    rules = [] if broken else _fitting(store.rules(user, ACTIVE), call.scope, action)

    if call.is_echo:
        said = [_said(rule) for rule in rules]
        return _constrained(broken) if broken else max(said, key=_weight, default=GuardVerdict())

    # Before the store is held: reading a long command takes its time.
    row = recorded(call, now)

    def work(transaction: Transaction) -> GuardVerdict:
        if broken is not None:
            verdict = _constrained(broken)
        else:
            verdicts = [_ruled(transaction, user, rule, now) for rule in rules]
            verdict = max(verdicts, key=_weight, default=GuardVerdict())
        done = replace(row, decision=verdict.decision, rule_id=verdict.rule_id)
        number = transaction.add_action(user, done)
        if verdict.decision != "allow":
            _note(transaction, call, verdict, number, now)
        return GuardVerdict(
            verdict.decision, verdict.reason, verdict.rule_id, verdict.constraint, number
        )

    return store.write(work)


def _weight(verdict: GuardVerdict) -> tuple[int, bool]:
    # A proposal that fits is noted with the action, too.
    return _ORDER.index(verdict.decision), verdict.rule_id is not None


def _fitting(rules: list[Rule], scope: Scope, action: ToolAction) -> list[Rule]:
    return [
        rule
        for rule in rules
        if rule.tool == action.tool
        and rule.project in (None, scope.project)
        and fits(rule.trigger, action)
    ]


def _ruled(transaction: Transaction, user: str, known: Rule, now: datetime) -> GuardVerdict:
    """What one rule says; the call at hand counts as one more case of the mistake."""
    before = transaction.rule(user, known.id)
    rule = settled(transaction, user, before, now)
    if rule.state == before.state:
        rule = stepped(transaction, user, rule, 1, now)
    return _said(rule)


def _said(rule: Rule) -> GuardVerdict:
    decision = _DECISIONS.get(rule.state, "allow")
    return GuardVerdict(decision, _reason(rule, decision) if decision != "allow" else "", rule.id)


def _reason(rule: Rule, decision: Decision) -> str:
    said = harmless(rule.text)[:_SAID_LIMIT_CHARS].rstrip(".")
    times = "once" if rule.report_count == 1 else f"{rule.report_count} times"
    name = rule.id[:_ID_CHARS]
    told = f'"{said}" (reported {times}; rule {name}, on `{harmless(str(rule.trigger))}`).'
    if decision == "warn":
        return f"[meritory: this went wrong before: {told} Make sure that it is wanted.]"
    return (
        f"Meritory blocks this because of reports: {told} Do not try to get around it. If the user"
        f" wants it all the same, they can run `meritory rules retire {name}`."
    )


def _constrained(broken: SessionConstraint) -> GuardVerdict:
    said = harmless(broken.said)[:_SAID_LIMIT_CHARS]
    reason = (
        f'The user said in this session: "{said}". So this is not done here. If they have changed'
        f" their mind, they can run `meritory rules lift {harmless(broken.session_key)}`."
    )
    return GuardVerdict("deny", reason, constraint=broken.kind)


def _note(
    transaction: Transaction, call: ToolCall, verdict: GuardVerdict, number: int, now: datetime
) -> None:
    user = call.scope.user
    kind = "blocked" if verdict.decision == "deny" else "warned"
    transaction.count(user, f"guard.{kind}")
    if verdict.rule_id is None:
        return
    transaction.add_rule_event(
        user,
        RuleEvent(
            rule_id=verdict.rule_id,
            at=now,
            kind="blocked" if verdict.decision == "deny" else "warned",
            reason="",
            actor=GUARD,
            session_key=call.session_key,
            action=number,
        ),
    )
