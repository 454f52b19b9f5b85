"""The PostgreSQL store: one database that many daemons share, each tenant kept apart."""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord
from meritory.domain.place import Place
from meritory.domain.world import Subscription
from meritory.store.contract.memories import NeighbourProbe, Search
from meritory.store.contract.store import DamagedRow, Store, Transaction
from meritory.store.postgres.connection import CONNECTION_LIMIT, PostgresEngine, WritingConnection
from meritory.store.postgres.notify import Listener
from meritory.store.postgres.schema import APP, SCHEMA, STEWARD
from meritory.store.postgres.search_index import TermTable, Views, change_of
from meritory.store.postgres.vectors import (
    Measured,
    embedder_of,
    lacking_index,
    make_index,
    make_index_locked,
    nearest_rows,
    vector_of,
)
from meritory.store.postgres.write import TOPICS, PostgresTransaction
from meritory.store.search.index import Nearest
from meritory.store.search.search import Ground, open_view
from meritory.store.sql.mapper import SqlConnection, as_json
from meritory.store.sql.memories import MemoryRows, check_memories
from meritory.store.sql.visibility import visible_scopes
from meritory.store.sqlite.fulltext import Stemmer

T = TypeVar("T")
# Every tenant counts its own changes; the sums grow with any of them.
_NUMBERS = {"memory": "change", **{topic: topic for topic in sorted(set(TOPICS.values()))}}
_SUMS = "SELECT {} FROM tenants".format(  # noqa: S608 - constants
    ", ".join(f"coalesce(sum({column}), 0)::bigint" for column in _NUMBERS.values())
)
# Taking a job locks no tenant's row, so it is not counted; only few run at any time.
_RUNNING = "SELECT job, lease FROM jobs WHERE state = 'running' ORDER BY job"


