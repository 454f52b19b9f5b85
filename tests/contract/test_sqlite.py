"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

from contract.builders import EMBEDDER, about, indexed, insert, memory_id, record, unit, update
from contract.shelf import Shelf
from contract.store_contract import StoreContract
from meritory.store.sqlite.store import SqliteStore


class TestSqliteStore(StoreContract):
    def make_store(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "meritory.db")

    def test_a_backup_holds_everything_and_is_a_store(self, shelf: Shelf, tmp_path: Path) -> None:
        store = shelf.store
        store.register_embedder(EMBEDDER)
        insert(
            store,
            indexed(
                record(1),
                vectors={EMBEDDER.name: unit(1, 0, 0, 0)},
                attributes=(about("thing"),),
            ),
            record(2, user="other"),
        )
        update(store, record(1), record(1, "changed"))
        store.write("default", lambda t: t.count("default", "n", 5))
        target = tmp_path / "copies" / "meritory.db"
        target.parent.mkdir()
        store.backup(target)
        insert(store, record(3))
        copy = Shelf(target.parent, self.make_store).store
        try:
            assert [m.content for m in copy.walk("default")] == ["changed"]
            assert copy.users() == ["default", "other"]
            assert copy.history("default", memory_id(1)) == store.history("default", memory_id(1))
            assert copy.counters("default") == {"n": 5}
            assert copy.serving_embedder() == EMBEDDER
            assert copy.check(deep=True) == []
            insert(copy, record(9))
            assert copy.get("default", memory_id(9)) == record(9)
        finally:
            copy.close()
