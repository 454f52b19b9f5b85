"""Opens the store of a place, with the engine that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.domain.place import Place
from meritory.domain.predictor import TaughtSession
from meritory.domain.session import ModelRows
from meritory.store.contract.store import Store

POOL_SIZE = 16


class TaughtReader(Protocol):
    """A store opened by somebody who may only look at what there is to learn from."""

    # Where the models lie when they are not in files.
    models: ModelRows | None

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """The latest judged sessions that count, oldest first."""

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The stored vectors of memories; one without is missing from the answer."""

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""

    def close(self) -> None:
        """Lets go of the store."""


def open_store(place: Place, pool_size: int = POOL_SIZE) -> Store:
    """The store of a place, made if it is not there yet."""
    # Each is imported where it is needed: a driver takes its time to load.
    if place.file is not None:
        from meritory.store.sqlite.store import SqliteStore

        return SqliteStore(place.file)
    from meritory.store.postgres.store import PostgresStore

    return PostgresStore(place.url, pool_size)


def open_reader(place: Place) -> TaughtReader:
    """The store of a place for somebody who learns from it."""
    if place.file is not None:
        from meritory.store.sqlite.training_reader import StoreReader

        return StoreReader(place.file)
    from meritory.store.postgres.training_reader import PostgresReader

    return PostgresReader(place.url)
