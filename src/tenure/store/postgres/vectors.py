"""Vectors that stay in PostgreSQL: pgvector measures, and only numbers come over.

A tenant of a few ten thousand memories is measured as a whole, exactly. A larger one is searched
through pgvector's HNSW index, and what else a search needs is measured row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenure.rank.hybrid import centred_cosine, store_mean
from tenure.store.base import FloatArray, IntArray
from tenure.store.reads import as_json
from tenure.store.sql import Connection
from tenure.store.view import View

# Up to here all of a tenant's vectors are measured: about 1 ms for a thousand of 256 numbers.
EXACT_ROWS = 20_000
# More numbers than pgvector's index takes; such vectors are always measured.
INDEXED_DIMENSIONS = 2_000
# The mean vector is taken anew when the tenant has grown by this share since.
_MEAN_GROWTH = 0.1
_WIDENING = 4
_EF_SEARCH = 200
# What pgvector sends in front of the numbers: how many there are, and two bytes of nothing.
_HEADER_BYTES = 4
_MEASURED = """SELECT string_agg(int8send(v.row), ''::bytea),
        string_agg(float8send(-(v.vector <#> :query::vector)), ''::bytea),
        string_agg(float8send(-(v.vector <#> :mean::vector)), ''::bytea)
    FROM memory_vectors v
    WHERE v.user = :user AND v.embedder = :embedder AND v.vector IS NOT NULL"""
_THESE = " AND v.row IN (SELECT value FROM json_each(:rows))"
_MEAN = """SELECT avg(v.vector)::text, count(*) FROM memory_vectors v
    WHERE v.user = ? AND v.embedder = ? AND v.vector IS NOT NULL"""
_SPREAD = """SELECT avg(l2_normalize(v.vector - :mean::vector))::text FROM memory_vectors v
    WHERE v.user = :user AND v.embedder = :embedder AND v.vector IS NOT NULL"""
_VECTORS = """SELECT v.row, v.vector FROM memory_vectors v
    WHERE v.user = ? AND v.embedder = ? AND v.vector IS NOT NULL
        AND v.row IN (SELECT value FROM json_each(?))"""


def vector_text(vector: FloatArray) -> str:
    """A vector in pgvector's words, exact to the last bit."""
    return f"[{','.join(map(repr, np.asarray(vector, np.float32).astype(float).tolist()))}]"


def vector_of(sent: bytes) -> FloatArray:
    """A vector as pgvector sends it."""
    return np.frombuffer(sent, ">f4", offset=_HEADER_BYTES).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Embedder:
    """The number and dimension of an embedder, and whose vectors are meant."""

    user: str
    number: int
    dimension: int


@dataclass(frozen=True, slots=True)
class Mean:
    """What all vectors of a tenant share, and how their rest lies on the whole."""

    vector: FloatArray
    spread: FloatArray
    row_count: int

    def is_fresh(self, row_count: int) -> bool:
        """Whether the tenant has hardly grown since."""
        return row_count <= self.row_count * (1.0 + _MEAN_GROWTH)


def take_mean(connection: Connection, embedder: Embedder, row_count: int) -> Mean:
    """Asks pgvector for the mean of all vectors."""
    found, count = connection.execute(_MEAN, (embedder.user, embedder.number)).fetchone()
    if not count:
        nothing = np.zeros(embedder.dimension, np.float32)
        return Mean(nothing, nothing, row_count)
    total = _parsed(found).astype(np.float64) * count
    mean = store_mean(total, row_count).astype(np.float32)
    (spread,) = connection.execute(
        _SPREAD,
        {"user": embedder.user, "embedder": embedder.number, "mean": vector_text(mean)},
    ).fetchone()
    return Mean(mean, _parsed(spread), row_count)


def _parsed(text: str) -> FloatArray:
    return np.fromstring(text.strip("[]"), np.float32, sep=",")


def lacking_index(connection: Connection) -> list[tuple[str, int, int]]:
    """Tenants too large to be measured whole that have no index yet, with the serving embedder."""
    return connection.execute(
        """SELECT t.user, e.embedder, e.dimension FROM tenants t JOIN embedders e ON e.embedder =
                (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')
            WHERE t.document_count > ? AND e.dimension <= ? AND to_regclass(
                'memory_vectors_' || e.embedder || '_' || md5(t.user)) IS NULL
            ORDER BY t.user""",
        (EXACT_ROWS, INDEXED_DIMENSIONS),
    ).fetchall()


def make_index(wanted: tuple[str, int, int], connection: Connection) -> None:
    """Makes the index of one tenant; it takes minutes where there are hundreds of thousands."""
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute("SELECT index_vectors(?, ?, ?)", wanted)


class Measured:
    """The vectors of one tenant for one search."""

    def __init__(
        self, connection: Connection, view: View, embedder: Embedder | None, mean: Mean | None
    ) -> None:
        self._connection = connection
        self._view = view
        self._embedder = embedder
        self._mean = mean
        self._query = np.empty(0, np.float32)
        self._is_complete = True

    def cosines(self, query: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
        """By slot raw and centred cosines, of at least the best `limit`; NaN where unknown."""
        raw = np.full(self._view.count, np.nan, np.float32)
        if self._embedder is None or query.size != self._embedder.dimension or not query.any():
            return raw, raw.copy()
        self._query = query
        centred = raw.copy()
        self._is_complete = self._view.count <= EXACT_ROWS
        if self._is_complete:
            self._measure(raw, centred, "", {})
        else:
            self._search(raw, centred, limit)
        return raw, centred

    def complete(self, raw: FloatArray, centred: FloatArray, slots: IntArray) -> None:
        """Fills in what is missing of these slots."""
        if not self._is_complete:
            missing = slots[np.isnan(raw[slots])]
            rows = as_json(self._view.rows(missing).tolist())
            self._measure(raw, centred, _THESE, {"rows": rows})

    def mean_cosine(self, centred: FloatArray) -> float:
        """The mean centred cosine: of what is open, or of the whole tenant where it is large."""
        if not self._is_complete and self._mean is not None:
            asked = self._query - self._mean.vector
            length = float(np.linalg.norm(asked))
            return float(self._mean.spread @ asked) / length if length else 0.0
        return float(np.nanmean(centred)) if np.isfinite(centred).any() else 0.0

    def vectors(self, slots: IntArray) -> FloatArray:
        """The vectors of slots, zero where there is none."""
        embedder = self._embedder
        if embedder is None:
            return np.zeros((len(slots), 0), np.float32)
        found = np.zeros((len(slots), embedder.dimension), np.float32)
        rows = self._view.rows(slots)
        place = {row: at for at, row in enumerate(rows.tolist())}
        values = (embedder.user, embedder.number, as_json(place))
        for row, sent in self._connection.execute(_VECTORS, values):
            found[place[row]] = vector_of(sent)
        return found

    def _measure(
        self, raw: FloatArray, centred: FloatArray, which: str, values: dict[str, Any]
    ) -> IntArray:
        """Asks for the cosines of rows; returns the slots of those that are open."""
        assert self._embedder is not None and self._mean is not None  # noqa: S101 - for mypy
        packed = self._connection.execute(
            _MEASURED + which,
            {
                "user": self._embedder.user,
                "embedder": self._embedder.number,
                "query": vector_text(self._query),
                "mean": vector_text(self._mean.vector),
                **values,
            },
        ).fetchone()
        if packed[0] is None:
            return np.empty(0, np.int64)
        rows = np.frombuffer(packed[0], ">i8").astype(np.int64)
        dots, mean_dots = (np.frombuffer(part, ">f8").astype(np.float64) for part in packed[1:])
        slots = self._view.open_slots_of(rows)
        is_open = slots >= 0
        slots, dots, mean_dots = slots[is_open], dots[is_open], mean_dots[is_open]
        raw[slots] = dots
        centred[slots] = centred_cosine(dots, mean_dots, self._query, self._mean.vector)
        return slots

    def _search(self, raw: FloatArray, centred: FloatArray, limit: int) -> None:
        """The nearest by both measures through the index; what is not open takes no place."""
        assert self._embedder is not None and self._mean is not None  # noqa: S101 - for mypy
        for direction in (self._query, self._query - self._mean.vector):
            wanted = 2 * limit
            while True:
                rows = indexed_rows(self._connection, self._embedder, direction, wanted)
                slots = self._measure(raw, centred, _THESE, {"rows": as_json(rows)})
                if len(rows) < wanted or len(slots) >= limit:
                    break
                wanted *= _WIDENING


def indexed_rows(
    connection: Connection, embedder: Embedder, direction: FloatArray, limit: int
) -> list[int]:
    """Rows whose vectors reach furthest in a direction, through the tenant's index if any."""
    from psycopg import sql

    number, dimension = embedder.number, embedder.dimension
    connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
    connection.execute(f"SET LOCAL hnsw.ef_search = {min(1_000, max(_EF_SEARCH, limit)):d}")
    # What the index is limited to stands in the text: only then does the planner know it.
    found = connection.execute(
        f"""SELECT v.row FROM memory_vectors v WHERE v.user = ? AND v.vector IS NOT NULL
                AND v.user = {sql.quote(embedder.user)} AND v.embedder = {number:d}
            ORDER BY (v.vector::vector({dimension:d})) <#> ?::vector({dimension:d})
            LIMIT {limit:d}""",  # noqa: S608
        (embedder.user, vector_text(direction)),
    )
    return [row for (row,) in found]


def embedder_of(connection: Connection, user: str, name: str | None) -> Embedder | None:
    """An embedder the store knows, for one tenant's vectors."""
    found = connection.execute(
        "SELECT embedder, dimension FROM embedders WHERE name = ?", (name,)
    ).fetchone()
    return None if found is None else Embedder(user, *found)
