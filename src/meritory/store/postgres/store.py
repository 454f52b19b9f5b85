"""The PostgreSQL store: one database that many daemons share, each tenant behind its wall."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.place import Place
from meritory.domain.session import ModelRows
from meritory.domain.world import Subscription
from meritory.store.contract.memories import (
    Gathered,
    Gathering,
    IntArray,
    NeighbourProbe,
    Search,
    SearchPool,
    Trait,
)
from meritory.store.contract.store import Transaction
from meritory.store.postgres.connection import WritingConnection
from meritory.store.postgres.engine import CONNECTION_LIMIT, PostgresEngine
from meritory.store.postgres.notify import Listener
from meritory.store.postgres.schema import APP, SCHEMA, STEWARD
from meritory.store.postgres.terms import TermTable
from meritory.store.postgres.training_reader import ModelTable, stored_vectors
from meritory.store.postgres.vectors import (
    Measured,
    embedder_of,
    lacking_index,
    make_index,
    make_index_locked,
    nearest_rows,
)
from meritory.store.postgres.views import TenantTraitCache, Views
from meritory.store.postgres.write import TOPICS, PostgresTransaction
from meritory.store.search import search
from meritory.store.search.index import Nearest
from meritory.store.search.search import Ground
from meritory.store.sql.mapper import SqlConnection, as_json
from meritory.store.sql.memories import (
    MemoryRows,
    damaged_history,
    damaged_memories,
    visible_scopes,
)
from meritory.store.sql.store import SqlStore, set_serving
from meritory.store.sqlite.fulltext import Stemmer

T = TypeVar("T")
# Memories of all tenants that lack a vector, in the order of tenants and numbers.
_LACKING = """SELECT t.user, t.row FROM memory_stats t
    WHERE (t.user, t.row) > (coalesce(:after, ''), :last)
        AND NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.user = t.user AND v.row = t.row
            AND v.embedder = (SELECT embedder FROM embedders WHERE name = :embedder))"""

# Every tenant counts for itself, and any of them may be the one whose number grew.
_NUMBERS = {"memory": "change", **{topic: topic for topic in sorted(set(TOPICS.values()))}}
_SUMS = "SELECT {} FROM tenants".format(  # noqa: S608 - constants
    ", ".join(f"coalesce(sum({column}), 0)::bigint" for column in _NUMBERS.values())
)
# Who takes a job holds no tenant's row to count in; only few run at any time.
_RUNNING = "SELECT job, lease FROM jobs WHERE state = 'running' ORDER BY job"


class PostgresStore(SqlStore):
    """The storage contract on one PostgreSQL database."""

    _engine: PostgresEngine

    def __init__(self, url: str, pool_size: int = CONNECTION_LIMIT) -> None:
        super().__init__()
        self.place = Place(url=url)
        self._engine = PostgresEngine(url, pool_size)
        self._listener = Listener(url)
        self.models: ModelRows | None = ModelTable(self._engine)
        self._stemmer = Stemmer()
        self._views = Views()
        self._traits = TenantTraitCache()

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

    def search(self, search_: Search) -> SearchPool:
        with self._engine.read(search_.scope.user) as connection:
            return search.run(self._ground(connection, search_, by_rest=True), search_)

    def gather(self, gathering: Gathering) -> Gathered:
        with self._engine.read(gathering.search.scope.user) as connection:
            ground = self._ground(connection, gathering.search, by_rest=False)
            return search.gather(ground, gathering)

    def _ground(self, connection: SqlConnection, asked: Search, *, by_rest: bool) -> Ground:
        user = asked.scope.user
        scopes = visible_scopes(connection, asked.scope)
        index = self._views.index(connection, user)
        view = search.open_view(index, asked, scopes)
        embedder = embedder_of(connection, user, asked.embedder)
        known = None
        if embedder is not None:
            known = embedder, self._views.mean(connection, embedder, view)
        words = TermTable(connection, user, self._stemmer, view)
        vectors = Measured(connection, view, known, by_rest)
        return Ground(connection, self._stemmer, view, scopes, words, vectors)

    def traits(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, Trait]:
        with self._engine.read(scope.user) as connection, self._traits.of(scope.user) as known:
            scopes = visible_scopes(connection, scope)
            return known.of(connection, rows, scopes, now)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        with self._engine.read(user) as connection:
            return stored_vectors(connection, user, embedder, memory_ids)

    # -- all tenants ----------------------------------------------------------------------

    def users(self) -> list[str]:
        with self._engine.read_across() as connection:
            found = connection.execute(
                """SELECT t.user FROM tenants t WHERE EXISTS
                    (SELECT 1 FROM memories m WHERE m.user = t.user) ORDER BY t.user"""
            )
            return [user for (user,) in found]

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
        user, last = self._place(after)
        while len(page) < limit:
            wanted = limit - len(page)
            with self._engine.read_across() as connection:
                rows = connection.execute(
                    f"{_LACKING} ORDER BY t.user, t.row LIMIT :limit",
                    {"embedder": embedder, "after": user, "last": last, "limit": wanted},
                ).fetchall()
            page += self._sound(rows)
            if len(rows) < wanted:
                break
            user, last = rows[-1]
        return page

    def _place(self, after: MemoryRecord | None) -> tuple[str | None, int]:
        """Behind which tenant and row to go on; from the start where the memory is gone."""
        if after is None:
            return None, 0
        found = self._one(
            after.user,
            "SELECT row FROM memories WHERE user = ? AND id = ?",
            (after.user, after.id),
        )
        return (after.user, int(found[0])) if found else (None, 0)

    def _sound(self, rows: Sequence[tuple[str, int]]) -> list[MemoryRecord]:
        """The records behind tenants and rows, in their order, but for damaged ones."""
        found: list[MemoryRecord] = []
        for user in dict.fromkeys(user for user, _ in rows):
            own = [row for owner, row in rows if owner == user]
            with self._engine.read(user) as connection:
                records = MemoryRows(connection, self.damaged).sound_records(
                    "m.user = :user AND m.row IN (SELECT value FROM json_each(:rows))",
                    {"user": user, "rows": as_json(own)},
                )
            found += [records[row] for row in own if row in records]
        return found

    def serve_embedder(self, embedder: str) -> bool:
        serves = self._engine.write_across(lambda connection: _serve(connection, embedder))
        if serves:
            self._views.clear()
        return serves

    # -- care -----------------------------------------------------------------------------

    def tidy(self, should_stop: Callable[[], bool]) -> None:
        # The rest PostgreSQL does by itself: that is what autovacuum is for.
        with self._engine.read_across() as connection:
            lacking = lacking_index(connection)
        if not lacking:
            return
        with self._engine.turn("vector indexes") as is_ours:
            for tenant in lacking:
                if not is_ours or should_stop():
                    return
                if not make_index(self.place.url, tenant):
                    self._engine.write_across(partial(make_index_locked, tenant))

    def check(self, *, deep: bool) -> list[str]:
        if not deep:
            with self._engine.read_across() as connection:
                connection.execute("SELECT count(*) FROM tenants").fetchone()
            return []
        damage: list[str] = []
        for user in self.users():
            with self._engine.read(user) as connection:
                damage += check_tenant(connection, user)
        return damage

    def backup(self, target: Path) -> None:
        raise InputError(
            "a PostgreSQL store is backed up by PostgreSQL's own tools",
            hint="`pg_dump --format=custom --schema=meritory`, or `meritory export` for one user",
        )

    def erase_traces(self) -> None:
        """Rows that are gone are reused by the server's vacuum; its log and backups are its own."""

    def size_bytes(self) -> int:
        with self._engine.read_across() as connection:
            asked = "SELECT pg_database_size(current_database())"
            return int(connection.execute(asked).fetchone()[0])

    def engine_name(self) -> str:
        with self._engine.read_across() as connection:
            server, vector = connection.execute(
                """SELECT current_setting('server_version'), extversion FROM pg_extension
                    WHERE extname = 'vector'"""
            ).fetchone()
        between = ", through a pooler" if self._engine.is_pooled else ""
        return f"PostgreSQL {server.split()[0]} with pgvector {vector}{between}"

    def advice(self) -> list[str]:
        with self._engine.read_across() as connection:
            found = about_login(connection)
        return [LATE, *found] if self._engine.is_pooled else found

    def turn(self, what: str) -> AbstractContextManager[bool]:
        return self._engine.turn(what)

    def follow(self, told: Callable[[], None]) -> Subscription | None:
        # A pooler drops notifications, or gives them to another client.
        return None if self._engine.is_pooled else self._listener.follow(told)

    def close(self) -> None:
        self._listener.close()
        self._engine.close()
        self._stemmer.close()
        self._views.clear()


