"""Rules, the guard before tools, and what a session must keep to."""

from __future__ import annotations

import msgspec

from meritory.api.memory import Memory
from meritory.domain.rule import Rule
from meritory.engine.memories.validate import checked_name
from meritory.engine.rules import book, constraints, guard
from meritory.engine.rules.guard import ToolCall
from meritory.server.routes.hooks import is_echo
from meritory.server.schemas import rules as wire
from meritory.server.scoped_memory import demand_session
from meritory.server.table import Call, Route, Scoped


def pre_tool(call: Call) -> wire.VerdictOut:
    """A tool is about to be called: allow, warn or deny."""
    body: wire.PreTool = call.body
    checked_name("session_key", body.session_key)
    memory = call.view(body.user, body.agent, call.project(body.project, body.cwd))
    demand_session(memory, body.session_key)
    asked = ToolCall(
        body.session_key,
        memory.scope,
        body.tool_name,
        body.tool_input,
        body.harness,
        call.request_id,
        is_echo(call, memory.scope, body.tool_name, msgspec.json.encode(body.tool_input).decode()),
    )
    verdict = guard.check(memory.services, asked)
    if verdict.decision != "allow":
        # A rule that has just begun to warn is yet to be remembered.
        memory.work_meanwhile()
    return wire.VerdictOut.of(verdict)


def listing(call: Call) -> wire.RulesOut:
    """The rules."""
    query: wire.RulesQuery = call.query
    memory = call.memory()
    found = book.listing(memory.services, memory.scope, every=query.every)
    return wire.RulesOut([wire.RuleOut.of(view) for view in found])


def show(call: Call) -> wire.RuleOut:
    """One rule with what happened to it."""
    return _shown(call.memory(), call.path["id"])


def propose(call: Call) -> wire.RuleOut:
    """A rule that somebody wants."""
    body: wire.Proposal = call.body
    memory = call.memory()
    rule = book.propose(memory.services, memory.scope, body.trigger, body.why)
    return _shown(memory, rule.id)


def approve(call: Call) -> wire.RuleOut:
    """One step up."""
    memory = call.memory()
    return _changed(memory, book.approve(memory.services, memory.scope.user, call.path["id"]))


def retire(call: Call) -> wire.RuleOut:
    """The end of a rule."""
    body: wire.Named = call.body
    memory = call.memory()
    user = memory.scope.user
    return _changed(memory, book.retire(memory.services, user, call.path["id"], body.why))


def undo(call: Call) -> wire.RuleOut:
    """The last change taken back."""
    memory = call.memory()
    return _changed(memory, book.undo(memory.services, memory.scope.user, call.path["id"]))


def replay(call: Call) -> wire.ReplayOut:
    """A rule tried on harmless actions."""
    memory = call.memory()
    _, found = book.try_out(memory.services, memory.scope, call.path["id"])
    return wire.ReplayOut.of(found)


def constrained(call: Call) -> wire.ConstraintsOut:
    """What a session must keep to."""
    query: wire.ConstraintsQuery = call.query
    memory = call.memory()
    held = memory.services.store.session_constraints(memory.scope.user, query.session_key)
    return wire.ConstraintsOut([wire.ConstraintOut.of(one) for one in held])


def lift(call: Call) -> wire.LiftedOut:
    """What a session must keep to is lifted."""
    body: wire.Lift = call.body
    memory = call.memory()
    user = memory.scope.user
    return wire.LiftedOut(constraints.lift(memory.services, user, body.session_key, body.kind))


def _changed(memory: Memory, rule: Rule) -> wire.RuleOut:
    memory.work_meanwhile()
    return _shown(memory, rule.id)


def _shown(memory: Memory, name: str) -> wire.RuleOut:
    return wire.RuleOut.of(book.show(memory.services, memory.scope.user, name))


ROUTES = (
    Route(
        method="POST",
        path="/api/hooks/pre-tool",
        handler=pre_tool,
        access="hooks",
        reach="scope",
        summary="Tell a tool that is about to be called, and learn whether it may be.",
        body=wire.PreTool,
        reply=wire.VerdictOut,
    ),
    Route(
        method="GET",
        path="/api/rules",
        handler=listing,
        access="read",
        reach="scope",
        summary="List the rules, those that block first.",
        query=wire.RulesQuery,
        reply=wire.RulesOut,
    ),
    Route(
        method="POST",
        path="/api/rules",
        handler=propose,
        access="write",
        reach="user",
        summary="Propose a rule; it does nothing until it is approved.",
        body=wire.Proposal,
        reply=wire.RuleOut,
    ),
    Route(
        method="GET",
        path="/api/rules/constraints",
        handler=constrained,
        access="read",
        reach="user",
        summary="List what a session must keep to.",
        query=wire.ConstraintsQuery,
        reply=wire.ConstraintsOut,
    ),
    Route(
        method="POST",
        path="/api/rules/constraints/lift",
        handler=lift,
        access="admin",
        reach="user",
        summary="Lift what a session must keep to.",
        body=wire.Lift,
        reply=wire.LiftedOut,
    ),
    Route(
        method="GET",
        path="/api/rules/{id}",
        handler=show,
        access="read",
        reach="user",
        summary="Show one rule with what happened to it.",
        query=Scoped,
        reply=wire.RuleOut,
    ),
    Route(
        method="GET",
        path="/api/rules/{id}/replay",
        handler=replay,
        access="read",
        reach="user",
        summary="Try a rule on recorded harmless actions.",
        query=Scoped,
        reply=wire.ReplayOut,
    ),
    Route(
        method="POST",
        path="/api/rules/{id}/approve",
        handler=approve,
        access="admin",
        reach="user",
        summary="Let a rule take one step up: warn, then block.",
        body=wire.Named,
        reply=wire.RuleOut,
    ),
    Route(
        method="POST",
        path="/api/rules/{id}/retire",
        handler=retire,
        access="admin",
        reach="user",
        summary="End a rule.",
        body=wire.Named,
        reply=wire.RuleOut,
    ),
    Route(
        method="POST",
        path="/api/rules/{id}/undo",
        handler=undo,
        access="admin",
        reach="user",
        summary="Take the last change of a rule back.",
        body=wire.Named,
        reply=wire.RuleOut,
    ),
)
