"""Judged sessions as they were served, read to learn from; also by a process that cannot write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.predictor import TaughtSession
from meritory.domain.session import ModelRows
from meritory.store.sql.memory_reads import as_json
from meritory.store.sql.rows import SqlConnection, moment
from meritory.store.sqlite.engine import connect, translated

_SESSIONS = """SELECT s.session, s.key, s.started_at, s.project, s.context, s.embedder,
        s.context_vector, c.session IS NOT NULL AND c.retired_at IS NULL
    FROM sessions s JOIN session_scores j ON j.session = s.session AND j.excluded IS NULL
    LEFT JOIN predictor_canary c ON c.session = s.session
    WHERE s.user = :user AND s.learned IS NOT NULL
        AND EXISTS (SELECT 1 FROM session_memories m WHERE m.session = s.session
            AND m.label > 0 AND m.source <> 'fts_only' AND m.feature_version = :version)
    ORDER BY s.started_at DESC, s.session DESC LIMIT :limit"""
_CANDIDATES = """SELECT memory_id, features, label, json_extract(label_parts, '$.rule'),
        was_injected, baseline_rank, coalesce(predictor_rank, 0)
    FROM session_memories
    WHERE session = ? AND source <> 'fts_only' AND baseline_rank IS NOT NULL
        AND feature_version = ? ORDER BY baseline_rank, memory_id"""


def taught_sessions(
    connection: SqlConnection, user: str, feature_version: int, limit: int
) -> list[TaughtSession]:
    """The latest judged sessions that count, oldest first."""
    names = {"user": user, "version": feature_version, "limit": limit}
    rows = connection.execute(_SESSIONS, names).fetchall()[::-1]
    served = (connection.execute(_CANDIDATES, (row[0], feature_version)).fetchall() for row in rows)
    # What was erased since has no candidates left.
    return [_taught(*pair) for pair in zip(rows, served, strict=True) if pair[1]]


def stored_vectors(
    connection: SqlConnection, user: str, embedder: str, memory_ids: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """The stored vectors of memories; one without is missing from the answer."""
    rows = connection.execute(
        """SELECT m.id, v.vector FROM memories m
            JOIN memory_vectors v ON v.row = m.row
            JOIN embedders e ON e.embedder = v.embedder AND e.name = :embedder
                AND length(v.vector) = 4 * e.dimension
            WHERE m.user = :user AND m.id IN (SELECT value FROM json_each(:ids))""",
        {"user": user, "embedder": embedder, "ids": as_json(memory_ids)},
    )
    return {one: np.frombuffer(vector, np.float32) for one, vector in rows}


def _taught(row: Sequence[Any], candidates: Sequence[Sequence[Any]]) -> TaughtSession:
    _, key, started_at, project, context, embedder, vector, is_canary = row
    ids, packed, labels, rules, injected, baseline, predictor = zip(*candidates, strict=True)
    table = np.frombuffer(b"".join(packed), np.float64).reshape(len(ids), -1)
    return TaughtSession(
        key=key,
        started_at=moment(started_at),
        project=project,
        context=context,
        embedder=embedder,
        context_vector=None if vector is None else np.frombuffer(vector, np.float32),
        memory_ids=ids,
        features=table,
        labels=np.array([np.nan if one is None else one for one in labels], np.float64),
        rules=tuple(rule or "" for rule in rules),
        was_injected=np.array(injected, np.bool_),
        baseline_ranks=np.array(baseline, np.int64),
        predictor_ranks=np.array(predictor, np.int64),
        is_canary=bool(is_canary),
    )


class StoreReader:
    """A store file opened by somebody who may only look: it cannot write even by mistake."""

    models: ModelRows | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated(path):
            self._connection = connect(path, write=False)
            self._connection.execute("PRAGMA query_only = ON")
            # Small: its readers hold what they need themselves.
            self._connection.execute("PRAGMA cache_size = -2048")

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """The latest judged sessions that count, oldest first."""
        with translated(self._path):
            return taught_sessions(self._connection, user, feature_version, limit)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The stored vectors of memories; one without is missing from the answer."""
        with translated(self._path):
            return stored_vectors(self._connection, user, embedder, memory_ids)

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""
        rows = self._rows(
            """SELECT id, content FROM memories WHERE user = :user
                AND id IN (SELECT value FROM json_each(:ids))""",
            {"user": user, "ids": as_json(memory_ids)},
        )
        return dict(rows)

    def _rows(self, statement: str, names: Mapping[str, Any]) -> list[Any]:
        with translated(self._path):
            return self._connection.execute(statement, names).fetchall()

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()