class ModelTable:
    """The models of all tenants, so that any daemon can serve any tenant."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    def versions(self, user: str) -> list[int]:
        """Return the versions, the latest first."""
        with self._engine.read(user) as connection:
            found = connection.execute(
                "SELECT version FROM models WHERE user = ? ORDER BY version DESC", (user,)
            )
            return [version for (version,) in found]

    def digest(self, user: str, version: int) -> str | None:
        """Return the SHA-256 of a model in hexadecimal digits; None without a model."""
        found = self._one("digest", user, version)
        return None if found is None else str(found)

    def content(self, user: str, version: int) -> bytes | None:
        """Return the bytes of a model; None without a model."""
        found = self._one("content", user, version)
        return None if found is None else bytes(found)

    def _one(self, column: str, user: str, version: int) -> Any:
        with self._engine.read(user) as connection:
            found = connection.execute(
                f"SELECT {column} FROM models WHERE user = ? AND version = ?",  # noqa: S608 - ours
                (user, version),
            ).fetchone()
        return found[0] if found else None

    def put(self, user: str, version: int, content: bytes) -> None:
        """Store a model under its version; it replaces an existing one."""
        statement = """INSERT INTO models (user, version, content, digest) VALUES (?, ?, ?, ?)
            ON CONFLICT (user, version)
            DO UPDATE SET content = excluded.content, digest = excluded.digest"""
        values = (user, version, content, hashlib.sha256(content).hexdigest())
        self._engine.write(user, lambda connection: connection.execute(statement, values))

    def drop(self, user: str, version: int) -> None:
        """Remove a model, if it exists."""
        statement, values = "DELETE FROM models WHERE user = ? AND version = ?", (user, version)
        self._engine.write(user, lambda connection: connection.execute(statement, values))


class PostgresStore(Store):
    """The storage contract on one PostgreSQL database."""

    _engine: PostgresEngine
    _decode_vector = staticmethod(vector_of)
    # Of all tenants, in the order of tenants and numbers.
    _LACKING = """SELECT t.user, t.row FROM memory_stats t
        WHERE (t.user, t.row) > (coalesce(:user, ''), :last)
            AND NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.user = t.user AND v.row = t.row
                AND v.embedder = (SELECT embedder FROM embedders WHERE name = :embedder))"""

    def __init__(self, url: str, pool_size: int = CONNECTION_LIMIT) -> None:
        super().__init__()
        self.place = Place(url=url)
        self._engine = PostgresEngine(url, pool_size)
        self._listener = Listener(url)
        self.models = ModelTable(self._engine)
        self._stemmer = Stemmer()
        self._views = Views()

    # -- writing --------------------------------------------------------------------------

    def write(self, user: str | None, work: Callable[[Transaction], T]) -> T:
        def whole(connection: WritingConnection) -> T:
            transaction = PostgresTransaction(connection, self._stemmer, self.damaged)
            result = work(transaction)
            transaction.flush()
            return result

        return self._engine.write(user, whole)

    def _find_nearest(self, probe: NeighbourProbe, scope: int) -> list[Nearest]:
        with self._engine.read(probe.scope.user) as connection:
            return nearest_rows(connection, probe, scope)

    # -- finding --------------------------------------------------------------------------

    def _ground(self, connection: SqlConnection, search: Search, *, by_rest: bool) -> Ground:
        user = search.scope.user
        scopes = visible_scopes(connection, search.scope)
        index = self._views.index(connection, user)
        view = open_view(connection, index, search, scopes)
        embedder = embedder_of(connection, user, search.embedder)
        mean = self._views.mean(connection, embedder, view)
        words = TermTable(connection, user, self._stemmer, view)
        vectors = Measured(connection, view, embedder, mean, by_rest)
        return Ground(connection, self._stemmer, view, scopes, words, vectors)

    def _last_change(self, connection: SqlConnection, user: str) -> int:
        return change_of(connection, user)[0]

    # -- all tenants ----------------------------------------------------------------------

    def users(self) -> list[str]:
        rows = self._all(
            None,
            """SELECT t.user FROM tenants t WHERE EXISTS
                (SELECT 1 FROM memories m WHERE m.user = t.user) ORDER BY t.user""",
            (),
        )
        return [user for (user,) in rows]

    def change_numbers(self) -> dict[str, int]:
        with self._engine.read_across() as connection:
            found = dict(zip(_NUMBERS, connection.execute(_SUMS).fetchone(), strict=True))
            running = repr(connection.execute(_RUNNING).fetchall()).encode()
        return {**found, "job": (found["job"] << 32) + zlib.crc32(running)}

    def _last_lesson(self, user: str) -> int | None:
        found = self._one(user, "SELECT learned FROM tenants WHERE user = ?", (user,))
        return int(found[0]) if found else None

    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        page: list[MemoryRecord] = []
        user, last = self._position(after)
        while len(page) < limit:
            wanted = limit - len(page)
            rows = self._all(
                None,
                f"{self._LACKING} ORDER BY t.user, t.row LIMIT :limit",
                {"embedder": embedder, "user": user, "last": last, "limit": wanted},
            )
            for tenant, numbers in itertools.groupby(rows, lambda row: row[0]):
                own = [number for _, number in numbers]
                with self._engine.read(tenant) as connection:
                    records = MemoryRows(connection, self.damaged).sound_records(
                        "m.user = :user AND m.row IN (SELECT value FROM json_each(:rows))",
                        {"user": tenant, "rows": as_json(own)},
                    )
                page += [records[row] for row in own if row in records]
            if len(rows) < wanted:
                break
            user, last = rows[-1]
        return page

    def _drop_indexes(self, embedder: str) -> None:
        self._views.clear()

    # -- care -----------------------------------------------------------------------------

    def tidy(self, should_stop: Callable[[], bool]) -> None:
        # Autovacuum does the rest.
        with self._engine.read_across() as connection:
            lacking = lacking_index(connection)
        if not lacking:
            return
        with self._engine.try_lock("vector indexes") as is_locked:
            for tenant in lacking:
                if not is_locked or should_stop():
                    return
                if not make_index(self.place.url, tenant):
                    self._engine.write_across(partial(make_index_locked, tenant))

    def check(self, *, deep: bool) -> list[str]:
        if not deep:
            self._one(None, "SELECT count(*) FROM tenants", ())
            return []
        damage = [f"the vector of row {row.key['row']} is damaged" for row in self.damaged_rows()]
        for user in self.users():
            with self._engine.read(user) as connection:
                damage += check_memories(connection, user)
        return damage

    def damaged_rows(self) -> list[DamagedRow]:
        # PostgreSQL has checksums of pages; only vectors are checked row by row.
        return [
            DamagedRow("memory_vectors", {"user": user, "row": row})
            for user in self.users()
            for (row,) in self._all(user, _BAD_VECTORS, (user, _UNIT_TOLERANCE))
        ]

    def repair(self) -> list[str]:
        drop = "DELETE FROM memory_vectors WHERE user = ? AND row = ?"
        rows = [(row.key["user"], row.key["row"]) for row in self.damaged_rows()]
        for user, row in rows:
            self.write(user, partial(_run, drop, (user, row)))
        return [f"damaged vectors deleted, to make them again: {len(rows)}"] if rows else []

    def backup(self, target: Path) -> None:
        raise InputError(
            "a PostgreSQL store is backed up by PostgreSQL's own tools",
            hint="`pg_dump --format=custom --schema=meritory`, or `meritory export` for one user",
        )

    def erase_traces(self) -> None:
        """Do nothing: the server's vacuum reuses the space of deleted rows."""

    def size_bytes(self) -> int:
        ((size_bytes,),) = self._all(None, "SELECT pg_database_size(current_database())", ())
        return int(size_bytes)

    def engine_name(self) -> str:
        ((server, vector, checksums),) = self._all(
            None,
            """SELECT current_setting('server_version'), extversion,
                    current_setting('data_checksums') FROM pg_extension
                WHERE extname = 'vector'""",
            (),
        )
        between = ", through a pooler" if self._engine.is_pooled else ""
        checked = "on" if checksums == "on" else "off: damage of its files goes unnoticed"
        return (
            f"PostgreSQL {server.split()[0]} with pgvector {vector}{between}, data checksums"
            f" {checked}"
        )

    def advice(self) -> list[str]:
        with self._engine.read_across() as connection:
            advice = about_login(connection)
        return [LATE, *advice] if self._engine.is_pooled else advice

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        return self._engine.try_lock(name)

    def follow(self, call: Callable[[], None]) -> Subscription | None:
        # A pooler drops notifications, or gives them to another client.
        return None if self._engine.is_pooled else self._listener.follow(call)

    def close(self) -> None:
        self._listener.close()
        self._engine.close()
        self._stemmer.close()
        self._views.clear()


