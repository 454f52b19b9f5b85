"""What people do with rules: read, propose, approve, retire, take a step back, try."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from meritory.domain.errors import Conflict
from meritory.domain.memory import Scope
from meritory.domain.rule import Rule, RuleEvent, State
from meritory.engine.rules.learn import (
    RULES_LIMIT_COUNT,
    TEXT_LIMIT_CHARS,
    RuleChange,
    put,
    standing_of,
)
from meritory.engine.rules.replay import Replay, RuleTrial, replay, tried
from meritory.engine.services import Services
from meritory.rank import ladder
from meritory.rank.ladder import ACTIVE, APPROVED_LIFE, STATES
from meritory.store.contract.store import Transaction
from meritory.text.commands.triggers import parse_trigger, trigger_risk
from meritory.text.normalize import check_text
from meritory.text.secrets import redact

HISTORY_LIMIT_COUNT: Final = 50
# What can be taken back: everything but what the guard notes about its own work.
_CHANGES: Final = (
    *("proposed", "reported", "widened", "stepped_up", "stepped_down", "expired"),
    *("approved", "retired", "praised"),
)


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule as it is now: its weight has faded, and its time may be over."""

    rule: Rule
    weight: float
    reach: State
    events: tuple[RuleEvent, ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether its latest replay raised no alarm."""
        return self.rule.replay_count > 0 and self.rule.alarm_count == 0


def listing(services: Services, scope: Scope, *, every: bool = False) -> list[RuleView]:
    """The rules that a scope is under, those that block first; with `every` also the former."""
    now = services.world.now()
    states = STATES if every else ACTIVE
    found = [
        _view(rule, now)
        for rule in services.store.rules(scope.user, states)
        if rule.project in (None, scope.project) or scope.project is None
    ]
    kept = [view for view in found if every or view.rule.state in ACTIVE]
    order = ("blocks", "warns", "proposed", "expired", "retired")
    kept.sort(key=lambda view: (order.index(view.rule.state), -view.weight))
    return kept


def show(services: Services, user: str, name: str) -> RuleView:
    """One rule with what happened to it."""
    view = _view(services.store.rule(user, name), services.world.now())
    events = services.store.rule_events(user, view.rule.id, HISTORY_LIMIT_COUNT)
    return replace(view, events=tuple(events))


def _view(rule: Rule, now: datetime) -> RuleView:
    standing = standing_of(rule, now)
    state, _ = ladder.settled(standing, now)
    return RuleView(replace(rule, state=state), standing.weight, standing.reach)


def propose(services: Services, scope: Scope, trigger: str, why: str) -> Rule:
    """A rule that somebody wants; it does nothing until it is approved."""
    check_text(why, what="the reason", max_chars=TEXT_LIMIT_CHARS)
    wanted, now = parse_trigger(trigger), services.world.now()
    rule = Rule(
        id=services.world.new_id(),
        project=scope.project,
        tool=wanted.tool,
        pattern=wanted.pattern,
        text=redact(why),
        state="proposed",
        risk=trigger_risk(wanted),
        is_forbidden=True,
        weight=0.0,
        weighed_at=now,
        report_count=0,
        created_at=now,
        updated_at=now,
        expires_at=now + APPROVED_LIFE,
    )

    def work(transaction: Transaction) -> Rule:
        active = transaction.rules(scope.user, ACTIVE)
        if len(active) >= RULES_LIMIT_COUNT:
            raise Conflict("there are too many rules", hint="`meritory rules retire` ends one")
        same = [
            one
            for one in active
            if (one.tool, one.pattern, one.project) == (rule.tool, rule.pattern, rule.project)
        ]
        if same:
            raise Conflict(f"rule {same[0].id} has this trigger already")
        found = replay(transaction, RuleTrial(scope.user, wanted, scope.project, now))
        change = RuleChange("proposed", "", now, actor=services.actor)
        return put(transaction, scope.user, tried(rule, found, anew=True), change)

    return services.store.write(work)


def approve(services: Services, user: str, name: str) -> Rule:
    """One step up by a person's word: proposed to warns, warns to blocks; a replay comes first."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        before = _view(transaction.rule(user, name), now).rule
        above = ladder.above("proposed" if before.state in ("expired", "retired") else before.state)
        if above is None:
            raise Conflict(f"rule {before.id} blocks already")
        found = replay(transaction, RuleTrial(user, before.trigger, before.project, now))
        if not found.is_clear:
            raise Conflict(
                f"its trigger fits {found.alarm_count} harmless actions, such as "
                f"`{found.examples[0]}`",
                hint="propose one that says more, and retire this one",
            )
        rule = tried(replace(before, is_approved=True), found, anew=True)
        rule = replace(rule, expires_at=max(rule.expires_at, now + APPROVED_LIFE), held_count=-1)
        change = RuleChange("approved", "", now, above, services.actor, before=before)
        return put(transaction, user, rule, change)

    return services.store.write(work)


def retire(services: Services, user: str, name: str, why: str = "") -> Rule:
    """Ends a rule; later reports do not bring it back, only `undo` and `approve` do."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        rule = transaction.rule(user, name)
        if rule.state == "retired":
            raise Conflict(f"rule {rule.id} is retired already")
        reason = redact(why)[:TEXT_LIMIT_CHARS]
        return put(
            transaction, user, rule, RuleChange("retired", reason, now, "retired", services.actor)
        )

    return services.store.write(work)


def undo(services: Services, user: str, name: str) -> Rule:
    """Takes the last change of a rule back; it does not step up again before the next report."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        rule = transaction.rule(user, name)
        events = transaction.rule_events(user, rule.id, HISTORY_LIMIT_COUNT)
        last = next((one for one in events if one.kind in _CHANGES and not one.is_undone), None)
        if last is None or last.before is None:
            raise Conflict(f"there is nothing to undo about rule {rule.id}")
        transaction.mark_rule_event_undone(user, last.number)
        former = replace(last.before, memory_id=rule.memory_id)
        if last.kind == "proposed":
            former = replace(former, state="retired")
        is_lower = last.kind in ("stepped_up", "approved", "reported")
        held = replace(former, held_count=former.report_count) if is_lower else former
        return put(
            transaction, user, held, RuleChange("undone", last.kind, now, actor=services.actor)
        )

    return services.store.write(work)


def try_out(services: Services, scope: Scope, name: str) -> tuple[Rule | None, Replay]:
    """Replays a rule, or a trigger that is only thought of, on harmless actions."""
    now = services.world.now()
    if ":" in name:
        wanted = parse_trigger(name)
        return None, replay(services.store, RuleTrial(scope.user, wanted, scope.project, now))
    rule = services.store.rule(scope.user, name)
    found = replay(services.store, RuleTrial(scope.user, rule.trigger, rule.project, now))
    return rule, found
