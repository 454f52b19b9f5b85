"""What both databases have in common for whoever speaks SQL to them.

The statements of the store are written once, in the SQL that SQLite and PostgreSQL share; where
they differ, PostgreSQL's connection translates (`meritory.store.postgres.dialect`) or a verb is
written a second time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.domain.codec import moment_text, parse_moment, source_to_dict
from meritory.domain.errors import Corrupt, InputError
from meritory.domain.memory import MemoryRecord, Source
from meritory.domain.session import (
    Candidate,
    Event,
    SessionMemory,
    SessionRecord,
    SessionScore,
    Turn,
)


class Cursor(Protocol):
    """What a statement brought."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""

    def fetchone(self) -> Any:
        """The next row, None after the last."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """The next few rows."""

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""


class SqlConnection(Protocol):
    """One connection inside a transaction."""

    def execute(self, statement: str, values: Any = ..., /) -> Cursor:
        """Runs a statement with `?` or `:name` in place of its values."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Cursor:
        """Runs a statement once for every row of values."""


class SqlReader(Protocol):
    """Where reads get their connection."""

    def read(self) -> AbstractContextManager[SqlConnection]:
        """A connection for reads of one user, for the length of the block."""

    def read_across(self) -> AbstractContextManager[SqlConnection]:
        """A connection for the few reads that are about all users together."""


# Order matters: `durable` and `decode` walk the same list.
DURABLE = (
    "id",
    "content",
    "kind",
    "user",
    "agent",
    "project",
    "provenance",
    "origin",
    "trust",
    "confidence",
    "importance",
    "pinned",
    "demotion",
    "tags",
    "sources",
    "valid_from",
    "valid_until",
    "created_at",
    "updated_at",
    "superseded_by",
    "deleted_at",
)
MEMORY_COLUMNS = (
    *(name for name in DURABLE if name not in ("agent", "project")),
    "scope",
    "words",
    "content_hash",
    "session_key",
    "turn",
    "change",
    "row_hash",
)
SELECT_RECORD = """
    SELECT m.row, m.id, m.content, m.kind, m.user, s.agent, s.project, m.provenance, m.origin,
        m.trust, m.confidence, m.importance, m.pinned, m.demotion, m.tags, m.sources,
        m.valid_from, m.valid_until, m.created_at, m.updated_at, m.superseded_by, m.deleted_at,
        m.row_hash, t.access_count, t.last_accessed, t.usefulness, e.name, e.dimension
    FROM memories m
    JOIN scopes s ON s.scope = m.scope
    JOIN memory_stats t ON t.row = m.row
    LEFT JOIN memory_vectors v ON v.row = m.row AND length(v.vector) > 0
        AND v.embedder = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')
    LEFT JOIN embedders e ON e.embedder = v.embedder
"""
_MOMENTS = frozenset(
    {"valid_from", "valid_until", "created_at", "updated_at", "deleted_at", "last_accessed"}
)
# Made once: every record that is read is hashed.
_HASHED_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")


def durable(record: MemoryRecord) -> dict[str, Any]:
    """The durable fields as the database holds them."""
    values = {name: getattr(record, name) for name in DURABLE}
    for name in _MOMENTS & values.keys():
        if values[name] is not None:
            values[name] = moment_text(values[name])
    values["pinned"] = int(record.pinned)
    # SQLite keeps no negative zero: hashed as it is, the row would look damaged when read.
    values["confidence"] = float(record.confidence) + 0.0
    values["importance"] = float(record.importance) + 0.0
    values["tags"] = json.dumps(record.tags, ensure_ascii=False)
    values["sources"] = json.dumps(
        [source_to_dict(source) for source in record.sources], ensure_ascii=False
    )
    return values


def row_hash(values: Sequence[Any]) -> bytes:
    """The hash of the durable values, in the order of `DURABLE`."""
    # Only a damaged row can hold bytes; any text in their place gives another hash.
    return hashlib.blake2b(_HASHED_TEXT(list(values)).encode(), digest_size=16).digest()


def turn_number(locator: str | None) -> int | None:
    """The place of a turn in its session: the last number in its locator."""
    found = _LAST_NUMBER.search(locator) if locator else None
    return int(found.group(1)) if found else None


def decode(row: Sequence[Any]) -> MemoryRecord:
    """The memory of a `SELECT_RECORD` row; Corrupt when its hash does not fit."""
    values = row[1 : 1 + len(DURABLE)]
    stored_hash, access_count, last_accessed, usefulness, embedder, dimension = row[
        1 + len(DURABLE) :
    ]
    if row_hash(values) != stored_hash:
        raise Corrupt(
            f"memory {values[0]} does not match its hash",
            hint="run `meritory doctor --deep`; a backup may still hold the good text",
        )
    fields: dict[str, Any] = dict(zip(DURABLE, values, strict=True))
    fields["pinned"] = bool(fields["pinned"])
    # Most memories have none.
    fields["tags"] = () if fields["tags"] == "[]" else tuple(json.loads(fields["tags"]))
    told = () if fields["sources"] == "[]" else json.loads(fields["sources"])
    fields["sources"] = tuple(Source(**source) for source in told)
    fields["last_accessed"] = last_accessed
    try:
        for name in _MOMENTS:
            if fields[name] is not None:
                fields[name] = parse_moment(fields[name], name)
    except InputError as error:  # counters have no hash
        raise Corrupt(f"memory {values[0]}: {error.message}") from error
    return MemoryRecord(
        access_count=access_count,
        usefulness=usefulness,
        embedder=embedder,
        dimension=dimension,
        **fields,
    )


def vector_blob(vector: NDArray[np.float32], dimension: int) -> bytes:
    """A unit vector as bytes; nothing at all for the zero vector, which means there is none."""
    if vector.shape != (dimension,) or not np.isfinite(vector).all():
        raise InputError(f"a vector must have {dimension} finite numbers")
    return np.ascontiguousarray(vector, np.float32).tobytes() if np.any(vector) else b""


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
