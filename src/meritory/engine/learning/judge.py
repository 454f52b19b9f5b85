"""The judge stage: a finished session is judged blind, in shuffled order and with decoys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np

from meritory.domain.job import Job
from meritory.domain.session import (
    Judged,
    JudgedMemory,
    SessionMemory,
    SessionRecord,
    SessionScore,
    Turn,
    Verdict,
)
from meritory.engine.jobs.runner import Effect, no_effect
from meritory.engine.services import Services
from meritory.ports.judge import Judge
from meritory.rank import labels
from meritory.store.contract.store import Store
from meritory.text.judge.digest import Digest, decode_digest
from meritory.text.transcript import as_text

# A shorter transcript is not judged.
JUDGE_MIN_CHARS = 500
# How many of each ranking a judge sees that cannot look at all candidates.
TOP_COUNT = 10
DECOY_COUNT = 5
KNOWN_BY_PROGRAM = "program"
RATED_BY_AGENT = "agent"
RATED_CONFIDENCE = 0.7
# Fields that a verdict and the stored score of its session share.
_SHARED = ("judge", "score", "confidence", "novel_context_count", "missing_topics", "raw")


def read_session(
    store: Store, job: Job
) -> tuple[SessionRecord, list[SessionMemory], SessionScore | None]:
    """Return the session of a job, its memories and its verdict; every stage reads them again."""
    of = (job.user, job.key)
    return store.session(*of), store.session_memories(*of), store.session_score(*of)


def judge(services: Services, job: Job) -> Effect:
    """Return the effect of a verdict by a program that knows, by the judge or by ratings alone."""
    store, user, key = services.store, job.user, job.key
    session, memories, score = read_session(store, job)
    records = [record for record in memories if record.candidate.source != "fts_only"]
    used = store.used(user, key)
    if used is not None:
        # A program's word is a verdict of full confidence on every candidate.
        judged = [Judged(record.memory_id, used.get(record.memory_id, 0.0)) for record in records]
        verdict = Verdict(score=None, confidence=1.0, relevance=(), judge=KNOWN_BY_PROGRAM)
        return _effect(services, session, records, verdict, judged)
    turns = store.transcript(user, key)
    stored = store.digest(user, key)
    digest = None if stored is None else decode_digest(stored)
    length = max(len(as_text(turns)), digest.char_count if digest else 0)
    if services.judge is None or length < JUDGE_MIN_CHARS:
        if all(record.agent_relevance_score is None for record in records):
            return no_effect
        verdict = Verdict(score=None, confidence=0.0, relevance=(), judge=RATED_BY_AGENT)
        return _effect(services, session, records, verdict, [])
    name, ended_at = services.judge.name, session.ended_at
    is_by_model = score is not None and name != "rules" and score.judge == name
    if score is not None and is_by_model and ended_at is not None and score.at >= ended_at:
        # The session has not gone on since: late ratings are not worth paying a model again.
        judged = [
            Judged(record.memory_id, record.relevance_score, record.is_missing)
            for record in records
        ]
        same = {name: getattr(score, name) for name in _SHARED}
        verdict = Verdict(relevance=(), reasoning=score.continuity_reasoning, **same)
    else:
        verdict, judged = _ask_judge(services, services.judge, session, records, (turns, digest))
    return _effect(services, session, records, verdict, judged)


def _ask_judge(
    services: Services,
    judge: Judge,
    session: SessionRecord,
    records: Sequence[SessionMemory],
    conversation: tuple[Sequence[Turn], Digest | None],
) -> tuple[Verdict, list[Judged]]:
    """Ask about all memories, or a model about those shown, the best ranked and some decoys."""
    secret = services.store.secret()

    def position(record: SessionMemory) -> bytes:
        """Return a key for an order that reveals nothing and is the same in a second run."""
        message = f"shuffle\0{session.key}\0{record.memory_id}".encode("utf-8", "surrogatepass")
        return hmac.new(secret, message, hashlib.sha256).digest()

    pool: list[SessionMemory] = []
    rest: list[SessionMemory] = []
    for record in records:
        candidate = record.candidate
        ranks = (candidate.baseline_rank, candidate.predictor_rank)
        is_top = any(rank is not None and rank <= TOP_COUNT for rank in ranks)
        is_chosen = judge.name == "rules" or candidate.was_injected or is_top
        (pool if is_chosen else rest).append(record)
    # Decoys, evenly over the rest, which is ordered by rank: near misses and far ones.
    decoys = np.unique(np.linspace(0, len(rest) - 1, min(DECOY_COUNT, len(rest))).astype(int))
    pool = sorted([*pool, *(rest[index] for index in decoys.tolist())], key=position)
    memories = services.store.memories(session.user, [record.memory_id for record in pool])
    pool = [record for record in pool if record.memory_id in memories]
    items = [
        JudgedMemory(memory.content, record.candidate.was_injected, memory.provenance)
        for record, memory in ((record, memories[record.memory_id]) for record in pool)
    ]
    turns, digest = conversation
    with services.observer.timed("judge"):
        verdict = judge.judge(turns, items, digest)
    missing = set(verdict.missing)
    judged = [
        Judged(record.memory_id, score, index in missing)
        for index, (record, score) in enumerate(zip(pool, verdict.relevance, strict=True))
    ]
    return verdict, judged


def _effect(
    services: Services,
    session: SessionRecord,
    records: Sequence[SessionMemory],
    verdict: Verdict,
    judged: Sequence[Judged],
) -> Effect:
    """Return the effect that stores a verdict with the confidence that ratings add to it."""
    confidence = max(verdict.confidence, _rated_confidence(records, judged))
    scores = [item.relevance_score for item in judged]
    ratings = [record.agent_relevance_score for record in records]
    score = SessionScore(
        **{name: getattr(verdict, name) for name in _SHARED} | {"confidence": confidence},
        memories_recalled=len(
            {record.memory_id for record in records if record.candidate.was_injected}
        ),
        # Counted from the labels, when they are made.
        memories_used=0,
        at=services.world.now(),
        continuity_reasoning=verdict.reasoning,
        excluded=labels.exclusion(confidence, [*scores, *ratings]),
    )
    return lambda transaction: transaction.put_verdict(session.user, session.key, score, judged)


def _rated_confidence(records: Sequence[SessionMemory], judged: Sequence[Judged]) -> float:
    """Return how sure ratings make the labels: the mean chance of memories likely to have helped.

    Without a judge, ratings are the verdict. Beside one, they count if they differ.
    """
    chance_of = {item.memory_id: item.relevance_score for item in judged}
    pairs = [
        (record.agent_relevance_score, chance_of.get(record.memory_id))
        for record in records
        if record.agent_relevance_score is not None
    ]
    if pairs and not judged:
        return RATED_CONFIDENCE
    ratings = [rating for rating, _ in pairs]
    if len(ratings) < 2 or max(ratings) - min(ratings) < labels.MIN_SCORE_SPREAD:
        return 0.0
    if all(chance is None for _, chance in pairs):
        return RATED_CONFIDENCE
    combined = [
        rating if rating < 0.0 or chance is None else labels.joined(rating, chance)
        for rating, chance in pairs
    ]
    likely = [abs(value) for value in combined if abs(value) >= labels.USEFUL_LABEL]
    return sum(likely) / len(likely) if likely else 0.0
