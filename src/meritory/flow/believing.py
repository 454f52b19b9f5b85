"""What is believed of a memory's claim: what sessions showed and what reports said, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from meritory.rank import belief
from meritory.rank.belief import Belief
from meritory.store.base import Transaction
from meritory.store.feedback import Testimony
from meritory.store.sessions import Proof

_SECONDS_PER_DAY = 86_400.0


def day_of(moment: datetime) -> float:
    """Days since the epoch."""
    return moment.timestamp() / _SECONDS_PER_DAY


def believed(proofs: Sequence[Proof], said: Sequence[Testimony], now: datetime) -> Belief:
    """The belief that all evidence gives, as it weighs now."""
    events = []
    for proof in proofs:
        day = day_of(proof.at)
        if proof.agent_score is not None:
            events.append(belief.BeliefEvent(day, "agent", proof.agent_score, proof.session_key))
        # A program that knows is no judge who guesses.
        witness: belief.Witness = "agent" if proof.is_known else "judge"
        events.append(belief.BeliefEvent(day, witness, proof.label, proof.session_key))
    events += [
        belief.BeliefEvent(day_of(one.at), one.witness, one.value, one.session_key) for one in said
    ]
    return belief.faded(belief.believe(events), day_of(now))


def keep(transaction: Transaction, user: str, beliefs: Mapping[str, Belief]) -> None:
    """Stores beliefs, and the usefulness that ranking reads of them."""
    transaction.put_beliefs(user, beliefs)
    transaction.set_usefulness(
        user, {memory_id: round(one.usefulness, 6) for memory_id, one in beliefs.items()}
    )