def _serve(connection: SqlConnection, embedder: str) -> bool:
    ready = connection.execute(
        f"SELECT 1 FROM embedders WHERE name = :embedder AND NOT EXISTS ({_LACKING})",  # noqa: S608
        {"embedder": embedder, "after": None, "last": 0},
    ).fetchone()
    if ready is None:
        return False
    set_serving(connection, embedder)
    connection.execute("DELETE FROM embedders WHERE name <> ?", (embedder,))
    return True


LATE = (
    "a pooler stands in between: daemons look for each other's work every 15 s only;"
    " give them the server's own address"
)
# Together the two roles see all rows and all columns; one at a time they do not. An administrator
# stands above all walls anyway.
_LOGIN = f"""SELECT quote_ident(session_user),
        current_setting('server_version_num')::integer >= 160000,
        pg_has_role(session_user, '{APP}', 'USAGE')
            AND pg_has_role(session_user, '{STEWARD}', 'USAGE')
            AND NOT (rolsuper OR rolbypassrls),
        r.oid = (SELECT nspowner FROM pg_namespace WHERE nspname = '{SCHEMA}')
    FROM pg_roles r WHERE rolname = session_user"""  # noqa: S608 - constants


def about_login(connection: SqlConnection) -> list[str]:
    """Whether the daemon's password opens the texts of all tenants, without Meritory."""
    login, can_tell_apart, is_open, is_owner = connection.execute(_LOGIN).fetchone()
    if not is_open:
        return []
    closing = f"ALTER ROLE {login} NOINHERIT"
    if can_tell_apart:
        closing = f"GRANT {APP}, {STEWARD} TO {login} WITH INHERIT FALSE"
    if not is_owner:
        # Without the roles' rights it has to be let in by itself, to look which version there is.
        closing = (
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {login};"
            f" GRANT SELECT ON {SCHEMA}.schema_version TO {login}; {closing}"
        )
    return [f"the password of {login} opens all tenants' rows in `psql`; `{closing}` ends that"]


