"""In-memory caches of rows that every ranking needs: usage history, texts and traits of memories.

The database stays the truth. Each cache reads the rows that changed since its last use.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from meritory.domain.world import moment_text
from meritory.rank.usage_history import WORD_SESSIONS, UsedSessions
from meritory.store.contract.memories import IntArray, Trait
from meritory.store.search.search import EPOCH_JULIAN_DAY
from meritory.store.sql.mapper import (
    SqlConnection,
    as_json,
    decode_vectors,
    moment,
    vector_bytes,
    vector_dimension,
)
from meritory.store.sql.memories import fetch_all
from meritory.text.terms import OPENING_CHARS, query_terms
from meritory.text.tokens import MAX_WORDS, imprint

LESSONS_KEPT = 256
_SECONDS_PER_DAY = 86_400.0
_NONE = -1
_LESSONS = """SELECT session, started_at, project, embedder, coalesce(context_vector, x''),
    context, learned FROM sessions"""
_LEARNED_SINCE = "WHERE user = ? AND learned > ?"
_THESE = "WHERE session IN (SELECT value FROM json_each(?))"
_USES = """SELECT u.session, m.row, u.gain FROM uses u
    JOIN memories m ON m.user = ? AND m.id = u.memory_id
    WHERE u.session IN (SELECT value FROM json_each(?)) ORDER BY m.row"""

# The columns of `UsedSessions` by name.
_COLUMNS: dict[str, type[np.generic]] = {
    **dict.fromkeys(("projects", "use_session", "use_memory", "word_session"), np.int64),
    **dict.fromkeys(("times_days", "use_gain"), np.float64),
    "contexts": np.float32,
    "word": np.uint16,
}


@dataclass(frozen=True, slots=True)
class _Lesson:
    """One labelled session."""

    at_days: float
    project: int
    embedder: str | None
    vector: bytes
    rows: NDArray[np.int64]
    gains: NDArray[np.float64]
    words: NDArray[np.uint16]
    # The number of its labelling, over all sessions.
    learned: int = 0

    @classmethod
    def nothing(cls, at_days: float) -> _Lesson:
        """Return a session of which only the moment is left."""
        none = np.empty(0, np.int64)
        return cls(at_days, _NONE, None, b"", none, none.astype(np.float64), imprint(()))

    def vector_of(self, embedder: str | None) -> bytes:
        """Return the vector of the context if it is of this embedder."""
        return self.vector if embedder is not None and embedder == self.embedder else b""


class _Column:
    """An array that changes at its end only; views handed out before stay valid."""

    def __init__(self, empty: NDArray[Any]) -> None:
        self._array = empty
        self._count = 0

    @property
    def values(self) -> NDArray[Any]:
        """Return the current values."""
        return self._array[: self._count]

    def put(self, at: int, values: Any) -> None:
        """Replace everything from position `at` on."""
        needed = at + len(values)
        if at < self._count or needed > len(self._array):
            room = np.empty((needed + needed // 2, *self._array.shape[1:]), self._array.dtype)
            room[:at] = self._array[:at]
            self._array = room
        self._array[at:needed] = values
        self._count = needed


class _Arrays:
    """Labelled sessions as parallel arrays, with contexts of one embedder."""

    def __init__(self, embedder: str | None, width: int) -> None:
        self.embedder, self.width = embedder, width
        self._columns = {
            name: _Column(np.empty((0, width) if name == "contexts" else 0, kind))
            for name, kind in _COLUMNS.items()
        }

    def put(self, at: int, lessons: Sequence[_Lesson]) -> None:
        """Replace all sessions from position `at` on."""
        positions, columns = np.arange(at, at + len(lessons)), self._columns
        used_at = int(np.searchsorted(columns["use_session"].values, at))
        said_at = int(np.searchsorted(columns["word_session"].values, at))
        # A session of another embedder gets a zero vector.
        missing = bytes(vector_bytes(self.width))
        blobs = [lesson.vector_of(self.embedder) for lesson in lessons]
        blob = b"".join(vector if len(vector) == len(missing) else missing for vector in blobs)
        contexts = decode_vectors(blob, self.width)
        columns["times_days"].put(at, [lesson.at_days for lesson in lessons])
        columns["contexts"].put(at, contexts)
        columns["projects"].put(at, [lesson.project for lesson in lessons])
        use_counts = [len(lesson.rows) for lesson in lessons]
        columns["use_session"].put(used_at, np.repeat(positions, use_counts))
        columns["use_memory"].put(used_at, np.concatenate([lesson.rows for lesson in lessons]))
        columns["use_gain"].put(used_at, np.concatenate([lesson.gains for lesson in lessons]))
        word_counts = [len(lesson.words) for lesson in lessons]
        columns["word_session"].put(said_at, np.repeat(positions, word_counts))
        columns["word"].put(said_at, np.concatenate([lesson.words for lesson in lessons]))

    def past(self) -> UsedSessions:
        """Return the history for ranking."""
        return UsedSessions(**{name: column.values for name, column in self._columns.items()})


class UsageHistory:
    """The labelled sessions of one user; not safe for several threads at once."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._learned = 0
        # The latest sessions, before which a late one is inserted. Older ones are read again in
        # the rare case that they are needed.
        self._lessons: dict[int, _Lesson] = {}
        # By time and, for the same moment, by the number of the session.
        self._order: list[tuple[float, int]] = []
        self._projects: dict[str, int] = {}
        self._arrays = _Arrays(None, 0)

    def project_number(self, project: str | None) -> int:
        """Return the small number of a project, -1 for none."""
        if project is None:
            return _NONE
        return self._projects.setdefault(project, len(self._projects))

    def caught_up(self, connection: SqlConnection, embedder: str | None) -> UsedSessions:
        """Return the current history, with contexts of one embedder."""
        fresh = self._read(connection, _LEARNED_SINCE, (self._user, self._learned))
        # Not from sessions that are read again: other processes may have labelled in between.
        self._learned = max((one.learned for one in fresh.values()), default=self._learned)
        self._lessons.update(fresh)
        # Sessions that began before the first change stay; the later ones are inserted again.
        changed = len(self._order)
        for session, lesson in fresh.items():
            key = (lesson.at_days, session)
            position = bisect_left(self._order, key)
            if self._order[position : position + 1] != [key]:
                self._order.insert(position, key)
            changed = min(changed, position)
        width = max(
            (vector_dimension(one.vector_of(embedder)) for one in fresh.values()), default=0
        )
        if embedder != self._arrays.embedder or width > self._arrays.width:
            changed = 0
        if changed < len(self._order):
            lessons = self._from(connection, changed)
            if changed == 0:
                every = (vector_dimension(lesson.vector_of(embedder)) for lesson in lessons)
                self._arrays = _Arrays(embedder, max(every))
            self._arrays.put(changed, lessons)
            latest = (session for _, session in self._order[-LESSONS_KEPT:])
            self._lessons = {key: self._lessons[key] for key in latest if key in self._lessons}
        return self._arrays.past()

    def _from(self, connection: SqlConnection, position: int) -> list[_Lesson]:
        """Return the sessions from a position on; read those that are not cached."""
        wanted = [session for _, session in self._order[position:]]
        missing = [session for session in wanted if session not in self._lessons]
        again = {} if not missing else self._read(connection, _THESE, (as_json(missing),))
        lessons = {**again, **self._lessons}
        # A session that was purged since stays in the order without content.
        return [lessons.get(session, _Lesson.nothing(at)) for at, session in self._order[position:]]

    def _read(
        self, connection: SqlConnection, which: str, values: tuple[Any, ...]
    ) -> dict[int, _Lesson]:
        rows = connection.execute(f"{_LESSONS} {which} ORDER BY learned", values).fetchall()
        if not rows:
            return {}
        uses: dict[int, list[tuple[int, float]]] = {}
        for session, row, gain in connection.execute(
            _USES, (self._user, as_json(row[0] for row in rows))
        ):
            uses.setdefault(session, []).append((row, gain))
        found: dict[int, _Lesson] = {}
        for left, (session, started_at, project, embedder, vector, context, learned) in zip(
            range(len(rows))[::-1], rows, strict=True
        ):
            helped = uses.get(session, [])
            found[session] = _Lesson(
                moment(started_at).timestamp() / _SECONDS_PER_DAY,
                self.project_number(project),
                embedder,
                vector,
                np.array([row for row, _ in helped], np.int64),
                np.array([gain for _, gain in helped], np.float64),
                # Ranking does not use older words.
                imprint(query_terms(context, MAX_WORDS) if left < WORD_SESSIONS else ()),
                learned,
            )
        return found