LATE = (
    "a pooler stands in between: daemons look for each other's work every 15 s only;"
    " give them the server's own address"
)
# Together the two roles see all rows and all columns; one at a time they do not. Row-level security
# does not apply to an administrator.
_LOGIN = f"""SELECT quote_ident(session_user),
        current_setting('server_version_num')::integer >= 160000,
        pg_has_role(session_user, '{APP}', 'USAGE')
            AND pg_has_role(session_user, '{STEWARD}', 'USAGE')
            AND NOT (rolsuper OR rolbypassrls),
        r.oid = (SELECT nspowner FROM pg_namespace WHERE nspname = '{SCHEMA}')
    FROM pg_roles r WHERE rolname = session_user"""  # noqa: S608 - constants


def about_login(connection: SqlConnection) -> list[str]:
    """Return advice if the daemon's login can read the texts of all tenants in `psql`."""
    login, can_tell_apart, is_open, is_owner = connection.execute(_LOGIN).fetchone()
    if not is_open:
        return []
    closing = f"ALTER ROLE {login} NOINHERIT"
    if can_tell_apart:
        closing = f"GRANT {APP}, {STEWARD} TO {login} WITH INHERIT FALSE"
    if not is_owner:
        # Without the rights of the roles it needs its own to read the version.
        closing = (
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {login};"
            f" GRANT SELECT ON {SCHEMA}.schema_version TO {login}; {closing}"
        )
    return [f"the password of {login} opens all tenants' rows in `psql`; `{closing}` ends that"]


_UNIT_TOLERANCE = 0.01
_BAD_VECTORS = """SELECT v.row FROM memory_vectors v JOIN embedders e ON e.embedder = v.embedder
    WHERE v.user = ? AND v.vector IS NOT NULL AND (length(v.vector) <> 4 + e.dimension
        OR abs(vector_norm(v.vector) - 1) > ?) ORDER BY v.row"""


def _run(statement: str, values: tuple[Any, ...], transaction: Transaction) -> None:
    transaction.connection.execute(statement, values)
