"""The models of all tenants in PostgreSQL, so that any daemon can serve any tenant."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.predictor import TaughtSession
from meritory.domain.session import ModelRows
from meritory.store.postgres.engine import PostgresEngine
from meritory.store.postgres.vectors import vector_of
from meritory.store.sql.mapper import SqlConnection, as_json
from meritory.store.sql.predictor import taught_sessions


class ModelTable:
    """The table `models`."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    def versions(self, user: str) -> list[int]:
        """The versions there are, the latest first."""
        with self._engine.read(user) as connection:
            found = connection.execute(
                "SELECT version FROM models WHERE user = ? ORDER BY version DESC", (user,)
            )
            return [version for (version,) in found]

    def digest(self, user: str, version: int) -> str | None:
        """The SHA-256 of a model; None without one."""
        found = self._one("digest", user, version)
        return None if found is None else str(found)

    def content(self, user: str, version: int) -> bytes | None:
        """A model; None without one."""
        found = self._one("content", user, version)
        return None if found is None else bytes(found)

    def _one(self, column: str, user: str, version: int) -> Any:
        with self._engine.read(user) as connection:
            found = connection.execute(
                f"SELECT {column} FROM models WHERE user = ? AND version = ?",  # noqa: S608 - ours
                (user, version),
            ).fetchone()
        return found[0] if found else None

    def put(self, user: str, version: int, content: bytes) -> None:
        """Keeps a model under its version, in the place of one that is there."""
        digest = hashlib.sha256(content).hexdigest()
        self._engine.write(
            user,
            lambda connection: connection.execute(
                """INSERT INTO models (user, version, content, digest) VALUES (?, ?, ?, ?)
                    ON CONFLICT (user, version)
                    DO UPDATE SET content = excluded.content, digest = excluded.digest""",
                (user, version, content, digest),
            ),
        )

    def drop(self, user: str, version: int) -> None:
        """Removes a model, if it is there."""
        self._engine.write(
            user,
            lambda connection: connection.execute(
                "DELETE FROM models WHERE user = ? AND version = ?", (user, version)
            ),
        )


# One reads, and one stores a model.
_CONNECTIONS = 2


class PostgresReader:
    """What training and scoring read; of writing it knows models only."""

    def __init__(self, url: str) -> None:
        self._engine = PostgresEngine(url, _CONNECTIONS)
        self.models: ModelRows | None = ModelTable(self._engine)

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """The latest judged sessions that count, oldest first."""
        with self._engine.read(user) as connection:
            return taught_sessions(connection, user, feature_version, limit)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The stored vectors of memories; one without is missing from the answer."""
        with self._engine.read(user) as connection:
            return stored_vectors(connection, user, embedder, memory_ids)

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""
        with self._engine.read(user) as connection:
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
    connection: SqlConnection, user: str, embedder: str, memory_ids: Sequence[str]
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
