"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.shelf import Shelf
from contract.store_contract import StoreContract
from meritory.store.postgres.store import PostgresStore
from postgres_kit import Server, tables_with


class _DatabaseShelf(Shelf):
    """A shelf whose store is a database: what is searched for traces are all rows of all tables."""

    address: str

    def files_with(self, needle: str) -> list[str]:
        return tables_with(self.address, needle)


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres: Server) -> Iterator[None]:
        self._addresses: dict[Path, str] = {}
        self._postgres = postgres
        yield
        for address in self._addresses.values():
            postgres.give_back(address)

    def make_store(self, folder: Path) -> PostgresStore:
        if folder not in self._addresses:
            self._addresses[folder] = self._postgres.fresh()
        return PostgresStore(self._addresses[folder])

    @pytest.fixture
    def shelf(self, tmp_path: Path) -> Iterator[Shelf]:
        folder = tmp_path / "shelf"
        folder.mkdir()
        held = _DatabaseShelf(folder, self.make_store)
        held.address = self._addresses[folder]
        yield held
        held.store.close()
