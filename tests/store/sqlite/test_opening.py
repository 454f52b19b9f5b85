"""Opening an SQLite store: settings, files, and everything that is not a store of ours."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.builders import insert, memory_id, record
from meritory.domain.errors import (
    Busy,
    Corrupt,
    MeritoryError,
    ReadOnlyStore,
    StorageError,
    StoreReplaced,
)
from meritory.store.sqlite import engine, purge
from meritory.store.sqlite.store import SqliteStore

NOBODY = 65_534
PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "secure_delete": 1,
    "busy_timeout": engine.BUSY_TIMEOUT_MS,
}


def pragmas(connection: sqlite3.Connection) -> dict[str, object]:
    return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}


def test_every_connection_has_the_pragmas_that_keep_the_promises(store: SqliteStore) -> None:
    insert(store, record(1))
    assert store._engine.write(pragmas) == PRAGMAS
    with store._engine.read() as one, store._engine.read() as two:
        assert one is not two
        for reader in (one, two):
            assert pragmas(reader) == PRAGMAS
            assert reader.execute("PRAGMA query_only").fetchone() == (1,)
            # In KiB when negative: there are several of them, and what they hold adds up.
            assert -4_096 <= reader.execute("PRAGMA cache_size").fetchone()[0] < 0
            with pytest.raises(sqlite3.OperationalError):
                reader.execute("DELETE FROM memories")


def test_a_plain_backup_put_in_place_by_hand_gets_its_log_again(
    store: SqliteStore, tmp_path: Path
) -> None:
    insert(store, record(1))
    copy = tmp_path / "copy.db"
    store.backup(copy)
    opened = SqliteStore(copy)
    try:
        assert opened._engine.write(pragmas) == PRAGMAS
        assert opened.get("default", memory_id(1)) == record(1)
    finally:
        opened.close()


def test_all_files_belong_to_the_owner_alone(store: SqliteStore, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        insert(store, record(1))
        store.get("default", memory_id(1))
        store.backup(tmp_path / "copy.db")
        other = SqliteStore(tmp_path / "other.db")
        insert(other, record(1))
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
        other.close()
    finally:
        os.umask(before)
    assert {"meritory.db", "meritory.db-wal", "meritory.db-shm", "meritory.db.lock"} < set(modes)
    assert {"copy.db", "other.db", "other.db-wal"} < set(modes)
    assert set(modes.values()) == {0o600}


def test_nothing_else_is_left_in_the_folder(store: SqliteStore, tmp_path: Path) -> None:
    insert(store, record(1))
    store.backup(tmp_path / "copy.db")
    store.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "copy.db",
        "meritory.db",
        "meritory.db.lock",
    ]


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("PRAGMA user_version = 1")
    connection.close()


def foreign_database_without_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE memories (text TEXT)")
    connection.close()


def headless(path: Path) -> None:
    SqliteStore(path).close()
    data = path.read_bytes()
    path.write_bytes(b"NotSQLite format" + data[16:])


NOT_OURS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.touch(),
    "text": lambda path: path.write_text("dear diary\n" * 999),
    "one byte": lambda path: path.write_bytes(b"S"),
    "zeros": lambda path: path.write_bytes(bytes(65_536)),
    "wrong magic": headless,
    "bookmarks": foreign_database,
    "another program's memories": foreign_database_without_version,
}


@pytest.mark.parametrize("kind", NOT_OURS)
def test_what_is_not_a_store_of_ours_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "meritory.db"
    NOT_OURS[kind](path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(Corrupt) as caught:
            SqliteStore(path)
        assert caught.value.hint
    assert path.read_bytes() == before


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        SqliteStore(tmp_path)
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / "missing" / "meritory.db")
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / ("x" * 255))
    assert [p.name for p in tmp_path.iterdir()] == []


def test_odd_file_names_are_only_names(tmp_path: Path) -> None:
    for name in ("a b#c?mode=ro&x=%41.db", "ünï👩‍🚀.db", "-rf", "file::memory:", ":memory:", "'\""):
        store = SqliteStore(tmp_path / name)
        insert(store, record(1))
        store.close()
        assert (tmp_path / name).stat().st_size > 0


def test_a_link_leads_to_the_same_store_with_the_same_lock(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "meritory.db", tmp_path / "link.db"
    real.parent.mkdir()
    link.symlink_to(real)  # dangling: the first start makes what it points at
    with_link = SqliteStore(link)
    insert(with_link, record(1))
    direct = SqliteStore(real)
    assert direct.get("default", memory_id(1)) == record(1)
    assert with_link.path == direct.path == real
    insert(direct, record(2))
    assert with_link.get("default", memory_id(2)) == record(2)
    direct.close()
    with_link.close()
    assert link.is_symlink()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("link")] == ["link.db"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "loop.db"
    link.symlink_to(link)
    with pytest.raises(StorageError):
        SqliteStore(link)


# -- read-only ----------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may look into."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def as_nobody(path: Path, answers: multiprocessing.SimpleQueue[str]) -> None:
    """Opens, reads and writes a store without the rights of the superuser."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        store = SqliteStore(path)
        insert(store, record(2))
        answers.put("written")
    except MeritoryError as error:
        answers.put(type(error).__name__)
    except BaseException as error:
        answers.put(f"untyped {error!r}")


