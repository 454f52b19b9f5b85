"""Connections to PostgreSQL: a pool, transactions that are tried again, and the schema."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from meritory.domain.errors import Busy, MissingExtra, ReadOnlyStore, SchemaTooNew, StorageError
from meritory.store.postgres.connection import READ, WRITE, TenantConnection, WritingConnection
from meritory.store.postgres.errors import translate_error
from meritory.store.postgres.notify import NotifyThrottle
from meritory.store.postgres.pool import ConnectionPool
from meritory.store.postgres.schema import MIGRATIONS, SCHEMA

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection

T = TypeVar("T")
C = TypeVar("C", bound=TenantConnection)

CONNECTION_LIMIT = 16
STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 30_000
# A machine that vanishes says nothing: its tenant's row is not held for it any longer than this.
IDLE_LIMIT_MS = 60_000
_LET_GO = f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}"
# Who has the turn at something is silent for as long as that takes.
_UNHURRIED = "SET LOCAL idle_in_transaction_session_timeout = 0"
WRITE_ATTEMPTS = 5
WRITE_WAIT_LIMIT_S = 30.0
_BACKOFF_S = 0.02
_TURN = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
SERVER_VERSION_MIN = 150_000
VECTOR_VERSION_MIN = (0, 8)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns errors of the driver into typed ones."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        # The driver's own words may quote the address: they are not carried along.
        raise translate_error(error) from None


def demand_driver() -> None:
    """Says what to install when the driver is missing."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "PostgreSQL needs its driver", hint="pip install 'meritory[postgres]'"
        ) from error


def schema_version(raw: RawConnection[Any]) -> int:
    """The version recorded in the database, 0 for none."""
    found = raw.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.schema_version",)).fetchone()
    if found is None or found[0] is None:
        return 0
    (version,) = raw.execute(
        f"SELECT coalesce(max(version), 0) FROM {SCHEMA}.schema_version"  # noqa: S608 - ours
    ).fetchone() or (0,)
    return int(version)


def migrate(raw: RawConnection[Any]) -> None:
    """Brings the schema up to date; each step and its record are one transaction."""
    _demand_version(raw)
    newest = MIGRATIONS[-1].version
    if schema_version(raw) > newest:
        raise SchemaTooNew(
            f"the database was written by a newer Meritory (schema {schema_version(raw)}, "
            f"this one knows {newest})",
            hint="upgrade Meritory; nothing was changed",
        )
    for migration in MIGRATIONS:
        if schema_version(raw) >= migration.version:
            continue
        with raw.transaction():
            # Whoever comes second waits here, and finds the work done: it must see it.
            raw.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            raw.execute("SELECT pg_advisory_xact_lock(hashtext('meritory migration'))")
            if schema_version(raw) >= migration.version:
                continue
            _prepare(raw)
            for statement in migration.statements:
                raw.execute(statement.encode())
            raw.execute(
                f"INSERT INTO {SCHEMA}.schema_version VALUES (%s)",  # noqa: S608 - ours
                (migration.version,),
            )


def _prepare(raw: RawConnection[Any]) -> None:
    raw.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
    _demand_vector(raw)
    raw.execute(f"SET LOCAL search_path = {_path(raw)}".encode())
    raw.execute(
        f"CREATE TABLE IF NOT EXISTS {SCHEMA}.schema_version (version integer PRIMARY KEY)".encode()
    )


def _path(raw: RawConnection[Any]) -> str:
    """Our schema, and the one in which pgvector was put."""
    found = raw.execute(
        "SELECT quote_ident(nspname) FROM pg_extension e"
        " JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'vector'"
    ).fetchone()
    return f"{SCHEMA}, {found[0] if found else 'public'}"


def _demand_version(raw: RawConnection[Any]) -> None:
    if raw.info.server_version < SERVER_VERSION_MIN:
        raise StorageError(
            f"PostgreSQL {raw.info.server_version // 10_000} is too old",
            hint=f"Meritory needs {SERVER_VERSION_MIN // 10_000} or newer",
        )
    found = raw.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone()
    if found is None:
        raise StorageError(
            "the database server has no pgvector",
            hint="install its package (postgresql-NN-pgvector), or use a server that has it",
        )


def _demand_vector(raw: RawConnection[Any]) -> None:
    """Switches pgvector on in this database, and refuses one that is too old."""
    import psycopg

    asked = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    found = raw.execute(asked).fetchone()
    if found is None:
        try:
            raw.execute("CREATE EXTENSION vector")
        except psycopg.errors.InsufficientPrivilege:
            raise StorageError(
                "the login may not switch pgvector on in this database",
                hint="let an administrator run `CREATE EXTENSION vector` there once",
            ) from None
        found = raw.execute(asked).fetchone()
    version = str(found[0]) if found else "0"
    if tuple(int(part) for part in version.split(".")[:2]) < VECTOR_VERSION_MIN:
        raise StorageError(
            f"pgvector {version} is too old",
            hint="upgrade it to 0.8 or newer, then `ALTER EXTENSION vector UPDATE`",
        )


