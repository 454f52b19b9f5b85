"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

from contract.store_contract import StoreContract
from tenure.store.sqlite import SqliteStore


class TestSqliteStore(StoreContract):
    def make_store(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "tenure.db")