def ask_nobody(path: Path) -> str:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=as_nobody, args=(path, answers))
    child.start()
    child.join()
    return answers.get() if not answers.empty() else f"died with {child.exitcode}"


def test_a_store_of_somebody_else_is_refused_with_a_typed_error(open_folder: Path) -> None:
    path = open_folder / "meritory.db"
    store = SqliteStore(path)
    insert(store, record(1))
    store.close()
    for mode in (0o400, 0o444):
        for file in open_folder.iterdir():
            file.chmod(mode)
        open_folder.chmod(0o555)
        assert ask_nobody(path) == "ReadOnlyStore"
        assert ask_nobody(open_folder / "new.db") == "ReadOnlyStore"
        open_folder.chmod(0o755)
    assert sorted(p.name for p in open_folder.iterdir()) == ["meritory.db", "meritory.db.lock"]


def test_a_file_that_became_read_only_refuses_writes_and_keeps_what_it_has(
    store: SqliteStore,
) -> None:
    insert(store, record(1))
    store._engine.write(lambda c: None)
    store._engine._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(ReadOnlyStore):
        insert(store, record(2))
    assert store.get("default", memory_id(1)) == record(1)
    store._engine._writer.execute("PRAGMA query_only = OFF")
    insert(store, record(2))
    assert len(list(store.walk("default"))) == 2


# -- many at once -------------------------------------------------------------------------------


def test_many_threads_may_make_the_same_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    gate = threading.Barrier(8)
    problems: list[BaseException] = []

    def start(number: int) -> None:
        gate.wait()
        try:
            store = SqliteStore(path)
            insert(store, record(number))
            store.close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    store = SqliteStore(path)
    assert len(list(store.walk("default"))) == 8
    assert store.check(deep=True) == []
    store.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["meritory.db", "meritory.db.lock"]


def start_and_write(path: Path, number: int) -> None:
    store = SqliteStore(path)
    for step in range(10):
        insert(store, record(number * 100 + step))
    store.close()


def test_processes_may_make_and_write_the_same_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=start_and_write, args=(path, n)) for n in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    store = SqliteStore(path)
    numbers = sorted(int(m.id) for m in store.walk("default"))
    assert numbers == sorted(n * 100 + s for n, s in itertools.product(range(4), range(10)))
    assert store.check(deep=True) == []
    store.close()


def test_a_writer_that_holds_on_makes_others_busy_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 20)
    store = SqliteStore(tmp_path / "meritory.db")
    insert(store, record(1))
    other = sqlite3.connect(tmp_path / "meritory.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        insert(store, record(2))
    assert store.get("default", memory_id(1)) == record(1)
    other.execute("ROLLBACK")
    other.close()
    insert(store, record(2))
    store.close()


def test_a_purge_says_so_when_traces_must_stay_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 20)
    store = SqliteStore(tmp_path / "meritory.db")
    insert(store, record(1))
    reader = sqlite3.connect(tmp_path / "meritory.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchone()
    store.write("default", lambda t: t.purge("default", memory_id(1)))
    with pytest.raises(Busy, match="purge succeeded") as told:
        store.erase_traces()
    assert "next opening or purge" in (told.value.hint or "")
    reader.close()
    store.erase_traces()
    assert not has_due_purge(store)
    store.close()


def has_due_purge(store: SqliteStore) -> bool:
    with store._engine.read() as connection:
        return purge.due(connection) is not None


def files_with(folder: Path, needle: bytes) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if needle in p.read_bytes())


