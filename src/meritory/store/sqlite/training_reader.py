"""A read-only SQLite store for the processes that train and score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meritory.domain.predictor import TaughtSession
from meritory.domain.session import ModelRows
from meritory.store.sql.mapper import as_json
from meritory.store.sql.predictor import stored_vectors, taught_sessions
from meritory.store.sqlite.engine import connect, translated


class StoreReader:
    """A store file opened read-only."""

    models: ModelRows | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated(path):
            self._connection = connect(path, write=False)
            self._connection.execute("PRAGMA query_only = ON")
            # Small: the readers cache what they need.
            self._connection.execute("PRAGMA cache_size = -2048")

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """Return the latest judged sessions that count, oldest first."""
        with translated(self._path):
            return taught_sessions(self._connection, user, feature_version, limit)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of memories by id; leave out those without one."""
        with translated(self._path):
            return stored_vectors(self._connection, user, embedder, memory_ids)

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of memories by id; leave out those that are gone."""
        with translated(self._path):
            rows = self._connection.execute(
                """SELECT id, content FROM memories WHERE user = :user
                    AND id IN (SELECT value FROM json_each(:ids))""",
                {"user": user, "ids": as_json(memory_ids)},
            )
            return dict(rows.fetchall())

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
