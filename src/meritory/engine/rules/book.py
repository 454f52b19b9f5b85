"""Commands for rules: list, show, propose, approve, retire, undo, try out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from meritory.domain.errors import Conflict
from meritory.domain.memory import Scope
from meritory.domain.rule import Rule, RuleEvent, State
from meritory.engine.rules.learn import RULES_LIMIT_COUNT, TEXT_LIMIT_CHARS
from meritory.engine.rules.status import Replay, RuleChange, put, replay, status_of, with_replay
from meritory.engine.services import Services
from meritory.rank import ladder
from meritory.rank.ladder import ACTIVE, APPROVED_LIFE, STATES
from meritory.store.contract.store import Transaction
from meritory.text.commands.triggers import parse_trigger, trigger_risk
from meritory.text.normalize import check_text
from meritory.text.secrets import redact

HISTORY_LIMIT_COUNT: Final = 50
# Changes that can be undone: all but the events of the guard.
_CHANGES: Final = (
    *("proposed", "reported", "widened", "stepped_up", "stepped_down", "expired"),
    *("approved", "retired", "praised"),
)


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule with its current weight and state."""

    rule: Rule
    weight: float
    reach: State
    events: tuple[RuleEvent, ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether its latest replay raised no alarm."""
        return self.rule.replay_count > 0 and self.rule.alarm_count == 0


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
    rule = Rule(
        id=services.world.new_id(),
        project=scope.project,
        tool=parsed.tool,
        pattern=parsed.pattern,
        text=redact(why),
        state="proposed",
        risk=trigger_risk(parsed),
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
            raise Conflict("too many rules", hint="retire one with `meritory rules retire ID`")
        same = [
            other
            for other in active
            if (other.tool, other.pattern, other.project) == (rule.tool, rule.pattern, rule.project)
        ]
        if same:
            raise Conflict(f"rule {same[0].id} already has this trigger")
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
        if not result.is_clear:
            raise Conflict(
                f"its trigger fits {result.alarm_count} harmless actions, such as "
                f"`{result.examples[0]}`",
                hint="propose a more specific rule, and retire this one",
            )
        rule = with_replay(replace(before, is_approved=True), result)
        rule = replace(rule, expires_at=max(rule.expires_at, now + APPROVED_LIFE), held_count=-1)
        change = RuleChange("approved", "", now, above, services.actor, before=before)
        return put(transaction, user, rule, change)

    return services.store.write(user, work)


def retire(services: Services, user: str, name: str, why: str = "") -> Rule:
    """Retire a rule; only `undo` and `approve` bring it back, later reports do not."""
    now = services.world.now()

    def work(transaction: Transaction) -> Rule:
        rule = transaction.rule(user, name)
        if rule.state == "retired":
            raise Conflict(f"rule {rule.id} is already retired")
        reason = redact(why)[:TEXT_LIMIT_CHARS]
        return put(
            transaction, user, rule, RuleChange("retired", reason, now, "retired", services.actor)
        )

    return services.store.write(user, work)


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
        return put(
            transaction, user, held, RuleChange("undone", last.kind, now, actor=services.actor)
        )

    return services.store.write(user, work)


def try_out(services: Services, scope: Scope, name: str) -> tuple[Rule | None, Replay]:
    """Replay a rule, or a trigger given as text, on harmless actions."""
    now = services.world.now()
    if ":" in name:
        return None, replay(services.store, scope.user, parse_trigger(name), scope.project, now)
    rule = services.store.rule(scope.user, name)
    return rule, replay(services.store, scope.user, rule.trigger, rule.project, now)
