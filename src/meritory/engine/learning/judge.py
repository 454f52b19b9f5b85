"""Puts a finished session before its judge: blind, shuffled, with decoys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

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
from meritory.rank import labels
from meritory.text.judge.digest import Digest, decode_digest
from meritory.text.transcript import as_text

# Shorter talks have nothing to judge by.
JUDGE_MIN_CHARS = 500
# Of each ranking, for a judge that cannot look at everything.
TOP_COUNT = 10
DECOY_COUNT = 5
KNOWN_BY_PROGRAM = "program"
RATED_BY_AGENT = "agent"
RATED_CONFIDENCE = 0.7


def judge(services: Services, job: Job) -> Effect:
    """The stage: what the judge, or a program that knows, says about a session."""
    store = services.store
    session = store.session(job.user, job.key)
    records = [
        one
        for one in store.session_memories(job.user, job.key)
        if one.candidate.source != "fts_only"
    ]
    used = store.used(job.user, job.key)
    if used is not None:
        return _known(services, session, records, used)
    told = store.transcript(job.user, job.key)
    digest = _digest(services, session)
    length = max(len(as_text(told)), digest.char_count if digest else 0)
    if services.judge is None or length < JUDGE_MIN_CHARS:
        return _unjudged(services, session, records)
    known = store.session_score(job.user, job.key)
    if (
        known is not None
        and known.judge == services.judge.name != "rules"
        and _holds(known, session)
    ):
        # Late ratings are no reason to pay a model for the same verdict again.
        judged = [Judged(one.memory_id, one.relevance_score, one.is_missing) for one in records]
        return _effect(services, session, records, _verdict_of(known), judged)
    return _judged(services, session, records, (told, digest))


def _digest(services: Services, session: SessionRecord) -> Digest | None:
    """Return the digest of the whole session, if one was stored."""
    stored = services.store.digest(session.user, session.key)
    return None if stored is None else decode_digest(stored)


def _holds(score: SessionScore, session: SessionRecord) -> bool:
    """Whether the session has not gone on since it was judged."""
    return session.ended_at is not None and score.at >= session.ended_at


def _verdict_of(score: SessionScore) -> Verdict:
    return Verdict(
        score=score.score,
        confidence=score.confidence,
        relevance=(),
        missing_topics=score.missing_topics,
        novel_context_count=score.novel_context_count,
        reasoning=score.continuity_reasoning,
        raw=score.raw,
        judge=score.judge,
    )


def _unjudged(
    services: Services, session: SessionRecord, records: Sequence[SessionMemory]
) -> Effect:
    """Nothing to judge by: then the agent's ratings, if there are any, stand alone."""
    if all(one.agent_relevance_score is None for one in records):
        return no_effect
    verdict = Verdict(score=None, confidence=0.0, relevance=(), judge=RATED_BY_AGENT)
    return _effect(services, session, records, verdict, [])


def _known(
    services: Services,
    session: SessionRecord,
    records: Sequence[SessionMemory],
    used: Mapping[str, float],
) -> Effect:
    """A program's word is a verdict of full confidence on every candidate."""
    judged = [Judged(one.memory_id, used.get(one.memory_id, 0.0)) for one in records]
    verdict = Verdict(score=None, confidence=1.0, relevance=(), judge=KNOWN_BY_PROGRAM)
    return _effect(services, session, records, verdict, judged)


def _judged(
    services: Services,
    session: SessionRecord,
    records: Sequence[SessionMemory],
    happened: tuple[Sequence[Turn], Digest | None],
) -> Effect:
    chosen = services.judge
    if chosen is None:
        return no_effect
    pool = _shuffled(services, session, records if chosen.name == "rules" else _few(records))
    texts = services.store.memories(session.user, [one.memory_id for one in pool])
    kept = [one for one in pool if one.memory_id in texts]
    exhibits = [
        JudgedMemory(
            texts[one.memory_id].content,
            one.candidate.was_injected,
            texts[one.memory_id].provenance,
        )
        for one in kept
    ]
    with services.observer.timed("judge"):
        verdict = chosen.judge(happened[0], exhibits, happened[1])
    missing = set(verdict.missing)
    judged = [
        Judged(one.memory_id, score, place in missing)
        for place, (one, score) in enumerate(zip(kept, verdict.relevance, strict=True))
    ]
    return _effect(services, session, records, verdict, judged)


def _effect(
    services: Services,
    session: SessionRecord,
    records: Sequence[SessionMemory],
    verdict: Verdict,
    judged: Sequence[Judged],
) -> Effect:
    shown = {one.memory_id for one in records if one.candidate.was_injected}
    rated = [one.agent_relevance_score for one in records]
    scores = [one.relevance_score for one in judged]
    confidence = max(verdict.confidence, _rated_confidence(records, judged))
    heard = None if verdict.judge == RATED_BY_AGENT and not confidence else confidence
    score = SessionScore(
        judge=verdict.judge,
        score=verdict.score,
        confidence=confidence,
        memories_recalled=len(shown),
        # Counted from the labels, when they are made.
        memories_used=0,
        at=services.world.now(),
        novel_context_count=verdict.novel_context_count,
        missing_topics=verdict.missing_topics,
        continuity_reasoning=verdict.reasoning,
        raw=verdict.raw,
        excluded=labels.exclusion(heard, [*scores, *rated]),
    )
    return lambda transaction: transaction.put_verdict(session.user, session.key, score, judged)


def _rated_confidence(records: Sequence[SessionMemory], judged: Sequence[Judged]) -> float:
    """Return how sure ratings make the labels: the mean chance of what is likely to have helped.

    Without a judge beside them, ratings that tell memories apart are evidence enough.
    """
    chances = {one.memory_id: one.relevance_score for one in judged}
    known = [
        (one.agent_relevance_score, chances.get(one.memory_id))
        for one in records
        if one.agent_relevance_score is not None
    ]
    ratings = [rating for rating, _ in known]
    if len(ratings) < 2 or max(ratings) - min(ratings) < labels.MIN_SCORE_SPREAD:
        return 0.0
    if all(chance is None for _, chance in known):
        return RATED_CONFIDENCE
    combined = [
        rating if rating < 0.0 or chance is None else labels.joined(rating, chance)
        for rating, chance in known
    ]
    likely = [abs(value) for value in combined if abs(value) >= labels.USEFUL_LABEL]
    return sum(likely) / len(likely) if likely else 0.0


def _few(records: Sequence[SessionMemory]) -> list[SessionMemory]:
    """What was shown, the best of both rankings, and some decoys from the rest."""
    inside = [
        one
        for one in records
        if one.candidate.was_injected
        or _is_top(one.candidate.baseline_rank)
        or _is_top(one.candidate.predictor_rank)
    ]
    known = {one.memory_id for one in inside}
    rest = [one for one in records if one.memory_id not in known]
    # Evenly over the rest, which stands by rank: near misses and far ones.
    places = np.unique(np.linspace(0, len(rest) - 1, min(DECOY_COUNT, len(rest))).astype(int))
    return [*inside, *(rest[place] for place in places.tolist())]


def _is_top(rank: int | None) -> bool:
    return rank is not None and rank <= TOP_COUNT


def _shuffled(
    services: Services, session: SessionRecord, records: Sequence[SessionMemory]
) -> list[SessionMemory]:
    """In an order that tells nothing, and is the same when the job is run again."""
    secret = services.store.secret()

    def place(one: SessionMemory) -> bytes:
        message = f"shuffle\0{session.key}\0{one.memory_id}".encode("utf-8", "surrogatepass")
        return hmac.new(secret, message, hashlib.sha256).digest()

    return sorted(records, key=place)