@pytest.mark.parametrize("retry", ["opening", "purge"])
def test_traces_that_had_to_stay_are_erased_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retry: str
) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 20)
    path = tmp_path / "meritory.db"
    store = SqliteStore(path)
    insert(store, record(1, "about qxzvkjwhim"), record(2), record(3))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchone()
    store.write("default", lambda t: t.purge("default", memory_id(1)))
    for _ in range(2):
        with pytest.raises(Busy):
            store.erase_traces()
    # As long as the reader is there, nobody else is kept from opening the store.
    other = SqliteStore(path)
    assert [m.id for m in other.walk("default")] == [memory_id(2), memory_id(3)]
    assert has_due_purge(other)
    assert files_with(tmp_path, b"qxzvkjwhim")
    reader.close()
    if retry == "opening":
        SqliteStore(path).close()
    else:
        store.write("default", lambda t: t.purge("default", memory_id(2)))
        store.erase_traces()
    assert files_with(tmp_path, b"qxzvkjwhim") == []
    assert not has_due_purge(other)
    assert other.check(deep=True) == []
    other.close()
    store.close()


def test_opening_rewrites_nothing_when_no_purge_is_due(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    store = SqliteStore(path)
    insert(store, record(1), record(2))
    store.write("default", lambda t: t.purge("default", memory_id(1)))
    store.erase_traces()
    insert(store, record(3))
    log = path.with_name("meritory.db-wal")
    before = log.read_bytes()
    assert before
    SqliteStore(path).close()
    assert log.read_bytes() == before
    store.close()


def test_a_killed_purge_is_finished_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    store = SqliteStore(path)
    insert(store, record(1, "about qxzvkjwhim"), record(2))
    store.write("default", lambda t: t.purge("default", memory_id(1)))
    store.close()
    opened = SqliteStore(path)
    assert not has_due_purge(opened)
    assert files_with(tmp_path, b"qxzvkjwhim") == []
    opened.close()


def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    """With two names it would have two logs."""
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    SqliteStore(one).close()
    two.hardlink_to(one)
    for path in (one, two):
        with pytest.raises(StorageError, match="hard link") as refused:
            SqliteStore(path)
        assert refused.value.status == 503
    two.unlink()
    SqliteStore(one).close()


@pytest.mark.parametrize("name", ["m.db.new-7-7", "m.db.moving", "m.db.before-restore-1/m.db"])
def test_a_second_name_that_a_killed_process_left_is_removed(tmp_path: Path, name: str) -> None:
    path, other = tmp_path / "m.db", tmp_path / name
    SqliteStore(path).close()
    other.parent.mkdir(exist_ok=True)
    other.hardlink_to(path)
    SqliteStore(path).close()
    assert not other.exists()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", ""])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_gone_under_an_open_store_refuses_writes(
    tmp_path: Path, suffix: str, is_replaced: bool
) -> None:
    path = tmp_path / "m.db"
    store = SqliteStore(path)
    insert(store, record(1))
    file = Path(f"{path}{suffix}")
    content = file.read_bytes()
    file.unlink()
    if is_replaced:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").rename(file)
    for use in (lambda: insert(store, record(2)), store.size_bytes):
        with pytest.raises(StoreReplaced, match="moved, replaced or deleted") as refused:
            use()
        assert str(file) in refused.value.message
        assert refused.value.status == 503
    store.close()


def test_a_log_that_is_deleted_during_a_commit_is_not_acknowledged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "m.db")

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO counters VALUES ('default', 'one', 1)")
        (tmp_path / "m.db-wal").unlink()

    with pytest.raises(StoreReplaced):
        store._engine.write(write)
    store.close()


def test_what_was_acknowledged_before_the_log_was_deleted_survives_a_kill(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "after.db"
    store = SqliteStore(path)
    insert(store, record(1))
    (tmp_path / "m.db-wal").unlink()
    with pytest.raises(StoreReplaced):
        insert(store, record(2))
    # The process could be killed now: only the file is left.
    copy.write_bytes(path.read_bytes())
    store.close()
    opened = SqliteStore(copy)
    assert [memory.id for memory in opened.walk("default")] == [memory_id(1)]
    assert opened.check(deep=True) == []
    opened.close()
