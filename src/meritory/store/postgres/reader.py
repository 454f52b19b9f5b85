"""A PostgreSQL store opened by somebody who learns from it, and keeps models there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meritory.store.postgres.engine import Engine
from meritory.store.postgres.models import ModelTable
from meritory.store.postgres.vectors import vector_of
from meritory.store.predictor import TaughtSession
from meritory.store.reads import as_json
from meritory.store.sql import Connection
from meritory.store.taught import taught_sessions
from meritory.types import ModelRows

# One asks, and one more may keep a model meanwhile.
_CONNECTIONS = 2


class PostgresReader:
    """What training and scoring read; of writing it knows models only."""

    def __init__(self, url: str) -> None:
        self._engine = Engine(url, _CONNECTIONS)
        self.models: ModelRows | None = ModelTable(self._engine)

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """The latest judged sessions that count, oldest first."""
        with self._engine.read() as connection:
            return taught_sessions(connection, user, feature_version, limit)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The stored vectors of memories; one without is missing from the answer."""
        with self._engine.read() as connection:
            return stored_vectors(connection, user, embedder, memory_ids)

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""
        with self._engine.read() as connection:
            found = connection.execute(
                """SELECT id, content FROM memories WHERE user = :user
                    AND id IN (SELECT value FROM json_each(:ids))""",
                {"user": user, "ids": as_json(memory_ids)},
            )
            return dict(found.fetchall())

    def close(self) -> None:
        """Lets go of every connection."""
        self._engine.close()


def stored_vectors(
    connection: Connection, user: str, embedder: str, memory_ids: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """The stored vectors of memories; one without is missing from the answer."""
    rows = connection.execute(
        """SELECT m.id, v.vector FROM memories m
            JOIN memory_vectors v ON v.row = m.row AND v.vector IS NOT NULL
            JOIN embedders e ON e.embedder = v.embedder AND e.name = :embedder
            WHERE m.user = :user AND m.id IN (SELECT value FROM json_each(:ids))""",
        {"user": user, "embedder": embedder, "ids": as_json(memory_ids)},
    ).fetchall()
    return {memory_id: vector_of(sent) for memory_id, sent in rows}
