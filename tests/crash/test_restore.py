"""Putting a backup in place: the damaged files are kept, and nothing unsound comes in."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from contract.builders import NOW, insert, memory_id, numbers, record
from meritory.domain.errors import Busy, Corrupt, InputError, MeritoryError, SchemaTooNew
from meritory.store.sqlite import backup
from meritory.store.sqlite.schema import MIGRATIONS
from meritory.store.sqlite.store import SqliteStore
from places import open_raw


def stored(path: Path) -> list[int]:
    """The numbers of the memories in a store that is sound."""
    with closing(SqliteStore(path)) as store:
        assert store.check(deep=True) == []
        return numbers([memory.id for memory in store.walk("default")])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A backup with memory 1 of a store that has memories 1 and 2."""
    target = tmp_path / "backup.db"
    with closing(SqliteStore(tmp_path / "meritory.db")) as store:
        insert(store, record(1))
        store.backup(target)
        insert(store, record(2))
    return target


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_a_backup_is_one_sound_file_equal_to_the_store(tmp_path: Path, copy: Path) -> None:
    assert {p.name for p in tmp_path.iterdir()} == {"backup.db", "meritory.db", "meritory.db.lock"}
    connection = sqlite3.connect(copy)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_restore_puts_the_backup_in_place_and_keeps_all_former_files(
    tmp_path: Path, copy: Path
) -> None:
    path = tmp_path / "meritory.db"
    damaged = b"damaged beyond repair"
    path.write_bytes(damaged)
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).write_bytes(side.encode())
    aside = backup.restore(path, copy, NOW)
    assert aside is not None
    assert snapshot(aside) == {
        "meritory.db": damaged,
        "meritory.db-wal": b"-wal",
        "meritory.db-shm": b"-shm",
    }
    assert stored(path) == [1]
    assert copy.exists()
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(SqliteStore(path)) as store:
        insert(store, record(3))
    assert stored(path) == [1, 3]
    assert [p for p in tmp_path.iterdir() if ".restore-" in p.name and p.is_file()] == []


def test_restore_where_there_was_nothing(tmp_path: Path, copy: Path) -> None:
    path = tmp_path / "elsewhere" / "meritory.db"
    path.parent.mkdir()
    assert backup.restore(path, copy, NOW) is None
    assert stored(path) == [1]


def test_a_restore_can_be_taken_back(tmp_path: Path, copy: Path) -> None:
    path = tmp_path / "meritory.db"
    aside = backup.restore(path, copy, NOW)
    assert aside is not None
    assert stored(path) == [1]
    assert stored(aside / "meritory.db") == [1, 2]


def test_a_store_in_use_is_not_replaced(tmp_path: Path, copy: Path) -> None:
    path = tmp_path / "meritory.db"
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with closing(SqliteStore(path)) as store:
        for name in (path, link):
            with pytest.raises(Busy):
                backup.restore(name, copy, NOW)
        insert(store, record(3))
    assert stored(path) == [1, 2, 3]


def test_a_link_stays_a_link(tmp_path: Path, copy: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "meritory.db")
    backup.restore(link, copy, NOW)
    assert link.is_symlink()
    assert stored(tmp_path / "meritory.db") == [1]


