"""Checks, backups, closing."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.builders import insert, memory_id, record
from meritory.domain.errors import InputError, StorageError
from meritory.store.contract.store import Store


class Care:
    def test_a_sound_store_has_nothing_to_complain_about(self, store: Store) -> None:
        insert(store, *(record(n) for n in range(50)))
        assert store.check(deep=False) == []
        assert store.check(deep=True) == []

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
