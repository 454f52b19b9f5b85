"""Memories as database rows and back, with a hash over every durable field."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.codec import moment_text, parse_moment, source_to_dict
from meritory.errors import Corrupt, InputError
from meritory.types import MemoryRecord, Source

# Order matters: `durable` and `decode` walk the same list.
DURABLE = (
    "id",
    "content",
    "kind",
    "user",
    "agent",
    "project",
    "provenance",
    "origin",
    "trust",
    "confidence",
    "importance",
    "pinned",
    "demotion",
    "tags",
    "sources",
    "valid_from",
    "valid_until",
    "created_at",
    "updated_at",
    "superseded_by",
    "deleted_at",
)
MEMORY_COLUMNS = (
    *(name for name in DURABLE if name not in ("agent", "project")),
    "scope",
    "words",
    "content_hash",
    "session_key",
    "turn",
    "change",
    "row_hash",
)
SELECT_RECORD = """
    SELECT m.row, m.id, m.content, m.kind, m.user, s.agent, s.project, m.provenance, m.origin,
        m.trust, m.confidence, m.importance, m.pinned, m.demotion, m.tags, m.sources,
        m.valid_from, m.valid_until, m.created_at, m.updated_at, m.superseded_by, m.deleted_at,
        m.row_hash, t.access_count, t.last_accessed, t.usefulness, e.name, e.dimension
    FROM memories m
    JOIN scopes s ON s.scope = m.scope
    JOIN memory_stats t ON t.row = m.row
    LEFT JOIN memory_vectors v ON v.row = m.row AND length(v.vector) > 0
        AND v.embedder = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')
    LEFT JOIN embedders e ON e.embedder = v.embedder
"""
_MOMENTS = frozenset(
    {"valid_from", "valid_until", "created_at", "updated_at", "deleted_at", "last_accessed"}
)
# Made once: every record that is read is hashed.
_HASHED_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")


def durable(record: MemoryRecord) -> dict[str, Any]:
    """The durable fields as the database holds them."""
    values = {name: getattr(record, name) for name in DURABLE}
    for name in _MOMENTS & values.keys():
        if values[name] is not None:
            values[name] = moment_text(values[name])
    values["pinned"] = int(record.pinned)
    # SQLite keeps no negative zero: hashed as it is, the row would look damaged when read.
    values["confidence"] = float(record.confidence) + 0.0
    values["importance"] = float(record.importance) + 0.0
    values["tags"] = json.dumps(record.tags, ensure_ascii=False)
    values["sources"] = json.dumps(
        [source_to_dict(source) for source in record.sources], ensure_ascii=False
    )
    return values


def row_hash(values: Sequence[Any]) -> bytes:
    """The hash of the durable values, in the order of `DURABLE`."""
    # Only a damaged row can hold bytes; any text in their place gives another hash.
    return hashlib.blake2b(_HASHED_TEXT(list(values)).encode(), digest_size=16).digest()


def turn_number(locator: str | None) -> int | None:
    """The place of a turn in its session: the last number in its locator."""
    found = _LAST_NUMBER.search(locator) if locator else None
    return int(found.group(1)) if found else None


def decode(row: Sequence[Any]) -> MemoryRecord:
    """The memory of a `SELECT_RECORD` row; Corrupt when its hash does not fit."""
    values = row[1 : 1 + len(DURABLE)]
    stored_hash, access_count, last_accessed, usefulness, embedder, dimension = row[
        1 + len(DURABLE) :
    ]
    if row_hash(values) != stored_hash:
        raise Corrupt(
            f"memory {values[0]} does not match its hash",
            hint="run `meritory doctor --deep`; a backup may still hold the good text",
        )
    fields: dict[str, Any] = dict(zip(DURABLE, values, strict=True))
    fields["pinned"] = bool(fields["pinned"])
    # Most memories have none.
    fields["tags"] = () if fields["tags"] == "[]" else tuple(json.loads(fields["tags"]))
    told = () if fields["sources"] == "[]" else json.loads(fields["sources"])
    fields["sources"] = tuple(Source(**source) for source in told)
    fields["last_accessed"] = last_accessed
    try:
        for name in _MOMENTS:
            if fields[name] is not None:
                fields[name] = parse_moment(fields[name], name)
    except InputError as error:  # counters have no hash
        raise Corrupt(f"memory {values[0]}: {error.message}") from error
    return MemoryRecord(
        access_count=access_count,
        usefulness=usefulness,
        embedder=embedder,
        dimension=dimension,
        **fields,
    )


def vector_blob(vector: NDArray[np.float32], dimension: int) -> bytes:
    """A unit vector as bytes; nothing at all for the zero vector, which means there is none."""
    if vector.shape != (dimension,) or not np.isfinite(vector).all():
        raise InputError(f"a vector must have {dimension} finite numbers")
    return np.ascontiguousarray(vector, np.float32).tobytes() if np.any(vector) else b""
