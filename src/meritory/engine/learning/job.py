"""What is believed of a memory's claim: what sessions showed and what reports said, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from meritory.engine.jobs.runner import After, Effect
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.rank import belief, labels
from meritory.store.contract.store import Transaction

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
        witness: Witness = "agent" if proof.is_known else "judge"
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


# A memory deleted this soon after it was shown was probably deleted because of it.
SOON = timedelta(hours=24)


def label_memories(services: Services, job: Job) -> Effect:
    """Turn ratings, hits and the verdict into one label per memory, and update beliefs."""
    store = services.store
    session = store.session(job.user, job.key)
    records = store.session_memories(job.user, job.key)
    score = store.session_score(job.user, job.key)
    memories = store.memories(job.user, [one.memory_id for one in records])
    used = store.used(job.user, job.key)
    shown_at = {one.number: one.at for one in store.injections(job.user, job.key)}
    case = _LearnedSession(session, score, used, shown_at)
    weights = labels.LabelWeights(services.policy.predictor.agent_feedback)
    made = {
        one.memory_id: labels.label(
            _evidence(case, one, memories[one.memory_id]),
            weights,
        )
        for one in records
        if one.memory_id in memories and not _was_stored_here(session, memories[one.memory_id])
    }
    confidence = score.confidence if score is not None and score.excluded is None else 0.0
    helped = _helped(made, confidence, used)
    shown = {one.memory_id for one in records if one.candidate.was_injected}
    now = services.world.now()
    event = _event(session, now, score, helped)
    useful = _usefulness(
        services, session, {one: label for one, label in made.items() if one in shown}, now
    )

    def effect(transaction: Transaction) -> After:
        user, key = session.user, session.key
        transaction.put_labels(user, key, [_labelled(*item) for item in made.items()], helped)
        keep(transaction, user, useful)
        current = transaction.session(user, key)
        if current.state == "ended":
            transaction.update_session(replace(current, state="finished"))
        transaction.log_events(user, [event])
        return partial(publish, services, [event])

    return effect


def _was_stored_here(session: SessionRecord, memory: MemoryRecord) -> bool:
    """Return whether this very session stored the memory: shown back to it, it proves nothing."""
    return memory.source is not None and memory.source.session_key == session.key


def _event(
    session: SessionRecord, now: datetime, score: SessionScore | None, helped: Mapping[str, float]
) -> Event:
    return Event(
        at=now,
        category="judge",
        name="session.learned",
        session_key=session.key,
        details={
            "judge": score.judge if score else None,
            "confidence": score.confidence if score else None,
            "continuity": score.score if score else None,
            "excluded": score.excluded if score else "not judged",
            "helped": len(helped),
        },
    )


def reconsider(services: Services, memory: MemoryRecord) -> None:
    """A memory was deleted, or that was undone: sessions shown it before are labelled anew."""
    now = services.world.now()
    since = (memory.deleted_at or now) - SOON
    keys = services.store.sessions_shown(memory.user, memory.id, since)

    def work(transaction: Transaction) -> None:
        for key in keys:
            transaction.requeue_job(memory.user, LEARN_JOB, key, now)

    if keys:
        services.store.write(memory.user, work)


@dataclass(frozen=True, slots=True)
class _LearnedSession:
    """What is known about a session as a whole; injections' moments are by their number."""

    session: SessionRecord
    score: SessionScore | None
    used: Mapping[str, float] | None
    shown_at: Mapping[int, datetime]


def _evidence(case: _LearnedSession, one: SessionMemory, memory: MemoryRecord) -> labels.Evidence:
    is_fts_only = one.candidate.source == "fts_only"
    known = None
    if case.used is not None:
        # Whoever knows what helped also knows what did not; of the others, only what it names.
        known = case.used.get(one.memory_id, None if is_fts_only else 0.0)
    return labels.Evidence(
        was_injected=one.candidate.was_injected,
        provenance=memory.provenance,
        is_fts_only=is_fts_only,
        agent_score=one.agent_relevance_score,
        hit_count=one.fts_hit_count,
        judge_score=one.relevance_score,
        continuity=case.score.score if case.score else None,
        is_missing=one.is_missing,
        fate=_fate(case, one, memory),
        known=known,
    )


def _fate(case: _LearnedSession, one: SessionMemory, memory: MemoryRecord) -> labels.Fate | None:
    """What a person, or time, made of a memory by now."""
    if memory.deleted_at is not None:
        shown_at = case.shown_at.get(one.injection or 0)
        is_soon = shown_at is not None and memory.deleted_at <= shown_at + SOON
        return "deleted_soon" if is_soon else "deleted"
    # One that was superseded after the session keeps its label.
    was_stale = memory.superseded_by is not None and memory.updated_at < case.session.started_at
    return "superseded" if was_stale and one.candidate.was_injected else None


def _helped(
    made: Mapping[str, labels.Label], confidence: float, used: Mapping[str, float] | None
) -> dict[str, float]:
    """By memory how much it helped, for history and association.

    A program may name memories that were no candidates: they count here all the same.
    """
    values = {memory_id: label.value for memory_id, label in made.items()}
    values |= dict(used or {})
    sure = 1.0 if used is not None else confidence
    return {
        memory_id: value
        for memory_id, value in values.items()
        if value is not None and labels.is_useful(value, sure)
    }


def _labelled(memory_id: str, label: labels.Label) -> Labelled:
    parts = {
        "rule": label.rule,
        "agent": label.agent,
        "text": label.text,
        "continuity": label.continuity,
        "judge": label.judge,
    }
    return Labelled(memory_id, label.value, parts)


def _usefulness(
    services: Services,
    session: SessionRecord,
    made: Mapping[str, labels.Label],
    now: datetime,
) -> dict[str, Belief]:
    """What is believed of memories by all sessions that were shown them, and all reports.

    What a judge thinks of a memory nobody saw says nothing about its claim.
    """
    told = {one: label for one, label in made.items() if label.value is not None}
    proofs = services.store.proofs(session.user, list(told))
    said = services.store.testimony(session.user, list(told))
    found: dict[str, Belief] = {}
    for memory_id, label in told.items():
        # What this session said before it was labelled anew does not count beside what it says now.
        earlier = [one for one in proofs.get(memory_id, []) if one.session_key != session.key]
        fresh = Proof(
            session.key, session.started_at, label.agent, label.value or 0.0, label.rule == "known"
        )
        found[memory_id] = believed([*earlier, fresh], said.get(memory_id, ()), now)
    return found
