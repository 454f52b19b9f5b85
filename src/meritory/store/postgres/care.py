"""What is wrong with a tenant's rows, in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from meritory.errors import Corrupt
from meritory.store import rows as codec
from meritory.store.reads import SqlReads
from meritory.store.sql import Connection

_DAMAGE_LIMIT = 20
_UNIT_TOLERANCE = 0.01
_COUNTS = """SELECT (SELECT count(*) FROM memories WHERE user = :user),
    (SELECT count(*) FROM memories m JOIN memory_stats t ON t.row = m.row WHERE m.user = :user)"""
_BAD_VECTORS = """SELECT v.row FROM memory_vectors v JOIN embedders e ON e.embedder = v.embedder
    WHERE v.user = ? AND v.vector IS NOT NULL AND (length(v.vector) <> 4 * e.dimension
        OR abs(vector_norm(v.vector) - 1) > ?) ORDER BY v.row LIMIT ?"""


def check_tenant(connection: Connection, user: str) -> list[str]:
    """Reads every row of a tenant and its hash."""
    damage = list(itertools.islice(_damaged_records(connection, user), _DAMAGE_LIMIT))
    damage += itertools.islice(SqlReads(connection).damaged_history(user), _DAMAGE_LIMIT)
    bad = connection.execute(_BAD_VECTORS, (user, _UNIT_TOLERANCE, _DAMAGE_LIMIT))
    damage += [f"the vector of row {row} is damaged" for (row,) in bad]
    stored, joined = connection.execute(_COUNTS, {"user": user}).fetchone()
    if joined != stored:
        damage.append(f"{stored - joined} memories lack their counters")
    return damage


def _damaged_records(connection: Connection, user: str) -> Iterator[str]:
    for row in connection.execute(f"{codec.SELECT_RECORD} WHERE m.user = ?", (user,)):
        try:
            codec.decode(row)
        except Corrupt as error:
            yield error.message
