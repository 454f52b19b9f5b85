"""What a session must keep to, because somebody said so in a report."""

from __future__ import annotations

from meritory.domain.feedback import EventFacts
from meritory.domain.memory import Draft, Scope, Source
from meritory.domain.rule import SessionConstraint
from meritory.domain.session import Event
from meritory.engine.memories.validate import only_proposed
from meritory.engine.memories.write import write
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text.commands.prohibitions import Constraint, claim, lifted_kinds, stated_constraints


def learn(services: Services, scope: Scope, facts: EventFacts) -> tuple[SessionConstraint, ...]:
    """Takes the constraints that a report states, and those that it lifts.

    Each is offered as a memory as well; a person can make it one that always holds.
    """
    text = "\n".join(facts.texts)
    # Only a person takes back what a person said; agents may bind themselves.
    lifted = lifted_kinds(text) if facts.origin == "user" else ()
    stated = stated_constraints(text)
    if not lifted and not stated:
        return ()
    kept = _kept(services, scope, facts, (lifted, stated))
    offered = [_offer(scope, claim(one.kind, one.argument), facts) for one in stated]
    if offered:
        write(services, offered)
    return kept


def _kept(
    services: Services,
    scope: Scope,
    facts: EventFacts,
    said: tuple[tuple[str, ...], tuple[Constraint, ...]],
) -> tuple[SessionConstraint, ...]:
    """What the session must keep to from now on, written down."""
    (lifted, stated), key = said, facts.session_key
    if key is None:
        return ()
    kept = tuple(
        SessionConstraint(key, one.kind, one.argument, one.said, facts.event_id, facts.at)
        for one in stated
    )

    def work(transaction: Transaction) -> None:
        transaction.lift_session_constraints(scope.user, key, lifted, facts.at)
        for one in kept:
            if transaction.put_session_constraint(scope.user, one):
                _tell(transaction, scope.user, one)

    services.store.write(work)
    return kept


def lift(services: Services, user: str, session_key: str, kind: str | None = None) -> int:
    """Lifts what a session must keep to, all of it or one kind."""
    held = services.store.session_constraints(user, session_key)
    kinds = {one.kind for one in held if kind in (None, one.kind)}
    now = services.world.now()
    return services.store.write(
        lambda transaction: transaction.lift_session_constraints(user, session_key, kinds, now)
    )


def _tell(transaction: Transaction, user: str, one: SessionConstraint) -> None:
    # Without the words, which a purge could not find here.
    details = {"kind": one.kind, "argument": one.argument}
    transaction.count(user, "rules.constrained")
    told = Event(
        at=one.at,
        category="rules",
        name="rules.constrained",
        session_key=one.session_key,
        details=details,
    )
    transaction.log_events(user, [told])


def _offer(scope: Scope, content: str, facts: EventFacts) -> Draft:
    """A constraint that a person has not confirmed: it is stored as a proposal."""
    return only_proposed(
        Draft(
            content=content,
            kind="constraint",
            user=scope.user,
            agent=scope.agent,
            project=scope.project,
            provenance="assistant_derived",
            origin="agent",
            source=Source(session_key=facts.session_key),
        )
    )
