"""A session's candidates out of an SQLite store: several searches, one look at the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from tenure.codec import moment_text
from tenure.store.base import IntArray
from tenure.store.candidates import Gathered, Gathering, Trait
from tenure.store.index import MemoryIndex
from tenure.store.reads import as_json
from tenure.store.search import EPOCH_JULIAN_DAY, both_legs, open_view, united
from tenure.store.stems import Stemmer
from tenure.store.view import View, top

_TRAITS = """SELECT m.row, m.id, m.kind, s.project, m.importance, m.pinned,
        julianday(coalesce(m.valid_from, m.created_at)) - :epoch, julianday(m.created_at) - :epoch,
        t.access_count, t.usefulness
    FROM memories m JOIN memory_stats t ON t.row = m.row JOIN scopes s ON s.scope = m.scope
    WHERE m.row IN (SELECT value FROM json_each(:rows))
        AND m.scope IN (SELECT value FROM json_each(:scopes))
        AND m.trust = 'trusted' AND m.deleted_at IS NULL AND m.superseded_by IS NULL
        AND (m.valid_until IS NULL OR m.valid_until > :now)"""


def gather(
    connection: sqlite3.Connection,
    stemmer: Stemmer,
    index: MemoryIndex,
    gathering: Gathering,
    scopes: list[int],
) -> Gathered:
    """Every side's best, with both legs' scores for all of them."""
    search = gathering.search
    view = open_view(index, search, scopes)
    legs = both_legs(connection, stemmer, view, search, scopes)
    row_of_id = _rows_of(connection, view, search.scope.user, gathering.ids)
    wanted = np.concatenate([gathering.rows, np.array(list(row_of_id.values()), np.int64)])
    extra = view.open_slots_of(wanted)
    # Not centred: what all memories share lies in the contexts as well (ADR 0010).
    near = top(legs.raw, search.vector_limit)
    standing = view.best_standing(gathering.effective_limit)
    slots = united(view, legs.hits, near, standing, extra)
    # By row, so that the same store gives the same order in every process.
    slots = slots[np.argsort(view.rows(slots))]
    text = np.zeros(view.count, np.float32)
    text[legs.hits] = legs.text_scores
    return Gathered(
        rows=view.rows(slots),
        text=text[slots],
        cosine=legs.raw[slots],
        centred=legs.cosines[slots],
        provenance=view.provenances(slots),
        confidence=view.confidences(slots),
        demotion=view.demotions(slots),
        vectors=view.vectors(slots),
        by_effective=view.rows(standing),
        by_cosine=view.rows(near),
        by_text=view.rows(legs.hits),
        row_of_id=row_of_id,
    )


def _rows_of(
    connection: sqlite3.Connection, view: View, user: str, ids: Sequence[str]
) -> dict[str, int]:
    """By id the rows that are open; an id from outside says nothing about who may see it."""
    if not ids:
        return {}
    found = connection.execute(
        "SELECT id, row FROM memories WHERE user = ? AND id IN (SELECT value FROM json_each(?))",
        (user, as_json(ids)),
    )
    rows = dict(found.fetchall())
    slots = view.open_slots_of(np.array(list(rows.values()), np.int64))
    return {
        name: row
        for (name, row), slot in zip(rows.items(), slots.tolist(), strict=True)
        if slot >= 0
    }


def traits(
    connection: sqlite3.Connection, rows: IntArray, scopes: Sequence[int], now: datetime
) -> dict[int, Trait]:
    """What ranking needs of the live, trusted, valid memories behind row numbers."""
    found = connection.execute(
        _TRAITS,
        {
            "rows": as_json(rows.tolist()),
            "scopes": as_json(scopes),
            "now": moment_text(now),
            "epoch": EPOCH_JULIAN_DAY,
        },
    )
    return {row: Trait(*told) for row, *told in found}