_DAMAGE_LIMIT = 20
_UNIT_TOLERANCE = 0.01
_COUNTS = """SELECT (SELECT count(*) FROM memories WHERE user = :user),
    (SELECT count(*) FROM memories m JOIN memory_stats t ON t.row = m.row WHERE m.user = :user)"""
_BAD_VECTORS = """SELECT v.row FROM memory_vectors v JOIN embedders e ON e.embedder = v.embedder
    WHERE v.user = ? AND v.vector IS NOT NULL AND (length(v.vector) <> 4 * e.dimension
        OR abs(vector_norm(v.vector) - 1) > ?) ORDER BY v.row LIMIT ?"""


def check_tenant(connection: SqlConnection, user: str) -> list[str]:
    """Reads every row of a tenant and its hash."""
    damage = list(itertools.islice(damaged_memories(connection, user), _DAMAGE_LIMIT))
    damage += itertools.islice(damaged_history(connection, user), _DAMAGE_LIMIT)
    bad = connection.execute(_BAD_VECTORS, (user, _UNIT_TOLERANCE, _DAMAGE_LIMIT))
    damage += [f"the vector of row {row} is damaged" for (row,) in bad]
    stored, joined = connection.execute(_COUNTS, {"user": user}).fetchone()
    if joined != stored:
        damage.append(f"{stored - joined} memories lack their counters")
    return damage
