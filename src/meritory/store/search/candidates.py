"""A session's candidates out of an SQLite store: several searches, one look at the index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from meritory.domain.codec import moment_text
from meritory.store.contract.memories import Gathered, Gathering, IntArray, Trait
from meritory.store.search.index import View, top
from meritory.store.search.search import EPOCH_JULIAN_DAY, Ground, both_legs, numbers, united
from meritory.store.sql.connection import SqlConnection, as_json
from meritory.text.overlap import OPENING_CHARS

# What a memory is, without what may change while it stays the same. The plus keeps SQLite from
# walking through all of a user's memories.
_LASTING = """SELECT m.row, m.valid_until, m.id, m.kind, s.project, m.importance, m.pinned,
        julianday(coalesce(m.valid_from, m.created_at)) - :epoch, julianday(m.created_at) - :epoch,
        substr(m.content, 1, :opening)
    FROM memories m JOIN scopes s ON s.scope = m.scope
    WHERE m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user
        AND m.trust = 'trusted' AND m.deleted_at IS NULL AND m.superseded_by IS NULL"""
_COUNTED = """SELECT row, access_count, usefulness FROM memory_stats
    WHERE row IN (SELECT value FROM json_each(?)) AND scope IN (SELECT value FROM json_each(?))"""
# More than any session asks for, and still only a few megabytes.
TRAITS_LIMIT = 20_000


def gather(ground: Ground, gathering: Gathering) -> Gathered:
    """Every side's best, with both legs' scores for all of them."""
    search, view = gathering.search, ground.view
    legs = both_legs(ground, search)
    row_of_id = _rows_of(ground.connection, view, search.scope.user, gathering.ids)
    wanted = np.concatenate([gathering.rows, np.array(list(row_of_id.values()), np.int64)])
    extra = view.open_slots_of(wanted)
    # Not centred: what all memories share lies in the contexts as well (ADR 0010).
    near = top(legs.raw, search.vector_limit)
    standing = view.best_standing(gathering.effective_limit)
    slots = united(view, legs.hits, near, standing, extra)
    # By row, so that the same store gives the same order in every process.
    slots = slots[np.argsort(view.rows(slots))]
    ground.vectors.complete(legs.raw, legs.cosines, slots)
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
        vectors=ground.vectors.vectors(slots),
        by_effective=view.rows(standing),
        by_cosine=view.rows(near),
        by_text=view.rows(legs.hits),
        row_of_id=row_of_id,
    )


def _rows_of(
    connection: SqlConnection, view: View, user: str, ids: Sequence[str]
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


class Traits:
    """What ranking needs of one user's memories.

    What lasts is remembered until the memory is changed; what use makes of a memory is always
    asked for. Not for several threads at once.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._change = 0
        # By row until when it holds, and the first fields of its trait.
        self._lasting: dict[int, tuple[str | None, tuple[Any, ...]]] = {}

    def of(
        self, connection: SqlConnection, rows: IntArray, scopes: Sequence[int], now: datetime
    ) -> dict[int, Trait]:
        """The traits of the live, trusted, valid memories behind row numbers."""
        wanted, moment = rows.tolist(), moment_text(now)
        self._catch_up(connection)
        self._learn(connection, [row for row in wanted if row not in self._lasting])
        counted = connection.execute(_COUNTED, (as_json(wanted), as_json(scopes)))
        found = {}
        for row, access_count, usefulness in counted:
            if row in self._lasting:
                until, lasting = self._lasting[row]
                if until is None or until > moment:
                    found[row] = Trait._make((*lasting, access_count, usefulness))
        return found

    def _catch_up(self, connection: SqlConnection) -> None:
        """Forgets what was changed since; what is learned later may be newer, never older."""
        change = self._last_change(connection)
        if len(self._lasting) > TRAITS_LIMIT:
            self._lasting.clear()
        if self._lasting and change != self._change:
            changed = connection.execute(
                "SELECT row FROM memories WHERE user = ? AND change > ?", (self._user, self._change)
            )
            for (row,) in changed:
                self._lasting.pop(row, None)
        self._change = change

    def _last_change(self, connection: SqlConnection) -> int:
        return numbers(connection)["change"]

    def _learn(self, connection: SqlConnection, rows: Sequence[int]) -> None:
        if rows:
            values = {"user": self._user, "rows": as_json(rows), "epoch": EPOCH_JULIAN_DAY}
            values["opening"] = OPENING_CHARS
            for row, until, *told in connection.execute(_LASTING, values):
                self._lasting[row] = (until, tuple(told))
