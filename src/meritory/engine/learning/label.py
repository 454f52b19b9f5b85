"""Labels and beliefs: how much each memory helped in a session, and what that says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from meritory.domain.feedback import Belief, Testimony, Witness
from meritory.domain.job import Job
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import (
    Event,
    Labelled,
    Proof,
    SessionMemory,
    SessionRecord,
    SessionScore,
)
from meritory.domain.world import epoch_days
from meritory.engine.jobs.runner import After, Effect
from meritory.engine.learning.judge import read_session
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.engine.sessions.context import is_stored_by
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.rank import belief, labels
from meritory.store.contract.store import Store, Transaction

# A memory deleted this soon after it was shown was probably deleted because of it.
SOON = timedelta(hours=24)
# The parts of a label that are stored with it.
_PARTS = ("rule", "agent", "text", "continuity", "judge")


def label_memories(services: Services, job: Job) -> Effect:
    """Turn ratings, hits and the verdict into one label per memory, and update beliefs."""
    store, user, key = services.store, job.user, job.key
    session, records, score = read_session(store, job)
    memories = store.memories(user, [record.memory_id for record in records])
    # By memory how much it helped, from a program that knows.
    used = store.used(user, key)
    shown_at = {injection.number: injection.at for injection in store.injections(user, key)}
    weights = labels.LabelWeights(services.policy.predictor.agent_feedback)
    made: dict[str, labels.Label] = {}
    for record in records:
        memory = memories.get(record.memory_id)
        # A memory that this session stored itself proves nothing by being shown to it.
        if memory is None or is_stored_by(session, memory):
            continue
        fate = _fate(record, memory, session, shown_at.get(record.injection or 0))
        is_fts_only = record.candidate.source == "fts_only"
        known = None
        if used is not None:
            # The program knows which candidates did not help, but not of other memories.
            known = used.get(record.memory_id, None if is_fts_only else 0.0)
        evidence = labels.Evidence(
            was_injected=record.candidate.was_injected,
            provenance=memory.provenance,
            is_fts_only=is_fts_only,
            agent_score=record.agent_relevance_score,
            hit_count=record.fts_hit_count,
            judge_score=record.relevance_score,
            continuity=score.score if score else None,
            is_missing=record.is_missing,
            fate=fate,
            known=known,
        )
        made[record.memory_id] = labels.label(evidence, weights)
    helped = _helped(made, score, used)
    shown = {record.memory_id for record in records if record.candidate.was_injected}
    now = services.world.now()
    # A judge's opinion of a memory that was not shown says nothing about its claim.
    judged = {i: label for i, label in made.items() if i in shown and label.value is not None}
    beliefs = _beliefs(store, session, judged, now)
    labelled = [
        Labelled(memory_id, label.value, {name: getattr(label, name) for name in _PARTS})
        for memory_id, label in made.items()
    ]
    event = Event(
        at=now,
        category="judge",
        name="session.learned",
        session_key=key,
        details={
            "judge": score.judge if score else None,
            "confidence": score.confidence if score else None,
            "continuity": score.score if score else None,
            "excluded": score.excluded if score else "not judged",
            "helped": len(helped),
        },
    )

    def effect(transaction: Transaction) -> After:
        transaction.put_labels(user, key, labelled, helped)
        put_beliefs(transaction, user, beliefs)
        current = transaction.session(user, key)
        if current.state == "ended":
            transaction.update_session(replace(current, state="finished"))
        transaction.log_events(user, [event])
        return partial(publish, services, [event])

    return effect


def _fate(
    record: SessionMemory, memory: MemoryRecord, session: SessionRecord, shown_at: datetime | None
) -> labels.Fate | None:
    """Return whether a memory was deleted or superseded since."""
    if memory.deleted_at is not None:
        is_soon = shown_at is not None and memory.deleted_at <= shown_at + SOON
        return "deleted_soon" if is_soon else "deleted"
    # A memory that was superseded after the session keeps its label.
    was_stale = memory.superseded_by is not None and memory.updated_at < session.started_at
    return "superseded" if was_stale and record.candidate.was_injected else None


def _helped(
    made: Mapping[str, labels.Label], score: SessionScore | None, used: Mapping[str, float] | None
) -> dict[str, float]:
    """Return by memory how much it helped, for usage history and association."""
    # A program may name memories that were not candidates. They count as well.
    values = {memory_id: label.value for memory_id, label in made.items()} | dict(used or {})
    confidence = 1.0 if used is not None else 0.0
    if used is None and score is not None and score.excluded is None:
        confidence = score.confidence
    return {
        memory_id: value
        for memory_id, value in values.items()
        if value is not None and labels.is_useful(value, confidence)
    }


def relabel_sessions(services: Services, memory: MemoryRecord) -> None:
    """Queue the sessions that a deleted or restored memory was shown in shortly before."""
    now = services.world.now()
    since = (memory.deleted_at or now) - SOON
    keys = services.store.sessions_shown(memory.user, memory.id, since)

    def work(transaction: Transaction) -> None:
        for key in keys:
            transaction.requeue_job(memory.user, LEARN_JOB, key, now)

    if keys:
        services.store.write(memory.user, work)


# -- beliefs ----------------------------------------------------------------------------------


def _beliefs(
    store: Store, session: SessionRecord, made: Mapping[str, labels.Label], now: datetime
) -> dict[str, Belief]:
    """Return the beliefs about memories by all sessions that showed them and all reports."""
    proofs = store.proofs(session.user, list(made))
    testimony = store.testimony(session.user, list(made))
    beliefs: dict[str, Belief] = {}
    for memory_id, label in made.items():
        # A session that is labelled again counts once.
        earlier = [proof for proof in proofs.get(memory_id, []) if proof.session_key != session.key]
        own = Proof(
            session.key, session.started_at, label.agent, label.value or 0.0, label.rule == "known"
        )
        beliefs[memory_id] = belief_from([*earlier, own], testimony.get(memory_id, ()), now)
    return beliefs


def belief_from(proofs: Sequence[Proof], testimony: Sequence[Testimony], now: datetime) -> Belief:
    """Return the belief that all evidence supports, as it weighs now."""
    events = []
    for proof in proofs:
        day = epoch_days(proof.at)
        if proof.agent_score is not None:
            events.append(belief.BeliefEvent(day, "agent", proof.agent_score, proof.session_key))
        # A program knows, a judge guesses.
        witness: Witness = "agent" if proof.is_known else "judge"
        events.append(belief.BeliefEvent(day, witness, proof.label, proof.session_key))
    events += [
        belief.BeliefEvent(epoch_days(report.at), report.witness, report.value, report.session_key)
        for report in testimony
    ]
    return belief.faded(belief.believe(events), epoch_days(now))


def count_testimony(
    store: Store,
    transaction: Transaction,
    user: str,
    source_id: str,
    added: Mapping[str, Testimony],
) -> None:
    """Store testimony of one source on memories, and the beliefs that follow from it."""
    proofs = store.proofs(user, list(added))
    testimonies = transaction.add_testimony(user, source_id, added)
    beliefs = {
        memory_id: belief_from(proofs.get(memory_id, ()), evidence, added[memory_id].at)
        for memory_id, evidence in testimonies.items()
    }
    put_beliefs(transaction, user, beliefs)


def put_beliefs(transaction: Transaction, user: str, beliefs: Mapping[str, Belief]) -> None:
    """Store beliefs, and the usefulness that ranking reads."""
    transaction.put_beliefs(user, beliefs)
    transaction.set_usefulness(
        user, {memory_id: round(value.usefulness, 6) for memory_id, value in beliefs.items()}
    )
