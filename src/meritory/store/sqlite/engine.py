"""One SQLite database: its file, its schema, its readers and its one writer thread."""

from __future__ import annotations

import contextlib
import glob
import os
import queue
import re
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from meritory.domain.errors import (
    Busy,
    Corrupt,
    DiskFull,
    MeritoryError,
    ReadOnlyStore,
    SchemaTooNew,
    StorageError,
    StoreReplaced,
    translate_system,
)
from meritory.store.sql.predictor import TaughtReader
from meritory.store.sqlite import purge
from meritory.store.sqlite.schema import MIGRATIONS, add_functions

# Strict tables, which the schema uses, came with this version.
SQLITE_VERSION_MIN = (3, 37, 0)


@dataclass(frozen=True, slots=True)
class Features:
    """The version of SQLite and whether it has what the store needs."""

    version: str
    is_new_enough: bool
    has_full_text: bool


def sqlite_features() -> Features:
    """Return the features of the SQLite that this Python was built with."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE probe USING fts5 (words)")
            has_full_text = True
        except sqlite3.OperationalError:
            has_full_text = False
    return Features(
        sqlite3.sqlite_version, sqlite3.sqlite_version_info >= SQLITE_VERSION_MIN, has_full_text
    )


def schema_of(path: Path) -> tuple[int, int]:
    """Return the schema version of a database file and the newest known one."""
    with translated(path), contextlib.closing(connect(path, write=False)) as connection:
        return schema_version(connection), MIGRATIONS[-1].version


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
WriteJob = tuple[Work[Any], "Future[Any]"]
WRITE_QUEUE_LIMIT = 256
GROUP_COMMIT_LIMIT = 32
READER_LIMIT = 4
BUSY_TIMEOUT_MS = 5_000
WRITE_WAIT_LIMIT_S = 30.0
# The cache of a reader is empty after the next write: a large one only fills up again and again.
WRITER_CACHE_KIB, READER_CACHE_KIB = 8_192, 2_048
_DAMAGE = re.compile(r"decode to UTF-8|^no such |malformed|unknown tokenizer|has no column")


def translate(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> MeritoryError:
    """Return the typed error, with a hint, for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # Damaged text, an error that quotes it, and a missing table have no code of their own.
    if isinstance(error, UnicodeDecodeError) or _DAMAGE.search(str(error)):
        code = sqlite3.SQLITE_CORRUPT
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(f"no space left to write {path.name}", hint="free some space and try again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return ReadOnlyStore(f"{path} cannot be written", hint="check its owner and permissions")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(
            f"{path} is damaged: {error}",
            hint="it is left as it is; `meritory restore BACKUP` puts a backup in its place and "
            "keeps the damaged files aside",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(f"{path} is being written by another process", hint="try again")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StorageError(f"{path} cannot be opened", hint="check the path and its permissions")
    return StorageError(f"{path}: {error}")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system into typed ones."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, path) from error
    except OSError as error:
        raise translate_system(error, path) from error


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Return a connection with the pragmas that the store needs."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "foreign_keys = ON",
            "secure_delete = ON",
            "synchronous = FULL",
            "trusted_schema = ON",
            f"cache_size = -{WRITER_CACHE_KIB if write else READER_CACHE_KIB}",
            *(() if write else ("query_only = ON",)),
        ):
            connection.execute(f"PRAGMA {pragma}")
        add_functions(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version recorded in the database."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date; each step and its record are one transaction."""
    newest = MIGRATIONS[-1].version
    if schema_version(connection) > newest:
        raise SchemaTooNew(
            f"{path} was written by a newer Meritory (schema {schema_version(connection)}, "
            f"this one knows {newest})",
            hint="upgrade Meritory; nothing was changed",
        )
    for migration in MIGRATIONS:
        if schema_version(connection) >= migration.version:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read again under the lock: another process may have migrated it.
            if schema_version(connection) < migration.version:
                for statement in migration.statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {migration.version}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def demand_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse the database of another program before anything in it is changed."""
    found = connection.execute(
        "SELECT count(*) FROM sqlite_master WHERE name IN ('meta', 'memories', 'memories_fts')"
    ).fetchone()
    if found != (3,) and schema_version(connection) <= MIGRATIONS[-1].version:
        raise Corrupt(
            f"{path} is not a Meritory store, or what made it one is lost",
            hint="it is left as it is; choose another file, or restore a backup",
        )


def create(path: Path) -> None:
    """Create a new database under another name and link it: it is whole or absent, never empty."""
    temporary = path.with_name(f"{path.name}.new-{os.getpid()}-{threading.get_ident()}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with contextlib.closing(connect(temporary, write=True)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection, path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        for leftover in (temporary, *side_files(temporary)):
            leftover.unlink(missing_ok=True)


def require_one_name(path: Path) -> None:
    """Refuse a file with a second name: SQLite would keep one log for each."""
    if path.stat().st_nlink == 1:
        return
    # A killed process may leave the second name of a file that it made, moved or set aside.
    name = glob.escape(path.name)
    for pattern in (f"{name}.new-*", f"{name}.moving", f"{name}.before-restore-*/{name}"):
        for other in path.parent.glob(pattern):
            if other.samefile(path):
                other.unlink(missing_ok=True)
    if path.stat().st_nlink > 1:
        raise StorageError(
            f"{path} is a hard link: the same file has another name",
            hint="two processes would use it with two logs and damage it; delete the other name, "
            "or replace it with a symbolic link",
        )


def side_files(path: Path) -> tuple[Path, Path]:
    """Return the write-ahead log and the shared-memory file of a database."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


class SqliteEngine:
    """All connections of one database; reads run in parallel, writes one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = os.getpid()
        self._readers: deque[sqlite3.Connection] = deque()
        self._reader_slots = threading.BoundedSemaphore(READER_LIMIT)
        self._jobs: queue.Queue[WriteJob | None] = queue.Queue(WRITE_QUEUE_LIMIT)
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        with translated(path):
            self._writer = self._open_writer()
            self._files = self._identities()
        # What an earlier purge had to leave stays due if something is in the way.
        with (
            contextlib.suppress(StorageError, Busy),
            translated(path),
            contextlib.closing(connect(path, write=True)) as own,
        ):
            if purge.due(own) is not None:
                # Opening a store must not wait for readers in other processes.
                own.execute("PRAGMA busy_timeout = 0")
                self._erase(own)

    def _open_writer(self) -> sqlite3.Connection:
        if not self.path.exists():
            create(self.path)
        if self.path.stat().st_size == 0:
            raise Corrupt(
                f"{self.path} is empty, which no Meritory database ever is",
                hint="restore a backup with `meritory restore`, or delete the file to start again",
            )
        require_one_name(self.path)
        connection = connect(self.path, write=True)
        try:
            demand_ours(connection, self.path)
            migrate(connection, self.path)
            # A backup that was put here by hand is a plain file without a log.
            connection.execute("PRAGMA journal_mode = WAL")
            # The first read creates the log.
            schema_version(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_process(self) -> None:
        """Refuse a forked child: it has no writer thread, and the locks belong to the parent."""
        if os.getpid() != self._pid:
            raise StorageError(
                f"{self.path} was opened before a fork", hint="open it again in this process"
            )

    def _identities(self) -> tuple[int | None, ...]:
        """Return which files the names of the database and its logs stand for."""
        found: list[int | None] = []
        for file in (self.path, *side_files(self.path)):
            try:
                found.append(os.stat(file).st_ino)
            except OSError:
                found.append(None)
        return tuple(found)

    def require_files(self) -> None:
        """Refuse files that were replaced: writes would be lost, and two logs do not mix."""
        found = self._identities()
        if found != self._files:
            if found == (self._files[0], None, self._files[2]):
                # The deleted log is still open here: save what was acknowledged.
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("PRAGMA wal_checkpoint")
            names = (self.path, *side_files(self.path))
            pairs = zip(names, found, self._files, strict=True)
            changed = next(name for name, file, former in pairs if file != former)
            raise StoreReplaced(
                f"{changed} was moved, replaced or deleted while it was open",
                hint="put it back, or restart whatever has it open (`meritory down`)",
            )

    @contextlib.contextmanager
    def read(self, user: str | None = None) -> Iterator[sqlite3.Connection]:
        """Return a reader connection for the length of the block; all users share the file."""
        self._require_process()
        if self._closed:
            raise StorageError("the store is closed")
        with self._reader_slots, translated(self.path):
            try:
                connection = self._readers.pop()
            except IndexError:
                self.require_files()
                connection = connect(self.path, write=False)
            try:
                yield connection
            finally:
                self._give_back(connection)

    read_across = read

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._readers.append(connection)

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction on the writer thread; return once it is on disk."""
        self._require_process()
        if not self._closed:
            self.require_files()
        future: Future[T] = Future()
        # Under one lock with `close`: a write queued behind its end mark would never run.
        with self._start_lock:
            if self._closed:
                raise StorageError("the store is closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve_writes, name="meritory-writer", daemon=True
                )
                self._thread.start()
            try:
                self._jobs.put((work, cast("Future[Any]", future)), timeout=WRITE_WAIT_LIMIT_S)
            except queue.Full:
                raise Busy("too many writes are waiting", hint="try again in a moment") from None
        return future.result()

    write_across = write

    def _serve_writes(self) -> None:
        """Wait for a write and commit it with those already queued: they share one fsync."""
        is_open = True
        while is_open:
            batch: list[WriteJob] = []
            with contextlib.suppress(queue.Empty):
                while is_open and len(batch) < GROUP_COMMIT_LIMIT:
                    job = self._jobs.get(block=not batch)
                    if job is None:
                        is_open = False
                    else:
                        batch.append(job)
            if batch:
                self._commit(batch)

    def _commit(self, batch: list[WriteJob]) -> None:
        done: list[tuple[Future[Any], Any]] = []
        # One that is alone needs no savepoint, for which SQLite copies every page that is changed.
        is_alone = len(batch) == 1
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for work, future in batch:
                try:
                    result = work(self._writer) if is_alone else self._run_in_savepoint(work)
                    done.append((future, result))
                except BaseException as error:
                    # Full disks and I/O errors roll the whole transaction back by themselves.
                    if is_alone or not self._writer.in_transaction:
                        raise
                    future.set_exception(self._typed(error))
            self._writer.execute("COMMIT")
            # A log that was deleted takes the commit with it.
            self.require_files()
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
            for _, future in batch:
                if not future.done():
                    future.set_exception(self._typed(error))
            return
        for future, result in done:
            future.set_result(result)

    def _run_in_savepoint(self, work: Work[Any]) -> Any:
        self._writer.execute("SAVEPOINT one")
        try:
            result = work(self._writer)
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK TO one")
                self._writer.execute("RELEASE one")
            raise
        self._writer.execute("RELEASE one")
        return result

    def _typed(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            typed = translate(error, self.path)
            typed.__cause__ = error
            return typed
        return error

    def erase_traces(self) -> None:
        """Rewrite the database without deleted texts and empty the write-ahead log."""
        self._require_process()
        self.require_files()
        with translated(self.path), contextlib.closing(connect(self.path, write=True)) as own:
            self._erase(own)

    def _erase(self, own: sqlite3.Connection) -> None:
        due = purge.due(own)
        try:
            # Asked before the rewriting, too: that would only make a log grow that must stay.
            is_blocked = purge.is_log_in_use(own)
            if not is_blocked:
                # When rows move between pages, copies of them stay behind in the old ones.
                own.execute("VACUUM")
                is_blocked = purge.is_log_in_use(own)
        except sqlite3.OperationalError as error:
            if not isinstance(translate(error, self.path), Busy):
                raise
            is_blocked = True
        if is_blocked:
            raise Busy(
                f"the purge succeeded, but another process still uses {self.path}, so traces "
                "are left in its files",
                hint="they are erased by the next opening or purge after the other is done",
            )
        if due is not None:
            # Where a writer is in the way it stays due: erasing twice does no harm.
            with contextlib.suppress(sqlite3.OperationalError):
                purge.settle(own, due)

    def close(self) -> None:
        """Finish queued writes, then close every connection; safe to call twice."""
        if os.getpid() != self._pid:
            # In a forked child, closing would take the locks and the log from the parent.
            return
        with self._start_lock:
            if self._closed:
                return
            self._closed = True
            if self._thread is not None:
                self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(IndexError):
            while True:
                self._readers.pop().close()
        self._writer.close()


class StoreReader(TaughtReader):
    """A store file opened read-only, for the processes that train and score."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated(path):
            self._connection = connect(path, write=False)

    @contextlib.contextmanager
    def _reading(self, user: str | None) -> Iterator[sqlite3.Connection]:
        with translated(self._path):
            yield self._connection

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
