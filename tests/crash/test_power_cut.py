"""A power cut loses nothing acknowledged and breaks nothing, on our schema, pragmas and verbs.

The controls weaken one pragma each; if they show no damage, the harness is broken, not the disk.
MERITORY_TEST_CUTS sets the number of cuts.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from contract.builders import about, change, indexed, record
from crash.volatile import Disk
from meritory.domain.errors import StorageError
from meritory.store.sql.store import SqlTransaction
from meritory.store.sqlite import engine
from meritory.store.sqlite.schema import MIGRATIONS, row_checksum
from meritory.store.sqlite.store import SqliteStore

CUTS = int(os.environ.get("MERITORY_TEST_CUTS", "1000"))
CONTROL_CUTS = 150
CUTS_A_LIFE = 15
COMMITS_A_LIFE = 12
BATCH_SIZE = 3
CHECKPOINT_PAGES = 24


class Life:
    """One store's life on a volatile disk, with cuts at random moments of it."""

    def __init__(self, seed: int, synchronous: str) -> None:
        self.chance = random.Random(seed)
        self.disk = Disk(f"volatile-{seed}-{synchronous}")
        self.acknowledged = 0
        # What each cut left of the files, and what had been acknowledged by then.
        self.cuts: list[tuple[dict[str, bytes], int]] = []
        self._connection = self._open(synchronous)

    def _open(self, synchronous: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection("store", flags, self.disk.name)
        # Without shared memory the log needs this; what is synced when does not change.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.create_scalar_function("row_checksum", row_checksum, deterministic=True)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        for migration in MIGRATIONS:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {migration.version}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    def live(self) -> None:
        """Writes batch after batch; the power is cut before some of the disk's operations."""
        self.disk.on_change = self._maybe_cut
        for batch in range(COMMITS_A_LIFE):
            self._connection.execute("BEGIN IMMEDIATE")
            transaction = SqlTransaction(self._connection, None)  # type: ignore[arg-type]
            for item in range(BATCH_SIZE):
                self._write(transaction, batch, item)
            self._connection.execute("COMMIT")
            self.acknowledged += 1
            if self.chance.random() < 0.3:
                self._cut()
        self.disk.on_change = lambda: None
        self._connection.close()
        self.disk.unregister()

    def _write(self, transaction: SqlTransaction, batch: int, item: int) -> None:
        memory = record(batch * 100 + item, f"batch {batch} " + "x" * self.chance.randrange(900))
        transaction.insert(indexed(memory, attributes=(about(f"topic {item}"),)), change())
        changed = replace(memory, importance=0.9)
        transaction.update(indexed(changed), change("update", before=memory))

    def _maybe_cut(self) -> None:
        if self.chance.random() < 0.04 and len(self.cuts) < CUTS_A_LIFE:
            self._cut()

    def _cut(self) -> None:
        left = {name: file.after_cut(self.chance) for name, file in self.disk.files.items()}
        self.cuts.append((left, self.acknowledged))


def verdict(folder: Path, left: dict[str, bytes], acknowledged: int) -> str:
    """What our own store makes of the files that a cut left."""
    path = folder / "meritory.db"
    for name, content in left.items():
        path.with_name(path.name + name.removeprefix("store")).write_bytes(content)
    try:
        store = SqliteStore(path)
    except StorageError:
        return "corrupt"
    try:
        found = Counter(int(memory.id) // 100 for memory in store.walk("default"))
        if store.check(deep=True):
            return "corrupt"
    except StorageError:
        return "corrupt"
    finally:
        store.close()
    if set(found.values()) - {BATCH_SIZE} or sorted(found) != list(range(len(found))):
        return "partial"
    return "lost" if len(found) < acknowledged else "whole"


def verdicts(tmp_path: Path, synchronous: str, cuts: int) -> Counter[str]:
    counted: Counter[str] = Counter()
    seed = 0
    while counted.total() < cuts:
        life = Life(seed, synchronous)
        life.live()
        for number, (left, acknowledged) in enumerate(life.cuts):
            folder = tmp_path / f"{seed}-{number}"
            folder.mkdir()
            counted[verdict(folder, left, acknowledged)] += 1
            for file in folder.iterdir():
                file.unlink()
        seed += 1
    return counted


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the examination of what a cut left skips the real disk's syncs: it proves nothing."""
    real = engine.connect

    def connect(path: Path, *, write: bool):  # type: ignore[no-untyped-def]
        connection = real(path, write=write)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(engine, "connect", connect)


def test_a_power_cut_loses_and_breaks_nothing(tmp_path: Path) -> None:
    counted = verdicts(tmp_path, "FULL", CUTS)
    assert set(counted) == {"whole"}, counted
    assert counted["whole"] >= CUTS


def test_control_without_sync_at_commit_acknowledged_writes_are_lost(tmp_path: Path) -> None:
    counted = verdicts(tmp_path, "NORMAL", CONTROL_CUTS)
    assert counted["lost"] >= 0.2 * counted.total(), counted
    assert set(counted) <= {"whole", "lost"}, counted


def test_control_without_any_sync_much_is_corrupt_or_lost(tmp_path: Path) -> None:
    counted = verdicts(tmp_path, "OFF", CONTROL_CUTS)
    assert counted["corrupt"] > 0, counted
    assert counted["whole"] <= 0.5 * counted.total(), counted
