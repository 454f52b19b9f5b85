"""Rules, the guard before tool calls, and the constraints of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.domain.rule import Rule, RuleEvent, SessionConstraint, State
from meritory.engine.rules import book, guard
from meritory.engine.rules.book import Replay
from meritory.engine.rules.guard import ToolCall
from meritory.server.dedupe import is_duplicate
from meritory.server.routes.hooks import Hook, hook_engine
from meritory.server.table import Call, ReplyShape, Results, Route, Scoped, SessionKey

ToolName = Annotated[str, Meta(min_length=1, max_length=256)]
# `every` includes retired and expired rules.
RulesQuery = Scoped.plus(every=(bool, False))
ConstraintsQuery = Scoped.plus(session_key=SessionKey)


class PreTool(Hook, kw_only=True):
    """A tool is about to be called; `tool_input` is its input."""

    tool_name: ToolName
    tool_input: Any = None


class Proposal(Scoped, kw_only=True):
    """A proposed rule: a trigger as TOOL: PATTERN, and the reason."""

    trigger: Annotated[str, Meta(min_length=3, max_length=400)]
    why: Annotated[str, Meta(min_length=1, max_length=300)]


class RuleAction(Scoped, kw_only=True):
    """The reason to change a rule."""

    why: str = ""


class Lift(Scoped, kw_only=True):
    """The session whose constraints to lift; without a kind, all of them."""

    session_key: SessionKey
    kind: str | None = None


class VerdictOut(
    ReplyShape, record=guard.GuardVerdict, names="decision reason rule=rule_id constraint"
):
    """Whether the tool may be called, with the reason for the agent; `rule` is the rule's id."""

    decision: str


class RuleEventOut(ReplyShape, record=RuleEvent, without="number rule_id action before"):
    """An event of a rule, without the state before it."""

    kind: str


class RuleOut(
    ReplyShape,
    record=Rule,
    names="id state trigger text project weight report_count risk reach is_approved replay_count"
    " alarm_count memory_id created_at reported_at expires_at events",
):
    """A rule with its present weight and reach, and its events."""

    trigger: str
    reach: State
    events: list[RuleEventOut]

    @classmethod
    def viewed(cls, view: book.RuleView) -> RuleOut:
        """Return a rule and its view in one object."""
        return cls.of(
            view.rule,
            trigger=str(view.rule.trigger),
            weight=round(view.weight, 3),
            reach=view.reach,
            events=[RuleEventOut.of(event) for event in view.events],
        )


class ReplayOut(ReplyShape, record=Replay, without="through"):
    """The number of harmless actions tried, and on how many of them the trigger would have acted.

    Without the position in the action log at which the replay stopped.
    """


class ConstraintOut(ReplyShape, record=SessionConstraint, names="kind argument said at"):
    """A constraint of a session that was not lifted."""


class LiftedOut(msgspec.Struct):
    """The number of lifted constraints."""

    lifted: int


def pre_tool(call: Call) -> VerdictOut:
    """Check a tool call before it runs: allow, warn or deny."""
    body: PreTool = call.body
    engine = hook_engine(call)
    tool_input = msgspec.json.encode(body.tool_input).decode()
    tool_call = ToolCall(
        body.session_key,
        engine.scope,
        body.tool_name,
        body.tool_input,
        body.harness,
        call.request_id,
        is_duplicate(call, engine.scope, body.tool_name, tool_input),
    )
    verdict = guard.check(engine.services, tool_call)
    if verdict.decision != "allow":
        # A job writes the memory of a rule that has just begun to warn.
        engine.works.nudge()
    return VerdictOut.of(verdict)


def list_rules(call: Call) -> Results[RuleOut]:
    """List the rules, those that block first."""
    memory = call.memory()
    views = book.listing(memory.services, memory.scope, every=call.query.every)
    return Results([RuleOut.viewed(view) for view in views])


def show_rule(call: Call) -> RuleOut:
    """Show one rule with its events."""
    return RuleOut.viewed(book.show(*call.whole_user(), call.path["id"]))


def propose(call: Call) -> RuleOut:
    """Propose a rule; it does nothing until it is approved."""
    body: Proposal = call.body
    memory = call.memory()
    rule = book.propose(memory.services, memory.scope, body.trigger, body.why)
    return RuleOut.viewed(book.show(memory.services, memory.scope.user, rule.id))


def approve(call: Call) -> RuleOut:
    """Raise a rule by one step: warn, then block."""
    return _changed(call, book.approve)


def retire(call: Call) -> RuleOut:
    """Retire a rule."""
    return _changed(call, book.retire, call.body.why)


def undo(call: Call) -> RuleOut:
    """Undo the last change of a rule."""
    return _changed(call, book.undo)


def _changed(call: Call, change: Callable[..., Rule], *given: str) -> RuleOut:
    """Change a rule and show it; a job writes its memory."""
    services, user = call.whole_user()
    rule = change(services, user, call.path["id"], *given)
    call.server.engine.works.nudge()
    return RuleOut.viewed(book.show(services, user, rule.id))


def replay(call: Call) -> ReplayOut:
    """Try a rule on recorded harmless actions."""
    memory = call.memory()
    _, replayed = book.try_out(memory.services, memory.scope, call.path["id"])
    return ReplayOut.of(replayed)


def list_constraints(call: Call) -> Results[ConstraintOut]:
    """List the constraints of a session."""
    memory = call.memory()
    rows = memory.services.store.session_constraints(memory.scope.user, call.query.session_key)
    return Results([ConstraintOut.of(row) for row in rows])


def lift(call: Call) -> LiftedOut:
    """Lift the constraints of a session."""
    body: Lift = call.body
    memory = call.memory()
    user = memory.scope.user
    return LiftedOut(book.lift(memory.services, user, body.session_key, body.kind))


_CONSTRAINTS, _ONE = "/api/rules/constraints", "/api/rules/{id}"
ROUTES = (
    Route("POST", "/api/hooks/pre-tool", pre_tool, "hooks", "scope", body=PreTool),
    Route("GET", "/api/rules", list_rules, "read", "scope", query=RulesQuery),
    Route("POST", "/api/rules", propose, "write", "user", body=Proposal),
    Route("GET", _CONSTRAINTS, list_constraints, "read", "user", query=ConstraintsQuery),
    Route("POST", f"{_CONSTRAINTS}/lift", lift, "admin", "user", body=Lift),
    Route("GET", _ONE, show_rule, "read", "user", query=Scoped),
    Route("GET", f"{_ONE}/replay", replay, "read", "user", query=Scoped),
    Route("POST", f"{_ONE}/approve", approve, "admin", "user", body=RuleAction),
    Route("POST", f"{_ONE}/retire", retire, "admin", "user", body=RuleAction),
    Route("POST", f"{_ONE}/undo", undo, "admin", "user", body=RuleAction),
)
