"""One storage contract and two backends: SQLite for a file, PostgreSQL for an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meritory.domain.place import Place

if TYPE_CHECKING:
    from meritory.store.contract.store import Store
    from meritory.store.sql.predictor import TaughtReader

POOL_SIZE = 16


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
        from meritory.store.sqlite.engine import StoreReader

        return StoreReader(place.file)
    from meritory.store.postgres.store import PostgresStore

    # One connection reads, and one stores a model.
    return PostgresStore(place.url, 2)
