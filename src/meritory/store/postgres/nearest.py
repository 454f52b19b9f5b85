"""Which memories of a scope are nearest to given vectors, on PostgreSQL.

One or two vectors are measured by pgvector against the whole scope. For more, as when many texts
are taken in, the scope's vectors come over once. A large tenant is searched through the index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meritory.store.base import Probe
from meritory.store.index import Nearest
from meritory.store.postgres import vectors
from meritory.store.postgres.vectors import Embedder, vector_of, vector_text
from meritory.store.sql import Connection

# From so many vectors on it is faster to bring the scope's vectors over.
_MANY = 3
# How many more the index is asked for, because others' scopes have their share among them.
_WIDENING = 8
_LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL AND v.vector IS NOT NULL"
_OF_SCOPE = f"""FROM memories m JOIN memory_vectors v ON v.user = m.user AND v.row = m.row
    WHERE m.user = :user AND m.scope = :scope AND v.embedder = :embedder AND {_LIVE}"""
_MEASURED = f"""SELECT m.row, -(v.vector <#> :query::vector) {_OF_SCOPE}
        AND -(v.vector <#> :query::vector) >= :floor
    ORDER BY 2 DESC, 1 LIMIT :limit"""
_VECTORS = f"SELECT m.row, v.vector {_OF_SCOPE} ORDER BY m.row"
_ROW_COUNT = "SELECT document_count FROM tenants WHERE user = ?"


def nearest_rows(
    connection: Connection, embedder: Embedder | None, probe: Probe, scope: int
) -> list[Nearest]:
    """For each vector the live rows of one scope at or above a cosine, nearest first."""
    if embedder is None or embedder.dimension != probe.vectors.shape[1]:
        # The embedder was retired between embedding and writing.
        return [Nearest.none() for _ in probe.vectors]
    values = {"user": embedder.user, "embedder": embedder.number, "scope": scope}
    (row_count,) = connection.execute(_ROW_COUNT, (embedder.user,)).fetchone() or (0,)
    if row_count > vectors.EXACT_ROWS:
        return [
            _indexed(connection, embedder, probe, one, scope) for one in range(len(probe.vectors))
        ]
    if len(probe.vectors) >= _MANY:
        return _compared(connection, probe, values)
    asked = {**values, "floor": probe.floor, "limit": probe.limit}
    return [
        _nearest(connection.execute(_MEASURED, {**asked, "query": vector_text(vector)}).fetchall())
        for vector in probe.vectors
    ]


def _nearest(found: list[Any]) -> Nearest:
    rows, cosines = zip(*found, strict=True) if found else ((), ())
    return Nearest(np.array(rows, np.int64), np.array(cosines, np.float32))


def _compared(connection: Connection, probe: Probe, values: dict[str, Any]) -> list[Nearest]:
    """All at once, by one product of matrices."""
    found = connection.execute(_VECTORS, values).fetchall()
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


def _indexed(
    connection: Connection, embedder: Embedder, probe: Probe, at: int, scope: int
) -> Nearest:
    """Through the index, which knows of no scopes."""
    wanted, vector = probe.limit * _WIDENING, probe.vectors[at]
    nearest = vectors.indexed_rows(connection, embedder, (vector, vector, vector), wanted)
    close = [row for row, cosine, _ in nearest if cosine >= probe.floor]
    if not close:
        return Nearest.none()
    found = connection.execute(
        _MEASURED.replace("ORDER BY", "AND m.row = ANY(:rows::bigint[]) ORDER BY"),
        {
            "user": embedder.user,
            "embedder": embedder.number,
            "scope": scope,
            "query": vector_text(vector),
            "floor": probe.floor,
            "limit": probe.limit,
            "rows": vectors.rows_text(np.array(close, np.int64)),
        },
    )
    return _nearest(found.fetchall())
