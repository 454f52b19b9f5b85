"""The vector indexes of large tenants, made beside the work of everybody else.

One that a crash or an impatient operator left half made is not used by PostgreSQL; it is taken
away and made again. Several daemons may look after one database: only one of them makes indexes,
for two on one table wait for each other until the server ends one, after minutes of work.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from meritory.store.postgres import vectors
from meritory.store.postgres.engine import translated
from meritory.store.postgres.pool import connect, is_pooled
from meritory.store.postgres.schema import SCHEMA
from meritory.store.sql.connection import SqlConnection

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection
    from psycopg.sql import Composed

# More numbers than pgvector's index takes; such vectors are always measured.
INDEXED_DIMENSIONS = 4_000
# Twice pgvector's own, and numbers of half the size: it takes longer to make, .978 of the ten best
# become .992, and the graph is much smaller; whatever it finds is measured exactly.
EF_CONSTRUCTION = 128
# What the graph of a tenant of a few hundred thousand needs: beyond it, building crawls.
_BUILD_MEMORY = "512MB"
_FOR_LONG_WORK = (
    f"SET statement_timeout = 0; SET lock_timeout = 0; SET maintenance_work_mem = '{_BUILD_MEMORY}'"
)
_LACKING = """SELECT t.user, e.embedder, e.dimension FROM tenants t JOIN embedders e ON e.embedder =
        (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')
    WHERE t.document_count > ? AND e.dimension <= ? AND NOT EXISTS (
        SELECT 1 FROM pg_index i WHERE i.indisvalid AND i.indexrelid = to_regclass(
            'memory_vectors_' || e.embedder || '_' || md5(t.user)))
    ORDER BY t.user"""
_ABOUT = f"""SELECT pg_has_role(session_user, c.relowner, 'USAGE'), n.nspname,
        'memory_vectors_' || %s::bigint || '_' || md5(%s)
    FROM pg_class c, pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE c.oid = to_regclass('{SCHEMA}.memory_vectors') AND e.extname = 'vector'"""  # noqa: S608
_STATE = """SELECT i.indisvalid OR EXISTS (SELECT 1 FROM pg_stat_progress_create_index p
        WHERE p.index_relid = i.indexrelid)
    FROM pg_index i WHERE i.indexrelid = to_regclass(%s)"""


class LargeTenant(NamedTuple):
    """A tenant that needs an index, for the vectors of one embedder."""

    user: str
    embedder: int
    dimension: int


def lacking_index(connection: SqlConnection) -> list[LargeTenant]:
    """Tenants too large to be measured whole that have no index yet, with the serving embedder."""
    found = connection.execute(_LACKING, (vectors.EXACT_ROWS, INDEXED_DIMENSIONS))
    return [LargeTenant(*row) for row in found]


def make_index(url: str, tenant: LargeTenant) -> bool:
    """Makes the index of one tenant while others read and write; it may take minutes.

    False where whoever logs in there does not own the tables, and may not. It is the caller's turn.
    """
    # Of its own: such a statement cannot be in a transaction, nor under another role than its own.
    with translated(), contextlib.closing(connect(url)) as raw:
        asked = raw.execute(_ABOUT, (tenant.embedder, tenant.user)).fetchone()
        is_owner, vector_schema, name = asked or (False, "", "")
        if is_owner and not is_pooled(raw):
            # Behind a pooler this would stay for whoever gets the connection next: there the
            # server's own limits hold.
            raw.execute(_FOR_LONG_WORK.encode())
        if is_owner and not _is_there(raw, name):
            _create(raw, name, _statement(tenant, name, vector_schema))
        return bool(is_owner)


def _create(raw: RawConnection[Any], name: str, statement: Composed) -> None:
    import psycopg

    try:
        raw.execute(statement)
    except psycopg.errors.DiskFull:
        if is_pooled(raw):
            raise
        # Workers share memory, of which a container has little; one alone needs none of it.
        _is_there(raw, name)
        raw.execute("SET max_parallel_maintenance_workers = 0")
        raw.execute(statement)


def _is_there(raw: RawConnection[Any], name: str) -> bool:
    """Whether the index is made, or somebody is at it; what is left of a failed try is dropped."""
    state = raw.execute(_STATE, (f"{SCHEMA}.{name}",)).fetchone()
    if state is not None and not state[0]:
        raw.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{name}".encode())
        return False
    return state is not None


def _statement(tenant: LargeTenant, name: str, vector_schema: str) -> Composed:
    from psycopg import sql

    return sql.SQL(
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table}"
        " USING hnsw ((vector::{kind}({width})) {measure}) WITH (ef_construction = {effort})"
        ' WHERE "user" = {user} AND embedder = {embedder} AND vector IS NOT NULL'
    ).format(
        name=sql.Identifier(name),
        table=sql.Identifier(SCHEMA, "memory_vectors"),
        kind=sql.Identifier(vector_schema, "halfvec"),
        measure=sql.Identifier(vector_schema, "halfvec_ip_ops"),
        width=sql.Literal(tenant.dimension),
        effort=sql.Literal(EF_CONSTRUCTION),
        user=sql.Literal(tenant.user),
        embedder=sql.Literal(tenant.embedder),
    )


def make_index_locked(tenant: LargeTenant, connection: SqlConnection) -> None:
    """The same for a login that does not own the tables; meanwhile writers wait."""
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute("SELECT index_vectors(?, ?, ?)", tuple(tenant))
