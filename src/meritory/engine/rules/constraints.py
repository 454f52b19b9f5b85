"""Session constraints: prohibitions that a person states in a report, valid in its session."""

from __future__ import annotations

from meritory.domain.feedback import FeedbackEvent
from meritory.domain.memory import Draft, Source
from meritory.domain.rule import SessionConstraint
from meritory.domain.session import Event
from meritory.engine.memories.validate import only_proposed
from meritory.engine.memories.write import write
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text.commands.prohibitions import claim, lifted_kinds, stated_constraints


def learn(services: Services, report: FeedbackEvent) -> tuple[SessionConstraint, ...]:
    """Store the constraints that a report states, and lift those that it takes back.

    Each stated constraint is also proposed as a memory; a person can confirm it for all sessions.
    """
    text = "\n".join(report.texts.values())
    # Only a person may lift a person's constraint; an agent may add one for itself.
    lifted = lifted_kinds(text) if report.origin == "user" else ()
    stated, key, user = stated_constraints(text), report.session_key, report.user
    if not lifted and not stated:
        return ()
    constraints: tuple[SessionConstraint, ...] = ()
    if key is not None:
        constraints = tuple(
            SessionConstraint(key, rule.kind, rule.argument, rule.said, report.id, report.at)
            for rule in stated
        )
        services.store.write(
            report.user, lambda transaction: _put(transaction, report, key, constraints, lifted)
        )
    proposals = [
        only_proposed(
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
        )
        for rule in stated
    ]
    if proposals:
        write(services, report.user, proposals)
    return constraints


def _put(
    transaction: Transaction,
    report: FeedbackEvent,
    session_key: str,
    constraints: tuple[SessionConstraint, ...],
    lifted: tuple[str, ...],
) -> None:
    transaction.lift_session_constraints(report.user, session_key, lifted, report.at)
    for constraint in constraints:
        if transaction.put_session_constraint(report.user, constraint):
            transaction.count(report.user, "rules.constrained")
            # The timeline omits the words: a purge could not find them here.
            event = Event(
                at=report.at,
                category="rules",
                name="rules.constrained",
                session_key=session_key,
                details={"kind": constraint.kind, "argument": constraint.argument},
            )
            transaction.log_events(report.user, [event])


def lift(services: Services, user: str, session_key: str, kind: str | None = None) -> int:
    """Lift the constraints of a session: all, or those of one kind."""
    constraints = services.store.session_constraints(user, session_key)
    kinds = {constraint.kind for constraint in constraints if kind in (None, constraint.kind)}
    now = services.world.now()
    return services.store.write(
        user,
        lambda transaction: transaction.lift_session_constraints(user, session_key, kinds, now),
    )