# The fields of a trait that only a change of the memory changes. The plus keeps SQLite from
# scanning all memories of the user.
_LASTING = """SELECT m.row, m.valid_until, m.id, m.kind, s.project, m.importance, m.pinned,
        julianday(coalesce(m.valid_from, m.created_at)) - :epoch, julianday(m.created_at) - :epoch,
        substr(m.content, 1, :opening)
    FROM memories m JOIN scopes s ON s.scope = m.scope
    WHERE m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user
        AND m.trust = 'trusted' AND m.deleted_at IS NULL AND m.superseded_by IS NULL"""
_COUNTED = """SELECT row, access_count, usefulness FROM memory_stats
    WHERE row IN (SELECT value FROM json_each(?)) AND scope IN (SELECT value FROM json_each(?))"""
_WORDINGS = """SELECT m.row, m.content, m.kind FROM memories m
    WHERE m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user"""
# More than any session reads, and still only a few megabytes.
TRAITS_LIMIT = 50_000
WORDINGS_LIMIT = 16_384
# Longer texts are read each time.
KEPT_CHARS = 2_000
USERS_KEPT = 64

T = TypeVar("T")


class _RowCache(ABC, Generic[T]):
    """What was read about the memories of one user, by row, until they change."""

    _limit: int

    def __init__(self, user: str) -> None:
        self._user = user
        self._lock = threading.Lock()
        self._change = 0
        self._kept: dict[int, T] = {}

    @abstractmethod
    def _fetch(self, connection: SqlConnection, rows: Sequence[int]) -> dict[int, T]:
        """Read what is cached about rows."""

    def _may_keep(self, found: T) -> bool:
        return True

    def _known(self, connection: SqlConnection, wanted: Sequence[int], change: int) -> dict[int, T]:
        """Return what is known about rows; `change` is the last one that the connection sees."""
        with self._lock:
            kept = self._kept
            if len(kept) > self._limit:
                kept.clear()
            if kept and change != self._change:
                # Rows read later may be newer, never older.
                for (row,) in connection.execute(
                    "SELECT row FROM memories WHERE user = ? AND change > ?",
                    (self._user, self._change),
                ):
                    kept.pop(row, None)
            self._change = change
            missing = [row for row in wanted if row not in kept]
            fresh = self._fetch(connection, missing) if missing else {}
            kept.update((row, found) for row, found in fresh.items() if self._may_keep(found))
            return {row: kept[row] for row in wanted if row in kept} | fresh


