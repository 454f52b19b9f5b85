"""Sessions and their candidates as database rows, read back."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from meritory.codec import parse_moment
from meritory.errors import Corrupt, InputError
from meritory.store.sessions import Event, SessionRecord, SessionScore
from meritory.types import Candidate, SessionMemory, Turn

SELECT_SESSION = """SELECT user, key, agent, project, harness, cwd, state, context, has_prompt,
    embedder, context_vector, gap_hours, alpha, started_at, ended_at, prompt_count,
    injection_count, handle_count, is_explained, summary, scorer, model_version FROM sessions"""
SELECT_CANDIDATE = """SELECT memory_id, source, origins, effective_score, composite_score,
    predictor_score, final_score, rank, baseline_rank, predictor_rank, was_injected, propensity,
    features, feature_version, handle, injection, in_context, is_harmful, relevance_score,
    is_missing, fts_hit_count, agent_relevance_score, agent_feedback_count, label, label_parts
    FROM session_memories"""
SELECT_SCORE = """SELECT judge, score, confidence, memories_recalled, memories_used, at,
    novel_context_count, missing_topics, continuity_reasoning, raw, excluded FROM session_scores"""
SELECT_EVENT = """SELECT at, category, name, session_key, memory_id, request_id, details
    FROM events"""


def moment(text: str) -> datetime:
    """A stored moment; Corrupt when it is none."""
    try:
        return parse_moment(text)
    except InputError as error:
        raise Corrupt(f"a stored moment cannot be read: {error.message}") from error


def decode_session(row: Sequence[Any]) -> SessionRecord:
    """The session of a `SELECT_SESSION` row."""
    vector = None if row[10] is None else np.frombuffer(row[10], np.float32)
    return SessionRecord(
        user=row[0],
        key=row[1],
        agent=row[2],
        project=row[3],
        harness=row[4],
        cwd=row[5],
        state=row[6],
        context=row[7],
        has_prompt=bool(row[8]),
        embedder=row[9],
        context_vector=vector,
        gap_hours=row[11],
        alpha=row[12],
        started_at=moment(row[13]),
        ended_at=None if row[14] is None else moment(row[14]),
        prompt_count=row[15],
        injection_count=row[16],
        handle_count=row[17],
        is_explained=bool(row[18]),
        summary=row[19],
        scorer=row[20],
        model_version=row[21],
    )


@functools.lru_cache(maxsize=256)
def _origins(text: str) -> tuple[str, ...]:
    """There are few ways to be found, and many rows that tell them."""
    return tuple(json.loads(text))


def decode_candidate(row: Sequence[Any]) -> SessionMemory:
    """The candidate of a `SELECT_CANDIDATE` row."""
    served = Candidate(
        memory_id=row[0],
        source=row[1],
        origins=_origins(row[2]),
        effective_score=row[3],
        composite_score=row[4],
        predictor_score=row[5],
        final_score=row[6],
        rank=row[7],
        baseline_rank=row[8],
        predictor_rank=row[9],
        was_injected=bool(row[10]),
        propensity=row[11],
        features=struct.unpack(f"={len(row[12]) // 8}d", row[12]),
        feature_version=row[13],
    )
    return SessionMemory(
        candidate=served,
        handle=row[14],
        injection=row[15],
        in_context=bool(row[16]),
        is_harmful=bool(row[17]),
        relevance_score=row[18],
        is_missing=bool(row[19]),
        fts_hit_count=row[20],
        agent_relevance_score=row[21],
        agent_feedback_count=row[22],
        label=row[23],
        label_parts=json.loads(row[24]) if row[24] else {},
    )


def decode_score(row: Sequence[Any]) -> SessionScore:
    """The verdict of a `SELECT_SCORE` row."""
    return SessionScore(
        judge=row[0],
        score=row[1],
        confidence=row[2],
        memories_recalled=row[3],
        memories_used=row[4],
        at=moment(row[5]),
        novel_context_count=row[6],
        missing_topics=tuple(json.loads(row[7])),
        continuity_reasoning=row[8],
        raw=row[9],
        excluded=row[10],
    )


def decode_event(row: Sequence[Any]) -> Event:
    """The event of a `SELECT_EVENT` row."""
    return Event(
        at=moment(row[0]),
        category=row[1],
        name=row[2],
        session_key=row[3],
        memory_id=row[4],
        request_id=row[5],
        details=json.loads(row[6]),
    )


def decode_turns(text: str | None) -> tuple[Turn, ...]:
    """A transcript as it was stored."""
    return tuple(Turn(role, said) for role, said in json.loads(text)) if text else ()