def _settings(raw: RawConnection[Any]) -> tuple[str, ...]:
    """What every transaction of ours begins with, before it takes its role."""
    return (
        f"SET LOCAL search_path = {_path(raw)}",
        f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}",
        f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
        # Compiling a statement takes longer than any of ours runs.
        "SET LOCAL jit = off",
    )


class PostgresEngine:
    """All connections to one database; any number of daemons may have one each."""

    def __init__(self, url: str, connection_limit: int = CONNECTION_LIMIT) -> None:
        demand_driver()
        self._pid = os.getpid()
        self._closed = False
        # Half of the connections are for reads: who writes may have to read something else, and
        # writers of one tenant wait for each other, each with a connection.
        limit = max(2, connection_limit)
        self._writers = threading.BoundedSemaphore(limit // 2)
        self._pool = ConnectionPool(url, limit)
        self._bell = NotifyThrottle(self._pool)
        try:
            with translated(), self._pool.lent() as raw:
                migrate(raw)
                self._settings = _settings(raw)
        except BaseException:
            self.close()
            raise

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler stands in between, so that nothing outlasts a transaction."""
        return self._pool.is_pooled

    @contextlib.contextmanager
    def read(self, user: str) -> Iterator[TenantConnection]:
        """One snapshot of one tenant, for the length of the block."""
        with self._transaction(TenantConnection, user, READ) as connection:
            yield connection

    @contextlib.contextmanager
    def read_across(self) -> Iterator[TenantConnection]:
        """One snapshot of all tenants, without their texts."""
        with self._transaction(TenantConnection, None, READ) as connection:
            yield connection

    def write(self, user: str | None, work: Callable[[WritingConnection], T]) -> T:
        """Run `work` in a transaction of one tenant; None: as the steward, for all tenants."""
        if not self._writers.acquire(timeout=WRITE_WAIT_LIMIT_S):
            raise Busy("too many writes are waiting", hint="try again in a moment")
        try:
            return self._until_done(user, work)
        finally:
            self._writers.release()

    def write_across(self, work: Callable[[WritingConnection], T]) -> T:
        """Run `work` in a transaction for all tenants."""
        return self.write(None, work)

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[bool]:
        """Has the turn at something, with a connection of its own; the server knows who lives."""
        import psycopg

        with translated(), self._ready().lent() as raw:
            raw.execute(WRITE.encode())
            found = raw.execute(_TURN, (f"meritory {what}",)).fetchone()
            # A plain statement last, which ends the question and its view of the rows: now the
            # transaction sees nothing, and holds nothing back but the turn.
            raw.execute(_UNHURRIED.encode())
            try:
                yield bool(found and found[0])
            finally:
                with contextlib.suppress(psycopg.Error):
                    raw.rollback()

    def _until_done(self, user: str | None, work: Callable[[WritingConnection], T]) -> T:
        import psycopg

        clash = (
            psycopg.errors.SerializationFailure,
            psycopg.errors.DeadlockDetected,
            # An embedder that was just retired: all else lies behind the lock on the tenant's row.
            psycopg.errors.ForeignKeyViolation,
        )
        kind = partial(WritingConnection, self._bell)
        attempt = 0
        while True:
            attempt += 1
            try:
                with translated(), self._transaction(kind, user, WRITE, _LET_GO) as connection:
                    return work(connection)
            except ReadOnlyStore:
                # What was the primary is a replica now; another server is meant.
                self._pool.renew()
                raise
            except (Busy, StorageError) as error:
                if attempt == WRITE_ATTEMPTS or not isinstance(error.__context__, clash):
                    raise
            time.sleep(_BACKOFF_S * attempt * (1 + random.random()))  # noqa: S311 - not a secret

    @contextlib.contextmanager
    def _transaction(self, kind: Callable[..., C], tenant: str | None, *begin: str) -> Iterator[C]:
        with translated(), self._ready().lent() as raw:
            connection = kind(raw, tenant, *begin, *self._settings)
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def _ready(self) -> ConnectionPool:
        if os.getpid() != self._pid:
            raise StorageError(
                "the store was opened before a fork", hint="open it again in this process"
            )
        if self._closed:
            raise StorageError("the store is closed")
        return self._pool

    def close(self) -> None:
        """Lets go of every connection; safe to call twice."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._bell.close()
            self._pool.close()