def test_killed_in_the_middle_a_restore_leaves_no_empty_store(
    tmp_path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the last step that still happened was, the next start finds memories."""
    path = tmp_path / "meritory.db"
    real = os.replace

    class Killed(BaseException):
        pass

    def killed(source: str, target: str) -> None:
        if Path(target) == path:
            raise Killed
        real(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(Killed):
        backup.restore(path, copy, NOW)
    monkeypatch.undo()
    assert stored(path) == [1, 2]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.find(b"claim number 1")
    data[at] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def altered(statement: str) -> Callable[[Path], None]:
    def alter(path: Path) -> None:
        connection = open_raw(path)
        connection.execute(statement)
        connection.commit()
        connection.close()

    return alter


def foreign(path: Path) -> None:
    path.unlink()
    altered("CREATE TABLE bookmarks (url TEXT)")(path)


UNSOUND: dict[str, tuple[Callable[[Path], object], type[MeritoryError]]] = {
    "one letter": (flip, Corrupt),
    "half a file": (cut, Corrupt),
    "empty": (lambda p: p.write_bytes(b""), Corrupt),
    "text": (lambda p: p.write_text("no database" * 999), Corrupt),
    "foreign": (foreign, Corrupt),
    "newer": (altered(f"PRAGMA user_version = {MIGRATIONS[-1].version + 1}"), SchemaTooNew),
    "negative": (altered("PRAGMA user_version = -1"), Corrupt),
    "planted table": (altered("CREATE TABLE planted (x)"), Corrupt),
    "planted view": (altered("CREATE VIEW planted AS SELECT 1"), Corrupt),
    "planted trigger": (
        altered("CREATE TRIGGER planted AFTER INSERT ON memories BEGIN DELETE FROM counters; END"),
        Corrupt,
    ),
    "lost table": (altered("DROP TABLE counters"), Corrupt),
    "planted full-text trigger": (
        altered(
            "CREATE TRIGGER memories_fts_x AFTER INSERT ON memories BEGIN DELETE FROM counters; END"
        ),
        Corrupt,
    ),
}


@pytest.mark.parametrize("kind", UNSOUND)
def test_an_unsound_backup_is_refused_and_nothing_changes(
    tmp_path: Path, copy: Path, kind: str
) -> None:
    spoil, error = UNSOUND[kind]
    spoil(copy)
    before = snapshot(tmp_path)
    with pytest.raises(error) as caught:
        backup.restore(tmp_path / "meritory.db", copy, NOW)
    assert caught.value.hint
    assert snapshot(tmp_path) == before
    assert stored(tmp_path / "meritory.db") == [1, 2]


@pytest.mark.parametrize("trick", ["missing", "folder", "pipe", "device", "dangling link"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, copy: Path, trick: str) -> None:
    source = tmp_path / "trick"
    if trick == "folder":
        source.mkdir()
    elif trick == "pipe":
        os.mkfifo(source)
    elif trick == "device":
        source = Path("/dev/zero")
    elif trick == "dangling link":
        source.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError):
        backup.restore(tmp_path / "meritory.db", source, NOW)
    assert stored(tmp_path / "meritory.db") == [1, 2]


def test_a_live_store_is_no_backup(tmp_path: Path, copy: Path) -> None:
    """Its log holds the newest memories; taking the file alone would lose them silently."""
    other = tmp_path / "other.db"
    with closing(SqliteStore(other)) as store:
        insert(store, record(9))
        with pytest.raises(InputError):
            backup.restore(tmp_path / "meritory.db", other, NOW)
    assert stored(tmp_path / "meritory.db") == [1, 2]
    assert copy.exists()


def test_backups_of_a_store_under_load_are_all_whole(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    with closing(SqliteStore(path)) as store:
        for number in range(5):
            insert(store, *(record(number * 10 + step) for step in range(10)))
            store.backup(tmp_path / f"copy-{number}.db")
    for number in range(5):
        target = tmp_path / f"restored-{number}" / "meritory.db"
        target.parent.mkdir()
        backup.restore(target, tmp_path / f"copy-{number}.db", NOW)
        assert stored(target) == list(range((number + 1) * 10))
    shutil.rmtree(tmp_path / "restored-0")


def test_a_damaged_store_gives_no_backup(tmp_path: Path, copy: Path) -> None:
    flip(tmp_path / "meritory.db")
    target = tmp_path / "second.db"
    with closing(SqliteStore(tmp_path / "meritory.db")) as store:
        with pytest.raises(Corrupt):
            store.backup(target)
        with pytest.raises(Corrupt):
            store.get("default", memory_id(1))
    assert not target.exists()
    assert [p.name for p in tmp_path.iterdir() if ".part" in p.name] == []
