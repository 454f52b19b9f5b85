"""Vectors stay in PostgreSQL: pgvector compares them, and only numbers are fetched.

All vectors of a tenant with a few ten thousand memories are compared, exactly. A larger tenant is
searched through pgvector's HNSW index, and other rows of a search are compared one by one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.rank.hybrid import centred_cosine, store_mean
from meritory.store.contract.memories import FloatArray, IntArray, NeighbourProbe
from meritory.store.postgres.pool import connect, is_pooled
from meritory.store.postgres.retry import translated
from meritory.store.postgres.schema import SCHEMA
from meritory.store.search.index import Nearest, View
from meritory.store.sql.mapper import SqlConnection

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection


# Up to here all vectors of a tenant are compared: about 1 ms for a thousand of 256 numbers.
EXACT_ROWS = 20_000
Products = NDArray[np.float64]
# The mean of a larger tenant is taken from so many vectors: it is off by 1 % of its length at most.
MEAN_ROWS = 10_000
# The mean vector is computed again when the tenant has grown by this share since.
MEAN_GROWTH = 0.1
_WIDENING = 4
# How many rows the index visits: it then finds 99 % of the true ten best (bench.teams).
_EF_SEARCH = 300
_EF_SEARCH_MAX = 1_000
# pgvector sends the dimension and two unused bytes before the numbers.
_HEADER_BYTES = 4
_OF_TENANT = """FROM memory_vectors v
    WHERE v.user = :user AND v.embedder = :embedder AND v.vector IS NOT NULL"""
_THESE = " AND v.row = ANY(:rows::bigint[])"
_PRODUCTS = f"""SELECT string_agg(int8send(v.row), ''::bytea),
        string_agg(float8send(-(v.vector <#> :query::vector)), ''::bytea),
        string_agg(float8send(-(v.vector <#> :mean::vector)), ''::bytea) {_OF_TENANT}"""
_VECTORS = f"""SELECT string_agg(int8send(v.row), ''::bytea),
        string_agg(vector_send(v.vector), ''::bytea) {_OF_TENANT}"""


def vector_text(vector: FloatArray) -> str:
    """Return a vector as text for pgvector, exact to the last bit."""
    return f"[{','.join(map(repr, np.asarray(vector, np.float32).astype(float).tolist()))}]"


def rows_text(rows: IntArray) -> str:
    """Return row numbers as text of an array: the driver takes ten times as long for a list."""
    return f"{{{','.join(map(str, rows.tolist()))}}}"


def vector_of(blob: bytes) -> FloatArray:
    """Return a vector that pgvector sent."""
    return np.frombuffer(blob, ">f4", offset=_HEADER_BYTES).astype(np.float32)


def vectors_of(packed: bytes, dimension: int) -> FloatArray:
    """Return many vectors that were sent end to end."""
    cell = np.dtype([("header", f"V{_HEADER_BYTES}"), ("numbers", ">f4", dimension)])
    return np.frombuffer(packed, cell)["numbers"].astype(np.float32)


class StoredEmbedder(NamedTuple):
    """The number and dimension of an embedder, for the vectors of one user."""

    user: str
    number: int
    dimension: int


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean vector of a tenant, and the mean direction of the vectors from it."""

    vector: FloatArray
    spread: FloatArray
    row_count: int


def take_mean(connection: SqlConnection, embedder: StoredEmbedder, view: View) -> Mean:
    """Return the mean of all vectors of a tenant, or of an even sample of many."""
    nothing = np.zeros(embedder.dimension, np.float32)
    if not embedder.dimension:
        return Mean(nothing, nothing, view.count)
    values: dict[str, Any] = {"user": embedder.user, "embedder": embedder.number}
    which, asked_count = "", view.count
    if view.count > EXACT_ROWS:
        slots = np.linspace(0, view.count - 1, MEAN_ROWS).astype(np.int64)
        which, asked_count = _THESE, MEAN_ROWS
        values["rows"] = rows_text(view.rows(slots))
    _, packed = connection.execute(_VECTORS + which, values).fetchone()
    if packed is None or not view.count:
        return Mean(nothing, nothing, view.count)
    vectors = vectors_of(packed, embedder.dimension)
    total = vectors.sum(axis=0, dtype=np.float64) * (view.count / asked_count)
    mean = store_mean(total, view.count).astype(np.float32)
    rest = vectors - mean
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    spread = np.mean(rest / np.where(lengths > 0.0, lengths, 1.0), axis=0)
    return Mean(mean, spread.astype(np.float32), view.count)


class Measured:
    """The vectors of one tenant for one search.

    A large tenant is only searched by the one measure that is then ranked by: `by_rest` is the
    cosine without what all memories share.
    """

    def __init__(
        self,
        connection: SqlConnection,
        view: View,
        embedder: StoredEmbedder,
        mean: Mean,
        by_rest: bool,
    ) -> None:
        """An unknown embedder has dimension 0."""
        self._connection, self._view, self._embedder = connection, view, embedder
        self._mean, self._by_rest = mean, by_rest
        self._query = np.empty(0, np.float32)
        self._is_complete = True

    def cosines(self, query: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
        """Return by slot raw and centred cosines, at least of the best `limit`, others NaN."""
        raw = np.full(self._view.count, np.nan, np.float32)
        if query.size != self._embedder.dimension or not query.any():
            return raw, raw.copy()
        self._query = query
        centred = raw.copy()
        self._is_complete = self._view.count <= EXACT_ROWS
        if self._is_complete:
            self._measure(raw, centred, None)
            return raw, centred
        mean = self._mean.vector
        direction = query - mean if self._by_rest else query
        wanted = max(_EF_SEARCH, limit + limit // 2)
        while True:
            # The index also finds rows that are not open.
            found = indexed_rows(self._connection, self._embedder, (direction, query, mean), wanted)
            rows, dots, mean_dots = np.array(found, np.float64).reshape(-1, 3).T
            open_count = self._note(raw, centred, (rows.astype(np.int64), dots, mean_dots))
            if len(rows) < wanted or open_count >= limit:
                return raw, centred
            wanted *= _WIDENING

    def complete(self, raw: FloatArray, centred: FloatArray, slots: IntArray) -> None:
        """Fill in the cosines that these slots lack."""
        if not self._is_complete:
            missing = slots[np.isnan(raw[slots])]
            if len(missing):
                self._measure(raw, centred, self._view.rows(missing))

    def mean_cosine(self, centred: FloatArray) -> float:
        """Return the mean centred cosine: of open slots, or of all rows of a large tenant."""
        if not self._is_complete:
            asked = self._query - self._mean.vector
            length = float(np.linalg.norm(asked))
            return float(self._mean.spread @ asked) / length if length else 0.0
        return float(np.nanmean(centred)) if np.isfinite(centred).any() else 0.0

    def vectors(self, slots: IntArray) -> FloatArray:
        """Return the vectors of slots, zero where there is none."""
        embedder = self._embedder
        found = np.zeros((len(slots), embedder.dimension), np.float32)
        if not embedder.dimension:
            return found
        rows = self._view.rows(slots)
        values = {"user": embedder.user, "embedder": embedder.number, "rows": rows_text(rows)}
        known, sent = self._connection.execute(_VECTORS + _THESE, values).fetchone()
        if known is not None:
            order = np.argsort(rows)
            place = order[np.searchsorted(rows, np.frombuffer(known, ">i8"), sorter=order)]
            found[place] = vectors_of(sent, embedder.dimension)
        return found

    def _measure(self, raw: FloatArray, centred: FloatArray, rows: IntArray | None) -> None:
        """Fetch the cosines of rows, or of all."""
        values = {
            "user": self._embedder.user,
            "embedder": self._embedder.number,
            "query": vector_text(self._query),
            "mean": vector_text(self._mean.vector),
        }
        statement = _PRODUCTS
        if rows is not None:
            statement, values["rows"] = _PRODUCTS + _THESE, rows_text(rows)
        packed = self._connection.execute(statement, values).fetchone()
        if packed[0] is not None:
            rows = np.frombuffer(packed[0], ">i8").astype(np.int64)
            dots, mean_dots = (np.frombuffer(part, ">f8").astype(np.float64) for part in packed[1:])
            self._note(raw, centred, (rows, dots, mean_dots))

    def _note(
        self, raw: FloatArray, centred: FloatArray, found: tuple[IntArray, Products, Products]
    ) -> int:
        """Store fetched products by slot; return how many of the rows are open."""
        rows, dots, mean_dots = found
        slots = self._view.open_slots_of(rows)
        is_open = slots >= 0
        slots, dots, mean_dots = slots[is_open], dots[is_open], mean_dots[is_open]
        raw[slots] = dots
        centred[slots] = centred_cosine(dots, mean_dots, self._query, self._mean.vector)
        return len(slots)


def indexed_rows(
    connection: SqlConnection,
    embedder: StoredEmbedder,
    asked: tuple[FloatArray, FloatArray, FloatArray],
    limit: int,
) -> list[tuple[int, float, float]]:
    """Return the rows furthest in a direction, with their products with two more vectors."""
    from psycopg import sql

    direction, first, second = map(vector_text, asked)
    number, dimension = embedder.number, embedder.dimension
    effort = min(_EF_SEARCH_MAX, max(_EF_SEARCH, limit))
    connection.execute(
        f"""SELECT set_config('hnsw.iterative_scan', 'strict_order', true),
            set_config('hnsw.ef_search', '{effort:d}', true)"""
    )
    # Tenant and embedder are part of the text: only then can the planner use a partial index.
    found = connection.execute(
        f"""SELECT v.row, -(v.vector <#> :first::vector), -(v.vector <#> :second::vector)
            FROM memory_vectors v WHERE v.user = :user AND v.vector IS NOT NULL
                AND v.user = {sql.quote(embedder.user)} AND v.embedder = {number:d}
            ORDER BY (v.vector::halfvec({dimension:d})) <#> :direction::halfvec({dimension:d})
            LIMIT {limit:d}""",  # noqa: S608
        {"user": embedder.user, "direction": direction, "first": first, "second": second},
    )
    return found.fetchall()


def embedder_of(connection: SqlConnection, user: str, name: str | None) -> StoredEmbedder:
    """Return an embedder for the vectors of one tenant; an unknown one has number 0."""
    asked = "SELECT embedder, dimension FROM embedders WHERE name = ?"
    return StoredEmbedder(user, *(connection.execute(asked, (name,)).fetchone() or (0, 0)))


# From so many vectors on it is faster to fetch the vectors of the scope.
_MANY = 3
# How many times more rows the index returns, because it also finds those of other scopes.
_SCOPE_WIDENING = 8
_LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL AND v.vector IS NOT NULL"
_OF_SCOPE = f"""FROM memories m JOIN memory_vectors v ON v.user = m.user AND v.row = m.row
    WHERE m.user = :user AND m.scope = :scope AND v.embedder = :embedder AND {_LIVE}"""
_COSINES = f"""SELECT m.row, -(v.vector <#> :query::vector) {_OF_SCOPE}
        AND -(v.vector <#> :query::vector) >= :floor"""
_OF_SCOPE_VECTORS = f"SELECT m.row, v.vector {_OF_SCOPE} ORDER BY m.row"
_ROW_COUNT = "SELECT document_count FROM tenants WHERE user = ?"


def nearest_rows(connection: SqlConnection, probe: NeighbourProbe, scope: int) -> list[Nearest]:
    """Return for each vector the live rows of a scope at or above a cosine, nearest first."""
    embedder = embedder_of(connection, probe.scope.user, probe.embedder)
    if not embedder.number or embedder.dimension != probe.vectors.shape[1]:
        # The embedder was retired between embedding and writing.
        return [Nearest.none() for _ in probe.vectors]
    values = {"user": embedder.user, "embedder": embedder.number, "scope": scope}
    (row_count,) = connection.execute(_ROW_COUNT, (embedder.user,)).fetchone() or (0,)
    if row_count <= EXACT_ROWS:
        if len(probe.vectors) >= _MANY:
            return _compared(connection, probe, values)
        return [_nearest(connection, probe, vector, values) for vector in probe.vectors]
    nearest, wanted = [], probe.limit * _SCOPE_WIDENING
    for vector in probe.vectors:
        rows = indexed_rows(connection, embedder, (vector, vector, vector), wanted)
        close = np.array([row for row, cosine, _ in rows if cosine >= probe.floor], np.int64)
        asked = {**values, "rows": rows_text(close)}
        nearest.append(_nearest(connection, probe, vector, asked, _THESE))
    return nearest


def _nearest(
    connection: SqlConnection,
    probe: NeighbourProbe,
    vector: FloatArray,
    values: dict[str, Any],
    which: str = "",
) -> Nearest:
    found = connection.execute(
        f"{_COSINES} {which} ORDER BY 2 DESC, 1 LIMIT :limit",
        {**values, "query": vector_text(vector), "floor": probe.floor, "limit": probe.limit},
    ).fetchall()
    rows, cosines = zip(*found, strict=True) if found else ((), ())
    return Nearest(np.array(rows, np.int64), np.array(cosines, np.float32))


def _compared(
    connection: SqlConnection, probe: NeighbourProbe, values: dict[str, Any]
) -> list[Nearest]:
    """Compare all vectors of the scope by one product of matrices."""
    found = connection.execute(_OF_SCOPE_VECTORS, values).fetchall()
    if not found:
        return [Nearest.none() for _ in probe.vectors]
    rows = np.array([row for row, _ in found], np.int64)
    stored = np.stack([vector_of(sent) for _, sent in found])
    nearest = []
    for cosines in probe.vectors.astype(np.float32) @ stored.T:
        near = np.flatnonzero(cosines >= probe.floor)
        near = near[np.lexsort((rows[near], -cosines[near]))][: probe.limit]
        nearest.append(Nearest(rows[near], cosines[near]))
    return nearest


# pgvector's index takes no longer vectors; those are always compared one by one.
INDEXED_DIMENSIONS = 4_000
# Twice pgvector's default, with numbers of half the size: building takes longer, the share of the
# ten best rises from .978 to .992, and the graph is much smaller; its results are compared exactly.
EF_CONSTRUCTION = 128
# The graph of a tenant of a few hundred thousand memories needs it: with less, building crawls.
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
_ABOUT = f"""SELECT pg_has_role(session_user, c.relowner, 'USAGE'), quote_ident(n.nspname),
        'memory_vectors_' || %s::bigint || '_' || md5(%s)
    FROM pg_class c, pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE c.oid = to_regclass('{SCHEMA}.memory_vectors') AND e.extname = 'vector'"""  # noqa: S608
_STATE = """SELECT i.indisvalid OR EXISTS (SELECT 1 FROM pg_stat_progress_create_index p
        WHERE p.index_relid = i.indexrelid)
    FROM pg_index i WHERE i.indexrelid = to_regclass(%s)"""


def lacking_index(connection: SqlConnection) -> list[StoredEmbedder]:
    """Return large tenants without an index for the serving embedder."""
    rows = connection.execute(_LACKING, (EXACT_ROWS, INDEXED_DIMENSIONS))
    return [StoredEmbedder(*row) for row in rows]


def make_index(url: str, tenant: StoredEmbedder) -> bool:
    """Create the index of one tenant while others read and write; it may take minutes.

    Return False if the login does not own the tables. The caller holds the lock.
    """
    import psycopg
    from psycopg import sql

    # A connection of its own: the statement cannot run in a transaction or under another role.
    with translated(), contextlib.closing(connect(url)) as raw:
        asked = raw.execute(_ABOUT, (tenant.number, tenant.user)).fetchone()
        is_owner, vector_schema, name = asked or (False, "", "")
        if is_owner and not is_pooled(raw):
            # Behind a pooler this setting would reach the next client of the connection.
            raw.execute(_FOR_LONG_WORK.encode())
        if not is_owner or _exists(raw, name):
            return bool(is_owner)
        statement = f"""CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {SCHEMA}.memory_vectors
            USING hnsw ((vector::{vector_schema}.halfvec({tenant.dimension:d}))
                {vector_schema}.halfvec_ip_ops) WITH (ef_construction = {EF_CONSTRUCTION})
            WHERE "user" = {sql.quote(tenant.user, raw)} AND embedder = {tenant.number:d}
                AND vector IS NOT NULL""".encode()
        try:
            raw.execute(statement)
        except psycopg.errors.DiskFull:
            if is_pooled(raw):
                raise
            # Workers share memory, of which a container has little; a single process needs none.
            _exists(raw, name)
            raw.execute("SET max_parallel_maintenance_workers = 0")
            raw.execute(statement)
        return True


def _exists(raw: RawConnection[Any], name: str) -> bool:
    """Return whether the index exists or is being built; drop the rest of a failed try."""
    state = raw.execute(_STATE, (f"{SCHEMA}.{name}",)).fetchone()
    if state is not None and not state[0]:
        raw.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{name}".encode())
        return False
    return state is not None


def make_index_locked(tenant: StoredEmbedder, connection: SqlConnection) -> None:
    """Do the same for a login that does not own the tables; writers wait until it is done."""
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute("SELECT index_vectors(?, ?, ?)", tuple(tenant))
