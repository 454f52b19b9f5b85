"""Open the store of a place: SQLite for a file, PostgreSQL for a database address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.domain.place import Place
from meritory.domain.predictor import TaughtSession
from meritory.domain.session import ModelRows

if TYPE_CHECKING:
    from meritory.store.contract.store import Store

POOL_SIZE = 16


class TaughtReader(Protocol):
    """A read-only store for the processes that train and score."""

    # None if the models are files next to the store.
    models: ModelRows | None

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """Return the latest judged sessions that count, oldest first."""

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of memories by id; leave out those without one."""

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of memories by id; leave out those that are gone."""

    def close(self) -> None:
        """Close the store."""


def open_store(place: Place, pool_size: int = POOL_SIZE) -> Store:
    """Open the store of a place; create it if it does not exist."""
    # Imported here: a driver takes long to load.
    if place.file is not None:
        from meritory.store.sqlite.store import SqliteStore

        return SqliteStore(place.file)
    from meritory.store.postgres.store import PostgresStore

    return PostgresStore(place.url, pool_size)


def open_reader(place: Place) -> TaughtReader:
    """Open the store of a place for training and scoring."""
    if place.file is not None:
        from meritory.store.sqlite.training_reader import StoreReader

        return StoreReader(place.file)
    from meritory.store.postgres.store import PostgresStore

    # One connection reads, and one stores a model.
    return PostgresStore(place.url, 2)