class Wordings(_RowCache[tuple[str, str]]):
    """The texts and the kinds of one user's memories."""

    _limit = WORDINGS_LIMIT

    def read(
        self, connection: SqlConnection, rows: IntArray, change: int
    ) -> dict[int, tuple[str, str]]:
        """Return the text and the kind of memories by their rows."""
        return self._known(connection, rows.tolist(), change)

    def _fetch(self, connection: SqlConnection, rows: Sequence[int]) -> dict[int, tuple[str, str]]:
        found = fetch_all(connection, _WORDINGS, {"rows": as_json(rows), "user": self._user})
        return {row: (content, kind) for row, content, kind in found}

    def _may_keep(self, found: tuple[str, str]) -> bool:
        return len(found[0]) <= KEPT_CHARS


# By row: the end of its validity, and the first fields of its trait.
class Traits(_RowCache[tuple[str | None, tuple[Any, ...]]]):
    """The traits of one user's memories.

    The lasting fields are cached until the memory changes; the counters are always read.
    """

    _limit = TRAITS_LIMIT

    def read(
        self,
        connection: SqlConnection,
        rows: IntArray,
        scopes: Sequence[int],
        now: datetime,
        change: int,
    ) -> dict[int, Trait]:
        """Return the traits of the live, trusted and valid memories of these rows.

        `change` is the number of the last change that the connection sees.
        """
        wanted, now_text = rows.tolist(), moment_text(now)
        lasting = self._known(connection, wanted, change)
        traits = {}
        for row, access_count, usefulness in connection.execute(
            _COUNTED, (as_json(wanted), as_json(scopes))
        ):
            until, fields = lasting.get(row, ("", ()))
            if until is None or until > now_text:
                traits[row] = Trait._make((*fields, access_count, usefulness))
        return traits

    def _fetch(
        self, connection: SqlConnection, rows: Sequence[int]
    ) -> dict[int, tuple[str | None, tuple[Any, ...]]]:
        values = {"user": self._user, "rows": as_json(rows), "epoch": EPOCH_JULIAN_DAY}
        found = connection.execute(_LASTING, {**values, "opening": OPENING_CHARS})
        return {row: (until, tuple(lasting)) for row, until, *lasting in found}


class ByUser(Generic[T]):
    """The caches of recent users; safe to share between threads."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._caches: OrderedDict[str, T] = OrderedDict()

    def of(self, user: str) -> T:
        """Return the cache of one user."""
        with self._lock:
            cache = self._caches.get(user)
            if cache is None:
                cache = self._caches[user] = self._make(user)
            self._caches.move_to_end(user)
            if len(self._caches) > USERS_KEPT:
                self._caches.popitem(last=False)
        return cache
