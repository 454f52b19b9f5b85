"""Checks, backups, closing."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.builders import EMBEDDER, about, indexed, insert, memory_id, record, unit, update
from contract.shelf import Shelf
from tenure.errors import InputError, StorageError
from tenure.store.base import Store


class Care:
    def test_a_sound_store_has_nothing_to_complain_about(self, store: Store) -> None:
        insert(store, *(record(n) for n in range(50)))
        assert store.check(deep=False) == []
        assert store.check(deep=True) == []

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
        store.write(lambda t: t.count("default", "n", 5))
        target = tmp_path / "copies" / "tenure.db"
        target.parent.mkdir()
        store.backup(target)
        insert(store, record(3))
        copy = Shelf(target.parent, self.make_store).store  # type: ignore[attr-defined]
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

    def test_a_backup_never_overwrites(self, store: Store, tmp_path: Path) -> None:
        target = tmp_path / "there"
        target.write_text("mine")
        with pytest.raises(InputError):
            store.backup(target)
        assert target.read_text() == "mine"
        with pytest.raises(InputError):
            store.backup(tmp_path)
        with pytest.raises(InputError):
            store.backup(tmp_path / "no such folder" / "copy")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["shelf", "there"]

    def test_closing_twice_is_fine_and_a_closed_store_says_so(self, store: Store) -> None:
        insert(store, record(1))
        store.close()
        store.close()
        with pytest.raises(StorageError, match="closed"):
            store.get("default", memory_id(1))
        with pytest.raises(StorageError, match="closed"):
            insert(store, record(2))
